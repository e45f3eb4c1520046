"""What a free worker is told to do: dynamic, static, combined. The simulator asks as the coordinator of MPI does."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.counted_work import assert_linear
from testbed.drawn_problems import graph, machine, rows, slowed, wrong
from testbed.sweep import LONG, PROOF, many

from safepoint.errors import GraphError, UsageError
from safepoint.tasks.choosing import Combined, Dynamic, Planned, Static
from safepoint.tasks.genetic import improve
from safepoint.tasks.heft import heft
from safepoint.tasks.machine import Machine
from safepoint.tasks.schedule import MODES, Schedule, plan
from safepoint.tasks.simulate import Chooser, Costs, Problem, Times, run

SEEDS = range(60 if LONG else 6 if PROOF else 2)


@functools.cache
def drawn(seed: int, vertices: int = 40) -> tuple[Problem, Machine, Costs, Times]:
    """A graph, a machine, and a plan of either kind for them."""
    rng = random.Random(seed)
    problem = graph(rng, vertices, rng.choice((4, 15)), rng.choice((0.01, 0.3, 1.0)))
    on = machine(rng, rng.randint(2, 5), rng.choice((0.0, 0.5)))
    costs = Costs.of(problem, on)
    order, times = heft(costs)
    return problem, on, costs, improve(costs, order, times, seed=seed) if seed % 2 else times


@pytest.mark.parametrize("seed", SEEDS)
def test_static_follows_the_plan_exactly(seed: int) -> None:
    problem, on, costs, plan_ = drawn(seed)
    ran = run(costs, Static(rows(problem, plan_), on.size), ahead=True, planned=plan_.processor)
    assert ran.processor == plan_.processor
    assert ran.begin == pytest.approx(plan_.begin) and ran.end == pytest.approx(plan_.end)


@pytest.mark.parametrize("seed", SEEDS)
def test_static_keeps_worker_and_order_where_all_takes_longer_than_planned(seed: int) -> None:
    problem, on, costs, plan_ = drawn(seed)
    slow = slowed(costs, [random.Random(seed + p).uniform(1, 5) for p in range(on.size)])
    ran = run(slow, Static(rows(problem, plan_), on.size))
    assert wrong(slow, ran) == [] and ran.processor == plan_.processor
    for p in range(on.size):
        here = [v for v in range(len(problem.names)) if plan_.processor[v] == p]
        assert sorted(here, key=ran.begin.__getitem__) == sorted(here, key=plan_.begin.__getitem__)


@pytest.mark.parametrize("seed", SEEDS)
def test_combined_takes_no_more_than_five_percent_longer_than_its_plan(seed: int) -> None:
    problem, on, costs, plan_ = drawn(seed)
    ran = run(costs, Combined(problem, on, rows(problem, plan_)), ahead=True, planned=plan_.processor)
    assert wrong(costs, ran) == [] and ran.whole <= 1.05 * plan_.whole


@pytest.mark.parametrize("seed", SEEDS)
def test_units_of_weights_do_not_matter_to_combined(seed: int) -> None:
    """All bodies and links are slower than planned by one factor: the plan is followed."""
    problem, on, costs, plan_ = drawn(seed)
    slow = Costs(
        problem,
        [[3 * each for each in row] for row in costs.durations],
        [[3 * each for each in row] for row in costs.latency_s],
        [[3 * each for each in row] for row in costs.per_byte_s],
    )
    ran = run(slow, Combined(problem, on, rows(problem, plan_)), ahead=True, planned=plan_.processor)
    assert ran.processor == plan_.processor and ran.whole == pytest.approx(3 * plan_.whole)


def test_combined_takes_work_from_a_worker_that_turns_out_slow() -> None:
    """Static waits for it; dynamic would not, but knows no plan."""
    ratios = []
    for seed in SEEDS:
        rng = random.Random(seed)
        problem, on = graph(rng, 120, 30, 0.05), machine(rng, 4, 0.3)
        costs = Costs.of(problem, on)
        plan_ = heft(costs)[1]
        slow = slowed(costs, [6.0, 1.0, 1.0, 1.0])
        static = run(slow, Static(rows(problem, plan_), on.size)).whole
        combined = run(slow, Combined(problem, on, rows(problem, plan_)))
        assert wrong(slow, combined) == []
        ratios.append(combined.whole / static)
    assert mean(ratios) < 0.7, ratios


def test_dynamic_takes_the_least_of_weight_by_speed_and_slowest_edge() -> None:
    weights = {"a": 1.0, "b": 1.0, "far": 1.0, "near": 1.5, "long": 9.0}
    problem = Problem.make(weights, {("a", "far"): 4e9, ("b", "near"): 4e9, ("a", "near"): 1e3})
    on = Machine((0.5, 1.5), ((0, 1e-3), (1e-3, 0)), ((1, 1e9), (2e9, 1)))
    chooser = Dynamic(problem, on)
    chooser.made("a", 0)
    chooser.made("b", 1)
    ready = dict.fromkeys(("long", "far", "near"))
    # Worker 0: far 2; near 3 + 2.001; long 18. Worker 1: far 0.667 + 4.001; near 1 + 0.001; long 6.
    assert chooser.choose(1, ready) == "near"
    del ready["near"]
    assert chooser.choose(1, ready) == "far"
    del ready["far"]
    assert chooser.choose(0, ready) == "long"
    del ready["long"]
    assert chooser.choose(0, ready) is None


def test_dynamic_breaks_ties_in_the_order_of_the_graph() -> None:
    problem = Problem.make({f"v{n}": 1.0 for n in range(9)})
    chooser = Dynamic(problem, Machine.equal(2))
    ready = dict.fromkeys(reversed(problem.names))
    got = []
    while ready:
        got.append(chooser.choose(len(got) % 2, ready))
        del ready[got[-1]]
    assert got == list(problem.names)


def test_a_vertex_that_is_ready_again_costs_what_it_costs_then() -> None:
    """Its input was not kept, and was made again on the other worker."""
    problem = Problem.make({"a": 1.0, "b": 1.0, "c": 2.0}, {("a", "b"): 4e9})
    chooser = Dynamic(problem, Machine.equal(2))
    chooser.made("a", 0)
    assert chooser.choose(1, ["b"]) == "b"
    chooser.lost("b")
    chooser.made("a", 1)
    assert chooser.choose(0, ["c", "b"]) == "c"


def test_what_the_caller_takes_back_is_not_given_and_what_is_new_is_not_missed() -> None:
    problem = Problem.make({"a": 1.0, "b": 2.0, "c": 3.0})
    chooser = Dynamic(problem, Machine.equal(2))
    assert chooser.choose(0, ["a", "b"]) == "a"
    assert chooser.choose(1, ["c"]) == "c"
    assert chooser.choose(1, []) is None


def test_combined_leaves_a_late_vertex_to_a_worker_that_would_still_end_it_sooner() -> None:
    """All of its input is there."""
    problem = Problem.make({"in": 1.0, "slow": 1.0, "late": 1.0, "end": 10.0}, {("in", "late"): 60e9})
    plan_ = [Planned("in", 0, 0, 1), Planned("slow", 0, 1, 2), Planned("late", 0, 2, 3), Planned("end", 1, 0, 10)]
    chooser = Combined(problem, Machine.equal(2), plan_)
    ready = {"slow": None, "late": None, "end": None}
    chooser.made("in", 0)
    for worker, expected in ((0, "slow"), (1, "end")):
        assert chooser.choose(worker, ready) == expected
        del ready[expected]
    chooser.made("end", 1)
    assert chooser.choose(1, ready) is None
    chooser.made("slow", 0)
    assert chooser.choose(0, ready) == "late"


def by_force(problem: Problem, on: Machine, where: dict[str, int], worker: int, ready: list[str]) -> str:
    def cost(name: str) -> tuple[float, int]:
        vertex = problem.number[name]
        edges = [(where[problem.names[p]], nbytes) for p, nbytes in problem.parents[vertex]]
        travel = max((on.seconds(source, worker, nbytes) for source, nbytes in edges), default=0.0)
        return problem.weights[vertex] / on.speed[worker] + travel, vertex

    return min(ready, key=cost)


@settings(max_examples=500 if LONG else many(40), derandomize=not LONG)
@given(st.integers(0, 1 << 32), st.booleans(), st.sampled_from((dict, list, set)))
def test_dynamic_chooses_as_a_reading_by_force_does(
    seed: int, alike: bool, kind: Callable[[list[str]], object]
) -> None:
    """Also when vertices are lost and ready again, and when the caller takes some back."""
    rng = random.Random(seed)
    problem, on = graph(rng, 25, 6, 0.5), machine(rng, 3, 0.5)
    if alike:
        on = Machine(on.speed, Machine.equal(3).latency_s, Machine.equal(3).bandwidth)
    chooser, where, back = Dynamic(problem, on), dict[str, int](), list[str]()
    done = set[str]()
    while len(done) < len(problem.names):
        free = [
            name
            for n, name in enumerate(problem.names)
            if name not in done and name not in back and all(problem.names[p] in done for p, _ in problem.parents[n])
        ]
        if not free:
            back.clear()
            continue
        worker = rng.randrange(3)
        name = chooser.choose(worker, dict.fromkeys(free) if kind is dict else kind(free))  # type: ignore[arg-type]
        if not back:  # what has come and gone at once may be seen one choice later
            assert name == by_force(problem, on, where, worker, free)
        assert name in free
        what = rng.random()
        if what < 0.1:
            chooser.lost(name)
        elif what < 0.2:
            chooser.lost(name)
            back.append(name)
        else:
            chooser.made(name, worker)
            done.add(name)
            where[name] = worker


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_mode_ends_a_graph_of_which_some_had_finished_and_some_fail(mode: str, seed: int) -> None:
    """A worker never waits for what cannot come: a failed vertex, or one that needs it, or one of an earlier run."""
    problem, on, _, plan_ = drawn(seed, 40)
    rng = random.Random(seed)
    schedule = Schedule("drawn", "heft", plan_.whole, tuple(rows(problem, plan_)), on)
    chooser = schedule.chooser(mode, problem, on)
    done: set[str] = set()
    for vertex in problem.order[: rng.randrange(20)]:
        done.add(problem.names[vertex])
        chooser.made(problem.names[vertex], None)
    failed, running, tries = set[str](), dict[int, str](), dict[str, int]()
    while True:
        ready = {
            name: None
            for n, name in enumerate(problem.names)
            if name not in done | failed | set(running.values())
            and all(problem.names[p] in done for p, _ in problem.parents[n])
        }
        for worker in [w for w in range(on.size) if w not in running]:
            if (name := chooser.choose(worker, ready)) is not None:
                del ready[name]
                running[worker] = name
        if not running:
            assert not ready
            break
        worker = rng.choice(list(running))
        name = running.pop(worker)
        tries[name] = tries.get(name, 0) + 1
        if rng.random() < 0.2:
            chooser.lost(name)
            failed |= {name} if tries[name] == 2 else set()
        else:
            chooser.made(name, worker)
            done.add(name)
    blocked = set(failed)
    for n in problem.order:
        if any(problem.names[p] in blocked for p, _ in problem.parents[n]):
            blocked.add(problem.names[n])
    assert done | blocked == set(problem.names) and not done & blocked


@pytest.mark.parametrize("mode", MODES)
def test_a_choice_among_many_ready_vertices_costs_no_more_than_among_few(mode: str) -> None:
    def chosen(count: int) -> Callable[[], object]:
        rng = random.Random(1)
        weights, edges = {f"v{n}": rng.random() for n in range(count)}, {("v0", f"v{n}"): 1e6 for n in range(1, count)}
        problem, on = Problem.make(weights, edges), machine(rng, 8, 0.5)
        chooser = plan(problem, on).chooser(mode, problem, on)
        chooser.made("v0", 3)
        return lambda: choose_all(chooser, dict.fromkeys(problem.names[1:]))

    assert_linear(chosen, 300)


def choose_all(chooser: Chooser, ready: dict[str, None]) -> None:
    while ready:
        before = len(ready)
        for worker in range(8):
            if (name := chooser.choose(worker, ready)) is not None:
                del ready[name]
                chooser.made(name, worker)
        assert len(ready) < before


def test_a_schedule_for_others_is_refused_with_both_numbers() -> None:
    problem = Problem.make({"a": 1.0, "b": 1.0}, graph="sky")
    schedule = plan(problem, Machine.equal(2))
    for mode in ("static", "combined"):
        with pytest.raises(UsageError, match="graph sky does not fit: it was made for 2 workers, and here are 3"):
            schedule.chooser(mode, problem, Machine.equal(3))
        with pytest.raises(UsageError, match="made for 2 workers, and here are 1"):
            schedule.chooser(mode, problem, Machine.equal(2), 1)
    with pytest.raises(UsageError, match="the machine has 2 workers, and here are 1"):
        schedule.chooser("dynamic", problem, Machine.equal(2), 1)
    more = Problem.make({"a": 1.0, "b": 1.0, "c": 1.0})
    assert schedule.misfit(more, 2) == "it has no row for c"
    assert schedule.misfit(Problem.make({"a": 1.0}), 2) == "the graph has no b"
    assert schedule.misfit(problem, 2) == ""
    with pytest.raises(UsageError, match="dynamic or static or combined, not 'fast'"):
        schedule.chooser("fast", problem, Machine.equal(2))


def test_a_run_that_nobody_goes_on_with_is_an_error() -> None:
    class Idle:
        def made(self, vertex: str, worker: int | None) -> None: ...
        def lost(self, vertex: str) -> None: ...
        def choose(self, worker: int, ready: object) -> str | None:
            return None

    idle: Chooser = Idle()
    with pytest.raises(GraphError, match="no worker takes a: the schedule does not fit the graph"):
        run(Costs.of(Problem.make({"a": 1.0}), Machine.equal(2)), idle)


def test_combined_breaks_near_ties_among_the_late_by_the_schedule() -> None:
    problem = Problem.make({"slow": 1.0, "x": 1.02, "y": 1.0, "z": 5.0, "end": 10.0})
    plan_ = [
        Planned("slow", 0, 0, 1), Planned("x", 0, 1, 2.02), Planned("y", 0, 2.02, 3.02), Planned("end", 1, 0, 10),
        Planned("z", 0, 3.02, 8.02),
    ]  # fmt: skip
    chooser = Combined(problem, Machine.equal(2), plan_)
    ready = dict.fromkeys(problem.names)
    for worker, expected in ((0, "slow"), (1, "end")):
        assert chooser.choose(worker, ready) == expected
        del ready[expected]
    assert chooser.choose(1, ready) is None  # nothing has finished: nothing is known to be late
    chooser.made("end", 1)
    assert chooser.choose(1, ready) == "x"  # 2 % dearer than y, and before it
    del ready["x"]
    assert chooser.choose(1, ready) == "y"
