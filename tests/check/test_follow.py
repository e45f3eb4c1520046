"""A trace is read so that what waits for its counterpart in another rank waits shortly."""

from __future__ import annotations

import gc
from typing import Any

from testbed.given import CONSTANTS, Rank

from safepoint.check import follow, tail
from safepoint.check.shapes import MOST


class Fake:
    """A tail of so many notes, one each `pace` ns, whose clock began at `begin`."""

    def __init__(self, rank: int, count: int, pace: int, begin: int) -> None:
        self.rank, self._left, self._pace, self._begin, self.given = rank, count, pace, begin, 0

    def read(self, most: int) -> list[Any]:
        part, self._left = min(most, self._left), max(self._left - most, 0)
        self.given += part
        return [Note(self._begin + at * self._pace) for at in range(self.given - part, self.given)]


class Note:
    def __init__(self, enter: int) -> None:
        self.enter = enter


def test_no_rank_is_read_far_ahead_of_the_others() -> None:
    """Whatever their clocks show: they may be of different hosts."""
    first, second = Fake(0, 20_000, 10, begin=7), Fake(1, 40_000, 5, begin=10**15)
    tails: Any = [first, second]
    for _ in follow._in_turns(tails):
        assert abs(10 * first.given - 5 * second.given) <= 10 * tail.PART + 10
    assert (first.given, second.given) == (20_000, 40_000)


def test_what_is_kept_of_calls_that_are_alike_has_a_limit() -> None:
    """A program may send as many counts as it likes."""
    rank = Rank()
    for count in range(MOST + 2):
        rank.one("Ssend", count=count, datatype="MPI_INT", dest=1, comm=CONSTANTS["MPI_COMM_WORLD"])
    (known,) = rank.translator._shapes._known.values()
    assert 0 < len(known) <= MOST


def test_garbage_is_collected_as_before_when_a_trace_was_judged() -> None:
    before = gc.get_threshold()
    with follow.seldom_collected():
        assert gc.get_threshold()[0] == follow.OBJECTS
    assert gc.get_threshold() == before
