"""The notes of the runs of `ran_mpi`, as a tracer would have written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safepoint.matching.matched import NO_STEP
from safepoint.trace import record
from safepoint.trace.record import CANCELLED, ENTERED, FOUND, PROC_NULL, RETURNED
from testbed import noted
from testbed.model_mpi import Went
from testbed.noted import Noted
from testbed.ran_mpi import Outcome
from testbed.random_mpi import ANY, NULL, Call, Program


class Writer:
    """Writes down how the calls of one rank went."""

    def __init__(self, rank: noted.Rank, comms: list[tuple[int, ...]]) -> None:
        self.rank, self.members = rank, comms
        self.comms = {0: 1}  # number of each communicator here
        self.last = 0  # request
        self.slots: dict[int, tuple[int, Call]] = {}  # the number of what each holds, and the call that made it
        self.handles: dict[int, int] = {}
        self.cancelled: set[int] = set()

    def number(self) -> int:
        self.last += 1
        return self.last

    def write(self, went: Went) -> None:
        call, name = went.call, went.call.name
        how: dict[str, Any] = {"comm": self.comms.get(call.comm, 1), "size": call.size}
        how |= {"enter": went.enter + 1, "leave": went.leave + 1, "state": RETURNED if went.returned else ENTERED}
        if name.startswith(("Wait", "Test")):
            how |= self.completion(went)
        elif name.startswith("Start"):
            how |= self.start(call)
        elif name == "hide":
            how |= {"comm": 0, "size": NO_STEP % 2**64}
        elif name in ("Cancel", "Request_free"):
            how |= {"comm": 0, "request": self.slots[call.slots[0]][0]}
            if name == "Cancel":
                self.cancelled.add(call.slots[0])
        else:
            how |= self.other(went)
        note = self.rank.call(name, call.site, site=self.rank.site(call.site, "program.py"), **how)
        if call.new != NULL and went.returned:
            self.comms[call.new] = self.rank.made("comm", self.members[call.new], note)

    def other(self, went: Went) -> dict[str, Any]:
        call, name = went.call, went.call.name
        found: dict[str, Any] = {"peer": call.peer, "tag": call.tag}
        if went.got:
            found["got"] = went.got[0]
        if name == "Sendrecv" and not went.got:
            found["got"] = call.peer2, call.tag2
        if name in ("Recv", "Probe") and call.peer == NULL:
            found["got"] = PROC_NULL, record.NONE
        if "probe" in name.lower():
            found["flags"] = FOUND if went.found else 0
        if name in ("Mprobe", "Improbe") and went.found:
            found["request"] = self.open(call)
        elif name == "Mrecv":
            found |= {"request": self.slots[call.slots[0]][0], "peer": record.NONE, "tag": record.NONE}
        elif name == "Imrecv":
            found |= {"row": [self.slots[call.slots[0]][0]], "peer": record.NONE, "tag": record.NONE}
            found["request"] = self.open(call)
        elif name.endswith("_init"):
            found["request"] = self.handles[call.slots[0]] = self.open(call)
        elif name in ("Isend", "Ibsend", "Issend", "Irecv", "Ibarrier", "Iallreduce"):
            found["request"] = self.open(call)
        if call.peer == ANY and "ecv" not in name and "probe" not in name.lower():  # a collective call
            found |= {"peer": call.root if call.root != NULL else record.NONE, "tag": record.NONE}
        return found

    def open(self, call: Call) -> int:
        number = self.number()
        self.slots[call.slots[-1]] = number, call
        return number

    def start(self, call: Call) -> dict[str, Any]:
        (slot,) = call.slots
        number = self.number()
        self.slots[slot] = number, self.slots[slot][1]
        return {"comm": 0, "request": number if call.name == "Start" else 0, "row": [self.handles[slot], number]}

    def completion(self, went: Went) -> dict[str, Any]:
        call, statuses, row = went.call, list(went.got), list[int]()
        for slot in went.done:
            number, of = self.slots[slot]
            receives = "recv" in of.name.lower() and of.peer != NULL
            came = (record.NONE, record.NONE)
            if slot in self.cancelled:
                came = (CANCELLED, record.NONE)
            elif receives:
                came = statuses.pop(0)
            row += [number, *came]
        found: dict[str, Any] = {"comm": 0, "flags": FOUND if went.done and call.name.startswith("Test") else 0}
        if call.name not in ("Wait", "Test"):
            return found | {"row": row}
        if row:
            found |= {"request": row[0], "got": (row[1], row[2])}
        elif call.name == "Wait" and not went.returned:
            found["request"] = self.slots[call.slots[0]][0]
        return found


def written_down(directory: Path, written: Program, outcome: Outcome) -> Noted:
    """The trace of this run, still open."""
    trace = Noted(directory, len(written.calls))
    for rank, calls in enumerate(outcome.calls):
        writer = Writer(trace[rank], written.comms)
        for went in calls:
            writer.write(went)
    return trace


def killed(outcome: Outcome) -> list[int]:
    """The ranks whose last call did not return."""
    return [rank for rank, calls in enumerate(outcome.calls) if calls and not calls[-1].returned]
