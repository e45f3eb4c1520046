"""What the program is told: in its own thread, at the end of its next verb, in the order in which it happened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from testbed.disks import Failing, Gated
from testbed.sessions import Start, write

from safepoint import SaveError, StoredSet, UsageError
from safepoint.callbacks import Callbacks
from safepoint.collective import collective
from safepoint.record import Record

RECORD = Record(1, 0, 0.0, 0.0, "", "", 0, 4, 0, (), ())


class Told:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.threads: set[threading.Thread] = set()

    def durable(self, of: StoredSet) -> None:
        assert of.durable and of.files == ("u.dat",) and of.bytes == 1
        self._note("durable", of)

    def failed(self, of: StoredSet, error: Exception) -> None:
        assert not of.durable and isinstance(error, SaveError) and f"set {of.number}" in str(error)
        self._note("failed", of)

    def _note(self, what: str, of: StoredSet) -> None:
        self.calls.append((what, of.step))
        self.threads.add(threading.current_thread())


def test_the_program_is_told_in_its_own_thread_at_its_next_verb(start: Start, work: Path) -> None:
    told, disk = Told(), Gated()
    session = start("u.dat\n", disk=disk, on_durable=told.durable, on_failed=told.failed)
    write(work, u_dat="0")
    session.hide(0)
    assert told.calls == [("durable", 0)]  # the first one waits
    disk.gate.clear()
    write(work, u_dat="1")
    session.hide(1)
    disk.gate.set()
    assert session._work.flight
    session._work.flight.result(60)
    assert told.calls == [("durable", 0)]
    write(work, u_dat="2")
    session.hide(2)
    assert told.calls == [("durable", 0), ("durable", 1)]
    session.close()
    assert told.calls == [("durable", 0), ("durable", 1), ("durable", 2)]
    assert told.threads == {threading.current_thread()}


def test_a_failure_is_told_beside_its_error(start: Start, work: Path) -> None:
    told, disk = Told(), Failing()
    session = start("u.dat\n", disk=disk, on_durable=told.durable, on_failed=told.failed)
    write(work, u_dat="0")
    session.hide(0)
    disk.of = lambda path: "set-00000002/files" in path
    write(work, u_dat="1")
    session.hide(1)
    with pytest.raises(SaveError, match="set 2"):
        session.wait()
    assert told.calls == [("durable", 0), ("failed", 1)]
    disk.of = lambda path: "set-00000003/files" in path
    write(work, u_dat="2")
    with pytest.raises(SaveError, match="set 3"):
        session.hide(2, wait=True)
    assert told.calls[2:] == [("failed", 2)]


def test_what_a_callback_raises_is_logged_and_ends_no_verb(
    start: Start, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(of: StoredSet) -> None:
        raise ZeroDivisionError(of.number)

    session = start("u.dat\n", on_durable=wrong)
    write(work, u_dat="0")
    assert session.hide(0)
    assert "a callback has failed" in caplog.text and "ZeroDivisionError: 1" in caplog.text


def test_a_callback_may_call_verbs_and_ctrl_c_in_it_is_one(start: Start, work: Path) -> None:
    calls: list[int] = []

    def again(of: StoredSet) -> None:
        calls.append(of.number)
        if of.number == 1:
            write(work, u_dat="9")
            session.hide(9, wait=True)
            assert calls == [1]  # one after the other
        else:
            raise KeyboardInterrupt

    session = start("u.dat\n", on_durable=again)
    write(work, u_dat="0")
    with pytest.raises(KeyboardInterrupt):
        session.hide(0)
    assert calls == [1, 2] and [each.step for each in session.sets()] == [9, 0]


def test_in_a_callback_no_verb_may_be_called_that_other_ranks_would_have_to_call_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are told at other moments: one rank would wait for ever."""
    calls = []

    @collective
    def wait(session: Any) -> None:
        calls.append(session)

    callbacks = Callbacks(lambda of: wait(None), None, alone=False)
    callbacks.stored(RECORD, 0.1, waited=False)
    callbacks.after(ended=False)
    assert calls == [] and "UsageError: wait in a callback: the other ranks are told at other moments" in caplog.text


@pytest.mark.parametrize("name", ["on_durable", "on_failed"])
def test_what_is_no_function_is_refused(start: Start, name: str) -> None:
    options: dict[str, Any] = {name: "print"}
    with pytest.raises(UsageError, match=f"{name} must be a function, not 'print'"):
        start("u.dat\n", **options)
    start("u.dat\n")  # nothing is held
