"""Put a staged set into W, and what it does not have aside. Killed anywhere, the next restore repeats it. Rule (4)."""

from __future__ import annotations

import os
from functools import partial
from stat import S_ISDIR

from safepoint.disk.files import exists, listdir, make_ways, remove_tree, stat_or_none, sync
from safepoint.manifest import Manifest
from safepoint.patterns import above
from safepoint.record import Record, StoredFile
from safepoint.restoring.read import reporting
from safepoint.root import Root
from safepoint.saving import back, contents


def swap(root: Root, manifest: Manifest, record: Record, *, resumed: bool) -> list[str]:
    """Put the staged files into W and set aside what the set does not have; the names of that.

    Killed anywhere, the next restore repeats it to the same end. `resumed`: a restore was killed before this one, and
    what it set aside must stay. `stage/` is the caller's to clear, when nothing is left to be done: until then
    it says that a restore is at work.
    """
    with reporting(root, f"{record.label} not restored completely"):
        theirs = {file.path for file in record.files}
        # What the user has listed since is no left-over of the lost iteration; and what this rank had then may now be
        # another's, if the saver has changed.
        then = manifest.owned_by(root.rank, root.ranks, record.saver).as_of(record.patterns)
        found, _ = then.find(root.work, root.disk.stat, root.rank, root.ranks, listdir=partial(listdir, root.disk))
        strays = [path for path in found if path not in theirs]
        # The life that committed this set may have died before it did this; from now on W is all there is beside it.
        root.disk.sync_dir(root.set(record.number))
        root.disk.sync_dir(root.path)
        if not resumed:
            clear_discarded(root)
        anew = [file.path for file in record.files if file.kind == "append" and _cut_back(root, record, file)]
        for file in movable(record):
            _place(root, record, file, found[file.path].info if file.path in found else None)
        for path in strays:
            if exists(root.disk, os.path.join(root.work, path)):  # else it went aside with its directory
                back.set_aside(root, path)
        if exists(root.disk, root.lost):  # it spoke of what was in W before
            root.disk.remove(root.lost)
    return anew + strays


def _cut_back(root: Root, record: Record, file: StoredFile) -> bool:
    """Give an append file the length it had, or, if it was begun anew, put the copy that is staged in its place;
    whether another one was set aside for that."""
    target = os.path.join(root.work, file.path)
    if not exists(root.disk, os.path.join(root.stage, file.path)):
        if root.disk.stat(target).st_size > file.size:
            root.disk.truncate(target, file.size)
        return False
    # The bytes, and then the name, as the copy it came from may be in a newer set, which goes: else a power cut could
    # leave neither.
    root.disk.sync_files([os.path.join(root.stage, file.path)])
    if another := exists(root.disk, target):  # rows that may be nowhere else, of whoever has cut it
        back.set_aside(root, file.path)
    _place(root, record, file)
    sync(root.disk, (), contents.directories_up_to({os.path.dirname(target)}, {root.work}))
    return another


def bring_in(root: Root, record: Record) -> None:
    """Put those files of a staged set into W that are not there; what is there stays as it is."""
    with reporting(root, f"{record.label} not brought back"):
        for file in movable(record):
            if not exists(root.disk, os.path.join(root.work, file.path)):
                _place(root, record, file)
        remove_tree(root.disk, root.stage)


def movable(record: Record) -> list[StoredFile]:
    """What moves into W by one rename each: files, and directories that were taken as a whole."""
    trees = {file.path for file in record.files if file.kind == "tree"}
    return [file for file in record.files if file.kind in ("file", "tree") and trees.isdisjoint(above(file.path))]


def _place(root: Root, record: Record, file: StoredFile, seen: os.stat_result | None = None) -> None:
    """`seen`: what was under its name in W, if that was looked at just now."""
    source, target = os.path.join(root.stage, file.path), os.path.join(root.work, file.path)
    make_ways(root.disk, [os.path.dirname(file.path)], root.work, record.parents or {})
    there = seen or stat_or_none(root.disk, target)
    if there and (file.kind == "tree" or S_ISDIR(there.st_mode)):
        back.set_aside(root, file.path)  # a directory cannot be replaced by a rename
        there = None
    # One rename a file: killed between two, W is mixed, and the next restore, which must come first, repeats all. Where
    # that can be, the old file goes to `stage/`: a rename that replaces one makes ext4 write out the new one at once.
    if not (there and root.disk.exchange(source, target)):
        root.disk.rename(source, target)


def clear_discarded(root: Root) -> None:
    if exists(root.disk, root.discarded):
        remove_tree(root.disk, root.discarded)
