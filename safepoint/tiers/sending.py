"""Put a set that is complete here to a place where others find it: claim, put what is missing, look, note, prune.

killed after          there is                        the next drain
note of the claim     nothing                         claims with the same name
the claim             a claim without sets            goes on
some pieces           nothing that counts             puts the others
all pieces            nothing that counts             one put is missing
an index              the parts of some ranks         puts the others
the last index        the set, and nobody was told    finds it, and tells
the note              the set                         finds nothing to do
a part of the prune   older sets without an index     removes the rest
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from safepoint.disk import kernel
from safepoint.errors import FormatError, LockedError, UsageError
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import MOST_CLAIMS, Claim, Name, identity, named
from safepoint.tiers.note import Known, Notes
from safepoint.tiers.part import Changed, Part
from safepoint.tiers.place import Unreachable, Vanished
from safepoint.tiers.remote import SETUID, Listing, Remote, needed

if sys.platform != "win32":
    import resource

Parts = Mapping[int, tuple[Root, Record]]  # by rank, all that a set needs


class Sent(NamedTuple):
    """What a drain has come to."""

    name: Name
    size: int  # bytes of the set as it is there
    went: int  # bytes that were put now
    removed: list[Name]


class Rate:
    """So many bytes a second, in the mean since the last pause."""

    def __init__(self, most: int | None, sleep: Callable[[float], object] = time.sleep) -> None:
        self._most, self._sleep, self._free_at = most, sleep, 0.0

    def may_go(self, count: int) -> None:
        if self._most:
            now = time.monotonic()
            if self._free_at > now:
                self._sleep(self._free_at - now)
            self._free_at = max(self._free_at, now) + count / self._most


class Sender:
    """One directory and one place. Made within `note.alone`."""

    def __init__(self, root: Root, remote: Remote, url: str, *, take_over: bool, keep: int = 1) -> None:
        """`root`: any of the directory, for its names."""
        self._root, self._remote, self._url, self._keep = root, remote, url, keep
        self._notes: Notes = note.read_notes(root)
        self._take_over = take_over
        self.known: Known = self._notes.at(url)

    def claim(self) -> Claim:
        """Rule (3) of `remote`: on return sets of this directory are the newest there. Raises `LockedError` if another
        directory has sets there that this one does not come from, or newer ones."""
        listing = self._remote.look()
        self._recognise(listing)
        if self.known.sets and not listing.claims and not listing.sets and not self._take_over:
            raise self._emptied()
        self._remember(listing)
        mine = self.known.mine
        if mine and listing.claims[-1:] == (mine,):
            return mine
        ours = mine is not None and (mine in listing.claims or any(name.id == mine.id for name in listing.sets))
        if ours and mine and not self._take_over and (later := self._later(listing, mine)):
            raise self._taken_over(later)
        if not ours:
            self._refuse_others(listing)
        new = self._next(listing, mine if ours else None)
        before = self.known
        # Before it is there: else after a kill it would be another's.
        self._note(before._replace(claim=new.name, home=note.home(self._root)))
        self._remote.claim(new, self._who())
        try:
            after = self._remote.look()
            if new not in after.claims:
                raise Unreachable(f"{self._url} does not show at once what was put there: it cannot be used")
            if after.claims[-1] != new:
                raise self._taken_over(after.claims[-1])
            if not ours:
                self._refuse_others(after, new)  # a set that became whole between the two looks
        except LockedError:
            self._remote.place.remove([new.name])
            self._note(before)
            raise
        return new

    def _later(self, listing: Listing, mine: Claim) -> Claim | None:
        """Who has put sets since, or is about to. A set tells too: claims may be lost."""
        claims = [*listing.claims, *(Claim(name.claim, name.id) for name in listing.sets)]
        return max((claim for claim in claims if claim > mine and claim.id != mine.id), default=None)

    def _next(self, listing: Listing, mine: Claim | None) -> Claim:
        """What comes after all that is there. Of the same id, if what we have put is there still."""
        highest = max([*(c.number for c in listing.claims), *(name.claim for name in listing.sets)], default=0)
        if highest >= MOST_CLAIMS:
            raise FormatError(f"{self._url} has claim {highest}, and none can come after it; nothing was changed")
        return Claim(highest + 1, mine.id if mine else note.new_id())

    def _recognise(self, listing: Listing) -> None:
        """A place may be known by another name: by another mount, or a link. The claims there tell which it is. And a
        copy of a directory is not the one that has claimed it."""
        there, home = {*listing.claims}, note.home(self._root)

        def fits(known: Known) -> bool:
            seen = known.seen
            return known.mine in there or (seen is not None and Claim(seen.claim, seen.id) in there)

        if self.known.home not in ("", home):
            self.known = Known(self._url)
        ours = [known for known in self._notes.places if known.home in ("", home)]
        if not fits(self.known) and (other := next(filter(fits, ours), None)):
            self.known = other._replace(url=self._url)

    def _emptied(self) -> Unreachable:
        return Unreachable(
            f"{self._url} has nothing any more of what was put there: is it not mounted? If it was emptied on purpose, "
            f"`safepoint drain --take-over`"
        )

    def _refuse_others(self, listing: Listing, mine: Claim | None = None) -> None:
        """Unless what is there was brought here, and nothing newer has come since."""
        others = [name for name in listing.sets if mine is None or name.id != mine.id]
        seen = self.known.seen
        if self._take_over or not others:
            return
        if seen is None:
            who = _described(self._remote, [c for c in listing.claims if c != mine])
            raise LockedError(
                f"{self._url} has sets of another directory{who}: give each run a place of its own, or `safepoint "
                f"drain --take-over` to put newer sets there; nothing was changed"
            )
        newer = [name for name in others if name > seen and not self._remote.lacks(listing, name)[1]]
        if newer:
            who = _described(self._remote, [c for c in listing.claims if c != mine])
            raise LockedError(
                f"{self._url} has set {newer[0].number}, which came after set {seen.number} was fetched from "
                f"there{who}: that run goes on; end one of the two, and fetch again, or "
                f"`safepoint drain --take-over`; nothing was changed"
            )

    def _taken_over(self, claim: Claim) -> LockedError:
        who = _described(self._remote, [claim])
        return LockedError(
            f"another run has taken over {self._url}{who}: what is saved here does not count there any more; end one "
            f"of the two, or `safepoint drain --take-over`"
        )

    def refresh(self, claim: Claim) -> None:
        """What is there now. Raises as `send`."""
        self._remember(self._still_mine(claim))

    def confirm(self, claim: Claim, wanted: str, *, back: bool) -> str | None:
        """Empty if the set of this identity is whole there now, and the newest; else why not; None: it is to be put
        anew. `back`: the program went back to it, so what is newer of ours is removed. Raises as `send`."""
        listing = self._still_mine(claim)
        name = max((name for name in listing.sets if name.identity == wanted), default=None)
        newer = [other for other in listing.sets if name and other > name]
        if name is None or self._remote.lacks(listing, name)[1] or any(other.id != claim.id for other in newer):
            self._note(self.known._replace(sets=tuple(text for text in self.known.sets if text != wanted)))
            return None
        self._remote.place.secure([name.text])
        self._remember(listing, name)
        if back and newer:
            self._remote.prune(listing, {*listing.sets} - {*newer})
            self._remember(self._still_mine(claim), name)
        elif whole := next((other for other in newer if not self._remote.lacks(listing, other)[1]), None):
            return (
                f"set {whole.number} is there, and newer than what was restored here: fetch it, or go back with "
                f"restore(set={name.number})"
            )
        return ""

    def tell(self, **what: Any) -> None:
        """As `note.tell`."""
        self._note(self.known._replace(**what))

    def missing(self, parts: Parts) -> bool:
        """Whether this set is not known to be there."""
        record = next(iter(parts.values()))[1]
        return identity(record.life, record.number, record.history) not in self.known.sets

    def send(
        self, parts: Parts, claim: Claim, rate: Rate, tick: Callable[[int], None], manifest: str = "",
        *, anew: bool = False,
    ) -> Sent:  # fmt: skip
        """On return the set is there, whole, and nobody had taken over when all else was done. Killed inside: as the
        table says. `manifest`: its text, for who brings the set into an empty directory. `anew`: all bytes go, also
        those that are there.

        Raises `LockedError`, `Changed` if the set is gone here, `Damaged`, and `Unreachable`.
        """
        first = next(iter(parts.values()))[1]
        if set(needed(first)) - set(parts):
            raise UsageError(f"{first.label} is not complete here")
        # Before a byte goes: a file system may not be mounted any more, and then this would fill the one beneath.
        listing = self._still_mine(claim)
        self._remember(listing)
        name, size, went = put_alone(self._remote, listing, claim, parts, rate, tick, manifest, anew=anew)
        after, why = self.lacks(name, claim)
        if why:
            raise Unreachable(f"{self._url} does not have {first.label} whole, though all of it was put: {why}")
        return Sent(name, size, went, self.complete(name, claim, after))

    def lacks(self, name: Name, claim: Claim) -> tuple[Listing, str]:
        """What is there, and why this set is not whole there; empty if it is. Raises as `send`."""
        listing = self._still_mine(claim)
        why = self._remote.lacks(listing, name)[1]
        return listing, "; ".join(f"rank {rank}: {text}" for rank, text in why.items())

    def complete(self, name: Name, claim: Claim, after: Listing) -> list[Name]:
        """A set that is whole there is told, and makes older ones superfluous: these. Raises as `send`."""
        self._remote.place.secure([name.text])  # before it is told, or a set before it goes
        self._remember(after, name)
        removed = self._prune(after, name)
        # The last of all calls: what came between the first look and this one may be a claim.
        self._remember(self._still_mine(claim))
        return removed

    def _still_mine(self, claim: Claim) -> Listing:
        listing = self._remote.look()
        if not listing.claims:
            raise self._emptied()
        if listing.claims[-1] != claim:
            raise self._taken_over(listing.claims[-1])
        return listing

    def _remember(self, listing: Listing, name: Name | None = None) -> None:
        """What is known to be there, and is."""
        there = {each.identity for each in listing.sets}
        sets = {*self.known.sets} & there | ({name.identity} if name else set())
        self._note(self.known._replace(sets=tuple(sorted(sets)), time=time.time()))

    def _prune(self, listing: Listing, name: Name) -> list[Name]:
        """All that is older than the newest whole ones, as many as are to be kept. What is newer, and not ours,
        stays."""
        whole = [name]
        for other in listing.sets:
            if len(whole) < self._keep and other < name and not self._remote.lacks(listing, other)[1]:
                whole.append(other)
        return self._remote.prune(listing, {*whole, *(other for other in listing.sets if other > name)})

    def _note(self, known: Known) -> None:
        if known != self.known:
            self._notes, self.known = self._notes.told(known), known
            note.write_notes(self._root, self._notes)

    def _who(self) -> dict[str, object]:
        return {"host": kernel.host(), "directory": self._root.work, "time": time.time()}


def put_alone(
    remote: Remote, listing: Listing, claim: Claim, parts: Parts, rate: Rate, tick: Callable[[int], None],
    manifest: str = "", *, anew: bool = False,
) -> tuple[Name, int, int]:  # fmt: skip
    """As `put_parts`, of who has the claim. If that fails, rule (5) of `remote`, and once more."""
    try:
        return put_parts(remote, listing, claim, parts, rate, tick, manifest, anew=anew)
    except Unreachable:
        now = remote.look()
        if now.claims[-1:] != (claim,) or not remote.clear_dead(now, named(claim, next(iter(parts.values()))[1])):
            raise
    return put_parts(remote, remote.look(), claim, parts, rate, tick, manifest, anew=anew)


def put_parts(
    remote: Remote, listing: Listing, claim: Claim, parts: Parts, rate: Rate, tick: Callable[[int], None],
    manifest: str = "", *, anew: bool = False,
) -> tuple[Name, int, int]:  # fmt: skip
    """These parts of one set: on return they are there. The name of the set, how many bytes they have, and how many
    went. Raises `Changed`, `Damaged`, `UsageError`, `Unreachable`."""
    first = next(iter(parts.values()))[1]
    refuse_strange(record for _, record in parts.values())
    name, size, went = named(claim, first), 0, 0
    with contextlib.ExitStack() as opened:
        _allow_many_files()
        every = [Part(root, record.number, opened) for root, record in parts.values()]
        # All of one set: a record that was read before may be of another one by now.
        if {(p.record.key, p.record.history) for p in every} != {(first.key, first.history)}:
            raise Changed(f"{first.label} was replaced")
        there = listing.ranks(name)
        for part in every:
            size += part.length
            if not anew and part.record.rank in there and _is_whole(remote, listing, name, part):
                tick(part.length)
                continue
            went += remote.put(listing, claim, part, manifest, tick, rate.may_go, anew=anew)[1]
    return name, size, went


def _is_whole(remote: Remote, listing: Listing, name: Name, part: Part) -> bool:
    with contextlib.suppress(Damaged, Vanished):
        return remote.index(listing, name, part.record.rank).content == part.content
    return False


def refuse_strange(records: Iterable[Record]) -> None:
    """A file that would run as somebody else may not come from a place, so it does not go there. Raises
    `UsageError`."""
    for file in (file for record in records for file in record.files):
        if file.kind in ("file", "append") and file.mode & SETUID:
            raise UsageError(f"{file.path} is setuid or setgid, which no other place gets; nothing was put")


def _described(remote: Remote, claims: list[Claim]) -> str:
    """Who the last of them is, as far as it says."""
    told = remote.claimed_by(claims[-1]) if claims else {}
    host, directory, when = (told.get(name) for name in ("host", "directory", "time"))
    if not isinstance(host, str) or not isinstance(directory, str) or not isinstance(when, (int, float)):
        return ""
    if not math.isfinite(when):
        return ""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(max(when, 0), 1 << 33)))
    return f" ({directory[:500]} on {host[:100]}, since {since})"


def _allow_many_files() -> None:
    """A set is held open as a whole while it is sent: the run may remove it meanwhile."""
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
