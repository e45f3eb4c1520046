"""Read one file of a set through its checksum: what is not as it was committed is `Damaged`."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from stat import S_ISREG
from typing import Any

from safepoint.disk import Disk, codec, kernel
from safepoint.disk.files import NO_FILE
from safepoint.errors import RestoreError
from safepoint.record import (
    StoredFile,
)
from safepoint.root import Root
from safepoint.sealed import Unsealed

# What reading a damaged set says. Anything else (no permission, no descriptors) is mended by the user, and no reason to
# fall back to an older set.
DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EIO, getattr(errno, "EUCLEAN", errno.EIO), *NO_FILE}


class Damaged(Exception):
    """A set is not what was committed; the text says why. It makes `restore` fall back."""


def reporting(root: Root, what: str) -> AbstractContextManager[None]:
    return root.reporting(RestoreError, what, "all sets are as they were, and restore may be repeated")


@contextmanager
def or_damaged(path: str) -> Iterator[None]:
    """Raises `Damaged` if what is found under `path` in this block is not what was written."""
    name = os.path.basename(path)
    try:
        yield
    except (Unsealed, codec.BadFrame) as error:
        raise Damaged(f"{name}: {error}") from error
    except OSError as error:
        if error.errno not in DAMAGE or error.filename != path:
            raise  # not the set is at fault
        raise Damaged(f"{name}: {error.strerror}") from error


def read_prefix(disk: Disk, path: str, file: StoredFile, tick: codec.Tick | None) -> codec.Prefix:
    """What a set has of an append file, at this path. Raises `Damaged` unless it is what was committed."""

    with or_damaged(path):
        info = disk.stat(path)
        if not S_ISREG(info.st_mode):  # to cut it would cut something else
            raise Damaged(f"{file.path} is no longer a file")
        with disk.open(path) as source:
            size, checksum, prefix = codec.extend(source, info.st_ino, file.size, None)
    _compare(file, size, checksum)
    if tick:
        tick(size)
    return prefix


def read_out(
    disk: Disk, path: str, file: StoredFile, target: str = "", tick: codec.Tick | None = None, *, share: bool = True,
    most: float = math.inf,
) -> None:  # fmt: skip
    """Read a file of a set, into `target` if given. Raises `Damaged` unless it is what was committed.

    `share`: the target is a reflink wherever it can be, else only of what would have to come from the disk anyhow.
    `most`: of a file with more bytes it is a reflink, or the error EFBIG.
    """
    grows = file.kind == "append"

    def read() -> tuple[int, str]:
        with disk.open(path) as source:
            size = os.fstat(source.fileno()).st_size
            if file.kept == "raw" and file.kind == "file" and size != file.size:
                return size, ""  # not a byte of it is read: it may be without end
            if not target:
                return through(source, None)
            with disk.create(target) as sink:
                copied = file.kept != "raw" or (not share and kernel.cached(source))
                # Of a file that only grows without what came after: the rows of another step.
                if copied or not disk.duplicate(source, sink, file.size if grows else None, only_shared=True):
                    if file.size > most:
                        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), target)
                    return through(source, sink)
        with disk.open(target) as source:  # the reflink itself, as it is what the program will read, from the disk
            return through(source, None)

    def through(source: Any, sink: Any) -> tuple[int, str]:
        if file.kept == "zst":
            return codec.unpack(source, file.size, sink, tick)
        if file.kept == "tar":
            source.seek(file.offset)
        if file.kept == "tar" or grows:
            return codec.copy(source, sink, file.size, tick=tick)
        size = os.fstat(source.fileno()).st_size
        return codec.copy_sparse(source, sink, size, kernel.extents(source, size), tick)

    with or_damaged(path):
        size, checksum = read()
    _compare(file, size, checksum)


def _compare(file: StoredFile, size: int, checksum: str) -> None:
    if size > file.size and file.kept == "zst":
        raise Damaged(f"{file.path} has more than {file.size} bytes")
    if size != file.size:
        raise Damaged(f"{file.path} has {size} bytes instead of {file.size}")
    if checksum != file.checksum:
        raise Damaged(f"the checksum of {file.path} differs")
