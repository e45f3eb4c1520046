"""Follows all ranks of a trace, while they run or afterwards, and gives their calls to the templates.

What is found does not depend on when a rank is heard: each template has the calls of a rank in their order (`streams`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from safepoint.check import tail as tails
from safepoint.check.call import Call
from safepoint.check.named import Thing
from safepoint.check.noted import Noted
from safepoint.check.streams import Matcher, Stream, by_function
from safepoint.check.tail import Tail
from safepoint.check.template import Template
from safepoint.check.translated import Translator
from safepoint.trace import record

# Of a trace that has no constants: numbers that its notes have instead.
PLAIN = {
    "MPI_ANY_SOURCE": record.ANY_SOURCE, "MPI_PROC_NULL": record.PROC_NULL, "MPI_ROOT": record.ROOT,
    "MPI_ANY_TAG": record.ANY_TAG, "MPI_COMM_WORLD": record.WORLD, "MPI_COMM_SELF": record.SELF,
}  # fmt: skip
STUCK = 500_000_000  # ns inside of a call, after which it is judged with what is known
ENDING = "Finalize"  # after it a process makes no calls that are right


class Follower:
    """All ranks that have begun to note in this directory."""

    def __init__(
        self, directory: Path, templates: Sequence[Template], matcher: Callable[[Template, int], Matcher]
    ) -> None:
        self._directory, self._templates, self._matcher = directory, templates, matcher
        self.ranks: dict[int, OfRank] = {}
        self.size = 0  # of MPI_COMM_WORLD; 0: nobody has begun
        self.streams: list[Stream] = []
        self._wanted: dict[str, list[Stream]] = {}
        self.calls = 0

    def look(self) -> list[Any]:
        """Read what has come; the situations that it makes. Raises `TraceError`."""
        self._begin()
        found = []
        for of_rank in self.ranks.values():
            settled = False
            for call in of_rank.calls():
                settled = True
                if call is not None:
                    self.calls += 1
                    found += self._offer(call)
            if settled:
                for stream in self.streams:
                    found += stream.settled(of_rank.rank)
        since = time.monotonic_ns() - STUCK
        for of_rank in self.ranks.values():
            if of_rank.inside:
                for stream in self.streams:
                    found += stream.stuck(of_rank.rank, since)
        return found

    def _begin(self) -> None:
        """Those who are new."""
        if self.size and len(self.ranks) == self.size:
            return
        for rank in tails.ranks(self._directory):
            if rank not in self.ranks:
                self.ranks[rank] = OfRank(Tail(self._directory, rank))
        if self.ranks and not self.size:
            self.size = next(iter(self.ranks.values())).tail.about["size"]
            self.streams = [Stream(one, self._matcher(one, self.size)) for one in self._templates]
            self._wanted = by_function(self.streams)

    def _offer(self, call: Call) -> list[Any]:
        found = []
        for stream in self._wanted.get(call.function, ()):
            found += stream.offer(call)
        return found

    def ended(self, rank: int) -> list[Any]:
        """This process makes no more calls: all of it is judged."""
        of_rank = self.ranks.get(rank)
        if of_rank is None or of_rank.ended:
            return []
        found = []
        for call in of_rank.end():
            found += self._offer(call)
        return [*found, *(one for stream in self.streams for one in stream.ended(rank))]

    def finish(self) -> list[Any]:
        """The final pass, over all that is there."""
        found = self.look()
        while any(of_rank.more for of_rank in self.ranks.values()):
            found += self.look()
        for rank in range(self.size):
            found += self.ended(rank)
        return [*found, *(one for stream in self.streams for one in stream.finish())]

    def close(self) -> None:
        for of_rank in self.ranks.values():
            of_rank.tail.close()


class OfRank:
    """One of them."""

    def __init__(self, tail: Tail) -> None:
        self.tail, self.rank = tail, int(tail.about["rank"])
        self._translator: Translator | None = None
        self._things: dict[int, tuple[int, Thing]] = {}
        self._known = 0
        self.inside: dict[int, Noted] = {}  # calls that have not returned
        self.last: Noted | None = None
        self.more, self.ended = False, False

    def calls(self) -> Iterator[Call | None]:
        """Those that have come; None: something that was pending has been settled."""
        notes = self.tail.read()
        self.more = bool(notes)
        if not notes:
            return
        named = self.tail.named
        for number, thing in enumerate(named.things[self._known :], self._known + 1):
            if thing.note >= 0:
                self._things[thing.note] = number, thing
        self._known = len(named.things)
        if self._translator is None:
            self._translator = Translator(self.rank, self.tail.about["size"], named.constants or PLAIN)
        for note in notes:
            name = named.functions[note.function][0]
            ends = note.thread, note.result, note.state, note.rows
            noted = Noted(note.number, name, note.enter, note.leave, note.site, *note[5:13], *ends)
            if noted.inside:
                self.inside[noted.number] = noted
            else:
                self.inside.pop(noted.number, None)
            self.last = noted
            yield None
            yield from self._translator.calls(noted, self._things)

    def end(self) -> list[Call]:
        """There will be no more."""
        self.ended = True
        return self._translator.end() if self._translator is not None else []
