"""Calls by hand of which one is missing: a trace in which regions, threads or loops do not end where they must.

What is still open at the end of a trace is no fault: a program may stop anywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds
from safepoint.threads.canon import CHUNK, Ints, marks
from safepoint.threads.trace import Run

_STEPS = {
    kinds.REGION: kinds.REGION_END, kinds.ENTER: kinds.LEAVE, kinds.LOOP: kinds.LOOP_END,
    kinds.SECTIONS: kinds.SECTIONS_END,
}  # fmt: skip
_BY_HAND = {kinds.REGION: "SP_REGION_END", kinds.ENTER: "SP_LEAVE", kinds.LOOP: "SP_LOOP_END",
            kinds.SECTIONS: "SP_END of SECTIONS"}  # fmt: skip


def unbalanced(run: Run, name: str) -> str:
    """What to say if the first thread has a begin without its end; empty: it has none."""
    if not run.threads:
        return ""
    records = run.threads[0].records
    at = _marked(records["kind"])
    kind, value = records["kind"][at], records["value"][at]
    outer = value < kinds.NESTED
    begins, ends = (kind == kinds.REGION) & outer, (kind == kinds.REGION_END) & outer
    depth = np.cumsum(begins.astype(np.int64) - ends)
    found = [(int(np.argmax(bad)), of) for bad, of in (
        (begins & (depth > 1), kinds.REGION), ((kind == kinds.REGION) & ~outer & (depth < 1), kinds.ENTER),
        *((_open(kind, begins, ends, of), of) for of in (kinds.ENTER, kinds.LOOP, kinds.SECTIONS)),
    ) if bad.any()]  # fmt: skip
    if not found:
        return ""
    number, of = min(found)
    where = np.flatnonzero(begins[:number])
    site = run.sites.by_number.get(int(records["site"][at[where[-1]]])) if len(where) else None
    place = f"{site.file}:{site.line}: " if site else ""
    return (f"{place}{_BY_HAND[of]} is missing in {name}, so regions after it are lost: without it nothing can be "
            "compared (a return or goto out of a region leaves it out, too)")  # fmt: skip


def _marked(kind: NDArray[np.uint8]) -> Ints:
    wanted = np.zeros(256, bool)
    wanted[[*_STEPS, *_STEPS.values()]] = True
    parts = [marks(kind, begin, min(begin + CHUNK, len(kind)), wanted) for begin in range(0, len(kind), CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _open(kind: NDArray[np.uint8], begins: NDArray[np.bool_], ends: NDArray[np.bool_], of: int) -> NDArray[np.bool_]:
    """The ends of regions at which more of these are open than at their begins."""
    open_ = np.cumsum((kind == of).astype(np.int64) - (kind == _STEPS[of]))
    last = np.maximum.accumulate(np.where(begins, np.arange(len(kind)), -1)) if len(kind) else np.zeros(0, np.int64)
    found: NDArray[np.bool_] = ends & (last >= 0) & (open_ > open_[np.maximum(last, 0)])
    return found
