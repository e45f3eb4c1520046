"""The calls of all ranks in columns; and the communicators, windows and files that they name, known across ranks.

Each rank numbers what it makes by itself. Two of these numbers mean the same thing if the same call made it, from one
that is the same, for the same members; MPI_COMM_WORLD is where this begins. What a call on a group alone made
(`Comm_create_group`, `Intercomm_create`) is the n-th such thing of these members.

(1) No rank knows one thing by two numbers: else it would take part in one collective call two times.
(2) A call counts only if it names a thing of the kind that it works on. The joins after this rely on it.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import ALIVE, NONE, Ints
from safepoint.matching.reading import Spans, Thing, Trace, TraceError
from safepoint.matching.symbols import Site
from safepoint.trace import record, roles

Bools = NDArray[np.bool_]
Gap = Callable[[Ints], Ints]  # of calls, in which gap of their ranks they begin
ON_COMM = "coll", "icoll", "coll_init", "comm_new", "icomm_new", "comm_free", "win_new", "file_new"  # by all members
ON_WIN, ON_FILE = ("win_coll", "win_free"), ("file_coll", "file_icoll", "file_free")
LASTS = "send_init", "recv_init", "coll_init"  # these make a persistent request
MAKES = "comm_new", "icomm_new", "win_new", "file_new"  # something new, by all members of a communicator
WORKS_ON = {
    "comm": (*ON_COMM, "send", "isend", "send_init", "recv", "irecv", "recv_init", "sendrecv", "isendrecv", "probe",
             "iprobe", "mprobe", "improbe"),
    "win": (*ON_WIN, "put", "iput", "win_open", "win_close", "win_expose", "win_exposed"),
    "file": (*ON_FILE, "file_iio"),
}  # fmt: skip
TAKES = "recv", "sendrecv", "isendrecv", "mrecv", "mprobe", "improbe", *roles.WAITS
SENDS = "send", "isend", "start", "startall"
REFUSALS = 6  # MPI_ERR_BUFFER, COUNT, TYPE, TAG, COMM and RANK are 1 to 6 in MPICH and Open MPI
WORDS = {"comm": "communicator", "win": "window", "file": "file"}
LONGEST = 60  # characters of a list of ranks in a sentence
UNSEEN = "made where the tracer does not look"
WORLD, SELF = "MPI_COMM_WORLD", "MPI_COMM_SELF"


class Calls:
    """The notes of all ranks, one rank after the other. A *call* is an index in these columns."""

    def __init__(self, trace: Trace) -> None:
        self.trace, ranks = trace, trace.ranks
        self.begins = np.cumsum([0, *(len(rank.notes) for rank in ranks)])
        self.rank = np.repeat(np.array([rank.rank for rank in ranks], "i4"), np.diff(self.begins))
        self.function = np.concatenate([rank.functions[rank.notes["function"]] for rank in ranks])
        self.site = np.concatenate([rank.sites[rank.notes["site"]] for rank in ranks])
        columns = ("flags", "peer", "tag", "got_peer", "got_tag", "request", "state", "bytes", "enter", "leave")
        self.flags, self.peer, self.tag, self.got_peer, self.got_tag, self.request, self.state, self.bytes, *times = (
            np.concatenate([rank.notes[name] for rank in ranks]) for name in columns
        )
        self.enter, self.leave = (time.view("i8") for time in times)
        self.words = np.concatenate([rank.more for rank in ranks])
        self.first_thing = np.cumsum([0, *(len(rank.things) for rank in ranks)])
        first_word = np.cumsum([0, *(len(rank.more) for rank in ranks)])
        self.thing = _lifted([rank.notes["comm"] for rank in ranks], self.first_thing - 1)  # NONE: it names none
        self.row = _lifted([rank.notes["more"] for rank in ranks], first_word)  # in `words`; NONE: it has none
        self._sort()

    def _sort(self) -> None:
        """By kind. What raised is judged as not having happened (but see `doubtful`). (2)."""
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(self.trace.kinds))}
        code = np.array([numbers[kind] for kind in self.trace.kinds], "u1")[self.function]
        works_on = np.zeros(len(numbers) + 1, "u1")
        for number, kinds in enumerate(WORKS_ON.values(), 1):
            works_on[[numbers[kind] for kind in kinds if kind in numbers]] = number
        classes = {name: number for number, name in enumerate(WORKS_ON, 1)}
        of_thing = np.array([*(classes.get(thing.kind, 0) for _, thing in self.things()), 0], "u1")
        wrong = (works_on[code] > 0) & (of_thing[self.thing] != works_on[code])
        happened = (self.state == record.ENTERED) | (self.state == record.RETURNED)
        if len(found := np.flatnonzero(wrong & (self.state == record.RETURNED))):
            raise TraceError(f"{self.where(found[0])} names no {WORDS[list(WORKS_ON)[works_on[code[found[0]]] - 1]]}")
        code[wrong | ~happened] = len(numbers)
        self._numbers, self._code = numbers, code
        self._order = np.argsort(code, kind="stable")
        ends = np.cumsum(np.bincount(code, minlength=len(numbers) + 1)).tolist()
        self._parts = {kind: slice(end, ends[n]) for (kind, n), end in zip(numbers.items(), [0, *ends], strict=False)}

    @functools.cached_property
    def doubtful(self) -> Ints:
        """Calls that raised, of which nobody knows what they have sent or received before. An argument that is refused
        is none: MPI says so, or Python does before it."""
        raised = np.flatnonzero(self.state == record.RAISED)
        kind = np.array(self.trace.kinds)[self.function[raised]]
        result = np.concatenate([rank.notes["result"] for rank in self.trace.ranks])[raised] if len(raised) else raised
        refused = (result >= 1) & (result <= REFUSALS)
        outside = (result == record.NO_RESULT) & ((self.flags[raised] & record.PICKLED) == 0)
        takes, meets = np.isin(kind, TAKES), np.isin(kind, (*ON_COMM, *ON_WIN, *ON_FILE, *SENDS))
        found: Ints = raised[takes & ~refused | meets & ~refused & ~outside]
        return found

    @functools.cached_property
    def between(self) -> Bools:
        """Of each communicator, window or file: is it one of two groups? [NONE] is not."""
        return np.array([*(bool(thing.remote) for _, thing in self.things()), False], "?")

    def of(self, *kinds: str) -> Ints:
        """The calls of these kinds that returned, or were entered, in order."""
        parts = [self._order[self._parts[kind]] for kind in kinds if kind in self._parts]
        found: Ints = np.concatenate(parts) if parts else np.zeros(0, "i8")
        return np.sort(found) if len(parts) > 1 else found

    def are(self, calls: Ints, *kinds: str) -> Bools:
        """Which of these calls are of these kinds."""
        wanted = np.zeros(len(self._numbers) + 1, "?")
        wanted[[self._numbers[kind] for kind in kinds if kind in self._numbers]] = True
        found: Bools = wanted[self._code[calls]]
        return found

    def things(self) -> Iterator[tuple[int, Thing]]:
        """All of them, each with the place of its rank among those that are here."""
        return ((at, thing) for at, rank in enumerate(self.trace.ranks) for thing in rank.things)

    def returned(self, calls: Ints) -> Bools:
        found: Bools = self.state[calls] == record.RETURNED
        return found

    def name(self, call: int) -> str:
        return self.trace.functions[int(self.function[call])]

    def said(self, call: int) -> str:
        """`Recv at solver.py:21`."""
        return f"{self.name(call)} at {short(self.trace.sites[self.site[call]])}"

    def where(self, call: int) -> str:
        """The same with the rank, for errors: and the number of the note."""
        rank = int(np.searchsorted(self.begins, call, "right")) - 1
        note = call - int(self.begins[rank])
        return f"rank-{self.trace.ranks[rank].rank:05d}.calls: note {note}, {self.said(call)},"


class Things(NamedTuple):
    """Communicators, windows and files, in two numberings: those of all ranks in a row, as in `Calls.thing`; and
    `across` ranks, where 0 is the world, and 1 is what each rank has of its own."""

    across: Ints  # of each thing of a rank
    made: Ints  # and the call that made it, or NONE
    size: Ints  # across: so many ranks take part in a collective call
    outside: Bools  # across: it has processes that are not in the world
    names: list[str]  # across
    peers: Ints  # of each thing of a rank the list of those that its ranks are; then the lists, as ranges:
    sizes: Ints  # of each list
    keys: Ints  # of each range: list · 2³² + how many are before it, ascending
    firsts: Ints  # its first rank of the world

    def in_world(self, thing: Ints, peer: Ints) -> Ints:
        """Ranks of the world; NONE: it is no rank of this communicator, or outside of the world."""
        of, peer = self.peers[thing], peer.astype("i8")
        inside = (peer >= 0) & (peer < self.sizes[of])
        key = of * 2**32 + np.where(inside, peer, 0)
        at = np.searchsorted(self.keys, key, "right") - 1
        return np.where(inside, self.firsts[at] + key - self.keys[at], NONE)


def numbered(*columns: Ints) -> Ints:
    """A number for each row, the same for equal rows and no others."""
    key, span = np.zeros(len(columns[0]), "i8"), 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if high - low >= 1 << 32:  # as only in a damaged trace
            column = np.unique(column, return_inverse=True)[1]
            low, high = 0, len(column)
        if span * (high - low + 1) >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].astype("i8")
            span = len(key) + 1
        key, span = key * (high - low + 1) + (column.astype("i8") - low), span * (high - low + 1)
    return key.astype("u2") if span <= 1 << 16 else key  # numpy sorts these in linear time


def turns(*columns: Ints) -> Ints:
    """Of each row how many equal ones are before it."""
    key = numbered(*columns)
    order = np.argsort(key, kind="stable")
    new = np.append(True, key[order][1:] != key[order][:-1])[: len(key)]
    found = np.empty(len(key), "i8")
    found[order] = np.arange(len(key)) - np.maximum.accumulate(np.where(new, np.arange(len(key)), 0))
    return found


def identified(calls: Calls) -> Things:
    """All of them. Raises `TraceError`."""
    notes = [int(calls.begins[at]) + thing.note if thing.note >= 0 else NONE for at, thing in calls.things()]
    turn = _turn_of(calls, notes)
    known: dict[object, int] = {WORLD: 0, SELF: 1}
    across, first = list[int](), dict[int, int]()
    before = Counter[object]()
    for number, (at, thing) in enumerate(calls.things()):
        own = number - int(calls.first_thing[at])
        if own == 0:
            before.clear()
        key: object = (WORLD, SELF)[own] if own < 2 else _key(calls, thing, notes[number], turn, across)
        before[key] += 1
        key = key if before[key] == 1 else (key, before[key])  # (1)
        across.append(known.setdefault(key, len(known)))
        first.setdefault(across[-1], number)
    return _things(calls, across, notes, [first.get(number, NONE) for number in range(len(known))])


def _turn_of(calls: Calls, notes: list[int]) -> dict[int, int]:
    """Of those calls that made something: how many there were before on their communicator; NONE: it needs none."""
    on_comm = calls.of(*ON_COMM)
    wanted = np.isin(on_comm, np.intersect1d(calls.of(*MAKES), notes))
    found = dict(zip(on_comm[wanted].tolist(), turns(calls.thing[on_comm])[wanted].tolist(), strict=True))
    return found | dict.fromkeys(np.intersect1d(calls.of("comm_of_group"), notes).tolist(), NONE)


def _key(calls: Calls, thing: Thing, note: int, turn: dict[int, int], across: list[int]) -> object:
    """By which other ranks know it."""
    members = tuple(sorted((thing.members, thing.remote)))
    if turn.get(note, NONE) == NONE:
        return thing.kind, note in turn, members
    parent = int(calls.thing[note])
    if parent >= len(across):
        raise TraceError(f"{calls.where(note)} makes something of a communicator that was made later")
    return thing.kind, across[parent], turn[note], members


def _things(calls: Calls, across: list[int], notes: list[int], first: list[int]) -> Things:
    """`first`: across ranks, the first thing of a rank that is it."""
    things = [thing for _, thing in calls.things()]
    lists: dict[Spans, int] = {}
    peers = [lists.setdefault(thing.remote or thing.members, len(lists)) for thing in things]
    keys, firsts, sizes = list[int](), list[int](), list[int]()
    for number, spans in enumerate(lists):
        size = 0
        for begin, count in spans:
            keys.append((number << 32) + size)
            firsts.append(begin)
            size += count
        sizes.append(size)
    some = [things[number] if number != NONE else None for number in first]
    takes_part = [_count(thing.members) + _count(thing.remote) if thing else 1 for thing in some]
    return Things(
        np.array(across, "i8"), np.array(notes, "i8"), np.array(takes_part, "i8"),
        np.array([thing is not None and thing.outside for thing in some]),
        [WORLD, SELF, *(_name(calls, number, things[at], notes[at]) for number, at in enumerate(first[2:], 3))],
        np.array(peers, "i8"), np.array(sizes, "i8"), np.array(keys, "i8"), np.array(firsts, "i8"),
    )  # fmt: skip


def _count(spans: Spans) -> int:
    return sum(count for _, count in spans)


def _name(calls: Calls, number: int, thing: Thing, note: int) -> str:
    """`communicator 3, of Comm_split at solver.py:12, ranks 0-1 of world`."""
    own = f" ({thing.name})" if thing.name else ""
    origin = f"of {calls.said(note)}" if note != NONE else UNSEEN
    ranks = " and ".join(_text(spans) for spans in (thing.members, thing.remote) if spans)
    return f"{WORDS.get(thing.kind, 'object')} {number}{own}, {origin}, ranks {ranks} of world"


def _text(spans: Spans) -> str:
    words = [f"{first}-{first + count - 1}" if count > 1 else "?" if first < 0 else str(first) for first, count in
             spans[:LONGEST]]  # fmt: skip
    text = ",".join(words)
    return text if len(text) <= LONGEST else text[: text.rindex(",", 0, LONGEST)] + ",…"


def short(site: Site) -> str:
    """As `str`, with the last part of its file only."""
    return str(site._replace(file=os.path.basename(site.file)))


# What is alive where.


def alive(calls: Calls, things: Things, gap: Gap, count: Ints) -> NDArray[np.void]:
    """All but the world and each rank's own. `count`: actions of each rank."""
    own = np.concatenate([np.arange(len(rank.things)) for rank in calls.trace.ranks])
    lasting = np.flatnonzero((own >= 2) & np.array([thing.kind in WORDS for _, thing in calls.things()], "?"))
    found, made = np.zeros(len(own), ALIVE), things.made[lasting]
    found["rank"] = np.repeat([rank.rank for rank in calls.trace.ranks], np.diff(calls.first_thing))
    found["name"], found["last"] = things.across, count[found["rank"]]
    found["first"][lasting[made != NONE]] = gap(made[made != NONE]) + 1
    freeing = calls.of("comm_free", "win_free", "file_free")[::-1]
    found["last"][calls.thing[freeing]] = gap(freeing)
    return found[lasting]


def persistent(calls: Calls, gap: Gap, count: Ints, names: list[str]) -> tuple[list[str], NDArray[np.void]]:
    """Persistent requests that are alive, and the names with theirs."""
    made, freeing = calls.of(*LASTS), calls.of("request_free")[::-1]
    key, freed = (calls.rank[some].astype("i8") << 32 | calls.request[some] for some in (made, freeing))
    lasting = (calls.flags[freeing] & record.PERSISTENT) > 0
    ends = dict(zip(freed[lasting].tolist(), gap(freeing[lasting]).tolist(), strict=True))
    numbers: dict[str, int] = {}
    found = np.zeros(len(made), ALIVE)
    found["rank"] = calls.rank[made]
    found["first"] = gap(made) + calls.are(made, "coll_init")
    found["last"] = [ends.get(one, count[rank]) for one, rank in zip(key.tolist(), found["rank"].tolist(), strict=True)]
    found["name"] = [
        numbers.setdefault(f"persistent request of {calls.said(call)}", len(names) + len(numbers)) for call in made
    ]
    return [*names, *numbers], found


def _lifted(columns: list[Ints], firsts: Ints) -> Ints:
    """Numbers of each rank as places in one row; NONE for 0."""
    parts = [
        np.where(column > 0, column.astype("i8") + first, NONE)
        for column, first in zip(columns, firsts.tolist(), strict=False)
    ]
    return np.concatenate(parts).astype("i8")
