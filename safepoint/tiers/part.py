"""A part as one stream of bytes, always the same: a tar of the set's own files, with its record as the last.

What is in it, where, and under which header follows from the record alone, but for the length of the bundle. So who
takes it apart believes no header: it knows each one beforehand. And `cat rank-00017.0* | tar -x` gives the set's
directory, which is a committed set only if it came whole.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import xxhash

from safepoint.disk import codec
from safepoint.disk.bundle import tar_header
from safepoint.disk.files import exists, read
from safepoint.disk.kernel import close_read_only, write_all
from safepoint.disk.rights import OURS
from safepoint.disk.signals import look
from safepoint.record import Record, StoredFile, parse_record
from safepoint.restoring.grown import prefixes_kept
from safepoint.restoring.read import Damaged, or_damaged
from safepoint.root import Root, is_ours
from safepoint.saving.contents import make_parents
from safepoint.sealed import Unsealed

PIECE = 32 << 20  # bytes that are put at once; what a transfer repeats at most if it is killed
BLOCK = 1 << 20
TAR_BLOCK = 512
END = bytes(2 * TAR_BLOCK)  # of a tar
LARGEST_RECORD = 1 << 30  # bytes
OLDER_MODE = 0o644


class Changed(Exception):
    """The set was removed, or its table begun anew, while it was read."""


class Member(NamedTuple):
    """One file of the tar. `file`: what the record says of it; None for the bundle and the record."""

    path: str  # in the set's directory
    size: int
    head: bytes
    file: StoredFile | None


def members(record: Record, bundle: int, content: bytes) -> Iterator[Member]:
    """What a part has in it, in order. `bundle`: bytes of bundle.tar, 0 if there is none; `content`: of record.json."""
    for file in record.files:
        if file.kind == "append":
            yield _member(f"append/{file.path}", file.size, file)
        elif file.kind == "file" and file.kept == "zst":
            yield _member(f"packed/{file.path}.zst", file.stored_size, file)
        elif file.kind == "file" and file.kept == "raw":
            yield _member(f"files/{file.path}", file.stored_size, file)
    when = int(record.committed)
    if bundle:
        yield _made("bundle.tar", bundle, when, OURS)
    yield _made("record.json", len(content), when, OURS)


def _made(path: str, size: int, when: int, mode: int) -> Member:
    return Member(path, size, tar_header(path, size, mode, when), None)


def _is_head(head: bytes, member: Member, when: int) -> bool:
    """Whether this stands before the file; an older version let everybody read what is made of several files."""
    return head == member.head or (
        member.file is None and head == _made(member.path, member.size, when, OLDER_MODE).head
    )


def _member(path: str, size: int, file: StoredFile) -> Member:
    return Member(path, size, tar_header(path, size, file.mode & 0o7777, max(file.mtime_ns // 10**9, 0)), file)


def length(record: Record, bundle: int, content: bytes) -> int:
    """Bytes of the stream."""
    sizes = (len(each.head) + each.size + -each.size % TAR_BLOCK for each in members(record, bundle, content))
    return sum(sizes) + len(END)


class Part:
    """What one rank has of a committed set, all of it open: it can be read to its end though the set is removed."""

    def __init__(self, root: Root, number: int, stack: contextlib.ExitStack) -> None:
        """Open in `stack`. Raises `Changed` if there is no such set any more, `Damaged`, and `OSError`."""
        self.root, disk = root, root.disk
        try:
            is_ours(disk, root.path, root.set(number))
            self.content = read(disk, root.record(number), LARGEST_RECORD)
            with or_damaged(root.record(number)):
                self.record = parse_record(self.content)
            inode = disk.stat(root.record(number)).st_ino
            self.bundle = 0
            if any(file.kept == "tar" for file in self.record.files if file.kind == "file"):
                self.bundle = disk.stat(root.bundle(number)).st_size
            self._files: list[tuple[Member, BinaryIO | None]] = []
            for member in members(self.record, self.bundle, self.content):
                self._files.append((member, self._open(number, member, stack)))
            if disk.stat(root.record(number)).st_ino != inode:  # the last look: until now it was this set all the time
                raise Changed(f"{self.record.label} was replaced")
        except FileNotFoundError as error:
            if exists(disk, root.record(number)):
                raise Damaged(f"{root.shown(error.filename)} is missing") from error
            raise Changed(f"set {number} was removed") from error
        self.length = length(self.record, self.bundle, self.content)

    def _open(self, number: int, member: Member, stack: contextlib.ExitStack) -> BinaryIO | None:
        root, file = self.root, member.file
        if member.path == "record.json":
            return None
        if file is None or file.kind != "append":
            return _held(stack, root.disk.open(f"{root.set(number)}/{member.path}"))
        why = "is gone"
        ways = [os.path.join(root.work, file.path), *prefixes_kept(root, number, file)]
        for way in (way for way in ways if exists(root.disk, way)):
            source = root.disk.open(way)
            size, checksum = codec.copy(source, None, file.size)
            if size == file.size and checksum == file.checksum:
                source.seek(0)
                return _held(stack, source)
            close_read_only(source.close)
            why = "does not begin as the set has it"
        raise Damaged(f"{file.path} {why}")

    def pieces(self) -> Iterator[bytearray]:
        """The stream, cut; each byte is copied once. Raises `Damaged` for what is not as it was committed, as far as
        bytes tell that are kept as they were, and `Changed`."""
        piece, held = bytearray(PIECE), 0
        for readinto in self._sources():
            while count := readinto(memoryview(piece)[held:]):
                held += count
                if held == len(piece):
                    yield piece
                    piece, held = bytearray(PIECE), 0
        if held:
            yield piece[:held]

    def blocks(self) -> Iterator[memoryview]:
        """The same stream, as it comes: each block is what it is until the next one is asked for."""
        room = memoryview(bytearray(BLOCK))
        for readinto in self._sources():
            while count := readinto(room):
                yield room[:count]

    def lying(self) -> Iterator[tuple[int, bytes | str]]:
        """Of each piece of the stream its size, and its bytes, or the file that begins with them."""
        for member, source in self._files:
            yield len(member.head), member.head
            yield member.size, self.content if source is None else source.name
            yield -member.size % TAR_BLOCK, bytes(-member.size % TAR_BLOCK)
        yield len(END), END

    def _sources(self) -> Iterator[Callable[[memoryview], int]]:
        """What fills a buffer with the next bytes, as many as it likes, and with none at its end."""
        for member, source in self._files:
            if source is not None:
                self._prove(member, source)
            yield io.BytesIO(member.head).readinto
            yield io.BytesIO(self.content).readinto if source is None else _Content(member, source).readinto
            yield io.BytesIO(bytes(-member.size % TAR_BLOCK)).readinto
        yield io.BytesIO(END).readinto

    def _prove(self, member: Member, source: BinaryIO) -> None:
        """What is kept in another form than it has in W is read as a restart would: else damage would go along, and
        count as whole there."""
        if member.file is None:
            inner = [file for file in self.record.files if file.kind == "file" and file.kept == "tar"]
        else:
            inner = [member.file] if member.file.kept == "zst" else []
        for file in inner:
            with or_damaged(source.name):
                source.seek(file.offset)
                if file.kept == "zst":
                    size, checksum = codec.unpack(source, file.size, None, None)
                else:
                    size, checksum = codec.copy(source, None, file.size)
            if (size, checksum) != (file.size, file.checksum):
                raise Damaged(f"{file.path} is not as it was committed")
        source.seek(0)


class _Content:
    """The bytes of one file, which are compared with its checksum at its end."""

    def __init__(self, member: Member, source: BinaryIO) -> None:
        self._member, self._source = member, source
        self._digest, self._left = xxhash.xxh3_128(), member.size

    def readinto(self, room: memoryview) -> int:
        look()
        room = room[: min(self._left, BLOCK)]
        count: int = self._source.readinto(room) if room else 0  # type: ignore[attr-defined]
        self._digest.update(room[:count])
        self._left -= count
        if not count:
            self._check()
        return count

    def _check(self) -> None:
        file = self._member.file
        if self._left or (file and file.kept == "raw" and self._digest.hexdigest() != file.checksum):
            grows = file is not None and file.kind == "append"
            raise (Changed if grows else Damaged)(f"{self._member.path} is not as it was committed")


def _held(stack: contextlib.ExitStack, file: BinaryIO) -> BinaryIO:
    stack.callback(close_read_only, file.close)
    return file


class Stream:
    """Blocks, read as a file."""

    def __init__(self, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        self._blocks, self._held = iter(blocks), memoryview(b"")

    def read(self, most: int) -> memoryview:
        """As many bytes, or fewer at the end of a block; none at the end of all. Good until the next read."""
        while not self._held:
            try:
                self._held = memoryview(next(self._blocks))
            except StopIteration:
                return memoryview(b"")
        block, self._held = self._held[:most], self._held[most:]
        return block

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (block := self.read(size - len(found))):
            found += block
        return bytes(found)


def parsed(content: bytes) -> Record:
    """Raises `Damaged`."""
    try:
        return parse_record(content)
    except Unsealed as error:
        raise Damaged(f"its record: {error}") from error


def unpack(
    root: Root, record: Record, bundle: int, content: bytes, blocks: Iterable[bytes | bytearray | memoryview]
) -> tuple[list[str], set[str]]:
    """Write a part into the set's directory below `root`, which is there and empty; the files, none of them durable,
    and those paths of the record whose bytes were compared with its checksums on the way.

    The record comes last. Raises `Damaged` if the stream is not that of this record; nothing is written outside.
    """
    disk, stream, top, written, proven = root.disk, Stream(blocks), root.set(record.number), list[str](), set[str]()
    for member in members(record, bundle, content):
        if not _is_head(stream.exactly(len(member.head)), member, int(record.committed)):
            raise Damaged(f"its stream does not have {member.path} where it should be")
        path = f"{top}/{member.path}"
        make_parents(disk, path, top, root.mode_in)
        with disk.create(path, OURS) as sink:
            if member.path == "record.json":
                if stream.exactly(member.size) != content:
                    raise Damaged("the record in its stream is another one than beside it")
                write_all(sink, content)
            else:
                _write(root, stream, sink, member)
        if member.file:
            proven |= {member.file.path} if member.file.kept == "raw" else set()
            mode = OURS if member.file.kept == "zst" else member.file.mode & 0o7777 | 0o400
            disk.set_mode_and_time(path, mode, member.file.mtime_ns, member.file.group)
        written.append(path)
        stream.exactly(-member.size % TAR_BLOCK)
    if stream.exactly(len(END) + 1) != END:
        raise Damaged("its stream goes on after its end")
    return written, proven


def _write(root: Root, stream: Stream, sink: Any, member: Member) -> None:
    """Raises `Damaged` if these are not the bytes of its checksum, as far as that is of bytes as they are kept."""
    left, digest, flushed = member.size, xxhash.xxh3_128(), 0
    while left:
        look()
        block = stream.read(min(left, BLOCK))
        if not block:
            raise Damaged(f"its stream ends within {member.path}")
        digest.update(block)
        write_all(sink, block)
        left -= len(block)
        if member.size - left >= flushed + PIECE:  # the disk works while the rest comes
            flushed = member.size - left
            root.disk.start_writeback(sink, flushed)
    if member.file and member.file.kept == "raw" and digest.hexdigest() != member.file.checksum:
        raise Damaged(f"the checksum of {member.file.path} differs")
