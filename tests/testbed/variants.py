"""Deliberately broken variants of the library: each takes away one thing that a promise rests on. Whoever looks for
violations must find one in every variant, or a test proves nothing.

`apply(name)` breaks the running process; the cases of many ranks do it when `SAFEPOINT_VARIANT` is set.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from safepoint import opening, ranks, record, sealed
from safepoint.disk import Disk, PageCache
from safepoint.disk.files import remove_tree, write
from safepoint.restoring import choose, read, survey, swap
from safepoint.saving import back, background, commit, contents, take
from safepoint.session import Verbs
from testbed.faultdisk import FaultDisk, on

Set = Callable[[Any, str, Any], None]  # as setattr
VARIANTS: dict[str, Callable[[Set], None]] = {}


def variant(change: Callable[[Set], None]) -> Callable[[Set], None]:
    VARIANTS[change.__name__.replace("_", " ")] = change
    return change


def apply(name: str, put: Set = setattr) -> None:
    VARIANTS[name](put)


def everywhere(put: Set, function: Any, instead: Any) -> None:
    """In all modules that know this function by its name."""
    places = [module for name, module in sorted(sys.modules.items()) if name.startswith("safepoint.")]
    places = [module for module in places if getattr(module, function.__name__, None) is function]
    assert places
    for module in places:
        put(module, function.__name__, instead)


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
    for disk in (Disk, FaultDisk):

        def without(self: Disk, paths: Any, opened: Any = (), sync_files: Any = disk.sync_files) -> None:
            sync_files(self, [path for path in paths if not path.endswith(name)], opened)

        put(disk, "sync_files", without)


@variant
def old_set_dropped_before_the_last_fsync_of_the_commit(put: Set) -> None:
    before = commit.commit

    def early(root: Any, number: int) -> None:
        root.disk.rename(root.record(number) + ".new", root.record(number))
        for old in root.numbers("set"):
            if old < number:
                remove_tree(root.disk, root.set(old))
        root.disk.rename(root.record(number), root.record(number) + ".new")
        before(root, number)

    everywhere(put, before, early)


@variant
def record_not_checked(put: Set) -> None:
    def trusting(data: bytes) -> Any:
        return json.loads(data.partition(b"\n")[2][:-2])

    everywhere(put, sealed.unseal, trusting)


@variant
def restore_by_rename_instead_of_copy(put: Set) -> None:
    before = read.read_out

    def moves(disk: Any, path: str, file: Any, target: str = "", tick: Any = None, **_: Any) -> None:
        before(disk, path, file, "", tick)
        if target and file.kept == "raw":
            disk.rename(path, target)
        elif target:
            before(disk, path, file, target)

    everywhere(put, before, moves)


@variant
def swap_before_all_ranks_have_staged(put: Set) -> None:
    before = choose.staged

    def hasty(memory: Any, progress: Any, parts: Any) -> dict[int, str]:
        damage = before(memory, progress, parts)
        for root, part in () if damage else parts:
            for file in swap.movable(part.record):
                swap._place(root, file)
        return damage or before(memory, progress, parts)

    everywhere(put, before, hasty)


@variant
def checksum_skipped(put: Set) -> None:
    everywhere(put, read._compare, lambda file, size, checksum: None)


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
    before = take.take

    class Reordered:
        """Writes the list only when something was renamed."""

        def __init__(self, disk: Any) -> None:
            self.disk, self.held = disk, None

        @contextlib.contextmanager
        def create(self, path: str, *mode: int) -> Any:
            if not path.endswith("taken.json"):
                with self.disk.create(path, *mode) as file:
                    yield file
                return
            held = io.BytesIO()
            held.name = path  # type: ignore[attr-defined]
            yield held
            self.held = path, held.getvalue()

        def rename(self, source: str, target: str) -> None:
            self.disk.rename(source, target)
            if self.held:
                (path, data), self.held = self.held, None
                write(self.disk, path, data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.disk, name)

    def late(root: Any, *arguments: Any, **options: Any) -> Any:
        return before(on(root, Reordered(root.disk)), *arguments, **options)

    everywhere(put, before, late)


@variant
def boot_and_mount_ignored(put: Set) -> None:
    put(FaultDisk, "page_cache", lambda self, path: PageCache("host", "boot", "mount"))


@variant
def first_directories_not_flushed(put: Set) -> None:
    """Before the files of a first set move into them: those exist nowhere else."""
    before = take.take

    def hasty(*arguments: Any) -> Any:
        others, previous, rest = arguments[:7], arguments[7], arguments[8:]
        return before(*others, previous or record.Record(0, None, 0.0, 0.0, "", "", 0, 1, 0, (), ()), *rest)

    everywhere(put, before, hasty)


@variant
def restore_deletes_what_the_set_does_not_have(put: Set) -> None:
    everywhere(put, back.set_aside, lambda root, path, *_: remove_tree(root.disk, os.path.join(root.work, path)))


@variant
def a_changed_file_is_stored_all_the_same(put: Set) -> None:
    everywhere(put, contents.rights_unchanged, lambda disk, content, info, size: (info.st_mode, info.st_gid))


@variant
def files_go_back_before_their_set_is_failed_for_good(put: Set) -> None:
    before = back.put_back

    class Hasty:
        """Does not flush the directory of the sets, until the files are back."""

        def __init__(self, root: Any) -> None:
            self.disk, self.root, self.moved = root.disk, root, False

        def sync_dir(self, path: str) -> None:
            if self.moved or path != self.root.path:
                self.disk.sync_dir(path)

        def rename(self, source: str, target: str) -> None:
            self.moved = True
            self.disk.rename(source, target)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.disk, name)

    everywhere(put, before, lambda root, *rest, **how: before(on(root, Hasty(root)), *rest, **how))


# A set that waits for the saver.


@variant
def the_waiting_set_given_up_before_all_have_taken_the_newer(put: Set) -> None:
    before = Verbs._get_ready

    def hasty(self: Any, *arguments: Any) -> Any:
        ready = before(self, *arguments)
        if ready.taken and ready.busy and (held := self._work.hold()):
            self._give_up(held[1])
        return ready

    put(Verbs, "_get_ready", hasty)


@variant
def each_rank_decides_by_its_own_saver_what_is_stored(put: Set) -> None:
    before = Verbs._agree_to_hide

    def alone(self: Any, number: int, ready: Any) -> Any:
        go, wait, _ = before(self, number, ready)
        return go, wait, ready.busy

    put(Verbs, "_agree_to_hide", alone)


@variant
def the_waiting_set_forgotten_by_wait_and_at_the_end(put: Set) -> None:
    put(background.Background, "drain", background.Background.wait)


@variant
def the_set_in_flight_given_up_instead_of_the_one_that_waits(put: Set) -> None:
    before = background.Background.hand_over

    def wrong(self: Any, job: Any, taken: Any, *, busy: bool) -> Any:
        flight = getattr(self, "in_flight", None)
        older = before(self, job, taken, busy=busy)
        if not self.waiting:
            self.in_flight = taken
        return flight if older else None

    put(background.Background, "hand_over", wrong)


@variant
def a_gap_in_the_numbers_taken_for_damage(put: Set) -> None:
    before = survey.survey

    def strict(root: Any, *arguments: Any, **options: Any) -> Any:
        found = before(root, *arguments, **options)
        numbers = {c.number for c in found}
        return [
            c._replace(record=None, reason="the set before it is missing", committed=True)
            if c.record and c.number - 1 not in numbers and numbers & set(range(1, c.number))
            else c
            for c in found
        ]

    everywhere(put, before, strict)
