"""Check mode of the Python tracer: `watch.json` names the functions that are noted, each with its arguments.

(1) A method that is not watched is mpi4py's own.
(2) Types, groups, operations and the like are constants by the hundred, which programs compare by `is`. Their classes
    stay what they are, and the methods are put into these: subclasses would be other objects.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import inspect
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Container, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from safepoint.trace import arguments, methods, record, roles
from safepoint.trace.known import Known, Persistent
from safepoint.trace.roles import CLASSES, FIRST_OTHER, NUMBERS, kind
from safepoint.trace.rows import Rows, signed
from safepoint.trace.seen import PACKAGE, WRAPPERS, Seen
from safepoint.trace.shapes import BODY, COMM, SHAPES, Shape, checked
from safepoint.trace.signatures import signatures
from safepoint.trace.specs import NO_HANDLE, Specs
from safepoint.trace.wrappers import Methods, methods_of, subclass

KEPT: list[Any] = []  # the file of the stacks, and what has a place in one of mpi4py's classes
# Names of types that mpi4py alone has, by how they begin; and those that it has otherwise.
ALIASES, RENAMED = ("F_", "SIGNED_", "SINT", "BOOL", "INT_INT"), {"TWOINT": "2INT", "LONG_LONG": "LONG_LONG_INT"}


class Wanted(frozenset[str]):
    """The functions that this rank notes."""

    sync_sends = False  # whether each send is its synchronous form


def watched(where: Path, rank: int) -> Wanted | None:
    """What `watch.json` says; None: no check mode. Raises OSError and ValueError."""
    try:
        text = (where / record.WATCH).read_text("utf-8")
    except FileNotFoundError:
        return None
    found = json.loads(text)
    wanted = Wanted(name for name, chosen in found["functions"].items() if chosen is None or rank in chosen)
    wanted.sync_sends = bool(found.get("sync_sends"))
    return wanted


def others() -> dict[str, int]:
    """Numbers of the functions that are not in the table: the same in each rank, whatever it watches."""
    names = sorted(name for name in signatures() if name not in NUMBERS)
    return {name: number for number, name in enumerate(names, FIRST_OTHER)}


class NotYet:
    """In the place of numpy's arrays, until numpy is loaded: nothing is of this class."""


class Watched(Methods):
    """Wrappers of the functions that are watched, which note arguments too."""

    def __init__(self, names: dict[str, Any], instead: dict[Any, Any]) -> None:
        super().__init__(names, BODY)
        self._instead = instead
        self.others = others()
        self.family = ""

    def add(self, found: methods.Found) -> tuple[str, bool]:
        self.family = found.family
        return super().add(found)

    def _shape(self, function: str, pickled: bool, alone: bool) -> Shape:
        if kind(function) in SHAPES:
            return checked(super()._shape(function, pickled, alone))
        return Shape(comm="0") if self.family != "comm" or alone else Shape(COMM)

    def _rows(self, plain: Any, function: str, pickled: bool, of_class: bool) -> tuple[str, str]:
        words = tuple(inspect.signature(plain).parameters)
        letters = arguments.letters(function)
        for more in "", arguments.BOTH_ROWS:
            name = arguments.PACKS + letters + ("_" + more if more else "")
            self._names[name] = struct.Struct(f"<3q{letters}{more}").pack_into
        return arguments.rows(arguments.Method(function, self.family, words, of_class, pickled))


class Checking:
    """Of one process. `plain`: what `mpi` had before anything was put in its place."""

    def __init__(self, mpi: Any, plain: dict[str, Any], seen: Seen, wanted: Wanted, where: Path) -> None:
        self._mpi, self._plain, self._seen, self._wanted = mpi, plain, seen, wanted
        self._stem = str(where / f"rank-{seen.rank:05d}")
        self._rows = Rows(seen.notes, mpi.UNDEFINED)
        self._finalized = mpi.Is_finalized

    def install(self, names: dict[str, Any]) -> dict[str, type]:
        """Put the wrappers in their places. Returns the subclasses by name; none if no method of them is watched."""
        constants = self._constants()
        Path(self._stem + ".new").write_text(json.dumps(constants), "utf-8")
        os.replace(self._stem + ".new", self._stem + ".constants")
        self._listen()
        names |= self._names(names)
        found = Watched(names, self._synchronous() if self._wanted.sync_sends else {})
        return install(self._mpi, found, self._wanted, names)

    def _synchronous(self) -> dict[Any, Any]:
        """What is called in the place of each method that sends: it has the same arguments."""
        comm = self._plain["Comm"]
        pairs = roles.SYNCHRONOUS | {"send": "ssend", "isend": "issend"}
        return {inspect.getattr_static(comm, name): inspect.getattr_static(comm, sync) for name, sync in pairs.items()}

    def _names(self, all_: dict[str, Any]) -> dict[str, Any]:
        """What the lines of `arguments` use, which is to be among all names of the wrappers."""
        specs, rows, seen = Specs(self._mpi, self._plain, all_), self._rows, self._seen
        return {
            "array_": NotYet, "buffer_": self._mpi.buffer, "kinds_": specs.kinds,
            "simple_": specs.simple, "types_": specs.types, "matched_": specs.matched, "target_": specs.target,
            "gather_": specs.gather, "scatter_": specs.scatter, "allgather_": specs.allgather,
            "alltoall_": specs.alltoall, "neighbors_": specs.neighbors, "reduce_": specs.reduce,
            "allreduce_": specs.allreduce, "reduce_scatter_": specs.reduce_scatter, "address_": specs.address,
            "size_of_": specs.size, "length_": specs.length, "handle_": specs.handle, "handles_": specs.handles,
            "room_": seen.notes.room, "carefully_": rows.carefully, "one_": rows.one,
            "reads_": rows.reads, "sizes_": specs.sizes, "some_": rows.some, "several_": rows.several,
            "several_handles_": rows.handles,
            "ABSENT": record.ABSENT, "NO_HANDLE": NO_HANDLE, "BYTE": self._plain["BYTE"].handle,
            "size": specs.bytes, "Op": self._plain["Op"], "lasting": lasting, "taken": self._taken,
            "made_": {},  # of the last request or message with each handle what is known of it
        }  # fmt: skip

    def _taken(self, message: Any) -> tuple[int, Known, int, int]:
        """What is known of a message that a probe has found."""
        unknown = 0, self._seen.nobody, self._mpi.PROC_NULL, record.NONE
        return getattr(message, "_noted", unknown)

    # Constants, the stack, and the calls that are made without the program.

    def _constants(self) -> dict[str, int]:
        """By their names in the standard."""
        mpi, things = self._mpi, tuple(self._plain[name] for name in (*methods.LOCAL_CLASSES, "Comm", "Request",
                                                                      "Message", "Win", "File"))  # fmt: skip
        found = {"TAG_UB": int(mpi.COMM_WORLD.Get_attr(mpi.TAG_UB) or 0)}
        for name in dir(mpi):
            value = getattr(mpi, name)
            if not name.isupper() or name.startswith(ALIASES):
                continue
            if isinstance(value, int) or name in ("BOTTOM", "IN_PLACE"):
                found[f"MPI_{name}"] = int(value)
            elif isinstance(value, things) and (value or name.endswith("_NULL")) and hasattr(value, "handle"):
                found[f"MPI_{RENAMED.get(name, name)}"] = signed(value.handle)
        return found

    def _listen(self) -> None:
        """On the signal this process says where it is. A handler in C: it runs while MPI holds the interpreter."""
        path = self._stem + ".stack"
        KEPT.append(file := open(path, "ab", buffering=0))  # noqa: SIM115 - as long as this process
        faulthandler.register(signal.SIGRTMIN + record.STACK_SIGNAL, file=file, all_threads=True, chain=False)

    def initialised(self, called: tuple[str, int] | None) -> None:
        """Note that MPI was initialised: by this function, and the level of threads that it asked for; None: when
        mpi4py was loaded."""
        try:
            name, required = called or self._by_mpi4py()
            if name in self._wanted:
                given = (record.ABSENT, record.ABSENT, required, record.ABSENT)
                at = self._note(name, given if name == "Init_thread" else given[:2], _site(self._seen))
                if name == "Init_thread":
                    self._rows.one(at, record.AFTER, 4, self._mpi.Query_thread())
                self._ended(at)
        except Exception as error:
            self._seen.stop(error)

    def _by_mpi4py(self) -> tuple[str, int]:
        rc = getattr(sys.modules.get("mpi4py"), "rc", None)
        level = getattr(self._mpi, f"THREAD_{str(getattr(rc, 'thread_level', 'multiple')).upper()}", record.ABSENT)
        return "Init_thread" if getattr(rc, "threads", True) in (True, "yes") else "Init", level

    def finalizes(self) -> None:
        """Note that mpi4py is about to finalise MPI, at the end of the process: it does not return."""
        rc = getattr(sys.modules.get("mpi4py"), "rc", None)
        chosen = getattr(rc, "finalize", None)
        if chosen is None:
            chosen = getattr(rc, "initialize", True)
        if chosen in (True, "yes") and "Finalize" in self._wanted and not self._finalized() and not self._seen.stopped:
            self._note("Finalize", (), 0)

    def _note(self, name: str, given: tuple[int, ...], site: int) -> int:
        """The place of the note of a call that no wrapper has seen. Raises `Full`."""
        seen = self._seen
        at = seen.notes.advance()
        if at >= seen.notes.end:
            seen.grow(at)
        seen.notes.more(at, record.ARGUMENTS, given)
        number = NUMBERS.get(name) or others()[name]
        record.LAYOUT.pack_into(
            seen.notes.map, at, time.monotonic_ns(), 0, site, number, 0, *[record.NONE] * 4, 0, 0, 0, 0, seen.thread(),
            record.NO_RESULT, record.ENTERED,
        )  # fmt: skip
        return at

    def _ended(self, at: int) -> None:
        notes = self._seen.notes
        notes.map[at + record.LEAVE : at + record.LEAVE + 8] = time.monotonic_ns().to_bytes(8, "little")
        notes.map[at + record.RESULT : at + record.RESULT + 2] = bytes((0, record.RETURNED))


def install(mpi: Any, found: Methods, wanted: Container[str], names: dict[str, Any]) -> dict[str, type]:
    """Put wrappers of the functions that are wanted in their places. Returns the subclasses of the classes that
    communicate, by name; none if no method of them is wanted."""
    plain = {name: getattr(mpi, name) for name in (*CLASSES, *methods.LOCAL_CLASSES)}

    def chosen(all_: Iterator[methods.Found]) -> dict[str, tuple[str, bool]]:
        return {one.name: found.add(one) for one in all_ if one.function in wanted}

    own = {name: chosen(methods.of_class(name, plain[name])) for name in CLASSES}
    local = {name: chosen(methods.of_class(name, plain[name])) for name in methods.LOCAL_CLASSES}
    module = chosen(methods.of_module(mpi))
    made = found.compile()
    for name, space in local.items():
        put_into(plain[name], methods_of(made, space))
    for name, (wrapper, _) in module.items():
        setattr(mpi, name, made[wrapper])
    if not any(own.values()):
        return {}
    return {name: subclass(name, plain[name], made, own[name], names) for name in CLASSES}


def lasting(request: Any) -> Persistent:
    """What is known of a persistent request."""
    found = getattr(request, "_noted", None)
    return found if type(found) is Persistent else Persistent(0, (False, None, record.NONE, record.NONE, False))


def put_into(cls: type, space: dict[str, Any]) -> None:
    """Let a class that cannot be changed have other methods. Raises TypeError where that cannot be done."""
    if not space:
        return
    inside = next((one for one in gc.get_referents(cls.__dict__) if type(one) is dict), None)
    if inside is None:
        raise TypeError(f"the methods of {cls.__name__} cannot be replaced in this Python")
    KEPT.extend(inside[name] for name in space if name in inside)
    inside.update(space)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def _site(seen: Seen) -> int:
    """The line of the program that has brought this about."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((PACKAGE, "<frozen importlib", WRAPPERS)):
            return seen.add_site(frame)
        frame = frame.f_back
    return 0
