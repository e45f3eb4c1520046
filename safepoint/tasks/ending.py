"""Who may want a run to end early: Ctrl-C, SIGTERM, a time limit, the program's own `should_stop`.

After any of them no vertex is begun. Ctrl-C and `should_stop` let those at work finish, however long that takes; a time
limit as long as it lasts, but for a margin; SIGTERM some seconds, as whoever sends it sends SIGKILL next. A second
Ctrl-C ends at once.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from safepoint.pace.limits import time_limits
from safepoint.pace.signals import Signals
from safepoint.pace.stopping import REQUEUE, Stop
from safepoint.root import Root
from safepoint.words import about

TERM_S = 15.0  # for vertices at work after SIGTERM; schedulers kill after 30 s, and that is not to be met
MOST_MARGIN_S = 10.0  # before a time limit: to flush, and to leave


class Ending:
    """A `Wish`. Signals are caught inside of its `with` block, in the main thread, if nobody else catches them."""

    def __init__(
        self, work: str, should_stop: Callable[[], object] | None, stop_at: str | float | None,
        stop_after: str | float | None, say: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._limits = time_limits(stop_at, stop_after, time.time(), os.environ)
        self._stop = Stop(Root(work), None, self._limits, Signals(()))
        self._should_stop, self._say = should_stop, say
        self._caught: dict[int, Any] = {}
        self._came = 0
        self._until = math.inf  # monotonic
        self.why, self.status = "", 0

    @property
    def interrupted(self) -> bool:
        return self._came == signal.SIGINT

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():
            for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is default:  # not what the program catches by itself
                    self._caught[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *of: object) -> None:
        for number, before in self._caught.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came == signal.SIGINT == number:
            raise KeyboardInterrupt
        self._came = self._came or number

    def look(self, longest_s: float) -> str:
        """Why to begin no more vertices; "": nothing. `longest_s`: what the longest vertex of this run has taken."""
        if not self.why:
            if self._came:
                name = "Ctrl-C" if self.interrupted else signal.Signals(self._came).name
                self._until = math.inf if self.interrupted else time.monotonic() + TERM_S
                self.why, self.status = f"{name} came", 128 + self._came if self.interrupted else REQUEUE
            elif self._should_stop is not None and self._should_stop():
                self.why, self.status = "should_stop said so", REQUEUE
            elif self._limits and (why := self._stop.look(0, longest_s)):
                self.why, self.status = why, self._stop.status
                self._until = time.monotonic() + self._end(longest_s) - time.time()
            if self.why:
                timed = (
                    "are finished first" if math.isinf(self._until) else f"have {about(self.patience_s())} to finish"
                )
                self._say(f"stopping: {self.why}; vertices at work {timed}{self._hint()}")
        elif self._came == signal.SIGTERM:
            self._until = min(self._until, time.monotonic() + TERM_S)
        return self.why

    def _end(self, longest_s: float) -> float:
        """When vertices at work are to be over: none that takes no longer than the longest so far is cut off."""
        return min(limit.end - min(MOST_MARGIN_S, self._stop.margin(limit, longest_s)) for limit in self._limits)

    def _hint(self) -> str:
        return ", Ctrl-C again ends at once" if self.interrupted and sys.stderr.isatty() else ""

    def patience_s(self) -> float:
        """How long vertices at work may still take, once it has said to stop; 0.0: end now."""
        return max(0.0, self._until - time.monotonic())
