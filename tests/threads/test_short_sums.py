"""A sum of doubles that is kept in single precision is told before any run; one of single ones is not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran

PROGRAM = """\
program p
  implicit none
  SUM :: s
  TERM :: x(100)
  integer :: i
  s = 0
  !$omp parallel do reduction(+: s)
  do i = 1, 100
    s = s + ADDED
  end do
  print *, s, x(1)
end program
"""


@pytest.mark.parametrize(
    ("sum", "term", "added", "told"),
    [
        ("real(4)", "real(8)", "x(i)", True),
        ("real*4", "double precision", "x(i) * 2", True),
        ("real(kind=4)", "real(4)", "x(i) * 1.5d0", True),
        ("real(4)", "real(4)", "x(i)", False),
        ("real", "real(8)", "x(i)", False),  # an option of the compiler may make it a double
        ("real(8)", "real(8)", "x(i)", False),
        ("real(4)", "real(8)", "i", False),
    ],
)
def test_a_single_sum_of_doubles_is_told_with_its_line(
    sum: str, term: str, added: str, told: bool, tmp_path: Path
) -> None:
    path = tmp_path / "p.f90"
    path.write_text(PROGRAM.replace("SUM", sum).replace("TERM", term).replace("ADDED", added))
    warnings = [(line, text) for line, text in fortran.instrument(path).warnings if "single precision" in text]
    assert [line for line, _ in warnings] == [9] * told
