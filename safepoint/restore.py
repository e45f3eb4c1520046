"""Give back one set of files: settle, choose, stage, swap; and verify, which only looks.

(1) W is not touched before every byte of the chosen set was read and its checksum held: else a damaged set would
    destroy what is there and leave nothing to fall back to.
(2) The set stays while W is written: files are copied out of it, never moved, so a restore that was killed is repeated.
(3) A set without a record is given back only if it is provably what the program handed over: every file with the
    inode, size and time that `taken.json` says, in the very page cache that held them (same host, boot and mount), or
    else by its checksums. After a power cut names, sizes and times prove nothing.
(4) Nothing in W is deleted: what a set does not have is moved to `discarded/`.
(5) What a set needs of an append file is in W, in the hands of the program. So a set that is given back keeps a copy of
    it: else a program that begins its table anew, and is killed before its next set, has none left.

No function here knows of other ranks or holds state. Errors of the system leave as `RestoreError`.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, NamedTuple, TypeVar

from safepoint import codec, save, store
from safepoint.disk import NO_FILE, NO_ROOM, Disk, Place
from safepoint.errors import DamagedError, OverwrittenError, RestoreError, SaveError, UsageError
from safepoint.interrupts import end_if_asked
from safepoint.manifest import Manifest, above
from safepoint.record import (
    Item,
    Record,
    Root,
    StoredFile,
    Taken,
    Unsealed,
    is_ours,
    key,
    life_of,
    parse_baseline,
    parse_mark,
    parse_record,
    parse_taken,
    seal,
    write_durably,
)
from safepoint.store import How

# What reading a damaged set says. Anything else (no permission, no descriptors) is mended by the user, and no reason to
# fall back to an older set.
_DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EIO, getattr(errno, "EUCLEAN", errno.EIO), *NO_FILE}
_NO_WAY = {errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}  # what a name says that leads nowhere in a set
LARGE = 16 << 20  # bytes: to give the blocks of such a file back is not waited for
SPARE = 2  # times the size of a set must be free, or its files are given back as reflinks where that can be

Result = TypeVar("Result")
Sealed = TypeVar("Sealed", Record, Taken)
BY_HAND = (
    "To go on bring back what is missing (of a file that only grows its first bytes, which may have got another name), "
    "or take the other files of a set by hand: docs/format.md"
)
Progress = Callable[[int, int], object]  # called with the bytes read so far, and those of the whole set


class Damaged(Exception):
    """A set is not what was committed; the text says why. It makes `restore` fall back."""


class Candidate(NamedTuple):
    """A set as found: with a record it can be tried; else the reason says why not. `key` orders the sets of all lives;
    of a set that cannot say its life it is that of the one before."""

    number: int
    record: Record | None
    reason: str = ""
    key: int = 0


def _reporting(root: Root, what: str) -> AbstractContextManager[None]:
    return root.reporting(RestoreError, what, "all sets are as they were, and restore may be repeated")


def _or_damaged(path: str, read: Callable[[], Any]) -> Any:
    """What `read` gives. Raises `Damaged` if what it found under `path` is not what was written."""
    name = os.path.basename(path)
    try:
        return read()
    except (Unsealed, codec.BadFrame) as error:
        raise Damaged(f"{name}: {error}") from error
    except OSError as error:
        if error.errno not in _DAMAGE or error.filename != path:
            raise  # not the set is at fault
        raise Damaged(f"{name}: {error.strerror}") from error


def refuse_foreign(disk: Disk, root: Root, finished: int, *, alone: bool) -> dict[int, str]:
    """Raise `UsageError` if the newest set is one that this program, with its number of ranks, could not give back
    whole; of older such sets the reasons, by number.

    `alone`: this rank does not coordinate; then ranks that it knows nothing of may have saved sets; and so they may
    have when there is none here.
    """
    numbers = sets_after(disk, root, finished)
    reasons = {}
    for number in numbers:
        with suppress(Damaged, OSError):  # settle says what is wrong with it
            refuse_links(disk, root, number)
            if disk.exists(root.record(number)):
                reasons[number] = _foreign(root, read_record(disk, root, number))
            elif not _only_prepared(disk, root, number):
                reasons[number] = _foreign(root, read_taken(disk, root, number))
    if reasons and (newest := reasons[max(reasons)]):
        raise UsageError(f"{newest}; nothing was changed")
    look = (alone or not numbers) and root.rank == (root.saver or 0)
    for other in root.beyond(disk) if look and root.saver is not None else ():
        if any(not _only_prepared(disk, other, n) for n in sets_after(disk, other, finished)):
            raise UsageError(
                f"{root.work} has sets of rank {other.rank}, and this run has {_ranks(root.ranks)}: "
                f"start it with at least {other.rank + 1}; nothing was changed"
            )
    return {number: reason for number, reason in reasons.items() if reason}


def _foreign(root: Root, whose: Record | Taken) -> str:
    """Why a set is none for this program: one with files of each rank needs all of these ranks, one with files of the
    saver only needs that rank."""
    now = f"this run has {_ranks(root.ranks)}"
    if root.saver is None and whose.rank != root.rank:
        return f"{root.work} has the sets of rank {whose.rank}, not those of rank {root.rank}"
    if whose.of_each and (whose.ranks != root.ranks or (whose.saver is None) != (root.saver is None)):
        how = f"by {_ranks(whose.ranks)}{', each in a directory of its own' * (whose.saver is None)}"
        return f"{whose.label} was saved {how}, and {now}: a set with files of each rank needs the same number again"
    if not whose.of_each and whose.saver is not None and whose.saver >= root.ranks:
        who = f"rank {whose.saver}, its saver among {_ranks(whose.ranks)}"
        return f"the files of {whose.label} are with {who}, and {now}: start it with more than {whose.saver}"
    return ""


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def settle(disk: Disk, root: Root, place: Place, finished: int, how: How) -> list[Candidate]:
    """Bring a root that a process left behind into order; its sets, newest first.

    On return sets that could be proven whole are committed. Sets up to the key `finished` are ended history.
    """
    with _reporting(root, "cannot settle what the last run left"):
        for number in root.numbers(disk, "gone"):
            disk.remove_tree(root.state("gone", number))
        candidates = [
            c._replace(record=None, reason="its fsync failed, or something wrote to it")
            if c.number in how.spoilt
            else c
            for c in survey(disk, root, after=finished)
        ]
        newest = next((c.record for c in candidates if c.record), None)
        for position, candidate in reversed(list(enumerate(candidates))):
            number = candidate.number
            if number in how.spoilt or disk.exists(root.record(number)) or (newest and number < newest.number):
                continue
            try:
                taken = _provably_whole(disk, root, number, place, first=newest is None)
                newest = save.secure(disk, root, taken, newest, how, begun=True)
                candidates[position] = Candidate(number, newest, key=newest.key)
            except (Damaged, SaveError) as error:
                if isinstance(error, SaveError) and error.errno not in (None, *_DAMAGE):
                    raise  # the disk's fault, not the set's: once there is room, say, it can still be completed
                candidates[position] = candidate._replace(reason=str(error))
        return candidates


def once_committed(disk: Disk, root: Root, candidates: list[Candidate]) -> bool:
    """Whether this rank knows that all had committed a set, or has one that is damaged: then there is no fresh start.

    The baseline goes after the first set that every rank has committed.
    """
    damaged = [c for c in candidates if not c.record and disk.exists(root.record(c.number))]
    return bool(damaged) or (bool(candidates) and not disk.exists(root.baseline))


def give_up(disk: Disk, root: Root, finished: int, *, fresh: bool) -> None:
    """Put the initial files back that a first `hide` had moved, when no set was ever committed by all ranks.

    Whatever else has their names by now goes to `discarded/`. `fresh`: no restore was killed before this one. On return
    there is `stage/` if one was, or if there was anything to do.
    """
    what = "cannot settle what the last run left"
    if not disk.exists(root.baseline):
        return  # nothing was moved since
    with _reporting(root, what):
        numbers, failed = sets_after(disk, root, finished), sets_after(disk, root, finished, "failed")
        if fresh and (numbers or failed):
            clear_discarded(disk, root)
        if (numbers or failed or not fresh) and not disk.exists(root.stage):
            # A restore is at work: after a kill, or a cut, the next one must not clear what this one sets aside.
            disk.mkdir(root.stage)
            disk.sync_dir(root.path)
        rows: list[dict[str, Any]] = []
        with suppress(DamagedError):  # `check_baseline` tells it, when the files are back
            rows = read_baseline(disk, root)["files"] if numbers or failed else []
        initial = {row["path"]: (row["size"], row["mtime_ns"]) for row in rows if not row.get("directory")}
        try:
            for number in numbers:
                save.revoke(disk, root, number, what, initial=initial)
            for number in failed:
                save.put_back(disk, root, number, what, "failed", initial=initial)
        except SaveError as error:
            raise RestoreError(str(error), error.errno) from error


def refuse_outside(disk: Disk, root: Root, manifest: Manifest) -> None:
    """Raise `RefusedFileError` if an entry reaches, by a symbolic link, what is outside of W: it is none of ours."""
    reach = manifest.reach(root.work, disk.stat, root.rank, root.ranks, listdir=disk.listdir)
    root.guard(f"{path}/" for path in reach)


def survey(disk: Disk, root: Root, after: int = 0) -> list[Candidate]:
    """All sets with a key above `after`, newest first, judged by their records and the sizes of their files."""
    candidates: list[Candidate] = []
    life = life_of(after)  # in one root numbers grow from life to life
    for number in root.numbers(disk, "set"):
        record, reason = _judged(disk, root, number)
        if not record and not reason:
            continue
        what = record or _try_taken(disk, root.set(number))
        life = what.life if what else life
        if key(life, number) > after:
            candidates.append(Candidate(number, None if reason else record, reason, key(life, number)))
    return candidates[::-1]


def _judged(disk: Disk, root: Root, number: int) -> tuple[Record | None, str]:
    """The record of a set, if it can be read; and what is wrong with the set, as far as names and sizes tell. Neither,
    if the set was only prepared."""
    record = None
    try:
        refuse_links(disk, root, number)
        if not disk.exists(root.record(number)):
            return None, "" if _only_prepared(disk, root, number) else "it was never committed"
        record = read_record(disk, root, number)
        _check_sizes(disk, root, record)
    except Damaged as error:
        return record, str(error)
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        return record, f"{root.shown(error.filename)}: {error.strerror}"
    return record, ""


def sets_after(disk: Disk, root: Root, finished: int, state: str = "set") -> list[int]:
    """The numbers of the sets in this state that the finish mark, of the key `finished`, has not ended."""
    numbers = root.numbers(disk, state)
    if not finished:
        return numbers
    whats = {number: _try_taken(disk, root.state(state, number)) for number in numbers}
    return [n for n, what in whats.items() if key(what.life if what else life_of(finished), n) > finished]


def _try_taken(disk: Disk, top: str) -> Taken | None:
    """What `hide` wrote down in the set below `top`, if that can be read."""
    path = f"{top}/taken.json"
    with suppress(Damaged, OSError):
        is_ours(disk, top)
        return _or_damaged(path, lambda: parse_taken(disk.read(path)))  # type: ignore[no-any-return]
    return None


def refuse_links(disk: Disk, root: Root, number: int, paths: Iterable[str] = ()) -> None:
    """Raise `Damaged` if the way to one of these files of a set leads over a symbolic link: what is behind it is none
    of ours, so it must be neither moved nor deleted."""
    inner = store.ancestors({os.path.dirname(path) for path in paths})
    try:
        is_ours(disk, root.set(number))
        for top in (root.stored(number, ""), root.packed_in(number)):
            for way in (top, *(os.path.join(top, name) for name in inner)):  # no slash at an end: that follows a link
                if (info := disk.stat_or_none(way)) and S_ISLNK(info.st_mode):
                    is_ours(disk, way)
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        raise Damaged(f"{root.shown(error.filename)}: {error.strerror}") from error


def read_record(disk: Disk, root: Root, number: int, new: str = "") -> Record:
    """The record of a set. Raises `Damaged` if it is not what was written there."""
    return _read(disk, root.record(number) + new, number, parse_record)


def read_taken(disk: Disk, root: Root, number: int) -> Taken:
    """What `hide` wrote down of a set. Raises `Damaged` if it is not what was written there."""
    return _read(disk, root.taken(number), number, parse_taken)


def _read(disk: Disk, path: str, number: int, parse: Callable[[bytes], Sealed]) -> Sealed:
    what: Sealed = _or_damaged(path, lambda: parse(disk.read(path)))
    if what.number != number:
        raise Damaged(f"{os.path.basename(path)} is that of set {what.number}")
    return what


def _only_prepared(disk: Disk, root: Root, number: int) -> bool:
    taken, kept = root.taken(number), root.stored(number, "")
    return not (disk.exists(taken) and disk.stat(taken).st_size) and not (disk.exists(kept) and disk.listdir(kept))


def _check_sizes(disk: Disk, root: Root, record: Record) -> None:
    """What a look at the names tells. Directories and links need not be there: the record has all of them."""
    bundled = 0
    refuse_links(disk, root, record.number, (file.path for file in record.files if file.kind == "file"))
    for file in record.files:
        # Append files are in W, where anything may have happened; they are read when staged.
        if file.kind != "file":
            continue
        if file.kept == "tar":
            bundled = max(bundled, file.offset + file.size)
            continue
        info = disk.stat_or_none(root.where(record.number, file))
        if info is None:
            raise Damaged(f"{file.path} is missing")
        if info.st_size != file.stored_size:
            raise Damaged(f"{file.path} has {info.st_size} bytes instead of {file.stored_size}")
    if bundled:
        path = root.bundle(record.number)
        if not disk.exists(path):
            raise Damaged(f"{os.path.basename(path)} is missing")
        size = disk.stat(path).st_size
        if size < bundled:
            raise Damaged(f"{os.path.basename(path)} has {size} bytes, and files in it end at {bundled}")


def _provably_whole(disk: Disk, root: Root, number: int, place: Place, *, first: bool) -> Taken:
    """Rule (3): what was taken, if this uncommitted set is whole beyond doubt; then all of it is in the set on return.
    Raises `Damaged` with the reason."""
    taken, by_checksums = prove(disk, root, number, place)
    if not by_checksums:
        root.guard(item.path for item in taken.files)
        # Only here: what checksums show to be whole, after a power cut, must not be made anew from what W has by then.
        _move_rest(disk, root, taken, first=first)
    return taken


def prove(disk: Disk, root: Root, number: int, place: Place, *, read: bool = True) -> tuple[Taken, bool]:
    """Rule (3), and nothing is changed: what was taken, if this uncommitted set is whole beyond doubt, and whether its
    checksums say so (else some of it may be in W still). Raises `Damaged` with the reason.

    Without `read` the checksums are not tried: then a reason may be wrong, if there is a record without its name.
    """
    refuse_links(disk, root, number)
    taken = read_taken(disk, root, number)
    refuse_links(disk, root, number, (item.path for item in taken.files))
    if read and _by_checksums(disk, root, taken):
        return taken, True
    if place.mount is None or (taken.host, taken.boot, taken.mount) != place:
        raise Damaged("the machine went down, or the file system was mounted anew, before it was committed")
    for item in taken.files:
        _check_item(disk, root, number, item)
    return taken, False


def _by_checksums(disk: Disk, root: Root, taken: Taken) -> bool:
    """Whether the saver had got as far as the checksums, and they hold for what is there. Raises `Damaged` if they are
    not of what was taken: what is committed then is that."""
    number = taken.number
    try:
        record = read_record(disk, root, number, ".new")
    except Damaged:
        return False
    sizes = {file.path: file.size for file in record.files}
    if any(sizes.get(item.path) != item.size for item in taken.files if not item.tree):
        raise Damaged("taken.json and record.json.new are of different files")
    try:
        refuse_links(disk, root, number, (file.path for file in record.files))
        for file in record.files:
            if file.has_bytes:
                raw = file._replace(kept="raw", stored_size=file.size)
                _read_out(disk, root.where(number, raw), raw)
            elif not disk.exists(root.stored(number, file.path)):
                return False
    except Damaged:
        return False
    return True


def _check_item(disk: Disk, root: Root, number: int, item: Item) -> None:
    """Raises `Damaged` unless the item is, in the set or still in W, exactly as it was when `hide` looked at it."""
    for path in (root.stored(number, item.path), os.path.join(root.work, item.path)):
        # Of a directory's files neither its time nor its inode tells anything: half a snapshot cannot be completed.
        info = disk.stat_or_none(path)
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


def _move_rest(disk: Disk, root: Root, taken: Taken, *, first: bool) -> None:
    """Do what is left of a `take` whose process died; files that moved already are left."""
    store.make_parents(disk, root.stored(taken.number, "file"), root.set(taken.number))
    if first:  # as in take: the way to files that exist nowhere else, before they move
        parents = store.ancestors({os.path.dirname(item.path) for item in taken.files if item.kind != "append"})
        ways = [root.stored(taken.number, name) for name in parents]
        for way in ways:
            if not disk.exists(way):
                disk.mkdir(way)
        for way in (*reversed(ways), root.stored(taken.number, ""), root.set(taken.number), root.path):
            disk.sync_dir(way)
    for item in taken.files:
        source, target = os.path.join(root.work, item.path), root.stored(taken.number, item.path)
        there = disk.exists(target)
        if item.kind == "move" and not there:
            store.make_parents(disk, target, root.set(taken.number))
            disk.rename(source, target)
        elif item.kind == "copy" and (not there or disk.stat(target).st_mtime_ns != item.mtime_ns):
            if there:
                disk.remove_tree(target)
            store.make_parents(disk, target, root.set(taken.number))
            copied: dict[str, os.stat_result] = {}
            save.snapshot(disk, root, item, taken.number, copied)
            save.check_unchanged(disk, root, copied)


def note_baseline(disk: Disk, root: Root, manifest: Manifest) -> None:
    """Write down what exists before the program writes its first file; on return that is durable."""
    rows = [
        {"path": path, "size": info.st_size, "mtime_ns": info.st_mtime_ns, "inode": info.st_ino,
         "directory": S_ISDIR(info.st_mode)}
        for path, info in in_place(disk, root, manifest).items()
    ]  # fmt: skip
    whose = {"ranks": root.ranks, "saver": root.saver, "patterns": manifest.patterns}
    write_durably(disk, root.baseline, seal({**whose, "files": rows}))


def files_in_place(disk: Disk, root: Root, manifest: Manifest) -> dict[str, os.stat_result]:
    """Every listed file that exists in W, those inside of listed directories one by one."""
    return {path: info for path, info in in_place(disk, root, manifest).items() if not S_ISDIR(info.st_mode)}


def in_place(disk: Disk, root: Root, manifest: Manifest) -> dict[str, os.stat_result]:
    """Every listed file and directory that exists in W, and all that is inside of these directories, each after what
    holds it."""
    found: dict[str, os.stat_result] = {}

    def visit(path: str, info: os.stat_result) -> None:
        found[path] = info
        for name in disk.listdir(os.path.join(root.work, path)) if S_ISDIR(info.st_mode) else ():
            visit(f"{path}/{name}", disk.stat(os.path.join(root.work, path, name)))

    for path, match in manifest.find(root.work, disk.stat, root.rank, root.ranks, listdir=disk.listdir)[0].items():
        visit(path, match.info)
    return found


def read_baseline(disk: Disk, root: Root) -> dict[str, Any]:
    try:
        return _or_damaged(root.baseline, lambda: parse_baseline(disk.read(root.baseline)))  # type: ignore[no-any-return]
    except Damaged as error:
        raise DamagedError(
            f"{root.shown(root.baseline)} is damaged ({error}), so torn first files cannot be told from initial ones: "
            f"check the listed files, then remove it"
        ) from error


def check_baseline(disk: Disk, root: Root, manifest: Manifest) -> list[str]:
    """Without any set: set aside the torn first files of a run that died before its first `hide`; their names.

    Initial files that are as they were stay; one that only grew, and is listed as append, is cut back; a directory is
    made again. Raises `OverwrittenError` if another has changed, since nothing could bring it back.
    """
    torn, grown = judge_baseline(disk, root, manifest)
    for name, size in grown.items():
        disk.truncate(os.path.join(root.work, name), size)
    if torn and not disk.exists(root.stage):  # else `give_up` has done so
        clear_discarded(disk, root)
        # As there: killed, or cut, while it sets aside, the next restore must not clear what this one has.
        disk.mkdir(root.stage)
        disk.sync_dir(root.path)
    for name in torn:
        save.set_aside(disk, root, name)
    for row in read_baseline(disk, root)["files"]:
        if row.get("directory") and not disk.exists(os.path.join(root.work, row["path"])):
            store.make_parents(disk, f"{root.work}/{row['path']}/-", root.work)
    return torn


def judge_baseline(disk: Disk, root: Root, manifest: Manifest) -> tuple[list[str], dict[str, int]]:
    """The torn first files, directories that were made for them as a whole; and the initial ones that only grew, with
    the size they had. Nothing is changed.

    Raises `OverwrittenError` as `check_baseline`. Each rank judges what it owned when the baseline was written, since
    the saver, or the number of ranks, may have changed.
    """
    baseline = read_baseline(disk, root)
    before = {row["path"]: row for row in baseline["files"]}
    then = Root(root.work, root.rank, baseline["ranks"], baseline["saver"])
    judged = manifest.owned_by(then.rank, then.ranks, then.saver).as_of(baseline["patterns"])
    now = in_place(disk, then, judged)
    if baseline["format"] == 1:  # it knows nothing of directories
        now = {name: info for name, info in now.items() if not S_ISDIR(info.st_mode)}
    growing = {entry.filled(then.rank, then.ranks) for entry in judged.entries if entry.kind == "append"}
    grown = {}
    for name, row in before.items():
        path = os.path.join(root.work, name)
        info = now.get(name) or (disk.stat(path) if disk.exists(path) else None)  # perhaps no longer listed
        if row.get("directory") and (not info or S_ISDIR(info.st_mode)):
            continue
        if info and name in growing and info.st_ino == row["inode"] and info.st_size > row["size"]:
            grown[name] = row["size"]
        elif not info or (info.st_size, info.st_mtime_ns) != (row["size"], row["mtime_ns"]):
            raise OverwrittenError(
                f"{name} was there at the first start and {'was changed' if info else 'is gone'} before the first set "
                f"was saved, so the run cannot start again from it: put the initial file back; or, if all is as it "
                f"should be, remove {root.shown(root.baseline)}"
            )
    torn = [name for name in now if name not in before]
    return [name for name in torn if os.path.dirname(name) not in torn], grown


def renew_baseline(disk: Disk, root: Root, manifest: Manifest) -> None:
    """When all ranks have judged by theirs: note what now is listed, and by whom, if that has changed."""
    if disk.exists(root.baseline):
        noted = read_baseline(disk, root)
        if (noted["ranks"], noted["saver"], tuple(noted["patterns"])) != (root.ranks, root.saver, manifest.patterns):
            note_baseline(disk, root, manifest)


def stage(disk: Disk, root: Root, record: Record, how: How, progress: Progress | None = None) -> None:
    """Copy a set out of its safe into `stage/`, through its checksums; W is not touched.

    Raises `Damaged` if a byte of it is not what was committed. `how` learns what the append files begin with.
    """
    tick = _counted(record, progress)
    how.prefixes.clear()

    def bring(file: StoredFile) -> None:
        if file.kind == "append":
            how.prefixes[file.path] = _bring_prefix(disk, root, record.number, file, tick, share=share)
            return
        target = os.path.join(root.stage, file.path)
        _read_out(disk, root.where(record.number, file), file, target, tick, share=share)
        disk.dress(target, file.mode, file.mtime_ns)

    with _reporting(root, f"{record.label} not restored"), ExitStack() as on_error:
        root.guard(file.path for file in record.files)
        on_error.callback(make_stage(disk, root))
        share = disk.room(root.stage) < sum(file.size for file in record.files) * SPARE
        _fill(disk, root.stage, [file for file in record.files if file.kind != "append"])
        disk.each(bring, [file for file in record.files if file.has_bytes])
        _dress_directories(disk, root.stage, record.files)
        on_error.pop_all()


def make_stage(disk: Disk, root: Root) -> Callable[[], object]:
    """Make `stage/` and leave it empty; what undoes that. One that was there says that a restore was killed, so it is
    never removed before the next one has ended: that would take itself for the first and empty `discarded/`."""
    if disk.exists(root.stage) and S_ISDIR(disk.stat(root.stage).st_mode):
        _empty_stage(disk, root)
        return partial(_empty_stage, disk, root)
    clear_stage(disk, root)
    disk.mkdir(root.stage)
    return partial(clear_stage, disk, root)


def _empty_stage(disk: Disk, root: Root) -> None:
    for name in disk.listdir(root.stage):
        disk.remove_tree(os.path.join(root.stage, name))


def _fill(disk: Disk, top: str, files: Sequence[StoredFile]) -> None:
    """Make the directories and links that these files of a set need below `top`; what is there already may stay."""
    parents = {os.path.dirname(file.path) for file in files}
    for path in store.ancestors({*parents, *(file.path for file in files if file.kind in ("tree", "dir"))}):
        with suppress(FileExistsError):  # of another rank
            disk.mkdir(os.path.join(top, path))
    for file in files:
        if file.kind == "link":
            disk.link(file.target, os.path.join(top, file.path))


def _dress_directories(disk: Disk, top: str, files: Sequence[StoredFile]) -> None:
    """Last, as filling a directory changes its time, and it may be read-only."""
    for file in reversed(files):
        if file.kind in ("tree", "dir"):
            disk.dress(os.path.join(top, file.path), file.mode, file.mtime_ns)


def extract(
    disk: Disk, root: Root, record: Record, top: str, progress: codec.Tick | None = None,
    only: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Copy a set, or `only` these files of it, to the directory `top`, which must not have them, through its checksums.

    Append files with the beginning that belongs to the set. Neither the set nor W is changed. Raises `Damaged` if a
    byte is not what was committed; then, and after any error, `top` has a part of it.
    """
    files = [file for file in record.files if only is None or file.path in only]

    def bring(file: StoredFile) -> None:
        target = os.path.join(top, file.path)
        _read_wherever(disk, root, record.number, file, target, progress)
        disk.dress(target, file.mode, file.mtime_ns)

    holds = "the set and the files in place are as they were"
    with root.reporting(RestoreError, f"{record.label} not extracted", holds):
        root.guard(file.path for file in files if file.kind == "append")
        # The records of several ranks, each right by itself, may lead out of `top` together, by links.
        for way in {file.path if file.kind in ("tree", "dir") else os.path.dirname(file.path) for file in files}:
            if not f"{os.path.realpath(os.path.join(top, way))}/".startswith(f"{os.path.realpath(top)}/"):
                raise Damaged(f"{way} would be written outside, through a symbolic link")
        _fill(disk, top, files)
        disk.each(bring, [file for file in files if file.has_bytes])
        _dress_directories(disk, top, files)


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


def _interruptible(tick: codec.Tick | None) -> codec.Tick:
    """Ctrl-C, which waits for the end of what is read, ends it."""

    def ticks(count: int) -> None:
        end_if_asked()
        if tick:
            tick(count)

    return ticks


def clear_stage(disk: Disk, root: Root, record: Record | None = None) -> None:
    """`record`: what was swapped in, so that `stage/` has the files that it replaced. The blocks of large ones are
    given back in the background."""
    large: list[str] = []
    with suppress(OSError):  # then all is waited for
        large = _large_replaced(disk, root, record) if record else []
    for paths in [large, []] if large else [[]]:  # where an open file leaves a name behind: again with none open
        with suppress(OSError):  # on a full disk the copy is the first thing to go; the error is already on its way
            if disk.exists(root.stage):
                with disk.freed_later(paths):
                    disk.remove_tree(root.stage)


def _large_replaced(disk: Disk, root: Root, record: Record) -> list[str]:
    """None on a network file system, where a name would stay; nor where the program needs the room at once."""
    paths = [os.path.join(root.stage, file.path) for file in record.files if file.kind == "file" and file.size >= LARGE]
    if not paths or disk.place(root.path).mount is None:
        return []
    there = {path: info for path in paths if (info := disk.stat_or_none(path)) and S_ISREG(info.st_mode)}
    full = disk.room(root.path) < SPARE * sum(info.st_size for info in there.values())
    return [] if full else list(there)


def keep_prefixes(disk: Disk, root: Root, record: Record, at_most: int) -> list[str]:
    """Rule (5): on return the copies are durable, so that the program may do with its append files what it likes.

    What has more than `at_most` bytes is copied only as a reflink. For what cannot be, or has no room, the set goes on
    to need W, and the sentences that say so are returned. Killed inside: a copy is whole, or has no name.
    """
    number, what = record.number, f"cannot keep what {record.label} needs of its append files"
    files = [file for file in record.files if file.kind == "append"]

    def keep(each: tuple[int, StoredFile]) -> str:
        index, file = each
        new, target = f"{root.set(number)}/append.{index}.new", root.prefix(number, file.path)
        try:
            if disk.exists(new):  # of a process that died here
                disk.remove(new)
            _where_whole(disk, root, number, file, lambda path: _read_out(disk, path, file, new, most=at_most), new)
            disk.dress(new, file.mode, file.mtime_ns)
            # The bytes before the name: else a power cut leaves a copy that is taken for whole, and is empty.
            disk.sync_files([new])
            is_ours(disk, *_ways_to_prefix(root, number, file))
            store.make_parents(disk, target, root.set(number))
            # By a rename: else a kill in the middle of copying leaves half of it, and the next restore makes none.
            disk.rename(new, target)
        except OSError as error:
            if error.errno not in (errno.EFBIG, *NO_ROOM):
                raise
            with suppress(OSError):  # on a full disk every block counts
                disk.remove(new)
            return _not_kept(record, file, at_most, error)
        return ""

    with _reporting(root, what):
        try:
            lacking = [each for each in enumerate(files) if not disk.exists(root.prefix(number, each[1].path))]
            reasons = disk.each(keep, lacking)
        except Damaged as error:
            raise RestoreError(f"{what}: something writes to them: {error}") from error
        # Before the program cuts what is in W: a power cut could leave that, and forget the way to the copy. Also to
        # one that is there already, since the last life may have been killed before this.
        ways = store.ways((os.path.dirname(root.prefix(number, file.path)) for file in files), {root.set(number)})
        disk.sync((), [way for way in ways if disk.exists(way)])
    return [reason for reason in reasons if reason]


def _not_kept(record: Record, file: StoredFile, at_most: int, error: OSError) -> str:
    """What it means that there is no copy; nothing, if with 0 the user has said so before."""
    why = error.strerror
    if error.errno == errno.EFBIG:
        why = f"over copy_append_below ({at_most}), and there are no reflinks here"
        if not at_most:
            return ""
    return (
        f"{file.path}: its first {file.size} bytes, which {record.label} needs, are not copied ({why}): as long as the "
        f"program only adds to them all is well; but if it cuts the file or begins it anew, and is killed before its "
        f"next set is complete, this set cannot be given back"
    )


def prefixes_kept(disk: Disk, root: Root, number: int, file: StoredFile) -> Iterator[str]:
    """The copies of the beginning of an append file that may be long enough for this set: its own; and those of other
    sets, of which what it needs may be the beginning."""
    sets = [(state, n) for state in ("set", "failed") for n in root.numbers(disk, state)]
    for state, n in sorted(sets, key=lambda each: each != ("set", number)):
        path, ways = root.prefix(n, file.path, state), _ways_to_prefix(root, n, file, state)
        if _is_there(disk, *ways) and disk.exists(path) and disk.stat(path).st_size >= file.size:
            yield path


def _is_there(disk: Disk, *ways: str) -> bool:
    """Whether these directories lead to a copy; over a symbolic link none does."""
    with suppress(OSError):
        return is_ours(disk, *ways)
    return False


def _ways_to_prefix(root: Root, number: int, file: StoredFile, state: str = "set") -> list[str]:
    """The directories down to the copy of the beginning of an append file."""
    top = root.prefix(number, "", state).rstrip("/")
    return [top, *(f"{top}/{way}" for way in store.ancestors({os.path.dirname(file.path)}))]


def begun_anew(disk: Disk, root: Root, number: int, file: StoredFile) -> bool:
    """Whether there is a copy of an append file that is needed, as W does not have what the set needs."""
    if not any(prefixes_kept(disk, root, number, file)):
        return False
    try:
        _read_prefix(disk, root.where(number, file), file, None)
    except Damaged:
        return True
    return False


def _where_whole(
    disk: Disk, root: Root, number: int, file: StoredFile, read: Callable[[str], Result], target: str = ""
) -> Result:
    """What `read` gives of an append file in W, or else of a copy of its beginning. Raises `Damaged`, with what is left
    of it, if none is what was committed. `target`: what `read` makes, and a failure leaves."""
    why: Damaged | None = None
    for path in itertools.chain([root.where(number, file)], prefixes_kept(disk, root, number, file)):
        try:
            return read(path)
        except Damaged as error:
            why = why or error
            if target and disk.exists(target):
                disk.remove(target)
    raise Damaged(f"{why}; {_left(disk, root, file)}") from why


def _left(disk: Disk, root: Root, file: StoredFile) -> str:
    """What is still there of the beginning of an append file, as far as the checksums of all sets can tell."""
    records = [candidate.record for candidate in survey(disk, root) if candidate.record]
    known = {f for record in records for f in record.files if (f.path, f.kind) == (file.path, "append")}
    parts = [part for part in sorted(known, key=lambda part: -part.size) if 0 < part.size <= file.size]
    copies = [root.prefix(n, file.path, state) for state in ("set", "failed") for n in root.numbers(disk, state)]
    found = "no copy of them is kept"
    for part, path in itertools.product(parts, [root.where(0, file), f"{root.discarded}/{file.path}", *copies]):
        with suppress(Damaged, OSError):
            _read_out(disk, path, part)
            found = f"the first {part.size} of them are in {os.path.relpath(path, root.work)}"
            break
    return f"its first {file.size} bytes, which the set needs, were cut, begun anew or changed since, and {found}"


def _bring_prefix(
    disk: Disk, root: Root, number: int, file: StoredFile, tick: codec.Tick | None, *, share: bool
) -> codec.Prefix:
    """Look at what a set needs of an append file; copy it to `stage/` if it is not in W any more."""
    staged = os.path.join(root.stage, file.path)

    def bring(path: str) -> codec.Prefix:
        if path == root.where(number, file):
            return _read_prefix(disk, path, file, tick)
        store.make_parents(disk, staged, root.stage)
        _read_out(disk, path, file, staged, share=share)
        disk.dress(staged, file.mode, file.mtime_ns)
        return _read_prefix(disk, staged, file, tick)

    return _where_whole(disk, root, number, file, bring, staged)


def _read_wherever(
    disk: Disk, root: Root, number: int, file: StoredFile, target: str, tick: codec.Tick | None
) -> None:  # fmt: skip
    """As `_read_out`, of a file of a set, wherever that is."""
    if file.kind != "append":
        _read_out(disk, root.where(number, file), file, target, tick)
        return
    _where_whole(disk, root, number, file, lambda path: _read_out(disk, path, file, target), target)
    if tick:  # now: what was read in vain does not count
        tick(file.size)


def _read_prefix(disk: Disk, path: str, file: StoredFile, tick: codec.Tick | None) -> codec.Prefix:
    """What a set has of an append file, at this path. Raises `Damaged` unless it is what was committed."""

    def read() -> tuple[int, str, codec.Prefix]:
        info = disk.stat(path)
        if not S_ISREG(info.st_mode):  # to cut it would cut something else
            raise Damaged(f"{file.path} is no longer a file")
        with disk.open(path) as source:
            size, checksum, prefix = codec.extend(source, info.st_ino, file.size, None)
            return size, checksum, prefix

    size, checksum, prefix = _or_damaged(path, read)
    _compare(file, size, checksum)
    if tick:
        tick(size)
    return prefix  # type: ignore[no-any-return]


def _read_out(
    disk: Disk, path: str, file: StoredFile, target: str = "", tick: codec.Tick | None = None, *, share: bool = True,
    most: float = math.inf,
) -> None:  # fmt: skip
    """Read a file of a set, into `target` if given. Raises `Damaged` unless it is what was committed.

    `share`: the target is a reflink wherever it can be, else only of what would have to come from the disk anyhow.
    `most`: of a file with more bytes it is a reflink, or the error EFBIG.
    """
    tick = _interruptible(tick)
    grows = file.kind == "append"

    def read() -> tuple[int, str]:
        with disk.open(path) as source:
            size = disk.stat_of(source).st_size
            if file.kept == "raw" and file.kind == "file" and size != file.size:
                return size, ""  # not a byte of it is read: it may be without end
            if not target:
                return through(source, None)
            with disk.create(target) as sink:
                copied = file.kept != "raw" or (not share and disk.cached(source))
                # Of a file that only grows without what came after: the rows of another step.
                if copied or not disk.clone(source, sink, file.size if grows else None):
                    if file.size > most:
                        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), target)
                    return through(source, sink)
        with disk.open(target) as source:  # the reflink itself, as it is what the program will read, from the disk
            return through(source, None)

    def through(source: Any, sink: Any) -> tuple[int, str]:
        if file.kept == "zst":
            return codec.unpack(source, file.size, sink, tick)
        if file.kept == "tar":
            source.seek(file.offset)
        if file.kept == "tar" or grows:
            return codec.copy(source, sink, file.size, tick=tick)
        size = os.fstat(source.fileno()).st_size
        return codec.copy_sparse(source, sink, size, disk.extents(source, size), tick)

    _compare(file, *_or_damaged(path, read))


def _compare(file: StoredFile, size: int, checksum: str) -> None:
    if size > file.size and file.kept == "zst":
        raise Damaged(f"{file.path} has more than {file.size} bytes")
    if size != file.size:
        raise Damaged(f"{file.path} has {size} bytes instead of {file.size}")
    if checksum != file.checksum:
        raise Damaged(f"the checksum of {file.path} differs")


def swap(disk: Disk, root: Root, manifest: Manifest, record: Record, *, fresh: bool) -> list[str]:
    """Put the staged files into W and set aside what the set does not have; the names of that.

    Killed anywhere, the next restore repeats it to the same end. `fresh`: no restore was killed before this one, so
    what an earlier one set aside may go. `stage/` is the caller's to clear, when nothing is left to be done: until then
    it says that a restore is at work.
    """
    with _reporting(root, f"{record.label} not restored completely"):
        theirs = {file.path for file in record.files}
        # What the user has listed since is no left-over of the lost iteration; and what this rank had then may now be
        # another's, if the saver has changed.
        then = manifest.owned_by(root.rank, root.ranks, record.saver).as_of(record.patterns)
        found, _ = then.find(root.work, disk.stat, root.rank, root.ranks, listdir=disk.listdir)
        strays = [path for path in found if path not in theirs]
        # The life that committed this set may have died before it did this; from now on W is all there is beside it.
        disk.sync_dir(root.set(record.number))
        disk.sync_dir(root.path)
        if fresh:
            clear_discarded(disk, root)
        anew = [file.path for file in record.files if file.kind == "append" and _cut_back(disk, root, file)]
        for file in _movable(record):
            _place(disk, root, file)
        for path in strays:
            if disk.exists(os.path.join(root.work, path)):  # else it went aside with its directory
                save.set_aside(disk, root, path)
        if disk.exists(root.lost):  # it spoke of what was in W before
            disk.remove(root.lost)
    return anew + strays


def _cut_back(disk: Disk, root: Root, file: StoredFile) -> bool:
    """Give an append file the length it had, or, if it was begun anew, put the copy that is staged in its place;
    whether another one was set aside for that."""
    target = os.path.join(root.work, file.path)
    if not disk.exists(os.path.join(root.stage, file.path)):
        if disk.stat(target).st_size > file.size:
            disk.truncate(target, file.size)
        return False
    # The bytes, and then the name, as the copy it came from may be in a newer set, which goes: else a power cut could
    # leave neither.
    disk.sync_files([os.path.join(root.stage, file.path)])
    if another := disk.exists(target):  # rows that may be nowhere else, of whoever has cut it
        save.set_aside(disk, root, file.path)
    _place(disk, root, file)
    disk.sync((), store.ways({os.path.dirname(target)}, {root.work}))
    return another


def bring_in(disk: Disk, root: Root, record: Record) -> None:
    """Put those files of a staged set into W that are not there; what is there stays as it is."""
    with _reporting(root, f"{record.label} not brought back"):
        for file in _movable(record):
            if not disk.exists(os.path.join(root.work, file.path)):
                _place(disk, root, file)
        disk.remove_tree(root.stage)


def _movable(record: Record) -> list[StoredFile]:
    """What moves into W by one rename each: files, and directories that were taken as a whole."""
    trees = {file.path for file in record.files if file.kind == "tree"}
    return [file for file in record.files if file.kind in ("file", "tree") and trees.isdisjoint(above(file.path))]


def _place(disk: Disk, root: Root, file: StoredFile) -> None:
    source, target = os.path.join(root.stage, file.path), os.path.join(root.work, file.path)
    store.make_parents(disk, target, root.work)
    there = disk.stat_or_none(target)
    if there and (file.kind == "tree" or S_ISDIR(there.st_mode)):
        save.set_aside(disk, root, file.path)  # a directory cannot be replaced by a rename
        there = None
    # One rename a file: killed between two, W is mixed, and the next restore, which must come first, repeats all. Where
    # that can be, the old file goes to `stage/`: a rename that replaces one makes ext4 write out the new one at once.
    if not (there and disk.exchange(source, target)):
        disk.rename(source, target)


def clear_discarded(disk: Disk, root: Root) -> None:
    if disk.exists(root.discarded):
        disk.remove_tree(root.discarded)


def drop_newer(disk: Disk, root: Root, manifest: Manifest, number: int, patterns: tuple[str, ...]) -> list[str]:
    """Remove all sets above `number`, and what never became one. On return they cannot come back.

    `patterns`: those of the set that was given back. A file that was listed only since then, and is nowhere but in a
    newer set, goes back to W: it may be one of the program's inputs. What of these is damaged itself is returned: then
    its set is kept as a failed one, until the next commit or another failure of its number.
    """
    with _reporting(root, "cannot remove the sets that were passed over"):
        newer = [n for n in root.numbers(disk, "set") if n > number]
        later = [entry for entry in manifest.entries if entry.pattern not in patterns]
        left = []
        for n in newer if later else ():
            missed = []
            for path in _moved_into(disk, root, n):
                if any(entry.means(path, root.rank, root.ranks) for entry in later):
                    try:
                        _take_out(disk, root, n, path)
                    except Damaged:
                        missed.append(path)
            if missed:
                save.fail(disk, root, n)
                left += missed
        save.drop(disk, root, [n for n in newer if disk.exists(root.set(n))])
        return left


def _moved_into(disk: Disk, root: Root, number: int) -> list[str]:
    """What a set took out of W, by its list, or, if that is damaged, by its record."""
    for read in (_moved_by_list, _moved_by_record):
        with suppress(Damaged):
            refuse_links(disk, root, number)
            paths = read(disk, root, number)
            refuse_links(disk, root, number, paths)
            return paths
    return []


def _moved_by_list(disk: Disk, root: Root, number: int) -> list[str]:
    return [item.path for item in read_taken(disk, root, number).files if item.kind == "move"]


def _moved_by_record(disk: Disk, root: Root, number: int) -> list[str]:
    return [file.path for file in _movable(read_record(disk, root, number))]


def _take_out(disk: Disk, root: Root, number: int, path: str) -> None:
    """Bring a file or directory that only this set has back into W, by one rename. Raises `Damaged`."""
    kept, target = root.stored(number, path), os.path.join(root.work, path)
    if disk.exists(target):
        return
    files: list[StoredFile] = []
    if disk.exists(root.record(number)):
        with suppress(Damaged):  # then nothing was compressed or bundled and removed, or it cannot be found
            record = read_record(disk, root, number)
            files = [file for file in record.files if file.path == path or file.path.startswith(path + "/")]
    if any(file.kept != "raw" for file in files):
        kept = _unpacked(disk, root, number, files, path)
    if not disk.exists(kept):
        raise Damaged(f"{path} is missing")
    store.make_parents(disk, target, root.work)
    disk.rename(kept, target)
    # Its name in W before the set goes for good: else a power cut could leave it without any.
    disk.sync_dir(os.path.dirname(target))


def _unpacked(disk: Disk, root: Root, number: int, files: list[StoredFile], path: str) -> str:
    """Make in `stage/`, durably, what a set keeps compressed or bundled: a kill must not leave half of it in W."""
    if disk.exists(root.stage):
        disk.remove_tree(root.stage)
    disk.mkdir(root.stage)
    store.make_parents(disk, os.path.join(root.stage, path), root.stage)
    made, directories = [], [os.path.dirname(os.path.join(root.stage, path))]
    for file in files:
        target = os.path.join(root.stage, file.path)
        if file.kind in ("tree", "dir"):
            disk.mkdir(target)
            directories.append(target)
        elif file.kind == "link":
            disk.link(file.target, target)
        else:
            _read_out(disk, root.where(number, file), file, target)
            disk.dress(target, file.mode, file.mtime_ns)
            made.append(target)
    disk.sync(made, directories)
    for file in reversed(files):
        if file.kind in ("tree", "dir"):
            disk.dress(os.path.join(root.stage, file.path), file.mode, file.mtime_ns)
    return os.path.join(root.stage, path)


def verify(
    disk: Disk, root: Root, tick: codec.Tick | None = None, numbers: Collection[int] | None = None
) -> dict[int, str]:
    """What each set is, or of these `numbers`: "committed", "uncommitted", or why it is damaged. Reads all, changes
    nothing."""
    states = {}
    for candidate in survey(disk, root):
        number, record = candidate.number, candidate.record
        if numbers is not None and number not in numbers:
            continue
        states[number] = candidate.reason if disk.exists(root.record(number)) else "uncommitted"
        if record is None:
            continue
        try:
            files = [file for file in record.files if file.has_bytes]
            disk.each(lambda file, n=number: _read_wherever(disk, root, n, file, "", tick), files)  # type: ignore[misc]
            states[number] = "committed"
        except Damaged as error:
            states[number] = str(error)
    return states


def finish_mark(disk: Disk, root: Root) -> dict[str, Any] | None:
    """The finish mark, if there is one. Raises `DamagedError` if it cannot be read."""
    if not disk.exists(root.finished):
        return None
    try:
        mark: dict[str, Any] = _or_damaged(root.finished, lambda: parse_mark(disk.read(root.finished)))
    except Damaged as error:
        raise DamagedError(
            f"{root.shown(root.finished)} is damaged ({error}), so it is not known whether this run was finished: "
            f"check the files in place, then remove it to go on from the last set"
        ) from error
    return mark


def changed_since(disk: Disk, root: Root, mark: dict[str, Any]) -> list[str]:
    """The final files that are no longer there, or no longer of the size they had."""

    def differs(row: dict[str, Any]) -> bool:
        path = os.path.join(root.work, row["path"])
        return not disk.exists(path) or (row["kind"] in ("file", "append") and disk.stat(path).st_size != row["size"])

    return [row["path"] for row in mark["files"] if differs(row)]
