"""`landscape.py` on many ranks: each has a block of rows, and the result is the same to the last bit.

    mpiexec -n 4 python examples/landscape_mpi.py --directory run    # kill it, or one rank of it, and start it again

What a row loses in a step depends on the two rows on either side of it: on its slopes, and on those of its neighbours.
So each rank keeps two rows of either neighbour beside its own, the halo, and has them sent afresh before each step.
Every element is computed from the same numbers in the same order as on one rank; sums over the whole grid are rank 0's.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from landscape import add_to_history, advance, measured
from mpi4py import MPI

import safepoint

HALO = 2  # rows

# Files with {rank} in their name are of each rank; the others are those of rank 0.
MANIFEST = """\
z-{rank}.npy           # elevation and what each cell has lost so far, m: the rows of one rank
history.csv  append    # a row at each save point
"""


def split(rows: int, comm: MPI.Intracomm) -> tuple[slice, slice]:
    """The rows of this rank with their halo, counted in the whole grid; and without it, counted among these."""
    first, last = (rows * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    if last - first < HALO:
        raise SystemExit(f"{rows} rows are too few for {comm.size} ranks")
    held = slice(max(first - HALO, 0), min(last + HALO, rows))
    return held, slice(first - held.start, last - held.start)


def exchange(comm: MPI.Intracomm, z: np.ndarray, own: slice) -> None:
    """Get the halo of `z` from the neighbours, and give them theirs."""
    north = comm.rank - 1 if comm.rank else MPI.PROC_NULL
    south = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    comm.Sendrecv(z[own][:HALO], north, recvbuf=z[own.stop :], source=south)
    comm.Sendrecv(z[own][-HALO:], south, recvbuf=z[: own.start], source=north)


def write_files(comm: MPI.Intracomm, step: int, z: np.ndarray, eroded: np.ndarray, dx: float, dy: float) -> None:
    np.save(f"z-{comm.rank}.npy", [z, eroded])
    parts = comm.gather(np.array([z, eroded]))
    if comm.rank == 0:
        add_to_history(step, *np.concatenate(parts, axis=1), dx, dy)


def main() -> None:
    parser = argparse.ArgumentParser(description="Soil creep in a mountain range, on many ranks.")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--every", type=int, default=40, help="steps from save point to save point (default: 40)")
    parser.add_argument("--directory", default=".", help="where it runs")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        os.makedirs(options.directory, exist_ok=True)
        if not Path(options.directory, ".safepoint").exists():
            Path(options.directory, "manifest").write_text(MANIFEST)
            os.replace(Path(options.directory, "manifest"), Path(options.directory, ".safepoint"))
    comm.Barrier()
    os.chdir(options.directory)

    z, dx, dy = measured()
    held, own = split(len(z), comm)
    z = z[held].copy()
    eroded = np.zeros_like(z)
    safepoint.init(comm=comm)
    saved = safepoint.restore()  # on every rank the same step
    if saved:
        z[own], eroded[own] = np.load(f"z-{comm.rank}.npy")
    else:
        write_files(comm, 0, z[own], eroded[own], dx, dy)
    if saved and saved.finished:
        return
    for step in range(saved.step if saved else 0, options.steps, options.every):
        safepoint.hide(step=step)
        if safepoint.should_stop():  # on all ranks together
            safepoint.stop()
        for _ in range(min(options.every, options.steps - step)):
            exchange(comm, z, own)
            advance(z, eroded, dx, dy)  # the halo comes out wrong, as it has no neighbours here; our own rows do not
        write_files(comm, min(step + options.every, options.steps), z[own], eroded[own], dx, dy)
    safepoint.finish(step=options.steps)


if __name__ == "__main__":
    main()
