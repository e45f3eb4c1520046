"""The tracer of Python programs: it begins when `mpi4py.MPI` is loaded, and notes each call that communicates.

mpi4py's classes cannot be changed, so the names in its module are given to subclasses, and each object that a call
returns is made one of these. C code sees the same handles. What is under way in this process is counted too: `hide`
adds it up over all ranks (`ranks.exact`), and so knows of each message that is not received.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from safepoint.trace import beside, checking, elsewhere, record, roles
from safepoint.trace.checking import Checking
from safepoint.trace.known import Begun, Persistent
from safepoint.trace.methods import LOCAL_CLASSES
from safepoint.trace.ours import Ours
from safepoint.trace.record import Notes
from safepoint.trace.seen import Seen
from safepoint.trace.wrappers import classes

WHERE, LIMIT, LEVEL = "SAFEPOINT_TRACE", "SAFEPOINT_TRACE_LIMIT", 4 << 30  # names in the environment
CONSTANTS = (
    "COMM_WORLD", "COMM_SELF", "COMM_NULL", "REQUEST_NULL", "MESSAGE_NULL", "MESSAGE_NO_PROC", "WIN_NULL", "FILE_NULL",
)  # fmt: skip
seen: Seen | None = None


def begin(mpi: ModuleType, called: tuple[str, int] | None = None) -> None:
    """Note what this process does with this module from now on; once MPI is initialised. On any failure nothing is
    noted, and the program is as it was. `called`: what the program has initialised MPI with, and for which level."""
    where = os.environ.get(WHERE)
    if not where or seen is not None or not hasattr(mpi, "Is_initialized"):
        return
    version = getattr(sys.modules.get("mpi4py"), "__version__", "4")
    if version.split(".")[0] in "0123":
        record.say(f"not traced: needs mpi4py 4 or newer, and this is {version}")
        return
    if not mpi.Is_initialized():
        _when_initialised(mpi)
        return
    try:
        if os.environ.get(beside.WITH) == "both":
            wanted = checking.watched(Path(where), mpi.COMM_WORLD.Get_rank())
            _replace(mpi, *beside.begin(mpi, _reducer(mpi), wanted))
        else:
            _begin(mpi, elsewhere.place(Path(where)), called)
    except FileExistsError as error:
        record.say(f"not traced: {error.filename} is there already: another process notes as this rank, or an older "
                   "trace lies there")  # fmt: skip
        if mpi.Comm.Get_parent() == mpi.COMM_NULL:  # those that a program has started itself are not checked
            elsewhere.second(Path(error.filename).parent)
    except Exception as error:
        record.say(f"not traced: {type(error).__name__}: {error}")


def _begin(mpi: Any, where: Path, called: tuple[str, int] | None) -> None:
    global seen
    plain = {name: getattr(mpi, name) for name in (*roles.CLASSES, *CONSTANTS, *LOCAL_CLASSES, "Exception", "BYTE")}
    world = plain["COMM_WORLD"]
    where.mkdir(exist_ok=True)  # another node may have a disk of its own
    watched = checking.watched(where, world.Get_rank())
    notes = Notes(where, about(mpi, world.Get_rank(), world.Get_size()), int(os.environ.get(LIMIT) or LEVEL))
    seen = Seen(notes, mpi, plain, checking=watched is not None)
    names = _names(mpi, notes, seen, plain)
    if watched is None:
        made, others = classes(mpi, names)
    else:
        check = Checking(mpi, plain, seen, watched, where)
        made, others = check.install(names), checking.others()
    names["types"] = {plain[name]: cls for name, cls in made.items()}
    if seen.rank == 0 or not (where / "functions-python.json").exists():
        new = where / f"functions-python.{seen.rank}.new"
        new.write_text(json.dumps(roles.functions({number: name for name, number in others.items()})), "utf-8")
        os.replace(new, where / "functions-python.json")
    _replace(mpi, made, names["wrap"])
    for name in ("MESSAGE_NULL", "MESSAGE_NO_PROC") if made else ():
        getattr(mpi, name)._noted = (0, names["World"], mpi.PROC_NULL, record.NONE)
    Ours(seen).listen(watched)
    if watched is not None:
        check.initialised(called)
    atexit.register(end, None if watched is None else check, where)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)


def _replace(mpi: Any, made: dict[str, type], wrap: Callable[[Any], Any]) -> None:
    for name, cls in made.items():
        setattr(mpi, name, cls)
    for name in CONSTANTS:
        setattr(mpi, name, wrap(getattr(mpi, name)))


def _reducer(mpi: Any) -> Callable[[Any], Any]:
    """How the objects of a class are pickled: those of the module by their names."""

    def reduce(cls: Any) -> Any:
        def __reduce__(self: Any) -> Any:
            for name in CONSTANTS:
                if self is getattr(mpi, name):
                    return name
            return cls.__reduce__(cls.__new__(cls, self))

        return __reduce__

    return reduce


def about(mpi: Any, rank: int, size: int) -> dict[str, Any]:
    """What a trace says of a rank."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "rank": rank, "size": size, "host": platform.node(), "pid": os.getpid(), "argv": sys.argv or [""],
        "boot": boot.read_text("ascii").strip() if boot.exists() else "", "tracer": "python",
        "mpi": mpi.Get_library_version().splitlines()[0], "functions": "functions-python.json", "cwd": os.getcwd(),
    }  # fmt: skip


def _names(mpi: Any, notes: Notes, seen: Seen, plain: dict[str, Any]) -> dict[str, Any]:
    """What the wrappers need, by the names that they use."""

    def wrap(result: Any) -> Any:
        cls = names["types"].get(type(result))
        return result if cls is None else type(result).__new__(cls, result)

    names: dict[str, Any] = {
        "getframe": sys._getframe, "sites": seen.sites, "new_site": seen.site,
        "no_site": seen.no_site, "advance": notes.advance, "notes": notes,
        "seen": seen, "now": time.monotonic_ns, "ident": threading.get_ident,
        "main": seen.main, "thread": seen.thread, "unnoted": seen.unnoted, "raised": seen.raised, "stop": seen.stop,
        "returned": struct.Struct("<Q").pack_into, "RETURNED": record.RETURNED, "special": seen.special,
        "got": struct.Struct("<ii").pack_into, "request_": struct.Struct("<I").pack_into, "size": seen.bytes,
        "more_": struct.Struct("<I").pack_into, "flags_": struct.Struct("<H").pack_into,
        "comm_of": seen.comm, "any_thing": seen.any_thing, "next_request": seen.request, "Persistent": Persistent,
        "Begun": Begun,
        "Status": mpi.Status, "ANY_SOURCE": mpi.ANY_SOURCE, "ANY_TAG": mpi.ANY_TAG, "PROC_NULL": mpi.PROC_NULL,
        "COMM_NULL": plain["COMM_NULL"], "COMPLETED": record.COMPLETED, "STARTED": record.STARTED,
        "MESSAGE": record.MESSAGE, "World": seen.comm(plain["COMM_WORLD"]), "defaults": {}, "types": {}, "wrap": wrap,
        "reduce": _reducer(mpi),
    }  # fmt: skip
    return names


def _when_initialised(mpi: Any) -> None:
    """`mpi4py.rc.initialize = False`: begin after the program's own call."""
    replaced = {name: getattr(mpi, name) for name in ("Init", "Init_thread")}
    for name in ("Init", "Init_thread"):
        plain = getattr(mpi, name)

        def initialise(*args: Any, plain: Any = plain, function: str = name, **words: Any) -> Any:
            result = plain(*args, **words)
            for other, own in replaced.items():
                setattr(mpi, other, own)
            begin(mpi, (function, next(iter((*args, *words.values())), mpi.THREAD_MULTIPLE)))
            return result

        initialise.__doc__, initialise.__name__ = plain.__doc__, plain.__name__
        setattr(mpi, name, initialise)


def _forked() -> None:
    """A child of the program shares the maps: what it does is not this rank's."""
    if seen is not None:
        seen.stopped = "in a child of this process"
        seen.notes.map, seen.notes.end = None, 0


def end(check: Checking | None, where: Path) -> None:
    """At the end of the program: how it ended, and no more notes. `where`: its trace."""
    if seen is None or seen.notes.map is None:
        return
    if check is not None:
        with contextlib.suppress(Exception):
            check.finalizes()
    error = getattr(sys, "last_type", None)
    with contextlib.suppress(OSError):
        seen.notes.close("exit" if error is None else f"exception {error.__name__}")
        elsewhere.ended(where, seen.rank)
    seen.stopped = seen.stopped or "the program has ended"
