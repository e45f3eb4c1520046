"""How long schedules take beside that of HEFT, in the simulator: genetic algorithm, dynamic, static and combined.

    python benchmarks/schedules.py [--graphs 8] [--vertices 120] [--processors 5] [--seed 1]

Graphs and machines are drawn at random (tests/testbed/drawn_problems.py); a line is the mean over so many of them.
`travel` is the time of an edge beside that of a vertex, `width` how many vertices may run side by side at most. Static
and combined follow the schedule of the genetic algorithm. "As planned": each body takes what was planned, and inputs
travel as soon as they are made. "Fetched": the same, but inputs travel when a worker has taken the vertex, as the
coordinator of MPI does it. "Noise": each vertex takes another time (lognormal, sigma 0.5). "Slow": one worker takes
five times as long as planned. All are ratios to what HEFT had planned. The bound is the longest chain, or all work by
all speeds: no schedule takes less. The last column is processor time of the genetic algorithm.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from testbed.drawn_problems import graph, machine, rows, slowed

from safepoint.tasks.choosing import Combined, Dynamic, Static
from safepoint.tasks.genetic import improve
from safepoint.tasks.heft import heft
from safepoint.tasks.machine import Machine
from safepoint.tasks.simulate import Costs, Problem, Times, run

HEADS = ("bound", "genetic", "dynamic", "static", "combined", "dynamic", "static", "combined", "dynamic", "static",
         "combined", "dynamic", "static", "combined")  # fmt: skip


def noisy(costs: Costs, rng: random.Random) -> Costs:
    factors = [rng.lognormvariate(0, 0.5) for _ in costs.durations]
    durations = [[seconds * factor for seconds in row] for row, factor in zip(costs.durations, factors, strict=True)]
    return Costs(costs.problem, durations, costs.latency_s, costs.per_byte_s)


def three(problem: Problem, on: Machine, costs: Costs, plan: Times, *, ahead: bool) -> list[float]:
    """What dynamic, static and combined take."""
    planned = rows(problem, plan)
    return [
        run(costs, Dynamic(problem, on)).whole,
        run(costs, Static(planned, on.size), ahead=ahead, planned=plan.processor).whole,
        run(costs, Combined(problem, on, planned), ahead=ahead, planned=plan.processor).whole,
    ]


def one(rng: random.Random, vertices: int, processors: int, width: int, travel: float) -> tuple[list[float], float]:
    """The ratios of one graph, and the processor seconds of the genetic algorithm."""
    problem, on = graph(rng, vertices, width, travel), machine(rng, processors, 0.5)
    costs = Costs.of(problem, on)
    order, first = heft(costs)
    began = time.process_time()
    plan = improve(costs, order, first, seed=rng.randrange(1 << 30))
    took = time.process_time() - began
    slow = slowed(costs, [5.0, *[1.0] * (processors - 1)])
    found = [costs.bound, plan.whole, *three(problem, on, costs, plan, ahead=True)]
    found += three(problem, on, costs, plan, ahead=False)
    found += three(problem, on, noisy(costs, rng), plan, ahead=True)
    found += three(problem, on, slow, plan, ahead=True)
    return [each / first.whole for each in found], took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=8)
    parser.add_argument("--vertices", type=int, default=120)
    parser.add_argument("--processors", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print(f"{'':14}{'':18}{'as planned':^27}{'fetched':^27}{'noise':^27}{'slow':^27}")
    print(f"{'travel width':14}" + "".join(f"{head:>9}" for head in HEADS) + f"{'CPU s':>8}")
    worst = 0.0
    for travel in (0.01, 0.3, 1.0):
        for width in (8, 30):
            each = [one(rng, given.vertices, given.processors, width, travel) for _ in range(given.graphs)]
            means = [mean(column) for column in zip(*(ratios for ratios, _ in each), strict=True)]
            worst = max(worst, *(ratios[4] / ratios[1] for ratios, _ in each))
            line = "".join(f"{value:9.3f}" for value in means)
            print(f"{travel:<7g}{width:<7}{line}{mean(took for _, took in each):8.1f}")
    print(f"combined beside its plan, as planned: at most {worst:.3f}")
    large = Costs.of(graph(rng, 10_000, 200, 0.1), machine(rng, 8, 0.5))
    began = time.process_time()
    heft(large)
    print(f"HEFT of 10,000 vertices on 8 processors: {time.process_time() - began:.2f} s of processor time")


if __name__ == "__main__":
    main()
