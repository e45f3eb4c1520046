"""Random programs of MPI that are played, not run: each step is one that MPI may make, and is noted as a tracer would.

    run = Run(random.Random(7), 3, trace)
    run.some(40)            # so many steps, or until there is none
    run.further(draw)       # the ranks that leave the call they are in, in one way to go on: nothing is noted then

A send is given to MPI at once, or waits until it is taken: the program's draw decides. A receive for any source takes
any first message of a source.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from safepoint.trace.record import (
    AFTER,
    ANY_SOURCE,
    ANY_TAG,
    BEFORE,
    COMPLETED,
    ENTERED,
    HEADER,
    LEAVE,
    NONE,
    NOTE,
    RETURNED,
)  # fmt: skip
from testbed.noted import Noted

TAGS = (5, 6)


class Request:
    """A message that is sent, or to be received."""

    def __init__(self, sends: bool, rank: int, peer: int, tag: int, eager: bool, number: int) -> None:
        self.sends, self.rank, self.peer, self.tag, self.number = sends, rank, peer, tag, number
        self.done, self.got = sends and eager, (NONE, NONE)
        self.taken = False  # of a send: a receive has it


class Rank:
    def __init__(self, script: list[tuple[Any, ...]]) -> None:
        self.script, self.at = script, 0
        self.inside: tuple[str, list[Request], int] | None = None  # name, what it waits for, number of the note
        self.requests: list[Request] = []
        self.came = 0


class Run:
    def __init__(self, draw: random.Random, ranks: int, trace: Noted) -> None:
        self._draw, self._trace = draw, trace
        self.ranks = [Rank(self._script(rank, ranks)) for rank in range(ranks)]
        self.sent: list[Request] = []  # in order, not taken
        self.posted: list[Request] = []  # in order, not matched
        self._number = 0

    def _script(self, rank: int, ranks: int) -> list[tuple[Any, ...]]:
        others, script = [one for one in range(ranks) if one != rank], list[tuple[Any, ...]]()
        for _ in range(self._draw.randint(2, 9)):
            name = self._draw.choice(("Send", "Send", "Recv", "Recv", "Isend", "Irecv", "Irecv", "Wait", "Waitall",
                                      "Waitany", "Barrier"))  # fmt: skip
            peer = self._draw.choice([*others, ANY_SOURCE] if "ecv" in name and self._draw.random() < 0.4 else others)
            tag = ANY_TAG if "ecv" in name and self._draw.random() < 0.2 else self._draw.choice(TAGS)
            script.append((name, peer, tag, self._draw.random() < 0.5))
        return script

    def ended(self) -> list[int]:
        return [number for number, rank in enumerate(self.ranks) if rank.at == len(rank.script) and not rank.inside]

    # Playing.

    def some(self, count: int) -> None:
        for _ in range(count):
            if not (steps := self.steps()):
                return
            self._draw.choice(steps)()

    def settle(self) -> None:
        """What MPI does by itself: whoever can leave a call does."""
        while steps := [*self._matches(), *self._leaves()]:
            self._draw.choice(steps)()

    def further(self, draw: random.Random) -> set[int]:
        trace, self._trace = self._trace, None  # type: ignore[assignment]
        other = copy.deepcopy(self)
        self._trace = trace
        inside = {number for number, rank in enumerate(other.ranks) if rank.inside}
        before, left = {number: other.ranks[number].at for number in inside}, set[int]()
        for _ in range(300):
            if not (steps := other.steps()):
                break
            draw.choice(steps)()
            left |= {n for n in inside if other.ranks[n].inside is None or other.ranks[n].at > before[n]}
        return left

    def steps(self) -> list[Callable[[], None]]:
        enters = [
            lambda number=number: self._enter(number)  # type: ignore[misc]
            for number, rank in enumerate(self.ranks)
            if rank.inside is None and rank.at < len(rank.script)
        ]
        return [*enters, *self._leaves(), *self._matches()]

    def _leaves(self) -> list[Callable[[], None]]:
        return [
            lambda number=number: self._leave(number)  # type: ignore[misc]
            for number, rank in enumerate(self.ranks)
            if rank.inside is not None and self._over(rank)
        ]

    def _matches(self) -> list[Callable[[], None]]:
        found = list[Callable[[], None]]()
        for receive in self.posted:
            for source in sorted({send.rank for send in self.sent}):
                first = next((s for s in self.sent if s.rank == source and self._fits(s, receive)), None)
                if first and next(r for r in self.posted if self._fits(first, r)) is receive:
                    found.append(lambda send=first, receive=receive: self._match(send, receive))  # type: ignore[misc]
        return found

    @staticmethod
    def _fits(send: Request, receive: Request) -> bool:
        return (
            send.peer == receive.rank and receive.peer in (send.rank, ANY_SOURCE) and receive.tag in (send.tag, ANY_TAG)
        )  # fmt: skip

    def _match(self, send: Request, receive: Request) -> None:
        self.sent.remove(send)
        self.posted.remove(receive)
        send.done = send.taken = receive.done = True
        receive.got = send.rank, send.tag

    def _over(self, rank: Rank) -> bool:
        assert rank.inside is not None
        name, waits, _ = rank.inside
        if name == "Barrier":
            return all(other.came >= rank.came for other in self.ranks)
        if name == "Waitany":
            return not waits or any(request.done for request in waits)
        return all(request.done for request in waits)

    def _enter(self, number: int) -> None:
        rank = self.ranks[number]
        name, peer, tag, eager = rank.script[rank.at]
        rank.at += 1
        waits = list[Request]()
        if name in ("Send", "Recv", "Isend", "Irecv"):
            self._number += 1
            request = Request("end" in name, number, peer, tag, eager, self._number)
            (self.sent if request.sends else self.posted).append(request)
            if name[0] == "I":
                rank.requests.append(request)
                self._note_begun(number, name, request)
                return
            waits = [request]
        elif name == "Wait":
            waits = rank.requests[:1]
        elif name.startswith("Wait"):
            waits = list(rank.requests)
        else:
            rank.came += 1
        rank.inside = name, waits, self._note(number, name, waits)

    def _leave(self, number: int) -> None:
        rank = self.ranks[number]
        assert rank.inside is not None
        name, waits, note = rank.inside
        done = waits if name != "Waitany" else [request for request in waits if request.done][:1]
        rank.requests = [request for request in rank.requests if request not in done]
        rank.inside = None
        if self._trace is not None:
            self._note_left(number, name, done, note)

    # Noting.

    def _note_begun(self, number: int, name: str, request: Request) -> None:
        if self._trace is not None:
            mine = self._trace[number]
            mine.notes.more(HEADER + NOTE * mine.count, AFTER, (7, 1, 1000 + request.number))
            mine.call(name, 3, peer=request.peer, tag=request.tag, request=request.number)

    def _note(self, number: int, name: str, waits: list[Request]) -> int:
        if self._trace is None:
            return 0
        mine = self._trace[number]
        if name in ("Send", "Recv"):
            return mine.call(name, 4, peer=waits[0].peer, tag=waits[0].tag, state=ENTERED)
        if name == "Wait":
            return mine.call(name, 5, comm=0, request=waits[0].number if waits else 0, state=ENTERED)
        if name == "Barrier":
            return mine.call(name, 6, state=ENTERED)
        mine.notes.more(
            HEADER + NOTE * mine.count, BEFORE, (2, len(waits), *(1000 + request.number for request in waits))
        )
        return mine.call(name, 7, comm=0, state=ENTERED)

    def _note_left(self, number: int, name: str, done: list[Request], note: int) -> None:
        mine = self._trace[number]
        at = HEADER + NOTE * note
        if name in ("Recv", "Wait") and done:
            peer, tag = done[0].got
            mine.notes.map[at + 32 : at + 40] = peer.to_bytes(4, "little", signed=True) + tag.to_bytes(
                4, "little", signed=True
            )
        if name in ("Waitall", "Waitany"):
            row = [value for request in done for value in (request.number, *request.got)]
            mine.notes.more(at, COMPLETED, row)
        self._trace.now += 10
        mine.notes.map[at + LEAVE : at + LEAVE + 8] = self._trace.now.to_bytes(8, "little")
        mine.notes.map[at + NOTE - 1] = RETURNED
