"""Where one rank stands: in which calls it is, what it has open, and what it has sent, received and come to.

It is fed with the notes of the rank, as `tail` gives them. Nothing here knows of other ranks: `waiting` puts them
together. Sends and collective calls count when they are entered, receives when they return.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from safepoint.check.named import Named, kind_of
from safepoint.check.tail import Noted
from safepoint.trace import record, roles
from safepoint.trace.record import AFTER, ARGUMENTS, BEFORE, CANCELLED, COMPLETED, ENTERED, RETURNED, STARTED
from safepoint.trace.roles import VERBS
from safepoint.trace.signatures import signatures

ANY = record.ANY_SOURCE  # also of tags
OUTSIDE = -7  # a rank that is not in the world, or is not known
SENDS, RECEIVES = ("send", "isend", "send_init"), ("recv", "irecv", "recv_init", "probe", "mprobe")
BOTH = "sendrecv", "isendrecv"
LASTS = "send_init", "recv_init", "coll_init"
ON_COMM = "coll", "icoll", "comm_new", "icomm_new", "comm_free", "win_new", "file_new"
TOGETHER = (*ON_COMM, "win_coll", "win_free", "file_coll", "file_icoll", "file_free")
LATER = "isend", "irecv", "isendrecv", "imrecv", "icoll", "icomm_new", "file_icoll", "iput", "file_iio"
WAITS_FOR_ALL, WAITS_FOR_ONE = ("waitall",), ("waitany", "waitsome")
MEMBERS = "win_open", "win_close", "win_expose", "win_exposed", "win_flush", "put", "comm_of_group"
BLOCKS = frozenset((
    "send", "recv", "sendrecv", "probe", "mprobe", "mrecv", "wait", *WAITS_FOR_ALL, *WAITS_FOR_ONE, *MEMBERS, "coll",
    "comm_new", "comm_free", "win_new", "file_new", "win_coll", "win_free", "file_coll", "file_free", "outside",
    "finalize",
))  # fmt: skip
NEEDED = frozenset(
    name for name, role in roles.ROLES.items()
    if role.kind in {*BLOCKS, *LATER, *LASTS, *roles.WAITS, "improbe", "start", "startall", "request_free", "abort"}
) | {"hide"}  # fmt: skip  # what must be noted so that a hang can be told

Envelope = tuple[object, int, int, int]  # communicator, source, destination (of the world), tag


class Post(NamedTuple):
    """What a rank has begun, and what it takes to end it."""

    what: str  # "send", "recv", "coll", "members": somebody of the members, "nothing": it needs no other rank
    name: str  # of the function
    note: Noted
    key: object  # of the communicator, window or file
    peer: int  # of the world; ANY; OUTSIDE
    tag: int
    order: int  # which send of its envelope, or collective call, from 1
    members: frozenset[int]
    all_needed: bool = False  # a collective call that no rank leaves before all have come


class Wants(NamedTuple):
    """What ends a call that is not over. `known`: these are all."""

    posts: tuple[Post, ...]
    every: bool  # all of them, or one
    known: bool


class Standing:
    """Of one rank. A *request* is an instance, as the notes number them."""

    def __init__(self, rank: int, named: Named) -> None:
        self.rank, self.named = rank, named
        self.inside: dict[int, list[Noted]] = {}  # of each thread the calls that it is in, the innermost last
        self.requests: dict[int, Post] = {}
        self.sent: Counter[Envelope] = Counter()
        self.got: Counter[Envelope] = Counter()
        self.came: Counter[object] = Counter()  # collective calls of each communicator, window, file; "hide"
        self.last: Noted | None = None  # the newest note
        self.left = 0  # ns: when the rank was last seen to leave a call
        self.hide: Noted | None = None  # the last that was entered
        self.final = self.over = self.aborted = False  # it has come to Finalize, and returned from it; to Abort
        self._next = 0
        self._entered: dict[int, Post] = {}  # of each call that is not over
        self._lasting: dict[int, Post] = {}
        self._running: dict[int, int] = {}  # of each persistent request its instance
        self._handles: dict[int, int] = {}

    def name(self, note: Noted) -> str:
        return self.named.functions[note.function][0]

    def kind(self, note: Noted) -> str:
        return kind_of(self.name(note))

    def feed(self, note: Noted) -> None:
        kind = self.kind(note)
        if note.number >= self._next:
            self._next = note.number + 1
            self._enter(note, kind)
            self.last = note
            if note.state == ENTERED:
                self.inside.setdefault(note.thread, []).append(note)
            else:
                self.inside.setdefault(note.thread, [])
                self._leave(note, kind)
        elif note.state != ENTERED:
            stack = self.inside.setdefault(note.thread, [])
            if any(one.number == note.number for one in stack):
                while stack.pop().number != note.number:
                    pass
                self._leave(note, kind)
            else:
                self._complete(note, kind)
            if self.last is not None and self.last.number == note.number:
                self.last = note

    # What happens.

    def _enter(self, note: Noted, kind: str) -> None:
        if kind == "finalize":
            self.final = True
        elif kind == "abort":
            self.aborted = True
        elif kind == "ours":
            self.came[self.name(note)] += not alone(note)
            if self.name(note) == "hide":
                self.hide = note
        elif (post := self._post(note, kind)) is not None:
            if kind in TOGETHER:
                self.came[post.key] += 1
                post = post._replace(order=self.came[post.key])
            elif kind in ("send", "isend", *BOTH):
                post = self._send(post, self.peer(note, note.peer), note.tag)
            self._entered[note.number] = post

    def _send(self, post: Post, dest: int, tag: int) -> Post:
        if dest < 0:
            return post
        envelope = post.key, self.rank, dest, tag
        self.sent[envelope] += 1
        return post._replace(order=self.sent[envelope]) if post.what == "send" else post

    def _leave(self, note: Noted, kind: str) -> None:
        self.left = max(self.left, note.leave)
        post = self._entered.pop(note.number, None)
        if note.state != RETURNED:
            if post is not None and kind in TOGETHER:  # it has not taken part
                self.came[post.key] -= 1
            return
        if post is not None and note.request:
            if kind in LATER:
                self.requests[note.request] = post._replace(note=note)
            elif kind in LASTS:
                self._lasting[note.request] = post._replace(note=note)
            self._keep_handle(note, note.request)
        if kind in ("recv", "sendrecv", "mprobe") or (kind == "improbe" and note.flags & record.FOUND):
            self._receive(note.comm, note.got_peer, note.got_tag)
        self.over = self.over or kind == "finalize"
        self._complete(note, kind)

    def _keep_handle(self, note: Noted, number: int) -> None:
        signature, values = signatures().get(self.name(note)), note.rows.get(AFTER, ())
        if signature is None:
            return
        for position, handles in groups(values):
            if position <= len(signature.parameters) and signature.parameters[position - 1].kind == "request":
                self._handles[handles[0]] = number

    def _receive(self, comm: int, source: int, tag: int) -> None:
        """A message has come. `source`: of the communicator."""
        thing = self.named.thing(comm)
        if source >= 0 and thing is not None:
            self.got[self.named.key(comm), thing.world(source), self.rank, tag] += 1

    def _complete(self, note: Noted, kind: str) -> None:
        """The requests that a call has ended, or started. Of a note that is fed again nothing is done twice."""
        if kind in ("wait", "test", "request_free") and (kind != "test" or note.flags & record.FOUND):
            self._end(note.request, note.got_peer, note.got_tag)
        values = note.rows.get(COMPLETED, ())
        for number, peer, tag in zip(values[::3], values[1::3], values[2::3], strict=False):
            self._end(number, peer, tag)
        values = note.rows.get(STARTED, ())
        for lasting, number in zip(values[::2], values[1::2], strict=False):
            post = self._lasting.get(lasting)
            if post is not None and number not in self.requests and self._running.get(lasting) != number:
                post = self._send(post, post.peer, post.tag) if post.what == "send" else post
                self.requests[number], self._running[lasting] = post, number

    def _end(self, number: int, source: int, tag: int) -> None:
        post = self.requests.pop(number, None)
        if post is None:
            return
        if post.what == "recv":
            self._receive(post.note.comm, source, tag)
        elif source == CANCELLED and post.what == "send":
            self.sent[post.key, self.rank, post.peer, post.tag] -= 1

    # What a call is, and what ends it.

    def peer(self, note: Noted, rank: int) -> int:
        """In the world."""
        if rank == record.PROC_NULL:
            return record.PROC_NULL
        thing = self.named.thing(note.comm)
        found = thing.world(rank) if thing is not None and rank >= 0 else -1
        return found if found >= 0 else OUTSIDE

    def _post(self, note: Noted, kind: str) -> Post | None:
        thing, key = self.named.thing(note.comm), self.named.key(note.comm)
        post = Post("members", self.name(note), note, key, OUTSIDE, note.tag, 0,
                    thing.all() - {self.rank} if thing is not None else frozenset())  # fmt: skip
        if kind in SENDS or kind in RECEIVES or kind in BOTH:
            receives = kind not in SENDS
            given, tag = (note.got_peer, note.got_tag) if kind in BOTH else (note.peer, note.tag)
            peer = ANY if receives and note.flags & record.WILD_SOURCE else self.peer(note, given)
            what = "recv" if receives else "send"
            return post._replace(what="nothing" if peer == record.PROC_NULL else what, peer=peer, tag=tag)
        if kind in TOGETHER:
            return post._replace(what="coll", all_needed=needs_all(post.name, kind))
        if kind in MEMBERS or kind == "coll_init":
            return post
        return post._replace(what="nothing") if kind in LATER else None

    def blocks(self, note: Noted) -> bool:
        """It is a call in which a rank may wait for others."""
        return self.kind(note) in BLOCKS or (self.name(note) in VERBS and not alone(note))

    def wants(self, note: Noted) -> Wants:
        """Of a call that the rank is in."""
        kind = self.kind(note)
        if kind == "wait" and note.request:
            post = self.requests.get(note.request)
            return Wants((post,) if post else (), True, post is not None)
        if kind in ("wait", *WAITS_FOR_ALL, *WAITS_FOR_ONE):
            if (numbers := self._waited(note)) is None:  # nobody says for which
                return Wants(tuple(self.requests.values()), False, bool(self.requests))
            posts = tuple(self.requests[number] for number in numbers if number in self.requests)
            if kind in WAITS_FOR_ALL:
                return Wants(posts, True, True)
            return Wants(posts, False, len(posts) == len(numbers))
        post = self._entered.get(note.number)
        if kind == "sendrecv" and post is not None:
            dest = self.peer(note, note.peer)
            order = self.sent[post.key, self.rank, dest, note.tag]
            sends = post._replace(what="send" if dest != record.PROC_NULL else "nothing", peer=dest, tag=note.tag,
                                  order=order)  # fmt: skip
            return Wants((post, sends), True, True)
        return Wants((post,) if post else (), True, post is not None)

    def _waited(self, note: Noted) -> list[int] | None:
        """The requests that were given to a call, 0 for one of which nothing is known; those that MPI passes over are
        left out. None: they are not noted."""
        if BEFORE not in note.rows:
            return None
        null, found = self.named.constants.get("MPI_REQUEST_NULL"), list[int]()
        for handle in (handle for _, values in groups(note.rows[BEFORE]) for handle in values):
            number = self._handles.get(handle, 0)
            if handle != null and number not in self._lasting:
                found.append(number)
            elif self._running.get(number) in self.requests:
                found.append(self._running[number])
        return found

    def receives(self) -> Iterable[Post]:
        """Those that are open, in the order in which they were posted; those of calls that the rank is in are last."""
        for number in sorted(self.requests):
            if self.requests[number].what == "recv":
                yield self.requests[number]
        for post in self._entered.values():
            if post.what == "recv" and self.kind(post.note) in ("recv", "sendrecv"):
                yield post


def alone(note: Noted) -> bool:
    """Of this library, in a session of this process alone."""
    return note.rows.get(ARGUMENTS, [])[1:] == [1]


def groups(values: Iterable[int]) -> Iterable[tuple[int, list[int]]]:
    """Of a row of kind BEFORE or AFTER: position and values of each argument."""
    left = list(values)
    while len(left) >= 2 and 0 <= left[1] <= len(left) - 2:
        position, count, *rest = left
        if count and position >= 1:
            yield position, rest[:count]
        left = rest[count:]


def needs_all(name: str, kind: str) -> bool:
    """No rank leaves it before all have come. Of others somebody waits for somebody."""
    plain = name.removeprefix("I").capitalize()
    if kind in ("coll", "icoll"):
        return plain in ("Barrier", "Allreduce", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw",
                         "Reduce_scatter", "Reduce_scatter_block")  # fmt: skip
    return kind in ("comm_new", "win_new", "win_coll")
