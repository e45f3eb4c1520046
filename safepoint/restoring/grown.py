"""Append files: what a set needs of them is in W; where the program may change it a copy is kept. Rule (5)."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from safepoint.disk import Disk, codec
from safepoint.disk.files import NO_ROOM, exists, sync
from safepoint.errors import RestoreError
from safepoint.record import Record, StoredFile
from safepoint.restoring.read import Damaged, read_out, read_prefix, reporting
from safepoint.restoring.survey import survey
from safepoint.root import Root, State, is_ours
from safepoint.saving import contents

Result = TypeVar("Result")


def keep_prefixes(root: Root, record: Record, at_most: int) -> list[str]:
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
            if exists(root.disk, new):  # of a process that died here
                root.disk.remove(new)
            _where_whole(root, number, file, lambda path: read_out(root.disk, path, file, new, most=at_most), new)
            root.disk.set_mode_and_time(new, file.mode, file.mtime_ns, file.group)
            # The bytes before the name: else a power cut leaves a copy that is taken for whole, and is empty.
            root.disk.sync_files([new])
            is_ours(root.disk, *_ways_to_prefix(root, number, file))
            contents.make_parents(root.disk, target, root.set(number), root.mode_in)
            # By a rename: else a kill in the middle of copying leaves half of it, and the next restore makes none.
            root.disk.rename(new, target)
        except OSError as error:
            if error.errno not in (errno.EFBIG, *NO_ROOM):
                raise
            with suppress(OSError):  # on a full disk every block counts
                root.disk.remove(new)
            return _not_kept(record, file, at_most, error)
        return ""

    with reporting(root, what):
        try:
            lacking = [each for each in enumerate(files) if not exists(root.disk, root.prefix(number, each[1].path))]
            reasons = root.disk.helpers.each(keep, lacking)
        except Damaged as error:
            raise RestoreError(f"{what}: something writes to them: {error}") from error
        # Before the program cuts what is in W: a power cut could leave that, and forget the way to the copy. Also to
        # one that is there already, since the last life may have been killed before this.
        ways = contents.directories_up_to(
            (os.path.dirname(root.prefix(number, file.path)) for file in files), {root.set(number)}
        )
        sync(root.disk, (), [way for way in ways if exists(root.disk, way)])
    return [reason for reason in reasons if reason]


def _not_kept(record: Record, file: StoredFile, at_most: int, error: OSError) -> str:
    """What it means that there is no copy; nothing, if with 0 the user has said so before."""
    why = error.strerror
    if error.errno == errno.EFBIG:
        why = f"over copy_append_below ({at_most}), and no reflink of it could be had"
        if not at_most:
            return ""
    return (
        f"{file.path}: its first {file.size} bytes, which {record.label} needs, are not copied ({why}): as long as the "
        f"program only adds to them all is well; but if it cuts the file or begins it anew, and is killed before its "
        f"next set is complete, this set cannot be given back"
    )


def prefixes_kept(root: Root, number: int, file: StoredFile) -> Iterator[str]:
    """The copies of the beginning of an append file that may be long enough for this set: its own; and those of other
    sets, of which what it needs may be the beginning."""
    standing = root.standing()
    failed: list[tuple[State, int]] = [("failed", n) for n in standing["failed"]]
    sets: list[tuple[State, int]] = [*(("set", n) for n in standing["set"]), *failed]
    for state, n in sorted(sets, key=lambda each: each != ("set", number)):
        path, ways = root.prefix(n, file.path, state), _ways_to_prefix(root, n, file, state)
        if _is_there(root.disk, *ways) and exists(root.disk, path) and root.disk.stat(path).st_size >= file.size:
            yield path


def _is_there(disk: Disk, *ways: str) -> bool:
    """Whether these directories lead to a copy; over a symbolic link none does."""
    with suppress(OSError):
        return is_ours(disk, *ways)
    return False


def _ways_to_prefix(root: Root, number: int, file: StoredFile, state: State = "set") -> list[str]:
    """The directories down to the copy of the beginning of an append file."""
    top = root.prefix(number, "", state).rstrip("/")
    return [top, *(f"{top}/{way}" for way in contents.ancestors({os.path.dirname(file.path)}))]


def begun_anew(root: Root, number: int, file: StoredFile) -> bool:
    """Whether there is a copy of an append file that is needed, as W does not have what the set needs."""
    if not any(prefixes_kept(root, number, file)):
        return False
    try:
        read_prefix(root.disk, root.where(number, file), file, None)
    except Damaged:
        return True
    return False


def _where_whole(root: Root, number: int, file: StoredFile, read: Callable[[str], Result], target: str = "") -> Result:
    """What `read` gives of an append file in W, or else of a copy of its beginning. Raises `Damaged`, with what is left
    of it, if none is what was committed. `target`: what `read` makes, and a failure leaves."""
    why: Damaged | None = None
    for path in itertools.chain([root.where(number, file)], prefixes_kept(root, number, file)):
        try:
            return read(path)
        except Damaged as error:
            why = why or error
            if target and exists(root.disk, target):
                root.disk.remove(target)
    raise Damaged(f"{why}; {_left(root, file)}") from why


def _left(root: Root, file: StoredFile) -> str:
    """What is still there of the beginning of an append file, as far as the checksums of all sets can tell."""
    records = [candidate.record for candidate in survey(root) if candidate.record]
    known = {f for record in records for f in record.files if (f.path, f.kind) == (file.path, "append")}
    parts = [part for part in sorted(known, key=lambda part: -part.size) if 0 < part.size <= file.size]
    copies = [root.prefix(n, file.path, state) for state in ("set", "failed") for n in root.numbers(state)]
    found = "no copy of them is kept"
    for part, path in itertools.product(parts, [root.where(0, file), f"{root.discarded}/{file.path}", *copies]):
        with suppress(Damaged, OSError):
            read_out(root.disk, path, part)
            found = f"the first {part.size} of them are in {os.path.relpath(path, root.work)}"
            break
    return f"its first {file.size} bytes, which the set needs, were cut, begun anew or changed since, and {found}"


def bring_prefix(root: Root, number: int, file: StoredFile, tick: codec.Tick | None, *, share: bool) -> codec.Prefix:
    """Look at what a set needs of an append file; copy it to `stage/` if it is not in W any more."""
    staged = os.path.join(root.stage, file.path)

    def bring(path: str) -> codec.Prefix:
        if path == root.where(number, file):
            return read_prefix(root.disk, path, file, tick)
        contents.make_parents(root.disk, staged, root.stage)
        read_out(root.disk, path, file, staged, share=share)
        root.disk.set_mode_and_time(staged, file.mode, file.mtime_ns, file.group)
        return read_prefix(root.disk, staged, file, tick)

    return _where_whole(root, number, file, bring, staged)


def read_wherever(
    root: Root, number: int, file: StoredFile, target: str, tick: codec.Tick | None
) -> None:  # fmt: skip
    """As `read_out`, of a file of a set, wherever that is."""
    if file.kind != "append":
        read_out(root.disk, root.where(number, file), file, target, tick)
        return
    _where_whole(root, number, file, lambda path: read_out(root.disk, path, file, target), target)
    if tick:  # now: what was read in vain does not count
        tick(file.size)
