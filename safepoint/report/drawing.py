"""The drawings of a report, as SVG text that stands in a page: the time line.

Colours are classes, which the page gives their value for light, dark and paper. Every mark has a `<title>`, which a
browser shows when the mouse is over it. However long the run was, a drawing has some hundreds of marks: what is too
close to tell apart is drawn as one, and says of how many.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from safepoint.ledger.lives import ENDINGS, Life, Run, Save
from safepoint.report.markup import tag, text, title
from safepoint.words import count, precise

WIDTH, RIGHT = 1060, 1030.0  # of the time line, and where its bars end
ROWS = 60  # lives that it shows, the last ones
BREAK = 30  # width of a pause that is not drawn to scale
PAUSE = 0.15  # of the time at work: a longer pause is cut


class TimeAxis:
    """From seconds of the run to the width of the drawing. Long pauses between lives are cut out."""

    def __init__(self, spans: Sequence[tuple[float, float]], left: float, right: float) -> None:
        longest = PAUSE * sum(end - begin for begin, end in spans)
        pieces = [list(spans[0])]
        for begin, end in spans[1:]:
            if begin - pieces[-1][1] > longest:
                pieces.append([begin, end])
            else:
                pieces[-1][1] = max(pieces[-1][1], end)
        self.pieces = [(begin, end) for begin, end in pieces]
        self.gap = min(BREAK, 0.3 * (right - left) / max(1, len(pieces) - 1))
        room = right - left - self.gap * (len(pieces) - 1)
        self.scale = room / max(1e-6, sum(end - begin for begin, end in pieces))
        self.lefts = [left]
        for begin, end in self.pieces:
            self.lefts.append(self.lefts[-1] + (end - begin) * self.scale + self.gap)
        self._begins = [begin for begin, _ in self.pieces]

    def __call__(self, seconds: float) -> float:
        which = max(0, bisect_right(self._begins, seconds) - 1)
        begin, end = self.pieces[which]
        return self.lefts[which] + (min(max(seconds, begin), end) - begin) * self.scale

    @property
    def cuts(self) -> list[tuple[float, float]]:
        """The left edge of each pause that is not drawn, and its length in seconds."""
        pauses = [after[0] - before[1] for before, after in zip(self.pieces, self.pieces[1:], strict=False)]
        return [(left - self.gap, pause) for left, pause in zip(self.lefts[1:], pauses, strict=False)]

    def ticks(self) -> tuple[list[tuple[float, str]], str]:
        """Where the labels of the axis go, and how they are to be read."""
        steps = [base * 10**power for power in range(-6, 1) for base in (1, 2, 5)] + [15, 30]
        steps += [60 * n for n in (1, 2, 5, 15, 30)] + [3600 * n for n in (1, 2, 6, 12)]
        steps += [86400 * n * 10**power for power in range(4) for n in (1, 2, 5)]
        # Times of a plan are in the units of its weights, and may be of any length: with the longest of these steps
        # there would be no end of labels.
        longer = itertools.takewhile(math.isfinite, (86400.0 * 10**power for power in range(4, 300)))
        step = next((step for step in itertools.chain(steps, longer) if step * self.scale >= 70), steps[-1])
        last = self.pieces[-1][1]
        places: list[tuple[float, str]] = []
        for (begin, end), left in zip(self.pieces, self.lefts, strict=False):
            for number in range(math.ceil(begin / step - 1e-9), math.floor(end / step + 1e-9) + 1):
                place = left + (number * step - begin) * self.scale
                if not places or place - places[-1][0] >= 52:
                    places.append((place, _clock(number * step, step, last)))
        return places, "s" if last < 60 else "min:s" if last < 3600 else "h:min" if step >= 60 else "h:min:s"


def _clock(seconds: float, step: float, last: float) -> str:
    if last < 60:
        return f"{seconds:.{max(0, math.ceil(-math.log10(step) - 1e-9))}f}"
    whole = round(seconds)
    if last < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole // 60 % 60:02}" + ("" if step >= 60 else f":{whole % 60:02}")


class Group(NamedTuple):
    """Marks that are too close to tell apart."""

    left: float
    right: float
    many: int
    seconds: float
    first: Save
    last: Save


def groups(saves: Sequence[Save], spans: Sequence[tuple[float, float]], axis: TimeAxis, near: float) -> list[Group]:
    found: list[Group] = []
    for save, (begin, end) in zip(saves, spans, strict=True):
        left, right = axis(begin), axis(end)
        if found and left - found[-1].right < near:
            group = found[-1]
            right = max(right, group.right)
            found[-1] = Group(group.left, right, group.many + 1, group.seconds + end - begin, group.first, save)
        else:
            found.append(Group(left, right, 1, end - begin, save, save))
    return found


def height(group: Group, axis: TimeAxis, full: float) -> float:
    """Of many as one: the share of the time that they take, though never so small that it cannot be seen."""
    if group.many == 1:
        return full
    return full * min(1.0, max(0.2, group.seconds * axis.scale / max(1.0, group.right - group.left)))


def shown(run: Run) -> list[tuple[int, Life]]:
    """The lives that are drawn, with their numbers."""
    return list(enumerate(run.lives, 1))[-ROWS:]


def axis_of(lives: Sequence[tuple[int, Life]], left: float, right: float) -> TimeAxis:
    return TimeAxis([(life.begin, life.end) for _, life in lives], left, right)


def time_line(run: Run) -> str:
    """A row for each life: when it computed, stood still, stored, and how it ended; what was lost is hatched."""
    lives = shown(run)
    step = 52 if len(lives) <= 16 else 36
    names = [_names(number, life, two=step == 52) for number, life in lives]
    axis = axis_of(lives, 16 + max(max(7.4 * len(first), 6.6 * len(second), 140) for first, second in names), RIGHT)
    top, bottom = 30, 30 + step * len(lives)
    near = 2 + len(lives) / 8
    marks = [time_axis(axis, top, bottom)]
    for row, (number, life) in enumerate(lives):
        y = top + row * step + 8
        after = lives[row + 1][1] if row + 1 < len(lives) else None
        first, second = names[row]
        marks.append(tag("text", text(first), x=4, y=y + (12 if second else 16), class_="name"))
        if second:
            marks.append(tag("text", text(second), x=4, y=y + 28, class_="tick"))
        marks += _row(life, after, axis, y, near, number)
    hatch = tag("path", d="M-2,2 L2,-2 M0,8 L8,0 M6,10 L10,6", class_="hatch")
    pattern = tag("pattern", hatch, id="lost", width=8, height=8, patternUnits="userSpaceOnUse")
    box = f"0 0 {WIDTH} {bottom + 40}"
    label = tag("title", "Time line of all starts")
    return tag("svg", label, tag("defs", pattern), *marks, viewBox=box, class_="timeline", role="img")


def time_axis(axis: TimeAxis, top: float, bottom: float) -> str:
    """The grid and the labels below it."""
    places, unit = axis.ticks()
    marks = []
    for x, label in places:
        marks.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        marks.append(tag("text", label, x=x, y=bottom + 15, class_="tick middle"))
    last = -1000.0
    for x, pause in axis.cuts:
        words = f"pause of {precise(pause)}, not to scale"
        marks.append(tag("rect", title(words), x=x, y=top, width=axis.gap, height=float(bottom - top), class_="pause"))
        if x - last > 110:
            marks.append(tag("text", f"pause: {precise(pause)}", x=x + axis.gap / 2, y=top - 8, class_="tick middle"))
            last = x
    words = f"time since the first start ({unit})"
    marks.append(tag("text", text(words), x=(axis.lefts[0] + RIGHT) / 2, y=bottom + 34, class_="tick middle"))
    return "".join(marks)


def _names(number: int, life: Life, *, two: bool) -> tuple[str, str]:
    """The words before a bar: which life, and from where; and its end, if there is room for two lines."""
    reached = "" if life.reached is None else f" at step {life.reached}"
    return f"{number}. {origin(life)}", ENDINGS[life.ending] + reached if two else ""


def origin(life: Life) -> str:
    if life.set is None:
        return "from the beginning"
    what = f"set {life.set}" if life.step is None else f"step {life.step}"
    return f"{'back to' if life.how == 'roll-back' else 'from'} {what}"


def _row(life: Life, after: Life | None, axis: TimeAxis, y: float, near: float, number: int) -> list[str]:
    left, right, bar = axis(life.begin), axis(life.end), 20
    words = (
        f"start {number}: {precise(life.alive)} at work, {precise(life.computing)} computing, "
        f"{precise(life.blocked)} blocked in hide, {precise(life.restoring)} restoring"
        + (f", {precise(life.lost)} lost" if life.lost else "")
    )
    marks = [
        tag("rect", title(words), x=left, y=y, width=max(1.5, right - left), height=bar, class_="compute"),
    ]
    ready = axis(life.ready)
    if ready - left > 0.3:
        words = f"initialising and restoring: {precise(life.restoring)}"
        marks.append(tag("rect", title(words), x=left, y=y, width=ready - left, height=bar, class_="restore"))
    if life.kept < life.end:
        marks.append(_lost(life, axis, y, bar))
    kinds: tuple[tuple[str, Callable[[Save], tuple[float, float]], float, int, str], ...] = (
        ("blocked", lambda save: save.hide, y, bar, "in hide"),
        ("store", lambda save: (save.at - save.length, save.at), y + bar + 2, 7, "storing in the background"),
    )
    for kind, span, above, full, what in kinds:
        saves = [save for save in life.saves if kind == "blocked" or not save.waited]
        for group in groups(saves, [span(save) for save in saves], axis, near):
            tall = height(group, axis, full)
            wide = max(1.0, group.right - group.left)
            marks.append(
                tag("rect", title(_of_group(group, what)), x=group.left, y=above + full - tall, width=wide,
                    height=tall, class_=kind)
            )  # fmt: skip
    for save in life.saves:
        if save.error:
            x = axis(save.at)
            shape = f"M{x - 6:.1f},{y - 7:.1f} h12 l-6,9 z"
            marks.append(tag("path", title(f"{save.name} not saved: {save.error}"), d=shape, class_="fail"))
    return [*marks, *_end(life, after, axis, y, bar)]


def _of_group(group: Group, what: str) -> str:
    if group.many == 1:
        return f"{group.first.name}: {precise(group.seconds)} {what}"
    return (
        f"{group.many} sets, {group.first.name} to {group.last.name}: {precise(group.seconds)} {what}, "
        f"{precise(group.seconds / group.many)} each"
    )


def _lost(life: Life, axis: TimeAxis, y: float, bar: float) -> str:
    steps = f"; {count(life.repeated, 'step')} computed again" if life.repeated else ""
    words = f"lost and computed again by the next start: {precise(life.lost)}{steps}"
    x = axis(life.kept)
    wide = max(2.0, axis(life.end) - x)
    back = tag("rect", title(words), x=x, y=y, width=wide, height=bar, class_="lost")
    return back + tag("rect", title(words), x=x, y=y, width=wide, height=bar, fill="url(#lost)")


def _end(life: Life, after: Life | None, axis: TimeAxis, y: float, bar: float) -> list[str]:
    """The sign at the end of a bar, and the dark time after it."""
    x, middle = axis(life.end), y + bar / 2
    words = title(ENDINGS[life.ending] + (f": {life.error}" if life.error else ""))
    marks = []
    if after is not None and life.ending == "killed":
        dark = f"no line in the log for {precise(after.begin - life.end)}: killed somewhere here"
        line = tag(
            "line", title(dark), x1=x + 14, x2=max(x + 14, axis(after.begin)), y1=middle, y2=middle, class_="dark"
        )
        marks.append(line)
    shapes = {
        "finished": f"M{x + 3:.1f},{middle:.1f} l4,5 l7,-10",
        "running": f"M{x + 3:.1f},{middle - 5:.1f} l7,5 l-7,5",
        "ended": f"M{x + 4:.1f},{middle - 5:.1f} v10",
        "stopped": f"M{x + 4:.1f},{middle - 5:.1f} v10 m4,-10 v10",
    }
    cross = f"M{x + 3:.1f},{middle - 5:.1f} l10,10 m0,-10 l-10,10"
    kind = "good" if life.ending in ("finished", "running", "ended", "stopped") else "bad"
    return [*marks, tag("path", words, d=shapes.get(life.ending, cross), class_=f"end {kind}")]


def figure(heading: str, drawing: str, caption: str) -> list[str]:
    """A part of the page with one wide drawing; nothing without that."""
    if not drawing:
        return []
    inside = tag("div", drawing, class_="wide"), tag("figcaption", text(caption))
    return [tag("h2", heading), tag("figure", *inside)]


def level(axis: TimeAxis, y: float, label: str) -> str:
    """A line of the grid at this height, with its label."""
    line = tag("line", x1=axis.lefts[0], x2=RIGHT, y1=y, y2=y, class_="grid")
    return line + tag("text", text(label), x=axis.lefts[0] - 6, y=y + 4, class_="tick end-at")
