"""The rows of check mode, as the wrappers of the Python tracer write them: arguments, and handles before and after."""

from __future__ import annotations

import contextlib
import math
import operator
import struct
from collections.abc import Iterable
from typing import Any

from safepoint.trace.record import ABSENT, AFTER, ARGUMENTS, HEADER, NOTE, Notes

ONE = struct.Struct("<5qQ").pack_into
UNSIGNED = 2**64 - 1


class Rows:
    """Of one process. All raise `Full`, and nothing else for a value that is odd."""

    def __init__(self, notes: Notes, undefined: int) -> None:
        self._notes, self._undefined = notes, undefined

    def one(self, at: int, kind: int, position: int, value: int) -> None:
        """A row with one handle or number."""
        notes = self._notes
        end = notes._more_at = (begin := notes._more_at) + 48  # (4) of `record`
        if end > notes._more.end:
            notes.room(end)
        ONE(notes._more.map, begin, 3, (at - HEADER) // NOTE, kind, position, 1, value & UNSIGNED)

    def reads(self, at: int, kind: int, position: int, handles: list[int]) -> None:
        """A row with the handles of one array. None: no row."""
        if count := len(handles):
            notes = self._notes
            size = 8 * (5 + count)
            end = notes._more_at = (begin := notes._more_at) + size
            if end > notes._more.end:
                notes.room(end)
            struct.pack_into(f"<5q{count}Q", notes._more.map, begin, 2 + count, (at - HEADER) // NOTE, kind, position,
                             count, *handles)  # fmt: skip

    def handles(self, at: int, kind: int, *groups: tuple[int, Iterable[int]]) -> None:
        """A row with several of these: position, and values. Nothing of one that has none."""
        row: list[int] = []
        for position, values in groups:
            if found := list(values):
                row += (position, len(found), *map(signed, found))
        if row:
            self._notes.more(at, kind, row)

    def some(self, at: int, position: int, indices: list[int] | None) -> None:
        """What `Waitsome` and the like have found: how many, and which."""
        count = self._undefined if indices is None else len(indices)
        self.handles(at, AFTER, (position, (count,)), (position + 1, indices or ()))

    def several(self, at: int, written: tuple[tuple[int, bool], ...], result: Any) -> None:
        """What a method returns that is what the function writes: position of each, and whether it is a handle."""
        found = result if type(result) is tuple else (result,)
        if len(found) == len(written) and all(
            hasattr(value, "handle") if handle else isinstance(value, int)
            for value, (_, handle) in zip(found, written, strict=True)
        ):
            self.handles(at, AFTER, *(
                (position, (value.handle if handle else int(value),))
                for value, (position, handle) in zip(found, written, strict=True)
            ))  # fmt: skip

    def carefully(self, begin: int, at: int, letters: str, values: Iterable[Any]) -> None:
        """The row of arguments, some of which are no numbers. `letters`: Q for a handle."""
        row = [signed(number(value), letter == "Q") for letter, value in zip(letters, values, strict=True)]
        struct.pack_into(f"<{len(row) + 3}q", self._notes._more.map, begin, len(row), (at - HEADER) // NOTE, ARGUMENTS,
                         *row)  # fmt: skip


def signed(value: int, handle: bool = True) -> int:
    """As rows have it: a handle is 64 bits without a sign. ABSENT if it does not fit."""
    if not -(2**63) <= value < (2**64 if handle else 2**63):
        return ABSENT
    return value - 2**64 if value >= 2**63 else value


def number(value: Any) -> int:
    """ABSENT if only the program's own code could tell. mpi4py takes 1.5 for 1."""
    if isinstance(value, int) or (type(value) is float and math.isfinite(value)):
        return int(value)
    if type(value).__module__ == "numpy" and hasattr(type(value), "__index__"):
        with contextlib.suppress(Exception):  # an array of no dimension may be anything
            return operator.index(value)
    return ABSENT
