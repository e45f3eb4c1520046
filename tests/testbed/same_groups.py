"""The calls of `c/same_groups.c`, by mpi4py: to be started on three ranks."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

ANY, ANY_TAG = MPI.ANY_SOURCE, MPI.ANY_TAG
world = MPI.COMM_WORLD
rank, one, total = world.Get_rank(), np.ones(1, "i"), np.zeros(1, "i")
many, others = np.zeros(4, "i"), np.zeros(4, "i")


def modes() -> None:
    if rank == 0:
        MPI.Attach_buffer(bytearray(1000))
        world.Barrier()
        world.Send(one, 1, 1)
        world.Bsend(one, 1, 2)
        world.Ssend(one, 1, 3)
        world.Rsend(one, 1, 4)
        MPI.Detach_buffer()
    elif rank == 1:
        request = world.Irecv(total, 0, 4)
        world.Barrier()
        world.Recv(one, 0, 1)
        world.Recv(one, ANY, ANY_TAG)
        world.Recv(one, ANY, 3)
        request.Wait()
    else:
        world.Barrier()


def completions() -> None:
    if rank == 0:
        first = world.Isend(one, 1, 5), world.Issend(one, 2, 6)
        MPI.Request.Waitall([*first, world.Isend(one, 1, 5), world.Isend(one, 2, 7)])
    elif rank == 1:
        requests = [world.Irecv(many[0:1], 0, 5), world.Irecv(many[1:2], ANY, 5)]
        MPI.Request.Waitany(requests[1:])
        MPI.Request.Waitsome(requests[:1])
    else:
        requests = [world.Irecv(many[0:1], ANY, 6), world.Irecv(many[1:2], 0, 7)]
        while not MPI.Request.Testall(requests):
            pass


def any_source() -> None:
    if rank == 0:
        world.Send(one, 1, 8)
    elif rank == 1:
        world.Recv(one, ANY, 8)
        world.Send(one, 2, 9)
        world.Recv(one, ANY, 8)
    else:
        world.Recv(one, 1, 9)
        world.Send(one, 1, 8)
    world.Sendrecv(one, (rank + 1) % 3, 10, total, (rank + 2) % 3, 10)


def probes() -> None:
    if rank == 0:
        for tag in range(11, 15):
            world.Send(one, 2, tag)
    if rank < 2:
        return
    world.Probe(ANY, 11)
    world.Recv(one, 0, 11)
    while not world.Iprobe(0, ANY_TAG):
        pass
    world.Recv(one, 0, 12)
    world.Mprobe(ANY, 13).Recv(one)
    while not (message := world.Improbe(0, 14)):
        pass
    message.Irecv(one).Wait()


def persistent() -> None:
    if rank == 2:
        return
    if rank == 0:
        requests = [world.Send_init(many[0:1], 1, 20), world.Ssend_init(many[1:2], 1, 21)]
    else:
        requests = [world.Recv_init(many[0:1], ANY, 20), world.Recv_init(many[1:2], 0, ANY_TAG)]
    requests[0].Start()
    requests[0].Wait()
    MPI.Prequest.Startall(requests)
    MPI.Request.Waitall(requests)
    for request in requests:
        request.Free()


def odd() -> None:
    if rank == 0:
        request = world.Irecv(total, 1, 30)
        request.Cancel()
        request.Wait()
        world.Isend(one, 2, 31).Free()
        request = world.Irecv(total, 1, 30)
        request.Cancel()
        request.Free()
    elif rank == 2:
        world.Recv(many[3:4], MPI.PROC_NULL, 32)
        world.Recv(many[3:4], 0, 31)


def collectives(comm: MPI.Intracomm) -> None:
    comm.Bcast(one, 1)
    comm.Allreduce(one, total)
    comm.Reduce(one, total)
    comm.Gather(one, [many, 1, MPI.INT])
    comm.Scatter([many, 1, MPI.INT], one)
    comm.Allgather(one, [many, 1, MPI.INT])
    comm.Alltoall([many, 1, MPI.INT], [others, 1, MPI.INT])
    comm.Scan(one, total)
    MPI.Request.Waitall([comm.Ibarrier(), comm.Iallreduce(one, others[0:1])])


def communicators() -> None:
    copy = world.Dup()
    part = copy.Split(rank % 2, -rank)
    collectives(copy)
    if rank == 0:
        part.Send(one, 0, 40)
    elif rank == 2:
        part.Recv(one, ANY, 40)
    part.Barrier()
    part.Free()
    copy.Free()


def windows() -> None:
    window = MPI.Win.Create(many, many.itemsize, comm=world)
    window.Fence()
    window.Put(one, (rank + 1) % 3)
    window.Fence()
    window.Free()


if __name__ == "__main__":
    modes()
    completions()
    any_source()
    probes()
    persistent()
    odd()
    communicators()
    windows()
