"""What looks wrong before any run: values that a private variable has not, and loops that do not wait."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.reaching import reached
from safepoint.threads.reading import reads_of
from safepoint.threads.sharing import (
    alone,
    assignments,
    blocks,
    bounds,
    constructs,
    do_variable,
    loop_variables,
    root_of,
    statements,
    status,
    text_of,
)
from safepoint.threads.structure import Block, Construct, Item, Stmt, Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.written import assigned, called, compressed, inner_scope, names_in

WAITS = {"barrier", "single", "sections", "do", "do simd", "workshare"}
READ, WRITTEN, UNCLEAR = "read", "written", "unclear"


def flows(unit: Unit, scope: Scope) -> Iterator[tuple[int, str]]:
    """Numbers of lines and texts."""
    found = list(constructs(unit.body))
    for construct in found:
        yield from _unset(unit, construct, scope)
        yield from _lost(unit, construct, scope)
        if alone([construct], text_of(unit)):
            continue  # it waits for nobody, and is the first thread itself
        if "parallel" in construct.directive.construct.split():
            yield from _copied(unit, construct, scope)
        if construct.directive.construct == "parallel":
            yield from _waits(construct.body, construct, scope)


def _unset(unit: Unit, construct: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """PRIVATE scalars whose first use, on every way through the construct, is a read."""
    for name in construct.directive.names("private"):
        symbol = scope.find(name)
        if symbol is None or symbol.rank or not symbol.intrinsic or name in loop_variables(construct):
            continue
        if symbol.has("allocatable", "pointer") or symbol.type == "character":
            continue
        how, at = first_use(construct.body, name, scope)
        if how == READ:
            before = [given for given in assignments(unit.body, scope)
                      if given.root == name and given.stmt.first < construct.first]  # fmt: skip
            hint = "; is it to be FIRSTPRIVATE?" if before else ""
            yield at, f"{name} is PRIVATE and read before it is written: it has no value there{hint}"


def _lost(unit: Unit, construct: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """Private variables that are assigned in a construct and read after it."""
    names = construct.directive.names("private")
    kept = set(construct.directive.names("lastprivate", "reduction", "copyprivate"))
    inside = {given.root for given in assignments(construct.body, scope)}
    rest = after(unit.body, construct)
    for name in dict.fromkeys(names):
        if name in inside and name not in kept and rest is not None:
            how, at = first_use(rest, name, scope)
            if how == READ:
                before = construct.directive.construct.upper()
                yield at, f"{name} is read here, and what {before} assigned to its private {name} is lost; LASTPRIVATE?"


def after(items: Sequence[Item], construct: Construct) -> list[Item] | None:
    """What follows a construct in its unit; None if it is not in these items. Nothing if a construct around it makes
    another variable of that name."""
    for number, item in enumerate(items):
        rest = list(items[number + 1 :])
        if item is construct:
            return rest
        bodies = [body for _, body in item.parts] if isinstance(item, Block) else (
            [item.body] if isinstance(item, Construct) else [])  # fmt: skip
        for body in bodies:
            if (inner := after(body, construct)) is not None:
                return inner + rest
    return None


def first_use(items: Sequence[Item], name: str, scope: Scope) -> tuple[str, int]:
    """Whether a scalar is first read, first written, or neither for certain; and in which line."""
    for item in items:
        if isinstance(item, Stmt):
            found = _in_statement(item, name, scope)
        elif isinstance(item, Block):
            found = _in_block(item, name, scope)
        else:
            if any(name in clause.names for clause in item.directive.clauses if clause.name != "shared"):
                return UNCLEAR, item.first
            if name in names_in(" ".join(str(clause) for clause in item.directive.clauses if clause.name != "shared")):
                return READ, item.first
            found = first_use(item.body, name, scope)
        if found[0]:
            return found
    return "", 0


def _in_statement(stmt: Stmt, name: str, scope: Scope) -> tuple[str, int]:
    node = stmt.node
    if stmt.kind == "If_Stmt":
        text = stmt.at.text
        condition = text[: closing(text, text.index("(")) + 1]
        if name in _read(node.children[0], scope):
            return READ, stmt.first
        return (UNCLEAR if name in names_in(text[len(condition) :] + condition) else "", stmt.first)
    if name in _read(node, scope) and not stmt.at.conditional:
        return READ, stmt.first
    if name in [root_of(what.text, scope) for what in assigned(node, scope)]:
        return WRITTEN, stmt.first
    return (UNCLEAR if name in names_in(stmt.at.text) or stmt.at.label else "", stmt.first)


def _in_block(block: Block, name: str, scope: Scope) -> tuple[str, int]:
    head = block.open
    if name in _read(head.node, scope):
        return READ, head.first
    if block.is_do and do_variable(block) == name:
        return WRITTEN, head.first
    if name in names_in(head.at.text):
        return UNCLEAR, head.first
    inner = inner_scope(block, scope)
    if inner is not scope and name in inner.names:
        return "", 0
    if block.is_do or head.kind in ("Block_Stmt", "Associate_Stmt"):
        return first_use(block.body, name, inner)
    for other, body in block.parts:
        if name in names_in(other.at.text) or first_use(body, name, inner)[0]:
            return UNCLEAR, other.first
    return "", 0


def _read(node: object, scope: Scope) -> list[str]:
    return [text.lower() for text in reads_of(node, scope, frozenset())]


def _copied(unit: Unit, construct: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """Variables of THREADPRIVATE that the first thread has set before, and a region reads without COPYIN."""
    given = construct.directive.names("copyin")
    earlier = [found for found in assignments(unit.body, scope) if found.stmt.first < construct.first]
    outside = dict.fromkeys(found.root for found in earlier if not found.around)
    inside = {found.root for found in earlier if found.around}
    for name in outside:
        symbol = scope.find(name)
        if not scope.is_threadprivate(name) or name in inside or symbol is None:
            continue
        if name in given or symbol.home in given or symbol.has("parameter", "initial"):
            continue
        how, at = first_use(construct.body, name, scope)
        if how == READ or (not how and symbol.home and (at := _read_by_calls(construct, name, symbol.home, scope))):
            yield at, (f"{name} is THREADPRIVATE: here each thread has its own value, not what the first thread was "
                       f"given before; is COPYIN({name}) missing?")  # fmt: skip


def _read_by_calls(construct: Construct, name: str, home: str, scope: Scope) -> int:
    """The line of the first call whose procedure reads a name of a module or COMMON and does not assign it."""
    for stmt, _ in statements(construct.body):
        for procedure in reached(called(stmt.node), scope):
            if (name, home) in procedure.reads and (name, home) not in procedure.writes:
                return stmt.first
    return 0


def _waits(items: Sequence[Item], region: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """Loops with NOWAIT, and those behind them before all threads have met."""
    open_loops = list[Construct]()
    for item in items:
        if isinstance(item, Block) and item.is_do:
            yield from _waits(item.body, region, scope)
        if not isinstance(item, Construct):
            if isinstance(item, Stmt) and any(reached([name], scope) for name in called(item.node)):
                open_loops.clear()  # it may wait in there
            continue
        name = item.directive.construct
        if name in ("do", "do simd"):
            for earlier in open_loops:
                yield from _reads_early(earlier, item, region, scope)
        nowait = (item.end or item.directive).argument("nowait") is not None or (
            item.directive.argument("nowait") is not None
        )
        if name in ("do", "do simd") and nowait:
            open_loops.append(item)
        elif name in WAITS and not nowait:
            open_loops.clear()


def _reads_early(first: Construct, second: Construct, region: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """Both run over the same numbers, and use all of an array but by the loop variables: an element is the same
    thread's in both only if they are static and index alike."""
    ranges = [_range(given) for given in (first, second)]
    if ranges[0] != ranges[1] or not ranges[0]:
        return
    written = dict[str, set[str]]()
    for given in assignments(first.body, scope):
        if status(given.root, (region, first), scope) in ("shared", "outside") and "(" in given.what.text:
            path, subscript = _path(given.what.text, first)
            written.setdefault(path, set()).add(subscript)
    static = all((given.directive.argument("schedule") or "static").lower().startswith("static")
                 for given in (first, second)) and _schedule(first) == _schedule(second)  # fmt: skip
    for stmt, _ in statements(second.body):
        for text in designators(stmt.at.text):
            path, subscript = _path(text, second)
            if "" in (*written.get(path, ("",)), subscript) or (static and written[path] == {subscript}):
                continue
            yield stmt.first, (f"{path} is used here and assigned by the loop before, which has NOWAIT: another thread "
                               "may not have done that yet")  # fmt: skip
            return


def _schedule(given: Construct) -> str:
    return re.sub(r"\s", "", given.directive.argument("schedule") or "static").lower()


def _range(given: Construct) -> list[str]:
    block = next((block for block in blocks(given.body) if block.is_do), None)
    return [re.sub(r"\s", "", text).lower() for text in bounds(block)] if block else []


def designators(text: str) -> Iterator[str]:
    """Names with subscripts, with their components."""
    for found in re.finditer(r"(?<![\w%])[a-z]\w*(?=\s*[(%])", re.sub(r"'[^']*'|\"[^\"]*\"", "''", text), re.I):
        at, end = found.start(), found.end()
        while (more := re.compile(r"\s*(%\s*\w+|\()").match(text, end)) is not None:
            end = closing(text, more.end() - 1) + 1 if more[1] == "(" else more.end()
        if "(" in text[at:end]:
            yield text[at:end]


def _path(text: str, loop: Construct) -> tuple[str, str]:
    """Without subscripts; and the subscript that has the loop variable, by its place. Empty if there is none, or if
    another subscript is neither a section nor the variable of an inner loop: loops may then use different elements."""
    text = compressed(text).lower()
    path = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", text))
    inner, own = {do_variable(block) for block in blocks(loop.body) if block.is_do}, loop_variables(loop)[:1]
    if text.count("(") != 1 or not own:
        return path, ""
    found = ""
    for place, part in enumerate(split_outside(text.partition("(")[2].rpartition(")")[0], ",")):
        if own[0] in names_in(part):
            found = f"{place}:{part.strip()}" if part.strip() != own[0] else f"{place}:#"
        elif part.strip() not in inner and ":" not in part:
            return path, ""
    return path, found
