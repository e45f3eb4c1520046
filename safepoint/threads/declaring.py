"""The declarations of a unit: what its names are, and its procedures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from safepoint.threads.bindings import bind, generic_of, program_of, relate
from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.structure import Stmt, Unit
from safepoint.threads.symbols import INTRINSIC, Procedure, Scope, Symbol

ATTRIBUTES = {"Allocatable_Stmt": "allocatable", "Pointer_Stmt": "pointer", "Target_Stmt": "target",
              "Save_Stmt": "save", "Optional_Stmt": "optional", "External_Stmt": "external",
              "Volatile_Stmt": "volatile", "Value_Stmt": "value"}  # fmt: skip


def scope_of(unit: Unit, parent: Scope | None, modules: dict[str, Scope]) -> Scope:
    """The names that a unit declares, with its procedures: one scope for each unit."""
    if isinstance(unit.scope, Scope):
        return unit.scope
    scope = unit.scope = Scope(
        unit.name, parent, modules, implicit=dict(parent.implicit) if parent and parent.implicit else {}
    )
    if parent and parent.implicit is None:
        scope.implicit = None
    home = unit.name if unit.kind == "module" else ""
    Declaring(scope, home).all(unit.declarations)
    for given in unit.directives:
        if given.construct == "threadprivate":
            scope.threadprivate |= {name.strip(" ()").lower() for name in given.text.split("(", 1)[-1].split(",")}
    if unit.kind in ("subroutine", "function") and unit.open:
        declare_procedure(scope, unit.open)
    for inner in unit.inside:
        if inner.open:
            scope.procedures[inner.name] = found = procedure_of(inner.open.at.text, scope_of(inner, scope, modules))
            found.unit = inner
    return scope


def declare_procedure(scope: Scope, opener: Stmt) -> None:
    """The dummy arguments and the result, which have a type by their letter if nothing declares them."""
    found = procedure_of(opener.at.text, scope)
    result = re.search(r"\bresult\s*\(\s*(\w+)", opener.at.text, re.I)
    names = list(found.arguments)
    if re.search(r"\bfunction\b", opener.at.text, re.I):
        name = result[1].lower() if result else found.name
        names.append(name)
        prefix = re.split(r"\bfunction\b", opener.at.text, flags=re.I)[0]
        if (kind := _type_name(prefix)) and name not in scope.names:
            scope.names[name] = Symbol(name, kind)
    scope.dummies |= set(found.arguments)
    for name in names:
        if name not in scope.names and scope.implicit is not None and name not in scope.procedures:
            letter = scope.implicit.get(name[0]) or ("integer" if name[0] in "ijklmn" else "real")
            scope.names[name] = Symbol(name, letter)
        if name in scope.names:
            symbol = scope.names[name]
            scope.names[name] = replace(symbol, attributes=symbol.attributes | {"dummy"})


def procedure_of(text: str, scope: Scope) -> Procedure:
    found = re.search(r"\b(?:subroutine|function|procedure)\s+(\w+)\s*(?:\(([^)]*)\))?", text, re.I)
    if not found:
        return Procedure("")
    arguments = [name.strip().lower() for name in (found[2] or "").split(",") if name.strip()]
    intents = {}
    for name in arguments:
        symbol = scope.names.get(name)
        given = symbol.attributes & {"in", "out", "inout"} if symbol else frozenset()
        intents[name] = next(iter(given), "in" if symbol and symbol.has("value") else "")
    prefix = text[: found.start()].lower()
    return Procedure(found[1].lower(), arguments, intents, _is_pure(prefix))


def _is_pure(prefix: str) -> bool:
    return bool(re.search(r"\b(pure|elemental)\b", prefix)) and "impure" not in prefix


def _type_name(text: str) -> str:
    """Of a type specification; empty if there is none."""
    low = re.sub(r"\s+", " ", text.lower()).strip()
    if found := re.search(r"\b(?:type|class) ?\( ?(\w+)", low):
        return found[1] if found[1] in INTRINSIC else f"type {found[1]}"
    if re.search(r"\bomp_(nest_)?lock_kind\b", low):
        return "type omp_lock"
    if re.search(r"\bdouble ?precision\b", low):
        return "real"
    if re.search(r"\bdouble ?complex\b", low):
        return "complex"
    found = re.search(r"\b(integer|real|complex|logical|character|byte)\b", low)
    return ("integer" if found[1] == "byte" else found[1]) if found else ""


def _kind_name(text: str) -> str:
    """The kind of a real in a type specification, as it is written; empty if it is the default one, or of no real."""
    low = re.sub(r"\s+", "", text.lower())
    if low.startswith("doubleprecision"):
        return "8"
    found = re.match(r"real(?:\*(\d+)|\((?:kind=)?(\w+)\))", low)
    return (found[1] or found[2]) if found else ""


def _entity(text: str) -> tuple[str, str, str]:
    """Name, shape and initial value of `a(n, 2) = 0`."""
    found = re.match(r"\s*(\w+)\s*", text)
    if not found:
        return "", "", ""
    rest, shape = text[found.end() :], ""
    if rest.startswith("("):
        close = closing(rest, 0)
        shape, rest = rest[1:close], rest[close + 1 :]
    value = rest.split("=", 1)[1] if "=" in rest else ("" if "/" not in rest else rest)
    return found[1].lower(), shape.strip(), value


def _rank(shape: str) -> int:
    return -1 if shape.strip() == ".." else len(split_outside(shape, ",")) if shape else 0


class Declaring:
    """Takes the declarations of a unit, one after the other."""

    def __init__(self, scope: Scope, home: str) -> None:
        self.scope, self.home = scope, home

    def all(self, stmts: Iterable[Stmt]) -> None:
        given = list(stmts)
        at = 0
        while at < len(given):
            kind = given[at].kind
            if kind == "Derived_Type_Stmt":
                at = self.derived(given, at)
            elif kind == "Interface_Stmt":
                at = self.interface(given, at)
            else:
                self.one(given[at])
            at += 1

    def derived(self, given: list[Stmt], at: int) -> int:
        text = given[at].at.text
        name = re.match(r"type\b(?:.*::)?\s*(\w+)", text, re.I)
        extends = re.search(r"extends\s*\(\s*(\w+)", text, re.I)
        inner = Scope("", self.scope, self.scope.modules)
        parts, at = list[Stmt](), at + 1
        known = name[1].lower() if name else ""
        while at < len(given) and given[at].kind != "End_Type_Stmt":
            parts.append(given[at])
            at += 1
        Declaring(inner, "").all(part for part in parts if "Component" in part.kind)
        bind(self.scope, known, parts)
        types = [symbol.type for symbol in inner.names.values()]
        relate(self.scope, known, extends[1].lower() if extends else "", types)
        components = {found: symbol for found, symbol in inner.names.items() if symbol.type != "procedure"}
        components = {found: self.hidden(symbol, parts) for found, symbol in components.items()}
        if extends:
            components = {**(self.scope.type_of(extends[1]) or {}), **components}
        if name:
            self.scope.types[known] = components
        return at

    def hidden(self, symbol: Symbol, parts: Iterable[Stmt]) -> Symbol:
        """A component that only the module names, with the attribute `private:MODULE`."""
        every = any(part.kind == "Private_Components_Stmt" for part in parts)
        private = symbol.has("private") or (every and not symbol.has("public"))
        return replace(symbol, attributes=symbol.attributes | {f"private:{self.scope.unit}"}) if private else symbol

    def interface(self, given: list[Stmt], at: int) -> int:
        generic = generic_of(given[at].at.text)
        members, at, body = list[str](), at + 1, list[Stmt]()
        while at < len(given) and given[at].kind != "End_Interface_Stmt":
            stmt = given[at]
            body.append(stmt)
            if stmt.kind in ("Subroutine_Stmt", "Function_Stmt"):
                body = [stmt]
            elif stmt.kind in ("End_Subroutine_Stmt", "End_Function_Stmt"):
                inner = Scope("", None, self.scope.modules)
                Declaring(inner, "").all(body[1:-1])
                found = procedure_of(body[0].at.text, inner)
                self.scope.procedures[found.name] = found
                members.append(found.name)
            elif stmt.kind in ("Procedure_Stmt", "Module_Procedure_Stmt"):
                text = re.sub(r"(?i)^\s*(module\s+)?procedure\s*(::)?", "", stmt.at.text)
                members += [part.strip().lower() for part in text.split(",")]
            at += 1
        if "(" in generic:
            program_of(self.scope).bound.setdefault(generic, []).extend((self.scope, name) for name in members)
        elif generic:
            self.scope.generics.setdefault(generic, []).extend(members)
        return at

    def one(self, stmt: Stmt) -> None:
        kind, text = stmt.kind, stmt.at.text
        if kind in ("Type_Declaration_Stmt", "Data_Component_Def_Stmt"):
            self.declaration(stmt)
        elif kind == "Use_Stmt":
            self.use(text)
        elif kind == "Implicit_Stmt":
            self.implicit(text)
        elif kind == "Access_Stmt":
            way, _, names = re.sub(r"(?i)^(private|public)\s*(?:::)?", r"\1 ", text).partition(" ")
            self.access(way.lower(), split_outside(names, ","))
        elif kind == "Common_Stmt":
            self.common(text)
        elif kind == "Parameter_Stmt":
            inside = text[text.index("(") + 1 : text.rindex(")")]
            self.mark([part.split("=")[0] for part in split_outside(inside, ",")], "parameter")
        elif kind == "Dimension_Stmt" or kind in ATTRIBUTES:
            rest = re.sub(r"(?i)^\s*[a-z]+\s*(::)?", "", text)
            self.scope.saved |= kind == "Save_Stmt" and not rest.strip()
            self.mark([part for part in split_outside(rest, ",") if part.strip()], ATTRIBUTES.get(kind, ""))
        elif kind == "Data_Stmt":
            rest = re.sub(r"(?i)^\s*data", "", text)
            names = re.sub(r"/[^/]*/", ",", rest)
            self.mark(
                [re.split(r"\(", part)[0] for part in split_outside(names, ",") if re.match(r"\s*\w", part)], "save"
            )
        elif kind == "Intent_Stmt":
            found = re.match(r"intent\s*\(([^)]*)\)\s*(?:::)?(.*)", text, re.I)
            if found:
                self.mark(found[2].split(","), re.sub(r"\s", "", found[1]).lower())
        elif kind in ("Procedure_Declaration_Stmt", "Proc_Component_Def_Stmt"):
            for part in split_outside(text.split("::", 1)[-1], ","):
                marks = frozenset(re.findall(r"\bpointer\b", text.split("::", 1)[0].lower()))
                self.put(Symbol(_entity(part)[0], "procedure", attributes=marks))

    def declaration(self, stmt: Stmt) -> None:
        spec, attributes, entities = stmt.node.children
        kind, line = _type_name(str(spec)), stmt.first
        given = [part.strip().lower() for part in split_outside(str(attributes or ""), ",") if part.strip()]
        shape = next((part[part.index("(") + 1 : -1] for part in given if part.startswith("dimension")), "")
        names = {re.sub(r"\s", "", part.split("(", 1)[1][:-1]) if part.startswith("intent") else part.split("(")[0]
                 for part in given} | ({"class"} if re.match(r"class\b", str(spec), re.I) else set())  # fmt: skip
        for part in split_outside(str(entities), ","):
            name, own, value = _entity(part)
            marks = frozenset(names | ({"initial"} if value and "parameter" not in names else set()))
            old = self.scope.names.get(name)
            marks |= old.attributes if old else frozenset()
            own = own or shape or (old.shape if old else "")
            home = old.home if old and old.home else self.home
            if ways := names & {"private", "public"}:
                self.scope.access[name] = ways.pop()
            self.put(Symbol(name, "procedure" if "external" in names else kind, _rank(own), marks, own, home, line,
                            _kind_name(str(spec))))  # fmt: skip

    def access(self, way: str, names: Iterable[str]) -> None:
        """PRIVATE or PUBLIC; without names that of all the others."""
        given = [name.strip().lower() for name in names]
        self.scope.access |= dict.fromkeys(given, way)

    def put(self, symbol: Symbol) -> None:
        if symbol.name:
            self.scope.names[symbol.name] = symbol

    def mark(self, parts: Iterable[str], attribute: str, home: str = "") -> None:
        """Attributes of names that are declared before, after, or by their letter."""
        for part in parts:
            name, shape, _ = _entity(part.strip(" /"))
            if not name:
                continue
            old = self.scope.names.get(name)
            if old is None:
                letter = (self.scope.implicit or {}).get(name[0]) or ("integer" if name[0] in "ijklmn" else "real")
                old = Symbol(name, letter if self.scope.implicit is not None else "", home=self.home)
            kind = "procedure" if attribute == "external" else old.type
            marks = old.attributes | ({attribute} if attribute else frozenset())
            shape = shape or old.shape
            self.put(replace(old, type=kind, attributes=marks, shape=shape, rank=_rank(shape), home=home or old.home))

    def use(self, text: str) -> None:
        found = re.match(r"use\s*(?:,\s*(?:non_)?intrinsic\s*)?(?:::)?\s*(\w+)\s*(?:,(.*))?$", text, re.I)
        if not found:
            return
        rest = (found[2] or "").strip().lower()
        only = re.match(r"only\s*:(.*)", rest)
        pairs = [re.split(r"\s*=>\s*", part.strip()) for part in split_outside(only[1] if only else rest, ",")]
        renames = {pair[0]: pair[-1] for pair in pairs if len(pair) == 2}
        self.scope.uses.append((found[1].lower(), {pair[0] for pair in pairs} if only else None, renames))

    def implicit(self, text: str) -> None:
        if re.match(r"implicit\s+none", text, re.I):
            self.scope.implicit = None
            return
        for part in split_outside(re.sub(r"(?i)^implicit", "", text), ","):
            found = re.match(r"(.*)\(([\w\s,-]+)\)\s*$", part.strip())
            for piece in found[2].lower().split(",") if found else ():
                ends = [end.strip() for end in piece.split("-")]
                for code in range(ord(ends[0]), ord(ends[-1]) + 1):
                    if self.scope.implicit is not None and found:
                        self.scope.implicit[chr(code)] = _type_name(found[1])

    def common(self, text: str) -> None:
        block = ""
        rest = re.sub(r"(?i)^common", "", text).strip()
        for piece in re.split(r"(/\s*\w*\s*/)", rest):
            if piece.startswith("/"):
                block = piece.strip("/ ").lower()
                continue
            self.mark([part for part in split_outside(piece, ",") if part.strip()], "common", f"/{block}/")
