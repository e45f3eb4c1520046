"""The driver: gives ready vertices to an engine, and decides what becomes of those that fail.

A failure of the body is tried again as often as the vertex allows. The death of a worker is no failure of the body: its
vertex is given out again, but with three dead workers it is given up, else it would end one worker after the other.
Nothing that happens to one vertex ends the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from safepoint.tasks import identity
from safepoint.tasks.body import DAMAGED
from safepoint.tasks.jobs import Ended, Engine, Failure, Job, Record
from safepoint.tasks.log import Log
from safepoint.tasks.planning import FAILED, FOUND, SKIPPED, Plan

MOST_DEATHS, MOST_DAMAGES = 3, 3
PATIENCE_S = 0.25  # between two looks at the clock and at Ctrl-C, if nothing ends


class Wish(Protocol):
    """Who may want the run to end early."""

    why: str  # "" as long as nobody does

    def look(self, longest_s: float) -> str:
        """Why to begin no more vertices; "": nothing. `longest_s`: what the longest vertex of this run has taken."""

    def patience_s(self) -> float:
        """How long vertices at work may still take, once it has said to stop; 0.0: end now."""


class Drive:
    """One run of a graph on one engine, from the plan to the last vertex."""

    def __init__(
        self, graph: Any, plan: Plan, engine: Engine, log: Log, wish: Wish, store: Any, known: dict[str, Record],
        told: Callable[[str, Ended | None, int, str], None],
    ) -> None:  # fmt: skip
        """`known`: what the plan looks up. `told`: hears of each attempt that ends: "finished", "again",
        "failed" for good or "skipped"; its number in the plan; and why, or how often."""
        self._graph, self._plan, self._engine, self._log = graph, plan, engine, log
        self._wish, self._store, self._known, self._told = wish, store, known, told
        self._damages: dict[str, int] = {}
        self._at_work: dict[str, int] = {}  # vertices that the engine has
        self._failures: dict[int, int] = {}
        self._deaths: dict[int, list[str]] = {}
        self._longest_s = 0.0
        self.failed: dict[str, Failure] = {}
        self.ran: list[str] = []  # whose results are of this run
        self.stopped = ""  # why no more were begun

    def run(self) -> None:
        """Returns when nothing is left to do, or nothing may be begun any more and nothing is at work. The engine is
        still open. What is at work when the patience for a stop is over stays at work: the caller abandons it."""
        until = math.inf
        self._tell_lost()
        while self._plan.left or self._at_work:
            if not self.stopped and (why := self._wish.look(self._longest_s)):
                self.stopped = why
                self._log.add("stopped", why=why)
                self._engine.stop()
            if self.stopped:
                until = time.monotonic() + self._wish.patience_s()
                if not self._at_work or time.monotonic() >= until:
                    break
            else:
                self._give()
                assert self._at_work or not self._plan.left, "nothing is ready and nothing is at work"
            patience_s = min(PATIENCE_S, until - time.monotonic()) if self.stopped else PATIENCE_S
            for ended in self._engine.ended(max(0.0, patience_s)):
                self._take(ended)
            self._log.flush(wait=False)
        self._log.flush()

    @property
    def busy(self) -> bool:
        """Whether the engine still has vertices."""
        return bool(self._at_work)

    def _give(self) -> None:
        room = self._engine.room()
        while room > 0 and (n := self._plan.next()) is not None:
            room -= 1
            vertex = self._plan.vertices[n]
            self._at_work[vertex.name] = n
            parts = identity.noted(self._plan.parts[n], vertex, self._plan.digests(n) or ())
            self._engine.start(Job(
                vertex.name, self._plan.key[n], vertex.function, vertex.head, vertex.template, self._plan.inputs(n),
                self._failures.get(n, 0) + 1, self._graph.seed, vertex.keep, parts, vertex.source,
                self._store.directory,
            ))  # fmt: skip
            worker = getattr(self._engine, "given_to", "")  # of an engine that knows it at once
            self._log.add("begin", vertex=vertex.name, attempt=self._failures.get(n, 0) + 1, worker=worker, host="")

    def _take(self, ended: Ended) -> None:
        n = self._at_work.pop(ended.vertex, None)
        if n is None:  # a second answer for one attempt, as engines give that take a live worker for dead
            return
        self._longest_s = max(self._longest_s, ended.body_s + ended.inputs_s + ended.saving_s)
        failure = ended.failure
        if ended.record is not None:
            self._finished(n, ended, ended.record)
        elif ended.died:
            self._died(n, ended)
        elif failure is not None and not self._of_damage(failure, ended.vertex):
            self._failed(n, ended, failure)
        else:  # taken back before it began, or it needs an input that is made again
            self._plan.again(n)
        self._tell_lost()

    def _of_damage(self, failure: Failure, vertex: str) -> bool:
        """Whether this is no fault of the vertex, as an input of it is made again."""
        return failure.kind == DAMAGED and self._make_again(failure.message, vertex)

    def _make_again(self, name: str, needed_by: str) -> bool:
        """The bytes of this vertex are not what was written. False: that was so too often, or there is none."""
        count = self._damages[name] = self._damages.get(name, 0) + 1
        if name not in self._plan.number or count > MOST_DAMAGES:
            return False
        self._log.add("damaged", vertex=name, needed_by=needed_by)
        key = self._plan.key[self._plan.number[name]]
        if self._known.pop(key, None) is not None:
            self._store.drop([key])  # else its next result would be dropped, as a second one of the same identity
        self._plan.damaged(name)
        return True

    def _finished(self, n: int, ended: Ended, record: Record) -> None:
        self._log.add(
            "finished", vertex=ended.vertex, key=record.key, worker=ended.worker, host=ended.host,
            attempt=ended.attempt, began=ended.began, inputs_s=ended.inputs_s, body_s=ended.body_s,
            saving_s=ended.saving_s, nbytes=record.nbytes, moved=ended.moved,
        )  # fmt: skip
        self._known[record.key] = record
        if self._plan.finished(n, record):
            self.ran.append(ended.vertex)
            self._told("finished", ended, n, "")

    def _failed(self, n: int, ended: Ended, failure: Failure) -> None:
        count = self._failures[n] = self._failures.get(n, 0) + 1
        attempts = 1 + int(self._plan.vertices[n].retries)
        self._log.add(
            "failed", vertex=ended.vertex, worker=ended.worker, host=ended.host, attempt=count, attempts=attempts,
            error=f"{failure.kind}: {failure.message}", where=failure.where, began=ended.began, body_s=ended.body_s,
            traceback=failure.traceback,
        )  # fmt: skip
        text = f"{count} of {attempts} attempts" if attempts > 1 else ""
        if count < attempts:
            self._plan.again(n)
            self._told("again", ended, n, text)
        else:
            self._give_up(n, ended, failure, text)

    def _died(self, n: int, ended: Ended) -> None:
        self._log.add("died", vertex=ended.vertex, worker=ended.died, host=ended.host, began=ended.began)
        dead = self._deaths.setdefault(n, [])
        dead.append(ended.died)
        if len(dead) < MOST_DEATHS:
            self._plan.again(n)
            return
        text = (
            f"{MOST_DEATHS} workers died with it ({', '.join(dead)}): killed, out of memory, or a fault in native code"
        )
        failure = Failure("WorkerDied", text, "", "")
        self._log.add(
            "failed", vertex=ended.vertex, worker=ended.worker, host=ended.host, attempt=len(dead),
            attempts=MOST_DEATHS, error=f"{failure.kind}: {text}", where="", began=ended.began, body_s=ended.body_s,
        )  # fmt: skip
        self._give_up(n, replace(ended, failure=failure), failure, "")

    def _give_up(self, n: int, ended: Ended, failure: Failure, text: str) -> None:
        self.failed[ended.vertex] = failure
        self._plan.failed(n)
        self._told("failed", ended, n, text)

    def _tell_lost(self) -> None:
        for n, why in self._plan.wrong.items():
            name = self._plan.vertices[n].name
            self.failed[name] = Failure("GraphError", why, "", "")
            self._log.add("failed", vertex=name, attempt=0, attempts=0, error=f"GraphError: {why}", where="")
            self._told("failed", None, n, why)
        self._plan.wrong.clear()
        for n in self._plan.skipped:
            self._log.add("skipped", vertex=self._plan.vertices[n].name, needs=self._plan.needs[n])
            self._told("skipped", None, n, self._plan.needs[n])
        self._plan.skipped.clear()


def states(plan: Plan) -> dict[str, str]:
    """Of each vertex, as graph.json has it."""
    names = {FOUND: "finished", FAILED: "failed", SKIPPED: "skipped"}
    return {
        vertex.name: "running" if plan.running[n] else names.get(plan.state[n], "waiting")
        for n, vertex in enumerate(plan.vertices)
    }
