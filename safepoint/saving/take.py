"""Take a set: its list is written, then its files move below the root. Rule (4) of `saving`.

`take` moves or snapshots; on an error everything goes back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import Any

from safepoint import companions
from safepoint.disk import PageCache
from safepoint.disk.files import listdir, remove_tree, write
from safepoint.disk.rights import OURS, without_acl
from safepoint.errors import RefusedFileError, SaveError
from safepoint.manifest import Manifest
from safepoint.patterns import excluded
from safepoint.record import Item, Life, Record, Taken, dump, label
from safepoint.root import PRIVATE, Root, is_ours
from safepoint.saving.back import cause_of, intact, put_back, save_error
from safepoint.saving.contents import ancestors, not_a_file_error
from safepoint.saving.movable import link_inside, other_mount_error
from safepoint.saving.prune import Sets


def take(
    root: Root, manifest: Manifest, items: Sequence[Item], number: int, step: int | None, place: PageCache,
    life: Life, previous: Record | None, sets: Sets, extra: dict[str, Any] | None = None,
    carry: Callable[[Item], None] | None = None,
) -> Taken:  # fmt: skip
    """Move or snapshot `items` into set `number`; `carry` brings what the set before has, and W has not. On error
    everything is where it was. Killed inside: see (4)."""
    holds = f"{intact(previous)}; the files are where they were"
    whose = root.rank, root.ranks, root.saver
    when = round(time.time(), 6)
    taken = Taken(number, step, when, *place, *whose, manifest.patterns, tuple(items), *life, extra)
    with root.reporting(SaveError, f"{label(number, step)} not taken", holds):
        _begin(root, number, dump(taken), sets)
    try:
        parents = ancestors({os.path.dirname(item.path) for item in items if item.kind != "append"})
        directories = [os.path.join(root.set(number), "files", name) for name in parents]
        for name, directory in zip(parents, directories, strict=True):
            root.disk.mkdir(directory, root.mode_of(name))
        if previous is None:
            # The new directories before the files move into them: a file system that writes its directories in any
            # order could otherwise forget the way to files that exist nowhere else.
            for directory in (*reversed(directories), root.stored(number, ""), root.set(number), root.path):
                root.disk.sync_dir(directory)
        copied: dict[str, os.stat_result] = {}
        for item in items:
            if item.carried and carry:
                carry(item)
            elif item.kind == "copy":  # first, as copying is what may fail
                snapshot(root, item, number, copied)
        check_unchanged(root, copied)
        for item in items:
            if item.kind == "move":
                # Into a directory made for it, so that it replaces nothing: replacing makes ext4 write the file now.
                root.disk.rename(os.path.join(root.work, item.path), root.stored(number, item.path))
    except BaseException as error:  # a KeyboardInterrupt too must not leave half of the files away
        what = f"{label(number, step)} not taken ({cause_of(root, error)}); {intact(previous)}"
        back = put_back(root, number, what)
        if isinstance(error, OSError):
            if error.errno == errno.EXDEV:
                path = root.shown(error.filename)
                raise other_mount_error(path, os.path.join(root.work, path), root.work) from error
            raise save_error(root, number, step, error, f"{holds}{back}") from error
        raise
    return taken


def _begin(root: Root, number: int, listed: bytes, sets: Sets) -> None:
    """Make the directory of a set, and in it the list of what is to belong to it, before the first file moves: else it
    could not say that. On error nothing of it is left, if that can be removed; else the next try goes on with it."""
    top, path = root.set(number), root.taken(number)
    if not sets.begin(root, number):
        _make(root, number)
    try:
        write(root.disk, path, listed)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to see
            remove_tree(root.disk, top)
        raise


def _make(root: Root, number: int) -> None:
    """Its directories, new or empty."""
    top, kept, path = root.set(number), root.stored(number, ""), root.taken(number)
    try:
        root.disk.mkdir(top, root.mode)
    except FileExistsError:  # of a process that died here, or that could not remove it
        is_ours(root.disk, top, kept)
        names = set(listdir(root.disk, top))
        begun = "taken.json" in names and root.disk.stat(path).st_size
        if begun or names - {"files", "taken.json"} or ("files" in names and listdir(root.disk, kept)):
            raise
        if "taken.json" in names:
            root.disk.remove(path)
    try:
        root.disk.mkdir(kept, root.mode)
    except FileExistsError:
        pass
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to see
            remove_tree(root.disk, top)
        raise


def snapshot(root: Root, item: Item, number: int, copied: dict[str, os.stat_result], before: str = "") -> None:
    """Copy a file or a directory into a set. Its modification time is set last and so marks the snapshot as complete.

    `copied` is told what each file and directory looked like, for `check_unchanged`. `before`: the files of the set
    that has it, as W has not; then the two have the same files, as far as there are hard links: nobody writes to them.
    """
    top = os.path.join(before or root.work, item.path)

    def visit(source: str, target: str) -> None:
        info = root.disk.stat(source)
        if item.tree and stat.S_ISLNK(info.st_mode):
            root.disk.link(link_inside(root, root.shown(source), source, top), target)
            return
        if item.tree and stat.S_ISDIR(info.st_mode):
            root.disk.mkdir(target, PRIVATE)
            for name in listdir(root.disk, source):
                if excluded(item.without, inner := f"{root.shown(source)}/{name}"):
                    companions.refuse_left_out(root.disk, inner, os.path.join(source, name))
                else:
                    visit(os.path.join(source, name), os.path.join(target, name))
        elif not stat.S_ISREG(info.st_mode):
            raise not_a_file_error(root.shown(source), info.st_mode)
        elif before and root.disk.hard_link(source, target):
            return  # it has its time already
        else:
            with root.disk.open(source) as reader, root.disk.create(target, OURS) as writer:
                root.disk.duplicate(reader, writer)
        copied[source] = info
        # A snapshot too is read by nobody who may not read the file.
        mode = without_acl(source, info.st_mode)
        root.disk.set_mode_and_time(target, mode, info.st_mtime_ns, info.st_gid)

    visit(top, root.stored(number, item.path))
    seen = copied.get(top)
    if seen and not before and (seen.st_size, seen.st_mtime_ns) != (item.size, item.mtime_ns):
        raise _changed_error(item.path)


def check_unchanged(root: Root, copied: dict[str, os.stat_result]) -> None:
    """When all snapshots are made: raise if they are not as of one moment."""
    for source, info in copied.items():
        now = root.disk.stat(source)
        if (now.st_size, now.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
            raise _changed_error(root.shown(source))


def _changed_error(path: str) -> RefusedFileError:
    return RefusedFileError(f"{path} changed while it was copied: another process or thread writes to it")
