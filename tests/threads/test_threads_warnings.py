"""What `build` says before any run: each warning at its line, and none on a program that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_bugs import BUGS
from testbed.threads_chain import instrumented
from testbed.threads_corpus import PROGRAMS
from testbed.threads_mistakes import RIGHT, WARNED
from testbed.threads_snippets import program

from safepoint.threads import fortran

# What `build` says before any run: each warning at its line, and none on a program that is right.

BY_TEXT = {
    "missing private", "missing reduction", "missing critical", "missing ordered", "loop variable shared",
    "uninitialised private", "lastprivate forgotten", "nowait", "copyin", "static local in a called procedure",
    "rounding",
}  # fmt: skip


def warnings(text: str, directory: Path) -> list[tuple[int, str]]:
    return instrumented(directory, text).warnings


def test_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    for text in map(program, WARNED):
        found = warnings(text, tmp_path)
        ((at, row),) = [(at, row) for at, row in enumerate(text.splitlines(), 1) if "!! " in row]
        assert [line for line, _ in found] == [at], (row, found)
        assert all(word in found[0][1] for word in row.partition("!! ")[2].split("; ")), (row, found)


def test_nothing_is_told_that_may_be_right(tmp_path: Path) -> None:
    told = {name: warnings(program(body), tmp_path) for name, body in RIGHT.items()}
    assert not any(told.values()), told


def test_nothing_is_told_of_the_corpus() -> None:
    told = {given.name: fortran.instrument(given.path).warnings for given in PROGRAMS}
    assert not any(told.values()), told


def test_eleven_of_the_planted_bugs_are_told(tmp_path: Path) -> None:
    told = {bug.name: fortran.instrument(bug.write(tmp_path)).warnings for bug in BUGS}
    assert {name for name, warned in told.items() if warned} == BY_TEXT, told


GREATEST = {
    "if (a(i) > s) s = a(i)": "REDUCTION(max:s)", "if (s >= a(i)) s = a(i)": "REDUCTION(min:s)",
    "if (i > 1 .and. abs(a(i)) .lt. s) then\n s = abs(a(i))\n end if": "REDUCTION(min:s)",
    "if (a(i) > 7) then\n t = s\n else if (s .lt. a(i)) then\n s = a(i)\n end if": "REDUCTION(max:s)",
    "s = max(s, a(i))": "REDUCTION(max:s)", "s = min(a(i), s)": "REDUCTION(min:s)",
    "if (a(i) > s) then\n s = a(i)\n m = i\n end if": "CRITICAL around the IF",
}  # fmt: skip


@pytest.mark.parametrize("text", GREATEST)
def test_of_the_greatest_value_of_a_loop_it_is_said_what_is_missing(text: str, tmp_path: Path) -> None:
    found = warnings(program(f"!$omp parallel do\ndo i = 1, n\n {text}\nend do\n"), tmp_path)
    of = [said for _, said in found if not said.startswith("t ")]
    assert of and all(said.endswith(f"a race; is {GREATEST[text]} missing?") for said in of), found


@pytest.mark.parametrize("text", ["if (a(i) > 2) s = a(i)", "if (a(i) > s) s = b(i, 1)", "if (a(i) > s) t = a(i)"])
def test_what_an_if_assigns_may_be_to_be_private(text: str, tmp_path: Path) -> None:
    ((_, said),) = warnings(program(f"!$omp parallel do\ndo i = 1, n\n {text}\nend do\n"), tmp_path)
    assert said.endswith("a race; is it to be PRIVATE?")


SAVED = """\
module m
  implicit none
  integer :: calls = 0
contains
  real function f(x)
    real, intent(in) :: x
    real, save :: last
    integer :: count = 0
    last = x
    count = count + 1
    f = last + count
  end function f
  subroutine note()
    calls = calls + 1
  end subroutine note
end module m
program one
  use m
  implicit none
  integer :: i
  real :: a(9)
  !$omp parallel do
  do i = 1, 9
    a(i) = f(real(i))
    call note()
  end do
  print *, a
end program one
"""


def test_saved_variables_of_a_procedure_that_a_region_calls_are_told_but_in_critical(tmp_path: Path) -> None:
    found = warnings(SAVED, tmp_path)
    assert [line for line, _ in found] == [9, 10, 14], found
    assert "line 24" in found[0][1]
    text = SAVED.replace("    a(i) =", "    !$omp critical\n    a(i) =")
    assert warnings(text.replace("note()\n  end do", "note()\n    !$omp end critical\n  end do"), tmp_path) == []


@pytest.mark.parametrize(("value", "lines"), [("1", []), ("4", [9, 10, 14])])
def test_one_thread_may_be_a_constant_with_a_name(value: str, lines: list[int], tmp_path: Path) -> None:
    text = SAVED.replace("integer :: i\n", f"integer, parameter :: few = {value}\n  integer :: i\n")
    found = warnings(text.replace("parallel do", "parallel do num_threads(few)"), tmp_path)
    assert [line for line, _ in found] == lines, found


# Warnings of what a parallel loop gives to a procedure, and of names of ASSOCIATE: none where it may be right.

SUM = """\
program p
  implicit none
  integer :: i, s
  s = 0
  !$omp parallel do
  do i = 1, 4
    call add(s, i)
  end do
  print *, s
contains
  subroutine add(x, k)
    integer, intent(inout) :: x
    integer, intent(in) :: k
    !$omp critical
    x = x + k
    !$omp end critical
  end subroutine add
  subroutine deeper(x, k)
    integer, intent(inout) :: x
    integer, intent(in) :: k
    call add(x, k)
  end subroutine deeper
end program p
"""
ASSOCIATE = """\
program p
  implicit none
  integer :: i
  real(8) :: v(4)
  !$omp parallel do
  do i = 1, 4
    associate (v => v(i))
      v = i
      call add(v)
    end associate
  end do
  print *, v
contains
  subroutine add(x)
    real(8), intent(inout) :: x
    x = x + 1
  end subroutine add
end program p
"""


def test_what_a_procedure_updates_in_critical_and_a_name_of_associate_are_no_race(tmp_path: Path) -> None:
    for text in (SUM, SUM.replace("call add(s", "call deeper(s"), ASSOCIATE):
        assert warnings(text, tmp_path) == [], text
    text = SUM.replace("!$omp critical", "").replace("!$omp end critical", "")
    assert [line for line, _ in warnings(text, tmp_path)] == [7]


# A sum of doubles that is kept in single precision is told before any run; one of single ones is not.

PROGRAM = """\
program p
  implicit none
  SUM :: s
  TERM :: x(100)
  integer :: i
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, 100
    s = s + ADDED
  end do
  print *, s, x(1)
end program
"""


SHORT = (
    ("real(4)", "real(8)", "x(i)"), ("real*4", "double precision", "x(i) * 2"),
    ("real(kind=4)", "real(4)", "x(i) * 1.5d0"),
)  # fmt: skip
NOT_SHORT = (
    ("real(4)", "real(4)", "x(i)"), ("real", "real(8)", "x(i)"),  # an option of the compiler may make it a double
    ("real(8)", "real(8)", "x(i)"), ("real(4)", "real(8)", "i"),
)  # fmt: skip


def test_a_single_sum_of_doubles_is_told_with_its_line(tmp_path: Path) -> None:
    for case in (*SHORT, *NOT_SHORT):
        text = PROGRAM.replace("SUM", case[0]).replace("TERM", case[1]).replace("ADDED", case[2])
        told = [line for line, text in warnings(text, tmp_path) if "single precision" in text]
        assert told == [9] * (case in SHORT), case
