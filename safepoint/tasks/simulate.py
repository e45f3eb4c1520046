"""How long would a graph take? One simulator for all that plans, so that its results can be compared.

A `Problem` is the graph: vertices with seconds, edges with bytes. `Costs` is a problem on a machine. In a plan an edge
begins to travel when its vertex ends, also to a processor that is busy; a processor runs one vertex at a time. `place`
puts each vertex, in the order given, into the first gap of its processor that is long enough ("with insertion"). `run`
is the other way: free workers ask a chooser, event by event, as they do under MPI.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from safepoint.errors import GraphError
from safepoint.tasks.machine import Machine

INFINITE = float("inf")


@dataclass(frozen=True)
class Problem:
    """Vertices in the order in which they were added, and for each its parents with the bytes that come from there."""

    graph: str
    names: tuple[str, ...]
    weights: tuple[float, ...]  # seconds of the body at speed 1
    parents: tuple[tuple[tuple[int, float], ...], ...]

    @classmethod
    def make(
        cls, weights: Mapping[str, float], edges: Mapping[tuple[str, str], float] | None = None, graph: str = ""
    ) -> Problem:
        """`weights`: seconds of each vertex; `edges`: bytes from the first vertex to the second."""
        number = {name: n for n, name in enumerate(weights)}
        parents: list[list[tuple[int, float]]] = [[] for _ in number]
        for (source, target), nbytes in (edges or {}).items():
            parents[number[target]].append((number[source], float(nbytes)))
        return cls(graph, tuple(number), tuple(map(float, weights.values())), tuple(map(tuple, parents)))

    @cached_property
    def number(self) -> Mapping[str, int]:
        return {name: n for n, name in enumerate(self.names)}

    @cached_property
    def children(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        found: list[list[tuple[int, float]]] = [[] for _ in self.names]
        for vertex, edges in enumerate(self.parents):
            for parent, nbytes in edges:
                found[parent].append((vertex, nbytes))
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Each after its parents, else as they were added. Raises `GraphError` if there is a cycle."""
        waits = [len(edges) for edges in self.parents]
        free = [vertex for vertex, count in enumerate(waits) if not count]
        found = []
        while free:
            found.append(vertex := heapq.heappop(free))
            for child, _ in self.children[vertex]:
                waits[child] -= 1
                if not waits[child]:
                    heapq.heappush(free, child)
        if len(found) < len(waits):
            left = [self.names[vertex] for vertex, count in enumerate(waits) if count]
            raise GraphError(f"no schedule: {', '.join(left[:8])} wait for each other; nothing was run")
        return tuple(found)


@dataclass(frozen=True)
class Costs:
    """A problem on a machine: seconds of each vertex on each processor, and of each byte on each link."""

    problem: Problem
    durations: Sequence[Sequence[float]]  # [vertex][processor]
    latency_s: Sequence[Sequence[float]]  # [from][to], 0 on the diagonal
    per_byte_s: Sequence[Sequence[float]]

    @classmethod
    def of(cls, problem: Problem, machine: Machine) -> Costs:
        durations = [[weight / speed for speed in machine.speed] for weight in problem.weights]
        size = range(machine.size)
        latency = [[0.0 if p == q else machine.latency_s[p][q] for q in size] for p in size]
        per_byte = [[0.0 if p == q else 1 / machine.bandwidth[p][q] for q in size] for p in size]
        return cls(problem, durations, latency, per_byte)

    @property
    def processors(self) -> int:
        return len(self.latency_s)

    def travel(self, source: int, target: int, nbytes: float) -> float:
        return self.latency_s[source][target] + nbytes * self.per_byte_s[source][target]

    @cached_property
    def bound(self) -> float:
        """No schedule takes less: the longest chain on the fastest processors, and all work on all of them."""
        least = [min(row) for row in self.durations]
        ends = [0.0] * len(least)
        for vertex in self.problem.order:
            edges = self.problem.parents[vertex]
            ends[vertex] = least[vertex] + max((ends[parent] for parent, _ in edges), default=0.0)
        rates: list[float] = []  # of a processor: the share of the least durations that it can do in a second
        for p in range(self.processors):
            rates.append(
                max((low / row[p] for low, row in zip(least, self.durations, strict=True) if row[p]), default=1.0)
            )
        return max(max(ends, default=0.0), sum(least) / sum(rates))


@dataclass(frozen=True)
class Times:
    """Where and when each vertex runs."""

    processor: Sequence[int]
    begin: Sequence[float]
    end: Sequence[float]

    @property
    def whole(self) -> float:
        return max(self.end, default=0.0)


class Gaps:
    """The free time of one processor: intervals in order, the last without an end."""

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest  # gaps below this are of no use to anybody, and are forgotten
        self._begins, self._ends = [0.0], [INFINITE]

    def find(self, ready: float, length: float) -> float:
        """The earliest begin, not before `ready`, of a free interval of this length."""
        begins, ends = self._begins, self._ends
        n = bisect_right(ends, ready)
        begin = max(begins[n], ready)
        while begin + length > ends[n]:
            n += 1
            begin = begins[n]
        return begin

    def take(self, begin: float, end: float) -> None:
        """What `find` gave is no longer free."""
        begins, ends = self._begins, self._ends
        n = bisect_right(begins, begin) - 1
        before, after = (begins[n], begin), (end, ends[n])
        useful = [(b, e) for b, e in (before, after) if e - b >= self._shortest and e > b]
        begins[n : n + 1] = [b for b, _ in useful]
        ends[n : n + 1] = [e for _, e in useful]


def gaps(costs: Costs) -> list[Gaps]:
    """Of each processor, when nothing has been placed."""
    rows = costs.durations
    return [Gaps(min((row[p] for row in rows if row[p]), default=0.0)) for p in range(costs.processors)]


def arrival(costs: Costs, vertex: int, processor: int, at: Sequence[int], end: Sequence[float]) -> float:
    """When all inputs of a vertex are at this processor."""
    latest = 0.0
    latency, per_byte = costs.latency_s, costs.per_byte_s
    for parent, nbytes in costs.problem.parents[vertex]:
        source = at[parent]
        time = end[parent] + latency[source][processor] + nbytes * per_byte[source][processor]
        if time > latest:
            latest = time
    return latest


def place(costs: Costs, order: Iterable[int], processor: Sequence[int]) -> Times:
    """Vertices in this order, each after its parents, into the first fitting gap of the processor that each has."""
    free = gaps(costs)
    begin, end = [0.0] * len(processor), [0.0] * len(processor)
    for vertex in order:
        where = processor[vertex]
        length = costs.durations[vertex][where]
        start = free[where].find(arrival(costs, vertex, where, processor, end), length)
        begin[vertex], end[vertex] = start, start + length
        if end[vertex] > start:  # a length may be too small to count
            free[where].take(start, start + length)
    return Times(tuple(processor), begin, end)


class Chooser(Protocol):
    """Who says what a free worker does next; see `choosing`."""

    def made(self, vertex: str, worker: int | None) -> None:
        """It has finished there; None: its result is in the store alone."""

    def lost(self, vertex: str) -> None:
        """It has failed, or its worker has died. If it is ready again it may be chosen again."""

    def choose(self, worker: int, ready: Collection[str]) -> str | None:
        """For a free worker: one of those that are ready, which the caller then takes out of these; or none."""


def run(costs: Costs, chooser: Chooser, *, ahead: bool = False, planned: Sequence[int] = ()) -> Times:
    """Event by event: each free worker is asked as soon as anything ended, those with small numbers first.

    Inputs travel when a worker has taken the vertex. With `ahead` they set out as soon as they are made, to the worker
    of `planned`; if another one takes the vertex they set out then. Stops if nobody takes what is ready.
    """
    problem = costs.problem
    waits = [len(edges) for edges in problem.parents]
    ready = {problem.names[vertex]: None for vertex, count in enumerate(waits) if not count}
    at, begin, end = [-1] * len(waits), [0.0] * len(waits), [0.0] * len(waits)
    idle = list(range(costs.processors))
    events: list[tuple[float, int, int]] = []  # time, worker, vertex that ends
    now = 0.0
    while True:
        for worker in list(idle):
            name = chooser.choose(worker, ready)
            if name is None:
                continue
            del ready[name]
            idle.remove(worker)
            vertex = problem.number[name]
            at[vertex] = worker
            if ahead and planned[vertex] == worker:
                begin[vertex] = max(now, arrival(costs, vertex, worker, at, end))
            else:
                edges = problem.parents[vertex]
                begin[vertex] = now + max((costs.travel(at[p], worker, nbytes) for p, nbytes in edges), default=0.0)
            end[vertex] = begin[vertex] + costs.durations[vertex][worker]
            heapq.heappush(events, (end[vertex], worker, vertex))
        if not events:
            if ready:
                raise GraphError(f"no worker takes {', '.join(list(ready)[:8])}: the schedule does not fit the graph")
            return Times(tuple(at), begin, end)
        now = events[0][0]
        while events and events[0][0] <= now:
            _, worker, vertex = heapq.heappop(events)
            chooser.made(problem.names[vertex], worker)
            idle.append(worker)
            for child, _ in problem.children[vertex]:
                waits[child] -= 1
                if not waits[child]:
                    ready[problem.names[child]] = None
        idle.sort()
