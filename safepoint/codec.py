"""Bytes through checksum and zstd, in one pass and constant memory.

The checksum is xxh3-128 of the uncompressed bytes, in hexadecimal as `xxh128sum` prints it. Files are read through a
buffer and never mapped: an I/O error must be an exception here, not a SIGBUS in the user's solver. Sources and sinks
are binary files of `Disk`, or streams of zstandard; each has a name, which goes into the errors it raises.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import xxhash

from safepoint.disk import naming, write_all

BLOCK = 1 << 20
# What is read at a time for a checksum alone, of files from LARGE on: a program that keeps the interpreter busy lets go
# of it every 5 ms, and each reading waits for that.
GULP, LARGE = 8 << 20, 32 << 20
HOLE = 64 << 10  # bytes of zeros that are worth leaving out
SAMPLE_PIECES = 4  # of a quarter block each, spread over the file
WORTH_PACKING = 0.95  # of its size at most: else a file is kept as it is
TAR_BLOCK, TAR_RECORD = 512, 10240  # POSIX.1-1988: what headers, files and the archive are filled up to
TAR_NAME = 100  # bytes of a name in a header
TAR_REST = b"0" + bytes(100) + b"ustar  \0" + bytes(247)  # a plain file, as GNU tar says it, of user and group 0
TAR_REST_SUM = sum(TAR_REST) + 8 * ord(" ")  # with what stands for the sum itself
EDGE = 4096  # bytes at each end of a known prefix that are compared before it is trusted
# The tables of the high levels of zstd take up to 700 MB. With these limits level 19 needs 35 MB a thread and its
# output grows by 1.5 %; the levels up to 11 are as ever. JOB is what a thread works on, in bytes of input.
WINDOW_LOG, TABLE_LOG, JOB = 22, 21, 4 << 20

KEPT = {False: 8, True: 1}  # buffers, by whether they are large

Tick = Callable[[int], None]  # told how many bytes were done
_zeros = memoryview(bytes(BLOCK))
_buffers: dict[bool, list[memoryview]] = {False: [], True: []}  # by whether they are large


class BadFrame(Exception):
    """The bytes are not a zstd frame, or not as many as announced."""


def load() -> None:
    """Import what compresses here and now: a child that is forked while another thread does so waits for that import
    for ever, if it needs the same."""
    import zstandard  # noqa: F401


def checksum(data: bytes | memoryview) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def copy(
    source: Any, sink: Any = None, limit: int | None = None, *, digest: Any = None, tick: Tick | None = None,
    holes: bool = False,
) -> tuple[int, str]:  # fmt: skip
    """Read `source` to its end, or its next `limit` bytes, into `sink` if there is one; how many, and the checksum.

    `digest`: what to go on from, when these bytes follow others. `holes`: blocks of zeros are left out of the sink.
    """
    digest = xxhash.xxh3_128() if digest is None else digest
    size = 0
    with _buffer(large=sink is None and limit is not None and limit >= LARGE) as buffer:
        while limit is None or size < limit:
            with naming(source.name):
                count = source.readinto(buffer if limit is None else buffer[: limit - size])
            if not count:
                break
            digest.update(buffer[:count])
            if sink is not None and holes and count >= HOLE and _is_zero(buffer[:count]):
                sink.seek(count, os.SEEK_CUR)
            elif sink is not None:
                write_all(sink, buffer[:count])
            size += count
            if tick:
                tick(count)
    if sink is not None and holes:
        _end(sink, size)
    return size, digest.hexdigest()


def _is_zero(data: memoryview) -> bool:
    # As bytes, since those are compared by memcmp, and views item by item.
    return data[0] == 0 and data[-1] == 0 and data.tobytes() == _zeros[: len(data)].tobytes()


def copy_sparse(
    source: Any, sink: Any, size: int, extents: Iterable[tuple[int, int]], tick: Tick | None = None
) -> tuple[int, str]:
    """As `copy`, of a file of `size` bytes that has data in `extents` only; what is between them is no data in the
    sink either."""
    digest = xxhash.xxh3_128()
    done = 0
    for start, end in [*extents, (size, size)]:
        for position in range(done, start, BLOCK):
            digest.update(_zeros[: start - position])
            if tick:
                tick(min(start - position, BLOCK))
        with naming(source.name):
            source.seek(start)
        if sink is not None:
            with naming(sink.name):
                sink.seek(start)
        count, _ = copy(source, sink, end - start, digest=digest, tick=tick)
        done = start + count
        if done < end:
            break
    if sink is not None:
        _end(sink, done)
    return done, digest.hexdigest()


def _end(sink: Any, size: int) -> None:
    """Let a file that ends with a hole have that too. For any other, XFS would write out all of it here."""
    with naming(sink.name):
        if sink.seek(0, os.SEEK_END) != size:
            sink.truncate(size)


class Prefix(NamedTuple):
    """What is known of the beginning of a file that only grows: enough to go on from there."""

    inode: int
    size: int
    digest: Any  # the state of the checksum, after `size` bytes
    edges: bytes  # the first and the last bytes of them


def extend(source: Any, inode: int, size: int, known: Prefix | None) -> tuple[int, str, Prefix]:
    """The checksum of the first `size` bytes of a file of which `known` is the beginning, if it still is: then only
    what follows is read. How many bytes there are, their checksum, and what is known now."""
    digest, begin = xxhash.xxh3_128(), 0
    if known and known.inode == inode and size >= known.size and begins_with(source, known):
        digest, begin = known.digest.copy(), known.size
    with naming(source.name):
        source.seek(begin)
    count, text = copy(source, None, size - begin, digest=digest)
    return begin + count, text, Prefix(inode, size, digest, _edges(source, size))


def begins_with(source: Any, known: Prefix) -> bool:
    """Whether the first and the last bytes of what is known are still there."""
    return _edges(source, known.size) == known.edges


def _edges(source: Any, size: int) -> bytes:
    edges = b""
    for start in (0, max(size - EDGE, 0)):
        with naming(source.name):
            source.seek(start)
            edges += source.read(min(EDGE, size - start))
    return edges


def sample_shrinks(source: Any, size: int, level: int) -> bool:
    """Whether compressing is likely to be worth its time: a sample of 1 MiB, spread over the file, shrinks by 5 %."""
    import zstandard

    if size <= BLOCK:
        return True  # to try it is the best sample
    piece, data = BLOCK // SAMPLE_PIECES, b""
    for number in range(SAMPLE_PIECES):
        with naming(source.name):
            source.seek((size - piece) * number // (SAMPLE_PIECES - 1))
            data += source.read(piece)
    with naming(source.name):
        source.seek(0)
    return len(zstandard.ZstdCompressor(level=min(level, 3)).compress(data)) <= WORTH_PACKING * len(data)


def pack(source: Any, sink: Any, level: int, size: int, threads: int = 1, tick: Tick | None = None) -> tuple[int, str]:
    """Compress `source`, of `size` bytes, into one zstd frame with content size and checksum; its size and checksum.

    `threads` compress beside this one, which reads and writes; 0: one for each core.
    Raises `BadFrame` if the source turns out longer or shorter: then it changes under our hands.
    """
    import zstandard

    usual = zstandard.ZstdCompressionParameters.from_level(level, source_size=size)
    one_job = size <= JOB  # then the threads would only cost memory
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=size,
        window_log=min(usual.window_log, WINDOW_LOG),
        chain_log=min(usual.chain_log, TABLE_LOG),
        hash_log=min(usual.hash_log, TABLE_LOG),
        threads=0 if one_job else threads or -1,
        job_size=0 if one_job else JOB,
        write_checksum=True,
        write_content_size=True,
    )
    # zstandard does not look at how much of what it gives was written.
    to_sink: Any = _Named(sink.name, write=lambda data: write_all(sink, data))
    writer: Any = zstandard.ZstdCompressor(compression_params=parameters).stream_writer(to_sink, size, closefd=False)
    try:
        done = copy(source, _Named(sink.name, write=writer.write), tick=tick)
        with naming(sink.name):
            writer.close()  # not by `with`: after a failed write that would hide the system's error behind zstd's
    except zstandard.ZstdError as error:
        raise BadFrame(str(error)) from error
    if done[0] != size:
        raise BadFrame(f"{done[0]} bytes instead of {size}")
    return done


def unpack(source: Any, size: int, sink: Any = None, tick: Tick | None = None) -> tuple[int, str]:
    """Decompress the zstd frame in `source`, of `size` bytes, into `sink` if there is one; size and checksum of what
    came out. At one byte more it ends: a small frame may hold terabytes.

    The caller compares these with what went in: a frame that was cut short need not raise.
    """
    import zstandard

    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
        with unpacker.stream_reader(source, closefd=False) as reader:
            return copy(_Named(source.name, readinto=reader.readinto), sink, size + 1, tick=tick, holes=True)
    except zstandard.ZstdError as error:
        raise BadFrame(str(error)) from error


class Bundle:
    """A standard tar in the making, of small files, each read straight to where it will be written from; `close` ends
    it. `tick` is told how many bytes were written."""

    def __init__(self, sink: Any, tick: Tick) -> None:
        self._sink, self._tick, self.size = sink, tick, 0  # what was added so far, in bytes
        self._buffer, self._used = memoryview(bytearray(BLOCK)), 0

    def room(self, path: str, size: int) -> memoryview:
        """Where this file, of at most a quarter of BLOCK, is to be read to before it is added."""
        plain = len(path) <= TAR_NAME and path.isascii()
        header = TAR_BLOCK if plain else len(tar_header(path, size, 0, 0))
        if self._used + header + size + TAR_BLOCK > BLOCK:
            self._write()
        start = self._used + header
        return self._buffer[start : start + size]

    def add(self, path: str, size: int, mode: int, mtime_ns: int) -> int:
        """Add the file that there was room for, and that is there now; where its bytes begin in the tar."""
        header = tar_header(path, size, mode & 0o7777, mtime_ns // 10**9)
        start = self._used + len(header)
        self._buffer[self._used : start] = header
        if filled := -size % TAR_BLOCK:
            self._buffer[start + size : start + size + filled] = _zeros[:filled]
        offset = self.size + len(header)
        self._used, self.size = start + size + filled, offset + size + filled
        return offset

    def close(self) -> None:
        end = self.size + 2 * TAR_BLOCK
        self._write()
        write_all(self._sink, bytes(2 * TAR_BLOCK + -end % TAR_RECORD))

    def _write(self) -> None:
        write_all(self._sink, self._buffer[: self._used])
        self._tick(self._used)
        self._used = 0


def tar_header(path: str, size: int, mode: int, mtime: int) -> bytes:
    """What stands before a file in a tar, as the module tarfile makes it; that takes longer than to read the file."""
    if path.isascii() and len(path) <= TAR_NAME and size < 8**11 and 0 <= mtime < 8**11:
        name = path.encode()
        numbers, total = _tar_numbers(size, mode, mtime)
        return b"%b%b%06o\0 %b" % (name.ljust(TAR_NAME, b"\0"), numbers, sum(name) + total, TAR_REST)
    import tarfile  # here, as few programs need it

    info = tarfile.TarInfo(path)
    info.size, info.mode, info.mtime = size, mode, mtime
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


@functools.lru_cache(16)
def _tar_numbers(size: int, mode: int, mtime: int) -> tuple[bytes, int]:
    """In a header, and what they and TAR_REST add to its sum. Many small files have the same ones."""
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, mtime)
    return numbers, sum(numbers) + TAR_REST_SUM


@contextlib.contextmanager
def _buffer(*, large: bool) -> Iterator[memoryview]:
    """One that is not in use; they are kept, since making one takes longer than to read a small file."""
    kept = _buffers[large]
    try:
        buffer = kept.pop()  # atomic, as is append
    except IndexError:
        buffer = memoryview(bytearray(GULP if large else BLOCK))
    try:
        yield buffer
    finally:
        if len(kept) < KEPT[large]:
            kept.append(buffer)


class _Named:
    """A zstandard stream under the name of the file below it, so that an error can say which."""

    def __init__(self, name: str, readinto: Any = None, write: Any = None) -> None:
        self.name, self.readinto, self.write = name, readinto, write
