"""How many file-system calls a save makes: a formula, so that no change makes it grow unseen."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from testbed import calls
from testbed.disks import Counting

from safepoint import Session

pytestmark = pytest.mark.skipif(bool(calls.why_not), reason=calls.why_not)


@pytest.mark.parametrize("files", [1, 10, pytest.param(300, marks=pytest.mark.proof)])
def test_a_plain_file_costs_five_calls_and_one_more_when_it_goes(files: int, tmp_path: Path) -> None:
    """Of each file: a look, an open for the lease, the rename; an open for the checksum and the flush, the fsync; and
    its removal with an older set. The look at their directory is one of the 22, and so are the four at the lock."""
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, files, "".join(f"f{k:05}\n" for k in range(files)) + "bundle_from = 100000\n")
    assert found.saved.total() == 5 * files + 22, found
    assert found.removed.total() == files + 15, found


@pytest.mark.parametrize("files", [1, 10, pytest.param(100, marks=pytest.mark.proof)])
def test_a_restart_costs_eight_calls_for_each_file(files: int, tmp_path: Path) -> None:
    """Of each file: its size in the set, an open there, a new file, its mode, its time; a look in W, the exchange of
    the two names, and the removal of what was replaced. Older sets are not looked into, as the newest is whole. Their
    directory is listed, for the journals of databases beside them."""
    work = tmp_path / "work"
    work.mkdir()
    assert calls.of_a_restart(work, files) <= 8 * files + 39


@pytest.mark.parametrize("files", [1, 3, 10, 100])
def test_a_restart_makes_eight_operations_for_each_file(files: int, tmp_path: Path) -> None:
    """Two sets are there, and other files in W; counted at the seam, with operations on files that are open already."""
    names = [f"{k}.dat" for k in range(files)]
    (tmp_path / ".safepoint").write_text("".join(f"{name}\n" for name in names) + "bundle_from = 1000\n")
    with contextlib.closing(Session(tmp_path)) as session:
        session.restore()
        for step in range(3):
            for name in names:
                (tmp_path / name).write_text(f"{name} {step}" * 9)
            if step < 2:
                session.hide(step, wait=True)
    disk = Counting(of_all=True)
    with contextlib.closing(Session(tmp_path, disk=disk)) as session:
        before = disk.calls.copy()
        saved = session.restore()
        found = disk.calls - before
    assert saved and saved.step == 1
    assert found.total() <= 8 * files + 29, found


def test_a_bundled_file_costs_no_fsync(tmp_path: Path) -> None:
    """Of each file: the look, the lease, the rename; an open; and its removal when the bundle is committed."""
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, 200, "f*\n")
    assert found.fsyncs < 12 and found.saved.total() + found.removed.total() <= 5 * 200 + 60, found


def test_a_directory_costs_one_rename_however_many_files_it_holds(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, 200, "run/\n", name="run/f{:05}")
    assert found.saved["rename"] == 2 and found.fsyncs < 12, found
