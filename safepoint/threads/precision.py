"""Sums of threads that keep fewer digits than what is summed: they differ from the serial sum where it can be seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safepoint.threads.directives import Directive
from safepoint.threads.sharing import assignments
from safepoint.threads.structure import Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.written import names_in

SINGLE, DOUBLE = {"4", "real32", "c_float"}, {"8", "real64", "c_double"}
LITERAL = re.compile(r"(?<![\w.])[\d.]+(d[+-]?\d+|(e[+-]?\d+)?_(8|real64)\b)", re.I)


def short_sums(unit: Unit, scope: Scope) -> Iterator[tuple[int, str]]:
    """Single ones of doubles: both kinds are written in their declarations."""
    told = set[str]()
    for given in assignments(unit.body, scope):
        symbol = scope.find(given.root)
        if given.root in told or symbol is None or symbol.kind not in SINGLE or given.stmt.kind != "Assignment_Stmt":
            continue
        right = str(given.stmt.node.children[2])
        names = names_in(right)
        if given.root not in names or not any(_sums(around.directive, given.root) for around in given.around):
            continue
        kinds = {known.kind for name in names if (known := scope.find(name)) is not None}
        if kinds & DOUBLE or LITERAL.search(right):
            told.add(given.root)
            yield given.stmt.first, (f"{given.root} is of single precision, and threads sum doubles in it: it differs "
                                     "from the serial sum in its seventh digit")  # fmt: skip


def _sums(directive: Directive, name: str) -> bool:
    return directive.construct in ("critical", "atomic") or name in directive.names("reduction")
