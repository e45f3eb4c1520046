"""Bring a set from a place into a directory, as a committed set: there `restore` finds it.

killed after            there is                                           the next start; and the next fetch
the side directory      nothing                                            a first start; begins anew
some bytes              `fetched/` of some ranks, which nobody reads       the same
all bytes, durable      the same                                           the same
FORMAT, coming          the same                                           the same
some renames            the set on some ranks                              says which rank lacks it; goes on
all renames             the set                                            restores it; flushes and notes it
all renames, durable    the set                                            the same
the note                the set                                            restores it; finds it there
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from safepoint.disk import Disk
from safepoint.disk.files import exists, remove_tree, room, sync
from safepoint.errors import NothingSavedError, SaveError
from safepoint.record import Record
from safepoint.restoring.read import Damaged, read_out
from safepoint.root import Root, refuse_link
from safepoint.saving import prune
from safepoint.sealed import FORMAT, write_durably
from safepoint.tiers import note
from safepoint.tiers.names import Name
from safepoint.tiers.part import unpack
from safepoint.tiers.remote import Index, Listing, Remote

AGAIN = 3  # times that what is there changes while it is looked at, or brought


class Found(NamedTuple):
    """One set at a place. `why`: by rank why it is not whole. `newest`: of all that were there."""

    name: Name
    parts: dict[int, Index]
    why: dict[int, str]
    newest: Name

    @property
    def step(self) -> int | None:
        said = (p.record for p in self.parts.values() if p.record.per_rank or p.record.saver == p.record.rank)
        return next((record.step for record in said), None)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts.values())


def sets_at(remote: Remote, listing: Listing) -> Iterator[Found]:
    """All that are there, newest first; each is read when it is asked for."""
    for name in listing.sets:
        yield Found(name, *remote.lacks(listing, name), max(listing.sets))


def roots_for(work: str, parts: Mapping[int, Index], disk: Disk) -> dict[int, Root]:
    """Where a program finds them. One that was alone in its directory is alone here."""
    records = {rank: part.record for rank, part in parts.items()}
    return {rank: Root(work, rank, record.ranks, record.saver, disk) for rank, record in records.items()}


def make_ready(work: str, disk: Disk) -> Root:
    """The side directory, which is made if there is none."""
    root = Root(work, disk=disk)
    refuse_link(disk, root.side)
    if not exists(disk, root.side):
        with contextlib.suppress(PermissionError):  # else it is not we who have made it
            disk.sync_dir(os.path.dirname(root.work))
    root.make_side()
    disk.sync_dir(root.work)
    return root


def refuse_full(one: Root, parts: Mapping[int, Index]) -> None:
    """Raise `SaveError` if there is no room: before a byte is brought."""
    needs = sum(part.size for part in parts.values())
    free = room(one.side)
    if needs > free:
        raise SaveError(
            f"not fetched: the set has {needs} bytes, and in {one.work} {free:.0f} are free; nothing was changed"
        )


class Fetch:
    """One set on its way into one directory. The locks of all roots are held. `lacking`: the ranks that do not have
    it."""

    def __init__(self, remote: Remote, found: Found, roots: Mapping[int, Root], lacking: Iterable[int]) -> None:
        self._remote, self._found, self._roots = remote, found, roots
        self._seen = max(found.name, found.newest)
        self._lacking = {rank: roots[rank] for rank in sorted(lacking)}

    def run(self, got: Callable[[int], None], url: str) -> None:
        """On return the set is committed on all ranks, durably. Killed inside: as the table says. On error, and on
        damage, nothing of it is left, unless it comes between the renames of two ranks. Raises `Damaged`, `Vanished`,
        `Unreachable`, `OSError`."""
        try:
            for rank, root in self._lacking.items():
                self._bring(root, self._found.parts[rank], got)
            if self._lacking:
                self._put_in_place(url)
        except BaseException:
            for root in self._lacking.values():
                with contextlib.suppress(OSError):
                    clear(root)
            raise
        self._flush()
        self._note(url, arrived=True)
        for root in self._lacking.values():
            clear(root)

    def _flush(self) -> None:
        """Also of those that have it: a fetch may have been killed between its rename and this."""
        for root in self._roots.values():
            root.disk.sync_dir(root.path)

    def _note(self, url: str, *, arrived: bool) -> None:
        """A drain from here must know that this is where it came from. But not before all of the set is here: what
        this directory had of its own does not come from there. A claim of its own is older than what has come."""
        one = next(iter(self._roots.values()))
        notes = note.read_notes(one)
        known, name = notes.at(url), self._found.name
        sets = tuple(sorted({*known.sets, name.identity}))
        if not arrived:
            told = known._replace(coming=name.text)
        elif self._lacking or known.coming == name.text or not known.related:
            seen = self._seen if self._lacking else max(name, known.seen or name)
            told = known._replace(claim="", home="", fetched=seen.text, sets=sets, coming="")
        else:  # it was here all the time
            told = known._replace(sets=sets)
        if told != known:
            note.write_notes(one, notes.told(told))

    def _bring(self, root: Root, part: Index, got: Callable[[int], None]) -> None:
        pieces = self._remote.pieces(self._found.name, part, got)
        bring(root, part.record, part.bundle, part.content, pieces)

    def _put_in_place(self, url: str) -> None:
        one = next(iter(self._lacking.values()))
        disk, name = one.disk, self._found.name
        for root in self._lacking.values():
            disk.sync_dir(root.path)  # the way to `fetched`
        disk.sync_dir(one.side)
        if not exists(disk, one.format):
            write_durably(disk, one.format, f"safepoint {FORMAT}\n".encode())
        self._note(url, arrived=False)
        for root in self._lacking.values():
            disk.rename(scratch(root).set(name.number), root.set(name.number))


def scratch(root: Root) -> Root:
    """The same sets below `fetched/`."""
    other = Root(root.work, root.rank, root.ranks, root.saver, root.disk)
    other.path = root.fetched
    return other


def clear(root: Root) -> None:
    if exists(root.disk, root.fetched):
        remove_tree(root.disk, root.fetched)


def bring(
    root: Root, record: Record, bundle: int, content: bytes, blocks: Iterable[bytes | bytearray | memoryview]
) -> None:
    """Write a part below `fetched/`: on return it is whole, and durable, and no set yet. On error nothing is there.
    Raises `Damaged` if it is not what its record says."""
    clear(root)
    disk, aside = root.disk, scratch(root)
    try:
        disk.mkdir(root.fetched, root.mode)
        disk.mkdir(aside.set(record.number), root.mode)
        written, proven = unpack(aside, record, bundle, content, blocks)
        check(aside, record, proven)
        # All of it before it has the name of a set: a committed one is taken to be durable.
        sync(disk, written, [top for top, _, _ in os.walk(root.fetched)])
    except BaseException:
        with contextlib.suppress(OSError):
            clear(root)
        raise


def put_in_place(root: Root, number: int) -> None:
    """Make a set of what was brought, in the place of one of this number, which is damaged, or of another history. On
    return it survives a power cut. Killed inside: the old or the new, but for a file system that cannot exchange two
    names."""
    disk, new = root.disk, scratch(root).set(number)
    if not exists(disk, root.set(number)):
        disk.rename(new, root.set(number))
    elif not disk.exchange(new, root.set(number)):
        prune.drop(root, [number])
        disk.rename(new, root.set(number))
    disk.sync_dir(root.path)  # the new one has its name for good before the old one goes
    clear(root)


def check(root: Root, record: Record, proven: Collection[str] = ()) -> None:
    """What lies there, but these paths, as a restart would read it. Raises `Damaged`."""
    number = record.number

    def one(index: int) -> None:
        file = record.files[index]
        path = root.prefix(number, file.path) if file.kind == "append" else root.where(number, file)
        read_out(root.disk, path, file)

    root.disk.helpers.each(
        one, [at for at, file in enumerate(record.files) if file.has_bytes and file.path not in proven]
    )


def chosen(found: Iterable[Found], number: int | None, step: int | None, url: str) -> Found:
    """The newest whole set, or the one that is asked for. Raises `NothingSavedError` and `Damaged`, which say what is
    there."""
    reasons = []
    for each in found:
        if number in (None, each.name.number) and step in (None, each.step):
            if not each.why:
                return each
            reasons.append(f"set {each.name.number}: {why_not(each)}")
    asked = "" if number is None else f" {number}"
    asked = asked if step is None else f" of step {step}"
    if not reasons:
        raise NothingSavedError(f"there is no set{asked} at {url}")
    raise Damaged("\n  ".join([f"no set{asked} at {url} is whole; nothing was changed:", *reasons]))


def newest(
    remote: Remote, number: int | None, step: int | None, url: str, but: Collection[Name] = ()
) -> Found:  # fmt: skip
    """As `chosen`, of what is there now, `but` these: a drain at work may remove what was seen before a look at it is
    through."""
    for turn in range(AGAIN + 1):
        listing = remote.look()
        try:
            return chosen((each for each in sets_at(remote, listing) if each.name not in but), number, step, url)
        except (Damaged, NothingSavedError):
            if turn == AGAIN or remote.look().sets == listing.sets:
                raise
    raise AssertionError


def why_not(found: Found) -> str:
    return "; ".join(f"rank {rank}: {text}" for rank, text in found.why.items())
