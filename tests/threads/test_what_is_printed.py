"""What a program prints may differ in a right one: times, numbers of threads, lines of OpenMP alone, and their order.
And a race that shows there alone is never taken for equal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran, screen, verdicts
from safepoint.threads.choices import Choices
from safepoint.threads.shown import Shown

HEAD = """\
program p
  !$ use omp_lib
  implicit none
  integer :: i, n, tid
  real(8) :: t, s, v(9)
  character(40) :: line
  n = 1
  t = 0
  !$ n = omp_get_max_threads()
  !$ t = omp_get_wtime()
"""
TAIL = """
end program p
"""


def shown(body: str, directory: Path) -> list[Shown]:
    source = directory / "p.f90"
    source.write_text(HEAD + body + TAIL)
    modules: dict[str, object] = {}
    fortran.survey([(source, Choices())], modules)  # type: ignore[arg-type]
    return screen.survey(modules)


class Case(NamedTuple):
    """`a`, `b`: what is printed, lines between bars; `again`: by another run of B, if not the same."""

    body: str
    a: str
    b: str
    code: int
    again: str = ""


SUM = "print *, 'sum', s\n"
LOOP = "!$omp parallel do\ndo i = 1, 3\n  print *, 'step', i, v(i)\nend do\n"
CASES = {
    "only OpenMP": Case("!$ print *, 'threads', n\n" + SUM, " sum 5.0", " threads 4| sum 5.0", 0),
    "only OpenMP, in a block": Case(
        "if (n > 1) then\n  print *, 'many', n\nelse\n  print *, 'one'\nend if\n" + SUM,
        " one| sum 5.", " many 4| sum 5.", 0
    ),
    "only OpenMP, and a wrong sum": Case("!$ print *, 'threads', n\n" + SUM, " sum 5.0", " threads 4| sum 6.0", 1),
    "only OpenMP, a number alone, as the other": Case("!$ print *, t\nprint *, s\n", " 5.0", " 4.5| 5.0", 2),
    "a time": Case("print *, 'time', t, s\n", " time 0.0 5.0", " time 7.1 5.0", 0, " time 7.2 5.0"),
    "a time, and a wrong number": Case("print *, 'time', t, s\n", " time 0.0 5.0", " time 7.1 6.0", 2, " time 7.2 6.0"),
    "a time, and a race": Case("print *, 'time', t, s\n", " time 0.0 5.0", " time 7.1 6.0", 2, " time 7.2 7.0"),
    "a time with a format": Case(
        "write (*, '(a, f8.3, \" s\")') 'time ', t\n", "time    0.000 s", "time    7.100 s", 0, "time    7.200 s"
    ),
    "a time alone, as another number": Case("print *, t\nprint *, s\n", " 0.0| 5.0", " 7.1| 5.0", 2, " 7.2| 5.0"),
    "a time in a text": Case("write (line, *) t\nprint *, line\n", " 0.0", " 7.1", 2, " 7.2"),
    "number of threads": Case("print *, 'threads', n, s\n", " threads 1 5.0", " threads 4 5.0", 0),
    "without a new line": Case(
        "write (*, '(a)', advance='no') 'n '\nwrite (*, '(i0)') n\n", "n 1", "n 4", 2
    ),
    "a sum beside a time": Case("print *, 'time', t\n" + SUM, " time 0.0| sum 5.0", " time 7.1| sum 6.0", 1),
    "in a loop": Case(LOOP, " step 1 1.0| step 2 2.0| step 3 3.0", " step 3 3.0| step 1 1.0| step 2 2.0", 0),
    "in a loop, a wrong number": Case(LOOP, " step 1 1.0| step 2 2.0", " step 2 9.0| step 1 1.0", 1),
    "in a loop, a line is missing": Case(LOOP, " step 1 1.0| step 2 2.0", " step 2 2.0", 1),
    "in a loop, and others in order": Case(LOOP + SUM + SUM, " step 1 1.0| sum 5.0| sum 6.0",
                                           " step 1 1.0| sum 6.0| sum 5.0", 2),
    "in a procedure that a loop calls": Case(
        "!$omp parallel do\ndo i = 1, 3\n  call show(i)\nend do\ncontains\nsubroutine show(k)\n  integer :: k\n"
        "  print *, 'k', k\nend subroutine show", " k 1| k 2", " k 2| k 1", 0
    ),
    "by each thread": Case(
        "!$omp parallel private(tid)\ntid = 0\n!$ tid = omp_get_thread_num()\nprint *, 'I am', tid\n"
        "!$omp end parallel\n",
        " I am 0", " I am 1| I am 0", 0
    ),
    "by each thread, another number": Case(
        "!$omp parallel\nprint *, 'sum', s\n!$omp end parallel\n", " sum 5.0", " sum 5.0| sum 4.0", 2
    ),
    "by the first thread": Case(
        "!$omp parallel private(tid)\ntid = 0\n!$ tid = omp_get_thread_num()\nif (tid == 0) print *, 'sum', s\n"
        "!$omp end parallel\n", " sum 5.0", " sum 4.0", 1
    ),
    "a race": Case(SUM, " sum 5.0", " sum 4.0", 2, " sum 3.0"),
    "a mistake": Case(SUM, " sum 5.0", " sum 4.0", 1),
}  # fmt: skip


def verdict(monkeypatch: pytest.MonkeyPatch, found: list[Shown], given: Case, unknown: list[str],
            others: str = "") -> verdicts.Verdict:  # fmt: skip
    def again(side: str, threads: int = 0) -> list[str]:
        return (given.a if side == "A" else others if threads and others else given.again or given.b).split("|")

    monkeypatch.setattr(verdicts.runs, "shown", lambda a: found)
    monkeypatch.setattr(verdicts.runs, "unknown", lambda a: unknown)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    judge = verdicts.Screen([], 0.0, 0.0, again, ranks=False)
    judge.first(given.a.split("|"), given.b.split("|"))
    return judge.verdict()


@pytest.mark.parametrize("name", CASES)
def test_what_differs_counts_unless_it_is_known_why_it_may(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = CASES[name]
    found = shown(given.body, tmp_path)
    code, _, said = verdict(monkeypatch, found, given, [])
    assert code == given.code, (said, found)
    assert code != 2 or said[1].startswith("Cannot tell: ")
    assert code != 0 or "does not count" in said[0]


def test_what_two_runs_of_b_print_differently_is_said_to_be_a_race_or_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, how, said = verdict(monkeypatch, shown(SUM, tmp_path), CASES["a race"], [])
    assert (code, how) == (2, "not deterministic")
    assert said[0] == "what they print differs: line 1, A:  sum 5.0, B:  sum 4.0"
    assert "two runs of B print other numbers there" in said[1] and "--runs 5 --noise 50" in said[1]


def test_a_number_of_threads_that_came_by_ways_nobody_knows_is_no_mistake_for_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = Case("", "n 1| sum 5", "n 4| sum 5", 2)
    code, _, said = verdict(monkeypatch, [], given, [], others="n 3| sum 5")
    assert code == 2 and "how many threads there are" in said[1]
    assert verdict(monkeypatch, [], given, [], others="n 2| sum 5")[0] == 1


def test_of_a_source_that_nobody_reads_it_may_be_made_of_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Case("", "chunk 100", "chunk 25", 2)
    code, _, said = verdict(monkeypatch, [], given, ["x.c"], others="chunk 33")
    assert code == 2 and "with 3 threads B prints other numbers" in said[1] and "x.c" in said[1]
    assert verdict(monkeypatch, [], given, ["x.c"], others="chunk 25")[0] == 1
    assert verdict(monkeypatch, [], given, [], others="chunk 33")[0] == 1


def test_lines_of_ranks_are_in_an_order_of_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_again: Callable[..., list[str]] = lambda side, threads=0: []  # noqa: E731
    monkeypatch.setattr(verdicts.runs, "shown", lambda a: [])
    monkeypatch.setattr(verdicts.runs, "unknown", lambda a: [])
    judge = verdicts.Screen([], 0.0, 0.0, judge_again, ranks=True)
    assert judge.first(["rank 0", "rank 1"], ["rank 1", "rank 0"]) is None


def test_thousands_of_lines_in_another_order_that_differ_by_rounding_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f" step {i} {i + 0.123456}" for i in range(3000)]
    other = [f" step {i} {i + 0.123456 * (1 + 1e-9)}" for i in reversed(range(3000))]
    monkeypatch.setattr(verdicts.runs, "shown", lambda a: shown(LOOP, tmp_path))
    judge = verdicts.Screen([], 1e-6, 0.0, lambda side, threads=0: rows, ranks=False)
    judge.first(rows, other)
    assert judge.verdict()[0] == 0
    judge.first(rows, [*other[1:], other[0].replace("step 2999", "step 7777")])
    assert judge.verdict()[0] != 0


def test_of_a_long_line_it_is_shown_where_it_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Case("", "1.0 " * 900, "1.0 " * 500 + "7.5 " + "1.0 " * 399, 1)
    said = verdict(monkeypatch, [], given, [])[2][0]
    assert "7.5" in said and len(said) < 300


WHOLE = """\
program p
  !$ use omp_lib
  implicit none
  integer :: i, nt
  real(8) :: a(8), t
  nt = 1
  t = 0
  !$ nt = omp_get_max_threads()
  !$ t = omp_get_wtime()
  !$ print *, 'with OpenMP', omp_get_max_threads()
  !$omp parallel do schedule(static, 1)
  do i = 1, 8
    a(i) = i
    write (*, *) 'step', i, a(i)
  end do
  write (6, '(a, f12.3, a, i0)') 'time ', t, ' threads ', nt
  print *, 'sum', sum(a)
end program p
"""


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran: programs are not built")
def test_a_program_that_is_right_and_prints_all_that_is_equal(tmp_path: Path) -> None:
    (tmp_path / "p.f90").write_text(WHOLE)
    start = [sys.executable, "-m", "safepoint", "threads"]
    line = [*start, "build", "-o", "p", "--", "gfortran", "-fopenmp", "p.f90"]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    env = {**os.environ, "OMP_NUM_THREADS": "4"}
    done = subprocess.run(
        [*start, "test", "--json", "--", "./p"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (0, "equal"), found["text"]
    said = "\n".join(found["text"])
    assert "times and numbers of threads, p.f90:16: it does not count" in said
    assert "lines that only one of them prints, p.f90:10: it does not count" in said
