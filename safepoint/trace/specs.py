"""What mpi4py passes to MPI for a buffer as the program gives it: its address, count and type.

(1) Reading changes nothing that the program can see: no buffer is copied, no iterator is asked, and no method of a
    class of the program's own is called.
(2) What cannot be known is `ABSENT`: mpi4py refuses most of that itself, a moment later.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from types import FunctionType
from typing import Any

from safepoint.trace.known import Known, items_of
from safepoint.trace.record import ABSENT, UNKNOWN
from safepoint.trace.rows import number

NO_HANDLE = 2**63  # ABSENT, as rows have handles: without a sign
Message = tuple[int, int, int]  # address, count, handle of the type
NOTHING: Message = (ABSENT, ABSENT, NO_HANDLE)
DTYPES_MAX, KINDS_MAX = 1000, 100  # a program may make types without end, and classes


class Specs:
    """Of one process. `plain`: the classes of mpi4py, before anything was put in their place. `names`: those of the
    wrappers, of which `array_` is the class of numpy's arrays once the program has loaded it."""

    def __init__(self, mpi: Any, plain: dict[str, Any], names: dict[str, Any]) -> None:
        self._names = names
        self._datatype, self._buffer, self._finalized = plain["Datatype"], mpi.buffer, mpi.Is_finalized
        self._extent_of = plain["Datatype"].Get_extent
        self._things = tuple(plain[name] for name in (
            "Comm", "Request", "Message", "Win", "File", "Datatype", "Group", "Op", "Info", "Errhandler", "Session",
        ))  # fmt: skip
        self._bottom, self._in_place = mpi.BOTTOM, mpi.IN_PLACE
        self._named: dict[str, Any] = mpi._typedict
        self._none, self.in_place, self._byte = mpi.PROC_NULL, int(mpi.IN_PLACE), mpi.BYTE.handle
        self._root, self._null, self._no_message = mpi.ROOT, mpi.DATATYPE_NULL.handle, mpi.MESSAGE_NO_PROC.handle
        self._size_of = plain["Datatype"].Get_size
        self._extents, self.sizes = dict[int, int](), {self._byte: 1}  # of predefined types, by handle
        self._kinds = set[type]()  # classes of which objects are things
        self._array: Any = None  # numpy's, once the program has loaded it
        # Handles of types by the addresses of dtypes, which are kept: no other gets one of these.
        self.kinds, self._dtypes = dict[int, int](), list[Any]()
        self._degrees: dict[Known, tuple[int, int]] = {}

    # One thing.

    def handle(self, thing: Any) -> int:
        if type(thing) in self._kinds or isinstance(thing, self._things):
            if len(self._kinds) < KINDS_MAX:
                self._kinds.add(type(thing))
            return int(thing.handle)
        return NO_HANDLE

    def handles(self, things: Any) -> list[int]:
        return [self.handle(thing) for thing in things] if type(things) in (list, tuple) else []

    def length(self, things: Any) -> int:
        """Of an array that mpi4py takes the length of."""
        known = type(things) in (list, tuple, range) or (self._array is not None and type(things) is self._array)
        return len(things) if known and getattr(things, "shape", True) else ABSENT

    def address(self, thing: Any) -> int:
        """Of a buffer that is taken as it is."""
        if thing is None or thing is self._bottom:
            return 0
        view = self._view(thing)
        return ABSENT if view is None else view[0]

    def size(self, thing: Any) -> int:
        """In bytes."""
        if thing is None or thing is self._bottom:
            return 0
        view = self._view(thing)
        return ABSENT if view is None else view[1]

    def bytes(self, message: Any) -> int:
        """Of a message, UNKNOWN if they cannot be told. What has `nbytes` is not asked for here."""
        try:
            buffer, count, displacement, kind = self._parts(message, (list, tuple))
            _, length, found = self._basic(buffer, kind)
            if count is None:
                return length - (number(displacement) * self._extent(found) if displacement else 0)
            size, counted = self._size(found), number(count)
            return counted * size if counted >= 0 and size >= 0 else UNKNOWN
        except Exception:  # (2)
            return UNKNOWN

    # A message.

    def simple(self, message: Any, rank: Any = 0, blocks: Any = 0) -> Message:
        """As a count of one type. `rank`: of the other side; `blocks`: among how many it is divided."""
        if rank != self._none:
            kind = type(message)
            try:  # what most programs give
                if kind is self._array:
                    count = message.size if blocks < 2 else message.size // blocks
                    return self._buffer(message).address, count, self.kinds[id(message.dtype)]
                if (kind is list or kind is tuple) and len(message) == 3 and type(message[1]) is int:
                    buffer, count, found = message
                    if (type(buffer) is self._array or type(buffer) is array) and type(found) is self._datatype:
                        return self._buffer(buffer).address, count, found.handle
            except (KeyError, BufferError, ValueError, TypeError):
                pass
        try:
            return self._simple(message, rank, blocks)
        except Exception:  # (2)
            return NOTHING

    def _simple(self, message: Any, rank: Any, blocks: int) -> Message:
        if rank == self._none:
            return 0, 0, self._byte
        buffer, count, displacement, kind = self._parts(message, (list, tuple))
        address, length, found = self._basic(buffer, kind)
        if found is None:
            return address, _integer(count, ABSENT), NO_HANDLE
        handle, offset = found.handle, _integer(displacement, 0)
        if offset == ABSENT:
            return ABSENT, _integer(count, ABSENT), handle
        if offset or count is None:
            extent = self._extent(found) if length else 1
            if extent <= 0:
                return ABSENT, _integer(count, ABSENT), handle
            address, length = address + offset * extent, length - offset * extent
            if count is None:
                return address, length // extent // max(1, blocks), handle
        return address, _integer(count, ABSENT), handle

    def vector(self, message: Any, rank: Any = 0) -> Message:
        """As many counts of one type: where these are, nobody knows."""
        try:
            if rank == self._none:
                return 0, 0, self._byte
            buffer, _, _, kind = self._parts(message, (tuple,))
            address, _, found = self._basic(buffer, kind)
            return address, ABSENT, NO_HANDLE if found is None else found.handle
        except Exception:  # (2)
            return NOTHING

    def types(self, message: Any) -> tuple[Message, list[int]]:
        """As counts of many types, and the handles of these."""
        if message is None or message is self._in_place:
            return (self.in_place, ABSENT, NO_HANDLE), []
        try:
            parts = items_of(message)
            return (self.address(parts[0]), ABSENT, NO_HANDLE), self.handles(parts[-1])
        except Exception:  # (2)
            return NOTHING, []

    def _parts(self, message: Any, pairs: tuple[type, ...]) -> tuple[Any, Any, Any, Any]:
        """Buffer, count, displacement, type. `pairs`: what a count with its displacement may be."""
        if not isinstance(message, (list, tuple)):
            return message, None, None, None
        items = items_of(message)
        if len(items) == 2 and isinstance(items[1], (self._datatype, str)):
            return items[0], None, None, items[1]
        if len(items) == 4:
            return items[0], items[1], items[2], items[3]
        buffer, count, *rest = items
        displacement = None
        if isinstance(count, pairs):
            count, displacement = items_of(count)
        return buffer, count, displacement, rest[0] if rest else None

    def _basic(self, buffer: Any, kind: Any) -> tuple[int, int, Any]:
        """Address, length in bytes, and type: None if it cannot be known."""
        if buffer is None or buffer is self._bottom:
            return 0, 0, self._type(kind)
        view = self._view(buffer)
        if view is None:
            return ABSENT, 0, None if kind is None else self._type(kind)
        address, length, layout = view
        return address, length, self._named.get(layout) if kind is None else self._type(kind)

    def _view(self, buffer: Any) -> tuple[int, int, str] | None:
        """Address, length and format of what has the buffer protocol, if its class is not the program's own."""
        if isinstance(getattr(type(buffer), "__buffer__", None), FunctionType):
            return None
        try:
            view = memoryview(buffer)
        except (TypeError, ValueError, BufferError):  # one of a GPU, or of dates
            return None
        if not view.contiguous:
            return None
        layout = view.format.lstrip("@=" if view.format[:1] in "@=" else "<" if sys.byteorder == "little" else ">")
        if self._array is None and "numpy" in sys.modules:
            self._array = self._names["array_"] = getattr(sys.modules["numpy"], "ndarray", None)
        if type(buffer) is self._array and layout in self._named and len(self._dtypes) < DTYPES_MAX:
            found = self._named[layout]
            if self._extent(found) == view.itemsize:
                self._dtypes.append(kind := buffer.dtype)
                self.kinds[id(kind)] = found.handle
        try:
            return self._buffer(view).address, view.nbytes, layout
        except BufferError:  # in the order of Fortran
            return self._buffer(buffer).address if type(buffer) is self._array else ABSENT, view.nbytes, layout

    def _type(self, kind: Any) -> Any:
        return kind if isinstance(kind, self._datatype) else self._named.get(kind) if type(kind) is str else None

    def _extent(self, kind: Any) -> int:
        """0: it cannot be known."""
        return max(0, self._told(self._extents, kind, lambda: self._extent_of(kind)[1]))

    def _size(self, kind: Any) -> int:
        """Negative: it cannot be known."""
        return self._told(self.sizes, kind, lambda: self._size_of(kind))

    def _told(self, known: dict[int, int], kind: Any, ask: Callable[[], int]) -> int:
        """What MPI says of a type, once if it is predefined. It may not be asked after its end."""
        handle = kind.handle
        if handle in known:
            return known[handle]
        if handle == self._null or self._finalized():
            return -1
        found = ask()
        if kind.is_predefined:
            known[handle] = found
        return found

    # Collective calls: what is sent, and what is received.

    def bcast(self, c: Known, message: Any, root: Any) -> Message:
        return self.simple(message, root)

    def gather(self, c: Known, sent: Any, received: Any, root: Any, many: bool) -> Message2:
        size, rooted, aside = self._side(c, root)
        if not rooted:
            return self.simple(sent, root), (0, 0, self._byte)
        got = self.vector(received, root) if many else self.simple(received, root, size)
        if aside:
            return (0, 0, self._byte), got
        return self._place(sent) or self.simple(sent), got

    def scatter(self, c: Known, sent: Any, received: Any, root: Any, many: bool) -> Message2:
        size, rooted, aside = self._side(c, root)
        if not rooted:
            return (0, 0, self._byte), self.simple(received, root)
        gave = self.vector(sent, root) if many else self.simple(sent, root, size)
        if aside:
            return gave, (0, 0, self._byte)
        return gave, self._place(received) or self.simple(received, root)

    def allgather(self, c: Known, sent: Any, received: Any, many: bool) -> Message2:
        got = self.vector(received) if many else self.simple(received, 0, len(c.peers))
        return (None if _inter(c) else self._place(sent)) or self.simple(sent), got

    def alltoall(self, c: Known, sent: Any, received: Any, many: bool) -> Message2:
        got = self.vector(received) if many else self.simple(received, 0, len(c.peers))
        if not _inter(c) and (place := self._place(sent)):
            return place, got
        return self.vector(sent) if many else self.simple(sent, 0, len(c.peers)), got

    def neighbors(self, c: Known, comm: Any, sent: Any, received: Any, many: bool, each: bool) -> Message2:
        """`each`: what is sent to one is not what is sent to another."""
        if c not in self._degrees and not many and not self._finalized():
            self._degrees[c] = comm.degrees
        into, out = self._degrees.get(c, (0, 0))
        got = self.vector(received) if many else self.simple(received, 0, into)
        if not each:
            return self.simple(sent), got
        return self.vector(sent) if many else self.simple(sent, 0, out), got

    def reduce(self, c: Known, sent: Any, received: Any, root: Any) -> Message2:
        _, rooted, aside = self._side(c, root)
        if not rooted:
            gave = self.simple(sent, root)
            return gave, (0, *gave[1:])
        if aside:
            got = self.simple(received, root)
            return (0, *got[1:]), got
        return self.allreduce(c, sent, received)

    def allreduce(self, c: Known, sent: Any, received: Any) -> Message2:
        """Scan and Exscan too."""
        got = self.simple(received)
        if sent is None or sent is self._in_place:
            return (self.in_place, *got[1:]), got
        gave = self.simple(sent)
        return ((self.in_place, *gave[1:]) if gave[0] == got[0] != ABSENT and not _inter(c) else gave), got

    def reduce_scatter(self, c: Known, sent: Any, received: Any, block: bool) -> Message2:
        if not _inter(c) and (place := self._place(sent)):
            return place, self.simple(received, 0, len(c.peers) if block else 0)
        gave, got = self.simple(sent, 0, len(c.peers) if block else 0), self.simple(received)
        return ((self.in_place, *gave[1:]) if gave[0] == got[0] != ABSENT and not _inter(c) else gave), got

    def matched(self, message: Any, buffer: Any) -> Message:
        """Of a message that a probe has taken."""
        return self.simple(buffer, self._none if message.handle == self._no_message else 0, 1)

    def target(self, origin: Message, given: Any, rank: Any, target: Any) -> Message2:
        """Of one-sided calls: origin, then displacement, count and type at the target."""
        if rank == self._none and isinstance(given, (list, tuple)) and (items := items_of(given)):
            found = self._type(items[-1])
            origin = (*origin[:2], origin[2] if found is None else found.handle)
        if target is None:
            return origin, (0, *origin[1:])
        if not isinstance(target, (list, tuple)):
            return origin, (_integer(target, 0), *origin[1:])
        items = [*items_of(target), None, None, None][:3]
        found = self._type(items[2])
        return origin, (_integer(items[0], 0), _integer(items[1], origin[1]), found.handle if found else origin[2])

    def _side(self, c: Known, root: Any) -> tuple[int, bool, bool]:
        """How many there are; whether this rank gives to all, or takes from all; and whether it does nothing else."""
        if _inter(c):
            return len(c.peers), root in (self._root, self._none), True
        return len(c.peers), root == c.rank, False

    def _place(self, message: Any) -> Message | None:
        return (self.in_place, 0, self._null) if message is None or message is self._in_place else None


Message2 = tuple[Message, Message]


def _inter(c: Known) -> bool:
    return "remote" in c.line


def _integer(value: Any, otherwise: int) -> int:
    return otherwise if value is None else number(value)
