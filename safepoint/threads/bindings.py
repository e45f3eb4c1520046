"""What derived types and interfaces say of calls without the name of a procedure: bindings, operators, finalizers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safepoint.threads.lines import split_outside
from safepoint.threads.structure import Stmt
from safepoint.threads.symbols import OUTER, Program, Scope

BOUND = "%"  # before the name of a binding that stands for a procedure
NOPASS = "-"


def program_of(scope: Scope) -> Program:
    return scope.modules.setdefault(OUTER, Scope("", None, scope.modules)).program


def generic_of(text: str) -> str:
    """`operator(+)`, `assignment(=)`, `write(formatted)` or the name of an interface; empty if it has none."""
    found = re.match(r"\s*(?:abstract\s+)?interface\b\s*(.*?)\s*$", text, re.I)
    return re.sub(r"\s", "", found[1]).lower() if found else ""


def bind(scope: Scope, name: str, parts: Sequence[Stmt]) -> None:
    """The bindings of a type, from the statements of its definition."""
    program = program_of(scope)
    for part in parts:
        attributes, colons, rest = part.at.text.partition("::")
        if not colons:
            rest = re.sub(r"(?i)^\s*(procedure|final)\b", "", part.at.text)
        rest = re.sub(r"\s", "", rest).lower()
        if part.kind == "Proc_Component_Def_Stmt":
            own = {re.split(r"\W", each)[0] for each in split_outside(rest, ",")}
            program.pointers |= own
            _pass(program, own, attributes)
        elif part.kind == "Final_Binding":
            program.finals.setdefault(name, []).extend((scope, each) for each in rest.split(","))
        elif part.kind == "Generic_Binding":
            key, _, names = rest.partition("=>")
            program.bound.setdefault(key, []).extend((scope, BOUND + each) for each in names.split(","))
        elif part.kind == "Specific_Binding":
            _pass(program, {each.partition("=>")[0] for each in split_outside(rest, ",")}, attributes)
            for each in split_outside(rest, ",") if not re.search(r"\bdeferred\b", attributes, re.I) else ():
                binding, _, procedure = each.partition("=>")
                program.bound.setdefault(binding, []).append((scope, procedure or binding))


def _pass(program: Program, names: set[str], attributes: str) -> None:
    """How the object is passed by bindings or pointers of these names."""
    found = re.search(r"\bnopass\b|\bpass\s*\(\s*(\w+)", attributes, re.I)
    way = (found[1] or NOPASS).lower() if found else ""
    for name in names:
        program.passes.setdefault(name, set()).add(way)


def relate(scope: Scope, name: str, parent: str, types: Sequence[str]) -> None:
    """A type with the one that it extends, and those of its components."""
    related = program_of(scope).related
    mine = related.setdefault(name, set())
    mine |= {each[5:] for each in types if each.startswith("type ")}
    if parent:
        mine.add(parent)
        program_of(scope).parents[name] = scope, parent
        related.setdefault(parent, set()).add(name)
