"""Values that need not be the same in two right runs: what clocks, numbers of threads, and the order of threads make.

Only names are followed, not paths: a scalar that is once assigned from a clock is one wherever it stands. An array is
not excluded as a whole, but where it is assigned from such a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from safepoint.threads.handed import ALONE, filled, queued
from safepoint.threads.locks import loose_lines, way_in
from safepoint.threads.sharing import Assignment, assignments, constructs, root_of, statements, status
from safepoint.threads.structure import Construct, Item, Stmt
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import COUNTS, components_in, is_made_of, is_scratch, names_scratch, numbers_in, scratch_in
from safepoint.threads.times import Made, timed
from safepoint.threads.written import THREADS, TIMES, assigned, called, names_in, target

WORKSHARING = {"do", "sections", "single", "parallel"}


class Uncertain(NamedTuple):
    """Names of a unit. `numbers`: those of threads themselves, of `threads`, which has also what is made of them, and
    what only the program with OpenMP assigns. `scratch`: arrays with a place for each thread, and components of types
    (`teams.marks`), those that are times too. `rounded`: scalars that depend on a sum or product of reals by several
    threads. `since`: of some times, the first line in which they are."""

    times: frozenset[str]
    numbers: frozenset[str]
    threads: frozenset[str]
    scratch: frozenset[str]
    rounded: frozenset[str]
    since: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """That are in no trace."""
        return self.times | self.threads

    @property
    def kinds(self) -> tuple[frozenset[str], ...]:
        """As `known.KINDS` names them."""
        return self.times, self.numbers, self.threads, self.scratch, self.rounded

    def at(self, line: int) -> Uncertain:
        """Without what is a time only later."""
        later = {name for name, first in self.since if line < first}
        return self._replace(times=self.times - later, since=()) if later else self


Names = dict[str, set[str]]


def uncertain(items: Sequence[Item], scope: Scope, known: Names, functions: Names) -> Uncertain:
    """What is assigned from clocks, numbers of threads, and sums, and from what is assigned from that. `known`: names
    of each kind by a call; `functions`: those that return one."""
    given = [(found, _source(found)) for found in assignments(items, scope)]
    both = {found.root for found, _ in given if not found.stmt.at.conditional}
    only = {found.root for found, _ in given if found.stmt.at.conditional and _kind(found) in ("integer", "logical")}
    mixed = {name for name in only & both if all(_constant(found) for found, _ in given if found.root == name)}
    every, counts = [found for found, _ in given], COUNTS | functions["number"]
    numbers = numbers_in(every, known["number"], counts)
    threads = known["thread"] | numbers | (only - both) | mixed
    threads |= {found.root for found in every if is_made_of(found, numbers, counts | functions["thread"])}
    made = _tainted(given, threads, counts | functions["thread"], ("integer", "logical"))
    scratch = scratch_in(items, scope, every, numbers, made, known["scratch"])
    times, since = timed(given, items, scope, known["time"], TIMES | functions["time"])
    sums = known["sum"] | {name for name in scratch if _is_real(name, scope)}
    return Uncertain(
        times,
        frozenset(numbers),
        made,
        scratch | {name for name in times if name.startswith("%")},
        _tainted(given, sums, functions["sum"], ("real", "complex")),
        tuple(since.items()),
    )


def _kind(found: Assignment) -> str:
    return target(found.what.text, found.scope).type


def _constant(found: Assignment) -> bool:
    return found.stmt.kind == "Assignment_Stmt" and not names_in(str(found.stmt.node.children[2]))


def _source(found: Assignment) -> tuple[list[str], list[str]]:
    """The names and components that a value is made of, and the functions, with % the bindings, or the procedure that
    gives it."""
    node = found.stmt.node
    action = node.children[1] if type(node).__name__ == "If_Stmt" else node
    if type(action).__name__ == "Assignment_Stmt":
        right = action.children[2]
        functions = [name for name in called(right) if not (known := found.scope.find(name)) or not known.rank]
        functions += [f"%{name.lower()}" for name in re.findall(r"%\s*(\w+)\s*\(", str(right))]
        return [*names_in(str(right)), *components_in(str(right), found.scope)], functions
    if type(action).__name__ == "Call_Stmt":
        return [], [str(action.children[0]).lower()]
    return [], []


def _tainted(given: Made, names: set[str], functions: set[str], kinds: tuple[str, ...]) -> frozenset[str]:
    """`names`, what is assigned from them, and from such functions. Only scalars of these kinds: an array is not
    excluded as a whole."""
    found, before = set(names), -1
    while len(found) != before:
        before = len(found)
        for assignment, (used, calls) in given:
            known = target(assignment.what.text, assignment.scope)
            fits = known.whole and known.rank == 0 and known.type in kinds
            if fits and (found & set(used) or functions & set(calls)):
                found.add(assignment.root)
    return frozenset(found)


def made_of(found: Assignment, names: frozenset[str]) -> bool:
    """Whether a clock or the number of a thread is assigned."""
    used, calls = _source(found)
    return bool(set(used) & names or set(calls) & (THREADS | TIMES))


def is_uncertain(text: str, stmt: Stmt, unsure: Uncertain, scope: Scope) -> bool:
    """Whether what is read may be another value in two right runs: itself, by its subscript, or as it is gathered."""
    root, inside = root_of(text, scope), set(names_in(text)[1:])
    made = root in unsure.names or bool(inside & unsure.threads) or is_scratch(text, unsure.scratch, scope)
    return made or gathers(stmt, root, unsure)


def gathers(stmt: Stmt, name: str, unsure: Uncertain) -> bool:
    """`s = s + part(k)`: what threads have by themselves is added up, and is the same at the end alone."""
    left, *right = re.split(r"(?<![=<>/])=(?![=>])", stmt.at.text, maxsplit=1)
    accumulates = bool(right) and name in names_in(left) and name in names_in(right[0])
    return accumulates and names_scratch(right[0], unsure.scratch)


def functions_in(text: str, scope: Scope) -> list[str]:
    """The names with parentheses that are no arrays: `time` may be a variable too."""
    found = [name.lower() for name in re.findall(r"(?<![\w%])([a-z]\w*)\s*\(", text, re.I)]
    return [name for name in found if not ((symbol := scope.find(name)) and symbol.rank)]


def sums_in(items: Sequence[Item], scope: Scope) -> set[str]:
    """Variables of reductions, and what critical or atomic accumulates, whose value depends on the order."""
    found = set[str]()
    for construct in constructs(items):
        for clause in construct.directive.clauses:
            if clause.name == "reduction" and re.match(r"\s*(\w+\s*,\s*)?[-+*]\s*:", clause.argument):
                found |= {name for name in clause.names if _is_real(name, scope)}
    loose = loose_lines(items, way_in(scope))
    for given in assignments(items, scope):
        kinds = {around.directive.construct for around in given.around}
        names = _source(given)[0]
        exact = re.search(r"\b(max|min)\s*\(", given.stmt.at.text, re.I)
        alone = kinds & set(ALONE) or _between(given, loose)
        if alone and given.root in names and _is_real(given.root, scope) and not exact:
            found.add(given.root)
    return found


def _is_real(name: str, scope: Scope) -> bool:
    symbol = scope.find(name)
    return symbol is None or symbol.type in ("real", "complex", "")


def _between(given: Assignment, lines: Sequence[tuple[int, int]]) -> bool:
    return any(first <= given.stmt.first <= last for first, last in lines)


def under_loose_locks(items: Sequence[Item], scope: Scope) -> list[Assignment]:
    """What threads share and assign where a lock may be held whose set and unset are not in one block."""
    loose = loose_lines(items, way_in(scope))
    given = assignments(items, scope) if loose else ()
    return [each for each in given
            if _between(each, loose)
            and status(each.root, each.around, each.scope) in ("shared", "outside")]  # fmt: skip


def order_names(construct: Construct, scope: Scope, around: tuple[Construct, ...] = ()) -> dict[str, str]:
    """What the order of threads makes inside of a construct: its reduction variables, what is shared and assigned in
    critical or atomic, and what each thread accumulates for itself. What work-sharing constructs in a region have
    inside is theirs: after them it is settled."""
    found = dict.fromkeys(construct.directive.names("reduction"), "reduction")
    alone, loose = construct.directive.construct == "parallel", loose_lines([construct], way_in(scope))
    for assignment in assignments([construct], scope, around):
        kinds = [given.directive.construct for given in assignment.around[len(around) :]]
        if alone and any(set(kind.split()) & WORKSHARING for kind in kinds[1:]):
            continue
        way = next((ALONE[kind] for kind in kinds if kind in ALONE), "critical" if _between(assignment, loose) else "")
        given = status(assignment.root, assignment.around, assignment.scope)
        if way and given in ("shared", "outside"):
            found.setdefault(assignment.root, way)
    for name, way in queued(construct, scope, around).items():
        found.setdefault(name, way)
    for name in filled(construct, scope, around):
        found.setdefault(name, "critical")
    if construct.directive.construct in ALONE:
        _close(found, construct, scope)
    for inner in constructs([construct]):
        if "do" in inner.directive.construct.split():
            for name in carried(inner, (*around, construct) if inner is not construct else around, scope):
                found.setdefault(name, "reduction")
    return found


def _close(found: dict[str, str], construct: Construct, scope: Scope) -> None:
    """What is assigned from these inside, too."""
    given, before = list(assignments([construct], scope)), -1
    while before != len(found):
        before = len(found)
        for assignment in given:
            if set(_source(assignment)[0]) & set(found):
                found.setdefault(assignment.root, ALONE[construct.directive.construct])


def carried(loop: Construct, around: tuple[Construct, ...], scope: Scope) -> list[str]:
    """Private variables that an iteration reads before it assigns them: each thread has its own sum or maximum."""
    found, whole = list[str](), (*around, loop)
    for name, read in first_mentions(loop.body, scope).items():
        if read and status(name, whole, scope) in ("private", "firstprivate", "threadprivate", "local"):
            found.append(name)
    return found


def first_mentions(items: Sequence[Item], scope: Scope) -> dict[str, bool]:
    """Of the variables that are assigned in these items: whether the first mention, in the order of the text, is a
    read."""
    assigned_ever = {given.root for given in assignments(items, scope)}
    found = dict[str, bool]()
    for stmt, _ in statements(items):
        reads, writes = _mentions(stmt, scope)
        for name in reads:
            if name in assigned_ever:
                found.setdefault(name, True)
        for name in writes:
            found.setdefault(name, False)
    return found


def _mentions(stmt: Stmt, scope: Scope) -> tuple[list[str], list[str]]:
    """The names that a statement reads for certain, and those that it assigns, or may have assigned."""
    node = stmt.node
    if stmt.kind in ("Nonlabel_Do_Stmt", "Label_Do_Stmt"):
        variable = re.match(r".*?\bdo\s*(?:\d+\s*,?\s*)?(\w+)\s*=(.*)", stmt.at.text, re.I)
        return (names_in(variable[2]), [variable[1].lower()]) if variable else (names_in(stmt.at.text), [])
    if stmt.kind == "Call_Stmt":
        return [], names_in(stmt.at.text)
    writes = [what.text for what in assigned(node, scope)]
    roots = [names_in(text)[0] for text in writes if names_in(text)]
    if stmt.kind == "Assignment_Stmt":
        return names_in(str(node.children[2])) + names_in(str(node.children[0]))[1:], roots
    if stmt.kind == "If_Stmt" and type(node.children[1]).__name__ == "Assignment_Stmt":
        action = node.children[1]
        return names_in(str(node.children[0])) + names_in(str(action.children[2])), roots
    return (names_in(stmt.at.text), roots) if not writes else ([], names_in(stmt.at.text))
