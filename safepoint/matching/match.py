"""Matches the calls of a trace: actions, groups, arcs, and what is alive where. `matched` says what each of these is.

The joins are those of `objects`, `opened` and `messages`; here they become actions.

(1) A collective call is the i-th on its communicator at each member, whether it blocks or not. A group of one that does
    not block holds its completions too: between them the operation is under way, and a restart would lose it.
(2) What cannot be legal leads to NEVER, and a remark says it: a call that did not return, a message without its
    receive, a collective call without all its members, anything with processes outside of the world. What raised is
    judged as not having happened.
(3) From `Put` or `Get` to the end of its epoch is no legal place: the memory of a window is in between two states.
(4) Clocks only tell how long ranks wait. What is legal does not depend on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.clocks import clocks
from safepoint.matching.matched import COLLECTIVE, MARKS, MESSAGE, MESSAGES, NO_STEP, NONE, Ints, Matched
from safepoint.matching.messages import Joined, messages
from safepoint.matching.objects import (
    ON_COMM,
    ON_FILE,
    ON_WIN,
    Bools,
    Calls,
    Gap,
    Things,
    alive,
    identified,
    numbered,
    persistent,
    turns,
)  # fmt: skip
from safepoint.matching.opened import SEVERAL, Opened, requests
from safepoint.matching.reading import Trace, read
from safepoint.matching.threads import beside, overlapping
from safepoint.matching.windows import epochs, unexposed
from safepoint.matching.wrong import MATCHED, named, say, tell, tell_messages
from safepoint.trace import record, roles

ACTIONS = (
    "send", "isend", "recv", "irecv", "sendrecv", "isendrecv", "probe", "mprobe", "mrecv", "imrecv", "start",
    "startall", "coll", "icoll", "coll_init", "comm_new", "icomm_new", "comm_of_group", "comm_free", "win_new",
    "win_free", "win_coll", "put", "iput", "win_open", "win_close", "win_expose", "file_new", "file_free", "file_coll",
    "file_icoll", "file_iio",
)  # fmt: skip
LATER = "icoll", "icomm_new", "file_icoll"  # collective calls that have a request
TIMED = "waitany", "waitsome", "test", "testall", "testany", "testsome", "iprobe", "improbe", "look"


class Meetings(NamedTuple):
    """Collective calls. A row for each call that begins one, and one more for each that completes a request of one."""

    call: Ints
    group: Ints
    begins: Bools
    done: Bools  # of what begins: it has completed
    size: Ints  # of each group: so many members are due
    across: Ints  # and on what, as in `Things`

    def highest(self, values: Ints) -> Ints:
        """Of each group, of those that begin; `values` for each row."""
        found = np.full(len(self.size), np.iinfo("i8").min)
        np.maximum.at(found, self.group[self.begins], values[self.begins])
        return found


def matched(directory: Path) -> Matched:
    """A trace, read and matched. Raises `TraceError`."""
    return match(read(directory))


def match(trace: Trace) -> Matched:
    """Raises `TraceError`."""
    calls = Calls(trace)
    things, opened = identified(calls), requests(calls)
    joined, pairs = messages(calls, things, opened), epochs(calls)
    acts = _acts(calls, things, opened)
    number = np.append(np.cumsum(acts) - 1, NONE)  # of actions; [NONE] is NONE
    count = np.bincount(calls.rank[acts], minlength=trace.size)
    begins = np.cumsum(np.append(0, count))

    def gap(some: Ints) -> Ints:
        """In which these calls begin."""
        found: Ints = number[some] + 1 - acts[some] - begins[calls.rank[some]]
        return found

    meetings, remarks = _meetings(calls, things, opened, acts), list(trace.remarks)
    broken = _broken(calls, things, meetings, remarks)
    messages_ = _messages(calls, joined, number)
    tell_messages(calls, things, joined, remarks)
    tell(calls, things, opened, acts, pairs, remarks)
    remarks += clocks(calls, joined)
    member, group, kind = _groups(messages_, meetings, number)
    implied = np.append(joined.sends.call, NONE)[joined.implied]
    arcs = np.concatenate([np.column_stack([joined.probes.call, implied]), pairs])
    some, here = np.flatnonzero(acts), [rank.rank for rank in trace.ranks]
    arcs = np.concatenate([arcs, overlapping(calls, some)])
    names, lasting = persistent(calls, gap, count, things.names)
    return Matched(
        begins=begins, enter=calls.enter[some], leave=calls.leave[some], site=calls.site[some],
        function=calls.function[some], record=some - np.repeat(calls.begins[:-1], count[here]),
        member=member, group=group, kind=kind,
        arcs=number[arcs[arcs[:, 1] != NONE]],
        requests=number[np.column_stack([opened.call, opened.close])],
        never=_never(calls, acts, number, messages_, [meetings.call[broken[meetings.group]],
                     joined.sends.call[joined.doubted], named(calls, *MATCHED)], arcs),
        messages=messages_, marks=beside(calls, acts, _marks(calls, gap)), unsure=_unsure(calls, gap),
        loose=number[_loose(calls, things, meetings)], cancelled=_cancelled(calls, opened, gap),
        torn=tuple(rank.rank for rank in trace.ranks if rank.torn),
        absent=tuple(sorted({*range(trace.size)} - {*here})),
        alive=np.concatenate([alive(calls, things, gap, count), lasting]),
        sites=trace.sites, functions=trace.functions, names=names, objects=things.names, remarks=remarks,
    )  # fmt: skip


def _acts(calls: Calls, things: Things, opened: Opened) -> Bools:
    """Which calls are actions."""
    acts = np.zeros(len(calls.rank), "?")
    acts[calls.of(*ACTIONS)] = True
    waiting, looking = calls.of("wait", *SEVERAL[:3]), calls.of("iprobe", "improbe")
    returned = calls.returned(waiting)
    acts[waiting[~returned | ((calls.flags[waiting] & record.PARTIAL) > 0)]] = True
    acts[waiting[~returned & calls.are(waiting, "wait") & (calls.request[waiting] == 0)]] = False
    acts[opened.close[opened.close != NONE]] = True
    acts[looking[calls.returned(looking) & ((calls.flags[looking] & record.FOUND) > 0)]] = True
    exposed, outside, final = calls.of("win_exposed"), calls.of("outside"), calls.of("finalize")
    acts[exposed[unexposed(calls, exposed)]] = True
    # Any program may ask for its parent. If it has none, that is no communication.
    asks = np.array([name == "Comm_get_parent" for name in calls.trace.functions], "?")[calls.function[outside]]
    acts[outside[~asks | np.isin(outside, things.made)]] = True
    acts[calls.doubtful] = True
    acts[final] = len(np.unique(calls.rank[final])) == calls.trace.size
    return acts


# Groups.


def _meetings(calls: Calls, things: Things, opened: Opened, acts: Bools) -> Meetings:
    """(1). One of a single member is none."""
    on, birth, final = calls.of(*ON_COMM, *ON_WIN, *ON_FILE), calls.of("comm_of_group"), calls.of("finalize")
    turn = turns(calls.thing[on])
    starts = np.flatnonzero((opened.call != opened.what) & calls.are(opened.what, "coll_init"))
    init = opened.what[starts]
    made = np.argsort(things.made, kind="stable")
    birth, final = birth[np.isin(birth, things.made)], final[acts[final]]
    born = made[np.searchsorted(things.made[made], birth)]
    parts = [  # the call, on what, the how-manieth there, the how-manieth start, the row of its request, has it one
        (on, things.across[calls.thing[on]], turn, on * 0, opened.rows(on), calls.are(on, *LATER)),
        (opened.call[starts], things.across[calls.thing[init]], turn[np.searchsorted(on, init)], turns(init) + 1,
         starts, starts >= 0),
        (birth, things.across[born], birth * 0 - 1, birth * 0, birth * 0 + NONE, birth < 0),
        (final, final * 0, final * 0 - 2, final * 0, final * 0 + NONE, final < 0),
    ]  # fmt: skip
    call, across, turn, again, row, asks = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = things.size[across] > 1
    call, across, row, asks = call[some], across[some], row[some], asks[some].astype("?")
    _, first, group = np.unique(numbered(across, turn[some], again[some]), return_index=True, return_inverse=True)
    close = np.where(asks, np.append(opened.close, NONE)[row], NONE)
    ends = close != NONE
    return Meetings(
        np.concatenate([call, close[ends]]), np.concatenate([group, group[ends]]), np.arange(len(call) + ends.sum()) <
        len(call), np.append(calls.returned(call) & (~asks | ends), np.zeros(ends.sum(), "?")),
        things.size[across[first]], across[first],
    )  # fmt: skip


def _broken(calls: Calls, things: Things, meetings: Meetings, remarks: list[str]) -> Bools:
    """Which of the groups are not completed by all members; and those whose members do not mean the same call."""
    begins, groups = meetings.begins, len(meetings.size)
    here = np.bincount(meetings.group[begins], minlength=groups)
    done = np.bincount(meetings.group[begins & meetings.done], minlength=groups)
    function, root = calls.function[meetings.call], calls.peer[meetings.call].astype("i8")
    differ = meetings.highest(function) != -meetings.highest(-function)
    named = meetings.highest(np.where(root >= 0, root, NONE))
    differ |= (named != NONE) & (named != -meetings.highest(np.where(root >= 0, -root, -named[meetings.group])))
    short_of = (here < meetings.size) & (not len(calls.trace.ranks) < calls.trace.size)

    def apart(group: int) -> str:
        some = meetings.call[begins & (meetings.group == group)]
        other = some[(calls.function[some] != calls.function[some[0]]) | (calls.peer[some] != calls.peer[some[0]])]
        pair = [f"rank {calls.rank[call]} calls {calls.said(call)}" for call in (some[0], other[0])]
        return (
            f"{things.names[meetings.across[group]]}: {pair[0]}, and {pair[1]} instead of the same with the same root"
        )

    def few(group: int) -> str:
        call = meetings.call[begins & (meetings.group == group)][0]
        return (
            f"{things.names[meetings.across[group]]}: {calls.said(call)} was called by {here[group]} of "
            f"{meetings.size[group]} ranks"
        )

    say(remarks, np.flatnonzero(differ), apart)
    say(remarks, np.flatnonzero(short_of & ~differ), few)
    broken: Bools = (done < meetings.size) | differ
    return broken


def _groups(rows: NDArray[np.void], meetings: Meetings, number: Ints) -> tuple[Ints, Ints, Ints]:
    """Member, group and kind, by group."""
    whole = rows["group"] != NONE
    sent, received = rows["sent"][whole], rows["received"][whole]
    order = np.argsort(meetings.group, kind="stable")
    member = np.empty(2 * len(sent) + len(order), "i8")
    member[: 2 * len(sent) : 2], member[1 : 2 * len(sent) : 2] = sent, received
    member[2 * len(sent) :] = number[meetings.call[order]]
    group = np.append(np.repeat(np.arange(len(sent)), 2), meetings.group[order] + len(sent))
    if len(own := 2 * np.flatnonzero(sent == received)):  # a Sendrecv with itself is in its group once
        member, group = np.delete(member, own), np.delete(group, own)
    return member, group, np.repeat([MESSAGE, COLLECTIVE], [len(sent), len(meetings.size)])


def _messages(calls: Calls, joined: Joined, number: Ints) -> NDArray[np.void]:
    """Sends in their order, with their receives; then receives that have none."""
    sends, receives = joined.sends, joined.receives
    alone = np.ones(len(receives.call), "?")
    alone[joined.taken[joined.taken != NONE]] = False
    sent = np.append(np.arange(len(sends.call)), np.full(np.count_nonzero(alone), NONE))
    took = np.append(joined.taken, np.flatnonzero(alone))
    found = np.zeros(len(sent), MESSAGES)
    of = np.where(sent == NONE, took + len(sends.call), sent)
    for name in ("source", "dest", "comm", "tag"):
        found[name] = np.concatenate([getattr(sends, name), getattr(receives, name)])[of]
    found["sent"] = number[np.append(sends.call, NONE)[sent]]
    found["posted"], found["received"] = (number[np.append(column, NONE)[took]] for column in
                                          (receives.call, receives.done))  # fmt: skip
    found["bytes"] = np.append(calls.bytes[sends.what], np.uint64(0))[sent]
    for name in ("wild_source", "wild_tag"):
        found[name] = np.append(getattr(receives, name), False)[took]
    whole = (found["sent"] != NONE) & (found["received"] != NONE)
    found["group"] = np.where(whole, np.cumsum(whole) - 1, NONE)
    return found


def _never(
    calls: Calls, acts: Bools, number: Ints, rows: NDArray[np.void], others: list[Ints], arcs: Ints
) -> Ints:  # fmt: skip
    """(2)."""
    entered = np.flatnonzero(acts & (calls.state == record.ENTERED))
    never = np.concatenate([entered, calls.doubtful, *others, calls.of("outside"), arcs[arcs[:, 1] == NONE, 0]])
    open_ = rows[rows["group"] == NONE]
    found = np.concatenate([number[never[acts[never]]], open_["sent"], open_["received"]])
    return np.unique(found[found != NONE])


# The rest.


def _marks(calls: Calls, gap: Gap) -> NDArray[np.void]:
    places = np.array([name in (roles.OURS[roles.HIDE], roles.OURS[roles.MARK]) for name in calls.trace.functions], "?")
    some = calls.of("ours")
    some = some[places[calls.function[some]]]
    found = np.zeros(len(some), MARKS)
    found["rank"], found["gap"], found["site"] = calls.rank[some], gap(some), calls.site[some]
    found["enter"], found["leave"] = calls.enter[some], calls.leave[some]
    found["hide"] = np.array([name == roles.OURS[roles.HIDE] for name in calls.trace.functions], "?")[
        calls.function[some]
    ]
    found["step"] = np.where(found["hide"], calls.bytes[some].view("i8"), NO_STEP)
    return found


def _loose(calls: Calls, things: Things, meetings: Meetings) -> Ints:
    """`Matched.loose`. A `Barrier` has no bytes, and waits."""
    some = meetings.call[meetings.begins]
    size = calls.bytes[some]
    some = some[(size == 0) | (size == np.uint64(record.UNKNOWN)) | calls.between[calls.thing[some]]]
    waits = np.array([name in ("Barrier", "Ibarrier") for name in calls.trace.functions], "?")[calls.function[some]]
    size, pickled = calls.bytes[some], (calls.flags[some] & record.PICKLED) > 0
    empty = (size == 0) | ((size == np.uint64(record.UNKNOWN)) & ~pickled)
    found: Ints = some[(empty & ~waits) | calls.between[calls.thing[some]]]
    return found


def _cancelled(calls: Calls, opened: Opened, gap: Gap) -> Ints:
    """`Matched.cancelled`: in another run such a receive may have its message before."""
    gone = np.flatnonzero(opened.asked | (opened.got_peer == record.CANCELLED))
    gone = gone[calls.are(opened.what[gone], "irecv", "isendrecv", "recv_init", "imrecv")]
    call = opened.call[gone]
    return np.column_stack([calls.rank[call], gap(call)]).astype("i8")


def _unsure(calls: Calls, gap: Gap) -> Ints:
    """A probe for any source is one: what is called after it may depend on its answer; and who has a lock first."""
    probes = calls.of("probe")
    parts = (
        calls.of(*TIMED),
        probes[(calls.flags[probes] & record.WILD_SOURCE) > 0],
        named(calls, "Win_test", "Win_lock", "Win_lock_all"),
    )
    some = np.sort(np.concatenate(parts))
    some = some[calls.returned(some)]
    return np.column_stack([calls.rank[some], gap(some)]).astype("i8")
