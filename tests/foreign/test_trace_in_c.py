"""The tracer of C and Fortran: what a program does, and nothing else, is in its trace, whatever becomes of it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import launcher
import pytest
import testbed.traced
from testbed import flying
from testbed.checked import MORE, Noted, read
from testbed.foreign import (
    MPICH,
    OPEN_MPI,
    PATIENCE,
    SOURCES,
    Mpi,
    each_mpi,
    environment,
    needs,
    program,
    ran,
    tracer,
)
from testbed.sweep import LONG, some_of
from testbed.waiting import wait_for

from safepoint.errors import UsageError
from safepoint.matching import symbols
from safepoint.matching.symbols import Site
from safepoint.trace import linked, pmpi, record, roles

pytestmark = [needs("cc", "mpicc.mpich"), pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")]
BINDINGS = "HEADER", "MODULE", "TYPES"  # mpif.h, use mpi, use mpi_f08


class Rank(NamedTuple):
    """What a rank has noted."""

    about: dict[str, Any]
    notes: list[Noted]
    objects: list[dict[str, Any]]
    states: bytes  # of all notes for which there is space

    def maker(self, thing: dict[str, Any]) -> str:
        return f"of {self.notes[thing['note']].function}" if thing["note"] >= 0 else ""


def noted(directory: Path, rank: int) -> Rank:
    names = record.names(directory, rank)
    states = names.calls.read_bytes()[record.HEADER :][63 :: record.NOTE]
    objects = list(map(json.loads, names.objects.read_text().splitlines()))
    return Rank(json.loads(names.about.read_text()), read(directory, rank), objects, states)


def traced(work: Path, mpi: Mpi, ranks: int, *command: object, **more: str) -> tuple[Path, str, str]:
    """The trace, and what the program printed on both channels; it has ended well."""
    directory = work / "run.trace"
    directory.mkdir()
    words = {"SAFEPOINT_TRACE": str(directory), "LD_PRELOAD": tracer(mpi.cc), **MORE, **more}
    status, out, said = ran(work, *mpi.started(ranks, *command), more=words)
    assert status == 0, said
    return directory, out, said


def calls(mpi: Mpi, binding: str) -> Path:
    if not binding:
        return program("trace_calls.c", mpi, "-g", "-w")
    return program("trace_calls.f90", mpi, "-g", "-cpp", "-w", "-fallow-argument-mismatch", f"-DWITH_{binding}")


def cases(mpi: Mpi) -> Path:
    return program("trace_cases.c", mpi, "-g", "-w", "-pthread", "-ldl")


# What is noted.


@pytest.mark.parametrize("binding", ["", *some_of(BINDINGS, 1, 3)])
@each_mpi
def test_the_notes_of_a_program_are_the_same_in_each_language_and_mpi(mpi: Mpi, binding: str, tmp_path: Path) -> None:
    """Traps 8 and 9: one note a call, whatever the binding calls inside; constants, requests, sources and tags."""
    directory, *_ = traced(tmp_path, mpi, 2, calls(mpi, binding))
    expected = (SOURCES / "trace_calls.txt").read_text().split("\n\n")
    for rank in range(2):
        found = noted(directory, rank)
        known = [str(note) for note in found.notes if note.acts]
        things = [
            " ".join(filter(None, (thing["kind"], found.maker(thing), thing["members"], thing.get("remote"))))
            for thing in found.objects
        ]
        assert "\n".join(known + things) == expected[rank].strip(), rank
        assert {note.state for note in found.notes} == {record.RETURNED} and found.about["ended"] == "finalize"
        times = [time for note in found.notes for time in (note.enter, note.leave)]
        assert times == sorted(times)
        if binding in ("", "HEADER"):  # gfortran has other lines for what the modules rename
            lines_are_those_of_the_program(found, calls(mpi, binding))


def lines_are_those_of_the_program(found: Rank, exe: Path) -> None:
    """And not of a binding."""
    source = SOURCES / exe.name.partition("-")[0]
    text = source.read_text().splitlines()
    for note, site in zip(found.notes, symbols.sites([note.site for note in found.notes]), strict=True):
        assert site.file == str(source) and f"MPI_{note.function}(" in text[site.line - 1], (note, site)


@each_mpi
def test_a_hide_is_noted_with_its_line_and_no_call_of_the_library_is(mpi: Mpi, tmp_path: Path) -> None:
    """In C by the header, in Fortran by the first address that is not the library's."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("1")
    for source, steps in ("trace_saves.c", (10, 2**63)), ("trace_saves.f90", (10, 2**63)):
        exe = program(source, mpi, *(["-g"] if source.endswith("f90") else []))  # the header of C knows the line
        directory, *_ = traced(tmp_path, mpi, 2, exe)
        for rank in range(2):
            found = noted(directory, rank)
            assert [note.function for note in found.notes] == ["Recv" if rank else "Send", "hide", "hide", "Finalize"]
            hides = found.notes[1:3]
            assert tuple(note.bytes for note in hides) == steps
            text = (SOURCES / source).read_text().splitlines()
            for note in hides:
                file, line = note.place.split(":")
                assert file == source and "safepoint_hide(" in text[int(line) - 1], (file, line)
        shutil.rmtree(directory)
        shutil.rmtree(tmp_path / ".safepoint.d")


FLIGHTS = {
    "eager": "a message of 4 bytes from rank {other} to rank {last}, with tag 9",
    "posted": "a message between rank {other} and rank {last}, whose lines",
    "probed": "a message between rank {other} and rank {last}, whose lines",
    "open": "a request of rank {last} that is open, whose line",
    "part": "a message between rank 0 and rank 1, whose lines",  # of a session on some ranks, in another order
}


@each_mpi
@pytest.mark.parametrize("kind", some_of([*FLIGHTS], 2, 5))
def test_a_hide_in_c_finds_what_is_under_way_and_no_rank_takes_a_set(mpi: Mpi, tmp_path: Path, kind: str) -> None:
    (tmp_path / ".safepoint").write_text("u-*.dat\n")
    directory, out, said = traced(tmp_path, mpi, 3, program("trace_flight.c", mpi), kind)
    assert sorted(out) == sorted("0 10 0\n" * (2 if kind == "part" else 3)), (out, said)  # lines may be mixed
    assert FLIGHTS[kind].format(other=1, last=2) in said
    assert sum(note.function == "mark" for note in noted(directory, 1).notes) == 3


@each_mpi
def test_a_hide_in_c_without_a_tracer_looks_for_messages_as_before(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-*.dat\n")
    for kind, found in ("eager", "10"), ("posted", "0"):
        status, out, said = ran(tmp_path, *mpi.started(3, program("trace_flight.c", mpi), kind), more=MORE)
        assert status == 0 and sorted(out) == sorted(f"0 {found} 0\n" * 3), (kind, out, said)  # lines may be mixed
        shutil.rmtree(tmp_path / ".safepoint.d")


@each_mpi
def test_a_request_is_that_which_was_waited_for_if_many_have_one_handle(mpi: Mpi, tmp_path: Path) -> None:
    """Sends that are complete at once may be equal: the variable tells them apart. What was cancelled is no message."""
    directory, *_ = traced(tmp_path, mpi, 2, cases(mpi), "alike")
    sender, receiver = (noted(directory, rank).notes for rank in range(2))
    assert [note.request for note in sender if note.function == "Isend"] == list(range(1, 1001))
    assert [note.request for note in sender if note.function == "Wait"] == list(range(2, 1001, 2))
    assert next(note for note in sender if note.function == "Waitall").row[::3] == tuple(range(1, 1001, 2))
    row = next(note for note in receiver if note.function == "Waitall").row
    assert row[::3] == tuple(range(1, 1001))
    assert row[1::3] == (0, record.CANCELLED) * 500 and row[2::6] == tuple(range(0, 1000, 2))


@each_mpi
def test_a_request_is_that_which_was_waited_for_in_whatever_order_handles_come(mpi: Mpi, tmp_path: Path) -> None:
    directory, *_ = traced(tmp_path, mpi, 2, cases(mpi), "shuffled")
    notes = noted(directory, 1).notes
    tags = {note.request: note.tag for note in notes if note.function == "Irecv"}
    waited = [note for note in notes if note.function == "Wait"]
    assert [tags[note.request] for note in waited] == [note.got_tag for note in waited] == list(range(1000))


@each_mpi
def test_what_a_communicators_own_error_handler_refuses_does_not_end_the_program(mpi: Mpi, tmp_path: Path) -> None:
    _, out, _ = traced(tmp_path, mpi, 2, cases(mpi), "refused")
    assert sorted(out.splitlines()) == ["clean 0 0 0 0", "refused 1 1", "refused 1 1"]


@each_mpi
def test_the_counters_know_each_message_that_is_under_way(mpi: Mpi, tmp_path: Path) -> None:
    """One that nobody has asked for, one that Mprobe has taken, and one for which a receive is posted."""
    _, out, _ = traced(tmp_path, mpi, 2, cases(mpi), "counters")
    assert out.splitlines() == [
        "clean 0 0 0 0", "eager 1 0 0 0", "probed 1 0 0 0", "clean 0 0 0 0", "posted 1 1 0 0", "clean 0 0 0 0",
        "clean 0 0 0 0", "put 0 0 2 0", "clean 0 0 0 0",
    ]  # fmt: skip


@each_mpi
def test_a_callback_is_inside_its_call_and_no_argument_is_looked_at_that_does_not_count(
    mpi: Mpi, tmp_path: Path
) -> None:
    """The types that a call does not use may be anything: to ask MPI about them would end the program."""
    directory, out, _ = traced(tmp_path, mpi, 2, cases(mpi), "odd")
    for rank in range(2):
        notes = noted(directory, rank).notes
        assert [note.function for note in notes] == ["Allreduce", "Scatter", "Allgather", "Send", "Waitall", "Finalize"]
        failed = notes[3]
        assert (failed.state, failed.result, failed.peer) == (record.RAISED, 6, 99)  # MPI_ERR_RANK
    assert out == "clean 0 0 0 0\n"


@each_mpi
def test_a_handle_that_is_given_again_is_another_communicator(mpi: Mpi, tmp_path: Path) -> None:
    directory, *_ = traced(tmp_path, mpi, 2, cases(mpi), "freed")
    found = noted(directory, 0)
    barriers = [note.comm for note in found.notes if note.function == "Barrier"]
    assert barriers == [note.comm for note in found.notes if note.function == "Comm_free"] == list(range(3, 53))
    assert [thing["members"] for thing in found.objects[2:]] == ["0", "0-1"] * 25
    assert [thing["note"] for thing in found.objects[2:]] == list(range(0, 150, 3))


@each_mpi
def test_a_topology_with_fewer_processes_has_these_members(mpi: Mpi, tmp_path: Path) -> None:
    directory, *_ = traced(tmp_path, mpi, 3, cases(mpi), "topology")
    for rank in range(3):
        members = [thing["members"] for thing in noted(directory, rank).objects[2:]]
        assert members == (["0-1"] * 2 if rank < 2 else [])


def test_large_counts_are_the_same_functions(tmp_path: Path) -> None:
    """Trap 7: what mpi4py calls where there is MPI 4."""
    directory, *_ = traced(tmp_path, MPICH, 2, cases(MPICH), "large")
    assert [str(note) for note in noted(directory, 1).notes] == [
        "Recv comm=1 peer=-1 tag=1 got_peer=0 got_tag=1 bytes=4 flags=2", "Bcast comm=1 peer=0 bytes=4",
        "Iallgather comm=1 bytes=4 request=1", "Wait request=1", "Finalize",
    ]  # fmt: skip


IN_PYTHON = """
from array import array
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, got = world.Get_rank(), array("i", [0])
request = world.Irecv(got, source=MPI.ANY_SOURCE, tag=3)
world.Send(array("i", [rank]), dest=1 - rank, tag=3)
MPI.Request.Waitall([request])
world.Split(rank).Free()
"""


def test_a_program_in_python_is_seen_too(tmp_path: Path) -> None:
    """With the library that its mpi4py has loaded. Trap 7: where there is MPI 4, mpi4py calls MPI_Send_c."""
    pytest.importorskip("mpi4py")
    try:
        library = tracer(pmpi.mpicc_for(sys.executable))
    except UsageError as error:
        pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    directory = tmp_path / "run.trace"
    directory.mkdir()
    more = {"SAFEPOINT_TRACE": str(directory), "LD_PRELOAD": library}
    status, _, said = ran(tmp_path, launcher.mpiexec(), "-n", 2, sys.executable, "-c", IN_PYTHON, more=more)
    assert status == 0, said
    assert [str(note) for note in noted(directory, 1).notes] == [
        "Irecv comm=1 peer=-1 tag=3 bytes=4 request=1 flags=2", "Send comm=1 peer=0 tag=3 bytes=4", "Waitall row=1,0,3",
        "Comm_split comm=1", "Comm_free comm=3", "Finalize",
    ]  # fmt: skip


@testbed.traced.libraries
def test_with_both_a_call_has_its_line_of_python_and_hide_knows_what_is_under_way(tmp_path: Path, library: str) -> None:
    """Trap 10. What the library sends itself in hide is not noted; the lines of others are as they were."""
    if library == "mpich":
        try:
            pmpi.mpicc_for(sys.executable)
        except UsageError as error:
            pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    kinds = {"irecv": "a message between rank 0 and rank 1", "open": "a request of rank 1 that is open",
             "eager": "a message between rank 0 and rank 1"}  # fmt: skip
    flying.directories(tmp_path, *kinds)
    (tmp_path / "solver.py").write_text(flying.PROGRAM)
    trace, words = tmp_path / "run.trace", (str(tmp_path / "solver.py"), "warn", *kinds)
    done = testbed.traced.run(2, *words, library=library, trace=trace, cwd=tmp_path, tracer="both")
    assert done.returncode == 0, done.stderr
    found = noted(trace, 0), noted(trace, 1)
    sends = [note for note in found[0].notes if note.function == "Send"]
    assert [note.place for note in sends] == [f"solver.py:{flying.SENT}"] * 3
    hides = [[note.place for note in rank.notes if note.function == "hide"] for rank in found]
    assert hides == [[f"solver.py:{flying.line('safepoint.hide')}"] * 9] * 2
    assert not any(note.function in ("Ibarrier", "Iprobe", "Allreduce") for rank in found for note in rank.notes)
    said = re.findall("WARNING:safepoint:(.*), is in flight across", done.stderr)
    assert len(said) == 3 and all(map(str.startswith, said, kinds.values())), done.stderr


@each_mpi
def test_another_tracer_says_the_line_or_that_nothing_is_to_be_noted(mpi: Mpi, tmp_path: Path) -> None:
    """Trap 10: C cannot ask Python for its line."""
    directory, *_ = traced(tmp_path, mpi, 1, cases(mpi), "sited")
    found = noted(directory, 0)
    assert [note.function for note in found.notes] == ["Barrier", "hide", "mark", "Finalize"]
    assert [note.place for note in found.notes[:2]] == ["solver.py:12"] * 2
    assert found.notes[2].place.startswith("trace_cases.c:") and found.notes[1].bytes == 2**64 - 7


@each_mpi
def test_threads_are_told_apart_and_none_loses_a_note(mpi: Mpi, tmp_path: Path) -> None:
    calls = 300
    directory, out, _ = traced(tmp_path, mpi, 1, cases(mpi), "threads", calls)
    found = noted(directory, 0)
    assert out == "threads 0 0 0 1\n"
    for thread in range(1, 4):
        notes = [note for note in found.notes if note.thread == thread]
        assert Counter(note.function for note in notes) == dict.fromkeys(("Irecv", "Isend", "Waitall"), calls)
        for at in range(0, 3 * calls, 3):
            receive, send, wait = notes[at : at + 3]
            assert wait.row == (receive.request, 0, at // 3, send.request, record.NONE, record.NONE)


# What becomes of the program.


@each_mpi
def test_the_child_of_a_fork_notes_nothing(mpi: Mpi, tmp_path: Path) -> None:
    directory, out, _ = traced(tmp_path, mpi, 1, cases(mpi), "forked")
    found = noted(directory, 0)
    assert [note.function for note in found.notes] == ["Isend", "Recv", "Wait"] * 2 + ["Finalize"]
    assert out == "child 0, note 3 is 0\n"


@each_mpi
def test_a_kill_at_any_call_leaves_all_notes_up_to_the_call_it_was_in(mpi: Mpi, tmp_path: Path) -> None:
    rng = random.Random(4)
    for round in range(200 if LONG else 2):
        killed(tmp_path / f"{round}.trace", mpi, round % 2, rng.randrange(1, 20_000), "loop", 10**9)
        for rank in range(2):
            found = noted(tmp_path / f"{round}.trace", rank)
            states = found.states.rstrip(b"\0")
            assert states[:-1] == bytes([record.RETURNED]) * (len(states) - 1), (round, rank)
            assert not states or states[-1] in (record.ENTERED, record.RETURNED)
            assert len(states) == len(found.notes) and (found.about["ended"] is None or rank != round % 2)
            for at, note in enumerate(found.notes[:-1]):
                assert note.function == ("Irecv", "Send", "Wait")[at % 3]


def killed(directory: Path, mpi: Mpi, rank: int, after: int, *words: object) -> None:
    """Start two ranks, and kill one of them when both have noted so many calls."""
    directory.mkdir()
    more = {"SAFEPOINT_TRACE": str(directory), "LD_PRELOAD": tracer(mpi.cc)}
    job = subprocess.Popen(mpi.started(2, cases(mpi), *words), env=environment(**more), cwd=directory,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    names = [record.names(directory, rank) for rank in range(2)]
    wait_for(lambda: all(one.about.exists() and record.count(one.calls) >= after for one in names))
    os.kill(json.loads(record.names(directory, rank).about.read_text())["pid"], signal.SIGKILL)
    job.wait(PATIENCE)


@each_mpi
def test_a_rank_that_waits_for_ever_shows_for_what(mpi: Mpi, tmp_path: Path) -> None:
    directory = tmp_path / "run.trace"
    killed(directory, mpi, 1, 1, "waits")
    for rank in range(2):
        (note,) = noted(directory, rank).notes
        assert (note.function, note.peer, note.tag, note.state, note.leave) == ("Recv", 1 - rank, 7, record.ENTERED, 0)


@each_mpi
def test_at_its_limit_a_rank_says_so_once_and_the_program_goes_on(mpi: Mpi, tmp_path: Path) -> None:
    directory, out, said = traced(tmp_path, mpi, 2, cases(mpi), "loop", 12000, SAFEPOINT_TRACE_LIMIT=str(5 << 20))
    assert out.count("ended") == 2
    assert sorted(line for line in said.splitlines() if "safepoint" in line) == [
        f"safepoint trace: rank {rank} stopped noting: the limit of {5 << 20} bytes" for rank in range(2)
    ]
    found = noted(directory, 1)
    assert len(found.notes) == (record.SEGMENT - record.HEADER) // record.NOTE
    assert found.about["stopped"] == f"the limit of {5 << 20} bytes"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 11 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a tmpfs")
    where = tmp_path / "small"
    where.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=11m", "none", str(where)], capture_output=True).returncode:
        pytest.skip("needs a kernel that mounts a tmpfs")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_ends_the_noting_and_not_the_program(small: Path) -> None:
    """No SIGBUS: a segment has its space before anything is written there."""
    directory, out, said = traced(small, MPICH, 2, cases(MPICH), "loop", 30000)
    assert out.count("ended") == 2
    assert sorted(said.splitlines()) == [
        f"safepoint trace: rank {rank} stopped noting: No space left on device" for rank in range(2)
    ]
    notes = [len(noted(directory, rank).notes) for rank in range(2)]
    assert {count * record.NOTE + record.HEADER for count in notes} <= {record.SEGMENT, 2 * record.SEGMENT}


def test_files_that_the_program_closes_are_not_written_any_more(tmp_path: Path) -> None:
    """Their numbers may be those of its own files then."""
    _, out, said = traced(tmp_path, MPICH, 1, cases(MPICH), "closed")
    assert out == "ended\n" and said.count("stopped noting: the program has closed its files") == 1
    assert [path.stat().st_size for path in tmp_path.glob("mine-*")] == [0] * 8


def test_two_programs_of_one_rank_do_not_share_a_file(tmp_path: Path) -> None:
    directory, *_ = traced(tmp_path, MPICH, 1, cases(MPICH), "forked")
    before = noted(directory, 0)
    more = {"SAFEPOINT_TRACE": str(directory), "LD_PRELOAD": tracer(MPICH.cc)}
    status, _, said = ran(tmp_path, *MPICH.started(1, cases(MPICH), "forked"), more=more)
    assert status == 0 and "rank-00000.calls is there already: another process notes as this rank" in said
    assert noted(directory, 0) == before


# How it is built.


@each_mpi
def test_each_function_of_an_mpi_h_is_known_and_has_the_arguments_of_the_table(mpi: Mpi) -> None:
    """Trap 6. A part of an argument has its type in C."""
    text = pmpi.header(mpi.cc)
    assert pmpi.unknown(text) == []
    types = {"comm": "MPI_Comm", "win": "MPI_Win", "file": "MPI_File", "request": "MPI_Request", "type": "MPI_Datatype",
             "status": "MPI_Status", "message": "MPI_Message", "op": "MPI_Op", "newcomm": "MPI_Comm"}  # fmt: skip
    types |= dict.fromkeys(
        ("dest", "source", "tag", "root", "target", "recvtag", "flag", "index", "outcount", "n"), "int"
    )
    seen = set()
    for prototype in pmpi.wrapped(text):
        role = roles.ROLES.get(prototype.standard)
        for part, parameter in zip(role.arguments if role else (), prototype.parameters, strict=False):
            assert part not in types or types[part] in parameter.split(), (prototype.name, part, parameter)
        seen.add(prototype.standard)
    assert len(seen) > 170


PROTOTYPES = """
# 12 "mpi.h"
typedef int (MPI_Datarep_function)(void *, int);
int MPI_Send(const void *buf, int count) __attribute__((pointer_with_type_tag(MPI,1,3))) __attribute__((cold));
__attribute__((visibility("default"))) extern  int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3],
    MPI_Group *newgroup);
double MPI_Wtime(void);
"""


def test_prototypes_are_read_as_a_preprocessor_gives_them() -> None:
    assert [tuple(prototype) for prototype in pmpi.prototypes(PROTOTYPES)] == [
        ("MPI_Send", "int", ("const void *buf_", "int count_"), ("buf_", "count_")),
        ("MPI_Group_range_incl", "int", ("MPI_Group group_", "int n_", "int ranges_[][3]", "MPI_Group *newgroup_"),
         ("group_", "n_", "ranges_", "newgroup_")),
        ("MPI_Wtime", "double", (), ()),
    ]  # fmt: skip


@each_mpi
def test_the_compiler_is_that_beside_the_library_of_the_program(mpi: Mpi) -> None:
    found = pmpi.mpicc_for(str(cases(mpi)))
    assert linked._is_of(found, linked._linked(str(cases(mpi))))
    other = MPICH if mpi is OPEN_MPI else OPEN_MPI
    assert not linked._is_of(other.cc, linked._linked(str(cases(mpi))))


def test_a_program_that_cannot_be_traced_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="there is no such program"):
        pmpi.mpicc_for("no-such-program")
    with pytest.raises(UsageError, match="true is not linked with an MPI library"):
        pmpi.mpicc_for("true")
    static = tmp_path / "static"
    static.write_bytes(b"\x7fELF PMPI_Init")
    static.chmod(0o755)
    with pytest.raises(UsageError, match=r"is linked with a static MPI, .* link it without -static"):
        pmpi.mpicc_for(str(static))
    exe = cases(MPICH)
    monkeypatch.setattr(linked, "_beside", lambda libmpi: ())
    with pytest.raises(
        UsageError, match=rf"needs the mpicc of the MPI that {exe} is linked with \(libmpich.so.12\): --mpicc"
    ):
        pmpi.mpicc_for(str(exe))
    with pytest.raises(UsageError, match="cannot run the compiler no-mpicc"):
        pmpi.library("no-mpicc")
    with pytest.raises(UsageError, match=r"mpi\.h"):
        pmpi.library("cc")


def test_a_build_that_fails_leaves_nothing_and_one_that_is_there_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule (1) of `pmpi`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags = pmpi.FLAGS
    monkeypatch.setattr(pmpi, "FLAGS", (*flags, "-fno-such-option"))
    with pytest.raises(UsageError, match="no-such-option"):
        pmpi.library(OPEN_MPI.cc if OPEN_MPI.there else MPICH.cc)
    assert list((tmp_path / "safepoint").iterdir()) == []
    monkeypatch.setattr(pmpi, "FLAGS", ("-O0", *flags[1:]))
    monkeypatch.setattr(pmpi, "source", lambda text, there=(), arguments=False: "")
    monkeypatch.setattr(pmpi, "SOURCES", tmp_path)
    (tmp_path / "pmpi.c").write_text("int one;\n")
    (tmp_path / "pmpi.h").write_text("")
    made = pmpi.library(MPICH.cc)
    kept = made.stat()
    assert pmpi.library(MPICH.cc) == made and made.stat().st_mtime_ns == kept.st_mtime_ns
    assert list((tmp_path / "safepoint").iterdir()) == [made]
    (tmp_path / "pmpi.c").write_text("int two;\n")
    assert pmpi.library(MPICH.cc) != made


def test_addresses_without_debug_information_stay_module_and_offset(tmp_path: Path) -> None:
    """And a hide is where the first function outside of the library is."""
    source, exe = tmp_path / "a.c", tmp_path / "a.out"
    source.write_text(
        "int safepoint_hide(void) { return 1; }\n"
        "int save(void) { return safepoint_hide(); }\n"
        "int main(void) { return save(); }\n"
    )
    subprocess.run(["cc", "-g", "-O0", "-no-pie", str(source), "-o", str(exe)], check=True)
    names = subprocess.run(["nm", str(exe)], capture_output=True, text=True, check=True).stdout
    at = {line.split()[2]: int(line.split()[0], 16) + 8 for line in names.splitlines() if len(line.split()) == 3}
    chain = f"c\t{exe}\t{at['safepoint_hide']:#x},{at['save']:#x},{at['main']:#x}\t-"
    assert symbols.sites([chain, "py\tb.py\t7\tf", "c\t/no/such\t0x12\t-", "?"]) == [
        Site(str(source), 2, "save"), Site("b.py", 7, "f"), Site("/no/such+0x12", 0, ""),
        Site("", 0, ""),
    ]  # fmt: skip
    subprocess.run(["strip", "-g", str(exe)], check=True)
    assert symbols.sites([chain]) == [Site(f"{exe}+{at['save']:#x}", 0, "save")]
