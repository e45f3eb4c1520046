"""Objects of mpi4py that are made anew of handles are what they were: a request that is waited for so is complete."""

from __future__ import annotations

from pathlib import Path

from testbed import checked, traced

from safepoint.check import follow, language, running
from safepoint.trace.roles import WAITS, kind

PROGRAM = """\
from array import array
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
out, into = array("i", [rank]), array("i", [0])
send, recv = comm.Isend(out, other, 1), comm.Irecv(into, MPI.ANY_SOURCE, MPI.ANY_TAG)
# 1 a request wrapped anew by its handle
for one in (recv, send):
    MPI.Request.fromhandle(one.handle).Wait()
# 2 several
requests = [comm.Irecv(into, other, 2), comm.Isend(out, other, 2)]
MPI.Request.Waitall([MPI.Request.fromhandle(one.handle) for one in requests])
# 3 Fortran
request = comm.Irecv(into, other, 3)
comm.Send(out, other, 3)
MPI.Request.f2py(request.py2f()).Wait()
# 4 copies
request = comm.Irecv(into, other, 4)
comm.Send(out, other, 4)
MPI.Request(request).Wait()
# 5 persistent
lasting = comm.Recv_init(into, other, 5)
for _ in range(2):
    MPI.Prequest.fromhandle(lasting.handle).Start()
    comm.Send(out, other, 5)
    MPI.Prequest.fromhandle(lasting.handle).Wait()
MPI.Request.f2py(lasting.py2f()).Free()
# 6 communicator, type, group, op, win
dup = comm.Dup()
again = MPI.Comm.fromhandle(dup.handle)
again.Barrier()
again.Allreduce(out, into)
MPI.Comm.f2py(dup.py2f()).Free()
dup = MPI.Intracomm(comm.Split(0))
MPI.Intracomm.fromhandle(dup.handle).Free()
row = MPI.INT.Create_contiguous(2)
MPI.Datatype.fromhandle(row.handle).Commit()
MPI.Datatype.f2py(row.py2f()).Free()
group = comm.Get_group()
MPI.Group.fromhandle(group.handle).Free()
op = MPI.Op.Create(lambda a, b, t: None, True)
MPI.Op.fromhandle(op.handle).Free()
window = MPI.Win.Create(into, comm=comm)
once = MPI.Win.fromhandle(window.handle)
once.Fence()
once.Put(out, other)
once.Fence()
MPI.Win.f2py(window.py2f()).Free()
message = comm.Isend(out, other, 6), comm.Mprobe(other, 6)
MPI.Message.fromhandle(message[1].handle).Recv(into)
message[0].Wait()
# test
request = comm.Irecv(into, other, 8)
comm.Send(out, other, 8)
while not MPI.Request.fromhandle(request.handle).Test():
    pass
# cancel
request = comm.Irecv(into, other, 9)
MPI.Request.fromhandle(request.handle).Cancel()
request.Wait()
print("done")
"""


def test_what_is_made_of_a_handle_is_the_same_instance_and_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "anew.py").write_text(PROGRAM)
    trace, templates = tmp_path / "run.trace", language.load(("standard",))
    trace.mkdir()
    running.prepare(trace, templates, 30)
    done = traced.run(2, str(tmp_path / "anew.py"), trace=trace)
    assert (done.returncode, done.stdout.count("done")) == (0, 2), done.stderr
    _, situations, _ = follow.afterwards(trace, templates)
    assert [one.template for one in situations] == []
    noted = [one for one in checked.read(trace, 0) if kind(one.function) in {*WAITS, "cancel"}]
    known = [one.note["request"] for one in noted if kind(one.function) in ("wait", "cancel")]
    assert len(known) > 6 and all(known)
