"""A template as `rows` looks for it: columns with their conditions sorted by when they can be asked.

Alternatives (`A && B || C`) become variants: each is looked for by itself. Only where all alternatives of an F are
one called function of the same process (`A || B`) they are one column that takes either. Negated functions of one F
and one process (`A! && B!`) are one column: a call of either is one too many. An Fi with N=2 becomes a column of p1
and one of p2. With N=n(MPI_COMM_WORLD) it becomes one of each process that is named, and one with process EVERY for
all others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from safepoint.check.call import Call, Value
from safepoint.check.template import EVERY, Argument, Condition, Constant, Expression, Item, Process, Template

FLIPPED = {"=": "=", "!=": "!=", "<": ">", ">": "<"}
Known: TypeAlias = "bool | tuple[list[tuple[int | str, bool]], list[Own]]"  # whether a shape fits, or what is left
MOST_SYMMETRIC = 5  # processes of which all orders are tried: more than 120 would take long


class Own(NamedTuple):
    """A condition that one call answers. `right` is a rank where it is a Process."""

    arg: int | str
    sign: str
    right: Process | Constant | int | Argument

    def asked(self) -> Iterator[int | str]:
        yield self.arg
        if isinstance(self.right, Argument):
            yield self.right.name


class Link(NamedTuple):
    """A condition between two columns."""

    left: int
    arg: int | str
    sign: str
    right: int
    other: int | str  # its argument
    same: bool  # both are of the same process

    def turned(self) -> Link:
        return Link(self.right, self.other, FLIPPED[self.sign], self.left, self.arg, self.same)


class Role(NamedTuple):
    """A condition between a column and the rank of another process."""

    column: int
    arg: int | str
    sign: str
    process: int


@dataclass(eq=False)
class Column:
    at: int
    function: int  # the number of its F, or EVERY
    level: int  # F of one process come in the order of their levels
    process: int  # or EVERY: all that have no number
    functions: frozenset[str]
    absent: bool
    every: bool  # of Fi
    text: str
    own: list[Own] = field(default_factory=list)
    # What must equal that of the same process, or not.
    needs: list[tuple[int | str, bool]] = field(default_factory=list)

    def takes(self, call: Call, bound: dict[int, int]) -> bool:
        """Can this call fill the column, by what is known of it alone?"""
        shape = call.shape
        if shape is None:
            return self._fits(call, bound, self.needs, self.own)
        if self in (taken := shape.taken):
            known: Known = taken[self]
        else:
            known = taken[self] = self._known(call, bound)
        return known if known is True or known is False else self._fits(call, bound, *known)

    def refuses(self, call: Call, bound: dict[int, int]) -> bool:
        """No call of this shape can fill it."""
        return call.shape is not None and not self.takes(call, bound) and call.shape.taken[self] is False

    def needs_no(self, call: Call) -> bool:
        """Each call of this shape fills it. To be asked after `refuses`."""
        return call.shape is not None and call.shape.taken.get(self) is True

    def _known(self, call: Call, bound: dict[int, int]) -> Known:
        """Of all calls of its shape: whether they fit, or what is to be asked of each."""
        lasts = call.arguments.lasts
        needs = [one for one in self.needs if not lasts(one[0])]
        own = [one for one in self.own if not all(map(lasts, one.asked()))]
        lasting = [one for one in self.needs if one not in needs], [one for one in self.own if one not in own]
        if not self._fits(call, bound, *lasting):
            return False
        return (needs, own) if needs or own else True

    def _fits(self, call: Call, bound: dict[int, int], needs: list[tuple[int | str, bool]], own: list[Own]) -> bool:
        of = call.arguments.value
        for arg, same in needs:
            value = of(arg)
            if value is None or not (value.any or (value.here if same else value.across)):
                return False
        return not own or all(_answers(call, one, bound) for one in own)


@dataclass
class Variant:
    columns: list[Column]
    equal: list[Link] = field(default_factory=list)  # between columns that are filled: they choose the row
    judged: list[list[Link]] = field(default_factory=list)  # of each list one must hold in a full row
    excused: list[Link] = field(default_factory=list)  # left: a negated column, right: one that is filled
    implied: list[Link] = field(default_factory=list)  # two calls of a process, for both equal the same of another
    roles: list[Role] = field(default_factory=list)
    bound: dict[int, int] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)  # all that have a number
    symmetries: list[dict[int, int]] = field(default_factory=list)

    def filled(self, process: int) -> list[Column]:
        return [each for each in self.columns if not each.absent and each.process == process]

    def canonical(self, ranks: dict[int, int]) -> bool:
        """Of bindings that say the same, only the one with the smallest ranks is looked at."""
        mine = [ranks[process] for process in self.processes]
        return all(mine <= [ranks[each[process]] for process in self.processes] for each in self.symmetries)


def holds(sign: str, left: Value | None, right: Value | None, same: bool) -> bool:
    """On a value that is absent nothing holds."""
    if left is None or right is None:
        return False
    if sign == "=":
        return left.equals(right, same)
    if sign == "!=":
        return left.differs(right, same)
    return not (left.any or right.any) and _ordered(sign, left.number, right.number)


def is_rank(sign: str, value: Value | None, rank: int) -> bool:
    """A value beside the rank of a process."""
    if value is None:
        return False
    if sign == "=":
        return value.any or rank in value.across
    if sign == "!=":
        return not value.any and bool(value.across) and rank not in value.across
    return not value.any and _ordered(sign, value.number, rank)


def _ordered(sign: str, left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and (left < right if sign == "<" else left > right)


def _answers(call: Call, one: Own, bound: dict[int, int]) -> bool:
    value, right = call.value(one.arg), one.right
    if value is None:
        return False
    if isinstance(right, Argument):
        return holds(one.sign, value, call.value(right.name), True)
    if isinstance(right, Process):
        return is_rank(one.sign, value, bound.get(right.number, call.rank))
    if isinstance(right, Constant):
        return (right.name in value.names) == (one.sign == "=") and one.sign in ("=", "!=")
    if one.sign == "=":
        return value.any or value.number == right
    if one.sign == "!=":
        return not value.any and value.number is not None and value.number != right
    return not value.any and _ordered(one.sign, value.number, right)


def variants(template: Template) -> list[Variant]:
    """All alternatives of a template, each by itself."""
    places = _levels(template)
    processes = _processes(template)
    chosen = itertools.product(*(_alternatives(template.functions[number]) for number in places))
    return [_variant(template, dict(zip(places, rows, strict=True)), processes) for rows in chosen]


def _levels(template: Template) -> list[int]:
    """The numbers of F in their order. Fi stands where it is written: after the F before it."""
    order = sorted(number for number in template.functions if number != EVERY)
    if EVERY in template.functions:
        before = list(template.functions)[: list(template.functions).index(EVERY)]
        order.insert(sum(number <= max(before, default=EVERY) for number in order), EVERY)
    return order


def _processes(template: Template) -> list[int]:
    """Those that are named. The rest of N=3 only has Fi, if there is one."""
    items = [item for one in template.functions.values() for row in one for item in row]
    named = {item.process for item in items} | {
        one.right.number for one in template.conditions if isinstance(one.right, Process)
    }
    if EVERY in named and isinstance(template.size, int):
        named |= set(range(1, template.size + 1))
    return sorted((named | set(template.bound)) - {EVERY})


def _alternatives(expression: Expression) -> list[tuple[Item, ...]]:
    only = [row[0] for row in expression if len(row) == 1 and not row[0].absent]
    if len(only) == len(expression) and len({item.process for item in only}) == 1:
        functions = frozenset[str]().union(*(item.functions for item in only))
        return [(Item(only[0].process, functions, ", ".join(item.text for item in only), False),)]
    return list(dict.fromkeys(expression))


def _united(items: Iterable[Item]) -> list[Item]:
    """What is not called in one process is one item."""
    found = list[Item]()
    for item in items:
        at = next((at for at, one in enumerate(found) if one.absent and one.process == item.process), None)
        if item.absent and at is not None:
            one = found[at]
            found[at] = Item(one.process, one.functions | item.functions, f"{one.text}, {item.text}", True)
        else:
            found.append(item)
    return found


def _variant(template: Template, chosen: dict[int, tuple[Item, ...]], processes: list[int]) -> Variant:
    made = Variant([], bound=dict(template.bound), processes=processes)
    for level, (number, items) in enumerate(chosen.items()):
        for item in _united(items):
            every = item.process == EVERY
            whom = [item.process] if not every else [*processes, *([] if isinstance(template.size, int) else [EVERY])]
            for process in whom:
                one = Column(len(made.columns), number, level, process, item.functions, item.absent, every, item.text)
                made.columns.append(one)
    for condition in template.conditions:
        _condition(made, condition)
    for column in made.columns:
        column.needs = list(dict.fromkeys(column.needs))
    made.implied = list(_implied(made))
    if len(processes) <= MOST_SYMMETRIC:
        made.symmetries = list(_symmetries(made))
    return made


def _condition(made: Variant, one: Condition) -> None:
    columns = [each for each in made.columns if each.function == one.left.function]
    if isinstance(one.right, Argument) and (one.right.function != one.left.function or one.left.function == EVERY):
        others = [each for each in made.columns if each.function == one.right.function]
        _between(made, one, one.right, list(itertools.product(columns, others)))
        return
    for column in columns:
        if not isinstance(one.right, Process) or one.right.number in (column.process, *made.bound):
            column.own.append(Own(one.left.name, one.sign, one.right))
        else:
            column.needs.append((one.left.name, False))
            made.roles.append(Role(column.at, one.left.name, one.sign, one.right.number))


def _between(made: Variant, one: Condition, right: Argument, pairs: list[tuple[Column, Column]]) -> None:
    links = list[Link]()
    for left, other in pairs:
        if left.at == other.at and left.process != EVERY:
            continue
        same = left.process == other.process and left.process != EVERY
        link = Link(left.at, one.left.name, one.sign, other.at, right.name, same)
        if one.sign == "=":
            left.needs.append((one.left.name, same))
            other.needs.append((right.name, same))
        if left.absent and not other.absent:
            made.excused.extend([link] if one.sign == "=" else [])
        elif other.absent and not left.absent:
            made.excused.extend([link.turned()] if one.sign == "=" else [])
        elif not left.absent:
            links.append(link)
    if one.sign == "=":
        made.equal += links
    elif EVERY in (one.left.function, right.function):
        some = not all(left.absent for left, _ in pairs) and not all(other.absent for _, other in pairs)
        made.judged += [links] if some else []
    else:
        made.judged += [[link] for link in links]


def _implied(made: Variant) -> Iterator[Link]:
    """`F1(dest)=p2` and `F2(source)=p2` say that the two are equal, whatever rank p2 has. Only so a process finds its
    own calls that go together before it is known which ranks do."""
    among = list[set[tuple[int, int | str]]]()
    links = [link for link in made.equal + made.excused if not link.same]
    both = [{(link.left, link.arg), (link.right, link.other)} for link in links]
    ranks = [{(one.column, one.arg), (-1, one.process)} for one in made.roles if one.sign == "="]
    for some in [*both, *ranks]:
        joined = [one for one in among if one & some]
        among = [one for one in among if not one & some] + [some.union(*joined)]
    for one in among:
        for (left, arg), (right, other) in itertools.permutations(sorted(one, key=str), 2):
            if left >= 0 and right >= 0 and left != right:
                mine, its = made.columns[left], made.columns[right]
                if mine.process == its.process != EVERY and not its.absent:
                    yield Link(left, arg, "=", right, other, False)


# Symmetries: two ranks that have called differently are one situation, not one from each side.


def _symmetries(made: Variant) -> Iterator[dict[int, int]]:
    """Each exchange of unbound processes that leaves the variant what it is, but the one that exchanges none."""
    free = [process for process in made.processes if process not in made.bound]
    here = _said(made, {at: at for at in range(len(made.columns))}, {})
    for order in itertools.permutations(free):
        turned = dict(zip(free, order, strict=True))
        if list(order) != free:
            moved = _moved(made, turned)
            if moved is not None and _said(made, moved, turned) == here:
                yield {process: turned.get(process, process) for process in made.processes}


def _moved(made: Variant, turned: dict[int, int]) -> dict[int, int] | None:
    """Which column takes the place of which."""
    found = dict[int, int]()
    for process in {each.process for each in made.columns}:
        mine = [each for each in made.columns if each.process == process]
        its = [each for each in made.columns if each.process == turned.get(process, process)]
        if [_shape(each, mine) for each in mine] != [_shape(each, its) for each in its]:
            return None
        found |= {one.at: other.at for one, other in zip(mine, its, strict=True)}
    return found


def _shape(column: Column, among: list[Column]) -> tuple[object, ...]:
    levels = sorted({each.level for each in among})
    return column.functions, column.absent, column.every, levels.index(column.level)


def _said(made: Variant, moved: dict[int, int], turned: dict[int, int]) -> set[object]:
    """All conditions, with other columns and processes in their places."""

    def link(one: Link) -> frozenset[object]:
        there = Link(moved[one.left], one.arg, one.sign, moved[one.right], one.other, one.same)
        return frozenset((there, there.turned()))

    own = {
        (moved[each.at], one.arg, one.sign, _put(one.right, turned)) for each in made.columns for one in each.own
    }  # fmt: skip
    roles = {(moved[one.column], one.arg, one.sign, turned.get(one.process, one.process)) for one in made.roles}
    judged = {frozenset(link(one) for one in some) for some in made.judged}
    return {*own, *roles, *map(link, made.equal), *judged, *map(link, made.excused)}


def _put(right: Process | Constant | int | Argument, turned: dict[int, int]) -> object:
    return Process(turned.get(right.number, right.number)) if isinstance(right, Process) else right
