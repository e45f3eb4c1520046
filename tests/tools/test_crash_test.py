"""`safepoint crash-test` and `compare`: planted mistakes of restarts are found, and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from testbed.paths import HOUSE
from testbed.sweep import some_of
from testbed.tried import SOLVER, first, planted, safepoint, try_out


def names(said: dict[str, Any]) -> set[str]:
    return {item["name"] for item in said["ledger"]["first"]}


def test_a_right_program_is_equal_and_was_restarted(tmp_path: Path) -> None:
    """Its manifest is a link, which stays as it is."""
    directory, shared = planted(tmp_path / "w"), tmp_path / "common"
    before = (directory / ".safepoint").rename(shared).read_text()
    (directory / ".safepoint").symlink_to(shared)
    said = try_out(directory, tmp_path)
    assert shared.read_text() == before and (directory / ".safepoint").is_symlink()
    assert (said["verdict"], said["code"]) == ("equal", 0) and said["text"].startswith("equal: resumed"), said
    assert said["restarts"] >= 1 and len(said["kills"]) >= 2 and said["ledger"]["steps"] == 24


MISTAKES = {
    "a field of the step before": ({"after_restore": "before = u"}, {"u.txt"}, "a field of the step before"),
    "the random numbers": ({"after_restore": "rng.seed(7)"}, {"u.txt", "rng.txt"}, "random number generator"),
    "a step too many": ({"after_restore": "step += 1"}, {"u.txt", "rng.txt"}, "counted wrong by one"),
    "statistics": ({"after_restore": "total = 0.0"}, {"mean.txt"}, "accumulated statistics"),
}


@pytest.mark.parametrize("mistake", some_of(list(MISTAKES), 1))
def test_a_planted_mistake_is_found_at_the_step_after_the_restart(tmp_path: Path, mistake: str) -> None:
    plant, files, look = MISTAKES[mistake]
    said = try_out(planted(tmp_path / "w", **plant), tmp_path)
    assert (said["verdict"], said["code"]) == ("differs", 1) and said["text"].startswith("differs: a run"), said
    found = first(said)
    assert found["step"] == found["restored_step"] + 1 and found["restarts"] >= 1, found
    assert names(said) >= files and look in said["look"], said
    hide = next(n for n, line in enumerate(SOLVER.splitlines(), 1) if "hide" in line)
    assert found["at_a"] == found["at_b"] == f"solver.py:{hide}"
    assert "values differ" in found["text"]  # which and by how much, as the sets are kept
    if mistake == "statistics":
        assert names(said) == files and set(said["ledger"]["names"]) == files


MISSED = {  # what the program does in each step to a file that it has since before the first, and the line to write
    "rows are added": ("open('log.txt', 'a').write(f'{{step}} {{u}}\\n')", "list log.txt append (it has only"),
    "changed in place": (
        "f = open('log.txt', 'r+' if __import__('os').path.exists('log.txt') else 'w'); "
        "f.seek(4 * step); f.write(f'{{step:3}}.'); f.close()",
        "list log.txt copy",
    ),
}


@pytest.mark.parametrize("how", MISSED)
def test_what_hide_alone_does_to_a_program_is_told_without_a_kill(tmp_path: Path, how: str) -> None:
    """The reference is the program whose files no `hide` moves: A, B and C alike have one row of 24."""
    inside, line = MISSED[how]
    directory = planted(tmp_path / "w", inside=inside.format(), manifest="u.txt\nrng.txt\nmean.txt\nlog.txt optional\n")
    said = try_out(directory, tmp_path)
    assert (said["verdict"], said["code"]) == ("differs without a kill", 1), said
    assert [file["path"] for file in said["files"]] == ["log.txt"] and not said["kills"]
    done = safepoint(directory, "crash-test", "--kills", "1", "--", sys.executable, "solver.py")
    assert f"\n{line}" in done.stdout, done.stdout


def test_a_program_that_fails_after_a_restart_is_told_with_its_last_words(tmp_path: Path) -> None:
    said = try_out(planted(tmp_path / "w", after_restore="sys.exit('no such field')"), tmp_path)
    assert (said["verdict"], said["code"]) == ("fails after a restart", 1), said
    assert "no such field" in said["text"]


def test_a_program_that_never_restores_is_no_proof(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w")
    text = (directory / "solver.py").read_text()
    text = text.replace(
        "saved = safepoint.restore()", "import shutil; shutil.rmtree('.safepoint.d', True)\nsaved = None"
    )
    (directory / "solver.py").write_text(
        text.replace("safepoint.init()", "").replace("rng = ", "safepoint.init()\nrng = ")
    )
    said = try_out(directory, tmp_path)
    assert (said["verdict"], said["code"]) == ("no restart", 2), said


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ((sys.executable, "-c", "raise SystemExit('broken input')"), "broken input"),
        ((sys.executable, "-c", "pass"), "no ledger"),
    ],
)
def test_an_undisturbed_run_that_fails_or_saves_nothing_is_no_verdict(
    tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    said = try_out(planted(tmp_path / "w"), tmp_path, command=command)
    assert (said["verdict"], said["code"]) == ("no run", 2) and text in said["text"], said


def test_bad_calls_are_refused_and_change_nothing(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w")
    before = sorted(os.listdir(directory))
    for arguments, text in (
        (("--tolerance", "u", "--", "x"), "must be NAME=RTOL"),
        (("--", str(directory / "solver.py")), "in copies of it"),
        (("--", "x", f"--dir={directory}"), "in copies of it"),
        (("--", "no-such-program"), "cannot start no-such-program"),
        (("--work", str(directory / "runs"), "--", "x"), "name a place elsewhere"),
    ):
        done = safepoint(directory, "crash-test", *arguments)
        assert done.returncode not in (0, 1) and text in done.stderr + done.stdout, done
    assert sorted(os.listdir(directory)) == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: it dies with its parent")
def test_a_test_that_is_ended_leaves_nothing_running_and_no_copies(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w", inside="time.sleep(0.5)")
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "safepoint", "crash-test", "--", sys.executable, "solver.py"]
    with subprocess.Popen(words, cwd=directory, env=environment, stderr=subprocess.DEVNULL) as test:
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("safepoint-crash-test-*/A/.safepoint.d/rank-00000/set-*/record.json")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        owner = json.loads(
            next(tmp_path.glob("safepoint-crash-test-*/A/.safepoint.d/rank-00000/owner.json")).read_text()
        )
        test.terminate()
        assert test.wait(300) == 143
    assert not list(tmp_path.glob("safepoint-crash-test-*")) and not Path(f"/proc/{owner['pid']}").exists()


@pytest.mark.proof
def test_the_report_reads_well_and_what_is_equal_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "COLUMNS": "80", "TMPDIR": str(tmp_path)}
    for plant, begin in (({}, "equal: resumed"), ({"after_restore": "before = u"}, "differs: a run")):
        directory = planted(tmp_path / "w", **plant)
        done = subprocess.run(
            [sys.executable, "-m", "safepoint", "crash-test", "--kills", "3", "--seed", "2", "--", sys.executable,
             "solver.py"],
            cwd=directory, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout.startswith(begin), done
        assert "kill 2 of 3: all processes" in done.stderr
        assert not plant or all(f"\n{part}" in done.stdout for part in ("first difference: step", "where to look:"))
        left = [name for name in os.listdir(tmp_path) if name.startswith("safepoint-crash-test")]
        assert len(left) == bool(plant)
        assert max(map(len, done.stdout.splitlines())) <= 80 or plant
