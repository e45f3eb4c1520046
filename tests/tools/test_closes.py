"""When `safepoint run` takes a set for complete: what was closed, made anew and removed, event by event."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from testbed.profiled import function_calls

if sys.platform != "linux":
    pytest.skip("needs Linux: inotify", allow_module_level=True)

from safepoint.manifest import parse
from safepoint.run.chances import Chances
from safepoint.run.closes import Closes


class Seen:
    """A directory with a manifest, and what is thought of it."""

    every: ClassVar[list[Seen]] = []

    def __init__(self, work: Path, manifest: str) -> None:
        self.work, self.chances = work, Chances()
        self.closes = Closes(parse(manifest), str(work), self.chances)
        self.every.append(self)

    def write(self, *names: str) -> None:
        for name in names:
            (self.work / name).parent.mkdir(exist_ok=True)
            (self.work / name).write_text("x")

    @property
    def ready(self) -> bool:
        self.closes.read()
        return self.closes.ready


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while Seen.every:
        Seen.every.pop().closes.close()


@pytest.fixture
def steps(tmp_path: Path) -> Seen:
    """Two complete directories, of which the second makes a set."""
    seen = Seen(tmp_path, "step-*/ copy\nstep-*/done mark\nparts/*.dat copy optional\n")
    seen.write("parts/a.dat", "parts/b.dat")
    for step in (1, 2):
        seen.write(f"step-{step}/a", f"step-{step}/b", f"step-{step}/done")
    assert seen.ready
    return seen


def test_a_mark_in_a_directory_that_nobody_had_watched_is_found(steps: Seen) -> None:
    """It was written before inotify could be told of the directory."""
    steps.write("step-3/a")
    assert not steps.ready
    os.makedirs(steps.work / "new")
    for name in ("a", "b", "done"):
        (steps.work / "new" / name).write_text("x")
    os.rename(steps.work / "new", steps.work / "step-4")
    assert steps.ready


def test_an_older_directory_may_go_and_while_it_is_half_gone_there_is_no_set(steps: Seen) -> None:
    (steps.work / "step-1/a").unlink()
    assert not steps.ready
    steps.write("step-3/a", "step-3/b", "step-3/done")
    assert not steps.ready, "a newer mark does not make the half directory whole"
    shutil.rmtree(steps.work / "step-1")
    assert steps.ready
    steps.closes.begin_anew()
    assert not steps.ready and "of 3 complete sets seen, 0 taken and 2 missed" in str(steps.chances)


def test_a_set_that_lies_there_while_an_older_directory_goes_is_one_set(steps: Seen) -> None:
    before = steps.chances.seen
    for name in ("a", "b", "done"):
        (steps.work / "step-1" / name).unlink()
        assert not steps.ready and steps.chances.there
    (steps.work / "step-1").rmdir()
    assert steps.ready and steps.chances.seen == before and "0 missed" not in str(steps.chances)
    steps.chances.take()
    assert str(steps.chances).endswith("1 missed: 1 because step-2/done was written again before the look")


def test_an_older_directory_that_takes_another_name_is_gone_at_once(steps: Seen) -> None:
    os.rename(steps.work / "step-1", steps.work / "old")
    assert steps.ready


def test_a_directory_of_two_that_are_written_in_turn_is_whole_when_its_mark_is_written(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "ckpt-*/ copy\nckpt-*/done mark\n")
    for name in ("A", "B"):
        seen.write(f"ckpt-{name}/a", f"ckpt-{name}/done")
    assert seen.ready
    (tmp_path / "ckpt-A/done").unlink(), (tmp_path / "ckpt-A/a").unlink()
    assert not seen.ready
    seen.write("ckpt-A/a")
    assert not seen.ready
    seen.write("ckpt-A/done")
    assert seen.ready


@pytest.mark.parametrize("name", ["parts/a.dat", "step-2/a", "step-2/done"])
def test_what_is_removed_of_the_set_itself_spoils_it(steps: Seen, name: str) -> None:
    """Only of an older directory it does not."""
    (steps.work / name).unlink()
    assert not steps.ready


def test_excluded_directories_spoil_no_set_and_are_not_watched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    seen = Seen(tmp_path, "out/ copy\n!out/tmp-*\ndone.txt mark\n")
    seen.write("out/a", "done.txt")
    assert seen.ready
    for name in ("tmp-1", "tmp-2"):
        os.makedirs(tmp_path / "out" / name / "deep")
        (tmp_path / "out" / name / "deep/x").write_text("x")
        assert seen.ready
    shutil.rmtree(tmp_path / "out/tmp-1")
    assert seen.ready and str(seen.chances).startswith("of 1 complete sets seen, 0 taken and 0 missed")


def test_a_temporary_name_that_is_excluded_is_no_mark(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "dump.[0-9]* mark\n!dump.[0-9]*.tmp\n")
    seen.write("dump.1.tmp")
    assert not seen.ready
    os.rename(tmp_path / "dump.1.tmp", tmp_path / "dump.1")
    assert seen.ready


def test_reasons_that_differ_in_a_number_are_counted_together(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    seen = Seen(tmp_path, "out/ copy\nlate.txt\ndone.txt mark\n")
    seen.write("out/a", "late.txt", "done.txt")
    for n in range(4):
        assert seen.ready
        os.mkdir(tmp_path / f"out/part-{n}")
        assert not seen.ready
        seen.write("done.txt")
    assert seen.ready
    assert "4 missed: 4 because out/part-* was " in str(seen.chances)
    seen.write("late.txt")
    hint = "because late.txt was touched before the look (make late.txt the mark, if it is written last in each set"
    assert not seen.ready and hint in str(seen.chances)


def test_hundreds_of_older_files_that_go_cost_no_more_each_than_a_few(tmp_path: Path) -> None:
    def calls(files: int) -> int:
        seen = Seen(tmp_path, "out-*.txt mark\n")
        seen.write(*(f"out-{n}.txt" for n in range(files)))
        seen.closes.read()
        for n in range(files - 1):
            os.unlink(tmp_path / f"out-{n}.txt")
        return function_calls(lambda: seen.ready)

    few = calls(50)
    assert few < calls(400) < 8 * 1.2 * few


@pytest.mark.parametrize(("call", "number", "limit"), [
    ("__init__", errno.EMFILE, r"fs\.inotify\.max_user_instances = \d+, or that of open files,"),
    ("add_watch", errno.ENOSPC, r"fs\.inotify\.max_user_watches = \d+"),
])  # fmt: skip
def test_a_limit_of_inotify_is_not_called_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, limit: str
) -> None:
    def fails(*arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"safepoint.run.closes.INotify.{call}", fails)
    with pytest.raises(OSError, match=rf"the limit {limit} is reached \(raise it with sysctl\): '{tmp_path}'"):
        Closes(parse("u.dat\n"), str(tmp_path), Chances())
