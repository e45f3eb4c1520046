"""What is a time, by name, and from which line on.

(1) A component is meant by its type and name, `%type%component`, in all variables of that type.
(2) A scalar of the unit alone is none before it is first given one, or before the loop in which it is: what was made
    of it there is compared. Nothing before that line is done after it, as there is no way back.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from safepoint.threads.sharing import Assignment, statements
from safepoint.threads.structure import Item
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import marks
from safepoint.threads.written import names_in

Made = Sequence[tuple[Assignment, tuple[list[str], list[str]]]]  # with the names and functions of the value


def named(text: str, root: str, scope: Scope) -> str:
    """The name by which what is assigned may be a time."""
    mark = list(marks(text, scope))[-1][0]
    return root if mark.startswith("%%") else mark


def timed(given: Made, items: Sequence[Item], scope: Scope, names: Set[str],
          functions: Set[str]) -> tuple[frozenset[str], dict[str, int]]:  # fmt: skip
    """`names`, and what is made of them and of such functions; and the first lines of those that are none before."""
    keys = [named(each.what.text, each.root, each.scope) for each, _ in given]
    back = any(stmt.at.label and stmt.kind != "Format_Stmt" for stmt, _ in statements(items))
    own = set[str]() if back else {name for name in {*keys} - names if _is_own(name, scope)}
    since, before = dict.fromkeys(names, 0), {"": 0}
    while since != before:
        before = dict(since)
        for (each, (used, calls)), name in zip(given, keys, strict=True):
            at = each.stmt.first
            if any(name in functions for name in calls) or any(since.get(name, at + 1) <= at for name in used):
                since[name] = min(since.get(name, at), _begin(each) if name in own else 0)
    return frozenset(since), {name: line for name, line in since.items() if line}


def _begin(given: Assignment) -> int:
    """The first line of all that may be done after it: of the outermost loop or construct around."""
    loops = [block.first for block, _ in given.inside if block.is_do]
    return min([given.stmt.first, *loops[:1], *(construct.first for construct in given.around[:1])])


def _is_own(name: str, scope: Scope) -> bool:
    """A scalar that no other unit has, and no pointer; it keeps no value from one call to the next."""
    symbol = scope.names.get(name)
    if symbol is None or symbol.home or symbol.rank or not symbol.intrinsic or scope.saved:
        return False
    if symbol.has("dummy", "save", "initial", "pointer", "target", "allocatable"):
        return False
    inner = [given.unit for given in scope.procedures.values() if given.unit is not None]
    return not any(name in names_in(stmt.at.text) for unit in inner
                   for stmt in (*unit.declarations, *(stmt for stmt, _ in statements(unit.body))))  # fmt: skip
