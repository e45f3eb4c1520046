"""Really runs programs of `random_mpi`, one after the other: `mpiexec -n RANKS python really_ran.py SEED SEED …`

Before each program and after the last one is a barrier at line `BETWEEN`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1]))

import safepoint
from testbed.random_mpi import ANY, BETWEEN, EVENTS, NULL, Call, program

ROOM = 64
COMPLETES = "Wait", "Test"
COLLECTIVE = "Barrier", "Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block", "Ibarrier", "Iallreduce"


def caller(line: int) -> Callable[..., Any]:
    """Calls what it is given from this line of a file `program.py`."""
    space: dict[str, Any] = {}
    exec(compile("\n" * (line - 1) + "def at(call, *words): return call(*words)", "program.py", "exec"), space)
    found: Callable[..., Any] = space["at"]
    return found


CALLERS = {line: caller(line) for line in (*range(1, 10), BETWEEN)}


class Run:
    """One program on this rank."""

    def __init__(self, comms: list[tuple[int, ...]]) -> None:
        self.members = comms
        self.comms: dict[int, Any] = {0: MPI.COMM_WORLD}
        self.held: dict[int, Any] = {}  # requests and messages
        self.buffers: list[Any] = []  # MPI may write to them, and read them

    def buffer(self, size: int = ROOM) -> Any:
        self.buffers.append(np.zeros(size, "i1"))
        return self.buffers[-1]

    def make(self, call: Call) -> None:
        at, name = CALLERS[call.site], call.name
        if name == "hide":
            at(safepoint.mark)
        elif name.startswith(COMPLETES):
            self.complete(at, name, [self.held[slot] for slot in call.slots])
        elif name in ("Start", "Cancel", "Request_free"):
            at(getattr(self.held[call.slots[0]], name.rpartition("_")[2].capitalize()))
        elif name == "Startall":
            at(MPI.Prequest.Startall, [self.held[call.slots[0]]])
        elif name in ("Mrecv", "Imrecv"):
            receive = getattr(self.held[call.slots[0]], "Recv" if name == "Mrecv" else "Irecv")
            self.hold(call, at(receive, self.buffer()))
        elif name.startswith("Comm_"):
            self.comm(at, call)
        else:
            self.hold(call, self.on_comm(at, call))

    def hold(self, call: Call, made: Any) -> None:
        if call.slots:
            self.held[call.slots[-1]] = made

    def complete(self, at: Callable[..., Any], name: str, requests: list[Any]) -> None:
        if name in ("Wait", "Test"):
            method, words = getattr(requests[0], name), []
        else:
            method, words = getattr(MPI.Request, name), [requests]
        while True:
            found = at(method, *words)
            if name.startswith("Wait") or found is True:
                return
            if found and (name == "Testsome" or (name == "Testany" and found[1])):
                return

    def comm(self, at: Callable[..., Any], call: Call) -> None:
        comm = self.comms[call.comm]
        if call.name == "Comm_free":
            at(comm.Free)
        elif call.name == "Comm_dup":
            self.comms[call.new] = at(comm.Dup)
        else:
            self.comms[call.new] = at(comm.Split, call.new, 0)

    def on_comm(self, at: Callable[..., Any], call: Call) -> Any:
        """What this call gives: a request, a message, or nothing that matters."""
        comm, name = self.comms[call.comm], call.name
        method = getattr(comm, name)
        peer, tag = real(call.peer), MPI.ANY_TAG if call.tag == ANY else call.tag
        if name in COLLECTIVE or call.root != NULL:
            return at(method, *self.collective(comm, call))
        if "probe" in name.lower():
            while not (found := at(method, peer, tag)):
                assert name.startswith("I")
            return found
        if name == "Sendrecv":
            words = self.buffer(call.size), peer, tag, self.buffer(), real(call.peer2), call.tag2
            return at(method, *words)
        return at(method, self.buffer(ROOM if "ecv" in name else call.size), peer, tag)

    def collective(self, comm: Any, call: Call) -> list[Any]:
        name, one, many = call.name.removeprefix("I").capitalize(), self.buffer(1), self.buffer(comm.size)
        words = {
            "Barrier": [], "Allreduce": [one, self.buffer(1)], "Allgather": [one, many],
            "Alltoall": [many, self.buffer(comm.size)], "Reduce_scatter_block": [many, one], "Bcast": [one],
            "Scatter": [many, one], "Gather": [one, many], "Reduce": [one, self.buffer(1), MPI.SUM],
        }[name]  # fmt: skip
        return words + ([call.root] if call.root != NULL else [])


def real(peer: int) -> int:
    return {ANY: MPI.ANY_SOURCE, NULL: MPI.PROC_NULL}.get(peer, peer)


def main(seeds: list[int]) -> None:
    world = MPI.COMM_WORLD
    MPI.Attach_buffer(bytearray(1 << 20))
    for seed in seeds:
        CALLERS[BETWEEN](world.Barrier)
        written = program(seed, certain=True, events=EVENTS, ranks=world.size)
        run = Run(written.comms)
        for call in written.calls[world.rank]:
            run.make(call)
    CALLERS[BETWEEN](world.Barrier)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
