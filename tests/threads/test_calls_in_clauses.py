"""What a clause of OpenMP calls, the serial program never calls: it is no event, and no region of it is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, two_passes
from testbed.threads_corpus import has

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


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("name", BODIES)
def test_what_a_clause_calls_is_no_difference(name: str, tmp_path: Path) -> None:
    path = tmp_path / "p.f90"
    path.write_text(PROGRAM.format(body=BODIES[name], wrong=""))
    made = built(path, tmp_path)
    assert made.warnings == []
    found = two_passes(tmp_path / made.parallel, tmp_path, threads=4)
    assert found.code == 0, str(found)


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("name", ["if", "schedule, in a region"])
def test_what_is_wrong_after_such_a_clause_is_found(name: str, tmp_path: Path) -> None:
    path = tmp_path / "p.f90"
    wrong = "\n  !$ if (i == 50) a(i) = 0"
    path.write_text(PROGRAM.format(body=BODIES[name], wrong=wrong))
    found = two_passes(tmp_path / built(path, tmp_path).parallel, tmp_path, threads=4)
    assert found.code == 1 and "a" in str(found), str(found)


def test_a_clause_that_asks_openmp_alone_stays_as_it_is(tmp_path: Path) -> None:
    from safepoint.threads import fortran

    path = tmp_path / "p.f90"
    text = "!$omp parallel do num_threads(omp_get_max_threads())\n" + LOOP
    path.write_text(PROGRAM.format(body=text, wrong="").replace("use m", "use m\n  use omp_lib"))
    assert "num_threads(omp_get_max_threads())" in fortran.instrument(path).text
