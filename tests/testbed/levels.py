"""A model of runs on disks of nodes: lives, savers, copies, prunes, nodes lost or away, restarts elsewhere.

Real are the decisions: which set is in its turn, what is held, what is told (`nodes.session`), what is given up
(`nodes.marker`), which set is given back (`restoring.choose`). Made up are disks, savers, and the processes beside.
Any of them may act between two others' steps, and a run may be killed at each, or restore again while it lives. What
goes to the other nodes is a copy of each part, or parity over all of them.

* P1: what is given back is one set, of all ranks.
* P2: it is not older than the newest that was told to be on two nodes, if one node at most was lost since.
* P3: nor than the newest that all ranks have committed, if none was.
* P4: it is none that the program went back behind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from safepoint.listener import Outcome, SavePoint
from safepoint.nodes import session as nodes
from safepoint.nodes import turns
from safepoint.nodes.home import partner_of
from safepoint.nodes.marker import Marker, Node
from safepoint.opening import PARTNER
from safepoint.ranks import Serial
from safepoint.record import Life, Record, key
from safepoint.restoring import choose
from safepoint.restoring.survey import Candidate
from safepoint.saving.prune import Sets
from safepoint.tiers.names import identity
from safepoint.tiers.settings import When
from safepoint.tiers.troubles import Troubles

RANKS, KEEP = 3, 2


class Broken(AssertionError):
    """A promise is."""


class Parity(NamedTuple):
    """Of all ranks but the one whose node has it. It gives a part back if all others are as they were."""

    at: int
    records: tuple[Record, ...]


class Disk:
    """Of one node: what its ranks, and others, have there, by rank and number; parity by key and life."""

    def __init__(self) -> None:
        self.own: dict[int, dict[int, Record]] = {}
        self.held: dict[int, dict[int, Record]] = {}
        self.parity: dict[tuple[int, int], Parity] = {}


def named(record: Record) -> str:
    return identity(record.life, record.number, record.history)


class Beside:
    """The process of one node: what it was told, and what it has done of it."""

    def __init__(self) -> None:
        self.copy = self.keep = self.done = ""
        self.copied: set[int] = set()

    def say(self, line: str) -> bool:
        word, *more = line.split()
        if word == "copy":
            self.copy, self.copied = more[0], set()
        elif word == "keep":
            self.keep = more[0]
        return True


class Rank:
    """One rank of a life: the real decisions, and a saver that is at work or not."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank, self.sets, self.committed, self.agreed = run, rank, Sets(), 0, 0
        self.saving: Record | None = None
        self.look()
        self.near = near = nodes.Nodes.__new__(nodes.Nodes)
        near._home = SimpleNamespace(ranks=SimpleNamespace(rank=rank), lead=0)  # type: ignore[assignment]
        near._sets, near._life = self.sets, lambda: run.life
        near._newest, near._taking = lambda: self.agreed, lambda: run.number
        near.mine, near._when = True, When()
        near.partner, near.group = (None, [*range(RANKS)]) if run.world.xor else (run.partners[rank], [])
        near.copying, near.putting = turns.Turn(mine=True), turns.Turn(mine=True)
        near._begun_at, near._kept, near._next, near._why_no_copy = None, "", math.inf, ""
        near._steps, near._there, near._back, near._wanted = {}, "", "", True
        near._first, near.given, near._begins_no_more = rank == 0, None, False
        near._troubles = Troubles()
        near._drain = Beside()  # type: ignore[assignment]

    def look(self) -> None:
        """What the process beside finds when it begins."""
        disk = self.run.world.disks[self.run.where[self.rank]]
        self.found = {other: max((r.key for r in sets.values()), default=0) for other, sets in disk.held.items()}
        self.found_parity = max((key for key, _ in disk.parity), default=0)

    @property
    def beside(self) -> Any:
        return self.near._drain


class Run:
    """One life. Each rank is on a node of its own."""

    def __init__(self, world: World, where: list[int], life: Life, number: int) -> None:
        self.where, self.life, self.number = where, life, number
        self.met = life.number
        listed = [Node(f"n{at}", "", f"n{at}", (rank,)) for rank, at in enumerate(where)]
        self.partners = [partner_of(listed, rank) for rank in range(RANKS)]
        self.world = world
        self.ranks = [Rank(self, rank) for rank in range(RANKS)]


def made_in(run: Run) -> int:
    """The life in the name of parity."""
    return run.met


class World:
    def __init__(self, seed: int, *, xor: bool = False) -> None:
        self.rng, self.xor = random.Random(seed), xor
        self.disks = {at: Disk() for at in range(RANKS)}
        self.away: dict[int, Disk] = {}
        self.next_node, self.marker = RANKS, Marker("run")
        self.run: Run | None = None
        self.safe: tuple[int, str] | None = None  # P2: its key and identity
        self.local = 0  # P3
        self.of_safe: set[int] = set()  # the nodes on which that is
        self.before: list[int] = []  # those of the last life
        self.log: list[str] = []

    # What may happen.

    def step(self) -> None:
        if self.run is None:
            chance = self.rng.random()
            if chance < 0.15 and len(self.disks) > 1:
                self.lose()
            elif chance < 0.25 and not self.away and len(self.disks) > 1:
                at = self.rng.choice(list(self.disks))
                self.away[at] = self.disks.pop(at)
                self.log.append(f"n{at} is away")
            elif chance < 0.4 and self.away:
                self.disks.update(self.away)
                self.log.append(f"back: {list(self.away)}")
                self.away = {}
            else:
                self.restart()
            return
        act = self.rng.choices(
            (self.hide, self.save, self.copy, self.clean, self.kill, self.again, self.beside_dies),
            weights=(10, 12, 16, 4, 2, 1, 1),
        )[0]  # fmt: skip
        act(self.run)

    def lose(self) -> None:
        at = self.rng.choice(list(self.disks))
        del self.disks[at]
        self.log.append(f"n{at} is lost")

    def kill(self, run: Run) -> None:
        self.run = None
        self.log.append("killed")

    def beside_dies(self, run: Run) -> None:
        """One process beside the run; another one begins, and is told what it must know."""
        rank = self.rng.choice(run.ranks)
        near = rank.near
        near._drain, near._kept = Beside(), ""  # type: ignore[assignment]
        rank.look()
        if near.copying.now and not near.copying.put:
            rank.beside.say(f"copy {near.copying.now.identity}")
        self.log.append(f"the process beside rank {rank.rank} dies")

    def hide(self, run: Run) -> None:
        run.number += 1
        least = [min(values) for values in zip(*(rank.near.brings() for rank in run.ranks), strict=True)]
        newest = {rank.committed for rank in run.ranks}
        busy = any(rank.saving for rank in run.ranks)
        wait = PARTNER if self.rng.random() < 0.05 else 0
        history = run.life.history
        token = {"token": self.rng.getrandbits(40)}
        self.log.append(f"hides {run.number}{' while busy' if busy else ''}")
        for rank in run.ranks:
            if len(newest) == 1:
                rank.agreed = max(newest)
        for rank in run.ranks:
            rank.near.agreed(run.number, least, wait, at_once=not busy)
        told = {rank.near.copying.safe for rank in run.ranks}
        if len(told) != 1:
            raise Broken(f"the ranks do not agree on what is on two nodes: {told}")
        self.tell(run)
        for rank in run.ranks:
            record = Record(run.number, run.number, 1.0, 1.0, "h", "0", rank.rank, RANKS, 0, ("z-{rank}",), (),
                            run.life.number, history, token)  # fmt: skip
            if not busy:
                rank.saving = record

    def tell(self, run: Run) -> None:
        safe = run.ranks[0].near.copying.safe
        if safe is None:
            return
        life, number, _ = safe.identity.split("-")
        new = key(int(life), int(number))
        if self.safe is None or new > self.safe[0]:
            self.log.append(f"told that {safe.identity[:14]} is on two nodes")
        if self.safe is None or new >= self.safe[0]:
            self.safe, self.of_safe = (new, safe.identity), {*run.where}

    def save(self, run: Run) -> None:
        rank = self.rng.choice(run.ranks)
        if rank.saving:
            self.save_of(run, rank)

    def save_of(self, run: Run, rank: Rank) -> None:
        assert rank.saving
        record, rank.saving = rank.saving, None
        if self.rng.random() < 0.04:
            rank.near.failed(SimpleNamespace(number=record.number), OSError(), 0.0)  # type: ignore[arg-type]
            self.log.append(f"rank {rank.rank} cannot store {record.number}")
            return
        own = self.disks[run.where[rank.rank]].own.setdefault(rank.rank, {})
        own[record.number] = record
        rank.committed = record.number
        for number in sorted(own)[:-KEEP]:
            if number < rank.agreed and number not in rank.sets.held:
                del own[number]
        if all(record.number in self.disks[run.where[r.rank]].own.get(r.rank, {}) for r in run.ranks):
            self.local = max(self.local, record.key)

    def copy(self, run: Run) -> None:
        rank = self.rng.choice(run.ranks)
        wanted = rank.beside.copy
        if not wanted or rank.beside.done == wanted:
            return
        own = self.disks[run.where[rank.rank]].own.get(rank.rank, {})
        record = own.get(int(wanted.split("-")[1]))
        if record is None or named(record) != wanted:
            return
        if self.xor:
            if not self.make_parity(run, rank, record):
                return
            wanted_is_there = True
        else:
            wanted_is_there = self.copy_to_partner(run, rank, record)
        if not wanted_is_there or self.rng.random() < 0.2:
            return  # it is there, and nobody was told
        rank.beside.done = wanted
        rank.near._hear("copied", wanted)

    def make_parity(self, run: Run, rank: Rank, record: Record) -> bool:
        """Of what all nodes have committed."""
        disks = [self.disks[at] for at in run.where]
        parts = [disk.own.get(other, {}).get(record.number) for other, disk in enumerate(disks)]
        same = [part for part in parts if part and named(part) == named(record)]
        if len(same) < RANKS:
            return False
        mine = disks[rank.rank].parity
        if self.rng.random() < 0.9:  # else it was there, and is looked at again
            mine[record.key, made_in(run)] = Parity(rank.rank, tuple(same))
        elif (record.key, made_in(run)) not in mine:
            return False
        life, number, _ = (rank.beside.keep or "0-0-").split("-")
        floor = key(int(life), int(number)) if rank.beside.keep else rank.found_parity
        for between in [name for name in mine if floor < name[0] < record.key]:
            del mine[between]
        return True

    def copy_to_partner(self, run: Run, rank: Rank, record: Record) -> bool:
        if rank.near.partner is None:
            return False
        held = self.disks[run.where[rank.near.partner]].held.setdefault(rank.rank, {})
        held[record.number] = record
        holder = run.ranks[rank.near.partner]
        life, number, _ = (holder.beside.keep or "0-0-").split("-")
        floor = key(int(life), int(number)) if holder.beside.keep else holder.found.get(rank.rank, 0)
        for between in [n for n, other in held.items() if floor < other.key < record.key]:
            del held[between]
        return True

    def clean(self, run: Run) -> None:
        rank = self.rng.choice(run.ranks)
        if not rank.beside.keep:
            return
        life, number, _ = rank.beside.keep.split("-")
        floor, disk = key(int(life), int(number)), self.disks[run.where[rank.rank]]
        for owner, sets in [*disk.held.items(), *((r, s) for r, s in disk.own.items() if r != rank.rank)]:
            for old in [n for n, record in sets.items() if record.key < floor]:
                del sets[old]
            assert owner < RANKS
        for name in [name for name in disk.parity if name < (floor, made_in(run))]:
            del disk.parity[name]

    # A start.

    def again(self, run: Run) -> None:
        """`restore` once more, in the same processes. What was being stored is, before."""
        for rank in run.ranks:
            while rank.saving:
                self.save_of(run, rank)
        self.log.append("restores again")
        self.restart(run)

    def nodes_for_a_start(self) -> list[int]:
        while len(self.disks) < RANKS:
            self.disks[self.next_node] = Disk()
            self.next_node += 1
        there = [at for at in self.before if at in self.disks]
        there += [at for at in self.disks if at not in there]
        where = there[:RANKS] if self.rng.random() < 0.7 else self.rng.sample(there, RANKS)
        if self.rng.random() < 0.5:
            self.rng.shuffle(where)
        return where

    def restart(self, again: Run | None = None) -> None:
        where = again.where if again else self.nodes_for_a_start()
        parties, sources = [], dict[int, dict[int, Record]]()
        for rank in range(RANKS):
            every = self.offers(rank, where)
            sources[rank] = every
            found = [Candidate(r.number, r, "", k, r, True) for k, r in sorted(every.items(), reverse=True)]
            parties.append(choose.Party(SimpleNamespace(rank=rank), found, once=bool(self.marker.saved)))  # type: ignore[arg-type]
        asked = self.asked(sources)
        choice = choose.choose(parties, Serial(), lambda parts: {})
        newest = max([self.marker.life, *(r.life for every in sources.values() for r in every.values())])
        self.judge(choice, {*where})
        self.local, self.before = given_key(choice), where
        number = choice.number or 0
        if choice.number is None:
            self.safe, self.local = None, 0  # nothing was left: told as an error; the user begins anew
            self.disks, self.away, self.marker = {at: Disk() for at in where}, {}, Marker("run", newest)
        given = choice.records
        life = Life(newest + 1, f"{self.rng.getrandbits(62):016x}")
        back = self.marker.back
        if asked and given:
            back = (*back, (life.number, given[0].key))
            self.safe, self.local = None, 0
        self.marker = self.marker._replace(life=life.number, saved=self.marker.saved or bool(given), back=back)
        for rank, record in given.items():
            own = self.disks[where[rank]].own.setdefault(rank, {})
            own[number] = record
            for newer in [n for n in own if n > number]:
                del own[newer]
        if again is None:
            again = Run(self, where, life, number)
        self.run, again.life, again.number = again, life, number
        for each in again.ranks:
            each.committed = each.agreed = number
            record_ = given.get(each.rank)
            point = SavePoint(number, number, 1.0, ()) if given else None
            left = [*self.disks[where[each.rank]].own.get(each.rank, {})]
            each.near.given = turns.Asked(number, named(given[0])) if given else None
            each.near.restored(Outcome(point, record_, [], [], [], left=left))
        self.marker = self.marker._replace(saved=life.number)
        self.log.append(f"life {life.number} on {where}, from {number}")

    def offers(self, rank: int, where: list[int]) -> dict[int, Record]:
        """As a rank sees what it can have: its own first."""
        here = self.disks[where[rank]]
        every: list[dict[int, Record]] = [here.own.get(rank, {})]
        for at in where:
            every += [self.disks[at].held.get(rank, {}), self.disks[at].own.get(rank, {})]
        if self.xor:
            every.append({record.key: record for record in self.made_again(rank, where)})
        found: dict[int, Record] = {}
        for sets in every:
            for record in sets.values():
                if not self.marker.given_up(record.life, record.key):
                    found.setdefault(record.key, record)
        return found

    def made_again(self, rank: int, where: list[int]) -> Iterator[Record]:
        """What `rebuilt` makes: of the parity of all other nodes, of one set and life, and of their parts."""
        names = {name for at in where for name in self.disks[at].parity}
        for name in sorted(names):
            holders = {p.at: p for at in where for made, p in self.disks[at].parity.items() if made == name}
            others = [holders.get(other) for other in range(RANKS) if other != rank]
            parts = {
                other: record
                for at in where
                for other, sets in self.disks[at].own.items()
                for record in sets.values()
                if record.key == name[0]
            }
            if others[0] is None or any(p is None or p.records != others[0].records for p in others):
                continue
            records = others[0].records
            if all(parts.get(other) == records[other] for other in range(RANKS) if other != rank):
                yield records[rank]

    def asked(self, sources: dict[int, dict[int, Record]]) -> bool:
        """Whether the program goes back behind what is newest: then nothing newer is offered."""
        common = set.intersection(*(set(every) for every in sources.values()))
        if len(common) < 2 or self.rng.random() > 0.1:
            return False
        floor = sorted(common)[-2]
        for every in sources.values():
            for newer in [k for k in every if k > floor]:
                del every[newer]
        self.log.append(f"goes back to {floor & 0xFFFF}")
        return True

    def judge(self, choice: choose.Choice, where: set[int]) -> None:
        given = choice.records
        tokens = {(record.extra or {}).get("token") for record in given.values()}
        got = given[0].key if given else 0
        if given and (len(tokens) != 1 or len(given) != RANKS):
            raise Broken(f"P1: a mixture: {given}")
        if given and self.marker.given_up(given[0].life, got):
            raise Broken("P4: the program went back behind it")
        lost = self.of_safe - where
        if self.safe and len(lost) <= 1 and got < self.safe[0]:
            raise Broken(f"P2: {self.safe[1]} was on two nodes, {lost} are not here, and {got & 0xFFFF} is given")
        if not {*self.before} - where and got < self.local:
            raise Broken(f"P3: {self.local & 0xFFFF} was on all disks, and {got & 0xFFFF} is given")

    def live(self, steps: int = 120) -> None:
        for _ in range(steps):
            self.step()
        if self.run:
            self.kill(self.run)
        self.restart()


def given_key(choice: choose.Choice) -> int:
    return choice.records[0].key if choice.records else 0


def broken(schedules: Iterable[int], *, until: str = "", xor: bool = False) -> tuple[int, str]:
    """How many of these schedules break a promise, and how the first does. `until`: ends with the first that breaks
    this one."""
    count, told = 0, ""
    for seed in schedules:
        world = World(seed, xor=xor)
        try:
            world.live()
        except Broken as error:
            if not str(error).startswith(until):
                continue
            count += 1
            told = told or "\n".join([f"schedule {seed}: {error}", *world.log[-80:]])
            if until:
                break
    return count, told
