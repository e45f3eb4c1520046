"""To be alone in a directory: what every command does before it changes something there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from safepoint.cli.overview import Overview, look
from safepoint.cli.terminal import DISK
from safepoint.errors import DamagedError, LockedError
from safepoint.opening import Waiting, claim


def heirs_in(work: str, waiting: Waiting | None = None) -> None:
    """Raise `LockedError` if what an earlier `safepoint run` had started is still at work after some seconds, though it
    let go of the lock: it has the name of that run in its environment."""
    if sys.platform != "linux":
        return
    from safepoint.cli.processes import MARK, of_run

    waiting = waiting or Waiting()
    while heirs := of_run(f"{MARK}={work}"):
        left = f"an earlier safepoint run is gone, but what it had started is not: {', '.join(heirs)}"
        if not waiting.goes_on(lambda left=left: f"{work}: {left}"):  # type: ignore[misc]
            raise LockedError(f"{work} is in use: {left}; nothing was changed")


@contextmanager
def alone_in(directory: str) -> Iterator[Overview]:
    """Hold the locks of all ranks; what is kept there, seen when nothing can change any more.

    Raises `LockedError`, which names the run, `NothingSavedError` if there is nothing to hold, `ManifestError`, and
    `DamagedError` for a finish mark that cannot be read, or if all roots are gone. Then nothing was changed.
    """
    seen = look(DISK, directory)
    if not seen.side or not seen.ranks:
        seen.raise_if_empty()
    if seen.manifest_error:
        raise seen.manifest_error
    waiting = Waiting()
    with ExitStack() as stack:
        for rank in seen.ranks:
            stack.callback(claim(DISK, rank.root, waiting))
        heirs_in(seen.work, waiting)  # only now: while a run is at work these are no heirs
        seen = look(DISK, directory, mine=True)
        if seen.mark_error:
            raise DamagedError(seen.mark_error)
        yield seen
