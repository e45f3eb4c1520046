"""Which procedures a name leads to, as far as they are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from safepoint.threads.symbols import Procedure, Scope
from safepoint.threads.written import OUTPUTS


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
