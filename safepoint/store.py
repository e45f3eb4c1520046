"""Make the files of a set durable, and describe them: checksums, compression, the bundle of small files, the flush.

(1) The flushes of a set are in flight together, and while the files are read for their checksums, up to OPEN at a time:
    one after the other, each would wait for a journal commit of its own. What vouches for the set gets its name after
    them.
(2) What a file holds is read once, through its checksum, and must be what `hide` took: size and time are compared
    after the reading, so that a writer that was missed is an error and no set with a torn file. It is opened once, for
    that and its flush; so where the program knows the directory the name is looked at too, which could be another's.
(3) A compressed or bundled copy is a second copy until the set is committed: the files that `hide` moved are the set
    until then, so a kill, or a disk that is full, loses nothing. `save.prune` removes them.
(4) A failed fsync of a file that stays in W is remembered: it is clean in the cache and lost on the disk, so the next
    fsync would succeed over nothing, in a set that has nothing else of it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

from safepoint import codec
from safepoint.disk import NO_ROOM, Disk, SyncFailed, write_all
from safepoint.errors import DamagedError, RefusedFileError, SaveError
from safepoint.manifest import above
from safepoint.record import Item, Record, Root, StoredFile, Taken, Unsealed, dump, rows_of

SMALL = 64 << 10  # bytes: files up to this size go into the bundle, if there are many
OPEN = 64  # files that are open at once, each for its flush and its checksum together
# What a name says that is no file any more; the last two are those of a socket, and of a fifo that somebody writes.
GONE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EAGAIN}
WRITE_BACK = 32 << 20  # bytes of input between two starts of the write-back of a packed file
WRITE_BUNDLE = 4 << 20  # and of the bundle, which is made as fast as files are read
AHEAD = 4 << 20  # bytes of a large file that are on their way to the disk before it is read

Result = TypeVar("Result")


class How:
    """How a session stores its sets, and what it knows of files that stay in W."""

    def __init__(self, version: str = "", pack_threads: int = 1, bundle_from: int = 100) -> None:
        self.version = version  # of the library
        self.pack_threads = pack_threads  # 0: one for each core
        self.bundle_from = bundle_from  # so many small files are worth a bundle
        self.spoilt: set[int] = set()  # sets that must not be completed, and could not be marked so
        self.left = 0  # the set whose files a call could not put back, and which W may lack
        self.prefixes: dict[str, codec.Prefix] = {}  # of the append files of the last set, by path
        self.stored: dict[str, codec.Prefix] = {}  # of those of the set that is not yet committed
        self.lost: dict[str, tuple[int, int | None]] = {}  # rule (4): inode, and time if that tells

    def check_kept(self, items: Iterable[Item]) -> None:
        """Raise `SaveError` if the disk may have lost what it shows of one of these files in W."""
        for item in items:
            inode, time = self.lost.get(item.path, (-1, None))
            if inode == item.inode and time in (None, item.mtime_ns):
                raise SaveError(
                    f"{item.path}: its fsync failed before, so parts of it may not be on the disk, though they can be "
                    f"read: go back to the last set with restore(), or write it under a new name and rename that"
                )


class Lost(NamedTuple):
    """Rule (4), of one file."""

    path: str
    inode: int
    mtime_ns: int | None


class Content(NamedTuple):
    """One file, directory or link of a set."""

    file: StoredFile
    full: str  # where it is
    level: int | None = None  # to compress it with
    ours: bool = False  # nobody else knows its directory; in any other the program could replace it
    local: bool = False  # inodes and links can be relied on
    inode: int = 0  # which it had when it was taken


def store(disk: Disk, root: Root, taken: Taken, how: How, *, begun: bool = False) -> Record:
    """On return all that the set's record vouches for is durable, and so is the record, but for its name. `begun`: a
    process may have died while it stored this set."""
    number, new = taken.number, root.record(taken.number) + ".new"
    how.stored.clear()
    how.spoilt.discard(number)  # another set of this number
    for leftover in (os.path.join(root.set(number), "packed"), root.bundle(number), new) if begun else ():
        if disk.exists(leftover):
            disk.remove_tree(leftover)
    with _refusing_lost(root):
        local = taken.mount is not None
        contents = list(contents_of(disk, root, taken.files, root.stored(number, ""), local=local))
        _refuse_open(disk, root, taken, contents)
        return _stored(disk, root, taken, contents, how)


def _stored(disk: Disk, root: Root, taken: Taken, contents: Sequence[Content], how: How) -> Record:
    number, small = taken.number, _small(contents, how)
    early = [c for c in contents if c.file.path not in small and c.level is None and c.file.has_bytes]
    rest = [c for c in contents if c.file.path in small or c.level is not None or not c.file.has_bytes]
    described: dict[str, StoredFile] = {}

    def describe(some: Sequence[Content], opened: Mapping[str, BinaryIO]) -> None:
        described.update(_described(disk, root, number, some, small, how, opened))

    def end(opened: Mapping[str, BinaryIO]) -> Record:
        describe([*last, *rest], opened)
        files = [described[content.file.path] for content in contents]
        return _recorded(disk, root, taken, files, {content.full for content in early}, how)

    *batches, last = _batches(early)
    for batch in batches:
        _while_flushed(disk, batch, functools.partial(describe, batch))
    return _while_flushed(disk, last, end)


def _recorded(
    disk: Disk, root: Root, taken: Taken, files: Sequence[StoredFile], flushed: set[str], how: How
) -> Record:  # fmt: skip
    """Write the set's record, and make durable what it vouches for, but for these paths, which others flush."""
    number, new = taken.number, root.record(taken.number) + ".new"
    kept = {root.where(number, file) for file in files if file.kept != "tar" and file.has_bytes}
    kept.update({root.bundle(number), new} if any(file.kept == "tar" for file in files) else {new})
    whose = taken.rank, taken.ranks, taken.saver
    head = number, taken.step, taken.time, time.time(), taken.host, how.version
    record = Record(*head, *whose, tuple(taken.patterns), tuple(files), taken.life, taken.history)
    # The names too, of every directory down to each file: else they could be durable and not be found.
    names = ways(map(os.path.dirname, kept), {root.set(number), root.work})
    with disk.create(new) as sink:
        write_all(sink, dump(record))
        disk.sync(sorted(kept - flushed), names, {new: sink})
    return record


def _batches(contents: Sequence[Content]) -> list[Sequence[Content]]:
    return [contents[start : start + OPEN] for start in range(0, len(contents), OPEN)] or [[]]


def _while_flushed(disk: Disk, contents: Sequence[Content], work: Callable[[Mapping[str, BinaryIO]], Result]) -> Result:
    """Flush these files, and do this work at the same time; on return they are durable. `work` is given those that are
    open, for both. `SyncFailed` counts more than an error of the work, as it decides what becomes of the set."""
    paths = [content.full for content in contents]
    if not paths:
        return work({})
    results: list[Result] = []
    with disk.opened(paths) as opened:
        if large := next((opened[c.full] for c in contents if c.file.size > AHEAD and c.full in opened), None):
            disk.start_writeback_of(large, AHEAD)
        disk.each(_do, [lambda: disk.sync(paths, opened=opened), lambda: results.append(work(opened))])
    return results[0]


def _do(work: Callable[[], None]) -> None:
    work()


def ways(directories: Iterable[str], ends: set[str]) -> list[str]:
    """These directories and all above them up to one of `ends`, each before those that hold it."""
    every = set()
    for way in directories:
        while way not in every:
            every.add(way)
            way = way if way in ends else os.path.dirname(way)
    return sorted(every, reverse=True)


def contents_of(disk: Disk, root: Root, items: Sequence[Item], base: str, *, local: bool) -> Iterator[Content]:
    """Every file, directory and link of a set, below `base`, or in W if it stays there. `local`: inodes tell files
    apart, which those of some FUSE and network file systems do not, as they come and go with the cache."""
    in_place = base == root.work
    for item in items:
        if item.kind == "append":
            full = os.path.join(root.work, item.path)
            mode = disk.stat(full).st_mode
            file = StoredFile(item.path, "append", item.size, mode=mode, mtime_ns=item.mtime_ns)
            yield Content(file, full, None, False, local, item.inode)
        else:
            full = f"{base}/{item.path}"
            if not item.tree:  # as it was when it was taken; its mode is seen when it is read
                file = StoredFile(item.path, "file", item.size, "", 0, item.mtime_ns)
                yield Content(file, full, item.compress if item.size else None, not in_place, local, item.inode)
                continue
            info = disk.stat(full)
            for file, inner, inode in _walk(disk, item.path, full, full, info.st_dev, info):
                yield Content(file, inner, item.compress if file.size else None, False, local, inode)


def _walk(
    disk: Disk, path: str, full: str, top: str, device: int, known: os.stat_result | None = None
) -> Iterator[tuple[StoredFile, str, int]]:
    info = known or disk.stat(full)
    if stat.S_ISREG(info.st_mode):
        yield StoredFile(path, "file", info.st_size, mode=info.st_mode, mtime_ns=info.st_mtime_ns), full, info.st_ino
    elif stat.S_ISDIR(info.st_mode):
        if info.st_dev != device:
            raise elsewhere(disk, path, full, top)
        kind = "tree" if full == top else "dir"
        yield StoredFile(path, kind, mode=info.st_mode, mtime_ns=info.st_mtime_ns), full, info.st_ino
        for name in disk.listdir(full):
            yield from _walk(disk, f"{path}/{name}", os.path.join(full, name), top, device)
    elif stat.S_ISLNK(info.st_mode):
        yield StoredFile(path, "link", target=link_inside(path, full, top)), full, info.st_ino
    else:
        raise special(path, info.st_mode)


def link_inside(path: str, full: str, top: str) -> str:
    """Where a symbolic link in a listed directory points to. Raises `RefusedFileError` if that is outside."""
    target = os.readlink(full)
    inside = os.path.normpath(os.path.join(os.path.dirname(full), target))
    if os.path.isabs(target) or os.path.commonpath((inside, top)) != top:
        raise RefusedFileError(f"{path} is a symbolic link that leads out of its directory, to {target}")
    return target


def special(path: str, mode: int) -> RefusedFileError:
    kinds = {stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    what = kinds.get(stat.S_IFMT(mode), "neither a file nor a directory")
    return RefusedFileError(f"{path} is {what}, which cannot be saved: only files and directories can")


def elsewhere(disk: Disk, path: str, full: str, work: str) -> RefusedFileError:
    return RefusedFileError(
        f"{path} is on another file system (the one mounted at {disk.mount_point(full)}) than its directory (the one "
        f"mounted at {disk.mount_point(work)}): a rename cannot move it; save it from a directory there"
    )


def _refuse_open(disk: Disk, root: Root, taken: Taken, contents: Sequence[Content]) -> None:
    """The files in a directory that was moved as a whole: whoever has one open could change it when it is committed."""
    moved = {item.path for item in taken.files if item.tree and item.kind == "move"}
    inside = [c.full for c in contents if moved and c.file.kind == "file" and not moved.isdisjoint(above(c.file.path))]
    for full in disk.open_for_writing(inside) if inside else ():
        raise RefusedFileError(still_open(disk, root.shown(full), full))


def still_open(disk: Disk, path: str, full: str, why: str = "") -> str:
    who = ", ".join(disk.holders(full))
    return f"{path} is still open for writing{f' ({who})' if who else ''}{why}: close it before hide, or mark it copy"


def _small(contents: Sequence[Content], how: How) -> set[str]:
    """What goes into the bundle, if there is to be one."""
    small = {c.file.path for c in contents if c.file.kind == "file" and c.level is None and c.file.size <= SMALL}
    return small if len(small) >= how.bundle_from else set()


def _described(
    disk: Disk, root: Root, number: int, contents: Sequence[Content], small: set[str], how: How,
    opened: Mapping[str, BinaryIO],
) -> dict[str, StoredFile]:  # fmt: skip
    """The contents as the record has them, by path, each with its checksum, and with what is kept of it."""
    few = [c for c in contents if c.file.path in small]
    bundled = _bundle(disk, root, number, few) if few else {}
    files = {}
    for content in contents:
        file = content.file
        if file.path in bundled:
            file = bundled[file.path]
        elif content.level is not None and file.kind == "file":
            file = _pack(disk, root, number, content, content.level, how)
        elif file.has_bytes:
            file = checksummed(disk, content, how, opened.get(content.full))
        files[file.path] = file
    return files


def checksummed(disk: Disk, content: Content, how: How, opened: BinaryIO | None = None) -> StoredFile:
    """With the checksum of the bytes that are there; of an append file only those are read that were not known."""
    file = content.file
    with contextlib.nullcontext(opened) if opened else disk.open(content.full) as source:
        if file.kind == "append":
            known, inode = how.prefixes.get(file.path), disk.stat_of(source).st_ino
            size, digest, how.stored[file.path] = codec.extend(source, inode, file.size, known)
            if size < file.size:
                raise RefusedFileError(f"{file.path} was cut after hide took it: something else writes to it")
            _refuse_another(disk, content, inode)
            return file._replace(checksum=digest)
        size, digest = codec.copy(source, limit=file.size)
        mode = _unchanged(disk, content, disk.stat_of(source), size)
    return file._replace(mode=mode, checksum=digest, stored_size=size)


def _checksummed(
    disk: Disk, contents: Iterable[Content], how: How, opened: Mapping[str, BinaryIO]
) -> dict[str, StoredFile]:
    return {c.file.path: checksummed(disk, c, how, opened.get(c.full)) for c in contents}


def _unchanged(disk: Disk, content: Content, info: os.stat_result, size: int) -> int:
    """The mode of what was read, `size` bytes, and was like this after that. Raises `RefusedFileError` if it is not
    what was taken."""
    file = content.file
    if not stat.S_ISREG(info.st_mode):
        raise special(file.path, info.st_mode)
    if (size, info.st_size, info.st_mtime_ns) != (file.size, file.size, file.mtime_ns):
        raise RefusedFileError(f"{file.path} changed after hide took it: something still writes to it")
    if not content.ours:
        _refuse_another(disk, content, info.st_ino)
    elif content.local and not info.st_nlink:
        raise RefusedFileError(f"{file.path} was removed after hide took it, from the set that is being stored")
    return info.st_mode


def _refuse_another(disk: Disk, content: Content, inode: int) -> None:
    """Unless the file that was read is the one that was taken, and has its name still. What stays in W, and is flushed
    by name, is still open then, and so keeps its inode."""
    if inode != disk.stat(content.full).st_ino or (content.local and inode != content.inode):
        raise RefusedFileError(f"{content.file.path} was replaced after hide took it: something else writes to it")


@contextlib.contextmanager
def _refusing_lost(root: Root) -> Iterator[None]:
    """A file that is not there any more, or something else under its name, is no fault of the disk: the next start must
    not find the rest whole."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SyncFailed) or error.errno not in GONE:
            raise
        text = f"{root.shown(error.filename)} was removed or replaced after hide took it: {error.strerror}"
        raise RefusedFileError(text) from error


def _bundle(disk: Disk, root: Root, number: int, small: Sequence[Content]) -> dict[str, StoredFile]:
    """Keep many small files in one, which takes one flush instead of one each. No room for it: none is bundled."""
    files: dict[str, StoredFile] = {}
    try:
        with disk.create(root.bundle(number)) as sink:
            bundle = codec.Bundle(sink, _write_back(disk, sink, WRITE_BUNDLE))
            for content in small:
                files[content.file.path] = _bundled(disk, content, bundle)
            bundle.close()
            disk.start_writeback_of(sink)  # while the record is made
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        with contextlib.suppress(OSError):  # what is left of it goes with the set
            disk.remove(root.bundle(number))
        return {}
    return files


def _bundled(disk: Disk, content: Content, bundle: codec.Bundle) -> StoredFile:
    """Add this file to the bundle."""
    path, kind, size, _, _, mtime_ns, *_ = content.file
    room = bundle.room(path, size)
    count, info = disk.read_into(room, content.full)
    mode = _unchanged(disk, content, info, count)
    checksum = codec.checksum(room)
    offset = bundle.add(path, size, mode, mtime_ns)
    return StoredFile(path, kind, size, checksum, mode, mtime_ns, "tar", size, offset)


def _pack(disk: Disk, root: Root, number: int, content: Content, level: int, how: How) -> StoredFile:
    """Keep a file compressed; as it is, if it hardly shrinks or the disk has no room for a second copy."""
    file, full, target = content.file, content.full, root.packed(number, content.file.path)
    try:
        make_parents(disk, target, root.set(number))
        with disk.open(full) as source:
            if not codec.sample_shrinks(source, file.size, level):
                return checksummed(disk, content, how)
            with disk.create(target) as sink:
                tick = _write_back(disk, sink, WRITE_BACK)
                size, digest = codec.pack(source, sink, level, file.size, how.pack_threads, tick)
            mode = _unchanged(disk, content, disk.stat_of(source), size)
        file = file._replace(mode=mode, checksum=digest, stored_size=size)
        packed = disk.stat(target).st_size
        if packed <= codec.WORTH_PACKING * size:
            return file._replace(kept="zst", stored_size=packed)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.ENOTDIR, errno.EEXIST):  # there may be a directory a.zst beside a
            raise
    except codec.BadFrame:
        with disk.open(full) as source:
            _unchanged(disk, content, disk.stat_of(source), -1)  # it raises: the length was another
    with contextlib.suppress(OSError):  # what is left of it goes with the set
        disk.remove(target)
    return file if file.checksum else checksummed(disk, content, how)


def _write_back(disk: Disk, sink: Any, every: int) -> codec.Tick:
    """Let the disk write while the file is still being made: else all of it would wait for the fsync."""
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if done >= every:
            done = 0
            disk.start_writeback_of(sink)

    return tick


def keep_in_place(disk: Disk, root: Root, items: Sequence[Item], how: How) -> list[dict[str, Any]]:
    """Make files durable where they are, in W; what the finish mark has to say of them."""
    local = disk.place(root.work).mount is not None
    contents = list(contents_of(disk, root, items, root.work, local=local))
    files = {c.file.path: c.file for c in contents}
    try:
        for batch in _batches([c for c in contents if c.file.has_bytes]):
            files |= _while_flushed(disk, batch, functools.partial(_checksummed, disk, batch, how))
        trees = (c.full for c in contents if c.file.kind in ("tree", "dir"))
        disk.sync((), ways((*trees, *(os.path.dirname(c.full) for c in contents)), {root.work}))
    except SyncFailed:
        remember_lost(how, items)
        raise
    return [{"path": f.path, "kind": f.kind, "size": f.size, "checksum": f.checksum} for f in files.values()]


def remember_lost(how: How, items: Iterable[Item]) -> None:
    """Rule (4), for files in W. The flushes were in flight together, so any of them may have failed."""
    for item in items:
        # A file that moves is written anew, from its beginning: with another time it is another file, on any inode.
        how.lost[item.path] = item.inode, item.mtime_ns if item.kind == "move" and not item.tree else None


def keep_lost(disk: Disk, root: Root, how: How) -> None:
    """Rule (4) for a program whose next save is another process; as far as a disk that fails lets us."""
    with contextlib.suppress(OSError):
        if disk.exists(root.lost):
            disk.remove(root.lost)
        if how.lost:
            disk.write(root.lost, json.dumps(how.lost).encode())
            disk.sync([root.lost], [root.path])


def read_lost(disk: Disk, root: Root) -> dict[str, tuple[int, int | None]]:
    """What `keep_lost` kept."""
    if not disk.exists(root.lost):
        return {}
    try:
        rows = [[path, *row] for path, row in json.loads(disk.read(root.lost)).items()]
        return {row.path: (row.inode, row.mtime_ns) for row in rows_of(Lost, Lost._fields, rows)}
    except (ValueError, TypeError, AttributeError, RecursionError, Unsealed):  # torn: it cannot be said of which files
        raise DamagedError(f"{root.shown(root.lost)} is torn: call restore first") from None


def ancestors(paths: Iterable[str]) -> list[str]:
    """`paths` and all directories on the way to them, parents before children."""
    every = set()
    for path in paths:
        while path:
            every.add(path)
            path = os.path.dirname(path)
    return sorted(every)


def make_parents(disk: Disk, path: str, base: str) -> None:
    """Make the directories between `base` and `path` that are not there."""
    for name in ancestors([os.path.dirname(path)[len(base) + 1 :]]):
        if not disk.exists(os.path.join(base, name)):
            with contextlib.suppress(FileExistsError):  # another rank was quicker, or another thread
                disk.mkdir(os.path.join(base, name))
