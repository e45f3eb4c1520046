"""What an answer of two equal runs does not cover, and what to do next: no run proves that there is no race.

What was not compared is never taken for equal: without a digest nobody knows what a region has assigned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from safepoint import words
from safepoint.threads.difference import Difference
from safepoint.threads.kinds import DIGEST, NESTED, REGION
from safepoint.threads.sites import Site
from safepoint.threads.trace import Run

RACE = re.compile(r": a race\b|\bhas NOWAIT\b")  # in a warning of `build`
RUNS, NOISE = "--runs 5", "--noise 50"
MACRO = "SP_DIGEST before SP_REGION_END"
NEXT = "ThreadSanitizer is the next step"


def nothing(runs: Sequence[Run]) -> tuple[str, str]:
    """The verdict, and why nothing of what threads do was compared; empty if something was. `runs`: ranks of A."""
    found = [each for run in runs for each in _visits(run)]
    if not found:
        return "no region", "no region was recorded, so nothing of what threads do was compared"
    if all(each is not None for each in found):
        return "no digest", f"no region has a digest ({MACRO}), so nothing of what threads assign was compared"
    return "", ""


def some(runs: Sequence[Run]) -> list[str]:
    """How many regions have no digest, of calls by hand."""
    found = [each for run in runs for each in _visits(run)]
    places = [each for each in found if each is not None]
    if not places:
        return []
    named = ", ".join(dict.fromkeys(f"{site.file}:{site.line}" for site in places))
    have, they = ("has", "it assigns") if len(places) == 1 else ("have", "they assign")
    of = words.count(len(found), "region")
    return [f"{len(places)} of {of} {have} no digest ({MACRO}), and what {they} was not compared: {named}"]


def _visits(run: Run) -> Iterable[Site | None]:
    """The site of each visit of a region that is in no other, and has no digest up to the next one; None if it has, or
    `build` knows what has none."""
    for thread in run.threads:
        kind, records = thread.records["kind"], thread.records
        begins = np.flatnonzero((kind == REGION) & (records["value"] < NESTED))
        digests = np.searchsorted(np.flatnonzero(kind == DIGEST), np.append(begins, len(kind)))
        for number, count in zip(records["site"][begins].tolist(), np.diff(digests).tolist(), strict=True):
            yield None if count or run.sites.build else run.sites.by_number.get(number, Site(0, "", "", "?", 0, 0))


def ending(warned: Sequence[str], runs: int, noise: int) -> list[str]:
    """What `build` has warned of, after two runs that are equal: a race that did not happen is none the less one."""
    if not warned:
        return []
    lines = ["but `build` has warned:", *(f"  {text}" for text in warned)]
    if any(RACE.search(text) for text in warned):
        none = f"none showed in {words.count(runs, 'run')} of B"
        lines.append(f"races are chance, and {none}: {chance(runs, noise) or NEXT}")
    return lines


def earlier(difference: Difference) -> str:
    """Of what was found after the last region, as what is printed differs."""
    watch = "SP_DIGEST of it in each region" if difference.by_hand else "`!$sp watch NAME`"
    return ("it may differ earlier, as it is in none of the digests of the regions: where first, is shown by "
            f"{watch}, or by SP_LEVEL=full and `safepoint threads compare`")  # fmt: skip


def chance(runs: int, noise: int) -> str:
    """What of the options that make races show was not used; empty: nothing."""
    left = [option for option, used in ((RUNS, runs > 1), (NOISE, noise > 0)) if not used]
    return f"try {' '.join(left)}" if left else ""
