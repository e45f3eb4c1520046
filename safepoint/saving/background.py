"""The sets on their way to the disk: one in flight, and one that waits for the saver thread.

(1) A set that `hide` takes while another is in flight waits. A newer one takes its place, and it is given up: but only
    when the newer one was taken on all ranks, since until then a kill must give the older one back.
(2) Alone, the saver stores what waits as soon as it is free. With other ranks nobody begins by itself: all would have
    to begin with the same set, or there would be none that all have. So a set is stored if the savers of all ranks were
    idle when it was taken; and else by the verbs that promise to store all that was hidden.
(3) After each set the saver rests, unless somebody waits: it shares the interpreter with the program, and a set that
    is overtaken meanwhile need not be stored at all.
(4) The error of a set is told once, by the next verb.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet  # another one than Python's own before 3.11

from safepoint.disk.signals import interrupted
from safepoint.disk.worker import SIGNAL_POLL_S, Worker, ended
from safepoint.record import Record, Taken

logger = logging.getLogger("safepoint")
SWEEPS, LATE_S = 4, 0.02  # so many sets may wait to be removed, for so long
REST_TIMES, LATEST_S = 20, 0.5  # rule (3): so many times what it took, but not beyond this from its beginning
Job = Callable[[], Record | None]


class Background:
    """`alone`: rule (2). `every`: no set is given up, as the next is taken only when the one before is stored."""

    def __init__(self, *, alone: bool, every: bool = False) -> None:
        self.every = every
        self.flight: Future[Record | None] | None = None
        self.waiting: tuple[Job, Taken] | None = None
        self.thread: Worker | None = None
        self._alone, self._lock = alone, threading.Lock()  # the lock is for `flight` and `waiting`
        self._ended: deque[Future[Record | None]] = deque()  # before the one in flight, and not yet told of
        self._failed: Future[Record | None] | None = None  # its error is being raised; kept in case a handler raises
        self._left = False  # nobody will ask any more
        self._sweeper: Worker | None = None
        self._sweeps: deque[tuple[float, Future[Record | None]]] = deque()

    @property
    def saving(self) -> bool:
        return self.flight is not None and not self.flight.done()

    @property
    def busy(self) -> bool:
        """Whether a set that is taken now has to wait: the saver stores another, or rests."""
        return self.saving or (self.thread is not None and self.thread.resting)

    def begin(self) -> bool:
        """Whether there is a thread: known before a file has moved."""
        if self.thread is None:
            try:
                self.thread = Worker("safepoint-saver")
            except RuntimeError:  # none to be had
                return False
        return True

    def hand_over(self, job: Job, taken: Taken, *, busy: bool) -> Taken | None:
        """Store this set: now, unless the saver is busy, or, with other ranks, one of theirs (`busy`). The set whose
        place it takes. `begin` was true."""
        with self._lock:
            before, self.waiting = self.waiting, (job, taken)
            if not (self.busy if self._alone else busy):
                self._store_waiting()
        return before[1] if before else None

    def _store_waiting(self) -> None:
        """Under the lock, and the saver is idle."""
        assert self.thread and self.waiting
        (job, _), self.waiting = self.waiting, None
        if self.flight is not None:
            self._ended.append(self.flight)
        self.flight = self.thread.submit(job, self._go_on, (lambda _: 0) if self.every else rest_after)
        if self._left:
            self.flight.add_done_callback(log_failure)

    def _go_on(self) -> None:
        """Rule (2), in the saver thread, when it has rested."""
        with self._lock:
            if self._alone and self.waiting and not self.saving:
                self._store_waiting()

    def collect(self) -> None:
        """Raise the error of a set that has ended, once."""
        with self._lock:
            if self.flight is not None and self.flight.done():
                self._ended.append(self.flight)
                self.flight = None
        while self._ended:
            ended = self._ended.popleft()
            if error := ended.exception():
                self._failed = ended
                raise error

    def wait(self) -> None:
        """Until no set is in flight; one that waits goes on waiting, with other ranks. Raises as `collect`."""
        while (flight := self.flight) is not None:
            ended(flight)
            self.collect()

    def drain(self) -> None:
        """Until all was stored that was hidden, or has failed. Raises as `collect`."""
        while True:
            if (flight := self.flight) is not None:
                ended(flight)
            with self._lock:
                if self.saving:
                    continue
                if self.waiting is None:
                    break
                self._store_waiting()
        while self._sweeps:
            ended(self._sweeps[0][1])
            self._sweeps.popleft()
        self.collect()

    def hold(self) -> tuple[Job, Taken] | None:
        """The set that waits; nobody will begin with it. `go_on_with` gives it back."""
        with self._lock:
            before, self.waiting = self.waiting, None
        return before

    def go_on_with(self, held: tuple[Job, Taken] | None) -> None:
        """It waits again, as no newer one has come to be."""
        with self._lock:
            self.waiting = held
            if self._alone and held and not self.saving:
                self._store_waiting()

    def sweep(self, job: Callable[[], object]) -> None:
        """Let a thread of its own do this, or, if none is to be had, do it. Waits for what it had to do before, as what
        was given up must not gather; but that thread may be late, since others have the cores. Ctrl-C ends the waiting
        alone, as the newer set is taken."""

        def work() -> None:
            job()

        try:
            self._sweeper = self._sweeper or Worker("safepoint-sweeper")
        except RuntimeError:
            work()
        else:
            self._sweeps.append((time.monotonic(), sweep := self._sweeper.submit(work)))
            sweep.add_done_callback(log_failure)
            while len(self._sweeps) > 1 and self._is_behind() and not interrupted():
                with contextlib.suppress(NotYet):
                    self._sweeps[0][1].exception(SIGNAL_POLL_S)
                    self._sweeps.popleft()

    def _is_behind(self) -> bool:
        begun, sweep = self._sweeps[0]
        return sweep.done() or len(self._sweeps) > SWEEPS or time.monotonic() > begun + LATE_S

    def make_room(self) -> None:
        """Before another set is taken. Raises as `collect`."""
        if self.every:
            self.wait()
        self.collect()

    def told(self, error: BaseException, *, ours: bool) -> BaseException | None:
        """This error ends a verb: that of the set in flight is told with it if it is that, or one of `ours`; else a
        handler has raised instead. The one that was told."""
        failed = self._failed
        if failed is None or not (ours or error is failed.exception()):
            return None
        self._failed = None
        return failed.exception()

    def remember(self) -> None:
        """The error of the set that was in flight is still to be told, if a handler raised in its place."""
        if self._failed:
            self._ended.appendleft(self._failed)
            self._failed = None

    def leave(self) -> bool:
        """Nobody will ask any more: the threads end after what they do, and errors are logged. Whether one is at work
        still."""
        with self._lock:
            self._left = True
            for flight in (*self._ended, *([self.flight] if self.flight else [])):
                flight.add_done_callback(log_failure)
            if self.saving or self.waiting or any(not sweep.done() for _, sweep in self._sweeps):
                return True
        for worker in (self.thread, self._sweeper):
            if worker is not None:
                worker.stop()
        return False


def rest_after(seconds: float) -> float:
    return min(REST_TIMES * seconds, max(0.0, LATEST_S - seconds))


def log_failure(flight: Future[Record | None]) -> None:
    """Of a set whose error nobody will ask for."""
    if error := flight.exception():
        logger.error("%s", error)
