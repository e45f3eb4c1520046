"""`safepoint check` over several nodes: the same is said as on one, and what is missing if one is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import mpiexec
from testbed import apart
from testbed.foreign import MPICH, OPEN_MPI, Mpi, needs, program
from testbed.foreign import environment as of_system

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
LONG = os.environ.get("SAFEPOINT_CRASH") in ("long", "all")
BEGIN = """import os, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
data = np.zeros(4)
"""
WRONG = (
    BEGIN
    + """point = MPI.DOUBLE.Create_contiguous(2)
point.Commit()
if rank == 0:
    comm.Bcast(data, root=0)
    comm.Send(data, dest=1, tag=3)
    comm.Allreduce(MPI.IN_PLACE, data, MPI.MAX)
else:
    comm.Bcast(data, root=1)
    comm.Recv(data, source=0, tag=3)
    comm.Allreduce(MPI.IN_PLACE, data, MPI.SUM)
"""
)
HANGS = BEGIN + "if rank == 0:\n    comm.Recv(data, source=1, tag=5)\nelse:\n    comm.Barrier()\n"
LOST = (
    BEGIN
    + """point = MPI.DOUBLE.Create_contiguous(2)
comm.Barrier()
open(f"here-{rank}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
if rank == 0:
    comm.Send(data, dest=1, tag=3)
else:
    comm.Recv(data, source=0, tag=3)
comm.Barrier()
"""
)


def command(cwd: Path, *words: object) -> list[str]:
    return [sys.executable, "-m", "safepoint", "check", "--port", "0", *map(str, words)]


def two_nodes(cwd: Path) -> list[object]:
    """In which the second rank is on another node."""
    (cwd / "node").mkdir(exist_ok=True)
    return [sys.executable, apart.__file__, cwd / "node"]


def check(cwd: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    environment = of_system(SAFEPOINT_ADDRESS="127.0.0.1", **more)
    return subprocess.run(command(cwd, *words), cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def of_program(cwd: Path, text: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    (cwd / "solver.py").write_text(text)
    ranks = mpiexec(), "-n", 2, *two_nodes(cwd), sys.executable, "solver.py"
    return check(cwd, *words, "--", *ranks, **more)


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def test_of_two_nodes_the_same_is_told_as_of_one_and_by_the_trace_too(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(WRONG)
    one = check(tmp_path, "--json", "--", mpiexec(), "-n", 2, sys.executable, "solver.py")
    two = of_program(tmp_path, WRONG, "--json", "-o", "run.trace")
    assert two.returncode == one.returncode == 1, two.stderr
    assert report(two) == report(one) and report(two)["incomplete"] == []
    assert {found["template"] for found in report(two)["situations"]} == {
        "root-differs", "type-not-freed", "op-differs",
    }  # fmt: skip
    assert list((tmp_path / "node").iterdir()) == []  # all has come, so nothing is kept there
    later = subprocess.run([sys.executable, "-m", "safepoint", "check", "--json", "run.trace"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    assert report(later)["situations"] == report(two)["situations"]


def c_program(cwd: Path, mpi: Mpi, case: str) -> list[object]:
    return [*mpi.started(3), *two_nodes(cwd), program("hangs.c", mpi, "-g", "-O0"), case]


of_each_mpi = pytest.mark.parametrize(
    "mpi",
    [pytest.param(MPICH, id="mpich", marks=needs("cc", "mpicc.mpich")),
     pytest.param(OPEN_MPI, id="openmpi", marks=[needs("cc", "mpicc.openmpi"), pytest.mark.skipif(
         not LONG, reason="with SAFEPOINT_CRASH=long")])],
)  # fmt: skip


@of_each_mpi
def test_of_a_program_in_c_that_hangs_each_rank_tells_where_it_is(mpi: Mpi, tmp_path: Path) -> None:
    words = "--hang", 1, "--with", "c", "--mpicc", mpi.cc, "-t", "none"
    done = check(tmp_path, *words, "--", *c_program(tmp_path, mpi, "wait"))
    assert done.returncode == 1, done.stderr
    assert "3 of 3 ranks are inside MPI" in done.stdout, done.stdout
    assert re.search(r"rank  1  Recv\(source=2, tag=5\)\s+hangs.c:10 < main hangs.c:25 ", done.stdout), done.stdout
    assert "rank 1 waits for rank 2, rank 2 for rank 1: deadlock" in done.stdout
    assert list((tmp_path / "node").iterdir()) == []


def test_of_a_program_in_python_that_hangs_each_rank_tells_where_it_is(tmp_path: Path) -> None:
    done = of_program(tmp_path, HANGS.replace("else:\n", "def end():\n", 1) + "if rank:\n    end()\n", "--hang", 1)
    assert done.returncode == 1, done.stderr
    assert "rank  1  Barrier                solver.py:10 < solver.py:12  since 1 s" in done.stdout, done.stdout
    assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock" in done.stdout
    assert "died" not in done.stdout and list((tmp_path / "node").iterdir()) == []


@of_each_mpi
def test_a_rank_that_dies_on_another_node_is_told_first(mpi: Mpi, tmp_path: Path) -> None:
    words = "--with", "c", "--mpicc", mpi.cc, "-t", "none", "--json"
    for _ in range(6):  # on a busy machine all are gone before anybody looks, but not each time
        said = report(check(tmp_path, *words, "--", *c_program(tmp_path, mpi, "abort")))
        if said["deaths"][0].startswith("rank 1 "):
            break
    assert re.match(r"rank 1 died( \(SIGABRT\))? after Barrier hangs.c:19", said["deaths"][0]), said
    assert len(said["deaths"]) == 3 and said["incomplete"] == []
    assert list((tmp_path / "node").iterdir()) == []


# What is missing.


def started(cwd: Path, text: str, *words: object) -> subprocess.Popen[str]:
    (cwd / "solver.py").write_text(text)
    ranks = mpiexec(), "-n", 2, *two_nodes(cwd), sys.executable, "solver.py"
    return subprocess.Popen(command(cwd, *words, "--", *ranks), cwd=cwd, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=of_system(SAFEPOINT_ADDRESS="127.0.0.1"))  # fmt: skip


def until(holds: Any, what: str) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_a_node_whose_follower_is_killed_is_told_and_its_trace_can_be_judged_later(tmp_path: Path) -> None:
    running = started(tmp_path, LOST, "-o", "run.trace")
    there, trace = tmp_path / "node", tmp_path / "run.trace"
    until(lambda: [*trace.glob("rank-00001.json")] and (tmp_path / "here-1").exists(), "rank 1 is not followed")
    (kept,) = there.iterdir()
    os.kill(int((kept / "following").read_text()), signal.SIGKILL)
    time.sleep(0.3)
    (tmp_path / "go").touch()
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 1, out  # of rank 0 alone all is known
    assert re.search(rf"^rank 1 on \S+ is followed no more since \S+: .*:{kept}$", out, re.M), out
    assert "so it is not known what these ranks have not done" in out
    assert "1 error" in out and "#1  F1  rank 0  solver.py:7" in out and "rank 1  solver" not in out, out
    later = subprocess.run([sys.executable, "-m", "safepoint", "check", "run.trace"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    assert later.stdout == out
    for path in kept.glob("rank-*"):
        shutil.copy(path, trace)
    whole = subprocess.run([sys.executable, "-m", "safepoint", "check", "--json", "run.trace"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    (found,) = report(whole)["situations"]
    assert (found["template"], found["count"], report(whole)["incomplete"]) == ("type-not-freed", 2, [])


def test_a_node_without_space_for_a_trace_is_told(tmp_path: Path) -> None:
    """And nothing is said of what its ranks have not done."""
    (tmp_path / "node").write_text("this is no directory\n")
    (tmp_path / "solver.py").write_text(
        BEGIN + "if rank == 0:\n    comm.Send(data, dest=1)\nelse:\n    comm.Recv(data)\n"
    )
    ranks = mpiexec(), "-n", 2, sys.executable, apart.__file__, tmp_path / "node", sys.executable, "solver.py"
    done = check(tmp_path, "--", *ranks)
    assert done.returncode == 2, done.stdout
    assert "nothing has come of rank 1: " in done.stdout and "no mistake was found in what has come" in done.stdout
    assert "not traced: NotADirectoryError" in done.stderr


def test_a_second_program_of_a_command_is_told(tmp_path: Path) -> None:
    """It is not checked, so that nothing was found says too little; also later."""
    (tmp_path / "solver.py").write_text(BEGIN)
    one = f"{sys.executable} solver.py"
    words = [sys.executable, "-m", "safepoint", "check", "-o", "run.trace", "--with", "python", "--", "sh", "-c"]
    done = subprocess.run([*words, f"{one}; {one}"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    later = subprocess.run([*words[:4], "run.trace"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert later.stdout == done.stdout and later.returncode == done.returncode == 2, done
    assert "the command has started another program of MPI, which was not checked" in done.stdout
    assert "so it is not known what these ranks have not done" not in done.stdout


@of_each_mpi
def test_a_second_program_in_c_is_told(mpi: Mpi, tmp_path: Path) -> None:
    one = " ".join(map(str, (*mpi.started(2), program("check_sync.c", mpi, "-g", "-O0"), "right")))
    words = "--with", "c", "--mpicc", mpi.cc, "-t", "none", "--", "sh", "-c", f"{one}; {one}"
    done = check(tmp_path, *words)
    assert done.returncode == 2 and "another program of MPI, which was not checked" in done.stdout, done


def test_a_rank_on_another_node_that_nobody_listens_to_says_so(tmp_path: Path) -> None:
    """Without hosts in the command, and without --port, no port is opened."""
    (tmp_path / "solver.py").write_text(
        "import os\nos.environ['SAFEPOINT_TRACE'] = os.path.abspath('of-another-node')\n" + BEGIN + "comm.Barrier()\n"
    )
    words = [sys.executable, "-m", "safepoint", "check", "--", mpiexec(), "-n", "2", sys.executable, "solver.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "is not the node of safepoint check, which follows no other: give it --port 0" in done.stderr


# Nodes whose processes have numbers of their own, and end with the node's part of the launcher.


def why_not() -> str:
    if not LONG:
        return "with SAFEPOINT_CRASH=long"
    made = shutil.which("unshare") and subprocess.run(["unshare", "-upf", "--mount-proc", "true"], capture_output=True)
    return "" if made and made.returncode == 0 else "namespaces of processes cannot be made here"


apart_indeed = pytest.mark.skipif(bool(why := why_not()), reason=why or "-")


@pytest.fixture
def by_ssh(tmp_path: Path) -> dict[str, str]:
    """What is to be in the environment of a launcher, so that a host is such a node."""
    path = tmp_path / "ssh"
    path.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
        'exec env -i PATH="$PATH" HOME="$HOME" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 '
        'unshare -upf --mount-proc sh -c "hostname $host; $*"\n'
    )
    path.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(path), "OMPI_MCA_plm_rsh_agent": str(path),
            "TMPDIR": str(tmp_path / "tmp")}  # fmt: skip


@apart_indeed
def test_of_two_nodes_that_end_with_their_ranks_the_same_is_told_as_of_one(
    tmp_path: Path, by_ssh: dict[str, str]
) -> None:
    (tmp_path / "solver.py").write_text(WRONG)
    ranks = mpiexec(), "-n", 2, sys.executable, "solver.py"
    one, two = (
        check(tmp_path, "--json", "--", *ranks),
        check(tmp_path, "--nodes", "node1,node2", "--json", "-o", "run.trace", "--", *ranks, **by_ssh),
    )
    assert report(two) == report(one) and two.returncode == 1, two.stderr
    hosts = [json.loads(path.read_text())["host"] for path in sorted((tmp_path / "run.trace").glob("rank-*.json"))]
    assert hosts == ["node1", "node2"]


@apart_indeed
@of_each_mpi
def test_on_two_nodes_a_program_in_c_that_hangs_is_told_and_ended(
    mpi: Mpi, tmp_path: Path, by_ssh: dict[str, str]
) -> None:
    words = "--nodes", "node1,node2", "--hang", 2, "--with", "c", "--mpicc", mpi.cc, "-t", "none"
    program_ = program("hangs.c", mpi, "-g", "-O0")
    done = check(tmp_path, *words, "--", *mpi.started(3), program_, "wait", **by_ssh)
    assert re.search(r"rank  1  Recv\(source=2, tag=5\)\s+hangs.c:10 < main hangs.c:25 ", done.stdout), done
    assert list((tmp_path / "tmp").iterdir()) == [] and "followed no more" not in done.stdout
