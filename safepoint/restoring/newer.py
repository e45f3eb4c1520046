"""Remove the sets that were passed over, and bring back what is nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from safepoint import companions
from safepoint.disk.files import exists, make_ways, remove_tree, sync
from safepoint.manifest import Manifest
from safepoint.record import StoredFile
from safepoint.restoring.read import Damaged, read_out, reporting
from safepoint.restoring.survey import read_record, read_taken, refuse_links
from safepoint.restoring.swap import movable
from safepoint.root import PRIVATE, Root
from safepoint.saving import back, contents, prune


def drop_newer(
    root: Root, manifest: Manifest, number: int, patterns: tuple[str, ...], numbers: Iterable[int]
) -> list[str]:
    """Remove all sets above `number`, and what never became one. On return they cannot come back.

    `numbers`: of all that are there. `patterns`: those of the set that was given back. A file that was listed only
    since then, and is nowhere but in a newer set, goes back to W: it may be one of the program's inputs. What of these
    is damaged itself is returned: then its set is kept as a failed one, until the next commit or another failure of its
    number.
    """
    with reporting(root, "cannot remove the sets that were passed over"):
        newer = [n for n in numbers if n > number]
        later = [entry for entry in manifest.entries if entry.pattern not in patterns]
        left, failed = [], set()
        for n in newer if later else ():
            missed = []
            for path in _moved_into(root, n):
                names = [path, *(each.of for each in companions.owners(path))]
                if any(e.means(each, root.rank, root.ranks) for e in later for each in names):
                    try:
                        _take_out(root, n, path)
                    except Damaged:
                        missed.append(path)
            if missed:
                back.fail(root, n)
                failed.add(n)
                left += missed
        prune.drop(root, [n for n in newer if n not in failed])
        return left


def _moved_into(root: Root, number: int) -> list[str]:
    """What a set took out of W, by its list, or, if that is damaged, by its record."""
    for read in (_moved_by_list, _moved_by_record):
        with suppress(Damaged):
            refuse_links(root, number)
            paths = read(root, number)
            refuse_links(root, number, paths)
            return paths
    return []


def _moved_by_list(root: Root, number: int) -> list[str]:
    return [item.path for item in read_taken(root, number).files if item.kind == "move"]


def _moved_by_record(root: Root, number: int) -> list[str]:
    return [file.path for file in movable(read_record(root, number))]


def _take_out(root: Root, number: int, path: str) -> None:
    """Bring a file or directory that only this set has back into W, by one rename. Raises `Damaged`."""
    kept, target = root.stored(number, path), os.path.join(root.work, path)
    if exists(root.disk, target):
        root.disk.sync_dir(os.path.dirname(target))  # who brought it may have been killed before that
        return
    files, parents = list[StoredFile](), dict[str, Any]()
    if exists(root.disk, root.record(number)):
        with suppress(Damaged):  # then nothing was compressed or bundled and removed, or it cannot be found
            record = read_record(root, number)
            parents = record.parents or {}
            files = [file for file in record.files if file.path == path or file.path.startswith(path + "/")]
    if any(file.kept != "raw" for file in files):
        kept = _unpacked(root, number, files, path)
    if not exists(root.disk, kept):
        raise Damaged(f"{path} is missing")
    make_ways(root.disk, [os.path.dirname(path)], root.work, parents)
    # The way to it before it moves: a file system may forget a new directory, and what it holds is nowhere else.
    sync(root.disk, (), contents.directories_up_to({os.path.dirname(target)}, {root.work}))
    root.disk.rename(kept, target)
    # Its name in W before the set goes for good: else a power cut could leave it without any.
    root.disk.sync_dir(os.path.dirname(target))


def _unpacked(root: Root, number: int, files: list[StoredFile], path: str) -> str:
    """Make in `stage/`, durably, what a set keeps compressed or bundled: a kill must not leave half of it in W."""
    if exists(root.disk, root.stage):
        remove_tree(root.disk, root.stage)
    root.disk.mkdir(root.stage, root.mode)
    contents.make_parents(root.disk, os.path.join(root.stage, path), root.stage)
    made, directories = [], [os.path.dirname(os.path.join(root.stage, path))]
    for file in files:
        target = os.path.join(root.stage, file.path)
        if file.kind in ("tree", "dir"):
            root.disk.mkdir(target, PRIVATE)
            directories.append(target)
        elif file.kind == "link":
            root.disk.link(file.target, target)
        else:
            read_out(root.disk, root.where(number, file), file, target)
            root.disk.set_mode_and_time(target, file.mode, file.mtime_ns, file.group)
            made.append(target)
    sync(root.disk, made, directories)
    for file in reversed(files):
        if file.kind in ("tree", "dir"):
            root.disk.set_mode_and_time(os.path.join(root.stage, file.path), file.mode, file.mtime_ns, file.group)
    return os.path.join(root.stage, path)
