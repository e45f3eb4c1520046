"""What steps and saves take, as measured by the clock of the program.

Nothing here reads a clock: the caller says what time it is, in seconds of any origin. Only the last steps and saves
count, so that a change of the problem or of the file system is noticed soon.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection

RECENT_STEPS, RECENT_SAVES = 64, 8  # so many of the last ones count: a change shows soon, one that is slow does not


def _mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values)  # `statistics` would take a tenth of all that the import takes


class Steps:
    """What steps take: of one of the calls that a program makes in each, and not always."""

    def __init__(self) -> None:
        self._began: float | None = None  # the first call only starts the clock: what was before it is no step
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)

    def end(self, now: float, count: int) -> float | None:
        """`count` steps have ended, and took so many seconds together; None: nobody knows when they began."""
        began, self._began = self._began, now
        if began is None:
            return None
        self.recent.append((now - began) / count)
        return now - began

    def leave_out(self, seconds: float) -> None:
        """So many, since the last call, were no part of a step."""
        if self._began is not None:
            self._began += seconds

    def forget(self) -> None:
        """A new beginning: what is going on is no step."""
        self._began = None

    @property
    def mean(self) -> float:
        return _mean(self.recent) if self.recent else 0.0

    @property
    def longest(self) -> float:
        return max(self.recent, default=0.0)


class Meter:
    """What saves cost on this rank, by the clock that its caller reads: seconds, of any origin."""

    def __init__(self, now: float) -> None:
        self.since = now  # the end of the last save, or the beginning
        self._begun, self._ended = now, True  # when the set in flight was begun, and whether one has ended since a save
        self.asked: float | None = None  # when the program was last told to save, and has not yet done so
        self._was_saving = False
        self._plain: deque[float] = deque(maxlen=RECENT_STEPS)  # a step, while nothing was being stored
        self._beside = [0.0, 0.0]  # seconds and number of the steps beside which the newest set was stored
        self._blocked: deque[float] = deque(maxlen=RECENT_SAVES)  # writing, and `hide`
        self._waited: deque[float] = deque(maxlen=RECENT_SAVES)  # the same, of sets that `hide` waited for
        self._slowed: deque[float] = deque(maxlen=RECENT_SAVES)  # the steps beside a set, over what they take else
        self._stores: deque[float] = deque(maxlen=RECENT_SAVES)  # of the saver thread

    def step(self, seconds: float, count: int, saving: bool) -> None:
        """`count` steps have ended. `saving`: a set is in flight."""
        beside, self._was_saving = saving or self._was_saving, saving
        if beside:
            self._beside[0] += seconds
            self._beside[1] += count
        else:
            self._end_of_beside()
            self._plain.append(seconds / count)

    def _end_of_beside(self) -> None:
        seconds, count = self._beside
        if count and self._plain:  # the mean, as long steps may come seldom, but come beside the saver too
            self._slowed.append(seconds - count * _mean(self._plain))
        self._beside = [0.0, 0.0]

    def saved(self, begin: float, end: float, *, waited: bool) -> float:
        """`hide` was called, and has returned. The seconds of it that were no part of a step."""
        seconds = end - (begin if self.asked is None else self.asked)
        self._end_of_beside()
        self._was_saving = not waited
        self.since, self.asked = end, None
        if self._ended:  # else this one waits for the one in flight
            self._begun, self._ended = end, False
        (self._waited if waited else self._blocked).append(seconds)
        return seconds

    def stored(self, now: float, seconds: float) -> None:
        """The saver thread was done with a set. If another one waited for that, it is begun now."""
        self._stores.append(seconds)
        self._begun, self._ended = now, True

    @property
    def cost(self) -> float | None:
        """What a set costs, the mean of the last ones: the time to write and hide it, and what the saver slows down.

        The first set is always waited for, and counts only until there is another.
        """
        if not self._blocked:
            return _mean(self._waited) if self._waited else None
        slowed = _mean(self._slowed) if self._slowed else 0.0
        return _mean(self._blocked) + min(max(0.0, slowed), max(self._stores, default=0.0))

    def durable(self, now: float, *, saving: bool) -> float | None:
        """What it takes at most, by the last ones, until a set that is begun now is durable; None: not known."""
        store = max(self._stores, default=0.0)
        before = max(0.0, store - (now - self._begun)) if saving else 0.0  # the one in flight is stored first
        known = [seconds + before + store for seconds in self._blocked] + list(self._waited)
        return max(known, default=None)
