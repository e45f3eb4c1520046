"""Rules 3.6 to 3.8: what is the same across ranks, what takes from anybody, and what MPI does not look at."""

from __future__ import annotations

import pytest
from testbed.given import CONSTANTS, Rank

from safepoint.check.call import Call, Value
from safepoint.check.messages import RECEIVED, SENT
from safepoint.check.noted import ABSENT
from safepoint.trace import record


def value(call: Call, name: int | str) -> Value:
    found = call.value(name)
    assert found is not None, (call.function, name)
    return found


def same(one: Call, its: int | str, other: Call, others: int | str) -> bool:
    return value(one, its).equals(value(other, others), one.rank == other.rank)


def test_arguments_are_numbered_from_one_and_have_the_names_of_the_standard() -> None:
    call = Rank().one("Isend", buf=7, count=100, datatype="MPI_DOUBLE", dest=2, tag=7, comm="MPI_COMM_WORLD")
    assert value(call, 2).number == 100 == value(call, "count").number
    assert value(call, 3).names == {"MPI_DOUBLE"} and value(call, "bytes").number == 800
    assert value(call, 4).number == 2 and value(call, 5).number == 7 and value(call, 6).names == {"MPI_COMM_WORLD"}
    assert call.value(8) is None and call.value("source") is None


def test_a_rank_is_that_of_the_world_when_it_is_compared_and_the_programs_own_when_it_is_a_number() -> None:
    """3.6: rank 1 of (3, 2) is rank 2 of the world."""
    first, second = Rank(2), Rank(3)
    for rank in (first, second):
        rank.call("Comm_split", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="3,2")
    send, recv = first.one("Send", dest=0, comm=0x900), second.one("Recv", source=1, comm=0x900)
    assert value(send, "dest").across == {3} and value(send, "dest").number == 0
    assert value(recv, "source").across == {2} and value(recv, "source").number == 1
    assert value(send, "last").number == 1


def test_a_rank_that_is_none_of_the_communicator_is_equal_to_no_process() -> None:
    call = Rank(0, 4).one("Send", dest=4, comm="MPI_COMM_WORLD")
    assert value(call, "dest").across == frozenset() and value(call, "dest").number == 4
    assert value(call, "last").number == 3


def test_communicators_are_the_same_if_the_same_call_made_them_with_the_same_members() -> None:
    ranks = [Rank(rank) for rank in range(4)]
    made = []
    for rank in ranks:
        half = "0-1" if rank.rank < 2 else "2-3"
        rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900 + rank.rank}, members="0-3")
        rank.call("Comm_split", comm="MPI_COMM_WORLD", after={"newcomm": 0x910 + rank.rank}, members=half)
        made.append((rank.one("Barrier", comm=0x900 + rank.rank), rank.one("Barrier", comm=0x910 + rank.rank)))
    dups, halves = zip(*made, strict=True)
    assert same(dups[0], "comm", dups[3], "comm") and not same(dups[0], "comm", halves[1], "comm")
    assert same(halves[0], "comm", halves[1], "comm") and not same(halves[1], "comm", halves[2], "comm")


def test_a_communicator_that_is_freed_gives_its_handle_to_another() -> None:
    rank = Rank()
    rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3")
    before = rank.one("Barrier", comm=0x900)
    freed = rank.one("Comm_free", comm=1, before={"comm": 0x900}, after={"comm": "MPI_COMM_NULL"})
    rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3")
    assert same(before, "comm", freed, "comm")  # it is read before it is freed
    assert not same(before, "comm", rank.one("Barrier", comm=0x900), "comm")


def test_two_that_are_made_of_the_same_members_are_two() -> None:
    first, second = Rank(0), Rank(1)
    for rank in (first, second):
        for handle in (0x900, 0x910):
            rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": handle}, members="0-3")
    assert same(first.one("Barrier", comm=0x900), "comm", second.one("Barrier", comm=0x900), "comm")
    assert not same(first.one("Barrier", comm=0x900), "comm", second.one("Barrier", comm=0x910), "comm")


def test_what_was_freed_is_nothing_that_is_known() -> None:
    rank = Rank()
    rank.call("Type_contiguous", count=3, oldtype="MPI_INT", after={"newtype": 0x960})
    sent = rank.one("Send", datatype=0x960, dest=1, comm="MPI_COMM_WORLD")
    rank.call("Type_free", before={"datatype": 0x960}, after={"datatype": "MPI_DATATYPE_NULL"})
    assert not same(sent, "datatype", rank.one("Send", datatype=0x960, dest=1, comm="MPI_COMM_WORLD"), "datatype")


def test_a_group_that_is_asked_for_twice_may_be_one_handle_that_is_freed_twice() -> None:
    rank = Rank()
    made = [rank.one("Comm_group", comm="MPI_COMM_WORLD", after={"group": 0x500}) for _ in range(2)]
    for one in made:
        freed = rank.one("Group_free", before={"group": 0x500}, after={"group": "MPI_GROUP_NULL"})
        assert same(one, "new", freed, "group")


def test_what_is_made_as_null_is_nothing_new() -> None:
    assert Rank().one("Comm_split", comm="MPI_COMM_WORLD", after={"newcomm": "MPI_COMM_NULL"}).value("new") is None


def test_the_rank_that_is_farthest_out_is_the_peer() -> None:
    assert value(Rank().one("Sendrecv", dest=1, source=-7, comm="MPI_COMM_WORLD"), "peer").number == -7
    assert value(Rank().one("Sendrecv", dest=9, source=-3, comm="MPI_COMM_WORLD"), "peer").number == 9


def test_between_groups_a_rank_is_one_of_the_other_group() -> None:
    rank = Rank(0)
    rank.call(
        "Intercomm_create", local_comm="MPI_COMM_WORLD", after={"newintercomm": 0x900}, members="0-1", remote="3,2"
    )
    send = rank.one("Send", dest=0, comm=0x900)
    assert value(send, "dest").across == {3}


def test_a_rank_that_is_in_none_of_those_that_are_made_need_not_count_them() -> None:
    first, second, third = Rank(0), Rank(1), Rank(2)
    for rank in (first, second):
        rank.call("Comm_split", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-1")
    third.call("Comm_split", comm="MPI_COMM_WORLD", after={"newcomm": "MPI_COMM_NULL"})
    for rank in (first, second, third):
        rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x910}, members="0-3")
    assert same(first.one("Barrier", comm=0x910), "comm", third.one("Barrier", comm=0x910), "comm")


def test_a_handle_that_one_thread_frees_may_be_anothers_at_once() -> None:
    """Dup is entered first, and returns what Comm_free has just given back."""
    rank = Rank()
    rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3")
    old = rank.one("Barrier", comm=0x900)
    made = rank.one("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3", Leave=10**9)
    freed = rank.one("Comm_free", comm=1, before={"comm": 0x900}, after={"comm": "MPI_COMM_NULL"})
    assert same(old, "comm", freed, "comm") and not same(made, "new", freed, "comm")
    later = rank.one("Barrier", comm=0x900, Enter=2 * 10**9)
    assert same(made, "new", later, "comm")


def test_a_handle_may_go_from_one_thread_to_the_next_before_a_free_is_read() -> None:
    """Three communicators have one handle after each other: each was freed before the next was made, and its note comes
    later, as that one was entered before."""
    rank, made = Rank(), []
    for leave in (1_000, 20_000, 10_000):
        made.append(rank.one("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3", Leave=leave))
    for at, enter in ((0, 5_000), (2, 15_000)):
        freed = rank.one("Comm_free", before={"comm": 0x900}, after={"comm": "MPI_COMM_NULL"}, Enter=enter)
        assert [same(one, "new", freed, "comm") for one in made] == [other == at for other in range(3)]
    used = rank.one("Barrier", comm=0x900, Enter=30_000)
    assert same(made[1], "new", used, "comm") and not same(made[2], "new", used, "comm")


def test_world_and_self_are_what_they_are_in_each_process() -> None:
    first, second = Rank(0).one("Barrier", comm="MPI_COMM_SELF"), Rank(1).one("Barrier", comm="MPI_COMM_SELF")
    assert not same(first, "comm", second, "comm")
    assert same(Rank(0).one("Barrier", comm="MPI_COMM_WORLD"), 1, Rank(1).one("Barrier", comm="MPI_COMM_WORLD"), 1)


def test_a_handle_from_nowhere_is_not_compared_with_those_of_other_processes() -> None:
    first, second = Rank(0).one("Barrier", comm=0x999), Rank(1).one("Barrier", comm=0x999)
    assert not same(first, "comm", second, "comm")
    assert not value(first, "comm").differs(value(second, "comm"), False)


def test_of_types_that_processes_have_made_neither_holds() -> None:
    """Six integers and two times three are the same data."""
    first, second = Rank(0), Rank(1)
    for rank in (first, second):
        rank.call("Type_contiguous", count=3, oldtype="MPI_INT", after={"newtype": 0x960})
    one, other = (rank.one("Send", datatype=0x960, comm="MPI_COMM_WORLD") for rank in (first, second))
    assert not same(one, "datatype", other, "datatype")
    assert not value(one, "datatype").differs(value(other, "datatype"), False)
    plainly = second.one("Send", datatype="MPI_INT", comm="MPI_COMM_WORLD")
    assert not value(one, "datatype").differs(value(plainly, "datatype"), False)
    again = first.one("Send", datatype=0x960, count=2, comm="MPI_COMM_WORLD")
    assert value(again, "bytes").number == 24
    assert same(one, "datatype", again, "datatype")  # in one process it is the same one


def test_the_type_that_a_call_makes_is_the_one_that_another_frees() -> None:
    rank = Rank()
    first = rank.one("Type_contiguous", count=2, oldtype="MPI_INT", after={"newtype": 0x950})
    second = rank.one("Type_contiguous", count=2, oldtype="MPI_INT", after={"newtype": 0x951})
    freed = rank.one("Type_free", datatype=1, before={"datatype": 0x951})
    assert same(second, 3, freed, 1) and not same(first, 3, freed, 1) and same(second, "new", freed, 1)


# 3.7


def test_what_takes_from_anybody_equals_everything_until_it_has_come() -> None:
    rank = Rank()
    number, (call, message) = rank.enter("Recv", source="MPI_ANY_SOURCE", tag="MPI_ANY_TAG", comm="MPI_COMM_WORLD")
    assert call.wild and call.pending and message.function == RECEIVED
    assert value(call, "source").any and value(call, "tag").any and value(call, "source").names == {"MPI_ANY_SOURCE"}
    assert rank.leave(number, Got_peer=3, Got_tag=5) == []
    assert not call.wild and not call.pending and not message.pending
    assert value(call, "source").across == {3} and value(call, "tag").across == {5}
    assert value(call, "source").names == {"MPI_ANY_SOURCE"} and value(call, "got_source").across == {3}


def test_a_receive_that_does_not_block_is_told_by_what_completes_it() -> None:
    rank = Rank()
    call, message = rank.call("Irecv", source="MPI_ANY_SOURCE", tag=1, comm="MPI_COMM_WORLD", after={"request": 0x70})
    assert call.wild and not call.pending and message.pending
    rows = {record.COMPLETED: [1, 2, 1]}
    rank.call("Waitall", count=1, before={"array_of_requests": [0x70]}, Rows=rows)
    assert not call.wild and not message.pending and value(message, "source").across == {2}


def test_one_that_is_cancelled_is_no_message() -> None:
    rank = Rank()
    _, message = rank.call("Irecv", source=1, comm="MPI_COMM_WORLD", after={"request": 0x70})
    rank.call("Wait", before={"request": 0x70}, Request=1, Got_peer=record.CANCELLED)
    assert message.dropped


def test_a_message_is_matched_where_it_is_probed_and_taken_where_it_is_received() -> None:
    """The second is received first."""
    rank = Rank()
    (_, first), (_, second) = (
        rank.call("Mprobe", source=1, tag=1, comm="MPI_COMM_WORLD", Request=number, Got_peer=1, Got_tag=1)
        for number in (1, 2)
    )
    assert first.number < second.number and first.pending and second.pending
    rank.call("Mrecv", count=100, datatype="MPI_DOUBLE", Request=2)
    assert first.pending and not second.pending and value(second, "bytes").number == 800
    rank.call("Imrecv", count=1, datatype="MPI_INT", after={"request": 9}, Request=3, Rows={record.MESSAGE: [1]})
    assert first.pending and value(first, "count").number == 1 and value(first, "source").across == {1}
    rank.call("Wait", before={"request": 9}, Request=3)
    assert not first.pending and first.site > second.site


def test_a_send_that_mpi_refuses_is_no_message() -> None:
    send, message = Rank().call("Send", dest=1, tag=-5, comm="MPI_COMM_WORLD", Result=4, State=record.RAISED)
    assert message.dropped and not send.dropped
    rank = Rank()
    _, (send, message) = rank.enter("Send", dest=1, comm="MPI_COMM_WORLD")
    rank.translator.end(died=True)  # inside of it
    assert message.dropped and not send.dropped


def test_a_message_that_is_too_long_has_come() -> None:
    _, message = Rank().call("Recv", source=1, comm="MPI_COMM_WORLD", Result=14, State=record.RAISED)
    assert message.function == RECEIVED and not message.dropped


def test_with_proc_null_there_is_no_message() -> None:
    rank = Rank()
    assert len(rank.call("Send", dest="MPI_PROC_NULL", comm="MPI_COMM_WORLD")) == 1
    assert [call.function for call in rank.call("Sendrecv", dest=1, source="MPI_PROC_NULL", comm="MPI_COMM_WORLD")] == [
        "Sendrecv", SENT,
    ]  # fmt: skip


# 3.8


def test_requests_are_told_apart_by_variable_when_made_and_by_number_when_completed() -> None:
    rank = Rank()
    first = rank.one("Isend", dest=1, comm="MPI_COMM_WORLD", request=0x5000, after={"request": 0x70})
    again = rank.one("Isend", dest=2, comm="MPI_COMM_WORLD", request=0x5000, after={"request": 0x70})
    other = rank.one("Isend", dest=3, comm="MPI_COMM_WORLD", request=0x5008, after={"request": 0x71})
    assert same(first, 7, again, 7) and not same(first, 7, other, 7)
    wait = rank.one("Wait", request=0x5000, before={"request": 0x70}, Request=2)
    assert same(again, 7, wait, 1) and not same(first, 7, wait, 1)


def test_an_array_is_equal_if_one_of_it_is() -> None:
    rank = Rank()
    made = [
        rank.one("Isend", dest=1, comm="MPI_COMM_WORLD", request=8 * at, after={"request": 9}) for at in range(1, 4)
    ]
    rows = {record.COMPLETED: [1, record.NONE, record.NONE, 3, record.NONE, record.NONE]}
    wait = rank.one("Waitsome", incount=3, before={"array_of_requests": [9, 9, 9]}, Rows=rows)
    assert [same(one, "request", wait, "array_of_requests") for one in made] == [True, False, True]
    assert same(made[0], "request", wait, "request")  # so that macros have one name
    assert [one.here for one in value(wait, "request").each] == [{("request", 1)}, {("request", 3)}]


def test_a_persistent_request_is_made_started_and_completed() -> None:
    rank = Rank()
    made = rank.one("Send_init", dest=1, tag=4, comm="MPI_COMM_WORLD", after={"request": 0x70})
    start, message = rank.call("Start", before={"request": 0x70}, Request=2, Rows={record.STARTED: [1, 2]})
    assert same(made, "request", start, "request") and message.function == SENT and message.pending
    assert value(message, "tag").number == 4 and value(message, "dest").across == {1}
    wait = rank.one("Wait", before={"request": 0x70}, Request=2)
    assert same(start, "request", wait, "request") and not message.pending
    freed = rank.one("Request_free", before={"request": 0x70}, Request=1)
    assert same(made, "request", freed, "request") and not same(wait, "request", freed, "request")


def test_of_requests_that_are_started_together_each_is_its_own() -> None:
    rank = Rank()
    made = [rank.one("Send_init", dest=1, comm="MPI_COMM_WORLD", after={"request": handle}) for handle in (7, 8)]
    start = rank.one("Startall", count=2, before={"array_of_requests": [7, 8]}, Rows={record.STARTED: [1, 3, 2, 4]})
    each = value(start, "request").each
    assert [[one.equals(value(init, "request"), True) for init in made] for one in each] == [
        [True, False],
        [False, True],
    ]


def test_a_test_that_found_nothing_has_no_arguments() -> None:
    rank = Rank()
    rank.one("Isend", dest=1, comm="MPI_COMM_WORLD", after={"request": 0x70})
    assert rank.one("Test", before={"request": 0x70}, after={"flag": 0}, Request=1).value(1) is None
    found = rank.one("Test", before={"request": 0x70}, after={"flag": 1}, Request=1, Flags=record.FOUND)
    assert value(found, 1).here == {("request", 1)}


def test_a_null_request_has_its_name() -> None:
    assert value(Rank().one("Wait", before={"request": "MPI_REQUEST_NULL"}), 1).names == {"MPI_REQUEST_NULL"}


@pytest.mark.parametrize(
    ("function", "arguments", "absent", "there"),
    [
        ("Gather", {"root": 1}, "recvbuf recvcount recvtype", "sendcount sendtype root"),
        ("Gather", {"root": 0}, "", "sendtype recvtype"),
        ("Gather", {"root": 0, "sendbuf": "MPI_IN_PLACE"}, "sendcount sendtype", "recvtype recvcount"),
        ("Igather", {"root": 2}, "recvtype", "sendtype"),
        ("Gather_init", {"root": 2}, "recvtype", "sendtype"),
        ("Scatter", {"root": 1}, "sendbuf sendcount sendtype", "recvcount recvtype"),
        ("Scatter", {"root": 0, "recvbuf": "MPI_IN_PLACE"}, "recvtype recvcount", "sendtype"),
        ("Allgather", {"sendbuf": "MPI_IN_PLACE"}, "sendtype sendcount", "recvtype"),
        ("Alltoall", {"sendbuf": "MPI_IN_PLACE"}, "sendtype sendcount", "recvtype recvcount"),
        ("Iallgather", {}, "", "sendtype recvtype"),
        ("Reduce", {"root": 1}, "recvbuf", "sendbuf datatype op"),
        ("Bcast", {"root": 1}, "", "datatype count"),
        ("Get_accumulate", {"op": "MPI_NO_OP"}, "origin_datatype origin_count", "target_rank result_count"),
        ("Get_accumulate", {"op": "MPI_SUM"}, "", "origin_count"),
    ],
)
def test_what_mpi_does_not_look_at_is_absent(function: str, arguments: dict[str, int], absent: str, there: str) -> None:
    types = dict.fromkeys(("sendtype", "recvtype", "datatype"), "MPI_INT")
    call = Rank().one(function, comm="MPI_COMM_WORLD", **{"op": "MPI_SUM", **types, **arguments})
    for name in absent.split():
        assert call.value(name) is None, name
    for name in there.split():
        value(call, name)


def test_beside_in_place_or_not_two_calls_are_not_alike() -> None:
    rank, types = Rank(), {"sendtype": "MPI_INT", "recvtype": "MPI_INT"}
    for place, there in ((0, True), ("MPI_IN_PLACE", False), (0, True)):
        call = rank.one("Allgather", comm="MPI_COMM_WORLD", sendbuf=place, **types)
        assert (call.value("sendtype") is not None) == there


def test_of_a_communicator_that_nobody_knows_nobody_knows_the_root() -> None:
    call = Rank().one("Gather", comm=0x999, root=0, sendtype="MPI_INT", recvtype="MPI_INT")
    assert call.value("recvtype") is None and call.value("sendtype") is not None


def test_between_groups_the_root_says_root_and_its_fellows_proc_null() -> None:
    """An intercommunicator of (0, 1) and (2, 3), as ranks 0, 1 and 2 have it."""
    for rank, root, absent, there in (
        (0, "MPI_ROOT", "recvtype", "sendtype"), (1, "MPI_PROC_NULL", "sendtype recvtype", "root"),
        (2, 0, "sendtype", "recvtype"),
    ):  # fmt: skip
        one = Rank(rank)
        mine, other = ("0-1", "2-3") if rank < 2 else ("2-3", "0-1")
        one.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members=mine, remote=other)
        call = one.one("Scatter", comm=0x900, root=root, sendtype="MPI_INT", recvtype="MPI_INT")
        for name in absent.split():
            assert call.value(name) is None, (rank, name)
        for name in there.split():
            value(call, name)
    assert value(call, "root").number == 0  # of the other group
    assert not value(call, "root").differs(value(call, "root"), False)


# Attributes, and traces that know no arguments.


def test_collective_calls_are_counted_on_each_communicator() -> None:
    first, second = Rank(0), Rank(1)
    for rank in (first, second):
        rank.call("Comm_dup", comm="MPI_COMM_WORLD", after={"newcomm": 0x900}, members="0-3")
    first.call("Barrier", comm="MPI_COMM_WORLD")
    one, other = first.one("Bcast", comm=0x900), second.one("Reduce", comm=0x900)
    assert same(one, "match", other, "match") and value(one, "function").differs(value(other, "function"), False)
    assert not same(one, "match", first.one("Barrier", comm=0x900), "match")


def test_a_hide_of_a_process_for_itself_has_no_counterpart() -> None:
    assert Rank().one("hide", Rows={record.ARGUMENTS: [5, 1]}).value("match") is None
    assert Rank().one("hide", Rows={record.ARGUMENTS: [5, 2]}).value("match") is not None


def test_hides_are_counted_and_have_their_step() -> None:
    rank = Rank()
    first, second = rank.one("hide", step=40), rank.one("hide", step=50)
    assert value(first, "step").number == 40 and not same(first, "match", second, "match")
    assert value(rank.one("Barrier", comm="MPI_COMM_WORLD"), "step").number == 50
    assert not same(second, "match", Rank(1).one("hide", step=1), "match")


def test_the_class_of_an_error_has_its_name() -> None:
    call = Rank().one("Send", dest=1, comm="MPI_COMM_WORLD", Result=4, State=record.RAISED)
    assert value(call, "result").names == {"MPI_ERR_TAG"} and value(call, "result").number == 4
    assert Rank().enter("Send", comm="MPI_COMM_WORLD")[1][0].value("result") is None


def test_a_trace_without_arguments_knows_peers_tags_and_communicators_alone() -> None:
    call = Rank().one("Send", Bare=True, Peer=2, Tag=7, Comm=record.WORLD)
    assert value(call, "dest").across == {2} and value(call, "tag").number == 7
    assert value(call, "comm").names == {"MPI_COMM_WORLD"} and call.value("datatype") is None
    recv = Rank().one("Recv", Bare=True, Peer=record.ANY_SOURCE, Tag=record.ANY_TAG, Comm=record.WORLD, Got_peer=1,
                      Got_tag=4)  # fmt: skip
    assert value(recv, "source").names == {"MPI_ANY_SOURCE"} and value(recv, "source").across == {1}
    assert value(recv, "tag").across == {4}


def test_what_the_tracer_does_not_know_is_absent() -> None:
    assert Rank().one("Send", count=ABSENT, comm="MPI_COMM_WORLD").value("count") is None
    assert Rank().one("Isend", request=ABSENT, comm="MPI_COMM_WORLD", Request=0).value("request") is None


def test_when_a_process_ends_nothing_is_pending() -> None:
    rank = Rank()
    _, message = rank.call("Irecv", source="MPI_ANY_SOURCE", tag=1, comm="MPI_COMM_WORLD", after={"request": 0x70})
    _, (recv, _) = rank.enter("Recv", source=1, comm="MPI_COMM_WORLD")
    number, calls = rank.enter("Isend", dest=1, comm="MPI_COMM_WORLD")
    assert calls == []  # such a call returns at once, and then its request is known
    late = rank.translator.end()
    assert [call.function for call in late] == ["Isend", SENT] and late[0].number >> 20 == number
    assert not any(call.pending for call in late)
    assert not message.pending and not recv.pending and value(message, "source").any
    assert CONSTANTS["MPI_ANY_SOURCE"] == -2
