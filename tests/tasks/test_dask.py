"""The engine on Dask: what it gives, and what it leaves out, on real schedulers and workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from testbed import sweep, task_bodies_after
from testbed import task_bodies_dask as bodies
from testbed.dask_cluster import Cluster, kill, program
from testbed.task_graphs import DEADLINE_S, python
from testbed.waiting import wait_for

from safepoint.errors import TaskError, UsageError
from safepoint.tasks import Graph
from safepoint.tasks.dask import LOOK_S
from safepoint.tasks.saved import Store

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")
pytestmark = pytest.mark.xdist_group("dask")
COUNT = 60


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dask")) as made:
        yield made


@pytest.fixture(scope="module")
def client(dask: Cluster) -> Iterator[Any]:
    with distributed.Client(dask.address) as made:
        made.wait_for_workers(2)
        yield made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def serially(seed: int, notes: Path) -> dict[str, Any]:
    """The results of a random graph by plain calls, of which no notes stay."""
    (notes.parent / "serial").mkdir()
    return bodies.serially(bodies.graph(seed, notes.parent / "serial"))


def test_results_are_those_of_plain_calls_and_nothing_runs_twice(client: Any, work: Path, notes: Path) -> None:
    """T5; values go from worker to worker, by name and whole, and no body spoils what another gets."""
    wanted = serially(1, notes)
    for _ in range(2):
        found = bodies.graph(1, notes).run(on=client, directory=work)
        assert {name: bodies.digest(found[name]) for name in ("v9", "v30", "end")} == {
            name: bodies.digest(wanted[name]) for name in ("v9", "v30", "end")
        }
        assert set(bodies.noted(notes)) == set(wanted) and set(bodies.noted(notes).values()) == {1}
    assert not [name for name in os.listdir(work / ".safepoint.d/tasks") if name.startswith("stage")]


def test_dask_keeps_the_same_bytes_as_a_pool(client: Any, work: Path, tmp_path: Path, notes: Path) -> None:
    """All engines give equal bytes: their records have the same keys, with the same digests."""
    (tmp_path / "pool").mkdir()
    bodies.graph(2, notes, 20).run(on=client, directory=work)
    bodies.graph(2, notes, 20).run(directory=tmp_path / "pool", workers=1)
    kept = [
        {
            key: (dict(record.parts), [output.digest for output in record.outputs])
            for key, record in Store(directory).records().items()
        }
        for directory in (work / ".safepoint.d/tasks", tmp_path / "pool/.safepoint.d/tasks")
    ]
    assert kept[0] == kept[1] and len(kept[0]) == 21


def test_a_graph_begun_on_a_pool_goes_on_with_dask_and_ends_on_threads(client: Any, work: Path, notes: Path) -> None:
    wanted = bodies.digest(serially(3, notes)["end"])

    def stopping_at(count: int) -> Any:
        return lambda: sum(bodies.noted(notes).values()) >= count

    with pytest.raises(SystemExit):
        bodies.graph(3, notes, pause=0.02).run(directory=work, workers=1, should_stop=stopping_at(10))
    with pytest.raises(SystemExit):
        bodies.graph(3, notes, pause=0.02).run(on=client, directory=work, should_stop=stopping_at(25))
    with ThreadPoolExecutor(1) as threads:
        g = bodies.graph(3, notes, pause=0.02)
        found = g.run(on=threads, directory=work)
    assert bodies.digest(found["end"]) == wanted
    assert all(count == 1 for name, count in bodies.noted(notes).items() if g.vertices[name].keep)


def test_a_failure_is_tried_again_and_only_what_needs_it_is_not_run(client: Any, work: Path, notes: Path) -> None:
    """Dask's own retries stay off: each vertex is tried as often as it says. The others go on."""
    g = Graph("failing")
    given = {"notes": str(notes)}
    good = g.add("good", bodies.fails, arguments={**given, "name": "good"}, times=2, value=5, retries=2)
    bad = g.add("bad", bodies.fails, arguments={**given, "name": "bad"}, times=9, retries=1)
    g.add("below-good", bodies.mixed, arguments={**given, "name": "below-good"}, inputs=[good], width=3)
    below = g.add("below-bad", bodies.mixed, arguments={**given, "name": "below-bad"}, inputs=[good, bad], width=3)
    g.add("deep", bodies.mixed, arguments={**given, "name": "deep"}, inputs=[below], width=3)
    with pytest.raises(TaskError, match=r"1 of 5 vertices failed, 2 not run.*bad: ValueError: failure 2 of 9"):
        g.run(on=client, directory=work)
    assert bodies.noted(notes) == {"good": 3, "bad": 2, "below-good": 1}
    assert {record.vertex for record in Store(work / ".safepoint.d/tasks").records().values()} == {"good", "below-good"}


@pytest.mark.parametrize("what", sweep.some_of(["result", "exit", "interrupt", "strange"], 1, 4))
def test_whatever_a_body_raises_or_returns_costs_its_vertex_only(
    client: Any, work: Path, notes: Path, what: str
) -> None:
    """A result or an exception that cannot be pickled, and the ends of a program."""
    g = Graph("raising")
    g.add("bad", bodies.raises, arguments={"notes": str(notes), "name": "bad"}, what=what)
    g.add("other", bodies.source, arguments={"notes": str(notes), "name": "other"}, width=3)
    with pytest.raises(TaskError, match="1 of 2 vertices failed: bad: ") as caught:
        g.run(on=client, directory=work)
    assert caught.value.found["other"].shape == (3,)  # type: ignore[attr-defined]


def test_a_stop_takes_back_what_has_not_begun(client: Any, work: Path, notes: Path, tmp_path: Path) -> None:
    """A limit of time must not wait for the queue of Dask; what has begun ends and is kept."""
    go = tmp_path / "go"
    g = Graph("stopping")
    for n in range(50):
        g.add(f"w{n}", bodies.waits, arguments={"notes": str(notes), "name": f"w{n}"}, until=str(go))

    def enough() -> bool:
        begun = sum(bodies.noted(notes).values()) >= 2
        if begun:
            go.touch()
        return begun

    with pytest.raises(SystemExit):
        g.run(on=client, directory=work, should_stop=enough)
    begun = bodies.noted(notes)
    kept = {record.vertex for record in Store(work / ".safepoint.d/tasks").records().values()}
    assert set(begun) == kept and len(kept) < 50
    g.run(on=client, directory=work)
    assert set(bodies.noted(notes).values()) == {1}


def test_what_is_not_kept_is_made_again_only_for_what_needs_it(client: Any, work: Path, notes: Path) -> None:
    def build(version: str) -> Graph:
        g, given = Graph("loose"), {"notes": str(notes)}
        big = g.add("big", bodies.source, arguments={**given, "name": "big"}, width=50_000, keep=False)
        file = g.add("file", bodies.filed, arguments={**given, "name": "file"}, values=big)
        g.add("sum", bodies.read, arguments={**given, "name": "sum"}, path=file, version=version)
        g.add("other", bodies.mixed, arguments={**given, "name": "other"}, inputs=[big], width=3, version=version)
        return g

    sums = [build(version).run(on=client, directory=work)["sum"] for version in ("", "", "2")]
    assert sums[0] == sums[1] == sums[2]
    assert bodies.noted(notes) == {"big": 2, "file": 1, "sum": 2, "other": 2}


@pytest.mark.proof
def test_what_a_dead_worker_had_kept_is_not_computed_again(dask: Cluster, client: Any, work: Path, notes: Path) -> None:
    """Dask runs a vertex again when it has lost its value; the store has it."""
    go, given = notes.parent / "go", {"notes": str(notes)}
    g = Graph("lineage")
    small = g.add("small", bodies.source, arguments={**given, "name": "small"}, width=3)
    large = g.add("large", bodies.source, arguments={**given, "name": "large"}, width=20_000)
    gate = g.add("gate", bodies.waits, arguments={**given, "name": "gate"}, until=str(go), value=1)
    g.add("end", bodies.mixed, arguments={**given, "name": "end"}, inputs=[small, large, gate], width=3)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(g.run, on=client, directory=work)
        store = Store(work / ".safepoint.d/tasks")
        wait_for(lambda: len(store.records()) == 2 and bodies.noted(notes)["gate"])
        dask.kill_workers()
        dask.workers = [dask.add(), dask.add()]
        go.touch()
        running.result(DEADLINE_S)
    assert {**bodies.noted(notes), "gate": 0} == {"small": 1, "large": 1, "gate": 0, "end": 1}


def test_a_run_leaves_the_scheduler_as_it_was(client: Any, work: Path, notes: Path) -> None:
    """While it runs the scheduler tells this client less often what has ended; afterwards as often as before, also if
    the run failed, and holds nothing of it."""
    before = client.run_on_scheduler(bodies.interval_s, client.id)
    found: list[float] = []
    g, given = Graph("polite"), {"notes": str(notes)}
    g.add("good", bodies.source, arguments={**given, "name": "good"}, width=3)
    g.add("bad", bodies.fails, arguments={**given, "name": "bad"}, times=9)
    with pytest.raises(TaskError, match="1 of 2 vertices failed"):
        g.run(
            on=client,
            directory=work,
            progress=lambda _: found.append(client.run_on_scheduler(bodies.interval_s, client.id)),
        )
    assert before < found[0] < LOOK_S and client.run_on_scheduler(bodies.interval_s, client.id) == before
    wait_for(lambda: client.run_on_scheduler(bodies.tasks_of) == 0)


def three(notes: Path, version: str = "") -> Graph:
    """A chain: what comes from outside, what is made of it, and of that."""
    g, given = Graph("chain"), {"notes": str(notes)}
    path = str(notes.parent / "outside.txt")
    first = g.add("first", bodies.outside, arguments={**given, "name": "first"}, path=path, width=20_000)
    second = g.add(
        "second", bodies.mixed, arguments={**given, "name": "second"}, inputs=[first], width=3, version=version
    )
    g.add("third", bodies.mixed, arguments={**given, "name": "third"}, inputs=[second], width=3)
    return g


@pytest.mark.proof
def test_what_was_made_of_an_input_runs_again_only_if_that_comes_out_different(
    client: Any, work: Path, notes: Path
) -> None:
    """T4: a vertex below one that runs again is known only on its worker, by what came in."""
    (notes.parent / "outside.txt").write_text("5")
    store = Store(work / ".safepoint.d/tasks")
    three(notes).run(on=client, directory=work)
    with store.held():
        store.forget("first")
    before = three(notes).run(on=client, directory=work)["third"]["total"]
    assert bodies.noted(notes) == {"first": 2, "second": 1, "third": 1}
    with store.held():
        store.forget("first")
    (notes.parent / "outside.txt").write_text("6")
    after = three(notes).run(on=client, directory=work)["third"]["total"]
    assert bodies.noted(notes) == {"first": 3, "second": 2, "third": 2} and after != before


@pytest.mark.leaves_damage
def test_an_input_that_was_damaged_is_made_again(client: Any, work: Path, notes: Path) -> None:
    """T3: the worker that reads it says so, and nothing is made of wrong bytes."""
    (notes.parent / "outside.txt").write_text("5")
    found = three(notes).run(on=client, directory=work)["third"]
    (array,) = (work / ".safepoint.d/tasks/done").glob("*/out*.npy")
    data = bytearray(array.read_bytes())
    data[-1] ^= 1
    array.write_bytes(data)
    again = three(notes, "2").run(on=client, directory=work)["third"]
    assert bodies.digest(again) == bodies.digest(found)
    assert bodies.noted(notes) == {"first": 2, "second": 2, "third": 1}


PROGRAM = """
import sys
from dataclasses import dataclass
from distributed import Client
from safepoint.tasks import Graph

@dataclass
class Width:
    metres: float

def twice(x):
    return 2 * x.metres

g = Graph("main")
g.add("twice", twice, x=Width(4.0))
with Client(sys.argv[1]) as client:
    print(g.run(on=client)["twice"])
"""


@pytest.mark.proof
def test_functions_and_classes_of_the_program_itself_go_to_workers_by_their_code(dask: Cluster, work: Path) -> None:
    (work / "program.py").write_text(PROGRAM)
    assert python("program.py", dask.address, cwd=work) == "8.0\n"


def test_a_worker_with_another_version_of_a_function_gives_no_result(
    client: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4: what it makes would be kept as a result of the program's own version."""
    for place, number in (("here", 1), ("there", 2)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "of_versions.py").write_text(f"def number():\n    return {number}\n")
    client.run(lambda way: sys.path.insert(0, way), str(tmp_path / "there"))
    monkeypatch.syspath_prepend(tmp_path / "here")
    import of_versions

    graph = Graph("versions")
    graph.add("number", of_versions.number)
    with pytest.raises(TaskError, match="another file in this process"):
        graph.run(on=client, directory=work)
    assert graph.run(directory=work, workers=1)["number"] == 1


def test_a_module_that_workers_cannot_import_is_named_with_what_to_do(
    client: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "only_of_the_driver.py").write_text("def one():\n    return 1\n")
    (work / "g.toml").write_text('graph = "g"\ncode = "only_of_the_driver.py"\n[v]\nrun = "one"\n')
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        with pytest.raises(TaskError, match=r"cannot import only_of_the_driver, .* start them with PYTHONPATH=DIR"):
            Graph.read(work / "g.toml").run(on=client, directory=work)
    finally:
        sys.modules.pop("only_of_the_driver", None)


def test_what_comes_after_others_keeps_the_order_and_fetches_nothing(client: Any, tmp_path: Path) -> None:
    task_bodies_after.check_order(client, tmp_path)


def test_a_client_of_coroutines_is_refused(tmp_path: Path) -> None:
    g = Graph("g")
    g.add("v", str)

    async def run() -> None:
        options: dict[str, Any] = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0"}
        async with distributed.Client(**options, asynchronous=True) as client:
            with pytest.raises(UsageError, match="this Client is asynchronous"):
                g.run(on=client, directory=tmp_path)

    asyncio.run(run())


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

        wait_for(reached)


@pytest.mark.proof
@pytest.mark.parametrize("round_", range(4 if sweep.LONG else 1))
def test_each_process_of_a_run_on_dask_may_be_killed_at_any_time(round_: int, tmp_path: Path) -> None:
    """T1, T3, T4: the results are those of plain calls, and no vertex runs again whose result was handed over."""
    chance = random.Random(sweep.turn() + round_)
    for name in ("work", "notes", "serial"):
        (tmp_path / name).mkdir()
    one = Watched(tmp_path / "work", tmp_path / "notes", sweep.turn() + round_)
    g = bodies.graph(one.seed, tmp_path / "serial", COUNT)
    wanted = {name: bodies.digest(value) for name, value in bodies.serially(g).items() if g.vertices[name].keep}
    with Cluster(tmp_path) as made:
        job = one.start(made)
        try:
            one.more(chance.randint(3, 10), job)
            kill(made.workers.pop(chance.randrange(2)))
            made.workers.append(made.add())
            one.more(chance.randint(3, 10), job)
            kill(job)
            one.kept()
            job = one.start(made)
            one.more(chance.randint(3, 10), job)
            kill(made.scheduler)
            ended_without_scheduler(job)
        finally:
            kill(job)
    one.kept()
    with Cluster(tmp_path) as made:
        job = one.start(made)
        try:
            found, said = job.communicate(timeout=DEADLINE_S)
            assert job.returncode == 0, said[-3000:].decode()
        finally:
            kill(job)
    one.kept()
    assert json.loads(found) == wanted, f"seed {one.seed}"


def ended_without_scheduler(job: subprocess.Popen[bytes]) -> None:
    _, said = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 22 and b"is gone" in said and b"they stay" in said, said[-3000:].decode()


# At the end, as what follows is not left of the cluster.


def test_a_vertex_that_kills_its_worker_is_given_up_as_dask_says(client: Any, work: Path, notes: Path) -> None:
    """Dask counts the dead workers of a vertex, and what only waited on them is not given up."""
    client.run_on_scheduler(bodies.allow_no_failure)
    g, given = Graph("deadly"), {"notes": str(notes)}
    g.add("dies", bodies.dies, arguments={**given, "name": "dies"}, times=99)
    for n in range(4):
        g.add(f"other-{n}", bodies.source, arguments={**given, "name": f"other-{n}"}, width=3)
    with pytest.raises(TaskError, match="1 of 5 vertices failed: dies: KilledWorker: Dask gave it up"):
        g.run(on=client, directory=work)
    assert bodies.noted(notes)["dies"] == 1


@pytest.mark.proof
def test_a_scheduler_that_is_killed_ends_the_run_and_results_stay(dask: Cluster, work: Path, notes: Path) -> None:
    one = Watched(work, notes, 1)
    job = one.start(dask)
    try:
        one.more(3, job)
        kill(dask.scheduler)
        ended_without_scheduler(job)
    finally:
        kill(job)
    assert len(one.kept()) >= 3
