"""Functions of C: found by name, opened at a line, and read statement by statement."""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.errors import UsageError
from safepoint.tasks.deps.c_names import Facts, Node, text
from safepoint.tasks.deps.c_statements import Reader
from safepoint.tasks.deps.statements import Analysis, Effects, Statement, statement

KINDS = {"for_statement": "loop", "while_statement": "loop", "do_statement": "loop", "if_statement": "if",
         "switch_statement": "switch", "compound_statement": "block"}  # fmt: skip
LOOPS = ("for_statement", "while_statement", "do_statement")
LOOP, CALL = 100, 10  # how often a loop is taken to run; a call, in operations
OPERATIONS = {"binary_expression", "unary_expression", "update_expression"}


class File:
    """A source that tree-sitter can read, as it is before the preprocessor. Raises `UsageError` with file and line."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        self.root = _parsed(source)
        self.facts = Facts(self.root)
        self.functions = self.facts.functions
        if not self.functions and self.root.has_error:
            self._refuse(self.root)

    def _refuse(self, node: Node) -> None:
        for each in _errors(node):
            line, column = each.start_point
            near = f"missing {each.type}" if each.is_missing else f"near {text(each).splitlines()[0][:40]!r}"
            raise UsageError(
                f"{self.file}:{line + 1}:{column + 1}: not read as C: {near}; a macro that is no expression looks like "
                "a mistake too, as headers are not read"
            )

    def analysis(self, name: str, inside: int = 0) -> Analysis:
        node = self.functions[name]
        self._refuse(node)
        reader = Reader(self.facts, node)
        body = self._opened(node, inside) if inside else _statements(node.child_by_field_name("body"))
        reader.settle(body)
        statements = [self._statement(reader, each) for each in body]
        return Analysis(self.file, "C", name, inside, [each.name for each in reader.parameters], statements)

    def _opened(self, node: Node, line: int) -> list[Node]:
        found = list(_within(node.child_by_field_name("body")))
        for each in found:
            if each.start_point[0] + 1 == line:
                inner = each.child_by_field_name("consequence") or each.child_by_field_name("body") or each
                return _statements(inner)
        there = ", ".join(dict.fromkeys(str(each.start_point[0] + 1) for each in found)) or "none"
        raise UsageError(f"{self.file}:{line}: no loop, `if` or block begins here; lines where one does: {there}")

    def _statement(self, reader: Reader, node: Node) -> Statement:
        done: Effects = reader.wanted[node.id]
        private = {f"variable {name}" for name in reader.private(node.id)}
        for accesses in (done.reads, done.writes):
            for access in [each for each in accesses if each.place in private and not each.group]:
                del accesses[access]
        inner = node
        while inner.type in LOOPS and len(_statements(inner.child_by_field_name("body"))) == 1:
            inner = _statements(inner.child_by_field_name("body"))[0]
        line, end = node.start_point[0] + 1, node.end_point[0] + 1
        first = text(inner).splitlines()[0].strip()
        return statement(line, end, first.removesuffix(";"), KINDS.get(node.type, ""), weight(node), done)


def _parsed(source: str) -> Node:
    try:
        import tree_sitter
        import tree_sitter_c
    except ImportError as error:
        raise UsageError(
            f"{error.name} is missing, which C is read with: pip install '.[deps]' where safepoint's source is"
        ) from error
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    tree = parser.parse(source.encode("utf-8", "surrogateescape"))
    return tree.root_node


def _errors(node: Node) -> Iterator[Node]:
    if node.type == "ERROR" or node.is_missing:
        yield node
    elif node.has_error:
        for child in node.children:
            yield from _errors(child)


def _statements(node: Node) -> list[Node]:
    if node.type != "compound_statement":
        return [node]
    return [each for each in node.named_children if each.type != "comment"]


def _within(node: Node) -> Iterator[Node]:
    for each in node.named_children:
        block = each.type == "compound_statement" and node.type == "compound_statement"
        if each.type in LOOPS or each.type == "if_statement" or block:
            yield each
        yield from _within(each)


def weight(node: Node) -> int:
    """Operations, those in a loop 100 times. What steers a `for` is not counted."""
    if node.type == "for_statement":
        return LOOP * weight(node.child_by_field_name("body"))
    if node.type in LOOPS:
        return LOOP * sum(weight(child) for child in node.named_children)
    own = CALL if node.type == "call_expression" else int(node.type in OPERATIONS)
    if node.type == "assignment_expression" and text(node.child_by_field_name("operator")) != "=":
        own = 1
    return own + sum(weight(child) for child in node.named_children)
