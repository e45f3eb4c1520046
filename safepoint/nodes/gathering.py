"""How a run on disks of its nodes is brought back, on whatever nodes it is started now: `restart`, with more sources.

A rank offers each set of which it can have its part: on its own disk, from a copy, from the disk where it ran before,
from the remote place. Which set all ranks offer is chosen as ever. A part from elsewhere is brought below `fetched/`,
and staged from there, through its checksums; if it is damaged the next source of the same set is tried, and then an
older set. A node that does not answer is an error, if nobody else has what it has.

killed after                 there is                                            the next restart
some bytes                   `fetched/`, which nobody reads                      begins anew
all ranks have staged        the same                                            the same
some parts are in place      the set, on these ranks' own disks                  finds it there, or elsewhere as before
all parts are in place       the set                                             goes on as on one disk

No file of W changes before all parts are in place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from safepoint.disk import kernel
from safepoint.disk.files import exists
from safepoint.errors import DamagedError, RestoreError, SafepointError
from safepoint.listener import Outcome
from safepoint.nodes.asking import Which
from safepoint.nodes.nearby import AWAY, Here, Source, There, at_start, held_here, known, silent
from safepoint.nodes.parity import briefs
from safepoint.nodes.rebuilt import rebuildable
from safepoint.nodes.stripes import Brief
from safepoint.nodes.turns import Asked
from safepoint.ranks import LARGEST
from safepoint.record import Record, key, life_of, number_of
from safepoint.restart import Restart
from safepoint.restoring import choose, settle, stage, survey
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import Candidate
from safepoint.root import Root, roots
from safepoint.saving.memory import Memory
from safepoint.tiers.fetching import clear, put_in_place, scratch
from safepoint.tiers.names import identity, name_of
from safepoint.tiers.place import Unreachable

if TYPE_CHECKING:
    from safepoint.nodes.home import Home
    from safepoint.nodes.session import Nodes
    from safepoint.restoring.stage import Progress

logger = logging.getLogger("safepoint")
NEWEST = 8  # sets at the remote place that are looked at


class Gathering(Restart):
    """One call of `restore`. Collective."""

    _home: Home

    def __init__(self, near: Nodes, *arguments: Any, **options: Any) -> None:
        """`near`: who knows the other nodes."""
        super().__init__(*arguments, **options)
        self._near = near
        self._own: set[int] = set()  # keys of the sets on this rank's own disk
        self._sources: dict[int, list[tuple[Record, Source]]] = {}
        self._spare: dict[int, list[Source]] = {}  # of sets that are on its own disk, or nearer, too
        self._any_parity = False  # on any node
        self._silent: dict[int, tuple[Source, Unreachable]] = {}  # by key, who has it and does not answer
        self._foreign: set[str] = set()  # why sets that are there are none for this program
        self._brought: tuple[Record, str] | None = None  # what lies in `fetched/`, and from where

    def run(self, progress: Progress | None = None) -> Outcome:
        home, peers = self._home, self._peers
        try:
            outcome = super().run(progress)
        except DamagedError as error:
            raise DamagedError(f"{error}{self._missing_nodes()}") from error
        self._sets.doubt()  # what was found is not all here
        left = peers.together(self._left)
        self._sets.held = frozenset(left)  # one of them may be the newest that is on two nodes
        (newest,) = peers.least(-self.newest_life)
        self.newest_life = -newest
        record, point = outcome.record, outcome.point
        key, holder = peers.least(record.key if record else LARGEST, peers.rank if record else LARGEST)
        history = "" if holder == LARGEST else peers.share(record.history if record else "", holder)
        given = None if holder == LARGEST else Asked(number_of(key), identity(life_of(key), number_of(key), history))
        self._near.given = given
        back = (*home.marker.back, (self.newest_life + 1, key)) if outcome.asked else home.marker.back
        self._say_from_where(outcome, life_of(key) if given else 0)
        peers.together(lambda: home.tell(life=self.newest_life + 1, nodes=tuple(home.nodes), back=back))
        if point and point.finished and peers.rank == home.lead:
            logger.warning("the result of this run is at %s: `safepoint fetch` brings it", self._near.url)
            outcome = outcome._replace(changed=[])
        return outcome._replace(left=left)

    def _left(self) -> list[int]:
        root = self._home.root
        with root.reporting(RestoreError, "cannot look at the sets", "the files of the set are in place"):
            numbers = root.numbers("set") if self._home.active else []
            return [number for number in numbers if exists(root.disk, root.record(number))]

    def _missing_nodes(self) -> str:
        """For a message: where sets were that cannot be had."""
        here = {(node.host, node.directory) for node in self._home.nodes}
        gone = [node for node in self._home.marker.nodes if (node.host, node.directory) not in here]
        said = [f"\n  not here: {n.directory} on {n.host}, with the sets of {_ranks(n.ranks)}" for n in gone]
        moved = [n.directory for n in gone if n.host == kernel.host() and os.path.isdir(n.directory)]
        if moved:
            why = "but for another directory of the start: was this one moved? Move it back"
            said.append(f"\n  {moved[0]} is there, {why}")
        return "".join([*said, *(f"\n  {text}" for text in sorted(self._foreign))]) + self._near.away

    def _settle(self, found: list[Candidate], foreign: dict[int, str]) -> tuple[list[Candidate], bool]:
        home, marker = self._home, self._home.marker
        found, history = super()._settle(found, foreign)
        self.newest_life = max(self.newest_life, marker.life)
        if home.leads:
            with home.root.reporting(RestoreError, "cannot look at the sets", "the listed files are untouched"):
                self._settle_strays()
        why = "the program went back behind it"
        found = [
            c._replace(record=None, reason=why) if c.record and marker.given_up(c.record.life, c.key) else c
            for c in found
        ]
        return found, history or marker.saved > life_of(self._finished)

    def _settle_strays(self) -> None:
        """Sets of ranks that ran here and run elsewhere now: what is whole is committed, as at home."""
        home, root = self._home, self._home.root
        for other in roots(root.disk, root.work)[0]:  # within `reporting`
            if other.rank in home.node.ranks or other.rank >= root.ranks:
                continue
            mine = root.of(other.rank)
            try:
                if (release := root.disk.lock(mine.lock)) is None:
                    continue
                try:
                    standing = mine.standing()
                    found = survey.survey(mine, self._finished, standing["set"], all_sizes=False)
                    memory = Memory(self._memory.options)
                    settle.settle(mine, root.disk.page_cache(mine.path), found, standing["gone"], memory)
                    self.newest_life = max([self.newest_life, *(life_of(c.key) for c in found)])
                finally:
                    release()
            except (SafepointError, OSError) as error:
                logger.warning("sets of rank %d, which ran on %s: %s", other.rank, home.node.host, error)

    def _only_asked(self, found: list[Candidate]) -> list[Candidate]:
        return super()._only_asked(self._with_others(found))

    def _with_others(self, found: list[Candidate]) -> list[Candidate]:
        """Collective: two agreements for each node."""
        home, peers, root = self._home, self._peers, self._home.root
        self._own = {c.key for c in found if c.record}
        if home.leads:
            self._near.look_after()
        parity = self._parity()
        around = {rank for found in parity.values() for it in found for line in it.ranks for rank in line} | {root.rank}
        told = peers.together(lambda: self._held_here() if home.leads else [])
        order = sorted(range(len(home.nodes)), key=lambda index: index != home.here)  # what is here first
        parts: dict[int, list[Which]] = {}
        for index, rows in self._of_each_node(told):
            parts[index] = [Which(*row) for row in rows if row[0] in around]
        sources = [
            self._source(index, which)
            for index in order
            for which in parts[index]
            if which.rank == root.rank and (which.where != "own" or root.rank not in home.nodes[index].ranks)
        ]
        made = rebuildable(root.rank, parity, parts, self._near.peers)
        names = peers.together(lambda: self._near.sets_at_place() if peers.rank == home.lead else [])
        names = peers.share(names, home.lead)
        offered = peers.together(lambda: self._offered(found, sources, made, names) if home.active else found)
        self._refuse_silence(offered)
        return offered

    def _is_silent(self, source: Source, error: Unreachable) -> None:
        self._silent[source.known[0]] = source, error

    def _refuse_silence(self, offered: list[Candidate]) -> None:
        """An older set than could be had if all nodes answered would cost what is newer. Collective."""
        peers = self._peers
        if peers.least(-bool(self._silent)) == (0,):
            return
        mine = {c.key for c in offered if c.record} if self._home.active else None
        now = peers.newest_common(mine) or 0
        newest = peers.newest_common(None if mine is None else mine | {*self._silent}) or 0
        failure = None
        if newest > now and newest in self._silent and newest not in (mine or ()):
            failure = silent(*self._silent[newest])
        peers.fail_together(failure)

    def _of_each_node(self, told: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, list[Any]]]:
        """What the rank that leads each node has to tell. Collective."""
        for index, node in enumerate(self._home.nodes):
            mine = [tuple(row) for row in told] if node.ranks[0] == self._peers.rank else None
            yield index, self._peers.share(mine, node.ranks[0])

    def _parity(self) -> dict[int, list[Brief]]:
        """That of which a part of this rank could be made again, on each node; none if no node has any. Collective."""
        home, peers = self._home, self._peers
        mine = peers.together(lambda: self._parity_here() if home.leads else [])
        (some,) = peers.least(-bool(mine))
        self._any_parity = bool(some)
        found = {}
        for index, rows in self._of_each_node(mine) if some else ():
            every = [Brief(row[0], row[1], row[2], tuple(map(tuple, row[3]))) for row in rows]
            found[index] = [each for each in every if any(home.root.rank in line for line in each.ranks)]
        return found

    def _parity_here(self) -> list[Brief]:
        with self._home.root.reporting(RestoreError, "cannot look at parity", "the listed files are untouched"):
            return briefs(self._home.root)

    def _held_here(self) -> list[Which]:
        home = self._home
        # What the ranks that run here have as their own is of use to others where there is parity.
        mine = () if self._any_parity else home.node.ranks
        with home.root.reporting(RestoreError, "cannot look at the copies", "the listed files are untouched"):
            return held_here(home.root, mine)

    def _source(self, index: int, which: Which) -> Source:
        home = self._home
        if index == home.here and which.where == "held":
            return Here("this node, which has a copy", home.root.held(which.rank), which.number, which.known)
        node = home.nodes[index]
        return There(f"node {node.host}", self._near.peers[index], which)

    def _offered(
        self, found: list[Candidate], sources: list[Source], made: Sequence[Source], names: list[str]
    ) -> list[Candidate]:
        """`made`: what can be made again, which takes all nodes of a group: asked for if no part lies anywhere."""
        home, root = self._home, self._home.root
        with root.reporting(RestoreError, "cannot look at the sets", "the listed files are untouched"):
            near = [*sources, *at_start(home.start, root.rank)]
        own = {(c.key, c.record.history) for c in found if c.record}
        for source in near:
            if source.known in own:  # asked for only if its own is damaged
                self._spare.setdefault(source.known[0], []).append(source)
            else:
                self._note(known([source], self._finished, self._is_silent))
        lying = own | {(r.key, r.history) for rows in self._sources.values() for r, _ in rows}
        for source in made:
            if source.known in lying:
                self._spare.setdefault(source.known[0], []).append(source)
            else:
                self._note(known([source], self._finished, self._is_silent))
        for name in filter(None, map(name_of, names[:NEWEST])):
            which = Which(root.rank, name.number, "remote", name.text)
            source = There("the remote place", self._near.peers[home.here], which)
            keys = {r.key for rows in self._sources.values() for r, _ in rows if r.history == name.history} | self._own
            if (at := key(name.life, name.number)) in keys:
                self._spare.setdefault(at, []).append(source)
            elif at > self._finished:
                self._note(known([source], self._finished, self._is_silent))
        more = [
            Candidate(rows[0][0].number, rows[0][0], "", at, rows[0][0], measured=True)
            for at, rows in self._sources.items()
            if at not in self._own
        ]
        self.newest_life = max([self.newest_life, *map(life_of, self._sources)])
        return sorted([*found, *more], key=lambda c: c.key, reverse=True)

    def _note(self, rows: Any) -> None:
        root, marker = self._home.root, self._home.marker
        for record, source in rows:
            fits = (record.rank, record.ranks, record.saver) == (root.rank, root.ranks, root.saver)
            if not fits and record.ranks != root.ranks:
                self._foreign.add(f"{record.label} was saved by {record.ranks} ranks, and this run has {root.ranks}")
            if fits and not marker.given_up(record.life, record.key):
                self._sources.setdefault(record.key, []).append((record, source))

    def _trial(self, progress: Progress | None, parts: choose.Parts) -> dict[int, str]:
        reasons: list[str] = []
        for root, part in parts:  # of one rank
            if part.key in self._own:
                if not (damage := super()._trial(progress, parts)):
                    self._brought = None
                    return {}
                reasons += damage.values()
            away: tuple[Source, Unreachable] | None = None
            for source in self._others(part):
                try:
                    self._bring(root, part, source, progress)
                except AWAY as error:
                    reasons.append(f"{source.name}: {error}")
                    if isinstance(error, Unreachable) and source.near:
                        away = source, error
                else:
                    return {}
            if away:
                raise silent(*away) from away[1]
            return {root.rank: "; ".join(reasons)}
        return {}

    def _others(self, part: Candidate) -> Sequence[Source]:
        history = part.record.history if part.record else ""
        near = [source for record, source in self._sources.get(part.key, ()) if record.history == history]
        return [*near, *self._spare.get(part.key, ())]

    def _bring(self, root: Root, part: Candidate, source: Source, progress: Progress | None) -> None:
        """From elsewhere to `stage/`. Raises one of AWAY if that is not what is expected."""
        with root.reporting(RestoreError, f"set {part.number} cannot be brought", "the listed files are untouched"):
            source.bring(root)
            lying = scratch(root)
            record = survey.read_record(lying, part.number)
            if (record.key, record.history) != (part.key, part.record.history if part.record else ""):
                raise Damaged("another set is there")
            stage.stage(lying, record, self._memory, progress)
        self._brought = record, source.name

    def _give_back(self, number: int, record: Record | None, passed: list[str]) -> Outcome:
        self._peers.together(lambda: self._take_in(number))
        return super()._give_back(number, record, passed)

    def _take_in(self, number: int) -> None:
        """What was brought is a set of this rank from now on, before a file of W changes: it may be nowhere else when
        this restart is killed, and the nodes that had it are gone."""
        root = self._home.root
        with root.reporting(RestoreError, f"set {number} cannot be put in place", "the listed files are untouched"):
            if self._brought and self._brought[0].number == number:
                put_in_place(root, number)
            elif self._home.active:
                clear(root)

    def _say_from_where(self, outcome: Outcome, life: int) -> None:
        """Once, in words; and if the newest sets that there were are not to be had. Collective."""
        peers, point = self._peers, outcome.point
        if peers.rank == self._home.lead and point and not point.finished and life < self._home.marker.saved:
            gone = self._missing_nodes() or " (their disks were emptied)"
            logger.warning("set %d is of an earlier start: newer sets cannot be had%s", point.number, gone)
        (some,) = peers.least(-bool(self._brought))
        if point is None or point.finished or not some:
            return
        ranks, names = peers.name_some(self._brought is not None)
        where = {rank: peers.share(self._brought[1] if self._brought else "", rank) for rank in ranks}
        if peers.rank == self._home.lead:
            told = ", ".join(f"rank {rank} from {name}" for rank, name in where.items())
            logger.warning("set %d: the part of %s was not on its own disk: %s", point.number, names or "rank 0", told)


def _ranks(numbers: Sequence[int]) -> str:
    from safepoint.words import ranks

    return f"rank{'s' * (len(numbers) != 1)} {ranks(numbers)}"
