"""`examples/heat.c` as tasks of srun: stopped before the time limit, requeued, and ended as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import Cluster, events, out, pytestmark  # noqa: F401 - this skips, and groups, these tests
from testbed.foreign import MPICH, OPEN_MPI, SOURCES, Mpi, environment, needs, program, ran
from testbed.sweep import LONG
from testbed.waiting import wait_for

long = pytest.mark.skipif(not LONG, reason="in make crash: two minutes")
STEPS = 12000  # 5 ms for each of two messages in the first start: two minutes; else seconds

# What docs/schedulers.md says, with the launcher that speaks with this MPI.
SCRIPT = """\
#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append

BEGIN
srun --mpi=PMI -n 2 PROGRAM
status=$?
if [ $status -eq 75 ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $status
"""


@pytest.mark.parametrize(
    ("mpi", "pmi"),
    [
        pytest.param(MPICH, "pmi2", id="mpich", marks=needs(MPICH.cc)),
        pytest.param(OPEN_MPI, "pmix", id="openmpi", marks=[needs(OPEN_MPI.cc), long]),
    ],
)
def test_a_solver_in_c_stops_before_the_time_limit_is_requeued_and_ends_equal(
    mpi: Mpi, pmi: str, cluster: Cluster, tmp_path: Path
) -> None:
    """`safepoint_should_stop` asks Slurm how much time is left. A minute is the shortest limit there is, so the program
    begins when little of it is left. Then a second job is requeued by an operator."""
    exe = program("heat.c", mpi, "-include", str(SOURCES / "slow.h"))
    begin = "\n".join(f"export {name}={value!r}" for name, value in environment().items() if name.startswith("OMPI"))
    script = SCRIPT.replace("PMI", pmi).replace("PROGRAM", f"{exe} {STEPS}")
    alone, limited, again = (tmp_path / name for name in ("alone", "limited", "again"))
    for work in (alone, limited, again):
        work.mkdir()
        (work / ".safepoint").write_text("heat-{rank}.dat\n")
    assert ran(alone, *mpi.started(2, exe, STEPS), more={"SLURM_RESTART_COUNT": "0"})[0] == 0

    late = script.replace("BEGIN", f'{begin}\n[ "$SLURM_RESTART_COUNT" ] || sleep 45')
    job = cluster.submit(late, limited, "--time=1", "--ntasks=2")
    wait_for(lambda: '"stopped"' in events(limited), lambda: out(limited) + cluster.logs())
    assert "time limit (Slurm)" in events(limited)
    assert cluster.until_ended(job) == "COMPLETED", out(limited)
    assert int(cluster.job(job)["Restarts"]) >= 1

    job = cluster.submit(script.replace("BEGIN", begin), again, "--time=60", "--ntasks=2")
    wait_for(lambda: '"stored"' in events(again), lambda: out(again))
    cluster.ask("scontrol", "requeue", job)
    assert cluster.until_ended(job) == "COMPLETED", out(again)
    for name in ("heat-0.dat", "heat-1.dat"):
        assert len({(work / name).read_bytes() for work in (alone, limited, again)}) == 1, name
