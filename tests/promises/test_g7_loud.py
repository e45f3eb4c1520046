"""G7, loud: ENOSPC, EDQUOT, EIO and EACCES while saving raise an error that names file and cause. The previous set
stays.

First every single operation is made to fail, on the model of `faultdisk`; then the failures that need a scene of their
own. tests/proof/powercut/test_full.py has real disks that are full.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from testbed import program
from testbed.disks import Failing, Meddler, NoRoom, ends, none
from testbed.faultdisk import FaultDisk, on
from testbed.faults import (
    after_a_failed_fsync_nothing_was_committed,
    error_is_clear,
    own_write,
    power_cuts_after_a_failure,
    previous_set_stays,
)
from testbed.program import SHAPES, Program, Violation, listed, new_directory, plain
from testbed.sessions import ROOT, Death, Said, Start, contents, kill, sets, write
from testbed.sweep import LONG, errors, sample, undisturbed

from safepoint import SafepointError, SaveError, Session
from safepoint.disk import NONE, Disk, SyncFailed
from safepoint.record import Record
from safepoint.restoring.verify import verify
from safepoint.retention import Keep
from safepoint.root import Root
from safepoint.saving import prune

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("saver", ["now", "wait"])
@pytest.mark.parametrize(("shape", "initial"), [("plain", False), ("plain", True), ("kinds", False)])
def test_each_operation_fails_once(tmp_path: Path, shape: str, saver: str, initial: bool, name: str) -> None:
    """G7: an error that names file and cause, or true success; afterwards the previous set, or a newer one, restores.
    No commit follows an fsync that failed."""
    whole = undisturbed(tmp_path / "whole", shape, saver, initial)

    def holds(program: Program, directory: Path) -> None:
        error_is_clear(program, ERRORS[name])
        after_a_failed_fsync_nothing_was_committed(program, previous_set_stays(program, directory))

    every = 1 if shape == "plain" else 3
    errors(tmp_path, whole, sample(range(len(whole.disk.record.ops)), 9 * every, every), ERRORS[name], holds)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("saver", ["now", "late", "wait"])
def test_a_program_that_catches_the_error_goes_on_and_finishes(tmp_path: Path, shape: str, saver: str) -> None:
    """G7: after a failed save the next `hide` starts afresh; nothing of the failure is left at the end."""
    whole = undisturbed(tmp_path / "whole", shape, saver)

    def holds(program: Program, directory: Path) -> None:
        if program.handed >= 0 and not own_write(program) and not program.finished:
            raise Violation("it did not get to the end")
        previous_set_stays(program, directory)

    every = 1 if shape == "plain" else 5
    errors(
        tmp_path, whole, sample(range(len(whole.disk.record.ops)), 8 * every, every), errno.ENOSPC, holds, go_on=True
    )


@pytest.mark.parametrize("saver", ["now", "wait"])
@pytest.mark.parametrize(("shape", "initial"), [("plain", False), ("plain", True), ("kinds", False)])
def test_a_disk_that_stays_full_costs_nothing_that_was_safe(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G7: from some operation on nothing can be written, not even to put files back; then there is room again."""
    whole = undisturbed(tmp_path / "whole", shape, saver, initial)
    every = 1 if shape == "plain" else 3
    points = sample(whole.disk.record.changing, 5 * every, every)
    errors(tmp_path, whole, points, errno.ENOSPC, previous_set_stays, from_then_on=True)


def test_power_cut_while_files_go_back_after_a_commit_that_failed(tmp_path: Path) -> None:
    power_cuts_after_a_failure(tmp_path, 1 if LONG else 10)


def test_after_a_failed_waiting_hide_the_files_are_back(tmp_path: Path) -> None:
    """hide: on error the files of this call are where they were, and no set is left that would mix with them."""
    whole = undisturbed(tmp_path / "whole", "plain", "wait")
    ops = whole.disk.record.ops
    for at in (i for i, op in enumerate(ops) if "set-00000002" in op):
        directory = new_directory(tmp_path / "work", "plain")
        disk = FaultDisk(directory, fail_at=at, error=errno.EIO)
        session = Session(directory, disk=disk, background=False)
        session.restore()
        for step in (0, 1):
            program.write(disk, plain(step))
            try:
                session.hide(step)
            except SaveError as error:
                assert listed(directory) == plain(step), (disk.failed, error)
        disk.end()
        shutil.rmtree(tmp_path / "work")


class NoDescriptors(FaultDisk):
    """sync_dir cannot even open the directory: EMFILE, which is no SyncFailed."""

    full = ""

    def sync_dir(self, path: str) -> None:
        if self.full and os.path.exists(self.full):
            self.full, self.failed = "", "open " + path
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().sync_dir(path)


@pytest.mark.parametrize("kill", range(0, 26))
def test_an_error_after_the_rename_of_the_record_takes_the_set_back_whole(tmp_path: Path, kill: int) -> None:
    """G7: with its record in place a set is not taken apart: killed then, it would look damaged."""
    directory = new_directory(tmp_path / "work", "plain")
    disk = NoDescriptors(directory)
    root = Root(os.path.realpath(directory))
    disk.full = root.record(2)
    program = Program(disk, "plain", "wait", 3)
    old = disk.step

    def step(what: str, path: str, *, changes: bool = True) -> int:
        if not disk.full and disk.kill_at < 0 and disk.failed:
            disk.kill_at = len(disk.record.ops) + kill
        return old(what, path, changes=changes)

    disk.step = step  # type: ignore[method-assign]
    program.run()
    states = verify(on(root, FaultDisk(directory, inodes=disk.inodes)))
    assert all(state in ("committed", "uncommitted") for state in states.values()), states


NO_ROOM = {
    "taken.json": ("hide", "set 2 (step 1) not taken: ", "set 1 (step 0) is intact; the files are where they were"),
    "files/sub": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "params.db": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "u.dat": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "record.json.new": ("wait", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; its files are back in place"),
    "finished.json.new": ("finish", "not finished: ", "set 1 (step 0) is intact; files and sets are as they were"),
    "/sub/v.dat": ("finish", "not finished: ", "set 1 (step 0) is intact; files and sets are as they were"),
    "owner.json": ("init", "cannot set up .safepoint.d: ", "set 1 (step 0) is intact; the listed files are untouched"),
    "baseline.json.new": (
        "first",
        "cannot set up .safepoint.d: ",
        "the listed files are untouched",
    ),
    ".safepoint.d": ("first", "cannot set up .safepoint.d: ", "the listed files are untouched"),
}


@pytest.mark.parametrize("full", NO_ROOM)
def test_a_full_disk_says_which_set_is_intact(start: Start, work: Path, full: str) -> None:
    """G7: whatever was being done, and the next try goes through."""
    verb, begins, end = NO_ROOM[full]
    disk = NoRoom()
    (work / ".safepoint").write_text("u.dat\nsub/v.dat\nparams.db copy\n")
    do: dict[str, Callable[[], object]] = {"first": lambda: start(disk=disk), "init": lambda: start(disk=disk)}
    if verb != "first":
        session = start(disk=disk)
        for step in (0, 1):
            write(work, u_dat=str(step), sub__v_dat=str(step), params_db=str(step))
            if step == 0:
                session.hide(0)
        if verb == "init":
            session.close()
        do |= {"hide": lambda: session.hide(1), "wait": lambda: session.hide(1, wait=True), "finish": session.finish}
    before = contents(work)
    disk.of = ends(full)
    with pytest.raises(SaveError) as caught:
        do[verb]()
    text = str(caught.value)
    assert text.startswith(begins) and text.endswith(f": No space left on device; {end}"), text
    assert contents(work) == before and sets(work) == [1] * (verb != "first")
    do[verb]()


STUCK = {  # how it fails, and what is in W again
    "not renamed": {"u.dat", "v.dat"},
    "not renamed nor spoilt": set(),
    "committed, not renamed": {"u.dat", "v.dat"},
    "committed, not renamed nor spoilt": set(),
    "one not put back": {"v.dat"},
    "no descriptor": set(),
}


class Stuck(Disk):
    """The flush of set 2 fails, or that of its name, and then what would put its files back."""

    def __init__(self, how: str) -> None:
        self.how, self.on = how, False

    def _fail(self, kind: type[OSError], code: int, path: str, *hows: str) -> None:
        if self.on and self.how in hows:
            raise kind(code, os.strerror(code), path)

    def sync_files(self, paths: Any, opened: Any = NONE) -> None:
        paths = list(paths)
        if "set-00000002/files" in paths[0]:
            self._fail(SyncFailed, errno.ENOSPC, paths[0], "not renamed", "not renamed nor spoilt", "one not put back")
        super().sync_files(paths, opened)

    def rename(self, source: str, target: str) -> None:
        if "failed-" in target:
            self._fail(OSError, errno.ENOSPC, source, *[how for how in STUCK if "not renamed" in how])
        if "set-00000002/files/" in source:  # a kill right after this must not find a set without its files
            assert not Path(source).parents[1].joinpath("record.json").exists()
        if source.endswith("files/u.dat"):
            self._fail(OSError, errno.EACCES, source, "one not put back")
        super().rename(source, target)

    def truncate(self, path: str, length: int) -> None:
        self._fail(OSError, errno.EROFS, path, *[how for how in STUCK if "nor spoilt" in how])
        super().truncate(path, length)

    def sync_dir(self, path: str) -> None:
        if path.endswith(ROOT):
            self._fail(OSError, errno.EMFILE, path, "no descriptor")
            self._fail(SyncFailed, errno.EIO, path, *[how for how in STUCK if "committed" in how])
        super().sync_dir(path)


@pytest.mark.parametrize("how", STUCK)
@pytest.mark.parametrize("before", ["", "after a failure"])
@pytest.mark.parametrize("then", ["finish", "hide", "restore", "a new process", "all written anew"])
def test_files_that_cannot_go_back_are_never_forgotten(
    start: Start, work: Path, how: str, before: str, then: str
) -> None:
    """G4, G7: the error says where they are; what is left in W passes for no step, and the set is not completed."""
    disk = Stuck(how)
    session = start("*.dat\nkeep = 1\n", disk=disk)
    write(work, u_dat="1", v_dat="1")
    session.hide(1, wait=True)
    if before:  # a failed-00000002 is there already
        write(work, u_dat="x", v_dat="x")
        disk.how, disk.on = "one not put back", True
        session.hide(2)
        with pytest.raises(SaveError):
            session.wait()
        disk.how, disk.on = how, False
        session.restore()
        (work / "u.dat").unlink(), (work / "v.dat").unlink()
    write(work, u_dat="2", v_dat="2")
    disk.on = True
    with pytest.raises(SaveError) as caught:
        session.hide(2, wait=True)
    disk.on = False
    assert {path.name for path in work.glob("*.dat")} == STUCK[how], caught.value
    where = next((path for path in (work / ROOT).glob("*-00000002/files/u.dat")), None)
    assert (where is None) == ("u.dat" in STUCK[how])
    if where:
        assert where.read_text() == "2" and str(where.parent.relative_to(work)) in str(caught.value)
    told = re.escape(str(caught.value))
    broken = rf"^{{verb}} after {told}: go back to the last set with restore\(\); nothing was changed$"
    if then == "restore" or (then == "a new process" and "nor spoilt" not in how):
        if then == "a new process":
            kill(session)
            session = start(restore=False)
        point = session.restore()
        assert point and point.number == 1 and contents(work) == {"u.dat": "1", "v.dat": "1"} and sets(work) == [1]
    elif then in ("finish", "hide") and where:
        with pytest.raises(SaveError, match=broken.format(verb=then)):
            session.finish(2) if then == "finish" else session.hide(2)
        assert where.read_text() == "2"
    elif then == "all written anew":
        write(work, u_dat="3", v_dat="3")
        os.utime(work / "u.dat", ns=(1, 1)), os.utime(work / "v.dat", ns=(1, 1))
        if where:
            files = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
            for verb, call in (("hide", lambda: session.hide(3, wait=True)), ("finish", lambda: session.finish(3))):
                with pytest.raises(SaveError, match=broken.format(verb=verb)):
                    call()
            assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == files
            point = session.restore()
            assert point and point.number == 1 and contents(work) == {"u.dat": "1", "v.dat": "1"} and sets(work) == [1]
            write(work, u_dat="3", v_dat="3")
        session.hide(3, wait=True)
        number = 2 if where else 3  # a restore gives the numbers of what was given up anew
        assert sets(work) == [number]
        assert {path.name for path in (work / ROOT).glob("*-00000002")} <= {f"set-{number:08d}"}
        session.finish(3)
        assert contents(work) == {"u.dat": "3", "v.dat": "3"}


def test_a_worker_that_is_forked_during_a_save_holds_none_of_what_is_flushed(start: Start, work: Path) -> None:
    """Their space could not be freed as long as it lives."""
    held: list[str] = []

    def fork() -> None:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                for name in os.listdir("/proc/self/fd"):
                    with suppress(OSError):  # that of this look itself
                        path = os.readlink(f"/proc/self/fd/{name}")
                        if "/set-" in path:
                            os.write(writer, f"{path}\n".encode())
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader) as told:
            held.extend(told)
        os.waitpid(child, 0)

    disk = Meddler(fork)
    session = start("*.dat\n", disk=disk)
    write(work, u_dat="1", v_dat="1")
    disk.what = disk.armed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        session.hide(1, wait=True)
    assert disk.what is None and held == []


def test_what_cannot_be_removed_does_not_keep_the_rest(
    start: Start, work: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of an older set that somebody sits in, say."""
    rmdir = Disk.rmdir

    def refuse(self: Disk, path: str) -> None:
        if path.endswith("gone-00000077"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        rmdir(self, path)

    session = start("u.dat\nkeep = 1\n")
    (work / ROOT / "gone-00000077").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rmdir", refuse)
        for step in range(3):
            write(work, u_dat=str(step))
            session.hide(step, wait=True)
    assert sets(work) == [3]
    assert not (work / ROOT / "baseline.json").exists() and not [text for level, text in said if level == "WARNING"]


class Looking(Disk):
    """Counts how often the sets are looked for."""

    looks = 0

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        self.looks += path.endswith(ROOT)
        return super().scan(path)


def test_a_set_that_was_never_committed_here_is_not_forgotten(tmp_path: Path) -> None:
    """It stays while an older one may be that of all ranks; though no later prune looks again, its space is freed."""
    disk, root, known, left = Looking(), Root(str(tmp_path)), prune.Sets(), []
    for number, agreed in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 4)):
        os.makedirs(root.stored(number, ""))
        if number == 2:
            known.doubt()
        else:
            Path(root.record(number)).touch()
            record = Record(number, number, 0.0, 0.0, "", "", 0, 2, 0, (), ())
            disk.looks = 0
            prune.prune(on(root, disk), record, Keep(2), agreed, known)
            left.append((number, disk.looks > 0, on(root, disk).numbers("set")))
    assert left == [(1, True, [1]), (3, True, [1, 2, 3]), (4, False, [1, 2, 3, 4]), (5, False, [4, 5])]
    shutil.rmtree(root.side)


def test_after_a_failure_the_next_save_looks_again(start: Start, work: Path) -> None:
    """It removes the set that failed, and what a removal that failed has left."""
    disk = Failing()
    session = start("u.dat\nkeep = 1\n", disk=disk)
    for step in range(6):
        write(work, u_dat=str(step))
        disk.of = ends("set-00000004/files/u.dat") if step == 3 else none
        if step == 3:
            (work / ROOT / "gone-00000001").mkdir()
        session.hide(step)
        with suppress(SaveError):
            session.wait()
        assert (work / ROOT / "failed-00000004").exists() == (step == 3)
    assert sets(work) == [6] and list((work / ROOT).glob("gone-*")) == []


class FullFrom(Disk):
    """The disk is full from a certain directory on, so full that nothing can be removed either, as btrfs may be."""

    def __init__(self, ending: str) -> None:
        self.ending, self.broken = ending, False

    def _refuse(self, path: str) -> None:
        if self.broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def mkdir(self, path: str, *mode: int) -> None:
        self.broken = self.broken or bool(self.ending and path.endswith(self.ending))
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)  # the kernel looks for this first
        self._refuse(path)
        super().mkdir(path, *mode)

    def create(self, path: str, *mode: int) -> Any:
        self._refuse(path)
        return super().create(path, *mode)

    def rmdir(self, path: str) -> None:
        self._refuse(path)
        super().rmdir(path)


def test_what_is_left_of_a_set_that_could_not_be_prepared_hides_no_error_and_is_no_obstacle_later(
    start: Start, work: Path
) -> None:
    """G7: the cause is named, not that something exists already; with room again the same session goes on."""
    disk = FullFrom("set-00000002/files")
    session = start("u.dat\n", disk=disk)
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    for _ in range(2):
        with pytest.raises(SaveError, match=r"set \d .*: No space left on device"):
            session.hide(1)
    assert os.listdir(work / ".safepoint.d/rank-00000/set-00000002") == [] and contents(work) == {"u.dat": "1"}
    disk.ending, disk.broken = "", False
    session.hide(1, wait=True)
    session.close()
    assert (work / ".safepoint.d/rank-00000/set-00000004/record.json").exists()


class Lying(Disk):
    """The file system has gone down while an fsync of this directory was under way, which returned 0 all the same, as
    ext4 does; whatever changes it after that is refused."""

    def __init__(self, ending: str) -> None:
        self.ending, self.down = ending, False

    def sync_dir(self, path: str) -> None:
        self.down = self.down or path.endswith(self.ending)
        super().sync_dir(path)

    def mkdir(self, path: str, *mode: int) -> None:
        if self.down and not os.path.exists(path):  # a name that is there is refused before
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        super().mkdir(path, *mode)


def test_an_fsync_that_returned_0_while_the_file_system_went_down_is_no_success(start: Start, work: Path) -> None:
    """G2, G7; tests/proof/powercut/test_full.py does it for real."""
    session = start("u.dat\n", disk=Lying("set-00000002"))
    for step in range(3):
        write(work, u_dat=str(step))
        if step < 2:
            session.hide(step)
    with pytest.raises(SaveError, match=r"set 2 \(step 1\) not stored: .*Read-only file system"):
        session.wait()
    with pytest.raises(SaveError, match=r"set 3 \(step 2\) not (taken|stored): .*Read-only file system"):
        session.hide(2, wait=True)
    session.close()


def test_a_finish_mark_whose_fsync_lied_is_no_success(start: Start, work: Path) -> None:
    disk = Lying("none")
    session = start("u.dat\n", disk=disk)
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    disk.ending = ".safepoint.d"
    with pytest.raises(SaveError, match=r"not finished: .*Read-only file system"):
        session.finish(1)
    assert not (work / ".safepoint.d/finished.json").exists()
    session.close()


def failed_in_the_background(start: Start, work: Path) -> Session:
    """Set 1 (step 0) is whole; the fsync of sub/v.dat of set 2 (step 1) failed, and nobody has asked yet."""
    session = start("u.dat\nsub/v.dat\n", disk=Failing(ends("set-00000002/files/sub/v.dat")))
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step))
        session.hide(step)
    assert session._work.flight is not None
    session._work.flight.exception()
    return session


NOT_STORED = (
    "set 2 (step 1) not stored: sub/v.dat: Input/output error; set 1 (step 0) is intact; "
    f"its files are in {ROOT}/failed-00000002/files"
)


@pytest.mark.parametrize("verb", ["hide", "wait", "restore", "finish", "close"])
def test_a_failure_in_the_background_is_raised_by_the_next_call_once(start: Start, work: Path, verb: str) -> None:
    """G7: it names the file, the cause, what holds, and where the files are. Nothing of that call was begun."""
    session = failed_in_the_background(start, work)
    write(work, u_dat="2", sub__v_dat="2")
    before = contents(work)
    with pytest.raises(SaveError) as caught:
        getattr(session, verb)()
    assert str(caught.value) == NOT_STORED
    assert caught.value.errno == errno.EIO
    assert contents(work) == before
    assert contents(work / ROOT / "failed-00000002/files") == {"sub/": "", "sub/v.dat": "1", "u.dat": "1"}
    assert sets(work) == [1]
    if verb == "close":
        assert start().hide(0) is not None  # the lock is gone, the sets are not
        return
    session.wait()  # not raised again
    point = session.hide(2, wait=True)
    assert point and point.number == 3
    assert not (work / ROOT / "failed-00000002").exists()  # until the next commit
    session.close()
    start()
    assert contents(work) == {"sub/": "", "sub/v.dat": "2", "u.dat": "2"}


def test_after_a_failure_in_the_background_restore_gives_the_set_before(start: Start, work: Path) -> None:
    """G7: a failed fsync is final for its set, in this life and the next, however whole it looks in the cache."""
    session = failed_in_the_background(start, work)
    kill(session)
    for _ in range(2):
        session = start(restore=False)
        point = session.restore()
        assert point and (point.number, point.step) == (1, 0)
        assert contents(work) == {"sub/": "", "sub/v.dat": "0", "u.dat": "0"}
        assert (work / ROOT / "failed-00000002/files/u.dat").exists()  # until the next commit, for the user to see
        session.close()
    session = start()
    write(work, u_dat="3", sub__v_dat="3")
    session.hide(1, wait=True)
    assert sorted(path.name[:4] for path in (work / ROOT).glob("*-*")) == ["set-"] * 2


def test_finish_after_a_failure_never_passes_off_an_older_set_as_this_step(start: Start, work: Path) -> None:
    """G4, G7: the files of step 1 failed, those of step 0 are the last; they must not become the result of step 1."""
    session = failed_in_the_background(start, work)
    with pytest.raises(SaveError):
        session.finish(1)
    try:
        session.finish(1)
    except SafepointError:
        return
    point = start(restore=False).restore()
    assert point and contents(work)["u.dat"] == str(point.step)


def test_a_failure_while_the_caller_waits_leaves_the_files_in_place(start: Start, work: Path) -> None:
    """G7: and the next try, of files written anew, is a new set and succeeds; of the same files it is refused."""
    session = start("u.dat\nsub/v.dat\nparams.db copy\nrun.zarr/\n", disk=Failing(ends("set-00000002/files/sub/v.dat")))
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step), params_db=str(step), run_zarr__meta=str(step))
        before = contents(work)
        if step == 0:
            session.hide(step)
    with pytest.raises(SaveError) as caught:
        session.hide(1, wait=True)
    holds = "set 1 (step 0) is intact; its files are back in place"
    assert str(caught.value) == f"set 2 (step 1) not stored: sub/v.dat: Input/output error; {holds}"
    assert contents(work) == before
    assert list((work / ROOT).glob("failed-*")) == []
    with pytest.raises(SaveError, match="its fsync failed before"):
        session.hide(1, wait=True)
    shutil.rmtree(work / "run.zarr")
    write(work, u_dat="1", sub__v_dat="1", run_zarr__meta="1")
    session.hide(1, wait=True)
    assert sets(work) == [1, 3]
    session.restore()
    assert contents(work) == before


def test_a_failure_of_the_first_set_leaves_the_files_in_place(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=Failing(ends("set-00000001/files/u.dat")))
    write(work, u_dat="0")
    with pytest.raises(
        SaveError, match=r"^set 1 \(step 0\) not stored: u.dat: Input/output error; there is no earlier"
    ):
        session.hide(0)
    assert contents(work) == {"u.dat": "0"}
    write(work, u_dat="0")
    session.hide(0)
    session.close()
    start()
    assert contents(work) == {"u.dat": "0"}


def test_a_failure_while_an_exception_ends_the_block_is_logged_and_does_not_hide_it(
    start: Start, work: Path, said: Said
) -> None:
    with pytest.raises(Death), failed_in_the_background(start, work):
        raise Death
    assert ("ERROR", NOT_STORED) in said
