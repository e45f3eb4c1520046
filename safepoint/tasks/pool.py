"""The default engine: processes of this machine, one vertex at a time in each.

Not `concurrent.futures.ProcessPoolExecutor`: there the death of one worker breaks the pool, and ends the vertices of
all the others. Here a worker that dies costs its own vertex alone, and another one is started. Workers are begun as
they are needed, and not by `fork`: the driver may have threads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from safepoint.errors import SaveError, UsageError
from safepoint.tasks import mainfile
from safepoint.tasks.jobs import Ended, Failure, Job
from safepoint.tasks.worker import LEAVE, LEFT, Setting, serve

LEAVE_S, TERM_S = 30.0, 2.0  # until a worker that is to leave is ended, and until SIGTERM becomes SIGKILL
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


class _Worker:
    """One process, and the vertex that it has."""

    def __init__(self, setting: Setting) -> None:
        import multiprocessing

        method = "spawn" if sys.platform == "win32" else "forkserver"
        context = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, setting), name="safepoint-worker")  # type: ignore[attr-defined]
        with mainfile.hidden():
            self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.since = 0.0
        self.answered = False  # whether it has ever been at work

    def give(self, job: Job, packed: bytes, needs_main: bool) -> None:
        self.job, self.since = job, time.time()
        message = pickle.dumps((job.vertex, job.key, job.attempt, packed, needs_main))
        try:
            self.connection.send_bytes(message)
        except OSError:  # it died while it had nothing: `ended` finds that, and gives the job back
            self.since = 0.0

    def answer(self) -> Any:
        """What it sends; None: it has died."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def name(self) -> str:
        """With how it ended, if it did."""
        self.process.join(TERM_S)
        code = self.process.exitcode
        end = "" if code is None else f", {_signal(-code)}" if code < 0 else f", exit {code}"
        return f"pid {self.process.pid}{end}"

    def end(self) -> None:
        """On return it is gone."""
        for stop in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                stop()
                self.process.join(TERM_S)
        self.connection.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Pool:
    """An `Engine`. `workers`: how many processes; by default as many as there are processors."""

    name = "pool"

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"a pool has 1 worker or more, not {workers}")
        self._most = workers or processors()
        self._workers: list[_Worker] = []
        self._given_back: list[Ended] = []
        self._over = False
        self.given_to = ""  # the worker that got the last job, for the log
        self._setting = Setting(self._environment(), os.getcwd(), mainfile.of_this_process())

    def _environment(self) -> Mapping[str, str]:
        """Of the driver. Libraries of linear algebra start a thread for each processor, in each worker, unless told."""
        share = str(max(1, processors() // self._most))
        return {**dict.fromkeys(THREADS, share), **os.environ}

    def workers(self) -> int:
        return self._most

    def room(self) -> int:
        return 0 if self._over else self._most - sum(worker.job is not None for worker in self._workers)

    def start(self, job: Job) -> None:
        try:
            packed = pickle.dumps(job, 5)
        except Exception as error:
            text = f"its arguments cannot be sent to a worker: {error}"
            self._give_back(job, failure=Failure(type(error).__name__, text, "", ""))
            return
        worker = next((each for each in self._workers if each.job is None), None)
        if worker is None:
            worker = _Worker(self._setting)
            self._workers.append(worker)
        self.given_to = f"pid {worker.process.pid}"
        worker.give(job, packed, needs_main=b"__main__" in packed)

    def _give_back(self, job: Job, **how: Any) -> None:
        self._given_back.append(Ended(job.vertex, job.key, job.attempt, host=socket.gethostname(), **how))

    def ended(self, patience_s: float) -> list[Ended]:
        if not self._given_back:
            from multiprocessing import connection

            of = {worker.connection: worker for worker in self._workers}
            of |= {worker.process.sentinel: worker for worker in self._workers}
            if not of:
                time.sleep(patience_s)
            ready = connection.wait(list(of), patience_s) if of else []
            for worker in dict.fromkeys(of[each] for each in ready):  # type: ignore[index]
                self._hear(worker)
        found, self._given_back = self._given_back, []
        return found

    def _hear(self, worker: _Worker) -> None:
        ended = worker.answer() if worker.connection.poll() else None
        if isinstance(ended, Ended):
            self._given_back.append(ended)
            worker.job, worker.answered = None, True
            return
        if worker.process.is_alive() and ended is None and not worker.connection.poll():
            return  # the sentinel of one that was heard already
        self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """It died. Its vertex has died with it, unless it never got it."""
        self._workers.remove(worker)
        if worker.job is not None and (worker.since or not worker.answered):  # one that never begins is no accident
            self._give_back(worker.job, died=worker.name(), worker=worker.name(), began=worker.since)
        elif worker.job is not None:
            self._give_back(worker.job)
        worker.end()

    def stop(self) -> None:
        self._over = True  # nothing is queued: each worker has one vertex at most, and is at work on it

    def close(self, *, abandon: bool = False) -> None:
        """On return no process of this pool is left. `SaveError` if what one has saved may not survive a power cut."""
        workers, self._workers, self._over = self._workers, [], True
        idle = [worker for worker in workers if worker.job is None]
        wrong = []
        try:
            for worker in idle:
                _ask_to_leave(worker)
            deadline = time.monotonic() + (TERM_S if abandon else LEAVE_S)
            for worker in idle:
                if (answer := _left(worker, deadline)) not in (LEFT, b""):
                    wrong.append(f"{worker.name()}: {answer.decode('utf-8', 'replace')}")
        finally:
            for worker in workers:
                if worker.job is not None:
                    worker.process.terminate()
            for worker in workers:
                worker.end()
        if wrong:
            raise SaveError(
                f"results may not survive a power cut: {'; '.join(wrong)}; they survive the end of this run"
            )


def _ask_to_leave(worker: _Worker) -> None:
    with contextlib.suppress(OSError):  # it died when all was done: what it saved is the store's
        worker.connection.send_bytes(LEAVE)


def _left(worker: _Worker, deadline: float) -> bytes:
    """Its last word; b"" if it died without one."""
    try:
        if not worker.connection.poll(max(0.0, deadline - time.monotonic())):
            return b"no answer"
        answer = worker.connection.recv_bytes()
        worker.process.join(max(0.0, min(TERM_S, deadline - time.monotonic())))
        return bytes(answer)
    except (EOFError, OSError):
        return b""
