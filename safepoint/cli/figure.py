"""The time line and the sets of a report as a picture, drawn by matplotlib."""

from __future__ import annotations

import importlib
from typing import Any

from safepoint.cli.drawing import BARS, TimeAxis, axis_of, binned, duration, groups, origin, shown
from safepoint.cli.history import ENDINGS, Life, Run
from safepoint.cli.page import headline
from safepoint.cli.terminal import size
from safepoint.errors import SaveError, UsageError

COLOURS = {"compute": "#7fa8d6", "blocked": "#e07b00", "store": "#2f9e8f", "restore": "#9a77c7", "lost": "#c0322b"}
PIXELS = 1000.0  # of the width, for what is too close to tell apart


def draw(run: Run, path: str) -> None:
    """Write the picture. Raises `UsageError` if matplotlib is missing, `SaveError` if the file cannot be written."""
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError(f"a picture needs matplotlib ({error}): pip install matplotlib") from error
    lives = shown(run)
    high = 0.42 * len(lives) + 1.3
    figure = figures.Figure(figsize=(11, high + 3.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[high, 2.6])
    figure.suptitle(" ".join(headline(run)[:3]), fontsize=10, wrap=True)
    _time_line(above, lives)
    _sizes(below, run)
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise SaveError(f"picture not written: {path}: {error.strerror}; the run is as it was", error.errno) from error


def _time_line(axes: Any, lives: list[tuple[int, Life]]) -> None:
    axis = axis_of(lives, 0.0, PIXELS)
    for row, (_, life) in enumerate(lives):
        _row(axes, life, axis, row)
    for left, pause in axis.cuts:
        axes.axvspan(left, left + axis.gap, color="#d9dee5", zorder=0)
        axes.text(left + axis.gap / 2, -0.75, f"pause {duration(pause)}", ha="center", fontsize=7)
    names = [f"{number}. {origin(life)}" for number, life in lives]
    axes.set_yticks(range(len(lives)), names, fontsize=8)
    axes.set_ylim(len(lives) - 0.4, -0.7)
    places, unit = axis.ticks()
    axes.set_xticks([place for place, _ in places], [words for _, words in places], fontsize=8)
    axes.set_xlim(-5, PIXELS * 1.13)
    axes.set_xlabel(f"time since the first start ({unit})", fontsize=9)
    words = {"compute": "computing", "blocked": "blocked in hide", "store": "storing in the background",
             "restore": "restoring", "lost": "lost, computed again"}  # fmt: skip
    for kind, name in words.items():
        axes.bar(0, 0, color=COLOURS[kind], label=name)
    axes.legend(ncols=5, fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16 - 0.3 / len(lives)))
    axes.spines[["top", "right"]].set_visible(False)


def _row(axes: Any, life: Life, axis: TimeAxis, row: int) -> None:
    def block(begin: float, end: float, top: float, high: float, **look: Any) -> None:
        axes.broken_barh([(axis(begin), max(1.2, axis(end) - axis(begin)))], (row + top, high), **look)

    block(life.begin, life.end, -0.3, 0.45, color=COLOURS["compute"])
    block(life.begin, life.ready, -0.3, 0.45, color=COLOURS["restore"])
    if life.kept < life.end:
        block(
            life.kept, life.end, -0.3, 0.45, facecolor="#f3c5c0", edgecolor=COLOURS["lost"], hatch="////", linewidth=0
        )
    stored = [save for save in life.saves if not save.waited]
    for kind, saves, spans, top, high in (
        ("blocked", life.saves, [save.hide for save in life.saves], -0.3, 0.45),
        ("store", stored, [(save.at - save.length, save.at) for save in stored], 0.18, 0.14),
    ):
        for group in groups(saves, spans, axis, 2.0):
            axes.broken_barh(
                [(group.left, max(1.2, group.right - group.left))], (row + top, high), color=COLOURS[kind], linewidth=0
            )
    failed = [axis(save.at) for save in life.saves if save.error]
    axes.plot(failed, [row - 0.36] * len(failed), "v", color=COLOURS["lost"], markersize=6)
    axes.text(axis(life.end) + 6, row - 0.08, ENDINGS[life.ending], fontsize=8, va="center")


def _sizes(axes: Any, run: Run) -> None:
    saves = [save for save in run.saves if not save.error]
    rows = binned(saves, lambda save: save.bytes, lambda save: save.stored, size)
    assert len(rows) <= BARS
    places = range(len(rows))
    axes.bar(places, [row.value / 1e6 for row in rows], color=COLOURS["compute"], alpha=0.4, label="size of the set")
    axes.bar(places, [(row.part or 0) / 1e6 for row in rows], color=COLOURS["compute"], label="kept")
    every = max(1, len(rows) // 12)
    axes.set_xticks(places[::every], [row.label for row in rows[::every]], fontsize=8)
    axes.set_xlabel("number of the set", fontsize=9)
    axes.set_ylabel("MB", fontsize=9)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0, 1.15))
    axes.spines[["top", "right"]].set_visible(False)
