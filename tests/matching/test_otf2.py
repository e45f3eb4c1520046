"""OTF2 there and back: same groups; and archives of other tools, which say less."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_match_random import HOWS, matched, plain
from test_reading import some
from testbed import ran_mpi, traced
from testbed.commands import cli
from testbed.noted import Noted, groups, taken
from testbed.random_mpi import program
from testbed.sweep import LONG, many

pytest.importorskip("otf2", reason="otf2 is not installed: pip install otf2")
from otf2.definitions import Comm
from otf2.enums import CollectiveOp, GroupType, LocationType, Paradigm, RmaSyncLevel
from testbed.scorep import BEGIN, NO_ROOT, Archive

from safepoint.errors import UsageError
from safepoint.matching import match, otf2, reading
from safepoint.matching.matched import COLLECTIVE, Matched
from safepoint.matching.stored import TraceError
from safepoint.trace import record
from safepoint.trace.record import ANY_SOURCE, ANY_TAG, CANCELLED, ENTERED, NONE, PICKLED, RAISED

PROGRAMS = 2000 if LONG else many(80)
EVERY_CALL = Path(__file__).parents[1] / "testbed/every_call.py"
WILDCARDS = "this OTF2 does not say which receives were wildcards: each is judged as if it was for any source and tag"
LINES = "this OTF2 does not say in which lines the calls are: each stands where its function begins"


def same(trace: Path, out: Path) -> list[str]:
    """What an archive of this trace does not give back."""
    anchor = otf2.export(trace, out)
    one, two = match.matched(trace), match.matched(anchor)
    wrong = [name for name, value in plain(one).items() if plain(two)[name] != value]
    wrong += [name for name in ("names", "objects", "remarks") if getattr(one, name) != getattr(two, name)]
    before, after = [str(one.sites[site]) for site in one.site], [str(two.sites[site]) for site in two.site]
    return wrong + ["sites"] * (before != after) + different(reading.read(trace), reading.read(anchor))


def different(one: reading.Trace, two: reading.Trace) -> list[str]:
    """In which columns the notes differ; but for numbers that each trace gives as it likes."""
    found = set()
    for before, after in zip(one.ranks, two.ranks, strict=True):
        kept = [name for name in record.FIELDS if name not in ("site", "function", "more")]
        found |= {name for name in kept if before.notes[name].tolist() != after.notes[name].tolist()}
        found |= {"more"} if rows(before) != rows(after) else set()
        found |= {"things"} if before.things != after.things else set()
    return sorted(found)


def rows(rank: reading.Rank) -> list[list[int]]:
    return [rank.more[at + 1 : at + 3 + rank.more[at]].tolist() if at else [] for at in rank.notes["more"].tolist()]


def calls_of_groups(found: Matched, directory: Path) -> Counter[Any]:
    """Of each group its kind, and its members by rank and time: calls that have no event are not in both."""
    first = min(int(rank.notes["enter"].min()) for rank in reading.read(directory).ranks if len(rank.notes))
    rank = np.searchsorted(found.begins, np.arange(found.actions), "right") - 1
    members: list[set[Any]] = [set() for _ in found.kind]
    for member, group in zip(found.member.tolist(), found.group.tolist(), strict=True):
        members[group].add((int(rank[member]), int(found.enter[member]) + first))
    return Counter((int(kind), tuple(sorted(own))) for kind, own in zip(found.kind, members, strict=True))


# There and back.


def test_random_programs_come_back_from_otf2_as_they_were(tmp_path: Path) -> None:
    """And as another tool reads what we write, without our attributes, groups are the same where OTF2 has events."""
    compared = 0
    for seed in range(PROGRAMS):
        written = program(seed, **HOWS[seed % len(HOWS)])
        one = matched(tmp_path / "t", written, ran_mpi.run(written, seed))
        assert not (wrong := same(tmp_path / "t", tmp_path / "o")), (seed, wrong)
        two = match.matched(otf2.export(tmp_path / "t", tmp_path / "events", own=False))
        if not any("a probe has found" in remark or "never completed" in remark for remark in two.remarks):
            assert calls_of_groups(one, tmp_path / "t") == calls_of_groups(two, tmp_path / "events"), seed
            compared += 1
        for made in "t", "o", "events":
            shutil.rmtree(tmp_path / made)
    assert compared > PROGRAMS / 10


@pytest.mark.proof
@traced.libraries
def test_a_real_program_that_uses_each_call_comes_back_as_it_was(tmp_path: Path, library: str) -> None:
    ran = traced.run(3, str(EVERY_CALL), library=library, trace=tmp_path / "t")
    assert ran.returncode == 0, ran.stderr
    assert len(match.matched(tmp_path / "t").kind) > 150
    assert not same(tmp_path / "t", tmp_path / "o")


def test_windows_persistent_requests_and_matched_probes_come_back(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    assert not same(tmp_path / "t", tmp_path / "o")


def odd(trace: Noted) -> None:
    """What a note can be beside the ordinary."""
    trace[0].call("Send", 10, peer=record.PROC_NULL, tag=5)
    trace[0].call("Recv", 11, peer=1, tag=ANY_TAG, got=(1, 2**31 - 1), size=record.UNKNOWN)
    trace[0].call("Send", 12, peer=1, tag=5, state=RAISED)
    trace[0].call("Isend", 13, peer=1, tag=5, request=7, flags=PICKLED)
    trace[0].call("Cancel", 14, comm=0, request=7)
    trace[0].call("Wait", 15, comm=0, request=7, got=(CANCELLED, NONE))
    trace[0].call("Sendrecv", 16, peer=1, tag=1, got=(record.PROC_NULL, NONE))
    trace[0].call("Irecv", 17, peer=ANY_SOURCE, tag=3, request=8)
    trace[1].call("Isendrecv", 20, peer=0, tag=2**31 - 1, got=(0, 1), request=3)
    trace[1].call("Wait", 0, comm=0, request=3, got=(0, 1))
    trace[1].call("hide", 22, comm=0, size=2**64 - 5)
    trace[1].call("Barrier", 23, state=ENTERED)


def test_what_is_out_of_the_ordinary_comes_back(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2)
    odd(trace)
    trace.close(1)  # killed: its notes end in the call that it was in
    assert not same(tmp_path / "t", tmp_path / "o")
    assert "rank 1 was killed" in match.matched(tmp_path / "o/traces.otf2").remarks[0]


def test_threads_come_back_in_the_order_of_the_notes(tmp_path: Path) -> None:
    """Also where the clock says another one: each thread takes its number, and then the time."""
    trace = Noted(tmp_path / "t", 2)
    for rank in range(2):
        comm = trace[rank].new_comm("Comm_dup", 9, [0, 1])
        trace[rank].call("Send", 10, peer=1 - rank, tag=5, enter=9_000_030)
        trace[rank].call("Send", 11, peer=1 - rank, tag=5, comm=comm, thread=1, enter=9_000_010)
        trace[rank].call("Recv", 12, peer=1 - rank, tag=5, enter=9_000_050)
        trace[rank].call("Recv", 13, peer=1 - rank, tag=5, comm=comm, thread=1, enter=9_000_040)
    trace.close()
    assert not same(tmp_path / "t", tmp_path / "o")


def test_times_that_go_back_come_back(tmp_path: Path) -> None:
    """In OTF2 those of a thread may not."""
    trace = Noted(tmp_path / "t", 2)
    for enter in (9_000_000, 8_000_000, 9_500_000):
        trace[0].call("Send", 10, peer=1, tag=5, enter=enter, leave=enter + 600_000)
        trace[1].call("Recv", 10, peer=0, tag=5, enter=enter)
    trace.close()
    assert not same(tmp_path / "t", tmp_path / "o")


def test_ranks_of_two_hosts_come_back_on_one_clock(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2, {1: {"host": "there", "boot": "c"}})
    trace[0].call("Send", 10, peer=1, tag=5)
    trace[1].call("Recv", 20, peer=0, tag=5)
    trace.close()
    begun = {rank.rank: rank.began for rank in reading.read(tmp_path / "t").ranks}
    one = match.matched(tmp_path / "t")
    two = match.matched(otf2.export(tmp_path / "t", tmp_path / "o"))
    assert one.enter.tolist() == two.enter.tolist()
    first, second = (int(rank.notes["enter"][0]) for rank in reading.read(tmp_path / "o").ranks)
    assert second - first == 10 + (begun[1][1] - begun[1][0]) - (begun[0][1] - begun[0][0])


def test_a_rank_that_left_no_notes_is_missing_in_the_archive_too(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 3)
    trace[0].call("Send", 10, peer=1, tag=5)
    trace.close()
    for path in (tmp_path / "t").glob("rank-00001.*"):
        path.unlink()
    assert not same(tmp_path / "t", tmp_path / "o")
    assert match.matched(tmp_path / "o").remarks[0].startswith("rank 1 of 3 left no notes here")


# Archives of others.


def scorep(directory: Path) -> Path:
    """Two ranks that send, receive, wait and meet, as Score-P notes it."""
    with Archive(directory, 2) as archive:
        world, half = archive.world, archive.comm("half", [0, 1])
        for number in range(2):
            rank, other = archive[number], 1 - number
            with rank.region("main", line=3):
                rank.call("MPI_Init")
                rank.call("MPI_Comm_rank")
                rank.call("MPI_Irecv", ("MpiIrecvRequest", 70))
                rank.call("MPI_Isend", ("MpiIsend", other, world, 5, 8, 71))
                with rank.region("exchange", line=30):
                    rank.call("MPI_Testall", ("MpiRequestTest", 70))
                    rank.call("MPI_Waitall", ("MpiIsendComplete", 71), ("MpiIrecv", other, world, 5, 8, 70))
                rank.collective("MPI_Comm_dup", world, CollectiveOp.CREATE_HANDLE)
                rank.collective("MPI_Bcast", half, CollectiveOp.BCAST, 0)
                rank.call("MPI_Ibarrier", ("NonBlockingCollectiveRequest", 72))
                rank.call("MPI_Wait", ("NonBlockingCollectiveComplete", CollectiveOp.BARRIER, world, NO_ROOT, 0, 0, 72))
                rank.call("MPI_Sendrecv", ("MpiSend", other, half, 6, 8), ("MpiRecv", other, half, 6, 8))
                one_way = ("MpiRecv", other, world, 7, 8) if number else ("MpiSend", other, world, 7, 8)
                rank.call("MPI_Sendrecv", one_way)  # the other end is MPI_PROC_NULL
                rank.call("MPI_Finalize")
    return archive.path


def test_an_archive_of_score_p_is_matched_and_says_what_it_cannot(tmp_path: Path) -> None:
    found = match.matched(scorep(tmp_path / "o"))
    names = [found.functions[function] for function in found.function[: found.begins[1]]]
    assert names == [
        "Irecv",
        "Isend",
        "Waitall",
        "Comm_dup",
        "Bcast",
        "Ibarrier",
        "Wait",
        *["Sendrecv"] * 2,
        "Finalize",
    ]
    assert sorted(groups(found)) == sorted([
        [(0, 1), (1, 2)], [(0, 2), (1, 1)], [(0, 7), (1, 7)], [(0, 7), (1, 7)],
        *([(0, at), (1, at)] for at in (3, 4, 8, 9)), [(0, 5), (0, 6), (1, 5), (1, 6)],
    ])  # fmt: skip
    assert taken(found)[0] == ((0, 1), (1, 0), (1, 2))
    assert found.messages["bytes"].tolist() == [8] * 5
    assert found.never.tolist() == []
    assert found.messages["wild_source"].all() and found.messages["wild_tag"].all()
    sites = {str(found.sites[site]) for site in found.site}
    assert sites == {"solver.c:3", "solver.c:30"}
    assert found.sites[found.site[2]].function == "exchange"
    assert found.remarks == [WILDCARDS, LINES]


def test_what_an_archive_of_others_leaves_open_is_judged_as_the_worst(tmp_path: Path) -> None:
    with Archive(tmp_path / "o", 2) as archive:
        archive[0].call("MPI_Irecv", ("MpiIrecvRequest", 1))
        archive[0].call("MPI_Send", ("MpiSend", 1, archive.world, 5, 8))
        archive[0].call("MPI_Iprobe")
        archive[0].call("MPI_Send_init")
        archive[0].call("MPI_Start", ("MpiIsend", 1, archive.world, 6, 8, 2))
        archive[0].call("MPI_Wait", ("MpiIsendComplete", 2))
        archive[0].call("MPI_File_write_all")
        archive[0].call("MPI_Barrier", BEGIN, leave=False)
        archive[1].call("MPI_Recv", ("MpiRecv", 0, archive.world, 5, 8))
        archive[1].call("MPI_Recv", leave=False)
    found = match.matched(archive.path)
    names = [found.functions[function] for function in found.function]
    assert names == ["Irecv", "Send", "Isend", "Wait", "Barrier", "Recv", "Recv"]
    assert groups(found)[0] == [(0, 1), (1, 0)]
    assert found.never.tolist() == [2, 4, 6]  # the message nobody has taken, the two calls that did not return
    assert found.unsure.tolist() == [[0, 2]]
    assert len(found.remarks[:6]) == len({WILDCARDS, LINES, *found.remarks[:6]})
    for word in ("a probe", "persistent", "files", "never completed, and on what"):
        assert any(word in remark for remark in found.remarks[:6]), word


def test_events_without_regions_are_calls(tmp_path: Path) -> None:
    with Archive(tmp_path / "o", 2, resolution=10**6) as archive:
        for event in (("MpiSend", 1, archive.world, 5, 8), BEGIN,
                      ("MpiCollectiveEnd", CollectiveOp.REDUCE, archive.world, 1, 0, 0)):  # fmt: skip
            archive[0].event(*event)
        archive[1].event("MpiIrecvRequest", 4)
        archive[1].event("MpiCollectiveEnd", CollectiveOp.REDUCE, archive.world, 1, 0, 0)
        archive[1].event("MpiIrecv", 0, archive.world, 5, 8, 4)
    found = match.matched(archive.path)
    assert groups(found) == [[(0, 0), (1, 2)], [(0, 1), (1, 1)]]
    assert [found.functions[function] for function in found.function] == ["Send", "Reduce", "Irecv", "Reduce", "Wait"]
    assert found.enter[found.begins[1]] - found.enter[0] == 30_000  # ns; a tick is a microsecond


def test_what_is_not_of_mpi_is_passed_over(tmp_path: Path) -> None:
    """Threads, and streams of a graphics card with windows of their own."""
    with Archive(tmp_path / "o", 2) as archive:
        define = archive.define
        group = next(iter(define.locations)).group
        stream = define.location("stream", type=LocationType.ACCELERATOR_STREAM, group=group)
        define.groups.create("cuda", GroupType.COMM_LOCATIONS, Paradigm.CUDA, members=(stream,))
        card = define.groups.create("card", GroupType.COMM_GROUP, Paradigm.CUDA, members=(stream,))
        win = define.rma_wins.create("copies", define.comms.create("card", card, _type=Comm))
        archive[0].event("RmaPut", win, 0, 8, 1)
        archive[0].call("MPI_Send", ("MpiSend", 1, archive.world, 5, 8))
        archive[1].call("MPI_Recv", ("MpiRecv", 0, archive.world, 5, 8))
    found = match.matched(archive.path)
    assert (groups(found), found.remarks) == ([[(0, 0), (1, 0)]], [WILDCARDS, LINES])


def test_a_region_that_is_not_left_ends_with_the_one_around_it(tmp_path: Path) -> None:
    """As where an exception is thrown: what is called afterwards is not in it."""
    with Archive(tmp_path / "o", 1) as archive:
        rank = archive[0]
        with rank.region("main", line=3):
            with rank.region("outer", line=20), rank.region("inner", line=30, leave=False):
                rank.call("MPI_Barrier", BEGIN, leave=False)
            rank.call("MPI_Send", ("MpiSend", 0, archive.world, 5, 8))
    trace = reading.read(archive.path)
    (only,) = trace.ranks
    assert [str(trace.sites[only.sites[site]]) for site in only.notes["site"]] == ["solver.c:30", "solver.c:3"]
    assert only.notes["state"].tolist() == [ENTERED, record.RETURNED]


def test_matched_probes_and_windows_of_others(tmp_path: Path) -> None:
    """Events that OTF2 has since 3.1; and those of windows."""
    fence = "RmaCollectiveEnd", CollectiveOp.BARRIER, RmaSyncLevel.MEMORY
    with Archive(tmp_path / "o", 2) as archive:
        win = archive.define.rma_wins.create("window", archive.world)
        for rank in (archive[0], archive[1]):
            rank.call("MPI_Win_create", ("RmaCollectiveEnd", CollectiveOp.CREATE_HANDLE, fence[2], win, NO_ROOT, 0, 0))
            rank.call("MPI_Win_fence", (*fence, win, NO_ROOT, 0, 0))
        archive[0].call("MPI_Send", ("MpiSend", 1, archive.world, 5, 8))
        archive[0].call("MPI_Put", ("RmaPut", win, 1, 8, 1))
        archive[1].call("MPI_Mprobe", ("MpiProbe", 0, archive.world, 5, 9))
        archive[1].call("MPI_Imrecv", ("MpiImrecvRequest", 9, 3))
        archive[1].call("MPI_Wait", ("MpiImrecv", 3, 8))
        archive[0].call("MPI_Send", ("MpiSend", 1, archive.world, 6, 8))
        archive[1].call("MPI_Mprobe", ("MpiProbe", 0, archive.world, 6, 10))
        archive[1].call("MPI_Mrecv", ("MpiMrecv", 10, 8))
        for rank in (archive[0], archive[1]):
            rank.call("MPI_Win_fence", (*fence, win, NO_ROOT, 0, 0), ("RmaOpCompleteNonBlocking", win, 1))
        group = archive.define.groups.create("one", GroupType.COMM_GROUP, Paradigm.MPI, members=(1,))
        for name in ("MPI_Win_start", "MPI_Win_complete"):
            archive[0].call(name, ("RmaGroupSync", RmaSyncLevel.MEMORY, win, group))
    found = match.matched(archive.path)
    pairs = [(0, 0), (1, 1), (2, 4), (4, 6), (5, 7)]
    assert sorted(groups(found)) == [[(0, one), (1, two)] for one, two in pairs]
    assert found.kind.tolist().count(COLLECTIVE) == 3
    # Probes imply their sends; from Put to the fence no place is legal, and none from Win_start to Win_complete.
    assert sorted(found.arcs.tolist()) == [[3, 5], [6, 7], [10, 2], [13, 4]]
    *others, posts = found.remarks
    assert others == [WILDCARDS, LINES] and "who starts and who posts is not matched" in posts


# What is refused.


def test_without_the_package_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = scorep(tmp_path / "o")
    monkeypatch.setitem(sys.modules, "otf2", None)
    for act, name in ((lambda: otf2.export(tmp_path / "t", tmp_path / "p"), "safepoint trace --export-otf2"),
                      (lambda: otf2.read(anchor), "An OTF2 archive")):  # fmt: skip
        with pytest.raises(UsageError, match=f"^{name} needs the otf2 package: pip install otf2$"):
            act()
    assert not (tmp_path / "p").exists()


def cut(path: Path) -> object:
    return path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no anchor": (lambda out: (out / "traces.otf2").write_text("hello"), "is no anchor file of an OTF2 archive"),
    "half an anchor": (lambda out: cut(out / "traces.otf2"), "cannot be read as OTF2: "),
    "no definitions": (lambda out: (out / "traces.def").unlink(), "cannot be read as OTF2: "),
    "half the definitions": (lambda out: cut(out / "traces.def"), "cannot be read as OTF2: "),
    "half the events": (lambda out: cut(out / "traces/0.evt"), "cannot be read as OTF2: "),
    "no events of a rank": (lambda out: (out / "traces/0.evt").unlink(), "cannot be read as OTF2: "),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_archive_that_is_damaged_is_refused(tmp_path: Path, damage: str) -> None:
    anchor, (harm, said) = scorep(tmp_path / "o"), DAMAGES[damage]
    harm(tmp_path / "o")
    with pytest.raises(TraceError, match=said):
        match.matched(anchor)


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some(tmp_path / "t").close()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(otf2.Export, "all", full)
    with pytest.raises(UsageError, match=r"it could not be written: .*No space left on device"):
        otf2.export(tmp_path / "t", tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_the_commands_take_an_anchor_where_they_take_a_trace(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    export = "trace", "--export-otf2", tmp_path / "o", tmp_path / "t"
    assert cli(*export).exit_code == 0
    again, none = cli(*export), cli("trace", "--export-otf2", tmp_path / "p", tmp_path / "none")
    assert (again.exit_code, none.exit_code) == (UsageError.code, UsageError.code)
    assert "is there already: remove it, or name another" in again.output
    assert f"{tmp_path / 'none'}: there is no such file or directory" in none.output
    trace, *archives = (cli("places", tmp_path / where) for where in ("t", "o/traces.otf2", "o"))
    for archive in archives:
        assert archive.output.replace(str(tmp_path / "o"), str(tmp_path / "t")) == trace.output
        assert archive.exit_code == trace.exit_code
    assert "collectives" in trace.output and (tmp_path / "o/places.html").exists()
