"""Check mode of the tracer of C and Fortran: what each watched call is given, reads and writes; no other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from testbed.checked import ALL, MORE, Noted, checked, constants, environment, prepared, read
from testbed.commands import cli
from testbed.foreign import MPICH, OPEN_MPI, SOURCES, Mpi, built, each_mpi, needs, program, ran, tracer
from testbed.foreign import environment as plain_environment
from testbed.sweep import some_of
from testbed.waiting import wait_for

from safepoint.errors import UsageError
from safepoint.matching import columns, reading, symbols
from safepoint.trace import lines, parameters, pmpi, record, roles
from safepoint.trace.record import ENTERED, RAISED, RETURNED
from safepoint.trace.signatures import HANDLES, Parameter, signatures

pytestmark = [needs("cc", "mpicc.mpich"), pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")]
RANK = 6  # MPI_ERR_RANK, in both libraries
KINDS = frozenset(HANDLES.values())
WAITS = {"test", "testall", "testany", "testsome", "iprobe", "improbe"}  # who calls these calls them often
BINDINGS = "HEADER", "MODULE", "TYPES"  # mpif.h, use mpi, use mpi_f08


def calls(mpi: Mpi) -> Path:
    return program("check_calls.c", mpi, "-g", "-w")


def cases(mpi: Mpi, *options: str) -> Path:
    return program("check_cases.c", mpi, "-g", "-w", "-pthread", *options)


def many(mpi: Mpi, binding: str) -> Path:
    if not binding:
        return program("trace_calls.c", mpi, "-g", "-w")
    return program("trace_calls.f90", mpi, "-g", "-cpp", "-w", "-fallow-argument-mismatch", f"-DWITH_{binding}")


# What is noted.


@each_mpi
def test_each_call_is_noted_with_what_it_is_given_reads_and_writes(mpi: Mpi, tmp_path: Path) -> None:
    """The program says itself what that is. So it is in the order of the calls, Init first, and after Finalize. The
    constants are those of this process. `places` reads it too: a note's own row is that of its requests; and packing
    gives each word back."""
    status, _, said, trace = checked(tmp_path, mpi, 2, ALL, calls(mpi), tmp_path / "said")
    assert (status, said) == (0, "")
    for rank in range(2):
        constants_are_those_of_the_process(trace, rank)
    places_reads_and_packs(trace)
    for rank in range(2):
        told = [json.loads(line) for line in (tmp_path / f"said-{rank}").read_text().splitlines()]
        noted = read(trace, rank)
        assert [one.function for one in noted] == [one["name"] for one in told] and len(noted) > 75
        for one, expected in zip(noted, told, strict=True):
            if one.function == "Error_class":  # what codes MPI has is its own
                expected["given"][0] = one.given[0] if one.given else None
            assert [one.given, one.reads, one.writes] == [expected[name] for name in ("given", "reads", "writes")], one
            assert len(expected["given"]) == len(signatures()[one.function].parameters), one.function
            file, line = one.place.split(":")
            text = (SOURCES / file).read_text().splitlines()[int(line) - 1]
            assert f"MPI_{one.function}(" in text, (one, text)
        failed = [one for one in noted if one.note["state"] != RETURNED]
        assert [(one.function, one.note["state"], one.note["result"]) for one in failed] == [("Send", RAISED, RANK)]
        about = json.loads(record.names(trace, rank).about.read_text())
        assert (about["ended"], about.get("stopped")) == ("finalize", None)


def told(one: Noted, names: dict[tuple[str, int], str]) -> list[object]:
    """A call, without what depends on the library and the language: addresses, and which types it has."""
    parameters = signatures()[one.function].parameters
    assert one.given is not None and len(one.given) == len(parameters), one
    found: list[object] = [one.function]
    for value, each in zip(one.given, parameters, strict=True):
        if each.by == "value" and each.kind in ("int", "rank", "tag"):
            found.append(
                {"MPI_ANY_SOURCE": "any", "MPI_PROC_NULL": "nobody"}.get(names.get((each.kind, value), ""), value)
            )
        elif each.by == "value" and each.kind in ("buffer", *KINDS - {"type"}):
            found.append(names.get((each.kind, value), each.kind))
    for row in (one.reads, one.writes):
        at = 0
        while at < len(row):
            position, count, *values = row[at : at + 2 + row[at + 1]]
            each = parameters[position - 1]
            shown = [names.get((each.kind, value), each.kind) if each.kind in KINDS else value for value in values]
            found.append((each.name, count, ["type"] * count if each.kind == "type" else shown))
            at += 2 + count
    return found


def named(trace: Path, rank: int) -> dict[tuple[str, int], str]:
    """Constants by what has them, and their values. A request may have the value of another that is complete."""
    found = dict[tuple[str, int], str]()
    for name, value in constants(trace, rank).items():
        word = name.removeprefix("MPI_")
        if word.endswith("_NULL") or word in ("COMM_WORLD", "COMM_SELF"):
            kind = word.partition("_")[0].lower()
            found["type" if kind == "datatype" else kind, value] = name
        elif word == "IN_PLACE":
            found["buffer", value] = name
        elif word in ("SUM", "MAX", "MIN", "REPLACE", "NO_OP"):
            found["op", value] = name
    numbers = constants(trace, rank)
    found["rank", numbers["MPI_ANY_SOURCE"]], found["rank", numbers["MPI_PROC_NULL"]] = (
        "MPI_ANY_SOURCE",
        "MPI_PROC_NULL",
    )
    return found


def story(trace: Path, rank: int) -> list[list[object]]:
    """What the tracer of places notes too: of the other functions each binding of Fortran calls its own."""
    names = named(trace, rank)
    found = []
    for one in read(trace, rank):
        kind = roles.kind(one.function)
        if kind not in {roles.LOCAL, roles.OTHER, "init", *WAITS} and not kind.startswith(("type", "group", "op_")):
            found.append(told(one, names))
    return found


@pytest.mark.parametrize("binding", some_of(BINDINGS, 1, 3))
@each_mpi
def test_a_program_in_fortran_is_told_as_the_same_program_in_c(mpi: Mpi, binding: str, tmp_path: Path) -> None:
    """With the arguments that its binding gives to C: MPI_IN_PLACE and handles are those of C."""
    (tmp_path / "c").mkdir()
    (tmp_path / "f").mkdir()
    status, _, said, in_c = checked(tmp_path / "c", mpi, 2, ALL, many(mpi, ""))
    assert status == 0, said
    status, _, said, in_fortran = checked(tmp_path / "f", mpi, 2, ALL, many(mpi, binding))
    assert status == 0, said
    for rank in range(2):
        assert story(in_fortran, rank) == story(in_c, rank)
        assert len(story(in_c, rank)) > 60
        noted = read(in_fortran, rank)
        assert noted[0].function in ("Init", "Init_thread") and noted[0].place.startswith("trace_calls.f90:")
        sources = {one.place.partition(":")[0] for one in noted if one.note["site"]}
        assert sources == {"trace_calls.f90"}


@each_mpi
def test_what_is_not_watched_in_this_rank_is_not_noted(mpi: Mpi, tmp_path: Path) -> None:
    """And a function that this MPI does not have is none of its concern."""
    watched = {"Send": None, "Comm_split": [1], "Type_size": [0], "Finalize": [0, 1], "Wonder": None, "Barrier": []}
    status, *_, trace = checked(tmp_path, mpi, 2, watched, calls(mpi), tmp_path / "said")
    assert status == 0
    for rank, own in enumerate(("Type_size", "Comm_split")):
        told = [json.loads(line)["name"] for line in (tmp_path / f"said-{rank}").read_text().splitlines()]
        expected = [name for name in told if name in ("Send", "Finalize", own)]
        assert [one.function for one in read(trace, rank)] == expected and expected.count(own) == 1


@each_mpi
def test_what_was_made_by_calls_that_nobody_watches_is_known_when_it_is_met(mpi: Mpi, tmp_path: Path) -> None:
    status, _, said, trace = checked(tmp_path, mpi, 2, ("Barrier", "Irecv", "Send", "Wait", "Win_fence"), cases(mpi),
                                     "unseen")  # fmt: skip
    assert status == 0, said
    found = {one.function: one.note for one in read(trace, 1)}
    assert [found[name]["comm"] for name in ("Barrier", "Irecv", "Send", "Win_fence")] == [3, 3, 3, 4]
    assert (found["Wait"]["request"], found["Wait"]["got_peer"], found["Wait"]["got_tag"]) == (1, 0, 3)
    things = [json.loads(line) for line in record.names(trace, 1).objects.read_text().splitlines()]
    assert [(thing["kind"], thing["note"], thing["members"]) for thing in things[2:]] == [
        ("comm", -1, "0-1"), ("win", -1, "0-1"),
    ]  # fmt: skip


@each_mpi
def test_without_a_watch_list_all_notes_are_as_they_were(mpi: Mpi, tmp_path: Path) -> None:
    """Of the other build of the library; and nothing else lies in the trace."""
    found = list[list[list[tuple[object, ...]]]]()
    for arguments in (False, True):
        trace = tmp_path / f"{arguments}.trace"
        trace.mkdir()
        words = environment(mpi, trace) | {"LD_PRELOAD": tracer(mpi.cc, arguments)}
        status, _, said = ran(tmp_path, *mpi.started(2, many(mpi, "")), more=words)
        assert status == 0, said
        names = {path.name for path in trace.iterdir()}
        ends = ("json", "calls", "more", "sites", "objects")
        assert names == {"functions-c.json", *(f"rank-0000{rank}.{end}" for rank in range(2) for end in ends)}
        skipped = ("enter", "leave", "site", "more", "function")
        found.append([
            [(one.function, *(one.note[name] for name in record.FIELDS if name not in skipped), one.rows)
             for one in read(trace, rank) if roles.kind(one.function) not in WAITS]
            for rank in range(2)
        ])  # fmt: skip
    assert found[0] == found[1] and min(map(len, found[0])) > 60


def test_what_no_tracer_can_read_is_said_and_nothing_is_noted(tmp_path: Path) -> None:
    trace = prepared(tmp_path, ())
    wrong = (
        '{"Send": nul}}', '{"Send": [0, ]}}', '{"Send": [0}}', '{"Send" null}}', '{"Send": null,}}',
        '{"Send": null}} x',
    )  # fmt: skip
    for text in ("", "{", '{"other": {}}', *(f'{{"functions": {one}' for one in wrong)):
        (trace / record.WATCH).write_text(text)
        status, _, said = ran(tmp_path, cases(MPICH), "unseen", more=environment(MPICH, trace))
        assert status == 0 and f"rank 0 is not traced: {trace / record.WATCH}: Invalid argument" in said, (text, said)
        assert not (trace / "rank-00000.constants").exists()
        for path in trace.glob("rank-*"):
            path.unlink()


@each_mpi
def test_a_hide_is_noted_with_its_step_where_it_is_watched(mpi: Mpi, tmp_path: Path) -> None:
    """Without what it sends to agree. What is under way cannot be told, and is asked for in another way."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("1")
    saves = program("trace_saves.c", mpi)
    status, _, said, trace = checked(tmp_path, mpi, 2, ("hide", "Finalize"), saves)
    assert status == 0, said
    for rank in range(2):
        found = [(one.function, one.given, one.note["state"]) for one in read(trace, rank)]
        assert found == [("hide", [10], RETURNED), ("hide", [record.ABSENT], RETURNED), ("Finalize", [], RETURNED)]
    shutil.rmtree(trace)
    shutil.rmtree(tmp_path / ".safepoint.d")
    (tmp_path / "u.dat").write_text("1")
    status, _, said, trace = checked(tmp_path, mpi, 2, ("Finalize",), saves)
    assert status == 0 and [one.function for one in read(trace, 1)] == ["Finalize"], said


# Constants.


CONSTANTS = (
    "ANY_SOURCE ANY_TAG PROC_NULL ROOT UNDEFINED IN_PLACE BOTTOM STATUS_IGNORE COMM_NULL COMM_WORLD COMM_SELF "
    "DATATYPE_NULL OP_NULL REQUEST_NULL GROUP_NULL WIN_NULL FILE_NULL MESSAGE_NULL INFO_NULL ERRHANDLER_NULL "
    "GROUP_EMPTY MESSAGE_NO_PROC ERRORS_ARE_FATAL ERRORS_RETURN DOUBLE CHAR BYTE PACKED INTEGER REAL 2INT "
    "INT64_T DOUBLE_PRECISION C_DOUBLE_COMPLEX AINT MAX MIN PROD LAND BOR MAXLOC REPLACE NO_OP ERR_TYPE ERR_TRUNCATE"
)


def constants_are_those_of_the_process(trace: Path, rank: int) -> None:
    known = constants(trace, rank)
    given = {one.function: one.given or [] for one in reversed(read(trace, rank))}
    assert given["Bcast"][2] == known["MPI_INT"] and given["Waitall"][2] == known["MPI_STATUSES_IGNORE"]
    assert given["Allreduce"][0::4] == [known["MPI_IN_PLACE"], known["MPI_SUM"]]
    assert known["TAG_UB"] >= 32767 and known["MPI_ERR_RANK"] == RANK and known["MPI_SUCCESS"] == 0
    assert [word for word in CONSTANTS.split() if f"MPI_{word}" not in known] == []
    assert [name for name in known if name != "TAG_UB" and not re.fullmatch("MPI_[A-Z0-9_]+", name)] == []
    assert len({known[f"MPI_{name}"] for name in ("INT", "DOUBLE", "CHAR", "BYTE", "DATATYPE_NULL")}) == 5


def places_reads_and_packs(trace: Path) -> None:
    found = reading.read(trace)
    assert [len(one.notes) for one in found.ranks] == [len(read(trace, rank)) for rank in range(2)]
    for rank in found.ranks:
        again = columns.unpack(columns.pack(rank.notes, rank.more, len(rank.notes)))
        assert (again[0] == rank.notes).all() and (again[1] == rank.more).all()
        rows = [int(rank.more[at + 2]) for at in rank.notes["more"] if at]
        assert set(rows) == {record.COMPLETED, record.STARTED}


def test_the_constants_are_those_that_mpi4py_has(tmp_path: Path) -> None:
    """With the same library: each that both know has one value."""
    mpi4py = pytest.importorskip("mpi4py")
    mpi4py.rc.initialize = False
    code = (
        "from mpi4py import MPI\n"
        "for name, value in vars(MPI).items():\n"
        "    if name.isupper() and (isinstance(value, int) or hasattr(value, 'handle')):\n"
        "        print(f'MPI_{name}={int(value if isinstance(value, int) else value.handle)}')\n"
    )
    try:
        mpicc = pmpi.mpicc_for(sys.executable)
    except UsageError as error:
        pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    trace = prepared(tmp_path, ())
    more = {"SAFEPOINT_TRACE": str(trace), "LD_PRELOAD": tracer(mpicc, arguments=True)}
    status, out, said = ran(tmp_path, sys.executable, "-c", code, more=more)
    assert status == 0, said
    theirs = {name: int(value) for name, value in (line.split("=") for line in out.split())}
    mine = constants(trace, 0)
    absent = {theirs["MPI_DATATYPE_NULL"], theirs["MPI_ERR_LASTCODE"]}  # mpi4py has names for what its MPI has not
    both = {name for name in mine if name in theirs and (theirs[name] not in absent or name.endswith("_NULL"))}
    signed = {name: value - 2**64 if value >= 2**63 else value for name, value in theirs.items()}
    assert {name: mine[name] for name in both} == {name: signed[name] for name in both}
    assert len(both) > 150


# Arguments that are wrong, and errors.


@each_mpi
def test_what_mpi_answers_with_an_error_does_not_end_the_tracer(mpi: Mpi, tmp_path: Path) -> None:
    """Null handles and null pointers, negative counts, types that are none: each call is noted, with its class."""
    status, out, said, trace = checked(tmp_path, mpi, 1, ALL, cases(mpi), "wrong")
    assert (status, out) == (0, "0 24\n"), said
    failed = [one for one in read(trace, 0) if one.note["state"] == RAISED]
    known = constants(trace, 0)
    assert len(failed) == 24 and all(0 < one.note["result"] < 255 for one in failed)
    classes = [one.note["result"] for one in failed[:8]]
    assert classes == [
        known[f"MPI_ERR_{name}"] for name in ("COMM", "COMM", "COUNT", "TYPE", "RANK", "TAG", "ROOT", "OP")
    ]
    assert [(one.given or [])[1] for one in failed[2:3]] == [-1] and (failed[0].given or [])[5] == known[
        "MPI_COMM_NULL"
    ]
    assert not any(one.writes for one in failed)
    read_ = [one.function for one in failed if one.reads]
    assert read_ == ["Request_free"]


def test_a_communicator_that_was_freed_is_not_asked_about(tmp_path: Path) -> None:
    """MPICH alone answers that with an error; Open MPI may do anything."""
    status, out, said, trace = checked(tmp_path, MPICH, 1, ALL, cases(MPICH), "freed")
    assert (status, out) == (0, "0 1 1\n"), said
    assert [one.note["comm"] for one in read(trace, 0) if one.note["state"] == RAISED] == [0, 0]


FATAL = {  # case: the call in which it ends
    "comm": ("Send", "RANK", 3), "null": ("Barrier", "COMM", 0), "win": ("Put", "RANK", 4),
    "again": ("Bcast", "ROOT", 3), "freed": ("Barrier", "COMM", 0),
    "call": ("Comm_call_errhandler", "RANK", 0),
}  # fmt: skip


@pytest.mark.parametrize("case", some_of([*FATAL], 2, 6))
@each_mpi
def test_an_error_that_ends_the_program_has_its_class_and_the_program_ends_as_ever(
    mpi: Mpi, tmp_path: Path, case: str
) -> None:
    """With the same code, and the text that MPI has for it. Nothing comes after it in the trace."""
    if case == "freed" and mpi is OPEN_MPI:
        pytest.skip("Open MPI looks at a communicator that is no more, and anything may happen")
    plain, _, expected = ran(tmp_path, *mpi.started(1, cases(mpi), "fatal", case), more=MORE)
    status, out, said, trace = checked(tmp_path, mpi, 1, ALL, cases(mpi), "fatal", case)
    assert status == plain != 0 and out == ""
    function, kind, comm = FATAL[case]
    last = read(trace, 0)[-1]
    assert (last.function, last.note["state"], last.note["comm"]) == (function, RAISED, comm), last
    assert last.note["result"] == constants(trace, 0)[f"MPI_ERR_{kind}"] and last.note["leave"] >= last.note["enter"]
    assert last.given and not last.writes
    text = {"RANK": "[Ii]nvalid rank", "COMM": "[Ii]nvalid communicator", "ROOT": "[Ii]nvalid root"}[kind]
    if mpi is MPICH:
        assert re.search(text, expected) and re.search(text, said) and f"MPI_{function}" in said
    else:  # what Open MPI itself says may get lost when it ends a job
        assert f"safepoint trace: rank 0: the error is in MPI_{function}\n" in said


@each_mpi
def test_a_program_sees_the_error_handlers_that_it_would_see_without_a_tracer(mpi: Mpi, tmp_path: Path) -> None:
    """Asked for a thousand times and given back, set by itself, inherited, and called."""
    for functions in (ALL, ("Send",)):
        status, out, said, trace = checked(tmp_path, mpi, 2, functions, cases(mpi), "handlers")
        assert (status, sorted(out.splitlines())) == (0, ["0 1", "1 1"]), said
        shutil.rmtree(trace)


@each_mpi
def test_a_call_after_the_end_and_a_second_beginning_are_noted_though_they_do_not_return(
    mpi: Mpi, tmp_path: Path
) -> None:
    for case, function in ("after", "Barrier"), ("twice", "Init"):
        status, _, said, trace = checked(tmp_path, mpi, 1, ALL, cases(mpi), case)
        assert status != 0 and "safepoint trace: rank 0 stopped" not in said
        *before, last = [one for one in read(trace, 0) if roles.kind(one.function) != roles.LOCAL]
        assert [one.function for one in before] == ["Init_thread"] + ["Finalize"] * (case == "after")
        assert last.function == function and last.note["state"] in (ENTERED, RAISED)
        assert last.given == [constants(trace, 0)["MPI_COMM_WORLD"]] or function == "Init"
        shutil.rmtree(trace)


@each_mpi
def test_the_notes_of_a_process_that_is_killed_after_its_end_are_there(mpi: Mpi, tmp_path: Path) -> None:
    status, *_, trace = checked(tmp_path, mpi, 1, ("Init_thread", "Finalize"), cases(mpi), "killed")
    assert status != 0
    assert [(one.function, one.note["state"]) for one in read(trace, 0)] == [
        ("Init_thread", RETURNED),
        ("Finalize", RETURNED),
    ]


# Threads, stacks, lines.


@each_mpi
def test_threads_note_each_their_own_arguments(mpi: Mpi, tmp_path: Path) -> None:
    """Rows are written at once by all: none is torn, and each is of its note. Segments grow meanwhile."""
    status, _, said, trace = checked(tmp_path, mpi, 1, ALL, cases(mpi), "threads")
    assert status == 0, said
    noted, known = read(trace, 0), constants(trace, 0)
    sends = [one for one in noted if one.function == "Isend"]
    assert len(sends) == 4 * 2000 and record.names(trace, 0).more.stat().st_size > record.SEGMENT
    by_tag = Counter((one.given or [])[4] for one in sends)
    assert by_tag == dict.fromkeys(range(4), 2000)
    thread_of = {(one.note["thread"], (one.given or [])[4]) for one in sends}
    assert len(thread_of) == 4
    for one in sends:
        assert (one.given or [])[1:4] == [1, known["MPI_INT"], 0] and one.note["tag"] == (one.given or [])[4]
        assert one.writes[:2] == [7, 1] and len(one.writes) == 3
    sizes = [one for one in noted if one.function == "Comm_size"]
    assert len(sizes) == 4 * 6_000 + 1 and all(one.given and one.writes == [2, 1, 1] for one in sizes)
    waits = [one for one in noted if one.function == "Waitall"]
    assert len(waits) == 8000 and all(len(one.reads) == 3 and len(one.rows[record.COMPLETED]) == 3 for one in waits)


@each_mpi
def test_a_rank_that_is_asked_says_where_it_is(mpi: Mpi, tmp_path: Path) -> None:
    """While MPI waits. The program goes on as before, and can be asked again."""
    trace = prepared(tmp_path, ("Recv",))
    command = mpi.started(1, cases(mpi), "still")
    with subprocess.Popen(command, cwd=tmp_path, env=plain_environment(**environment(mpi, trace)),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:  # fmt: skip
        about, stack = trace / "rank-00000.json", trace / "rank-00000.stack"
        try:
            for turn in range(1, 3):
                wait_for(lambda: about.exists() and any(one.function == "Recv" for one in read(trace, 0)))
                os.kill(json.loads(about.read_text())["pid"], signal.SIGRTMIN + record.STACK_SIGNAL)
                wait_for(lambda turn=turn: stack.read_text().count("\n\n") == turn)
            assert job.poll() is None
        finally:
            os.kill(json.loads(about.read_text())["pid"], signal.SIGKILL)
            job.communicate(timeout=300)
    first, second = stack.read_text().split("\n\n")[:2]
    for text in first, second:
        rows = text.splitlines()
        assert all(re.fullmatch(r"c\t\S+\t0x[0-9a-f]+\t-", row) for row in rows)
        assert not any("/trace-" in row for row in rows)
        sites = [site for site in symbols.sites(rows) if site.file.endswith("check_cases.c")]
        source = (SOURCES / "check_cases.c").read_text().splitlines()
        assert [site.function for site in sites] == ["stands_still", "main"]
        assert ["MPI_Recv(into" in source[sites[0].line - 1], "stands_still()" in source[sites[1].line - 1]] == [
            True,
            True,
        ]


INCLUDE = ["-include", "safepoint-lines.h"]
WAYS = {  # how the header is given, and to which compiler
    "include": ["-std=gnu99", *INCLUDE], "no-pie": ["-fno-pie", "-no-pie", *INCLUDE],
    "strict": ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", *INCLUDE],
    "instead": ["-Wall", "-Werror", "-Iinstead"], "c++": ["-x", "c++", "-Wall", "-Werror", *INCLUDE],
    "stripped": ["-s", *INCLUDE],
}  # fmt: skip
SMALL = """\
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    int rank, all;
    MPI_Init(&argc,
             &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS)
        MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %d\\n", all, (int)(MPI_Wtime() >= 0));
    return MPI_Finalize();
}
"""


@pytest.mark.parametrize("way", some_of([*WAYS], 2, 6))
@each_mpi
def test_a_header_tells_the_line_of_each_call_of_a_program_without_debug_information(
    mpi: Mpi, tmp_path: Path, way: str
) -> None:
    """In C and C++; of Init too. Without a tracer the program is as it was, and without the header there are addresses.
    The command prints the header."""
    (sources := tmp_path / "sources").mkdir()
    (sources / "safepoint-lines.h").write_text(header := cli("check", "--lines").stdout)
    assert header == lines.header() and "#define MPI_Barrier(" in header
    (sources / "instead").mkdir()
    shutil.copy(sources / "safepoint-lines.h", sources / "instead/mpi.h")
    (sources / "small.c").write_text(SMALL.replace("#define _GNU_SOURCE\n", "\n") if way == "c++" else SMALL)
    compiler = mpi.cc.replace("mpicc", "mpicxx") if way == "c++" else mpi.cc
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    small = built("small", compiler, *WAYS[way], "small.c", "-o", "small", cwd=sources)
    status, out, said = ran(tmp_path, *mpi.started(1, small))
    assert (status, out) == (0, "0 1\n"), said
    status, out, said, trace = checked(tmp_path, mpi, 1, ALL, small)
    assert (status, out) == (0, "0 1\n"), said
    assert [(one.function, one.place) for one in read(trace, 0)] == [
        ("Init", "small.c:8"), ("Comm_rank", "small.c:10"), ("Barrier", "small.c:11"), ("Allreduce", "small.c:12"),
        ("Finalize", "small.c:14"),
    ]  # fmt: skip
    if way == "stripped":
        shutil.rmtree(trace)
        plain = built("plain", compiler, "-s", "small.c", "-o", "plain", cwd=sources)
        *_, trace = checked(tmp_path, mpi, 1, ALL, plain)
        assert all(one.place.startswith("plain+0x") for one in read(trace, 0)), read(trace, 0)[0].place


PARTS = {
    "with.c": """\
#include "safepoint-lines.h"
#include <mpi.h>
void elsewhere(void);
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    elsewhere();
    return MPI_Finalize();
}
""",
    "without.c": "#include <mpi.h>\nvoid elsewhere(void) { MPI_Barrier(MPI_COMM_WORLD); }\n",
}


def test_a_call_in_a_file_without_the_header_has_no_line_of_another(tmp_path: Path) -> None:
    """Nor that of a call before it, noted or not."""
    (sources := tmp_path / "sources").mkdir()
    for name, text in {**PARTS, "safepoint-lines.h": lines.header()}.items():
        (sources / name).write_text(text)
    both = built("both", MPICH.cc, "with.c", "without.c", "-o", "both", cwd=sources)
    for functions in ALL, ("Barrier", "Finalize"):
        status, _, said, trace = checked(tmp_path, MPICH, 1, functions, both)
        assert status == 0, said
        *_, barrier, finalize = read(trace, 0)
        assert (barrier.function, barrier.site.split("\t")[0]) == ("Barrier", "c")
        assert (finalize.function, finalize.place) == ("Finalize", "with.c:10")
        shutil.rmtree(trace)


# Who reads it.


def test_each_parameter_of_each_function_is_known_in_each_form(tmp_path: Path) -> None:
    """What an mpi.h declares, and what the table of signatures has, are one list but for some large counts."""
    for mpi in (MPICH, OPEN_MPI):
        if not mpi.there:
            continue
        all_ = [one for one in pmpi.wrapped(pmpi.header(mpi.cc), arguments=True) if one.name.startswith("MPI_")]
        odd = {one.name for one in all_ if [each.name for each in parameters.given(one)] != list(one.names)}
        assert odd <= {"MPI_Type_get_envelope_c", "MPI_Type_get_contents_c"}
    assert not parameters.reads("Comm_spawn_multiple", Parameter("array_of_info", "info", "array", True))
