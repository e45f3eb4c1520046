"""The drawing of a graph by layers: each vertex right of all that it needs. A state is a shape and a colour.

Of many vertices the drawing has counts for each layer, since shapes would say no more than that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from safepoint.report.drawing import WIDTH
from safepoint.report.markup import tag, text, title
from safepoint.tasks.pictures.past import EARLIER, FAILED, FINISHED, RUNNING, SKIPPED, STATES, WAITING, Node
from safepoint.words import count

MOST_NODES, MOST_LAYERS, MOST_EDGES = 500, 60, 4000  # that are drawn one by one
ROWS = 28  # vertices above each other; a larger layer has several columns
STEP, SIDE, HALF = 22.0, 18.0, 6.0  # from row to row, from column to column of a layer, half a shape
MOST_BARS = 120  # of the counts; of more layers a bar stands for several
HATCHED = {
    EARLIER: "M-1,1 l2,-2 M0,6 L6,0 M5,7 l2,-2",
    RUNNING: "M3,0 v6",
    FAILED: "M0,0 L6,6 M0,6 L6,0",
    SKIPPED: "M0,0 L6,6 M0,6 L6,0",
}
NAMES = {
    FINISHED: "finished in this start",
    EARLIER: "finished before",
    RUNNING: "given out, with no end in the log",
    WAITING: "waiting",
    FAILED: "failed",
    SKIPPED: "not run: it needs a failed one",
}


def layers(nodes: Sequence[Node]) -> list[list[Node]]:
    """By the longest way from a vertex that needs none. What lies on a circle comes last."""
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    missing = {node.name: len(node.parents) for node in nodes}
    for node in nodes:
        for parent in node.parents:
            children[parent].append(node.name)
    depth = {name: 0 for name, left in missing.items() if not left}
    ready = list(depth)
    for name in ready:  # which grows, and never by less deep ones: the last parent of a child is the deepest
        for child in children[name]:
            missing[child] -= 1
            if not missing[child]:
                depth[child] = depth[name] + 1
                ready.append(child)
    circle = max(depth.values(), default=-1) + 1
    found: list[list[Node]] = [[] for _ in range(circle + (len(ready) < len(nodes)))]
    for node in nodes:
        found[depth.get(node.name, circle)].append(node)
    return found


def in_order(rows: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Each layer by the middle of its vertices' parents, so that fewer edges cross."""
    at: dict[str, float] = {}

    def middle(node: Node) -> float:
        places = [at[parent] for parent in node.parents if parent in at]
        return sum(places) / len(places) if places else math.inf

    found = []
    for layer in rows:
        ordered = sorted(layer, key=middle) if at else list(layer)
        at.update((node.name, (number + 0.5) / len(ordered)) for number, node in enumerate(ordered))
        found.append(ordered)
    return found


def graph(nodes: Sequence[Node]) -> tuple[str, str]:
    """The drawing, and what must be said about it; both empty of a graph without vertices."""
    if not nodes:
        return "", ""
    rows = layers(nodes)
    if _many(nodes, rows):
        return _counts(rows)
    drawing, edges = _shapes(in_order(rows))
    words = "Each vertex stands right of all that it needs."
    if edges > MOST_EDGES:
        words += f" The {edges:,} edges are too many to be drawn."
    return drawing, words


def _many(nodes: Sequence[Node], rows: Sequence[object]) -> bool:
    return len(nodes) > MOST_NODES or len(rows) > MOST_LAYERS


def many(nodes: Sequence[Node]) -> bool:
    """Whether the drawing has counts."""
    return _many(nodes, layers(nodes))


def told(nodes: Iterable[Node]) -> str:
    """How many are in which state, in words."""
    states = Counter(node.state for node in nodes)
    return ", ".join(f"{states[state]:,} {NAMES[state].partition(':')[0]}" for state in STATES if states[state])


# One by one.


def sign(state: str, x: float, y: float, words: str = "", size: float = HALF) -> str:
    """The shape of a state. It is told apart without colours, too."""
    kind, inside = f"state-{state}", [title(words)] * bool(words)
    if state in (FINISHED, WAITING):
        return tag("circle", *inside, cx=x, cy=y, r=size, class_=kind)
    if state == EARLIER:
        ring = tag("circle", *inside, cx=x, cy=y, r=size, class_=kind)
        return tag("g", ring, tag("circle", *inside, cx=x, cy=y, r=size * 0.4, class_="hole"))
    paths = {
        RUNNING: f"M{x - size:.1f},{y - size:.1f} l{2 * size:.1f},{size:.1f} l{-2 * size:.1f},{size:.1f} z",
        FAILED: f"M{x - size:.1f},{y - size:.1f} l{2 * size:.1f},{2 * size:.1f} m0,{-2 * size:.1f} "
                f"l{-2 * size:.1f},{2 * size:.1f}",
        SKIPPED: f"M{x:.1f},{y - size:.1f} l{size:.1f},{size:.1f} l{-size:.1f},{size:.1f} l{-size:.1f},{-size:.1f} z",
    }  # fmt: skip
    return tag("path", *inside, d=paths[state], class_=kind)


def key(state: str, *, as_bar: bool) -> list[str]:
    """What stands for a state in a legend, within 16 by 16."""
    if not as_bar:
        return [sign(state, 8, 8)]
    place = {"x": 1, "y": 2, "width": 14, "height": 12}
    hatched = [tag("rect", **place, fill=f"url(#of-{state})")] * (state in HATCHED)
    return [tag("rect", **place, class_=f"bar-{state}"), *hatched]


def _shapes(rows: Sequence[Sequence[Node]]) -> tuple[str, int]:
    """The drawing, and the number of its edges."""
    columns = [math.ceil(len(layer) / ROWS) for layer in rows]
    widest = sum((each - 1) * SIDE for each in columns)
    gap = max(34.0, (WIDTH - 60 - widest) / max(1, len(rows)))
    named = gap >= 70 and max(map(len, rows)) <= ROWS
    tall = STEP * min(ROWS, max(map(len, rows)))
    at: dict[str, tuple[float, float]] = {}
    x, marks = 24.0, []
    for number, layer in enumerate(rows):
        high = math.ceil(len(layer) / columns[number])
        top = 30 + (tall - high * STEP) / 2 + STEP / 2
        for place, node in enumerate(layer):
            at[node.name] = (x + place // high * SIDE, top + place % high * STEP)
            marks.append(sign(node.state, *at[node.name], _words(node)))
            if named:
                shown = shortened(node.name, gap - 18)
                marks.append(tag("text", text(shown), x=at[node.name][0] + 10, y=at[node.name][1] + 4, class_="tiny"))
        marks.append(tag("text", str(number + 1), x=x + (columns[number] - 1) * SIDE / 2, y=18, class_="tick middle"))
        x += (columns[number] - 1) * SIDE + gap
    ends = [(at[parent], at[node.name]) for layer in rows for node in layer for parent in node.parents]
    edges = "".join(_edge(*pair) for pair in ends) if len(ends) <= MOST_EDGES else ""
    wide = max(float(WIDTH), x)
    label = f"The graph by layers: {count(sum(map(len, rows)), 'vertex', 'vertices')}, {count(len(ends), 'edge')}"
    lines = [tag("path", d=edges, class_="edge" if len(ends) < 600 else "edge many-edges")] * bool(edges)
    how = {"style": f"min-width: {wide:.0f}px"} if wide > WIDTH else {}
    box = f"0 0 {wide:.0f} {tall + 40:.0f}"
    drawing = tag(
        "svg", title(label), *lines, *marks, viewBox=box, class_="layers", role="img", aria_label=label, **how
    )
    return drawing, len(ends)


def _edge(begin: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to, below) = (begin[0] + HALF, begin[1]), (end[0] - HALF, end[1])
    bend = (to - x) / 2
    return f"M{x:.0f},{y:.0f}C{x + bend:.0f},{y:.0f} {to - bend:.0f},{below:.0f} {to:.0f},{below:.0f}"


def _words(node: Node) -> str:
    where = " ".join(filter(None, (node.function, f"({node.source})" if node.source else "")))
    return f"{node.name}: {NAMES[node.state]}" + (f"; {where}" if where else "")


def shortened(name: str, room: float) -> str:
    """As much of a name as fits; of a long one its end tells more, since that has the number."""
    most = max(3, int(room / 6.3))
    return name if len(name) <= most else f"…{name[1 - most :]}"


# As counts.


def _counts(rows: Sequence[Sequence[Node]]) -> tuple[str, str]:
    """A bar for each layer, or for several, as long as its number of vertices, with its states."""
    every = math.ceil(len(rows) / MOST_BARS)
    bars = [[node for layer in rows[at : at + every] for node in layer] for at in range(0, len(rows), every)]
    most = max(map(len, bars))
    left, room, step = 96.0, WIDTH - 96.0 - 90.0, 20.0 if len(bars) <= 40 else 12.0
    marks = []
    for number, bar in enumerate(bars):
        first = number * every + 1
        name = f"layer {first}" if every == 1 else f"{first} to {min(first + every - 1, len(rows))}"
        y, x = 8 + number * step, left
        states = Counter(node.state for node in bar)
        marks.append(tag("text", name, x=left - 8, y=y + step - 6, class_="tick end-at"))
        for state in STATES:
            wide = states[state] / most * room
            if wide:
                words = f"{name}: {states[state]:,} {NAMES[state]}"
                drawn = max(1.0, wide)
                place = {"x": x, "y": y, "width": drawn, "height": step - 4}
                marks.append(tag("rect", title(words), **place, class_=f"bar-{state}"))
                if state in HATCHED:
                    marks.append(tag("rect", title(words), **place, fill=f"url(#of-{state})"))
                x += wide
        marks.append(tag("text", f"{len(bar):,}", x=x + 6, y=y + step - 6, class_="tick"))
    total = sum(map(len, bars))
    label = f"The graph as counts: {total:,} vertices in {count(len(rows), 'layer')}"
    box = f"0 0 {WIDTH} {16 + len(bars) * step:.0f}"
    inside = [title(label), _patterns(), *marks]
    drawing = tag("svg", *inside, viewBox=box, class_="layers", role="img", aria_label=label)
    return drawing, "A bar for each layer, as long as its number of vertices. A layer needs only those before it."


def _patterns() -> str:
    """For eyes and printers without colours."""
    made = []
    for state, shape in HATCHED.items():
        lines = tag("path", d=shape, class_="hatch-state")
        made.append(tag("pattern", lines, id=f"of-{state}", width=6, height=6, patternUnits="userSpaceOnUse"))
    return tag("defs", *made)


def by_layer(nodes: Sequence[Node]) -> str:
    """The same as a table: how many vertices of each layer are in which state."""
    rows = layers(nodes)
    there: Mapping[str, int] = Counter(node.state for node in nodes)
    shown = [state for state in STATES if there.get(state)]
    heads = [tag("th", words, class_="n") for words in ("vertices", *(NAMES[s].partition(":")[0] for s in shown))]
    lines = [tag("tr", tag("th", "layer"), *heads)]
    for number, layer in enumerate(rows[:MOST_BARS], 1):
        states = Counter(node.state for node in layer)
        cells = [len(layer), *(states[state] for state in shown)]
        lines.append(tag("tr", tag("td", str(number)), *[tag("td", f"{cell:,}", class_="n") for cell in cells]))
    if len(rows) > MOST_BARS:
        lines.append(tag("tr", tag("td", f"… {len(rows) - MOST_BARS} layers left out", colspan=len(shown) + 2)))
    return tag("table", *lines)
