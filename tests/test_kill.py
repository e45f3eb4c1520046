"""SIGKILL to real processes at random instants, and the starts that users know from bad experience."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import tally
from lives import LONG, Life, Violation, command, directory_for_lives, goes_on, killed_beside_a_child

from safepoint import LockedError, Session, opening
from safepoint.disk import Disk


def live_until_killed(
    directory: Path, steps: int, seconds: float, *, after: str = "", number: signal.Signals = signal.SIGKILL
) -> Life:
    """A life that ends by this signal, or by itself before: so long after it has said `after` and a step, however late
    that is."""
    with tempfile.TemporaryFile() as said:
        program = subprocess.Popen(command(steps), cwd=directory, stdout=said, stderr=subprocess.STDOUT)

        def lines() -> list[str]:  # read at a place: to seek would move the program's own
            return os.pread(said.fileno(), os.fstat(said.fileno()).st_size, 0).decode().splitlines()

        while after and program.poll() is None and not Life(None, lines()).steps(after):
            time.sleep(0.005)
        try:
            program.wait(seconds)
        except subprocess.TimeoutExpired:
            program.send_signal(number)
            program.wait(60)
        if number == signal.SIGKILL and program.returncode not in (0, -number):
            raise Violation(f"it ended with {program.returncode}: {lines()[-20:]}")
        return Life(program.returncode, lines())


def test_killed_again_and_again_at_random_instants_it_reaches_the_end() -> None:
    """G1, G2k, G3: one run of many steps over many lives, each killed whenever; no step that `hide` took is lost."""
    rng = random.Random(2003)
    steps, kills, reached = 3000, 0, -1
    provable = Disk().place(os.getcwd()).mount is not None
    with directory_for_lives() as directory:
        while kills < (200 if LONG else 15):
            life = live_until_killed(directory, steps, 0.1 + rng.random() / 3)
            restored = life.last("restored")
            if life.steps("restored") and provable and restored < reached:
                raise Violation(f"kill {kills}: hide had returned for step {reached}, restored was {restored}")
            reached = max(reached, life.last("hid"), restored)
            if life.last("finished") >= 0:
                break
            kills += 1
        goes_on(directory, life, steps)
    tally.count("kills at random instants", "one process", kills)
    assert kills > 5


PYTORCH_LIKE = """
import os, signal, safepoint
safepoint.init()
saved = safepoint.restore()
if saved is None and os.path.exists("model.pt"):
    raise SystemExit("found a model although this is a first start: " + open("model.pt").read())
file = open("model.pt", "w")
file.write("torn")
file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(arguments, cwd=directory, capture_output=True, text=True, timeout=60)


def test_killed_while_writing_its_very_first_files_it_starts_afresh(tmp_path: Path) -> None:
    """G3: the torn first file is in `discarded/`, and the program does not find it, however often this happens."""
    (tmp_path / ".safepoint").write_text("model.pt\n")
    for _ in range(3):
        done = run(tmp_path, PYTORCH_LIKE)
        assert done.returncode == -signal.SIGKILL, done.stderr
    run(tmp_path, "import safepoint; safepoint.init(); assert safepoint.restore() is None")
    assert not (tmp_path / "model.pt").exists()
    assert (tmp_path / ".safepoint.d/rank-00000/discarded/model.pt").read_text() == "torn"


OVERWRITES_ITS_INPUT = """
import os, signal, sys, safepoint
safepoint.init()
assert safepoint.restore() is None
file = open("u.dat", "w" if "overwrite" in sys.argv else "r")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_before_the_first_hide_it_starts_again_from_its_initial_files(tmp_path: Path) -> None:
    """G3: what was there at the first start and is unchanged stays."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("initial")
    for _ in range(3):
        assert run(tmp_path, OVERWRITES_ITS_INPUT).returncode == -signal.SIGKILL
        assert (tmp_path / "u.dat").read_text() == "initial"


def test_an_initial_file_overwritten_before_the_first_hide_is_an_error_that_says_so(tmp_path: Path) -> None:
    """G3: nothing could bring it back, so a start from the torn file is refused, with what to do."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("initial")
    code = OVERWRITES_ITS_INPUT.replace('"overwrite" in sys.argv', "True")
    assert run(tmp_path, code).returncode == -signal.SIGKILL
    done = run(tmp_path, "import safepoint; safepoint.init(); safepoint.restore()")
    assert "OverwrittenError: u.dat was there at the first start and was changed" in done.stderr
    assert "remove .safepoint.d/rank-00000/baseline.json" in done.stderr
    assert (tmp_path / "u.dat").read_text() == ""
    (tmp_path / ".safepoint.d/rank-00000/baseline.json").unlink()
    assert run(tmp_path, "import safepoint; safepoint.init(); assert safepoint.restore() is None").returncode == 0


HOLDER = "import safepoint, time; safepoint.init(); print('held', flush=True); time.sleep(60)"


def test_a_second_run_is_refused_and_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """G8: the error says who holds the directory; after SIGKILL of the holder nothing is left to clean up."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        done = run(tmp_path, "import safepoint; safepoint.init()")
        assert f"LockedError: {tmp_path.resolve()} is in use by another run: process {holder.pid} on" in done.stderr
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    finally:
        holder.kill()
        holder.communicate()
    assert run(tmp_path, "import safepoint; safepoint.init()").returncode == 0


BEGINS = "import safepoint; safepoint.init(); print('began')"
FOR_EVER = 3600.0  # seconds: a test that waited so long would be ended
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")


def begins(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGINS], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def first_line(said: Any) -> str:
    return str(said.readline())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    return tmp_path


def owner(directory: Path) -> Path:
    return directory / ".safepoint.d/rank-00000/owner.json"


def refused(directory: Path) -> str:
    with pytest.raises(LockedError) as caught:
        Session(directory)
    return str(caught.value)


@needs_proc
def test_a_restart_right_after_a_kill_waits_for_a_child_that_still_holds_the_lock(directory: Path) -> None:
    """G8 is kept, and nobody has to start again: the child of a killed run is dying too, only later."""
    with killed_beside_a_child(directory) as (dead, end), begins(directory) as restart:
        said = first_line(restart.stderr)
        assert f"waiting up to 10 s for process {dead} on" in said and "which is gone" in said, said
        end()
        assert restart.communicate(timeout=60) == ("began\n", "")


@needs_proc
def test_a_child_that_does_not_end_is_named_when_a_restart_gives_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "PATIENCE", 0.3)
    with killed_beside_a_child(directory) as (dead, _):
        before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
        text = refused(directory)
        assert f"process {dead} on" in text and "which is gone, but what it had started is not: descriptor" in text
        assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_lives_is_met_at_once(directory: Path, stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """G8. Also one that stands still: who stopped it may let it go on."""
    monkeypatch.setattr(opening, "PATIENCE", FOR_EVER)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=directory, stdout=subprocess.PIPE, text=True)
    try:
        assert first_line(holder.stdout) == "held\n"
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        assert f"in use by another run: process {holder.pid} on" in refused(directory)
    finally:
        holder.kill()
        holder.communicate()


@needs_proc
@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"kernel": "of another boot, or in another container"}])
def test_a_holder_of_which_nothing_can_be_known_here_is_met_at_once(
    directory: Path, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of a process that lives there, and of none here."""
    monkeypatch.setattr(opening, "PATIENCE", FOR_EVER)
    with killed_beside_a_child(directory) as (dead, _):
        owner(directory).write_text(json.dumps({**json.loads(owner(directory).read_text()), **change}))
        text = refused(directory)
        assert f"process {dead} on" in text and "gone" not in text


@needs_proc
def test_a_process_that_got_the_number_of_the_dead_one_is_not_taken_for_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killed_beside_a_child(directory), subprocess.Popen(["sleep", "600"]) as another:
        try:
            said = {**json.loads(owner(directory).read_text()), "pid": another.pid}
            owner(directory).write_text(json.dumps(said))
            monkeypatch.setattr(opening, "PATIENCE", 0.3)
            assert f"process {another.pid} on" in (text := refused(directory)) and "which is gone" in text
            monkeypatch.setattr(opening, "PATIENCE", FOR_EVER)
            # As written by a version that did not note when its process began: it may be that one.
            owner(directory).write_text(json.dumps({k: said[k] for k in ("host", "pid", "since", "command")}))
            assert f"process {another.pid} on" in (text := refused(directory)) and "gone" not in text
        finally:
            another.kill()


@needs_proc
def test_ctrl_c_ends_the_waiting_for_a_child_and_changes_nothing(directory: Path) -> None:
    with killed_beside_a_child(directory) as (_, end):
        before = owner(directory).read_bytes()
        with begins(directory) as restart:
            assert "waiting up to" in first_line(restart.stderr)
            restart.send_signal(signal.SIGINT)
            _, said = restart.communicate(timeout=60)
        assert restart.returncode == -signal.SIGINT and "KeyboardInterrupt" in said and "LockedError" not in said
        assert owner(directory).read_bytes() == before
        end()
        with begins(directory) as restart:
            assert restart.communicate(timeout=60)[0] == "began\n"


SLOW = """
import safepoint
from safepoint.disk import Disk

class Slow(Disk):
    def lock(self, path):
        release = super().lock(path)
        print("locked", flush=True)
        input()
        return release

session = safepoint.Session(disk=Slow())
print("said", flush=True)
input()
"""


@needs_proc
@pytest.mark.parametrize("before", ["was killed", "has ended, and its process lives", "there was none"])
def test_between_lock_and_name_nobody_is_told_of_the_run_before(
    directory: Path, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G8: who holds the directory, not who did; a start that comes in this moment waits until that is said."""
    if before == "was killed":
        with killed_beside_a_child(directory) as (_, end):
            end()
    elif before != "there was none":
        Session(directory).close()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        try:
            assert first_line(holder.stdout) == "locked\n"
            with begins(directory) as second:
                assert "waiting up to 10 s for" in first_line(second.stderr)
                holder.stdin.write("\n")
                holder.stdin.flush()
                assert first_line(holder.stdout) == "said\n"
                assert f"in use by another run: process {holder.pid} on" in second.communicate(timeout=60)[1]
        finally:
            holder.kill()


def test_a_run_that_has_ended_leaves_no_name(directory: Path) -> None:
    """Only one that was killed does, and one that could not even begin does not."""
    with Session(directory) as session:
        assert json.loads(owner(directory).read_text())["pid"] == os.getpid()
        session.restore()
        session.close()
    assert not owner(directory).exists()


AT_EXIT = """
import safepoint
session = safepoint.init()
safepoint.restore()
for step in range(2):
    open("u.dat", "w").write("u" * 100000)
    safepoint.hide(step=step)
print(session._flight is not None)
"""


def test_at_interpreter_exit_the_set_in_flight_is_finished(tmp_path: Path) -> None:
    """G2: a program that ends without `finish` or `wait` has dropped nothing."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    done = run(tmp_path, AT_EXIT)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert (tmp_path / ".safepoint.d/rank-00000/set-00000002/record.json").exists()


FAILS_AT_EXIT = """
import errno, os, safepoint
from safepoint.disk import Disk, SyncFailed

class Failing(Disk):
    def sync_files(self, paths, opened=()):
        paths = list(paths)
        if "set-00000002" in paths[0]:
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO), paths[0])
        super().sync_files(paths)

session = safepoint.Session(disk=Failing())
session.restore()
for step in range(2):
    open("u.dat", "w").write("u" * 100000)
    session.hide(step=step)
"""


def test_a_failure_that_nobody_asked_for_is_reported_at_exit(tmp_path: Path) -> None:
    """G7: the background save of the last set fails, and the program ends without another call."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    done = run(tmp_path, FAILS_AT_EXIT)
    assert "set 2 (step 1) not stored: u.dat: Input/output error; set 1 (step 0) is intact" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_end_the_program_cost_nothing(number: signal.Signals) -> None:
    """G2k: SIGTERM as from a scheduler, SIGINT as from the keyboard."""
    with directory_for_lives() as directory:
        for _ in range(3):
            life = live_until_killed(directory, 100000, 0.2, after="hid", number=number)
            assert life.last("hid") >= 0 and life.status != 0
            done = live_until_killed(directory, 100000, 0.0, after="restored")
            assert done.last("restored") >= life.last("hid")
