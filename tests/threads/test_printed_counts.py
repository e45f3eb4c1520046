"""What is counted is printed without rounding: two counts that differ are two results."""

from __future__ import annotations

import pytest

from safepoint.threads import printed


@pytest.mark.parametrize(
    ("a", "b", "how"),
    [
        ("cells 10000", "cells 9999", printed.BEYOND),
        ("cells 10000", "cells 10000", 0),
        ("sum 10000.0", "sum 9999.99", printed.ROUNDING),
        ("sum 1e5", "sum 100000", printed.ROUNDING),
    ],
)
def test_whole_numbers_are_the_same_or_not(a: str, b: str, how: int) -> None:
    assert printed._apart(a, b, 1e-4, 0.0) == how
