"""A graph on the ranks of MPI, with the real mpiexec: `task_cases.py`, `task_edges.py`, and all ways to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from testbed import task_bodies_mpi as bodies
from testbed.paths import HOUSE, TESTBED
from testbed.sweep import LONG, some_of
from testbed.task_graphs import DEADLINE_S
from testbed.traced import command, environment
from testbed.waiting import wait_for

from safepoint.tasks.saved import Store

pytest.importorskip("mpi4py", reason="a graph on ranks needs MPI: pip install '.[mpich]'")
pytestmark = pytest.mark.xdist_group("mpi-tasks")


def surroundings(library: str = "mpich") -> dict[str, str]:
    return environment(library, None) | {"PYTHONPATH": str(HOUSE)}


OPEN_MPI = pytest.mark.skipif(shutil.which("mpiexec.openmpi") is None, reason="Debian's openmpi-bin is not here")
BOTH = ["mpich", pytest.param("openmpi", marks=[pytest.mark.proof, OPEN_MPI])]


def passed(program: str, *words: str, ranks: int = 3, library: str = "mpich") -> int:
    """How many cases of a program of the testbed all its ranks have passed."""
    done = subprocess.run(
        command(ranks, "-W", "error", str(TESTBED / program), *words, library=library), env=surroundings(library),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.count("ok ")


@pytest.mark.parametrize(("ranks", "library"), [(3, "mpich"), (3, "openmpi"), (8, "mpich")] if LONG else [(3, "mpich")])
def test_all_that_must_hold_of_a_graph_on_ranks(ranks: int, library: str, tmp_path: Path) -> None:
    """T1 to T6: every case of task_cases.py on so many ranks, those about fewer on two and on one as well."""
    assert passed("task_cases.py", str(tmp_path), ranks=ranks, library=library) == 14 + 5 + 5


@pytest.mark.proof
@pytest.mark.parametrize("library", BOTH)
def test_values_go_from_rank_to_rank_whole_and_checked(library: str) -> None:
    """T3, T4: of any length, late, changed since, not there; and no message is left at the end."""
    assert passed("task_edges.py", library=library) == 7


@pytest.mark.skipif(not LONG, reason="an edge of 3 GB, twice in memory: SAFEPOINT_CRASH=long")
def test_an_edge_above_two_gigabytes_arrives() -> None:
    """Above what an `int` of an older MPI counts."""
    assert passed("task_edges.py", "long") == 1


class Job:
    """One mpiexec of task_ranks.py in a directory of its own."""

    def __init__(
        self, ranks: int, graph: str, directory: Path, *flags: str, library: str = "mpich", **options: Any
    ) -> None:
        for path in (*directory.glob("said-*"), *directory.glob("pid-*")):
            path.unlink()
        self.directory, self.ranks = directory, ranks
        words = ["-W", "error", str(TESTBED / "task_ranks.py"), *flags, graph, str(directory), json.dumps(options)]
        self.process = subprocess.Popen(
            command(ranks, *words, library=library), env=surroundings(library),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def pid(self, rank: int) -> int:
        path = self.directory / f"pid-{rank}"
        wait_for(lambda: path.exists() and path.read_text())
        return int(path.read_text())

    def runs(self) -> list[str]:
        path = self.directory / "runs"
        return path.read_text().split() if path.exists() else []

    def end(self) -> str:
        """What it said. On return none of its ranks is left."""
        pids = [self.pid(rank) for rank in range(self.ranks)]
        try:
            text, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            raise
        wait_for(lambda: not any(map(alive, pids)))
        return text

    def said(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / f"said-{rank}").read_text())
        return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def finished(directory: Path) -> set[str]:
    return {record.vertex for record in Store(f"{directory}/.safepoint.d/tasks").records().values()}


@pytest.mark.parametrize("victim", some_of(["a worker", "the coordinator", "mpiexec"], 1, 3))
def test_after_sigkill_another_number_of_ranks_goes_on(victim: str, tmp_path: Path) -> None:
    """T1: whoever is killed, nothing that had been kept is computed again."""
    job = Job(3, "many", tmp_path)
    wait_for(lambda: len(finished(tmp_path)) >= 4)
    os.kill({"a worker": job.pid(2), "the coordinator": job.pid(0), "mpiexec": job.process.pid}[victim], signal.SIGKILL)
    job.end()
    assert job.process.returncode != 0
    (tmp_path / "go").touch()
    before, runs = finished(tmp_path), len(job.runs())
    again = Job(2, "many", tmp_path)
    text = again.end()
    assert again.process.returncode == 0, text
    assert before.isdisjoint(again.runs()[runs:]) and before | set(again.said(0)["ran"]) == set(again.runs()), before
    assert len(before) >= 4 and again.said(0) == again.said(1)


@pytest.mark.parametrize(
    ("number", "name", "error"),
    some_of([(signal.SIGINT, "Ctrl-C", "KeyboardInterrupt"), (signal.SIGTERM, "SIGTERM", "Stopped")], 1),
)
def test_a_signal_lets_running_vertices_finish(number: int, name: str, error: str, tmp_path: Path) -> None:
    """No more are begun, those at work are kept, all ranks raise; after SIGTERM with status 75."""
    job = Job(3, "waits", tmp_path)
    wait_for(lambda: len(job.runs()) == 2)
    job.process.send_signal(number)  # mpiexec sends it to all ranks, as a scheduler does
    until_said(job, f"stopping: {name} came")
    (tmp_path / "go").touch()
    job.end()
    assert {job.said(rank)["error"] for rank in range(3)} == {error}
    assert job.process.returncode == 75 if error == "Stopped" else job.process.returncode != 0
    assert finished(tmp_path) == {"first-0", "first-1"}
    with ThreadPoolExecutor(1) as threads:
        assert set(bodies.waits(str(tmp_path)).run(threads, directory=tmp_path).ran) == {"then-0", "then-1"}


def until_said(job: Job, text: str) -> None:
    """Reads what it says, as far as that."""
    assert job.process.stdout
    while text not in (line := job.process.stdout.readline()):
        assert line, f"it ended without saying {text!r}"


@pytest.mark.proof  # by itself; test_tasks_pool has it of processes
def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    """Also those at work, which hear of nothing."""
    job = Job(3, "waits", tmp_path)
    wait_for(lambda: len(job.runs()) == 2)
    os.kill(job.pid(0), signal.SIGINT)
    until_said(job, "stopping: Ctrl-C came")
    os.kill(job.pid(0), signal.SIGINT)
    text = job.end()
    assert job.process.returncode == 130 and "KeyboardInterrupt; ranks 1, 2 of 3 are at work" in text, text
    assert finished(tmp_path) == set()


@pytest.mark.proof  # as a case of task_cases.py, of ranks that hear of it
def test_an_error_of_rank_0_ends_those_at_work(tmp_path: Path) -> None:
    """They do not hear of it, so after a while MPI ends them; the message says why."""
    job = Job(3, "waits", tmp_path, "--broken")
    text = job.end()
    assert job.process.returncode == 1 and "RuntimeError: planted in rank 0; ranks 1, 2 of 3 are at work" in text, text


@pytest.mark.proof
def test_without_threads_all_goes_through_the_store(tmp_path: Path) -> None:
    """MPI_THREAD_FUNNELED: one line says so, and the results are the same."""
    job = Job(3, "mixed", tmp_path, "--funneled", edges="get")
    text = job.end()
    assert job.process.returncode == 0 and text.count("without MPI_THREAD_MULTIPLE") == 1, text
    log = [json.loads(line) for line in (tmp_path / ".safepoint.d/tasks/log.jsonl").read_text().splitlines()]
    assert [row["moved"] for row in log if row["event"] == "finished"] == [0] * 17


@pytest.mark.proof  # the programs of cases end as well
@pytest.mark.parametrize("library", BOTH)
def test_finalize_is_survived_every_time(library: str, tmp_path: Path) -> None:
    """No message is left unreceived, and no thread is left in MPI."""
    for n in range(20 if LONG else 1):
        directory = tmp_path / str(n)
        directory.mkdir()
        job = Job(3, "mixed", directory, library=library, edges="get")
        text = job.end()
        assert job.process.returncode == 0 and not text, text
        assert job.said(0)["values"] == job.said(2)["values"]
