"""What is passed to procedures that are known: pairs of dummy and actual argument, the object of a binding too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safepoint.threads.callees import of_binding
from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.referred import pairs
from safepoint.threads.structure import Stmt
from safepoint.threads.symbols import Procedure, Scope
from safepoint.threads.teams import paths

Passed = tuple[Procedure, list[tuple[str, str]]]


def calls(stmt: Stmt, scope: Scope) -> Iterator[Passed]:
    """Of a CALL; of a binding all that it may stand for."""
    action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
    if type(action).__name__ != "Call_Stmt":
        return
    *objects, name = split_outside(str(action.children[0]), "%")
    given = str(action.children[1]) if action.children[1] is not None else ""
    if objects:
        yield from _bound(name, "%".join(objects), given, scope)
    elif (callee := scope.procedure(name)) is not None:
        yield callee, pairs(callee.arguments, split_outside(given, ","))


def references(stmt: Stmt, scope: Scope) -> Iterator[Passed]:
    """The same of functions."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "''", str(stmt.node))
    for found in re.finditer(r"(?<![\w%])([a-z]\w*)\s*\(", text, re.I):
        symbol, callee = scope.find(found[1]), scope.procedure(found[1])
        if callee is not None and not (symbol and symbol.rank):
            inside = text[found.end() : closing(text, found.end() - 1)]
            yield callee, pairs(callee.arguments, split_outside(inside, ","))
    for path in paths(text) if "%" in text else ():
        *objects, last = split_outside(path, "%")
        name, bracket, given = last.partition("(")
        if bracket:
            yield from _bound(name, "%".join(objects), given.rpartition(")")[0], scope)


def _bound(name: str, object: str, text: str, scope: Scope) -> Iterator[Passed]:
    """The object goes to the first dummy argument, unless that can be none (NOPASS)."""
    for callee in of_binding(name.strip().lower(), scope):
        first = callee.unit.scope.names.get(callee.arguments[0]) if callee.unit and callee.arguments else None
        passes = first is not None and first.type.startswith("type ")
        given = f"{object.strip()},{text}" if passes else text
        yield callee, pairs(callee.arguments, split_outside(given, ","))
