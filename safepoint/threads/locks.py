"""What is done under a lock, as a construct of its own: its order is chance, as that of CRITICAL is.

(1) From the item of a block that sets a lock to the item of the same block that frees it is a construct `lock`.
(2) Other locks are *loose*: what may be done under one is taken from the lines between, or from all around.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from safepoint.threads.callees import callees, stated
from safepoint.threads.directives import Directive
from safepoint.threads.structure import Block, Construct, Item, Stmt
from safepoint.threads.symbols import Procedure, Scope

SETS = re.compile(r"\bcall\s+omp_set_(nest_)?lock\b", re.I)
TRIES = re.compile(r"\bomp_test_(nest_)?lock\s*\(", re.I)
FREES = re.compile(r"\bcall\s+omp_unset_(nest_)?lock\b", re.I)
CALL = re.compile(r"\bcall\s+\w", re.I)
LEAVES = re.compile(r"\b(go\s*to|return|cycle|exit)\b", re.I)
TRIED = "tried"  # the name of one that the condition of its block has set
INSIDE = {"critical", "atomic", "simd", "flush", "sp", "lock"}  # constructs that may stand under a lock

Way = Callable[[Stmt], str]  # what a statement does with locks: set, free, or nothing


def way(stmt: Stmt) -> str:
    text = stmt.at.text
    return "set" if SETS.search(text) or TRIES.search(text) else "free" if FREES.search(text) else ""


def way_in(scope: Scope) -> Way:
    """As `way`, and a CALL of a procedure does what that does, if it only sets locks or only frees them."""

    def of(stmt: Stmt) -> str:
        if way(stmt) or not CALL.search(stmt.at.text):
            return way(stmt)
        return _one(_of_procedure(callee) for callee in callees(stmt, scope) if isinstance(callee, Procedure))

    return of


def _of_procedure(given: Procedure) -> str:
    """What it does itself, or by the procedures that it calls."""
    if given.locks is None:
        given.locks, unit = "", given.unit  # one that calls itself does nothing more by that
        if unit is not None:
            given.locks = _one(way_in(scope)(stmt) for stmt, scope, _ in stated(unit.body, unit.scope))
    return given.locks


def _one(ways: Iterable[str]) -> str:
    found = {*ways} - {""}
    return found.pop() if len(found) == 1 else ""


def grouped(items: Sequence[Item], of: Way, held: bool = False) -> list[Item]:
    """The items of one block with constructs `lock` among them. `held`: the statement that leads to it sets one."""
    found, open_at, depth = list[Item](), 0 if held else -1, int(held)
    for item in items:
        _inside(item, of)
        does = _does(item, of)
        found.append(item)
        if does == "set":
            open_at, depth = (len(found) - 1, 1) if not depth else (open_at, depth + 1)
        elif does == "free" and depth:
            depth -= 1
            if not depth and _stays(found[open_at:]):
                found[open_at:] = [_construct(found[open_at:], TRIED if held and not open_at else "lock")]
            held = held and depth > 0
    return found


def _inside(item: Item, of: Way) -> None:
    if isinstance(item, Construct) and item.directive.construct != "lock":
        item.body[:] = grouped(item.body, of)
    elif isinstance(item, Block):
        for head, body in item.parts:
            tried = not item.is_do and re.match(r"(else\s*)?if\s*\(\s*omp_test_", head.at.text, re.I)
            body[:] = grouped(body, of, bool(tried))


def _does(item: Item, of: Way) -> str:
    """A block that only sets locks, or only frees them, does as a statement does."""
    if isinstance(item, Construct):
        return ""
    ways = {of(stmt) for stmt in loose_in([item])} - {""}
    freed = isinstance(item, Block) and ways == {"free"} and not _stays([item])
    return "" if len(ways) != 1 or freed else ways.pop()


def loose_in(items: Sequence[Item]) -> list[Stmt]:
    """Statements outside of constructs `lock`, the first ones of blocks too."""
    found = list[Stmt]()
    for item in items:
        if isinstance(item, Stmt):
            found.append(item)
        elif isinstance(item, Block):
            for head, body in item.parts:
                first = body[0] if body else None
                tried = isinstance(first, Construct) and first.directive.name == TRIED
                found += [*([] if tried else [head]), *loose_in(body)]
        elif item.directive.construct != "lock":
            found += loose_in(item.body)
    return found


def _stays(items: Sequence[Item], loop: bool = False) -> bool:
    """Nothing leaves these items but at their end."""
    for item in items:
        if isinstance(item, Construct):
            if item.directive.construct not in INSIDE or not _stays(item.body, loop):
                return False
        elif isinstance(item, Block):
            if not all(_stays(body, loop or item.is_do) for _, body in item.parts):
                return False
        elif found := LEAVES.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", item.at.text)):
            plain = re.search(r"\b(cycle|exit)\s*$", item.at.text, re.I)
            if not (loop and plain and found[1].lower() in ("cycle", "exit")):
                return False
    return True


def _construct(items: list[Item], name: str) -> Construct:
    first = items[0].first
    return Construct(Directive("lock", (), False, name, first, first - 1, ""), items)


def loose_lines(items: Sequence[Item], of: Way) -> list[tuple[int, int]]:
    """The lines in which a lock may be held that is no construct: in the innermost block that has all of it, from the
    first that sets one to the last that frees one; all lines of that block if these are in another order."""
    having = [item for item in items if any(of(stmt) for stmt in loose_in([item]))]
    inner = [_one_body(item, of) for item in having]
    apart = len(having) == 1 or all(isinstance(item, Construct) for item in having)
    if apart and all(body is not None for body in inner):
        return [found for body in inner if body is not None for found in loose_lines(body, of)]
    does = [(stmt, done) for item in having for stmt in loose_in([item]) if (done := of(stmt))]
    if does[0][1] == "set" and does[-1][1] == "free":
        return [(does[0][0].first, does[-1][0].last)]
    return [(items[0].first, items[-1].last)]


def _one_body(item: Item, of: Way) -> list[Item] | None:
    """That of a construct, or the one of a block that alone does anything with locks."""
    if isinstance(item, Construct):
        return item.body
    if isinstance(item, Stmt) or any(of(head) for head, _ in item.parts):
        return None
    having = [body for _, body in item.parts if any(of(stmt) for stmt in loose_in(body))]
    return having[0] if len(having) == 1 else None
