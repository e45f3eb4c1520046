"""Looks for one template in the calls of a run, while it runs or afterwards.

(1) What is found does not depend on the order in which ranks are heard: in a rank, calls go together in the order in
    which they are fed; between ranks the i-th meets the i-th that has the same values. Only if more than the limits
    is found or open, which part of it is told depends on that order.
(2) A call with a wildcard to which nothing has come is put apart if the template asks for source or tag. It is fed
    again when it has completed, before the call that completes it; or else it joins in the final pass.
(3) Templates of one process tell what they find with the last call, or at the end of the process if something must
    not be called until then. So do those of two processes with no such thing. All others tell it in the final pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass

from safepoint.check.call import Call
from safepoint.check.columns import Column, Variant, variants
from safepoint.check.joins import Joins, Members
from safepoint.check.pairs import Pairs, sides
from safepoint.check.situations import Situation
from safepoint.check.strands import MOST_OPEN, Asked, Opening, Plan, Room, Row, Strands, private
from safepoint.check.template import EVERY, Argument, Template

MOST_FOUND = 10_000  # situations of a template


class Matcher:
    """Of one template. `comm_members`: of a value that is a communicator, its members as ranks of the world; of
    any other, None."""

    def __init__(self, template: Template, ranks: int, comm_members: Members, most_open: int = MOST_OPEN) -> None:
        self._room = Room(most_open)
        self.remarks = list[str]()
        self._found = 0
        self._searches = list[_Search]()
        highest = max((*template.bound.values(), -1))
        if isinstance(template.size, int) and template.size > ranks:
            self.remarks.append(f"not looked for: it needs {template.size} processes, and the program has {ranks}")
        elif highest >= ranks:
            number = next(number for number, rank in template.bound.items() if rank == highest)
            self.remarks.append(f"not looked for: p{number}={highest}, and the highest rank is {ranks - 1}")
        else:
            self._searches = [_Search(template.id, one, ranks, comm_members, self._room) for one in variants(template)]
        self._of = defaultdict[str, list[_Search]](list)
        self._asked = _asked(template)
        for search in self._searches:
            for function in search.functions:
                self._of[function].append(search)
        self._apart: dict[tuple[int, int], Call] = {}  # wildcards to which nothing has come
        self._known = set[tuple[int, int]]()  # wildcards of which it does not matter
        self.plain = True  # a call that is not wild is taken as it is: nothing is apart, and not too much was found

    def feed(self, call: Call) -> list[Situation]:
        """A call. Those of a rank come in the order of their numbers, but for wildcards that were put apart."""
        searches = self._of.get(call.function)
        if searches is None or self._found >= MOST_FOUND:
            return []
        if (call.wild or self._apart or self._known) and self._put_apart(call):
            return []
        if len(searches) > 1:
            return self._take(call, searches)
        found = searches[0].take(call)
        return self.told(found) if found else found

    def take_of(self, call: Call) -> Callable[[Call], list[Situation]] | None:
        """What takes calls of its function while this is `plain`; what it gives is to be `told`. None: `feed` does."""
        searches = self._of.get(call.function, ())
        return searches[0].take if len(searches) == 1 else None

    def asks(self, function: str) -> Iterable[int | str]:
        """The arguments of it that conditions name."""
        return self._asked.get(function, ())

    def concerns(self, call: Call) -> bool:
        """False: no call of its shape fills a column, so they need not be fed."""
        return any(search.concerns(call) for search in self._of.get(call.function, ()))

    def joined(self, call: Call) -> tuple[Sized, ...] | None:
        """The rows that calls of this shape may join, or excuse. None: they may do more than that."""
        found = [search.joined(call) for search in self._of.get(call.function, ())]
        return None if None in found else tuple(one for some in found for one in some or ())

    def ended(self, rank: int) -> list[Situation]:
        """This rank makes no more calls."""
        if any(each == rank for each, _ in self._apart):
            return []  # in the final pass these may still excuse something
        return self.told(one for search in self._searches for one in search.ended(rank))

    def finish(self) -> list[Situation]:
        """No rank makes any more calls."""
        found = list[Situation]()
        apart, self._apart = self._apart, {}
        for _, call in sorted(apart.items(), key=lambda one: one[0]):
            found += self._take(call, self._of[call.function])
        found += self.told(one for search in self._searches for one in search.finish())
        if self._room.dropped:
            self.remarks.append(f"too many rows were open: {self._room.dropped} calls were not looked at")
        return sorted(found)

    def _put_apart(self, call: Call) -> bool:
        """Nothing is to be done with it now."""
        which, self.plain = (call.rank, call.number), False
        if not call.wild:
            self._apart.pop(which, None)
            if which in self._known:
                self._known.remove(which)
                return True
            return False
        if any((value := call.value(arg)) is not None and value.any for arg in self._asked[call.function]):
            self._apart[which] = call
            return True
        self._known.add(which)
        return False

    def _take(self, call: Call, searches: list[_Search]) -> list[Situation]:
        return self.told(one for search in searches for one in search.take(call))

    def told(self, situations: Iterable[Situation]) -> list[Situation]:
        """As many as may be told."""
        found = list(situations)
        left = MOST_FOUND - self._found
        if found and len(found) >= left and self._found < MOST_FOUND:
            self.plain = False
            self.remarks.append(f"stopped after {MOST_FOUND} situations")
        self._found += len(found[:left])
        return found[:left]


def _asked(template: Template) -> dict[str, set[int | str]]:
    """The arguments that conditions name, by the functions that have them."""
    found = defaultdict[str, set[int | str]](set)
    for one in template.conditions:
        for side in one.left, one.right:
            if isinstance(side, Argument):
                for item in (item for row in template.functions[side.function] for item in row):
                    for function in item.functions:
                        found[function].add(side.name)
    return found


@dataclass(slots=True)
class _Route:
    """Where a call of a function and rank goes."""

    strands: list[tuple[int, Strands, Asked]]  # of the processes that it may be
    alone: list[tuple[Column, Opening | None]]  # where each call is a strand; None: it must not be called
    whole: list[Column]  # the same, where it is known that each call of a shape is one


class _Search:
    """Of one variant."""

    def __init__(self, template: str, variant: Variant, ranks: int, members: Members, room: Room) -> None:
        self._variant = variant
        self._ranks = ranks
        self._room = room
        self._bound = variant.bound
        self._joins = Joins(template, variant, ranks, members)
        owners = [*variant.processes, EVERY]
        self._plans = [Plan(variant, process) for process in owners if variant.filled(process)]
        self._absent = [each for each in variant.columns if each.absent and not private(variant, each)]
        self._local = len(variant.processes) == 1 and not (self._absent or variant.roles or variant.filled(EVERY))
        self._pairs = None if sides(variant) is None else Pairs(template, variant, ranks, members, room)
        self._kept = _Kept(variant)
        self._strands: dict[tuple[int, int], Strands] = {}
        self._routes: list[dict[str, _Route]] = [{} for _ in range(ranks)]
        self._given = 0
        self.functions = frozenset[str]().union(*(each.functions for each in variant.columns))
        self._of = {
            function: (
                [plan for plan in self._plans if function in plan.of],
                [each for each in self._absent if function in each.functions],
            )
            for function in self.functions
        }

    def concerns(self, call: Call) -> bool:
        plans, absent = self._of[call.function]
        columns = [column for plan in plans for column in plan.columns(call.function)] + absent
        return any(
            self._may_be(column.process, call.rank) and not column.refuses(call, self._bound) for column in columns
        )

    def joined(self, call: Call) -> tuple[Sized, ...] | None:
        route = self._routes[call.rank].get(call.function) or self._route(call.function, call.rank)
        found = [strands.joined(call) for _, strands, _ in route.strands]
        if None in found or any(not column.refuses(call, self._bound) for column, _ in route.alone):
            return None
        return tuple(one for some in found for one in some or ())

    def take(self, call: Call) -> list[Situation]:
        shape = call.shape
        if shape is not None and self in shape.taken:
            route: _Route = shape.taken[self]
        else:
            route = self._routes[call.rank].get(call.function) or self._route(call.function, call.rank)
            if shape is not None:
                route = shape.taken[self] = self._of_shape(route, call)
        found: list[Situation] = []
        for process, strands, asked in route.strands:
            for row in strands.take(call, asked):
                found += self._give(process, row)
        for column in route.whole:
            if some := self._give(column.process, Row(call.rank, column.at, call, None, (-1, call.number))):
                found += some
        for column, opening in route.alone:
            if column.takes(call, self._bound):
                for row in opening.rows(column, call) if opening else [Row(call.rank, column.at, call, None)]:
                    if some := self._give(column.process, row):
                        found += some
        return found

    def _of_shape(self, route: _Route, call: Call) -> _Route:
        """The same without what no call of its shape fills."""
        strands = [(process, strands, strands.asked(call)) for process, strands, _ in route.strands]
        alone, whole = list[tuple[Column, Opening | None]](), list[Column]()
        for column, opening in route.alone:
            if column.refuses(call, self._bound):
                continue
            if opening is not None and column.needs_no(call) and not opening.asks(call):
                whole.append(column)
            else:
                alone.append((column, opening))
        return _Route([one for one in strands if any(one[2])], alone, whole)

    def _route(self, function: str, rank: int) -> _Route:
        plans, absent = self._of[function]
        strands, alone = list[tuple[int, Strands, Asked]](), list[tuple[Column, Opening | None]]()
        for plan in plans:
            if self._may_be(plan.process, rank):
                if plan.single is not None:
                    alone.append((plan.single, plan.opens[plan.single.at]))
                    continue
                key = plan.process, rank
                if key not in self._strands:
                    self._strands[key] = Strands(plan, rank, self._bound, self._room)
                strands.append((plan.process, self._strands[key], plan.of[function]))
        alone += [(each, None) for each in absent if self._may_be(each.process, rank)]
        route = self._routes[rank][function] = _Route(strands, alone, [])
        return route

    def ended(self, rank: int) -> list[Situation]:
        found = list[Situation]()
        for (process, each), strands in self._strands.items():
            if each == rank:
                for row in strands.end():
                    found += self._give(process, row)
        return found

    def finish(self) -> list[Situation]:
        found = [one for rank in range(self._ranks) for one in self.ended(rank)]
        if self._pairs is not None:
            return found + self._pairs.finish()
        if not self._local:
            self._kept.sort()
            for binding in self._joins.bindings(self._kept):
                found += self._joins.rows(self._kept, binding)
        return found

    def _may_be(self, process: int, rank: int) -> bool:
        """Different processes are of different ranks."""
        if not self._bound:
            return True
        return self._bound[process] == rank if process in self._bound else rank not in self._bound.values()

    def _give(self, process: int, row: Row) -> list[Situation]:
        """A strand is there."""
        self._given = row.order = self._given + 1
        if self._pairs is not None:
            return self._pairs.add(row)
        if self._local:
            return self._joins.full({process: row}, {process: row.rank})
        if self._room.take():
            self._kept.add(process, row)
        return []


class _Kept:
    """Strands that wait for the final pass."""

    def __init__(self, variant: Variant) -> None:
        both = [link for one in [*variant.equal, *variant.excused] for link in (one, one.turned()) if not link.same]
        self._compared = {(link.left, link.arg) for link in both} | {(one.column, one.arg) for one in variant.roles}
        self._absent = [each.absent for each in variant.columns]
        self._of = defaultdict[tuple[int, int], list[Row]](list)
        self._not_called = defaultdict[tuple[int, int], list[Row]](list)

    def add(self, process: int, row: Row) -> None:
        for column, arg in self._compared:
            if column in row.calls and (value := row.value(column, arg)) is not None:
                row.late = row.late or value.any or len(value.across) > 1
        if self._absent[row.alone]:
            self._not_called[row.alone, row.rank].append(row)
        else:
            self._of[process, row.rank].append(row)

    def sort(self) -> None:
        """What is late joins last."""
        for rows in [*self._of.values(), *self._not_called.values()]:
            rows.sort(key=lambda one: one.late)

    def of(self, process: int, rank: int) -> list[Row]:
        return self._of.get((process, rank), [])

    def absent(self, column: int, rank: int) -> list[Row]:
        return self._not_called.get((column, rank), [])
