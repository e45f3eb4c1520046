"""G6, checked: a set that was damaged later is detected before one byte of W is touched. An older whole set is given
back, or an error is raised.

Here a set is gone, or all of them are. Other damage is in test_g6_checked.py, links in test_g6_hostile.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from testbed.faultdisk import FaultDisk, images
from testbed.sessions import ROOT, Said, Start, contents, sets, write
from testbed.sweep import LONG, SINGLE

import safepoint
import safepoint.disk
from safepoint import Session

pytestmark = pytest.mark.usefixtures("clean_slate")


def test_a_set_that_is_removed_by_hand_keeps_nothing_else(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat compress\n")
    for step in range(4):
        write(work, u_dat=f"{step}" * 100_000)
        if step == 3:
            shutil.rmtree(work / ROOT / "set-00000002")
        session.hide(step, wait=True)
    assert sets(work) == [3, 4] and not (work / ROOT / "set-00000004/files").exists()
    assert not [text for level, text in said if level == "WARNING"]


@pytest.mark.leaves_damage
@pytest.mark.parametrize("finished", [False, True])
def test_a_root_that_vanished_is_no_first_start(start: Start, work: Path, finished: bool) -> None:
    """G6: its sets are gone, and a fresh start would write over what is in W. Again and again, until the user says so
    by removing the side directory. With a finish mark too: there may have been sets of a run begun after it."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1")
    session.finish(1) if finished else session.close()
    shutil.rmtree(work / ROOT)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(safepoint.DamagedError) as caught:
            start()
        assert f"{work}/{ROOT} is gone" in str(caught.value) and "remove" in str(caught.value)
        assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
        assert not (work / ROOT).exists()
    shutil.rmtree(work / ".safepoint.d")
    assert start(restore=False).restore() is None and contents(work) == {"u.dat": "1"}


def test_a_first_start_where_there_had_been_sets_is_said(start: Start, work: Path, said: Said) -> None:
    """Somebody has removed them one by one; the log beside them is older than that."""
    session = start("u.dat\n")
    session.close()
    start().close()  # began before, and no set yet: nothing is missing
    session = start()
    write(work, u_dat="0")
    session.hide(0, wait=True)
    session.close()
    assert "no set is left" not in str(said)
    for path in (work / ROOT).glob("set-*"):
        shutil.rmtree(path)
    start(restore=False)
    assert (
        "WARNING",
        f"no set is left in {work}/{ROOT}, though an earlier run had some: this is a first start",
    ) in said


def test_a_power_cut_in_the_first_start_never_looks_as_if_sets_had_vanished(tmp_path: Path) -> None:
    """G3: whatever names reached the disk first, the next start is a first one."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    disk = FaultDisk(work)
    session = Session(work, disk=disk)
    session.restore()
    session.close()
    count, cut = 0, tmp_path / "cut"
    cut.mkdir()
    for image in images(disk.record, str(cut), singles=100 if LONG else 2, most=SINGLE):
        again = Session(image.directory, disk=FaultDisk(image.directory, boot="after"))
        assert again.restore() is None, image
        again.close()
        shutil.rmtree(image.directory)
        count += 1
    assert count > 20
