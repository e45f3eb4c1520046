"""Which values are a time, or a number of a thread or of threads, and which are only made of one.

(1) A *measured* value is such a number itself, or is made of these and of constants by adding them, and by products
with constants; of times also with what no region assigns, as a rate is. It says nothing of whether work is right.
(2) A bound, a sum or a count that is made of a number of threads by a computation is none: it may be wrong.
(3) A variable is measured if all that is assigned to it is, in all procedures that may have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safepoint.threads.callees import of_binding
from safepoint.threads.directives import closing
from safepoint.threads.known import CLOCK, unsure_of
from safepoint.threads.lines import split_outside
from safepoint.threads.sharing import Assignment, assignments, blocks, do_variable
from safepoint.threads.structure import Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import COUNTS, marks, paths, right_of
from safepoint.threads.written import INQUIRY, PURE, TIMES, compressed, names_in

CALCULATE = PURE - INQUIRY - {"index", "count", "len_trim", "minloc", "maxloc"} | {"float", "sngl", "merge"}
PLAIN = {"int", "nint", "real", "dble", "float", "min", "max", "abs", "merge"}  # of numbers of threads
HEAD = re.compile(r"^\s*(\w+\s*:\s*)?(else\s*if|if|do\s*while|select\s*case|do)\b", re.I)
CLOCKED = "omp_get_wtime()"
Key = tuple[str, str]


class Measured(NamedTuple):
    """Names of a unit: `times`, and `numbers` of a thread or of threads; `fixed`: scalars that are made of constants
    alone, or read."""

    times: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()


def measured(units: Sequence[Unit]) -> dict[int, Measured]:
    """Of each unit of a program, by its identity."""
    given = {id(unit): list(assignments(unit.body, unit.scope)) for unit in units}
    banned, before, found = set[Key](), -1, dict[int, Measured]()
    known = {id(unit): _candidates(unit, given[id(unit)]) for unit in units}
    while before != len(banned):
        before = len(banned)
        for unit in units:
            found[id(unit)] = _left(unit, given[id(unit)], known[id(unit)], banned)
    return found


def is_measured(text: str, known: Measured, scope: Scope) -> bool:
    """Whether an expression is a time or a number of threads, by itself, and not made of one."""
    terms = list(_terms(_bare(_clocks(re.sub(r"'[^']*'|\"[^\"]*\"", "", text), known, scope), scope)))
    kinds = [_term(term, known, scope) for term in terms]
    return all(kinds) and any(kind != "constant" for kind in kinds)


def has_measured(text: str, known: Measured, scope: Scope) -> bool:
    """Whether a condition, or the head of a loop, has a time or a number of threads itself in it."""
    plain = _bare(_clocks(HEAD.sub("", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)), known, scope), scope)
    functions = {name.lower() for name in re.findall(r"(\w+)\(\)", plain)}
    return bool(set(names_in(plain)) & (known.times | known.numbers)) or any(
        _gives(name, kind, scope) for name in functions for kind in ("time", "number")
    )


def _candidates(unit: Unit, given: Sequence[Assignment]) -> Measured:
    unsure, scope = unsure_of(unit, unit.scope), unit.scope
    conditional = {each.root for each in given if each.stmt.at.conditional} & unsure.threads
    assigned = {each.root for each in given} | {do_variable(block) for block in blocks(unit.body)}
    own = {name for name, symbol in scope.names.items()
           if not symbol.has("dummy") and not symbol.home and symbol.rank == 0}  # fmt: skip
    fixed = {name for name in own if name in assigned or scope.names[name].has("initial")}
    return Measured(unsure.times, unsure.numbers | conditional, frozenset(fixed))


def _left(unit: Unit, given: Sequence[Assignment], known: Measured, banned: set[Key]) -> Measured:
    """Without names that are assigned something else somewhere, which are noted in `banned`."""
    scope = unit.scope
    loops = {do_variable(block) for block in blocks(unit.body)}
    kept = [{name for name in names if _key(name, scope) not in banned} for names in known]
    kept[1] -= loops
    kept[2] -= loops | {each.root for each in given if each.around}
    before = -1
    while before != (before := sum(map(len, kept))):
        now = Measured(*map(frozenset, kept))
        for each in given:
            if each.root in kept[0] | kept[1] and not _keeps(each, now):
                kept[0].discard(each.root)
                kept[1].discard(each.root)
            if each.root in kept[2] and not _fixes(each, now):
                kept[2].discard(each.root)
    banned |= {_key(name, scope) for name in (known.times | known.numbers) - kept[0] - kept[1]}
    return Measured(*map(frozenset, kept))


def _key(name: str, scope: Scope) -> Key:
    return name, scope.home(name) or f"in {scope.unit}"


def _keeps(given: Assignment, known: Measured) -> bool:
    """Whether what is assigned is measured too, or a constant."""
    right, scope = right_of(given), given.scope
    if not right:  # by a call, or read
        node = given.stmt.node.children[1] if given.stmt.kind == "If_Stmt" else given.stmt.node
        callee = scope.procedure(str(node.children[0])) if type(node).__name__ == "Call_Stmt" else None
        return callee is None or bool(set(callee.gives.values()) | set(callee.passes.values()))
    right = re.sub(r"^\s*(\[|\(/)|(\]|/\))\s*$", "", right)
    again = given.root in names_in(right) and not re.match(r"\s*(min|max)\s*\(", right, re.I)
    if given.root in known.numbers and again:
        return False  # a count, or a sum
    right = _bare(_clocks(right, known, scope), scope)
    kinds = [_term(term, known, scope) for term in _terms(right.replace(",", "+"))]
    return all(kinds) and (given.root in known.times or "time" not in kinds)


def _fixes(given: Assignment, known: Measured) -> bool:
    if given.what.way == "input":
        return True
    right = right_of(given)
    names = set(names_in(_bare(right, given.scope))) - CALCULATE
    return bool(right) and all(name in known.fixed or _is_constant(name, given.scope) for name in names)


def _term(text: str, known: Measured, scope: Scope) -> str:
    """What a term is, a "time", a "number" or a "constant"; empty: something else."""
    names = set(names_in(text))
    constants = {name for name in names if _is_constant(name, scope)}
    functions = {name.lower() for name in re.findall(r"(\w+)\(\)", text)}
    clocks = {name for name in functions if _gives(name, "time", scope)}
    counts = {name for name in functions if _gives(name, "number", scope)}
    times, numbers = names & known.times | clocks, names & known.numbers | counts
    rest = names - constants - times - numbers
    if times:
        return "time" if rest <= CALCULATE | known.fixed else ""
    if numbers:
        return "number" if rest <= PLAIN and not re.search(r"/(?!=)", text) else ""
    return "constant" if rest <= CALCULATE else ""


def _gives(name: str, kind: str, scope: Scope) -> bool:
    """Whether a function returns such a value."""
    callee = scope.procedure(name)
    if callee is not None:
        return callee.gives.get(callee.name) == kind
    return name in COUNTS if kind == "number" else name in TIMES or bool(CLOCK.search(name))


def _is_constant(name: str, scope: Scope) -> bool:
    symbol = scope.find(name)
    return symbol is not None and symbol.has("parameter")


def _clocks(text: str, known: Measured, scope: Scope) -> str:
    """With a clock in place of each component, or function bound to a type, that is a time."""
    if "%" not in text:
        return text
    text = compressed(text)
    for path in list(paths(text)):
        name = split_outside(path, "%")[-1].partition("(")[0].strip().lower()
        bound = path.rstrip().endswith(")") and any(
            callee.gives.get(callee.name) == "time" for callee in of_binding(name, scope)
        )
        if bound or {mark for mark, _ in marks(path, scope)} & known.times:
            text = text.replace(path, CLOCKED)
    return text


def _bare(text: str, scope: Scope) -> str:
    """Without subscripts, and without arguments of functions but those that calculate."""
    found = re.search(r"([a-z]\w*)\s*\(", text, re.I)
    if found is None:
        return text
    end, symbol, name = closing(text, found.end() - 1), scope.find(found[1]), found[1].lower()
    is_array = bool(symbol and symbol.rank)
    inside = "" if is_array else f"({_bare(text[found.end() : end], scope)})" if name in CALCULATE else "()"
    return f"{text[: found.start()]}{found[1]}{inside}{_bare(text[end + 1 :], scope)}"


def _terms(text: str) -> Iterator[str]:
    """What is added in an expression, outside of parentheses; a sign of an exponent is none."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char in "+-" and depth == 0 and not re.search(r"(\d|\.)[edq]\s*$|^\s*$", text[start:at], re.I):
            yield text[start:at]
            start = at + 1
    yield text[start:]
