"""The set in flight: one thread that stores and commits it, and how its error is waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet  # another one than Python's own before 3.11
from queue import SimpleQueue

from safepoint.disk.signals import look
from safepoint.record import Record, Taken

logger = logging.getLogger("safepoint")
SIGNAL_POLL_S = 0.1  # between two looks whether a signal has come, while a set is waited for
Job = Callable[[Taken], Record]


class Background:
    """At most one set in flight, and its error, which is told once."""

    def __init__(self) -> None:
        self.flight: Future[Record] | None = None
        self.thread: Saver | None = None
        self._failed: Future[Record] | None = None  # its error is being raised; kept in case a handler raises instead

    @property
    def saving(self) -> bool:
        return self.flight is not None and not self.flight.done()

    def begin(self) -> bool:
        """Whether there is a thread: known before a file has moved."""
        if self.thread is None:
            try:
                self.thread = Saver()
            except RuntimeError:  # none to be had
                return False
        return True

    def submit(self, job: Job, taken: Taken) -> None:
        """`begin` was true."""
        assert self.thread
        self.flight = self.thread.submit(job, taken)

    def collect(self) -> Record | None:
        """Wait for the set in flight: its record; None if there is none. Its error is raised here, once."""
        flight = self.flight
        if flight is None:
            return None
        error = ended(flight)
        if self.flight is not flight:  # a handler that ran meanwhile has called a verb
            return None
        self.flight = None
        if error:
            self._failed = flight
            raise error
        return flight.result()

    def told(self, error: BaseException, *, ours: bool) -> None:
        """This error ends a verb: that of the set in flight is told with it if it is that, or one of `ours`."""
        if self._failed and (ours or error is self._failed.exception()):
            self._failed = None

    def remember(self) -> None:
        """The error of the set that was in flight is still to be told, if a handler raised in its place."""
        if self._failed:
            self.flight, self._failed = self._failed, None

    def stop(self) -> None:
        """Let the thread end after what it does."""
        if self.thread is not None:
            self.thread.stop()


class Saver:
    """One thread for the life of the session; an executor costs `hide` twice as much."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Record], Job, Taken] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="safepoint-saver", daemon=True).start()

    def submit(self, job: Job, taken: Taken) -> Future[Record]:
        future: Future[Record] = Future()
        self._jobs.put((future, job, taken))
        return future

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            future, job, taken = work
            try:
                future.set_result(job(taken))
            except BaseException as error:
                future.set_exception(error)
            del work, future, job, taken  # a waiting thread must not keep the session alive


def ended(flight: Future[Record]) -> BaseException | None:
    """Wait for this set; its error, if it failed. Ctrl-C ends the waiting, not the save."""
    while True:
        try:
            return flight.exception(SIGNAL_POLL_S)
        except NotYet:
            look()


def log_failure(flight: Future[Record]) -> None:
    """Of a set whose error nobody will ask for."""
    if error := flight.exception():
        logger.error("%s", error)
