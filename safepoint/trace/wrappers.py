"""Subclasses of mpi4py's classes that note each call: their source is made from the signatures of the plain ones.

A method that several classes inherit is made once, in the shape of its kind (`roles`, `shapes`).
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safepoint.trace import record
from safepoint.trace.compiled import compiled
from safepoint.trace.methods import Found
from safepoint.trace.roles import CLASSES, FIRST_OTHER, LOCAL, NUMBERS, kind, of_method
from safepoint.trace.seen import WRAPPERS
from safepoint.trace.shapes import BODY, COMM, GIVEN, Shape, shapes

QUIET = {LOCAL, "group_new"}  # kinds that are not noted
SKIPPED = {"py2f", "toint"}  # they make nothing and send nothing
LETTERS = record.LAYOUT.format[1:]  # of the fields of a note
OF_HANDLES = ("f2py", "fromhandle", "fromint")  # these make an object of what is there, which is to be noted too

# The bytes of a message of which the arguments are known. What has none by itself is mostly a list, and to ask it for
# them is slow.
ROOM = """
if type({buffer}) is list or type({buffer}) is tuple:
    room = {known}
else:
    try:
        room = {buffer}.nbytes
    except AttributeError:
        room = {known}
"""


def source(
    name: str, method: Any, number: int, pickled: bool, shape: Shape, body: str = BODY,
    rows: tuple[str, str] = ("", ""),
) -> tuple[str, str]:  # fmt: skip
    """The definition of one wrapper, by the name `name`, and how it packs its note. `rows`: lines that write more of
    it, before and after."""
    parameters = list(inspect.signature(method).parameters.values())
    words = [p.name for p in parameters]
    of_class = words[:1] == ["cls"]
    heads = [p.name if p.default is p.empty else f"{p.name}=defaults[{name!r}, {p.name!r}]" for p in parameters]
    passed = [f"{word}_" if word == shape.status else word for word in words]
    buffer = next((word for word in ("buf", "sendbuf", "origin") if word in words), "")
    size = "" if pickled else "room" if buffer else "0"
    flags, peer = shape.flags, shape.peer
    if peer == "ROOT":
        peer = "root if root >= 0 else special[root]" if "root" in words else "-4"
        flags += " | (32 if root == c.rank else 0)" if "root" in words else ""
    elif "rank" in words and shape.comm == "c.number":
        peer = "rank"
    elif peer not in ("-4", "ROOT") and shape.peer == "target_rank" and "target_rank" not in words:
        peer = "-4"
    before = shape.before.replace(COMM, GIVEN + "\n") if of_class and "comm" in words else shape.before
    count, kind = ("rn", "rt") if buffer == "buf" else ("sn", "st")
    if size == "room" and f"{count}, {kind}" in rows[0]:  # the rows know how many of which type it is
        known = f"{count} * sizes_[{kind}] if {count} >= 0 and {kind} in sizes_ else size({buffer})"
        lines = ROOM.strip().format(buffer=buffer, known=known)
        if "room = None" in rows[0]:  # they may know these too
            lines = "if room is None:\n" + "\n".join(f"    {line}" for line in lines.splitlines())
        rows = f"{rows[0]}\n{lines}", rows[1]
    elif size == "room":
        before += f"\ntry:\n    room = {buffer}.nbytes\nexcept AttributeError:\n    room = size({buffer})"
    flags += " | 1" if pickled else ""
    layout, values = note((
        "now()", "0", "site", str(number), "flags" if "|" in flags else flags, peer, shape.tag, shape.got_peer,
        shape.got_tag, str(record.UNKNOWN) if pickled else size, shape.request, shape.comm, "0",
        "0 if ident() == main else thread()", "0", str(record.ENTERED),
    ))  # fmt: skip
    fields = shape._asdict() | {"flags": flags, "note": f"note_{layout}(notes.map, at, {values})"}
    fields |= {key: _indented(code) or " " * 8 + "pass" for key, code in (("before", before), ("after", shape.after))}
    fields |= {"rows": _indented(rows[0]), "wrote": _indented(rows[1])}
    text = body.format(
        name=name, params=", ".join(heads), args=", ".join(words), passed=", ".join(passed), **fields,
    ).replace("plain", f"plain_{name}").replace("NUMBER", str(number))  # fmt: skip
    return text, layout


def note(values: Iterable[str]) -> tuple[str, str]:
    """How the fields of a note are packed that have these values as source, and which of these are given: numbers that
    are always the same are put together here, as each value that is given takes time."""
    layout, given, fixed = "", list[str](), b""
    for letter, value in (*zip(LETTERS, values, strict=True), ("", "the end")):
        if value.removeprefix("-").isdigit():
            fixed += struct.pack(f"<{letter}", int(value))
            continue
        if any(fixed):
            layout += f"{len(fixed)}s"
            given.append(repr(fixed))
        elif fixed:
            layout += f"{len(fixed)}x"
        fixed = b""
        layout += letter
        given.append(value)
    return layout, ", ".join(given[:-1])


def _indented(code: str) -> str:
    return "\n".join(" " * 8 + line for line in code.strip().splitlines())


class Plain(type):
    """So that `isinstance(comm, MPI.Comm)` is what it was: the class that is asked for is the plain one."""

    def __instancecheck__(cls, thing: Any) -> bool:
        plain = cls.__dict__.get("_plain")
        return super().__instancecheck__(thing) if plain is None else isinstance(thing, plain)

    def __subclasscheck__(cls, other: type) -> bool:
        plain = cls.__dict__.get("_plain")
        return super().__subclasscheck__(other) if plain is None else issubclass(other, plain)


def _made(plain: type) -> Callable[..., Any]:
    def __new__(cls: type, *args: Any, **words: Any) -> Any:
        new = plain.__new__(cls, *args, **words)
        if args and hasattr(args[0], "_noted"):
            new._noted = args[0]._noted
        return new

    return __new__


def _of_handle(plain: Callable[..., Any], wrap: Callable[[Any], Any], known: Mapping[int, Any]) -> Any:
    """`known`: of requests and messages what is known of them, by handle."""

    def made(cls: type, *args: Any, **words: Any) -> Any:
        new = wrap(plain(*args, **words))
        if known and new.handle in known:
            new._noted = known[new.handle]
        return new

    made.__name__, made.__doc__ = plain.__name__, plain.__doc__
    return classmethod(made)


class Methods:
    """The wrappers of all classes; one that several inherit is made once."""

    def __init__(self, names: dict[str, Any], body: str) -> None:
        self._names, self._body = names, body  # the functions' globals, and what they do
        self._instead: dict[Any, Any] = {}  # what is called in the place of a method
        self._shapes = shapes(False), shapes(True)
        self._made: dict[tuple[int, str], str] = {}
        self._sources: list[str] = []
        self._later: list[tuple[str, Any, bool]] = []
        self.others: dict[str, int] = {}

    def of(self, cls: type) -> dict[str, tuple[str, bool]]:
        """Of each method that is noted the name of its wrapper, and whether it is one of the class."""
        found: dict[str, tuple[str, bool]] = {}
        for method in dir(cls):
            if method.startswith("_") or method in SKIPPED or method in OF_HANDLES:
                continue
            plain = inspect.getattr_static(cls, method)
            of_class = isinstance(plain, classmethod)
            if (not of_class and not callable(plain)) or isinstance(plain, (type, staticmethod)):
                continue
            function, pickled = of_method(cls.__name__, method)
            if kind(function) in QUIET:
                continue
            found[method] = (
                self.one(plain.__func__ if of_class else plain, method, function, pickled, of_class),
                of_class,
            )
        return found

    def add(self, found: Found) -> tuple[str, bool]:
        """The same of one method, of a class or of the module."""
        name = self.one(found.plain, found.name, found.function, found.pickled, found.of_class)
        return name, found.of_class

    def one(self, plain: Any, method: str, function: str, pickled: bool, of_class: bool) -> str:
        """The name of the wrapper of a method."""
        key = id(plain), function
        if key not in self._made:
            self._made[key] = name = f"{method}_{len(self._made)}"
            number = NUMBERS.get(function) or self.others.setdefault(function, FIRST_OTHER + len(self.others))
            words = inspect.signature(plain).parameters
            shape = self._shape(function, pickled, of_class and "comm" not in words)
            for word, parameter in words.items():
                if parameter.default is not parameter.empty:
                    self._names["defaults"][name, word] = parameter.default
            self._names[f"plain_{name}"] = self._instead.get(plain, plain)
            rows = self._rows(plain, function, pickled, of_class)
            text, layout = source(name, plain, number, pickled, shape, self._body, rows)
            self._names[f"note_{layout}"] = struct.Struct(f"<{layout}").pack_into
            self._sources.append(text)
            self._later.append((method, plain, of_class))
        return self._made[key]

    def _shape(self, function: str, pickled: bool, alone: bool) -> Shape:
        """`alone`: it has no communicator."""
        shape = self._shapes[pickled][kind(function)]
        return self._shapes[pickled]["nowhere"] if alone and shape.before.startswith(COMM) else shape

    def _rows(self, plain: Any, function: str, pickled: bool, of_class: bool) -> tuple[str, str]:
        return "", ""

    def compile(self) -> dict[str, Any]:
        """All that were asked for, by their names."""
        names = self._names
        exec(compiled("\n".join(self._sources), WRAPPERS), names)
        for name, (method, plain, _) in zip(self._made.values(), self._later, strict=True):
            made = names[name]
            made.__name__, made.__qualname__, made.__doc__ = method, plain.__qualname__, plain.__doc__
            made.__wrapped__, made.__module__ = plain, plain.__module__
        return names


def classes(mpi: Any, names: dict[str, Any], body: str = BODY) -> tuple[dict[str, type], dict[str, int]]:
    """By name the subclass of each class that communicates; and the numbers of functions that are not in the table.
    `names`: what the wrappers need; see `python`. `body`: what they do."""
    methods = Methods(names, body)
    found = {name: getattr(mpi, name) for name in CLASSES if hasattr(mpi, name)}
    wanted = {name: methods.of(plain) for name, plain in found.items()}
    made = methods.compile()
    return {name: subclass(name, plain, made, wanted[name], names) for name, plain in found.items()}, methods.others


def methods_of(made: dict[str, Any], wanted: dict[str, tuple[str, bool]]) -> dict[str, Any]:
    return {
        method: classmethod(made[wrapper]) if of_class else made[wrapper]
        for method, (wrapper, of_class) in wanted.items()
    }


def subclass(
    name: str, plain: Any, made: dict[str, Any], wanted: dict[str, tuple[str, bool]], names: dict[str, Any]
) -> type:
    """Of one of mpi4py's classes, with the wrappers of these methods."""
    space = methods_of(made, wanted)
    known = names.get("made_", {}) if name in ("Request", "Prequest", "Grequest", "Message") else {}
    space |= {at: _of_handle(getattr(plain, at), names["wrap"], known) for at in OF_HANDLES if hasattr(plain, at)}
    # No slots: a class with these and one of the program's own could not be bases of one class.
    space |= {"__module__": plain.__module__, "__doc__": plain.__doc__, "_plain": plain}
    space |= {"__qualname__": plain.__qualname__, "__new__": _made(plain), "__reduce__": names["reduce"](plain)}
    return Plain(name, (plain,), space)
