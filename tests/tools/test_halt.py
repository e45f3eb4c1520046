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
from testbed.commands import cli
from testbed.stops import UNIX, logged
from testbed.waiting import wait_for

from safepoint import Session
from safepoint.pace.halt import halt
from safepoint.pace.stopping import HALTED, REQUEUE
from safepoint.root import Root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


RUN, SCHEDULERS = ("run", "--dir"), ("SLURM_", "PBS_", "LSB_", "FLUX_")
SEGMENT = "sleep 0.4; date >> u.dat"
LOOP = """
import os, time, safepoint
from safepoint.pace import stopping
stopping.LOOK_S = 0.02
sp = safepoint.init()
saved = sp.restore()
for step in range(saved.step if saved else 0, 10**6):
    must_stop = sp.should_stop()
    if must_stop or sp.due():
        open("u.dat", "w").write(str(step))
        sp.hide(step)
    if must_stop:
        print(step, flush=True)
        sp.stop()
    open("noticed.new", "w").write(f"{step} {sp._timing._when.stop.steps}")
    os.replace("noticed.new", "noticed")
    time.sleep(0.01)
"""


@pytest.fixture
def running(work: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", LOOP], cwd=work, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: Path(Root(str(work)).record(1)).exists() and (work / "noticed").exists())
        yield process
    finally:
        process.kill()
        process.communicate()


def noticed(work: Path, steps: int | None) -> int:
    """Wait until the run knows how many steps it has left, `steps` at most, and return its last one; None: no limit."""
    while True:
        step, left = (work / "noticed").read_text().split()
        if (left == "None") if steps is None else left != "None" and int(left) <= steps:
            return int(step) + (0 if left == "None" else int(left))
        time.sleep(0.005)


def test_halt_asks_a_live_run_to_save_and_end(work: Path, running: subprocess.Popen[str]) -> None:
    done = cli("halt", work)
    assert done.exit_code == 0 and f"asked to stop: process {running.pid}" in done.stdout
    assert running.wait(120) == HALTED
    assert not Path(Root(str(work)).halt).exists(), "it was for this run only"
    assert logged(work)[-1]["event"] == "stopped"
    assert cli("status", work).stdout.count("not running") == 1


def test_halt_after_some_steps_and_undone(work: Path, running: subprocess.Popen[str]) -> None:
    assert cli("halt", work, "--after", "1h").exit_code == 0
    assert "halt:      asked for, in 60 min" in cli("status", work).stdout
    assert cli("halt", work, "--undo").stdout == "taken back\n"
    assert "halt:" not in cli("status", work).stdout
    assert cli("halt", work, "--undo").exit_code == 20
    assert cli("halt", work, "--steps", 30).exit_code == 0
    last = noticed(work, 30)
    assert running.wait(120) == HALTED
    assert running.stdout and running.stdout.read() == f"{last}\n"


def test_a_new_request_takes_the_place_of_the_one_before(work: Path, running: subprocess.Popen[str]) -> None:
    assert cli("halt", work, "--steps", 10**6).exit_code == 0
    noticed(work, 10**6)
    assert cli("halt", work, "--after", "1h").exit_code == 0
    noticed(work, None)
    assert cli("halt", work, "--steps", 5).exit_code == 0
    assert running.wait(120) == HALTED


def test_halt_after_a_time(work: Path, running: subprocess.Popen[str]) -> None:
    begin = time.monotonic()
    assert cli("halt", work, "--after", "1 s").exit_code == 0
    assert running.wait(120) == HALTED and time.monotonic() - begin > 0.9


def test_halt_where_nobody_is_at_work_changes_nothing(work: Path) -> None:
    assert cli("halt", work).exit_code == 20
    assert not (work / ".safepoint.d").exists()
    Session(work).close()
    done = cli("halt", work)
    assert done.exit_code == 20 and "no run is at work" in done.stderr
    assert not Path(Root(str(work)).halt).exists()


def test_halt_and_run_called_wrongly_change_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(SCHEDULERS)]:
        monkeypatch.delenv(name)
    for options, text in (
        (("halt", work, "--after", "soon"), "soon"), (("halt", work, "--after", "23:59:00"), "23:59:00"),
        (("halt", work, "--after", "1h", "--steps", "3"), "--steps"),
        (("halt", work, "--undo", "--steps", "3"), "--undo"),
        ((*RUN, work, "--time-limit", "3", "true"), "--time-limit takes a time"),
        ((*RUN, work, "--time-limit", "auto", "true"), "no job scheduler"),
        ((*RUN, work, "--signal", "KILL", "true"), "cannot be caught"),
        ((*RUN, work, "--signal", "TERM@x", "true"), "a number of seconds"),
        ((*RUN, work, "--signal", "FOO", "true"), "unknown signal FOO"),
    ):  # fmt: skip
        done = cli(*options)
        assert done.exit_code == 10 and text in done.stderr, (options, done.stderr)
        assert not (work / ".safepoint.d").exists()


def test_what_was_asked_of_another_run_does_not_stop_this_one(work: Path) -> None:
    session = Session(work)
    halt(Root(str(work)), [{"host": "elsewhere", "pid": 1, "since": 2.0}], until=None, steps=None)
    session.restore()
    assert not session.should_stop()
    Path(Root(str(work)).halt).write_text("{torn")
    session._timing._when.stop._next = 0.0  # type: ignore[union-attr]
    assert not session.should_stop()
    session.close()


@UNIX
def test_run_tells_the_command_to_end_before_the_limit(work: Path) -> None:
    """Six seconds are for a busy machine, on which it takes as long until the solver has set its trap."""
    (work / "solver.sh").write_text(
        "trap 'echo told; exit 0' TERM\nk=0\nwhile :; do k=$((k+1)); sleep 0.1; echo $k > u.dat; done\n"
    )
    done = run(work, "--time-limit", "8s", "--signal", "TERM@2", "sh", "solver.sh")
    stdout, stderr = done.communicate()
    assert done.returncode == REQUEUE and "told" in stdout
    assert re.search(r"time limit \(stop_after\): \S+ s left, 2 s needed: SIGTERM to the command", stderr)
    assert logged(work)[-1]["event"] in ("ended", "stopped")


@UNIX
@pytest.mark.parametrize(("asked", "options", "trap", "status"), [
    ("SIGUSR1", ("--signal", "INT"), "INT", REQUEUE),  # of a scheduler; it is translated
    ("halt", (), "TERM", HALTED),
])  # fmt: skip
def test_run_hands_on_that_it_must_stop(
    work: Path, asked: str, options: tuple[str, ...], trap: str, status: int
) -> None:
    (work / "solver.sh").write_text(f"trap 'echo told; exit 0' {trap}\nwhile :; do sleep 0.1; echo x > u.dat; done\n")
    process = run(work, *options, "sh", "solver.sh")
    wait_for(lambda: Path(Root(str(work)).record(1)).exists())
    if asked == "halt":
        assert cli("halt", work).exit_code == 0
    else:
        process.send_signal(signal.SIGUSR1)
    assert "told" in process.communicate(timeout=120)[0]
    assert process.returncode == status
    assert not Path(Root(str(work)).halt).exists()


@UNIX
def test_no_further_segment_is_begun_that_would_not_end_in_time(work: Path) -> None:
    done = run(work, "--until", "1000", "--time-limit", "4s", "sh", "-c", SEGMENT)
    assert "no further segment is begun" in done.communicate()[1] and done.returncode == REQUEUE
    count = len((work / "u.dat").read_text().splitlines())
    assert 1 <= count <= 9  # 4 s / 0.4 s
    points = [each for each in logged(work) if each["event"] == "saved"]
    assert len(points) == count
    again = run(work, "--until", str(count + 1), "--time-limit", "1h", "sh", "-c", SEGMENT)
    again.communicate()
    assert again.returncode == 0 and len((work / "u.dat").read_text().splitlines()) == count + 1


def run(work: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
    words = [sys.executable, "-m", "safepoint", *RUN, str(work), *arguments]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
