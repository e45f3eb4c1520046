"""A model of MPI, on which `ran_mpi` runs the programs of `random_mpi`.

A message is buffered, or its sender waits (Ssend, Issend). It travels in order for each sender, receiver and
communicator, arrives at any time, and goes to the oldest posted receive that fits, or waits. A collective call returns
when those ranks have made it whose data it needs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from safepoint.matching.matched import NONE
from testbed.random_mpi import ANY, FROM_ROOT, NULL, TO_ROOT, Call, Program

Action = tuple[int, int]  # a rank, and the number among its actions
Ended = tuple[list[int], list[tuple[int, int]]]  # as `done` and `got` of Went
FOUND_OR_NOT = "Test", "Testall", "Testany", "Testsome", "Iprobe", "Improbe"
OF_TIME = (*FOUND_OR_NOT, "Waitany", "Waitsome")
NO_ACTION = "Send_init", "Recv_init", "Cancel", "hide"


class Went(NamedTuple):
    """How a call went."""

    call: Call
    action: int  # its number among the actions of its rank; NONE: it is none
    returned: bool
    found: bool  # a Test*, Iprobe or Improbe
    done: list[int]  # of its slots, those that it completed
    got: list[tuple[int, int]]  # source, in the communicator, and tag of what it received or found; of `done`, if any
    enter: int
    leave: int


@dataclass
class Message:
    source: int  # in the world
    dest: int
    comm: int
    tag: int
    size: int
    sent: Action
    receive: Receive | None = None


@dataclass
class Receive:
    rank: int
    comm: int
    source: int  # in the world, or ANY
    tag: int
    posted: Action
    message: Message | None = None
    received: Action | None = None

    def fits(self, message: Message) -> bool:
        return self.source in (ANY, message.source) and self.tag in (ANY, message.tag)


@dataclass
class Meeting:
    """A collective call."""

    name: str
    members: tuple[int, ...]
    root: int
    came: set[int] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)
    complete: set[int] = field(default_factory=set)

    def ready(self, rank: int) -> bool:
        if self.name in FROM_ROOT:
            return rank == self.root or self.root in self.came
        return (self.name in TO_ROOT and rank != self.root) or self.came == set(self.members)


@dataclass
class Request:
    call: Call
    of: Message | Receive | Meeting | None = None
    post: Action | None = None  # None: not active
    waits: bool = False  # a send that waits for its receive
    cancelled: bool = False

    def ready(self, rank: int) -> bool:
        if isinstance(self.of, Receive):
            return self.cancelled or self.of.message is not None
        if isinstance(self.of, Meeting):
            return self.of.ready(rank)
        return not self.waits or (isinstance(self.of, Message) and self.of.receive is not None)


class Machine:
    """The state of a run."""

    def __init__(self, program: Program, random: Random) -> None:
        self.program, self.random, self.now, self.ended = program, random, 0, 0
        size = len(program.calls)
        self.flying: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        self.arrived: dict[tuple[int, int], list[Message]] = defaultdict(list)  # by receiver, communicator
        self.posted: dict[tuple[int, int], list[Receive]] = defaultdict(list)
        self.slots: list[dict[int, Request]] = [{} for _ in range(size)]
        self.probed: list[dict[int, Receive]] = [{} for _ in range(size)]
        self.meetings: dict[int, list[Meeting]] = defaultdict(list)
        self.met: dict[tuple[int, int], int] = defaultdict(int)  # how often a rank has met on a communicator
        self.went: list[list[Went]] = [[] for _ in range(size)]
        self.actions: list[list[int]] = [[] for _ in range(size)]  # numbers of calls
        # For the truth.
        self.messages: list[Message] = []
        self.receives: list[Receive] = []
        self.requests: list[list[Action | None]] = []
        self.implied: list[tuple[Action, Message]] = []
        self.unsure: list[Action] = []

    def process(self, rank: int) -> Iterator[bool]:
        """Makes the calls of this rank. Yields whether one has returned."""
        for number, call in enumerate(self.program.calls[rank]):
            enter = self.now
            action = (rank, len(self.actions[rank]))
            self.went[rank].append(Went(call, NONE, False, False, [], [], enter, 0))
            if self.is_action(rank, call):
                self.actions[rank].append(number)
                self.went[rank][-1] = self.went[rank][-1]._replace(action=action[1])
            ready, finish = self.begin(rank, action, call)
            while not ready():
                if call.name in FOUND_OR_NOT and not self.program.certain:
                    break
                yield False
            found = ready()
            if call.name in OF_TIME or (call.name == "Probe" and call.peer == ANY):
                self.unsure.append(action)
            done, got = finish() if found else ([], [])
            if found and call.name in FOUND_OR_NOT and (done or call.name in ("Iprobe", "Improbe")):
                self.actions[rank].append(number)
            taken = action[1] if len(self.actions[rank]) > action[1] else NONE
            self.went[rank][-1] = Went(call, taken, True, found, done, got, enter, self.now)
            yield True
        self.ended += 1

    def is_action(self, rank: int, call: Call) -> bool:
        """Known from the start: what may find nothing is one only if it finds something."""
        active = any(self.slots[rank][slot].post is not None for slot in call.slots if slot in self.slots[rank])
        return call.name not in (*NO_ACTION, *FOUND_OR_NOT) and (active or not call.name.startswith("Wait"))

    def begin(self, rank: int, action: Action, call: Call) -> tuple[Callable[[], bool], Callable[[], Ended]]:
        """What the call does at once; when it can return; and what it does then."""
        name = call.name
        if name in ("Send", "Bsend", "Ssend", "Sendrecv", "Recv"):
            return self.blocking(rank, action, call)
        if name.startswith(("Wait", "Test")):
            return self.completing(rank, action, call)
        if name in ("Probe", "Iprobe", "Mprobe", "Improbe"):
            return self.probing(rank, action, call)
        if name == "Mrecv":
            receive = self.probed[rank].pop(call.slots[0])
            return always, lambda: self.received(receive, action)
        if name == "Cancel":
            request = self.slots[rank][call.slots[0]]
            assert isinstance(request.of, Receive)
            self.posted[rank, call.comm].remove(request.of)
            self.receives.remove(request.of)
            request.cancelled = True
        elif name == "Request_free":
            self.close(self.slots[rank].pop(call.slots[0]), action)
        elif name.endswith("_init"):
            self.slots[rank][call.slots[0]] = Request(call)
        elif name.startswith("Start"):
            self.start(rank, action, self.slots[rank][call.slots[0]])
        elif name in ("Isend", "Ibsend", "Issend", "Irecv", "Imrecv", "Ibarrier", "Iallreduce"):
            request = self.slots[rank][call.slots[-1]] = Request(call)
            self.start(rank, action, request)
        elif name != "hide":
            meeting = self.meet(rank, action, call)
            return lambda: meeting.ready(rank), lambda: self.left(meeting, rank)
        return always, nothing

    # Messages.

    def send(self, action: Action, call: Call) -> Message | None:
        if call.peer == NULL:
            return None
        rank, dest = action[0], self.program.comms[call.comm][call.peer]
        message = Message(rank, dest, call.comm, call.tag, call.size, action)
        self.messages.append(message)
        self.flying[rank, dest, call.comm].append(message)
        return message

    def arrive(self, message: Message) -> None:
        waiting = self.posted[message.dest, message.comm]
        for receive in waiting:
            if receive.fits(message):
                waiting.remove(receive)
                receive.message, message.receive = message, receive
                return
        self.arrived[message.dest, message.comm].append(message)

    def receive(self, action: Action, comm: int, peer: int, tag: int) -> Receive | None:
        """Post one."""
        if peer == NULL:
            return None
        rank = action[0]
        receive = Receive(rank, comm, peer if peer == ANY else self.program.comms[comm][peer], tag, action)
        self.receives.append(receive)
        if (message := self.first(receive)) is not None:
            self.arrived[rank, comm].remove(message)
            receive.message, message.receive = message, receive
        else:
            self.posted[rank, comm].append(receive)
        return receive

    def first(self, receive: Receive) -> Message | None:
        """The first message that has arrived, and fits."""
        return next((message for message in self.arrived[receive.rank, receive.comm] if receive.fits(message)), None)

    def received(self, receive: Receive | None, action: Action) -> Ended:
        if receive is None or receive.message is None:
            return [], []
        receive.received = action
        return [], [self.status(receive.message)]

    def status(self, message: Message) -> tuple[int, int]:
        return self.program.comms[message.comm].index(message.source), message.tag

    def blocking(self, rank: int, action: Action, call: Call) -> tuple[Callable[[], bool], Callable[[], Ended]]:
        message = self.send(action, call) if call.name != "Recv" else None
        if call.name in ("Recv", "Sendrecv"):
            peer, tag = (call.peer, call.tag) if call.name == "Recv" else (call.peer2, call.tag2)
            receive = self.receive(action, call.comm, peer, tag)
            return lambda: receive is None or receive.message is not None, lambda: self.received(receive, action)
        waits = call.name == "Ssend" and message is not None
        return lambda: not waits or (message is not None and message.receive is not None), nothing

    def probing(self, rank: int, action: Action, call: Call) -> tuple[Callable[[], bool], Callable[[], Ended]]:
        source = call.peer if call.peer == ANY else self.program.comms[call.comm][call.peer]
        probe = Receive(rank, call.comm, source, call.tag, action)

        def found() -> Ended:
            message = self.first(probe)
            assert message is not None
            self.implied.append((action, message))
            if "mprobe" in call.name.lower():
                self.arrived[rank, call.comm].remove(message)
                probe.message, message.receive = message, probe
                self.receives.append(probe)
                self.probed[rank][call.slots[0]] = probe
            return [], [self.status(message)]

        return lambda: self.first(probe) is not None, found

    # Requests.

    def start(self, rank: int, action: Action, request: Request) -> None:
        call = request.call
        if call.name == "Imrecv":
            request.of = self.probed[rank].pop(call.slots[0])
        elif "recv" in call.name.lower():
            request.of = self.receive(action, call.comm, call.peer, call.tag)
        elif "send" in call.name.lower():
            request.of = self.send(action, call)
        else:
            request.of = self.meet(rank, action, call)
        request.waits = call.name == "Issend"
        request.post = action
        self.requests.append([action, None])

    def close(self, request: Request, action: Action) -> Ended:
        """Complete it."""
        open_one = next(row for row in self.requests if row == [request.post, None])
        open_one[1] = action
        request.post = None
        if isinstance(request.of, Meeting):
            request.of.actions.append(action)
            return self.left(request.of, action[0])
        return self.received(request.of, action) if isinstance(request.of, Receive) else ([], [])

    def completing(self, rank: int, action: Action, call: Call) -> tuple[Callable[[], bool], Callable[[], Ended]]:
        active = [slot for slot in call.slots if self.slots[rank][slot].post is not None]
        each = call.name in ("Wait", "Waitall", "Test", "Testall")

        def ready() -> list[int]:
            return [slot for slot in active if self.slots[rank][slot].ready(rank)]

        def complete() -> Ended:
            done = ready()[:1] if call.name in ("Waitany", "Testany") else ready()
            return done, [status for slot in done for status in self.close(self.slots[rank][slot], action)[1]]

        return lambda: len(ready()) == len(active) if each else bool(ready()) or not active, complete

    # Collective calls.

    def meet(self, rank: int, action: Action, call: Call) -> Meeting:
        number = self.met[rank, call.comm]
        self.met[rank, call.comm] += 1
        if number == len(self.meetings[call.comm]):
            members = self.program.comms[call.comm]
            root = members[call.root] if call.root != NULL else NULL
            self.meetings[call.comm].append(Meeting(call.name, members, root))
        meeting = self.meetings[call.comm][number]
        assert meeting.name == call.name
        meeting.came.add(rank)
        meeting.actions.append(action)
        return meeting

    def left(self, meeting: Meeting, rank: int) -> Ended:
        meeting.complete.add(rank)
        return [], []


def always() -> bool:
    return True


def nothing() -> Ended:
    return [], []
