"""Bytes through checksum and zstd, in one pass and constant memory.

The checksum is xxh3-128 of the uncompressed bytes, in hexadecimal as `xxh128sum` prints it. Files are read through a
buffer and never mapped: an I/O error must be an exception here, not a SIGBUS in the user's solver. Sources and sinks
are binary files of `Disk`, or streams of zstandard; each has a name, which goes into the errors it raises.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import xxhash

from safepoint.disk.kernel import names_file, write_all
from safepoint.disk.signals import look

BLOCK = 1 << 20
# For a checksum alone, a file of so many bytes is read by larger blocks. CPython changes threads every 5 ms, if the
# program keeps it busy; larger reads wait for that less often.
CHECKSUM_READ_BYTES, LARGE_FILE_BYTES = 8 << 20, 32 << 20
HOLE = 64 << 10  # bytes of zeros that are worth leaving out
SAMPLE_PIECES = 4  # of a quarter block each, spread over the file
WORTH_PACKING = 0.95  # of its size at most: else a file is kept as it is
EDGE = 4096  # bytes at each end of a known prefix that are compared before it is trusted
# The tables of the high levels of zstd take up to 700 MB. With these limits level 19 needs 35 MB a thread and its
# output grows by 1.5 %; the levels up to 11 are as ever. JOB is what a thread works on, in bytes of input.
WINDOW_LOG, TABLE_LOG, JOB = 22, 21, 4 << 20

Tick = Callable[[int], None]  # told how many bytes were done
_zeros = memoryview(bytes(BLOCK))


_OURS: dict[str, int] = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}  # a child has its own


class _Buffers:
    """Of one size, in bytes. Up to `most` of those that are not in use are kept, since making one takes longer than to
    read a small file. The kernel gives their pages when they are first read into: a bytearray would be filled with
    zeros at once, for milliseconds in which no other thread has the interpreter."""

    def __init__(self, size: int, most: int) -> None:
        self._size, self._most = size, most
        self._idle: list[memoryview] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[memoryview]:
        try:
            buffer = self._idle.pop()  # atomic, as is append
        except IndexError:
            buffer = memoryview(mmap.mmap(-1, self._size, **_OURS))
        try:
            yield buffer
        finally:
            if len(self._idle) < self._most:
                self._idle.append(buffer)


_block_buffers, _checksum_buffers = _Buffers(BLOCK, 8), _Buffers(CHECKSUM_READ_BYTES, 1)


class BadFrame(Exception):
    """The bytes are not a zstd frame, or not as many as announced."""


def load() -> None:
    """Import what compresses here and now: a child that is forked while another thread does so waits for that import
    for ever, if it needs the same."""
    import zstandard  # noqa: F401


def checksum(data: bytes | bytearray | memoryview) -> str:
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
    large = sink is None and limit is not None and limit >= LARGE_FILE_BYTES
    with (_checksum_buffers if large else _block_buffers).one() as buffer:
        while limit is None or size < limit:
            look()
            with names_file(source.name):
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
    sink either. (`Disk.duplicate` copies without a checksum, and so can leave it to the kernel.)"""
    digest = xxhash.xxh3_128()
    done = 0
    for start, end in [*extents, (size, size)]:
        for position in range(done, start, BLOCK):
            look()
            digest.update(_zeros[: start - position])
            if tick:
                tick(min(start - position, BLOCK))
        with names_file(source.name):
            source.seek(start)
        if sink is not None:
            with names_file(sink.name):
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
    with names_file(sink.name):
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
    with names_file(source.name):
        source.seek(begin)
    count, text = copy(source, None, size - begin, digest=digest)
    return begin + count, text, Prefix(inode, size, digest, _edges(source, size))


def begins_with(source: Any, known: Prefix) -> bool:
    """Whether the first and the last bytes of what is known are still there."""
    return _edges(source, known.size) == known.edges


def _edges(source: Any, size: int) -> bytes:
    edges = b""
    for start in (0, max(size - EDGE, 0)):
        with names_file(source.name):
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
        with names_file(source.name):
            source.seek((size - piece) * number // (SAMPLE_PIECES - 1))
            data += source.read(piece)
    with names_file(source.name):
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
        with names_file(sink.name):
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


class _Named:
    """A zstandard stream under the name of the file below it, so that an error can say which."""

    def __init__(self, name: str, readinto: Any = None, write: Any = None) -> None:
        self.name, self.readinto, self.write = name, readinto, write
