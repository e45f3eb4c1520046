"""Which variables of a Python function are its own, which others share, and which names still mean what Python says."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field

from safepoint.tasks.deps.statements import CELLS, MEMORY, NAMES

Definition = ast.FunctionDef | ast.AsyncFunctionDef
AT_ONCE = {"listcomp", "setcomp", "dictcomp", "genexpr"}  # of generators it is found out while reading
DYNAMIC = {"eval", "exec", "locals", "vars", "globals", "dir", "breakpoint", "__dict__", "f_locals", "f_globals",
           "__globals__", "__closure__", "cell_contents", "__import__", "builtins", "__builtins__"}  # fmt: skip
HARMLESS = {
    "__init__",
    "__new__",
    "__post_init__",
    "__init_subclass__",
    "__set_name__",
    "__del__",
    "__class_getitem__",
    "__slots__",
    "__match_args__",
    "__doc__",
    "__module__",
    "__name__",
    "__qualname__",
}
FAR = {"math", "numpy"}  # modules some functions of which are known


@dataclass
class Scope:
    """Of one function of one file."""

    node: Definition
    local: set[str]
    captured: set[str] = field(default_factory=set)  # read by functions that the function makes
    changed: set[str] = field(default_factory=set)  # written by them
    modules: dict[str, str] = field(default_factory=dict)  # a name that means math or numpy, and nothing else
    rebound: set[str] = field(default_factory=set)  # what the file binds: a builtin of this name is none
    dynamic: bool = False  # something in it may read or write any variable by its name
    operators: bool = False  # the file has classes whose operators may do anything
    finalizers: bool = False

    def group(self, name: str) -> str:
        """Whether a call may write it, may read it, or does not know it ("")."""
        shared = name not in self.local or name in self.changed
        if self.dynamic:
            return MEMORY
        return NAMES if shared else CELLS if name in self.captured else ""

    def is_builtin(self, name: str) -> bool:
        return name not in self.local and name not in self.rebound and hasattr(builtins, name)

    def module(self, name: str) -> str:
        return self.modules.get(name, "")

    @property
    def parameters(self) -> list[str]:
        given = self.node.args
        plain = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return [arg.arg for arg in plain + [arg for arg in (given.vararg, given.kwarg) if arg]]


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """All of a file, with the classes and functions that they are in: `Solver.step`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        inner = prefix
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner += f"{node.name}."
        yield from functions(node, inner)


def scope(tree: ast.Module, source: str, file: str, node: Definition) -> Scope:
    table = _table(symtable.symtable(source, file, "exec"), node)
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()}
    found = Scope(node, own, dynamic=bool(names & DYNAMIC))
    _captures(table, found)
    if found.dynamic:
        found.captured, found.changed = set(own), set(own)
    found.rebound = _bound(tree)
    found.modules = _modules(tree, found.rebound, own, node)
    dunders = _dunders(tree)
    words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | imported(tree)
    words |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    strange = {"defaultdict", "shelve", "UserDict", "UserList", "ChainMap"} & words  # reading these may write them
    found.operators = bool(dunders - HARMLESS) or bool(strange)
    found.finalizers = "__del__" in dunders
    return found


def _dunders(tree: ast.Module) -> set[str]:
    """What classes of the file define for operators."""
    bodies = [each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in ast.walk(node)]
    found = {each.name for each in bodies if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    found |= {each.id for each in bodies if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    found |= {
        each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }
    return {name for name in found if name.startswith("__") and name.endswith("__")}


def _table(table: symtable.SymbolTable, node: Definition) -> symtable.SymbolTable:
    lines = {node.lineno, *(each.lineno for each in node.decorator_list)}
    stack = [table]
    while stack:
        table = stack.pop()
        if table.get_name() == node.name and table.get_type() == "function" and table.get_lineno() in lines:
            return table
        stack += table.get_children()
    raise LookupError(node.name)


def _captures(table: symtable.SymbolTable, into: Scope) -> None:
    for child in table.get_children():
        if child.get_name().strip("<>") not in AT_ONCE:
            for symbol in child.get_symbols():
                if symbol.is_free() and symbol.get_name() in into.local:
                    into.captured.add(symbol.get_name())
                    if symbol.is_assigned() or symbol.is_nonlocal() or symbol.is_imported():
                        into.changed.add(symbol.get_name())
        _captures(child, into)


def imported(tree: ast.AST) -> set[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names} | {
        alias.name for node in nodes for alias in node.names
    }


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the file binds anywhere: a parameter of this name elsewhere does no harm, and is counted too."""
    found = imported(tree) | _bound_otherwise(tree)
    return found | (set(dir(builtins)) if "*" in found else set())


def _modules(tree: ast.Module, rebound: set[str], local: set[str], node: Definition) -> dict[str, str]:
    """Names that `import math`, `import numpy as np` bind, and nothing else does."""
    if "*" in rebound:
        return {}
    plain: dict[str, set[str]] = {}
    for each in ast.walk(tree):
        for alias in each.names if isinstance(each, ast.Import) else ():
            plain.setdefault(alias.asname or alias.name.partition(".")[0], set()).add(alias.name)
    other = _bound_otherwise(tree)
    here = {
        alias.asname or alias.name for each in ast.walk(node) if isinstance(each, ast.Import) for alias in each.names
    }
    return {
        name: next(iter(found))
        for name, found in plain.items()
        if len(found) == 1 and found <= FAR and name not in other and (name not in local or name in here)
    }


def _bound_otherwise(tree: ast.Module) -> set[str]:
    """By anything but `import`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found
