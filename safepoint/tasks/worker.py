"""A process that runs vertices for a driver, and what it shares with workers of executors: one writer for each store.

A worker of our own pool has nothing that anybody else needs: what it has handed to the store is safe from its death. It
ends when its driver does, since the next driver would run the same vertices beside it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safepoint.errors import SaveError, UsageError
from safepoint.tasks import functions, mainfile
from safepoint.tasks.jobs import Ended, Failure, Job

if TYPE_CHECKING:
    from safepoint.tasks.saved import Store

LEAVE, LEFT = b"", b"left"  # the last message to a worker, and its answer if all that it wrote is durable
_writers: dict[tuple[int, str], tuple[Store, Any]] = {}  # of this process, by its id and the directory
_lock = threading.Lock()


def writer_of(directory: str) -> tuple[Store, Any]:
    """The store in this directory, and the writer of this process for it: all its threads share one."""
    name = os.getpid(), directory
    with _lock:
        if name not in _writers:
            from safepoint.tasks.saved import Store

            if not _writers:
                _at_exit()
            store = Store(directory)
            _writers[name] = store, store.writer(worker=f"pid {os.getpid()}")
        return _writers[name]


def _at_exit() -> None:
    """A worker that ends by itself flushes first; one of multiprocessing does not run what `atexit` knows."""
    from multiprocessing import util

    util.Finalize(None, _close_all, exitpriority=10)


def _close_all() -> None:
    with contextlib.suppress(OSError, SaveError):  # a worker that ends has nobody to tell; the driver flushes again
        close_writers()


def close_writers(directory: str | None = None) -> None:
    """On return all that this process has put into this store, by default into all, survives a power cut."""
    with _lock:
        mine = [name for name in _writers if name[0] == os.getpid() and directory in (None, name[1])]
        found = [_writers.pop(name)[1] for name in mine]
    for writer in found:
        writer.close()


def run(vertex: str, key: str, attempt: int, packed: bytes, main: mainfile.Main | None) -> Ended:
    """One attempt, from its pickled job. Whatever happens to it comes back as data. `main`: where `__main__` comes
    from, if the job needs that."""
    worker, host = f"pid {os.getpid()}", socket.gethostname()
    try:
        if main is not None:
            mainfile.load(main)
        job = pickle.loads(packed)
        assert isinstance(job, Job)
        check_source(job)
        store, writer = writer_of(job.directory)
        from safepoint.tasks import body
    except BaseException as error:
        text = f"not begun: {error}"
        if main is not None and isinstance(error, AttributeError):
            text += f"; a worker runs {main.path} up to its first call of run: define it above that, or in a module"
        return Ended(
            vertex, key, attempt, failure=Failure(type(error).__name__, text, "", ""), host=host, worker=worker
        )
    return body.run(job, store, writer)


def check_source(job: Job) -> None:
    """`UsageError` if this process has loaded another function than the program has, as its file was changed while the
    graph runs, or is another one here: its result would be kept as one of the program's."""
    for part, function in (("function", job.function), ("head", job.head)):
        if function is not None and part in job.parts and functions.digest(function) != job.parts[part]:
            what = f"{functions.where(function) or functions.path(function)} was changed while the graph runs"
            raise UsageError(f"{what}, or is another file in this process: start the program again, and its workers")


# A process of our own pool.


@dataclass(frozen=True)
class Setting:
    """What a new worker takes over from its driver."""

    environment: Mapping[str, str]
    directory: str  # the working directory, in which each body begins
    main: mainfile.Main


def serve(connection: Any, setting: Setting) -> None:
    """Run what comes until `LEAVE` comes, or the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the driver decides
    _end_with_driver()
    if os.environ.get(mainfile.SAFE_PATH) == mainfile.OURS:
        del os.environ[mainfile.SAFE_PATH]
    os.environ.update(setting.environment)
    sys.path += [way for way in setting.main.ways if way not in sys.path]
    while message := _received(connection):
        vertex, key, attempt, packed, needs_main = pickle.loads(message)
        with contextlib.suppress(OSError):
            os.chdir(setting.directory)  # a body before this one may have left it
        ended = run(vertex, key, attempt, packed, setting.main if needs_main else None)
        try:
            connection.send_bytes(pickle.dumps(ended))
        except OSError:  # the driver is gone
            break
    try:
        close_writers()
        answer = LEFT
    except (OSError, SaveError) as error:
        answer = f"{error}".encode("utf-8", "replace")
    with contextlib.suppress(OSError):
        connection.send_bytes(answer)


def _received(connection: Any) -> bytes:
    try:
        message = connection.recv_bytes()
        assert isinstance(message, bytes)
        return message
    except (EOFError, OSError):
        return LEAVE


def _end_with_driver() -> None:
    from multiprocessing import connection, parent_process

    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def wait() -> None:
        connection.wait([sentinel])
        _close_all()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="safepoint-driver").start()
