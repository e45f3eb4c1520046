"""A look at a directory from outside: read only, without a lock and without MPI.

It works beside a run, and on a copy that was brought to another machine. A run commits and deletes sets meanwhile: so
names that vanish between two looks are looked for again, and must not pass for damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from stat import S_ISDIR
from typing import TypeVar

from safepoint import manifest, words
from safepoint.cli.look.state import Leftover, Overview, Part, Rank, SetState
from safepoint.disk import Disk, PageCache, kernel
from safepoint.disk.files import exists, listdir, stat_or_none
from safepoint.errors import DamagedError, ManifestError, UsageError
from safepoint.manifest import Manifest
from safepoint.nodes.marker import Marker, read_marker
from safepoint.opening import check_format, vanished
from safepoint.owner import read_owner
from safepoint.program import SETTINGS
from safepoint.record import Record, Taken, key, life_of, mark_key
from safepoint.restoring.grown import prefixes_kept
from safepoint.restoring.read import Damaged
from safepoint.restoring.settle import prove
from safepoint.restoring.survey import Candidate, finish_mark, read_taken, refuse_links, survey
from safepoint.root import Root, State, roots

LOOKS = 10  # at a directory that changes meanwhile, before what is missing there counts as missing
Result = TypeVar("Result")


def look(
    disk: Disk, directory: str, *, read: bool = False, mine: bool = False, part: bool = False
) -> Overview:  # fmt: skip
    """What `directory` keeps. `read`: also the checksums of sets that only these can prove whole. `mine`: its locks are
    held by the caller, so no run is at work. `part`: it may be what one node has of a run.

    Raises `FormatError` for a side directory of a newer safepoint, `UsageError` for a part that is not meant, and
    `OSError` where reading is not allowed.
    """
    work = os.path.realpath(directory)
    listed, wrong = None, None
    try:
        listed = manifest.load(work, SETTINGS)
    except ManifestError as error:
        wrong = error
    seen = Root(work)
    if not exists(disk, seen.side):
        return Overview(work, listed, wrong, False)
    found = _again(lambda: _look(disk, seen, listed, wrong, read, mine))
    if found.nodes and found.nodes.start and not part:
        raise UsageError(f"{found.on_nodes}: use the command there, or `safepoint status` here; nothing was changed")
    return found


def _again(look: Callable[[], Result]) -> Result:
    """What `look` gives. A run deletes sets between a look at the names and one at the files: then look again."""
    for _ in range(LOOKS - 1):
        with suppress(FileNotFoundError, NotADirectoryError):
            return look()
    return look()


def _look(
    disk: Disk, seen: Root, listed: Manifest | None, wrong: ManifestError | None, read: bool, mine: bool
) -> Overview:  # fmt: skip
    check_format(seen)
    mark, mark_error = None, ""
    try:
        mark = finish_mark(seen)
    except DamagedError as error:
        mark_error = str(error)
    there, unknown = roots(disk, seen.work)
    if not there and exists(disk, seen.format):
        mark_error = vanished(seen)
    finished = mark_key(mark)
    locks = [root.lock for root in there]
    held = [False] * len(locks) if mine else kernel.held(locks)

    def rank(root: Root, held: bool | None) -> Rank:
        if not held and not mine and (owner := read_owner(root)) and owner["host"] != disk.page_cache(root.path).host:
            held = None  # on another node, or in another container, whose locks this kernel hides
        return _again(lambda: _rank(root, held, finished, read))

    ranks = tuple(rank(root, each) for root, each in zip(there, held, strict=True))
    running = any(rank.held for rank in ranks)
    numbers = sorted({number for rank in ranks for number in rank.parts}, reverse=True)
    sets = [_set(number, ranks, running, finished) for number in numbers]
    newest = next((what for s in sets if s.state != "ended" for what in s.descriptions), None)
    sets = [_judged(s, newest) for s in sets]
    extra = [r.rank for r in ranks if newest and newest.saver is not None and r.rank >= newest.ranks and r.parts]
    return Overview(seen.work, listed, wrong, True, mark, mark_error, ranks, tuple(sets), tuple(unknown), tuple(extra),
                    _nodes(seen))  # fmt: skip


def _nodes(root: Root) -> Marker | None:
    if not exists(root.disk, root.nodes):
        return None
    return read_marker(root)


def _rank(root: Root, held: bool | None, finished: int, read: bool) -> Rank:
    owner, baseline = read_owner(root), exists(root.disk, root.baseline)
    parts = _parts(root, root.disk.page_cache(root.path), finished, read)
    leftovers = tuple(_leftovers(root, held=bool(held)))
    return Rank(root.rank, root, owner, held, baseline, parts, leftovers, tuple(root.unknown()))


def _parts(root: Root, place: PageCache, finished: int, read: bool) -> dict[int, Part]:
    for _ in range(LOOKS):
        recorded = _recorded(root)
        candidates = survey(root)
        newest = max((c.number for c in candidates if c.record), default=0)
        parts: dict[int, Part] = {}
        for candidate in candidates:
            number = candidate.number
            if candidate.record and (fault := _cut_off(root, candidate.record)):
                parts[number] = Part(number, "damaged", fault, record=candidate.record, key=candidate.key)
            elif candidate.record:
                parts[number] = Part(number, "committed", record=candidate.record, key=candidate.key)
            elif recorded.get(number):
                parts[number] = Part(number, "damaged", candidate.reason, taken=_taken(root, number), key=candidate.key)
            elif number < newest or candidate.key <= finished:
                parts[number] = Part(
                    number, "uncommitted", candidate.reason, taken=_taken(root, number), key=candidate.key
                )
            else:
                parts[number] = _unproven(root, candidate, place, read)
        # What a run commits or prunes while we look must not pass for damage, nor for a side directory without a set:
        # the newest may have been empty still when it was looked at, and the one before gone when it was its turn.
        now = _recorded(root)
        seen = {n: part for n, part in parts.items() if n in now}
        settled = all(part.state == "committed" or now[n] == recorded.get(n) for n, part in seen.items())
        if settled and (seen or now == recorded):
            break
    return seen


def _cut_off(root: Root, record: Record) -> str:
    """Which file that only grows has less than the set needs of it; empty: none, as far as its length tells."""
    for file in record.files:
        if file.kind == "append":
            path = os.path.join(root.work, file.path)
            size = root.disk.stat(path).st_size if exists(root.disk, path) else -1
            if size < file.size and not any(prefixes_kept(root, record.number, file)):
                has = "is missing" if size < 0 else f"has {size} bytes"
                return f"{file.path} {has}, and the set needs its first {file.size}"
    return ""


def _recorded(root: Root) -> dict[int, bool]:
    """The sets that are there, and which of them have a record."""
    return {number: exists(root.disk, root.record(number)) for number in root.numbers("set")}


def _unproven(root: Root, candidate: Candidate, place: PageCache, read: bool) -> Part:
    """A set without a record that the next start would try to complete."""
    number, key = candidate.number, candidate.key
    try:
        taken, _ = prove(root, number, place, read=read)
        return Part(number, "completable", taken=taken, key=key)
    except Damaged as error:
        taken_ = _taken(root, number)
        if not read and taken_ and exists(root.disk, root.record(number) + ".new"):
            return Part(number, "perhaps", "only its checksums can tell whether it is whole", taken=taken_, key=key)
        return Part(number, "uncommitted", str(error), taken=taken_, key=key)


def _taken(root: Root, number: int) -> Taken | None:
    with suppress(Damaged, OSError):  # what it says is only shown
        refuse_links(root, number)
        return read_taken(root, number)
    return None


def _set(number: int, ranks: tuple[Rank, ...], running: bool, finished: int) -> SetState:
    parts = {rank.rank: rank.parts[number] for rank in ranks if number in rank.parts}
    whats = [part.description for part in parts.values() if part.description]
    needed = _needed(whats[0]) if whats else tuple(parts)
    reasons = {}
    for rank in needed:
        part = parts.get(rank)
        if part is None:
            reasons[rank] = "does not have it"
        elif not part.usable:
            reasons[rank] = part.reason
    states = {parts[rank].state if rank in parts else "missing" for rank in needed}
    said = [what for what in whats if what.per_rank or what.saver == what.rank]
    if len({what.step for what in said}) > 1 and not reasons:
        reasons = {
            r: f"it is step {p.description.step} there" for r, p in parts.items() if p.description and r in needed
        }
        states.add("damaged")
    newest = max(said, key=lambda what: what.key, default=None)
    if newest and len({(what.life, what.history) for what in said}) > 1 and not reasons:
        reasons = {r: "it is of another history there" for r, p in parts.items() if p.description and r in needed
                   and (p.description.life, p.description.history) != (newest.life, newest.history)}  # fmt: skip
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
    return SetState(number, state, needed, parts, reasons, perhaps)


def _needed(what: Record | Taken) -> tuple[int, ...]:
    """The roots that must have the set."""
    if what.saver is None:
        return (0,)  # alone in W, its root has that name
    return tuple(range(what.ranks)) if what.per_rank else (what.saver,)


def _judged(seen: SetState, newest: Record | Taken | None) -> SetState:
    """Not for a program with the ranks of the newest set, if it is of another number of ranks."""
    what = next(iter(seen.descriptions), None)
    if what is None or newest is None or seen.state == "ended":
        return seen
    who = f"saved by {words.count(what.ranks, 'rank')}"
    if not what.per_rank and what.saver is not None:
        if what.saver < newest.ranks:
            return seen
        who += f", with its files on rank {what.saver}"
    elif (what.ranks, what.saver is None) == (newest.ranks, newest.saver is None):
        return seen
    reason = f"it was {who}, and the newest set by {newest.ranks}"
    return SetState(seen.number, "foreign", seen.needed, seen.parts, {seen.needed[0]: reason})


def _leftovers(root: Root, *, held: bool) -> list[Leftover]:
    states: dict[State, str] = {
        "failed": "a set whose fsync failed, or that could not be taken back",
        "gone": "a set that was being deleted",
    }
    found: list[tuple[str, str, str, int]] = [
        (root.state(s, n), what, s, n) for s, what in states.items() for n in root.numbers(s)
    ]
    if exists(root.disk, root.stage):
        found.append((root.stage, "of a restore at work" if held else "of a restore that was killed", "", 0))
    if exists(root.disk, root.discarded):
        found.append((root.discarded, "what the last restore moved out of the way", "", 0))
    if exists(root.disk, root.fetched):
        found.append((root.fetched, "of a fetch at work" if held else "of a fetch that was killed", "", 0))
    if not held:
        empty = [n for n in root.numbers("set") if _is_empty(root, n)]
        found += [(root.set(n), "nothing was taken into it", "set", n) for n in empty]
    return [Leftover(path, what, _size(root.disk, path), root, state, n) for path, what, state, n in found]


def _is_empty(root: Root, number: int) -> bool:
    """Whether this set is only the directory that was made ahead for it."""
    try:
        refuse_links(root, number)
    except Damaged:
        return False
    names = listdir(root.disk, root.set(number))
    taken, kept = root.taken(number), root.stored(number, "")
    return (
        set(names) <= {"taken.json", "files"}
        and not (exists(root.disk, taken) and root.disk.stat(taken).st_size)
        and not (exists(root.disk, kept) and listdir(root.disk, kept))
    )


def _size(disk: Disk, path: str) -> int:
    """Bytes below `path`; what vanishes meanwhile has none."""
    info, total = stat_or_none(disk, path), 0
    if info is None or not S_ISDIR(info.st_mode):
        return info.st_size if info else 0
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in listdir(disk, path):
            total += _size(disk, os.path.join(path, name))
    return total
