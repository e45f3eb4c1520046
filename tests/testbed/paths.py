"""Where things are in this repository."""

from __future__ import annotations

from pathlib import Path

TESTBED = Path(__file__).parent
TESTS = TESTBED.parent
HOUSE = TESTS.parent
EXAMPLES = HOUSE / "examples"
BENCHMARKS = HOUSE / "benchmarks"
