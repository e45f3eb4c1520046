"""When to save: what steps and saves take, as measured, and the interval between two sets that follows from it.

    Young (1974)  sqrt(2 C M)
    Daly (2006)   sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C    if C < 2M, else M

C is what a set costs the program, M the mean time between failures, both in seconds; the interval is time at work from
the end of one save to the beginning of the next. The sources are named in full in `YOUNG` and `DALY`.

With several ranks one decides, the one whose clock counts, and says with each decision how many calls later the next
one is made: in between a call counts down, and no rank speaks. Every rank must call alike.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection
from typing import NamedTuple, Protocol

from safepoint.times import duration, shown

YOUNG = (
    "J. W. Young, A first order approximation to the optimum checkpoint interval. "
    "Communications of the ACM 17 (1974), 530–531, doi:10.1145/361147.361115"
)
DALY = (
    "J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps. "
    "Future Generation Computer Systems 22 (2006), 303–312, doi:10.1016/j.future.2004.11.016"
)
STEPS, SAVES = 64, 8  # so many of the last ones count
NEVER = 2**62  # calls, or nanoseconds: brought to a minimum by a rank that has no say
SHARE = 0.1  # of the interval: so late may a decision be, with several ranks, if steps stay as long as they are
MOST = 256  # calls without a decision, should they not
PRIOR = 0.5  # failures that are taken to have been seen before the first one (Jeffreys' prior for a rate)


def _mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values)  # `statistics` would take a tenth of all that the import takes


def young(cost: float, mean: float) -> float:
    return math.sqrt(2 * cost * mean)


def daly(cost: float, mean: float) -> float:
    if math.isinf(mean) or cost >= 2 * mean:
        return mean
    ratio = cost / (2 * mean)
    return math.sqrt(2 * cost * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


class Every(NamedTuple):
    """The setting `every`: so many steps, or so many seconds; neither: what `daly` says."""

    steps: int = 0
    seconds: float = 0.0


def every(text: str) -> Every:
    """Of `10 steps`, `15min`, `auto`. Raises `ValueError`."""
    match = re.fullmatch(r"([1-9]\d*)\s*steps?", text)
    if match:
        return Every(steps=int(match[1]))
    if text == "auto":
        return Every()
    try:
        return Every(seconds=duration(text))
    except ValueError:
        raise ValueError("takes a number of steps, a time, or auto, such as 10 steps or 15min") from None


class Past(NamedTuple):
    """What the log tells of earlier lives: failures, seconds at work, and what their last set cost and took, seconds
    that the program stood still and seconds until it was durable; None: not known."""

    failures: int = 0
    seconds: float = 0.0
    cost: float | None = None
    store: float | None = None


_LINE = re.compile(rb'^\{"time": ([\d.]+), "event": "(\w+)", "pid": \d+(.*)\}$', re.M)
_NUMBER = {name: re.compile(rf'"{name}": ([\d.e+-]+)'.encode()) for name in ("began", "cost", "seconds")}


def past(log: bytes, *, present: bool) -> Past:
    """Of a log. `present`: its last life is the one at work, of which only roll-backs count."""
    lives: list[list[float]] = []  # of each: its begin, its last sign of life, 1 if it failed, and its last two sets
    rolled, cost, store = 0, None, None
    for match in _LINE.finditer(log):
        time, event, rest = float(match[1]), match[2], match[3]
        began = _NUMBER["began"].search(rest) if b'"began"' in rest else None
        if b'"by_hand"' in rest:
            continue
        if began or not lives:
            lives.append([float(began[1]) if began else time, time, 1, 0.0, 0.0])
        elif event == b"restored":
            rolled += 1
        life = lives[-1]
        life[1] = max(life[1], time)
        if event in (b"finished", b"stopped") or (event == b"ended" and b'"error"' not in rest):
            life[2] = 0
        elif event == b"ended":
            life[2] = 0 if began else 2  # a start that was refused has nothing else to tell
        elif event == b"saved":
            life[2:] = [1, life[4], time]
            if found := _NUMBER["cost"].search(rest):
                cost = float(found[1])
            if found := _NUMBER["seconds"].search(rest):
                store = float(found[1])
    ended = lives[:-1] if present else lives
    seconds = sum(end - begin for begin, end, *_ in ended)
    for life, after in zip(ended, [*lives[1:], None], strict=False):  # after its last line a killed one went on
        if life[2] == 1 and life[3]:
            unseen = (life[4] - life[3]) / 2
            seconds += min(unseen, max(0.0, after[0] - life[1])) if after else unseen
    return Past(sum(life[2] > 0 for life in ended) + rolled, max(0.0, seconds), cost, store)


class Peers(Protocol):
    """The ranks that decide together, as `ranks` has them."""

    @property
    def size(self) -> int: ...

    def least(self, *values: int) -> tuple[int, ...]: ...


class Steps:
    """What steps take: of one of the calls that a program makes in each, and not always."""

    def __init__(self) -> None:
        self._began: float | None = None  # the first call only starts the clock: what was before it is no step
        self.recent: deque[float] = deque(maxlen=STEPS)

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
        self.asked: float | None = None  # when the program was last told to save, and has not yet done so
        self._was_saving = False
        self._plain: deque[float] = deque(maxlen=STEPS)  # a step, while nothing was being stored
        self._beside = [0.0, 0.0]  # seconds and number of the steps beside which the newest set was stored
        self._blocked: deque[float] = deque(maxlen=SAVES)  # writing, and `hide`
        self._waited: deque[float] = deque(maxlen=SAVES)  # the same, of sets that `hide` waited for
        self._slowed: deque[float] = deque(maxlen=SAVES)  # the steps beside a set, over what they take else
        self._stores: deque[float] = deque(maxlen=SAVES)  # of the saver thread

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
        (self._waited if waited else self._blocked).append(seconds)
        return seconds

    def stored(self, seconds: float) -> None:
        """The saver thread was done with a set."""
        self._stores.append(seconds)

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
        before = max(0.0, store - (now - self.since)) if saving else 0.0  # `hide` waits for the one in flight
        known = [seconds + before + store for seconds in self._blocked] + list(self._waited)
        return max(known, default=None)


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

    def waits(self) -> bool:
        """Whether this call is one of those before the next decision, which are answered with no."""
        self._calls += 1
        self._taken += 1
        if self._rest <= 0:
            return False
        self._rest -= 1
        return True

    def begin_anew(self) -> None:
        """A set was hidden, or given back."""
        self._calls = self._rest = 0

    def decide(self, peers: Peers, leads: bool, now: float, *, saving: bool, first: bool) -> bool:
        """`leads`: this rank decides. `first`: there is no set yet."""
        count, self._taken = max(1, self._taken), 0
        seconds = self.steps.end(now, count)
        if seconds is not None:
            self.meter.step(seconds, count, saving)
        if self._every.steps:  # all count alike
            self._rest = max(0, self._every.steps - self._calls - 1)
            self.reason = f"{self._calls} steps since the last set"
            return self._calls >= self._every.steps
        due, rest = self._judge(now, first, peers.size) if leads else (False, NEVER)
        if peers.size > 1:
            cost = self.meter.cost
            flag, rest, most = peers.least(-due, rest, NEVER if cost is None else -int(cost * 1e9))
            due, self._slowest = bool(flag), None if most == NEVER else -most / 1e9
        self._rest = rest
        return due

    def _judge(self, now: float, first: bool, size: int) -> tuple[bool, int]:
        elapsed = now - self.meter.since
        interval, why = self._interval(now, first)
        step = self.steps.mean
        if elapsed + step / 2 >= interval:  # now is nearer than after the next step
            self.reason = f"{shown(elapsed)} since the last set, {why}" if interval else why
            return True, 0
        ahead = min((interval - elapsed) / 2, interval * SHARE)
        return False, min(int(ahead / step), 2 * self._calls, MOST) if size > 1 and step else 0

    def _interval(self, now: float, first: bool) -> tuple[float, str]:
        """Seconds from set to set, and where they come from."""
        if self._every.seconds:
            return self._every.seconds, f"every {shown(self._every.seconds)}"
        if first:
            return 0.0, "no set yet"
        cost = self.cost
        if cost is None:
            return 0.0, "what a set costs is not known yet"
        mean, source = self._mean(now)
        best = daly(cost, mean)
        return best, f"optimum {shown(best)} (cost {shown(cost)}, MTBF {shown(mean)}, {source})"

    @property
    def cost(self) -> float | None:
        measured = max((c for c in (self.meter.cost, self._slowest) if c is not None), default=None)
        return self._past.cost if measured is None else measured

    def _mean(self, now: float) -> tuple[float, str]:
        if self._mtbf is not None:
            return self._mtbf, "given"
        seconds, failures = self._past.seconds + max(0.0, now - self._began), self._past.failures
        count = "1 failure" if failures == 1 else f"{failures or 'no'} failures"
        return seconds / (failures + PRIOR), f"{count} in {shown(seconds)}"
