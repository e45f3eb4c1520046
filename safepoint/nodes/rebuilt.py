"""A part that is nowhere any more, made again from what the other nodes of its group have: see `parity`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from safepoint.errors import FormatError
from safepoint.nodes.asking import Which, ask_layout, ask_range
from safepoint.nodes.line import Segment
from safepoint.nodes.nearby import patiently
from safepoint.nodes.stripes import Brief, Layout, arrays, layout_of
from safepoint.nodes.transfer import Peer, digest
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.sealed import Unsealed, unseal
from safepoint.tiers.fetching import bring
from safepoint.tiers.part import parsed
from safepoint.tiers.place import Unreachable, Vanished

WINDOW = 4 << 20  # bytes that are made at once: many ranks of one node may do that


class Lying(NamedTuple):
    """A part, or a parity, on a node."""

    peer: Peer
    which: Which


class Rebuilt:
    """The part of one rank, which ran on the node `lost` of its group. Raises `Damaged`, `Unreachable`, `Vanished`."""

    name, near = "the parity on other nodes", True

    def __init__(
        self, brief: Brief, lost: int, rank: int, parities: Mapping[int, Lying], parts: Mapping[int, list[Lying]]
    ) -> None:
        """`parities`: of the other nodes. `parts`: of the ranks that ran there, each wherever it is now."""
        self.known = brief.known
        self._brief, self._lost, self._rank = brief, lost, rank
        self._parities, self._parts = parities, parts
        self._layout: Layout | None = None

    def record(self) -> Record:
        return parsed(self._content(self._known()))

    def bring(self, root: Root) -> None:
        """Below `fetched/`, durably. Raises also `OSError`."""
        layout = self._known()
        content, segment = self._content(layout), self._segment(layout)[0]
        stream = self._made(layout, segment.content, segment.size)
        bring(root, parsed(content), segment.bundle, content, stream)

    def _known(self) -> Layout:
        if self._layout is None:
            arrays()
            every = [*self._parities.values()]
            peer = every[self._rank % len(every)].peer  # not all ranks of a lost node ask the same one
            try:
                layout = layout_of(unseal(patiently(lambda: ask_layout(peer, self._brief.name))))
            except (Unsealed, FormatError) as error:
                raise Damaged(f"the layout of its parity: {error}") from error
            if tuple(tuple(segment.rank for segment in line) for line in layout.lines) != self._brief.ranks:
                raise Damaged("its parity is of other ranks")
            self._layout = layout
        return self._layout

    def _segment(self, layout: Layout) -> tuple[Segment, int]:
        """What was lost, and where in its line it began."""
        at = 0
        for segment in layout.lines[self._lost]:
            if segment.rank == self._rank:
                return segment, at
            at += segment.size
        raise AssertionError

    def _content(self, layout: Layout) -> bytes:
        segment, _ = self._segment(layout)
        content = b"".join(self._made(layout, 0, segment.content))
        if digest(content) != segment.sum:
            raise Damaged("what the other nodes have does not fit together")
        return content

    def _made(self, layout: Layout, begin: int, end: int) -> Iterator[bytes]:
        _, before = self._segment(layout)
        at, end = before + begin, before + end
        while at < end:
            count = min(end - at, WINDOW, layout.chunk - at % layout.chunk)
            yield self._window(layout, at // layout.chunk, at % layout.chunk, count)
            at += count

    def _window(self, layout: Layout, index: int, begin: int, count: int) -> bytes:
        """Of one chunk. One source is asked after the other: of many ranks that do this none waits for what another
        one holds."""
        numpy = arrays()
        holder = (self._lost + 1 + index) % len(layout.lines)
        made = numpy.zeros(count, dtype=numpy.uint8)
        _add(made, _range([self._parities[holder]], "", begin, begin + count))
        for node in self._parities:
            if node != holder:
                first, last = layout.stripe(node, holder)
                _add(made, self._of_line(layout.lines[node], first + begin, min(first + begin + count, last)))
        return bytes(made.data)

    def _of_line(self, line: Iterable[Segment], begin: int, end: int) -> bytearray:
        found, at = bytearray(), 0
        for segment in line:
            if begin < at + segment.size and at < end:
                where = self._parts[segment.rank]
                found += _range(where, segment.sum, max(begin - at, 0), min(end - at, segment.size))
            at += segment.size
        return found


def _range(where: list[Lying], sum_: str, begin: int, end: int) -> bytearray:
    """From the first of these that has it whole; one that has not is asked no more. Raises what the last one said."""
    while True:
        lying = where[0]
        try:
            return patiently(lambda lying=lying: ask_range(lying.peer, lying.which, sum_, begin, end))  # type: ignore[misc]
        except (Vanished, Unreachable):
            if len(where) == 1:
                raise
            del where[0]


def _add(made: Any, data: bytearray) -> None:
    numpy = arrays()
    made[: len(data)] ^= numpy.frombuffer(data, dtype=numpy.uint8)


def rebuildable(
    rank: int, briefs: Mapping[int, Iterable[Brief]], parts: Mapping[int, Iterable[Which]], peers: Sequence[Peer]
) -> list[Rebuilt]:
    """What can be made again of this rank, if all is as it seems. `briefs`, `parts`: what each node has now."""
    holders: dict[Brief, dict[int, int]] = {}
    for node, found in briefs.items():
        for brief in found:
            holders.setdefault(brief._replace(at=0), {})[brief.at] = node
    where: dict[tuple[int, tuple[int, str]], list[Lying]] = {}
    for node, rows in parts.items():
        for which in rows:
            where.setdefault((which.rank, which.known), []).append(Lying(peers[node], which))
    made = []
    for brief, nodes in holders.items():
        lost = next((at for at, ranks in enumerate(brief.ranks) if rank in ranks), None)
        others = [at for at in range(len(brief.ranks)) if at != lost]
        ranks = [each for at in others for each in brief.ranks[at]]
        if lost is None or not {*others} <= {*nodes} or any((each, brief.known) not in where for each in ranks):
            continue
        which = Which(rank, 0, "parity", brief.name)
        parities = {at: Lying(peers[nodes[at]], which) for at in others}
        made.append(Rebuilt(brief, lost, rank, parities, {each: [*where[each, brief.known]] for each in ranks}))
    return made
