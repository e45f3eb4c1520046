"""Keep one set of files: take, store, commit, prune.

A set is *committed* when its record exists under its final name. `docs/protocol.md` has the gap after every step.

(1) Everything that a record vouches for is durable before the record has its name: else a power cut could leave a
    record without its files, and a crash would look like damage. `store` does that; here are the commit and the rest.
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
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from safepoint import codec
from safepoint.disk import Disk, Place, SyncFailed, cause
from safepoint.errors import MissingFilesError, RefusedFileError, SafepointError, SaveError
from safepoint.manifest import Entry, Manifest, Match
from safepoint.record import (
    Item,
    Life,
    Record,
    Root,
    Taken,
    Unsealed,
    dump,
    is_ours,
    label,
    parse_taken,
    seal,
    write_durably,
)
from safepoint.store import (
    How,
    ancestors,
    elsewhere,
    keep_in_place,
    link_inside,
    make_parents,
    remember_lost,
    special,
    still_open,
    store,
    ways,
)

Initial = Mapping[str, tuple[int, int]]  # size and time of each file that the first start found
MANY = 10_000  # files of one glob: from here on a directory listed as a whole is worth a word
LOOKS, NAMED = 2000, 5  # files that are looked at, and named, in a message


class Found(NamedTuple):
    """What the manifest's entries of this rank mean at one moment."""

    items: tuple[Item, ...] = ()
    opened: tuple[tuple[Entry, str], ...] = ()  # snapshotted only because they are still open for writing
    present: bool = False  # the program has written something that makes a set
    missing: str = ""  # it has not, and these are not optional
    many: tuple[Entry, int] | None = None  # the glob that means very many files, and how many


def find(disk: Disk, root: Root, manifest: Manifest, *, first: bool = False) -> Found:
    """What there is to save. None of the files: no items. Files that stay in place (append, copy) do not count beside
    files that are moved, since they are always there; nor, for a `first` set, does a directory without a file in it: a
    program that makes its directories before its first step could not start from them. Raises `MissingFilesError` if
    only some exist, `RefusedFileError` for what cannot be saved.
    """
    items = []
    with root.reporting(SaveError, "cannot look at the listed files", "nothing was moved"):
        found, missing = manifest.find(root.work, disk.stat, root.rank, root.ranks, listdir=disk.listdir)
        required = [entry for entry in manifest.entries if not entry.optional]
        moving = [(path, match.entry.tree) for path, match in found.items() if match.entry.kind == "move"]
        written = any(not (tree and first) or _has_file(disk, f"{root.work}/{path}") for path, tree in moving)
        names = manifest.shown_missing(missing, root.work, disk.stat, root.rank, root.ranks, disk.listdir)
        # With other ranks, which may have their files: then an empty directory is this one's part of the set.
        nothing = not written and any(entry.kind == "move" for entry in required) and (missing or root.ranks == 1)
        if not found or nothing:
            return Found(missing=names)
        if missing:
            raise MissingFilesError(f"missing: {names}, though {next(iter(found))} exists; nothing was moved")
        root.guard(found)
        device = disk.stat(root.work).st_dev
        for path, (entry, info) in found.items():
            _check_type(path, entry, info)
            if info.st_dev != device:
                _check_mount(disk, root, path)
        opened = _opened(disk, root, manifest, found)
        for path, (entry, info) in found.items():
            kind = "copy" if path in opened else entry.kind
            items.append(Item(path, kind, info.st_size, info.st_mtime_ns, info.st_ino, entry.tree, entry.compress))
    snapshots = tuple((found[path].entry, path) for path in opened)
    return Found(tuple(items), snapshots, written or not manifest.moves, many=_many(manifest, found))


def _many(manifest: Manifest, found: dict[str, Match]) -> tuple[Entry, int] | None:
    if len(found) < MANY:
        return None
    counts = Counter(entry.line for entry, _ in found.values() if entry.kind != "append" and not entry.tree)
    return next(((entry, counts[entry.line]) for entry in manifest.entries if counts[entry.line] >= MANY), None)


def _has_file(disk: Disk, path: str) -> bool:
    """Whether this is anything but a directory, or has such a thing somewhere below it."""
    if not stat.S_ISDIR(disk.stat(path).st_mode):
        return True
    inside = [(directory, os.path.join(path, name)) for name, directory in disk.entries(path)]
    return any(not directory or _has_file(disk, name) for directory, name in sorted(inside))


def changed(disk: Disk, root: Root, manifest: Manifest, marks: Sequence[str]) -> str:
    """The first few files in W that are not listed and were changed after these were written, for a message. The look
    is bounded: W may hold a million."""
    found: list[str] = []
    listed = manifest.entries + manifest.others
    with contextlib.suppress(OSError):  # a file or directory that is gone, or not ours to read: it is only a hint
        since = max((disk.stat(mark).st_mtime_ns for mark in marks if disk.exists(mark)), default=0)
        looks, waiting = 0, [""]
        while waiting and looks < LOOKS and len(found) <= NAMED:
            below = waiting.pop(0)
            for name, is_directory in disk.entries(os.path.join(root.work, below))[: LOOKS - looks]:
                looks, path = looks + 1, f"{below}/{name}" if below else name
                if name.startswith((".", "__")) or any(e.means(path, root.rank, root.ranks) for e in listed):
                    continue
                if is_directory:
                    waiting.append(path)
                elif disk.stat(os.path.join(root.work, path)).st_ctime_ns >= since:
                    found.append(path)
    return ", ".join(found[:NAMED]) + " and more" * (len(found) > NAMED)


def _opened(disk: Disk, root: Root, manifest: Manifest, found: dict[str, Match]) -> list[str]:
    """Those of the files to be moved that somebody could still write to; small enough to be snapshotted instead."""
    moving = [path for path, (entry, _) in found.items() if entry.kind == "move" and not entry.tree]
    full = {os.path.join(root.work, path): path for path in moving}
    opened = [full[name] for name in disk.open_for_writing(list(full))] if full else []
    limit = manifest.setting("copy_open_below")
    for path in opened:
        if found[path].info.st_size > limit:
            size = f", and its {found[path].info.st_size} bytes are over copy_open_below ({limit})"
            raise RefusedFileError(f"{still_open(disk, path, os.path.join(root.work, path), size)} or append")
    return opened


def _check_mount(disk: Disk, root: Root, path: str) -> None:
    """Refuse what no rename could move. (In an overlay files have other devices, and are not elsewhere.)"""
    full = os.path.join(root.work, path)
    if disk.place(os.path.dirname(full)).mount != disk.place(root.work).mount or os.path.ismount(full):
        raise elsewhere(disk, path, full, root.work)


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
        raise special(path, info.st_mode)


def take(
    disk: Disk, root: Root, manifest: Manifest, items: Sequence[Item], number: int, step: int | None, place: Place,
    life: Life, previous: Record | None,
) -> Taken:  # fmt: skip
    """Move or snapshot `items` into set `number`. On error everything is where it was. Killed inside: see (4)."""
    holds = f"{intact(previous)}; the files are where they were"
    whose = root.rank, root.ranks, root.saver
    taken = Taken(number, step, time.time(), *place, *whose, manifest.patterns, tuple(items), *life)
    with root.reporting(SaveError, f"{label(number, step)} not taken", holds):
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
        if previous is None:
            # The new directories before the files move into them: a file system that writes its directories in any
            # order could otherwise forget the way to files that exist nowhere else.
            for directory in (*reversed(directories), root.stored(number, ""), root.set(number), root.path):
                disk.sync_dir(directory)
        copied: dict[str, os.stat_result] = {}
        for item in items:
            if item.kind == "copy":  # first, as copying is what may fail
                snapshot(disk, root, item, number, copied)
        check_unchanged(disk, root, copied)
        for item in items:
            if item.kind == "move":
                # Into a directory made for it, so that it replaces nothing: replacing makes ext4 write the file now.
                disk.rename(os.path.join(root.work, item.path), root.stored(number, item.path))
    except BaseException as error:  # a KeyboardInterrupt too must not leave half of the files away
        what = f"{label(number, step)} not taken ({_cause(root, error)}); {intact(previous)}"
        back = put_back(disk, root, number, what)
        if isinstance(error, OSError):
            if error.errno == errno.EXDEV:
                path = root.shown(error.filename)
                raise elsewhere(disk, path, os.path.join(root.work, path), root.work) from error
            raise _save_error(root, number, step, error, f"{holds}{back}") from error
        raise
    return taken


def prepare(disk: Disk, root: Root, number: int) -> None:
    """Make the empty directory that the next set will be: the saver does it ahead, as `hide` would pay for it.

    On error nothing of it is left, if that can be removed; else the next try goes on with it.
    """
    top, kept = root.set(number), root.stored(number, "")
    try:
        disk.mkdir(top)
    except FileExistsError:
        is_ours(disk, top, kept)
        if set(disk.listdir(top)) - {"files"} or (disk.exists(kept) and disk.listdir(kept)):
            raise
    try:
        with contextlib.suppress(FileExistsError):
            disk.mkdir(kept)
        disk.write(root.taken(number), b"")
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to see
            disk.remove_tree(top)
        raise


def snapshot(disk: Disk, root: Root, item: Item, number: int, copied: dict[str, os.stat_result]) -> None:
    """Copy a file or a directory into a set. Its modification time is set last and so marks the snapshot as complete.

    `copied` is told what each file and directory looked like, for `check_unchanged`.
    """
    top = os.path.join(root.work, item.path)

    def visit(source: str, target: str) -> None:
        info = disk.stat(source)
        if item.tree and stat.S_ISLNK(info.st_mode):
            disk.link(link_inside(root.shown(source), source, top), target)
            return
        if item.tree and stat.S_ISDIR(info.st_mode):
            disk.mkdir(target)
            for name in disk.listdir(source):
                visit(os.path.join(source, name), os.path.join(target, name))
        elif not stat.S_ISREG(info.st_mode):
            raise special(root.shown(source), info.st_mode)
        else:
            with disk.open(source) as reader, disk.create(target) as writer:
                disk.duplicate(reader, writer)
        copied[source] = info
        disk.dress(target, info.st_mode, info.st_mtime_ns)

    visit(top, root.stored(number, item.path))
    seen = copied[top]
    if (seen.st_size, seen.st_mtime_ns) != (item.size, item.mtime_ns):
        raise _written_to(item.path)


def check_unchanged(disk: Disk, root: Root, copied: dict[str, os.stat_result]) -> None:
    """When all snapshots are made: raise if they are not as of one moment."""
    for source, info in copied.items():
        now = disk.stat(source)
        if (now.st_size, now.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
            raise _written_to(root.shown(source))


def _written_to(path: str) -> RefusedFileError:
    return RefusedFileError(f"{path} changed while it was copied: another process or thread writes to it")


def put_back(
    disk: Disk, root: Root, number: int, what: str, state: str = "set", *, initial: Initial | None = None
) -> str:
    """Move the files of an uncommitted set back into W, and remove the set with what is left of it: snapshots, of which
    W has the originals. `what` begins the error's text.

    Under the name of a file that was moved W may have another by now: the program wrote it, so it stays, and what was
    taken goes to `discarded/`, as the returned end of a message says. At a start it is the other way round where the
    file of the set is the `initial` one by size and time, and that of W is not.
    """
    kept = os.path.join(root.state(state, number), "files")
    aside: list[str] = []
    with root.reporting(SaveError, f"{what}; not put back", f"what is missing is in {root.shown(kept)}"):
        if state == "failed":
            # The name before its files leave it: else a power cut could bring back a committed set without them. That
            # this may fail too, on a disk that has failed, is no reason to keep the files from the program.
            with contextlib.suppress(SyncFailed):
                disk.sync_dir(root.path)
        if is_ours(disk, root.state(state, number), kept):  # behind a link are files of somebody else
            aside = _move_back(disk, root, kept, "", _snapshots(disk, root.state(state, number)), initial)
        drop(disk, root, [number], state)
    if not aside:
        return ""
    where = root.shown(root.discarded)
    return f", but for what was written anew: what had been taken is in {where}: {', '.join(aside)}"


def _snapshots(disk: Disk, top: str) -> set[str]:
    """What is only a copy in this set; nothing, if its list cannot be read: then it is kept like a file that moved."""
    with contextlib.suppress(OSError, Unsealed):
        return {item.path for item in parse_taken(disk.read(f"{top}/taken.json")).files if item.kind == "copy"}
    return set()


def _move_back(
    disk: Disk, root: Root, kept: str, path: str, snapshots: set[str], initial: Initial | None
) -> list[str]:  # fmt: skip
    """Move what is in this directory of a set into that of W; the names of what was set aside for it."""
    names, aside = disk.listdir(os.path.join(kept, path)), []
    for name in reversed(names):
        inner = f"{path}/{name}" if path else name
        one, other = os.path.join(kept, inner), os.path.join(root.work, inner)
        if not disk.exists(other):
            try:
                disk.rename(one, other)
                continue
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another rank was first with this directory
                    raise
        ours, theirs = disk.stat(one), disk.stat(other)
        if stat.S_ISDIR(ours.st_mode) and stat.S_ISDIR(theirs.st_mode):
            aside += _move_back(disk, root, kept, inner, snapshots, initial)
        elif initial is not None and _is_initial(initial.get(inner), ours) > _is_initial(initial.get(inner), theirs):
            aside.append(inner)
            _set_aside_durably(disk, root, inner)
            disk.rename(one, other)
        elif not any(inner == copy or inner.startswith(f"{copy}/") for copy in snapshots):
            aside.append(inner)
            _set_aside_durably(disk, root, inner, one)
    if names:
        # The names in W before the set goes for good: else a power cut could leave the files without any.
        disk.sync_dir(os.path.join(root.work, path))
    return aside


def _set_aside_durably(disk: Disk, root: Root, path: str, full: str = "") -> None:
    set_aside(disk, root, path, full)
    # The new name before another file gets the old one, or the set goes: else a power cut could leave it without any.
    disk.sync((), ways({os.path.dirname(os.path.join(root.discarded, path))}, {root.path}))


def _is_initial(row: tuple[int, int] | None, info: os.stat_result) -> bool:
    """Whether it is what the first start found. A directory is that if it holds such files."""
    return stat.S_ISDIR(info.st_mode) if row is None else (info.st_size, info.st_mtime_ns) == row


def set_aside(disk: Disk, root: Root, path: str, full: str = "") -> None:
    """Move a file or directory of W, or what is at `full`, to `discarded/`, beside what may be there under its name."""
    if disk.exists(root.discarded) and not stat.S_ISDIR(disk.stat(root.discarded).st_mode):
        disk.remove(root.discarded)  # a link: W's files must not leave through it
    if not disk.exists(root.discarded):
        disk.mkdir(root.discarded)
    target = os.path.join(root.discarded, path)
    for way in ancestors({os.path.dirname(path)}):
        there = os.path.join(root.discarded, way)
        if (info := disk.stat_or_none(there)) and not stat.S_ISDIR(info.st_mode):
            disk.rename(there, _free(disk, there))  # a link, say, that was set aside before
    make_parents(disk, target, root.discarded)
    disk.rename(full or os.path.join(root.work, path), _free(disk, target))


def _free(disk: Disk, path: str) -> str:
    """This path, or one beside it that nothing has."""
    name, n = path, 0
    while disk.exists(name):
        n += 1
        name = f"{path}~{n}"
    return name


def secure(
    disk: Disk, root: Root, taken: Taken, previous: Record | None, how: How, *, give_back: bool = False,
    begun: bool = False,
) -> Record:  # fmt: skip
    """Store and commit a taken set; on return it is durable. On `SaveError` the sets before it are intact, and the
    files are back in W (`give_back`) or kept below the root. `begun`: a process may have died while it stored this set.

    Killed inside: `settle` finishes this if it can prove the set whole; else the previous set is restored.
    """
    number, step = taken.number, taken.step
    holds = intact(previous)
    try:
        check_ours(disk, root, taken)
        record = store(disk, root, taken, how, begun=begun)
        check_ours(disk, root, taken)  # here too, as storing takes long: another run may have a set of this number
        commit(disk, root, number)
        confirm(disk, root, number)
        how.prefixes = dict(how.stored)
    except BaseException as error:
        check_ours(disk, root, taken)  # else what is marked as failed, or moved, would be another run's
        state, stuck = "set", False
        how.left = number if give_back else how.left
        try:
            # Rule (3); and a set in which something still writes must not be completed by the next start.
            if isinstance(error, (SyncFailed, RefusedFileError)) or disk.exists(root.record(number)):
                state = fail(disk, root, number)
        except OSError:  # the error of the save is the one to report
            if stuck := not _spoil(disk, root, number):
                how.spoilt.add(number)
        if isinstance(error, SyncFailed):  # what is in W now, or stayed there
            there = ("append", "move") if give_back else ("append",)
            remember_lost(how, (item for item in taken.files if item.kind in there))
        kept = f"its files are in {root.shown(root.state(state, number))}/files"
        if give_back and not stuck:
            what = f"{label(number, step)} not stored ({_cause(root, error)}); {holds}"
            kept, how.left = f"its files are back in place{put_back(disk, root, number, what, state)}", 0
        if isinstance(error, (OSError, codec.BadFrame, SafepointError)):
            raise _save_error(root, number, step, error, f"{holds}; {kept}") from error
        raise
    return record


def check_ours(disk: Disk, root: Root, taken: Taken) -> None:
    root.refuse_other(disk, SaveError, f"{taken.label} not stored", "so are the files of this set")


def intact(previous: Record | None) -> str:
    """What still holds when a set could not be saved."""
    return f"{previous.label} is intact" if previous else "there is no earlier set"


def fail(disk: Disk, root: Root, number: int) -> str:
    """Give a set a name that nobody restores, in one step: a kill must not leave a half that looks damaged.

    On error it may have its old name still.
    """
    failed = root.state("failed", number)
    if disk.exists(failed):  # of an earlier run, which had a set of this number too
        disk.remove_tree(failed)
    disk.rename(root.set(number), failed)
    return "failed"


def _spoil(disk: Disk, root: Root, number: int) -> bool:
    """For a set that cannot be renamed: take away what could vouch for it, or prove it whole, in this life or the next.
    Whether that is done; if not, its files must not leave it, as it may be committed."""
    try:
        disk.truncate(root.taken(number), 0)
        if disk.exists(root.record(number)):
            disk.remove(root.record(number))
            disk.sync_dir(root.set(number))
    except OSError:
        return False
    return True


def missing(disk: Disk, source: str, target: str) -> str:
    """A file below `source` that is not below `target`, if there is any."""
    for name, is_directory in disk.entries(source):
        one, other = os.path.join(source, name), os.path.join(target, name)
        found = missing(disk, one, other) if is_directory else "" if disk.exists(other) else one
        if found:
            return found
    return ""


def revoke(disk: Disk, root: Root, number: int, what: str, *, initial: Initial | None = None) -> str:
    """Take back a set that another rank could not save or did not take: its files are in W again, and it is gone. As
    `put_back`."""
    with root.reporting(SaveError, f"{what}; not put back", f"what is missing is in {root.shown(root.set(number))}"):
        # A record must not vouch for files that are being moved out from under it.
        state = fail(disk, root, number) if disk.exists(root.record(number)) else "set"
    return put_back(disk, root, number, what, state, initial=initial)


def _save_error(root: Root, number: int, step: int | None, error: Exception, holds: str) -> SaveError:
    text = f"{label(number, step)} not stored: {_cause(root, error)}; {holds}"
    return SaveError(text, getattr(error, "errno", None))


def _cause(root: Root, error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{root.shown(error.filename)}: {cause(error)}"
    return str(error) or type(error).__name__


def commit(disk: Disk, root: Root, number: int) -> None:
    """The commit point is the rename of the record, which is durable but for its name; on return the set survives a
    power cut."""
    disk.rename(root.record(number) + ".new", root.record(number))
    # The record's name, and that of the set itself: a new directory is not durable with what it holds, and older sets
    # go after this. Either may come first, since a record that cannot be reached is none.
    disk.sync((), [root.set(number), root.path])


def confirm(disk: Disk, root: Root, number: int) -> None:
    """Raise `SyncFailed` if the file system has gone down meanwhile: then an fsync that was under way may have returned
    0 for a record that is lost (docs/guarantees.md). What tells is a new name, since that needs the journal: the
    directory of the next set, to be made anyway; that it cannot be made for any other reason does not matter here."""
    try:
        prepare(disk, root, number + 1)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EIO):
            raise SyncFailed(error.errno, error.strerror, error.filename) from error


class Sets:
    """The sets below a root, as the last prune has left them, so that the next need not look for them. It does if a
    number was left out: then a save has failed."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.others: list[int] = []
        self.known = False

    def look(self, disk: Disk, root: Root, newest: int) -> None:
        """Find those up to `newest`. The one after it may have been prepared."""
        self.committed, self.others = [], []
        for number in root.numbers(disk, "set"):
            if number <= newest:
                (self.committed if disk.exists(root.record(number)) else self.others).append(number)


def prune(
    disk: Disk, root: Root, record: Record, keep: int, agreed: int, sets: Sets | None = None, *, fresh: bool = True
) -> None:
    """Remove what `record` makes superfluous. `agreed`: the newest set that all ranks have committed, as far as this
    one knows. `sets`: what the last prune of this session has left. `fresh`: the set was committed just now, so what is
    left of one that failed before goes too.

    Killed inside, or failing: nothing is lost but space, and the next prune or restore goes on.
    """
    sets = sets or Sets()
    looks = not (sets.known and sets.committed and sets.committed[-1] == record.number - 1)
    sets.known = False  # until all went well
    if looks:
        sets.look(disk, root, record.number)
    else:
        sets.committed.append(record.number)
    old = [number for number in (*sets.committed[:-keep], *sets.others) if number < agreed]
    drop(disk, root, old)
    if looks and fresh:
        drop(disk, root, root.numbers(disk, "failed"), "failed")
    if looks and disk.exists(root.baseline):  # it speaks of the time before the first set
        disk.remove(root.baseline)
    if old:
        sets.committed, sets.others = ([n for n in some if n not in old] for some in (sets.committed, sets.others))
    _remove_second_copies(disk, root, record)
    for number in root.numbers(disk, "gone") if looks else ():
        with contextlib.suppress(OSError):  # what could not be removed before may still not be
            disk.remove_tree(root.state("gone", number))
    sets.known = fresh


def _remove_second_copies(disk: Disk, root: Root, record: Record) -> None:
    """Only when it is committed: until then they were the set."""
    files = [file for file in record.files if file.kind == "file"]
    if files and all(file.kept != "raw" for file in files):
        if disk.exists(root.stored(record.number, "")):
            disk.remove_tree(root.stored(record.number, ""))
        return
    copies = [root.stored(record.number, file.path) for file in files if file.kept != "raw"]
    disk.remove_files([path for path in copies if disk.exists(path)])


def drop(disk: Disk, root: Root, numbers: Sequence[int], state: str = "set") -> None:
    """Remove sets. First each gets a name that nobody restores: a kill must not leave a half that looks damaged."""
    gone = []
    for number in numbers:
        path = root.state("gone", number)
        try:
            disk.rename(root.state(state, number), path)
        except FileNotFoundError:  # somebody removed it by hand
            continue
        except OSError:
            if not disk.exists(path):
                raise
            disk.remove_tree(path)  # of an earlier run, which had a set of this number too
            disk.rename(root.state(state, number), path)
        gone.append(path)
    if gone:
        # These names before anything in them goes: else a power cut could bring back a set without its files, or, after
        # a restore, one that this rank alone has, from a history that was given up.
        disk.sync_dir(root.path)
    for path in gone:
        disk.remove_tree(path)


def keep_result(
    disk: Disk, root: Root, items: Sequence[Item], how: How, previous: Record | None
) -> list[dict[str, Any]]:
    """Make the files in W durable; what the finish mark has to say of them."""
    how.check_kept(items)
    with root.reporting(SaveError, "not finished", f"{intact(previous)}; files and sets are as they were"):
        return keep_in_place(disk, root, items, how)


def finish(
    disk: Disk, root: Root, rows: list[dict[str, Any]], number: int, step: int | None, life: Life, version: str,
    previous: Record | None,
) -> None:  # fmt: skip
    """Declare the files in W the result: on return the finish mark is durable, as all of the files must be already,
    those of every rank: after the mark no set stands behind them.

    The commit point is the rename of the mark. Killed before it: the last set is restored. After it: W is left alone.
    `number` is not smaller than that of any set, so that no set left over from a kill counts more than the mark; and
    `life` is the newest, so that no set of a node that was away does.
    """
    with root.reporting(SaveError, "not finished", f"{intact(previous)}; files and sets are as they were"):
        mark = {"number": number, "step": step, "time": time.time(), "version": version, "ranks": root.ranks,
                "life": life.number, "history": life.history}  # fmt: skip
        try:
            write_durably(disk, root.finished, seal({**mark, "files": rows}))
            confirm(disk, root, number + 1)  # the one after `number` may have been made ahead; both go with the sets
        except OSError:
            with contextlib.suppress(OSError):  # a mark that is not durable must not end the sets
                disk.remove(root.finished)
            raise
