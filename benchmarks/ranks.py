"""How long a coordinated `hide` blocks, against one bare MPI_Allreduce and the same number of bare renames.

    python benchmarks/ranks.py [ROUNDS [RANKS ...]]

Every rank has three files of 64 KB, dirty in the page cache. In each round they are moved away in three ways: by three
bare `os.rename` into a fresh directory and one `Allreduce` of eight integers; by `hide` without the look for messages
in flight; and by `hide` as it is by default, which adds a barrier. Before each all ranks meet, and no set is in flight.
What counts is the slowest rank of a round; reported are the medians over the rounds, all in the same job. More ranks
than cores are fine: then an Allreduce has to wait until the operating system has run every rank.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from launcher import mpiexec

RANKS = (1, 2, 4, 8, 16, 32)
NAMES = ("a", "b", "c")
SIZE = 65536  # bytes a file
WAYS = ("bare", "off", "warn")


def write_files(rank: int) -> None:
    for name in NAMES:
        Path(f"{name}-{rank}.dat").write_bytes(b"x" * SIZE)


def measure(rounds: int) -> None:
    """One rank of a job. Two sessions in turn, in directories of their own, so that each has its own sets."""
    from mpi4py import MPI

    import safepoint

    comm = MPI.COMM_WORLD
    rank, top = comm.Get_rank(), os.getcwd()
    private = comm.Dup()
    mine, least = array("q", range(8)), array("q", range(8))
    sessions = {}
    for way in WAYS:
        if rank == 0:
            os.mkdir(way)
            Path(way, ".safepoint").write_text("\n".join(f"{name}-{{rank}}.dat" for name in NAMES))
        comm.Barrier()
        os.chdir(way)
        if way != "bare":
            sessions[way] = safepoint.Session(comm=comm, inflight=way)
            sessions[way].restore()
            write_files(rank)
            sessions[way].hide(wait=True)
        os.chdir(top)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            os.chdir(f"{top}/{way}")
            write_files(rank)
            os.makedirs(f"moved-{rank}")
            pairs = [(f"{name}-{rank}.dat", f"moved-{rank}/{name}-{rank}.dat") for name in NAMES]
            comm.Barrier()
            begin = time.perf_counter()
            if way == "bare":
                for source, target in pairs:
                    os.rename(source, target)
                private.Allreduce(mine, least, MPI.MIN)
            else:
                sessions[way].hide(number)
            seconds[way].append(comm.allreduce(time.perf_counter() - begin, MPI.MAX))
            if way != "bare":
                sessions[way].wait()
            shutil.rmtree(f"moved-{rank}")
    if rank == 0:
        bare, off, warn = (statistics.median(seconds[way]) * 1e6 for way in WAYS)
        print(f"{comm.Get_size():5} {bare:12.0f} {off:14.0f} {off / bare:7.1f}x {warn:14.0f} {warn / bare:7.1f}x")
    for session in sessions.values():
        session.close()


def main() -> None:
    rounds, *ranks = map(int, sys.argv[1:] or [100])
    print(f"{os.cpu_count()} cores; the slowest rank, medians of {rounds} rounds, in µs; ratios to the first column")
    print(f"{'ranks':>5} {'bare':>12} {'hide, no look':>14} {'':8} {'hide':>14}", flush=True)
    for number in ranks or RANKS:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            command = [mpiexec(), "-n", str(number), sys.executable, os.path.abspath(__file__), "--rank", str(rounds)]
            subprocess.run(command, cwd=directory, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        measure(int(sys.argv[2]))
    else:
        main()
