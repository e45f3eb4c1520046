"""What the user's environment says of recording, and what a run says that leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.traced_threads import compiled

from safepoint.threads import runs
from safepoint.threads.compare import Rules
from safepoint.threads.passes import Outcome, Passes, Plan

TAKES = "takes a number, with K, M, G or T after it or without"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program that records one loop; both its variants are the same."""
    monkeypatch.chdir(tmp_path)
    for name in ("chain", "chain.serial"):
        (tmp_path / name).write_bytes(compiled("chain.c").read_bytes())
        (tmp_path / name).chmod(0o755)
    (tmp_path / "traces").mkdir()
    return tmp_path


def outcome(here: Path) -> Outcome:
    return Passes(["./chain", "10", "1"], here / "traces", Rules(), Plan(), lambda text: None).run()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SP_MAX", "abc", f"safepoint: SP_MAX=abc: {TAKES}; no trace is written"),
        ("SP_EDGES", "two", f"safepoint: SP_EDGES=two: {TAKES}; no trace is written"),
    ],
)
def test_a_run_without_a_trace_is_told_with_what_the_program_said(
    here: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = outcome(here)
    assert (found.code, found.verdict) == (2, "no trace")
    assert found.lines[-1] == f"A has left no trace, so nothing can be compared; it said\n    {said}"


def test_what_holds_for_one_program_by_itself_is_not_given_to_the_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SP_AHEAD would wait for a reader that nobody started, and visits are chosen by pass 2."""
    for name in ("SP_AHEAD", "SP_REGIONS", "SP_NOISE", "SP_SEED", "SP_MAX"):
        monkeypatch.setenv(name, "3")
    a, b = (runs.environment(side, "full", SP_REGIONS="7") for side in "AB")
    assert (a["SP_AHEAD"], a["SP_REGIONS"], a["SP_NOISE"], a["SP_SEED"]) == ("", "7", "", "")
    assert (b["SP_AHEAD"], b["SP_REGIONS"], "SP_NOISE" in b, "SP_MAX" in b) == ("", "7", False, False)
    monkeypatch.delenv("SP_MAX")
    assert outcome(here).verdict == "no region"  # it ended, with a trace of loops alone
