"""Programs of regions drawn by hypothesis, in which each value is written once: a change has one right place."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from safepoint.threads import kinds
from testbed.threads_written import Digest, Event, Loop, Record, Region, Sections, Statement, Table, Within, Write

Plan = tuple[Any, ...]  # what to do, and what to do in it

_leaf = st.sampled_from([("write",), ("write",), ("critical",), ("atomic",), ("call",)])


def _in_iteration(inner: bool) -> Any:
    more = [_leaf, st.just(("ordered",))]
    if inner:
        more.append(st.tuples(st.just("region"), st.lists(_of_team(False), max_size=3), st.just([])))
    return st.lists(st.one_of(*more), max_size=3)


def _of_team(inner: bool, alike: bool = True) -> Any:
    body = _in_iteration(inner)
    more = [
        _leaf,
        st.just(("barrier",)),
        st.tuples(st.just("loop"), st.integers(0, 6), st.sampled_from([1, -2]), body),
        st.tuples(st.just("plane"), st.integers(1, 3), body),
        st.tuples(st.just("sections"), st.lists(body, max_size=3)),
        st.tuples(st.just("single"), st.lists(_leaf, max_size=2)),
        st.tuples(st.just("master"), st.lists(_leaf, max_size=2)),
    ]
    if inner and alike:
        more.append(st.tuples(st.just("region"), st.lists(_of_team(False), max_size=2), st.just([])))
    return st.one_of(*more)


def plans(inner: bool = True, alike: bool = True) -> Any:
    """Sequential code with regions in it; `inner`: with nested ones too; `alike`: also such that each thread enters."""
    after = st.lists(st.sampled_from([("write",), ("digest",)]), max_size=2)
    region = st.tuples(st.just("region"), st.lists(_of_team(inner, alike), max_size=5), after)
    return st.lists(st.one_of(region, region, st.just(("write",)), st.just(("call",))), max_size=5)


def program(plan: Sequence[Plan], path: str = "p", item: Any = "") -> list[Statement]:
    """The description of a plan."""
    return [statement(each, f"{path}.{number}", item) for number, each in enumerate(plan)]


def value(path: str, item: Any) -> float:
    return float(zlib.crc32(f"{path} {item}".encode())) + 0.5


def statement(plan: Plan, path: str, item: Any) -> Statement:
    what, *rest = plan
    number = value(path, item)
    if what == "write":
        return Write(f"v{path}", number)
    if what == "digest":
        return Digest(f"d{path}", (7, int(number), 5))
    if what == "barrier":
        return Event(kinds.BARRIER, path)
    if what == "critical":
        return Within(kinds.CRITICAL, [Write(f"k{path}", number), Write("m", 0.0, loose="critical")], path)
    if what == "atomic":
        return Within(kinds.ATOMIC, [Write(f"a{path}", number)], path)
    if what == "call":
        return Within(kinds.CALL, [Write(f"v{path}", number)], path)
    if what == "ordered":
        return Within(kinds.ORDERED, [Write(f"v{path}", number)], path)
    if what == "loop":
        count, step, body = rest
        return Loop("j", range(3, 3 + count * step, step), lambda j: program(body, path, f"{item},{j}"))
    if what == "plane":
        size, body = rest
        return Loop("i,j", (range(size), range(4, 1, -1)), lambda ij: program(body, path, f"{item},{ij}"))
    if what == "sections":
        return Sections([program(body, f"{path}.{number}", item) for number, body in enumerate(rest[0])])
    if what in ("single", "master"):
        return Within(kinds.SINGLE if what == "single" else kinds.MASTER, program(rest[0], path, item), path)
    body, after = rest
    return Region(program(body, path, item), program(after, f"{path}.after", item), path)


def changeable(table: Table, files: list[list[Record]]) -> list[tuple[int, int]]:
    """File and record of each write whose value counts, and whose place is no chance."""
    names = {number: name for (type, name), number in table.numbers.items() if type == "variable-write"}
    return [
        (file, at)
        for file, records in enumerate(files)
        for at, record in enumerate(records)
        if record[3] == kinds.WRITE and names[record[0]].startswith("v")
    ]


def event(records: list[Record], at: int) -> int:
    """The number of the event that a record is, from 1."""
    return sum(record[3] != kinds.MORE for record in records[:at]) + 1
