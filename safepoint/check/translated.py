"""The notes of one rank become calls: with their arguments, in the order in which they were entered.

(1) A note is one call of its function, and for each message that it sends or takes one more (`messages`).
(2) Numbers of calls ascend with those of their notes. Finalize comes after those that callbacks make inside of it
    (`nested`), and has a number above theirs.
(3) A call is pending while the program is inside of it; a message also while its request is not complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from safepoint.check.arguments import COLLECTIVE, Given
from safepoint.check.call import Call, Token
from safepoint.check.handles import UNDEFINED_SIZE, Handles, Instance
from safepoint.check.messages import Made, Messages
from safepoint.check.named import Thing
from safepoint.check.noted import ABSENT, BEFORE, Noted, groups
from safepoint.check.shapes import OF_RANKS, Shapes, function
from safepoint.trace import record

EACH = 20  # bits of a number of a call that tell those of one note
PSEUDO = -(2**62)  # and the number of an object: its handle where the trace has none
Things = Mapping[int, tuple[int, Thing]]  # note → the number and line of what it has made


class Translator:
    """One rank."""

    def __init__(
        self, rank: int, size: int, constants: Mapping[str, int], members: dict[Token, frozenset[int]] | None = None
    ) -> None:
        self.rank, self._messages = rank, Messages()
        self._handles = Handles(rank, size, constants, {} if members is None else members)
        self._of_number: dict[int, Instance] = {}
        self._turns: Counter[Token] = Counter()
        self._open: dict[int, list[Call]] = {}  # notes that have not returned → what they are
        self._waiting: dict[int, list[Call]] = {}  # requests that are not complete
        self._late: dict[int, Noted] = {}
        self._cancelled: set[int] = set()
        self._last_step, self.hides, self._newest = 0, 0, 0
        self._shapes = Shapes(self._handles, self._of_number)
        for number, name in ((record.WORLD, "MPI_COMM_WORLD"), (record.SELF, "MPI_COMM_SELF")):
            known = self._handles.known("comm", constants.get(name, 0))
            if known is not None and name in known.names:
                self._of_number[number] = known

    def calls(self, noted: Noted, things: Things) -> list[Call]:
        """What this note is. One that was inside when it was given before has now returned; then only what is new."""
        self._newest = max(self._newest, noted.number)
        calls = self._open.pop(noted.number, None) if self._open else None
        new, inside = calls is None, noted.inside
        if inside and new and function(noted.function).opens:
            self._late[noted.number] = noted  # it returns at once: then the number of its request is known
            return []
        if self._late:
            self._late.pop(noted.number, None)
        if calls is None:
            calls = self._entered(noted)
        if inside:
            self._open[noted.number] = calls
            return calls if new else []
        more = self._returned(noted, calls, things)
        return [*calls, *more] if new and more else calls if new else [*more]

    def end(self, died: bool = False, broken: bool = False) -> list[Call]:
        """This process has come to its end: nothing is pending any more. `died`: what it was inside of has sent and
        taken nothing, as MPI has refused it, or never got to it. `broken`: an exception of Python has ended it, so the
        Finalize at its exit does not say that it was done with all. Returns calls that were not given yet."""
        for call in (call for calls in self._open.values() for call in calls):
            message = died and call.function.startswith("message_")
            call.dropped = message or (broken and call.function == "Finalize")
        late = [call for noted in self._late.values() for call in self._entered(noted)]
        self._late.clear()
        found = [call for calls in (*self._open.values(), *self._waiting.values()) for call in calls if call.pending]
        for call in (*found, *late):
            call.pending = False
        self._open.clear()
        self._waiting.clear()
        return late

    # When it is entered.

    def _entered(self, noted: Noted) -> list[Call]:
        what, raws = function(noted.function), noted.rows.get(record.ARGUMENTS) or []
        given = Given(self._handles, noted, self._shapes.of(what, noted, raws), raws)
        self._count(given, noted)
        wild = what.takes and given.wild
        waits = noted.request if what.kind == "irecv" and wild else 0
        calls = [self._call(noted, given, 0, noted.function, waits, wild, noted.inside)]
        if made := self._messages.of(given, noted):
            calls += self._made(noted, made, 1)
        return calls

    def _call(
        self, noted: Noted, arguments: Any, each: int, name: str, request: int, wild: bool, pending: bool
    ) -> Call:
        """`request`: what it waits for; 0: nothing."""
        shape = arguments.shape
        number = (noted.number << EACH) + each if name != "Finalize" else ((self._newest + 1) << EACH) - 1
        call = Call(
            self.rank, number, name, noted.site, noted.enter, noted.leave,
            noted.result if noted.result != record.NO_RESULT else 0, wild, noted.thread, arguments, pending, False,
            shape if shape is not None and shape.alike else None,
        )  # fmt: skip
        if request:
            self._waiting.setdefault(request, []).append(call)
        return call

    def _made(self, noted: Noted, made: Iterable[Made], first: int) -> list[Call]:
        """A message is pending while its request is."""
        return [
            self._call(noted, one.message, at, one.function, one.request, one.message.wild,
                       noted.inside or one.request > 0)
            for at, one in enumerate(made, first)
        ]  # fmt: skip

    def _count(self, given: Given, noted: Noted) -> None:
        if noted.function == "hide":
            self.hides += 1
            step = given.raw(0)
            given.step = step if step != ABSENT else self.hides
            if given.raw(1) != 1:  # a session of one process waits for nobody
                given.match = ("hide", self.hides)
            self._last_step = given.step
            return
        given.step = self._last_step
        comm = given.comm
        if comm is not None and comm.across and not comm.null and given.kind in COLLECTIVE:
            self._turns[comm.across] += 1
            given.match = (comm.across, self._turns[comm.across])

    # When it has returned.

    def _returned(self, noted: Noted, calls: list[Call], things: Things) -> list[Call]:
        given: Any = calls[0].arguments
        if given.noted is not noted:
            given.update(noted)
            for call in calls:
                call.leave, call.result = noted.leave, noted.result if noted.result != record.NO_RESULT else 0
        if noted.state == record.RETURNED:
            given.started = tuple(noted.rows.get(record.STARTED, ()))
            given.init = self._messages.init(given.started) if given.started else None
            if given.what.made:
                self._make(given, noted, things)
            if given.what.freed:
                self._free(given, noted)
            if given.started or given.what.made:
                given.changed()
        self._settle(given, noted)
        failed = noted.state != record.RETURNED
        # A message that is too long has come, and MPI says so; what it refuses for any other reason was none.
        refused = failed and noted.result != self._handles.constants.get("MPI_ERR_TRUNCATE")
        waits = self._waiting.get(noted.request, ()) if given.what.opens else ()
        for call in calls:
            call.dropped = call.dropped or (refused and call.function.startswith("message_"))
            if call not in waits:
                call.pending, call.wild = False, call.wild and failed
        more = () if failed else self._messages.after(given, noted)
        return self._made(noted, more, len(calls)) if more else []

    def _make(self, given: Given, noted: Noted, things: Things) -> None:
        """Handles that are new."""
        thing = things.get(noted.number)
        for at, one in given.what.made:
            raws = given.after(at) or ([PSEUDO + thing[0]] if thing and one.kind == thing[1].kind else [])
            for raw in raws[:1]:
                given.held[at] = [self._new(one.kind, raw, given, thing)]

    def _new(self, kind: str, raw: int, given: Given, thing: tuple[int, Thing] | None) -> Instance:
        known = self._handles.known(kind, raw)
        if known is not None and known.names:  # a constant, such as MPI_COMM_NULL
            return known
        if kind == "type":
            return self._handles.new_type(raw, size_of(given), given.noted.leave)
        if kind in OF_RANKS:
            parent = given.comm if given.kind != "comm_of_group" else None
            made = self._handles.new_of_ranks(kind, raw, parent, thing[1] if thing else None, given.noted.leave)
            if thing:
                self._of_number[thing[0]] = made
            return made
        return self._handles.new(kind, raw, given.noted.leave)

    def _free(self, given: Given, noted: Noted) -> None:
        for raw in groups(noted.rows.get(BEFORE, [])).get(1, []):
            for held in given.held.get(0, [])[:1]:
                self._handles.free(given.what.freed, raw, held)

    def _settle(self, given: Given, noted: Noted) -> None:
        """Requests that it has completed, and messages that it takes."""
        if given.kind in ("mrecv", "imrecv") and (number := self._messages.taken(given, noted)):
            for call in self._waiting.get(number, ()):
                call.site = noted.site
            if given.kind == "mrecv":
                self._complete(number, record.NONE, record.NONE)
            else:
                self._waiting.setdefault(noted.request, []).extend(self._waiting.pop(number, ()))
        if given.kind == "cancel":
            self._cancelled.add(noted.request)
        row = noted.rows.get(record.COMPLETED)
        if row is not None:
            for number, source, tag in zip(row[::3], row[1::3], row[2::3], strict=False):
                self._complete(number, source, tag)
        elif given.kind in ("wait", "request_free") or (given.kind == "test" and noted.flags & record.FOUND):
            self._complete(noted.request, noted.got_peer, noted.got_tag)

    def _complete(self, number: int, source: int, tag: int) -> None:
        for call in self._waiting.pop(number, ()):
            # One that was cancelled and then freed: nobody knows whether it was a message.
            call.pending, call.dropped = False, source == record.CANCELLED or number in self._cancelled
            given: Any = getattr(call.arguments, "who", call.arguments)
            if source >= 0 and given.takes():
                given.source = source, tag
                given.changed()
                call.wild = False


def size_of(given: Given) -> int:
    """Of the type that it makes, in bytes, if scalars and another type say it."""
    old = next((one for some in given.held.values() for one in some if one.kind == "type"), None)
    if old is None or old.size == UNDEFINED_SIZE:
        return UNDEFINED_SIZE
    if given.function in ("Type_dup", "Type_create_resized"):
        return old.size
    if given.function == "Type_contiguous":
        return given.raw(0) * old.size
    if given.function in ("Type_vector", "Type_create_hvector", "Type_hvector"):
        return given.raw(0) * given.raw(1) * old.size
    return UNDEFINED_SIZE
