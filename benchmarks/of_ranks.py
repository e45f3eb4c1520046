"""One way to save on many ranks, for `peers.py`: what the slowest rank of each round took, one JSON object a line.

mpiexec -n N python benchmarks/of_ranks.py WAY DIRECTORY BYTES ROUNDS RANKS …

Measured on so many of the N ranks, one number after the other, as to start them can take longer than all saves (torch);
the others sleep.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from mpi4py import MPI
from protagonists import WAYS, Safepoint, Torch, arrays_of, save


def measure(comm: MPI.Comm, name: str, directory: Path, size: int, rounds: int) -> None:
    if comm.rank == 0:
        directory.mkdir(parents=True)
    comm.Barrier()
    kind = WAYS[name]
    if issubclass(kind, Torch):
        import torch

        at = f"file://{directory.resolve()}/rendezvous"
        torch.distributed.init_process_group("gloo", init_method=at, rank=comm.rank, world_size=comm.size)
    Safepoint.comm = comm
    way = kind(directory, arrays_of(1, size, f"u-{comm.rank}-"))
    for turn in range(rounds + 1):
        if comm.rank == 0:
            os.sync()
        comm.Barrier()
        times = save(way)
        times["extra"] = times["blocked"] - times["write"]
        slowest = {quantity: comm.allreduce(seconds, MPI.MAX) for quantity, seconds in times.items()}
        if turn and comm.rank == 0:
            print(json.dumps({"ranks": comm.size, **slowest}), flush=True)
        comm.Barrier()
        if comm.rank == 0:
            way.tidy()
    way.end()
    if issubclass(kind, Torch):
        torch.distributed.destroy_process_group()
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(directory)


def meet(comm: MPI.Comm) -> None:
    """A barrier that leaves the processor to those who are not there yet."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.02)


def main() -> None:
    name, directory, size, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    world = MPI.COMM_WORLD
    for number in map(int, sys.argv[5:]):
        meet(world)
        comm = world.Split(0 if world.rank < number else MPI.UNDEFINED, world.rank)
        if comm != MPI.COMM_NULL:
            measure(comm, name, directory / str(number), size, rounds)
            comm.Free()
    meet(world)


main()
