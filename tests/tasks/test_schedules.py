"""Schedules in the simulator: HEFT as published and as others have it, and a genetic algorithm that only improves."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.counted_work import assert_linear
from testbed.drawn_problems import graph, machine, wrong
from testbed.sweep import LONG, PROOF, many

from safepoint.errors import GraphError
from safepoint.tasks import genetic
from safepoint.tasks.genetic import GENERATIONS, improve
from safepoint.tasks.heft import earliest, heft, ranks
from safepoint.tasks.machine import Machine
from safepoint.tasks.schedule import plan
from safepoint.tasks.simulate import Costs, Gaps, Problem, Times, place

# Topcuoglu, Hariri, Wu 2002, figure 2 and table 3: ten vertices on three processors.
SECONDS = [
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
]  # fmt: skip
EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27,
    (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip
RANKS = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
SEEDS = range(40 if LONG else 5 if PROOF else 2)


def published() -> Costs:
    edges = {(str(a), str(b)): float(size) for (a, b), size in EDGES.items()}
    problem = Problem.make({str(n): 1.0 for n in range(1, 11)}, edges)
    links = [[float(p != q) for q in range(3)] for p in range(3)]
    return Costs(problem, SECONDS, [[0.0] * 3] * 3, links)


def drawn(seed: int, vertices: int = 25, processors: int = 4) -> Costs:
    rng = random.Random(seed)
    problem = graph(rng, vertices, rng.choice((3, 8, 20)), rng.choice((0.01, 0.3, 1.0)))
    return Costs.of(problem, machine(rng, processors, rng.choice((0.0, 0.5, 0.8))))


def best_of_all(costs: Costs) -> float:
    """The shortest schedule without a gap that could be closed: all orders, on all processors."""
    size, found = len(costs.problem.names), float("inf")
    for order in itertools.permutations(range(size)):
        at = {vertex: n for n, vertex in enumerate(order)}
        if all(at[parent] < at[v] for v, edges in enumerate(costs.problem.parents) for parent, _ in edges):
            for processors in itertools.product(range(costs.processors), repeat=size):
                found = min(found, by_force(costs, order, processors).whole)
    return found


def by_force(costs: Costs, order: tuple[int, ...], processors: tuple[int, ...]) -> Times:
    """As `place`, in words: of all moments at which something is free or there, the first at which it fits."""
    begin, end = [0.0] * len(order), [0.0] * len(order)
    placed: list[int] = []
    for vertex in order:
        where = processors[vertex]
        length = costs.durations[vertex][where]
        inputs = [end[p] + costs.travel(processors[p], where, nbytes) for p, nbytes in costs.problem.parents[vertex]]
        ready = max(inputs, default=0.0)
        there = [(begin[v], end[v]) for v in placed if processors[v] == where]
        moments = sorted(moment for moment in (ready, *(e for _, e in there)) if moment >= ready)
        begin[vertex] = next(t for t in moments if all(t + length <= b or t >= e for b, e in there))
        end[vertex] = begin[vertex] + length
        placed.append(vertex)
    return Times(processors, begin, end)


def test_heft_gives_the_published_schedule_of_the_published_example() -> None:
    costs = published()
    order, times = heft(costs)
    assert [round(each, 3) for each in ranks(costs)] == RANKS
    assert [vertex + 1 for vertex in order] == [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]
    assert times.whole == 80
    assert wrong(costs, times) == []


def test_the_genetic_algorithm_improves_the_published_example() -> None:
    costs = published()
    order, times = heft(costs)
    better = improve(costs, order, times, seed=1)
    assert wrong(costs, better) == [] and costs.bound <= better.whole < 80


@pytest.mark.parametrize("seed", SEEDS)
def test_heft_is_that_of_anrg_saga(seed: int) -> None:
    """Saga counts the links of processors to themselves into the mean, so it is given their order of ranks."""
    saga = pytest.importorskip("saga", reason="compares with another implementation: pip install anrg-saga")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from saga.schedulers.heft import HeftScheduler

    rng = random.Random(seed)
    count = rng.randint(2, 5)
    problem = graph(rng, 30, 8, 0.5)
    speeds = [rng.uniform(0.5, 2) for _ in range(count)]
    mean = sum(speeds) / count
    rates = {(p, q): rng.uniform(0.3, 2) * 1e9 for p in range(count) for q in range(p + 1, count)}
    links = tuple(tuple(rates.get((min(p, q), max(p, q)), 1.0) for q in range(count)) for p in range(count))
    costs = Costs.of(problem, Machine(tuple(s / mean for s in speeds), ((0.0,) * count,) * count, links))
    less = (count - 1) / (count + 1)
    theirs = Costs(
        problem, costs.durations, costs.latency_s, [[each * less for each in row] for row in costs.per_byte_s]
    )
    network = saga.Network.create(
        [(f"p{p}", speeds[p] / mean) for p in range(count)],
        [(f"p{p}", f"p{q}", rate) for (p, q), rate in rates.items()],
    )
    edges = [(problem.names[p], problem.names[v], n) for v, all_ in enumerate(problem.parents) for p, n in all_]
    tasks = list(zip(problem.names, problem.weights, strict=True))
    whole = HeftScheduler().schedule(network, saga.TaskGraph.create(tasks, edges)).makespan
    assert earliest(costs, heft(theirs)[0]).whole == pytest.approx(whole, rel=1e-9)
    assert heft(costs)[1].whole <= 1.25 * whole


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simulator_places_as_a_reading_by_force_does(seed: int) -> None:
    costs, rng = drawn(seed), random.Random(seed)
    for _ in range(5):
        processors = tuple(rng.randrange(costs.processors) for _ in costs.problem.names)
        number = [rng.random() for _ in processors]
        order: list[int] = []
        for vertex in sorted(costs.problem.order, key=number.__getitem__):
            order += [each for each in with_parents(costs, vertex) if each not in order]
        expected = by_force(costs, tuple(order), processors)
        assert place(costs, order, processors).begin == pytest.approx(expected.begin)


def with_parents(costs: Costs, vertex: int) -> list[int]:
    found: list[int] = []
    for parent, _ in costs.problem.parents[vertex]:
        found += [each for each in with_parents(costs, parent) if each not in found]
    return [*found, vertex]


def test_on_small_graphs_the_best_of_all_schedules_is_nearly_always_found() -> None:
    """And nothing is shorter than it, but the lower bound."""
    found = []
    for seed in SEEDS:
        costs = drawn(seed, 6 if LONG else 5, 2)
        order, times = heft(costs)
        best = best_of_all(costs)
        better = improve(costs, order, times, seed=seed).whole
        assert costs.bound <= best * (1 + 1e-9) and best <= better * (1 + 1e-9)
        found.append(better <= best * (1 + 1e-9))
    assert sum(found) >= 0.9 * len(found), found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_genetic_algorithm_is_never_worse_than_heft_and_the_same_for_the_same_seed(seed: int) -> None:
    costs = drawn(seed)
    order, times = heft(costs)
    seen: list[tuple[int, float]] = []
    better = improve(costs, order, times, seed=seed, progress=lambda n, best: seen.append((n, best)))
    assert wrong(costs, better) == [] and costs.bound * (1 - 1e-9) <= better.whole <= times.whole
    assert better == improve(costs, order, times, seed=seed)
    bests = [best for _, best in seen]
    assert bests == sorted(bests, reverse=True)
    if seen:
        assert [n for n, _ in seen] == list(range(1, len(seen) + 1)) and bests[-1] == better.whole
        last_gain = next(n for n, best in seen if best == bests[-1])
        assert better.whole <= costs.bound * (1 + 1e-9) or len(seen) - last_gain <= GENERATIONS


def test_the_genetic_algorithm_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a generation, too. The clock goes on by a second with each schedule that is tried."""
    costs, tried, seen = drawn(1, 60, 4), list[object](), list[int]()
    order, times = heft(costs)
    monkeypatch.setattr(genetic, "place", lambda *given: tried.append(given) or place(*given))
    monkeypatch.setattr(genetic, "earliest", lambda *given: tried.append(given) or earliest(*given))
    monkeypatch.setattr(genetic, "time", SimpleNamespace(monotonic=lambda: float(len(tried))))
    for seconds in (0.0, 10.0, 30.0):
        tried.clear()
        better = improve(costs, order, times, seconds=seconds, progress=lambda n, best: seen.append(n))
        assert better.whole <= times.whole and seconds <= len(tried) <= seconds + 2
        assert seconds or (better == times and seen == [])


def test_the_genetic_algorithm_has_nothing_to_do_at_the_critical_path() -> None:
    problem = Problem.make({"a": 1.0, "b": 2.0}, {("a", "b"): 8.0})
    seen: list[int] = []
    made = plan(problem, Machine.equal(3), improve_s=60, progress=lambda n, best: seen.append(n))
    assert made.expected_s == 3 and made.kind == "genetic" and seen == []


WEIGHTS = st.floats(0, 10, allow_subnormal=False)


@st.composite
def problems(draw: st.DrawFn) -> Costs:
    size, count = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    weights = {f"v{n}": draw(WEIGHTS) for n in range(size)}
    pairs = [(p, v) for v in range(size) for p in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    edges = {(f"v{p}", f"v{v}"): draw(WEIGHTS) for p, v in chosen}
    row = st.lists(st.floats(0.1, 10), min_size=count, max_size=count).map(tuple)
    speed, links = draw(row), tuple(draw(row) for _ in range(count))
    latency = tuple(tuple(each / 10 for each in draw(row)) for _ in range(count))
    return Costs.of(Problem.make(weights, edges), Machine(speed, latency, links))


@settings(max_examples=2000 if LONG else many(80), derandomize=not LONG)
@given(problems(), st.integers(0, 99))
def test_no_schedule_has_two_vertices_at_once_or_an_input_that_is_not_there(costs: Costs, seed: int) -> None:
    order, times = heft(costs)
    assert wrong(costs, times) == []
    assert place(costs, order, times.processor) == times
    assert costs.bound <= times.whole * (1 + 1e-9)
    better = improve(costs, order, times, seed=seed, seconds=0.005)
    assert wrong(costs, better) == [] and better.whole <= times.whole


@pytest.mark.parametrize("width", [20, 100])
def test_a_plan_costs_as_much_as_its_vertices_and_edges(width: int) -> None:
    """benchmarks/schedules.py has the seconds for ten thousand on eight processors."""

    def planned(count: int) -> Callable[[], object]:
        rng = random.Random(1)
        costs = Costs.of(graph(rng, count, width, 0.1), machine(rng, 8, 0.5))
        return lambda: heft(costs)

    assert_linear(planned, 400)


def test_a_vertex_too_short_to_count_is_in_nobodys_way() -> None:
    problem = Problem.make({"a": 1.0, "b": 1e-140, "c": 4.0}, {("a", "b"): 1.0})
    costs = Costs.of(problem, Machine.equal(1))
    assert place(costs, [0, 1, 2], [0, 0, 0]).whole == heft(costs)[1].whole == 5.0
    costs = Costs.of(problem, Machine.equal(2, 1.0, 1.0))
    assert place(costs, [0, 1, 2], [0, 1, 1]) == Times((0, 1, 1), [0.0, 3.0, 0.0], [1.0, 3.0, 4.0])


def test_a_gap_is_filled_and_what_is_left_of_it_too() -> None:
    gaps = Gaps(0.5)
    gaps.take(4.0, 6.0)
    assert gaps.find(0.0, 3.0) == 0.0 and gaps.find(2.0, 3.0) == 6.0 and gaps.find(4.5, 1.0) == 6.0
    gaps.take(0.0, 3.0)
    assert gaps.find(0.0, 1.0) == 3.0 and gaps.find(0.0, 1.5) == 6.0
    gaps.take(3.0, 3.75)  # what is left is of no use to anybody
    assert gaps.find(0.0, 0.5) == 6.0


def test_a_cycle_is_an_error_that_names_its_vertices() -> None:
    problem = Problem.make({"a": 1, "b": 1, "c": 1}, {("a", "b"): 0, ("b", "c"): 0, ("c", "b"): 0})
    with pytest.raises(GraphError, match="b, c wait for each other; nothing was run"):
        plan(problem, Machine.equal(2))
