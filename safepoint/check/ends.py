"""How the ranks of a run come to their ends: they leave, die, or make no step any more.

(1) Quiet is a run in which no call was entered or left for `hang` seconds. A rank that is inside of a call that waits
    for others hangs then; one that is outside computes, which may take as long as it likes. A rank that was stopped
    does neither.
(2) A run hangs if each rank hangs or has ended. It is told once; if a rank goes on after that, that is told too.
(3) Only processes that this run has started are sent a signal: each by its id, and only if it is still the same one.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from safepoint.check import files, rollcall, stacks
from safepoint.check.busy import Busy
from safepoint.check.followed import Followed
from safepoint.check.processes import PATIENCE_S, Launcher, boot, end, signal_of
from safepoint.check.rollcall import COMPUTES, DIED, ENDED, INSIDE, LOST, STOPPED, Hang, Roll, Where, named, place, said
from safepoint.check.server import Server
from safepoint.check.standing import Standing
from safepoint.check.tail import PART, Noted
from safepoint.check.waiting import Graph
from safepoint.trace.roles import VERBS


class Event(NamedTuple):
    """Something that is told once."""

    kind: str  # "ended", "died", "computes", "stopped", "deadlock" of some, "hang", "goes on", "lost"
    ranks: tuple[int, ...]
    text: str
    hang: Hang | None = None


class Ends:
    """Of all ranks of a run that is under way. `server`: of those on other nodes."""

    def __init__(self, directory: Path, hang_s: float, server: Server | None = None) -> None:
        self._directory, self._hang, self._server = directory, int(hang_s * 1e9), server
        self._boot = boot()
        self.followed: dict[int, Followed] = {}
        self.size = 0  # of the world; 0: no rank has begun
        self.never: dict[int, str] = {}  # ranks of which nothing can be read, and why
        self.deaths: list[int] = []  # in the order in which they were seen
        self._gone: dict[int, None] = {}  # whose processes are gone, the first one first
        self._moved = time.monotonic_ns()
        self._busy = Busy(self._hang)
        self._told: set[tuple[str, tuple[int, ...]]] = set()
        self._over: Hang | None = None
        self._since = 0
        self._lost = set[str]()  # what was told of those

    # What the ranks do.

    def poll(self) -> list[tuple[int, Noted]]:
        """Notes that have come, with their ranks: those of a rank in order, and of each a part, so that none is heard
        far ahead of the others. Empty: there are no more for now. Raises `TraceError`."""
        found, now = list[tuple[int, Noted]](), time.monotonic_ns()
        if not self.size or len(self.followed) + len(self.never) < self.size:
            self._begun(now)
        for rank, one in self.followed.items():
            notes = self._read(one)
            for note in notes:
                one.standing.feed(note)
                found.append((rank, note))
            if notes:
                one.moved = self._moved = now
        return found

    def _read(self, one: Followed) -> list[Noted]:
        if self._server is None:
            return one.read(PART)
        with self._server.writing:
            return one.read(PART)

    def _begun(self, now: int) -> None:
        for rank in files.ranks(self._directory):
            if rank not in self.followed and rank not in self.never:
                elsewhere = self._server.process(rank) if self._server is not None else None
                try:
                    one = Followed(self._directory, rank, self._boot, now, elsewhere, self.size)
                except files.TraceError as error:
                    self.never[rank] = f"rank {rank} is not followed: {error}"
                else:
                    self.followed[rank], self.size, self._moved = one, one.tail.about["size"], now

    def wait(self, seconds: float) -> None:
        """Sleep, but not over the death of a rank: who dies first is known by that."""
        poll = select.poll()
        there = {one.process.descriptor: rank for rank, one in self.followed.items() if one.process.descriptor >= 0}
        for descriptor in there:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(seconds * 1000):
            rank = there[descriptor]
            if rank not in self._gone:
                self._gone[rank] = None
                self.followed[rank].process.seen()

    def look(self) -> list[Event]:
        """What is to be told now. To be called after each `poll`. Raises `TraceError`."""
        now, events = time.monotonic_ns(), self.losses()
        for rank in [*self._gone, *self.followed.keys() - self._gone.keys()]:
            one = self.followed[rank]
            if not one.ended and (how := self._ended(one)):
                self._moved = now
                events.append(self._end(rank, how))
        if self._over is not None and self._went_on():
            gone = tuple(rank for rank in self._over.ranks if self.followed[rank].moved == self._moved)
            events.append(Event("goes on", gone, f"{named(gone) if gone else 'the program'} goes on: it did not hang"))
            self._over = None
        if now - self._moved < self._hang - self._busy.lead:
            self._busy.clear()
        else:
            self._busy.look(self.pids(), now)
        if now - self._moved < self._hang or not self._busy.looked or not self.followed:
            self._told = {one for one in self._told if one[0] == "deadlock"}
            return [*events, *self._some(now)]
        if self._over is None:
            events += self._quiet(now)
        return events

    def losses(self) -> list[Event]:
        """Ranks that are followed no more, or never were, each told once."""
        unreadable = {rank: one.lost for rank, one in self.followed.items() if one.unreadable and not one.ended}
        events = [Event(LOST, (rank,), why) for rank, why in (self.never | unreadable).items() if why not in self._lost]
        self._lost |= {event.text for event in events}
        for ranks, why in self._server.losses() if self._server is not None else ():
            left = tuple(rank for rank in ranks if rank in self.followed and not self.followed[rank].ended)
            for rank in left:
                self.followed[rank].lost = why
            events.append(Event(LOST, left, why))
        return events

    def _went_on(self) -> bool:
        return self._moved > self._since and any(one.moved == self._moved for one in self.followed.values())

    def _ended(self, one: Followed) -> str:
        """How; empty: it runs."""
        if one.tail.closed or not one.pid or one.process.gone:
            one.look()
            if one.tail.about["ended"]:
                return str(one.tail.about["ended"])
            if one.process.gone:
                if not one.gone:  # its last notes may have come since they were read
                    one.gone = True
                    return ""
                one.look()  # it may have ended in between
                return self._how(one)
        return ""

    def _how(self, one: Followed) -> str:
        """A process whose end the tracer has not seen. After Finalize it may leave as it likes."""
        died = not one.unreadable and (not one.standing.over or one.process.status)
        return str(one.tail.about["ended"] or (DIED if died else "exit"))

    def _end(self, rank: int, how: str) -> Event:
        one = self.followed[rank]
        one.ended = how
        one.process.forget()
        if how == DIED:
            self.deaths.append(rank)
            return Event(DIED, (rank,), self.death(rank))
        return Event(ENDED, (rank,), f"rank {rank} has ended: {how}")

    def death(self, rank: int, code: int | None = None) -> str:
        """`rank 2 died (SIGKILL) in Recv halo.c:52`. `code`: that of the launcher, when it has ended."""
        one = self.followed[rank]
        calls, of_mpich = inside(one.standing), "MPICH" in one.tail.about["mpi"]
        # A program that MPI has ended has the number of an error, which would be taken for that of a signal.
        by = "" if code is None or (calls and of_mpich) else signal_of(code, of_mpich)
        if (status := one.process.status) is not None:
            by = signal_of(os.waitstatus_to_exitcode(status)) or f"exit code {status >> 8}"
        if one.standing.aborted:
            by = "MPI_Abort"
        call = calls[0] if calls else one.standing.last
        text = f"rank {rank} died{f' ({by})' if by else ''}"
        if call is None:
            return text
        at = place(one.tail.named, call.site, one.tail.about["cwd"])
        return f"{text} {'in' if calls else 'after'} {said(one.standing, call)} {at}".rstrip()

    def finish(self, code: int) -> list[Event]:
        """The launcher has ended: so has each rank. Raises `TraceError`."""
        events = list[Event]()
        for rank, one in self.followed.items():
            if not one.ended and not one.lost:
                one.look()
                events.append(self._end(rank, self._how(one)))
        return [event._replace(text=self.death(event.ranks[0], code)) if event.kind == DIED else event
                for event in events]  # fmt: skip

    # Hangs.

    def where(self, now: int) -> dict[int, Where]:
        """Of each rank of the world."""
        found = dict[int, Where]()
        for rank in range(self.size):
            one = self.followed.get(rank)
            if one is None:
                found[rank] = Where(LOST if rank in self.never else COMPUTES, (), self._moved, "has not called MPI")
                continue
            calls, since = inside(one.standing), one.moved
            if one.timed:
                since = calls[0].enter if calls else one.standing.left or one.tail.about["begin"][0]
            one.look()
            if one.tail.stopped and not one.ended:
                found[rank] = Where(COMPUTES, (), since, "notes nothing more")
            elif one.ended:
                found[rank] = Where(DIED if one.ended == DIED else ENDED, calls, since, one.ended)
            elif one.lost:
                found[rank] = Where(LOST, calls, since)
            elif one.process.stopped:
                found[rank] = Where(STOPPED, calls, since)
            elif calls and all(self._waits(one.standing, call) for call in calls) and self._all_threads(one):
                found[rank] = Where(INSIDE, calls, since)
            else:
                found[rank] = Where(COMPUTES, calls, since)
        return found

    def _waits(self, standing: Standing, call: Noted) -> bool:
        """For ranks that are followed. What a process outside of the world does, which another program has started, is
        not known: it may compute."""
        thing = standing.named.thing(call.comm)
        return standing.blocks(call) and not (thing is not None and thing.outside)

    def _all_threads(self, one: Followed) -> bool:
        """They are inside. One that is outside may still do something, also if it has not called MPI yet."""
        inside = one.standing.inside.values()
        busy = self._busy.more_than(one.pid, len(inside)) or one.process.working > len(inside)
        return all(inside) and not busy

    def roll(self, now: int, where: Mapping[int, Where]) -> Roll:
        graph = Graph({rank: one.standing for rank, one in self.followed.items()},
                      {rank: one.ended for rank, one in self.followed.items() if one.ended}, self.size)  # fmt: skip
        return Roll(graph, where, now, self.cwd)

    @property
    def cwd(self) -> str:
        return next((str(one.tail.about["cwd"]) for one in self.followed.values()), "")

    def _quiet(self, now: int) -> Iterator[Event]:
        where = self.where(now)
        if self._stores(where):
            return
        others = {rank: one for rank, one in where.items() if one.state in (COMPUTES, STOPPED, LOST)}
        if not others:
            if any(one.state == INSIDE for one in where.values()):
                self._over, self._since = self._hang_of(now, where), self._moved
                yield Event("hang", self._over.ranks, self._over.text, self._over)
            return
        if len(others) == len(where) and not any(one.state == STOPPED or one.calls for one in others.values()):
            return  # all compute
        lost = tuple(rank for rank, one in others.items() if one.state == LOST)
        if len(lost) == len(others) and (LOST, lost) not in self._told:
            self._told.add((LOST, lost))
            yield Event(LOST, lost, rollcall.unknown(lost, (now - self._moved) // 10**9))
        for rank, one in others.items():
            if one.state != LOST and (one.state, (rank,)) not in self._told:
                self._told.add((one.state, (rank,)))
                yield Event(one.state, (rank,), self._of_other(rank, one, now))
        yield from self._some(now)

    def _of_other(self, rank: int, one: Where, now: int) -> str:
        if rank not in self.followed:
            return f"rank {rank} has not called MPI yet"
        seconds = max(0, now - one.since) // 10**9
        standing = self.followed[rank].standing
        call = one.calls[0] if one.calls else standing.last
        at = place(self.followed[rank].tail.named, call.site, self.cwd) if call else ""
        if one.state == STOPPED:
            return f"rank {rank} is stopped (SIGSTOP, or a debugger), {at}".rstrip(", ")
        if one.calls and call is not None:
            text = f"rank {rank} is in {said(standing, call)} since {seconds} s, {at}".rstrip(", ")
            return f"{text}; another thread of it is at work, or is outside of MPI"
        return f"rank {rank} computes since {seconds} s{f', after {at}' if at else ''}"

    def _stores(self, where: Mapping[int, Where]) -> bool:
        """All that are inside of something are in the same `hide`, or another verb: none waits for another, and a disk
        may be slow."""
        standings = {rank: self.followed[rank].standing for rank, one in where.items() if one.state == INSIDE}
        names = {s.name(call) for rank, s in standings.items() for call in where[rank].calls}
        if len(names) != 1 or not names <= {*VERBS}:
            return False
        name = names.pop()
        orders = {one.standing.came[name] for one in self.followed.values() if not one.ended}
        return len(orders) == 1 and len(self.followed) == self.size

    def _some(self, now: int) -> Iterator[Event]:
        """Ranks that can only be released by each other, while others go on; a little later than a hang of all."""
        if self._over is not None or not self.followed:
            return
        long_ago = [rank for rank, one in self.followed.items()
                    if now - one.moved >= 1.5 * self._hang and not (one.ended or one.lost)]  # fmt: skip
        if not long_ago:
            return
        where = {rank: one for rank, one in self.where(now).items() if rank in long_ago}
        roll = self.roll(now, where)
        chosen = tuple(sorted(roll.stuck))
        if chosen and ("deadlock", chosen) not in self._told:
            self._told.add(("deadlock", chosen))
            yield Event("deadlock", chosen, "\n".join(roll.chains()))

    def _hang_of(self, now: int, where: dict[int, Where]) -> Hang:
        mine = {rank: self.followed[rank].pid for rank, one in where.items()
                if one.state == INSIDE and self.followed[rank].process.there() is not None}  # fmt: skip
        if self._server is not None:  # they look for theirs meanwhile
            self._server.ask_stacks([rank for rank, one in where.items() if one.state == INSIDE])
        found = stacks.ask(self._directory, mine)
        if self._server is not None:
            found |= self._server.stacks()
        for rank, frames in found.items():
            where[rank] = where[rank]._replace(stack=stacks.rendered(frames, self.cwd))
        return self.roll(now, where).hang((now - self._moved) / 1e9)

    # The end.

    def strangers(self) -> dict[str, list[int]]:
        """Ranks that note here on another host, by its name: their processes cannot be seen."""
        found = dict[str, list[int]]()
        for rank, one in sorted(self.followed.items()):
            if not one.timed and one.tail.about["boot"]:
                found.setdefault(str(one.tail.about["host"]), []).append(rank)
        return found

    def pids(self) -> list[int]:
        """Of the ranks of this host that are still there."""
        return [one.pid for one in self.followed.values() if one.process.there() is not None]

    def end(self, process: Launcher, patience_s: float = PATIENCE_S) -> int:
        """End the program, with all its processes that are followed. Returns the launcher's code."""
        code = end(process, patience_s, self.pids)
        if self._server is not None:
            self._server.end_ranks()
        return code

    def close(self) -> None:
        for one in self.followed.values():
            one.process.forget()
            one.tail.close()


def inside(standing: Standing) -> tuple[Noted, ...]:
    """The calls in which its threads are."""
    return tuple(stack[-1] for _, stack in sorted(standing.inside.items()) if stack)
