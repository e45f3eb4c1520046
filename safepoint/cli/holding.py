"""To be alone in a directory: what every command does before it changes something there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from safepoint.cli.overview import Overview, look
from safepoint.cli.terminal import DISK
from safepoint.disk import NO_LOCKS
from safepoint.errors import DamagedError, LockedError
from safepoint.opening import describe_owner, read_owner, write_owner


def heirs_in(work: str) -> None:
    """Raise `LockedError` if what an earlier `safepoint run` had started is still at work, though it let go of the
    lock: it has the name of that run in its environment."""
    if sys.platform != "linux":
        return
    from safepoint.cli.processes import MARK, of_run

    heirs = of_run(f"{MARK}={work}")
    if heirs:
        raise LockedError(
            f"{work} is in use: an earlier safepoint run is gone, but what it had started is not: {', '.join(heirs)}; "
            f"nothing was changed"
        )


@contextmanager
def alone_in(directory: str) -> Iterator[Overview]:
    """Hold the locks of all ranks; what is kept there, seen when nothing can change any more.

    Raises `LockedError`, which names the run, `NothingSavedError` if there is nothing to hold, `ManifestError`, and
    `DamagedError` for a finish mark that cannot be read. Then nothing was changed.
    """
    seen = look(DISK, directory)
    if not seen.side or not seen.ranks:
        seen.raise_if_empty()
    if seen.manifest_error:
        raise seen.manifest_error
    with ExitStack() as stack:
        for rank in seen.ranks:
            root = rank.root
            try:
                release = DISK.lock(root.lock)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                click.echo(f"safepoint: no kernel locks in {seen.work}: make sure that no run is at work", err=True)
                break
            if release is None:
                who = describe_owner(read_owner(DISK, root))
                raise LockedError(f"{seen.work} is in use by another run: {who}; nothing was changed")
            stack.callback(release)
        heirs_in(seen.work)  # only now: while a run is at work these are no heirs
        for rank in seen.ranks:
            write_owner(DISK, rank.root, DISK.place(rank.root.path).host)
        seen = look(DISK, directory, mine=True)
        if seen.mark_error:
            raise DamagedError(seen.mark_error)
        yield seen
