"""`safepoint top`, did-you-mean, and the completion of set numbers."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from testbed.commands import answer, cli
from testbed.disks import Failing, Gated
from testbed.sessions import Start, write

import safepoint
from safepoint import SaveError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty directory, not that of the commands."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


SOURCE = Path(safepoint.__file__).parents[1]


def hidden(session: Any, work: Path, *steps: int, **how: Any) -> None:
    for step in steps:
        write(work, u_dat=str(step))
        session.hide(step, **how)


def test_what_would_be_lost_now_is_told_for_a_kill_and_for_a_power_cut(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=(disk := Gated()))
    hidden(session, work, 0, 1, wait=True)
    disk.gate.clear()
    hidden(session, work, 2)
    try:
        said, text = answer("top", work), cli("top", work, "--once").stdout
    finally:
        disk.gate.set()
    assert (said["running"], said["kill_safe"]["step"], said["durable"]["step"]) == (True, 2, 1)
    assert re.search(r"lost if it is killed now: +\d+ s of work, since set 3 \(step 2\)", text)
    assert re.search(r"lost if the power goes now: +\d+ s of work, since set 2 \(step 1\)", text)
    assert re.search(r"disk: +\d+ B in 3 sets, .* free", text)
    assert re.search(r"blocked by hide: +\d+\.\d\d% of the time, the last one ", text)
    assert re.search(r"^ *3 +2 .*being saved", text, re.M)
    assert 0 < said["interval"] < 60 and 0 <= said["blocked"] < 1


def test_json_has_no_number_that_is_none(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    hidden(session, work, 0, wait=True, extra={"loss": float("nan"), "of": [float("inf"), 1.5]})
    assert "NaN" not in cli("status", work, "--json").stdout and "Infinity" not in cli("show", work, "--json").stdout
    assert answer("show", work)["extra"] == {"loss": None, "of": [None, 1.5]}


def test_a_failure_is_told_until_the_next_life(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=(disk := Failing()))
    hidden(session, work, 0, wait=True)
    disk.of = lambda path: "files/u.dat" in path
    with pytest.raises(SaveError):
        hidden(session, work, 1, wait=True)
    text = cli("top", work, "--once").stdout
    assert "1 stored, 1 failed" in text and re.search(r"last failure: +set 2 \(step 1\) not stored: u\.dat", text)
    session.close()
    session = start()
    hidden(session, work, 2, wait=True)
    assert "failed" not in cli("top", work, "--once").stdout and answer("top", work)["failed"] == 0


def test_without_a_set_it_ends_as_status_does_and_of_a_finished_run_nothing_is_lost(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    assert cli("top", work, "--once").exit_code == cli("status", work).exit_code != 0
    hidden(session, work, 0, wait=True)
    session.finish()
    text = cli("top", work, "--once")
    assert text.exit_code == 0 and "lost" not in text.stdout and "they are the result" in text.stdout


def test_of_a_run_that_is_not_at_work_nothing_is_lost_now(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    hidden(session, work, 0, wait=True)
    assert "lost if it is killed now" in cli("top", work, "--once").stdout
    session.close()
    text = cli("top", work, "--once").stdout
    assert "not running" in text and "lost" not in text


def screen(arguments: list[str], keys: str, seconds: float = 280, *, hang_up: bool = False) -> tuple[int, str]:
    """What a terminal of 80 columns shows, until the command ends by these keys."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "safepoint", *arguments],
        stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        preexec_fn=None if hang_up else lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
    )  # fmt: skip
    os.close(slave)
    shown, end, typed = b"", time.monotonic() + seconds, False
    while time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:  # it has closed its side
                break
        elif process.poll() is not None:
            break
        if hang_up and b"q ends it" in shown:
            break
        if not typed and shown.count(b"q ends it") >= 2:
            os.write(master, keys.encode())
            typed = True
    if hang_up:
        os.close(master)
    try:
        status = process.wait(280)
    finally:
        process.kill()
    if not hang_up:
        os.close(master)
    return status, shown.decode(errors="replace")


@pytest.mark.parametrize(("key", "status"), [("q", 0), ("\x03", 130)])
def test_in_a_terminal_it_is_drawn_anew_until_a_key(start: Start, work: Path, key: str, status: int) -> None:
    session = start("u.dat\n")
    hidden(session, work, 4, wait=True, extra={"loss": 0.25, "name": "\x1b[31mred"})
    ended, shown = screen(["top", str(work), "--interval", "0.1"], key)
    assert ended == status or (key == "\x03" and ended in (-2, 130))
    frames = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame) for frame in shown.split("\x1b[H")]
    plain = "".join(frames)
    assert plain.count("safepoint top") >= 2 and "lost if it is killed now" in plain and "loss 0.25" in plain
    assert "\x1b[31m" not in shown  # what a program gave along is shown, not obeyed
    assert max(len(line) for frame in frames for line in frame.replace("\r", "").split("\n")) <= 80


def test_when_its_terminal_is_gone_it_ends(start: Start, work: Path) -> None:
    """It must not look for keys there for ever, with all of a processor."""
    session = start("u.dat\n")
    hidden(session, work, 4, wait=True)
    status, _ = screen(["top", str(work), "--interval", "0.1"], "", hang_up=True)
    assert status in (0, 1, -1, 17)


@pytest.mark.parametrize(
    ("typed", "meant"), [("statsu", "status"), ("veryfy", "verify"), ("restor", "restore"), ("crashtest", "crash-test")]
)
def test_a_command_that_is_none_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    said = cli(typed)
    assert said.exit_code == 2 and f"No such command '{typed}'. Did you mean {meant}" in said.stderr
    assert "Did you mean" not in cli("xyzzy").stderr


@pytest.mark.parametrize(
    "words", ["safepoint show ", "safepoint drop ", "safepoint restore --set ", "safepoint verify --set "]
)
def test_a_shell_completes_the_numbers_of_sets(start: Start, work: Path, words: str) -> None:
    session = start("u.dat\nkeep = 12\n")
    hidden(session, work, *range(12), wait=True)
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "_SAFEPOINT_COMPLETE": "bash_complete", "COMP_WORDS": f"{words}1",
        "COMP_CWORD": str(len(words.split())),
    }  # fmt: skip
    code = "from safepoint.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,12", "plain,11", "plain,10", "plain,1"], done
