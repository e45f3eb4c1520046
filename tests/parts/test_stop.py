"""When must the program stop? Limits, schedulers, signals; and how it ends."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from testbed.stops import UNIX, logged, put

from safepoint import LockedError, Session, UsageError
from safepoint.disk import Disk
from safepoint.ledger.history import read
from safepoint.pace.limits import Limit, time_limits
from safepoint.pace.schedulers import SCHEDULERS
from safepoint.pace.signals import Signals
from safepoint.pace.stopping import REQUEUE, Stop
from safepoint.root import Root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


# When to stop: limits
def stop_of(work: Path, *bounds: Limit) -> Stop:
    return Stop(Root(str(work)), None, list(bounds), Signals(()))


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
    found = time_limits(2_000_000_000.0, "90 s", 1000.0, environment)
    ends = {limit.source: limit.end for limit in found}
    assert ends == {"stop_at": 2e9, "stop_after": 1090.0, "SAFEPOINT_STOP_AFTER": 8200.0, "LSF": math.inf}
    assert time_limits(None, None, 0.0, {}) == []


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
    (limit,) = time_limits(None, None, 0.0, environment)
    before = time.time()
    limit.ask(again=False)
    assert not limit.failed
    assert before - 1 <= limit.end - left <= time.time() + 1 if math.isfinite(left) else limit.end == left


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
    stop = stop_of(work, *time_limits(None, None, 0.0, {scheduler.job: "7"}))
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
    stop = stop_of(work, *time_limits(None, None, time.time(), environment))
    assert not stop.look(1, 1.0) and not (tmp_path / "asked").exists()
    stop._limits[0].asked -= 100
    assert not stop.look(1, 100.0) and (tmp_path / "asked").exists(), "near, but there is an hour more"
    fake(tmp_path, "squeue", "echo 0:10")
    stop._limits[0].asked -= 100
    assert stop.look(1, 3600.0).startswith("time limit (Slurm): 1")


def test_what_fails_while_looking_is_said_and_stops_nobody(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Stale(Disk):
        def stat(self, file: Any) -> os.stat_result:
            if str(file).endswith("halt.json"):
                raise OSError(116, "Stale file handle", file)
            return super().stat(file)

    session = Session(work, disk=Stale())
    session.restore()
    for _ in range(3):
        assert not session.should_stop()
        session._timing._when.stop._next = 0.0  # type: ignore[union-attr]
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
    assert signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, first._timing.caught._note)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@UNIX
def test_a_forked_child_dies_by_a_signal_that_its_parent_catches(work: Path) -> None:
    session = Session(work, signals=("TERM",))
    ends, begins = os.pipe()
    child = os.fork()
    if not child:
        os.write(begins, b"x")
        signal.pause()
        os._exit(0)
    assert os.read(ends, 1)
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
