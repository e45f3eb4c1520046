"""A random graph that is run until it is finished or killed: `python random_graph.py SEED VERTICES [WORKERS]`.

Each function adds a line to a file before it does anything, so it is known which vertices ran in which life; and what
the store had when a life began is known by what the driver says.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from safepoint.tasks import Graph
from testbed import graph_parts as parts


def made(seed: int, count: int, seconds: float = 0.004) -> Graph:
    chance = random.Random(seed)
    g = Graph(f"random-{seed}", seed=seed)
    for number in range(count):
        some = list(g.vertices.values())
        inputs = chance.sample(some, min(len(some), chance.choice((0, 1, 1, 2, 3))))
        keep = chance.random() > 0.1
        g.add(f"v-{number}", parts.counted, name=f"v-{number}", step=number, parts=inputs, seconds=seconds, keep=keep)
    return g


def expected(seed: int, count: int) -> dict[str, float]:
    """The sum of each result, computed without any engine."""
    import numpy as np

    chance = random.Random(seed)
    values: dict[str, Any] = {}
    for number in range(count):
        inputs = chance.sample(list(values), min(len(values), chance.choice((0, 1, 1, 2, 3))))
        chance.random()
        values[f"v-{number}"] = parts.counted(f"v-{number}", number, [values[one] for one in inputs])
    return {name: float(np.sum(value)) for name, value in values.items()}


def main() -> None:
    seed, count, workers = int(sys.argv[1]), int(sys.argv[2]), int((*sys.argv, "2")[3])
    g = made(seed, count)
    handed = open("handed", "a")  # noqa: SIM115 - as long as this process

    def told(moment: Any) -> None:
        if moment.event == "finished":  # the store has it
            handed.write(f"{moment.vertex}\n")
            handed.flush()

    def begun(plan: Any, engine: Any) -> None:
        processes = getattr(engine, "_executor", None)
        print(os.getpid(), len(plan.before), type(processes).__name__, flush=True)

    found = g.run(workers=workers, told=told, begun=begun)
    print("finished", len(found), flush=True)


if __name__ == "__main__":
    main()
