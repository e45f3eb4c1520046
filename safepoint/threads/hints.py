"""What a difference in a digest alone may come from."""

from __future__ import annotations

import math

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


def by_hand(difference: Difference, rules: Rules) -> str:
    """Of calls by hand, where nobody knows which values are sums of threads: the name of the macro for these, if two
    values are as near as such sums are; else empty."""
    a, b = difference.a, difference.b
    if not difference.by_hand or a is None or b is None or a.site.loose or difference.what != "value":
        return ""
    if a.kind == kinds.DIGEST:
        alike = rounded(difference, rules)
    else:
        real = kinds.REAL4 <= a.type <= kinds.COMPLEX16
        alike = real and abs(a.value - b.value) <= rules.of_sums(a.type) * max(abs(a.value), abs(b.value))
    name = a.site.name
    text = f"as near as sums of threads are: if {name} is one, or made of one, SP_DIGEST_SUM allows for it"
    return text if alike else ""


def cancels(difference: Difference | None) -> str:
    """What to try if two reals differ by little more than sums of threads do, and these may have cancelled."""
    if difference is None or difference.what != "value" or difference.a is None or difference.b is None:
        return ""
    a, b = difference.a, difference.b
    if a.kind == kinds.DIGEST or not kinds.REAL4 <= a.type <= kinds.REAL16:
        return ""
    apart = abs(a.value - b.value)
    if not 0 < apart <= NEAR:
        return ""
    return f"what is left where sums of threads cancel is their rounding: --atol {least(apart)} allows for so little"


def least(apart: float) -> str:
    """The next power of ten."""
    return f"1e{math.ceil(math.log10(apart)):03d}"


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
