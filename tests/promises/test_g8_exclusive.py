"""G8, exclusive: of two runs at once in one directory the second gets a `LockedError` that says who holds it. It
changes nothing. Nor does a run whose side directory was taken away or replaced.

The kernel's lock itself is in tests/parts/test_disk.py; tests/proof/test_mpi.py has many ranks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from testbed.disks import Between
from testbed.lives import killed_beside_a_child
from testbed.program import LateSaver
from testbed.sessions import ROOT, Said, Start, contents, write

import safepoint
import safepoint.owner
from safepoint import LockedError, ManifestError, SafepointError, SaveError, Session, UsageError
from safepoint.disk import Disk

pytestmark = pytest.mark.usefixtures("clean_slate")


def test_a_second_session_in_the_same_process_is_told_that_it_is_this_process(start: Start, work: Path) -> None:
    """G8: as when a notebook cell is run twice."""
    session = start("u.dat\n")
    before = sorted(work.rglob("*"))
    with pytest.raises(LockedError) as caught:
        start()
    assert "this very process, by an earlier init: go on with that session, or call safepoint.close() first" in str(
        caught.value
    )
    assert f"process {os.getpid()} on {socket.gethostname()}" in str(caught.value)
    assert sorted(work.rglob("*")) == before
    write(work, u_dat="0")
    assert session.hide(0) is not None
    session.close()
    start()


def test_an_init_refused_in_its_own_directory_leaves_the_default_session_in_charge(work: Path) -> None:
    """As when a notebook cell is run twice: the next `hide` goes where both wanted it."""
    (work / ".safepoint").write_text("u.dat\n")
    safepoint.init(work)
    with pytest.raises(LockedError):
        safepoint.init(work)
    write(work, u_dat="0")
    assert safepoint.hide(0) is not None
    with pytest.raises(ManifestError):
        safepoint.init(work.parent)
    with pytest.raises(LockedError, match="by an earlier init: go on with that session"):
        safepoint.init(os.path.relpath(work))  # the same one: as good as going back to it
    write(work, u_dat="1")
    assert safepoint.hide(1) is not None
    safepoint.finish()
    (work / ".safepoint").unlink()
    with pytest.raises(ManifestError):
        safepoint.init(work)
    with pytest.raises(UsageError, match="hide after an init that failed"):
        safepoint.hide(2)


def flock_fails(number: int) -> Callable[[int, int], object]:
    def flock(descriptor: int, how: int) -> object:
        raise OSError(number, os.strerror(number))  # it knows no name

    return flock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524])
def test_without_locks_it_warns_and_works(
    start: Start, work: Path, said: Said, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G8 is off, and that is said. 524 is the ENOTSUPP of the kernel."""
    monkeypatch.setattr("fcntl.flock", flock_fails(number))
    session = start("u.dat\n")
    warning = f"no kernel locks in {work}: a second run at the same time would not be noticed"
    assert said[0] == ("WARNING", warning)
    write(work, u_dat="0")
    session.hide(0)
    session.close()
    start()
    assert contents(work) == {"u.dat": "0"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EPERM, errno.ESTALE])
def test_a_lock_that_fails_otherwise_is_an_error(
    start: Start, work: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", flock_fails(number))
    with pytest.raises(SaveError, match=rf"^cannot set up .safepoint.d: {ROOT}/lock: {os.strerror(number)}"):
        start("u.dat\n")


def test_a_lock_that_cannot_be_given_back_is_a_warning_after_all_that_was_to_be_done(
    start: Start, work: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", flock_fails(errno.EIO))
        session.finish(0)
    assert said[-1] == (
        "WARNING",
        f"the lock was not given back ({ROOT}/lock: Input/output error): it goes with this process",
    )


# The side directory goes, or another one comes.
def other_run(work: Path) -> Session:
    """Another run, which began in the new side directory, and has a set of its own there."""
    other = Session(work)
    other.restore()
    write(work, u_dat="other")
    other.hide(70, wait=True)
    return other


def go(work: Path, how: str, others: list[Session]) -> None:
    side, away = work / ".safepoint.d", work.with_name("away")
    if how == "removed":
        shutil.rmtree(side)
    elif how == "moved":
        side.rename(away)
    elif how == "root removed":
        shutil.rmtree(work / ROOT)
    elif how == "lock removed":  # another run would take a new one
        (work / ROOT / "lock").unlink()
    elif how == "replaced by another run":
        side.rename(away)
        others.append(other_run(work))
    elif how == "copied back":
        shutil.copytree(side, away)
        shutil.rmtree(side)
        shutil.copytree(away, side)
    else:
        work.rename(away)
        if how == "W replaced":
            shutil.copytree(away, work)


GONE = ["removed", "moved", "root removed", "lock removed", "replaced by another run", "copied back", "W moved",
        "W replaced"]  # fmt: skip


@contextmanager
def unhindered(others: list[Session]) -> Iterator[None]:
    try:
        yield
    finally:
        for other in others:
            other.close()


def said_of(work: Path, how: str) -> str:
    """What the error says is gone: only what was looked at."""
    if how == "lock removed":
        return f"{work}/{ROOT}/lock was removed while this run was at work"
    return f"{work}/.safepoint.d is not there any more, or another one is"


@pytest.mark.leaves_damage
@pytest.mark.parametrize("how", GONE)
def test_a_side_directory_that_goes_under_a_run_is_an_error_that_says_all_sets_are_gone(
    tmp_path: Path, how: str
) -> None:
    """G7, and G8: nothing is moved, nor anything changed where another run may be at work by now."""
    work, others = tmp_path / "work", list[Session]()
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work)
    session.restore()
    for step in range(3):
        write(work, u_dat=str(step))
        session.hide(step, wait=True)
    with unhindered(others):
        go(work, how, others)
        where = work if work.exists() else tmp_path / "away"
        write(where, u_dat="3")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        for call in (lambda: session.hide(3), lambda: session.hide(3, wait=True), session.wait, session.finish):
            with pytest.raises(SaveError) as caught:
                call()
            text = str(caught.value)
            assert said_of(work, how) in text and "close() this session and call init() again" in text
            assert ("all sets are gone with it" in text) == (how != "lock removed")
            assert "intact" not in text
        with pytest.raises(safepoint.RestoreError, match=said_of(work, how)):
            session.restore()
        session.close()
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after.items() <= before.items()
        own = {"owner.json"} if how in ("lock removed", "copied back", "W replaced") else set()  # our name, or a copy
        assert {path.name for path in before.keys() - after.keys()} == own


@pytest.mark.parametrize("how", ["removed", "moved", "lock removed", "replaced by another run", "root removed"])
def test_what_the_error_of_a_lost_side_directory_advises_works(tmp_path: Path, how: str) -> None:
    """The session ends and another one begins, under the lock and with the baseline of any first start; never beside
    another run (G8), and where traces of lost sets are left not without the user (G6)."""
    work, others = tmp_path / "work", list[Session]()
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work)
    session.restore()
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1")
    with unhindered(others):
        go(work, how, others)
        write(work, u_dat="1")
        with pytest.raises(SaveError, match=said_of(work, how)):
            session.hide(1)
        session.close()
        if how == "replaced by another run":
            with pytest.raises(LockedError, match="this very process"):
                Session(work)
            return
    if how == "root removed":
        with pytest.raises(safepoint.DamagedError, match=r"remove .* as a whole"):
            Session(work)
        shutil.rmtree(work / ".safepoint.d")
    session = Session(work)
    if how == "lock removed":
        point = session.restore()
        assert point and point.step == 0
        write(work, u_dat="1")
    assert (point := session.hide(1))
    session.close()
    write(work, u_dat="torn")
    again = Session(work)
    saved = again.restore()
    assert saved and saved.step == 1 and contents(work) == {"u.dat": "1"}
    again.close()


def test_a_side_directory_that_was_moved_away_and_back_again_goes_on(start: Start, work: Path) -> None:
    """As the error says: the lock in it was never given up."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    (work / ".safepoint.d").rename(work / "away")
    write(work, u_dat="1")
    with pytest.raises(SaveError, match="Move it back"):
        session.hide(1)
    (work / "away").rename(work / ".safepoint.d")
    assert session.hide(1, wait=True) is not None
    write(work, u_dat="torn")
    saved = session.restore()
    assert saved and saved.step == 1 and contents(work) == {"u.dat": "1"}


@pytest.mark.parametrize("manifest", ["u.dat\n", "history.csv append\n"])
def test_a_set_in_flight_is_not_stored_into_the_directory_of_another_run(work: Path, manifest: str) -> None:
    """G8: both have a set 2 there, and the one of the other run must stay as it is, down to the last byte."""
    texts = iter("row " * length for length in range(1, 9))
    (work / ".safepoint").write_text(manifest)
    name = manifest.split()[0].replace(".", "_")
    session = Session(work)
    session.restore()
    write(work, **{name: next(texts)})
    session.hide(0)
    session._work.thread = LateSaver()  # type: ignore[assignment]
    write(work, **{name: next(texts)})
    session.hide(1)
    (work / ".safepoint.d").rename(work.with_name("away"))
    other = Session(work)
    other.restore()
    for step in (70, 71):
        write(work, **{name: next(texts)})
        other.hide(step, wait=True)
    write(work, **{name: next(texts)})
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    with pytest.raises(SaveError, match=r"set 2 \(step 1\) not stored: .*all sets are gone with it; so are the files"):
        session.hide(2)
    with pytest.raises(SaveError, match=r"set 3 \(step 2\) not taken"):
        session.hide(2)
    session.close()
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert other.hide(72, wait=True) is not None
    other.close()


def test_the_commit_of_a_set_does_not_commit_that_of_another_run(work: Path) -> None:
    """G8, G2: the directory is replaced while the set is flushed, and the other run has just written its record there,
    which is not durable yet."""
    away, of_set_2 = work.with_name("away"), work / ROOT / "set-00000002"

    def replace() -> None:
        if not away.exists() and (of_set_2 / "record.json.new").exists():
            (work / ".safepoint.d").rename(away)
            shutil.copytree(away, work / ".safepoint.d")

    class Replaces(Disk):
        helpers: Any = Between(after=replace)

    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work, disk=Replaces())
    session.restore()
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    with pytest.raises(SaveError, match=r"set 2 \(step 1\) not stored: .*all sets are gone with it"):
        session.hide(1, wait=True)
    session.close()
    assert away.exists()
    assert {path.name for path in of_set_2.iterdir()} == {"taken.json", "files", "record.json.new"}


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(arguments, cwd=directory, capture_output=True, text=True, timeout=500)


HOLDER = "import safepoint, sys; safepoint.init(); print('held', flush=True); sys.stdin.read()"


@contextmanager
def held(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that lives, and has this directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert first_line(holder.stdout) == "held\n"
            yield holder
        finally:
            holder.kill()


def test_a_second_run_is_refused_and_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """G8: the error says who holds the directory; after SIGKILL of the holder nothing is left to clean up."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    with held(tmp_path) as holder:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        done = run(tmp_path, "import safepoint; safepoint.init()")
        assert f"LockedError: {tmp_path.resolve()} is in use by another run: process {holder.pid} on" in done.stderr
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert run(tmp_path, "import safepoint; safepoint.init()").returncode == 0


FOR_EVER = 3600.0  # seconds: a test that waited so long would be ended
BEGINS = f"""
import safepoint, safepoint.owner
safepoint.owner.PATIENCE = {FOR_EVER}
safepoint.init()
print("began")
"""


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
        assert f"waiting up to 3600 s for process {dead} on" in said and "which is gone" in said, said
        end()
        assert restart.communicate(timeout=500) == ("began\n", "")


@needs_proc
def test_a_child_that_does_not_end_is_named_when_a_restart_gives_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safepoint.owner, "PATIENCE", 0.3)
    with killed_beside_a_child(directory) as (dead, _):
        before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
        text = refused(directory)
        assert f"process {dead} on" in text and "which is gone, but what it had started is not: descriptor" in text
        assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_lives_is_met_at_once(directory: Path, stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """G8. Also one that stands still: who stopped it may let it go on."""
    monkeypatch.setattr(safepoint.owner, "PATIENCE", FOR_EVER)
    with held(directory) as holder:
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        assert f"in use by another run: process {holder.pid} on" in refused(directory)


@needs_proc
@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"kernel": "of another boot, or in another container"}])
def test_a_holder_of_which_nothing_can_be_known_here_is_met_at_once(
    directory: Path, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of a process that lives there, and of none here."""
    monkeypatch.setattr(safepoint.owner, "PATIENCE", FOR_EVER)
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
            monkeypatch.setattr(safepoint.owner, "PATIENCE", 0.3)
            text = refused(directory)
            assert f"process {another.pid} on" in text and "which is gone" in text
            monkeypatch.setattr(safepoint.owner, "PATIENCE", FOR_EVER)
            # As written by a version that did not note when its process began: it may be that one.
            owner(directory).write_text(json.dumps({k: said[k] for k in ("host", "pid", "since", "command")}))
            text = refused(directory)
            assert f"process {another.pid} on" in text and "gone" not in text
        finally:
            another.kill()


@needs_proc
def test_ctrl_c_ends_the_waiting_for_a_child_and_changes_nothing(directory: Path) -> None:
    with killed_beside_a_child(directory) as (_, end):
        before = owner(directory).read_bytes()
        with begins(directory) as restart:
            assert "waiting up to" in first_line(restart.stderr)
            restart.send_signal(signal.SIGINT)
            _, said = restart.communicate(timeout=500)
        assert restart.returncode == -signal.SIGINT and "KeyboardInterrupt" in said and "LockedError" not in said
        assert owner(directory).read_bytes() == before
        end()
        with begins(directory) as restart:
            assert restart.communicate(timeout=500)[0] == "began\n"


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
                assert "waiting up to 3600 s for" in first_line(second.stderr)
                holder.stdin.write("\n")
                holder.stdin.flush()
                assert first_line(holder.stdout) == "said\n"
                assert f"in use by another run: process {holder.pid} on" in second.communicate(timeout=500)[1]
        finally:
            holder.kill()


def test_a_run_that_has_ended_leaves_no_name(directory: Path) -> None:
    """Only one that was killed does, and one that could not even begin does not."""
    with Session(directory) as session:
        assert json.loads(owner(directory).read_text())["pid"] == os.getpid()
        session.restore()
        session.close()
    assert not owner(directory).exists()


CLOSES = """
import os, safepoint
from pathlib import Path
safepoint.init()
safepoint.restore()
Path("u.dat").write_text("0")
safepoint.hide(0, wait=True)
os.closerange(3, 256)
numbers = [os.open("own.txt", os.O_CREAT | os.O_WRONLY) for _ in range(20 * {reuse})]
Path("u.dat").write_text("1")
for call in (lambda: safepoint.hide(1), safepoint.wait, lambda: safepoint.finish(1), safepoint.restore):
    try:
        call()
    except safepoint.SafepointError as error:
        print(type(error).__name__, error)
print(os.path.exists("u.dat"))
safepoint.close()
for number in numbers:
    os.write(number, b"own")
safepoint.init()
print(safepoint.restore().step)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by which descriptor a lock is held")
@pytest.mark.parametrize("reuse", [False, True])
def test_a_program_that_closes_all_descriptors_is_told_that_its_lock_is_gone(tmp_path: Path, reuse: bool) -> None:
    """G8: as daemons do. A second run may have begun, so nothing is saved; a file of the program that has the number
    of the lock by now stays open, and the next init takes a new lock."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    done = run(tmp_path, CLOSES.format(reuse=reuse))
    *said, there, step = done.stdout.splitlines()
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (there, step) == ("True", "0")
    kinds = ["SaveError set 2 (step 1) not taken", "SaveError nothing is durable", "SaveError not finished"]
    for begin, text in zip([*kinds, "RestoreError cannot restore"], said, strict=True):
        assert text.startswith(f"{begin}: {tmp_path}/{ROOT}/lock is no longer locked by this run, as"), text


@pytest.mark.parametrize("older", [0o644, 0o666, None])
def test_nobody_else_can_hold_the_lock(work: Path, older: int | None) -> None:
    """Whoever can open a file can hold its lock, and so hold a run off. That of an older version is closed, too."""
    lock = work / ROOT / "lock"
    (work / ".safepoint").write_text("u.dat\n")
    if older is not None:
        lock.parent.mkdir(parents=True)
        lock.touch()
        lock.chmod(older)
        for way in (lock.parent, lock.parent.parent):
            way.chmod(0o755)
    work.chmod(0o755)
    before = os.umask(0)
    try:
        with contextlib.closing(Session(work)):
            assert lock.stat().st_mode & 0o777 == 0o600
            assert (work / ".safepoint.d").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_a_link_in_the_place_of_the_lock_opens_or_closes_nothing_else(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\n")
    (work / ROOT).mkdir(parents=True)
    (work / "mine").touch()
    (work / "mine").chmod(0o644)
    (work / ROOT / "lock").symlink_to(work / "mine")
    with contextlib.suppress(OSError, SafepointError), contextlib.closing(Session(work)):
        pass
    assert (work / "mine").stat().st_mode & 0o777 == 0o644
