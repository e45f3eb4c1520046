"""T3, T4 at random: graphs whose vertices change, come out different, are damaged, and are partly not kept."""

from __future__ import annotations

import random
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from testbed import sweep
from testbed import task_bodies_engine as b

from safepoint.tasks import Graph
from safepoint.tasks.found import Found
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import LostValue

COUNT, RUNS = 18, 6
SEEDS = sweep.some_of(range(400), 3, 10)


def graph(seed: int, versions: dict[int, str]) -> tuple[Graph, dict[str, list[str]]]:
    """And the inputs of each vertex."""
    rng, g, made = random.Random(seed), Graph("g"), []
    inputs: dict[str, list[str]] = {}
    for n in range(COUNT):
        parents = rng.sample(range(n), min(n, rng.choice((0, 1, 1, 2, 3))))
        name = f"v{n}"
        inputs[name] = [f"v{p}" for p in parents]
        made.append(g.add(
            name, b.seen, keep=rng.random() < 0.7, version=versions.get(n, ""), inputs=[made[p] for p in parents],
            after=rng.sample(made, min(n, rng.choice((0, 0, 1)))),
            arguments={"name": name, "size": rng.choice((0, 90_000)), "chance": rng.random() < 0.3},
        ))  # fmt: skip
    return g, inputs


def check(found: Found, inputs: dict[str, list[str]]) -> None:
    """T4: of what each vertex was made is what its inputs are now, also if only others have seen them."""
    kept = {name: found[name] for name in found if found.records[name].kept}
    digests = {name: {b.digest(value)} for name, value in kept.items()}
    for name, value in kept.items():
        for parent, digest in zip(inputs[name], value[2], strict=False):
            digests.setdefault(parent, set()).add(digest)
    assert set(found) == set(inputs)
    assert {name: each for name, each in digests.items() if len(each) > 1} == {}


def damage(directory: Path, rng: random.Random) -> None:
    """One byte of a journal or of a large result."""
    top = Path(tasks_directory(directory))
    files = [*top.glob("journal-*"), *top.glob("done/*/out*")]
    path = rng.choice([each for each in files if each.stat().st_size])
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def executor() -> Any:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.mark.leaves_damage
@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_is_combined_with_inputs_that_it_was_not_made_of(
    seed: int, executor: Executor, tmp_path: Path
) -> None:
    """T3, T4: after each run all values fit together; and a run after that has nothing to do."""
    rng, versions = random.Random(seed + 1), dict[int, str]()
    for turn in range(RUNS):
        g, inputs = graph(seed, versions)
        for _ in range(COUNT):
            try:
                check(g.run(executor, directory=tmp_path), inputs)
                break
            except LostValue:  # damaged, and no vertex needed it: the next run makes it
                continue
        else:
            pytest.fail(f"{seed}, {turn}: lost again and again")
        assert graph(seed, versions)[0].run(executor, directory=tmp_path).ran == [], (seed, turn)
        for _ in range(rng.randrange(3)):
            versions[rng.randrange(COUNT)] = f"{turn}"
        if rng.random() < 0.5:
            damage(tmp_path, rng)
