"""`safepoint threads test` on a program that leaves the traces that a test wants: what is said, and the exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed import threads_fake

from safepoint.errors import UsageError
from safepoint.threads import telling
from safepoint.threads.compare import Rules
from safepoint.threads.passes import Outcome, Passes, Plan


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the two programs."""
    monkeypatch.chdir(tmp_path)
    for name in ("heat", "heat.serial"):
        text = Path(threads_fake.__file__).read_text("utf-8")
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text.partition(chr(10))[2]}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "traces").mkdir()
    return tmp_path


def outcome(here: Path, monkeypatch: pytest.MonkeyPatch, fake: str, **plan: object) -> Outcome:
    monkeypatch.setenv("FAKE", fake)
    return Passes(["./heat", "in.nml"], here / "traces", Rules(), Plan(**plan), lambda text: None).run()  # type: ignore[arg-type]


def test_two_equal_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "")
    assert (found.code, found.verdict) == (0, "equal")
    assert "2 regions;  no difference" in found.lines[0]
    assert found.lines[1:] == ["Completed comparing. No inconsistencies detected."]


def test_the_region_that_differs_is_traced_and_the_line_is_found(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2 traced")
    assert (found.code, found.verdict) == (1, "differs")
    assert "first difference: region 2, heat.f90:3-5, u" in found.lines[0]
    assert found.lines[1].startswith("pass 2, all reads and writes of region 2:")
    assert "heat.f90:4=write u(1) 1.0" in found.lines[2] and "write u(1) 2.0" in found.lines[2]
    assert [each["pass"] for each in found.passes] == [1, 2]


def test_what_differs_by_digest_alone_is_a_race_or_the_optimiser(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2")
    assert found.code == 1
    assert "region 2 differs by digest, and not when it is traced: a race, or the optimiser" in found.lines[-1]
    assert found.lines[-1].endswith("try --runs 5 --noise 50")


@pytest.mark.parametrize(
    ("plan", "last"),
    [({"runs": 5}, "optimiser; try --noise 50"), ({"runs": 5, "noise": 50}, "; ThreadSanitizer is the next step")],
)
def test_what_was_used_is_not_the_next_step(
    here: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, int], last: str
) -> None:
    assert outcome(here, monkeypatch, "b2", **plan).lines[-1].endswith(last)


def test_an_earlier_region_may_differ_in_pass_2_which_is_traced_then_too(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race is in another visit each time; what follows from it is not told as the first difference."""
    found = outcome(here, monkeypatch, "b2 traced b1.1")
    assert found.code == 1 and found.lines[1].startswith("pass 2, all reads and writes of regions 1, 2:")
    assert "(run 2 of B)" in found.lines[1] and "heat.f90:4=write u(1) 1.0" in found.lines[2], found.lines
    assert "until there 1 region equal" in found.lines[3], found.lines


def test_an_earlier_region_that_differs_in_the_last_run_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2 traced.3 b1.3")
    assert found.code == 1 and "digest u" in found.lines[2], found.lines
    assert "region 1 (heat.f90:3)" in found.lines[3] and "until there 0 regions equal" in found.lines[3], found.lines


def test_b_runs_until_it_differs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2.3 traced", runs=5)
    assert found.code == 1 and "(run 3 of 5)" in found.lines[0]


def test_a_program_that_is_not_deterministic_is_not_judged(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "random", control=True)
    assert (found.code, found.verdict) == (2, "not deterministic")
    assert "two runs of A, without OpenMP, differ too" in found.lines[-1]


def test_a_deterministic_program_passes_the_control(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(here, monkeypatch, "", control=True).code == 0


def test_without_traces_nothing_is_equal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "none")
    assert (found.code, found.verdict) == (2, "no trace") and "A has left no trace" in found.lines[-1]


@pytest.mark.parametrize(
    ("how", "text"),
    [("kill", "B was killed by signal 9 (SIGKILL)"), ("fail", "B ended with status 3:\n    it is all wrong"),
     ("hang", "B did not end in time, and was killed")],
)  # fmt: skip
def test_a_run_that_ends_badly_is_told(here: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str) -> None:
    found = outcome(here, monkeypatch, how, limit=3.0)
    assert found.code == 1
    assert any(line.startswith(text) for line in found.lines), found.lines
    assert "end in different ways" in found.lines[-1]


def test_too_many_events_are_recorded_without_reads(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2 traced much")
    assert found.code == 1 and found.passes[1]["level"] == "modify"
    assert found.lines[1].startswith("pass 2, all writes of region 2:")


def test_the_rank_that_differs_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "ranks b2 traced")
    assert found.code == 1 and found.rank == "-1"
    assert "rank 1, first difference: region 2" in found.lines[0] and found.lines[2].startswith("rank 1, Incons")


def test_other_words_on_the_screen_are_told_and_are_no_difference(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "prints")
    assert found.code == 0
    assert found.lines[-1] == "what they print differs, though: line 1, A: done, B: other"


@pytest.mark.parametrize(
    ("numbers", "rtol", "code"),
    [("1.5,1.5001", 0.0, 1), ("1.5,1.5001", 1e-3, 0), ("0.123456,0.123457", 0.0, 1), ("0.123456,0.123457", 1e-12, 0),
     ("1.00,1.01", 1e-12, 1), ("1d0,1.0", 0.0, 0), ("NaN,NaN", 0.0, 0), ("1,NaN", 1e-3, 1),
     ("1.50eV,1.99eV", 0.0, 1), ("100m,200m", 0.0, 1), ("2.5kJ,2.500kJ", 0.0, 0), ("0.1000-101,0.1000-102", 0.0, 1),
     ("0.1000-101,0.1E-101", 0.0, 0), ("T,F", 1e-3, 1), ("x1,x2", 0.0, 0)],
)  # fmt: skip
def test_numbers_on_the_screen_count_beyond_the_tolerance(
    here: Path, monkeypatch: pytest.MonkeyPatch, numbers: str, rtol: float, code: int
) -> None:
    monkeypatch.setenv("FAKE", f"sum={numbers}")
    (here / "heat.sites.jsonl").write_text("{}\n")  # of a program in Fortran, without a reduction
    found = Passes(["./heat"], here / "traces", Rules(rtol=rtol), Plan(), lambda text: None).run()
    assert (found.code, found.verdict) == (code, "differs" if code else "equal")
    if code:
        a, b = numbers.split(",")
        assert f"what they print differs: line 2, A: sum {a}, B: sum {b}" in found.lines
        assert "the place is not known" in found.lines[-1] and telling.EQUAL not in found.lines


def test_of_calls_by_hand_nobody_knows_whether_threads_make_sums(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "sum=2.296594635430471e-03,2.296594635430470e-03")
    found = Passes(["./heat"], here / "traces", Rules(), Plan(), lambda text: None).run()
    assert found.code == 0 and "by rounding alone" in found.lines[-1]


def test_numbers_that_are_others_in_each_run_do_not_count(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "clock")
    assert found.code == 0
    assert found.lines[-1] == "what they print differs only where two runs of A do, too"


def test_a_program_without_its_other_half_is_refused_with_what_to_do(here: Path) -> None:
    (here / "heat.serial").unlink()
    with pytest.raises(UsageError, match="safepoint threads build -o heat"):
        Passes(["./heat"], here, Rules(), Plan(), print)


def command(here: Path, fake: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "safepoint", "threads", "test", *words, "--", "./heat"]
    return subprocess.run(line, cwd=here, capture_output=True, text=True, env={**os.environ, "FAKE": fake})


def test_the_command_has_the_exit_codes_and_json(here: Path) -> None:
    done = command(here, "b2 traced", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, found["code"], found["verdict"]) == (1, "", 1, "differs")
    assert found["difference"]["a"]["value"] == "1.0" and found["difference"]["region"] == 2
    assert [each["level"] for each in found["passes"]] == ["minimal", "full"]


def test_traces_stay_where_they_are_asked_for(here: Path) -> None:
    assert command(here, "", "--keep", "kept").returncode == 0
    assert {"A-1", "B-1", "A-1.out", "B-1.err"} <= set(os.listdir(here / "kept"))
    again = command(here, "", "--keep", "kept")
    assert again.returncode == 10 and "kept is there already" in again.stderr


def test_a_tolerance_that_is_none_is_refused(here: Path) -> None:
    done = command(here, "", "--tolerance", "u=much")
    assert done.returncode == 10 and "NAME=RTOL" in done.stderr


@pytest.mark.parametrize("words", [["--rtol", "-1"], ["--atol", "nan"], ["--tolerance", "u=-1e-3"]])
def test_a_tolerance_below_zero_is_refused(here: Path, words: list[str]) -> None:
    done = command(here, "", *words)
    assert done.returncode == 10 and "a tolerance must be 0 or more" in done.stderr


def test_a_name_that_fits_nothing_is_told(here: Path) -> None:
    done = command(here, "", "--exclude", "v", "--tolerance", "w=1", "--exclude", "u")
    assert "--exclude v fits no variable of this program" in done.stdout
    assert "--tolerance w fits no variable" in done.stdout and "--exclude u" not in done.stdout


@pytest.mark.parametrize(
    ("verb", "word", "near"), [("test", "--nois", "--noise"), ("build", "--setting=x", "--settings")]
)
def test_a_misspelt_option_is_no_program(here: Path, verb: str, word: str, near: str) -> None:
    line = [sys.executable, "-m", "safepoint", "threads", verb, word, "5", "--", "./heat"]
    done = subprocess.run(line, cwd=here, capture_output=True, text=True)
    assert done.returncode == 10 and f"No such option: {word[: len(near) + 1].partition('=')[0]}." in done.stderr
    assert f"Did you mean {near}?" in done.stderr


@pytest.mark.parametrize("package", ["numpy", "fparser"])
def test_a_package_that_is_missing_is_told_in_one_line(here: Path, package: str) -> None:
    """As where only the command line is installed."""
    (here / "none").mkdir()
    (here / "none" / f"{package}.py").write_text(f"raise ModuleNotFoundError('gone', name={package!r})\n")
    (here / "x.f90").write_text("program x\nend program x\n")
    words = ["build", "--", "gfortran", "-fopenmp", "x.f90"] if package == "fparser" else ["compare", "none", "none"]
    if package == "fparser" and not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    line, variables = [sys.executable, "-m", "safepoint", "threads", *words], {"PYTHONPATH": str(here / "none")}
    done = subprocess.run(line, cwd=here, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 10 and done.stderr.count("\n") == 1
    assert f"{package} is missing" in done.stderr and ".[fortran]" in done.stderr
