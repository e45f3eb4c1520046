"""T1: processes are killed at random moments; no vertex whose result had been kept runs again, and all results are
those of a serial computation."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from testbed import graph_parts as parts
from testbed.random_graph import expected, made
from testbed.sweep import LONG

from safepoint.run.proc import every_process
from safepoint.tasks.saved import Saved

PROGRAM = Path(__file__).parents[1] / "testbed/random_graph.py"
VERTICES, LIVES_MAX = 40, 60
SEEDS = range(200 if LONG else 4)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def children(pid: int) -> list[int]:
    return [one.pid for one in every_process() if one.parent == pid]


@pytest.mark.timeout(7200 if LONG else 300)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_kept_runs_again_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    chance = random.Random(1000 + seed)
    environment = {**os.environ, parts.CALLS: str(tmp_path / "calls")}
    wanted, g = expected(seed, VERTICES), made(seed, VERTICES)
    for _ in range(LIVES_MAX):
        handed = set(lines(tmp_path / "handed"))
        (tmp_path / "calls").unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, PROGRAM, str(seed), str(VERTICES)], cwd=tmp_path, env=environment,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(chance.random() * 0.15)
        whom = chance.choice(("driver", "worker", "all"))
        if whom == "driver":
            process.kill()
        elif whom == "all":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            for pid in chance.sample(some := children(process.pid), min(1, len(some))):
                os.kill(pid, signal.SIGKILL)
        said = process.communicate(timeout=120)[0]
        again = {name for name in lines(tmp_path / "calls") if name in handed and g[name].keep}
        assert not again, f"seed {seed}: {again} ran again"
        if process.returncode == 0:
            assert said.endswith(f"finished {VERTICES}\n"), said
            break
    else:
        raise AssertionError(f"seed {seed}: it is not finished after {LIVES_MAX} lives")
    saved = Saved(tmp_path).look()
    found = {kept.record.vertex: float(np.sum(saved.value(kept))) for kept in saved if kept.record.kept}
    assert found == {name: wanted[name] for name in found} and found.keys() >= {one.name for one in g if one.keep}
    assert not saved.remarks or all("belong to no result" in text for text in saved.remarks), saved.remarks
    counts = Counter(kept.record.vertex for kept in saved)
    assert max(counts.values()) == 1 and len(counts) == VERTICES
