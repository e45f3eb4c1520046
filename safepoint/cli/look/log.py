"""`safepoint log`: what happened here."""

from __future__ import annotations

from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.errors import NothingSavedError
from safepoint.ledger.lines import events
from safepoint.patterns import SIDE

COLUMNS = ("time", "event", "rank", "pid", "set", "step")
FOR_REPORTS = ("began", "blocked", "pruned", "sums", "superseded", "taken", "there", "values")


@click.command()
@terminal.directory
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N events.")
@terminal.as_json
def log(directory: str, last: int | None, as_json: bool) -> None:
    """What happened here: the events of all ranks.

    They are written for people: recovery never reads them, and a line that a power cut tore is left out.
    """
    seen = look(terminal.DISK, directory, part=True)
    if not seen.side:
        raise NothingSavedError(f"nothing has happened here: {seen.work} has no {SIDE}")
    lines = [{"rank": rank.rank, **line} for rank in seen.ranks for line in events(terminal.DISK, rank.root.log)]
    lines.sort(key=lambda line: line["time"])
    lines = lines[-last:] if last else lines
    if as_json:
        terminal.put({"directory": seen.work, "events": lines})
        return
    heads = ["time", "rank", "event", "set", "step", "detail"]
    terminal.table(heads, [_row(line) for line in lines], right=("rank", "set", "step"))


def _row(line: dict[str, Any]) -> list[str]:
    rest = {
        key: value for key, value in line.items() if key not in (*COLUMNS, *FOR_REPORTS) and value not in (None, [], "")
    }
    detail = ", ".join(_detail(key, value) for key, value in rest.items())
    number, step = line.get("set"), line.get("step")
    shown = ["" if value is None else str(value) for value in (number, step)]
    return [words.moment(line["time"]), str(line["rank"]), str(line["event"]), *shown, detail]


def _detail(key: str, value: Any) -> str:
    if key in ("bytes", "stored") and isinstance(value, int):
        return f"{'' if key == 'bytes' else 'stored '}{words.size(value)}"
    if key == "seconds":
        return f"{value:.3g} s"
    if key == "cost":
        return f"cost {value:.3g} s"
    if key == "files" and isinstance(value, int):
        return words.count(value, "file")
    if value is True:
        return key
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return str(value) if key == "error" else f"{key.replace('_', ' ')}: {value}"
