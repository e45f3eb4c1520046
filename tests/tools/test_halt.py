"""`safepoint halt`, and the limits and signals that `safepoint run` hands on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.stops import UNIX, logged, safepoint, until

from safepoint import Session
from safepoint.pace.halt import halt
from safepoint.pace.stopping import HALTED, REQUEUE
from safepoint.root import Root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


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
    halt(Root(str(work)), [{"host": "elsewhere", "pid": 1, "since": 2.0}], until=None, steps=None)
    session.restore()
    assert not session.should_stop()
    Path(Root(str(work)).halt).write_text("{torn")
    session._timing._when.stop._next = 0.0  # type: ignore[union-attr]
    assert not session.should_stop()
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
