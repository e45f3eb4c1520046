"""Which procedures a statement may call: by name, by a generic name, a binding, an operator, an assignment, a pointer,
an argument, or as a finalizer.

(1) None that is called is left out: of a pointer, an argument, a binding or an operator all that fit are taken, as it
    costs a digest more and no mistake.
(2) What nobody knows comes as `Unknown`. Procedures of the language and of libraries that assign arguments alone do
    not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Union

from safepoint.threads.bindings import BOUND, program_of
from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.referred import STRINGS, Reference, operands, plain, references
from safepoint.threads.structure import Around, Construct, Item, Stmt
from safepoint.threads.symbols import Procedure, Scope, Symbol
from safepoint.threads.written import NAME, OUTPUTS, inner_scope, is_action, names_in, target

LIBRARY = re.compile(r"""(omp|p?mpi|ieee|mpix|sp)_\w+ | c_(loc|funloc|f_pointer|f_procpointer|associated|sizeof)
    | [sdcz](dot[cu]?|axpy|copy|swap|scal|nrm2|asum|rot[gm]?)
    | [sdcz](ge|gb|sy|sb|sp|he|hb|hp|tr|tb|tp)(m[mv]|s[mv]|r[cu2k]?|r2k)
    | i[sdcz]amax | [sdcz](ge|gb|gt|po|pb|pp|pt|sy|he)(svx?|tr[fsi]|evd?|evr|evx|sdd|svd|qrf|ls[dsy]?|con)
    | u?sleep | nanosleep | sched_yield | getpid | getenv | get_?arg | iargc | fflush | isnan | etime | dtime | secnds
    | second | dsecnd | idate | itime | fdate | ctime | time8? | mclock8? | irand | rand | srand | ran | abort | system
    | exit | signal | hostnm | getcwd | getlog | loc | cdabs | cdexp | cdsqrt | dreal | dimag | dfloat | dcmplx | lnblnk
    | sizeof | [dq]?(sin|cos|tan|a?sin|acos|atan2?)d? | int[248] | zabs | zexp | zsqrt""", re.X)  # fmt: skip
OPERATORS = re.compile(r"\*\*|//|==|/=|<=|>=|[-+*/<>]|\.[a-z]+\.", re.I)
DOTTED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "/="}
GIVING = ("Procedure_Declaration_Stmt", "Proc_Component_Def_Stmt", "Type_Declaration_Stmt")


class Unknown(NamedTuple):
    """A procedure that nobody knows, and why that is so."""

    name: str
    why: str


Callee = Union[Procedure, Unknown]  # noqa: UP007
SOURCE, TARGET = "its source is not known", "what it stands for is not known"


def stated(items: Sequence[Item], scope: Scope, around: Around = ()) -> Iterator[tuple[Stmt, Scope, Around]]:
    """All statements, with the scope and the constructs around them."""
    for item in items:
        if isinstance(item, Stmt):
            yield item, scope, around
        elif isinstance(item, Construct):
            yield from stated(item.body, scope, (*around, item))
        else:
            inner = inner_scope(item, scope)
            for head, body in item.parts:
                yield head, inner, around
                yield from stated(body, inner, around)


def followed(firsts: Iterable[Callee]) -> Iterator[Callee]:
    """These, and all that they call."""
    seen, waiting = set[object](), list(firsts)
    while waiting:
        callee = waiting.pop(0)
        key = callee if isinstance(callee, Unknown) else id(callee)
        if key in seen:
            continue
        seen.add(key)
        yield callee
        if isinstance(callee, Procedure):
            waiting += _direct(callee)


def _direct(given: Procedure) -> list[Any]:
    """What a procedure calls itself; the finalizers of its variables are among these."""
    if given.direct is None:
        given.direct, unit = [], given.unit
        if unit is None:
            return []
        own = [(stmt, scope) for stmt, scope, _ in stated(unit.body, unit.scope)]
        found = [callee for stmt, scope in own for callee in callees(stmt, scope)]
        found += _finalizers(unit.scope.names.values(), unit.scope)
        given.direct = list({id(each) if isinstance(each, Procedure) else each: each for each in found}.values())
    return given.direct


def callees(stmt: Stmt, scope: Scope) -> Iterator[Callee]:
    """What one statement may call."""
    program, text = program_of(scope), plain(stmt.node)
    if program.finals:
        names = [scope.declared(name, set()) for name in dict.fromkeys(names_in(text))]
        yield from _finalizers([symbol for symbol in names if symbol], scope)
    if not is_action(stmt) or stmt.kind in ("Format_Stmt", "Entry_Stmt"):
        return
    for given in references(stmt.node):
        yield from candidates(given, scope)
    yield from _defined(stmt, operands(stmt.node), scope)


def candidates(given: Reference, scope: Scope) -> Iterator[Callee]:
    """What one reference may call; nothing for an array."""
    way = _of_component if given.object else _by_name
    return way(given.name, given.text, given.at, scope, given.call)


def _by_name(name: str, text: str, at: int, scope: Scope, call: bool) -> Iterator[Callee]:
    """`text` has the arguments from `at` on."""
    symbol = scope.declared(name, set())
    if symbol and not call and _is_array(symbol):
        return
    given = _count(text, at)
    if _is_dummy(name, scope) or (symbol and symbol.type == "procedure" and symbol.has("pointer")):
        yield from _taken(name, given, call, scope)
        return
    if found := named(name, scope):
        yield from found
        return
    if _is_formula(name, scope):
        return
    if name in OUTPUTS or name in _intrinsic() or LIBRARY.fullmatch(name):
        return
    if call or (scope.type_of(name) is None and not (symbol and symbol.has("intrinsic"))):
        perhaps = not call and symbol is None and scope.unknown_modules()
        yield Unknown(f"{name}, if it is a procedure," if perhaps else name, SOURCE)


def _is_formula(name: str, scope: Scope) -> bool:
    """A statement function, or a macro."""
    where: Scope | None = scope
    while where is not None:
        if name in where.formulas:
            return True
        where = where.parent
    return name in program_of(scope).macros


def _is_array(symbol: Symbol) -> bool:
    """Or a string, or a name of ASSOCIATE."""
    stands = any(each.startswith("root:") for each in symbol.attributes)
    return symbol.type != "procedure" and bool(symbol.rank or symbol.type in ("character", "") or stands)


def _of_component(name: str, text: str, at: int, scope: Scope, call: bool) -> Iterator[Callee]:
    """A binding, or a component that is a pointer; else it is an array."""
    program = program_of(scope)
    if name in program.bound:
        yield from _bound(name, scope)
    if name in program.pointers:
        yield from _taken(name, _count(text, at), call, scope)
    elif call and name not in program.bound:
        yield Unknown(name, SOURCE)


def _bound(key: str, scope: Scope, depth: int = 0) -> Iterator[Callee]:
    """All that have this binding or operator, in any type."""
    for where, name in program_of(scope).bound.get(key, ()):
        if name.startswith(BOUND):
            if depth < 2:
                yield from _bound(name[1:], scope, depth + 1)
        else:
            yield from named(name, where) or [Unknown(name, SOURCE)]


def of_binding(name: str, scope: Scope) -> list[Procedure]:
    """The procedures that are known of a binding."""
    return [callee for callee in _bound(name, scope) if isinstance(callee, Procedure)]


def named(name: str, scope: Scope, seen: frozenset[str] = frozenset()) -> list[Callee]:
    """The procedures of a name, all of a generic one. A procedure that cannot assign what is not its own is none that
    is unknown."""
    found = list[Callee]()
    for specific in scope.generics.get(name, ()):
        if specific != name:
            found += named(specific, scope, seen) or [Unknown(specific, SOURCE)]
    if name in scope.procedures:
        found.append(_with_body(scope.procedures[name], scope))
    if not found or name in scope.generics:
        for inner, there in scope.used(name, set(seen)):
            found += named(there, inner, seen | {inner.unit}) if inner is not scope else []
    if not found and scope.parent:
        return named(name, scope.parent, seen)
    body = program_of(scope).bodies.get(name) if not found and not seen else None
    return [body] if body else found


def _with_body(given: Procedure, scope: Scope) -> Callee:
    if given.unit is not None or given.pure:
        return given
    return program_of(scope).bodies.get(given.name) or Unknown(given.name, SOURCE)


def _taken(name: str, arguments: int, call: bool, scope: Scope) -> Iterator[Callee]:
    """Of a pointer or a dummy procedure: all that are a target or an argument anywhere, and fit."""
    found = False
    for where, taken in program_of(scope).taken.values():
        for callee in named(taken, where) or [Unknown(taken, SOURCE)]:
            if isinstance(callee, Unknown) or _fits(callee, arguments, call):
                found = True
                yield callee
    if not found:
        yield Unknown(name, TARGET)


def _fits(given: Procedure, arguments: int, call: bool) -> bool:
    """With one argument more for the object of a component."""
    if given.unit is None:
        return False
    if call == (given.unit.kind == "function"):
        return False
    optional = any(symbol.has("optional") for symbol in given.unit.scope.names.values())
    return arguments <= len(given.arguments) and (optional or len(given.arguments) <= arguments + 1)


def _count(text: str, at: int) -> int:
    if not text.startswith("(", at):
        return 0
    inside = text[at + 1 : closing(text, at)]
    return len(split_outside(inside, ",")) if inside.strip() else 0


def _is_dummy(name: str, scope: Scope) -> bool:
    where: Scope | None = scope
    while where is not None:
        if name in where.dummies:
            return True
        if name in where.names or name in where.procedures:
            return False
        where = where.parent
    return False


def _defined(stmt: Stmt, text: str, scope: Scope) -> Iterator[Callee]:
    """By operators, an assignment, or the input and output of a derived type, where such are defined."""
    bound = program_of(scope).bound
    keys = [key for key in bound if "(" in key]
    if not keys:
        return
    used = {_operator(found) for found in OPERATORS.findall(text)}
    kinds = [symbol.type if symbol else "" for name in names_in(text) for symbol in [scope.find(name)]]
    derived = any(not kind or kind.startswith("type ") for kind in kinds)
    action = stmt.node.children[1] if stmt.kind == "If_Stmt" else stmt.node
    way = type(action).__name__
    for key in keys:
        word, inside = key[:-1].split("(", 1)
        if word == "operator" and _operator(inside) in used:
            yield from (callee for callee in _bound(key, scope) if derived or not _of_derived(callee))
        elif word == "assignment" and way == "Assignment_Stmt":
            yield from (callee for callee in _bound(key, scope) if _assigns(callee, str(action.children[0]), scope))
        elif derived and (word, way) in (("write", "Write_Stmt"), ("write", "Print_Stmt"), ("read", "Read_Stmt")):
            yield from _bound(key, scope)


def _operator(text: str) -> str:
    return DOTTED.get(text.lower().strip("."), text.lower())


def _dummies(callee: Callee) -> list[Symbol | None]:
    if isinstance(callee, Unknown) or callee.unit is None:
        return []
    return [callee.unit.scope.declared(name, set()) for name in callee.arguments]


def _of_derived(callee: Callee) -> bool:
    return any(symbol and symbol.type.startswith("type ") for symbol in _dummies(callee))


def _assigns(callee: Callee, text: str, scope: Scope) -> bool:
    """Whether the left side may be what a defined assignment takes."""
    known, first = target(text, scope), next(iter(_dummies(callee)), None)
    if known.why or not first or not first.type:
        return True
    return known.type == first.type or (known.type.startswith("type ") and first.type.startswith("type "))


def _finalizers(symbols: Iterable[Symbol], scope: Scope) -> Iterator[Callee]:
    """Of the types of these variables: of what they extend, what extends them, and what is in them."""
    program = program_of(scope)
    waiting = [symbol.type[5:] for symbol in symbols if symbol.type.startswith("type ")] if program.finals else []
    seen = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += program.related.get(name, ())
            for where, final in program.finals.get(name, ()):
                yield from named(final, where) or [Unknown(final, SOURCE)]


def take(stmt: Stmt, scope: Scope) -> None:
    """Note the procedures that a statement gives away: as an argument, or as the target of a pointer."""
    declares = stmt.kind in GIVING
    text = STRINGS.sub("0", stmt.at.text) if declares else plain(stmt.node)
    begin = re.search(r"=>|=\s*\w+\s*\(" if declares else r"\(|=>", text)
    for found in NAME.finditer(text, begin.start() if begin else len(text)):
        after = text[found.end() :].lstrip()
        if after.startswith(("(", "%")) or re.match(r"=(?!=)", after) or text[: found.start()].rstrip().endswith("%"):
            continue
        name = found[1].lower()
        symbol = scope.declared(name, set())
        if _is_dummy(name, scope) or (symbol and (symbol.type != "procedure" or symbol.has("pointer"))):
            continue
        if symbol or named(name, scope):
            program_of(scope).taken.setdefault(name, (scope, name))


@cache
def _intrinsic() -> frozenset[str]:
    from fparser.two.Fortran2003 import Intrinsic_Name

    more = {"ishftc", "dim", "findloc", "norm2", "erf", "erfc", "gamma", "popcnt", "poppar", "shiftl", "shiftr",
            "leadz", "trailz", "hypot", "merge_bits", "storage_size", "bessel_j0", "bessel_j1", "this_image",
            "num_images", "is_contiguous", "image_index", "log_gamma", "asinh", "acosh", "atanh", "iall", "iany",
            "parity", "dshiftl", "dshiftr", "maskl", "maskr", "bge", "bgt", "ble", "blt", "co_sum", "co_max", "co_min",
            "co_broadcast", "co_reduce", "atomic_add", "atomic_define", "atomic_ref",
            "dcmplx", "dconjg", "dimag", "dreal", "dfloat", "qfloat", "cdabs", "cdexp", "cdlog", "cdsqrt", "cdsin",
            "cdcos", "zabs", "zexp", "zlog", "zsqrt", "zsin", "zcos", "isnan", "imag", "realpart", "imagpart", "lshift",
            "rshift", "and", "or", "xor", "iargc", "lnblnk", "loc", "sizeof", "rand", "irand", "cosd", "sind",
            "tand"}  # of compilers  # fmt: skip
    return frozenset(name.lower() for name in Intrinsic_Name.function_names) | more
