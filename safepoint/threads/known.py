"""What is known of procedures and modules beyond one unit: intents, what they assign, whether they open regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from safepoint.threads.lines import Source
from safepoint.threads.sharing import Assignment, assignments, constructs, statements
from safepoint.threads.structure import Unit
from safepoint.threads.symbols import Procedure, Race, Scope, procedure_of, scope_of
from safepoint.threads.uncertainty import sums_in
from safepoint.threads.written import OUTPUTS, called, names_in

OUTER = ""  # the key of the scope that has procedures outside of modules


def declare(units: Sequence[Unit], modules: MutableMapping[str, Any], source: Source) -> None:
    """Add the modules and procedures of a source to those that are known."""
    outer = modules.setdefault(OUTER, Scope("", None, modules))  # type: ignore[arg-type]
    for unit in units:
        scope = scope_of(unit, None, modules)  # type: ignore[arg-type]
        if unit.kind == "module":
            modules[unit.name] = scope
        elif unit.kind in ("subroutine", "function") and unit.open:
            outer.procedures[unit.name] = procedure_of(unit.open.at.text, scope)
        _learn(unit, scope, outer, source)


def _learn(unit: Unit, scope: Scope, outer: Scope, source: Source) -> None:
    """What each procedure assigns, reads and calls."""
    own: Procedure | None = outer.procedures.get(unit.name) if scope.parent is None else None
    if own is None and scope.parent is not None:
        own = scope.parent.procedures.get(unit.name)
    if own is not None:
        parallel = any("parallel" in construct.directive.construct.split() for construct in constructs(unit.body))
        own.regions = parallel or unit.trouble is not None
        own.calls = sorted({name for stmt, _ in statements(unit.body) for name in called(stmt.node)})
        own.writes = _outside((found.root for found in assignments(unit.body, scope)), scope)
        own.reads = _outside((name for stmt, _ in statements(unit.body) for name in names_in(stmt.at.text)), scope)
        own.sums = _outside(sums_in(unit.body, scope), scope)
        own.races = _races(unit, scope, source)
    for inner in unit.inside:
        _learn(inner, scope_of(inner, scope, scope.modules), outer, source)


def _outside(names: Iterable[str], scope: Scope) -> list[tuple[str, str]]:
    """Those of a module or COMMON, with that."""
    found = dict[tuple[str, str], None]()
    for name in names:
        symbol = scope.declared(name, set())
        if symbol and symbol.home and symbol.home != "block":
            found[name, symbol.home] = None
    return list(found)


def _races(unit: Unit, scope: Scope, source: Source) -> list[Race]:
    """What all threads would share if they call this procedure, and what it assigns outside of all constructs."""
    found = dict[str, Race]()
    for given in assignments(unit.body, scope):
        symbol = given.scope.find(given.root)
        if symbol is None or given.around or given.what.way == "call" or scope.is_threadprivate(given.root):
            continue
        saved = symbol.has("save", "initial") or (scope.saved and not symbol.has("dummy"))
        saved = saved and given.root in scope.names and not symbol.home
        shared = bool(symbol.home and symbol.home != "block" and symbol.rank == 0)
        if saved or shared:
            constant = is_constant(given) and found.get(given.root, Race("", "", 0, False, True)).constant
            where = source.lines[given.stmt.first]
            old = found.get(given.root)
            found[given.root] = Race(given.root, where.file, old.line if old else where.line, saved, constant)
    return list(found.values())


def is_constant(given: Assignment) -> bool:
    """The same value is assigned whenever this is run."""
    node = given.stmt.node.children[1] if given.stmt.kind == "If_Stmt" else given.stmt.node
    if type(node).__name__ != "Assignment_Stmt":
        return False
    names = names_in(str(node.children[2]))
    symbols = [given.scope.find(name) for name in names]
    return all(symbol is not None and symbol.has("parameter") for symbol in symbols)


def reached(names: Iterable[str], scope: Scope) -> Iterator[Procedure]:
    """The procedures that are called by these names, and by them, as far as they are known."""
    seen, waiting = set[str](), list(names)
    outer = scope.modules[OUTER] if OUTER in scope.modules else scope
    while waiting:
        name = waiting.pop()
        procedure = scope.procedure(name) or outer.procedures.get(name)
        if procedure is not None and procedure.name not in seen:
            seen.add(procedure.name)
            yield procedure
            waiting += procedure.calls


def opens_region(text: str, scope: Scope, modules: MutableMapping[str, Any]) -> bool:
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
        procedure = scope.procedure(name) or modules[OUTER].procedures.get(name)
        if procedure is None:
            if name in certain and name not in OUTPUTS and not name.startswith(("omp_", "mpi_")):
                return True
            continue
        if procedure.regions:
            return True
        waiting += procedure.calls
    return False

