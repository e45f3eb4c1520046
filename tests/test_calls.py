"""How many file-system calls a save makes: a formula, so that no change makes it grow unseen."""

from __future__ import annotations

from pathlib import Path

import calls
import pytest

pytestmark = pytest.mark.skipif(bool(calls.why_not), reason=calls.why_not)


@pytest.mark.parametrize("files", [1, 10, 100, 300])
def test_a_plain_file_costs_five_calls_and_one_more_when_it_goes(files: int, tmp_path: Path) -> None:
    """Of each file: a look, an open for the lease, the rename; an open for the checksum and the flush, the fsync; and
    its removal with an older set. The look at their directory is one of the 21, and so are the four at the lock."""
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, files, "".join(f"f{k:05}\n" for k in range(files)) + "bundle_from = 100000\n")
    assert found.saved.total() == 5 * files + 21, found
    assert found.removed.total() == files + 15, found


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
