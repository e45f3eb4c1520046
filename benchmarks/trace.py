"""What tracing costs, beside the same without it in the same run. `python benchmarks/trace.py [--rounds N] [--quick]`

call       one rank: an Allreduce of one double through the tracer and past it, in turns in one process: nanoseconds
           that a noted call takes more, and the ratio. The smallest of all rounds count.
ping-pong  two ranks: a program in C that sends one double there and back, with the library and without it, in turns.
solver     in Python, and in C: four ranks, 1,000 steps of the heat equation with two exchanges of halos and a norm in
           each, traced and not, in turns: medians, and their ratio. malloc keeps what was freed in both: else it does
           so only where a module of the tracer has freed a large piece before, and that one is twice as fast.
check      the exact check of `hide` on 2 ranks, and a bare Allreduce of 8 integers, in turns in one job.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from launcher import mpiexec

from safepoint.trace import launch

CALL = """
import sys, time
import numpy as np
from mpi4py import MPI
comm, a, b = MPI.COMM_SELF, np.zeros(1), np.zeros(1)
traced = type(comm).Allreduce
plain = traced.__wrapped__
assert traced is not plain
def spent(call):
    begin = time.perf_counter()
    for _ in range(5000):
        call(comm, a, b)
    return (time.perf_counter() - begin) / 5000 * 1e9
rows = [(spent(plain), spent(traced)) for _ in range(int(sys.argv[1]))]
print(min(row[0] for row in rows), min(row[1] for row in rows))
"""

PING_PONG = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, turn, n = atoi(argv[1]); double x = 0, best = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (turn = 0; turn < 20; turn++) {
        double begin = MPI_Wtime();
        for (int i = 0; i < n; i++) {
            if (rank == 0) { MPI_Send(&x, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
                             MPI_Recv(&x, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
            else           { MPI_Recv(&x, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                             MPI_Send(&x, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD); }
        }
        double took = (MPI_Wtime() - begin) / n;
        if (took < best) best = took;
    }
    if (rank == 0) printf("%g\\n", best * 1e9);
    MPI_Finalize();
}
"""

SOLVER = """
import sys, time
import numpy as np
from mpi4py import MPI
comm, steps = MPI.COMM_WORLD, int(sys.argv[1])
north = comm.rank - 1 if comm.rank else MPI.PROC_NULL
south = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
u = np.zeros((252, 1000))
u[1 + comm.rank, 500] = 1.0
comm.Barrier()
begin = time.perf_counter()
for step in range(steps):
    comm.Sendrecv(u[1], north, recvbuf=u[-1], source=south)
    comm.Sendrecv(u[-2], south, recvbuf=u[0], source=north)
    new = u.copy()
    new[1:-1, 1:-1] += 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    norm = comm.allreduce(float(np.abs(new - u).max()), MPI.MAX)
    u = new
took = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
if comm.rank == 0:
    print(took)
"""

SOLVER_IN_C = """
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define ROWS 252
#define COLUMNS 1000
static double a[ROWS][COLUMNS], b[ROWS][COLUMNS];
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, steps = atoi(argv[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int north = rank ? rank - 1 : MPI_PROC_NULL, south = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    double (*u)[COLUMNS] = a, (*next)[COLUMNS] = b, (*swap)[COLUMNS], most, all;
    u[1 + rank][500] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int step = 0; step < steps; step++) {
        MPI_Sendrecv(u[1], COLUMNS, MPI_DOUBLE, north, 0, u[ROWS - 1], COLUMNS, MPI_DOUBLE, south, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(u[ROWS - 2], COLUMNS, MPI_DOUBLE, south, 0, u[0], COLUMNS, MPI_DOUBLE, north, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        most = 0;
        for (int i = 1; i < ROWS - 1; i++)
            for (int j = 1; j < COLUMNS - 1; j++) {
                next[i][j] = u[i][j] + 0.2 * (u[i + 1][j] + u[i - 1][j] + u[i][j + 1] + u[i][j - 1] - 4 * u[i][j]);
                most = fmax(most, fabs(next[i][j] - u[i][j]));
            }
        MPI_Allreduce(&most, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        swap = u; u = next; next = swap;
    }
    if (rank == 0) printf("%g\\n", MPI_Wtime() - begin);
    MPI_Finalize();
}
"""

CHECK = """
import sys, time
from array import array
from mpi4py import MPI
from safepoint import ranks
comm = MPI.COMM_WORLD
ours, bare = type(comm).Dup.__wrapped__(comm), array("q", bytes(64))
plain = type(comm).Allreduce.__wrapped__
def spent(call):
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(1000):
        call()
    return (time.perf_counter() - begin) / 1000 * 1e9
rows = [(spent(lambda: plain(ours, bare, array("q", bytes(64)))), spent(lambda: ranks.exact(comm, ours)))
        for _ in range(int(sys.argv[1]))]
if comm.rank == 0:
    print(min(row[0] for row in rows), min(row[1] for row in rows))
"""


def run(words: list[str], trace: Path | None, tracer: str = "python", mpicc: str = "") -> list[float]:
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    environment |= {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
    if trace is not None:
        shutil.rmtree(trace, ignore_errors=True)
        trace.mkdir()
        environment |= launch.environment(trace, words, tracer, mpicc, 4 << 30)
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def call(top: Path, rounds: int) -> None:
    plain, traced = run([sys.executable, "-c", CALL, str(20 * rounds)], top / "trace")
    print(f"call: {traced - plain:.0f} ns more in Python, {traced / plain:.2f} times a plain Allreduce of "
          f"{plain:.0f} ns (goals 1300 ns, 3 times)", flush=True)  # fmt: skip


def ping_pong(top: Path, rounds: int) -> None:
    for library in ("mpich", "openmpi"):
        compiler = f"mpicc.{library}"
        if shutil.which(compiler) is None:
            print(f"ping-pong: left out: there is no {compiler}")
            continue
        (top / "pong.c").write_text(PING_PONG)
        subprocess.run([compiler, "-O2", str(top / "pong.c"), "-o", str(top / "pong")], check=True)
        words = [f"mpiexec.{library}", *(["--oversubscribe"] * (library == "openmpi")), "-n", "2"]
        words += [str(top / "pong"), "2000"]
        rows = [(*run(words, None), *run(words, top / "trace", "c", compiler)) for _ in range(rounds)]
        plain, traced = min(row[0] for row in rows), min(row[1] for row in rows)
        print(f"ping-pong in C, {library}: {(traced - plain) / 4:.0f} ns more a call, {traced / plain:.2f} times "
              f"{plain:.0f} ns (goals 150 ns, 1.05 times)", flush=True)  # fmt: skip


def solver(top: Path, rounds: int, steps: int) -> None:
    words = [mpiexec(), "-n", "4", sys.executable, "-c", SOLVER, str(steps)]
    rows = [(*run(words, None), *run(words, top / "trace")) for _ in range(rounds)]
    ratios = [traced / plain for plain, traced in rows]
    print(f"solver: traced / not {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}; goal 1.10)")


def solver_in_c(top: Path, rounds: int, steps: int) -> None:
    if shutil.which("mpicc.mpich") is None:
        print("solver in C: left out: there is no mpicc.mpich")
        return
    (top / "heat.c").write_text(SOLVER_IN_C)
    subprocess.run(["mpicc.mpich", "-O2", str(top / "heat.c"), "-o", str(top / "heat"), "-lm"], check=True)
    words = ["mpiexec.mpich", "-n", "4", str(top / "heat"), str(steps)]
    rows = [(*run(words, None), *run(words, top / "trace", "c", "mpicc.mpich")) for _ in range(rounds)]
    ratios = [traced / plain for plain, traced in rows]
    print(
        f"solver in C: traced / not {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}; goal 1.05)"
    )


def check(top: Path, rounds: int) -> None:
    words = [mpiexec(), "-n", "2", sys.executable, "-c", CHECK, str(10 * rounds)]
    plain, traced = run(words, top / "trace")
    print(f"check in hide: {traced / plain:.2f} times a bare Allreduce of 8 integers, {plain:.0f} ns (goal 1.5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer steps: whether it works")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as top:
        call(Path(top), told.rounds)
        ping_pong(Path(top), told.rounds)
        check(Path(top), told.rounds)
        solver(Path(top), told.rounds, 100 if told.quick else 1000)
        solver_in_c(Path(top), told.rounds, 100 if told.quick else 1000)


if __name__ == "__main__":
    main()
