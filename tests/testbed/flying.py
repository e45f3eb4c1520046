"""A program of MPI whose second save is crossed by something under way: by each kind that it is given, in turn."""

from __future__ import annotations

from pathlib import Path

PROGRAM = """
import logging, sys
import numpy as np
from mpi4py import MPI
import safepoint
logging.basicConfig()
comm, a = MPI.COMM_WORLD, np.zeros(3)
last = comm.size - 1
for kind in sys.argv[2:]:
    safepoint.init(kind, comm=comm, inflight=sys.argv[1])
    safepoint.restore()
    request = message = None
    for step in range(3):
        if step == 1 and comm.rank == 0:
            comm.Send(a, last, tag=9)
        if step == 1 and comm.rank == last:
            if kind == "irecv":
                request = comm.Irecv(a, MPI.ANY_SOURCE, 9)
            elif kind == "mprobe":
                message = comm.Mprobe(0, 9)
            elif kind == "open":
                comm.Recv(a, 0, 9)
                request = comm.Irecv(a, 0, 77)
        open(f"{kind}/u-{comm.rank}.dat", "w").write(str(step))
        try:
            safepoint.hide(step)
        except safepoint.UsageError as error:
            sys.stdout.write(f"refused {step} {comm.rank}\\n")  # in one piece
        if step == 1 and comm.rank == last:
            if kind == "eager":
                comm.Recv(a, 0, 9)
            elif message:
                message.Recv(a)
            if kind == "open":
                request.Cancel()
            if request:
                request.Wait()
    comm.Barrier()
    if sys.argv[1] == "warn":
        safepoint.finish(3)
    else:
        safepoint.close()
"""
LINES = {number: line.strip() for number, line in enumerate(PROGRAM.splitlines(), 1)}


def line(begin: str) -> int:
    return next(number for number, text in LINES.items() if text.startswith(begin))


SENT = line("comm.Send(a, last")


def directories(work: Path, *kinds: str) -> None:
    """One for each kind, which saves a file of each rank."""
    for kind in kinds:
        (work / kind).mkdir()
        (work / kind / ".safepoint").write_text("u-{rank}.dat\n")
