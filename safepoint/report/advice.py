"""What the interval between two sets should have been, by the costs and failures of the run itself.

Young's and Daly's formulas are in `pace.interval`. C is what a set costs, M the mean time between failures, both in
seconds; the interval is time at work between two sets. A few failures say little about M: its limits are those of the
Poisson distribution, exact, at 90 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from safepoint.pace.interval import daly, young

FEW_FAILURES = 5  # failures; with fewer the limits of M are more than a factor of 5 apart
TAIL = 0.05  # of the distribution, on each side


@dataclass(frozen=True)
class Advice:
    """All in seconds. `mean` is None if nothing has failed; `high` infinite then."""

    cost: float
    failures: int
    work: float
    mean: float | None
    low: float
    high: float

    @property
    def young(self) -> float | None:
        return None if self.mean is None else young(self.cost, self.mean)

    @property
    def daly(self) -> float | None:
        return None if self.mean is None else daly(self.cost, self.mean)

    @property
    def range(self) -> tuple[float, float]:
        """Daly's interval at the limits of M."""
        return daly(self.cost, self.low), daly(self.cost, self.high)

    def shares(self, interval: float) -> tuple[float, float]:
        """The expected shares of the time that go into saving, and into what is lost, to first order."""
        assert self.mean is not None
        return self.cost / (interval + self.cost), (interval + self.cost) / 2 / self.mean


def advise(cost: float, failures: int, work: float) -> Advice:
    """`cost`: seconds a set; `work`: seconds at work, in which the failures happened."""
    low, high = limits(failures)
    return Advice(
        cost, failures, work, work / failures if failures else None, work / high, work / low if low else math.inf
    )


def limits(count: int) -> tuple[float, float]:
    """Between which the expected number lies if so many were seen; beyond each limit with probability `TAIL`."""
    return _expected(count - 1, 1 - TAIL) if count else 0.0, _expected(count, TAIL)


def _expected(count: int, probability: float) -> float:
    """The mean of the Poisson distribution in which at most `count` has this probability; by bisection."""
    low, high = 0.0, count + 10 + 10 * math.sqrt(count + 1)
    for _ in range(60):
        middle = (low + high) / 2
        at_most = sum(math.exp(n * math.log(middle) - middle - math.lgamma(n + 1)) for n in range(count + 1))
        low, high = (middle, high) if at_most > probability else (low, middle)
    return (low + high) / 2
