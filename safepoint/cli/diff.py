"""`safepoint diff`: which files differ between two sets, or a set and what is in place, and by how much."""

from __future__ import annotations

import math
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from safepoint.cli import terminal
from safepoint.cli.contents import Difference, compare
from safepoint.cli.overview import Overview, look
from safepoint.codec import copy
from safepoint.errors import NothingSavedError, UsageError
from safepoint.record import Record, Root, StoredFile
from safepoint.restore import Damaged, extract, files_in_place

DISK = terminal.DISK
DIFFERENT = 1  # the exit code


class Kept(NamedTuple):
    """A file of a set, or, without a record, one in place."""

    size: int
    root: Root
    record: Record | None = None
    file: StoredFile | None = None


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
        terminal.say(f"{sum(row.state == 'equal' for row in rows)} of {terminal.count(len(rows), 'file')} equal")
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
        names = terminal.ranks(sorted(lacking))
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
        found.update({path: Kept(info.st_size, root) for path, info in files_in_place(DISK, root, mine).items()})
    return found


def _row(path: str, a: Kept | None, b: Kept | None, names: tuple[str, str]) -> Row:
    if a is None or b is None:
        return Row(path, f"only in {names[a is None]}")
    links = _target(path, a), _target(path, b)
    if links != (None, None):
        text = " and ".join(f"-> {link}" if link is not None else "a file" for link in links)
        return Row(path, "equal") if links[0] == links[1] else Row(path, "differ", text)
    try:
        if a.size == b.size and _checksum(path, a) == _checksum(path, b):
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


def _target(path: str, kept: Kept) -> str | None:
    """What a symbolic link points to; None if it is none."""
    if kept.file:
        return kept.file.target if kept.file.kind == "link" else None
    full = os.path.join(kept.root.work, path)
    return os.readlink(full) if os.path.islink(full) else None


def _checksum(path: str, kept: Kept) -> str:
    if kept.file:
        return kept.file.checksum
    with DISK.open(os.path.join(kept.root.work, path)) as source:
        return copy(source, None, kept.size)[1]


def _as_it_is(full: str, path: str, size: int | None = None) -> str:
    """Raises `Damaged` if there is no file, of this size: what is read to its end must have one."""
    info = DISK.stat(full)
    if not stat.S_ISREG(info.st_mode):
        raise Damaged(f"{path} is not a regular file")
    if size not in (None, info.st_size):
        raise Damaged(f"{path} has {info.st_size} bytes instead of {size}")
    return full


@contextmanager
def opened(path: str, kept: Kept, top: str) -> Iterator[str]:
    """A file with these bytes: the one that is there, or a copy, below `top`, if a set has them in another form."""
    if kept.file is None or kept.record is None:
        yield _as_it_is(os.path.join(kept.root.work, path), path)
    elif kept.file.kind == "file" and kept.file.kept == "raw":
        yield _as_it_is(kept.root.where(kept.record.number, kept.file), path, kept.size)
    else:
        with tempfile.TemporaryDirectory(dir=top) as place:
            extract(DISK, kept.root, kept.record._replace(files=(kept.file,)), os.path.realpath(place))
            yield os.path.join(place, path)
