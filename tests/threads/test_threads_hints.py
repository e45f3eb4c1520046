"""What is said beside a difference: where it may come from, and what to try next."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from safepoint.threads import hints, kinds, telling
from safepoint.threads.difference import Difference, Event
from safepoint.threads.sites import Site

NEEDS = pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
SUM = """\
program r
  real(8) :: a(100), s
  integer :: i
  a = 1.5d0
  s = 0
!$omp parallel do reduction(*:s)
  do i = 1, 100
    s = s + a(i)
  end do
!$omp end parallel do
  print *, s
end program r
"""
LAST = """\
program p
  integer :: i, k
  logical :: some
  k = 0
!$omp parallel
!$omp do
  do i = 1, 100
    k = i
  end do
!$omp end do
!$omp end parallel
  some = k == 0
  if (some) print *, k
end program p
"""


def safepoint(here: Path, *words: str) -> str:
    line = [sys.executable, "-m", "safepoint", "threads", *words]
    return subprocess.run(line, cwd=here, capture_output=True, text=True, timeout=300).stdout


def built(here: Path, text: str) -> None:
    (here / "x.f90").write_text(text)
    assert "1 region" in safepoint(here, "build", "-o", "x", "--", "gfortran", "-O1", "-fopenmp", "x.f90")


@NEEDS
def test_a_reduction_with_another_operator_is_not_to_be_private(tmp_path: Path) -> None:
    built(tmp_path, SUM)
    said = safepoint(tmp_path, "test", "--", "./x")
    assert "the REDUCTION of s is not: is its operator the one by which the loop makes s?" in said
    assert "PRIVATE" not in said


@NEEDS
def test_a_warning_of_the_build_is_repeated_where_nothing_was_found(tmp_path: Path) -> None:
    built(tmp_path, LAST)
    (tmp_path / "x").unlink()
    shutil.copy(tmp_path / "x.serial", tmp_path / "x")
    said = safepoint(tmp_path, "test", "--", "./x").splitlines()
    assert said[-3] == "but `build` has warned:" and said[-2].startswith("  x.f90:8: k is shared and assigned")
    assert said[-1] == "races are chance, and none showed in 1 run of B: try --runs 5 --noise 50"


def site(name: str, loose: str = "", type: str = "array") -> Site:
    return Site(1, type, name, "x.f90", 3, 5, loose=loose)


def test_lastprivate_is_said_to_stand_on_the_loop_where_a_region_may_not_have_it() -> None:
    assert hints.by_digest(site("k"), site("parallel do", type="region")).endswith("PRIVATE, or LASTPRIVATE?")
    assert hints.by_digest(site("k"), site("parallel", type="region")).endswith(
        "Is it to be PRIVATE, or LASTPRIVATE on the DO, FOR or SECTIONS in the region?"
    )


def digest(type: int, value: float) -> Event:
    statistics = struct.unpack("<4Q", struct.pack("<4d", value, value, value, abs(value)))
    return Event(0, 0, 1, site("k"), kinds.DIGEST, type, 1, (1, 2, 3, *statistics))


@pytest.mark.parametrize(
    ("type", "value", "shown"),
    [(kinds.INTEGER4, 25.0, "25)"), (kinds.LOGICAL4, 1.0, "T)"), (kinds.REAL8, 0.5, "0.5)")],
)
def test_a_digest_of_one_value_shows_it(type: int, value: float, shown: str) -> None:
    assert f"({telling.shown(digest(type, value))})".endswith(", " + shown)


def test_rounding_is_named_if_the_statistics_are_near() -> None:
    def difference(value: float) -> Difference:
        a, b = digest(kinds.REAL8, 1.0), digest(kinds.REAL8, value)
        return Difference("value", 1, True, None, a, b, None, (), 1, 0, 0, 0, None, None, (), False)

    assert hints.near(difference(1 + 1e-12)) and not hints.near(difference(1.001))
