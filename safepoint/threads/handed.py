"""What is handed out in an order of chance: a counter in critical or atomic, and what threads are given by it.

(1) A counter that hands out work may go on beyond the end. It ends with the same value in each right run where nothing
asks for it, and iterations of a loop that is shared out are what counts it.
(2) An array has an order of chance if elements at such a number are given what the number does not decide, as an
iteration that has found something is. What the number itself decides, as `a(k) = f(k)`, is the same in each right run.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from safepoint.threads.sharing import (
    PRIVATE,
    Assignment,
    assignments,
    blocks,
    constructs,
    do_variable,
    statements,
    status,
)
from safepoint.threads.structure import Construct
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import right_of
from safepoint.threads.written import names_in, target

ALONE = {"critical": "critical", "atomic": "atomic", "lock": "critical"}  # whose order is chance, and what that makes
Around = tuple[Construct, ...]


def queued(construct: Construct, scope: Scope, around: Around = ()) -> dict[str, str]:
    """What hands out work, `pos = pos + 1; k = pos` in critical or atomic: the shared counter, and the private number
    that each thread is given."""
    found = dict[str, str]()
    for given, shared, way in _captures(construct, scope, around):
        for each in given:
            used = shared & set(names_in(right_of(each)))
            if used and each.root not in shared and _status(each) == "private":
                found |= dict.fromkeys([each.root, *sorted(used)], way)
    return found


def unsettled(construct: Construct, scope: Scope) -> dict[str, tuple[int, str]]:
    """What may differ after a parallel construct, as work or places in an array are handed out in it: the number of the
    line, and why."""
    found, names = dict[str, tuple[int, str]](), set(queued(construct, scope))
    asked = set[str]()
    for block in blocks([construct]):
        asked |= {name for head, _ in block.parts for name in names_in(head.at.text)}
    for stmt, _ in statements([construct]):
        asked |= set(names_in(str(stmt.node.children[0]))) if stmt.kind == "If_Stmt" else set()
    for each in assignments([construct], scope) if names else ():
        bare = not any("do" in given.directive.construct.split() for given in each.around)
        if each.root in names and (bare or names & asked or _status(each) == "private"):
            found.setdefault(each.root, (each.stmt.first, "it hands out work, and may go on beyond the end"))
    for name, (line, number) in filled(construct, scope).items():
        found[name] = line, f"it has an order of chance: its subscript {number} is handed out"
    return found


def filled(construct: Construct, scope: Scope, around: Around = ()) -> dict[str, tuple[int, str]]:
    """Shared arrays that have an order of chance: the number of the line, and the name in the subscript."""
    found, given = dict[str, tuple[int, str]](), list(assignments([construct], scope, around))
    handed = queued(construct, scope, around)
    counters = {name for _, shared, _ in _captures(construct, scope, around) for name in shared}
    for number in (*handed, *sorted(counters - set(handed))):
        own = [each for each in given if each.root == number]
        loops = {do_variable(block) for each in own for block, _ in each.inside if block.is_do} - {""}
        same = _made_of({number}, given, set())
        others = {name for name in handed if name not in same and name not in counters}
        free = _made_of(loops | others, given, same)
        for each in given:
            subscripts = names_in(each.what.text)[1:]
            inside = same & set(subscripts)
            value = set(names_in(right_of(each) or each.stmt.at.text))
            if inside and value & free - same and _status(each) in ("shared", "outside"):
                found.setdefault(each.root, (each.stmt.first, next(name for name in subscripts if name in inside)))
    return found


def _captures(
    construct: Construct, scope: Scope, around: Around
) -> Iterator[tuple[list[Assignment], set[str], str]]:  # fmt: skip
    """Of each critical or atomic construct: what is assigned to integers in it, and which are shared and counted on."""
    for inner in constructs([construct]):
        if (way := ALONE.get(inner.directive.construct, "")) == "":
            continue
        given = [each for each in assignments([construct], scope, around)
                 if any(one is inner for one in each.around) and _is_counter(each)]  # fmt: skip
        shared = {each.root for each in given if each.root in names_in(right_of(each))
                  and _status(each) in ("shared", "outside")}  # fmt: skip
        yield given, shared, way


def _made_of(names: Set[str], given: list[Assignment], but: Set[str]) -> set[str]:
    """These, and private variables that are made of them, or where they decide on it."""
    found, before = set(names), -1
    while before != (before := len(found)):
        for each in given:
            used = {*names_in(right_of(each)), *(name for block, head in each.inside if not block.is_do
                                                 for name in names_in(head.at.text))}  # fmt: skip
            if used & found and each.root not in but and _status(each) in (*PRIVATE, "local"):
                found.add(each.root)
    return found


def _status(given: Assignment) -> str:
    return status(given.root, given.around, given.scope)


def _is_counter(found: Assignment) -> bool:
    known = target(found.what.text, found.scope)
    return known.whole and known.rank == 0 and known.type == "integer"
