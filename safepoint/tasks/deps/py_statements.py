"""Statements of Python: what each reads and writes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from safepoint.tasks.deps.py_calls import Calls
from safepoint.tasks.deps.py_heap import (
    ARRAY,
    CONTAINER,
    FOREIGN,
    NOTHING,
    NUMERIC,
    Value,
)  # fmt: skip
from safepoint.tasks.deps.py_places import label
from safepoint.tasks.deps.py_scope import Scope
from safepoint.tasks.deps.statements import ANY, Effects


class Reader(Calls):
    """Of one function: `settle` first, then ask for the effects of its statements."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.loops = 0

    def settle(self) -> None:
        """Go over the whole function until nothing new may be referred to from anywhere."""
        self.heap.changed = True
        while self.heap.changed:
            self.heap.changed = False
            for each in self.scope.node.body:
                self.effects(each)

    def effects(self, node: ast.stmt) -> Effects:
        self.done, self.inner, self.loops = Effects(), [], 0
        self._run(node)
        return self.done

    def _run(self, node: ast.stmt) -> None:
        kinds: dict[type[ast.stmt], Callable[..., object]] = {
            ast.Expr: lambda node: self.value(node.value),
            ast.Assign: self._assign,
            ast.AugAssign: self._augmented,
            ast.AnnAssign: self._annotated,
            ast.Delete: self._deletes,
            ast.Pass: lambda node: None,
            ast.If: self._if,
            ast.While: self._while,
            ast.For: self._for,
            ast.Break: self._jump,
            ast.Continue: self._jump,
            ast.With: self._with,
            ast.Try: self._try,
            ast.Match: self._match,
            ast.Import: self._import,
            ast.ImportFrom: self._import,
            ast.FunctionDef: self._define,
            ast.AsyncFunctionDef: self._define,
        }
        if hasattr(ast, "TryStar"):
            kinds[ast.TryStar] = self._try
        kinds.get(type(node), self._steering)(node)

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for each in body:
            self._run(each)

    def _steering(self, node: ast.AST) -> None:
        """`return`, `raise`, `assert`, `global`, `async for`, classes, and what a later Python may bring."""
        self.done.leaves = True
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.expr):
                if isinstance(getattr(each, "ctx", None), ast.Store):
                    self.assign(each, FOREIGN, ANY)
                    continue
                value = self.value(each)
                if not isinstance(node, (ast.Return, ast.Assert)):
                    self.unknown(value, label(each))
                self.read(value, label(each))
            elif isinstance(each, ast.stmt):
                self._run(each)
            else:
                self._steering(each)
        if isinstance(node, ast.ClassDef):
            self.later(node, NOTHING)
            self.unknown(NOTHING, ANY)
            self.bind(node.name, FOREIGN)

    # Assignments.

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value, label(node.value))

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value), label(node.value))
        elif not isinstance(node.target, ast.Name):
            self._steering(node)

    def assign(self, target: ast.expr, value: Value, name: str) -> None:
        """`name`: the variable that the value comes from."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.done.raises = True
            found = self.iterate(value, name)
            for each in target.elts:
                if isinstance(each, ast.Starred):
                    self.assign(each.value, self.heap.make(each, CONTAINER, found), name)
                else:
                    self.assign(each, found, name)
        elif isinstance(target, ast.Subscript):
            into, index = self.value(target.value), self.value(target.slice)
            self._store(target, into, index, value, name)
        elif isinstance(target, ast.Attribute):
            into = self.value(target.value)
            self.unknown(value, name)
            self.unknown(into, label(target))
        else:
            self._steering(target)

    def _store(self, target: ast.Subscript, into: Value, index: Value, value: Value, name: str) -> None:
        self.read(index, label(target.slice))
        parts = isinstance(target.slice, ast.Slice) or bool(index)
        if self.heap.only(into, CONTAINER):
            if parts:  # a part of a list takes the elements of what it is given
                value |= self.iterate(value, name)
        else:  # an array takes a copy, and looks into what it is given
            self.read(value, name)
            if parts and not self.heap.only(value, ARRAY, CONTAINER, NUMERIC) and not self.heap.only(into, ARRAY):
                value |= self.iterate(value, name)
            value |= self.heap.contents(value)
        self.change(into, label(target))
        self.heap.store(value, into)

    def _augmented(self, node: ast.AugAssign) -> None:
        """A list, a set or an array is changed where it is."""
        target = node.target
        if isinstance(target, ast.Attribute):
            into = self.value(target.value)
            self.unknown(self.value(node.value), label(node.value))
            self.unknown(into, label(target))
            return
        if isinstance(target, ast.Subscript):
            into, index = self.value(target.value), self.value(target.slice)
            before = self.item(target, into, index)
        else:
            before = self.load(target.id)
        value = self.value(node.value)
        self.read(before, label(target))
        if not self.heap.only(before, ARRAY, NUMERIC):
            value |= self.iterate(value, label(node.value))
        self.read(value, label(node.value))
        made = self.operated(node, before, value)
        if before:
            self.change(before, label(target))
            self.heap.store(value | self.heap.contents(value), before)
        if isinstance(target, ast.Subscript):
            self._store(target, into, index, before | made, label(target))
        else:
            self.bind(target.id, before | made)

    def _deletes(self, node: ast.Delete) -> None:
        for each in node.targets:
            self._delete(each)

    def _delete(self, target: ast.expr) -> None:
        self.done.raises = True
        if isinstance(target, ast.Name):
            self.load(target.id)
            self.bind(target.id, NOTHING)
        elif isinstance(target, ast.Subscript):
            self.read(self.value(target.slice), label(target.slice))
            into = self.value(target.value)
            self.read(into, label(target))
            self.change(into, label(target))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._delete(each)
        elif isinstance(target, ast.Attribute):
            self.unknown(self.value(target.value), label(target))
        else:
            self._steering(target)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """The module may be run now."""
        self.unknown(NOTHING, ANY)
        for alias in node.names:
            self.bind((alias.asname or alias.name).partition(".")[0], FOREIGN)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = node.args
        plain = [*given.posonlyargs, *given.args, *given.kwonlyargs, *(a for a in (given.vararg, given.kwarg) if a)]
        now = [*given.defaults, *(each for each in given.kw_defaults if each)]
        now += [each.annotation for each in plain if each.annotation] + ([node.returns] if node.returns else [])
        made = self.later(node, self.elements(now))
        for each in node.decorator_list:
            self.unknown(made | self.value(each), ANY)
            made |= FOREIGN
        self.bind(node.name, made)

    # What holds other statements.

    def _if(self, node: ast.If) -> None:
        self.truth(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def _while(self, node: ast.While) -> None:
        self.done.raises = True  # it may never end
        self.truth(node.test)
        self._body(node.body)
        self._block(node.orelse)

    def _for(self, node: ast.For) -> None:
        found = self.iterate(self.value(node.iter), label(node.iter))
        self.assign(node.target, found, label(node.iter))
        self._body(node.body)
        self._block(node.orelse)

    def _body(self, body: Sequence[ast.stmt]) -> None:
        self.loops += 1
        self._block(body)
        self.loops -= 1

    def _jump(self, node: ast.Break | ast.Continue) -> None:
        self.done.leaves |= self.loops == 0

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            self.unknown(value, label(item.context_expr))
            if item.optional_vars:
                self.assign(item.optional_vars, value | FOREIGN, label(item.context_expr))
        self._block(node.body)

    def _try(self, node: ast.Try) -> None:
        self.done.raises = True
        self._block(node.body)
        for handler in node.handlers:
            if handler.type:
                self.value(handler.type)
            if handler.name:
                self.bind(handler.name, FOREIGN)
            self._block(handler.body)
        self._block(node.orelse)
        self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.done.raises = True
        value, name = self.value(node.subject), label(node.subject)
        for case in node.cases:
            self._pattern(case.pattern, value, name)
            if case.guard:
                self.truth(case.guard)
            self._block(case.body)

    def _pattern(self, node: ast.pattern, value: Value, name: str) -> None:
        """Patterns look into what they are given; those of classes ask its attributes."""
        within = self.heap.reach(value)
        self.read(value, name)
        if within and not self.heap.only(within, CONTAINER, ARRAY):
            self.unknown(value, name)
        for each in ast.walk(node):
            if isinstance(each, ast.expr):
                self.read(self.value(each), label(each))
            elif isinstance(each, (ast.MatchAs, ast.MatchStar)) and each.name:
                self.bind(each.name, within | self.heap.make(each, CONTAINER, within))
            elif isinstance(each, ast.MatchMapping) and each.rest:
                self.bind(each.rest, self.heap.make(each, CONTAINER, within))
