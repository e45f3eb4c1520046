"""The network as a matrix: a row for the rank that sends, a column for the one that receives. Stronger is slower.

A link that is slower than the same link in the other direction has a corner, since a schedule must know of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

from safepoint.report.markup import tag, text, title
from safepoint.tasks.machine import Machine, Matrix
from safepoint.words import count, precise, size

MOST_RANKS, WITH_NUMBERS = 40, 12  # that have a row each; that have their numbers in the cells
UNLIKE = 1.25  # so many times slower than the way back is marked
WIDE = 520.0

Show = Callable[[float], str]


def rate(value: float) -> str:
    return f"{size(value)}/s"


def blocks(ranks: int) -> list[range]:
    """Of many ranks each row stands for several that follow each other."""
    every = math.ceil(ranks / MOST_RANKS)
    return [range(at, min(at + every, ranks)) for at in range(0, ranks, every)]


def averaged(matrix: Matrix, groups: Sequence[range]) -> list[list[float]]:
    """The mean of each block, without the diagonal; not a number if nothing is left."""
    found = []
    for rows in groups:
        line = []
        for columns in groups:
            cells = [matrix[p][q] for p in rows for q in columns if p != q]
            line.append(fmean(cells) if cells else math.nan)
        found.append(line)
    return found


def unlike(there: float, back: float, *, larger_is_slower: bool) -> float:
    """How many times slower this way is than the way back; 1 if it is not."""
    if not (there > 0 and back > 0):
        return 1.0
    return max(1.0, there / back if larger_is_slower else back / there)


def heat(name: str, matrix: Matrix, ranks: Sequence[str], show: Show, *, larger_is_slower: bool) -> str:
    """The drawing of one matrix."""
    groups = blocks(len(matrix))
    cells = averaged(matrix, groups)
    values = [value for row in cells for value in row if value > 0]
    least, most = min(values, default=1.0), max(values, default=1.0)
    left, top = 74.0, 60.0
    side = (WIDE - left - 10) / len(groups)
    labels = [
        ranks[group[0]] if len(group) == 1 else f"{ranks[group[0]]}–{ranks[group[-1]]}".replace("rank ", "")
        for group in groups
    ]
    every, aside = math.ceil(len(groups) / 20), math.ceil(len(groups) / 14)
    marks = [tag("text", text(name), x=4, y=14, class_="name")]
    marks.append(tag("text", "from, by row; to, by column", x=4, y=31, class_="tick"))
    for p, label in enumerate(labels):
        if p % every == 0:
            marks.append(tag("text", label, x=left - 6, y=top + (p + 0.5) * side + 4, class_="tick end-at"))
        if p % aside == 0:
            marks.append(
                tag(
                    "text",
                    ranks[groups[p][0]].removeprefix("rank "),
                    x=left + (p + 0.5) * side,
                    y=top - 4,
                    class_="tick middle",
                )
            )
        for q, value in enumerate(cells[p]):
            x, y = left + q * side, top + p * side
            if not value > 0:
                marks.append(tag("rect", x=x, y=y, width=side - 1, height=side - 1, class_="no-link"))
                continue
            slower = unlike(value, cells[q][p], larger_is_slower=larger_is_slower)
            dark = _dark(value, least, most, larger_is_slower=larger_is_slower)
            words = f"{label} to {labels[q]}: {show(value)}" + f", {slower:.1f} times slower than back" * (
                slower >= UNLIKE
            )
            marks.append(_cell(x, y, side, dark, words, show(value), marked=slower >= UNLIKE, many=len(groups)))
    high = top + len(groups) * side + 8
    label = f"{name} between {count(len(matrix), 'rank')}, from {show(least)} to {show(most)}"
    box = f"0 0 {WIDE:.0f} {high:.0f}"
    return tag("svg", title(label), *marks, viewBox=box, class_="matrix", role="img", aria_label=label)


def _dark(value: float, least: float, most: float, *, larger_is_slower: bool) -> float:
    """From 0.06 for the fastest to 0.85 for the slowest; by ratios. Links that are nearly alike stay alike."""
    widest = max(math.log(most / least), math.log(2.0))
    share = math.log(value / least) if larger_is_slower else math.log(most / value)
    return 0.06 + 0.79 * share / widest


def _cell(x: float, y: float, side: float, dark: float, words: str, number: str, *, marked: bool, many: int) -> str:
    inside = [title(words), tag("rect", x=x, y=y, width=side - 1, height=side - 1, class_="link", fill_opacity=dark)]
    if many <= WITH_NUMBERS:
        kind = "in-cell middle on-dark" if dark > 0.5 else "in-cell middle"
        value, _, unit = number.partition(" ")
        middle = x + (side - 1) / 2
        inside.append(tag("text", text(value), x=middle, y=y + side / 2 - 1, class_=kind))
        inside.append(tag("text", text(unit), x=middle, y=y + side / 2 + 11, class_=kind))
    if marked:
        corner = max(4.0, min(12.0, side / 3))
        shape = f"M{x + side - 1 - corner:.1f},{y:.1f} h{corner:.1f} v{corner:.1f} z"
        inside.append(tag("path", d=shape, class_="corner"))
    return tag("g", *inside)


def asymmetric(machine: Machine) -> list[tuple[float, int, int, str]]:
    """Links that are slower than back: how many times, from, to, in what; the worst first."""
    found = []
    for name, matrix, larger in (("latency", machine.latency_s, True), ("bandwidth", machine.bandwidth, False)):
        for p in range(machine.size):
            for q in range(machine.size):
                times = unlike(matrix[p][q], matrix[q][p], larger_is_slower=larger) if p != q else 1.0
                if times >= UNLIKE:
                    found.append((times, p, q, name))
    return sorted(found, key=lambda each: -each[0])


def network(machine: Machine, first: int = 0) -> list[str]:
    """The part of the page. `first`: the rank of the first processor, as a schedule's machine has no rank 0."""
    many = machine.size
    ranks = [f"rank {first + rank}" for rank in range(many)]
    hosts = dict.fromkeys(host for host in machine.hosts if host)
    pairs = [(p, q) for p in range(many) for q in range(many) if p != q]
    words = f"{count(many, 'rank')}" + (f" on {count(len(hosts), 'host')}" if hosts else "") + "."
    if pairs:
        slow, fast = min(machine.speed), max(machine.speed)
        latency, bandwidth = (median(each[p][q] for p, q in pairs) for each in (machine.latency_s, machine.bandwidth))
        words += f" In the middle a link has {precise(latency)} and {rate(bandwidth)}."
        words += f" The fastest rank computes {fast / slow:.2f} times as fast as the slowest."
    unequal = asymmetric(machine)
    if unequal:
        times, p, q, name = unequal[0]
        words += (
            f" {count(len(unequal), 'value differs', 'values differ')} by direction, most of all the {name} from "
            f"{ranks[p]} to {ranks[q]}: {times:.1f} times worse than on the way back."
        )
    caption = (
        "The stronger a cell stands out, the slower is its link. A corner: slower than the same link in the other "
        "direction, by a quarter or more."
    )
    if len(blocks(many)) < many:
        caption += f" Each row and column stands for {len(blocks(many)[0])} ranks, each cell for their mean."
    drawings = [
        heat("Latency", machine.latency_s, ranks, precise, larger_is_slower=True),
        heat("Bandwidth", machine.bandwidth, ranks, rate, larger_is_slower=False),
    ]
    return [
        tag("h2", "Network"),
        tag("p", text(words)),
        tag("div", *[tag("figure", drawing) for drawing in drawings], class_="many"),
        tag("p", text(caption), class_="soft"),
        tag("details", tag("summary", "The ranks as a table"), tag("div", table(machine, first), class_="wide")),
    ]


def table(machine: Machine, first: int) -> str:
    """For each rank its host and speed, and its slowest links."""
    heads = ("rank", "host", "speed", "slowest link", "latency", "narrowest link", "bandwidth")
    lines = [tag("tr", *[tag("th", head) for head in heads])]
    for rank in range(machine.size):
        others = [other for other in range(machine.size) if other != rank]
        cells = [str(first + rank), machine.hosts[rank] if machine.hosts else "", f"{machine.speed[rank]:.2f}"]
        if others:
            late = max(others, key=lambda other: machine.latency_s[rank][other])
            thin = min(others, key=lambda other: machine.bandwidth[rank][other])
            cells += [f"to {first + late}", precise(machine.latency_s[rank][late])]
            cells += [f"to {first + thin}", rate(machine.bandwidth[rank][thin])]
        lines.append(tag("tr", *[tag("td", text(cell)) for cell in cells]))
    return tag("table", *lines)
