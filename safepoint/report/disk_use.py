"""The drawing of what the sets took on the disk, over the time of the run."""

from __future__ import annotations

from safepoint.ledger.lives import Run, Save
from safepoint.report.bars import round_steps
from safepoint.report.drawing import RIGHT, WIDTH, axis_of, level, shown, time_axis
from safepoint.report.markup import tag, text, title
from safepoint.words import size

TOP, HEIGHT = 16, 120
MOST_POINTS = 480  # of more sets each stands for several: the one that took most


def disk_use(run: Run) -> list[str]:
    """The part of the page."""
    drawing = use_line(run)
    if not drawing:
        return []
    caption = (
        "What all sets took on the disk when a new one was durable, just before older ones went. Blocks that sets "
        "share with one another, or with the files in place, are counted each time."
    )
    figure = tag("figure", tag("div", drawing, class_="wide"), tag("figcaption", text(caption)))
    return [tag("h2", "Disk"), figure]


def use_line(run: Run) -> str:
    """Bytes over time, up to the end of each start; empty if the log has no two sets to tell of."""
    lives = shown(run)
    saves = [[save for save in life.saves if save.use] for _, life in lives]
    if sum(map(len, saves)) < 2:
        return ""
    ticks = round_steps(max(save.use for some in saves for save in some))
    axis = axis_of(lives, 16 + 8.0 * max(len(size(tick)) for tick in ticks), RIGHT)
    bottom = float(TOP + HEIGHT)

    def y(use: float) -> float:
        return bottom - use / ticks[-1] * HEIGHT

    marks = [time_axis(axis, TOP, bottom), *(level(axis, y(tick), size(tick)) for tick in (0.0, *ticks))]
    for some, (_, life) in zip(saves, lives, strict=True):
        path = ""
        for save in _largest(some, max(4, MOST_POINTS // len(lives))):
            x, above = axis(save.at), y(save.use)
            path += f"H{x:.1f} V{above:.1f} " if path else f"M{x:.1f},{bottom:.1f} V{above:.1f} "
            what = title(f"{save.name}: {size(save.use)} in all")
            marks.append(tag("circle", what, cx=x, cy=above, r=2.2, class_="store"))
        if path:
            path += f"H{axis(life.end):.1f} V{bottom:.1f} Z"
            marks.insert(1, tag("path", d=path, class_="size pale"))
    box = f"0 0 {WIDTH} {bottom + 40:.0f}"
    return tag("svg", tag("title", "Disk use over time"), *marks, viewBox=box, class_="timeline", role="img")


def _largest(saves: list[Save], most: int) -> list[Save]:
    every = -(-len(saves) // most) if saves else 1
    return [max(saves[at : at + every], key=lambda save: save.use) for at in range(0, len(saves), every)]
