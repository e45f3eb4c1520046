"""How a program begins in a directory: its manifest, its lock, and what earlier lives left there.

The first rank in W (the saver; without one, each rank in its own W) opens it for all: it takes its lock before anything
else, makes the side directory, and reads the manifest. What it saw goes to the others by MPI, since a node may not yet
see what another one wrote. Then each rank that has something to save makes and locks a root of its own. If any rank
fails, all give their locks back and raise.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex

from safepoint import manifest
from safepoint.disk import Disk, PageCache
from safepoint.disk.files import NO_FILE, exists, read
from safepoint.errors import DamagedError, FormatError, SaveError, UsageError
from safepoint.owner import Waiting, claim
from safepoint.patterns import NAME, SIDE
from safepoint.ranks import LARGEST, Ranks, Serial, launcher, misfit
from safepoint.record import Life, parse_record
from safepoint.restoring import baseline, survey
from safepoint.retention import Keep, parse
from safepoint.root import Root, refuse_link, roots
from safepoint.sealed import FORMAT, LIVES, NOTE, Unsealed, write_durably
from safepoint.settings import SETTINGS, Setting

logger = logging.getLogger("safepoint")


class Choices(NamedTuple):
    """What `init` was told, checked; the same on all ranks."""

    saver: int | None
    coordinate: bool | None
    keep: Keep | None
    background: bool
    inflight: str
    store: str | None


def checked(
    size: int, saver: int | None, coordinate: bool | None, keep: int | str | None, background: bool, inflight: str,
    store: str | None = None,
) -> Choices:  # fmt: skip
    """The options of `init` that all ranks must give alike, checked."""
    if inflight not in ("warn", "error", "off"):
        raise UsageError(f"inflight must be 'warn', 'error' or 'off', not {inflight!r}")
    if store not in (None, "newest", "every"):
        raise UsageError(f"store must be 'newest' or 'every', not {store!r}")
    saver = None if saver is None else whole("saver", saver)
    if saver is not None and not 0 <= saver < size:
        raise UsageError(f"saver must be one of the ranks 0 to {size - 1}, or None, not {saver}")
    agreed = None if coordinate is None else bool(coordinate)
    return Choices(saver, agreed, None if keep is None else _keep(keep), bool(background), str(inflight), store)


def _keep(told: int | str) -> Keep:
    if isinstance(told, str):
        try:
            return parse(told)
        except ValueError as error:
            raise UsageError(f"keep {error}; not {told!r}") from None
    count = whole("keep", told)
    if count < 1:
        raise UsageError(f"keep must be at least 1, not {count}: without a set nothing could be restored")
    return Keep(count)


def whole(name: str, value: SupportsIndex) -> int:
    """The integer that a caller gave, of Python or of numpy. Raises `UsageError` for anything else, a float too."""
    try:
        number = operator.index(value)
        str(number)  # what is too long for that could be neither written down nor read again
    except TypeError:
        wrong = f"{reprlib.repr(value)} ({type(value).__name__})"
    except ValueError as error:
        wrong = f"a number so long ({error})"
    else:
        return number
    raise UsageError(f"{name} must be an integer, not {wrong}; nothing was changed")


LOCAL, PARTNER, REMOTE = 1, 2, 3  # how far a set is safe: from a power cut; the loss of a node; of all nodes
LEVELS = {"local": LOCAL, "partner": PARTNER, "remote": REMOTE}


def level_of(verb: str, wait: Any, known: Collection[int]) -> int:
    """Until when a caller wants to wait: True, or a level; 0: it does not. `known`: the levels that this run has.
    Raises `UsageError`."""
    if not isinstance(wait, str):
        return LOCAL if wait else 0
    if wait not in LEVELS:
        names = "'local', 'partner' or 'remote'"
        raise UsageError(f"{verb} waits for {names}, not {reprlib.repr(wait)}; nothing was changed")
    if LEVELS[wait] not in known:
        raise UsageError(
            f"{verb} is to wait for {wait!r}, and this run puts nothing there: its manifest has no setting {wait}, or "
            f"drain = off, or its ranks do not coordinate; nothing was changed"
        )
    return LEVELS[wait]


def check_same(ranks: Serial | Ranks, verb: str, **options: Any) -> None:
    """The ranks must have been told the same, or they would not make the same calls."""
    for name, value in options.items():
        first = ranks.share(value, 0)
        other = UsageError(f"{name}={value} given to {verb}, and {name}={first} on rank 0: give all ranks the same")
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
    keep: Keep
    life: Life  # of a first start; else `restore` begins one
    active: bool  # this rank has a root

    def __init__(
        self, disk: Disk, ranks: Serial | Ranks, directory: str | os.PathLike[str], saver: int | None,
        keep: Keep | None, settings: Mapping[str, Setting] = SETTINGS,
    ) -> None:  # fmt: skip
        """`settings`: all that the manifest may have, those of listeners too."""
        self.disk, self.ranks, self._settings = disk, ranks, settings
        self.lead = 0 if saver is None else saver  # the rank that reads and writes what is there once for all
        self.page_cache = PageCache("", "", None)  # where the root is
        self.number = 0  # the newest that a set or a finish mark has had
        self.levels: Collection[int] = (LOCAL,)  # until when a caller may wait
        self.past = False  # there is something to restore
        self.first_start = True  # no earlier start could have left torn first files
        self.release: Callable[[], object] = lambda: None  # gives the lock back; where there are no locks, nothing
        self._waiting = Waiting()
        first = saver is None or ranks.rank == saver
        with contextlib.ExitStack() as on_error:
            seen: Any = ranks.together(lambda: self._enter(directory, saver, on_error) if first else None)
            if saver is not None:
                seen = ranks.share(seen, saver)
            self._join_all(directory, saver, keep, seen, on_error)
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
        listed = manifest.parse(text, os.path.join(root.work, NAME), self._settings)
        listed.owned_by(root.rank, root.ranks, saver)  # its faults before anything is made
        with self._reporting():
            check_format(root)
            rooted = rooted_ranks(root)
            self._lock(on_error, rooted)
            line, there = f"safepoint {FORMAT}\n".encode(), exists(disk, root.format)
            if not there:
                # The root before what says that there was one: else, after a power cut, it would seem to have vanished.
                disk.sync_dir(root.side)
            # Also over an older one, before there is a set that an older library would take for one of its own.
            if not there or read(disk, root.format, NOTE) != line:
                write_durably(disk, root.format, line)
            return root.work, disk.stat(root.work).st_ino, text, rooted

    def _find_root(self, directory: str | os.PathLike[str], saver: int | None) -> Root:
        ranks = self.ranks
        try:
            work = os.path.realpath(os.fsdecode(directory))
        except (OSError, TypeError, ValueError) as error:
            cause, number = getattr(error, "strerror", error), getattr(error, "errno", None)
            raise UsageError(f"cannot work in directory {directory!r}: {cause}", number) from error
        self.root = Root(work, ranks.rank, ranks.size, saver, self.disk)
        return self.root

    def _lock(self, on_error: contextlib.ExitStack, rooted: int) -> None:
        """Make the side directory and our root if there is none, and take the lock. Raises `DamagedError` if this is
        one of the `rooted` ranks and its root has vanished."""
        disk, root = self.disk, self.root
        if root.rank < rooted and not exists(disk, root.path):
            raise DamagedError(vanished(root))
        refuse_link(disk, root.side)
        root.make_side()
        refuse_link(disk, root.path)
        with contextlib.suppress(FileExistsError):
            disk.mkdir(root.path, root.mode)
        self.release = on_error.callback(claim(root, self._waiting, self._hint))

    @property
    def _hint(self) -> str:
        if self.root.saver is None and self.ranks.size > 1:
            return ". With saver=None every rank needs a directory of its own"
        if self.ranks.size == 1 and (wrong := misfit()):
            return f". This may be another rank of the same program: {wrong}"
        if self.ranks.size == 1 and launcher():
            return (
                f". This process was started by a parallel launcher ({launcher()} is set): if it is one rank of a "
                f"program, call init(comm=MPI.COMM_WORLD), in C safepoint_init_mpi"
            )
        return ""

    def _join_all(self, *seen: Any) -> None:
        """Collective."""
        self.ranks.together(lambda: self._join(*seen))

    def _join(
        self, directory: str | os.PathLike[str], saver: int | None, keep: Keep | None, seen: tuple[str, int, str, int],
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
            listed = manifest.parse(text, os.path.join(root.work, NAME), self._settings)
            self.manifest = listed.owned_by(ranks.rank, ranks.size, saver)
            self.keep = listed.setting("keep") if keep is None else keep
            # A rank that has nothing to save, and never had, leaves the disk alone. Rank 0 always writes records, so
            # that a later run, of whatever number of ranks, finds what was saved.
            self.active = bool(opened or ranks.rank == 0 or self.manifest.entries or exists(disk, root.path))
            if self.active and not opened:
                self._lock(on_error, rooted)

    def _look(self) -> None:
        """What earlier lives left."""
        disk, root = self.disk, self.root
        if not self.active:
            return
        with self._reporting():
            baseline.refuse_outside(root, self.manifest)
            self.page_cache = disk.page_cache(root.path)
            mark = survey.finish_mark(root) if self.ranks.rank == self.lead else None
            self._numbers = [n for state in ("set", "failed", "gone") for n in root.numbers(state)]
            self.number = max([*self._numbers, mark["number"] if mark else 0])
            self.first_start = not exists(disk, root.baseline)
            self.past = bool(self._numbers or mark or not self.first_start)
            # The log begins after the baseline, which goes for a set. The sets of a finished run have gone too.
            gone = not self.past and exists(disk, root.log) and not exists(disk, root.nodes)
            if gone and not exists(disk, root.finished):
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
            if self.first_start:
                on_error.callback(self._forget)
                baseline.note_baseline(root, self.manifest)
            else:
                disk.sync_dir(root.path)  # the life that wrote the baseline may have died before it did this

    def _forget(self) -> None:
        """A start that failed on another rank was none: what the user does next may be to bring the initial files."""
        with contextlib.suppress(OSError):
            if exists(self.disk, self.root.baseline):
                self.disk.remove(self.root.baseline)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            with self.root.reporting(
                SaveError, f"cannot set up {SIDE}", f"{self._intact()}the listed files are untouched"
            ):
                raise

    def _intact(self) -> str:
        """The newest set of this root that has a good record, for a message; nothing if there is none."""
        with contextlib.suppress(OSError):
            for number in reversed(self.root.numbers("set")):
                with contextlib.suppress(OSError, Unsealed, FormatError):
                    return f"{parse_record(read(self.disk, self.root.record(number))).label} is intact; "
        return ""


def rooted_ranks(root: Root) -> int:
    """How many ranks, from 0 on, must find a root, as an earlier start, or the newest set, had one for each."""
    if not exists(root.disk, root.format):
        return 0
    there = roots(root.disk, root.work)[0]
    if not there:
        return root.rank + 1
    if root.saver is None or (root.ranks == 1 and there[0].rank == root.rank):
        return 0  # nobody's but our own, which is there
    seen = root if exists(root.disk, root.path) else there[0]
    for number in reversed(seen.numbers("set")):
        with contextlib.suppress(Unsealed, FormatError, OSError):  # `restore` says what is wrong with it
            record = parse_record(read(root.disk, seen.record(number)))
            return record.ranks if record.per_rank and record.saver is not None else 0
    return 0


def vanished(root: Root) -> str:
    return (
        f"{root.path} is gone, though an earlier run had made it: if it had sets they are gone with it, so this must "
        f"not pass for a first start. Bring it back; or, to start afresh, remove {root.side} as a whole; nothing was "
        f"changed"
    )


def check_format(root: Root) -> None:
    """Raise `FormatError` if what is there is none of ours, or newer. Nothing there is as good as ours."""
    refuse_link(root.disk, root.side)
    if not exists(root.disk, root.format):
        return
    try:
        text = read(root.disk, root.format, NOTE)
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
