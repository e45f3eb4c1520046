"""What the files of a rank hold: its notes, plain or packed, whoever wrote them; and all of them written at once.

(1) Nothing is made larger than a few times the files: sizes that a file states are compared with it before they are
    used. A line of 20 bytes could else ask for all memory. What is packed may be larger by `columns.MOST`.
"""

from __future__ import annotations

import json
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.errors import UsageError
from safepoint.matching import columns
from safepoint.matching.columns import NOTES as NOTES
from safepoint.matching.matched import Ints
from safepoint.trace import record

MOST = 1 << 30  # bytes of a file that is read whole


class TraceError(UsageError):
    """This is no trace that can be judged; the message says why. Nothing was changed."""


class Stored(NamedTuple):
    """What the tracer wrote of the calls of a rank."""

    notes: NDArray[np.void]  # NOTES; of a rank that did not end, with empty ones behind
    more: Ints  # words of `.more`, with its header
    told: int  # how many notes there are, as the header says; -1: the rank did not end


def bytes_of(path: Path, most: int = -1) -> bytes:
    """So many, at most; without `most` all, if they can be true. Raises `TraceError`."""
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):  # a pipe would wait for ever
            raise TraceError(f"{path} is no file")
        if most < 0 and found.st_size > MOST:
            raise TraceError(f"{path}: {found.st_size:,} bytes are too many")
        with path.open("rb") as file:
            return file.read(min(most, found.st_size) if most >= 0 else -1)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", error.errno) from error


def packed(names: record.Names) -> Path:
    """Where the notes and rows of a rank are when they are packed."""
    return names.calls.with_suffix(".packed")


def stored(names: record.Names) -> Stored:
    """Raises `TraceError`. A packed file comes first: it is whole, and what it was made of may be on its way out."""
    where = packed(names)
    if where.exists():
        try:
            return Stored(*columns.unpack(bytes_of(where)))
        except ValueError as error:
            raise TraceError(f"{where}: {error}") from error
    count = _head(names.calls, record.NOTE)
    notes = _filled(names.calls, NOTES, record.HEADER)
    _head(names.more, 8)
    return Stored(notes, _filled(names.more, np.dtype("<i8"), 0), count)


def _head(path: Path, size: int) -> int:
    """How many notes or words the header says there are; -1: it was not known."""
    data = bytes_of(path, record.HEAD.size)
    magic, of_one, count = record.HEAD.unpack(data.ljust(record.HEAD.size, b"\0"))
    if magic != record.MAGIC or of_one != size or count < -1:
        other = magic.startswith(record.MAGIC[:-1]) and magic != record.MAGIC
        raise TraceError(f"{path}: {'its format is not known here' if other else 'it does not begin as notes do'}")
    return int(count)


def _filled(path: Path, kind: np.dtype[Any], begin: int) -> Any:
    """What lies in a file up to the first segment of zeros: (1), since a file may be a hole of any size."""
    parts, items = [np.zeros(0, kind)], record.SEGMENT // kind.itemsize
    bytes_of(path, 0)  # it is there, and a file
    with path.open("rb") as file:
        file.seek(begin)
        while len(part := np.fromfile(file, kind, items)) and part.view("u1").any():
            parts.append(part)
    return np.concatenate(parts)


def put(directory: Path, about: dict[str, Any], of: Stored, texts: tuple[str, str]) -> None:
    """Write the files of a rank. `texts`: its sites and its objects."""
    names = record.names(directory, about["rank"])
    head = record.HEAD.pack(record.MAGIC, record.NOTE, of.told).ljust(record.HEADER, b"\0")
    words = len(of.more) - 3 if of.told >= 0 else -1
    names.calls.write_bytes(head + of.notes.tobytes())
    names.more.write_bytes(record.HEAD.pack(record.MAGIC, 8, words) + of.more[3:].tobytes())
    names.sites.write_text(texts[0], "utf-8")
    names.objects.write_text(texts[1], "utf-8")
    names.about.write_text(json.dumps(about), "utf-8")
