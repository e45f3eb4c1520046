"""The default engine: processes of this machine, one vertex at a time in each.

Not `concurrent.futures.ProcessPoolExecutor`: there the death of one worker breaks the pool, and ends the vertices of
all the others. Here a worker that dies costs its own vertex alone, and another one is started. Workers are begun as
they are needed, by a forkserver and not by `fork`: the driver may have threads. If that server is killed, its workers
go on, and a new one starts those to come.
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

from safepoint.errors import SaveError, TaskError, UsageError
from safepoint.tasks import mainfile
from safepoint.tasks.jobs import Ended, Failure, Job
from safepoint.tasks.worker import LEAVE, LEFT, Setting, serve

LEAVE_S, TERM_S = 30.0, 2.0  # until a worker that is to leave is ended, and until SIGTERM becomes SIGKILL
STARTS = 6  # attempts to start a worker
UNKNOWN_END = 255  # so multiprocessing calls the end of a process whose forkserver was killed
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


class _Worker:
    """One process, and the vertex that it has."""

    def __init__(self, setting: Setting) -> None:
        self.connection, self.process = _started(setting)
        self.job: Job | None = None
        self.since = 0.0
        self.answered = False  # whether it has ever been at work
        self.orphan = False  # the process that had started it has died, so it cannot tell how this one ends

    def watched(self) -> list[Any]:
        """What is ready when it has something to say, or has died."""
        return [self.connection] if self.orphan else [self.connection, self.process.sentinel]

    def is_orphan(self) -> bool:
        """Whether it only seems to have died, as the process that had started it did. Its connection is open still."""
        if not self.orphan and self.process.exitcode == UNKNOWN_END and not self.connection.poll():
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, 0)
                self.orphan = True
        return self.orphan

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
        code = None if self.orphan else self.process.exitcode
        end = "" if code is None else f", {_signal(-code)}" if code < 0 else f", exit {code}"
        return f"pid {self.process.pid}{end}"

    def end(self) -> None:
        """On return it is gone."""
        for stop in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                stop()
                self.process.join(TERM_S)
        if self.is_orphan():
            self._end_orphan()
        self.connection.close()

    def _end_orphan(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(EOFError, OSError):  # the end of the connection is that of the process
                deadline = time.monotonic() + TERM_S
                os.kill(self.process.pid, number)
                while self.connection.poll(max(0.0, deadline - time.monotonic())):
                    self.connection.recv_bytes()
                continue
            return


def _started(setting: Setting) -> tuple[Any, Any]:
    """Connection and process of a new worker. `TaskError` if what starts workers dies again and again."""
    import multiprocessing

    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    for n in range(STARTS):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, setting), name="safepoint-worker")  # type: ignore[attr-defined]
        try:
            with mainfile.hidden():
                process.start()
            return ours, process
        except (EOFError, ConnectionError) as error:  # the forkserver was killed: multiprocessing begins a new one
            ours.close()
            why = f"{type(error).__name__}: {error}"
            time.sleep(0.01 * 2**n)
        finally:
            theirs.close()
    raise TaskError(f"the process that starts workers died {STARTS} times ({why}). What finished stays: start it again")


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

            of = {each: worker for worker in self._workers for each in worker.watched()}
            if not of:
                time.sleep(patience_s)
            ready = connection.wait(list(of), patience_s) if of else []
            for worker in dict.fromkeys(of[each] for each in ready):
                self._hear(worker)
        found, self._given_back = self._given_back, []
        return found

    def _hear(self, worker: _Worker) -> None:
        ended = worker.answer() if worker.connection.poll() else None
        if isinstance(ended, Ended):
            self._given_back.append(ended)
            worker.job, worker.answered = None, True
            return
        if ended is None and (worker.is_orphan() or worker.process.is_alive()) and not worker.connection.poll():
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
