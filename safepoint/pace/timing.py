"""The listener that knows when to save and when to stop: it begins to measure when the program first asks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from safepoint.listener import Listener, Outcome
from safepoint.opening import Opening
from safepoint.pace.ask import When
from safepoint.pace.limits import Limit
from safepoint.pace.signals import Signals
from safepoint.pace.stopping import REQUEUE
from safepoint.ranks import Ranks, Serial
from safepoint.record import Item, Record


class Timing(Listener):
    """Of one session."""

    def __init__(self, home: Opening, peers: Serial | Ranks, limits: Sequence[Limit]) -> None:
        self._home, self._peers, self._limits = home, peers, list(limits)
        self._since = self._ready = time.perf_counter()  # the last set was hidden or given back; the session began
        self._when: When | None = None
        self.caught = Signals(())

    def ask(self, *, noted: bool) -> When:
        """What decides, from the first question on. `noted`: this life has a line in the log."""
        if self._when is None:
            home, bounds = self._home, self._limits
            if self._peers is not home.ranks:  # each rank asks for itself: not a scheduler, if there is something else
                bounds = [bound for bound in bounds if not bound.scheduler] or bounds
            self._when = When(
                self._peers, home.lead, home.root, home.manifest, self._since, self._ready,
                noted=noted, bounds=bounds, caught=self.caught,
            )  # fmt: skip
        return self._when

    def count(self, due: int, stop: int) -> None:
        """Calls that were answered with no elsewhere."""
        if self._when:
            self._when.count(due, stop)

    def to_come(self, *, stop: bool) -> tuple[int, int]:
        """Calls, and nanoseconds, that may be."""
        return self._when.to_come(stop=stop) if self._when else (0, 0)

    @property
    def asked(self) -> bool:
        """Whether the program has ever asked."""
        return self._when is not None

    @property
    def due_waits(self) -> bool:
        """Whether this call of `due` needs no decision."""
        return self._when is not None and self._when.due_waits()

    @property
    def stop_waits(self) -> bool:
        """Whether this call of `should_stop` needs no look."""
        return self._when is not None and self._when.stop_waits()

    @property
    def status(self) -> int:
        """With which the process ends by `stop`."""
        return (self._when.stop.status if self._when else 0) or REQUEUE

    def after(self, *, ended: bool) -> None:
        if ended:
            self.caught.remove()

    def reasons(self) -> Mapping[str, Any]:
        """What the log says of why a set is hidden now."""
        return self._when.words() if self._when else {}

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        if taken:
            self._since = end
            if self._when:
                self._when.saved(begin, end, waited=bool(waited))

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        if self._when and not waited:
            self._when.meter.stored(time.perf_counter(), seconds)

    def restored(self, outcome: Outcome) -> None:
        self._since = time.perf_counter()
        if self._when:
            self._when.restored(self._since)

    def closed(self) -> None:
        if self._when:
            self._when.stop.end(shared=self._peers is not self._home.ranks and self._home.ranks.size > 1)
            self._when = None
