"""A journal: blocks, each the record of a vertex and the bytes of its result, appended in one write each.

    SPV1 | length of the record, u32 | length of the bytes, u64 | xxh3-64, u64 | the record, JSON | the bytes

All numbers are little-endian. The checksum is that of record and bytes, with a seed made of the journal's name and the
block's offset: a result may hold what was a journal once, and no block of that may be taken for one of this.

(1) A block counts when its checksum holds. What a kill or a power cut left at the end is lost work and no error.
(2) Behind a damaged block the next whole one is looked for: damage costs the vertices that it hit, not all after them.
(3) Nothing is changed in place, and nothing is appended by two processes: what is whole stays whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO, NamedTuple

from xxhash import xxh3_64_intdigest

from safepoint.disk import Disk
from safepoint.disk.kernel import names_file

MAGIC = b"SPV1"
HEAD = Struct("<4sIQQ")
SMALL = 64 << 10  # bytes of a result above which it gets a directory of its own
LONGEST_RECORD, LONGEST_BYTES = 64 << 20, 1 << 20  # in what is read; a vertex may have 10**5 inputs, each by name
PIECE = 4 << 20  # bytes that are read at once
_MASK = (1 << 64) - 1


def seed_of(path: str) -> int:
    """What the checksums of this journal begin with: made of its name, wherever it lies."""
    return xxh3_64_intdigest(os.fsencode(os.path.basename(path)))


def block(seed: int, offset: int, record: bytes, data: bytes) -> bytes:
    """What stands at this offset of the journal with this seed."""
    body = record + data
    return HEAD.pack(MAGIC, len(record), len(data), xxh3_64_intdigest(body, (seed + offset) & _MASK)) + body


class Block(NamedTuple):
    """From `offset` to `end` of a journal. `record` None: these bytes are no whole block."""

    offset: int
    end: int
    record: bytes | None
    data: bytes
    torn: bool = False  # they reach to the end: so does what a kill has interrupted


def blocks(disk: Disk, path: str) -> Iterator[Block]:
    """All that is in a journal, in its order; the bytes of a journal that grows meanwhile are there or not."""
    seed = seed_of(path)
    with disk.open(path) as file, names_file(path):
        window = _Window(file, disk.stat(file).st_size)
        at = 0
        while window.has(at, at + 1):
            found = _at(window, at, seed)
            if found is None:
                end = _next(window, at + 1, seed)
                found = Block(at, end, None, b"", torn=not window.has(end, end + 1))
            yield found
            at = found.end


class _Window:
    """The part of a file that is in memory: from what was asked for last on."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.base, self.data = 0, b""
        self._file, self._size, self._ended = file, size, False

    def has(self, start: int, end: int) -> bool:
        """Read until the bytes from `start` to `end` are here; False if the file ends before. `start` only grows."""
        have = self.base + len(self.data)
        while have < end and not self._ended:
            piece = self._file.read(max(end - have, min(PIECE, self._size - have)))  # no more room than it needs
            self._ended = not piece
            self.data = self.data[start - self.base :] + piece
            self.base, have = start, have + len(piece)
        return have >= end

    def part(self, start: int, end: int) -> bytes:
        return self.data[start - self.base : end - self.base]


def _at(window: _Window, at: int, seed: int) -> Block | None:
    """The block that begins here, if it is whole."""
    if not window.has(at, at + HEAD.size):
        return None
    magic, length, nbytes, checksum = HEAD.unpack_from(window.data, at - window.base)
    middle = at + HEAD.size + length
    if magic != MAGIC or length > LONGEST_RECORD or nbytes > LONGEST_BYTES or not window.has(at, middle + nbytes):
        return None
    if xxh3_64_intdigest(window.part(at + HEAD.size, middle + nbytes), (seed + at) & _MASK) != checksum:
        return None
    return Block(at, middle + nbytes, window.part(at + HEAD.size, middle), window.part(middle, middle + nbytes))


def _next(window: _Window, at: int, seed: int) -> int:
    """Where the next whole block begins, or the end of the file."""
    while window.has(at, at + len(MAGIC)):
        found = window.data.find(MAGIC, at - window.base)
        if found < 0:
            at = window.base + len(window.data) - len(MAGIC) + 1
            continue
        at = window.base + found
        if _at(window, at, seed):
            return at
        at += 1
    return max(at, window.base + len(window.data))


class At(NamedTuple):
    """Where in a file the bytes of a block are."""

    start: int
    nbytes: int


def bytes_at(file: BinaryIO, offset: int) -> At | None:
    """Where the bytes of the block at this offset are, by its head alone; None if there is no head."""
    file.seek(offset)
    head = file.read(HEAD.size)
    if len(head) < HEAD.size or head[:4] != MAGIC:
        return None
    _, length, nbytes, _ = HEAD.unpack(head)
    return At(offset + HEAD.size + length, nbytes)
