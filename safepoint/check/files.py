"""The files of a trace, while they grow: of any kind, size and contents, whoever wrote them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISREG
from typing import Any

from safepoint.errors import UsageError
from safepoint.trace import record

JSON_MAX, LINES_MAX = 16 << 20, 256 << 20  # bytes


class TraceError(UsageError):
    """This is no trace that can be followed; the message says why. Nothing was changed."""


def opened(path: Path) -> int:
    """A descriptor of this file. Raises `TraceError`."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", error.errno) from error
    if not S_ISREG(os.fstat(found).st_mode):  # a pipe would never end
        os.close(found)
        raise TraceError(f"{path} is no file")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Raises `TraceError`."""
    descriptor = opened(path)
    try:
        with open(descriptor, "rb") as file:
            return dict(json.loads(file.read(min(os.fstat(descriptor).st_size, JSON_MAX))))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", error.errno) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise TraceError(f"{path}: it is no object of JSON: {error}") from error


class Lines:
    """A text file that grows by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor, self._at, self._torn = path, opened(path), 0, b""

    def new(self) -> list[str]:
        """Those that have come since the last time. Raises `TraceError`."""
        parts = [self._torn]
        while part := os.pread(self._descriptor, 1 << 20, self._at):
            parts.append(part)
            self._at += len(part)
            if self._at > LINES_MAX:
                raise TraceError(f"{self._path}: more than {LINES_MAX:,} bytes are too many")
        *found, self._torn = b"".join(parts).split(b"\n")
        return [line.decode("utf-8", "replace") for line in found]

    def close(self) -> None:
        os.close(self._descriptor)


class File:
    """Where the bytes come from."""

    def __init__(self, path: Path) -> None:
        """Raises `TraceError`."""
        self.path, self._descriptor = path, opened(path)

    def at(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, offset)
        except (OSError, OverflowError) as error:
            raise TraceError(f"{self.path}: {error}", getattr(error, "errno", None)) from error

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class Held:
    """The same of what lies in memory."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self._data = path, data

    def at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        self._data = b""


def ranks(directory: Path) -> list[int]:
    """Those that have begun to note. Raises `TraceError`."""
    try:
        names: Iterable[str] = os.listdir(directory)
    except OSError as error:
        raise TraceError(f"{directory}: {error.strerror}", error.errno) from error
    return sorted(int(name[5:-5]) for name in names if re.fullmatch(r"rank-[0-9]{5,9}\.json", name))


def of_rank(names: record.Names) -> tuple[File | Held, File | Held]:
    """Its notes and their rows, packed or not. Raises `TraceError`."""
    where = names.calls.with_suffix(".packed")
    if not where.exists():
        calls = File(names.calls)
        try:
            return calls, File(names.more)
        except TraceError:
            calls.close()
            raise
    try:
        from safepoint.matching import columns
    except ImportError as error:
        raise TraceError(f"{where} is packed, and {error.name} is missing: pip install '.[places]'") from error
    descriptor = opened(where)
    try:
        with open(descriptor, "rb") as file:
            notes, more, count = columns.unpack(file.read())
    except (OSError, ValueError) as error:
        raise TraceError(f"{where}: {error}") from error
    head = record.HEAD.pack(record.MAGIC, record.NOTE, count).ljust(record.HEADER, b"\0")
    return Held(where, head + notes.tobytes()), Held(where, more.tobytes())
