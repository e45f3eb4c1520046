"""Where the time of the workers went, in all starts together and for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from safepoint.report.markup import tag, text
from safepoint.tasks.pictures.past import FINISHED, Past, Plan, Start
from safepoint.tasks.pictures.workers import lanes_of, planned_name
from safepoint.words import count, percent, precise, size

MOST_ROWS = 200  # of a table
MOST_UNLIKE = 12  # vertices that took other than planned


class Totals(NamedTuple):
    """Seconds of workers, and bytes. `waiting`: a worker was there, and had nothing to do."""

    inputs_s: float
    body_s: float
    saving_s: float
    lost_s: float  # of attempts that failed, died, or have no end
    waiting_s: float
    moved: int
    saved: int
    attempts: int

    @property
    def all_s(self) -> float:
        return self.inputs_s + self.body_s + self.saving_s + self.lost_s + self.waiting_s


def totals(starts: Iterable[Start]) -> Totals:
    inputs = body = saving = lost = waiting = 0.0
    moved = saved = attempts = 0
    for start in starts:
        lanes = lanes_of(start)
        waiting += max(0.0, max(start.workers, len(lanes)) * start.seconds - sum(lane.busy_s for lane in lanes))
        for attempt in (attempt for lane in lanes for attempt in lane.attempts):
            attempts += 1
            moved += attempt.moved
            if attempt.how != FINISHED:
                lost += attempt.busy_s
                continue
            inputs, body, saving = inputs + attempt.inputs_s, body + attempt.body_s, saving + attempt.saving_s
            saved += attempt.nbytes
    return Totals(inputs, body, saving, lost, waiting, moved, saved, attempts)


def where_the_time_went(starts: Sequence[Start]) -> list[str]:
    """The part of the page."""
    sums = totals(starts)
    if not sums.attempts:
        return []
    last = [start for start in starts if start.attempts][-1]
    parts = [
        ("part-body", "body", sums.body_s), ("part-inputs", "inputs", sums.inputs_s),
        ("part-saving", "saving", sums.saving_s), ("lost", "failed, or without an end", sums.lost_s),
        ("waits", "waiting", sums.waiting_s),
    ]  # fmt: skip
    strips, entries = [], []
    for kind, words, seconds in parts:
        if seconds > 5e-4 * sums.all_s:
            share = f"{words}: {percent(seconds / sums.all_s)} ({precise(seconds)})"
            strips.append(tag("span", class_=kind, style=f"flex: {seconds / sums.all_s:.6f}", title=share))
            entries.append(tag("li", tag("i", class_=kind), text(share)))
    words = (
        f"{count(sums.attempts, 'attempt')} in {count(len(starts), 'start')}. {size(sums.saved)} of results were saved "
        f"and {size(sums.moved)} moved from worker to worker."
    )
    return [
        tag("h2", "Totals"),
        tag("p", text(words)),
        tag("div", *strips, class_="shares", role="img", aria_label="Shares of the workers' time; the list has them"),
        tag("ul", *entries, class_="legend"),
        tag("details", tag("summary", "The workers of the last start with work as a table"), tag("div", _table(last),
                                                                                      class_="wide")),
    ]  # fmt: skip


def _table(start: Start) -> str:
    heads = ("worker", "vertices", "inputs", "body", "saving", "waiting", "moved")
    lines = [tag("tr", *[tag("th", head, class_="n" if place else "") for place, head in enumerate(heads)])]
    lanes = lanes_of(start)
    for lane in lanes[:MOST_ROWS]:
        done = [attempt for attempt in lane.attempts if attempt.how == FINISHED]
        times = [sum(a.inputs_s for a in done), sum(a.body_s for a in done), sum(a.saving_s for a in done)]
        times.append(max(0.0, start.seconds - lane.busy_s))
        cells = [f"{len(done):,}", *map(precise, times), size(sum(a.moved for a in done))]
        lines.append(tag("tr", tag("td", text(lane.name)), *[tag("td", text(cell), class_="n") for cell in cells]))
    if len(lanes) > MOST_ROWS:
        lines.append(tag("tr", tag("td", f"… {len(lanes) - MOST_ROWS} workers left out", colspan=len(heads))))
    return tag("table", *lines)


def planned_and_real(plan: Plan, start: Start) -> list[str]:
    """In words and as a table: the vertices that took most other than planned, in seconds."""
    real = {attempt.vertex: attempt for attempt in start.attempts if attempt.how == FINISHED}
    both = [(each, real[each.vertex]) for each in plan.vertices if each.vertex in real]
    if not both:
        return []
    last = max(attempt.ended for _, attempt in both) - start.began
    until = max(each.end_s for each, _ in both)
    words = (
        f"{len(both):,} of {count(len(plan.vertices), 'planned vertex', 'planned vertices')} ran. The last of them was "
        f"planned to end after {precise(until)}, and did after {precise(last)}."
    )
    both.sort(key=lambda pair: -abs(pair[1].busy_s - (pair[0].end_s - pair[0].begin_s)))
    heads = ("vertex", "planned on", "ran on", "planned", "real", "planned end", "real end")
    lines = [tag("tr", *[tag("th", head, class_="n" if place > 2 else "") for place, head in enumerate(heads)])]
    for each, attempt in both[:MOST_UNLIKE]:
        cells = [each.vertex, planned_name(each.worker, start.engine), attempt.worker]
        times = [each.end_s - each.begin_s, attempt.busy_s, each.end_s, attempt.ended - start.began]
        numbers = [tag("td", text(precise(seconds)), class_="n") for seconds in times]
        lines.append(tag("tr", *[tag("td", text(cell)) for cell in cells], *numbers))
    named = "Planned and real as a table" + ": the vertices that differ most" * (len(both) > MOST_UNLIKE)
    inside = tag("summary", named), tag("div", tag("table", *lines), class_="wide")
    return [tag("p", text(words)), tag("details", *inside)]


def problems(past: Past) -> list[str]:
    """What failed in the last start, with its error; empty if nothing did."""
    start = past.starts[-1] if past.starts else None
    if start is None or not (start.failed or start.skipped):
        return []
    tries = {attempt.vertex: attempt for attempt in start.attempts if attempt.how != FINISHED}
    lines = [tag("tr", *[tag("th", head) for head in ("vertex", "worker", "attempts", "error")])]
    for vertex, error in list(start.failed.items())[:MOST_ROWS]:
        attempt = tries.get(vertex)
        cells = [vertex, attempt.worker if attempt else "", str(attempt.number) if attempt else ""]
        whole = attempt.error if attempt and attempt.error else error
        lines.append(tag("tr", *[tag("td", text(cell)) for cell in cells], tag("td", text(whole), class_="say")))
    words = f"{count(len(start.failed), 'vertex', 'vertices')} failed"
    if start.skipped:
        those = count(len(start.skipped), "vertex that needs a failed one was", "vertices that need a failed one were")
        words += f"; {those} not run"
    table = [tag("div", tag("table", *lines), class_="wide")] * bool(start.failed)
    return [tag("h2", "What failed"), tag("p", f"{words}.", class_="bad-text"), *table]
