"""Reading and writing the variables and objects of a Python function, and what a call of unknown code may do."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from safepoint.tasks.deps.py_heap import (
    ARRAY,
    CONTAINER,
    FOREIGN,
    ITERATOR,
    NOTHING,
    NUMERIC,
    OUTSIDE,
    ROW,
    UNKNOWN,
    Heap,
    Value,
)  # fmt: skip
from safepoint.tasks.deps.py_scope import Scope
from safepoint.tasks.deps.statements import ANY, CELLS, MEMORY, NAMES, WORLD, Access, Effects


def label(node: ast.AST) -> str:
    """The variable with which an expression begins."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.NamedExpr)):
        node = node.target if isinstance(node, ast.NamedExpr) else node.value
    return node.id if isinstance(node, ast.Name) else ANY


class Places(ABC):
    """`done` is of the statement that is being read."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.heap = Heap()
        self.done = Effects()
        self.inner: list[dict[str, str]] = []  # variables of comprehensions, under names of their own
        for name in scope.parameters:
            self.heap.bind(name, FOREIGN)

    @abstractmethod
    def value(self, node: ast.expr) -> Value:
        """Read an expression: note what it does, and return what it may be."""

    # Variables.

    def own(self, name: str) -> str:
        return next((names[name] for names in reversed(self.inner) if name in names), name)

    def variable(self, name: str) -> Access:
        return Access(f"variable {name}", name, self.scope.group(name))

    def load(self, name: str) -> Value:
        name = self.own(name)
        found = frozenset(self.heap.bound.get(name, ()))
        if "@" in name:
            return found
        if self.scope.is_builtin(name):
            return FOREIGN
        self.done.reads[self.variable(name)] = None
        return found if self.scope.group(name) in ("", CELLS) else found | FOREIGN

    def bind(self, name: str, value: Value) -> None:
        name = self.own(name)
        if "@" not in name:
            self.done.writes[self.variable(name)] = None
            if self.scope.finalizers:  # what the variable referred to may end with it
                self.unknown(FOREIGN, ANY)
            if self.scope.group(name):
                self.heap.store(value, FOREIGN)
            if name not in self.scope.local:
                return
        self.heap.bind(name, value)

    # Objects.

    def _object(self, site: str, name: str, sure: bool = True, shown: bool = True) -> Access:
        if site == OUTSIDE:
            return Access(MEMORY, name, MEMORY, sure, shown)
        group = MEMORY if site in self.heap.escaped() else ""
        return Access(site, name, group, sure, shown and (name != ANY or bool(group)))

    def read(self, value: Value, name: str, *, deep: bool = True) -> None:
        """Look into objects, as operators and `print` do: only classes of this very file may do more."""
        self.done.raises |= bool(value)
        whole = self.heap.reach(value) if deep else value
        for site in sorted(whole):
            self.done.reads[self._object(site, name, shown=name != ANY)] = None  # else it was read under its name
        if self.scope.operators and not self.heap.only(whole, ARRAY, CONTAINER):
            self.unknown(value, name)

    def change(self, value: Value, name: str) -> None:
        """Write into an object itself, not into those that it holds."""
        self.done.raises = True
        for site in sorted(value):
            self.done.writes[self._object(site, name)] = None
        if self.scope.operators and not self.heap.only(value, ARRAY, CONTAINER):
            self.unknown(value, name)

    def unknown(self, value: Value, name: str) -> Value:
        """Code that cannot be seen is run, and given these objects: it may change all that it can reach."""
        self.done.raises = True
        found = self.heap.closure(value)
        self.heap.store(value, FOREIGN)
        for site in sorted(found):
            self.done.touch(self._object(site, name, sure=False))
        self.done.touch(Access(MEMORY, ANY, MEMORY, sure=False))
        self.done.touch(Access(NAMES, ANY, NAMES, sure=False, shown=False))
        self.done.reads[Access(CELLS, ANY, CELLS, sure=False, shown=False)] = None
        self.done.touch(Access(WORLD, "output", sure=False))
        return FOREIGN

    def printed(self) -> None:
        self.done.raises = True
        self.done.touch(Access(WORLD, "output"))

    def iterate(self, value: Value, name: str) -> Value:
        """What a loop over these objects gets. A generator runs its code meanwhile, a file moves on."""
        self.done.raises |= bool(value)
        found, unseen, asked = NOTHING, NOTHING, set(value)
        todo = sorted(value)
        while todo:
            site = todo.pop()
            tag, one = self.heap.tags[site], frozenset({site})
            if tag in (CONTAINER, ARRAY):
                self.done.reads[self._object(site, name)] = None
                found |= self.heap.contents(one) | (one if tag == ARRAY else NOTHING)
            elif tag == ITERATOR:  # it goes through others
                self.done.touch(self._object(site, name))
                rows = {each for each in self.heap.held[site] if each.endswith(ROW)}
                found |= rows | self.heap.contents(frozenset(rows))
                more = self.heap.held[site] - rows - asked
                asked |= more
                todo += sorted(more)
            else:
                unseen |= one
        return found | self.unknown(unseen, name) if unseen else found

    def operate(self, node: ast.AST, *values: Value, name: str = ANY) -> Value:
        """An operator reads its operands and makes an object, which may hold what they hold."""
        self.done.raises = True
        for value in values:
            self.read(value, name)
        if not any(values):
            return NOTHING
        held = frozenset(site for value in values for site in self.heap.contents(value))
        result = self.heap.make(node, self._made(node, values), held, "=")
        return result | FOREIGN if self.scope.operators else result

    def _made(self, node: ast.AST, values: tuple[Value, ...]) -> str:
        if all(self.heap.only(value, ARRAY) for value in values):
            return ARRAY
        if all(self.heap.only(value, CONTAINER) for value in values):
            return CONTAINER
        times = isinstance(getattr(node, "op", None), ast.Mult)  # a list may be multiplied by a number
        numeric = any(self.heap.only(value, ARRAY, NUMERIC) and (value or not times) for value in values)
        return NUMERIC if numeric and len(values) > 1 else UNKNOWN
