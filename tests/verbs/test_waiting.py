"""A set that waits for the saver: a newer one takes its place, and what was promised of it holds."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from testbed.commands import answer, cli
from testbed.disks import Failing, Gated, NoRoom, ends
from testbed.handlers import ctrl_c
from testbed.sessions import ROOT, Said, Start, contents, press_ctrl_c, sets, when_awaited, write
from testbed.waiting import wait_for

from safepoint import LockedError, RefusedFileError, SaveError, Session
from safepoint.disk import Disk, SyncFailed
from safepoint.pace import blocking
from safepoint.record import Item
from safepoint.saving import background, find, prune


def hidden(session: Session, work: Path, *steps: int) -> None:
    for step in steps:
        write(work, u_dat=str(step))
        session.hide(step)


def swept(session: Session) -> None:
    """What was given up is gone."""
    for _, sweep in session._work._sweeps:
        sweep.result(60)


def left_of_given_up(work: Path) -> list[Path]:
    """Directories may be spare."""
    return [path for path in (work / ROOT).glob("gone-*/**/*") if not path.is_dir()]


def one_in_flight(start: Start, work: Path, disk: Disk, manifest: str = "u.dat\n") -> Session:
    """Set 1 (step 0) is stored; set 2 (step 1) is in flight, at the gate."""
    session = start(manifest, disk=disk)
    hidden(session, work, 0)
    getattr(disk, "gate", threading.Event()).clear()
    hidden(session, work, 1)
    return session


def test_of_those_that_wait_only_the_newest_is_kept_and_the_log_counts_them(start: Start, work: Path) -> None:
    disk = Gated()
    session = one_in_flight(start, work, disk)
    hidden(session, work, *range(2, 9))
    swept(session)
    assert sets(work) == [1]
    there = sorted(path.name for path in (work / ROOT).glob("*-0*") if not path.name.startswith("gone-"))
    assert not left_of_given_up(work) and there == ["set-00000001", "set-00000002", "set-00000009"]
    disk.gate.set()
    session.wait()
    assert sets(work) == [2, 9]
    lines = [json.loads(line) for line in (work / ROOT / "log.jsonl").read_text().splitlines()]
    saved = [line for line in lines if line["event"] == "saved"]
    assert [line["set"] for line in saved] == [1, 2, 9]
    assert sum(line.get("superseded", [0])[0] for line in lines) == 6
    assert [line["superseded"][2:] for line in lines if "superseded" in line] == [[9, 2]]  # in the line of set 2
    assert "9 sets in this life, " in cli("status", work).stdout
    assert answer("status", work)["hidden"]["hidden"] == 9
    assert "9 were hidden, 3 stored" in cli("report", work, "-o", "-").stdout


@pytest.mark.parametrize("verb", ["wait", "close", "restore", "finish"])
def test_a_set_that_waits_is_stored_by_all_that_promise_it(start: Start, work: Path, verb: str) -> None:
    disk = Gated()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3)
    when_awaited(session._work.flight, disk.gate.set)
    if verb == "finish":
        write(work, u_dat="4")
        session.finish()
        assert contents(work) == {"u.dat": "4"}
        return
    point: Any = getattr(session, verb)()
    assert sets(work) == [2, 4]
    if verb == "restore":
        assert point.step == 3 and contents(work) == {"u.dat": "3"}


def test_hide_that_waits_supersedes_the_one_before_only_when_it_is_durable(start: Start, work: Path) -> None:
    class Both(Gated, NoRoom):
        def __init__(self) -> None:
            Gated.__init__(self)
            NoRoom.__init__(self, ends("set-00000004/record.json.new"))

    disk = Both()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2)
    when_awaited(session._work.flight, disk.gate.set)
    write(work, u_dat="3")
    with pytest.raises(SaveError, match=r"^set 4 \(step 3\) not stored: .*No space left"):
        session.hide(3, wait=True)
    assert contents(work) == {"u.dat": "3"}
    session.wait()
    assert sets(work)[-1] == 3
    session.hide(3, wait=True)
    assert sets(work)[-1] == 5


def test_the_failure_of_the_set_in_flight_is_told_once_and_does_not_concern_the_next(start: Start, work: Path) -> None:
    gate = threading.Event()
    session = start("u.dat\n", disk=Failing(ends("set-00000002/files/u.dat"), meanwhile=gate.wait))
    hidden(session, work, 0, 1, 2)
    gate.set()
    with pytest.raises(SaveError, match=r"^set 2 \(step 1\) not stored: u.dat: Input/output error"):
        session.wait()
    session.wait()
    assert sets(work) == [1, 3]


def test_every_set_is_stored_where_each_is_wanted_and_it_is_said(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\nkeep = all\n")
    hidden(session, work, *range(6))
    session.wait()
    assert sets(work) == [1, 2, 3, 4, 5, 6]
    assert ("INFO", "keep = all: every set is stored, so hide waits for the one before") in said


def test_without_another_thread_the_superseded_set_is_removed_at_once(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Gated()
    session = one_in_flight(start, work, disk)

    def refuse(name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background, "Worker", refuse)
    hidden(session, work, 2, 3)
    assert not (work / ROOT / "set-00000003").exists() and not left_of_given_up(work)
    disk.gate.set()
    session.wait()
    assert sets(work) == [2, 4]


class LateSweeper(Gated):
    """What removes the sets that were given up waits at a gate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.swept = threading.Event()

    def rename(self, source: str, target: str) -> None:
        if threading.current_thread().name == "safepoint-sweeper":
            assert self.swept.wait(60)
        super().rename(source, target)


@pytest.mark.parametrize(("sweeps", "seconds"), [(2, 60.0), (100, 0.0)])
def test_hide_waits_for_what_removes_only_if_that_is_behind(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch, sweeps: int, seconds: float
) -> None:
    """A thread may be late though nothing is wrong; but what was given up must not gather."""
    monkeypatch.setattr(background, "SWEEPS", sweeps)
    monkeypatch.setattr(background, "LATE_S", 60.0)
    disk = LateSweeper()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3, 4)  # two sets were given up
    monkeypatch.setattr(background, "LATE_S", seconds)
    assert not disk.swept.is_set(), "three sets were hidden and nobody waited"
    when_awaited(session._work._sweeps[0][1], disk.swept.set)
    hidden(session, work, 5)
    waited = disk.swept.is_set()
    disk.swept.set()
    disk.gate.set()
    session.wait()
    assert waited
    assert sets(work) == [2, 6] and not left_of_given_up(work)


class Making(Gated):
    """Counts the directories that are made."""

    made = 0

    def mkdir(self, path: str, *mode: int) -> None:
        self.made += 1
        super().mkdir(path, *mode)


def spare(work: Path) -> list[Path]:
    return sorted((work / ROOT).glob("gone-*"))


def with_spares(start: Start, work: Path, disk: Disk) -> Session:
    """Of two sets that were given up the directories are left; the set in flight is at the gate."""
    session = one_in_flight(start, work, disk)
    for step in (2, 3, 4):
        hidden(session, work, step)
        swept(session)
    assert [path.name for path in spare(work)] == ["gone-00000004"]  # that of set 3 is set 5's
    return session


def test_a_set_that_is_given_up_leaves_its_directories_to_a_later_one(start: Start, work: Path) -> None:
    """XFS may have to write its log before it can make a directory: `hide` would wait for the disk."""
    session = with_spares(start, work, disk := Making())
    (left,) = spare(work)
    inodes, made = (left.stat().st_ino, (left / "files").stat().st_ino), disk.made
    hidden(session, work, 5)
    taken = work / ROOT / "set-00000006"
    assert (taken.stat().st_ino, (taken / "files").stat().st_ino) == inodes and disk.made == made
    disk.gate.set()
    session.wait()
    write(work, u_dat="torn")
    session.close()
    assert spare(work) == [] and sets(work) == [2, 6]
    start("u.dat\n", restore=False).restore()
    assert contents(work) == {"u.dat": "5"}


@pytest.mark.parametrize("how", ["removed by hand", "something else has the name"])
def test_a_spare_directory_that_is_of_no_use_is_no_obstacle(start: Start, work: Path, how: str) -> None:
    session = with_spares(start, work, disk := Making())
    (left,) = spare(work)
    if how == "removed by hand":
        shutil.rmtree(left)
    else:
        (work / ROOT / "set-00000006/files/x").mkdir(parents=True)
        write(work, u_dat="5")
        with pytest.raises(SaveError, match=r"set 6 .*not taken: .*File exists"):
            session.hide(5)
        shutil.rmtree(work / ROOT / "set-00000006")
    hidden(session, work, 5)
    disk.gate.set()
    session.wait()
    hidden(session, work, 6)
    session.wait()
    assert spare(work) == []


def test_a_prune_that_looks_leaves_the_spare_directories_and_a_roll_back_removes_them(start: Start, work: Path) -> None:
    """The thread of the program may be making a set of one."""
    session = with_spares(start, work, disk := Making())
    before = spare(work)
    session._sets.doubt()
    disk.gate.set()
    session.wait()
    assert before == spare(work) and sets(work) == [2, 5]
    assert session.restore() and spare(work) == [] and not session._sets.own
    hidden(session, work, 5, 6)
    session.wait()
    assert len(sets(work)) == 2


def test_what_the_program_is_removing_is_none_of_a_prune_that_looks(start: Start, work: Path) -> None:
    """A set that could not be taken goes while the saver commits the one before; its own error is raised."""

    class Crossing(Gated):
        armed = False

        def duplicate(self, source: Any, target: Any, *how: Any, **more: Any) -> bool:
            with (work / "c.dat").open("a") as file:
                file.write("more" * self.armed)
            return super().duplicate(source, target, *how, **more)

        def sync_dir(self, path: str) -> None:
            super().sync_dir(path)
            if self.armed and threading.current_thread() is threading.main_thread() and path.endswith(ROOT):
                self.gate.set()
                assert session._work.flight
                session._work.flight.exception(60)  # the saver has pruned

    session = start("u.dat\nc.dat copy\n", disk=(disk := Crossing()))
    for step in (0, 1):
        write(work, u_dat=str(step), c_dat="c")
        session.hide(step)
        disk.gate.clear()
    session._sets.doubt()
    disk.armed = True
    write(work, u_dat="2")
    with pytest.raises(RefusedFileError, match=r"c\.dat changed while it was copied"):
        session.hide(2)
    disk.armed = False
    assert (work / "u.dat").read_text() == "2" and spare(work) == []


def test_a_directory_that_a_stranger_holds_is_no_spare_one(start: Start, work: Path, said: Said) -> None:
    """On NFS a file that somebody has open stays under another name."""

    class Silly(Gated):
        def remove(self, path: str) -> None:
            super().remove(path)
            if path.endswith("gone-00000003/files/u.dat"):
                Path(path).with_name(".nfs0000").write_text("2")

    session = one_in_flight(start, work, disk := Silly())
    for step in (2, 3, 4):
        hidden(session, work, step)
        swept(session)
    assert [path.name for path in spare(work)] == ["gone-00000003", "gone-00000004"]
    assert [text for level, text in said if level == "WARNING" and "set 3, of which nobody needs anything" in text]
    hidden(session, work, 5)
    assert (work / ROOT / "gone-00000003/files/.nfs0000").exists() and not (work / ROOT / "gone-00000004").exists()
    (work / ROOT / "gone-00000003/files/.nfs0000").unlink()
    disk.gate.set()
    session.wait()
    hidden(session, work, 6)
    session.wait()
    assert not (work / ROOT / "gone-00000003").exists()


def test_a_session_whose_side_directory_is_another_one_removes_nothing_there(start: Start, work: Path) -> None:
    session = with_spares(start, work, disk := Making())
    disk.gate.set()
    session.wait()
    (work / ".safepoint.d").rename(work / "away")
    (work / ROOT / "gone-00000004/files").mkdir(parents=True)
    with contextlib.suppress(SaveError):
        session.close()
    assert (work / ROOT / "gone-00000004/files").exists()
    shutil.rmtree(work / ".safepoint.d")
    (work / "away").rename(work / ".safepoint.d")


def test_what_cannot_be_removed_of_a_superseded_set_is_said_and_tried_again(
    start: Start, work: Path, said: Said
) -> None:
    class Stuck(Gated):
        def rename(self, source: str, target: str) -> None:
            if target.endswith("gone-00000003") and not self.gate.is_set():
                raise OSError(16, "Device or resource busy", source)
            super().rename(source, target)

    disk = Stuck()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3)
    swept(session)
    assert [text for level, text in said if level == "WARNING" and text.startswith("set 3")]
    disk.gate.set()
    session.wait()
    hidden(session, work, 4)
    session.wait()
    assert sets(work)[-2:] == [4, 5] and not (work / ROOT / "set-00000003").exists()


# What the set in flight, and what waits, do to the call that meets them.


def failing(start: Start, manifest: str, name: str) -> tuple[Session, threading.Event]:
    """The fsync of this file in set 2 fails, when the gate is open."""
    gate = threading.Event()
    disk = Failing(lambda path: path.endswith(name) and session._number > 1, meanwhile=gate.wait)
    session = start(manifest, disk=disk)
    return session, gate


@pytest.mark.parametrize("waiting", [False, True])
def test_if_the_set_in_flight_fails_a_hide_that_waits_for_it_puts_its_files_back(
    start: Start, work: Path, waiting: bool
) -> None:
    """G7: else finish would declare those of an older set the result."""
    session, gate = failing(start, "u.dat\n", "set-00000002/files/u.dat")
    hidden(session, work, 0, 1, *[2] * waiting)
    when_awaited(session._work.flight, gate.set)
    write(work, u_dat="3")
    with pytest.raises(SaveError, match=r"^set 2 \(step 1\) not stored: u.dat: Input/output error"):
        session.hide(3, wait=True)
    assert contents(work) == {"u.dat": "3"}
    session.finish(3)
    assert contents(work) == {"u.dat": "3"}


def test_ctrl_c_while_it_waits_for_the_set_in_flight_puts_its_files_back(start: Start, work: Path) -> None:
    disk = Gated()
    session = one_in_flight(start, work, disk)
    when_awaited(session._work.flight, press_ctrl_c)
    write(work, u_dat="2")
    with pytest.raises(KeyboardInterrupt):
        session.hide(2, wait=True)
    assert contents(work) == {"u.dat": "2"}
    when_awaited(session._work.flight, disk.gate.set)
    session.hide(2, wait=True)
    assert sets(work)[-1] == 4


def test_a_set_that_waited_with_rows_whose_fsync_failed_is_not_committed(start: Start, work: Path) -> None:
    """G2: they look clean, and the next fsync of the table would succeed over nothing."""
    session, gate = failing(start, "u.dat\nhistory.csv append\n", "/history.csv")
    for step in range(3):
        write(work, u_dat=str(step), history_csv="row\n" * (step + 1))
        session.hide(step)
    gate.set()
    with pytest.raises(SaveError, match=r"^set 2 \(step 1\) not stored: history.csv: Input/output error"):
        session.wait()
    with pytest.raises(SaveError, match=r"^set 3 \(step 2\) not stored: history.csv: its fsync failed before"):
        session.wait()
    assert sets(work) == [1]
    session.close()
    again = start()
    assert sets(work) == [1] and (work / "history.csv").read_text() == "row\n"
    again.close()


def test_a_table_that_is_cut_while_its_set_is_in_flight_makes_the_next_hide_wait(
    start: Start, work: Path, said: Said
) -> None:
    """G2: when the older set is stored it is not whole any more, so this one must be, before older ones go."""
    session = start("u.dat\nhistory.csv append\nkeep = 1\n", disk=(disk := Gated()))
    write(work, u_dat="0", history_csv="row\n")
    session.hide(0)
    disk.gate.clear()
    write(work, u_dat="1", history_csv="row\nrow\nrow\n")
    session.hide(1)
    (work / "history.csv").write_text("row\nrow\n")
    write(work, u_dat="2")
    when_awaited(session._work.flight, disk.gate.set)
    try:
        session.hide(2)
        assert sets(work)[-1] == 3
    except SaveError as error:
        assert str(error).startswith("set 2 (step 1) not stored: history.csv was cut after hide took it"), error
        assert contents(work) == {"u.dat": "2", "history.csv": "row\nrow\n"}
        session.hide(2, wait=True)
        assert sets(work)[-1] == 4
    assert [text for level, text in said if level == "WARNING" and "history.csv, listed as append, was cut" in text]


@pytest.mark.parametrize("ranks", [False, True])
def test_a_close_that_was_interrupted_holds_the_lock_as_long_as_a_set_waits(
    start: Start, work: Path, ranks: bool
) -> None:
    """The threads must not end before it is stored, at the end of the process."""
    disk = Gated()
    session = one_in_flight(start, work, disk)
    session._work._alone = not ranks
    write(work, u_dat="2")
    agree = session._agree_to_hide
    session._agree_to_hide = lambda *given: (*agree(*given)[:2], True)  # type: ignore[method-assign]
    session.hide(2)
    flight = session._work.flight
    assert flight

    class Interrupted(type(flight)):  # type: ignore[misc]
        def exception(self, timeout: float | None = None) -> None:
            raise KeyboardInterrupt

        def done(self) -> bool:
            return True

    session._work.flight = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        session.close()
    with pytest.raises(LockedError):
        Session(work)
    session._work.flight = flight
    disk.gate.set()
    session._work.drain()
    assert sets(work) == [2, 3]
    session._home.release()


def test_after_a_roll_back_no_set_goes_because_one_of_its_number_had_been_given_up(start: Start, work: Path) -> None:
    class Stuck(Gated):
        stuck = True

        def remove(self, path: str) -> None:
            if self.stuck and "gone-00000003" in path:
                raise OSError(16, "Device or resource busy", path)
            super().remove(path)

        def sync_files(self, paths: Any, *more: Any) -> None:
            paths = list(paths)
            if self.stuck and any("set-00000004" in path for path in paths):
                raise SyncFailed(5, "Input/output error", paths[0])
            super().sync_files(paths, *more)

    disk = Stuck()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3)
    swept(session)
    disk.gate.set()
    with pytest.raises(SaveError):
        session.wait()
    disk.stuck = False
    session.restore()
    for step in (2, 3):
        hidden(session, work, step)
        session.wait()
        assert len(sets(work)) == 2


def test_what_is_left_of_a_take_that_failed_goes_with_the_next_save(start: Start, work: Path) -> None:
    class Full(Disk):
        full = False

        def duplicate(self, source: Any, target: Any, *how: Any, **more: Any) -> bool:
            if self.full:
                raise OSError(28, "No space left on device", target.name)
            return super().duplicate(source, target, *how, **more)

        def rename(self, source: str, target: str) -> None:
            if self.full and "gone-" in target:
                raise OSError(28, "No space left on device", source)
            super().rename(source, target)

    session = start("u.dat\nparams.db copy\n", disk=(disk := Full()))
    for step in range(6):
        write(work, u_dat=str(step), params_db="p")
        disk.full = step == 2
        if disk.full:
            with pytest.raises(SaveError, match="No space left"):
                session.hide(step)
            disk.full = False
        session.hide(step, wait=True)
    assert not (work / ROOT / "set-00000003").exists() and len(sets(work)) == 2


def says_where_its_files_are(session: Session, work: Path, name: str, committed: list[int]) -> None:
    """The error of a set says it, and they stay there until the set after."""
    with pytest.raises(SaveError, match=rf"its files are in (\S*/{name}/files)"):
        session.wait()
    assert sets(work) == committed and (work / ROOT / name / "files/u.dat").exists()
    hidden(session, work, 3)
    session.wait()
    assert not (work / ROOT / name).exists() and sets(work)[-1] == 4


def test_where_the_files_of_a_failed_set_are_is_true_when_it_is_told(start: Start, work: Path) -> None:
    """The set that waited is stored before that: what has failed stays until the set after."""
    session, gate = failing(start, "u.dat\n", "set-00000002/files/u.dat")
    hidden(session, work, 0, 1, 2)
    gate.set()
    says_where_its_files_are(session, work, "failed-00000002", [1, 3])


def test_the_same_if_it_is_none_of_an_fsync(start: Start, work: Path) -> None:
    """Such a set keeps its name, and counted as one that was never committed."""

    class Full(Gated):
        def create(self, path: str, *mode: int) -> Any:
            if path.endswith("set-00000002/record.json.new"):
                self.gate.wait()
                raise OSError(28, "No space left on device", path)
            return super().create(path, *mode)

    disk = Full()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2)
    disk.gate.set()
    says_where_its_files_are(session, work, "set-00000002", [1, 3])
    assert sets(work) == [3, 4]


def test_the_same_if_it_fails_while_the_next_one_is_taken(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then `hide` has asked whether it had failed, and not yet said which number it takes."""
    session, gate = failing(start, "u.dat\n", "set-00000002/files/u.dat")
    hidden(session, work, 0, 1)
    find_now = find.find

    def late(*arguments: Any, **options: Any) -> Any:
        gate.set()
        wait_for(lambda: not session.saving)
        return find_now(*arguments, **options)

    monkeypatch.setattr(find, "find", late)
    hidden(session, work, 2)
    monkeypatch.undo()
    says_where_its_files_are(session, work, "failed-00000002", [1, 3])


def test_ctrl_c_while_old_sets_are_removed_does_not_undo_a_hide(start: Start, work: Path) -> None:
    disk = LateSweeper()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3)  # one was given up
    time.sleep(2 * background.LATE_S)
    looks = when_awaited(session._work._sweeps[0][1], ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        hidden(session, work, 4)
    disk.swept.set()
    disk.gate.set()
    session.wait()
    assert len(looks) == 1, "it waited on"
    assert sets(work) == [2, 5]
    lines = [json.loads(line) for line in (work / ROOT / "log.jsonl").read_text().splitlines()]
    assert [line["superseded"][2:] for line in lines if "superseded" in line] == [[5, 2]]


def test_ctrl_c_while_old_sets_are_removed_leaves_none_for_ever(start: Start, work: Path) -> None:
    disk = LateSweeper()
    session = one_in_flight(start, work, disk)
    hidden(session, work, 2, 3)
    time.sleep(2 * background.LATE_S)
    disk.gate.set()
    looks = when_awaited(session._work._sweeps[0][1], ctrl_c)
    write(work, u_dat="4")
    with pytest.raises(KeyboardInterrupt):
        session.hide(4, wait=True)
    assert looks
    disk.swept.set()
    for step in range(5, 9):
        hidden(session, work, step)
        session.wait()
    assert sets(work) == [8, 9]


def test_a_session_that_was_dropped_has_the_lock_as_long_as_it_removes_sets(work: Path) -> None:
    def begin(manifest: str, **options: Any) -> Session:  # nobody else holds it
        (work / ".safepoint").write_text(manifest)
        return Session(work, **options)

    disk = LateSweeper()
    session = one_in_flight(begin, work, disk)
    hidden(session, work, 2, 3)
    disk.gate.set()
    savers = session._work
    wait_for(lambda: sets(work)[-1] == 4 and not savers.busy)
    assert savers.thread
    savers.thread.submit(lambda: None).result(300)  # so that the saver has forgotten the job before
    reference = weakref.ref(session)
    del session
    gc.collect()
    kept = reference()
    disk.swept.set()
    assert kept
    kept.close()


def test_a_fault_of_ours_while_a_set_is_removed_is_logged(
    start: Start, work: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Gated()
    session = one_in_flight(start, work, disk)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(prune, "remove_tree", broken)
    hidden(session, work, 2, 3)
    with contextlib.suppress(RuntimeError):
        swept(session)
    monkeypatch.undo()
    disk.gate.set()
    wait_for(lambda: "a fault of ours" in caplog.text)  # a future tells who waits for it before it calls who logs it
    session.wait()
    assert sets(work) == [2, 4]


def test_at_the_end_of_the_process_the_errors_of_all_sets_are_logged(tmp_path: Path) -> None:
    code = """
import os, threading
from safepoint import Session
from testbed.disks import Gated
from safepoint.disk import SyncFailed
class Sick(Gated):
    def sync_files(self, paths, *more):
        super().sync_files(paths, *more)
        if any("set-00000002" in path or "set-00000003" in path for path in paths):
            raise SyncFailed(5, "Input/output error", paths[0])
open(".safepoint", "w").write("u.dat\\n")
session = Session(disk=(disk := Sick()))
session.restore()
for step in range(3):
    open("u.dat", "w").write(str(step))
    session.hide(step)
    disk.gate.clear()
disk.gate.set()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and re.findall(r"set (\d) \(step \d\) not stored", done.stderr) == ["2", "3"], done


def test_a_program_that_is_blocked_too_long_is_told_why_once(
    start: Start, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = start("params.db copy\nu.dat\n")
    listener = blocking.Blocking(session._home, every=False)
    files = [Item("params.db", "copy", 500_000_000, 0, 0), Item("u.dat", "move", 8, 0, 0)]
    with caplog.at_level(logging.WARNING):
        for number in range(200):
            listener.hidden(number, float(number), number + 0.2, taken=True, waited=False, files=files)
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith("hide keeps the program for 20 % of its time: params.db is copied each time, 500 MB")
    caplog.clear()
    quick = blocking.Blocking(session._home, every=False)
    for number in range(200):
        quick.hidden(number, float(number), number + 0.02, taken=True, waited=False, files=files)
    assert not caplog.records
