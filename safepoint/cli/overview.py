"""What a directory keeps, seen from outside: pure data, read only, without a lock and without MPI.

It works beside a run, and on a copy that was brought to another machine. A set counts as a restart would count it: by
what every rank needed for it can give back. Assumed is a restart with as many ranks as the newest set has; and that the
ranks coordinate, since nothing on the disk says whether they did.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from stat import S_ISDIR
from typing import Any, TypeVar

from safepoint import manifest
from safepoint.disk import Disk, Place
from safepoint.errors import DamagedError, ManifestError, NothingSavedError
from safepoint.manifest import Manifest
from safepoint.opening import check_format, describe_owner, read_owner, vanished
from safepoint.record import Record, Root, StoredFile, Taken, key, label, life_of, mark_key, roots
from safepoint.restore import Damaged, finish_mark, prefixes_kept, prove, read_taken, refuse_links, survey

LOOKS = 10  # at a directory that changes meanwhile, before what is missing there counts as missing
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Part:
    """What one rank has of one set. `state`: committed, damaged (why: `reason`), or, without a record: completable
    (the next start commits it), perhaps (it does if the checksums hold, which were not read), uncommitted."""

    number: int
    state: str
    reason: str = ""
    record: Record | None = None
    taken: Taken | None = None

    @property
    def what(self) -> Record | Taken | None:
        return self.record or self.taken

    @property
    def usable(self) -> bool:
        return self.state in ("committed", "completable")


@dataclass(frozen=True)
class Leftover:
    """Something below the side directory that no restart would take. `state` and `number`: if it is a set's."""

    path: str
    what: str
    size: int
    root: Root
    state: str = ""
    number: int = 0


@dataclass(frozen=True, eq=False)
class Rank:
    """One root, by the number in its name. `held`: whether its lock is; None: cannot be seen from here."""

    rank: int
    root: Root
    owner: dict[str, Any] | None
    held: bool | None
    baseline: bool
    parts: dict[int, Part]
    leftovers: tuple[Leftover, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Set:
    """One set of the program: the parts of all ranks. `state`: complete; completable (the next start commits what is
    missing); saving; uncommitted; incomplete (`reasons` says which ranks lack it, and why); damaged; foreign (not for
    a restart with as many ranks as the newest set); ended (older than the finish mark)."""

    number: int
    state: str
    needed: tuple[int, ...]  # ranks without which it cannot be given back
    parts: dict[int, Part]
    reasons: dict[int, str]  # by rank
    perhaps: bool = False  # whole if checksums hold that were not read

    @property
    def whats(self) -> list[Record | Taken]:
        return [part.what for part in self.parts.values() if part.what]

    @property
    def step(self) -> int | None:
        return next((what.step for what in self.whats), None)

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def time(self) -> float | None:
        return next((what.time for what in self.whats), None)

    @property
    def files(self) -> list[tuple[int, StoredFile]]:
        """Rank and file, of what has a record."""
        return [(rank, f) for rank, part in self.parts.items() if part.record for f in part.record.files]

    @property
    def totals(self) -> tuple[int, int, int]:
        """Number of files, their bytes, and the bytes that are kept of them."""
        data = [file for _, file in self.files if file.has_bytes]
        taken = [i for part in self.parts.values() if not part.record and part.taken for i in part.taken.files]
        sizes = sum(f.size for f in data) + sum(item.size for item in taken)
        return len(data) + len(taken), sizes, sum(f.stored_size for f in data)

    @property
    def have(self) -> list[int]:
        return [rank for rank in self.needed if rank in self.parts and self.parts[rank].state == "committed"]

    @property
    def usable(self) -> bool:
        return self.state in ("complete", "completable") or (
            self.state == "saving" and not self.reasons and not self.perhaps
        )

    @property
    def why(self) -> str:
        """The reasons in one sentence, ranks with the same one together."""
        by_reason: dict[str, list[int]] = {}
        for rank, reason in self.reasons.items():
            by_reason.setdefault(reason, []).append(rank)
        alone = len(self.needed) == 1 and len(self.reasons) == 1
        return "; ".join(reason if alone else f"{_who(them)}: {reason}" for reason, them in by_reason.items())


@dataclass(frozen=True)
class Overview:
    """All of it. `sets`: newest first. `mark`: the finish mark, if the run was finished."""

    work: str
    manifest: Manifest | None
    manifest_error: ManifestError | None
    side: bool  # there is a side directory
    mark: dict[str, Any] | None = None
    mark_error: str = ""  # why no restart can begin: the mark cannot be read, or all roots are gone
    ranks: tuple[Rank, ...] = ()
    sets: tuple[Set, ...] = ()
    unknown: tuple[str, ...] = ()
    extra: tuple[int, ...] = field(default=())  # ranks with sets that a restart as assumed does not have

    @property
    def takes(self) -> Set | None:
        """The set that a restart would give back, as far as this look tells."""
        return next((s for s in self.sets if s.usable), None)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show: then a command that finds an error has no answer beside it."""
        return not (self.sets or self.mark or self.mark_error or self.running)

    @property
    def newer(self) -> list[Set]:
        """The sets that a restart would pass over."""
        takes = self.takes
        return [s for s in self.sets if s.state != "ended" and (takes is None or s.number > takes.number)]

    @property
    def finished(self) -> bool:
        """Whether a restart leaves the files alone, as no set is newer than the finish mark."""
        return self.mark is not None and self.takes is None and not self.begun

    def has_ended(self, number: int) -> bool:
        """Whether the finish mark has ended the set of this number, which may be gone by now."""
        states = [s.state for s in self.sets if s.number == number] or ["ended"]
        return self.mark is not None and number <= self.mark["number"] and states == ["ended"]

    @property
    def begun(self) -> bool:
        """Whether there was, as far as this shows, once a complete set that the files in place depend on: then a
        restart without a whole one is an error, and no first start."""
        return any(
            any(part.state == "damaged" for part in rank.parts.values()) or (bool(rank.parts) and not rank.baseline)
            for rank in self._current
        )

    @property
    def _current(self) -> list[Rank]:
        ended = {s.number for s in self.sets if s.state == "ended"}
        return [r for r in self.ranks if any(number not in ended for number in r.parts)]

    @property
    def running(self) -> Rank | None:
        return next((rank for rank in self.ranks if rank.held), None)

    @property
    def who(self) -> str:
        """Who is at work here, in a sentence."""
        if self.running:
            return f"running: {describe_owner(self.running.owner)}"
        blind = next((rank for rank in self.ranks if rank.held is None and rank.owner), None)
        if blind:
            text = describe_owner(blind.owner)
            return f"last started by {text} (cannot see from here whether it still runs)"
        return "not running"

    @property
    def leftovers(self) -> list[Leftover]:
        return [leftover for rank in self.ranks for leftover in rank.leftovers]

    def find(self, number: int) -> Set:
        """Raises `NothingSavedError` if there is no set of this number."""
        for each in self.sets:
            if each.number == number:
                return each
        have = ", ".join(str(s.number) for s in self.sets)
        raise NothingSavedError(f"no set {number} in {self.work}{f': there are {have}' if have else ', nor any other'}")

    def root(self, rank: int, of: Set | None = None) -> Root:
        """This root as a program sees it that has the ranks and the saver of a set, by default the newest."""
        what = next(iter((of or self.sets[0]).whats), None) if of or self.sets else None
        if what is None:
            return Root(self.work, rank)
        return Root(self.work, what.rank if what.saver is None else rank, what.ranks, what.saver)

    def raise_if_empty(self) -> None:
        """Raise `NothingSavedError` if there is no set, `DamagedError` if all roots are gone."""
        if self.mark_error and not self.ranks:
            raise DamagedError(self.mark_error)
        if not self.side:
            raise NothingSavedError(f"nothing is saved here: {self.work} has no {manifest.SIDE}")
        if not self.sets and self.mark:
            raise NothingSavedError(
                f"no set is left: the run in {self.work} was finished, its files in place are the result"
            )
        if not self.sets:
            raise NothingSavedError(f"nothing is saved here: {self.work} has no set yet")


def _who(them: list[int]) -> str:
    from safepoint.cli.terminal import ranks

    return f"rank {them[0]}" if len(them) == 1 else f"ranks {ranks(them)}"


def look(disk: Disk, directory: str, *, read: bool = False, mine: bool = False) -> Overview:
    """What `directory` keeps. `read`: also the checksums of sets that only these can prove whole. `mine`: its locks are
    held by the caller, so no run is at work.

    Raises `FormatError` for a side directory of a newer safepoint, and `OSError` where reading is not allowed.
    """
    work = os.path.realpath(directory)
    listed, wrong = None, None
    try:
        listed = manifest.load(work)
    except ManifestError as error:
        wrong = error
    seen = Root(work)
    if not disk.exists(seen.side):
        return Overview(work, listed, wrong, False)
    return _again(lambda: _look(disk, seen, listed, wrong, read, mine))


def _again(look: Callable[[], Result]) -> Result:
    """What `look` gives. A run deletes sets between a look at the names and one at the files: then look again."""
    for _ in range(LOOKS - 1):
        with suppress(FileNotFoundError, NotADirectoryError):
            return look()
    return look()


def _look(
    disk: Disk, seen: Root, listed: Manifest | None, wrong: ManifestError | None, read: bool, mine: bool
) -> Overview:  # fmt: skip
    check_format(disk, seen)
    mark, mark_error = None, ""
    try:
        mark = finish_mark(disk, seen)
    except DamagedError as error:
        mark_error = str(error)
    there, unknown = roots(disk, seen.work)
    if not there and disk.exists(seen.format):
        mark_error = vanished(seen)
    finished = mark_key(mark)
    locks = [root.lock for root in there]
    held = [False] * len(locks) if mine else disk.held(locks)

    def rank(root: Root, held: bool | None) -> Rank:
        if not held and not mine and (owner := read_owner(disk, root)) and owner["host"] != disk.place(root.path).host:
            held = None  # on another node, or in another container, whose locks this kernel hides
        return _again(lambda: _rank(disk, root, held, finished, read))

    ranks = tuple(rank(root, each) for root, each in zip(there, held, strict=True))
    running = any(rank.held for rank in ranks)
    numbers = sorted({number for rank in ranks for number in rank.parts}, reverse=True)
    sets = [_set(number, ranks, running, finished) for number in numbers]
    newest = next((what for s in sets if s.state != "ended" for what in s.whats), None)
    sets = [_judged(s, newest) for s in sets]
    extra = [r.rank for r in ranks if newest and newest.saver is not None and r.rank >= newest.ranks and r.parts]
    return Overview(seen.work, listed, wrong, True, mark, mark_error, ranks, tuple(sets), tuple(unknown), tuple(extra))


def _rank(disk: Disk, root: Root, held: bool | None, finished: int, read: bool) -> Rank:
    owner, baseline = read_owner(disk, root), disk.exists(root.baseline)
    parts = _parts(disk, root, disk.place(root.path), finished, read)
    leftovers = tuple(_leftovers(disk, root, held=bool(held)))
    return Rank(root.rank, root, owner, held, baseline, parts, leftovers, tuple(root.unknown(disk)))


def _parts(disk: Disk, root: Root, place: Place, finished: int, read: bool) -> dict[int, Part]:
    for _ in range(LOOKS):
        recorded = _recorded(disk, root)
        candidates = survey(disk, root)
        newest = max((c.number for c in candidates if c.record), default=0)
        parts: dict[int, Part] = {}
        for candidate in candidates:
            number = candidate.number
            if candidate.record and (fault := _cut_off(disk, root, candidate.record)):
                parts[number] = Part(number, "damaged", fault, record=candidate.record)
            elif candidate.record:
                parts[number] = Part(number, "committed", record=candidate.record)
            elif recorded.get(number):
                parts[number] = Part(number, "damaged", candidate.reason, taken=_taken(disk, root, number))
            elif number < newest or candidate.key <= finished:
                parts[number] = Part(number, "uncommitted", candidate.reason, taken=_taken(disk, root, number))
            else:
                parts[number] = _unproven(disk, root, number, place, read)
        # What a run commits or prunes while we look must not pass for damage, nor for a side directory without a set:
        # the newest may have been prepared only when it was looked at, and the one before gone when it was its turn.
        now = _recorded(disk, root)
        seen = {n: part for n, part in parts.items() if n in now}
        settled = all(part.state == "committed" or now[n] == recorded.get(n) for n, part in seen.items())
        if settled and (seen or now == recorded):
            break
    return seen


def _cut_off(disk: Disk, root: Root, record: Record) -> str:
    """Which file that only grows has less than the set needs of it; empty: none, as far as its length tells."""
    for file in record.files:
        if file.kind == "append":
            path = os.path.join(root.work, file.path)
            size = disk.stat(path).st_size if disk.exists(path) else -1
            if size < file.size and not any(prefixes_kept(disk, root, record.number, file)):
                has = "is missing" if size < 0 else f"has {size} bytes"
                return f"{file.path} {has}, and the set needs its first {file.size}"
    return ""


def _recorded(disk: Disk, root: Root) -> dict[int, bool]:
    """The sets that are there, and which of them have a record."""
    return {number: disk.exists(root.record(number)) for number in root.numbers(disk, "set")}


def _unproven(disk: Disk, root: Root, number: int, place: Place, read: bool) -> Part:
    """A set without a record that the next start would try to complete."""
    try:
        taken, _ = prove(disk, root, number, place, read=read)
        return Part(number, "completable", taken=taken)
    except Damaged as error:
        taken_ = _taken(disk, root, number)
        if not read and taken_ and disk.exists(root.record(number) + ".new"):
            return Part(number, "perhaps", "only its checksums can tell whether it is whole", taken=taken_)
        return Part(number, "uncommitted", str(error), taken=taken_)


def _taken(disk: Disk, root: Root, number: int) -> Taken | None:
    with suppress(Damaged, OSError):  # what it says is only shown
        refuse_links(disk, root, number)
        return read_taken(disk, root, number)
    return None


def _set(number: int, ranks: tuple[Rank, ...], running: bool, finished: int) -> Set:
    parts = {rank.rank: rank.parts[number] for rank in ranks if number in rank.parts}
    whats = [part.what for part in parts.values() if part.what]
    needed = _needed(whats[0]) if whats else tuple(parts)
    reasons = {}
    for rank in needed:
        part = parts.get(rank)
        if part is None:
            reasons[rank] = "does not have it"
        elif not part.usable:
            reasons[rank] = part.reason
    states = {parts[rank].state if rank in parts else "missing" for rank in needed}
    said = [what for what in whats if what.of_each or what.saver == what.rank]
    if len({what.step for what in said}) > 1 and not reasons:
        reasons = {r: f"it is step {p.what.step} there" for r, p in parts.items() if p.what and r in needed}
        states.add("damaged")
    newest = max(said, key=lambda what: what.key, default=None)
    if newest and len({(what.life, what.history) for what in said}) > 1 and not reasons:
        reasons = {r: "it is of another history there" for r, p in parts.items() if p.what and r in needed
                   and (p.what.life, p.what.history) != (newest.life, newest.history)}  # fmt: skip
        states.add("incomplete")
    perhaps = "perhaps" in states and states <= {"perhaps", "committed", "completable"}
    if max((what.key for what in whats), default=key(life_of(finished), number)) <= finished:
        state = "ended"
    elif "damaged" in states:
        state = "damaged"
    elif states == {"committed"}:
        state = "complete"
    elif running and all(number >= max(rank.parts, default=0) for rank in ranks):
        state = "saving"
    elif states <= {"committed", "completable"}:
        state = "completable"
    else:
        state = "incomplete" if "committed" in states else "uncommitted"
    return Set(number, state, needed, parts, reasons, perhaps)


def _needed(what: Record | Taken) -> tuple[int, ...]:
    """The roots that must have the set."""
    if what.saver is None:
        return (0,)  # alone in W, its root has that name
    return tuple(range(what.ranks)) if what.of_each else (what.saver,)


def _judged(seen: Set, newest: Record | Taken | None) -> Set:
    """Not for a program with the ranks of the newest set, if it is of another number of ranks."""
    what = next(iter(seen.whats), None)
    if what is None or newest is None or seen.state == "ended" or not what.of_each:
        return seen
    if (what.ranks, what.saver is None) == (newest.ranks, newest.saver is None):
        return seen
    who = "1 rank" if what.ranks == 1 else f"{what.ranks} ranks"
    reason = f"it was saved by {who}, and the newest set by {newest.ranks}"
    return Set(seen.number, "foreign", seen.needed, seen.parts, {seen.needed[0]: reason})


def _leftovers(disk: Disk, root: Root, *, held: bool) -> list[Leftover]:
    states = {
        "failed": "a set whose fsync failed, or that could not be taken back",
        "gone": "a set that was being deleted",
    }
    found = [(root.state(s, n), what, s, n) for s, what in states.items() for n in root.numbers(disk, s)]
    if disk.exists(root.stage):
        found.append((root.stage, "of a restore at work" if held else "of a restore that was killed", "", 0))
    if disk.exists(root.discarded):
        found.append((root.discarded, "what the last restore moved out of the way", "", 0))
    if not held:
        empty = [n for n in root.numbers(disk, "set") if _is_empty(disk, root, n)]
        found += [(root.set(n), "prepared, empty", "set", n) for n in empty]
    return [Leftover(path, what, _size(disk, path), root, state, n) for path, what, state, n in found]


def _is_empty(disk: Disk, root: Root, number: int) -> bool:
    """Whether this set is only the directory that was made ahead for it."""
    try:
        refuse_links(disk, root, number)
    except Damaged:
        return False
    names = disk.listdir(root.set(number))
    taken, kept = root.taken(number), root.stored(number, "")
    return (
        set(names) <= {"taken.json", "files"}
        and not (disk.exists(taken) and disk.stat(taken).st_size)
        and not (disk.exists(kept) and disk.listdir(kept))
    )


def _size(disk: Disk, path: str) -> int:
    """Bytes below `path`; what vanishes meanwhile has none."""
    info, total = disk.stat_or_none(path), 0
    if info is None or not S_ISDIR(info.st_mode):
        return info.st_size if info else 0
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in disk.listdir(path):
            total += _size(disk, os.path.join(path, name))
    return total
