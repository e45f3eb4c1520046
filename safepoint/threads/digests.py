"""What is digested at the end of a region: the variables that it assigns and shares, in order of first assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from safepoint.threads.handed import unsettled
from safepoint.threads.lines import split_outside
from safepoint.threads.sharing import Assignment, assignments, constructs, reaches_out
from safepoint.threads.structure import Construct
from safepoint.threads.symbols import Scope
from safepoint.threads.teams import marks
from safepoint.threads.through import through
from safepoint.threads.uncertainty import Uncertain, made_of
from safepoint.threads.written import THREADS, compressed, names_in


class Digested(NamedTuple):
    """`name`: of a variable, or of its component, `u%now`. `line`: the number of the line that assigns it first."""

    name: str
    line: int
    loose: str


def digested(given: Construct, scope: Scope, unsure: Uncertain, also: Sequence[str] = ()) -> list[Digested]:
    """Of a parallel construct; what procedures assign that it calls is in it, if it can be seen from here. Arrays
    that are given clocks or numbers of threads are not."""
    found, reduced = dict[str, Digested](), _reduced(given) | unsure.rounded
    excluded = {name for name, _, _ in undigested(given, scope, unsure)}
    for assignment in assignments([given], scope):
        name, path = assignment.root, _path(assignment)
        if reaches_out(name, assignment.around, assignment.scope):
            found.setdefault(path, Digested(path, assignment.stmt.first, "reduction" if name in reduced else ""))
    for each in through(given, scope):
        if each.name:
            loose = "reduction" if each.name in reduced else ""
            found.setdefault(each.name, Digested(each.name, each.line, loose))
    for name in also:
        if scope.declared(name, set()):
            found.setdefault(name, Digested(name, given.last, ""))
    return [each for path, each in found.items() if path and path.split("%")[0] not in excluded
            and not any(path.startswith(f"{other}%") for other in found)]  # fmt: skip


def _path(given: Assignment) -> str:
    """What is assigned, without subscripts; for a name of ASSOCIATE all of the variable that it stands for."""
    parts = [part.split("(")[0].strip().lower() for part in split_outside(compressed(given.what.text), "%")]
    return "%".join(parts) if parts[0] == given.root else given.root


def undigested(given: Construct, scope: Scope, unsure: Uncertain) -> list[tuple[str, int, str]]:
    """Variables that may differ in two right runs as a whole: the line that makes them so, and why."""
    found = {name: (name, line, f"{name} is in no digest, as {why}")
             for name, (line, why) in unsettled(given, scope).items()
             if any(each.root == name and reaches_out(name, each.around, each.scope)
                    for each in assignments([given], scope))}  # fmt: skip
    for each in assignments([given], scope):
        if not reaches_out(each.root, each.around, each.scope):
            continue
        if any(mark.startswith("%") and mark in unsure.scratch for mark, _ in marks(each.what.text, each.scope)):
            continue  # the component alone is in none
        bad = unsure.at(each.stmt.first).names | THREADS
        inside = [name for name in names_in(each.what.text)[1:] if name in bad]
        if inside:
            why = f"its subscript {inside[0]} may be the number of a thread, or a time"
        elif made_of(each, unsure.at(each.stmt.first).names):
            why = "it is given the number of a thread, or a time"
        else:
            continue
        found.setdefault(each.root, (each.root, each.stmt.first, f"{each.root} is in no digest, as {why}"))
    return list(found.values())


def _reduced(given: Construct) -> set[str]:
    return {name for construct in constructs([given]) for name in construct.directive.names("reduction")}
