"""Programs that trap floating exceptions, or look at the flags, are not changed by the statistics of their digests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.traced_threads import compiled, run_of

from safepoint.threads import kinds
from safepoint.threads.building import build

LARGE = """\
program p
  use, intrinsic :: ieee_exceptions
  implicit none
  real(4) :: a(10)
  real(8) :: b(10)
  complex(8) :: c(10)
  logical :: raised(5)
  integer :: i
!$omp parallel do
  do i = 2, 9
    a(i) = i
    b(i) = scale(1d0, 1000)
    c(i) = scale(1d0, 1000)
  end do
  call ieee_get_flag([ieee_overflow, ieee_divide_by_zero, ieee_invalid, ieee_underflow, ieee_inexact], raised)
  print *, raised
end program p
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_statistics_raise_no_exception_of_the_program(tmp_path: Path, compiler: str) -> None:
    program = compiled("traps.c", compiler)
    run = run_of(program, tmp_path, SP_LEVEL="minimal", SP_STATISTICS="1")
    assert run.about["ended"] == "exit"
    said = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env={**os.environ, "SP_LEVEL": "full", "SP_STATISTICS": "1"})  # fmt: skip
    assert said.stdout == "0 0 1\n"


def test_the_statistics_are_what_they_were(tmp_path: Path) -> None:
    run = run_of(compiled("traps.c"), tmp_path, SP_LEVEL="minimal", SP_STATISTICS="1")
    digests = run.threads[0].records[run.threads[0].records["kind"] == kinds.DIGEST]
    words = run.threads[0].records["value"][2:].view("f8")
    assert len(digests) == 5 and 2.0**1000 in words and float("inf") in words


def test_a_program_with_traps_and_signalling_nans_runs_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fparser")
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran: programs are not built")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.f90").write_text(LARGE)
    flags = ["-O1", "-fopenmp", "-ffpe-trap=invalid,overflow,zero,underflow", "-finit-real=snan"]
    build(["gfortran", *flags, "p.f90"], Path("p"))
    for program in ("./p", "./p.serial"):
        done = subprocess.run([program], capture_output=True, text=True,
                              env={**os.environ, "SP_LEVEL": "full", "SP_STATISTICS": "1"})  # fmt: skip
        assert (done.returncode, done.stdout.split()) == (0, ["F"] * 5), done
