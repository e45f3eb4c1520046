"""The two passes: digests of both runs find the region that differs, and all events of that region find the line.

(1) A is run once for each question; B again and again, as far as `Plan.runs` allows: threads differ by chance.
(2) Pass 2 has reads too if A shows that they are not too many. Both sides have the same level.
(3) What cannot be decided is said, with exit code 2, and never taken for equal.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safepoint import words
from safepoint.errors import FormatError
from safepoint.threads import endings, hints, lacking, printed, runs, telling
from safepoint.threads.compare import Found, Rules, UnlikeTraces, compare
from safepoint.threads.kinds import NESTED, REAL4, REAL8, RECORD, REGION
from safepoint.threads.runs import Ran
from safepoint.threads.spread import reached
from safepoint.threads.trace import Run
from safepoint.threads.verdicts import DIFFERENT, EQUAL, UNDECIDED, Screen

MOST_EVENTS = 10_000_000  # of a region of which reads are recorded too
ATTEMPTS = 3  # of B in pass 2, even if it is to run once
HEAD = 43  # columns: figures of both passes stand below each other


@dataclass(frozen=True)
class Plan:
    """`runs`: how often B may be run until it differs. `noise`: a thread of B yields at every so many events. `limit`:
    seconds for each run."""

    runs: int = 1
    noise: int = 0
    control: bool = False
    limit: float | None = None


@dataclass
class Outcome:
    """`verdict`: equal, differs, not deterministic, not known, no trace, no run. `passes`: cost and result of each."""

    code: int
    verdict: str
    lines: list[str] = field(default_factory=list)
    passes: list[dict[str, Any]] = field(default_factory=list)
    found: Found | None = None
    rank: str = ""


class Undecided(Exception):
    """What stands in the way of an answer."""

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


class Passes:
    """`where`: an empty directory for traces and outputs. `say`: progress."""

    def __init__(
        self, command: Sequence[str], where: Path, rules: Rules, plan: Plan, say: Callable[[str], None]
    ) -> None:  # fmt: skip
        self.a, self.b = runs.sides(command)
        self.sums = runs.has_reductions(self.a)
        self.statistics = bool(rules.rtol or rules.atol or rules.tolerances) or self.sums
        self.edges = runs.edges(self.a) if "SP_EDGES" not in os.environ else {}
        self.where, self.rules, self.plan, self.say = where, rules, plan, say
        self.lines = [text] if (text := runs.outdated(self.a)) else []
        self.passes: list[dict[str, Any]] = []

    def run(self) -> Outcome:
        """Raises `UsageError` if a program cannot be started."""
        try:
            return self._run()
        except Undecided as error:
            return Outcome(UNDECIDED, error.verdict, [*self.lines, str(error)], self.passes)

    def _run(self) -> Outcome:
        a = self._side("A", "minimal")
        if self.plan.control:
            self._control(a)
        for attempt in range(1, self.plan.runs + 1):
            b = self._side("B", "minimal", attempt=attempt)
            rank, found = self._compared(a, b)
            if found.difference or b.status != a.status:
                break
        self._tell_first(a, b, attempt, rank, found)
        return self._judged(a, b, rank, found)

    def _judged(self, a: Ran, b: Ran, rank: str, found: Found) -> Outcome:
        return self._alike(a, b, found) if found.difference is None else self._second(a, b, rank, found)

    def _side(self, side: str, level: str, regions: Sequence[int] = (), attempt: int = 1, most: int = 0) -> Ran:
        """A run of A or B; of pass 2 if regions are given. `most`: so many events, and no more."""
        more = {"SP_REGIONS": ",".join(map(str, regions)), **self.edges} if regions else {}
        more |= {"SP_MAX": str(most * RECORD)} if most else {}
        more |= {"SP_STATISTICS": "1"} if self.statistics or regions else {}
        if side == "B" and self.plan.noise:
            more |= {"SP_NOISE": str(self.plan.noise), "SP_SEED": str(attempt)}
        again = f", run {attempt} of {self.plan.runs}" if self.plan.runs > 1 and side == "B" else ""
        command = self.a if side == "A" else self.b
        self.say(f"pass {2 if regions else 1}: {' '.join(command)}{again}")
        place = self.where / f"{side}-{2 if regions else 1}"
        ran = runs.run(side, command, runs.environment(side, level, **more), place, self.plan.limit)
        if not ran.traces:
            how = ran.told() + ("" if runs.unread(self.a) else runs.unmade(command, self.a))
            how += runs.unread(self.a) if ran.good else f"; {ran.ending()}"
            raise Undecided("no trace", f"{side} has left no trace, so nothing can be compared{how}")
        return ran

    def _compared(self, a: Ran, b: Ran, regions: Sequence[int] = (), prefer: str = "") -> tuple[str, Found]:
        """The rank that differs first, and what was found; `prefer`: this one, if it differs. What others do after a
        message of it may differ for that reason alone."""
        if a.traces.keys() != b.traces.keys():
            ranks = f"A has traces of {len(a.traces)} ranks, and B of {len(b.traces)}"
            raise Undecided("no trace", f"{ranks}{a.told() or b.told()}")
        found: dict[str, Found] = {}
        for rank in sorted(a.traces, key=lambda each: each != prefer):
            try:
                found[rank] = compare(Run(a.traces[rank]), Run(b.traces[rank]), self.rules, regions or None)
            except (UnlikeTraces, FormatError) as error:
                raise Undecided("no trace", str(error)) from error
            if rank == prefer and found[rank].difference is not None:
                return rank, found[rank]
        first = min(found, key=lambda rank: _order(found[rank]))
        return first, found[first]

    def _control(self, a: Ran) -> None:
        """A once more: what differs between two runs of it differs by itself."""
        kept = a._replace(traces={rank: path.rename(f"{path}-first") for rank, path in a.traces.items()})
        _, found = self._compared(kept, self._side("A", "minimal"))
        if found.difference is not None:
            lines = "\n".join(telling.lines(found))
            text = f"the program is not deterministic: two runs of A, without OpenMP, differ too\n{lines}"
            raise Undecided("not deterministic", text)

    def _tell_first(self, a: Ran, b: Ran, attempt: int, rank: str, found: Found) -> None:
        where = f"first difference: {telling.place(found.difference)}" if found.difference else "no difference"
        runs_ = f" (run {attempt} of {self.plan.runs})" if self.plan.runs > 1 else ""
        regions = words.count(_regions(a, rank), "region")
        if found.undecided and not found.difference:
            regions, where = f"{found.regions} of {regions} of A", "no difference until there"
        head = "pass 1, digests at the end of each region:"
        self.lines.append(f"{head:<{HEAD}}  {_seconds(a, b)}{runs_};  {regions};  {_of_rank(rank)}{where}")
        self.lines += [ran.ending() for ran in (a, b) if not ran.good]
        self.passes.append({"pass": 1, "level": "minimal", **_costs(a, b), "rank": rank, "run": attempt})

    def _alike(self, a: Ran, b: Ran, found: Found) -> Outcome:
        """All that pass 1 has seen is equal: the outputs and the ends may differ all the same."""
        whole = a.good and b.good and not found.undecided
        if whole and a.output.read_bytes() != b.output.read_bytes() and (outcome := self._printed(a, b, found)):
            return outcome
        lines = [*self.lines, *telling.lines(found)]
        if found.undecided:
            return Outcome(UNDECIDED, "no trace", lines, self.passes, found)
        if a.status != b.status:
            text = "the two runs end in different ways, and until there all that was compared is equal"
            return Outcome(DIFFERENT, "differs", [*lines, text], self.passes, found)
        if not a.good:
            text = "both runs end in the same way, which is not a good one: what comes later was not compared"
            return Outcome(UNDECIDED, "no run", [*lines, text], self.passes, found)
        return self._equal(a, found)

    def _equal(self, a: Ran, found: Found, said: Sequence[str] = ()) -> Outcome:
        """If anything was compared. With what `build` has warned of, as a race that did not happen is one, too."""
        ranks = [Run(trace) for trace in a.traces.values()]
        verdict, why = lacking.nothing(ranks)
        if verdict:
            notes = [f"  {text}" for text in (*found.notes, *runs.undigested(self.a))]
            lines = [*self.lines, f"Cannot tell: {why}", *notes, *said]
            return Outcome(UNDECIDED, verdict, lines, self.passes, found)
        notes = [f"  {text}" for text in (*lacking.some(ranks), *runs.undigested(self.a))]
        warned = lacking.ending(runs.warnings(self.a), self.plan.runs, self.plan.noise)
        self.lines += [*telling.lines(found), *said, *notes, *warned]
        return Outcome(EQUAL, "equal", self.lines, self.passes, found)

    def _printed(self, a: Ran, b: Ran, found: Found) -> Outcome | None:
        """All regions are equal, and what is printed is not: the code after the last one is looked at, too. Where sums
        of threads are, values made of them are allowed the rounding of a sum."""
        sums = self.rules.of_sums(REAL4 if found.single else REAL8)
        rtol = max(self.rules.rtol, sums if runs.may_round(self.a) else 0.0)
        screen = Screen(self.a, rtol, self.rules.atol, self._again, ranks=len(a.traces) > 1)
        differs = screen.first(*(printed.lines(ran.output) for ran in (a, b)))
        last = _regions(a, next(iter(a.traces)))
        x, y = (self._side(side, "full", [last + 1], most=MOST_EVENTS if side == "A" else 0) for side in "AB")
        given = self.rules
        self.rules = replace(given, rtol=rtol)
        rank, later = self._compared(x, y, [last + 1])
        self.rules = given
        if later.difference is None:
            code, verdict, said = screen.verdict()
            if code == EQUAL:
                return self._equal(a, found, said)
            notes = [*found.notes, *lacking.some([Run(trace) for trace in a.traces.values()])]
            self.lines += [*said[:1], *(f"  {note}" for note in notes), *said[1:]]
            return Outcome(code, verdict, self.lines, self.passes, found)
        self.lines.append(f"what they print differs: {differs or 'the ends of lines'}")
        self._tell_second(x, y, f"pass 2, all reads and writes after region {last}:", 1)
        self.passes.append({"pass": 2, "level": "full", "regions": [last + 1], **_costs(x, y), "rank": rank, "run": 1})
        self.lines += [*telling.lines(later), f"  {lacking.earlier(later.difference)}"]
        return Outcome(DIFFERENT, "differs", self.lines, self.passes, later, rank)

    def _again(self, side: str, threads: int = 0) -> list[str]:
        """What another run of this side prints; of B with so many threads, if any are given."""
        more = {"SP_NOISE": str(self.plan.noise), "SP_SEED": "2"} if side == "B" and self.plan.noise else {}
        more |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
        command, place = self.a if side == "A" else self.b, self.where / f"{side}-again{threads or ''}"
        self.say(f"once more: {' '.join(command)}")
        ran = runs.run(side, command, runs.environment(side, "minimal") | more, place, self.plan.limit)
        return printed.lines(ran.output)

    def _second(self, one: Ran, other: Ran, of: str, first: Found) -> Outcome:
        """All events of the region that differs. By chance B may differ elsewhere this time: then that one too. `one`,
        `other`: of pass 1."""
        assert first.difference is not None
        by_rounding = self.sums and not self.rules.rounding and hints.rounded(first.difference, self.rules)
        traced, attempts = [first.difference.visit], max(self.plan.runs, ATTEMPTS)
        if by_rounding:
            self.rules = replace(self.rules, rounding=True)
            upto = _visit(self._compared(one, other)[1])
            traced = reached(((Run(one.traces[rank]), Run(other.traces[rank])) for rank in one.traces), upto)
        level, a = self._level(traced)
        for attempt in range(1, attempts + 1):
            b = self._side("B", level, traced, attempt)
            rank, found = self._compared(a, b, traced, of)
            which, digests = self._compared(a, b, prefer=rank)  # also of regions that were not traced
            earlier = digests.difference is not None and _visit(digests) < _visit(found)
            if not earlier and (found.difference is not None or (by_rounding and found.carried)):
                break
            if digests.difference is not None and earlier and attempt < attempts:
                traced = sorted({*traced, digests.difference.visit})
                level, a = self._level(traced)
        else:
            if found.difference is not None:  # and an earlier one each time: what follows from it is no answer
                rank, found = which, digests
        costs = {"pass": 2, "level": level, "regions": traced, **_costs(a, b), "rank": rank, "run": attempt}
        self.passes.append(costs)
        what = "all reads and writes" if level == "full" else "all writes"
        region = f"region{'s' if len(traced) > 1 else ''} {', '.join(map(str, traced))}"
        self._tell_second(a, b, f"pass 2, {what} of {region}:", attempt)
        if found.difference is None and by_rounding:  # no write that is compared says otherwise: so go on
            return self._judged(one, other, *self._compared(one, other))
        if found.difference is None:
            return self._not_traced(first)
        self.lines += [_of_rank(rank) + line if not at else line for at, line in enumerate(telling.lines(found))]
        if end := endings.ending(found.difference, Run(a.traces[rank]), runs.left(self.a), Run(b.traces[rank])):
            self.lines.append(f"  {end.text}")
            if not end.decided:
                return Outcome(UNDECIDED, "not known", self.lines, self.passes, found, rank)
        return Outcome(DIFFERENT, "differs", self.lines, self.passes, found, rank)

    def _tell_second(self, a: Ran, b: Ran, head: str, attempt: int) -> None:
        again = f" (run {attempt} of B)" if attempt > 1 else ""
        self.lines.append(f"{head:<{HEAD}}  {_seconds(a, b)}{again};  {words.size(sum(map(_bytes, (a, b))))}")
        self.lines += [ran.ending() for ran in (a, b) if not ran.good]

    def _level(self, regions: Sequence[int]) -> tuple[str, Ran]:
        """A with reads, or without them if there are too many events: that is known when it has run."""
        a = self._side("A", "full", regions, most=MOST_EVENTS)
        if not any(Run(trace).about.get("stopped") for trace in a.traces.values()):
            return "full", a
        return "modify", self._side("A", "modify", regions)

    def _not_traced(self, first: Found) -> Outcome:
        visit = _visit(first)
        if not self.statistics:  # without them nobody can tell by how much it differs
            self.statistics = True
            again = self._compared(self._side("A", "minimal"), self._side("B", "minimal"))[1]
            first = again if _visit(again) == _visit(first) else first
        self.lines += telling.lines(first)
        if first.difference and hints.rounded(first.difference, self.rules):
            text = f"region {visit} differs by digest in its last bits, and not when it is traced"
            said = f"Cannot tell: {text}: the optimiser, or a race; --rtol 1e-12 allows for it"
            return Outcome(UNDECIDED, "not known", [*self.lines, said], self.passes, first)
        text = f"region {visit} differs by digest, and not when it is traced: a race, or the optimiser"
        hint = f"; {lacking.chance(self.plan.runs, self.plan.noise) or lacking.NEXT}"
        hint += "; or rounding: --rtol 1e-9" if first.difference and hints.near(first.difference) else ""
        return Outcome(DIFFERENT, "differs", [*self.lines, text + hint], self.passes, first)


def _order(found: Found) -> tuple[int, int, int]:
    """Differences by region, then what cannot be told, then what is equal."""
    if found.difference is not None:
        return 0, found.difference.visit, found.difference.inside
    return 1 if found.undecided else 2, 0, 0


def _visit(found: Found) -> float:
    return math.inf if found.difference is None else found.difference.visit


def _seconds(a: Ran, b: Ran) -> str:
    return f"A {a.seconds:.1f} s, B {b.seconds:.1f} s"


def _costs(a: Ran, b: Ran) -> dict[str, Any]:
    return {
        "seconds": {ran.name: round(ran.seconds, 3) for ran in (a, b)},
        "bytes": {ran.name: _bytes(ran) for ran in (a, b)}, "status": {ran.name: ran.status for ran in (a, b)},
    }  # fmt: skip


def _bytes(ran: Ran) -> int:
    """Of what it has recorded; its files are larger, by what was kept free."""
    return sum(len(thread.records) * RECORD for trace in ran.traces.values() for thread in Run(trace).threads)


def _regions(ran: Ran, rank: str) -> int:
    """Visits of regions that are in no other."""
    threads = Run(ran.traces[rank]).threads
    return sum(int(((each.records["kind"] == REGION) & (each.records["value"] < NESTED)).sum()) for each in threads)


def _of_rank(rank: str) -> str:
    return f"rank {rank[1:]}, " if rank else ""
