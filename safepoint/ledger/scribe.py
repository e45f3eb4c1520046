"""The listener that writes the log: one line for what people, reports and `safepoint compare` want to know later."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from safepoint.ledger.log import MODIFY, OFF, Ledger, sums
from safepoint.listener import Listener, Outcome
from safepoint.opening import Opening
from safepoint.record import Record, Taken
from safepoint.remarks import sizes


class Scribe(Listener):
    """Of one session. Nothing depends on what it writes, so it must not fail a save."""

    def __init__(
        self, home: Opening, reasons: Callable[[], Mapping[str, Any]], ledger: Ledger, *, sampled: bool
    ) -> None:
        """`reasons`: what is to be said of why a set is hidden now. `sampled`: sets are snapshots of a running
        program."""
        self._home, self._reasons, self._sampled = home, reasons, sampled
        self.ledger = ledger
        self._began = time.time()  # until the first line of the log has said so
        self._at = ("", 0)  # where the program called hide for the set in flight
        self._due: Mapping[str, Any] = {}
        # (set, seconds) of each hide, for the next line of the log: a write of its own would double what hide costs.
        # Bounded, for a program that goes on and on although no set can be taken.
        self._blocked: deque[tuple[int, float]] = deque(maxlen=64)
        self._why = ""  # why the program is about to stop

    @property
    def noted(self) -> bool:
        """Whether this life has a line in the log."""
        return not self._began

    def hiding(self) -> None:
        self._at, self._due = self.ledger.call_site(), self._reasons()

    def hidden(self, number: int, begin: float, end: float, *, taken: bool, waited: bool) -> None:
        if self._home.active:
            self._blocked.append((number, round(end - begin, 7)))

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        what: dict[str, Any] = {**sizes(record.files), "seconds": round(seconds, 6), **self._due}
        if waited:
            what["waited"] = True
        if self.ledger.level > OFF:
            what |= {"at": self.ledger.shown(self._at), "sums": sums(record.files)}
        if self._sampled:  # which states of the program were caught is chance
            what["snapshot"] = True
        self._note("saved", set=record.number, step=record.step, **what)

    def failed(self, taken: Taken, error: Exception, seconds: float) -> None:
        self._note("failed", set=taken.number, step=taken.step, error=str(error), seconds=round(seconds, 6))

    def restored(self, outcome: Outcome) -> None:
        point = outcome.point
        if point is None:
            self._note("start", aside=outcome.aside)
        elif point.finished:
            self._note("restored", set=point.number, step=point.step, finished=True)
        else:
            self.ledger.begin()
            what = {"taken": point.time, "passed_over": outcome.passed, "aside": outcome.aside}
            self._note("restored", set=point.number, step=point.step, **what)

    def adopted(self, number: int, record: Record | None) -> None:
        self._note("adopted", set=number, step=record and record.step)

    def stopping(self, why: str) -> None:
        """The program was told to stop."""
        self._why = why
        self._note("stopping", why=why)

    def finished(self, number: int, step: int | None) -> None:
        self._note("finished", set=number, step=step)

    def closing(self, error: BaseException | None, stopped: str) -> None:
        """The life ends without a result, but not by a kill: that leaves no such line."""
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        why = self._why or stopped
        if why and (error is None or isinstance(error, SystemExit)):
            self._note("stopped", why=why)
        else:
            self._note("ended", **({"error": f"{type(error).__name__}: {error}"} if error else {}))

    def closed(self) -> None:
        self.ledger.end()

    def _note(self, event: str, **what: Any) -> None:
        if not self._home.active and (self.ledger.level < MODIFY or event not in ("restored", "start")):
            return  # else its watched values belong to this life
        if not self._home.root.is_ours():
            return  # the log there is another run's
        if self._began:
            what["began"], self._began = self._began, 0.0
        blocked = []
        with contextlib.suppress(IndexError):  # two threads may be here, if a close was interrupted
            while self._blocked:
                blocked.append(self._blocked.popleft())
        if blocked:
            what["blocked"] = blocked
        if "sums" in what:  # last, where who compares them need not take the line apart
            what["sums"] = what.pop("sums")
        self.ledger.note(event, **what)
