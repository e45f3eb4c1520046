"""Reading a trace: what is refused, what is judged up to where, and damage of all sorts."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.noted import Noted, some

from safepoint.errors import UsageError
from safepoint.matching import match, reading
from safepoint.matching.reading import TraceError, read
from safepoint.matching.symbols import Site
from safepoint.trace import record
from safepoint.trace.record import ENTERED, HEADER, NONE, NOTE


def say(path: Path, **more: Any) -> int:
    about = json.loads(path.read_text()) | more
    return path.write_text(json.dumps({name: value for name, value in about.items() if value is not None}))


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def in_note(note: int, field: str, value: int) -> Callable[[Path], object]:
    """Sets a field of a note of rank 1."""
    kind, offset = reading.NOTES.fields[field][:2]  # type: ignore[index]
    data = value.to_bytes(kind.itemsize, "little")
    return lambda trace: poke(trace / "rank-00001.calls", HEADER + note * NOTE + offset, data)


def test_a_whole_trace_is_read_without_a_remark(tmp_path: Path) -> None:
    trace = some(tmp_path / "t").read()
    assert (trace.size, [rank.rank for rank in trace.ranks], trace.remarks) == (2, [0, 1], [])
    notes = trace.ranks[1].notes
    assert len(notes) == 18
    first = notes[0]
    assert trace.functions[trace.ranks[1].functions[first["function"]]] == "Irecv"
    assert trace.sites[trace.ranks[1].sites[first["site"]]] == Site("solver.py", 10, "main")
    assert trace.ranks[1].things[2].members == ((0, 2),)
    matched = match.match(trace)
    assert (len(matched.never), matched.remarks, len(matched.messages)) == (0, [], 4)


def test_one_line_is_one_site_on_all_ranks_whatever_its_number(tmp_path: Path) -> None:
    written = Noted(tmp_path / "t", 2)
    for rank, lines in enumerate(([10, 11], [11, 10])):
        for line in lines:
            written[rank].call("Barrier", line)
    matched = written.matched()
    assert [matched.sites[site].line for site in matched.site] == [10, 11, 11, 10]
    assert len(matched.sites) == 3


def pipe(trace: Path) -> None:
    (trace / "rank-00001.sites").unlink()
    os.mkfifo(trace / "rank-00001.sites")


def later(trace: Path) -> None:
    about = json.loads((trace / "rank-00001.json").read_text())
    about["begin"][1] += 30 * 86400 * 10**9
    (trace / "rank-00001.json").write_text(json.dumps(about))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (lambda t: shutil.rmtree(t), "No such file"),
    "nothing in it": (
        lambda t: [path.rename(t.parent / path.name) for path in t.iterdir()],
        "is not a trace: it has no rank-00000.json",
    ),
    "a newer format": (lambda t: say(t / "rank-00001.json", format=2), "rank-00001.json: format 2 is newer"),
    "no format": (lambda t: say(t / "rank-00001.json", format=None), "rank-00001.json is not what a trace says"),
    "another rank": (lambda t: say(t / "rank-00001.json", rank=0), "rank-00001.json is not what"),
    "a huge size": (lambda t: [say(t / f"rank-0000{r}.json", size=10**9) for r in (0, 1)], "only 2 are here"),
    "another size": (lambda t: say(t / "rank-00001.json", size=3), "rank-00001.json: it is of another run"),
    "another program": (
        lambda t: say(t / "rank-00001.json", argv=["b.py"]),
        "another run than rank-00000.json: b.py on 2 ranks, and solver.py on 2",
    ),
    "no JSON": (lambda t: (t / "rank-00001.json").write_text("{"), "rank-00001.json: it is no object of JSON"),
    "deep JSON": (lambda t: (t / "rank-00001.json").write_text("[" * 10**5), "it is no object of JSON"),
    "a way out": (lambda t: say(t / "rank-00001.json", functions="../functions.json"), "is not what a trace says"),
    "no functions": (lambda t: (t / "functions-python.json").unlink(), "functions-python.json: No such file"),
    "no function": (
        lambda t: (t / "functions-python.json").write_text('{"70000": ["a", "b"]}'), "the row of '70000' is no function"
    ),
    "no notes": (lambda t: (t / "rank-00001.calls").unlink(), "rank-00001.calls: No such file"),
    "other notes": (lambda t: poke(t / "rank-00001.calls", 0, b"#!"), "does not begin as notes do"),
    "newer notes": (lambda t: poke(t / "rank-00001.calls", 7, b"2"), "rank-00001.calls: its format is not known here"),
    "a state": (in_note(4, "state", 9), "rank-00001.calls: note 4: its last byte"),
    "a function": (in_note(4, "function", 999), "note 4: its function is in no table"),
    "a site": (in_note(4, "site", 99), "note 4: its site is not among 17 lines"),
    "a communicator": (in_note(4, "comm", 99), "note 4: its communicator, window or file is not among 5 lines"),
    "a time": (in_note(4, "enter", 1 << 62), "note 4: its time is none"),
    "a row that is none": (in_note(5, "more", 9999), r"note 5: its row in .more is not there"),
    "a row of another": (in_note(5, "more", 3), r"note 5: its row in .more is not there"),
    "a row of another, alone": (
        lambda t: [in_note(2, "more", 0)(t), in_note(5, "more", 3)(t)], r"note 5: its row in .more is not there"
    ),
    "a long row": (lambda t: poke(t / "rank-00001.more", 24, (999).to_bytes(8, "little")), "note 2: its row in .more"),
    "an odd row": (lambda t: poke(t / "rank-00001.more", 24, (5).to_bytes(8, "little")), "note 2: its row in"),
    "two rows in one": (
        lambda t: poke(t / "rank-00001.more", 24, (12).to_bytes(8, "little")), "note 5: its row in .more is not there"
    ),
    "a pipe": (pipe, "rank-00001.sites is no file"),
    "a file of holes": (lambda t: os.truncate(t / "rank-00001.sites", 20 << 30), "are too many"),
    "a rank twice": (lambda t: shutil.copy(t / "rank-00001.json", t / "rank-000001.json"), "are of the same rank"),
    "parts of two runs": (later, "these are parts of several runs"),
    "a thing": (lambda t: (t / "rank-00001.objects").write_text("[]\n"), "rank-00001.objects: line 1: "),
    "a deep thing": (lambda t: (t / "rank-00001.objects").write_text("[" * 10**5 + "\n"), "objects: line 1: "),
    "no world": (
        lambda t: (t / "rank-00001.objects").write_text('{"kind": "comm", "members": "1"}\n'),
        "rank-00001.objects: line 1: this is not MPI_COMM_WORLD",
    ),
    "many members": (
        lambda t: (t / "rank-00001.objects").write_text('{"kind": "comm", "members": "0-999999999"}\n'),
        "line 1: '0-999999999' are no ranks of 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_trace_is_refused_and_says_which_file_and_why(tmp_path: Path, name: str) -> None:
    some(tmp_path / "t").close()
    damage, said = REFUSED[name]
    damage(tmp_path / "t")
    with pytest.raises(TraceError) as refused:
        read(tmp_path / "t")
    assert said in str(refused.value) and isinstance(refused.value, UsageError)


def test_a_missing_rank_is_named_and_what_it_shares_is_never_legal(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    for path in (tmp_path / "t").glob("rank-00001.*"):
        path.unlink()
    trace = read(tmp_path / "t")
    matched = match.match(trace)
    assert matched.remarks == ["rank 1 of 2 left no notes here: what others share with it is never whole"]
    assert (matched.ranks, matched.begins[1], matched.begins[2]) == (2, 16, 16)
    shared = {"Isend", "Start", "Comm_dup", "Probe", "Mprobe", "Win_create", "Win_fence", "Ibarrier", "Test",
              "Waitall", "Waitsome", "Intercomm_create", "Comm_free"}  # fmt: skip
    assert {matched.functions[function] for function in matched.function[matched.never]} == shared - {"Mprobe"} | {
        "Mprobe"
    }


def test_a_rank_that_was_killed_is_judged_up_to_its_last_whole_note(tmp_path: Path) -> None:
    written = some(tmp_path / "t")
    written[1].call("Recv", 30, peer=0, tag=9, state=ENTERED)
    trace = written.read(1)
    assert [len(rank.notes) for rank in trace.ranks] == [18, 19]
    assert trace.remarks == ["rank 1 was killed, or still runs: it is judged up to its 19 notes"]


def test_a_rank_that_stopped_noting_says_why(tmp_path: Path) -> None:
    written = some(tmp_path / "t")
    written[1].notes.say(stopped="No space left on device")
    assert written.read().remarks == ["rank 1 stopped noting after 18 calls: No space left on device"]


def test_a_short_file_of_notes_is_judged_up_to_there(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    os.truncate(tmp_path / "t/rank-00001.calls", HEADER + 7 * NOTE + 30)
    for name in ("sites", "objects"):  # of what comes after, nothing need be there
        lines = (tmp_path / f"t/rank-00001.{name}").read_text().splitlines(keepends=True)
        (tmp_path / f"t/rank-00001.{name}").write_text("".join(lines[: {"sites": 7, "objects": 3}[name]]))
    trace = read(tmp_path / "t")
    assert len(trace.ranks[1].notes) == 7
    assert trace.remarks == ["rank 1: 7 of its 18 notes are here: it is judged up to there"]


@pytest.mark.parametrize(
    ("name", "lines", "notes", "said"),
    [
        ("sites", 9, 10, "its site is not among 9 lines"),
        ("objects", 2, 4, "its communicator, window or file is not among 2 lines"),
    ],
)
def test_the_notes_of_a_killed_rank_end_before_the_first_that_refers_to_what_is_torn(
    tmp_path: Path, name: str, lines: int, notes: int, said: str
) -> None:
    some(tmp_path / "t").close(1)
    path = tmp_path / f"t/rank-00001.{name}"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:lines]) + whole[lines][:-3])
    trace = read(tmp_path / "t")
    assert len(trace.ranks[1].notes) == notes
    assert trace.remarks[1] == f"rank 1: its notes end before note {notes} of 18: {said}"
    match.match(trace)


def test_an_empty_note_is_the_end_of_a_killed_rank_and_a_call_that_raised_of_another(tmp_path: Path) -> None:
    """A call whose arguments cannot be noted takes a place, and raises."""
    some(tmp_path / "t").close(1)
    for rank in range(2):
        poke(tmp_path / f"t/rank-0000{rank}.calls", HEADER + 6 * NOTE, bytes(NOTE))
    trace = read(tmp_path / "t")
    assert [len(rank.notes) for rank in trace.ranks] == [18, 6]
    matched = match.match(trace)
    assert 6 not in matched.record[: matched.begins[1]]


def test_two_threads_on_one_communicator_are_refused_with_their_calls(tmp_path: Path) -> None:
    written = some(tmp_path / "t")
    written[1].call("Send", 30, comm=3, peer=0, tag=5, thread=1)
    with pytest.raises(TraceError, match=r"rank 1: two threads .*Send_init at solver.py:14 in thread 0, and Send at "
                                         r"solver.py:30 in thread 1"):  # fmt: skip
        written.read()


def test_two_threads_on_communicators_of_their_own_are_noted(tmp_path: Path) -> None:
    written = some(tmp_path / "t")
    written[1].call("Send", 30, comm=2, peer=0, tag=5, thread=1)
    written[1].call("Recv", 30, comm=2, peer=0, tag=5, thread=1)
    written[1].call("Waitall", 30, comm=0, thread=1)
    with pytest.raises(TraceError, match="two threads"):  # Intercomm_create over MPI_COMM_SELF
        written.read()
    own = Noted(tmp_path / "own", 1)
    own[0].call("Barrier", 30)
    own[0].call("Send", 30, comm=2, peer=0, tag=5, thread=1)
    assert own.read().remarks == ["rank 0 calls MPI in 2 threads: its calls are in the order in which they began"]


# Damage: more of it is in test_damaged.


def test_a_file_that_is_one_great_hole_takes_no_memory(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    for name in ("calls", "more"):
        path = tmp_path / f"t/rank-00001.{name}"
        poke(path, 16, (1 << 32).to_bytes(8, "little"))
        os.truncate(path, 1 << 36)
    tracemalloc.start()
    assert len(read(tmp_path / "t").ranks[1].notes) == 18
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_tag_of_64_bits_is_that_of_no_message(tmp_path: Path) -> None:
    for tag in (2**63 - 1, -(2**63)):
        written = Noted(tmp_path / str(tag), 1)
        written[0].call("Irecv", 10, peer=-1, tag=-1, request=1)
        written[0].call("Send", 11, peer=0, tag=5)
        written[0].call("Waitall", 12, comm=0, row=(1, 0, tag))
        assert written.matched().never.tolist() == [1, 2]


def test_many_notes_cannot_share_one_row(tmp_path: Path) -> None:
    written = Noted(tmp_path / "t", 1)
    for _ in range(2):
        written[0].call("Waitall", 10, comm=0, row=(1, NONE, NONE) * 100)
    written.close()
    calls, more = tmp_path / "t/rank-00000.calls", tmp_path / "t/rank-00000.more"
    # A row of note 1 that begins inside of that of note 0.
    poke(more, 8 * (record.HEAD.size // 8 + 6), b"".join(n.to_bytes(8, "little") for n in (3, 1, record.COMPLETED)))
    poke(calls, HEADER + NOTE + record.MORE, (record.HEAD.size // 8 + 6).to_bytes(4, "little"))
    with pytest.raises(TraceError, match=r"note 1: its row in .more is not there"):
        read(tmp_path / "t")
