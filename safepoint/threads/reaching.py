"""Which procedures a name or a statement leads to, as far as they are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from safepoint.threads.callees import TARGET, Unknown, callees, followed
from safepoint.threads.structure import Stmt
from safepoint.threads.symbols import Procedure, Scope


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


def opens_region(stmt: Stmt, scope: Scope) -> bool:
    """Whether a statement may call a procedure that opens a parallel region, in any way: one that is not known may, if
    it is certainly called here."""
    direct = list(callees(stmt, scope))
    call = re.search(r"\bcall\s+(?:.*%)?\s*(\w+)", stmt.at.text.partition("'")[0], re.I)
    for callee in direct:
        if isinstance(callee, Unknown) and (callee.why == TARGET or (call and call[1].lower() == callee.name)):
            return True
    return any(_opens(callee) for callee in direct if isinstance(callee, Procedure))


def _opens(given: Procedure) -> bool:
    if given.opens is None:
        given.opens = any(isinstance(callee, Procedure) and callee.regions for callee in followed([given]))
    return given.opens
