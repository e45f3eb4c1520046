"""A wave that moves through a row of ranks, each of which computes a piece: with a message across the loop.

    safepoint trace -- mpiexec -n 4 python examples/pipeline_mpi.py
    safepoint places run.trace                      # hide is not legal, and which message is why
    safepoint trace -o early.trace -- mpiexec -n 4 python examples/pipeline_mpi.py --receive early
    safepoint places early.trace                    # hide is legal, at each step

Each rank sends its last value to the right at the end of a step. As the program stands the neighbour receives it in the
next step, after `hide`: a restart from that set would wait for ever for a message that was sent before it.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
from mpi4py import MPI

import safepoint

POINTS, TAG = 1000, 9


def advance(u: np.ndarray, ghost: np.ndarray) -> np.ndarray:
    """One step of the upwind scheme for a wave that moves to the right."""
    return u - 0.5 * np.diff(u, prepend=ghost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--receive", choices=["late", "early"], default="late", help="after hide, or before it")
    told = parser.parse_args()
    comm = MPI.COMM_WORLD
    left, right = comm.rank - 1, comm.rank + 1
    os.makedirs(f"pipeline-{told.receive}", exist_ok=True)
    os.chdir(f"pipeline-{told.receive}")
    if comm.rank == 0:
        with open(".safepoint", "w", encoding="utf-8") as manifest:
            manifest.write("u-{rank}.npz\n")
    comm.Barrier()
    safepoint.init(comm=comm)
    saved = safepoint.restore()
    if saved and saved.finished:
        raise SystemExit  # with status 0: the files in place are the result
    name = f"u-{comm.rank}.npz"
    u, ghost = np.zeros(POINTS), np.ones(1) if comm.rank == 0 else np.zeros(1)  # on the left of rank 0 all is 1
    if saved:
        with np.load(name) as file:
            u, ghost = file["u"], file["ghost"]
    first = saved.step if saved else 0
    for step in range(first, told.steps):
        safepoint.hide(step)
        if told.receive == "late" and step > first and left >= 0:
            comm.Recv(ghost, left, tag=TAG)  # of the step before
        u = advance(u, ghost)
        if right < comm.size:
            comm.Send(u[-1:], right, tag=TAG)
        if told.receive == "early" and left >= 0:
            comm.Recv(ghost, left, tag=TAG)
        np.savez(name, u=u, ghost=ghost)
    if told.receive == "late" and left >= 0:
        comm.Recv(ghost, left, tag=TAG)
    safepoint.finish(told.steps)
    if comm.rank == 0:
        print(f"{told.steps} steps; the wave has come to {np.count_nonzero(u > 0.5)} points of rank 0")


if __name__ == "__main__":
    main()
