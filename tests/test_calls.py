"""How many file-system calls a save makes: a formula, so that no change makes it grow unseen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import calls
import pytest

pytestmark = pytest.mark.skipif(bool(calls.why_not), reason=calls.why_not)


@pytest.mark.parametrize("files", [1, 10, 100, 300])
def test_a_plain_file_costs_six_calls_and_a_set_twenty_four(files: int, tmp_path: Path) -> None:
    """Of each file: a look, an open for the lease, the rename; an open for the checksum and the flush, the fsync; and
    the removal of an older one. The look at their directory is one of the 24."""
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, files, "".join(f"f{k:05}\n" for k in range(files)) + "bundle_from = 100000\n")
    assert sum(found.values()) == 6 * files + 24, found


def test_a_bundled_file_costs_no_fsync(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, 200, "f*\n")
    assert found["fsync"] < 12 and sum(found.values()) <= 6 * 200 + 60, found


def test_a_directory_costs_one_rename_however_many_files_it_holds(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = calls.of_a_save(work, 200, "run/\n", name="run/f{:05}")
    assert found["rename"] == 3 and found["fsync"] < 12, found


def test_where_few_files_may_be_open_they_are_opened_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("f*\nbundle_from = 1000\n")
    program = """
import resource
import subprocess
import sys
from pathlib import Path
import safepoint
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
session = safepoint.Session(".")
session.restore()
for step in range(3):
    for k in range(100):
        Path(f"f{k}").write_text(f"{step}")
    session.hide(step, wait=True)
session.restore()
assert Path("f99").read_text() == "2"
session.close()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
