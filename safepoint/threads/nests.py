"""The loops that a construct takes, and what of a combined one is evaluated before its team begins.

`parallel do` is written as `parallel` and `do` in it. So each thread would evaluate the bounds, which the user's text
does once; and `default(none)` would ask for the names in them.
"""

from __future__ import annotations

import re

from safepoint.threads.directives import SHARING, Clause, Directive
from safepoint.threads.sharing import bounds, do_variable
from safepoint.threads.structure import Block, Construct
from safepoint.threads.symbols import Scope
from safepoint.threads.written import PURE, is_variable, names_in

ASKS = {"num_threads", "if"}  # clauses of a team
CONDITION = re.compile(r"((?:\s*parallel\s*:)?\s*)(.*)", re.I | re.S)  # the modifier of IF, and its expression
CONSTANT = re.compile(r"[-+]?\d+(_\w+)?")


def nested(given: Construct, directive: Directive) -> list[Block]:
    """The loops that a construct takes, from the outside; empty if they are none that can be numbered."""
    items, found = list(given.body), list[Block]()
    if not 1 <= directive.collapse <= 3 or directive.argument("ordered"):
        return []
    for _ in range(directive.collapse):
        if len(items) != 1 or not isinstance(items[0], Block) or not items[0].is_do or not do_variable(items[0]):
            return []
        found.append(items[0])
        if found[-1].close is None and directive.collapse > 1:
            return []
        items = items[0].body
    return found


def heads(given: Construct) -> set[int]:
    """The lines of DO statements that are evaluated once, as no team is there yet: those of a combined loop."""
    words = given.directive.construct.split()
    combined = "parallel" in words and "do" in words
    return {block.first for block in nested(given, given.directive)} if combined else set()


def is_early(text: str, directive: Directive, scope: Scope) -> bool:
    """Whether an expression must not be evaluated in the team: it calls a function, or names what DEFAULT(NONE) asks
    for. What is private in the construct has no value outside of it."""
    names = set(names_in(text))
    if CONSTANT.fullmatch(text) or names & set(directive.names("private", "lastprivate", "linear", "reduction")):
        return False
    if calls_in(text, scope):
        return True
    listed = set(directive.names(*SHARING))
    return directive.default == "none" and any(_is_asked_for(name, scope) for name in names - listed)


def chunk_of(clause: Clause) -> tuple[str, str]:
    """What stands before and after the comma of SCHEDULE."""
    kind, _, chunk = clause.argument.partition(",") if clause.name == "schedule" else ("", "", "")
    return kind.strip(), chunk.strip()


def expressions(block: Block, outer: set[str]) -> list[str]:
    """The bounds of a loop; none if they depend on the loops around it in the nest."""
    given = bounds(block)
    return [] if {name for text in given for name in names_in(text)} & outer else given


def calls_in(text: str, scope: Scope) -> list[str]:
    """Functions in an expression that may do more than give a value."""
    names = [name.lower() for name in re.findall(r"([a-z]\w*)\s*\(", text, re.I)]
    return [name for name in names if name not in PURE and not is_array(name, scope)]


def asks(text: str, scope: Scope) -> bool:
    """Whether a clause calls what may be recorded."""
    return any(not name.startswith("omp_") for name in calls_in(text, scope))


def is_array(name: str, scope: Scope) -> bool:
    symbol = scope.find(name)
    return bool(symbol and symbol.rank) and is_variable(name, scope)


def _is_asked_for(name: str, scope: Scope) -> bool:
    symbol = scope.find(name)
    return symbol is not None and not symbol.has("parameter") and symbol.type != "procedure"
