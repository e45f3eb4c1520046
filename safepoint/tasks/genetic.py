"""A genetic algorithm that makes a schedule shorter. It begins with that of HEFT and keeps the best: it only improves.

A chromosome has for each vertex a processor and a number; `place` takes the vertices by these numbers, each after its
parents. The first ones are HEFT's, and what HEFT gives with its order disturbed. Children are made by one-point
crossover, mutants by moving a vertex, renumbering it, or both; parents stay. Selection is by time with a random penalty
of up to 5 %; the best is exempt. The end is a time limit, GENERATIONS without gain, or a schedule as short as the lower
bound.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from safepoint.tasks.heft import earliest
from safepoint.tasks.simulate import Costs, Times, place

POPULATION, GENERATIONS, PENALTY = 24, 50, 0.05
DISTURBED = (0.01, 0.05, 0.2)  # by so much of the length of the order
NEAR = 1e-9  # relative; what is nearer to the bound cannot be made shorter
Progress = Callable[[int, float], None]  # generation, and seconds of the best schedule


@dataclass(frozen=True)
class Chromosome:
    processor: tuple[int, ...]
    number: tuple[float, ...]
    seconds: float


def improve(
    costs: Costs,
    order: list[int],
    start: Times,
    *,
    seconds: float = float("inf"),
    seed: int = 0,
    progress: Progress | None = None,
) -> Times:
    """A schedule that takes no longer than `start`, whose vertices were placed in `order`. The same for the same seed,
    unless the time ends it."""
    return _Search(costs, order, start, seconds, seed).best(progress)


class _Search:
    def __init__(self, costs: Costs, order: list[int], start: Times, seconds: float, seed: int) -> None:
        self._costs, self._random = costs, random.Random(seed)
        self._until = time.monotonic() + seconds
        self._bound = costs.bound * (1 + NEAR)
        self._start = start
        numbers = [0.0] * len(order)
        for n, vertex in enumerate(order):
            numbers[vertex] = float(n)
        self._first = Chromosome(tuple(start.processor), tuple(numbers), start.whole)
        self._waits = [len(edges) for edges in costs.problem.parents]

    def best(self, progress: Progress | None) -> Times:
        people = [self._first, *self._neighbours()]
        best, generation, gained = min(people, key=lambda each: each.seconds), 0, 0
        while not self._over(best) and generation - gained < GENERATIONS:
            generation += 1
            people += self._born(people)
            newest = min(people, key=lambda each: each.seconds)
            if newest.seconds < best.seconds:
                best, gained = newest, generation
            people = self._selected(people, best)
            if progress:
                progress(generation, best.seconds)
        if best is self._first:
            return self._start
        return place(self._costs, self._sequence(best.number), best.processor)

    def _over(self, best: Chromosome) -> bool:
        return best.seconds <= self._bound or time.monotonic() >= self._until

    def _neighbours(self) -> Iterator[Chromosome]:
        size = len(self._first.number)
        for _ in range(POPULATION - 1):
            if self._over(self._first):
                return
            spread = self._random.choice(DISTURBED)
            jitter = [n + self._random.uniform(-spread, spread) * size for n in self._first.number]
            order = self._sequence(jitter)
            times = earliest(self._costs, order)
            number = [0.0] * size
            for n, vertex in enumerate(order):
                number[vertex] = float(n)
            yield Chromosome(tuple(times.processor), tuple(number), times.whole)

    def _born(self, people: list[Chromosome]) -> list[Chromosome]:
        """Half of them by crossover, half by mutation; fewer if the time ends."""
        born: list[Chromosome] = []
        for n in range(POPULATION):
            if born and time.monotonic() >= self._until:
                break
            one = self._random.choice(people)
            if n % 2 and len(people) > 1:
                born.append(self._crossed(one, self._random.choice(people)))
            else:
                born.append(self._mutant(one))
        return born

    def _crossed(self, one: Chromosome, other: Chromosome) -> Chromosome:
        """The first vertices of the graph as in one parent, the rest as in the other."""
        order = self._costs.problem.order
        processor, number = list(one.processor), list(one.number)
        for vertex in order[self._random.randrange(len(order)) :]:
            processor[vertex], number[vertex] = other.processor[vertex], other.number[vertex]
        return self._judged(processor, number)

    def _mutant(self, of: Chromosome) -> Chromosome:
        processor, number = list(of.processor), list(of.number)
        size = len(number)
        for _ in range(1 + int(self._random.expovariate(1.0))):
            vertex, what = self._random.randrange(size), self._random.randrange(3)
            if what != 1:
                processor[vertex] = self._random.randrange(self._costs.processors)
            if what != 0:  # near to where it was, or anywhere
                spread = self._random.choice((3.0, size / 10 + 1, float(size)))
                number[vertex] += self._random.uniform(-spread, spread)
        return self._judged(processor, number)

    def _judged(self, processor: list[int], number: list[float]) -> Chromosome:
        whole = place(self._costs, self._sequence(number), processor).whole
        return Chromosome(tuple(processor), tuple(number), whole)

    def _sequence(self, number: list[float] | tuple[float, ...]) -> list[int]:
        """All vertices by their numbers, each after its parents."""
        waits, children = self._waits.copy(), self._costs.problem.children
        free = [(number[vertex], vertex) for vertex, count in enumerate(waits) if not count]
        heapq.heapify(free)
        found = []
        while free:
            _, vertex = heapq.heappop(free)
            found.append(vertex)
            for child, _ in children[vertex]:
                waits[child] -= 1
                if not waits[child]:
                    heapq.heappush(free, (number[child], child))
        return found

    def _selected(self, people: list[Chromosome], best: Chromosome) -> list[Chromosome]:
        others = [each for each in people if each is not best]
        weighed = [each.seconds * (1 + self._random.uniform(0, PENALTY)) for each in others]
        ranked = sorted(range(len(others)), key=weighed.__getitem__)
        return [best, *(others[n] for n in ranked[: POPULATION - 1])]
