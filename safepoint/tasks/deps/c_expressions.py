"""Expressions of C: which variables and which memory each reads and writes.

A variable whose address is nowhere taken is reached by its name alone. All others, and all that pointers point to, are
*memory*: any two pointers may point to one place. The exceptions are *own* pointers, with memory that no other name
reaches: parameters with `restrict`, and variables that were given memory by `malloc` once, if neither is ever copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

from safepoint.tasks.deps.c_names import (
    ARRAY,
    FUNCTION,
    OPAQUE,
    POINTER,
    SCALAR,
    STRUCT,
    UNKNOWN,
    Facts,
    Node,
    Shape,
    Variable,
    bare,
    below,
    text,
)  # fmt: skip
from safepoint.tasks.deps.statements import ANY, MEMORY, WORLD, Access, Effects

SIMPLE = {"number_literal", "string_literal", "char_literal", "concatenated_string", "true", "false", "null",
          "comment", "alignof_expression", "offsetof_expression"}  # fmt: skip
LVALUES = {"identifier", "subscript_expression", "field_expression", "pointer_expression"}
PLAIN = {"binary_expression", "unary_expression", "conditional_expression", "comma_expression", "argument_list",
         "initializer_list", "initializer_pair", "subscript_designator", "extension_expression"}  # fmt: skip
ALLOCATE = {"malloc", "calloc"}


@dataclass
class Target:
    """What an expression designates. `owner`: the own pointer through which it was reached."""

    accesses: list[Access]
    shape: Shape
    variables: list[Variable] = field(default_factory=list)
    owner: Variable | None = None
    volatile: bool = False


class Expressions(ABC):
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.done = Effects()
        self.scopes: list[dict[str, Variable]] = []
        self.outer = 1  # scopes around the statement that is read: what is declared in inner ones ends with it
        self.escaped: set[str] = set()  # variables whose address is somewhere
        self.copied: set[str] = set()  # pointers that are no longer the only ones
        self.given: dict[str, set[int]] = {}  # where a pointer is assigned to
        self.allocated: set[str] = set()  # pointers that `malloc` gave a value
        self.seen: set[int] = set()  # identifiers that were understood, by their offset
        self.covering: list[str] = []  # variables that the loops around set first
        self.mark = 0  # those of them from here on are of loops in this statement
        self.uses: dict[str, Counter[str]] = {"all": Counter(), "covered": Counter(), "here": Counter(),
                                              "covered here": Counter()}  # fmt: skip

    @abstractmethod
    def call(self, node: Node) -> None: ...

    @abstractmethod
    def block(self, node: Node) -> None: ...

    # Variables and memory.

    def variable(self, name: str) -> Variable | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return self.facts.globals.get(name)

    def _identifier(self, node: Node) -> Target:
        name = text(node)
        self.seen.add(node.start_byte)
        found = self.variable(name)
        if found is None:
            return self._undeclared(name)
        self._used(found)
        if found.depth <= self.outer:
            self.done.reads[Access(f"spelling {name}", name, shown=False)] = None
            return Target([found.access(found.id in self.escaped)], found.shape, [found], volatile=found.volatile)
        inner = [found.access(True)] if found.far else []
        return Target(inner, found.shape, [found], volatile=found.volatile)

    def _used(self, found: Variable) -> None:
        for which, covering in (("", self.covering), (" here", self.covering[self.mark :])):
            self.uses["all" if not which else "here"][found.id] += 1
            self.uses["covered" + which][found.id] += found.id in covering

    def _undeclared(self, name: str) -> Target:
        """A constant of this file, or what a header declares: a variable or a macro, perhaps volatile."""
        if self.facts.constant(name):
            return Target([], Shape(FUNCTION) if name in self.facts.defined else Shape(SCALAR))
        if name in self.facts.macros:
            self.done.leaves = True
        if self.facts.is_macro(name):
            self.done.touch(Access(MEMORY, name, MEMORY, sure=False))
            self.done.touch(Access(WORLD, name, sure=False))
            return Target([], UNKNOWN)
        return Target([Access(f"variable {name}", name, MEMORY)], UNKNOWN, volatile=True)

    def own(self, found: Variable) -> bool:
        if found.shape.kind != POINTER or found.id in self.escaped | self.copied or found.far or found.volatile:
            return False
        return found.restrict or (found.id in self.allocated and len(self.given.get(found.id, ())) == 1)

    def memory(self, label: str = ANY, sure: bool = True) -> Access:
        return Access(MEMORY, label, MEMORY, sure)

    def of_own(self, found: Variable) -> Access:
        """What an own pointer points to. The caller of the function may see it, if it is a parameter."""
        place = f"target {found.id}"
        return Access(place, f"*{found.name}", place if found.restrict else "")

    # Reading, writing, giving away.

    def read(self, target: Target, *, shown: bool = True) -> None:
        for access in target.accesses:
            hidden = Access(access.place, access.label, access.group, access.sure, shown and access.shown)
            if access not in self.done.reads:
                self.done.reads.setdefault(hidden)
        self._volatile(target)

    def write(self, target: Target) -> None:
        for access in target.accesses:
            self.done.writes[access] = None
        self._volatile(target)

    def _volatile(self, target: Target) -> None:
        if target.volatile:
            self.done.touch(Access(WORLD, "volatile", sure=False))

    def give_away(self, target: Target) -> None:
        """Its address may be anywhere from now on."""
        self.escaped |= {each.id for each in target.variables}
        if target.owner is not None:
            self.copied.add(target.owner.id)

    def value(self, node: Node) -> None:
        """Evaluate an expression."""
        node = bare(node)
        if node.type in SIMPLE:
            return
        if node.type in LVALUES and not (node.type == "pointer_expression" and self._is_address(node)):
            self._converted(self.target(node))
        elif node.type in PLAIN:
            for child in node.named_children:
                if child.type not in ("field_designator", "field_identifier"):
                    self.tested(child) if node.type in ("unary_expression", "binary_expression") else self.value(child)
        else:
            rest = {
                "pointer_expression": self._address, "assignment_expression": self._assignment,
                "update_expression": self._update, "cast_expression": self._cast, "sizeof_expression": self._sizeof,
                "call_expression": self.call, "compound_literal_expression": self._literal,
                "parenthesized_expression": self._inner_block,
            }  # fmt: skip
            rest.get(node.type, self.strange)(node)

    def tested(self, node: Node) -> None:
        """A pointer that is only compared stays an own one."""
        node = bare(node)
        parent = node.parent
        while parent.type == "parenthesized_expression":
            parent = parent.parent
        operator = parent.child_by_field_name("operator")
        compares = operator is None or text(operator) in ("==", "!=", "!", "&&", "||", "<", ">", "<=", ">=")
        if node.type == "identifier" and compares:
            target = self._identifier(node)
            if target.shape.kind == POINTER:
                self.read(target)
                return
            self._converted(target)
            return
        self.value(node)

    def _converted(self, target: Target) -> None:
        """The value of what is designated: of an array, its address."""
        if target.shape.kind == FUNCTION:
            return
        if target.shape.kind != ARRAY:
            self.read(target)
        if target.shape.kind in (ARRAY, OPAQUE):
            self.give_away(target)
        if target.shape.kind in (POINTER, OPAQUE):
            self.copied |= {each.id for each in target.variables}

    def strange(self, node: Node) -> None:
        """It is not known what this does: it keeps its place, and all that it names is given away."""
        self.done.leaves = True
        for each in below(node, "identifier", "type_identifier"):
            if each.type == "type_identifier" and self.variable(text(each)) is None:
                continue
            target = self._identifier(each)
            for access in target.accesses:
                self.done.touch(Access(access.place, access.label, access.group, sure=False))
            self.give_away(target)
        self.done.touch(self.memory(sure=False))

    # What is designated.

    def target(self, node: Node) -> Target:
        node = bare(node)
        if node.type == "identifier":
            return self._identifier(node)
        if node.type == "subscript_expression":
            base, index = node.child_by_field_name("argument"), node.child_by_field_name("index")
            self.value(index)
            return self.pointed(base)
        if node.type == "field_expression":
            return self._field(node)
        if node.type == "pointer_expression" and not self._is_address(node):
            return self._dereferenced(bare(node.child_by_field_name("argument")))
        self.value(node)
        return Target([], UNKNOWN)

    def _dereferenced(self, node: Node) -> Target:
        """`*p`, and `*(p + i)`, which is `p[i]`."""
        if node.type == "binary_expression" and text(node.child_by_field_name("operator")) in "+-":
            left, right = (bare(node.child_by_field_name(side)) for side in ("left", "right"))
            self.value(right)
            return self.pointed(left)
        return self.pointed(node)

    def pointed(self, node: Node) -> Target:
        """What an array or a pointer refers to."""
        node = bare(node)
        if node.type not in LVALUES or (node.type == "pointer_expression" and self._is_address(node)):
            self.value(node)
            return Target([self.memory()], UNKNOWN, volatile=self.facts.volatile_parts)
        base = self.target(node)
        label = base.accesses[0].label if base.accesses else text(node)
        inner = base.shape.of or UNKNOWN
        if base.shape.kind == ARRAY:
            return Target(base.accesses, inner, base.variables, base.owner, base.volatile)
        volatile = base.volatile or self.facts.volatile_parts
        self.read(base, shown=False)
        if base.shape.kind == POINTER:
            if node.type == "identifier" and base.variables and self.own(base.variables[0]):
                return Target([self.of_own(base.variables[0])], inner, [], base.variables[0], volatile)
            name = label if label.startswith("*") else f"*{label}"
            return Target([self.memory(name)], inner, volatile=volatile)
        self.give_away(base)
        return Target([*base.accesses, self.memory(f"*{label}")], UNKNOWN, volatile=volatile)

    def _field(self, node: Node) -> Target:
        argument = node.child_by_field_name("argument")
        arrow = text(node.child_by_field_name("operator")) == "->"
        base = self.pointed(argument) if arrow else self.target(argument)
        shape = self.facts.fields.get(text(node.child_by_field_name("field")), UNKNOWN)
        if base.shape.kind != STRUCT or not base.shape.known:
            shape = UNKNOWN
        volatile = base.volatile or self.facts.volatile_parts
        return Target(base.accesses, shape, base.variables, base.owner, volatile)

    @staticmethod
    def _is_address(node: Node) -> bool:
        return text(node.child_by_field_name("operator")) == "&"

    def _address(self, node: Node) -> None:
        self.give_away(self.target(node.child_by_field_name("argument")))

    # Operators.

    def _assignment(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        target = self.target(left)
        plain = text(node.child_by_field_name("operator")) == "="
        self.assigned(target, right if plain else None, node, alone=bare(left).type == "identifier")
        self.value(right)
        if not plain:
            self.read(target)
        self.write(target)

    def assigned(self, target: Target, value: Node | None, node: Node, *, alone: bool) -> None:
        """Note what a pointer is given: only memory of its own leaves it an own one."""
        for found in target.variables if alone and target.shape.kind == POINTER else ():
            value = value and bare(value)
            while value is not None and value.type == "cast_expression":
                value = bare(value.child_by_field_name("value"))
            if value is not None and text(value) in ("0", "NULL") and not found.restrict:
                continue
            made = value is not None and value.type == "call_expression"
            name = value.child_by_field_name("function") if made and value is not None else None
            if name is not None and text(name) in ALLOCATE - self.facts.defined - set(self.facts.macros):
                self.allocated.add(found.id)
            else:
                self.copied.add(found.id)
            self.given.setdefault(found.id, set()).add(node.start_byte)
            if found.restrict:
                self.copied.add(found.id)

    def _update(self, node: Node) -> None:
        target = self.target(node.child_by_field_name("argument"))
        self.copied |= {each.id for each in target.variables if target.shape.kind in (POINTER, OPAQUE)}
        self.read(target)
        self.write(target)

    def _cast(self, node: Node) -> None:
        """`(a) & b` looks like one, if `a` is a variable."""
        value = node.child_by_field_name("value")
        for name in below(node.child_by_field_name("type"), "identifier", "type_identifier"):
            if self.variable(text(name)) is not None:
                self._converted(self._identifier(name))
                if value.type == "pointer_expression":
                    self.value(value.child_by_field_name("argument"))
        self.value(value)

    def _sizeof(self, node: Node) -> None:
        """The operand is not evaluated; but it must have been declared, and it may do something if its size is not
        constant. `sizeof (a) * b` may have been taken for a cast: then it is."""
        if any(True for _ in below(node, "assignment_expression", "update_expression", "call_expression",
                                   "cast_expression")):  # fmt: skip
            for child in node.named_children:
                self.value(child) if child.type != "type_descriptor" else self.strange(child)
            return
        for each in below(node, "identifier", "type_identifier"):
            self.seen.add(each.start_byte)
            name = text(each)
            found = self.variable(name)
            if found is not None and found.depth <= self.outer:
                self.done.reads[Access(f"spelling {name}", name, shown=False)] = None
            elif found is None and each.type == "identifier" and name in self.facts.macros:
                self._identifier(each)

    def _literal(self, node: Node) -> None:
        self.value(node.child_by_field_name("value"))

    def _inner_block(self, node: Node) -> None:
        """`({ … })`."""
        for child in node.named_children:
            self.block(child) if child.type == "compound_statement" else self.value(child)
