"""`safepoint top`: a run at work, as it goes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.cli.look.status import STATES, extra, hidden, judge, pending, restart
from safepoint.disk.files import exists, tail
from safepoint.errors import SafepointError
from safepoint.ledger.lines import whole_lines

LAST_BYTES = 1 << 18  # of the log that are looked at: the last hour, say
LOOKING = 0.2  # of the time, at most, is spent on looking
SHOWN = 8  # sets
SAFE = ("complete", "completable", "saving")


class Pace(NamedTuple):
    """What the last lines of the log tell of this life."""

    since: float | None = None  # when the first of them was written
    saves: tuple[float, ...] = ()  # when sets were durable
    failed: int = 0
    blocked: float = 0.0  # seconds in `hide`, since then
    last: float | None = None  # of the last hide
    error: str = ""

    @property
    def interval(self) -> float | None:
        """Between two sets, the median of the last ones."""
        spans = sorted(later - earlier for earlier, later in zip(self.saves, self.saves[1:], strict=False))
        return spans[len(spans) // 2] if spans else None


@click.command()
@terminal.directory
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, metavar="SECONDS", help="Between two looks.")
@click.option("--once", is_flag=True, help="Print it once and end, as where the output is no terminal.")
@terminal.as_json
def top(directory: str, interval: float, once: bool, as_json: bool) -> None:
    """The run at work here, live: what would be lost now, and what saving costs.

    It looks at names and sizes only, and takes no lock. End it with Ctrl-C, or q.
    """
    seen, pace = _seen(directory)
    if as_json:
        terminal.put(content(seen, pace))
    elif once or not terminal.live():
        for name, text, _ in rows(seen, pace):
            terminal.prose(f"{name + ':' * bool(name):<28}{text}", " " * 28)
        terminal.say()
        terminal.table(*_table(seen))
    else:
        _live(directory, interval)
    verdict = judge(seen)
    if verdict and (once or as_json):
        raise verdict


def _live(directory: str, interval: float) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False, console=terminal.console()) as screen, terminal.keys() as pressed:
        while True:
            begin = time.monotonic()
            try:
                picture = _picture(*_seen(directory))
            except (SafepointError, OSError) as error:  # the directory may go, and come back
                picture = terminal.printable(str(error))
            screen.update(picture, refresh=True)
            pause = max(interval, (time.monotonic() - begin) / LOOKING)
            if pressed(pause) in ("q", "Q", terminal.END):
                return


def _seen(directory: str) -> tuple[Overview, Pace]:
    seen = look(terminal.DISK, directory)
    return seen, _pace(seen)


def _pace(seen: Overview) -> Pace:
    """Of the saver's log, or, where each rank has its own, of the first that tells of a set."""
    for rank in seen.ranks:
        with suppress(OSError):
            if not exists(terminal.DISK, rank.root.log):
                continue
            lines, since = whole_lines(tail(terminal.DISK, rank.root.log, LAST_BYTES))[0], None
            saves: list[float] = []
            failed, blocked, last, error = 0, 0.0, None, ""
            for line in lines:
                if "began" in line or line["event"] in ("restored", "start"):
                    saves, failed, blocked, since, error = [], 0, 0.0, line["time"], ""
                since = line["time"] if since is None else since
                saves += [line["time"]] * (line["event"] == "saved")
                if line["event"] == "failed":
                    failed, error = failed + 1, str(line.get("error", "failed"))
                times = [float(seconds) for _, seconds in line.get("blocked", ())]
                last = times[-1] if times else last
                blocked += sum(times) + (float(line["superseded"][1]) if "superseded" in line else 0.0)
            if saves or failed:
                return Pace(since, tuple(saves), failed, blocked, last, error)
    return Pace()


def _newest(seen: Overview, *states: str) -> SetState | None:
    return next((each for each in seen.sets if each.state in states), None)


def rows(seen: Overview, pace: Pace) -> list[tuple[str, str, str]]:
    """Name, text and colour of each line."""
    now = time.time()
    found = [("directory", seen.work, ""), ("run", seen.who, "green" if seen.running else "dark_orange3")]
    if halt := pending(seen):
        found.append(("halt", halt, "dark_orange3"))
    found.append(("restart", restart(seen), ""))
    if seen.mark is None and seen.running:
        interval = pace.interval
        for name, states in (("lost if it is killed now", SAFE), ("lost if the power goes now", SAFE[:1])):
            newest = _newest(seen, *states)
            text, colour = "all that was computed", "red"
            if newest and newest.time:
                age = max(0.0, now - newest.time)
                text = f"{words.span(age)} of work, since {newest.label}"
                colour = "" if interval is None or age < 3 * interval else "dark_orange3"
            found.append((name, text, colour))
    if pace.since is not None:
        found.append(("sets", _counts(seen, pace, now), "red" if pace.failed else ""))
        if pace.error:
            found.append(("last failure", pace.error, "red"))
        share = pace.blocked / max(now - pace.since, 1e-9)
        last = f", the last one {words.precise(pace.last)}" if pace.last is not None else ""
        found.append(("blocked by hide", f"{share:.2%} of the time{last}", "dark_orange3" if share > 0.1 else ""))
    found.append(("disk", _space(seen), ""))
    return found


def _counts(seen: Overview, pace: Pace, now: float) -> str:
    counts = hidden(seen)
    parts = [f"{counts['hidden']} hidden, {counts['stored']} stored" if counts else f"{len(pace.saves)} stored"]
    parts += [f"{pace.failed} failed"] * bool(pace.failed)
    if interval := pace.interval:
        parts.append(f"every {words.span(interval) if interval >= 1 else words.about(interval)}")
        left = pace.saves[-1] + interval - now
        if seen.running and left > 1:
            parts.append(f"the next in about {words.span(left)}")
    return ", ".join(parts)


def _space(seen: Overview) -> str:
    used = sum(each.totals[2] for each in seen.sets) + sum(each.size for each in seen.leftovers)
    text = f"{words.size(used)} in {words.count(len(seen.sets), 'set')}"
    with suppress(OSError, AttributeError):  # Windows
        info = os.statvfs(seen.work)
        text += f", {words.size(info.f_bavail * info.f_frsize)} free"
    return text


def _table(seen: Overview) -> tuple[list[str], list[list[str]], tuple[str, ...]]:
    given = any(each.extra for each in seen.sets)
    lines = []
    for each in seen.sets[:SHOWN]:
        files, size, _ = each.totals
        step, age = "-" if each.step is None else str(each.step), words.age(each.time) if each.time else "-"
        lines.append([str(each.number), step, age.removesuffix(" ago"), str(files), words.size(size),
                      STATES[each.state], *[extra(each)] * given])  # fmt: skip
    heads = ["set", "step", "age", "files", "size", "state", *["extra"] * given]
    return heads, lines, ("set", "step", "age", "files", "size")


def _picture(seen: Overview, pace: Pace) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text, colour in rows(seen, pace):
        facts.add_row(name, Text(terminal.printable(text), style=colour))
    clock = Text(f"safepoint top{time.strftime('%H:%M:%S'):>67}", style="bold")
    return Group(clock, "", facts, "", terminal.drawn(*_table(seen)), "", Text("q ends it", style="dim"))


def content(seen: Overview, pace: Pace) -> dict[str, Any]:
    """The same as JSON."""
    killed, power = _newest(seen, *SAFE), _newest(seen, SAFE[0])
    return {
        "directory": seen.work,
        "running": bool(seen.running),
        "restart": restart(seen),
        "kill_safe": killed and {"set": killed.number, "step": killed.step, "time": killed.time},
        "durable": power and {"set": power.number, "step": power.step, "time": power.time},
        "hidden": hidden(seen),
        "failed": pace.failed,
        "interval": pace.interval,
        "blocked": None if pace.since is None else pace.blocked / max(time.time() - pace.since, 1e-9),
        "stored": sum(each.totals[2] for each in seen.sets),
    }
