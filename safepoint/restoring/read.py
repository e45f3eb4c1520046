"""Read one file of a set through its checksum: what is not as it was committed is `Damaged`."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from stat import S_ISREG

from safepoint.disk import Disk, codec, kernel
from safepoint.disk.files import NO_FILE, size_of
from safepoint.disk.rights import OURS
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
    with or_damaged(path), disk.open(path) as source, ExitStack() as opened:
        size, sink = size_of(source), None
        if file.kept == "raw" and not grows:
            _compare_size(file, size)  # else not a byte of it is read: it may be without end
        if target:
            sink = opened.enter_context(disk.create(target, OURS))
            copied = file.kept != "raw" or (not share and kernel.cached(source))
            # Of a file that only grows without what came after: the rows of another step.
            if not copied and disk.duplicate(source, sink, file.size if grows else None, only_shared=True):
                opened.close()
                # The reflink itself, as it is what the program will read, from the disk.
                source, sink = opened.enter_context(disk.open(target)), None
                size = size_of(source)
            elif file.size > most:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), target)
        if file.kept == "zst":
            size, checksum = codec.unpack(source, file.size, sink, tick)
        elif file.kept == "tar" or grows:
            source.seek(file.offset)
            size, checksum = codec.copy(source, sink, file.size, tick=tick)
        else:
            size, checksum = codec.copy_sparse(source, sink, size, kernel.extents(source, size), tick)
    _compare(file, size, checksum)


def _compare_size(file: StoredFile, size: int) -> None:
    if size != file.size:
        raise Damaged(f"{file.path} has {size} bytes instead of {file.size}")


def _compare(file: StoredFile, size: int, checksum: str) -> None:
    if size > file.size and file.kept == "zst":
        raise Damaged(f"{file.path} has more than {file.size} bytes")
    _compare_size(file, size)
    if checksum != file.checksum:
        raise Damaged(f"the checksum of {file.path} differs")
