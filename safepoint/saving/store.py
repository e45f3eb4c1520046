"""Make the files of a set durable, and describe them: checksums, compression, the bundle of small files, the flush.

(1) The flushes of a set are in flight together, and while the files are read for their checksums, up to OPEN at a time:
    one after the other, each would wait for a journal commit of its own. What vouches for the set gets its name after
    them.
(2) Each file is read once, through its checksum. Afterwards its size and time must be those that `hide` noted: a late
    writer is an error, and no set has a torn file. It is opened once, for that and its flush. Where the program can
    reach the path, the name must still lead to the file that was read.
(3) A compressed or bundled copy is a second copy until the set is committed: the files that `hide` moved are the set
    until then, so a kill, or a disk that is full, loses nothing. `prune` removes them.
(4) A failed fsync of a file that stays in W is remembered: see `memory`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from safepoint.disk import Disk, SyncFailed, codec
from safepoint.disk.bundle import Bundle
from safepoint.disk.files import NO_ROOM, exists, open_all, remove_tree, sync
from safepoint.disk.kernel import write_all
from safepoint.disk.rights import OURS
from safepoint.errors import RefusedFileError
from safepoint.record import Item, Record, StoredFile, Taken, dump
from safepoint.root import Root
from safepoint.saving.contents import (
    Content,
    contents_of,
    directories_up_to,
    make_parents,
    refuse_another,
    refuse_open,
    refusing_lost,
    rights_unchanged,
)
from safepoint.saving.memory import Memory, remember_lost

SMALL = 64 << 10  # bytes: files up to this size go into the bundle, if there are many


OPEN = 64  # files that are open at once, each for its flush and its checksum together


WRITE_BACK = 32 << 20  # bytes of input between two starts of the write-back of a packed file


WRITE_BUNDLE = 4 << 20  # and of the bundle, which is made as fast as files are read


AHEAD = 4 << 20  # bytes of a large file that are on their way to the disk before it is read


def store(root: Root, taken: Taken, memory: Memory, *, resumed: bool = False) -> Record:
    """On return all that the set's record vouches for is durable, and so is the record, but for its name. `resumed`: a
    process may have died while it stored this set."""
    number, new = taken.number, root.record(taken.number) + ".new"
    memory.pending_prefixes.clear()
    memory.spoilt.discard(number)  # another set of this number
    for leftover in (os.path.join(root.set(number), "packed"), root.bundle(number), new) if resumed else ():
        if exists(root.disk, leftover):
            remove_tree(root.disk, leftover)
    with refusing_lost(root):
        local = taken.mount is not None
        contents = list(contents_of(root, taken.files, root.stored(number, ""), local=local))
        refuse_open(root, taken, contents)
        return _stored(root, taken, contents, memory)


def _stored(root: Root, taken: Taken, contents: Sequence[Content], memory: Memory) -> Record:
    number, small = taken.number, _small(contents, memory)
    early = [c for c in contents if c.file.path not in small and c.level is None and c.file.has_bytes]
    rest = [c for c in contents if c.file.path in small or c.level is not None or not c.file.has_bytes]
    files: dict[str, StoredFile] = {}
    *batches, last = _batches(early)
    for batch in batches:
        with flushing(root.disk, batch) as opened:
            files |= _described(root, number, batch, small, memory, opened)
    with flushing(root.disk, last) as opened:
        files |= _described(root, number, [*last, *rest], small, memory, opened)
        rows, new = tuple(files[content.file.path] for content in contents), root.record(number) + ".new"
        record = _record(root, taken, rows, memory.options.version)
        kept = {new, *_paths(root, number, rows)}
        # The names too, of every directory down to each file: else they could be durable and not be found.
        names = directories_up_to(map(os.path.dirname, kept), {root.set(number), root.work})
        with root.disk.create(new) as sink:
            write_all(sink, dump(record))
            sync(root.disk, sorted(kept - {content.full for content in early}), names, {new: sink})
        return record


def _record(root: Root, taken: Taken, files: tuple[StoredFile, ...], version: str) -> Record:
    whose = taken.rank, taken.ranks, taken.saver
    head = taken.number, taken.step, taken.time, time.time(), taken.host, version
    parents = root.parents(item.path for item in taken.files)
    return Record(*head, *whose, tuple(taken.patterns), files, taken.life, taken.history, taken.extra, parents)


def _paths(root: Root, number: int, files: Sequence[StoredFile]) -> set[str]:
    """Where all the bytes are of which a record speaks."""
    paths = {root.where(number, file) for file in files if file.kept != "tar" and file.has_bytes}
    return paths | {root.bundle(number)} if any(file.kept == "tar" for file in files) else paths


def _batches(contents: Sequence[Content]) -> list[Sequence[Content]]:
    return [contents[start : start + OPEN] for start in range(0, len(contents), OPEN)] or [[]]


@contextlib.contextmanager
def flushing(disk: Disk, contents: Sequence[Content]) -> Iterator[Mapping[str, BinaryIO]]:
    """Flush these files while the block reads those that are open for both; on leaving all of them are durable. A
    failed fsync is raised before an error of the block, as it decides what becomes of the set."""
    paths = [content.full for content in contents]
    with open_all(disk, paths) as opened:
        if large := next((opened[c.full] for c in contents if c.file.size > AHEAD and c.full in opened), None):
            disk.start_writeback(large, AHEAD)
        if not paths:
            yield opened
            return
        with disk.helpers.beside(functools.partial(sync, disk, paths, opened=opened)):
            yield opened


def _small(contents: Sequence[Content], memory: Memory) -> set[str]:
    """What goes into the bundle, if there is to be one."""
    small = {c.file.path for c in contents if c.file.kind == "file" and c.level is None and c.file.size <= SMALL}
    return small if len(small) >= memory.options.bundle_from else set()


def _described(
    root: Root, number: int, contents: Sequence[Content], small: set[str], memory: Memory,
    opened: Mapping[str, BinaryIO],
) -> dict[str, StoredFile]:  # fmt: skip
    """The contents as the record has them, by path, each with its checksum, and with what is kept of it."""
    few = [c for c in contents if c.file.path in small]
    bundled = _bundle(root, number, few) if few else {}
    files = {}
    for content in contents:
        file = content.file
        if file.path in bundled:
            file = bundled[file.path]
        elif content.level is not None and file.kind == "file":
            file = _pack(root, number, content, content.level, memory)
        elif file.has_bytes:
            file = checksummed(root.disk, content, memory, opened.get(content.full))
        files[file.path] = file
    return files


def checksummed(disk: Disk, content: Content, memory: Memory, opened: BinaryIO | None = None) -> StoredFile:
    """With the checksum of the bytes that are there; of an append file only those are read that were not known."""
    file = content.file
    with contextlib.nullcontext(opened) if opened else disk.open(content.full) as source:
        if file.kind == "append":
            known, inode = memory.committed_prefixes.get(file.path), disk.stat(source).st_ino
            size, digest, memory.pending_prefixes[file.path] = codec.extend(source, inode, file.size, known)
            if size < file.size:
                raise RefusedFileError(f"{file.path} was cut after hide took it: something else writes to it")
            refuse_another(disk, content, inode)
            return file._replace(checksum=digest)
        size, digest = codec.copy(source, limit=file.size)
        mode, group = rights_unchanged(disk, content, disk.stat(source), size)
    return file._replace(mode=mode, group=group, checksum=digest, stored_size=size)


def _bundle(root: Root, number: int, small: Sequence[Content]) -> dict[str, StoredFile]:
    """Keep many small files in one, which takes one flush instead of one each. No room for it: none is bundled."""
    files: dict[str, StoredFile] = {}
    try:
        with root.disk.create(root.bundle(number), OURS) as sink:
            bundle = Bundle(sink, _write_back(root.disk, sink, WRITE_BUNDLE))
            for content in small:
                files[content.file.path] = _bundled(root.disk, content, bundle)
            bundle.close()
            root.disk.start_writeback(sink)  # while the record is made
        root.open_to_group(root.bundle(number), files.values())
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        with contextlib.suppress(OSError):  # what is left of it goes with the set
            root.disk.remove(root.bundle(number))
        return {}
    return files


def _bundled(disk: Disk, content: Content, bundle: Bundle) -> StoredFile:
    """Add this file to the bundle."""
    path, kind, size, _, _, mtime_ns, *_ = content.file
    room = bundle.room(path, size)
    count, info = disk.read_into(room, content.full)
    mode, group = rights_unchanged(disk, content, info, count)
    checksum = codec.checksum(room)
    offset = bundle.add(path, size, mode, mtime_ns)
    return StoredFile(path, kind, size, checksum, mode, mtime_ns, "tar", size, offset, group=group)


def _pack(root: Root, number: int, content: Content, level: int, memory: Memory) -> StoredFile:
    """Keep a file compressed; as it is, if it hardly shrinks or the disk has no room for a second copy."""
    file, full, target = content.file, content.full, root.packed(number, content.file.path)
    try:
        make_parents(root.disk, target, root.set(number), root.mode_in)
        with root.disk.open(full) as source:
            if not codec.sample_shrinks(source, file.size, level):
                return checksummed(root.disk, content, memory)
            with root.disk.create(target, OURS) as sink:
                tick = _write_back(root.disk, sink, WRITE_BACK)
                size, digest = codec.pack(source, sink, level, file.size, memory.options.pack_threads, tick)
            mode, group = rights_unchanged(root.disk, content, root.disk.stat(source), size)
        file = file._replace(mode=mode, group=group, checksum=digest, stored_size=size)
        packed = root.disk.stat(target).st_size
        if packed <= codec.WORTH_PACKING * size:
            root.open_to_group(target, [file])
            return file._replace(kept="zst", stored_size=packed)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.ENOTDIR, errno.EEXIST):  # there may be a directory a.zst beside a
            raise
    except codec.BadFrame:
        with root.disk.open(full) as source:
            rights_unchanged(root.disk, content, root.disk.stat(source), -1)  # it raises: the length was another
    with contextlib.suppress(OSError):  # what is left of it goes with the set
        root.disk.remove(target)
    return file if file.checksum else checksummed(root.disk, content, memory)


def _write_back(disk: Disk, sink: Any, every: int) -> codec.Tick:
    """Let the disk write while the file is still being made: else all of it would wait for the fsync."""
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if done >= every:
            done = 0
            disk.start_writeback(sink)

    return tick


def keep_in_place(root: Root, items: Sequence[Item], memory: Memory) -> list[dict[str, Any]]:
    """Make files durable where they are, in W; what the finish mark has to say of them."""
    local = root.disk.page_cache(root.work).mount is not None
    contents = list(contents_of(root, items, root.work, local=local))
    files = {c.file.path: c.file for c in contents}
    try:
        for batch in _batches([c for c in contents if c.file.has_bytes]):
            with flushing(root.disk, batch) as opened:
                files |= {c.file.path: checksummed(root.disk, c, memory, opened.get(c.full)) for c in batch}
        trees = (c.full for c in contents if c.file.kind in ("tree", "dir"))
        sync(root.disk, (), directories_up_to((*trees, *(os.path.dirname(c.full) for c in contents)), {root.work}))
    except SyncFailed as error:
        remember_lost(memory, items, error)
        raise
    return [{"path": f.path, "kind": f.kind, "size": f.size, "checksum": f.checksum} for f in files.values()]
