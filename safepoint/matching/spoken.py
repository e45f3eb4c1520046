"""The calls of a rank as OTF2 speaks of them: what events a call has there, and which note such events make.

OTF2 has a region for each call (`MPI_Irecv`), and events in it: a message is sent, received, a request is open, is
complete. It says nothing of probes, of persistent requests, of what a receive asked for, of the rows of `.more`.

(1) `spoken` is exact: a field of a note that `noted` would not find in the events of its call is in `Spoken.own`, and
    goes into an attribute. So the way there and back is the identity, and the events are what other tools know.
(2) What `own` says comes after all else: it is not looked at when the events of later calls are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from safepoint.matching.symbols import Site
from safepoint.trace import record, roles
from safepoint.trace.record import CANCELLED, COMPLETED, ENTERED, FOUND, NONE, PERSISTENT, PROC_NULL, RETURNED

Note = dict[str, int]
Row = tuple[int, ...]  # kind, values …; only a kind of 0: there is none
Event = tuple[Any, ...]  # name of OTF2, its values; a communicator or window as its number on this rank
FIELDS = tuple(name for name in record.FIELDS if name not in ("site", "function", "more", "thread"))
EMPTY = dict.fromkeys(FIELDS, 0)
NOTHING = "none"  # function of an empty note
SINGLE, SEVERAL = ("wait", "test"), ("waitall", "waitany", "waitsome", "testall", "testany", "testsome")
SENDS, BOTH = ("send", "isend", "send_init"), ("sendrecv", "isendrecv")
LOCKS = {"Win_lock": "RmaAcquireLock", "Win_unlock": "RmaReleaseLock"}
HANDLES = {"comm_new": "CREATE_HANDLE", "icomm_new": "CREATE_HANDLE", "win_new": "CREATE_HANDLE",
           "comm_free": "DESTROY_HANDLE", "win_free": "DESTROY_HANDLE"}  # fmt: skip
COLLECTIVES = (
    "BARRIER", "BCAST", "GATHER", "GATHERV", "SCATTER", "SCATTERV", "ALLGATHER", "ALLGATHERV", "ALLTOALL", "ALLTOALLV",
    "ALLTOALLW", "ALLREDUCE", "REDUCE", "REDUCE_SCATTER", "SCAN", "EXSCAN", "REDUCE_SCATTER_BLOCK",
)  # fmt: skip
OPENS = "MpiIsend", "MpiIrecvRequest", "NonBlockingCollectiveRequest"
NO_ROOT = 2**32 - 1


@dataclass(slots=True)
class Spoken:
    """A call."""

    function: str
    thread: int
    enter: int
    leave: int | None  # it has not returned
    site: Site
    events: list[Event] = field(default_factory=list)
    own: Note = field(default_factory=dict)
    row: Row = ()


def kind_of(function: str) -> str:
    return "ours" if function in roles.OURS.values() else roles.kind(function)


# From notes to events.


class Speaker:
    """Of one rank. `named`: the communicators and windows, by number, that OTF2 can name."""

    def __init__(self, named: set[int]) -> None:
        self._named = named
        self._open: dict[int, tuple[str, Note]] = {}  # of each request what it is: its function, and the note of that
        self._lasting: dict[int, tuple[str, Note]] = {}

    def events(self, function: str, note: Note, row: Row) -> list[Event]:
        """What OTF2 has of this call. Nothing of one that raised."""
        kind, events = kind_of(function), list[Event]()
        if note["state"] not in (ENTERED, RETURNED):
            return events
        if kind.endswith("_init"):
            self._lasting[note["request"]] = function, note
        elif kind in ("start", "startall"):
            for handle, instance in zip(row[1::2], row[2::2], strict=False):
                if handle in self._lasting:
                    events += self._opened(*self._lasting[handle], instance)
        elif kind in (*SINGLE, *SEVERAL, "request_free"):
            events += self._completed(kind, note, row)
        elif note["request"] and kind not in ("cancel", "mprobe", "improbe", "mrecv"):
            events += self._opened(function, note, note["request"])
        elif note["comm"] in self._named:
            events += self._plain(function, kind, note)
        return events

    def _plain(self, function: str, kind: str, note: Note) -> Iterator[Event]:
        """Of a call that has no request."""
        returned, where = note["state"] == RETURNED, (note["comm"], *_size(note))
        if kind in ("send", "sendrecv") and _named(note, "peer", "tag"):
            yield "MpiSend", note["peer"], note["comm"], note["tag"], where[1]
        if kind in ("recv", "sendrecv") and returned and _named(note, "got_peer", "got_tag"):
            yield "MpiRecv", note["got_peer"], note["comm"], note["got_tag"], where[1]
        if (op := operation(function)) and kind != "win_free":
            yield ("MpiCollectiveBegin",)
            if returned:
                yield "MpiCollectiveEnd", op, note["comm"], _root(note), where[1], 0
        if kind in ("win_coll", "win_free"):
            yield ("RmaCollectiveBegin",)
            if returned:
                yield "RmaCollectiveEnd", HANDLES.get(kind, "BARRIER"), note["comm"]
        if kind == "put" and note["peer"] >= 0:
            yield "RmaGet" if function == "Get" else "RmaPut", note["comm"], note["peer"], where[1], 0
        if function in LOCKS and note["peer"] >= 0:
            yield LOCKS[function], note["comm"], note["peer"]

    def _opened(self, function: str, note: Note, request: int) -> Iterator[Event]:
        kind = kind_of(function)
        self._open[request] = function, note
        if note["comm"] not in self._named:
            return
        if kind in ("isend", "send_init", "isendrecv") and _named(note, "peer", "tag"):
            yield "MpiIsend", note["peer"], note["comm"], note["tag"], *_size(note), request
        if kind in ("irecv", "recv_init", "isendrecv") and note["peer"] != PROC_NULL:
            yield "MpiIrecvRequest", request
        if operation(function):
            yield "NonBlockingCollectiveRequest", request
        if kind == "iput" and note["peer"] >= 0:
            yield "RmaGet" if function == "Rget" else "RmaPut", note["comm"], note["peer"], *_size(note), request

    def _completed(self, kind: str, note: Note, row: Row) -> Iterator[Event]:
        if note["state"] != RETURNED or (kind == "test" and not note["flags"] & FOUND):
            return
        one = note["request"], note["got_peer"], note["got_tag"]
        done = zip(row[1::3], row[2::3], row[3::3], strict=False) if kind in SEVERAL else [one]
        for request, source, tag in done:
            if request in self._open:
                yield from self._done(*self._open.pop(request), request, source, tag)

    def _done(self, function: str, what: Note, request: int, source: int, tag: int) -> Iterator[Event]:
        kind = kind_of(function)
        if what["comm"] not in self._named:
            return
        if source == CANCELLED:
            yield "MpiRequestCancelled", request
            return
        if kind in ("isend", "send_init", "isendrecv") and _named(what, "peer", "tag"):
            yield "MpiIsendComplete", request
        if kind in ("irecv", "recv_init", "isendrecv") and source >= 0 and tag >= 0:
            yield "MpiIrecv", source, what["comm"], tag, *_size(what), request
        if op := operation(function):
            yield "NonBlockingCollectiveComplete", op, what["comm"], _root(what), *_size(what), 0, request
        if kind == "iput" and what["peer"] >= 0:
            yield "RmaOpCompleteNonBlocking", what["comm"], request


def _named(note: Note, peer: str, tag: str) -> bool:
    return note[peer] >= 0 and note[tag] >= 0


def _size(note: Note) -> tuple[int, ...]:
    return (note["bytes"] if note["bytes"] != record.UNKNOWN else 0,)


def _root(note: Note) -> int:
    return note["peer"] if note["peer"] >= 0 else NO_ROOT


def operation(function: str) -> str:
    """Of a collective call on a communicator the name that OTF2 has for it; none: it has no such event."""
    kind = kind_of(function)
    if kind in HANDLES:
        return HANDLES[kind]
    name = function.upper().removesuffix("_INIT")
    if kind == "icoll":
        name = name[1:]
    if kind not in ("coll", "icoll", "coll_init"):
        return ""
    return name if name in COLLECTIVES else "ALLREDUCE" if name in ("COMM_AGREE", "COMM_IAGREE") else "ALLTOALL"


# From events to notes.


def noted(calls: Iterable[Spoken]) -> Iterator[tuple[Note, Row]]:
    """The note of each call and its row; those of requests are whole when all have been read. Without what is `own`."""
    begun: dict[int, tuple[str, Note]] = {}
    for call in calls:
        if call.function == NOTHING:
            yield dict(EMPTY), ()
            continue
        note = dict(EMPTY, peer=NONE, tag=NONE, got_peer=NONE, got_tag=NONE, enter=call.enter, state=ENTERED)
        note["result"] = record.NO_RESULT
        if call.leave is not None:
            note |= {"leave": call.leave, "state": RETURNED, "result": 0}
        kind, done = kind_of(call.function), dict[int, tuple[int, int]]()
        note["flags"] = PERSISTENT if kind.endswith("_init") else 0
        for event in call.events:
            _hear(event, call.function, note, done, begun)
        yield note, _complete(kind, note, done)


def _hear(
    event: Event, function: str, note: Note, done: dict[int, tuple[int, int]], begun: dict[int, tuple[str, Note]]
) -> None:  # fmt: skip
    """`done`: by request what came; `begun`: requests that are open."""
    name, *values = event
    kind = kind_of(function)
    if kind in ("start", "startall"):
        note["request"] = values[-1]
    elif name in ("MpiSend", "MpiIsend"):
        note["peer"], note["comm"], note["tag"], note["bytes"] = values[:4]
    elif name == "MpiRecv":
        note["got_peer"], note["comm"], note["got_tag"], note["bytes"] = values
        if kind not in BOTH:
            note["peer"], note["tag"] = note["got_peer"], note["got_tag"]
    elif name in ("MpiCollectiveEnd", "RmaCollectiveEnd"):
        _, note["comm"], *more = values
        if more:
            note["peer"], note["bytes"] = NONE if more[0] == NO_ROOT else more[0], more[1]
    elif name in ("RmaPut", "RmaGet", "RmaAcquireLock", "RmaReleaseLock"):
        note["comm"], note["peer"], *more = values
        note["bytes"] = more[0] if more else 0
    elif name == "MpiRequestTest":
        note["request"] = values[0]
    if name in OPENS or (kind == "iput" and name.startswith("Rma")):
        note["request"] = values[-1]
        begun[values[-1]] = function, note
    elif name in ("MpiIsendComplete", "MpiRequestCancelled"):
        done[values[0]] = (CANCELLED if name == "MpiRequestCancelled" else NONE), NONE
        begun.pop(values[0], None)
    elif name in ("MpiIrecv", "NonBlockingCollectiveComplete", "RmaOpCompleteNonBlocking"):
        _heard_end(name, values, done, begun)


def _heard_end(
    name: str, values: Sequence[Any], done: dict[int, tuple[int, int]], begun: dict[int, tuple[str, Note]]
) -> None:  # fmt: skip
    """What says of a request what it was, when it is complete."""
    request = values[-1]
    if name == "RmaOpCompleteNonBlocking":
        if begun.pop(request, None):  # else it is none of a request
            done[request] = NONE, NONE
        return
    function, of = begun.pop(request, ("", {}))
    if name == "MpiIrecv":
        source, comm, tag, size, _ = values
        done[request] = source, tag
        if kind_of(function) not in (*BOTH, "start", "startall"):
            of |= {"comm": comm, "peer": source, "tag": tag, "bytes": size}
    else:
        done[request] = NONE, NONE
        if kind_of(function) not in ("start", "startall"):
            root = values[2]
            of |= {"comm": values[1], "peer": NONE if root == NO_ROOT else root, "bytes": values[3]}


def _complete(kind: str, note: Note, done: dict[int, tuple[int, int]]) -> Row:
    if kind in SEVERAL:
        note["flags"] |= FOUND if done and kind.startswith("test") else 0
        return (COMPLETED, *(value for request, came in done.items() for value in (request, *came)))
    if done and kind in (*SINGLE, "request_free"):
        note["request"], (note["got_peer"], note["got_tag"]) = next(iter(done.items()))
        note["flags"] |= FOUND if kind == "test" else 0
    return ()


# Both ways.


def spoken(calls: list[Spoken], notes: list[tuple[Note, Row]], named: set[int]) -> None:
    """Give the calls of a rank, of which these are the notes, their events; and (1)."""
    speaker = Speaker(named)
    for call, (note, row) in zip(calls, notes, strict=True):
        call.events = speaker.events(call.function, note, row)
    for call, (note, row), (found, heard) in zip(calls, notes, list(noted(calls)), strict=True):
        call.own = {name: value for name, value in note.items() if value != found[name]}
        call.row = () if row == heard else row or (0,)


def heard(calls: list[Spoken]) -> list[tuple[Note, Row]]:
    """The notes of the calls of a rank."""
    return [
        (note | call.own, () if call.row == (0,) else call.row or row)
        for call, (note, row) in zip(calls, list(noted(calls)), strict=True)
    ]
