"""Rank 0: gives vertices to the other ranks, and hears how they end. An `Engine` for the driver.

It knows which rank has made what, and says so with each WORK. It has all that is ready, and a chooser says what a free
rank does next. While it waits it naps: a core that it kept busy would be missing in the work.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Protocol

from safepoint.errors import SafepointError, SaveError
from safepoint.tasks.jobs import Ended, Job
from safepoint.tasks.mpi.messages import FREE, WORK, Naps, Posted, post, take
from safepoint.tasks.mpi.outcome import Packed
from safepoint.tasks.mpi.team import Team
from safepoint.tasks.mpi.worker import Free, Stop, Work

ROOM = 1 << 40  # all that is ready: a chooser must see it
DEAF_S = 5.0  # a rank that is to end, and does not say that it does, is ended by MPI
GRACE_S = 0.3  # the same, of a rank at work, if it was given time before


class Chooser(Protocol):
    """What a free worker does next. Workers are numbered from 0: worker w is rank w + 1."""

    def choose(self, worker: int, ready: Collection[str]) -> str | None: ...

    def made(self, vertex: str, worker: int | None) -> None: ...

    def lost(self, vertex: str) -> None: ...


class First:
    """In the order of the driver."""

    def choose(self, worker: int, ready: Collection[str]) -> str | None:
        return next(iter(ready), None)

    def made(self, vertex: str, worker: int | None) -> None:
        pass

    def lost(self, vertex: str) -> None:
        pass


class Coordinator:
    name = "mpi"

    def __init__(self, team: Team) -> None:
        self._team, self._ranks = team, range(1, team.size)
        self._chooser: Chooser = First()
        self._ready: dict[str, Job] = {}
        self._idle: set[int] = set()
        self._at_work: dict[int, Job] = {}
        self._owners: dict[str, int] = {}
        self._back: list[Ended] = []
        self._sends: list[Posted] = []
        self._naps = Naps()
        self._stopped = self._closing = False
        self.awaited = set(self._ranks)  # ranks that have not said FREE for the last time
        self.wrong = 0  # values that came with another digest from a rank

    def follow(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def workers(self) -> int:
        return len(self._ranks)

    def room(self) -> int:
        return 0 if self._stopped else ROOM

    def start(self, job: Job) -> None:
        self._ready[job.vertex] = job

    def stop(self) -> None:
        self._stopped = True
        self._back += [Ended(job.vertex, job.key, job.attempt) for job in self._ready.values()]
        self._ready.clear()

    def ended(self, patience_s: float) -> list[Ended]:
        deadline = time.monotonic() + patience_s
        while True:
            self._give()
            found, self._back = self._back + self._heard(), []
            if found:
                self._give()  # what is ready already: the driver is not needed for that
                self._naps.wake()
                return found
            if (left := deadline - time.monotonic()) <= 0:
                return []
            self._naps.sleep(left)

    def _give(self) -> None:
        for rank in sorted(self._idle) if self._ready else ():
            name = self._chooser.choose(rank - 1, self._ready)
            if name is None:
                continue
            job = self._ready.pop(name)
            owners = tuple(self._owners.get(reference.key, 0) for reference in job.inputs)
            self._send(Work(job.vertex, job.key, job.inputs, owners, job.attempt), rank)
            self._at_work[rank] = job
            self._idle.discard(rank)

    def _send(self, message: object, rank: int) -> None:
        self._sends = [posted for posted in self._sends if not posted.done()]
        self._sends.append(post(self._team.control, message, rank, WORK))

    def _heard(self) -> list[Ended]:
        found = []
        while (said := take(self._team.control, FREE)) is not None:
            rank, free = said
            assert isinstance(free, Free)
            if free.failure:
                raise SafepointError(f"rank {rank} of {self._team.size} cannot go on: {free.failure}")
            self._idle.add(rank)
            self._at_work.pop(rank, None)
            self.wrong += free.wrong
            if free.ended is not None:
                self._note(free.ended, rank)
                found.append(free.ended)
        return found

    def _note(self, ended: Ended, rank: int) -> None:
        if ended.record is None:
            self._chooser.lost(ended.vertex)
            return
        self._owners[ended.record.key] = rank
        self._chooser.made(ended.vertex, rank - 1)

    # The end.

    def close(self, *, abandon: bool = False) -> None:
        """All ranks have flushed what they saved, and nobody asks another one. With `abandon` a rank that does not say
        so in time stays in `awaited`: `Abort` is for it. `SaveError` if results of a rank may not be durable."""
        for rank in sorted(self.awaited) if not self._closing else ():
            self._send(Stop(), rank)
        self._closing = True
        begun, wrong = time.monotonic(), []
        while self.awaited and not (abandon and self._deaf(time.monotonic() - begun)):
            said = take(self._team.control, FREE)
            if said is None:
                self._naps.sleep()
                continue
            rank, free = said
            self._at_work.pop(rank, None)
            if free.last:
                self.awaited.discard(rank)
                wrong += [f"rank {rank}: {free.failure}"] if free.failure else []
        if wrong and not abandon:
            text = "; ".join(wrong)
            raise SaveError(f"results may not survive a power cut: {text}; they survive the end of this run")

    def _deaf(self, waited_s: float) -> bool:
        """Whether those that are awaited have had their time. After a stop those at work have had it before."""
        if waited_s > DEAF_S:
            return True
        return self._stopped and waited_s > GRACE_S and self.awaited <= set(self._at_work)

    def tell(self, outcome: Packed) -> None:
        """The last message to each rank; none is awaited."""
        for rank in self._ranks:
            self._send(outcome, rank)
        while not all(posted.done() for posted in self._sends):
            self._naps.sleep()
