"""What of a trace is drawn: which ranks have a row, and which time a page holds.

(1) A page holds at most MOST_ROWS rows, and about MOST_ACTIONS calls, and says what it leaves out: with 10^6 calls a
    browser would stand still.
(2) The ranks of what blocks always have a row, and the first of it is in the middle: it would be missed otherwise.

Times are ns since the trace began. What is wanted of Matched and Judgement is done with whole arrays: a trace has
millions of calls, and the picture two seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import Ints, Matched
from safepoint.matching.symbols import Site
from safepoint.places.graph import Chain
from safepoint.words import precise

MOST_ROWS, BANDS = 64, 16  # three rows a band, and 16 for ranks of what blocks
MOST_ACTIONS, MOST_MESSAGES = 20_000, 20_000
VIEWED = 26  # calls of each row that the first view shows, so that each can be told from its neighbours


class Line(NamedTuple):
    """A row of the table: a line of the program, and its visits."""

    where: str
    site: Site
    legal: NDArray[np.bool_]  # of each visit
    times: Ints  # visits x ranks, ns on the clock of the trace: when each rank passes
    wait_mean: float  # seconds from the earliest rank to the latest; and the 95th percentile
    wait_p95: float
    interval: float  # seconds between two visits that are legal; nan: there are no two
    verdict: str  # in a word or two


class Judgement(NamedTuple):
    """What is known of the places of a trace."""

    places: Ints | Chain  # a longest chain of legal places x ranks: gaps, none smaller than in the row before
    marks_legal: NDArray[np.bool_]  # of each row of `Matched.marks`
    blocking: Ints  # rows of `Matched.messages`, the worst first
    lines: list[Line]
    heads: list[str]  # sentences that stand above
    remarks: list[str]


class Clock(NamedTuple):
    """The times of all actions, from zero on."""

    zero: int  # the first moment, ns on the clock of the trace
    span: int  # from there to the last, at least 1
    enter: Ints
    leave: Ints  # of a call that has not returned: the end


class Window(NamedTuple):
    """What is drawn."""

    matched: Matched
    judgement: Judgement
    clock: Clock
    ranks: Ints  # of each row
    labels: list[str]  # of each row
    first: Ints  # of each row its calls, numbered through: from `first` to before `last`
    last: Ints
    begin: int  # the time that the page holds
    end: int
    view: tuple[int, int]  # the time that is seen first
    messages: Ints  # rows of `Matched.messages`
    places: Ints  # places x rows: gaps
    at: Ints  # the time of each place
    closed: Ints  # (n, 3): in this row no gap is legal from this time to that
    notes: list[str]  # what is left out

    def row_of(self, ranks: Ints) -> Ints:
        """The row of each rank, -1: it has none."""
        rows = np.full(self.matched.ranks + 1, -1)
        rows[self.ranks] = np.arange(len(self.ranks))
        return rows[np.where(ranks < 0, self.matched.ranks, ranks)]

    def ends(self, messages: Ints) -> tuple[Ints, Ints]:
        """When each message was sent and received; one without an end is under way until the edge of the trace."""
        return ends(self.matched, self.clock, messages)


def window(matched: Matched, judgement: Judgement, begin: float | None, end: float | None) -> Window:
    """`begin`, `end`: seconds; without them it lies around the first trouble, or is all that fits."""
    clock = clock_of(matched)
    trouble = _trouble(matched, judgement, clock)
    middle = (clock.span if trouble is None else sum(trouble)) // 2
    asked = None
    if begin is not None or end is not None:
        low = min(max(0, round((begin or 0) * 1e9)), clock.span - 1)
        asked = low, clock.span if end is None else max(low + 1, min(clock.span, round(end * 1e9)))
        middle = sum(asked) // 2
    ranks, labels = _rows(matched, judgement, clock, middle)
    spans = [(int(matched.begins[rank]), int(matched.begins[rank + 1])) for rank in ranks]
    moments = np.sort(np.concatenate([clock.enter[a:b] for a, b in spans]))
    low, high = _limits(moments, asked or (0, clock.span), middle, asked is None)
    first, last = _calls(clock, spans, low, high)
    view = (low, high) if asked else _view(moments, (low, high), trouble or (middle, middle), VIEWED * len(ranks))
    notes = _notes(matched, ranks, (low, high), clock.span)
    none = first[:0]
    drawn = Window(
        matched, judgement, clock, ranks, labels, first, last, low, high, view, none, none, none, none, notes
    )
    messages = _between_rows(drawn)
    places, at, closed = _legal(drawn)
    return drawn._replace(messages=messages, places=places, at=at, closed=closed)


def clock_of(matched: Matched) -> Clock:
    marks = matched.marks
    zero = min((int(times.min()) for times in (matched.enter, marks["enter"]) if len(times)), default=0)
    times = [times for times in (matched.enter, matched.leave, marks["leave"]) if len(times)]
    span = max((int(each.max()) for each in times), default=zero) - zero
    enter, leave = matched.enter - zero, matched.leave - zero
    return Clock(zero, max(1, span), enter, np.where(leave < enter, span, leave))


def ends(matched: Matched, clock: Clock, messages: Ints) -> tuple[Ints, Ints]:
    sent, received = (matched.messages[name][messages] for name in ("sent", "received"))
    begin = np.where(sent < 0, 0, clock.enter[sent]) if len(clock.enter) else sent * 0
    return begin, np.where(received < 0, clock.span, clock.leave[received]) if len(clock.leave) else received * 0


def _trouble(matched: Matched, judgement: Judgement, clock: Clock) -> tuple[int, int] | None:
    """From when to when the worst blocking message is under way; or the first `hide` that is not legal."""
    if len(judgement.blocking):
        begin, end = ends(matched, clock, judgement.blocking[:1])
        return int(begin[0]), int(end[0])
    marks = matched.marks[matched.marks["hide"] & ~judgement.marks_legal]
    if not len(marks):
        return None
    worst = marks[np.argmin(marks["enter"])]
    return int(worst["enter"]) - clock.zero, int(worst["leave"]) - clock.zero


def _rows(matched: Matched, judgement: Judgement, clock: Clock, middle: int) -> tuple[Ints, list[str]]:
    """Each rank; or of very many, in bands, the ranks that have come least far by then, most far, and half of them."""
    everyone = np.arange(matched.ranks)
    if matched.ranks <= MOST_ROWS:
        return everyone, [f"rank {rank}" for rank in everyone]
    calls = [clock.enter[a:b] for a, b in zip(matched.begins[:-1], matched.begins[1:], strict=True)]
    share = np.array([np.searchsorted(own, middle) / max(1, len(own)) for own in calls])
    worst = matched.messages[judgement.blocking[: MOST_ROWS // 2]]
    pairs = np.stack([worst["source"], worst["dest"]], axis=1).ravel().tolist()
    wanted = [rank for rank in dict.fromkeys(pairs) if rank >= 0][: MOST_ROWS - 3 * BANDS]
    ranks, labels = list[int](), list[str]()
    for band in np.array_split(everyone, BANDS):
        order = band[np.argsort(share[band], kind="stable")]
        names: dict[int, str] = {}
        for name, rank in zip(("least", "median", "most"), order[[0, len(order) // 2, -1]], strict=True):
            names[int(rank)] = f"{band[0]}–{band[-1]} {name}: {rank}"
        names |= {rank: f"rank {rank}" for rank in wanted if band[0] <= rank <= band[-1] and rank not in names}
        ranks += list(names)
        labels += names.values()
    return np.array(ranks), labels


def _limits(moments: Ints, asked: tuple[int, int], middle: int, free: bool) -> tuple[int, int]:
    """What a page can hold of the time that is asked for: its middle if that is free, else its beginning."""
    low, high = (int(at) for at in np.searchsorted(moments, asked))
    if high - low <= MOST_ACTIONS:
        return asked
    if free:
        low = int(np.clip(np.searchsorted(moments, middle) - MOST_ACTIONS // 2, low, high - MOST_ACTIONS))
    begin = asked[0] if not free else int(moments[low])
    return begin, max(begin + 1, int(moments[min(low + MOST_ACTIONS, len(moments) - 1)]))


def _calls(clock: Clock, spans: list[tuple[int, int]], begin: int, end: int) -> tuple[Ints, Ints]:
    first, last = [], []
    for a, b in spans:
        low, high = (a + int(at) for at in np.searchsorted(clock.enter[a:b], (begin, end), "left"))
        if high < b and clock.enter[high] == end:
            high += end == clock.span
        first.append(low - (low > a and int(clock.leave[low - 1]) > begin))
        last.append(high)
    return np.array(first), np.array(last)


def _view(moments: Ints, whole: tuple[int, int], trouble: tuple[int, int], many: int) -> tuple[int, int]:
    """So many calls around the trouble, and all of that, with a margin."""
    low, high = (int(at) for at in np.searchsorted(moments, whole))
    if high - low <= many:
        return whole
    margin = (trouble[1] - trouble[0]) // 4
    at = int(np.searchsorted(moments, sum(trouble) // 2))
    begin = min(int(moments[max(low, at - many // 2)]), trouble[0] - margin)
    end = max(int(moments[min(high - 1, at + many // 2)]), trouble[1] + margin)
    begin, end = max(whole[0], begin), min(whole[1], end)
    return begin, max(begin + 1, end)


def _notes(matched: Matched, ranks: Ints, held: tuple[int, int], span: int) -> list[str]:
    notes = []
    if held != (0, span):
        begin, end = (f"{at / 1e9:.6f}".rstrip("0").rstrip(".") for at in held)
        notes.append(f"This page holds {begin} s to {end} s of {precise(span / 1e9)}; the strip above shows all of it.")
    if len(ranks) < matched.ranks:
        notes.append(
            f"{len(ranks)} of {matched.ranks} ranks are drawn: of each band those which had come least far, most far, "
            "and in the middle, and those of the messages that block."
        )
    return notes


def _between_rows(drawn: Window) -> Ints:
    """Those between two rows with an end in the window. What blocks comes first, and whatever is left out is not it."""
    matched, messages = drawn.matched, drawn.matched.messages
    inside = np.zeros(matched.actions + 1, bool)  # the last one is for NONE
    for a, b in zip(drawn.first, drawn.last, strict=True):
        inside[a:b] = True
    has_row = np.zeros(matched.ranks + 1, bool)
    has_row[drawn.ranks] = True
    seen = has_row[messages["source"]] & has_row[messages["dest"]]
    found = np.flatnonzero(seen & (inside[messages["sent"]] | inside[messages["received"]]))
    worst = drawn.judgement.blocking[seen[drawn.judgement.blocking]]
    begin, end = drawn.ends(worst)
    worst = worst[(begin <= drawn.end) & (end >= drawn.begin)][: MOST_MESSAGES // 10]
    rest = found[~np.isin(found, worst)]
    if len(rest) > MOST_MESSAGES:
        drawn.notes.append(f"{len(rest) - MOST_MESSAGES:,} messages, the last ones, are not drawn.")
    return np.concatenate([worst, rest[:MOST_MESSAGES]]).astype(np.int64)


def _legal(drawn: Window) -> tuple[Ints, Ints, Ints]:
    """The places all of whose gaps are in the window, the time of each, and where a row has none."""
    places, begins, clock = drawn.judgement.places, drawn.matched.begins, drawn.clock
    low, high, closed = 0, len(places), [np.zeros((0, 3), np.int64)]
    for row, (rank, first, last) in enumerate(zip(drawn.ranks, drawn.first, drawn.last, strict=True)):
        column = np.ascontiguousarray(places[:, rank])
        gaps = np.arange(first, last + 1) - begins[rank]
        found = np.searchsorted(column, gaps)
        is_legal = np.append(column, -1)[found] == gaps
        low, high = max(low, int(found[0])), min(high, int(np.searchsorted(column, gaps[-1], "right")))
        edges = np.flatnonzero(np.diff(np.concatenate([[True], is_legal, [True]]))).reshape(-1, 2)
        if len(edges):
            before, after = first + edges[:, 0] - 1, first + edges[:, 1] - 1
            begin = np.where(before < begins[rank], 0, clock.enter[before]) if drawn.matched.actions else before * 0
            end = np.where(after >= begins[rank + 1], clock.span, clock.leave[np.minimum(after, len(clock.leave) - 1)])
            closed.append(np.stack([np.full(len(edges), row), begin, end], axis=1))
    within = slice(low, max(low, high))
    some = np.stack([places[within, rank] for rank in drawn.ranks], axis=1) if len(drawn.ranks) else closed[0][:, :0]
    before, after = around(drawn, some)
    at = (before.max(axis=1, initial=0) + after.min(axis=1, initial=clock.span)) // 2
    kept = (at >= drawn.begin) & (at <= drawn.end)
    return some[kept], at[kept], np.concatenate(closed)


def around(drawn: Window, gaps: Ints) -> tuple[Ints, Ints]:
    """From when to when each of these gaps (places x rows) lasts."""
    begins, clock = drawn.matched.begins, drawn.clock
    if not len(clock.enter):
        return gaps * 0, gaps * 0 + clock.span
    number = begins[drawn.ranks] + gaps
    before = np.where(gaps > 0, clock.leave[number - 1], 0)
    following = clock.enter[np.minimum(number, len(clock.enter) - 1)]
    after = np.where(number < begins[drawn.ranks + 1], following, clock.span)
    return before, np.maximum(before, after)
