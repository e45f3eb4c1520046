"""A real program of many ranks, for real kills: `mpiexec -n P python mpi_solver.py STEPS SAID`, where a manifest is.

Each rank appends to SAID-<rank> what had happened: `pid N`, `restored S`, `hiding S`, `hid S`, `safe S` (it waited),
`finished S`. What `restore` gives is checked byte for byte. With GATE=start or GATE=saver in the environment rank 1
says `gate N`, with the number of its main or its saver thread, before `init` or when it has saved two sets, and waits
for a byte from the pipe SAID-go. With INLINE=1 every hide waits. With SLOW=R the saver of rank R is slow, so that sets
wait on all ranks.
"""

from __future__ import annotations

import ctypes  # noqa: F401 - these now: their many calls at import are not what is tested
import os
import sys
import threading
from pathlib import Path

import filelock  # noqa: F401
import zstandard  # noqa: F401
from mpi4py import MPI

import safepoint

MANIFEST = "z-{rank}.dat\nsub/p-{rank}.dat  compress\nu.dat\nhistory.csv  append\n"


def content(name: str, step: int) -> bytes:
    if name == "history.csv":
        return b"".join(b"%d\n" % k for k in range(step + 1))
    return f"{name} holds step {step}\n".encode() * 300


def names_of(rank: int) -> list[str]:
    return [f"z-{rank}.dat", f"sub/p-{rank}.dat", *(["u.dat", "history.csv"] if rank == 0 else [])]


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, steps, said = comm.Get_rank(), int(sys.argv[1]), sys.argv[2]
    log = os.open(f"{said}-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(text: str) -> None:
        os.write(log, f"{text}\n".encode())

    def check(step: int) -> None:
        for name in names_of(rank):
            with open(name, "rb") as file:
                if file.read() != content(name, step):
                    say(f"WRONG {name} is not that of step {step}")
                    comm.Abort(3)

    def write(step: int) -> None:
        os.makedirs("sub", exist_ok=True)
        for name in names_of(rank):
            with open(name, "r+b" if name == "history.csv" and os.path.exists(name) else "wb") as file:
                file.write(content(name, step))

    def gate(name: str) -> None:
        if os.environ.get("GATE") == name and rank == 1:
            threads = {thread.name: thread for thread in threading.enumerate()}
            say(f"gate {(threads['safepoint-saver'] if name == 'saver' else threading.main_thread()).native_id}")
            with open(f"{said}-go", "rb", buffering=0) as pipe:
                pipe.read(1)

    if rank == int(os.environ.get("SLOW", -1)):
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from testbed.solver import slow

        slow(0.03)
    say(f"pid {os.getpid()}")
    comm.Barrier()
    gate("start")
    safepoint.init(comm=comm, inflight="error", background=not os.environ.get("INLINE"))
    saved = safepoint.restore()
    begin = int(saved.step or 0) if saved else 0
    if saved:
        check(begin)
    elif any(os.path.exists(name) for name in names_of(rank)):
        say("WRONG: a first start, and torn first files are in place")
        comm.Abort(3)
    say(f"restored {begin if saved else -1}")
    if not saved:
        write(0)
    for step in range(begin, steps):
        say(f"hiding {step}")
        wait = step % 5 == 4 and "SLOW" not in os.environ
        safepoint.hide(step, wait=wait)
        say(f"hid {step}")
        if wait:
            say(f"safe {step}")
        right, left = (rank + 1) % comm.Get_size(), (rank - 1) % comm.Get_size()
        if comm.sendrecv(step, right, source=left) != step:
            say("WRONG: a neighbour is at another step")
            comm.Abort(3)
        write(step + 1)
        if step == begin + 1:
            gate("saver")
    safepoint.finish(steps)
    say(f"finished {steps}")
    check(steps)


if __name__ == "__main__":
    main()
