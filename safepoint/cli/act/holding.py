"""To be alone in a directory: what every command does before it changes something there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview
from safepoint.cli.terminal import DISK
from safepoint.errors import DamagedError
from safepoint.owner import Waiting, claim
from safepoint.run.heirs import heirs_in


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
            stack.callback(claim(rank.root, waiting))
        heirs_in(seen.work, waiting)  # only now: while a run is at work these are no heirs
        seen = look(DISK, directory, mine=True)
        if seen.mark_error:
            raise DamagedError(seen.mark_error)
        yield seen
