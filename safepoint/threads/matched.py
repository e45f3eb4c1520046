"""Which site of one run is which of the other, and whether the two can be compared at all."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safepoint.errors import SafepointError
from safepoint.threads.sites import Sites
from safepoint.threads.trace import Run

_MUST_AGREE = {"level": "levels", "regions": "regions", "statistics": "statistics"}


class UnlikeTraces(SafepointError):
    """Two traces that cannot be compared: of other programs, or recorded at other levels."""


def unlike(a: Run, b: Run, by_name: bool) -> NDArray[np.uint64] | None:
    """For the number of each site of B that of A; None if they have the same. Raises `UnlikeTraces`."""
    for key, name in _MUST_AGREE.items():
        of_a, of_b = (run.about.get(key) for run in (a, b))
        if (of_a or None) != (of_b or None):
            raise UnlikeTraces(
                f"cannot compare {a.directory} and {b.directory}: other {name}, {_said(of_a)} and {_said(of_b)}; "
                f"record both alike"
            )
    builds = a.sites.build, b.sites.build
    if builds[0] != builds[1] and not by_name:
        raise UnlikeTraces(
            f"cannot compare {a.directory} and {b.directory}: of other programs, build {_said(builds[0])} and "
            f"{_said(builds[1])}; --by-name matches their lines by file and name"
        )
    if builds[0] and builds[0] == builds[1]:
        return None
    return _renamed(a.sites, b.sites, by_name)


def _renamed(a: Sites, b: Sites, by_name: bool) -> NDArray[np.uint64] | None:
    known = {key: number for number, key in _keys(a, by_name).items()}
    free = max(a.by_number, default=0) + 2
    found = np.arange(max(b.by_number, default=0) + 2, dtype=np.uint64)
    found[-1] = free  # for numbers that are in no table
    for number, key in _keys(b, by_name).items():
        found[number] = known.get(key, free + 1 + number)
    return None if (found[:-1] == np.arange(len(found) - 1)).all() else found


def _keys(sites: Sites, by_name: bool) -> dict[int, tuple[Any, ...]]:
    """What a site is known by. By name: without the line, which other versions have elsewhere."""
    times: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for number, site in sorted(sites.by_number.items()):
        key: tuple[Any, ...] = (site.type, site.name, PurePath(site.file).name if by_name else site.file)
        if not by_name:
            key = (*key, site.line)
        times[key] += 1
        found[number] = (*key, times[key])
    return found


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{level}" for key, level in value.items())
    return "none" if value is None else repr(value) if value == "" else str(value)
