"""Two lines of pieces side by side: the first record, in canonical order, at which they differ.

(1) First the pieces are matched by key: up to the first that only one side has, or that has another length, records of
    both lines with the same number belong together. Up to there they are compared, a chunk at a time.
(2) Where a side was cut, or recorded other edges of its loops, what it lacks is left out of the other one first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds
from safepoint.threads.canon import ALIKE, CHUNK, ITER, Ints, Line, Pieces, Words, after, kinds_of
from safepoint.threads.values import Judge, State

_TAIL = 16  # records of an event behind its first, and more
_BEFORE = 64  # records to look back for ATOMIC
Order = tuple[int, int, int, int, int, int]
Place = tuple[int, int]  # file, record


class Spot(NamedTuple):
    """Where two runs differ. `order`: comes earlier, counts more. `equal` of `of` iterations of this loop are equal."""

    order: Order
    what: str  # structure or value
    a: Place | None
    b: Place | None
    key: int
    equal: int = 0
    of: int = 0
    last: tuple[Place, Place] | None = None  # the last value before it that was tolerated
    deviates: tuple[int, int] | None = None  # threads of A and B of which what all do alike was compared
    outer: tuple[Any, ...] = ()  # spots of the regions around it: the outermost first


class Inner(NamedTuple):
    """A nested region that both have."""

    order: Order
    a: int  # visits
    b: int
    spot: Spot  # where it is


class Groups(NamedTuple):
    """Pieces with the same key together: such as an iteration that CRITICAL cuts in two."""

    key: Ints
    numbers: Ints
    first: Ints  # piece
    begin: Ints  # record of the line; and the end of the line
    length: Ints


class Lack(NamedTuple):
    """What may be missing, and is no difference: by a cut of A or B, or as each has recorded its own edges."""

    a: bool = False
    b: bool = False
    edges: bool = False


class Two(NamedTuple):
    """What lines of both are judged by. `ends`: records of each file; `inside`: files that end in a region;
    `renamed`: for site numbers of B those of A."""

    judge: Judge
    ends: tuple[list[int], list[int]]
    inside: tuple[set[int], set[int]]
    lack: Lack
    renamed: NDArray[np.uint64] | None
    nested: bool


def grouped(pieces: Pieces) -> Groups:
    count = len(pieces.key)
    change = np.zeros(max(count - 1, 0), bool)
    for column in (pieces.key, *pieces.numbers):
        change |= column[1:] != column[:-1]
    first = np.append(0, np.flatnonzero(change) + 1) if count else np.zeros(0, np.int64)
    length = np.add.reduceat(pieces.length, first) if count else first
    begin = np.append(0, np.cumsum(length))
    return Groups(pieces.key[first], pieces.numbers[:, first], first, begin, length)


class Pair:
    """Two lines, and what was found in them."""

    def __init__(self, a: Line, b: Line, two: Two, deviates: tuple[int, int] | None = None) -> None:
        self.two, self.deviates = two, deviates
        rows = max(len(line.pieces.numbers) for line in (a, b))
        a, b = (Line(line.pieces.padded(rows), line.files) for line in (a, b))
        if any(two.lack):
            a, b = _lacking(a, b, two)
        self.a, self.b = a, b
        self.of_a, self.of_b = grouped(a.pieces), grouped(b.pieces)
        self.inner: list[Inner] = []
        self.last: tuple[int, int] | None = None  # record of the line that was tolerated last
        self.outside = (a.pieces.place() == 0) if len(a.pieces.key) else np.zeros(0, bool)

    def first(self) -> Spot | None:
        """Where they differ first."""
        x, y = self.of_a, self.of_b
        count = min(len(x.key), len(y.key))
        apart = (x.key[:count] != y.key[:count]) | (x.length[:count] != y.length[:count])
        apart |= (x.numbers[:, :count] != y.numbers[:, :count]).any(axis=0)
        group = int(np.argmax(apart)) if apart.any() else count
        if (found := self._scan(0, int(x.begin[group]))) or group == len(x.key) == len(y.key):
            return found
        return self._unlike(group)

    def _scan(self, first: int, end: int) -> Spot | None:
        for begin in range(first, end, CHUNK):
            size = min(CHUNK, end - begin)
            upto = min(begin + size + _TAIL, end)
            a, b = self.a.taken(begin, upto), self._renamed(self.b.taken(begin, upto))
            at, what = size, ""
            if not np.array_equal(a, b):
                at, what = self._judged(a, b, begin, size)
            if self.two.nested:
                self._note_inner(a[:at], b[:at], begin)
            if what:
                return self._spot(begin + at, what)
        return None

    def _judged(self, a: Words, b: Words, begin: int, size: int) -> tuple[int, str]:
        def sequential(records: Ints) -> NDArray[np.bool_]:
            found: NDArray[np.bool_] = self.outside[self.a.piece(records + begin)]
            return found

        before = self.a.taken(max(0, begin - _BEFORE), begin) if begin else a[:0]
        at, what, last = self.two.judge.first(a, b, size, State(before, a, sequential))
        if last >= 0:
            self.last = begin + last, begin + last
        return (at, what) if what else (size, "")

    def _renamed(self, records: Words) -> Words:
        if self.two.renamed is None:
            return records
        site = np.minimum(records[:, 0] & 0xFFFFFFFF, len(self.two.renamed) - 1)
        first = (records[:, 0] & 0xFFFFFFFF00000000) | self.two.renamed[site]
        return np.stack([first, records[:, 1]], axis=1)

    def _note_inner(self, a: Words, b: Words, begin: int) -> None:
        inner = (kinds_of(a) == kinds.REGION) & (a[:, 1] >= kinds.NESTED) & (kinds_of(b) == kinds.REGION)
        for at in np.flatnonzero(inner).tolist():
            spot = self._spot(begin + at, "nested")
            self.inner.append(Inner(spot.order, int(a[at, 1]), int(b[at, 1]), spot))

    def _spot(self, record: int, what: str) -> Spot:
        """Of a record that is in both lines."""
        return self._made(record, what, self.a.where(record), self.b.where(record), self.a, self.of_a)

    def _unlike(self, group: int) -> Spot:
        """Of the first group that only one side has, or that has another length."""
        x, y = self.of_a, self.of_b
        keys = [
            (int(of.key[group]), *of.numbers[:, group].tolist()) if group < len(of.key) else (1 << 63,) for of in (x, y)
        ]
        begin = int(x.begin[group])
        if keys[0] == keys[1]:
            return self._longer(group, begin)
        a_alone = keys[0] < keys[1]
        line, of = (self.a, x) if a_alone else (self.b, y)
        other, rest = (self.b, y) if a_alone else (self.a, x)
        kind = keys[0 if a_alone else 1][0] & 3
        there = other.where(begin) if kind != ITER and group < len(rest.key) else None
        mine = line.where(begin)
        a, b = (mine, there) if a_alone else (there, mine)
        return self._made(begin, "structure", a, b, line, of)

    def _longer(self, group: int, begin: int) -> Spot:
        """Of a group of which one side has more records: first what both have."""
        sizes = int(self.of_a.length[group]), int(self.of_b.length[group])
        end = begin + min(sizes)
        if found := self._scan(begin, end):
            return found
        places: list[Place | None] = []
        for line, size, ends in zip((self.a, self.b), sizes, self.two.ends, strict=True):
            if size > min(sizes):
                places.append(line.where(end))
            else:
                file, record = line.where(end - 1)
                places.append((file, record + 1) if record + 1 < ends[file] else None)
        longer = (self.a, self.of_a) if sizes[0] > sizes[1] else (self.b, self.of_b)
        return self._made(end, "structure", places[0], places[1], *longer)

    def _made(self, record: int, what: str, a: Place | None, b: Place | None, line: Line, of: Groups) -> Spot:
        group = int(np.searchsorted(of.begin, record, "right")) - 1
        key, numbers = int(of.key[group]), of.numbers[:, group].tolist()
        order = key
        if key & 3 == ALIKE and line.pieces.place()[of.first[group]] > 0:
            order = after(key, record - int(of.begin[group]))
        low, high = (int(np.searchsorted(of.key, key, side)) for side in ("left", "right"))
        equal, count = (group - low, high - low) if key & 3 == ITER else (0, 0)
        last = (self.a.where(self.last[0]), self.b.where(self.last[1])) if self.last else None
        tie = 1 + self.deviates[0] + self.deviates[1] if self.deviates else 0
        numbers = [*numbers, 0, 0][:3]
        offset = record - int(of.begin[group])  # in an iteration: a nested region, and what comes before or after it
        return Spot(
            (order, numbers[0], numbers[1], numbers[2], tie, offset), what, a, b, key, equal, count, last, self.deviates
        )


def _lacking(a: Line, b: Line, two: Two) -> tuple[Line, Line]:
    """Both lines without what the other one lacks, as far as it may."""
    x, y = grouped(a.pieces), grouped(b.pieces)
    columns = [np.concatenate([m, n]) for m, n in zip((x.key, *x.numbers), (y.key, *y.numbers), strict=True)]
    side = np.repeat([0, 1], [len(x.key), len(y.key)])
    order = np.lexsort((side, *columns[::-1]))
    twin = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        twin &= column[order][1:] == column[order][:-1]
    twin &= side[order][1:] != side[order][:-1]
    left = np.flatnonzero(twin)
    both = np.zeros(len(order), bool)
    both[order[left]] = both[order[left + 1]] = True
    pairs = order[left], order[left + 1] - len(x.key)
    lines = []
    for line, of, mine, lacks in ((a, x, both[: len(x.key)], two.lack.b), (b, y, both[len(x.key) :], two.lack.a)):
        keep = mine | (~np.bool_(lacks) & ~(np.bool_(two.lack.edges) & (of.key & 3 == ITER)))
        lines.append((line, of, keep))
    short = np.minimum(x.length[pairs[0]], y.length[pairs[1]])
    cut = [_open(line, of, two.ends[n], two.inside[n]) & two.lack[n] for n, (line, of, _) in enumerate(lines)]
    unlike = np.flatnonzero(x.length[pairs[0]] != y.length[pairs[1]])
    trims: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for at in unlike.tolist():
        i, j = int(pairs[0][at]), int(pairs[1][at])
        if x.length[i] > y.length[j] and cut[1][j]:
            trims[0][i] = int(short[at])
        elif y.length[j] > x.length[i] and cut[0][i]:
            trims[1][j] = int(short[at])
    return tuple(  # type: ignore[return-value]
        Line(_trimmed(line.pieces, of, keep, trim), line.files)
        for (line, of, keep), trim in zip(lines, trims, strict=True)
    )


def _open(line: Line, of: Groups, ends: list[int], inside: set[int]) -> NDArray[np.bool_]:
    """Whether the trace of a thread may have ended before the end of a group."""
    if not len(of.key):
        return np.zeros(0, bool)
    last = np.append(of.first[1:], len(line.pieces.key)) - 1
    file, first = line.pieces.file, line.pieces.first
    newest = np.zeros(len(ends), np.int64)
    np.maximum.at(newest, file, first)
    known = np.isin(file[last], list(inside)) & (first[last] == newest[file[last]])
    found: NDArray[np.bool_] = known | ((first + line.pieces.length)[last] == np.array(ends)[file[last]])
    return found


def _trimmed(pieces: Pieces, of: Groups, keep: NDArray[np.bool_], trim: dict[int, int]) -> Pieces:
    counts = np.diff(np.append(of.first, len(pieces.key)))
    length = pieces.length.copy()
    for group, size in trim.items():
        part = slice(int(of.first[group]), int(of.first[group] + counts[group]))
        begin = np.append(0, np.cumsum(length[part]))[:-1]
        length[part] = np.clip(size - begin, 0, length[part])
    kept = np.repeat(keep, counts) & (length > 0)
    return pieces._replace(length=length).chosen(kept)
