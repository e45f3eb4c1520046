"""`safepoint check` over several nodes: the same is said as on one, and what is missing if one is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launcher import mpiexec
from testbed import apart
from testbed.checking import PATIENCE_S, Done, report, safepoint, situations
from testbed.commands import cli
from testbed.foreign import Mpi, each_mpi, environment, program
from testbed.waiting import wait_for

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
BEGIN = """import os, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
data = np.zeros(4)
"""
WRONG = """point = MPI.DOUBLE.Create_contiguous(2)
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
HANGS = """if rank == 0:
    comm.Recv(data, source=1, tag=5)
def end():
    comm.Barrier()
if rank:
    end()
"""
LOST = """point = MPI.DOUBLE.Create_contiguous(2)
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
HERE = {"SAFEPOINT_ADDRESS": "127.0.0.1"}
ON_PORT = "check", "--port", "0"


def two_nodes(cwd: Path) -> list[object]:
    """In which the second rank is on another node."""
    (cwd / "node").mkdir(exist_ok=True)
    return [sys.executable, apart.__file__, cwd / "node"]


def ranks(cwd: Path, text: str, *where: object) -> tuple[object, ...]:
    (cwd / "solver.py").write_text(BEGIN + text)
    return "--", mpiexec(), "-n", 2, *where, sys.executable, "solver.py"


def of_program(cwd: Path, text: str, *words: object) -> Done:
    return safepoint(cwd, *ON_PORT, *words, *ranks(cwd, text, *two_nodes(cwd)), **HERE)


def later(cwd: Path, *words: object) -> str:
    """What is said of the trace afterwards."""
    return cli("check", *words, cwd / "run.trace").stdout


def test_of_two_nodes_the_same_is_told_as_of_one_and_by_the_trace_too(tmp_path: Path) -> None:
    one = safepoint(tmp_path, *ON_PORT, "--json", *ranks(tmp_path, WRONG), **HERE)
    two = of_program(tmp_path, WRONG, "--json", "-o", "run.trace")
    assert two.returncode == one.returncode == 1, two.stderr
    assert report(two.stdout) == report(one.stdout) and report(two.stdout)["incomplete"] == []
    assert {found["template"] for found in situations(two.stdout)} == {"root-differs", "type-not-freed", "op-differs"}
    assert list((tmp_path / "node").iterdir()) == []  # all has come, so nothing is kept there
    assert situations(later(tmp_path, "--json")) == situations(two.stdout)


@pytest.mark.proof
def test_of_a_program_in_python_that_hangs_each_rank_tells_where_it_is(tmp_path: Path) -> None:
    done = of_program(tmp_path, HANGS, "--hang", 1)
    assert done.returncode == 1, done.stderr
    assert re.search(r"rank  1  Barrier                solver.py:10 < solver.py:12  since \d+ s", done.stdout), done
    assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock" in done.stdout
    assert "died" not in done.stdout and list((tmp_path / "node").iterdir()) == []


def in_c(cwd: Path, mpi: Mpi, case: str, *words: object) -> Done:
    """Of three ranks, the second of which is on another node."""
    exe = program("hangs.c", mpi, "-g", "-O0")
    of = "--with", "c", "--mpicc", mpi.cc, "-t", "none"
    done = safepoint(cwd, *ON_PORT, *of, *words, "--", *mpi.started(3), *two_nodes(cwd), exe, case, **HERE)
    wait_for(lambda: not list((cwd / "node").iterdir()), "the end of what a follower has kept")
    return done


def hangs(done: Done) -> None:
    assert done.returncode == 1, done.stderr
    assert "3 of 3 ranks are inside MPI" in done.stdout, done.stdout
    assert re.search(r"rank  1  Recv\(source=2, tag=5\)\s+hangs.c:11 < main hangs.c:32 ", done.stdout), done.stdout
    assert "rank 1 waits for rank 2, rank 2 for rank 1: deadlock" in done.stdout


@pytest.mark.proof
@each_mpi
def test_of_a_program_in_c_that_hangs_each_rank_tells_where_it_is(mpi: Mpi, tmp_path: Path) -> None:
    hangs(in_c(tmp_path, mpi, "wait", "--hang", 1))


@pytest.mark.proof
@each_mpi
def test_a_rank_that_dies_on_another_node_is_told_first(mpi: Mpi, tmp_path: Path) -> None:
    said = report(in_c(tmp_path, mpi, "abort", "--json").stdout)
    assert re.match(r"rank 1 died \(SIGABRT\) after Barrier hangs.c:20", said["deaths"][0]), said
    assert len(said["deaths"]) == 3 and said["incomplete"] == []


# What is missing.


@pytest.mark.proof
def test_a_node_whose_follower_is_killed_is_told_and_its_trace_can_be_judged_later(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "safepoint", *ON_PORT, "-o", "run.trace"]
    command = [*words, *map(str, ranks(tmp_path, LOST, *two_nodes(tmp_path)))]
    running = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(**HERE))  # fmt: skip
    trace = tmp_path / "run.trace"
    wait_for(lambda: [*trace.glob("rank-00001.json")] and (tmp_path / "here-1").exists(), "rank 1 is not followed")
    (kept,) = (tmp_path / "node").iterdir()
    os.kill(int((kept / "following").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    out, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, out  # of rank 0 alone all is known
    assert re.search(rf"^rank 1 on \S+ is followed no more since \S+: .*:{kept}$", out, re.M), out
    assert "so it is not known what these ranks have not done" in out
    assert "1 error" in out and "#1  F1  rank 0  solver.py:7" in out and "rank 1  solver" not in out, out
    assert safepoint(tmp_path, "check", "run.trace").stdout == out
    for path in kept.glob("rank-*"):
        shutil.copy(path, trace)
    whole = report(later(tmp_path, "--json"))
    (found,) = whole["situations"]
    assert (found["template"], found["count"], whole["incomplete"]) == ("type-not-freed", 2, [])


@pytest.mark.proof
def test_a_node_without_space_for_a_trace_is_told(tmp_path: Path) -> None:
    """And nothing is said of what its ranks have not done."""
    (tmp_path / "node").write_text("this is no directory\n")
    text = "if rank == 0:\n    comm.Send(data, dest=1)\nelse:\n    comm.Recv(data)\n"
    words = ranks(tmp_path, text, sys.executable, apart.__file__, tmp_path / "node")
    done = safepoint(tmp_path, *ON_PORT, *words, **HERE)
    assert done.returncode == 2, done.stdout
    assert "nothing has come of rank 1: " in done.stdout and "no mistake was found in what has come" in done.stdout
    assert "not traced: NotADirectoryError" in done.stderr


OTHER = "another program of MPI, which was not checked"


@pytest.mark.proof
def test_a_second_program_of_a_command_is_told(tmp_path: Path) -> None:
    """It is not checked, so that nothing was found says too little; also later."""
    (tmp_path / "solver.py").write_text(BEGIN)
    twice = "; ".join([f"{sys.executable} solver.py"] * 2)
    done = safepoint(tmp_path, "check", "-o", "run.trace", "--with", "python", "--", "sh", "-c", twice)
    after = safepoint(tmp_path, "check", "run.trace")
    assert after.stdout == done.stdout and after.returncode == done.returncode == 2, done
    assert f"the command has started {OTHER}" in done.stdout
    assert "so it is not known what these ranks have not done" not in done.stdout


@pytest.mark.proof
@each_mpi
def test_a_second_program_in_c_is_told(mpi: Mpi, tmp_path: Path) -> None:
    one = " ".join(map(str, (*mpi.started(2), program("check_sync.c", mpi, "-g", "-O0"), "right")))
    words = "--with", "c", "--mpicc", mpi.cc, "-t", "none", "--", "sh", "-c", f"{one}; {one}"
    done = safepoint(tmp_path, *ON_PORT, *words, **HERE)
    assert done.returncode == 2 and OTHER in done.stdout, done


def test_a_rank_on_another_node_that_nobody_listens_to_says_so(tmp_path: Path) -> None:
    """Without hosts in the command, and without --port, no port is opened."""
    text = f"import os\nos.environ['SAFEPOINT_TRACE'] = os.path.abspath('of-another-node')\n{BEGIN}comm.Barrier()\n"
    (tmp_path / "solver.py").write_text(text)
    done = safepoint(tmp_path, "check", "--", mpiexec(), "-n", "1", sys.executable, "solver.py")
    assert "is not the node of safepoint check, which follows no other: give it --port 0" in done.stderr


# Nodes whose processes have numbers of their own, and end with the node's part of the launcher.


def why_not() -> str:
    made = shutil.which("unshare") and subprocess.run(["unshare", "-upf", "--mount-proc", "true"], capture_output=True)
    return "" if made and made.returncode == 0 else "namespaces of processes cannot be made here"


def apart_indeed(test: Any) -> Any:
    return pytest.mark.proof(pytest.mark.skipif(bool(why := why_not()), reason=why or "-")(test))


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
            "TMPDIR": str(tmp_path / "tmp"), **HERE}  # fmt: skip


@apart_indeed
def test_of_two_nodes_that_end_with_their_ranks_the_same_is_told_as_of_one(
    tmp_path: Path, by_ssh: dict[str, str]
) -> None:
    words = ranks(tmp_path, WRONG)
    one = safepoint(tmp_path, *ON_PORT, "--json", *words, **HERE)
    two = safepoint(tmp_path, *ON_PORT, "--nodes", "node1,node2", "--json", "-o", "run.trace", *words, **by_ssh)
    assert report(two.stdout) == report(one.stdout) and two.returncode == 1, two.stderr
    hosts = [json.loads(path.read_text())["host"] for path in sorted((tmp_path / "run.trace").glob("rank-*.json"))]
    assert hosts == ["node1", "node2"]


@apart_indeed
@each_mpi
def test_on_two_nodes_a_program_in_c_that_hangs_is_told_and_ended(
    mpi: Mpi, tmp_path: Path, by_ssh: dict[str, str]
) -> None:
    words = "--nodes", "node1,node2", "--hang", 2, "--with", "c", "--mpicc", mpi.cc, "-t", "none"
    exe = program("hangs.c", mpi, "-g", "-O0")
    done = safepoint(tmp_path, *ON_PORT, *words, "--", *mpi.started(3), exe, "wait", **by_ssh)
    hangs(done)
    assert "followed no more" not in done.stdout
    wait_for(lambda: not list((tmp_path / "tmp").iterdir()), "the end of what a follower has kept")  # after the command
