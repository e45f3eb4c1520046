"""What the handles of one rank mean, from the calls that make and free them: communicators, types and the rest.

(1) Handles are numbers that MPI uses again, and in other processes others: two are compared by what made them.
(2) A handle that came from where the tracer does not look has no meaning: nothing holds on it across processes. A wrong
    guess would be a false alarm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safepoint.check.call import Token, digest
from safepoint.check.named import Thing

NULLS = {
    "MPI_COMM_NULL": "comm", "MPI_DATATYPE_NULL": "type", "MPI_REQUEST_NULL": "request", "MPI_OP_NULL": "op",
    "MPI_GROUP_NULL": "group", "MPI_WIN_NULL": "win", "MPI_FILE_NULL": "file", "MPI_MESSAGE_NULL": "message",
    "MPI_INFO_NULL": "info", "MPI_ERRHANDLER_NULL": "errhandler", "MPI_SESSION_NULL": "session",
    "MPI_COMM_WORLD": "comm", "MPI_COMM_SELF": "comm", "MPI_GROUP_EMPTY": "group", "MPI_MESSAGE_NO_PROC": "message",
    "MPI_INFO_ENV": "info",
}  # fmt: skip
OPS = {
    "MAX", "MIN", "SUM", "PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR", "MAXLOC", "MINLOC", "REPLACE", "NO_OP",
}  # fmt: skip
TYPES = re.compile(
    r"MPI_(?:[24]?(?:UN)?SIGNED\w*|[US]?INT\d*(?:_T)?|2?INT(?:EGER)?\d*|2?(?:DOUBLE|REAL|FLOAT|LONG|SHORT|LOGICAL)\w*|"
    r"DOUBLE_\w+|LONG_\w+|SHORT_INT|FLOAT_INT|CHAR\w*|WCHAR|UNSIGNED\w*|SIGNED_CHAR|BYTE|PACKED|AINT|OFFSET|COUNT|"
    r"C_\w+|CXX_\w+|2?COMPLEX\w*|INTEGER\d*|REAL\d*|LOGICAL\d*)"
)
SIZES = {
    1: "CHAR SIGNED_CHAR UNSIGNED_CHAR BYTE PACKED INT8_T UINT8_T CHARACTER INTEGER1 CXX_BOOL C_BOOL",
    2: "SHORT UNSIGNED_SHORT INT16_T UINT16_T INTEGER2 REAL2",
    4: "INT UNSIGNED FLOAT INT32_T UINT32_T INTEGER LOGICAL REAL INTEGER4 REAL4",
    8: "DOUBLE LONG_LONG LONG_LONG_INT UNSIGNED_LONG_LONG INT64_T UINT64_T DOUBLE_PRECISION INTEGER8 REAL8 COMPLEX "
       "COMPLEX8 C_COMPLEX C_FLOAT_COMPLEX 2INT AINT OFFSET COUNT",
    16: "DOUBLE_COMPLEX COMPLEX16 C_DOUBLE_COMPLEX REAL16",
}  # fmt: skip
SIZE = {f"MPI_{name}": size for size, names in SIZES.items() for name in names.split()}
ANYTHING = {"MPI_PACKED"}  # what is packed may be received as what it is
UNDEFINED_SIZE = -1
# Different names, and the same numbers where long has 64 bits: numpy and mpi4py choose one of them for their users.
SAME = (
    {"MPI_LONG", "MPI_LONG_LONG", "MPI_LONG_LONG_INT", "MPI_INT64_T"}, {"MPI_INT", "MPI_INT32_T"},
    {"MPI_UNSIGNED_LONG", "MPI_UNSIGNED_LONG_LONG", "MPI_UINT64_T"}, {"MPI_UNSIGNED", "MPI_UINT32_T"},
    {"MPI_SHORT", "MPI_INT16_T"}, {"MPI_UNSIGNED_SHORT", "MPI_UINT16_T"}, {"MPI_SIGNED_CHAR", "MPI_INT8_T"},
    {"MPI_UNSIGNED_CHAR", "MPI_UINT8_T"},
)  # fmt: skip


def kind_of(name: str) -> str:
    """The kind of handle that a constant of MPI is; "" if it is none, but a number or an address."""
    if name in NULLS:
        return NULLS[name]
    if name.removeprefix("MPI_") in OPS:
        return "op"
    if name.startswith("MPI_ERRORS_"):
        return "errhandler"
    return "type" if TYPES.fullmatch(name) else ""


@dataclass(slots=True, eq=False)
class Instance:
    """One communicator, type, … of this rank."""

    kind: str
    here: frozenset[Token]
    across: frozenset[Token]
    names: frozenset[str] = frozenset()
    peers: Sequence[
        int
    ] = ()  # of a communicator or window: those who are addressed, as ranks of the world; -1: outside
    mine: int = -1  # and this process's rank in it
    inter: bool = False
    size: int = UNDEFINED_SIZE  # of a type, in bytes
    number: int = 0  # in reports
    made: int = 0  # ns: when the call that made it returned; 0: it has always been there
    before: Instance | None = None  # what the handle was before, if it was not seen to be freed yet
    owners: int = 1  # a library may give one handle for a group that is asked for twice; each is to be freed

    @property
    def null(self) -> bool:
        return any(name.endswith("_NULL") for name in self.names)

    def text(self) -> str:
        return min(self.names) if self.names else f"{self.kind} {self.kind[0]}{self.number}"


class Handles:
    """Those of one rank. `constants`: by name the values of this process. `members`: of each communicator that all
    processes know by one name, its ranks of the world; it is filled here."""

    def __init__(
        self, rank: int, size: int, constants: Mapping[str, int], members: dict[Token, frozenset[int]]
    ) -> None:
        self._members = members
        self.rank, self.constants = rank, constants
        self._of: dict[tuple[str, int], Instance] = {}
        self._names: dict[tuple[str, int], set[str]] = {}
        self._counts: Counter[object] = Counter()
        self._strange: dict[tuple[str, int], Instance] = {}
        for name, value in constants.items():
            if kind := kind_of(name):
                self._names.setdefault((kind, value), set()).add(name)
        for (kind, value), names in self._names.items():
            tokens = frozenset[Token]((kind, name) for name in names)
            across = tokens if names != {"MPI_COMM_SELF"} else frozenset({(*next(iter(tokens)), rank)})  # type: ignore[misc]
            made = Instance(kind, tokens, across, frozenset(names))
            if kind == "type":
                made.size = next((SIZE[name] for name in names if name in SIZE), UNDEFINED_SIZE)
                alike = frozenset[Token](("type", min(group)) for group in SAME if names & group)
                made.across = frozenset() if names & ANYTHING else alike or tokens
            self._of[kind, value] = made
        self._of_ranks("MPI_COMM_WORLD", range(size), rank)
        self._of_ranks("MPI_COMM_SELF", (rank,), 0)

    def _of_ranks(self, name: str, peers: Sequence[int], mine: int) -> None:
        made = self._of.get(("comm", self.constants.get(name, 0)))
        if made is not None and name in made.names:
            made.peers, made.mine = peers, mine
            self._members.update(dict.fromkeys(made.across, frozenset(peers)))

    def get(self, kind: str, raw: int, enter: int) -> Instance:
        """What this handle was at this time (ns): a thread may have got it anew while another one was about to free it.
        If nobody has seen it made, something that is equal to itself alone."""
        found = self._of.get((kind, raw))
        while found is not None and found.made > enter and found.before is not None:
            found = found.before
        if found is None:
            key = kind, raw
            found = self._strange.get(key)
            if found is None:
                found = Instance(kind, frozenset({(kind, "?", raw)}), frozenset(), number=self._next(kind))
                self._strange[key] = found
        return found

    def known(self, kind: str, raw: int) -> Instance | None:
        return self._of.get((kind, raw))

    def free(self, kind: str, raw: int, held: Instance) -> None:
        """What this handle was when the call was entered: another thread may have got it for something new since. One
        that is a constant stays."""
        if (kind, raw) in self._names:
            return
        if held.owners > 1:
            held.owners -= 1
            return
        self._strange.pop((kind, raw), None)
        newest = self._of.get((kind, raw))
        if newest is held and held.before is None:
            del self._of[kind, raw]
        elif newest is held and held.before is not None:
            self._of[kind, raw] = held.before
        while newest is not None:
            if newest.before is held:
                newest.before = held.before
            newest = newest.before

    def _next(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind]

    def _put(self, kind: str, raw: int, across: frozenset[Token], leave: int) -> Instance:
        number, key = self._next(kind), (kind, raw)
        made = Instance(kind, frozenset({(kind, self.rank, number)}), across, number=number, made=leave)
        newer, known = None, self._of.get(key)
        while known is not None and known.made > leave:  # threads return in another order than they have called
            newer, known = known, known.before
        made.before = known
        if newer is None:
            self._of[key] = made
        else:
            newer.before = made
        return made

    def new_type(self, raw: int, size: int, leave: int) -> Instance:
        """It is compared in its own process alone: two that are made differently may have the same data in them.
        `size`: in bytes."""
        made = self._put("type", raw, frozenset(), leave)
        made.size = size
        return made

    def new_of_ranks(self, kind: str, raw: int, parent: Instance | None, thing: Thing | None, leave: int) -> Instance:
        """A communicator, window or file. All its processes give it one name: the i-th that was made over this parent
        with these members."""
        across: frozenset[Token] = frozenset()
        if thing is not None and not thing.outside and (parent is None or parent.across):
            over = parent.across if parent is not None else frozenset()
            sides = frozenset((thing.members, thing.remote))  # the other group has them the other way round
            names = sorted(map(repr, over)), self._turn(kind, over, sides), sorted(map(repr, sides))
            across = frozenset({(kind, digest(*names))})
        made = self._put(kind, raw, across, leave)
        own = [rank for span in (thing.members if thing else ()) for rank in span]
        remote = [rank for span in (thing.remote if thing else ()) for rank in span]
        made.peers = remote or own
        self._members.update(dict.fromkeys(across, frozenset((*own, *remote))))
        made.inter = bool(remote)
        made.mine = own.index(self.rank) if self.rank in own else -1
        return made

    def _turn(self, kind: str, over: object, sides: object) -> int:
        """Of those of the same members, made over the same communicator, which it is: all of them have made each. A
        rank that is in none of them does not count, and needs not."""
        key = (kind, over, sides)
        self._counts[key] += 1
        return self._counts[key]

    def new(self, kind: str, raw: int, leave: int) -> Instance:
        """Of a kind that other processes do not share."""
        known = self._of.get((kind, raw))
        if known is not None and kind == "group":
            known.owners += 1
            return known
        return self._put(kind, raw, frozenset(), leave)
