"""How workers of Dask tell the driver what has ended: by events, which carry no values.

A message costs worker, scheduler and client a turn each, together as much as a quarter of a small vertex. So what ends
within some milliseconds is told in one. Nothing waits for it but the driver's view: all vertices were given to Dask
before, and a result is in the store before it is told.
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
from typing import Any

from safepoint.tasks.jobs import Ended

TOPIC = "safepoint-tasks"
GATHER_S = 0.1  # from the first to the last that is told in one message; well below `dask.LOOK_S`
SOON_S = 0.01  # the same, of what somebody may wait for: failures, and vertices that no other needs
PASS_ON_S = 0.05  # between two messages of the scheduler to the client


class _Waiting:
    """What is to be told of one run."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, Ended]] = []
        self.due = 0.0  # when, by `time.monotonic`


_waiting: dict[str, _Waiting] = {}  # by run
_lock = threading.Lock()  # of it


def tell(run: str, ticket: str, ended: Ended, *, soon: bool) -> None:
    """The driver hears of it within `GATHER_S`, or `SOON_S`."""
    from distributed import get_worker

    after_s = SOON_S if soon or ended.record is None else GATHER_S
    due = time.monotonic() + after_s
    with _lock:
        mine = _waiting.setdefault(run, _Waiting())
        mine.ended.append((ticket, ended))
        if len(mine.ended) > 1 and mine.due <= due:
            return
        mine.due = due
    worker = get_worker()
    worker.loop.add_callback(lambda: worker.loop.call_later(after_s, _tell_all, worker, run))


def _tell_all(worker: Any, run: str) -> None:
    with _lock:
        mine = _waiting.pop(run, None)
    if mine is not None:
        worker.log_event(TOPIC, [run, pickle.dumps(mine.ended, 5)])


# On the scheduler.


def gather(client: str, few: bool, dask_scheduler: Any = None) -> None:
    """With `few`, what the scheduler has for this client goes in one message each `PASS_ON_S`, not each 2 ms. Else as
    it was. Only words of what has ended wait then: what a client asks for is answered on other ways."""
    comm = dask_scheduler.client_comms.get(client)
    if (interval_s := getattr(comm, "interval", None)) is not None:  # of this version of Dask
        comm.usual_s = getattr(comm, "usual_s", interval_s)  # of the first of several runs of this client
        comm.interval = PASS_ON_S if few else comm.usual_s


# In the driver's process.

heard: dict[str, queue.SimpleQueue[bytes]] = {}  # by run: what its workers told


def hear(event: tuple[float, Any]) -> None:
    run, packed = event[1]
    if run in heard:
        heard[run].put(packed)


def told(packed: bytes) -> list[tuple[str, Ended]]:
    """What one message tells, each with its ticket."""
    found: list[tuple[str, Ended]] = pickle.loads(packed)
    return found
