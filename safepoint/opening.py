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
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from safepoint import manifest, restore
from safepoint.disk import NO_FILE, NO_LOCKS, Disk, Place, host
from safepoint.errors import DamagedError, FormatError, LockedError, SaveError, UsageError
from safepoint.interrupts import deliver, must_wait
from safepoint.ranks import LARGEST, Ranks, Serial, launcher, misfit
from safepoint.record import (
    FORMAT,
    LIVES,
    NOTE,
    Life,
    Root,
    Unsealed,
    parse_record,
    read_note,
    refuse_link,
    roots,
    write_durably,
)

logger = logging.getLogger("safepoint")
PATIENCE, SAID_AFTER, NAP = 10.0, 1.0, 0.05  # seconds, see Waiting


def check_same(ranks: Serial | Ranks, **options: Any) -> None:
    """The ranks must have been told the same, or they would not make the same calls."""
    for name, value in options.items():
        first = ranks.share(value, 0)
        other = UsageError(f"{name}={value} given to init, and {name}={first} on rank 0: give all ranks the same")
        ranks.fail_together(None if first == value else other)


def new_life(ranks: Serial | Ranks, lead: int, known: int = 0) -> Life:
    """The life that begins now, the same on all ranks. `known`: the newest that this rank knows of. Collective."""
    mine = int.from_bytes(os.urandom(8), "big") >> 2
    number, history = ranks.least(-known, mine if ranks.rank == lead else LARGEST)
    return Life(min(1 - number, LIVES - 1), f"{history:016x}")


class Opening:
    """What a session stands on. Collective. On error nothing is held, and no listed file was touched."""

    root: Root
    manifest: manifest.Manifest  # the entries of this rank
    keep: int
    level: int
    edges: int
    life: Life  # of a first start; else `restore` begins one
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
        self._waiting = Waiting()
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
            self.life = new_life(ranks, self.lead)
            on_error.pop_all()

    def _enter(
        self, directory: str | os.PathLike[str], saver: int | None, on_error: contextlib.ExitStack
    ) -> tuple[str, int, str, int]:
        """Open W: where it is, its inode, the manifest's text, and how many ranks must have a root. On return its lock
        is ours."""
        disk, root = self.disk, self._find_root(directory, saver)
        text = manifest.read(root.work)
        listed = manifest.parse(text, os.path.join(root.work, manifest.NAME))
        listed.owned_by(root.rank, root.ranks, saver)  # its faults before anything is made
        with self._reporting():
            check_format(disk, root)
            rooted = rooted_ranks(disk, root)
            self._lock(on_error, rooted)
            line, there = f"safepoint {FORMAT}\n".encode(), disk.exists(root.format)
            if not there:
                # The root before what says that there was one: else, after a power cut, it would seem to have vanished.
                disk.sync_dir(root.side)
            # Also over an older one, before there is a set that an older library would take for one of its own.
            if not there or disk.read(root.format, NOTE) != line:
                write_durably(disk, root.format, line)
            return root.work, disk.stat(root.work).st_ino, text, rooted

    def _find_root(self, directory: str | os.PathLike[str], saver: int | None) -> Root:
        ranks = self.ranks
        try:
            work = os.path.realpath(os.fsdecode(directory))
        except (OSError, TypeError, ValueError) as error:
            cause, number = getattr(error, "strerror", error), getattr(error, "errno", None)
            raise UsageError(f"cannot work in directory {directory!r}: {cause}", number) from error
        self.root = Root(work, ranks.rank, ranks.size, saver)
        return self.root

    def _lock(self, on_error: contextlib.ExitStack, rooted: int) -> None:
        """Make the side directory and our root if there is none, and take the lock. Raises `DamagedError` if this is
        one of the `rooted` ranks and its root has vanished."""
        disk, root = self.disk, self.root
        if root.rank < rooted and not disk.exists(root.path):
            raise DamagedError(vanished(root))
        for directory in (root.side, root.path):
            refuse_link(disk, directory)
            with contextlib.suppress(FileExistsError):
                disk.mkdir(directory)
        self.release = on_error.callback(claim(disk, root, self._waiting, self._hint))

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

    def _join(
        self, directory: str | os.PathLike[str], saver: int | None, keep: int | None, seen: tuple[str, int, str, int],
        on_error: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        """What the first rank saw is what this one works with. On return this rank has its lock, if it needs one."""
        disk, ranks = self.disk, self.ranks
        work, inode, text, rooted = seen
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
                self._lock(on_error, rooted)

    def _look(self) -> None:
        """What earlier lives left."""
        disk, root = self.disk, self.root
        if not self.active:
            return
        with self._reporting():
            restore.refuse_outside(disk, root, self.manifest)
            self.place = disk.place(root.path)
            mark = restore.finish_mark(disk, root) if self.ranks.rank == self.lead else None
            self._numbers = [n for state in ("set", "failed", "gone") for n in root.numbers(disk, state)]
            self.number = max([*self._numbers, mark["number"] if mark else 0])
            self.fresh = not disk.exists(root.baseline)
            self.past = bool(self._numbers or mark or not self.fresh)
            if not self.past and disk.exists(root.log):  # the log begins after the baseline, which goes for a set
                logger.warning("no set is left in %s, though an earlier run had some: this is a first start", root.path)

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

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            with self.root.reporting(
                SaveError, f"cannot set up {manifest.SIDE}", f"{self._intact()}the listed files are untouched"
            ):
                raise

    def _intact(self) -> str:
        """The newest set of this root that has a good record, for a message; nothing if there is none."""
        with contextlib.suppress(OSError):
            for number in reversed(self.root.numbers(self.disk, "set")):
                with contextlib.suppress(OSError, Unsealed, FormatError):
                    return f"{parse_record(self.disk.read(self.root.record(number))).label} is intact; "
        return ""


class Owner(NamedTuple):
    """What owner.json holds."""

    host: str
    pid: int
    since: float  # seconds since the epoch
    command: str
    kernel: str = ""  # which boot of which host; of an older library nothing is known of these two
    began: int = 0  # when the process began, in ticks of that kernel


def rooted_ranks(disk: Disk, root: Root) -> int:
    """How many ranks, from 0 on, must find a root, as an earlier start, or the newest set, had one for each."""
    if not disk.exists(root.format):
        return 0
    there = roots(disk, root.work)[0]
    if not there:
        return root.rank + 1
    if root.saver is None or (root.ranks == 1 and there[0].rank == root.rank):
        return 0  # nobody's but our own, which is there
    seen = root if disk.exists(root.path) else there[0]
    for number in reversed(seen.numbers(disk, "set")):
        with contextlib.suppress(Unsealed, FormatError, OSError):  # `restore` says what is wrong with it
            record = parse_record(disk.read(seen.record(number)))
            return record.ranks if record.of_each and record.saver is not None else 0
    return 0


def vanished(root: Root) -> str:
    return (
        f"{root.path} is gone, though an earlier run had made it: if it had sets they are gone with it, so this must "
        f"not pass for a first start. Bring it back; or, to start afresh, remove {root.side} as a whole; nothing was "
        f"changed"
    )


class Waiting:
    """For what a dead run has left behind, which may be dying still: some seconds in all, and who reads the log knows.

    What comes from a signal meanwhile is raised; with several ranks, where it must wait, it ends the waiting.
    """

    def __init__(self) -> None:
        self._begin = 0.0
        self._said: set[str] = set()

    def goes_on(self, what: Callable[[], str]) -> bool:
        """Whether to look again: after a moment, or not any more."""
        self._begin = self._begin or time.monotonic()
        waited = time.monotonic() - self._begin
        if waited >= SAID_AFTER and "" not in self._said:
            self._said.add("")
            self.say(f"waiting up to {PATIENCE:.0f} s for {what()}")
        if waited >= PATIENCE or must_wait():
            return False
        time.sleep(NAP)
        deliver()
        return True

    def say(self, text: str) -> None:
        """Once, however many ranks one process looks at."""
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


def claim(disk: Disk, root: Root, waiting: Waiting, hint: str = "") -> Callable[[], object]:
    """Take the lock of a root and say so to others; what gives it back. Raises `LockedError`, which names the holder;
    then nothing was changed.

    A holder that is at work, or of which nothing can be known here, is met at once. One whose process has ended is
    waited for, as a child that has its descriptor may not have ended yet; and so is one that has not said its name.
    """
    with contextlib.ExitStack() as on_error:
        try:
            while (release := disk.lock(root.lock)) is None:
                who = read_owner(disk, root)
                if _may_be_at_work(disk, who) or not waiting.goes_on(lambda who=who: _holder(disk, root, who)):  # type: ignore[misc]
                    text = f"{root.work} is in use by another run: {_holder(disk, root, who)}"
                    raise LockedError(f"{text}; nothing was changed{hint}")
            on_error.callback(release)
            info = disk.stat(root.lock)
            root.locked = info.st_dev, info.st_ino
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            waiting.say(f"no kernel locks in {root.work}: a second run at the same time would not be noticed")
        on_error.callback(_unsay, disk, root, _say_owner(disk, root))
        return on_error.pop_all().close


def _say_owner(disk: Disk, root: Root) -> dict[str, Any]:
    """At once when the lock is taken: what is there names the run before."""
    if disk.exists(root.owner):
        disk.remove(root.owner)
    owner = {
        "host": host(), "pid": os.getpid(), "since": time.time(), "command": " ".join(sys.argv),
        "kernel": disk.kernel(), "began": disk.began(os.getpid()) or 0,
    }  # fmt: skip
    disk.write(root.owner, json.dumps(owner).encode())
    return owner


def _unsay(disk: Disk, root: Root, owner: dict[str, Any]) -> None:
    """Before the lock is given back: the next who takes it must not be met under this name. Unless there is another
    one, of a run in a side directory that took the place of ours."""
    with contextlib.suppress(OSError):
        if read_owner(disk, root) == owner:
            disk.remove(root.owner)


def read_owner(disk: Disk, root: Root) -> dict[str, Any] | None:
    """Who said last that the root is theirs: host, pid, since, command; of which kernel, and when the process began.
    It may have been killed since: only the lock tells."""
    return read_note(disk, root.owner, Owner)


def _may_be_at_work(disk: Disk, who: dict[str, Any] | None) -> bool:
    """Whether the process of this name may live, as far as can be seen from here; not if there is no name."""
    if who is None:
        return False
    if who["host"] != host() or who["kernel"] not in ("", disk.kernel()):
        return True
    began = disk.began(who["pid"])
    return began is not None and (began == who["began"] or 0 in (began, who["began"]))


def _holder(disk: Disk, root: Root, who: dict[str, Any] | None) -> str:
    if who and _may_be_at_work(disk, who):
        mine = (who["host"], who["pid"]) == (host(), os.getpid())
        command = "this very process, by an earlier init: use that session, or close() it"
        return describe_owner({**who, "command": command} if mine else who)
    left = ", ".join(disk.holders(root.lock)) or "what cannot be seen from here"
    if who is None:
        return f"{describe_owner(who)}; its lock is held by {left}"
    return f"{describe_owner(who)}, which is gone, but what it had started is not: {left}"


def describe_owner(who: dict[str, Any] | None) -> str:
    if who is None:
        return "it has not yet said which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
    return f"process {who['pid']} on {who['host']}, since {since} ({who['command']})"


def check_format(disk: Disk, root: Root) -> None:
    """Raise `FormatError` if what is there is none of ours, or newer. Nothing there is as good as ours."""
    refuse_link(disk, root.side)
    if not disk.exists(root.format):
        return
    try:
        text = disk.read(root.format, NOTE)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise FormatError(f"{root.format} does not name a format: {error.strerror}; nothing was changed") from error
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
