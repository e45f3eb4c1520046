"""Futures of vertices that have ended: they are released many at a time.

Each value that Dask lets go of costs its worker and the scheduler a message of its own, as much as a tenth of a small
vertex; of many values at once they are one message. So small values stay a moment longer than they are needed.

(1) A result that is not in the store is released at once: when its worker dies, Dask makes again what a future wants.
    One that is in the store is only looked up then.
(2) What stays takes at most `MOST` bytes of all workers together.
"""

from __future__ import annotations

import time
from typing import Any

from safepoint.tasks.jobs import Ended

STAY_S = 2.0
MOST = 16 << 20


class Gone:
    def __init__(self, loop: Any) -> None:
        """`loop`: that of the client."""
        self._loop = loop
        self._futures: list[Any] = []
        self._nbytes, self._since = 0, 0.0

    def add(self, future: Any, ended: Ended) -> None:
        """One that nobody else holds."""
        if not self._futures:
            self._since = time.monotonic()
        self._futures.append(future)
        record = ended.record
        self._nbytes += record.nbytes if record is not None and record.kept else MOST

    def look(self) -> None:
        """Is it time?"""
        if self._nbytes >= MOST or (self._futures and time.monotonic() >= self._since + STAY_S):
            self.release()

    def release(self) -> None:
        # Each takes itself back by a word to the loop: said in the loop's own thread, that does not wake it each time.
        self._loop.add_callback(self._futures.clear)
        self._futures, self._nbytes = [], 0
