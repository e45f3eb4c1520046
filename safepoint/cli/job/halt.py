"""`safepoint halt`: ask a live run to save and end."""

from __future__ import annotations

import re
import time

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview
from safepoint.disk.files import exists
from safepoint.errors import NothingSavedError, SaveError, UsageError
from safepoint.pace.halt import halt as ask
from safepoint.pace.times import duration, moment
from safepoint.root import Root

DISK = terminal.DISK


@click.command()
@terminal.directory
@click.option(
    "--after", metavar="TIME", default="", help="Not now, but after that time, such as 30min, or at a moment, as 18:00."
)
@click.option("--steps", type=click.IntRange(min=0), metavar="N", help="Not now, but N calls of should_stop later.")
@click.option("--undo", is_flag=True, help="Take the request back, as long as the run has not yet heeded it.")
@terminal.as_json
def halt(directory: str, after: str, steps: int | None, undo: bool, as_json: bool) -> None:
    """Ask the run at work here to save and end.

    It is noticed by the next call of should_stop that looks (once a second), on all ranks together, and by `safepoint
    run`. The run ends with status 79, which asks for no requeue; the request is for this run only, not for the next
    start. A program that never calls should_stop does not notice it.
    """
    if (undo and (after or steps is not None)) or (after and steps is not None):
        raise UsageError("give only one of --after, --steps and --undo")
    try:
        until = _moment(after) if after else None
    except ValueError as error:
        raise UsageError(f"--after {error}, not {after}") from error
    seen = look(DISK, directory)
    if not seen.side:
        seen.raise_if_empty()
    root = seen.root(0)
    with root.reporting(SaveError, "the request cannot be written", "nothing was changed"):
        if undo:
            _undo(seen, root)
            text = "taken back"
        else:
            owners = _at_work(seen)
            ask(root, owners, until=until, steps=steps)
            who = ", ".join(dict.fromkeys(f"process {owner['pid']} on {owner['host']}" for owner in owners))
            when = f" at {words.moment(until)}" if until else ""
            when = f" {words.count(steps, 'step')} later" if steps else when
            text = f"asked to stop{when}: {who}"
    if as_json:
        terminal.put({"directory": seen.work, "undone": undo, "until": until, "steps": steps})
    else:
        terminal.say(text)


def _moment(text: str) -> float:
    now = time.time()
    if re.fullmatch(r"\d{1,2}:\d\d:\d\d", text):
        raise ValueError("takes a time, such as 2h 30min, or a moment, such as 18:00; with seconds it could be either")
    try:
        return now + duration(text)
    except ValueError:
        try:
            return moment(text, now)
        except ValueError:
            raise ValueError("takes a time, such as 30min, or a moment, such as 18:00") from None


def _at_work(seen: Overview) -> list[dict[str, object]]:
    """Who may be at work here; on other nodes that cannot be seen from here."""
    owners = [rank.owner for rank in seen.ranks if rank.owner and rank.held is not False]
    if not owners:
        raise NothingSavedError(f"no run is at work in {seen.work}: there is nothing to halt")
    return owners


def _undo(seen: Overview, root: Root) -> None:
    if not exists(DISK, root.halt):
        raise NothingSavedError(f"nothing to undo: no halt was asked for in {seen.work}")
    DISK.remove(root.halt)
