"""Who waits for whom: what is called a deadlock is one, and the roll call says what is missing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any as Anything

import pytest
from testbed import scripted
from testbed.noted import Noted

from safepoint.check.rollcall import COMPUTES, DIED, ENDED, INSIDE, Hang, Roll, Where
from safepoint.check.standing import NEEDED, Standing
from safepoint.check.tail import Tail
from safepoint.check.waiting import TRUE, All, Any, Condition, Graph, holds, stuck
from safepoint.trace import roles
from safepoint.trace.record import (
    AFTER,
    ANY_TAG,
    BEFORE,
    CANCELLED,
    ENTERED,
    FOUND,
    HEADER,
    NONE,
    NOTE,
    PROC_NULL,
    RAISED,
    RETURNED,
)
from safepoint.trace.record import ANY_SOURCE as ANY

SECOND = 10**9


def standings(trace: Noted) -> dict[int, Standing]:
    found = {}
    for rank in range(trace.size):
        tail = Tail(trace.directory, rank)
        found[rank] = Standing(rank, tail.named)
        while notes := tail.read():
            for note in notes:
                found[rank].feed(note)
        tail.close()
    return found


def rolled(trace: Noted, ended: Sequence[int] = (), state: dict[int, str] | None = None) -> Roll:
    """All that are inside of a call hang, the others compute."""
    where, all_ = dict[int, Where](), standings(trace)
    for rank, standing in all_.items():
        calls = tuple(stack[-1] for stack in standing.inside.values() if stack)
        how = (state or {}).get(rank) or (ENDED if rank in ended else INSIDE if calls else COMPUTES)
        where[rank] = Where(how, calls, trace.now)
    return Roll(Graph(all_, dict.fromkeys(ended, "exit"), trace.size), where, trace.now + 31 * SECOND)


def hang(trace: Noted, *ended: int, **words: Anything) -> Hang:
    return rolled(trace, ended, **words).hang(30)


def lines(found: Hang) -> list[str]:
    return [line.strip() for line in found.text.splitlines()[1:]]


def row(trace: Noted, rank: int, kind: int, *values: int) -> None:
    """Of the call that the rank makes next."""
    notes = trace[rank].notes
    notes.more(HEADER + NOTE * trace[rank].count, kind, values)


# The fixpoint.


def drawn(draw: random.Random, ranks: int, depth: int = 2) -> Condition:
    if not depth or draw.random() < 0.4:
        return draw.randrange(ranks)
    return draw.choice((All, Any))(tuple(drawn(draw, ranks, depth - 1) for _ in range(draw.randint(0, 3))))


def by_force(wants: dict[int, Condition], ended: set[int], ranks: int) -> set[int]:
    """The largest set of ranks none of which can go on, whatever all others do that have not ended."""
    found = set[int]()
    for count in range(len(wants) + 1):
        for chosen in itertools.combinations(wants, count):
            others = set(range(ranks)) - set(chosen) - ended
            if not any(holds(wants[rank], others) for rank in chosen):
                found |= set(chosen)
    return found


def test_the_ranks_that_are_stuck_are_those_that_brute_force_finds() -> None:
    sizes = set()
    for seed in range(3000):
        draw, ranks = random.Random(seed), 5
        ended = {rank for rank in range(ranks) if draw.random() < 0.15}
        wants = {r: drawn(draw, ranks) for r in range(ranks) if r not in ended and draw.random() < 0.8}
        found = stuck(wants, ended, range(ranks))
        assert found == by_force(wants, ended, ranks), f"seed {seed}: {wants}, ended {ended}"
        sizes.add(len(found))
    assert sizes == {0, 1, 2, 3, 4, 5}


# What each call waits for.


def test_two_receives_that_wait_for_each_other_are_a_deadlock_and_the_messages_are_named(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 4)
    for rank in (0, 1):
        trace[rank].call("Barrier", 88, state=ENTERED)
    trace[2].call("Recv", 52, peer=3, tag=5, state=ENTERED)
    trace[3].call("Barrier", 88, state=ENTERED)
    found = hang(trace)
    assert found.deadlock and found.stuck == found.ranks == (0, 1, 2, 3)
    head, *rest = found.text.splitlines()
    assert head.startswith("[hang] no progress for 30 s, 4 of 4 ranks are inside MPI. Roll call at ")
    assert rest == [
        "  ranks 0 1 3  Barrier                solver.py:88  since 31 s",
        "  rank  2      Recv(source=3, tag=5)  solver.py:52  since 31 s",
        "  rank 2 waits for rank 3, rank 3 for rank 2: deadlock. Nobody has sent (3 → 2, tag 5). "
        "Rank 2 has not come to Barrier",
        "  ranks 0 1 wait for one of these ranks",
    ]


WORDS = {"any": ANY, "any_tag": ANY_TAG, "null": PROC_NULL, "none": NONE, "cancelled": CANCELLED, "found": FOUND}


def played(trace: Noted, script: str) -> Noted:
    """`0 Recv 1:5 @3 …` is rank 0 inside of Recv(source=1, tag=5) at line 3; without … the call has returned."""

    for rank, name, *words in (part.split() for part in script.split(" | ")):
        how: dict[str, Anything] = {"line": 4, "state": ENTERED if words[-1:] == ["…"] else RETURNED}
        for word in words:
            key, _, value = word.rpartition("=")
            if word[0] == "@":
                how["line"] = int(word[1:])
            elif word != "…":
                both = tuple(WORDS[one] if one in WORDS else int(one) for one in value.split(":"))
                how |= {key: both if ":" in value else both[0]} if key else {"peer": both[0], "tag": both[1]}
        trace[int(rank)].call(name, **how)
    return trace


STUCK: dict[str, tuple[int, str, tuple[int, ...], list[str]]] = {
    "a cycle of three is spelled out": (3, "0 Recv 1:0 … | 1 Recv 2:1 … | 2 Recv 0:2 …", (0, 1, 2), [
        "rank 0 waits for rank 1, rank 1 for rank 2, rank 2 for rank 0: deadlock. Nobody has sent (1 → 0, tag 0). "
        "Nobody has sent (2 → 1, tag 1). Nobody has sent (0 → 2, tag 2)"]),
    "who waits for one that computes is in no deadlock": (
        3, "0 Recv 1:5 … | 1 Recv 2:5 … | 2 Send null:5 @9", (),
        ["2 of 3 ranks are inside MPI", "rank  2  computes, after Send   solver.py:9  since 31 s"]),
    "a message that was sent releases its receive even if it has not come": (
        2, "1 Send 0:5 | 1 Recv 0:6 … | 0 Recv 1:5 …", (), []),
    "a message that was received releases no other receive": (
        2, "1 Send 0:5 | 1 Recv 0:6 … | 0 Recv 1:5 | 0 Recv any:any_tag …", (0, 1), []),
    "what was sent with another tag is said": (2, "1 Send 0:7 | 1 Recv 0:6 … | 0 Recv 1:5 …", (0, 1), [
        "Nobody has sent (1 → 0, tag 5); what rank 1 has sent, and nobody has received, has tag 7"]),
    "a rank that is none is told without the number that stands for it": (
        2, "0 Send none:7 … | 1 Recv 0:7 …", (), ["Send(dest=no rank, tag=7)"]),
    "a receive from any source waits for one of the members": (
        3, "0 Recv any:5 … | 1 Recv 0:5 … | 2 Recv 1:5 …", (0, 1, 2),
        ["rank 0 waits for any of ranks 1 2, rank 1 for rank 0: deadlock", "Nobody has sent (any → 0, tag 5)"]),
    "and one of them is free": (3, "0 Recv any:5 … | 1 Recv 0:5 …", (), []),
    "two sends to each other are a deadlock unless a receive is posted": (
        4, "0 Send 1:5 … | 1 Send 0:5 … | 2 Send 3:5 … | 3 Irecv 2:5 request=1 | 3 Send 2:5 …", (0, 1),
        ["Nobody has received (0 → 1, tag 5)"]),
    "a second message is not taken by the receive for the first": (
        2, "0 Irecv 1:5 request=1 | 1 Send 0:5 | 1 Ssend 0:5 … | 0 Barrier …", (0, 1), []),
    "a wait waits for the peer of its request": (
        2, "0 Irecv 1:5 @3 request=1 | 0 Isend 1:5 request=2 | 0 Wait @5 comm=0 request=1 … | 1 Recv 0:9 …", (0, 1),
        ["rank  0  Wait(Irecv(source=1, tag=5) solver.py:3)  solver.py:5  since 31 s"]),
    "a persistent receive waits for the peer when it was started": (
        2, "0 Recv_init 1:5 request=1 | 0 Start comm=0 request=2 row=1:2 | 0 Wait comm=0 request=2 … | 1 Recv 0:9 …",
        (0, 1), []),
    "and for nobody when it was not": (2, "0 Recv_init 1:5 request=1 | 0 Wait comm=0 … | 1 Recv 0:9 …", (), []),
    "a sendrecv waits for both of its peers": (
        3, "0 Sendrecv 1:5 got=2:6 … | 1 Recv 0:5 … | 2 Recv 0:7 …", (0, 2),
        ["Sendrecv(dest=1, tag=5, source=2, tag=6)"]),
    "ranks in different collective calls at once are a deadlock": (
        2, "0 Barrier … | 1 Allreduce …", (0, 1), ["Rank 1 is in Allreduce where rank 0 is in Barrier"]),
    "a broadcast needs not all of its members: rank 1 may wait for rank 2 alone, which computes": (
        3, "1 Bcast peer=2 … | 0 Recv 1:5 …", (), []),
    "who waits for one that is in Finalize is told so": (
        2, "0 Finalize comm=0 … | 1 Recv 0:9 …", (1,), ["rank 1 waits for rank 0, which is in Finalize"]),
    "a cancelled send and a request that was freed are open no more": (
        2, "0 Isend 1:5 request=1 | 0 Wait comm=0 request=1 got=cancelled:none | 0 Recv 1:6 … | "
        "1 Irecv 0:9 request=1 | 1 Request_free comm=0 request=1 | 1 Recv 0:5 …", (0, 1), []),
    "a test that found its message has received it": (
        2, "1 Send 0:5 | 0 Irecv 1:5 request=1 | 0 Test comm=0 request=1 got=1:5 flags=found | 0 Recv 1:5 … | "
        "1 Recv 0:5 …", (0, 1), []),
    "a rank that receives from itself alone is stuck": (1, "0 Ssend 0:5 comm=2 …", (0,), []),
}  # fmt: skip


@pytest.mark.parametrize("case", STUCK)
def test_who_can_only_be_released_by_those_who_wait_is_stuck(case: str, tmp_path: Path) -> None:
    size, script, expected, texts = STUCK[case]
    found = hang(played(Noted(tmp_path, size), script))
    assert (found.stuck, found.deadlock) == (expected, bool(expected))
    assert all(text in found.text for text in texts), found.text


def test_a_wait_that_names_no_request_is_known_by_its_handle(tmp_path: Path) -> None:
    """As in C. Rank 2 computes."""
    for name, handle, deadlock in (("a", 11, True), ("b", 12, False), ("c", 0, False)):
        trace = Noted(tmp_path / name, 3)
        for number in (1, 2):
            row(trace, 0, AFTER, 7, 1, 10 + number)
            trace[0].call("Irecv", number, peer=number, tag=5, request=number)
        if handle:
            row(trace, 0, BEFORE, 1, 1, handle)
        trace[0].call("Wait", 5, comm=0, state=ENTERED)
        trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
        assert hang(trace).deadlock is deadlock, name


def waits(trace: Noted, name: str, *handles: int) -> None:
    """Rank 0 waits for some of: 11, from rank 1; 12, from rank 2; 13, what was sent to rank 2."""
    for number, (function, peer) in enumerate((("Irecv", 1), ("Irecv", 2), ("Isend", 2)), 1):
        row(trace, 0, AFTER, 7, 1, 10 + number)
        trace[0].call(function, number, peer=peer, tag=5, request=number)
    row(trace, 0, BEFORE, 2, len(handles), *handles)
    trace[0].call(name, 9, comm=0, state=ENTERED)


@pytest.mark.parametrize(
    "name, handles, deadlock",
    [("Waitall", (11, 12), True), ("Waitall", (12, 11, 13), True), ("Waitall", (12, 13), False),
     ("Waitany", (11,), True), ("Waitany", (11, 12), False), ("Waitsome", (12, 11), False), ("Waitall", (11, 77), True),
     ("Waitany", (11, 77), False), ("Waitall", (77,), False), ("Waitall", (), False)],
)  # fmt: skip
def test_a_wait_for_several_waits_for_all_or_for_one(
    tmp_path: Path, name: str, handles: tuple[int, ...], deadlock: bool
) -> None:
    """Rank 1 waits for rank 0, rank 2 computes. Of handle 77 nothing is known."""
    trace = Noted(tmp_path / "t", 3)
    waits(trace, name, *handles)
    trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
    assert hang(trace).stuck == ((0, 1) if deadlock else ())


def test_a_wait_for_several_of_which_nobody_says_for_which_needs_that_none_can_come(tmp_path: Path) -> None:
    """Without the rows of check mode."""
    for name, deadlock in (("a", False), ("b", True)):
        trace = Noted(tmp_path / name, 3)
        trace[0].call("Irecv", 3, peer=1, tag=5, request=1)
        trace[0].call("Irecv", 3, peer=2, tag=5, request=2)
        trace[0].call("Waitall", 5, comm=0, state=ENTERED)
        trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
        if deadlock:
            trace[2].call("Recv", 6, peer=0, tag=9, state=ENTERED)
        assert hang(trace).deadlock is deadlock


def test_a_small_message_that_may_have_gone_is_no_reason_while_a_receive_is_open(tmp_path: Path) -> None:
    """Rank 0 waits for rank 2, which computes; that rank 1 has not received yet may not matter."""
    trace = Noted(tmp_path / "t", 3)
    row(trace, 0, AFTER, 7, 1, 11)
    trace[0].call("Isend", 1, peer=1, tag=5, request=1)
    row(trace, 0, AFTER, 7, 1, 12)
    trace[0].call("Irecv", 1, peer=2, tag=5, request=2)
    row(trace, 0, BEFORE, 2, 2, 11, 12)
    trace[0].call("Waitall", 2, comm=0, state=ENTERED)
    trace[1].call("Recv", 3, peer=0, tag=77, state=ENTERED)
    assert not hang(trace).deadlock


def posted(trace: Noted, *calls: tuple[str, int, int]) -> None:
    """Rank 0 waits for all of these: function, peer, tag."""
    for number, (function, peer, tag) in enumerate(calls, 1):
        row(trace, 0, AFTER, 7, 1, 10 + number)
        trace[0].call(function, number, peer=peer, tag=tag, request=number)
    row(trace, 0, BEFORE, 2, len(calls), *range(11, 11 + len(calls)))
    trace[0].call("Waitall", 9, comm=0, state=ENTERED)


def test_of_several_messages_that_are_sent_nobody_knows_which_is_not_complete(tmp_path: Path) -> None:
    """Rank 2 computes."""
    trace = Noted(tmp_path / "t", 3)
    posted(trace, ("Isend", 1, 5), ("Isend", 2, 5))
    trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
    assert not hang(trace).deadlock


def test_a_message_that_is_sent_is_waited_for_when_all_receives_have_theirs(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2)
    trace[1].call("Send", 3, peer=0, tag=7)
    posted(trace, ("Irecv", 1, 7), ("Issend", 1, 5))
    trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
    assert hang(trace).stuck == (0, 1)


@pytest.mark.parametrize("sent", [1, 2])
def test_each_of_two_receives_needs_a_message(tmp_path: Path, sent: int) -> None:
    trace = Noted(tmp_path / "t", 2)
    posted(trace, ("Irecv", 1, 7), ("Irecv", 1, 7))
    for _ in range(sent):
        trace[1].call("Send", 3, peer=0, tag=7)
    trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
    assert hang(trace).deadlock is (sent == 1)


def test_requests_that_mpi_passes_over_are_not_waited_for(tmp_path: Path) -> None:
    """One that is none, and a persistent one that was not started."""
    trace = Noted(tmp_path / "t", 2)
    (trace.directory / "rank-00000.constants").write_text('{"MPI_REQUEST_NULL": 99}')
    row(trace, 0, AFTER, 7, 1, 11)
    trace[0].call("Irecv", 1, peer=1, tag=5, request=1)
    row(trace, 0, AFTER, 7, 1, 12)
    trace[0].call("Recv_init", 2, peer=1, tag=6, request=2)
    row(trace, 0, BEFORE, 2, 3, 99, 11, 12)
    trace[0].call("Waitany", 9, comm=0, state=ENTERED)
    trace[1].call("Recv", 6, peer=0, tag=9, state=ENTERED)
    assert hang(trace).deadlock


def test_who_has_raised_has_not_come(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    trace[0].call("Barrier", 3, state=RAISED)
    trace[0].call("Barrier", 4)
    assert standings(trace)[0].came["world"] == 1


def test_a_collective_call_waits_for_the_members_that_have_not_come_to_it(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 3)
    comms = [trace[rank].new_comm("Comm_split", 2, [0, 1] if rank < 2 else [2]) for rank in range(3)]
    trace[0].call("Allreduce", 3, comm=comms[0])
    trace[1].call("Allreduce", 3, comm=comms[1])
    trace[0].call("Allreduce", 4, comm=comms[0], state=ENTERED)
    trace[1].call("Barrier", 5, state=ENTERED)
    trace[2].call("Barrier", 5, state=ENTERED)
    found = hang(trace)
    assert found.stuck == (0, 1, 2)
    assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock. Rank 1 has not come to Allreduce" in found.text
    assert "Allreduce(comm of 0-1)" in found.text


def test_who_waits_for_one_that_has_ended_or_died_is_told_so(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 3)
    trace[1].call("Recv", 4, peer=0, tag=9, state=ENTERED)
    trace[2].call("Recv", 4, peer=1, tag=9, state=ENTERED)
    found = hang(trace, 0)
    assert found.stuck == (1, 2) and "rank 1 waits for rank 0, which has ended: none of them can go on" in found.text
    assert "which died" in hang(trace, 0, state={0: DIED}).text


def test_between_two_groups_a_rank_is_one_of_the_other_group(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2)
    for rank in range(2):
        half = trace[rank].new_comm("Intercomm_create", 3, [rank], comm=2, remote=str(1 - rank))
        trace[rank].call("Recv", 4, comm=half, peer=0, tag=5, state=ENTERED)
    assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock" in hang(trace).text


def test_who_waits_in_hide_and_who_never_came_is_said_with_the_last_hide_it_reached(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 4)
    for rank in range(3):
        trace[rank].call("hide", 30, comm=0, size=10)
    for rank in range(2):
        trace[rank].call("hide", 30, comm=0, size=20, state=ENTERED)
    trace[2].call("Recv", 40, peer=3, tag=1, state=ENTERED)
    trace[3].call("Recv", 50, peer=0, tag=1, state=ENTERED)
    found = hang(trace)
    assert found.deadlock and lines(found)[-3:] == [
        "ranks 0 1 wait in hide, number 2",
        "rank 2 has not come: the last hide that it reached was number 1, step 10, solver.py:30, 31 s ago",
        "rank 3 has never come to hide",
    ]


def test_calls_with_processes_outside_of_the_world_are_no_reason(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    comm = trace[0].new_comm("Comm_dup", 3, [0, -1])
    trace[0].call("Recv", 4, comm=comm, peer=1, tag=5, state=ENTERED)
    assert not hang(trace).deadlock


def test_all_functions_that_can_block_are_among_those_that_must_be_noted() -> None:
    assert {"Recv", "Isend", "Waitall", "Testany", "Barrier", "Ibarrier", "Comm_split", "Win_fence", "hide", "Finalize",
            "Send_init", "Start", "Mprobe", "Improbe", "Intercomm_create", "Request_free"} <= NEEDED  # fmt: skip
    assert not {"Type_commit", "Comm_rank", "Iprobe"} & NEEDED and NEEDED - {"hide"} <= set(roles.ROLES)


def test_true_is_the_condition_that_always_holds() -> None:
    assert holds(TRUE, ()) and not holds(Any(()), ())


@pytest.mark.parametrize(
    "seeds", [range(80), pytest.param(range(80, 480), marks=pytest.mark.proof)], ids=["few", "more"]
)
def test_what_is_called_a_deadlock_in_a_random_program_is_one_in_each_of_its_further_runs(
    tmp_path: Path, seeds: range
) -> None:
    """And where nobody can do a step any more, all that are left are called so. `scripted` decides by itself, from the
    rules of MPI, which steps there are."""
    stopped = found = whole = 0
    for seed in seeds:
        draw = random.Random(seed)
        trace = Noted(tmp_path / f"t{seed}", 3)
        run = scripted.Run(draw, 3, trace)
        run.some(draw.randint(5, 60))
        run.settle()
        roll = rolled(trace, run.ended())
        for again in range(8):
            assert not roll.stuck & run.further(random.Random(again)), f"seed {seed}, {roll.hang(30).text}"
        found += bool(roll.stuck)
        if not run.steps() and len(run.ended()) < 3:
            stopped += 1
            whole += roll.stuck == set(range(3)) - set(run.ended())
            roll.hang(30)
        trace.close(0, 1, 2)
    assert min(stopped, found) > len(seeds) / 4, (stopped, found)
    assert whole >= 0.97 * stopped, (whole, stopped)
