"""A graph on the ranks of MPI, with the real mpiexec: the cases of `task_cases.py`, and runs that end in all ways."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.paths import HOUSE, TESTBED
from testbed.sweep import LONG
from testbed.traced import command, environment, libraries

from safepoint.tasks.saved import Store

pytestmark = pytest.mark.xdist_group("mpi")
PATIENCE_S = 60


def surroundings(library: str = "mpich") -> dict[str, str]:
    return environment(library, None) | {"PYTHONPATH": str(HOUSE)}


@pytest.mark.parametrize("ranks", [3, 2, 1])
def test_all_that_must_hold_of_a_graph_on_so_many_ranks(ranks: int, tmp_path: Path) -> None:
    """T1 to T6 on ranks: every case of task_cases.py that is about this number of them."""
    done = cases(ranks, "mpich", tmp_path)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == {1: 4, 2: 4, 3: 12}[ranks], done.stdout


@pytest.mark.skipif(not LONG, reason="the same with Open MPI, and more ranks: SAFEPOINT_CRASH=long")
@pytest.mark.parametrize(("ranks", "library"), [(3, "openmpi"), (8, "mpich")])
def test_all_that_must_hold_elsewhere(ranks: int, library: str, tmp_path: Path) -> None:
    done = cases(ranks, library, tmp_path)
    assert done.returncode == 0 and done.stdout.count("ok ") == 12, done.stdout + done.stderr


def cases(ranks: int, library: str, directory: Path, *names: str) -> subprocess.CompletedProcess[str]:
    words = ["-W", "error", str(TESTBED / "task_cases.py"), str(directory), *names]
    return subprocess.run(
        command(ranks, *words, library=library), env=surroundings(library), capture_output=True, text=True, timeout=300
    )


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
        until(lambda: path.exists() and path.read_text(), "its pid is said")
        return int(path.read_text())

    def runs(self) -> list[str]:
        path = self.directory / "runs"
        return path.read_text().split() if path.exists() else []

    def end(self) -> str:
        """What it said. On return none of its ranks is left."""
        pids = [self.pid(rank) for rank in range(self.ranks)]
        try:
            text, _ = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            raise
        until(lambda: not any(map(alive, pids)), "its ranks are gone")
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


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.005)


def finished(directory: Path) -> set[str]:
    return {record.vertex for record in Store(f"{directory}/.safepoint.d/tasks").records().values()}


@pytest.mark.parametrize("victim", ["a worker", "the coordinator", "mpiexec"])
def test_after_sigkill_another_number_of_ranks_goes_on(victim: str, tmp_path: Path) -> None:
    """T1: whoever is killed, nothing that had been kept is computed again."""
    job = Job(3, "slow", tmp_path)
    until(lambda: len(finished(tmp_path)) >= 4, "four have finished")
    os.kill({"a worker": job.pid(2), "the coordinator": job.pid(0), "mpiexec": job.process.pid}[victim], signal.SIGKILL)
    job.end()
    assert job.process.returncode != 0
    before, runs = finished(tmp_path), len(job.runs())
    again = Job(2, "slow", tmp_path)
    text = again.end()
    assert again.process.returncode == 0, text
    assert before.isdisjoint(again.runs()[runs:]) and before | set(again.said(0)["ran"]) == set(again.runs()), before
    assert len(before) >= 4 and again.said(0) == again.said(1)


def test_ctrl_c_lets_running_vertices_finish(tmp_path: Path) -> None:
    """Once: no more are begun, those at work are kept, all ranks raise KeyboardInterrupt."""
    job = Job(3, "waits", tmp_path)
    until(lambda: len(job.runs()) == 2, "both are at work")
    job.process.send_signal(signal.SIGINT)  # mpiexec sends it to all ranks
    until_said(job, "stopping: Ctrl-C came")
    (tmp_path / "go").touch()
    job.end()
    assert job.process.returncode != 0
    assert {job.said(rank)["error"] for rank in range(3)} == {"KeyboardInterrupt"}
    assert finished(tmp_path) == {"first-0", "first-1"}
    again = Job(2, "waits", tmp_path)
    again.end()
    assert set(again.said(1)["ran"]) == {"then-0", "then-1"}


def until_said(job: Job, text: str) -> None:
    """Reads what it says, as far as that."""
    assert job.process.stdout
    while text not in (line := job.process.stdout.readline()):
        assert line, f"it ended without saying {text!r}"


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    """Also those at work, which hear of nothing."""
    job = Job(3, "waits", tmp_path)
    until(lambda: len(job.runs()) == 2, "both are at work")
    os.kill(job.pid(0), signal.SIGINT)
    until_said(job, "stopping: Ctrl-C came")
    os.kill(job.pid(0), signal.SIGINT)
    text = job.end()
    assert job.process.returncode == 130 and "KeyboardInterrupt; ranks 1, 2 of 3 are at work" in text, text
    assert finished(tmp_path) == set()


def test_an_error_of_rank_0_ends_those_at_work(tmp_path: Path) -> None:
    """They do not hear of it, so after some seconds MPI ends them; the message says why."""
    job = Job(3, "waits", tmp_path, "--broken")
    text = job.end()
    assert job.process.returncode == 1 and "RuntimeError: planted in rank 0; ranks 1, 2 of 3 are at work" in text, text


def test_sigterm_ends_it_with_status_75(tmp_path: Path) -> None:
    """As a scheduler sends it, to all ranks; what is at work is finished."""
    job = Job(3, "waits", tmp_path)
    until(lambda: len(job.runs()) == 2, "both are at work")
    job.process.send_signal(signal.SIGTERM)
    until_said(job, "stopping: SIGTERM came")
    (tmp_path / "go").touch()
    job.end()
    assert {job.said(rank)["error"] for rank in range(3)} == {"Stopped"}
    assert job.process.returncode == 75 and finished(tmp_path) == {"first-0", "first-1"}


def test_without_threads_all_goes_through_the_store(tmp_path: Path) -> None:
    """MPI_THREAD_FUNNELED: one line says so, and the results are the same."""
    job = Job(3, "mixed", tmp_path, "--funneled", edges="get")
    text = job.end()
    assert job.process.returncode == 0 and text.count("without MPI_THREAD_MULTIPLE") == 1, text
    log = [json.loads(line) for line in (tmp_path / ".safepoint.d/tasks/log.jsonl").read_text().splitlines()]
    assert [row["moved"] for row in log if row["event"] == "finished"] == [0] * 17


@libraries
def test_finalize_is_survived_every_time(library: str, tmp_path: Path) -> None:
    """No message is left unreceived, and no thread is left in MPI."""
    for n in range(20 if LONG else 2):
        directory = tmp_path / str(n)
        directory.mkdir()
        job = Job(3, "mixed", directory, library=library, edges="get")
        text = job.end()
        assert job.process.returncode == 0 and not text, text
        assert job.said(0)["values"] == job.said(2)["values"]
