"""What each thread has by itself of what a team shares out: a part of a sum, how many iterations it was given."""

from __future__ import annotations

from collections.abc import Sequence

from safepoint.threads.handed import unsettled
from safepoint.threads.sharing import Assignment, assignments, constructs, status
from safepoint.threads.structure import Construct, Unit
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import right_of
from safepoint.threads.written import names_in

SHARED_OUT = {"do", "sections", "section", "single", "master", "masked", "task", "taskloop", "workshare", "loop"}
OWN = {"private", "firstprivate", "lastprivate", "reduction", "threadprivate", "local"}


def is_private(name: str, around: Sequence[Construct], scope: Scope) -> bool:
    """Whether each thread has its own, by the parallel constructs around, or as a variable of a procedure."""
    teams = [given for given in around if "parallel" in given.directive.construct.split()]
    return status(name, teams, scope) in OWN


def parts_of(unit: Unit, threads: frozenset[str]) -> frozenset[str]:
    """Private variables that are assigned where work is shared out, or in loops and branches that depend on `threads`,
    and what is made of these."""
    given = [each for each in assignments(unit.body, unit.scope) if is_private(each.root, each.around, each.scope)]
    found, before = {each.root for each in given if _is_shared_out(each)}, -1
    while before != (before := len(found)):
        found |= {each.root for each in given if _mentions(each) & (found | threads)}
    return frozenset(found)


def handed_in(units: Sequence[Unit]) -> dict[int, frozenset[str]]:
    """Of each unit, by its identity: what may differ as it is handed out in a region, there or in another unit that
    has the variable too."""
    found, outside = dict[int, set[str]](), set[tuple[str, str]]()
    for unit in units:
        teams = [each for each in constructs(unit.body) if "parallel" in each.directive.construct.split()]
        own = {name for each in teams for name in unsettled(each, unit.scope)}
        found[id(unit)] = own
        outside |= {(name, home) for name in own if (home := unit.scope.home(name))}
    return {
        id(unit): frozenset(found[id(unit)] | {name for name, home in outside if unit.scope.home(name) == home})
        for unit in units
    }


def _is_shared_out(given: Assignment) -> bool:
    kinds = [set(construct.directive.construct.split()) for construct in given.around]
    return any(kind & SHARED_OUT and "parallel" not in kind for kind in kinds)


def _mentions(given: Assignment) -> set[str]:
    """Names of which a value is made, and of the loops and conditions around it."""
    heads = [name for _, head in given.inside for name in names_in(head.at.text)]
    own = names_in(given.stmt.at.text) if given.stmt.kind == "If_Stmt" else names_in(right_of(given))
    return {*own, *heads} - {given.root}
