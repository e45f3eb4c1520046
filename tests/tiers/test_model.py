"""Many machines and one place: lives, ranks, uploads killed anywhere, drains after a death, and runs taken for dead.

The code that puts and finds is the real one. What is made up is what it works on: a directory is a dictionary of sets,
a place another one. At each call of the place a process may die, or others may act before it. A set is known by a token
that its ranks have in common, so that a mixture shows.

* I1: what is brought is one set, of all ranks, byte for byte.
* I2: it is not older than any that was told to be there.
* I3: what is told to be there is newer than all that was told before, whoever told it.
* I4: unless somebody decided so, nothing that was told gives way to a set that does not come from it.
"""

from __future__ import annotations

import contextlib
import os
import random
from types import SimpleNamespace
from typing import Any

import pytest
from testbed.places import Kept
from testbed.sweep import LONG, PROOF

from safepoint import SafepointError
from safepoint.record import Record, dump
from safepoint.restoring.read import Damaged
from safepoint.tiers import note, part, remote, sending
from safepoint.tiers.fetching import newest
from safepoint.tiers.names import Claim, Name, named
from safepoint.tiers.note import Notes
from safepoint.tiers.place import Unreachable, Vanished
from safepoint.tiers.remote import Index, Listing, Remote
from safepoint.tiers.sending import Rate, Sender

SCHEDULES = 20_000 if LONG else 1_000 if PROOF else 300
RANKS = 2


class Dead(BaseException):
    pass


class Broken(BaseException):
    """A promise is."""


class Shared(Kept):
    """The place. Before each call others may act, and the caller may die."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def before(self, call: str) -> None:
        self._world.meanwhile(call)


class MadeUp(part.Part):
    """A part without files."""

    def __init__(self, root: Any, number: int, stack: object) -> None:
        self.root, self.record = root, root.sets[number][root.rank]
        self.content, self.bundle = dump(self.record), 0
        self._files = [(member, None) for member in part.members(self.record, 0, self.content)]
        self.length = part.length(self.record, 0, self.content)


class Machine:
    """A directory with sets, and what it notes of places."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.work, self.rng, self.notes = name, rng, Notes()
        self.sets: dict[int, dict[int, Record]] = {}
        self.life, self.number, self.history = 0, 0, ""
        self.fetched: Name | None = None

    def start(self) -> None:
        """A new life, from the newest set here; what was newer in an older life is dropped, as `restore` does."""
        known = max((records[0].life for records in self.sets.values()), default=0)
        self.life, self.history = known + 1, f"{self.rng.getrandbits(62):016x}"
        self.number = max(self.sets, default=0)

    def save(self) -> None:
        if not self.history:
            self.start()
        self.number += 1
        token = self.rng.getrandbits(60)
        self.sets[self.number] = {
            rank: Record(
                self.number, self.number, 1.0, 1.0, "host", "0", rank, RANKS, 0, ("z-{rank}.dat",), (),
                self.life, self.history, {"token": token, "rank": rank},
            )
            for rank in range(RANKS)
        }  # fmt: skip
        for old in sorted(self.sets)[:-2]:
            del self.sets[old]

    def parts(self) -> dict[int, tuple[Any, Record]]:
        newest = max(self.sets)
        return {
            rank: (SimpleNamespace(work=self.work, rank=rank, sets=dict(self.sets), machine=self), record)
            for rank, record in self.sets[newest].items()
        }


class World:
    """Some machines, one place, and what was told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.place, self.depth, self.told = Shared(self), 0, list[Name]()
        self.machines = [Machine("m0", self.rng)]
        self.log: list[str] = []
        self.decided = False

    def meanwhile(self, call: str) -> None:
        if self.depth == 0:
            return
        chance = self.rng.random()
        if chance < 0.02:
            self.log.append(f"dies before {call}")
            raise Dead
        if chance < 0.05 and self.depth < 3:
            with contextlib.suppress(Dead):
                self.act()

    def act(self) -> None:
        """Somebody does something."""
        self.depth += 1
        try:
            machine, what = self.rng.choice(self.machines), self.rng.random()
            if what < 0.25:
                machine.save()
            elif what < 0.35:
                machine.start()
            elif what < 0.85:
                self.drain(machine)
            elif len(self.machines) < 4:
                self.fetch()
        finally:
            self.depth -= 1

    def drain(self, machine: Machine) -> None:
        if not machine.sets:
            return
        self.log.append(f"{machine.work} drains {max(machine.sets)}")
        parts, over = machine.parts(), self.rng.random() < 0.05
        self.decided = self.decided or over
        try:
            root: Any = SimpleNamespace(work=machine.work, machine=machine)
            sender = Sender(root, Remote(self.place), "place", take_over=over, keep=self.rng.choice((1, 1, 2)))
            # A second drain in the directory is kept out by its lock, so this one is not interrupted by itself.
            at = self.machines.index(machine)
            self.machines[at:] = self.machines[at + 1 :] or [Machine("idle", self.rng)]
            try:
                sent = sender.send(parts, sender.claim(), Rate(None), lambda more: None)
            finally:
                self.machines.insert(at, machine)
        except (SafepointError, Damaged, Unreachable, Vanished, part.Changed) as error:
            self.log.append(f"{machine.work}: {type(error).__name__}: {error}")
            return
        self.log.append(f"{machine.work} told {sent.name.text}")
        if any(name > sent.name for name in self.told):
            raise Broken(f"I3: told {sent.name.text} after {max(self.told).text}")
        known = machine.fetched
        lost = [name for name in self.told if name.id != sent.name.id and (known is None or name > known)]
        if lost and not self.decided:
            raise Broken(f"I4: {lost[-1].text} gives way to {sent.name.text}, which comes from {known}")
        self.told.append(sent.name)

    def fetch(self) -> None:
        """A new machine begins with what is there."""
        least = max(self.told, default=None)
        there = Remote(self.place)
        machine = Machine(f"m{len(self.machines)}-{self.rng.random():.6f}", self.rng)
        self.log.append(f"{machine.work} fetches")
        try:
            found = newest(there, None, None, "place")
            got = {
                rank: b"".join(there.pieces(found.name, one, lambda more: None)) for rank, one in found.parts.items()
            }
        except (SafepointError, Vanished) as error:
            if least and self.depth <= (0 if isinstance(error, Vanished) else 1):  # nobody removes anything at the end
                raise Broken(f"I2: {least.text} was told, and nothing is there: {error}") from error
            return
        except Damaged as error:
            if least and self.depth <= 1:
                raise Broken(f"I2: {least.text} was told, and nothing is whole: {error}") from error
            return
        records = {rank: one.record for rank, one in found.parts.items()}
        tokens = {(record.extra or {}).get("token") for record in records.values()}
        if (
            len(records) != RANKS
            or len(tokens) != 1
            or any(one.content not in got[r] for r, one in found.parts.items())
        ):
            raise Broken(f"I1: {found.name.text} is a mixture: {tokens}")
        if least and found.name < least:
            raise Broken(f"I2: {least.text} was told, and {found.name.text} is given")
        machine.sets, machine.fetched = {found.name.number: records}, found.name
        known = machine.notes.at("place")
        machine.notes = machine.notes.told(known._replace(fetched=found.name.text, sets=(found.name.identity,)))
        self.log.append(f"{machine.work} has {found.name.text}")
        self.machines.append(machine)

    def run(self, acts: int = 14) -> None:
        for _ in range(acts):
            with contextlib.suppress(Dead):
                self.act()
        self.depth = 0
        before, self.machines = len(self.machines), [*self.machines]
        self.fetch()
        assert len(self.machines) >= before


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "PIECE", 600)
    monkeypatch.setattr(remote, "PIECE", 600)
    monkeypatch.setattr(sending, "Part", MadeUp)
    monkeypatch.setattr(note, "read_notes", lambda root: root.machine.notes)
    monkeypatch.setattr(note, "write_notes", lambda root, notes: setattr(root.machine, "notes", notes))
    monkeypatch.setattr(note, "home", lambda root: "1")
    monkeypatch.setattr(note, "new_id", lambda: os.urandom(8).hex())


def broken(schedules: int, *, stop: bool = False) -> tuple[int, str]:
    """How many of so many schedules break a promise, and how the first does."""
    count, first = 0, ""
    for seed in range(schedules):
        world = World(seed)
        try:
            world.run()
        except Broken as error:
            count += 1
            first = first or "\n".join([f"schedule {seed}: {error}", *world.log])
            if stop:
                break
    return count, first


@pytest.mark.timeout(7200 if LONG else 600)
def test_no_schedule_breaks_a_promise() -> None:
    count, first = broken(SCHEDULES)
    assert count == 0, first


def index_first(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Remote.put

    def early(self: Remote, listing: Listing, claim: Claim, one: Any, *more: Any, **how: Any) -> Any:
        pieces = list(one.pieces())
        content = remote.Content(
            one.content.decode(), 0, tuple(map(len, pieces)), tuple(map(remote.checksum, pieces)), ""
        )
        name = named(claim, one.record)
        self.place.put(f"{name.text}/rank-{one.record.rank:05d}.json", remote.seal(content._asdict()))
        return put(self, listing, claim, one, *more, **how)

    monkeypatch.setattr(Remote, "put", early)
    blind(monkeypatch)


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not compare with the names that are there."""
    real = Remote.index

    class All(dict[str, int]):
        def get(self, name: str, default: Any = None) -> Any:
            return super().get(name, Anything())

    class Anything:
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    def index(self: Remote, listing: Listing, name: Name, rank: int) -> Index:
        return real(self, listing._replace(sets={**listing.sets, name: All(listing.sets[name])}), name, rank)

    monkeypatch.setattr(Remote, "index", index)


def any_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set counts if one part is there."""
    monkeypatch.setattr(remote, "needed", lambda record: (record.rank,))


def no_claim_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "named", lambda claim, record: Name(1, "0" * 16, record.life, record.number,
                                                                    record.history))  # fmt: skip
    monkeypatch.setattr(sending, "named", remote.named)


def no_look_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was put is told, whoever has claimed the place meanwhile."""
    looks = Remote.look

    def send(self: Sender, parts: Any, claim: Claim, *more: Any) -> Any:
        def mine(it: Remote) -> Listing:
            found = looks(it)
            return found._replace(claims=tuple(c for c in found.claims if c <= claim))

        self._remote.look = mine.__get__(self._remote)  # type: ignore[method-assign]
        return real(self, parts, claim, *more)

    real = Sender.send
    monkeypatch.setattr(Sender, "send", send)


def no_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes a place without a look at what came after the set that was fetched."""
    monkeypatch.setattr(Sender, "_refuse_others", lambda self, listing, mine=None: None)


def prunes_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Remote.prune
    monkeypatch.setattr(Remote, "prune", lambda self, listing, keep: real(self, listing, sorted(keep)[:-1]))


def oldest_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses by the number alone."""
    real = Remote.look

    def look(self: Remote) -> Listing:
        found = real(self)
        return found._replace(sets=dict(sorted(found.sets.items(), key=lambda each: -each[0].number)))

    monkeypatch.setattr(Remote, "look", look)


MUTANTS = (
    index_first, any_rank, no_claim_in_the_name, no_look_after, no_look_before, prunes_the_newest, oldest_life,
)  # fmt: skip


@pytest.mark.proof
def test_what_is_broken_on_purpose_is_noticed() -> None:
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as broken_:
            mutant(broken_)
            count, _ = broken(4_000, stop=True)
        assert count, f"{mutant.__name__}: no schedule shows it"
