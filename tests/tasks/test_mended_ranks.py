"""Faults of runs on ranks that were found and mended, each once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.jobs import mpiexec

from safepoint.errors import FormatError, UsageError
from safepoint.report.drawing import TimeAxis
from safepoint.tasks import Graph
from safepoint.tasks.body import failure_of
from safepoint.tasks.found import Found, Stopped
from safepoint.tasks.jobs import NPY, Job, Output
from safepoint.tasks.machine import Machine
from safepoint.tasks.mpi import serving
from safepoint.tasks.mpi.inputs import copied, lying
from safepoint.tasks.mpi.outcome import Outcome
from safepoint.tasks.pictures.past import read
from safepoint.tasks.saved import Store
from safepoint.tasks.values import encode
from safepoint.tasks.view import page

ALONE = """
import os, time
from mpi4py import MPI
from safepoint.tasks import Graph
from safepoint.tasks.mpi import entering
entering.LONG_S = 0.5
print("pid", os.getpid(), flush=True)
time.sleep(600) if MPI.COMM_WORLD.rank else Graph("g").run(on=MPI.COMM_WORLD)
"""


@pytest.mark.xdist_group("mpi-tasks")
def test_who_waits_for_a_rank_that_never_comes_says_so_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    """One that raises before its call of run left the others without a word, and deaf."""
    pytest.importorskip("mpi4py", reason="a graph on ranks needs MPI: pip install '.[mpich]'")
    pipe = subprocess.PIPE
    job = subprocess.Popen(mpiexec(2, "-c", ALONE), cwd=tmp_path, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    assert job.stdout
    with job.stdout:
        while "has waited in run for other ranks" not in (line := job.stdout.readline()):
            assert line
        assert "rank 0 of 2" in line and "python -m mpi4py" in line
        job.send_signal(2)
        text = job.stdout.read()
    assert job.wait(300) and ("before all ranks had entered run" in text or "KeyboardInterrupt" in text), text


def test_what_only_looks_like_a_communicator_is_refused() -> None:
    class Alike:
        Get_rank = Get_size = lambda self: 1

    with pytest.raises(UsageError, match="comm must be an intracommunicator of mpi4py"):
        Graph("g").run(on=Alike())


def test_without_room_for_an_answer_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer would never have been received: its sender waited for that at the end of the run."""

    def full(nbytes: int) -> memoryview:
        raise MemoryError

    asked: list[Any] = []
    monkeypatch.setattr(serving, "space", full)
    monkeypatch.setattr(serving, "post", lambda *what: asked.append(what))
    with pytest.raises(MemoryError):
        serving.Asker(object()).ask(1, "key", Output("", NPY, "", 100))
    assert not asked


def test_a_part_of_a_large_array_does_not_keep_all_of_it() -> None:
    """`memory` counts what is kept, so that must be what is held."""
    whole = np.zeros(1 << 20, "u1")
    kept = serving.Kept(1 << 30)
    kept.put("some", "", [whole[:8192].data])
    kept.put("all", "", [whole[1:].data])
    (some,), (rest,) = kept.get("some", "") or (), kept.get("all", "") or ()
    assert bytes(some) == bytes(8192) and not np.shares_memory(np.frombuffer(some, "u1"), whole)
    assert np.shares_memory(np.frombuffer(rest, "u1"), whole)


@pytest.mark.parametrize(("key", "row"), [("speed", [1e308, 1.0]), ("latency_s", [0.0, 1e308]),
                                          ("bandwidth", [0.0, 5e-324])])  # fmt: skip
def test_a_machine_is_within_what_can_be_reckoned_with(key: str, row: list[float]) -> None:
    """Such numbers were taken, and HEFT divided by zero, or rounded what is no number."""
    content = {"safepoint": "net 1", "speed": [1.0, 1.0], "latency_s": [[0, 1], [1, 0]], "bandwidth": [[0, 1], [1, 0]]}
    content[key] = row if key == "speed" else [row, [1.0, 0.0]]
    with pytest.raises(FormatError, match=rf"net.json: {key}\[0\].* is not from "):
        Machine.parse(content, "net.json")


def test_a_plan_of_any_length_is_drawn() -> None:
    """Of one of 10^18 units the axis had a label for each five thousand days: no end of them."""
    for power in range(1, 19):
        places, _ = TimeAxis([(0.0, 10.0**power)], 0.0, 1000.0).ticks()
        assert 1 < len(places) < 20


def test_a_clock_that_goes_back_hinders_no_page(tmp_path: Path) -> None:
    """Attempts had lengths below zero, and their sum could be zero, by which was divided."""
    start = {"time": 1000.0, "event": "start", "run": "r", "graph": "g", "workers": 1, "finished": 0, "to_run": 2}
    ends = [{"time": 1000.0 + after, "event": event, "vertex": "a", "worker": "rank 1", "attempt": 1, "body_s": 2.0}
            for after, event in ((-3.0, "failed"), (3.0, "finished"))]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (start, *ends)))
    assert [attempt.body_s for attempt in read(tmp_path).starts[0].attempts] == [0.0, 2.0]
    assert "Graph g" in page(tmp_path, None)


def test_a_message_of_megabytes_is_cut() -> None:
    """It was in the log twice for each attempt, and travelled between ranks."""
    job = Job("a", "key", print, None, {}, (), 1, 0, True, {}, "", "")
    failure = failure_of(ValueError("from here" + "x" * 10_000_000 + "to there"), job)
    assert len(failure.message) < 70_000 and len(failure.traceback) < 70_000
    assert failure.message.startswith("from here") and failure.message.endswith("to there")


def test_a_large_array_is_read_only_wherever_it_comes_from() -> None:
    """One that came from another rank could be written to, so where a body ran decided whether it failed."""
    for nbytes, writable in ((64 << 20, False), (1 << 20, True)):
        array = np.zeros(nbytes, "u1")
        (encoded,) = encode(array)
        output, room = Output("", NPY, encoded.digest, encoded.nbytes), bytearray(b"".join(encoded.pieces))
        for found in (lying(output, memoryview(room)), copied(output, [memoryview(each) for each in encoded.pieces])):
            assert found.flags.writeable is writable and np.array_equal(found, array)


def test_the_last_word_of_a_stopped_run_says_why(tmp_path: Path) -> None:
    """It was "Stopped: 75"."""
    found = Found(Store(str(tmp_path)), {})
    assert Outcome(error=Stopped(75, "the time is over", found)).text == "Stopped: the time is over"
    assert Outcome(error=KeyboardInterrupt()).text == "KeyboardInterrupt"
