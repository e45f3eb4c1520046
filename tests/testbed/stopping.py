"""A program of many ranks that asks in every step whether to save and whether to stop; test_when.py runs it.

    mpiexec -n 4 python stopping.py DIRECTORY SECONDS_PER_STEP [EVERY]

Each rank says in DIRECTORY/said-RANK its pid, and at its end the steps at which it was told to save and to stop.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

import safepoint


def main() -> None:
    directory, pause = sys.argv[1], float(sys.argv[2])
    os.chdir(directory)
    comm = MPI.COMM_WORLD
    sp = safepoint.init(comm=comm, signals=("USR1",))
    saved = sp.restore()
    start = saved.step if saved else 0
    said = Path(f"said-{comm.rank}")
    said.write_text(f"{os.getpid()}\n")
    dues = []
    for step in range(start, 10**9):
        stopping = sp.should_stop()
        if stopping or sp.due():
            Path(f"u-{comm.rank}.dat").write_text(f"{comm.rank} {step}\n" * 100)
            sp.hide(step=step)
            dues.append(step)
        if stopping:
            with said.open("a") as file:
                file.write(f"{step} {dues}\n")
            sp.stop()
        time.sleep(pause * (1 + comm.rank / 10))


main()
