"""Ctrl-C and other signals while the main thread saves or restores: what it began has ended when they are raised, each
is raised once, no lock is left taken, and no failed save is lost to them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
import xxhash

import safepoint
from safepoint import SaveError, Session, codec
from safepoint.disk import NONE, Disk, SyncFailed
from safepoint.interrupts import HELD, Undisturbed, end_if_asked

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
        raise ValueError

    with handled(signal.SIGTERM, raises):
        with Undisturbed() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert not signals.ending
            ctrl_c()
            assert signals.ending
        assert [type(error) for error in signals.raised] == [ValueError, KeyboardInterrupt] and not signals.ending


def test_what_comes_while_a_handler_runs_is_for_that_one() -> None:
    """As without the block."""

    def pressed(*_: object) -> None:
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        raise ValueError

    with handled(signal.SIGTERM, pressed):
        with Undisturbed() as signals:
            signal.raise_signal(signal.SIGTERM)
        assert [type(error) for error in signals.raised] == [ValueError]


def test_what_several_handlers_raise_comes_in_turn_as_without_the_block(tmp_path: Path) -> None:
    """A program that goes on after Ctrl-C must still learn of SIGTERM."""
    (tmp_path / ".safepoint").write_text("u.dat\n")

    class Pressed(Disk):
        def listdir(self, path: str) -> list[str]:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            return super().listdir(path)

    with handled(signal.SIGTERM, lambda *_: sys.exit(15)), Session(tmp_path) as session:
        session._disk = Pressed()
        with pytest.raises(SystemExit) as caught:
            session.restore()
        assert isinstance(caught.value.__context__, KeyboardInterrupt)
        session._disk = Disk()
        session.close()


@pytest.mark.parametrize("number", HELD)
def test_a_handler_of_any_signal_waits(number: int) -> None:
    def raises(*_: object) -> None:
        raise ValueError

    with handled(number, raises), Undisturbed() as signals:
        signal.raise_signal(number)
    assert len(signals.raised) == 1


def test_a_handler_that_changes_the_handler_has_changed_it() -> None:
    """The usual idiom: the first one asks, the second one ends the program."""
    with handled(signal.SIGTERM, lambda number, _: signal.signal(number, signal.SIG_IGN)):
        with Undisturbed():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_who_changes_a_handler_in_the_block_and_puts_it_back_after_its_end_has_the_old_one() -> None:
    ran = []
    with handled(signal.SIGTERM, lambda *_: ran.append("old")):
        with Undisturbed():
            found = signal.signal(signal.SIGTERM, lambda *_: ran.append("new"))
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, found)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: callable(found) and found(number, frame))
        signal.raise_signal(signal.SIGTERM)
    assert ran == ["new", "old", "old", "old"]


def test_in_a_block_in_a_block_they_wait_for_the_end_of_the_outer_one() -> None:
    with Undisturbed() as outer:
        with Undisturbed() as inner:
            ctrl_c()
            assert inner.ending
        assert inner.raised == [] and outer.ending
    assert [type(error) for error in outer.raised] == [KeyboardInterrupt]


@pytest.mark.parametrize("early", [False, True])
def test_they_may_run_where_the_block_says_so(early: bool) -> None:
    """Not among several ranks: it could raise on one of them alone."""
    with Undisturbed(early=early) as signals:
        ctrl_c()
        assert signals.ending == early
        if early:
            with pytest.raises(KeyboardInterrupt):
                signals.deliver(only_end=True)
        signals.deliver()
    assert len(signals.raised) == (not early)


ELSEWHERE = """
import _thread, signal, sys
assert "threading" not in sys.modules
signal.alarm(20)
done = _thread.allocate_lock()
done.acquire()
def work():
    from safepoint.disk import Disk
    print(Disk().each(abs, [1, -2]))
    done.release()
_thread.start_new_thread(work, ())
done.acquire()
"""


def test_where_no_handler_can_be_set_none_is() -> None:
    """In a program that embeds Python another thread may be the first to import `threading`, which takes it for the
    main one."""
    others = Path(xxhash.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{others}"}
    command = [sys.executable, "-S", "-c", ELSEWHERE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if "AssertionError" in done.stderr:
        pytest.skip("this interpreter imports threading itself")
    assert (done.returncode, done.stdout.strip()) == (0, "[1, 2]"), done


ONCE = """
import os, random, select, signal, sys, time
from safepoint.disk import Disk
from safepoint.interrupts import Undisturbed
disk, sent, raised = Disk(), 0, 0
ask, asked = os.pipe()
tell, told = os.pipe()
parent = os.getpid()
if not os.fork():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    chance = random.Random(1)
    while os.read(ask, 1) == b"g":
        until = time.perf_counter() + chance.uniform(0, 6e-5)
        while time.perf_counter() < until:
            pass
        os.kill(parent, signal.SIGINT)
        os.write(told, b"d")
    os._exit(0)
end = time.monotonic() + 4
while time.monotonic() < end:
    sent += 1
    try:
        os.write(asked, b"g")
        for _ in range(12):
            disk.each(abs, [1])
        os.read(tell, 1)
        for _ in range(20):
            disk.each(abs, [1])
    except KeyboardInterrupt:
        raised += 1
        if select.select([tell], [], [], 0.1)[0]:
            os.read(tell, 1)
with Undisturbed() as signals:
    assert not signals.ending
os.write(asked, b"x")
print(sent > 100 or sent, sent - raised)
"""


def test_each_of_many_interrupts_is_raised_once() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", ONCE], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True 0"), done


CHILD = """
import os, signal, threading, time, warnings
from safepoint.disk import Disk
warnings.simplefilter("ignore", DeprecationWarning)
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
status = []
def fork():
    time.sleep(0.2)
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
        os._exit(0)
    status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread = threading.Thread(target=fork)
thread.start()
Disk().each(lambda _: thread.join(), [1])
print(status)
"""


def test_a_child_that_another_thread_forks_meanwhile_has_its_handlers() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[7]"), done


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


@pytest.mark.parametrize("nested", [False, True])
def test_after_ctrl_c_nothing_new_is_begun(nested: bool) -> None:
    disk, begun = Disk(), []

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            ctrl_c()
        time.sleep(0.01)

    def several(_: int) -> None:
        disk.each(work, range(64), 1)

    with pytest.raises(KeyboardInterrupt):
        disk.each(several, [1]) if nested else several(1)
    assert len(begun) < 10
    disk.dismiss_helpers()


def test_ctrl_c_in_the_main_thread_ends_nothing_in_others() -> None:
    disk, found = Disk(), []

    def work(number: int) -> int:
        end_if_asked()
        return number

    with Undisturbed() as signals:
        ctrl_c()
        assert signals.ending
        thread = threading.Thread(target=lambda: found.extend(disk.each(work, range(5))))
        thread.start()
        thread.join()
        with pytest.raises(KeyboardInterrupt):
            disk.each(work, range(5))
    assert found == list(range(5))
    disk.dismiss_helpers()


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
    """G7: the next fsync would succeed over what was lost. And to put the files back is not cut short."""
    (tmp_path / ".safepoint").write_text("u.dat append\nv.dat\n")
    disk = Failing()
    session = Session(tmp_path, disk=disk, background=False)
    session.restore()
    (tmp_path / "u.dat").write_bytes(b"u" * 1000)
    (tmp_path / "v.dat").write_bytes(b"v" * 1000)
    call = (lambda: session.hide(1)) if verb == "hide" else (lambda: session.finish(1))
    disk.armed = True
    with pytest.raises(KeyboardInterrupt) as caught:
        call()
    assert isinstance(caught.value.__context__, SaveError) and (tmp_path / "v.dat").read_bytes() == b"v" * 1000
    with pytest.raises(SaveError, match=r"[uv]\.dat: its fsync failed before"):
        call()
    session.close()


def test_ctrl_c_while_a_set_is_saved_ends_that_and_puts_the_files_back(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("*.dat\n")

    class Pressed(Disk):
        flushed = 1000

        def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
            self.flushed += 1
            if self.flushed == 1:
                ctrl_c()
            time.sleep(0.01)
            super().sync_files(paths, opened)

    disk = Pressed()
    with Session(tmp_path, disk=disk, background=False) as session:
        session.restore()
        for number in range(50):
            (tmp_path / f"{number}.dat").write_bytes(b"u" * 1000)
        disk.flushed = 0
        with pytest.raises(KeyboardInterrupt) as caught:
            session.hide(1)
        assert disk.flushed < 40 and len(list(tmp_path.glob("*.dat"))) == 50
        assert caught.value.__context__ is None, "raised once"
        session.hide(1)
        session.close()


LOST = """
import collections, errno, logging, os, random, shutil, signal, sys, tempfile, time
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
chance, found, end = random.Random(7), collections.Counter(), time.monotonic() + 6
while time.monotonic() < end:
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
print(found["interrupted", "failed"] > 20 or found, sorted({second for _, second in found}))
"""


def test_at_no_moment_an_interrupt_loses_a_failed_fsync(tmp_path: Path) -> None:
    command, environment = [sys.executable, "-c", LOST, str(tmp_path)], {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True ['failed']"), done


# The set in flight.


class Gated(Disk):
    """Its next fsync in the saver thread waits until it is let go, and may fail then."""

    fails = False

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
        self.gate.wait()
        if self.fails:
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), next(iter(paths)))
        super().sync_files(paths, opened)


def in_flight(work: Path, disk: Gated) -> Session:
    """A session that has a set, and a second one in flight."""
    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work, disk=disk)
    session.restore()
    for step in range(2):  # the first one always waits
        (work / "u.dat").write_bytes(b"u" * 1000)
        session.hide(step)
        disk.gate.clear()
    return session


@pytest.mark.parametrize("fails", [False, True])
def test_a_wait_that_is_interrupted_ends_soon_and_the_next_one_tells_how_the_save_ended(
    tmp_path: Path, fails: bool
) -> None:
    disk = Gated()
    session = in_flight(tmp_path, disk)
    timer = threading.Timer(0.3, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.wait()
    timer.join()
    assert session.saving
    disk.fails = fails
    disk.gate.set()
    if fails:
        with pytest.raises(SaveError):
            session.wait()
        disk.fails = False
        session.restore()
    else:
        session.wait()
    session.finish(1)


def test_the_error_of_a_save_that_an_interrupt_came_before_is_told_by_the_next_call(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")

    class Late(Disk):
        failing = False

        def sync_files(self, paths: Any, opened: Mapping[str, BinaryIO] = NONE) -> None:
            if self.failing:
                ctrl_c()
                raise SyncFailed(errno.EIO, os.strerror(errno.EIO), next(iter(paths)))
            super().sync_files(paths, opened)

    disk = Late()
    with Session(tmp_path, disk=disk) as session:
        session.restore()
        for step in range(30):
            (tmp_path / "u.dat").write_bytes(b"u" * 1000)
            disk.failing = step > 0
            told = []
            with contextlib.suppress(KeyboardInterrupt):
                session.hide(step)
            for _ in range(3 if step else 0):
                try:
                    session.wait()
                except (SaveError, KeyboardInterrupt) as error:
                    told.append(type(error))
            assert step == 0 or told.count(SaveError) == 1, (step, told)
        session.close()


def test_an_interrupt_as_the_save_ends_loses_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    interrupted = 0
    with Session(tmp_path) as session:
        session.restore()
        prune = session._prune

        def pressed(*arguments: Any, **options: Any) -> None:
            prune(*arguments, **options)
            if threading.current_thread() is not threading.main_thread():
                ctrl_c()

        session._prune = pressed  # type: ignore[method-assign]  # the last that the saver does
        for step in range(100):
            (tmp_path / "u.dat").write_bytes(b"u" * 1000)
            try:
                session.hide(step)
                session.wait()
                for _ in range(1000):  # here it comes, if it was late
                    time.sleep(1e-5) if step else None
            except KeyboardInterrupt:
                interrupted += 1
            session.wait()
        assert session._committed and session._committed.step == 99
        session._prune = prune  # type: ignore[method-assign]
        session.finish(99)
    assert interrupted > 50


def test_a_handler_that_waits_itself_is_no_hindrance(tmp_path: Path) -> None:
    """Such as one that makes sure that all is on the disk."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    disk = Gated()
    waited: list[bool] = []
    with Session(tmp_path, disk=disk) as session:

        def wait(*_: object) -> None:
            disk.gate.set()
            session.wait()
            waited.append(session.saving)

        with handled(signal.SIGUSR1, wait):
            session.restore()
            for step in range(2):
                (tmp_path / "u.dat").write_bytes(b"u" * 1000)
                session.hide(step)
                disk.gate.clear()
            timer = threading.Timer(
                0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            )
            timer.start()
            session.wait()
            timer.join()
        session.close()
    assert waited == [False]


def test_a_save_that_fails_after_its_session_was_closed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Gated()
    session = in_flight(tmp_path, disk)
    timer = threading.Timer(0.2, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.close()
    flight = session._flight
    disk.fails = True
    disk.gate.set()
    assert flight and flight.exception()
    for _ in range(100):  # the callback comes right after
        time.sleep(0.01 if not caplog.records else 0)
    assert "set 2 (step 1) not stored" in caplog.text
    session._flight = None
    session._release()


def test_ctrl_c_is_not_lost_to_the_error_of_another_item(tmp_path: Path) -> None:
    def work(number: int) -> None:
        if number == 0:
            time.sleep(0.05)  # what comes right before a sleep is seen by Python after it
            ctrl_c()
            time.sleep(0.1)
            end_if_asked()
        time.sleep(0.3)
        raise OSError(errno.EIO, "lost") if number == 1 else SyncFailed(errno.EIO, "lost")

    disk = Disk()
    for several in ((0, 1), (0, 2), (2, 0), (1, 0)):
        with Undisturbed() as signals:
            try:
                disk.each(work, several)
            except KeyboardInterrupt as error:
                signals.raised.append(error)
            except SyncFailed:
                assert 2 in several
            else:
                raise AssertionError("no error")
        assert [type(error) for error in signals.raised] == [KeyboardInterrupt], several
    disk.dismiss_helpers()


def test_a_handler_that_raises_value_error_while_it_is_being_replaced_is_no_reason_to_replace_none() -> None:
    class Bad(ValueError):
        pass

    def bad(*_: object) -> None:
        raise Bad

    before = signal.signal
    chosen = [signal.SIGUSR1]

    def replaced(number: int, handler: Any) -> Any:
        if number == signal.SIGTERM and chosen:
            signal.raise_signal(chosen.pop())
        return before(number, handler)

    with handled(signal.SIGUSR1, bad), handled(signal.SIGTERM, bad), pytest.MonkeyPatch.context() as patch:
        patch.setattr("safepoint.interrupts._plain", SimpleNamespace(getsignal=signal.getsignal, signal=replaced))
        held = [number for number in HELD if number in (signal.SIGUSR1, signal.SIGTERM)]
        patch.setattr("safepoint.interrupts.HELD", [number for number in HELD if number not in held] + held[::-1])
        with pytest.raises(Bad), Undisturbed():
            raise AssertionError("not come to")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


AWAKE = """
import asyncio, os, signal, sys, tempfile
from safepoint import Session
from safepoint.disk import Disk
came = []
class Told(Disk):
    def listdir(self, path):
        if not came and loop.is_running():
            os.kill(os.getpid(), signal.SIGTERM)
            came.append("sent")
        return super().listdir(path)
async def main():
    loop.add_signal_handler(signal.SIGTERM, lambda: came.append("called"))
    with Session(sys.argv[1], disk=Told()) as session:
        session.restore()
        await asyncio.sleep(0.3)
        session.close()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print(came)
"""


def test_a_loop_of_asyncio_is_told_once(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    command, environment = [sys.executable, "-c", AWAKE, str(tmp_path)], {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "['sent', 'called']"), done


def interrupted_at_each_line(call: Callable[[], object], counts: Callable[[Any], bool]) -> Iterator[bool]:
    """Ctrl-C at the first, second, … line of these functions. Whether that line was come to."""
    for chosen in range(1, 10_000):
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
    lines = {Session.close.__code__, Session._end.__code__, Session._close.__code__, Disk.dismiss_helpers.__code__}
    made = [Session(tmp_path)]
    done = 0
    for _ in interrupted_at_each_line(lambda: made[-1].close(), lines.__contains__):
        done += 1
        made[-1].close()
        made.append(Session(tmp_path))
    made[-1].close()
    assert done > 15


def test_an_init_that_is_interrupted_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    made: list[Session] = []
    ours = {Session.__init__.__code__, Disk.lock.__code__}
    done = 0
    for _ in interrupted_at_each_line(
        lambda: made.append(Session(tmp_path)), lambda code: code in ours or "filelock" in code.co_filename
    ):
        done += 1
        while made:
            made.pop().close()
        Session(tmp_path).close()
    assert done > 100


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
