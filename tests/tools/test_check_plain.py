"""`safepoint check` of a trace of `safepoint trace`, which has no arguments: what needs them is not told, or right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launcher import mpiexec
from testbed.checking import safepoint
from testbed.foreign import MPICH, needs, program
from testbed.paths import TESTBED

from safepoint.check import follow, language

ALL = """import sys
sys.argv = ["planted.py", "all", "good"]
import planted
for name, value in list(vars(planted).items()):
    if callable(value) and getattr(value, "__module__", "") == "planted":
        value()
"""
OTHERS = """\
from array import array
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
into = array("i", [0, 0])
win = MPI.Win.Create(into, comm=comm)
win.Fence()
win.Put(array("i",[1]), other)
win.Fence()
win.Lock(other)
win.Put(array("i",[1]), other)
win.Flush(other)
win.Unlock(other)
win.Lock_all()
r = win.Rput(array("i",[1]), other)
r.Wait()
win.Unlock_all()
g = comm.Get_group()
o = g.Incl([other])
win.Post(o)
win.Start(o)
win.Put(array("i",[1]), other)
win.Complete()
win.Wait()
win.Free()
g.Free()
o.Free()
new, req = comm.Idup()
req.Wait()
new.Barrier()
new.Free()
cart = comm.Create_cart([2])
cart.Shift(0,1)
cart.Free()
half = comm.Split(rank)
inter = half.Create_intercomm(0, comm, other)
inter.Barrier()
m = inter.Merge()
m.Barrier()
m.Free()
inter.Free()
half.Free()
f = MPI.File.Open(comm, "x.dat", MPI.MODE_RDWR | MPI.MODE_CREATE)
f.Write_at_all(rank*8, into)
f.Close()
s = comm.Send_init(into, other, 3)
t = comm.Recv_init(into, other, 3)
MPI.Prequest.Startall([s, t])
MPI.Request.Waitall([s, t])
s.Free()
t.Free()
comm.Sendrecv_replace(into, other, source=other)
m = comm.Isend(into, other), comm.Mprobe()
m[1].Recv(into)
m[0].Wait()
comm.gather(rank, 0)
comm.Ibarrier().Wait()
comm.alltoall([1,2])
d = comm.Create_dist_graph_adjacent([other],[other])
d.Neighbor_allgather(array("i",[1]), array("i",[1]))
d.Free()
"""


def traced(work: Path, *command: object) -> list[tuple[str, str]]:
    """What all templates that are shipped find in a trace of this program: template, and its kind."""
    done = safepoint(work, "trace", "-o", "run.trace", "--", *command)
    assert done.returncode == 0 and "2 ranks" in done.stdout, done.stdout + done.stderr
    templates = language.load(tuple(language.shipped()))
    kinds = {one.id: one.kind for one in templates}
    follower, found, _ = follow.afterwards(work / "run.trace", templates)
    assert follower.plain and follower.calls >= 8
    return [(one.template, kinds[one.template]) for one in found]


def test_nothing_is_wrong_with_programs_of_python_that_are_right(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(f"import sys\nsys.path.insert(0, {str(TESTBED)!r})\n{ALL}{OTHERS}")
    found = traced(tmp_path, mpiexec(), "-n", 2, sys.executable, "right.py")
    assert {one for one in found if one[1] != "note"} == set()


@pytest.mark.proof
@needs(MPICH.cc, MPICH.mpiexec)
def test_a_window_that_is_freed_is_known_by_its_number(tmp_path: Path) -> None:
    exe = program("check/win-not-freed.c", MPICH, "-g", "-w")
    assert traced(tmp_path, *MPICH.started(2, exe, "good")) == []
