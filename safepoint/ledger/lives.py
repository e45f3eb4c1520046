"""A run as its logs tell it: its lives, their sets, and the events in words.

A *life* is one stretch of computing: from a start, or from a roll-back in the same process, to its last sign of life.
All times are seconds on the run's own clock, which begins with the first life and never goes back. `history` fills all
of this in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

ENDINGS = {
    "finished": "finished", "running": "still running", "killed": "killed", "error": "ended by an error",
    "rolled back": "rolled back", "ended": "ended before the result", "stopped": "stopped in order",
    "not begun": "ended before it had begun",
}  # fmt: skip
FAILURES = ("killed", "error", "rolled back")


@dataclass
class Save:
    """One set, stored or failed; `at` is when that was known. Sizes are of all ranks, `seconds` of the slowest."""

    number: int
    step: int | None
    at: float
    wall: float  # the same by the clock of the machine, seconds since the epoch
    seconds: float
    waited: bool  # the program stood still until then, and not only while its files moved away
    files: int = 0
    bytes: int = 0
    stored: int = 0
    error: str = ""
    blocked: float | None = None  # seconds that `hide` kept the program; None: the log does not say
    slowest: tuple[float, int] | None = None  # seconds and rank, of the rank that `hide` kept longest
    length: float = 0.0  # seconds, of storing on the time line's own rank
    use: int | None = None  # bytes of all sets that were there when it was durable; None: the log does not say

    @property
    def name(self) -> str:
        return f"set {self.number}" if self.step is None else f"set {self.number} (step {self.step})"

    @property
    def hide(self) -> tuple[float, float]:
        """When the program stood still."""
        end = self.at if self.waited else self.at - self.length
        return end - (self.blocked or 0.0), end


@dataclass
class Life:
    how: str  # start, restart, roll-back
    pid: int
    begin: float
    ready: float = -1.0  # when its files were in place
    end: float = 0.0  # last sign of life
    ending: str = ""
    error: str = ""
    step: int | None = None  # what it began from
    set: int | None = None
    again: bool = False  # it began after the run was finished
    passed_over: list[str] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    result: int | None = None  # the step that it finished at
    blocked: float = 0.0  # seconds in `hide`, those of sets that died with it included
    superseded: int = 0  # sets that were hidden, and gave way to a newer one before they were stored
    kept: float = math.inf  # what was computed later than this was computed again
    unseen: float = 0.0  # seconds, estimated: at work after the last line of the log, and lost
    repeated: int = 0  # steps that the life after this one had to compute again
    marked: bool = False  # its beginning is in the log
    many: bool = False  # of many processes, as a job script makes them
    taken: float | None = None  # when the set that it began from was taken
    asked: float = -1.0  # when it was asked to stop; before all if it was not
    waits: list[tuple[int, float]] = field(default_factory=list)

    @property
    def reached(self) -> int | None:
        steps = [self.step, self.result, *(save.step for save in self.saves)]
        return max((step for step in steps if step is not None), default=None)

    @property
    def alive(self) -> float:
        return self.end - self.begin

    @property
    def restoring(self) -> float:
        return self.ready - self.begin

    @property
    def lost(self) -> float:
        """Seconds of computing that were in vain, as far as the log shows."""
        if self.kept >= self.end:
            return 0.0
        blocked = sum(save.blocked or 0.0 for save in self.saves if save.hide[0] >= self.kept)
        return max(0.0, self.end - self.kept - blocked)

    @property
    def computing(self) -> float:
        return max(0.0, self.alive - self.restoring - self.blocked - self.lost)


@dataclass
class Event:
    """One line of a log, in words; `subject` is the set, `bad` means a failure."""

    at: float
    wall: float
    life: int
    rank: int
    event: str
    text: str
    subject: str
    bad: bool


@dataclass
class Part:
    """What one rank had to do with the sets of the whole run. Of the times the median and the longest, in seconds."""

    rank: int
    sets: int
    bytes: int
    storing: tuple[float, float]
    blocked: tuple[float, float] | None  # None: the log does not say


@dataclass
class Run:
    work: str
    rank: int  # whose log the time line is
    ranks: int
    lives: list[Life]
    events: list[Event]
    torn: int  # lines that could not be read
    jumped: float  # seconds that the clock of the machine went back, in all
    parts: list[Part] = field(default_factory=list)  # by rank

    @property
    def saves(self) -> list[Save]:
        return [save for life in self.lives for save in life.saves]

    @property
    def last(self) -> Life:
        """The last life that had begun; if none had, the last."""
        return next((life for life in reversed(self.lives) if life.ending != "not begun"), self.lives[-1])

    @property
    def wall(self) -> float:
        return max(life.end for life in self.lives)

    @property
    def alive(self) -> float:
        return sum(life.alive + life.unseen for life in self.lives)

    @property
    def failures(self) -> int:
        return sum(life.ending in FAILURES for life in self.lives)

    @property
    def state(self) -> str:
        return self.last.ending

    @property
    def interval(self) -> float | None:
        """Seconds of computing between two sets, the median; None: there were never two in one life."""
        spans = []
        for life in self.lives:
            hides = sorted(save.hide for save in life.saves)
            spans += [max(0.0, later[0] - earlier[1]) for earlier, later in pairwise(hides)]
        return median(spans) if spans else None

    @property
    def cost(self) -> float | None:
        """Seconds that a set kept the program waiting, the mean; None: the log does not say."""
        known = [save.blocked for save in self.saves if save.blocked is not None]
        return sum(known) / len(known) if known else None
