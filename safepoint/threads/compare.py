"""Two traces compared: the first difference in the order of a serial program, or that there is none.

(1) Of two differences the earlier one in canonical order counts, whichever thread it was and whenever it happened.
(2) What is not known is never taken for equal: a trace that was cut is compared as far as it goes, and that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from safepoint import words
from safepoint.threads import bags, hints, kinds
from safepoint.threads.balance import unbalanced
from safepoint.threads.canon import ALIKE, CLASS_BITS, PLACE_BITS, SINGLE, Canon, Line, Pieces, cut_alike, key
from safepoint.threads.difference import Difference, Event, told
from safepoint.threads.kinds import DIGEST
from safepoint.threads.matched import UnlikeTraces, unlike
from safepoint.threads.pairing import Inner, Lack, Pair, Spot, Two
from safepoint.threads.trace import Run
from safepoint.threads.values import Judge, Rules
from safepoint.threads.walk import Batch, Side

__all__ = ["Comparing", "Difference", "Event", "Found", "Rules", "UnlikeTraces", "compare"]

EQUAL, DIFFERENT, UNDECIDED = 0, 1, 2  # exit codes
COUNTS = ("reductions", "carried", "carried_inside", "carried_arrays", "single", "tolerated", "by_statistics",
          "unknown")  # fmt: skip


@dataclass
class Found:
    """What a comparison came to. `regions`: visits that are equal, up to the difference if there is one. `undecided`:
    why the rest is not known; empty if all is. `stopped_pids`: programs that got SIGSTOP."""

    difference: Difference | None = None
    regions: int = 0
    notes: list[str] = field(default_factory=list)
    undecided: str = ""
    stopped_pids: list[int] = field(default_factory=list)
    carried: int = 0  # writes in regions that differ in their last bits, as sums do, though they are none
    single: bool = False  # sums of single precision do
    unsure: bool = False  # the difference may be of elements that never had a value

    @property
    def code(self) -> int:
        if self.undecided or self.unsure:
            return UNDECIDED
        return DIFFERENT if self.difference else EQUAL


def compare(
    a: Run, b: Run, rules: Rules | None = None, only: Iterable[int] | None = None, by_name: bool = False
) -> Found:
    """What differs first between two runs; with `only`, in these region visits and the code before each.

    Raises `UnlikeTraces` if they are of other programs or levels, or lack a call by hand, and `UsageError` if they were
    discarded.
    """
    for run, name in ((a, "A"), (b, "B")):
        run.kept()
        if text := unbalanced(run, name):
            raise UnlikeTraces(text)
    comparing = Comparing(Side(a, "A"), Side(b, "B"), rules or Rules(), by_name)
    if only is None:
        while comparing.step():
            pass
        comparing.rest()
    else:
        for visit in sorted(set(only)):
            if not comparing.one(visit):
                break
    return comparing.end()


class Comparing:
    """A comparison that goes on region by region."""

    def __init__(self, a: Side, b: Side, rules: Rules, by_name: bool = False) -> None:
        self.a, self.b, self.rules, self.by_name = a, b, rules, by_name
        self.found = Found()
        self.over = False  # nothing that comes later can be told
        self.meet()

    def meet(self) -> None:
        """Match the sites of both: again if there may be more of them."""
        self.renamed = unlike(self.a.run, self.b.run, self.by_name)
        judge = Judge(self.a.run.sites, self.rules)
        known = getattr(self, "judge", None)
        if known is not None:
            for count in COUNTS:
                setattr(judge, count, getattr(known, count))
        self.judge = judge

    def step(self) -> bool:
        """Compare the next region visits that both have as a whole; False if there are none, or at a difference."""
        upto = min(self.a.whole(), self.b.whole())
        if not upto or self.found.difference or self.over:
            return False
        self.batch(self.a.take(upto), self.b.take(upto))
        if self.found.difference is None and not self.over:
            self.found.regions = self.a.ended
            return True
        return False

    def one(self, visit: int) -> bool:
        """Go on to this region visit, and compare it with what is before it; False if there is nothing to follow."""
        sides = (self.a, self.b)
        whole = [side.reach(visit) for side in sides]
        for side in sides:
            if side.end_of(visit - 1) is not None:
                side.take(visit - 1)
        if any(side.cut and side.ended < visit - 1 for side in sides):
            self._cut([side.cut for side in sides])
            return False
        if not all(whole):
            self.rest()
            return False
        self.batch(self.a.take(visit), self.b.take(visit))
        if self.found.difference is None and not self.over:
            self.found.regions += 1
            return True
        return False

    def rest(self) -> None:
        """Compare what is left, as far as both go."""
        if self.found.difference or self.over:
            return
        sides = (self.a, self.b)
        cuts = [side.cut for side in sides]
        for side in sides:
            side.whole()
        x, y = (side.take(side.next()) for side in sides)  # one visit, though threads may lack it
        self.batch(x, y, Lack(bool(cuts[0]), bool(cuts[1])))
        if any(cuts) and not self.found.difference and not self.over:
            self._cut(cuts)

    def _cut(self, cuts: list[str]) -> None:
        regions = "region" if self.found.regions == 1 else "regions"
        where = f"{self.found.regions} {regions} of both were compared; from there on nothing is known"
        self.found.undecided = f"{'; '.join(cut for cut in cuts if cut)}: {where}"

    def end(self) -> Found:
        """What was found, with notes."""
        if self.judge.unknown and self.found.difference is None and not self.found.undecided:
            sites = [self.a.run.sites.by_number[number] for number in sorted(self.judge.unknown)]
            names = ", ".join(dict.fromkeys(site.name for site in sites))
            self.found.undecided = f"by how much {names} differs, a sum of threads: record both with SP_STATISTICS=1"
        self.found.notes = self._notes()
        self.found.carried, self.found.single = self.judge.carried_inside, self.judge.single
        return self.found

    def batch(self, x: Batch, y: Batch, lack: Lack | None = None) -> None:
        edges = self.a.run.about.get("edges") != self.b.run.about.get("edges")
        lack = (lack or Lack())._replace(edges=edges)
        ends = [[len(log.records) for log in side.logs] for side in (self.a, self.b)]
        nested = bool(self.a.nested) and bool(self.b.nested)
        two = Two(self.judge, (ends[0], ends[1]), (self.a.inside, self.b.inside), lack, self.renamed, nested)
        spot = self._first(x, y, two)
        if spot:
            found = told(spot, (self.a, self.b), (x, y))
            self.found.regions = found.regions_equal
            self.found.undecided = _chance(found)
            self.over = bool(self.found.undecided)
            self.found.difference = None if self.over else found
        self.a.forget()
        self.b.forget()

    def _first(self, x: Batch, y: Batch, two: Two) -> Spot | None:
        """The first difference in some region visits."""
        a, b = cut_alike(x.canon(self.a), y.canon(self.b))
        if self.renamed is not None:
            b = b._replace(spine=_renamed(b.spine, self.renamed))
        files = [[log.records.view(np.complex128) for log in side.logs] for side in (self.a, self.b)]
        pair = Pair(Line(a.spine, files[0]), Line(b.spine, files[1]), two)
        spots, inner = [pair.first()], pair.inner
        for (s, t), visits in _teams(a, b).items():
            one, other = (_of(c.alike, team, visits) for c, team in ((a, s), (b, t)))
            pair = Pair(Line(one, files[0]), Line(other, files[1]), two, (s, t))
            spots.append(pair.first())
            inner = inner + pair.inner
        if not any(two.lack) and len(a.bags.key) + len(b.bags.key):
            equal = _equal_sizes(a, b)
            lines = [Line(_bags(c.bags, equal), f) for c, f in zip((a, b), files, strict=True)]
            spots.append(bags.differ(lines[0], lines[1], two))
        found = [spot for spot in spots if spot]
        first = min(found, key=lambda spot: spot.order) if found else None
        inner = [each for each in inner if first is None or each.order < first.order]
        return self._nested(sorted(inner, key=lambda each: each.order), two) or first

    def _nested(self, inner: list[Inner], two: Two) -> Spot | None:
        """The first difference inside of these nested regions. One that several threads of the other run have entered
        is compared with each: all that are compared at once are different ones."""
        rounds: list[list[Inner]] = []
        times: Counter[tuple[str, int]] = Counter()
        for each in inner:
            number = max(times["a", each.a], times["b", each.b])
            times["a", each.a] = times["b", each.b] = number + 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(each)
        found = []
        for some in rounds:
            x, y = self.a.inner([each.a for each in some]), self.b.inner([each.b for each in some])
            if spot := self._first(x, y, two):
                outer = some[spot.key >> (PLACE_BITS + CLASS_BITS)]
                found.append((outer.order, spot._replace(outer=(outer.spot, *spot.outer))))
        return min(found, key=lambda each: each[0])[1] if found else None

    def _notes(self) -> list[str]:
        judge, notes = self.judge, []
        if judge.reductions:
            many = "reduction that differs" if judge.reductions == 1 else "reductions that differ"
            single = f" ({self.rules.of_sums(kinds.REAL4):.0e} of single precision)" if judge.single else ""
            notes.append(f"{judge.reductions} {many} in the last bits, within {self.rules.reduction_rtol:g}{single}")
        if judge.carried:
            differ = "differs" if judge.carried == 1 else "differ"
            values = words.count(judge.carried, "other value" if judge.reductions else "value")
            alone = f", {judge.carried_arrays} by statistics of an array alone" if judge.carried_arrays else ""
            notes.append(f"{values} that {differ} in the last bits, as sums of threads do{alone}")
        for number in sorted(judge.unknown):
            site = self.a.run.sites.by_number[number]
            notes.append(f"{site.file}:{site.line}: {site.name}, a reduction, differs in bits")
        for side in (self.a, self.b):
            if side.edges is not None:
                ends = words.count(side.edges, "iteration")
                notes.append(f"of each loop of {side.name} only the first and the last {ends} were recorded (SP_EDGES)")
        notes += [f"{option} fits no variable of this program" for option in judge.idle]
        if judge.sums and (text := hints.cancels(self.found.difference)):
            notes.append(text)
        event = self.found.difference and (self.found.difference.a or self.found.difference.b)
        asked = self.rules.rtol or self.rules.atol or self.rules.tolerances
        if asked and event and event.kind == DIGEST and not event.extra:
            notes.append(f"a tolerance applies to the digest of {event.site.name} only if both have SP_STATISTICS=1")
        if judge.tolerated:
            differ, are = ("differs", "is") if judge.tolerated == 1 else ("differ", "are")
            values = words.count(judge.tolerated, "value")
            notes.append(f"{values} {differ} in bits, and {are} the same within the tolerance")
        if judge.by_statistics:
            what = "is an array" if judge.by_statistics == 1 else "are arrays"
            notes.append(f"{judge.by_statistics} of these {what}, compared by statistics alone")
        return notes


def _chance(difference: Difference) -> str:
    """Why a difference is none for certain: what tasks do is recorded by whichever thread does them, in its order."""
    tasks, region, event = difference.tasks, difference.region, difference.a or difference.b
    if not tasks or not region or not event or event.kind == kinds.DIGEST:
        return ""
    where = f"region {difference.visit} ({region.file}:{region.line})"
    if tasks.type == "procedure":
        where += f" calls {tasks.name} ({tasks.file}:{tasks.line}), which"
    return (f"{where} has TASK, and in which order threads do these is chance: it is equal by its digests or not, and "
            f"not to be compared event by event ({event.site.file}:{event.site.line})")  # fmt: skip


def _renamed(pieces: Pieces, renamed: NDArray[np.uint64]) -> Pieces:
    """What SINGLE and MASTER are known by, in the numbers of A."""
    alone, numbers = pieces.kind() == SINGLE, pieces.numbers.copy()
    numbers[0, alone] = renamed[np.minimum(numbers[0, alone], len(renamed) - 1)]
    return pieces._replace(numbers=numbers).sorted()


def _teams(a: Canon, b: Canon) -> dict[tuple[int, int], NDArray[np.bool_]]:
    """Which threads are compared in which visits: by number if teams are equal, else each with the other one's 0."""
    count = min(len(a.sizes), len(b.sizes))
    x, y = a.sizes[:count], b.sizes[:count]
    found: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for thread in range(1, int(max(x.max(initial=0), y.max(initial=0)))):
        for pair, visits in (
            ((thread, thread), (x == y) & (x > thread)),
            ((0, thread), (x != y) & (y > thread)),
            ((thread, 0), (x != y) & (x > thread)),
        ):
            if visits.any():
                found[pair] = visits
    return found


def _of(pieces: Pieces, team: int, visits: NDArray[np.bool_]) -> Pieces:
    visit = pieces.visit()
    mine = (pieces.team == team) & (visit < len(visits))
    mine[mine] = visits[visit[mine]]
    found = pieces.chosen(mine).sorted()
    return found._replace(key=key(found.visit(), 1, ALIKE))  # of each visit as a whole: a SINGLE may cut it or not


def _equal_sizes(a: Canon, b: Canon) -> NDArray[np.bool_]:
    count = min(len(a.sizes), len(b.sizes))
    found: NDArray[np.bool_] = a.sizes[:count] == b.sizes[:count]
    return found


def _bags(pieces: Pieces, equal: NDArray[np.bool_]) -> Pieces:
    """Of iterations; and what each thread did, if the teams are equal."""
    visit = pieces.visit()
    known = visit < len(equal)
    alike = pieces.numbers[0] == 1
    known[known] &= ~alike[known] | equal[visit[known]]
    return pieces.chosen(known)
