"""Work that a counter hands out, in CRITICAL or ATOMIC CAPTURE: which thread gets what is chance."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

QUEUE = """\
program q
  implicit none
  integer :: k, pos
  real(8) :: a(20)
  a = 1
  pos = 0
  !$omp parallel private(k)
  do
    !$omp atomic capture
    pos = pos + 1
    k = pos
    !$omp end atomic
    if (k > 20) exit
    a(k) = a(k) + k
  end do
  !$omp end parallel
  print *, a
end program
"""


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
@pytest.mark.parametrize("way", ["atomic capture", "critical"])
def test_a_queue_is_no_difference_and_what_it_hands_out_is_compared(tmp_path: Path, way: str) -> None:
    text = QUEUE.replace("atomic capture", way).replace("end atomic", f"end {way.split()[0]}")
    (tmp_path / "q.f90").write_text(text)
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "q", "--", "gfortran", "-fopenmp", "q.f90"], cwd=tmp_path, check=True)
    done = subprocess.run([*line, "test", "--", "./q"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert '"name": "a"' in (tmp_path / "q.sites.jsonl").read_text()  # it has a digest


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
@pytest.mark.parametrize("way", ["atomic capture", "critical"])
def test_a_wrong_element_is_told_and_not_who_was_given_it(tmp_path: Path, way: str) -> None:
    text = QUEUE.replace("atomic capture", way).replace("end atomic", f"end {way.split()[0]}")
    (tmp_path / "q.f90").write_text(text.replace("= a(k) + k\n", "= a(k) + k\n    !$ if (k == 15) a(k) = -1\n"))
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "q", "--", "gfortran", "-fopenmp", "q.f90"], cwd=tmp_path, check=True)
    done = subprocess.run([*line, "test", "--", "./q"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "=digest a (" in done.stdout, done.stdout
    assert "what lines 14, 15 may assign to a is not recorded" in done.stdout, done.stdout
