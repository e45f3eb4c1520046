"""What a template may ask of a call besides its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from safepoint.check.call import Token, Value, plain
from safepoint.check.noted import ABSENT
from safepoint.check.shapes import KINDS
from safepoint.trace import record

if TYPE_CHECKING:
    from safepoint.check.arguments import Given

LASTING = frozenset(("function", "last", "types", "tag_ub", "result", "bytes"))  # of calls that are alike: `shapes`


def new(given: Given) -> Value | None:
    if given.signature is None or given.noted.state != record.RETURNED:
        return None
    for at, one in enumerate(given.signature.parameters):
        if one.kind in KINDS and one.by == "pointer" and given.makes(at, one):
            value = given.handle(at, one)
            return None if value is None or value.names else value  # a constant, such as MPI_COMM_NULL, is nothing new
    return None


def result(given: Given) -> Value | None:
    code = given.noted.result
    if code == record.NO_RESULT:
        return None
    names = frozenset(
        name for name, value in given.handles.constants.items()
        if value == code and (name.startswith("MPI_ERR_") or name == "MPI_SUCCESS")
    )  # fmt: skip
    return plain(code).but(names=names or (frozenset({"MPI_SUCCESS"}) if not code else frozenset()))


def match(given: Given) -> Value | None:
    if given.match is None:
        return None
    tokens: frozenset[Token] = frozenset((("match", given.match),))
    return Value(tokens, tokens, number=given.match[1])


def function(given: Given) -> Value | None:
    tokens: frozenset[Token] = frozenset((("function", given.function),))
    return Value(tokens, tokens)


def last(given: Given) -> Value | None:
    if given.comm is None or not given.comm.peers:
        return None
    return given.of_rank(len(given.comm.peers) - 1, "last")


def bytes_(given: Given) -> Value | None:
    if given.noted.bytes not in (record.UNKNOWN, 0) and given.noted.state == record.RETURNED:
        return plain(given.noted.bytes)
    return given.size("count", "datatype") or given.size("sendcount", "sendtype")


def got(given: Given, which: int) -> Value | None:
    came = given.came()
    if came is None:
        return None
    return given.of_rank(came[0], "") if which == 0 else plain(came[1])


def types(given: Given) -> Value | None:
    """All types that it uses: it is equal if one is."""
    parameters = given.signature.parameters if given.signature is not None else ()
    found = [
        value for at, one in enumerate(parameters)
        if one.kind == "type" and one.by != "pointer" and (value := given.value(at + 1)) is not None
    ]  # fmt: skip
    if not found:
        return None
    here, across = (
        frozenset[Token]().union(*each) for each in zip(*((one.here, one.across) for one in found), strict=True)
    )
    names = frozenset[str]().union(*(one.names for one in found))
    return Value(here, across, names, text=", ".join(one.text for one in found))


def tag_ub(given: Given) -> Value:
    """The largest tag that this MPI has."""
    return plain(given.handles.constants.get("TAG_UB", 2**31 - 1))


COUNTS = "count", "sendcount", "recvcount", "origin_count", "target_count", "result_count"
PEERS = "dest", "source", "target_rank"


def counts(given: Given) -> Value | None:
    """The smallest of its counts, which is the one that may be wrong."""
    found = [value for name in COUNTS if (value := given.value(name)) is not None and value.number is not None]
    return min(found, key=lambda one: one.number or 0, default=None)


def peer(given: Given) -> Value | None:
    """Of the ranks that it is about, that which is farthest from those of its communicator."""
    found = [value for name in PEERS if (value := given.value(name)) is not None]
    most = len(given.comm.peers) - 1 if given.comm is not None else 0

    def out(one: Value) -> int:
        if one.number is None or one.names:
            return -1
        return max(-one.number, one.number - most, 0)

    return max(found, key=out, default=None)


def step(given: Given) -> Value | None:
    return None if given.step == ABSENT else plain(given.step)


ATTRIBUTES: dict[str, Callable[[Given], Value | None]] = {
    "new": new,
    "result": result,
    "match": match,
    "function": function,
    "last": last,
    "bytes": bytes_,
    "got_source": lambda given: got(given, 0),
    "got_tag": lambda given: got(given, 1),
    "step": step,
    "tag_ub": tag_ub,
    "types": types,
    "counts": counts,
    "peer": peer,
}
