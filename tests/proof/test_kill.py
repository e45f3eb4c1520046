"""SIGKILL to real processes at random instants, and the starts that users know from bad experience."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from testbed import tally
from testbed.lives import Life, command, directory_for_lives, goes_on
from testbed.program import Violation
from testbed.sweep import LONG

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
            program.wait(500)
        if number == signal.SIGKILL and program.returncode not in (0, -number):
            raise Violation(f"it ended with {program.returncode}: {lines()[-20:]}")
        return Life(program.returncode, lines())


def test_killed_again_and_again_at_random_instants_it_reaches_the_end() -> None:
    """G1, G2k, G3: one run of many steps over many lives, each killed whenever; no step that `hide` took is lost."""
    rng = random.Random(2003)
    steps, kills, reached = 3000, 0, -1
    provable = Disk().page_cache(os.getcwd()).mount is not None
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
    return subprocess.run(arguments, cwd=directory, capture_output=True, text=True, timeout=500)


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
import os, signal, safepoint
safepoint.init()
assert safepoint.restore() is None
file = open("u.dat", "w")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_initial_file_overwritten_before_the_first_hide_is_an_error_that_says_so(tmp_path: Path) -> None:
    """G3: nothing could bring it back, so a start from the torn file is refused, with what to do."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("initial")
    assert run(tmp_path, OVERWRITES_ITS_INPUT).returncode == -signal.SIGKILL
    done = run(tmp_path, "import safepoint; safepoint.init(); safepoint.restore()")
    assert "OverwrittenError: u.dat was there at the first start and was changed" in done.stderr
    assert "remove .safepoint.d/rank-00000/baseline.json" in done.stderr
    assert (tmp_path / "u.dat").read_text() == ""
    (tmp_path / ".safepoint.d/rank-00000/baseline.json").unlink()
    assert run(tmp_path, "import safepoint; safepoint.init(); assert safepoint.restore() is None").returncode == 0


AT_EXIT = """
import safepoint
session = safepoint.init()
safepoint.restore()
for step in range(2):
    open("u.dat", "w").write("u" * 100000)
    safepoint.hide(step=step)
print(session._work.flight is not None)
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
