"""`safepoint tasks verify`, `forget` and `clean`: keep what is kept in order."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.errors import DamagedError, NothingSavedError, UsageError
from safepoint.pace.times import duration

NAMED = 10  # vertices that a message names


@click.command()
@places.directory
@terminal.as_json
@click.pass_context
def verify(ctx: click.Context, directory: str, as_json: bool) -> None:
    """Read all results and compare them with their checksums.

    It takes no lock and changes nothing. Exit code 0: all are whole; 18: some are damaged. A damaged result costs its
    vertex alone, which runs again when another vertex needs it, or after `safepoint tasks forget`. A torn end of a
    journal is no damage: so does a kill leave it.
    """
    store = places.store_of(directory)
    found = list(store.verify())
    damaged = [each for each in found if not each.torn]
    records = store.records()
    if as_json:
        terminal.put({
            "directory": os.path.realpath(directory), "results": len(records),
            "damaged": [each._asdict() for each in damaged], "torn": [each.file for each in found if each.torn],
        })  # fmt: skip
        ctx.exit(DamagedError.code if damaged else 0)
    for each in damaged:
        what = f"vertex {each.vertex}: " if each.vertex else ""
        terminal.say(f"{each.file}{f' at {each.offset}' if each.offset else ''}: {what}{each.what}")
    for each in found:
        if each.torn:
            terminal.say(f"{each.file}: {each.what}, as a kill leaves it; no result is lost by that")
    whole = len(records) - sum(bool(each.vertex) for each in damaged)
    terminal.say(
        f"{words.count(whole, 'result')} whole, {words.size(sum(r.nbytes for r in records.values() if r.kept))}"
    )
    if damaged:
        raise DamagedError(
            f"{words.count(len(damaged), 'place')} damaged; safepoint tasks forget makes those vertices run again"
        )


@click.command()
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@places.directory
def forget(patterns: Sequence[str], directory: str) -> None:
    """Make vertices run again.

    Those whose names match a PATTERN (as of files: *, ?, [a-z]). Their results are removed. Vertices that use them run
    again only if a new result differs from the old one.
    """
    store = places.store_of(directory)
    with terminal.tidy(), store.held():
        names = sorted({name for pattern in patterns for name in store.forget(pattern)})
    if not names:
        raise NothingSavedError(f"nothing is kept of a vertex {' or '.join(patterns)}")
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    terminal.say(f"forgot {words.count(len(names), 'vertex', 'vertices')}: {', '.join(names[:NAMED])}{more}")


@click.command()
@places.directory
@click.option("--before", metavar="TIME", help="Only those made longer ago than that: 12h, 30d.")
@terminal.yes
def clean(directory: str, before: str | None, yes: bool) -> None:
    """Remove the results that the last graph does not use.

    Those are of vertices that the graph has no more, or whose function, version, parameters or inputs changed since. A
    program that goes back to them would find them again until then.
    """
    limit = None
    if before is not None:
        try:
            limit = time.time() - duration(before)
        except ValueError as error:
            raise UsageError(f"--before {before}: {error}") from error
    store = places.store_of(directory)
    if not terminal.agreed("Remove all results that the last graph does not use?", yes=yes or limit is not None):
        raise UsageError("nothing was removed")
    with terminal.tidy(), store.held():
        gone = store.clean(limit)
    nbytes = sum(record.nbytes for record in gone if record.kept)
    terminal.say(f"removed {words.count(len(gone), 'result')}, {words.size(nbytes)}")
