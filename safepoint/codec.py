"""Bytes through checksum and zstd, in one pass and constant memory.

The checksum is xxh3-128 of the uncompressed bytes, in hexadecimal as `xxh128sum` prints it. Files are read through a
buffer and never mapped: an I/O error must be an exception here, not a SIGBUS in the user's solver. Sources and sinks
are binary files of `Disk`, or streams of zstandard; each has a name, which goes into the errors it raises.
"""

from __future__ import annotations

from typing import Any

import xxhash

from safepoint.disk import naming

BLOCK = 1 << 20


class BadFrame(Exception):
    """The bytes are not a zstd frame, or not as many as announced."""


def checksum(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def copy(source: Any, sink: Any = None, limit: int | None = None) -> tuple[int, str]:
    """Read `source` to its end, or its first `limit` bytes, into `sink` if there is one; its size and checksum."""
    digest = xxhash.xxh3_128()
    buffer = memoryview(bytearray(BLOCK))
    size = 0
    while limit is None or size < limit:
        with naming(source.name):
            count = source.readinto(buffer if limit is None else buffer[: limit - size])
        if not count:
            break
        digest.update(buffer[:count])
        if sink is not None:
            with naming(sink.name):
                sink.write(buffer[:count])
        size += count
    return size, digest.hexdigest()


def pack(source: Any, sink: Any, level: int, size: int) -> tuple[int, str]:
    """Compress `source`, of `size` bytes, into one zstd frame with content size and checksum; its size and checksum.

    Raises `BadFrame` if the source turns out longer or shorter: then it changes under our hands.
    """
    import zstandard

    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
    writer: Any = compressor.stream_writer(sink, size=size, closefd=False)
    try:
        done = copy(source, _Named(sink.name, write=writer.write))
        with naming(sink.name):
            writer.close()  # not by `with`: after a failed write that would hide the system's error behind zstd's
    except zstandard.ZstdError as error:
        raise BadFrame(str(error)) from error
    if done[0] != size:
        raise BadFrame(f"{done[0]} bytes instead of {size}")
    return done


def unpack(source: Any, sink: Any = None) -> tuple[int, str]:
    """Decompress the zstd frame in `source` into `sink` if there is one; size and checksum of what came out.

    The caller compares these with what went in: a frame that was cut short need not raise.
    """
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(source, closefd=False) as reader:
            return copy(_Named(source.name, readinto=reader.readinto), sink)
    except zstandard.ZstdError as error:
        raise BadFrame(str(error)) from error


class _Named:
    """A zstandard stream under the name of the file below it, so that an error can say which."""

    def __init__(self, name: str, readinto: Any = None, write: Any = None) -> None:
        self.name, self.readinto, self.write = name, readinto, write
