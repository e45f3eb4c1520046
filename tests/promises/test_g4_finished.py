"""G4, finished: after `finish()` W holds the final files, and a later `restore()` leaves them alone and says so.

The sweeps of test_g2_durable.py and test_g2k_killed.py, and those of tests/proof, die in `finish` too.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from testbed.disks import Elsewhere
from testbed.paths import HOUSE
from testbed.sessions import ROOT, DeadSaver, Said, Start, contents, kill, write
from testbed.sweep import some_of

import safepoint
import safepoint.disk
from safepoint import Session

pytestmark = pytest.mark.usefixtures("clean_slate")


def written_loop(page: str) -> str:
    """The program that README, or the docstring of the package, shows first."""
    if page == "docstring":
        text = textwrap.dedent((safepoint.__doc__ or "").partition("\n\n")[2].partition("Kill the program")[0])
    else:
        text = (HOUSE / page).read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert "safepoint.init()" in text and "range(saved.step if saved else 0, n)" in text
    return text


def in_a_block(text: str) -> str:
    """The same program with a `with` block, which finishes by itself."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("safepoint.init()"))
    rest = [f"    {line}" for line in lines[begin + 1 :] if not line.startswith("safepoint.finish(")]
    return "\n".join([*lines[:begin], "with safepoint.init():", *rest])


PRELUDE = """
import os, signal, sys
n, dies_at, torn_at = 5, *map(int, sys.argv[1:])
def die(): os.kill(os.getpid(), signal.SIGKILL)
def initial(): return 0
def read_files():
    print("from", u := int(open("u.dat").read()), flush=True)
    return u
def advance(u): return die() if u == dies_at else u + 1
def write_files(u):
    with open("u.dat", "w") as file:
        file.write(str(u) if u != torn_at else "7")
    if u == torn_at: die()
"""


@pytest.mark.parametrize("shape", some_of(["plain", "block"], 1))
@pytest.mark.parametrize("page", ["README.md", "docstring"])
def test_the_loop_of_the_page_can_be_started_again_whenever_it_ended(work: Path, page: str, shape: str) -> None:
    """G1, G2k, G4: killed before its first files are there, before it writes a step, and while it does; then finished,
    and started twice more: no step is lost, the result is right, and there is no error."""
    (work / ".safepoint").write_text("u.dat\n")
    text = written_loop(page) if shape == "plain" else in_a_block(written_loop(page))
    statuses, results = [], []
    for dies_at, torn_at in ((0, -1), (2, -1), (-1, 5), (-1, -1), (-1, -1), (-1, -1)):
        command = [sys.executable, "-c", PRELUDE + text, str(dies_at), str(torn_at)]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=500)
        statuses.append((done.returncode, done.stdout + done.stderr))
        results.append(contents(work))
    died = -signal.SIGKILL
    assert statuses == [(died, ""), (died, ""), (died, "from 2\n"), (0, "from 4\n"), (0, ""), (0, "")]
    assert results[3:] == [{"u.dat": "5"}] * 3


def test_files_written_after_the_last_set_are_no_result_of_its_step(start: Start, work: Path, said: Said) -> None:
    """G4: a result that nobody gave a step has none; the files of the last set, put back, have its step."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(7)
    write(work, u_dat="later")
    session.finish()
    assert said[-1] == ("INFO", "finished: 1 files in place, newer than set 1 (step 7), so the result has no step")
    said.clear()
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (None, True)
    assert said == [("INFO", "the run was finished; its files are left alone")]


# Finish.
def test_finished_files_are_left_alone_and_said_to_be_final(start: Start, work: Path, said: Said) -> None:
    """G4."""
    session = start("u.dat\nhistory.csv append\n")
    for step in range(3):
        write(work, u_dat=str(step), history_csv="row\n" * step)
        session.hide(step)
    write(work, u_dat="final", history_csv="row\n" * 5)
    inode = (work / "u.dat").stat().st_ino
    session.finish(5)
    assert said[-1] == ("INFO", "finished at step 5: 2 files in place")
    for _ in range(2):
        said.clear()
        session = start(restore=False)
        point = session.restore()
        assert point and (point.number, point.step, point.finished) == (3, 5, True)
        assert set(point.files) == {"u.dat", "history.csv"}
        assert said == [("INFO", "the run was finished at step 5; its files are left alone")]
        assert contents(work) == {"u.dat": "final", "history.csv": "row\n" * 5}
        assert (work / "u.dat").stat().st_ino == inode
        session.close()


def test_after_finish_sets_and_baseline_are_gone(start: Start, work: Path) -> None:
    session = start("u.dat\n", keep=3)
    for step in range(4):
        write(work, u_dat=str(step))
        session.hide(step)
    write(work, u_dat="final")
    session.finish()
    assert {path.name for path in (work / ROOT).iterdir()} <= {"lock", "owner.json", "log.jsonl"}
    assert {path.name for path in (work / ".safepoint.d").iterdir()} == {"FORMAT", "finished.json", "rank-00000"}


def test_finish_without_any_hide_removes_the_baseline_too(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    write(work, u_dat="final")
    session.finish(1)
    assert not (work / ROOT / "baseline.json").exists()
    point = start(restore=False).restore()
    assert point and (point.number, point.step, point.finished) == (0, 1, True)
    assert contents(work) == {"u.dat": "final"}


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_final_file_that_is_not_what_it_was_is_named_and_left_as_it_is(
    start: Start, work: Path, how: str, said: Said
) -> None:
    session = start("u.dat\nv.dat\n")
    write(work, u_dat="final", v_dat="final")
    session.finish(9)
    if how == "changed":
        write(work, u_dat="edited")
    else:
        (work / "u.dat").unlink()
    before = contents(work)
    said.clear()
    point = start(restore=False).restore()
    assert point and point.finished
    left = "the run was finished at step 9; its files are left alone, but these are no longer what they were: u.dat"
    assert said == [("WARNING", left)]
    assert contents(work) == before


def test_after_a_finished_run_another_may_go_on(start: Start, work: Path) -> None:
    """A set that is newer than the finish mark counts more; until there is one, the mark does."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="final")
    session.finish(1)
    session = start()
    session.close()
    session = start(restore=False)
    point = session.restore()
    assert point and point.finished
    session.hide(1)  # the final files are the beginning
    write(work, u_dat="2")
    session._work.thread = DeadSaver()  # type: ignore[assignment]
    session.hide(2)
    write(work, u_dat="torn")
    kill(session)
    session = start(restore=False)
    point = session.restore()
    assert point and (point.number, point.step, point.finished) == (3, 2, False)
    assert contents(work) == {"u.dat": "2"}
    write(work, u_dat="new result")
    session.finish(3)
    point = start(restore=False).restore()
    assert point and (point.number, point.step, point.finished) == (3, 3, True)
    assert contents(work) == {"u.dat": "new result"}


def test_a_further_run_that_dies_before_its_first_hide_leaves_the_result(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    write(work, u_dat="final")
    session.finish(1)
    kill(start())
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, True)
    assert contents(work) == {"u.dat": "final"}


def test_a_baseline_left_beside_a_finish_mark_does_not_touch_the_result(tmp_path: Path) -> None:
    """G4: killed between the mark and the removal of the baseline."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = Session(tmp_path)
    session.restore()
    baseline = tmp_path / ".safepoint.d/rank-00000/baseline.json"
    kept = baseline.read_bytes()
    (tmp_path / "u.dat").write_text("result")
    session.finish(step=5)
    baseline.write_bytes(kept)
    again = Session(tmp_path)
    saved = again.restore()
    again.close()
    assert saved is not None and saved.finished and (tmp_path / "u.dat").read_text() == "result"


def test_killed_in_the_first_hide_after_a_finished_run_the_result_is_put_back(tmp_path: Path) -> None:
    """G3: the final files of the last history are the initial ones of the next."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("result")
    first = Session(tmp_path)
    first.restore()
    first.finish(step=5)

    class Dies(Elsewhere):
        def create(self, path: str, *mode: int) -> Any:
            if path.endswith("record.json.new"):
                raise KeyboardInterrupt
            return super().create(path, *mode)

        def remove(self, path: str) -> None:
            if re.search(r"/(set|failed|gone)-\d+/", path):
                raise KeyboardInterrupt
            super().remove(path)

        def rmdir(self, path: str) -> None:
            raise KeyboardInterrupt

        def rename(self, source: str, target: str) -> None:
            if target.endswith("work/u.dat") or target == str(tmp_path / "u.dat"):
                raise KeyboardInterrupt
            super().rename(source, target)

    second = Session(tmp_path, disk=Dies(mount=None))
    second.restore()
    with pytest.raises(KeyboardInterrupt):
        second.hide(step=5)
    second._home.release()
    assert not (tmp_path / "u.dat").exists()
    third = Session(tmp_path, disk=Elsewhere(mount=None))
    saved = third.restore()
    third.close()
    assert saved is not None and saved.finished and (tmp_path / "u.dat").read_text() == "result"
