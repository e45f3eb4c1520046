"""Clauses and bounds of a construct: evaluated once, before its team begins, where that shows, by any integer; and what
they call is no event, as the serial program never calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from testbed.sweep import some_of
from testbed.threads_chain import built, instrumented, outcome, two_passes, written
from testbed.threads_corpus import surroundings
from testbed.traced_threads import ran

# Bounds of a combined loop are evaluated once, before its team begins, where that shows; any integer may count.

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


def prints(program: Path, level: str = "off") -> str:
    return ran(program, program.parent, **surroundings(4, "static", OMP_MAX_ACTIVE_LEVELS="2", SP_LEVEL=level)).stdout


TEXTS = COUNTED, COUNTED.replace("integer :: i, j", "integer(2) :: i, j"), UNLISTED, KINDS, NESTED


@pytest.mark.parametrize(("text", "level"), some_of([(n, each) for n in range(5) for each in ("full", "region")], 4))
def test_all_variants_print_what_the_plain_program_does(tmp_path: Path, text: int, level: str) -> None:
    path = written(tmp_path, "p.f90", TEXTS[text].replace("implicit none\n", f"implicit none\n  !$sp level {level}\n"))
    found = built(path, tmp_path)
    assert found.warnings == [] and "not (" not in found.told[0]
    subprocess.run(["gfortran", "-fopenmp", "p.f90", "-o", "plain"], cwd=tmp_path, check=True)
    plain = prints(tmp_path / "plain")
    all_of = [prints(tmp_path / name, each) for name in ("p", "p.serial") for each in ("off", "full")]
    if text < 2:  # how often the plain program calls it is the compiler's choice; a serial one has no chunks
        assert [each.split()[0] for each in all_of] == ["8", "8", "7", "7"]
        plain, all_of = " ".join(plain.split()[1:]), [" ".join(each.split()[1:]) for each in all_of]
    assert all_of == [plain] * 4


def test_the_bounds_of_such_a_loop_are_recorded(tmp_path: Path) -> None:
    text = instrumented(tmp_path, COUNTED).text
    assert "sp_b2 = f(1)" in text and "do 10 i = sp_b2, sp_b3, sp_b4" in text
    assert "int(sp_b2, 8), int(sp_b3, 8), int(sp_b4, 8))" in text and "!$omp do schedule(static, sp_b5)" in text


def test_the_chunks_of_a_source_in_fixed_form_are_evaluated_with_openmp_alone(tmp_path: Path) -> None:
    lines = instrumented(tmp_path, FIXED, "p.f").text.splitlines()
    assert "!$    sp_b3 = g(2)" in lines and "      sp_b2 = g(1)" in lines
    assert built(tmp_path / "p.f", tmp_path).warnings == []


def test_bounds_that_nobody_sees_evaluated_stay_as_they_are(tmp_path: Path) -> None:
    text = UNLISTED.replace("default(none) shared(a)", "")
    assert "do i = m, 100, m" in instrumented(tmp_path, text).text


def test_a_function_in_the_bounds_is_a_race_only_where_each_thread_calls_it(tmp_path: Path) -> None:
    assert instrumented(tmp_path, COUNTED).warnings == []
    text = COUNTED.replace("!$omp parallel do simd", "!$omp parallel\n!$omp do")
    warnings = instrumented(tmp_path, text.replace("  a(1) = f(3)", "!$omp end parallel\n  a(1) = f(3)")).warnings
    assert [line for line, text in warnings if "calls in f is of a module" in text] == [7]


# What a clause of OpenMP calls, the serial program never calls: it is no event, and no region of it is counted.

PROGRAM = """\
module m
contains
  integer function ch(n)
    integer, intent(in) :: n
    integer :: k, w(4)
    !$omp parallel do
    do k = 1, 4
      w(k) = n
    end do
    ch = max(1, sum(w) / 40)
  end function ch
end module m
program p
  use m
  implicit none
  integer :: i, a(100)
  a = 1
{body}
  !$omp parallel do
  do i = 1, 100
    a(i) = a(i) + i{wrong}
  end do
  print *, sum(a)
end program p
"""
LOOP = "  do i = 1, 100\n    a(i) = a(i) * i\n  end do\n"
BODIES = {
    "schedule": "!$omp parallel do schedule(dynamic, ch(100))\n" + LOOP,
    "schedule, in a region": "!$omp parallel default(none) shared(a) private(i)\n!$omp do schedule(dynamic, ch(100))\n"
    + LOOP + "!$omp end parallel\n",
    "num_threads": "!$omp parallel do num_threads(ch(20))\n" + LOOP,
    "if": "!$omp parallel do if(parallel: ch(5) == 1) default(none) shared(a)\n" + LOOP,
    "of a region": "!$omp parallel num_threads(ch(30)) if(ch(5) > 0) private(i)\n!$omp do\n" + LOOP
    + "!$omp end parallel\n",
    "of a region in a region": "!$omp parallel private(i)\n!$omp single\n!$omp parallel do num_threads(ch(20))\n" + LOOP
    + "!$omp end single\n!$omp end parallel\n",
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(list(BODIES), 3, 6))
def test_what_a_clause_calls_is_no_difference(name: str, tmp_path: Path) -> None:
    made = built(written(tmp_path, "p.f90", PROGRAM.format(body=BODIES[name], wrong="")), tmp_path)
    assert made.warnings == []
    found = two_passes(tmp_path / "p", tmp_path)
    assert found.code == 0, str(found)


@pytest.mark.parametrize("name", ["if", "schedule, in a region"])
def test_what_is_wrong_after_such_a_clause_is_found(name: str, tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, PROGRAM.format(body=BODIES[name], wrong="\n  !$ if (i == 50) a(i) = 0"))
    assert code == 1 and "x.f90:" in said, said


def test_a_clause_that_asks_openmp_alone_stays_as_it_is(tmp_path: Path) -> None:
    text = PROGRAM.format(body="!$omp parallel do num_threads(omp_get_max_threads())\n" + LOOP, wrong="")
    text = instrumented(tmp_path, text.replace("use m", "use m\n  use omp_lib")).text
    assert "num_threads(omp_get_max_threads())" in text
