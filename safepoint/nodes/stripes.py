"""How parity of a set is laid over a group of nodes: RAID 5 by nodes.

Each node of a group of g has a line of bytes (`line`), cut into g - 1 chunks. Of node i chunk k goes into the parity
that node i + 1 + k has: the exclusive or of one chunk of each other node. So what one node had can be made again from
the lines and the parity of the others (`rebuilt`), and each node keeps 1/(g - 1) of the longest line. Patterson, Gibson
and Katz, "A case for redundant arrays of inexpensive disks" (1988), level 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from safepoint.nodes.line import GRAIN, Segment
from safepoint.record import key
from safepoint.sealed import Unsealed, checked, rows_of
from safepoint.tiers.names import UNKNOWN
from safepoint.tiers.part import BLOCK, Stream
from safepoint.tiers.place import Unreachable

NAMED = re.compile(r"parity-(([0-9]{5,8})-([0-9]{8,12})-[0-9a-f]{16})-([0-9]{5,8})")


class Layout(NamedTuple):
    """What the parity of one node is made of. `at`: its place in the group; `life`: in which it was made; `chunk`:
    bytes, a multiple of a grain; `lines`: what each node had; `sum`: checksum of the parity."""

    identity: str
    life: int
    at: int
    chunk: int
    lines: tuple[tuple[Segment, ...], ...]
    sum: str = ""

    @property
    def key(self) -> int:
        life, number = self.identity.split("-")[:2]
        return key(int(life), int(number))

    @property
    def name(self) -> str:
        return f"parity-{self.identity}-{self.life:05d}"

    def length(self, node: int) -> int:
        """Of its line."""
        return sum(segment.size for segment in self.lines[node])

    def stripe(self, node: int, holder: int) -> tuple[int, int]:
        """From where to where in the line of a node the chunk is that another one has in its parity."""
        length = self.length(node)
        begin = min((holder - node - 1) % len(self.lines) * self.chunk, length)
        return begin, min(begin + self.chunk, length)

    @property
    def size(self) -> int:
        """Of the parity."""
        stripes = [self.stripe(node, self.at) for node in range(len(self.lines)) if node != self.at]
        return max((end - begin for begin, end in stripes), default=0)


class Brief(NamedTuple):
    """Of a layout what a restart tells all ranks: a rank that needs it asks for the rest."""

    identity: str
    life: int
    at: int
    ranks: tuple[tuple[int, ...], ...]  # of each node of the group

    @property
    def name(self) -> str:
        return f"parity-{self.identity}-{self.life:05d}"

    @property
    def known(self) -> tuple[int, str]:
        """The key of the set, and its history."""
        life, number, history = self.identity.split("-")
        return key(int(life), int(number)), "" if history == UNKNOWN else history


class _Content(NamedTuple):
    identity: str
    life: int
    at: int
    chunk: int
    lines: tuple[Any, ...]
    sum: str


def layout_of(content: dict[str, Any]) -> Layout:
    """Raises `Unsealed` for one that nobody of ours has written."""
    it: _Content = checked(_Content, content)
    lines = tuple(tuple(rows_of(Segment, list(Segment._fields), line)) for line in it.lines)
    layout = Layout(it.identity, it.life, it.at, it.chunk, lines, it.sum)
    if why := _wrong(layout):
        raise Unsealed(why)
    return layout


def refuse_impossible(layout: Layout) -> None:
    """Raise `Unreachable` for lines that other nodes cannot have."""
    if why := _wrong(layout):
        raise Unreachable(f"the nodes of the group say of their lines what cannot be: {why}")


def _wrong(it: Layout) -> str:
    every = [segment for line in it.lines for segment in line]
    small = min((min(each.content, each.bundle, each.length, each.rank) for each in every), default=0)
    if small < 0 or not 0 <= it.at < len(it.lines) or it.chunk <= 0 or len(it.lines) < 2:
        return "its numbers cannot be"
    if len({segment.rank for segment in every}) < len(every):
        return "a rank is there twice"
    if not NAMED.fullmatch(it.name):
        return "it has no name"
    if max(map(it.length, range(len(it.lines)))) > it.chunk * (len(it.lines) - 1):
        return "its chunks are too short"
    return ""


def laid_out(identity: str, life: int, at: int, lines: Sequence[Sequence[Segment]]) -> Layout:
    longest = max(sum(segment.size for segment in line) for line in lines)
    share = -(-longest // (len(lines) - 1))
    return Layout(identity, life, at, max(-(-share // GRAIN) * GRAIN, GRAIN), tuple(map(tuple, lines)))


def arrays() -> Any:
    """numpy. Raises `Unreachable` if there is none: a directory may have parity though the setting is another now."""
    try:
        import numpy
    except ImportError as error:
        raise Unreachable(f"parity needs the package numpy, which cannot be imported here ({error})") from error
    return numpy


def xored(sources: Sequence[tuple[Stream, int]], size: int) -> Iterator[memoryview]:
    """The exclusive or of these, each of so many bytes, and then of none; each block is what it is until the next. All
    are read to their end, where they raise if they are not what was sent. Raises `Unreachable` for one of another
    length."""
    numpy = arrays()
    room = numpy.zeros(BLOCK, dtype=numpy.uint8)
    for at in range(0, size, BLOCK):
        block = room[: min(BLOCK, size - at)]
        block[:] = 0
        for stream, length in sources:
            done, count = 0, min(len(block), length - at)
            while done < count:
                data = numpy.frombuffer(stream.read(count - done), dtype=numpy.uint8)
                if not len(data):
                    raise Unreachable("a line ends before its end")
                block[done : done + len(data)] ^= data
                done += len(data)
        yield memoryview(block)
    if any(len(stream.read(1)) for stream, _ in sources):
        raise Unreachable("a line goes on after its end")
