"""Random templates, and random calls of a few ranks: small, and full of what is rare."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from safepoint.check.call import Call, Value
from safepoint.check.template import EVERY, Argument, Condition, Constant, Expression, Item, Process, Template

FUNCTIONS = "ABC"
COMMUNICATORS: dict[str, set[int] | None] = {"world": None, "low": {0, 1}, "high": {1, 2}}


@dataclass
class Given:
    """The arguments of a call."""

    values: dict[str, Value | None] = field(default_factory=dict)

    def value(self, name: int | str) -> Value | None:
        return self.values.get(str(name))

    def lasts(self, name: int | str) -> bool:
        return False


def value(*tokens: object, **more: object) -> Value:
    """The same here and across."""
    return Value(frozenset(tokens), frozenset(tokens), **more)  # type: ignore[arg-type]


def call(rank: int, number: int, function: str, *, wild: bool = False, **values: Value | None) -> Call:
    return Call(
        rank,
        number,
        function,
        number,
        number,
        number + 1,
        0,
        wild,
        0,
        Given(values),
    )


def members(one: Value) -> set[int] | None:
    """Of a communicator."""
    for token in one.across:
        if token in ("low", "high"):
            return COMMUNICATORS[str(token)]
    return None


def drawn_template(draw: random.Random) -> Template:
    sizes: list[int | str] = [1, 1, 2, 2, 2, 3, "MPI_COMM_WORLD"]
    size = draw.choice(sizes)
    most = size if isinstance(size, int) else 2
    processes = list(range(1, most + 1)) if draw.random() < 0.8 else [1]
    functions = dict[int, Expression]()
    for number in range(1, draw.choice([1, 2, 2, 3, 3, 4]) + 1):
        functions[number] = drawn_expression(draw, processes)
    if draw.random() < (0.15 if isinstance(size, int) else 0.8):
        where = draw.randrange(len(functions) + 1)
        parts = list(functions.items())
        parts.insert(where, (EVERY, ((drawn_item(draw, EVERY, 0.5),),)))
        if draw.random() < 0.3:
            parts = [parts[where]]
        functions = dict(parts)
    flat = [item for one in functions.values() for row in one for item in row]
    if all(item.absent for item in flat):
        first, *_ = functions
        functions[first] = ((drawn_item(draw, EVERY if first == EVERY else 1, 0.0),),)
    conditions = tuple(
        drawn_condition(draw, list(functions), processes) for _ in range(draw.choice([0, 1, 1, 2, 2, 3]))
    )
    bound = {1: draw.randrange(2)} if draw.random() < 0.1 else {}
    return Template("drawn", "drawn", size, functions, conditions, bound)


def drawn_item(draw: random.Random, process: int, absent: float) -> Item:
    functions = frozenset(draw.sample(FUNCTIONS, draw.choice([1, 1, 1, 2])))
    return Item(process, functions, "".join(sorted(functions)), draw.random() < absent)


def drawn_expression(draw: random.Random, processes: list[int]) -> Expression:
    def item() -> Item:
        return drawn_item(draw, draw.choice(processes), 0.35)

    shape = draw.random()
    if shape < 0.8:
        return ((item(),),)
    if shape < 0.9:
        return ((item(), item()),)
    return (item(),), (item(),)


def drawn_condition(draw: random.Random, functions: list[int], processes: list[int]) -> Condition:
    left = Argument(draw.choice(functions), draw.choice("kkkdcn"))
    kind = draw.random()
    sign = draw.choice(["=", "=", "=", "=", "!=", "<", ">"])
    if kind < 0.7:
        return Condition(left, sign, Argument(draw.choice(functions), left.name), 1)
    if kind < 0.9:
        return Condition(
            Argument(left.function, "d"), "=" if draw.random() < 0.9 else "!=", Process(draw.choice(processes)), 1
        )
    if kind < 0.95:
        return Condition(Argument(left.function, "n"), sign, draw.randrange(2), 1)
    return Condition(left, draw.choice(["=", "!="]), Constant("MPI_X"), 1)


def drawn_calls(draw: random.Random, ranks: int) -> list[list[Call]]:
    clear, wild = draw.random() < 0.4, draw.random() < 0.3
    return [
        [drawn_call(draw, rank, number, ranks, clear, wild) for number in range(draw.randrange(7))]
        for rank in range(ranks)
    ]


def drawn_call(draw: random.Random, rank: int, number: int, ranks: int, clear: bool, may_be_wild: bool) -> Call:
    """`clear`: no arrays, and nothing is absent."""
    wild = may_be_wild and draw.random() < 0.2
    rare = 0.0 if clear else 0.15
    key, other = draw.randrange(3), draw.randrange(ranks)
    values: dict[str, Value | None] = {
        "k": value(key, number=key),
        "d": value(other, number=other),
        "c": value(draw.choice(["world", "world", *(name for name, of in COMMUNICATORS.items() if of and rank in of)])),
        "n": value(number=draw.randrange(3)),
    }
    if draw.random() < rare:
        some = draw.sample(range(3), 2)
        values["k"] = value(*some, each=tuple(value(one, number=one) for one in some) if draw.random() < 0.5 else ())
    if draw.random() < rare:
        values["k"] = Value(frozenset([key]), frozenset(), number=key)
    if wild:
        values[draw.choice("kd")] = value(any=True, names=frozenset(["MPI_X"]))
    for name in "kdcn":
        if draw.random() < rare / 2:
            values[name] = None
    return call(rank, number, draw.choice(FUNCTIONS), wild=wild, **values)
