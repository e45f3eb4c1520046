"""The verbs, for one program in one directory: the only module that knows threads, ranks and the log.

    init --> open --restore--> ready --finish--> closed
               |                 |  ^
               +--hide, if the   +--+ hide, wait, restore (a roll-back)
                  directory has  |
                  no past        +--close, or the end of the process--> closed

Between two calls at most one set is in flight: taken, and being stored and committed by the saver thread. The next
`hide`, `wait`, `restore`, `finish` or `close` waits for it and raises its error, once.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import operator
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, SupportsIndex

from safepoint import manifest, restore, save
from safepoint.disk import NO_LOCKS, Disk
from safepoint.errors import (
    DamagedError,
    FormatError,
    LockedError,
    MissingFilesError,
    RestoreError,
    SafepointError,
    SaveError,
    UsageError,
)
from safepoint.ranks import Serial
from safepoint.record import FORMAT, Record, Root, Taken, write_durably
from safepoint.restore import Candidate

__version__ = "0.1.0"
logger = logging.getLogger("safepoint")
REAL = Disk()


@dataclass(frozen=True)
class SavePoint:
    """One set of files, as `hide` took it or `restore` gave it back.

    `step` is the program's own label; `time` is when the set was taken, in seconds since the epoch; `files` are paths
    relative to the working directory. `finished`: the run was finished, and the files in place are its result.
    """

    number: int
    step: int | None
    time: float
    files: tuple[str, ...]
    finished: bool = False


class Session:
    """One program at work in one directory. A context manager: it ends with `finish`, or, on an exception, `close`."""

    def __init__(
        self, directory: str | os.PathLike[str] = ".", *, keep: int | None = None, background: bool = True,
        disk: Disk = REAL,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._ranks = Serial()
        try:
            self._root = Root(os.path.realpath(os.fspath(directory)), self._ranks.rank)
        except OSError as error:
            raise UsageError(f"cannot work in {directory}: {error.strerror}", error.errno) from error
        self._manifest = manifest.load(self._root.work)
        self._keep = self._manifest.setting("keep") if keep is None else operator.index(keep)
        if self._keep < 1:
            raise UsageError(f"keep must be at least 1, not {self._keep}: without a set nothing could be restored")
        self._background = background
        self._pid = os.getpid()
        self._saver: _Saver | None = None
        self._flight: Future[Record] | None = None
        self._committed: Record | None = None
        self._warned: set[str] = set()
        self._closed = ""
        with self._root.reporting(SaveError, f"cannot set up {manifest.SIDE}", "the listed files are untouched"):
            self._release = self._lock()
            with contextlib.ExitStack() as on_error:
                on_error.callback(self._release)
                self._set_up()
                on_error.pop_all()
        atexit.register(_at_exit, weakref.ref(self))

    def _lock(self) -> Callable[[], object]:
        """Make the side directory if there is none, and take the lock; what releases it."""
        disk, root = self._disk, self._root
        if disk.exists(root.format):
            _check_format(disk.read(root.format), root)
        for directory in (root.side, root.path):
            with contextlib.suppress(FileExistsError):
                disk.mkdir(directory)
        try:
            release = disk.lock(root.lock)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            logger.warning("no kernel locks in %s: a second run at the same time would not be noticed", root.work)
            return lambda: None
        if release is None:
            raise LockedError(f"{root.work} is in use by another run: {self._owner()}; nothing was changed")
        return release

    def _owner(self) -> str:
        try:
            owner = json.loads(self._disk.read(self._root.owner))
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since"]))
            what = owner["command"]
            if (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid()):
                what = "this very process, by an earlier init: use that session, or close() it"
            return f"process {owner['pid']} on {owner['host']}, since {since} ({what})"
        except (OSError, ValueError, KeyError):
            return "it has not yet said which"

    def _set_up(self) -> None:
        disk, root = self._disk, self._root
        self._place = disk.place(root.path)
        mark = restore.finish_mark(disk, root)
        numbers = [n for state in ("set", "failed", "gone") for n in root.numbers(disk, state)]
        self._number = max([*numbers, mark["number"] if mark else 0])
        self._fresh = not disk.exists(root.baseline)  # no earlier start could have left torn first files
        self._past = bool(numbers or mark or not self._fresh)
        owner = {"host": self._place.host, "pid": self._pid, "since": time.time(), "command": " ".join(sys.argv)}
        if disk.exists(root.owner):
            disk.remove(root.owner)
        disk.write(root.owner, json.dumps(owner).encode())
        if disk.exists(root.log) and not disk.read(root.log).endswith(b"\n"):
            disk.append(root.log, b"\n")  # after a line that a power cut tore
        if not disk.exists(root.format):
            write_durably(disk, root.format, f"safepoint {FORMAT}\n".encode())
        if not numbers:
            # The way to the first set, before there is one: the manifest, W, the side directory, this root.
            disk.sync_files([self._manifest.path])
            disk.sync_dir(root.side)
            disk.sync_dir(root.work)
            if self._fresh:
                restore.note_baseline(disk, root, self._manifest, self._ranks.size)
            else:
                disk.sync_dir(root.path)  # the life that wrote the baseline may have died before it did this

    def restore(self) -> SavePoint | None:
        """Put the last complete set back into place.

        On return all listed files belong to one set, byte for byte, and that set is what is returned; or `finished`
        is true, and the files in place are the result; or None: there never was a set, this is a first start.
        On error no file of the working directory was changed, unless the message says so. Killed inside: call it again.
        Raises `DamagedError` if there are sets but none is whole.
        """
        self._check("restore")
        self._collect()
        disk, root, size = self._disk, self._root, self._ranks.size
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            mark = restore.finish_mark(disk, root)
            finished = mark["number"] if mark else 0
            candidates = restore.settle(disk, root, self._place, finished, ranks=size, version=__version__)
            if candidates:
                return self._choose(candidates)
            torn = [] if self._fresh or mark else restore.check_baseline(disk, root, self._manifest, size)
        self._committed, self._past, self._fresh = None, False, True
        if torn:
            logger.warning("a first start again; torn first files moved to %s: %s", self._discarded, ", ".join(torn))
        if mark is None:
            logger.info("nothing to restore in %s: a first start", root.work)
            self._note("start", aside=torn)
            return None
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            disk.sync_dir(root.side)  # the life that wrote the mark may have died before it did this; then the sets go
        self._drop_sets()
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            restore.note_baseline(disk, root, self._manifest, size)  # a new history may begin here
        changed = restore.changed_since(disk, root, mark)
        but = f", but these are no longer what they were: {', '.join(changed)}" if changed else ""
        log = logger.warning if changed else logger.info
        log("the run was finished at step %s; its files are left alone%s", mark["step"], but)
        self._note("restored", set=finished, step=mark["step"], finished=True)
        return SavePoint(finished, mark["step"], mark["time"], tuple(row["path"] for row in mark["files"]), True)

    def _choose(self, candidates: list[Candidate]) -> SavePoint:
        """Give back the newest set that is whole."""
        disk, root = self._disk, self._root
        fresh = not disk.exists(root.stage)  # else a restore was killed, and this repeats it
        reasons = {c.number: f"set {c.number}: {c.reason}" for c in candidates if not c.record}
        offers = {c.number: c.record for c in candidates if c.record}
        while (number := self._ranks.newest_common(tuple(offers))) is not None:
            record = offers.pop(number)
            try:
                restore.stage(disk, root, record)
            except restore.Damaged as error:
                reasons[number] = f"{record.label}: {error}"
            else:
                break
        else:
            every = "\n  ".join(reasons[n] for n in sorted(reasons, reverse=True))
            raise DamagedError(f"none of the sets in {root.work} is whole; no file was touched:\n  {every}")
        passed = sorted((n for n in reasons if n > number), reverse=True)
        log = logger.warning if passed else logger.info
        strays = restore.swap(disk, root, self._manifest, record, fresh=fresh, ranks=self._ranks.size)
        restore.drop_newer(disk, root, number)
        self._committed, self._number, self._past = record, number, False
        aside = [f"moved to {self._discarded}: {', '.join(strays)}"] if strays else []
        log("; ".join([f"restored {record.label}: {_amount(record)}", *(reasons[n] for n in passed), *aside]))
        self._note("restored", set=number, step=record.step, passed_over=[reasons[n] for n in passed], aside=strays)
        paths = tuple(file.path for file in record.files if file.kind in ("file", "append", "link"))
        return SavePoint(number, record.step, record.time, paths)

    def hide(self, step: SupportsIndex | None = None, *, wait: bool = False) -> SavePoint | None:
        """Move the listed files into safekeeping as one set, labelled `step`.

        On return the files are out of the way and safe from the death of this process; with `wait`, and for the first
        set always, from power loss too. None: none of the files existed, so there was nothing to hide.
        On error the files of this call are where they were; if it is the error of the set before (`SaveError`), nothing
        of this call was begun. Killed inside: `restore` gives this set or the previous one, whole.
        """
        step = None if step is None else operator.index(step)
        self._check("hide")
        self._collect()
        items, opened = save.find(self._disk, self._root, self._manifest, self._ranks.size)
        now = wait or self._committed is None or not self._background
        if not now and self._saver is None:
            try:
                self._saver = _Saver()
            except RuntimeError:  # no thread to be had: known before a file has moved
                now = True
        if not items:
            # Once is a first start. More often it is a manifest that does not name what the program writes.
            log = logger.warning if "" in self._warned or self._committed else logger.info
            log("nothing to hide: none of these files exists: %s", self._listed)
            self._warned.add("")
            return None
        self._warn_of_open(opened)
        self._number += 1
        taken = save.take(
            self._disk,
            self._root,
            self._manifest,
            items,
            self._number,
            step,
            self._place,
            first=self._committed is None,
        )
        self._past = False
        point = SavePoint(taken.number, step, taken.time, tuple(item.path for item in items))
        if now or self._saver is None:
            self._committed = self._secure(taken, give_back=True)
        else:
            self._flight = self._saver.submit(self._secure, taken)
        return point

    def _warn_of_open(self, paths: list[str]) -> None:
        for path in set(paths) - self._warned:
            self._warned.add(path)
            logger.warning("%s is still open for writing: saved as a snapshot of what was flushed so far", path)

    def wait(self) -> None:
        """Return when everything hidden so far is durable. Raises the `SaveError` of the set in flight if it failed."""
        self._check("wait")
        self._collect()

    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again, the last set is put back first. On return the files are durable, the
        sets are gone, and a later `restore` leaves the files alone. On error files and sets are as they were.
        Killed inside: `restore` gives the last set, or says that the run is finished.
        """
        step = None if step is None else operator.index(step)
        self._check("finish")
        self._collect()
        disk, root, size = self._disk, self._root, self._ranks.size
        items, opened = save.find(disk, root, self._manifest, size)
        self._warn_of_open(opened)
        last = self._committed
        moving = any(entry.kind == "move" for entry in self._manifest.entries)
        written = opened or any(item.kind == "move" for item in items)
        if moving and not written and last is not None:
            if self._number > last.number:
                lost = f"not finished: the files of set {self._number} were hidden and could not be saved"
                raise SaveError(f"{lost}; {last.label} is intact: restore() gives it back")
            try:
                restore.bring_back(disk, root, last)
            except restore.Damaged as error:
                raise DamagedError(f"cannot finish: {last.label} is damaged: {error}; no file was touched") from error
            items, _ = save.find(disk, root, self._manifest, size)
            step = last.step if step is None else step
        if not items and not all(entry.optional for entry in self._manifest.entries):
            raise MissingFilesError(
                f"nothing to finish: there is no set, and none of these files exists: {self._listed}"
            )
        save.finish(disk, root, items, self._number, step, __version__)
        self._drop_sets()
        logger.info("finished at step %s: %d files in place", step, len(items))
        self._note("finished", set=self._number, step=step)
        self._close("finish() was called")

    def close(self) -> None:
        """End the session and leave everything for the next start. Waits for the set in flight and raises its error."""
        if self._closed or os.getpid() != self._pid:  # a forked child has neither the set in flight nor the lock
            return
        try:
            self._collect()
        finally:
            self._close("it was closed")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if kind is None:
            self.finish()
            return
        try:
            self.close()
        except SafepointError as failure:  # the exception that ends the block is the one to see
            logger.error("%s", failure)

    @property
    def _discarded(self) -> str:
        return self._root.shown(self._root.discarded)

    @property
    def _listed(self) -> str:
        return ", ".join(entry.text for entry in self._manifest.entries)

    def _check(self, verb: str) -> None:
        if self._closed:
            raise UsageError(f"{verb} after the end of the session ({self._closed}): call init first")
        if os.getpid() != self._pid:
            raise UsageError(f"{verb} in a forked process: only process {self._pid}, which called init, may save")
        if self._past and verb in ("hide", "finish"):
            raise UsageError(
                f"{verb} before restore, in a directory that has save points: call restore() first, "
                f"or remove {self._root.side} to start afresh; nothing was changed"
            )

    def _collect(self) -> None:
        """Wait for the set in flight; its error is raised here, once."""
        if self._flight is None:
            return
        flight, self._flight = self._flight, None
        try:
            self._committed = flight.result()
        except BaseException:
            if not flight.done():
                self._flight = flight  # the wait was interrupted, not the save
            raise

    def _secure(self, taken: Taken, *, give_back: bool = False) -> Record:
        begin = time.perf_counter()
        disk, root, size = self._disk, self._root, self._ranks.size
        try:
            record = save.secure(disk, root, taken, self._committed, size, __version__, give_back=give_back)
        except SaveError as error:
            self._note("failed", set=taken.number, step=taken.step, error=str(error))
            raise
        seconds = time.perf_counter() - begin
        logger.info("saved %s: %s in %.3f s", record.label, _amount(record), seconds)
        self._note("saved", set=record.number, step=record.step, **_sizes(record), seconds=round(seconds, 6))
        try:
            save.prune(disk, root, record, self._keep, self._ranks.agree(None, record.number))
            save.prepare(disk, root, record.number + 1)
        except OSError as error:  # the set is safe; what was not removed is space, and is tried again next time
            logger.warning("%s: older sets not removed: %s", record.label, error)
        return record

    def _drop_sets(self) -> None:
        """After a finish mark: sets and baseline are history. What cannot be removed now goes at the next start."""
        try:
            for state in ("set", "failed"):
                for number in self._root.numbers(self._disk, state):
                    save.drop(self._disk, self._root, number, state)
            if self._disk.exists(self._root.baseline):
                self._disk.remove(self._root.baseline)
        except OSError as error:
            logger.warning("finished, but sets not removed: %s", error)

    def _close(self, why: str) -> None:
        self._closed = why
        if self._flight is None:  # else the saver is still at work, and the lock must hold until the process ends
            if self._saver is not None:
                self._saver.stop()
            self._release()

    def _note(self, event: str, **what: Any) -> None:
        """One line for people and reports; nothing depends on it, so it must not fail a save."""
        line = {"time": time.time(), "event": event, "pid": self._pid, **what}
        try:
            if not self._disk.exists(self._root.log):
                self._disk.write(self._root.log, b"")
            self._disk.append(self._root.log, json.dumps(line).encode() + b"\n")
        except OSError as error:
            logger.warning("cannot write to %s: %s", self._root.shown(error.filename), error.strerror)


class _Saver:
    """One thread for the life of the session; an executor costs `hide` twice as much. `_at_exit` waits for its work."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Record], Callable[[Taken], Record], Taken] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="safepoint-saver", daemon=True).start()

    def submit(self, job: Callable[[Taken], Record], taken: Taken) -> Future[Record]:
        future: Future[Record] = Future()
        self._jobs.put((future, job, taken))
        return future

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            future, job, taken = work
            try:
                future.set_result(job(taken))
            except BaseException as error:
                future.set_exception(error)
            del work, future, job, taken  # a waiting thread must not keep the session alive


def _check_format(text: bytes, root: Root) -> None:
    word, _, number = text.decode(errors="replace").rstrip("\n").partition(" ")
    if word != "safepoint" or not (number.isdecimal() and 0 < len(number) < 9 and int(number)):
        raise FormatError(f"{root.format} does not name a format: is {root.side} a side directory of safepoint?")
    if int(number) > FORMAT:
        known = f"this safepoint ({__version__}) knows {FORMAT}"
        raise FormatError(f"{root.side} is in format {number}, {known}: install a newer one; nothing was changed")


def _sizes(record: Record) -> dict[str, int]:
    data = [file for file in record.files if file.kind in ("file", "append")]
    return {"files": len(data), "bytes": sum(f.size for f in data), "stored": sum(f.stored_size for f in data)}


def _amount(record: Record) -> str:
    return "{files} files, {megabytes:.1f} MB".format(**(sizes := _sizes(record)), megabytes=sizes["bytes"] / 1e6)


def _at_exit(reference: weakref.ref[Session]) -> None:
    """Finish the set in flight. A failure that nobody asked for must not vanish with the process."""
    session = reference()
    if session is not None and session._flight is not None and session._pid == os.getpid():
        error = session._flight.exception()
        if error is not None:
            logger.error("%s", error)
