"""The first wrong region of a run that was killed and resumed, for `safepoint crash-test`.

A resumed run begins anew with region 1, and does not do all that the undisturbed one did before. Both end alike: so the
regions are matched from the end, as far back as they are the same places of the source.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.errors import SafepointError

SERIAL = ".serial"  # after the name of a program that was built by `safepoint threads build`: its other half


class Region(NamedTuple):
    """`digests`: of what it has made, by site."""

    visit: int
    site: int
    digests: dict[int, tuple[int, ...]]


def variables(command: Sequence[str], directory: str, trace: str) -> dict[str, str]:
    """What lets a program that was built for it record its regions; nothing for any other."""
    for word in command:
        found = os.path.join(directory, word) if os.path.dirname(word) else shutil.which(word)
        if found and os.path.exists(found + SERIAL):
            return {"SP_LEVEL": "minimal", "SP_DIR": trace}
    return {}


def first_wrong(a: str, b: str) -> str:
    """The first region of the last life of B that makes what A does not; empty: none, or nobody can tell."""
    if not (os.path.isdir(a) and os.path.isdir(b)):
        return ""
    try:
        from safepoint.threads.trace import Run

        runs = Run(Path(a)), Run(Path(b))
        if runs[0].sites != runs[1].sites:
            return ""
        sides = [regions(run) for run in runs]
    except (SafepointError, ModuleNotFoundError):  # a trace that was cut, or there is no numpy
        return ""
    alike = 0
    for one, other in zip(*(reversed(side) for side in sides), strict=False):
        if one.site != other.site:
            break
        alike += 1
    for one, other in zip(*(side[len(side) - alike :] for side in sides), strict=True):
        names = [number for number, value in one.digests.items() if other.digests.get(number, value) != value]
        if names:
            return _told(runs[0].sites.by_number, one, other, names)
    return ""


def _told(sites: dict[int, Any], one: Region, other: Region, names: Sequence[int]) -> str:
    at = sites.get(one.site)
    where = f"{at.file}:{at.line}-{at.line2}" if at else f"site {one.site}"
    what = ", ".join(sites[number].name if number in sites else f"site {number}" for number in names)
    numbers = f"region {other.visit}; in A {one.visit}"
    return f"the first region that is wrong after the last restart: {where}, {what} ({numbers})"


def regions(run: Any) -> list[Region]:
    """In the order of their visits, without those inside of others."""
    from safepoint.threads import kinds

    found: list[Region] = []
    for thread in run.threads:
        inside: Region | None = None
        kind = thread.records["kind"]
        wanted = ((kind == kinds.REGION) | (kind == kinds.REGION_END) | (kind == kinds.DIGEST)).nonzero()[0].tolist()
        columns = [thread.records[name] for name in ("kind", "site", "value")]
        for at in wanted:
            kind, site, value = (int(column[at]) for column in columns)
            if kind == kinds.REGION and value < kinds.NESTED:
                inside = Region(value, site, {})
                found.append(inside)
            elif kind == kinds.REGION_END and inside and value == inside.visit:
                inside = None
            elif kind == kinds.DIGEST and inside:
                inside.digests[site] = (value, *(map(int, columns[2][at + 1 : at + 3])))
    return sorted(found)
