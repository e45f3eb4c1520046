"""`safepoint show`: the files of one set."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import SetState
from safepoint.disk.files import exists
from safepoint.errors import UsageError
from safepoint.record import Item, StoredFile
from safepoint.root import Root

HOW_KEPT = {"raw": "as it is", "zst": "compressed", "tar": "in the bundle"}


@click.command()
@click.argument("number", metavar="[N]", required=False, shell_complete=set_numbers)
@terminal.directory
@click.option("--checksums", is_flag=True, help="Also the xxh3-128 of each file, as xxh128sum prints it.")
@terminal.as_json
def show(number: str | None, directory: str, checksums: bool, as_json: bool) -> None:
    """The files of one set, or of the newest.

    Each with its rank, size, the bytes that the set keeps of it, and how: as it is, compressed, in the bundle, or in
    place (an append file: its beginning belongs to the set; a set that was given back has a copy of that beside it). N
    is the number of the set, as `status` shows it.
    """
    if number is not None and not number.isdecimal():
        directory = number  # `safepoint show DIR`
        number = None
        if not os.path.isdir(directory):
            raise UsageError(f"{directory} is neither the number of a set nor a directory")
    seen = look(terminal.DISK, directory, part=True)
    seen.raise_if_empty()
    chosen = seen.find(seen.sets[0].number if number is None else int(number))
    rows = [_described(seen.root(rank, chosen), chosen.number, file) for rank, file in chosen.files]
    rows += [
        _announced(rank, item)
        for rank, part in chosen.parts.items()
        if part.record is None and part.taken
        for item in part.taken.files
    ]
    rows.sort(key=lambda row: (row["path"], row["rank"]))
    if as_json:
        terminal.put({
            "directory": seen.work, "number": chosen.number, "step": chosen.step, "time": chosen.time,
            "state": chosen.state, "extra": chosen.extra, "files": rows,
        })  # fmt: skip
        return
    when = f", {words.moment(chosen.time)}, {words.age(chosen.time)}" if chosen.time else ""
    terminal.say(f"{chosen.label}{when}: {_state(chosen)}")
    if chosen.extra:
        terminal.say(f"extra: {json.dumps(chosen.extra, ensure_ascii=False)}")
    several = len({row["rank"] for row in rows}) > 1
    heads = ["path", *["rank"] * several, "kind", "size", "stored", "kept", "modified", *["checksum"] * checksums]
    terminal.table(heads, [[_cell(row, head) for head in heads] for row in rows], right=("rank", "size", "stored"))


def _state(chosen: SetState) -> str:
    return f"{chosen.state} ({chosen.why})" if chosen.reasons else chosen.state


def _described(root: Root, number: int, file: StoredFile) -> dict[str, Any]:
    stored, kept = file.stored_size, HOW_KEPT[file.kept] if file.kind == "file" else "in the record"
    if file.kind == "append":
        copied = exists(terminal.DISK, root.prefix(number, file.path))
        stored, kept = file.size * copied, "in place and as a copy" if copied else "in place"
    return {
        "path": file.path, "rank": root.rank, "kind": file.kind, "size": file.size, "stored": stored,
        "kept": kept, "mode": stat.filemode(file.mode) if file.mode else "", "modified": file.mtime_ns / 1e9,
        "checksum": file.checksum, "target": file.target,
    }  # fmt: skip


def _announced(rank: int, item: Item) -> dict[str, Any]:
    """A file of a set without a record."""
    return {
        "path": item.path, "rank": rank, "kind": "tree" if item.tree else "append" if item.kind == "append" else "file",
        "size": item.size, "stored": 0, "kept": "uncommitted", "mode": "", "modified": item.mtime_ns / 1e9,
        "checksum": "", "target": "",
    }  # fmt: skip


def _cell(row: dict[str, Any], head: str) -> str:
    value = row[head]
    if head in ("size", "stored"):
        return words.size(value) if row["kind"] in ("file", "append") else ""
    if head == "modified":
        return words.moment(value) if value else ""
    if head == "path" and row["target"]:
        return f"{value} -> {row['target']}"
    return f"{value}/" if head == "path" and row["kind"] in ("tree", "dir") else str(value)
