"""What is known of procedures and modules beyond one unit: intents, what they assign, whether they open regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from itertools import takewhile
from typing import Any

from safepoint.threads.callees import GIVING, stated, take
from safepoint.threads.declaring import procedure_of, scope_of
from safepoint.threads.lines import Source, split_outside
from safepoint.threads.sharing import (
    LOCKS,
    Assignment,
    assignments,
    blocks,
    constructs,
    do_variable,
    protected,
    root_of,
    statements,
)
from safepoint.threads.structure import Stmt, Unit
from safepoint.threads.symbols import OUTER, Procedure, Race, Scope
from safepoint.threads.uncertainty import Uncertain, functions_in, sums_in, uncertain
from safepoint.threads.written import DESIGNATOR, OUTPUTS, PURE, called, names_in, target

FILES = "/files"  # the key of what was read
KINDS = "time", "thread", "sum"  # as in `Uncertain`
CLOCK = re.compile(r"timer|wtime|clock|(wall|cpu|get|elapsed)_?time|timeofday")  # names of functions that nobody knows
ROUNDS = 3  # what a procedure gives is known to those that call those that call it
STATUS = ("Open_Stmt", "Inquire_Stmt", "Close_Stmt", "Allocate_Stmt", "Deallocate_Stmt", "Read_Stmt", "Write_Stmt")


def declare(units: Sequence[Unit], modules: MutableMapping[str, Any]) -> None:
    """Add the modules and procedures of a source to those that are known."""
    outer = modules.setdefault(OUTER, Scope("", None, modules))  # type: ignore[arg-type]
    bodies = outer.program.bodies
    for unit in units:
        host = re.match(r"\s*submodule\s*\(.*?(\w+)\s*\)", unit.open.at.text if unit.open else "", re.I)
        scope = scope_of(unit, modules.get(host[1].lower()) if host else None, modules)  # type: ignore[arg-type]
        if unit.kind == "module":
            modules[unit.name] = scope
        elif unit.kind in ("subroutine", "function") and unit.open:
            outer.procedures[unit.name] = bodies[unit.name] = procedure_of(unit.open.at.text, scope)
            bodies[unit.name].unit = unit
        if host:
            bodies.update((name, found) for name, found in scope.procedures.items() if found.unit is not None)


def learn(units: Sequence[Unit], source: Source) -> None:
    """What its procedures do; those that they call are to be declared before."""
    macros = [re.match(r"\s*#\s*define\s+(\w+)\(", line.text) for line in source.lines]
    for unit in units:
        unit.scope.modules[OUTER].program.macros |= {found[1].lower() for found in macros if found}
    for unit in units:
        _learn(unit, unit.scope, source)


def follow(units: Iterable[Unit]) -> None:
    """Clocks and sums of threads through calls, from what is known by now."""
    every = [inner for unit in units for inner in (unit, *_inside(unit))]
    for _ in range(ROUNDS):
        for unit in every:
            _follow(unit, unit.scope)


def _inside(unit: Unit) -> Iterator[Unit]:
    for inner in unit.inside:
        yield inner
        yield from _inside(inner)


def _own(unit: Unit, scope: Scope) -> Procedure | None:
    if unit.kind not in ("subroutine", "function"):
        return None
    return (scope.parent or scope.modules[OUTER]).procedures.get(unit.name)


def _learn(unit: Unit, scope: Scope, source: Source) -> None:
    """What each procedure assigns, reads and calls."""
    if (own := _own(unit, scope)) is not None:
        parallel = any("parallel" in construct.directive.construct.split() for construct in constructs(unit.body))
        own.regions = parallel or unit.trouble is not None
        own.calls = sorted({name for stmt, _ in statements(unit.body) for name in called(stmt.node)})
        own.writes = _outside((found.root for found in assignments(unit.body, scope)), scope)
        own.hosted = _hosted({found.root for found in assignments(unit.body, scope)}, scope)
        own.kept = _kept({found.root for found in assignments(unit.body, scope)}, scope)
        own.reads = _outside((name for stmt, _ in statements(unit.body) for name in names_in(stmt.at.text)), scope)
        own.races = _races(unit, scope, source)
        own.guards = _guards(unit, scope, own)
        if not unit.trouble:
            _read_only(unit, scope, own)
    _other_names(unit, scope, own)
    for stmt, where, _ in stated([*(stmt for stmt in unit.declarations if stmt.kind in GIVING), *unit.body], scope):
        take(stmt, where)
    for inner in unit.inside:
        _learn(inner, scope_of(inner, scope, scope.modules), source)


def _other_names(unit: Unit, scope: Scope, own: Procedure | None) -> None:
    """Entries, which do what the procedure does, and statement functions, which assign nothing."""
    plain = [item for item in unit.body if isinstance(item, Stmt)]
    for stmt in (*unit.declarations, *plain):
        if stmt.kind == "Entry_Stmt" and own and (found := re.match(r"entry\s+(\w+)", stmt.at.text, re.I)):
            scope.modules[OUTER].program.bodies.setdefault(found[1].lower(), own)
    for stmt in takewhile(lambda stmt: stmt.kind == "Assignment_Stmt", plain):
        left = target(str(stmt.node.children[0]), scope)
        if left.why.endswith("is a function"):
            scope.formulas.add(left.root)


def _guards(unit: Unit, scope: Scope, own: Procedure) -> set[str]:
    """Arguments that it assigns, and nowhere without protection as far as can be seen here."""
    locks = any(LOCKS.search(stmt.at.text) for stmt, _ in statements(unit.body))
    given = [found for found in assignments(unit.body, scope) if found.root in own.arguments]
    bare = {found.root for found in given
            if not (locks or found.what.way == "call" or protected(found.around))}  # fmt: skip
    return {found.root for found in given} - bare


def guarded(stmt: Stmt, name: str, scope: Scope) -> bool:
    """Whether the procedure that a CALL names assigns this variable in critical or atomic alone."""
    given = [dummy in callee.guards for callee, pairs in _calls(stmt, scope)
             for dummy, actual in pairs if DESIGNATOR.match(actual) and root_of(actual, scope) == name
             and callee.intents.get(dummy) != "in"]  # fmt: skip
    return bool(given) and all(given)


def _read_only(unit: Unit, scope: Scope, own: Procedure) -> None:
    """An argument without INTENT that nothing assigns is as one with INTENT(IN)."""
    changed = {found.root for found in assignments(unit.body, scope)}
    changed |= {do_variable(block) for block in blocks(unit.body)}
    for stmt, _ in statements(unit.body):
        action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
        if type(action).__name__ in STATUS or stmt.kind in ("Pointer_Assignment_Stmt", "Entry_Stmt"):
            changed |= set(names_in(stmt.at.text))
    for name in own.arguments:
        if (
            not own.intents[name]
            and name not in changed
            and not any(given.kind in ("Equivalence_Stmt", "Entry_Stmt") for given in unit.declarations)
        ):
            own.intents[name] = "in"


def _follow(unit: Unit, scope: Scope) -> None:
    unsure, own = unsure_of(unit, scope), _own(unit, scope)
    for kind, names in zip(KINDS, unsure, strict=True):
        scope.modules[OUTER].unsure |= {(kind, name, home) for name, home in _outside(names, scope)}
        scope.modules[OUTER].unsure |= {(kind, name, inside_of(scope.parent)) for name in _hosted(names, scope)}
    if own is not None:
        result = result_of(unit)
        for name in (*own.arguments, result):
            kind = next((kind for kind, names in zip(KINDS, unsure, strict=True) if name in names), "")
            if kind and name not in own.takes:
                own.gives[own.name if name == result else name] = kind
    for stmt, _ in statements(unit.body):
        for callee, pairs in _calls(stmt, scope):
            given = [(dummy, actual) for dummy, actual in pairs if DESIGNATOR.match(actual)]
            callee.takes |= {dummy for dummy, actual in given if root_of(actual, scope) in unsure.times}


def result_of(unit: Unit) -> str:
    """The variable that a function returns."""
    found = re.search(r"\bresult\s*\(\s*(\w+)", unit.open.at.text if unit.open else "", re.I)
    return found[1].lower() if found else unit.name


def _calls(stmt: Stmt, scope: Scope) -> Iterator[tuple[Procedure, list[tuple[str, str]]]]:
    """Of a CALL of a procedure that is known: the pairs of dummy and actual argument."""
    action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
    if type(action).__name__ != "Call_Stmt":
        return
    callee = scope.procedure(str(action.children[0]))
    if callee is None:
        return
    text = str(action.children[1]) if action.children[1] is not None else ""
    pairs = list[tuple[str, str]]()
    for number, part in enumerate(split_outside(text, ",")):
        keyword = re.match(r"\s*(\w+)\s*=(?!=)", part)
        dummy = keyword[1].lower() if keyword else (callee.arguments[number : number + 1] or [""])[0]
        pairs.append((dummy, part[keyword.end() :].strip() if keyword else part.strip()))
    yield callee, pairs


def unsure_of(unit: Unit, scope: Scope) -> Uncertain:
    """What may differ in two right runs, by this unit and by the procedures that it calls."""
    given, names = {kind: set[str]() for kind in ("", *KINDS)}, set[str]()
    for stmt, _ in statements(unit.body):
        names |= set(called(stmt.node))
        for callee, pairs in _calls(stmt, scope):
            for dummy, actual in pairs:
                given[callee.gives.get(dummy, "")].add(root_of(actual, scope))
    for kind, name, home in scope.modules[OUTER].unsure:
        if ((symbol := scope.declared(name, set())) and symbol.home == home) or _is_inside(home, name, scope):
            given[kind].add(name)
    known = [callee for callee in map(scope.procedure, names) if callee is not None]
    functions = {kind: {each.name for each in known if each.gives.get(each.name) == kind} for kind in KINDS}
    functions["time"] |= {name for name in names if CLOCK.search(name) and scope.procedure(name) is None}
    given["sum"] |= sums_in(unit.body, scope)
    if (own := _own(unit, scope)) is not None:
        given["time"] |= own.takes
    return uncertain(unit.body, scope, given, functions)


def _outside(names: Iterable[str], scope: Scope) -> list[tuple[str, str]]:
    """Those of a module or COMMON, with that."""
    found = dict[tuple[str, str], None]()
    for name in names:
        symbol = scope.declared(name, set())
        if symbol and symbol.home and symbol.home != "block":
            found[name, symbol.home] = None
    return list(found)


def _hosted(names: Iterable[str], scope: Scope) -> set[str]:
    """Those that the program or procedure around this one declares."""
    around = scope.parent
    found = {name: around.names.get(name) for name in names if name not in scope.names} if around else {}
    return {name for name, symbol in found.items() if symbol and not symbol.home}


def _kept(names: Iterable[str], scope: Scope) -> set[str]:
    """Those of its own that have SAVE, and a value at the next call."""
    found = [(name, scope.names[name]) for name in names if name in scope.names]
    return {name for name, symbol in found
            if not symbol.home and not symbol.has("dummy") and (scope.saved or symbol.has("save", "initial"))
            and not scope.is_threadprivate(name)}  # fmt: skip


def inside_of(host: Scope | None) -> str:
    """The home of what a procedure assigns of the unit around it."""
    return f"{host.unit if host else ''}()"


def _is_inside(home: str, name: str, scope: Scope) -> bool:
    """Whether this is a variable of that unit, seen from it or from a procedure in it."""
    if home == inside_of(scope):
        return True
    return name not in scope.names and scope.parent is not None and home == inside_of(scope.parent)


def _races(unit: Unit, scope: Scope, source: Source) -> list[Race]:
    """What all threads would share if they call this procedure, and what it assigns outside of all constructs."""
    found, varying = dict[str, Race](), {given.root for given in assignments(unit.body, scope)}
    for given in assignments(unit.body, scope):
        symbol = given.scope.find(given.root)
        if symbol is None or given.around or given.what.way == "call" or scope.is_threadprivate(given.root):
            continue
        saved = symbol.has("save", "initial") or (scope.saved and not symbol.has("dummy"))
        saved = saved and given.root in scope.names and not symbol.home
        shared = bool(symbol.home and symbol.home != "block" and symbol.rank == 0)
        if saved or shared:
            constant = is_constant(given, varying) and found.get(given.root, Race("", "", 0, False, True)).constant
            where = source.lines[given.stmt.first]
            old = found.get(given.root)
            found[given.root] = Race(given.root, where.file, old.line if old else where.line, saved, constant)
    return list(found.values())


def is_constant(given: Assignment, varying: frozenset[str] | set[str] = frozenset()) -> bool:
    """The same value is assigned whenever this is run: constants, and what is not among the names that vary."""
    node = given.stmt.node.children[1] if given.stmt.kind == "If_Stmt" else given.stmt.node
    if type(node).__name__ != "Assignment_Stmt":
        return False
    right = str(node.children[2])
    symbols = [(name, given.scope.find(name)) for name in names_in(right)]
    if set(functions_in(right, given.scope)) - PURE:
        return False
    return all(
        symbol is not None
        and (
            symbol.has("parameter")
            or (
                bool(varying)
                and name not in varying
                and (symbol.home not in ("", "block") or symbol.type == "procedure" or name in PURE)
            )
        )
        for name, symbol in symbols
    )


def reached(names: Iterable[str], scope: Scope) -> Iterator[Procedure]:
    """The procedures that are called by these names, and by them, as far as they are known."""
    seen, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        procedure = scope.procedure(name)
        if procedure is not None and procedure.name not in seen:
            seen.add(procedure.name)
            yield procedure
            waiting += procedure.calls


def opens_region(text: str, scope: Scope) -> bool:
    """Whether a statement may call a procedure that opens a parallel region: one that is not known may."""
    call = re.search(r"\bcall\s+([\w%]+)", text, re.I)
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    names = [name.lower() for name in re.findall(r"(?<![\w%])([a-z]\w*)\s*\(", plain, re.I)]
    if call and "%" in call[1]:
        return True
    certain = {call[1].lower()} if call else set[str]()
    seen, waiting = set[str](), [*certain, *names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        procedure = scope.procedure(name)
        if procedure is None:
            if name in certain and name not in OUTPUTS and not name.startswith(("omp_", "mpi_")):
                return True
            continue
        if procedure.regions:
            return True
        waiting += procedure.calls
    return False
