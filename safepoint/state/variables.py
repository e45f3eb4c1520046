"""What a program has in memory as one file of its sets: `state.npz`, or `state-{rank}.npz` of each rank."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from safepoint.disk import Disk
from safepoint.disk.files import exists, write
from safepoint.errors import MissingFilesError, UsageError
from safepoint.listener import SavePoint
from safepoint.opening import Opening
from safepoint.patterns import NAME
from safepoint.root import Root

ALONE, OF_RANK = "state.npz", "state-{rank}.npz"


class State(dict[str, Any]):
    """The variables by name. `step`: that of the save point, or of the result; `finished`: the run was finished."""

    step: int | None = None
    finished = False


def list_state(disk: Disk, directory: str | os.PathLike[str], *, per_rank: bool) -> None:
    """Make a manifest that lists the state alone, where there is none. What hinders that `init` says."""
    path = os.path.join(os.path.realpath(directory), NAME)
    new = f"{path}.new"
    with contextlib.suppress(OSError):
        if exists(disk, new):  # of a process that died here
            disk.remove(new)
        write(disk, new, f"{OF_RANK if per_rank else ALONE}\n".encode())
        if not exists(disk, path):
            disk.rename(new, path)


def path_in(home: Opening) -> str:
    """Of this rank's file, by its manifest. Raises `UsageError` if that does not list it."""
    rank, size = home.ranks.rank, home.ranks.size
    for name in (OF_RANK.format(rank=rank), ALONE):
        if any(entry.kind == "move" and entry.means(name, rank, size) for entry in home.manifest.entries):
            return os.path.join(home.root.work, name)
    name = OF_RANK if size > 1 else ALONE
    raise UsageError(f"{os.path.join(home.root.work, NAME)} does not list {name}: add it as a line of its own")


def save(root: Root, path: str, state: Mapping[str, Any]) -> None:
    """Write it. Raises `UsageError` naming what cannot be kept; nothing was changed then."""
    from safepoint.state import npz

    kept, new = npz.Archive(state), os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")
    if exists(root.disk, new):  # of a process that died here
        root.disk.remove(new)
    kept.write(root.disk, new)
    root.disk.rename(new, path)


def load(root: Root, path: str, point: SavePoint) -> State:
    """What was saved. Raises `FormatError` if it is none of ours."""
    from safepoint.state import npz

    if not exists(root.disk, path):
        what = "the result" if point.finished else f"set {point.number}"
        raise MissingFilesError(f"{what} has no {root.shown(path)}: it was saved without save_state")
    state = State(npz.read(path))
    state.step, state.finished = point.step, point.finished
    return state
