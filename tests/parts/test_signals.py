"""Signals: a handler of the program waits until a block of the library is over, then does what it would have done."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xxhash
from testbed.children import SOURCE, ran
from testbed.handlers import ctrl_c, handled
from testbed.waiting import wait_for

from safepoint import Session
from safepoint.disk import Disk
from safepoint.disk.signals import HELD, Block, action, code, look, uncut

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals to a thread")


# The block in which they wait.
def test_handlers_run_at_the_end_and_are_the_old_ones_afterwards() -> None:
    before = [signal.getsignal(number) for number in HELD]
    ran: list[str] = []
    with handled(signal.SIGUSR1, lambda *_: ran.append("handler")):
        with Block() as signals:
            signal.raise_signal(signal.SIGUSR1)
            ran.append("block")
        assert (ran, signals.raised, signals.interrupted) == (["block", "handler"], [], False)
    assert [signal.getsignal(number) for number in HELD] == before


def test_what_handlers_raise_is_collected_all_of_it() -> None:
    def raises(*_: object) -> None:
        raise ValueError

    with handled(signal.SIGTERM, raises):
        with Block() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert not signals.interrupted
            ctrl_c()
            assert signals.interrupted
        assert [type(error) for error in signals.raised] == [ValueError, KeyboardInterrupt]


def test_what_comes_while_a_handler_runs_is_for_that_one() -> None:
    """As without the block."""

    def pressed(*_: object) -> None:
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        raise ValueError

    with handled(signal.SIGTERM, pressed):
        with Block() as signals:
            signal.raise_signal(signal.SIGTERM)
        assert [type(error) for error in signals.raised] == [ValueError]


def test_what_several_handlers_raise_comes_in_turn_as_without_the_block(tmp_path: Path) -> None:
    """A program that goes on after Ctrl-C must still learn of SIGTERM."""
    (tmp_path / ".safepoint").write_text("u.dat\n")

    class Pressed(Disk):
        def scan(self, path: str) -> list[os.DirEntry[str]]:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            return super().scan(path)

    with handled(signal.SIGTERM, lambda *_: sys.exit(15)), Session(tmp_path) as session:
        session._root.disk = Pressed()
        with pytest.raises(SystemExit) as caught:
            session.restore()
        assert isinstance(caught.value.__context__, KeyboardInterrupt)
        session._root.disk = Disk()
        session.close()


@pytest.mark.parametrize("number", HELD)
def test_a_handler_of_any_signal_waits(number: int) -> None:
    def raises(*_: object) -> None:
        raise ValueError

    with handled(number, raises), Block() as signals:
        signal.raise_signal(number)
    assert len(signals.raised) == 1


def test_a_handler_that_changes_the_handler_has_changed_it() -> None:
    """The usual idiom: the first one asks, the second one ends the program."""
    with handled(signal.SIGTERM, lambda number, _: signal.signal(number, signal.SIG_IGN)):
        with Block():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_who_changes_a_handler_in_the_block_and_puts_it_back_after_its_end_has_the_old_one() -> None:
    ran = []
    with handled(signal.SIGTERM, lambda *_: ran.append("old")):
        with Block():
            found = signal.signal(signal.SIGTERM, lambda *_: ran.append("new"))
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, found)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: callable(found) and found(number, frame))
        signal.raise_signal(signal.SIGTERM)
    assert ran == ["new", "old", "old", "old"]


def test_in_a_block_in_a_block_they_wait_for_the_end_of_the_outer_one() -> None:
    with Block() as outer:
        with Block() as inner:
            ctrl_c()
        assert inner.raised == [] and outer.interrupted
    assert [type(error) for error in outer.raised] == [KeyboardInterrupt]


@pytest.mark.parametrize("cut", [False, True])
def test_ctrl_c_cuts_short_what_may_be_and_is_raised_once(cut: bool) -> None:
    """Not among several ranks: it could raise on one of them alone. Nor while files are put back."""
    ended = []
    with contextlib.suppress(KeyboardInterrupt), Block(cut=cut) as signals:
        look()
        ctrl_c()
        with uncut():
            look()
        ended.append("no")
        look()
        ended.append("at the end")
    assert (ended[-1], len(signals.raised)) == (("no", 0) if cut else ("at the end", 1))


def test_another_handler_cuts_nothing_short() -> None:
    with handled(signal.SIGTERM, lambda *_: sys.exit(15)), Block() as signals:
        signal.raise_signal(signal.SIGTERM)
        look()
    assert [type(error) for error in signals.raised] == [SystemExit]


def restarts(number: int) -> bool:
    """Whether a call of the kernel goes on after this signal, as it does after `siginterrupt(number, False)`."""
    ends, begins = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)
    here, kernel = threading.get_ident(), Path(f"/proc/self/task/{threading.get_native_id()}")

    def disturb() -> None:
        wait_for(lambda: hex(ends) in (kernel / "syscall").read_text().split()[:2])  # it reads
        signal.pthread_kill(here, number)
        wait_for(lambda: not int(re.findall(r"SigPnd:\s+(\w+)", (kernel / "status").read_text())[0], 16))  # it was told
        os.write(begins, b"x")

    thread = threading.Thread(target=disturb)
    thread.start()
    count = libc.read(ends, ctypes.create_string_buffer(1), 1)
    thread.join()
    os.close(ends)
    os.close(begins)
    return bool(count == 1)


def test_a_handler_of_python_alone_is_put_back_by_python_alone() -> None:
    """What the kernel says of it is the same each time; else each would be put back twice."""
    with Block():
        pass  # what is plain is known now
    with Block() as block:
        assert signal.SIGINT in block._handlers and block._actions == {}
    signal.siginterrupt(signal.SIGINT, False)
    try:
        with Block() as block:
            assert set(block._actions) == {signal.SIGINT}
    finally:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))


def test_what_only_the_kernel_knows_of_a_handler_is_as_it_was(tmp_path: Path) -> None:
    """`siginterrupt`, and a handler that C code has put over one of Python's: here one that ignores the signal."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    ran: list[int] = []
    with handled(signal.SIGUSR1, lambda *_: ran.append(1)), handled(signal.SIGUSR2, lambda *_: ran.append(2)):
        signal.siginterrupt(signal.SIGUSR1, False)
        ctypes.CDLL(None).signal(signal.SIGUSR2, ctypes.c_void_p(1))  # SIG_IGN
        before = [code(action(number)) for number in HELD]
        with Session(tmp_path) as session:
            session.restore()
            session.close()
        with Block():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
        assert [code(action(number)) for number in HELD] == before and ran == [1]
        assert restarts(signal.SIGUSR1)


ELSEWHERE = """
import _thread, signal, sys
assert "threading" not in sys.modules
signal.alarm(300)
done = _thread.allocate_lock()
done.acquire()
def work():
    from safepoint.disk import Disk
    print(Disk().helpers.each(abs, [1, -2]))
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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if "AssertionError" in done.stderr:
        pytest.skip("this interpreter imports threading itself")
    assert (done.returncode, done.stdout.strip()) == (0, "[1, 2]"), done


ONCE = """
import mmap, os, random, signal, sys, time
from safepoint.disk import Disk
from safepoint.disk.signals import Block
disk, sent, raised, times = Disk(), 0, 0, int(sys.argv[1])
ask, asked = os.pipe()
pressed = memoryview(mmap.mmap(-1, 8)).cast("q")
parent = os.getpid()
def wait():
    while pressed[0] < sent:
        time.sleep(1e-5)
if not os.fork():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    chance = random.Random(1)
    while os.read(ask, 1) == b"g":
        until = time.perf_counter() + chance.uniform(0, 6e-5)
        while time.perf_counter() < until:
            pass
        os.kill(parent, signal.SIGINT)
        pressed[0] += 1
    os._exit(0)
while sent < times:
    sent += 1
    try:
        os.write(asked, b"g")
        for _ in range(12):
            disk.helpers.each(abs, [1])
        wait()
        for _ in range(20):
            disk.helpers.each(abs, [1])
    except KeyboardInterrupt:
        raised += 1
        wait()
with Block() as signals:
    assert not signals.interrupted
os.write(asked, b"x")
print(raised)
"""


@pytest.mark.parametrize("times", [300, pytest.param(5000, marks=pytest.mark.proof)])
def test_each_of_many_interrupts_is_raised_once(times: int) -> None:
    assert ran(ONCE, times) == str(times)


CHILD = """
import os, signal, threading, warnings
from safepoint.disk import Disk
warnings.simplefilter("ignore", DeprecationWarning)
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
status = []
begun = threading.Event()
def fork():
    begun.wait()
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread = threading.Thread(target=fork)
thread.start()
Disk().helpers.each(lambda _: begun.set() or thread.join(), [1])
print(status)
"""


def test_a_child_that_another_thread_forks_meanwhile_has_its_handlers() -> None:
    assert ran(CHILD) == "[7]"


def test_in_another_thread_nothing_is_held() -> None:
    seen: list[object] = []

    def look() -> None:
        with Block():
            seen.extend(signal.getsignal(number) for number in HELD)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(number) for number in HELD]


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
        patch.setattr("safepoint.disk.signals._plain", SimpleNamespace(getsignal=signal.getsignal, signal=replaced))
        held = [number for number in HELD if number in (signal.SIGUSR1, signal.SIGTERM)]
        patch.setattr("safepoint.disk.signals.HELD", [number for number in HELD if number not in held] + held[::-1])
        with pytest.raises(Bad), Block():
            raise AssertionError("not come to")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


AWAKE = """
import asyncio, os, signal, sys, tempfile
from safepoint import Session
from safepoint.disk import Disk
came = []
class Told(Disk):
    def scan(self, path):
        if not came and loop.is_running():
            os.kill(os.getpid(), signal.SIGTERM)
            came.append("sent")
        return super().scan(path)
async def main():
    last = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, lambda: came.append("called"))
    loop.add_signal_handler(signal.SIGUSR1, last.set)
    with Session(sys.argv[1], disk=Told()) as session:
        session.restore()
        os.kill(os.getpid(), signal.SIGUSR1)
        await last.wait()  # it comes after all that was told before
        session.close()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print(came)
"""


def test_a_loop_of_asyncio_is_told_once(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    assert ran(AWAKE, tmp_path) == "['sent', 'called']"
