"""T1, T3, T4: drivers and workers of random graphs are killed, and started again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from testbed import sweep, task_graphs
from testbed import task_bodies_engine as bodies
from testbed.waiting import wait_for

COUNT = 60
WHOM = ("driver", "worker", "all")
ROUNDS = 67 if sweep.LONG else 3 if sweep.PROOF else 1


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_no_vertex_runs_again_whose_result_was_handed_over_whoever_is_killed(turn: int, tmp_path: Path) -> None:
    """T1, T3, T4, with three kills or more in a directory: of the driver, of a worker and of all."""
    seed = sweep.turn() % 1000 + turn
    rng = random.Random(seed)
    whom = list(WHOM)
    rng.shuffle(whom)
    handed: dict[str, int] = {}  # runs of each vertex when its result was there first
    for who in whom:
        program = task_graphs.Program(tmp_path, seed, COUNT)
        with task_graphs.nobody_left(program.process):
            if program.wait_for(len(bodies.noted(tmp_path)) + rng.randrange(1, 16)):
                program.kill(who)
            if who == "worker":  # its driver goes on
                program.wait_for(len(bodies.noted(tmp_path)) + rng.randrange(1, 8))
                program.kill("all")
        counts = bodies.counted(tmp_path)
        for name in task_graphs.records(tmp_path):
            handed.setdefault(name, counts[name])
    found = task_graphs.graph(seed, COUNT, str(tmp_path)).run(2, directory=tmp_path)
    assert not found.failed and dict(found) == task_graphs.serial(seed, COUNT), f"seed {seed}"
    counts = bodies.counted(tmp_path)
    again = {name: (before, counts[name]) for name, before in handed.items() if counts[name] != before}
    assert again == {}, f"seed {seed}, {whom}"
    assert handed, "nothing was handed over before a kill: the test tries nothing"


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    """Else the next driver would run the same vertices beside them."""
    code = (
        "from testbed import task_bodies_engine as b; from safepoint.tasks import Graph\n"
        "g = Graph('g')\nfor n in range(2):\n"
        f"    g.add(f'v{{n}}', b.waits, notes={str(tmp_path)!r}, until='never', arguments={{'name': f'v{{n}}'}})\n"
        f"g.run(2, directory={str(tmp_path)!r})\n"
    )
    program = task_graphs.start(code, tmp_path)
    with task_graphs.nobody_left(program):
        wait_for(lambda: len(bodies.noted(tmp_path)) == 2)
        program.kill()
        program.wait()
        task_graphs.gone(program.pid)
