"""Jobs of a real Slurm: stopped before the time limit, by a signal, requeued by hand, and orphaned by a dead node."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import Cluster, alive, events, out, pytestmark  # noqa: F401 - this skips, and groups, these tests
from testbed.paths import EXAMPLES, HOUSE
from testbed.waiting import wait_for

HERE = Path(__file__).parent
PAGE = HOUSE / "docs" / "schedulers.md"
STEPS = 1500  # of examples/batch.py: minutes, slowed down as it is in the first start of a job; else seconds
# The script with a signal of docs/schedulers.md.
(SCRIPT,) = re.findall(r"```bash\n(#!/bin/bash\n(?:(?!```).)*?PROGRAM & solver.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The result of the same computation that nobody stopped."""
    work = tmp_path_factory.mktemp("undisturbed")
    subprocess.run([sys.executable, str(EXAMPLES / "batch.py"), *options(work)], check=True)
    return (work / "u.npy").read_bytes()


def options(work: Path) -> list[str]:
    return ["--steps", str(STEPS), "--directory", str(work)]


def script(work: Path) -> str:
    return SCRIPT.replace("PROGRAM", " ".join([sys.executable, str(HERE / "slow.py"), *options(work)]))


def sets(work: Path) -> int:
    return len(list(work.glob(".safepoint.d/rank-00000/set-*/record.json")))


def test_stopped_before_the_time_limit_and_by_the_signal_requeued_and_done(
    cluster: Cluster, tmp_path: Path, undisturbed: bytes
) -> None:
    """Slurm looks every 30 s which jobs have less than their two minutes left; the second start is done before."""
    job = cluster.submit(script(tmp_path), tmp_path, "--time=1")
    wait_for(lambda: '"stopped"' in events(tmp_path), lambda: out(tmp_path))
    assert "SIGUSR1 came" in events(tmp_path)
    assert cluster.until_ended(job) == "COMPLETED", out(tmp_path)
    assert int(cluster.job(job)["Restarts"]) >= 1
    assert (tmp_path / "u.npy").read_bytes() == undisturbed


def test_the_time_limit_alone_without_a_signal(cluster: Cluster, tmp_path: Path, undisturbed: bytes) -> None:
    """`should_stop` asks Slurm how much time is left. A minute is the shortest limit there is, so the program begins
    when little of it is left."""
    late = script(tmp_path).replace("#SBATCH --signal=B:USR1@120\n", '[ "$SLURM_RESTART_COUNT" ] || sleep 50\n')
    job = cluster.submit(late, tmp_path, "--time=1")
    wait_for(lambda: '"stopped"' in events(tmp_path), lambda: out(tmp_path))
    assert "time limit (Slurm)" in events(tmp_path)
    assert cluster.until_ended(job) == "COMPLETED", out(tmp_path)
    assert (tmp_path / "u.npy").read_bytes() == undisturbed


def test_requeued_by_an_operator(cluster: Cluster, tmp_path: Path, undisturbed: bytes) -> None:
    """`scontrol requeue` ends the job by SIGTERM, and SIGKILL after two seconds, and starts it again."""
    job = cluster.submit(script(tmp_path), tmp_path, "--time=60")
    wait_for(lambda: sets(tmp_path) >= 1, lambda: out(tmp_path))
    cluster.ask("scontrol", "requeue", job)
    assert cluster.until_ended(job) == "COMPLETED", out(tmp_path)
    assert (tmp_path / "u.npy").read_bytes() == undisturbed


def test_after_a_node_failure_the_requeued_copy_is_refused_while_the_orphan_runs(
    cluster: Cluster, tmp_path: Path, undisturbed: bytes
) -> None:
    """slurmd and slurmstepd are killed and the node set down: Slurm starts the job again, in the same directory, while
    its processes still run. The lock refuses the second; when the first is gone, a further start takes over."""
    retry = script(tmp_path).replace("exit $status", "[ $status -eq 13 ] && { echo refused; exit 13; }\nexit $status")
    job = cluster.submit(retry, tmp_path, "--time=60")
    wait_for(lambda: sets(tmp_path) >= 1, lambda: out(tmp_path))
    orphan = owner(tmp_path)
    cluster.kill_node()
    try:
        cluster.ask("scontrol", "update", f"NodeName={cluster.host}", "State=DOWN", "Reason=test")
        cluster.start("slurmd")
        wait_for(lambda: "idle" in cluster.ask("sinfo", "-h", "-o", "%T") or "refused" in out(tmp_path), cluster.logs)
        wait_for(lambda: "is in use by another run" in out(tmp_path), lambda: out(tmp_path) + cluster.logs())
        assert f"process {orphan}" in out(tmp_path)
        assert cluster.until_ended(job) == "FAILED"
        os.kill(orphan, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)
    wait_for(lambda: not alive(orphan))
    cluster.ask("scontrol", "requeue", job)
    assert cluster.until_ended(job) == "COMPLETED", out(tmp_path)
    assert (tmp_path / "u.npy").read_bytes() == undisturbed


def owner(work: Path) -> int:
    return int(json.loads((work / ".safepoint.d/rank-00000/owner.json").read_text())["pid"])


def test_tasks_of_srun_that_mpi_does_not_join_are_refused_and_the_process_of_the_script_is_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Slurm tells both of several tasks (SLURM_NTASKS); only to those of srun each other's ranks are missing."""
    (tmp_path / ".safepoint").write_text("u.txt\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, safepoint\nfrom mpi4py import MPI\n"
        "try: safepoint.init(sys.argv[1], comm=MPI.COMM_WORLD).close()\n"
        "except safepoint.UsageError as error: sys.stdout.write(f'{error}\\n')\n"
        "else: sys.stdout.write('began\\n')\n"
    )
    command = f"{sys.executable} {program} {tmp_path}"
    script = f"#!/bin/bash\necho $SLURM_NTASKS\n{command}\nsrun --mpi=none {command}\nexec {command}\n"
    job = cluster.submit(script, tmp_path, "--ntasks=2")
    assert cluster.until_ended(job) == "COMPLETED", out(tmp_path)
    first, before, *tasks, after = out(tmp_path).splitlines()
    assert (first, before, after) == ("2", "began", "began"), out(tmp_path)
    assert len(tasks) == 2 and all("srun started 2 processes (SLURM_STEP_NUM_TASKS)" in line for line in tasks)
