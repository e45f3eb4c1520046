"""`safepoint clean`: remove what no restart would take."""

from __future__ import annotations

import os
from typing import cast

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.holding import alone_in
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Leftover, Overview
from safepoint.disk.files import exists, remove_tree
from safepoint.errors import SaveError, UsageError
from safepoint.root import State
from safepoint.saving import prune

DISK = terminal.DISK


@click.command()
@terminal.directory
@click.option("--dry-run", is_flag=True, help="Only list what would be removed; no lock is taken.")
@terminal.yes
@terminal.as_json
def clean(directory: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove what failed, killed or finished runs left behind.

    Failed and half-deleted sets, what the last restore moved to discarded/, sets that the finish mark ended, and sets
    that nothing was moved into. Whole sets stay, and so do what a killed restore had staged, which the next one
    needs to know, and names that are not of safepoint.
    """
    if dry_run:
        seen = look(DISK, directory)
        if not seen.side:
            seen.raise_if_empty()
        _report(seen, _removable(seen), "would be removed", as_json, dry_run=True)
        return
    with alone_in(directory) as seen:
        found = _removable(seen)
        if found and not yes and not as_json:
            _list(seen, found)
        total = words.size(sum(each.size for each in found))
        if found and not terminal.agreed(f"Remove {words.directories(len(found))}, {total}?", yes=yes):
            raise UsageError("nothing was removed")
        for each in found:
            with seen.root(0).reporting(SaveError, "cannot remove", "all whole sets are as they were"):
                _remove(each)
        _report(seen, found, "removed", as_json, dry_run=False)


def _removable(seen: Overview) -> list[Leftover]:
    found = []
    for rank in seen.ranks:
        initial = rank.baseline and not any(part.state == "committed" for part in rank.parts.values())
        for each in rank.leftovers:
            # The first may have the initial files; the second says that W may be a mixture, which only a restore ends.
            if not (initial and each.state == "failed") and each.path != rank.root.stage:
                found.append(each)
        ended = [s.number for s in seen.sets if s.state == "ended" and s.number in rank.parts]
        for n in ended:
            size = _stored(seen, n, rank.rank)
            found.append(Leftover(rank.root.set(n), "ended by the finish mark", size, rank.root, "set", n))
    return found


def _stored(seen: Overview, number: int, rank: int) -> int:
    record = seen.find(number).parts[rank].record
    return sum(file.stored_size for file in record.files) if record else 0


def _remove(each: Leftover) -> None:
    if each.state in ("set", "failed"):
        prune.drop(each.root, [each.number], cast(State, each.state))
    elif exists(DISK, each.path):
        remove_tree(DISK, each.path)


def _list(seen: Overview, found: list[Leftover]) -> None:
    rows = [[os.path.relpath(each.path, seen.root(0).side), words.size(each.size), each.what] for each in found]
    terminal.table(["below .safepoint.d", "size", "what it is"], rows, right=("size",))


def _report(seen: Overview, found: list[Leftover], what: str, as_json: bool, *, dry_run: bool) -> None:
    total = sum(each.size for each in found)
    if as_json:
        rows = [{"path": each.path, "what": each.what, "size": each.size} for each in found]
        terminal.put({"directory": seen.work, "dry_run": dry_run, "removed": rows, "freed": total})
    elif not found:
        terminal.say("nothing to remove")
    else:
        if dry_run:
            _list(seen, found)
        terminal.say(f"{what}: {words.directories(len(found))}, {words.size(total)}")
