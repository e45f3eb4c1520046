"""The least or greatest value that a loop looks for by an IF: `if (a(i) > big) big = a(i)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from safepoint.threads.sharing import Assignment
from safepoint.threads.structure import Item, Stmt

COMPARED = re.compile(r"(.+?)(>=?|<=?|\.[gl][te]\.)(.+)", re.I)
CONDITION = re.compile(r"(?:\w+:)?(?:else)?if\((.*)\)then(?:\w+)?", re.I)


def advice(given: Assignment) -> str:
    """The clause or construct that such an assignment lacks; empty: it is of another kind."""
    if given.stmt.kind == "If_Stmt":
        condition, body = str(given.stmt.node.children[0]), [given.stmt.node.children[1]]
    elif given.inside and given.inside[-1][1].kind in ("If_Then_Stmt", "Else_If_Stmt"):
        block, head = given.inside[-1]
        found = CONDITION.fullmatch(_bare(head.at.text))
        condition, body = found[1] if found else "", _nodes(next(part for first, part in block.parts if first is head))
    else:
        return ""
    pairs = [_sides(node) for node in body if type(node).__name__ == "Assignment_Stmt"]
    for part in re.split(r"\.and\.", _bare(condition)):
        for name, value in pairs:
            if operator := _operator(part, name, value):
                return f"REDUCTION({operator}:{name})" if len(body) == 1 else "CRITICAL around the IF"
    return ""


def _nodes(items: Sequence[Item]) -> list[Any]:
    """Of the statements; what is none of an IF alone counts as one, too."""
    return [item.node if isinstance(item, Stmt) else None for item in items]


def _sides(node: Any) -> tuple[str, str]:
    return _bare(str(node.children[0])), _bare(str(node.children[2]))


def _bare(text: str) -> str:
    return re.sub(r"\s", "", text).lower()


def _operator(condition: str, name: str, value: str) -> str:
    """max or min, if the condition is that the value is beyond that of the name."""
    found = COMPARED.fullmatch(condition)
    if not found or {found[1], found[3]} != {name, value}:
        return ""
    greater = found[2][0] == ">" or found[2][1:2] == "g"
    return "max" if greater == (found[3] == name) else "min"
