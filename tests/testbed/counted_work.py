"""Count the lines of Python that a call executes: work that no other program on the machine makes more or less."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines(call: Callable[[], object]) -> int:
    """Count the lines of Python that a call executes, each round of a loop by itself."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    assert count, "nothing was counted"
    return count


def assert_linear(call_for: Callable[[int], Callable[[], object]], size: int) -> None:
    """`call_for(n)` prepares a call for n vertices. The call for twice as many does about twice the work."""
    first, second = (lines(call_for(n)) for n in (size, 2 * size))
    assert second <= 2.4 * first, f"{first} lines for {size}, {second} lines for {2 * size}"
