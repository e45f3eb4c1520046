"""What edges between ranks cost, as ratios of pairs in one run.

    mpiexec -n 2 python benchmarks/tasks_mpi.py [ROUNDS] [MEGABYTES]

GET: a value goes from rank 0 to rank 1 as graphs do it, asked for, received in place, checked by its digest and given
as an array; beside `Send` and `Recv` of the same bytes, into the same array each time, and into a new one. Serving: a
body in numpy while the thread that answers GET looks for questions, beside one without it. Waiting: how much of a core
a rank takes that waits for work.

Ratios are medians over rounds in each of which all ways take their turn, and of the quickest of all rounds, which a
busy machine disturbs least.
"""

# ruff: noqa: E402 - numpy reads what is set before it is loaded

from __future__ import annotations

import os
import statistics
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from mpi4py import MPI

from safepoint.tasks.jobs import Output
from safepoint.tasks.mpi.inputs import lying
from safepoint.tasks.mpi.messages import Naps
from safepoint.tasks.mpi.serving import Asker, Kept, Server
from safepoint.tasks.values import encode

COMM = MPI.COMM_WORLD
BODY_S, WAIT_S = 0.25, 2.0


def meet() -> None:
    """A barrier that keeps no core busy."""
    request, naps = COMM.Ibarrier(), Naps()
    while not request.Test():
        naps.sleep()


def plain(array: np.ndarray, room: np.ndarray | None) -> float:
    meet()
    if COMM.rank == 0:
        COMM.Send(array, 1)
        return 0.0
    begun = time.perf_counter()
    COMM.Recv(np.empty_like(array) if room is None else room, 0)
    return time.perf_counter() - begun


def get(asker: Asker, output: Output) -> float:
    """Of rank 1; the other one is at nothing, as a rank is that has just said that it is free."""
    meet()
    if COMM.rank == 0:
        return 0.0
    begun = time.perf_counter()
    room = asker.wait(asker.ask(0, "key", output), 60)
    assert room is not None
    assert lying(output, room).nbytes == output.nbytes - 128
    return time.perf_counter() - begun


def bandwidth(rounds: int, nbytes: int) -> None:
    comm = COMM.Dup()
    array = np.random.default_rng(1).random(nbytes // 8)
    encoded = encode(array)[0]
    output = Output("", encoded.kind, encoded.digest, encoded.nbytes)
    kept = Kept(1 << 32)
    kept.put("key", "", encoded.pieces)
    server, asker, room = Server(comm, kept), Asker(comm), np.empty_like(array)
    server.start()
    ways = (lambda: plain(array, room), lambda: plain(array, None), lambda: get(asker, output))
    times = []
    for turn in range(rounds + 3):
        row = [0.0, 0.0, 0.0]
        for n in range(3):
            way = (n + turn) % 3  # whoever is first finds other caches
            server.expect()
            row[way] = ways[way]()
        if turn >= 3:
            times.append(row)
    meet()
    server.leave()
    comm.Free()
    if COMM.rank == 1:
        tell(times, nbytes)


def tell(times: list[list[float]], nbytes: int) -> None:
    least = [min(row[n] for row in times) for n in range(3)]
    for n, what in enumerate(("Send and Recv, same array", "Send and Recv, new array", "GET")):
        middle = statistics.median(row[n] for row in times)
        print(
            f"{what:26} {middle * 1e3:7.2f} ms, at least {least[n] * 1e3:6.2f} ms, {nbytes / least[n] / 1e9:6.2f} GB/s"
        )
    for n, what in enumerate(("the same array", "a new array")):
        ratio = statistics.median(row[n] / row[2] for row in times)
        print(f"bandwidth of GET, of that of Send and Recv into {what}: {ratio:.2f}, of the quickest "
              f"{least[n] / least[2]:.2f}   goal: >= 0.7", flush=True)  # fmt: skip


def body(matrix: np.ndarray, rounds: int) -> float:
    begun = time.process_time()
    for _ in range(rounds):
        matrix = matrix @ matrix
        matrix /= np.abs(matrix).max()
    return time.process_time() - begun


def serving(rounds: int) -> None:
    """On rank 0. What the thread adds in processor time, of the clock, by which it naps: so much longer takes
    a body that has a core for itself."""
    comm, matrix = COMM.Dup(), np.random.default_rng(2).random((300, 300))
    if COMM.rank == 0:
        count = max(1, int(BODY_S / body(matrix, 50) * 50))
        added, control = [], []
        for _ in range(rounds):
            first, without = body(matrix, count), body(matrix, count)
            server = Server(comm, Kept(0))
            server.start()
            begun = time.perf_counter()
            used = body(matrix, count)
            took = time.perf_counter() - begun
            server.leave()
            added.append((used - without) / took)
            control.append((without - first) / took)
        ratio, noise = 1 + statistics.median(added), 1 + statistics.median(control)
        text = f"a body with the serving thread, of one without: {ratio:.3f} (twice without: {noise:.3f})"
        print(f"{text}   goal: <= 1.03", flush=True)
    meet()
    comm.Free()


def waiting() -> None:
    """A coordinator, or a worker without work, with its thread."""
    comm = COMM.Dup()
    server, naps = Server(comm, Kept(0)), Naps()
    server.start()
    begun, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < WAIT_S:
        comm.Iprobe(MPI.ANY_SOURCE, 1)
        naps.sleep()
    share = (time.process_time() - used) / (time.perf_counter() - begun)
    meet()
    server.leave()
    comm.Free()
    if COMM.rank == 0:
        print(f"a rank that waits takes {share:.1%} of a core", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    bandwidth(rounds, megabytes << 20)
    serving(max(5, rounds // 2))
    waiting()


main()
