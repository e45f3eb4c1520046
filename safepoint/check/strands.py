"""The calls of one process that go together, in one rank: what a situation has of this process.

A call is taken by the row that has waited longest for it and whose values it equals, at most one a column; else it
opens a row if its F is the first of the process. F with a higher number come later. Of a row that is complete, its
*strand* is given on: at once, or at the end of the process if something must not be called until then.

(1) What must not be called between two F, or before the first, ends every row that it fits: the report says that it
    was not called. What must not be called after the last F ends one: each call of it excuses one.
(2) A call takes one column of a row, and one of an F: `A && B` needs two calls, also if A and B are the same
    function.
(3) The rows that are open are limited: the oldest are kept, and `dropped` counts the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Sized

from safepoint.check.call import Call, Value
from safepoint.check.columns import Column, Link, Variant
from safepoint.check.seen import Seen
from safepoint.check.shelf import Shelf
from safepoint.trace.roles import ROLES

# What happens once to a process, or to a thing, fills each row that waits for it: a program was told one of all the
# requests that it has left open else.
KINDS = {"finalize", "win_free", "comm_free", "file_free", "type_free"}
ONCE = frozenset(name for name, role in ROLES.items() if role.kind in KINDS)
MOST_OPEN = 10**6  # rows of a template


Asked = tuple[list[tuple[bool, list[Column]]], list[Column]]  # of a plan: `of`
Element = tuple["int | str", int, Value]  # the argument; which it is, from 0; its value


class Room:
    """For how many more rows there is room; all ranks share it."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.dropped = 0

    def take(self) -> bool:
        if self.left <= 0:
            self.dropped += 1
            return False
        self.left -= 1
        return True


class Row:
    """Calls by column, all of one rank."""

    __slots__ = ("alone", "at", "calls", "element", "late", "lows", "on", "order", "rank")

    def __init__(
        self, rank: int, column: int, call: Call, element: Element | None, lows: tuple[int, ...] = (-1,)
    ) -> None:
        self.rank = rank
        self.calls = {column: call}
        self.element = element  # which one of an array it is that has opened the row, in which argument
        self.alone = column  # it has opened the row
        self.at = len(lows) - 2  # the last group of F that is complete
        self.lows = lows  # the highest number in each
        self.on: tuple[Shelf[Row], ...] = ()  # where it lies
        self.late = call.wild  # it joins those of other processes in the final pass
        self.order = 0  # among those of its rank

    def value(self, column: int, arg: int | str) -> Value | None:
        if self.element is not None and column == self.alone and arg == self.element[0]:
            return self.element[2]
        return self.calls[column].arguments.value(arg)


class Plan:
    """What is the same in all ranks: the columns of one process in the order in which they are filled."""

    def __init__(self, variant: Variant, process: int) -> None:
        self.process = process
        filled = variant.filled(process)
        self.groups = [list(some) for _, some in itertools.groupby(filled, lambda each: each.level)]
        at = {each.at: number for number, group in enumerate(self.groups) for each in group}
        self.links: dict[int, list[Link]] = {}
        for each in filled:
            both = [link for one in variant.equal for link in (one, one.turned())] + variant.implied
            here = [link for link in both if link.left == each.at and at.get(link.right, len(at)) < at[each.at]]
            self.links[each.at] = list(dict.fromkeys(here))
        self.absent = [each for each in variant.columns if private(variant, each) and each.process == process]
        self.windows: dict[int, int] = {}  # of what must not be called: the group after which it must not
        self.asked: dict[int, int] = {}  # and the group with which all is known that says whether it was
        self.excused: dict[int, list[Link]] = {}
        self.noted: list[Column] = []  # asked when the group after the window is complete: what it is has come before
        for each in self.absent:
            self.windows[each.at] = sum(group[0].level < each.level for group in self.groups) - 1
            excused = [link for link in variant.excused + variant.implied if link.left == each.at]
            self.excused[each.at] = list(dict.fromkeys(excused))
            window = self.windows[each.at]
            self.asked[each.at] = max([window + 1, *(at[link.right] for link in self.excused[each.at])])
            if window < 0 or any(at[link.right] > window for link in self.excused[each.at]):
                self.noted.append(each)
        self.last = len(self.groups) - 1
        self.until_the_end = any(window == self.last for window in self.windows.values())
        self.single = filled[0] if len(filled) == 1 and not self.absent else None  # each call is a strand
        self.opens = {each.at: Opening(variant, each) for each in self.groups[0]}
        self.of: dict[str, Asked] = {}  # the last group first
        for function in frozenset[str]().union(*(each.functions for each in [*filled, *self.absent])):
            groups = [(not number, _of(function, some)) for number, some in enumerate(self.groups)]
            self.of[function] = [one for one in reversed(groups) if one[1]], _of(function, self.absent)

    def columns(self, function: str) -> list[Column]:
        """Those that a call of it may fill."""
        groups, absent = self.of[function]
        return [column for _, some in groups for column in some] + absent


def _of(function: str, columns: list[Column]) -> list[Column]:
    return [each for each in columns if function in each.functions]


def private(variant: Variant, column: Column) -> bool:
    """It must not be called, and the rows of its process alone say when."""
    if not column.absent or column.every or not variant.filled(column.process):
        return False
    roles = [(one.column, one.arg) for one in variant.roles if one.column == column.at]
    return all(link.same for link in variant.excused if link.left == column.at) and all(
        any((link.left, link.arg) == role for link in variant.implied) for role in roles
    )


class Opening:
    """Arguments that are compared: if one is an array, the call opens a row for each of its elements."""

    def __init__(self, variant: Variant, column: Column) -> None:
        both = [*variant.equal, *(link.turned() for link in [*variant.equal, *variant.excused])]
        self._args = list(dict.fromkeys(link.arg for link in both if link.left == column.at))

    def asks(self, call: Call) -> list[int | str]:
        """The arguments that may be an array in calls of its shape. Arrays are requests, whose values do not last."""
        shape, lasts = call.shape, call.arguments.lasts
        if shape is None:
            return self._args
        known: list[int | str] | None = shape.taken.get(self)
        if known is None:
            known = shape.taken[self] = [arg for arg in self._args if not lasts(arg)]
        return known

    def elements(self, call: Call) -> Sequence[Element | None]:
        """One that is None: there is no array."""
        shape, of = call.shape, call.arguments
        known = None if shape is None else shape.taken.get(self)
        for arg in self.asks(call) if known is None else known:
            value = of.value(arg)
            if value is not None and len(value.each) > 1:
                return [(arg, at, element) for at, element in enumerate(value.each)]
        return WHOLE

    def rows(self, column: Column, call: Call) -> list[Row]:
        """The strands of a process that has this column only."""
        return [Row(call.rank, column.at, call, element, (-1, call.number)) for element in self.elements(call)]


WHOLE = (None,)


class Strands:
    """The rows of one rank."""

    def __init__(self, plan: Plan, rank: int, bound: dict[int, int], room: Room) -> None:
        self._plan = plan
        self._rank = rank
        self._bound = bound
        self._room = room
        self._waiting = {at: Shelf[Row](links) for at, links in plan.links.items()}  # for each column that is empty
        self._windows = {each.at: Shelf[Row](plan.excused[each.at]) for each in plan.absent if each not in plan.noted}
        self._seen = {each.at: Seen(plan.excused[each.at], plan.windows[each.at] < 0) for each in plan.noted}
        self._done: dict[Row, None] = {}  # complete, and may still be excused
        self._next = [tuple(self._after(at)) for at in range(len(plan.groups))]

    def _after(self, group: int) -> Iterator[Shelf[Row]]:
        """Where a row lies when this group of F is complete: what must not be called now, and what comes next."""
        yield from (shelf for at, shelf in self._windows.items() if self._plan.windows[at] == group)
        if group < self._plan.last:
            yield from (self._waiting[column.at] for column in self._plan.groups[group + 1])

    def joined(self, call: Call) -> list[Sized] | None:
        """The rows that calls of this shape may join, or excuse. None: they may open one, or are kept."""
        groups, absent = self._plan.of[call.function]
        shelves = list[Shelf[Row]]()
        for column in [column for _, columns in groups for column in columns] + absent:
            if not column.refuses(call, self._bound):
                if column in self._plan.groups[0] or column.at in self._seen:
                    return None
                shelves.append(self._windows[column.at] if column.absent else self._waiting[column.at])
        return [shelf.rows for shelf in shelves]

    def asked(self, call: Call) -> Asked:
        """The columns that calls of this shape may fill."""
        groups, absent = self._plan.of[call.function]
        left = [(first, self._left(columns, call)) for first, columns in groups]
        return [one for one in left if one[1]], self._left(absent, call)

    def _left(self, columns: list[Column], call: Call) -> list[Column]:
        return [one for one in columns if not one.refuses(call, self._bound)]

    def take(self, call: Call, asked: Asked) -> list[Row]:
        """The rows that this call completes."""
        complete: list[Row] = []
        groups, absent = asked
        waiting, bound = self._waiting, self._bound
        for first, columns in groups:
            opening: Column | None = None
            for column in columns:
                lying = waiting[column.at].rows
                if (first or lying) and column.takes(call, bound):
                    if lying and (rows := self._join(column, call)):
                        complete += [row for row in rows if self._advance(row)]
                        break
                    opening = opening or column
            else:
                if first and opening is not None:
                    complete += self._opened(opening, call)
        for column in absent:
            if (column.at in self._seen or self._windows[column.at].rows) and column.takes(call, bound):
                self._excuse(column, call)
        return complete

    def end(self) -> list[Row]:
        """No more calls: the rows for which something had to be not called until now."""
        rows, self._done = list(self._done), {}
        for row in rows:
            self._remove(row)
        return rows

    def _join(self, column: Column, call: Call) -> list[Row]:
        shelf, number = self._waiting[column.at], call.number
        of = call.arguments
        values = [of.value(link.arg) for link in self._plan.links[column.at]]
        found = shelf.all if call.function in ONCE else shelf.oldest
        rows = found(values, lambda row: row.lows[-1] < number)
        for row in rows:
            row.calls[column.at] = call
            row.late = row.late or call.wild
            shelf.take_off(row)
            row.on = () if len(row.on) == 1 else tuple(one for one in row.on if one is not shelf)
        return rows

    def _opened(self, column: Column, call: Call) -> list[Row]:
        complete: list[Row] = []
        for element in self._plan.opens[column.at].elements(call):
            if not self._room.take():
                continue
            row = Row(self._rank, column.at, call, element)
            if self._advance(row):
                complete.append(row)
            elif row.at < 0:
                others = (other for other in self._plan.groups[0] if other is not column)
                self._shelve(row, tuple(self._waiting[other.at] for other in others))
        return complete

    def _advance(self, row: Row) -> bool:
        """A column of it was filled. Is it complete now, and can nothing more excuse it?"""
        plan, at = self._plan, row.at + 1
        group = plan.groups[at]
        if len(group) > 1 and any(column.at not in row.calls for column in group):
            return False
        for shelf in row.on:
            shelf.take_off(row)
        row.on, row.at = (), at
        calls = row.calls
        last = calls[group[0].at].number if len(group) == 1 else max(calls[column.at].number for column in group)
        row.lows = (*row.lows, last)
        if plan.noted and any(self._was_called(column, row) for column in plan.noted if plan.asked[column.at] == at):
            self._room.left += 1
            return False
        self._shelve(row, self._next[at])
        if at < plan.last:
            return False
        if plan.until_the_end:
            self._done[row] = None
            return False
        self._room.left += 1
        return True

    def _shelve(self, row: Row, shelves: tuple[Shelf[Row], ...]) -> None:
        row.on = shelves
        for shelf in shelves:
            shelf.put(row)

    def _remove(self, row: Row) -> None:
        for shelf in row.on:
            shelf.take_off(row)
        row.on = ()
        self._done.pop(row, None)
        self._room.left += 1

    # What must not be called.

    def _excuse(self, column: Column, call: Call) -> None:
        of = call.arguments
        values = [of.value(link.arg) for link in self._plan.excused[column.at]]
        if column.at in self._seen:
            self._seen[column.at].add(call, values)
            return
        shelf, number = self._windows[column.at], call.number
        last = self._plan.windows[column.at] == self._plan.last
        for row in (shelf.oldest if last else shelf.all)(values, lambda row: row.lows[-1] < number):
            self._remove(row)

    def _was_called(self, column: Column, row: Row) -> bool:
        """In its window, with the values of this row."""
        low, high = row.lows[self._plan.windows[column.at] + 1 :][:2]
        values = [row.value(link.right, link.other) for link in self._plan.excused[column.at]]
        return self._seen[column.at].between(low, high, values)
