"""Calls in Python: of builtins, of methods of lists and the like, of `math` and numpy. All others are unknown."""

from __future__ import annotations

import ast
from dataclasses import replace

from safepoint.tasks.deps.py_expressions import Expressions
from safepoint.tasks.deps.py_heap import ARRAY, CONTAINER, FLAT, FOREIGN, ITERATOR, NOTHING, ROW, Value
from safepoint.tasks.deps.py_places import label
from safepoint.tasks.deps.py_scope import DYNAMIC
from safepoint.tasks.deps.statements import ANY

READ = {"len", "int", "float", "complex", "bool", "str", "repr", "chr", "ord", "hex", "oct", "bin", "hash",
        "isinstance", "issubclass", "callable", "id", "format", "range"}  # fmt: skip
OPERATED = {"abs", "round", "divmod", "pow"}
COPIES = {"list", "tuple", "set", "frozenset", "dict", "sorted"}
TAKES = {"sum", "any", "all", "min", "max"}
LAZY = {"zip", "enumerate", "reversed"}
METHODS_READ = {"index", "count", "copy", "get", "keys", "values", "items", "isdisjoint", "issubset", "issuperset"}
METHODS_ADD = {"append", "add", "insert", "remove", "discard", "setdefault", "pop", "popitem", "clear", "reverse"}
METHODS_TAKE = {"extend", "update", "intersection_update", "difference_update", "symmetric_difference_update"}
OF_STRINGS = {"upper", "lower", "strip", "lstrip", "rstrip", "join", "replace", "format", "title", "capitalize", "find",
              "startswith", "endswith", "index", "count", "isdigit", "isalpha", "encode", "decode", "zfill", "center",
              "ljust", "rjust", "swapcase", "casefold", "is_integer", "conjugate", "bit_length"}  # fmt: skip
TAKING = {"fsum", "prod", "dist", "sumprod", "hypot"}  # of math
NEW_ARRAYS = {"zeros", "ones", "empty", "full", "arange", "linspace", "eye", "identity", "zeros_like", "ones_like",
              "empty_like", "full_like", "array", "copy"}  # fmt: skip
NUMBERS = {"zeros", "ones", "empty", "arange", "linspace", "eye", "identity"}  # holds no objects, without dtype
OF_ONE = {"sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log",
          "log2", "log10", "log1p", "sqrt", "cbrt", "square", "abs", "absolute", "negative", "sign", "floor", "ceil",
          "isnan", "isinf", "isfinite", "conj"}  # fmt: skip
OF_TWO = {"add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "hypot", "arctan2", "dot", "matmul",
          "sum", "mean", "prod", "min", "max", "std", "var", "outer", "cumsum", "argmin", "argmax"}  # fmt: skip
POSITIONAL = dict.fromkeys(NEW_ARRAYS | OF_ONE, 1) | dict.fromkeys(OF_TWO, 2) | {"arange": 3, "linspace": 3, "full": 2}
KEYWORDS = {"axis", "dtype", "keepdims"}  # `out` and `where` write elsewhere
ARRAY_METHODS = {"sum", "mean", "min", "max", "std", "var", "prod", "argmin", "argmax", "copy", "tolist", "item"}


class Calls(Expressions):
    def call(self, node: ast.Call) -> Value:
        self.done.raises = True
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in DYNAMIC:
                self.done.leaves = True
            known = self.own(function.id) == function.id and self.scope.is_builtin(function.id)
            return self._builtin(node, function.id) if known else self._unknown_call(node, self._called(function.id))
        if isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Name):
                module = (
                    "" if self.own(function.value.id) != function.value.id else self.scope.module(function.value.id)
                )
                if module:
                    return self._of_module(node, module, function.attr)
            return self._method(node, function)
        return self._unknown_call(node, self.value(function))

    def _called(self, name: str) -> Value:
        """The function itself. A global one is not shown: it is no data."""
        if self.own(name) != name or name in self.scope.local:
            return self.load(name)
        access = self.variable(name)
        self.done.reads.setdefault(replace(access, shown=False))
        return FOREIGN

    def _arguments(self, node: ast.Call) -> list[tuple[Value, str]]:
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        found = []
        for each in given:
            value = self.value(each)
            found.append((value, label(each)))
        return found

    def _unknown_call(self, node: ast.Call, function: Value) -> Value:
        return self._unknown_of(self._arguments(node), function)

    def _unknown_of(self, given: list[tuple[Value, str]], function: Value = NOTHING) -> Value:
        self.heap.store(function, FOREIGN)
        for value, name in given:
            self.unknown(value, name)
        return self.unknown(NOTHING, ANY)

    def _plain(self, node: ast.Call, most: int = 99, keywords: frozenset[str] = frozenset()) -> bool:
        """No `*` and no `**`, and no keyword but these."""
        starred = any(isinstance(each, ast.Starred) for each in node.args)
        return not starred and len(node.args) <= most and all(each.arg in keywords for each in node.keywords)

    # Builtins.

    def _builtin(self, node: ast.Call, name: str) -> Value:
        if name == "print" and self._plain(node, keywords=frozenset({"sep", "end", "flush"})):
            for value, of in self._arguments(node):
                self.read(value, of)
            self.printed()
            return NOTHING
        if not self._plain(node):
            if name in ("dict", "sorted") and all(each.arg not in (None, "key") for each in node.keywords):
                return self._copied(node, name)
            return self._unknown_of(self._arguments(node))
        if name in READ:
            for value, of in self._arguments(node):
                self.read(value, of)
            return NOTHING
        if name in OPERATED:
            given = self._arguments(node)
            for value, of in given:
                self.read(value, of)
            return self.operated(node, *(value for value, _ in given))
        if name in COPIES or name in TAKES:
            return self._copied(node, name)
        if name in LAZY:
            return self._lazy(node, name)
        return self._unknown_of(self._arguments(node))

    def _taken(self, node: ast.expr) -> Value:
        """Iterated over at once. A generator that is written right here is run right here."""
        if isinstance(node, ast.GeneratorExp):
            return self.heap.contents(self.comprehension(node))
        return self.iterate(self.value(node), label(node))

    def _copied(self, node: ast.Call, name: str) -> Value:
        held = NOTHING
        if name in ("min", "max") and len(node.args) > 1:
            held = self.elements(node.args)
        elif node.args:
            held = self._taken(node.args[0])
            for each in node.args[1:]:
                held |= self.value(each)
        for keyword in node.keywords:
            held |= self.value(keyword.value)
        if name not in ("list", "tuple"):
            self.read(held, label(node.args[0]) if node.args else ANY)
        if name in ("any", "all"):
            return NOTHING
        if name in ("min", "max"):
            return held
        if name == "dict":  # made of pairs
            held |= self.iterate(held, ANY)
        if name == "sum":
            return self.operate(node, held) if held else NOTHING
        return self.heap.make(node, CONTAINER, held)

    def _lazy(self, node: ast.Call, name: str) -> Value:
        """What it goes through is read when it is gone through; an iterator among it is asked at once, too."""
        held, whole = NOTHING, NOTHING
        for each in node.args:
            value = self.value(each)
            held |= self.iterate(value, label(each))
            whole |= value
        if name == "reversed":
            return self.heap.make(node, ITERATOR, whole)
        row = self.heap.make(node, CONTAINER, held, ROW)
        return self.heap.make(node, ITERATOR, row | whole)

    # Methods.

    def _method(self, node: ast.Call, function: ast.Attribute) -> Value:
        value, of = self.value(function.value), label(function.value)
        name = function.attr
        if name in DYNAMIC:
            self.done.leaves = True
        if not value:  # of a string or number: none changes it
            return self._of_atom(node, name)
        if self._plain(node) and self.heap.only(value, CONTAINER):
            if name in METHODS_READ | METHODS_ADD | METHODS_TAKE | {"sort"}:
                return self._of_container(node, name, value, of)
        elif self._plain(node, 1) and self.heap.only(value, ARRAY):
            if name in ARRAY_METHODS and not node.args:
                self.read(value, of)
                return self.heap.make(node, ARRAY, self.heap.contents(value), "=")
            if name == "fill":
                self.change(value, of)
                self.heap.store(self.elements(node.args), value)
                return NOTHING
        return self._unknown_of([(value, of), *self._arguments(node)])

    def _of_atom(self, node: ast.Call, name: str) -> Value:
        if not self._plain(node):
            return self._unknown_of(self._arguments(node))
        for each in node.args:
            self.read(self._taken(each), label(each))
        return NOTHING if name in OF_STRINGS else self.heap.make(node, CONTAINER)

    def _of_container(self, node: ast.Call, name: str, value: Value, of: str) -> Value:
        held = self.heap.contents(value)
        if name in METHODS_TAKE or (name.startswith("is") and node.args):
            given = frozenset().union(*(self._taken(each) for each in node.args))
            given |= self.iterate(given, ANY) if name == "update" and given else NOTHING  # pairs for a dict
        else:
            given = self.elements(node.args)
        if name not in ("append", "insert", "clear", "reverse"):  # keys and elements are compared
            self.read(given, ANY)
            self.read(held, of)
        self.done.raises = True
        self.read(value, of, deep=False)
        if name in METHODS_READ:
            if name in ("keys", "values", "items"):
                row = self.heap.make(node, CONTAINER, held, ROW)
                return value | self.heap.make(node, CONTAINER, row | held)
            if name == "copy":
                return self.heap.make(node, CONTAINER, held)
            return held | given if name == "get" else NOTHING
        self.change(value, of)
        self.heap.store(given, value)
        if name == "popitem":
            return self.heap.make(node, CONTAINER, held)
        return held | given if name in ("pop", "setdefault") else NOTHING

    # Modules.

    def _of_module(self, node: ast.Call, module: str, name: str) -> Value:
        if module == "math" and self._plain(node):
            if name in TAKING:
                for each in node.args:
                    self.read(self._taken(each), label(each))
            else:
                for value, of in self._arguments(node):
                    self.read(value, of)
            return NOTHING
        if module == "numpy" and self._plain(node, POSITIONAL.get(name, -1), frozenset(KEYWORDS)):
            given = self._arguments(node)
            for value, of in given:
                self.read(value, of)
            held = self.heap.contents(frozenset().union(*(value for value, _ in given)))
            within = frozenset().union(*(value for value, _ in given)) if name == "array" else NOTHING
            flat = name in NUMBERS and not node.keywords
            return self.heap.make(node, ARRAY, NOTHING if flat else held | within, FLAT if flat else "")
        return self._unknown_of(self._arguments(node))
