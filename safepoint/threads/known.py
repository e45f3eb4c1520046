"""What is known of procedures and modules beyond one unit: intents, what they assign, whether they open regions."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from safepoint.threads.sharing import assignments, statements
from safepoint.threads.structure import Unit
from safepoint.threads.symbols import INTRINSIC_MODULES, Procedure, Scope, scope_of
from safepoint.threads.written import OUTPUTS, PURE, called

OUTER = ""  # the key of the scope that has procedures outside of modules


def declare(units: Sequence[Unit], modules: MutableMapping[str, Any]) -> None:
    """Add the modules and procedures of a source to those that are known."""
    outer = modules.setdefault(OUTER, Scope("", None, modules))  # type: ignore[arg-type]
    for unit in units:
        scope = scope_of(unit, None, modules)  # type: ignore[arg-type]
        if unit.kind == "module":
            modules[unit.name] = scope
        elif unit.kind in ("subroutine", "function") and unit.open:
            from safepoint.threads.symbols import _procedure

            outer.procedures[unit.name] = _procedure(unit.open.at.text, scope)
        _learn(unit, scope, outer)


def _learn(unit: Unit, scope: Scope, outer: Scope) -> None:
    """What each procedure assigns and calls."""
    own: Procedure | None = outer.procedures.get(unit.name) if scope.parent is None else None
    if own is None and scope.parent is not None:
        own = scope.parent.procedures.get(unit.name)
    if own is not None:
        parallel = any("parallel" in str(construct.directive.construct).split() for _, around in statements(unit.body)
                       for construct in around)  # fmt: skip
        own.regions = parallel or unit.trouble is not None
        own.calls = sorted({name for stmt, _ in statements(unit.body) for name in called(stmt.node)})
        for found in assignments(unit.body, scope):
            symbol = scope.find(found.root)
            if symbol and symbol.home and symbol.home != "block":
                own.writes.append((found.root, symbol.home))
    for inner in unit.inside:
        _learn(inner, scope_of(inner, scope, scope.modules), outer)


def opens_region(text: str, scope: Scope, modules: MutableMapping[str, Any]) -> bool:
    """Whether a statement may call a procedure that opens a parallel region: one that is not known may."""
    call = re.search(r"\bcall\s+([\w%]+)", text, re.I)
    names = [name.lower() for name in re.findall(r"(?<![\w%])([a-z]\w*)\s*\(", re.sub(r"'[^']*'|\"[^\"]*\"", "", text), re.I)]
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


__all__ = ["INTRINSIC_MODULES", "OUTER", "PURE", "declare", "opens_region"]
