"""`safepoint diff`: which files differ between two sets, or a set and what is in place, and by how much."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview
from safepoint.errors import NothingSavedError, UsageError
from safepoint.ledger.contents import Difference, compare
from safepoint.ledger.kept import Kept, checksum_of, opened, target_of
from safepoint.restoring.baseline import files_in_place
from safepoint.restoring.read import Damaged

DISK = terminal.DISK
DIFFERENT = 1  # the exit code


@dataclass(frozen=True)
class Row:
    """`state`: equal, differ, only in A, only in B, damaged."""

    path: str
    state: str
    text: str = ""
    difference: Difference | None = None


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@terminal.directory
@click.option("--all", "every", is_flag=True, help="Also the files that are equal.")
@terminal.as_json
@click.pass_context
def diff(ctx: click.Context, a: str, b: str, directory: str, every: bool, as_json: bool) -> None:
    """Compare the files of two sets, or of a set and those in place.

    A and B are numbers of sets, or `now`: the files in the working directory. The recorded checksums tell what is
    equal. Of .npy, .npz and HDF5 files, tables and numbers it is said how many values differ, by how much, and where;
    of others the first differing byte. Exit code 0 if all is equal, 1 if not.
    """
    seen = look(DISK, directory)
    seen.raise_if_empty()
    sides = [_side(seen, which, other) for which, other in ((a, b), (b, a))]
    rows = [_row(path, sides[0].get(path), sides[1].get(path), (a, b)) for path in sorted({*sides[0], *sides[1]})]
    same = all(row.state == "equal" for row in rows)
    if as_json:
        content = [{"path": row.path, "state": row.state, "text": row.text, **_numbers(row)} for row in rows]
        terminal.put({"directory": seen.work, "a": a, "b": b, "equal": same, "files": content})
    else:
        shown = [row for row in rows if every or row.state != "equal"]
        if shown:
            terminal.table(["file", "", "difference"], [[row.path, row.state, row.text] for row in shown])
        terminal.say(f"{sum(row.state == 'equal' for row in rows)} of {words.count(len(rows), 'file')} equal")
    ctx.exit(0 if same else DIFFERENT)


def _numbers(row: Row) -> dict[str, Any]:
    found = row.difference
    keys = ("kind", "values", "differing", "largest", "relative", "where", "offset")
    numbers = {key: getattr(found, key) if found else None for key in keys}
    # JSON has no infinity.
    return {key: str(n) if isinstance(n, float) and math.isinf(n) else n for key, n in numbers.items()}


def _side(seen: Overview, which: str, other: str) -> dict[str, Kept]:
    if which == "now":
        return _in_place(seen, other)
    if not which.isdecimal():
        raise UsageError(f"{which} is neither the number of a set nor `now`")
    chosen = seen.find(int(which))
    records = {rank: part.record for rank, part in chosen.parts.items() if part.record}
    if not records:
        raise NothingSavedError(
            f"{chosen.label} has no record ({chosen.why or chosen.state}): there is nothing to compare"
        )
    if lacking := set(chosen.needed) - records.keys():
        names = words.ranks(sorted(lacking))
        raise NothingSavedError(f"{chosen.label} is not whole ({chosen.why}): what rank {names} has is not known")
    return {
        file.path: Kept(file.size, seen.root(rank, chosen), record, file)
        for rank, record in records.items()
        for file in record.files
        if file.has_bytes or file.kind == "link"
    }


def _in_place(seen: Overview, other: str) -> dict[str, Kept]:
    """The files in W that the manifest means for any rank of the other set."""
    if seen.manifest is None:
        assert seen.manifest_error
        raise seen.manifest_error
    chosen = seen.find(int(other)) if other.isdecimal() else seen.sets[0]
    found = {}
    for rank in chosen.parts:
        root = seen.root(rank, chosen)
        mine = seen.manifest.owned_by(root.rank, root.ranks, root.saver)
        found.update({path: Kept(info.st_size, root) for path, info in files_in_place(root, mine).items()})
    return found


def _row(path: str, a: Kept | None, b: Kept | None, names: tuple[str, str]) -> Row:
    if a is None or b is None:
        return Row(path, f"only in {names[a is None]}")
    links = target_of(path, a), target_of(path, b)
    if links != (None, None):
        text = " and ".join(f"-> {link}" if link is not None else "a file" for link in links)
        return Row(path, "equal") if links[0] == links[1] else Row(path, "differ", text)
    try:
        if a.size == b.size and checksum_of(path, a) == checksum_of(path, b):
            return Row(path, "equal")
        with (
            tempfile.TemporaryDirectory(prefix="safepoint-") as top,
            opened(path, a, top) as one,
            opened(path, b, top) as two,
        ):
            found = compare(one, two, path)
    except Damaged as error:
        return Row(path, "damaged", str(error))
    return Row(path, "differ", found.text, found)
