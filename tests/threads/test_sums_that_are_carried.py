"""What the serial code makes of a sum of threads has its rounding: it is not the first difference."""

from __future__ import annotations

from pathlib import Path

from testbed.threads_written import Loop, Region, Statement, Table, Write, written

from safepoint.threads import kinds, telling
from safepoint.threads.compare import Found, compare


def judged(place: Path, carried: float, wrong: float = 0.0, loose: str = "reduction") -> Found:
    """A sum, what serial code makes of it, and a region after it."""
    table = Table()
    sides: list[list[Statement]] = []
    for total, other in ((1.0, 0.0), (carried, wrong)):
        inside = Loop("j", range(2, 7), lambda j: [Write("s", float(j), kinds.REAL8, loose)])
        last = Loop("j", range(2, 7), lambda j, other=other: [Write("b(j)", j + other, kinds.REAL8)])  # type: ignore[misc]
        sides.append([Region([inside]), Write("t", total), Region([last])])
    return compare(written(place / "a", table, sides[0]), written(place / "b", table, sides[1], 4, seed=5), only=[2])


def test_a_sum_that_serial_code_goes_on_with_may_differ_in_its_last_bits(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 3e-15)
    assert found.code == 0
    assert "  1 value that differs in the last bits, as sums of threads do" in telling.lines(found)


def test_the_difference_in_the_region_is_told_and_not_the_rounding_before_it(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 3e-15, wrong=1.0)
    assert found.difference is not None and (found.difference.visit, found.difference.inside) == (2, True)
    assert (found.regions, found.difference.regions_equal) == (1, 1)


def test_more_than_rounding_before_the_region_is_told_with_the_number_of_the_region(tmp_path: Path) -> None:
    found = judged(tmp_path, 1 + 1e-9, wrong=1.0)
    assert found.difference is not None and (found.difference.visit, found.difference.inside) == (2, False)


def test_without_a_sum_each_bit_counts(tmp_path: Path) -> None:
    assert judged(tmp_path, 1 + 3e-15, loose="").code == 1
