"""HEFT: heterogeneous earliest finish time (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002, 260-274).

Vertices by upward rank: the longest way to an end, with mean durations and mean links. Each goes to the processor on
which it ends first, in the first gap that is long enough.
"""

from __future__ import annotations

from safepoint.tasks.simulate import Costs, Times, gaps


def ranks(costs: Costs) -> list[float]:
    """The upward rank of each vertex, in seconds."""
    count = costs.processors
    pairs = max(count * (count - 1), 1)
    latency = sum(map(sum, costs.latency_s)) / pairs
    per_byte = sum(map(sum, costs.per_byte_s)) / pairs
    found = [0.0] * len(costs.durations)
    for vertex in reversed(costs.problem.order):
        below = [latency + nbytes * per_byte + found[child] for child, nbytes in costs.problem.children[vertex]]
        found[vertex] = sum(costs.durations[vertex]) / count + max(below, default=0.0)
    return found


def heft(costs: Costs) -> tuple[list[int], Times]:
    """The order in which vertices were placed, and where and when they run."""
    rank = ranks(costs)
    # Ties in the order of the graph: a parent has never less than its child, and may have the same. What differs by a
    # rounding error is a tie.
    longest = max(rank, default=0.0) or 1.0
    position = {vertex: n for n, vertex in enumerate(costs.problem.order)}
    order = sorted(costs.problem.order, key=lambda vertex: (-round(rank[vertex] / longest * 1e12), position[vertex]))
    return order, earliest(costs, order)


def earliest(costs: Costs, order: list[int]) -> Times:
    """Vertices in this order, each where it ends first."""
    free, size = gaps(costs), len(order)
    at, begin, end = [0] * size, [0.0] * size, [0.0] * size
    for vertex in order:
        inputs = [(at[parent], end[parent], nbytes) for parent, nbytes in costs.problem.parents[vertex]]
        best, chosen, start = float("inf"), 0, 0.0
        for processor, length in enumerate(costs.durations[vertex]):
            ready = 0.0
            for source, ended, nbytes in inputs:
                time = ended + costs.latency_s[source][processor] + nbytes * costs.per_byte_s[source][processor]
                if time > ready:
                    ready = time
            if ready + length < best:
                found = free[processor].find(ready, length)
                if found + length < best:
                    best, chosen, start = found + length, processor, found
        at[vertex], begin[vertex], end[vertex] = chosen, start, best
        if best > start:
            free[chosen].take(start, best)
    return Times(tuple(at), begin, end)
