"""Where else than on its own disk a rank's part of a set may be: a copy, the disk on which the rank ran before, the
directory of the start, the remote place.

What is there is told by its record alone, and every byte of it is checked when it comes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from safepoint.disk.files import cause, exists, listdir, read
from safepoint.disk.signals import look
from safepoint.errors import FormatError, RestoreError, SaveError, UsageError
from safepoint.nodes.asking import Which, ask_part, ask_record
from safepoint.nodes.transfer import Peer
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.root import Root, roots
from safepoint.tiers.fetching import bring
from safepoint.tiers.names import identity
from safepoint.tiers.part import LARGEST_RECORD, Changed, Part, parsed
from safepoint.tiers.place import Unreachable, Vanished

logger = logging.getLogger("safepoint")
T = TypeVar("T")
PATIENT, TRIES = 30.0, 2  # seconds, and tries, after which a node that does not answer is given up
PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between two of them
AWAY = (Unreachable, Vanished, Changed, Damaged)  # why a source does not give what it has


def patiently(ask: Callable[[], T]) -> T:
    """The answer of a node of this run, which is asked again for a while: what it has may be nowhere else, and a set
    that is passed over is given up. Raises `Unreachable`."""
    until, pause, turn = time.monotonic() + PATIENT, PAUSE, 1
    while True:
        try:
            return ask()
        except Unreachable:
            if turn >= TRIES and time.monotonic() > until:
                raise
        time.sleep(pause)
        look()
        pause, turn = min(2 * pause, LONGEST_PAUSE), turn + 1


class Source(Protocol):
    """A part of a set somewhere. `name`: for people. `near`: on a node of this run. `known`: the key of the set, and
    its history, as far as that is known without its record."""

    name: str
    near: bool
    known: tuple[int, str]

    def record(self) -> Record:
        """Raises one of AWAY, `OSError`."""

    def bring(self, root: Root) -> None:
        """Below `fetched/` of this root, durably. Raises one of AWAY, `OSError`."""


class Here:
    """In a root that this process can read."""

    near = False

    def __init__(self, name: str, root: Root, number: int, known: tuple[int, str] = (0, "")) -> None:
        self.name, self._root, self._number, self.known = name, root, number, known

    def record(self) -> Record:
        try:
            return parsed(read(self._root.disk, self._root.record(self._number), LARGEST_RECORD))
        except FileNotFoundError as error:
            raise Vanished("it was removed") from error

    def bring(self, root: Root) -> None:
        with contextlib.ExitStack() as stack:
            try:
                part = Part(self._root, self._number, stack)
                bring(root, part.record, part.bundle, part.content, part.blocks())
            except OSError as error:
                if str(error.filename).startswith(f"{root.path}{os.sep}"):
                    raise  # of where it goes to
                raise Damaged(f"{self._root.shown(error.filename)}: {cause(error)}") from error


class There:
    """On another node, or at the remote place, from where this node gets it."""

    def __init__(self, name: str, peer: Peer, which: Which) -> None:
        self.name, self._peer, self._which, self.known = name, peer, which, which.known
        self.near = which.where != "remote"  # a place is asked by who asks this node

    def record(self) -> Record:
        return parsed(self._ask(lambda: ask_record(self._peer, self._which)))

    def bring(self, root: Root) -> None:
        self._ask(lambda: self._bring(root))

    def _bring(self, root: Root) -> None:
        with ask_part(self._peer, self._which) as coming:
            bring(root, parsed(coming.content), coming.bundle, coming.content, coming.blocks)

    def _ask(self, ask: Callable[[], T]) -> T:
        return patiently(ask) if self.near else ask()


def held_here(root: Root, mine: Iterable[int]) -> list[Which]:
    """What this node has of ranks, but for what the ranks that run here now have as their own. Local."""
    found, here = [], {*mine}
    for other in roots(root.disk, root.work)[0]:
        if other.rank not in here and other.rank < root.ranks:
            found += _which(root.of(other.rank), "own")
    for rank in held_ranks(root):
        found += _which(root.held(rank), "held")
    return found


def held_ranks(root: Root) -> list[int]:
    """The ranks of which this node has, or had, copies."""
    top = f"{root.side}/held"
    names = listdir(root.disk, top) if exists(root.disk, top) else []
    numbers = [int(name[5:]) for name in names if name.startswith("rank-") and name[5:].isdecimal()]
    return sorted(number for number in numbers if number < root.ranks)


def _which(root: Root, where: str) -> list[Which]:
    found = []
    for number in _committed(root):
        with contextlib.suppress(Damaged, FileNotFoundError):
            record = parsed(read(root.disk, root.record(number), LARGEST_RECORD))
            found.append(Which(root.rank, number, where, key=record.key, history=record.history))
    return found


def _committed(root: Root) -> list[int]:
    return [number for number in root.numbers("set") if exists(root.disk, root.record(number))]


def record_of(root: Root, identity_: str) -> Record | None:
    """Of this set, if it is committed there. Raises `Damaged`, `OSError`."""
    path = root.record(int(identity_.split("-")[1]))
    if not exists(root.disk, path):
        return None
    try:
        record = parsed(read(root.disk, path, LARGEST_RECORD))
    except FileNotFoundError:
        return None
    return record if identity(record.life, record.number, record.history) == identity_ else None


def at_start(start: Root, rank: int) -> list[Source]:
    """Sets in the directory of the start: of a time before the setting `local`, or fetched there."""
    root = start.of(rank)
    return [Here("the directory of the start", root, number) for number in _committed(root)]


def silent(source: Source, error: Exception) -> RestoreError:
    return RestoreError(
        f"{source.name} does not answer, and has what is nowhere else: {error}; the listed files are untouched, and "
        f"restore may be repeated, here or where the nodes reach each other"
    )


def known(
    sources: Iterable[Source], newer: int, away: Callable[[Source, Unreachable], object]
) -> Iterator[tuple[Record, Source]]:
    """Those of which the record can be read, of sets with a key above `newer`. What cannot be had is said; `away`: is
    told of a node of this run that does not answer, as what it has may be nowhere else."""
    for source in sources:
        if 0 < source.known[0] <= newer:
            continue
        try:
            record = source.record()
        except Unreachable as error:
            if source.near:
                away(source, error)
            else:
                logger.warning("a set on %s cannot be had: %s", source.name, error)
            continue
        except (*AWAY, OSError, FormatError, SaveError, UsageError) as error:
            if not isinstance(error, Vanished):  # removed meanwhile, or never whole
                logger.warning("a set on %s cannot be had: %s", source.name, error)
            continue
        if record.key > newer:
            yield record, source
