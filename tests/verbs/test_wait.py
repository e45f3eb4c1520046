"""`wait`, and all that waits: until the set in flight is durable or its error is told; and interrupted meanwhile."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from testbed.disks import Failing, Gated, ends, none
from testbed.handlers import ctrl_c, handled
from testbed.sessions import when_awaited
from testbed.waiting import wait_for

from safepoint import LockedError, SaveError, Session
from safepoint.record import Record

pytestmark = [
    pytest.mark.usefixtures("clean_slate"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals to a thread"),
]


def test_an_exception_that_interrupts_the_wait_loses_neither_the_set_nor_the_lock(tmp_path: Path) -> None:
    """G7, G8: a handler that raises SystemExit, as on SIGTERM, while the set in flight is waited for."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = Session(tmp_path)
    session.restore()

    class Interrupted(Future[Record]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            raise SystemExit

    session._work.flight = Interrupted()
    with pytest.raises(SystemExit):
        session.wait()
    with pytest.raises(SystemExit):
        session.close()
    with pytest.raises(LockedError):
        Session(tmp_path)
    session._work.flight = None
    session._home.release()


# The set in flight.
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
    when_awaited(session._work.flight, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        session.wait()
    assert session.saving
    disk.fails = fails
    when_awaited(session._work.flight, disk.gate.set)
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

    disk = Failing(once=False, meanwhile=ctrl_c)
    with Session(tmp_path, disk=disk) as session:
        session.restore()
        for step in range(30):
            (tmp_path / "u.dat").write_bytes(b"u" * 1000)
            disk.of = ends(".dat") if step else none
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
            session.wait()
            waited.append(session.saving)

        with handled(signal.SIGUSR1, wait):
            session.restore()
            for step in range(2):
                (tmp_path / "u.dat").write_bytes(b"u" * 1000)
                session.hide(step)
                disk.gate.clear()
            when_awaited(session._work.flight, lambda: (signal.raise_signal(signal.SIGUSR1), disk.gate.set()))
            session.wait()
        session.close()
    assert waited == [False]


def test_a_save_that_fails_after_its_session_was_closed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Gated()
    session = in_flight(tmp_path, disk)
    when_awaited(session._work.flight, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    flight = session._work.flight
    disk.fails = True
    disk.gate.set()
    assert flight and flight.exception()
    wait_for(lambda: caplog.records)  # the callback comes right after
    assert "set 2 (step 1) not stored" in caplog.text
    session._work.flight = None
    session._home.release()
