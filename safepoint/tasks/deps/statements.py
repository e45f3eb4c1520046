"""Statements of one function, what each reads and writes, and what binds two of them to their order.

A *place* is what a statement may read or write: a variable, an object, memory, the output. Two accesses meet if they
are to the same place, or if one is to any place of a group and the other to one of it: a call may write whatever the
rest of the program can reach.

(1) Two statements that no dependence binds may change places: whatever the function gives back, changes or prints is
    the same. A reader who cannot know a place says a wider one, never none.
(2) What may end the function early, by an exception or otherwise, keeps its order with what others can see.
(3) What ends it for certain, or steers it (`return`, `goto`, `await`), keeps its order with every statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

IMPORT = "import"  # a kind of statement
FLOW, ANTI, OUTPUT = "flow", "anti", "output"  # out-in, in-out, out-out
MEMORY, NAMES, CELLS = "memory", "names", "cells"  # groups: what a pointer, what a call may reach; what a call may read
WORLD = "the world"  # files, terminals, clocks: its order is seen from outside
LEAVING = "leaving"  # the label of what (2) and (3) bind
ANY = "*"  # the label of any place


@dataclass(frozen=True)
class Access:
    """Of one place. `group` "": nothing but this place's own names reach it. `sure` False: it may be so, or not."""

    place: str
    label: str  # as it is shown
    group: str = ""
    sure: bool = True
    shown: bool = True  # False: the name alone, which a declaration gives its meaning

    @property
    def wide(self) -> bool:
        """It may be to any place of its group."""
        return self.place == self.group

    def meets(self, other: Access) -> bool:
        return self.place == other.place or (self.group != "" and self.group == other.group
                                             and (self.wide or other.wide))  # fmt: skip


@dataclass
class Effects:
    """What a statement does, as it is being read."""

    reads: dict[Access, None] = field(default_factory=dict)
    writes: dict[Access, None] = field(default_factory=dict)
    leaves: bool = False  # rule (3)
    raises: bool = False  # rule (2)

    def touch(self, access: Access) -> None:
        """It cannot be told whether it is read or written."""
        self.reads[access] = self.writes[access] = None

    @property
    def visible(self) -> bool:
        """Something is changed that outlives the function, or that others see before it ends."""
        return any(access.group or access.place == WORLD for access in self.writes)


@dataclass
class Statement:
    """`kind` is "" for a simple one, else "loop", "if", "with", …; `weight` counts operations, 100 for each loop."""

    line: int
    end: int
    text: str
    kind: str
    weight: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    leaves: bool
    raises: bool
    visible: bool

    @property
    def inputs(self) -> list[str]:
        return shown(self.reads)

    @property
    def outputs(self) -> list[str]:
        return shown(self.writes)


@dataclass(frozen=True)
class Dependence:
    """Statement number `target` must come after number `source`."""

    kind: str
    label: str
    source: int
    target: int


@dataclass
class Analysis:
    """Of one function, or of one opened statement of it. `shared`: how many pairs have inputs in common (in-in);
    `alike`: how many of those nothing binds.

    `imported`: names of modules, and of what comes from them. `opened`: names that only `with` binds. Of neither can a
    vertex hand the value to another one.
    """

    file: str
    language: str
    function: str
    inside: int
    parameters: list[str]
    statements: list[Statement]
    imported: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    dependences: list[Dependence] = field(default_factory=list)
    levels: list[list[int]] = field(default_factory=list)
    shared: int = 0
    alike: int = 0

    def __post_init__(self) -> None:
        self.dependences, self.shared, self.alike = _dependences(self.statements)
        self.levels = _levels(len(self.statements), self.dependences)

    def independent(self, first: int, second: int) -> bool:
        """No dependence binds these two directly: side by side they may change places."""
        pair = {first, second}
        return not any({found.source, found.target} == pair for found in self.dependences)


def shown(accesses: Iterable[Access]) -> list[str]:
    """Labels in the order of reading, each once; `?` if one of its accesses is not sure."""
    found: dict[str, bool] = {}
    for access in accesses:
        if access.shown:
            found[access.label] = found.get(access.label, True) and access.sure
    return [label if sure else f"{label}?" for label, sure in found.items()]


def statement(line: int, end: int, text: str, kind: str, weight: int, done: Effects) -> Statement:
    return Statement(
        line, end, text, kind, max(weight, 1), tuple(done.reads), tuple(done.writes), done.leaves, done.raises,
        done.visible,
    )  # fmt: skip


def _dependences(statements: list[Statement]) -> tuple[list[Dependence], int, int]:
    found, shared, alike = dict[Dependence, None](), 0, 0
    for target, late in enumerate(statements):
        for source, early in enumerate(statements[:target]):
            bound = list(_between(early, late))
            for kind, label in bound:
                found[Dependence(kind, label, source, target)] = None
            common = any(True for _ in _meeting(early.reads, late.reads))
            shared, alike = shared + common, alike + (common and not bound)
    return list(found), shared, alike


def _between(early: Statement, late: Statement) -> Iterable[tuple[str, str]]:
    for kind, one, other in ((FLOW, early.writes, late.reads), (ANTI, early.reads, late.writes),
                             (OUTPUT, early.writes, late.writes)):  # fmt: skip
        yield from ((kind, label) for label in _reasons(_joint(a, b) for a, b in _meeting(one, other)))
    if early.leaves or (early.raises and late.visible):
        yield FLOW, LEAVING
    if late.leaves or (late.raises and early.visible):
        yield ANTI, LEAVING


def _reasons(labels: Iterable[str]) -> list[str]:
    """The plain ones, if there are any: one that two names may share adds nothing to them."""
    found = list(dict.fromkeys(labels))
    plain = [label for label in found if "~" not in label and label != ANY]
    return plain or [label for label in found if label != ANY] or found


def _meeting(one: tuple[Access, ...], other: tuple[Access, ...]) -> Iterable[tuple[Access, Access]]:
    if _keys(one).isdisjoint(_keys(other)):  # most pairs: this is for functions of hundreds of statements
        return ()
    return ((a, b) for a in one for b in other if a.meets(b))


@lru_cache(maxsize=4096)
def _keys(accesses: tuple[Access, ...]) -> frozenset[str]:
    return frozenset(key for access in accesses for key in (access.place, access.group) if key)


def _joint(a: Access, b: Access) -> str:
    """`b~a`: two names of what may be one place."""
    if a.label == b.label:
        return a.label
    if ANY in (a.label, b.label):
        return (a if b.label == ANY else b).label
    return f"{a.label}~{b.label}"


def _levels(count: int, dependences: list[Dependence]) -> list[list[int]]:
    """Statements of a level need only those of the levels before it."""
    depth = [0] * count
    for found in dependences:  # in the order of their targets, and each source is before its target
        depth[found.target] = max(depth[found.target], depth[found.source] + 1)
    return [[n for n in range(count) if depth[n] == level] for level in range(max(depth, default=-1) + 1)]
