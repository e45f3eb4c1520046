"""What a free worker does next: `Dynamic`, `Static` and `Combined`, as the MPI coordinator and the simulator ask them.

A coordinator keeps `ready`: a dict (or a collection with a fast `in`) of the names of vertices that may run. It asks
`choose(worker, ready)`, takes the answer out of `ready`, and tells how that ended: `made` or `lost`. A vertex that had
finished before the run is told as `made(vertex, None)`. Workers are numbered from 0; under MPI worker w is rank w + 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Reversible, Sequence
from typing import NamedTuple

from safepoint.tasks.machine import Machine
from safepoint.tasks.simulate import Problem

Entry = tuple[float, int, int]  # cost, vertex, which turn of it
NEAR = 1.05  # costs that differ by less are as good as equal, and so much of the whole plan is no delay
FEW = 16  # so many of the vertices that are late are compared


class Planned(NamedTuple):
    """One row of a schedule."""

    vertex: str
    worker: int
    begin_s: float
    end_s: float


class _Waiting:
    """Which of the ready are known already, each with a turn of its own."""

    def __init__(self) -> None:
        self._turn: dict[str, int] = {}
        self._turns = 0

    def new(self, ready: Collection[str]) -> Iterator[tuple[str, int]]:
        """What has come since. In a dict that are the last ones, so no time is spent that grows with `ready`."""
        missing = len(ready) - len(self._turn)
        if missing <= 0:
            return
        for name in reversed(ready) if isinstance(ready, Reversible) else ready:
            if name not in self._turn:
                self._turns += 1
                self._turn[name] = self._turns
                yield name, self._turns
                missing -= 1
                if not missing:
                    return

    def holds(self, name: str, turn: int, ready: Collection[str]) -> bool:
        """Whether it still waits since then. What the caller has taken out without being given it is forgotten."""
        if self._turn.get(name) != turn:
            return False
        if name in ready:
            return True
        del self._turn[name]
        return False

    def take(self, name: str) -> None:
        self._turn.pop(name, None)


class Where:
    """Where results are, and what it costs to bring them to a worker: weight / speed + slowest input edge."""

    def __init__(self, problem: Problem, machine: Machine) -> None:
        self.problem, self.machine = problem, machine
        self._worker: list[int | None] = [None] * len(problem.names)

    def made(self, vertex: str, worker: int | None) -> None:
        self._worker[self.problem.number[vertex]] = worker

    def sources(self, vertex: int) -> dict[int, float]:
        """The workers that have inputs of this vertex, each with the bytes of its largest. What is in the store alone
        costs each worker the same, and is left out."""
        found: dict[int, float] = {}
        for parent, nbytes in self.problem.parents[vertex]:
            if (source := self._worker[parent]) is not None:
                found[source] = max(found.get(source, 0.0), nbytes)
        return found

    def cost(self, vertex: int, worker: int, sources: dict[int, float]) -> float:
        travel = max((self.machine.seconds(each, worker, nbytes) for each, nbytes in sources.items()), default=0.0)
        return self.problem.weights[vertex] / self.machine.speed[worker] + travel


class Dynamic:
    """The ready vertex with the least weight / speed + slowest input edge; ties in the order of the graph.

    When a vertex becomes ready all its inputs are somewhere, so its cost for each worker is known from then on. Workers
    with equal speed and links share a heap; one that has inputs of the vertex is cheaper, so it has a heap of its own.
    """

    def __init__(self, problem: Problem, machine: Machine) -> None:
        alike = machine.alike
        self._where, self._waiting = Where(problem, machine), _Waiting()
        self._kind = [(speed, -1 if alike else worker) for worker, speed in enumerate(machine.speed)]
        self._same: dict[tuple[float, int], list[int]] = {}
        for worker, kind in enumerate(self._kind):
            self._same.setdefault(kind, []).append(worker)
        self._shared: dict[tuple[float, int], list[Entry]] = {kind: [] for kind in self._same}
        self._own: list[list[Entry]] = [[] for _ in machine.speed]

    def made(self, vertex: str, worker: int | None) -> None:
        self._where.made(vertex, worker)

    def lost(self, vertex: str) -> None:
        """Nothing to do: it is new when it is ready again."""

    def choose(self, worker: int, ready: Collection[str]) -> str | None:
        self._notice(ready)
        name = self._cheapest(worker, ready)
        if name is None and ready:  # the caller has taken others out, and they were counted
            self._notice(ready)
            name = self._cheapest(worker, ready)
        return name

    def _cheapest(self, worker: int, ready: Collection[str]) -> str | None:
        shared, own = self._shared[self._kind[worker]], self._own[worker]
        while shared or own:
            heap = own if not shared or (own and own[0] < shared[0]) else shared
            _, vertex, turn = heapq.heappop(heap)
            name = self._where.problem.names[vertex]
            if self._waiting.holds(name, turn, ready):
                self._waiting.take(name)
                return name
        return None

    def _notice(self, ready: Collection[str]) -> None:
        for name, turn in self._waiting.new(ready):
            vertex = self._where.problem.number[name]
            sources = self._where.sources(vertex)
            for kind, workers in self._same.items():
                stranger = next((worker for worker in workers if worker not in sources), None)
                if stranger is not None or len(workers) == 1:
                    worker = workers[0] if stranger is None else stranger
                    entry = self._where.cost(vertex, worker, sources), vertex, turn
                    heapq.heappush(self._shared[kind], entry)
            for worker in sources:
                if len(self._same[self._kind[worker]]) > 1:
                    heapq.heappush(self._own[worker], (self._where.cost(vertex, worker, sources), vertex, turn))


class Static:
    """A worker takes its next vertex of the schedule, and waits while that is not ready.

    Failed vertices are passed over. What waits for one of them stands in nobody's way for ever: if nothing runs, and
    nobody's next vertex is ready, the earliest of the schedule that is ready is taken.
    """

    def __init__(self, plan: Sequence[Planned], workers: int) -> None:
        self._plan = {row.vertex: row for row in plan}
        self._queues: list[list[Planned]] = [[] for _ in range(workers)]
        for row in sorted(plan, key=lambda row: (row.begin_s, row.end_s)):
            self._queues[row.worker].append(row)
        self._at = [0] * workers  # where each is in its queue
        self._again: list[list[str]] = [[] for _ in range(workers)]  # lost, before what is in the queue
        self._passed: set[str] = set()  # given to somebody, made or lost
        self._running: set[str] = set()

    def made(self, vertex: str, worker: int | None) -> None:
        self._passed.add(vertex)
        self._running.discard(vertex)

    def lost(self, vertex: str) -> None:
        self._running.discard(vertex)
        self._passed.add(vertex)
        if vertex in self._plan:
            self._again[self._plan[vertex].worker].append(vertex)

    def choose(self, worker: int, ready: Collection[str]) -> str | None:
        name = self._mine(worker, ready)
        if name is None and ready and not self._running:
            name = self._stuck(ready)
        return None if name is None else self._give(name)

    def _give(self, name: str) -> str:
        self._passed.add(name)
        self._running.add(name)
        return name

    def _mine(self, worker: int, ready: Collection[str]) -> str | None:
        """The next of this worker, if it is ready."""
        for name in self._again[worker]:
            if name in ready:
                self._again[worker].remove(name)
                return name
        head = self._head(worker)
        return head.vertex if head and head.vertex in ready else None

    def _head(self, worker: int) -> Planned | None:
        queue = self._queues[worker]
        while self._at[worker] < len(queue) and queue[self._at[worker]].vertex in self._passed:
            self._at[worker] += 1
        return queue[self._at[worker]] if self._at[worker] < len(queue) else None

    def _stuck(self, ready: Collection[str]) -> str | None:
        for worker in range(len(self._queues)):
            head = self._head(worker)
            if (head and head.vertex in ready) or any(name in ready for name in self._again[worker]):
                return None  # that worker will ask
        name = min(ready, key=lambda name: self._plan[name].begin_s if name in self._plan else float("inf"))
        for again in self._again:
            if name in again:
                again.remove(name)
        return name


class Combined(Static):
    """The next vertex of the schedule; while that is not ready, the dynamic choice of those that are late elsewhere.

    How far the plan should be is told by the others: by the latest planned end of all that has finished. A ready vertex
    is late if it was to begin before that by more than 5 % of the plan. So units do not matter: if all is slower than
    planned nothing is late, and if all goes as planned the plan is followed. Of the late ones the cheapest is taken,
    near ties (5 %) by the schedule, unless its own worker would likely end it sooner.
    """

    def __init__(self, problem: Problem, machine: Machine, plan: Sequence[Planned]) -> None:
        super().__init__(plan, machine.size)
        self._where, self._waiting = Where(problem, machine), _Waiting()
        self._heap: list[tuple[float, int, int]] = []  # planned begin, vertex, turn
        self._margin_s = (NEAR - 1) * max((row.end_s for row in plan), default=0.0)
        self._reached_s = 0.0
        self._busy: dict[int, str] = {}

    def made(self, vertex: str, worker: int | None) -> None:
        super().made(vertex, worker)
        self._where.made(vertex, worker)
        if worker is not None and vertex in self._plan:
            self._reached_s = max(self._reached_s, self._plan[vertex].end_s)

    def choose(self, worker: int, ready: Collection[str]) -> str | None:
        for each, turn in self._waiting.new(ready):
            begin = self._plan[each].begin_s if each in self._plan else 0.0
            heapq.heappush(self._heap, (begin, self._where.problem.number[each], turn))
        name = self._mine(worker, ready) or self._late(worker, ready)
        if name is None and ready and not self._running:
            name = self._stuck(ready)
        if name is None:
            return None
        self._waiting.take(name)
        self._busy[worker] = name
        return self._give(name)

    def _late(self, worker: int, ready: Collection[str]) -> str | None:
        latest = self._reached_s - self._margin_s
        late: list[tuple[float, int, int]] = []
        while self._heap and self._heap[0][0] < latest and len(late) < FEW:
            entry = heapq.heappop(self._heap)
            if self._waiting.holds(self._where.problem.names[entry[1]], entry[2], ready):
                late.append(entry)
        for entry in late:
            heapq.heappush(self._heap, entry)
        costs = []
        for begin, vertex, _ in late:
            cost = self._where.cost(vertex, worker, self._where.sources(vertex))
            if cost <= self._elsewhere(vertex, worker):
                costs.append((cost, begin, vertex))
        if not costs:
            return None
        least = min(costs)[0]
        chosen = min((begin, vertex) for cost, begin, vertex in costs if cost <= least * NEAR)[1]
        return self._where.problem.names[chosen]

    def _elsewhere(self, vertex: int, worker: int) -> float:
        """Until its own worker would have it, at most: what that runs, and what comes before in its queue."""
        name = self._where.problem.names[vertex]
        row = self._plan.get(name)
        if row is None or row.worker == worker:
            return float("inf")
        total = self._where.cost(vertex, row.worker, self._where.sources(vertex))
        running = self._busy.get(row.worker)
        if running in self._running and running in self._plan:
            total += (
                self._where.problem.weights[self._where.problem.number[running]] / self._where.machine.speed[row.worker]
            )
        queue = self._queues[row.worker]
        for n in range(self._at[row.worker], min(self._at[row.worker] + FEW, len(queue))):
            if queue[n].vertex == name:
                break
            if queue[n].vertex not in self._passed:
                total += queue[n].end_s - queue[n].begin_s
        return total
