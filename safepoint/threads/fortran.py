"""Instrument a Fortran source: the user's own lines, with calls of `sp_trace` between them.

(1) The untouched body of each loop is the source, token by token; the traced one stands beside it.
(2) What cannot be parsed is left as it is, and said; what cannot be recorded is counted, with its line.
(3) Compiled without OpenMP the text is the serial program with the same calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.threads import lines, structure
from safepoint.threads.choices import Choices, Levels
from safepoint.threads.constructs import Constructs
from safepoint.threads.declaring import scope_of
from safepoint.threads.doubling import Fresh
from safepoint.threads.emission import Needs, Writer
from safepoint.threads.known import FILES, declare, follow, learn, unsure_of
from safepoint.threads.numbering import Numbering
from safepoint.threads.places import State, Where
from safepoint.threads.races import warnings
from safepoint.threads.sharing import constructs, forget, opens_tasks
from safepoint.threads.sites import Site
from safepoint.threads.structure import Block, Item, Stmt, Unit, Unreadable
from safepoint.threads.symbols import Scope
from safepoint.threads.uncertainty import first_mentions, under_loose_locks
from safepoint.threads.written import is_action, target

__all__ = ["Instrumented", "Unreadable", "instrument", "survey"]


LOOSE = "set and unset of a lock are not in one block"


class Instrumented(NamedTuple):
    """`statements`: how many assign something; `recorded` of them; `left_out`: line and why; `warnings`: line and text,
    of what looks wrong before any run."""

    text: str
    sites: list[Site]
    statements: int
    recorded: int
    left_out: list[tuple[int, str]]
    warnings: list[tuple[int, str]]


def instrument(source: Path, *, settings: Choices | None = None, modules: MutableMapping[str, Any] | None = None,
               first: int = 1, untouched: frozenset[int] = frozenset()) -> Instrumented:  # fmt: skip
    """`modules`: those of sources that came before, to which those of this one are added. `first`: the number of the
    first site. `untouched`: lines of the user's at which nothing is to be inserted. Raises `Unreadable`, OSError."""
    settings = settings or Choices()
    known: MutableMapping[str, Any] = {} if modules is None else modules
    if str(source) not in known.get(FILES, {}):
        _survey(source, settings, known)
        learn(known[FILES][str(source)][1], known[FILES][str(source)][0])
        follow(known[FILES][str(source)][1])
    read, found = known[FILES][str(source)]
    work = _Work(read, settings, known, Numbering(read.lines, first), untouched)
    try:
        return work.run(found)
    finally:
        forget()


def survey(sources: Iterable[tuple[Path, Choices]], modules: MutableMapping[str, Any]) -> None:
    """Read all sources of a program before the first one is instrumented: then what procedures do is known where they
    are called, in any order. One that cannot be read is left; `instrument` says so."""
    for source, settings in sources:
        with contextlib.suppress(Unreadable, OSError):
            _survey(source, settings, modules)
    for read, units in modules.get(FILES, {}).values():
        learn(units, read)
    follow(unit for _, units in modules.get(FILES, {}).values() for unit in units)


def _survey(source: Path, settings: Choices, modules: MutableMapping[str, Any]) -> None:
    free = lines.is_free(source) if settings.free is None else settings.free
    read = lines.read(source, free=free, width=settings.width or lines.FIXED_WIDTH, include=settings.include,
                      defines=settings.defines)  # fmt: skip
    found = structure.units(read)
    declare(found, modules)
    modules.setdefault(FILES, {})[str(source)] = read, found


class _Work:
    def __init__(self, source: lines.Source, settings: Choices, modules: MutableMapping[str, Any],
                 numbering: Numbering, untouched: frozenset[int]) -> None:  # fmt: skip
        self.source, self.settings, self.modules, self.numbering = source, settings, modules, numbering
        self.levels = Levels(source, settings, untouched)
        self.writer = Writer(source)

    def run(self, found: Sequence[Unit]) -> Instrumented:
        at = 0
        for unit in found:
            self.writer.raw(at, unit.first)
            self.unit(unit, None)
            at = unit.close.last + 1
        self.writer.raw(at, len(self.source.lines))
        notes = self.numbering
        notes.warnings += [
            (line, f"`!$sp {text}` is not known, and does nothing") for line, text in self.levels.strange
        ]
        return Instrumented(self.writer.text(), notes.sites, notes.statements, len(notes.recorded), notes.left(),
                            sorted(set(notes.warnings)))  # fmt: skip

    def unit(self, unit: Unit, parent: Scope | None) -> None:
        """One program unit with the procedures in it."""
        scope = scope_of(unit, parent, self.modules)  # type: ignore[arg-type]
        end = unit.contains.first if unit.contains else unit.close.first
        if why := self.as_it_is(unit):
            self.writer.raw(unit.first, end)
            if why[1]:
                self.numbering.warnings.append(why)
        else:
            self.numbering.warnings += warnings(unit, scope, self.source)
            self.written(unit, scope, end)
        at = end
        for inner in unit.inside:
            self.writer.raw(at, inner.first)
            self.unit(inner, scope)
            at = inner.close.last + 1
        self.writer.raw(at, unit.close.last + 1)

    def as_it_is(self, unit: Unit) -> tuple[int, str] | None:
        """Line and reason if nothing can be inserted into the unit itself."""
        line = self.source.lines[unit.first].line
        if unit.trouble:
            line = self.source.lines[unit.trouble.at].line
            return line, f"{unit.name or 'the program'} is compiled as it is: {unit.trouble}"
        text = unit.open.at.text.lower() if unit.open else ""
        head = text.split("(")[0].split()
        if ("pure" in head or "elemental" in head) and "impure" not in head:
            for item in unit.body:
                self.numbering.leaves(item.first, f"in {unit.name}, which is pure")
            return line, ""
        if unit.kind == "separate":
            return line, f"{unit.name} is compiled as it is: a procedure whose interface is elsewhere"
        if unit.kind in ("module", "data") or not unit.body:
            return line, ""
        if self.levels.at(unit.first, unit.name) == "off" and self.settings.units.get(unit.name):
            return line, ""
        return None

    def written(self, unit: Unit, scope: Scope, end: int) -> None:
        """The unit until its CONTAINS or END, with USE, our variables, and its statements."""
        body, needs = list(unit.body), Needs(self.writer)
        while body and _is_declaration(body[0], scope):
            body.pop(0)
        start = body[0].first if body else end
        head = unit.open.last + 1 if unit.open else unit.first
        declare_at = min(_declarations_from(unit, head), start)
        self.writer.raw(unit.first, head)
        use = self.writer.later()
        self.writer.raw(head, declare_at)
        declarations = self.writer.later()
        self.writer.raw(declare_at, start)
        if body:
            self.statements(unit, scope, needs, body, end)
        if text := needs.use():
            use += self.writer.made(text, unit.first)
        for text in needs.declarations():
            declarations += self.writer.made(text, max(declare_at - 1, unit.first))

    def statements(self, unit: Unit, scope: Scope, needs: Needs, body: list[Item], end: int) -> None:
        """One body that asks, with calls at entry and exit; two bodies if that is possible for all of them."""
        events, start = unit.kind != "program" and self.settings.procedures, body[0].first
        loose = "task" if any(map(opens_tasks, constructs(unit.body))) else ""
        number = self.numbering.new("procedure", unit.name, unit.first, unit.close.last, loose=loose)
        fresh = Fresh(self.writer.prefix, {given.label.lstrip("0") for given in self.source.statements})
        unsure = unsure_of(unit, scope)
        state = State(self.writer, needs, self.numbering, self.levels, unsure, unit.name, number, events, fresh)
        inserts = Constructs(state)
        if events:
            self.writer.put(inserts.event(number, 11), start)
        own = {name: "reduction" for name, read in first_mentions(unit.body, scope).items()
               if read and unit.kind != "program" and scope.is_threadprivate(name)}  # fmt: skip
        for given in under_loose_locks(unit.body, scope):
            self.numbering.leaves(given.stmt.first, f"{given.root} is not compared here: {LOOSE}")
            own |= {} if given.around else {given.root: "critical"}
        where, last = Where(scope, order=own), body[-1]
        returns = isinstance(last, Stmt) and last.kind == "Return_Stmt" and not last.at.label
        inner, stop = (body[:-1], last.first) if returns else (body, end)
        if events and inner and inserts.is_apart(inner, where) and _simple(inner):
            inserts.doubled(inner, start, stop, inserts.on(), where)
            start, body = stop, body[len(inner) :]
        inserts.body(body, start, end, where)
        if events and not (isinstance(last, Stmt) and last.kind in ("Return_Stmt", "Goto_Stmt", "Stop_Stmt")):
            self.writer.put(inserts.event(number, 12), end - 1)


def _declarations_from(unit: Unit, head: int) -> int:
    """Before which line our declarations come: after USE, IMPORT and IMPLICIT."""
    ends = [stmt.last + 1 for stmt in unit.declarations
            if stmt.kind in ("Use_Stmt", "Import_Stmt", "Implicit_Stmt") and _direct(unit, stmt)]  # fmt: skip
    return max(ends, default=head)


def _direct(unit: Unit, stmt: Stmt) -> bool:
    """Of the unit itself, not of an interface in it."""
    inside = 0
    for each in unit.declarations:
        inside += each.kind == "Interface_Stmt"
        if each is stmt:
            return inside == 0
        inside -= each.kind == "End_Interface_Stmt"
    return False


def _is_declaration(item: object, scope: Scope) -> bool:
    """A statement function, or a declaration that fparser takes for the first statement."""
    if not isinstance(item, Stmt):
        return False
    if item.kind == "Assignment_Stmt" and "(" in item.at.text.split("=")[0]:
        known = target(str(item.node.children[0]), scope)
        return known.why.endswith("is a function") and known.root != "" and known.symbol is not None
    return not is_action(item) or item.kind == "Format_Stmt"


def _simple(items: Sequence[object]) -> bool:
    """Not only calls: then there is nothing to be gained from two bodies."""
    return any(isinstance(item, Block) or (isinstance(item, Stmt) and item.kind == "Assignment_Stmt") for item in items)
