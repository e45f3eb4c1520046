"""Random MPI programs of 2 to 4 ranks, in a plain form; `model_mpi` runs them.

`program(seed)` gives for each rank a list of `Call`s in the order of that rank, and the communicators. Nothing in it
depends on a run. Unless it is `certain`, wildcards may take another message than the writer meant; the program may then
hang, as real ones do.

How to really run one. Take `program(seed, certain=True)`: all its runs have the same messages, and end. There `Test*`,
`Iprobe` and `Improbe` are called until they find something. Each rank goes through its list:

    peer, root      ranks of the communicator; ANY is ANY_SOURCE, NULL is PROC_NULL; `tag` ANY is ANY_TAG
    peer2, tag2     the source and tag of a Sendrecv
    slots           the rank's variables: for requests (a call that begins one sets it; Send_init and Recv_init make
                    persistent ones), or for the message of Mprobe and Improbe, which Mrecv and Imrecv take
    new             the communicator that the call makes here; of a Comm_split also the colour. The key is 0
    size            bytes of the message
    site            the line to note for the call

`hide` is the mark of the library. A Bsend needs an attached buffer. Requests that are open at the end of a list are
left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

ANY, NULL = -1, -2
SENDS, ISENDS = ("Send", "Bsend", "Ssend"), ("Isend", "Ibsend", "Issend")
MEETINGS = "Barrier", "Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block"
FROM_ROOT, TO_ROOT = ("Bcast", "Scatter"), ("Gather", "Reduce")
LATER = "Ibarrier", "Iallreduce"
BETWEEN, EVENTS = 90, 14  # of programs that are really run: the line of the barriers between them, and their size


class Call(NamedTuple):
    """A call of a rank, as the program makes it."""

    name: str  # as in the standard
    site: int  # the line: 1, 2, …
    comm: int = 0  # in `Program.comms`
    peer: int = ANY
    tag: int = ANY
    peer2: int = ANY
    tag2: int = ANY
    root: int = NULL
    slots: tuple[int, ...] = ()
    new: int = NULL
    size: int = 0


class Program(NamedTuple):
    comms: list[tuple[int, ...]]  # members, as ranks of the world; 0 is the world
    calls: list[list[Call]]  # of each rank
    certain: bool


def program(
    seed: int, *, events: int = 8, certain: bool = False, cut_short: bool = False, ranks: int = 0, wild: float = 0.3
) -> Program:
    """`events`: messages, collective calls and completions; `cut_short`: one rank ends early, so that others hang;
    `wild`: the share of receives that are from any source."""
    random = Random(seed)
    writer = Writer(random, ranks or random.choice([2, 2, 3, 3, 4]), certain, wild)
    for _ in range(events):
        random.choices(
            [
                writer.message,
                writer.collective,
                writer.complete,
                writer.catch_up,
                writer.new_comm,
                writer.odd,
                writer.persistent,
                writer.hide,
            ],
            [10, 4, 4, 2, 1, 1, 1, 1],
        )[0]()
    writer.end()
    if cut_short:
        calls = random.choice(writer.calls)
        del calls[random.randrange(len(calls) // 2, len(calls) + 1) :]
    return Program(writer.comms, writer.calls, certain)


@dataclass
class Writer:
    """Writes a program as a row of events. Each has all it needs by then, so the program can run in this order."""

    random: Random
    ranks: int
    certain: bool
    wild: float
    comms: list[tuple[int, ...]] = field(default_factory=list)
    calls: list[list[Call]] = field(default_factory=list)
    open: list[dict[int, bool]] = field(default_factory=list)  # of each rank: its requests; can they complete by now?
    owed: list[Callable[[], None]] = field(default_factory=list)  # the other side of what has been written
    kept: list[tuple[int, int, int, int]] = field(default_factory=list)  # persistent: rank, slot, rank, slot
    last: int = 100  # the last slot, tag

    def __post_init__(self) -> None:
        self.comms.append(tuple(range(self.ranks)))
        self.calls = [[] for _ in range(self.ranks)]
        self.open = [{} for _ in range(self.ranks)]

    def add(self, rank: int, name: str, **how: Any) -> None:
        self.calls[rank].append(Call(name, self.random.randrange(1, 9), **how))

    def number(self) -> int:
        self.last += 1
        return self.last

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def comm(self) -> int:
        return self.random.randrange(len(self.comms))

    # Messages.

    def message(self) -> None:
        """In one of three orders: the receive posted first, the send first, or the receive much later."""
        comm = self.comm()
        members = self.comms[comm]
        source, dest = self.random.choice(members), self.random.choice(members)
        tag = self.number() if self.certain else self.random.randrange(3)
        to, of = members.index(dest), members.index(source)
        how = {"comm": comm, "tag": tag}
        taken = {"comm": comm, "peer": ANY if self.chance(self.wild) else of, "tag": tag}
        if not self.certain and self.chance(0.15):
            taken["tag"] = ANY
        order = self.random.choice(["posted", "sent", "late"])
        if order == "posted":
            self.post(dest, **taken)
            ready = next(reversed(self.open[dest]))
            self.send(source, source != dest, peer=to, **how)
            self.open[dest][ready] = True
        elif order == "sent":
            if source != dest and self.chance(0.15):
                self.exchange(source, dest, comm, tag)
                return
            slot = self.send(source, False, peer=to, **how)
            self.take(dest, **taken)
            if slot:
                self.open[source][slot] = True
        else:
            slot = self.send(source, False, peer=to, **how)
            self.owed.append(lambda: self.late(dest, source, slot, taken))

    def late(self, dest: int, source: int, slot: int, taken: dict[str, int]) -> None:
        self.take(dest, **taken)
        if slot in self.open[source]:
            self.open[source][slot] = True

    def send(self, rank: int, posted: bool, **how: int) -> int:
        """The slot of a request that waits for its receive, or 0. `posted`: one that blocks may be written."""
        how["size"] = self.random.randrange(1, 64)
        if self.chance(0.5):
            name = self.random.choice(SENDS if posted else SENDS[:2])
            if self.certain and self.comms[how["comm"]][how["peer"]] == rank:
                name = "Bsend"  # an MPI may let a Send to itself wait for its receive
            self.add(rank, name, **how)
            return 0
        name, slot = self.random.choice(ISENDS), self.number()
        self.add(rank, name, slots=(slot,), **how)
        self.open[rank][slot] = posted or name != "Issend"
        if name == "Isend" and self.chance(0.1):
            self.add(rank, "Request_free", slots=(slot,))
            del self.open[rank][slot]
        return 0 if self.open[rank].get(slot, True) else slot

    def post(self, rank: int, **how: int) -> None:
        slot = self.number()
        self.add(rank, "Irecv", slots=(slot,), **how)
        self.open[rank][slot] = False

    def take(self, rank: int, **how: int) -> None:
        """Receive what has been sent."""
        kind, slot = self.random.randrange(8), self.number()
        if kind <= 1:
            self.post(rank, **how)
            self.open[rank][next(reversed(self.open[rank]))] = True
        elif kind == 2 and (how["tag"] != ANY):
            self.add(rank, self.random.choice(["Probe", "Iprobe"]), **how)
            self.add(rank, "Recv", **how)
        elif kind == 3:
            self.add(rank, "Mprobe", slots=(slot,), **how)
            self.add(rank, "Mrecv", comm=how["comm"], slots=(slot,))
        elif kind == 4:
            self.add(rank, "Mprobe", slots=(slot,), **how)
            self.add(rank, "Imrecv", comm=how["comm"], slots=(slot, request := self.number()))
            self.open[rank][request] = True
        else:
            self.add(rank, "Recv", **how)

    def exchange(self, source: int, dest: int, comm: int, tag: int) -> None:
        members, back = self.comms[comm], self.number() if self.certain else self.random.randrange(3)
        one, two = members.index(source), members.index(dest)
        size = self.random.randrange(1, 64)
        self.add(source, "Sendrecv", comm=comm, peer=two, tag=tag, peer2=two, tag2=back, size=size)
        self.add(dest, "Sendrecv", comm=comm, peer=one, tag=back, peer2=one, tag2=tag, size=size)

    # Collective calls.

    def collective(self) -> None:
        """Often with a message between the first and the others: whoever need not wait goes on."""
        comm = self.comm()
        members, kind = list(self.comms[comm]), self.random.randrange(4)
        root = self.random.randrange(len(members))
        name = self.random.choice((LATER, MEETINGS, FROM_ROOT, TO_ROOT)[kind])
        apart, begun = kind != 1 and self.chance(0.5), list[tuple[int, int]]()
        apart &= kind == 0 or not self.certain  # an MPI may let all members wait for each other in any that blocks
        if kind == 2:
            members.insert(0, members.pop(root))
        elif kind == 3:
            members.append(members.pop(root))
        for rank in members:
            if apart and rank == members[{0: 1, 2: 1, 3: -1}[kind] % len(members)]:
                self.message()
            slots = (self.number(),) if kind == 0 else ()
            self.add(rank, name, comm=comm, root=root if kind > 1 else NULL, slots=slots)
            begun += [(rank, slot) for slot in slots]
        for rank, slot in begun:
            self.open[rank][slot] = True

    def new_comm(self) -> None:
        comm = self.comm()
        members = self.comms[comm]
        halves = [members] if self.chance(0.4) else [part for part in (members[::2], members[1::2]) if part]
        for part in halves:
            for rank in part:
                self.add(rank, "Comm_dup" if len(halves) == 1 else "Comm_split", comm=comm, new=len(self.comms))
            self.comms.append(part)

    # Completions, and the rest.

    def complete(self) -> None:
        rank = self.random.randrange(self.ranks)
        ready = [slot for slot, is_ready in self.open[rank].items() if is_ready]
        if not ready:
            return
        slots = tuple(self.random.sample(ready, self.random.randrange(1, len(ready) + 1)))
        name = self.random.choice(["Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany", "Testsome"])
        if name in ("Wait", "Test") or (self.certain and not name.endswith("all")):
            slots = slots[:1]
        self.add(rank, name, slots=slots)
        if self.certain or name in ("Wait", "Waitall"):
            for slot in slots:
                del self.open[rank][slot]

    def catch_up(self) -> None:
        if self.owed:
            self.owed.pop(0)()

    def odd(self) -> None:
        rank, slot = self.random.randrange(self.ranks), self.number()
        kind = self.random.randrange(4)
        if kind == 0:
            self.add(rank, self.random.choice(["Send", "Recv"]), peer=NULL, tag=1)
        elif kind == 1:
            self.add(rank, "Irecv", slots=(slot,), tag=self.number())  # nobody sends with this tag
            self.add(rank, "Cancel", slots=(slot,))
            self.add(rank, "Wait", slots=(slot,))
        elif not self.certain:
            self.add(rank, self.random.choice(["Iprobe", "Improbe"]), tag=self.random.randrange(3), slots=(slot,))

    def persistent(self) -> None:
        """Make a pair of requests, or use one once more."""
        if not self.kept or self.chance(0.4):
            source, dest = self.random.sample(range(self.ranks), 2)
            one, two, tag = self.number(), self.number(), self.number()
            self.add(source, "Send_init", peer=dest, tag=tag, slots=(one,), size=8)
            self.add(dest, "Recv_init", peer=ANY if self.chance(self.wild) else source, tag=tag, slots=(two,))
            self.kept.append((source, one, dest, two))
        source, one, dest, two = self.random.choice(self.kept)
        for rank, slot in ((source, one), (dest, two)):
            if slot in self.open[rank]:
                self.add(rank, "Wait", slots=(slot,))
            self.add(rank, self.random.choice(["Start", "Startall"]), slots=(slot,))
            self.open[rank][slot] = True

    def hide(self) -> None:
        for calls in self.calls:
            calls.append(Call("hide", 9))

    def end(self) -> None:
        while self.owed:
            self.catch_up()
        for rank in range(self.ranks):
            if self.open[rank]:
                self.add(rank, "Waitall", slots=tuple(self.open[rank]))
        for comm in range(len(self.comms) - 1, 0, -1):
            if self.chance(0.3):
                for rank in self.comms[comm]:
                    self.add(rank, "Comm_free", comm=comm)
