"""What is printed by a procedure that is given a time, as benchmarks do it: a time, if it is one in each call."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, two_passes
from testbed.threads_corpus import has

from safepoint.threads import runs

pytestmark = pytest.mark.skipif(not has("gfortran"), reason="no gfortran")

PROGRAM = """\
program main
  use omp_lib
  implicit none
  integer :: i
  real(8) :: t, a(100)
  t = omp_get_wtime()
  !$omp parallel do
  do i = 1, 100
    a(i) = i
  end do
  t = omp_get_wtime() - t
  call results({given}, sum(a))
  {again}
end program
subroutine results(t, s)
  implicit none
  real(8) :: t, s
  integer :: num_threads, max_threads
!$ integer omp_get_num_threads, omp_get_max_threads
!$ external omp_get_num_threads, omp_get_max_threads
  max_threads = 1
!$ max_threads = omp_get_max_threads()
  num_threads = 1
!$omp parallel shared(num_threads)
!$omp master
!$ num_threads = omp_get_num_threads()
!$omp end master
!$omp end parallel
  write (*, 6) t
6 format(' Time in seconds = ', 12x, f12.2)
  write (*, 7) num_threads
7 format(' Total threads   = ', 12x, i12)
  write (*, 8) max_threads
8 format(' Avail threads   = ', 12x, i12)
  write (*, 9) s
9 format(' Sum             = ', 12x, f12.2)
end subroutine
"""


@pytest.mark.parametrize(
    ("given", "again", "values"),
    [
        ("t", "", "R"),
        ("t", "call results(2 * t, 1d0)", "R"),
        ("t", "call results(a(1), 1d0)", "r"),  # by one call it is a result
        ("a(1)", "", "r"),
    ],
)
def test_an_argument_is_a_time_if_each_call_gives_one(given: str, again: str, values: str, tmp_path: Path) -> None:
    (tmp_path / "m.f90").write_text(PROGRAM.format(given=given, again=again))
    built(tmp_path / "m.f90", tmp_path)
    found = {shown.words[0].split()[0]: shown.values for shown in runs.shown([str(tmp_path / "m.serial")])}
    assert found == {"Time": values, "Total": "I", "Avail": "I", "Sum": "r"}
    assert two_passes(tmp_path / "m", tmp_path, threads=3).code in ((0,) if values == "R" else (0, 1, 2))
