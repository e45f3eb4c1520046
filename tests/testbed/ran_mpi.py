"""Runs the programs of `random_mpi` on a model of MPI, and says what is true of each run.

`run(program, seed)` gives an `Outcome`: the run as a `Matched`, which is the truth that a matcher must find, and each
call as it went. Another seed is another speed of the ranks and of the network: wildcards may take other messages.

A group of a collective call holds its posts and its completions. A request that was cancelled is completed by its
`Wait`. A `Probe` for any source is in `unsure`: the calls that follow it depend on its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import numpy as np

from safepoint.matching.matched import ALIVE, COLLECTIVE, MARKS, MESSAGE, MESSAGES, NO_STEP, NONE, Matched, Site
from testbed.model_mpi import Action, Machine, Message, Receive, Went
from testbed.random_mpi import ANY, NULL, Program


class Outcome(NamedTuple):
    matched: Matched
    calls: list[list[Went]]  # of each rank; the last one may not have returned
    ended: bool  # all calls returned


def run(program: Program, seed: int = 0) -> Outcome:
    """One run of it."""
    machine = Machine(program, Random(seed))
    ranks = [machine.process(rank) for rank in range(len(program.calls))]
    stuck: set[int] = set()
    while True:
        flying = [channel for channel, messages in machine.flying.items() if messages]
        going = [rank for rank in range(len(ranks)) if rank not in stuck]
        if not flying and not going:
            break
        chosen = machine.random.randrange(len(flying) + len(going))
        machine.now += machine.random.randrange(1, 1000)
        if chosen < len(flying):
            machine.arrive(machine.flying[flying[chosen]].popleft())
            stuck.clear()
        elif next(ranks[rank := going[chosen - len(flying)]], False):
            stuck.clear()
        else:
            stuck.add(rank)
    return Outcome(matched(machine), machine.went, machine.ended == len(ranks))


def matched(machine: Machine) -> Matched:
    """What is true of a run."""
    begins = np.cumsum([0, *(len(actions) for actions in machine.actions)])

    def number(action: Action | None) -> int:
        return NONE if action is None else int(begins[action[0]]) + action[1]

    groups, never, rows = bound(machine, number)
    went = [(rank, machine.went[rank][call]) for rank, calls in enumerate(machine.actions) for call in calls]
    functions = sorted({call.name for calls in machine.program.calls for call in calls})
    return Matched(
        begins=begins.astype("i8"),
        enter=np.array([one.enter for _, one in went], "i8"),
        leave=np.array([one.leave for _, one in went], "i8"),
        site=np.array([one.call.site for _, one in went], "i8"),
        function=np.array([functions.index(one.call.name) for _, one in went], "i8"),
        record=np.array([call for calls in machine.actions for call in calls], "i8"),
        member=np.array([number(action) for _, actions in groups for action in actions], "i8"),
        group=np.array([group for group, (_, actions) in enumerate(groups) for _ in actions], "i8"),
        kind=np.array([kind for kind, _ in groups], "i8"),
        arcs=pairs((number(probe), number(message.sent)) for probe, message in machine.implied),
        requests=pairs((number(post), number(done)) for post, done in machine.requests),
        never=np.unique(np.array(never, "i8")),
        messages=np.array(rows, MESSAGES),
        marks=marks(machine),
        unsure=pairs(machine.unsure),
        alive=np.array(alive(machine), ALIVE),
        sites=[Site("", 0, ""), *(Site("program.py", line, "main") for line in range(1, 10))],
        functions=functions,
        names=[name_of(comm) for comm in range(len(machine.program.comms))],
        objects=[name_of(comm) for comm in range(len(machine.program.comms))],
        remarks=[],
    )


def bound(
    machine: Machine, number: Callable[[Action | None], int]
) -> tuple[list[tuple[int, list[Action]]], list[int], list[tuple[object, ...]]]:
    """Groups, the actions that no legal cut contains, and rows of messages."""
    groups: list[tuple[int, list[Action]]] = []
    never = [number((rank, went.action)) for rank, calls in enumerate(machine.went) for went in calls
             if not went.returned and went.action != NONE]  # fmt: skip
    rows = []
    for message in machine.messages:
        receive, group = message.receive, NONE
        if receive and receive.received:
            group = len(groups)
            groups.append((MESSAGE, [message.sent, receive.received]))
        else:
            never.append(number(message.sent))
        rows.append(row_of(message, receive, group, number))
    rows += [row_of(None, receive, NONE, number) for receive in machine.receives if receive.message is None]
    for meeting in (meeting for meetings in machine.meetings.values() for meeting in meetings):
        if len(meeting.members) > 1:
            groups.append((COLLECTIVE, meeting.actions))
            if len(meeting.complete) < len(meeting.members):
                never += map(number, meeting.actions)
    return groups, never, rows


def pairs(rows: Iterable[tuple[int, int]]) -> np.ndarray:
    return np.array(list(rows), "i8").reshape(-1, 2)


def name_of(comm: int) -> str:
    return f"communicator {comm}" if comm else "MPI_COMM_WORLD"


def row_of(
    message: Message | None, receive: Receive | None, group: int, number: Callable[[Action | None], int]
) -> tuple[object, ...]:
    """A row of MESSAGES."""
    of = message or receive
    dest = message.dest if message else receive.rank if receive else NONE
    assert of is not None
    return (
        number(message.sent if message else None),
        number(receive.posted if receive else None),
        number(receive.received if receive else None),
        group,
        message.source if message else of.source,
        dest,
        of.comm,
        of.tag,
        message.size if message else 0,
        bool(receive and receive.source == ANY),
        bool(receive and receive.tag == ANY),
    )


def marks(machine: Machine) -> np.ndarray:
    rows = []
    for rank, calls in enumerate(machine.went):
        gap = 0
        for went in calls:
            if went.call.name == "hide":
                rows.append((rank, gap, went.call.site, went.enter, went.leave, NO_STEP, True))
            gap += went.action != NONE
    return np.array(rows, MARKS)


def alive(machine: Machine) -> list[tuple[int, int, int, int]]:
    """Communicators that the program made; not its persistent requests."""
    rows = []
    for rank, calls in enumerate(machine.went):
        first: dict[int, int] = {}
        for went in calls:
            if went.call.new != NULL and went.returned:
                first[went.call.new] = went.action + 1
            elif went.call.name == "Comm_free":
                rows.append((rank, first.pop(went.call.comm), went.action, went.call.comm))
        rows += [(rank, begin, len(machine.actions[rank]), comm) for comm, begin in first.items()]
    return rows
