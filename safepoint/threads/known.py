"""What is known of procedures and modules beyond one unit: intents, what they assign, whether they open regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from itertools import takewhile
from typing import Any

from safepoint.threads.callees import GIVING, of_binding, stated, take
from safepoint.threads.declaring import procedure_of, scope_of
from safepoint.threads.lines import Source
from safepoint.threads.locks import grouped, way_in
from safepoint.threads.passing import calls, references
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
from safepoint.threads.teams import is_number, made_directly, marks
from safepoint.threads.times import named
from safepoint.threads.uncertainty import Uncertain, functions_in, sums_in, uncertain
from safepoint.threads.unseen import led
from safepoint.threads.written import DESIGNATOR, PURE, THREADS, called, is_variable, names_in, target

FILES = "/files"  # the key of what was read
KINDS = "time", "number", "thread", "scratch", "sum"  # as in `Uncertain`
CLOCK = re.compile(r"timer|wtime|clock|(wall|cpu|get|elapsed)_?time|timeofday")  # names of functions that nobody knows
ROUNDS = 8  # so deep are calls followed, by which a procedure gives or takes something
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
        for inner in (unit, *_inside(unit)):
            inner.body[:] = grouped(inner.body, way_in(inner.scope))
        _learn(unit, unit.scope, source)


def follow(units: Iterable[Unit]) -> None:
    """Clocks and sums of threads through calls, from what is known by now."""
    every = [inner for unit in units for inner in (unit, *_inside(unit))]
    for _ in range(ROUNDS):
        if not sum(_follow(unit, unit.scope) for unit in every):
            return


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
        given = [*(found.root for found in assignments(unit.body, scope)), *sorted(led(unit)[0])]
        own.writes = [each for each in _outside(given, scope) if each[1] != f"in {scope.unit}"]
        own.hosted = _hosted(set(given), scope)
        own.kept = _kept(set(given), scope)
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
            if not (locks or found.what.way in ("call", "handed") or protected(found.around))}  # fmt: skip
    return {found.root for found in given} - bare


def guarded(stmt: Stmt, name: str, scope: Scope) -> bool:
    """Whether the procedure that a CALL names assigns this variable in critical or atomic alone."""
    given = [dummy in callee.guards for callee, pairs in calls(stmt, scope)
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
            written = type(action).__name__ == "Write_Stmt"  # what it prints, it does not change
            changed |= set(names_in(str(action.children[0]) if written else stmt.at.text))
    for name in own.arguments:
        if (
            not own.intents[name]
            and name not in changed
            and not any(given.kind in ("Equivalence_Stmt", "Entry_Stmt") for given in unit.declarations)
        ):
            own.intents[name] = "in"


def _follow(unit: Unit, scope: Scope) -> bool:
    """Whether something came to be known."""
    unsure, own, outer = unsure_of(unit, scope), _own(unit, scope), scope.modules[OUTER].unsure
    before, new = (len(outer), own and (len(own.gives), len(own.passes))), False
    for kind, names in zip(KINDS, unsure.kinds, strict=True):
        outer |= {(kind, name, home) for name, home in _outside(names, scope)}
        outer |= {(kind, name, inside_of(scope.parent)) for name in _hosted(names, scope)}
    outer |= {(kind, mark, "") for kind, marked in (("scratch", unsure.scratch - unsure.times), ("time", unsure.times))
              for mark in marked if mark.startswith("%")}  # fmt: skip
    if own is not None:
        alone = unsure_of(unit, scope, taken=False) if own.takes else unsure
        for name in (*own.arguments, result := result_of(unit)):
            there = own.name if name == result else name
            if (name, kind := _kind(name, alone)) not in own.takes and kind:
                own.gives[there] = kind
            elif not any((name, of) in own.takes for of in KINDS) and (kind := _kind(name, unsure)):
                own.passes[there] = kind
    for stmt, _ in statements(unit.body):
        for callee, pairs in (*calls(stmt, scope), *references(stmt, scope)):
            taken = {(dummy, kind) for dummy, actual in pairs if callee.intents.get(dummy) != "out"
                     and (kind := _kind_of(actual, unsure.at(stmt.first), scope))}  # fmt: skip
            new = new or not taken <= callee.takes
            callee.takes |= taken
    return new or before != (len(outer), own and (len(own.gives), len(own.passes)))


def _kind(name: str, unsure: Uncertain) -> str:
    return next((kind for kind, names in zip(KINDS, unsure.kinds, strict=True) if name in names), "")


def _kind_of(actual: str, unsure: Uncertain, scope: Scope) -> str:
    """What an argument gives to the procedure that is called."""
    if DESIGNATOR.match(actual) and any(mark in unsure.times for mark, _ in marks(actual, scope)):
        return "time"
    if is_number(actual, unsure.numbers | THREADS, scope):
        return "number"
    if made_directly(actual, scope) & (unsure.threads | THREADS):
        return "thread"
    if DESIGNATOR.match(actual) and is_variable(actual, scope):
        places = [mark in unsure.scratch or set(names_in(inside)) & (unsure.threads | THREADS)
                  for mark, inside in marks(actual, scope)]  # fmt: skip
        return "scratch" if any(places) else ""
    return ""


def result_of(unit: Unit) -> str:
    """The variable that a function returns."""
    found = re.search(r"\bresult\s*\(\s*(\w+)", unit.open.at.text if unit.open else "", re.I)
    return found[1].lower() if found else unit.name


def unsure_of(unit: Unit, scope: Scope, *, taken: bool = True) -> Uncertain:
    """What may differ in two right runs, by this unit, by the procedures that it calls, and by those that call it if
    `taken`."""
    given, names, passing = {kind: set[str]() for kind in ("", *KINDS)}, set[str](), []
    for stmt, _ in statements(unit.body):
        names |= set(called(stmt.node))
        for callee, pairs in calls(stmt, scope):
            _receive(given, callee.gives, pairs, scope)
        passing += [(stmt.first, *each) for each in (*calls(stmt, scope), *references(stmt, scope)) if each[0].passes]
    for kind, name, home in scope.modules[OUTER].unsure:
        if name.startswith("%") or scope.home(name) == home or _is_inside(home, name, scope):
            given[kind].add(name)
    known = [callee for callee in map(scope.procedure, names) if callee is not None]
    functions = {kind: {each.name for each in known if each.gives.get(each.name) == kind} for kind in KINDS}
    for name in {name for stmt, _ in statements(unit.body) for name in re.findall(r"%\s*(\w+)\s*\(", str(stmt.node))}:
        for callee in of_binding(name.lower(), scope):
            if (given_by := callee.gives.get(callee.name, "")) != "":
                functions[given_by].add(f"%{name.lower()}")
    functions["time"] |= {name for name in names if CLOCK.search(name) and scope.procedure(name) is None}
    given["sum"] |= sums_in(unit.body, scope)
    if (own := _own(unit, scope)) is not None:
        for name, kind in own.takes if taken else ():
            given[kind].add(name)
    found, before = uncertain(unit.body, scope, given, functions), -1
    while passing and before != (before := sum(map(len, (*given.values(), *functions.values())))):
        for line, callee, pairs in passing:
            kinds = [_kind_of(actual, found.at(line), scope) for dummy, actual in pairs
                     if callee.intents.get(dummy) != "out"]  # fmt: skip
            if any(kinds):
                _receive(given, callee.passes, pairs, scope)
                functions[callee.passes.get(callee.name, "time")] |= {callee.name} & set(callee.passes)
        found = uncertain(unit.body, scope, given, functions)
    return found


def _receive(given: dict[str, set[str]], gives: dict[str, str], pairs: list[tuple[str, str]], scope: Scope) -> None:
    for dummy, actual in pairs:
        kind = gives.get(dummy, "")
        if kind in ("scratch", "time") and DESIGNATOR.match(actual):
            mark = list(marks(actual, scope))[-1][0]
            given[kind].add(mark if kind == "scratch" else named(actual, root_of(actual, scope), scope))
        else:
            given[kind].add(root_of(actual, scope))


def _outside(names: Iterable[str], scope: Scope) -> list[tuple[str, str]]:
    """Those that other procedures may have too, with their home."""
    return list(dict.fromkeys((name, home) for name in names if (home := scope.home(name))))


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
        if (
            symbol is None
            or given.around
            or given.what.way in ("call", "handed", "status")
            or scope.is_threadprivate(given.root)
        ):
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
