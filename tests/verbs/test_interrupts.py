"""Ctrl-C and other signals while the main thread saves or restores: what it began has ended when they are raised, each
is raised once, no lock is left taken, and no failed save is lost to them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testbed.children import ran
from testbed.disks import Failing, ends
from testbed.faultdisk import FaultDisk
from testbed.handlers import ctrl_c, handled
from testbed.program import listed, new_directory, plain
from testbed.sweep import turn
from testbed.waiting import wait_for

from safepoint import SaveError, Session
from safepoint.disk import NONE, Disk, SyncFailed, codec
from safepoint.disk.signals import Block, interrupted, look
from safepoint.disk.threads import AT_ONCE, Helpers
from safepoint.root import Root

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals to a thread")


# Several at once.
@pytest.mark.parametrize("nested", [False, True])
def test_after_ctrl_c_nothing_new_is_begun(nested: bool) -> None:
    disk, begun = Disk(), []

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            ctrl_c()

    def several(_: int) -> None:
        disk.helpers.each(work, range(64), 1)

    with pytest.raises(KeyboardInterrupt):
        disk.helpers.each(several, [1]) if nested else several(1)
    assert begun == [0]
    disk.helpers.dismiss()


def test_ctrl_c_in_the_main_thread_ends_nothing_in_others() -> None:
    disk, found = Disk(), []

    def work(number: int) -> int:
        look()
        return number

    with Block() as signals:
        ctrl_c()
        assert signals.interrupted
        thread = threading.Thread(target=lambda: found.extend(disk.helpers.each(work, range(5))))
        thread.start()
        thread.join()
        with pytest.raises(KeyboardInterrupt):
            disk.helpers.each(work, range(5))
    assert found == list(range(5))
    disk.helpers.dismiss()


def test_an_error_at_the_end_of_a_flush_does_not_hide_that_of_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some FUSE file systems: the next flush would succeed over what was lost."""
    (tmp_path / "u.dat").write_bytes(b"u")
    path, close = str(tmp_path / "u.dat"), os.close

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "fsync")

    def closes(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "close")

    monkeypatch.setattr(os, "fsync", fails)
    monkeypatch.setattr(os, "close", closes)
    for flush in (lambda: Disk().sync_files([path]), lambda: Disk().sync_dir(str(tmp_path))):
        with pytest.raises(SyncFailed, match="fsync"):
            flush()


def test_a_handler_that_does_not_raise_hinders_nothing() -> None:
    """Such as those of `init(signals=…)`: the set is saved all the same."""
    disk, ran = Disk(), []
    with handled(signal.SIGTERM, lambda *_: ran.append(1)):
        assert disk.helpers.each(lambda n: os.kill(os.getpid(), signal.SIGTERM) or n, range(5)) == list(range(5))
    assert ran
    disk.helpers.dismiss()


@pytest.mark.parametrize("presses", [1, 2, 3, 9])
def test_a_failed_fsync_counts_more_than_any_number_of_interrupts(presses: int) -> None:
    def fails(_: int) -> None:
        for _ in range(presses):
            ctrl_c()
        raise SyncFailed(errno.EIO, "lost")

    disk = Disk()
    with pytest.raises(SyncFailed):
        disk.helpers.each(fails, range(3))
    disk.helpers.dismiss()


@pytest.mark.parametrize("verb", ["hide", "finish"])
def test_an_fsync_that_fails_while_ctrl_c_is_pressed_is_remembered(tmp_path: Path, verb: str) -> None:
    """G7: the next fsync would succeed over what was lost. And to put the files back is not cut short."""
    (tmp_path / ".safepoint").write_text("u.dat append\nv.dat\n")
    disk = Failing(meanwhile=ctrl_c)
    session = Session(tmp_path, disk=disk, background=False)
    session.restore()
    (tmp_path / "u.dat").write_bytes(b"u" * 1000)
    (tmp_path / "v.dat").write_bytes(b"v" * 1000)
    call = (lambda: session.hide(1)) if verb == "hide" else (lambda: session.finish(1))
    disk.of = ends(".dat")
    with pytest.raises(KeyboardInterrupt) as caught:
        call()
    assert isinstance(caught.value.__context__, SaveError) and (tmp_path / "v.dat").read_bytes() == b"v" * 1000
    with pytest.raises(SaveError, match=r"[uv]\.dat: its fsync failed before"):
        call()
    session.close()


def test_ctrl_c_while_a_set_is_saved_ends_that_and_puts_the_files_back(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("*.dat\n")

    class Pressed(Disk):
        flushed, pressed = 1000, False

        def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
            self.flushed += 1
            if self.flushed == 1:
                ctrl_c()
            if self.pressed:
                wait_for(interrupted)  # by all threads that flush
            super().sync_files(paths, opened)

    disk = Pressed()
    with Session(tmp_path, disk=disk, background=False) as session:
        session.restore()
        for number in range(50):
            (tmp_path / f"{number}.dat").write_bytes(b"u" * 1000)
        disk.flushed, disk.pressed = 0, True
        with pytest.raises(KeyboardInterrupt) as caught:
            session.hide(1)
        assert disk.flushed <= AT_ONCE and len(list(tmp_path.glob("*.dat"))) == 50
        assert caught.value.__context__ is None, "raised once"
        disk.pressed = False
        session.hide(1)
        session.close()


LOST = """
import collections, errno, logging, os, random, signal, sys, tempfile
from safepoint import SaveError, Session
from safepoint.disk import NONE, Disk, SyncFailed

class Failing(Disk):
    armed = failed = False

    def sync_files(self, paths, opened=NONE):
        if self.armed and any(path.endswith("u.dat") for path in paths):
            self.armed, self.failed = False, True
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), paths[0])
        super().sync_files(paths, opened)

logging.disable(logging.CRITICAL)
signal.signal(signal.SIGALRM, signal.default_int_handler)
chance, found = random.Random(7), collections.Counter()
while found["interrupted", "failed"] < int(sys.argv[2]):
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as work:
        with open(f"{work}/.safepoint", "w") as file:
            file.write("u.dat append\\n")
        disk = Failing()
        session = Session(work, disk=disk, background=False)
        session.restore()
        with open(f"{work}/u.dat", "wb") as file:
            file.write(b"u" * 1000)
        disk.armed, first = True, "returned"
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-4, 3e-3))
                session.hide(1)
            except SaveError:
                first = "failed"
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            first = "interrupted"
        disk.armed, second = False, "returned"
        try:
            session.hide(2)
        except SaveError:
            second = "failed"
        if disk.failed:
            found[first, second] += 1
        session.close()
print({second for _, second in found})
"""


@pytest.mark.parametrize("times", [30, pytest.param(150, marks=pytest.mark.proof)])
def test_at_no_moment_an_interrupt_loses_a_failed_fsync(tmp_path: Path, times: int) -> None:
    assert ran(LOST, tmp_path, times) == "{'failed'}"


def test_ctrl_c_is_not_lost_to_the_error_of_another_item(tmp_path: Path) -> None:
    def work(number: int) -> None:
        together.wait(300)
        if number == 0:
            ctrl_c()
            wait_for(interrupted)
            looked.set()
            look()
        wait_for(looked.is_set)
        raise OSError(errno.EIO, "lost") if number == 1 else SyncFailed(errno.EIO, "lost")

    disk = Disk()
    for several in ((0, 1), (0, 2), (2, 0), (1, 0)):
        looked, together = threading.Event(), threading.Barrier(2)
        with Block() as signals:
            with pytest.raises((KeyboardInterrupt, OSError)) as caught:
                disk.helpers.each(work, several)
            assert isinstance(caught.value, SyncFailed) == (2 in several)
        assert [type(error) for error in signals.raised] == [KeyboardInterrupt], several
    disk.helpers.dismiss()


def interrupted_at_each_line(
    call: Callable[[], object], counts: Callable[[Any], bool], every: int = 1
) -> Iterator[bool]:
    """Ctrl-C at the first, second, … line of these functions, or at every m-th. Whether that line was come to."""
    for chosen in range(1 + turn() % every, 10_000, every):
        count = 0

        def trace(frame: Any, event: str, _: object, chosen: int = chosen) -> Any:
            nonlocal count
            if counts(frame.f_code):
                if event == "line":
                    count += 1
                    if count == chosen:
                        signal.raise_signal(signal.SIGINT)
                return trace
            return trace if event == "call" else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        yield count >= chosen
        if count < chosen:
            return


def test_a_close_that_is_interrupted_can_be_repeated_and_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    lines = {Session.close.__code__, Session._end.__code__, Session._close.__code__, Helpers.dismiss.__code__}
    made = [Session(tmp_path)]
    done = 0
    for _ in interrupted_at_each_line(lambda: made[-1].close(), lines.__contains__):
        done += 1
        made[-1].close()
        made.append(Session(tmp_path))
    made[-1].close()
    assert done > 15


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.proof)])
def test_an_init_that_is_interrupted_leaves_no_lock(tmp_path: Path, every: int) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    made: list[Session] = []
    ours = {Session.__init__.__code__, Disk.lock.__code__}
    done = 0
    for _ in interrupted_at_each_line(
        lambda: made.append(Session(tmp_path)), lambda code: code in ours or "filelock" in code.co_filename, every
    ):
        done += 1
        while made:
            made.pop().close()
        Session(tmp_path).close()
    assert done > 100 / every


STORM = """
import functools, os, random, signal, sys, threading, time
from safepoint import Session
from safepoint.disk import Disk
from safepoint.disk.threads import Helpers

at_work = set()

class Watching(Helpers):
    def each(self, work, items, at_once=8):
        return super().each(self.watched(work), items, at_once)
    def beside(self, work):
        return super().beside(functools.partial(self.watched(lambda _: work()), work))
    def watched(self, work):
        def watched(item):
            at_work.add((item if isinstance(item, str) else id(item), threading.get_ident()))
            try:
                return work(item)
            finally:
                at_work.discard((item if isinstance(item, str) else id(item), threading.get_ident()))
        return watched

class Watched(Disk):
    helpers = Watching()

def write():
    for n in range(20):
        if not os.path.exists(f"{n}.dat"):
            with open(f"{n}.dat", "wb") as file:
                file.write(os.urandom(30000))

open(".safepoint", "w").write("*.dat\\n")
chance, session, interrupts = random.Random(int(sys.argv[1])), Session(disk=Watched(), background=False), 0
session.restore()
for _ in range(2):
    write()
    begin = time.perf_counter()
    session.hide()
    took = time.perf_counter() - begin
while interrupts < int(sys.argv[2]):
    write()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, took))
        try:
            session.hide()
        finally:
            left = set(at_work)
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
        assert not left, left
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
write()
session.hide()
write()
session.finish(1)
print("finished")
"""


@pytest.mark.parametrize(("seed", "times"), [(0, 60), pytest.param(1, 200, marks=pytest.mark.proof)])
def test_interrupts_at_any_moment_leave_no_helper_at_work_and_no_lock_taken(
    tmp_path: Path, seed: int, times: int
) -> None:
    """A lock of the standard library that an interrupt leaves taken would stop this process, and any other session."""
    assert ran(STORM, seed, times, cwd=tmp_path) == "finished"


def test_ctrl_c_ends_a_long_restore_of_one_file(tmp_path: Path) -> None:
    """And leaves the file as it was."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    size = 40 * codec.BLOCK
    with Session(tmp_path) as session:
        session.restore()
        (tmp_path / "u.dat").write_bytes(os.urandom(size))
        session.hide(1)
        session.close()
    (tmp_path / "u.dat").write_bytes(b"torn")
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if done:
            ctrl_c()

    session = Session(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        session.restore(progress=progress)
    assert seen[-1] < size / 2 and (tmp_path / "u.dat").read_bytes() == b"torn"
    session.close()


FORKS = """
import os, signal, sys, threading, warnings
from safepoint.disk import Disk
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads, whatever they do
disk = Disk()
threading.Thread(target=lambda: [disk.helpers.each(abs, range(9)) for _ in iter(int, 1)], daemon=True).start()
hung = 0
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(120)
            disk.helpers.each(abs, range(9))
        finally:
            os._exit(0)
    hung += os.waitpid(pid, 0)[1] != 0
print(hung, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.proof)])
def test_a_child_that_is_forked_while_another_thread_calls_helpers_never_waits_for_them(times: int) -> None:
    assert ran(FORKS, times) == "0"


def test_a_session_without_a_saver_thread_leaves_no_helpers(tmp_path: Path) -> None:
    """So that the program can fork undisturbed."""
    (tmp_path / ".safepoint").write_text("*.dat\n")
    before = set(threading.enumerate())
    with Session(tmp_path, background=False) as session:
        session.restore()
        for step in range(2):
            for n in range(20):
                (tmp_path / f"{n}.dat").write_bytes(os.urandom(1000))
            session.hide(step)
            for thread in set(threading.enumerate()) - before:
                thread.join(300)
            assert set(threading.enumerate()) <= before
        session.close()


def test_buffers_are_not_kept_for_as_many_as_ever_were_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(codec.LARGE_FILE_BYTES))
    disk = Disk()

    def read(_: int) -> None:
        with disk.open(str(tmp_path / "large")) as source:
            codec.copy(source, limit=codec.LARGE_FILE_BYTES)

    disk.helpers.each(read, range(8))
    disk.helpers.dismiss()
    assert len(codec._checksum_buffers._idle) <= 1 and len(codec._block_buffers._idle) <= 8


class Interrupting(FaultDisk):
    """Ctrl-C comes at this operation."""

    interrupt_at = -1

    def step(self, what: str, path: str, *, changes: bool = True) -> int:
        op = super().step(what, path, changes=changes)
        if op == self.interrupt_at:
            raise KeyboardInterrupt
        return op


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupt_in_a_hide_that_waits_leaves_the_files_in_place_or_a_committed_set(
    tmp_path: Path, first: bool
) -> None:
    """hide: on error, KeyboardInterrupt too, the files are where they were, unless the set was committed already."""
    for after in itertools.count():
        directory = new_directory(tmp_path / f"{after}", "plain")
        disk = Interrupting(directory)
        session = Session(directory, disk=disk)
        session.restore()
        step = 0
        for step in range(1 if first else 2):
            for name, data in plain(step).items():
                if not os.path.isdir(os.path.dirname(os.path.join(directory, name))):
                    disk.mkdir(os.path.dirname(os.path.join(directory, name)))
                disk.overwrite(os.path.join(directory, name), data)
            if step == (0 if first else 1):
                disk.interrupt_at = len(disk.record.ops) + after
            try:
                session.hide(step, wait=True)
            except KeyboardInterrupt:
                break
        else:
            break
        what = f"interrupted at {disk.record.ops[disk.interrupt_at]}"
        number = step + 1
        committed = os.path.exists(Root(os.path.realpath(directory)).record(number))
        left = listed(directory)
        assert left == ({} if committed else plain(step)), (what, committed, sorted(left))
        disk.end()
    assert after > 20


@pytest.mark.parametrize("kind", [OSError, SyncFailed])
@pytest.mark.parametrize("verb", ["hide", "finish"])
def test_an_interrupt_while_files_are_put_back_passes_for_no_step(tmp_path: Path, kind: Any, verb: str) -> None:
    """G4: Ctrl-C once more, after a save that failed; what is left in W is neither hidden nor the result."""

    class Pressed(Disk):
        on = False

        def sync_files(self, paths: Any, opened: Any = NONE) -> None:
            if self.on:
                raise kind(errno.ENOSPC, os.strerror(errno.ENOSPC), next(iter(paths)))
            super().sync_files(paths, opened)

        def rename(self, source: str, target: str) -> None:
            if self.on and target.endswith("work/u.dat"):
                raise KeyboardInterrupt
            super().rename(source, target)

    work, disk = tmp_path / "work", Pressed()
    work.mkdir()
    (work / ".safepoint").write_text("*.dat\n")
    session = Session(work, disk=disk)
    session.restore()
    for step in (1, 2):
        (work / "u.dat").write_text(f"{step}")
        (work / "v.dat").write_text(f"{step}")
        disk.on = step == 2
        with pytest.raises(KeyboardInterrupt) if disk.on else contextlib.nullcontext():
            session.hide(step, wait=True)
    disk.on = False
    assert not (work / "u.dat").exists() and (work / "v.dat").exists()
    with pytest.raises(SaveError, match=rf"^{verb} after set 2 .*; what is missing is in .*go back to the last set"):
        session.hide(3) if verb == "hide" else session.finish(3)
    point = session.restore()
    assert point and point.step == (1 if kind is SyncFailed else 2)  # set 2 is whole if no fsync of it failed
    assert (work / "u.dat").read_text() == (work / "v.dat").read_text() == str(point.step)
    session.close()


def test_what_was_taken_is_put_back_to_the_end_though_ctrl_c_was_pressed(tmp_path: Path) -> None:
    """G1: the clean-up after an error is not cut short, also if that is another error than the interrupt."""
    (tmp_path / ".safepoint").write_text("*.dat\n")

    class Full(Disk):
        left = 100

        def rename(self, source: str, target: str) -> None:
            self.left -= 1
            if self.left == 0:
                ctrl_c()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source)
            super().rename(source, target)

    disk = Full()
    with Session(tmp_path, disk=disk, background=False) as session:
        session.restore()
        for number in range(9):
            (tmp_path / f"{number}.dat").write_bytes(b"u" * 1000)
        disk.left = 5
        with pytest.raises(KeyboardInterrupt) as caught:
            session.hide(1)
        assert isinstance(caught.value.__context__, SaveError) and len(list(tmp_path.glob("*.dat"))) == 9
        assert not list((tmp_path / ".safepoint.d/rank-00000").glob("set-*")), "what is left of the set"
        session.hide(1)
        session.close()
