"""The engine on Dask: all unfinished vertices are submitted at once, so Dask places them and moves values itself.

The driver's plan goes its own way, vertex by vertex. When it starts one, that was submitted long before: it is only
*claimed*, and may even have ended. So the driver needs no loop of its own for Dask, and Dask sees the whole graph.

(1) Workers tell the driver what has ended, up to 0.2 s late: see `dask_telling`. Dask is asked only about a vertex of
    which nothing was heard for longer: its worker died, or Dask has given it up.
(2) A vertex is submitted anew only if the driver starts it and no future of it lives: after a failure, or when an input
    came out different. Those below it that wait for the old future are submitted anew with it.
(3) A vertex that only comes after another one gets no value of it: a task between the two leaves the value where it is.
(4) The future of a vertex goes when its end was told, see `dask_gone`: Dask keeps the value while a child needs it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from safepoint.disk.files import write
from safepoint.errors import SaveError, TaskError, UsageError
from safepoint.tasks import dask_telling as telling
from safepoint.tasks import dask_worker as worker
from safepoint.tasks.dask_gone import Gone
from safepoint.tasks.dask_worker import Parcel
from safepoint.tasks.jobs import Ended, Job, Record
from safepoint.tasks.packing import Packing, failure_of, short
from safepoint.tasks.planning import MUST, UNKNOWN, Plan

if TYPE_CHECKING:
    from safepoint.tasks.saved import Store

MANY = 1 << 30  # jobs: Dask queues by itself
LOOK_S = 0.25  # of silence, after which Dask is asked what became of its futures
STRAGGLERS_S = 5.0


@dataclass
class Sent:
    """A vertex that Dask has."""

    future: Any
    ticket: str
    needs: frozenset[int]  # the vertices whose values Dask gives to it


class DaskEngine:
    """An `Engine`."""

    name = "dask"

    def __init__(self, client: Any, store: Store, plan: Plan) -> None:
        """`UsageError` if this client cannot be used."""
        if client.asynchronous:
            raise UsageError("this Client is asynchronous: give one that was made without asynchronous=True")
        self._client, self._store, self._plan = client, store, plan
        self._directory, self._disk = store.directory, store.disk
        self._scheduler = client.scheduler.address if client.scheduler else ""
        self.run = os.urandom(6).hex()
        self._marks = os.path.join(self._directory, f"stage-dask-{self.run}")
        self._live: dict[int, Sent] = {}
        self._tickets: dict[str, int] = {}  # of those that live
        self._earlier: dict[str, list[Record]] = {}  # of earlier runs, by vertex
        self._early: dict[int, Ended] = {}  # ended before the driver started it
        self._claimed: dict[int, Job] = {}
        self._ready: list[Ended] = []
        self._gone = Gone(client.loop)
        self._submitted = self._told = 0
        self._heard_at = time.monotonic()
        self._over = self._closed = False
        self._pack = Packing()

    def workers(self) -> int:
        return sum(self._client.nthreads().values()) if self._client.status == "running" else 0

    def room(self) -> int:
        return 0 if self._over else MANY

    # Submitting.

    def ahead(self, records: Iterable[Record]) -> None:
        """Submit all that must run, or may have to; once, before anything is started. `records`: of the store; those of
        a vertex whose inputs have not finished go with it, as these may come out as they were. `UsageError` if a worker
        does not see the store.
        """
        plan = self._plan
        telling.heard[self.run] = queue.SimpleQueue()
        write(self._disk, self._marks, bytes(len(plan.vertices)) + self.run.encode())
        self._compare()
        self._client.subscribe_topic(telling.TOPIC, telling.hear)
        self._gather(True)
        for record in records:
            self._earlier.setdefault(record.vertex, []).append(record)
        wanted = [state in (UNKNOWN, MUST) for state in plan.state]
        for n in reversed(range(len(wanted))):  # inputs stand before what needs them
            for parent in plan.parents[n] if wanted[n] else ():
                wanted[parent] = wanted[parent] or not plan.here[parent]
        self._submit([n for n in range(len(wanted)) if wanted[n]])

    def _compare(self) -> None:
        """Whether all workers see the directory."""
        for where, found in self._client.run(worker.sees, self._marks, self.run).items():
            if found:
                raise UsageError(
                    f"the Dask worker {where} does not see {self._directory}, where results are kept ({found}): "
                    "run it in a directory that all workers share"
                )

    def _submit(self, numbers: Sequence[int], attempt: int = 1) -> None:
        """`attempt`: of the first of them."""
        import dask

        inside = set(numbers)
        tickets = {n: self._ticket(n) for n in numbers}
        graph, needs, orders = dict[str, Any](), dict[int, frozenset[int]](), dict[int, str]()
        for n in numbers:
            inputs: dict[int, int] = {}
            edges: list[tuple[int | Record, str | None]] = []
            for parent, output in self._plan.edges[n]:
                record = None if parent in inside else self._record(parent)
                edges.append((short(record) if record else inputs.setdefault(parent, len(inputs)), output))
            parcel = self._parcel(n, tickets[n], edges, attempt if n == numbers[0] else 1)
            given = {each: tickets[each] if each in inside else self._live[each].future for each in inputs}
            for each in set(inputs) - {parent for parent, output in self._plan.edges[n] if output is not None}:
                if each not in orders:  # see (3)
                    orders[each] = self._ticket(each)
                    graph[orders[each]] = (worker.order, given[each])
                given[each] = orders[each]
            functions = self._pack.functions(self._plan.vertices[n])
            graph[tickets[n]] = (worker.sealed(functions, parcel), *given.values())
            needs[n] = frozenset(inputs)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):  # it is large on purpose
            futures = self._client.get(graph, list(tickets.values()), sync=False)
        for n, future in zip(numbers, futures, strict=True):
            self._live[n] = Sent(future, tickets[n], needs[n])
            self._tickets[tickets[n]] = n

    def _ticket(self, n: int) -> str:
        self._submitted += 1
        return f"{self._plan.vertices[n].name}-{self.run}-{self._submitted}"

    def _record(self, n: int) -> Record | None:
        """Of an input that has ended, so that it is read from the store; None: its value comes from Dask."""
        if n in self._live:
            return None
        early = self._early.get(n)
        return early.record if early else self._plan.record[n] if self._plan.here[n] else None

    def _parcel(self, n: int, ticket: str, edges: list[tuple[int | Record, str | None]], attempt: int) -> Parcel:
        vertex, parts = self._plan.vertices[n], self._plan.parts[n]
        # Of one that the driver starts it knows that there is no result, or that it was damaged.
        known = () if n in self._claimed else self._earlier.get(vertex.name, ())
        same = [each for each in known if parts.items() <= each.parts.items()]
        return Parcel(
            self.run, ticket, n, self._marks, self._directory, self._pack.arguments(vertex), vertex.name, attempt,
            vertex.seed, vertex.keep, parts, vertex.source, tuple(edges), tuple(same), last=not self._plan.children[n],
        )  # fmt: skip

    # What the driver asks.

    def start(self, job: Job) -> None:
        n = self._plan.number[job.vertex]
        self._claimed[n] = job
        if self._over:
            self._give(n, Ended(job.vertex, job.key, job.attempt))
        elif n in self._early:
            self._give(n, self._early.pop(n))
        elif n not in self._live:
            self._submit_again(n)

    def _submit_again(self, n: int) -> None:
        """With all below it that wait for what it did not give."""
        again, todo = {n}, [n]
        while todo:
            above = todo.pop()
            for child in self._plan.children[above]:
                if child not in again and child in self._live and above in self._live[child].needs:
                    again.add(child)
                    todo.append(child)
        for each in again & set(self._live):
            del self._tickets[self._live.pop(each).ticket]
        self._submit([n, *self._possible(sorted(again - {n}), n)], attempt=self._claimed[n].attempt)

    def _possible(self, numbers: Sequence[int], first: int) -> list[int]:
        """Of these, those whose inputs all come or are there. The others wait until the driver starts them."""
        found = {first}
        for n in numbers:
            if all(each in found or each in self._live or self._record(each) for each in self._plan.parents[n]):
                found.add(n)
        return sorted(found - {first})

    def ended(self, patience_s: float) -> list[Ended]:
        until = time.monotonic() + patience_s
        while not self._ready:
            left = until - time.monotonic()
            self._listen(min(LOOK_S, max(0.0, left)))
            self._alive()
            if not self._ready and time.monotonic() - self._heard_at >= LOOK_S:
                self._look()
            if left <= 0:
                break
        found, self._ready = self._ready, []
        return found

    def _listen(self, patience_s: float) -> None:
        """Take what the workers have told; wait for the first of it."""
        told = telling.heard[self.run]
        try:
            while True:
                packed = told.get(timeout=patience_s) if patience_s > 0 else told.get_nowait()
                patience_s = 0.0
                self._heard_at = time.monotonic()
                for ticket, ended in telling.told(packed):
                    self._take(ticket, ended)
        except queue.Empty:
            self._gone.look()

    def _take(self, ticket: str, ended: Ended) -> None:
        n = self._tickets.pop(ticket, None)
        if n is None:  # Dask ran it twice, or it was submitted anew meanwhile
            return
        self._gone.add(self._live.pop(n).future, ended)  # see (4)
        self._told += ended.record is not None
        if n in self._claimed:
            self._give(n, ended)
        else:
            self._early[n] = ended

    def _give(self, n: int, ended: Ended) -> None:
        """To the driver, which has started it."""
        job = self._claimed[n]
        if ended.record is not None and ended.record.key != job.key:  # of inputs that came out different meanwhile
            self._submit_again(n)
            return
        del self._claimed[n]
        same = ended.key == job.key and ended.attempt == job.attempt
        self._ready.append(ended if same else replace(ended, key=job.key, attempt=job.attempt))

    def _look(self) -> None:
        """Nothing was heard for long: does Dask know more? See (1)."""
        self._heard_at = time.monotonic()
        for n, sent in [(n, self._live[n]) for n in self._claimed if n in self._live]:
            if sent.future.status not in ("pending", "lost"):  # a lost value is made again, by Dask
                self._untold(n, sent)

    def _alive(self, error: OSError | None = None) -> None:
        if error or self._client.status != "running":
            raise TaskError(
                f"Dask's scheduler {self._scheduler} is gone, and with it all that waited. {self._told} vertices had "
                f"finished in this run; they stay in {self._directory}, as do those of earlier runs: start it again"
            ) from error

    def _untold(self, n: int, sent: Sent) -> None:
        """Dask has ended with it, and no worker said so."""
        job, status = self._claimed[n], sent.future.status
        if status == "finished":
            try:  # without `ended` an input of it failed, or it was stopped
                ended = sent.future.result().ended or Ended(job.vertex, job.key, job.attempt)
            except OSError as error:  # the scheduler ended while it was asked, and the client does not know it yet
                self._alive(error if type(error).__name__ == "CommClosedError" else None)
                raise
        elif status == "error":
            ended = self._given_up(n, job, sent.future.exception())
        else:
            self._alive()
            raise TaskError(f"vertex {job.vertex} was cancelled, not by this run; what finished stays: start it again")
        self._take(sent.ticket, ended)

    def _given_up(self, n: int, job: Job, error: BaseException | None) -> Ended:
        """By Dask, which blames all that a dead worker had: also what only waited there, or was kept and not told."""
        if type(error).__name__ == "KilledWorker":
            if (record := self._store.find(job.key)) is not None and record.kept:
                return worker.again(job, record)
            with self._disk.open(self._marks) as file:
                file.seek(n)
                if file.read(1) == b"\0":
                    return Ended(job.vertex, job.key, job.attempt)
        return Ended(job.vertex, job.key, job.attempt, failure=failure_of(error))

    # The end.

    def stop(self) -> None:
        if self._over:
            return
        self._over = True
        self._alive()
        halted = self._client.run(worker.halt, self.run, on_error="ignore").values()
        begun = {ticket for found in halted for ticket in found}
        self._listen(0.0)
        self._forget([n for n, sent in self._live.items() if sent.ticket not in begun])

    def _wait(self) -> None:
        """For what had begun before the driver came to it; a short while, as it is kept in any case when it is done."""
        until = time.monotonic() + STRAGGLERS_S
        while any(sent.future.status == "pending" for sent in self._live.values()) and time.monotonic() < until:
            self._alive()
            self._listen(LOOK_S)

    def _forget(self, numbers: Sequence[int]) -> None:
        """Take them back from Dask."""
        self._client.cancel([self._live[n].future for n in numbers])
        for n in numbers:
            del self._tickets[self._live.pop(n).ticket]
            if n in self._claimed:
                job = self._claimed[n]
                self._give(n, Ended(job.vertex, job.key, job.attempt))

    def close(self, *, abandon: bool = False) -> None:
        """What Dask's workers are at cannot be ended: with `abandon`, its result comes to the store when it is done."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._client.status == "running":
                if self._over and not abandon:
                    self._wait()
                self._forget(list(self._live))
                self._gone.release()
                self._gather(False)
                self._flush(abandon)
        finally:
            telling.heard.pop(self.run, None)
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._marks)  # a kill before this leaves it to the next driver

    def _gather(self, few: bool) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is gone, as is said elsewhere; or refuses all functions
            self._client.run_on_scheduler(telling.gather, self._client.id, few)

    def _flush(self, abandon: bool) -> None:
        asked = self._client.run(worker.leave, self.run, self._directory, self._marks, on_error="return")
        failed = {where: error for where, error in asked.items() if isinstance(error, Exception)}
        if failed and not abandon:
            where, error = next(iter(failed.items()))
            raise SaveError(f"results of the Dask worker {where} may not survive a power cut: {error}")


def engine(client: Any, store: Store, plan: Plan) -> DaskEngine:
    """On the cluster of this `distributed.Client`, which stays open; with all of the plan submitted."""
    made = DaskEngine(client, store, plan)
    try:
        made.ahead(store.records().values())
    except BaseException:
        made.close(abandon=True)
        raise
    return made
