"""Disks that fail, wait, look or count, each in one way that its arguments say; the real one below them all."""

from __future__ import annotations

import collections
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from safepoint.disk import NONE, Disk, PageCache, SyncFailed
from safepoint.disk.threads import Helpers

Which = Callable[[str], bool]  # of which paths


def ends(name: str) -> Which:
    return lambda path: path.endswith(name)


def none(path: str) -> bool:
    return False


class Failing(Disk):
    """An fsync of such a file fails, once or for ever; what happens `meanwhile` comes just before."""

    def __init__(self, of: Which = none, *, once: bool = True, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.of, self.once, self.meanwhile = of, once, meanwhile

    def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
        for path in paths:
            if self.of(path):
                self.of = none if self.once else self.of
                self.meanwhile()
                raise SyncFailed(errno.EIO, os.strerror(errno.EIO), path)
            super().sync_files([path], opened)


class NoRoom(Disk):
    """It is full for what is written or made under such a name, once or for ever."""

    def __init__(self, of: Which = none, *, once: bool = True) -> None:
        self.of, self.once = of, once

    def _check(self, path: str) -> None:
        if self.of(path):
            self.of = none if self.once else self.of
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def create(self, path: str, *mode: int) -> Any:
        self._check(path)
        return super().create(path, *mode)

    def append(self, path: str, data: bytes) -> None:
        self._check(path)
        super().append(path, data)

    def mkdir(self, path: str, *mode: int) -> None:
        self._check(path)
        super().mkdir(path, *mode)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        super().rename(source, target)

    def duplicate(self, source: Any, target: Any, *how: Any, **more: Any) -> bool:
        self._check(source.name)
        return super().duplicate(source, target, *how, **more)

    def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
        for path in paths:
            self._check(path)
        super().sync_files(paths, opened)


class Gated(Disk):
    """Its next fsync of a file waits until it is let go, and may fail then."""

    fails = False

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
        self.gate.wait()
        if self.fails:
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), next(iter(paths)))
        super().sync_files(paths, opened)


class Elsewhere(Disk):
    """Another page cache, or one of which nothing can be proven."""

    def __init__(self, **differs: str | None) -> None:
        self.differs = differs

    def page_cache(self, path: str) -> PageCache:
        return PageCache("host", "boot", "mount")._replace(**self.differs)  # type: ignore[arg-type]


class Counting(Disk):
    """Counts the operations of the thread that made it, or of all."""

    def __init__(self, *, of_all: bool = False) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self.thread = None if of_all else threading.get_ident()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in ("calls", "thread", "helpers"):
            return found
        if self.thread not in (None, threading.get_ident()):
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return found(*arguments, **options)

        return counted


class Between(Helpers):
    """Helpers that let something happen before and after what they do together."""

    def __init__(self, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> None:
        self.before, self.after = before, after

    def each(self, work: Any, items: Any, at_once: int = 8) -> list[Any]:
        self.before()
        done = super().each(work, items, at_once)
        self.after()
        return done

    @contextmanager
    def beside(self, work: Callable[[], object]) -> Iterator[None]:
        self.before()
        with super().beside(work):
            yield
        self.after()


class OneByOne(Helpers):
    """One thing after the other, in the order of the items."""

    def each(self, work: Any, items: Any, at_once: int = 8) -> list[Any]:
        return super().each(work, items, 1)


class Meddler(Disk):
    """Does something to the files of a set while they are being stored, in a save that begins when it is armed."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what: Callable[[], None] | None = None
        self.armed = what
        self.helpers: Any = Between(before=self.meddle)

    def read_into(self, buffer: memoryview, path: str) -> tuple[int, os.stat_result]:
        found = super().read_into(buffer, path)
        self.meddle()
        return found

    def meddle(self) -> None:
        if self.what:
            self.what()
            self.what = None


class CountingReads(Disk):
    """Counts the bytes that are read of the files whose path ends so."""

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.bytes_read = 0

    def open(self, path: str) -> BinaryIO:
        return _Counted(self, path) if path.endswith(self.ending) else super().open(path)


class _Counted(io.FileIO):
    def __init__(self, disk: CountingReads, path: str) -> None:
        super().__init__(path)
        self.disk = disk

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.disk.bytes_read += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        self.disk.bytes_read += len(data)
        return data
