"""What is under way when all ranks are inside `hide`: the exact check, as each message is counted.

Every rank is in `hide`, so messages sent less messages received, added up over all ranks, is the number of those under
way: none is counted twice, and none can hide another. `Iprobe` sees only a message that nobody has asked for yet: not
one for which an `Irecv` is posted, nor one that `Mprobe` has taken.

Only if the sum is not zero does anybody look which message it is: the notes are read then, each once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

from safepoint.trace import record
from safepoint.trace.record import HEADER, LAYOUT, NOTE, RAISED
from safepoint.trace.roles import NUMBERS, ROLES
from safepoint.trace.seen import Seen

KINDS = {NUMBERS[name]: role.kind for name, role in ROLES.items()}
NAMES = {number: name for name, number in NUMBERS.items()}
RECEIVES = ("irecv", "isendrecv", "imrecv", "recv_init", "mprobe", "improbe")
NAMED = 3  # open requests that are named, and messages
Way = tuple[int, str, int]  # a rank of the world, the members of a communicator, a tag


class Story:
    """Of each message of this rank which way it went. It reads the notes, from where it was the time before."""

    def __init__(self, seen: Seen) -> None:
        self._seen, self._at = seen, HEADER
        self.sent: Counter[Way] = Counter()
        self.received: Counter[Way] = Counter()
        self.lines: dict[Way, int] = {}  # the site of the last send of each
        self.open: dict[int, tuple[int, ...]] = {}  # by number: function, site, comm, peer, tag
        self.taken: dict[int, tuple[int, ...]] = {}  # by Mprobe, and not received
        self._lasting: dict[int, tuple[int, ...]] = {}

    def read(self) -> None:
        """All notes that are new."""
        for note in LAYOUT.iter_unpack(memoryview(self._seen.notes.map)[self._at :]):
            if note[15] == record.EMPTY:
                break
            if note[15] != RAISED:
                self._note(*note)
            self._at += NOTE

    def _note(self, enter: int, leave: int, site: int, function: int, flags: int, peer: int, tag: int, got: int,
              got_tag: int, size: int, request: int, comm: int, more: int, *rest: int) -> None:  # fmt: skip
        kind = KINDS.get(function, "")
        what = function, site, comm, peer, tag
        if kind in ("send", "isend", "sendrecv", "isendrecv"):
            self._send(what)
        if kind in ("recv", "sendrecv", "mrecv"):
            self._receive(comm, got, got_tag)
        if kind in ("mprobe", "improbe") and request:
            self.taken[request] = function, site, comm, got, got_tag
        elif kind in ("mrecv", "imrecv"):
            self.taken.pop(self._row(more)[0] if kind == "imrecv" else request, None)
        if kind.endswith("_init"):
            self._lasting[request] = what
        elif kind in ("start", "startall"):
            row = self._row(more)
            for handle, number in zip(row[::2], row[1::2], strict=True):
                self.open[number] = self._lasting[handle]
                if KINDS[self._lasting[handle][0]] == "send_init":
                    self._send(self._lasting[handle])
        elif kind in ("wait", "test"):
            self._close(request, got, got_tag)
        elif kind in ("waitall", "waitany", "waitsome", "testall", "testany", "testsome"):
            row = self._row(more)
            for number, source, of in zip(row[::3], row[1::3], row[2::3], strict=True):
                self._close(number, source, of)
        elif kind == "request_free":
            self.open.pop(request, None)
        elif request and kind not in ("cancel", "mrecv") and not kind.endswith("probe"):
            self.open[request] = what

    def _row(self, index: int) -> list[int]:
        return self._seen.notes.row(index) if index else []

    def _send(self, what: tuple[int, ...]) -> None:
        _, site, comm, peer, tag = what
        if peer >= 0:
            way = self._seen.world(comm, peer), self._seen.members(comm), tag
            self.sent[way] += 1
            self.lines[way] = site

    def _receive(self, comm: int, source: int, tag: int) -> None:
        if source >= 0:
            self.received[self._seen.world(comm, source), self._seen.members(comm), tag] += 1

    def _close(self, request: int, source: int, tag: int) -> None:
        what = self.open.pop(request, None)
        if what is not None:
            self._receive(what[2], source, tag)


class Check:
    """`ranks.exact`: collective over a communicator of the program. Returns what is under way to this rank, or what it
    has open; nothing if there is nothing. None if that cannot be told, since some rank does not note any more."""

    def __init__(self, seen: Seen) -> None:
        self._seen, self._story = seen, Story(seen)
        self._total, self._members = array("q", bytes(32)), list[int]()

    def __call__(self, users: Any, comm: Any) -> str | None:
        seen = self._seen
        comm.Allreduce(array("q", seen.counters(users)), self._total)
        if self._total[3]:
            return None
        if not any(self._total):
            return ""
        sent = comm.alltoall(self._tables(users, comm.Get_size())) if self._total[0] else []
        if None in sent:  # one of the ranks cannot read what it has noted
            return None
        return "; ".join(self._messages(sent, comm.Get_rank()) or self._opened())

    def _tables(self, users: Any, size: int) -> list[Any]:
        """For each of the members: of the messages to it the communicator, tag, number, and the line of the last one.
        None: this rank has failed to find out, and the others wait for it."""
        try:
            self._members = self._seen.in_world(users)
            self._story.read()
            tables: list[list[tuple[str, int, int, str]]] = [[] for _ in self._members]
            order = {rank: index for index, rank in enumerate(self._members)}
            for way, count in self._story.sent.items():
                if way[0] in order:
                    line = self._seen.line(self._story.lines[way])
                    tables[order[way[0]]].append((way[1], way[2], count, line))
        except Exception as error:
            self._seen.stop(error)
            return [None] * size
        return tables

    def _messages(self, sent: list[Any], rank: int) -> list[str]:
        found, members = list[str](), self._members
        for source, table in enumerate(sent):
            for over, tag, count, line in table:
                missing = count - self._story.received[members[source], over, tag]
                if missing > 0 and len(found) < NAMED:
                    one = "a message" if missing == 1 else f"{missing} messages"
                    posted = self._posted(members[source], tag)
                    found.append(f"{one} from rank {source} to rank {rank}, with tag {tag}, sent at {line}{posted}")
        return found

    def _posted(self, source: int, tag: int) -> str:
        for function, site, comm, peer, wanted in (*self._story.taken.values(), *self._story.open.values()):
            if KINDS[function] not in RECEIVES or wanted not in (-1, tag):
                continue
            if peer == record.ANY_SOURCE or (peer >= 0 and self._seen.world(comm, peer) == source):
                return f", for which {NAMES[function]} at {self._seen.line(site)} is open"
        return ""

    def _opened(self) -> list[str]:
        """What this rank has open."""
        seen, found = self._seen, list[str]()
        try:
            self._story.read()
            kept = [row for number, row in self._story.open.items() if number in seen.open]
            found = [f"a request that {NAMES[row[0]]} at {seen.line(row[1])} has opened" for row in kept[:NAMED]]
        except Exception as error:
            seen.stop(error)
        return found + ["an access epoch of a window that is open"] * (seen.epochs > 0)
