"""The drawing of workers over time: a row for each, from all starts, and above it the rows of the plan.

An attempt has three parts, which are told apart by height and hatching too: inputs, body, saving. The ground between
attempts is waiting. Attempts that are too short to be told apart are one column: its height is their share of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from safepoint.report.drawing import RIGHT, WIDTH, TimeAxis, time_axis
from safepoint.report.markup import tag, text, title
from safepoint.tasks.pictures.past import FAILED, RUNNING, Attempt, Plan, Start
from safepoint.words import count, precise

MOST_LANES, MOST_STARTS = 64, 12  # rows and starts that are drawn
BAR = 16.0
PARTS = ("inputs", "body", "saving")


@dataclass
class Lane:
    """Attempts that followed each other on one worker, and of several starts those in one row."""

    name: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def busy_s(self) -> float:
        return sum(attempt.busy_s for attempt in self.attempts)


def natural(name: str) -> list[tuple[int, int, str]]:
    """rank 2 before rank 10."""
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part)
            for part in re.split(r"([0-9]{1,18})", name) if part]  # fmt: skip


def lanes_of(start: Start) -> list[Lane]:
    """A lane holds no two attempts at once: a worker with threads has several. A worker that took the place of a dead
    one has its lane, if they ran on one host."""
    lanes: list[Lane] = []
    by_worker: dict[tuple[str, str], list[Attempt]] = {}
    host_of = {attempt.worker: attempt.host for attempt in start.attempts if attempt.host}
    only = next(iter(host_of.values())) if len(set(host_of.values())) == 1 else ""
    for attempt in start.attempts:
        if attempt.worker:
            host = attempt.host or host_of.get(attempt.worker, only)  # which nobody tells of a worker that died
            by_worker.setdefault((host, attempt.worker), []).append(replace(attempt, host=host))
    hosts = {host for host, _ in by_worker}
    for host, worker in sorted(by_worker, key=lambda pair: (natural(pair[0]), natural(pair[1]))):
        name = f"{worker}, {host}" if len(hosts) > 1 and host else worker
        own: list[Lane] = []
        for attempt in sorted(by_worker[host, worker], key=lambda attempt: attempt.began):
            free = next((lane for lane in own if lane.attempts[-1].ended <= attempt.began + 1e-3), None)
            if free is None:
                own.append(free := Lane(name))
            free.attempts.append(attempt)
        lanes += own
    return _with_untold(_after_each_other(lanes), start)


def _with_untold(lanes: list[Lane], start: Start) -> list[Lane]:
    """An engine tells who ran a vertex when that ends, so of the last ones of a killed start nobody knows. They stand
    where a worker was free when they were given away; unless there are many, which were waiting in a queue."""
    untold = [attempt for attempt in start.attempts if attempt.how == RUNNING and not attempt.worker]
    if len(untold) > 2 * max(1, start.workers):
        return lanes
    for attempt in sorted(untold, key=lambda attempt: attempt.began):
        alive = [lane for lane in lanes if lane.attempts[-1].how != "died"]
        idle = [lane for lane in alive if lane.attempts[-1].ended <= attempt.began + 1e-3]
        if idle:  # the one that has just become free
            free = max(idle, key=lambda lane: lane.attempts[-1].ended)
        elif len(alive) < start.workers or not alive:
            lanes.append(free := Lane("a worker"))
        else:
            free = min(alive, key=lambda lane: lane.attempts[-1].ended)
        began = max(attempt.began, free.attempts[-1].ended) if free.attempts else attempt.began
        free.attempts.append(replace(attempt, began=began, body_s=max(0.0, attempt.ended - began)))
    return lanes


def _after_each_other(lanes: Iterable[Lane]) -> list[Lane]:
    """A new process goes on in the row of one that died before it began."""
    found: list[Lane] = []
    for lane in lanes:
        dead = [other for other in found if other.attempts[-1].how == "died"
                and other.attempts[-1].host == lane.attempts[0].host
                and other.attempts[-1].ended <= lane.attempts[0].began + 1e-3]  # fmt: skip
        if dead:
            dead[0].attempts += lane.attempts
        else:
            found.append(lane)
    return found


def rows_of(starts: Sequence[Start]) -> list[Lane]:
    """The same over several starts: a name has its row; other workers, such as new processes, take rows in order."""
    rows: list[Lane] = []
    for start in starts:
        lanes, free = lanes_of(start), {row.name: row for row in rows}
        own = [free.pop(lane.name, None) for lane in lanes]
        left = list(free.values())
        for lane, same in zip(lanes, own, strict=True):
            row = same or (left.pop(0) if left else None)
            if row is None:
                rows.append(lane)
                continue
            if row is not same:
                row.name = f"worker {rows.index(row) + 1}"
            row.attempts += lane.attempts
    return rows


def starts_shown(starts: Sequence[Start], plan: Plan | None) -> Sequence[Start]:
    """Those with something to draw, the last ones. A plan is of the last one."""
    return [start for start in starts if start.attempts or (plan and start is starts[-1])][-MOST_STARTS:]


def gantt(starts: Sequence[Start], plan: Plan | None, before: Collection[str] = ()) -> tuple[str, int]:
    """The plan of the last start, above what all starts really did; empty if there is neither. And the workers for whom
    there is no room. `before`: vertices of the plan that had finished before."""
    drawn = starts_shown(starts, plan)
    if not drawn and plan is None:
        return "", 0
    first = drawn[0].began if drawn else 0.0
    spans = [(start.began - first, max(start.ended - first, start.began - first + 1e-3)) for start in drawn]
    offset = spans[-1][0] if spans else 0.0
    if plan:
        longest = max(plan.expected_s, 1e-3)
        spans[-1:] = [(offset, max(spans[-1][1], offset + longest))] if spans else [(0.0, longest)]
    planned, lanes = _planned(plan, drawn[-1].engine if drawn else "mpi"), rows_of(drawn)
    names = [name for name, _ in planned] + [lane.name for lane in lanes]
    axis = TimeAxis(spans, 24 + min(250.0, 7.2 * max(map(len, names), default=8)), RIGHT)
    top = 30.0
    marks, y = [], top
    if planned:
        y, lines = _plan_rows(planned, before, axis, offset, y, heading=bool(lanes))
        marks += lines
    y, lines = _real_rows(lanes, axis, first, y, heading=bool(planned))
    marks += lines
    ends = [_start_line(start, axis, start.began - first, top, y) for start in drawn if len(drawn) > 1]
    label = "Workers over time" + (", planned and real" if planned and lanes else ", planned" if planned else "")
    box = f"0 0 {WIDTH} {y + 40:.0f}"
    inside = [title(label), _patterns(), time_axis(axis, top, y), *marks, *ends]
    drawing = tag("svg", *inside, viewBox=box, class_="timeline gantt", role="img", aria_label=label)
    return drawing, max(0, len(lanes) - MOST_LANES)


def _patterns() -> str:
    """The hatching of inputs and of saving, for eyes and printers without colours."""
    lines = tag("path", d="M-1,1 l2,-2 M0,5 L5,0 M4,6 l2,-2", class_="hatch-inputs")
    dots = tag("circle", cx=1.5, cy=1.5, r=0.9, class_="dot-saving")
    return tag(
        "defs",
        tag("pattern", lines, id="of-inputs", width=5, height=5, patternUnits="userSpaceOnUse"),
        tag("pattern", dots, id="of-saving", width=3, height=3, patternUnits="userSpaceOnUse"),
    )


def _start_line(start: Start, axis: TimeAxis, at: float, top: float, bottom: float) -> str:
    words = f"start: {start.before:,} finished before, {start.to_run:,} to run"
    x = axis(at)
    return tag("line", title(words), x1=x, x2=x, y1=top - 6, y2=bottom, class_="start-line")


def _head(words: str, y: float) -> str:
    return tag("text", words, x=4, y=y + 12, class_="name")


def _name(words: str, y: float, tall: float) -> str:
    shown = words if len(words) <= 36 else f"{words[:17]}…{words[-18:]}"
    return tag("text", title(words), text(shown), x=14, y=y + tall / 2 + 4, class_="tick")


# The plan.

Bars = list[tuple[float, float, str, int]]  # from, to, words, of how many vertices


def _planned(plan: Plan | None, engine: str) -> list[tuple[str, Bars]]:
    """A row for each worker that has something to do."""
    rows: dict[int, Bars] = {}
    for each in sorted(plan.vertices, key=lambda each: each.begin_s) if plan else ():
        rows.setdefault(each.worker, []).append((each.begin_s, each.end_s, each.vertex, 1))
    return [(planned_name(worker, engine), rows[worker]) for worker in sorted(rows)[:MOST_LANES]]


def planned_name(worker: int, engine: str) -> str:
    """Workers of a plan count from 0; with MPI worker 0 is rank 1."""
    return f"{'rank' if engine == 'mpi' else 'worker'} {worker + 1}"


def _plan_rows(
    planned: Sequence[tuple[str, Bars]],
    before: Collection[str],
    axis: TimeAxis,
    offset: float,
    y: float,
    *,
    heading: bool,
) -> tuple[float, list[str]]:
    tall = BAR if len(planned) <= 24 else 9.0
    marks = [_head("planned", y)] if heading else []
    y += 20.0 * heading
    for name, bars in planned:
        marks.append(_name(name, y, tall))
        marks.append(tag("rect", x=axis(offset), y=y, width=axis.lefts[-1] - axis.gap - axis(offset), height=tall,
                         class_="lane"))  # fmt: skip
        for begin, end, words, many in _merged(bars, (1 + len(planned) / 10) / axis.scale):
            x, wide = axis(offset + begin), max(0.8, (end - begin) * axis.scale)
            told = f"{words}: planned for {precise(end - begin)}, from {precise(begin)} on"
            kind = "planned done-before" if words in before else "planned"
            told += "; it had finished before" * (words in before)
            box = tag("rect", title(told), x=x, y=y, width=wide, height=tall, class_=kind)
            marks += [box, *_label(words, x, wide, y, tall)] if many == 1 else [box]
        y += tall + 5
    return y + 6, marks


def _merged(bars: Bars, near: float) -> Bars:
    """Bars that are shorter than `near`, and next to each other, as one."""
    found: Bars = []
    for begin, end, words, many in bars:
        if found:
            left, right, _, before = found[-1]
            if end - begin < near and begin - right < near and (before > 1 or right - left < near):
                found[-1] = left, max(end, right), f"{before + many} vertices up to {words}", before + many
                continue
        found.append((begin, end, words, many))
    return found


def _label(name: str, x: float, wide: float, y: float, tall: float) -> list[str]:
    if tall < 12 or wide < 6.2 * len(name) + 6:
        return []
    return [tag("text", text(name), x=x + wide / 2, y=y + tall / 2 + 3.5, class_="in-bar middle")]


# What really was.


def _real_rows(
    lanes: Sequence[Lane], axis: TimeAxis, first: float, y: float, *, heading: bool
) -> tuple[float, list[str]]:
    shown = lanes[:MOST_LANES]
    tall = BAR if len(shown) <= 24 else 9.0
    near = 2 + len(shown) / 8
    marks = [_head("real", y)] if heading and shown else []
    y += 20.0 * bool(marks)
    for lane in shown:
        marks.append(_name(lane.name, y, tall))
        for (begin, end), left in zip(axis.pieces, axis.lefts, strict=False):
            wide = (end - begin) * axis.scale
            marks.append(tag("rect", x=left, y=y, width=wide, height=tall, class_="lane"))
        signs: list[str] = []  # above all bars
        for some in _close(lane.attempts, axis, first, near):
            signs += _sign(some[0], axis, first, y, tall)
            marks.append(_attempt(some[0], axis, first, y, tall) if len(some) == 1 else
                         _column(some, axis, first, y, tall))  # fmt: skip
        marks += signs
        y += tall + 5
    return y, marks


def _close(attempts: Sequence[Attempt], axis: TimeAxis, first: float, near: float) -> list[list[Attempt]]:
    """Attempts in order; short ones that follow each other closely are together, up to 6 times `near` wide."""
    found: list[list[Attempt]] = []
    for attempt in sorted(attempts, key=lambda attempt: attempt.began):
        left, right = axis(attempt.began - first), axis(attempt.ended - first)
        short = right - left < near and attempt.how not in (FAILED, "died", RUNNING)
        if short and found and found[-1][-1].how not in (FAILED, "died", RUNNING):
            begin, end = axis(found[-1][0].began - first), axis(found[-1][-1].ended - first)
            alone = len(found[-1]) == 1 and end - begin >= near
            if not alone and left - end < near and right - begin < 6 * near:
                found[-1].append(attempt)
                continue
        found.append([attempt])
    return found


def _attempt(attempt: Attempt, axis: TimeAxis, first: float, y: float, tall: float) -> str:
    marks, at = list[str](), attempt.began - first
    body = axis(at + attempt.inputs_s), axis(at + attempt.inputs_s + attempt.body_s)
    for kind, seconds in zip(PARTS, (attempt.inputs_s, attempt.body_s, attempt.saving_s), strict=True):
        left, right = axis(at), axis(at + seconds)
        at += seconds
        if right - left > 0.3 or (kind == "body" and attempt.busy_s < 2 * seconds):
            marks += _part(kind, left, max(0.8, right - left), y, tall)
    return tag("g", title(_told(attempt)), *marks, *_label(attempt.vertex, body[0], body[1] - body[0], y, tall))


def _sign(attempt: Attempt, axis: TimeAxis, first: float, y: float, tall: float) -> list[str]:
    """At the end of what did not end well, or not yet."""
    end, middle = axis(attempt.ended - first), y + tall / 2
    if attempt.how in (FAILED, "died"):
        shape, kind = f"M{end - 4:.1f},{middle - 5:.1f} l9,10 m0,-10 l-9,10", "end bad"
    elif attempt.how == RUNNING:
        shape, kind = f"M{end:.1f},{y:.1f} l6,{tall / 2:.1f} l-6,{tall / 2:.1f}", "end open"
    else:
        return []
    return [tag("path", title(_told(attempt)), d=shape, class_=kind)]


def _part(kind: str, x: float, wide: float, y: float, tall: float) -> list[str]:
    """Inputs and saving are less high than the body, and hatched."""
    inset = 0.0 if kind == "body" else tall * 0.2
    box = {"x": x, "y": y + inset, "width": wide, "height": tall - 2 * inset}
    marks = [tag("rect", **box, class_=f"part-{kind}")]
    if kind != "body" and wide > 2:
        marks.append(tag("rect", **box, fill=f"url(#of-{kind})"))
    return marks


def _told(attempt: Attempt) -> str:
    how = {FAILED: "failed", "died": "its worker died", RUNNING: "no end in the log"}.get(attempt.how, "finished")
    words = f"{attempt.vertex}: {how}"
    words += f", attempt {attempt.number}" if attempt.number > 1 else ""
    pairs = zip(PARTS, (attempt.inputs_s, attempt.body_s, attempt.saving_s), strict=True)
    words += "".join(f", {kind} {precise(seconds)}" for kind, seconds in pairs if seconds > 0)
    return words + (f": {attempt.error}" if attempt.error else "")


def _column(some: Sequence[Attempt], axis: TimeAxis, first: float, y: float, tall: float) -> str:
    """Of many attempts: as high as their share of the time, and its parts by their shares."""
    left = axis(some[0].began - first)
    wide = max(1.0, axis(max(attempt.ended for attempt in some) - first) - left)
    parts = [math.fsum(each) for each in zip(*((a.inputs_s, a.body_s, a.saving_s) for a in some), strict=True)]
    share = tall * min(1.0, max(0.2, sum(parts) * axis.scale / wide))
    words = f"{count(len(some), 'vertex', 'vertices')}, {some[0].vertex} to {some[-1].vertex}"
    marks, bottom = [title(words + "".join(f", {k} {precise(s)}" for k, s in zip(PARTS, parts, strict=True)))], y + tall
    for kind, seconds in sorted(zip(PARTS, parts, strict=True)):  # the body below
        high = share * seconds / (sum(parts) or 1.0)
        bottom -= high
        if high > 0.2:
            marks.append(tag("rect", x=left, y=bottom, width=wide, height=high, class_=f"part-{kind}"))
    return tag("g", *marks)
