"""What is assigned and cannot be digested: through addresses and local pointers, by NAMELIST, and what chance gives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safepoint.threads.callees import stated
from safepoint.threads.controls import chances, group
from safepoint.threads.referred import references
from safepoint.threads.sharing import assignments, reaches_out, root_of
from safepoint.threads.structure import Construct, Stmt, Unit
from safepoint.threads.symbols import Procedure, Scope, Symbol
from safepoint.threads.written import DESIGNATOR, is_action, is_variable, target

POINTS = re.compile(r"(\w+)\s*(?:\([^()]*\))?\s*=>\s*(.+)$")
ADDRESSED = re.compile(r"\bc_f_pointer\s*\([^,]*(?:\([^()]*\))?,\s*(\w+)", re.I)


def unseen(given: Construct, scope: Scope) -> Iterator[tuple[int, str]]:
    """Of the statements of a region: the number of the line, and why."""
    for stmt, where, around in stated([given], scope):
        action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
        for text, why in chances(action):
            if reaches_out(root_of(text, where), around, where):
                yield stmt.first, f"{text} is in no digest, as {why}"
        if name := group(action):
            yield stmt.first, f"what NAMELIST {name} has is in no digest, as READ gives it values"
        for text in _addresses(stmt, where):
            yield stmt.first, f"what {text} leads to is in no digest, as it is an address"
    for each in assignments([given], scope):
        symbol = each.scope.find(each.root)
        if each.what.way in ("pointer", "status") or symbol is None or not symbol.has("pointer"):
            continue
        if not reaches_out(each.root, each.around, each.scope):
            yield each.stmt.first, f"what {each.root} leads to is in no digest, as it is a pointer of each thread"


def _addresses(stmt: Stmt, scope: Scope) -> Iterator[str]:
    """Arguments that are addresses."""
    if not is_action(stmt):
        return
    for given in references(stmt.node):
        for actual in given.arguments if not given.name.startswith("c_") else ():
            if is_variable(actual, scope) and target(actual, scope).type == "type c_ptr":
                yield actual


def hidden(given: Procedure) -> Iterator[str]:
    """Why what a procedure assigns through its own pointers is in no digest."""
    if given.unit is not None:
        for name in sorted(led(given.unit)[1]):
            yield f"what {name} of {given.name} leads to is in no digest, as it is a pointer that any address is given"


def led(unit: Unit) -> tuple[set[str], set[str]]:
    """The variables to which the local pointers lead that a procedure assigns through; the pointers of which nobody
    knows it."""
    scope: Scope = unit.scope
    written = {each.root for each in assignments(unit.body, scope) if each.what.way not in ("pointer", "status")}
    own = {name for name in written if _is_local_pointer(scope.names.get(name), scope)}
    given = [(stmt.at.text, where) for stmt, where, _ in stated(unit.body, scope)] if own else []
    roots, unknown = set[str](), set[str]()
    waiting = sorted(own)
    while waiting:
        name = waiting.pop()
        for text, where in given:
            if (found := ADDRESSED.search(text)) and found[1].lower() == name:
                unknown.add(name)
            points = POINTS.search(text)
            if points is None or points[1].lower() != name:
                continue
            if not DESIGNATOR.match(points[2]) or not is_variable(points[2].strip(), where):
                unknown |= set() if points[2].lower().startswith("null") else {name}
            elif (root := root_of(points[2], where)) not in roots:
                roots.add(root)
                waiting += [root] if _is_local_pointer(scope.names.get(root), scope) else []
    return roots, unknown


def _is_local_pointer(symbol: Symbol | None, scope: Scope) -> bool:
    return bool(symbol and symbol.has("pointer") and not symbol.has("dummy", "save", "initial") and not symbol.home)
