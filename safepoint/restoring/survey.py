"""Every set below a root, and its state: the executable twin of the table in `record`. Nothing is changed here."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from stat import S_ISLNK
from typing import Any, NamedTuple, TypeVar

from safepoint.disk import Disk
from safepoint.disk.files import exists, listdir, read, stat_or_none
from safepoint.errors import DamagedError, UsageError
from safepoint.record import Record, Taken, key, life_of, parse_mark, parse_record, parse_taken
from safepoint.restoring.read import Damaged, or_damaged
from safepoint.root import Root, State, is_ours
from safepoint.saving import contents

_NO_WAY = {errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}  # what a name says that leads nowhere in a set
Sealed = TypeVar("Sealed", Record, Taken)


class Candidate(NamedTuple):
    """A set as found: with a record it can be tried; else the reason says why not. `key` orders the sets of all lives;
    of a set that cannot say its life it is that of the one before."""

    number: int
    record: Record | None
    reason: str = ""
    key: int = 0
    whose: Record | Taken | None = None  # what says which ranks took it, if that can be read
    committed: bool = False  # it has a record, whether that can be read or not
    measured: bool = False  # the sizes of its files were looked at


def refuse_foreign(root: Root, found: Sequence[Candidate], finished: int, *, alone: bool) -> dict[int, str]:
    """Raise `UsageError` if the newest set is one that this program, with its number of ranks, could not give back
    whole; of older such sets the reasons, by number. `found`: the sets that `survey` has found after `finished`.

    `alone`: without coordination this rank cannot know who else saved, so it looks for other roots on the disk; and so
    it does if it has no set.
    """
    reasons = {c.number: _foreign(root, c.whose) for c in found if c.whose}
    if reasons and (newest := reasons[max(reasons)]):
        raise UsageError(f"{newest}; nothing was changed")
    look = (alone or not found) and root.rank == (root.saver or 0)
    for other in root.beyond() if look and root.saver is not None else ():
        if any(_look(other, n, 0) for n in sets_after(other, finished)):
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
    if whose.per_rank and (whose.ranks != root.ranks or (whose.saver is None) != (root.saver is None)):
        how = f"by {_ranks(whose.ranks)}{', each in a directory of its own' * (whose.saver is None)}"
        return f"{whose.label} was saved {how}, and {now}: a set with files of each rank needs the same number again"
    if not whose.per_rank and whose.saver is not None and whose.saver >= root.ranks:
        who = f"rank {whose.saver}, its saver among {_ranks(whose.ranks)}"
        return f"the files of {whose.label} are with {who}, and {now}: start it with more than {whose.saver}"
    return ""


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def once_committed(root: Root, found: Sequence[Candidate]) -> bool:
    """Whether this rank knows that all had committed a set, or has one that is damaged: then there is no fresh start.

    The baseline goes after the first set that every rank has committed.
    """
    damaged = [c for c in found if c.committed and not c.record]
    return bool(damaged) or (bool(found) and not exists(root.disk, root.baseline))


def survey(
    root: Root, after: int = 0, numbers: Sequence[int] | None = None, *, all_sizes: bool = True
) -> list[Candidate]:
    """All sets with a key above `after`, newest first, judged by their records and the sizes of their files. Without
    `all_sizes` those below the newest that is whole are judged by their records alone. `numbers`: those that there are,
    if that is known."""
    found: list[Candidate] = []
    life = life_of(after)  # in one root numbers grow from life to life
    for number in root.numbers("set") if numbers is None else numbers:
        candidate = _look(root, number, life)
        if candidate:
            life = life_of(candidate.key)
            found += [candidate] * (candidate.key > after)
    found.reverse()
    for position, candidate in enumerate(found):
        if candidate.record:
            found[position] = measured(root, candidate)
            if found[position].record and not all_sizes:
                break
    return found


def _look(root: Root, number: int, life: int) -> Candidate | None:
    """A set as its names and its record tell, in the life after this one; None if it was only begun."""
    record, reason, committed = None, "", False
    try:
        if not is_ours(root.disk, top := root.set(number)):
            return None
        names = {entry.name: entry for entry in root.disk.scan(top)}
        committed = "record.json" in names
        for name in ("files", "packed"):
            if name in names and names[name].is_symlink():
                is_ours(root.disk, f"{top}/{name}")
        if committed:
            record = read_record(root, number)
        elif _is_empty(root, number, names):
            return None
        else:
            reason = "it was never committed"
    except Damaged as error:
        reason = str(error)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not exists(root.disk, root.set(number)):
            return None  # a run at work has removed it meanwhile
        if error.errno not in _NO_WAY:
            raise
        reason = f"{root.shown(error.filename)}: {error.strerror}"
        committed = committed or exists(root.disk, root.record(number))  # behind a link, say
    taken = None if record else _try_taken(root.disk, root.set(number))
    whose = record or taken
    life = whose.life if whose else life
    says = record or (taken if taken and not committed and taken.number == number else None)
    return Candidate(number, record, reason, key(life, number), says, committed)


def measured(root: Root, candidate: Candidate) -> Candidate:
    """The set judged by the sizes of its files, too."""
    try:
        if candidate.record and not candidate.measured:
            _check_sizes(root, candidate.record)
    except Damaged as error:
        return candidate._replace(record=None, reason=str(error))
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        return candidate._replace(record=None, reason=f"{root.shown(error.filename)}: {error.strerror}")
    return candidate._replace(measured=True)


def sets_after(root: Root, finished: int, state: State = "set") -> list[int]:
    """The numbers of the sets in this state that the finish mark, of the key `finished`, has not ended."""
    numbers = root.numbers(state)
    if not finished:
        return numbers
    whats = {number: _try_taken(root.disk, root.state(state, number)) for number in numbers}
    return [n for n, what in whats.items() if key(what.life if what else life_of(finished), n) > finished]


def _try_taken(disk: Disk, top: str) -> Taken | None:
    """What `hide` wrote down in the set below `top`, if that can be read."""
    path = f"{top}/taken.json"
    with suppress(Damaged, OSError):
        is_ours(disk, top)
        with or_damaged(path):
            return parse_taken(read(disk, path))
    return None


def refuse_links(root: Root, number: int, paths: Iterable[str] = ()) -> None:
    """Raise `Damaged` if the way to one of these files of a set leads over a symbolic link: what is behind it is none
    of ours, so it must be neither moved nor deleted."""
    tops = [root.stored(number, ""), root.packed_in(number)]
    _refuse_links(root, [*tops, *_ways(root, number, paths)], root.set(number))


def _ways(root: Root, number: int, paths: Iterable[str]) -> list[str]:
    """The directories in a set on the way to these files, below those that hold all of them."""
    inner = contents.ancestors({os.path.dirname(path) for path in paths})
    return [os.path.join(top, name) for top in (root.stored(number, ""), root.packed_in(number)) for name in inner]


def _refuse_links(root: Root, ways: Iterable[str], *directories: str) -> None:
    try:
        is_ours(root.disk, *directories)
        for way in ways:  # no slash at an end: that follows a link
            if (info := stat_or_none(root.disk, way)) and S_ISLNK(info.st_mode):
                is_ours(root.disk, way)
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        raise Damaged(f"{root.shown(error.filename)}: {error.strerror}") from error


def read_record(root: Root, number: int, new: str = "") -> Record:
    """The record of a set. Raises `Damaged` if it is not what was written there."""
    return _read(root.disk, root.record(number) + new, number, parse_record)


def read_taken(root: Root, number: int) -> Taken:
    """What `hide` wrote down of a set. Raises `Damaged` if it is not what was written there."""
    return _read(root.disk, root.taken(number), number, parse_taken)


def _read(disk: Disk, path: str, number: int, parse: Callable[[bytes], Sealed]) -> Sealed:
    with or_damaged(path):
        what = parse(read(disk, path))
    if what.number != number:
        raise Damaged(f"{os.path.basename(path)} is that of set {what.number}")
    return what


def _is_empty(root: Root, number: int, names: Collection[str]) -> bool:
    taken, kept = root.taken(number), root.stored(number, "")
    begun = "taken.json" in names and root.disk.stat(taken).st_size
    return not begun and not ("files" in names and listdir(root.disk, kept))


def _check_sizes(root: Root, record: Record) -> None:
    """What a look at the names tells. Directories and links need not be there: the record has all of them."""
    bundled = 0
    number = record.number
    _refuse_links(root, _ways(root, number, (file.path for file in record.files if file.kind == "file")))
    for file in record.files:
        # Append files are in W, where anything may have happened; they are read when staged.
        if file.kind != "file":
            continue
        if file.kept == "tar":
            bundled = max(bundled, file.offset + file.size)
            continue
        info = stat_or_none(root.disk, root.where(record.number, file))
        if info is None:
            raise Damaged(f"{file.path} is missing")
        if info.st_size != file.stored_size:
            raise Damaged(f"{file.path} has {info.st_size} bytes instead of {file.stored_size}")
    if bundled:
        path = root.bundle(record.number)
        if not exists(root.disk, path):
            raise Damaged(f"{os.path.basename(path)} is missing")
        size = root.disk.stat(path).st_size
        if size < bundled:
            raise Damaged(f"{os.path.basename(path)} has {size} bytes, and files in it end at {bundled}")


def finish_mark(root: Root) -> dict[str, Any] | None:
    """The finish mark, if there is one. Raises `DamagedError` if it cannot be read."""
    if not exists(root.disk, root.finished):
        return None
    try:
        with or_damaged(root.finished):
            return parse_mark(read(root.disk, root.finished))
    except Damaged as error:
        raise DamagedError(
            f"{root.shown(root.finished)} is damaged ({error}), so it is not known whether this run was finished: "
            f"check the files in place, then remove it to go on from the last set"
        ) from error


def changed_since(root: Root, mark: dict[str, Any]) -> list[str]:
    """The final files that are no longer there, or no longer of the size they had."""

    def differs(row: dict[str, Any]) -> bool:
        path = os.path.join(root.work, row["path"])
        return not exists(root.disk, path) or (
            row["kind"] in ("file", "append") and root.disk.stat(path).st_size != row["size"]
        )

    return [row["path"] for row in mark["files"] if differs(row)]
