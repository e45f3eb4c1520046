"""Wait for an event, and for nothing else: only what hangs comes to the limit."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0


def wait_for(holds: Callable[[], object], what: object = "it") -> None:
    """However long it takes. What cannot be read yet is not there. `what` is said of an event that never comes; it may
    be a function, of what there is by then."""
    end = time.monotonic() + PATIENCE_S
    while True:
        why = ""
        try:
            if holds():
                return
        except (OSError, ValueError) as error:
            why = f": {error}"
        assert time.monotonic() < end, f"{what() if callable(what) else what} does not come{why}"
        time.sleep(0.005)
