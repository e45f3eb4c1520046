"""The choice of a set: one process that speaks for all ranks comes to what the ranks agree on."""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.sweep import many

from safepoint.ranks import Mpi4py, Ranks, Serial
from safepoint.record import Record
from safepoint.restoring.choose import Choice, Parts, Party, choose
from safepoint.restoring.survey import Candidate
from safepoint.root import Root


class Comm:
    """A communicator among threads, as far as `Ranks` needs one."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, board: list[Any]) -> None:
        self._rank, self._size, self._barrier, self._board = rank, size, barrier, board

    def _all(self, value: Any) -> list[Any]:
        self._board[self._rank] = value
        self._barrier.wait(20)
        found = list(self._board)
        self._barrier.wait(20)
        return found

    def Allreduce(self, mine: array[int], result: array[int], _: object) -> None:
        result[:] = array("q", map(min, zip(*self._all(list(mine)), strict=True)))

    def bcast(self, value: Any, source: int) -> Any:
        return self._all(value)[source]

    def allreduce(self, value: int) -> int:
        return sum(self._all(value))


def on_ranks(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What `work` returns on each of so many ranks."""
    barrier, board = threading.Barrier(size), [None] * size

    def one(rank: int) -> Any:
        peers: Any = Ranks.__new__(Ranks)
        peers._wire = wire = Mpi4py.__new__(Mpi4py)
        wire._comm, wire._mpi = Comm(rank, size, barrier, board), SimpleNamespace(MIN=None)
        peers.rank, peers.size = wire.rank, wire.size = rank, size
        return work(peers)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


class Part(NamedTuple):
    """What one rank has of one set. `state`: whole, rotten (its trial says so), or damaged (without a record)."""

    state: str = "whole"
    step: int = 1
    history: str = "a"
    life: int = 1
    saver: int = 0
    per_rank: bool = True


def candidate(root: Root, number: int, part: Part) -> Candidate:
    record = Record(number, part.step, 0.0, 0.0, "", "", root.rank, root.ranks, part.saver,
                    ("u-{rank}",) if part.per_rank else ("u",), (), part.life, part.history)  # fmt: skip
    if part.state == "damaged":
        return Candidate(number, None, "damaged", record.key, committed=True)
    return Candidate(number, record, part.state, record.key, record, committed=True)


def party(rank: int, sets: dict[int, Part], size: int) -> Party:
    root = Root("/w", rank, size)
    return Party(root, [candidate(root, number, part) for number, part in sorted(sets.items(), reverse=True)])


def trial(parts: Parts) -> dict[int, str]:
    return {root.rank: "rotten" for root, part in parts if part.reason == "rotten"}


often = [1, 1, 1, 2]
a_part = st.builds(
    Part, st.sampled_from(["whole", "whole", "whole", "rotten", "damaged"]), st.sampled_from(often),
    st.sampled_from("aaab"), st.sampled_from(often),
)  # fmt: skip
a_rank = st.dictionaries(st.integers(1, 4), a_part, max_size=4)
owners = st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=4, max_size=4)  # saver and per_rank, by number


def said(choice: Choice) -> dict[int, tuple[str, str]]:
    """Ranks that are many are named together, where many agree."""
    return {key: (name, re.sub("different steps, .*", "different steps", why)) for key, (name, why) in
            choice.passed.items()}  # fmt: skip


@settings(deadline=None, max_examples=many(300))
@given(st.lists(a_rank, min_size=2, max_size=3), owners)
def test_one_process_for_all_ranks_chooses_what_the_ranks_agree_on(
    ranks: list[dict[int, Part]], whose: list[tuple[int, bool]]
) -> None:
    """G5: `safepoint restore` gives back what the program would, and passes over the others for the same reasons."""
    owned = [{n: part._replace(saver=whose[n - 1][0], per_rank=whose[n - 1][1]) for n, part in sets.items()}
             for sets in ranks]  # fmt: skip
    parties = [party(rank, sets, len(ranks)) for rank, sets in enumerate(owned)]
    together = on_ranks(len(ranks), lambda peers: choose([parties[peers.rank]], peers, trial))
    alone = choose(parties, Serial(), trial)
    for rank, each in enumerate(together):
        assert (each.number, each.lost, said(each)) == (alone.number, alone.lost, said(alone))
        assert each.records == {n: record for n, record in alone.records.items() if n == rank}


def test_parts_that_are_whole_and_of_two_steps_are_no_set() -> None:
    parties = [party(0, {1: Part(), 2: Part(step=2)}, 2), party(1, {1: Part(), 2: Part(step=3)}, 2)]
    choice = choose(parties, Serial(), trial)
    assert choice.number == 1 and sorted(choice.records) == [0, 1]
    ((name, why),) = choice.passed.values()
    assert name == "set 2 (step 2)"
    assert why == "rank 0: the ranks have different steps, step 2 on rank 0, step 3 on rank 1"


def test_what_trials_have_left_is_removed_unless_a_set_is_chosen() -> None:
    undone: list[int] = []

    def undo(rank: int) -> Callable[[], None]:
        return lambda: undone.append(rank)

    good, bad = {1: Part()}, {1: Part("rotten")}
    both = [party(0, good, 2)._replace(undo=undo(0)), party(1, good, 2)._replace(undo=undo(1))]
    assert choose(both, Serial(), trial).number == 1 and undone == []
    resumed = party(1, bad, 2)  # what is there is needed by the next restore
    choice = choose([both[0], resumed], Serial(), trial)
    assert (choice.number, choice.lost, undone) == (None, True, [0])
