"""Names of a Fortran unit: type, rank, attributes; derived types; procedures with the intents of their arguments.

A name is looked up in its unit, in the modules it uses as far as they are known, in its host; then the letters of
IMPLICIT decide, unless a module that is not known might have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

OUTER = ""  # the key of the scope that has procedures outside of modules
INTRINSIC = ("integer", "real", "complex", "logical", "character")
INTRINSIC_MODULES = {"omp_lib", "iso_c_binding", "iso_fortran_env", "ieee_arithmetic", "ieee_exceptions",
                     "ieee_features", "sp_trace", "omp_lib_kinds", "openacc", "mpi", "mpi_f08"}  # fmt: skip


@dataclass(frozen=True)
class Symbol:
    """`type`: one of INTRINSIC, `type NAME`, `procedure`, or empty if it is not known. `rank` −1: assumed rank.
    `home`: the module or /COMMON/ that it belongs to. `kind`: as it is written, 8 of DOUBLE PRECISION; of real numbers
    alone."""

    name: str
    type: str = ""
    rank: int = 0
    attributes: frozenset[str] = frozenset()
    shape: str = ""
    home: str = ""
    line: int = -1
    kind: str = ""

    def has(self, *names: str) -> bool:
        return any(name in self.attributes for name in names)

    @property
    def intrinsic(self) -> bool:
        return self.type in INTRINSIC

    @property
    def assumed_size(self) -> bool:
        return self.shape.rstrip().endswith("*")


@dataclass
class Procedure:
    """`regions`: it may open a parallel region itself; `opens`: or by what it calls, once that was asked. `writes`,
    `reads`: names of modules and COMMON that it assigns or reads, with their home. `calls`: by name. `races`: names,
    with their lines, that all threads share and it assigns without protection: saved ones, and scalars of modules and
    COMMON. `gives`: of its arguments, and its own name, what is a "time", or another of `known.KINDS`. `takes`: the
    same of arguments that a caller gives one, with the kind; `passes`: as `gives`, where it is made of these, and then
    only in a call that gives one. `guards`: those that it assigns in critical or atomic alone. `locks`: "set" or
    "free", if it does one of them to locks, and not the other; None: not asked yet. `unit`: its text, None if that is
    not known; `direct`: what it calls, once that was asked. `hosted`: variables of the unit around it that it assigns;
    `kept`: its own that it assigns and that have SAVE. `changed`: of its arguments, the components that it assigns,
    once that was asked."""

    name: str
    arguments: list[str] = field(default_factory=list)
    intents: dict[str, str] = field(default_factory=dict)
    pure: bool = False
    regions: bool = False
    opens: bool | None = None
    writes: list[tuple[str, str]] = field(default_factory=list)
    reads: list[tuple[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    gives: dict[str, str] = field(default_factory=dict)
    takes: set[tuple[str, str]] = field(default_factory=set)
    passes: dict[str, str] = field(default_factory=dict)
    guards: set[str] = field(default_factory=set)
    locks: str | None = None
    hosted: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    unit: Any = field(default=None, repr=False)
    direct: list[Any] | None = field(default=None, repr=False)
    changed: dict[str, set[str]] | None = None


@dataclass(frozen=True)
class Race:
    """`saved`: by SAVE or an initial value; else of a module or COMMON. `constant`: only constants are assigned."""

    name: str
    file: str
    line: int
    saved: bool
    constant: bool


@dataclass
class Program:
    """What is called otherwise than by its name, of all sources and by names alone; procedures with the scope that
    knows them. `bound`: to types, by the name of the binding or an operator. `finals`: of a type. `related`: the types
    that a type extends, that extend it, and that it has as components; `parents`: of these the one that it extends.
    `taken`: what is an argument or the target of a pointer anywhere. `pointers`: components that are procedures.
    `bodies`: procedures outside of modules, and those of submodules. `passes`: by a binding or pointer, how it passes
    its object (`handed.passes`)."""

    bound: dict[str, list[tuple[Scope, str]]] = field(default_factory=dict)
    finals: dict[str, list[tuple[Scope, str]]] = field(default_factory=dict)
    related: dict[str, set[str]] = field(default_factory=dict)
    parents: dict[str, tuple[Scope, str]] = field(default_factory=dict)
    taken: dict[str, tuple[Scope, str]] = field(default_factory=dict)
    pointers: set[str] = field(default_factory=set)
    bodies: dict[str, Procedure] = field(default_factory=dict)
    passes: dict[str, set[str]] = field(default_factory=dict)
    macros: set[str] = field(default_factory=set)


@dataclass
class Scope:
    """`uses`: module, the names it is limited to (None: all), local name → name there. `implicit` None: it is NONE.
    `access`: private or public, by name; of all others by the empty one."""

    unit: str
    parent: Scope | None = None
    modules: dict[str, Scope] = field(default_factory=dict)
    names: dict[str, Symbol] = field(default_factory=dict)
    types: dict[str, dict[str, Symbol]] = field(default_factory=dict)
    procedures: dict[str, Procedure] = field(default_factory=dict)
    generics: dict[str, list[str]] = field(default_factory=dict)
    uses: list[tuple[str, set[str] | None, dict[str, str]]] = field(default_factory=list)
    implicit: dict[str, str] | None = field(default_factory=dict)
    threadprivate: set[str] = field(default_factory=set)
    saved: bool = False
    dummies: set[str] = field(default_factory=set)
    formulas: set[str] = field(default_factory=set)  # statement functions
    access: dict[str, str] = field(default_factory=dict)
    unsure: set[tuple[str, str, str]] = field(default_factory=set)  # of OUTER: kind, name, home
    program: Program = field(default_factory=Program)  # of OUTER

    def find(self, name: str) -> Symbol | None:
        """None: not known, which is not the same as not declared."""
        name = name.lower()
        if found := self.declared(name, set()):
            return found
        if self.implicit is None or self.procedure(name) or self.unknown_modules():
            return None
        letter = self.implicit.get(name[0]) or ("integer" if name[0] in "ijklmn" else "real")
        return Symbol(name, letter)

    def declared(self, name: str, seen: set[str]) -> Symbol | None:
        if name in self.names:
            return self.names[name]
        for scope, there in self.used(name, seen):
            if scope.access.get(there, scope.access.get("")) == "private":
                continue
            if found := scope.declared(there, seen | {scope.unit}):
                return replace(found, name=name)
        return self.parent.declared(name, seen) if self.parent else None

    def type_of(self, name: str) -> dict[str, Symbol] | None:
        """The components of a derived type."""
        return self._type(name.lower(), set())

    def _type(self, name: str, seen: set[str]) -> dict[str, Symbol] | None:
        if name in self.types:
            return self.types[name]
        for scope, there in self.used(name, seen):
            if (found := scope._type(there, seen | {scope.unit})) is not None:
                return found
        return self.parent._type(name, seen) if self.parent else None

    def procedure(self, name: str, seen: frozenset[str] = frozenset()) -> Procedure | None:
        name = name.lower()
        if name in self.procedures:
            return self.procedures[name]
        if len(self.generics.get(name, ())) > 1:
            return None
        if name in self.generics and self.generics[name][0] != name:
            return self.procedure(self.generics[name][0], seen)
        for scope, there in self.used(name, set(seen)):
            if found := scope.procedure(there, seen | {scope.unit}):
                return found
        if self.parent:
            return self.parent.procedure(name, seen)
        outer = self.modules.get(OUTER)
        return outer.procedures.get(name) if outer is not None and outer is not self else None

    def is_threadprivate(self, name: str) -> bool:
        symbol = self.find(name)
        scopes: list[Scope | None] = [self]
        while scopes[-1]:
            scopes.append(scopes[-1].parent)
        scopes += [self.modules.get(symbol.home)] if symbol else []
        known = {found for scope in scopes if scope for found in scope.threadprivate}
        return name in known or bool(symbol and symbol.home in known)

    def home(self, name: str) -> str:
        """Where a variable is that several procedures may have: a module, COMMON, or a unit with procedures in it."""
        symbol, scope = self.declared(name, set()), self
        if symbol is None or symbol.home:
            return symbol.home if symbol and symbol.home != "block" else ""
        while name not in scope.names and scope.parent:
            scope = scope.parent
        return f"in {scope.unit}" if scope is not self or scope.procedures else ""

    def parent_has(self, name: str) -> bool:
        """It is declared by a host, not here."""
        return name not in self.names and bool(self.parent and self.parent.declared(name, set()))

    def unknown_modules(self) -> bool:
        mine = any(module not in self.modules and module not in INTRINSIC_MODULES for module, _, _ in self.uses)
        return mine or bool(self.parent and self.parent.unknown_modules())

    def used(self, name: str, seen: set[str]) -> Iterator[tuple[Scope, str]]:
        """The modules that may give it this name, and its name there."""
        for module, only, renames in self.uses:
            if module in self.modules and module not in seen and (only is None or name in only):
                yield self.modules[module], renames.get(name, name)
