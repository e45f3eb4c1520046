"""What `safepoint.check` must find, by trying: each choice of ranks, each row, each call, without any index.

The rules are those of docs/templates.md. Nothing here comes from `safepoint.check` but what a template and a call are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from safepoint.check.call import Call, Value
from safepoint.check.template import EVERY, Argument, Condition, Constant, Item, Process, Template

Members = Callable[[Value], Iterable[int] | None]
Between = tuple["Column", "int | str", str, "Column", "int | str", Condition]
FLIP = {"=": "=", "!=": "!=", "<": ">", ">": "<"}
NOBODY = Value(frozenset(), frozenset(), any=True)


@dataclass(eq=False)
class Column:
    function: int
    level: int
    process: int
    item: Item
    every: bool


@dataclass(eq=False)
class Row:
    rank: int
    calls: dict[Column, Call]
    element: tuple[Column, int | str, int, Value] | None = None
    ready: int = 0  # when its last F was complete
    lows: list[int] = field(default_factory=lambda: [-1])
    gone: bool = False
    complete: bool = False

    def value(self, column: Column, arg: int | str) -> Value | None:
        if self.element and self.element[0] is column and self.element[1] == arg:
            return self.element[3]
        return self.calls[column].value(arg)


def compare(sign: str, one: Value | None, other: Value | None, same: bool) -> bool:
    if one is None or other is None:
        return False
    if sign == "=":
        return one.equals(other, same)
    if sign == "!=":
        return one.differs(other, same)
    if one.any or other.any or one.number is None or other.number is None:
        return False
    return one.number < other.number if sign == "<" else one.number > other.number


def with_rank(sign: str, value: Value | None, rank: int) -> bool:
    return compare(sign, value, Value(frozenset([rank]), frozenset([rank]), number=rank), False)


def with_number(sign: str, value: Value, number: int) -> bool:
    if sign == "=":
        return value.any or value.number == number
    if value.any or value.number is None:
        return False
    return {"!=": value.number != number, "<": value.number < number, ">": value.number > number}[sign]


def tokens(value: Value, same: bool) -> frozenset[object]:
    return value.here if same else value.across


def items_of(template: Template) -> Iterator[dict[int, list[Item]]]:
    """For each choice of alternatives, the items of each F."""
    rows = []
    for number, expression in template.functions.items():
        flat = [item for row in expression for item in row]
        if len(flat) == len(expression) and not any(i.absent for i in flat) and len({i.process for i in flat}) == 1:
            rows.append([(number, [together(flat)])])
            continue
        rows.append([(number, united(row)) for row in expression])
    yield from map(dict, itertools.product(*rows))


def united(row: Iterable[Item]) -> list[Item]:
    """`A! && B!` of one process is neither."""
    found: dict[object, list[Item]] = {}
    for at, item in enumerate(row):
        found.setdefault(item.process if item.absent else ("called", at), []).append(item)
    return [together(some) for some in found.values()]


def together(items: list[Item]) -> Item:
    functions = frozenset(function for item in items for function in item.functions)
    return Item(items[0].process, functions, ", ".join(item.text for item in items), items[0].absent)


def situations(template: Template, calls: list[list[Call]], members: Members) -> set[tuple[object, ...]]:
    """The keys of all. `calls`: of each rank, in the order in which they are fed."""
    if isinstance(template.size, int) and max(template.size, *template.bound.values(), 0) > len(calls):
        return set()
    found = set[tuple[object, ...]]()
    for items in items_of(template):
        found |= Force(template, items, calls, members).found()
    return found


class Force:
    """One choice of alternatives."""

    def __init__(
        self, template: Template, items: dict[int, list[Item]], calls: list[list[Call]], members: Members
    ) -> None:
        self.template, self.members = template, members
        self.ranks = range(len(calls))
        self.whole = not isinstance(template.size, int)
        named = {i.process for some in items.values() for i in some} | set(template.bound)
        for one in itertools.chain.from_iterable(e for e in template.functions.values()):
            named |= {item.process for item in one}
        named |= {c.right.number for c in template.conditions if isinstance(c.right, Process)}
        if EVERY in named and not self.whole:
            named |= set(range(1, template.size + 1))  # type: ignore[operator]
        self.named = sorted(named - {EVERY})
        self.columns = self.made(items)
        self.between = list(self._both())
        self.strands = functools.cache(self._strands)
        self.own_links = functools.cache(self._own_links)
        self.calls = [self.in_order(some) for some in calls]

    def made(self, items: dict[int, list[Item]]) -> list[Column]:
        written = list(items)
        order = sorted(n for n in written if n != EVERY)
        if EVERY in written:
            before = written[: written.index(EVERY)]
            order.insert(sum(n <= max(before, default=0) for n in order), EVERY)
        found = []
        for level, number in enumerate(order):
            for item in items[number]:
                whom = [item.process] if item.process != EVERY else self.named + [EVERY] * self.whole
                found += [Column(number, level, process, item, item.process == EVERY) for process in whom]
        return found

    def in_order(self, calls: list[Call]) -> list[Call]:
        """A wildcard of which the template asks comes last."""
        late = [c for c in calls if c.wild and any((v := c.value(arg)) and v.any for arg in self.asked(c.function))]
        return [c for c in calls if c not in late] + late

    def asked(self, function: str) -> set[int | str]:
        found = set[int | str]()
        for one in self.template.conditions:
            for side in (one.left, one.right):
                if isinstance(side, Argument) and any(
                    function in item.functions for row in self.template.functions[side.function] for item in row
                ):
                    found.add(side.name)
        return found

    # Conditions, as they are asked of calls.

    def both(self) -> list[Between]:
        return self.between

    def _both(self) -> Iterator[Between]:
        """Between two columns, in both directions."""
        for one in self.template.conditions:
            if not isinstance(one.right, Argument):
                continue
            if one.left.function == one.right.function != EVERY:
                continue
            for left, right in itertools.product(self.columns, repeat=2):
                if left.function == one.left.function and right.function == one.right.function:
                    if left is right and left.process != EVERY:
                        continue
                    yield left, one.left.name, one.sign, right, one.right.name, one
                    yield right, one.right.name, FLIP[one.sign], left, one.left.name, one

    def roles(self) -> Iterator[tuple[Column, int | str, str, int]]:
        for one in self.template.conditions:
            if isinstance(one.right, Process):
                for column in self.columns:
                    if column.function == one.left.function and one.right.number not in (
                        column.process,
                        *self.template.bound,
                    ):
                        yield column, one.left.name, one.sign, one.right.number

    def same(self, left: Column, right: Column) -> bool:
        return left.process == right.process != EVERY

    def fits(self, column: Column, call: Call) -> bool:
        """By what this call says alone."""
        if call.function not in column.item.functions:
            return False
        for left, a, sign, r, _, _ in self.both():
            if left is column and sign == "=":
                value = call.value(a)
                if value is None or not (value.any or tokens(value, self.same(left, r))):
                    return False
        for one in self.template.conditions:
            right, value = one.right, None
            if one.left.function != column.function:
                continue
            value = call.value(one.left.name)
            if isinstance(right, Argument):
                if right.function == column.function != EVERY and not compare(
                    one.sign, value, call.value(right.name), True
                ):
                    return False
            elif value is None:
                return False
            elif isinstance(right, Process):
                if right.number == column.process or right.number in self.template.bound:
                    if not with_rank(one.sign, value, self.template.bound.get(right.number, call.rank)):
                        return False
                elif not (value.any or value.across):
                    return False
            elif isinstance(right, Constant):
                if (right.name in value.names) != (one.sign == "=") or one.sign in "<>":
                    return False
            elif not with_number(one.sign, value, right):
                return False
        return True

    def implied(self, left: Column, arg: int | str, right: Column, other: int | str) -> bool:
        """Both equal the same of another process."""
        edges = [
            ((one, a), (two, o))
            for one, a, sign, two, o, _ in self.both()
            if sign == "=" and not self.same(one, two) and not (one.item.absent and two.item.absent)
        ]
        edges += [((c, a), ("p", p)) for c, a, sign, p in self.roles() if sign == "="]  # type: ignore[misc]
        reached, more = {(left, arg)}, True
        while more:
            new = {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
            more = not new <= reached
            reached |= new
        return (right, other) in reached

    def _own_links(self, column: Column) -> list[tuple[int | str, Column, int | str, bool]]:
        """Equalities with called columns of the same process: argument, column, its argument, by which tokens."""
        found = [
            (a, r, o, True)
            for left, a, sign, r, o, _ in self.both()
            if left is column and sign == "=" and self.same(left, r) and not r.item.absent
        ]
        args = [(c, a) for c, a, *_ in self.roles()] + [
            (left, a) for left, a, sign, r, *_ in self.both() if sign == "="
        ]
        for mine, other in itertools.product(
            {a for c, a in args if c is column}, {(c, a) for c, a in args if c is not column}
        ):
            if self.same(column, other[0]) and not other[0].item.absent and self.implied(column, mine, *other):
                found.append((mine, other[0], other[1], False))
        return list(dict.fromkeys(found))

    def private(self, column: Column) -> bool:
        """What must not be called, where the calls of its process alone say so."""
        if not column.item.absent or column.every or not self.called(column.process):
            return False
        if any(
            left is column and sign == "=" and not r.item.absent and not self.same(left, r)
            for left, _, sign, r, *_ in self.both()
        ):
            return False
        tied = {arg for arg, _, _, same in self.own_links(column) if not same}
        return all(arg in tied for c, arg, *_ in self.roles() if c is column)

    def called(self, process: int) -> list[Column]:
        return [c for c in self.columns if c.process == process and not c.item.absent]

    # One process.

    def _strands(self, process: int, rank: int) -> list[Row]:
        called = self.called(process)
        levels = sorted({c.level for c in called})
        rows, done, before = list[Row](), list[Row](), list[tuple[Column, Call]]()
        absent = [c for c in self.columns if c.process == process and self.private(c)]
        clock = itertools.count(1)
        for call in self.calls[rank]:
            for level in reversed(levels):
                some = [c for c in called if c.level == level and self.fits(c, call)]
                for column in some:
                    waits = [
                        r
                        for r in rows
                        if not r.gone
                        and len(r.lows) - 1 == levels.index(level)
                        and column not in r.calls
                        and r.lows[-1] < call.number
                    ]
                    joined = self.oldest(column, call, waits, self.links_below(column))
                    for row in joined:
                        row.calls[column] = call
                    for row in joined:
                        self.advance(row, levels, called, absent, before, done, next(clock))
                    if joined:
                        break
                else:
                    if some and level == levels[0]:
                        for element in self.elements(some[0], call):
                            row = Row(rank, {some[0]: call}, element, next(clock))
                            rows.append(row)
                            self.advance(row, levels, called, absent, before, done, next(clock))
            for column in absent:
                if self.fits(column, call):
                    self.excuse(column, call, rows, levels)
                    before.append((column, call))
        return [r for r in done if not r.gone]

    def links_below(self, column: Column) -> list[tuple[int | str, Column, int | str, bool]]:
        return [one for one in self.own_links(column) if column.item.absent or one[1].level < column.level]

    def elements(self, column: Column, call: Call) -> list[tuple[Column, int | str, int, Value] | None]:
        for left, arg, sign, *_ in self.both():
            value = call.value(arg)
            if left is column and sign == "=" and value is not None and len(value.each) > 1:
                return [(column, arg, at, element) for at, element in enumerate(value.each)]
        return [None]

    def oldest(
        self, column: Column, call: Call, waits: list[Row], links: list[tuple[int | str, Column, int | str, bool]]
    ) -> list[Row]:
        """For each combination of what the call has, the row that has waited longest."""
        values = [(call.value(arg), other, its, same) for arg, other, its, same in links]
        waits = sorted(waits, key=lambda r: r.ready)
        equal = [r for r in waits if all(compare("=", v, r.value(o, its), same) for v, o, its, same in values)]
        if any(v is not None and v.any for v, *_ in values):
            return equal[:1]
        found = dict[Row, None]()
        for chosen in itertools.product(*(tokens(v, same) for v, _, _, same in values if v is not None)):
            for row in equal:
                theirs = [(row.value(o, its), same) for _, o, its, same in values]
                if all(
                    w is not None and (w.any or t in tokens(w, s)) for t, (w, s) in zip(chosen, theirs, strict=True)
                ):
                    found[row] = None
                    break
        return sorted(found, key=lambda r: r.ready)

    def advance(
        self, row: Row, levels: list[int], called: list[Column], absent: list[Column],
        before: list[tuple[Column, Call]], done: list[Row], now: int,
    ) -> None:  # fmt: skip
        here = [c for c in called if c.level == levels[len(row.lows) - 1]]
        if not all(c in row.calls for c in here):
            return
        row.lows.append(max(row.calls[c].number for c in here))
        row.ready = now
        for column in absent:
            window, asked = self.window(column, levels)
            if asked is None or asked != len(row.lows) - 2:
                continue
            low, high = row.lows[window], row.lows[window + 1]
            for what, call in before:
                if (
                    what is column
                    and low < call.number < high
                    and all(compare("=", call.value(a), row.value(o, i), s) for a, o, i, s in self.own_links(column))
                ):
                    row.gone = True
        row.complete = len(row.lows) - 1 == len(levels)
        if row.complete:
            done.append(row)

    def window(self, column: Column, levels: list[int]) -> tuple[int, int | None]:
        """How many F come before it; and with which F it is known that it was called, if not at once."""
        lower = sum(level < column.level for level in levels)
        needed = max([levels.index(o.level) for _, o, _, _ in self.own_links(column)], default=-1)
        if lower and needed < lower:
            return lower, None
        return lower, max(lower, needed)

    def excuse(self, column: Column, call: Call, rows: list[Row], levels: list[int]) -> None:
        window, asked = self.window(column, levels)
        if asked is not None:
            return
        open_ = [r for r in rows if not r.gone and len(r.lows) - 1 == window and r.lows[-1] < call.number]
        links = self.own_links(column)
        if window == len(levels):
            gone = self.oldest(column, call, open_, links)
        else:
            gone = [r for r in open_ if all(compare("=", call.value(a), r.value(o, i), s) for a, o, i, s in links)]
        for row in gone:
            row.gone = True

    # All processes.

    def late(self, row: Row) -> bool:
        if any(call.wild for call in row.calls.values()):
            return True
        compared = {(left, a) for left, a, sign, r, *_ in self.both() if sign == "=" and not self.same(left, r)}
        compared |= {(c, a) for c, a, *_ in self.roles()}
        values = [row.value(c, a) for c, a in compared if c in row.calls]
        return any(v is not None and (v.any or len(v.across) > 1) for v in values)

    def found(self) -> set[tuple[object, ...]]:
        said, bound, symmetries = set[tuple[object, ...]](), self.template.bound, list(self.symmetries())
        for ranks in itertools.permutations(self.ranks, len(self.named)):
            binding = dict(zip(self.named, ranks, strict=True))
            alike = [[binding[turned.get(p, p)] for p in self.named] for turned in symmetries]
            if all(binding[p] == r for p, r in bound.items()) and all(list(ranks) <= other for other in alike):
                said |= set(self.rows(binding))
        return said

    def symmetries(self) -> Iterator[dict[int, int]]:
        """Processes that can change places: all that is said stays the same with other columns in their places."""
        free = [p for p in self.named if p not in self.template.bound]
        for order in itertools.permutations(free):
            turned = dict(zip(free, order, strict=True))
            if list(order) != free and any(self.alike(turned, to) for to in itertools.permutations(self.columns)):
                yield turned

    def alike(self, turned: dict[int, int], to: tuple[Column, ...]) -> bool:
        moved = dict(zip(self.columns, to, strict=True))
        for one, other in moved.items():
            if turned.get(one.process, one.process) != other.process or one.every != other.every:
                return False
            if (one.item.functions, one.item.absent) != (other.item.functions, other.item.absent):
                return False
        for one, two in itertools.combinations(self.columns, 2):
            mine, its = one.level - two.level, moved[one].level - moved[two].level
            if one.process == two.process and ((mine > 0) != (its > 0) or (mine < 0) != (its < 0)):
                return False
        return self.said({c: c for c in self.columns}, {}) == self.said(moved, turned)

    def said(self, moved: dict[Column, Column], turned: dict[int, int]) -> set[object]:
        found = set[object]()
        for one in self.template.conditions:
            both = [b for b in self.both() if b[5] is one and not (b[0].item.absent and b[3].item.absent)]
            both = [b for b in both if one.sign == "=" or not (b[0].item.absent or b[3].item.absent)]
            links = [(moved[left], a, s, moved[r], o) for left, a, s, r, o, _ in both]
            if one.sign != "=" and isinstance(one.right, Argument) and EVERY in (one.left.function, one.right.function):
                found.add(frozenset(links))
            else:
                found |= set(links)
            if not both and not (isinstance(one.right, Argument) and one.right.function != one.left.function):
                right = one.right
                for c in self.columns:
                    if c.function == one.left.function and isinstance(right, Process):
                        found.add((moved[c], one.left.name, one.sign, "p", turned.get(right.number, right.number)))
                    elif c.function == one.left.function:
                        found.add(
                            (
                                moved[c],
                                one.left.name,
                                one.sign,
                                right if not isinstance(right, Argument) else right.name,
                            )
                        )
        return found

    def plays(self, row: Row, binding: dict[int, int]) -> bool:
        return all(with_rank(s, row.value(c, a), binding[p]) for c, a, s, p in self.roles() if c in row.calls)

    def parts(self, process: int, rank: int, binding: dict[int, int]) -> list[Row]:
        some = sorted(self.strands(process, rank), key=self.late)
        return [row for row in some if self.plays(row, binding)]

    def rows(self, binding: dict[int, int]) -> Iterator[tuple[object, ...]]:
        """Rows as dictionaries: process, or -1 - rank, to its strand."""
        others = [rank for rank in self.ranks if rank not in binding.values()]
        whom = [(p, p, binding[p]) for p in self.named if self.called(p)]
        whom += [(-1 - rank, EVERY, rank) for rank in others if self.called(EVERY)]
        rows: list[dict[int, Row]] = [{}]
        for at, (name, process, rank) in enumerate(whom):
            rows = list(self.met(rows, name, process, rank, binding, first=at == 0))
        for row in rows:
            if row:
                yield from self.told(row, rows, binding)

    def met(
        self, rows: list[dict[int, Row]], name: int, process: int, rank: int, binding: dict[int, int], first: bool
    ) -> Iterator[dict[int, Row]]:
        there = self.parts(process, rank, binding)
        fresh = [{name: one} for one in there if rank == min(self.scope({name: one}, self.called(EVERY)), default=rank)]
        if first:
            yield from fresh if process == EVERY else ({name: one} for one in there)
            return
        taken = dict[int, Row]()
        needs = [at for at, row in enumerate(rows) if process != EVERY or rank in self.scope(row, self.called(EVERY))]
        for one in there:
            for at in self.meeting(one, [(at, rows[at]) for at in needs if at not in taken]):
                taken[at] = one
        for at, row in enumerate(rows):
            if at in taken:
                yield {**row, name: taken[at]}
            elif at not in needs:
                yield row
        if process == EVERY and not any(self.called(each) for each in self.named):
            yield from fresh  # only Fi: the first that should take part begins

    def meeting(self, one: Row, rows: list[tuple[int, dict[int, Row]]]) -> list[int]:
        """Which rows this strand joins."""

        def values(row: dict[int, Row]) -> list[tuple[Value | None, Value | None]]:
            pairs = []
            for left, a, sign, r, o, _ in self.both():
                if sign == "=" and left in one.calls and not r.item.absent and not self.same(left, r):
                    owner = self.owner(row, r)
                    if owner:
                        pairs.append((one.value(left, a), owner[0].value(r, o)))
            return pairs

        equal = [(at, values(row)) for at, row in rows]
        equal = [(at, pairs) for at, pairs in equal if all(compare("=", v, w, False) for v, w in pairs)]
        if not equal or any(v is not None and v.any for v, _ in equal[0][1]):
            return [at for at, _ in equal[:1]]
        found = dict[int, None]()
        for chosen in itertools.product(*(v.across for v, _ in equal[0][1] if v is not None)):
            for at, pairs in equal:
                if all(w is not None and (w.any or t in w.across) for t, (_, w) in zip(chosen, pairs, strict=True)):
                    found[at] = None
                    break
        return list(found)

    def owner(self, row: dict[int, Row], column: Column) -> list[Row]:
        return [strand for strand in row.values() if column in strand.calls]

    def scope(self, row: dict[int, Row], columns: list[Column]) -> set[int]:
        """Who could call it: if communicators are compared, their members."""
        found = set(self.ranks)
        for left, _, sign, r, o, _ in self.both():
            if sign == "=" and left in columns and not r.item.absent and not self.same(left, r):
                for strand in self.owner(row, r)[:1]:
                    value = strand.value(r, o)
                    some = self.members(value) if value is not None else None
                    found &= found if some is None else set(some)
        return found

    def used(self, column: Column, rank: int, rows: list[dict[int, Row]], binding: dict[int, int]) -> set[int]:
        """Of the rows those that a call in this column excuses."""
        levels = sorted({c.level for c in self.called(column.process)}) if not column.every else []
        window = sum(level < column.level for level in levels)
        calls = [Row(rank, {column: call}) for call in self.calls[rank] if self.fits(column, call)]
        found = set[int]()
        for one in sorted(calls, key=self.late):
            if not self.plays(one, binding):
                continue
            open_ = []
            for at, row in enumerate(rows):
                number = one.calls[column].number
                lows = [*(row[column.process].lows if levels else [-1]), float("inf")]
                if at not in found and lows[window] < number < lows[window + 1] and rank in self.scope(row, [column]):
                    open_.append((at, row))
            if window == len(levels):
                found |= set(self.excusing(column, one, open_))
            else:
                found |= {
                    at for at, row in open_ if all(compare("=", v, w, s) for v, w, s in self.beside(column, one, row))
                }
        return found

    def beside(self, column: Column, one: Row, row: dict[int, Row]) -> list[tuple[Value | None, Value | None, bool]]:
        return [
            (
                one.value(column, a),
                self.owner(row, r)[0].value(r, o) if self.owner(row, r) else NOBODY,
                self.same(left, r),
            )
            for left, a, sign, r, o, _ in self.both()
            if left is column and sign == "=" and not r.item.absent
        ]

    def excusing(self, column: Column, one: Row, rows: list[tuple[int, dict[int, Row]]]) -> list[int]:
        equal = [(at, self.beside(column, one, row)) for at, row in rows]
        equal = [(at, some) for at, some in equal if all(compare("=", v, w, s) for v, w, s in some)]
        if not equal or any(v is not None and v.any for v, _, _ in equal[0][1]):
            return [at for at, _ in equal[:1]]
        found = dict[int, None]()
        for chosen in itertools.product(*(tokens(v, s) for v, _, s in equal[0][1] if v is not None)):
            for at, some in equal:
                if all(
                    w is not None and (w.any or t in tokens(w, s)) for t, (_, w, s) in zip(chosen, some, strict=True)
                ):
                    found[at] = None
                    break
        return list(found)

    def told(
        self, row: dict[int, Row], rows: list[dict[int, Row]], binding: dict[int, int]
    ) -> Iterator[tuple[object, ...]]:
        at = next(at for at, one in enumerate(rows) if one is row)
        others = [rank for rank in self.ranks if rank not in binding.values()]
        missing, asked = set[int](), False
        for column in self.columns:
            if not column.item.absent or self.private(column):
                continue
            whom = [binding[column.process]] if column.process != EVERY else others
            for rank in whom:
                inside = rank in self.scope(
                    row, [c for c in self.columns if c.every and c.item.absent] if column.every else [column]
                )
                used = at in self.used(column, rank, rows, binding)
                if column.every:
                    asked = True
                    missing |= {rank} if inside and not used else set()
                elif used or not inside:
                    return
        if (asked and not missing) or not self.judged(row):
            return
        cells, shown = list[tuple[object, ...]](), False
        for column in self.columns:
            if not column.item.absent:
                cells += [
                    (
                        column.function,
                        column.process,
                        (s.rank,),
                        s.calls[column].number,
                        s.calls[column].function,
                        self.which(s, column),
                    )
                    for s in self.owner(row, column)
                ]
            elif not column.every:
                cells.append((column.function, column.process, (binding[column.process],), -1, column.item.text, -1))
            elif not shown:
                cells.append((EVERY, EVERY, tuple(sorted(missing)), -1, column.item.text, -1))
                shown = True
        yield self.template.id, tuple(cells), tuple(sorted(binding.items()))

    def which(self, row: Row, column: Column) -> int:
        """Of an array that has begun it."""
        return row.element[2] if row.element and row.element[0] is column else -1

    def judged(self, row: dict[int, Row]) -> bool:
        for one in self.template.conditions:
            right = one.right
            if one.sign == "=" or not isinstance(right, Argument) or right.function == one.left.function != EVERY:
                continue
            results = []
            for left, a, sign, r, o, what in self.both():
                if (
                    what is one
                    and (left.function, a, sign) == (one.left.function, one.left.name, one.sign)
                    and not (left.item.absent or r.item.absent)
                ):
                    for x, y in itertools.product(self.owner(row, left), self.owner(row, r)):
                        if x is not y or left is not r:
                            results.append(compare(sign, x.value(left, a), y.value(r, o), self.same(left, r)))
            sides = [[c for c in self.columns if c.function == f] for f in (one.left.function, right.function)]
            if any(all(c.item.absent for c in side) for side in sides):
                continue
            if EVERY in (one.left.function, right.function):
                if not any(results):
                    return False
            elif not all(results):
                return False
        return True
