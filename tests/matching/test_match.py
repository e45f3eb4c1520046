"""Which calls belong together, rule by rule, in traces that are written call by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.noted import Noted, groups, never, pairs, taken

from safepoint.matching.matched import COLLECTIVE, MESSAGE, NO_STEP
from safepoint.matching.reading import TraceError
from safepoint.places.graph import order
from safepoint.trace.record import (
    ANY_SOURCE,
    ANY_TAG,
    CANCELLED,
    ENTERED,
    FOUND,
    NONE,
    PARTIAL,
    PERSISTENT,
    PROC_NULL,
    RAISED,
)

ANY = ANY_SOURCE
NOTHING: dict[str, Any] = {"comm": 0}  # of a call on requests


@pytest.fixture
def trace(tmp_path: Path) -> Noted:
    return Noted(tmp_path / "t", 2)


@pytest.fixture
def three(tmp_path: Path) -> Noted:
    return Noted(tmp_path / "t", 3)


def named(matched: Any, column: str) -> list[str]:
    return [matched.names[row] for row in matched.alive[column]]


# Messages.


def test_messages_of_a_pair_with_one_tag_are_received_in_the_order_of_sending(trace: Noted) -> None:
    for tag in (5, 6, 5):
        trace[0].call("Send", 10, peer=1, tag=tag, size=8 * tag)
    for tag in (5, 5, 6):
        trace[1].call("Recv", 20, peer=0, tag=tag)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 0), (1, 0)), ((0, 1), (1, 2), (1, 2)), ((0, 2), (1, 1), (1, 1))]
    assert groups(matched) == [[(0, 0), (1, 0)], [(0, 1), (1, 2)], [(0, 2), (1, 1)]]
    assert matched.kind.tolist() == [MESSAGE] * 3
    assert matched.messages[["source", "dest", "comm", "tag", "bytes"]].tolist() == [
        (0, 1, 0, 5, 40), (0, 1, 0, 6, 48), (0, 1, 0, 5, 40),
    ]  # fmt: skip
    assert (matched.objects[0], never(matched), matched.remarks) == ("MPI_COMM_WORLD", [], [])


def test_a_message_goes_to_the_receive_posted_first_and_happens_when_that_is_completed(trace: Noted) -> None:
    for _ in range(2):
        trace[0].call("Send", 10, peer=1, tag=5)
    for request in (1, 2):
        trace[1].call("Irecv", 20, peer=0, tag=5, request=request)
    trace[1].call("Wait", 21, request=2, got=(0, 5), **NOTHING)
    trace[1].call("Wait", 22, request=1, got=(0, 5), **NOTHING)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 0), (1, 3)), ((0, 1), (1, 1), (1, 2))]
    assert pairs(matched, matched.requests) == [((1, 0), (1, 3)), ((1, 1), (1, 2))]


def test_a_wildcard_takes_the_source_and_tag_of_its_status(three: Noted) -> None:
    three[0].call("Send", 10, peer=2, tag=5)
    three[1].call("Send", 11, peer=2, tag=6)
    three[2].call("Recv", 20, peer=ANY, tag=ANY_TAG, got=(1, 6))
    three[2].call("Irecv", 21, peer=ANY, tag=5, request=1)
    three[2].call("Wait", 22, request=1, got=(0, 5), **NOTHING)
    matched = three.matched()
    assert taken(matched) == [((0, 0), (2, 1), (2, 2)), ((1, 0), (2, 0), (2, 0))]
    assert matched.messages[["wild_source", "wild_tag"]].tolist() == [(True, False), (True, True)]


def test_an_open_wildcard_leaves_the_next_message_to_a_later_receive(trace: Noted) -> None:
    for _ in range(2):
        trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Irecv", 20, peer=ANY, tag=5, request=1)
    trace[1].call("Recv", 21, peer=0, tag=5)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 0), None), ((0, 1), (1, 1), (1, 1))]
    assert (groups(matched), never(matched)) == ([[(0, 1), (1, 1)]], [(0, 0)])
    assert matched.remarks[0] == (
        "rank 0 → 1, tag 5, MPI_COMM_WORLD: sent by Send at solver.py:10, taken by Irecv at solver.py:20, which is "
        "never completed"
    )


def test_what_an_open_wildcard_may_have_taken_is_never_legal(three: Noted) -> None:
    """Whichever of the first two it took, a second one is received, and which one is not known."""
    for rank in range(2):
        for _ in range(3):
            three[rank].call("Send", 10, peer=2, tag=5)
    for rank in range(2):
        three[2].call("Recv", 20, peer=rank, tag=5)
    three[2].call("Irecv", 21, peer=ANY, tag=5, request=1)
    for rank in range(2):
        three[2].call("Recv", 22, peer=rank, tag=5)
    matched = three.matched()
    assert never(matched) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert order(matched, "message").least(2, 2) is not None
    assert order(matched, "message").least(2, 3) is not None
    assert order(matched, "message").least(2, 4) is None
    assert matched.remarks[-3:-1] == [
        f"rank {rank} → 2, tag 5, MPI_COMM_WORLD: sent by Send at solver.py:10: one that never ended may have taken it "
        "instead" for rank in range(2)
    ]  # fmt: skip


def test_an_open_wildcard_takes_no_message_without_which_another_receive_would_have_none(three: Noted) -> None:
    for rank in range(2):
        three[rank].call("Send", 10, peer=2, tag=5)
    three[0].call("Send", 11, peer=2, tag=5)
    three[2].call("Irecv", 20, peer=ANY, tag=5, request=1)
    for rank in range(2):
        three[2].call("Recv", 21, peer=rank, tag=5)
    matched = three.matched()
    assert taken(matched) == [((0, 0), (2, 0), None), ((0, 1), (2, 1), (2, 1)), ((1, 0), (2, 2), (2, 2))]
    assert never(matched) == [(0, 0)]


def test_an_open_receive_of_any_tag_may_have_taken_one_that_others_seem_to_take(trace: Noted) -> None:
    """It was posted first, so it took the first one; the second 5 is received, and the 6 is not."""
    for tag in (5, 6, 5):
        trace[0].call("Send", 10, peer=1, tag=tag)
    trace[1].call("Irecv", 20, peer=0, tag=ANY_TAG, request=1)
    trace[1].call("Recv", 21, peer=0, tag=5)
    assert order(trace.matched(), "message").least(1, 2) is None


@pytest.mark.parametrize("name", ["Cancel", "Request_free"])
def test_what_was_cancelled_or_not_is_never_legal_with_what_it_may_have_taken(trace: Noted, name: str) -> None:
    """A receive that is freed after Cancel says nothing, nor does one that ends with its program."""
    for _ in range(2):
        trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    for call in ("Cancel", name)[: 1 + (name != "Cancel")]:
        trace[1].call(call, 21, request=1, **NOTHING)
    trace[1].call("Recv", 22, peer=0, tag=5)
    matched = trace.matched()
    assert (0, 0) in never(matched) and order(matched, "message").least(1, matched.begins[2] - 2) is None


def test_a_receive_that_is_cancelled_and_freed_takes_nothing_if_nothing_was_left(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    trace[1].call("Cancel", 21, request=1, **NOTHING)
    trace[1].call("Request_free", 22, request=1, **NOTHING)
    trace[1].call("Recv", 23, peer=0, tag=5)
    matched = trace.matched()
    assert taken(matched)[0] == ((0, 0), (1, 2), (1, 2)) and never(matched) == []
    assert pairs(matched, matched.requests) == [((1, 0), (1, 1))]


def test_a_send_that_was_cancelled_or_not_is_never_legal(trace: Noted) -> None:
    trace[0].call("Isend", 10, peer=1, tag=5, request=1)
    trace[0].call("Cancel", 11, request=1, **NOTHING)
    trace[0].call("Request_free", 12, request=1, **NOTHING)
    trace[1].call("Recv", 20, peer=0, tag=5)
    assert never(trace.matched()) == [(0, 0)]


def test_of_many_open_wildcards_none_is_forgotten(three: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safepoint.matching.messages.LOOP", 0)
    test_what_an_open_wildcard_may_have_taken_is_never_legal(three)


def test_a_message_nobody_receives_is_never_legal_and_named(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5)
    matched = trace.matched()
    assert (taken(matched), groups(matched), never(matched)) == ([((0, 0), None, None)], [], [(0, 0)])
    assert matched.remarks == ["rank 0 → 1, tag 5, MPI_COMM_WORLD: sent by Send at solver.py:10, never received"]


def test_a_message_that_nobody_sent_is_never_legal_and_named(trace: Noted) -> None:
    trace[1].call("Recv", 20, peer=0, tag=5)
    matched = trace.matched()
    assert (taken(matched), never(matched)) == ([(None, (1, 0), (1, 0))], [(1, 0)])
    assert matched.remarks == [
        "rank 0 → 1, tag 5, MPI_COMM_WORLD: received by Recv at solver.py:20, no send of it is noted"
    ]


def test_many_faults_of_a_kind_are_counted_and_the_first_are_named(trace: Noted) -> None:
    for _ in range(1007):
        trace[0].call("Send", 10, peer=1, tag=5)
    remarks = trace.matched().remarks
    assert (len(remarks), remarks[-1]) == (6, "and 1,002 more like the last one")


def test_nothing_goes_to_or_comes_from_proc_null(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=PROC_NULL, tag=5)
    trace[0].call("Recv", 11, peer=PROC_NULL, tag=5)
    trace[0].call("Sendrecv", 12, peer=PROC_NULL, tag=5, got=(PROC_NULL, NONE))
    matched = trace.matched()
    assert (matched.actions, len(matched.messages), groups(matched), never(matched)) == (3, 0, [], [])


def test_a_sendrecv_is_one_action_in_two_groups(trace: Noted) -> None:
    trace[0].call("Sendrecv", 10, peer=1, tag=5, got=(1, 6))
    trace[1].call("Sendrecv_replace", 20, peer=0, tag=6, got=(0, 5))
    matched = trace.matched()
    assert groups(matched) == [[(0, 0), (1, 0)], [(0, 0), (1, 0)]]
    assert matched.messages["tag"].tolist() == [5, 6]


def test_a_message_to_oneself_is_two_actions_of_one_rank_and_a_sendrecv_with_oneself_one(trace: Noted) -> None:
    trace[0].call("Isend", 10, comm=2, peer=0, tag=5, request=1)
    trace[0].call("Recv", 11, comm=2, peer=0, tag=5)
    trace[0].call("Wait", 12, request=1, **NOTHING)
    trace[0].call("Sendrecv", 13, peer=0, tag=5, got=(0, 5))
    matched = trace.matched()
    assert groups(matched) == [[(0, 0), (0, 1)], [(0, 3)]]


def test_a_waitall_is_one_action_in_the_groups_of_all_it_completes(trace: Noted) -> None:
    trace[0].call("Isend", 10, peer=1, tag=5, request=1)
    trace[0].call("Irecv", 11, peer=1, tag=ANY_TAG, request=2)
    trace[0].call("Waitall", 12, row=(1, NONE, NONE, 2, 1, 7), **NOTHING)
    trace[1].call("Send", 20, peer=0, tag=7)
    trace[1].call("Recv", 21, peer=0, tag=5)
    matched = trace.matched()
    assert groups(matched) == [[(0, 0), (1, 1)], [(0, 2), (1, 0)]]
    assert pairs(matched, matched.requests) == [((0, 0), (0, 2)), ((0, 1), (0, 2))]


@pytest.mark.parametrize("name", ["Waitany", "Waitsome", "Testany", "Testsome", "Testall", "Test"])
def test_what_may_complete_one_or_another_is_unsure_and_an_action_only_if_it_completed_something(
    trace: Noted, name: str
) -> None:
    trace[0].call("Irecv", 10, peer=1, tag=5, request=1)
    trace[0].call(name, 11, **NOTHING)
    row: dict[str, Any] = {"request": 1, "got": (1, 5)} if name == "Test" else {"row": (1, 1, 5)}
    trace[0].call(name, 12, flags=FOUND if name.startswith("Test") else 0, **row, **NOTHING)
    trace[1].call("Send", 20, peer=0, tag=5)
    matched = trace.matched()
    assert taken(matched) == [((1, 0), (0, 0), (0, 1))]
    assert (matched.begins.tolist(), matched.record.tolist()) == ([0, 2, 3], [0, 2, 0])
    assert matched.unsure.tolist() == [[0, 1], [0, 1]]


def test_a_persistent_request_counts_from_each_start(trace: Noted) -> None:
    trace[0].call("Send_init", 10, peer=1, tag=5, request=1, size=24)
    trace[1].call("Recv_init", 20, peer=ANY, tag=5, request=1)
    for turn in (2, 3):
        trace[0].call("Start", 11, request=turn, row=(1, turn), **NOTHING)
        trace[1].call("Startall", 21, row=(1, turn), **NOTHING)
        trace[0].call("Wait", 12, request=turn, **NOTHING)
        trace[1].call("Waitall", 22, row=(turn, 0, 5), **NOTHING)
    trace[0].call("Request_free", 13, request=1, flags=PERSISTENT, **NOTHING)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 0), (1, 1)), ((0, 2), (1, 2), (1, 3))]
    assert matched.messages[["bytes", "wild_source"]].tolist() == [(24, True), (24, True)]
    assert pairs(matched, matched.requests) == [((r, i), (r, i + 1)) for r in (0, 1) for i in (0, 2)]
    assert named(matched, "name") == [
        "persistent request of Send_init at solver.py:10", "persistent request of Recv_init at solver.py:20",
    ]  # fmt: skip
    assert matched.alive[["rank", "first", "last"]].tolist() == [(0, 0, 4), (1, 0, 4)]


def test_several_of_one_startall_are_in_its_order(trace: Noted) -> None:
    for rank, init in ((0, "Send_init"), (1, "Recv_init")):
        for number in (1, 2):
            trace[rank].call(init, 10 + number, peer=1 - rank, tag=5, request=number, size=number)
    trace[0].call("Startall", 13, row=(2, 3, 1, 4), **NOTHING)
    trace[1].call("Startall", 13, row=(1, 3, 2, 4), **NOTHING)
    trace[0].call("Waitall", 14, row=(3, NONE, NONE, 4, NONE, NONE), **NOTHING)
    trace[1].call("Wait", 15, request=4, got=(0, 5), **NOTHING)
    trace[1].call("Wait", 15, request=3, got=(0, 5), **NOTHING)
    matched = trace.matched()
    assert matched.messages["bytes"].tolist() == [2, 1]
    assert taken(matched) == [((0, 0), (1, 0), (1, 2)), ((0, 0), (1, 0), (1, 1))]


def test_a_cancelled_receive_takes_nothing_and_its_wait_closes_it(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    trace[1].call("Cancel", 21, request=1, **NOTHING)
    trace[1].call("Wait", 22, request=1, got=(CANCELLED, NONE), **NOTHING)
    trace[1].call("Recv", 23, peer=0, tag=5)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 2), (1, 2))]
    assert (pairs(matched, matched.requests), never(matched)) == ([((1, 0), (1, 1))], [])


def test_a_cancelled_send_sends_nothing(trace: Noted) -> None:
    trace[0].call("Isend", 10, peer=1, tag=5, request=1)
    trace[0].call("Waitall", 11, row=(1, CANCELLED, NONE), **NOTHING)
    matched = trace.matched()
    assert (len(matched.messages), never(matched)) == (0, [])


def test_a_request_that_is_freed_is_closed_by_that(trace: Noted) -> None:
    trace[0].call("Isend", 10, peer=1, tag=5, request=1)
    trace[0].call("Request_free", 11, request=1, **NOTHING)
    trace[0].call("Send_init", 12, peer=1, tag=6, request=2)
    trace[0].call("Start", 13, request=3, row=(2, 3), **NOTHING)
    trace[0].call("Request_free", 14, request=2, flags=PERSISTENT, **NOTHING)
    for tag in (5, 6):
        trace[1].call("Recv", 20, peer=0, tag=tag)
    matched = trace.matched()
    assert pairs(matched, matched.requests) == [((0, 0), (0, 1)), ((0, 2), (0, 3))]
    assert groups(matched) == [[(0, 0), (1, 0)], [(0, 2), (1, 1)]]


def test_a_request_that_is_never_completed_has_no_completion_and_is_named(trace: Noted) -> None:
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    matched = trace.matched()
    assert (pairs(matched, matched.requests), never(matched)) == ([((1, 0), None)], [])
    assert matched.remarks == ["rank 1: Irecv at solver.py:20: its request is never completed"]


def test_an_isendrecv_sends_and_receives_with_one_request(trace: Noted) -> None:
    trace[0].call("Isendrecv", 10, peer=1, tag=5, got=(ANY, 6), request=1)
    trace[0].call("Wait", 11, request=1, got=(1, 6), **NOTHING)
    trace[1].call("Recv", 20, peer=0, tag=5)
    trace[1].call("Send", 21, peer=0, tag=6)
    matched = trace.matched()
    assert groups(matched) == [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    assert pairs(matched, matched.requests) == [((0, 0), (0, 1))]


# Probes.


def test_a_probe_implies_the_send_that_the_next_receive_takes(trace: Noted) -> None:
    for tag in (6, 5, 5, 5):
        trace[0].call("Isend", 10, peer=1, tag=tag, request=tag * 10 + trace[0].count)
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    trace[1].call("Probe", 21, peer=ANY, tag=ANY_TAG, got=(0, 5))
    trace[1].call("Recv", 22, peer=0, tag=5)
    trace[1].call("Iprobe", 23, peer=0, tag=5)
    trace[1].call("Iprobe", 24, peer=0, tag=5, got=(0, 5), flags=FOUND)
    matched = trace.matched()
    assert pairs(matched, matched.arcs) == [((1, 1), (0, 2)), ((1, 3), (0, 3))]
    assert matched.begins.tolist() == [0, 4, 8]
    assert matched.unsure.tolist() == [[1, 1], [1, 3], [1, 3]]


def test_a_message_is_posted_by_its_mprobe_and_received_by_the_mrecv(trace: Noted) -> None:
    for _ in range(3):
        trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Mprobe", 20, peer=ANY, tag=5, got=(0, 5), request=1)
    trace[1].call("Improbe", 21, peer=0, tag=5, got=(0, 5), request=2, flags=FOUND)
    trace[1].call("Recv", 22, peer=0, tag=5)
    trace[1].call("Imrecv", 23, request=3, row=(2,))
    trace[1].call("Mrecv", 24, request=1, got=(0, 5))
    trace[1].call("Wait", 25, request=3, got=(0, 5), **NOTHING)
    matched = trace.matched()
    assert taken(matched) == [((0, 0), (1, 0), (1, 4)), ((0, 1), (1, 1), (1, 5)), ((0, 2), (1, 2), (1, 2))]
    assert pairs(matched, matched.arcs) == [((1, 0), (0, 0)), ((1, 1), (0, 1))]
    assert pairs(matched, matched.requests) == [((1, 3), (1, 5))]
    assert matched.messages["wild_source"].tolist() == [True, False, False]


def test_an_mprobe_without_its_receive_is_never_legal(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Mprobe", 20, peer=0, tag=5, got=(0, 5), request=1)
    matched = trace.matched()
    assert (taken(matched), never(matched)) == ([((0, 0), (1, 0), None)], [(0, 0)])
    assert (
        "sent by Send at solver.py:10, taken by Mprobe at solver.py:20, which is never completed" in matched.remarks[0]
    )


def test_a_message_of_no_process_is_none(trace: Noted) -> None:
    trace[0].call("Mprobe", 10, peer=PROC_NULL, tag=5, got=(PROC_NULL, ANY_TAG))
    trace[0].call("Mrecv", 11, got=(PROC_NULL, ANY_TAG))
    matched = trace.matched()
    assert (matched.actions, len(matched.messages), len(matched.arcs), never(matched)) == (2, 0, 0, [])


# Collective calls.


def test_the_ith_collective_call_on_a_communicator_is_one_group_whether_it_blocks_or_not(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].call("Bcast", 10, peer=0)
        trace[rank].call("Ibarrier", 11, request=1)
        trace[rank].call("Allreduce", 12)
        trace[rank].call("Wait", 13, request=1, **NOTHING)
    matched = trace.matched()
    assert groups(matched) == [[(0, 0), (1, 0)], [(0, 1), (0, 3), (1, 1), (1, 3)], [(0, 2), (1, 2)]]
    assert matched.kind.tolist() == [COLLECTIVE] * 3
    assert pairs(matched, matched.requests) == [((0, 1), (0, 3)), ((1, 1), (1, 3))]


def test_a_persistent_collective_operation_is_one_group_for_each_start(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].call("Barrier_init", 10, request=1)
        for turn in (2, 3):
            trace[rank].call("Start", 11, request=turn, row=(1, turn), **NOTHING)
            trace[rank].call("Wait", 12, request=turn, **NOTHING)
    matched = trace.matched()
    assert groups(matched) == [
        [(0, 0), (1, 0)], [(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 3), (0, 4), (1, 3), (1, 4)],
    ]  # fmt: skip
    assert never(matched) == []


def test_a_collective_operation_that_one_member_has_not_completed_is_never_legal(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].call("Ibarrier", 11, request=1)
    trace[0].call("Wait", 13, request=1, **NOTHING)
    assert never(trace.matched()) == [(0, 0), (0, 1), (1, 0)]


def test_a_collective_call_that_one_member_did_not_make_is_never_legal_and_named(three: Noted) -> None:
    for rank in range(2):
        three[rank].call("Bcast", 10, peer=0)
    matched = three.matched()
    assert (groups(matched), never(matched)) == ([[(0, 0), (1, 0)]], [(0, 0), (1, 0)])
    assert matched.remarks == ["MPI_COMM_WORLD: Bcast at solver.py:10 was called by 2 of 3 ranks"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("Reduce", 20, 0), "rank 0 calls Bcast at solver.py:10, and rank 1 calls Reduce at solver.py:20"),
        (("Bcast", 20, 1), "rank 0 calls Bcast at solver.py:10, and rank 1 calls Bcast at solver.py:20"),
    ],
)
def test_different_calls_or_roots_at_one_place_are_never_legal_and_both_are_named(
    trace: Noted, call: tuple[str, int, int], said: str
) -> None:
    trace[0].call("Bcast", 10, peer=0)
    trace[1].call(call[0], call[1], peer=call[2])
    matched = trace.matched()
    assert (groups(matched), never(matched)) == ([[(0, 0), (1, 0)]], [(0, 0), (1, 0)])
    assert matched.remarks == [f"MPI_COMM_WORLD: {said} instead of the same with the same root"]


def test_communicators_of_one_member_make_no_group_of_a_collective_call(trace: Noted) -> None:
    trace[0].call("Barrier", 10, comm=2)
    alone = trace[0].new_comm("Comm_split", 11, [0])
    trace[1].new_comm("Comm_split", 11, [1])
    trace[0].call("Allreduce", 12, comm=alone)
    trace[0].call("Comm_free", 13, comm=alone)
    matched = trace.matched()
    assert (groups(matched), matched.actions) == ([[(0, 1), (1, 0)]], 5)


def test_finalize_is_a_group_if_all_ranks_note_it(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].call("Finalize", 10, comm=0)
    assert groups(trace.matched()) == [[(0, 0), (1, 0)]]


def test_finalize_of_some_ranks_is_no_action(trace: Noted) -> None:
    trace[0].call("Finalize", 10, comm=0)
    matched = trace.matched()
    assert (matched.actions, groups(matched), never(matched)) == (0, [], [])


# Communicators.


def test_communicators_are_the_same_if_the_same_call_made_them_for_the_same_members(three: Noted) -> None:
    """Rank 1 has made one of its own in between, so it numbers the others differently."""
    three[1].new_comm("Comm_dup", 5, [1], comm=2)
    pair = {0: 0, 1: 0}
    for rank, members in ((0, [0, 1]), (1, [0, 1]), (2, [2])):
        pair[rank] = three[rank].new_comm("Comm_split", 10, members)
    assert (pair[0], pair[1]) == (3, 4)
    for rank in range(2):
        deeper = three[rank].new_comm("Comm_dup", 11, [0, 1], comm=pair[rank])
        three[rank].call("Barrier", 12, comm=deeper)
        three[rank].call("Comm_free", 13, comm=deeper)
    three[0].call("Send", 14, comm=pair[0], peer=1, tag=5)
    three[1].call("Recv", 15, comm=pair[1], peer=0, tag=5)
    matched = three.matched()
    assert groups(matched) == [
        [(0, 4), (1, 5)], [(0, 0), (1, 1), (2, 0)], [(0, 1), (1, 2)], [(0, 2), (1, 3)], [(0, 3), (1, 4)],
    ]  # fmt: skip
    split = "communicator 3, of Comm_split at solver.py:10, ranks 0-1 of world"
    assert matched.objects[matched.messages["comm"][0]] == split
    rows = [(matched.names[row["name"]], *row[["rank", "first", "last"]]) for row in matched.alive]
    assert ("communicator 4, of Comm_dup at solver.py:11, ranks 0-1 of world", 0, 2, 3) in rows
    assert (split, 1, 2, 6) in rows


def test_two_communicators_of_the_same_members_are_two(trace: Noted) -> None:
    for rank in range(2):
        for line in (10, 11):
            trace[rank].new_comm("Comm_dup", line, [0, 1])
    trace[0].call("Send", 12, comm=3, peer=1, tag=5)
    trace[0].call("Send", 13, comm=4, peer=1, tag=5)
    trace[1].call("Recv", 14, comm=4, peer=0, tag=5)
    trace[1].call("Recv", 15, comm=3, peer=0, tag=5)
    assert taken(trace.matched()) == [((0, 2), (1, 3), (1, 3)), ((0, 3), (1, 2), (1, 2))]


def test_duplicates_of_two_communicators_may_be_made_in_any_order(trace: Noted) -> None:
    for rank in range(2):
        for line in (10, 11):
            trace[rank].new_comm("Comm_dup", line, [0, 1])
        for request, parent in enumerate((3, 4) if rank == 0 else (4, 3), 1):
            note = trace[rank].call("Comm_idup", 12, comm=parent, request=request)
            trace[rank].made("comm", [0, 1], note, parent=parent)
        trace[rank].call("Waitall", 13, row=(1, NONE, NONE, 2, NONE, NONE), **NOTHING)
    trace[0].call("Send", 14, comm=5, peer=1, tag=5)
    trace[1].call("Recv", 15, comm=6, peer=0, tag=5)
    assert taken(trace.matched()) == [((0, 5), (1, 5), (1, 5))]


def test_ranks_of_messages_are_those_of_their_communicator(three: Noted) -> None:
    for rank in range(3):
        three[rank].new_comm("Comm_split", 10, [2, 0, 1])
    three[0].call("Send", 11, comm=3, peer=0, tag=5)
    three[2].call("Recv", 12, comm=3, peer=1, tag=5)
    matched = three.matched()
    assert matched.messages[["source", "dest"]].tolist() == [(0, 2)]
    assert taken(matched) == [((0, 1), (2, 1), (2, 1))]


def test_a_communicator_of_a_group_is_a_group_of_its_members_alone(three: Noted) -> None:
    for rank in (0, 2):
        three[rank].new_comm("Comm_create_group", 10, [0, 2])
        three[rank].new_comm("Comm_create_group", 11, [0, 2])
        three[rank].call("Barrier", 12, comm=4)
    assert groups(three.matched()) == [[(0, 0), (2, 0)], [(0, 1), (2, 1)], [(0, 2), (2, 2)]]


def test_between_two_groups_a_peer_is_in_the_other_one(three: Noted) -> None:
    for rank, own, other in ((0, [0, 2], "1"), (2, [0, 2], "1"), (1, [1], "0,2")):
        half = three[rank].new_comm("Comm_split", 10, own)
        three[rank].new_comm("Intercomm_create", 11, own, comm=half, remote=other)
        three[rank].call("Barrier", 12, comm=4)
    three[1].call("Send", 13, comm=4, peer=1, tag=5)
    three[2].call("Recv", 14, comm=4, peer=0, tag=5)
    matched = three.matched()
    assert matched.messages[["source", "dest"]].tolist() == [(1, 2)]
    assert groups(matched) == [
        [(1, 3), (2, 3)], [(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1), (2, 1)], [(0, 2), (1, 2), (2, 2)],
    ]  # fmt: skip
    assert matched.objects[-2] == "communicator 4, of Intercomm_create at solver.py:11, ranks 0,2 and 1 of world"


def test_roots_of_a_call_between_two_groups_do_not_differ(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].new_comm("Intercomm_create", 11, [rank], comm=2, remote=str(1 - rank))
    trace[0].call("Bcast", 12, comm=3, peer=-3)
    trace[1].call("Bcast", 12, comm=3, peer=0)
    matched = trace.matched()
    assert (never(matched), matched.remarks) == ([], [])


def test_a_duplicate_that_is_made_by_request_is_one_group_with_its_completion(trace: Noted) -> None:
    for rank in range(2):
        note = trace[rank].call("Comm_idup", 10, request=1)
        trace[rank].made("comm", [0, 1], note, parent=1)
        trace[rank].call("Wait", 11, request=1, **NOTHING)
        trace[rank].call("Barrier", 12, comm=3)
    assert groups(trace.matched()) == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 2), (1, 2)]]


# Windows and files.


def window(trace: Noted, name: str = "Win_create") -> int:
    """Its number on each rank."""
    for rank in range(trace.size):
        number = trace[rank].made("win", range(trace.size), trace[rank].call(name, 5), parent=1)
    return number


def test_a_fence_is_a_group_and_from_a_put_to_it_is_no_place(trace: Noted) -> None:
    win = window(trace)
    for rank in range(2):
        trace[rank].call("Win_fence", 10, comm=win)
        trace[rank].call("Put", 11, comm=win, peer=1 - rank)
        trace[rank].call("Win_flush", 12, comm=win, peer=1 - rank)
        trace[rank].call("Win_fence", 13, comm=win)
        trace[rank].call("Win_free", 14, comm=win)
    matched = trace.matched()
    assert groups(matched) == [[(0, i), (1, i)] for i in (0, 1, 3, 4)]
    assert pairs(matched, matched.arcs) == [((0, 2), (0, 3)), ((1, 2), (1, 3))]
    assert named(matched, "name") == ["window 3, of Win_create at solver.py:5, ranks 0-1 of world"] * 2
    assert matched.alive[["first", "last"]].tolist() == [(1, 4), (1, 4)]


def test_locks_of_several_targets_end_with_their_own_unlock(three: Noted) -> None:
    win = window(three)
    for target in (1, 2):
        three[0].call("Win_lock", 10, comm=win, peer=target)
    three[0].call("Get", 11, comm=win, peer=1)
    three[0].call("Rput", 12, comm=win, peer=2, request=1)
    three[0].call("Wait", 13, request=1, **NOTHING)
    three[0].call("Win_unlock", 14, comm=win, peer=2)
    three[0].call("Win_unlock", 15, comm=win, peer=1)
    matched = three.matched()
    assert pairs(matched, matched.arcs) == [
        ((0, 1), (0, 7)), ((0, 2), (0, 6)), ((0, 3), (0, 7)), ((0, 4), (0, 6)),
    ]  # fmt: skip
    assert pairs(matched, matched.requests) == [((0, 4), (0, 5))]
    assert matched.remarks == [
        "rank 0: Win_lock at solver.py:10: a rank whose window is locked makes no call, so nothing shows there"
    ]


def test_no_place_is_legal_until_the_last_of_two_locks_is_open(three: Noted) -> None:
    win = window(three)
    for name, target in (("lock", 1), ("lock", 2), ("unlock", 1)):
        three[0].call(f"Win_{name}", 10, comm=win, peer=target)
    three[0].call("Put", 11, comm=win, peer=2)
    three[0].call("Win_unlock", 12, comm=win, peer=2)
    legal = order(three.matched()).possible(0)
    assert legal.tolist() == [True, True, False, False, False, False, True]


def test_an_epoch_of_start_and_complete_is_no_place(trace: Noted) -> None:
    win = window(trace)
    trace[0].call("Win_start", 10, comm=win)
    trace[0].call("Accumulate", 11, comm=win, peer=1)
    trace[0].call("Win_complete", 12, comm=win)
    matched = trace.matched()
    assert pairs(matched, matched.arcs) == [((0, 1), (0, 3)), ((0, 2), (0, 3))]


def test_an_exposure_ends_at_its_wait_or_at_the_test_that_found_it_done(trace: Noted) -> None:
    """Tests that did not are no actions. A rank may be between two exposures, and in none."""
    win = window(trace)
    for name in ("Win_wait", "Win_test"):
        trace[1].call("Win_post", 20, comm=win)
        for _ in range(2):
            trace[1].call("Win_test", 21, comm=win)
        trace[1].call(name, 22, comm=win, flags=FOUND if name == "Win_test" else 0)
    trace[1].call("Win_test", 23, comm=win)
    trace[1].call("Win_post", 24, comm=win)
    trace[1].call("Win_test", 25, comm=win)
    matched = trace.matched()
    assert pairs(matched, matched.arcs) == [((1, 1), (1, 2)), ((1, 3), (1, 4))]
    assert never(matched) == [(1, 1), (1, 2), (1, 3), (1, 5)], "nobody knows who starts for it"
    assert order(matched).possible(1).tolist() == [True, True, False, False, False, False, False]
    assert matched.unsure.tolist() == [[1, 2], [1, 2], [1, 4], [1, 4], [1, 4], [1, 5], [1, 6]]


def test_what_is_put_and_never_closed_is_never_legal(trace: Noted) -> None:
    trace[0].call("Put", 11, comm=window(trace), peer=1)
    matched = trace.matched()
    assert (never(matched), pairs(matched, matched.arcs)) == ([(0, 1)], [])
    assert matched.remarks == ["rank 0: Put at solver.py:11: what it begins is never ended"]


def test_collective_calls_on_files_are_groups_and_those_in_two_halves_are_under_way_between(trace: Noted) -> None:
    for rank in range(2):
        file = trace[rank].made("file", [0, 1], trace[rank].call("File_open", 10), parent=1)
        trace[rank].call("File_write_all_begin", 11, comm=file)
        trace[rank].call("File_write_all_end", 12, comm=file)
        trace[rank].call("File_iread_all", 13, comm=file, request=1)
        trace[rank].call("Wait", 14, request=1, **NOTHING)
        trace[rank].call("File_write", 15, comm=file)
        trace[rank].call("File_close", 16, comm=file)
    matched = trace.matched()
    assert groups(matched) == [
        [(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)], [(0, 3), (0, 4), (1, 3), (1, 4)], [(0, 5), (1, 5)],
    ]  # fmt: skip
    assert pairs(matched, matched.arcs) == [((0, 1), (0, 2)), ((1, 1), (1, 2))]
    assert matched.alive[["rank", "first", "last"]].tolist() == [(0, 1, 5), (1, 1, 5)]


# What is not as it should be.


def test_a_call_that_never_returned_is_never_legal_and_has_no_end(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5, state=ENTERED)
    trace[1].call("Recv", 20, peer=0, tag=5)
    trace[1].call("Waitall", 21, state=ENTERED, **NOTHING)
    trace[1].call("Iprobe", 22, peer=0, tag=5, state=ENTERED)
    matched = trace.matched(0, 1)
    assert (groups(matched), never(matched)) == ([[(0, 0), (1, 0)]], [(0, 0), (1, 1)])
    assert (matched.enter.tolist(), matched.leave.tolist()) == ([0, 10, 20], [-1, 15, -1])
    assert "rank 0: Send at solver.py:10 never returned" in matched.remarks


def test_a_receive_that_raised_may_have_taken_its_message_and_nothing_after_it_is_legal(trace: Noted) -> None:
    """Too long a message is taken, and so is one that cannot be unpickled. An argument that is refused is no call."""
    for tag in (5, 6):
        trace[0].call("Send", 10, peer=1, tag=tag)
    trace[1].call("Recv", 20, peer=0, tag=5, state=RAISED, result=15)
    trace[1].call("Recv", 21, peer=0, tag=6)
    trace[0].call("Send", 11, peer=7, tag=5, state=RAISED, result=6)
    trace[0].call("Bcast", 12, peer=0, state=RAISED, result=255)
    matched = trace.matched()
    assert (1, 0) in never(matched) and order(matched).possible(1).tolist() == [True, False, False]
    assert "rank 1: Recv at solver.py:20 raised: nobody knows what it has sent or received before" in matched.remarks
    assert "rank 0: Send at solver.py:11 raised: it is judged as not called" in matched.remarks


def test_a_receive_of_another_thread_is_under_way_until_it_returns(trace: Noted) -> None:
    """A hide meanwhile comes before it, and what this thread calls meanwhile is no legal gap behind it."""
    own = trace[1].made("comm", [1], -1, parent=0)
    trace[0].call("Send", 10, peer=1, tag=5, enter=1, leave=2)
    trace[0].call("hide", 11, comm=0, enter=30, leave=31)
    trace[1].call("Recv", 20, peer=0, tag=5, thread=1, enter=10, leave=90)
    trace[1].call("hide", 21, comm=0, enter=30, leave=31)
    trace[1].call("Send", 22, comm=own, peer=0, tag=7, enter=40, leave=41)
    trace[1].call("Recv", 23, comm=own, peer=0, tag=7, enter=50, leave=51)
    matched = trace.matched()
    assert matched.marks[["rank", "gap"]].tolist() == [(0, 1), (1, 0)]
    assert order(matched).possible(1).tolist() == [True, False, False, True]
    assert not order(matched).legal_cut(np.array([1, 0])).legal


def test_a_receive_that_is_freed_while_it_waits_never_ends(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Irecv", 20, peer=0, tag=5, request=1)
    trace[1].call("Request_free", 21, request=1)
    matched = trace.matched()
    assert never(matched) == [(0, 0)] and not order(matched).possible(0)[1]


def test_what_raised_was_not_called_and_is_named(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=7, tag=5, state=RAISED)
    trace[0].call("Barrier", 11, state=RAISED)
    for rank in range(2):
        trace[rank].call("Bcast", 12, peer=0)
    matched = trace.matched()
    assert (groups(matched), matched.record.tolist(), never(matched)) == ([[(0, 0), (1, 0)]], [2, 0], [])
    assert matched.remarks == [
        f"rank 0: {name} at solver.py:{line} raised: it is judged as not called" for name, line in
        (("Send", 10), ("Barrier", 11))
    ]  # fmt: skip


def test_a_send_to_a_rank_that_is_none_is_a_message_to_nobody(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=7, tag=5, state=ENTERED)
    matched = trace.matched(0)
    assert matched.messages[["source", "dest"]].tolist() == [(0, -1)]
    assert never(matched) == [(0, 0)]


def test_what_was_completed_by_a_call_that_was_noted_in_part_is_unknown(trace: Noted) -> None:
    trace[0].call("Irecv", 10, peer=1, tag=5, request=1)
    trace[0].call("Waitall", 11, flags=PARTIAL, **NOTHING)
    trace[1].call("Send", 20, peer=0, tag=5)
    matched = trace.matched()
    assert (taken(matched), never(matched)) == ([((1, 0), (0, 0), None)], [(1, 0)])
    assert matched.begins.tolist() == [0, 2, 3]
    assert "rank 0: Waitall at solver.py:11: what it completed could not be noted" in matched.remarks


def test_calls_with_processes_outside_are_never_legal_but_asking_for_a_parent_is_no_action(trace: Noted) -> None:
    for rank in range(2):
        trace[rank].call("Comm_get_parent", 9, comm=0)
        note = trace[rank].call("Comm_spawn", 10)
        trace[rank].made("comm", [0, 1], note, remote="-1,-1", outside=True)
        trace[rank].call("Barrier", 11, comm=3)
        trace[rank].call("Send", 12, comm=3, peer=0, tag=5)
    matched = trace.matched()
    assert never(matched) == [(rank, action) for rank in range(2) for action in range(3)]
    assert matched.messages["dest"].tolist() == [-1, -1]
    assert "rank 0: Comm_spawn at solver.py:10 is with processes outside of the world" in matched.remarks


def test_what_the_library_notes_of_itself_are_marks_and_no_actions(trace: Noted) -> None:
    trace[0].call("mark", 10, comm=0)
    trace[0].call("Send", 11, peer=1, tag=5)
    trace[0].call("hide", 12, comm=0, size=(-3) % 2**64)
    trace[0].call("hide", 13, comm=0, size=2**63)
    trace[1].call("Recv", 20, peer=0, tag=5)
    matched = trace.matched()
    assert matched.marks[["rank", "gap", "hide", "step", "enter", "leave"]].tolist() == [
        (0, 0, False, NO_STEP, 0, 5), (0, 1, True, -3, 20, 25), (0, 1, True, NO_STEP, 30, 35),
    ]  # fmt: skip
    assert [str(matched.sites[site]) for site in matched.marks["site"]] == [
        "solver.py:10",
        "solver.py:12",
        "solver.py:13",
    ]


def test_a_request_that_nobody_has_made_is_remarked_and_one_that_is_made_twice_refused(trace: Noted) -> None:
    trace[0].call("Wait", 10, request=9, got=(1, 5), **NOTHING)
    trace[0].call("Start", 11, request=8, row=(7, 8), **NOTHING)
    matched = trace.matched()
    assert matched.remarks == ["2 requests were completed or started that no noted call has made"]
    assert len(matched.requests) == 0


def test_what_completes_a_request_before_it_is_begun_completes_nothing(trace: Noted) -> None:
    trace[0].call("Wait", 10, request=1, **NOTHING)
    trace[0].call("Isend", 11, peer=1, tag=5, request=1)
    trace[1].call("Recv", 20, peer=0, tag=5)
    matched = trace.matched()
    assert pairs(matched, matched.requests) == [((0, 0), None)]


def test_one_number_for_two_requests_is_refused(trace: Noted) -> None:
    for line in (10, 11):
        trace[0].call("Isend", line, peer=1, tag=5, request=3)
    with pytest.raises(TraceError, match=r"rank-00000.calls: note 1, Isend at solver.py:11, begins a request"):
        trace.matched()


def test_a_call_on_a_thing_of_another_kind_is_refused(trace: Noted) -> None:
    trace[0].call("Send", 10, comm=window(trace), peer=1, tag=5)
    with pytest.raises(TraceError, match=r"rank-00000.calls: note 1, Send at solver.py:10, names no communicator"):
        trace.matched()


# Clocks.


def test_clocks_of_one_host_are_taken_as_they_are(trace: Noted) -> None:
    trace[0].call("Send", 10, peer=1, tag=5, enter=1000, leave=1100)
    trace[1].call("Recv", 20, peer=0, tag=5, enter=900, leave=1050)
    matched = trace.matched()
    assert (matched.enter.tolist(), matched.leave.tolist()) == ([100, 0], [200, 150])


def test_clocks_of_other_hosts_begin_with_the_day_and_no_message_is_received_before_it_was_sent(tmp_path: Path) -> None:
    """By the time of day the message comes 50 ns before it is sent. Rank 2 has the clock of rank 1."""
    begins = {0: [1000, 2_000_000], 1: [500, 1_000_470], 2: [7, 123_456_789]}
    about = {rank: {"host": f"h{rank > 0}", "boot": f"b{rank > 0}"} for rank in range(3)}
    trace = Noted(tmp_path / "t", 3, about)
    for rank in range(3):
        trace[rank].notes.say(begin=begins[rank])
    trace[0].call("Send", 10, peer=1, tag=5, enter=2000, leave=2010)
    trace[1].call("Recv", 20, peer=0, tag=5, enter=999_000, leave=1_000_980)
    trace[2].call("Barrier", 30, enter=1_001_000, leave=1_001_001)
    matched = trace.matched()
    sent, posted, _ = matched.enter.tolist()
    assert matched.leave[1] == sent, "put off by as little as it needs"
    assert matched.leave[1] - posted == 1980
    assert matched.enter[2] - matched.leave[1] == 20, "one clock stays one clock"
