"""A rank that runs vertices: one at a time, until the coordinator says that it is over.

What it was told last is the outcome of the run, which `work` returns. Ctrl-C and SIGTERM go to all ranks of a job; here
they do nothing (see `entering`), since rank 0 decides, and running bodies end in peace.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from safepoint.disk import kernel
from safepoint.errors import SafepointError
from safepoint.tasks import body
from safepoint.tasks.jobs import Ended, Failure, Job, Reference
from safepoint.tasks.mpi.inputs import Inputs, Remembering
from safepoint.tasks.mpi.messages import FREE, WORK, Naps, Posted, post, take
from safepoint.tasks.mpi.outcome import Outcome, Packed
from safepoint.tasks.mpi.serving import Asker, Kept, Server
from safepoint.tasks.mpi.team import Team
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store


@dataclass(frozen=True)
class Work:
    """One attempt. `owners`: of each input the rank that has it; 0: read it from the store."""

    vertex: str
    key: str
    inputs: tuple[Reference, ...]
    owners: tuple[int, ...]
    attempt: int


@dataclass(frozen=True)
class Stop:
    """There is no more: flush, say FREE for the last time, and wait for the outcome."""


@dataclass(frozen=True)
class Free:
    """`failure`: the rank cannot work, whatever it gets. `wrong`: answers with another digest, since the last."""

    ended: Ended | None = None
    failure: str = ""
    wrong: int = 0
    last: bool = False


class Worker:
    """`memory`: bytes of results that it keeps for others, and for itself. `edges`: as `run_on` has it."""

    def __init__(
        self, team: Team, graph: Any, directory: str, parts: Mapping[str, Mapping[str, str]], memory: int, edges: str
    ) -> None:
        self._team, self._graph, self._directory, self._parts = team, graph, directory, parts
        self._kept = Kept(memory)
        moving = team.threads and edges != "store"
        self._server = Server(team.edges, self._kept) if moving else None
        self._asker = Asker(team.edges) if moving else None
        self._far = edges == "get"
        self._sent: list[Posted] = []

    def work(self) -> Outcome:
        """Until the coordinator says stop. On return no rank will ask this one for anything any more."""
        if self._server:
            self._server.start()
        failure, writer = "", None
        try:
            store = Store(tasks_directory(self._directory))
            writer = store.writer(worker=f"rank {self._team.rank}")
            self._run(store, writer)
        except Exception as error:  # of the engine, not of a body: the coordinator ends the run
            failure = f"{type(error).__name__}: {error}"
            self._say(Free(failure=failure))
            while not isinstance(self._next(), Stop):
                pass
        return self._leave(writer, failure)

    def _run(self, store: Any, writer: Any) -> None:
        inputs = Inputs(store, self._kept, self._asker, self._team.hosts, self._team.rank, far=self._far)
        remembering, place, wrong = Remembering(writer, self._kept), os.getcwd(), 0
        self._say(Free())
        while isinstance(work := self._next(checked=True), Work):
            with contextlib.suppress(OSError):
                os.chdir(place)  # a body before this one may have left it
            inputs.begin(work.inputs, work.owners)
            ended = self._attempt(work, store, remembering, inputs)
            inputs.end()
            ended = replace(ended, worker=f"rank {self._team.rank}", moved=inputs.moved)
            before, wrong = wrong, self._asker.wrong if self._asker else 0
            self._say(Free(ended, wrong=wrong - before))
            self._check()
            if self._server:
                self._server.expect()

    def _attempt(self, work: Work, store: Any, writer: Any, inputs: Inputs) -> Ended:
        """From the graph of this rank."""
        vertex = self._graph.vertices[work.vertex]
        job = Job(
            work.vertex, work.key, vertex.function, vertex.head, vertex.template, work.inputs, work.attempt,
            self._graph.seed, vertex.keep, self._parts[work.vertex], vertex.source, tasks_directory(self._directory),
        )  # fmt: skip
        return attempt(job, store, writer, inputs.value)

    def _leave(self, writer: Any, failure: str) -> Outcome:
        naps = Naps()
        while self._asker and not self._asker.tidy():  # all threads still serve: they stop after the outcome alone
            naps.sleep()
        try:
            if writer is not None:
                writer.close()
        except (OSError, SafepointError) as error:
            failure = failure or str(error)
        self._say(Free(failure=failure, last=True))
        outcome = self._next(checked=not failure)
        assert isinstance(outcome, Packed)
        if self._server:
            self._server.leave()
        while not all(posted.done() for posted in self._sent):
            naps.sleep()
        return outcome.unpacked(self._directory)

    def _say(self, free: Free) -> None:
        self._sent = [posted for posted in self._sent if not posted.done()]
        self._sent.append(post(self._team.control, free, 0, FREE))

    def _next(self, *, checked: bool = False) -> Any:
        """What the coordinator says next."""
        naps = Naps()
        while (found := take(self._team.control, WORK, 0)) is None:
            if self._asker:
                self._asker.tidy()
            if checked:
                self._check()
            naps.sleep()
        return found[1]

    def _check(self) -> None:
        """Of an idle rank, too: else who asks it for a value waits for an answer for ever, at the end of the run."""
        if self._server and self._server.failure is not None:
            raise self._server.failure


def attempt(job: Job, store: Any, writer: Any, get: Callable[[Reference], Any] | None = None) -> Ended:
    """Its parameters are copied: a body may change them, and be tried again."""
    try:
        job = replace(job, arguments=pickle.loads(pickle.dumps(job.arguments, 5)))
    except Exception as error:  # of a parameter's own code
        failure = Failure(type(error).__name__, f"its arguments cannot be copied: {error}", "", "")
        return Ended(job.vertex, job.key, job.attempt, failure=failure, host=kernel.host())
    return body.run(job, store, writer, get)
