"""Ctrl-C and other signals while the main thread saves or restores: what it began has ended when they are raised, no
lock is left taken, and a failed fsync is never lost to them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import safepoint
from safepoint import SaveError, Session, codec
from safepoint.disk import NONE, Disk, SyncFailed
from safepoint.interrupts import HELD, Undisturbed, ending

SOURCE = Path(safepoint.__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals to a thread")


def ctrl_c() -> None:
    """To the main thread, from any."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def handled(number: int, handler: Callable[..., object]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


# The block in which they wait.


def test_handlers_run_at_the_end_and_are_the_old_ones_afterwards() -> None:
    before = [signal.getsignal(number) for number in HELD]
    ran: list[str] = []
    with handled(signal.SIGUSR1, lambda *_: ran.append("handler")):
        with Undisturbed() as signals:
            signal.raise_signal(signal.SIGUSR1)
            ran.append("block")
        assert (ran, signals.raised, signals.ending) == (["block", "handler"], [], False)
    assert [signal.getsignal(number) for number in HELD] == before


def test_what_handlers_raise_is_collected_all_of_it() -> None:
    def raises(*_: object) -> None:
        ctrl_c()  # another one, meanwhile
        raise ValueError

    with handled(signal.SIGTERM, raises):
        with Undisturbed() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert not ending()
        assert [type(error) for error in signals.raised] == [ValueError, KeyboardInterrupt]
        with Undisturbed() as signals:
            ctrl_c()
            assert ending() and signals.ending
    assert [type(error) for error in signals.raised] == [KeyboardInterrupt] and not ending()


def test_in_another_thread_nothing_is_held() -> None:
    seen: list[object] = []

    def look() -> None:
        with Undisturbed():
            seen.extend(signal.getsignal(number) for number in HELD)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(number) for number in HELD]


# Several at once.


def test_a_handler_that_does_not_raise_hinders_nothing() -> None:
    """Such as those of `init(signals=…)`: the set is saved all the same."""
    disk, ran = Disk(), []
    with handled(signal.SIGTERM, lambda *_: ran.append(1)):
        assert disk.each(lambda n: os.kill(os.getpid(), signal.SIGTERM) or n, range(5)) == list(range(5))
    assert ran
    disk.dismiss_helpers()


@pytest.mark.parametrize("presses", [1, 2, 3, 9])
def test_a_failed_fsync_counts_more_than_any_number_of_interrupts(presses: int) -> None:
    def fails(_: int) -> None:
        for _ in range(presses):
            ctrl_c()
        raise SyncFailed(errno.EIO, "lost")

    disk = Disk()
    with pytest.raises(SyncFailed):
        disk.each(fails, range(3))
    disk.dismiss_helpers()


class Failing(Disk):
    """Its next fsync of a file fails, and Ctrl-C is pressed meanwhile."""

    armed = False

    def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
        if self.armed:
            self.armed = False
            ctrl_c()
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), next(iter(paths)))
        super().sync_files(paths, opened)


@pytest.mark.parametrize("verb", ["hide", "finish"])
def test_an_fsync_that_fails_while_ctrl_c_is_pressed_is_remembered(tmp_path: Path, verb: str) -> None:
    """G7: the next fsync would succeed over what was lost."""
    (tmp_path / ".safepoint").write_text("u.dat append\n")
    disk = Failing()
    session = Session(tmp_path, disk=disk, background=False)
    session.restore()
    (tmp_path / "u.dat").write_bytes(b"u" * 1000)
    call = (lambda: session.hide(1)) if verb == "hide" else (lambda: session.finish(1))
    disk.armed = True
    for _ in range(2):
        with pytest.raises(SaveError, match=r"u\.dat"):
            call()
    session.close()


STORM = """
import os, random, signal, sys, threading, time
from safepoint import Session
from safepoint.disk import Disk

at_work = set()

class Watched(Disk):
    def each(self, work, items, at_once=8):
        def watched(item):
            at_work.add((item if isinstance(item, str) else id(item), threading.get_ident()))
            try:
                return work(item)
            finally:
                at_work.discard((item if isinstance(item, str) else id(item), threading.get_ident()))
        return super().each(watched, items, at_once)

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
end = time.monotonic() + 6
while time.monotonic() < end:
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
print(interrupts > 50 or interrupts)
"""


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_any_moment_leave_no_helper_at_work_and_no_lock_taken(tmp_path: Path, seed: int) -> None:
    """A lock of the standard library that an interrupt leaves taken would stop this process, and any other session."""
    command = [sys.executable, "-c", STORM, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done


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
import os, signal, threading, time, warnings
from safepoint.disk import Disk
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads, whatever they do
disk = Disk()
threading.Thread(target=lambda: [disk.each(abs, range(9)) for _ in iter(int, 1)], daemon=True).start()
hung, end = 0, time.monotonic() + 3
while time.monotonic() < end:
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(10)
            disk.each(abs, range(9))
        finally:
            os._exit(0)
    hung += os.waitpid(pid, 0)[1] != 0
print(hung, flush=True)
os._exit(0)
"""


def test_a_child_that_is_forked_while_another_thread_calls_helpers_never_waits_for_them() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", FORKS], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done


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
                thread.join(30)
            assert set(threading.enumerate()) <= before
        session.close()


def test_buffers_are_not_kept_for_as_many_as_ever_were_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(codec.LARGE))
    disk = Disk()

    def read(_: int) -> None:
        with disk.open(str(tmp_path / "large")) as source:
            codec.copy(source, limit=codec.LARGE)

    disk.each(read, range(8))
    disk.dismiss_helpers()
    assert len(codec._buffers[True]) <= 1 and len(codec._buffers[False]) <= 8
