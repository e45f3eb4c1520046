"""The writer of one process: results go in, and a kill takes none of them back.

A small result is one block of a journal, written at once and flushed by a thread, so a kill loses nothing and a power
cut the last `every` seconds. A large one is a directory: made under a name that the next driver removes, flushed, and
then renamed to `done/KEY`, which is the moment from which it counts.

(1) Bytes, record and names in the directory are durable before the rename: else a power cut could leave a key without
    contents. (2) `done/` is durable after it: else what was told as durable could vanish. (3) A failed flush ends its
    journal: what it covered is written again to a new one, and never flushed again. (4) A journal belongs to one
    process: a forked child begins one of its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

from safepoint.disk import Disk, kernel
from safepoint.disk.files import cause, remove_tree
from safepoint.disk.kernel import write_all
from safepoint.errors import SaveError
from safepoint.tasks import journal as blocks
from safepoint.tasks import kept, moving, names
from safepoint.tasks.jobs import Output, Place, Record
from safepoint.tasks.values import Encoded

logger = logging.getLogger("safepoint")
EVERY_S = 0.2  # seconds of small results that a power cut may take
FULL = 128 << 20  # bytes not flushed, from which on a put waits for the flush
FAILURES = 3  # flushes in a row, from which on a put fails as well


class Journal:
    """One that this process appends to."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.name = names.journal()
        self.path = f"{directory}/{self.name}"
        self.seed, self.offset = blocks.seed_of(self.path), 0
        self._disk, self._directory = disk, directory
        self._close = contextlib.ExitStack()
        self._file: BinaryIO = self._close.enter_context(disk.create(self.path))
        self._is_named = False

    def append(self, record: bytes, data: bytes) -> int:
        """In one write; the offset of the block. On an error its bytes, if any, are no block for any reader."""
        at = self.offset
        block = blocks.block(self.seed, at, record, data)
        try:
            count = self._file.write(block)
            if count != len(block):
                write_all(self._file, block[count:])  # says why no more went in
            self.offset = at + len(block)
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                self.offset = self._file.tell()
            if isinstance(error, OSError):
                error.filename = error.filename or self.path
            raise
        return at

    def sync(self) -> None:
        """On return all blocks that were appended before survive a power cut. `SyncFailed` is final."""
        # The blocks, which a power cut could take together with what is told of them.
        self._disk.sync_files([self.path], {self.path: self._file})
        if not self._is_named:
            # The journal's name, once: without it a power cut could leave blocks that are durable in no file.
            self._disk.sync_dir(self._directory)
            self._is_named = True

    def close(self) -> None:
        self._close.close()


class Writer:
    """Of one process, whose threads may share it. `every`: seconds between two flushes of what is new; 0: only
    `flush` does so."""

    def __init__(self, directory: str, disk: Disk, worker: str = "", *, every: float = EVERY_S) -> None:
        self._directory, self._disk, self._every = directory, disk, every
        self._worker = worker or f"pid {os.getpid()}"
        self._host = kernel.host()
        self._begin()
        _writers.add(self)

    def _begin(self) -> None:
        """As of a process that has written nothing yet; so is a forked child, see (4)."""
        self._lock, self._flushing = threading.Lock(), threading.Lock()
        self._journal: Journal | None = None
        self._fresh: list[tuple[bytes, bytes]] = []  # in the journal, not flushed
        self._owed: list[tuple[bytes, bytes]] = []  # in none whose flushes can be trusted
        self._bytes = 0  # of the fresh ones
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed, self._why = 0, ""
        self._modules, self._known, self._known_text = 0, dict[str, str](), "{}"

    # Putting.

    def put(self, record: Record, encoded: Sequence[Encoded]) -> Record:
        """Keep a result; its record, with its place. On return a kill of all processes loses nothing; a large one is
        durable too. A second result of a key that is kept already is dropped, and the record of the first returned.

        `OSError` names the file: then the vertex has not finished, and all others are as they were.
        """
        record = self._complete(record, encoded)
        if not record.kept:
            return self._put_loose(record, encoded)
        if any(each.path for each in encoded) or sum([each.nbytes for each in encoded]) > blocks.SMALL:
            return self._put_large(record, encoded)
        outputs = tuple([Output(each.name, each.kind, each.digest, each.nbytes) for each in encoded])
        data = b"".join([piece for each in encoded for piece in each.pieces])
        return self._append(record, outputs, data)

    def _complete(self, record: Record, encoded: Sequence[Encoded]) -> Record:
        """With what the writer knows better. Not by `replace`, which takes longer than the write."""
        fields = dict(record.__dict__)
        fields["named"] = bool(encoded[0].name)
        fields["versions"] = self._versions() if not record.versions else record.versions
        fields["time"] = record.time or time.time()
        fields["host"], fields["worker"] = record.host or self._host, record.worker or self._worker
        new = object.__new__(Record)
        new.__dict__.update(fields)
        return new

    def _append(self, record: Record, outputs: tuple[Output, ...], data: bytes) -> Record:
        name, offset = self._add(kept.written(record, outputs, self._text_of(record.versions)), data)
        record.__dict__["outputs"], record.__dict__["place"] = outputs, Place(name, offset)
        return record

    def _add(self, text: bytes, data: bytes) -> tuple[str, int]:
        with self._lock:
            if self._failed >= FAILURES:
                raise OSError(None, f"{self._why}; since then nothing could be made durable", self._directory)
            journal = self._journal or self._renew()
            offset = journal.append(text, data)
            self._fresh.append((text, data))
            self._bytes += len(text) + len(data)
            full = self._bytes >= FULL
        if not self._wake.is_set() or full:
            self._wake_up(full)
        return journal.name, offset

    def put_again(self, record: bytes, data: bytes) -> None:
        """A block of another journal, as it is."""
        self._add(record, data)

    def take_back(self, places: Sequence[Place]) -> None:
        """These records of journals count no more."""
        self._add(kept.forgetting(places), b"")

    def appends_to(self, name: str) -> bool:
        return self._journal is not None and self._journal.name == name

    def _versions(self) -> dict[str, str]:
        """What results depend on and identities do not hold; anew when a module was loaded."""
        if self._modules != len(sys.modules):
            found = {"python": platform.python_version()}
            for name in ("numpy", "scipy", "pandas", "torch"):
                version = getattr(sys.modules.get(name), "__version__", None)
                if isinstance(version, str):
                    found[name] = version
            self._modules, self._known, self._known_text = len(sys.modules), found, json.dumps(found)
        return self._known

    def _text_of(self, versions: Mapping[str, str]) -> str:
        return self._known_text if versions is self._known else json.dumps(dict(versions))

    # Large results.

    def scratch(self) -> str:
        """A new empty directory for a body. Give it back by `drop`; after a kill the next driver removes it."""
        return names.make(self._disk, self._directory)

    def drop(self, path: str) -> None:
        """Remove a scratch directory with what is left in it."""
        if os.path.lexists(path):
            remove_tree(self._disk, path)

    def _put_large(self, record: Record, encoded: Sequence[Encoded]) -> Record:
        stage = names.make(self._disk, self._directory)
        try:
            outputs, files, directories = moving.fill(self._disk, stage, encoded)
            moving.write_file(self._disk, f"{stage}/{names.RECORD}", kept.sealed(
                kept.written(record, outputs, self._text_of(record.versions))))  # fmt: skip
            # Bytes and record before the rename: else a power cut could leave done/KEY with nothing in it.
            self._disk.sync_files([*files, f"{stage}/{names.RECORD}"])
            for each in (*directories, stage):  # their names as well, which are no part of the bytes
                self._disk.sync_dir(each)
            first = moving.settle(self._disk, self._directory, stage, record.key)
        except OSError:
            with contextlib.suppress(OSError):  # what cannot be removed now is removed by the next driver
                self.drop(stage)
            raise
        # The name after the rename, also if another one made it: else a power cut could take what is told as durable.
        self._disk.sync_dir(f"{self._directory}/{names.DONE}")
        return first or replace(record, outputs=outputs, place=Place())

    def _put_loose(self, record: Record, encoded: Sequence[Encoded]) -> Record:
        """Its record is kept, its bytes as long as this run needs them: they are not flushed."""
        stage = names.make(self._disk, self._directory)
        try:
            outputs, _, _ = moving.fill(self._disk, stage, encoded)
            moving.settle_loose(self._disk, self._directory, stage, record.key)
        except OSError:
            with contextlib.suppress(OSError):
                self.drop(stage)
            raise
        return self._append(record, outputs, b"")

    # Making durable.

    def flush(self) -> None:
        """On return all that was put survives a power cut. `SaveError`: it may not; a kill still loses nothing."""
        with self._flushing:
            try:
                if not self._flushed():  # what a failed flush covered is in a new journal now
                    self._flushed(last=True)
            except OSError as error:
                text = (
                    f"results of {self._worker} are not durable yet: {error.filename}: {cause(error)}; all are intact "
                )
                raise SaveError(f"{text}unless the power is cut", error.errno) from error

    def _flushed(self, last: bool = False) -> bool:
        """Whether all that was appended before is durable. If not, it was written again, see (3)."""
        with self._lock:
            if self._owed:
                self._journal = self._journal or self._renew()
            journal, covered, self._fresh, self._bytes = self._journal, self._fresh, [], 0
            self._wake.clear()
        if journal is None or not covered:
            return True
        try:
            journal.sync()
        except OSError as error:
            with self._lock:
                self._failed, self._why = self._failed + 1, f"{error.filename}: {cause(error)}"
                self._owed += covered + self._fresh
                self._journal, self._fresh, self._bytes = None, [], 0
                journal.close()
                self._renew()
            if last:
                raise
            logger.warning("%s; what it covered was written again, to another journal", self._why)
            return False
        except BaseException:  # Ctrl-C: it is still to be flushed
            with self._lock:
                self._fresh = covered + self._fresh
            raise
        self._failed = 0
        return True

    def _renew(self) -> Journal:
        """A new journal, with all that is owed; with `_lock`."""
        journal = Journal(self._disk, self._directory)
        try:
            for text, data in self._owed:
                journal.append(text, data)
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        self._fresh, self._owed = self._fresh + self._owed, []
        return journal

    def _wake_up(self, full: bool) -> None:
        """There is something to flush."""
        self._wake.set()
        if self._every and (self._thread is None or not self._thread.is_alive()):
            with self._lock:
                if self._thread is None and not self._ending.is_set():
                    self._thread = threading.Thread(target=self._keep_flushing, name="safepoint-tasks", daemon=True)
                    self._thread.start()
        if full:
            with contextlib.suppress(SaveError):  # it is counted, and this result is as safe as the others
                self.flush()

    def _keep_flushing(self) -> None:
        """The thread's work. Its errors are counted, and told to the next put when there were several."""
        while not self._ending.is_set():
            self._wake.wait()
            self._ending.wait(self._every)
            with self._flushing:
                try:
                    if not self._flushed():
                        self._wake.set()
                except OSError as error:
                    self._why = f"{error.filename}: {cause(error)}"
                    self._failed += 1
                    self._wake.set()

    def close(self) -> None:
        """As `flush`; the journal and the thread end."""
        try:
            self.flush()
        finally:
            self._ending.set()
            self._wake.set()
            if self._thread is not None:
                self._thread.join()
            if self._journal is not None:
                self._journal.close()
            self._begin()


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def in_use(name: str) -> bool:
    """Whether a writer of this process appends to the journal of this name."""
    return any(writer.appends_to(name) for writer in _writers)


def _begin_in_child() -> None:
    """A forked child has no thread that flushes, and its blocks among those of its parent would be torn, see (4)."""
    for writer in _writers:
        writer._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
