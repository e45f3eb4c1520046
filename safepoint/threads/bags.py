"""What threads did in CRITICAL, compared as a bag: the same values at the same sites, in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds
from safepoint.threads.canon import Ints, Line, Words
from safepoint.threads.pairing import Order, Place, Spot, Two
from safepoint.threads.values import Judge, alike, event_words, parts


class Bag(NamedTuple):
    """Events, sorted by where and what they are, and then by value. `at`: record of the line."""

    key: Ints
    head: Words
    words: Words
    at: Ints

    def what(self, number: int) -> tuple[int, int]:
        return int(self.key[number]), int(self.head[number])


def differ(a: Line, b: Line, two: Two) -> Spot | None:
    """The first loop visit, or place outside of loops, whose bags differ."""
    x, y = _bag(a, two, None), _bag(b, two, two.renamed)
    count = min(len(x.key), len(y.key))
    apart = (x.key[:count] != y.key[:count]) | (x.head[:count] != y.head[:count])
    apart |= ~_same(two.judge, x.head[:count], x.words[:count], y.words[:count])
    if not apart.any() and len(x.key) == len(y.key):
        return None
    at = int(np.argmax(apart)) if apart.any() else count
    key = min(int(bag.key[at]) for bag in (x, y) if at < len(bag.key))
    ours, theirs = _only(x, y, key), _only(y, x, key)
    places: list[Place | None] = [
        line.where(int(bag.at[number])) if number is not None else None
        for line, bag, number in ((a, x, ours), (b, y, theirs))
    ]
    values = ours is not None and theirs is not None and x.head[ours] == y.head[theirs]
    order: Order = (key, 0, 0, 0, 0, 0)
    return Spot(order, "value" if values else "structure", places[0], places[1], key)


def _bag(line: Line, two: Two, renamed: NDArray[np.uint64] | None) -> Bag:
    """Without what has no order because of others: what is loose, and what is excluded."""
    if not len(line):
        empty = np.zeros(0, np.uint64)
        return Bag(empty.astype(np.int64), empty, event_words(np.zeros((0, 2), np.uint64), np.zeros(0, np.int64)),
                   np.zeros(0, np.int64))  # fmt: skip
    records = line.taken(0, len(line))
    kind = records[:, 0] >> 56
    at = np.flatnonzero((kind == kinds.WRITE) | (kind == kinds.READ))
    head = records[at, 0]
    if renamed is not None:
        site = np.minimum(head & 0xFFFFFFFF, len(renamed) - 1)
        head = (head & 0xFFFFFFFF00000000) | renamed[site]
    site = np.minimum(head & 0xFFFFFFFF, len(two.judge.loose) - 1)
    keep = (two.judge.loose[site] == 0) & ~two.judge.excluded[site]
    at, head = at[keep], head[keep]
    words = event_words(records, at)
    key = line.pieces.key[line.piece(at)]
    number = np.zeros(len(at))
    for type in np.unique(head >> 48 & 0xFF).tolist():
        which = np.flatnonzero(head >> 48 & 0xFF == type)
        found = parts(type, words[which])
        number[which] = 0 if found is None else found[:, 0]
    order = np.lexsort((*words.T[::-1], number, head, key))
    return Bag(key[order], head[order], words[order], at[order])


def _same(judge: Judge, head: Words, a: Words, b: Words) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (a == b).all(axis=1)
    site = np.minimum(head & 0xFFFFFFFF, len(judge.loose) - 1)
    types = head >> 48 & 0xFF
    for type in np.unique(types[~found]).tolist():
        which = np.flatnonzero(~found & (types == type))
        found[which] = alike(type, a[which], b[which], judge.rtol[site[which]], judge.atol[site[which]])
    return found


def _only(bag: Bag, other: Bag, key: int) -> int | None:
    """The first event that the other bag has less often, in the order of the line."""
    low, high = (int(np.searchsorted(bag.key, key, side)) for side in ("left", "right"))
    begin, end = (int(np.searchsorted(other.key, key, side)) for side in ("left", "right"))
    rest = Counter((int(other.head[n]), *other.words[n].tolist()) for n in range(begin, end))
    alone = []
    for number in range(low, high):
        row = (int(bag.head[number]), *bag.words[number].tolist())
        rest[row] -= 1
        if rest[row] < 0:
            alone.append(number)
    return min(alone, key=lambda number: int(bag.at[number])) if alone else None
