"""Is it time to save? One rank decides, the one whose clock counts.

With each decision it says how many calls later it decides next. In between a call counts down, and no rank speaks.
So every rank must call alike.
"""

from __future__ import annotations

from typing import Protocol

from safepoint.pace.interval import Every, daly
from safepoint.pace.meter import Meter, Steps
from safepoint.pace.past import Past
from safepoint.words import about, count

NO_SAY = 2**62  # calls, or nanoseconds: what a rank that does not decide brings to a minimum
LATE_SHARE = 0.1  # the share of an interval by which a decision may come late, with several ranks
MOST_CALLS = 256  # the most calls between two decisions: steps may become longer meanwhile
PRIOR = 0.5  # failures taken to have been seen before the first one (Jeffreys' prior for a rate)


class Peers(Protocol):
    """The ranks that decide together, as `ranks` has them."""

    @property
    def size(self) -> int: ...

    def least(self, *values: int) -> tuple[int, ...]: ...


class Pace:
    """Whether it is time to save: the decisions of one session."""

    def __init__(self, every: Every, mtbf: float | None, past: Past, meter: Meter, began: float) -> None:
        """`began`: when this life began, by the clock of `decide`."""
        self._every, self._mtbf, self._past, self.meter, self._began = every, mtbf, past, meter, began
        self.steps = Steps()
        self.reason = ""  # of the decision that it is time
        self._calls = 0  # since the last set
        self._rest = 0  # calls that need no decision
        self._taken = 0  # calls since the last decision
        self._slowest: float | None = None  # the cost on the rank where it is largest
        self.ahead = 0.0  # seconds for which no decision is needed, if this was the last one

    def waits(self) -> bool:
        """Whether this call is one of those before the next decision, which are answered with no."""
        self._calls += 1
        self._taken += 1
        if self._rest <= 0:
            return False
        self._rest -= 1
        return True

    def count(self, calls: int) -> None:
        """So many calls were answered with no elsewhere."""
        self._calls += calls
        self._taken += calls

    def take_rest(self) -> int:
        """The calls that need no decision, to be answered elsewhere."""
        rest, self._rest = self._rest, 0
        return rest

    def begin_anew(self) -> None:
        """A set was hidden, or given back."""
        self._calls = self._rest = 0

    def decide(self, peers: Peers, leads: bool, now: float, *, saving: bool, first: bool) -> bool:
        """`leads`: this rank decides. `first`: there is no set yet."""
        calls, self._taken = max(1, self._taken), 0
        seconds = self.steps.end(now, calls)
        if seconds is not None:
            self.meter.step(seconds, calls, saving)
        if self._every.steps:  # all count alike
            self._rest = max(0, self._every.steps - self._calls - 1)
            self.reason = f"{self._calls} steps since the last set"
            return self._calls >= self._every.steps
        due, rest = self._judge(now, first, peers.size) if leads else (False, NO_SAY)
        if peers.size > 1:
            cost = self.meter.cost
            flag, rest, most = peers.least(-due, rest, NO_SAY if cost is None else -int(cost * 1e9))
            due, self._slowest = bool(flag), None if most == NO_SAY else -most / 1e9
        self._rest = rest
        return due

    def _judge(self, now: float, first: bool, size: int) -> tuple[bool, int]:
        elapsed = now - self.meter.since
        interval, why = self._interval(now, first)
        step = self.steps.mean
        if elapsed + step / 2 >= interval:  # now is nearer than after the next step
            self.reason = f"{about(elapsed)} since the last set, {why}" if interval else why
            self.ahead = 0.0
            return True, 0
        self.ahead = ahead = min((interval - elapsed) / 2, interval * LATE_SHARE)
        return False, min(int(ahead / step), 2 * self._calls, MOST_CALLS) if size > 1 and step else 0

    def _interval(self, now: float, first: bool) -> tuple[float, str]:
        """Seconds from set to set, and where they come from."""
        if self._every.seconds:
            return self._every.seconds, f"every {about(self._every.seconds)}"
        if first:
            return 0.0, "no set yet"
        cost = self.cost
        if cost is None:
            return 0.0, "what a set costs is not known yet"
        mean, source = self._mean(now)
        best = daly(cost, mean)
        return best, f"optimum {about(best)} (cost {about(cost)}, MTBF {about(mean)}, {source})"

    @property
    def cost(self) -> float | None:
        measured = max((c for c in (self.meter.cost, self._slowest) if c is not None), default=None)
        return self._past.cost if measured is None else measured

    def _mean(self, now: float) -> tuple[float, str]:
        if self._mtbf is not None:
            return self._mtbf, "given"
        seconds, failures = self._past.seconds + max(0.0, now - self._began), self._past.failures
        known = count(failures, "failure") if failures else "no failures"
        return seconds / (failures + PRIOR), f"{known} in {about(seconds)}"
