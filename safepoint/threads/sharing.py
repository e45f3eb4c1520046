"""Data-sharing: what a name is inside the OpenMP constructs around it, by the rules of the standard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safepoint.threads.directives import Directive
from safepoint.threads.handing import handed
from safepoint.threads.lines import split_outside
from safepoint.threads.structure import Around, Block, Construct, Item, Stmt, Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.written import Assigned, assigned, inner_scope

PRIVATE = ("private", "firstprivate", "lastprivate", "linear")
TEAM = ("parallel", "task", "teams", "target")
PROTECTED = ("critical", "atomic", "ordered")
ALONE = {"critical", "atomic", "lock", "ordered", "single", "master", "masked", "task", "taskloop", "workshare",
         "target", "teams"}  # fmt: skip
LOCKS = re.compile(r"call\s+omp_set\w*lock", re.I)


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


def bounds(block: Block) -> list[str]:
    """Lower, upper and step of a DO loop; empty if it has none."""
    found = re.match(r"(?:\w+\s*:\s*)?do\s*(?:\d+\s*,?\s*)?\w+\s*=(.*)", block.open.at.text, re.I)
    parts = [part.strip() for part in split_outside(found[1], ",")] if found else []
    return [*parts, "1"] if len(parts) == 2 else parts


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
            for what in (*assigned(item.node, scope), *handed(item, scope)):
                yield Assignment(what, root_of(what.text, scope), item, scope, around, inside)
        elif isinstance(item, Construct):
            yield from assignments(item.body, scope, (*around, item), inside)
        else:
            inner = inner_scope(item, scope)
            for head, body in item.parts:
                for what in handed(head, scope):
                    yield Assignment(what, root_of(what.text, scope), head, scope, around, inside)
                yield from assignments(body, inner, around, (*inside, (item, head)))


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
    if found is None:
        return ""
    name = found[1].lower()
    symbol = scope.names.get(name) or scope.find(name)
    for attribute in symbol.attributes if symbol else ():
        if attribute.startswith("root:"):
            return attribute[5:]
    return name


def constructs(items: Sequence[Item]) -> Iterator[Construct]:
    for item in items:
        if isinstance(item, Construct):
            yield item
            yield from constructs(item.body)
        elif isinstance(item, Block):
            for _, body in item.parts:
                yield from constructs(body)


def opens_tasks(construct: Construct) -> bool:
    return bool({"task", "taskloop"} & set(construct.directive.construct.split()))


def alone(around: Sequence[Construct], specification: str = "") -> bool:
    """Whether the text says that all teams around are of one thread. `specification`: declarations of the unit."""
    teams = [given.directive for given in around if "parallel" in given.directive.construct.split()]
    return bool(teams) and all(_of_one(given, specification) for given in teams)


def without_single(around: Sequence[Construct], specification: str = "") -> tuple[Construct, ...]:
    """Without the innermost teams of one thread, and what is in them: each belongs to a thread of the team around."""
    left = tuple(around)
    for at in reversed(range(len(left))):
        if "parallel" in left[at].directive.construct.split():
            if not _of_one(left[at].directive, specification):
                break
            left = left[:at]
    return left


def text_of(unit: Unit) -> str:
    """Its declarations, a line for each."""
    return "\n".join(stmt.at.text for stmt in unit.declarations)


def _of_one(given: Directive, specification: str) -> bool:
    clauses = [(each.name, each.argument.lower()) for each in given.clauses]
    many = [text.strip() for name, text in clauses if name == "num_threads"]
    when = [re.sub(r"^\s*parallel\s*:", "", text).strip() for name, text in clauses if name == "if"]
    many, when = ([_constant(text, specification) for text in found] for found in (many, when))
    return any(re.fullmatch(r"0*1(_\w+)?", text) for text in many) or any(
        re.fullmatch(r"\.false\.(_\w+)?", text) for text in when
    )


def _constant(text: str, specification: str) -> str:
    """What a name stands for, if it is a constant of this specification; else the text."""
    text = text.strip("() ")
    if not re.fullmatch(r"[a-z]\w*", text):
        return text
    found = re.search(rf"^.*?\bparameter\b[^\n]*?\b{text}\s*=\s*(\.?\w+\.?)\s*(?=[,)]|$)", specification, re.I | re.M)
    return found[1].lower() if found else text


def protected(around: Sequence[Construct]) -> bool:
    """In a construct that one thread runs at a time, or alone; or where locks are set, which may be for this."""
    if any(set(construct.directive.construct.split()) & ALONE for construct in around):
        return True
    return any(LOCKS.search(stmt.at.text) for construct in around for stmt, _ in statements(construct.body))
