"""A note of a trace as `check` takes it: `tail` reads them, whoever has written them."""

from __future__ import annotations

from typing import NamedTuple

from safepoint.trace import record

BEFORE, AFTER, ABSENT = 5, 6, -(2**63)
Rows = dict[int, list[int]]  # of `.more`: kind → values


class Noted(NamedTuple):
    """The fields of a note (`record.FIELDS`), its function by name, and its rows."""

    number: int  # of the note in its rank, from 0
    function: str
    enter: int
    leave: int
    site: int
    flags: int
    peer: int
    tag: int
    got_peer: int
    got_tag: int
    bytes: int
    request: int
    comm: int
    thread: int
    result: int
    state: int
    rows: Rows

    @property
    def inside(self) -> bool:
        """The call has not returned."""
        return self.state == record.ENTERED


def groups(row: list[int]) -> dict[int, list[int]]:
    """Of a row BEFORE or AFTER: place of the argument from 1 → its values. What does not fit is left out."""
    found, at = {}, 0
    while at + 2 <= len(row) and 0 <= row[at + 1] <= len(row) - at - 2:
        found[row[at]] = row[at + 2 : at + 2 + row[at + 1]]
        at += 2 + row[at + 1]
    return found
