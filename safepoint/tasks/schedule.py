"""Schedules: which worker runs which vertex, and when. Made by `plan`, kept in a file, followed by a chooser.

    seconds, sizes = measured(directory)                 # of an earlier run; {} and {} if there was none
    graph_problem = problem(graph, seconds, sizes)
    schedule = plan(graph_problem, machine, improve_s=10)
    chooser = schedule.chooser("combined", graph_problem, machine)

A worker of a schedule is a processor of its machine, from 0. Under MPI rank 0 coordinates, and worker w is rank w + 1.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safepoint.disk import Disk
from safepoint.errors import FormatError, UsageError
from safepoint.tasks import jsonfile
from safepoint.tasks.choosing import Combined, Dynamic, Planned, Static
from safepoint.tasks.genetic import Progress, improve
from safepoint.tasks.heft import heft
from safepoint.tasks.jsonfile import number
from safepoint.tasks.machine import Machine
from safepoint.tasks.simulate import Chooser, Costs, Problem

if TYPE_CHECKING:
    from safepoint.tasks.graph import Graph

HEFT, GENETIC, STATIC = "heft", "genetic", "static"
KINDS = (HEFT, GENETIC, STATIC)  # the last is of somebody's own hand
MODES = ("dynamic", "static", "combined")
REMEDY = "make it again: safepoint tasks plan"
Size = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Schedule:
    """`rows` in the order of their begin. Times are in the units of the weights: seconds if they were measured."""

    graph: str
    kind: str
    expected_s: float
    rows: tuple[Planned, ...]
    machine: Machine | None = None

    @property
    def workers(self) -> int:
        """So many it was made for."""
        return self.machine.size if self.machine else 1 + max((row.worker for row in self.rows), default=0)

    def misfit(self, problem: Problem, workers: int) -> str:
        """Why it cannot be followed by so many workers on this graph; "" if it can."""
        if self.workers != workers:
            return f"it was made for {self.workers} workers, and here are {workers}"
        planned = {row.vertex for row in self.rows}
        if lacking := [name for name in problem.names if name not in planned]:
            return f"it has no row for {_some(lacking)}"
        if strange := sorted(planned.difference(problem.names)):
            return f"the graph has no {_some(strange)}"
        return ""

    def chooser(self, mode: str, problem: Problem, machine: Machine, workers: int | None = None) -> Chooser:
        """What a coordinator of so many `workers` asks (by default as many as the machine has); see `choosing`. Raises
        `UsageError` if schedule or machine are not for them: static would wait for one that never asks."""
        workers = machine.size if workers is None else workers
        if mode not in MODES:
            raise UsageError(f"a schedule is followed {' or '.join(MODES)}, not {mode!r}")
        if mode != "dynamic" and (wrong := self.misfit(problem, workers)):
            raise UsageError(f"the schedule of graph {self.graph} does not fit: {wrong}; {REMEDY}, or run without it")
        if machine.size != workers:
            raise UsageError(f"the machine has {machine.size} workers, and here are {workers}; {REMEDY}")
        if mode == "dynamic":
            return Dynamic(problem, machine)
        return Static(self.rows, machine.size) if mode == "static" else Combined(problem, machine, self.rows)

    # Files.

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schedule:
        """What `write` wrote. Raises `UsageError` if it cannot be read, `FormatError` naming file and key if wrong."""
        path = os.fspath(path)
        return cls.parse(jsonfile.read(path, "schedule", REMEDY), path)

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: str) -> Schedule:
        """The same of what was read; `path` is for errors."""
        graph, kind = content.get("graph"), content.get("kind")
        expected, machine = number(content.get("expected_s")), content.get("machine")
        if not isinstance(graph, str):
            raise FormatError(f"{path}: graph: not the name of a graph; {REMEDY}")
        if kind not in KINDS:
            raise FormatError(f"{path}: kind: {kind!r} is none of {', '.join(KINDS)}; {REMEDY}")
        if expected is None:
            raise FormatError(f"{path}: expected_s: no number of 0 or more; {REMEDY}")
        if not (machine is None or isinstance(machine, dict)):
            raise FormatError(f"{path}: machine: neither null nor an object as in net.json; {REMEDY}")
        on = Machine.parse(machine, f"{path}: machine", REMEDY) if machine else None
        rows = content.get("vertices")
        if not isinstance(rows, list):
            raise FormatError(f"{path}: vertices: not a list of rows; {REMEDY}")
        planned = [_planned(row, f"{path}: vertices[{n}]", on.size if on else None) for n, row in enumerate(rows)]
        seen: set[str] = set()
        for n, row in enumerate(planned):
            if row.vertex in seen:
                raise FormatError(f"{path}: vertices[{n}].vertex: {row.vertex} is there twice; {REMEDY}")
            seen.add(row.vertex)
        return cls(graph, kind, expected, _sorted(planned), on)

    def as_json(self) -> dict[str, Any]:
        rows = [{"vertex": r.vertex, "worker": r.worker, "begin_s": r.begin_s, "end_s": r.end_s} for r in self.rows]
        machine = self.machine.as_json() if self.machine else None
        return {
            "graph": self.graph, "kind": self.kind, "expected_s": self.expected_s, "machine": machine, "vertices": rows,
        }  # fmt: skip

    def write(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        """In the place of what is there; on error that is as it was."""
        jsonfile.write(disk or Disk(), os.fspath(path), self.as_json())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _sorted(rows: Sequence[Planned]) -> tuple[Planned, ...]:
    return tuple(sorted(rows, key=lambda row: (row.begin_s, row.end_s, row.worker)))


def _planned(row: Any, where: str, workers: int | None) -> Planned:
    if not isinstance(row, dict):
        raise FormatError(f"{where}: not an object; {REMEDY}")
    vertex, worker, begin, end = (
        row.get("vertex"),
        row.get("worker"),
        number(row.get("begin_s")),
        number(row.get("end_s")),
    )
    if not isinstance(vertex, str) or not vertex:
        raise FormatError(f"{where}.vertex: not the name of a vertex; {REMEDY}")
    if not isinstance(worker, int) or isinstance(worker, bool) or worker < 0 or worker >= (workers or 1 << 20):
        many = f", below {workers}, the processors of its machine" if workers else ""
        raise FormatError(f"{where}.worker: {worker!r} is no worker: an integer from 0 on{many}; {REMEDY}")
    if begin is None:
        raise FormatError(f"{where}.begin_s: no number of 0 or more; {REMEDY}")
    if end is None or end < begin:
        raise FormatError(f"{where}.end_s: no number that is not before begin_s; {REMEDY}")
    return Planned(vertex, worker, begin, end)


# Making one.


def plan(
    problem: Problem, machine: Machine, improve_s: float = 0.0, seed: int = 0, progress: Progress | None = None
) -> Schedule:
    """HEFT, and then so many seconds of the genetic algorithm, which cannot make it longer. `progress` gets the number
    of each generation, and the seconds of the best schedule so far."""
    costs = Costs.of(problem, machine)
    order, times = heft(costs)
    kind = HEFT
    if improve_s > 0 and problem.names:
        times = improve(costs, order, times, seconds=improve_s, seed=seed, progress=progress)
        kind = GENETIC
    rows = [
        Planned(name, times.processor[n], times.begin[n], times.end[n]) for n, name in enumerate(problem.names)
    ]  # fmt: skip
    return Schedule(problem.graph, kind, times.whole, _sorted(rows), machine)


def problem(graph: Graph, seconds: Mapping[str, float], sizes: Size) -> Problem:
    """The graph for a plan. What was measured counts, else `weight=` and `size=`.

    Weights of vertices that were never measured are in units of their own: they are multiplied by what a unit of weight
    took in the vertices that were. Bytes of a named output are its own, else those of the whole result.
    """
    vertices = graph.vertices
    known = [name for name in vertices if name in seconds]
    weight = sum(vertices[name].weight for name in known)
    unit = sum(seconds[name] for name in known) / weight if weight > 0 else 1.0
    weights = {name: seconds.get(name, vertex.weight * unit) for name, vertex in vertices.items()}
    edges: dict[tuple[str, str], float] = {}
    for name, vertex in vertices.items():
        for parent, output in {(edge.vertex.name, edge.output): None for edge in vertex.edges}:
            whole = sizes.get((parent, ""), float(vertices[parent].size))
            nbytes = 0.0 if output is None else sizes.get((parent, output), whole)
            edges[parent, name] = edges.get((parent, name), 0.0) + nbytes
    return Problem.make(weights, edges, graph.name)


def measured(directory: str | os.PathLike[str]) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """What an earlier run took, of its last success: seconds of each body; bytes by vertex and output, "" for all.

    `directory` is W, or W/.safepoint.d/tasks. Rows that are torn or strange do not count, and a log that is not
    there is as an empty one. Bytes of named outputs are those of the records.
    """
    from safepoint.tasks.saved import Store

    below = os.path.join(directory, ".safepoint.d", "tasks")
    place = below if os.path.isdir(below) else os.fspath(directory)
    seconds: dict[str, float] = {}
    sizes: dict[tuple[str, str], float] = {}
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        open(os.path.join(place, "log.jsonl"), "rb") as log,
    ):
        for line in log:
            row = _row(line)
            if row.get("event") != "finished" or not isinstance(vertex := row.get("vertex"), str):
                continue
            if (took := number(row.get("body_s"))) is not None:
                seconds[vertex] = took
            if (nbytes := number(row.get("nbytes"))) is not None:
                sizes[vertex, ""] = nbytes
    for record in sorted(Store(place).records().values(), key=lambda record: record.time):
        sizes[record.vertex, ""] = float(record.nbytes)
        sizes.update({(record.vertex, output.name): float(output.nbytes) for output in record.outputs if output.name})
        seconds.setdefault(record.vertex, record.seconds)
    return seconds, sizes


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
