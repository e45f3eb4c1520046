"""Calls that callbacks of attributes make, inside of the call that deletes these: MPI_Finalize, or what frees a thing.

A library keeps what it has made as an attribute, and frees it in the delete callback. So these calls come after their
outer one in the notes, but happen before it is done:

(1) What an outer call frees is there for the calls inside of it. Its return is given after them, also if it had
    returned when it was read first.
(2) Finalize is given after them as a whole: it is the last call of its process.
"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.check.noted import Noted
from safepoint.trace import record, roles

OUTER = frozenset(name for name, role in roles.ROLES.items() if role.kind in ("comm_free", "type_free", "win_free"))


class Nested:
    """Of one rank."""

    def __init__(self) -> None:
        self._next = 0  # a note with this number or above was not seen yet
        self._held: dict[int, Noted] = {}  # by number, outer calls that have returned
        self._final: Noted | None = None

    def ordered(self, noted: Noted) -> Iterator[Noted]:
        """A note that has come, and those that waited for it. One that was given before comes again with its return."""
        yield from self.over(noted.enter) if noted.number >= self._next else ()
        new, self._next = noted.number >= self._next, max(self._next, noted.number + 1)
        if noted.function == "Finalize":
            if self._final is not None and self._final.number != noted.number:
                yield self._final  # it was called twice
            self._final = noted
        elif new and noted.function in OUTER and not noted.inside:
            self._held[noted.number] = noted
            yield noted._replace(leave=0, result=record.NO_RESULT, state=record.ENTERED)
        else:
            yield noted

    def over(self, now: int) -> Iterator[Noted]:
        """Those that have returned by then (ns of the clock of the notes): no call can come that is inside of them."""
        for number in [number for number, one in self._held.items() if one.leave <= now]:
            yield self._held.pop(number)
        if self._final is not None and not self._final.inside and self._final.leave <= now:
            final, self._final = self._final, None
            yield final

    def rest(self) -> Iterator[Noted]:
        """There will be no more."""
        yield from self._held.values()
        self._held = {}
        if self._final is not None:
            final, self._final = self._final, None
            yield final
