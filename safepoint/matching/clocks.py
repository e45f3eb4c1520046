"""One clock for all ranks of a trace."""

from __future__ import annotations

import numpy as np

from safepoint.matching.matched import NONE, Ints
from safepoint.matching.messages import Joined
from safepoint.matching.objects import Calls
from safepoint.trace import record


def clocks(calls: Calls, joined: Joined) -> list[str]:
    """One clock for all, from the first note on. Those of other hosts begin with the time of day, and are put off
    until no message is received before it was sent."""
    ranks, remarks = calls.trace.ranks, list[str]()
    hosts = {clock: number for number, clock in enumerate(dict.fromkeys(rank.clock for rank in ranks))}
    clock = np.zeros(calls.trace.size, "i8")
    clock[[rank.rank for rank in ranks]] = [hosts[rank.clock] for rank in ranks]
    if len(hosts) > 1:
        offset = np.array([rank.began[1] - rank.began[0] for rank in ranks])
        first = np.unique(clock[[rank.rank for rank in ranks]], return_index=True)[1]
        _put_off(calls, offset[first][clock[calls.rank]])
        sends, receives, taken = joined.sends, joined.receives, joined.taken
        some = taken != NONE
        some[some] = receives.done[taken[some]] != NONE
        one, two = clock[sends.source[some]], clock[sends.dest[some]]
        spare = calls.leave[receives.done[taken[some]]] - calls.enter[sends.call[some]]
        later = np.zeros(len(hosts), "i8")
        for _ in hosts:
            known = later.copy()
            np.maximum.at(later, two[one != two], (known[one] - spare)[one != two])
        if np.any((later[one] - spare > later[two]) & (one != two)):
            remarks.append("the clocks of the hosts drift: waiting times between hosts are wrong")
        _put_off(calls, later[clock[calls.rank]])
    there = calls.enter[calls.state != record.EMPTY]
    _put_off(calls, np.array(-there.min() if len(there) else 0))
    calls.leave = np.where(calls.state == record.ENTERED, NONE, np.maximum(calls.enter, calls.leave))
    return remarks


def _put_off(calls: Calls, by: Ints) -> None:
    calls.enter += by
    calls.leave += by
