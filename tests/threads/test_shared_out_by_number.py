"""A result that is made of a number of threads is never taken for equal where it differs; such a number itself is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, two_passes
from testbed.threads_corpus import has

from safepoint.threads import fortran, screen
from safepoint.threads.choices import Choices
from safepoint.threads.shown import Shown

CELLS = """\
program p
  use omp_lib
  implicit none
  integer, parameter :: n = 1003
  integer :: me, nt, lo, hi, mine, total
  total = 0
  !$omp parallel private(me, nt, lo, hi, mine)
  me = omp_get_thread_num(); nt = omp_get_num_threads()
  lo = me*(n/nt) + 1; hi = (me+1)*(n/nt)
  mine = hi - lo + 1
  !$omp atomic
  total = total + mine
  !$omp end parallel
  {print}
end program
"""
PARTS = """\
program p
  implicit none
  real(8) :: s, ls
  integer :: i
  s = 0
  !$omp parallel private(ls)
  ls = 0
  !$omp do
  do i = 1, 100
    ls = ls + i
  end do
  print *, 'part', ls
  !$omp atomic
  s = s + ls
  !$omp end parallel
  print *, 'sum', s
end program
"""
VALUES = """\
module clocks
  use omp_lib
  implicit none
  real(8) :: spent = 0
  integer :: team = 1
contains
  real(8) function now()
    now = omp_get_wtime()
  end function now
end module clocks
program p
  use clocks
  implicit none
  integer, parameter :: n = 1000
  integer :: nt, me, chunk, reused, count, steps
  real(8) :: t0, t1, each(64), s, flops
  logical :: with
  nt = 1; with = .false.; steps = 7; flops = 2d0 * n * steps
  !$ nt = omp_get_max_threads()
  !$ with = .true.
  t0 = now()
  s = 0
  reused = nt
  count = 0
  !$omp parallel private(me) reduction(+:count)
  me = omp_get_thread_num()
  each(me + 1) = now() - t0
  count = count + me
  !$omp end parallel
  reused = int(s) + 1
  t1 = now()
  chunk = n / nt
  spent = spent + (t1 - t0)
  print *, {value}
end program p
"""
ITSELF = ["nt", "nt - 1", "2 * nt", "t1 - t0", "1d3 * (t1 - t0)", "spent", "maxval(each(1:nt))", "now() - t0", "with",
          "(t1 - t0) / nt", "1d-9 * flops / (t1 - t0)", "omp_get_num_threads()", "flops / 1d6 / spent"]  # fmt: skip
MADE = ["chunk", "n / nt", "mod(n, nt)", "count", "s + t1", "reused + nt", "nt * chunk", "reused"]


def shown(text: str, directory: Path) -> list[Shown]:
    source = directory / "p.f90"
    source.write_text(text)
    modules: dict[str, object] = {}
    fortran.survey([(source, Choices())], modules)  # type: ignore[arg-type]
    return screen.survey(modules)


@pytest.mark.parametrize("value", ITSELF)
def test_a_time_or_a_number_of_threads_is_known_as_such(value: str, tmp_path: Path) -> None:
    found = shown(VALUES.format(value=value), tmp_path)[0]
    assert found.unsure and not found.made, found


@pytest.mark.parametrize("value", MADE)
def test_what_is_made_of_one_is_not_taken_for_one(value: str, tmp_path: Path) -> None:
    found = shown(VALUES.format(value=value), tmp_path)[0]
    assert found.made and not found.unsure, found


def test_a_line_that_a_result_decides_on_is_not_one_of_openmp_alone(tmp_path: Path) -> None:
    ways = [each.way for each in shown(CELLS.format(print="if (total /= n) print *, 'lost', n - total"), tmp_path)]
    assert ways == ["perhaps"]
    assert shown(VALUES.format(value="1").replace("print", "if (nt > 1) print"), tmp_path)[0].way == "only"


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("text", [CELLS.format(print="print *, 'cells', total"), PARTS,
                                  CELLS.format(print="if (total /= n) print *, 'lost', n - total")])  # fmt: skip
def test_a_result_that_depends_on_how_work_is_shared_out_cannot_be_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.f90").write_text(text)
    found = two_passes(tmp_path / built(tmp_path / "p.f90", tmp_path).parallel, tmp_path, threads=4)
    assert found.code == 2 and "Cannot tell: it " in str(found), str(found)
