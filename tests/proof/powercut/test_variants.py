"""The harness itself is proven: for each broken variant of the library, what looks for violations finds one."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed import mounts, tally
from testbed.faultdisk import FaultDisk, InOrder
from testbed.faults import (
    after_a_failed_fsync_nothing_was_committed,
    power_cuts_after_a_failure,
    previous_set_stays,
)
from testbed.jobs import mpiexec
from testbed.mounts import Volume
from testbed.paths import TESTBED
from testbed.powercut import cut_at_calls
from testbed.program import SHAPES_AND_KINDS, Program, Violation, listed, restart
from testbed.sweep import (
    LIBRARY,
    Points,
    cuts,
    failed,
    killed,
    lived,
    nothing_lost,
    one_of,
    some_of,
    stopped_after,
    undisturbed,
)
from testbed.sweep import STEPS as TRACED_STEPS
from testbed.syscalls import replayed
from testbed.tracing import why_not as no_strace
from testbed.variants import VARIANTS, apply

from safepoint import DamagedError, LockedError, RefusedFileError, SaveError, Session
from safepoint.record import parse_taken
from safepoint.sealed import Unsealed

Found = (Violation, pytest.fail.Exception)  # what a violation is raised as
Check = Callable[[Path, int], None]  # in this directory, at every so-manieth operation


def power_cuts(where: Path, every: int, *, saver: str = "wait", initial: bool = False) -> None:
    program = undisturbed(where / "whole", "plain", saver, initial)
    cuts(where, program, Points(program.disk.record.changing[::every]), of=LIBRARY, seed=7, singles=2, most=10_000)


def power_cuts_in_a_first_set(where: Path, every: int) -> None:
    power_cuts(where, every, initial=True)


def power_cuts_while_the_saver_is_late(where: Path, every: int) -> None:
    power_cuts(where, every, saver="late")


def kills(where: Path, every: int, *, saver: str = "wait") -> None:
    whole = lived(where / "whole", "plain", saver, True)
    if not whole.finished:
        raise Violation(f"it did not reach the end: {whole.errors}")
    for at in whole.disk.record.changing[::every]:
        first = killed(where / f"killed-{at}", whole, at)
        known_states(where / f"killed-{at}")
        nothing_lost(first, restart(FaultDisk(where / f"killed-{at}", inodes=first.disk.inodes), first))
        shutil.rmtree(where / f"killed-{at}")


def kills_while_sets_wait(where: Path, every: int) -> None:
    kills(where, every, saver="busy")


def known_states(where: Path) -> None:
    """Rule (4) of save: what was moved is findable, as what belongs to it was written down before."""
    for taken in where.glob(".safepoint.d/rank-*/set-*/taken.json"):
        if any(path.is_file() for path in (taken.parent / "files").rglob("*")):
            try:
                parse_taken(taken.read_bytes())
            except Unsealed as error:
                raise Violation(f"{taken.parent.name} has files, and no taken.json says which belong to it") from error


def kills_while_it_restores(where: Path, every: int) -> None:
    whole = undisturbed(where / "whole", "plain", "wait", False)
    ops = whole.disk.record.ops
    commit = max(at for at, op in enumerate(ops) if op.startswith("rename") and op.endswith("record.json"))
    first = killed(where / "first", whole, ops.index("write u.dat", commit))
    again = 0
    while True:
        second = where / f"second-{again}"
        shutil.copytree(where / "first", second)
        middle = Program(FaultDisk(second, kill_at=again), "plain", "wait", first.steps, False)
        middle.run()
        if not middle.disk.dead or middle.finished:
            return
        nothing_lost(first, restart(FaultDisk(second, inodes=middle.disk.inodes), middle))
        shutil.rmtree(second)
        again += 2 * every


def failing_fsyncs(where: Path, every: int) -> None:
    import errno

    whole = undisturbed(where / "whole", "plain", "wait")
    for at, op in enumerate(whole.disk.record.ops):
        if op.startswith("sync") and at % every == 0:
            program = failed(where / f"failed-{at}", whole, at, errno.EIO)
            after_a_failed_fsync_nothing_was_committed(program, previous_set_stays(program, where / f"failed-{at}"))


def damaged_files(where: Path, every: int) -> None:
    """A bit of every file of the newest set, its record among them: passed over, or an error; never wrong bytes."""
    stopped_after(where / "whole", "moved", 2)
    for victim in sorted((where / "whole").rglob("set-00000002/**/*")):
        name = victim.relative_to(where / "whole")
        if not victim.is_file() or victim.name == "taken.json":
            continue
        for position in range(0, victim.stat().st_size, max(victim.stat().st_size // 40, 1) * every):
            shutil.copytree(where / "whole", where / "copy")
            data = bytearray((where / "copy" / name).read_bytes())
            data[position] ^= 1
            (where / "copy" / name).write_bytes(data)
            try:
                with Session(where / "copy") as session:
                    saved = session.restore()
                    session.close()
            except (DamagedError, SaveError):
                pass
            except Exception as error:
                raise Violation(f"{name} damaged at {position}: {error!r}") from error
            else:
                if saved is None or saved.number != 1 or listed(where / "copy") != SHAPES_AND_KINDS["moved"][1](0):
                    raise Violation(f"{name} damaged at {position}, and it was restored")
            shutil.rmtree(where / "copy")


def two_runs_at_once(where: Path, every: int) -> None:
    (where / ".safepoint").write_text("u.dat\n")
    session = Session(where)
    try:
        with pytest.raises(LockedError):
            Session(where).close()
    finally:
        session.close()


def strays(where: Path, every: int) -> None:
    """What a set does not have is moved away, not deleted."""
    (where / ".safepoint").write_text("*.dat\n")
    with Session(where) as session:
        session.restore()
        (where / "u.dat").write_text("u")
        session.hide(0, wait=True)
        (where / "v.dat").write_text("the only one")
        session.restore()
        if not list(where.rglob("discarded/v.dat")):
            raise Violation("v.dat is gone")
        session.close()


def a_writer_that_goes_on(where: Path, every: int) -> None:
    """It writes to a file that hide has taken, before that is stored."""

    class Slow(FaultDisk):
        def sync_files(self, paths: Any, opened: Any = ()) -> None:
            for path in where.rglob("set-*/files/u.dat"):
                path.write_bytes(b"changed, and longer than it was")
            super().sync_files(paths, opened)

        helpers = InOrder(last_first=False)  # the flush first: so the file changes before it is read

    (where / ".safepoint").write_text("u.dat\n")
    with Session(where, disk=Slow(where)) as session:
        session.restore()
        (where / "u.dat").write_bytes(b"u" * 10)
        try:
            session.hide(0, wait=True)
        except (SaveError, RefusedFileError):
            session.close()
            return
        session.close()
    raise Violation("a set was committed that is not what hide took")


def real_cuts(name: str) -> Check:
    """The power goes for real, on ext4, at some calls of a program that runs on the broken library."""

    def check(where: Path, every: int) -> None:
        if reason := mounts.why_not("ext4") or no_strace:
            pytest.skip(f"ext4: {reason}")
        with Volume.made("ext4 ordered") as volume:
            broken = [f"variant={name}"] if every == 1 else []
            cut_at_calls(volume, "solver", "all in one", 16 if broken else 3, random.Random(8), *broken)

    check.__name__ = "real power cuts"
    return check


def system_calls(name: str) -> Check:
    """What the kernel was asked to do, played into the model."""

    def check(where: Path, every: int) -> None:
        if no_strace:
            pytest.skip(no_strace)
        broken = [f"variant={name}"] if every == 1 else []
        replay = replayed(where, "many", "inline", *broken)
        program = Program(replay.disk, "many", "now", TRACED_STEPS)
        program.durable_at = replay.durable_at
        points = sorted({at for at, _ in replay.durable_at})
        cuts(where, program, Points(points), of=LIBRARY, seed=9, singles=0)

    check.__name__ = "states after the system calls of a real run"
    return check


def ranks(*cases: str) -> Check:
    def check(where: Path, every: int) -> None:
        command = mpiexec(2, TESTBED / "mpi_cases.py", where / "cases", *cases)
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        said = f"{done.stdout[-300:]} {done.stderr[-300:]}"
        if "FAILED" in done.stdout:  # what a case says that fails
            raise Violation(said)
        assert done.returncode == 0 and done.stdout.count("ok ") == len(cases), said

    check.__name__ = f"the case {cases[0].replace('_', ' ')}"
    return check


CAUGHT_BY: dict[str, Check] = {
    "no fsync of the bundle": system_calls("no fsync of the bundle"),
    "no fsync of files": power_cuts,
    "no fsync of directories": power_cuts,
    "no fsync of the record": power_cuts,
    "old set dropped before the last fsync of the commit": power_cuts,
    "record not checked": damaged_files,
    "restore by rename instead of copy": kills_while_it_restores,
    "swap before all ranks have staged": ranks("a_set_that_one_rank_cannot_stage_is_swapped_in_on_none"),
    "checksum skipped": damaged_files,
    "greatest number of any rank instead of the newest common": ranks(
        "the_newest_set_of_every_rank_is_chosen_and_it_says_why"
    ),
    "a failed fsync swallowed": failing_fsyncs,
    "no lock": two_runs_at_once,
    "taken json after the first rename": kills,
    "boot and mount ignored": power_cuts_while_the_saver_is_late,
    "first directories not flushed": power_cuts_in_a_first_set,
    "restore deletes what the set does not have": strays,
    "a changed file is stored all the same": a_writer_that_goes_on,
    "files go back before their set is failed for good": power_cuts_after_a_failure,
    "the waiting set given up before all have taken the newer": ranks(
        "a_set_that_waits_stays_until_all_have_taken_the_newer"
    ),
    "each rank decides by its own saver what is stored": ranks("what_is_stored_is_the_same_on_all_ranks"),
    "the waiting set forgotten by wait and at the end": ranks("what_is_stored_is_the_same_on_all_ranks"),
    "the set in flight given up instead of the one that waits": kills_while_sets_wait,
    "a gap in the numbers taken for damage": kills_while_sets_wait,
}


def test_every_variant_has_somebody_who_catches_it() -> None:
    assert set(CAUGHT_BY) == set(VARIANTS) and len(VARIANTS) >= 17


AGAIN = {  # the same, on a real file system, and by strace
    "no fsync of files": real_cuts("no fsync of files"),
    "no fsync of directories": real_cuts("no fsync of directories"),
    "no fsync of the record": system_calls("no fsync of the record"),
}
one_mpi = pytest.mark.xdist_group("mpi")


@pytest.mark.leaves_damage
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[one_mpi] * CAUGHT_BY[name].__name__.startswith("the case"))
        for name in some_of(list(CAUGHT_BY), 5, 7)
    ],
)
def test_a_broken_variant_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    caught(name, CAUGHT_BY[name], tmp_path, monkeypatch)


@pytest.mark.parametrize("name", one_of(list(AGAIN)))
def test_a_broken_variant_is_caught_by_the_kernel_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    caught(name, AGAIN[name], tmp_path, monkeypatch)


def caught(name: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "FILE", "")  # states of a broken library are no evidence
    (tmp_path / "sound").mkdir()
    (tmp_path / "broken").mkdir()
    check(tmp_path / "sound", 9)  # else anything would be "caught"
    apply(name, monkeypatch.setattr)
    monkeypatch.setenv("SAFEPOINT_VARIANT", name)
    with pytest.raises(Found) as found:
        check(tmp_path / "broken", 1)
    monkeypatch.undo()
    what = str(found.value).strip().splitlines()[-1].replace(str(tmp_path), "")
    tally.count("broken variants", f"{name} | {check.__name__.replace('_', ' ')}", said=what)
    print(f"{name}: {check.__name__}: {what}", file=sys.stderr)
