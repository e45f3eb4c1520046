"""Files that only grow: cut back to the row, read once, and never trusted when they are no longer what they were."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testbed.disks import Failing, NoRoom, ends
from testbed.paths import TESTS

import safepoint
from safepoint import DamagedError, RestoreError, SaveError, Session
from safepoint.disk import Disk
from safepoint.disk.codec import EDGE
from safepoint.restoring.verify import verify

PROGRAM = """
import os, signal, sys
from safepoint import Session
from testbed.disks import CountingReads

stop_after, each, saves = map(int, sys.argv[1:])
disk = CountingReads("rows.csv")
session = Session(disk=disk)
saved = session.restore()
step = saved.step if saved else 0
last = step + stop_after + 2  # who is to be killed gets no further, however late the kill comes
log = open("../reads", "a", buffering=1)
with open("rows.csv", "a") as table:  # stays open for all of the run
    while step < saves:
        if step == last:
            signal.pause()
        table.write("".join(f"{row},{row * row}\\n" for row in range(step * each, (step + 1) * each)))
        table.flush()
        step += 1
        begin = disk.bytes_read
        session.hide(step)
        session.wait()
        # What was read, and how large the file was at the last set that this life knows of.
        print(disk.bytes_read - begin, os.path.getsize("rows.csv"), file=log)
    session.finish(step)
"""


def live(work: Path, each: int, saves: int, after: int | None = None, seconds: float = 0) -> int:
    """One life, killed so many seconds `after` so many saves, and two saves after them at the latest; its status."""
    paths = os.pathsep.join([str(Path(safepoint.__file__).parents[1]), str(TESTS)])
    arguments = [str(number) for number in (saves if after is None else after, each, saves)]
    command, reads = [sys.executable, "-W", "error", "-c", PROGRAM, *arguments], work.parent / "reads"
    before = count(reads)
    with subprocess.Popen(command, cwd=work, env=os.environ | {"PYTHONPATH": paths}) as program:
        while program.poll() is None and after is not None:
            if count(reads) - before >= after:
                time.sleep(seconds)
                program.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        return program.wait(500)


def count(reads: Path) -> int:
    return reads.read_bytes().count(b"\n") if reads.exists() else 0


@pytest.mark.parametrize(
    ("each", "saves", "kills"), [(1000, 20, 2), pytest.param(5000, 200, 20, marks=pytest.mark.proof)]
)
def test_the_rows_of_many_saves_and_kills_are_there_once_and_in_order(
    tmp_path: Path, each: int, saves: int, kills: int
) -> None:
    """G1, G2k for what only grows; and each save reads what was added, not what was there."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("rows.csv append\n")
    rng = random.Random(17)
    for _ in range(kills):
        status = live(work, each, saves, rng.randrange(saves // kills - 1), 0.02 * rng.random())
        assert status == -signal.SIGKILL
    assert live(work, each, saves) == 0
    expected = "".join(f"{row},{row * row}\n" for row in range(each * saves))
    assert (work / "rows.csv").read_text() == expected
    reads = [tuple(map(int, line.split())) for line in (tmp_path / "reads").read_text().splitlines()]
    assert len(reads) > saves // 2
    most = len(expected) // saves * 2  # a save adds between half and twice the mean
    beyond = [read for read, size in reads if read > min(size, most) + 4 * EDGE]
    assert not beyond, f"{len(beyond)} of {len(reads)} saves read more than the tail: {beyond[:5]} of {len(expected)}"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("t.csv append\nu.dat\n")
    return tmp_path


def write(work: Path, rows: str, mode: str = "a") -> None:
    with (work / "t.csv").open(mode) as table:
        table.write(rows)
    (work / "u.dat").write_text(rows)


@pytest.mark.leaves_damage
def test_a_table_whose_head_is_written_anew_as_it_grows_is_told_at_the_first_such_set(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """G7: once, with what is true of it and the line to write."""
    caplog.set_level(logging.WARNING, "safepoint")
    rows = [f"{count:05d} rows\n" + "row\n" * count for count in range(5)]
    told = []
    with Session(work) as session:
        for step, text in enumerate(rows[:4]):
            write(work, text, "r+" if step else "w")
            session.hide(step, wait=True)
            told.append([record.message for record in caplog.records if "append copy" in record.message])
        session.close()
    assert [len(each) for each in told] == [0, 1, 1, 1] and "t.csv, listed as append, grew, but" in told[1][0]
    assert len([record for record in caplog.records if "t.csv" in record.message]) == 1
    write(work, rows[4], "r+")
    session = Session(work)
    with pytest.raises(DamagedError, match="needs, were cut, begun anew or changed since"):
        session.restore()
    session.close()


@pytest.mark.leaves_damage
@pytest.mark.parametrize("how", ["cut", "truncated and longer than before", "replaced", "same size, other rows"])
def test_begun_anew_by_the_program_it_is_saved_whole_as_a_new_file(
    work: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The set is right and says so; the sets before it, whose rows are gone, count as damaged."""
    caplog.set_level(logging.WARNING, "safepoint")
    session = Session(work)
    write(work, "a\n" * 5000)
    session.hide(0)
    write(work, "b\n" * 5000)
    session.hide(1)
    session.wait()
    old = (work / "t.csv").read_text()
    new = {"cut": old[:3000], "same size, other rows": "x" * len(old)}.get(how, "c\n" * 20_000)
    if how == "replaced":
        (work / "t.csv").rename(work / "t.old")
    write(work, new, "w")
    session.hide(2)
    assert session._work.flight is None, "it waits, as no older set is whole"
    session.close()
    warned = [record.message for record in caplog.records if "begun anew" in record.message]
    assert len(warned) == 1 and warned[0].startswith("t.csv")
    (work / "u.dat").unlink(missing_ok=True)
    write(work, "lost", "a")
    again = Session(work)
    saved = again.restore()
    assert saved is not None and saved.step == 2
    assert (work / "t.csv").read_text() == new
    states = verify(again._root)
    assert states[3] == "committed" and states[2] != "committed"
    again.close()


@pytest.mark.leaves_damage
def test_cut_by_somebody_between_two_runs_is_damage_and_an_error(work: Path) -> None:
    """G6: shorter than every set needs."""
    session = Session(work)
    write(work, "a\n" * 100)
    session.hide(0)
    session.close()
    (work / "t.csv").write_text("a\n")
    with pytest.raises(DamagedError, match=r"t\.csv has 2 bytes instead of 200"):
        Session(work).restore()
    assert (work / "t.csv").read_text() == "a\n"


def test_rows_whose_fsync_failed_are_never_taken_for_safe_until_they_are_gone(work: Path) -> None:
    """G2, G7: the kernel marks what it could not write as clean, so the next fsync succeeds over nothing."""

    disk = Failing()
    session = Session(work, disk=disk)
    write(work, "a\n")
    session.hide(0)
    write(work, "b\n")
    disk.of = ends("t.csv")
    session.hide(1)
    with pytest.raises(SaveError, match=r"set 2 \(step 1\) not stored: t\.csv: Input/output error"):
        session.wait()
    for _ in range(2):
        write(work, "c\n")
        with pytest.raises(SaveError, match=r"t\.csv: its fsync failed before.*restore\(\)"):
            session.hide(2)
        assert (work / "u.dat").exists()
    with pytest.raises(SaveError, match=r"t\.csv: its fsync failed before"):
        session.finish(2)
    saved = session.restore()
    assert saved is not None and saved.step == 0 and (work / "t.csv").read_text() == "a\n"
    write(work, "b\n")
    session.hide(1)
    session.finish(1)


@pytest.mark.leaves_damage
@pytest.mark.parametrize("change", ["rotated", "no longer append"])
def test_taken_away_from_the_older_sets_the_next_one_waits(work: Path, change: str) -> None:
    """G2: until it is durable no set could be given back."""
    (work / ".safepoint").write_text("t.csv append optional\nu.dat\n")
    session = Session(work)
    write(work, "a\n")
    session.hide(0)
    write(work, "b\n")
    if change == "rotated":
        (work / "t.csv").rename(work / "t.old")
    else:
        session.close()
        (work / "t.old").write_text((work / "t.csv").read_text())
        (work / ".safepoint").write_text("t.csv\nu.dat\n")
        session = Session(work)
        session.restore()
    session.hide(1)
    assert session._work.flight is None
    session.close()


def test_a_link_in_the_place_of_the_file_is_damage_and_is_not_followed(work: Path) -> None:
    """G1: cutting it would cut another file, and leave this one as long as it is."""
    session = Session(work)
    write(work, "a\n" * 50)
    session.hide(0)
    session.close()
    (work / "elsewhere.csv").write_text("a\n" * 80)
    (work / "t.csv").unlink()
    (work / "t.csv").symlink_to("elsewhere.csv")
    again = Session(work)
    with pytest.raises(DamagedError, match=r"t\.csv is no longer a file"):
        again.restore()
    again.close()
    assert (work / "elsewhere.csv").read_text() == "a\n" * 80
    (work / "t.csv").unlink()
    (work / "elsewhere.csv").rename(work / "t.csv")
    again = Session(work)
    assert again.restore() is not None and (work / "t.csv").read_text() == "a\n" * 50
    again.close()


def test_a_file_that_was_put_back_after_a_failed_fsync_is_not_taken_as_it_is(tmp_path: Path) -> None:
    """G2, G7: it reads well and may be nowhere on the disk. Written anew it is another file."""

    (tmp_path / ".safepoint").write_text("u.dat\n")
    disk = Failing()
    session = Session(tmp_path, disk=disk)
    for step in range(2):
        (tmp_path / "u.dat").write_text(f"step {step}")
        disk.of = ends("u.dat")
        with pytest.raises(SaveError, match=r"u\.dat: Input/output error"):
            session.hide(step, wait=True)
        for verb in (session.hide, session.finish):
            with pytest.raises(SaveError, match=r"u\.dat: its fsync failed before"):
                verb(step)
        (tmp_path / "u.dat").write_text(f"step {step} again")
        assert session.hide(step, wait=True) is not None
    session.close()


def test_what_is_known_of_a_table_is_that_of_the_last_set_after_one_that_failed(tmp_path: Path) -> None:
    """G6: the next save goes on from the checksum of the rows that are committed."""

    class Full(Disk):
        left = 0

        @contextlib.contextmanager
        def create(self, path: str, *mode: int) -> Iterator[BinaryIO]:
            if path.endswith("record.json.new") and self.left:
                self.left -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            with super().create(path, *mode) as file:
                yield file

    (tmp_path / ".safepoint").write_text("t.csv append\nu.dat\n")
    disk = Full()
    session = Session(tmp_path, disk=disk)
    for step in range(3):
        with (tmp_path / "t.csv").open("a") as table:
            table.write(f"row {step}\n" * 50)
        (tmp_path / "u.dat").write_text(f"step {step}")
        disk.left = int(step == 1)
        if step == 1:
            with pytest.raises(SaveError, match="No space left"):
                session.hide(step, wait=True)
        else:
            session.hide(step, wait=True)
    session.close()
    with contextlib.closing(Session(tmp_path)) as session:
        saved = session.restore()
    assert saved and saved.step == 2
    assert (tmp_path / "t.csv").read_text() == "".join(f"row {step}\n" * 50 for step in range(3))


def test_a_directory_that_was_put_back_is_not_taken_because_something_new_is_in_it(tmp_path: Path) -> None:
    """G2, G7: its time changes with each new name, and the files whose fsync failed are in it still."""
    (tmp_path / ".safepoint").write_text("run.zarr/\n")
    disk = Failing()
    session = Session(tmp_path, disk=disk)
    (tmp_path / "run.zarr").mkdir()
    (tmp_path / "run.zarr/0.0").write_text("step 0")
    disk.of = ends("run.zarr/0.0")
    with pytest.raises(SaveError, match=r"run\.zarr/0\.0: Input/output error"):
        session.hide(0, wait=True)
    (tmp_path / "run.zarr/0.1").write_text("more of step 0")
    for verb in (session.hide, session.finish):
        with pytest.raises(SaveError, match=r"run\.zarr: its fsync failed before"):
            verb(0)
    session.close()


# A table that the program cuts, or begins anew, when it starts again.

ROWS_OF = ["a\n" * 200, "a\n" * 200 + "b\n" * 300]  # the table at each step
ANEW = {
    "truncated": lambda table: table.write_text(""),
    "renamed": lambda table: table.rename(f"{table}~"),
    "renamed and begun anew": lambda table: (table.rename(f"{table}~"), table.write_text("new\n")),
    "cut back further": lambda table: os.truncate(table, 100),
    "another one, and longer": lambda table: table.write_text("c\n" * 2000),
    "a directory": lambda table: (table.unlink(), table.mkdir()),
}
begun_anew = pytest.mark.parametrize("how", ANEW)


def two_sets(work: Path, manifest: str = "t.csv append\nu.dat\n") -> None:
    """Steps 0 and 1, both committed; and the program has ended."""
    (work / ".safepoint").write_text(manifest)
    with Session(work) as session:
        for step, rows in enumerate(ROWS_OF):
            (work / "t.csv").write_text(rows) if not step else write(work, rows[len(ROWS_OF[0]) :])
            (work / "u.dat").write_text(f"{step}\n")
            session.hide(step, wait=True)
        session.close()


def restored(work: Path) -> Session:
    """A life that was given back the last set, whole."""
    session = Session(work)
    saved = session.restore()
    assert saved is not None and saved.step is not None
    assert (work / "t.csv").read_text() == ROWS_OF[saved.step] and (work / "u.dat").read_text() == f"{saved.step}\n"
    return session


def refused(work: Path, told: str) -> None:
    """No set is whole, and nothing was touched but who holds the lock, and the log."""
    before = contents(work)
    with contextlib.closing(Session(work)) as session, pytest.raises(DamagedError, match=told):
        session.restore()
    assert contents(work) == before


def contents(work: Path) -> dict[Path, bytes]:
    ours = ("log.jsonl", "owner.json")
    return {path: path.read_bytes() for path in work.rglob("*") if path.is_file() and path.name not in ours}


@begun_anew
def test_a_set_that_was_given_back_stays_whole_whatever_the_program_does_to_its_table(work: Path, how: str) -> None:
    """G1, G3: killed before the next set is complete, again and again."""
    two_sets(work)
    for _ in range(3):
        session = restored(work)
        assert session._number == 2
        ANEW[how](work / "t.csv")
        session.close()
    session = restored(work)
    write(work, "c\n")
    session.hide(2, wait=True)
    session.close()
    saved = Session(work).restore()
    assert saved is not None and saved.step == 2 and (work / "t.csv").read_text() == ROWS_OF[1] + "c\n"


def test_rows_that_give_way_to_the_copy_are_set_aside_and_it_says_so(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What leaves the working directory is not deleted: somebody may have cut the table by hand."""
    caplog.set_level(logging.INFO, "safepoint")
    two_sets(work)
    restored(work).close()
    (work / "t.csv").write_text("by hand\n")
    restored(work).close()
    assert (work / ".safepoint.d/rank-00000/discarded/t.csv").read_text() == "by hand\n"
    assert "moved to .safepoint.d/rank-00000/discarded: t.csv" in caplog.messages[-1]


@begun_anew
def test_an_older_set_is_given_back_from_the_copy_of_a_newer_one(work: Path, how: str) -> None:
    """G6: what an older set needs of a table is the beginning of what a newer one needs."""
    two_sets(work)
    restored(work).close()
    ANEW[how](work / "t.csv")
    (work / ".safepoint.d/rank-00000/set-00000002/files/u.dat").write_text("?\n")
    for _ in range(2):  # now from its own copy: the newer set is gone
        session = restored(work)
        assert session._number == 1
        if not (work / "t.csv~").exists():
            ANEW[how](work / "t.csv")
        session.close()


@pytest.mark.leaves_damage
def test_the_set_before_one_with_a_new_table_is_still_whole(work: Path) -> None:
    """G6: the next set is that of a table begun anew; damaged, there is the one that was given back."""
    two_sets(work)
    session = restored(work)
    (work / "t.csv").write_text("new\n")
    (work / "u.dat").write_text("2\n")
    session.hide(2, wait=True)
    session.close()
    (work / ".safepoint.d/rank-00000/set-00000003/files/u.dat").write_text("?\n")
    session = restored(work)
    assert session._number == 2
    session.close()


@pytest.mark.leaves_damage
def test_a_copy_is_checked_before_it_is_used_and_the_table_in_place_comes_first(work: Path) -> None:
    """G6: by the checksum in the record, which knows nothing of the copy."""
    two_sets(work)
    restored(work).close()
    copy = work / ".safepoint.d/rank-00000/set-00000002/append/t.csv"
    assert copy.read_text() == ROWS_OF[1]
    copy.write_text(ROWS_OF[1].replace("a", "c", 1))
    restored(work).close()
    (work / "t.csv").write_text("")
    refused(work, r"t\.csv has 0 bytes instead of 1000")
    copy.write_text(ROWS_OF[1])
    restored(work).close()


@pytest.mark.leaves_damage
def test_what_is_not_copied_is_said_with_size_and_meaning(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A table too large for a copy, where there are no reflinks; once in a life, and never if the user says 0."""
    two_sets(work, "t.csv append\nu.dat\ncopy_append_below = 999\n")
    restored(work).close()
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(
        "t.csv: its first 1000 bytes, which set 2 (step 1) needs, are not copied (over copy_append_below (999), and "
        "no reflink of it could be had): as long as the program only adds to them all is well; but"
    )
    root = work / ".safepoint.d/rank-00000/set-00000002"
    assert sorted(path.name for path in root.iterdir()) == ["files", "record.json", "taken.json"]
    caplog.clear()
    (work / ".safepoint").write_text("t.csv append\nu.dat\ncopy_append_below = 0\n")
    restored(work).close()
    assert not caplog.records
    (work / "t.csv").write_text("")
    refused(work, r"t\.csv has 0 bytes instead of 1000")


@pytest.mark.leaves_damage
def test_the_error_says_what_is_left_of_a_table_and_how_to_go_on(work: Path) -> None:
    """G7: by what the older sets know of it; and to do as it says helps."""
    two_sets(work, "t.csv append\nu.dat\ncopy_append_below = 0\n")
    restored(work).close()
    (work / "t.csv").rename(work / "t.old")
    told = (
        r"set 2 \(step 1\): t.csv: No such file or directory; its first 1000 bytes, which the set needs, were cut, "
        r"begun anew or changed since, and no copy of them is kept\n(.*\n)*To go on bring back what is missing .*"
        r"or take the other files of a set by hand: docs/format.md"
    )
    refused(work, told)
    set_aside = work / ".safepoint.d/rank-00000/discarded/t.csv"
    set_aside.parent.mkdir()
    set_aside.write_text(ROWS_OF[0] + "other rows\n")
    found = r"and the first 400 of them are in \.safepoint\.d/rank-00000/discarded/t\.csv\n"
    refused(work, rf"set 2 .*its first 1000 .*{found}.*set 1 .*its first 400 .*{found}")
    (work / "t.old").rename(work / "t.csv")
    restored(work).close()


def a_copy(path: str) -> bool:
    """Of a table, beside a set."""
    return "/append." in path


class Meddling(Disk):
    """Somebody changes the table between the look at it and the copy."""

    def create(self, path: str, *mode: int) -> Any:
        if "/append." in path:
            (Path(path).parents[3] / "t.csv").write_text("x" * len(ROWS_OF[1]))
        return super().create(path, *mode)


@pytest.mark.leaves_damage
def test_what_is_copied_is_what_was_committed_or_there_is_no_copy(work: Path) -> None:
    """G6: else a later restore finds it damaged, when there is nothing else."""
    two_sets(work)
    with contextlib.closing(Session(work, disk=Meddling())) as session, pytest.raises(RestoreError) as raised:
        session.restore()
    assert "something writes to them: the checksum of t.csv differs" in str(raised.value)
    assert not list(work.rglob("append*"))
    assert not (work / "u.dat").exists()


def test_without_room_for_a_copy_the_set_is_given_back_all_the_same(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """G3: the program alone could go on; so it is a warning."""
    two_sets(work)
    with Session(work, disk=NoRoom(a_copy, once=False)) as session:
        saved = session.restore()
        assert saved is not None and saved.step == 1 and (work / "t.csv").read_text() == ROWS_OF[1]
        session.close()
    assert "are not copied (No space left on device)" in caplog.text


def test_a_copy_whose_fsync_failed_is_none(work: Path) -> None:
    """G7: an error, before anything is touched; the next try makes another one."""
    two_sets(work)
    session = Session(work, disk=Failing(a_copy, once=False))
    with pytest.raises(RestoreError, match=r"cannot keep what set 2 \(step 1\) needs of its append files: .*Input/out"):
        session.restore()
    session.close()
    assert not (work / "u.dat").exists()
    restored(work).close()
    ANEW["truncated"](work / "t.csv")
    restored(work).close()


# Hard links: other names of a file, which may be outside of the working directory.


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """A working directory with something around it."""
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner"


def resumed(work: Path, manifest: str = "") -> Session:
    if manifest:
        (work / ".safepoint").write_text(manifest)
    session = Session(work)
    session.restore()
    return session


@pytest.mark.parametrize("where", ["outside", "listed", "not listed"])
@pytest.mark.parametrize("copies", [True, False])
def test_a_table_with_other_names_is_cut_only_under_its_own(inner: Path, where: str, copies: bool) -> None:
    """What is outside is nobody's to cut: the name in W gets a copy, durably, and the other ones keep all rows."""
    work, below = inner, "copy_append_below = 0\n" * (not copies)
    other = {"outside": work.parent / "outside.csv", "listed": work / "o.csv", "not listed": work / "x.csv"}[where]
    manifest = "u.dat\nt.csv append\n" + "o.csv append\n" * (where == "listed") + below
    with contextlib.closing(resumed(work, manifest)) as session:
        (work / "t.csv").write_text("a\n")
        os.link(work / "t.csv", other)
        (work / "u.dat").write_text("0\n")
        session.hide(0, wait=True)
    with other.open("a") as table:
        table.write("lost\n")
    for _ in range(2):
        resumed(work).close()
        assert (work / "t.csv").read_text() == "a\n"
        assert other.read_text() == ("a\n" if where == "listed" else "a\nlost\n")
    assert (work / "t.csv").stat().st_nlink == 1
    assert not (work / ".safepoint.d/rank-00000/stage").exists()


def test_the_first_rows_of_a_table_with_other_names_are_cut_only_under_its_own(inner: Path) -> None:
    """Killed before its first set, the run begins again from what was there, which is a hard link."""
    work, outside = inner, inner.parent / "outside.csv"
    (work / "t.csv").write_text("a\n")
    os.link(work / "t.csv", outside)
    resumed(work, "u.dat\nt.csv append\n").close()
    with (work / "t.csv").open("a") as table:
        table.write("lost\n")
    resumed(work).close()
    assert ((work / "t.csv").read_text(), outside.read_text()) == ("a\n", "a\nlost\n")


@pytest.mark.leaves_damage
@pytest.mark.parametrize("entry", ["s.dat", "s.dat copy"])
def test_a_file_with_other_names_is_given_back_without_them(inner: Path, entry: str) -> None:
    """A rename takes the file itself, so who writes to it by another name damages the set: its checksum says so. Of a
    copy the other names are nothing to the set."""
    work, outside = inner, inner.parent / "outside.dat"
    for step in (0, 1):
        session = resumed(work, f"u.dat\n{entry}\n")
        (work / "u.dat").write_text(f"{step}\n")
        (work / "s.dat").unlink(missing_ok=True)
        (work / "s.dat").write_text(f"{step}\n")
        if step:
            os.link(work / "s.dat", outside)
        session.hide(step, wait=True)
        session.close()
    outside.write_text("9\n")
    session = resumed(work)
    assert (work / "s.dat").read_text() == ("1\n" if entry.endswith("copy") else "0\n")
    assert outside.read_text() == "9\n"
    session.close()
