"""Graphs and machines at random, for schedules; `benchmarks/schedules.py` draws the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from safepoint.tasks.choosing import Planned
from safepoint.tasks.machine import Machine
from safepoint.tasks.simulate import Costs, Problem, Times


def graph(rng: random.Random, vertices: int, width: int, travel: float) -> Problem:
    """Each vertex has up to three parents among the `width` before it. An edge takes `travel` times as long
    as a vertex, on a link of 1 GB/s."""
    names = [f"v{n}" for n in range(vertices)]
    weights = {name: rng.uniform(0.2, 2) for name in names}
    edges: dict[tuple[str, str], float] = {}
    for n in range(1, vertices):
        for parent in rng.sample(range(max(0, n - width), n), min(n, width, rng.randint(0, 3))):
            edges[names[parent], names[n]] = rng.uniform(0.2, 2) * travel * 1e9
    return Problem.make(weights, edges, "drawn")


def machine(rng: random.Random, processors: int, spread: float) -> Machine:
    """Speeds and links that differ by up to `spread` from their mean, in each direction."""

    def drawn() -> tuple[float, ...]:
        return tuple(rng.uniform(1 - spread, 1 + spread) for _ in range(processors))

    speed = drawn()
    mean = sum(speed) / processors
    bandwidth = tuple(tuple(1e9 * each for each in drawn()) for _ in range(processors))
    return Machine(tuple(each / mean for each in speed), ((1e-4,) * processors,) * processors, bandwidth)


def rows(problem: Problem, times: Times) -> list[Planned]:
    return [Planned(name, times.processor[n], times.begin[n], times.end[n]) for n, name in enumerate(problem.names)]


def wrong(costs: Costs, times: Times) -> list[str]:
    """What could not be so: two vertices on one processor at once, or one that begins before its inputs are there."""
    found, slack = [], 1e-9 * (1 + times.whole)
    for vertex, name in enumerate(costs.problem.names):
        where, begin, end = times.processor[vertex], times.begin[vertex], times.end[vertex]
        if begin < 0 or abs(end - begin - costs.durations[vertex][where]) > slack:
            found.append(f"{name} takes {end - begin}")
        for parent, nbytes in costs.problem.parents[vertex]:
            if begin < times.end[parent] + costs.travel(times.processor[parent], where, nbytes) - slack:
                found.append(f"{name} begins before {costs.problem.names[parent]} is there")
    for processor in range(costs.processors):
        here = sorted((times.begin[v], times.end[v]) for v, at in enumerate(times.processor) if at == processor)
        here = [(begin, end) for begin, end in here if end > begin]
        found += [f"processor {processor}: two at {b[0]}" for a, b in itertools.pairwise(here) if b[0] < a[1] - slack]
    return found


def slowed(costs: Costs, factor: Sequence[float]) -> Costs:
    """The same with other durations than those that were planned with: each processor by a factor."""
    durations = [[seconds * factor[p] for p, seconds in enumerate(row)] for row in costs.durations]
    return Costs(costs.problem, durations, costs.latency_s, costs.per_byte_s)
