"""What lies in an OTF2 archive: its ranks, and the calls of each; and how one is understood that others wrote.

(1) What an archive of others does not say is judged as the worst it may be: each receive as one for any source and tag,
    a collective call that did not return as one on MPI_COMM_WORLD. What is left out altogether, a remark names.
(2) A communicator has one definition for all ranks: each rank has its own in the order of these.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from safepoint.matching import spoken
from safepoint.matching.spoken import COLLECTIVES, Event, Note, Spoken, kind_of
from safepoint.matching.symbols import Site
from safepoint.trace import record, roles
from safepoint.trace.known import ranges
from safepoint.trace.record import ANY_SOURCE, ANY_TAG, NONE, WILD_SOURCE, WILD_TAG

NS = 10**9
ALONE = "-"  # function of an event that is in no call
WILD = {"peer": ANY_SOURCE, "tag": ANY_TAG, "flags": WILD_SOURCE | WILD_TAG}
VALUES = {
    "MpiSend": "receiver communicator msg_tag msg_length",
    "MpiIsend": "receiver communicator msg_tag msg_length request_id",
    "MpiRecv": "sender communicator msg_tag msg_length",
    "MpiIrecv": "sender communicator msg_tag msg_length request_id",
    "MpiIsendComplete": "request_id", "MpiIrecvRequest": "request_id", "MpiRequestTest": "request_id",
    "MpiRequestCancelled": "request_id", "NonBlockingCollectiveRequest": "request_id", "MpiCollectiveBegin": "",
    "MpiCollectiveEnd": "collective_op communicator root size_sent size_received",
    "NonBlockingCollectiveComplete": "collective_op communicator root size_sent size_received request_id",
    "RmaCollectiveBegin": "", "RmaCollectiveEnd": "collective_op win", "RmaGroupSync": "win",
    "RmaPut": "win remote bytes matching_id", "RmaGet": "win remote bytes matching_id",
    "RmaAtomic": "win remote bytes_sent matching_id", "RmaAcquireLock": "win remote", "RmaReleaseLock": "win remote",
    "RmaOpCompleteNonBlocking": "win matching_id", "MpiProbe": "sender communicator tag message_id",
    "MpiMrecv": "message_id msg_length", "MpiImrecvRequest": "message_id request_id",
    "MpiImrecv": "request_id msg_length",
}  # fmt: skip
BY_ITSELF = {
    "MpiSend": "Send", "MpiIsend": "Isend", "MpiRecv": "Recv", "MpiIrecvRequest": "Irecv", "MpiIrecv": "Wait",
    "MpiIsendComplete": "Wait", "MpiRequestCancelled": "Wait", "NonBlockingCollectiveRequest": "Iallreduce",
    "NonBlockingCollectiveComplete": "Wait",
}  # fmt: skip
BY_OPERATION = {name: name.capitalize() for name in COLLECTIVES} | {
    "CREATE_HANDLE": "Comm_dup", "CREATE_HANDLE_AND_ALLOCATE": "Comm_dup", "DESTROY_HANDLE": "Comm_free",
    "DESTROY_HANDLE_AND_DEALLOCATE": "Comm_free",
}  # fmt: skip
ON_COMM = {"send", "isend", "recv", "irecv", "sendrecv", "isendrecv", "coll", "icoll", "comm_new", "icomm_new",
           "comm_free", "win_new"}  # fmt: skip
ON_WIN = {"win_coll", "win_free", "put", "iput", "win_open", "win_close", "win_expose", "win_exposed"}
LEFT_OUT = {
    "probe": "what a probe has found", "init": "which requests are persistent: each start is judged as a new one",
    "file": "what is done with files: that is left out", "win": "of some calls their window: those are left out",
    "comm": "which communicators some calls have made or freed: those are left out",
    "line": "in which lines the calls are: each stands where its function begins",
    "coll": "on what communicators some collective calls are: no place after them is called legal",
    "open": "from whom a receive was that is never completed, and on what communicator",
}  # fmt: skip


class Ranks(NamedTuple):
    size: int
    groups: list[Any]  # of each rank its location group
    where: dict[int, tuple[int, int]]  # of each location the rank and the thread
    paradigm: Any  # of MPI: there may be communicators of others, such as of a graphics card


def ranks(otf2: Any, archive: Any) -> Ranks:
    """Raises ValueError."""
    define = archive.definitions
    lists = [group for group in define.groups if group.group_type == otf2.GroupType.COMM_LOCATIONS]
    members = [group for group in lists if group.paradigm == otf2.Paradigm.MPI]
    if not members:
        raise ValueError("it has no ranks of MPI")
    main, threads = members[0].members, Counter[int]()
    of_group = {location.group._ref: rank for rank, location in enumerate(main)}
    where = {location._ref: (rank, 0) for rank, location in enumerate(main)}
    for location in define.locations:
        rank = of_group.get(location.group._ref)
        if rank is not None and location._ref not in where:
            threads[rank] += 1
            where[location._ref] = rank, threads[rank]
    return Ranks(len(main), [location.group for location in main], where, otf2.Paradigm.MPI)


# The calls, of any archive.


class Thread:
    """What a thread is in the middle of."""

    def __init__(self) -> None:
        self.stack: list[tuple[int, Spoken | Site]] = []  # regions, each with what it is

    def leave(self, region: int) -> Spoken | None:
        """The call that ends. What was entered since and not left has not returned."""
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth][0] == region:
                found = self.stack[depth][1]
                del self.stack[depth:]
                return found if isinstance(found, Spoken) else None
        return None

    def call(self) -> Spoken | None:
        """That which it is in."""
        last = self.stack[-1][1] if self.stack else None
        return last if isinstance(last, Spoken) else None

    def site(self) -> Site:
        return next((one for _, one in reversed(self.stack) if isinstance(one, Site)), Site("", 0, ""))


def calls(archive: Any, found: Ranks, prefix: str) -> tuple[list[list[Spoken]], int]:
    """Of each rank, in the order in which they begin; and how many events are missing at the ends of files that are
    torn, since the library does not tell. Attributes and parameters with this prefix are ours."""
    operations: dict[int, str] = {}
    clock, all_calls = archive.definitions.clock_properties, list[list[Spoken]]([[] for _ in range(found.size)])
    threads: dict[int, Thread] = defaultdict(Thread)
    orders = list[dict[int, int]]([{} for _ in range(found.size)])
    missing = sum(location.number_of_events for location in archive.definitions.locations)
    for location, event in archive.events:
        missing -= 1
        if location._ref not in found.where:
            continue
        rank, number = found.where[location._ref]
        time, thread, name = _ns(event.time, clock), threads[location._ref], type(event).__name__
        if name in ("Enter", "CallingContextEnter"):
            if (begun := _entered(event, thread, number, time, prefix)) is not None:
                if prefix + "note" in (texts := _attributes(event)):
                    orders[rank][id(begun)] = texts[prefix + "note"]
                all_calls[rank].append(begun)
        elif name in ("Leave", "CallingContextLeave"):
            if (ended := thread.leave(_region(event)._ref)) is not None:
                ended.leave = time
        elif name == "ParameterInt" and event.parameter.name == prefix + "more":
            if (call := thread.call()) is not None:
                call.row += (event.value,)
        elif name in VALUES:
            if (call := thread.call()) is None:
                call = Spoken(ALONE, number, time, time, thread.site())
                all_calls[rank].append(call)
            call.events.append(_said(name, event, operations))
    for one, order in zip(all_calls, orders, strict=True):
        if order:
            one.sort(key=lambda call: order.get(id(call), 0))
    return all_calls, max(0, missing)


def _ns(time: int, clock: Any) -> int:
    if clock.timer_resolution == NS:
        return time
    ns: int = (time - min(time, clock.global_offset)) * NS // clock.timer_resolution
    return ns


def _region(event: Any) -> Any:
    context = getattr(event, "calling_context", None)
    return event.region if context is None else context.region


def _attributes(event: Any) -> dict[str, Any]:
    return {attribute.name: value for attribute, value in (event.attributes or {}).items()}


def _entered(event: Any, thread: Thread, number: int, time: int, prefix: str) -> Spoken | None:
    region, context = _region(event), getattr(event, "calling_context", None)
    function = _function(region.name, prefix)
    if function is None:
        site = Site(region.source_file or region.name, region.begin_line_number, region.name)
        thread.stack.append((region._ref, site))
        return None
    site = thread.site()
    if context is not None and context.source_code_location is not None:
        around = context.parent.region.name if context.parent else ""
        site = Site(context.source_code_location.file, context.source_code_location.line_number, around)
    own = {name[len(prefix) :]: value for name, value in _attributes(event).items() if name.startswith(prefix)}
    own.pop("note", None)
    if (where := own.pop("site", None)) is not None:
        line = where.source_code_location
        site = Site(line.file, line.line_number, where.region.name if where.region.name != "?" else "")
    call = Spoken(function, number, time, None, site, own=own)
    thread.stack.append((region._ref, call))
    return call


def _function(name: str, prefix: str) -> str | None:
    """That this region is a call of, as roles name it; of ours too; None: it is one of the program."""
    if name.startswith(prefix):
        return name[len(prefix) :]
    word = name.removeprefix("P")
    if word[:4].upper() != "MPI_":
        return None
    return _BY_NAME.get(word[4:].lower().rstrip("_").removesuffix("_c"), word[4:])


_BY_NAME = {name.lower(): name for name in roles.ROLES}


def _said(name: str, event: Any, operations: dict[int, str]) -> Event:
    values = list[Any]()
    for field in VALUES[name].split():
        value = getattr(event, field)
        if field == "communicator":
            value = "comm", value._ref
        elif field == "win":
            value = "win", value._ref
        elif field == "collective_op":
            if not operations:
                operations |= {getattr(type(value), word).value: word for word in dir(type(value)) if word.isupper()}
            value = operations.get(value.value, "ALLREDUCE")
        elif field == "remote" and value >= 2**31:
            value = NONE  # all of them
        values.append(value)
    return (name, *values)


# Archives of others.


def things(archive: Any, found: Ranks) -> list[list[tuple[dict[str, Any], Any]]]:
    """(2). Of each rank the lines of its communicators and windows, each with what names its definition."""
    define, tables = archive.definitions, list[list[tuple[dict[str, Any], Any]]]([[] for _ in range(found.size)])
    members, world = dict[int, list[int]](), list(range(found.size))
    for comm in (comm for comm in define.comms if comm.group.paradigm == found.paradigm):
        members[comm._ref] = [found.where[one._ref][0] for one in comm.group.members]
    first = next((ref for ref, own in members.items() if own == world), None)
    if first is None:
        raise ValueError("it has no communicator of all ranks")
    own = next((ref for ref, those in members.items() if not those), None)  # MPI_COMM_SELF, of each
    for rank in world:
        tables[rank] = [
            ({"kind": "comm", "name": "MPI_COMM_WORLD", "members": ranges(world)}, ("comm", first)),
            ({"kind": "comm", "name": "MPI_COMM_SELF", "members": str(rank)}, ("comm", own)),
        ]
    for ref, ranks_ in members.items():
        text, of_each = ranges(ranks_), world if not ranks_ and ref != own else []  # another one of each rank alone
        for rank in (*ranks_, *of_each) if ref != first else ():
            line = {"kind": "comm", "name": define.comms[ref].name, "members": text or str(rank)}
            tables[rank].append((line, ("comm", ref)))
    for win in (win for win in define.rma_wins if win.comm._ref in members):
        over = members[win.comm._ref]
        for rank in over or world:
            line = {"kind": "win", "name": win.name, "members": ranges(over or [rank])}
            tables[rank].append((line, ("win", win._ref)))
    return tables


def understood(archive: Any, all_calls: list[list[Spoken]]) -> list[str]:
    """Make of the calls of each rank those that `spoken` understands; and what is to be said of them."""
    missing = dict.fromkeys(LEFT_OUT, False)
    of_win = {("win", win._ref): ("comm", win.comm._ref) for win in archive.definitions.rma_wins}
    for own in all_calls:
        messages: dict[int, list[Any]] = {}
        own[:] = [call for one in own for call in _understood(one, messages, of_win, missing)]
        begun = {event[-1] for call in own for event in call.events if event[0] == "MpiIrecvRequest"}
        missing["open"] |= bool(begun - {event[-1] for call in own for event in call.events if event[0] == "MpiIrecv"})
        missing["line"] |= any(kind_of(call.function) != roles.LOCAL for call in own)
    if any(True for _ in archive.definitions.calling_contexts):
        missing["line"] = False
    first = "this OTF2 does not say which receives were wildcards: each is judged as if it was for any source and tag"
    return [first, *(f"this OTF2 does not say {LEFT_OUT[name]}" for name, here in missing.items() if here)]


def _understood(
    call: Spoken, messages: dict[int, list[Any]], of_win: dict[Any, Any], missing: dict[str, bool]
) -> Iterator[Spoken]:  # fmt: skip
    kind, call.own, call.row = kind_of(call.function), {}, ()
    call.events = [_older(event, messages) for event in call.events]
    names = {event[0] for event in call.events}
    if kind in ("probe", "iprobe", "mprobe", "improbe"):
        yield _probed(call, missing)
    elif kind in ("mrecv", "imrecv"):
        missing["probe"] |= not names
        if names:
            yield dataclasses.replace(call, function="Recv" if kind == "mrecv" else "Irecv")
    elif kind.endswith("_init"):
        missing["init"] = True
    elif kind.startswith("file"):
        missing["file"] = True
    elif kind in ("start", "startall", roles.OTHER, roles.LOCAL):
        yield from _apart(call)
    elif kind in ON_WIN and not any(name.startswith("Rma") for name in names):
        missing["win"] = True
    elif kind == "win_new":
        call.events = [
            ("MpiCollectiveEnd", "CREATE_HANDLE", of_win[event[2]], spoken.NO_ROOT, 0, 0)
            for event in call.events if event[0] == "RmaCollectiveEnd"
        ] or call.events  # fmt: skip
        if call.events:
            yield call
    elif kind not in ON_COMM or names - {"MpiCollectiveBegin"}:
        yield call
    elif call.leave is None or kind in ("coll", "icoll"):
        missing["coll"] |= call.leave is not None
        call.own = dict(WILD if kind == "recv" else {}, comm=record.WORLD)
        yield dataclasses.replace(call, leave=None)
    elif kind in ("comm_new", "icomm_new", "comm_of_group", "comm_free"):
        missing["comm"] = True


def _older(event: Event, messages: dict[int, list[Any]]) -> Event:
    """Those of matched probes, as receives: OTF2 has them since 3.1."""
    name, *values = event
    if name == "MpiProbe":
        messages[values[3]] = values[:3]
    elif name == "MpiMrecv" and values[0] in messages:
        return ("MpiRecv", *messages[values[0]], values[1])
    elif name == "MpiImrecvRequest":
        messages[-1 - values[1]] = messages.get(values[0], [])
        return "MpiIrecvRequest", values[1]
    elif name == "MpiImrecv" and messages.get(-1 - values[0]):
        return ("MpiIrecv", *messages[-1 - values[0]], values[1], values[0])
    elif name == "RmaGroupSync":
        return "RmaCollectiveEnd", "BARRIER", values[0]
    return event


def _probed(call: Spoken, missing: dict[str, bool]) -> Spoken:
    """One that only looks, since its message is received as any other."""
    function = "Iprobe" if kind_of(call.function).startswith("i") else "Probe"
    found = [event for event in call.events if event[0] == "MpiProbe"]
    own = dict(WILD, comm=record.WORLD)
    if found:
        _, source, comm, tag, _ = found[0]
        own |= {"comm": comm, "got_peer": source, "got_tag": tag, "flags": own["flags"] | record.FOUND}
    missing["probe"] |= not found
    return dataclasses.replace(call, function=function, events=[], own=own)


def _apart(call: Spoken) -> Iterator[Spoken]:
    """Each event as a call."""
    for event in call.events:
        function = BY_OPERATION.get(event[1], "") if event[0] == "MpiCollectiveEnd" else BY_ITSELF.get(event[0], "")
        if function:
            yield dataclasses.replace(call, function=function, events=[event])


def widen(function: str, note: Note) -> None:
    """(1)."""
    kind = kind_of(function)
    if kind in ("recv", "irecv"):
        note |= {**WILD, "flags": note["flags"] | WILD["flags"]}
    if kind in ("sendrecv", "isendrecv"):  # there is no event of what goes to nobody, or comes from nobody
        note["flags"] |= WILD["flags"] if note["got_peer"] >= 0 else 0
        note["peer"] = note["peer"] if note["peer"] >= 0 else record.PROC_NULL
        note["got_peer"] = note["got_peer"] if note["got_peer"] >= 0 else record.PROC_NULL
    if kind in ("irecv", "icoll", "icomm_new") and not note["comm"]:
        note["comm"] = record.WORLD
