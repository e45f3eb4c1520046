"""Traces of programs that never ran: each rank's notes are written as the tracer writes them, call by call.

    trace = Noted(directory, 2)
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Recv", 20, peer=ANY, tag=5, got=(0, 5))
    matched = trace.matched()

Actions are named (rank, number among its actions) in what the functions at the end return.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.matching import match, reading
from safepoint.matching.matched import COLLECTIVE, MESSAGE, Matched
from safepoint.matching.matched import NONE as NO_ACTION
from safepoint.trace import record, roles
from safepoint.trace.known import ranges
from safepoint.trace.record import ANY_SOURCE as ANY
from safepoint.trace.record import HEADER, NONE, NOTE, PERSISTENT, RETURNED, WILD_SOURCE, WILD_TAG, WORLD, Notes

Action = tuple[int, int]
RECEIVES = "recv", "irecv", "recv_init", "probe", "iprobe", "mprobe", "improbe"
BOTH = "sendrecv", "isendrecv"


class Rank:
    """The notes of one rank. A call takes 5 ns, and one follows each 10 ns; on all ranks, in the order of writing."""

    def __init__(self, trace: Noted, rank: int, about: dict[str, Any]) -> None:
        self.trace, self.rank, self.count = trace, rank, 0
        self.notes = Notes(trace.directory, {**trace.about, "rank": rank, **about}, 1 << 40)
        self._sites: dict[str, int] = {}
        for name, members in (("MPI_COMM_WORLD", range(trace.size)), ("MPI_COMM_SELF", (rank,))):
            self.made("comm", members, -1, name=name)

    def site(self, line: int, file: str = "solver.py", function: str = "main") -> int:
        text = f"py\t{file}\t{line}\t{function}"
        if line and text not in self._sites:
            self._sites[text] = self.notes.sites.add(text)
        return self._sites[text] if line else 0

    def made(self, kind: str, members: Sequence[int], note: int, **more: Any) -> int:
        """The number of a communicator, window or file that this note has made; -1: none has."""
        line = {"kind": kind, "name": "", "parent": 0, "note": note, "members": ranges(members), **more}
        return self.notes.objects.add(json.dumps(line))

    def call(
        self, name: str, line: int = 0, *, comm: int = WORLD, peer: int = NONE, tag: int = NONE,
        got: tuple[int, int] | None = None, request: int = 0, flags: int = 0, size: int = 0, state: int = RETURNED,
        row: Sequence[int] = (), thread: int = 0, enter: int = 0, leave: int = 0, site: int = 0, result: int = 6,
    ) -> int:  # fmt: skip
        """Its number. `got`: what came; for a Sendrecv what is received. What a receive for a named source and tag got
        need not be said. `row`: the values of its row in `.more`. `result`: of a call that raised."""
        kind = roles.ROLES[name].kind if name in roles.ROLES else "ours"
        number = roles.NUMBERS[name] if name in roles.NUMBERS else {"hide": roles.HIDE, "mark": roles.MARK}[name]
        wild = (peer, tag) if kind in RECEIVES else got if kind in BOTH and got else (0, 0)
        flags |= (WILD_SOURCE if wild[0] == ANY else 0) | (WILD_TAG if wild[1] == record.ANY_TAG else 0)
        flags |= PERSISTENT if kind in ("send_init", "recv_init", "coll_init") else 0
        if kind in ("recv", "probe", "mprobe") and got is None and state == RETURNED:
            got = peer, tag
        self.trace.now += 10
        enter = enter or self.trace.now
        leave = (leave or enter + 5) if state == RETURNED else 0
        if (at := self.notes.advance()) >= self.notes.end:
            self.notes.grow(at)
        more = 0
        if row or kind in ("waitall", "waitany", "waitsome", "testall", "testany", "testsome"):
            of_row = {"start": record.STARTED, "startall": record.STARTED, "imrecv": record.MESSAGE}
            more = self.notes.more(at, of_row.get(kind, record.COMPLETED), row) if state == RETURNED else 0
        record.LAYOUT.pack_into(
            self.notes.map, at, enter, leave, site or self.site(line), number, flags, peer, tag, *(got or (NONE, NONE)),
            size, request, comm, more, thread, 255 if state != record.RAISED else result, state,
        )  # fmt: skip
        self.count += 1
        assert (at - HEADER) // NOTE == self.count - 1
        return self.count - 1

    def new_comm(self, name: str, line: int, members: Sequence[int], comm: int = WORLD, **more: Any) -> int:
        """The number of a communicator that this call makes."""
        return self.made("comm", members, self.call(name, line, comm=comm), parent=comm, **more)

    def die(self) -> None:
        """As SIGKILL does: its files stay, and are not open. An open one takes space even when it is removed."""
        notes = self.notes
        for file in (notes.calls, notes._more, notes.sites, notes.objects):
            os.close(file._descriptor)
        notes.map = notes.calls.map = notes._more.map = None


class Noted:
    """The trace of a program on so many ranks. `about`: of each rank by number what differs from the first."""

    def __init__(self, directory: Path, size: int, about: dict[int, dict[str, Any]] | None = None) -> None:
        self.directory, self.size, self.now = directory, size, 1_000_000
        directory.mkdir(exist_ok=True)
        functions = json.dumps(roles.functions({}))
        (directory / "functions-python.json").write_text(functions)
        self.about = {
            "size": size, "host": platform.node(), "boot": "b", "pid": 1, "argv": ["solver.py"], "tracer": "python",
            "mpi": "none", "functions": "functions-python.json", "cwd": "/",
        }  # fmt: skip
        self._ranks = [Rank(self, rank, (about or {}).get(rank, {})) for rank in range(size)]

    def __getitem__(self, rank: int) -> Rank:
        return self._ranks[rank]

    def close(self, *killed: int) -> None:
        """All ranks end; those that were killed leave their notes as they are."""
        for rank in self._ranks:
            if rank.rank not in killed:
                rank.notes.close("exit")
            else:
                rank.die()

    def read(self, *killed: int) -> reading.Trace:
        self.close(*killed)
        return reading.read(self.directory)

    def matched(self, *killed: int) -> Matched:
        self.close(*killed)
        return match.matched(self.directory)


def some(directory: Path) -> Noted:
    """Two ranks that use what a trace can hold."""
    trace = Noted(directory, 2)
    trace.now = 10**11  # long enough after the boot: by the clock of another node, too, it is after its boot
    for rank in range(2):
        mine, other = trace[rank], 1 - rank
        mine.call("Irecv", 10, peer=ANY, tag=5, request=1)
        mine.call("Isend", 11, peer=other, tag=5, request=2, size=8)
        mine.call("Waitall", 12, comm=0, row=(1, other, 5, 2, NONE, NONE))
        comm = mine.new_comm("Comm_dup", 13, [0, 1])
        mine.call("Send_init", 14, comm=comm, peer=other, tag=6, request=3)
        mine.call("Start", 15, comm=0, request=4, row=(3, 4))
        mine.call("Probe", 16, comm=comm, peer=other, tag=6)
        mine.call("Mprobe", 16, comm=comm, peer=other, tag=6, request=5)
        mine.call("Imrecv", 17, comm=comm, request=6, row=(5,))
        mine.call("Waitsome", 18, comm=0, row=(4, NONE, NONE, 6, other, 6))
        win = mine.made("win", [0, 1], mine.call("Win_create", 19), parent=1)
        mine.call("Put", 20, comm=win, peer=other)
        mine.call("Win_fence", 21, comm=win)
        mine.call("Ibarrier", 22, comm=comm, request=7)
        mine.call("Test", 23, comm=0, request=7, flags=record.FOUND)
        mine.call("hide", 24, comm=0, size=3)
        half = mine.new_comm("Intercomm_create", 25, [rank], comm=2, remote=str(other))
        mine.call("Comm_free", 26, comm=half)
    return trace


def action(matched: Matched, number: int) -> Action | None:
    if number == NO_ACTION:
        return None
    rank = int(np.searchsorted(matched.begins, number, "right")) - 1
    return rank, int(number - matched.begins[rank])


def groups(matched: Matched) -> list[list[Action | None]]:
    """The members of each, in order."""
    return [
        sorted(action(matched, member) for member in matched.member[matched.group == group])  # type: ignore[type-var]
        for group in range(len(matched.kind))
    ]


def pairs(matched: Matched, rows: Any) -> list[tuple[Action | None, ...]]:
    """Of arcs or requests."""
    return sorted((tuple(action(matched, one) for one in row) for row in rows), key=str)


def never(matched: Matched) -> list[Action | None]:
    return [action(matched, one) for one in matched.never]


def taken(matched: Matched) -> list[tuple[Action | None, Action | None, Action | None]]:
    """Of each message who sends it, who posts its receive, who completes that."""
    return [tuple(action(matched, row[name]) for name in ("sent", "posted", "received")) for row in matched.messages]  # type: ignore[misc]


def plain(found: Matched) -> dict[str, Any]:
    """All of it but numbers that have no meaning: those of groups, rows, sites, functions and communicators."""
    rows, kinds = found.messages, found.kind
    columns = ["sent", "posted", "received", "source", "dest", "tag", "wild_source", "wild_tag"]
    sizes = [int(row["bytes"]) if row["sent"] != NO_ACTION else 0 for row in rows]
    comms = found.alive[found.alive["name"] < len(found.objects)]  # the truth knows no persistent requests
    members: list[set[int]] = [set() for _ in kinds]
    for member, group in zip(found.member.tolist(), found.group.tolist(), strict=True):
        members[group].add(member)
    return {
        "begins": found.begins.tolist(),
        "calls": [
            (found.functions[function], found.sites[site].line, record)
            for function, site, record in zip(found.function, found.site, found.record, strict=True)
        ],
        "enter": (found.enter - found.enter.min(initial=1 << 40)).tolist(),
        "meetings": Counter(tuple(sorted(members[group])) for group in range(len(kinds)) if kinds[group] == COLLECTIVE),
        "requests": sorted(map(tuple, found.requests.tolist())),
        "marks": found.marks[["rank", "gap", "step", "hide"]].tolist(),
        "unsure": sorted(map(tuple, found.unsure.tolist())),
        "alive": sorted(map(tuple, comms[["rank", "first", "last"]].tolist())),
        "groups": Counter(tuple(sorted(members[group])) for group in range(len(kinds)) if kinds[group] == MESSAGE),
        "arcs": sorted(map(tuple, found.arcs.tolist())),
        "never": found.never.tolist(),
        "messages": Counter((*row, size) for row, size in zip(rows[columns].tolist(), sizes, strict=True)),
    }
