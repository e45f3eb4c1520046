"""What a difference in a digest alone may come from."""

from __future__ import annotations

import numpy as np

from safepoint.threads import kinds
from safepoint.threads.difference import Difference
from safepoint.threads.sites import Site
from safepoint.threads.values import Rules, statistics_near

NEAR = 1e-9  # relative difference of statistics that rounding may explain


def by_digest(site: Site, region: Site | None) -> str:
    """Of a variable that differs after a region in which all writes are equal."""
    name = site.name
    if site.loose == "reduction":
        return f", and the REDUCTION of {name} is not: is its operator the one by which the loop makes {name}?"
    last = "PRIVATE, or LASTPRIVATE"
    if region is not None and region.name.lower() == "parallel":  # which may not have it
        last += " on the DO, FOR or SECTIONS in the region"
    return f": another thread was the last to write {name}. Is it to be {last}?"


def near(difference: Difference) -> bool:
    """Whether the statistics of two digests are the same but for rounding."""
    return _near(difference, NEAR)


def rounded(difference: Difference, rules: Rules) -> bool:
    """Whether they are as near as sums of threads are: then rounding may be all, or elements that changed places."""
    event = difference.a
    if event is None or not kinds.REAL4 <= event.type <= kinds.COMPLEX16:
        return False
    return _near(difference, rules.of_sums(event.type))


def _near(difference: Difference, rtol: float) -> bool:
    rows = []
    for event in (difference.a, difference.b):
        if event is None or event.kind != kinds.DIGEST or not event.extra or len(event.words) < 7:
            return False
        rows.append(np.array(event.words[3:], np.uint64).view(np.float64))
    return difference.what == "value" and len(rows[0]) == len(rows[1]) and statistics_near(rows[0], rows[1], rtol)
