"""`safepoint tasks verify`, `forget` and `clean`: keep what is kept in order."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.errors import DamagedError, NothingSavedError, UsageError
from safepoint.pace.times import duration
from safepoint.tasks import log
from safepoint.tasks.jobs import Record
from safepoint.tasks.saved import Store
from safepoint.tasks.tending import used_by_last

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
@click.option(
    "--all", "everywhere", is_flag=True, help="Of all graphs whose results are kept here, not of the last only."
)
def forget(patterns: Sequence[str], directory: str, everywhere: bool) -> None:
    """Make vertices run again.

    Those of the last graph whose names match a PATTERN (as of files: *, ?, [a-z]). Their results are removed, those of
    earlier versions, too. Vertices that use them run again only if a new result differs from the old one.
    """
    store = places.store_of(directory)
    with terminal.tidy(), store.held():
        graph = None if everywhere else log.graph(store.directory)  # without one all that is kept is of the last graph
        among = {vertex["name"] for vertex in graph["vertices"]} if graph else None
        forgot = {pattern: store.forget(pattern, among) for pattern in patterns}
    of = "" if among is None else " of the last graph (--all: of all graphs kept here)"
    # Of two patterns for one vertex the first has forgotten it.
    names = sorted({name for some in forgot.values() for name in some})
    none = [
        pattern
        for pattern, some in forgot.items()
        if not some and not any(fnmatchcase(name, pattern) for name in names)
    ]
    if not names:
        raise NothingSavedError(f"nothing is kept of a vertex {' or '.join(none)}{of}")
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    terminal.say(f"forgot {words.count(len(names), 'vertex', 'vertices')}: {', '.join(names[:NAMED])}{more}")
    if none:
        terminal.say(f"nothing is kept of a vertex {' or '.join(none)}{of}")


@click.command()
@places.directory
@click.option("--before", metavar="TIME", help="Only those made longer ago than that: 12h, 30d. It does not ask.")
@terminal.yes
def clean(directory: str, before: str | None, yes: bool) -> None:
    """Remove the results that the last graph does not use.

    Those are of vertices that the graph has no more, or whose function, version, parameters or inputs changed since. A
    program that goes back to them would find them again until then. The results of other graphs that run in this
    directory go, too: use a directory for each graph, or --before.
    """
    limit = None
    if before is not None:
        try:
            limit = time.time() - duration(before)
        except ValueError as error:
            raise UsageError(f"--before {before}: {error}") from error
    store = places.store_of(directory)
    if not (yes or limit is not None) and not terminal.agreed(_question(store), yes=False):
        raise UsageError("nothing was removed")
    with terminal.tidy(), store.held():
        gone = store.clean(limit)
    terminal.say(f"removed {_counted(gone)}")


def _question(store: Store) -> str:
    stays = used_by_last(store, False)
    gone = [record for record in store.records().values() if not stays(record)]
    name = (log.graph(store.directory) or {"graph": ""})["graph"]
    return f"Remove {_counted(gone)}: all that the last graph, {name}, does not use, also of other graphs?"


def _counted(gone: Sequence[Record]) -> str:
    nbytes = sum(record.nbytes for record in gone if record.kept)
    return f"{words.count(len(gone), 'result')}, {words.size(nbytes)}"
