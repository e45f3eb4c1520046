"""One thread that does one job after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet  # another one than Python's own before 3.11
from queue import Empty, SimpleQueue
from typing import Any

from safepoint.disk.signals import look

SIGNAL_POLL_S = 0.1  # between two looks whether a signal has come, while a job is waited for
Job = Callable[[], Any]


class Worker:
    """An executor of one thread costs `hide` twice as much, and knows no rest. Raises `RuntimeError` if there is no
    thread to be had."""

    resting = False  # it has ended a job, and will begin no other by itself

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Job, Job, Callable[[float], float]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(
        self, job: Job, then: Job = lambda: None, rest_after: Callable[[float], float] = lambda _: 0
    ) -> Future[Any]:
        """After the job, which took so many seconds, the thread rests for `rest_after` these, and then calls `then`.
        Another job ends the rest, and takes the place of `then`."""
        future: Future[Any] = Future()
        self._jobs.put((future, job, then, rest_after))
        return future

    def stop(self) -> None:
        """The thread ends after what it has to do."""
        self._jobs.put(None)

    def _run(self) -> None:
        rest: float | None = None
        then: Job | None = None  # a waiting thread must not keep the session alive
        while True:
            try:
                work = self._jobs.get(timeout=rest)
            except Empty:
                self.resting, rest = False, None
                if then:
                    then()
                work = then = None
                continue
            if work is None:
                return
            future, job, then, rest_after = work
            rest = self._do(future, job, rest_after)
            del work, future, job

    def _do(self, future: Future[Any], job: Job, rest_after: Callable[[float], float]) -> float:
        """How long to rest then."""
        begin, result, failure = time.perf_counter(), None, None
        try:
            result = job()
        except BaseException as error:
            failure = error
        rest = rest_after(time.perf_counter() - begin)
        self.resting = rest > 0  # before anybody can see that the job has ended
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
        return rest


def ended(job: Future[Any]) -> BaseException | None:
    """Wait for this job; its error, if it failed. Ctrl-C ends the waiting, not the job."""
    while True:
        try:
            return job.exception(SIGNAL_POLL_S)
        except NotYet:
            look()
