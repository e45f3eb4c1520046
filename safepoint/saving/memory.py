"""How a session stores its sets, and what it remembers of files that stay in W.

A failed fsync of a file that stays in W is remembered: it is clean in the cache and lost on the disk, so the next fsync
would succeed over nothing, in a set that has nothing else of it. This is rule (4) of `store`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from safepoint.disk import SyncFailed, codec
from safepoint.disk.files import cause, exists, read, sync, write
from safepoint.errors import DamagedError, SaveError
from safepoint.record import Item
from safepoint.root import Root
from safepoint.sealed import Unsealed, rows_of


class Options(NamedTuple):
    """How sets are stored."""

    version: str = ""  # of the library
    pack_threads: int = 1  # 0: one for each core
    bundle_from: int = 100  # so many small files are worth a bundle


class Away(NamedTuple):
    """The optional files of the newest set, which is in the next one too what the program does not write again."""

    number: int = 0
    items: tuple[Item, ...] = ()


class Memory:
    """What a session knows of its sets that no file says."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.spoilt: set[int] = set()  # sets that must not be completed, and could not be marked so
        self.committed_prefixes: dict[str, codec.Prefix] = {}  # of the append files of the last set, by path
        self.pending_prefixes: dict[str, codec.Prefix] = {}  # of those of the set that is not yet committed
        self.hidden: list[Item] = []  # the append files of the newest set that was taken, whatever became of it
        self.away = Away()
        self.lost: dict[str, tuple[int, int | None]] = {}  # rule (4): inode, and time if that tells
        self.why: dict[str, str] = {}  # the causes, of this life

    def tables(self) -> list[tuple[str, Item | codec.Prefix]]:
        """The append files that the newest sets rely on: as they were taken, and as they were stored."""
        return [*((item.path, item) for item in self.hidden), *self.committed_prefixes.items()]

    def check_kept(self, items: Iterable[Item]) -> None:
        """Raise `SaveError` if the disk may have lost what it shows of one of these files in W."""
        for item in items:
            inode, time = self.lost.get(item.path, (-1, None))
            if inode == item.inode and time in (None, item.mtime_ns):
                why = f" ({self.why[item.path]})" if item.path in self.why else ""
                raise SaveError(
                    f"{item.path}: its fsync failed before{why}, so parts of it may not be on the disk, though one can "
                    f"read them: go back to the last set with restore(), or write it under a new name and rename that"
                )

    def begun_anew(self, root: Root, items: Iterable[Item]) -> dict[str, bool]:
        """Files of the last sets that should only grow, and are gone, were cut, or are others; whether they grew."""
        now = {item.path: item for item in items if item.kind == "append"}
        anew = dict[str, bool]()
        for path, known in self.tables():
            item = now.get(path)
            if item is None or item.inode != known.inode or item.size < known.size:
                anew[path] = False
            elif isinstance(known, codec.Prefix):  # else it is not known what it began with
                looking = root.reporting(SaveError, "cannot look at the listed files", "nothing was moved")
                with looking, root.disk.open(os.path.join(root.work, path)) as file:
                    if not codec.begins_with(file, known):
                        anew.setdefault(path, item.size > known.size)
        return anew


class Lost(NamedTuple):
    """Rule (4), of one file."""

    path: str
    inode: int
    mtime_ns: int | None


def remember_lost(memory: Memory, items: Iterable[Item], error: SyncFailed) -> None:
    """Rule (4), for files in W. The flushes were in flight together, so any of them may have failed."""
    for item in items:
        memory.why[item.path] = cause(error)
        # A file that moves is written anew, from its beginning: with another time it is another file, on any inode.
        memory.lost[item.path] = item.inode, item.mtime_ns if item.kind == "move" and not item.tree else None


def keep_lost(root: Root, memory: Memory) -> None:
    """Rule (4) for a program whose next save is another process; as far as a disk that fails lets us."""
    with contextlib.suppress(OSError):
        if exists(root.disk, root.lost):
            root.disk.remove(root.lost)
        if memory.lost:
            write(root.disk, root.lost, json.dumps(memory.lost).encode())
            sync(root.disk, [root.lost], [root.path])


def read_lost(root: Root) -> dict[str, tuple[int, int | None]]:
    """What `keep_lost` kept."""
    if not exists(root.disk, root.lost):
        return {}
    try:
        rows = [[path, *row] for path, row in json.loads(read(root.disk, root.lost)).items()]
        return {row.path: (row.inode, row.mtime_ns) for row in rows_of(Lost, Lost._fields, rows)}
    except (ValueError, TypeError, AttributeError, RecursionError, Unsealed):  # torn: it cannot be said of which files
        raise DamagedError(f"{root.shown(root.lost)} is torn: call restore first") from None
