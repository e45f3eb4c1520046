"""A sum of threads is rounded otherwise, and so is all that is made of it: that is no difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_chain import Outcome, command, outcome, recorded
from testbed.threads_written import Loop, Region, Statement, Table, Write, written

from safepoint.threads import kinds, telling
from safepoint.threads.compare import Found, compare

# A sum of threads is rounded otherwise, and so is all that is made of it, by whatever name: that is no difference.

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


def spreads(place: Path, kind: str, wrong: str = "") -> Outcome:
    return outcome(place, SPREADS.replace("KIND", kind).replace("WRONG", wrong))


@pytest.mark.parametrize("kind", ["real(8)", "real(4)"])
def test_what_is_made_of_a_sum_may_differ_in_its_last_bits_by_whatever_name(kind: str, tmp_path: Path) -> None:
    """Of single precision these are other bits, and they may be seen in what is printed. Two whole traces are judged
    alike; but without statistics nobody can tell by how much an array differs."""
    code, said, _ = spreads(tmp_path, kind)
    assert code == 0, said
    assert "as sums of threads do" in said and "Inconsistency" not in said
    if kind == "real(4)":
        assert "of single precision" in said
        return
    for statistics in ("", "1"):
        recorded(tmp_path / "x", SP_STATISTICS=statistics)
        done = command(tmp_path, "compare", "a", "b")
        assert done.exit_code == (0 if statistics else 2) and "PRIVATE" not in done.stdout, done.stdout


def test_elements_that_changed_places_are_no_rounding(tmp_path: Path) -> None:
    """Their statistics are the same."""
    code, said, _ = spreads(tmp_path, "real(8)", ANOTHER_PLACE)
    assert code == 1 and "x.f90:43=write z(1)" in said, said


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
    code, said, _ = outcome(tmp_path, ANOMALY)
    assert code == 0 or (code == 2 and "while it was summed, and differs by" in said), said


def test_a_small_value_beside_large_ones_is_compared_by_its_own_size(tmp_path: Path) -> None:
    """The statistics of the array are those of the large ones alone."""
    code, said, _ = outcome(tmp_path, SMALL)
    assert code == 1 and "write c(2,1)" in said, said


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
    code, said, _ = outcome(tmp_path, CHUNKS)
    assert code == 0, said


def test_what_is_printed_of_a_sum_that_cancels_is_not_known_to_be_wrong(tmp_path: Path) -> None:
    text = ANOMALY.partition("  t = 0\n")[0] + "  print '(a, es12.4)', 'mean ', sum(a) / n + extra()\ncontains\n"
    text += "  real(8) function extra()\n    extra = 0\n    !$ extra = WRONG\n  end function\nend program\n"
    code, said, _ = outcome(tmp_path, text.replace("WRONG", "0"))
    assert code == 0 or (code == 2 and "what is left where sums cancel" in said), said
    assert outcome(tmp_path, text.replace("WRONG", "1d-6")).code == 1


# What the serial code makes of a sum of threads has its rounding: it is not the first difference.


def judged(place: Path, carried: float, wrong: float = 0.0, loose: str = "reduction") -> Found:
    """A sum, what serial code makes of it, and a region after it."""
    table = Table()
    sides: list[list[Statement]] = []
    for total, other in ((1.0, 0.0), (carried, wrong)):
        inside = Loop("j", range(2, 7), lambda j: [Write("s", float(j), kinds.REAL8, loose)])
        last = Loop("j", range(2, 7), lambda j, other=other: [Write("b(j)", j + other, kinds.REAL8)])  # type: ignore[misc]
        sides.append([Region([inside]), Write("t", total), Region([last])])
    return compare(written(place / "a", table, sides[0]), written(place / "b", table, sides[1], 4, seed=5), only=[2])


def test_a_sum_that_serial_code_goes_on_with_may_differ_in_its_last_bits(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 3e-15)
    assert found.code == 0
    assert "  1 value that differs in the last bits, as sums of threads do" in telling.lines(found)


def test_the_difference_in_the_region_is_told_and_not_the_rounding_before_it(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 3e-15, wrong=1.0)
    assert found.difference is not None and (found.difference.visit, found.difference.inside) == (2, True)
    assert (found.regions, found.difference.regions_equal) == (1, 1)


def test_more_than_rounding_before_the_region_is_told_with_the_number_of_the_region(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 1e-9, wrong=1.0)
    assert found.difference is not None and (found.difference.visit, found.difference.inside) == (2, False)


def test_without_a_sum_each_bit_counts(tmp_path: Path) -> None:
    assert judged(tmp_path, 1 + 3e-15, loose="").code == 1
