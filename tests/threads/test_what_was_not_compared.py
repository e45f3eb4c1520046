"""Two runs that are equal as far as they were compared: what was not is said, with what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.threads_chain import Verdict, built, two_passes

from safepoint.threads import lacking

HANDED = """\
#include <stdio.h>
#include "sp_trace.h"

int main(void) {
    double a[8];
    for (int step = 0; step < 3; step++) {
        SP_REGION("step")
#pragma omp parallel
        {
            SP_ENTER
#pragma omp for
            for (int i = 0; i < 8; i++) {
#ifdef _OPENMP
                a[i] = i + 1;
#else
                a[i] = i;
#endif
            }
            SP_LEAVE
        }
        DIGEST
        SP_REGION_END
    }
    fprintf(stderr, "%g\\n", a[3]);
    return 0;
}
"""


def by_hand(tmp_path: Path, digest: str) -> Verdict:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    path = tmp_path / "step.c"
    path.write_text(HANDED.replace("DIGEST", digest))
    built(path, tmp_path, compiler="gcc")
    return two_passes(tmp_path / "step", tmp_path)


def test_without_any_digest_a_program_by_hand_is_not_equal(tmp_path: Path) -> None:
    found = by_hand(tmp_path, "")
    assert found.code == 2 and "No inconsistencies" not in str(found), found
    assert "Cannot tell: no region has a digest (SP_DIGEST before SP_REGION_END), so nothing" in str(found), found


def test_how_many_regions_have_no_digest_is_said(tmp_path: Path) -> None:
    found = by_hand(tmp_path, "if (step == 1) SP_DIGEST(&step, 1);")
    said = "  2 of 3 regions have no digest (SP_DIGEST before SP_REGION_END), and what they assign was not compared: "
    assert found.code == 0 and found.lines[-1].startswith(said) and "step.c:7" in found.lines[-1], found


def test_with_a_digest_in_each_region_the_mistake_is_found(tmp_path: Path) -> None:
    found = by_hand(tmp_path, "SP_DIGEST(a, 8);")
    assert found.code == 1 and "no digest" not in str(found), found


RACE = "x.f90:8: k is shared and assigned in a parallel loop, outside critical and atomic: a race; is it to be PRIVATE?"
TASK = "x.f90:9: TASK is passed through"


@pytest.mark.parametrize(
    ("runs", "noise", "last"),
    [(1, 0, "none showed in 1 run of B: try --runs 5 --noise 50"), (5, 0, "none showed in 5 runs of B: try --noise 50"),
     (1, 50, "none showed in 1 run of B: try --runs 5"),
     (5, 50, "none showed in 5 runs of B: ThreadSanitizer is the next step")],
)  # fmt: skip
def test_options_that_were_used_are_not_advised(runs: int, noise: int, last: str) -> None:
    assert lacking.ending([TASK, RACE], runs, noise)[-1] == f"races are chance, and {last}"


def test_of_what_is_no_race_it_is_not_said_that_it_is_chance() -> None:
    assert lacking.ending([TASK], 1, 0) == ["but `build` has warned:", f"  {TASK}"]
    assert lacking.ending([], 1, 0) == []


LATER = """\
program later
  implicit none
  real(8) :: a(20), s
  integer :: i, k
  s = 1
  do k = 1, 5
!$omp parallel do
    do i = 1, 20
      a(i) = i * k
    end do
!$omp end parallel do
!$  if (k == 3) s = 7
  end do
  s = s * 2
  print *, s
end program later
"""


def test_what_is_found_after_the_last_region_may_differ_earlier(tmp_path: Path) -> None:
    pytest.importorskip("fparser")
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran here")
    (tmp_path / "later.f90").write_text(LATER)
    built(tmp_path / "later.f90", tmp_path)
    found = two_passes(tmp_path / "later", tmp_path)
    assert found.code == 1 and "\n  after region 5; A: thread" in str(found) and "before region 6" not in str(found), (
        found
    )
    assert found.lines[-1].startswith("  it may differ earlier, as it is in none of the digests"), found
    assert "`!$sp watch NAME`, or by SP_LEVEL=full" in found.lines[-1]
