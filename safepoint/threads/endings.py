"""A variable that differs after a region in which all recorded writes are equal: what is known of it, and what not.

(1) Another thread was the last to write it only if that is proven: one value that the region assigns, an array that it
assigns as a whole, or a least or greatest value that was written in both runs and is left in one.
(2) Else elements that the region never assigns may differ, and these may never have had a value: that is not decided.
(3) Where no write of it was recorded, as by procedures that have another name for it, that is said, and no more.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint import words
from safepoint.threads import hints, kinds
from safepoint.threads.compare import Found
from safepoint.threads.difference import Difference, Event
from safepoint.threads.sites import Site
from safepoint.threads.texts import ONLY
from safepoint.threads.trace import Run, Thread
from safepoint.threads.values import Rules, event_words, parts

FEW = 10  # times as much is rounded in a sum as in the largest of its parts, or the root of their number
MOST = 5  # lines that are named


class Ending(NamedTuple):
    """`decided`: whether the two runs differ for certain in what this program does."""

    decided: bool
    text: str


class _Written(NamedTuple):
    """`whole`: the array was assigned as a whole; `values`: as doubles, of those that are numbers. `sites`: of all that
    was recorded in the visit, whatever it names; `loose`: lines at which writes of it are not compared."""

    events: int
    whole: bool
    values: NDArray[np.float64]
    sites: frozenset[int]
    loose: list[int]


def whole(run: Run) -> bool:
    """Whether all writes were recorded: what is made of sums is compared by each of them."""
    level = run.about.get("level") or {}
    return level.get("variables") in ("modify", "full") and not run.about.get("regions")


def explained(found: Found, run: Run, b_run: Run) -> Found:
    """With what is known of a digest that differs, if all writes of both runs were recorded."""
    a = found.difference.a if found.difference else None
    if not whole(run) or found.difference is None or not (end := ending(found.difference, run, [], b_run)):
        return found
    if found.carried and a and a.kind == kinds.DIGEST and not a.extra:
        text = f"what {a.site.name} is made of differs in the last bits, as sums do"
        end = Ending(False, f"{text}: whether it differs by more can be told with SP_STATISTICS=1 for both")
    found.notes.append(end.text)
    found.unsure = not end.decided
    return found


def ending(difference: Difference, run: Run, left: Iterable[Sequence[Any]], b_run: Run | None = None) -> Ending | None:
    """Of traces with all writes of the region; None if it is not a digest that differs. `left`: file, line and text
    of each statement that is not recorded, and why."""
    a, b = difference.a, difference.b
    if a is None or b is None or a.kind != kinds.DIGEST or difference.what != "value" or not difference.inside:
        return None
    name = a.site.name.lstrip("&")  # of C
    left, found = list(left), _written(run, difference.visit, name)
    if a.site.loose == "reduction" and _reduced(name, difference.region, run):
        if text := _cancelled(a, b, found.values):
            return Ending(False, f"Cannot tell: {text}")
        return Ending(True, f"all writes in it are equal{hints.by_digest(a.site, difference.region)}")
    if lines := _left(name, [*_called(found.sites, run, difference.region)], left):
        which = ", ".join(map(str, lines[:MOST]))
        if isinstance(lines[0], int):
            which = f"{'line' if len(lines) == 1 else 'lines'} {which}"
        more = f" and {words.count(len(lines) - MOST, 'other')}" if len(lines) > MOST else ""
        return Ending(True, f"all writes that are recorded in it are equal; what {which}{more} may assign to {name} "
                            "is not recorded")  # fmt: skip
    alone = [row for row in left if row[-1] == ONLY]
    if lines := _left(name, list(run.sites.by_number.values()), alone):
        which = f"{'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines[:MOST]))}"
        text = f"{which}, outside of it, may assign to {name}, and is not recorded"
        return Ending(False, f"Cannot tell: all that is recorded in it is equal; {text}")
    if found.loose:
        at = f"line{'s' if len(found.loose) > 1 else ''} {', '.join(map(str, found.loose[:MOST]))}"
        return Ending(True, f"what threads assign to {name} at {at} is their own, or in an order of chance, and is not "
                            "compared: is it by the number of threads, or is something lost?")  # fmt: skip
    if (edges := run.about.get("edges")) is not None:
        text = f"of each loop only the first and the last {words.count(edges, 'iteration')} are recorded"
        return Ending(False, f"Cannot tell where: {text} (SP_EDGES; edges in threads.toml), and these are equal")
    often = found.events if b_run is None else _written(b_run, difference.visit, name).events
    if found.events != often:
        times = f"{words.count(found.events, 'time')}, and B {words.count(often, 'time')}"
        return Ending(
            True, f"A assigns {name} in it {times}: is it for one thread alone (SINGLE), or to be shared out?"
        )
    if found.whole or (found.events and a.words[0] == 1) or _lost(a, b, found.values):
        return Ending(True, f"all writes in it are equal{hints.by_digest(a.site, difference.region)}")
    if not found.events:
        return Ending(True, f"no assignment of {name} was recorded in it, and all that was is equal")
    what = f"all {words.count(found.events, 'write')} of {name} ({a.words[0]} elements) in it are equal"
    return Ending(False, f"Cannot tell: {what}. What this region does not assign differs: had it ever a value? If it "
                         f"had none, --exclude {name}. Or else another thread was the last to write it")  # fmt: skip


def _written(run: Run, visit: int, name: str) -> _Written:
    """All writes of a variable in one visit of a region."""
    mine = {number: site.name for number, site in run.sites.by_number.items()
            if site.name == name or re.match(rf"{re.escape(name)}\s*[(%\[]", site.name)}  # fmt: skip
    events, whole, values, sites = 0, False, [np.empty(0)], set[int]()
    for thread in run.threads:
        for records in _blocks(thread, visit):
            of = np.isin(records["site"], list(mine)) & np.isin(records["kind"], [kinds.WRITE, kinds.DIGEST])
            whole |= any(mine[int(number)] == name and int(kind) == kinds.DIGEST
                         for number, kind in np.unique(records[["site", "kind"]][of]).tolist())  # fmt: skip
            events += int(of.sum())
            sites |= set(np.unique(records["site"]).tolist())
            values += _values(records, np.flatnonzero(of & (records["kind"] == kinds.WRITE)))
    known = [run.sites.by_number[number] for number in sorted(sites & set(mine))]
    loose = sorted({site.line for site in known if site.loose and site.type != "variable-read"})
    return _Written(events, whole, np.concatenate(values), frozenset(sites), loose)


def _blocks(thread: Thread, visit: int) -> Iterator[NDArray[Any]]:
    """What a thread has recorded in this visit, up to its last LEAVE in it."""
    records = thread.records
    outer = (records["kind"] == kinds.ENTER) & (records["value"] < kinds.NESTED)
    leaves = np.flatnonzero(records["kind"] == kinds.LEAVE)
    enters = np.flatnonzero(outer)
    for at in np.flatnonzero(outer & (records["value"] == visit)).tolist():
        later = enters[enters > at]
        inside = leaves[(leaves > at) & (leaves < (later[0] if len(later) else len(records)))]
        yield records[at : inside[-1] if len(inside) else len(records)]


def _values(records: NDArray[Any], of: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    found = []
    plain = np.ascontiguousarray(records).view(np.uint64).reshape(-1, 2)
    for type in np.unique(records["type"][of]).tolist():
        numbers = parts(type, event_words(plain, of[records["type"][of] == type]))
        if numbers is not None and numbers.shape[1] == 1:
            found.append(numbers[:, 0])
    return found


def _lost(a: Event, b: Event, values: NDArray[np.float64]) -> bool:
    """Whether the least or greatest of one run was written in both, and is overwritten in the other."""
    if not (a.extra and b.extra and len(a.words) >= 7 and len(b.words) >= 7):
        return False
    (low, high), (low_b, high_b) = (struct.unpack("<2d", struct.pack("<2Q", *each.words[3:5])) for each in (a, b))
    return bool(
        (low != low_b and (values == min(low, low_b)).any()) or (high != high_b and (values == max(high, high_b)).any())
    )


def _reduced(name: str, region: Site | None, run: Run) -> bool:
    """Whether it is in a REDUCTION in the region. Of calls by hand nobody knows."""
    if region is None or not region.procedure:
        return True
    clause = re.compile(rf"\breduction\s*\([^)]*\b{re.escape(re.split(r'[%(]', name)[0])}\b", re.I)
    return any(
        site.file == region.file and region.line <= site.line <= region.line2 and clause.search(site.clauses)
        for site in run.sites.by_number.values()
    )


def _called(sites: frozenset[int], run: Run, region: Site | None) -> Iterator[Site]:
    """The region, and the procedures of which something was recorded in this visit of it: those that it calls."""
    if region is None:
        return
    yield region
    known = run.sites.by_number
    seen = [known[number] for number in sites if number in known]
    entered = {(site.file, site.name) for site in seen if site.type == "procedure"}
    entered |= {(site.file, site.procedure) for site in seen} - {(region.file, region.procedure)}
    yield from (site for site in known.values() if site.type == "procedure" and (site.file, site.name) in entered)


def _cancelled(a: Event, b: Event, values: NDArray[np.float64]) -> str:
    """Whether a sum differs by no more than the rounding of what was summed in it on the way; empty: by more."""
    if not (a.words[0] == 1 and a.extra and b.extra and len(values)):
        return ""
    x, y = (struct.unpack("<d", struct.pack("<Q", each.words[3]))[0] for each in (a, b))
    most = float(np.abs(values[np.isfinite(values)]).max(initial=0))
    if not 0 < abs(x - y) <= max(FEW, len(values) ** 0.5) * Rules().of_sums(a.type) * most:
        return ""
    return (f"{a.site.name} was up to {most:.2g} in size while it was summed, and differs by {abs(x - y):.2g}, the "
            f"rounding of that: --atol {hints.least(abs(x - y))} allows for it")  # fmt: skip


def _left(name: str, places: Sequence[Site], left: Iterable[Sequence[Any]]) -> list[int | str]:
    """Lines in these places that are not recorded and name the variable; with the file if it is not the region's."""
    word = re.compile(rf"(?<![\w%]){re.escape(re.split(r'[%(]', name)[0])}\b", re.I)
    found = {(Path(file).name, int(line)) for file, line, text, *_ in left for place in places
             if Path(file).name == Path(place.file).name and place.line <= int(line) <= place.line2
             and word.search(text)}  # fmt: skip
    own = Path(places[0].file).name if places else ""
    return [
        line if file == own else f"{file}:{line}" for file, line in sorted(found, key=lambda at: (at[0] != own, at))
    ]
