"""Statements of C, in the scopes of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safepoint.tasks.deps.c_calls import Calls
from safepoint.tasks.deps.c_names import FUNCTION, Declared, Facts, Node, Variable, bare, below, text
from safepoint.tasks.deps.statements import Access, Effects

ENDLESS = {"", "1", "true"}


class Reader(Calls):
    """Of one function: `settle` first; `found` has the effects of the statements that were asked for."""

    def __init__(self, facts: Facts, function: Node) -> None:
        super().__init__(facts)
        self.function = function
        self.wanted: dict[int, Effects] = {}
        self.counted: dict[int, set[str]] = {}  # variables that only loops in this statement use
        self.breaks = self.continues = 0

    @property
    def parameters(self) -> list[Variable]:
        declarator = next(below(self.function, "function_declarator"))
        nodes = declarator.child_by_field_name("parameters").named_children
        return [each for node in nodes for each in self.facts.parameter(node)]

    def settle(self, wanted: Iterable[Node]) -> None:
        """Go over the whole function until no more variables are found that others may reach."""
        numbers = [node.id for node in wanted]
        before: object = None
        while before != (before := (set(self.escaped), set(self.copied), set(self.allocated), str(self.given))):
            self.wanted = {number: Effects() for number in numbers}
            for counter in self.uses.values():
                counter.clear()
            self.scopes = [{each.name: each for each in self.parameters}]
            self.done, self.outer = Effects(), 1
            for each in self.function.child_by_field_name("body").named_children:
                self.run(each)

    def private(self, number: int) -> set[str]:
        """Variables that loops of this statement set before they use them, as all others do."""
        every, covered = self.uses["all"], self.uses["covered"]
        return {name for name in self.counted[number] if every[name] == covered[name] and name not in self.escaped}

    def run(self, node: Node) -> None:
        if node.id not in self.wanted:
            self._run(node)
            return
        before = self.done, self.outer, self.mark, self.breaks, self.continues
        self.done, self.outer, self.mark = self.wanted[node.id], len(self.scopes), len(self.covering)
        self.breaks = self.continues = 0
        for which in ("here", "covered here"):
            self.uses[which].clear()
        self._run(node)
        self._overlooked(node)
        here, covered = self.uses["here"], self.uses["covered here"]
        self.counted[node.id] = {name for name in covered if covered[name] == here[name]}
        self.done, self.outer, self.mark, self.breaks, self.continues = before

    def _overlooked(self, node: Node) -> None:
        """A name that no rule has read is read, written and given away."""
        for each in below(node, "identifier", "type_identifier"):
            if each.start_byte not in self.seen and self.variable(text(each)) is not None:
                self.strange(each)

    def _run(self, node: Node) -> None:
        kinds: dict[str, Callable[[Node], None]] = {
            "expression_statement": self._each_value,
            "declaration": self._declaration,
            "compound_statement": self.block,
            "if_statement": self._if,
            "else_clause": self._children,
            "while_statement": self._while,
            "do_statement": self._while,
            "for_statement": self._for,
            "switch_statement": self._switch,
            "case_statement": self._children,
            "break_statement": self._break,
            "continue_statement": self._continue,
            "comment": lambda node: None,
        }
        kinds.get(node.type, self._steering)(node)

    def _steering(self, node: Node) -> None:
        """`return`, `goto`, labels, `asm`, lines of the preprocessor, types, and what is not known here."""
        self.done.leaves = True
        if node.type in ("return_statement", "labeled_statement", "attributed_statement"):
            self._children(node)
        elif node.type.startswith("preproc_if") or node.type in ("preproc_else", "preproc_elif"):
            self._children(node)
            for each in below(node, "identifier"):
                self.seen.add(each.start_byte)
        elif node.type not in ("goto_statement", "type_definition", "preproc_call", "preproc_include"):
            self.strange(node)

    def _children(self, node: Node) -> None:
        for child in node.named_children:
            if child.type.endswith(("statement", "clause")) or child.type in ("declaration", "comment") or \
                    child.type.startswith("preproc"):  # fmt: skip
                self.run(child)
            elif child.type not in ("statement_identifier", "attribute_declaration"):
                self.value(child)

    def _each_value(self, node: Node) -> None:
        for child in node.named_children:
            self.value(child)

    def block(self, node: Node) -> None:
        self.scopes.append({})
        for child in node.named_children:
            self.run(child)
        self.scopes.pop()

    # Declarations.

    def _declaration(self, node: Node) -> None:
        kind = node.child_by_field_name("type")
        if kind is None or kind.type not in ("primitive_type", "sized_type_specifier", "type_identifier",
                                             "struct_specifier", "union_specifier", "enum_specifier"):  # fmt: skip
            self.strange(node)
        if kind is not None and (kind.child_by_field_name("body") or self.variable(text(kind)) is not None
                                 or text(kind) in self.facts.macros):  # fmt: skip
            self.done.leaves = True  # a type is declared here, or it is no declaration at all
        if kind is not None:
            self.seen.add(kind.start_byte)
        stored = {text(each) for each in node.children if each.type == "storage_class_specifier"}
        volatile = self.facts.is_volatile(node)
        for child in node.children_by_field_name("declarator"):
            each = self.facts.declarator(node, child)
            if each is None or each.shape.kind == FUNCTION:
                self.done.leaves = True
                self.seen |= {name.start_byte for name in below(child, "identifier", "type_identifier")}
            if each is None:
                self.strange(child)
                continue
            self._declare(each, stored, volatile)
            if child.type == "init_declarator" and each.shape.kind != FUNCTION:
                self._initial(each, child)

    def _declare(self, each: Declared, stored: set[str], volatile: bool) -> None:
        self.seen.add(each.node.start_byte)
        for size in each.sizes:
            self.value(size)
        found = Variable(each.name, f"{each.name}@{each.node.start_byte}", each.shape, len(self.scopes),
                         bool(stored & {"static", "extern"}), False, volatile)  # fmt: skip
        if "extern" in stored:
            found = self.facts.globals.get(each.name) or found
        self.scopes[-1][each.name] = found
        if len(self.scopes) <= self.outer:
            self.done.writes[Access(f"spelling {each.name}", each.name, shown=False)] = None

    def _initial(self, each: Declared, node: Node) -> None:
        value = node.child_by_field_name("value")
        reads = dict(self.done.reads)
        target = self.target(each.node)
        self.done.reads = reads
        self.assigned(target, value, node, alone=True)
        self.value(value)
        self.write(target)

    # What holds other statements.

    def _condition(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        if condition is not None:
            self.tested(condition)

    def _if(self, node: Node) -> None:
        self._condition(node)
        for part in ("consequence", "alternative"):
            child = node.child_by_field_name(part)
            if child is not None:
                self.run(child)

    def _loop(self, body: Node) -> None:
        self.breaks += 1
        self.continues += 1
        self.run(body)
        self.breaks -= 1
        self.continues -= 1

    def _while(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        self.done.raises |= condition is not None and text(bare(condition)) in ENDLESS
        self._condition(node)
        self._loop(node.child_by_field_name("body"))

    def _for(self, node: Node) -> None:
        self.scopes.append({})
        initial, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
        self.done.raises |= condition is None or text(condition) in ENDLESS
        before = len(self.covering)
        if initial is not None:
            self._first(initial)
        if condition is not None:
            self.tested(condition)
        update = node.child_by_field_name("update")
        if update is not None:
            self.value(update)
        self._loop(node.child_by_field_name("body"))
        del self.covering[before:]
        self.scopes.pop()

    def _first(self, node: Node) -> None:
        """What a `for` sets first needs no value from before it."""
        if node.type == "comma_expression":
            for child in node.named_children:
                self._first(child)
        elif node.type == "declaration":
            self._declaration(node)
        elif node.type == "assignment_expression" and text(node.child_by_field_name("operator")) == "=":
            left = node.child_by_field_name("left")
            found = self.variable(text(left)) if left.type == "identifier" else None
            self.value(node.child_by_field_name("right"))
            if found is not None:
                self.covering.append(found.id)
            self.value(node)
        else:
            self.value(node)

    def _switch(self, node: Node) -> None:
        self._condition(node)
        self.breaks += 1
        self.run(node.child_by_field_name("body"))
        self.breaks -= 1

    def _break(self, node: Node) -> None:
        self.done.leaves |= self.breaks == 0

    def _continue(self, node: Node) -> None:
        self.done.leaves |= self.continues == 0
