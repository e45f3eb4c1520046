"""A lock that procedures set and free: given to them, of a type, through another procedure, and of another file."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, two_passes
from testbed.threads_corpus import has

LOCKS = """\
module locks
  use omp_lib
  implicit none
  integer(omp_lock_kind), save :: one
  type guard
    integer(omp_lock_kind) :: l
  contains
    procedure :: lock => guard_lock
    procedure :: free => guard_free
  end type guard
contains
  subroutine guard_lock(self)
    class(guard), intent(inout) :: self
    call omp_set_lock(self%l)
  end subroutine guard_lock
  subroutine guard_free(self)
    class(guard), intent(inout) :: self
    call omp_unset_lock(self%l)
  end subroutine guard_free
  subroutine take(given)
    integer(omp_lock_kind), intent(inout) :: given
    call omp_set_lock(given)
  end subroutine take
  subroutine give(given)
    integer(omp_lock_kind), intent(inout) :: given
    call omp_unset_lock(given)
  end subroutine give
  subroutine take_one()
    call take(one)
  end subroutine take_one
  subroutine give_one()
    call give(one)
  end subroutine give_one
end module locks
"""
MAIN = """\
program p
  use locks, only: omp_lock_kind, omp_init_lock, one, guard, take, give, through => take_one, back => give_one
  implicit none
  type(guard) :: g(2)
  integer :: i, n
  real(8) :: s
  call omp_init_lock(one)
  call omp_init_lock(g(1)%l)
  n = 0; s = 0
  !$omp parallel do
  do i = 1, 100
    call {set}
    n = n + 1
    s = s + 0.1d0 * i
    call {free}
  end do
  print '(i4,f12.6)', n, s
end program p
"""


def made(tmp_path: Path, set: str, free: str) -> list[str]:
    """The warnings of a build."""
    (tmp_path / "locks.f90").write_text(LOCKS)
    (tmp_path / "p.f90").write_text(MAIN.format(set=set, free=free))
    return built(tmp_path / "p.f90", tmp_path, str(tmp_path / "locks.f90")).warnings  # type: ignore[no-any-return]


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize(
    ("set", "free"), [("take(one)", "give(one)"), ("g(1)%lock()", "g(1)%free()"), ("through()", "back()")]
)
def test_what_is_done_under_it_is_no_race_and_no_difference(tmp_path: Path, set: str, free: str) -> None:
    assert made(tmp_path, set, free) == []
    found = two_passes(tmp_path / "p", tmp_path, noise=5)
    assert found.code == 0, found


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
def test_a_procedure_that_does_nothing_with_locks_protects_nothing(tmp_path: Path) -> None:
    assert len(made(tmp_path, "omp_init_lock(g(2)%l)", "omp_init_lock(g(2)%l)")) == 2
