"""Templates over two processes with one kind of strand each, such as send without receive, while the program runs.

Strands are put under the tokens of all that is compared, the ranks included. The i-th of a rank there meets the i-th
of each other rank, so a key in which all ranks have as many is as good as new, and forgotten. A strand that has no
such key (a wildcard to which nothing came, an array) is late: it joins in the final pass what is left.

Where a key is of one rank on each side, as that of messages is, what has met is over at once: there is a line of those
that nobody has met, all of one side.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from safepoint.check.call import Call
from safepoint.check.columns import Column, Variant
from safepoint.check.joins import Joins, Members
from safepoint.check.situations import Situation
from safepoint.check.strands import Room, Row, private
from safepoint.check.template import EVERY

Key = tuple[object, ...]
Slot = tuple[int, int | str] | None  # column and argument; None: the rank itself


@dataclass(slots=True)
class Part:
    """Of a key: what is the same in all calls of a shape, and the places and arguments that are still to be asked."""

    key: Key | None
    left: Sequence[tuple[int, int | str]]


NONE, SEVERAL = Part(None, ()), Part(None, [(0, "")])  # no key; one that each call is asked for


class Keys:
    """Of the strands of one side. `slots`: what makes a key; `its`: the same of the other side."""

    def __init__(self, slots: list[Slot], its: list[Slot]) -> None:
        self._slots, self._its = slots, its

    def of(self, row: Row) -> Key | None:
        """Empty: it has several. None: it has none."""
        call = row.calls[row.alone]
        if call.shape is None or row.element is not None or len(row.calls) > 1:
            return self._of(row)
        taken = call.shape.taken
        known: Part = taken[self] if self in taken else taken.setdefault(self, self._part(row, call))
        if not known.left:
            return known.key
        if known.key is None:
            return self._of(row)
        key, value = list(known.key), call.arguments.value
        for at, arg in known.left:
            given = value(arg)
            if given is None or len(given.across) != 1 or given.any:
                return self._of(row)
            (key[at],) = given.across
        return tuple(key)

    def _part(self, row: Row, call: Call) -> Part:
        """What the keys of all calls of its shape have in common."""
        key, left, lasts = list[object](), list[tuple[int, int | str]](), call.arguments.lasts
        for at, (slot, its) in enumerate(zip(self._slots, self._its, strict=True)):
            if slot is None:
                key.append(row.rank)
            elif not lasts(slot[1]):
                if its is None:
                    return SEVERAL  # each may be of its own rank
                key.append(None)
                left.append((at, slot[1]))
            else:
                value = row.value(*slot)
                if value is None or not (value.any or value.across) or (its is None and value.across == {row.rank}):
                    return NONE
                if value.any or len(value.across) > 1:
                    return SEVERAL
                key += value.across
        return Part((*key, ""), left)

    def _of(self, row: Row) -> Key | None:
        several = False
        found: list[object] = []
        for slot, its in zip(self._slots, self._its, strict=True):
            if slot is None:
                found.append(row.rank)
                continue
            value = row.value(*slot)
            if value is None or not (value.any or value.across):
                return None
            several = several or value.any or len(value.across) > 1
            if its is None and not value.any and value.across == {row.rank}:
                return None  # two processes are of different ranks
            found += value.across
        return () if several else (*found, "")


class Bucket:
    """What is under one key: by rank, of the left and of the right process."""

    __slots__ = ("counts", "first", "needed", "scope", "sides", "various")

    def __init__(self, scope: Collection[int], needed: tuple[int, int]) -> None:
        self.sides: tuple[dict[int, list[Row]], dict[int, list[Row]]] = {}, {}
        self.counts = [0, 0]
        self.scope = scope
        self.needed = needed  # how many ranks have some, on each side, when nothing is left
        self.first: object = None  # what all have in the condition that is judged, unless they are
        self.various = False


class Pairs:
    """All strands of such a variant; and which are left for the final pass."""

    def __init__(self, template: str, variant: Variant, ranks: int, members: Members, room: Room) -> None:
        self._variant = variant
        self._ranks = range(ranks)
        self._members = members
        self._room = room
        two = sides(variant)
        assert two is not None
        left, right = two
        self._processes = left[0].process, right[0].process
        self._negated = right[0] if right[0].absent else None
        self._left = {each.at for each in left}
        self._links = [link for link in variant.equal + variant.excused if not link.same]
        self._slots = self._compared(variant)
        bound = [process in variant.bound for process in self._processes]
        known = [None in self._slots[0] or bound[0], None in self._slots[1] or bound[1]]
        self._single = known[0], known[1]  # one rank only has strands under a key
        self._both = all(known)
        self._across = next((links[0] for links in variant.judged if not links[0].same), None)
        self._buckets: dict[Key, Bucket] = {}
        self._lines: dict[Key, deque[Row]] = {}  # instead, where both sides are of one rank
        self._keys = Keys(self._slots[0], self._slots[1]), Keys(self._slots[1], self._slots[0])
        self._late: tuple[dict[int, list[Row]], dict[int, list[Row]]] = defaultdict(list), defaultdict(list)
        self._joins = Joins(template, variant, ranks, members)

    def _compared(self, variant: Variant) -> tuple[list[Slot], list[Slot]]:
        """What makes a key, on either side."""
        slots: tuple[list[Slot], list[Slot]] = [], []
        for link in self._links:
            one = link if link.left in self._left else link.turned()
            slots[0].append((one.left, one.arg))
            slots[1].append((one.right, one.other))
        for role in variant.roles:
            if private(variant, variant.columns[role.column]):
                continue  # it has been asked where the strand was made
            side = 0 if role.column in self._left else 1
            slots[side].append((role.column, role.arg))
            slots[1 - side].append(None)
        return slots

    def add(self, row: Row) -> list[Situation]:
        """A strand of one of the two."""
        side = 0 if row.alone in self._left else 1
        key = self._keys[side].of(row)
        if key is None:
            return []
        if row.late or not key:
            self._late[side][row.rank].append(row)
            return []
        if self._both:
            return self._in_line(row, side, key)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = self._bucket(row)
        mine, others = bucket.sides[side].setdefault(row.rank, []), bucket.sides[1 - side]
        place = len(mine)
        if self._room.left > 0:
            self._room.left -= 1
        elif not self._admit(side, any(len(rows) > place for rows in others.values())):
            return []
        mine.append(row)
        bucket.counts[side] += 1
        found = [] if self._negated else self._meet(row, side, place, bucket, others)
        counts, needed = bucket.counts, bucket.needed
        count = place + 1
        if counts[0] == needed[0] * count and counts[1] == needed[1] * count and _even(bucket, count):
            del self._buckets[key]
            self._room.left += sum(bucket.counts)
        return found

    def _in_line(self, row: Row, side: int, key: Key) -> list[Situation]:
        line = self._lines.get(key)
        if line is None or (line[0].alone in self._left) == (side == 0):
            if self._room.left > 0:
                self._room.left -= 1
            elif not self._admit(side, False):
                return []
            if line is None:
                line = self._lines[key] = deque()
            line.append(row)
            return []
        other = line.popleft()
        self._room.left += 1
        if not line:
            del self._lines[key]
        if self._negated or (self._across is not None and self._said(row, side) == self._said(other, 1 - side)):
            return []
        return self._situation(*((row, other) if side == 0 else (other, row)))

    def _admit(self, side: int, needed: bool) -> bool:
        """When all is full no new rows begin, and only what excuses one that is there is still needed."""
        if side == 1 and self._negated and self._room.left <= 0:
            return needed
        return self._room.take()

    def _meet(self, row: Row, side: int, place: int, bucket: Bucket, others: dict[int, list[Row]]) -> list[Situation]:
        if self._across is not None:
            said = self._said(row, side)
            if sum(bucket.counts) == 1:
                bucket.first = said
            bucket.various = bucket.various or said != bucket.first
            if not bucket.various:
                return []  # none differs from another
        found: list[Situation] = []
        for rank, rows in others.items():
            if rank != row.rank and len(rows) > place:
                pair = (row, rows[place]) if side == 0 else (rows[place], row)
                found += self._situation(*pair)
        return found

    def _situation(self, *pair: Row) -> list[Situation]:
        parts = dict(zip(self._processes, pair, strict=True))
        binding = {process: row.rank for process, row in parts.items()}
        return self._joins.full(parts, binding) if self._variant.canonical(binding) else []

    def _said(self, row: Row, side: int) -> object:
        assert self._across is not None
        link = self._across if (self._across.left in self._left) == (side == 0) else self._across.turned()
        value = row.value(link.left, link.arg)
        return value and (value.across, value.number)

    def _scope(self, row: Row) -> Collection[int]:
        """The members of a communicator that is compared."""
        for link in (one for each in self._links for one in (each, each.turned())):
            if link.left in row.calls:
                value = row.value(link.left, link.arg)
                members = self._members(value) if value is not None else None
                if members is not None:
                    return members
        return self._ranks

    def _bucket(self, row: Row) -> Bucket:
        left, right = self._single
        scope = self._scope(row)
        return Bucket(scope, (1 if left else len(scope) - right, 1 if right else len(scope) - left))

    # The final pass.

    def finish(self) -> list[Situation]:
        """What was not called; and of what is late, what is left for it."""
        found = list[Situation]()
        pairs = self._left_over()
        for side, by_rank in enumerate(self._late):
            for rows in by_rank.values():
                for row in sorted(rows, key=lambda one: one.order):
                    for rank in self._partners(row, side, self._scope(row)):
                        pair = (row.rank, rank) if side == 0 else (rank, row.rank)
                        pairs[pair][side].append(row)
        for ranks, (left, right) in sorted(pairs.items(), key=lambda one: one[0]):
            binding = dict(zip(self._processes, ranks, strict=True))
            if left and (right or self._negated) and self._variant.canonical(binding):
                found += self._joins.rows(_Two(self._processes, left, right), binding)
        return found

    def _left_over(self) -> dict[tuple[int, int], tuple[list[Row], list[Row]]]:
        """For each two ranks, the strands that have met none of the other."""
        pairs = defaultdict[tuple[int, int], tuple[list[Row], list[Row]]](lambda: ([], []))
        if not self._negated and not any(self._late):
            return pairs
        for line in self._lines.values():
            side = 0 if line[0].alone in self._left else 1
            for other in self._partners(line[0], side, self._ranks):
                pairs[(line[0].rank, other) if side == 0 else (other, line[0].rank)][side].extend(line)
        for bucket in self._buckets.values():
            for side in 0, 1:
                mine, others = bucket.sides[side], bucket.sides[1 - side]
                for rank, rows in mine.items():
                    for other in self._partners(rows[0], side, bucket.scope):
                        pair = (rank, other) if side == 0 else (other, rank)
                        pairs[pair][side].extend(rows[len(others.get(other, ())) :])
        for both in pairs.values():
            for rows in both:
                rows.sort(key=lambda one: one.order)
        return pairs

    def _partners(self, row: Row, side: int, scope: Collection[int]) -> Iterator[int]:
        """The ranks that the other process may have."""
        bound = self._variant.bound.get(self._processes[1 - side])
        some = set(scope) & set(self._ranks) if bound is None else {bound}
        for slot, its in zip(self._slots[side], self._slots[1 - side], strict=True):
            value = row.value(*slot) if slot is not None and its is None else None
            if value is not None and not value.any:
                some &= value.across
        yield from sorted(some - {row.rank})


def _even(bucket: Bucket, count: int) -> bool:
    """All have as many: nothing is left, in no choice of ranks."""
    return all(
        len(side) == need and all(len(rows) == count for rows in side.values())
        for side, need in zip(bucket.sides, bucket.needed, strict=True)
    )


class _Two:
    """The strands of two ranks."""

    def __init__(self, processes: tuple[int, int], left: list[Row], right: list[Row]) -> None:
        self._of = dict(zip(processes, (left, right), strict=True))
        self._right = right

    def of(self, process: int, rank: int) -> list[Row]:
        return self._of[process]

    def absent(self, column: int, rank: int) -> list[Row]:
        return self._right


def sides(variant: Variant) -> tuple[list[Column], list[Column]] | None:
    """The columns of the left and of the right process; on the right it may be one that must not be called."""
    absent = [each for each in variant.columns if each.absent and not private(variant, each)]
    filled = [some for process in variant.processes if (some := variant.filled(process))]
    if (
        len(variant.processes) != 2
        or any(each.process == EVERY for each in variant.columns)
        or any(role.sign != "=" for role in variant.roles)
        or any(len(links) != 1 for links in variant.judged)
    ):
        return None
    if len(filled) == 2 and not absent:
        return filled[0], filled[1]
    if len(filled) == 1 and len(absent) == 1 and not absent[0].every and absent[0].process != filled[0][0].process:
        return filled[0], absent
    return None
