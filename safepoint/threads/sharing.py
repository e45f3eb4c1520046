"""Data-sharing: what a name is inside the OpenMP constructs around it, by the rules of the standard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safepoint.threads.structure import Block, Construct, Item, Stmt
from safepoint.threads.symbols import Scope
from safepoint.threads.written import THREADS, TIMES, Assigned, assigned, inner_scope, names_in, target

PRIVATE = ("private", "firstprivate", "lastprivate", "linear")
TEAM = ("parallel", "task", "teams", "target")
PROTECTED = ("critical", "atomic", "ordered")


class Assignment(NamedTuple):
    """Something that is assigned inside `around`, the constructs from the outside to the inside. `inside`: the blocks
    around it, with the statement that leads to it (an `else if`)."""

    what: Assigned
    root: str
    stmt: Stmt
    scope: Scope
    around: tuple[Construct, ...]
    inside: tuple[tuple[Block, Stmt], ...]


def status(name: str, around: Sequence[Construct], scope: Scope) -> str:
    """private, firstprivate, lastprivate, reduction, shared, threadprivate, local (of this procedure, outside of all
    constructs), outside (an argument, of a module or COMMON, or saved, in a procedure that a region may call)."""
    symbol = scope.find(name)
    if symbol and symbol.home == "block":
        return "private"
    if scope.is_threadprivate(name):
        return "threadprivate"
    for construct in reversed(around):
        given = construct.directive
        for clause in given.clauses:
            if name in clause.names and clause.name in (*PRIVATE, "reduction"):
                both = clause.name == "firstprivate" and name in given.names("lastprivate")
                return "lastprivate" if both else "private" if clause.name == "linear" else clause.name
        if name in loop_variables(construct):
            return "private"
        if not any(word in given.construct.split() for word in TEAM):
            continue
        if name in given.names("shared"):
            return "shared"
        if name in _sequential(construct):
            return "private"
        if given.default in ("private", "firstprivate") and not (symbol and symbol.has("parameter")):
            return given.default
        if "parallel" in given.construct.split():
            return "shared"
    if symbol is None:
        return "shared" if around else "outside"
    if symbol.home or symbol.has("dummy", "save", "initial") or scope.saved or scope.parent_has(name):
        return "outside"
    return "local"


def reaches_out(name: str, around: Sequence[Construct], scope: Scope) -> bool:
    """Whether what is assigned inside is seen after the outermost construct."""
    left = list(around)
    while left:
        given = status(name, left, scope)
        if given in ("private", "firstprivate", "threadprivate"):
            return False
        while left:
            passed = left.pop().directive
            if name in passed.names("reduction", "lastprivate") or "parallel" in passed.construct.split():
                break
    return True


def loop_variables(construct: Construct) -> list[str]:
    """Of the loops that a construct takes."""
    found, items = list[str](), construct.body
    if construct.directive.construct == "ordered" or not (construct.body and isinstance(construct.body[-1], Block)):
        return []
    words = construct.directive.construct.split()
    if not {"do", "simd", "loop", "taskloop", "distribute"} & set(words):
        return []
    for _ in range(max(1, construct.directive.collapse)):
        loop = next((item for item in items if isinstance(item, Block) and item.is_do), None)
        if loop is None:
            break
        found.append(do_variable(loop))
        items = loop.body
    return found


def do_variable(block: Block) -> str:
    """Of a DO loop; empty for `do while` and `do concurrent`."""
    found = re.match(r"(?:\w+\s*:\s*)?do\s*(?:\d+\s*,?\s*)?(\w+)\s*=", block.open.at.text, re.I)
    return found[1].lower() if found else ""


_cache: dict[int, tuple[Construct, frozenset[str]]] = {}


def _sequential(construct: Construct) -> frozenset[str]:
    """Variables of DO loops anywhere in a construct: these are private."""
    if id(construct) not in _cache or _cache[id(construct)][0] is not construct:
        names = frozenset(do_variable(block) for block in blocks(construct.body) if block.is_do)
        _cache[id(construct)] = construct, names - {""}
    return _cache[id(construct)][1]


def forget() -> None:
    """The constructs of one source are not needed for the next one."""
    _cache.clear()


def blocks(items: Sequence[Item]) -> Iterator[Block]:
    for item in items:
        if isinstance(item, Block):
            yield item
            for _, body in item.parts:
                yield from blocks(body)
        elif isinstance(item, Construct):
            yield from blocks(item.body)


def assignments(items: Sequence[Item], scope: Scope, around: tuple[Construct, ...] = (),
                inside: tuple[tuple[Block, Stmt], ...] = ()) -> Iterator[Assignment]:  # fmt: skip
    """All that is assigned, in order."""
    for item in items:
        if isinstance(item, Stmt):
            for what in assigned(item.node, scope):
                yield Assignment(what, root_of(what.text, scope), item, scope, around, inside)
        elif isinstance(item, Construct):
            yield from assignments(item.body, scope, (*around, item), inside)
        else:
            inner = inner_scope(item, scope)
            for head, body in item.parts:
                yield from assignments(body, inner, around, (*inside, (item, head)))


Around = tuple[Construct, ...]


def statements(items: Sequence[Item], around: Around = ()) -> Iterator[tuple[Stmt, Around]]:
    """All statements, the first ones of blocks too, with the constructs around them."""
    for item in items:
        if isinstance(item, Stmt):
            yield item, around
        elif isinstance(item, Construct):
            yield from statements(item.body, (*around, item))
        else:
            for head, body in item.parts:
                yield head, around
                yield from statements(body, around)


def root_of(text: str, scope: Scope) -> str:
    """The variable of a designator; for a name of ASSOCIATE, what it stands for."""
    found = re.match(r"\s*(\w+)", text)
    name = found[1].lower() if found else ""
    symbol = scope.names.get(name) or scope.find(name)
    for attribute in symbol.attributes if symbol else ():
        if attribute.startswith("root:"):
            return attribute[5:]
    return name


class Uncertain(NamedTuple):
    """Names in a unit whose values need not be the same in two right runs: what clocks and numbers of threads make.
    `rounded`: scalars that depend on a sum or product of reals, which is a reduction."""

    times: frozenset[str]
    threads: frozenset[str]
    rounded: frozenset[str]


def uncertain(items: Sequence[Item], scope: Scope, sums: set[str]) -> Uncertain:
    """What is assigned from clocks and thread numbers, from `sums`, and from what is assigned from that."""
    given = [(found, _source(found)) for found in assignments(items, scope)]
    rounded = _tainted(given, sums, "") | sums if sums else frozenset[str]()
    return Uncertain(_tainted(given, TIMES, ""), _tainted(given, THREADS, "integer"), rounded)


def sums_in(items: Sequence[Item], scope: Scope) -> set[str]:
    """Variables of reductions whose value depends on the order."""
    found = set[str]()
    for construct in constructs(items):
        for clause in construct.directive.clauses:
            if clause.name == "reduction" and re.match(r"\s*(\w+\s*,\s*)?[-+*]\s*:", clause.argument):
                known = [(name, scope.find(name)) for name in clause.names]
                found |= {name for name, symbol in known if symbol is None or symbol.type in ("real", "complex", "")}
    return found


def constructs(items: Sequence[Item]) -> Iterator[Construct]:
    for item in items:
        if isinstance(item, Construct):
            yield item
            yield from constructs(item.body)
        elif isinstance(item, Block):
            for _, body in item.parts:
                yield from constructs(body)


def _source(found: Assignment) -> tuple[list[str], bool]:
    """The names that a value is made of, and whether a call makes it."""
    node = found.stmt.node
    action = node.children[1] if type(node).__name__ == "If_Stmt" else node
    if type(action).__name__ == "Assignment_Stmt":
        return names_in(str(action.children[2])), False
    if type(action).__name__ == "Call_Stmt":
        return [str(action.children[0]).lower()], True
    return [], False


Made = Sequence[tuple[Assignment, tuple[list[str], bool]]]


def _tainted(given: Made, sources: set[str], kind: str) -> frozenset[str]:
    """Only scalars, and only of that type if one is given: an array is not excluded as a whole."""
    found, before = set[str](), -1
    while len(found) != before:
        before = len(found)
        for assignment, (names, call) in given:
            known = target(assignment.what.text, assignment.scope)
            scalar = known.whole and known.rank == 0 and (not kind or known.type in (kind, "logical"))
            if scalar and any(name in sources or (name in found and not call) for name in names):
                found.add(assignment.root)
    return frozenset(found)


def order_names(construct: Construct, scope: Scope) -> dict[str, str]:
    """What the order of threads makes inside of a construct: its reduction variables, and what is shared and assigned in
    critical or atomic. What work-sharing constructs in a region have inside is theirs: after them it is settled."""
    found = dict.fromkeys(construct.directive.names("reduction"), "reduction")
    alone = construct.directive.construct == "parallel"
    for assignment in assignments([construct], scope):
        kinds = [around.directive.construct for around in assignment.around]
        if alone and any(set(kind.split()) & {"do", "sections", "single", "parallel"} for kind in kinds[1:]):
            continue
        way = next((kind for kind in kinds if kind in ("critical", "atomic")), "")
        given = status(assignment.root, assignment.around, assignment.scope)
        if way and given in ("shared", "outside"):
            found.setdefault(assignment.root, way)
    return found
