"""One run inside of the lock: its engine, its log, and who is told of it."""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safepoint import words
from safepoint.disk.files import cause, exists
from safepoint.errors import SaveError
from safepoint.tasks import functions as function_sources
from safepoint.tasks import identity, log
from safepoint.tasks.driving import Drive, Wish, states
from safepoint.tasks.found import Found
from safepoint.tasks.jobs import Ended, Engine, Record
from safepoint.tasks.ordering import Planned
from safepoint.tasks.planning import FOUND, SKIPPED, Plan, many_objects
from safepoint.tasks.saved import Store

if TYPE_CHECKING:
    from safepoint.tasks.graph import Graph


@dataclass(frozen=True)
class Step:
    """What whoever watches a run is told: at its start, and as each vertex ends."""

    event: str  # "start", "finished", "again" (failed, and is tried again), "failed", "skipped", "stopped", "end"
    vertex: str
    ended: Ended | None
    finished: int  # vertices so far, with those of earlier runs
    failed: int
    skipped: int
    total: int
    text: str = (
        ""  # of "start": workers and schedule; of "stopped": why; of "skipped": what it needs; of "failed": how often
    )


class OneRun:
    """From the plan to the last flush."""

    def __init__(
        self, graph: Graph, plan: Plan, store: Store, known: dict[str, Record], planned: Planned,
        progress: Callable[[Step], object] | None, began: float,
    ) -> None:  # fmt: skip
        self._graph, self._plan, self._store, self._known = graph, plan, store, known
        self._planned, self._progress, self._began = planned, progress, began
        self._log = log.Log(store.directory, store.disk)
        self._id = os.urandom(8).hex()
        self._before = {n for n, state in enumerate(plan.state) if state == FOUND}
        self._finished, self._lost = len(self._before), {"failed": 0, "skipped": 0}
        self._drive: Drive | None = None
        self.stopped = ""  # why it ended before its end

    def go(self, make: Callable[[Store, Plan], Engine], wish: Wish) -> None:
        """All of it. What happens to single vertices is in what `found` gives, and no error."""
        engine = make(self._store, self._plan) if self._plan.left else None
        try:
            self._begin(engine)
            if engine is not None:
                told, store = self._tell, self._store
                self._drive = Drive(self._graph, self._plan, engine, self._log, wish, store, self._known, told)
                self._run(engine, self._drive)
                self.stopped = self._drive.stopped if self._plan.left else ""
        finally:
            self._end()

    def _run(self, engine: Engine, drive: Drive) -> None:
        done = False
        try:
            drive.run()
            done = True
        finally:
            try:
                engine.close(abandon=not done or drive.busy)
            finally:
                self._make_durable(drive)

    def _make_durable(self, drive: Drive) -> None:
        """Nobody else flushes the last results of workers that died, or of those of an executor that live on."""
        records = [self._plan.record[self._plan.number[name]] for name in drive.ran]
        names = sorted({record.place.journal for record in records if record is not None and record.place.journal})
        paths = [os.path.join(self._store.directory, name) for name in names]
        paths = [path for path in paths if exists(self._store.disk, path)]
        if not paths:
            return
        try:
            # Blocks of journals whose writer died before its flush: else a power cut after `run` could take them.
            self._store.disk.sync_files(paths)
            # The names of such journals, without which a power cut leaves blocks in no file.
            self._store.disk.sync_dir(self._store.directory)
        except OSError as error:
            text = f"results of this run may not survive a power cut: {error.filename}: {cause(error)}"
            raise SaveError(f"{text}; they survive the end of this run", error.errno) from error

    def found(self) -> Found:
        plan, drive = self._plan, self._drive
        return Found(
            self._store,
            {v.name: r for v, r, s in zip(plan.vertices, plan.record, plan.state, strict=True) if r and s == FOUND},
            failed=drive.failed if drive else {},
            skipped={v.name: plan.needs[n] for n, v in enumerate(plan.vertices) if plan.state[n] == SKIPPED},
            ran=drive.ran if drive else [], seconds=time.time() - self._began,
        )  # fmt: skip

    def counts(self) -> tuple[int, int]:
        """Finished vertices, and all."""
        return sum(state == FOUND for state in self._plan.state), len(self._plan.vertices)

    # What others read.

    def _begin(self, engine: Engine | None) -> None:
        count, name = len(self._plan.vertices), engine.name if engine else ""
        workers = engine.workers() if engine else 0
        self._log.add(
            "start", run=self._id, graph=self._graph.name, vertices=count, finished=len(self._before),
            to_run=count - len(self._before), workers=workers, engine=name, schedule=self._planned.kind,
            expected_s=self._planned.expected_s, driver_host=socket.gethostname(), pid=os.getpid(),
        )  # fmt: skip
        self._log.flush()
        self._put_graph(over=engine is None)
        if self._planned.content is not None:
            log.put(self._store.directory, log.SCHEDULE, self._planned.content, self._store.disk)
        else:
            log.remove(self._store.directory, log.SCHEDULE, self._store.disk)
        self._say("start", text=self._on(name, workers) if engine else "")

    def _on(self, engine: str, workers: int) -> str:
        planned = self._planned
        text = words.count(workers, "worker") if workers else f"engine {engine}"
        text += ", which has no workers yet" if engine == "dask" and not workers else ""
        if planned.kind:
            text += f"; schedule {planned.kind}"
            text += f", expected {words.precise(planned.expected_s)}" if planned.expected_s is not None else ""
        return text

    def _end(self) -> None:
        """The last row, whatever happened."""
        if self._drive is not None and self._drive.stopped:
            self._say("stopped", text=self._drive.stopped)
        finished, _ = self.counts()
        self._log.add("end", finished=finished, **self._lost, seconds=round(time.time() - self._began, 6))
        self._log.flush()
        if self._drive is not None:
            self._put_graph(over=True)
        self._say("end")

    @many_objects()
    def _put_graph(self, over: bool) -> None:
        """`over`: nothing will finish after this. Else `clean` takes it for a run that was killed."""
        state, vertices = states(self._plan), []
        work = os.path.dirname(os.path.dirname(self._store.directory))
        for n, vertex in enumerate(self._plan.vertices):
            row = {
                "name": vertex.name, "function": _path(vertex.function), "source": vertex.source,
                "inputs": [[edge.vertex.name, edge.output] for edge in vertex.edges], "weight": vertex.weight,
                "size": vertex.size, "state": state[vertex.name], "key": self._plan.key[n],
                "file": _file(vertex.function, work),
            }  # fmt: skip
            if n not in self._before:  # for `safepoint tasks why`
                row["parts"] = self._noted(n)
            vertices.append(row)
        code = self._graph.code or getattr(sys.modules.get("__main__"), "__file__", None) or ""
        log.put(self._store.directory, log.GRAPH, {
            "graph": self._graph.name, "code": code, "run": self._id, "over": over, "vertices": vertices,
        }, self._store.disk)  # fmt: skip

    def _noted(self, n: int) -> Mapping[str, str]:
        digests = self._plan.digests(n) if self._plan.key[n] else None  # without an identity inputs are not known
        return self._plan.parts[n] if digests is None else identity.noted(
            self._plan.parts[n], self._plan.vertices[n], digests
        )  # fmt: skip

    def _tell(self, event: str, ended: Ended | None, n: int, text: str) -> None:
        if event in self._lost:
            self._lost[event] += 1
        elif event == "finished" and n not in self._before:  # one that is made again was counted
            self._finished += 1
        self._say(event, self._plan.vertices[n].name, ended, text)

    def _say(self, event: str, vertex: str = "", ended: Ended | None = None, text: str = "") -> None:
        if self._progress is not None:
            lost, total = self._lost, len(self._plan.vertices)
            self._progress(Step(event, vertex, ended, self._finished, lost["failed"], lost["skipped"], total, text))


@functools.lru_cache(4096)
def _file(function: Any, work: str) -> str:
    """Where it is defined, for a look at how it is now; from the working directory on, if it lies below that."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    name = getattr(getattr(function, "__code__", None), "co_filename", "")
    if not os.path.isfile(name):
        return ""
    path = os.path.realpath(name)
    return os.path.relpath(path, work) if path.startswith(work + os.sep) else path


_path = functools.lru_cache(4096)(function_sources.path)
