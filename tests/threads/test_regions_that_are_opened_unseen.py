"""A loop in which a region may be opened is recorded as a whole: no name of a procedure need be where it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran

MODULE = """\
module m
  implicit none
  type v
    real(8) :: x(10)
  contains
    procedure :: scale
    procedure :: plain
  end type
  type held
    integer :: n
  contains
    final :: ended
  end type
  interface operator(.plus.)
    module procedure add
  end interface
  interface operator(.minus.)
    module procedure less
  end interface
contains
  function add(a, b) result(c)
    type(v), intent(in) :: a, b
    type(v) :: c
    c = a
    call in_parallel(c)
  end function
  function less(a, b) result(c)
    type(v), intent(in) :: a, b
    type(v) :: c
    c%x = a%x - b%x
  end function
  subroutine scale(self)
    class(v), intent(inout) :: self
    call in_parallel(self)
  end subroutine
  subroutine plain(self)
    class(v), intent(inout) :: self
    self%x(1) = 2 * self%x(1)
  end subroutine
  subroutine in_parallel(a)
    class(v), intent(inout) :: a
    integer :: i
    !$omp parallel do
    do i = 1, 10
      a%x(i) = 2 * a%x(i)
    end do
  end subroutine
  subroutine ended(self)
    type(held), intent(inout) :: self
    type(v) :: other
    other%x = self%n
    call in_parallel(other)
  end subroutine
end module
program p
  use m
  implicit none
  type(v) :: a, b
  type(held), allocatable :: q
  integer :: k, n(3)
  a%x = 0; b%x = 1
  do k = 1, 3
    n(k) = k
    STATEMENT
  end do
end program
"""


def loops(statement: str, tmp_path: Path) -> int:
    """How often the statement is in the text: twice if the loop has a body that records and one that does not."""
    path = tmp_path / "p.f90"
    path.write_text(MODULE.replace("STATEMENT", statement))
    made = fortran.instrument(path)
    return made.text.count(statement)


@pytest.mark.parametrize("statement", ["a = a .plus. b", "call a%scale()", "if (allocated(q)) deallocate (q)"])
def test_a_loop_that_may_open_a_region_has_one_body(statement: str, tmp_path: Path) -> None:
    assert loops(statement, tmp_path) == 1


@pytest.mark.parametrize("statement", ["a = a .minus. b", "call a%plain()"])
def test_a_loop_that_opens_none_has_two(statement: str, tmp_path: Path) -> None:
    assert loops(statement, tmp_path) == 2
