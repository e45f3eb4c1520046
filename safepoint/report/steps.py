"""The drawing of how far the program was at each moment: a saw, with a tooth for each failure that cost work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from safepoint.ledger.lives import ENDINGS, FAILURES, Life, Run, Save
from safepoint.report.drawing import RIGHT, WIDTH, TimeAxis, axis_of, figure, level, shown, time_axis
from safepoint.report.markup import tag, text, title
from safepoint.words import count

TOP, HEIGHT = 16, 220
MOST_POINTS = 480  # in all lines: of more only some are drawn, and always the first and the last of a life


def steps(run: Run) -> list[str]:
    """The part of the page."""
    caption = (
        "How far the program was, by the steps of the sets that the log tells of: it may have been some steps further. "
        "A dotted line leads from a failure to the step from which the next start went on. Where it leads down, that "
        "was computed again."
    )
    return figure("Steps", step_line(run), caption)


def step_line(run: Run) -> str:
    """Step over time, from each start on; empty if the sets have no steps, or there was never one to tell of."""
    lives = shown(run)
    paths = [(number, life, _path(life)) for number, life in lives]
    known = [step for _, _, path in paths for _, step, _ in path]
    if len(known) < 2 or max(known) == min(known):
        return ""
    low, high = min(known), max(known)
    axis = axis_of(lives, 16 + 8 * max(len(f"{step:,}") for step in (low, high)), RIGHT)
    bottom = float(TOP + HEIGHT)

    def y(step: float) -> float:
        return bottom - (step - low) / (high - low) * HEIGHT

    marks = [time_axis(axis, TOP, bottom)]
    for step in sorted({low, (low + high) // 2, high}):
        marks.append(level(axis, y(step), f"{step:,}"))
    for (number, life, path), following in zip(paths, [*paths[1:], None], strict=True):
        if not path:
            continue
        points = " ".join(f"{axis(at):.1f},{y(step):.1f}" for at, step, _ in _some(path, len(lives)))
        marks.append(tag("polyline", points=points, class_="steps"))
        marks += [_dot(axis, y(step), at, save) for at, step, save in _some(path, len(lives)) if save]
        if following and following[2] and life.ending in FAILURES:
            marks.append(_tooth(life, path, following, axis, y))
        marks.append(_end(life, number, axis(life.end), y(path[-1][1])))
    box = f"0 0 {WIDTH} {bottom + 40:.0f}"
    return tag("svg", tag("title", "Step over time"), *marks, viewBox=box, class_="timeline", role="img")


Point = tuple[float, int, Save | None]  # when, how far, and which set says so


def _path(life: Life) -> list[Point]:
    """How far it was, as its sets say; from where it began, and to its result."""
    sets: list[Point] = [(s.hide[1], s.step, s) for s in life.saves if s.step is not None and not s.error]
    begin = 0 if life.set is None and sets else life.step
    path: list[Point] = [(life.ready, begin, None)] if begin is not None else []
    path += sorted(sets, key=lambda point: point[0])
    return path + ([(life.end, life.result, None)] if life.result is not None else [])


def _some(path: Sequence[Point], lives: int) -> Sequence[Point]:
    every = -(-len(path) // max(4, MOST_POINTS // lives))
    return [*path[:-1:every], path[-1]]


def _dot(axis: TimeAxis, y: float, at: float, save: Save) -> str:
    return tag("circle", title(save.name), cx=axis(at), cy=y, r=2.2, class_="store")


def _tooth(
    life: Life, path: Sequence[Point], following: tuple[int, Life, list[Point]], axis: TimeAxis,
    y: Callable[[float], float],
) -> str:  # fmt: skip
    """From where it was to where the next life began."""
    number, after, next_path = following
    high, low = path[-1][1], next_path[0][1]  # up, if the restart has completed a set that was under way
    again = f", {count(life.repeated, 'step')} again" if life.repeated else ""
    words = f"{ENDINGS[life.ending]}; start {number} began from step {low:,}{again}"
    return tag("line", title(words), x1=axis(life.end), x2=axis(after.ready), y1=y(high), y2=y(low), class_="tooth")


def _end(life: Life, number: int, x: float, y: float) -> str:
    good = life.ending in ("finished", "running", "stopped", "ended")
    words = text(f"start {number}: {ENDINGS[life.ending]}")
    return tag("circle", tag("title", words), cx=x, cy=y, r=4.0, class_="good-dot" if good else "fail")
