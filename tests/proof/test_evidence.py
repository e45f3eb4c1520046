"""`make crash` says at once what fails, and keeps what it has: `evidence.py` with a few tests, those of `a_few.py`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from testbed import evidence, outcomes
from testbed.paths import TESTS

FAILED = ["test_that_fails", "test_that_fails_when_it_has_passed"]


class Run:
    """A `make crash` of these tests, one of which waits until it is let go."""

    def __init__(self, where: Path, *names: str) -> None:
        self.gate, self.target = where / "gate", where / "evidence.md"
        os.mkfifo(self.gate)
        self.target.write_text("of a whole run\n")
        environment = {**os.environ, "SAFEPOINT_GATE": str(self.gate)}
        tests = tuple("::".join(("testbed/a_few.py", *name.split())) for name in names or [""])
        program = f"""if True:
            import sys, pathlib
            from testbed import evidence
            evidence.TARGET, evidence.ASIDE = pathlib.Path({str(self.target)!r}), pathlib.Path({str(where / "build")!r})
            evidence.TESTS = {tests!r}
            sys.exit(evidence.main())"""
        command = [sys.executable, "-u", "-c", program]
        self.process = subprocess.Popen(
            command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        first = self.line("what became of each test")
        self.directory = Path(first.split(": ")[1]).parent
        self.pytest = 0

    def line(self, pattern: str) -> str:
        """The next line of output that has this in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if re.search(pattern, line):
                return line.strip()
        raise AssertionError(f"it ended without {pattern}: {self.process.communicate()}")

    def until_one_waits(self) -> None:
        """Both failures have been printed; what waits is under way; so nothing else can happen."""
        names = {self.line("^FAILED ").split("::")[1] for _ in FAILED}
        assert names == set(FAILED)
        (pid,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.pytest = int(pid)
        while (found := self.outcomes()).passed < 1 or not found.left_out or not found.under_way:
            assert self.process.poll() is None

    def outcomes(self) -> outcomes.Outcomes:
        return outcomes.read(self.directory / "outcomes")

    def let_go(self) -> None:
        with open(self.gate, "w"):
            pass

    def ended(self) -> tuple[int, str]:
        """Its exit status, and its errors."""
        self.rest, errors = self.process.communicate(timeout=500)
        return self.process.returncode, errors

    def end(self) -> None:
        self.process.kill()
        if self.pytest:
            with suppress(ProcessLookupError):
                os.killpg(self.pytest, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with contextlib.ExitStack() as on_exit:
        run = Run(tmp_path)
        on_exit.callback(run.end)
        yield run


def names(found: list[str]) -> list[str]:
    return sorted(name.split("::")[1] for name in found)


def page(run: Run) -> str:
    text = (run.directory / "evidence.md").read_text()
    assert "| kills at random instants | none, in fact | 7 |" in text, text
    assert all(re.search(rf"^- failed: `.*::{name}`$", text, re.M) for name in FAILED), text
    return text


def test_failures_are_named_while_other_tests_still_run(run: Run) -> None:
    """Half an hour later they may be lost. A test whose fixture fails at its end is one that fails."""
    run.until_one_waits()
    run.let_go()
    status, errors = run.ended()
    assert status == 1 and "tests were left out: " in errors and f"{run.directory / 'evidence.md'} has what" in errors
    assert "**Violations: 2.** 2 tests passed, 1 were left out." in page(run)
    assert run.target.read_text() == "of a whole run\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_keeps_what_it_has_counted(run: Run, number: signal.Signals) -> None:
    """Ctrl-C, or the end of the time: not in docs/evidence.md, which is of a whole run."""
    run.until_one_waits()
    run.process.send_signal(number)
    status, errors = run.ended()
    assert status == 128 + number, errors
    assert "the tests were interrupted: " in errors and f"{run.directory / 'evidence.md'} has what they did" in errors
    text = page(run)
    assert "**Violations: 2.** 1 tests passed, 1 were left out, of 5: the run was interrupted." in text, text
    assert re.search("^- under way when it ended: `.*::test_that_waits`$", text, re.M), text
    assert run.target.read_text() == "of a whole run\n"
    assert "short test summary info" in run.rest, "pytest could not end as it does"
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pytest, 0)


@pytest.mark.parametrize(("failing", "status"), [((), 0), (("test_that_fails",), 1)])
def test_a_whole_run_is_written_down_whether_it_found_something_or_not(
    tmp_path: Path, failing: tuple[str, ...], status: int
) -> None:
    """A violation like a success. What is aside stays only as long as somebody needs it."""
    run = Run(tmp_path, "test_that_passes", *failing)
    assert run.ended() == (status, "")
    text = run.target.read_text()
    assert f"**Violations: {len(failing)}.** 1 tests passed, 0 were left out." in text, text
    assert run.directory.exists() == bool(failing)


def test_killed_it_has_written_down_what_became_of_each_test(run: Run) -> None:
    """Nothing can be done at a SIGKILL; so all of it has been done before."""
    run.until_one_waits()
    run.process.kill()
    found = run.outcomes()
    assert names(found.failed) == FAILED and found.passed == 1 and list(found.left_out) == ["left out on purpose"]
    assert names(found.under_way) == ["test_that_waits"] and found.collected == 5
    assert "on purpose" in (run.directory / "outcomes").read_text(), "the text of the failure"
    assert evidence.read_tally(run.directory / "tally")[0]["number"] == 7
