"""Requests: which call completes what another one has begun.

(1) What completes a request comes after what began it. Else the trace is damaged, and it completes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safepoint.matching.matched import NONE, Ints
from safepoint.matching.objects import LASTS, Bools, Calls
from safepoint.matching.reading import TraceError
from safepoint.trace import record

OPENS = "isend", "irecv", "isendrecv", "icoll", "icomm_new", "iput", "file_icoll", "file_iio", "imrecv"
SEVERAL = "waitall", "waitany", "waitsome", "testall", "testany", "testsome"


class Opened(NamedTuple):
    """A row for each operation that has a request, in the order of the calls that began them."""

    call: Ints  # that began it; what one Startall begins is in its order
    what: Ints  # the call that says what it is: the same, or that which made the persistent request
    close: Ints  # the call that completes it, or NONE
    got_peer: Ints  # of a receive that is completed, as in the note
    got_tag: Ints
    asked: Bools  # Cancel was called, and no call says what came of it
    strange: int  # so many requests were completed, or started, that nobody has made

    def rows(self, calls: Ints) -> Ints:
        """The row that each of these calls has, or NONE. None of them is a Startall."""
        at = np.searchsorted(self.call, calls)
        there = np.append(self.call, NONE)[at] == calls
        return np.where(there, at, NONE)


def requests(calls: Calls) -> Opened:
    """All of them. Raises `TraceError`."""
    simple, lasts = calls.of(*OPENS), calls.of(*LASTS)
    simple = simple[calls.request[simple] > 0]
    starting, (handle, instance) = rows(calls, calls.of("start", "startall"), record.STARTED, 2)
    made = found_in(key_of(calls, lasts, calls.request[lasts]), key_of(calls, starting, handle))
    known = made != NONE
    call = np.concatenate([simple, starting[known]])
    what = np.concatenate([simple, lasts[made[known]]])
    key = key_of(calls, call, np.concatenate([calls.request[simple], instance[known]]))
    order = np.argsort(call, kind="stable")
    call, what, key = call[order], what[order], key[order]
    by_key = np.argsort(key, kind="stable")
    if len(twice := np.flatnonzero(key[by_key][1:] == key[by_key][:-1])):
        raise TraceError(f"{calls.where(int(call[by_key[twice[0] + 1]]))} begins a request that is begun already")
    return _closed(calls, call, what, key, int(np.count_nonzero(~known)))


def _closed(calls: Calls, call: Ints, what: Ints, key: Ints, strange: int) -> Opened:
    single = calls.of("wait", "test")
    done = calls.are(single, "wait") | ((calls.flags[single] & record.FOUND) > 0)
    single = single[done & (calls.request[single] > 0) & calls.returned(single)]
    freeing = calls.of("request_free")
    lasting = (calls.flags[freeing] & record.PERSISTENT) > 0
    several = calls.of(*SEVERAL)
    many, (number, peer, tag) = rows(calls, several[calls.returned(several)], record.COMPLETED, 3)
    freed, handles = freeing[~lasting & (calls.request[freeing] > 0)], freeing[lasting]
    closing = np.concatenate([single, many, freed])
    nothing = np.full(len(freed), record.NONE)
    peers = np.concatenate([calls.got_peer[single], peer, nothing])
    tags = np.concatenate([calls.got_tag[single], tag, nothing])
    of = found_in(key, key_of(calls, closing, np.concatenate([calls.request[single], number, calls.request[freed]])))
    right = (of != NONE) & (call[of] < closing if len(call) else False)  # (1)
    strange += int(np.count_nonzero(~right))
    right = np.flatnonzero(right)
    right = right[np.argsort(closing[right], kind="stable")][::-1]  # the first one of several is written last
    close, got_peer, got_tag = (np.full(len(call), value, "i8") for value in (NONE, record.NONE, record.NONE))
    for column, found in ((close, closing), (got_peer, peers), (got_tag, tags)):
        column[of[right]] = found[right]
    _free_running(calls, call, what, close, handles)
    cancelling = calls.of("cancel")
    asked = np.zeros(len(key), "?")
    if len(cancelling):
        asked = np.isin(key, key_of(calls, cancelling, calls.request[cancelling]))
        asked &= (close == NONE) | np.isin(close, freeing)
    return Opened(call, what, close, got_peer, got_tag, asked, strange)


def _free_running(calls: Calls, call: Ints, what: Ints, close: Ints, freeing: Ints) -> None:
    """A persistent request that is freed while it runs is closed by that."""
    lasts = calls.of(*LASTS)
    made = found_in(key_of(calls, lasts, calls.request[lasts]), key_of(calls, freeing, calls.request[freeing]))
    for free, init in zip(freeing[made != NONE].tolist(), lasts[made[made != NONE]].tolist(), strict=True):
        running = np.flatnonzero((what == init) & (call > init) & (call < free) & (close == NONE))
        close[running] = free


def rows(calls: Calls, some: Ints, kind: int, width: int) -> tuple[Ints, Ints]:
    """The rows of this kind in `.more` that these calls have: for each `width` values the call, and them as columns."""
    some = some[calls.row[some] != NONE]
    begin = calls.row[some]
    some, begin = some[calls.words[begin + 2] == kind], begin[calls.words[begin + 2] == kind]
    count = calls.words[begin] // width
    first = np.repeat(begin + 3 - width * (np.cumsum(count) - count), count)
    at = first + width * np.arange(len(first))
    return np.repeat(some, count), calls.words[at + np.arange(width)[:, None]]


def key_of(calls: Calls, call: Ints, number: Ints) -> Ints:
    """Of a request, across ranks; -1: there is none of this number."""
    number = number.astype("i8")
    return np.where((number > 0) & (number < 2**32), (calls.rank[call].astype("i8") << 32) + number, -1)


def found_in(keys: Ints, wanted: Ints) -> Ints:
    """Where each wanted one is among the keys, or NONE."""
    if not len(keys):
        return np.full(len(wanted), NONE)
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    return np.where((keys[at] == wanted) & (wanted >= 0), at, NONE)
