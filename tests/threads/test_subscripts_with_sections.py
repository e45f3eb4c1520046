"""What a vector of subscripts names is an array, also where the vector is a section of another array."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")

from safepoint.threads import fortran

SOURCE = """\
program p
  implicit none
  integer :: i, idx(6), two(2, 2)
  real(8) :: a(6, 6), s
  i = 2
  {}
end program p
"""


@pytest.mark.parametrize("left", ["a(idx(1:3), i)", "a(idx, i)", "a(idx(two(1, :)), 1)", "a(idx(idx(2:)), i)",
                                  "a(2 * idx(:i), 1)", "a(two(:, 2), sum(idx))"])  # fmt: skip
def test_elements_that_a_vector_names_are_digested(tmp_path: Path, left: str) -> None:
    path = tmp_path / "p.f90"
    path.write_text(SOURCE.format(f"{left} = 1"))
    made = fortran.instrument(path)
    assert not [site for site in made.sites if site.type == "variable-write" and site.name != "i"]
    assert f"({left.replace(' ', '')})" in made.text.replace(" ", "").lower()


@pytest.mark.parametrize("left", ["a(idx(1), i)", "a(sum(idx(1:3)), i)", "a(size(idx), idx(two(1, 2)))",
                                  "a(maxval(two(:, 1)), 1)"])  # fmt: skip
def test_one_element_is_a_value(tmp_path: Path, left: str) -> None:
    path = tmp_path / "p.f90"
    path.write_text(SOURCE.format(f"{left} = 1"))
    sites = [site.type for site in fortran.instrument(path).sites if site.line == 6]
    assert "variable-write" in sites and "array" not in sites
