"""The drawing of what the sets took on the disk, over the time of the run."""

from __future__ import annotations

from collections.abc import Sequence

from safepoint.ledger.lives import Run, Save
from safepoint.report.bars import round_steps
from safepoint.report.drawing import RIGHT, WIDTH, axis_of, figure, level, shown, time_axis
from safepoint.report.markup import tag, title
from safepoint.words import size

TOP, HEIGHT = 16, 120
MOST_POINTS = 480  # of more sets each stands for several: the one that took most


def disk_use(run: Run) -> list[str]:
    """The part of the page."""
    caption = (
        "What all sets took on the disk when a new one was durable, just before older ones went. Blocks that sets "
        "share with one another, or with the files in place, are counted each time."
    )
    return figure("Disk", use_line(run), caption)


def _uses(run: Run) -> list[list[tuple[Save, int]]]:
    """Of each start that is drawn its sets, and the bytes of all that were there then."""
    return [[(save, save.use) for save in life.saves if save.use is not None] for _, life in shown(run)]


def use_line(run: Run) -> str:
    """Bytes over time, up to the end of each start; empty if the log has no two sets to tell of."""
    lives, uses = shown(run), _uses(run)
    most = max((use for some in uses for _, use in some), default=0)
    if sum(map(len, uses)) < 2 or not most:
        return ""
    ticks = round_steps(most)
    axis = axis_of(lives, 16 + 8.0 * max(len(size(tick)) for tick in ticks), RIGHT)
    bottom = float(TOP + HEIGHT)

    def y(use: float) -> float:
        return bottom - use / ticks[-1] * HEIGHT

    marks = [time_axis(axis, TOP, bottom), *(level(axis, y(tick), size(tick)) for tick in (0.0, *ticks))]
    for some, (_, life) in zip(uses, lives, strict=True):
        path = ""
        for save, use in _largest(some, max(4, MOST_POINTS // len(lives))):
            x, above = axis(save.at), y(use)
            path += f"H{x:.1f} V{above:.1f} " if path else f"M{x:.1f},{bottom:.1f} V{above:.1f} "
            what = title(f"{save.name}: {size(use)} in all")
            marks.append(tag("circle", what, cx=x, cy=above, r=2.2, class_="store"))
        if path:
            path += f"H{axis(life.end):.1f} V{bottom:.1f} Z"
            marks.insert(1, tag("path", d=path, class_="size pale"))
    box = f"0 0 {WIDTH} {bottom + 40:.0f}"
    return tag("svg", tag("title", "Disk use over time"), *marks, viewBox=box, class_="timeline", role="img")


def _largest(some: Sequence[tuple[Save, int]], most: int) -> list[tuple[Save, int]]:
    every = -(-len(some) // most) if some else 1
    return [max(some[at : at + every], key=lambda use: use[1]) for at in range(0, len(some), every)]
