"""The words of a template: functions and macros, their arguments, and the constants of MPI.

Which functions a macro has follows from their kinds in `trace.roles`, and the arguments of each from
`trace.signatures`: a function of a newer MPI needs a line there. Names are compared without case.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

from safepoint.check.template import ATTRIBUTES
from safepoint.trace.constants import TABLE
from safepoint.trace.roles import ROLES, WAITS, kind
from safepoint.trace.signatures import HANDLES, Parameter, signatures

HIDE = "hide"
MESSAGES = {  # what any function sends or takes: whatever the arguments of that are called, here they have one name
    "message_sent": {
        "buf": "buffer", "count": "int", "datatype": "type", "dest": "rank", "tag": "tag", "comm": "comm",
        "request": "request",
    },
    "message_received": {
        "buf": "buffer", "count": "int", "datatype": "type", "source": "rank", "tag": "tag", "comm": "comm",
        "request": "request",
    },
}  # fmt: skip
MACROS = {
    "Send_any": ("send",),
    "Isend_any": ("isend",),
    "Recv_any": ("recv", "mrecv"),
    "IRecv_any": ("irecv", "imrecv"),
    "PTP": ("send", "recv"),
    "IPTP": ("isend", "irecv"),
    "Coll": ("coll",),
    "ICOLL": ("icoll",),
    "PTP_init": ("send_init", "recv_init"),
    "Complete_any": (*WAITS, "request_free"),
    "Type_new": ("type_new",),
    "Comm_new": (
        *("comm_new", "icomm_new", "comm_of_group"),
        *("Comm_spawn", "Comm_spawn_multiple", "Comm_accept", "Comm_connect", "Comm_join"),
    ),
    "Group_new": ("group_new",),
}  # of each the kinds of `trace.roles`, and functions

# What a function does not have by this name, but which is known of its calls.
BY_MESSAGE = "Mrecv", "Imrecv"  # from where, and on which communicator, its message says
ARRAYS = "Waitall", "Waitany", "Waitsome", "Testall", "Testany", "Testsome", "Startall"  # `request`: one of them
ALSO = {name: {"source": "rank", "tag": "tag", "comm": "comm"} for name in BY_MESSAGE} | {
    name: {"request": "request"} for name in ARRAYS
}
OF_ATTRIBUTES = dict.fromkeys(ATTRIBUTES, "int") | {
    "types": "type", "peer": "rank", "tag_ub": "tag",
    "new": "handle", "function": "function", "last": "rank", "got_source": "rank", "got_tag": "tag",
}  # fmt: skip
NUMBERS = {"int", "rank", "tag"}
OBJECTS = {
    "comm": "a communicator", "type": "a datatype", "request": "a request", "op": "an operation", "group": "a group",
    "win": "a window", "file": "a file", "message": "a message", "info": "an info object",
    "errhandler": "an error handler", "session": "a session", "buffer": "an address", "number": "a number",
    "function": "a function", "handle": "a handle",
}  # fmt: skip
UNORDERED = {*OBJECTS} - {"number"}
SENDS = {"send", "isend", "send_init"}  # whose tag is a `sendtag` too
TAKES = {"recv", "irecv", "recv_init", "probe", "iprobe", "mprobe", "improbe", "mrecv", "imrecv"}


def nearest(word: str, names: Iterable[str], least: float = 0.6) -> str | None:
    """The name that was probably meant. `least`: how alike they must be, up to 1."""
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=least)
    return lower[found[0]] if found else None


@functools.cache
def macros() -> dict[str, frozenset[str]]:
    """Their members that are in the standard."""
    return {
        name: frozenset(one for one, role in ROLES.items() if {role.kind, one} & {*words} and one in signatures())
        for name, words in MACROS.items()
    }


@functools.cache
def _functions() -> dict[str, frozenset[str]]:
    alone = {name.lower(): frozenset((name,)) for name in (*signatures(), HIDE, *MESSAGES)}
    return alone | {name.lower(): members for name, members in macros().items()}


def functions(word: str) -> frozenset[str] | None:
    """Of a name as people write it: `Isend`, `MPI_Isend`, `isend_c`, `IPTP`."""
    name = word.lower().removeprefix("mpi_")
    return _functions().get(name) or _functions().get(name.removesuffix("_c"))


def nearest_function(word: str) -> str | None:
    return nearest(word.lower().removeprefix("mpi_"), (*signatures(), *MACROS, HIDE, *MESSAGES))


@functools.cache
def constants() -> dict[str, str]:
    """Name → what it is: a kind of `trace.signatures`."""
    rows = (line.partition(": ") for line in TABLE.read_text("utf-8").splitlines())
    return {f"MPI_{name}": kind for kind, _, names in rows for name in names.split()}


def constant(word: str) -> str | None:
    """Its name, as the standard writes it."""
    return word.upper() if word.upper() in constants() else None


def nearest_constant(word: str) -> str | None:
    found = nearest(word.upper().removeprefix("MPI_"), (name.removeprefix("MPI_") for name in constants()))
    return f"MPI_{found}" if found else None


def parameter(function: str, place: int) -> Parameter | None:
    """The argument at a place, from 1."""
    there = signatures()[function].parameters if function in signatures() else ()
    return there[place - 1] if 0 < place <= len(there) else None


def count(function: str) -> int:
    return len(signatures()[function].parameters) if function in signatures() else 0


def named(function: str, name: str) -> str | None:
    """The kind of the argument of this name (in small letters), of an attribute too; None: it has none."""
    if name in OF_ATTRIBUTES:
        return OF_ATTRIBUTES[name] if name != "step" or function == HIDE else None
    if function in MESSAGES:
        return MESSAGES[function].get(name)
    if function not in signatures():
        return None
    there = next((one.kind for one in signatures()[function].parameters if one.name == name), None)
    if there is None and name == "comm" and any(one.kind == "comm" for one in signatures()[function].parameters):
        return "comm"  # that on which it works, however it is called
    if there is None and name in ("sendtag", "recvtag") and kind(function) in (SENDS if name == "sendtag" else TAKES):
        return "tag"
    return there or ALSO.get(function, {}).get(name)


def names(function: str) -> list[str]:
    """Of all its arguments that a template may name."""
    own = [one.name for one in signatures()[function].parameters] if function in signatures() else []
    own += list(MESSAGES.get(function, ()))
    also = [name for name in (*ALSO.get(function, {}), *ATTRIBUTES) if name not in own]
    return [name for name in (*own, *also) if name and named(function, name)]


def meaning(one: Parameter) -> tuple[str, ...]:
    """Two arguments at the same place of two functions are the same if this is: what handles and ranks mean to a
    message does not hang on their names, that of counts does."""
    return (one.kind, one.by) if one.kind in (*HANDLES.values(), "rank", "buffer") else (one.kind, one.name)


def compared(kind: str) -> str:
    """As what a value is compared with another; empty: it goes with everything."""
    if kind in NUMBERS:
        return "number"
    return kind if kind in OBJECTS else ""
