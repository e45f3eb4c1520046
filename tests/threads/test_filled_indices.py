"""An index that is a sum of known numbers is told as its value."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from safepoint.threads.difference import Iteration, filled


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a(i + 1)", "a(12)"),
        ("a(i - 1, j)", "a(10, j)"),
        ("a(k + 1,i-1)", "a(k + 1,10)"),
        ("a(2 * i + 1)", "a(2 * 11 + 1)"),
    ],
)
def test_indices_are_summed(name: str, told: str) -> None:
    assert filled(name, Iteration(("i",), (11,))) == told
