"""Bounds of a combined loop are evaluated once, before its team begins, where that shows; any integer may count."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")
if shutil.which("gfortran") is None:
    pytest.skip("no gfortran: programs are not built", allow_module_level=True)

from safepoint.threads import fortran
from safepoint.threads.building import Built, build

COUNTED = """\
module m
  implicit none
  integer :: calls = 0
contains
  integer function f(n)
    integer, intent(in) :: n
    calls = calls + 1
    f = n
  end function
end module
program p
  use m
  implicit none
  integer :: i, j, a(20), b(4, 4)
  a = 0; b = 0
!$omp parallel do schedule(static, f(2))
  do 10 i = f(1), f(10), f(1)
    a(i) = i
10  continue
!$omp parallel do collapse(2)
  outer: do i = 1, f(4)
    do j = f(1), 4
      b(j, i) = i * j
    end do
  end do outer
!$omp parallel do simd
  do i = 1, f(20)
    a(i) = a(i) + 1
  end do
  a(1) = f(3)
  print *, calls, a, b
end program
"""
UNLISTED = """\
program p
  implicit none
  integer :: i, m
  real(8) :: a(100)
  m = 2; a = 0
!$omp parallel do default(none) shared(a) num_threads(m + 1) if (m > 0)
  do i = m, 100, m
    a(i) = a(i) + 1
  end do
  print *, a
end program
"""
KINDS = """\
program p
  implicit none
  integer(1) :: i1
  integer(2) :: i2
  integer(8) :: i8
  integer :: a(20), b(3, 3)
  a = 0; b = 0
!$omp parallel do
  do i1 = 1_1, 10_1
    a(i1) = a(i1) + i1
  end do
!$omp parallel do
  do i2 = 10_2, 1_2, -3_2
    a(i2) = a(i2) + i2
  end do
!$omp parallel do collapse(2)
  do i2 = 1, 3
    do i8 = 1, 3
      b(i8, i2) = int(i8)
    end do
  end do
  print *, a, b
end program
"""
NESTED = """\
program p
  implicit none
  integer :: i, k, a(8, 2)
  a = 0
!$omp parallel do default(none) shared(a) private(i)
  do k = 1, 2
!$omp parallel do default(none) shared(a, k)
    do i = g(k), 8
      a(i, k) = i
    end do
  end do
  print *, a
contains
  integer function g(n)
    integer, intent(in) :: n
    g = n
  end function
end program
"""
FIXED = """\
      program p
      integer i, a(9)
      integer, external :: g
!$omp parallel do schedule(static, g(2))
      do i = g(1), 9
        a(i) = i
      end do
      print *, a
      end
      integer function g(n)
      integer n
      g = n
      end
"""


def printed(program: str, level: str = "off") -> str:
    environ = {**os.environ, "OMP_NUM_THREADS": "4", "OMP_MAX_ACTIVE_LEVELS": "2", "SP_LEVEL": level}
    done = subprocess.run([program], capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("text", [COUNTED, COUNTED.replace("integer :: i, j", "integer(2) :: i, j"), UNLISTED, KINDS,
                                  NESTED])  # fmt: skip
@pytest.mark.parametrize("level", ["full", "region"])
def test_all_variants_print_what_the_plain_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, level: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.f90").write_text(text.replace("implicit none\n", f"implicit none\n  !$sp level {level}\n"))
    subprocess.run(["gfortran", "-fopenmp", "p.f90", "-o", "plain"], check=True)
    built = build(["gfortran", "-O1", "-fopenmp", "p.f90"], Path("p"))
    assert isinstance(built, Built) and built.warnings == []
    assert "not (" not in built.told[0]
    plain, found = (
        printed("./plain"),
        [printed(name, each) for name in ("./p", "./p.serial") for each in ("off", "full")],
    )
    if "calls" in text:  # how often the plain program calls it is the compiler's choice; a serial one has no chunks
        assert [each.split()[0] for each in found] == ["8", "8", "7", "7"]
        plain, found = " ".join(plain.split()[1:]), [" ".join(each.split()[1:]) for each in found]
    assert found == [plain] * 4


def test_the_bounds_of_such_a_loop_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "p.f90"
    path.write_text(COUNTED)
    text = fortran.instrument(path).text
    assert "sp_b2 = f(1)" in text and "do 10 i = sp_b2, sp_b3, sp_b4" in text
    assert "int(sp_b2, 8), int(sp_b3, 8), int(sp_b4, 8))" in text and "!$omp do schedule(static, sp_b5)" in text


def test_the_chunks_of_a_source_in_fixed_form_are_evaluated_with_openmp_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.f"
    path.write_text(FIXED)
    lines = fortran.instrument(path).text.splitlines()
    assert "!$    sp_b3 = g(2)" in lines and "      sp_b2 = g(1)" in lines
    subprocess.run(["gfortran", "-fopenmp", "-c", "p.f"], cwd=tmp_path, check=True)
    assert isinstance(built := build(["gfortran", "-fopenmp", str(path)], tmp_path / "p"), Built)
    assert built.warnings == []


def test_bounds_that_nobody_sees_evaluated_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.f90"
    path.write_text(UNLISTED.replace("default(none) shared(a)", ""))
    assert "do i = m, 100, m" in fortran.instrument(path).text


def test_a_function_in_the_bounds_is_a_race_only_where_each_thread_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "p.f90"
    path.write_text(COUNTED)
    assert fortran.instrument(path).warnings == []
    path.write_text(COUNTED.replace("!$omp parallel do simd", "!$omp parallel\n!$omp do").replace(
        "  a(1) = f(3)", "!$omp end parallel\n  a(1) = f(3)"))  # fmt: skip
    assert [line for line, text in fortran.instrument(path).warnings if "calls in f is of a module" in text] == [7]
