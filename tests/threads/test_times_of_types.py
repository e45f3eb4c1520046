"""A component that is a time is one in all variables of its type, whoever gives it; the others are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import Verdict, built, traced, two_passes
from testbed.threads_corpus import has

from safepoint.threads import fortran, runs
from safepoint.threads.compare import compare
from safepoint.threads.trace import Run

PROGRAM = """\
module timers
  implicit none
  type timer
    real(8) :: t0 = 0, total = 0
    integer(8) :: c0 = 0
    integer :: calls = 0
  contains
    procedure :: start
    procedure :: halt => stopped
    procedure :: so_far => doubled
    procedure :: into
  end type timer
  type, extends(timer) :: named
    integer :: rank = 3
  end type named
  type held
    type(named) :: clock
    real(8) :: x = 0
  end type held
  type(timer) :: tm(3)
contains
  subroutine start(self)
    class(timer), intent(inout) :: self
    integer(8) :: rate
    call system_clock(self%c0, rate)
    call cpu_time(self%t0)
  end subroutine start
  subroutine stopped(self)
    class(timer), intent(inout) :: self
    integer(8) :: c, rate
    real(8) :: t
    call system_clock(c, rate)
    call cpu_time(t)
    self%total = self%total + (t - self%t0) + dble(c - self%c0) / rate
    self%calls = self%calls + 1
  end subroutine stopped
  real(8) function doubled(self)
    class(timer), intent(in) :: self
    doubled = 2 * self%total
  end function doubled
  subroutine into(self, twice)
    class(timer), intent(in) :: self
    real(8), intent(out) :: twice
    twice = 2 * self%total
  end subroutine into
end module timers
program p
  use timers
  implicit none
  type(held) :: h
  real(8) :: a(100), t, f
  integer :: i, it
  do it = 1, 3
    call tm(1)%start()
    call h%clock%start()
    !$omp parallel do
    do i = 1, 100
      a(i) = i * it
    end do
    call tm(1)%halt()
    call h%clock%halt()
    {given}
    !$omp parallel do
    do i = 1, 100
      a(i) = a(i) + 1
    end do
    if (t > 1d9) exit
  end do
  print *, sum(a), tm(1)%calls, h%x, h%clock%rank
  write (*, '(a,f10.6)') 'time ', tm(1)%total
end program p
"""
WAYS = ["t = tm(1)%total", "t = h%clock%total", "f = tm(1)%so_far(); t = f + 1", "call tm(1)%into(f); t = f",
        "associate (l => h%clock%total)\n t = l\n end associate",
        "associate (c => h%clock)\n t = c%total\n end associate"]  # fmt: skip


def program(given: str, place: Path) -> Path:
    path = place / "p.f90"
    path.write_text(PROGRAM.replace("{given}", given))
    return path


def verdict(given: str, place: Path) -> Verdict:
    built(program(given, place), place)
    return two_passes(place / "p", place)


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("given", WAYS)
def test_what_a_timer_has_or_gives_is_no_difference(given: str, tmp_path: Path) -> None:
    found = verdict(given, tmp_path)
    assert found.code == 0, found
    a, b = (traced(tmp_path / made, tmp_path / name, threads, "static", "full")
            for made, name, threads in (("p.serial", "a", 1), ("p", "b", 4)))  # fmt: skip
    assert compare(Run(a), Run(b)).code == 0


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize(("name", "wrong"), [("tm(1)%calls", "call tm(1)%halt()"), ("h%x", "h%x = 4")])
def test_other_components_are_compared(name: str, wrong: str, tmp_path: Path) -> None:
    found = verdict(f"t = tm(1)%total\n    !$ {wrong}\n    a(1) = {name}", tmp_path)
    assert found.code == 1 and f"read {name}" in str(found), found


def test_components_are_left_by_type_and_name(tmp_path: Path) -> None:
    names = {site.name for site in fortran.instrument(program("t = 0; h%x = 1; a(1) = h%clock%calls", tmp_path)).sites}
    assert {"self%calls", "h%x", "h%clock%calls"} <= names
    assert not any(name.endswith(("%total", "%t0", "%c0")) for name in names), names


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
def test_what_is_printed_of_them_is_known_as_a_time(tmp_path: Path) -> None:
    built(program("t = 0\nprint '(a,2f10.6)', 'both', tm(1)%total, tm(1)%so_far()", tmp_path), tmp_path)
    (found,) = [shown for shown in runs.shown([str(tmp_path / "p.serial")]) if "both" in shown.words]
    assert found.values == "RN"
