"""The drain that a run starts beside itself: `remote` in the manifest, and nothing else."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.commands import answer, cli
from testbed.jobs import mpiexec
from testbed.places import flip
from testbed.sweep import some_of
from testbed.waiting import wait_for

import safepoint
from safepoint import SaveError, Session, UsageError
from safepoint.root import Root
from safepoint.spawned import isolated
from safepoint.tiers import beside, note, troubles
from safepoint.tiers.url import place_of

FAST = """
import os, safepoint.cli.act.follow as f, safepoint.cli.act.drain as d
f.PAUSE = f.LONGEST_PAUSE = d.HELD_PAUSE = 0.1
d.HELD_LONG = 2
turn = f.Follower._turn
def counted(self, **how):
    try:
        return turn(self, **how)
    finally:
        with open(os.environ["TURNS"], "a") as file:
            file.write(".")
f.Follower._turn = counted
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNS", str(tmp_path / "turns"))
    monkeypatch.setattr(beside, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(beside, "BEGIN", beside.BEGIN.replace("\nmain()\n", f"\n{FAST}main()\n"))


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "w").mkdir()
    listed(tmp_path / "w")
    yield tmp_path / "w"
    wait_for(lambda: not drains(tmp_path))  # each ends by itself


def turned() -> None:
    """Return when the drain has looked twice for what there is to do: once after this call at least."""
    turns = Path(os.environ["TURNS"])
    before = turns.stat().st_size if turns.exists() else 0
    wait_for(lambda: turns.exists() and turns.stat().st_size >= before + 2)


def listed(work: Path, *more: str) -> None:
    (work / ".safepoint").write_text("\n".join(["u.dat", "remote = ../place", *more, ""]))


def drains(below: Path) -> list[int]:
    """The drains beside a run that are at work in these directories."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
                state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
                if b"--beside" in words and any(str(below).encode() in word for word in words) and state != "Z":
                    found.append(int(name))
    return found


def forget(work: Path) -> None:
    """Remove what was saved, by hand: a drain that is ending still would write its note there once more."""
    wait_for(lambda: not drains(work))
    shutil.rmtree(work / ".safepoint.d")


def at_place(tmp_path: Path) -> list[int]:
    done = cli("fetch", tmp_path / "place", "--list", "--json")
    return (
        [each["number"] for each in answer("fetch", tmp_path / "place", "--list")["sets"]] if not done.exit_code else []
    )


def save(session: Session, work: Path, step: int, **how: object) -> None:
    (work / "u.dat").write_text(f"{step} " * 1000)
    session.hide(step, **how)  # type: ignore[arg-type]


def pipes() -> list[str]:
    """Those that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [each for each in found if each.startswith("pipe:")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


PROGRAM = """
import sys, time, pathlib, safepoint
work = pathlib.Path(sys.argv[1])
with safepoint.Session(work) as s:
    p = s.restore()
    for k in range(p.step + 1 if p else 1, 10000):
        (work / "u.dat").write_text(f"{k} " * 1000)
        s.hide(k); time.sleep(float(sys.argv[2]))
"""


def test_the_newest_set_of_a_run_that_is_killed_goes_to_its_place(work: Path, tmp_path: Path) -> None:
    """Nobody has started a drain by hand; and the one of the run outlives it."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, work, "0.05"])
    wait_for(lambda: (tmp_path / "place").is_dir() and at_place(tmp_path))
    (drain,) = drains(work)
    assert os.getsid(drain) not in (os.getsid(0), os.getsid(program.pid))
    program.kill()
    program.wait()
    wait_for(lambda: not drains(work))
    complete = [each["number"] for each in answer("status", work)["sets"] if each["state"] == "complete"]
    assert at_place(tmp_path) == [max(complete)]
    assert (work / ".safepoint.d/drain.log").read_text() == ""


def test_wait_returns_when_the_newest_set_is_there(work: Path, tmp_path: Path) -> None:
    with Session(work) as session:
        assert session.safe == {"local": None, "remote": None}
        save(session, work, 1)
        session.wait("remote")
        assert at_place(tmp_path) == [1] and session.safe == {"local": 1, "remote": 1}
        save(session, work, 2)
        session.wait()
        assert session.safe["local"] == 2
        save(session, work, 3, wait="remote")
        assert at_place(tmp_path) == [3] and session.safe == {"local": 3, "remote": 3}
        session.wait("remote")  # of a set that is there
        session.close()
    with Session(work) as session:
        point = session.restore()
        assert point and point.step == 3
        session.wait("remote")
        assert session.safe == {"local": 3, "remote": 3}
        session.close()


def test_a_wait_asks_the_place_and_not_the_note(work: Path, tmp_path: Path) -> None:
    """What was there may have been removed since."""
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        for path in (tmp_path / "place").glob("set-*"):
            shutil.rmtree(path)
        session.wait("remote")
        assert at_place(tmp_path) == [1]
        session.close()


def test_a_run_whose_manifest_names_no_place_refuses_to_wait_for_one(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\n")
    with Session(work) as session:
        (work / "u.dat").write_text("1")
        with pytest.raises(UsageError, match="no setting remote, or drain = off"):
            session.hide(1, wait="remote")
        assert (work / "u.dat").exists()
        with pytest.raises(UsageError, match="'local', 'partner' or 'remote', not 'there'"):
            session.hide(1, wait="there")
        session.hide(1, wait="local")
        with pytest.raises(UsageError, match="no setting remote, or drain = off"):
            session.wait("remote")
        assert session.safe == {"local": 1, "remote": None}
        session.close()
    assert not (work / ".safepoint.d/drain.log").exists() and "safepoint.tiers.beside" in sys.modules


def test_off_starts_none_and_nobody_can_wait_for_it(work: Path) -> None:
    listed(work, "drain = off")
    with Session(work) as session:
        save(session, work, 1)
        with pytest.raises(UsageError, match="or drain = off"):
            session.wait("remote")
        session.finish(1)
    assert not drains(work) and not (work / ".safepoint.d/drain.log").exists()


def test_a_timeout_is_a_number_of_seconds(work: Path) -> None:
    timeouts: list[Any] = [float("nan"), -1, "90s", float("inf")]
    with Session(work) as session:
        save(session, work, 1)
        for timeout in timeouts:
            with pytest.raises(UsageError, match="timeout must be a number of seconds"):
                session.wait("remote", timeout=timeout)
        session.close()


def test_a_place_that_goes_away_is_no_place_where_the_set_is(work: Path, tmp_path: Path) -> None:
    """Though it was there, and the note says so."""
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        (tmp_path / "place").rename(tmp_path / "away")
        with pytest.raises(SaveError, match=r"set 1 \(step 1\) is not at .*place"):
            session.wait("remote")
        (tmp_path / "away").rename(tmp_path / "place")
        session.wait("remote", timeout=300)
        session.close()


def test_a_program_that_goes_back_has_nothing_newer_there(work: Path, tmp_path: Path) -> None:
    """Else whoever fetches it is at a step from which it went back."""
    listed(work, "keep = 5", "remote_keep = 5")
    with Session(work) as session:
        for step in (1, 2, 3):
            save(session, work, step, wait="remote")
        session.restore(step=1)
        safe = session.safe  # at the place there is nothing of this history yet, or it was quick
        assert safe == {"local": 1, "remote": None} or (safe == {"local": 1, "remote": 1} and at_place(tmp_path) == [1])
        session.wait("remote")
        assert at_place(tmp_path) == [1] and session.safe == {"local": 1, "remote": 1}
        save(session, work, 2, wait="remote")
        assert at_place(tmp_path)[-1] == 1 and len(at_place(tmp_path)) == 2
        session.restore(step=1)
        wait_for(lambda: at_place(tmp_path) == [1])  # nobody needs to wait for it
        session.close()


def test_a_set_that_was_fetched_is_there_and_the_newest(work: Path, tmp_path: Path) -> None:
    """An older one that was fetched, and gone on from, is put again: what was newer there is not of this run."""
    listed(work, "keep = 5", "remote_keep = 5")
    with Session(work) as session:
        for step in (1, 2):
            save(session, work, step, wait="remote")
        session.close()
    for number, name in ((2, "b"), (1, "c")):
        assert cli("fetch", tmp_path / "place", tmp_path / name, "--set", number).exit_code == 0
        with Session(tmp_path / name) as session:
            session.restore()
            session.wait("remote")
            assert session.safe == {"local": number, "remote": number} and at_place(tmp_path)[0] == number
            session.close()
        wait_for(lambda: not drains(tmp_path))


@pytest.mark.parametrize(("setting", "there"), [("3 sets", [1, 4, 7]), ("newest", [1, 2, 3, 4, 5, 6, 7])])
def test_every_so_many_sets(setting: str, there: list[int], work: Path, tmp_path: Path) -> None:
    listed(work, f"drain = {setting}", "remote_keep = 9")
    with Session(work) as session:
        for step in range(1, 8):
            save(session, work, step, wait=True)
            if step in there:
                wait_for(lambda step=step: step in at_place(tmp_path))  # type: ignore[misc]
            else:
                turned()
        assert sorted(at_place(tmp_path)) == there
        save(session, work, 8)
        session.close()
    wait_for(lambda: not drains(work))
    assert max(at_place(tmp_path)) == 8  # the last one goes whatever the setting


def test_after_so_much_time(work: Path, tmp_path: Path) -> None:
    listed(work, "drain = 1h")
    with Session(work) as session:
        save(session, work, 1)
        wait_for(lambda: at_place(tmp_path) == [1])
        save(session, work, 2, wait=True)
        turned()
        assert at_place(tmp_path) == [1]
        session.wait("remote")
        assert at_place(tmp_path) == [2]
        session.close()


def test_a_place_that_is_away_is_a_warning_once_and_the_run_goes_on(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "place").write_text("")  # as a mount point that is none now
    with Session(work) as session:
        save(session, work, 1)
        with pytest.raises(SaveError, match=r"is not at .*place: .*cannot use this directory.*it is durable here"):
            session.wait("remote")
        begin = time.monotonic()
        with pytest.raises(SaveError, match="cannot use this directory"):
            session.wait("remote", timeout=0.5)
        assert time.monotonic() - begin >= 0.5
        for step in range(2, 6):
            save(session, work, step)
            turned()
        assert len([each for each in warnings(caplog) if "cannot use this directory" in each]) == 1, warnings(caplog)
        assert "cannot use this directory" in cli("status", work).output
        assert "cannot use this directory" in answer("status", work)["remote"][0]["trouble"]
        (tmp_path / "place").unlink()
        wait_for(lambda: session.safe["remote"] == 5)  # it is caught up with, and nobody has asked
        assert at_place(tmp_path) == [5]
        assert [each for each in warnings(caplog) if "again" in each and "tried" not in each], warnings(caplog)
        assert "cannot use" not in cli("status", work).output
        session.close()


@pytest.mark.parametrize("again", [True, False])
def test_the_result_goes_there_before_the_run_is_finished(
    again: bool, work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it was written after the last set, or is that."""
    with Session(work) as session:
        save(session, work, 1)
        if again:
            (work / "u.dat").write_text("the result")
        session.finish(1 + again)
    assert warnings(caplog) == []
    assert (work / "u.dat").read_text() == ("the result" if again else "1 " * 1000)
    assert at_place(tmp_path) == [1 + again]
    assert cli("fetch", tmp_path / "place", tmp_path / "b").exit_code == 0
    with Session(tmp_path / "b") as session:
        point = session.restore()
        assert point and point.step == 1 + again
        assert (tmp_path / "b/u.dat").read_bytes() == (work / "u.dat").read_bytes()
        session.close()
    with Session(work) as session:
        point = session.restore()
        assert point and point.finished
        session.close()
    assert not drains(tmp_path / "b")[1:]


def test_a_result_that_cannot_go_there_does_not_hinder_the_end(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "place").write_text("")
    with Session(work) as session:
        save(session, work, 1)
        (work / "u.dat").write_text("the result")
        session.finish(2)
    assert (work / "u.dat").read_text() == "the result"
    assert "alone: set 2 (step 2) is not at" in warnings(caplog)[-1] and "cannot use" in warnings(caplog)[-1]
    caplog.clear()
    (tmp_path / "place").unlink()
    forget(work)
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        (work / "u.dat").write_text("the result")
        session.finish()
    assert "alone: it has no step" in warnings(caplog)[-1] and at_place(tmp_path) == [1]
    caplog.clear()
    forget(work)
    shutil.rmtree(tmp_path / "place")
    with Session(work) as session:
        save(session, work, 1)
        session.finish()  # the last set is the result, and has a step
    assert warnings(caplog) == [] and at_place(tmp_path) == [1]


def test_a_request_that_nobody_waits_for_any_more_removes_nothing(work: Path, tmp_path: Path) -> None:
    """Not even if the program is killed then: what the drain puts last is the newest set, and stays."""
    listed(work, "remote_keep = 3")
    code = (
        "import os, sys, pathlib, safepoint\nwork = pathlib.Path(sys.argv[1])\ns = safepoint.init(work)\n"
        "def save(n): (work / 'u.dat').write_text(str(n) * 1000); s.hide(n, wait=True)\n"
        "save(1)\ntry: s.wait('remote', timeout=0.1)\nexcept safepoint.SaveError: pass\n"
        "save(2)\nos.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, work], timeout=500)
    wait_for(lambda: not drains(work))
    assert at_place(tmp_path)[0] == 2


@pytest.mark.leaves_damage
def test_what_is_newer_there_stays_unless_the_program_went_back(work: Path, tmp_path: Path) -> None:
    """A set that is damaged here is whole there: nobody is told that an older one is the newest."""
    with Session(work) as session:
        for step in (1, 2):
            save(session, work, step, wait="remote")
        session.close()
    wait_for(lambda: not drains(work))
    flip(Path(Root(str(work)).set(2), "files/u.dat"), 100)
    with Session(work) as session:
        point = session.restore()
        assert point and point.step == 1
        with pytest.raises(SaveError, match=r"set 2 is there, and newer than what was restored here: fetch it"):
            session.wait("remote")
        assert at_place(tmp_path)[0] == 2
        session.restore(set=1)
        session.wait("remote")
        assert at_place(tmp_path) == [1] and session.safe["remote"] == 1
        session.close()


def test_a_forked_child_hears_nothing_that_is_for_the_program(work: Path) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        if not (child := os.fork()):
            while True:
                _ = session.safe
                time.sleep(0.001)
        try:
            for step in range(2, 5):
                save(session, work, step)
                session.wait("remote", timeout=300)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        session.close()


def test_an_answer_that_is_lost_is_asked_for_again(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "ONCE_MORE", 0.5)
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        lost: list[str] = []
        hear = beside.Beside._hear

        def deaf(self: beside.Beside, word: str, text: str) -> None:
            if word == "answer" and len(lost) < 2:
                lost.append(text)
            else:
                hear(self, word, text)

        monkeypatch.setattr(beside.Beside, "_hear", deaf)
        session.wait("remote")
        assert len(lost) == 2
        session.close()


def test_a_drain_that_says_nothing_is_told_and_waited_for_so_long(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed(work, "stall_timeout = 1s")
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        (drain,) = drains(work)
        os.kill(drain, signal.SIGSTOP)
        save(session, work, 2)
        monkeypatch.setattr(troubles, "SILENT", 0.1)
        with pytest.raises(SaveError, match=r"the drain has said nothing; given up after 1 s.*stall_timeout"):
            session.wait("remote")
        told = [each.getMessage() for each in caplog.records if "was it stopped" in each.getMessage()]
        assert len(told) == 1 and f"the drain to {tmp_path / 'place'} has said nothing" in told[0]
        session.finish(3)
        os.kill(drain, signal.SIGKILL)


def test_a_program_that_nobody_may_change(work: Path, tmp_path: Path) -> None:
    """`safepoint run`: its sets and its result go there; what is started beside it is none of its processes."""
    listed(work, "every = 1s")
    code = "import time\nfor k in range(6): open('u.dat', 'w').write(str(k) * 1000); time.sleep(0.5)\n"
    command = [sys.executable, "-m", "safepoint", "run", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and "left behind" not in done.stderr and "alone" not in done.stderr, done
    assert (work / "u.dat").read_text() == "5" * 1000
    assert cli("fetch", tmp_path / "place", tmp_path / "b").exit_code == 0
    assert cli("restore", tmp_path / "b", "--yes").exit_code == 0
    assert (tmp_path / "b/u.dat").read_text() == "5" * 1000


def test_who_was_taken_over_is_told(work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        assert cli("fetch", tmp_path / "place", tmp_path / "b").exit_code == 0
        assert (tmp_path / "b/.safepoint").read_text() == (work / ".safepoint").read_text()
        with Session(tmp_path / "b") as other:
            other.restore()
            save(other, tmp_path / "b", 2, wait="remote")
            other.close()
        save(session, work, 2)
        with pytest.raises(SaveError, match=r"set 2 \(step 2\) is not at .*another run has taken over.*durable here"):
            session.wait("remote")
        save(session, work, 3)
        assert "another run has taken over" in "\n".join(warnings(caplog))
        wait_for(lambda: session.safe == {"local": 3, "remote": None})
        session.close()
    assert at_place(tmp_path) == [2]


def test_a_drain_that_is_killed_is_begun_anew(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beside, "ANEW", 0.0)
    before = len(pipes())
    with Session(work) as session:
        for step in range(1, 5):
            save(session, work, step, wait="remote")
            (drain,) = drains(work)
            os.kill(drain, signal.SIGKILL)
            wait_for(lambda drain=drain: drain not in drains(work))  # type: ignore[misc]
        assert len(pipes()) <= before + 2
        session.close()
    assert at_place(tmp_path) == [4] and "another one begins" in warnings(caplog)[0]


def test_signals_of_a_terminal_and_of_a_scheduler_do_not_end_it(work: Path, tmp_path: Path) -> None:
    """A job is told to end as a whole, and its program saves once more."""
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        (drain,) = drains(work)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(drain, number)
        turned()
        save(session, work, 2)
        session.close()
    wait_for(lambda: not drains(work))
    assert at_place(tmp_path) == [2]


def test_it_tries_again_after_the_end_of_the_run(work: Path, tmp_path: Path) -> None:
    """A session that is about to end is not the next run, which would have a drain of its own."""
    (tmp_path / "place").write_text("")
    with Session(work) as session:
        save(session, work, 1)
        wait_for(lambda: "cannot use" in str(note.read_notes(Root(str(work)))))
        session.close()
    turned()
    assert len(drains(work)) == 1
    (tmp_path / "place").unlink()
    wait_for(lambda: not drains(work))
    assert at_place(tmp_path) == [1]


def test_told_to_end_it_tries_nothing_again_after_the_end_of_the_run(work: Path, tmp_path: Path) -> None:
    (tmp_path / "place").write_text("")
    with Session(work) as session:
        save(session, work, 1)
        wait_for(lambda: "cannot use" in str(note.read_notes(Root(str(work)))))
        (drain,) = drains(work)
        os.kill(drain, signal.SIGTERM)
        session.close()
    wait_for(lambda: not drains(work))
    assert "cannot use this directory" in (work / ".safepoint.d/drain.log").read_text()


def test_it_has_no_descriptor_of_the_program(work: Path, tmp_path: Path) -> None:
    """A lock, or a launcher's socket, that it held would outlive the program."""
    with Session(work) as session, open(tmp_path / "open", "w") as file:
        os.set_inheritable(file.fileno(), True)
        save(session, work, 1, wait="remote")
        (drain,) = drains(work)
        there = {os.readlink(f"/proc/{drain}/fd/{name}") for name in os.listdir(f"/proc/{drain}/fd")}
        assert {path for path in there if "/rank-" in path or path.endswith("/open")} == set()
        assert os.getpriority(os.PRIO_PROCESS, drain) > os.getpriority(os.PRIO_PROCESS, 0)
        session.close()


def test_a_second_session_waits_with_its_drain_for_that_of_the_first(work: Path, tmp_path: Path) -> None:
    listed(work, "drain_rate = 4K")
    with Session(work) as session:
        save(session, work, 1)
        wait_for(lambda: list((tmp_path / "place").glob("claim-*")))
        session.close()
    with Session(work) as session:
        session.restore()
        save(session, work, 2, wait="remote")
        assert at_place(tmp_path) == [2]
        session.close()


def test_a_drain_by_hand_waits_until_that_of_the_run_has_put_the_set(work: Path, tmp_path: Path) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        save(session, work, 2, wait=True)
        done = cli("drain", work)
        assert done.exit_code == 0 and "the drain that is at work here has put it" in done.output, done.output
        assert at_place(tmp_path) == [2]
        assert answer("drain", work)["sent"] == 0
        done = cli("drain", work, "--to", tmp_path / "other")
        assert done.exit_code == 13 and "another drain or fetch is at work" in done.output
        session.close()


@pytest.mark.parametrize("to", ["place", "other"])
def test_a_run_beside_whose_drain_another_one_follows_it_ends(to: str, work: Path, tmp_path: Path) -> None:
    """Nobody waits for that one for ever, which waits for the end of the run; nor is its note believed."""
    listed(work, "drain = off")
    with Session(work) as session:
        save(session, work, 1, wait=True)
        session.close()
    code = FAST + "from safepoint.cli import main; main()"
    words = ["drain", work, "--to", tmp_path / to, "--follow", "--pid", os.getpid()]
    with subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdout=subprocess.DEVNULL) as by_hand:
        wait_for(lambda: note.read_notes(Root(str(work))).at(str(tmp_path / to)).sets)
        listed(work)
        with Session(work) as session:
            session.restore()
            save(session, work, 2)
            with pytest.raises(SaveError, match="another drain or fetch is at work"):
                session.wait("remote")
            session.finish(3)
        by_hand.kill()
    assert (work / "u.dat").read_text() == "2 " * 1000


FAILING = """
import sys, pathlib, safepoint
work = pathlib.Path(sys.argv[1])
s = safepoint.init(work)
s.restore()
(work / "u.dat").write_text("1" * 1000)
s.hide(1)
sys.exit(1)
"""


@pytest.mark.proof
def test_lives_that_fail_leave_no_crowd_of_drains(work: Path, tmp_path: Path) -> None:
    """Each ends soon if another one is at it, or a run that has its own."""
    (tmp_path / "place").write_text("")  # it is tried again for an hour
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", FAILING, work], capture_output=True, timeout=500)
        assert done.returncode == 1, done
    wait_for(lambda: len(drains(work)) <= 1)
    with Session(work) as session:
        session.restore()
        save(session, work, 9)

        def hindrance() -> str:
            with pytest.raises(SaveError) as caught:
                session.wait("remote")
            return str(caught.value)

        wait_for(lambda: "cannot use this directory" in hindrance())  # the drain of this run has taken over
        (tmp_path / "place").unlink()
        session.wait("remote", timeout=300)
        session.close()


def test_a_child_that_the_program_has_forked_does_not_keep_it(work: Path, tmp_path: Path) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        if not (child := os.fork()):
            signal.pause()  # for longer than anybody waits
            os._exit(0)
        session.close()
    try:
        wait_for(lambda: not drains(work))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


WAITING = """
import os, sys, pathlib, safepoint
work = pathlib.Path(sys.argv[1])
s = safepoint.init(work)
(work / "u.dat").write_text("1" * 1000)
s.hide(1, wait="remote")
try:
    while True:
        os.wait()
except ChildProcessError:
    s.close()
"""


def test_a_program_that_waits_for_all_of_its_children_does_not_wait_for_it(work: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", WAITING, work], capture_output=True, timeout=500)
    assert (done.returncode, done.stderr) == (0, b""), done


def test_files_in_the_directory_of_the_run_are_no_part_of_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a program is started anything may lie, also what is called as a module."""
    monkeypatch.chdir(work)
    for name in ("random", "click", "safepoint", "signal"):
        (work / f"{name}.py").write_text("raise SystemExit('that is none of ours')\n")
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        session.close()
    assert at_place(tmp_path) == [1]


@pytest.mark.parametrize("executable", [None, "", "no-python"])
def test_a_python_that_cannot_start_another_one_saves_all_the_same(
    executable: str | None, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with Session(work) as session:
        save(session, work, 1)
        with pytest.raises(SaveError, match="no drain could be started"):
            session.wait("remote")
        session.finish(2)
    assert [each for each in warnings(caplog) if "no drain could be started" in each]
    assert (work / "u.dat").read_text() == "1 " * 1000


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, for file systems of its own")
def test_a_place_that_is_full_is_trouble_until_it_is_not(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That it answers is not that a set is there."""
    (tmp_path / "place").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path / "place"], check=True)
    try:
        with Session(work) as session:
            save(session, work, 1, wait="remote")
            (work / "u.dat").write_bytes(os.urandom(2 << 20))
            session.hide(2, wait=True)
            with pytest.raises(SaveError, match="No space left"):
                session.wait("remote")
            for _ in range(3):
                turned()
                session._beside.after(ended=False)  # type: ignore[union-attr]
            assert len(warnings(caplog)) == 1 and "No space left" in warnings(caplog)[0], warnings(caplog)
            assert "No space left" in answer("status", work)["remote"][0]["trouble"]
            subprocess.run(["mount", "-o", "remount,size=9m", tmp_path / "place"], check=True)
            session.wait("remote", timeout=300)
            assert answer("status", work)["remote"][0]["trouble"] == "" and at_place(tmp_path) == [2]
            session.close()
        wait_for(lambda: not drains(work))
    finally:
        subprocess.run(["umount", "-l", tmp_path / "place"], check=True)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, for file systems of its own")
def test_a_disk_that_has_no_room_for_a_last_set_has_room_for_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The result stays in place as long as it is not known to be elsewhere."""
    (work := tmp_path / "w").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", work], check=True)
    try:
        listed(work)
        with Session(work) as session:
            (work / "u.dat").write_bytes(b"1" * 100)
            session.hide(1, wait=True)
            (work / "u.dat").write_bytes(result := os.urandom(1200 << 10))
            session.finish(2)
        assert (work / "u.dat").read_bytes() == result and session.finished
        assert "alone: " in warnings(caplog)[-1] and "No space left" in warnings(caplog)[-1], warnings(caplog)
        wait_for(lambda: not drains(work))
    finally:
        subprocess.run(["umount", "-l", work], check=True)


def test_ctrl_c_while_the_result_goes_there_leaves_it_in_place(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        (drain,) = drains(work)
        os.kill(drain, signal.SIGSTOP)
        (work / "u.dat").write_text("the result")
        look = beside.look
        with monkeypatch.context() as waiting, pytest.raises(KeyboardInterrupt):
            waiting.setattr(beside, "look", lambda: (signal.raise_signal(signal.SIGINT), look()))
            session.finish(2)
        assert (work / "u.dat").read_text() == "the result" and not session.finished
        os.kill(drain, signal.SIGCONT)
        session.finish(2)
    assert (work / "u.dat").read_text() == "the result" and at_place(tmp_path)


def test_a_job_script_starts_none(work: Path) -> None:
    (work / "u.dat").write_text("1")
    assert cli("hide", work, "--step", 1).exit_code == 0
    assert not drains(work) and not (work / ".safepoint.d/drain.log").exists()


def test_what_is_not_there_for_it_is_said(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as the package of a store, or that of the command line."""
    monkeypatch.setattr(beside, "BEGIN", "import os, sys\nif os.fork(): os._exit(0)\nsys.exit('No module named click')")
    with Session(work) as session:
        save(session, work, 1)
        with pytest.raises(SaveError, match=r"is not at .*place: No module named click; it is durable here"):
            session.wait("remote")
        assert [
            each
            for each in warnings(caplog)
            if "has ended, and another one begins" in each and "No module named click" in each
        ]
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
        session.close()
    with Session(work) as session:
        session.restore()
        with pytest.raises(SaveError, match="no drain could be started"):
            session.wait("remote")
        session.close()


RANKS = """
import sys, pathlib, time, safepoint
from mpi4py import MPI
comm, how, work = MPI.COMM_WORLD, sys.argv[1], pathlib.Path(sys.argv[2])
rank = comm.Get_rank()
if how == "alone":
    work = work / str(rank)
    work.mkdir()
    (work / ".safepoint").write_text(f"z.dat\\nremote = ../../place{sys.argv[3]}\\n")
alone = how == "alone"
try:
    saver, coordinate = None if alone else 0, False if how == "apart" else None
    session = safepoint.Session(work, comm=comm, saver=saver, coordinate=coordinate)
except safepoint.SafepointError as error:
    sys.exit(0 if "a place of its own: write {rank}" in str(error) and sys.argv[3] == "" else str(error))
session.restore()
def save(step, **more):
    (work / ("z.dat" if alone else f"z-{rank}.dat")).write_text(f"{rank} {step} " * 500)
    session.hide(step, **more)
save(1)
try:
    session.wait("partner" if rank else "remote")
    sys.exit("that was not refused")
except safepoint.SafepointError as error:
    if how == "apart" and rank == 0:
        assert "ranks do not coordinate" in str(error), error
    assert how == "apart" or "rank 1 of 2: wait is to wait for 'partner', and this run puts" in str(error), error
try:
    save(2, wait="partner" if rank else "remote")
    sys.exit("that was not refused")
except safepoint.SafepointError as error:
    assert "'partner'" in str(error) or (how == "apart" and rank == 0), error
if how != "apart":
    save(2, wait="remote" if rank else True)  # all wait for the furthest
    if rank == 0 or alone:
        assert session.safe == {"local": 2, "remote": 2}, session.safe
    save(3)
    session.wait(level="local" if rank else "remote")
    assert session.safe["local"] == 3 and (session.safe["remote"] == 3 or rank), session.safe
save(4)
if rank or alone:
    (work / ("z.dat" if alone else f"z-{rank}.dat")).write_text("the result")
try:
    session.finish(5)
    assert alone or how == "apart"
except safepoint.MissingFilesError:  # on rank 0, which has not written its own again
    (work / f"z-{rank}.dat").write_text("the result")
    session.finish(5)
assert (work / ("z.dat" if alone else f"z-{rank}.dat")).read_text() == "the result" or (how == "apart" and not rank)
print("ended", rank, flush=True)
"""


def on_ranks(work: Path, how: str, more: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*mpiexec(2), "-c", RANKS, how, str(work), more], capture_output=True, text=True, timeout=500)


@pytest.mark.xdist_group("mpi-tiers")
@pytest.mark.parametrize("how", some_of(["together", "alone", "apart"], 1, 3))
def test_ranks_wait_for_the_furthest_that_any_asks_for(how: str, work: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (work / ".safepoint").write_text("z-{rank}.dat\nremote = ../place\n")
    done = on_ranks(work, how, "/{rank}")
    assert done.returncode == 0 and done.stdout.count("ended") == 2, done
    wait_for(lambda: not drains(tmp_path))
    if how == "apart":
        assert "with coordinate=False the ranks have no common set" in done.stderr
        assert os.listdir(tmp_path / "place") == []
        return
    for place in (f"{tmp_path}/place", *[f"{tmp_path}/place/00001"] * (how == "alone")):
        there = place if how == "together" else place.replace("place", "place/00000", place.count("/0") == 0)
        assert [each["step"] for each in answer("fetch", there, "--list")["sets"]] == [5]


@pytest.mark.xdist_group("mpi-tiers")
def test_ranks_with_directories_of_their_own_need_places_of_their_own(work: Path) -> None:
    done = on_ranks(work, "alone")
    assert done.returncode == 0, done


@pytest.mark.proof
@pytest.mark.xdist_group("mpi-tiers")
def test_no_launcher_waits_for_it(work: Path, tmp_path: Path) -> None:
    """It goes on after the end of the job, and nobody's pipe is kept open by it."""
    (work / ".safepoint").write_text("z-{rank}.dat\nremote = ../place\ndrain_rate = 500\n")
    code = RANKS.split("try:\n    session.wait")[0].rpartition("save(1)")[0] + "save(1, wait=True)\nsession.close()\n"
    subprocess.run([*mpiexec(2), "-c", code, "together", str(work)], capture_output=True, timeout=60, check=True)
    assert drains(work)
    wait_for(lambda: not drains(work))
    assert at_place(tmp_path) == [1]


def test_the_run_and_the_drain_mean_the_same_place(work: Path, tmp_path: Path) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        session.close()
    (known,) = note.read_notes(Root(str(work))).places
    assert known.url == place_of("../place", str(work)) == str(tmp_path / "place")


def test_a_drain_by_hand_says_what_hinders_the_one_that_is_at_work(work: Path, tmp_path: Path) -> None:
    """And does not wait behind it for an hour; nor does one that is to put the set elsewhere, which names it."""
    (tmp_path / "place").write_text("")
    done = subprocess.run([sys.executable, "-c", FAILING, work], capture_output=True, timeout=500)
    assert done.returncode == 1
    wait_for(lambda: note.read_notes(Root(str(work))).at(str(tmp_path / "place")).trouble)
    (drain,) = drains(work)
    done = cli("drain", work)
    assert done.exit_code == 16 and f"process {drain}" in done.output, done.output
    assert "cannot use this directory" in done.output
    done = cli("drain", work, "--to", tmp_path / "other")
    assert done.exit_code == 13 and f"process {drain}" in done.output, done.output
    os.kill(drain, signal.SIGTERM)
    wait_for(lambda: not drains(work))
    assert cli("drain", work, "--to", tmp_path / "other").exit_code == 0
    said = (work / ".safepoint.d/drain.log").read_text()
    assert said.startswith(f"safepoint: {time.strftime('%Y-')}"), said


def test_after_a_finished_run_there_is_nothing_to_put_and_no_drain(work: Path, tmp_path: Path) -> None:
    """Though the place could not be reached: it is not claimed an hour later for nothing."""
    (tmp_path / "place").write_text("")
    with Session(work) as session:
        save(session, work, 1)
        session.finish(2)
    wait_for(lambda: not drains(work))
    done = cli("drain", work)
    assert done.exit_code == 20 and "was finished" in done.output, done.output
    (tmp_path / "place").unlink()
    forget(work)
    with Session(work) as session:
        save(session, work, 1)
        session.finish(1)
    assert "remote:    set 1 is at" in cli("status", work).output
    done = cli("drain", work)  # as the last line of a job script
    assert done.exit_code == 0 and f"its result is at {tmp_path / 'place'}" in done.output, done.output
    said = answer("drain", work)
    assert (said["set"], said["step"], said["sent"], said["place"]) == (1, 1, 0, str(tmp_path / "place"))
    assert cli("drain", work, "--to", tmp_path / "other").exit_code == 20


def test_a_fetch_says_if_the_manifest_names_another_place_from_there(work: Path, tmp_path: Path) -> None:
    with Session(work) as session:
        save(session, work, 1, wait="remote")
        session.close()
    done = cli("fetch", tmp_path / "place", tmp_path / "b")
    assert done.exit_code == 0 and "puts sets to" not in done.output, done.output
    done = cli("fetch", tmp_path / "place", tmp_path / "not/there")
    assert done.exit_code == 10 and f"{tmp_path / 'not'} is not there: make it first" in done.output, done.output
    (tmp_path / "deep").mkdir()
    done = cli("fetch", tmp_path / "place", tmp_path / "deep/c")
    assert done.exit_code == 0 and f"puts sets to {tmp_path / 'deep/place'}" in done.output, done.output


STRANGERS = ("warnings", "queue", "contextlib", "importlib", "click", "json", "ctypes", "socket", "yaml", "safepoint")


def strangers(directory: Path) -> Path:
    """Modules that are none of ours; what they leave when one is loaded."""
    for name in STRANGERS:
        (directory / f"{name}.py").write_text(f"open({str(directory / 'loaded')!r}, 'a').write(__name__)\n")
    return directory / "loaded"


@pytest.mark.parametrize("paths", ["", "{work}:", ":"])
def test_a_python_of_ours_loads_no_module_that_lies_where_the_program_is(
    work: Path, tmp_path: Path, paths: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever PYTHONPATH says; an empty part of it means the current directory. What it needs it has."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/found_by_path.py").write_text("")
    loaded = strangers(work)
    monkeypatch.setenv("PYTHONPATH", f"{paths.format(work=work)}{os.pathsep}{tmp_path}/own")
    code = "import found_by_path, click, xxhash, safepoint, warnings, queue; print(safepoint.__file__)"
    with monkeypatch.context() as patch:
        patch.chdir(work)
        patch.setattr(sys, "path", ["", str(work), *sys.path, str(tmp_path / "own")])
        done = subprocess.run(isolated(code, "a word"), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(Path(safepoint.__file__))), done.stderr
    assert not loaded.exists(), loaded.read_text()


def test_the_drain_of_a_run_loads_no_module_that_lies_where_the_program_is(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = strangers(work)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PYTHONPATH", f":{work}")
    with contextlib.closing(Session(work)) as session:
        session.restore()
        (work / "u.dat").write_text("1")
        session.hide(1, wait="remote")
    assert not loaded.exists(), loaded.read_text()
