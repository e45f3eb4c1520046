"""A sum of threads is rounded otherwise, and so is all that is made of it, by whatever name: that is no difference."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

pytestmark = pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")

SPREADS = """\
module m
  implicit none
  type st
    KIND :: h(3) = 0
  end type
contains
  subroutine squares(a, r)
    KIND, intent(in) :: a(:)
    KIND, intent(out) :: r
    integer :: i
    r = 0
    !$omp parallel do reduction(+: r)
    do i = 1, size(a)
      r = r + a(i)**2
    end do
  end subroutine
end module
program p
  use m
  implicit none
  type(st) :: g
  integer :: i
  KIND, target :: s
  KIND, pointer :: q
  KIND :: y(1000), z(1000), x(1000), r(2)
  x = [(sin(real(i, kind(x))), i = 1, 1000)]
  q => s
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, 1000
    s = s + x(i)
  end do
  call squares(x, r(1))
  g%h(1) = s / 3
  associate (w => g%h(1))
    !$omp parallel do
    do i = 1, 1000
      y(i) = x(i) / w + q / r(1)
    end do
  end associate
  !$omp parallel do
  do i = 1, 1000
    z(i) = w2(i) * q
  end do
  print '(3es13.5)', s, y(3), z(3)
contains
  KIND function w2(i)
    integer, intent(in) :: i
    w2 = i
    WRONG
  end function
end program
"""
ANOTHER_PLACE = "!$ if (i < 3) w2 = 3 - i"  # with OpenMP alone: the first two have changed places


def told(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    (place / "p.f90").write_text(text)
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "p", "--", "gfortran", "-O1", "-fopenmp", "p.f90"], cwd=place, check=True,
                   capture_output=True)  # fmt: skip
    return subprocess.run([*line, "test", "--", "./p"], cwd=place, capture_output=True, text=True, timeout=300)


def outcome(place: Path, kind: str, wrong: str = "") -> subprocess.CompletedProcess[str]:
    return told(place, SPREADS.replace("KIND", kind).replace("WRONG", wrong))


@pytest.mark.parametrize("kind", ["real(8)", "real(4)"])
def test_what_is_made_of_a_sum_may_differ_in_its_last_bits_by_whatever_name(kind: str, tmp_path: Path) -> None:
    """Of single precision these are other bits, and they may be seen in what is printed."""
    done = outcome(tmp_path, kind)
    assert done.returncode == 0, done.stdout
    assert "as sums of threads do" in done.stdout and "Inconsistency" not in done.stdout
    if kind == "real(4)":
        assert "of single precision" in done.stdout


def test_elements_that_changed_places_are_no_rounding(tmp_path: Path) -> None:
    """Their statistics are the same."""
    done = outcome(tmp_path, "real(8)", ANOTHER_PLACE)
    assert done.returncode == 1, done.stdout
    assert "p.f90:43=write z(1)" in done.stdout, done.stdout


ANOMALY = """\
program p
  implicit none
  integer, parameter :: n = 10000
  real(8) :: a(n), s, t
  integer :: i
  do i = 1, n
    a(i) = sin(dble(i)) + 3
  end do
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, n
    s = s + a(i)
  end do
  s = s / n
  !$omp parallel do
  do i = 1, n
    a(i) = a(i) - s
  end do
  t = 0
  !$omp parallel do reduction(+: t)
  do i = 1, n
    t = t + a(i)
  end do
  print '(a)', 'done'
end program
"""
SMALL = """\
program p
  implicit none
  integer, parameter :: n = 400
  real(8) :: c(2, n), s
  integer :: i
  do i = 1, n
    c(1, i) = 1d18 * (1 + 0.1d0 * sin(dble(i)))
    c(2, i) = 2d3 + i
  end do
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, n
    s = s + c(1, i) * 1d-18 / 3 * sin(dble(i))**2
  end do
  !$omp parallel do
  do i = 1, n
    c(1, i) = c(1, i) / s
    c(2, i) = c(2, i) / s + more(i)
  end do
  print '(a)', 'done'
contains
  real(8) function more(i)
    integer, intent(in) :: i
    more = i
    !$ more = 0
  end function
end program
"""


def test_what_is_left_of_a_sum_that_cancels_is_not_known_to_be_wrong(tmp_path: Path) -> None:
    done = told(tmp_path, ANOMALY)
    assert done.returncode in (0, 2), done.stdout
    assert done.returncode == 0 or "while it was summed, and differs by" in done.stdout, done.stdout


def test_a_small_value_beside_large_ones_is_compared_by_its_own_size(tmp_path: Path) -> None:
    """The statistics of the array are those of the large ones alone."""
    done = told(tmp_path, SMALL)
    assert done.returncode == 1 and "write c(2,1)" in done.stdout, done.stdout


@pytest.mark.parametrize("statistics", ["", "1"])
def test_two_whole_traces_are_judged_alike(statistics: str, tmp_path: Path) -> None:
    """Without statistics nobody can tell by how much an array differs."""
    assert outcome(tmp_path, "real(8)").returncode == 0
    for program, threads in (("p.serial", "1"), ("p", "4")):
        more = {"SP_LEVEL": "full", "SP_STATISTICS": statistics, "OMP_NUM_THREADS": threads}
        subprocess.run([tmp_path / program], cwd=tmp_path, env={**os.environ, **more}, check=True, capture_output=True)
    line = [sys.executable, "-m", "safepoint", "threads", "compare", "p.serial.threads", "p.threads"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == (0 if statistics else 2), done.stdout
    assert "PRIVATE" not in done.stdout


CHUNKS = """\
program p
  use omp_lib
  implicit none
  integer, parameter :: n = 1000
  real(8) :: x(n), y(n), s
  integer :: i, lo, hi
  x = [(sin(dble(i)) + 2, i = 1, n)]
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, n
    s = s + x(i)
  end do
  !$omp parallel private(lo, hi)
  lo = 1
  hi = n
  !$ lo = omp_get_thread_num() * n / omp_get_num_threads() + 1
  !$ hi = (omp_get_thread_num() + 1) * n / omp_get_num_threads()
  y(lo:hi) = x(lo:hi) / s
  !$omp end parallel
  !$omp parallel workshare
  x = y / s
  !$omp end parallel workshare
  print '(f12.8)', sum(x)
end program
"""


def test_what_is_made_of_a_sum_may_be_assigned_where_nothing_is_recorded(tmp_path: Path) -> None:
    done = told(tmp_path, CHUNKS)
    assert done.returncode == 0, done.stdout


def test_what_is_printed_of_a_sum_that_cancels_is_not_known_to_be_wrong(tmp_path: Path) -> None:
    text = ANOMALY.partition("  t = 0\n")[0] + "  print '(a, es12.4)', 'mean ', sum(a) / n + extra()\ncontains\n"
    text += "  real(8) function extra()\n    extra = 0\n    !$ extra = WRONG\n  end function\nend program\n"
    done = told(tmp_path, text.replace("WRONG", "0"))
    assert done.returncode in (0, 2), done.stdout
    assert done.returncode == 0 or "what is left where sums cancel" in done.stdout, done.stdout
    assert told(tmp_path, text.replace("WRONG", "1d-6")).returncode == 1
