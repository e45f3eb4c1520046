"""Whether a run has the setting `local`: every run asks, so nothing is loaded for it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from safepoint import manifest
from safepoint.disk.files import exists
from safepoint.errors import SaveError, UsageError
from safepoint.patterns import SIDE
from safepoint.ranks import Ranks, Serial
from safepoint.record import life_of, mark_key
from safepoint.root import Root


def names_local(ranks: Serial | Ranks, directory: Any, saver: int | None) -> bool:
    """Whether the manifest there has the setting, as the first rank reads it. Collective."""
    lead = saver if isinstance(saver, int) and 0 <= saver < ranks.size else 0
    found = False
    if ranks.rank == lead:
        with contextlib.suppress(Exception):  # `init` says what is wrong with it
            text = manifest.read(os.path.realpath(os.fsdecode(directory)))
            found = any(line.partition("=")[0].strip() == "local" for line in text.split("\n") if "=" in line)
    return ranks.least(-found) != (0,)


def refuse_on_nodes(*, agree: bool, in_place: bool) -> None:
    """Raises `UsageError` for what cannot be with the setting."""
    if not agree:
        raise UsageError("local needs ranks that agree on every set, not coordinate=False; nothing was changed")
    if in_place:
        raise UsageError(
            "local is for a program that writes to session.directory, not for one that knows nothing of it; nothing "
            "was changed"
        )


def refuse_commands(directory: str) -> None:
    """Raises `UsageError` if the run there is none for commands of a job script."""
    if names_local(Serial(), directory, 0):
        raise UsageError("local is for a program that stays, not for commands of a job script; nothing was changed")


def is_finished(start: Root) -> bool:
    """Whether the last run that had sets on nodes was finished. Raises `DamagedError`."""
    if not exists(start.disk, start.finished):
        return False
    from safepoint.nodes.marker import read_marker
    from safepoint.restoring.survey import finish_mark

    marker = read_marker(start)
    return marker is None or marker.saved <= life_of(mark_key(finish_mark(start)))


def refuse_left_on_nodes(root: Root) -> None:
    """Raise `UsageError` if the run that was here has its sets on nodes, and this one does not look there; `SaveError`
    if that cannot be seen."""
    with root.reporting(SaveError, f"cannot set up {SIDE}", "the listed files are untouched"):
        if not exists(root.disk, root.nodes) or is_finished(root) or root.numbers("set"):
            return
        from safepoint.nodes.marker import read_marker

        marker = read_marker(root)
    if marker and marker.saved:
        where = ", ".join(f"{node.directory} on {node.host}" for node in marker.nodes[:4])
        raise UsageError(
            f"the sets of {root.work} are on disks of its nodes ({where}), and the manifest has no setting local now: "
            f"put it back, or `safepoint fetch` the newest set from its remote place; nothing was changed"
        )
