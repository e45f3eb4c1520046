"""Programs of mpi4py with one mistake each: `mpiexec -n 2 python planted.py NAME [good]`; `good` takes the mistake out.

The lines that must be reported have a comment with the name of the template and the functions in it.
"""

from __future__ import annotations

import sys
from array import array

from mpi4py import MPI

comm, good = MPI.COMM_WORLD, len(sys.argv) > 2
rank, other = comm.rank, 1 - comm.rank
out, into = array("i", [rank] * 4), array("i", [0] * 8)


def request_not_completed() -> None:
    lost = [comm.Irecv([into, 1, MPI.INT], other, tag) for tag in (1, 2)]  # request-not-completed F1
    for tag in 1, 2:
        comm.Send([out, 1, MPI.INT], other, tag)
    while good and not MPI.Request.Testall(lost):
        pass


def persistent_not_started() -> None:
    request = comm.Recv_init([into, 1, MPI.INT], other, 7)  # persistent-not-started F1
    if good:
        request.Start()
        comm.Send([out, 1, MPI.INT], other, 7)
    request.Wait()
    request.Free()


def type_not_freed() -> None:
    row = MPI.INT.Create_contiguous(2)  # type-not-freed F1
    row.Commit()
    comm.Sendrecv([out, 1, row], other, 7, [into, 2, MPI.INT], other, 7)
    if good:
        row.Free()


def comm_not_freed() -> None:
    nobody = comm.Split(MPI.UNDEFINED)
    twin = comm.Dup()  # comm-not-freed F1
    twin.Barrier()
    if good and nobody == MPI.COMM_NULL:
        twin.Free()


def group_not_freed() -> None:
    group = comm.Get_group()  # group-not-freed F1
    if good:
        group.Free()


def op_not_freed() -> None:
    op = MPI.Op.Create(lambda a, b, type: None, True)  # op-not-freed F1
    if good:
        op.Free()


def send_without_receive() -> None:
    if rank == 0:
        comm.Send([out, 1, MPI.INT], 1, 8)  # send-without-receive F1
        comm.send({"pickled": True}, 1, 7)
    else:
        comm.recv(source=MPI.ANY_SOURCE, tag=7)
        if good:
            comm.Recv([into, 1, MPI.INT], 0, MPI.ANY_TAG)
    comm.sendrecv(rank, other, 3, source=other, recvtag=3)


def receive_without_send() -> None:
    if rank == 1:
        request = comm.Irecv([into, 1, MPI.INT], 0, 99)
        request.Cancel()
        request.Wait()
        comm.Recv([into, 1, MPI.INT], 0, 7)  # receive-without-send F1
    elif good:
        comm.Send([out, 1, MPI.INT], 1, 7)


def error_returned() -> None:
    """A truncation: the exception does not keep mpi4py from calling Finalize, so it is not what `truncation` means."""
    if rank == 0:
        comm.Send([out, 4, MPI.INT], 1, 7)
    else:
        comm.Recv([into, 4 if good else 2, MPI.INT], 0, 7)  # error-returned F1


def collective_order() -> None:
    if good or rank == 0:
        comm.Barrier()  # collective-order F1
    else:
        comm.bcast(None)  # collective-order F2


def collective_not_by_all() -> None:
    mine = comm.Split(rank)
    if rank == 0:
        mine.Barrier()
    mine.Free()
    if good or rank == 0:
        comm.Barrier()  # collective-not-by-all F1


def root_differs() -> None:
    comm.Gather([out, 1, MPI.INT], [into, 1, MPI.INT], 0 if good else rank)  # root-differs F1 F2


def op_differs() -> None:
    op = MPI.SUM if good or rank == 0 else MPI.MAX
    comm.Allreduce([out, 1, MPI.INT], [into, 1, MPI.INT], op)  # op-differs F1 F2


def collective_type_differs() -> None:
    comm.Gather(MPI.IN_PLACE if rank == 0 else [out, 1, MPI.INT], [into, 1, MPI.INT])
    comm.Bcast([into, 1, MPI.INT if good or rank == 0 else MPI.FLOAT])  # collective-type-differs F1 F2


def null_comm() -> None:
    part = comm.Split(0 if good or rank == 0 else MPI.UNDEFINED)
    part.Barrier()  # null-comm F1
    part.Free()


def bad_rank() -> None:
    comm.Send([out, 1, MPI.INT], MPI.PROC_NULL if good else comm.size)  # bad-rank F1


def any_source() -> None:
    if rank == 0:
        comm.send(1, 1)
    else:
        comm.recv(source=0 if good else MPI.ANY_SOURCE)  # any-source F1


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")]()
