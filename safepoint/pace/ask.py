"""When to save and when to stop, for all ranks of a session: what `decision` and `stopping` find, agreed on.

`due` and `should_stop` are meant to be called in every step. One rank decides, the one whose clock and log count. Its
answer says how many calls later it will be asked next. Until then every rank counts down and says no, without a look at
the clock or a word to the others. A decision is one Allreduce of three or four integers. The calls left out are, for
`due`, those of half the time that is left; for `should_stop` those of `LATENCY_S`, so soon a signal is heeded. They are
never more than a few hundred, as nobody knows how long the next steps take.

Between its agreements nothing here may fail on one rank: the others would wait for ever. What goes wrong is said.
"""

from __future__ import annotations

import logging
import time

from safepoint.disk.files import exists, tail
from safepoint.manifest import Manifest
from safepoint.owner import read_owner
from safepoint.pace.decision import NO_SAY, Pace
from safepoint.pace.limits import Limit
from safepoint.pace.meter import Meter, Steps
from safepoint.pace.past import Past, past
from safepoint.pace.signals import Signals
from safepoint.pace.stopping import Stop
from safepoint.ranks import Ranks, Serial
from safepoint.root import Root

logger = logging.getLogger("safepoint")
LATENCY_S, MOST_CALLS = 0.1, 100  # between two agreements on whether to stop
LONGEST_LOG_BYTES = 64 << 20  # that are read, from its end


class When:
    """Of one session, from the first call of `due` or `should_stop`. Collective."""

    def __init__(
        self, peers: Serial | Ranks, lead: int, root: Root, listed: Manifest, since: float, began: float,
        *, noted: bool, bounds: list[Limit], caught: Signals,
    ) -> None:  # fmt: skip
        """`lead`: the rank that decides. `since`: when the last set was hidden or given back, and `began`: when the
        session did, both by time.perf_counter. `noted`: this life has a line in the log already."""
        self._peers, self._leads = peers, peers.size == 1 or peers.rank == lead
        every, mtbf = peers.share((listed.setting("every"), listed.setting("mtbf")), lead if peers.size > 1 else 0)
        self._past = _read(root, noted) if self._leads else Past()
        self.meter = Meter(since)
        self.pace = Pace(every, mtbf, self._past, self.meter, began)
        alone = root.saver is None  # in its directory, where somebody may ask it, and nobody else, to stop
        of = root if alone else root.of(root.saver or 0)
        owner = read_owner(of) if alone or self._leads else None
        self.stop = Stop(root, owner, bounds if self._leads else [], caught)
        self._steps = Steps()  # by the calls of should_stop
        self._rest = self._passed = 0  # calls of should_stop that need no look; calls since the last one
        self._slowest = 0.0  # what is needed on the rank where that is most

    def due_waits(self) -> bool:
        """Whether this call of `due` needs no decision."""
        return self.pace.waits()

    def stop_waits(self) -> bool:
        """Whether this call of `should_stop` needs no look."""
        self._passed += 1
        if self._rest <= 0 or (self._peers.size == 1 and self.stop.signal):
            return False
        self._rest -= 1
        return True

    def count(self, due: int, stop: int) -> None:
        """So many calls of each were answered with no elsewhere: by a program that is no part of this process."""
        self.pace.count(due)
        self._passed += stop

    def to_come(self, *, stop: bool) -> tuple[int, int]:
        """How many calls may be answered so, and alone for how many nanoseconds."""
        alone = self._peers.size == 1
        if stop:
            calls, self._rest = self._rest, 0
            exact = self.stop.steps is not None or bool(self.stop.why)
            return calls, int(LATENCY_S * 1e9) * (alone and not exact)
        return self.pace.take_rest(), int(min(LATENCY_S, self.pace.ahead) * 1e9) * alone

    def decide_due(self, *, saving: bool, first: bool) -> bool:
        now = time.perf_counter()
        due = self.pace.decide(self._peers, self._leads, now, saving=saving, first=first)
        if due:
            self.meter.asked = now
            logger.debug("due: %s", self.pace.reason)
        return due

    def decide_stop(self, *, saving: bool) -> tuple[bool, bool]:
        """Whether to stop, and whether that is new."""
        now, known = time.perf_counter(), self.stop.why
        passed, self._passed = max(1, self._passed), 0
        if not known:
            self._steps.end(now, passed)
            needed = self._needed(now, passed, saving)
            why = self.stop.look(passed, max(needed, self._slowest))
            rest = self._calls_to_come(passed) if self._leads else NO_SAY
            if self._peers.size > 1:
                why, rest = self._agree(why, rest, needed)
            self._rest = 0 if why else rest
        if self.stop.why:
            self.meter.asked = now
        return bool(self.stop.why), not known and bool(self.stop.why)

    def _needed(self, now: float, passed: int, saving: bool) -> float:
        """Seconds to end the longest step of late, and to save."""
        measured = self.meter.durable(now, saving=saving)
        if measured is None:
            measured = (self._past.cost or 0.0) + (self._past.store or 0.0)
        # Of a block of calls only the mean is known.
        return measured + max(self._steps.longest, min(LATENCY_S, self._steps.mean * passed))

    def _calls_to_come(self, passed: int) -> int:
        """How many calls to leave out; at most twice as many as the last time."""
        step = self._steps.mean
        calls = min(int(LATENCY_S / step), 2 * passed, MOST_CALLS) if self._peers.size > 1 and step else 0
        return calls if self.stop.steps is None else min(calls, max(0, self.stop.steps - 1))

    def _agree(self, why: str, rest: int, needed: float) -> tuple[str, int]:
        """What one rank has found is told to all: what the rank that decides found, else the first other."""
        peers, status = self._peers, self.stop.status
        decided, found, rest, most = peers.least(-bool(why and self._leads), -bool(why), rest, -int(needed * 1e9))
        self._slowest = -most / 1e9
        if not found:
            return "", rest
        (source,) = peers.least(peers.rank if why and (self._leads or not decided) else NO_SAY)
        who = f" (rank {source} of {peers.size})" if self.stop.signal or not self._leads else ""
        why, status = peers.share((why + who, status), source)
        self.stop.agreed(why, status)
        return why, rest

    def saved(self, begin: float, end: float, *, waited: bool) -> None:
        """`hide` took a set."""
        seconds = self.meter.saved(begin, end, waited=waited)
        for steps in (self.pace.steps, self._steps):
            steps.leave_out(seconds)
        self.pace.begin_anew()

    def restored(self, now: float) -> None:
        """The work begins anew."""
        self.meter.since, self.meter.asked = now, None
        for steps in (self.pace.steps, self._steps):
            steps.forget()
        self.pace.begin_anew()

    def words(self) -> dict[str, object]:
        """What the log says of the set that is being hidden."""
        found: dict[str, object] = {}
        reason = self.stop.why or self.pace.reason
        if self.meter.asked is not None and reason:
            found["due"] = reason
        if self.pace.cost is not None:
            found["cost"] = round(self.pace.cost, 6)
        return found


def _read(root: Root, noted: bool) -> Past:
    """What the log tells; nothing if it cannot be read, which is no reason to stop a computation."""
    try:
        if not exists(root.disk, root.log):
            return Past()
        return past(tail(root.disk, root.log, LONGEST_LOG_BYTES), present=noted)
    except Exception as error:
        logger.warning("cannot read %s (%s): nothing is known of earlier failures", root.shown(root.log), error)
        return Past()
