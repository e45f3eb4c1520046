"""One rank: it coordinates nobody, and runs the vertices itself, one after the other."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any

from safepoint.tasks.jobs import Ended, Job
from safepoint.tasks.mpi.worker import attempt


class Alone:
    """An `Engine` in the process of the driver."""

    name = "mpi"

    def __init__(self, store: Any) -> None:
        self._store, self._writer = store, store.writer(worker="rank 0")
        self._place = os.getcwd()
        self._next: list[Job] = []

    def workers(self) -> int:
        return 1

    def room(self) -> int:
        return 1 - len(self._next)

    def start(self, job: Job) -> None:
        self._next.append(job)

    def ended(self, patience_s: float) -> list[Ended]:
        """It runs a vertex here: nothing else goes on meanwhile."""
        if not self._next:
            return []
        job = self._next.pop()
        with contextlib.suppress(OSError):
            os.chdir(self._place)  # a body before this one may have left it
        return [replace(attempt(job, self._store, self._writer), worker="rank 0")]

    def stop(self) -> None:
        pass  # what was given is at work at once

    def close(self, *, abandon: bool = False) -> None:
        self._writer.close()
