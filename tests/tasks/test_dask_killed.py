"""`kill -9` of each process of a run on Dask in turn: the client, a worker, the scheduler."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from testbed import sweep
from testbed import task_bodies_dask as bodies
from testbed.dask_cluster import Cluster, kill, program, until

from safepoint.tasks.saved import Store

pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")
pytestmark = pytest.mark.xdist_group("dask")
COUNT = 60
ROUNDS = 4 if sweep.LONG else 1


class Watched:
    """A run that is killed and goes on. Of each vertex, how often it had begun when its result was known to be kept."""

    def __init__(self, work: Path, notes: Path, seed: int) -> None:
        self.work, self.notes, self.seed = work, notes, seed
        self.store = Store(work / ".safepoint.d/tasks")
        self.begun: dict[str, int] = {}

    def start(self, cluster: Cluster) -> subprocess.Popen[bytes]:
        return program(cluster.address, self.work, self.notes, self.seed, COUNT, 0.05)

    def kept(self) -> set[str]:
        """Vertices whose results were handed over; none of them may begin again."""
        records = self.store.records().values()
        names = {record.vertex for record in records if record.kept}
        begun = bodies.noted(self.notes)
        for name in names:
            assert begun[name] == self.begun.setdefault(name, begun[name]), f"{name} ran again, and was kept already"
        return names

    def more(self, count: int, job: subprocess.Popen[bytes]) -> None:
        """Wait until so many more are kept."""
        wanted = min(len(self.kept()) + count, COUNT - 5)

        def reached() -> bool:
            assert job.poll() is None, job.communicate()[1][-3000:].decode()
            return len(self.kept()) >= wanted

        until(reached)


def test_each_process_of_a_run_on_dask_may_be_killed_at_any_time(tmp_path: Path) -> None:
    """T1, T3, T4: the results are those of plain calls, and no vertex runs again whose result was handed over."""
    chance = random.Random(sweep.turn())
    for round_ in range(ROUNDS):
        directory = tmp_path / f"round-{round_}"
        for name in ("work", "notes", "serial"):
            (directory / name).mkdir(parents=True)
        one = Watched(directory / "work", directory / "notes", sweep.turn() + round_)
        g = bodies.graph(one.seed, directory / "serial", COUNT)
        wanted = {name: bodies.digest(value) for name, value in bodies.serially(g).items() if g.vertices[name].keep}
        cluster = Cluster(directory, 2)
        job = one.start(cluster)
        try:
            one.more(chance.randint(3, 10), job)
            kill(cluster.workers.pop(chance.randrange(2)))
            cluster.workers.append(cluster.add())
            one.more(chance.randint(3, 10), job)
            kill(job)
            one.kept()
            job = one.start(cluster)
            one.more(chance.randint(3, 10), job)
            kill(cluster.scheduler)
            _, said = job.communicate(timeout=60)
            assert job.returncode == 22 and b"is gone" in said and b"they stay" in said, said[-3000:].decode()
        finally:
            kill(job)
            cluster.close()
        one.kept()
        cluster = Cluster(directory, 2)
        job = one.start(cluster)
        try:
            found, said = job.communicate(timeout=100)
            assert job.returncode == 0, said[-3000:].decode()
        finally:
            kill(job)
            cluster.close()
        one.kept()
        assert json.loads(found) == wanted, f"seed {one.seed}"
        os.rename(directory, f"{directory}-good")
