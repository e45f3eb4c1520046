"""Calls in C: of the library's functions that are known, of macros, and of all others, which may do anything."""

from __future__ import annotations

from abc import abstractmethod

from safepoint.tasks.deps.c_expressions import ALLOCATE, LVALUES, Expressions
from safepoint.tasks.deps.c_names import ARRAY, FUNCTION, OPAQUE, POINTER, STRUCT, Node, bare, below, text
from safepoint.tasks.deps.statements import ANY, MEMORY, WORLD, Access

MATH = {"sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log",
        "log2", "log10", "log1p", "sqrt", "cbrt", "hypot", "pow", "fabs", "floor", "ceil", "round", "trunc", "fmod",
        "fmin", "fmax", "fma", "copysign", "isnan", "isinf", "isfinite"}  # fmt: skip
PURE = MATH | {f"{name}f" for name in MATH} | {
    "abs", "labs", "llabs", "isalpha", "isdigit", "isalnum", "isspace", "isupper", "islower", "ispunct", "isxdigit",
    "toupper", "tolower",
}  # fmt: skip
# Which of their arguments they look into; those of COPY change their first one.
COPY = {"memcpy": (1,), "memmove": (1,), "memset": (), "strcpy": (1,), "strncpy": (1,), "strcat": (0, 1),
        "strncat": (0, 1), "free": (0,)}  # fmt: skip
LOOK = {"strlen": (0,), "strcmp": (0, 1), "strncmp": (0, 1), "memcmp": (0, 1), "atoi": (0,), "atof": (0,), "atol": (0,)}
PRINT = {"printf": 0, "fprintf": 1, "puts": -1, "putchar": -1, "fputs": -1, "fputc": -1, "putc": -1}
SEEN_THROUGH = LVALUES | {"binary_expression", "string_literal", "cast_expression"}
STREAMS = {"stdout", "stderr"}
STEER = {"exit", "abort", "_Exit", "quick_exit", "assert", "va_start", "va_arg", "va_end", "va_copy", "setjmp",
         "sigsetjmp", "longjmp", "siglongjmp", "fork", "vfork", "pthread_exit", "thrd_exit", "alloca"}  # fmt: skip
STATE = {"errno", "fenv", "fetestexcept", "feenableexcept", "fesetround", "feclearexcept", "feraiseexcept"}


class Calls(Expressions):
    @abstractmethod
    def block(self, node: Node) -> None: ...

    def call(self, node: Node) -> None:
        function = bare(node.child_by_field_name("function"))
        name = text(function) if function.type == "identifier" else ""
        given = [each for each in node.child_by_field_name("arguments").named_children if each.type != "comment"]
        if name and self.variable(name) is None:
            self.seen.add(function.start_byte)
            if self._by_name(node, name, given):
                return
        else:
            self.tested(function)
        self._unknown(given)

    def _by_name(self, node: Node, name: str, given: list[Node]) -> bool:
        """Whether it is a function or a macro of which something is known."""
        if self.facts.is_macro(name) or name in STEER or name.startswith("__"):
            self._macro(node, name)
            return True
        if name in self.facts.functions or self.facts.words & STATE:
            return False
        if name in PURE | ALLOCATE:
            for each in given:
                self.value(each)
            return True
        if name in LOOK or (name in COPY and node.parent.type == "expression_statement"):
            looked = {0, *COPY[name]} if name in COPY else LOOK[name]
            if any(bare(given[n]).type not in SEEN_THROUGH for n in looked if n < len(given)):
                return False
            return self._moves(name, given)
        return name in PRINT and self._prints(name, given)

    def _macro(self, node: Node, name: str) -> None:
        """It may take addresses, assign, jump, and name variables that it is not given."""
        self.strange(node.child_by_field_name("arguments"))
        self.done.raises = True
        self.done.touch(Access(WORLD, "output", sure=False))
        for word in self.facts.words:
            found = self.variable(word)
            if found is not None and word in self.facts.macros.get(name, ""):
                self.escaped.add(found.id)

    def _unknown(self, given: list[Node]) -> None:
        for each in given:
            self._handed(each)
        self.done.touch(self.memory(sure=False))
        self.done.touch(Access(WORLD, "output", sure=False))
        self.done.raises = True  # it may not come back
        self.done.leaves |= bool(self.facts.words & {"setjmp", "sigsetjmp", "_setjmp"})

    def _handed(self, node: Node) -> None:
        """An argument; what it points to may be changed."""
        self.value(node)
        node = bare(node)
        address = node.type == "pointer_expression" and self._is_address(node)
        if not address and node.type not in LVALUES:
            return
        reads = dict(self.done.reads)
        target = self.target(node.child_by_field_name("argument") if address else node)
        self.done.reads = reads
        if target.shape.kind == FUNCTION:
            return
        if address or target.shape.kind in (ARRAY, OPAQUE):
            for access in target.accesses:
                self.done.touch(Access(access.place, access.label, access.group, sure=False))
        if target.shape.kind in (POINTER, OPAQUE, STRUCT) and target.accesses:
            self.done.touch(self.memory(f"*{target.accesses[0].label.lstrip('*')}", sure=False))

    # What is known of the library.

    def pointee(self, node: Node) -> list[Access]:
        """Evaluate an argument that the function only looks at: what it points to, without giving it away."""
        node = bare(node)
        if node.type == "cast_expression":
            return self.pointee(node.child_by_field_name("value"))
        if node.type == "binary_expression" and text(node.child_by_field_name("operator")) == "+":
            self.value(node.child_by_field_name("right"))
            return self.pointee(node.child_by_field_name("left"))
        if node.type == "pointer_expression" and self._is_address(node):
            target = self.target(node.child_by_field_name("argument"))
            if target.shape.kind in (POINTER, OPAQUE):  # its bytes are those of a pointer
                self.give_away(target)
                self.copied |= {each.id for each in target.variables}
            return target.accesses
        if node.type in LVALUES:
            reads = dict(self.done.reads)
            target = self.target(node)
            if target.shape.kind == ARRAY:
                return target.accesses
            if target.shape.kind == POINTER:
                self.done.reads = reads
                return self.pointed(node).accesses
            self._converted(target)
        elif node.type != "string_literal":
            self.value(node)
        return [] if node.type == "string_literal" else [self.memory()]

    def _moves(self, name: str, given: list[Node]) -> bool:
        for number, each in enumerate(given):
            if number not in (*COPY.get(name, LOOK.get(name, ())), *((0,) if name in COPY else ())):
                self.value(each)
                continue
            for access in self.pointee(each):
                if number in COPY.get(name, LOOK.get(name, ())):
                    self.done.reads[access] = None
                if number == 0 and name in COPY:
                    self.done.writes[access] = None
        return True

    def _prints(self, name: str, given: list[Node]) -> bool:
        """`%n` writes, and a format that is no literal may hold one."""
        at = PRINT[name]
        if at >= 0:
            form = given[at] if len(given) > at else None
            if form is None or form.type not in ("string_literal", "concatenated_string"):
                return False
            if "n" in {part.lstrip("0123456789.-+ #*hlqjzt")[:1] for part in text(form).split("%")[1:]}:
                return False
            if any(True for _ in below(form, "identifier")):  # a macro within it
                return False
        if name == "fprintf" and text(given[0]) not in STREAMS:
            self.value(given[0])
        for each in given[at + 1 :] if at >= 0 else given:
            self._printed(each)
        self.done.touch(Access(WORLD, "output"))
        return True

    def _printed(self, node: Node) -> None:
        node = bare(node)
        if text(node) in STREAMS or node.type == "string_literal":
            self.seen.add(node.start_byte)
            return
        if node.type in LVALUES and not (node.type == "pointer_expression" and self._is_address(node)):
            reads = dict(self.done.reads)
            target = self.target(node)
            if target.shape.kind in (POINTER, ARRAY):
                self.done.reads = reads
                for access in self.pointee(node):
                    self.done.reads[access] = None
                return
            self._converted(target)
            if target.shape.kind == OPAQUE:
                self.done.reads[self.memory()] = None
            return
        self.value(node)
        if node.type not in ("number_literal", "char_literal", "binary_expression", "unary_expression"):
            self.done.reads[Access(MEMORY, ANY, MEMORY, shown=False)] = None
