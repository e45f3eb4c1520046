"""Which set is in its turn to be put elsewhere, on one rank: rules (1) and (2) of `nodes`."""

from __future__ import annotations

import time
from typing import NamedTuple

IDLE, BUSY, LOST = 0, 1, 2  # of a turn on one rank; the most of all ranks counts


class Asked(NamedTuple):
    """A set that is in its turn."""

    number: int
    identity: str


class Turn:
    """Rule (1), of one level, on one rank."""

    def __init__(self, *, mine: bool) -> None:
        """`mine`: this rank hears when its node has put a set."""
        self.mine = mine
        self.now: Asked | None = None
        self.safe: Asked | None = None  # rule (2)
        self.since = 0.0  # time.monotonic, when that of now began
        self.put = True  # this node has put that of now
        self.lost = False  # it cannot be put any more
        self.found: frozenset[int] = frozenset()  # by a restart, as long as nothing is safe since

    @property
    def state(self) -> int:
        return LOST if self.lost else BUSY if self.mine and self.now and not self.put else IDLE

    def agreed(self, most: int) -> None:
        if most == IDLE and self.now:
            self.safe, self.found = self.now, frozenset()

    def begin(self, asked: Asked) -> None:
        self.now, self.put, self.lost, self.since = asked, False, False, time.monotonic()

    def has(self, number: int) -> bool:
        return self.now is not None and self.now.number == number and self.now != self.safe

    @property
    def held(self) -> set[int]:
        return {asked.number for asked in (self.now, self.safe) if asked} | self.found

    @property
    def under_way(self) -> set[int]:
        return {self.now.number} if self.now and not self.put else set()
