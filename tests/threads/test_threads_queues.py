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
    assert "pos is in no digest, as it hands out work" in done.stdout


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


FILLED = """\
program q
  implicit none
  integer :: i, j, k, t, m, list(400), a(400)
  a = [(mod(i * i, 23), i = 1, 400)]
  m = 0
  list = 0
  !$omp parallel do private(k) schedule(dynamic, 5)
  do i = 1, 400{off}
    if (a(i) == 4) then
      {way}
      m = m + 1
      k = m
      {end}
      list({at}) = {value}
    end if
  end do
  {sort}
  !$omp parallel do
  do i = 1, 400
    a(i) = a(i) + list(i)
  end do
  print *, {shown}
end program
"""
SORT = """do i = 2, m
    t = list(i); j = i - 1
    do while (j >= 1)
      if (list(j) <= t) exit
      list(j + 1) = list(j); j = j - 1
    end do
    list(j + 1) = t
  end do"""
ATOMIC = {"way": "!$omp atomic capture", "end": "!$omp end atomic", "at": "k"}
CRITICAL = {"way": "!$omp critical", "end": "!$omp end critical", "at": "k"}
WITHIN = {"way": "!$omp critical", "end": "list(m) = i\n!$omp end critical", "at": "400 - k * 0", "value": "0"}
RIGHT = {"off": "", "value": "i", "sort": SORT, "shown": "m, sum(a)"}


def outcome(tmp_path: Path, **given: str) -> tuple[int, str]:
    (tmp_path / "q.f90").write_text(FILLED.format(**given))
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "q", "--", "gfortran", "-fopenmp", "q.f90"], cwd=tmp_path, check=True)
    done = subprocess.run([*line, "test", "--", "./q"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
@pytest.mark.parametrize("way", [ATOMIC, CRITICAL, WITHIN])
def test_a_list_that_is_filled_in_an_order_of_chance_is_compared_once_it_is_sorted(
    tmp_path: Path, way: dict[str, str]
) -> None:
    code, said = outcome(tmp_path, **{**RIGHT, **way})
    assert code == 0 and "list is in no digest, as it has an order of chance" in said, said


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_what_is_wrong_in_a_list_is_found_after_it_was_sorted(tmp_path: Path) -> None:
    wrong = SORT + "\n  !$ list(3) = list(3) + 1"
    code, said = outcome(tmp_path, **{**RIGHT, **ATOMIC, "sort": wrong})
    assert code == 1 and "q.f90" in said, said


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_a_counter_that_iterations_count_has_a_digest(tmp_path: Path) -> None:
    wrong = "\n    !$ if (i == 2) cycle"
    code, said = outcome(tmp_path, **{**RIGHT, **ATOMIC, "off": wrong, "shown": "'done'"})
    assert code == 1 and "q.f90:7-17, m" in said, said


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_what_a_queue_counts_beyond_the_end_is_printed_and_no_mistake_for_certain(tmp_path: Path) -> None:
    (tmp_path / "q.f90").write_text(QUEUE.replace("print *, a", "print *, 'end', pos"))
    line = [sys.executable, "-m", "safepoint", "threads"]
    subprocess.run([*line, "build", "-o", "q", "--", "gfortran", "-fopenmp", "q.f90"], cwd=tmp_path, check=True)
    done = subprocess.run([*line, "test", "--", "./q"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "Cannot tell: it is made of" in done.stdout, done.stdout
