"""A program of three ranks or more that uses each method of mpi4py that communicates, and prints what it gets.

What it prints does not depend on chance: traced or not, with any MPI, it is the same. Methods that this MPI has not are
left out, and named on standard error.
"""

import os
import pickle
import sys
import tempfile

import numpy as np
from mpi4py import MPI
from mpi4py.MPI import COMM_WORLD as world

rank, size = world.rank, world.size
right, left = (rank + 1) % size, (rank - 1) % size


def say(*what):
    sys.stdout.write(" ".join(map(str, (rank, *what))).replace("\n", " ") + "\n")  # in one piece


def tried(method, *words):
    try:
        return method(*words)
    except NotImplementedError:
        print(method.__name__, "is missing", file=sys.stderr)


def numbers(value=0.0):
    return np.full(4, float(value))


def classes():
    dup = world.Dup()
    for comm, cls in ((world, MPI.Intracomm), (world, MPI.Comm), (dup, MPI.Comm), (dup, MPI.Intracomm)):
        say(isinstance(comm, cls), issubclass(type(comm), cls))
    say(isinstance(world, MPI.Cartcomm), isinstance(3, MPI.Comm), type(world).__name__, type(dup) is type(world))
    say(pickle.loads(pickle.dumps(world)) is world, pickle.loads(pickle.dumps(MPI.COMM_SELF)) is MPI.COMM_SELF)
    say(world == MPI.Intracomm(world), bool(MPI.COMM_NULL), dup != world)
    say(MPI.Comm.Compare(world, dup), world.Get_attr(MPI.TAG_UB) > 1000, dup.name, MPI.Comm.f2py(world.py2f()) == world)

    class Mine(MPI.Intracomm):
        more = 3

    mine = Mine(world).Dup()
    say(type(mine).__name__, mine.more, isinstance(mine, Mine), isinstance(world, Mine), mine.allreduce(1))
    mine.Free()
    dup.Free()


def blocking():
    for name in ("Send", "Bsend", "Ssend", "Rsend"):
        a, status = numbers(), MPI.Status()
        if rank % 2 == 0 and rank + 1 < size:
            if name == "Rsend":
                world.Barrier()
            if name == "Bsend":
                MPI.Attach_buffer(bytearray(1000))
            getattr(world, name)(numbers(rank), rank + 1, 7)
            if name == "Bsend":
                MPI.Detach_buffer()
        elif rank % 2:
            request = world.Irecv(a, MPI.ANY_SOURCE, MPI.ANY_TAG)
            if name == "Rsend":
                world.Barrier()
            request.Wait(status)
            say(name, a, status.source, status.tag)
        elif name == "Rsend":
            world.Barrier()
    world.Sendrecv(numbers(rank), right, 3, a := numbers(), left, 3)
    world.Sendrecv_replace(a, right, source=left)
    say(a)
    for send in (world.send, world.bsend, world.ssend):
        if send == world.bsend:
            MPI.Attach_buffer(bytearray(10000))
        request = world.irecv(source=left, tag=4)
        if rank == 0 or send != world.ssend:
            send({"from": rank}, right, 4)
            say(request.wait())
        else:
            say(request.wait())
            send({"from": rank}, right, 4)
    MPI.Detach_buffer()
    say(world.sendrecv([rank], right, source=left))
    world.Send([numbers(rank), 2, MPI.DOUBLE], MPI.PROC_NULL)
    world.Recv(a, MPI.PROC_NULL, status=status)
    say(status.source == MPI.PROC_NULL, status.Get_count(MPI.DOUBLE))


def probes():
    world.Isend(numbers(rank), right, 11).Wait()
    status = MPI.Status()
    say(world.Probe(left, 11, status), status.tag, world.Iprobe(left, 11), world.Iprobe(left, 99))
    message = world.Mprobe(MPI.ANY_SOURCE, 11, status)
    say(isinstance(message, MPI.Message), bool(message))
    message.Recv(a := numbers(), status)
    say(a, status.source, bool(message), message == MPI.MESSAGE_NULL)
    world.Isend(numbers(rank), right, 12).Wait()
    while (message := world.Improbe(left, 12)) is None:
        pass
    request = message.Irecv(a)
    request.Wait()
    say(a, MPI.Message.Iprobe(world, left, 13), world.improbe(left, 13))
    world.isend("m", right, 14).wait()
    say(world.probe(left, 14), world.mprobe(left, 14).recv())
    world.isend("n", right, 14).wait()
    say(MPI.Message.probe(world, left, 14).irecv().wait())
    none = world.Mprobe(MPI.PROC_NULL)
    none.Recv(a)
    say(none == MPI.MESSAGE_NULL, MPI.MESSAGE_NO_PROC != MPI.MESSAGE_NULL)


def requests():
    def pair(tag=0, wild=False):
        a = numbers()
        receive = world.Irecv(a, MPI.ANY_SOURCE if wild else left, tag)
        return [receive, world.Isend(numbers(rank + tag), right, tag)], a

    done, a = pair(1, True)
    statuses = []
    say(MPI.Request.Waitall(done, statuses), a, statuses[0].source, done[0] == MPI.REQUEST_NULL)
    done, a = pair(2)
    while not MPI.Request.Testall(done):
        pass
    done, a = pair(3, True)
    say(sorted((MPI.Request.Waitany(done), MPI.Request.Waitany(done))), a, MPI.Request.Waitany(done) == MPI.UNDEFINED)
    done, a = pair(4)
    found = []
    while len(found) < 2:
        found += MPI.Request.Waitsome(done, statuses := [MPI.Status(), MPI.Status()])
    say(sorted(found), MPI.Request.Waitsome(done))
    done, a = pair(5)
    found = []
    while len(found) < 2:
        index, flag = MPI.Request.Testany(done)
        found += [index] if flag else []
    done, a = pair(6, True)
    found = []
    while len(found) < 2:
        found += MPI.Request.Testsome(done) or []
    say(sorted(found), a)
    done, a = pair(7)
    while not done[0].Test():
        done[0].Get_status()
    done[1].Wait()
    pickled = [world.irecv(source=left, tag=8), world.issend("8", right, 8)]
    say(MPI.Request.waitall(pickled))
    pickled = [world.irecv(source=left, tag=9), world.isend("9", right, 9)]
    first, second = MPI.Request.waitany(pickled), MPI.Request.waitany(pickled)
    say(sorted((first, second), key=str))
    pickled, got = (
        [world.irecv(source=left, tag=10), world.ibsend("10", right, 10) if 0 else world.isend("10", right, 10)],
        [],
    )
    while len(got) < 2:
        indices, things = MPI.Request.waitsome(pickled)
        got += zip(indices, things, strict=True)
    say(sorted(got, key=str))
    request = world.irecv(source=left, tag=11)
    world.send("11", right, 11)
    while not (found := request.test())[0]:
        pass
    say(found)
    pickled = [world.irecv(source=left, tag=12), world.isend("12", right, 12)]
    while not (found := MPI.Request.testall(pickled))[0]:
        pass
    say(found)
    never = world.Irecv(numbers(), left, 999)
    never.Cancel()
    never.Wait(status := MPI.Status())
    say(status.Is_cancelled(), MPI.REQUEST_NULL.Test(), MPI.Request.Waitall([]))
    world.Barrier()
    again = [world.Send_init(b := numbers(), right, 13), world.Recv_init(a := numbers(), left, 13)]
    for turn in range(2):
        b[:] = turn
        again[0].Start() if turn else MPI.Prequest.Startall(again)
        again[1].Start() if turn else None
        MPI.Request.Waitall(again)
        say(a, bool(again[0]))
    for request in again:
        request.Free()
    isends = [world.Issend(numbers(1), right, 14), world.Irecv(a, left, 14)]
    MPI.Request.Waitall(isends)
    free = world.Isend(numbers(2), right, 15)
    free.Free()
    world.Recv(a, left, 15)
    say(a, free == MPI.REQUEST_NULL)
    if (request := tried(world.Isendrecv, numbers(rank), right, 16, a, left, 16)) is not None:
        request.Wait()


def collectives():
    a, all_ = numbers(rank), np.zeros((size, 4))
    world.Barrier()
    world.barrier()
    world.Bcast(b := numbers(rank), root=1)
    world.Gather(a, all_ if rank == 0 else None)
    world.Gatherv(a, all_ if rank == 1 else None, root=1)
    world.Scatter(all_ if rank == 0 else None, b)
    world.Scatterv(all_ if rank == 1 else None, b, root=1)
    say(b)
    world.Allgather(a, all_)
    world.Allgatherv(a, all_)
    world.Alltoall(all_, out := np.zeros((size, 4)))
    counts = [4] * size
    world.Alltoallv([all_, counts], [out, counts])
    world.Alltoallw([all_, counts, [32 * k for k in range(size)], [MPI.DOUBLE] * size],
                    [out, counts, [32 * k for k in range(size)], [MPI.DOUBLE] * size])  # fmt: skip
    world.Reduce(a, b, op=MPI.MAX, root=1)
    world.Allreduce(MPI.IN_PLACE, a)
    world.Reduce_scatter_block(all_, b)
    world.Reduce_scatter(all_, b, counts)
    world.Scan(numbers(1), b)
    world.Exscan(numbers(1), b)
    say(out.sum(), a, b.sum() if rank else "")
    say(
        world.bcast(rank, 1),
        world.gather(rank),
        world.scatter([5] * size if rank == 0 else None),
        world.allgather(rank),
    )
    say(world.alltoall([rank] * size), world.reduce(rank), world.allreduce(rank), world.scan(1), world.exscan(1))


def collectives_begun():
    a, all_, out = numbers(rank), np.zeros((size, 4)), np.zeros((size, 4))
    counts, places = [4] * size, [32 * k for k in range(size)]
    b = numbers()
    for request in (
        world.Ibarrier(), world.Ibcast(b, 1), world.Igather(a, all_ if rank == 0 else None),
        world.Igatherv(a, out if rank == 0 else None), world.Iallgather(a, np.zeros((size, 4))),
        world.Iallgatherv(a, np.zeros((size, 4))), world.Iscatter(all_ if rank == 0 else None, numbers()),
        world.Iscatterv(all_ if rank == 0 else None, numbers()), world.Ialltoall(all_, np.zeros((size, 4))),
        world.Ialltoallv([all_, counts], [np.zeros((size, 4)), counts]), world.Ireduce(a, numbers()),
        world.Ialltoallw([all_, counts, places, [MPI.DOUBLE] * size],
                         [np.zeros((size, 4)), counts, places, [MPI.DOUBLE] * size]),
        world.Iallreduce(a, numbers()), world.Ireduce_scatter_block(np.zeros((size, 4)), numbers()),
        world.Ireduce_scatter(np.zeros((size, 4)), numbers(), counts), world.Iscan(a, numbers()),
        world.Iexscan(a, numbers()),
    ):  # fmt: skip
        request.Wait()
    say(b)
    if (again := tried(world.Allreduce_init, a, b)) is not None:
        for _ in range(2):
            again.Start()
            again.Wait()
        again.Free()
    for make in (world.Barrier_init, lambda: world.Bcast_init(b, 0)):
        if (again := tried(make)) is not None:
            again.Start()
            again.Wait()
            again.Free()


def communicators():
    half = world.Split(rank % 2, rank)
    say(type(half).__name__, half.size, half.allgather(rank))
    none = world.Split(MPI.UNDEFINED if rank == 0 else 0)
    say(none == MPI.COMM_NULL)
    if none != MPI.COMM_NULL:
        none.Free()
    near = world.Split_type(MPI.COMM_TYPE_SHARED)
    group = world.Get_group().Incl([0, 1])
    two = world.Create(group)
    say(two == MPI.COMM_NULL)
    if rank < 2:
        also = world.Create_group(group)
        say(also.allreduce(1), two.allreduce(1))
        also.Free()
        two.Free()
    idup, request = world.Idup()
    request.Wait()
    say(idup.allreduce(1), type(idup).__name__)
    cart = world.Create_cart([size], [True])
    say(type(cart).__name__, cart.Shift(0, 1), cart.coords, cart.neighbor_allgather(rank))
    cart.Neighbor_allgather(numbers(rank), out := np.zeros((2, 4)))
    cart.Neighbor_alltoall(out, np.zeros((2, 4)))
    cart.Ineighbor_allgather(numbers(rank), out).Wait()
    row = cart.Sub([True])
    graph = world.Create_dist_graph_adjacent([left], [right])
    say(type(row).__name__, type(graph).__name__, graph.neighbor_alltoall([rank]))
    plain = world.Clone()
    dist = world.Create_dist_graph([rank], [1], [right])
    between = half.Create_intercomm(0, world, 1 - rank % 2)
    say(type(between).__name__, between.remote_size, between.Is_inter())
    if between.size == between.remote_size or rank < 2 * min(between.size, between.remote_size):
        between.sendrecv(rank, half.rank, source=half.rank)
    say(between.allreduce(1))
    merged = between.Merge(rank % 2)
    say(type(merged).__name__, merged.size)
    for comm in (merged, between, dist, plain, graph, row, cart, idup, near):
        comm.Free()
    half.Disconnect()
    say(half == MPI.COMM_NULL, MPI.Comm.Get_parent() == MPI.COMM_NULL)


def windows():
    win = MPI.Win.Allocate(64, 8)
    win.Free()
    memory = np.zeros(8)
    win = MPI.Win.Create(memory, 8, comm=world)
    win.Fence()
    win.Put(numbers(rank + 1), right)
    win.Fence()
    win.Get(a := numbers(), right)
    win.Accumulate(numbers(1), right, [4, 4])
    win.Fence()
    say(memory, a, type(win).__name__, isinstance(win, MPI.Win))
    world.Barrier()
    win.Lock(right)
    win.Rput(numbers(9), right).Wait()
    win.Flush(right)
    win.Unlock(right)
    win.Lock_all()
    win.Fetch_and_op(np.ones(1), np.zeros(1), 0, 7)
    win.Unlock_all()
    world.Barrier()
    group = world.Get_group()
    win.Post(group.Incl([left]))
    win.Start(group.Incl([right]))
    win.Put(numbers(4), right)
    win.Complete()
    win.Wait()
    say(memory[:4])
    win.Free()
    say(win == MPI.WIN_NULL)


def files():
    name = world.bcast(os.path.join(tempfile.gettempdir(), f"every-call-{os.getpid()}") if rank == 0 else None)
    file = MPI.File.Open(world, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Set_view(0, MPI.DOUBLE)
    file.Write_at_all(4 * rank, numbers(rank))
    file.Sync()
    file.Read_at_all(4 * rank, a := numbers())
    file.Iread_at(4 * rank, a).Wait()
    say(a, file.Get_size(), type(file).__name__)
    file.Close()
    if rank == 0:
        MPI.File.Delete(name)


def errors():
    for bad in (lambda: world.Send(3), lambda: world.Send(numbers(), "x"), lambda: world.Recv(numbers(), source=None),
                lambda: world.bcast(), lambda: MPI.Request.Waitall(3), lambda: world.nothing):  # fmt: skip
        try:
            bad()
        except Exception as error:
            say(type(error).__name__)
    world.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        world.Send(numbers(), size + 7)
    except MPI.Exception as error:
        say(error.Get_error_class() == MPI.ERR_RANK)


for part in (
    classes,
    blocking,
    probes,
    requests,
    collectives,
    collectives_begun,
    communicators,
    windows,
    files,
    errors,
):
    part()
    sys.stdout.flush()
    world.Barrier()
