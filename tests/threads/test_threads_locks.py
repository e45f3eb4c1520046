"""Locks are numbers for the compiler, and addresses for the machine: no trace has them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran

LOCKS = """\
program l
  use omp_lib
  implicit none
  integer(omp_lock_kind) :: lk(4), one
  integer(kind=omp_nest_lock_kind), allocatable :: nest(:)
  integer :: i, c(4)
  allocate(nest(4))
  c = 0
  !$omp parallel do
  do i = 1, 4
    call omp_init_lock(lk(i))
    call omp_init_nest_lock(nest(i))
  end do
  call omp_init_lock(one)
  !$omp parallel do
  do i = 1, 4
    call omp_set_lock(lk(i))
    call mine(one)
    one = one
    c(i) = i
    call omp_unset_lock(lk(i))
  end do
contains
  subroutine mine(given)
    integer(omp_lock_kind), intent(inout) :: given
    call omp_set_lock(given)
    call omp_unset_lock(given)
  end subroutine mine
end program l
"""


def test_a_lock_is_in_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "l.f90"
    path.write_text(LOCKS)
    made = fortran.instrument(path)
    names = {site.name.partition("(")[0] for site in made.sites}
    assert "c" in names and not names & {"lk", "one", "nest", "given"}, names
