"""G2k, kill-safe: if only processes died, and machine and mount stayed up, what is restored is the newest set for which
`hide()` had returned. Nothing that was handed over is lost to a `kill -9`.

Here on the model of `faultdisk`, with each operation of the library; tests/proof/test_strace.py and test_kill.py there
kill real processes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from testbed.disks import Elsewhere
from testbed.faultdisk import FaultDisk, Killed
from testbed.program import consistent, restart
from testbed.sessions import ROOT, DeadSaver, Said, Start, contents, kill, sets, write
from testbed.sweep import each_case, killed, kills, part, sample, told, undisturbed

from safepoint import SafepointError, Session
from safepoint.disk import Disk


@each_case
def test_killed_at_any_operation_it_goes_on_from_the_last_hide(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G1, G2k, G3, G4: die before, and in the middle of, each operation that changes something; start again."""
    whole = undisturbed(tmp_path / "whole", shape, saver, initial)
    points = part(whole.disk.record.changing, shape, 2)
    kills(tmp_path, whole, points, of="all kinds of files in one program")


def test_killed_while_a_directory_is_copied(tmp_path: Path) -> None:
    """A directory marked copy: what the kill left of its snapshot is not taken for the whole."""
    whole = undisturbed(tmp_path / "whole", "trees", "now", False)
    kills(tmp_path, whole, sample(whole.disk.record.changing, 5), of="all kinds of files in one program")


def test_killed_between_the_moves_of_a_take_gives_the_new_set(tmp_path: Path) -> None:
    """G2k: what was being taken is provably whole, so from the first move on it is the new step that comes back."""
    whole = undisturbed(tmp_path / "whole", "plain", "late", False)
    ops = whole.disk.record.ops
    begin = next(i for i, op in enumerate(ops) if op.startswith("rename") and op.endswith("set-00000002/files/u.dat"))
    for at in range(begin + 1, begin + 6):
        program = killed(tmp_path / "work", whole, at)
        after = restart(FaultDisk(tmp_path / "work", inodes=program.disk.inodes), program)
        assert after.restored == 1, ops[at]
        shutil.rmtree(tmp_path / "work")


def test_killed_anywhere_no_set_looks_damaged_after_the_next_restore(tmp_path: Path) -> None:
    """save.drop: a set being deleted is never taken for a damaged one. The end of a life hides this: it drops all."""
    whole = undisturbed(tmp_path / "whole", "plain", "now", False)
    for at in (points := sample(whole.disk.record.changing, 2)):
        program = killed(tmp_path / "work", whole, at)
        disk = FaultDisk(tmp_path / "work", inodes=program.disk.inodes)
        Session(tmp_path / "work", disk=disk).restore()
        with told(f"killed at {at} ({whole.disk.record.ops[at]})", points):
            consistent(disk.directory)
        disk.end()
        shutil.rmtree(tmp_path / "work")


@pytest.mark.leaves_damage
@pytest.mark.parametrize(("name", "how"), [("v.dat", "rewritten"), ("v.dat", "replaced"), ("h.csv", "replaced")])
def test_a_file_changed_after_a_killed_take_is_not_taken_for_the_set(tmp_path: Path, name: str, how: str) -> None:
    """Rule 3 of restore: same size and time (replaced), or same size and inode (rewritten), are not enough."""
    (tmp_path / ".safepoint").write_text("u.dat\nv.dat\nh.csv append\n")
    disk = FaultDisk(tmp_path)
    session = Session(tmp_path, disk=disk)
    session.restore()
    content: dict[tuple[int, str], bytes] = {}
    for step in (0, 1):
        for n in ("u.dat", "v.dat", "h.csv"):
            content[step, n] = b"%s at %d\n" % (n.encode(), step)
            if n == "h.csv" and step:
                disk.append(str(tmp_path / n), b"row\n")
            else:
                disk.overwrite(str(tmp_path / n), content[step, n])
        if step == 0:
            session.hide(step, wait=True)
    # die between the two renames of the take
    real = disk.rename

    def rename(source: str, target: str) -> None:
        if target.endswith("files/v.dat"):
            disk.dead = True
            raise Killed
        real(source, target)

    disk.rename = rename  # type: ignore[method-assign]
    with pytest.raises(Killed):
        session.hide(1)
    disk.end()
    path = tmp_path / name
    old, data = path.stat(), path.read_bytes()
    other = data[:-2] + b"X\n" if name == "v.dat" else b"X" + data[1:]
    if how == "replaced":
        (tmp_path / "other").write_bytes(other)
        os.replace(tmp_path / "other", path)
        os.utime(path, ns=(old.st_mtime_ns, old.st_mtime_ns))
    else:
        path.write_bytes(other)
        os.utime(path, ns=(old.st_mtime_ns + 10**9,) * 2)
    again = Session(tmp_path, disk=FaultDisk(tmp_path, inodes=disk.inodes))
    try:
        saved = again.restore()
    except SafepointError:
        assert name == "h.csv"  # also its older length no longer verifies: refused
        return
    assert saved and saved.step == 0
    assert (tmp_path / "v.dat").read_bytes() == content[0, "v.dat"]


MANIFEST = "u.dat\nsub/v.dat\nhistory.csv append\nparams.db copy\nrun.zarr/\n"


UNSHOWN = "it was not committed, and nothing shows on this file system or kernel that it is whole"
WHY_NOT = [  # what differs, and what is said of it: only what was looked at
    ({"mount": None}, UNSHOWN),
    ({"mount": "7"}, "it was not committed, and this is not the mount in which it was taken"),
    ({"boot": "7"}, "the machine went down before it was committed"),
    ({"boot": "7", "mount": None}, "the machine went down before it was committed"),
    ({"boot": "", "mount": None}, UNSHOWN),
    ({"host": "7"}, "it was not committed, and it was taken on host: only there could it be shown to be whole"),
]


def die_with_an_uncommitted_set(start: Start, work: Path, disk: Disk) -> list[dict[str, str]]:
    """What W held when set 1, durable, and set 2, only taken, were hidden."""
    session = start(MANIFEST, disk=disk)
    held = []
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step), history_csv="row\n" * (step + 1), params_db=str(step))
        write(work, run_zarr__a=str(step))
        held.append(contents(work))
        session.hide(step)
        session._work.thread = DeadSaver()  # type: ignore[assignment]
    write(work, u_dat="torn", history_csv="row\n" * 5, params_db="torn", run_zarr__b="torn")
    kill(session)
    return held


def test_a_kill_costs_nothing_that_hide_took(start: Start, work: Path, said: Said) -> None:
    """G2k: in the same page cache the uncommitted set is provably whole."""
    held = die_with_an_uncommitted_set(start, work, Elsewhere())
    assert sets(work) == [1]
    said.clear()
    session = start(restore=False, disk=Elsewhere())
    point = session.restore()
    assert point and (point.number, point.step) == (2, 1)
    assert contents(work) == held[1]
    assert sets(work) == [1, 2]
    assert [level for level, _ in said] == ["INFO"]


@pytest.mark.parametrize(("differs", "why"), WHY_NOT, ids=str)
def test_where_nothing_can_be_proven_the_set_before_is_restored_and_the_log_says_why(
    start: Start, work: Path, said: Said, differs: dict[str, str | None], why: str
) -> None:
    """G1 before G2k, rule (3) of restore: after a power cut names, sizes and times look right over zeros."""
    before = Elsewhere(mount=None) if differs == {"mount": None} else Elsewhere()
    held = die_with_an_uncommitted_set(start, work, before)
    for path in (work / ROOT / "set-00000002/files").rglob("*.dat"):
        info = path.stat()
        path.write_bytes(bytes(info.st_size))
        os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))
    said.clear()
    session = start(restore=False, disk=Elsewhere(**differs))
    point = session.restore()
    assert point and (point.number, point.step) == (1, 0)
    assert contents(work) == held[0]
    assert said == [("WARNING", f"restored set 1 (step 0): 5 files, 0.0 MB; set 2: {why}")]
    point = session.hide(0, wait=True)
    assert point and sets(work) == [1, point.number]


@pytest.mark.parametrize("file", ["u.dat", "sub/v.dat", "params.db"])
@pytest.mark.parametrize("how", ["size", "time", "inode", "gone"])
def test_an_uncommitted_set_of_which_a_file_was_changed_is_not_given_back(
    start: Start, work: Path, file: str, how: str
) -> None:
    """G2k holds only for what is provably as it was when `hide` took it."""
    held = die_with_an_uncommitted_set(start, work, Elsewhere())
    path = work / ROOT / "set-00000002/files" / file
    info = path.stat()
    if how == "size":
        path.write_text("longer than it was")
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    elif how == "time":
        os.utime(path, ns=(1, 1))
    elif how == "inode":
        path.rename(path.with_suffix(".old"))
        path.write_text(path.with_suffix(".old").read_text())
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    else:
        path.unlink()
    point = start(restore=False, disk=Elsewhere()).restore()
    assert point
    if file == "params.db" and how == "inode":
        assert contents(work) == held[point.number - 1]  # a snapshot has no inode of its own: it may be proven
        return
    assert (point.number, point.step) == (1, 0)
    assert contents(work) == held[0]
