"""A call as templates see it: its arguments, translated so that those of other ranks can be compared with them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from safepoint.check.shapes import Shape

Token = object  # hashable


def digest(*parts: object) -> str:
    """A token of these, as short as any: what is made of what was made of … would be as deep as there are makers. Their
    texts must be the same in all ranks."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class Value:
    """An argument. Two are equal if they have a token in common; one that is not there is None, and nothing holds on
    it, not even `!=`."""

    here: frozenset[Token]  # compared with another of the same process: instances of requests, types, groups
    across: frozenset[Token]  # with one of another process, and with the rank of a process (an int)
    names: frozenset[str] = frozenset()  # constants that it equals: MPI_ANY_TAG, MPI_COMM_NULL, MPI_INT
    number: int | None = None  # as the program has given it: for < and >, and for constants that are numbers
    any: bool = False  # a wildcard to which nothing has come: = holds with everything, != with nothing
    text: str = ""  # in a report: "dest=2"
    each: tuple[Value, ...] = ()  # of an array: its elements. A call that opens rows opens one for each
    requests: Sequence[int] = ()  # instead of a text: their numbers

    def said(self) -> str:
        """As a report has it."""
        if not self.requests:
            return self.text
        return f"request {', '.join(f'r{number}' for number in self.requests[:4])}"

    def but(self, **changes: Any) -> Value:
        """The same with these changes."""
        return replace(self, **changes)

    def equals(self, other: Value, same_process: bool) -> bool:
        if self.any or other.any:
            return True
        mine, its = (self.here, other.here) if same_process else (self.across, other.across)
        return not mine.isdisjoint(its)

    def differs(self, other: Value, same_process: bool) -> bool:
        """Not the contrary of `equals`: of what cannot be compared (two types of two processes) neither holds."""
        if self.any or other.any:
            return False
        mine, its = (self.here, other.here) if same_process else (self.across, other.across)
        return bool(mine) and bool(its) and mine.isdisjoint(its)


def plain(number: int, text: str = "") -> Value:
    tokens: frozenset[Token] = frozenset((number,))
    return Value(tokens, tokens, number=number, text=text or str(number))


class Arguments(Protocol):
    """Where the values of a call come from (`arguments`)."""

    def value(self, name: int | str) -> Value | None: ...

    def lasts(self, name: int | str) -> bool:
        """Of a call that has a shape: whether this value is the same in all calls of it."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of one rank."""

    rank: int  # in MPI_COMM_WORLD
    number: int  # ascending in the rank, in the order in which they were entered
    function: str  # of the standard, without MPI_; "hide"
    site: int  # where; 0: not known
    enter: int  # ns
    leave: int  # ns; 0: it has not returned
    result: int  # class of its error; 0: none, or it has not returned
    wild: bool  # it takes from any source or tag, and nothing has come
    thread: int
    arguments: Arguments
    pending: bool = False  # it may not be judged yet: it is still inside, or what it takes has not come
    dropped: bool = False  # it has come to nothing: it was cancelled
    shape: Shape | None = None  # if there are others that are alike, what they have in common (`shapes`)

    def value(self, name: int | str) -> Value | None:
        """Of an argument by its place from 1 or its name in the C binding; or of one of `template.ATTRIBUTES`. None:
        it is absent, or not known."""
        return self.arguments.value(name)
