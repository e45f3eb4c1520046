"""G3, re-runnable: `restore` may be killed anywhere and run again. It never fails after such a fault if one set had
been made durable. Nor does it if the initial files in W were durable before the first `hide`.

Two faults in a row, on the model of `faultdisk`. What somebody else does between two lives is in
test_g3_between_lives.py; tests/proof has the same for real processes.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path

import pytest
from testbed import tally
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.program import SHAPES, Program, new_directory, plain, restart, write
from testbed.sweep import (
    ALL,
    IN_A_ROW,
    LIBRARY,
    LONG,
    STEPS,
    Points,
    cuts,
    failed,
    killed,
    lived,
    nothing_lost,
    part,
    promised,
    sample,
    some_of,
    told,
    undisturbed,
)

from safepoint import SafepointError, Session

EVERY = 25 if LONG else 40  # of the first of two faults
FEWER = 1 if LONG else 4  # of the second one


@pytest.mark.parametrize(("shape", "exchanges"), some_of([*((shape, True) for shape in SHAPES), ("plain", False)], 2))
@pytest.mark.parametrize("initial", [False, True])
def test_killed_again_while_it_starts_again_it_still_goes_on(
    tmp_path: Path, shape: str, exchanges: bool, initial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G3: die in a save, then at each operation of the start after it, until the first hide; then start in peace. Also
    where two files cannot exchange their names."""
    monkeypatch.setattr(FaultDisk, "exchanges", exchanges)
    whole = undisturbed(tmp_path / "whole", shape, "now", initial)
    ops, changing = whole.disk.record.ops, whole.disk.record.changing
    for at in Points(changing, len(changing) // (23 if ALL else 7 if LONG else 3)):
        first = killed(tmp_path / "count", whole, at)
        second = Program(FaultDisk(tmp_path / "count", inodes=first.disk.inodes), shape, "now", STEPS, initial)
        second.run()
        shutil.rmtree(tmp_path / "count")
        starts = part(second.disk.record.changing[: 12 + len(second.disk.record.changing) // 3], shape, 2)
        for again in starts:
            directory = tmp_path / f"killed-{at}-{again}"
            first = killed(directory, whole, at)
            disk = FaultDisk(directory, kill_at=again, inodes=first.disk.inodes)
            middle = Program(disk, shape, "now", STEPS, initial)
            middle.run()
            with told(f"killed at {at} ({ops[at]}), then at {again} ({disk.record.ops[again]})", starts):
                last = restart(FaultDisk(directory, inodes=disk.inodes), middle)
                nothing_lost(first, last)
                nothing_lost(middle, last)
            tally.count("deaths in the model", "two in a row")
            shutil.rmtree(directory)


@pytest.mark.parametrize("shape", SHAPES)
def test_power_cut_then_killed_while_it_starts_again(tmp_path: Path, shape: str) -> None:
    """G3: both of these again during restore."""
    program = undisturbed(tmp_path / "whole", shape, "now", False)
    points = part(program.disk.record.changing, shape, 5)
    singles = 1 if ALL else 0
    cuts(tmp_path, program, points, of=LIBRARY, seed=2, singles=singles, kill_at=lambda n: (7 * n) % 160)


def test_power_cut_after_initial_files_were_put_back(tmp_path: Path) -> None:
    """G3: a cut in the first hide, a restart that puts the initial files back, a first hide again, and another cut."""
    whole = undisturbed(tmp_path / "whole", "plain", "now", True)
    ops = whole.disk.record.ops
    moved = max(at for at, op in enumerate(ops) if op.startswith("rename") and "set-00000001/files" in op)
    for first in images(whole.disk.record, str(tmp_path), seed=3, singles=0, at=[moved + 1]):
        disk = FaultDisk(first.directory, boot="second", inodes=first.inodes)
        second = Program(disk, "plain", "now", STEPS, True)
        second.run()
        assert second.finished, second.errors
        early = sample([at for at in disk.record.changing if at < second.durable_at[0][0]], 12)
        into = tmp_path / f"again-{len(list(tmp_path.iterdir()))}"
        into.mkdir()
        cuts(into, second, early, of=LIBRARY, seed=4, singles=2 if LONG else 1)


@pytest.mark.proof
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("saver", ["now", "late"])
def test_killed_then_power_cut_in_the_next_life(tmp_path: Path, saver: str, initial: bool) -> None:
    """G1, G2, G3: what the killed life had not synced is not durable in the next one either."""
    whole = undisturbed(tmp_path / "whole", "plain", saver, initial)
    count = 0
    for at in sample(whole.disk.record.changing, EVERY, EVERY):
        first = killed(tmp_path / "work", whole, at)
        begin = len(first.disk.record.ops)
        second = Program(FaultDisk(tmp_path / "work", before=first.disk), "plain", saver, STEPS, initial)
        second.run()
        assert second.finished, second.errors
        points = [op for op in second.disk.record.changing if op >= begin]
        some = Points([*points[: 24 : 2 * FEWER], *points[24 :: 12 * FEWER], len(second.disk.record.ops)])
        after = f"killed at {at} ({whole.disk.record.ops[at]}), second life began at {begin}, "
        least = promised([*first.durable_at, *second.durable_at])
        count += cuts(tmp_path, second, some, of=IN_A_ROW, singles=0, least=least, after=after)
        shutil.rmtree(tmp_path / "work")
    assert count


@pytest.mark.parametrize("initial", [False, True])
def test_failed_then_power_cut(tmp_path: Path, initial: bool) -> None:
    """G1, G2, G3: an operation failed once, the program went on, then the power was cut."""
    whole = undisturbed(tmp_path / "whole", "plain", "now", initial)
    last = next(i for i, op in enumerate(whole.disk.record.ops) if "set-00000002/record.json" in op)
    for at in sample(range(last), 2 * EVERY, 2 * EVERY):
        program = failed(tmp_path / "work", whole, at, errno.EIO, go_on=not initial)
        points = Points([op for op in program.disk.record.changing if at < op < at + 60][:: 3 * FEWER])
        after = f"failed at {at} ({program.disk.failed}), errors {program.errors}, "
        cuts(tmp_path, program, points, of=IN_A_ROW, after=after)
        shutil.rmtree(tmp_path / "work")


def test_fsync_failed_then_killed_while_the_files_are_put_back(tmp_path: Path) -> None:
    """G3: the initial files are in failed-1, half put back: the next start finishes that."""
    whole = undisturbed(tmp_path / "whole", "plain", "now", True)
    ops = whole.disk.record.ops
    at = next(i for i, op in enumerate(ops) if op.startswith("sync") and "set-00000001/files/u.dat" in op)
    for kill in range(at + 1, at + 40):
        program = lived(tmp_path / "work", "plain", "now", True, fail_at=at, kill_at=kill)
        with told(f"killed at {kill}, {program.disk.record.ops[kill : kill + 1]}"):
            restart(FaultDisk(tmp_path / "work", inodes=program.disk.inodes), program)
        shutil.rmtree(tmp_path / "work")


def test_killed_while_the_files_of_a_first_set_are_put_back_it_starts_again(tmp_path: Path) -> None:
    """G3: a set that is being removed must not be found whole, since its files are in W again and its directory not."""
    for at in range(0, 90):
        directory = new_directory(tmp_path / f"work-{at}", "plain")
        disk = FaultDisk(directory)
        session = Session(directory, disk=disk)
        session.restore()
        write(disk, plain(0))
        disk.fail_at, disk.error = len(disk.record.ops) + 20, errno.ENOSPC
        disk.kill_at = disk.fail_at + 1 + at
        with contextlib.suppress(Killed, SafepointError):
            session.hide(0)
        died = disk.dead
        disk.end()
        for _ in range(2):
            again = Session(directory, disk=FaultDisk(directory, inodes=disk.inodes))
            saved = again.restore()
            assert saved is None or saved.step == 0
            again._home.release()
        if not died:
            break
    else:
        raise AssertionError("it died each time: more operations are to be tried")
    assert at > 5
