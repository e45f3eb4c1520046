"""What a program prints may differ in a right one: times, numbers of threads, lines of OpenMP alone, and their order.
And a race that shows there alone is never taken for equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed.threads_chain import outcome, written

from safepoint.threads import fortran, printed, runs, screen, verdicts
from safepoint.threads.choices import Choices
from safepoint.threads.shown import Shown

# What a program prints may differ in a right one: times, numbers of threads, lines of OpenMP alone, and their order.
# And a race that shows there alone is never taken for equal.

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


def printing(body: str, directory: Path) -> list[Shown]:
    return shown(HEAD + body + TAIL, directory)


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
    found = printing(given.body, tmp_path)
    code, _, said = verdict(monkeypatch, found, given, [])
    assert code == given.code, (said, found)
    assert code != 2 or said[1].startswith("Cannot tell: ")
    assert code != 0 or "does not count" in said[0]


def test_what_two_runs_of_b_print_differently_is_said_to_be_a_race_or_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, how, said = verdict(monkeypatch, printing(SUM, tmp_path), CASES["a race"], [])
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
    monkeypatch.setattr(verdicts.runs, "shown", lambda a: printing(LOOP, tmp_path))
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


def test_a_program_that_is_right_and_prints_all_that_is_equal(tmp_path: Path) -> None:
    found = json.loads(outcome(tmp_path, WHOLE, options=("--json",)).said)
    said = "\n".join(found["text"])
    assert found["verdict"] == "equal", said
    assert "times and numbers of threads, x.f90:16: it does not count" in said
    assert "lines that only one of them prints, x.f90:10: it does not count" in said


def test_whole_numbers_are_the_same_or_not() -> None:
    """What is counted is printed without rounding: two counts that differ are two results."""
    cases = (("cells 10000", "cells 9999", printed.BEYOND), ("cells 10000", "cells 10000", 0),
             ("sum 10000.0", "sum 9999.99", printed.ROUNDING), ("sum 1e5", "sum 100000", printed.ROUNDING))  # fmt: skip
    for a, b, how in cases:
        assert printed._apart(a, b, 1e-4, 0.0) == how, (a, b)


# What is printed by a procedure that is given a time, as benchmarks do it: a time, if it is one in each call.

PROGRAM = """\
program main
  use omp_lib
  implicit none
  integer :: i
  real(8) :: t, a(100)
  t = omp_get_wtime()
  !$omp parallel do
  do i = 1, 100
    a(i) = i
  end do
  t = omp_get_wtime() - t
  call results({given}, sum(a))
  {again}
end program
subroutine results(t, s)
  implicit none
  real(8) :: t, s
  integer :: num_threads, max_threads
!$ integer omp_get_num_threads, omp_get_max_threads
!$ external omp_get_num_threads, omp_get_max_threads
  max_threads = 1
!$ max_threads = omp_get_max_threads()
  num_threads = 1
!$omp parallel shared(num_threads)
!$omp master
!$ num_threads = omp_get_num_threads()
!$omp end master
!$omp end parallel
  write (*, 6) t
6 format(' Time in seconds = ', 12x, f12.2)
  write (*, 7) num_threads
7 format(' Total threads   = ', 12x, i12)
  write (*, 8) max_threads
8 format(' Avail threads   = ', 12x, i12)
  write (*, 9) s
9 format(' Sum             = ', 12x, f12.2)
end subroutine
"""


@pytest.mark.parametrize(
    ("given", "again", "values"),
    [("t", "", "R"), ("t", "call results(2 * t, 1d0)", "R"),
     ("t", "call results(a(1), 1d0)", "r"), ("a(1)", "", "r")],  # by one call it is a result
)  # fmt: skip
def test_an_argument_is_a_time_if_each_call_gives_one(given: str, again: str, values: str, tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, PROGRAM.format(given=given, again=again))
    found = {shown.words[0].split()[0]: shown.values for shown in runs.shown([str(tmp_path / "x.serial")])}
    assert found == {"Time": values, "Total": "I", "Avail": "I", "Sum": "r"}
    assert code == 0 or values == "r", said


# A result that is made of a number of threads is never taken for equal where it differs; such a number itself is.

CELLS = """\
program p
  use omp_lib
  implicit none
  integer, parameter :: n = 1003
  integer :: me, nt, lo, hi, mine, total
  total = 0
  !$omp parallel private(me, nt, lo, hi, mine)
  me = omp_get_thread_num(); nt = omp_get_num_threads()
  lo = me*(n/nt) + 1; hi = (me+1)*(n/nt)
  mine = hi - lo + 1
  !$omp atomic
  total = total + mine
  !$omp end parallel
  {print}
end program
"""
PARTS = """\
program p
  implicit none
  real(8) :: s, ls
  integer :: i
  s = 0
  !$omp parallel private(ls)
  ls = 0
  !$omp do
  do i = 1, 100
    ls = ls + i
  end do
  print *, 'part', ls
  !$omp atomic
  s = s + ls
  !$omp end parallel
  print *, 'sum', s
end program
"""
VALUES = """\
module clocks
  use omp_lib
  implicit none
  real(8) :: spent = 0
  integer :: team = 1
contains
  real(8) function now()
    now = omp_get_wtime()
  end function now
end module clocks
program p
  use clocks
  implicit none
  integer, parameter :: n = 1000
  integer :: nt, me, chunk, reused, count, steps
  real(8) :: t0, t1, each(64), s, flops
  logical :: with
  nt = 1; with = .false.; steps = 7; flops = 2d0 * n * steps
  !$ nt = omp_get_max_threads()
  !$ with = .true.
  t0 = now()
  s = 0
  reused = nt
  count = 0
  !$omp parallel private(me) reduction(+:count)
  me = omp_get_thread_num()
  each(me + 1) = now() - t0
  count = count + me
  !$omp end parallel
  reused = int(s) + 1
  t1 = now()
  chunk = n / nt
  spent = spent + (t1 - t0)
  print *, {value}
end program p
"""
ITSELF = ["nt", "nt - 1", "2 * nt", "t1 - t0", "1d3 * (t1 - t0)", "spent", "maxval(each(1:nt))", "now() - t0", "with",
          "(t1 - t0) / nt", "1d-9 * flops / (t1 - t0)", "omp_get_num_threads()", "flops / 1d6 / spent"]  # fmt: skip
MADE = ["chunk", "n / nt", "mod(n, nt)", "count", "s + t1", "reused + nt", "nt * chunk", "reused"]


def shown(text: str, directory: Path) -> list[Shown]:
    """What `build` reads of the statements that print."""
    modules: dict[str, Any] = {}
    fortran.survey([(written(directory, "p.f90", text), Choices())], modules)
    return screen.survey(modules)


def test_a_time_or_a_number_of_threads_is_known_as_such_and_what_is_made_of_one_is_not(tmp_path: Path) -> None:
    values = [*ITSELF, *MADE]
    text = VALUES.replace("{value}", "\n  print *, ".join(values))
    for value, found in zip(values, shown(text, tmp_path), strict=True):
        assert found.unsure == (value in ITSELF) and found.made == (value in MADE), (value, found)


def test_a_line_that_a_result_decides_on_is_not_one_of_openmp_alone(tmp_path: Path) -> None:
    ways = [each.way for each in shown(CELLS.format(print="if (total /= n) print *, 'lost', n - total"), tmp_path)]
    assert ways == ["perhaps"]
    assert shown(VALUES.replace("{value}", "1").replace("print", "if (nt > 1) print"), tmp_path)[0].way == "only"


@pytest.mark.parametrize("text", [CELLS.format(print="print *, 'cells', total"), PARTS,
                                  CELLS.format(print="if (total /= n) print *, 'lost', n - total")])  # fmt: skip
def test_a_result_that_depends_on_how_work_is_shared_out_cannot_be_told(text: str, tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, text)
    assert code == 2 and "Cannot tell: it " in said, said
