"""What passes between ranks, and how: whole Python values for control, the bytes of a result in place.

| message | from, to         | carries                                                                    |
|---------|------------------|----------------------------------------------------------------------------|
| FREE    | worker, rank 0   | its first word; how an attempt ended; its last word                        |
| WORK    | rank 0, worker   | a job, and for each input the rank that has it; or the end                 |
| GET     | worker, worker   | key and output, length, and under which tag the answer is awaited          |
| DATA    | worker, worker   | the bytes of that output, or as many empty messages: it is not here        |

(1) Nobody waits inside MPI for what may take long: a blocking receive keeps a core busy. All look, and nap.
(2) Who sent GET receives all of its DATA, however late, and the owner always answers. So nothing is left unreceived at
    `MPI_Finalize`, where an MPI library may die of it.
(3) A message is shorter than 2 GiB: an older MPI counts with `int`.
"""

from __future__ import annotations

import pickle
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

FREE, WORK, GET, MORE = 1, 2, 3, 4  # tags
DATA, ANSWERS = 16, 1 << 14  # the n-th GET of a rank is answered under the tag DATA + n modulo ANSWERS
FIRST, PIECE = 4096, 1 << 22  # bytes of the first message of a DATA, and at most of the others
CONTROL = 1 << 30  # at most, of a message of control
_WORD = struct.Struct("<Q")


class Naps:
    """Sleeps that grow while nothing happens. First so many times it only lets others have the processor, and then so
    many naps are short: `eager`, `calm`."""

    def __init__(self, shortest_s: float = 1e-4, longest_s: float = 2e-3, calm: int = 20, eager: int = 0) -> None:
        self.shortest_s, self.longest_s, self.calm, self.eager = shortest_s, longest_s, calm, eager
        self.wake()

    def wake(self) -> None:
        """Something has happened: more may come soon."""
        self._next_s, self._count = self.shortest_s, 0

    def length_s(self) -> float:
        """Of the next one."""
        length, self._count = self._next_s, self._count + 1
        if self._count <= self.eager:
            return 0.0
        if self._count > self.eager + self.calm:
            self._next_s = min(self._next_s * 1.4, self.longest_s)
        return length

    def sleep(self, at_most_s: float = 1.0) -> None:
        time.sleep(max(0.0, min(self.length_s(), at_most_s)))


def mpi() -> Any:
    """The module of mpi4py: whoever has a communicator has loaded it."""
    return sys.modules["mpi4py.MPI"]


def space(nbytes: int) -> memoryview:
    """Room for what is received. Not zeroed where numpy is loaded: that would take a third of the time of a copy."""
    if nbytes > 1 << 16 and (numpy := sys.modules.get("numpy")) is not None:
        return memoryview(numpy.empty(nbytes, "u1"))
    return memoryview(bytearray(nbytes))


def flat(buffer: Any) -> memoryview:
    """Its bytes as they lie, also those of an array of several dimensions, or of none."""
    return pickle.PickleBuffer(buffer).raw()


def spans(nbytes: int) -> list[tuple[int, int]]:
    """Begin and end of each message of a DATA. Even an empty value has one: it is the answer."""
    ends = [min(FIRST, nbytes)]
    while ends[-1] < nbytes:
        ends.append(min(ends[-1] + PIECE, nbytes))
    return list(zip([0, *ends], ends, strict=False))


def pieces(buffers: Sequence[Any]) -> Iterator[Any]:
    """The same messages, of a value that is in several buffers. Copied is only what spans two of them."""
    views = [view for view in map(flat, buffers) if len(view)]
    number, offset = 0, 0
    for begin, end in spans(sum(map(len, views))):
        parts: list[memoryview] = []
        wanted = end - begin
        while wanted:
            part = views[number][offset : offset + wanted]
            parts.append(part)
            wanted -= len(part)
            offset += len(part)
            if offset == len(views[number]):
                number, offset = number + 1, 0
        yield parts[0] if len(parts) == 1 else b"".join(parts)


class Posted:
    """Sends that are under way, and what must not go before they are done."""

    def __init__(self, requests: list[Any], held: object) -> None:
        self.requests, self.held = requests, held

    def done(self) -> bool:
        return bool(mpi().Request.Testall(self.requests))


def post(comm: Any, value: object, rank: int, tag: int) -> Posted:
    """Begin to send a value: its pickle, and out of band its large buffers as they lie."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    lengths = [len(data), len(views), *(len(view) for view in views)]
    head = b"".join(map(_WORD.pack, lengths)) + data[:CONTROL]
    byte = mpi().BYTE
    requests = [comm.Isend([head, byte], rank, tag)]
    for view in (memoryview(data)[CONTROL:], *views):
        for begin in range(0, len(view), CONTROL):
            requests.append(comm.Isend([view[begin : begin + CONTROL], byte], rank, MORE))
    return Posted(requests, (head, data, views))


def take(comm: Any, tag: int, source: int | None = None) -> tuple[int, Any] | None:
    """Receive a value that has come: from whom, and what. None if none has."""
    source = mpi().ANY_SOURCE if source is None else source
    if not comm.Iprobe(source, tag):  # cheaper, and most often the end
        return None
    status = mpi().Status()
    message = comm.Improbe(source, tag, status)
    if message is None:
        return None
    rank, byte = status.Get_source(), mpi().BYTE
    head = memoryview(bytearray(status.Get_count(byte)))
    message.Recv([head, byte])
    length, count = (_WORD.unpack_from(head, at)[0] for at in (0, _WORD.size))
    lengths = [_WORD.unpack_from(head, _WORD.size * (2 + n))[0] for n in range(count)]
    first = head[_WORD.size * (2 + count) :]
    data = first
    if length > len(first):
        data = space(length)
        data[: len(first)] = first
        _receive(comm, data[len(first) :], rank)
    buffers = [space(nbytes) for nbytes in lengths]
    for buffer in buffers:
        _receive(comm, buffer, rank)
    return rank, pickle.loads(data, buffers=buffers)


def _receive(comm: Any, view: memoryview, rank: int) -> None:
    """In place. Its sender has begun to send all of it, so this waits for the copying alone."""
    for begin in range(0, len(view), CONTROL):
        comm.Recv([view[begin : begin + CONTROL], mpi().BYTE], rank, MORE)
