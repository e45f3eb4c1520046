"""The calls in a statement as they are written: the procedure, the object that it is a component of, the arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside

WORDS = {"if", "while", "case", "select", "type", "class", "is", "rank", "where", "elsewhere", "forall", "concurrent",
         "allocate", "deallocate", "nullify", "write", "read", "print", "open", "close", "inquire", "backspace",
         "rewind", "endfile", "flush", "wait", "associate", "call", "stop", "error", "return", "data", "goto", "to",
         "real", "integer", "logical", "complex", "character", "format", "critical", "local"}  # fmt: skip
STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")


class Reference(NamedTuple):
    """`object`: what is before the `%`. `text` has the arguments from `at` on. `call`: by CALL; else of a function, or
    an element of an array."""

    name: str
    object: str
    text: str
    at: int
    call: bool

    @property
    def arguments(self) -> list[str]:
        if not self.text.startswith("(", self.at):
            return []
        inside = self.text[self.at + 1 : closing(self.text, self.at)]
        return [part.strip() for part in split_outside(inside, ",")] if inside.strip() else []


def plain(node: Any) -> str:
    """The text, without strings."""
    return STRINGS.sub("0", str(node))


def references(node: Any) -> Iterator[Reference]:
    """In the order of the text, a CALL first."""
    action = node.children[1] if type(node).__name__ == "If_Stmt" else node
    if type(action).__name__ == "Call_Stmt":
        yield _of_call(action)
    text = operands(node)
    assigned = str(action.children[0]).split("(")[0].lower() if type(action).__name__ == "Assignment_Stmt" else ""
    for found in re.finditer(r"(%\s*|(?<!\w))([a-z]\w*)\s*(?=\()", text, re.I):
        name = found[2].lower()
        if found[1]:
            yield Reference(name, _before(text, found.start()), text, found.end(), False)
        elif name not in WORDS and name != assigned:
            yield Reference(name, "", text, found.end(), False)


def operands(node: Any) -> str:
    """The text without strings, and without the name that a CALL has."""
    action = node.children[1] if type(node).__name__ == "If_Stmt" else node
    if type(action).__name__ != "Call_Stmt":
        return plain(node)
    condition, call = plain(node.children[0]) if action is not node else "", _of_call(action)
    return f"{condition} ; {call.object} ; {call.text}"


def _of_call(node: Any) -> Reference:
    *objects, name = split_outside(str(node.children[0]), "%")
    given = f"({plain(node.children[1])})" if node.children[1] is not None else ""
    return Reference(name.strip().lower(), "%".join(part.strip() for part in objects), given, 0, True)


def _before(text: str, end: int) -> str:
    """The designator that ends there."""
    start = end
    while True:
        at = len(text[:start].rstrip())
        if text[:at].endswith(")"):
            at = len(text[: _opening(text, at - 1)].rstrip())
        start = len(re.sub(r"\w+$", "", text[:at]))
        before = text[:start].rstrip()
        if not before.endswith("%"):
            return text[start:end].strip()
        start = len(before) - 1


def _opening(text: str, at: int) -> int:
    """The place of the parenthesis that the one there closes."""
    depth = 0
    while at >= 0:
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            break
        at -= 1
    return max(at, 0)


def pairs(dummies: list[str], arguments: list[str]) -> list[tuple[str, str]]:
    """Of dummy and actual arguments; an empty dummy where there is none."""
    found = list[tuple[str, str]]()
    for number, part in enumerate(arguments):
        keyword = re.match(r"\s*(\w+)\s*=(?!=)", part)
        dummy = keyword[1].lower() if keyword else (dummies[number : number + 1] or [""])[0]
        found.append((dummy, part[keyword.end() :].strip() if keyword else part.strip()))
    return found
