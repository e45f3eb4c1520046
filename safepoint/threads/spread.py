"""Where the rounding of a sum has come to: regions that are traced before it is believed to be rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable

from safepoint.threads.restarted import regions
from safepoint.threads.trace import Run

MOST = 16  # regions that are traced for this; what the others make is compared by its statistics


def reached(pairs: Iterable[tuple[Run, Run]], upto: float = math.inf) -> list[int]:
    """The first visit before `upto` in which each digest differs, of the traces of two runs, for each rank a pair."""
    found = set[int]()
    for a, b in pairs:
        seen = set[int]()
        for one, other in zip(regions(a), regions(b), strict=False):
            if one.visit >= upto or one.site != other.site:
                break
            new = {site for site, value in one.digests.items() if other.digests.get(site, value) != value} - seen
            seen |= new
            if new:
                found.add(one.visit)
    return sorted(found)[:MOST]
