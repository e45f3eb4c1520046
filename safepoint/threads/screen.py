"""What a program prints on the screen: each statement, and what of it may be another text in two right runs.

(1) What cannot be told from the text is taken for what may differ, and never for what must.
(2) What each thread of a team prints is printed as often as there are threads: that is up to OpenMP.
(3) A procedure is in a region, or depends on OpenMP, if one of the calls that reach it is and does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from safepoint.threads import passing
from safepoint.threads.callees import of_binding
from safepoint.threads.directives import closing
from safepoint.threads.known import CLOCK, FILES, unsure_of
from safepoint.threads.lines import split_outside
from safepoint.threads.measured import Measured, has_measured, is_measured, measured
from safepoint.threads.parts import SHARED_OUT, handed_in, is_private, parts_of
from safepoint.threads.reaching import reached
from safepoint.threads.sharing import alone, assignments
from safepoint.threads.shown import Shown
from safepoint.threads.structure import Block, Construct, Item, Stmt, Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import components_in, right_of
from safepoint.threads.uncertainty import functions_in, made_of
from safepoint.threads.written import DESIGNATOR, THREADS, TIMES, called, inner_scope, is_variable, names_in, target

STRING = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")
ONE = re.compile(r"(sum|product|maxval|minval|count|size|norm2)\s*\(", re.I)  # one number of a whole array
INTEGER = {"int", "nint", "size", "count", "floor", "ceiling", "len", "len_trim", "index", "ubound", "lbound"} | THREADS
REAL = {"real", "dble", "sqrt", "exp", "log", "sin", "cos", "float", *TIMES}
MOST = 3  # numbers in a line, beyond which compilers begin a new one


class At(NamedTuple):
    """A statement with what is around it: constructs, and the conditions and loops on the way to it."""

    stmt: Stmt
    scope: Scope
    around: tuple[Construct, ...] = ()
    heads: tuple[Stmt, ...] = ()

    @property
    def action(self) -> Any:
        return self.stmt.node.children[1] if self.stmt.kind == "If_Stmt" else self.stmt.node


class Unsure(NamedTuple):
    """Names of a unit: `names` have times and numbers of threads, `wide` what is made of them, and of what only the
    program with OpenMP assigns. `measured`: which of `names` are such numbers themselves. `parts`: private ones that
    depend on what work a thread was given. `handed`: what has an order of chance, or went on beyond the end."""

    names: frozenset[str]
    wide: frozenset[str]
    measured: Measured
    parts: frozenset[str]
    handed: frozenset[str]


def survey(modules: Mapping[str, Any]) -> list[Shown]:
    """Of all sources that were read."""
    found = [(source, unit) for source, units in modules.get(FILES, {}).values() for unit in _all(units)]
    known, chance = measured([unit for _, unit in found]), handed_in([unit for _, unit in found])
    given = _given([unit for _, unit in found], known)
    unsure = {id(unit): _unsure(unit, known[id(unit)], chance[id(unit)], given) for _, unit in found}
    inside, only, plain, each = set[str](), set[str](), set[str](), set[str]()
    for _, unit in found:
        for at in _walk(unit.body, unit.scope):
            names = {each.name for each in reached(called(at.stmt.node), at.scope)}
            if _in_team(at):
                inside |= names
            if _by_each_thread(at):
                each |= names
            way = _depends(at, unsure[id(unit)])
            only |= names if way else set()
            plain |= names if way != "only" else set()
    shown, is_open = list[Shown](), False
    for source, unit in found:
        for at in _walk(unit.body, unit.scope):
            by_each = _by_each_thread(at) or (unit.name in each and not _is_shared_out(at))
            if (made := _shown(at, unit, unsure[id(unit)], by_each)) is None:
                continue
            is_open = is_open or bool(re.search(r"\badvance\s*=", at.stmt.at.text, re.I))
            way = "" if unit.name not in only else "perhaps" if unit.name in plain else "only"
            if by_each:
                way = "only"
            line = source.lines[at.stmt.first]
            shown.append(made._replace(file=line.file, line=line.line, way=made.way or way,
                                       parallel=_in_team(at) or unit.name in inside))  # fmt: skip
    if is_open:  # a line may be of several statements
        shown = [one._replace(way="perhaps", text=True) if one.special else one for one in shown]
    return shown


def _all(units: Sequence[Unit]) -> Iterator[Unit]:
    for unit in units:
        if unit.scope is not None:
            yield unit
        yield from _all(unit.inside)


def _walk(items: Sequence[Item], scope: Scope, around: tuple[Construct, ...] = (), heads: tuple[Stmt, ...] = ()
          ) -> Iterator[At]:  # fmt: skip
    """All statements, the first ones of blocks too."""
    for item in items:
        if isinstance(item, Stmt):
            yield At(item, scope, around, heads)
        elif isinstance(item, Construct):
            yield from _walk(item.body, scope, (*around, item), heads)
        else:
            yield from _block(item, scope, around, heads)


def _block(block: Block, scope: Scope, around: tuple[Construct, ...], heads: tuple[Stmt, ...]) -> Iterator[At]:
    inner, passed = inner_scope(block, scope), heads
    for head, body in block.parts:
        yield At(head, scope, around, passed)
        passed = (*passed, head)
        yield from _walk(body, inner, around, passed)


def _in_team(at: At) -> bool:
    words = {word for given in at.around for word in given.directive.construct.split()}
    return bool({"parallel", "task", "taskloop"} & words) and not alone(at.around)


def _is_shared_out(at: At) -> bool:
    """Innermost, the threads share out what they do, or one of them does it."""
    for given in reversed(at.around):
        words = set(given.directive.construct.split())
        if words & SHARED_OUT:
            return True
        if "parallel" in words:
            return False
    return False


def _by_each_thread(at: At) -> bool:
    return _in_team(at) and not _is_shared_out(at)


def _given(units: Sequence[Unit], known: Mapping[int, Measured]) -> set[tuple[str, str]]:
    """Procedures with those of their arguments that are times or numbers of threads in each of their calls."""
    ways = dict[tuple[str, str], bool]()
    for unit in units:
        for at in _walk(unit.body, unit.scope):
            for callee, pairs in (*passing.calls(at.stmt, at.scope), *passing.references(at.stmt, at.scope)):
                for dummy, actual in pairs:
                    own = is_measured(actual, known[id(unit)], at.scope)
                    ways[callee.name, dummy] = ways.get((callee.name, dummy), True) and own
    return {key for key, always in ways.items() if always}


def _unsure(unit: Unit, own_numbers: Measured, handed: frozenset[str], always: set[tuple[str, str]]) -> Unsure:
    known = unsure_of(unit, unit.scope)
    names = frozenset(known.times | known.threads)
    given, wide, before = list(assignments(unit.body, unit.scope)), set(names), -1
    wide |= {found.root for found in given if found.stmt.at.conditional}
    while len(wide) != before:
        before = len(wide)
        wide |= {found.root for found in given if made_of(found, frozenset(wide))}
        for at in _walk(unit.body, unit.scope):  # a text that is written into a variable first
            if type(at.action).__name__ == "Write_Stmt" and (
                at.stmt.at.conditional or set(names_in(str(at.action.children[1]))) & (wide | THREADS | TIMES)
            ):
                wide.update(names_in(_unit_of(at.action))[:1])
    own = unit.scope.procedure(unit.name) if unit.kind != "program" else None
    if own is not None and own.takes:  # a clock by one call, and by another perhaps none
        lost, before = {name for name, _ in own.takes if (own.name, name) not in always}, -1
        while len(lost) != before:
            before = len(lost)
            lost |= {found.root for found in given if lost & set(names_in(right_of(found)))}
        names, own_numbers = names - lost, Measured(*(each - lost for each in own_numbers))
    return Unsure(names, frozenset(wide), own_numbers, parts_of(unit, names), handed)


def _differs(text: str, scope: Scope, names: frozenset[str]) -> bool:
    """An expression has a time or the number of a thread in it."""
    functions = set(functions_in(text, scope))
    known = {
        name for name in functions if (found := scope.procedure(name)) and found.gives.get(name) in ("time", "thread")
    }
    clocks = {name for name in functions if CLOCK.search(name) and scope.procedure(name) is None}
    made = {*names_in(text), *components_in(text, scope)} & names
    bound = [found for name in re.findall(r"%\s*(\w+)\s*\(", text) for found in of_binding(name.lower(), scope)]
    known |= {found.name for found in bound if found.gives.get(found.name) in ("time", "thread")}
    return bool(made or functions & (THREADS | TIMES) or known or clocks)


def _depends(at: At, unsure: Unsure) -> str:
    """OpenMP, or a clock, decides whether or how often it is done: "only"; or what is made of a number of threads,
    which may be a result: "perhaps"."""
    own = [str(at.stmt.node.children[0])] if at.stmt.kind == "If_Stmt" else []
    heads = [head.at.text for head in at.heads]
    if at.stmt.at.conditional or any(head.at.conditional for head in at.heads):
        return "only"
    found = [text for text in (*own, *heads) if _differs(text, at.scope, unsure.names)]
    if any(has_measured(text, unsure.measured, at.scope) for text in found):
        return "only"
    return "perhaps" if found else ""


def _unit_of(node: Any) -> str:
    first = split_outside(str(node.children[0]), ",")[0]
    return re.sub(r"(?i)^\s*unit\s*=", "", first).strip().lower()


def _is_screen(node: Any, scope: Scope) -> bool:
    """As far as can be told: a unit whose number is in a variable may be the screen."""
    unit = _unit_of(node)
    if unit in ("*", "6", "output_unit"):
        return True
    if not DESIGNATOR.match(unit) or unit == "error_unit":
        return False
    known = target(unit, scope)
    return known.type in ("integer", "") and is_variable(unit, scope)


def _shown(at: At, unit: Unit, unsure: Unsure, by_each: bool) -> Shown | None:
    node, kind = at.action, type(at.action).__name__
    if kind not in ("Print_Stmt", "Write_Stmt") or (kind == "Write_Stmt" and not _is_screen(node, at.scope)):
        return None
    items = node.children[1]
    parts = list(items.children) if type(items).__name__ == "Output_Item_List" else [items] if items is not None else []
    words, values, way, made = list[str](), "", _depends(at, unsure), False
    loose, text, more = _format(node, kind, unit)
    for part in parts:
        if type(part).__name__ == "Char_Literal_Constant":
            words += _words(str(part))
            continue
        value, many = _value(str(part), at.scope)
        loose, text = loose or many, text or value == "t"
        letter, names = value.replace("t", "n"), set(names_in(str(part)))
        own = is_measured(str(part), unsure.measured, at.scope)
        values += letter.upper() if own else letter
        made = made or bool(names & unsure.handed) or (not own and _differs(str(part), at.scope, unsure.names))
        made = made or (by_each and any(is_private(name, at.around, at.scope) for name in names & unsure.parts))
        if names & unsure.wide - unsure.names:
            way = way or "perhaps"
    return Shown("", 0, (*words, *more), values, loose or len(values) > MOST, text, way, made=made)


def _words(literal: str) -> list[str]:
    """Of a constant, or of all in a format."""
    found = [(one or other).replace("''", "'").replace('""', '"').strip() for one, other in STRING.findall(literal)]
    return [word for word in found if word]


def _format(node: Any, kind: str, unit: Unit) -> tuple[bool, bool, list[str]]:
    """Whether the number of values in a line is not known, whether there may be any words; and those of the format."""
    if kind == "Print_Stmt":
        given = str(node.children[0])
    else:
        parts = split_outside(str(node.children[0]), ",")[1:]
        named = [found[1] for part in parts if (found := re.match(r"(?i)\s*fmt\s*=(.*)", part))]
        given = named[0] if named else parts[0] if parts and "=" not in parts[0] else ""
    given = given.strip()
    if given == "*":
        return False, False, []
    if STRING.fullmatch(given):
        return True, False, _words(given[1:-1].replace(given[0] * 2, given[0]))
    if given.isdecimal():
        every = [*unit.declarations, *(at.stmt for at in _walk(unit.body, unit.scope))]
        texts = [each.at.text for each in every if each.at.label.lstrip("0") == given.lstrip("0")]
        if texts and texts[0].lower().startswith("format"):
            return True, False, _words(texts[0])
    return True, True, []


def _value(text: str, scope: Scope) -> tuple[str, bool]:
    """The letter of an item, `t` for what may have words; and whether it may be several values."""
    if STRING.search(text) or "//" in text:
        return "t", True
    functions = functions_in(text, scope)
    names = [name for name in names_in(text) if name not in functions]
    symbols = [scope.find(name) for name in names]
    many = text.startswith("(") or ":" in text or any(symbol and symbol.rank for symbol in symbols)
    many = many and not (ONE.match(text) and closing(text, text.index("(")) == len(text) - 1 and "," not in text)
    if DESIGNATOR.match(text) and is_variable(text, scope):
        known = target(text, scope)
        types, many = {known.type}, bool(known.rank) or bool(known.why)
    else:
        types = {symbol.type if symbol else "" for symbol in symbols} | {
            _of_function(name, scope) for name in functions
        }
    types = types - {"number"} or types
    if types <= {"integer", "real", "logical", "complex", "number"}:
        whole = types == {"integer"} and not re.search(r"\d\.|[<>=]", text)
        real = types <= {"real", "integer"} and "real" in types and not re.search(r"[<>]|==|\.\w+\.", text)
        return ("i" if whole else "r" if real else "n"), many
    return "t", True


def _of_function(name: str, scope: Scope) -> str:
    if name in INTEGER and name != "omp_in_parallel":
        return "integer"
    symbol = scope.find(name)
    if name in REAL or symbol is None:
        return "real" if name in REAL else "number" if name in ("sum", "max", "min", "abs", "maxval", "mod") else ""
    return symbol.type if symbol.type in ("integer", "real") else ""
