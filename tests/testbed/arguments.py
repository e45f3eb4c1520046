"""A program of two ranks that says what each of its calls passes to MPI, worked out by hand: a list in JSON, of
function, arguments, handles that it reads, and what it writes. None: not told. Its one argument: where to."""

import array
import ctypes
import json
import mmap
import sys

import numpy as np
from mpi4py import MPI
from mpi4py.MPI import COMM_WORLD as world

rank, other = world.rank, 1 - world.rank
ROWS = []


class Odd:
    """Its length is none of our business."""

    def __index__(self):
        return 5

    def __len__(self):
        raise AssertionError("asked for its length")

    def __iter__(self):
        raise AssertionError("iterated")


class Spec(tuple):
    """A message of the program's own class."""

    asked = 0

    def __iter__(self):
        Spec.asked += 1
        return super().__iter__()


def handle(thing):
    return thing.handle - 2**64 if thing.handle >= 2**63 else thing.handle


def row(function, *given, reads=(), writes=()):
    def plain(value):
        return handle(value) if hasattr(value, "handle") else value if value is None else int(value)

    ROWS.append([function, [plain(value) for value in given],
                 [plain(value) for value in reads], [plain(value) for value in writes]])  # fmt: skip


def at(thing):
    return ctypes.addressof(ctypes.c_char.from_buffer(thing))


def messages():
    a = np.arange(12.0)
    into = np.zeros(12)
    raw, ints = bytearray(40), array.array("i", range(10))
    pages = mmap.mmap(-1, 4096)
    turned = np.zeros((3, 4), order="F")
    fixed = b"constant"
    wide = MPI.DOUBLE.Create_vector(4, 1, 3)
    row("Type_vector", 4, 1, 3, MPI.DOUBLE, None, writes=(5, 1, wide))
    third = wide.Create_resized(0, 8).Commit()
    row("Type_create_resized", wide, 0, 8, None, writes=(4, 1, third))
    row("Type_commit", None, reads=(1, 1, third))
    count = np.int32(3)
    for buffer, address, n, kind in (
        (a, a.ctypes.data, 12, MPI.DOUBLE), (a[2:5], a.ctypes.data + 16, 3, MPI.DOUBLE),
        ([a, MPI.DOUBLE], a.ctypes.data, 12, MPI.DOUBLE), ((a, "d"), a.ctypes.data, 12, MPI.DOUBLE),
        ([a, 4], a.ctypes.data, 4, MPI.DOUBLE), ([a, 3, MPI.FLOAT], a.ctypes.data, 3, MPI.FLOAT),
        ([a, (2, 5), MPI.DOUBLE], a.ctypes.data + 40, 2, MPI.DOUBLE), ([a, count], a.ctypes.data, 3, MPI.DOUBLE),
        ([a, 2, 1, MPI.DOUBLE], a.ctypes.data + 8, 2, MPI.DOUBLE), ([a, 1, third], a.ctypes.data, 1, third),
        ([a, (None, 4), MPI.DOUBLE], a.ctypes.data + 32, 8, MPI.DOUBLE), (raw, at(raw), 40, MPI.UNSIGNED_CHAR),
        (memoryview(raw)[8:], at(raw) + 8, 32, MPI.UNSIGNED_CHAR), (ints, at(ints), 10, MPI.INT),
        (np.arange(3), None, 3, MPI.LONG), (a.astype(complex), None, 12, MPI.C_DOUBLE_COMPLEX),
        (np.array(7, "q"), None, 1, MPI.LONG_LONG), (np.ones(2, "?"), None, 2, MPI.C_BOOL),
        (turned, turned.ctypes.data, 12, MPI.DOUBLE), (pages, at(pages), 4096, MPI.UNSIGNED_CHAR),
        (a.view(np.matrix), a.ctypes.data, 12, MPI.DOUBLE), (fixed, None, 8, MPI.UNSIGNED_CHAR),
        ([MPI.BOTTOM, 0, MPI.INT], MPI.BOTTOM, 0, MPI.INT), ([None, MPI.INT], 0, 0, MPI.INT),
        ([a, Odd()], a.ctypes.data, None, MPI.DOUBLE), (Spec((a, 3)), a.ctypes.data, 3, MPI.DOUBLE),
    ):  # fmt: skip
        place = bytearray(4096)
        request = world.Irecv(place, other, 3)
        row("Irecv", at(place), 4096, MPI.UNSIGNED_CHAR, other, 3, world, None, writes=(7, 1, request))
        begun = world.Isend(buffer, other, 3)
        known = address if address is not None else MPI.Get_address(buffer)
        row("Isend", known, n, kind, other, 3, world, None, writes=(7, 1, begun))
        row("Waitall", 2, None, None, reads=(2, 2, request, begun))
        MPI.Request.Waitall([request, begun])
    assert Spec.asked == 1, Spec.asked  # by mpi4py
    row("Type_free", None, reads=(1, 1, third))
    third.Free()
    row("Sendrecv", a.ctypes.data, 12, MPI.DOUBLE, other, 1, into.ctypes.data, 12, MPI.DOUBLE, other, -1, world, None)
    world.Sendrecv(a, other, 1, into, other)
    row("Send", 0, 0, MPI.BYTE, MPI.PROC_NULL, 4, world)
    world.Send(a, MPI.PROC_NULL, tag=4)
    row("Send", None, None, MPI.BYTE, MPI.PROC_NULL, 0, world)
    world.send({"a": 1}, dest=MPI.PROC_NULL)
    row("Recv", 0, 0, MPI.BYTE, MPI.PROC_NULL, MPI.ANY_TAG, world, None)
    world.Recv(into, MPI.PROC_NULL)


def collectives():
    a, all_ = np.ones(3), np.zeros(6)
    here, there = a.ctypes.data, all_.ctypes.data
    counts = [3, 3]
    row("Bcast", here, 3, MPI.DOUBLE, 1, world)
    world.Bcast(a, root=1)
    root = (there, 3, MPI.DOUBLE) if rank == 0 else (0, 0, MPI.BYTE)
    row("Gather", here, 3, MPI.DOUBLE, *root, 0, world)
    world.Gather(a, all_ if rank == 0 else None, root=0)
    row("Scatter", *root, *((MPI.IN_PLACE, 0, MPI.DATATYPE_NULL) if rank == 0 else (here, 3, MPI.DOUBLE)), 0, world)
    world.Scatter(all_, MPI.IN_PLACE if rank == 0 else a)
    row("Allgather", MPI.IN_PLACE, 0, MPI.DATATYPE_NULL, there, 3, MPI.DOUBLE, world)
    world.Allgather(MPI.IN_PLACE, all_)
    row("Gatherv", here, 3, MPI.DOUBLE, root[0], None, None, root[2], 0, world)
    world.Gatherv(a, [all_, counts, [0, 3], MPI.DOUBLE])
    out = np.zeros(6)
    row("Alltoallv", there, None, None, MPI.DOUBLE, out.ctypes.data, None, None, MPI.DOUBLE, world)
    world.Alltoallv([all_, counts], [out, counts])
    row("Reduce", here, there if rank == 1 else 0, 3, MPI.DOUBLE, MPI.MAX, 1, world)
    world.Reduce(a, all_[:3] if rank == 1 else None, MPI.MAX, root=1)
    row("Allreduce", MPI.IN_PLACE, here, 3, MPI.DOUBLE, MPI.SUM, world)
    world.Allreduce(MPI.IN_PLACE, a)
    row("Reduce_scatter_block", there, here, 3, MPI.DOUBLE, MPI.SUM, world)
    world.Reduce_scatter_block(all_, a)
    row("Allreduce", None, None, None, MPI.BYTE, MPI.MIN, world)
    world.allreduce(rank, MPI.MIN)
    request = world.Ireduce(a, all_[:3], root=0)
    row("Ireduce", here, there if rank == 0 else 0, 3, MPI.DOUBLE, MPI.SUM, 0, world, None, writes=(8, 1, request))
    row("Wait", None, None, reads=(1, 1, request))
    request.Wait()


def things():
    dup = world.Dup()
    row("Comm_dup", world, None, writes=(2, 1, dup))
    half = dup.Split(rank, 7)
    row("Comm_split", dup, rank, 7, None, writes=(4, 1, half))
    none = dup.Split(MPI.UNDEFINED)
    row("Comm_split", dup, MPI.UNDEFINED, 0, None, writes=(4, 1, none))
    group = half.Get_group()
    row("Comm_group", half, None, writes=(2, 1, group))
    one = group.Incl([0])
    row("Group_incl", group, 1, None, None, writes=(4, 1, one))
    both = MPI.Group.Union(group, one)
    row("Group_union", group, one, None, writes=(3, 1, both))
    op = MPI.Op.Create(lambda a, b, kind: None, commute=True)
    row("Op_create", None, True, None, writes=(3, 1, op))
    pair = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.INT, MPI.DOUBLE])
    row("Type_create_struct", 2, None, None, None, None, reads=(4, 2, MPI.INT, MPI.DOUBLE), writes=(5, 1, pair))
    for name, thing in (("Type", pair), ("Op", op), ("Group", both), ("Group", one), ("Group", group), ("Comm", half),
                        ("Comm", dup)):  # fmt: skip
        row(f"{name}_free", None, reads=(1, 1, thing))
        thing.Free()
    row("Type_contiguous", 2, MPI.INT, None, writes=(3, 1, free := MPI.INT.Create_contiguous(2)))
    row("Type_free", None, reads=(1, 1, free))
    free.free()
    MPI.INT.free()  # calls nothing
    memory = np.zeros(4)
    win = MPI.Win.Create(memory, 8, comm=world)
    row("Win_create", memory.ctypes.data, 32, 8, MPI.INFO_NULL, world, None, writes=(6, 1, win))
    row("Win_fence", 0, win)
    win.Fence()
    a = np.ones(2)
    row("Put", a.ctypes.data, 2, MPI.DOUBLE, other, 1, 2, MPI.DOUBLE, win)
    win.Put(a, other, 1)
    row("Win_fence", MPI.MODE_NOSUCCEED, win)
    win.Fence(MPI.MODE_NOSUCCEED)
    row("Win_free", None, reads=(1, 1, win))
    win.Free()


def completions():
    a, b = np.zeros(1), np.zeros(1)
    again = [world.Send_init(a, other, 6), world.Recv_init(b, other, 6)]
    row("Send_init", a.ctypes.data, 1, MPI.DOUBLE, other, 6, world, None, writes=(7, 1, again[0]))
    row("Recv_init", b.ctypes.data, 1, MPI.DOUBLE, other, 6, world, None, writes=(7, 1, again[1]))
    row("Startall", 2, None, reads=(2, 2, *again))
    MPI.Prequest.Startall(again)
    row("Waitall", 2, None, None, reads=(2, 2, *again))
    MPI.Request.Waitall(again)
    for request in again:
        row("Request_free", None, reads=(1, 1, request))
        request.Free()
    done = [MPI.REQUEST_NULL, MPI.REQUEST_NULL]
    row("Waitsome", 2, None, None, None, None, reads=(2, 2, *done), writes=(3, 1, MPI.UNDEFINED))
    MPI.Request.Waitsome(done)
    row("Waitany", 2, None, None, None, reads=(2, 2, *done), writes=(3, 1, MPI.UNDEFINED))
    MPI.Request.Waitany(done)
    row("Test", None, None, None, reads=(1, 1, done[0]), writes=(2, 1, True))
    MPI.REQUEST_NULL.Test()
    row("Testall", 2, None, None, None, reads=(2, 2, *done), writes=(3, 1, True))
    MPI.Request.testall(done)
    begun = world.isend("x", rank, 8)
    row("Isend", None, None, MPI.BYTE, rank, 8, world, None, writes=(7, 1, begun))
    message = world.mprobe(rank, 8)
    row("Mprobe", rank, 8, world, None, None, writes=(4, 1, message))
    row("Mrecv", None, None, MPI.BYTE, None, None, reads=(4, 1, message))
    message.recv()
    row("Improbe", rank, 9, world, None, None, None, writes=(4, 1, False))
    world.Improbe(rank, 9)
    row("Waitsome", 1, None, None, None, None, reads=(2, 1, begun), writes=(3, 1, 1, 4, 1, 0))
    MPI.Request.waitsome([begun])


for part in (messages, collectives, things, completions):
    part()
with open(f"{sys.argv[1]}-{rank}.json", "w") as file:
    json.dump(ROWS, file)
