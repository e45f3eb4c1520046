"""A difference, with all that can be said about it: which events, in which iteration, region and thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds
from safepoint.threads.canon import CHUNK, CLASS_BITS, PLACE_BITS, marks
from safepoint.threads.pairing import Place, Spot
from safepoint.threads.sites import Site
from safepoint.threads.trace import decoded
from safepoint.threads.walk import Batch, Log, Side

_FRAMES, _LOOPS = np.zeros(256, bool), np.zeros(256, bool)
_FRAMES[[kinds.ENTER, kinds.LEAVE]] = True
_LOOPS[[kinds.ENTER, kinds.LEAVE, kinds.ITER, kinds.LOOP_END, kinds.SECTIONS_END]] = True
_ENDS = {kinds.LOOP_END, kinds.SECTIONS_END}
_SUM = re.compile(r"(?:(?<=[(,])|^)\s*(-?\d+)\s*([-+])\s*(\d+)\s*(?=[,)])")  # an index from begin to end
_UNKNOWN = Site(0, "", "?", "?", 0, 0)


@dataclass(frozen=True)
class Event:
    """One event of one run. `thread`: of the program; `team`: of the region; `line`: of the exported text of the
    thread. `words`: its value, and those of its records MORE."""

    thread: int
    team: int
    line: int
    site: Site
    kind: int
    type: int
    extra: int
    words: tuple[int, ...]

    @property
    def value(self) -> Any:
        return decoded(self.type, list(self.words))


@dataclass(frozen=True)
class Iteration:
    """The numbers of an iteration, and what the variables are called."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    section: bool = False


@dataclass(frozen=True)
class Difference:
    """`visit`: the region to look at; if it is not `inside`, what differs comes before it, in sequential code.

    `a`, `b`: the events; None if a side has none there. `time`: the how manieth at this line in this iteration.
    `around`: iterations of regions around this one. `last`: values that differ within the tolerance, before it.
    `deviates`: numbers in their teams of threads of A and B that should do the same.
    """

    what: str
    visit: int
    inside: bool
    region: Site | None
    a: Event | None
    b: Event | None
    iteration: Iteration | None
    around: tuple[Iteration, ...]
    time: int
    regions_equal: int
    iterations_equal: int
    iterations: int
    last: tuple[Event, Event] | None
    deviates: tuple[int, int] | None
    unset: tuple[Site, ...]
    bag: bool
    nested: bool = False  # in a region within a region
    tasks: Site | None = None  # of the region in which it is, or of a procedure called there: it has TASK
    by_hand: bool = False  # the calls of the program are
    after: bool = False  # neither has this visit: it is after the last region

    @property
    def place(self) -> str:
        """Of which region it is in, or before."""
        if self.after and not self.inside:
            return f"after region {self.visit - 1}" if self.visit > 1 else "outside of regions"
        return f"region {self.visit}" if self.inside else f"before region {self.visit}"


def told(spot: Spot, sides: tuple[Side, Side], batches: tuple[Batch, Batch]) -> Difference:
    """All about the place where two runs differ."""
    outermost = spot.outer[0] if spot.outer else spot
    number = 0 if outermost.a else 1
    side, batch = sides[number], batches[number]
    place = outermost.a or outermost.b
    assert place is not None
    visit, inside, ended, region = _region(side, batch, outermost, place)
    a, b = (event(each, at) if at else None for each, at in zip(sides, (spot.a, spot.b), strict=True))
    mine = spot.a or spot.b
    assert mine is not None
    log = sides[0 if spot.a else 1].logs[mine[0]]
    begin = loop_item(log, mine[1])
    one = spot.last
    return Difference(
        spot.what, visit, inside, side.run.sites.by_number.get(region), a, b,
        None if begin is None else iteration(sides[0 if spot.a else 1], log, begin),
        tuple(item for each in spot.outer if (item := _around(sides[0], each))),
        _time(log, begin, mine[1]), ended, spot.equal, spot.of,
        (event(sides[0], one[0]), event(sides[1], one[1])) if one else None,
        spot.deviates, _unset(sides, batches, outermost), spot.key & 3 == 2,
        bool(spot.outer), _tasks(sides, batches, outermost) if inside else None, not side.run.sites.build,
        not any(_has(each, visit) for each in sides),
    )  # fmt: skip


def _region(side: Side, batch: Batch, spot: Spot, place: Place) -> tuple[int, bool, int, int]:
    """Visit, whether it is in it, how many had ended before, and the site of the region."""
    visit = spot.key >> (PLACE_BITS + CLASS_BITS)
    if (spot.key >> CLASS_BITS) & ((1 << PLACE_BITS) - 1):
        enter = int(batch.blocks.first[(batch.blocks.visit == visit) & (batch.blocks.file == 0)][0])
        return (batch.visits[visit], True, *side.region(enter)[2:])
    found, inside, ended, site = side.region(place[1])
    return (found if inside else found + 1, inside, ended, site if inside else 0)


def _has(side: Side, visit: int) -> bool:
    """Whether a run has ended this region visit, or a later one; of one that goes on: so far."""
    return any(number >= visit for _, _, number in side.region_marks) or side.reach(visit)


def event(side: Side, place: Place) -> Event:
    file, at = place
    log = side.logs[file]
    records = log.records
    while at and int(records["kind"][at]) == kinds.MORE:
        at -= 1
    site, extra, type, kind, value = records[at].item()
    words = [value]
    while at + len(words) < log.end and int(records["kind"][at + len(words)]) == kinds.MORE:
        words.append(int(records["value"][at + len(words)]))
    begin = _enclosing(log, at, _FRAMES, frozenset())
    team = int(records["extra"][begin]) if begin is not None else 0
    known = side.run.sites.by_number.get(site, _UNKNOWN._replace(number=site))
    return Event(int(log.thread.path.stem), team, log.line(at), known, kind, type, extra, tuple(words))


def loop_item(log: Log, record: int) -> int | None:
    """The ITER of the iteration in which a record is."""
    if int(log.records["kind"][record]) == kinds.ITER:
        return record
    found = _enclosing(log, record, _LOOPS, _ENDS)
    return found if found is not None and int(log.records["kind"][found]) == kinds.ITER else None


def _enclosing(log: Log, record: int, of: NDArray[np.bool_], ends: Any) -> int | None:
    """The nearest record of these kinds before, outside of nested blocks; None after one of `ends`."""
    kind_of, depth = log.records["kind"], 0
    for end in range(record, 0, -CHUNK):
        for at in marks(kind_of, max(0, end - CHUNK), end, of)[::-1].tolist():
            kind = int(kind_of[at])
            if kind == kinds.LEAVE:
                depth += 1
            elif depth:
                depth -= kind == kinds.ENTER
            else:
                return None if kind in ends else at
    return None


def iteration(side: Side, log: Log, begin: int) -> Iteration:
    records = log.records
    count = max(1, int(records["extra"][begin]))
    numbers = tuple(records["value"][begin : begin + count].view(np.int64).tolist())
    site = side.run.sites.by_number.get(int(records["site"][begin]), _UNKNOWN)
    names = tuple(name.strip() for name in site.name.split(","))
    return Iteration(names, numbers, site.type in ("section", "sections"))


def _around(side: Side, spot: Spot) -> Iteration | None:
    if spot.a is None:
        return None
    log = side.logs[spot.a[0]]
    begin = loop_item(log, spot.a[1])
    return None if begin is None else iteration(side, log, begin)


def _time(log: Log, begin: int | None, record: int) -> int:
    """The how manieth event of this site in the iteration."""
    if begin is None:
        return 1
    part = log.records[begin : record + 1]
    return max(1, int(np.count_nonzero((part["site"] == part["site"][-1]) & (part["kind"] == part["kind"][-1]))))


def _blocks(sides: tuple[Side, Side], batches: tuple[Batch, Batch], spot: Spot) -> Iterator[tuple[Side, Any, int, int]]:
    """What the threads of both recorded in this region: records, first and end."""
    visit = spot.key >> (PLACE_BITS + CLASS_BITS)
    for side, batch in zip(sides, batches, strict=True):
        for block in np.flatnonzero(batch.blocks.visit == visit).tolist():
            records = side.logs[int(batch.blocks.file[block])].records
            yield side, records, int(batch.blocks.first[block]), int(batch.blocks.end[block])


def _unset(sides: tuple[Side, Side], batches: tuple[Batch, Batch], spot: Spot) -> tuple[Site, ...]:
    """The private variables that were read before they were written, in this region."""
    found: dict[int, Site] = {}
    if not (spot.key >> CLASS_BITS) & ((1 << PLACE_BITS) - 1):
        return ()
    only = np.zeros(256, bool)
    only[kinds.PRIVATE_UNSET] = True
    for side, records, first, end in _blocks(sides, batches, spot):
        at = marks(records["kind"], first, end, only)
        for number in np.unique(records["site"][at]).tolist():
            if number in side.run.sites.by_number:
                found[number] = side.run.sites.by_number[number]
    return tuple(found.values())


def _tasks(sides: tuple[Side, Side], batches: tuple[Batch, Batch], spot: Spot) -> Site | None:
    """The region, or a procedure of which something was recorded in it, if its text has TASK."""
    loose = [site for site in sides[0].run.sites.by_number.values() if site.loose == "task"]
    if not loose:
        return None
    blocks = [*_blocks(sides, batches, spot)]
    blocks += [(side, side.logs[block.file].records, block.first, block.end)
               for side in sides for some in side.nested.values() for block in some]  # fmt: skip
    for side, records, first, end in blocks:
        for number in np.unique(records["site"][first - 1 : end]).tolist():  # from its ENTER on
            site = side.run.sites.by_number.get(number, _UNKNOWN)
            for each in loose:
                if each.file == site.file and each.line <= site.line <= each.line2:
                    return each
    return None


def _summed(found: re.Match[str]) -> str:
    sign = -1 if found[2] == "-" else 1
    return str(int(found[1]) + sign * int(found[3]))


def filled(name: str, item: Iteration | None) -> str:
    """A variable as the source has it, with the numbers of the iteration in its brackets: `b(i,2)`."""
    head, bracket, rest = name.partition("(")
    if not bracket or item is None or len(item.names) != len(item.numbers):
        return name
    for variable, number in zip(item.names, item.numbers, strict=True):
        if variable.isidentifier():
            rest = re.sub(rf"(?<![\w%.]){variable}(?![\w%(])", str(number), rest, flags=re.I)
    return head + bracket + _SUM.sub(_summed, rest)
