"""Functions of Python: found by name, opened at a line, and read statement by statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from safepoint.errors import UsageError
from safepoint.tasks.deps.py_scope import Definition, functions, imported, scope
from safepoint.tasks.deps.py_statements import Reader
from safepoint.tasks.deps.statements import IMPORT, Analysis, Statement, statement

KINDS: dict[type[ast.AST], str] = {
    ast.For: "loop", ast.AsyncFor: "loop", ast.While: "loop", ast.If: "if", ast.With: "with", ast.AsyncWith: "with",
    ast.Try: "try", ast.Match: "match", ast.FunctionDef: "def", ast.AsyncFunctionDef: "def", ast.ClassDef: "class",
    ast.Import: IMPORT, ast.ImportFrom: IMPORT,
}  # fmt: skip
OPENED = ast.For | ast.AsyncFor | ast.While | ast.If | ast.With | ast.AsyncWith | ast.Try
GUARDS = ast.With | ast.AsyncWith | ast.Try  # what was done before an exception is seen after these
LOOP, CALL = 100, 10  # how often a loop is taken to run; a call, in operations
Operation = ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.AugAssign
CALM = (ast.Assign, ast.Expr, ast.Pass, ast.Name, ast.Constant, ast.List, ast.Load, ast.Store)  # raise nothing


class File:
    """A source that Python can compile. Raises `UsageError` with file and line, if it cannot."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        try:
            self.tree = ast.parse(source, file)
            compile(source, file, "exec", dont_inherit=True)  # `return` outside of a function, and the like
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            raise UsageError(f"{file}:{line}: no Python: {getattr(error, 'msg', error)}") from error
        self.functions = dict(functions(self.tree))

    def analysis(self, name: str, inside: int = 0) -> Analysis:
        node = self.functions[name]
        found = scope(self.tree, self.source, self.file, node)
        reader = Reader(found)
        reader.settle()
        body, guarded = self._opened(node, inside) if inside else (_without_docstring(node), False)
        private = _private(node, found.local - found.captured - set(found.parameters))
        bound = set(found.parameters) - _removed(node)
        statements = []
        for each in body:
            statements.append(self._statement(reader, each, guarded, bound, private & _covered(each)))
            if isinstance(each, ast.Assign) and not inside:
                bound |= {target.id for target in each.targets if isinstance(target, ast.Name)} - _removed(node)
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        names, opened = imported(self.tree) & used - set(found.parameters) - set(_stored(node)), _only_opened(node)
        return Analysis(self.file, "Python", name, inside, found.parameters, statements, frozenset(names), opened)

    def _opened(self, node: Definition, line: int) -> tuple[list[ast.stmt], bool]:
        for each, guarded in _within(node, False):
            if each.lineno == line:
                return each.body, guarded
        there = ", ".join(str(each.lineno) for each, _ in _within(node, False)) or "none"
        raise UsageError(
            f"{self.file}:{line}: no loop, `if`, `with` or `try` begins here; in {node.name} they do in lines: {there}"
        )

    def _statement(
        self, reader: Reader, node: ast.stmt, guarded: bool, bound: set[str], private: set[str]
    ) -> Statement:
        """`private`: variables of its loops, which nobody sees outside of them."""
        done = reader.effects(node)
        for accesses in (done.reads, done.writes):
            for access in [each for each in accesses if each.place in {f"variable {name}" for name in private}]:
                del accesses[access]
        done.raises = not _calm(node, bound)
        found = statement(
            node.lineno, node.end_lineno or node.lineno, self._text(node),
            KINDS.get(type(node), "try" if type(node).__name__ == "TryStar" else ""), _weight(node), done,
        )  # fmt: skip
        found.visible |= guarded and bool(found.writes)
        return found

    def _text(self, node: ast.stmt) -> str:
        """Its first line; of loops that hold one statement only, that one."""
        while isinstance(node, (ast.For, ast.While)) and len(node.body) == 1 and not node.orelse:
            node = node.body[0]
        text = ast.get_source_segment(self.source, node) or ast.unparse(node)
        return text.splitlines()[0].strip()


def _without_docstring(node: Definition) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _stored(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _only_opened(node: ast.AST) -> frozenset[str]:
    """Names that `with` binds, and nothing else does."""
    every, targets = _stored(node), list[str]()
    for each in ast.walk(node):
        if isinstance(each, ast.With | ast.AsyncWith):
            targets += [name for item in each.items if item.optional_vars for name in _stored(item.optional_vars)]
    return frozenset(name for name in targets if every.count(name) == targets.count(name))


def _within(node: ast.AST, guarded: bool) -> Iterator[tuple[OPENED, bool]]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        caught = guarded or isinstance(each, GUARDS) or type(each).__name__ == "TryStar"
        if isinstance(each, OPENED) or type(each).__name__ == "TryStar":
            yield each, caught  # type: ignore[misc]
        yield from _within(each, caught)


def _private(node: ast.AST, names: set[str]) -> set[str]:
    """Those of them that only loops use which set them first."""
    every, covered = list(_uses(node)), list(_covered_uses(node))
    return {name for name in names if every.count(name) == covered.count(name)}


def _covered(node: ast.AST) -> set[str]:
    every, covered = list(_uses(node)), list(_covered_uses(node))
    return {name for name in covered if every.count(name) == covered.count(name)}


def _uses(node: ast.AST) -> Iterator[str]:
    """Names, but for those that comprehensions have for themselves."""
    if isinstance(node, ast.Name):
        yield node.id
    own = _of_comprehension(node)
    for child in ast.iter_child_nodes(node):
        yield from (name for name in _uses(child) if name not in own)


def _of_comprehension(node: ast.AST) -> set[str]:
    if not isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return set()
    targets = [each for part in node.generators for each in ast.walk(part.target) if isinstance(each, ast.Name)]
    first = {each.id for each in ast.walk(node.generators[0].iter) if isinstance(each, ast.Name)}
    return {each.id for each in targets} - first


def _covered_uses(node: ast.AST, within: frozenset[str] = frozenset()) -> Iterator[str]:
    """In the body of a `for` whose target it is, or that target."""
    if isinstance(node, ast.Name):
        if node.id in within:
            yield node.id
        return
    if isinstance(node, ast.For) and isinstance(node.target, (ast.Name, ast.Tuple)):
        plain = all(isinstance(each, (ast.Name, ast.Tuple, ast.Store)) for each in ast.walk(node.target))
        inner = within | (frozenset(_uses(node.target)) if plain else frozenset())
        for part, of in ((node.target, inner), (node.iter, within)):
            yield from _covered_uses(part, of)
        for body, of in ((node.body, inner), (node.orelse, within)):
            for each in body:
                yield from _covered_uses(each, of)
        return
    own = _of_comprehension(node)
    for child in ast.iter_child_nodes(node):
        yield from (name for name in _covered_uses(child, within) if name not in own)


def _removed(node: ast.AST) -> set[str]:
    """Names that may be unbound again."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del):
            found.add(each.id)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            found.add(each.name)
    return found


def _calm(node: ast.stmt, bound: set[str]) -> bool:
    """It raises nothing, whatever the values are."""
    nodes = list(ast.walk(node))
    loads = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    unpacked = isinstance(node, ast.Assign) and any(not isinstance(target, ast.Name) for target in node.targets)
    return all(isinstance(each, CALM) for each in nodes) and loads <= bound and not unpacked


def _weight(node: ast.AST) -> int:
    """Operations, those in a loop 100 times; what a nested function does is not counted."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return 0
    own = CALL if isinstance(node, ast.Call) else int(isinstance(node, Operation))
    once: list[ast.AST]
    often: list[ast.AST] = []
    if isinstance(node, (ast.For, ast.AsyncFor)):
        once, often = [node.iter, *node.orelse], [*node.body]
    elif isinstance(node, ast.While):
        once, often = [*node.orelse], [node.test, *node.body]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        first = _weight(node.generators[0].iter)
        inner = sum(map(_weight, ast.iter_child_nodes(node))) - first
        return first + int(LOOP ** len(node.generators)) * inner
    else:
        once = list(ast.iter_child_nodes(node))
    return own + sum(map(_weight, once)) + LOOP * sum(map(_weight, often))
