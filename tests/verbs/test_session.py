"""A session from `init` to its end: its states, its directory, who has it, and what it says."""

from __future__ import annotations

import errno
import json
import os
import pwd
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from testbed.disks import Failing, ends
from testbed.jobs import mpiexec
from testbed.paths import HOUSE
from testbed.sessions import (
    NOBODY,
    ROOT,
    DeadSaver,
    Said,
    Start,
    contents,
    events,
    kill,
    ordinary_user,
    sets,
    write,
)

import safepoint
from safepoint import LockedError, ManifestError, SaveError, SavePoint, Session, UsageError, default
from safepoint.disk import handles

pytestmark = pytest.mark.usefixtures("clean_slate")


@pytest.mark.parametrize("verb", [safepoint.restore, safepoint.hide, safepoint.wait, safepoint.finish])
def test_a_verb_before_init_says_what_to_call(verb: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=rf"{verb.__name__} before init: call safepoint.init\(\) first"):
        verb()


def test_a_save_point_says_number_step_time_and_files(start: Start, work: Path) -> None:
    before = time.time()
    session = start("sub/u.dat\nhistory.csv append\nparams.db copy\nnotes.txt optional\n")
    write(work, sub__u_dat="u", history_csv="h", params_db="p")
    point = session.hide(5)
    assert isinstance(point, SavePoint)
    assert (point.number, point.step, point.finished) == (1, 5, False)
    assert set(point.files) == {"sub/u.dat", "history.csv", "params.db"}
    assert before <= point.time <= time.time()
    session.close()
    restored = start(restore=False).restore()
    assert restored == SavePoint(1, 5, point.time, restored.files if restored else ())
    assert restored and set(restored.files) == set(point.files)
    with pytest.raises(AttributeError):
        point.step = 6  # type: ignore[misc]


# The states of a session.
@pytest.mark.parametrize("verb", ["hide", "finish"])
@pytest.mark.parametrize("past", ["a set", "the finish mark", "a start that died"])
def test_a_program_that_forgot_restore_is_told_so_and_nothing_is_changed(
    start: Start, work: Path, verb: str, past: str
) -> None:
    """Without it the files of the lost iteration would be taken for whole."""
    session = start("u.dat\n", restore=past != "a start that died")
    if past != "a start that died":
        write(work, u_dat="0")
        session.hide(0)
    if past == "the finish mark":
        session.finish()
    session.close()
    write(work, u_dat="torn")
    session = start(restore=False)
    before = sorted((work / ".safepoint.d").rglob("*"))
    with pytest.raises(UsageError, match=rf"^{verb} before restore, in a directory that has save points: call restore"):
        getattr(session, verb)()
    assert contents(work) == {"u.dat": "torn"}
    assert sorted((work / ".safepoint.d").rglob("*")) == before


def test_in_a_directory_without_a_past_hide_needs_no_restore(start: Start, work: Path) -> None:
    session = start("u.dat\n", restore=False)
    write(work, u_dat="0")
    assert session.hide(0) is not None
    write(work, u_dat="1")
    assert session.hide(1) is not None
    session.finish()
    assert contents(work) == {"u.dat": "1"}


@pytest.mark.parametrize("end", ["finish", "close"])
@pytest.mark.parametrize("verb", ["restore", "hide", "wait", "finish"])
def test_after_the_end_of_the_session_no_verb_works(start: Start, work: Path, end: str, verb: str) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    getattr(session, end)()
    before = contents(work)
    why = "finish() was called" if end == "finish" else "it was closed"
    with pytest.raises(UsageError) as caught:
        getattr(session, verb)()
    assert str(caught.value) == f"{verb} after the end of the session ({why}): call init first"
    assert contents(work) == before
    session.close()  # may be repeated


def in_a_child(what: Callable[[], object]) -> tuple[int, str]:
    """The signal that ended a forked child, or 0, and what it reported; it has a second."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads, which are why we test
        pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 1)
            what()
            os.write(writer, b"no error")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    status = os.waitpid(pid, 0)[1]
    with open(reader) as file:
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, file.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("verb", ["restore", "hide", "wait", "finish"])
def test_a_forked_child_may_not_save(start: Start, work: Path, verb: str) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    only = f"only process {os.getpid()}, which called init, may save"
    assert in_a_child(getattr(session, verb)) == (0, f"UsageError: {verb} in a forked process: {only}")
    assert contents(work) == {"u.dat": "1"}
    assert sets(work) == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_ends_the_session_leaves_the_lock_and_the_set_in_flight_to_its_parent(
    start: Start, work: Path
) -> None:
    """G8. As when it leaves the `with` block by an exception: it must not wait for a thread that it does not have."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    session._work.thread = DeadSaver()  # type: ignore[assignment]
    write(work, u_dat="1")
    session.hide(1)
    assert in_a_child(session.close) == (0, "no error")
    with pytest.raises(LockedError):
        start()
    kill(session)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")


def start_as_nobody(work: Path) -> str:
    with ordinary_user(work), pytest.raises(SaveError) as caught:
        Session(work)
    assert caught.value.errno == errno.EACCES
    return str(caught.value)


@needs_root
def test_what_another_user_has_made_is_named_with_its_owner_and_a_remedy(start: Start, work: Path) -> None:
    """As after a start by `sudo`, or in a container: the lock is that user's, and so is all beside it."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(7)
    session.close()
    side = os.path.realpath(work / ".safepoint.d")
    told = start_as_nobody(work)
    me = pwd.getpwuid(NOBODY).pw_name
    assert told == (
        f"cannot set up .safepoint.d: .safepoint.d/FORMAT: Permission denied ({side} belongs to root, with "
        f"mode 0700, and this process to {me}: start it as root, or as root give it over by chown -R {me} {side}); "
        f"the listed files are untouched"
    )
    for path in [work, *work.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    (work / ROOT / "lock").chmod(0)
    told = start_as_nobody(work)
    lock = f"{side}/rank-00000/lock"
    assert f"({lock} belongs to {me}, as this process does, with mode 0000: chmod u+rw {lock})" in told
    (work / ROOT).chmod(0o600)
    told = start_as_nobody(work)
    assert f"({side}/rank-00000 belongs to {me}, as this process does, with mode 0600: chmod u+rwx " in told
    (work / ROOT).chmod(0o755)
    (work / ROOT / "lock").chmod(0o644)


@needs_root
@pytest.mark.parametrize("when", ["init", "hide"])
def test_a_working_directory_of_another_user_is_named_with_its_owner(start: Start, work: Path, when: str) -> None:
    (work / ".safepoint").write_text("u.dat\n")
    with ordinary_user(work):
        if when == "hide":
            session = start()
            write(work, u_dat="0")
            session.hide(0)
            write(work, u_dat="1")
        os.seteuid(0)
        os.chown(work, 0, 0)
        os.seteuid(NOBODY)
        with pytest.raises(SaveError) as caught:
            session.hide(1) if when == "hide" else Session(work)
    me = pwd.getpwuid(NOBODY).pw_name
    belongs = f"({os.path.realpath(work)} belongs to root, with mode 0755, and this process to {me}: "
    assert f"Permission denied {belongs}start it as root, or where {me} may write)" in str(caught.value)
    assert when == "init" or "set 1 (step 0) is intact; " in str(caught.value)
    os.chown(work, NOBODY, NOBODY)


@pytest.mark.parametrize("verb", ["restore", "hide", "wait", "finish", "due", "should_stop", "stop", "watch"])
def test_after_an_init_that_failed_no_verb_acts_in_another_directory(work: Path, tmp_path: Path, verb: str) -> None:
    """Until an init succeeds; who holds the earlier session may go on with it."""
    other = tmp_path / "other"
    other.mkdir()
    (work / ".safepoint").write_text("u.dat\nledger = modify\n")
    session = safepoint.init(work)
    with pytest.raises(ManifestError):
        safepoint.init(other)
    write(work, u_dat="0")
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    call = getattr(safepoint, verb)
    with pytest.raises(UsageError) as caught:
        call(1, u=1) if verb == "watch" else call()
    assert str(caught.value).startswith(f"{verb} after an init that failed, in {other} (no manifest {other}/.safepoint")
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert session.hide(0, wait=True) is not None and sets(work) == [1]
    (other / ".safepoint").write_text("v.dat\n")
    write(other, v_dat="0")
    assert safepoint.init(other) is default._default
    assert safepoint.hide(0) is not None and sets(other) == [1]
    session.close()


def test_after_a_first_init_that_failed_that_init_is_named(work: Path) -> None:
    with pytest.raises(UsageError):
        safepoint.init(work, inflight="loud")
    with pytest.raises(UsageError, match=rf"^hide after an init that failed, in {work} \(inflight must be"):
        safepoint.hide(0)


def test_two_sessions_in_different_directories_work_at_once(start: Start, work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    sessions = {work: start("u.dat\n"), other: start("u.dat\n", where=other)}
    for step in range(3):
        for number, (directory, session) in enumerate(sessions.items()):
            write(directory, u_dat=f"{step} of {number}")
            session.hide(step)
    for number, (directory, session) in enumerate(sessions.items()):
        session.restore()
        assert contents(directory) == {"u.dat": f"2 of {number}"}


def test_the_session_stays_where_it_began_when_the_program_goes_elsewhere(
    start: Start, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    session = start("u.dat\nfields/*.vtk\nrun.zarr/\n", where=Path("."))
    monkeypatch.chdir(tmp_path)
    write(work, u_dat="0", fields__0_vtk="0", run_zarr__meta="0")
    before = contents(work)
    assert session.hide(0) is not None
    assert contents(work).keys() == {"fields/"}
    session.restore()
    assert contents(work) == before
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_without_a_manifest_the_error_shows_an_example(work: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        safepoint.init(work)
    first, *example = str(caught.value).splitlines()
    assert first == f"no manifest {work}/.safepoint: list your files in it, for example"
    (work / ".safepoint").write_text("\n".join(example))
    safepoint.init(work)  # and the example is right


@pytest.mark.parametrize("manifest", ["", "../u.dat\n", "u.dat compres\n", "kep = 2\n", "u.dat\nu.dat\n", '"u.dat\n'])
def test_a_bad_manifest_changes_nothing(work: Path, manifest: str) -> None:
    (work / ".safepoint").write_text(manifest)
    with pytest.raises(ManifestError, match=rf"^{work}/\.safepoint:\d?"):
        safepoint.init(work)
    assert [path.name for path in work.iterdir()] == [".safepoint"]


# What is said, and where.
def test_nothing_is_printed_and_nothing_is_written_outside(
    start: Start, work: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    session = start("u.dat\nhistory.csv append\nbig.dat compress\n")
    for step in range(3):
        write(work, u_dat="u", history_csv="h", big_dat="b" * 9000)
        session.hide(step)
    session.restore()
    session.finish()
    start()
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "work"]
    assert list(elsewhere.iterdir()) == []
    assert {path.name for path in work.iterdir()} == {".safepoint", ".safepoint.d", *contents(work)}


def test_a_save_and_a_restore_say_one_line_each(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\nv.dat compress\n")
    assert said == [("INFO", f"nothing to restore in {work}: a first start")]
    for step in range(3):
        said.clear()
        write(work, u_dat=bytes(2_000_000), v_dat=bytes(500_000))
        session.hide(step)
        session.wait()
        ((level, text),) = said
        assert level == "INFO"
        assert text.startswith(f"saved set {step + 1} (step {step}): 2 files, 2.5 MB in 0.")
    session.close()
    said.clear()
    start()
    assert said == [("INFO", "restored set 3 (step 2): 2 files, 2.5 MB")]


def test_the_log_has_a_line_per_event_over_all_lives(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    for step in range(2):
        write(work, u_dat=str(step))
        session.hide(step)
    session.restore()
    session.finish()
    session = start(disk=Failing(ends("files/u.dat")))
    with pytest.raises(SaveError):
        session.hide(1)
    expected = ["start", "saved", "saved", "restored", "finished", "restored", "failed"]
    assert events(work) == expected
    lines = [json.loads(line) for line in (work / ROOT / "log.jsonl").read_text().splitlines()]
    assert all(line["pid"] == os.getpid() and line["time"] > 0 for line in lines)
    assert {key: lines[1][key] for key in ("set", "step", "files", "bytes", "stored")} == {
        "set": 1, "step": 0, "files": 1, "bytes": 1, "stored": 1,
    }  # fmt: skip


def test_a_torn_last_line_of_the_log_costs_no_more_than_itself(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    session.close()
    with (work / ROOT / "log.jsonl").open("a") as file:
        file.write('{"time": 17')
    point = start(restore=False).restore()
    assert point and point.step == 0
    whole = []
    for line in (work / ROOT / "log.jsonl").read_text().splitlines():
        with suppress(ValueError):
            whole.append(json.loads(line)["event"])
    assert whole == ["start", "saved", "ended", "restored"]


# What a file system may lack.
def test_without_leases_a_file_that_this_process_writes_is_still_noticed(
    start: Start, work: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback of NFS and FUSE: our own descriptors; one for reading does not count."""
    write(work, u_dat="u", v_dat="v")
    monkeypatch.setattr(handles, "_leased", lambda path: (os.stat(path).st_dev, os.stat(path).st_ino))
    session = start("u.dat\nv.dat\n")
    with (work / "u.dat").open("a"), (work / "v.dat").open():
        session.hide(0)
    assert contents(work) == {"u.dat": "u"}
    assert [text.split()[0] for level, text in said if level == "WARNING"] == ["u.dat"]


def test_a_manifest_that_goes_under_a_run_changes_nothing_for_it(start: Start, work: Path) -> None:
    """It is read once, at the start; the next start says that there is none."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    (work / ".safepoint").unlink()
    write(work, u_dat="1")
    assert session.hide(1, wait=True) is not None
    session.close()
    with pytest.raises(ManifestError):
        Session(work)
    assert session._committed and session._committed.step == 1


# An exception on one rank of several.

RANKED = """
import sys
from pathlib import Path
from mpi4py import MPI
import safepoint

comm, how = MPI.COMM_WORLD, sys.argv[1]
try:
    with safepoint.init(comm=comm) as session:
        saved = session.restore()
        print("begin", saved.step if saved else 0, flush=True)
        Path(f"u-{comm.rank}.dat").write_text("1")
        session.hide(1)
        if how == "all":
            if comm.rank == 0:
                Path("u-0.dat").write_text("2")
            session.hide(2)  # the others have none
        if comm.rank == 1 and how == "raises":
            raise ValueError("diverged")
        if comm.rank == 1 and how == "exits":
            sys.exit(7)
        if how == "ends well":
            sys.exit(0)
        comm.Barrier()
except safepoint.MissingFilesError:
    print("caught", flush=True)
comm.Barrier()
"""


@pytest.mark.parametrize(("how", "status", "told"), [
    pytest.param("raises", 1, "ValueError: diverged", marks=pytest.mark.proof),
    ("exits", 7, "SystemExit: 7"),
    pytest.param("all", 0, "", marks=pytest.mark.proof),
    pytest.param("ends well", 0, "", marks=pytest.mark.proof),
])  # fmt: skip
def test_an_exception_on_one_rank_ends_the_job_and_one_on_all_does_not(
    work: Path, how: str, status: int, told: str
) -> None:
    """Its set is durable before; and it is said which rank it was, and why."""
    pytest.importorskip("mpi4py")
    (work / ".safepoint").write_text("u-{rank}.dat\n")
    (work / "program.py").write_text(RANKED)
    command = mpiexec(3, "program.py", how)
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=500)
    assert (done.returncode == 0) == (status == 0), done.stderr
    why = f"safepoint: rank 1 of 3 ends the job, as the others would wait for it: {told}" * bool(told)
    assert why in done.stderr and ("ends the job" in done.stderr) == bool(told), done.stderr
    assert ("Traceback" in done.stderr) == (how == "raises"), done.stderr
    assert done.stdout.count("caught") == (3 if how == "all" else 0)
    if how == "raises":
        again = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=500).stdout
        assert again.count("begin") == again.count("1") == 3, again


FORKS = """
import os, sys, threading
import safepoint
safepoint.init(background=sys.argv[1] == "True")
safepoint.restore()
for step in range(3):
    for k in range(40):
        with open(f"u{k}.dat", "w") as file:
            file.write(str(step))
    safepoint.hide(step=step)
print(threading.active_count(), flush=True)
if (child := os.fork()) == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
safepoint.finish()
"""


def test_without_the_background_there_is_no_thread_of_which_python_would_warn_at_a_fork(work: Path) -> None:
    """The way out that docs/notebooks.md names. Python counts them (3.12 and later)."""
    (work / ".safepoint").write_text("u*.dat\n")
    for background, alone in ((False, True), (True, False)):
        command = [sys.executable, "-W", "error", "-c", FORKS, str(background)]
        environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
        if background and sys.version_info >= (3, 12):
            command[1:3] = []
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and (done.stdout == "1\n") == alone, done
