"""Work that is counted, not timed, because times depend on the machine and on what else runs on it."""

from __future__ import annotations

import sys
from collections.abc import Callable


def function_calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python and C this calls, in this thread."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
