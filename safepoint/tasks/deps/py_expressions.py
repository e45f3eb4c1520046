"""Expressions of Python: what each reads and writes, and which objects it may give."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Sequence

from safepoint.tasks.deps.py_heap import ARRAY, CONTAINER, FOREIGN, NOTHING, UNKNOWN, Value
from safepoint.tasks.deps.py_places import Places, label
from safepoint.tasks.deps.py_scope import DYNAMIC
from safepoint.tasks.deps.statements import ANY

OF_ARRAYS = {"shape", "size", "ndim", "dtype", "T", "real", "imag", "nbytes", "itemsize"}  # attributes that only read
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Expressions(Places):
    @abstractmethod
    def call(self, node: ast.Call) -> Value: ...

    def value(self, node: ast.expr) -> Value:
        kinds: dict[type[ast.expr], Callable[..., Value]] = {
            ast.Constant: lambda node: NOTHING,
            ast.Name: self._name,
            ast.BoolOp: self._chosen,
            ast.IfExp: self._one_of_two,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.NamedExpr: self._named,
            ast.Tuple: self._display,
            ast.List: self._display,
            ast.Set: self._display,
            ast.Dict: self._dict,
            ast.JoinedStr: self._formatted,
            ast.FormattedValue: self._formatted,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Slice: self._slice,
            ast.Starred: lambda node: self.iterate(self.value(node.value), label(node.value)),
            ast.ListComp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.GeneratorExp: self._generator,
            ast.Lambda: self._lambda,
            ast.Call: self.call,
        }
        return kinds.get(type(node), self._strange)(node)

    def _strange(self, node: ast.expr) -> Value:
        """`await`, `yield`, and what a later Python may bring: other code runs here, and may not come back."""
        self.done.leaves = True
        values = [self.value(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return self.unknown(frozenset().union(*values), label(node))

    def _name(self, node: ast.Name) -> Value:
        if node.id in DYNAMIC:
            self.done.leaves = True
        return self.load(node.id)

    def truth(self, node: ast.expr) -> None:
        self.read(self.value(node), label(node))

    def _chosen(self, node: ast.BoolOp) -> Value:
        found = NOTHING
        for each in node.values:
            value = self.value(each)
            self.read(value, label(each))
            found |= value
        return found

    def _one_of_two(self, node: ast.IfExp) -> Value:
        self.truth(node.test)
        return self.value(node.body) | self.value(node.orelse)

    def _binary(self, node: ast.BinOp) -> Value:
        values = self.value(node.left), self.value(node.right)
        names = label(node.left), label(node.right)
        for value, name in zip(values, names, strict=True):
            self.read(value, name)
        for each, value in zip((node.left, node.right), values, strict=True):
            if isinstance(node.op, ast.Mult) and isinstance(each, ast.List):  # [0.0] * n, with a whole number n
                self.done.raises = True
                return self.heap.make(node, CONTAINER, self.heap.contents(value), "*")
        if self.scope.operators:
            return self.operate(node, *values)
        return self.operated(node, *values)

    def operated(self, node: ast.AST, *values: Value) -> Value:
        """The operands were read under their own names already."""
        reads = dict(self.done.reads)
        result = self.operate(node, *values)
        if not self.scope.operators:
            self.done.reads = reads
        return result

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        self.read(value, label(node.operand))
        return NOTHING if isinstance(node.op, ast.Not) else self.operated(node, value)

    def _compare(self, node: ast.Compare) -> Value:
        values, plain = [self.value(node.left)], True
        for op, each in zip(node.ops, node.comparators, strict=True):
            values.append(self.value(each))
            if isinstance(op, (ast.In, ast.NotIn)):
                self.read(values[-2], ANY)
                self.iterate(values[-1], label(each))
                self.read(values[-1], label(each))
            elif not isinstance(op, (ast.Is, ast.IsNot)):
                plain = False
        if plain:
            return NOTHING
        for each, value in zip([node.left, *node.comparators], values, strict=True):
            self.read(value, label(each))
        return self.operated(node, *values)

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target.id, value)
        return value

    def elements(self, nodes: Sequence[ast.expr]) -> Value:
        return frozenset().union(*(self.value(each) for each in nodes))

    def _display(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        held = self.elements(node.elts)
        if isinstance(node, ast.Set):
            self.read(held, ANY)
        return self.heap.make(node, CONTAINER, held)

    def _dict(self, node: ast.Dict) -> Value:
        held = NOTHING
        for key, each in zip(node.keys, node.values, strict=True):
            value = self.value(each)
            if key is None:  # **each
                held |= self.iterate(value, label(each))
            else:
                named = self.value(key)
                self.read(named, label(key))
                held |= named | value
        return self.heap.make(node, CONTAINER, held)

    def _formatted(self, node: ast.JoinedStr | ast.FormattedValue) -> Value:
        self.done.raises = True
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.expr):
                self.read(self.value(each), label(each))
        return NOTHING

    def _attribute(self, node: ast.Attribute) -> Value:
        if node.attr in DYNAMIC:
            self.done.leaves = True
        if isinstance(node.value, ast.Name) and self.scope.module(node.value.id):
            self.done.raises = True
            return FOREIGN if self.scope.module(node.value.id) != "math" else NOTHING
        value = self.value(node.value)
        if value and self.heap.only(value, ARRAY) and node.attr in OF_ARRAYS:
            self.read(value, label(node))
            return value | self.heap.make(node, CONTAINER)
        return self.unknown(value, label(node)) | value | self.heap.contents(value)

    def _slice(self, node: ast.Slice) -> Value:
        parts = [part for part in (node.lower, node.upper, node.step) if part]
        for part in parts:
            self.read(self.value(part), label(part))
        return NOTHING

    def _subscript(self, node: ast.Subscript) -> Value:
        return self.item(node, self.value(node.value), self.value(node.slice))

    def item(self, node: ast.Subscript, value: Value, index: Value) -> Value:
        """One of what a list holds, or a copy of a part of it; of an array a view, which is the array itself."""
        self.done.raises = True
        self.read(index, label(node.slice))
        self.read(value, label(node), deep=False)
        found = self.heap.contents(value)
        if not value:
            return NOTHING
        if self.heap.only(value, CONTAINER):
            if isinstance(node.slice, ast.Slice):
                return self.heap.make(node, CONTAINER, found)
            return found | self.heap.make(node, CONTAINER, found) if index else found
        return found | value

    # What has a scope of its own.

    def comprehension(self, node: Comprehension, tag: str = CONTAINER) -> Value:
        """One that is run where it is written."""
        self.inner.append({})
        for part in node.generators:
            self.done.leaves |= bool(part.is_async)
            found = self.iterate(self.value(part.iter), label(part.iter))
            for name in ast.walk(part.target):
                if isinstance(name, ast.Name):
                    self.inner[-1][name.id] = f"{name.id}@{node.lineno}:{node.col_offset}"
            self.assign(part.target, found, label(part.iter))
            for test in part.ifs:
                self.truth(test)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        held = self.elements(parts)
        if not isinstance(node, ast.ListComp):
            self.read(held, ANY)
        self.inner.pop()
        return self.heap.make(node, tag, held)

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, name: str) -> None: ...

    def _generator(self, node: ast.GeneratorExp) -> Value:
        """It is run later, by whoever takes its values."""
        first = self.iterate(self.value(node.generators[0].iter), label(node.generators[0].iter))
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & self.scope.local
        changed = {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
        if not (names <= self.scope.captured and changed <= self.scope.changed):
            self.heap.changed = True
            self.scope.captured |= names
            self.scope.changed |= changed
        return self.later(node, first)

    def _lambda(self, node: ast.Lambda) -> Value:
        defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each)]
        return self.later(node, self.elements(defaults))

    def later(self, node: ast.AST, held: Value) -> Value:
        """A function: what it refers to is anybody's from now on."""
        for name in ast.walk(node):
            if isinstance(name, ast.Name):
                own = self.own(name.id)
                if "@" in own or own in self.scope.local:
                    self.heap.store(frozenset(self.heap.bound.get(own, ())), FOREIGN)
        self.heap.store(held, FOREIGN)
        return self.heap.make(node, UNKNOWN, held | FOREIGN)
