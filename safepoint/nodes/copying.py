"""What the process beside the ranks of a node does with a set: to the partner's disk, and to the remote place.

All nodes are told the same sets, by an agreement of the ranks (`nodes`): else one would copy every even set and
another every odd one, and no set would ever be whole there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from safepoint.disk.files import read
from safepoint.errors import LockedError
from safepoint.nodes.asking import ask_to_hold
from safepoint.nodes.nearby import record_of
from safepoint.nodes.transfer import Peer
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import Claim, Name, identity, name_of, named
from safepoint.tiers.part import LARGEST_RECORD, Changed, Part, parsed
from safepoint.tiers.place import Place, Unreachable, Vanished
from safepoint.tiers.remote import Index, Listing, Remote, needed
from safepoint.tiers.sending import Rate, Sender, put_alone, put_parts

SOON, LATE = 0.02, 0.5  # seconds between two looks for a set that is being committed
AT_PLACE, AT_LAST = 1.0, 20.0  # and for the parts of other nodes: at first, and later
HELD = 60.0  # for which another process at the place is waited for
FRESH = 60.0  # seconds for which a restart believes one look at the place
NEWEST = 8  # sets at the place that are told


class Superseded(Exception):
    """Another set is asked for now, or none."""


class Wanted(NamedTuple):
    """A set, by its identity, and whether it is wanted still. `waits`: is told who is waited for."""

    identity: str
    still: Callable[[], bool]
    waits: Callable[[str], object] = lambda whom: None

    @property
    def number(self) -> int:
        return int(self.identity.split("-")[1])

    def check(self) -> None:
        if not self.still():
            raise Superseded

    def rest(self, seconds: float) -> None:
        """So long, as long as it is wanted."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 1.0))
        self.check()


def committed(roots: Mapping[int, Root], wanted: Wanted) -> Iterator[tuple[Root, Record]]:
    """The parts of this set, each as soon as its rank has committed it. Raises `Superseded`, `Damaged`."""
    left, pause = dict(roots), SOON
    while left:
        ready = [(rank, record) for rank, root in left.items() if (record := record_of(root, wanted.identity))]
        for rank, record in ready:
            yield left.pop(rank), record
        pause = SOON if ready else min(2 * pause, LATE)
        if left:
            wanted.waits(f"rank {min(left)} on this node, to commit the set")
            wanted.check()
            time.sleep(pause)


def _newest_of(roots: Sequence[Root], after: str) -> dict[str, dict[int, tuple[Root, Record]]]:
    """By identity, newest first, of each set that comes after that one the parts in these roots, by rank."""
    found: dict[str, dict[int, tuple[Root, Record]]] = {}
    for root in roots:
        for number in root.numbers("set"):
            with contextlib.suppress(Damaged, FileNotFoundError):
                record = parsed(read(root.disk, root.record(number), LARGEST_RECORD))
                name = identity(record.life, record.number, record.history)
                if name > after:
                    found.setdefault(name, {}).setdefault(record.rank, (root, record))
    return dict(sorted(found.items(), reverse=True))


def copy(roots: Mapping[int, Root], partner: Peer, wanted: Wanted, moves: Callable[[int], None]) -> None:
    """On return the partner has all parts of this set that the ranks of this node have, durably. Killed inside: some.

    Raises `Superseded`, `Unreachable`, `Damaged`, and `Changed` if the set is gone here."""
    for root, record in committed(roots, wanted):
        with contextlib.ExitStack() as opened:
            part = Part(root, record.number, opened)
            if identity(part.record.life, part.record.number, part.record.history) != wanted.identity:
                raise Changed(f"{record.label} was replaced")

            def blocks(part: Part = part) -> Iterator[memoryview]:
                for block in part.blocks():
                    wanted.check()
                    moves(len(block))
                    yield block

            wanted.waits(f"node {partner.text}")
            ask_to_hold(partner, part, blocks())


class AtRemote:
    """The remote place, as one node of a run uses it. The first node claims it, and sees when a set is whole there."""

    def __init__(
        self, start: Root, url: str, connect: Callable[[], Place], rate: Rate, manifest: Callable[[], str], *,
        lead: bool, keep: int, locked: bool = False,
    ) -> None:  # fmt: skip
        """`start`: where the notes of the claim lie. `connect`: raises `Unreachable`. `locked`: within `note.alone`."""
        self._start, self.url, self._connect, self._rate = start, url, connect, rate
        self._manifest, self._lead, self._keep, self._locked = manifest, lead, keep, locked
        self._remote: Remote | None = None
        self._listing: tuple[float, Listing] | None = None  # when it was seen, and what

    def _now(self) -> Remote:
        remote = self._remote  # another thread may forget it
        if remote is None:
            self._remote = remote = Remote(self._connect())
        return remote

    def forget(self) -> None:
        """A place did not answer: the next call connects anew."""
        self._remote = None

    def put(self, roots: Mapping[int, Root], wanted: Wanted, moves: Callable[[int], None], *, back: bool) -> None:
        """On return this node's parts are there; of the first node's: the set is whole there, and the newest.

        Killed inside: as the table of `sending`. `back`: the program went back to this set, so newer ones of ours go.
        Raises `Superseded`, `LockedError`, `Unreachable`, `Damaged`, `Changed`, `UsageError`.
        """

        def tick(more: int) -> None:
            wanted.check()
            moves(more)

        with self._sending(wanted) as sender:
            claim, listing = (sender.claim(), self._now().look()) if sender else self._claimed(wanted)
            remote = self._now()
            parts = {record.rank: (root, record) for root, record in committed(roots, wanted)}
            if not parts:
                return
            record = next(iter(parts.values()))[1]
            put = put_alone if sender else put_parts
            wanted.waits(self.url)
            name, *_ = put(remote, listing, claim, parts, self._rate, tick, self._manifest())
            if sender is None:
                if remote.look().claims[-1:] != (claim,):
                    raise Unreachable(f"{self.url} was claimed anew meanwhile")
                return
            for pause in _longer():
                wanted.waits(f"the parts of other nodes at {self.url}")
                if {*needed(record)} <= {*remote.look().ranks(name)} and not (seen := sender.lacks(name, claim))[1]:
                    break
                moves(0)
                wanted.rest(pause)
            sender.complete(name, claim, seen[0])
            if back and (no := sender.confirm(claim, wanted.identity, back=True)):
                raise Unreachable(no)

    @contextlib.contextmanager
    def _sending(self, wanted: Wanted) -> Iterator[Sender | None]:
        """Of the first node, alone: a drain by hand, or one of the life before, may be at it, and is waited for."""
        if not self._lead:
            yield None
            return
        with contextlib.ExitStack() as stack:
            until = time.monotonic() + HELD
            while not self._locked:
                try:
                    stack.enter_context(note.alone(self._start, "drain"))
                    break
                except LockedError as error:
                    if time.monotonic() > until:
                        raise Unreachable(str(error)) from error
                    wanted.rest(AT_PLACE)
            yield Sender(self._start, self._now(), self.url, take_over=False, keep=self._keep)

    def put_last(self, roots: Sequence[Root], still: Callable[[], bool], moves: Callable[[int], None]) -> Record | None:
        """After the program has ended nobody agrees on a set: each node puts what it has, the newest set first, until
        one is whole there. That one, if it has become so while `still`; None if there is nothing new.

        `roots`: several may be of one rank, as a node may hold its copies. Raises as `put`, but `Superseded` if no set
        has become whole, with what is there."""
        wanted, there = Wanted("", still), {*note.read_notes(self._start).at(self.url).sets}
        found = _newest_of(roots, max(there, default=""))
        if not found:
            return None
        with self._sending(wanted) as sender:
            claim, listing = (sender.claim(), self._now().look()) if sender else self._claimed(wanted)
            remote = self._now()
            left, put, next_at = list(found.values()), list[str](), 0.0
            for pause in _longer():
                # The others may be putting the same set still; but not if it was there before, as of a drain that was
                # not waited for: else no older one, which all nodes have, would ever go.
                while left and time.monotonic() >= next_at:
                    parts = left.pop(0)
                    went = put_parts(remote, listing, claim, parts, self._rate, moves, self._manifest())[2]
                    put.append(next(iter(parts.values()))[1].label)
                    next_at = time.monotonic() + AT_LAST if went else next_at
                listing = remote.look()
                for other in found.values():
                    record = next(iter(other.values()))[1]
                    name = named(claim, record)
                    if {*needed(record)} <= {*listing.ranks(name)}:
                        if sender:
                            after, why = sender.lacks(name, claim)
                            if why:
                                continue
                            sender.complete(name, claim, after)
                        return record
                try:
                    wanted.rest(pause)
                except Superseded:
                    rest = [next(iter(parts.values()))[1].label for parts in left]
                    raise Superseded(_so_far(put, rest)) from None
        raise AssertionError

    def _claimed(self, wanted: Wanted) -> tuple[Claim, Listing]:
        """What the first node has claimed, as soon as that is seen here. Before that there may be no place yet."""
        for pause in _longer():
            wanted.waits(f"the first node of the run, which claims {self.url}")
            if mine := note.read_notes(self._start).at(self.url).mine:
                listing = self._now().look()
                if listing.claims[-1:] == (mine,):
                    return mine, listing
            wanted.rest(pause)
        raise AssertionError

    # What a restart asks for: `giving.Shelf`.

    def sets(self) -> list[str]:
        known = note.read_notes(self._start).at(self.url)
        if not (ours := {each.id for each in (known.mine, known.seen) if each}):
            return []  # nothing was ever put there
        listing, found = self._look(anew=True), list[str]()
        for name in listing.sets:
            if len(found) < NEWEST and name.id in ours and self._is_whole(listing, name):
                found.append(name.text)
        return found

    def _is_whole(self, listing: Listing, name: Name) -> bool:
        """By the names that are there; many sets may be there of which only some nodes have put their parts."""
        ranks = listing.ranks(name)
        if len(ranks) == self._start.ranks or not ranks:
            return bool(ranks)
        with contextlib.suppress(Damaged, Vanished):
            return {*needed(self._now().index(listing, name, ranks[0]).record)} <= {*ranks}
        return False

    def _look(self, *, anew: bool = False) -> Listing:
        """Once for all ranks of this node."""
        if anew or self._listing is None or time.monotonic() > self._listing[0] + FRESH:
            self._listing = time.monotonic(), self._now().look()
        return self._listing[1]

    def index(self, name: str, rank: int) -> Index:
        remote, found, listing = self._now(), name_of(name), self._look()
        if found is None or found not in listing.sets or rank not in listing.ranks(found):
            raise Vanished(f"the part of rank {rank} is not at {self.url}")
        return remote.index(listing, found, rank)

    def pieces(self, name: str, part: Index) -> Iterator[bytes]:
        found = name_of(name)
        assert found
        yield from self._now().pieces(found, part, lambda _: None)


def _so_far(put: list[str], rest: list[str]) -> str:
    """What became of the sets of one node, of which none is whole at the place."""
    missing = f", and of {', '.join(rest)} not yet" if rest else ""
    again = ", and then here again" if rest else ""
    return (
        f"no set is whole there that is newer than what was: the part of this node is there of {', '.join(put)}"
        f"{missing}; run this on the other nodes too{again}"
    )


def _longer() -> Iterator[float]:
    """Pauses between two looks at a place."""
    pause = AT_PLACE
    while True:
        yield pause
        pause = min(1.5 * pause, AT_LAST)


def trouble(error: BaseException) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__


RETRIED = Unreachable, Vanished, OSError  # it may be otherwise the next time
LOST = Damaged, Changed  # of this set; another one may go
FATAL = (LockedError,)
