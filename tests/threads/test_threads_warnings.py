"""What `build` says before any run: each warning at its line, and none on a program that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_bugs import BUGS
from testbed.threads_corpus import PROGRAMS
from testbed.threads_mistakes import RIGHT, WARNED
from testbed.threads_snippets import CONSTRUCTS, HEAD, program, written

from safepoint.threads import fortran

pytest.importorskip("fparser")
LINES = HEAD.count("\n")
BY_TEXT = {
    "missing private", "missing reduction", "missing critical", "missing ordered", "loop variable shared",
    "uninitialised private", "lastprivate forgotten", "nowait", "copyin", "static local in a called procedure",
    "rounding",
}  # fmt: skip


def warnings(text: str, directory: Path) -> list[tuple[int, str]]:
    path = directory / "one.f90"
    path.write_text(text)
    return fortran.instrument(path).warnings


@pytest.mark.parametrize("name", WARNED)
def test_a_mistake_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    given = WARNED[name]
    found = warnings(program(given.body), tmp_path)
    assert [line - LINES for line, _ in found] == [given.line], found
    assert all(word in found[0][1] for word in given.words), found


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_told_that_may_be_right(name: str, tmp_path: Path) -> None:
    assert warnings(program(RIGHT[name]), tmp_path) == []


@pytest.mark.parametrize("given", PROGRAMS, ids=lambda given: given.name)
def test_nothing_is_told_of_the_corpus(given: object, tmp_path: Path) -> None:
    assert fortran.instrument(given.path).warnings == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_of_constructs_only_what_is_passed_through_is_told(name: str, tmp_path: Path) -> None:
    found = fortran.instrument(written(name, tmp_path)).warnings
    assert all("passed through" in text for _, text in found), found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_eleven_of_the_planted_bugs_are_told(bug: object, tmp_path: Path) -> None:
    found = fortran.instrument(bug.write(tmp_path)).warnings  # type: ignore[attr-defined]
    assert bool(found) == (bug.name in BY_TEXT), found  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "missing"),
    [("if (a(i) > s) s = a(i)", "REDUCTION(max:s)"), ("if (s >= a(i)) s = a(i)", "REDUCTION(min:s)"),
     ("if (i > 1 .and. abs(a(i)) .lt. s) then\n s = abs(a(i))\n end if", "REDUCTION(min:s)"),
     ("if (a(i) > 7) then\n t = s\n else if (s .lt. a(i)) then\n s = a(i)\n end if", "REDUCTION(max:s)"),
     ("s = max(s, a(i))", "REDUCTION(max:s)"), ("s = min(a(i), s)", "REDUCTION(min:s)"),
     ("if (a(i) > s) then\n s = a(i)\n m = i\n end if", "CRITICAL around the IF")],
)  # fmt: skip
def test_of_the_greatest_value_of_a_loop_it_is_said_what_is_missing(text: str, missing: str, tmp_path: Path) -> None:
    found = warnings(program(f"!$omp parallel do\ndo i = 1, n\n {text}\nend do\n"), tmp_path)
    of = [said for _, said in found if not said.startswith("t ")]
    assert of and all(said.endswith(f"a race; is {missing} missing?") for said in of), found


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


def test_saved_variables_of_a_procedure_that_a_region_calls_are_told(tmp_path: Path) -> None:
    found = warnings(SAVED, tmp_path)
    assert [line for line, _ in found] == [9, 10, 14], found
    assert "line 24" in found[0][1]


def test_a_region_that_calls_them_in_critical_is_right(tmp_path: Path) -> None:
    text = SAVED.replace("    a(i) =", "    !$omp critical\n    a(i) =")
    text = text.replace("note()\n  end do", "note()\n    !$omp end critical\n  end do")
    assert warnings(text, tmp_path) == []


@pytest.mark.parametrize(("value", "lines"), [("1", []), ("4", [9, 10, 14])])
def test_one_thread_may_be_a_constant_with_a_name(value: str, lines: list[int], tmp_path: Path) -> None:
    text = SAVED.replace("integer :: i\n", f"integer, parameter :: few = {value}\n  integer :: i\n")
    found = warnings(text.replace("parallel do", "parallel do num_threads(few)"), tmp_path)
    assert [line for line, _ in found] == lines, found
