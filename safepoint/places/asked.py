"""What else is asked of a judged trace, in sentences.

What it leaves to chance; what must be there before a restart; the legal place nearest to a time; where another run
differs.
"""

from __future__ import annotations

import numpy as np

from safepoint.matching.matched import NONE, Ints, Matched
from safepoint.places.chance import SAME, THIS, Difference, against, timed
from safepoint.places.lines import Judged, nearest
from safepoint.places.told import Told, where
from safepoint.places.window import clock_of
from safepoint.words import count, precise

SHOWN = 8  # ranks, calls or wildcards that are named; the others are counted


def doubts(told: Told) -> list[str]:
    """Each wildcard that could have taken another message, with all that it could have taken; and the calls whose
    outcome depends on time."""
    matched, found = told.matched, []
    for doubt in told.chance.doubts[:SHOWN]:
        row = matched.messages[doubt.receive]
        others = [_message(matched, one) for one in doubt.candidates.tolist() if one != doubt.receive]
        found.append(
            f"left to chance: the receive from any source at {_at(matched, int(row['posted']))} of rank {row['dest']} "
            f"took {_message(matched, doubt.receive)}; it could have taken {' or '.join(others[:SHOWN])}"
        )
    if told.chance.word in (SAME, THIS) and len(told.chance.unsure):
        found.append("depends on time: " + _calls(matched, told.chance.unsure))
    return found


def _message(matched: Matched, number: int) -> str:
    row = matched.messages[number]
    return f"that of rank {row['source']} with tag {row['tag']}, sent at {_at(matched, int(row['sent']))}"


def _at(matched: Matched, action: int) -> str:
    return where(matched.sites[matched.site[action]]) if action != NONE else "?"


def _calls(matched: Matched, unsure: Ints) -> str:
    """Rows of `Matched.unsure`, by function and site; those that are no actions have found nothing."""
    actions = timed(matched)[unsure]
    acted = actions[actions != NONE].tolist()
    names = list(dict.fromkeys(f"{matched.functions[matched.function[one]]} at {_at(matched, one)}" for one in acted))
    idle = len(unsure) - len(acted)
    more = [f"{len(names) - SHOWN} more"] * (len(names) > SHOWN)
    more += [f"{count(idle, 'call')} that found nothing"] * (idle > 0)
    return ", ".join(names[:SHOWN] + more)


def needed(told: Told) -> str:
    """What lives at the visits of the first line that is legal: a restart there must make it before."""
    one, names = _first(told), alive_at(told)
    if one is None:
        return ""
    held = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    at = f"{one.line.what} {where(told.matched.sites[one.line.site])}"
    return f'needed before a restart at "{at}": {held or "nothing but MPI_COMM_WORLD"}'


def alive_at(told: Told) -> list[str]:
    """The names of it."""
    one = _first(told)
    return [] if one is None else sorted({told.matched.names[number] for number in _alive(told.matched, one).tolist()})


def _first(told: Told) -> Judged | None:
    return next((line for line in told.lines if line.legal.any()), None)


def _alive(matched: Matched, one: Judged) -> Ints:
    """Names of what lives at a legal visit of this line."""
    rows, gaps = matched.alive, np.sort(one.gaps[one.legal], axis=0)
    lives = np.zeros(len(rows), "?")
    for rank in range(matched.ranks):
        mine = np.flatnonzero(rows["rank"] == rank)
        at = np.searchsorted(gaps[:, rank], rows["first"][mine])
        within = at < len(gaps)
        lives[mine[within]] = gaps[at[within], rank] <= rows["last"][mine[within]]
    return np.unique(rows["name"][lives])


def cut_near(told: Told, seconds: float) -> str:
    """The legal place nearest to this time, in seconds since the trace began."""
    matched = told.matched
    near = nearest(told.order, clock_of(matched).zero + round(seconds * 1e9))
    if near is None:
        return "there is no legal place at all"
    stands = [_stands(matched, rank, int(gap)) for rank, gap in enumerate(near.gaps.tolist())]
    more = f"; and {len(stands) - SHOWN} ranks more" if len(stands) > SHOWN else ""
    return (
        f"the legal place nearest to {precise(seconds)}: {precise(near.off_ns / 1e9)} off at most\n"
        + "; ".join(f"rank {rank} {text}" for rank, text in enumerate(stands[:SHOWN]))
        + more
    )


def _stands(matched: Matched, rank: int, gap: int) -> str:
    if gap == 0:
        return "before its first call"
    action = int(matched.begins[rank]) + gap - 1
    return f"after {matched.functions[matched.function[action]]} at {_at(matched, action)}"


def differences(told: Told, other: Matched, name: str) -> list[str]:
    """Where the calls of another run differ first, rank by rank."""
    found = against(told.matched, other)
    if not found:
        return [f"the calls are those of {name}, on every rank"]
    return [_difference(one, name) for one in found[:SHOWN]]


def _difference(one: Difference, name: str) -> str:
    here, there = one.here or "it has ended", one.there or "it has ended"
    return f"differs from {name}: rank {one.rank}, after {count(one.gap, 'action')} alike: {here}; there: {there}"
