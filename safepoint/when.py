"""When to save and when to stop, for all ranks of a session: what `pace` and `stop` find, agreed on.

`due` and `should_stop` are meant to be called in every step. One rank decides, the one whose clock and log count; it
says with its answer how many calls later it will be asked next, and until then every rank counts down and says no,
without a look at the clock or a word to the others. A decision is one Allreduce of three integers. For `due` the
calls left out are those of half the time that is left; for `should_stop` of `LATENCY`, so soon a signal is heeded.
"""

from __future__ import annotations

import logging
import time

from safepoint.disk import Disk
from safepoint.manifest import Manifest
from safepoint.opening import read_owner
from safepoint.pace import NEVER, Meter, Pace, Past, past
from safepoint.ranks import Ranks, Serial
from safepoint.record import Root
from safepoint.stop import Limit, Signals, Stop

logger = logging.getLogger("safepoint")
LATENCY = 0.1  # seconds between two agreements on whether to stop
LONGEST_LOG = 64 << 20  # bytes of it that are read, from its end


class When:
    """Of one session, from the first call of `due` or `should_stop`."""

    def __init__(
        self, peers: Serial | Ranks, leads: bool, disk: Disk, root: Root, listed: Manifest, since: float,
        began: float, *, noted: bool, bounds: list[Limit], caught: Signals,
    ) -> None:  # fmt: skip
        """`since`: when the last set was hidden or given back, and `began`: when the session did, both by
        time.perf_counter. `noted`: this life has a line in the log already."""
        self._peers, self._leads = peers, leads
        self._past = _read(disk, root, noted) if leads else Past()
        self.meter = Meter(since)
        self.pace = Pace(listed.setting("every"), listed.setting("mtbf"), self._past, self.meter, began)
        owner = read_owner(disk, root) if leads else None
        self.stop = Stop(disk, root, owner, bounds if leads else [], caught)
        self._ticks = ""  # which of the two is called once a step: the one that is called first
        self._rest = self._passed = 0  # calls of should_stop that need no look; calls since the last one

    def waits(self) -> bool:
        """Whether this call of `should_stop` needs no look."""
        self._passed += 1
        if self._rest <= 0 or (self._peers.size == 1 and self.stop.signal):
            return False
        self._rest -= 1
        return True

    def decide_due(self, *, saving: bool, first: bool) -> bool:
        self._ticks = self._ticks or "due"
        now = time.perf_counter()
        tick = self._ticks == "due"
        due = self.pace.decide(self._peers, self._leads, now, saving=saving, first=first, tick=tick)
        if due:
            self.meter.asked = now if self.meter.asked is None else self.meter.asked
            logger.debug("due: %s", self.pace.reason)
        return due

    def decide_stop(self, *, saving: bool) -> tuple[bool, bool]:
        """Whether to stop, and whether that is new."""
        if self.stop.why:
            return True, False
        self._ticks = self._ticks or "should_stop"
        now = time.perf_counter()
        if self._ticks == "should_stop":
            self.meter.step(now, self._passed, saving)
        peers, passed, self._passed = self._peers, self._passed, 0
        why = self.stop.look(passed, self._needed)
        rest = self._calls_to_come(passed) if self._leads else NEVER
        if peers.size > 1:
            why, rest = self._agree(why, rest)
        self._rest = 0 if why else rest
        if why:
            self.meter.asked = now if self.meter.asked is None else self.meter.asked
        return bool(why), bool(why)

    @property
    def _needed(self) -> float:
        """Seconds to end the longest step of late, and to save."""
        measured = self.meter.durable
        if measured is None:
            measured = (self._past.cost or 0.0) + (self._past.store or 0.0)
        return measured + self.meter.longest

    def _calls_to_come(self, passed: int) -> int:
        """How many calls to leave out; at most twice as many as the last time."""
        step = self.meter.typical
        ahead = int(LATENCY / step) if step else 0
        calls = min(ahead, 2 * passed) if self._peers.size > 1 else 0
        return calls if self.stop.steps is None else min(calls, max(0, self.stop.steps - 1))

    def _agree(self, why: str, rest: int) -> tuple[str, int]:
        """What one rank has found is told to all: what the rank that decides found, else the first with a signal."""
        peers, reason = self._peers, (why, self.stop.status)
        decided, caught, rest = peers.least(-bool(why and self._leads), -bool(why), rest)
        if not caught:
            return "", rest
        (source,) = peers.least(peers.rank if why and (self._leads or not decided) else NEVER)
        who = f" (rank {source} of {peers.size})" if not decided or self.stop.signal else ""
        why, status = peers.share((reason[0] + who, reason[1]), source)
        self.stop.agreed(why, status)
        return why, rest

    def saved(self, begin: float, end: float, *, waited: bool) -> None:
        """`hide` took a set."""
        self.meter.saved(begin, end, waited=waited)
        self.pace.saved()

    def restored(self, now: float) -> None:
        """The work begins anew."""
        self.meter.since, self.meter.asked = now, None
        self.pace.saved()

    def words(self) -> dict[str, object]:
        """What the log says of the set that is being hidden."""
        found: dict[str, object] = {}
        if self.meter.asked is not None:
            found["due"] = self.stop.why or self.pace.reason
        if self.pace.cost is not None:
            found["cost"] = round(self.pace.cost, 6)
        return found


def _read(disk: Disk, root: Root, noted: bool) -> Past:
    """What the log tells; nothing if it cannot be read, which is no reason to stop a computation."""
    try:
        if not disk.exists(root.log):
            return Past()
        with disk.open(root.log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LONGEST_LOG))
            return past(file.read(), present=noted)
    except OSError as error:
        logger.warning("cannot read %s (%s): nothing is known of earlier failures", root.log, error.strerror)
        return Past()
