"""A variable that is given a time when all has been done is none before: what was made of it is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, two_passes
from testbed.threads_corpus import has

from safepoint.threads import fortran

PROGRAM = """\
program p
  implicit none
  integer :: i, k
  real(8) :: a(100), s, t
  s = 0; t = 0
{begin}
  !$omp parallel do reduction(+: s)
  do i = 1, 100
    a(i) = i
    s = s + a(i)
  end do
  t = 2 * s
  !$omp parallel do
  do i = 1, 100
    a(i) = a(i) / t
    !$ if (i == {wrong}) a(i) = 0
  end do
{end}
  if (t < 0) print *, t
  print '(f12.6)', sum(a)
{more}
end program p
"""
TIMED = ["call cpu_time(t)", "if (s > 0) call cpu_time(t)", "call cpu_time(t)\n  s = t - s"]


def program(place: Path, end: str, begin: str = "", more: str = "", wrong: int = 0) -> Path:
    path = place / "p.f90"
    path.write_text(PROGRAM.format(begin=begin, end=f"  {end}", more=more, wrong=wrong))
    return path


def digests(path: Path) -> set[str]:
    """The variables that have a digest at the end of a region."""
    made = fortran.instrument(path)
    return {site.name for site in made.sites if site.type == "array" and "%" not in site.name}


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("end", TIMED)
def test_what_was_made_of_it_before_is_compared(end: str, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for place, at, code in ((right, 0, 0), (wrong, 50, 1)):
        place.mkdir()
        built(program(place, end, wrong=at), place)
        found = two_passes(place / "p", place)
        assert found.code == code, found
        assert not any("in no digest" in line for line in found.lines), found


@pytest.mark.parametrize("end", TIMED)
def test_all_that_is_assigned_has_a_digest(end: str, tmp_path: Path) -> None:
    assert "a" in digests(program(tmp_path, end))


@pytest.mark.parametrize(
    ("begin", "end", "more"),
    [
        ("do k = 1, 2", "call cpu_time(t)\n  end do", ""),
        ("call cpu_time(t)", "", ""),
        ("1 continue", "call cpu_time(t)\n  if (s < 0) goto 1", ""),
        ("", "call cpu_time(t)", "contains\n  subroutine u()\n    t = 2\n  end subroutine u"),
    ],
    ids=["in a loop", "at first", "with a way back", "seen by a procedure"],
)
def test_where_it_may_be_one_before_it_is_left_out(begin: str, end: str, more: str, tmp_path: Path) -> None:
    assert "a" not in digests(program(tmp_path, end, begin, more))
