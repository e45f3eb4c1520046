"""Bars over sets or ranks, as SVG text; of very many each bar stands for several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from safepoint.ledger.lives import Save
from safepoint.report.markup import tag, text, title

MOST = 240  # bars of a drawing


class Bar(NamedTuple):
    """One set, or the mean of several. `part` is drawn within `value`; `top` is the largest of several."""

    label: str
    words: str
    value: float
    part: float | None = None
    top: float | None = None


def binned(saves: Sequence[Save], value: Callable[[Save], float], part: Callable[[Save], float] | None,
           show: Callable[[float], str]) -> list[Bar]:  # fmt: skip
    """At most `MOST` of them."""
    width = math.ceil(len(saves) / MOST)
    bars = []
    for begin in range(0, len(saves), max(1, width)):
        some = saves[begin : begin + width]
        values = [value(save) for save in some]
        mean = sum(values) / len(some)
        inner = sum(map(part, some)) / len(some) if part else None
        kept = "" if inner is None else f", {show(inner)} kept"
        label = str(some[0].number)
        if len(some) == 1:
            bars.append(Bar(label, f"{some[0].name}: {show(mean)}{kept}", mean, inner))
        else:
            words = f"{some[0].name} to {some[-1].name}: {show(mean)} on average{kept}, at most {show(max(values))}"
            bars.append(Bar(label, words, mean, inner, max(values)))
    return bars


def bars(
    name: str, rows: Sequence[Bar], show: Callable[[float], str], kind: str, below: str = "number of the set"
) -> str:
    """Bars over the sets in their order, or over what `below` says. On a logarithmic scale if the values differ by more
    than a hundred times."""
    wide, high, left, right, top, bottom = 520, 190, 66, 510, 30, 150
    values = [value for row in rows for value in (row.value, row.part, row.top) if value]
    most, least = max(values, default=1.0), min(values, default=1.0)
    logarithmic = most > 100 * least
    ticks = _decades(least, most) if logarithmic else round_steps(most)
    floor, most = (ticks[0], max(most, ticks[-1])) if logarithmic else (0.0, max(most, ticks[-1]))

    def at(value: float) -> float:
        if logarithmic:
            share = math.log(max(value, floor) / floor) / math.log(most / floor) if value else 0.0
        else:
            share = value / most
        return bottom - share * (bottom - top)

    marks = [tag("text", text(name + (", logarithmic" if logarithmic else "")), x=4, y=14, class_="name")]
    for tick in ticks:
        marks.append(tag("line", x1=left, x2=right, y1=at(tick), y2=at(tick), class_="grid"))
        marks.append(tag("text", text(show(tick)), x=left - 6, y=at(tick) + 4, class_="tick end-at"))
    step = (right - left) / max(1, len(rows))
    thick = min(26.0, max(0.8, step * 0.8))
    every = max(1, math.ceil(len(rows) / 8))
    for position, row in enumerate(rows):
        x = left + step * (position + 0.5)
        inside = []
        if row.top is not None:
            inside.append(tag("line", x1=x, x2=x, y1=at(row.top), y2=at(row.value), class_="range"))
        for value, shade in ((row.value, f"{kind} pale" if row.part is not None else kind), (row.part, kind)):
            if value:
                tall = max(0.8, bottom - at(value))
                inside.append(tag("rect", x=x - thick / 2, y=bottom - tall, width=thick, height=tall, class_=shade))
        marks.append(tag("g", title(row.words), *inside))
        if position % every == 0:
            marks.append(tag("text", text(row.label), x=x, y=bottom + 14, class_="tick middle"))
    marks.append(tag("text", below, x=(left + right) / 2, y=bottom + 32, class_="tick middle"))
    return tag("svg", title(name), *marks, viewBox=f"0 0 {wide} {high}", class_="bars", role="img")


def round_steps(most: float) -> list[float]:
    rough = most / 3
    power = 10 ** math.floor(math.log10(rough))
    step = next(base * power for base in (1, 2, 5, 10) if base * power >= rough * 0.999)
    return [step * n for n in range(1, math.ceil(most / step - 1e-9) + 1)]


def _decades(least: float, most: float) -> list[float]:
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    every = max(1, math.ceil((high - low) / 5))
    return [10.0**power for power in range(low, high + 1, every)]
