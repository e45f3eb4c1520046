"""When to save: how times are written, what is measured, and `due`, which costs nothing where nobody asks for it."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from testbed.faultdisk import FaultDisk
from testbed.paths import BENCHMARKS
from testbed.stops import logged, put

from safepoint import Session
from safepoint.manifest import parse
from safepoint.pace.decision import Pace
from safepoint.pace.interval import Every, daly
from safepoint.pace.limits import Limit
from safepoint.pace.meter import Meter, Steps
from safepoint.pace.past import Past, past
from safepoint.pace.times import duration, moment
from safepoint.program import SETTINGS
from safepoint.words import about


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


# Times
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90 s", 90), ("15min", 900), ("15 min", 900), ("1h 30min", 5400), ("1h30min", 5400), ("12 hours", 43200),
     ("2.5 d", 216000), ("2:30:00", 9000), ("1-12:00:00", 129600), ("0.5s", 0.5)],
)  # fmt: skip
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "0 s", "h", "15 m", "15min x", "2:30", "-5 s", "1e3 s", "15min,", "∞"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """`15` and `2:30` have two meanings each: better none."""
    with pytest.raises(ValueError, match="takes a time, such as"):
        duration(text)


def test_moments_as_people_write_them() -> None:
    now = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
    assert moment("18:00", now) == now + 6 * 3600
    assert moment("11:00", now) == now + 23 * 3600, "the next time that a clock shows it"
    assert moment("2026-11-21 12:00:30", now) == moment("2026-11-21T12:00:30", now) == now + 30
    assert moment("2026-11-21T12:00:00Z", now) == moment("2026-11-21T13:00:00+01:00", now) == 1795262400
    assert moment("1795262400", now) == moment("1795262400.0", now) == 1795262400
    for text in ("", "25:00", "tomorrow", "18", "2026-13-01 00:00"):
        with pytest.raises(ValueError, match="takes a moment, such as"):
            moment(text, now)


def test_times_are_shown_in_the_unit_in_which_they_are_read() -> None:
    seconds = 0.0351, 3.14, 405, 1500, 7.4 * 3600, 3.2 * 86400, math.inf
    assert [about(each) for each in seconds] == ["0.035 s", "3.1 s", "405 s", "25 min", "7.4 h", "3.2 d", "for ever"]


@pytest.mark.parametrize(
    ("line", "value"),
    [("every = 10 steps", Every(steps=10)), ("every=1 step", Every(steps=1)), ("every = 15min", Every(seconds=900)),
     ("every = auto", Every()), ("every = 1h 30min", Every(seconds=5400))],
)  # fmt: skip
def test_the_setting_every(line: str, value: Every) -> None:
    assert parse(f"u.dat\n{line}\n", settings=SETTINGS).setting("every") == value


@pytest.mark.parametrize(
    "line", ["every = 10", "every = 0 steps", "every = often", "every =", "mtbf = 12", "mtbf = auto"]
)
def test_settings_that_cannot_be_meant_name_line_and_cause(line: str) -> None:
    from safepoint import ManifestError

    with pytest.raises(ManifestError, match=r"\.safepoint:2: (every|mtbf) takes"):
        parse(f"u.dat\n{line}\n", settings=SETTINGS)


# What is measured
def test_the_cost_of_a_save_is_its_writing_its_hiding_and_what_the_saver_slows_down() -> None:
    meter = Meter(0.0)
    for _ in range(4):
        meter.step(1.0, 1, False)
    meter.asked = 4.0
    assert meter.saved(4.3, 4.5, waited=False) == 0.5, "0.3 s of writing, 0.2 s of hiding"
    assert meter.cost == pytest.approx(0.5)
    meter.step(1.2, 1, True)  # beside the saver
    meter.stored(5.0, 2.5)
    meter.step(1.3, 1, False)
    meter.step(1.0, 1, False)
    assert meter.cost == pytest.approx(0.5 + 0.5)
    assert meter.durable(9.0, saving=False) == pytest.approx(0.5 + 2.5)
    assert meter.durable(5.5, saving=True) == pytest.approx(0.5 + 2.5 + 2.0), "one that waited is stored first"


def test_of_a_set_that_waited_it_counts_when_it_was_begun() -> None:
    """Not when it was hidden: should_stop would leave too little time for the last set."""
    meter = Meter(0.0)
    meter.stored(-1.0, 100.0)
    meter.saved(0.0, 0.0, waited=False)
    meter.saved(60.0, 60.0, waited=False)
    assert meter.durable(60.0, saving=True) == 140.0
    meter.stored(100.0, 100.0)
    assert meter.durable(119.0, saving=True) == 181.0
    meter.stored(200.0, 100.0)
    meter.saved(300.0, 300.0, waited=False)
    assert meter.durable(310.0, saving=True) == 190.0


def test_a_saver_that_slows_nothing_costs_nothing_however_uneven_the_steps_are() -> None:
    """Every fifth takes ten times as long; the median of them would be that of the short ones."""
    meter = Meter(0.0)
    meter.stored(0.0, 60.0)
    for _ in range(8):
        for step in range(60):
            meter.step(10.0 if step % 5 == 4 else 1.0, 1, False)
        meter.saved(0.0, 0.5, waited=False)
        for step in range(20):
            meter.step(10.0 if step % 5 == 4 else 1.0, 1, step < 19)
    meter.step(1.0, 1, False)
    assert meter.cost == pytest.approx(0.5, abs=0.6)


def test_sets_whose_savers_follow_one_another_are_charged_each_with_its_own() -> None:
    meter = Meter(0.0)
    for _ in range(4):
        meter.step(1.0, 1, False)
    for _ in range(30):
        meter.saved(0.0, 0.5, waited=False)
        for _ in range(5):
            meter.step(1.4, 1, True)
        meter.stored(0.0, 7.0)
    assert meter.cost == pytest.approx(0.5 + 5 * 0.4)


def test_the_first_set_which_is_always_waited_for_counts_only_until_there_is_another() -> None:
    meter = Meter(0.0)
    meter.saved(0.0, 5.0, waited=True)
    assert meter.cost == 5.0 and meter.durable(5.0, saving=False) == 5.0
    meter.saved(6.0, 6.25, waited=False)
    assert meter.cost == 0.25


def test_what_is_before_the_first_call_is_no_step_and_what_a_save_takes_neither() -> None:
    steps = Steps()
    assert steps.end(100.0, 1) is None and steps.longest == 0.0
    assert steps.end(101.0, 1) == 1.0
    steps.leave_out(0.25)
    assert steps.end(102.25, 1) == 1.0
    assert steps.end(106.25, 8) == 4.0 and steps.mean == pytest.approx(2.5 / 3)
    steps.forget()
    assert steps.end(1000.0, 1) is None and steps.longest == 1.0


def test_only_the_last_yes_before_a_save_begins_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that saves at every tenth step only, if it is due."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with Session(work) as session:
        session.restore()
        for step in range(31):
            if session.due() and step % 10 == 0:
                clock[0] += 0.002  # to write
                put(work, step)
                session.hide(step)
            clock[0] += 0.01
        assert session._timing._when is not None
        assert session._timing._when.meter.cost == pytest.approx(0.002)
        put(work)


def test_setting_up_is_no_step(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program whose set-up takes half of the limit would stop before its first step, start after start."""
    session = Session(work, stop_after=3000.0)
    session.restore()
    clocks = time.time, time.perf_counter
    for clock in clocks:
        monkeypatch.setattr(time, clock.__name__, lambda clock=clock: clock() + 1600)
    assert not session.should_stop() and not session.should_stop()
    session.close()


# The log
def line(when: float, event: str, **what: Any) -> bytes:
    return json.dumps({"time": when, "event": event, "pid": 1, **what}).encode() + b"\n"


def test_the_log_tells_failures_time_at_work_and_costs() -> None:
    log = (
        line(10.0, "start", began=9.0) + line(20.0, "saved", set=1, cost=0.5, seconds=2.0) + line(24.0, "saved", set=2)
    )
    log += line(100.0, "restored", began=99.0, set=2) + line(103.0, "ended", error="E: no")
    log += line(200.0, "restored", began=199.0, set=2) + line(205.0, "stopped", why="x")
    log += line(300.0, "restored", began=299.0, set=2) + line(306.0, "ended")
    log += line(400.0, "restored", began=399.0, set=2)
    found = past(log, present=True)
    assert found.failures == 2, "killed, and ended by an error; not those that ended in order"
    assert found.seconds == pytest.approx((15 + 2) + 4 + 6 + 7), "and half an interval after the last line of a kill"
    assert (found.cost, found.store) == (0.5, 2.0)
    assert past(log, present=False).failures == 3, "what is there is no life of ours"
    assert past(b"", present=False) == past(b"torn\n{", present=True) == Past()


def test_a_start_that_was_refused_is_no_failure() -> None:
    """Else a job that meets a mistake of its script ten times would save ten times as often."""
    log = line(10.0, "start", began=9.0) + line(20.0, "saved", set=1) + line(24.0, "ended")
    log += line(30.0, "ended", began=29.0, error="UsageError: hide before restore")
    assert past(log, present=False).failures == 0


def test_a_roll_back_is_a_failure_of_the_life_at_work() -> None:
    log = line(10.0, "start", began=9.0) + line(20.0, "saved", set=1) + line(30.0, "restored", set=1)
    assert past(log, present=True).failures == 1


# When to save
class Alone:
    size = 1

    def least(self, *values: int) -> tuple[int, ...]:
        return values


def steps_until_due(pace: Pace, begin: float, step: float, most: int = 100_000) -> int:
    now = begin
    for count in range(1, most):
        now += step
        if not pace.waits() and pace.decide(Alone(), True, now, saving=False, first=False):
            return count
    raise AssertionError("never due")


def test_auto_is_dalys_interval_for_the_measured_cost_and_the_given_mean() -> None:
    meter = Meter(0.0)
    meter.saved(-3.0, 0.0, waited=False)
    pace = Pace(Every(), 7.4 * 3600, Past(), meter, 0.0)
    optimum = daly(3.0, 7.4 * 3600)
    assert steps_until_due(pace, 0.0, 1.0) == round(optimum)
    assert pace.reason == f"{about(optimum)} since the last set, optimum {about(optimum)} (cost 3 s, MTBF 7.4 h, given)"


def test_auto_estimates_the_mean_from_the_log() -> None:
    meter = Meter(0.0)
    meter.saved(-2.0, 0.0, waited=False)
    pace = Pace(Every(), None, Past(failures=9, seconds=95_000.0), meter, 0.0)
    assert steps_until_due(pace, 0.0, 1.0) == pytest.approx(daly(2.0, 10_000.0), abs=2)
    assert "MTBF 2.8 h, 9 failures in 26.4 h" in pace.reason


def test_a_set_is_due_by_time_at_the_step_that_is_nearest() -> None:
    pace = Pace(Every(seconds=10), None, Past(), Meter(0.0), 0.0)
    assert steps_until_due(pace, 0.0, 4.0) == 2  # 8 s is nearer to 10 s than 12 s is... and equal goes early
    assert pace.reason == "8 s since the last set, every 10 s"
    assert steps_until_due(Pace(Every(seconds=10), None, Past(), Meter(0.0), 0.0), 0.0, 3.0) == 3


def test_every_so_many_steps_counts_calls_since_the_last_set(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\nevery = 3 steps\n")
    with Session(work) as session:
        dues = []
        for step in range(12):
            if session.due():
                dues.append(step)
                put(work, step)
                session.hide(step)
                session.wait()
        assert dues == [2, 5, 8, 11]
        put(work, 12)
    assert [each["due"] for each in logged(work) if each["event"] == "saved"] == ["3 steps since the last set"] * 4


def test_due_is_true_again_and_again_until_a_set_is_hidden(work: Path) -> None:
    with Session(work) as session:
        session.restore()
        assert [session.due() for _ in range(5)] == [True] * 5, "no set yet"
        put(work)
        session.hide(0, wait=True)
        assert not session.due()
        put(work)


def test_after_a_restore_the_interval_begins_anew(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\nevery = 1h\n")
    with Session(work) as session:
        put(work)
        session.hide(0)
        session.restore()
        assert not session.due()
        put(work)


def test_the_log_and_status_say_why_a_set_was_due(work: Path) -> None:
    with Session(work) as session:
        session.restore()
        assert session.due()
        put(work)
        session.hide(0, wait=True)
        shown = subprocess.run([sys.executable, "-m", "safepoint", "status", str(work)], capture_output=True, text=True)
        assert "due:       set 1: no set yet" in shown.stdout
        found = subprocess.run(
            [sys.executable, "-m", "safepoint", "status", "--json", str(work)], capture_output=True, text=True
        )
        assert json.loads(found.stdout)["due"] == {"set": 1, "text": "no set yet"}
        put(work)
    saved = next(each for each in logged(work) if each["event"] == "saved")
    assert saved["due"] == "no set yet" and "cost" not in saved


def test_the_reason_is_logged_at_debug(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "safepoint"), Session(work) as session:
        session.due()
        put(work)
    assert "due: no set yet" in caplog.messages


def test_the_next_life_knows_what_a_set_cost_and_how_often_it_failed(work: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, sys, time, safepoint
        sp = safepoint.init()
        sp.restore()
        for step in range(10**6):
            if sp.due():
                open("u.dat", "w").write("x")
                sp.hide(step)
                if step >= 20:
                    sp.wait()
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.001)
    """)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], cwd=work)
    with Session(work) as session:
        session.restore()
        assert not session.due()
        assert session._timing._when is not None
        known = session._timing._when.pace._past
        assert known.failures == 2 and 0 < known.seconds < 60
        assert known.cost is not None and 0 < known.cost < 5
        put(work)


def test_an_unreadable_log_is_no_reason_to_stop_a_computation(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Blind(FaultDisk):
        def open(self, path: str) -> Any:
            if path.endswith("log.jsonl") and Path(path).exists():
                raise PermissionError(13, "Permission denied", path)
            return super().open(path)

    session = Session(work, disk=Blind(str(work)))
    session.restore()
    assert session.due()
    assert any("nothing is known of earlier failures" in message for message in caplog.messages)
    session.close()


# A program that asks for nothing pays nothing
def test_a_program_that_only_hides_pays_nothing_for_any_of_this(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log is read, no halt file looked for, no handler set, nothing measured, and nothing more is in the log."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(sys.modules["safepoint.pace.timing"], "When", fail)
    monkeypatch.setattr(Limit, "ask", fail)
    monkeypatch.setattr(sys.modules["safepoint.pace.stopping"], "halted", fail)
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    session = Session(work)
    session.restore()
    for step in range(3):
        put(work, step)
        session.hide(step)
    session.wait()
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before
    session.close()
    assert not [each for each in logged(work) if {"due", "cost"} & set(each)]


def calls_of(work: Path, begin: str, call: str) -> list[str]:
    """The file-system calls of the main thread of a program, after the seconds it took: a Disk notes them."""
    program = textwrap.dedent(f"""
        import threading, time
        from safepoint import Session
        from safepoint.disk import Disk
        seen = []
        class Noting(Disk):
            pass
        def note(name):
            def call(self, *arguments, **options):
                if threading.current_thread() is threading.main_thread():
                    seen.append(name)
                return getattr(Disk, name)(self, *arguments, **options)
            return call
        for name in [n for n in vars(Disk) if not n.startswith("_") and n != "helpers"]:
            setattr(Noting, name, note(name))
        sp = Session(".", disk=Noting())
        sp.restore()
        open("u.dat", "w").write("0"); sp.hide(0, wait=True)
        {begin}
        begun, mark = time.monotonic(), len(seen)
        for _ in range(2000): {call}
        noted = [time.monotonic() - begun, *seen[mark:]]
        sp.wait()
        print(*noted)
        sp.close()
    """)
    done = subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_due_itself_never_touches_the_disk_and_should_stop_once_a_second(work: Path) -> None:
    assert calls_of(work, "sp.due(); sp.should_stop()", "sp.due()")[1:] == []
    seconds, *looks = calls_of(work, "sp.should_stop()", "sp.should_stop()")
    assert set(looks) <= {"stat"} and len(looks) <= float(seconds) + 2


@pytest.mark.proof
def test_the_simulation_of_the_interval_is_within_its_goal() -> None:
    """A part of benchmarks/interval_sim.py: one ratio, both kinds of failures; the whole takes a minute."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import interval_sim
    finally:
        sys.path.remove(str(BENCHMARKS))
    for row in interval_sim.run(failures=100, sequences=2, seed=3, ratios=(100,)):
        assert row["waste of auto"] <= 1.10 * row["waste of best"]
