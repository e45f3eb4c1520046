"""From a mistake to its line in three commands, as docs/threads.md shows it, on real programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")
if shutil.which("gfortran") is None:
    pytest.skip("no gfortran: programs are not built", allow_module_level=True)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "threads"
LINE = ("build", "-o", "heat", "--", "gfortran", "-O2", "-fopenmp", "solver.f90", "heat.f90")
STEP = """\
subroutine step(u, n)
  implicit none
  integer, intent(in) :: n
  real(8), intent(inout) :: u(n)
  real(8) :: v(n), h
  integer :: i
  h = 0.5d0
  v = u
!$omp parallel do private(h)
  do i = 2, n - 1
    u(i) = h * (v(i - 1) + v(i + 1))
  end do
!$omp end parallel do
end subroutine step
"""
MAIN = """\
program smooth
  implicit none
  real(8) :: u(40)
  integer :: k
  u = [(real(k * k, 8), k = 1, 40)]
  do k = 1, 3
    call step(u, 40)
  end do
  print '(f0.6)', sum(u)
end program smooth
"""


def safepoint(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "safepoint", "threads", *words]
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(line, cwd=here, env=wide, capture_output=True, text=True, timeout=300)


def built(here: Path, step: str) -> str:
    (here / "step.f90").write_text(step)
    (here / "smooth.f90").write_text(MAIN)
    done = safepoint(here, "build", "-o", "smooth", "--", "gfortran", "-O1", "-fopenmp", "step.f90", "smooth.f90")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_example_of_the_page_does_what_the_page_shows(tmp_path: Path) -> None:
    """The line of its mistake, before any run; a run that shows it; and the mended program."""
    for name in ("solver.f90", "heat.f90"):
        shutil.copy(EXAMPLE / name, tmp_path)
    page = (ROOT / "docs" / "threads.md").read_text()
    said = safepoint(tmp_path, *LINE).stdout
    assert f"$ safepoint threads {' '.join(LINE)}\n{said}```" in page, said
    assert "\n".join((tmp_path / "solver.f90").read_text().splitlines()[10:18]) in page
    found = safepoint(tmp_path, "test", "--runs", "5", "--noise", "50", "--", "./heat")
    assert found.returncode == 1 and "121 regions;  first difference: region " in found.stdout, found.stdout
    assert "solver.f90:11-18, " in found.stdout, found.stdout
    text = (tmp_path / "solver.f90").read_text()
    (tmp_path / "solver.f90").write_text(text.replace("private(i)\n", "private(i, flux)\n", 1))
    safepoint(tmp_path, *LINE)
    mended = safepoint(tmp_path, "test", "--", "./heat")
    assert mended.returncode == 0 and "121 regions;  no difference" in mended.stdout, mended.stdout


def test_a_program_that_make_has_linked_without_the_calls_is_told_to_be_one(tmp_path: Path) -> None:
    built(tmp_path, STEP.replace("private(h)", "firstprivate(h)"))
    line = ["gfortran", "-fopenmp", "step.f90", "smooth.f90", "-o", "smooth"]
    subprocess.run(line, cwd=tmp_path, check=True)
    done = safepoint(tmp_path, "test", "--", "./smooth")
    assert done.returncode == 2 and "B has left no trace" in done.stdout, done.stdout
    assert "./smooth was not made by `safepoint threads build`" in done.stdout and "make FC=" in done.stdout


def test_a_private_variable_without_a_value_is_found_at_its_line_and_the_mended_program_is_equal(
    tmp_path: Path,
) -> None:
    assert "step.f90: " in built(tmp_path, STEP)
    done = safepoint(tmp_path, "test", "--", "./smooth")
    assert done.returncode == 1 and "first difference: region 1, step.f90:9-13, u" in done.stdout, done.stdout
    assert "step.f90:11=" in done.stdout
    assert "h is PRIVATE in step.f90:9 and read at line 11 before it is written" in done.stdout
    built(tmp_path, STEP.replace("private(h)", "firstprivate(h)"))
    mended = safepoint(tmp_path, "test", "--", "./smooth")
    assert (mended.returncode, mended.stderr) == (0, ""), mended.stdout
    assert "3 regions;  no difference" in mended.stdout


def test_what_differs_after_the_last_region_is_found_as_the_output_differs(tmp_path: Path) -> None:
    built(tmp_path, STEP.replace("private(h)", "firstprivate(h)").replace(
        "end subroutine", "!$ u(1) = 7\nend subroutine"
    ))  # fmt: skip
    done = safepoint(tmp_path, "test", "--json", "--", "./smooth")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (1, "differs"), found
    assert found["difference"]["a"]["name"] and not found["difference"]["inside"]


def test_rounding_is_no_difference_with_a_tolerance(tmp_path: Path) -> None:
    """With OpenMP the sum is formed another way, so that its last bits are other ones."""
    step = STEP.replace("private(h)", "firstprivate(h)").replace(
        "    u(i) = h * (v(i - 1) + v(i + 1))\n",
        "    u(i) = h * (v(i - 1) + v(i + 1))\n!$  u(i) = u(i) * (1 + 4 * epsilon(1d0))\n",
    )
    built(tmp_path, step)
    assert safepoint(tmp_path, "test", "--", "./smooth").returncode == 1
    done = safepoint(tmp_path, "test", "--rtol", "1e-12", "--", "./smooth")
    assert done.returncode == 0, done.stdout


SHOW = """\
subroutine show(t, x)
  real(8), intent(in) :: t, x
  real(8) :: rate
  rate = x / max(t, 1d-9)
  if (rate < 0) print *, rate
end subroutine show
"""
TIMED = """\
program timed
  implicit none
  real(8) :: a(100), t0, t1, t
  integer :: i
  call cpu_time(t0)
!$omp parallel do
  do i = 1, 100
    a(i) = i
  end do
  call cpu_time(t1)
  t = t1 - t0
  call show(t, a(3))
end program timed
"""


def test_a_clock_is_none_of_what_is_compared_in_a_file_that_was_compiled_before_its_caller_too(tmp_path: Path) -> None:
    (tmp_path / "show.f90").write_text(SHOW)
    (tmp_path / "timed.f90").write_text(TIMED)
    done = safepoint(tmp_path, "build", "-o", "timed", "--", "gfortran", "-fopenmp", "show.f90", "timed.f90")
    assert done.returncode == 0 and "show.f90: 1 statement, 0 regions, 0 parallel loops; 0 recorded" in done.stdout
    for name in ("timed.serial", "timed"):
        where = {**os.environ, "SP_LEVEL": "full", "SP_DIR": f"{name}.threads", "OMP_NUM_THREADS": "2"}
        subprocess.run([f"./{name}"], cwd=tmp_path, env=where, check=True)
    done = safepoint(tmp_path, "compare", "timed.serial.threads", "timed.threads")
    assert done.returncode == 0, done.stdout
