"""Watch one run of a command, save nothing, and propose how `safepoint run` could protect it.

All below the working directory is watched by inotify: what is closed after writing, renamed, removed, and written while
it stays open. What a file held before is compared with what it holds now by its first and last bytes, so as to tell a
table that grows from a file that is written anew.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple

from inotify_simple import INotify, flags

from safepoint import companions
from safepoint.disk import codec
from safepoint.errors import UsageError
from safepoint.patterns import NAME, SIDE
from safepoint.root import Root
from safepoint.run.proc import limits_named
from safepoint.run.proposal import Event, Proposal, What, propose

CHANGES = flags.CREATE | flags.CLOSE_WRITE | flags.MODIFY | flags.DELETE
MASK = CHANGES | flags.MOVED_FROM | flags.MOVED_TO | flags.ONLYDIR
SAMPLE = 4096  # bytes at the beginning and at the end of a file by which it is known again
LOOK_S = 0.05  # between two looks at a file that is written and stays open
TICK_S = 0.2
FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
MOST = 200_000  # events: from here on the rest of the run is not needed


class Sample(NamedTuple):
    """By what a file is known again."""

    inode: int
    size: int
    checksum: str  # of its first and last bytes


class Watch:
    """What happens to the files below `work`, in the order in which it happens."""

    def __init__(self, work: str) -> None:
        self._work = work
        with limits_named(work):
            self._inotify = INotify(nonblocking=True)
        self._directories: dict[int, str] = {}
        self._left: dict[int, str] = {}  # by cookie: what was moved from its name and has no other yet
        self._seen: dict[str, Sample] = {}
        self._looked: dict[str, float] = {}
        self.events: list[Event] = []
        self.remarks: list[str] = []  # of what could not be watched
        self._cover("")
        self.events.clear()  # what is there already was not written by the command

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def close(self) -> None:
        self._inotify.close()

    def read(self) -> None:
        """Take up all that has happened."""
        while len(self.events) < MOST and (told := self._inotify.read(timeout=0)):
            for watch, mask, cookie, name in told:
                if mask & flags.Q_OVERFLOW:
                    self._remark("so much was written that the kernel has dropped events: take this with care")
                directory = self._directories.get(watch)
                if directory is None or not name or (not directory and name in (SIDE, NAME)):
                    continue
                path = f"{directory}/{name}" if directory else name
                if mask & flags.ISDIR:
                    self._directory(path, mask, cookie)
                else:
                    self._file(path, mask, cookie)

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def _directory(self, path: str, mask: int, cookie: int) -> None:
        if mask & (flags.CREATE | flags.MOVED_TO):
            self._cover(path, self._left.pop(cookie, "") if mask & flags.MOVED_TO else "")
        elif mask & (flags.DELETE | flags.MOVED_FROM):
            self._left[cookie] = path
            for watch, name in list(self._directories.items()):
                if name == path or name.startswith(path + "/"):
                    del self._directories[watch]
                    with contextlib.suppress(OSError):  # it went with its directory
                        self._inotify.rm_watch(watch)

    def _cover(self, path: str, source: str = "") -> None:
        """Watch this directory and all below; what lies in it was written before anybody could tell. `source`: the name
        that it had before."""
        full = os.path.join(self._work, path) if path else self._work
        try:
            with limits_named(full):
                self._directories[self._inotify.add_watch(full, MASK)] = path
            inside = sorted(os.scandir(full), key=lambda entry: entry.name)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                self._remark(f"{path or 'the directory'} could not be watched: {error.strerror}")
            return
        for entry in inside:
            below = f"{path}/{entry.name}" if path else entry.name
            before = f"{source}/{entry.name}" if source else ""
            if entry.is_dir(follow_symlinks=False):
                if below != SIDE:
                    self._cover(below, before)
            elif entry.is_symlink() and entry.is_dir():
                self._remark(f"{below} is a link to a directory: what is written behind it was not seen")
            elif below != NAME:
                if before:
                    self._note("named", below, before)
                self._note("closed", below)

    def _file(self, path: str, mask: int, cookie: int) -> None:
        if mask & flags.MOVED_FROM:
            self._left[cookie] = path
            self._note("gone", path)
        elif mask & flags.MOVED_TO:
            source = self._left.pop(cookie, "")
            self._seen.pop(path, None)  # another file has this name now
            if source:
                self._note("named", path, source)
            self._note("closed", path)
        elif mask & flags.DELETE:
            self._note("gone", path)
        elif mask & flags.CREATE:
            if os.path.islink(full := os.path.join(self._work, path)) and os.path.isdir(full):
                self._remark(f"{path} is a link to a directory: what is written behind it was not seen")
            self._note("begun", path)
        elif mask & flags.CLOSE_WRITE:
            self._note("closed", path)
        elif mask & flags.MODIFY:
            last = self.events[-1] if self.events else None
            anew = last is None or (last.what, last.path) != ("written", path)
            if anew or time.monotonic() - self._looked.get(path, 0.0) > LOOK_S:
                self._note("written", path)

    def _note(self, what: What, path: str, source: str = "") -> None:
        now, grew = time.monotonic(), None
        if what == "closed" or (what == "written" and now - self._looked.get(path, 0.0) > LOOK_S):
            self._looked[path] = now
            with contextlib.suppress(OSError):  # gone, or not ours to read
                grew = self._grew(path)
        size = self._seen[path].size if path in self._seen else 0
        self.events.append(Event(now, what, path, grew, size, source))

    def _grew(self, path: str) -> bool | None:
        """Whether a file has got longer and begins as before; None if nothing is known of before, or it is the same."""
        full = os.path.join(self._work, path)
        if not stat.S_ISREG(os.lstat(full).st_mode):  # to open a fifo would let go who waits for a reader
            return None
        with open(os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            descriptor, info = file.fileno(), os.fstat(file.fileno())
            before, now = self._seen.get(path), _sample(descriptor, info.st_ino, info.st_size)
            self._seen[path] = now
            if before is None or not before.size or before == now:
                return None
            return now.size > before.size and _sample(descriptor, info.st_ino, before.size) == before


def _sample(descriptor: int, inode: int, size: int) -> Sample:
    """Of a file that is taken to have this size."""
    begin = os.pread(descriptor, min(SAMPLE, size), 0)
    end = os.pread(descriptor, min(SAMPLE, size), max(0, size - SAMPLE))
    return Sample(inode, size, codec.checksum(begin + end))


def explain(directory: str, command: Sequence[str]) -> tuple[int, Proposal]:
    """Run the command to its end; its exit status, and what is proposed. Nothing is saved and no file is changed.

    Signals go to the command, as with `safepoint run`: the proposal is made from what was seen until its end.
    """
    work = os.path.realpath(directory)
    watch = Watch(work)
    begin = time.monotonic()
    try:
        with _Forwarding() as forwarding, selectors.DefaultSelector() as selector:
            try:
                child = subprocess.Popen(command, cwd=work, start_new_session=True)
            except OSError as error:
                raise UsageError(f"cannot start {command[0]}: {error.strerror}", error.errno) from error
            forwarding.to(child)
            selector.register(watch.fileno(), selectors.EVENT_READ)
            while child.poll() is None:
                selector.select(TICK_S)
                watch.read()
                if len(watch.events) >= MOST:
                    watch.remarks.append(f"of the run only the first {MOST} events were looked at")
                    child.wait()
        watch.read()
        beside, files = _belonging(work, watch), {event.path for event in watch.events}
        there = {path for path in files if os.path.isfile(os.path.join(work, path))}
        events = [event for event in watch.events if event.path not in beside]
        proposal = propose(events, there.difference(beside), begin, time.monotonic(), watch.remarks)
        return child.returncode, proposal._replace(wrote=(*proposal.wrote, *sorted(there.intersection(beside))))
    finally:
        watch.close()


def _belonging(work: str, watch: Watch) -> list[str]:
    """The files that belong to another one, and are saved with that; this is remarked."""
    root = Root(work)
    beside = {path: owners[0] for path in {e.path for e in watch.events} if (owners := companions.owners(path, root))}
    for of, format in sorted({(owner.of, owner.format) for owner in beside.values()}):
        names = ", ".join(sorted(path for path, owner in beside.items() if (owner.of, owner.format) == (of, format)))
        watch.remarks.append(f"{of} is of {format}: what lies beside it ({names}) is saved with it, and needs no line")
    return list(beside)


class _Forwarding:
    """Passes signals on to a command, those too that come before it has begun."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __enter__(self) -> _Forwarding:
        self._before = {number: signal.signal(number, self._forward) for number in FORWARDED if not _ignored(number)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def to(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._early:
            self._forward(number, None)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
