"""The notes of a rank in columns, compressed: a file of two to five bytes a call, from which each bit comes back.

A head of 40 bytes (`SPPACK1`; how many notes the tracer said, how many are here, how many words of `.more`; the XXH3 of
all but itself), then for each column its size, and the column as zstd has it. What is the same in most calls, or grows
evenly, becomes zeros first: of times the differences, of requests and rows how far they are from the one before.

(1) `unpack` never makes more than `MOST` bytes for one that the file has: zstd alone would make 1 GB of 100 kB. Notes
    that compress better are followed by so many zeros that this holds.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from safepoint.matching.matched import Ints
from safepoint.trace import record

_TYPES = {"Q": "<u8", "I": "<u4", "H": "<u2", "i": "<i4", "B": "u1"}
NOTES = np.dtype([(name, _TYPES[c]) for name, c in zip(record.FIELDS, record.LAYOUT.format[1:], strict=True)])
MAGIC, MOST, LEVEL = b"SPPACK1\n", 128, 19
HEAD, SUM = struct.Struct("<8sqqq"), struct.Struct("<Q")
SIZE = struct.Struct("<Q")
WIDTHS = {record.COMPLETED: 3, record.STARTED: 2}  # of what repeats in a row, by its kind
KINDS = (record.COMPLETED, record.STARTED, record.MESSAGE, record.ARGUMENTS)
COUNTED = "request", "more"  # these go up by themselves where they are not 0


def pack(notes: NDArray[np.void], more: Ints, count: int) -> bytes:
    """What `unpack` gives back."""
    parts = list[bytes]()
    for column in (*_columns(notes), *_words(more)):
        squeezed = zstandard.ZstdCompressor(level=LEVEL).compress(_planes(column))
        parts += [SIZE.pack(len(squeezed)), squeezed]
    body = b"".join(parts)
    body += bytes(max(0, (len(notes) * NOTES.itemsize + len(more) * 8) // MOST + 1 - len(body)))
    return sealed(HEAD.pack(MAGIC, count, len(notes), len(more)), body)


def sealed(head: bytes, body: bytes) -> bytes:
    """With the checksum between them."""
    return head + SUM.pack(xxhash.xxh3_64_intdigest(head + body)) + body


def unpack(data: bytes) -> tuple[NDArray[np.void], Ints, int]:
    """Notes, words, and what the tracer said of their number. Raises ValueError."""
    if len(data) < HEAD.size + SUM.size or not data.startswith(MAGIC[:6]):
        raise ValueError("it does not begin as packed notes do")
    magic, count, notes, words = HEAD.unpack_from(data)
    body = data[HEAD.size + SUM.size :]
    if magic != MAGIC:
        raise ValueError("its format is not known here")
    if sealed(data[: HEAD.size], body) != data:
        raise ValueError("it is torn or damaged: its checksum does not hold")
    if not (notes >= 0 and words >= 0 and notes * NOTES.itemsize + words * 8 <= MOST * len(body)) or count < -1:
        raise ValueError("it says that it holds more than it can")
    stream = Stream(body)
    found = _notes(stream, notes)
    return found, _more(stream, words), count


class Stream:
    """The columns of a file, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def column(self, kind: str, items: int) -> Any:
        """The next one. Raises ValueError."""
        begin = self._at + SIZE.size
        if begin > len(self._body):
            raise ValueError("a column is missing")
        end = begin + SIZE.unpack_from(self._body, self._at)[0]
        width = np.dtype(kind).itemsize
        try:
            part = self._body[begin:end]
            if zstandard.frame_content_size(part) != items * width:
                raise ValueError("a column has not the size that it should have")
            plain = zstandard.ZstdDecompressor().decompress(part)
        except zstandard.ZstdError as error:
            raise ValueError(f"a column is damaged: {error}") from error
        self._at = end
        return np.frombuffer(plain, "u1").reshape(width, items).T.copy().view(kind).reshape(items)


def _planes(column: Any) -> bytes:
    """All first bytes, then all second ones, …: those that change little lie together."""
    return np.ascontiguousarray(column.view("u1").reshape(len(column), column.itemsize).T).tobytes()


# Notes. Arithmetic is that of integers that wrap around, so each value comes back whatever it is.


def _columns(notes: NDArray[np.void]) -> list[Any]:
    found = list[Any]()
    for name in record.FIELDS:
        column = np.ascontiguousarray(notes[name])
        if name == "enter":
            column = column - _before(notes["enter"], notes["leave"])
        elif name == "leave":
            column = np.where(column == 0, 0, column - notes["enter"] + 1).astype("<u8")
        elif name in COUNTED:
            used = column != 0
            column = column.copy()
            column[used] = np.diff(column[used], prepend=column.dtype.type(0))
            found.append(used.view("u1"))
        found.append(column)
    return found


def _before(enter: Any, leave: Any) -> Any:
    """When the call before ended, or else began."""
    return np.append(np.zeros(1, "<u8"), np.where(leave == 0, enter, leave))[: len(enter)].astype("<u8")


def _notes(stream: Stream, items: int) -> NDArray[np.void]:
    found = np.zeros(items, NOTES)
    for name in record.FIELDS:
        kind = NOTES[name].str
        used = stream.column("u1", items) != 0 if name in COUNTED else None
        column = stream.column(kind, items)
        if used is not None:
            column[used] = np.cumsum(column[used], dtype=column.dtype)
        found[name] = column
    step = np.where(found["leave"] == 0, 0, found["leave"] - 1).astype("<u8")  # how long each call took
    begun = found["enter"] + np.append(np.zeros(1, "<u8"), step)[:items]
    enter = np.cumsum(begun, dtype="<u8")
    found["leave"] = np.where(found["leave"] == 0, 0, enter + step)
    found["enter"] = enter
    return found


# Rows of `.more`.


def _words(more: Ints) -> list[Any]:
    """Without its header. If the rows do not lie one after the other, each word as it is."""
    words = more[3:].astype("<i8")
    heads = _heads(words)
    if heads is None:
        return [more[:3].astype("<i8"), np.zeros(1, "u1"), words]
    length, note, kind = words[heads], words[heads + 1], words[heads + 2]
    found = [more[:3].astype("<i8"), np.ones(1, "u1"), np.array([len(heads)], "<i8"), length,
             np.diff(note, prepend=np.int64(0)), kind]  # fmt: skip
    for one in KINDS:
        values = words[_inside(heads[kind == one], length[kind == one])]
        width = WIDTHS.get(one, 1)
        found += [_differences(values[turn::width]) for turn in range(width)]
    return found


def _heads(words: Any) -> Any:
    """Where the rows begin; None: they do not fill the file, or one is of no kind that is known."""
    heads, at, length = list[int](), 0, words.tolist()
    while at + 3 <= len(length):
        if not 0 <= length[at] <= len(length) - at - 3 or length[at + 2] not in KINDS:
            return None
        heads.append(at)
        at += 3 + length[at]
    return np.array(heads, "i8") if at == len(length) else None


def _inside(heads: Any, length: Any) -> Any:
    """The places of the values of these rows."""
    total = int(length.sum())
    return np.repeat(heads + 3 - (np.cumsum(length) - length), length) + np.arange(total)


def _differences(values: Any) -> Any:
    return np.diff(values, prepend=np.int64(0)).astype("<i8")


def _more(stream: Stream, words: int) -> Ints:
    head = stream.column("<i8", min(3, words))
    if not stream.column("u1", 1)[0]:
        return np.concatenate([head, stream.column("<i8", words - len(head))])
    rows = int(stream.column("<i8", 1)[0])
    if not 0 <= rows * 3 <= words:
        raise ValueError("it says that it holds more than it can")
    length, note, kind = (stream.column("<i8", rows) for _ in range(3))
    if np.any((length < 0) | (length > words)) or int(length.sum()) + 3 * rows + len(head) != words:
        raise ValueError("its rows do not fill it")
    found, heads = np.zeros(words - len(head), "<i8"), np.cumsum(length + 3) - length - 3
    found[heads], found[heads + 1], found[heads + 2] = length, np.cumsum(note), kind
    for one in KINDS:
        inside = _inside(heads[kind == one], length[kind == one])
        width = WIDTHS.get(one, 1)
        for turn in range(width):
            where = inside[turn::width]
            found[where] = np.cumsum(stream.column("<i8", len(where)))
    return np.concatenate([head, found])
