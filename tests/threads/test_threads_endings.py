"""A digest that differs where all writes are equal: what is said of it, and the exit code."""

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

HALO = """\
program u
!$ use omp_lib
  implicit none
  real(8) :: w(0:101)
  integer :: i
  w(0) = 1
!$ w(0) = 2
!$omp parallel do
  do i = 1, 100
    w(i) = i + 5
  end do
!$omp end parallel do
  print *, sum(w(1:100))
end program u
"""
TWICE = """\
program t
  implicit none
  real(8) :: w(4)
  integer :: i, at(4)
  w = 0
  at = [1, 1, 1, 1]
!$omp parallel do schedule(static, 1)
  do i = 1, 4
    w(at(i)) = 5 - i
  end do
!$omp end parallel do
  print *, w
end program t
"""
LEFT = """\
program l
  use omp_lib
  implicit none
  real(8), target :: w(4)
  integer :: i
  w = 0
!$omp parallel
!$ w(1) = 7
!$omp do
  do i = 2, 4
    w(i) = i
  end do
!$omp end parallel
  print *, w
end program l
"""


def outcome(here: Path, text: str) -> tuple[int, str]:
    (here / "x.f90").write_text(text)
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "x", "--", "gfortran", "-O1", "-fopenmp", "x.f90"], cwd=here, check=True)
    done = subprocess.run([*line, "test", "--", "./x"], cwd=here, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def test_elements_that_nobody_assigns_are_no_difference_of_the_program(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, HALO)
    assert code == 2, said
    assert "Cannot tell: all that is recorded in it is equal; line 7, outside of it, may assign to w" in said
    assert "PRIVATE" not in said


def test_a_value_that_is_overwritten_in_one_run_alone_is_a_difference(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, TWICE.replace("    w(at(i))", "call slow(i)\n    w(at(i))") + SLOW)
    assert code == 1 and "another thread was the last to write w" in said, said


SLOW = """\
subroutine slow(i)
  use omp_lib
  integer, intent(in) :: i
  real(8) :: begin
  begin = omp_get_wtime()
  do while (omp_get_wtime() - begin < 0.05d0 * (4 - i))
  end do
end subroutine slow
"""


def test_a_write_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, LEFT)
    assert code == 1 and "what line 8 may assign to w is not recorded" in said, said
    assert "PRIVATE" not in said


BY_ALL = """\
program b
  implicit none
  real(8), target :: a(8)
  real(8), pointer :: q
  a = 1
  q => a(3)
!$omp parallel
!$omp critical
  call more
!$omp end critical
!$omp end parallel
  print *, 'done'
contains
  subroutine more
    a(3) = a(3) + 1
  end subroutine more
end program b
"""


def test_what_each_thread_has_done_and_not_one_alone_is_a_difference_for_certain(tmp_path: Path) -> None:
    """Writes of the procedure are in the order of chance, and as often as there are threads."""
    code, said = outcome(tmp_path, BY_ALL)
    assert code == 1, said


UNSET = """\
program n
  implicit none
  real(8), allocatable :: junk(:), w(:)
  integer :: i
  allocate (junk(5000))
  do i = 1, 5000
    junk(i) = i
!$  junk(i) = -i
  end do
  deallocate (junk)
  allocate (w(5000))
!$omp parallel do
  do i = 2, 4999
    w(i) = i
  end do
  print *, sum(w(2:4999))
end program n
"""


def test_elements_that_never_had_a_value_are_no_difference_of_two_whole_traces(tmp_path: Path) -> None:
    code, _ = outcome(tmp_path, UNSET)
    assert code == 2
    for program in ("x.serial", "x"):
        subprocess.run([tmp_path / program], cwd=tmp_path, env={**os.environ, "SP_LEVEL": "full"}, check=True)
    line = [sys.executable, "-m", "safepoint", "threads", "compare", "x.serial.threads", "x.threads"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "had it ever a value?" in done.stdout, done.stdout


COUNTED = """\
program c
  implicit none
  integer :: s
  s = 0
  !$omp parallel
  !$omp atomic
  s = s + 1
  !$omp end parallel
  print *, s
end program c
"""
AT_THE_ENDS = """\
program e
  implicit none
  integer :: i
  real(8) :: a(100), t
  a = 1
!$omp parallel do private(t)
  do i = 1, 100
    t = i
!$  if (i == 50) t = 0
    a(i) = t
  end do
  print *, 'done'
end program e
"""


def test_of_what_is_in_an_order_of_chance_it_is_not_said_that_its_writes_are_equal(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, COUNTED)
    assert code == 1, said
    assert "what threads assign to s at line 7 is their own, or in an order of chance" in said, said
    assert "all writes in it are equal" not in said and "PRIVATE" not in said


def test_where_only_the_ends_of_loops_are_recorded_nothing_is_said_of_the_rest(tmp_path: Path) -> None:
    (tmp_path / "threads.toml").write_text("edges = 2\n")
    code, said = outcome(tmp_path, AT_THE_ENDS)
    assert code == 2, said
    assert "Cannot tell where: of each loop only the first and the last 2 iterations are recorded" in said
    assert "--exclude" not in said


EXCHANGED = """\
program x
  implicit none
  integer :: i
  real(8) :: h(10), x_(1000)
  h = 0
  x_ = [(sin(1d0 * i), i = 1, 1000)]
!$omp parallel do
  do i = 1, 1000
!$omp critical
    h(mod(i, 10) + 1) = h(mod(i, 10) + 1) + x_(i)
!$omp end critical
  end do
!$ h = h([2, 1, 3, 4, 5, 6, 7, 8, 9, 10])
!$omp parallel
!$omp single
  h(3) = h(3) + 1
!$omp end single
!$omp end parallel
  print *, 'done'
end program x
"""


def test_sums_that_changed_places_differ_though_they_are_the_same_numbers(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, EXCHANGED)
    assert code in (1, 2) and "No inconsistencies" not in said, said
    assert "digest h (10 real(8)," in said and "by place" in said and "REDUCTION" not in said
    assert "line 13, outside of it, may assign to h, and is not recorded" in said, said


def test_without_any_region_nothing_was_compared(tmp_path: Path) -> None:
    (tmp_path / "l.f90").write_text("subroutine l(a)\n  real :: a(9)\n  integer :: i\n!$omp parallel do\n"
                                    "  do i = 1, 9\n    a(i) = i\n  end do\nend subroutine\n")  # fmt: skip
    subprocess.run(["gfortran", "-fopenmp", "-c", "l.f90"], cwd=tmp_path, check=True)
    (tmp_path / "m.f90").write_text("program m\n  real :: a(9)\n  call l(a)\n  print *, a\nend program\n")
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "m", "--", "gfortran", "-fopenmp", "m.f90", "l.o"], cwd=tmp_path, check=True)
    done = subprocess.run([*line, "test", "--", "./m"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stdout
    assert "no region was recorded" in done.stdout and "l.o: linked as it is" in done.stdout, done.stdout
