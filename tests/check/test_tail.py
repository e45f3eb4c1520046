"""The notes of a rank, read while it writes them: each is given whole, in order, and with what belongs to it."""

from __future__ import annotations

import json
import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from testbed import traced
from testbed.noted import Noted, Rank, some

from safepoint.check.files import TraceError, ranks
from safepoint.check.tail import AHEAD, LEAST, MOST, Tail
from safepoint.check.tail import Noted as Note
from safepoint.matching import packed, reading
from safepoint.trace import record
from safepoint.trace.record import AFTER, ARGUMENTS, BEFORE, COMPLETED, EMPTY, ENTERED, HEADER, NOTE, RETURNED

STATE = NOTE - 1


def put(rank: Rank, number: int, state: int) -> None:
    """As the tracer does it: the last byte of a note."""
    rank.notes.map[HEADER + NOTE * number + STATE] = state


def row(rank: Rank, number: int, kind: int, *values: int) -> None:
    rank.notes.more(HEADER + NOTE * number, kind, values)


def everything(tail: Tail, most: int = MOST) -> list[Note]:
    found = list[Note]()
    while notes := tail.read(most):
        found += notes
    return found


def test_each_note_is_given_when_it_is_there_and_again_when_the_call_has_returned(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    tail, rank = Tail(tmp_path / "t", 0), trace[0]
    assert tail.read() == []
    rank.call("Barrier", 3)
    rank.call("Recv", 4, peer=0, tag=5, state=ENTERED)
    first = tail.read()
    assert [(note.number, note.state, tail.named.functions[note.function][0]) for note in first] == [
        (0, RETURNED, "Barrier"), (1, ENTERED, "Recv"),
    ]  # fmt: skip
    assert (first[1].peer, first[1].tag, tail.named.site(first[1].site).line, first[1].comm) == (0, 5, 4, 1)
    assert tail.read() == []
    put(rank, 1, RETURNED)
    assert [(note.number, note.state) for note in tail.read()] == [(1, RETURNED)]
    assert tail.read() == [] and not tail.closed
    rank.call("Barrier", 9)
    assert [note.number for note in tail.read()] == [2]
    trace.close()
    assert tail.read() == [] and tail.closed and tail.look() and tail.about["ended"] == "exit"


def test_no_note_is_given_past_one_that_is_only_being_written(tmp_path: Path) -> None:
    """Of two threads the second may be done first."""
    trace = Noted(tmp_path / "t", 1)
    for line in range(1, 4):
        trace[0].call("Barrier", line)
    put(trace[0], 1, EMPTY)
    tail = Tail(tmp_path / "t", 0)
    assert [note.number for note in tail.read()] == [0] and tail.read() == []
    put(trace[0], 1, ENTERED)
    assert [note.number for note in tail.read()] == [1, 2]


def test_rows_come_with_their_notes_and_results_only_when_the_call_has_returned(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    rank, tail = trace[0], Tail(tmp_path / "t", 0)
    row(rank, 0, ARGUMENTS, 7, record.ABSENT)
    row(rank, 0, BEFORE, 1, 2, 11, 12)
    rank.call("Waitall", 3, state=ENTERED)
    row(rank, 0, AFTER, 3, 1, 0)  # its values may only be half written
    assert [note.rows for note in tail.read()] == [{ARGUMENTS: [7, record.ABSENT], BEFORE: [1, 2, 11, 12]}]
    struct.pack_into("<q", rank.notes._more.map, rank.notes._more_at - 8, 44)
    put(rank, 0, RETURNED)
    assert [note.rows for note in tail.read()] == [
        {ARGUMENTS: [7, record.ABSENT], BEFORE: [1, 2, 11, 12], AFTER: [3, 1, 44]}
    ]
    row(rank, 0, COMPLETED, 5, -4, -4)  # later than anybody should
    assert [(note.number, note.rows) for note in tail.read()] == [(0, {COMPLETED: [5, -4, -4]})]
    row(rank, 1, ARGUMENTS)
    assert tail.read() == []  # of a note that is not there
    rank.call("Barrier", 3)
    assert [note.rows for note in tail.read()] == [{ARGUMENTS: []}]


def test_a_row_that_is_only_being_written_ends_the_rows_for_now(tmp_path: Path) -> None:
    """Length and note first, then the kind."""
    trace = Noted(tmp_path / "t", 1)
    (tmp_path / "t" / record.WATCH).write_text("{}")
    rank, tail = trace[0], Tail(tmp_path / "t", 0)
    kind = rank.notes._more_at + 16
    row(rank, 0, ARGUMENTS, 1)
    row(rank, 1, ARGUMENTS, 2)
    struct.pack_into("<q", rank.notes._more.map, kind, 0)
    rank.call("Barrier", 3)
    rank.call("Barrier", 4)
    assert tail.read() == []  # in check mode each note has a row, which cannot be read yet
    struct.pack_into("<q", rank.notes._more.map, kind, ARGUMENTS)
    assert [note.rows for note in tail.read()] == [{ARGUMENTS: [1]}, {ARGUMENTS: [2]}]
    rank.call("Barrier", 5)
    row(rank, 3, ARGUMENTS, 4)
    rank.call("Barrier", 6)
    assert tail.read() == [] and [note.rows for note in tail.read()] == [{}, {ARGUMENTS: [4]}]  # nor for ever


@pytest.mark.parametrize("most", [1, 64, MOST])
def test_what_a_call_has_written_is_found_behind_all_that_other_threads_did_meanwhile(
    tmp_path: Path, most: int
) -> None:
    trace, count = Noted(tmp_path / "t", 1), AHEAD + 2 * LEAST
    rank = trace[0]
    row(rank, 0, ARGUMENTS, 1)
    rank.call("Recv", 3)
    for number in range(1, count):
        row(rank, number, ARGUMENTS, number)
        rank.call("Barrier", 4, thread=1)
    row(rank, 0, AFTER, 3, 1, 0)
    trace.close()
    found = everything(Tail(tmp_path / "t", 0), most)
    assert [note.number for note in found] == list(range(count))
    assert [note.rows for note in found[:2]] == [{ARGUMENTS: [1], AFTER: [3, 1, 0]}, {ARGUMENTS: [1]}]


def same(trace: Path, rank: int, most: int = MOST) -> None:
    """What is given is what `matching.reading` reads."""
    tail, whole = Tail(trace, rank), reading.read(trace).ranks[rank]
    found = everything(tail, most)
    assert [tuple(note[1:-1]) for note in found] == [tuple(note.tolist()) for note in whole.notes]
    for note in found:
        if note.more:
            length, _, kind = whole.more[note.more : note.more + 3].tolist()
            assert note.rows[kind] == whole.more[note.more + 3 : note.more + 3 + length].tolist()
        else:
            assert note.rows == {}
    assert [(t.kind, t.note) for t in tail.named.things] == [(t.kind, t.note) for t in whole.things]
    tail.close()


@pytest.mark.parametrize("most", [1, 7, MOST])
def test_a_trace_that_is_finished_killed_or_packed_is_read_as_by_the_reader_of_whole_traces(
    tmp_path: Path, most: int
) -> None:
    some(tmp_path / "t").close(1)
    same(tmp_path / "t", 0, most)
    same(tmp_path / "t", 1, most)
    packed.pack(tmp_path / "t")
    assert not (tmp_path / "t/rank-00000.calls").exists()
    same(tmp_path / "t", 0, most)
    same(tmp_path / "t", 1, most)


@pytest.mark.proof
def test_more_than_a_segment_of_notes_and_rows_is_read_by_parts(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    rank, tail, count = trace[0], Tail(tmp_path / "t", 0), 2 * record.SEGMENT // NOTE + 100
    found = list[Note]()
    for number in range(count):
        row(rank, number, ARGUMENTS, number, -number)
        rank.call("Barrier", 3)
        if number in (10, 5000, 40000):
            found += tail.read()
    found += everything(tail)
    trace.close()
    again = everything(Tail(tmp_path / "t", 0))
    assert [note.number for note in found] == list(range(count)) and found == again
    assert all(note.rows == {ARGUMENTS: [note.number, -note.number]} for note in found)


def test_rows_that_other_threads_have_put_far_behind_are_given_with_their_note_again(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    rank, count = trace[0], MOST + 2 * AHEAD
    for _ in range(count):
        rank.call("Barrier", 3)
    for number in range(1, count):
        row(rank, number, ARGUMENTS, number)
    row(rank, 0, AFTER, 1, 1, 5)
    trace.close()
    found = everything(Tail(tmp_path / "t", 0))
    assert [note.rows for note in found if note.number == 0] == [{}, {AFTER: [1, 1, 5]}]
    assert {note.number: note.rows for note in found if note.number} == {n: {ARGUMENTS: [n]} for n in range(1, count)}


def test_what_is_no_trace_is_told_with_the_file_and_the_note(tmp_path: Path) -> None:
    where = tmp_path / "t"
    with pytest.raises(TraceError, match="No such file"):
        ranks(where)
    trace = Noted(where, 2)
    assert ranks(where) == [0, 1]
    with pytest.raises(TraceError, match=r"rank-00007\.json: No such file"):
        Tail(where, 7)
    trace[0].call("Barrier", 3)
    for offset, layout, value, why in (
        (16, "<I", 99, "its site is not among 1 lines"), (20, "<H", 999, "its function is in no table"),
        (52, "<I", 9, "its communicator, window or file is not among 2 lines"), (63, "<B", 9, "its last byte is none"),
        (0, "<Q", 2**63, "its time is none"),
    ):  # fmt: skip
        before = bytes(trace[0].notes.map[HEADER : HEADER + NOTE])
        struct.pack_into(layout, trace[0].notes.map, HEADER + offset, value)
        with pytest.raises(TraceError, match=rf"rank-00000\.calls: note 0: {why}"):
            Tail(where, 0).read()
        trace[0].notes.map[HEADER : HEADER + NOTE] = before
    row(trace[0], 0, ARGUMENTS, 1)
    struct.pack_into("<q", trace[0].notes._more.map, 24, 1 << 40)
    with pytest.raises(TraceError, match=r"rank-00000\.more: word 3: this is no row of note 0"):
        Tail(where, 0).read()
    os.truncate(where / "rank-00001.calls", 100)
    os.mkfifo(where / "pipe")
    os.replace(where / "pipe", where / "rank-00001.sites")
    with pytest.raises(TraceError, match="is no file"):
        Tail(where, 1)


@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(50, 400), marks=pytest.mark.proof)], ids=["few", "more"]
)
def test_damaged_files_end_in_a_told_error_and_take_no_more_memory_than_a_few_times_their_size(
    tmp_path: Path, seeds: range
) -> None:
    """Seeds are in the message."""
    seen = set[str]()
    for seed in seeds:
        draw, where = random.Random(seed), tmp_path / f"t{seed}"
        trace = some(where)
        trace.close(*([0, 1] if draw.random() < 0.5 else []))
        for path in where.iterdir():
            if path.stat().st_size > 1 << 20:
                os.truncate(path, 1 << 15)  # of zeros
        path = draw.choice(sorted(where.iterdir()))
        data = bytearray(path.read_bytes())
        for _ in range(draw.randint(1, 30)):
            if data:
                at = draw.randrange(min(len(data), 6000))
                data[at] = draw.choice((0, 1, 0xFF, draw.randrange(256)))
        path.write_bytes(data[: draw.randrange(len(data) + 1)] if draw.random() < 0.2 else data)
        size = sum(path.stat().st_size for path in where.iterdir())
        tracemalloc.start()
        for rank in (0, 1):
            try:
                tail = Tail(where, rank)
                everything(tail)
                for number in range(tail.named.sites + 2):
                    tail.named.site(number)
                tail.close()
                seen.add("read")
            except TraceError as error:
                seen.add(str(error).partition("t" + str(seed))[2].partition(":")[0])
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 20 * size + (4 << 20), f"seed {seed}: {path.name}"
    assert len(seen) > 5, seen


def test_a_hole_that_is_said_to_be_full_of_notes_is_not_read(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    trace[0].call("Barrier", 3)
    trace.close()
    calls = tmp_path / "t/rank-00000.calls"
    with calls.open("r+b") as file:
        file.write(record.HEAD.pack(record.MAGIC, NOTE, 1 << 40))
        file.truncate(1 << 42)
    tail = Tail(tmp_path / "t", 0)
    assert len(everything(tail)) == 1 and tail.torn


def test_a_program_is_followed_while_it_runs(tmp_path: Path) -> None:
    program = "from mpi4py import MPI\nfor i in range(200): MPI.COMM_WORLD.allreduce(i)\nMPI.COMM_SELF.Dup().Barrier()"
    assert traced.run(2, "-c", program, trace=tmp_path / "t").returncode == 0
    for rank in ranks(tmp_path / "t"):
        tail = Tail(tmp_path / "t", rank)
        names = [tail.named.functions[note.function][0] for note in everything(tail)]
        assert names == ["Allreduce"] * 200 + ["Comm_dup", "Barrier"]
        assert tail.named.key(1) == "world" and tail.named.key(2) == ("self", rank) and len(tail.named.things) == 3


def test_a_communicator_has_the_same_key_in_all_its_ranks_and_no_other_has_it(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 3)
    for rank in range(3):
        mine = trace[rank]
        mine.new_comm("Comm_dup", 3, [0, 1, 2])
        half = mine.new_comm("Comm_split", 4, [0, 1] if rank < 2 else [2])
        mine.new_comm("Comm_dup", 5, [0, 1, 2])
        mine.new_comm("Comm_dup", 6, [0, 1] if rank < 2 else [2], comm=half)
        if rank < 2:
            mine.new_comm("Intercomm_create", 7, [rank], comm=2, remote=str(1 - rank))
        mine.call("Barrier", 8)
    trace.close()
    keys = []
    for rank in range(3):
        tail = Tail(tmp_path / "t", rank)
        everything(tail)
        tail.named.refresh()
        keys.append(tail.named.keys)
    assert keys[0][0] == keys[1][0] == keys[2][0] and len({keys[0][1], keys[1][1], keys[2][1]}) == 3
    assert keys[0][2:] == keys[1][2:] and len(set(keys[0])) == 7 and set(keys[0]) & set(keys[2]) == {
        keys[0][0], keys[0][2], keys[0][4],
    }  # fmt: skip


def test_a_file_of_constants_is_read(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    (tmp_path / "t/rank-00000.constants").write_text(json.dumps({"MPI_ANY_TAG": -1, "x": "y"}))
    trace[0].call("Barrier", 3)
    tail = Tail(tmp_path / "t", 0)
    tail.read()
    assert tail.named.constants == {"MPI_ANY_TAG": -1}
