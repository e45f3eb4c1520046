"""How a variable is digested: as it stands, by the elements of an array around it, or by its components.

Fortran has no `a%v` where both are arrays, and none where `v` is allocatable: then a loop runs over the elements of
`a`, or, if `v` has a fixed shape, over the indices of `v`, for all elements of `a` at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from safepoint.threads.bindings import program_of
from safepoint.threads.symbols import Scope, Symbol

DEEPEST = 4  # components in components
INDICES = "{0}", "{1}"  # places for the names of loop variables


@dataclass(frozen=True)
class Piece:
    """`argument`: of the call, within the lines `before` and `after`; `why`: there is none. `name`: for the site.
    INDICES stand for variables. `base` is an array around `rest`, if there is one."""

    name: str
    base: str
    rest: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    rank: int = 0  # of the array around it
    why: str = ""

    @property
    def text(self) -> str:
        return self.base + self.rest

    @property
    def argument(self) -> str:
        """A component of all elements is copied first: gfortran 12 gives a wrong address for it."""
        return f"({self.text})" if self.rank else self.text

    def within(self, first: str, last: str) -> Piece:
        return replace(self, before=(*self.before, first), after=(last, *self.after))

    @property
    def loops(self) -> int:
        return sum(line.startswith("do ") for line in self.before)

    def looped(self) -> Piece:
        """For each element of the array around it."""
        if self.rank != 1 or self.loops == len(INDICES):
            return replace(self, why="an array in an array of several dimensions")
        index = INDICES[self.loops]
        found = self.within(f"do {index} = lbound({self.base}, 1), ubound({self.base}, 1)", "end do")
        return replace(found, base=f"{self.base}({index}){self.rest}", rest="", rank=0)


def pieces_of(path: str, scope: Scope) -> Iterator[Piece]:
    """Of a variable or component, without subscripts, as `chunk%tiles%density`."""
    names = path.split("%")
    symbol = scope.find(names[0])
    if symbol is None or not symbol.type:
        yield Piece(path, path, why=f"the type of {names[0]} is not known")
        return
    piece = Piece(names[0], names[0])
    if symbol.has("optional"):
        piece = piece.within(f"if (present({names[0]})) then", "end if")
    yield from _follow(piece, symbol, names[1:], scope, 0)


def _follow(piece: Piece, symbol: Symbol, names: list[str], scope: Scope, depth: int) -> Iterator[Piece]:
    if symbol.has("allocatable", "pointer"):
        if piece.rank:
            piece = piece.looped()
        guard = "allocated" if symbol.has("allocatable") else "associated"
        piece = piece.within(f"if ({guard}({piece.text})) then", "end if")
    if piece.why or symbol.type in ("", "procedure") or (symbol.assumed_size and not names):
        why = piece.why or (
            f"the size of {symbol.name}(*) is not known" if symbol.assumed_size else "no type of a value"
        )
        yield replace(piece, why=why)
        return
    if not symbol.type.startswith("type "):
        yield _last(piece, symbol)
        return
    components = scope.type_of(symbol.type[5:])
    if components is None or depth > DEEPEST or symbol.rank < 0:
        yield replace(piece, why=f"derived type {symbol.type[5:]}")
        return
    if symbol.rank:
        piece = piece.looped() if piece.rank else piece
        piece = replace(piece, base=piece.text, rest="", rank=symbol.rank)
    parents = program_of(scope).parents.items() if symbol.has("class") else ()
    more = sorted(name for name, (_, parent) in parents if parent == symbol.type[5:])
    if more and (not names or names[0] not in components):
        yield replace(piece, name=f"{piece.name} as {more[0]}", why="it is polymorphic")
    for name, component in components.items():
        if names and name != names[0]:
            continue
        if _is_hidden(component, scope):
            why = f"component {name} of type {symbol.type[5:]} is PRIVATE"
            yield replace(piece, name=f"{piece.name}%{name}", why=why)
            continue
        if not names and component.has("pointer"):  # it may lead anywhere, and round
            yield replace(piece, name=f"{piece.name}%{name}", why=f"derived type {symbol.type[5:]}: component {name}")
            continue
        inner = replace(piece, name=f"{piece.name}%{name}", rest=f"{piece.rest}%{name}")
        yield from _follow(inner, component, names[1:], scope, depth + 1)


def _is_hidden(component: Symbol, scope: Scope) -> bool:
    """Whether it has no name here: PRIVATE in another module."""
    homes = {each[8:] for each in component.attributes if each.startswith("private:")}
    where: Scope | None = scope
    while homes and where is not None:
        homes -= {where.unit}
        where = where.parent
    return bool(homes)


def _last(piece: Piece, symbol: Symbol) -> Piece:
    """A value of intrinsic type; a fixed array in the elements of an array goes index by index."""
    if not piece.rank or not symbol.rank:
        return piece
    if symbol.has("allocatable", "pointer"):
        return piece
    indices = INDICES[piece.loops : piece.loops + symbol.rank]
    if len(indices) < symbol.rank:
        return replace(piece, why="an array of several dimensions in an array")
    first = f"{piece.base}({', '.join(f'lbound({piece.base}, {k + 1})' for k in range(piece.rank))}){piece.rest}"
    for number, index in enumerate(indices, 1):
        piece = piece.within(f"do {index} = lbound({first}, {number}), ubound({first}, {number})", "end do")
    return replace(piece, rest=f"{piece.rest}({', '.join(indices)})")
