"""What a session announces to those who listen: the log, and the clock that says when to save and when to stop.

A listener is called in the thread where the thing happens: `stored`, `failed` and `pruned` in that of the saver, if
there is one. It must raise nothing (but `hiding`) and wait for nothing, since what it hears of has happened already.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from safepoint.record import Item, Record, Taken

CLOCK = "%Y-%m-%d %H:%M:%S"


class SavePoint(NamedTuple):
    """One set of files, as `hide` took it or `restore` gave it back.

    `step` is the program's own label, None if it gave none; `time` is when the set was taken, in seconds since the
    epoch; `files` are paths relative to the working directory. `finished`: the run was finished, and the files in place
    are its result. `extra`: what `hide` was given along; empty if nothing.
    """

    number: int
    step: int | None
    time: float
    files: tuple[str, ...]
    finished: bool = False
    extra: Mapping[str, Any] = {}

    def __hash__(self) -> int:
        return hash(self[:5])

    def __repr__(self) -> str:
        what = "the result of a finished run" if self.finished else f"set {self.number}"
        step = "" if self.step is None else f", step {self.step}"
        when = time.strftime(CLOCK, time.localtime(self.time))
        more = f", extra {dict(self.extra)}" if self.extra else ""
        return f"<SavePoint: {what}{step}, {len(self.files)} files, {when}{more}>"


class Outcome(NamedTuple):
    """What a restore has come to, on one rank."""

    point: SavePoint | None  # None: a first start
    record: Record | None  # this rank's part of the set that was given back
    passed: list[str]  # why not each newer set
    aside: list[str]  # files that were moved to `discarded/`
    changed: list[str]  # files of a finished run that are no longer what they were
    asked: bool = False  # this set was asked for, and not the newest
    left: Sequence[int] = ()  # the sets of this rank that are there


class Listener:
    """Hears of everything, and does nothing about it."""

    def hiding(self, number: int) -> None:
        """`hide` was called, and will look for files for a set with this number. What this raises, and it alone may,
        is a failure of this rank: nothing is taken on any."""

    def brings(self) -> tuple[int, ...]:
        """What this rank brings to the agreement of `hide`: integers, as many on all ranks, and of one listener only.
        With ranks that do not agree on every set it is that of this rank alone."""
        return ()

    def agreed(self, number: int, least: Sequence[int], wait: int, *, at_once: bool) -> None:
        """Of each of these the minimum over all ranks; the set of this number is taken on all of them, and they wait
        until it is safe as far as `wait`. `at_once`: its storing begins now, on all; else a newer one may take its
        place. Not called if there is nothing to take, or it failed."""

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        """`hide` took this long (time.perf_counter); `taken`: there is a set; `waited`: it is durable already, and how
        much further it is to go while all ranks wait. `files`: those of this rank."""

    def superseded(self, taken: Taken) -> None:
        """A set is given up that waited for the saver: a newer one was taken."""

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        """A set is committed; `waited`: `hide` did it, not the saver."""

    def failed(self, taken: Taken, error: Exception, seconds: float) -> None:
        """A set could not be stored."""

    def pruned(self, numbers: Sequence[int]) -> None:
        """These sets were removed, as newer ones are durable."""

    def restored(self, outcome: Outcome) -> None:
        """`restore` has ended well."""

    def adopted(self, number: int, record: Record | None) -> None:
        """The session goes on from this newest number, and from this set, without a restore."""

    def finished(self, number: int, step: int | None) -> None:
        """The run is finished."""

    def closing(self, error: BaseException | None, stopped: str) -> None:
        """The session ends without a result; `stopped`: why, if by `stop`."""

    def closed(self) -> None:
        """The session has ended, however it did."""

    def after(self, *, ended: bool) -> None:
        """A verb has ended, and no handler waits any more; this may take time. `ended`: the session has."""
