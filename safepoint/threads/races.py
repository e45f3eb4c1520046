"""What looks wrong before any run, with its line: assignments that all threads share.

(1) No warning on a program that is right: a thing is told only if the text leaves no way in which it could be.
(2) What a condition on the iteration may guard, what locks protect, and constants are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from safepoint.threads.extremes import advice
from safepoint.threads.flows import flows
from safepoint.threads.known import guarded, is_constant
from safepoint.threads.lines import Source
from safepoint.threads.nests import heads
from safepoint.threads.precision import short_sums
from safepoint.threads.reaching import reached
from safepoint.threads.sharing import (
    PRIVATE,
    Assignment,
    alone,
    assignments,
    blocks,
    constructs,
    do_variable,
    loop_variables,
    protected,
    statements,
    status,
    text_of,
    without_single,
)
from safepoint.threads.structure import Block, Construct, Stmt, Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.written import THREADS, called, compressed, names_in, target

EQUAL = re.compile(r"(?<![<>/=])==|\.eq\.|\bselect\b|\.eqv\.", re.I)
ACCUMULATES = re.compile(r"([-+*])|\b(max|min|iand|ior|ieor)\s*\(|(\.and\.|\.or\.)", re.I)


def warnings(unit: Unit, scope: Scope, source: Source) -> list[tuple[int, str]]:
    """Lines of the file, in order."""
    found = list[tuple[int, str]]()
    for at, text in [*_shared(unit, scope), *_loop_variables(unit), *_called(unit, scope, source), *flows(unit, scope),
                     *short_sums(unit, scope)]:  # fmt: skip
        found.append((source.lines[at].line, text))
    return list(dict.fromkeys(found))


def _shared(unit: Unit, scope: Scope) -> Iterator[tuple[int, str]]:
    """Shared variables that are assigned in a parallel loop without protection."""
    told = set[tuple[int, str]]()
    cache: dict[int, frozenset[str]] = {}
    constants = text_of(unit)
    for given in assignments(unit.body, scope):
        outer = without_single(given.around, constants)
        loop = _loop(outer) or _loop(given.around)
        if loop is None or protected(given.around) or given.what.way not in ("assignment", "call", "pointer"):
            continue
        if alone(given.around, constants):
            continue
        if any(status(given.root, each, given.scope) not in ("shared", "outside") for each in (given.around, outer)):
            continue
        given = given._replace(around=outer)
        if given.what.way == "call" and (
            given.what.intent not in ("out", "inout")
            or "(" in given.what.text
            or guarded(given.stmt, given.root, scope)
        ):
            continue
        if id(loop) not in cache:
            cache[id(loop)] = _varying(loop, scope)
        if (id(loop), given.root) not in told and _is_race(given, loop, cache[id(loop)]):
            told.add((id(loop), given.root))
            yield given.stmt.first, _text(given, loop)


def _loop(around: Sequence[Construct]) -> Construct | None:
    """The innermost loop that threads share; none if a team of its own is inside it."""
    for construct in reversed(around):
        words = construct.directive.construct.split()
        if "do" in words:
            return construct
        if "parallel" in words:
            return None
    return None


def _varying(loop: Construct, scope: Scope) -> frozenset[str]:
    """Names whose values differ between iterations: loop variables, and all that is assigned inside, but variables of
    inner loops whose bounds are the same in each iteration."""
    found = set(loop_variables(loop)) | {given.root for given in assignments([loop], scope)}
    inner = [block for block in blocks(loop.body) if block.is_do and do_variable(block) not in found]
    before = -1
    while before != len(found):
        before = len(found)
        for block in inner:
            bounds = block.open.at.text.partition("=")[2]
            if set(names_in(bounds)) & found or re.search(r"\w\s*\(", bounds):
                found.add(do_variable(block))
    return frozenset(found)


def _is_race(given: Assignment, loop: Construct, varying: frozenset[str]) -> bool:
    if is_constant(given) or (given.what.way == "pointer" and "(" in given.what.text):
        return False
    text = compressed(given.what.text)
    inside = text.partition("(")[2]
    if names_in(text)[:1] != [given.root] or _associated(given):
        return False
    known = target(text, given.scope)
    if known.symbol is None or known.symbol.has("pointer") or "type of" in known.why or "is a function" in known.why:
        return False
    if known.rank and given.what.way == "call":
        return False
    names = set(names_in(inside))
    if names & varying or names & THREADS or re.search(r"[a-z_]\w*\(", inside, re.I):
        return False
    if any(status(name, given.around, given.scope) not in ("shared", "outside", "local")
           and name not in _sequential(loop) for name in names):  # fmt: skip
        return False  # a private variable that was set before the loop, as by the number of a thread
    return not _guarded(given, loop, varying)


def _associated(given: Assignment) -> bool:
    """A name of ASSOCIATE, which may be that of its own selector."""
    name, scope = names_in(given.what.text)[0], given.scope
    symbol = scope.names.get(name) or scope.find(name)
    return symbol is not None and any(attribute.startswith("root:") for attribute in symbol.attributes)


def _sequential(loop: Construct) -> set[str]:
    return {do_variable(block) for block in blocks(loop.body) if block.is_do}


def _guarded(given: Assignment, loop: Construct, varying: frozenset[str]) -> bool:
    """A condition may let one iteration through only."""
    heads = [head.at.text for block, head in given.inside if not block.is_do and block.first > loop.first]
    if given.stmt.kind == "If_Stmt":
        heads.append(given.stmt.at.text)
    for block, head in given.inside:
        if head is not block.open and block.first > loop.first:
            heads += [other.at.text for other, _ in block.parts]
    return any(EQUAL.search(head) and set(names_in(head)) & varying for head in heads)


def _text(given: Assignment, loop: Construct) -> str:
    name = given.root
    node = given.stmt.node.children[1] if given.stmt.kind == "If_Stmt" else given.stmt.node
    where = "in a parallel loop, outside critical and atomic"
    if type(node).__name__ == "Assignment_Stmt" and "(" not in given.what.text:
        right = str(node.children[2])
        if name in names_in(right) and (how := ACCUMULATES.search(right)):
            operator = (how[1] or how[2] or how[3]).replace("-", "+").lower()
            return f"{name} is shared and accumulated {where}: a race; is REDUCTION({operator}:{name}) missing?"
    kind = compressed(given.what.text).lower()
    if kind == name and (lacks := advice(given)):
        return f"{name} is shared and assigned {where}: a race; is {lacks} missing?"
    if kind != name:
        return f"{kind} is shared and assigned by each iteration {where}: a race"
    return f"{name} is shared and assigned {where}: a race; is it to be PRIVATE?"


def _loop_variables(unit: Unit) -> Iterator[tuple[int, str]]:
    """Of inner loops, that a SHARED clause names."""
    for construct in constructs(unit.body):
        shared = set(construct.directive.names("shared"))
        if not shared or not set(construct.directive.construct.split()) & {"parallel", "task"}:
            continue
        for block, around in _loops(construct):
            name = do_variable(block)
            if name not in shared or protected(around) or alone(_teams(unit, construct, around), text_of(unit)):
                continue
            own = any(name in (*inner.directive.names(*PRIVATE), *loop_variables(inner)) for inner in around)
            if not own:
                yield block.first, f"{name} is shared, and the variable of a loop that each thread runs: a race"


def _teams(unit: Unit, construct: Construct, around: Sequence[Construct]) -> list[Construct]:
    """With those around the construct itself."""
    outside = [
        given for given in constructs(unit.body) if given.first < construct.first and given.last >= construct.last
    ]
    return [*outside, *around]


def _loops(construct: Construct) -> Iterator[tuple[Block, tuple[Construct, ...]]]:
    """DO loops inside, with the constructs around them, this one first."""

    def below(items: Sequence[object], around: tuple[Construct, ...]) -> Iterator[tuple[Block, tuple[Construct, ...]]]:
        for item in items:
            if isinstance(item, Block):
                if item.is_do:
                    yield item, around
                for _, body in item.parts:
                    yield from below(body, around)
            elif isinstance(item, Construct):
                yield from below(item.body, (*around, item))

    yield from below(construct.body, (construct,))


def _called(unit: Unit, scope: Scope, source: Source) -> Iterator[tuple[int, str]]:
    """Procedures that a region calls, with variables that all its threads share."""
    told, constants = set[tuple[str, str]](), text_of(unit)
    for stmt, around in statements(unit.body):
        around = around[:-1] if around and stmt.first in heads(around[-1]) else around
        words = {word for construct in around for word in construct.directive.construct.split()}
        if "parallel" not in words or protected(around) or alone(around, constants):
            continue
        for procedure in reached(called(stmt.node), scope):
            for race in procedure.races:
                if race.constant or (procedure.name, race.name) in told or (not race.saved and "do" not in words):
                    continue
                told.add((procedure.name, race.name))
                home, line = "saved" if race.saved else "of a module or COMMON", source.lines[stmt.first].line
                text = f"{race.name} in {procedure.name} is {home}, so all threads share it, and is assigned there,"
                text += f" outside critical and atomic; a region calls {procedure.name} (line {line}): a race"
                yield _at(stmt, race.file, race.line, source), text


def _at(stmt: Stmt, file: str, line: int, source: Source) -> int:
    """The line of the assignment, if it is in this source; else that of the call."""
    for number, given in enumerate(source.lines):
        if given.line == line and given.file == file:
            return number
    return stmt.first
