"""How often does saving pay? The setting `every`, and the interval between two sets that loses the least time.

    Young (1974)  sqrt(2 C M)
    Daly (2006)   sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C    if C < 2M, else M

C is what a set costs the program, M the mean time between failures, both in seconds. The interval is time at work, from
the end of one save to the beginning of the next. `YOUNG` and `DALY` name the sources in full.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from safepoint.pace.times import duration

YOUNG = (
    "J. W. Young, A first order approximation to the optimum checkpoint interval. "
    "Communications of the ACM 17 (1974), 530–531, doi:10.1145/361147.361115"
)
DALY = (
    "J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps. "
    "Future Generation Computer Systems 22 (2006), 303–312, doi:10.1016/j.future.2004.11.016"
)


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
