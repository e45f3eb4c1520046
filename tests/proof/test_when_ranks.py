"""When to save and when to stop, on many ranks: one decides, all are told."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from testbed.jobs import mpiexec
from testbed.paths import TESTBED
from testbed.stops import UNIX, safepoint
from testbed.sweep import LONG
from testbed.waiting import wait_for

from safepoint.pace.stopping import REQUEUE


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


# Many ranks
class Ranked:
    """Four ranks of `stopping.py`; what each says."""

    def __init__(self, work: Path, pause: float) -> None:
        (work / ".safepoint").write_text("u-{rank}.dat\n")
        self.said = [work / f"said-{rank}" for rank in range(4)]
        for path in self.said:
            path.unlink(missing_ok=True)
        command = mpiexec(4, TESTBED / "stopping.py", work, pause)
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: all(path.exists() and path.read_text().endswith("\n") for path in self.said))

    def pid(self, rank: int) -> int:
        return int(self.said[rank].read_text().split()[0])

    def ended(self) -> list[str]:
        _, errors = self.process.communicate(timeout=300)
        assert self.process.returncode == REQUEUE, errors
        return [path.read_text().split("\n")[1] for path in self.said]


@UNIX
@pytest.mark.xdist_group("mpi-examples")
@pytest.mark.timeout(600)
def test_a_signal_to_one_of_four_ranks_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """100 rounds in the long form: at a random time, to a random rank; a set of that step is there, on all."""
    chance = random.Random(8)
    for _ in range(100 if LONG else 5):
        job = Ranked(tmp_path, chance.choice([0.0005, 0.002, 0.02]))
        try:
            time.sleep(chance.random() * 0.5)
            os.kill(job.pid(chance.randrange(4)), signal.SIGUSR1)
            said = job.ended()
        finally:
            with suppress(ProcessLookupError):
                job.process.kill()
        assert len(set(said)) == 1, said
        step = int(said[0].split()[0])
        status = json.loads(safepoint(tmp_path, "status", "--json").stdout)
        assert status["restart"]["step"] == step and status["sets"][0]["state"] == "complete"
        assert all((tmp_path / f"u-{rank}.dat").exists() is False for rank in range(4))


HANDLERS = """
import os, signal, sys, safepoint
from mpi4py import MPI
seen = []
own = lambda number, frame: seen.append(number)
signal.signal(signal.SIGUSR1, own)
sp = safepoint.init(comm=MPI.COMM_WORLD, signals=("USR1",))
sp.restore()
with open(f"u-{MPI.COMM_WORLD.rank}.dat", "w") as file:
    file.write("x")
sp.finish(1)
signal.raise_signal(signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
assert seen == [signal.SIGUSR1] * 2 and signal.getsignal(signal.SIGUSR1) is own
"""


UNSAVED = """
import sys
from mpi4py import MPI
from safepoint import SaveError, Session
from safepoint.disk import Disk
comm = MPI.COMM_WORLD
class Full(Disk):
    full = False
    def sync_files(self, paths, opened=()):
        if self.full:
            raise OSError(28, "No space left on device", "u")
        super().sync_files(paths, opened)
disk = Full()
sp = Session(".", comm=comm, stop_after=0.001, disk=disk)
sp.restore()
for step in range(2):
    assert sp.should_stop(), "for ever"
    with open(f"u-{comm.rank}.dat", "w") as file:
        file.write("x")
    sp.hide(step)
    disk.full = comm.rank == 1
try:
    sp.stop()
except SaveError:
    sys.exit(41)
"""


APART = """
import os
from pathlib import Path
from mpi4py import MPI
import safepoint
from safepoint.disk import Disk
from safepoint.owner import read_owner
from safepoint.pace.halt import halt
from safepoint.pace.stopping import HALTED
comm = MPI.COMM_WORLD
work = Path(f"of-{comm.rank}")
work.mkdir()
(work / ".safepoint").write_text(f"u.dat\\nevery = {2 + comm.rank} steps\\n")
sp = safepoint.init(work, comm=comm, saver=None)
sp.restore()
dues = [sp.due() for _ in range(4)]
assert dues == [False, True, True, True], "of rank 0, on all"
if comm.rank == 1:
    halt(sp._root, [read_owner(sp._root)], until=None, steps=None)
comm.Barrier()
for step in range(10**6):
    if sp.should_stop():
        break
assert len(set(comm.allgather(step))) == 1
try:
    sp.stop()
except SystemExit as end:
    assert end.code == HALTED and not (work / ".safepoint.d/halt.json").exists()
"""


FARM = """
import sys, time
from mpi4py import MPI
import safepoint
from safepoint.cli.job.halt import _at_work
from safepoint.cli.look.overview import look
from safepoint.disk import Disk
from safepoint.pace.halt import halt
from safepoint.pace.stopping import HALTED
comm = MPI.COMM_WORLD
sp = safepoint.init(comm=comm, coordinate=False)
sp.restore()
assert not sp.should_stop()
comm.Barrier()
if comm.rank == 0:
    halt(sp._root, _at_work(look(Disk(), ".")), until=None, steps=None)
comm.Barrier()
if comm.rank == 1:
    time.sleep(1.5)
begin = time.monotonic()
while not sp.should_stop():
    assert time.monotonic() < begin + 300, comm.rank
    time.sleep(0.01)
sp.close()
"""


SLOW = """
import time
from mpi4py import MPI
from safepoint import Session
from safepoint.disk import Disk
comm = MPI.COMM_WORLD
class Slow(Disk):
    def sync_files(self, paths, opened=()):
        time.sleep(0.7 * comm.rank)
        super().sync_files(paths, opened)
sp = Session(".", comm=comm, disk=Slow())
sp.restore()
for step in range(3):
    with open(f"u-{comm.rank}.dat", "w") as file:
        file.write("x")
    assert not sp.should_stop() and not sp.should_stop()
    sp.hide(step)
sp.wait()
for _ in range(MANY := 300):
    sp.should_stop()
assert sp._timing._when._slowest > 0.6, "what the slowest needs, on all"
sp.close()
"""


BROKEN = """
from mpi4py import MPI
import safepoint, safepoint.pace.ask, safepoint.pace.stopping
comm = MPI.COMM_WORLD
if comm.rank == 0:
    def fail(*_, **__):
        raise RuntimeError("nobody expected this")
    safepoint.pace.ask.past = fail
    safepoint.pace.stopping.halted = fail
    safepoint.disk.Disk.stat = lambda self, file, before=safepoint.disk.Disk.stat: (
        before(self, "/" if str(file).endswith("halt.json") else file))
sp = safepoint.init(comm=comm)
sp.restore()
assert sp.due() and not sp.should_stop()
sp.close()
"""


@UNIX
@pytest.mark.xdist_group("mpi-examples")
@pytest.mark.parametrize(
    ("program", "status"), [(HANDLERS, 0), (UNSAVED, 41), (APART, 0), (FARM, 0), (SLOW, 0), (BROKEN, 0)]
)
def test_on_many_ranks(tmp_path: Path, program: str, status: int) -> None:
    """HANDLERS: while ranks agree they are held, and put back as they were; those of a session that has ended let go.
    UNSAVED: `stop` raises on all ranks what hindered one, else the others would ask for a requeue. APART: each rank in
    a directory of its own; the settings of one hold, and each can be halted. FARM: ranks for themselves all heed a
    halt, those without files too. SLOW: the limit takes account of the slowest disk. BROKEN: what fails on the rank
    that decides leaves nobody waiting."""
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    done = subprocess.run(mpiexec(2, "-c", program), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
