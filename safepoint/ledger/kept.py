"""The files that sets still keep, opened for a look: as they are, or as a copy where a set has them in another form.

A set may be removed by a run at work while it is looked at. Then `Damaged` or `OSError` says so, and `Sets` answers
that it has nothing.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from safepoint.disk import Disk
from safepoint.disk.codec import copy
from safepoint.ledger.contents import Difference, compare
from safepoint.ledger.sides import Row, Side
from safepoint.record import Record, StoredFile
from safepoint.restoring.read import Damaged
from safepoint.restoring.stage import extract
from safepoint.restoring.survey import read_record, refuse_links
from safepoint.root import Root

DISK = Disk()


class Kept(NamedTuple):
    """A file of a set, or, without a record, one in place."""

    size: int
    root: Root
    record: Record | None = None
    file: StoredFile | None = None


def target_of(path: str, kept: Kept) -> str | None:
    """What a symbolic link points to; None if it is none."""
    if kept.file:
        return kept.file.target if kept.file.kind == "link" else None
    full = os.path.join(kept.root.work, path)
    return os.readlink(full) if os.path.islink(full) else None


def checksum_of(path: str, kept: Kept) -> str:
    if kept.file:
        return kept.file.checksum
    with DISK.open(os.path.join(kept.root.work, path)) as source:
        return copy(source, None, kept.size)[1]


def _as_it_is(full: str, path: str, size: int | None = None) -> str:
    """Raises `Damaged` if there is no file, of this size: what is read to its end must have one."""
    info = DISK.stat(full)
    if not stat.S_ISREG(info.st_mode):
        raise Damaged(f"{path} is not a regular file")
    if size not in (None, info.st_size):
        raise Damaged(f"{path} has {info.st_size} bytes instead of {size}")
    return full


@contextmanager
def opened(path: str, kept: Kept, top: str) -> Iterator[str]:
    """A file with these bytes: the one that is there, or a copy, below `top`, if a set has them in another form."""
    if kept.file is None or kept.record is None:
        yield _as_it_is(os.path.join(kept.root.work, path), path)
    elif kept.file.kind == "file" and kept.file.kept == "raw":
        yield _as_it_is(kept.root.where(kept.record.number, kept.file), path, kept.size)
    else:
        with tempfile.TemporaryDirectory(dir=top) as place:
            extract(kept.root, kept.record._replace(files=(kept.file,)), os.path.realpath(place))
            yield os.path.join(place, path)


class Sets:
    """What two runs still keep: there files can be compared by value."""

    def __init__(self, a: Side, b: Side) -> None:
        self._sides = (a, b)

    def kept(self, which: int, name: str, row: Row) -> Kept | None:
        """A file of the set that a row of the ledger speaks of; None if it is not there any more."""
        work = self._sides[which].work
        if work is None or not row.number:
            return None
        root = Root(work, row.rank)
        try:
            refuse_links(root, row.number)
            record = read_record(root, row.number)
        except (OSError, Damaged):
            return None
        file = next((file for file in record.files if file.path == name and file.has_bytes), None)
        return Kept(file.size, root, record, file) if file else None

    def __call__(self, step: int, name: str, a: Row, b: Row, rtol: float, atol: float) -> Difference | None:
        """How a file of both differs; None if one of them is not there any more."""
        one, other = self.kept(0, name, a), self.kept(1, name, b)
        if one is None or other is None:
            return None
        with tempfile.TemporaryDirectory(prefix="safepoint-") as top:
            try:
                with opened(name, one, top) as path_a, opened(name, other, top) as path_b:
                    return compare(path_a, path_b, name, rtol, atol)
            except (Damaged, OSError):
                return None

    def read(self, which: int, name: str, row: Row, at_most: int) -> bytes | None:
        kept = self.kept(which, name, row)
        if kept is None or kept.size > at_most:
            return None
        with tempfile.TemporaryDirectory(prefix="safepoint-") as top:
            try:
                with opened(name, kept, top) as path, DISK.open(path) as file:
                    return file.read(kept.size)
            except (Damaged, OSError):
                return None

    def file(self, name: str, row: Row) -> StoredFile | None:
        kept = self.kept(1, name, row)
        return kept.file if kept else None
