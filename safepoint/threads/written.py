"""What a statement assigns and reads: designators, their types, and why one cannot be recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from safepoint.threads.controls import results
from safepoint.threads.declaring import Declaring
from safepoint.threads.directives import closing
from safepoint.threads.lines import split_outside
from safepoint.threads.structure import Block, Stmt
from safepoint.threads.symbols import Scope, Symbol

NAME = re.compile(r"(?<![\w%'\"])([a-z_]\w*)", re.I)
OPERATOR = re.compile(r"\.(and|or|not|eqv?|neqv?|n?e|[lg][te]|true|false)\.", re.I)
NUMBER = re.compile(r"(?<!\w)(\d+\.?\d*|\.\d+)([de][-+]?\d+)?(?=_|\b|\W|$)", re.I)
SCALAR = re.compile(r"\b(size|[ul]bound|sum|product|count|any|all|minval|maxval|dot_product)\s*\(", re.I)
DESIGNATOR = re.compile(r"[a-z]\w*\s*(\(|%|$)", re.I)
INQUIRY = {"size", "allocated", "associated", "present", "kind", "len", "ubound", "lbound", "shape", "huge", "tiny",
           "epsilon", "precision", "digits", "bit_size", "storage_size", "loc", "c_loc", "sizeof", "is_contiguous",
           "rank", "range", "radix", "maxexponent", "minexponent"}  # fmt: skip
PURE = INQUIRY | {"abs", "mod", "modulo", "int", "nint", "floor", "ceiling", "min", "max", "real", "dble", "sign",
                  "iand", "ior", "ieor", "ishft", "merge", "ichar", "iachar", "idint", "ifix", "min0", "max0", "iabs",
                  "sqrt", "btest", "not", "sum", "count", "minval", "maxval", "minloc", "maxloc", "len_trim",
                  "index", "char", "exp", "log", "sin", "cos", "aint", "anint", "dim"}  # fmt: skip
TIMES = {"omp_get_wtime", "cpu_time", "system_clock", "date_and_time", "mpi_wtime", "etime", "dtime", "second",
         "secnds", "itime", "idate", "time", "ctime", "fdate", "dsecnd"}  # fmt: skip
THREADS = {"omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads", "omp_get_num_procs", "omp_get_team_size",
           "omp_get_ancestor_thread_num", "omp_in_parallel", "omp_get_level", "omp_get_active_level"}  # fmt: skip
OUTPUTS = {"random_number": "out", "random_seed": "", "get_command_argument": "in out out out", "cpu_time": "out",
           "get_environment_variable": "in out out out", "move_alloc": "inout out", "system_clock": "out out out",
           "mvbits": "in in in inout in", "date_and_time": "out out out out", "exit": "in", "flush": "in",
           "execute_command_line": "in in inout inout inout", "get_command": "out out out"}  # fmt: skip


class Target(NamedTuple):
    """Something that has a value. `root`: the variable. `guard`: allocated or associated, if it must be asked. `why`:
    why it cannot be recorded; then the rest may be wrong."""

    text: str
    root: str
    type: str
    rank: int
    guard: str = ""
    why: str = ""
    symbol: Symbol | None = None
    whole: bool = True  # no subscript: the variable itself
    spread: bool = False  # a component of the elements of an array, or elements that a vector names

    @property
    def argument(self) -> str:
        """As an actual argument. gfortran 12 gives a wrong address for a component of an array that is allocated or a
        dummy argument, and takes no vector subscript; an expression is copied first."""
        return f"({self.text})" if self.spread else self.text

    @property
    def intrinsic(self) -> bool:
        return bool(self.type) and not self.type.startswith(("type ", "procedure"))


def compressed(text: str) -> str:
    """As fparser writes it, without the blanks it puts in."""
    return text if "'" in text or '"' in text else re.sub(r"\s*([%:,=()])\s*", r"\1", text)


def target(text: str, scope: Scope) -> Target:
    """Follow a designator through its components."""
    text = compressed(text)
    root, symbol, rank, why, whole, spread = "", None, 0, "", True, False
    components: dict[str, Symbol] | None = None
    for number, part in enumerate(split_outside(text, "%")):
        found = re.match(r"\s*(\w+)\s*", part)
        if not found:
            return Target(text, root, "", 0, why="an expression")
        name, rest = found[1].lower(), part[found.end() :]
        root = root or name
        complex_part = symbol is not None and symbol.type == "complex" and name in ("re", "im")
        known = Symbol(name, "real") if complex_part else (components or {}).get(name)
        symbol = scope.find(name) if number == 0 else known
        if symbol is None or not symbol.type:
            return Target(text, root, "", 0, why=f"the type of {name} is not known", symbol=symbol)
        own, spread = symbol.rank, rank > 0
        if rest.startswith("("):
            inside = rest[1 : closing(rest, 0)]
            whole = False
            if symbol.rank == 0 and symbol.type != "character":
                return Target(text, root, "", 0, why=f"{name} is a function", symbol=symbol)
            own, bad, vector = _subscripts(inside, scope) if symbol.rank else (0, "", False)
            why, spread = why or bad, spread or vector
        rank += own
        components = scope.type_of(symbol.type[5:]) if symbol.type.startswith("type ") else None
    assert symbol is not None
    guard = "allocated" if symbol.has("allocatable") else "associated" if symbol.has("pointer") else ""
    if symbol.assumed_size and rank and not re.search(r"\)$", text):
        why = why or f"the size of {symbol.name}(*) is not known"
    return Target(text, root, symbol.type, rank, guard if not text.endswith(")") else "", why, symbol, whole,
                  spread)  # fmt: skip


def _subscripts(inside: str, scope: Scope) -> tuple[int, str, bool]:
    """The rank that sections and vectors leave; why a subscript cannot be evaluated twice; whether one is a vector."""
    rank, vector = 0, False
    for part in split_outside(inside, ","):
        section = len(split_outside(part, ":")) > 1
        vector = vector or (not section and _has_array(part, scope))
        rank += section or _has_array(part, scope)
    for found in re.finditer(r"(?<![\w%])([a-z]\w*)\s*\(", inside, re.I):
        name = found[1].lower()
        symbol = scope.find(name)
        if not (symbol and symbol.rank) and name not in PURE:
            return rank, f"its subscript calls {name}", vector
    return rank, "", vector


def _has_array(text: str, scope: Scope) -> bool:
    """An array, a section of one or an array constructor is in it, and not only in what makes one number of it."""
    while found := SCALAR.search(text):
        text = text[: found.start()] + "0" + text[closing(text, found.end() - 1) + 1 :]
    if "[" in text or "(/" in text:
        return True
    for name in NAME.finditer(text):
        symbol, rest = scope.find(name[1]), text[name.end() :].lstrip()
        if (
            symbol
            and symbol.rank
            and not (rest.startswith("(") and not _subscripts(rest[1 : closing(rest, 0)], scope)[0])
        ):
            return True
    return False


def pieces(given: Target, scope: Scope, depth: int = 0) -> Iterator[Target]:
    """Of a derived type: its components of intrinsic type, at any depth; what is left out has a `why`."""
    if given.why or given.intrinsic:
        yield given
        return
    components = scope.type_of(given.type[5:]) if given.type.startswith("type ") else None
    if components is None or depth > 3:
        why = f"derived type {given.type[5:]}" if given.type.startswith("type ") else "no type of a value"
        why = "a lock" if given.type == "type omp_lock" else why
        yield given._replace(why=why)
        return
    for name, symbol in components.items():
        text, hidden = f"{given.text}%{name}", symbol.has("pointer", "allocatable")
        guard = "allocated" if symbol.has("allocatable") else "associated" if symbol.has("pointer") else ""
        why = f"derived type {given.type[5:]}: component {name}" if hidden and given.rank else ""
        if symbol.has("pointer") or (symbol.rank and given.rank):
            why = f"derived type {given.type[5:]}: component {name}"
        part = Target(text, given.root, symbol.type, given.rank or symbol.rank, guard, why, symbol,
                      spread=given.rank > 0)  # fmt: skip
        yield from pieces(part, scope, depth + 1)


def inner_scope(block: Block, scope: Scope) -> Scope:
    """The scope inside a BLOCK, ASSOCIATE or SELECT TYPE; the same one for other constructs."""
    kind = block.open.kind
    if kind == "Block_Stmt":
        inner = Scope(scope.unit, scope, scope.modules, implicit=scope.implicit)
        Declaring(inner, "block").all(item for item in block.body if isinstance(item, Stmt) and not is_action(item))
        return inner
    if kind in ("Associate_Stmt", "Select_Type_Stmt"):
        inner = Scope(scope.unit, scope, scope.modules, implicit=scope.implicit)
        text = block.open.at.text
        for part in split_outside(text[text.index("(") + 1 : text.rindex(")")], ","):
            name, _, selector = part.partition("=>")
            name = name.strip().lower()
            found = target(selector.strip() or name, scope) if DESIGNATOR.match(selector.strip() or name) else None
            known = found if found and not found.why and kind == "Associate_Stmt" else None
            stands = {f"root:{found.root}", f"stands:{selector.strip()}"} if found else {"root:"}
            inner.names[name] = Symbol(name, known.type if known else "", known.rank if known else 0, frozenset(stands))
        return inner
    return scope


def is_action(stmt: Stmt) -> bool:
    """Not a declaration."""
    kind = stmt.kind
    declared = ("Type_Declaration_Stmt", "Use_Stmt", "Import_Stmt", "Implicit_Stmt", "Parameter_Stmt", "Common_Stmt",
                "Data_Stmt", "Namelist_Stmt", "Equivalence_Stmt", "Derived_Type_Stmt", "End_Type_Stmt",
                "Interface_Stmt", "Procedure_Declaration_Stmt", "Data_Component_Def_Stmt")  # fmt: skip
    attributes = ("Dimension_Stmt", "Save_Stmt", "External_Stmt", "Intrinsic_Stmt", "Pointer_Stmt", "Allocatable_Stmt",
                  "Target_Stmt", "Optional_Stmt", "Intent_Stmt", "Volatile_Stmt")  # fmt: skip
    return kind not in declared and kind not in attributes


class Assigned(NamedTuple):
    """`intent` is that of an argument; `way`: assignment, call, input, masked (where, forall), pointer, status."""

    text: str
    way: str = "assignment"
    intent: str = ""


def assigned(node: Any, scope: Scope) -> list[Assigned]:
    """Designators that a statement gives values, as far as they can be told."""
    if type(node).__name__ == "If_Stmt":
        return assigned(node.children[1], scope)
    return [*_assigned(node, scope), *(Assigned(text, "status") for text in results(node))]


def _assigned(node: Any, scope: Scope) -> list[Assigned]:
    kind = type(node).__name__
    if kind == "Assignment_Stmt":
        return [Assigned(str(node.children[0]))]
    if kind == "Pointer_Assignment_Stmt":
        return [Assigned(str(node).split("=>")[0].strip(), "pointer")]
    if kind in ("Where_Stmt", "Forall_Stmt"):
        return [Assigned(str(found.children[0]), "masked") for found in _below(node, "Assignment_Stmt")]
    if kind == "Call_Stmt":
        return [Assigned(text, "call", intent) for text, intent in arguments(node, scope) if intent != "in"]
    if kind == "Read_Stmt":
        items = node.children[2]
        return [Assigned(text, "input") for text in _items(str(items) if items is not None else "")]
    if kind == "Write_Stmt":
        control = split_outside(str(node.children[0]), ",")[0]
        unit = re.sub(r"(?i)^\s*unit\s*=", "", control).strip()
        known = target(unit, scope) if DESIGNATOR.match(unit) else None
        return [Assigned(unit, "input")] if known and known.type == "character" else []
    if kind == "Allocate_Stmt" and re.search(r"\b(source|mold)\s*=", str(node), re.I):
        inside = str(node)[str(node).index("(") + 1 : -1]
        named = [part for part in split_outside(inside, ",") if not re.match(r"\s*\w+\s*=", part)]
        return [Assigned(re.split(r"\(", part)[0].strip(), "input") for part in named]
    return []


def _items(text: str) -> Iterator[str]:
    """Of an input list; an implied loop stands for its whole variables."""
    for part in split_outside(text, ","):
        part = part.strip()
        if part.startswith("("):
            inside = split_outside(part[1:-1], ",")
            yield from (found.split("(")[0] for found in inside if DESIGNATOR.match(found.strip()) and "=" not in found)
        elif part:
            yield part


def arguments(node: Any, scope: Scope) -> list[tuple[str, str]]:
    """The actual arguments of a CALL that are designators of variables, with the intent: in, out, inout, or empty."""
    name = str(node.children[0]).lower()
    text = str(node.children[1]) if node.children[1] is not None else ""
    known = scope.procedure(name) if "%" not in name else None
    table = OUTPUTS.get(name, "").split() if known is None and name in OUTPUTS else None
    found = list[tuple[str, str]]()
    for number, part in enumerate(split_outside(text, ",")):
        keyword = re.match(r"\s*(\w+)\s*=(?![=])", part)
        value = part[keyword.end() :].strip() if keyword else part.strip()
        if not is_variable(value, scope):
            continue
        intent = ""
        if known:
            dummy = keyword[1].lower() if keyword else (known.arguments[number : number + 1] or [""])[0]
            intent = known.intents.get(dummy, "")
        elif table is not None:
            intent = table[number] if number < len(table) and not keyword else ""
        elif name.startswith(("omp_set", "omp_init", "omp_destroy", "omp_unset")):
            intent = "in"
        found.append((value, intent))
    return found


def is_variable(text: str, scope: Scope) -> bool:
    """A designator, not an expression, a constant or a procedure."""
    if not DESIGNATOR.match(text) or "//" in text:
        return False
    for part in split_outside(text, "%"):
        found = re.match(r"\s*\w+\s*(\(|$)", part)
        if not found or (found[1] and closing(part, found.end() - 1) < len(part.rstrip()) - 1 and ")(" not in part):
            return False
    name = re.match(r"\w+", text)[0].lower()  # type: ignore[index]
    symbol = scope.find(name)
    if text[len(name) :].lstrip().startswith("(") and not scope.declared(name, set()) and not scope.unknown_modules():
        return False  # only an array that is declared has subscripts
    return not (symbol and (symbol.has("parameter") or symbol.type == "procedure"))


def called(node: Any) -> list[str]:
    """Names of procedures that a statement calls, or seems to: a name with parentheses may be an array."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "", str(node))
    found = [name.lower() for name in re.findall(r"(?<![\w%])([a-z]\w*)\s*\(", text, re.I)]
    if call := re.search(r"\bcall\s+([\w%]+)", text, re.I):
        found.insert(0, call[1].lower())
    return found


def names_in(text: str) -> list[str]:
    """The names in an expression, in lower case, without components, strings, operators and numbers."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", text.replace(" % ", "%"))
    plain = NUMBER.sub(" ", OPERATOR.sub(" ", plain))
    return [name.lower() for name in NAME.findall(plain)]


def reads(node: Any, scope: Scope, skipped: Sequence[str] | frozenset[str] = ()) -> list[str]:
    """Scalars and elements of intrinsic type whose values an expression needs in any case: the second operand of
    `.and.` may guard on the first, and is left out."""
    found = dict[str, None]()
    _reads(node, scope, frozenset(skipped), found)
    return list(found)


def _reads(node: Any, scope: Scope, skipped: frozenset[str], found: dict[str, None]) -> None:
    if node is None or isinstance(node, (str, tuple)):
        return
    kind = type(node).__name__
    if kind in ("Name", "Part_Ref", "Data_Ref"):
        text = compressed(str(node))
        if text.lower() in skipped:
            return
        known = target(text, scope)
        parameter = known.symbol is not None and known.symbol.has("parameter", "optional")
        if not known.why and known.rank == 0 and known.intrinsic and not (known.whole and parameter):
            found[text] = None
        if kind == "Part_Ref":
            if not (known.symbol and known.symbol.rank) and str(node.children[0]).lower() in INQUIRY:
                return
            _reads(node.children[1], scope, skipped, found)
        elif kind == "Data_Ref":
            for part in _below(node, "Part_Ref"):
                _reads(part.children[1], scope, skipped, found)
        return
    if kind == "Intrinsic_Function_Reference" and str(node.children[0]).lower() in INQUIRY:
        return
    if "Implied_Do" in kind or kind in ("Structure_Constructor", "Proc_Component_Ref", "Label", "Call_Stmt"):
        return
    children = list(node.children)
    if kind in ("Or_Operand", "Equiv_Operand"):  # a .and. b, a .or. b
        children = children[:1]
    if kind == "Actual_Arg_Spec":
        children = children[1:]
    for child in children:
        _reads(child, scope, skipped, found)


def _below(node: Any, kind: str) -> Iterator[Any]:
    from fparser.two.utils import walk

    for found in walk(node):
        if type(found).__name__ == kind:
            yield found


def on_itself(text: str) -> bool:
    """Whether what is assigned may be a part of its own subscripts; components tell variables of one root apart."""
    last = split_outside(text, "%")[-1].split("(")[0].strip().lower()
    subscripts = "".join(part.partition("(")[2] for part in split_outside(text, "%")).lower()
    return re.search(rf"\b{last}\b", subscripts) is not None
