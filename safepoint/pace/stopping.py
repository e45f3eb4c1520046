"""When must the program stop? Before its time limit, after a signal, or because an operator asked.

The limit is near when less time is left than it may take to end the step and to save, and a margin. Nothing here fails:
what goes wrong is said, and does not count.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from safepoint.disk.files import exists
from safepoint.pace.halt import halted, run_of
from safepoint.pace.limits import SCHEDULER_ANSWER_S, Limit
from safepoint.pace.signals import Signals, name_of
from safepoint.root import Root
from safepoint.words import about

logger = logging.getLogger("safepoint")
REQUEUE, HALTED = 75, 79  # exit statuses: EX_TEMPFAIL of sysexits.h, "try again"; and one that is not in it
LOOK_S = 1.0  # between two looks for what costs something: the clock, the halt file
MARGIN_OF_NEED, MARGIN_S, MARGIN_OF_LIMIT = 0.25, 10.0, 0.02  # a quarter of what is needed; or 10 s, 2 % of the limit
ASK_AGAIN_S = 60.0  # until a scheduler is asked again that gave no answer


class Stop:
    """Whether to stop, as one rank sees it."""

    def __init__(self, root: Root, owner: Mapping[str, Any] | None, bounds: list[Limit], caught: Signals) -> None:
        """`owner`: as whom somebody may ask this process to stop; None: another one is asked for it."""
        self._root, self._limits, self._signals = root, bounds, caught
        self._me = run_of(owner) if owner else None
        self._next = -math.inf  # when to look again
        self._steps: int | None = None  # that are left
        self._halt = 0.0  # when that was asked for
        self._began = time.time()
        self._said = False
        self.why, self.status = "", 0
        self.halted = False

    def look(self, steps: int, needed: float, *, exact: bool = False) -> str:
        """Why to stop, or nothing. `steps`: since the last look. `needed`: seconds to end a step and to save. `exact`:
        without a margin."""
        if self._steps is not None:
            self._steps -= steps
        now = time.time()
        if now >= self._next or any(self._left(limit, needed, exact) < 0 for limit in self._limits):
            self._next = now + LOOK_S
            try:
                self._look_at_halt(now)
            except Exception as error:
                if not self._said:
                    logger.warning("cannot look for %s: %s", self._root.shown(self._root.halt), error)
                self._said = True
            for limit in self._limits:
                self._look_at(limit, needed, exact)
        if self._steps is not None and self._steps <= 0 and not self.why:
            self._set("safepoint halt", HALTED, halted=True)
        if self._signals.came and not self.why:
            self._set(f"{name_of(self._signals.came)} came", REQUEUE)
        return self.why

    @property
    def steps(self) -> int | None:
        """How many are left, if somebody asked for a number of them."""
        return self._steps

    @property
    def signal(self) -> int:
        return self._signals.came

    def agreed(self, why: str, status: int) -> None:
        """What one rank has found is told to this one."""
        self.why, self.status = why, status

    def _set(self, why: str, status: int, *, halted: bool = False) -> None:
        self.why, self.status, self.halted = why, status, halted

    def _look_at_halt(self, now: float) -> None:
        if self._me is None:
            return
        asked = halted(self._root) if exists(self._root.disk, self._root.halt) else None
        if not asked or self._me not in asked["runs"]:
            self._steps = None
            return
        if asked["time"] != self._halt:  # another request takes the place of the one before
            self._halt, self._steps = asked["time"], asked["steps"]
        if asked["steps"] is None and (asked["until"] is None or now >= asked["until"]):
            self._set("safepoint halt", HALTED, halted=True)

    def margin(self, limit: Limit, needed: float, exact: bool = False) -> float:
        """Seconds that stay free before this limit."""
        if exact:
            return 0.0
        return max(MARGIN_OF_NEED * needed, min(MARGIN_S, MARGIN_OF_LIMIT * max(0.0, limit.end - self._began)))

    def _left(self, limit: Limit, needed: float, exact: bool) -> float:
        """Seconds until it is time."""
        return limit.end - time.time() - needed - self.margin(limit, needed, exact)

    def _look_at(self, limit: Limit, needed: float, exact: bool) -> None:
        since = time.time() - limit.asked
        # Before it is time once more, early enough for the answer; and later again as long as there was none.
        near = math.isfinite(limit.end) and self._left(limit, needed, exact) < SCHEDULER_ANSWER_S
        if not math.isfinite(since):
            limit.ask(again=False)
        elif (near and since > ASK_AGAIN_S / 10) or (limit.failed and since > ASK_AGAIN_S):
            limit.ask(again=True)
        if self._left(limit, needed, exact) < 0 and not self.why:
            left, margin = max(0.0, limit.end - time.time()), self.margin(limit, needed, exact)
            what = f"{about(needed)} needed" + f", {about(margin)} of margin" * (not exact)
            self._set(f"time limit ({limit.source}): {about(left)} left, {what}", REQUEUE)

    def end(self, *, shared: bool) -> None:
        """The session is over: what was asked of this run is done with. `shared`: other ranks have yet to look."""
        try:
            if self.halted and not shared and exists(self._root.disk, self._root.halt):
                self._root.disk.remove(self._root.halt)
        except OSError as error:  # it is for this run only
            logger.warning("%s not removed: %s", self._root.shown(self._root.halt), error)
