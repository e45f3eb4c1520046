"""What the Python tracer keeps of the things that MPI makes: communicators, windows and files, and requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import Any, ClassVar


class Known:
    """A communicator, window or file."""

    __slots__ = ("depth", "dirty", "got", "line", "number", "outside", "peers", "rank", "sent")

    def __init__(self, number: int, rank: int, peers: Sequence[int]) -> None:
        self.number, self.rank = number, rank
        self.peers = peers  # of each rank that can be sent to, its rank in the world; -1: it is outside
        self.outside = -1 in peers
        self.line: dict[str, Any] = {}  # what was noted of it
        self.sent: defaultdict[int, int] = defaultdict(int)  # messages, by rank
        self.got: defaultdict[int, int] = defaultdict(int)
        self.depth = 0  # of a window: epochs that are open
        self.dirty = False  # and whether something was put since the last fence

    def world(self, rank: int) -> int:
        """The rank in the world of one that is addressed by this; -1: it is outside."""
        return self.peers[rank] if 0 <= rank < len(self.peers) else -1

    def net(self, members: Container[int] | None) -> int:
        """Messages sent less those received, with these ranks of the world; None: with all of it."""
        if members is None and not self.outside:
            return sum(self.sent.values()) - sum(self.got.values())
        return sum(self.sent[rank] - self.got[rank] for rank in {*self.sent, *self.got} if self._is_in(rank, members))

    def _is_in(self, rank: int, members: Container[int] | None) -> bool:
        world = self.world(rank)
        return world >= 0 and (members is None or world in members)

    def move(self, past: Known) -> None:
        """It was freed: what went by it is kept by the ranks of the world."""
        for mine, its in ((self.sent, past.sent), (self.got, past.got)):
            for rank, count in mine.items():
                if (world := self.world(rank)) >= 0:
                    its[world] += count
            mine.clear()


class Persistent:
    """What `Send_init` and the like have made. `what` it does is said as of any request, but for its number: whether it
    receives, its communicator (None: it is no message), peer and tag as given, and whether one of these is wild."""

    __slots__ = ("number", "running", "what")

    def __init__(self, number: int, what: tuple[Any, ...]) -> None:
        self.number, self.what = number, what
        self.running: tuple[Any, ...] | None = None


class Begun(tuple[Any, ...]):
    """A request that is under way: its number, whether it receives, its communicator (None: it is no message), peer and
    tag as given, and whether one of these is wild. When nobody has it any more it is as if it had been freed: a program
    may forget what it has sent."""

    __slots__ = ()
    open: ClassVar[set[int]] = set()  # numbers of those that are
    dropped: ClassVar[Callable[[Begun], None]]

    def __del__(self) -> None:
        if self[0] in Begun.open:
            Begun.dropped(self)


def ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0-2,5`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1 and number > 0:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in found)


def items_of(sequence: Any) -> list[Any]:
    """Of a list or tuple, of the program's own class too, without its methods; of anything else none."""
    if isinstance(sequence, list):
        return list(list.__iter__(sequence))
    return list(tuple.__iter__(sequence)) if isinstance(sequence, tuple) else []
