"""What a C file says about its names: types, fields, macros, globals. Headers are not read, so theirs are unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from safepoint.tasks.deps.statements import MEMORY, Access

Node = Any  # tree_sitter.Node: the package is imported only where a file is parsed

SCALAR, POINTER, ARRAY, STRUCT, FUNCTION, OPAQUE = "scalar", "pointer", "array", "struct", "function", "opaque"
CONSTANTS = {"EOF", "M_PI", "M_E", "M_PI_2", "M_PI_4", "M_SQRT2", "RAND_MAX", "DBL_EPSILON", "FLT_EPSILON", "INFINITY",
             "NAN", "HUGE_VAL", "EXIT_SUCCESS", "EXIT_FAILURE", "BUFSIZ", "CLOCKS_PER_SEC", "true", "false", "NULL",
             "CHAR_BIT", *(f"{t}_{m}" for t in ("INT", "LONG", "SHRT", "CHAR", "DBL", "FLT", "SIZE", "UINT", "ULONG")
                           for m in ("MIN", "MAX"))}  # fmt: skip
LITERAL = re.compile(r"[-+*/()\s]*(?:[0-9][0-9a-zA-Z.]*[-+*/()\s]*)+")


@dataclass(frozen=True)
class Shape:
    """A type, as far as it matters: what its names refer to. `known`: a struct whose fields this file declares."""

    kind: str
    of: Shape | None = None
    known: bool = False


UNKNOWN = Shape(OPAQUE)
NUMBER = Shape(SCALAR)


@dataclass(frozen=True)
class Variable:
    """`far`: not of this call alone: a global, or a static one. `depth`: of the scope that declares it."""

    name: str
    id: str
    shape: Shape
    depth: int = 0
    far: bool = False
    restrict: bool = False
    volatile: bool = False

    def access(self, escaped: bool, *, shown: bool = True) -> Access:
        return Access(f"variable {self.id}", self.name, MEMORY if escaped or self.far else "", shown=shown)


@dataclass
class Declared:
    name: str
    node: Node
    shape: Shape
    sizes: list[Node] = field(default_factory=list)
    restrict: bool = False


def below(node: Node, *kinds: str) -> Iterator[Node]:
    """All nodes of these kinds, in the order of the text."""
    if node.type in kinds:
        yield node
    for child in node.children:
        yield from below(child, *kinds)


def text(node: Node) -> str:
    return str(node.text.decode("utf-8", "replace"))


def bare(node: Node) -> Node:
    """Without its parentheses."""
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


class Facts:
    """Of a whole file."""

    def __init__(self, root: Node) -> None:
        self.words = {text(node) for node in below(root, "identifier", "field_identifier")}
        self.macros: dict[str, str] = {}
        for node in below(root, "preproc_def", "preproc_function_def"):
            value = node.child_by_field_name("value")
            self.macros[text(node.child_by_field_name("name"))] = (
                "(" if node.type == "preproc_function_def" else ""
            ) + (text(value) if value else "")
        self.enumerators = {text(node.child_by_field_name("name")) for node in below(root, "enumerator")}
        self.known = {self._tag(node) for node in below(root, "struct_specifier", "union_specifier")
                      if node.child_by_field_name("body")}  # fmt: skip
        self.types: dict[str, Shape] = {}
        for node in below(root, "type_definition"):
            for each in self.declared(node):
                self.types[each.name] = UNKNOWN if each.name in self.types else each.shape
        self.fields: dict[str, Shape] = {}
        for node in below(root, "field_declaration"):
            for each in self.declared(node):
                same = self.fields.get(each.name, each.shape) == each.shape
                self.fields[each.name] = each.shape if same else UNKNOWN
        self.volatile_parts = any("volatile" in text(node) or "_Atomic" in text(node)
                                  for node in below(root, "field_declaration", "type_definition"))  # fmt: skip
        self.functions: dict[str, Node] = {}
        self.defined: set[str] = set()
        self.globals: dict[str, Variable] = {}
        self._outside(root)

    @staticmethod
    def _tag(node: Node) -> str:
        name = node.child_by_field_name("name")
        return text(name) if name else f"@{node.start_byte}"

    def _outside(self, root: Node) -> None:
        """What is declared outside of functions."""
        for node in root.children:
            if node.type == "function_definition":
                for each in self.declared(node):
                    name = each.name if each.name not in self.functions else f"{each.name}:{node.start_point[0] + 1}"
                    self.functions[name] = node
                    self.defined.add(each.name)
            elif node.type == "declaration":
                volatile = self.is_volatile(node)
                for each in self.declared(node):
                    if each.shape.kind == FUNCTION:
                        self.defined.add(each.name)
                    else:
                        before = self.globals.get(each.name)
                        shape = each.shape if before is None or before.shape == each.shape else UNKNOWN
                        self.globals[each.name] = Variable(each.name, each.name, shape, far=True, volatile=volatile
                                                           or bool(before and before.volatile))  # fmt: skip
            elif node.type.startswith("preproc_") or node.type in ("linkage_specification", "declaration_list"):
                self._outside(node)

    @staticmethod
    def is_volatile(node: Node) -> bool:
        found = {text(each) for each in below(node, "type_qualifier")}
        return any("volatile" in word or "tomic" in word for word in found) or "_Atomic" in text(node)

    # Types.

    def base(self, node: Node) -> Shape:
        """The shape that a declaration's type has, without its declarators."""
        kind = node.child_by_field_name("type")
        if kind is None:
            return UNKNOWN
        if kind.type in ("primitive_type", "sized_type_specifier", "enum_specifier"):
            inner = kind.child_by_field_name("type")
            return UNKNOWN if inner is not None and inner.type == "type_identifier" else NUMBER
        if kind.type in ("struct_specifier", "union_specifier"):
            return Shape(STRUCT, known=self._tag(kind) in self.known)
        if kind.type == "type_identifier" and text(kind) not in self.macros:
            return self.types.get(text(kind), UNKNOWN)
        return UNKNOWN

    def declared(self, node: Node) -> Iterator[Declared]:
        """The names of a declaration, a parameter, a field or a type definition."""
        for child in node.children_by_field_name("declarator"):
            found = self.declarator(node, child)
            if found is not None:
                yield found

    def declarator(self, node: Node, child: Node) -> Declared | None:
        """One name of a declaration."""
        return self._declarator(child, self.base(node), [], False)

    def _declarator(self, node: Node, shape: Shape, sizes: list[Node], restrict: bool) -> Declared | None:
        if node.type in ("identifier", "type_identifier", "field_identifier", "primitive_type"):
            return Declared(text(node), node, shape, sizes, restrict)
        qualifiers = {text(each) for each in node.children if each.type == "type_qualifier"}
        restrict = any("restrict" in word for word in qualifiers)
        if node.type == "pointer_declarator":
            shape = Shape(POINTER, shape)
        elif node.type == "array_declarator":
            shape = Shape(ARRAY, shape)
            size = node.child_by_field_name("size")
            sizes = [*sizes, size] if size is not None else sizes
        elif node.type == "function_declarator":
            shape = Shape(FUNCTION)
        elif node.type not in ("init_declarator", "parenthesized_declarator", "attributed_declarator"):
            return None
        inner = node.child_by_field_name("declarator") or next(
            (each for each in node.named_children if "declarator" in each.type or "identifier" in each.type), None
        )
        return None if inner is None else self._declarator(inner, shape, sizes, restrict)

    def parameter(self, node: Node) -> Iterator[Variable]:
        for each in self.declared(node):
            shape = each.shape
            if shape.kind in (ARRAY, FUNCTION):
                shape = Shape(POINTER, shape.of if shape.kind == ARRAY else shape)
            yield Variable(each.name, f"{each.name}@{each.node.start_byte}", shape, 1, False, each.restrict,
                           self.is_volatile(node))  # fmt: skip

    # Names.

    def constant(self, name: str) -> bool:
        """It cannot be changed, and using it does nothing."""
        if name in self.macros:
            return bool(LITERAL.fullmatch(self.macros[name])) and not self.macros[name].startswith("((")
        return name in self.enumerators or name in self.defined or name in CONSTANTS

    def is_macro(self, name: str) -> bool:
        """A call of it may be anything: the file says so, or its capitals do."""
        return name in self.macros or (name.upper() == name and any(c.isalpha() for c in name)
                                       and name not in self.defined)  # fmt: skip
