"""Keep one set of files: take, store, commit, prune.

A set is *committed* when its record exists under its final name. `docs/protocol.md` has the gap after every step.

(1) Everything that a record vouches for is durable before the record has its name: else a power cut could leave a
    record without its files, and a crash would look like damage.
(2) A set is pruned only after a newer one is durable, on every rank: else ranks killed at different moments may have
    no step in common, or a power cut leaves neither.
(3) A failed fsync ends its set: the kernel may have dropped the pages and marked them clean, so a second fsync would
    succeed over nothing. The set is renamed to a name that nobody restores.
(4) What `take` moved stays whole and findable at every moment: `taken.json` is there before the first file moves, and
    the directories of a first set, which has no set behind it, are durable before.

No function here knows of other ranks, holds state, or starts a thread. Errors of the system leave as `SaveError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from safepoint import codec
from safepoint.disk import NO_ROOM, Disk, Place, SyncFailed
from safepoint.errors import MissingFilesError, RefusedFileError, SafepointError, SaveError
from safepoint.manifest import Entry, Manifest
from safepoint.record import Item, Record, Root, StoredFile, Taken, dump, label, seal, write_durably


class Found(NamedTuple):
    """What the manifest's entries of this rank mean at one moment."""

    items: tuple[Item, ...] = ()
    opened: tuple[str, ...] = ()  # snapshotted only because they are still open for writing
    present: bool = False  # the program has written something that makes a set
    missing: str = ""  # it has not, and these are not optional


def find(disk: Disk, root: Root, manifest: Manifest) -> Found:
    """What there is to save. None of the files: no items. Files that stay in place (append, copy) do not count beside
    files that are moved, since they are always there. Raises `MissingFilesError` if only some exist,
    `RefusedFileError` for what cannot be saved.
    """
    items, opened = [], []
    with root.reporting(SaveError, "cannot look at the listed files", "nothing was moved"):
        found, missing = manifest.find(root.work, disk.stat, root.rank, root.ranks, listdir=disk.listdir)
        required = [entry for entry in manifest.entries if not entry.optional]
        written = any(match.entry.kind == "move" for match in found.values())
        names = ", ".join(f"{entry.filled(root.rank, root.ranks)} (line {entry.line})" for entry in missing)
        if not found or (not written and any(entry.kind == "move" for entry in required)):
            return Found(missing=names)
        if missing:
            raise MissingFilesError(f"missing: {names}, though {next(iter(found))} exists; nothing was moved")
        root.guard(found)
        for path, (entry, info) in found.items():
            _check_type(path, entry, info)
            kind = entry.kind
            if kind == "move" and not entry.tree and disk.open_for_writing(os.path.join(root.work, path)):
                if info.st_size > manifest.setting("copy_open_below"):
                    raise RefusedFileError(
                        f"{path} is still open for writing, and its {info.st_size} bytes are over copy_open_below "
                        f"({manifest.setting('copy_open_below')}): close it before hide, or mark it copy or append"
                    )
                kind = "copy"
                opened.append(path)
            items.append(Item(path, kind, info.st_size, info.st_mtime_ns, info.st_ino, entry.tree, entry.compress))
    return Found(tuple(items), tuple(opened), written or not manifest.moves)


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
        raise _special(path)


def _special(path: str) -> RefusedFileError:
    return RefusedFileError(f"{path} is neither a file nor a directory, so it cannot be saved")


def take(
    disk: Disk, root: Root, manifest: Manifest, items: Sequence[Item], number: int, step: int | None, place: Place,
    *, first: bool,
) -> Taken:  # fmt: skip
    """Move or snapshot `items` into set `number`. On error everything is where it was. Killed inside: see (4)."""
    whose = root.rank, root.ranks, root.saver
    taken = Taken(number, step, time.time(), *place, *whose, manifest.patterns, tuple(items))
    with root.reporting(SaveError, f"{label(number, step)} not taken", "the files are where they were"):
        # Before the first file moves: else a set could not say what belongs to it.
        try:
            disk.append(root.taken(number), dump(taken))
        except FileNotFoundError:
            prepare(disk, root, number)
            disk.append(root.taken(number), dump(taken))
    try:
        parents = ancestors({os.path.dirname(item.path) for item in items if item.kind != "append"})
        directories = [os.path.join(root.set(number), "files", name) for name in parents]
        for directory in directories:
            disk.mkdir(directory)
        if first:
            # The new directories before the files move into them: a file system that writes its directories in any
            # order could otherwise forget the way to files that exist nowhere else.
            for directory in (*reversed(directories), root.stored(number, ""), root.set(number), root.path):
                disk.sync_dir(directory)
        for item in items:
            if item.kind == "copy":  # first, as copying is what may fail
                snapshot(disk, root, os.path.join(root.work, item.path), root.stored(number, item.path), item)
        for item in items:
            if item.kind == "move":
                # Into a directory made for it, so that it replaces nothing: replacing makes ext4 write the file now.
                disk.rename(os.path.join(root.work, item.path), root.stored(number, item.path))
    except BaseException as error:  # a KeyboardInterrupt too must not leave half of the files away
        put_back(disk, root, number, f"{label(number, step)} not taken ({error})")
        if isinstance(error, OSError):
            raise _save_error(root, number, step, error, "the files are where they were") from error
        raise
    return taken


def prepare(disk: Disk, root: Root, number: int) -> None:
    """Make the empty directory that the next set will be: the saver does it ahead, as `hide` would pay for it."""
    disk.mkdir(root.set(number))
    try:
        disk.mkdir(os.path.join(root.set(number), "files"))
        disk.write(root.taken(number), b"")
    except OSError:
        disk.remove_tree(root.set(number))
        raise


def ancestors(paths: Iterable[str]) -> list[str]:
    """`paths` and all directories on the way to them, parents before children."""
    every = set()
    for path in paths:
        while path:
            every.add(path)
            path = os.path.dirname(path)
    return sorted(every)


def snapshot(disk: Disk, root: Root, source: str, target: str, item: Item) -> None:
    """Copy a file or a directory. Its modification time is set last and so marks the snapshot as complete."""
    info = disk.stat(source)
    if item.tree and stat.S_ISDIR(info.st_mode):
        disk.mkdir(target)
        for name in disk.listdir(source):
            snapshot(disk, root, os.path.join(source, name), os.path.join(target, name), item)
    elif item.tree and stat.S_ISLNK(info.st_mode):
        disk.link(os.readlink(source), target)
        return
    elif not stat.S_ISREG(info.st_mode):
        raise _special(root.shown(source))
    else:
        with disk.open(source) as reader, disk.create(target) as writer:
            if not disk.clone(reader, writer):
                codec.copy(reader, writer)
    now = disk.stat(source)
    if (now.st_size, now.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
        raise RefusedFileError(f"{root.shown(source)} changed while it was copied: another process writes to it")
    disk.dress(target, info.st_mode, info.st_mtime_ns)


def put_back(disk: Disk, root: Root, number: int, what: str, state: str = "set") -> None:
    """Move the files of an uncommitted set back into W, where W does not have them, and remove the set.

    What W has is kept: it is the same file, or the one that a snapshot was made of. `what` begins the error's text.
    """
    kept = os.path.join(root.state(state, number), "files")
    with root.reporting(SaveError, f"{what}; not put back", f"what is missing is in {root.shown(kept)}"):
        if disk.exists(kept):
            _move_missing(disk, kept, root.work)
        drop(disk, root, [number], state)


def _move_missing(disk: Disk, source: str, target: str) -> None:
    names = disk.listdir(source)
    for name in reversed(names):
        one, other = os.path.join(source, name), os.path.join(target, name)
        if not disk.exists(other):
            try:
                disk.rename(one, other)
                continue
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another rank was first with this directory
                    raise
        if stat.S_ISDIR(disk.stat(one).st_mode) and stat.S_ISDIR(disk.stat(other).st_mode):
            _move_missing(disk, one, other)
    if names:
        # The names in W before the set goes for good: else a power cut could leave the files without any.
        disk.sync_dir(target)


def secure(
    disk: Disk, root: Root, taken: Taken, previous: Record | None, version: str, *, give_back: bool = False
) -> Record:
    """Store and commit a taken set; on return it is durable. On `SaveError` the sets before it are intact, and the
    files are back in W (`give_back`) or kept below the root.

    Killed inside: `settle` finishes this if it can prove the set whole; else the previous set is restored.
    """
    number, step = taken.number, taken.step
    holds = f"{previous.label} is intact" if previous else "there is no earlier set"
    try:
        files = store(disk, root, taken)
        record = Record(
            number,
            step,
            taken.time,
            time.time(),
            taken.host,
            version,
            taken.rank,
            taken.ranks,
            taken.saver,
            tuple(taken.patterns),
            files,
        )
        commit(disk, root, record)
    except BaseException as error:
        state = "set"
        if isinstance(error, SyncFailed) or disk.exists(root.record(number)):
            with contextlib.suppress(OSError):  # the error of the save is the one to report
                state = fail(disk, root, number)  # rule (3)
        kept = f"its files are in {root.shown(root.state(state, number))}/files"
        if give_back:
            put_back(disk, root, number, f"{label(number, step)} not stored ({error}); {holds}", state)
            kept = "its files are back in place"
        if isinstance(error, (OSError, codec.BadFrame, SafepointError)):
            raise _save_error(root, number, step, error, f"{holds}; {kept}") from error
        raise
    return record


def fail(disk: Disk, root: Root, number: int) -> str:
    """Give a set a name that nobody restores, in one step: a kill must not leave a half that looks damaged."""
    failed = root.state("failed", number)
    if disk.exists(failed):  # of an earlier run, which had a set of this number too
        disk.remove_tree(failed)
    disk.rename(root.set(number), failed)
    return "failed"


def revoke(disk: Disk, root: Root, number: int, what: str) -> None:
    """Take back a set that another rank could not save or did not take: its files are in W again, and it is gone."""
    with root.reporting(SaveError, f"{what}; not put back", f"what is missing is in {root.shown(root.set(number))}"):
        # A record must not vouch for files that are being moved out from under it.
        state = fail(disk, root, number) if disk.exists(root.record(number)) else "set"
    put_back(disk, root, number, what, state)


def _save_error(root: Root, number: int, step: int | None, error: Exception, holds: str) -> SaveError:
    cause = f"{root.shown(error.filename)}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return SaveError(f"{label(number, step)} not stored: {cause}; {holds}", getattr(error, "errno", None))


def store(disk: Disk, root: Root, taken: Taken) -> tuple[StoredFile, ...]:
    """Checksum, pack and make durable all files of a taken set; what its record has to say of them."""
    for leftover in (os.path.join(root.set(taken.number), "packed"), root.record(taken.number) + ".new"):
        if disk.exists(leftover):  # of a process that died while storing this set
            disk.remove_tree(leftover)
    contents = list(contents_of(disk, root, taken.files, root.stored(taken.number, "")))
    # The disk works on the data while we read them from the cache.
    disk.start_writeback(full for file, full, _ in contents if file.kind in ("file", "append"))
    files, kept = [], []
    for file, full, level in contents:
        if file.kind in ("file", "append"):
            file = _checksum(disk, file, full)
            if level is not None and file.kind == "file":
                file = _pack(disk, root, taken.number, file, full, level)
        files.append(file)
        kept.append(root.stored(taken.number, file.path, packed=True) if file.packed else full)
    make_durable(disk, files, kept, {root.set(taken.number), root.work})
    return tuple(files)


def make_durable(disk: Disk, files: Sequence[StoredFile], kept: Sequence[str], ends: set[str]) -> None:
    """On return the files, kept under these names, and all names on the way to them from `ends` survive a power cut."""
    # The contents before what says that they are whole.
    disk.sync_files(full for file, full in zip(files, kept, strict=True) if file.kind in ("file", "append"))
    # The names too, of every directory down to each file: else they could be durable and not be found.
    ways = set()
    for file, full in zip(files, kept, strict=True):
        way = full if file.kind in ("tree", "dir") else os.path.dirname(full)
        while way not in ways:
            ways.add(way)
            way = way if way in ends else os.path.dirname(way)
    for way in sorted(ways, reverse=True):
        disk.sync_dir(way)


Content = tuple[StoredFile, str, "int | None"]  # a file, where it is, and the level to compress it with


def contents_of(disk: Disk, root: Root, items: Sequence[Item], base: str) -> Iterator[Content]:
    """Every file, directory and link of a set, below `base`, or in W if it stays there."""
    for item in items:
        if item.kind == "append":
            full = os.path.join(root.work, item.path)
            mode = disk.stat(full).st_mode
            yield StoredFile(item.path, "append", item.size, mode=mode, mtime_ns=item.mtime_ns), full, None
        else:
            full = os.path.join(base, item.path)
            for file, inner in _walk(disk, item.path, full, top=full):
                if not item.tree:
                    file = file._replace(size=item.size, mtime_ns=item.mtime_ns)  # as it was when it was taken
                yield file, inner, item.compress


def _walk(disk: Disk, path: str, full: str, top: str) -> Iterator[tuple[StoredFile, str]]:
    info = disk.stat(full)
    if stat.S_ISDIR(info.st_mode):
        kind = "tree" if full == top else "dir"
        yield StoredFile(path, kind, mode=info.st_mode, mtime_ns=info.st_mtime_ns), full
        for name in disk.listdir(full):
            yield from _walk(disk, f"{path}/{name}", os.path.join(full, name), top)
    elif stat.S_ISLNK(info.st_mode):
        target = os.readlink(full)
        inside = os.path.normpath(os.path.join(os.path.dirname(full), target))
        if os.path.isabs(target) or os.path.commonpath((inside, top)) != top:
            raise RefusedFileError(f"{path} is a symbolic link that leads out of its directory, to {target}")
        yield StoredFile(path, "link", target=target), full
    elif stat.S_ISREG(info.st_mode):
        yield StoredFile(path, "file", info.st_size, mode=info.st_mode, mtime_ns=info.st_mtime_ns), full
    else:
        raise _special(path)


def _checksum(disk: Disk, file: StoredFile, full: str) -> StoredFile:
    with disk.open(full) as source:
        size, digest = codec.copy(source, limit=file.size if file.kind == "append" else None)
    info = disk.stat(full)
    changed = file.kind == "file" and (info.st_size, info.st_mtime_ns) != (file.size, file.mtime_ns)
    if changed or size != file.size:
        raise _changed(file)
    return file._replace(checksum=digest, stored_size=size if file.kind == "file" else 0)


def _changed(file: StoredFile) -> RefusedFileError:
    return RefusedFileError(f"{file.path} changed after hide took it: something still writes to it")


def _pack(disk: Disk, root: Root, number: int, file: StoredFile, full: str, level: int) -> StoredFile:
    """Keep `file` compressed, or as it is if that makes it no smaller or the disk has no room for a second copy."""
    target = root.stored(number, file.path, packed=True)
    make_parents(disk, target, root.set(number))
    packed = file.size
    try:
        with disk.open(full) as source, disk.create(target) as sink:
            if codec.pack(source, sink, level, file.size) != (file.size, file.checksum):
                raise _changed(file)
        packed = disk.stat(target).st_size
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    if packed < file.size:
        return file._replace(packed=True, stored_size=packed)
    with contextlib.suppress(OSError):  # what is left of it goes with the set
        disk.remove(target)
    return file


def make_parents(disk: Disk, path: str, base: str) -> None:
    """Make the directories between `base` and `path` that are not there."""
    for name in ancestors({os.path.relpath(os.path.dirname(path), base)} - {"."}):
        if not disk.exists(os.path.join(base, name)):
            with contextlib.suppress(FileExistsError):  # another rank was quicker
                disk.mkdir(os.path.join(base, name))


def commit(disk: Disk, root: Root, record: Record) -> None:
    """The commit point is the rename of the record; on return the set survives a power cut."""
    # Content, then name, then the set's directory: a record that is found is whole, and stays found.
    write_durably(disk, root.record(record.number), dump(record))
    # The name of the set itself: a new directory is not durable with what it holds, and older sets go after this.
    disk.sync_dir(root.path)


def prune(disk: Disk, root: Root, record: Record, keep: int, agreed: int) -> None:
    """Remove what `record`, just committed, makes superfluous. `agreed`: the newest set that all ranks have committed,
    as far as this one knows.

    Killed inside, or failing: nothing is lost but space, and the next prune or restore goes on.
    """
    sets = root.numbers(disk, "set")
    committed = [number for number in sets if disk.exists(root.record(number))]
    drop(disk, root, [number for number in sets if number < agreed and number not in committed[-keep:]])
    drop(disk, root, root.numbers(disk, "failed"), "failed")
    if disk.exists(root.baseline):  # it speaks of the time before the first set
        disk.remove(root.baseline)
    for file in record.files:
        if file.packed and disk.exists(root.stored(record.number, file.path)):
            disk.remove(root.stored(record.number, file.path))  # only now: until the commit it was the set


def drop(disk: Disk, root: Root, numbers: Sequence[int], state: str = "set") -> None:
    """Remove sets. First each gets a name that nobody restores: a kill must not leave a half that looks damaged."""
    for number in numbers:
        gone = root.state("gone", number)
        if disk.exists(gone):
            disk.remove_tree(gone)
        disk.rename(root.state(state, number), gone)
    if numbers:
        # These names before anything in them goes: else a power cut could bring back a set without its files, or, after
        # a restore, one that this rank alone has, from a history that was given up.
        disk.sync_dir(root.path)
    for number in numbers:
        disk.remove_tree(root.state("gone", number))


def keep_result(disk: Disk, root: Root, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Make the files in W durable; what the finish mark has to say of them."""
    with root.reporting(SaveError, "not finished", "files and sets are as they were"):
        contents = list(contents_of(disk, root, items, root.work))
        disk.start_writeback(full for file, full, _ in contents if file.kind in ("file", "append"))
        files = [_checksum(disk, file, full) if file.kind in ("file", "append") else file for file, full, _ in contents]
        make_durable(disk, files, [full for _, full, _ in contents], {root.work})
        return [{"path": f.path, "kind": f.kind, "size": f.size, "checksum": f.checksum} for f in files]


def finish(disk: Disk, root: Root, rows: list[dict[str, Any]], number: int, step: int | None, version: str) -> None:
    """Declare the files in W the result: on return the finish mark is durable, as all of the files must be already,
    those of every rank: after the mark no set stands behind them.

    The commit point is the rename of the mark. Killed before it: the last set is restored. After it: W is left alone.
    `number` is not smaller than that of any set, so that no set left over from a kill counts more than the mark.
    """
    with root.reporting(SaveError, "not finished", "files and sets are as they were"):
        mark = {"number": number, "step": step, "time": time.time(), "version": version, "ranks": root.ranks}
        try:
            write_durably(disk, root.finished, seal({**mark, "files": rows}))
        except OSError:
            with contextlib.suppress(OSError):  # a mark that is not durable must not end the sets
                disk.remove(root.finished)
            raise
