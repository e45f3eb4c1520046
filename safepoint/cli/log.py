"""`safepoint log`: what happened here."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from safepoint.cli import terminal
from safepoint.cli.overview import look
from safepoint.errors import NothingSavedError
from safepoint.manifest import SIDE
from safepoint.record import RANGES, WHOLE, Unsealed, loaded, rows_of, types_of

SHOWN = ("time", "event", "rank", "pid", "set", "step")
FOR_REPORTS = ("began", "blocked", "sums", "values")


@click.command()
@terminal.directory
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N events.")
@terminal.as_json
def log(directory: str, last: int | None, as_json: bool) -> None:
    """What happened here: the events of all ranks.

    They are written for people: recovery never reads them, and a line that a power cut tore is left out.
    """
    seen = look(terminal.DISK, directory)
    if not seen.side:
        raise NothingSavedError(f"nothing has happened here: {seen.work} has no {SIDE}")
    lines = [{"rank": rank.rank, **line} for rank in seen.ranks for line in events(rank.root.log)]
    lines.sort(key=lambda line: line["time"])
    lines = lines[-last:] if last else lines
    if as_json:
        terminal.put({"directory": seen.work, "events": lines})
        return
    heads = ["time", "rank", "event", "set", "step", "detail"]
    terminal.table(heads, [_row(line) for line in lines], right=("rank", "set", "step"))


def events(path: str, last: int | None = None) -> list[dict[str, Any]]:
    """The whole lines of a log; `last`: of so many bytes at its end."""
    try:
        data = terminal.DISK.tail(path, last) if last else terminal.DISK.read(path)
    except FileNotFoundError:
        return []
    return [line for row in data.splitlines() if (line := whole_line(row))]


class Line(NamedTuple):
    """What a line may hold, of what is calculated with or drawn; else it is torn, or somebody else's."""

    time: float
    event: str
    pid: int = 0
    rank: int = 0
    set: int | None = None
    step: int | None = None
    at: str = ""
    seconds: float = 0.0
    began: float = 0.0
    taken: float | None = None
    cost: float = 0.0
    files: int = 0
    bytes: int = 0
    stored: int = 0
    error: str = ""
    why: str | None = None
    due: str | None = None
    aside: tuple[Any, ...] | None = None
    passed_over: tuple[Any, ...] = ()
    blocked: tuple[Any, ...] = ()
    sums: tuple[Any, ...] = ()


_TYPES = types_of(Line)


class Wait(NamedTuple):
    """How long one set has kept the program."""

    set: int
    seconds: float


def whole_line(row: bytes) -> dict[str, Any] | None:
    """What a line of a log says; None if it is not what was written. For lines by the million: as `checked`, of the few
    fields that a line has."""
    try:
        line = loaded(row)
        if "blocked" in line:
            rows_of(Wait, Wait._fields, line["blocked"])
    except Unsealed:
        return None
    good = "time" in line and "event" in line and all(_may_be(name, value) for name, value in line.items())
    return line if good else None


def _may_be(name: str, value: Any) -> bool:
    if name not in _TYPES:
        return True
    low, high = RANGES.get(name, WHOLE)
    return type(value) in _TYPES[name] and (type(value) not in (int, float) or low <= value <= high)


def _row(line: dict[str, Any]) -> list[str]:
    rest = {
        key: value for key, value in line.items() if key not in (*SHOWN, *FOR_REPORTS) and value not in (None, [], "")
    }
    detail = ", ".join(_detail(key, value) for key, value in rest.items())
    number, step = line.get("set"), line.get("step")
    shown = ["" if value is None else str(value) for value in (number, step)]
    return [terminal.moment(line["time"]), str(line["rank"]), str(line["event"]), *shown, detail]


def _detail(key: str, value: Any) -> str:
    if key in ("bytes", "stored") and isinstance(value, int):
        return f"{'' if key == 'bytes' else 'stored '}{terminal.size(value)}"
    if key == "seconds":
        return f"{value:.3g} s"
    if key == "cost":
        return f"cost {value:.3g} s"
    if key == "files" and isinstance(value, int):
        return terminal.count(value, "file")
    if value is True:
        return key
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return str(value) if key == "error" else f"{key.replace('_', ' ')}: {value}"
