"""`safepoint trace --with both`: the C library notes the calls, and this says which line of Python each comes from.

C code cannot ask for that line, as mpi4py lets go of the interpreter before it calls MPI. So each method of mpi4py puts
the number of its site into a word that the library reads (`safepoint_trace_site`). With several threads in MPI a call
may be given the line of another thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array
from collections.abc import Callable, Container
from types import FrameType
from typing import Any

import safepoint
from safepoint import default, ranks, words
from safepoint.trace.checking import install
from safepoint.trace.roles import CLASSES
from safepoint.trace.seen import PACKAGE
from safepoint.trace.shapes import Shape
from safepoint.trace.wrappers import Methods, classes

WITH = "SAFEPOINT_TRACE_WITH"  # a name in the environment: "both"
QUIET, NO_STEP = 2**32 - 1, -(2**63)
BODY = """
def {name}({params}):
    try:
        frame = getframe(1)
        site = sites.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = new_site(frame)
    except Exception:
        site = 0  # no Python has called this; or the library cannot have its name
    before = word.value
    word.value = site
    try:
        return wrap(plain({args}))
    finally:
        word.value = before
"""


class Library:
    """The tracer of C that was loaded before the program."""

    def __init__(self) -> None:
        """Raises AttributeError if there is none."""
        library = ctypes.CDLL(None)
        self.word = ctypes.c_uint.in_dll(library, "safepoint_trace_site")
        self._new_site, self._counters = library.safepoint_trace_new_site, library.safepoint_trace_counters
        self._hide, self.hidden, self.mark = (
            getattr(library, f"safepoint_trace_{name}") for name in ("hide", "hidden", "mark")
        )
        self._hide.argtypes = [ctypes.c_longlong]
        self.sites: dict[tuple[int, int], int] = {}
        self._codes: list[Any] = []  # so that no other code gets the address of one of these

    def site(self, frame: FrameType) -> int:
        """The number of a new one; of a call that is this library's own `QUIET`."""
        code, number = frame.f_code, QUIET
        if not code.co_filename.startswith(PACKAGE):
            name = getattr(code, "co_qualname", code.co_name)
            number = int(self._new_site(os.fsencode(code.co_filename), frame.f_lineno, os.fsencode(name)))
        self._codes.append(code)
        self.sites[id(code), frame.f_lasti] = number
        return number

    def of_program(self) -> int:
        """The site from which the program has called this library."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        return self.sites.get((id(frame.f_code), frame.f_lasti)) or self.site(frame)

    def counters(self, members: list[int]) -> list[int]:
        """Of the messages with these ranks of the world; see `safepoint_mpi.c`."""
        out = (ctypes.c_longlong * 4)()
        if self._counters((ctypes.c_int * len(members))(*members), len(members), out):
            return [0, 0, 0, 1]
        return list(out)

    def noted(self, step: Any, hide: Callable[[], Any]) -> Any:
        """Note a hide, and none of the calls in it."""
        before, self.word.value = self.word.value, self.of_program()
        try:
            self._hide(step if isinstance(step, int) and abs(step) < 2**63 else NO_STEP)
            self.word.value = QUIET
            return hide()
        finally:
            self.hidden()
            self.word.value = before

    def marked(self) -> None:
        before, self.word.value = self.word.value, self.of_program()
        self.mark()
        self.word.value = before


class Sites(Methods):
    """Wrappers of functions of any kind, which say their lines and nothing else."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names, BODY)

    def _shape(self, function: str, pickled: bool, alone: bool) -> Shape:
        return Shape()


def begin(mpi: Any, reduce: Any, wanted: Container[str] | None) -> tuple[dict[str, type], Callable[[Any], Any]]:
    """From now on, in this process. Returns by name the subclass of each class of `mpi4py.MPI` that communicates, and
    what makes a result one of these. `wanted`: in check mode the functions that are watched, of the classes that
    do not communicate too. Raises AttributeError if the library is not there."""
    library = Library()
    types: dict[type, type] = {}

    def wrap(result: Any) -> Any:
        cls = types.get(type(result))
        if cls is not None:
            return type(result).__new__(cls, result)
        return tuple(map(wrap, result)) if type(result) is tuple else result

    names = {
        "getframe": sys._getframe, "sites": library.sites, "new_site": library.site, "word": library.word,
        "wrap": wrap, "defaults": {}, "reduce": reduce,
    }  # fmt: skip
    plain = {name: getattr(mpi, name) for name in CLASSES}
    made = classes(mpi, names, BODY)[0] if wanted is None else install(mpi, Sites(names), wanted, names)
    types |= {plain[name]: cls for name, cls in made.items()}
    hide = safepoint.Session.hide

    def noted(session: Any, step: Any = None, **more: Any) -> Any:
        return library.noted(step, lambda: hide(session, step, **more))

    noted.__doc__, noted.__wrapped__ = hide.__doc__, hide  # type: ignore[attr-defined]
    setattr(safepoint.Session, "hide", noted)  # noqa: B010 - mypy has no type for it
    default.marked, ranks.exact = library.marked, Check(library, mpi)
    return made, wrap


class Check:
    """`ranks.exact`, by what the library has counted: it knows of each message its two ranks."""

    def __init__(self, library: Library, mpi: Any) -> None:
        self._library, self._mpi = library, mpi

    def __call__(self, users: Any, comm: Any) -> str | None:
        members = self._in_world(comm)
        mine, total = array("q", self._library.counters(members)), array("q", bytes(32))
        comm.Allreduce(mine, total)
        if total[3]:
            return None
        if not any(total):
            return ""
        with_each = [self._library.counters([member])[0] for member in members]
        with_me = comm.alltoall(with_each)
        rank = comm.Get_rank()
        for other in range(rank, -1, -1):  # each message is told by the higher of its two ranks
            if count := with_each[other] + (with_me[other] if other != rank else 0):
                return words.under_way(count, other, rank)
        return words.under_way(0, -1 if mine[1] else -2, rank) if mine[1] or mine[2] else ""

    def _in_world(self, comm: Any) -> list[int]:
        mine, world = comm.Get_group(), self._mpi.COMM_WORLD.Get_group()
        found = self._mpi.Group.Translate_ranks(mine, list(range(mine.Get_size())), world)
        mine.Free()
        world.Free()
        return list(found)
