"""What is wrong with a trace, or with its program, in sentences: the first few of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from safepoint.matching.matched import NONE, Ints
from safepoint.matching.messages import Joined
from safepoint.matching.objects import UNSEEN, Bools, Calls, Things
from safepoint.matching.opened import Opened
from safepoint.trace import record

MATCHED = "Win_start", "Win_complete", "Win_post", "Win_wait"  # whose are for whom the notes do not say
FEW = 5  # sentences of one kind


def named(calls: Calls, *names: str) -> Ints:
    """The calls of these functions on windows."""
    some = calls.of("win_open", "win_close", "win_expose", "win_exposed")
    wanted = np.array([name in names for name in calls.trace.functions], "?")
    found: Ints = some[wanted[calls.function[some]]]
    return found


def say(remarks: list[str], some: Ints, said: Callable[[int], str]) -> None:
    """A sentence for each of the first few."""
    remarks += [said(one) for one in some[:FEW].tolist()]
    if len(some) > FEW:
        remarks.append(f"and {len(some) - FEW:,} more like the last one")


def _unseen(things: Things) -> int:
    """Those that others of the same kind and ranks could be taken for."""
    names = Counter(name.partition(UNSEEN)[2] for name in things.names if UNSEEN in name)
    return sum(count for count in names.values() if count > 1)


def tell(calls: Calls, things: Things, opened: Opened, acts: Bools, pairs: Ints, remarks: list[str]) -> None:
    """Of (2), and what else may surprise."""

    def at(call: int) -> str:
        return f"rank {calls.rank[call]}: {calls.said(call)}"

    entered, raised = (np.flatnonzero(calls.state == state) for state in (record.ENTERED, record.RAISED))
    torn, open_ = np.flatnonzero((calls.flags & record.PARTIAL) > 0), opened.call[opened.close == NONE]
    locks = np.array([name.startswith("Win_lock") for name in calls.trace.functions], "?")
    passive, outside = calls.of("win_open"), calls.of("outside")
    say(remarks, entered, lambda call: f"{at(call)} never returned")
    doubtful = calls.doubtful
    say(remarks, raised[~np.isin(raised, doubtful)], lambda call: f"{at(call)} raised: it is judged as not called")
    say(remarks, doubtful, lambda call: f"{at(call)} raised: nobody knows what it has sent or received before")
    say(remarks, open_, lambda call: f"{at(call)}: its request is never completed")
    say(remarks, pairs[pairs[:, 1] == NONE, 0], lambda call: f"{at(call)}: what it begins is never ended")
    say(remarks, outside[acts[outside]], lambda call: f"{at(call)} is with processes outside of the world")
    say(remarks, torn, lambda call: f"{at(call)}: what it completed could not be noted")
    if len(found := passive[locks[calls.function[passive]]]):
        remarks.append(f"{at(found[0])}: a rank whose window is locked makes no call, so nothing shows there")
    if len(found := named(calls, *MATCHED)):
        remarks.append(f"{at(found[0])}: who starts and who posts is not matched, so no place after it is called legal")
    if unseen := _unseen(things):
        remarks.append(
            f"{unseen} communicators or windows of the same ranks were made where the tracer does not look: they are "
            "told apart by the order of their first use on each rank"
        )
    if opened.strange:
        remarks.append(f"{opened.strange:,} requests were completed or started that no noted call has made")


def tell_messages(calls: Calls, things: Things, joined: Joined, remarks: list[str]) -> None:
    """Those that are not received, and those that are not sent; but not if the other rank is not here."""
    sends, receives, taken = joined.sends, joined.receives, joined.taken
    here = np.array([rank.rank for rank in calls.trace.ranks])

    def to(row: int) -> str:
        call, dest = sends.call[row], sends.dest[row]
        text = (
            f"rank {sends.source[row]} → {dest if dest != NONE else 'outside of the world'}, tag {sends.tag[row]}, "
            f"{things.names[sends.comm[row]]}: sent by {calls.said(call)}"
        )
        if taken[row] == NONE:
            return f"{text}, never received"
        return f"{text}, taken by {calls.said(receives.call[taken[row]])}, which is never completed"

    def doubted(row: int) -> str:
        return (
            f"{to(row).partition(', never')[0].partition(', taken')[0]}: one that never ended may have taken it instead"
        )

    def of(row: int) -> str:
        return (
            f"rank {receives.source[row]} → {receives.dest[row]}, tag {receives.tag[row]}, "
            f"{things.names[receives.comm[row]]}: received by {calls.said(receives.call[row])}, no send of it is noted"
        )

    alone = receives.done != NONE
    alone[taken[taken != NONE]] = False
    lost = np.append(receives.done, NONE)[taken] == NONE
    whole = len(here) == calls.trace.size
    say(remarks, np.flatnonzero(lost & (whole | np.isin(sends.dest, here))), to)
    say(remarks, np.flatnonzero(joined.doubted & ~lost), doubted)
    say(remarks, np.flatnonzero(alone & (whole | np.isin(receives.source, here))), of)
