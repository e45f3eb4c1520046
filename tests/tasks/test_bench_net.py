"""`safepoint bench-net` under the real mpiexec: what it measures, that a schedule can be made of it, and its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.jobs import mpiexec
from testbed.sweep import LONG

from safepoint.tasks.machine import Machine
from safepoint.tasks.netbench import SIZES
from safepoint.tasks.schedule import plan
from safepoint.tasks.simulate import Problem

pytestmark = pytest.mark.xdist_group("mpi-tasks")
pytest.importorskip("mpi4py", reason="ranks are measured over MPI: pip install '.[mpich]'")
Done = subprocess.CompletedProcess[str]


def bench(ranks: int, where: Path, *more: object, **variables: str) -> Done:
    command = mpiexec(ranks, "-m", "safepoint", "bench-net", *more)
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.proof)])
def test_ranks_are_measured_and_a_schedule_is_made_of_it(ranks: int, tmp_path: Path) -> None:
    done = bench(ranks, tmp_path, "-o", "net.json", "--rounds", 20 if LONG else 2)
    assert done.returncode == 0, done.stderr
    assert f"0-{ranks - 1}: {ranks} ranks on 1 host" in done.stdout.replace("0, 1:", "0-1:")
    assert done.stdout.endswith("written: net.json\n") and done.stdout.count("written") == 1
    lines = done.stderr.splitlines()
    pairs = ranks * (ranks - 1) // 2
    assert sum(" pair " in line for line in lines) == pairs and sum("shift" in line for line in lines) == ranks - 1

    content = json.loads((tmp_path / "net.json").read_text())
    assert content["safepoint"] == "net 1" and len(content["hosts"]) == ranks
    assert sum(content["speed"]) == pytest.approx(ranks) and min(content["speed"]) > 0
    by_size = content["measured"]["bandwidth_by_bytes"]
    assert list(by_size) == [str(size) for size in SIZES]
    assert content["bandwidth"] == by_size[str(SIZES[-1])] and content["measured"]["rounds"] == (20 if LONG else 2)
    for table in (content["latency_s"], content["all_latency_s"], content["bandwidth"], content["all_bandwidth"],
                  *by_size.values()):  # fmt: skip
        assert [len(row) for row in table] == [ranks] * ranks
        assert all((table[p][q] > 0) == (p != q) for p in range(ranks) for q in range(ranks))
    assert all(content["latency_s"][p][q] == content["latency_s"][q][p] for p in range(ranks) for q in range(p))

    on = Machine.read(str(tmp_path / "net.json")).workers(ranks - 1)
    problem = Problem.make({f"v{n}": 1.0 for n in range(9)}, {("v0", "v8"): 1e6})
    assert plan(problem, on).misfit(problem, ranks - 1) == ""


@pytest.mark.proof  # the text says the same
def test_with_json_the_measurement_is_on_stdout_and_nothing_else(tmp_path: Path) -> None:
    done = bench(2, tmp_path, "-o", "net.json", "--rounds", 1, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("file") == str(tmp_path / "net.json")
    assert said["bandwidth"] == json.loads((tmp_path / "net.json").read_text())["bandwidth"]


def test_a_place_that_cannot_be_written_is_an_error_before_minutes_are_spent(tmp_path: Path) -> None:
    """All ranks end with it, and one says it."""
    done = bench(2, tmp_path, "-o", "nowhere/net.json")
    assert done.returncode == 10 and done.stdout == ""
    text = "cannot write nowhere/net.json: No such file or directory; nothing was measured"
    assert done.stderr.count(text) == 1 and "pair" not in done.stderr and "Traceback" not in done.stderr


def test_one_rank_is_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "safepoint", "bench-net", "-o", "net.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 10 and "mpiexec -n N safepoint bench-net -o net.json" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = subprocess.run([*command, "--rounds", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "--rounds" in done.stderr


PROGRAM = """
import sys
from mpi4py import MPI
from safepoint.cli.group import program
if MPI.COMM_WORLD.Get_rank() == 1:
    {}
program(['bench-net', '-o', 'net.json', '--rounds', '1'])
"""


@pytest.mark.parametrize(("fault", "codes", "said"), [
    ("sys.modules['numpy'] = None", {10}, "rank 1 of 3: the speed of a rank is measured with numpy"),
    ("import safepoint.tasks.netbench as bench; bench.time = None", {*range(256)} - {0, 10}, "AttributeError: "),
], ids=["without numpy", "in the middle"])  # fmt: skip
def test_a_fault_of_one_rank_ends_all(fault: str, codes: set[int], said: str, tmp_path: Path) -> None:
    """The others would wait for it for ever."""
    (tmp_path / "bench.py").write_text(PROGRAM.format(fault))
    done = subprocess.run(mpiexec(3, "bench.py"), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode in codes and said in done.stderr
    if codes == {10}:
        assert done.stderr.count(said) == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "net.json").exists()
