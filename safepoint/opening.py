"""How a program begins in a directory: its manifest, its lock, and what earlier lives left there.

The first rank in W (the saver; without one, each rank in its own W) opens it for all: it takes its lock before anything
else, makes the side directory, and reads the manifest. What it saw goes to the others by MPI, since a node may not yet
see what another one wrote. Then each rank that has something to save makes and locks a root of its own. If any rank
fails, all give their locks back and raise.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from safepoint import manifest, restore
from safepoint.disk import NO_LOCKS, Disk, Place
from safepoint.errors import FormatError, LockedError, SaveError, UsageError
from safepoint.ranks import Ranks, Serial, launcher, misfit
from safepoint.record import FORMAT, Root, write_durably

logger = logging.getLogger("safepoint")


def check_same(ranks: Serial | Ranks, **options: Any) -> None:
    """The ranks must have been told the same, or they would not make the same calls."""
    for name, value in options.items():
        first = ranks.share(value, 0)
        other = UsageError(f"{name}={value} given to init, and {name}={first} on rank 0: give all ranks the same")
        ranks.fail_together(None if first == value else other)


class Opening:
    """What a session stands on. Collective. On error nothing is held, and no listed file was touched."""

    root: Root
    manifest: manifest.Manifest  # the entries of this rank
    keep: int
    level: int
    edges: int
    active: bool  # this rank has a root

    def __init__(
        self, disk: Disk, ranks: Serial | Ranks, directory: str | os.PathLike[str], saver: int | None, keep: int | None
    ) -> None:
        self.disk, self.ranks = disk, ranks
        self.lead = 0 if saver is None else saver  # the rank that reads and writes what is there once for all
        self.place = Place("", "", None)  # where the root is
        self.number = 0  # the newest that a set or a finish mark has had
        self.past = False  # there is something to restore
        self.fresh = True  # no earlier start could have left torn first files
        self.release: Callable[[], object] = lambda: None  # gives the lock back; where there are no locks, nothing
        first = saver is None or ranks.rank == saver
        with contextlib.ExitStack() as on_error:
            seen: Any = ranks.together(lambda: self._enter(directory, saver, on_error) if first else None)
            if saver is not None:
                seen = ranks.share(seen, saver)
            ranks.together(lambda: self._join(directory, saver, keep, seen, on_error))
            ranks.together(self._look)
            # The baseline last, when nothing else can fail on any rank: a start that failed must not have been one.
            ranks.together(lambda: self._note(on_error))
            number, past = ranks.least(-self.number, -self.past)
            self.number, self.past = -number, bool(past)
            on_error.pop_all()

    def _enter(
        self, directory: str | os.PathLike[str], saver: int | None, on_error: contextlib.ExitStack
    ) -> tuple[str, int, str]:
        """Open W: where it is, its inode, and the manifest's text. On return its lock is ours."""
        disk, root = self.disk, self._find_root(directory, saver)
        text = manifest.read(root.work)
        listed = manifest.parse(text, os.path.join(root.work, manifest.NAME))
        listed.owned_by(root.rank, root.ranks, saver)  # its faults before anything is made
        with self._reporting():
            if disk.exists(root.format):
                check_format(disk.read(root.format), root)
            self._lock(on_error)
            if not disk.exists(root.format):
                write_durably(disk, root.format, f"safepoint {FORMAT}\n".encode())
            return root.work, disk.stat(root.work).st_ino, text

    def _find_root(self, directory: str | os.PathLike[str], saver: int | None) -> Root:
        ranks = self.ranks
        try:
            work = os.path.realpath(os.fspath(directory))
        except OSError as error:
            raise UsageError(f"cannot work in {directory}: {error.strerror}", error.errno) from error
        self.root = Root(work, ranks.rank, ranks.size, saver)
        return self.root

    def _lock(self, on_error: contextlib.ExitStack) -> None:
        """Make the side directory and our root if there is none, and take the lock."""
        disk, root = self.disk, self.root
        for directory in (root.side, root.path):
            with contextlib.suppress(FileExistsError):
                disk.mkdir(directory)
        try:
            release = disk.lock(root.lock)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            logger.warning("no kernel locks in %s: a second run at the same time would not be noticed", root.work)
            return
        if release is None:
            raise LockedError(f"{root.work} is in use by another run: {self._owner()}; nothing was changed{self._hint}")
        self.release = on_error.callback(release)

    @property
    def _hint(self) -> str:
        if self.root.saver is None and self.ranks.size > 1:
            return ". With saver=None every rank needs a directory of its own"
        if self.ranks.size == 1 and (wrong := misfit()):
            return f". This may be another rank of the same program: {wrong}"
        if self.ranks.size == 1 and launcher():
            return (
                f". This process was started by a parallel launcher ({launcher()} is set): if it is one rank of a "
                f"program, call init(comm=MPI.COMM_WORLD)"
            )
        return ""

    def _owner(self) -> str:
        who = read_owner(self.disk, self.root)
        if who and (who["host"], who["pid"]) == (socket.gethostname(), os.getpid()):
            who["command"] = "this very process, by an earlier init: use that session, or close() it"
        gone = who and who["host"] == socket.gethostname() and not self.disk.is_alive(who["pid"])
        heirs = self.disk.holders(self.root.lock) if gone else []
        left = f", which is gone, but what it had started is not: {', '.join(heirs)}" if heirs else ""
        return describe_owner(who) + left

    def _join(
        self, directory: str | os.PathLike[str], saver: int | None, keep: int | None, seen: tuple[str, int, str],
        on_error: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        """What the first rank saw is what this one works with. On return this rank has its lock, if it needs one."""
        disk, ranks = self.disk, self.ranks
        work, inode, text = seen
        opened = saver is None or ranks.rank == saver
        root = self.root if opened else self._find_root(directory, saver)
        with self._reporting():
            if root.work != work and disk.stat(root.work).st_ino != inode:
                raise UsageError(
                    f"this rank works in {root.work}, and rank {saver} in {work}: pass saver=None if every rank has a "
                    f"directory of its own, and its own files there"
                )
            listed = manifest.parse(text, os.path.join(root.work, manifest.NAME))
            self.manifest = listed.owned_by(ranks.rank, ranks.size, saver)
            self.keep = listed.setting("keep") if keep is None else keep
            self.level, self.edges = _of_ledger(listed)
            # A rank that has nothing to save, and never had, leaves the disk alone. Rank 0 always writes records, so
            # that a later run, of whatever number of ranks, finds what was saved.
            self.active = bool(opened or ranks.rank == 0 or self.manifest.entries or disk.exists(root.path))
            if self.active and not opened:
                self._lock(on_error)

    def _look(self) -> None:
        """What earlier lives left; and who is at work here now, for those who find the lock taken."""
        disk, root = self.disk, self.root
        if not self.active:
            return
        with self._reporting():
            self.place = disk.place(root.path)
            mark = restore.finish_mark(disk, root) if self.ranks.rank == self.lead else None
            self._numbers = [n for state in ("set", "failed", "gone") for n in root.numbers(disk, state)]
            self.number = max([*self._numbers, mark["number"] if mark else 0])
            self.fresh = not disk.exists(root.baseline)
            self.past = bool(self._numbers or mark or not self.fresh)
            write_owner(disk, root, self.place.host)

    def _note(self, on_error: contextlib.ExitStack) -> None:
        """Before there is a set: make the way to it durable, and note what is there now."""
        disk, root = self.disk, self.root
        if not self.active or self._numbers:
            return
        with self._reporting():
            # The manifest, W, the side directory, this root.
            if self.ranks.rank == self.lead or root.saver is None:
                disk.sync_files([self.manifest.path])
                disk.sync_dir(root.work)
            disk.sync_dir(root.side)
            if self.fresh:
                on_error.callback(self._forget)
                restore.note_baseline(disk, root, self.manifest)
            else:
                disk.sync_dir(root.path)  # the life that wrote the baseline may have died before it did this

    def _forget(self) -> None:
        """A start that failed on another rank was none: what the user does next may be to bring the initial files."""
        with contextlib.suppress(OSError):
            if self.disk.exists(self.root.baseline):
                self.disk.remove(self.root.baseline)

    def _reporting(self) -> contextlib.AbstractContextManager[None]:
        return self.root.reporting(SaveError, f"cannot set up {manifest.SIDE}", "the listed files are untouched")


def read_owner(disk: Disk, root: Root) -> dict[str, Any] | None:
    """Who said last that the root is theirs: host, pid, since, command. It may be long dead: only the lock tells."""
    try:
        who = json.loads(disk.read(root.owner))
        return {"host": str(who["host"]), "pid": int(who["pid"]), "since": float(who["since"]),
                "command": str(who["command"])}  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_owner(disk: Disk, root: Root, host: str) -> None:
    """Say to those who find the lock taken that it is this process that has it."""
    owner = {"host": host, "pid": os.getpid(), "since": time.time(), "command": " ".join(sys.argv)}
    if disk.exists(root.owner):
        disk.remove(root.owner)
    disk.write(root.owner, json.dumps(owner).encode())


def describe_owner(who: dict[str, Any] | None) -> str:
    if who is None:
        return "it has not yet said which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
    return f"process {who['pid']} on {who['host']}, since {since} ({who['command']})"


def check_format(text: bytes, root: Root) -> None:
    word, _, number = text.decode(errors="replace").rstrip("\n").partition(" ")
    if word != "safepoint" or not (number.isdecimal() and 0 < len(number) < 9 and int(number)):
        raise FormatError(f"{root.format} does not name a format: is {root.side} a side directory of safepoint?")
    if int(number) > FORMAT:
        known = f"this safepoint knows {FORMAT}"
        raise FormatError(f"{root.side} is in format {number}, {known}: install a newer one; nothing was changed")


def _of_ledger(listed: manifest.Manifest) -> tuple[int, int]:
    """The settings; a variable of the environment is above them, so that a test run needs no other manifest."""
    found = []
    for name in ("ledger", "edges"):
        variable = f"SAFEPOINT_{name.upper()}"
        text = os.environ.get(variable, "")
        try:
            found.append(manifest.SETTINGS[name][0](text) if text else listed.setting(name))
        except ValueError as error:
            raise UsageError(f"{variable}={text} in the environment: {error}") from error
    return found[0], found[1]
