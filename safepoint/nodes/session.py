"""The other nodes, as a session knows them: which sets go where, and how far they are.

On each node one rank starts a process beside the run (`safepoint tend`), which gives what the node has, holds copies
for others, and puts sets to the partner and to the remote place.

(1) All nodes put the same sets, each of them in turn: a new one is chosen in the agreement of `hide` when all nodes
    have done with the one before, of those that no newer one can overtake. Else no set might ever be whole there.
(2) The newest set that all have copied stays on every disk until a newer one is copied: a lost node's copies are of no
    use without the parts that the others have. So does the one in its turn. What a restart has given back is the first;
    which set was on two nodes before is not known then, so all that it has found stay.
(3) No `hide` waits for it, or fails because of it, unless it is told to wait.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

from safepoint.disk.signals import look
from safepoint.errors import SaveError, UsageError
from safepoint.listener import Outcome
from safepoint.nodes.asking import ask_sets
from safepoint.nodes.home import Home, doubled_at, groups_of, partner_of
from safepoint.nodes.transfer import Peer
from safepoint.nodes.turns import BUSY, IDLE, Asked, Turn
from safepoint.opening import LOCAL, PARTNER, REMOTE
from safepoint.record import Item, Life, Record, Taken
from safepoint.saving.prune import Sets
from safepoint.tiers.beside import POLL, Beside
from safepoint.tiers.names import identity
from safepoint.tiers.place import Unreachable, Vanished
from safepoint.tiers.settings import COPIES, When
from safepoint.tiers.troubles import COPY, DEAF, PROCESS, QUIET, WAITS_COPY
from safepoint.tiers.url import RANK, place_of

logger = logging.getLogger("safepoint")


class Nodes(Beside):
    """Of one session with the setting `local`. `mine`: it is this rank that acts for its node."""

    def __init__(
        self, home: Home, sets: Sets, life: Callable[[], Life], newest: Callable[[], int], taking: Callable[[], int]
    ) -> None:
        """`life`: of the session. `newest`: the newest set that all ranks have, and `taking` the one that is being
        taken, by number. Raises `UsageError`."""
        told = home.manifest.setting("remote")
        if told is None or home.manifest.setting("drain").off:
            raise UsageError(
                f"{home.manifest.path}: local needs a place for the result and for sets that outlive all nodes: the "
                f"setting remote, and not drain = off; nothing was changed"
            )
        if RANK in told:
            raise UsageError(f"{home.manifest.path}: with local all ranks have one remote place; nothing was changed")
        super().__init__(home, agree=True)
        self.url = place_of(told, home.start.work)
        self.mine, self.away = home.leads, ""
        self._first = home.lead in home.node.ranks  # it is the node that claims the place, and sees what is whole
        self.peers: list[Peer] = []
        self._home, self._sets, self._life = home, sets, life
        self._newest, self._taking = newest, taking
        self._when: When = home.manifest.setting("drain")
        self.partner: int | None = None  # the node that holds copies of this one
        self.group: list[int] = []  # or those that keep parity for each other, with this one
        if told_partner := home.manifest.setting("partner"):
            self._find_others(told_partner)
        self.copying, self.putting = Turn(mine=self.mine), Turn(mine=self.mine)
        self._begun_at: tuple[int, float] | None = None  # the last that was put to the remote place
        self._secret, self._port, self._host = b"", 0, ""
        self._wanted, self._why_no_copy = True, ""
        self._kept, self._process = "", f"the process beside the run on {home.node.host}"
        self.given: Asked | None = None  # what a restart has given back: on all ranks, also those without a part of it

    def _find_others(self, told: int) -> None:
        home = self._home
        if told == COPIES:
            self.partner = partner_of(home.nodes, home.here)
        elif find_spec("numpy") is None:
            raise UsageError("partner = xor needs the package numpy (pip install numpy); nothing was changed")
        else:
            self.group = next((group for group in groups_of(home.nodes, told) if home.here in group), [])
        if not self.doubled:
            where = f"of one domain ({home.node.domain})" if told == COPIES else "of too few domains"
            count = f"{len(home.nodes)} nodes are" if len(home.nodes) > 1 else "the one node is"
            raise UsageError(
                f"partner = {'on' if told == COPIES else f'xor {told}'}, and {count} {where}: what is to protect a set "
                f"would be lost with it. Start it on more nodes, or tell their domains apart with the setting domain; "
                f"nothing was changed"
            )

    @property
    def doubled(self) -> bool:
        """Whether a set survives the loss of a node."""
        return self.partner is not None or bool(self.group)

    @property
    def levels(self) -> tuple[int, ...]:
        return (LOCAL, PARTNER, REMOTE) if self.doubled else (LOCAL, REMOTE)

    # The processes, and where they listen.

    def meet(self) -> None:
        """On return all nodes listen, and each rank knows where. Collective."""
        home, ranks, self._met = self._home, self._home.ranks, self._life().number
        self._secret = ranks.share(os.urandom(32) if ranks.rank == home.lead else None, home.lead)
        ranks.together(self._listen)
        for node in home.nodes:
            first = node.ranks[0]
            host, port = ranks.share((self._host, self._port) if ranks.rank == first else None, first)
            self.peers.append(Peer(host, port, self._secret, self._limit))
        self._tell_partner()

    def look_after(self) -> None:  # it may have died, and others will ask it
        self._tend()

    def _listen(self) -> None:
        if not self.mine:
            return
        begun = time.monotonic()
        while not self._port:
            self._tend()
            self._troubles.quiet(self._process, begun, now := time.monotonic())
            if self._over or (self._drain is None and self._why) or now > begun + self._limit:
                why = self._fatal or self._why or self._troubles.stalled(QUIET, self._process, self._limit)
                raise SaveError(f"no process beside the run on {self._home.node.host}: {why}; nothing was changed")
            look()
            time.sleep(POLL)

    def _words(self) -> list[str]:
        home = self._home
        ranks = ",".join(map(str, home.node.ranks))
        options = ["--pid", str(os.getpid()), "--of", str(home.ranks.size), "--saver", str(home.lead)]
        options += ["--ranks", ranks, "--life", str(self._life().number), "--to", self.url, "--port", str(self._port)]
        options += ["--lead"] * self._first
        options += ["--one-host"] * home.one_host
        return ["tend", *options, "--", home.start.work, home.root.work]

    def _start(self) -> None:
        super()._start()
        if self._drain:
            self._drain.say(f"secret {self._secret.hex()}")
            self._kept = ""
            if self.peers:  # it is begun anew: at the same port, so the others find it
                self._tell_partner()
                for word, turn in (("copy", self.copying), ("put 0", self.putting)):
                    if turn.now and not turn.put:
                        self._drain.say(f"{word} {turn.now.identity}")

    def _tell_partner(self) -> None:
        if self._drain and self.partner is not None:
            peer = self.peers[self.partner]
            self._drain.say(f"partner {peer.host} {peer.port}")
        elif self._drain and self.group:
            others = " ".join(f"{self.peers[node].host} {self.peers[node].port}" for node in self.group)
            self._drain.say(f"group {self.group.index(self._home.here)} {self._met} {others}")

    def sets_at_place(self) -> list[str]:
        """The names of the sets of this run at the remote place; none if it does not answer, which is said."""
        try:
            return ask_sets(self.peers[self._home.here])
        except (Unreachable, Vanished, OSError) as error:
            logger.warning("%s cannot be asked for sets: %s; going on from what the nodes have", self.url, error)
            self.away = f"\n  {self.url} cannot be asked: {error}"
            return []

    def _hear(self, word: str, text: str) -> None:
        if word == "ready":
            self._host, _, port = text.partition(" ")
            self._port = int(port)
            self._troubles.end(DEAF)
        elif word == "deaf":
            self._troubles.warn(DEAF, f"{text}; the run goes on")
        elif word == "copied":
            if self.copying.now and self.copying.now.identity == text:
                self.copying.put, self._why_no_copy = True, ""
                self._troubles.end(COPY, PROCESS, WAITS_COPY)
        elif word == "uncopied":
            identity_, _, why = text.partition(" ")
            if self.copying.now and self.copying.now.identity == identity_:  # else another one is in its turn by now
                self._why_no_copy = why
                self._troubles.warn(COPY, f"no {self._partner_text}: {why}; the run goes on")
        elif word == "lost":
            for turn in (self.copying, self.putting):
                turn.lost = turn.lost or (turn.now is not None and turn.now.identity == text and not turn.put)
        else:
            if word == "there" and self.putting.now and self.putting.now.identity == text:
                self.putting.put = True
            super()._hear(word, text)
            self._begins_no_more = False  # what is over is the remote place: copies go on, and others ask for sets
            if word in ("trouble", "over"):  # a newer set may go when it is over
                self.putting.lost = self.putting.now is not None and not self.putting.put

    def _look(self) -> None:
        super()._look()
        busy = [turn.since for turn in (self.copying, self.putting) if turn.state == BUSY]
        if self._drain and busy:
            self._troubles.quiet(self._process, max(self._drain.heard, *busy), time.monotonic())
        if self._has_none and self.copying.state == BUSY:  # the other nodes may have copied theirs, and say nothing
            self._troubles.warn(COPY, f"no {self._partner_text}: {self._why}; the run goes on")

    @property
    def _partner_text(self) -> str:
        others = [node for node in self.group if node != self._home.here] or [self.partner or 0]
        return doubled_at([self._home.nodes[node] for node in others], parity=bool(self.group))

    # What the session announces.

    def brings(self) -> tuple[int, int]:
        if self.mine and self._drain and time.monotonic() >= self._next:
            self._tend()
        putting = self.putting.state
        if putting == IDLE and self.mine and self._first and not self._when.is_due(self._taking(), self._begun_at):
            putting = BUSY  # for all: they have no clock in common
        return -self.copying.state, -putting

    def agreed(self, number: int, least: Sequence[int], wait: int, *, at_once: bool) -> None:
        copied, put = (-value for value in least)
        asked = self._asked(number)
        self.copying.agreed(copied)
        self._hold()  # first: what is to be kept, then what is to be copied
        if at_once and self.doubled and (copied != BUSY or wait == PARTNER):
            self._begin_copy(asked)
        if at_once and (put != BUSY or wait == REMOTE):
            self._begin_put(asked)
        self._hold()

    def _asked(self, number: int) -> Asked:
        if self.given and number == self.given.number:
            return self.given  # all others are of this life
        life = self._life()
        return Asked(number, identity(life.number, number, life.history))

    def _begin_copy(self, asked: Asked) -> None:
        self.copying.begin(asked)
        self._why_no_copy = ""
        if self._drain:
            self._drain.say(f"copy {asked.identity}")

    def _begin_put(self, asked: Asked) -> None:
        self.putting.begin(asked)
        self._begun_at = asked.number, time.monotonic()
        if self._drain:
            self._drain.say(f"put 0 {asked.identity}")

    def _hold(self) -> None:
        """Rule (2). What is older, and not a set of the ranks that run here, is needed no more."""
        self._sets.held = frozenset(self.copying.held | self.putting.under_way)
        floor = self.copying.safe if self.doubled else self._asked(self._newest())
        new = floor and floor.number and floor.identity != self._kept
        if floor and new and self._drain and self._drain.say(f"keep {floor.identity}"):
            self._kept = floor.identity

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        self.level = waited if taken else 0

    def superseded(self, taken: Taken) -> None:
        self._lose(taken.number)

    def failed(self, taken: Taken, error: Exception, seconds: float) -> None:
        self._lose(taken.number)

    def _lose(self, number: int) -> None:
        for turn in (self.copying, self.putting):
            turn.lost = turn.lost or turn.has(number)

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        super().stored(record, seconds, waited=waited)
        marker = self._home.marker
        if record.life > marker.saved:
            try:
                self._home.tell(saved=record.life, nodes=tuple(self._home.nodes))
            except SaveError as error:
                logger.warning("%s; if all nodes are lost, the next start will not know that there were sets", error)

    def restored(self, outcome: Outcome) -> None:
        super().restored(outcome)
        if outcome.asked and self.given:
            self._back, self._next = self.given.identity, 0.0
        for turn in (self.copying, self.putting):
            turn.now = turn.safe = None
            turn.put, turn.lost, turn.found = True, False, frozenset()
        self._begun_at, self._kept = None, ""
        if self._drain:
            self._drain.say(f"life {self._life().number}")
        if self.given and self.doubled:  # what it was given back from may be all that there is
            self._begin_copy(self.given)
            self.copying.found = frozenset(outcome.left)
        self._hold()

    def finished(self, number: int, step: int | None) -> None:
        if self._drain:
            self._drain.say(f"forget {self._life().number}")

    # What the program asks.

    @property
    def copied_step(self) -> int | None:
        """The step of the newest set that is known to be on two nodes."""
        safe = self.copying.safe
        found = self._steps.get(safe.identity) if safe else None
        return found[1] if found else None

    @property
    def _sees(self) -> bool:
        return self.mine and self._first

    def waiting(self, level: int, number: int, until: float | None) -> Iterator[None]:
        """In steps, until this node's parts of this set, the newest that all ranks have, are there; of the first node
        at the remote place: until the set is. Raises `SaveError`, without `until` as soon as something hinders it."""
        asked = self._asked(number)
        if level == PARTNER:
            return self._until_copied(asked, until)
        return self.until_there(asked.identity, f"set {number}", until) if self.mine else iter(())

    def copy_now(self, number: int) -> Asked | None:
        """The newest set that all ranks have, which is in its turn from now on if it is not on two nodes yet. All ranks
        call this."""
        asked = self._asked(number)
        if not number or asked == self.copying.safe:
            return None
        if asked != self.copying.now or self.copying.lost:
            self._begin_copy(asked)
            self._hold()
        return asked

    def _until_copied(self, asked: Asked, until: float | None) -> Iterator[None]:
        turn, heard = self.copying, time.monotonic()
        while self.mine and not turn.put:
            self._tend()
            now, heard = time.monotonic(), max(heard, self._drain.moved if self._drain else heard)
            why = self._why_no_copy or ("" if self._drain else self._why)
            if now > heard + self._limit:
                why = self._troubles.stalled(WAITS_COPY, self._process, self._limit)
            why = "it is gone here" if turn.lost else why
            if (why and until is None) or (until is not None and now >= until) or self._over or turn.lost:
                text = f"set {asked.number} has no {self._partner_text}: {why or 'the time is over'}"
                raise SaveError(f"{text}; it is durable here")
            look()
            yield

    def copied(self, asked: Asked) -> None:
        """All nodes have come to the end of `waiting` for this one."""
        if self.copying.now == asked:
            self.copying.agreed(IDLE)
            self._hold()
