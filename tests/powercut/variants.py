"""Deliberately broken variants of the library: each takes away one thing that a promise rests on. Whoever looks for
violations must find one in every variant, or a test proves nothing.

`apply(name)` breaks the running process; the cases of many ranks do it when `SAFEPOINT_VARIANT` is set.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from faultdisk import FaultDisk

from safepoint import choose, opening, ranks, record, save, store
from safepoint.disk import Disk, Place

restore: Any = sys.modules["safepoint.restore"]  # the package has a function of that name

Set = Callable[[Any, str, Any], None]  # as setattr
VARIANTS: dict[str, Callable[[Set], None]] = {}


def variant(change: Callable[[Set], None]) -> Callable[[Set], None]:
    VARIANTS[change.__name__.replace("_", " ")] = change
    return change


def apply(name: str, put: Set = setattr) -> None:
    VARIANTS[name](put)


@variant
def no_fsync_of_files(put: Set) -> None:
    for disk in (Disk, FaultDisk):
        put(disk, "sync_files", lambda self, paths, opened=(): None)


@variant
def no_fsync_of_directories(put: Set) -> None:
    for disk in (Disk, FaultDisk):
        put(disk, "sync_dir", lambda self, path: None)


@variant
def no_fsync_of_the_record(put: Set) -> None:
    """Its name comes after it; here the flush of a batch leaves it out."""
    _flushed_without(put, "record.json.new")


@variant
def no_fsync_of_the_bundle(put: Set) -> None:
    _flushed_without(put, "bundle.tar")


def _flushed_without(put: Set, name: str) -> None:
    sync = Disk.sync

    def without(self: Disk, files: Any, directories: Any = (), opened: Any = ()) -> None:
        sync(self, [path for path in files if not path.endswith(name)], directories, opened)

    put(Disk, "sync", without)


@variant
def old_set_dropped_before_the_last_fsync_of_the_commit(put: Set) -> None:
    commit = save.commit

    def early(disk: Any, root: Any, number: int) -> None:
        disk.rename(root.record(number) + ".new", root.record(number))
        for old in root.numbers(disk, "set"):
            if old < number:
                disk.remove_tree(root.set(old))
        disk.rename(root.record(number), root.record(number) + ".new")
        commit(disk, root, number)

    put(save, "commit", early)


@variant
def record_not_checked(put: Set) -> None:
    def trusting(data: bytes) -> Any:
        import json

        return json.loads(data.partition(b"\n")[2][:-2])

    put(record, "unseal", trusting)


@variant
def restore_by_rename_instead_of_copy(put: Set) -> None:
    read_out = restore._read_out

    def moves(disk: Any, path: str, file: Any, target: str = "", tick: Any = None, **_: Any) -> None:
        read_out(disk, path, file, "", tick)
        if target and file.kept == "raw":
            disk.rename(path, target)
        elif target:
            read_out(disk, path, file, target)

    put(restore, "_read_out", moves)


@variant
def swap_before_all_ranks_have_staged(put: Set) -> None:
    stage = choose._stage

    def hasty(disk: Any, root: Any, record: Any, how: Any, progress: Any) -> str:
        damage = stage(disk, root, record, how, progress)
        if record and not damage:
            for file in restore._movable(record):
                restore._place(disk, root, file)
            stage(disk, root, record, how, progress)
        return damage

    put(choose, "_stage", hasty)


@variant
def checksum_skipped(put: Set) -> None:
    put(restore, "_compare", lambda file, size, checksum: None)


@variant
def greatest_number_of_any_rank_instead_of_the_newest_common(put: Set) -> None:
    def greatest(self: Any, offers: Any) -> int | None:
        (newest,) = self.least(-max(offers or [0]))
        return -newest or None

    put(ranks.Ranks, "newest_common", greatest)


@variant
def a_failed_fsync_swallowed(put: Set) -> None:
    sync = FaultDisk.sync_files

    def deaf(self: FaultDisk, paths: Any, opened: Any = ()) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                sync(self, [path], opened)

    put(FaultDisk, "sync_files", deaf)


@variant
def no_lock(put: Set) -> None:
    put(opening.Opening, "_lock", _make_directories)


def _make_directories(self: Any, on_error: Any, rooted: int) -> None:
    for directory in (self.root.side, self.root.path):
        os.makedirs(directory, exist_ok=True)


@variant
def taken_json_after_the_first_rename(put: Set) -> None:
    take = save.take

    class Reordered:
        """Holds the first append back until something was renamed."""

        def __init__(self, disk: Any) -> None:
            self.disk, self.held = disk, None

        def append(self, path: str, data: bytes) -> None:
            self.disk.stat(path)
            self.held = path, data

        def rename(self, source: str, target: str) -> None:
            self.disk.rename(source, target)
            if self.held:
                held, self.held = self.held, None
                self.disk.append(*held)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.disk, name)

    def late(disk: Any, *arguments: Any, **options: Any) -> Any:
        return take(Reordered(disk), *arguments, **options)

    put(save, "take", late)


@variant
def boot_and_mount_ignored(put: Set) -> None:
    put(FaultDisk, "place", lambda self, path: Place("host", "boot", "mount"))


@variant
def first_directories_not_flushed(put: Set) -> None:
    """Before the files of a first set move into them: those exist nowhere else."""
    take = save.take

    def hasty(*arguments: Any) -> Any:
        *others, previous = arguments
        return take(*others, previous or record.Record(0, None, 0.0, 0.0, "", "", 0, 1, 0, (), ()))

    put(save, "take", hasty)


@variant
def restore_deletes_what_the_set_does_not_have(put: Set) -> None:
    put(save, "set_aside", lambda disk, root, path, *_: disk.remove_tree(os.path.join(root.work, path)))


@variant
def a_changed_file_is_stored_all_the_same(put: Set) -> None:
    put(store, "_unchanged", lambda disk, content, info, size: info.st_mode)


@variant
def files_go_back_before_their_set_is_failed_for_good(put: Set) -> None:
    put_back = save.put_back

    class Hasty:
        """Does not flush the directory of the sets, until the files are back."""

        def __init__(self, disk: Any, root: Any) -> None:
            self.disk, self.root, self.moved = disk, root, False

        def sync_dir(self, path: str) -> None:
            if self.moved or path != self.root.path:
                self.disk.sync_dir(path)

        def rename(self, source: str, target: str) -> None:
            self.moved = True
            self.disk.rename(source, target)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.disk, name)

    put(save, "put_back", lambda disk, root, *rest, **how: put_back(Hasty(disk, root), root, *rest, **how))
