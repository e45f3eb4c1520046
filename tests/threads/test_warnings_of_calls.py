"""Warnings of what a parallel loop gives to a procedure, and of names of ASSOCIATE: none where it may be right."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran

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


def warnings(text: str, directory: Path) -> list[tuple[int, str]]:
    path = directory / "one.f90"
    path.write_text(text)
    return fortran.instrument(path).warnings


@pytest.mark.parametrize("callee", ["add", "deeper"])
def test_what_a_procedure_updates_in_critical_is_no_race(tmp_path: Path, callee: str) -> None:
    assert warnings(SUM.replace("call add(s", f"call {callee}(s"), tmp_path) == []


def test_what_it_updates_without_is_one(tmp_path: Path) -> None:
    text = SUM.replace("!$omp critical", "").replace("!$omp end critical", "")
    assert [line for line, _ in warnings(text, tmp_path)] == [7]


def test_a_name_of_associate_with_an_index_is_no_race(tmp_path: Path) -> None:
    assert warnings(ASSOCIATE, tmp_path) == []
