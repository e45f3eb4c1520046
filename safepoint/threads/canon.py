"""Bring what threads recorded into the order of a serial program, so that two runs can be compared as vectors.

The records of a thread in a region are cut into *pieces*, each with a key. Sorted by key they are the canonical order.

(1) What each thread does *alike*, outside of worksharing, is numbered; the number of the next one is the *place* of a
    piece. All threads pass the same places, so a loop visit is known by its place, whoever runs its iterations.
(2) At a place come SINGLE and MASTER, then iterations by number, then what was done in CRITICAL (a bag: its order is
    chance), then the record that has this number. Of what is alike, that of thread 0 of the team stands for all; the
    others are compared with it one by one.
(3) A nested region stays in the piece that has its REGION; the inside of it is left out here: a region by itself.
(4) PRIVATE_UNSET is left out: a serial run meets it once, and each thread of a team once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds

Ints = NDArray[np.signedinteger[Any]]
Words = NDArray[np.uint64]

CHUNK = 1 << 18  # records that are looked at together
SINGLE, ITER, BAG, ALIKE = 0, 1, 2, 3  # classes of pieces, in the order in which they come at one place
PLACE_BITS, CLASS_BITS = 36, 2
_SHIFT = PLACE_BITS + CLASS_BITS
_OPEN, _RESUME = 0, 200  # not kinds of records: a block begins; what follows a record that was left out
_LONG_PIECE = 48  # records from which on copying piece by piece is quicker than one by one


def _set(*of: int) -> NDArray[np.bool_]:
    found = np.zeros(256, bool)
    found[list(of)] = True
    return found


_MARKS = _set(*range(1, 8), *range(13, 19), kinds.SECTIONS, kinds.SECTIONS_END, kinds.PRIVATE_UNSET)
_AFTER = _set(kinds.SINGLE_END, kinds.MASTER_END, kinds.CRITICAL, kinds.ENTER).astype(np.int64)  # end with the record
_TURNS = _set(_OPEN, kinds.LOOP, kinds.LOOP_END, kinds.ITER, kinds.SECTIONS, kinds.SECTIONS_END)
_LOOPS = _set(kinds.LOOP, kinds.SECTIONS)


class Blocks(NamedTuple):
    """What threads recorded between ENTER and LEAVE. `visit`: the how manieth visit of those that are compared."""

    file: Ints
    team: Ints
    first: Ints
    end: Ints
    visit: Ints


class Pieces(NamedTuple):
    """`key`: visit, place, class; `numbers`: of an iteration, 0 for the first of the loop; of a SINGLE its site."""

    key: Ints
    numbers: Ints  # a row for each loop variable: one, or three if some loop has more
    team: Ints
    file: Ints
    first: Ints
    length: Ints

    def chosen(self, which: NDArray[Any]) -> Pieces:
        if which.dtype == bool:
            which = np.flatnonzero(which)
            if len(which) == len(self.key):
                return self
        return Pieces(*(column.take(which, axis=-1) for column in self))

    def sorted(self) -> Pieces:
        """In canonical order. What has the same key, of the same thread, keeps its own."""
        columns = [self.key, *(row for row in self.numbers if row.any())]
        if _ascending(columns):
            return self
        return self.chosen(np.lexsort(columns[::-1]))

    def padded(self, rows: int) -> Pieces:
        """With so many rows of numbers."""
        missing = rows - len(self.numbers)
        return self._replace(numbers=np.pad(self.numbers, ((0, missing), (0, 0)))) if missing > 0 else self

    def visit(self) -> Ints:
        return self.key >> _SHIFT

    def kind(self) -> Ints:
        """The class of each."""
        return self.key & ((1 << CLASS_BITS) - 1)

    def place(self) -> Ints:
        """0: outside of regions; else 1 more than its number among what all threads do alike."""
        return (self.key >> CLASS_BITS) & ((1 << PLACE_BITS) - 1)


class Canon(NamedTuple):
    """The pieces of some region visits: in serial order; what threads do alike, unsorted; what they did in CRITICAL, of
    which `numbers` is 1 if it is no part of an iteration."""

    spine: Pieces
    alike: Pieces
    bags: Pieces
    sizes: Ints  # of the team of each visit


def canon(files: Sequence[NDArray[Any]], blocks: Blocks, between: Sequence[tuple[int, int]], visits: int) -> Canon:
    """The pieces of `blocks`. `between`: the records of the first thread before, between and after its blocks."""
    tables = [_outside(between)]
    for number, records in enumerate(files):
        mine = np.flatnonzero(blocks.file == number)
        if len(mine):
            mine = mine[np.argsort(blocks.first[mine])]
            tables.append(_of_file(number, records, Blocks(*(column[mine] for column in blocks))))
    pieces = _joined(tables)
    kind = pieces.kind()
    sizes = np.zeros(visits, np.int64)
    np.maximum.at(sizes, blocks.visit, blocks.team + 1)
    spine = pieces.chosen((kind != BAG) & ((kind != ALIKE) | (pieces.team == 0))).sorted()
    alike = pieces.chosen((kind == ALIKE) & (pieces.place() > 0))
    return Canon(spine, alike, pieces.chosen(kind == BAG).sorted(), sizes)


def key(visit: Any, place: Any, kind: Any) -> Any:
    return (visit << _SHIFT) | (place << CLASS_BITS) | kind


def after(key: int, records: int) -> int:
    """The key of the record that comes so many later in a piece of what is alike."""
    return key + (records << CLASS_BITS)


def _outside(between: Sequence[tuple[int, int]]) -> Pieces:
    first = np.array([begin for begin, _ in between], np.int64)
    end = np.array([end for _, end in between], np.int64)
    zeros = np.zeros(len(first), np.int32)
    keys = key(np.arange(len(first), dtype=np.int64), 0, ALIKE)
    whole = Pieces(keys, np.zeros((1, len(first)), np.int64), zeros, zeros, first, end - first)
    return whole.chosen(whole.length > 0)


def cut_alike(a: Canon, b: Canon) -> tuple[Canon, Canon]:
    """What thread 0 does alike, cut wherever a SINGLE stands in either run, whichever thread has run it."""
    keys = [canon.spine.key[canon.spine.kind() == SINGLE] >> CLASS_BITS for canon in (a, b)]
    at = np.union1d(keys[0], keys[1])
    if not len(at):
        return a, b
    return a._replace(spine=_cut(a.spine, at).sorted()), b._replace(spine=_cut(b.spine, at).sorted())


def _cut(pieces: Pieces, at: Ints) -> Pieces:
    """What is alike, cut at these visits and places."""
    mine = (pieces.kind() == ALIKE) & (pieces.place() > 0)
    if not mine.any():
        return pieces
    whole = pieces.chosen(mine)
    whole = whole.chosen(np.argsort(whole.key))
    begin = whole.key >> CLASS_BITS  # visit and place together
    end = begin + whole.length
    piece = np.searchsorted(begin, at, "right") - 1
    at = at[(piece >= 0) & (begin[piece] < at) & (at < end[piece])]
    begins = np.sort(np.concatenate([begin, at]))
    piece = np.searchsorted(begin, begins, "right") - 1
    stop = np.minimum(end[piece], np.append(begins[1:], end.max(initial=0)))
    found = whole.chosen(piece)._replace(
        key=(begins << CLASS_BITS) | ALIKE, first=whole.first[piece] + begins - begin[piece], length=stop - begins
    )
    return _joined([pieces.chosen(~mine), found])


def _joined(tables: list[Pieces]) -> Pieces:
    rows = max(len(table.numbers) for table in tables)
    tables = [table.padded(rows) for table in tables]
    return Pieces(*(np.concatenate(column, axis=-1) for column in zip(*tables, strict=True)))


def _ascending(columns: list[Ints]) -> bool:
    equal = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        step = np.diff(column)
        if (equal & (step < 0)).any():
            return False
        equal &= step == 0
    return True


def marks(kind: NDArray[np.uint8], first: int, end: int, of: NDArray[np.bool_] = _MARKS) -> Ints:
    """Where kinds of this set are."""
    parts = [np.flatnonzero(of[kind[at : min(at + CHUNK, end)]]) + at for at in range(first, end, CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _of_file(number: int, records: NDArray[Any], blocks: Blocks) -> Pieces:
    """The pieces of one thread, in its own order."""
    at, kind, block = _cuts(records, blocks)
    where = at + _AFTER[kind]
    opens = np.flatnonzero(kind == _OPEN)  # the row of each block's begin
    stop = np.append(where[1:], 0)
    stop[np.append(opens[1:] - 1, len(kind) - 1)] = blocks.end
    length = stop - where
    row = np.arange(len(kind))
    last = np.maximum.accumulate(np.where(_TURNS[kind], row, 0))
    in_loop = kind[last] == kinds.ITER
    alone = _inside(kind, block, opens, kinds.SINGLE) | _inside(kind, block, opens, kinds.MASTER)
    bag = _inside(kind, block, opens, kinds.CRITICAL) & (in_loop | ~alone)
    out = (kind == kinds.ENTER) | (kind == kinds.PRIVATE_UNSET)
    what = np.where(in_loop, ITER, np.where(alone, SINGLE, ALIKE))
    counted = np.cumsum(np.where((what == ALIKE) & ~bag & ~out, length, 0))
    before = np.append(0, counted[:-1])
    place = before - before[opens][block] + 1
    keys = key(blocks.visit[block], place, np.where(bag, BAG, what))
    rows = np.flatnonzero(in_loop & ~out & ~bag & (length > 0))
    numbers = _numbered(records, at, kind, last, rows)
    numbers[0] |= bag & ~in_loop
    singles = np.flatnonzero(alone & ~in_loop & ~bag)
    if len(singles):
        starts = np.maximum.accumulate(np.where((kind == kinds.SINGLE) | (kind == kinds.MASTER), row, 0))
        numbers[0, singles] = records["site"][at[starts[singles]]]
    files = np.full(len(kind), number, np.int32)
    found = Pieces(keys, numbers, blocks.team[block].astype(np.int32), files, where, length)
    return found.chosen(~out & (length > 0))


def _cuts(records: NDArray[Any], blocks: Blocks) -> tuple[Ints, NDArray[np.uint8], Ints]:
    """Where pieces may begin: at which record, of which kind, in which block. The begin of each block is one."""
    kind_of = records["kind"]
    at = marks(kind_of, int(blocks.first[0]), int(blocks.end.max()))
    block = np.searchsorted(blocks.first, at, "right") - 1
    keep = (block >= 0) & (at < blocks.end[block])
    at, block = at[keep], block[keep]
    kind = kind_of[at]
    count = np.arange(len(blocks.first))
    if len(at) and (_set(kinds.ENTER, kinds.LEAVE)[kind]).any():
        step = (kind == kinds.ENTER).astype(np.int64) - (kind == kinds.LEAVE)
        depth = np.cumsum(step) - step  # before it; from here on, within its block
        depth -= depth[np.minimum(np.searchsorted(block, count), len(at) - 1)][block]
        keep = (depth == 0) | (depth + step == 0)
        at, kind, block = at[keep], kind[keep], block[keep]
    unset = np.flatnonzero(kind == kinds.PRIVATE_UNSET)
    if len(unset):
        at, block = np.insert(at, unset + 1, at[unset] + 1), np.insert(block, unset + 1, block[unset])
        kind = np.insert(kind, unset + 1, _RESUME)
    begins = np.searchsorted(block, count)
    return np.insert(at, begins, blocks.first), np.insert(kind, begins, _OPEN), np.insert(block, begins, count)


def _inside(kind: NDArray[np.uint8], block: Ints, opens: Ints, of: int) -> NDArray[np.bool_]:
    """Which cuts are between a record of this kind and its end, which has the next number."""
    begin: NDArray[np.bool_] = kind == of
    if not begin.any():
        return begin
    level = np.cumsum(begin.astype(np.int64) - (kind == of + 1))
    found: NDArray[np.bool_] = level - level[opens][block] > 0
    return found


def _numbered(records: NDArray[Any], at: Ints, kind: NDArray[np.uint8], last: Ints, rows: Ints) -> Ints:
    """The number of the iteration to which each of these rows belongs, in the order in which a serial loop has them."""
    value, extra = records["value"].view(np.int64), records["extra"]
    item = at[last[rows]]
    most = int(max(1, extra[item].max(initial=1)))
    numbers = np.zeros((1 if most == 1 else 3, len(kind)), np.int64)
    if not len(rows):
        return numbers
    loops = np.flatnonzero(_LOOPS[kind])
    which = np.searchsorted(loops, rows, "right") - 1  # of the loops; -1: none before it, by hand
    begin = at[loops] if len(loops) else np.zeros(1, np.int64)
    sections = kind[loops] == kinds.SECTIONS if len(loops) else np.ones(1, bool)
    for variable in range(min(most, 3)):
        has = np.flatnonzero(extra[item] > variable) if variable else slice(None)
        to = np.minimum(begin + 3 * variable, len(value) - 1)
        plain = sections | (variable >= np.maximum(extra[begin], 1))
        lower = np.where(plain, 0, value[to])
        step = np.where(plain, 1, value[np.minimum(to + 2, len(value) - 1)])
        step = np.where(step == 0, 1, step)
        distance = value[item[has] + variable] - lower[which[has]]
        if (step != 1).any():
            distance //= step[which[has]]
        numbers[variable, rows[has]] = distance
    return numbers


class Line:
    """Pieces as one line of records, of which any part can be taken."""

    def __init__(self, pieces: Pieces, files: Sequence[NDArray[np.complex128]]) -> None:
        self.pieces, self.files = pieces, files
        self.begin = np.append(0, np.cumsum(pieces.length))

    def __len__(self) -> int:
        return int(self.begin[-1])

    def piece(self, record: Any) -> Any:
        """In which piece a record of the line is."""
        return np.searchsorted(self.begin, record, "right") - 1

    def where(self, record: int) -> tuple[int, int]:
        """File, and record in it."""
        piece = int(self.piece(record))
        return int(self.pieces.file[piece]), int(self.pieces.first[piece] + record - self.begin[piece])

    def taken(self, first: int, end: int) -> Words:
        """Records as pairs of words."""
        low, high = int(self.piece(first)), int(np.searchsorted(self.begin, end, "left"))
        at, count, file = (getattr(self.pieces, name)[low:high] for name in ("first", "length", "file"))
        at, count = at.copy(), count.copy()
        skipped = first - int(self.begin[low])
        at[0] += skipped
        count[0] -= skipped
        count[-1] -= int(self.begin[high]) - end
        joins = (file[1:] == file[:-1]) & (at[1:] == at[:-1] + count[:-1])
        starts = np.append(0, np.flatnonzero(~joins) + 1)
        at, file, count = at[starts], file[starts], np.add.reduceat(count, starts)
        if len(at) == 1:
            return _words(self.files[file[0]][at[0] : at[0] + count[0]])
        found = np.empty(end - first, np.complex128)
        to = np.append(0, np.cumsum(count)[:-1])
        if len(at) * _LONG_PIECE < len(found):
            for number, source, target, size in zip(
                file.tolist(), at.tolist(), to.tolist(), count.tolist(), strict=True
            ):
                found[target : target + size] = self.files[number][source : source + size]
            return _words(found)
        for number in np.unique(file).tolist():
            of = np.flatnonzero(file == number)
            found[_each(to[of], count[of])] = self.files[number].take(_each(at[of], count[of]))
        return _words(found)


def _words(records: NDArray[np.complex128]) -> Words:
    return records.view(np.uint64).reshape(-1, 2)


def kinds_of(records: Words) -> NDArray[np.uint8]:
    """The kind of each record, without a copy."""
    return records.view(np.uint8)[:, 7]


def _each(first: Ints, count: Ints) -> Ints:
    """The numbers of all records of these pieces."""
    done = np.cumsum(count)
    return np.arange(int(done[-1])) + np.repeat(first - done + count, count)
