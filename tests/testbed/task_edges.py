"""How values go from rank to rank: `mpiexec -n 3 python task_edges.py [long]`. Each case says `ok` and its name.

Rank 0 and 1 own values, rank 2 asks. What does not hold ends all ranks, by its traceback.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1]))
from safepoint.tasks.jobs import PICKLE, Output
from safepoint.tasks.mpi import messages, serving
from testbed.waiting import wait_for

COMM = MPI.COMM_WORLD
SIZES = (0, 1, 4095, 4096, 4097, 100_000, messages.PIECE + messages.FIRST, messages.PIECE * 2 + 12345)
CASES: list[Callable[[Rank], None]] = []


class Rank:
    """What a worker has for its edges."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.comm = COMM.Dup()
        self.kept = serving.Kept(limit)
        self.server = serving.Server(self.comm, self.kept)
        self.asker = serving.Asker(self.comm)

    def end(self) -> None:
        """As the engine does it: all has been received, on all ranks, before a thread stops."""
        wait_for(self.asker.tidy)
        COMM.Barrier()
        if not self.server.is_alive():
            self.server.start()
        self.server.leave()
        assert self.server.failure is None
        self.comm.Free()


def case(function: Callable[[Rank], None]) -> Callable[[Rank], None]:
    CASES.append(function)
    return function


def value(nbytes: int, owner: int = 0) -> list[Any]:
    """Of an owner, in several buffers of other lengths than those of messages."""
    array = np.random.default_rng((nbytes, owner)).integers(0, 256, nbytes, dtype=np.uint8)
    cuts = sorted({0, nbytes // 3, nbytes // 3 + 5, nbytes} - set(range(nbytes + 1, nbytes + 9)))
    return [array[begin:end] for begin, end in itertools.pairwise(cuts)] or [b""]


def output(nbytes: int, owner: int = 0, name: str = "") -> Output:
    digest = xxhash.xxh3_128_hexdigest(b"".join(map(bytes, value(nbytes, owner))))
    return Output(name, PICKLE, digest, nbytes)


@case
def values_of_any_length_arrive_in_place(rank: Rank) -> None:
    for nbytes in SIZES:
        rank.kept.put(f"{nbytes}", "left", value(nbytes, COMM.rank))
    rank.server.start()
    COMM.Barrier()
    if COMM.rank == 2:  # all at once, received in another order than asked
        asked = [(n, owner, rank.asker.ask(owner, f"{n}", output(n, owner, "left"))) for n in SIZES for owner in (0, 1)]
        for nbytes, owner, one in reversed(asked):
            assert rank.asker.wait(one, 300) == b"".join(map(bytes, value(nbytes, owner))), (nbytes, owner)
        assert rank.asker.tidy() and rank.asker.wrong == 0


@case
def what_is_not_there_is_said_at_once(rank: Rank) -> None:
    rank.server.start()
    if COMM.rank == 2:
        for nbytes in SIZES[1:]:
            assert rank.asker.wait(rank.asker.ask(1, "nothing", output(nbytes)), 300) is None
        wait_for(rank.asker.tidy)


@case
def other_bytes_than_their_digest_are_noticed(rank: Rank) -> None:
    """T4: a body that holds on to its result has changed it since."""
    array = value(100_000, 1)
    rank.kept.put("key", "", array)
    array[-1][7] += 1
    rank.server.start()
    COMM.Barrier()
    if COMM.rank == 2:
        assert rank.asker.wait(rank.asker.ask(1, "key", output(100_000, 1)), 300) is None
        assert rank.asker.wrong == 1
    COMM.Barrier()
    assert rank.kept.checked("key", output(100_000, 1)) is None and rank.kept.get("key", "") is None


@case
def who_gets_no_answer_goes_on_and_receives_it_later(rank: Rank) -> None:
    """As if a body held the interpreter lock: the thread of the owner begins only after the asker has given up."""
    rank.kept.put("key", "", value(5_000_000, 1))
    if COMM.rank != 1:
        rank.server.start()
    COMM.Barrier()
    if COMM.rank == 2:
        kept, dropped = (rank.asker.ask(1, "key", output(5_000_000, 1)) for _ in range(2))
        assert rank.asker.wait(kept) is None and rank.asker.wait(dropped) is None
        assert not rank.asker.tidy()
    COMM.Barrier()
    if COMM.rank == 1:
        rank.server.start()
    if COMM.rank == 2:  # it may be waited for again; the other one is received without that
        assert rank.asker.wait(kept, 300) == b"".join(map(bytes, value(5_000_000, 1)))
        wait_for(rank.asker.tidy)


@case
def those_used_last_stay_in_memory(rank: Rank) -> None:
    rank.kept.limit = 250
    for key in "ab":
        rank.kept.put(key, "", [bytes(100)])
    assert rank.kept.get("a", "")
    rank.kept.put("c", "", [bytes(100)])  # b goes
    rank.kept.put("d", "", [bytes(251)])  # this one never comes in
    rank.kept.put("c", "", [bytes(100)])  # made again
    assert [key for key in "abcd" if rank.kept.get(key, "")] == ["a", "c"] and rank.kept.nbytes == 200
    rank.server.start()


@case
def control_carries_large_arrays_out_of_band(rank: Rank) -> None:
    whole, messages.CONTROL = messages.CONTROL, 1000
    sent = {"array": np.arange(10_000.0), "text": "x" * 5000, "n": 3, "frozen": bytes(3000)}
    if COMM.rank == 0:
        posted = [messages.post(rank.comm, (n, sent), n, messages.WORK) for n in (1, 2) for _ in range(2)]
        wait_for(lambda: all(one.done() for one in posted))
    else:
        for _ in range(2):
            found: list[Any] = []
            wait_for(lambda: found.append(messages.take(rank.comm, messages.WORK)) or found[-1])  # noqa: B023
            source, (number, got) = found[-1]
            assert (source, number) == (0, COMM.rank) and (got["array"] == sent["array"]).all()
            assert {name: got[name] for name in ("text", "n", "frozen")} == {
                name: sent[name] for name in ("text", "n", "frozen")
            }
            got["array"][0] = 1  # it may be changed
    messages.CONTROL = whole
    rank.server.start()


@case
def a_value_is_given_while_a_body_computes(rank: Rank) -> None:
    """The owner's main thread is in numpy all the while."""
    rank.kept.put("key", "", value(1_000_000, 0))
    rank.server.start()
    COMM.Barrier()
    if COMM.rank == 0:
        matrix = np.ones((300, 300))
        while not COMM.Iprobe(2, 99):
            matrix = matrix @ matrix / 300
        COMM.recv(source=2, tag=99)
    if COMM.rank == 2:
        assert rank.asker.wait(rank.asker.ask(0, "key", output(1_000_000)), 300) is not None
        COMM.send(None, 0, 99)


def three_gigabytes(rank: Rank) -> None:
    """Above what an `int` counts."""
    nbytes = 3 << 30
    if COMM.rank == 1:
        array = np.zeros(nbytes, np.uint8)
        array[:: 1 << 20] = 7
        rank.kept.limit = nbytes
        rank.kept.put("key", "", [b"", array])
        COMM.send(Output("", PICKLE, serving.digest_of([array]), nbytes), 2)
    rank.server.start()
    if COMM.rank == 2:
        got = rank.asker.wait(rank.asker.ask(1, "key", COMM.recv(source=1)), 60)
        assert got is not None and (np.asarray(got)[:: 1 << 20] == 7).all()


def main() -> None:
    threads = threading.active_count()
    for function in [three_gigabytes] if "long" in sys.argv else CASES:
        rank = Rank()
        function(rank)
        rank.end()
        if COMM.rank == 0:
            print("ok", function.__name__, flush=True)
    assert threading.active_count() == threads


try:
    main()
except BaseException:
    import traceback

    traceback.print_exc()
    COMM.Abort(1)
