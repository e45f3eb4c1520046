"""Strands of several processes become rows, for one choice of their ranks.

The strands of p1 are the rows; those of p2 join them in their order, each the one that has waited longest and whose
values it equals; then those of p3. So the i-th meets the i-th, unless a condition says otherwise. What must not be
called uses up full rows, each such column by itself. Last, the conditions with `!=`, `<` and `>` are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from safepoint.check.call import Value
from safepoint.check.columns import Column, Link, Variant, holds, is_rank
from safepoint.check.shelf import Shelf
from safepoint.check.situations import Cell, Situation
from safepoint.check.strands import Row, private
from safepoint.check.template import EVERY

Members = Callable[[Value], Collection[int] | None]  # of a communicator, as ranks of the world; None: it is none


NOBODY = Value(frozenset(), frozenset(), any=True)  # what all others would have, if there were any


class Strands(Protocol):
    """The strands of a process that has this number; and the calls for a column that must not be called."""

    def of(self, process: int, rank: int) -> list[Row]: ...

    def absent(self, column: int, rank: int) -> list[Row]: ...


class Joined:
    """A row over several processes."""

    __slots__ = ("_owners", "others", "parts")

    def __init__(self, owners: list[int], parts: dict[int, Row], others: dict[int, Row]) -> None:
        self._owners = owners  # of each column
        self.parts = parts  # by the number of the process
        self.others = others  # by rank: of processes without a number

    def value(self, column: int, arg: int | str) -> Value | None:
        owner = self._owners[column]
        if owner != EVERY:
            return self.parts[owner].value(column, arg)
        return next(iter(self.others.values())).value(column, arg) if self.others else NOBODY

    def having(self, column: int) -> list[Row]:
        owner = self._owners[column]
        return list(self.others.values()) if owner == EVERY else [self.parts[owner]]

    def with_part(self, process: int, part: Row) -> Joined:
        return Joined(self._owners, {**self.parts, process: part}, self.others)

    def with_other(self, part: Row) -> Joined:
        return Joined(self._owners, self.parts, {**self.others, part.rank: part})


class Joins:
    """All rows of one variant."""

    def __init__(self, template: str, variant: Variant, ranks: int, members: Members) -> None:
        self._template = template
        self._variant = variant
        self._ranks = range(ranks)
        self._members = members
        self._owners = [each.process for each in variant.columns]
        self._named = [process for process in variant.processes if variant.filled(process)]
        self._every = variant.filled(EVERY)
        self._links = [link for one in variant.equal for link in (one, one.turned())]
        self._of_others = [link for link in self._links if self._owners[link.left] == EVERY]
        absent = [each for each in variant.columns if each.absent and not private(variant, each)]
        self._absent = [each for each in absent if not each.every]
        self._of_all = [each for each in absent if each.every]

    def bindings(self, strands: Strands) -> Iterator[dict[int, int]]:
        """Each choice of ranks for which there may be a row."""
        yield from (each for each in self._chosen(strands, 0, {}) if self._variant.canonical(each))

    def _chosen(self, strands: Strands, at: int, binding: dict[int, int]) -> Iterator[dict[int, int]]:
        if at == len(self._variant.processes):
            yield binding
            return
        process, bound = self._variant.processes[at], self._variant.bound
        for rank in [bound[process]] if process in bound else self._ranks:
            there = {**binding, process: rank}
            if rank in self._ranks and rank not in binding.values() and all(
                any(self._plays(one, there) for one in strands.of(each, there[each]))
                for each in there
                if each in self._named
            ):  # fmt: skip
                yield from self._chosen(strands, at + 1, there)

    def rows(self, strands: Strands, binding: dict[int, int]) -> list[Situation]:
        """The situations in these ranks."""
        rows = self._opened(strands, binding)
        for process in self._named[1:]:
            columns = {each.at for each in self._variant.filled(process)}
            links = [link for link in self._links if link.left in columns and self._owners[link.right] in rows_of(rows)]
            found = self._met(rows, strands.of(process, binding[process]), links, binding)
            rows = [row.with_part(process, found[row]) for row in rows if row in found]
        if self._every:
            for rank in self._ranks:
                if rank not in binding.values():
                    rows = self._with_other(rows, strands, rank, binding)
        return self._judged(rows, strands, binding) if rows else []

    def full(self, parts: dict[int, Row], binding: dict[int, int]) -> list[Situation]:
        """A row that has all its calls, and nothing that could excuse it any more."""
        row = Joined(self._owners, parts, {})
        good = all(self._holds(links, row) for links in self._variant.judged)
        return [self._situation(row, binding, ())] if good else []

    def _opened(self, strands: Strands, binding: dict[int, int]) -> list[Joined]:
        if self._named:
            first = self._named[0]
            some = [one for one in strands.of(first, binding[first]) if self._plays(one, binding)]
            return [Joined(self._owners, {first: one}, {}) for one in some]
        found = list[Joined]()
        for rank in self._ranks:  # only Fi: the first that should take part begins
            for one in strands.of(EVERY, rank):
                row = Joined(self._owners, {}, {rank: one})
                if self._plays(one, binding) and rank == min(self._scope(row, self._of_others), default=rank):
                    found.append(row)
        return found

    def _with_other(self, rows: list[Joined], strands: Strands, rank: int, binding: dict[int, int]) -> list[Joined]:
        """All that have one of this rank, or need none."""
        concerned = [row for row in rows if rank in self._scope(row, self._of_others) and rank not in row.others]
        begun = any(row.others for row in concerned)
        links = [link for link in self._of_others if begun or self._owners[link.right] != EVERY]
        found = self._met(concerned, strands.of(EVERY, rank), links, binding)
        needed = set(concerned)
        return [
            row.with_other(found[row]) if row in found else row for row in rows if row in found or row not in needed
        ]

    def _met(
        self, rows: Iterable[Joined], strands: Iterable[Row], links: list[Link], binding: dict[int, int]
    ) -> dict[Joined, Row]:
        """Which strand each row is joined by."""
        shelf, found = Shelf[Joined](links), dict[Joined, Row]()
        for row in rows:
            shelf.put(row)
        for one in strands:
            if self._plays(one, binding):
                for row in shelf.oldest([one.value(link.left, link.arg) for link in links], lambda _: True):
                    shelf.take_off(row)
                    found[row] = one
        return found

    def _plays(self, one: Row, binding: dict[int, int]) -> bool:
        """The conditions with ranks of other processes, as far as these are chosen."""
        return all(
            is_rank(role.sign, one.value(role.column, role.arg), binding[role.process])
            for role in self._variant.roles
            if role.column in one.calls and role.process in binding
        )

    def _scope(self, row: Joined, links: Iterable[Link]) -> Collection[int]:
        """Who could take part: if communicators are compared, their members."""
        found: Collection[int] = self._ranks
        for link in links:
            if self._owners[link.right] in rows_of([row]) and not link.same:
                value = row.value(link.right, link.other)
                members = self._members(value) if value is not None else None
                if members is not None:
                    found = [rank for rank in found if rank in members]
        return found

    # What must not be called, and what is judged.

    def _judged(self, rows: list[Joined], strands: Strands, binding: dict[int, int]) -> list[Situation]:
        """Each column by itself: which rows are left must not depend on which is looked at first."""
        used = [self._used(each, binding[each.process], rows, strands, binding) for each in self._absent]
        of_all = dict[int, set[Joined]]()
        for each in self._of_all:
            whom = [binding[each.process]] if each.process != EVERY else set(self._ranks) - set(binding.values())
            of_all |= {rank: self._used(each, rank, rows, strands, binding) for rank in whom}
        found = list[Situation]()
        for row in rows:
            missing = [rank for rank in self._scope_of_all(row) if rank in of_all and row not in of_all[rank]]
            if (
                not any(row in some for some in used)
                and all(binding[each.process] in self._scope(row, self._excuses(each)) for each in self._absent)
                and (missing or not self._of_all)
                and all(self._holds(links, row) for links in self._variant.judged)
            ):
                found.append(self._situation(row, binding, missing))
        return found

    def _scope_of_all(self, row: Joined) -> Collection[int]:
        return self._scope(row, [link for each in self._of_all for link in self._excuses(each)])

    def _used(
        self, column: Column, rank: int, rows: list[Joined], strands: Strands, binding: dict[int, int]
    ) -> set[Joined]:
        """The rows that a call in this column excuses."""
        links, process = self._excuses(column), column.process
        levels = sorted({each.level for each in self._variant.filled(process)}) if not column.every else []
        window = sum(level < column.level for level in levels)
        shelf, found = Shelf[Joined](links), set[Joined]()
        for row in rows:
            if rank in self._scope(row, links):
                shelf.put(row)
        for one in strands.absent(column.at, rank):
            if self._plays(one, binding):
                number = one.calls[column.at].number

                def within(row: Joined, number: int = number) -> bool:
                    if not levels:
                        return True
                    low, high = [*row.parts[process].lows, math.inf][window : window + 2]
                    return low < number < high

                last = window == len(levels)
                values = [one.value(link.left, link.arg) for link in links]
                for row in (shelf.oldest if last else shelf.all)(values, within):
                    shelf.take_off(row)
                    found.add(row)
        return found

    def _holds(self, links: list[Link], row: Joined) -> bool:
        """One of them, for some two of the calls that the row has there."""
        return any(
            holds(link.sign, one.value(link.left, link.arg), other.value(link.right, link.other), link.same)
            for link in links
            for one in row.having(link.left)
            for other in row.having(link.right)
            if one is not other or link.left != link.right
        )

    def _situation(self, row: Joined, binding: dict[int, int], missing: Iterable[int]) -> Situation:
        cells, told = list[Cell](), False
        for each in self._variant.columns:
            if not each.absent:
                cells += [filled(each, one) for one in row.having(each.at)]
            elif not each.every or private(self._variant, each):
                cells.append(lacking(each, [binding[each.process]]))
            elif not told:
                cells.append(Cell(EVERY, EVERY, tuple(sorted(missing)), -1, each.text))
                told = True
        return Situation(self._template, tuple(cells), tuple(sorted(binding.items())))

    def _excuses(self, column: Column) -> list[Link]:
        return [link for link in self._variant.excused if link.left == column.at]


def filled(column: Column, row: Row) -> Cell:
    call = row.calls[column.at]
    element = row.element[1] if row.element is not None and row.alone == column.at else -1
    return Cell(column.function, column.process, (call.rank,), call.number, call.function, element, call)


def lacking(column: Column, ranks: Iterable[int]) -> Cell:
    return Cell(column.function, column.process, tuple(sorted(ranks)), -1, column.text)


def rows_of(rows: Iterable[Joined]) -> set[int]:
    """The processes that the rows have."""
    for row in rows:
        return {*row.parts, *([EVERY] if row.others else [])}
    return set()
