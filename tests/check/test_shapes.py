"""What is worked out once for all calls that are alike is what each of them would have been found to be by itself."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from testbed.given import CONSTANTS, Rank
from testbed.sweep import LONG

from safepoint.check import language, vocabulary
from safepoint.check.call import Call
from safepoint.check.follow import Follower
from safepoint.check.noted import Noted
from safepoint.check.shapes import Shapes, function
from safepoint.check.tail import Noted as Note
from safepoint.trace import record

# A few programs here, more in `make proof`.
each_part = pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 200 if LONG else 15), marks=pytest.mark.proof)], ids=["few", "more"]
)
TEMPLATES = language.load(sorted(map(str, language.shipped().values())))
COMMS, TYPES = ["MPI_COMM_WORLD", "MPI_COMM_SELF", 0x900, 0x901], ["MPI_INT", "MPI_DOUBLE", "MPI_PACKED", 0x910, 0x911]
SENDS, RECVS = ["Send", "Ssend", "Isend", "Send_init"], ["Recv", "Recv", "Irecv", "Probe", "Iprobe", "Iprobe"]
ASKED = [
    *vocabulary.OF_ATTRIBUTES, *range(1, 9), "count", "datatype", "dest", "source", "tag", "comm", "request", "sendtag",
    "recvtag", "buf", "op", "root",
]  # fmt: skip


class Drawn(Rank):
    """A rank that makes random calls, few enough that many are alike; and its notes."""

    def __init__(self, rank: int, draw: random.Random) -> None:
        super().__init__(rank, 3)
        self.draw, self.notes, self.open, self.made = draw, list[Noted](), list[int](), list[Call]()
        self._inside: list[int] = []

    def _noted(self, *what: Any) -> Noted:
        self.notes.append(super()._noted(*what))
        return self.notes[-1]

    def step(self) -> None:
        turn, draw = self.draw.randrange(8), self.draw
        out = {"Result": draw.choice([0, 0, 0, 0, 4]), "Bytes": draw.choice([0, 4])}
        if turn < 4:
            self._message(draw.choice(draw.choice([SENDS, RECVS])), **out)
        elif turn < 6:
            buffers = {"sendbuf": draw.choice([5, "MPI_IN_PLACE"]), "recvbuf": draw.choice([6, 7])}
            name = draw.choice(["Bcast", "Reduce", "Allreduce", "Gather"])
            self.made += self.call(name, root=draw.randrange(2), count=draw.choice([-1, 1]), sendcount=2, recvcount=2,
                                   datatype=draw.choice(TYPES), sendtype=draw.choice(TYPES), comm=draw.choice(COMMS),
                                   op=draw.choice(["MPI_SUM", "MPI_MAX"]), **buffers, **out)  # fmt: skip
        elif turn == 6 and self.open:
            done = [self.open.pop(draw.randrange(len(self.open))) for _ in range(draw.randint(1, len(self.open)))]
            rows = {record.COMPLETED: [word for one in done for word in (one, draw.choice([-1, 0, 1]), 5)]}
            self.made += self.call("Waitall", count=len(done), Rows=rows)
        else:
            self._thing()

    def _message(self, name: str, **out: Any) -> None:
        draw = self.draw
        ranks = [0, 1, 2, "MPI_PROC_NULL", 7, *(["MPI_ANY_SOURCE"] * 2 if name in RECVS else [])]
        tags = [5, 6, -9, *(["MPI_ANY_TAG"] * 2 if name in RECVS else [])]
        peer = draw.choice(ranks)
        arguments = {
            "buf": draw.randrange(3), "count": draw.choice([1, 2, -1]), "datatype": draw.choice(TYPES), "dest": peer,
            "source": peer, "tag": draw.choice(tags), "comm": draw.choice(COMMS), "request": 0x5000,
        }  # fmt: skip
        if draw.random() < 0.5:
            arguments |= {"count": 1, "dest": 1, "source": 1, "tag": 5, "comm": "MPI_COMM_WORLD"}
        if name not in ("Isend", "Irecv", "Send_init") and draw.random() < 0.2:
            number, calls = self.enter(name, **arguments)
            self.made += [*calls, *self.leave(number, Got_peer=1, Got_tag=5, **out)]
            return
        found = {"Flags": record.FOUND if draw.random() < 0.5 else 0} if name == "Iprobe" else {}
        if name[0] == "I" and name != "Iprobe":
            self.open.append(self.request())
        self.made += self.call(name, Got_peer=draw.randrange(2), Got_tag=5, **arguments, **out, **found)

    def _thing(self) -> None:
        """Handles mean other things later."""
        draw = self.draw
        comm, kind = draw.choice(COMMS[2:]), draw.choice(TYPES[3:])
        which = draw.randrange(4)
        if which == 0:
            self.made += self.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": comm}, members="0-2")
        elif which == 1:
            self.made += self.call("Comm_free", before={"comm": comm})
        elif which == 2:
            self.made += self.call("Type_contiguous", count=draw.choice([1, 2]), oldtype="MPI_INT",
                                   after={"newtype": kind})  # fmt: skip
        else:
            self.made += self.call(draw.choice(["Type_free", "Type_commit"]), before={"datatype": kind})


def ran(seed: int) -> list[Drawn]:
    draw = random.Random(seed)
    ranks = [Drawn(rank, draw) for rank in range(3)]
    for _ in range(120):
        draw.choice(ranks).step()
    for rank in ranks:
        rank.made += rank.call("Finalize")
    return ranks


def told(ranks: list[Drawn]) -> list[object]:
    """The situations of all templates."""
    names = sorted({note.function for rank in ranks for note in rank.notes})
    numbers = {name: (name, function(name).kind) for name in names}
    follower, found = Follower(TEMPLATES), []
    for rank in ranks:
        named = SimpleNamespace(
            functions=numbers, constants=CONSTANTS, things=[thing for _, thing in rank.things.values()]
        )
        tail: Any = SimpleNamespace(
            rank=rank.rank, about={"size": 3, "ended": "exit"}, named=named, look=lambda: False, cwd=""
        )
        notes = [
            Note(one.number, one.enter, one.leave, one.site, one.function, *one[5:13], 0, *one[13:])  # type: ignore[arg-type]
            for one in rank.notes
        ]
        for at in range(0, len(notes), 25):
            found += follower.feed(tail, notes[at : at + 25])
    return sorted((*found, *follower.finish(hung=False)), key=lambda one: one.key)  # type: ignore[arg-type, return-value]


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is alike to another one."""
    monkeypatch.setattr(Shapes, "_alike", Shapes._alone)


@each_part
def test_calls_that_are_alike_have_the_values_that_each_would_have_by_itself(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = 0
    for seed in seeds:
        calls = [call for rank in ran(seed) for call in rank.made]
        with monkeypatch.context() as patched:
            alone(patched)
            singly = [call for rank in ran(seed) for call in rank.made]
        assert all(one.shape is None for one in singly)
        shared += len(calls) - len({id(one.shape) for one in calls if one.shape is not None})
        for one, other in zip(calls, singly, strict=True):
            assert (one.function, one.wild, one.pending) == (other.function, other.wild, other.pending), seed
            assert [one.value(name) for name in ASKED] == [other.value(name) for name in ASKED], (seed, one.function)
    assert shared > 20 * len(seeds)  # else nothing was tried


@each_part
def test_what_is_found_is_the_same_if_no_two_calls_are_alike(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    several = 0
    for seed in seeds:
        found = told(ran(seed))
        with monkeypatch.context() as patched:
            alone(patched)
            assert told(ran(seed)) == found, seed
        several += len({one.template for one in found})  # type: ignore[attr-defined]
    assert several > 5 * len(seeds)
