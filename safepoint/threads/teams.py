"""What depends on the number of a thread, or on how many there are: values, and arrays with a place for each thread.

(1) A *number* is that of a thread, or of threads, or one of these and a constant; a bound made of it is none.
(2) A real, or an array, is taken as a whole only if a number itself is in its value: not by a subscript, nor by an
argument of a function.
(3) *Scratch* has a place for each thread: a subscript is a number, or its extent depends on one. A component is written
`%type%component`, and is meant in all variables of that type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from safepoint.threads.bindings import program_of
from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.locks import INSIDE
from safepoint.threads.sharing import Assignment, constructs, root_of, statements
from safepoint.threads.structure import Block, Item, Stmt
from safepoint.threads.symbols import Scope, Symbol
from safepoint.threads.written import INQUIRY, PURE, THREADS, compressed, names_in, target

ARITHMETIC = PURE - INQUIRY | {"cmplx", "logical"}
TRIES = {"omp_test_lock", "omp_test_nest_lock"}
COUNTS = THREADS | TRIES  # functions


def direct(text: str, scope: Scope) -> str:
    """An expression without subscripts, and without arguments of functions but those that calculate."""
    found = re.search(r"([a-z]\w*)\s*\(", text, re.I)
    if found is None:
        return text
    end, symbol = closing(text, found.end() - 1), scope.find(found[1])
    calculates = found[1].lower() in ARITHMETIC and not (symbol and symbol.rank)
    inside = direct(text[found.end() : end], scope) if calculates else ""
    return f"{text[: found.end()]}{inside}){direct(text[end + 1 :], scope)}"


def made_directly(text: str, scope: Scope) -> set[str]:
    """The names and functions of which a value is made."""
    return set(names_in(direct(re.sub(r"'[^']*'|\"[^\"]*\"", "", text), scope)))


def is_number(text: str, numbers: Set[str], scope: Scope) -> bool:
    """Numbers and constants alone, added."""
    plain = re.sub(r"\(/|/\)", " ", text)
    names = made_directly(text, scope) - ARITHMETIC
    return bool(names) and names <= numbers and not re.search(r"[*/:]", plain)


def right_of(given: Assignment) -> str:
    """What is assigned; empty if that is no expression."""
    node = given.stmt.node
    action = node.children[1] if type(node).__name__ == "If_Stmt" else node
    return str(action.children[2]) if type(action).__name__ == "Assignment_Stmt" else ""


def numbers_in(given: Sequence[Assignment], names: set[str], functions: set[str]) -> set[str]:
    """`names`, and what is assigned numbers alone."""
    found, before = set(names), -1
    while len(found) != before:
        before = len(found)
        for each in given:
            fits = "%" not in each.what.text or target(each.what.text, each.scope).whole
            if fits and is_number(right_of(each), found | functions, each.scope):
                found.add(each.root)
    return found


def is_made_of(given: Assignment, numbers: set[str], functions: set[str]) -> bool:
    """A real, or elements of an array, with a number itself in its value."""
    names = made_directly(right_of(given), given.scope)
    return "%" not in given.what.text and bool(names & (numbers | functions))


def marks(text: str, scope: Scope) -> Iterator[tuple[str, str]]:
    """The names by which `Uncertain.scratch` has a variable and each of its components, with their subscripts."""
    components: dict[str, Symbol] | None = None
    holder = ""
    for number, part in enumerate(split_outside(compressed(text), "%")):
        name, _, inside = part.partition("(")
        name = name.strip().lower()
        symbol = (components or {}).get(name) if number else _symbol(name, scope)
        stands = list(_associated(name, scope)) if not number else []
        yield from stands[:-1]
        plain = f"%{_declares(holder, name, scope)}%{name}" if number else root_of(name, scope)
        mark = stands[-1][0] if stands else plain
        yield mark, inside.rpartition(")")[0] or (stands[-1][1] if stands else "")
        holder = symbol.type[5:] if symbol and symbol.type.startswith("type ") else ""
        components = scope.type_of(holder) if holder else None


def _symbol(name: str, scope: Scope) -> Symbol | None:
    """Of a name, or of what it stands for if its own type is not known."""
    found = scope.find(name)
    return found if found and found.type else scope.find(root_of(name, scope))


def _associated(name: str, scope: Scope) -> Iterator[tuple[str, str]]:
    """Of a name of ASSOCIATE that stands for a component."""
    where: Scope | None = scope
    while where is not None and name not in where.names:
        where = where.parent
    if where is None or where.parent is None:
        return
    stands = next((each[7:] for each in where.names[name].attributes if each.startswith("stands:")), "")
    if "%" in stands:
        yield from marks(stands, where.parent)


def _declares(type: str, component: str, scope: Scope) -> str:
    """The type that has it by itself, and not from the one that it extends."""
    parents, seen = program_of(scope).parents, set[str]()
    while type in parents and type not in seen:
        seen.add(type)
        where, parent = parents[type]
        if component not in (where.type_of(parent) or {}):
            break
        type = parent
    return type


def paths(text: str) -> Iterator[str]:
    """Designators with components, `a(i)%b%c(1)`."""
    plain = compressed(re.sub(r"'[^']*'|\"[^\"]*\"", "0", text))
    for found in re.finditer(r"(?<![\w%])[a-z]\w*(?=[(%])", plain, re.I):
        at, deep = found.end(), False
        while (more := re.compile(r"%\w+|\(").match(plain, at)) is not None:
            at, deep = (closing(plain, more.end() - 1) + 1, deep) if more[0] == "(" else (more.end(), True)
        if deep:
            yield plain[found.start() : at]


def components_in(text: str, scope: Scope) -> set[str]:
    """The components that an expression has, as `marks` names them; none of a type that is not known."""
    found = {mark for path in paths(text) for mark, _ in marks(path, scope)} if "%" in text else set[str]()
    found |= {mark for name in names_in(text) for mark, _ in _associated(name, scope)}
    return {mark for mark in found if re.match("%[^%]", mark)}


def scratch_in(items: Sequence[Item], scope: Scope, given: Sequence[Assignment], numbers: set[str],
               threads: frozenset[str], known: set[str]) -> frozenset[str]:  # fmt: skip
    """Arrays with a place for each thread, or whose extent depends on how many there are."""
    found = set(known)
    for each in given:
        mark = each.root
        for mark, inside in marks(each.what.text, each.scope):
            if any(is_number(part, numbers | THREADS, each.scope) for part in split_outside(inside, ",")):
                found.add(mark)
        if mark.startswith("%") and is_number(right_of(each), numbers | COUNTS, each.scope):
            found.add(mark)
    extents = [(name, symbol.shape) for name, symbol in scope.names.items() if symbol.rank]
    for stmt, _ in statements(items):
        action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
        if type(action).__name__ == "Allocate_Stmt":
            text = str(action)
            for part in split_outside(text[text.index("(") + 1 : text.rindex(")")], ","):
                extents += [] if re.match(r"\s*\w+\s*=", part) else list(marks(part, scope))[-1:]
    before = -1
    while len(found) != before:
        before = len(found)
        found |= {mark for mark, shape in extents if set(names_in(shape)) & (threads | THREADS | found)}
    return frozenset(found)


def is_scratch(text: str, scratch: frozenset[str], scope: Scope) -> bool:
    return bool(scratch) and any(mark in scratch for mark, _ in marks(text, scope))


def exits(loop: Block) -> list[str]:
    """The conditions under which a loop is left before its end, if it shares no work."""
    if any(given.directive.construct not in INSIDE for given in constructs([loop])):
        return []
    return _exits(loop.body)


def _exits(items: Sequence[Item]) -> list[str]:
    found = list[str]()
    for item in items:
        if isinstance(item, Stmt) and item.kind == "If_Stmt" and re.search(r"\bexit\b\s*\w*$", item.at.text, re.I):
            found.append(item.at.text)
        elif isinstance(item, Block) and not item.is_do:
            for head, body in item.parts:
                bare = any(isinstance(each, Stmt) and each.kind == "Exit_Stmt" for each in body)
                found += [head.at.text] if bare else _exits(body)
    return found


def names_scratch(text: str, scratch: frozenset[str]) -> bool:
    """Whether a condition or a bound has such an array in it."""
    parts = {found.lower() for found in re.findall(r"%\s*(\w+)", text)} if scratch else set()
    return bool(set(names_in(text)) & scratch) or any(mark.rpartition("%")[2] in parts for mark in scratch)
