"""Which expressions of a statement are read before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safepoint.threads.symbols import Scope
from safepoint.threads.written import arguments, compressed, reads

NOTHING = {"Return_Stmt", "Cycle_Stmt", "Exit_Stmt", "Goto_Stmt", "Continue_Stmt", "Stop_Stmt", "Allocate_Stmt",
           "Deallocate_Stmt", "Nullify_Stmt", "Open_Stmt", "Close_Stmt", "Inquire_Stmt", "Read_Stmt", "Format_Stmt",
           "Pointer_Assignment_Stmt", "Where_Stmt", "Forall_Stmt", "Entry_Stmt", "Associate_Stmt", "Block_Stmt",
           "Select_Type_Stmt", "Critical_Stmt", "Error_Stop_Stmt", "Flush_Stmt",
           "Rewind_Stmt", "Data_Stmt"}  # fmt: skip


def reads_of(node: Any, scope: Scope, skipped: frozenset[str]) -> list[str]:
    """Of a statement or an expression. Arguments of a CALL only if their intent is known: others may have no value."""
    kind = type(node).__name__
    if kind in NOTHING or kind.startswith(("End_", "Else", "Case_Stmt")):
        return []
    if kind == "Assignment_Stmt":
        left = node.children[0]
        inside = [child for child in getattr(left, "children", ()) if type(child).__name__ != "Name"]
        found = _all(inside if type(left).__name__ in ("Part_Ref", "Substring") else [], scope, skipped)
        return list(dict.fromkeys([*found, *reads(node.children[2], scope, skipped)]))
    if kind == "Call_Stmt":
        return _of_call(node, scope, skipped)
    if kind in ("Print_Stmt", "Write_Stmt"):
        return reads(node.children[-1], scope, skipped)
    if kind in ("Nonlabel_Do_Stmt", "Label_Do_Stmt"):
        return _of_do(node, scope, skipped)
    if kind == "If_Stmt":
        return []
    return reads(node, scope, skipped)


def _of_call(node: Any, scope: Scope, skipped: frozenset[str]) -> list[str]:
    known = {compressed(text): intent for text, intent in arguments(node, scope)}
    found = list[str]()
    for part in getattr(node.children[1], "children", ()) if node.children[1] is not None else ():
        value = part.children[1] if type(part).__name__ == "Actual_Arg_Spec" else part
        if known.get(compressed(str(value)), "in") in ("in", "inout"):
            found += reads(value, scope, skipped)
    return list(dict.fromkeys(found))


def _of_do(node: Any, scope: Scope, skipped: frozenset[str]) -> list[str]:
    """The bounds; the condition of `do while` is not asked once, and is left out."""
    from fparser.two.utils import walk

    for control in walk(node):
        if type(control).__name__ == "Loop_Control":
            counter = control.children[1]
            return _all(counter[1], scope, skipped) if counter else []
    return []


def _all(nodes: Sequence[Any], scope: Scope, skipped: frozenset[str]) -> list[str]:
    return [text for node in nodes for text in reads(node, scope, skipped)]
