"""The commit point of a set, and that of a finished run; on return they survive a power cut. Rules (1) and (3)."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Sequence
from typing import Any

from safepoint.disk import SyncFailed, codec
from safepoint.disk.files import exists, sync
from safepoint.errors import RefusedFileError, SafepointError, SaveError
from safepoint.patterns import above
from safepoint.record import Item, Life, Record, Taken, label
from safepoint.root import Root, State
from safepoint.saving.back import NotPutBack, cause_of, fail, intact, put_back, save_error, spoil
from safepoint.saving.memory import Memory, remember_lost
from safepoint.saving.store import keep_in_place, store
from safepoint.sealed import seal, write_durably


def secure(
    root: Root, taken: Taken, previous: Record | None, memory: Memory, *, give_back: bool = False,
    resumed: bool = False,
) -> Record:  # fmt: skip
    """Store and commit a taken set; on return it is durable. On `SaveError` the sets before it are intact, and the
    files are back in W (`give_back`) or kept below the root. `resumed`: a process may have died while it stored this
    set.

    Killed inside: `settle` finishes this if it can prove the set whole; else the previous set is restored.
    """
    number, step = taken.number, taken.step
    holds = intact(previous)
    try:
        check_ours(root, taken)
        _check_tables(taken, memory)
        record = store(root, taken, memory, resumed=resumed)
        _check_carried(taken, record, previous)
        check_ours(root, taken)  # here too, as storing takes long: another run may have a set of this number
        commit(root, number)
        confirm(root)
        memory.committed_prefixes = dict(memory.pending_prefixes)
    except BaseException as error:
        check_ours(root, taken)  # else what is marked as failed, or moved, would be another run's
        state: State = "set"
        stuck = False
        try:
            # Rule (3); and a set in which something still writes must not be completed by the next start.
            if isinstance(error, (SyncFailed, RefusedFileError)) or exists(root.disk, root.record(number)):
                state = fail(root, number)
        except OSError:  # the error of the save is the one to report
            if stuck := not spoil(root, number):
                memory.spoilt.add(number)
        if isinstance(error, SyncFailed):  # what is in W now, or stayed there
            there = ("append", "move") if give_back else ("append",)
            remember_lost(memory, (item for item in taken.files if item.kind in there), error)
        kept, kind = f"its files are in {root.shown(root.state(state, number))}/files", SaveError
        if give_back and stuck:
            kind = NotPutBack
        elif give_back:
            what = f"{label(number, step)} not stored ({cause_of(root, error)}); {holds}"
            kept = f"its files are back in place{put_back(root, number, what, state)}"
        if isinstance(error, (OSError, codec.BadFrame, SafepointError)):
            raise save_error(root, number, step, error, f"{holds}; {kept}", kind) from error
        raise
    return record


def _check_tables(taken: Taken, memory: Memory) -> None:
    """As `take` did: an fsync may have failed since. Of such a set the next start must complete nothing either."""
    try:
        memory.check_kept(item for item in taken.files if item.kind == "append")
    except SaveError as error:
        raise RefusedFileError(str(error)) from error


def _check_carried(taken: Taken, record: Record, previous: Record | None) -> None:
    """What one set has from the one before is read anew for each: a byte that the disk has lost must not be vouched for
    by the next record, or no set could tell."""
    carried = {item.path for item in taken.files if item.carried}
    known = {file.path: file for file in previous.files} if carried and previous else {}
    for file in record.files if known else ():
        before = known.get(file.path)
        same = before and (before.kind, before.size, before.mtime_ns) == (file.kind, file.size, file.mtime_ns)
        inside = file.path in carried or not carried.isdisjoint(above(file.path))
        if inside and previous and before and same and before.checksum != file.checksum:
            raise RefusedFileError(f"{file.path} is damaged in {previous.label}, from which this set has it")


def check_ours(root: Root, taken: Taken) -> None:
    root.refuse_other(SaveError, f"{taken.label} not stored", "so are the files of this set")


def commit(root: Root, number: int) -> None:
    """The commit point is the rename of the record, which is durable but for its name; on return the set survives a
    power cut."""
    root.disk.rename(root.record(number) + ".new", root.record(number))
    # The record's name, and that of the set itself: a new directory is not durable with what it holds, and older sets
    # go after this. Either may come first, since a record that cannot be reached is none.
    sync(root.disk, (), [root.set(number), root.path])


def confirm(root: Root) -> None:
    """Raise `SyncFailed` if the file system has gone down meanwhile: then an fsync that was under way may have returned
    0 for a record that is lost (docs/guarantees.md). What tells is a change of a name, since that needs the journal. So
    a directory is made and removed; that this cannot be done for any other reason does not matter here."""
    try:
        with contextlib.suppress(FileExistsError):  # of a process that died here
            root.disk.mkdir(root.probe)
        root.disk.rmdir(root.probe)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EIO):
            raise SyncFailed(error.errno, error.strerror, error.filename) from error


def keep_result(root: Root, items: Sequence[Item], memory: Memory, previous: Record | None) -> list[dict[str, Any]]:
    """Make the files in W durable; what the finish mark has to say of them."""
    memory.check_kept(items)
    with root.reporting(SaveError, "not finished", f"{intact(previous)}; files and sets are as they were"):
        return keep_in_place(root, items, memory)


def finish(
    root: Root, rows: list[dict[str, Any]], number: int, step: int | None, life: Life, version: str,
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
            write_durably(root.disk, root.finished, seal({**mark, "files": rows}))
            confirm(root)
        except OSError:
            with contextlib.suppress(OSError):  # a mark that is not durable must not end the sets
                root.disk.remove(root.finished)
            raise
