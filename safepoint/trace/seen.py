"""What the Python tracer knows while the program runs: communicators, requests, sites, and what is under way.

(1) A communicator is known by its handle until it is freed: a copy of the object is the same one. A request is known
    by its object: an MPI library may give one handle to several sends that are complete at once.
(2) Whatever fails in here ends the noting, and never reaches the program: `stop` says once why.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from types import FrameType
from typing import Any

from safepoint.trace import roles
from safepoint.trace.known import Begun, Known, Persistent, items_of, ranges
from safepoint.trace.record import (
    ANY_SOURCE,
    CANCELLED,
    HEADER,
    LAYOUT,
    NO_RESULT,
    NONE,
    NOTE,
    PARTIAL,
    PROC_NULL,
    RAISED,
    RETURNED,
    ROOT,
    SELF,
    UNKNOWN,
    WORLD,
    Full,
    Notes,
    say,
)  # fmt: skip

SENDING = roles.numbers("send", "isend", "start", "startall")
TAKING = roles.numbers("recv", "sendrecv", "isendrecv", "mrecv", "mprobe", "improbe") | roles.numbers(*roles.WAITS)
WRAPPERS = "<safepoint trace>"  # the file of their code
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Seen:
    """All of it, for one process."""

    def __init__(self, notes: Notes, mpi: Any, plain: dict[str, Any], checking: bool = False) -> None:
        self.notes, self._mpi, self._plain = notes, mpi, plain
        self.checking = checking  # check mode: not all calls are noted, and an unknown thing is no fault
        self.special = {mpi.ANY_SOURCE: ANY_SOURCE, mpi.PROC_NULL: PROC_NULL, mpi.ROOT: ROOT}
        if checking:
            self.special = defaultdict(lambda: NONE, self.special)  # ARGUMENTS has what was given
        self._finalized = mpi.Is_finalized
        self._refusals = {getattr(mpi, f"ERR_{what}") for what in ("RANK", "TAG", "COUNT", "TYPE", "COMM", "BUFFER")}
        self.stopped = ""
        self.sites: dict[tuple[int, int], int] = {}
        self._codes: list[Any] = []  # so that no other code gets the address of one of these
        self._lines: list[str] = []
        self._bare = 0
        self.request = itertools.count(1).__next__
        self.epochs = 0
        self.open, Begun.dropped = Begun.open, staticmethod(self.dropped)
        self.unsure = False  # a call has failed: what is under way cannot be told any more
        self.cancelled: set[int] = set()
        self.main = threading.get_ident()
        self._threads = {self.main: 0}
        self._handles: dict[int, Known] = {}
        self._known: list[Known] = []
        world = plain["COMM_WORLD"]
        self._group, self.size, self.rank = world.Get_group(), world.Get_size(), world.Get_rank()
        for comm, name, peers in (
            (world, "MPI_COMM_WORLD", range(self.size)),
            (plain["COMM_SELF"], "MPI_COMM_SELF", (self.rank,)),
        ):
            self._add(comm, {"kind": "comm", "name": name, "parent": 0, "note": -1, "members": ranges(peers)}, peers)
        self._past = Known(0, 0, range(self.size))  # of all that were freed
        self.nobody = Known(0, -1, ())
        assert (self._known[0].number, self._known[1].number) == (WORLD, SELF)

    # Communicators, windows, files.

    def _add(self, thing: Any, line: dict[str, Any], peers: Sequence[int]) -> Known:
        known = Known(
            self.notes.objects.add(json.dumps(line)), thing.Get_rank() if line["kind"] == "comm" else 0, peers
        )
        known.line = line
        self._known.append(known)
        self._handles[thing.handle] = known
        return known

    def comm(self, comm: Any) -> Known:
        """Of a communicator that came from somewhere: of C, or a copy."""
        known = self._handles.get(comm.handle)
        if known is None and self.checking and (comm == self._plain["COMM_NULL"] or self._finalized()):
            return self.nobody
        if known is None:
            known = self.new(comm, 0, -1)
        with contextlib.suppress(AttributeError):  # one of mpi4py's own class, such as a default argument
            comm._noted = known
        return known

    def new(self, comm: Any, parent: int, at: int) -> Known:
        """Of one that this note has made."""
        line = {"kind": "comm", "name": "", "parent": parent, "note": (at - HEADER) // NOTE if at >= 0 else -1}
        group = comm.Get_group()  # of a topology with fewer processes MPICH 5.0 gives all of its parent's
        peers = self._in_world(group, line, "members", comm.Get_size())
        if comm.Is_inter():
            remote = comm.Get_remote_group()
            peers = self._in_world(remote, line, "remote")
            remote.Free()
        group.Free()
        return self._add(comm, line, peers)

    def _in_world(self, group: Any, line: dict[str, Any], name: str, most: int | None = None) -> list[int]:
        found = [
            rank if rank >= 0 else -1
            for rank in self._plain["Group"].Translate_ranks(group, list(range(group.Get_size())), self._group)
        ][:most]
        if -1 in found:
            line["outside"] = True
        line[name] = ranges(found)
        return found

    def thing(self, kind: str, thing: Any, over: Any, at: int) -> Known:
        """Of a window or file over a communicator that this note has made."""
        comm = self.comm(over)
        line = {"kind": kind, "name": "", "parent": comm.number, "note": (at - HEADER) // NOTE}
        group = thing.Get_group()
        self._in_world(group, line, "members", over.Get_size())
        group.Free()
        known = self._add(thing, line, ())
        thing._noted = known
        return known

    def any_thing(self, thing: Any) -> Known:
        known = self._handles.get(thing.handle)
        if known is None and self.checking:
            return self.nobody
        if known is None:
            raise LookupError(f"a {type(thing).__name__} that was made where this does not look")
        return known

    def forget(self, handle: int) -> None:
        """It is being freed: another may get its handle. What was sent with it still counts."""
        known = self._handles.pop(handle, None)
        if known is not None:
            known.move(self._past)

    # Requests. What `_noted` of a request's object is: a tuple, `Persistent`, or None when nothing is open.

    def current(self, request: Any) -> tuple[Any, ...] | None:
        found = getattr(request, "_noted", None)
        return found.running if type(found) is Persistent else found

    def idup(self, new: Any, parent: Known, at: int) -> Known:
        """Of a communicator that is not complete yet: it has the members of this one."""
        line = {**parent.line, "name": "", "parent": parent.number, "note": (at - HEADER) // NOTE}
        known = Known(0, parent.rank, parent.peers)
        known.line = line
        known.number = self.notes.objects.add(json.dumps(line))
        self._known.append(known)
        self._handles[new.handle] = known
        return known

    def completed(self, request: Any, what: tuple[Any, ...], status: Any) -> tuple[int, int]:
        """The source and tag of what it received; NONE if it was no receive. `status` may be None where nothing is
        wild or was cancelled."""
        if type(request._noted) is Persistent:
            request._noted.running = None
        else:
            request._noted = None
        self.open.discard(what[0])
        number, receives, comm, peer, tag, wild = what
        if status is None and (wild or number in self.cancelled):  # the program's own list had no room for it
            self.unsure = True
            return NONE, NONE
        if number in self.cancelled and status.Is_cancelled():
            if not receives and peer >= 0:
                comm.sent[peer] -= 1
            return CANCELLED, NONE
        if not receives:
            return NONE, NONE
        if wild:
            peer, tag = status.Get_source(), status.Get_tag()
        if peer >= 0:
            comm.got[peer] += 1
            return peer, tag
        return self.special.get(peer, peer), NONE

    def needs_status(self, what: tuple[Any, ...]) -> bool:
        return bool(what[5]) or (bool(self.cancelled) and what[0] in self.cancelled)

    # Sites, threads, buffers.

    def site(self, frame: FrameType) -> int:
        """The number of a new one; 0: the call is the library's own, and is not noted."""
        code = frame.f_code
        number = 0
        if not code.co_filename.startswith(PACKAGE) and not (self.checking and code.co_filename == WRAPPERS):
            number = self.add_site(frame)
        self._codes.append(code)
        self.sites[id(code), frame.f_lasti] = number
        return number

    def add_site(self, frame: FrameType) -> int:
        code = frame.f_code
        words = "py", code.co_filename, str(frame.f_lineno), getattr(code, "co_qualname", code.co_name)
        number = self.notes.sites.add("\t".join(" ".join(word.split("\t")).replace("\n", " ") for word in words))
        self._lines.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno}")
        return number

    def no_site(self, error: Exception) -> int:
        """The number of that of a call that no Python has made, such as one at the end of the program. After a failure
        0: nothing is noted any more."""
        try:
            if not self._bare and isinstance(error, ValueError):
                self._bare = self.notes.sites.add("py\t?\t0\t-")
                self._lines.append("?")
        except Exception as failure:
            error = failure
        if not self._bare:
            self.stop(error)
        return self._bare

    def thread(self) -> int:
        return self._threads.setdefault(threading.get_ident(), len(self._threads))

    def bytes(self, buffer: Any) -> int:
        """Of a buffer as mpi4py takes it."""
        try:
            return int(buffer.nbytes)
        except AttributeError:
            pass
        if isinstance(buffer, (bytes, bytearray)):
            return len(buffer)
        items = items_of(buffer)
        if not 1 <= len(items) <= 3 or items[0] is None:
            return UNKNOWN
        first, *rest = items
        counted = [item for item in rest if isinstance(item, int)]
        types = [item for item in rest if isinstance(item, self._plain["Datatype"])]
        if len(rest) == len(counted) + len(types) and counted and types:
            return counted[0] * int(types[0].Get_size())
        return self.bytes(first) if not counted and len(rest) == len(types) else UNKNOWN

    # What is under way, and the end.

    def counters(self, comm: Any) -> tuple[int, int, int, int]:
        """For the exact check of `hide`: messages sent less those received, with the members of this communicator;
        open requests; open epochs; and whether this rank has stopped noting, or cannot tell. Raises nothing."""
        try:
            if self.stopped or self.unsure or len(self._threads) > 1:
                return 0, 0, 0, 1
            members = (self._handles.get(comm.handle) or self.comm(comm)).peers
            return self._flying(members), len(self.open), self.epochs, 0
        except Exception as error:
            self.stop(error)
            return 0, 0, 0, 1

    def _flying(self, members: Sequence[int]) -> int:
        chosen = None if len(members) == self.size else set(members)
        return sum(known.net(chosen) for known in (self._past, *self._known) if known.sent or known.got)

    def in_world(self, comm: Any) -> list[int]:
        """The members of a communicator as ranks of the world."""
        group = comm.Get_group()
        members = self._in_world(group, {}, "")
        group.Free()
        return members

    def world(self, number: int, rank: int) -> int:
        """The rank in the world of one that is addressed by the communicator of this number."""
        return self._known[number - 1].world(rank)

    def members(self, number: int) -> str:
        """By which another rank knows the communicator of this number."""
        return ranges(self._known[number - 1].peers)

    def line(self, site: int) -> str:
        """File and line of a site, as a user reads it."""
        return self._lines[site - 1]

    def grow(self, at: int) -> None:
        if self.stopped:
            raise Full(self.stopped)
        self.notes.grow(at)

    def raised(self, at: int, error: BaseException) -> None:
        """The call has raised. What it has sent or received before, nobody knows."""
        try:
            function = int.from_bytes(self.notes.map[at + 20 : at + 22], "little")
            number = NO_RESULT
            if isinstance(error, self._plain["Exception"]):
                number = error.Get_error_class()
            refused = number in self._refusals or (number == NO_RESULT and isinstance(error, Exception))
            if function in TAKING or (function in SENDING and not refused):
                self.unsure = True
            self.notes.map[at + 62 : at + 64] = bytes((min(255, max(0, number)), RAISED))
        except Exception as failure:
            self.stop(failure)

    def freed(self, what: tuple[Any, ...]) -> None:
        """A request that is open. When it receives, nobody learns of it."""
        self.open.discard(what[0])
        self.unsure = self.unsure or bool(what[1])

    def dropped(self, what: tuple[Any, ...]) -> None:
        """The program has forgotten a request that is open. It is noted as `Request_free`."""
        try:
            self.freed(what)
            if self.stopped or self.checking:  # the program has called nothing
                return
            at, now = self.notes.advance(), time.monotonic_ns()
            if at >= self.notes.end:
                self.grow(at)
            number, thread = roles.NUMBERS["Request_free"], self.thread()
            LAYOUT.pack_into(
                self.notes.map, at, now, now, 0, number, 0, *[NONE] * 4, 0, what[0], 0, 0, thread, 0, RETURNED
            )
        except Exception as error:
            self.stop(error)

    def unnoted(self, error: Exception, note: tuple[int, int, int], plain: Any, *words: Any) -> Any:
        """Make the call that could not be noted: with an argument that MPI does not take, as a rule, and it says so
        itself. If it is right, and the noting is not, that ends here. `note`: place, site and function; what comes
        after an empty note would not be read."""
        at, site, function = note
        if at and at + NOTE <= self.notes.end and not self.stopped:
            now = time.monotonic_ns()
            LAYOUT.pack_into(self.notes.map, at, now, now, site, function, PARTIAL, *[NONE] * 4, UNKNOWN, 0, 0, 0,
                             self.thread(), NO_RESULT, RAISED)  # fmt: skip
        result = plain(*words)
        self.stop(error)
        return result

    def stop(self, error: BaseException | str) -> None:
        if self.stopped:
            return
        self.stopped = str(error) or type(error).__name__
        self.notes.stop()
        cause = error if isinstance(error, (Full, str)) else f"{type(error).__name__}: {error}"
        say(f"rank {self.rank} stopped noting: {cause}")
        with contextlib.suppress(Exception):
            self.notes.say(stopped=self.stopped)
