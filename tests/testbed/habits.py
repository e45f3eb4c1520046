"""What right programs do, and what is easily taken for a mistake: `mpiexec -n 2 python habits.py`, mpi4py."""

from __future__ import annotations

from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
out, into = array("i", [rank] * 4), array("i", [0] * 8)
one, got = [out, 1, MPI.INT], [into, 1, MPI.INT]


def requests() -> None:
    """Received in another order than sent; freed while it is active; null; started again and again."""
    sent = [comm.Isend(one, other, tag) for tag in range(3)]
    for tag in 2, 1, 0:
        comm.Recv(got, other, tag)
    MPI.Request.Waitall(sent)
    comm.Isend(one, other, 6).Free()
    comm.Recv(got, other, 6)
    send, receive = comm.Send_init(one, other, 7), comm.Recv_init(got, other, 7)
    for _ in range(3):
        MPI.Prequest.Startall([receive, send])
        MPI.Request.Waitall([receive, send])
    send.Free()
    receive.Free()
    MPI.Request.Waitall([MPI.REQUEST_NULL] * 2)
    MPI.REQUEST_NULL.Test()


def messages() -> None:
    """From anybody, while another receive is open that is cancelled; probed; to nobody; to itself."""
    anything = comm.Irecv([into, 8, MPI.INT], MPI.ANY_SOURCE, MPI.ANY_TAG)
    never = comm.Irecv(got, other, 44)
    comm.Send([out, 4, MPI.INT], other, 5)
    anything.Wait()
    never.Cancel()
    never.Wait()
    if rank == 0:
        comm.send("a", 1, 11)
        comm.send("b", 1, 12)
    else:
        status = MPI.Status()
        comm.Probe(status=status)
        comm.recv(source=status.source, tag=status.tag)
        comm.mprobe().recv()
    comm.Send(one, MPI.PROC_NULL, 1)
    comm.Recv(got, MPI.PROC_NULL, 1)
    comm.Sendrecv(one, other, 30, got, MPI.ANY_SOURCE, MPI.ANY_TAG)
    MPI.COMM_SELF.sendrecv(1, 0)


def turns() -> None:
    """Never do both send first, though each has a send before a receive. Each way has a tag of its own."""
    for turn in range(4):
        if rank == turn % 2:
            comm.Send(one, other, 50)
        comm.Recv(got, other, 50)
        if rank != turn % 2:
            comm.Send(one, other, 50)
    comm.Sendrecv(one, other, 51, got, other, 51)
    if rank == 0:
        for tag in 51, 52, 53:
            comm.Send(one, 1, tag)
            comm.Recv(got, 1, tag)
            comm.Send(one, 1, tag)
            comm.Recv(got, 1, tag)
    else:
        comm.Recv(got, 0, 51)
        comm.Send(one, 0, 51)
        comm.Recv(got, 0, 51)
        comm.Send(one, 0, 51)
        lasting = comm.Recv_init(got, 0, 52)
        lasting.Start()
        lasting.Wait()
        lasting.Free()
        comm.Send(one, 0, 52)
        comm.Recv(got, 0, 52)
        comm.Send(one, 0, 52)
        comm.Mprobe(0, 53).Recv(got)
        comm.Send(one, 0, 53)
        comm.Recv(got, 0, 53)
        comm.Send(one, 0, 53)
    for _ in range(2):
        posted = comm.Irecv(got, other, 54)
        comm.Send(one, other, 54)
        posted.Wait()


def communicators() -> None:
    """Of one process; between two groups, with roots of their own; a grid that leaves a process out."""
    mine = comm.Split(rank)
    inter = MPI.Intracomm(mine).Create_intercomm(0, comm, other, 9)
    if rank == 0:
        inter.Send(one, 0, 3)
    else:
        inter.Recv(got, 0, 3)
    inter.Bcast(one, root=MPI.ROOT if rank == 0 else 0)
    merged = inter.Merge(rank == 1)
    merged.Barrier()
    for each in merged, inter, mine:
        each.Free()
    MPI.COMM_SELF.Barrier()
    grid = comm.Create_cart([1])
    if grid != MPI.COMM_NULL:
        grid.Barrier()
        grid.Free()


def collectives() -> None:
    """In place; what is not looked at is anything; no elements."""
    comm.Gather(MPI.IN_PLACE if rank == 0 else one, got if rank == 0 else None)
    comm.Gatherv([out, rank, MPI.INT], [into, (0, 1), MPI.INT] if rank == 0 else None)
    comm.Allreduce(MPI.IN_PLACE, [into, 2, MPI.INT])
    comm.Bcast([into, 0, MPI.INT if rank == 0 else MPI.CHAR])
    comm.Ibarrier().Wait()
    comm.Iallreduce(one, got).Wait()


def types_and_groups() -> None:
    """Freed before the message has left; never committed, as it is not sent; a group that MPI gives twice."""
    pair = MPI.INT.Create_vector(2, 1, 2).Commit()
    sent = comm.Isend([out, 1, pair], other, 20)
    pair.Free()
    comm.Recv([into, 2, MPI.INT], other, 20)
    sent.Wait()
    MPI.INT.Dup().Free()
    first, second = comm.Get_group(), comm.Get_group()
    assert first.Incl([]) == MPI.GROUP_EMPTY
    first.Free()
    second.Free()


def windows() -> None:
    """All three ways to synchronize, one after the other."""
    window = MPI.Win.Create(into, 4, MPI.INFO_NULL, comm)
    window.Fence()
    window.Put(one, other)
    window.Put(one, other, 1)
    window.Fence()
    for _ in range(2):
        window.Lock(other)
        window.Get(one, other)
        window.Unlock(other)
    window.Lock_all()
    window.Accumulate(one, other)
    window.Flush(other)
    window.Unlock_all()
    group = comm.Get_group()
    partner = group.Incl([other])
    window.Post(partner)
    window.Start(partner)
    window.Put(one, other)
    window.Complete()
    window.Wait()
    partner.Free()
    group.Free()
    window.Free()


if __name__ == "__main__":
    for each in requests, messages, turns, communicators, collectives, types_and_groups, windows:
        each()
    print("done")
