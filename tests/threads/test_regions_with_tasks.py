"""What tasks do is recorded by whichever thread does them: an order of chance is no difference, a digest is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.threads_written import Digest, Loop, Region, Statement, Table, Write, written

from safepoint.threads.compare import Found, compare
from safepoint.threads.trace import Run


def judged(place: Path, tasks: str, b: list[Statement], only: set[int] | None) -> Found:
    table = Table()
    table.site("region", "", tasks)
    return compare(written(place / "a", table, program(1.0)), written(place / "b", table, b), only=only)


def program(value: float, digest: int = 1) -> list[Statement]:
    def region(x: float) -> Region:
        return Region([Loop("j", range(1, 4), lambda j: [Write("b(j)", x)])], after=[Digest("b", (3, digest, 0))])

    return [region(1.0), region(value), region(value)]


@pytest.mark.parametrize("only", [None, {2}])
def test_another_order_in_a_region_with_tasks_is_not_told_as_a_difference(
    tmp_path: Path, only: set[int] | None
) -> None:
    found = judged(tmp_path / "plain", "", program(2.0), only)
    assert found.code == 1
    found = judged(tmp_path / "tasks", "task", program(2.0), only)
    assert found.code == 2 and "region 2 (heat.f90:1) has TASK" in found.undecided


def test_a_digest_after_tasks_counts(tmp_path: Path) -> None:
    assert judged(tmp_path, "task", program(1.0, digest=2), None).code == 1


CALLED = """\
module m
contains
  recursive subroutine add(x, a, b)
    real(8), intent(inout) :: x(:)
    integer, intent(in) :: a, b
    integer :: middle
    if (b == a) then
      x(a) = x(a) + a
    else
      middle = (a + b) / 2
      !$omp task shared(x)
      call add(x, a, middle)
      !$omp end task
      call add(x, middle + 1, b)
      !$omp taskwait
    end if
  end subroutine
end module
program t
  use m
  real(8) :: x(40)
  x = 0
  !$omp parallel
  !$omp single
  call add(x, 1, 40)
  !$omp end single
  !$omp end parallel
  print *, sum(x)
end program
"""


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_tasks_may_be_in_a_procedure_that_the_region_calls(tmp_path: Path) -> None:
    pytest.importorskip("fparser")
    (tmp_path / "t.f90").write_text(CALLED)
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "t", "--", "gfortran", "-fopenmp", "t.f90"], cwd=tmp_path, check=True)
    for program, threads in (("t.serial", "1"), ("t", "3")):
        environment = {**os.environ, "SP_LEVEL": "full", "OMP_NUM_THREADS": threads}
        subprocess.run([tmp_path / program], cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
    found = compare(Run(tmp_path / "t.serial.threads"), Run(tmp_path / "t.threads"))
    assert found.difference is None, found.difference  # of three threads, one has seldom done all of it
    assert found.code == 0 or "region 1 (t.f90:23) calls add (t.f90:3), which has TASK" in found.undecided
