"""Measure a machine: speed of each rank, latency and bandwidth of each pair, one at a time and all at once.

(1) While a pair is measured the other ranks nap: a rank that waits in MPI keeps a core busy, and where ranks share
    cores that core is one of the pair's.
(2) What may fail for lack of something (numpy, memory) fails before the first message, and all ranks raise: one that
    left alone would let the others wait for ever. After that only MPI itself can fail; the command then ends all ranks.

One direction of a pair: the bytes go there, and 8 bytes come back. The way back is taken off as half of a round of 8
bytes each way, so that latency is the same in both directions, and bandwidth need not be.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safepoint.errors import UsageError
from safepoint.ranks import join
from safepoint.tasks.machine import FORMAT

SMALL, SIZES = 8, (64 << 10, 1 << 20, 16 << 20)  # bytes; the last is the bandwidth that schedules use
ROUNDS = 20
NAPS_S = (1e-4, 2e-3)  # the first, and the longest, of a rank that waits for its turn
KERNEL, REPEATS = 1 << 15, 40  # numbers that fit a cache, and how often they are gone through
TAG = 7
Say = Callable[[str], object]
Table = list[list[float]]


def measure(comm: Any, rounds: int = ROUNDS, say: Say = lambda text: None) -> dict[str, Any]:
    """The content of net.json, on all ranks; each number is the median of so many rounds. Collective.

    `say` gets progress on rank 0. Raises the same error on all ranks: `UsageError` for fewer than two ranks, or fewer
    than one round.
    """
    ranks = join(comm)
    if ranks.size < 2:
        raise UsageError("a network has two ranks or more: start it as mpiexec -n N safepoint bench-net -o net.json")
    if ranks.least(rounds)[0] < 1:
        raise UsageError(f"{rounds} rounds measure nothing: give 1 or more")
    mine = comm.Dup()
    try:
        bench = ranks.together(lambda: _Bench(mine, rounds, say if ranks.rank == 0 else lambda text: None))
        kernel = bench.kernel()
        latency, by_size = bench.pairs()
        all_latency, all_bandwidth = bench.all_at_once()
    finally:
        mine.Free()
    rates = [1 / seconds for seconds in kernel]
    mean = sum(rates) / len(rates)
    return {
        "safepoint": FORMAT,
        "time": comm.bcast(time.time()),
        "hosts": comm.allgather(socket.gethostname()),
        "speed": [rate / mean for rate in rates],
        "latency_s": latency,
        "bandwidth": by_size[SIZES[-1]],
        "all_latency_s": all_latency,
        "all_bandwidth": all_bandwidth,
        "measured": {
            "rounds": rounds,
            "library": _library(),
            "kernel_s": kernel,
            "bandwidth_by_bytes": {str(size): table for size, table in by_size.items()},
        },
    }


def _library() -> str:
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


@dataclass
class _Bench:
    """One rank of a measurement."""

    comm: Any
    rounds: int
    say: Say
    rank: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        try:
            import numpy

            self._out = numpy.ones(SIZES[-1], dtype="u1")
            self._in = numpy.ones(SIZES[-1], dtype="u1")  # not zeros: their pages would be made while they are measured
        except ImportError as error:
            raise UsageError(f"the speed of a rank is measured with numpy ({error}): pip install numpy") from error
        except MemoryError as error:
            raise UsageError(f"no memory for two messages of {SIZES[-1] >> 20} MiB; nothing was measured") from error
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()

    def kernel(self) -> list[float]:
        """Seconds of fixed work of numpy in one thread, on all ranks at once."""
        import numpy

        self.say(f"speed of {self.size} ranks")
        numbers = numpy.linspace(0.0, 1.0, KERNEL)
        work = numpy.empty_like(numbers)
        times = []
        for _ in range(self.rounds + 1):  # the first one warms up
            self.comm.Barrier()
            began = time.perf_counter()
            for _ in range(REPEATS):
                numpy.multiply(numbers, numbers, out=work)
                numpy.add(work, 1.0, out=work)
                numpy.sqrt(work, out=work)
                work.sum()
            times.append(time.perf_counter() - began)
        return list(self.comm.allgather(statistics.median(times[1:])))

    # One pair at a time.

    def pairs(self) -> tuple[Table, dict[int, Table]]:
        """Seconds of latency, and for each size bytes per second, of each pair [from][to]."""
        latency = self._table()
        bandwidth = {size: self._table() for size in SIZES}
        chosen = [(p, q) for p in range(self.size) for q in range(p + 1, self.size)]
        began = time.monotonic()
        for n, (p, q) in enumerate(chosen):
            left = (time.monotonic() - began) / n * (len(chosen) - n) if n else 0.0
            self.say(f"pair {n + 1} of {len(chosen)}: ranks {p} and {q}" + (f"; {left:.0f} s to go" if n else ""))
            if self.rank in (p, q):
                self._pair(p, q, latency, bandwidth)
            self._meet()
        for table in (latency, *bandwidth.values()):
            self._gather(table)
        return latency, bandwidth

    def _pair(self, p: int, q: int, latency: Table, bandwidth: dict[int, Table]) -> None:
        other = q if self.rank == p else p
        if self.rank == p:  # it notes for both
            latency[p][q] = latency[q][p] = self._there_and_back(other, SMALL, SMALL) / 2
            for size in SIZES:
                bandwidth[size][p][q] = _rate(size, self._there_and_back(other, size, SMALL), latency[p][q])
                bandwidth[size][q][p] = _rate(size, self._there_and_back(other, SMALL, size), latency[p][q])
        else:
            for out, back in ((SMALL, SMALL), *((s, t) for size in SIZES for s, t in ((size, SMALL), (SMALL, size)))):
                self._answer(other, out, back)

    def _there_and_back(self, other: int, out: int, back: int) -> float:
        times = []
        for _ in range(self.rounds + 1):
            began = time.perf_counter()
            self.comm.Send([self._out[:out], out, _byte()], dest=other, tag=TAG)
            self.comm.Recv([self._in[:back], back, _byte()], source=other, tag=TAG)
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    def _answer(self, other: int, out: int, back: int) -> None:
        for _ in range(self.rounds + 1):
            self.comm.Recv([self._in[:out], out, _byte()], source=other, tag=TAG)
            self.comm.Send([self._out[:back], back, _byte()], dest=other, tag=TAG)

    def _meet(self) -> None:
        """A barrier that leaves the cores to others."""
        request, nap = self.comm.Ibarrier(), NAPS_S[0]
        while not request.Test():
            time.sleep(nap)
            nap = min(2 * nap, NAPS_S[1])

    # All at once.

    def all_at_once(self) -> tuple[Table, Table]:
        """The same of each pair while all ranks send: in a shift by s, rank r sends to r + s."""
        latency, bandwidth = self._table(), self._table()
        for shift in range(1, self.size):
            self.say(f"all at once: shift {shift} of {self.size - 1}")
            source = (self.rank - shift) % self.size
            small = latency[source][self.rank] = self._shifted(shift, SMALL)
            bandwidth[source][self.rank] = _rate(SIZES[-1], self._shifted(shift, SIZES[-1]), small / 2)
        self._gather(latency)
        self._gather(bandwidth)
        return latency, bandwidth

    def _shifted(self, shift: int, nbytes: int) -> float:
        to, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
        out, into = [self._out[:nbytes], nbytes, _byte()], [self._in[:nbytes], nbytes, _byte()]
        times = []
        for _ in range(self.rounds + 1):
            self.comm.Barrier()
            began = time.perf_counter()
            self.comm.Sendrecv(out, dest=to, sendtag=TAG, recvbuf=into, source=source, recvtag=TAG)
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    # Tables.

    def _table(self) -> Table:
        return [[0.0] * self.size for _ in range(self.size)]

    def _gather(self, table: Table) -> None:
        """Each rank has filled some of it: then all have all."""
        for other in self.comm.allgather(table):
            for p, row in enumerate(other):
                for q, value in enumerate(row):
                    table[p][q] = max(table[p][q], value)


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE


def _rate(nbytes: int, seconds: float, latency_s: float) -> float:
    """Bytes per second of a message that took so long with the way back of 8 bytes. Latency that was not the same in
    each round cannot make it faster than without it by more than half."""
    return nbytes / max(seconds - 2 * latency_s, seconds / 2, 1e-9)
