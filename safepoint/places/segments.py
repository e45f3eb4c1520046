"""Rows of arrays in segments: equal rows, beginnings, and the highest so far."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import Ints

Bools = NDArray[np.bool_]


def numbered(rows: Ints) -> Ints:
    """A number for each row, the same for equal rows."""
    order = np.lexsort(rows.T)
    numbers = np.empty(len(rows), "i8")
    numbers[order] = np.cumsum(np.append(False, np.any(rows[order][1:] != rows[order][:-1], axis=1))[: len(rows)])
    return numbers


def highest(values: Ints, segment: Ints, span: int) -> Ints:
    """For each value the number of the greatest up to it in its segment; values from 0 to span − 1."""
    lifted = segment * span + values
    return np.maximum.accumulate(np.where(lifted == np.maximum.accumulate(lifted), np.arange(len(values)), 0))


def begun(segment: Ints) -> Bools:
    """Where a new segment begins."""
    return np.append(True, segment[1:] != segment[:-1])[: len(segment)]
