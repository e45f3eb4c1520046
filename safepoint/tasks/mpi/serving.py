"""Values go from rank to rank: what a rank has made it keeps in memory, and gives to who asks, from a thread.

So no consumer waits for the body that its producer runs now. Every value is checked by its digest: one that was changed
since, by a body that held on to its result, counts as not there.

(1) The thread has a communicator of its own, and is joined before `MPI_Finalize`.
(2) It stops only after all ranks have received what they asked for: who sends GET must get an answer.
(3) A value is in several buffers, as it was encoded. An array is not copied for this, neither here nor on its way.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

from safepoint.tasks.jobs import Output
from safepoint.tasks.mpi.messages import ANSWERS, DATA, GET, Naps, Posted, flat, mpi, pieces, post, space, spans, take

PATIENCE_S = 0.05  # without an answer; then the store is read
SLACK = 1 << 16  # bytes that may lie in memory beside a value
SOON_S = 2e-5  # of a nap while bytes travel


def digest_of(buffers: Sequence[Any]) -> str:
    digest = xxhash.xxh3_128()
    for buffer in buffers:
        digest.update(buffer)
    return digest.hexdigest()


def _alone(view: memoryview) -> memoryview:
    """These bytes, in nothing that is much larger: a few rows of an array would keep all of it in memory, uncounted."""
    owner: Any = view
    while (inner := owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)) is not None:
        owner = inner
    whole = owner.nbytes if hasattr(owner, "nbytes") else len(owner) if hasattr(owner, "__len__") else 0
    return memoryview(bytes(view)) if whole > 2 * len(view) + SLACK else view


class Kept:
    """The results that this rank has in memory, at most so many bytes: those used last. Safe among threads."""

    def __init__(self, limit: int) -> None:
        self.limit, self.nbytes = limit, 0
        self._values: OrderedDict[tuple[str, str], tuple[int, Sequence[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: str, output: str, buffers: Sequence[Any]) -> None:
        views = [_alone(flat(buffer)) for buffer in buffers]
        nbytes = sum(map(len, views))
        with self._lock:
            self._drop((key, output))
            if nbytes > self.limit:
                return
            while self.nbytes + nbytes > self.limit:
                self._drop(next(iter(self._values)))
            self._values[key, output] = nbytes, views
            self.nbytes += nbytes

    def get(self, key: str, output: str) -> Sequence[Any] | None:
        with self._lock:
            if (key, output) not in self._values:
                return None
            self._values.move_to_end((key, output))
            return self._values[key, output][1]

    def checked(self, key: str, output: Output) -> Sequence[Any] | None:
        """The same, if it has the digest that it had. What was changed since is dropped."""
        buffers = self.get(key, output.name)
        if buffers is not None and digest_of(buffers) != output.digest:
            with self._lock:
                self._drop((key, output.name))
            return None
        return buffers

    def _drop(self, name: tuple[str, str]) -> None:
        nbytes, _ = self._values.pop(name, (0, ()))
        self.nbytes -= nbytes


class Server(threading.Thread):
    """Answers GET, until `leave`. What went wrong in it is in `failure`."""

    def __init__(self, comm: Any, kept: Kept) -> None:
        super().__init__(name="safepoint-tasks-serving", daemon=True)
        self.failure: BaseException | None = None
        self._comm, self._kept = comm, kept
        self._bell, self._left = threading.Lock(), False  # it is rung by a release: no other wait is as cheap
        self._bell.acquire()
        self._sending: list[Posted] = []

    def expect(self) -> None:
        """Others may ask soon: look more often. One thread calls this."""
        if self._bell.locked():
            self._bell.release()

    def leave(self) -> None:
        """Nobody will ask any more. On return the thread has ended."""
        self._left = True
        self.expect()
        self.join()

    def run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # of MPI itself: the worker says it to the coordinator
            self.failure = error

    def _serve(self) -> None:
        naps = Naps(SOON_S * 2)
        while not self._left or self._sending:
            while self._answer():
                naps.wake()
            self._sending = [posted for posted in self._sending if not posted.done()]
            if self._bell.acquire(timeout=SOON_S if self._sending else naps.length_s()):
                naps.wake()

    def _answer(self) -> bool:
        """One question, if there is one."""
        asked = take(self._comm, GET)
        if asked is None:
            return False
        rank, (key, output, nbytes, tag) = asked
        messages = [b""] * len(spans(nbytes))
        try:
            buffers = self._kept.get(key, output)
            if buffers is not None and sum(map(len, buffers)) == nbytes:
                messages = list(pieces(buffers))
        except MemoryError:  # for what spans two buffers: the store has it
            pass
        requests = [self._comm.Isend([message, mpi().BYTE], rank, tag) for message in messages]
        self._sending.append(Posted(requests, messages))
        return True


@dataclass(eq=False)
class Asked:
    """One output that was asked for. `room` fills from the front."""

    rank: int
    output: Output
    room: memoryview
    requests: list[Any]
    sent: Posted
    number: int = 0  # of the message that comes next
    empty: bool = False  # it is not there
    digest: Any = field(default_factory=xxhash.xxh3_128)


class Asker:
    """Asks other ranks. One thread uses it."""

    def __init__(self, comm: Any) -> None:
        self.wrong = 0  # answers that had another digest
        self._comm, self._count = comm, 0
        self._heard: dict[int, float] = {}
        self._late: list[Asked] = []

    def ask(self, rank: int, key: str, output: Output) -> Asked:
        """Returns at once; the bytes travel while the caller does something else."""
        self.tidy()
        tag = DATA + self._count % ANSWERS
        self._count += 1
        room = space(output.nbytes)  # before the question: an answer for which there is no room is never received
        sent = post(self._comm, (key, output.name, output.nbytes, tag), rank, GET)
        requests = [self._comm.Irecv([room[a:b], mpi().BYTE], rank, tag) for a, b in spans(output.nbytes)]
        return Asked(rank, output, room, requests, sent)

    def wait(self, asked: Asked, patience_s: float = PATIENCE_S) -> memoryview | None:
        """The bytes, checked. None if they are not there, are wrong, or nothing came from that rank for so long: then
        it may be called again."""
        begun = time.monotonic()
        naps = Naps(SOON_S, calm=100, eager=100)
        while asked.number < len(asked.requests):
            if self._advance(asked):
                self._heard[asked.rank] = time.monotonic()
                naps.wake()
            elif time.monotonic() - max(begun, self._heard.get(asked.rank, 0.0)) > patience_s:
                self.forget(asked)
                return None
            else:
                naps.sleep()
        self.forget(asked)
        if asked.empty and asked.output.nbytes:
            return None
        if asked.digest.hexdigest() != asked.output.digest:
            self.wrong += 1
            return None
        return asked.room

    def forget(self, asked: Asked) -> None:
        """It is not waited for any more, and received nevertheless."""
        if asked not in self._late and not self._over(asked):
            self._late.append(asked)

    def tidy(self) -> bool:
        """Whether all that was asked for has come. Never waits."""
        self._late = [asked for asked in self._late if not self._over(asked)]
        return not self._late

    def _advance(self, asked: Asked) -> bool:
        """Take the next message of an answer, if it has come."""
        status = mpi().Status()
        if not asked.requests[asked.number].Test(status):
            return False
        begin, end = spans(asked.output.nbytes)[asked.number]
        asked.empty = asked.empty or status.Get_count(mpi().BYTE) != end - begin
        asked.number += 1
        asked.digest.update(asked.room[begin:end])  # while the next one travels
        return True

    def _over(self, asked: Asked) -> bool:
        while asked.number < len(asked.requests):
            if not self._advance(asked):
                return False
        return asked.sent.done()
