"""Programs that nobody may change, each with a habit that `safepoint run` has to know: killed at random, and what
`safepoint run --explain` proposes for them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed import tally
from testbed.paths import TESTBED
from testbed.protected import killed_again_and_again, ran
from testbed.sweep import LONG

from safepoint.manifest import parse
from safepoint.patterns import Entry

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify, /proc and the process connector"),
    pytest.mark.timeout(300),
]

KILLS = 50 if LONG else 6


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def counted(path: Path, step: int, size: int) -> None:
    assert numbers(path) == list(range(step, step + size)), path


def table(work: Path) -> None:
    """Its rows up to the step of the state; the rows of what was lost may follow."""
    if (work / "state.txt").exists():
        step = numbers(work / "state.txt")[0]
        counted(work / "state.txt", step, 2000)
        rows = (work / "table.csv").read_text().split()
        assert rows[:step] == [f"{k},{k * k}" for k in range(1, step + 1)]
        assert len(rows) <= step + 1


def each_time(work: Path) -> None:
    """The newest by name, which the program believes, and all others."""
    for directory in work.glob("step-*"):
        step = int(directory.name[5:])
        assert numbers(directory / "done") == [step]
        counted(directory / "a", step, 1000)
        counted(directory / "b", step, 1000)


def scratch(work: Path) -> None:
    """Without the lock file, which would keep the program from its start."""
    if (work / "done.txt").exists():
        (step,) = numbers(work / "done.txt")
        for part in range(5):
            counted(work / f"out/{part}.txt", step, 400)
    assert not (work / "out/run.lock").exists()


def late(work: Path) -> None:
    if (work / "summary.txt").exists():
        (step,) = numbers(work / "summary.txt")
        counted(work / "state.txt", step, 2000)
        assert numbers(work / "done.txt") == [step]


def renamed(work: Path) -> None:
    if (work / "state.txt").exists():
        step = numbers(work / "state.txt")[0]
        counted(work / "state.txt", step, 2000)
        assert numbers(work / "log.txt")[:step] == list(range(1, step + 1))


class Writer(NamedTuple):
    manifest: str
    whole: Callable[[Path], None]
    last: str  # holds the last step, as its first word


WRITERS = {
    "table": Writer("table.csv append copy\nstate.txt mark\n", table, "state.txt"),
    "each_time": Writer("step-[0-9]*/ copy\nstep-[0-9]*/done mark\n", each_time, "step-{:05d}/done"),
    "scratch": Writer("out/ copy\n!out/*.lock\ndone.txt mark\n", scratch, "done.txt"),
    "late": Writer("state.txt\ndone.txt\nsummary.txt mark\n", late, "summary.txt"),
    "renamed": Writer("log.txt append copy\nstate.txt mark\n", renamed, "state.txt"),
}


def command(name: str) -> list[str]:
    return [sys.executable, str(TESTBED / "writers" / f"{name}.py")]


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_with_a_habit_is_killed_at_random_and_always_goes_on_from_a_whole_set(
    tmp_path: Path, name: str
) -> None:
    """G1, G3, and the end is reached."""
    (tmp_path / ".safepoint").write_text(WRITERS[name].manifest)
    steps = 40 + 10 * KILLS
    hit = killed_again_and_again(tmp_path, command(name), WRITERS[name].whole, KILLS, steps, WRITERS[name].last)
    tally.count("kills at random instants", f"safepoint run, {name}", hit)


def test_a_file_touched_right_after_the_mark_spoils_the_sets_and_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("state.txt\nsummary.txt\ndone.txt mark\n")
    said = ran(tmp_path, "--", *command("late"), "60")
    assert re.search(r"[1-9]\d* because summary\.txt was touched before the look", said), said
    assert "make summary.txt the mark, if it is written last in each set: else sets may be mixed" in said


def explained(work: Path, name: str) -> tuple[str, str]:
    words = [sys.executable, "-m", "safepoint", "run", "--dir", work, "--explain", "--", *command(name), "40"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def meant(manifest: str) -> list[Entry]:
    found = parse(manifest)
    return [entry._replace(line=0) for entry in (*found.entries, *found.exclusions)]


@pytest.mark.parametrize("name", WRITERS)
def test_one_run_that_is_watched_tells_which_files_make_a_set_and_when_it_is_complete(
    tmp_path: Path, name: str
) -> None:
    proposed, said = explained(tmp_path, name)
    assert meant(proposed) == meant(WRITERS[name].manifest), proposed
    assert "40 complete sets seen" in said
    assert not (tmp_path / ".safepoint").exists() and not (tmp_path / ".safepoint.d").exists()


def test_a_file_that_is_never_closed_is_a_case_for_segments(tmp_path: Path) -> None:
    proposed, said = explained(tmp_path, "held")
    assert meant(proposed) == meant("held.db")
    assert "held.db is rewritten while it stays open" in said and "safepoint run --until N -- " in said
