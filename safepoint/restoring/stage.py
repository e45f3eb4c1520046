"""Bring a set out of its safe, through its checksums, beside W or elsewhere. Rules (1) and (2): W is not touched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from stat import S_ISDIR, S_ISREG

from safepoint.disk import Disk, codec
from safepoint.disk.files import exists, freed_later, listdir, make_directory, remove_tree, room, stat_or_none
from safepoint.errors import RestoreError, SaveError
from safepoint.manifest import Manifest
from safepoint.patterns import above
from safepoint.record import Item, Record, StoredFile
from safepoint.restoring.grown import bring_prefix, read_wherever
from safepoint.restoring.read import Damaged, read_out, reporting
from safepoint.root import PRIVATE, Root
from safepoint.saving import contents, take
from safepoint.saving.memory import Away, Memory

LARGE = 16 << 20  # bytes: to give the blocks of such a file back is not waited for
SPARE = 2  # times the size of a set must be free, or its files are given back as reflinks where that can be

BY_HAND = (
    "To go on bring back what is missing (of a file that only grows its first bytes, which may have got another name), "
    "or take the other files of a set by hand: docs/format.md. If the program can go on from the files in place, move "
    ".safepoint.d aside: then they are taken for those of a first start"
)

Progress = Callable[[int, int], object]  # called with the bytes read so far, and those of the whole set


def stage(root: Root, record: Record, memory: Memory, progress: Progress | None = None) -> None:
    """Copy a set out of its safe into `stage/`, through its checksums; W is not touched.

    Raises `Damaged` if a byte of it is not what was committed. `memory` learns what the append files begin with.
    """
    tick = _counted(record, progress)
    memory.committed_prefixes.clear()

    def bring(file: StoredFile) -> None:
        if file.kind == "append":
            memory.committed_prefixes[file.path] = bring_prefix(root, record.number, file, tick, share=share)
            return
        target = os.path.join(root.stage, file.path)
        read_out(root.disk, root.where(record.number, file), file, target, tick, share=share)
        root.disk.set_mode_and_time(target, file.mode, file.mtime_ns, file.group)

    with reporting(root, f"{record.label} not restored"), ExitStack() as on_error:
        root.guard(file.path for file in record.files)
        on_error.callback(make_stage(root))
        share = room(root.stage) < sum(file.size for file in record.files) * SPARE
        _fill(root.disk, root.stage, [file for file in record.files if file.kind != "append"], {})
        root.disk.helpers.each(bring, [file for file in record.files if file.has_bytes])
        _dress_directories(root.disk, root.stage, record.files)
        on_error.pop_all()


def make_stage(root: Root) -> Callable[[], object]:
    """Make `stage/` and leave it empty; what undoes that. One that was there says that a restore was killed, so it is
    never removed before the next one has ended: that would take itself for the first and empty `discarded/`."""
    try:
        root.disk.mkdir(root.stage, root.mode)
    except FileExistsError:
        if S_ISDIR(root.disk.stat(root.stage).st_mode):
            _empty_stage(root)
            return partial(_empty_stage, root)
        clear_stage(root)
        root.disk.mkdir(root.stage, root.mode)
    return partial(clear_stage, root)


def _empty_stage(root: Root) -> None:
    for name in listdir(root.disk, root.stage):
        remove_tree(root.disk, os.path.join(root.stage, name))


def _fill(disk: Disk, top: str, files: Sequence[StoredFile], parents: Mapping[str, Sequence[int]]) -> None:
    """Make the directories and links that these files of a set need below `top`; what is there already may stay.
    `parents`: what those were like that are not in the set; of all others nobody else sees anything yet."""
    trees = {file.path for file in files if file.kind in ("tree", "dir")}
    for path in contents.ancestors({*map(os.path.dirname, (file.path for file in files)), *trees} - {""}):
        with suppress(FileExistsError):  # of another rank
            make_directory(disk, os.path.join(top, path), *parents.get(path, (PRIVATE, -1)))
    for file in files:
        if file.kind == "link":
            disk.link(file.target, os.path.join(top, file.path))


def _dress_directories(disk: Disk, top: str, files: Sequence[StoredFile]) -> None:
    """Last, as filling a directory changes its time, and it may be read-only."""
    for file in reversed(files):
        if file.kind in ("tree", "dir"):
            disk.set_mode_and_time(os.path.join(top, file.path), file.mode, file.mtime_ns, file.group)


def extract(
    root: Root, record: Record, top: str, progress: codec.Tick | None = None,
    only: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Copy a set, or `only` these files of it, to the directory `top`, which must not have them, through its checksums.

    Append files with the beginning that belongs to the set. Neither the set nor W is changed. Raises `Damaged` if a
    byte is not what was committed; then, and after any error, `top` has a part of it.
    """
    files = [file for file in record.files if only is None or file.path in only]

    def bring(file: StoredFile) -> None:
        target = os.path.join(top, file.path)
        read_wherever(root, record.number, file, target, progress)
        root.disk.set_mode_and_time(target, file.mode, file.mtime_ns, file.group)

    holds = "the set and the files in place are as they were"
    with root.reporting(RestoreError, f"{record.label} not extracted", holds):
        root.guard(file.path for file in files if file.kind == "append")
        # The records of several ranks, each right by itself, may lead out of `top` together, by links.
        for way in {file.path if file.kind in ("tree", "dir") else os.path.dirname(file.path) for file in files}:
            if not f"{os.path.realpath(os.path.join(top, way))}/".startswith(f"{os.path.realpath(top)}/"):
                raise Damaged(f"{way} would be written outside, through a symbolic link")
        _fill(root.disk, top, files, record.parents or {})
        root.disk.helpers.each(bring, [file for file in files if file.has_bytes])
        _dress_directories(root.disk, top, files)


def away(root: Root, manifest: Manifest, record: Record | None) -> Away:
    """Of a set whose files are not in W what the program need not write again."""
    items, trees = [], {file.path for file in record.files if file.kind == "tree"} if record else set()
    for file in record.files if record else ():
        if file.kind not in ("file", "tree") or not trees.isdisjoint(above(file.path)):
            continue
        entry, tree = manifest.decides(file.path, root.rank, root.ranks), file.kind == "tree"
        if entry and entry.optional and entry.kind == "move" and entry.tree == tree:
            without = manifest.without(root.rank, root.ranks) if tree else ()
            items.append(Item(file.path, "copy", file.size, file.mtime_ns, 0, tree, entry.compress, without))
    return Away(record.number if record else 0, tuple(items))


def forget_failed(root: Root, manifest: Manifest, memory: Memory, committed: Record | None) -> None:
    """A set that could not be stored has its files for the next one still; but if a failed fsync may have lost some of
    them, those of the last set that was stored count."""
    number = memory.away.number
    if number in memory.spoilt or not exists(root.disk, root.set(number)):
        memory.away = away(root, manifest, committed)


def of_entry(record: Record, item: Item) -> list[StoredFile]:
    """What a set has of one thing that was taken."""
    return [file for file in record.files if file.path == item.path or item.path in above(file.path)]


def carry(root: Root, number: int, away: Away, committed: Callable[[], Record | None], item: Item) -> None:
    """Give set `number` what the set before it has of a file that the program has not written since. `committed`: what
    the saver thread has committed last. Killed inside: as `take`."""
    top, before = root.stored(number, item.path), away.number

    def record() -> Record | None:
        newest = committed()
        return newest if newest and newest.number == before else None

    if record() is None:  # its files are as they were taken
        with suppress(FileNotFoundError):
            take.snapshot(root, item, number, {}, root.stored(before, ""))
            if record() is None:
                return
        # It was committed meanwhile: what is packed, too, may have gone before all of it was there.
        if exists(root.disk, top):
            remove_tree(root.disk, top)
    whole = record()
    files = of_entry(whole, item) if whole else []
    if whole and any(file.kept != "raw" for file in files):
        try:
            extract(root, whole, root.stored(number, ""), only={file.path for file in files})
        except Damaged as error:
            raise SaveError(f"{whole.label}, which alone has {item.path}, is damaged: {error}") from error
    else:
        take.snapshot(root, item, number, {}, root.stored(before, ""))


def _counted(record: Record, progress: Progress | None) -> codec.Tick | None:
    """What the readers of a set, several at once, call with the bytes that they have read."""
    if progress is None:
        return None
    total, done, lock = sum(file.size for file in record.files), 0, threading.Lock()

    def tick(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            progress(done, total)

    with lock:
        progress(0, total)
    return tick


def clear_stage(root: Root, record: Record | None = None) -> None:
    """`record`: what was swapped in, so that `stage/` has the files that it replaced. The blocks of large ones are
    given back in the background."""
    large: list[str] = []
    with suppress(OSError):  # then all is waited for
        large = _large_replaced(root, record) if record else []
    for paths in [large, []] if large else [[]]:  # where an open file leaves a name behind: again with none open
        # On a full disk the copy is the first thing to go; the error is already on its way.
        with suppress(OSError), freed_later(root.disk, paths):
            remove_tree(root.disk, root.stage)


def _large_replaced(root: Root, record: Record) -> list[str]:
    """None on a network file system, where a name would stay; nor where the program needs the room at once."""
    paths = [os.path.join(root.stage, file.path) for file in record.files if file.kind == "file" and file.size >= LARGE]
    if not paths or root.disk.page_cache(root.path).mount is None:
        return []
    there = {path: info for path in paths if (info := stat_or_none(root.disk, path)) and S_ISREG(info.st_mode)}
    full = room(root.path) < SPARE * sum(info.st_size for info in there.values())
    return [] if full else list(there)
