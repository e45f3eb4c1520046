"""An array that no digest has, as numbers of threads are in it: `build` says so, and so does `test`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

REUSED = """\
program t
  use omp_lib
  implicit none
  integer :: i, n
  real(8) :: a(4)
  !$omp parallel private(n)
  n = omp_get_num_threads()
  !$omp end parallel
  !$omp parallel do private(n)
  do i = 1, 4
    n = i
    a(n) = i
  end do
  print *, a
end program t
"""


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_what_is_in_no_digest_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.f90").write_text(REUSED)
    line = [sys.executable, "-m", "safepoint", "threads"]
    build = [*line, "build", "-o", "t", "--", "gfortran", "-fopenmp", "t.f90"]
    said = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    why = "a is in no digest, as its subscript n may be the number of a thread, or a time"
    assert f"{why}, line 12" in said
    done = subprocess.run([*line, "test", "--", "./t"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"  t.f90:12: {why}" in done.stdout, done.stdout
