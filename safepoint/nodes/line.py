"""All that one node has of a set as one line of bytes: of each of its ranks the record, and then its part as a stream.

Parity is made of such lines (`parity`). Any range of one can be had without what is before it, and no file stays open.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import xxhash

from safepoint.disk.signals import look
from safepoint.nodes.nearby import record_of
from safepoint.nodes.transfer import digest
from safepoint.root import Root
from safepoint.tiers.part import BLOCK, Changed, Part
from safepoint.tiers.place import Vanished

GRAIN = 256 << 10  # bytes of a line that have a checksum of their own
MOST_KEPT = 4096  # parts that are known to be whole


class Segment(NamedTuple):
    """What one rank has of a line: so many bytes of its record, and of its stream."""

    rank: int
    content: int
    bundle: int  # of the files in bundle.tar, within the stream
    length: int  # of the stream
    sum: str  # digest of the record

    @property
    def size(self) -> int:
        return self.content + self.length


def told(segments: Iterable[Segment]) -> bytes:
    """A line in words: who has the same ones means the same bytes."""
    return json.dumps([list(segment) for segment in segments]).encode()


class Lying(Protocol):
    """A piece of a line, as it lies on a disk. Both raise `Changed`, `Damaged`, `OSError`."""

    segment: Segment

    def between(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """These bytes, as they lie there now: who asks for them has a checksum of all."""

    def proven(self) -> Iterator[bytes | memoryview]:
        """All bytes, compared with what is known of them."""


class Strip:
    """One part as it lies on a disk. Raises `Changed`, `Damaged`, `OSError`."""

    def __init__(self, root: Root, number: int) -> None:
        self._root, self._number = root, number
        with contextlib.ExitStack() as stack:
            part = Part(root, number, stack)
            self.segment = Segment(root.rank, len(part.content), part.bundle, part.length, digest(part.content))
            self._pieces = [(len(part.content), part.content), *part.lying()]
        self._begins = [0, *accumulate(size for size, _ in self._pieces)]

    def between(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """These bytes, as they lie there now: who asks for them has a checksum of all."""
        at = bisect.bisect_right(self._begins, begin) - 1
        while begin < min(end, self.segment.size):
            (size, what), skipped = self._pieces[at], begin - self._begins[at]
            count = min(end - begin, size - skipped)
            if isinstance(what, bytes):
                yield memoryview(what)[skipped : skipped + count]
            else:
                yield from self._read(what, skipped, count)
            begin, at = begin + count, at + 1

    def _read(self, path: str, begin: int, count: int) -> Iterator[memoryview]:
        room = memoryview(bytearray(min(count, BLOCK)))
        with self._root.disk.open(path) as file:
            file.seek(begin)
            while count:
                look()
                got: int = file.readinto(room[: min(count, BLOCK)])  # type: ignore[attr-defined]
                if not got:
                    raise Changed(f"{self._root.shown(path)} is shorter than it was")
                count -= got
                yield room[:got]

    def proven(self) -> Iterator[bytes | memoryview]:
        """All bytes, compared with the checksums of the record."""
        with contextlib.ExitStack() as stack:
            part = Part(self._root, self._number, stack)
            if digest(part.content) != self.segment.sum:
                raise Changed(f"{part.record.label} was replaced")
            yield part.content
            yield from part.blocks()


class Line:
    """The parts of one node, in the order of their ranks; or a parity. `what`: for people."""

    def __init__(self, strips: Sequence[Lying], what: str = "a file of the set") -> None:
        self._strips, self._what = strips, what
        self.segments = tuple(strip.segment for strip in strips)
        self.told = told(self.segments)
        self._sums: list[bytes] = []
        self._lock = threading.Lock()

    @property
    def length(self) -> int:
        return sum(segment.size for segment in self.segments)

    def prove(self, moves: Callable[[int], object] = lambda count: None) -> None:
        """Compare all of it with the checksums of the records, once, and note what it was like. `moves`: how many bytes
        more; may raise. Raises `Damaged`, `Changed`, `OSError`."""
        with self._lock:
            if not self._sums:
                grains = Grains()
                for block in self._proven(moves):
                    grains.add(block)
                self._sums = grains.sums()

    def _proven(self, moves: Callable[[int], object]) -> Iterator[bytes | memoryview]:
        for strip in self._strips:
            for block in strip.proven():
                moves(len(block))
                yield block

    def vouched(self, begin: int, end: int) -> str:
        """The digest of these bytes as they were when they were proven; both are at a grain, or at the end."""
        return vouched(self._sums[begin // GRAIN : -(-end // GRAIN)] if begin < end else ())

    def between(self, begin: int, end: int) -> Iterator[memoryview]:
        """These bytes, as they were when they were proven; `begin` is at a grain. Each block is what it is until the
        next one. Raises `Changed` for others."""
        room, filled, index = memoryview(bytearray(GRAIN)), 0, begin // GRAIN
        for block in self._between(begin, -(-end // GRAIN) * GRAIN):
            view = memoryview(block)
            while view:
                count = min(len(view), GRAIN - filled)
                room[filled : filled + count] = view[:count]
                filled, view = filled + count, view[count:]
                if filled == GRAIN:
                    yield self._checked(room, index)[: end - index * GRAIN]
                    filled, index = 0, index + 1
        if filled:
            yield self._checked(room[:filled], index)[: end - index * GRAIN]

    def range(self, begin: int, end: int) -> Iterator[memoryview]:
        """As `between`, from anywhere to anywhere."""
        at, end = begin // GRAIN * GRAIN, min(end, self.length)
        for block in self.between(at, end) if begin < end else ():
            yield block[max(begin - at, 0) :]
            at += len(block)

    def _checked(self, grain: memoryview, index: int) -> memoryview:
        if xxhash.xxh3_64_digest(grain) != self._sums[index]:
            raise Changed(f"{self._what} is not as it was")
        return grain

    def _between(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        at = 0
        for strip in self._strips:
            size = strip.segment.size
            if begin < at + size and at < end:
                yield from strip.between(max(begin - at, 0), min(end - at, size))
            at += size


class Grains:
    """The checksums of bytes that come one block after the other."""

    def __init__(self) -> None:
        self._sum, self._left, self._sums, self._size = xxhash.xxh3_64(), GRAIN, list[bytes](), 0

    def add(self, block: bytes | memoryview) -> None:
        view = memoryview(block)
        self._size += len(view)
        while view:
            piece, view = view[: self._left], view[self._left :]
            self._sum.update(piece)
            self._left -= len(piece)
            if not self._left:
                self._sums.append(self._sum.digest())
                self._sum.reset()
                self._left = GRAIN

    def sums(self) -> list[bytes]:
        """Of all that came; the last grain may be shorter."""
        return [*self._sums, *([self._sum.digest()] if self._left < GRAIN or not self._sums else [])]

    def vouched(self) -> str:
        return vouched(self.sums()[: -(-self._size // GRAIN)])


def vouched(sums: Iterable[bytes]) -> str:
    return digest(b"".join(sums))


class Lines:
    """The line of one node, of the set that is in its turn. For threads."""

    def __init__(self, roots: Mapping[int, Root]) -> None:
        self.roots = roots
        self._lock = threading.Lock()
        self._last: tuple[str, Line] | None = None

    def of(self, identity: str) -> Line | None:
        """None: not all ranks of this node have committed that set. Raises `Changed`, `Damaged`, `OSError`."""
        with self._lock:
            if self._last and self._last[0] == identity:
                return self._last[1]
            strips = []
            for _, root in sorted(self.roots.items()):
                record = record_of(root, identity)
                if record is None:
                    return None
                strips.append(Strip(root, record.number))
            self._last = identity, Line(strips)
            return self._last[1]

    def forget(self) -> None:
        """What was found is not as it was."""
        with self._lock:
            self._last = None


def part(root: Root, number: int, sum_: str) -> Line:
    """The one whose record has this digest. Raises `Vanished` for another one, `Changed`, `Damaged`, `OSError`."""
    strip = Strip(root, number)
    if strip.segment.sum != sum_:
        raise Vanished("its record is another one")
    return Line([strip])


class Proven:
    """Parts, and parities, of which others ask one range after the other: each is proven once. For threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, str], _One] = OrderedDict()

    def of(self, which: tuple[str, int, str], make: Callable[[], Line]) -> Line:
        """What `make` gives, proven. Raises what that raises, and `Changed`, `Damaged`, `OSError`."""
        with self._lock:
            one = self._kept.setdefault(which, _One())
            self._kept.move_to_end(which)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        with one.lock:
            if one.line is None:
                line = make()
                line.prove()
                one.line = line
            return one.line

    def forget(self) -> None:
        """Something is not as it was."""
        with self._lock:
            self._kept.clear()


class _One:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.line: Line | None = None
