"""What a region assigns through the procedures that it calls: what can be named where the region is, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from safepoint.threads.callees import Unknown, callees, followed, stated
from safepoint.threads.known import inside_of
from safepoint.threads.sharing import reaches_out
from safepoint.threads.structure import Around, Construct
from safepoint.threads.symbols import OUTER, Procedure, Scope
from safepoint.threads.unseen import hidden, unseen


class Through(NamedTuple):
    """`name`: as it is called at the region; empty: it has no name there, or it is not known what is assigned, and
    `why` says so. `line`: the number of the line that calls."""

    name: str
    line: int
    around: Around = ()
    why: str = ""


def through(given: Construct, scope: Scope) -> Iterator[Through]:
    """In the order of the calls; what has no name is told once."""
    told = set[str]()
    for line, why in dict.fromkeys(unseen(given, scope)):
        yield Through("", line, (), why)
    for stmt, where, around in stated([given], scope):
        for callee in followed(callees(stmt, where)):
            if isinstance(callee, Unknown):
                found = [("", f"what {callee.name} assigns beside its arguments is in no digest, as {callee.why}")]
            else:
                found = list(_assigned(callee, scope))
            for name, why in found:
                if name and reaches_out(name, around, scope):
                    yield Through(name, stmt.first, around)
                elif why and (what := why.split(",")[0]) not in told:
                    told.add(what)
                    yield Through("", stmt.first, around, why)


def _assigned(given: Procedure, scope: Scope) -> Iterator[tuple[str, str]]:
    """The name at the region, or why there is none, of what a procedure assigns outside of itself."""
    unsure = {(name, home) for kind, name, home in scope.modules[OUTER].unsure if kind != "sum"}
    for name, home in given.writes:
        module = scope.modules.get(home)
        if home.startswith("in ") or (name, home) in unsure or (module and module.is_threadprivate(name)):
            continue
        here = _name_of(name, home, scope)
        yield here, "" if here else _nameless(f"{name} of {home}", given)
    for why in hidden(given):
        yield "", why
    for name in sorted(given.kept):
        yield "", _nameless(f"{name} of {given.name}", given)
    host: Scope | None = given.unit.scope.parent if given.unit is not None else None
    if host is None:
        return
    for name in sorted(given.hosted - {name for name, home in unsure if home == inside_of(host)}):
        here = name if _is_host(host, name, scope) else ""
        yield here, "" if here or host.is_threadprivate(name) else _nameless(f"{name} of {host.unit}", given)


def _nameless(what: str, given: Procedure) -> str:
    return f"{what} is in no digest, as {given.name} assigns it and it has no name here"


def _name_of(name: str, home: str, scope: Scope) -> str:
    """What a variable of a module or COMMON is called here: USE may have another name for it."""
    where: Scope | None = scope
    names = [name]
    while where is not None:
        names += [here for _, _, renames in where.uses for here, there in renames.items() if there == name]
        where = where.parent
    for each in names:
        symbol = scope.declared(each, set())
        if symbol and symbol.home == home:
            return each
    return ""


def _is_host(host: Scope, name: str, scope: Scope) -> bool:
    """Whether the name means here what it means in the unit that contains the procedure."""
    where: Scope | None = scope
    while where is not None and where is not host:
        if name in where.names:
            return False
        where = where.parent
    return where is host
