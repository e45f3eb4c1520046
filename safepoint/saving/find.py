"""What there is to save: the listed files that exist at one moment. Nothing is moved here."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from safepoint import companions
from safepoint.disk.files import entries, exists, listdir
from safepoint.errors import MissingFilesError, RefusedFileError, SaveError
from safepoint.manifest import Manifest
from safepoint.patterns import Entry, Match, excluded
from safepoint.record import Item
from safepoint.root import Root
from safepoint.saving import movable
from safepoint.saving.contents import not_a_file_error, still_open

MANY = 10_000  # files of one glob: from here on a directory listed as a whole is worth a word


MAY_BE = (
    " (list what the program does not write for each set as copy, so that it stays; what may be absent as optional)"
)


LOOKS, NAMED = 2000, 5  # files that are looked at, and named, in a message


class Found(NamedTuple):
    """What the manifest's entries of this rank mean at one moment."""

    items: tuple[Item, ...] = ()
    opened: tuple[tuple[Entry, str], ...] = ()  # snapshotted only because they are still open for writing
    present: bool = False  # the program has written something that makes a set
    missing: str = ""  # it has not, and these are not optional
    many: tuple[Entry, int] | None = None  # the glob that means very many files, and how many
    optional: tuple[Item, ...] = ()  # of `items`, what is not in W after this, and need not be written again


def find(
    root: Root, manifest: Manifest, *, first: bool = False, ends: bool = False, away: Sequence[Item] = ()
) -> Found:  # fmt: skip
    """What there is to save. None of the files: no items. Files that stay in place (append, copy) do not count beside
    files that are moved, since they are always there. Nor does, for a `first` set, a directory without a file in it: a
    program that makes its directories before its first step could not start from them. Nor do, where the run `ends`,
    optional files beside others, as they go with any set. `away`: the optional files of the set before. What of these
    is not in W, as the program has not written it again, is carried over. Raises `MissingFilesError` if only some
    exist, `RefusedFileError` for what cannot be saved.
    """
    with root.reporting(SaveError, "cannot look at the listed files", "nothing was moved"):
        found, missing = manifest.find(
            root.work, root.disk.stat, root.rank, root.ranks, listdir=partial(listdir, root.disk)
        )
        added = companions.add(root, manifest, found, refuse=True)
        required = [entry for entry in manifest.entries if not entry.optional]
        news = _news(found, required, ends=ends)
        without = manifest.without(root.rank, root.ranks)
        written = any(not (tree and first) or _has_file(root, path, without) for path, tree in news)
        names = manifest.shown_missing(
            missing, root.work, root.disk.stat, root.rank, root.ranks, partial(listdir, root.disk)
        )
        # With other ranks, which may have their files: then an empty directory is this one's part of the set.
        nothing = not written and any(entry.kind == "move" for entry in required) and (missing or root.ranks == 1)
        carried = tuple(item._replace(kind="copy", inode=0) for item in away if item.path not in found)
        if not found or nothing:
            rest = carried if root.ranks > 1 and not missing else ()  # others may have what makes a set
            return Found(rest, missing=names, optional=rest)
        if missing:
            raise MissingFilesError(f"missing: {names}, though {next(iter(found))} exists; nothing was moved{MAY_BE}")
        _check(root, found, first=first)
        moving = {f"{root.work}/{path}": path for path, (e, _) in found.items() if e.kind == "move" and not e.tree}
        opened = [moving[full] for full in root.disk.open_for_writing(list(moving))] if moving else []
        opened += [path for path, of in added.items() if of in opened and path not in opened]
        _refuse_large(root, opened, found, manifest.setting("copy_open_below"))
        items = [_item(path, match, without, opened=path in opened) for path, match in found.items()]
    snapshots = tuple((found[path].entry, path) for path in opened)
    optional = [item for item in items if item.kind == "move" and found[item.path].entry.optional]
    present, many = written or not manifest.moves, _many(manifest, found)
    return Found((*items, *carried), snapshots, present, many=many, optional=(*optional, *carried))


def _item(path: str, match: Match, without: Sequence[str], *, opened: bool) -> Item:
    entry, info = match
    kind, left_out = "copy" if opened else entry.kind, without if entry.tree else ()
    how = entry.tree, entry.compress, tuple(left_out)
    return Item(path, kind, info.st_size, info.st_mtime_ns, info.st_ino, *how)


def _news(found: dict[str, Match], required: Sequence[Entry], *, ends: bool) -> list[tuple[str, bool]]:
    """The files that are written anew for each set, and whether each is a directory."""
    passing = ends and any(entry.kind == "move" for entry in required)
    moving = [(path, entry) for path, (entry, _) in found.items() if entry.kind == "move"]
    return [(path, entry.tree) for path, entry in moving if not (passing and entry.optional)]


def _many(manifest: Manifest, found: dict[str, Match]) -> tuple[Entry, int] | None:
    if len(found) < MANY:
        return None
    counts = Counter(entry.line for entry, _ in found.values() if entry.kind != "append" and not entry.tree)
    return next(((entry, counts[entry.line]) for entry in manifest.entries if counts[entry.line] >= MANY), None)


def _has_file(root: Root, path: str, without: Sequence[str]) -> bool:
    """Whether this is anything but a directory, or has such a thing somewhere below it that is not excluded."""
    full = os.path.join(root.work, path)
    if not stat.S_ISDIR(root.disk.stat(full).st_mode):
        return True
    inside = [(directory, f"{path}/{name}") for name, directory in entries(root.disk, full)]
    inside = [(directory, name) for directory, name in inside if not excluded(without, name)]
    return any(not directory or _has_file(root, name, without) for directory, name in sorted(inside))


def changed(root: Root, manifest: Manifest, marks: Sequence[str]) -> str:
    """The first few files in W that are not listed and were changed after these were written, for a message. The look
    is bounded: W may hold a million."""
    found: list[str] = []
    listed = manifest.entries + manifest.others + manifest.exclusions
    with contextlib.suppress(OSError):  # a file or directory that is gone, or not ours to read: it is only a hint
        since = max((root.disk.stat(mark).st_mtime_ns for mark in marks if exists(root.disk, mark)), default=0)
        looks, waiting = 0, [""]
        while waiting and looks < LOOKS and len(found) <= NAMED:
            below = waiting.pop(0)
            for name, is_directory in entries(root.disk, os.path.join(root.work, below))[: LOOKS - looks]:
                looks, path = looks + 1, f"{below}/{name}" if below else name
                names = [path, *(each.of for each in companions.owners(path, root))]
                if name.startswith((".", "__")) or any(
                    e.means(each, root.rank, root.ranks) for e in listed for each in names
                ):
                    continue
                if is_directory:
                    waiting.append(path)
                elif root.disk.stat(os.path.join(root.work, path)).st_ctime_ns >= since:
                    found.append(path)
    return ", ".join(found[:NAMED]) + " and more" * (len(found) > NAMED)


def _refuse_large(root: Root, opened: Sequence[str], found: dict[str, Match], limit: int) -> None:
    """Of the files to be moved those that somebody could still write to are snapshotted instead, if they are small."""
    for path in opened:
        if found[path].info.st_size > limit:
            size = f", and its {found[path].info.st_size} bytes are over copy_open_below ({limit})"
            raise RefusedFileError(f"{still_open(root.disk, path, os.path.join(root.work, path), size)} or append")


def _check(root: Root, found: dict[str, Match], *, first: bool) -> None:
    root.guard(found)
    device = root.disk.stat(root.work).st_dev
    for path, (entry, info) in found.items():
        _check_type(path, entry, info)
        if info.st_dev != device:
            movable.refuse_mount(root, path, device)
        if first and entry.kind == "copy":
            movable.refuse_fixed(root, path, tree=entry.tree)


def _check_type(path: str, entry: Entry, info: os.stat_result) -> None:
    is_directory = stat.S_ISDIR(info.st_mode)
    if is_directory and not entry.tree:
        raise RefusedFileError(f"{path} is a directory: list it as {path}/ to save it whole")
    if stat.S_ISLNK(info.st_mode):
        raise RefusedFileError(
            f"{path} is a symbolic link, and what it points to would not be saved: list that instead"
        )
    if entry.tree and not is_directory:
        raise RefusedFileError(f"{path} is not a directory: list it without the trailing slash")
    if not is_directory and not stat.S_ISREG(info.st_mode):
        raise not_a_file_error(path, info.st_mode)
