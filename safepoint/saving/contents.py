"""Every file, directory and link of a set, as it is when it is stored; and what of it cannot be saved."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from safepoint import companions
from safepoint.disk import Disk, SyncFailed, handles
from safepoint.disk.files import ancestors as ancestors
from safepoint.disk.files import listdir
from safepoint.disk.files import make_parents as make_parents
from safepoint.disk.rights import without_acl
from safepoint.errors import RefusedFileError
from safepoint.patterns import above, excluded
from safepoint.record import Item, Kind, StoredFile, Taken
from safepoint.root import Root
from safepoint.saving.movable import link_inside, other_mount_error

# What a name says that is no file any more; the last two are those of a socket, and of a fifo that somebody writes.
GONE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EAGAIN}


class Content(NamedTuple):
    """One file, directory or link of a set."""

    file: StoredFile
    full: str  # where it is
    level: int | None = None  # to compress it with
    ours: bool = False  # nobody else knows its directory; in any other the program could replace it
    local: bool = False  # inodes and links can be relied on
    inode: int = 0  # which it had when it was taken


def directories_up_to(directories: Iterable[str], ends: set[str]) -> list[str]:
    """These directories and all above them up to one of `ends`, each before those that hold it."""
    every = set()
    for way in directories:
        while way not in every:
            every.add(way)
            way = way if way in ends else os.path.dirname(way)
    return sorted(every, reverse=True)


def contents_of(root: Root, items: Sequence[Item], base: str, *, local: bool) -> Iterator[Content]:
    """Every file, directory and link of a set, below `base`, or in W if it stays there. `local`: inodes tell files
    apart, which those of some FUSE and network file systems do not, as they come and go with the cache."""
    in_place = base == root.work
    for item in items:
        if item.kind == "append":
            full = os.path.join(root.work, item.path)
            info = root.disk.stat(full)
            mode = without_acl(full, info.st_mode)
            file = StoredFile(item.path, "append", item.size, mode=mode, mtime_ns=item.mtime_ns, group=info.st_gid)
            yield Content(file, full, None, False, local, item.inode)
        else:
            full = f"{base}/{item.path}"
            if not item.tree:  # as it was when it was taken; its mode is seen when it is read
                file = StoredFile(item.path, "file", item.size, "", 0, item.mtime_ns)
                yield Content(file, full, item.compress if item.size else None, not in_place, local, item.inode)
                continue
            info = root.disk.stat(full)
            for file, inner, inode in _walk(root, item.path, full, full, info.st_dev, item.without, info):
                yield Content(file, inner, item.compress if file.size else None, False, local, inode)


def _walk(
    root: Root, path: str, full: str, top: str, device: int, without: Sequence[str], known: os.stat_result | None = None
) -> Iterator[tuple[StoredFile, str, int]]:
    info = known or root.disk.stat(full)
    if stat.S_ISREG(info.st_mode):
        yield StoredFile(path, "file", info.st_size, mode=info.st_mode, mtime_ns=info.st_mtime_ns), full, info.st_ino
    elif stat.S_ISDIR(info.st_mode):
        if info.st_dev != device:
            raise other_mount_error(path, full, top)
        kind: Kind = "tree" if full == top else "dir"
        mode = without_acl(full, info.st_mode)
        yield StoredFile(path, kind, mode=mode, mtime_ns=info.st_mtime_ns, group=info.st_gid), full, info.st_ino
        for name in listdir(root.disk, full):
            if excluded(without, inner := f"{path}/{name}"):
                companions.refuse_left_out(root.disk, inner, os.path.join(full, name))
            else:
                yield from _walk(root, inner, os.path.join(full, name), top, device, without)
    elif stat.S_ISLNK(info.st_mode):
        yield StoredFile(path, "link", target=link_inside(root, path, full, top)), full, info.st_ino
    else:
        raise not_a_file_error(path, info.st_mode)


def not_a_file_error(path: str, mode: int) -> RefusedFileError:
    kinds = {stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    what = kinds.get(stat.S_IFMT(mode), "neither a file nor a directory")
    return RefusedFileError(f"{path} is {what}, which cannot be saved: only files and directories can")


def refuse_open(root: Root, taken: Taken, contents: Sequence[Content]) -> None:
    """The files in a directory that was moved as a whole: whoever has one open could change it when it is committed."""
    moved = {item.path for item in taken.files if item.tree and item.kind == "move"}
    inside = [c.full for c in contents if moved and c.file.kind == "file" and not moved.isdisjoint(above(c.file.path))]
    for full in root.disk.open_for_writing(inside) if inside else ():
        raise RefusedFileError(still_open(root.disk, root.shown(full), full))


def still_open(disk: Disk, path: str, full: str, why: str = "") -> str:
    who = ", ".join(handles.holders(full))
    return f"{path} is still open for writing{f' ({who})' if who else ''}{why}: close it before hide, or mark it copy"


def rights_unchanged(disk: Disk, content: Content, info: os.stat_result, size: int) -> tuple[int, int]:
    """Mode and group of what was read, `size` bytes, and was like this after that: the mode that a copy may have.
    Raises `RefusedFileError` if it is not what was taken."""
    file = content.file
    if not stat.S_ISREG(info.st_mode):
        raise not_a_file_error(file.path, info.st_mode)
    if (size, info.st_size, info.st_mtime_ns) != (file.size, file.size, file.mtime_ns):
        raise RefusedFileError(f"{file.path} changed after hide took it: something still writes to it")
    if not content.ours:
        refuse_another(disk, content, info.st_ino)
    elif content.local and not info.st_nlink:
        raise RefusedFileError(f"{file.path} was removed after hide took it, from the set that is being stored")
    return without_acl(content.full, info.st_mode), info.st_gid


def refuse_another(disk: Disk, content: Content, inode: int) -> None:
    """Unless the file that was read is the one that was taken, and has its name still. What stays in W, and is flushed
    by name, is still open then, and so keeps its inode."""
    if inode != disk.stat(content.full).st_ino or (content.local and inode != content.inode):
        raise RefusedFileError(f"{content.file.path} was replaced after hide took it: something else writes to it")


@contextlib.contextmanager
def refusing_lost(root: Root) -> Iterator[None]:
    """A file that is not there any more, or something else under its name, is no fault of the disk: the next start must
    not find the rest whole."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SyncFailed) or error.errno not in GONE:
            raise
        text = f"{root.shown(error.filename)} was removed or replaced after hide took it: {error.strerror}"
        raise RefusedFileError(text) from error
