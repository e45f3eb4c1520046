"""The listener that writes the log: one line for what people, reports and `safepoint compare` want to know later."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safepoint.ledger.log import MODIFY, OFF, Ledger, sums
from safepoint.listener import Listener, Outcome
from safepoint.opening import Opening
from safepoint.record import Item, Record, Taken
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
        # Of each set on its way: where the program called hide, and why it was time to.
        self._asked: dict[int, tuple[tuple[str, int], Mapping[str, Any]]] = {}
        # (set, seconds) of each hide, for the next line of the log: a write of its own would double what hide costs.
        # Bounded, for a program that goes on and on although no set can be taken.
        self._blocked: deque[tuple[int, float]] = deque(maxlen=64)
        self._given_up: deque[float] = deque()  # since the last line: of each set that gave way, the time of its hide
        self._pruned: deque[int] = deque()  # sets that were removed since the last line
        self._all = [0, 0]  # how many sets were hidden in this life, and how many stored
        self._why = ""  # why the program is about to stop

    @property
    def noted(self) -> bool:
        """Whether this life has a line in the log."""
        return not self._began

    def hiding(self, number: int) -> None:
        self._asked[number] = self.ledger.call_site(), self._reasons()

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        if self._home.active:
            self._blocked.append((number, round(end - begin, 7)))
            self._all[0] += taken
        if not taken or not self._home.active:
            self._asked.pop(number, None)

    def superseded(self, taken: Taken) -> None:
        self._asked.pop(taken.number, None)
        seconds = 0.0
        for row in [row for row in list(self._blocked) if row[0] == taken.number]:
            with contextlib.suppress(ValueError):  # the saver thread has just written it down
                self._blocked.remove(row)
                seconds += row[1]
        self._given_up.append(seconds)

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        at, due = self._asked.pop(record.number, (("", 0), {}))
        self._all[1] += 1
        what: dict[str, Any] = {**sizes(record.files), "seconds": round(seconds, 6), **due}
        if waited:
            what["waited"] = True
        if self.ledger.level > OFF:
            what |= {"at": self.ledger.shown(at), "sums": sums(record.files)}
        if self._sampled:  # which states of the program were caught is chance
            what["snapshot"] = True
        self._note("saved", set=record.number, step=record.step, **what)

    def pruned(self, numbers: Sequence[int]) -> None:
        self._pruned.extend(numbers)

    def failed(self, taken: Taken, error: Exception, seconds: float) -> None:
        self._asked.pop(taken.number, None)
        self._note("failed", set=taken.number, step=taken.step, error=str(error), seconds=round(seconds, 6))

    def restored(self, outcome: Outcome) -> None:
        point = outcome.point
        if point is None:
            self._note("start", aside=outcome.aside, there=[])
        elif point.finished:
            self._note("restored", set=point.number, step=point.step, finished=True)
        else:
            self.ledger.begin()
            what = {"taken": point.time, "passed_over": outcome.passed, "aside": outcome.aside, "there": outcome.left}
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
        if blocked := _taken_from(self._blocked):
            what["blocked"] = blocked
        if given_up := _taken_from(self._given_up):
            what["superseded"] = [len(given_up), round(sum(given_up), 7), *self._all]
        if pruned := _taken_from(self._pruned):
            what["pruned"] = pruned
        if "sums" in what:  # last, where who compares them need not take the line apart
            what["sums"] = what.pop("sums")
        self.ledger.note(event, **what)


def _taken_from(some: deque[Any]) -> list[Any]:
    """All of it; another thread may add to it, or be here, if a close was interrupted."""
    found = []
    with contextlib.suppress(IndexError):
        while some:
            found.append(some.popleft())
    return found
