"""What the wrapper of a function in C writes of its parameters in check mode: lines of C that fill the rows.

Which parameters are handles, and which are only read, the table of signatures says; `watch.h` has what is used here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from safepoint.trace import roles
from safepoint.trace.mpi_h import Prototype
from safepoint.trace.signatures import HANDLES, Parameter, parameter, signatures

KINDS = frozenset(HANDLES.values())
READ = {"Start", "Startall", "Cancel", "Type_commit", "Comm_disconnect", "File_close", "Session_finalize"}
READ_IF_IT_ENDS = "_free", "_get_status_all", "_get_status_any", "_get_status_some"
COUNTS = "count", "incount"  # of the handles in an array
AT_ROOT = "Comm_spawn", "Comm_spawn_multiple"  # what others give these is ignored, and may be anything
DEFINED = "Testany", "Request_get_status_any"  # these write all they can, also if their flag says no


REQUEST = Parameter("request", "request", "pointer", False)


class Given(NamedTuple):
    """A parameter of the standard, and its name in C; empty: this form of the function does not have it."""

    position: int  # from 1
    one: Parameter
    name: str


def given(prototype: Prototype) -> list[Given]:
    known = signatures().get(prototype.standard)
    if known is None:
        own = [parameter(text.replace(name, name[:-1])) for text, name in
               zip(prototype.parameters, prototype.names, strict=True)]  # fmt: skip
        return [Given(at, *pair) for at, pair in enumerate(zip(own, prototype.names, strict=True), 1)]
    names = prototype.names
    if len(names) != len(known.parameters):  # MPI_Type_get_envelope_c has some more
        names = tuple(f"{one.name}_" if f"{one.name}_" in names else "" for one in known.parameters)
    return [Given(at, *pair) for at, pair in enumerate(zip(known.parameters, names, strict=True), 1)]


def reads(function: str, one: Parameter) -> bool:
    """Whether the call reads the handles to which this points."""
    if one.kind not in KINDS or one.by == "value" or function in AT_ROOT:
        return False
    if roles.kind(function) in ("mrecv", "imrecv"):
        return one.kind == "message"
    waits = roles.kind(function) in roles.WAITS
    return one.const or waits or function in READ or function.endswith(READ_IF_IT_ENDS)


def on_entry(prototype: Prototype) -> str:
    """The rows of what is given: ARGUMENTS, and BEFORE if it is something."""
    all_ = given(prototype)
    values = "".join(f" row__[{at}] = {_value(at, each)};" for at, each in enumerate(all_))
    lines = [
        "if (CHECKING) {", f"int64_t *row__ = row(&c, ARGUMENTS, {len(all_)});", f"if (row__) {{{values} }}",
        *_filled("BEFORE", list(_read(prototype, all_))), "}",
    ]  # fmt: skip
    return "\n        ".join(lines)


def _value(at: int, each: Given) -> str:
    """A binding of Fortran may pass a copy of a request on: what is noted is where the program has it."""
    if not each.name:
        return "ABSENT"
    value = f"VALUE({each.name})"
    return f"self.fortran ? VALUE(self.given[{at}]) : {value}" if each.one == REQUEST else value


def when_done(prototype: Prototype) -> str:
    """The row AFTER, of a call that went well."""
    lines = _filled("AFTER", list(_written(prototype, given(prototype))))
    return "\n        ".join(["if (CHECKING) {", "int64_t *row__;", *lines, "}"]) if lines else ""


class Part(NamedTuple):
    """Of a row BEFORE or AFTER. `of`: how many, of an array; empty: it is a pointer to one value."""

    position: int
    pointer: str
    of: str = ""


def _filled(kind: str, parts: list[Part]) -> list[str]:
    """Lines that make one row of these parts, if there is anything in them."""
    if not parts:
        return []
    sizes = " + ".join(f"SEVERAL({part.pointer}, {part.of})" if part.of else f"ONE({part.pointer})" for part in parts)
    lines = [f"int64_t size__ = {sizes};", f"if (size__ && (row__ = row(&c, {kind}, size__))) {{"]
    for position, pointer, count in parts:
        lines.append(
            f"PUT_SEVERAL(row__, {position}, {pointer}, {count})" if count else f"PUT_ONE(row__, {position}, {pointer})"
        )
    return [*lines, "}"]


def _read(prototype: Prototype, all_: list[Given]) -> Iterator[Part]:
    names = {each.one.name: each.name for each in all_}
    for position, one, name in all_:
        if not name or not reads(prototype.standard, one):
            continue
        if one.by == "pointer":
            yield Part(position, name)
        elif one.name in ("sendtypes", "recvtypes"):
            if not prototype.standard.startswith(("Neighbor", "Ineighbor")):  # how many, the topology says
                used = f"({names['sendbuf']} == MPI_IN_PLACE ? NULL : {name})" if one.name == "sendtypes" else name
                yield Part(position, used, "peers(&c)")
        elif count := next((names[word] for word in COUNTS if names.get(word)), ""):
            yield Part(position, name, count)


def _written(prototype: Prototype, all_: list[Given]) -> Iterator[Part]:
    function, names = prototype.standard, {each.one.name: each.name for each in all_}
    flag = names.get("flag", "")
    for position, one, name in all_:
        if not name or one.const or reads(function, one) or one.name in ("argc", "argv"):
            continue
        if one.name == "array_of_indices" and names.get("outcount"):
            yield Part(position, name, f"(*{names['outcount']} == MPI_UNDEFINED ? 0 : *{names['outcount']})")
        elif one.by == "pointer" and one.kind in {*KINDS, "int", "rank", "tag"}:
            unsure = flag and name != flag and function not in DEFINED
            yield Part(position, f"(*{flag} ? {name} : NULL)" if unsure else name)
