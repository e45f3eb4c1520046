"""The tar of small files: a standard one, each read straight to where it will be written from.

By hand, since the module tarfile takes longer for a header than it takes to read the file (13 and 8 microseconds).
"""

from __future__ import annotations

import functools
from typing import Any

from safepoint.disk.codec import BLOCK, Tick
from safepoint.disk.kernel import write_all

TAR_BLOCK, TAR_RECORD = 512, 10240  # POSIX.1-1988: what headers, files and the archive are filled up to
TAR_NAME = 100  # bytes of a name in a header
TAR_REST = b"0" + bytes(100) + b"ustar  \0" + bytes(247)  # a plain file, as GNU tar says it, of user and group 0
TAR_REST_SUM = sum(TAR_REST) + 8 * ord(" ")  # with what stands for the sum itself
_zeros = bytes(TAR_BLOCK)


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
