"""Windows and files: between which calls they are in between two states."""

from __future__ import annotations

import numpy as np

from safepoint.matching.matched import NONE, Ints
from safepoint.matching.objects import Bools, Calls, numbered
from safepoint.trace import record


def epochs(calls: Calls) -> Ints:
    """(n, 2): a call after which a window or file is in between two states, and that which ends this, or NONE."""
    close, put = calls.of("win_close"), calls.of("put", "iput")
    put, of_one = put[calls.peer[put] != record.PROC_NULL], calls.peer[close] >= 0
    of_all = np.concatenate([calls.of("win_coll", "win_free"), close[~of_one]])
    exposed, split = calls.of("win_exposed"), calls.of("file_coll")
    last = np.array([name.rpartition("_")[2] for name in calls.trace.functions])[calls.function[split]]
    begin, end = split[last == "begin"], split[last == "end"]
    pairs = [
        (put, np.minimum(_next(calls, put, of_all), _next(calls, put, close[of_one], calls.peer))),
        (calls.of("win_open"), _next(calls, calls.of("win_open"), close, calls.peer)),
        (calls.of("win_expose"), _next(calls, calls.of("win_expose"), exposed[unexposed(calls, exposed)])),
        (begin, _next(calls, begin, end)),
    ]
    found = np.concatenate([np.column_stack(pair) for pair in pairs])
    return np.where(found == len(calls.rank), NONE, found)


def unexposed(calls: Calls, some: Ints) -> Bools:
    """Which of these `Win_wait` and `Win_test` have ended the exposure of a window."""
    waits = np.array([name == "Win_wait" for name in calls.trace.functions], "?")
    found: Bools = waits[calls.function[some]] | ((calls.flags[some] & record.FOUND) > 0)
    return found


def _next(calls: Calls, some: Ints, others: Ints, peer: Ints | None = None) -> Ints:
    """Of each call the next of the others on its window or file, and to its peer; the number of all calls: none."""
    both, late = np.concatenate([some, others]), len(calls.rank)
    key = numbered(calls.thing[both], both * 0 if peer is None else peer[both]).astype("i8")
    keys = np.unique(key, return_inverse=True)[1] * (late + 1) + both
    own, after = keys[: len(some)], np.append(np.sort(keys[len(some) :]), np.iinfo("i8").max)
    at = after[np.searchsorted(after, own)]
    return np.where(at // (late + 1) == own // (late + 1), at % (late + 1), late)
