"""One way to save on many ranks, for `peers.py`: what the slowest rank of each round took, one JSON object a line.

mpiexec -n N python benchmarks/of_ranks.py WAY DIRECTORY BYTES ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mpi4py import MPI
from protagonists import WAYS, Safepoint, Torch, arrays_of, save


def main() -> None:
    name, directory, size, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    comm = MPI.COMM_WORLD
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
            print(json.dumps(slowest), flush=True)
        comm.Barrier()
        if comm.rank == 0:
            way.tidy()
    way.end()
    if issubclass(kind, Torch):
        torch.distributed.destroy_process_group()


main()
