"""What calls of one rank that are alike have in common: a program makes the same few calls again and again.

(1) Calls are alike if they are of one function, with the same numbers and the same instances of communicators, types
    and operations, and have come out in the same way. What a template sees of them is the same then, but for requests,
    buffers, how often they were called, and what came for one that takes from anybody: `lasts` says of what.
(2) A call that the program is inside of is alike to none: more is known of it when it has returned.
(3) So what follows from lasting values alone is worked out once for all calls of a shape: the values themselves, which
    columns of templates it can fill, and which templates it concerns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from safepoint.check.handles import Handles, Instance
from safepoint.check.noted import ABSENT, BEFORE, Noted, groups
from safepoint.trace import record, roles
from safepoint.trace.signatures import HANDLES, Parameter, Signature, signatures

if TYPE_CHECKING:
    from safepoint.check.call import Value

KINDS = frozenset(HANDLES.values())
OF_RANKS = frozenset(("comm", "win", "file"))
OPENS = {"isend", "irecv", "send_init", "recv_init", "imrecv", "icoll", "coll_init", "iput", "icomm_new", "isendrecv",
         "file_icoll", "file_iio"}  # fmt: skip
FREES = {"comm_free", "type_free", "group_free", "op_free", "win_free", "file_free", "request_free", "type_commit"}
FREED = {"comm_free": "comm", "type_free": "type", "group_free": "group", "op_free": "op", "win_free": "win",
         "file_free": "file"}  # fmt: skip
NUMBERS = "int", "rank", "tag"
MOST = 1 << 12  # shapes of a function that are kept; a program may call one with as many counts
UNKNOWN: Any = object()
COLLECTIVE = "coll", "icoll", "coll_init"
ALONE = {"mprobe", "improbe"}  # what is taken later has its buffer from there


class Function:
    """What is known of a function before it is called."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, roles.kind(name)
        self.signature: Signature | None = signatures().get(name)
        parameters = tuple(enumerate(self.signature.parameters if self.signature is not None else ()))
        self.handles = [(at, one) for at, one in parameters if one.kind in KINDS and one.kind != "request"]
        self.made = [(at, one) for at, one in self.handles if one.by != "value" and self.makes(one)]
        self.comms = [at for at, one in self.handles if one.kind in OF_RANKS and one.name != "peer_comm"]
        self.opens, self.freed = self.kind in OPENS, FREED.get(self.kind, "")
        self._places = {one.name: at for at, one in reversed(parameters)}
        self.takes, self.both = "source" in self._places, "sendtag" in self._places
        given = self.signature is not None and all(one.by == "value" for _, one in self.handles)
        self.alike = given and self.kind not in ALONE
        self.length = len(parameters)
        numbers = [at for at, one in parameters if one.kind in NUMBERS and one.by == "value"]
        twice = numbers * 2 if len(numbers) == 1 else numbers  # of one place alone it gives no tuple
        self._numbers: Callable[[list[int]], tuple[int, ...]] = itemgetter(*twice) if twice else lambda _: ()
        self._buffers = [at for at, one in parameters if one.kind == "buffer" and self.kind in COLLECTIVE]

    def at(self, name: str) -> int | None:
        """The place of an argument, from 0."""
        return self._places.get(name)

    def makes(self, one: Parameter) -> bool:
        """It is a handle that the call creates."""
        if one.kind == "request":
            return self.opens
        return one.by == "pointer" and not one.const and self.kind not in FREES and self.name != "Type_commit"

    def numbers(self, raws: list[int], in_place: int | None) -> tuple[Hashable, ...]:
        """All arguments that are alike if these are. Of buffers it matters whether they are MPI_IN_PLACE."""
        found: tuple[Hashable, ...] = self._numbers(raws)
        if self._buffers:
            return (*found, *[raws[at] == in_place for at in self._buffers])
        return found


@functools.cache
def function(name: str) -> Function:
    return Function(name)


class Shape:
    """`values`: those that last, by name. `taken`: of columns, whether calls of this shape fill them, or what is left
    to be asked. `concerned`: whom they concern. `absent`: names of arguments that MPI does not look at."""

    __slots__ = ("absent", "alike", "comm", "concerned", "held", "messages", "passing", "taken", "tame", "values")

    def __init__(self, alike: bool, comm: Instance | None, held: dict[int, list[Instance]]) -> None:
        self.alike, self.comm, self.held = alike, comm, held  # `held`: handles by place, from 0
        self.absent: frozenset[str] | None = None  # None: nobody has asked
        self.values: dict[int | str, Value | None] = {}
        self.passing: set[int | str] = set()  # names of values that do not last
        self.tame = False  # it is known that it takes from nobody but whom it names
        self.taken: dict[object, Any] = {}
        self.concerned: Any = None
        self.messages: dict[tuple[str, str], Shape] = {}  # of the messages that such a call sends and takes


class Shapes:
    """All that were seen in one rank."""

    def __init__(self, handles: Handles, of_number: dict[int, Instance]) -> None:
        self._handles, self._of_number = handles, of_number
        self._in_place = handles.constants.get("MPI_IN_PLACE")
        self._known: dict[str, dict[Hashable, Shape]] = {}

    def of(self, what: Function, noted: Noted, raws: list[int]) -> Shape:
        """The handles that a call was given are those that they were when it was entered. `raws`: its row ARGUMENTS."""
        if what.alike and len(raws) == what.length and noted.state != record.ENTERED:
            return self._alike(what, noted, raws)
        held, there = dict[int, list[Instance]](), groups(noted.rows.get(BEFORE, []))
        for at, one in what.handles if raws else ():
            some = [raws[at] if at < len(raws) else ABSENT] if one.by == "value" else there.get(at + 1, [])
            if known := [self._handles.get(one.kind, raw, noted.enter) for raw in some if raw != ABSENT]:
                held[at] = known
        return Shape(False, self._comm(what, held, noted), held)

    def _alike(self, what: Function, noted: Noted, raws: list[int]) -> Shape:
        enter, get = noted.enter, self._handles.get
        held = [get(one.kind, raws[at], enter) if raws[at] != ABSENT else None for at, one in what.handles]
        out = noted.state, noted.result, noted.flags & record.FOUND, noted.bytes, self._of_number.get(noted.comm)
        key = (*what.numbers(raws, self._in_place), *held, *out)
        known = self._known.setdefault(what.name, {})
        found = known.get(key)
        if found is None:
            if len(known) >= MOST:
                known.clear()
            there = {at: [one] for (at, _), one in zip(what.handles, held, strict=True) if one is not None}
            found = known[key] = Shape(True, self._comm(what, there, noted), there)
        return found

    def _comm(self, what: Function, held: dict[int, list[Instance]], noted: Noted) -> Instance | None:
        """The communicator, window or file on which it works."""
        for at in what.comms:
            if at in held:
                return held[at][0]
        return self._of_number.get(noted.comm)
