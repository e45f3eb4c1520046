"""Other orders of a function's statements, that an analysis allows."""

from __future__ import annotations

import random
from collections.abc import Iterator

from safepoint.tasks.deps import Analysis


def exchanged(found: Analysis, known: int) -> Iterator[tuple[int, list[int]]]:
    """Each pair of neighbours that is claimed to be independent, the other way round; not of the first `known`."""
    every = list(range(len(found.statements)))
    for first in range(max(known - 1, 0), len(every) - 1):
        if found.independent(first, first + 1):
            yield first, [*every[:first], first + 1, first, *every[first + 2 :]]


def mixed(found: Analysis, seed: int) -> list[int]:
    """Any order in which each statement comes after those that it depends on."""
    rng, left, order = random.Random(seed), set(range(len(found.statements))), list[int]()
    needs = {number: {each.source for each in found.dependences if each.target == number} for number in left}
    while left:
        free = [number for number in sorted(left) if not needs[number] & left]
        order.append(rng.choice(free))
        left.remove(order[-1])
    return order
