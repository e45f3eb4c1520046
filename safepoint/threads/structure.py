"""A Fortran source as a tree of units, blocks, statements and OpenMP constructs, each with its lines.

fparser reads the statements alone, one a line, so its line numbers are theirs. It knows no directives: these are put
between the statements by line, and a construct has in it what stands between it and its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

from safepoint.threads.directives import Directive, is_alone, is_loop, parse
from safepoint.threads.lines import Source, Statement

DECLARATIVE = {"threadprivate", "declare reduction", "declare simd", "declare target", "requires"}
MIDDLE = {"Else_If_Stmt", "Else_Stmt", "Case_Stmt", "Type_Guard_Stmt", "Elsewhere_Stmt", "Masked_Elsewhere_Stmt"}
UNITS = {
    "Main_Program": "program", "Main_Program0": "program", "Module": "module", "Submodule": "module",
    "Subroutine_Subprogram": "subroutine", "Function_Subprogram": "function", "Block_Data": "data",
    "Separate_Module_Subprogram": "separate",
}  # fmt: skip


class Unreadable(Exception):
    """What cannot be parsed, and in which line of the file."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Confused(Exception):
    """A directive that does not fit the statements around it; `at`: its first line's number."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


class Stmt(NamedTuple):
    """A statement; `node` is fparser's."""

    node: Any
    at: Statement

    @property
    def first(self) -> int:
        return self.at.first

    @property
    def last(self) -> int:
        return self.at.last

    @property
    def kind(self) -> str:
        return type(self.node).__name__


@dataclass
class Block:
    """A construct of Fortran: `parts` are its first statement and the `else`s and `case`s, each with what follows.
    `close` is None if the last statement is one of the body, or of an inner loop too (`do 10 … 10 a(i) = 0`)."""

    parts: list[tuple[Stmt, list[Item]]]
    close: Stmt | None = None
    last: int = 0

    @property
    def open(self) -> Stmt:
        return self.parts[0][0]

    @property
    def body(self) -> list[Item]:
        return self.parts[0][1]

    @property
    def first(self) -> int:
        return self.open.first

    @property
    def is_do(self) -> bool:
        return self.open.kind in ("Nonlabel_Do_Stmt", "Label_Do_Stmt")


@dataclass
class Construct:
    """An OpenMP construct: its directive, what is in it, and its end, if that is written."""

    directive: Directive
    body: list[Item] = field(default_factory=list)
    end: Directive | None = None

    @property
    def first(self) -> int:
        return self.directive.first

    @property
    def last(self) -> int:
        inside = self.body[-1].last if self.body else self.directive.last
        return self.end.last if self.end else inside


Item = Union[Stmt, Block, Construct]  # noqa: UP007 - of classes that name it
Around = tuple[Construct, ...]


@dataclass
class Unit:
    """A program unit or procedure. `specification`: fparser's node, or None. `trouble`: why the body could not be
    taken apart, with its line's number."""

    kind: str
    name: str
    node: Any
    open: Stmt | None
    close: Stmt
    specification: Any
    declarations: list[Stmt] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    body: list[Item] = field(default_factory=list)
    inside: list[Unit] = field(default_factory=list)
    contains: Stmt | None = None
    trouble: Confused | None = None
    scope: Any = None  # of `symbols`

    @property
    def first(self) -> int:
        if self.open:
            return self.open.first
        return min([item.first for item in (*self.declarations, *self.body)], default=self.close.first)


def units(source: Source) -> list[Unit]:
    """Raises `Unreadable`."""
    from fparser.common.readfortran import FortranStringReader
    from fparser.two.parser import ParserFactory
    from fparser.two.utils import FparserException

    kept = [statement for statement in source.statements if not re.match(r"include\s*['\"]", statement.text, re.I)]
    if not kept:
        return []
    text = "\n".join(f"{statement.label} {statement.text}" for statement in kept) + "\n"
    reader = FortranStringReader(text, ignore_comments=True)
    try:
        tree = ParserFactory().create(std="f2008")(reader)
    except (FparserException, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        at = kept[int(found[1]) - 1].first if found else 0
        raise Unreadable(source.lines[at].line, "fparser cannot parse " + _said(str(error))) from error
    reading = _Reading(source, kept)
    return [reading.unit(node) for node in tree.children if type(node).__name__ in UNITS]


def _said(text: str) -> str:
    found = re.search(r">>>(.*)", text)
    return f"`{found[1].strip()}`" if found else "it"


class _Reading:
    def __init__(self, source: Source, kept: list[Statement]) -> None:
        self.kept = kept
        known = {"omp": parse, "sp": lambda text, first, last: Directive("sp", (), False, "", first, last, text)}
        self.directives = [known[given.kind](given.text, given.first, given.last) for given in source.sentinels]

    def stmt(self, node: Any) -> Stmt:
        return Stmt(node, self.kept[node.item.span[0] - 1])

    def unit(self, node: Any) -> Unit:
        parts = {type(child).__name__: child for child in node.children}
        first, last = node.children[0], node.children[-1]
        opener = self.stmt(first) if getattr(first, "item", None) is not None else None
        text = opener.at.text if opener else ""
        name = re.search(r"\b(?:subroutine|function|procedure)\s+(\w+)", text, re.I)
        name = name or re.search(r"\b(?:program|module|submodule\s*\([\w\s:]*\))\s+(\w+)", text, re.I)
        unit = Unit(UNITS[type(node).__name__], name[1].lower() if name else "", node, opener, self.stmt(last),
                    parts.get("Specification_Part") or parts.get("Specification_Part_C1112"))  # fmt: skip
        if unit.specification is not None:
            unit.declarations = [self.stmt(found) for found in _statements(unit.specification)]
        inner = parts.get("Internal_Subprogram_Part") or parts.get("Module_Subprogram_Part")
        if inner is not None:
            unit.contains = self.stmt(inner.children[0])
            unit.inside = [self.unit(child) for child in inner.children if type(child).__name__ in UNITS]
        end = unit.contains.first if unit.contains else unit.close.first
        events = list(_flat(parts["Execution_Part"].children, [])) if "Execution_Part" in parts else []
        self._body(unit, events, end)
        return unit

    def _body(self, unit: Unit, events: list[tuple[str, Any]], end: int) -> None:
        mine = [given for given in self.directives if unit.first < given.first < end]
        unit.directives = [given for given in mine if given.construct in DECLARATIVE]
        start = max([stmt.last for stmt in unit.declarations], default=unit.first)
        rest = [given for given in mine if given.construct not in DECLARATIVE and given.first > start]
        stream = [(role, self.stmt(node) if node is not None else None) for role, node in events]
        try:
            unit.body = _Parser(_merged(stream, rest)).everything()
        except Confused as error:
            unit.trouble = error


def _statements(node: Any) -> Iterator[Any]:
    """The statements below a node, in order."""
    if getattr(node, "item", None) is not None:
        yield node
        return
    for child in getattr(node, "children", None) or ():
        if child is not None and not isinstance(child, (str, tuple)):
            yield from _statements(child)


def _flat(nodes: Any, labels: list[str]) -> Iterator[tuple[str, Any]]:
    """The statements with their roles: simple, open, middle, close. Loops that end at a label close after it."""
    for node in nodes:
        name = type(node).__name__
        if name == "Comment":
            continue
        if name == "Specification_Part":
            yield from (("simple", found) for found in _statements(node))
            continue
        if node.item is None:
            yield from _flat(node.children, labels)
            continue
        opens = node is node.parent.children[0] and name not in ("Contains_Stmt",) and _is_construct(node.parent)
        if name == "Label_Do_Stmt":
            labels.append(str(node.children[1] if name == "" else _label_of(node)))
            yield "open", node
        elif opens:
            yield "open", node
        elif name in MIDDLE:
            yield "middle", node
        elif labels and node.item.label is not None and str(node.item.label) == labels[-1]:
            closing = [label for label in labels if label == labels[-1]]
            del labels[-len(closing) :]
            if name in ("Continue_Stmt", "End_Do_Stmt"):
                yield "close", node
                closing.pop()
            else:
                yield "simple", node
            yield from (("close", None) for _ in closing)
        else:
            yield ("close" if name.startswith("End_") else "simple"), node


def _label_of(node: Any) -> str:
    found = re.match(r"(?:\w+\s*:\s*)?do\s*(\d+)", str(node), re.I)
    return found[1].lstrip("0") if found else ""


def _is_construct(node: Any) -> bool:
    name = type(node).__name__
    return name.endswith("_Construct") or name == "Block_Construct"


def _merged(stream: list[tuple[str, Stmt | None]], directives: list[Directive]) -> list[tuple[str, Any]]:
    """Both in the order of their lines."""
    found, waiting, at = list[tuple[str, Any]](), list(directives), -1
    for role, stmt in stream:
        at = stmt.first if stmt else at
        while stmt and waiting and waiting[0].first < at:
            found.append(("end" if waiting[0].end else "directive", waiting.pop(0)))
        found.append((role, stmt))
    return found + [("end" if given.end else "directive", given) for given in waiting]


class _Parser:
    """Recursive descent over statements and directives."""

    def __init__(self, stream: list[tuple[str, Any]]) -> None:
        self.stream, self.at, self.line = stream, 0, 0

    def everything(self) -> list[Item]:
        found = self.items()
        if self.at < len(self.stream):
            raise Confused(self.line, "an end without its beginning")
        return found

    def peek(self) -> tuple[str, Any]:
        return self.stream[self.at] if self.at < len(self.stream) else ("nothing", None)

    def take(self) -> Any:
        found = self.stream[self.at][1]
        self.at += 1
        self.line = found.last if found else self.line
        return found

    def items(self) -> list[Item]:
        found = list[Item]()
        while self.peek()[0] in ("simple", "open", "directive"):
            found.append(self.one())
        return found

    def one(self) -> Item:
        role, what = self.peek()
        if role == "simple":
            stmt: Stmt = self.take()
            return stmt
        if role == "open":
            return self.block()
        if role == "directive":
            return self.construct()
        raise Confused(what.first if what else self.line, "a construct without its statements")

    def block(self) -> Block:
        block = Block([(self.take(), self.items())])
        while self.peek()[0] == "middle":
            block.parts.append((self.take(), self.items()))
        role, what = self.peek()
        if role != "close":
            raise Confused(what.first if what else self.line, "an OpenMP construct begins here and ends elsewhere")
        block.close = self.take()
        block.last = self.line
        return block

    def construct(self) -> Construct:
        given: Directive = self.take()
        if not given.construct:
            raise Confused(given.first, f"`{given.text.split('(')[0]}` is not known")
        found = Construct(given)
        name = given.construct
        if is_alone(given):
            return found
        if name == "atomic":
            found.body = [self.one()]
            if self.peek()[0] == "simple" and given.argument("capture") is not None:
                at, stmt = self.at, self.take()
                if self._ends(name):
                    found.body.append(stmt)
                else:
                    self.at = at
        elif is_loop(name):
            found.body = [self.one()]
        else:
            found.body = self.items()
            if not self._ends(name):
                raise Confused(given.first, f"`{name}` without its end")
        if self._ends(name):
            found.end = self.take()
        return found

    def _ends(self, name: str) -> bool:
        role, what = self.peek()
        return role == "end" and what.construct == name
