"""Programs that nobody may change, each with a habit that `safepoint run` has to know: killed at random, and what
`safepoint run --explain` proposes for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed import tally
from testbed.paths import TESTBED
from testbed.protected import killed_again_and_again, ran
from testbed.sweep import LONG, some_of
from testbed.waiting import wait_for

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


@pytest.mark.parametrize("name", some_of(list(WRITERS), 2, 2))
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


def explained(work: Path, *command: str) -> tuple[str, str]:
    words = [sys.executable, "-m", "safepoint", "run", "--dir", work, "--explain", "--", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def meant(manifest: str) -> list[Entry]:
    found = parse(manifest)
    return [entry._replace(line=0, text="") for entry in (*found.entries, *found.exclusions)]


@pytest.mark.parametrize("name", some_of(list(WRITERS), 2, 2))
def test_one_run_that_is_watched_tells_which_files_make_a_set_and_when_it_is_complete(
    tmp_path: Path, name: str
) -> None:
    proposed, said = explained(tmp_path, *command(name), "40")
    assert meant(proposed) == meant(WRITERS[name].manifest), proposed
    assert "40 complete sets seen" in said
    assert not (tmp_path / ".safepoint").exists() and not (tmp_path / ".safepoint.d").exists()


def test_a_file_that_is_never_closed_is_a_case_for_segments(tmp_path: Path) -> None:
    proposed, said = explained(tmp_path, *command("held"), "40")
    assert meant(proposed) == meant("held.db")
    assert "held.db is rewritten while it stays open" in said and "safepoint run --until N -- " in said


PUT = """
import os, sys, time
def put(path, size, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(f"{text}\\n" + "x" * size)
for k in range(30):
    time.sleep(0.01)
"""
OTHERS = {
    "mesh files once, and a restart file": (
        "    for i in range(6 * (k == 0)): put(f'mesh-{i}.dat', 300_000, 0)\n    put('state.txt', 5000, k)",
        "state.txt",
    ),
    "results at the end": (
        "    put('state.txt', 5000, k)\n    for i in range(6 * (k == 29)): put(f'result-{i}.dat', 300_000, 0)",
        "state.txt",
    ),
    "a restart file that is removed at the end": (
        "    put('restart.dat', 5000, k), put('done.txt', 1, k)\n    k == 29 and os.remove('restart.dat')",
        "restart.dat\ndone.txt mark",
    ),
    "a progress file after each step, a restart file after some": (
        "    k % 5 or put('state.txt', 5000, k)\n    put('progress.txt', 1, k)",
        "state.txt\nprogress.txt mark",
    ),
    "two files in turn, and a pointer": (
        "    put(f'restart.{\"AB\"[k % 2]}', 5000, k), put('latest', 1, k)",
        "restart.A\nrestart.B\nlatest mark",
    ),
    "numbered files by a temporary name": (
        "    put(f'dump.{k}.tmp', 5000, k), os.rename(f'dump.{k}.tmp', f'dump.{k}')\n"
        "    k > 1 and os.remove(f'dump.{k - 2}')",
        "!dump.[0-9]*.tmp\ndump.[0-9]* mark",
    ),
    "numbered directories by a temporary name": (
        "    [put(f'step-{k:02}.tmp/{name}', 500, k) for name in ('a', 'b', 'done')]\n"
        "    os.rename(f'step-{k:02}.tmp', f'step-{k:02}')",
        "step-[0-9]*/ copy\n!step-[0-9]*.tmp\nstep-[0-9]*/done mark",
    ),
    "a log each step, and a state after some that is closed twice": (
        "    open('out.log', 'a').write('row\\\\n'), open('out.log').close()\n"
        "    k % 4 or (put('field.txt', 500, k), time.sleep(0.001), open('field.txt', 'a').write('end'))",
        "out.log append copy\nfield.txt mark",
    ),
    "names that need quotes": (
        "    put('keep=2', 50, k), put('two words', 50, k), put('new\\nline', 50, k), put('{x}[1].txt', 5, k)",
        '"keep=2"\n"two words"\n"new\\nline"\n{{x}}[[]1].txt mark',
    ),
}


@pytest.mark.parametrize("name", some_of(list(OTHERS), 4, 4))
def test_what_is_proposed_for_programs_of_other_habits(tmp_path: Path, name: str) -> None:
    code, manifest = OTHERS[name]
    proposed, said = explained(tmp_path, sys.executable, "-c", PUT + code)
    assert meant(proposed) == meant(manifest), (proposed, said)
    assert "what it wrote lies here, and may be torn" in said
    assert ("is closed 2 times for each set" in said) == ("closed twice" in name)
    assert ("safepoint run --check 'CMD: whether field.txt is whole' -- " in said) == ("closed twice" in name)
    assert ("# field.txt: whole after 2 closes, so run with --check" in proposed) == ("closed twice" in name)
    assert ("# mesh-[0-9]*.dat " in proposed) == ("mesh" in name)


def test_parts_that_are_written_once_each_are_no_rounds(tmp_path: Path) -> None:
    code = PUT + "    k == 29 and [put(f'part-{i}.dat', 5000, k) for i in range(8)]"
    proposed, said = explained(tmp_path, sys.executable, "-c", code)
    assert "mark" not in proposed and "no 3 rounds were seen" in said and "--until" in said


def test_a_lock_file_that_a_kill_would_leave_is_named_with_what_to_do(tmp_path: Path) -> None:
    code = "open('run.lock', 'w').close()\n" + PUT + "    put('state.txt', 5000, k)\nos.remove('run.lock')"
    proposed, said = explained(tmp_path, sys.executable, "-c", code)
    assert meant(proposed) == meant("state.txt")
    assert "run.lock is there while it runs, and stays after a kill" in said and "rm -f run.lock; exec" in said


def test_a_fifo_is_not_opened_and_what_lies_behind_a_link_is_named(tmp_path: Path) -> None:
    """To open it would let go a writer that waits for its reader."""
    (tmp_path / "elsewhere").mkdir(), (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work/pipe")
    writer = subprocess.Popen(["sh", "-c", "echo whole > pipe"], cwd=tmp_path / "work")
    code = PUT + f"    put('state.txt', 50, k)\n    k or os.symlink({str(tmp_path / 'elsewhere')!r}, 'out')"
    _, said = explained(tmp_path / "work", sys.executable, "-c", code)
    assert "out is a link to a directory: what is written behind it was not seen" in said
    assert writer.poll() is None and (tmp_path / "work/pipe").read_text() == "whole\n"
    assert writer.wait(timeout=30) == 0


def test_a_signal_goes_to_the_command_and_the_proposal_is_made(tmp_path: Path) -> None:
    code = PUT.replace("range(30)", "range(3000)") + "    put('state.txt', 50, k)"
    words = [sys.executable, "-m", "safepoint", "run", "--dir", tmp_path, "--explain", "--", sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        wait_for(lambda: (tmp_path / "state.txt").exists() and (tmp_path / "state.txt").read_text()[:2] == "20")
        program.send_signal(signal.SIGUSR1)
        proposed, _ = program.communicate(timeout=30)
    assert program.returncode == 128 + signal.SIGUSR1 and meant(proposed) == meant("state.txt")
