"""The engine on any `concurrent.futures.Executor`: of threads, of processes, of mpi4py, Parsl, executorlib.

The executor is the caller's: it is neither made anew nor shut down here. Its workers read inputs from the store and
write results into it, so all of them must see its directory: each compares a token in a file before its first vertex.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from safepoint.disk import Disk
from safepoint.disk.files import read, write
from safepoint.errors import SaveError, TaskError, UsageError
from safepoint.tasks import mainfile, worker
from safepoint.tasks.jobs import Ended, Failure, Job

BLIND, UNFLUSHED = "NoDirectory", "Unflushed"  # kinds of failures that end the run
UNTOLD = 64  # jobs that are given to an executor that does not say how many workers it has
_seen: set[str] = set()  # tokens that this process has compared


class Token:
    """A file with a text that only this run knows."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.text = f"{socket.gethostname()} {os.getpid()} {os.urandom(8).hex()}"
        self.path = os.path.join(directory, f"stage-token-{os.getpid()}")
        self._disk = disk
        self.remove()
        write(disk, self.path, self.text.encode())

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self.path)


def work(
    vertex: str, key: str, attempt: int, packed: bytes, main: mainfile.Main | None, path: str, text: str, host: str
) -> Ended:
    """What a worker of an executor does. One of another host flushes at once: nobody here could do it for it."""
    here = socket.gethostname()
    if text not in _seen:
        try:
            seen = read(Disk(), path).decode("utf-8", "replace")
        except OSError as error:
            seen = str(error)
        if seen != text:
            failure = Failure(BLIND, f"pid {os.getpid()} of {here} finds there: {seen}", "", "")
            return Ended(vertex, key, attempt, failure=failure, host=here)
        _seen.add(text)
    ended = worker.run(vertex, key, attempt, packed, main)
    if here != host and ended.record is not None:
        try:
            worker.writer_of(os.path.dirname(path))[1].flush()
        except (OSError, SaveError) as error:
            return Ended(vertex, key, attempt, failure=Failure(UNFLUSHED, str(error), "", ""), host=here)
    return ended


class Futures:
    """An `Engine`."""

    name = "futures"

    def __init__(self, executor: Executor, directory: str, disk: Disk | None = None) -> None:
        self._executor, self._directory = executor, directory
        self._token = Token(directory, disk or Disk())
        self._done: queue.SimpleQueue[Future[Any] | Ended] = queue.SimpleQueue()
        self._jobs: dict[Future[Any], Job] = {}
        self._main = mainfile.of_this_process()
        self._host = socket.gethostname()
        self._over = False

    def workers(self) -> int:
        """0: the executor does not say."""
        for name in ("_max_workers", "num_workers"):
            count = getattr(self._executor, name, None)
            if isinstance(count, int) and count > 0:
                return count
        return 0

    def room(self) -> int:
        """Twice as many as there are workers: no worker waits, and nearly none is to be taken back at a stop."""
        return 0 if self._over else (2 * self.workers() or UNTOLD) - len(self._jobs)

    def start(self, job: Job) -> None:
        try:
            packed = pickle.dumps(job, 5)
        except Exception as error:
            failure = Failure(type(error).__name__, f"its arguments cannot be sent to a worker: {error}", "", "")
            self._done.put(Ended(job.vertex, job.key, job.attempt, failure=failure, host=self._host))
            return
        main = self._main if b"__main__" in packed else None
        try:
            future = self._executor.submit(
                work, job.vertex, job.key, job.attempt, packed, main, self._token.path, self._token.text, self._host
            )
        except RuntimeError as error:  # broken, or shut down
            raise _lost(error) from error
        self._jobs[future] = job
        future.add_done_callback(self._done.put)

    def ended(self, patience_s: float) -> list[Ended]:
        found: list[Ended] = []
        try:
            while True:
                done = self._done.get(timeout=0 if found else max(patience_s, 0.0))
                found.append(done if isinstance(done, Ended) else self._ended(done))
        except queue.Empty:
            return found

    def _ended(self, future: Future[Any]) -> Ended:
        job = self._jobs.pop(future)
        try:
            ended = future.result()
        except BrokenExecutor as error:
            raise _lost(error) from error
        except CancelledError:
            return Ended(job.vertex, job.key, job.attempt)
        except Exception as error:  # of the executor, on the way there or back
            failure = Failure(type(error).__name__, f"{error}", "", "")
            return Ended(job.vertex, job.key, job.attempt, failure=failure)
        assert isinstance(ended, Ended)
        if ended.failure is not None and ended.failure.kind == BLIND:
            raise UsageError(
                f"a worker of this executor does not see {self._directory}, where results are kept: "
                f"{ended.failure.message}. Run it in a directory that all workers share"
            )
        if ended.failure is not None and ended.failure.kind == UNFLUSHED:
            raise SaveError(f"results of {ended.host} may not survive a power cut: {ended.failure.message}")
        return ended

    def stop(self) -> None:
        self._over = True
        for future in self._jobs:
            future.cancel()

    def close(self, *, abandon: bool = False) -> None:
        """What was given and not begun is taken back. Of what is at work nothing is waited for: with `abandon` its
        results come to the store, or not, when they are done."""
        self.stop()
        try:
            worker.close_writers(self._directory)  # of the threads of this process
        finally:
            self._token.remove()


def _lost(error: BaseException) -> TaskError:
    why = str(error) or type(error).__name__
    return TaskError(f"the executor takes no more work: {why}. What had finished stays: go on with a new executor")
