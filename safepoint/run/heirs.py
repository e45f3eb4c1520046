"""What an earlier `safepoint run` has left behind at work, though it let go of the lock."""

from __future__ import annotations

import sys

from safepoint.errors import LockedError
from safepoint.owner import Waiting


def heirs_in(work: str, waiting: Waiting | None = None) -> None:
    """Raise `LockedError` if what an earlier `safepoint run` had started is still at work after some seconds, though it
    let go of the lock: it has the name of that run in its environment."""
    if sys.platform != "linux":
        return
    from safepoint.run.proc import of_run

    waiting = waiting or Waiting()
    while heirs := of_run(work):
        left = f"an earlier safepoint run is gone, but what it had started is not: {', '.join(heirs)}"
        if not waiting.goes_on(lambda left=left: f"{work}: {left}"):  # type: ignore[misc]
            raise LockedError(f"{work} is in use: {left}; nothing was changed")
