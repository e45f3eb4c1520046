"""The diagram as SVG text: calls, messages, legal places, flags, and what blocks, last and on top.

(1) What is closer than a pixel is drawn as one, and says of how many: 20 000 bars would be a grey smear, and slow.
(2) Each kind of call has its own height and place in the row, and a letter where there is room; a flag has a tick or a
    cross: colour alone does not reach everybody, nor every printer.

`picture.js` draws the same from the same numbers: `geometry` tells it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.matched import Ints
from safepoint.matching.symbols import Site
from safepoint.places.window import Window, around
from safepoint.report.markup import tag, text, title
from safepoint.words import count, size

Floats = NDArray[np.float64]
TOP, BOTTOM, PAD = 26, 8, 12  # px around the rows
SLOT = 34  # px, for a flag and a number


class Kind(NamedTuple):
    """A class of calls: how its bars look. `top`, `high`: shares of the part of a row that is for bars."""

    name: str
    letter: str
    words: str
    pattern: str  # of the function's name
    top: float
    high: float


KINDS = (
    Kind("send", "S", "send", "(i|b|s|r|ib|is|ir|p)?send(_init|recv(_replace)?)?", 0.0, 0.55),
    Kind("receive", "R", "receive", "(i|m|im|p)?recv(_init)?", 0.45, 0.55),
    Kind("complete", "W", "complete", "(wait|test)(all|any|some)?|cancel|request_free|parrived", 0.28, 0.44),
    Kind("probe", "P", "probe", "i?m?probe", 0.2, 0.6),
    Kind("memory", "M", "remote memory",
         "win_.*|r?(put|get|accumulate|get_accumulate)|fetch_and_op|compare_and_swap", 0.0, 1.0),
    Kind("collective", "C", "collective",
         "i?(barrier|bcast|r?reduce(_scatter(_block)?)?|allreduce|(ex)?scan|((all)?gather|scatter|alltoall)[vw]?|"
         "neighbor_.*)(_init)?|(comm|intercomm|cart|(dist_)?graph|file|session|init|finalize).*", 0.0, 1.0),
    Kind("other", "O", "other", ".*", 0.38, 0.24),
)  # fmt: skip


class Frame(NamedTuple):
    """Which time the diagram shows, and where."""

    begin: int
    end: int
    left: float
    right: float
    tall: float  # of a row, px
    rows: int

    def x(self, at: Ints) -> Floats:
        share = (at - self.begin).astype(np.float64) / (self.end - self.begin)
        return self.left + share * (self.right - self.left)

    def y(self, row: Ints | int) -> Floats:
        """The middle of the part of a row that is for bars."""
        return np.asarray(TOP + (np.asarray(row) + 0.61) * self.tall, dtype=np.float64)

    @property
    def bottom(self) -> float:
        return TOP + self.rows * self.tall


def frame_of(drawn: Window, width: float) -> Frame:
    rows = max(1, len(drawn.ranks))
    longest = max((len(label) for label in drawn.labels), default=0)
    tall = float(np.clip(430 / rows, 11, 72))
    return Frame(*drawn.view, 14 + longest * (6.4 if tall > 15 else 5.4), width - PAD, tall, rows)


def kinds_of(functions: list[str]) -> Ints:
    """The kind of each function, an index in `KINDS`."""
    found = [[re.fullmatch(kind.pattern, name, re.I) is not None for kind in KINDS].index(True) for name in functions]
    return np.array([*found, len(KINDS) - 1])[: len(functions)]


def short(site: Site) -> str:
    """A site as a label holds it: without its directories, and never long."""
    name = str(site._replace(file=site.file.rstrip("/").rpartition("/")[2]))
    return name if len(name) <= 34 else f"…{name[-33:]}"


def inside(drawn: Window, frame: Frame) -> str:
    """All that is in the diagram."""
    clip = tag("rect", x=frame.left, y=0, width=frame.right - frame.left + 1, height=frame.bottom + BOTTOM)
    hatch = tag("path", d="M-1,1 L1,-1 M0,5 L5,0 M4,6 L6,4", class_="hatch")
    parts = [
        tag("defs", tag("clipPath", clip, id="plot"),
            tag("pattern", hatch, id="memory", width=5, height=5, patternUnits="userSpaceOnUse")),
        *(_row(drawn, frame, row) for row in range(len(drawn.ranks))),
        tag("g", *ticks(frame), class_="time"),
        tag("g", _messages(drawn, frame), *_places(drawn, frame), *_flags(drawn, frame), *_blocking(drawn, frame),
            class_="over", clip_path="url(#plot)"),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _row(drawn: Window, frame: Frame, row: int) -> str:
    top = TOP + row * frame.tall
    back = tag("rect", x=0, y=top, width=frame.right, height=frame.tall, class_="back odd" if row % 2 else "back")
    grey = drawn.closed[drawn.closed[:, 0] == row, 1:]
    left, right = (np.clip(frame.x(side), frame.left, frame.right) for side in grey.T)
    seen = right - left > 0.3
    closed = "".join(f"M{a:.1f},{top:.1f}h{b - a:.1f}v{frame.tall:.1f}h{a - b:.1f}z"
                     for a, b in zip(left[seen], right[seen], strict=True))  # fmt: skip
    bars, calls, drawn_as = _bars(drawn, frame, row)
    words = f"{drawn.labels[row]}: {count(calls, 'call')} in view, drawn as {count(drawn_as, 'bar')}"
    small = "name" if frame.tall > 15 else "name small"
    name = tag("text", text(drawn.labels[row]), x=4, y=top + frame.tall * 0.5 + 4, class_=small)
    return tag("g", title(words), back, tag("path", title("no legal place"), d=closed or "M0,0", class_="closed"), name,
               *bars, class_="row", role="img", tabindex=0, aria_label=words)  # fmt: skip


def _bars(drawn: Window, frame: Frame, row: int) -> tuple[list[str], int, int]:
    """A path for each kind of call; how many calls, and how many bars they have become."""
    which = slice(drawn.first[row], drawn.last[row])
    left, right = frame.x(drawn.clock.enter[which]), frame.x(drawn.clock.leave[which])
    seen = (right >= frame.left) & (left <= frame.right)
    left, right = np.clip(left[seen], frame.left, frame.right), np.clip(right[seen], frame.left, frame.right)
    kinds = kinds_of(drawn.matched.functions)[drawn.matched.function[which][seen]]
    room, top = frame.tall * 0.62, TOP + (row + 0.3) * frame.tall
    marks, bars = [], 0
    for number, kind in enumerate(KINDS):
        own = kinds == number
        if not own.any():
            continue
        begin, end = _merged(left[own], right[own])
        wide, y, high = np.maximum(end - begin, 1.2), top + kind.top * room, kind.high * room
        shape = "".join(f"M{x:.1f},{y:.1f}h{w:.1f}v{high:.1f}h{-w:.1f}z" for x, w in zip(begin, wide, strict=True))
        marks.append(tag("path", d=shape, class_=kind.name))
        if kind.name == "memory":
            marks.append(tag("path", d=shape, fill="url(#memory)"))
        for x in (begin + wide / 2)[(wide >= 10) & (frame.tall >= 18)]:
            style = f"letter {kind.name}-letter"
            marks.append(tag("text", kind.letter, x=float(x), y=y + high / 2 + 3.5, class_=style))
        bars += len(begin)
    return marks, int(seen.sum()), bars


def _merged(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Bars closer than a pixel are one."""
    reach = np.maximum.accumulate(right)
    first = np.flatnonzero(np.append(True, left[1:] - reach[:-1] >= 1))
    return left[first], reach[np.append(first[1:] - 1, len(left) - 1)]


def ticks(frame: Frame) -> list[str]:
    """The time above the rows, in the unit that fits, and lines down from there."""
    step = next(base * 10**power for power in range(19) for base in (1, 2, 5)
                if base * 10**power * (frame.right - frame.left) >= 96 * (frame.end - frame.begin))  # fmt: skip
    unit, name = next(u for u in ((10**9, "s"), (10**6, "ms"), (1000, "µs")) if frame.end >= u[0] or u[0] == 1000)
    digits = next(n for n in range(13) if step * 10**n % unit == 0)
    marks = []
    for at in range(-(-frame.begin // step) * step, frame.end + 1, step):
        x = float(frame.x(np.array(at)))
        marks.append(tag("line", x1=x, x2=x, y1=TOP - 4, y2=frame.bottom, class_="grid"))
        if x < frame.right - 24:
            marks.append(tag("text", f"{at / unit:.{digits}f} {name}", x=x, y=TOP - 9, class_="tick middle"))
    return marks


def _arrows(drawn: Window, frame: Frame, messages: Ints) -> tuple[Floats, Floats, Floats, Floats, Ints]:
    """From where to where each of these messages goes, cut at the edges; and which they are: those that are seen."""
    rows = drawn.matched.messages[messages]
    source, dest = drawn.row_of(rows["source"].astype(np.int64)), drawn.row_of(rows["dest"].astype(np.int64))
    sent, received = (frame.x(at) for at in drawn.ends(messages))
    seen = (np.maximum(sent, received) >= frame.left) & (np.minimum(sent, received) <= frame.right)
    sent, received, source, dest = sent[seen], received[seen], source[seen], dest[seen]
    y0, y1 = frame.y(source), frame.y(dest)
    wide = np.where(received == sent, 1, received - sent)
    x0, x1 = np.clip(sent, frame.left - 40, frame.right + 40), np.clip(received, frame.left - 40, frame.right + 40)
    return x0, y0 + (y1 - y0) * (x0 - sent) / wide, x1, y0 + (y1 - y0) * (x1 - sent) / wide, messages[seen]


def _shape(x0: float, y0: float, x1: float, y1: float, tall: float, head: float) -> tuple[str, str]:
    """The line and the head of an arrow; to the same rank it is a bow."""
    up = -0.9 * tall if y0 == y1 else 0.0
    turn = np.arctan2(y1 - y0 - 2 * up, x1 - x0)
    (ax, ay), (bx, by) = ((x1 - head * np.cos(turn + a), y1 - head * np.sin(turn + a)) for a in (0.42, -0.42))
    curve = f"M{x0:.1f},{y0:.1f}Q{(x0 + x1) / 2:.1f},{(y0 + y1) / 2 + up:.1f},{x1:.1f},{y1:.1f}"
    return curve, f"M{ax:.1f},{ay:.1f}L{x1:.1f},{y1:.1f}L{bx:.1f},{by:.1f}"


def _messages(drawn: Window, frame: Frame) -> str:
    rest = drawn.messages[~np.isin(drawn.messages, drawn.judgement.blocking)]
    x0, y0, x1, y1, seen = _arrows(drawn, frame, rest)
    lines = np.unique(np.round(np.stack([x0, y0, x1, y1], axis=1)), axis=0)
    shapes = "".join("".join(_shape(a, b, c, d, frame.tall, 5.5)) for a, b, c, d in lines.tolist())
    words = title(f"{count(len(seen), 'message')} in view, drawn as {count(len(lines), 'arrow')}")
    return tag("path", words, d=shapes or "M0,0", class_="message many" if len(lines) > 400 else "message")


def _places(drawn: Window, frame: Frame) -> list[str]:
    """A line for each legal place; those that are hardly apart are one."""
    x = frame.x(drawn.at)
    seen = np.flatnonzero((x >= frame.left) & (x <= frame.right))
    apart = np.diff(np.floor(x[seen] / 5), prepend=-1) != 0
    first, many = seen[apart], np.diff(np.append(np.flatnonzero(apart), len(seen)))
    before, after = around(drawn, drawn.places[first])
    steps = frame.x(np.clip(drawn.at[first][:, None], before, after))
    marks = []
    for line, number in zip(steps, many, strict=True):
        path = f"M{line[0]:.1f},{TOP}"
        path += "".join(f"H{at:.1f}V{TOP + (row + 1) * frame.tall:.1f}" for row, at in enumerate(line))
        words = title("legal place" if number == 1 else f"{number} legal places, too close to be drawn apart")
        marks.append(tag("path", words, d=path, class_="place many" if len(steps) > 40 else "place"))
    return marks


def flag(x: float, top: float, tall: float, legal: bool, hide: bool, many: int, words: str) -> str:
    """A flag with a tick or a cross for `hide`; a small pennant, full or hollow, for `mark`; of several how many."""
    wide = float(np.clip(tall * 0.26, 7, 16))
    unit, y = wide / 10, top + 1
    tick = [(2.2, 5.2), (4.3, 7.4), (7.9, 2.9)] if legal else [(2.6, 2.6), (7.4, 7.4), (5, 5), (7.4, 2.6), (2.6, 7.4)]
    sign = "L".join(f"{x + a * unit:.1f},{y + b * unit:.1f}" for a, b in tick)
    marks = [tag("line", x1=x, x2=x, y1=y, y2=top + tall if hide else y + wide, class_="pole")]
    if hide:
        marks.append(tag("path", d=f"M{x:.1f},{y:.1f}h{wide:.1f}v{wide:.1f}h{-wide:.1f}z", class_="pennant"))
        marks.append(tag("path", d=f"M{sign}", class_="sign"))
    else:
        cloth = f"M{x:.1f},{y:.1f}l{wide * 0.7:.1f},{wide * 0.35:.1f}l{-wide * 0.7:.1f},{wide * 0.35:.1f}z"
        marks.append(tag("path", d=cloth, class_="pennant" if legal else "pennant hollow"))
    if many > 1:
        marks.append(tag("text", f"×{many}", x=x + wide + 2, y=top + wide / 2 + 5, class_="times"))
    return tag("g", title(words), *marks, class_=f"{'hide' if hide else 'mark'} {'good' if legal else 'bad'}")


def _flags(drawn: Window, frame: Frame) -> list[str]:
    marks, legal = drawn.matched.marks, drawn.judgement.marks_legal
    row, x = drawn.row_of(marks["rank"]), frame.x(marks["enter"] - drawn.clock.zero)
    found: dict[tuple[int, bool, int], list[int]] = {}
    for number in np.flatnonzero((row >= 0) & (x >= frame.left) & (x <= frame.right)):
        slot = int(row[number]), bool(marks["hide"][number]), int(x[number] // SLOT)
        found.setdefault(slot, []).append(int(number))
    drawings = []
    for (at, hide, _), numbers in sorted(found.items(), key=lambda item: item[0][1]):  # those of hide are on top
        fine = Counter(bool(legal[number]) for number in numbers)
        where = drawn.matched.sites[marks["site"][numbers[0]]]
        words = f"{'hide' if hide else 'mark'} at {where}: " + (
            ("legal" if fine[True] else "not legal") if len(numbers) == 1 else f"{fine[True]} of {len(numbers)} legal"
        )
        first = next((n for n in numbers if not legal[n]), numbers[0])
        drawings.append(
            flag(float(x[first]), TOP + at * frame.tall, frame.tall, not fine[False], hide, len(numbers), words)
        )
    return drawings


def label_of(drawn: Window, number: int) -> tuple[str, str]:
    """What is said of a message that blocks: both lines; and whose it is."""
    matched, message = drawn.matched, drawn.matched.messages[number]
    sites = [short(matched.sites[matched.site[message[name]]]) if message[name] >= 0 else "" for name in
             ("sent", "received")]  # fmt: skip
    first = f"sent {sites[0]}" if sites[0] else "never sent"
    second = f"received {sites[1]}" if sites[1] else "never received"
    known = "" if message["bytes"] == 2**64 - 1 else f", {size(int(message['bytes']))}"
    who = f"this message blocks: rank {message['source']} → rank {message['dest']}, tag {message['tag']}{known}"
    return f"{first} → {second}", who


def _blocking(drawn: Window, frame: Frame) -> list[str]:
    """What blocks, each with a border of the ground's colour; the worst has a label."""
    worst = drawn.messages[np.isin(drawn.messages, drawn.judgement.blocking)]
    lines, label = [], ""
    for *ends, number in zip(*_arrows(drawn, frame, worst), strict=True):
        x0, y0, x1, y1 = (float(end) for end in ends)
        line, head = _shape(x0, y0, x1, y1, frame.tall, 13)
        message = drawn.matched.messages[number]
        lost = " lost" if min(message["sent"], message["received"]) < 0 else ""
        first, second = label_of(drawn, int(number))
        lines.append(
            tag("g", title(f"{second}; {first}"), tag("path", d=line, class_="halo"),
                tag("path", d=line, class_=f"blocking{lost}"), tag("path", d=f"{head}z", class_="head"), class_="red")
        )  # fmt: skip
        label = label or _label(frame, (x0, y0, x1, y1), first, second)
    return [*lines, label]


def _label(frame: Frame, ends: tuple[float, float, float, float], first: str, second: str) -> str:
    """At the right end of the arrow, or at its left end, or below or above it: where there is room."""
    (left, low), (right, high) = sorted([(ends[0], ends[1]), (ends[2], ends[3])])
    wide = max(7.8 * len(first), 5.9 * len(second)) + 16
    if right + 16 + wide <= frame.right:
        x, y, at, to = right + 16, high - 18, (right, high), (right + 16, high)
    elif left - 16 - wide >= frame.left:
        x, y, at, to = left - 16 - wide, low - 18, (left, low), (left - 16, low)
    else:
        at = (left + right) / 2, (low + high) / 2
        x = min(max(frame.left, at[0] - wide / 2), frame.right - wide)
        below = max(low, high) + 54 <= frame.bottom
        y = max(low, high) + 16 if below else max(TOP + 2, min(low, high) - 54)
        to = at[0], y + 18
    y = min(max(TOP + 2, y), frame.bottom - 38)
    return tag(
        "g", tag("line", x1=at[0], y1=at[1], x2=to[0], y2=to[1], class_="leader"),
        tag("rect", x=x, y=y, width=wide, height=36, rx=4, class_="label"),
        tag("text", text(first), x=x + 8, y=y + 15, class_="label-text"),
        tag("text", text(second), x=x + 8, y=y + 29, class_="label-more"), class_="said",
    )  # fmt: skip
