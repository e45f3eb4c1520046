"""`safepoint threads test` on a program that leaves the traces that a test wants: what is said, and the exit code."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from testbed import threads_fake
from testbed.threads_chain import command, inside, written
from testbed.traced_threads import compiled

from safepoint.errors import UsageError
from safepoint.threads import runs, telling
from safepoint.threads.compare import Rules
from safepoint.threads.passes import Outcome, Passes, Plan

# `safepoint threads test` on a program that leaves the traces that a test wants: what is said, and the exit code.


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the two programs."""
    monkeypatch.chdir(tmp_path)
    for name in ("heat", "heat.serial"):
        text = Path(threads_fake.__file__).read_text("utf-8")
        written(tmp_path, name, f"#!{sys.executable} -S\n{text.partition(chr(10))[2]}").chmod(0o755)
    (tmp_path / "traces").mkdir()
    return tmp_path


@pytest.fixture
def here(programs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, but they run in this process."""

    def run(name: str, command: list[str], variables: dict[str, str], trace: Path, limit: object) -> runs.Ran:
        output = trace.with_name(f"{trace.name}.out")
        for old in runs._traces(trace).values():
            shutil.rmtree(old)
        with inside(programs, {**os.environ, **variables, "SP_DIR": str(trace)}), open(output, "w") as file:
            monkeypatch.setattr(sys, "argv", command)
            with contextlib.redirect_stdout(file):
                threads_fake.main()
        output.with_suffix(".err").touch()
        return runs.Ran(name, 0.0, 0, runs._traces(trace), output)

    monkeypatch.setattr(runs, "run", run)
    return programs


def outcome(here: Path, monkeypatch: pytest.MonkeyPatch, fake: str, **plan: object) -> Outcome:
    monkeypatch.setenv("FAKE", fake)
    return Passes(["./heat", "in.nml"], here / "traces", Rules(), Plan(**plan), lambda text: None).run()  # type: ignore[arg-type]


def test_the_region_that_differs_is_traced_and_the_line_is_found(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "b2 traced")
    assert (found.code, found.verdict) == (1, "differs")
    assert "first difference: region 2, heat.f90:3-5, u" in found.lines[0]
    assert found.lines[1].startswith("pass 2, all reads and writes of region 2:")
    assert "heat.f90:4=write u(1) 1.0" in found.lines[2] and "write u(1) 2.0" in found.lines[2]
    assert [each["pass"] for each in found.passes] == [1, 2]


@pytest.mark.parametrize(
    ("plan", "last"),
    [({}, "try --runs 5 --noise 50"), ({"runs": 5}, "optimiser; try --noise 50"),
     ({"runs": 5, "noise": 50}, "; ThreadSanitizer is the next step")],
)  # fmt: skip
def test_what_differs_by_digest_alone_is_a_race_or_the_optimiser(
    here: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, int], last: str
) -> None:
    """What was used is not the next step."""
    found = outcome(here, monkeypatch, "b2", **plan)
    assert found.code == 1
    assert "region 2 differs by digest, and not when it is traced: a race, or the optimiser" in found.lines[-1]
    assert found.lines[-1].endswith(last)


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


def test_two_equal_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if A is run twice first."""
    for control in (False, True):
        found = outcome(here, monkeypatch, "", control=control)
        assert (found.code, found.verdict) == (0, "equal")
        assert "2 regions;  no difference" in found.lines[0]
        assert found.lines[1:] == ["Completed comparing. No inconsistencies detected."]


def test_without_traces_nothing_is_equal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(here, monkeypatch, "none")
    assert (found.code, found.verdict) == (2, "no trace") and "A has left no trace" in found.lines[-1]


@pytest.mark.parametrize(
    ("how", "text"),
    [("kill", "B was killed by signal 9 (SIGKILL)"), ("fail", "B ended with status 3:\n    it is all wrong"),
     ("hang", "B did not end in time, and was killed")],
)  # fmt: skip
def test_a_run_that_ends_badly_is_told(programs: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str) -> None:
    """The limit of a run that hangs is over when it has left its trace, and no sooner."""
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is not None and process.args[0] == "./heat":  # type: ignore[index]
            while "sum" not in (programs / "traces" / "B-1.out").read_text():
                time.sleep(0.01)
        return real(process, None if process.args[0] != "./heat" else timeout and 0.01)  # type: ignore[index]

    if how == "hang":
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
    found = outcome(programs, monkeypatch, how, limit=600.0)
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


def said(here: Path, fake: str, *words: str) -> Result:
    return command(here, "test", *words, "--", "./heat", FAKE=fake)


def test_the_command_has_the_exit_codes_and_json(programs: Path) -> None:
    done = said(programs, "b2 traced", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, done.stderr, found["code"], found["verdict"]) == (1, "", 1, "differs")
    assert found["difference"]["a"]["value"] == "1.0" and found["difference"]["region"] == 2
    assert [each["level"] for each in found["passes"]] == ["minimal", "full"]


def test_a_tolerance_may_be_given(here: Path) -> None:
    (here / "heat.sites.jsonl").write_text("{}\n")  # of a program in Fortran, without a reduction
    assert [said(here, "sum=1.5,1.5001", "--rtol", each).exit_code for each in ("1e-3", "1e-6")] == [0, 1]


def test_traces_stay_where_they_are_asked_for(here: Path) -> None:
    assert said(here, "", "--keep", "kept").exit_code == 0
    assert {"A-1", "B-1", "A-1.out", "B-1.err"} <= set(os.listdir(here / "kept"))
    again = said(here, "", "--keep", "kept")
    assert again.exit_code == 10 and "kept is there already" in again.stderr


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [("--tolerance", "u=much", "NAME=RTOL"), ("--rtol", "-1", "must be 0 or more"),
     ("--atol", "nan", "must be 0 or more"),
     ("--tolerance", "u=-1e-3", "a tolerance must be 0 or more")],
)  # fmt: skip
def test_a_tolerance_that_is_none_is_refused(here: Path, option: str, value: str, why: str) -> None:
    done = said(here, "", option, value)
    assert done.exit_code == 10 and why in done.stderr


def test_a_name_that_fits_nothing_is_told(here: Path) -> None:
    done = said(here, "", "--exclude", "v", "--tolerance", "w=1", "--exclude", "u")
    assert "--exclude v fits no variable of this program" in done.stdout
    assert "--tolerance w fits no variable" in done.stdout and "--exclude u" not in done.stdout


@pytest.mark.parametrize(
    ("verb", "word", "near"), [("test", "--nois", "--noise"), ("build", "--setting=x", "--settings")]
)
def test_a_misspelt_option_is_no_program(here: Path, verb: str, word: str, near: str) -> None:
    done = command(here, verb, word, "5", "--", "./heat")
    assert done.exit_code == 10 and f"No such option: {word[: len(near) + 1].partition('=')[0]}." in done.stderr
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


# What the user's environment says of recording, and what a run says that leaves no trace.

TAKES = "takes a number, with K, M, G or T after it or without"


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program that records one loop; both its variants are the same."""
    monkeypatch.chdir(tmp_path)
    for name in ("chain", "chain.serial"):
        (tmp_path / name).write_bytes(compiled("chain.c").read_bytes())
        (tmp_path / name).chmod(0o755)
    (tmp_path / "traces").mkdir()
    return tmp_path


def chained(chain: Path) -> Outcome:
    return Passes(["./chain", "10", "1"], chain / "traces", Rules(), Plan(), lambda text: None).run()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SP_MAX", "abc", f"safepoint: SP_MAX=abc: {TAKES}; no trace is written"),
        ("SP_EDGES", "two", f"safepoint: SP_EDGES=two: {TAKES}; no trace is written"),
    ],
)
def test_a_run_without_a_trace_is_told_with_what_the_program_said(
    chain: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = chained(chain)
    assert (found.code, found.verdict) == (2, "no trace")
    assert found.lines[-1] == f"A has left no trace, so nothing can be compared; it said\n    {said}"


def test_what_holds_for_one_program_by_itself_is_not_given_to_the_runs(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SP_AHEAD would wait for a reader that nobody started, and visits are chosen by pass 2."""
    for name in ("SP_AHEAD", "SP_REGIONS", "SP_NOISE", "SP_SEED", "SP_MAX"):
        monkeypatch.setenv(name, "3")
    a, b = (runs.environment(side, "full", SP_REGIONS="7") for side in "AB")
    assert (a["SP_AHEAD"], a["SP_REGIONS"], a["SP_NOISE"], a["SP_SEED"]) == ("", "7", "", "")
    assert (b["SP_AHEAD"], b["SP_REGIONS"], "SP_NOISE" in b, "SP_MAX" in b) == ("", "7", False, False)
    monkeypatch.delenv("SP_MAX")
    assert chained(chain).verdict == "no region"  # it ended, with a trace of loops alone
