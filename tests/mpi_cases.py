"""What must hold on many ranks: `mpiexec -n P python mpi_cases.py DIRECTORY [CASE ...]`. Every function `case_...` is run by all.

Status 0 and a line `ok CASE` for each, or a traceback from the first rank where one failed.
"""

from __future__ import annotations

import errno
import faulthandler
import logging
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from faultdisk import FaultDisk
from mpi4py import MPI
from ranked import MANIFEST, Crew, check, consistent, each_operation, files_of, new_directory, restart, same

import safepoint
from safepoint import SafepointError, Session

PATIENCE = 120  # seconds for one case: many times what it takes
LONG = os.environ.get("SAFEPOINT_CRASH") == "long"


def write(directory: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if name == "history.csv" and path.exists() else "wb") as file:
            file.write(data)


def case_all_ranks_get_the_newest_step_of_all(comm: Any, where: str) -> None:
    """G5, G1: hide, go away, start again; every rank has its own files and the saver those of all."""
    rank = comm.Get_rank()
    directory = new_directory(comm, where)
    session = Session(directory, comm=comm)
    assert session.restore() is None
    for step in range(4):
        write(directory, files_of(rank, step))
        point = session.hide(step)
        assert point and point.step == step and point.number == step + 1
        check(comm, set(point.files) == set(files_of(rank, step)), point.files)
    write(directory, files_of(rank, 17))
    session.close()
    again = Session(directory, comm=comm)
    saved = again.restore()
    assert saved and saved.step == 3 and not saved.finished
    found = {name: Path(directory, name).read_bytes() for name in files_of(rank, 3)}
    check(comm, found == files_of(rank, 3), found)
    again.finish(3)
    third = Session(directory, comm=comm)
    saved = third.restore()
    assert saved and saved.finished and saved.step == 3
    check(comm, set(saved.files) >= set(files_of(rank, 3)), saved.files)


def sample(points: list[int], every: int) -> list[int]:
    return points if LONG else points[len(points) % every :: every]


def killed_at_each(comm: Any, where: str, victim: int, saver: str, every: int) -> int:
    """One rank dies at each operation of its own that changes something; then all are started again. How many."""
    options: dict[str, Any] = {}
    whole = Crew(comm, comm.Dup(), FaultDisk(new_directory(comm, where)), saver=saver, options=options)
    whole.run()
    check(comm, whole.finished, f"{whole.error!r}")
    changing, ops = comm.bcast((whole.disk.record.changing, whole.disk.record.ops), victim)
    for at in sample(changing, every):
        directory = new_directory(comm, where)
        disk = FaultDisk(directory, kill_at=at if comm.Get_rank() == victim else -1)
        first = Crew(comm, whole.others, disk, saver=saver, options=options)
        first.run()
        try:
            check(comm, first.disk.dead and first.error is None, f"{first.error!r}")
            restart(first, directory)
        except AssertionError as error:
            raise AssertionError(f"rank {victim} killed at {at} ({ops[at]}): {error}") from error
    return len(changing)


def case_one_rank_killed_at_each_operation(comm: Any, where: str) -> None:
    """G5, G2k, G3: the others go on until they need it. Dead inside `hide`, `restore`, `init`, `finish`, in the saver."""
    for victim in {0, comm.Get_size() - 1}:
        for saver in ("now", "late", "wait"):
            killed_at_each(comm, where, victim, saver, 7)


def failing_at_each(comm: Any, where: str, victim: int, saver: str, error: int, every: int) -> None:
    options: dict[str, Any] = {}
    whole = Crew(comm, comm.Dup(), FaultDisk(new_directory(comm, where)), saver=saver)
    whole.run()
    length, ops = comm.bcast((len(whole.disk.record.ops), whole.disk.record.ops), victim)
    raised = 0
    for at in sample(list(range(length)), every):
        directory = new_directory(comm, where)
        disk = FaultDisk(directory, fail_at=at if comm.Get_rank() == victim else -1, error=error)
        first = Crew(comm, whole.others, disk, saver=saver, options=options)
        first.run()
        try:
            if not first.finished and not first.error:
                continue  # it was the program's own write
            same(comm, type(first.error), "class of the error")
            if first.error:
                raised += 1
                same(comm, str(first.error), "text of the error")
                names = f"rank {victim} of {comm.Get_size()}: " if comm.Get_size() > 1 else ""
                check(comm, str(first.error).startswith(names), first.error)
            else:
                check(comm, first.finished, "no error, and not finished")
            restart(first, directory, disk_failed=True)
        except AssertionError as error_:
            raise AssertionError(f"rank {victim} failed at {at} ({ops[at]}): {error_}") from error_
    assert raised > 10, raised


def case_a_failure_anywhere_on_one_rank_is_raised_on_all(comm: Any, where: str) -> None:
    """G7, and no rank hangs: each operation of `init`, `restore`, `hide`, the saver, `finish` fails once on one rank."""
    for victim in {0, comm.Get_size() - 1}:
        for saver, error in (("now", errno.EIO), ("wait", errno.ENOSPC), ("late", errno.EACCES)):
            failing_at_each(comm, where, victim, saver, error, 9)


CASES = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}


def main() -> int:
    comm = MPI.COMM_WORLD
    where, *names = sys.argv[1:]
    status = 0
    for name in names or CASES:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        failure = None
        try:
            CASES[name](comm, os.path.join(where, name))
        except BaseException:
            failure = f"rank {comm.Get_rank()} of {comm.Get_size()}:\n{traceback.format_exc()}"
        faulthandler.cancel_dump_traceback_later()
        failures = [text for text in comm.allgather(failure) if text]
        if comm.Get_rank() == 0:
            print(f"FAILED {name}\n{failures[0]}" if failures else f"ok {name}", flush=True)
            shutil.rmtree(os.path.join(where, name), ignore_errors=True)
        comm.Barrier()
        status |= bool(failures)
    return status


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    sys.exit(main())
