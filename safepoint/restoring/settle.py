"""Bring into order what a process left behind: an uncommitted set is proven whole, or its files go back. Rule (3)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from safepoint.disk import PageCache, handles
from safepoint.disk.files import exists, remove_tree, stat_or_none
from safepoint.errors import DamagedError, RefusedFileError, RestoreError, SaveError
from safepoint.record import Item, Taken
from safepoint.restoring.baseline import read_baseline
from safepoint.restoring.read import DAMAGE, Damaged, read_out, reporting
from safepoint.restoring.survey import Candidate, read_record, read_taken, refuse_links, sets_after
from safepoint.restoring.swap import clear_discarded
from safepoint.root import Root
from safepoint.saving import back, commit, contents, take
from safepoint.saving.memory import Memory


def settle(
    root: Root, place: PageCache, found: Sequence[Candidate], gone: Sequence[int], memory: Memory
) -> list[Candidate]:
    """Bring a root that a process left behind into order, where `survey` has found these sets, and these `gone` ones
    are still to be removed; the sets as they are then.

    On return sets that could be proven whole are committed.
    """
    with reporting(root, "cannot settle what the last run left"):
        for number in gone:
            remove_tree(root.disk, root.state("gone", number))
        candidates = [
            c._replace(record=None, reason="it could not be stored, nor be marked as such")
            if c.number in memory.spoilt
            else c
            for c in found
        ]
        newest = next((c.record for c in candidates if c.record), None)
        for position, candidate in reversed(list(enumerate(candidates))):
            number = candidate.number
            if number in memory.spoilt or candidate.committed or (newest and number < newest.number):
                continue
            try:
                taken = _provably_whole(root, number, place, first=newest is None)
                newest = commit.secure(root, taken, newest, memory, resumed=True)
                candidates[position] = Candidate(number, newest, "", newest.key, newest, committed=True, measured=True)
            except (Damaged, SaveError) as error:
                if isinstance(error, SaveError) and error.errno not in (None, *DAMAGE):
                    raise  # the disk's fault, not the set's: once there is room, say, it can still be completed
                candidates[position] = candidate._replace(reason=str(error))
        return candidates


def give_up(root: Root, finished: int, *, resumed: bool) -> None:
    """Put the initial files back that a first `hide` had moved, when no set was ever committed by all ranks.

    Whatever else has their names by now goes to `discarded/`. `resumed`: a restore was killed before this one. On
    return there is `stage/` if one was, or if there was anything to do.
    """
    what = "cannot settle what the last run left"
    if not exists(root.disk, root.baseline):
        return  # nothing was moved since
    with reporting(root, what):
        numbers, failed = sets_after(root, finished), sets_after(root, finished, "failed")
        if not resumed and (numbers or failed):
            clear_discarded(root)
        if (numbers or failed or resumed) and not exists(root.disk, root.stage):
            # A restore is at work: after a kill, or a cut, the next one must not clear what this one sets aside.
            root.disk.mkdir(root.stage, root.mode)
            root.disk.sync_dir(root.path)
        rows: list[dict[str, Any]] = []
        with suppress(DamagedError):  # `check_baseline` tells it, when the files are back
            rows = read_baseline(root)["files"] if numbers or failed else []
        initial = {row["path"]: (row["size"], row["mtime_ns"]) for row in rows if not row.get("directory")}
        try:
            for number in numbers:
                back.revoke(root, number, what, initial=initial)
            for number in failed:
                back.put_back(root, number, what, "failed", initial=initial)
        except SaveError as error:
            raise RestoreError(str(error), error.errno) from error


def _provably_whole(root: Root, number: int, place: PageCache, *, first: bool) -> Taken:
    """Rule (3): what was taken, if this uncommitted set is whole beyond doubt; then all of it is in the set on return.
    Raises `Damaged` with the reason."""
    taken, by_checksums = prove(root, number, place)
    if not by_checksums:
        root.guard(item.path for item in taken.files)
        _refuse_open(root, taken)
        # Only here: what checksums show to be whole, after a power cut, must not be made anew from what W has by then.
        _move_rest(root, taken, first=first)
    return taken


def _refuse_open(root: Root, taken: Taken) -> None:
    """What is still in W, and would be in the set, under whoever has opened it since."""
    moving = {os.path.join(root.work, item.path): item.path for item in taken.files if item.kind == "move"}
    left = {full: path for full, path in moving.items() if not exists(root.disk, root.stored(taken.number, path))}
    files = [full for full in left if not os.path.isdir(full)]
    for full in root.disk.open_for_writing(files) if files else ():
        who = ", ".join(handles.holders(full)) or "somebody who cannot be seen"
        raise RefusedFileError(
            f"{left[full]} is open for writing ({who}), and is of {taken.label}, which is to be completed: open it "
            f"after restore, or close it before; no file was changed"
        )


def prove(root: Root, number: int, place: PageCache, *, read: bool = True) -> tuple[Taken, bool]:
    """Rule (3), and nothing is changed: what was taken, if this uncommitted set is whole beyond doubt, and whether its
    checksums say so (else some of it may be in W still). Raises `Damaged` with the reason.

    Without `read` the checksums are not tried: then a reason may be wrong, if there is a record without its name.
    """
    refuse_links(root, number)
    taken = read_taken(root, number)
    refuse_links(root, number, (item.path for item in taken.files))
    if read and _by_checksums(root, taken):
        return taken, True
    if why := place.unproven(PageCache(taken.host, taken.boot, taken.mount)):
        raise Damaged(why)
    for item in taken.files:
        _check_item(root, number, item)
    return taken, False


def _by_checksums(root: Root, taken: Taken) -> bool:
    """Whether the saver had got as far as the checksums, and they hold for what is there. Raises `Damaged` if they are
    not of what was taken: what is committed then is that."""
    number = taken.number
    try:
        record = read_record(root, number, ".new")
    except Damaged:
        return False
    sizes = {file.path: file.size for file in record.files}
    if any(sizes.get(item.path) != item.size for item in taken.files if not item.tree):
        raise Damaged("taken.json and record.json.new are of different files")
    try:
        refuse_links(root, number, (file.path for file in record.files))
        for file in record.files:
            if file.has_bytes:
                raw = file._replace(kept="raw", stored_size=file.size)
                read_out(root.disk, root.where(number, raw), raw)
            elif not exists(root.disk, root.stored(number, file.path)):
                return False
    except Damaged:
        return False
    return True


def _check_item(root: Root, number: int, item: Item) -> None:
    """Raises `Damaged` unless the item is, in the set or still in W, exactly as it was when `hide` looked at it."""
    for path in (root.stored(number, item.path), os.path.join(root.work, item.path)):
        # Of a directory's files neither its time nor its inode tells anything: half a snapshot cannot be completed.
        info = stat_or_none(root.disk, path)
        if info is None or (item.kind == "copy" and item.tree and path != root.stored(number, item.path)):
            continue
        same = (info.st_size, info.st_mtime_ns) == (item.size, item.mtime_ns)
        if item.kind == "append":
            whole = info.st_ino == item.inode and info.st_size >= item.size
        elif item.kind == "copy" and path == root.stored(number, item.path):
            whole = info.st_mtime_ns == item.mtime_ns  # set when the snapshot was complete
        else:
            # Moving a directory may change its time.
            whole = info.st_ino == item.inode and (same or (item.tree and item.kind == "move"))
        if whole:
            return
    raise Damaged(f"{item.path} is not as it was when the set was taken")


def _move_rest(root: Root, taken: Taken, *, first: bool) -> None:
    """Do what is left of a `take` whose process died; files that moved already are left."""
    top = root.set(taken.number)
    contents.make_parents(root.disk, root.stored(taken.number, "file"), top, root.mode_in)
    if first:  # as in take: the way to files that exist nowhere else, before they move
        parents = contents.ancestors({os.path.dirname(item.path) for item in taken.files if item.kind != "append"})
        ways = [root.stored(taken.number, name) for name in parents]
        for name, way in zip(parents, ways, strict=True):
            if not exists(root.disk, way):
                root.disk.mkdir(way, root.mode_of(name))
        for way in (*reversed(ways), root.stored(taken.number, ""), root.set(taken.number), root.path):
            root.disk.sync_dir(way)
    for item in taken.files:
        source, target = os.path.join(root.work, item.path), root.stored(taken.number, item.path)
        there = exists(root.disk, target)
        if item.kind == "move" and not there:
            contents.make_parents(root.disk, target, top, root.mode_in)
            root.disk.rename(source, target)
        elif item.kind == "copy" and (not there or root.disk.stat(target).st_mtime_ns != item.mtime_ns):
            if there:
                remove_tree(root.disk, target)
            contents.make_parents(root.disk, target, top, root.mode_in)
            copied: dict[str, os.stat_result] = {}
            take.snapshot(root, item, taken.number, copied)
            take.check_unchanged(root, copied)
