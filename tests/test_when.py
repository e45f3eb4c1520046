"""When to save and when to stop: `due`, `should_stop`, `stop`, `safepoint halt`, and the limits of `safepoint run`."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faultdisk import FaultDisk
from lives import LONG
from test_mpi import mpiexec

from safepoint import LockedError, Session, UsageError
from safepoint.cli.history import read
from safepoint.disk import Disk
from safepoint.manifest import parse
from safepoint.pace import Every, Meter, Pace, Past, Steps, daly, past
from safepoint.record import Root
from safepoint.stop import HALTED, REQUEUE, SCHEDULERS, Limit, Signals, Stop, halt, limits
from safepoint.times import duration, moment, shown

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"
UNIX = pytest.mark.skipif(os.name != "posix", reason="needs signals of Unix")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


def put(work: Path, step: int = 0) -> None:
    (work / "u.dat").write_text(f"step {step}\n")


def logged(work: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(Root(str(work)).log).read_text().splitlines()]


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
    assert [shown(each) for each in seconds] == ["0.035 s", "3.1 s", "405 s", "25 min", "7.4 h", "3.2 d", "for ever"]


@pytest.mark.parametrize(
    ("line", "value"),
    [("every = 10 steps", Every(steps=10)), ("every=1 step", Every(steps=1)), ("every = 15min", Every(seconds=900)),
     ("every = auto", Every()), ("every = 1h 30min", Every(seconds=5400))],
)  # fmt: skip
def test_the_setting_every(line: str, value: Every) -> None:
    assert parse(f"u.dat\n{line}\n").setting("every") == value


@pytest.mark.parametrize(
    "line", ["every = 10", "every = 0 steps", "every = often", "every =", "mtbf = 12", "mtbf = auto"]
)
def test_settings_that_cannot_be_meant_name_line_and_cause(line: str) -> None:
    from safepoint import ManifestError

    with pytest.raises(ManifestError, match=r"\.safepoint:2: (every|mtbf) takes"):
        parse(f"u.dat\n{line}\n")


# What is measured


def test_the_cost_of_a_save_is_its_writing_its_hiding_and_what_the_saver_slows_down() -> None:
    meter = Meter(0.0)
    for _ in range(4):
        meter.step(1.0, 1, False)
    meter.asked = 4.0
    assert meter.saved(4.3, 4.5, waited=False) == 0.5, "0.3 s of writing, 0.2 s of hiding"
    assert meter.cost == pytest.approx(0.5)
    meter.step(1.2, 1, True)  # beside the saver
    meter.stored(2.5)
    meter.step(1.3, 1, False)
    meter.step(1.0, 1, False)
    assert meter.cost == pytest.approx(0.5 + 0.5)
    assert meter.durable(9.0, saving=False) == pytest.approx(0.5 + 2.5)
    assert meter.durable(5.5, saving=True) == pytest.approx(0.5 + 2.5 + 1.5), "hide waits for the one in flight"


def test_a_saver_that_slows_nothing_costs_nothing_however_uneven_the_steps_are() -> None:
    """Every fifth takes ten times as long; the median of them would be that of the short ones."""
    meter = Meter(0.0)
    meter.stored(60.0)
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
        meter.stored(7.0)
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


def test_only_the_last_yes_before_a_save_begins_it(work: Path) -> None:
    """A program that saves at every tenth step only, if it is due."""
    with Session(work) as session:
        session.restore()
        for step in range(31):
            if session.due() and step % 10 == 0:
                put(work, step)
                session.hide(step)
            time.sleep(0.01)
        assert session._when is not None
        cost = session._when.meter.cost
        assert cost is not None and cost < 0.05
        put(work)


def test_setting_up_is_no_step(work: Path) -> None:
    """Else a program whose set-up takes half of the limit would stop before its first step, start after start."""
    session = Session(work, stop_after=3.0)
    session.restore()
    time.sleep(1.6)
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
    assert pace.reason == f"{shown(optimum)} since the last set, optimum {shown(optimum)} (cost 3 s, MTBF 7.4 h, given)"


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
        assert session._when is not None
        known = session._when.pace._past
        assert known.failures == 2 and 0 < known.seconds < 60
        assert known.cost is not None and 0 < known.cost < 5
        put(work)


def test_an_unreadable_log_is_no_reason_to_stop_a_computation(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Blind(FaultDisk):
        def open(self, path: str) -> Any:
            if path.endswith("log.jsonl") and not sys._getframe(1).f_code.co_name == "_open":
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

    monkeypatch.setattr(sys.modules["safepoint.session"], "When", fail)
    monkeypatch.setattr(Limit, "ask", fail)
    monkeypatch.setattr(sys.modules["safepoint.stop"], "halted", fail)
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


def calls_of(work: Path, body: str) -> list[str]:
    """The file-system calls of the main thread of a program, by strace-free counting: a Disk that notes them."""
    program = textwrap.dedent(f"""
        import sys, threading
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
        for name in [n for n in vars(Disk) if not n.startswith("_")]:
            setattr(Noting, name, note(name))
        sp = Session(".", disk=Noting())
        sp.restore()
        open("u.dat", "w").write("0"); sp.hide(0, wait=True)
        {body}
        noted = seen[mark:]
        sp.wait()
        print(" ".join(noted))
        sp.close()
    """)
    done = subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_due_itself_never_touches_the_disk_and_should_stop_once_a_second(work: Path) -> None:
    first = calls_of(work, "sp.due(); sp.should_stop(); mark = len(seen)\n        for _ in range(2000): sp.due()")
    assert first == []
    looks = calls_of(work, "sp.should_stop(); mark = len(seen)\n        for _ in range(2000): sp.should_stop()")
    assert set(looks) <= {"exists"} and len(looks) <= 3


# When to stop: limits


def stop_of(work: Path, *bounds: Limit) -> Stop:
    return Stop(Disk(), Root(str(work)), None, list(bounds), Signals(()))


def test_the_limit_is_near_when_a_step_and_a_save_just_fit(work: Path) -> None:
    now = time.time()
    assert not stop_of(work, Limit("stop_at", now + 1000)).look(1, 700.0)
    why = stop_of(work, Limit("stop_at", now + 1000)).look(1, 850.0)
    assert why == "time limit (stop_at): 17 min left, 850 s needed, 212 s of margin"
    assert not stop_of(work, Limit("stop_at", now + 1000)).look(1, 985.0, exact=True)
    assert stop_of(work, Limit("stop_at", now + 1000)).look(1, 1001.0, exact=True)
    assert stop_of(work, Limit("stop_at", now - 5)).look(1, 0.0), "over already"


def test_the_earliest_limit_counts(work: Path) -> None:
    now = time.time()
    stop = stop_of(work, Limit("stop_at", now + 10_000), Limit("stop_after", now + 5), Limit("Slurm", math.inf))
    assert stop.look(1, 10.0).startswith("time limit (stop_after)")
    assert stop.status == REQUEUE


def test_limits_come_from_the_call_and_from_the_environment() -> None:
    environment = {"SAFEPOINT_STOP_AFTER": "2h", "SAFEPOINT_STOP_AT": "", "LSB_JOBID": "7"}
    found = limits(2_000_000_000.0, "90 s", 1000.0, environment)
    ends = {limit.source: limit.end for limit in found}
    assert ends == {"stop_at": 2e9, "stop_after": 1090.0, "SAFEPOINT_STOP_AFTER": 8200.0, "LSF": math.inf}
    assert limits(None, None, 0.0, {}) == []


@pytest.mark.parametrize("options", [{"stop_after": "soon"}, {"stop_at": "later"}, {"stop_after": math.nan}])
def test_a_limit_that_is_none_is_refused_before_anything_is_made(work: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"stop_(after|at)="):
        Session(work, **options)
    assert not (work / ".safepoint.d").exists()


PBS_SAYS = """test "$*" = "-f 7" && printf 'Job Id: 7\\n  Resource_List.walltime = 02:00:00\\n  stime = %s\\n' \
"$(LC_ALL=C date -d '-30 min' '+%a %b %e %H:%M:%S %Y')\""""
ANSWERS = [  # of the schedulers, as their own documents show them; what is asked, and how much time is left
    ("Slurm", {"SLURM_JOB_ID": "7"}, 'test "$*" = "-h -o %L -j 7" && echo 1-02:03:04', 93784),
    ("Slurm", {"SLURM_JOB_ID": "7"}, "printf '2:00\\n1:30\\n'", 90),
    ("Slurm", {"SLURM_JOB_ID": "7"}, "echo UNLIMITED", math.inf),
    ("Slurm", {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"},
     'test "$*" = "-h -o %L -j 7_3" && echo 59:59', 3599),
    ("PBS", {"PBS_JOBID": "7"}, PBS_SAYS, 5400),
    ("PBS", {"PBS_JOBID": "7"}, "echo '    Walltime.Remaining = 77'", 77),
    ("PBS", {"PBS_JOBID": "7"}, "echo 'Job Id: 7'", math.inf),
    ("LSF", {"LSB_JOBID": "7", "LSB_JOBINDEX": "0"},
     'test "$*" = "-noheader -o time_left 7" && echo "2:30 L"', 9000),
    ("LSF", {"LSB_JOBID": "7", "LSB_JOBINDEX": "3"},
     'test "$*" = "-noheader -o time_left 7[3]" && echo "2:30 X"', 9000),
    ("LSF", {"LSB_JOBID": "7"}, "echo '02:30:30 L'", 9030),
    ("LSF", {"LSB_JOBID": "7"}, "echo '0:05 E'", math.inf),
    ("LSF", {"LSB_JOBID": "7"}, "echo -", math.inf),
    ("Flux", {"FLUX_JOB_ID": "7"}, 'test "$*" = "job timeleft 7" && echo 3599.5', 3599.5),
    ("Flux", {"FLUX_JOB_ID": "7"}, "echo infinity", math.inf),
]  # fmt: skip
PROGRAMS = {"Slurm": "squeue", "PBS": "qstat", "LSF": "bjobs", "Flux": "flux"}


def fake(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@UNIX
@pytest.mark.parametrize(("name", "environment", "script", "left"), ANSWERS)
def test_schedulers_are_asked_for_the_time_left(
    name: str, environment: dict[str, str], script: str, left: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fake(tmp_path, PROGRAMS[name], script)
    (limit,) = limits(None, None, 0.0, environment)
    limit.ask(again=False)
    assert not limit.failed
    assert limit.end == left if math.isinf(left) else limit.end - time.time() == pytest.approx(left, abs=3)


@UNIX
@pytest.mark.parametrize("answer", ["echo no such job >&2; exit 3", "echo nonsense", "true", "echo 1:2:3:4"])
@pytest.mark.parametrize("name", ["Slurm", "LSF", "Flux"])
def test_a_scheduler_that_gives_no_answer_is_asked_again_and_that_is_said_once(
    name: str,
    answer: str,
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fake(tmp_path, PROGRAMS[name], answer)
    scheduler = next(s for s in SCHEDULERS if s.name == name)
    stop = stop_of(work, *limits(None, None, 0.0, {scheduler.job: "7"}))
    assert not stop.look(1, 1.0)
    said = [message for message in caplog.messages if "did not tell how much time is left" in message]
    assert len(said) == 1 and "give stop_at" in said[0]
    fake(tmp_path, PROGRAMS[name], "echo 0:01 L" if name == "LSF" else "echo 00:01" if name == "Slurm" else "echo 1")
    stop._limits[0].asked -= 100
    stop._next = 0.0
    assert stop.look(1, 100.0).startswith(f"time limit ({name})")


@UNIX
def test_slurm_that_tells_the_end_of_the_job_is_only_asked_before_stopping(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit may have been extended meanwhile."""
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time() + 60))}
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fake(tmp_path, "squeue", f"echo asked >> {tmp_path}/asked; echo 1:00:00")
    stop = stop_of(work, *limits(None, None, time.time(), environment))
    assert not stop.look(1, 1.0) and not (tmp_path / "asked").exists()
    stop._limits[0].asked -= 100
    assert not stop.look(1, 100.0) and (tmp_path / "asked").exists(), "near, but there is an hour more"
    fake(tmp_path, "squeue", "echo 0:10")
    stop._limits[0].asked -= 100
    assert stop.look(1, 3600.0).startswith("time limit (Slurm): 1")


def test_what_fails_while_looking_is_said_and_stops_nobody(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Stale(Disk):
        def exists(self, path: str) -> bool:
            if path.endswith("halt.json"):
                raise OSError(116, "Stale file handle", path)
            return super().exists(path)

    session = Session(work, disk=Stale())
    session.restore()
    for _ in range(3):
        assert not session.should_stop()
        session._when.stop._next = 0.0  # type: ignore[union-attr]
    assert len([message for message in caplog.messages if "Stale file handle" in message]) == 1
    session.close()


# When to stop: signals


@UNIX
def test_a_signal_is_noted_and_the_programs_own_handler_still_called(work: Path) -> None:
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        session = Session(work, signals=("USR1", "SIGUSR2"))
        session.restore()
        assert not session.should_stop()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert session.should_stop() and session.should_stop(), "for ever"
        assert seen == [signal.SIGUSR1]
        put(work)
        session.hide(1)
        with pytest.raises(SystemExit) as ended:
            session.stop()
        assert ended.value.code == REQUEUE
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] * 2, "the program's own again"
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)
    events = logged(work)
    assert [each["event"] for each in events] == ["start", "stopping", "saved", "stopped"]
    assert events[1]["why"] == events[2]["due"] == "SIGUSR1 came"
    run = read(Disk(), str(work))
    assert run.state == "stopped" and run.failures == 0


@UNIX
def test_a_session_after_another_catches_its_own_signals(work: Path, tmp_path: Path) -> None:
    """The handler of the first, which the second calls, must not take the second's away."""
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.safepoint").write_text("u.dat\n")
    first = Session(work, signals=("USR1",))
    second = Session(tmp_path / "two", signals=("USR1",))
    first.close()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert second.should_stop()
    second.close()
    assert signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, first._caught._note)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@UNIX
def test_a_forked_child_dies_by_a_signal_that_its_parent_catches(work: Path) -> None:
    session = Session(work, signals=("TERM",))
    child = os.fork()
    if not child:
        time.sleep(20)
        os._exit(0)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert not session.should_stop()
    session.close()


@UNIX
def test_without_being_asked_no_signal_is_caught(work: Path) -> None:
    program = (
        "import os, signal, safepoint; sp = safepoint.init(); sp.restore(); sp.should_stop(); "
        "os.kill(os.getpid(), signal.SIGUSR1)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=work).returncode == -signal.SIGUSR1


@UNIX
def test_the_first_ctrl_c_asks_and_the_second_interrupts(work: Path) -> None:
    session = Session(work, signals=("INT",))
    os.kill(os.getpid(), signal.SIGINT)
    assert session.should_stop()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    session.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@UNIX
def test_after_finish_a_signal_does_what_it_did_before(work: Path) -> None:
    """`finish` holds the handlers while ranks agree, and puts them back: also those that were taken away meanwhile."""
    program = textwrap.dedent("""
        import os, signal, safepoint
        sp = safepoint.init(signals=("TERM",))
        sp.restore()
        open("u.dat", "w").write("x")
        sp.finish(1)
        os.kill(os.getpid(), signal.SIGTERM)
    """)
    assert subprocess.run([sys.executable, "-c", program], cwd=work).returncode == -signal.SIGTERM


@pytest.mark.parametrize("names", [("FOO",), ("KILL",), (0,), (10**6,), ("_IGN",), ("RTMIN+99",)])
def test_signals_that_cannot_be_caught_are_refused_before_anything_is_made(work: Path, names: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match=r"signal|cannot be caught"):
        Session(work, signals=names)
    assert not (work / ".safepoint.d").exists()


def test_signals_are_caught_by_the_main_thread_only(work: Path) -> None:
    found: list[BaseException] = []

    def begin() -> None:
        try:
            Session(work, signals=("TERM",))
        except UsageError as error:
            found.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert "main thread" in str(found[0])


# When to stop: the operator


def safepoint(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", arguments[0], str(work), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True)


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


LOOP = """
import sys, time, safepoint
sp = safepoint.init()
saved = sp.restore()
for step in range(saved.step if saved else 0, 10**6):
    stopping = sp.should_stop()
    if stopping or sp.due():
        open("u.dat", "w").write(str(step))
        sp.hide(step)
    if stopping:
        print(step)
        sp.stop()
    time.sleep(0.01)
"""


@pytest.fixture
def running(work: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", LOOP], cwd=work, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: Path(Root(str(work)).record(1)).exists())
        yield process
    finally:
        process.kill()
        process.communicate()


def test_halt_asks_a_live_run_to_save_and_end(work: Path, running: subprocess.Popen[str]) -> None:
    done = safepoint(work, "halt")
    assert done.returncode == 0 and f"asked to stop: process {running.pid}" in done.stdout
    assert running.wait(20) == HALTED
    assert not Path(Root(str(work)).halt).exists(), "it was for this run only"
    assert logged(work)[-1]["event"] == "stopped"
    assert safepoint(work, "status").stdout.count("not running") == 1


def test_halt_after_some_steps_and_undone(work: Path, running: subprocess.Popen[str]) -> None:
    assert safepoint(work, "halt", "--after", "1h").returncode == 0
    assert "halt:      asked for, in 60 min" in safepoint(work, "status").stdout
    assert safepoint(work, "halt", "--undo").stdout == "taken back\n"
    assert "halt:" not in safepoint(work, "status").stdout
    assert safepoint(work, "halt", "--undo").returncode == 20
    assert safepoint(work, "halt", "--steps", "150").returncode == 0
    time.sleep(1.2)  # it has been noticed
    assert running.poll() is None
    assert running.wait(20) == HALTED


def test_a_new_request_takes_the_place_of_the_one_before(work: Path, running: subprocess.Popen[str]) -> None:
    assert safepoint(work, "halt", "--steps", "250").returncode == 0
    time.sleep(1.1)
    assert safepoint(work, "halt", "--after", "1h").returncode == 0
    time.sleep(2.5)
    assert running.poll() is None
    assert safepoint(work, "halt", "--steps", "5").returncode == 0
    assert running.wait(5) == HALTED


def test_halt_after_a_time(work: Path, running: subprocess.Popen[str]) -> None:
    begin = time.monotonic()
    assert safepoint(work, "halt", "--after", "2 s").returncode == 0
    assert running.wait(20) == HALTED and time.monotonic() - begin > 1.9


def test_halt_where_nobody_is_at_work_changes_nothing(work: Path) -> None:
    assert safepoint(work, "halt").returncode == 20
    assert not (work / ".safepoint.d").exists()
    Session(work).close()
    done = safepoint(work, "halt")
    assert done.returncode == 20 and "no run is at work" in done.stderr
    assert not Path(Root(str(work)).halt).exists()


@pytest.mark.parametrize(
    "options",
    [("--after", "soon"), ("--after", "23:59:00"), ("--after", "1h", "--steps", "3"), ("--undo", "--steps", "3")],
)
def test_halt_called_wrongly(work: Path, options: tuple[str, ...]) -> None:
    assert safepoint(work, "halt", *options).returncode == 10


def test_what_was_asked_of_another_run_does_not_stop_this_one(work: Path) -> None:
    session = Session(work)
    halt(Disk(), Root(str(work)), [{"host": "elsewhere", "pid": 1, "since": 2.0}], until=None, steps=None)
    session.restore()
    assert not session.should_stop()
    Path(Root(str(work)).halt).write_text("{torn")
    session._when.stop._next = 0.0  # type: ignore[union-attr]
    assert not session.should_stop()
    session.close()


# The end of a process


def test_stop_waits_until_all_is_durable_and_leaves_the_lock(work: Path) -> None:
    session = Session(work, stop_after=0.001)
    session.restore()
    time.sleep(0.01)
    assert session.should_stop()
    put(work, 7)
    session.hide(7)
    with pytest.raises(SystemExit) as ended:
        session.stop()
    assert ended.value.code == REQUEUE
    again = Session(work)
    point = again.restore()
    assert point and point.step == 7
    again.close()
    with pytest.raises(UsageError, match=r"^should_stop after the end of the session"):
        session.should_stop()
    with pytest.raises(UsageError, match=r"^due after the end of the session"):
        session.due()


def test_in_a_with_block_stop_neither_finishes_nor_fails(work: Path) -> None:
    with pytest.raises(SystemExit), Session(work) as session:
        session.restore()
        put(work, 7)
        session.hide(7)
        session.stop()
    assert not Path(Root(str(work)).finished).exists()


def test_the_functions_of_the_module_act_on_the_last_session(work: Path) -> None:
    import safepoint as module

    session = module.init(work, stop_after="0.001 s")
    module.restore()
    time.sleep(0.01)
    assert module.due() and module.should_stop()
    with pytest.raises(SystemExit):
        module.stop()
    assert session._closed


def test_a_second_start_is_refused_while_a_stopping_run_still_has_the_lock(work: Path) -> None:
    session = Session(work, stop_after=0.001)
    time.sleep(0.01)
    assert session.should_stop()
    with pytest.raises(LockedError):
        Session(work)
    session.close()


# Programs that know nothing of this


SEGMENT = "sleep 0.4; date >> u.dat"


@UNIX
def test_run_tells_the_command_to_end_before_the_limit(work: Path) -> None:
    (work / "solver.sh").write_text(
        "trap 'echo told; exit 0' TERM\nk=0\nwhile :; do k=$((k+1)); sleep 0.1; echo $k > u.dat; done\n"
    )
    done = safepoint_run(work, "--time-limit", "4s", "--signal", "TERM@2", "sh", "solver.sh")
    assert done.returncode == REQUEUE and "told" in done.stdout
    assert re.search(r"time limit \(stop_after\): \S+ s left, 2 s needed: SIGTERM to the command", done.stderr)
    assert logged(work)[-1]["event"] in ("ended", "stopped")


@UNIX
def test_run_translates_the_signal_of_a_scheduler(work: Path) -> None:
    (work / "solver.sh").write_text("trap 'echo told; exit 0' INT\nwhile :; do sleep 0.1; echo x > u.dat; done\n")
    command = [sys.executable, "-m", "safepoint", "run", "--dir", str(work), "--signal", "INT", "sh", "solver.sh"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until(lambda: Path(Root(str(work)).record(1)).exists())
    process.send_signal(signal.SIGUSR1)
    assert "told" in process.communicate(timeout=20)[0]
    assert process.returncode == REQUEUE


@UNIX
def test_run_heeds_halt(work: Path) -> None:
    (work / "solver.sh").write_text("trap 'exit 0' TERM\nwhile :; do sleep 0.1; echo x > u.dat; done\n")
    command = [sys.executable, "-m", "safepoint", "run", "--dir", str(work), "sh", "solver.sh"]
    process = subprocess.Popen(command)
    until(lambda: Path(Root(str(work)).record(1)).exists())
    assert safepoint(work, "halt").returncode == 0
    assert process.wait(20) == HALTED
    assert not Path(Root(str(work)).halt).exists()


@UNIX
def test_no_further_segment_is_begun_that_would_not_end_in_time(work: Path) -> None:
    done = safepoint_run(work, "--until", "1000", "--time-limit", "4s", "sh", "-c", SEGMENT)
    assert done.returncode == REQUEUE and "no further segment is begun" in done.stderr
    count = len((work / "u.dat").read_text().splitlines())
    assert 3 <= count <= 9
    points = [each for each in logged(work) if each["event"] == "saved"]
    assert len(points) == count
    again = safepoint_run(work, "--until", str(count + 1), "--time-limit", "1h", "sh", "-c", SEGMENT)
    assert again.returncode == 0 and len((work / "u.dat").read_text().splitlines()) == count + 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--time-limit", "3"), "--time-limit takes a time"), (("--time-limit", "auto"), "no job scheduler"),
        (("--signal", "KILL"), "cannot be caught"), (("--signal", "TERM@x"), "a number of seconds"),
        (("--signal", "FOO"), "unknown signal FOO"),
    ],
)  # fmt: skip
def test_run_called_wrongly_changes_nothing(work: Path, options: tuple[str, ...], text: str) -> None:
    done = safepoint_run(work, *options, "true")
    assert done.returncode == 10 and text in done.stderr
    assert not (work / ".safepoint.d").exists()


def safepoint_run(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PBS_", "LSB_", "FLUX_"))}
    command = [sys.executable, "-m", "safepoint", "run", "--dir", str(work), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


# Many ranks


class Ranked:
    """Four ranks of `stopping.py`; what each says."""

    def __init__(self, work: Path, pause: float) -> None:
        (work / ".safepoint").write_text("u-{rank}.dat\n")
        self.said = [work / f"said-{rank}" for rank in range(4)]
        for path in self.said:
            path.unlink(missing_ok=True)
        command = mpiexec(4, HERE / "stopping.py", work, pause)
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in self.said))

    def pid(self, rank: int) -> int:
        return int(self.said[rank].read_text().split()[0])

    def ended(self) -> list[str]:
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == REQUEUE, errors
        return [path.read_text().split("\n")[1] for path in self.said]


@UNIX
@pytest.mark.xdist_group("mpi")
@pytest.mark.timeout(600)
def test_a_signal_to_one_of_four_ranks_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """100 rounds in the long form: at a random time, to a random rank; a set of that step is there, on all."""
    chance = random.Random(8)
    for _ in range(100 if LONG else 12):
        job = Ranked(tmp_path, chance.choice([0.0005, 0.002, 0.02]))
        try:
            time.sleep(chance.random() * 0.5)
            os.kill(job.pid(chance.randrange(4)), signal.SIGUSR1)
            said = job.ended()
        finally:
            with suppress(ProcessLookupError):
                job.process.kill()
        assert len(set(said)) == 1, said
        step = int(said[0].split()[0])
        status = json.loads(safepoint(tmp_path, "status", "--json").stdout)
        assert status["restart"]["step"] == step and status["sets"][0]["state"] == "complete"
        assert all((tmp_path / f"u-{rank}.dat").exists() is False for rank in range(4))


HANDLERS = """
import os, signal, sys, safepoint
from mpi4py import MPI
seen = []
own = lambda number, frame: seen.append(number)
signal.signal(signal.SIGUSR1, own)
sp = safepoint.init(comm=MPI.COMM_WORLD, signals=("USR1",))
sp.restore()
with open(f"u-{MPI.COMM_WORLD.rank}.dat", "w") as file:
    file.write("x")
sp.finish(1)
signal.raise_signal(signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
assert seen == [signal.SIGUSR1] * 2 and signal.getsignal(signal.SIGUSR1) is own
"""

UNSAVED = """
import sys
from mpi4py import MPI
from safepoint import SaveError, Session
from safepoint.disk import Disk
comm = MPI.COMM_WORLD
class Full(Disk):
    full = False
    def sync(self, *arguments, **options):
        if self.full:
            raise OSError(28, "No space left on device", "u")
        super().sync(*arguments, **options)
disk = Full()
sp = Session(".", comm=comm, stop_after=0.001, disk=disk)
sp.restore()
for step in range(2):
    assert sp.should_stop(), "for ever"
    with open(f"u-{comm.rank}.dat", "w") as file:
        file.write("x")
    sp.hide(step)
    disk.full = comm.rank == 1
try:
    sp.stop()
except SaveError:
    sys.exit(41)
"""


APART = """
import os
from pathlib import Path
from mpi4py import MPI
import safepoint
from safepoint.disk import Disk
from safepoint.opening import read_owner
from safepoint.stop import HALTED, halt
comm = MPI.COMM_WORLD
work = Path(f"of-{comm.rank}")
work.mkdir()
(work / ".safepoint").write_text(f"u.dat\\nevery = {2 + comm.rank} steps\\n")
sp = safepoint.init(work, comm=comm, saver=None)
sp.restore()
dues = [sp.due() for _ in range(4)]
assert dues == [False, True, True, True], "of rank 0, on all"
if comm.rank == 1:
    halt(Disk(), sp._root, [read_owner(Disk(), sp._root)], until=None, steps=None)
comm.Barrier()
for step in range(10**6):
    if sp.should_stop():
        break
assert len(set(comm.allgather(step))) == 1
try:
    sp.stop()
except SystemExit as end:
    assert end.code == HALTED and not (work / ".safepoint.d/halt.json").exists()
"""

FARM = """
import sys, time
from mpi4py import MPI
import safepoint
from safepoint.cli.halt import _at_work
from safepoint.cli.overview import look
from safepoint.disk import Disk
from safepoint.stop import HALTED, halt
comm = MPI.COMM_WORLD
sp = safepoint.init(comm=comm, coordinate=False)
sp.restore()
assert not sp.should_stop()
comm.Barrier()
if comm.rank == 0:
    halt(Disk(), sp._root, _at_work(look(Disk(), ".")), until=None, steps=None)
comm.Barrier()
if comm.rank == 1:
    time.sleep(1.5)
begin = time.monotonic()
while not sp.should_stop():
    assert time.monotonic() < begin + 10, comm.rank
    time.sleep(0.01)
sp.close()
"""

SLOW = """
import time
from mpi4py import MPI
from safepoint import Session
from safepoint.disk import Disk
comm = MPI.COMM_WORLD
class Slow(Disk):
    def sync(self, *arguments, **options):
        time.sleep(0.7 * comm.rank)
        super().sync(*arguments, **options)
sp = Session(".", comm=comm, disk=Slow())
sp.restore()
for step in range(3):
    with open(f"u-{comm.rank}.dat", "w") as file:
        file.write("x")
    assert not sp.should_stop() and not sp.should_stop()
    sp.hide(step)
sp.wait()
for _ in range(MANY := 300):
    sp.should_stop()
assert sp._when._slowest > 0.6, "what the slowest needs, on all"
sp.close()
"""

BROKEN = """
from mpi4py import MPI
import safepoint, safepoint.when
comm = MPI.COMM_WORLD
if comm.rank == 0:
    def fail(*_, **__):
        raise RuntimeError("nobody expected this")
    safepoint.when.past = fail
    import safepoint.stop as stop
    stop_module = __import__("sys").modules["safepoint.stop"]
    stop_module.halted = fail
    safepoint.disk.Disk.exists = lambda self, path, before=safepoint.disk.Disk.exists: (
        True if path.endswith("halt.json") else before(self, path))
sp = safepoint.init(comm=comm)
sp.restore()
assert sp.due() and not sp.should_stop()
sp.close()
"""


@UNIX
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize(
    ("program", "status"), [(HANDLERS, 0), (UNSAVED, 41), (APART, 0), (FARM, 0), (SLOW, 0), (BROKEN, 0)]
)
def test_on_many_ranks(tmp_path: Path, program: str, status: int) -> None:
    """HANDLERS: while ranks agree they are held, and put back as they were; those of a session that has ended let go.
    UNSAVED: `stop` raises on all ranks what hindered one, else the others would ask for a requeue. APART: each rank in
    a directory of its own; the settings of one hold, and each can be halted. FARM: ranks for themselves all heed a
    halt, those without files too. SLOW: the limit takes account of the slowest disk. BROKEN: what fails on the rank
    that decides leaves nobody waiting."""
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    done = subprocess.run(mpiexec(2, "-c", program), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr


def test_the_simulation_of_the_interval_is_within_its_goal() -> None:
    """A part of benchmarks/interval_sim.py: one ratio, both kinds of failures; the whole takes a minute."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import interval_sim
    finally:
        sys.path.remove(str(BENCHMARKS))
    for row in interval_sim.run(failures=100, sequences=2, seed=3, ratios=(100,)):
        assert row["waste of auto"] <= 1.10 * row["waste of best"]
