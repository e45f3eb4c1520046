"""Put a staged set into W, and what it does not have aside. Killed anywhere, the next restore repeats it. Rule (4)."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from stat import S_ISDIR

from safepoint import companions
from safepoint.disk.files import exists, listdir, make_ways, move, remove_tree, stat_or_none, sync
from safepoint.disk.rights import OURS, without_acl
from safepoint.manifest import Manifest
from safepoint.patterns import Match, above
from safepoint.record import Record, StoredFile
from safepoint.restoring.read import reporting
from safepoint.root import Root
from safepoint.saving import back, contents

Touched = tuple[str, os.stat_result, int | None]  # its path; to which length it is cut, None: it leaves its name
logger = logging.getLogger("safepoint")


def touched(root: Root, manifest: Manifest, record: Record) -> Iterator[Touched]:
    """What `swap` is going to take from its name in W, with all that is inside, and what it cuts."""
    its = {file.path: file for file in record.files}
    there = {path: match.info for path, match in _listed(root, manifest, record).items()}
    besides = [*movable(record), *(file for file in record.files if file.kind == "append")]  # listed no more
    for path in dict.fromkeys([*there, *(file.path for file in besides)]):
        info, file = there.get(path) or stat_or_none(root.disk, os.path.join(root.work, path)), its.get(path)
        if info and file and file.kind == "append" and not exists(root.disk, os.path.join(root.stage, path)):
            if info.st_size > file.size:
                yield path, info, file.size if info.st_nlink == 1 else None
        elif info:
            yield from _with_all_inside(root, path, info)
    for each in companions.beside(root, {*there, *(file.path for file in besides)}):
        if each.path not in its and (info := stat_or_none(root.disk, os.path.join(root.work, each.path))):
            yield from _with_all_inside(root, each.path, info)


def _with_all_inside(root: Root, path: str, info: os.stat_result) -> Iterator[Touched]:
    yield path, info, None
    for name in listdir(root.disk, os.path.join(root.work, path)) if S_ISDIR(info.st_mode) else ():
        inner = f"{path}/{name}"
        yield from _with_all_inside(root, inner, root.disk.stat(os.path.join(root.work, inner)))


def _listed(root: Root, manifest: Manifest, record: Record) -> dict[str, Match]:
    """What is in W that belongs to the set, or would have."""
    # What the user has listed since is no left-over of the lost iteration; and what this rank had then may now be
    # another's, if the saver has changed.
    then = manifest.owned_by(root.rank, root.ranks, record.saver).as_of(record.patterns)
    return then.find(root.work, root.disk.stat, root.rank, root.ranks, listdir=partial(listdir, root.disk))[0]


def swap(root: Root, manifest: Manifest, record: Record, *, resumed: bool) -> list[str]:
    """Put the staged files into W and set aside what the set does not have; the names of that.

    Killed anywhere, the next restore repeats it to the same end. `resumed`: a restore was killed before this one, and
    what it set aside must stay. `stage/` is the caller's to clear, when nothing is left to be done: until then
    it says that a restore is at work.
    """
    with reporting(root, f"{record.label} not restored completely"):
        theirs = {file.path for file in record.files}
        found = _listed(root, manifest, record)
        strays = [path for path in found if path not in theirs]
        # The life that committed this set may have died before it did this; from now on W is all there is beside it.
        root.disk.sync_dir(root.set(record.number))
        root.disk.sync_dir(root.path)
        if not resumed:
            clear_discarded(root)
        # Before a file has its name: killed in between, whoever opens it must not apply the journal of a later state.
        ours = [*movable(record), *(file for file in record.files if file.kind == "append")]
        later = _set_companions_aside(root, record, {*found, *(file.path for file in ours)})
        anew = [file.path for file in record.files if file.kind == "append" and _cut_back(root, record, file)]
        for file in movable(record):
            _place(root, record, file, found[file.path].info if file.path in found else None)
        for path in strays:
            if exists(root.disk, os.path.join(root.work, path)):  # else it went aside with its directory, or file
                back.set_aside(root, path)
        if exists(root.disk, root.lost):  # it spoke of what was in W before
            root.disk.remove(root.lost)
    return anew + later + strays


def _set_companions_aside(root: Root, record: Record, files: Collection[str]) -> list[str]:
    """What lies beside these files, belongs to them and is not of the set; its names."""
    theirs, aside = {file.path for file in record.files}, []
    for each in list(companions.beside(root, files)):
        if each.path not in theirs:
            with suppress(FileNotFoundError):  # another rank, with a file of the same database, was first
                back.set_aside(root, each.path)
            aside.append(each.path)
            if each.data:
                logger.warning("%s, and is of another state than %s: moved to %s", each, record.label,
                               root.shown(root.discarded))  # fmt: skip
    return aside


def _cut_back(root: Root, record: Record, file: StoredFile) -> bool:
    """Give an append file the length it had, or, if it was begun anew, put the copy that is staged in its place;
    whether another one was set aside for that."""
    target = os.path.join(root.work, file.path)
    if not exists(root.disk, os.path.join(root.stage, file.path)):
        if (info := root.disk.stat(target)).st_size > file.size:
            cut(root, file.path, file.size, info)
        return False
    # The bytes, and then the name, as the copy it came from may be in a newer set, which goes: else a power cut could
    # leave neither.
    root.disk.sync_files([os.path.join(root.stage, file.path)])
    if another := exists(root.disk, target):  # rows that may be nowhere else, of whoever has cut it
        back.set_aside(root, file.path)
    _place(root, record, file)
    sync(root.disk, (), contents.directories_up_to({os.path.dirname(target)}, {root.work}))
    return another


def cut(root: Root, path: str, length: int, info: os.stat_result) -> None:
    """Let a file of W have only its first bytes. One that has other names, by hard links, is left to these as it is,
    since they may be outside of W: what W gets is a copy, through `stage/`, which is there."""
    target, staged = os.path.join(root.work, path), os.path.join(root.stage, path)
    if info.st_nlink < 2:
        root.disk.truncate(target, length)
        return
    contents.make_parents(root.disk, staged, root.stage)
    if exists(root.disk, staged):  # of a process that died here
        root.disk.remove(staged)
    with root.disk.open(target) as source, root.disk.create(staged, OURS) as copy:
        root.disk.duplicate(source, copy, length)
    root.disk.set_mode_and_time(staged, without_acl(target, info.st_mode), info.st_mtime_ns, info.st_gid)
    # The bytes before the name: else a power cut leaves an empty file in W, which no set has a copy of.
    root.disk.sync_files([staged])
    if not root.disk.exchange(staged, target):
        root.disk.rename(staged, target)


def bring_in(root: Root, record: Record) -> None:
    """Put those files of a staged set into W that are not there; what is there stays as it is."""
    with reporting(root, f"{record.label} not brought back"):
        lacking = [file.path for file in movable(record) if not exists(root.disk, os.path.join(root.work, file.path))]
        _set_companions_aside(root, record, lacking)
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
        move(root.disk, source, target)


def clear_discarded(root: Root) -> None:
    if exists(root.disk, root.discarded):
        remove_tree(root.disk, root.discarded)
