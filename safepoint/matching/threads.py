"""Several threads of a rank that call MPI: their calls are in the order in which they began, and may overlap.

A call of one thread is under way until it returns, whatever others begin meanwhile. So who has it in a cut must have
all that began before it returned; and a `hide` that began before it returned comes before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import Ints
from safepoint.matching.objects import Bools, Calls
from safepoint.trace import record


def _of_threads(calls: Calls, acts: Ints) -> Iterator[tuple[int, Ints]]:
    """The ranks that have several, with their actions."""
    for at, rank in enumerate(calls.trace.ranks):
        if rank.notes["thread"].any():
            first, last = np.searchsorted(acts, calls.begins[at : at + 2])
            yield rank.rank, acts[first:last]


def overlapping(calls: Calls, acts: Ints) -> Ints:
    """(n, 2): calls that are actions; the last one that began before this one returned. `acts`: all actions."""
    found = [np.empty((0, 2), "i8")]
    for _, own in _of_threads(calls, acts):
        own = own[calls.state[own] == record.RETURNED]
        enter = np.maximum.accumulate(calls.enter[own])
        last = np.searchsorted(enter, calls.leave[own]) - 1
        later = last > np.arange(len(own))
        found.append(np.column_stack([own[later], own[last[later]]]))
    return np.concatenate(found)


def beside(calls: Calls, acts: Bools, marks: NDArray[np.void]) -> NDArray[np.void]:
    """These marks of `hide` and `mark`, each before the calls of other threads that were under way when it began."""
    for rank, own in _of_threads(calls, np.flatnonzero(acts)):
        leave = np.where(calls.state[own] == record.ENTERED, np.iinfo("i8").max, calls.leave[own])
        for row in np.flatnonzero(marks["rank"] == rank).tolist():
            under_way = np.flatnonzero(leave[: marks["gap"][row]] > marks["enter"][row])
            if len(under_way):
                marks["gap"][row] = under_way[0]
    return marks
