"""Lines of the program: at which of them is it legal to save, at every visit?

A line is a row of visits: each `hide` and `mark`, the top of each loop, before and after each call, by site. Its v-th
visit is a cut: of each rank the gap of its v-th passing. `blockers` judges them, and says what spoils them.

(1) A visit that some ranks do not make is no cut: a line whose counts differ is never recommended. Of a run that was
    killed the visits count that all ranks have made.
(2) The top of a loop is where in one function the number of the line falls. Ranks that branch there have other lines:
    if all have as many tops in this function, the first of each is one line, and so on. Where calls of other functions
    lie between, nobody knows on which side of them the top is: a trace has no stack. That is no candidate.
(3) Only waiting, the interval and the order use clocks. Whether a visit is legal never does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import NONE, Ints, Matched
from safepoint.places.blockers import Blocker, Spoils, blockers, epochs, spoils
from safepoint.places.graph import Order
from safepoint.places.segments import Bools

HIDE, MARK, TOP, AFTER, BEFORE = "hide", "mark", "top of loop", "after", "before"
LEGAL, BLOCKED, NOT_LEGAL, COUNTS_DIFFER = "legal", "blocked", "not legal", "counts differ"
NO_ROWS = np.empty(0, "i8")
FEW = 3  # so many blockers can be seen to one after the other: a line with no more is "blocked", not "not legal"


class Line(NamedTuple):
    """A row of visits, by rank, then in order."""

    what: str  # HIDE, MARK, TOP, AFTER, BEFORE
    site: int  # in `Matched.sites`
    function: str  # of AFTER and BEFORE: the call
    rank: Ints  # of each visit
    gap: Ints
    time: Ints  # ns
    rows: Ints = NO_ROWS  # of HIDE and MARK: in `Matched.marks`
    others: tuple[int, ...] = ()  # of HIDE: sites of ranks that call it elsewhere at the same visit


class Judged(NamedTuple):
    """A line, and what holds at its visits."""

    line: Line
    counts: Ints  # visits of each rank
    legal: Bools  # of each visit that all ranks make
    gaps: Ints  # (visits, ranks): the cut of each
    times: Ints  # (visits, ranks), ns
    wait_mean_ns: float  # from the first rank to the last at a visit
    wait_p95_ns: float
    interval_ns: float  # mean, between visits; 0 if there are not two
    every: int  # save at every so-manieth visit, so that the interval is at most the one that is wanted
    verdict: str  # LEGAL, BLOCKED, NOT_LEGAL, COUNTS_DIFFER

    @property
    def visits(self) -> int:
        """Of the rank that makes most."""
        return int(self.counts.max(initial=0))


class Judgement(NamedTuple):
    lines: list[Judged]  # the recommended one first
    asked: list[int]  # numbers in `lines` of those that blockers are named for, as in `Blocker.without`
    blockers: list[Blocker]


def judge(order: Order, lines: list[Line], wanted_ns: float = 0.0) -> Judgement:
    """`wanted_ns`: the interval between two saves that is wanted; 0 is none. Blockers are named for each `hide` and
    `mark` and the tops of loops; if there are none, for all lines."""
    if not lines:
        return Judgement([], [], [])
    asked = [line.what in (HIDE, MARK, TOP) for line in lines]
    if not any(asked):
        asked = [True] * len(lines)
    possible = [] if all(asked) else [order.possible(rank) for rank in range(order.matched.ranks)]
    found = [_spoiled(order, line, None if is_asked else possible) for line, is_asked in zip(lines, asked, strict=True)]
    judged = [_judged(order, line, spoiled, wanted_ns) for line, spoiled in zip(lines, found, strict=True)]
    order_of = sorted(range(len(lines)), key=lambda number: _recommended(judged[number], wanted_ns))
    chosen = [number for number in order_of if asked[number]]
    named, how_many = blockers(order, [spoiled for number in chosen if (spoiled := found[number]) is not None])
    for number, few in zip(chosen, how_many, strict=True):
        one = judged[number]
        if one.verdict == NOT_LEGAL and one.line.what not in (HIDE, MARK) and few <= FEW:
            judged[number] = one._replace(verdict=BLOCKED)
    return Judgement([judged[number] for number in order_of], [order_of.index(number) for number in chosen], named)


def _spoiled(order: Order, line: Line, possible: list[Bools] | None) -> Spoils | None:
    """None: no visit goes only through gaps that legal cuts go through, if these are given. That is soon seen."""
    counts = np.bincount(line.rank, minlength=order.matched.ranks)
    visits = int(counts.min())
    if possible is not None:
        gaps = _by_visit(line.gap, counts, visits)
        through = [possible[rank][gaps[:, rank]] for rank in range(order.matched.ranks)]
        if not np.any(np.logical_and.reduce(through)):
            return None
    return spoils(order, epochs(order, line.rank, line.gap, visits))


def _by_visit(values: Ints, counts: Ints, visits: int) -> Ints:
    """(visits, ranks): those of the first so many visits of each rank."""
    begins = np.cumsum(counts) - counts
    chosen: Ints = values[begins[None, :] + np.arange(visits)[:, None]]
    return chosen


def _judged(order: Order, line: Line, spoiled: Spoils | None, wanted_ns: float) -> Judged:
    counts = np.bincount(line.rank, minlength=order.matched.ranks)
    visits = int(counts.min())
    legal = spoiled.legal() if spoiled is not None else np.zeros(visits, "?")
    gaps, times = (_by_visit(values, counts, visits) for values in (line.gap, line.time))
    waits = times.max(axis=1) - times.min(axis=1) if visits else np.zeros(1)
    last = times.max(axis=1)
    interval = float(last[-1] - last[0]) / (visits - 1) if visits > 1 else 0.0
    every = max(int(wanted_ns / interval), 1) if interval else 1
    some_more = np.any(counts != visits) and not (visits and order.matched.torn)  # of a run that was killed: not those
    verdict = COUNTS_DIFFER if some_more else LEGAL if np.all(legal) else NOT_LEGAL
    wait, p95 = float(waits.mean()), float(np.percentile(waits, 95))
    return Judged(line, counts, legal, gaps, times, wait, p95, interval, every, verdict)


def _recommended(one: Judged, wanted_ns: float) -> tuple[float, ...]:
    """The first is best: legal at every visit; often enough; the least waiting."""
    is_late = wanted_ns > 0 and one.interval_ns > wanted_ns
    kind = (HIDE, MARK, TOP, AFTER, BEFORE).index(one.line.what)
    share = float(one.legal.mean()) if len(one.legal) else 0.0
    legal = (one.verdict != LEGAL, one.verdict == COUNTS_DIFFER, -share)
    return (*legal, is_late, one.wait_mean_ns, one.wait_p95_ns, kind, one.line.site)


# Candidates.


def candidates(matched: Matched) -> list[Line]:
    """All lines of a trace."""
    rank = np.repeat(np.arange(matched.ranks), np.diff(matched.begins))
    return [*marked(matched), *_tops(matched, rank), *_calls(matched, rank)]


def marked(matched: Matched) -> list[Line]:
    """The lines of `hide` and `mark`. A `hide` is one call of all ranks: the n-th of each is one visit, wherever it
    stands. A `mark` is of its line alone."""
    marks, lines = matched.marks, []
    hides = np.flatnonzero(marks["hide"])
    turn = np.arange(len(hides)) - np.searchsorted(marks["rank"][hides], marks["rank"][hides])
    for sites, rows in _together(marks["site"][hides], turn, marks["rank"][hides], matched.ranks):
        lines.append(_line(HIDE, sites[0], marks, hides[rows], sites[1:]))
    for site in np.unique(marks["site"][~marks["hide"]]).tolist():
        lines.append(_line(MARK, site, marks, np.flatnonzero(~marks["hide"] & (marks["site"] == site))))
    return lines


def _line(what: str, site: int, marks: NDArray[np.void], rows: Ints, others: tuple[int, ...] = ()) -> Line:
    chosen = marks[rows]
    return Line(what, site, "", chosen["rank"], chosen["gap"], chosen["enter"], rows, others)


def _together(site: Ints, turn: Ints, rank: Ints, ranks: int) -> list[tuple[tuple[int, ...], Ints]]:
    """The turns by the sites that the ranks have there; those that not all ranks make go to a line of their site."""
    if len(np.unique(site)) == 1:
        return [((int(site[0]),), np.arange(len(site)))]
    by_turn: dict[int, list[int]] = {}
    for row in np.argsort(turn, kind="stable").tolist():
        by_turn.setdefault(int(turn[row]), []).append(row)
    lines: dict[tuple[int, ...], list[int]] = {}
    for rows in by_turn.values():
        whole = tuple(dict.fromkeys(site[sorted(rows, key=lambda row: int(rank[row]))].tolist()))
        if len(rows) == ranks or whole in lines:
            lines.setdefault(whole, []).extend(rows)
        else:
            for row in rows:
                key = next((key for key in lines if int(site[row]) in key), (int(site[row]),))
                lines.setdefault(key, []).append(row)
    return [(sites, np.sort(np.array(rows, "i8"))) for sites, rows in lines.items()]


def legal_marks(order: Order) -> Bools:
    """Of each row of `Matched.marks`: is its visit legal? One that not all ranks make is not."""
    found = np.zeros(len(order.matched.marks), "?")
    for line in marked(order.matched):
        counts = np.bincount(line.rank, minlength=order.matched.ranks)
        visits = int(counts.min())
        spoiled = spoils(order, epochs(order, line.rank, line.gap, visits))
        found[_by_visit(line.rows, counts, visits)] = spoiled.legal()[:, None]
    return found


def _calls(matched: Matched, rank: Ints) -> list[Line]:
    """Before and after each site. A call that never returned has no after."""
    lines = []
    by_site = np.argsort(matched.site, kind="stable")
    for actions in np.split(by_site, np.flatnonzero(np.diff(matched.site[by_site])) + 1):
        if not len(actions) or matched.site[actions[0]] == 0:
            continue
        site, function = int(matched.site[actions[0]]), matched.functions[matched.function[actions[0]]]
        own = actions - matched.begins[rank[actions]]
        lines.append(Line(BEFORE, site, function, rank[actions], own, matched.enter[actions]))
        back = matched.leave[actions] > 0
        left = actions[back]
        if len(left):
            lines.append(Line(AFTER, site, function, rank[left], own[back] + 1, matched.leave[left]))
    return lines


def _tops(matched: Matched, rank: Ints) -> list[Line]:
    """(2)"""
    numbers: dict[tuple[str, str], int] = {}
    function = np.array([numbers.setdefault((site.file, site.function), len(numbers)) for site in matched.sites])
    number = np.array([site.line for site in matched.sites])
    before = _before_in_function(matched, rank, function)
    known = (before != NONE) & (number[matched.site] > 0)
    falls = np.flatnonzero(known & (number[matched.site] < number[matched.site[before]]))
    between = {int(site) for site in matched.site[falls[before[falls] != falls - 1]]}  # calls of other functions
    tops: dict[int, dict[int, list[int]]] = {}
    for one_site in np.unique(rank[falls] * len(number) + matched.site[falls]).tolist():
        one, site = divmod(one_site, len(number))
        if site in between:
            continue
        tops.setdefault(int(function[site]), {}).setdefault(one, []).append(site)
    entered = (before == NONE) | (matched.site != matched.site[before])
    lines = []
    for of_rank in tops.values():
        for sites in _shared(of_rank, number):
            wanted = np.full(matched.ranks, NONE)
            wanted[list(sites)] = list(sites.values())
            passed = matched.site == wanted[rank]
            visits = np.flatnonzero(passed & entered)  # several calls in the top line are one visit, …
            if len({*np.bincount(rank[visits], minlength=matched.ranks)}) > 1:
                all_visits = np.flatnonzero(passed)  # … but some ranks may make no other call in a turn
                if len({*np.bincount(rank[all_visits], minlength=matched.ranks)}) == 1:
                    visits = all_visits
            least = min(sites.values(), key=lambda site: int(number[site]))
            own = visits - matched.begins[rank[visits]]
            lines.append(Line(TOP, least, "", rank[visits], own, matched.enter[visits]))
    return lines


def _shared(of_rank: dict[int, list[int]], number: Ints) -> list[dict[int, int]]:
    """The tops of loops of one function, each as the site of each rank."""
    tops = {rank: sorted(sites, key=lambda site: int(number[site])) for rank, sites in of_rank.items()}
    if len({len(sites) for sites in tops.values()}) == 1:
        return [dict(zip(tops, sites, strict=True)) for sites in zip(*tops.values(), strict=True)]
    every = sorted({site for sites in tops.values() for site in sites})
    return [{rank: site for rank, sites in tops.items() if site in sites} for site in every]


def _before_in_function(matched: Matched, rank: Ints, function: Ints) -> Ints:
    """Of each action the action of its rank and function before it, or NONE."""
    segment = rank * (int(function.max()) + 1) + function[matched.site]
    in_order = np.argsort(segment, kind="stable")
    before = np.full(matched.actions, NONE)
    same = segment[in_order][1:] == segment[in_order][:-1]
    before[in_order[1:][same]] = in_order[:-1][same]
    return before


# A moment.


class Near(NamedTuple):
    gaps: Ints
    off_ns: int  # the moment of the farthest rank


def nearest(order: Order, time: int) -> Near | None:
    """The legal cut of which the farthest rank is nearest to this time, in ns. A gap is from the return of the action
    before it to the entry of the one after it."""
    least, most = _within(order, time, 0)
    tries = [cut for cut in (order.above(least), order.below(most)) if cut is not None]
    if not tries:
        return None
    offs_of = [_off(order, time, rank) for rank in range(order.matched.ranks)]
    worst = min(max(int(off[gap]) for off, gap in zip(offs_of, cut.tolist(), strict=True)) for cut in tries)
    offs = np.unique(np.concatenate([off[off <= worst] for off in offs_of]))
    low, high = -1, len(offs) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _legal_within(order, time, int(offs[middle])) is not None else (middle, high)
    cut = _legal_within(order, time, int(offs[high]))
    assert cut is not None
    return Near(cut, int(offs[high]))


def _legal_within(order: Order, time: int, off: int) -> Ints | None:
    """The least legal cut of which no rank is farther off."""
    least, most = _within(order, time, off)
    cut = order.above(least)
    return cut if cut is not None and np.all(cut <= most) else None


def _within(order: Order, time: int, off: int) -> tuple[Ints, Ints]:
    """Of each rank the first and the last gap that is no farther off."""
    ranks = [_moments(order, rank) for rank in range(order.matched.ranks)]
    least = [np.searchsorted(enter, time - off, "left") for enter, _ in ranks]
    most = [np.searchsorted(leave, time + off, "right") for _, leave in ranks]
    return np.array(least, "i8"), np.array(most, "i8")


def _moments(order: Order, rank: int) -> tuple[Ints, Ints]:
    """When each action of this rank was entered, and returned; one that did not return has no gap after it."""
    mine = slice(*order.matched.begins[rank : rank + 2].tolist())
    enter, leave = order.matched.enter[mine], order.matched.leave[mine]
    return enter, np.where(leave > 0, leave, enter)


def _off(order: Order, time: int, rank: int) -> Ints:
    """How far each gap of this rank is from this time."""
    enter, leave = _moments(order, rank)
    off: Ints = np.maximum(np.append(time, leave) - time, time - np.append(enter, time))
    return np.maximum(off, 0)
