"""What must hold on many ranks: `mpiexec -n P python mpi_cases.py DIRECTORY [CASE ...]`; all ranks run every case, or
with PART=K/M in the environment every M-th from the K-th on.

Status 0 and a line `ok CASE` for each, or a traceback from the first rank where one failed.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import functools
import gc
import json
import logging
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1]))
import safepoint
from safepoint import (
    DamagedError,
    LockedError,
    ManifestError,
    MissingFilesError,
    RefusedFileError,
    RestoreError,
    SafepointError,
    SaveError,
    Session,
    UsageError,
    owner,
)
from safepoint.restoring.stage import BY_HAND
from safepoint.saving.find import MAY_BE
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.lives import killed_beside_a_child
from testbed.program import LateSaver, NowSaver, TimedSaver, steps_of
from testbed.ranked import MANIFEST, Crew, Mortal, check, files_of, new_directory, restart, same
from testbed.sessions import kill

owner.PATIENCE = 1.5  # seconds: for a lock that somebody holds who does not say so, in several cases
Case = Callable[[Any, str], None]
PATIENCE = int(
    os.environ.get("PATIENCE", 4800 if os.environ.get("SAFEPOINT_CRASH") == "long" else 900)
)  # seconds for one case, many times what it takes
ALL = os.environ.get("SAFEPOINT_CRASH") == "all"
LONG = ALL or os.environ.get("SAFEPOINT_CRASH") == "long"


SIZES: dict[str, tuple[int, ...]] = {}


def sizes(*allowed: int) -> Callable[[Case], Case]:
    """The numbers of ranks that a case is about; without, all of them."""

    def note(case: Case) -> Case:
        SIZES[case.__name__] = allowed
        return case

    return note


def write(directory: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if name == "history.csv" and path.exists() else "wb") as file:
            file.write(data)


def case_all_ranks_get_the_newest_step_of_all(comm: Any, where: str) -> None:
    """G5, G1: hide, go away, start again; every rank has its own files and the saver those of all."""
    rank, _, directory = placed(comm, where)
    session = Session(directory, comm=comm)
    assert session.restore() is None
    for step in range(4):
        write(directory, files_of(rank, step))
        point = session.hide(step)
        assert point and point.step == step and point.number == step + 1
        check(comm, set(point.files) == set(files_of(rank, step)), point.files)
    write(directory, files_of(rank, 17))
    session.close()
    again, saved = restored(comm, directory)
    assert saved and saved.step == 3 and not saved.finished
    found = {name: Path(directory, name).read_bytes() for name in files_of(rank, 3)}
    check(comm, found == files_of(rank, 3), found)
    again.finish(3)
    third = Session(directory, comm=comm)
    saved = third.restore()
    assert saved and saved.finished and saved.step == 3
    check(comm, set(saved.files) >= set(files_of(rank, 3)), saved.files)


def sample(points: list[int], every: int) -> list[int]:
    """All, or a part of them; the smaller, the more ranks have to share the machine."""
    every *= MPI.COMM_WORLD.Get_size()
    return points if ALL else points[len(points) % every :: every]


def killed_at_each(comm: Any, where: str, victim: int, saver: str, every: int) -> int:
    """One rank dies at each operation of its own that changes something; then all are started again. How many."""
    options: dict[str, Any] = {}
    steps = steps_of(saver, 3)
    whole = Crew(comm, comm.Dup(), FaultDisk(new_directory(comm, where)), steps, saver, options)
    whole.run()
    check(comm, whole.finished, f"{whole.error!r}")
    changing, ops = comm.bcast((whole.disk.record.changing, whole.disk.record.ops), victim)
    for at in sample(changing, every):
        directory = new_directory(comm, where)
        disk = FaultDisk(directory, kill_at=at if comm.Get_rank() == victim else -1)
        first = Crew(comm, whole.others, disk, steps, saver, options)
        first.run()
        try:
            check(comm, first.disk.dead and first.error is None, f"{first.error!r}")
            restart(first, directory)
        except AssertionError as error:
            raise AssertionError(f"rank {victim} killed at {at} ({ops[at]}): {error}") from error
    return len(changing)


def case_one_rank_killed_at_each_operation(comm: Any, where: str) -> None:
    """G5, G2k, G3: the others go on until they need it. Dead in `hide`, `restore`, `init`, `finish`, or the saver."""
    for victim in {0, comm.Get_size() - 1}:
        for saver in ("now", "late", "busy", "wait"):
            killed_at_each(comm, where, victim, saver, 7)


def failing_at_each(comm: Any, where: str, victim: int, saver: str, error: int, every: int) -> None:
    options: dict[str, Any] = {}
    steps = steps_of(saver, 3)
    whole = Crew(comm, comm.Dup(), FaultDisk(new_directory(comm, where)), steps, saver)
    whole.run()
    length, ops = comm.bcast((len(whole.disk.record.ops), whole.disk.record.ops), victim)
    raised = 0
    for at in sample(list(range(length)), every):
        directory = new_directory(comm, where)
        disk = FaultDisk(directory, fail_at=at if comm.Get_rank() == victim else -1, error=error)
        first = Crew(comm, whole.others, disk, steps, saver, options)
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
    assert raised, "no failure was raised: this tests nothing"


def case_a_failure_anywhere_on_one_rank_is_raised_on_all(comm: Any, where: str) -> None:
    """G7, and no rank hangs: each operation of `init`, `restore`, `hide`, saver, `finish` fails once on one rank."""
    for victim in {0, comm.Get_size() - 1}:
        for saver, error in (("now", errno.EIO), ("wait", errno.ENOSPC), ("late", errno.EACCES), ("busy", errno.EIO)):
            failing_at_each(comm, where, victim, saver, error, 9)


def message_of(comm: Any, call: Any, kind: type[BaseException]) -> str:
    """The text of the error that `call` raises on all ranks; any other outcome on any rank is a failure on all."""
    text, wrong = "", "no error"
    try:
        call()
    except kind as error:
        text, wrong = str(error), "" if type(error) is kind else repr(error)
    except Exception as error:
        wrong = repr(error)
    check(comm, not wrong, wrong)
    same(comm, text, "text of the error")
    return text


def started(comm: Any, directory: str, **options: Any) -> Session:
    session = Session(directory, comm=comm, **options)
    session.restore()
    return session


def failing(directory: str, code: int = errno.EIO, **when: Callable[..., bool]) -> FaultDisk:
    """A disk of which these operations fail when that is true of what they are given."""
    disk = FaultDisk(directory)

    def replaced(operation: Any, fails: Callable[..., bool]) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if fails(*given):
                raise OSError(code, os.strerror(code), given[0])
            return operation(*given, **options)

        return call

    for name, fails in when.items():
        setattr(disk, name, replaced(getattr(disk, name), fails))
    return disk


def outcome_of(call: Callable[[], object]) -> BaseException | None:
    """What it raises, on this rank."""
    try:
        call()
    except BaseException as error:
        return error
    return None


def placed(comm: Any, where: str, text: str = MANIFEST) -> tuple[int, int, str]:
    """Rank, number of ranks, and a new directory."""
    return comm.Get_rank(), comm.Get_size(), new_directory(comm, where, text)


def restored(comm: Any, directory: str, **options: Any) -> tuple[Session, Any]:
    session = Session(directory, comm=comm, **options)
    return session, session.restore()


def begun(comm: Any, where: str, *, text: str = MANIFEST, **options: Any) -> tuple[int, int, str, Session]:
    """As `placed`, and a session in it that has restored nothing."""
    rank, size, directory = placed(comm, where, text)
    return rank, size, directory, started(comm, directory, **options)


def hidden(session: Session, rank: int, step: int, **options: Any) -> None:
    """Write the files of this rank, and hide them."""
    write(session.directory, files_of(rank, step))
    session.hide(step, **options)


def closed(comm: Any, session: Session) -> None:
    session.close()
    comm.Barrier()


def in_place(rank: int, directory: str) -> dict[str, bytes]:
    paths = {name: Path(directory, name) for name in files_of(rank, 0)}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


@sizes(2, 4, 8)
def case_a_missing_file_on_one_rank_is_an_error_on_all_and_nothing_moves(comm: Any, where: str) -> None:
    """G7: the other ranks had moved theirs, and have them back."""
    rank, size, directory, session = begun(comm, where)
    for step in range(3):
        write(directory, files_of(rank, step))
        if rank == size - 1:
            os.unlink(os.path.join(directory, f"z-{rank}.dat"))
        text = message_of(comm, lambda step=step: session.hide(step), MissingFilesError)
        assert text.startswith(f"rank {size - 1} of {size}: missing: z-{size - 1}.dat (line 1), though sub/p-"), text
        write(directory, files_of(rank, step))
        check(comm, in_place(rank, directory) == files_of(rank, step), "not put back")
        point = session.hide(step)
        assert point and point.step == step
    session.close()
    assert started(comm, directory)._number == 6


@sizes(2, 4, 8)
def case_none_of_the_files_on_one_rank_is_an_error_and_on_all_ranks_nothing_to_hide(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where)
    assert session.hide(0) is None
    if rank != size - 1:
        write(directory, files_of(rank, 0))
    text = message_of(comm, lambda: session.hide(0), MissingFilesError)
    names = f"z-{size - 1}.dat (line 1), sub/p-{size - 1:03d}.dat (line 2)"
    assert text == f"rank {size - 1} of {size}: missing: {names}, though other ranks have theirs{MAY_BE}", text
    check(comm, rank == size - 1 or in_place(rank, directory) == files_of(rank, 0), "not put back")
    write(directory, files_of(rank, 0))
    point = session.hide(0)
    assert point and point.number == 2  # the number of the failed one is not used again


@sizes(2, 4, 8)
def case_different_steps_are_an_error_that_says_who_had_which(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where)
    write(directory, files_of(rank, 0))
    text = message_of(comm, lambda: session.hide(100 if rank else 200), UsageError)
    others = "rank 1 of 2" if size == 2 else f"ranks {', '.join(map(str, range(1, size)))} of {size}"
    wanted = f"hide was called with different steps: step 100 on {others}, step 200 on rank 0 of {size}"
    assert text == f"all {size} ranks: {wanted}", text
    check(comm, in_place(rank, directory) == files_of(rank, 0), "not put back")
    text = message_of(comm, lambda: session.hide(7 if rank else None), UsageError)
    assert f"step None on rank 0 of {size}" in text, text
    session.hide(0)
    text = message_of(comm, lambda: session.finish(1 if rank else 2), UsageError)
    assert "finish was called with different steps: step 1 on " in text, text
    session.finish()


@sizes(2, 4)
def case_the_extra_is_that_of_all_ranks_and_so_is_the_time(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where)
    write(directory, files_of(rank, 0))
    text = message_of(comm, lambda: session.hide(0, extra={"loss": rank}), UsageError)
    assert text == f"all {size} ranks: hide was called with different extra: all ranks must give the same", text
    text = message_of(comm, lambda: session.hide(0, extra={"loss": object()} if rank else None), UsageError)
    assert "extra['loss'] takes a JSON value" in text, text
    check(comm, in_place(rank, directory) == files_of(rank, 0), "not put back")
    session.hide(0, extra={"loss": 0.25, "name": "a"})
    hidden(session, rank, 1, extra={"name": "b"}, wait=True)
    (newest, older) = session.sets()
    same(comm, (newest.time, older.time), "times")
    check(comm, (older.extra, newest.extra) == ({"loss": 0.25, "name": "a"}, {"name": "b"}), session.sets())
    session.close()
    saved = Session(directory, comm=comm).restore()
    check(comm, bool(saved) and saved.extra == {"name": "b"}, saved)


@sizes(2, 4)
def case_each_rank_has_its_state_and_goes_on_with_it(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where)
    if rank == 0:
        os.unlink(os.path.join(directory, ".safepoint"))
    comm.Barrier()
    check(comm, safepoint.load_state(directory, comm=comm) is None)
    for step in range(3):
        safepoint.save_state(step, u=np.full(3, rank + step), of={"rank": rank})
    text = message_of(comm, lambda: safepoint.save_state(3, u=object() if rank else 1), UsageError)
    assert "save_state: u: a object cannot be kept" in text, text
    safepoint.close()
    state = safepoint.load_state(directory, comm=comm)
    check(comm, bool(state) and state.step == 2 and state["u"].tolist() == [rank + 2] * 3, state)
    check(comm, bool(state) and state["of"] == {"rank": rank}, state)
    safepoint.finish(3)


@sizes(2, 4)
def case_without_coordination_a_rank_may_save_its_state_alone(comm: Any, where: str) -> None:
    """No rank waits for the others in it."""
    rank, _, directory = placed(comm, where, "state-{rank}.npz\n")
    session = Session(directory, comm=comm, coordinate=False)
    assert session.load_state() is None
    for step in range(3 if rank == 0 else 0):
        session.save_state(step, x=step)
    session.close()
    session = Session(directory, comm=comm, coordinate=False)
    state = session.load_state()
    check(comm, state == {"x": 2} if rank == 0 else state is None, state)
    for step in range(2 + rank):
        session.save_state(step, x=step)
    session.close()


@sizes(2, 4)
def case_all_ranks_go_back_to_the_step_that_is_asked_for(comm: Any, where: str) -> None:
    """G5, G6: or none does, if one of them cannot."""
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    directory = new_directory(comm, where)
    session = started(comm, directory, keep=4)
    for step in range(4):
        hidden(session, rank, step, wait=True)
    write(directory, files_of(rank, 9))
    text = message_of(comm, lambda: session.restore(step=7), UsageError)
    assert "there is no set of step 7 in " in text and "set 4 (step 3), set 3 (step 2), set 2 (step 1)" in text, text
    text = message_of(comm, lambda: session.restore(step=1 + (rank == last)), UsageError)
    assert "asked=('step', 1) on rank 0: give all ranks the same" in text, text
    part = Path(session._root.stored(3, f"z-{rank}.dat"))
    whole = part.read_bytes()
    if rank == last:
        part.write_bytes(b"X" * len(whole))
    text = message_of(comm, lambda: session.restore(step=2), DamagedError)
    assert f"rank {last}: the checksum of z-{last}.dat differs" in text and "no file was touched" in text, text
    check(comm, in_place(rank, directory) == files_of(rank, 9), "touched")
    point = session.restore(step=1)
    check(comm, bool(point) and point.step == 1 and in_place(rank, directory) == files_of(rank, 1), point)
    check(comm, [s.step for s in session.sets()] == [1, 0], session.sets())


@sizes(2, 4)
def case_one_rank_killed_anywhere_while_all_go_back_to_a_step(comm: Any, where: str) -> None:
    """G3, G5: then all have that set, or all the newest."""
    rank, victim = comm.Get_rank(), comm.Get_size() - 1

    def three_sets() -> str:
        directory = new_directory(comm, where)
        session = started(comm, directory, keep=3)
        for step in range(3):
            hidden(session, rank, step, wait=True)
        session.close()
        return directory

    def fault_disk(kill_at: int = -1) -> FaultDisk:
        """What is there at its start is read while no rank changes anything."""
        comm.Barrier()
        disk = FaultDisk(directory, kill_at=kill_at)
        comm.Barrier()
        return disk

    others = comm.Dup()
    directory = three_sets()
    disk = fault_disk()
    mortal = Mortal.of(comm, others, disk)
    Session(directory, comm=mortal, disk=disk).restore(step=0)
    changing = comm.bcast(disk.record.changing, victim)
    mortal.last_words()
    disk.end()
    came = set()
    for at in sample(changing, 1):
        directory = three_sets()
        disk = fault_disk(at if rank == victim else -1)
        mortal = Mortal.of(comm, others, disk)
        with contextlib.suppress(Killed):
            Session(directory, comm=mortal, disk=disk).restore(step=0)
        mortal.last_words()
        check(comm, disk.dead, f"killed at {at}")
        disk.end()
        session = Session(directory, comm=comm)
        point = session.restore()
        check(comm, bool(point) and in_place(rank, directory) == files_of(rank, point.step or 0), (at, point))
        same(comm, point and point.step)
        came.add(point and point.step)
        session.close()
    assert came <= {0, 2} and 2 in came, came
    gc.collect()  # sessions that were killed


@sizes(2, 4)
def case_after_an_init_that_failed_all_ranks_refuse(comm: Any, where: str) -> None:
    """Also where only some of them named another directory: one that refused alone would leave the others waiting."""
    rank, _, directory = placed(comm, where)
    session = safepoint.init(directory, comm=comm)
    other = directory if rank == 0 else f"{where}-not-there"
    message_of(comm, lambda: safepoint.init(other, comm=comm), LockedError)
    refused = outcome_of(lambda: safepoint.hide(0))
    check(
        comm,
        type(refused) is UsageError and str(refused).startswith(f"hide after an init that failed, in {other} ("),
        refused,
    )
    session.close()


@sizes(2, 4, 8)
def case_a_bad_argument_on_one_rank_is_raised_on_all(comm: Any, where: str) -> None:
    """Whatever the class: the others wait in an agreement already."""
    rank, size, directory, session = begun(comm, where)
    write(directory, files_of(rank, 0))
    bad: Any = "seven"
    for call in (session.hide, session.finish):
        text = message_of(comm, lambda call=call: call(bad if rank == 1 else 7), UsageError)
        assert text.startswith(f"rank 1 of {size}: {call.__name__}: step must be an integer, not 'seven' (str)"), text
    text = message_of(comm, lambda: session.hide(2**70), UsageError)
    assert "is too large" in text
    check(comm, in_place(rank, directory) == files_of(rank, 0), "not put back")
    different: list[dict[str, Any]] = [
        {"keep": 3}, {"background": False}, {"inflight": "off"}, {"coordinate": False}, {"saver": 1}, {"saver": None}
    ]  # fmt: skip
    for options in different:
        name = next(iter(options))
        other = new_directory(comm, f"{where}-2")
        text = message_of(comm, lambda: Session(other, comm=comm, **(options if rank else {})), UsageError)
        assert f"{name}={options[name]} given to init, and {name}=" in text, text
        assert not os.path.exists(f"{other}/.safepoint.d")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"keep": 0}, "keep must be at least 1"), ({"saver": size}, "saver must be one of the ranks"),
        ({"inflight": "loud"}, "inflight must be"),
    ]  # fmt: skip
    for options, words in wrong:
        text = message_of(comm, lambda: Session(other, comm=comm, **(options if rank else {})), UsageError)
        assert words in text, text
    if rank == 1:
        session.close()
    text = message_of(comm, lambda: session.hide(7), UsageError)
    assert text.startswith(f"rank 1 of {size}: hide after the end of the session (it was closed)"), text


def case_no_communicator_is_an_error(comm: Any, where: str) -> None:
    directory = new_directory(comm, where)
    for other in (MPI.COMM_NULL, "world", 7, MPI):
        message_of(comm, lambda other=other: Session(directory, comm=other), UsageError)


@sizes(2, 4, 8)
def case_an_interrupt_on_one_rank_leaves_no_other_waiting(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where)

    class Interrupted(FaultDisk):
        def rename(self, source: str, target: str) -> None:
            if rank == 1 and target.endswith("set-00000001/files/z-1.dat"):
                raise KeyboardInterrupt
            super().rename(source, target)

    session = started(comm, directory, disk=Interrupted(directory))
    write(directory, files_of(rank, 0))
    raised = outcome_of(lambda: session.hide(0))
    wanted = KeyboardInterrupt if rank == 1 else SafepointError
    check(comm, type(raised) is wanted, repr(raised))
    check(comm, rank == 1 or ("rank 1 of" in str(raised) and "KeyboardInterrupt" in str(raised)), raised)
    check(comm, in_place(rank, directory) == files_of(rank, 0), "not put back")
    assert session.hide(0)


@sizes(2, 4)
def case_ranks_whose_disks_differ_have_a_common_set_that_is_young(comm: Any, where: str) -> None:
    """G5, and nobody starves: the disk of the last rank is 20 times as slow. Ten minutes by the clock of a simulation,
    a hide every 0.25 s. At each step a power cut on all ranks would cost two times of the slowest saver at most."""
    rank, size = comm.Get_rank(), comm.Get_size()
    slowest, step_s, keep = 10.0, 0.25, 2
    directory = new_directory(comm, where, "z-{rank}.dat\n")
    session = started(comm, directory, keep=keep)
    saver = session._work.thread = TimedSaver(slowest if rank == size - 1 else slowest / 20)  # type: ignore[assignment]
    session._work._sweeper = NowSaver()  # type: ignore[assignment]
    root, ages, most = session._root, [0.0], 0
    for step in range(int(600 / step_s)):
        Path(directory, f"z-{rank}.dat").write_bytes(b"%d of %d" % (step, rank))
        session.hide(step)
        saver.pass_on(step_s)
        if step % 40 == 39:
            here = {n for n in root.numbers("set") if os.path.exists(root.record(n))}
            common = set.intersection(*comm.allgather(here))
            check(comm, bool(common), f"no common set at step {step}: {sorted(here)}")
            ages.append((step + 1 - (max(common) - 1)) * step_s)
            most = max(most, len(root.numbers("set")) + len(root.numbers("gone")))
    check(comm, max(ages) <= 2 * slowest + 2 * step_s, f"the newest common set was {max(ages)} s old")
    check(comm, most <= keep + 3, f"{most} sets of one rank at once")
    session.wait()
    (newest,) = set(comm.allgather(session._committed.number))
    check(comm, newest == step + 1, newest)
    session.close()


@sizes(2, 4)
def case_a_set_that_waits_stays_until_all_have_taken_the_newer(comm: Any, where: str) -> None:
    """G2k: set 4 is taken on one rank only. Set 3 still waited for the disk."""
    rank, size, directory = placed(comm, where)
    disk = failing(directory, rename=lambda source, target: target.endswith(f"set-00000004/files/z-{size - 1}.dat"))
    session = started(comm, directory, disk=disk)
    session._work.thread = TimedSaver(1.0)  # type: ignore[assignment]
    session._work._sweeper = NowSaver()  # type: ignore[assignment]
    for step in (1, 2, 3):
        hidden(session, rank, step)
    write(directory, files_of(rank, 4))
    message_of(comm, lambda: session.hide(4), SaveError)
    kill(session)
    disk.end()
    comm.Barrier()
    again, saved = restored(comm, directory, disk=FaultDisk(directory, inodes=disk.inodes))
    check(comm, bool(saved and saved.step == 3), saved)
    check(comm, in_place(rank, directory) == files_of(rank, 3), "wrong")
    again.finish()


@sizes(2, 4)
def case_if_the_set_in_flight_fails_on_one_rank_all_have_their_files_back(comm: Any, where: str) -> None:
    """G7: a hide that waits for it, on every rank."""
    rank, _, directory = placed(comm, where)
    session = started(comm, directory, disk=fail_in_set(directory, rank, {(0, 2)}))
    session._work.thread = TimedSaver(1.0)  # type: ignore[assignment]
    for step in (1, 2):
        hidden(session, rank, step)
    write(directory, files_of(rank, 3))
    text = message_of(comm, lambda: session.hide(3, wait=True), SaveError)
    assert text.startswith(f"rank 0 of {comm.Get_size()}: set 2 (step 2) not stored: "), text
    check(comm, in_place(rank, directory) == files_of(rank, 3), "not put back")
    assert session.hide(3, wait=True)
    session.close()


@sizes(2, 4)
def case_what_is_stored_is_the_same_on_all_ranks(comm: Any, where: str) -> None:
    """The saver of the last rank is late by one step. A set is in flight on all ranks, or on none."""
    rank, size, _, session = begun(comm, where, keep=9)
    saver = session._work.thread = TimedSaver(1.5 if rank == size - 1 else 0.5)  # type: ignore[assignment]
    session._work._sweeper = NowSaver()  # type: ignore[assignment]
    for step in range(1, 10):
        hidden(session, rank, step)
        saver.pass_on(1.0)
    session.wait()
    root = session._root
    stored = [n for n in root.numbers("set") if os.path.exists(root.record(n))]
    same(comm, stored, "sets that are stored")
    check(comm, stored == [1, 2, 4, 6, 8, 9], stored)
    session.close()


def fail_in_set(directory: str, rank: int, failing: set[tuple[int, int]]) -> FaultDisk:
    """A disk on which the contents of these (rank, set) cannot be flushed."""

    class Sick(FaultDisk):
        def sync_files(self, paths: Any, opened: Any = ()) -> None:
            for path in paths:
                if any(rank == r and f"/set-{n:08d}/files" in path for r, n in failing):
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                super().sync_files([path])

    return Sick(directory)


@sizes(2, 4, 8)
def case_a_background_failure_on_one_rank_is_raised_on_all_at_the_next_call(comm: Any, where: str) -> None:
    """G7: with the ranks and the file; nothing of the new set was begun; the set before is what is restored."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for verb in ("hide", "wait", "finish", "restore"):
        directory = new_directory(comm, where)
        session = started(comm, directory, disk=fail_in_set(directory, rank, {(1, 3), (size - 1, 3)}))
        for step in (1, 2, 3):
            hidden(session, rank, step, wait=step == 2)
        flight = session._work.flight
        assert flight
        flight.exception()
        comm.Barrier()
        write(directory, files_of(rank, 4))
        calls = {"hide": lambda s=session: s.hide(4), "finish": lambda s=session: s.finish(4)}
        text = message_of(comm, calls.get(verb, getattr(session, verb)), SaveError)
        who = "rank 1 of 2" if size == 2 else f"ranks 1, {size - 1} of {size}"
        assert text.startswith(f"{who}: set 3 (step 3) not stored: z-1.dat: Input/output error; set 2 (step 2) is"), (
            text
        )
        assert size == 2 or f"\n  rank {size - 1}: set 3 (step 3) not stored: z-{size - 1}.dat: Input" in text, text
        check(comm, in_place(rank, directory) == files_of(rank, 4), f"{verb} began something")
        session.close()
        again, saved = restored(comm, directory)
        assert saved and saved.step in (2, 3)  # what is in the page cache was not lost
        check(comm, in_place(rank, directory) == files_of(rank, saved.step or 0), "wrong")
        closed(comm, again)


@sizes(2, 4, 8)
def case_a_set_that_one_rank_cannot_save_is_taken_back_by_all(comm: Any, where: str) -> None:
    """`hide(wait=True)`, and the first `hide`: on error the files are where they were, on every rank."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for bad in (1, 3):
        directory = new_directory(comm, where)
        session = started(comm, directory, disk=fail_in_set(directory, rank, {(1, bad)}))
        for step in range(1, bad):
            hidden(session, rank, step, wait=True)
        write(directory, files_of(rank, bad))
        # One rank that asks for it is enough to make all wait.
        text = message_of(comm, lambda bad=bad: session.hide(bad, wait=rank == 0), SaveError)
        assert text.startswith(f"rank 1 of {size}: set {bad} (step {bad}) not stored: z-1.dat: Input/output error"), (
            text
        )
        check(comm, in_place(rank, directory) == files_of(rank, bad), "not put back")
        sets = session._root.numbers("set") + session._root.numbers("failed")
        check(comm, bad not in sets, sets)
        closed(comm, session)
        again, saved = restored(comm, directory)
        assert (saved.step if saved else 0) == bad - 1, saved
        right = files_of(rank, saved.step or 0) if saved else {}  # torn first files are set aside
        check(comm, in_place(rank, directory) == right, "wrong")
        closed(comm, again)


@sizes(4)
def case_no_set_is_pruned_while_it_is_the_newest_of_all(comm: Any, where: str) -> None:
    """Rule 2 of save. After set 3 failed on one rank and set 4 on another, the least of the newest is 3, which one rank
    does not have: only what all have at the same time counts."""
    rank, _, directory = placed(comm, where)
    session = started(comm, directory, disk=fail_in_set(directory, rank, {(1, 3), (2, 5)}), keep=1, store="every")
    failed = 0
    for step in range(1, 6):
        write(directory, files_of(rank, step))
        try:
            session.hide(step)
        except SaveError:
            failed += 1
            session.hide(step)
    session.wait()
    closed(comm, session)
    assert failed == 2
    # What could not be stored would be completed from the page cache; here, as after a power cut, it is lost. Set 7
    # too, where it was not yet committed.
    for victim, number in ((1, 3), (2, 5), (0, 7)):
        if rank == victim:
            shutil.rmtree(session._root.set(number))
    comm.Barrier()
    _again, saved = restored(comm, directory)
    assert saved and saved.step == 2, saved
    check(comm, in_place(rank, directory) == files_of(rank, 2), "wrong")


class Listen(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))

    def __enter__(self) -> Listen:
        logger = logging.getLogger("safepoint")
        self.level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("safepoint").removeHandler(self)
        logging.getLogger("safepoint").setLevel(self.level)

    def loud(self) -> list[str]:
        return [text for level, text in self.said if level >= logging.INFO]


@sizes(2, 4, 8)
def case_the_newest_set_of_every_rank_is_chosen_and_it_says_why(comm: Any, where: str) -> None:
    """G5, G6: never the newest that any rank has. Reported once, on the saver."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for fault in ("gone", "damaged"):
        directory = new_directory(comm, where)
        session = started(comm, directory, keep=3)
        for step in range(100, 500, 100):
            hidden(session, rank, step, wait=True)
        session.close()
        root = session._root
        if rank == 1:
            if fault == "gone":
                shutil.rmtree(root.set(4))
            else:
                with open(root.stored(4, "z-1.dat"), "r+b") as file:
                    file.write(b"X")
        comm.Barrier()
        again = Session(directory, comm=comm)
        with Listen() as heard:
            saved = again.restore()
        assert saved and (saved.number, saved.step) == (3, 300)
        check(comm, in_place(rank, directory) == files_of(rank, 300), "wrong")
        why = "rank 1 has only 3" if fault == "gone" else "rank 1: the checksum of z-1.dat differs"
        wanted = f"restored set 3 (step 300): all {size} ranks; set 4 (step 400): {why}"
        told = [text for text in heard.loud() if text.startswith("restored")]
        check(comm, told == ([wanted] if rank == 0 else []), told)
        check(comm, root.numbers("set") == [2, 3], root.numbers("set"))
        write(directory, files_of(rank, 400))
        point = again.hide(401)
        assert point and point.number == 4
        closed(comm, again)


@sizes(2, 4)
def case_tables_begun_anew_on_some_ranks_leave_the_set_whole_on_all(comm: Any, where: str) -> None:
    """G1, G5: a set that was given back, and, if it is damaged, the one before it, on every rank."""
    rank, _, directory = placed(comm, where, "z-{rank}.dat\nrows-{rank}.csv append\nrows.csv append\n")
    mine = [f"rows-{rank}.csv", *["rows.csv"] * (rank == 0)]

    def rows(step: int) -> dict[str, bytes]:
        return {name: b"".join(b"row %d of a table\n" % k for k in range(10 * step)) for name in mine}

    session = started(comm, directory)
    for step in (1, 2):
        write(directory, {f"z-{rank}.dat": b"z at %d" % step, **rows(step)})
        session.hide(step, wait=True)
    session.close()
    root = session._root
    comm.Barrier()
    for begins_anew, newest in (({1}, 2), ({0, 1}, 2), ({0}, 1), ({1}, 1)):
        if newest == 1 and rank == 1 and os.path.exists(root.set(2)):
            Path(root.stored(2, "z-1.dat")).write_bytes(b"z at ?")
        comm.Barrier()
        again, saved = restored(comm, directory)
        assert saved and saved.step == newest, saved
        found = {name: Path(directory, name).read_bytes() for name in mine}
        check(comm, found == rows(newest), found)
        for name in mine if rank in begins_anew else ():
            os.truncate(os.path.join(directory, name), 5)
        closed(comm, again)


@sizes(4)
def case_sets_of_which_none_is_whole_everywhere_are_an_error_that_lists_them(comm: Any, where: str) -> None:
    """G6: never a fresh start, and no file is touched."""
    rank, size, directory, session = begun(comm, where)
    for step in (1, 2):
        hidden(session, rank, step)
    session.close()
    write(directory, files_of(rank, 9))
    root = session._root
    if rank == 0:
        shutil.rmtree(root.set(2))
    if rank == 1:
        os.unlink(root.stored(1, "z-1.dat"))
    comm.Barrier()
    for _ in range(2):
        again = Session(directory, comm=comm)
        text = message_of(comm, again.restore, DamagedError)
        assert text == (
            f"none of the sets in {directory} is whole; no file was touched:\n"
            f"  set 2 (step 2): rank 0 has only 1\n  set 1 (step 1): rank 1: z-1.dat is missing\n{BY_HAND}"
        ), text
        check(comm, in_place(rank, directory) == files_of(rank, 9), "touched")
        text = message_of(comm, lambda again=again: again.hide(3), UsageError)
        assert "hide before restore" in text
        closed(comm, again)
    if rank == size - 1:  # the disk of a node is lost
        shutil.rmtree(root.path)
    comm.Barrier()
    text = message_of(comm, lambda: Session(directory, comm=comm), DamagedError)
    assert f"rank-{size - 1:05d} is gone" in text, text


@sizes(2, 4, 8)
def case_one_rank_without_its_directory_is_no_fresh_start(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where)
    for step in (1, 2):
        hidden(session, rank, step)
    session.close()
    if rank == size - 1:
        shutil.rmtree(session._root.path)
    comm.Barrier()
    for _ in range(2):  # nothing is made that would hide it from the next start
        text = message_of(comm, lambda: Session(directory, comm=comm), DamagedError)
        assert text.startswith(f"rank {size - 1} of {size}: {session._root.side}/rank-{size - 1:05d} is gone"), text
        comm.Barrier()


@sizes(2, 4)
def case_roots_that_vanished_are_no_first_start_of_a_rank(comm: Any, where: str) -> None:
    """G6: of the rank that leads, of another one, of all; also for ranks that do not agree on sets, of which one alone
    would begin anew. Ranks that the sets never had have nothing to lose."""
    rank, size = comm.Get_rank(), comm.Get_size()
    half = comm.Split(int(rank < size // 2))
    for coordinate in (True, False):
        for gone in ([0], [size - 1], range(size)):
            directory = new_directory(comm, where)
            session = started(comm, directory, coordinate=coordinate)
            hidden(session, rank, 1, wait=True)
            closed(comm, session)
            if rank in gone:
                shutil.rmtree(session._root.path)
            comm.Barrier()
            for _ in range(2):
                text = message_of(comm, lambda: Session(directory, comm=comm, coordinate=coordinate), DamagedError)
                assert "is gone, though an earlier run had made it" in text and "remove" in text, text
            comm.Barrier()
    directory = new_directory(comm, where, "u.dat\nhistory.csv append\n")
    if rank < size // 2:
        session = started(half, directory)
        write(directory, {k: v for k, v in files_of(rank, 1).items() if k in ("u.dat", "history.csv")})
        session.hide(1, wait=True)
        session.close()
    comm.Barrier()
    Path(directory, ".safepoint").write_text(MANIFEST)
    comm.Barrier()
    session = started(comm, directory)
    assert session._number == 1
    session.close()


@sizes(2, 4)
def case_all_ranks_wait_for_a_child_of_a_killed_run_and_decide_together(comm: Any, where: str) -> None:
    """G8, and no rank hangs: whichever rank the child was of, all begin when it has ended, or all are refused; and a
    signal to one of them ends the waiting of all."""
    rank, size = comm.Get_rank(), comm.Get_size()

    class Hears(logging.Handler):
        heard = False

        def emit(self, record: logging.LogRecord) -> None:
            if not self.heard and "waiting up to" in record.getMessage():
                self.heard = True
                reaction()

    for victim in {0, size - 1}:
        for outcome in ("ends", "stays", "signal"):
            directory = new_directory(comm, where)
            left = killed_beside_a_child(directory, victim) if rank == victim else contextlib.nullcontext((0, bool))
            with left as (dead, end):
                reaction: Callable[[], object] = bool
                if rank == victim and outcome == "ends":
                    reaction = end
                elif rank == victim and outcome == "signal":
                    reaction = functools.partial(signal.raise_signal, signal.SIGINT)
                owner.PATIENCE = 1.5 if outcome == "stays" else PATIENCE * 10.0
                handler, logger = Hears(logging.WARNING), logging.getLogger("safepoint")
                logger.addHandler(handler)
                logger.setLevel(logging.WARNING)
                comm.Barrier()
                raised = outcome_of(lambda: Session(directory, comm=comm).close())
                logger.removeHandler(handler)
                logger.setLevel(logging.NOTSET)
                owner.PATIENCE = 1.5
                wanted = KeyboardInterrupt if outcome == "signal" and rank == victim else LockedError
                right = raised is None if outcome == "ends" else type(raised) is wanted
                check(comm, right and handler.heard == (rank == victim), (victim, outcome, repr(raised)))
                gone = f"process {comm.bcast(dead, victim)} on"
                check(comm, not isinstance(raised, LockedError) or gone in str(raised), str(raised))
            comm.Barrier()


@sizes(2, 4)
def case_a_side_directory_that_goes_under_the_ranks_is_an_error_on_all(comm: Any, where: str) -> None:
    """G7, G8: of W, or of one rank alone; and what the error advises works on all."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for whole in (True, False):
        directory = new_directory(comm, where)
        session = started(comm, directory)
        hidden(session, rank, 1, wait=True)
        write(directory, files_of(rank, 2))
        comm.Barrier()
        if rank == size - 1:
            shutil.rmtree(session._root.side if whole else session._root.path)
        comm.Barrier()
        for call in (lambda: session.hide(2), lambda: session.hide(2, wait=True), session.wait, session.finish):
            text = message_of(comm, call, SaveError)
            assert "all sets are gone with it" in text and (whole or text.startswith(f"rank {size - 1} of {size}")), (
                text
            )
            check(comm, in_place(rank, directory) == files_of(rank, 2), "moved")
        closed(comm, session)
        if not whole:
            message_of(comm, lambda: Session(directory, comm=comm), DamagedError)
            comm.Barrier()
            if rank == 0:
                shutil.rmtree(session._root.side)
            comm.Barrier()
        session = Session(directory, comm=comm)
        session.hide(2)
        session.close()
        write(directory, files_of(rank, 9))
        comm.Barrier()
        session = Session(directory, comm=comm)
        saved = session.restore()
        assert saved and saved.step == 2
        check(comm, in_place(rank, directory) == files_of(rank, 2), "not given back")
        closed(comm, session)


@sizes(4, 8)
def case_another_number_of_ranks_is_refused_with_both_numbers(comm: Any, where: str) -> None:
    """G5: unless the set holds files of the saver alone. Nothing is changed."""
    rank, size = comm.Get_rank(), comm.Get_size()
    half = comm.Split(int(rank < size // 2))
    for few_first in (True, False):
        for each in (True, False):
            directory = new_directory(comm, where, MANIFEST if each else "u.dat\nhistory.csv append\n")
            first, second = (half, comm) if few_first else (comm, half)
            here = rank < size // 2
            if here or first is comm:
                session = started(first, directory)
                for step in (1, 2):
                    hidden(session, rank, step)
                session.close()
            comm.Barrier()
            if here or second is comm:
                again = Session(directory, comm=second)
                if each:
                    text = message_of(second, again.restore, UsageError)
                    wanted = f"set 2 (step 2) was saved by {first.Get_size()} ranks, and this run has"
                    assert f"{wanted} {second.Get_size()} ranks: a set with files of each rank needs the same" in text
                    stays = {"history.csv": files_of(0, 2)["history.csv"]} if rank == 0 else {}
                    check(second, in_place(rank, directory) == stays, "changed")
                else:
                    saved = again.restore()
                    assert saved and saved.step == 2
                    assert Path(directory, "u.dat").read_bytes() == files_of(0, 2)["u.dat"]
                    assert sorted(os.listdir(f"{directory}/.safepoint.d")) == ["FORMAT", "rank-00000"]
                again.close()
            comm.Barrier()
    # One process, without a communicator.
    directory = new_directory(comm, where)
    session = started(comm, directory)
    hidden(session, rank, 1)
    closed(comm, session)
    said = f"was saved by {size} ranks, and this run has 1 rank:"
    if rank == 0:
        try:
            said = f"restored {Session(directory).restore()}"
        except UsageError as error:
            said = str(error)
    check(comm, f"was saved by {size} ranks, and this run has 1 rank:" in said, said)


@sizes(4)
def case_the_saver_may_be_another_rank_and_change(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where, "u.dat\n")
    path = Path(directory, "u.dat")
    for number, saver in enumerate((2, 2, 0, 3, 1)):
        session = Session(directory, comm=comm, saver=saver)
        saved = session.restore()
        assert (saved.step if saved else 0) == number
        if saved:
            assert path.read_text() == str(number)
        comm.Barrier()
        if rank == saver:
            path.write_text(str(number + 1))
        point = session.hide(number + 1)
        check(comm, bool(point) and point.files == (("u.dat",) if rank == saver else ()), point)
        comm.Barrier()
        if rank == saver:
            path.write_text("torn")
        closed(comm, session)
    # Initial files, too, stay where they are when the saver changes before there is a set.
    other = new_directory(comm, f"{where}-2", "u.dat\n")
    if rank == 2:
        Path(other, "u.dat").write_text("initial")
    comm.Barrier()
    for saver in (2, 0, 1):
        session = started(comm, other, saver=saver)
        closed(comm, session)
        assert Path(other, "u.dat").read_text() == "initial"
    few = comm.Split(int(rank < 2))
    if rank < 2:  # the set is with rank 1: that is enough
        session = Session(directory, comm=few)
        saved = session.restore()
        assert saved and saved.step == 5 and path.read_text() == "5"
        session.close()
    comm.Barrier()
    session = started(comm, directory, saver=3)
    if rank == 3:
        path.write_text("6")
    session.hide(6)
    closed(comm, session)
    if rank < 2:
        session = Session(directory, comm=few)
        text = message_of(few, session.restore, UsageError)
        assert "are with rank 3, its saver among 4 ranks, and this run has 2 ranks: start it with more than 3" in text


@sizes(2, 4)
def case_a_rank_with_nothing_to_save_leaves_the_disk_alone(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where, text="u.dat\n")
    for step in range(4):
        if rank == 0:
            Path(directory, "u.dat").write_text(str(step))
        point = session.hide(step)
        assert point and point.step == step
        check(comm, session._work.flight is None or rank == 0, "a thread for nothing")
    session.wait()
    closed(comm, session)
    assert sorted(os.listdir(f"{directory}/.safepoint.d")) == ["FORMAT", "rank-00000"]
    # Now each rank has a file too: the sets from before stay good.
    if rank == 0:
        Path(directory, ".safepoint").write_text("u.dat\nz-{rank}.dat\n")
    comm.Barrier()
    for _ in range(2):
        again, saved = restored(comm, directory)
        assert saved and saved.step == 3 and Path(directory, "u.dat").read_text() == "3"
        # Rank 0 has a record of that set, from when the file was not listed: it may be an input, and is left alone.
        check(comm, rank == 0 or not Path(directory, f"z-{rank}.dat").exists(), "the torn first file is in place")
        comm.Barrier()
        Path(directory, f"z-{rank}.dat").write_text("torn")
        closed(comm, again)
    again = started(comm, directory)
    Path(directory, f"z-{rank}.dat").write_text("4")
    if rank == 0:
        Path(directory, "u.dat").write_text("4")
    again.hide(4)
    closed(comm, again)
    third = Session(directory, comm=comm)
    saved = third.restore()
    assert saved and saved.step == 4
    check(comm, Path(directory, f"z-{rank}.dat").read_text() == "4", "wrong")
    third.finish()
    assert size


@sizes(2, 4, 8)
def case_files_of_ranks_are_not_taken_by_a_wildcard_of_the_saver(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where, text="*.dat\nz-{rank}.dat\nrun-{rank}/\nrun-*/*.txt\n")
    os.mkdir(f"{directory}/run-{rank}")
    Path(directory, f"run-{rank}", "a.txt").write_text("a")
    Path(directory, f"z-{rank}.dat").write_text("z")
    if rank == 0:
        for name in ("u.dat", f"z-{size}.dat", "z-x.dat"):
            Path(directory, name).write_text(name)
        os.mkdir(f"{directory}/run-x")
        Path(directory, "run-x/b.txt").write_text("b")
    comm.Barrier()
    point = session.hide(1)
    mine = {f"z-{rank}.dat", f"run-{rank}"} | (
        {"u.dat", f"z-{size}.dat", "z-x.dat", "run-x/b.txt"} if rank == 0 else set()
    )
    check(comm, point is not None and set(point.files) == mine, point)


@sizes(2, 8)
def case_entries_that_several_ranks_would_take_for_theirs_are_refused(comm: Any, where: str) -> None:
    size = comm.Get_size()
    for line, words in (
        ("out-{size}.dat", f"out-{{size}}.dat is the same file for all {size} ranks: add {{rank}}"),
        ("*{rank}*.dat", "a wildcard beside {rank} matches files of other ranks too"),
        ("run/\nrun/z-{rank}.dat", "is of each rank and may lie in run/ (line 1)"),
        ("run-{rank}/a.dat\nrun-[1-9]/", "may lie in run-[1-9]/ (line 2)"),
        ("d*/x-{rank}a.dat\nd1/", "may lie in d1/ (line 2)"),
        ("**/\nsub/z-{rank}.dat", "may lie in **/ (line 1)"),
        ("no such attribute", "unknown attribute such"),
    ):
        directory = new_directory(comm, where, line + "\n")
        text = message_of(comm, lambda directory=directory: Session(directory, comm=comm), ManifestError)
        assert words in text, text
        assert not os.path.exists(f"{directory}/.safepoint.d")
    directory = new_directory(comm, where, "halo-{rank}-*.dat optional\nhalo-*-{rank}.dat optional\n")
    session = started(comm, directory)
    if comm.Get_rank() == 0:
        Path(directory, "halo-0-1.dat").write_text("from 0 to 1")
    comm.Barrier()
    text = message_of(comm, lambda: session.hide(1), RefusedFileError)
    assert "halo-0-1.dat is a file of rank 0 by halo-{rank}-*.dat, and of rank 1 by halo-*-{rank}.dat (line 2)" in text
    assert Path(directory, "halo-0-1.dat").exists()
    from safepoint.manifest import parse

    for line, ranks, fine in (
        ("a{rank}*", 10, True), ("a{rank}*", 11, False), ("a{rank:02d}*", 11, True), ("a{rank:02d}*", 101, False),
        ("*{rank}", 11, False), ("a-{rank}-*", 101, True), ("a*-{rank}", 101, True), ("[ab]{rank}", 11, False),
        ("a-{rank}/b\nx*/", 4, True), ("a-{rank}/b\na-x/", 4, True), ("a-{rank}/b\n[b-z]*/", 4, True),
        ("a-{rank}/b\n[a-z]*/", 4, False), ("a-{rank}/b\n?-?/", 4, False), ("a-{rank}/\na-*/", 4, True),
        ("{rank}-of-{size}", 11, True), ("a{rank:x}?", 16, True), ("a{rank:x}?", 17, False),
    ):  # fmt: skip
        try:
            parse(line).owned_by(1, ranks, 0)
        except ManifestError:
            assert not fine, (line, ranks)
        else:
            assert fine, (line, ranks)


@sizes(2, 4, 8)
def case_ranks_in_directories_of_their_own(comm: Any, where: str) -> None:
    """saver=None: all that is listed is of each rank; one mark, one step."""
    rank, size = comm.Get_rank(), comm.Get_size()
    new_directory(comm, where)
    directory = f"{where}/{rank}"
    os.mkdir(directory)
    Path(directory, ".safepoint").write_text(MANIFEST)
    text = message_of(comm, lambda: Session(directory, comm=comm), UsageError)
    assert "pass saver=None if every rank has a directory of its own" in text, text
    session = started(comm, directory, saver=None)
    for step in (1, 2, 3):
        write(directory, files_of(rank, step, None))
        session.hide(step)
    closed(comm, session)
    if rank == 1:
        shutil.rmtree(session._root.set(3))
    comm.Barrier()
    write(directory, files_of(rank, 9, None))
    again, saved = restored(comm, directory, saver=None)
    assert saved and saved.step == 2
    found = {name: Path(directory, name).read_bytes() for name in files_of(rank, 2, None)}
    check(comm, found == files_of(rank, 2, None), "wrong")
    closed(comm, again)
    other = f"{where}/{(rank + 1) % size}"  # the directory of another rank
    text = message_of(comm, Session(other, comm=comm, saver=None).restore, UsageError)
    assert f"rank 0: {where}/1 has the sets of rank 1, not those of rank 0" in text.replace(
        f"all {size} ranks", "rank 0"
    )
    comm.Barrier()


def nodes(comm: Any, where: str, *names: str) -> list[str]:
    """Disks of nodes, each with a manifest, on which ranks work in directories of their own."""
    new_directory(comm, where)
    paths = [f"{where}/{name}" for name in names]
    for path in paths if comm.Get_rank() == 0 else ():
        os.mkdir(path)
        Path(path, ".safepoint").write_text("u.dat\nkeep = 9\n")
    comm.Barrier()
    return paths


def job(comm: Any, directory: str, steps: dict[int, str]) -> Any:
    """One job on the nodes where the ranks are: what it was given back, and then these steps, each durable."""
    session = Session(directory, comm=comm, saver=None)
    saved = session.restore()
    for step, text in steps.items():
        Path(directory, "u.dat").write_text(f"{text}, step {step}, rank {comm.Get_rank()}")
        session.hide(step, wait=True)
    closed(comm, session)
    return saved


def copied(comm: Any, source: str, target: str) -> None:
    if comm.Get_rank() == 0:
        shutil.rmtree(target)
        shutil.copytree(source, target)
    comm.Barrier()


@sizes(2)
def case_a_node_that_comes_back_brings_no_history_that_was_given_up(comm: Any, where: str) -> None:
    """G1, G5: numbers of sets come again after a fall-back, and what was away then has the old ones."""
    rank = comm.Get_rank()
    a, b, c = nodes(comm, where, "a", "b", "c")
    job(comm, (a, b)[rank], {1: "history one"})
    copied(comm, b, c)  # before the second set: what is left of b's part when that node is lost
    job(comm, (a, b)[rank], {2: "history one"})
    saved = job(comm, (a, c)[rank], {2: "history two"})
    check(comm, saved and saved.step == 1, saved)
    with Listen() as heard:
        saved = job(comm, (a, b)[rank], {})
    check(comm, saved and (saved.number, saved.step) == (1, 1), saved)
    text = Path((a, b)[rank], "u.dat").read_text()
    check(comm, text == f"history one, step 1, rank {rank}", text)
    words = "set 2 (step 2): rank 1 has another set 2, of another history"
    check(comm, rank > 0 or any(words in text for text in heard.loud()), heard.said)
    saved = job(comm, (a, b)[rank], {2: "history three"})
    saved = job(comm, (a, b)[rank], {})
    text = Path((a, b)[rank], "u.dat").read_text()
    check(comm, saved and text == f"history three, step 2, rank {rank}", text)


@sizes(2)
def case_two_halves_that_each_went_on_with_a_copy_of_the_other_are_not_mixed(comm: Any, where: str) -> None:
    """G1, G5: then even the lives have the same number, and their history alone tells them apart."""
    rank = comm.Get_rank()
    a, b, c, d = nodes(comm, where, "a", "b", "c", "d")
    job(comm, (a, b)[rank], {1: "together"})
    copied(comm, a, d)
    copied(comm, b, c)
    job(comm, (a, c)[rank], {2: "first half"})
    job(comm, (d, b)[rank], {2: "second half"})
    with Listen() as heard:
        saved = job(comm, (a, b)[rank], {})
    check(comm, saved and saved.step == 1, saved)
    text = Path((a, b)[rank], "u.dat").read_text()
    check(comm, text == f"together, step 1, rank {rank}", text)
    words = "it is of another history than that of rank"
    check(comm, rank > 0 or any(words in text for text in heard.loud()), heard.said)


class Away:
    """Two ranks on two of three nodes: a life that may be killed, and what all of them then have."""

    def __init__(self, comm: Any, where: str) -> None:
        self.comm, self.others, self.where = comm, comm.Dup(), where

    def life(self, nodes: str, name: str, *, kill_at: int = -1, victim: int = 0) -> FaultDisk:
        rank = self.comm.Get_rank()
        directory = f"{self.where}/{nodes[rank]}"
        disk = FaultDisk(directory, kill_at=kill_at if rank == victim else -1)
        mortal = Mortal.of(self.comm, self.others, disk)
        self.saved, self.found = None, ""
        try:
            session = Session(directory, comm=mortal, saver=None, keep=9, disk=disk)
            session._work.thread = LateSaver()
            self.saved = session.restore()
            self.found = Path(directory, "u.dat").read_text() if self.saved else ""
            begin = self.saved.step if self.saved else 0
            for step in range(begin + 1, begin + 3):
                disk.overwrite(f"{directory}/u.dat", f"{self.found}, {step} of {name}".encode())
                session.hide(step)
            session.close()
        except Killed:
            pass
        finally:
            mortal.last_words()
            disk.end()
        self.comm.Barrier()
        return disk

    def copy(self, source: str, target: str) -> None:
        if self.comm.Get_rank() == 0:
            shutil.rmtree(f"{self.where}/{target}", ignore_errors=True)
            shutil.copytree(f"{self.where}/{source}", f"{self.where}/{target}", symlinks=True)
        self.comm.Barrier()


@sizes(2)
def case_killed_at_each_operation_and_another_node_comes_back(comm: Any, where: str) -> None:
    """G1, G5: a and b; then a and c, which is a copy of b, killed; then a and b again; then a and c again."""
    nodes(comm, where, "a", "b")
    away = Away(comm, where)
    away.life("ab", "one")
    for node in "ab":
        away.copy(node, f"{node}-begin")
    away.copy("b", "c")
    disk = away.life("ac", "two")
    changing = [comm.bcast(disk.record.changing, victim) for victim in (0, 1)]
    for victim in (0, 1):
        for at in sample(changing[victim], 1):
            for node, source in (("a", "a-begin"), ("b", "b-begin"), ("c", "b-begin")):
                away.copy(source, node)
            away.life("ac", "two", kill_at=at, victim=victim)
            for lives in ("ab", "ac", "ab"):
                away.life(lives, lives)
                same(comm, away.found, f"rank {victim} killed at {at}, then {lives}: histories")
                same(comm, away.saved and away.saved.step, f"rank {victim} killed at {at}, then {lives}: steps")
    away.others.Free()


@sizes(2)
def case_an_empty_directory_of_one_rank_is_its_part_of_a_first_set(comm: Any, where: str) -> None:
    """G1: the other ranks have files, so this one's directory, and its rows, belong to the step too."""
    rank, _, directory, session = begun(comm, where, text="out-{rank}/\nlog-{rank}.csv append\n")
    os.mkdir(f"{directory}/out-{rank}")
    Path(directory, f"log-{rank}.csv").write_text("row 0\n")
    check(comm, session.hide(0, wait=True) is None, "two empty directories were taken for a step")
    if rank == 0:
        Path(directory, "out-0/a").write_text("0")
    comm.Barrier()
    point = session.hide(0, wait=True)
    check(comm, point is not None and not os.path.exists(f"{directory}/out-{rank}"), "not taken")
    closed(comm, session)
    saved = Session(directory, comm=comm).restore()
    check(comm, saved is not None and saved.step == 0, saved)
    found = os.path.isdir(f"{directory}/out-{rank}") and Path(directory, f"log-{rank}.csv").read_text()
    check(comm, found == "row 0\n", found)


@sizes(2)
def case_copies_of_append_files_are_kept_on_all_ranks_before_any_is_swapped_in(comm: Any, where: str) -> None:
    """G1, G7: if it fails on one rank, no file of the working directory was changed on any."""
    rank, _, directory, session = begun(comm, where)
    for step in (1, 2):
        hidden(session, rank, step, wait=True)
    session.close()
    write(directory, files_of(rank, 7))
    before = in_place(rank, directory)
    comm.Barrier()
    disk = failing(directory, create=lambda path, *mode: rank == 0 and "/append." in path)
    text = message_of(comm, Session(directory, comm=comm, disk=disk).restore, RestoreError)
    assert "append" in text, text
    check(comm, in_place(rank, directory) == before, "a file was changed")


@sizes(2)
def case_a_finish_mark_ends_the_sets_of_a_node_that_was_away(comm: Any, where: str) -> None:
    """G4: though these have greater numbers than the mark."""
    rank = comm.Get_rank()
    a, b, c = nodes(comm, where, "a", "b", "c")
    job(comm, (a, b)[rank], {1: "history one"})
    copied(comm, b, c)
    job(comm, (a, b)[rank], {2: "history one", 3: "history one", 4: "history one"})
    directory = (a, c)[rank]
    session = Session(directory, comm=comm, saver=None)
    saved = session.restore()
    check(comm, saved and saved.step == 1, saved)
    Path(directory, "u.dat").write_text("the result")
    session.finish(9)
    comm.Barrier()
    saved = job(comm, (a, b)[rank], {})
    check(comm, saved and saved.finished and saved.step == 9, saved)


@sizes(2, 4)
def case_two_ranks_in_one_directory_without_a_saver_are_an_error(comm: Any, where: str) -> None:
    rank, size, directory = placed(comm, where)
    alone = f"{where}/{rank}" if rank < size - 1 else f"{where}/0"
    os.makedirs(alone, exist_ok=True)
    Path(alone, ".safepoint").write_text(MANIFEST)
    comm.Barrier()
    text = message_of(comm, lambda: Session(alone, comm=comm, saver=None), LockedError)
    assert "With saver=None every rank needs a directory of its own" in text, text
    if rank == 0:  # nobody holds a lock now
        for name in range(size - 1):
            Session(f"{directory}/{name}").close()
    comm.Barrier()


@sizes(2, 4)
def case_a_second_run_is_refused_on_all_ranks(comm: Any, where: str) -> None:
    """G8"""
    rank, _, directory, session = begun(comm, where)
    text = message_of(comm, lambda: Session(directory, comm=comm), LockedError)
    assert "is in use by another run: process " in text and "(this very process, by an earlier init" in text, text
    hidden(session, rank, 1)
    closed(comm, session)
    # One rank's lock alone is held: the others give theirs back.
    if rank == 1:
        holder = Session.__new__(Session)
        release = FaultDisk(directory).lock(session._root.lock)
        del holder
    comm.Barrier()
    text = message_of(comm, lambda: Session(directory, comm=comm), LockedError)
    assert text.startswith(f"rank 1 of {comm.Get_size()}: "), text
    if rank == 1:
        assert release is not None
        release()
    comm.Barrier()
    assert started(comm, directory)._number == 1


@sizes(2, 4)
def case_under_a_launcher_without_a_communicator_the_message_says_what_to_pass(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where)
    said = ""
    if rank == 0:
        session = Session(directory)
    comm.Barrier()
    if rank:
        said = repr(outcome_of(lambda: Session(directory)))
        check_ = "call init(comm=MPI.COMM_WORLD)" in said and "is set)" in said
    comm.Barrier()
    check(comm, rank == 0 or check_, said)
    if rank == 0:
        session.close()


@sizes(2, 4, 8)
def case_without_coordination_each_rank_goes_at_its_own_pace(comm: Any, where: str) -> None:
    """Only `init`, `restore` and `finish` are collective."""
    rank, size, directory, session = begun(comm, where, coordinate=False)
    for step in range(1, 3 + rank):
        hidden(session, rank, step, wait=bool(step % 2))
    closed(comm, session)
    again, saved = restored(comm, directory, coordinate=False)
    check(comm, saved is not None and saved.step == 2 + rank, saved)
    check(comm, in_place(rank, directory) == files_of(rank, 2 + rank), "wrong")
    closed(comm, again)
    root = again._root
    if rank == 1:  # damage on one rank is an error on all
        for number in root.numbers("set"):
            os.unlink(root.record(number)) if os.path.exists(root.record(number)) else None
    comm.Barrier()
    third = Session(directory, comm=comm, coordinate=False)
    text = message_of(comm, third.restore, DamagedError)
    assert text.startswith(f"rank 1 of {size}: none of the sets in "), text
    third.close()
    comm.Barrier()


@sizes(2, 4)
def case_farm_only_the_master_saves(comm: Any, where: str) -> None:
    rank, _, directory, session = begun(comm, where, text="u.dat\n", coordinate=False)
    if rank == 0:
        for step in range(5):
            Path(directory, "u.dat").write_text(str(step))
            session.hide(step)
        Path(directory, "u.dat").write_text("5")
    session.finish(5)
    _again, saved = restored(comm, directory, coordinate=False)
    assert saved and saved.finished and saved.step == 5


@sizes(2, 4, 8)
def case_finish_puts_the_last_set_back_on_all_or_none(comm: Any, where: str) -> None:
    rank, size, directory, session = begun(comm, where)
    hidden(session, rank, 1)
    if rank != size - 1:
        write(directory, files_of(rank, 2))
    text = message_of(comm, lambda: session.finish(2), MissingFilesError)
    assert f"rank {size - 1} of {size}: not finished: missing: z-{size - 1}.dat" in text, text
    hidden(session, rank, 2)
    session.finish()
    check(comm, in_place(rank, directory) == files_of(rank, 2), "not brought back")
    saved = Session(directory, comm=comm).restore()
    assert saved and saved.finished and saved.step == 2
    comm.Barrier()
    assert not [n for n in os.listdir(session._root.path) if n.startswith("set")]
    message_of(comm, lambda: session.hide(3), UsageError)


@sizes(2, 4)
def case_a_start_after_finish_misses_no_set(comm: Any, where: str) -> None:
    """G4: the mark is read by one rank; the others have no sets left either, and that is as it should be."""
    rank, _, directory, session = begun(comm, where)
    hidden(session, rank, 5)
    session.finish()
    with Listen() as heard:
        second = Session(directory, comm=comm)
        saved = second.restore()
        second.close()
    check(
        comm, saved and saved.finished and not [text for text in heard.loud() if "no set is left" in text], heard.said
    )


@sizes(2, 4, 8)
def case_after_a_finish_a_new_history_begins(comm: Any, where: str) -> None:
    """G4: and a set that not every rank has committed does not end the old one."""
    rank, _, directory, session = begun(comm, where)
    hidden(session, rank, 5)
    write(directory, files_of(rank, 6))
    session.finish(6)
    second = Session(directory, comm=comm)
    saved = second.restore()
    assert saved and saved.finished
    point = second.hide(6)
    assert point and point.number == saved.number + 1
    second.close()
    comm.Barrier()
    if rank == 1:
        shutil.rmtree(second._root.set(point.number))
    comm.Barrier()
    text = message_of(comm, Session(directory, comm=comm).restore, DamagedError)
    assert "rank 1 has none" in text


@sizes(2, 4, 8)
def case_a_message_in_flight_is_reported(comm: Any, where: str) -> None:
    """A restart would lose it. With source, tag and size; and with "error" nothing is saved."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for how in ("warn", "error", "off"):
        directory = new_directory(comm, where)
        session = started(comm, directory, inflight=how)
        write(directory, files_of(rank, 1))
        request = comm.Isend([bytearray(24), MPI.BYTE], 1, 77) if rank == 0 else None
        with Listen() as heard:
            if how == "error":
                text = message_of(comm, lambda: session.hide(1), UsageError)
                wanted = "a message of 24 bytes from rank 0 to rank 1, with tag 77, is in flight across this save point"
                assert text.startswith(f"rank 1 of {size}: {wanted}"), text
                check(comm, in_place(rank, directory) == files_of(rank, 1), "not put back")
            else:
                assert session.hide(1)
        told = [text for level, text in heard.said if level == logging.WARNING]
        check(comm, bool(told) == (rank == 1 and how == "warn"), told)
        check(comm, not told or told[0].startswith("a message of 24 bytes from rank 0 to rank 1, with tag 77"), told)
        if rank == 1:
            comm.Recv([bytearray(24), MPI.BYTE], 0, 77)
        if request:
            request.Wait()
        if how == "error":
            assert session.hide(1)
        closed(comm, session)


@sizes(2, 4)
def case_a_message_sent_after_hide_is_no_message_in_flight(comm: Any, where: str) -> None:
    """A rank may be quick to leave `hide` and send, while another is still in it."""
    rank, size, _, session = begun(comm, where, inflight="error")
    for step in range(100):
        if rank == step % size:
            time.sleep(0.0005)
        hidden(session, rank, step)
        comm.send(step, (rank + 1) % size, tag=step)
        assert comm.recv(source=(rank - 1) % size, tag=step) == step
    closed(comm, session)


@sizes(2, 4)
def case_a_step_that_differs_in_sets_found_is_not_restored(comm: Any, where: str) -> None:
    """G5: killed after the ranks found that their steps differ, and before they put their files back."""
    rank, _, directory = placed(comm, where)
    disk = failing(  # nothing is put back
        directory,
        remove=lambda path: "set-00000002" in path,
        rename=lambda source, target: "set-00000002/files" in source,
    )
    session = started(comm, directory, disk=disk)
    hidden(session, rank, 1)
    write(directory, files_of(rank, 2))
    text = message_of(comm, lambda: session.hide(2 if rank else 3), SaveError)
    assert "not put back" in text, text
    disk.end()
    comm.Barrier()
    again = Session(directory, comm=comm, disk=FaultDisk(directory, inodes=disk.inodes))
    with Listen() as heard:
        saved = again.restore()
    assert saved and saved.step == 1, saved
    told = [text for text in heard.loud() if text.startswith("restored")]
    check(comm, rank != 0 or "the ranks have different steps, step 2 on " in told[0], told)
    check(comm, in_place(rank, directory) == files_of(rank, 1), "wrong")


@sizes(2, 4)
def case_a_file_of_the_saver_may_be_written_by_any_rank_until_it_calls_hide(comm: Any, where: str) -> None:
    """G1: the saver, which is there first, takes it only when all have come; and so does `finish`."""
    rank, size = comm.Get_rank(), comm.Get_size()

    def written(step: int) -> None:
        if rank:  # the saver has been in `hide` for long
            time.sleep(0.02)
        path = Path(directory, f"u-{rank}.dat")
        path.write_bytes(b"")  # what `hide` took before would be the same file still
        time.sleep(0.001 * rank)
        path.write_bytes(str(step).encode())

    for inflight in ("warn", "error", "off"):
        directory = new_directory(comm, where, "u-*.dat\n")
        session = started(comm, directory, inflight=inflight)
        for step in range(4):
            written(step)
            point = session.hide(step)
            session.wait()
            names = sorted(point.files) if point else []
            check(comm, names == [f"u-{n}.dat" for n in range(size) if rank == 0], (inflight, step, names))
            check(comm, not list(Path(directory).glob("u-*")), os.listdir(directory))
        comm.Barrier()
        written(4)
        session.finish(4)
        marked = json.loads(Path(directory, ".safepoint.d/finished.json").read_text())["content"]
        check(comm, len(marked["files"]) == size, marked)
        texts = [Path(directory, f"u-{n}.dat").read_text() for n in range(size)]
        check(comm, texts == ["4"] * size, texts)
        comm.Barrier()


@sizes(2, 4)
def case_initial_files_stay_when_saver_or_number_of_ranks_change_before_the_first_set(comm: Any, where: str) -> None:
    """G3: each rank judges what it owned at the first start."""
    rank, size, directory = placed(comm, where, "*.dat\nz-{rank}.dat\n")
    names = ["u.dat", *(f"z-{n}.dat" for n in range(size))]
    for name in names if rank == 0 else ():
        Path(directory, name).write_text("initial")
    comm.Barrier()
    few = comm.Split(int(rank < size // 2))
    for group, saver in ((comm, 0), (comm, 1), (few, 0), (comm, None), (comm, 0)):
        if (group is comm or rank < size // 2) and (saver is not None or rank == 0):
            session = Session(directory, comm=group if saver is not None else None, saver=saver)
            assert session.restore() is None
            session.close()
        comm.Barrier()
        check(comm, all(Path(directory, name).read_text() == "initial" for name in names), (group, saver))
        comm.Barrier()


@sizes(2, 4)
def case_a_start_that_failed_on_one_rank_was_none(comm: Any, where: str) -> None:
    """G3: files that the user brings after it are initial ones, not torn ones."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for fault in ("lock", "sync"):
        directory = new_directory(comm, where)

        class Refuses(FaultDisk):
            def lock(self, path: str) -> Any:
                return None if fault == "lock" and rank == size - 1 else super().lock(path)

            def sync_dir(self, path: str) -> None:
                if fault == "sync" and rank == size - 1 and path.endswith(f"rank-{rank:05d}"):
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                super().sync_dir(path)

        kind = LockedError if fault == "lock" else SaveError
        message_of(comm, lambda: Session(directory, comm=comm, disk=Refuses(directory)), kind)
        comm.Barrier()
        write(directory, files_of(rank, 0))
        comm.Barrier()
        session = Session(directory, comm=comm)
        assert session.restore() is None
        check(comm, in_place(rank, directory) == files_of(rank, 0), fault)
        closed(comm, session)


@sizes(2, 4)
def case_arguments_of_numpy_are_as_good_as_those_of_python(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where)
    session = Session(directory, comm=comm, saver=np.int64(0), background=np.True_, coordinate=np.True_)  # type: ignore[arg-type]
    session.restore()
    for step in range(3):
        write(directory, files_of(rank, step))
        wait: Any = np.bool_(step == rank) if rank % 2 else step == 1
        point = session.hide(np.int32(step), wait=wait)
        assert point and point.step == step
    session.finish(2)


@sizes(2, 4)
def case_an_input_listed_later_is_not_dropped_with_a_set_that_was_passed_over(comm: Any, where: str) -> None:
    """Rule 4 of restore: rank 0 had taken it when rank 1 died, so that set is none."""
    rank = comm.Get_rank()
    for attribute in ("", "   compress"):
        directory = new_directory(comm, where, "z-{rank}.dat\n")
        session = started(comm, directory)
        for step in range(2):
            write(directory, {f"z-{rank}.dat": b"%d" % step})
            session.hide(step)
        closed(comm, session)
        if rank == 0:
            Path(directory, ".safepoint").write_text(f"z-{{rank}}.dat\nmesh.dat{attribute}\n")
            Path(directory, "mesh.dat").write_bytes(b"made by the user" * 1000)
        comm.Barrier()
        session = started(comm, directory)
        write(directory, {f"z-{rank}.dat": b"2"})
        comm.Barrier()
        session.hide(2, wait=True)  # what is left of it on rank 1 is lost
        session.close()
        if rank == 1:
            shutil.rmtree(session._root.set(3))
        comm.Barrier()
        again, saved = restored(comm, directory)
        assert saved and saved.step == 1
        check(comm, Path(directory, "mesh.dat").read_bytes() == b"made by the user" * 1000, "lost")
        closed(comm, again)


@sizes(2)
def case_a_signal_or_a_log_handler_does_not_end_hide_on_one_rank_alone(comm: Any, where: str) -> None:
    rank = comm.Get_rank()
    directory, others = new_directory(comm, where), comm.Dup()
    heard: list[str] = []

    def pressed(call: str) -> None:
        """Ctrl-C comes to rank 0 when it is in `hide` and asks for the others, who begin with it only then."""
        if heard and rank == 0:
            heard.clear()
            signal.raise_signal(signal.SIGINT)
            others.send(call, 1)

    session = started(Telling.of(comm, pressed), directory)
    write(directory, files_of(rank, 1))
    heard.append("it may come")
    if rank == 1:
        others.recv(source=0)
    raised = outcome_of(lambda: session.hide(1))
    check(comm, type(raised) is (type(None) if rank else KeyboardInterrupt), repr(raised))
    check(comm, session._committed is not None and session._committed.step == 1, "the set was not saved on all")

    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("warnings are errors here")

    write(directory, files_of(rank, 2))
    request = comm.Isend([bytearray(8), MPI.BYTE], 1, 5) if rank == 0 else None
    handler = Raises(logging.WARNING)
    logging.getLogger("safepoint").addHandler(handler)
    logging.getLogger("safepoint").setLevel(logging.WARNING)
    outcome = outcome_of(lambda: session.hide(2))
    logging.getLogger("safepoint").removeHandler(handler)
    logging.getLogger("safepoint").setLevel(logging.NOTSET)
    check(comm, isinstance(outcome, RuntimeError if rank else SafepointError), repr(outcome))
    check(comm, in_place(rank, directory) == files_of(rank, 2), "not put back")
    if request:
        request.Wait()
    else:
        comm.Recv([bytearray(8), MPI.BYTE], 0, 5)
    freed = comm.Dup()
    other = started(freed, new_directory(comm, f"{where}-2"))
    write(f"{where}-2", files_of(rank, 1))
    freed.Free()  # the user's; ours is another
    assert other.hide(1)


@sizes(2, 4)
def case_a_step_of_a_serial_run_that_no_agreement_can_hold_is_refused_by_all(comm: Any, where: str) -> None:
    rank, _, directory = placed(comm, where, "u.dat\n")
    if rank == 0:
        with Session(directory) as session:
            session.restore()
            Path(directory, "u.dat").write_text("u")
            session.hide(2**70)
            session.close()
        os.mkdir(f"{directory}/.safepoint.d/rank-00000/set-99999999999999999999")  # a number too, and none of ours
    comm.Barrier()
    text = message_of(comm, lambda: started(comm, directory), UsageError)
    assert "cannot be agreed on" in text, text


@sizes(2, 4)
def case_finish_after_a_hide_that_failed_brings_the_last_set_back(comm: Any, where: str) -> None:
    """And one that cannot, since a set is damaged on one rank, leaves W alone on all."""
    rank, _, directory, session = begun(comm, where)
    hidden(session, rank, 1)
    message_of(comm, lambda: session.hide(rank), UsageError)
    path = session._root.stored(1, f"z-{rank}.dat")
    if rank == 1:
        os.rename(path, path + "-away")
    before = in_place(rank, directory)
    for _ in range(2):
        text = message_of(comm, session.finish, DamagedError)
        assert "rank 1 of" in text and "no file was touched" in text, text
        check(comm, in_place(rank, directory) == before, "touched")
    if rank == 1:
        os.rename(path + "-away", path)
    session.finish()
    check(comm, in_place(rank, directory) == files_of(rank, 1), "not brought back")


@sizes(4)
def case_a_saver_that_lost_its_set_is_missed(comm: Any, where: str) -> None:
    """G6: the others have no part in it, but without the saver there are no files."""
    rank, _, directory, session = begun(comm, where, text="u.dat\n", saver=2)
    if rank == 2:
        Path(directory, "u.dat").write_text("1")
    session.hide(1)
    closed(comm, session)
    few = comm.Split(int(rank < 2))
    if rank < 2:  # rank 0, which has no file in it, knows of the set
        session_of_few = Session(directory, comm=few)
        text = message_of(few, session_of_few.restore, UsageError)
        assert "are with rank 2, its saver among 4 ranks" in text, text
        session_of_few.close()
    comm.Barrier()
    if rank == 2:
        shutil.rmtree(session._root.set(1))
    comm.Barrier()
    text = message_of(comm, Session(directory, comm=comm, saver=2).restore, DamagedError)
    assert "set 1 (step 1): rank 2 has none" in text, text


@sizes(2, 4)
def case_a_set_that_one_rank_cannot_stage_is_swapped_in_on_none(comm: Any, where: str) -> None:
    rank, _, directory, session = begun(comm, where)
    hidden(session, rank, 1)
    session.close()
    write(directory, files_of(rank, 7))
    comm.Barrier()
    disk = failing(directory, errno.ENOSPC, mkdir=lambda path, *mode: rank == 1 and path.endswith("/stage"))
    again = Session(directory, comm=comm, disk=disk)
    text = message_of(comm, again.restore, RestoreError)
    assert "No space left on device" in text
    check(comm, in_place(rank, directory) == files_of(rank, 7), "touched")
    check(comm, not os.path.exists(again._root.stage), "the stage is left")
    closed(comm, again)


@sizes(2, 4)
def case_the_finish_mark_ends_the_sets_of_a_rank_that_was_ahead(comm: Any, where: str) -> None:
    """G4, without coordination: its number is not smaller than that of any set of any rank."""
    rank, _, directory = placed(comm, where)
    finishing: list[int] = []  # then it dies, so to say, before the sets go
    disk = failing(directory, rename=lambda source, target: "/gone-" in target and bool(finishing))
    session = started(comm, directory, coordinate=False, disk=disk)
    for step in range(1, 3 + 2 * rank):
        hidden(session, rank, step, wait=True)
    write(directory, files_of(rank, 9))
    finishing.append(9)
    session.finish(9)
    comm.Barrier()
    saved = Session(directory, comm=comm, coordinate=False).restore()
    check(comm, saved is not None and saved.finished and saved.step == 9, saved)
    check(comm, in_place(rank, directory) == files_of(rank, 9), "the result is gone")


class Telling(MPI.Intracomm):  # type: ignore[misc]
    """A communicator that says what is asked of its duplicates, before that is done."""

    say: Callable[[str], object]

    @classmethod
    def of(cls, comm: Any, say: Callable[[str], object]) -> Telling:
        new = cls(comm)
        new.say = say
        return new

    def Dup(self, info: Any = None) -> Telling:
        return Telling.of(super().Dup(), self.say)

    def Get_attr(self, keyval: int) -> None:
        pass

    def Set_attr(self, keyval: int, value: Any) -> None:
        pass

    def Allreduce(self, *arguments: Any) -> None:
        self.say("Allreduce")
        super().Allreduce(*arguments)

    def Ibarrier(self) -> Any:
        self.say("Ibarrier")
        return super().Ibarrier()

    def bcast(self, *arguments: Any) -> Any:
        self.say("bcast")
        return super().bcast(*arguments)


@sizes(2, 4, 8)
def case_what_hide_costs_does_not_grow_with_the_number_of_ranks(comm: Any, where: str) -> None:
    """One Allreduce, one Ibarrier for the messages in flight, and the file operations of a serial program."""
    rank = comm.Get_rank()
    counted = []
    for inflight in ("warn", "off"):
        directory = new_directory(comm, where, "a-{rank}\nb-{rank}\nc-{rank}\n")
        made_calls: list[str] = []
        disk = FaultDisk(directory)
        session = started(Telling.of(comm, made_calls.append), directory, disk=disk, inflight=inflight)
        for step in range(3):
            session.wait()
            write(directory, {f"{name}-{rank}": b"x" for name in "abc"})
            calls, ops = len(made_calls), len(disk.record.ops)
            session._work.thread = Later()  # type: ignore[assignment]
            session.hide(step)
        made = [op.split()[0] for op in disk.record.ops[ops:]]
        counted.append(made_calls[calls:])
        check(comm, made == ["stat"] * 5 + ["lease"] * 3 + ["mkdir", "mkdir", "create", "write"] + ["rename"] * 3, made)
        session.wait()
        saved = [op.split()[0] for op in disk.record.ops[ops + len(made) :]]
        closed(comm, session)
        shutil.rmtree(f"{directory}-alone", ignore_errors=True) if rank == 0 else None
        comm.Barrier()
        if rank == 0:  # the same, alone
            os.mkdir(f"{directory}-alone")
            Path(f"{directory}-alone", ".safepoint").write_text("a\nb\nc\n")
            disk = FaultDisk(f"{directory}-alone")
            alone = Session(f"{directory}-alone", disk=disk)
            alone.restore()
            for step in range(3):
                alone.wait()
                write(f"{directory}-alone", dict.fromkeys("abc", b"x"))
                ops = len(disk.record.ops)
                alone._work.thread = Later()  # type: ignore[assignment]
                alone.hide(step)
            alone.wait()
            assert sorted(made + saved) == sorted(op.split()[0] for op in disk.record.ops[ops:])
        comm.Barrier()
    assert counted == [["Ibarrier", "Allreduce"], ["Allreduce"]], counted


class Later(LateSaver):
    """The background save happens when it is waited for, so that its operations can be told apart."""


@sizes(2, 4)
def case_a_first_set_with_different_steps_is_none(comm: Any, where: str) -> None:
    """G3: killed when all had taken it, before they found that their steps differ: the initial files are back."""
    rank, others = comm.Get_rank(), comm.Dup()
    directory = new_directory(comm, where)
    write(directory, files_of(rank, 0))
    comm.Barrier()
    disk = FaultDisk(directory)
    mortal = Mortal.of(comm, others, disk)
    session = started(mortal, directory, disk=disk)
    mortal.copy.dies_in = 1
    try:
        session.hide(1 + rank)
    except Killed:
        pass
    else:
        raise AssertionError("it lives")
    mortal.copy.dies_in = 0
    disk.end()
    comm.Barrier()
    check(comm, in_place(rank, directory).keys() == ({"history.csv"} if rank == 0 else set()), "nothing was taken")
    comm.Barrier()
    again = Session(directory, comm=comm, disk=FaultDisk(directory, inodes=disk.inodes))
    assert again.restore() is None
    check(comm, in_place(rank, directory) == files_of(rank, 0), "the initial files are lost")


@sizes(2, 4)
def case_a_power_cut_on_each_node_leaves_one_step(comm: Any, where: str) -> None:
    """G5, G2: every rank on a disk of its own, each cut in a state of its own, after any operation of one of them."""
    rank, others = comm.Get_rank(), comm.Dup()

    def own(name: str) -> str:
        new_directory(comm, f"{where}/{name}")
        path = f"{where}/{name}/{rank}"
        os.mkdir(path)
        Path(path, ".safepoint").write_text(MANIFEST)
        comm.Barrier()
        return path

    options = {"saver": None}
    for saver in ("now", "late"):
        whole = Crew(comm, others, FaultDisk(own("whole")), saver=saver, options=options)
        whole.run()
        check(comm, whole.finished, f"{whole.error!r}")
        victim = comm.Get_size() - 1
        changing, ops = comm.bcast((whole.disk.record.changing, whole.disk.record.ops), victim)
        for at in sample(changing, 11 if LONG else 33):
            disk = FaultDisk(own(f"run-{at}"), kill_at=at if rank == victim else -1)
            first = Crew(comm, others, disk, saver=saver, options=options)
            first.run()
            cuts = list(images(disk.record, own(f"cut-{at}"), seed=at + rank, singles=2, at=[len(disk.record.ops)]))
            for n in range(max(comm.allgather(len(cuts)))):
                image = cuts[(n * (1 + rank)) % len(cuts)]
                copy = f"{own(f'copy-{at}-{n}')}/w"
                shutil.copytree(image.directory, copy, symlinks=True)
                inodes = {os.lstat(copy).st_ino: 1}
                after = Crew(comm, others, FaultDisk(copy, boot="after", inodes=inodes), saver=saver, options=options)
                about = f"{saver}, rank {victim} killed at {at} ({ops[at]}), then {image}"
                try:
                    after.run()
                except BaseException as error:
                    raise AssertionError(f"{about}, restored {after.restored}, durable {first.durable}") from error
                check(comm, after.finished, f"{about}: {after.error!r}")
                same(comm, after.restored, about)
                least = min(comm.allgather(first.durable))
                check(comm, after.restored >= least, f"{about}: {after.restored} < {least}")
                comm.Barrier()
            if rank == 0:
                for name in os.listdir(where):
                    shutil.rmtree(f"{where}/{name}")
            comm.Barrier()


CASES: dict[str, Case] = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}


def main() -> int:
    comm = MPI.COMM_WORLD
    where, *names = sys.argv[1:]
    status = 0
    fitting = [name for name in CASES if comm.Get_size() in SIZES.get(f"case_{name}", (comm.Get_size(),))]
    first, every = map(int, os.environ.get("PART", "0/1").split("/"))
    for name in names or fitting[first::every]:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        failure, began = None, time.monotonic()
        try:
            CASES[name](comm, os.path.join(where, name))
        except BaseException:
            failure = f"rank {comm.Get_rank()} of {comm.Get_size()}:\n{traceback.format_exc()}"
            print(failure, file=sys.stderr, flush=True)  # if the others wait for this rank, all that is seen of it
        faulthandler.cancel_dump_traceback_later()
        failures = [text for text in comm.allgather(failure) if text]
        if comm.Get_rank() == 0:
            took = f"{time.monotonic() - began:.1f} s"
            print(f"FAILED {name}\n{failures[0]}" if failures else f"ok {name}, {took}", flush=True)
            shutil.rmtree(os.path.join(where, name), ignore_errors=True)
        comm.Barrier()
        status |= bool(failures)
    return status


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    logging.getLogger("safepoint").propagate = False
    if variant := os.environ.get("SAFEPOINT_VARIANT"):  # broken on purpose, to see that it is noticed
        from testbed import variants

        variants.apply(variant)
    sys.exit(main())
