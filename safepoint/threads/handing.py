"""What procedures assign of what is handed to them, beside the arguments of a CALL: the object of a binding or of a
procedure pointer, arguments of functions, and what addresses and pointers in arguments lead to.

Of a procedure whose text is known, the components that it assigns; else what INTENT says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from safepoint.threads.bindings import BOUND, NOPASS, program_of
from safepoint.threads.callees import Callee, candidates
from safepoint.threads.referred import Reference, pairs, references
from safepoint.threads.structure import Stmt
from safepoint.threads.symbols import Procedure, Scope
from safepoint.threads.written import DESIGNATOR, Assigned, compressed, is_action, is_variable, target

Suffixes = set[str]  # components that are assigned, `%n`; the empty one: all of it
ADDRESS = re.compile(r"\b(?:c_)?loc\s*\(\s*(.*)\)\s*$", re.I)
WHOLE: Suffixes = {""}


def handed(stmt: Stmt, scope: Scope) -> list[Assigned]:
    """In the order of the text."""
    if "(" not in stmt.at.text and "%" not in stmt.at.text:
        return []
    if not is_action(stmt) or stmt.kind in ("Format_Stmt", "Entry_Stmt"):
        return []
    found = dict[str, None]()
    for given in references(stmt.node):
        for text, suffixes in _of(given, scope):
            if is_variable(text, scope):
                found |= dict.fromkeys(compressed(text) + each for each in sorted(suffixes))
    return [Assigned(text, "handed") for text in found]


def _of(given: Reference, scope: Scope) -> Iterator[tuple[str, Suffixes]]:
    program = program_of(scope)
    if given.object and not given.call and given.name not in program.bound and given.name not in program.pointers:
        return  # an array
    callees = list(candidates(given, scope))
    known = [each for each in callees if isinstance(each, Procedure) and _is_of(each, given.call)]
    ways = passes(given.name, scope) if given.object else {NOPASS}
    if given.object:
        known = _of_kin(known, ways, given.object, scope) or known
        if given.call and (not known or len(known) < len(callees)) and ways != {NOPASS} and _unknown(callees):
            yield given.object, WHOLE
    for callee in known:
        for way in ways:
            object = _dummy_of(callee, way)
            if object:
                yield given.object, changes(callee, object)
            rest = [name for name in callee.arguments if name != object]
            for dummy, actual in pairs(rest, given.arguments):
                yield from _argument(callee, dummy, actual, given)
    for actual in given.arguments if given.call or known else ():
        if address := ADDRESS.match(actual):
            yield address[1].strip(), WHOLE


def _argument(callee: Procedure, dummy: str, actual: str, given: Reference) -> Iterator[tuple[str, Suffixes]]:
    """Of a CALL it is known what else its arguments are; here, what pointers in them lead to."""
    suffixes = changes(callee, dummy)
    if given.call and callee.intents.get(dummy) != "in":
        return
    if DESIGNATOR.match(actual) and suffixes:
        yield actual, suffixes


def _unknown(callees: list[Callee]) -> bool:
    return not callees or any(not isinstance(each, Procedure) for each in callees)


def _is_of(callee: Procedure, call: bool) -> bool:
    return callee.unit is None or call == (callee.unit.kind != "function")


def passes(name: str, scope: Scope, depth: int = 0) -> set[str]:
    """How the object is passed by what has this name in any type: the name of the dummy argument, empty for the first
    one, NOPASS."""
    program = program_of(scope)
    found = set(program.passes.get(name, ()))
    for _, each in program.bound.get(name, ()):
        if each.startswith(BOUND) and depth < 2:
            found |= passes(each[1:], scope, depth + 1)
    return found or {""}


def _dummy_of(callee: Procedure, way: str) -> str:
    if way == NOPASS:
        return ""
    if way == "":
        return callee.arguments[0] if callee.arguments else ""
    return way if way in callee.arguments else ""


def _of_kin(known: list[Procedure], ways: set[str], object: str, scope: Scope) -> list[Procedure]:
    """Those that take an object of this type, of one that it extends, or of one that extends it."""
    mine = target(object, scope).type
    if not mine.startswith("type "):
        return known
    found = list[Procedure]()
    for callee in known:
        dummies = [_dummy_of(callee, way) for way in ways]
        symbols = [callee.unit.scope.names.get(each) for each in dummies if each] if callee.unit else []
        theirs = [symbol.type[5:] for symbol in symbols if symbol and symbol.type.startswith("type ")]
        if not theirs or any(each in _line(mine[5:], scope) or mine[5:] in _line(each, scope) for each in theirs):
            found.append(callee)
    return found


def _line(name: str, scope: Scope) -> list[str]:
    """A type, and those that it extends."""
    parents, found = program_of(scope).parents, [name]
    while found[-1] in parents and parents[found[-1]][1] not in found:
        found.append(parents[found[-1]][1])
    return found


def changes(callee: Procedure, dummy: str) -> Suffixes:
    """What a procedure assigns of a dummy argument; of one with INTENT(IN), what its pointers lead to."""
    intent = callee.intents.get(dummy, "")
    if callee.unit is None or callee.unit.trouble or intent == "out":
        return WHOLE if intent in ("out", "inout") else set()
    found = changed(callee).get(dummy, set())
    if intent == "in":
        return {each for each in found if each and _is_pointer(dummy + each, callee.unit.scope)}
    if (intent and not found) or re.search(
        rf"(?:=>|\bc_loc\s*\(|\bloc\s*\()\s*{re.escape(dummy)}(?!\w)", _text(callee), re.I
    ):
        return WHOLE
    return WHOLE if "" in found else found


def _is_pointer(text: str, scope: Scope) -> bool:
    parts = text.split("%")
    symbols = [target("%".join(parts[:end]), scope).symbol for end in range(2, len(parts) + 1)]
    return any(symbol and symbol.has("pointer") for symbol in symbols)


def _text(callee: Procedure) -> str:
    from safepoint.threads.sharing import statements

    return "\n".join(stmt.at.text for stmt, _ in statements(callee.unit.body))


def changed(callee: Procedure) -> dict[str, Suffixes]:
    """Of the arguments; while it is asked for, as by a procedure that calls itself, none."""
    if callee.changed is None:
        from safepoint.threads.sharing import assignments, blocks, do_variable  # these ask what is handed

        callee.changed = {}
        found = dict[str, Suffixes]()
        for each in assignments(callee.unit.body, callee.unit.scope):
            if each.root in callee.arguments:
                found.setdefault(each.root, set()).add(_suffix(each.what.text, each.root))
        for block in blocks(callee.unit.body):
            if (name := do_variable(block)) in callee.arguments:
                found.setdefault(name, set()).add("")
        callee.changed = found
    return callee.changed


def _suffix(text: str, root: str) -> str:
    """The components of a designator, without subscripts; none if a name of ASSOCIATE stands for it."""
    while "(" in text:
        text, before = re.sub(r"\([^()]*\)", "", text), text
        if text == before:
            return ""
    first, *rest = (part.strip().lower() for part in text.split("%"))
    return "".join(f"%{part}" for part in rest) if first == root else ""
