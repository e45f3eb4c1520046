"""`restore`: files come back as they were, with what the set does not have set aside."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from testbed.faultdisk import FromImage, Killed
from testbed.sessions import ROOT, DeadSaver, Said, Start, contents, kill, ordinary_user, sets, write
from testbed.sweep import ALL, PROOF
from testbed.waiting import wait_for

from safepoint import RefusedFileError, SafepointError, Session
from safepoint.disk import Disk, PageCache
from safepoint.disk.files import freed_later
from safepoint.manifest import parse
from safepoint.restoring import baseline, stage
from safepoint.root import Root

pytestmark = pytest.mark.usefixtures("clean_slate")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is open")


# Files come back as they were.
def test_restore_makes_the_directories_it_needs(start: Start, work: Path) -> None:
    deep = "/".join(f"d{n}" for n in range(60)) + "/u.dat"
    session = start(f"a/b/u.dat\n{deep}\nempty.dat\n")
    (work / deep).parent.mkdir(parents=True)
    (work / deep).write_text("deep")
    write(work, a__b__u_dat="u", empty_dat="")
    before = contents(work)
    session.hide(0)
    session.close()
    for name in ("a/b", "a"):
        (work / name).rmdir()
    os.removedirs((work / deep).parent)
    start()
    assert contents(work) == before


@pytest.mark.parametrize("attribute", ["", "compress", "copy"])
@pytest.mark.parametrize("mode", [0o640, 0o400, 0o755])
def test_modes_and_modification_times_come_back(start: Start, work: Path, mode: int, attribute: str) -> None:
    session = start(f"u.dat {attribute}\n")
    write(work, u_dat="u" * 3000)
    (work / "u.dat").chmod(mode)
    os.utime(work / "u.dat", ns=(1, 1_234_567_890_123_456_789))
    session.hide(0)
    write(work / "other", u_dat="torn")
    (work / "other/u.dat").replace(work / "u.dat")
    session.close()
    start()
    info = (work / "u.dat").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (mode, 1_234_567_890_123_456_789)


NAMES = {
    "spaces": (b"two  words .dat", b'"two  words .dat"'),
    "not ASCII": ("поле-№1 \u0301é.dat".encode(), '"поле-№1 \u0301é.dat"'.encode()),
    "newline": (b"a\nb.dat", rb'"a\nb.dat"'),
    "not UTF-8": (b"caf\xe9-\xff.dat", b"caf\xe9-\xff.dat"),
    "quotes": (b'it\'s "it"\\.dat', rb'"it' + b"'" + rb's \"it\"\\.dat"'),
    "percent": (b"100%s %d.dat", b'"100%s %d.dat"'),
    "glob": (b"[a]*?.dat", b"'[a]*?.dat'"),
    "hash": (b"#1.dat", b'"#1.dat"'),
    "dash": (b"-rf", b"-rf"),
    "dots": (b"...", b"..."),
    "in a directory": ("каталог \xff/x y.dat".encode("latin-1", "replace"), b'"*/x y.dat"'),
}


@pytest.mark.parametrize("attribute", ["", "compress", "copy", "append"])
@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_saved_and_restored(start: Start, work: Path, name: str, attribute: str) -> None:
    raw, listed = NAMES[name]
    session = start(listed + b" " + attribute.encode() + b"\n")
    path = os.path.join(os.fsencode(work), raw)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = b"data " * 100
    with open(path, "wb") as file:
        file.write(data)
    try:
        assert session.hide(0) is not None
    except SafepointError as error:
        pytest.fail(ascii(error))  # not every terminal can print these names
    with open(path, "ab") as file:
        file.write(b"torn")
    session.close()
    session = Session(work)
    point = session.restore()
    session.close()
    with open(path, "rb") as file:
        assert file.read() == data
    assert point is not None and list(map(os.fsencode, point.files)) == [raw]


@pytest.mark.parametrize("attribute", ["", "copy", "append", "compress"])
def test_a_name_may_be_as_long_as_the_file_system_allows(start: Start, work: Path, attribute: str) -> None:
    name = "u" * os.pathconf(work, "PC_NAME_MAX")
    session = start(f"{name} {attribute}\n")
    (work / name).write_text("data " * 100)
    session.hide(0)
    (work / name).write_text("data " * 100 + "torn")
    session.close()
    start()
    assert contents(work) == {name: "data " * 100}


def tree(work: Path) -> Path:
    """A directory with all that may lie in one."""
    top = work / "run.zarr"
    write(top, meta="{}", a__b__0_0="chunk", a__b__0_1="", closed__x="x")
    (top / "empty").mkdir()
    (top / "empty/too").mkdir(mode=0o700)
    (top / "a/latest").symlink_to("b/0.0")
    (top / "a/up").symlink_to("../meta")
    (top / "dangling").symlink_to("not/there")
    (top / "itself").symlink_to(".")
    (top / "meta").chmod(0o600)
    for number, name in enumerate(["closed", "a/b", "a", "empty"], 1):
        os.utime(top / name, ns=(number, number * 10**18))
    (top / "closed").chmod(0o500)
    top.chmod(0o750)
    return top


def attributes(top: Path) -> dict[str, tuple[int, int]]:
    """Mode and time of all but links and the top itself, which the program may see changed by the move."""
    paths = [path for path in top.rglob("*") if not path.is_symlink()]
    return {path.relative_to(top).as_posix(): (path.stat().st_mode, path.stat().st_mtime_ns) for path in paths}


@pytest.mark.parametrize("attribute", ["", "compress", "copy"])
def test_a_directory_comes_back_with_all_that_lies_in_it(start: Start, work: Path, attribute: str) -> None:
    """Empty directories, modes, times, and links that stay inside, as links."""
    session = start(f"run.zarr/ {attribute}\n")
    top = tree(work)
    before, dressed = contents(work), attributes(top)
    assert {"run.zarr/empty/too/", "run.zarr/dangling"} < before.keys()
    session.hide(0)
    assert top.exists() == (attribute == "copy")
    write(top, meta="torn", a__b__0_2="of the lost iteration")
    session.close()
    start()
    assert contents(work) == before
    assert attributes(top) == dressed
    assert stat.S_IMODE(top.stat().st_mode) == 0o750


def test_an_empty_directory_can_be_saved(start: Start, work: Path) -> None:
    session = start("u.dat\nrun.zarr/\n")
    (work / "run.zarr").mkdir()
    write(work, u_dat="0")
    assert session.hide(0) is not None
    session.close()
    start()
    assert contents(work) == {"run.zarr/": "", "u.dat": "0"}


# What the set does not have.
def test_a_program_that_picks_the_latest_by_name_does_not_see_the_lost_iteration(
    start: Start, work: Path, said: Said
) -> None:
    """G1: files that match the manifest and are not of the restored set are set aside; others stay."""
    session = start("fields/*.vtk\n")
    write(work, fields__0001_vtk="1")
    session.hide(1, wait=True)
    write(work, fields__0002_vtk="half", fields__0003_vtk="h", fields__notes_txt="mine", fields___hidden_vtk="mine")
    session.close()
    said.clear()
    start()
    mine = {"fields/notes.txt": "mine", "fields/.hidden.vtk": "mine"}
    assert contents(work) == {"fields/": "", "fields/0001.vtk": "1", **mine}
    assert contents(work / ROOT / "discarded") == {"fields/": "", "fields/0002.vtk": "half", "fields/0003.vtk": "h"}
    moved = f"moved to {ROOT}/discarded: fields/0002.vtk, fields/0003.vtk"
    assert said == [("INFO", f"restored set 1 (step 1): 1 files, 0.0 MB; {moved}")]


def test_time_directories_of_the_lost_iteration_are_set_aside_whole(start: Start, work: Path) -> None:
    session = start("[0-9]*/\n")
    write(work, **{"0__u": "initial", "constant__mesh": "mesh"})
    session.hide(0)
    write(work, **{"0_5__u": "u at 0.5", "0_5__uniform__time": "0.5"})
    session.hide(1, wait=True)
    write(work, **{"1__u": "half", "1__uniform__time": ""})
    session.close()
    start()
    expected = {"0.5/": "", "0.5/u": "u at 0.5", "0.5/uniform/": "", "0.5/uniform/time": "0.5"}
    assert contents(work) == {**expected, "constant/": "", "constant/mesh": "mesh"}
    assert contents(work / ROOT / "discarded") == {"1/": "", "1/u": "half", "1/uniform/": "", "1/uniform/time": ""}


def test_discarded_holds_what_the_last_restore_set_aside_and_no_more(start: Start, work: Path) -> None:
    session = start("*.vtk\n")
    write(work, **{"1_vtk": "1"})
    session.hide(1)
    for lost in ("2", "3"):
        write(work, **{f"{lost}_vtk": "lost"})
        session.close()
        session = start()
        assert contents(work / ROOT / "discarded") == {f"{lost}.vtk": "lost"}
    session.restore()
    assert not (work / ROOT / "discarded").exists()


# Restore and wait in the same life.
def a_restart(work: Path, disk: Disk, torn: bool = True, **options: Any) -> Session:
    """One that finds a set, and in its place another file."""
    (work / ".safepoint").write_text("u.dat\n")
    with Session(work) as first:
        first.restore()
        (work / "u.dat").write_text("saved")
        first.hide(1, wait=True)
        first.close()
    if torn:
        (work / "u.dat").write_text("torn")
    else:
        os.mkfifo(work / "u.dat")
    session = Session(work, disk=disk, **options)
    point = session.restore()
    assert point and point.step == 1
    assert (work / "u.dat").read_text() == "saved" and not (work / ROOT / "stage").exists()
    return session


def open_here() -> list[str]:
    """The files that this process has open, as the kernel names them."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of this look
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def removed_and_open() -> list[str]:
    return [name for name in open_here() if name.endswith("stage/u.dat (deleted)")]


@pytest.fixture
def each_file_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc, to see which files are open")
    names = tmp_path / "one", tmp_path / "other"
    for name in names:
        name.write_text("")
    if Disk().page_cache(str(tmp_path)).mount is None or not Disk().exchange(*map(str, names)):
        pytest.skip("needs a local file system on which two files can exchange their names")
    monkeypatch.setattr(stage, "LARGE", 1)


def seen_by_a_child() -> int:
    """How many files without a name a child has open that is forked now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: a fork beside threads
        child = os.fork()
    if child == 0:
        found = 99
        try:
            found = len(removed_and_open())
        finally:
            os._exit(found)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_is_forked_while_a_thread_closes_a_file_does_not_keep_it(tmp_path: Path) -> None:
    """Python takes a file for closed before the kernel does."""
    path = tmp_path / "stage/u.dat"
    path.parent.mkdir()
    for _ in range(30):
        path.write_bytes(bytes(1 << 20))
        with freed_later(Disk(), [str(path)]):
            path.unlink()
        assert seen_by_a_child() == 0


@pytest.mark.parametrize(
    "why", ["little room", "a network file system", "no regular file", "nothing in the background"]
)
@pytest.mark.usefixtures("each_file_is_large")
def test_restore_waits_for_the_blocks_where_that_is_better(
    work: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    if why == "little room":
        monkeypatch.setattr(stage, "room", lambda path: 5.0)
    if why == "a network file system":
        monkeypatch.setattr(disk, "page_cache", lambda path: PageCache("here", "now", None))
    asked: list[list[str]] = []
    note = lambda disk, paths: asked.append(paths) or freed_later(disk, paths)  # noqa: E731
    monkeypatch.setattr(stage, "freed_later", note)
    session = a_restart(work, disk, torn=why != "no regular file", background=why != "nothing in the background")
    assert asked and not any(asked) and removed_and_open() == []
    session.close()


@pytest.mark.usefixtures("each_file_is_large")
@pytest.mark.parametrize("threads", [True, False])
def test_restore_does_not_wait_for_the_blocks_of_what_it_replaced(
    work: Path, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    """Nor does a worker keep them that the program forks meanwhile. Without a thread it waits."""
    may, bare = threading.Event(), threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name == "safepoint-freer":
            if not threads:
                raise RuntimeError("can't start new thread")
            threading.Thread(target=lambda: may.wait(300) and bare(thread)).start()
        else:
            bare(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    session = a_restart(work, Disk())
    assert len(removed_and_open()) == threads
    assert seen_by_a_child() == 0
    may.set()
    wait_for(lambda: not removed_and_open())
    session.close()


class LeavesNames(Disk):
    """As NFS and some FUSE file systems do: a file that is open when it is removed leaves a name until it is closed."""

    left = 0

    def remove(self, path: str) -> None:
        if path.endswith("stage/u.dat") and path in open_here():
            os.rename(path, f"{path}.hidden")
            self.left += 1
            return
        super().remove(path)


@pytest.mark.usefixtures("each_file_is_large")
def test_where_an_open_file_leaves_a_name_what_restore_replaced_goes_all_the_same(work: Path) -> None:
    disk = LeavesNames()
    session = a_restart(work, disk)
    assert disk.left == 1 and not list((work / ROOT).glob("stage*")) and removed_and_open() == []
    session.close()


def test_restore_in_the_same_life_rolls_back_to_the_last_set(start: Start, work: Path) -> None:
    session = start("u.dat\nhistory.csv append\n*.vtk optional\n")
    for step in range(2):
        write(work, u_dat=str(step), history_csv="row\n" * (step + 1))
        session.hide(step)
    for _ in range(3):
        write(work, u_dat="diverged", history_csv="row\n" * 9, x_vtk="diverged")
        point = session.restore()
        assert point and (point.number, point.step) == (2, 1)
        assert contents(work) == {"u.dat": "1", "history.csv": "row\nrow\n"}
    session.hide(1)
    write(work, u_dat="2", history_csv="row\n" * 3)
    session.hide(2)
    session.close()
    start()
    assert contents(work) == {"u.dat": "2", "history.csv": "row\nrow\nrow\n"}


def test_files_in_place_are_snapshotted_and_given_back_in_place(work: Path) -> None:
    """For programs that go on writing where they were: G1, and the file itself never goes."""
    (work / ".safepoint").write_text("u.dat\n")
    with Session(work, in_place=True) as session:
        session.restore()
        (work / "u.dat").write_text("one")
        inode = (work / "u.dat").stat().st_ino
        session.hide(1, wait=True)
        assert (work / "u.dat").stat().st_ino == inode and (work / "u.dat").read_text() == "one"
        (work / "u.dat").write_text("torn")
        session.close()
    with Session(work, in_place=True) as session:
        saved = session.restore()
        assert saved is not None and saved.step == 1 and (work / "u.dat").read_text() == "one"
        session.close()


@pytest.mark.parametrize("attribute", ["", "copy", "compress"])
def test_a_directory_that_has_the_name_of_a_file_of_the_set_is_set_aside_with_all_it_holds(
    start: Start, work: Path, attribute: str
) -> None:
    session = start(f"u.dat {attribute}\nv.dat\n")
    write(work, u_dat="0" * 200, v_dat="0")
    session.hide(0, wait=True)
    session.close()
    (work / "u.dat").unlink(missing_ok=True)  # a copied one is there still
    write(work, u_dat__notes_txt="mine")
    start()
    assert contents(work) == {"u.dat": "0" * 200, "v.dat": "0"}
    assert contents(work / ROOT / "discarded") == {"u.dat/": "", "u.dat/notes.txt": "mine"}


# What is open before `restore`.


def opened(stack: ExitStack, path: Path, how: str) -> None:
    """Let somebody have this file, or what lies in this directory."""
    if how.endswith("mapping"):
        access = mmap.ACCESS_READ if how.startswith("read") else mmap.ACCESS_WRITE
        with path.open("rb" if how.startswith("read") else "r+b") as file:
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=access))
    elif how in {"child", "orphan"}:
        line = f"exec 7<>'{path}'; sleep 1000 > /dev/null 2>&1 & echo $!" + "; wait" * (how == "child")
        shell = stack.enter_context(subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE))
        assert shell.stdout
        stack.callback(os.kill, int(shell.stdout.readline()), signal.SIGKILL)
        if how == "orphan":
            shell.wait()
    elif how == "working directory":
        shell = stack.enter_context(subprocess.Popen(["sleep", "1000"], cwd=path))
        stack.callback(shell.kill)
        wait_for(lambda: os.readlink(f"/proc/{shell.pid}/cwd") == str(path))
    else:
        flags = {"read": os.O_RDONLY, "O_APPEND": os.O_WRONLY | os.O_APPEND}.get(how, os.O_RDWR)
        stack.callback(os.close, descriptor := os.open(path, flags))
        os.lseek(descriptor, 0, os.SEEK_END if how == "at its end" else os.SEEK_SET)


WRONG, DOUBTFUL, SAFE = "error", "warning", ""
REPLACED = {
    "at its end": WRONG, "O_APPEND": WRONG, "at its beginning": WRONG, "mapping": WRONG, "child": WRONG,
    "read": DOUBTFUL, "read mapping": DOUBTFUL, "orphan": DOUBTFUL,
}  # fmt: skip
CUT = {
    "at its end": WRONG, "mapping": WRONG, "O_APPEND": SAFE, "at its beginning": SAFE, "read": SAFE, "child": SAFE,
    "read mapping": DOUBTFUL,
}  # fmt: skip


@needs_linux
@pytest.mark.parametrize(
    ("entry", "how", "expected"),
    [("run.log copy", *each) for each in REPLACED.items()]
    + [("run.log append", *each) for each in CUT.items()]
    + [("run.log", "O_APPEND", WRONG), ("run.log append copy", "O_APPEND", WRONG)]
    + [("out/", "O_APPEND", WRONG), ("out/ copy", "read", DOUBTFUL), ("out/ copy", "working directory", WRONG)],
)
def test_what_is_open_before_restore_and_cannot_go_on_is_named_before_a_byte_changes(
    start: Start, work: Path, said: Said, entry: str, how: str, expected: str
) -> None:
    """G7: else the rows of the resumed run go to a file that is no longer there, or follow a gap of NUL bytes. What
    only reads, and what is of somebody else, is a warning; O_APPEND on a file that is only cut is safe."""
    file = work / ("out/run.log" if entry.startswith("out") else "run.log")
    file.parent.mkdir(exist_ok=True)
    session = start(f"u.dat\n{entry}\n")
    for step in (0, 1):
        (work / "u.dat").write_text(f"{step}")
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as log:
            log.write(f"row {step}\n" * 2000)
        if step == 0:
            session.hide(step, wait=True)
    kept = {path: path.read_bytes() for path in (file, work / "u.dat")}
    kill(session)
    session = start(restore=False)
    said.clear()
    name = file.relative_to(work).as_posix()
    with ExitStack() as stack:
        opened(stack, file.parent if how == "working directory" else file, how)
        told = rf"{'out' if how == 'working directory' else name} is held by (descriptor|a |the working).* of (this )?"
        if expected == WRONG:
            with pytest.raises(RefusedFileError, match=rf"^set 1 \(step 0\) not restored: {told}process"):
                session.restore()
            assert {path: path.read_bytes() for path in kept} == kept
            assert not (work / ROOT / "stage").exists()
        else:
            session.restore()
            warned = [text for level, text in said if level == "WARNING"]
            assert [bool(re.match(told, text)) for text in warned] == [True] * (expected == DOUBTFUL), warned
    session.restore()
    assert (work / "u.dat").read_text() == "0" and file.read_bytes() == b"row 0\n" * 2000
    assert session.hide(1)


@needs_linux
def test_a_torn_first_file_that_is_open_is_not_set_aside_from_under_the_program(start: Start, work: Path) -> None:
    """There is no set yet: the file of the killed life would go to `discarded/`, with the rows of this one."""
    kill(start("run.log\n"))
    write(work, run_log="torn")
    session = start(restore=False)
    with (work / "run.log").open("a"), pytest.raises(RefusedFileError, match=r"run\.log is held by descriptor"):
        session.restore()
    assert contents(work) == {"run.log": "torn"}
    assert session.restore() is None and contents(work) == {}


@needs_linux
def test_what_was_listed_when_a_first_run_began_may_be_open(start: Start, work: Path, said: Said) -> None:
    """As by logging.basicConfig(filename=…) at import: nothing is to be given back."""
    with (work / "run.log").open("a"):
        session = start("u.dat\nrun.log copy\n")
        assert not [text for level, text in said if level == "WARNING"]
        write(work, u_dat="0")
        session.hide(0, wait=True)


def test_a_table_of_each_rank_is_cut_and_not_replaced_before_the_first_set(work: Path) -> None:
    """So whoever has it open with O_APPEND may go on, on each rank."""
    root, manifest = Root(str(work), 1, 2, 0), parse("log-{rank}.txt append\n").owned_by(1, 2, 0)
    os.makedirs(root.path)
    (work / "log-1.txt").write_text("a")
    baseline.note_baseline(root, manifest)
    (work / "log-1.txt").write_text("and more")
    ((path, _, length),) = baseline.touched(root, manifest)
    assert (path, length) == ("log-1.txt", 1)


@needs_linux
def test_a_file_of_a_set_that_is_to_be_completed_must_not_be_open(start: Start, work: Path) -> None:
    """The process died between two renames: the other file moves into the set now, under whoever has opened it."""
    session = start("a.dat\nb.dat\n")
    write(work, a_dat="0", b_dat="0")
    session.hide(0, wait=True)
    write(work, a_dat="1", b_dat="1")
    session._work.thread = DeadSaver()  # type: ignore[assignment]
    session.hide(1)
    (work / ROOT / "set-00000002/files/b.dat").rename(work / "b.dat")
    kill(session)
    session = start(restore=False)
    with (work / "b.dat").open("a"), pytest.raises(RefusedFileError, match=r"b\.dat is open for writing \(descriptor"):
        session.restore()
    point = session.restore()
    assert point and point.step == 1 and contents(work) == {"a.dat": "1", "b.dat": "1"}


@pytest.mark.parametrize("files", [False, True])
def test_what_no_rename_moves_comes_back_piece_by_piece_killed_at_any_operation(tmp_path: Path, files: bool) -> None:
    """G1, G3: a directory of a container's image, or another mount. What was in place is in `discarded/`, all of it."""
    seed, lost = tmp_path / "seed", {"u.dat": "torn", "st/a": "torn", "st/sub/b": "torn", "st/sub/c": "more"}
    seed.mkdir()
    (seed / ".safepoint").write_text("st/ copy\nu.dat copy\n")
    with contextlib.closing(Session(seed)) as session:
        write(seed, u_dat="1", st__a="1", st__sub__b="1")
        (seed / "st/latest").symlink_to("a")
        session.hide(1, wait=True)
    whole = contents(seed)
    for name, text in lost.items():
        (seed / name).write_text(text)
    for at in itertools.count(0, 1 if ALL else 5 if PROOF else 31):
        work = tmp_path / f"{at}"
        shutil.copytree(seed, work, symlinks=True)
        disk = FromImage(work, files=files, kill_at=at)
        with suppress(Killed), contextlib.closing(Session(work, disk=disk)) as session:
            session.restore()
        disk.end()
        there = [(path.name, path.read_text()) for path in work.rglob("*") if path.is_file()]
        assert {(Path(name).name, text) for name, text in lost.items() if "/" in name} <= set(there), at
        with contextlib.closing(Session(work, disk=FromImage(work, files=files))) as session:
            saved = session.restore()
            assert saved and saved.step == 1, at
        assert contents(work) == whole, at
        if at >= len(disk.record.ops):
            break
        shutil.rmtree(work)


def test_sets_of_an_image_go_where_they_are(work: Path, start: Start, said: Said) -> None:
    """A container that begins with sets in it: newer ones are passed over, and older ones pruned."""
    session = start("u.dat\n")
    for step in (1, 2):
        write(work, u_dat=str(step))
        session.hide(step, wait=True)
    session.close()
    (work / ROOT / "set-00000002/record.json").write_text("damaged")
    session = Session(work, disk=FromImage(work))
    with contextlib.closing(session):
        saved = session.restore()
        assert saved and saved.step == 1
        for step in (2, 3, 4):
            write(work, u_dat=str(step))
            session.hide(step, wait=True)
    assert sets(work) == [3, 4] and not [text for level, text in said if "not removed" in text]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to be somebody else")
@pytest.mark.parametrize("entry", ["st/u.dat copy", "st/ copy"])
def test_what_restore_could_not_put_back_is_refused_by_the_first_hide(work: Path, entry: str) -> None:
    """A file that may be written, in a directory in which no name can be changed."""
    write(work, st__u_dat="1")
    with ordinary_user(work, work / "st/u.dat"):
        (work / ".safepoint").write_text(f"{entry}\n")
        session = Session(work)
        with pytest.raises(RefusedFileError, match=rf"restore could put nothing else .*no names in {work}/st "):
            session.hide(1)
        session.close()
