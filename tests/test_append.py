"""Files that only grow: cut back to the row, read once, and never trusted when they are no longer what they were."""

from __future__ import annotations

import io
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import safepoint
from safepoint import DamagedError, SaveError, Session
from safepoint.codec import EDGE
from safepoint.disk import Disk, SyncFailed

ROWS, SAVES, KILLS = 1_000_000, 200, 20
PROGRAM = f"""
import os, sys
from safepoint import Session
from test_append import CountingDisk

each = {ROWS} // {SAVES}
disk = CountingDisk()
session = Session(disk=disk)
saved = session.restore()
step = saved.step if saved else 0
disk.log = open("../reads", "a", buffering=1)
with open("rows.csv", "a") as table:  # stays open for all of the run
    while step < {SAVES}:
        table.write("".join(f"{{row}},{{row * row}}\\n" for row in range(step * each, (step + 1) * each)))
        table.flush()
        step += 1
        begin = disk.read_of_rows
        session.hide(step)
        session.wait()
        # What was read, and how large the file was at the last set that this life knows of.
        print(disk.read_of_rows - begin, os.path.getsize("rows.csv"), file=disk.log)
    session.finish(step)
"""


class CountingDisk(Disk):
    """Counts the bytes that are read of the table."""

    read_of_rows = 0
    log: Any = None

    def open(self, path: str) -> BinaryIO:
        return Counted(self, path) if path.endswith("rows.csv") else super().open(path)  # type: ignore[return-value]


class Counted(io.FileIO):
    def __init__(self, disk: CountingDisk, path: str) -> None:
        super().__init__(path)
        self.disk = disk

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.disk.read_of_rows += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        self.disk.read_of_rows += len(data)
        return data


def live(work: Path, saves: int | None = None, seconds: float = 0) -> int:
    """One life, killed so many seconds after so many saves; its status."""
    paths = os.pathsep.join([str(Path(safepoint.__file__).parents[1]), str(Path(__file__).parent)])
    command, reads = [sys.executable, "-W", "error", "-c", PROGRAM], work.parent / "reads"
    before = count(reads)
    with subprocess.Popen(command, cwd=work, env=os.environ | {"PYTHONPATH": paths}) as program:
        while program.poll() is None and saves is not None:
            if count(reads) - before >= saves:
                time.sleep(seconds)
                program.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        return program.wait(60)


def count(reads: Path) -> int:
    return reads.read_bytes().count(b"\n") if reads.exists() else 0


def test_a_million_rows_over_200_saves_and_20_kills_are_there_once_and_in_order(tmp_path: Path) -> None:
    """G1, G2k for what only grows; and each save reads what was added, not what was there."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("rows.csv append\n")
    rng = random.Random(17)
    for _ in range(KILLS):
        assert live(work, rng.randrange(SAVES // KILLS - 1), 0.02 * rng.random()) == -signal.SIGKILL
    assert live(work) == 0
    expected = "".join(f"{row},{row * row}\n" for row in range(ROWS))
    assert (work / "rows.csv").read_text() == expected
    saves = [tuple(map(int, line.split())) for line in (tmp_path / "reads").read_text().splitlines()]
    assert len(saves) > SAVES // 2
    each = len(expected) // SAVES * 2  # a save adds between half and twice the mean
    beyond = [read for read, size in saves if read > min(size, each) + 4 * EDGE]
    assert not beyond, f"{len(beyond)} of {len(saves)} saves read more than the tail: {beyond[:5]} of {len(expected)}"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("t.csv append\nu.dat\n")
    return tmp_path


def write(work: Path, rows: str, mode: str = "a") -> None:
    with (work / "t.csv").open(mode) as table:
        table.write(rows)
    (work / "u.dat").write_text(rows)


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
    assert session._flight is None, "it waits, as no older set is whole"
    session.close()
    warned = [record.message for record in caplog.records if "begun anew" in record.message]
    assert len(warned) == 1 and warned[0].startswith("t.csv")
    (work / "u.dat").unlink(missing_ok=True)
    write(work, "lost", "a")
    again = Session(work)
    saved = again.restore()
    assert saved is not None and saved.step == 2
    assert (work / "t.csv").read_text() == new
    states = safepoint.session.restore.verify(Disk(), again._root)
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

    class FailsOnce(Disk):
        failing = False

        def sync_files(self, paths: Any, opened: Any = ()) -> None:
            paths = list(paths)
            if self.failing and any(path.endswith("t.csv") for path in paths):
                self.failing = False
                raise SyncFailed(5, os.strerror(5), paths[0])
            super().sync_files(paths)

    disk = FailsOnce()
    session = Session(work, disk=disk)
    write(work, "a\n")
    session.hide(0)
    write(work, "b\n")
    disk.failing = True
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
    assert session._flight is None
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

    class FailsOnce(Disk):
        failing = False

        def sync_files(self, paths: Any, opened: Any = ()) -> None:
            paths = list(paths)
            if self.failing and any(path.endswith("u.dat") for path in paths):
                self.failing = False
                raise SyncFailed(5, os.strerror(5), paths[0])
            super().sync_files(paths)

    (tmp_path / ".safepoint").write_text("u.dat\n")
    disk = FailsOnce()
    session = Session(tmp_path, disk=disk)
    for step in range(2):
        (tmp_path / "u.dat").write_text(f"step {step}")
        disk.failing = True
        with pytest.raises(SaveError, match=r"u\.dat: Input/output error"):
            session.hide(step, wait=True)
        for verb in (session.hide, session.finish):
            with pytest.raises(SaveError, match=r"u\.dat: its fsync failed before"):
                verb(step)
        (tmp_path / "u.dat").write_text(f"step {step} again")
        assert session.hide(step, wait=True) is not None
    session.close()
