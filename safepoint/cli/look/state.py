"""What a directory keeps, as data: ranks, their parts of each set, the sets, and what a restart would take of them.

A set counts as a restart would count it: by what every rank needed for it can give back. Assumed is a restart with as
many ranks as the newest set has; and that the ranks coordinate, since nothing on the disk says whether they did.
`overview` fills all of this in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from safepoint import words
from safepoint.errors import DamagedError, ManifestError, NothingSavedError
from safepoint.manifest import Manifest
from safepoint.nodes.marker import Marker
from safepoint.owner import describe_owner
from safepoint.patterns import SIDE
from safepoint.record import Record, StoredFile, Taken, label
from safepoint.restoring.choose import Party
from safepoint.restoring.survey import Candidate
from safepoint.root import Root

MOST_NODES = 4  # that are named


@dataclass(frozen=True, eq=False)
class Part:
    """What one rank has of one set. `state`: committed, damaged (why: `reason`), or, without a record: completable
    (the next start commits it), perhaps (it does if the checksums hold, which were not read), uncommitted."""

    number: int
    state: str
    reason: str = ""
    record: Record | None = None
    taken: Taken | None = None
    key: int = 0  # as a restart orders sets

    @property
    def description(self) -> Record | Taken | None:
        return self.record or self.taken

    @property
    def candidate(self) -> Candidate:
        """What a restart could try of it as it is now."""
        if self.state == "committed":
            return Candidate(self.number, self.record, key=self.key, measured=True)
        return Candidate(self.number, None, self.reason or self.state, self.key)

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
class SetState:
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
    def descriptions(self) -> list[Record | Taken]:
        return [part.description for part in self.parts.values() if part.description]

    @property
    def step(self) -> int | None:
        return next((what.step for what in self.descriptions), None)

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def time(self) -> float | None:
        return next((what.time for what in self.descriptions), None)

    @property
    def extra(self) -> dict[str, Any]:
        """What the program gave along."""
        return next((what.extra for what in self.descriptions if what.extra), {})

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
    sets: tuple[SetState, ...] = ()
    unknown: tuple[str, ...] = ()
    extra: tuple[int, ...] = field(default=())  # ranks with sets that a restart as assumed does not have
    nodes: Marker | None = None  # of a run with the setting `local`: its sets are, or were, on other disks

    @property
    def on_nodes(self) -> str:
        """Where else one must look: its sets are on disks of nodes, or this is one of these. Empty: all is here."""
        if self.nodes is None:
            return ""
        if self.nodes.start:
            return f"this is what one node has of the run in {self.nodes.start}"
        if self.sets or not self.nodes.saved:
            return ""
        at = [f"{node.directory} on {node.host} (ranks {words.ranks(node.ranks)})" for node in self.nodes.nodes]
        more = f", and {len(at) - MOST_NODES} more" if len(at) > MOST_NODES else ""
        return f"the sets of {self.work} are on disks of its nodes: {', '.join(at[:MOST_NODES])}{more}"

    @property
    def takes(self) -> SetState | None:
        """The set that a restart would give back, as far as this look tells."""
        return next((s for s in self.sets if s.usable), None)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show: then a command that finds an error has no answer beside it."""
        return not (self.sets or self.mark or self.mark_error or self.running)

    @property
    def newer(self) -> list[SetState]:
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

    def find(self, number: int) -> SetState:
        """Raises `NothingSavedError` if there is no set of this number."""
        for each in self.sets:
            if each.number == number:
                return each
        have = ", ".join(str(s.number) for s in self.sets)
        raise NothingSavedError(f"no set {number} in {self.work}{f': there are {have}' if have else ', nor any other'}")

    def find_step(self, step: int) -> SetState:
        """The newest set of this step that has not ended. Raises `NothingSavedError` if there is none."""
        there = [each for each in self.sets if each.state != "ended"]
        for each in there:
            if each.step == step:
                return each
        have = ", ".join(each.label for each in there)
        raise NothingSavedError(f"no set of step {step} in {self.work}: there {f'are {have}' if have else 'is none'}")

    def root(self, rank: int, of: SetState | None = None) -> Root:
        """This root as a program sees it that has the ranks and the saver of a set, by default of the newest."""
        what = self._newest(of)
        if what is None or (what.saver is None and rank != 0):
            return Root(self.work, rank)
        return Root(self.work, what.rank if what.saver is None else rank, what.ranks, what.saver)

    def at_hand(self, of: SetState | None = None) -> list[Rank]:
        """Those with a say in that restart: a program without a saver is alone in W, in the root of rank 0."""
        what = self._newest(of)
        return [rank for rank in self.ranks if rank.rank == 0 or what is None or what.saver is not None]

    def _newest(self, of: SetState | None) -> Record | Taken | None:
        return next((what for each in ([of] if of else self.sets) for what in each.descriptions), None)

    def parties(self, of: SetState | None = None) -> list[Party]:
        """What each rank brings to the choice of a restart as assumed; or to that of this set, by a program with as
        many ranks as it has."""
        sets, what = [of] if of else [s for s in self.sets if s.state != "ended"], self._newest(of)
        foreign = {s.number: reason for s in sets if s.state == "foreign" and not of for reason in s.reasons.values()}
        parts, once, found = {rank.rank: rank.parts for rank in self.at_hand(of)}, self.begun, []
        for rank in sorted({*parts, *(n for s in sets for n in s.needed)}):
            if what is None or rank < what.ranks:
                mine = [parts[rank][s.number].candidate for s in sets if rank in parts and s.number in parts[rank]]
                mine = [c._replace(record=None, reason=foreign[c.number]) if c.number in foreign else c for c in mine]
                found.append(Party(self.root(rank, of), mine, once))
        return found

    def raise_if_empty(self) -> None:
        """Raise `NothingSavedError` if there is no set, `DamagedError` if all roots are gone."""
        if self.mark_error and not self.ranks:
            raise DamagedError(self.mark_error)
        if not self.side:
            raise NothingSavedError(f"nothing is saved here: {self.work} has no {SIDE}")
        if not self.sets and self.mark:
            raise NothingSavedError(
                f"no set is left: the run in {self.work} was finished, its files in place are the result"
            )
        if not self.sets and self.on_nodes:
            raise NothingSavedError(f"{self.on_nodes}; use the command there, or with --level remote where it has that")
        if not self.sets:
            raise NothingSavedError(f"nothing is saved here: {self.work} has no set yet")


def _who(them: list[int]) -> str:
    return f"rank {them[0]}" if len(them) == 1 else f"ranks {words.ranks(them)}"
