"""What a serial program sees: the verbs, the kinds of files, what is said, what is refused, and what stays."""

from __future__ import annotations

import collections
import errno
import json
import logging
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from faultdisk import FaultDisk, images
from program import LateSaver

import safepoint
import safepoint.disk
from safepoint import (
    LockedError,
    ManifestError,
    MissingFilesError,
    RefusedFileError,
    SafepointError,
    SaveError,
    SavePoint,
    Session,
    UsageError,
    save,
    store,
)
from safepoint.disk import NONE, Disk, Place, SyncFailed
from safepoint.record import Record, Root
from safepoint.restore import verify

ROOT = ".safepoint.d/rank-00000"
NOBODY = 65534
Start = Callable[..., Session]
Said = list[tuple[str, str]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


class DeadSaver:
    """The process dies before its saver thread begins."""

    def submit(self, job: object, taken: object) -> Future[Any]:
        return Future()

    def stop(self) -> None:
        pass


def kill(session: Session) -> None:
    """What the death of the process leaves: no lock, and a set in flight as it is."""
    session._flight = None
    session._close("it was killed")


@pytest.fixture
def start(work: Path) -> Iterator[Start]:
    """Begins a life of the program: a manifest, a session, a restore. At the end no committed set may be damaged."""
    sessions: list[Session] = []

    def begin(manifest: str | bytes = "", *, where: Path = work, restore: bool = True, **options: Any) -> Session:
        if manifest:
            (where / ".safepoint").write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
        session = Session(where, **options)
        sessions.append(session)
        if restore:
            session.restore()
        return session

    yield begin
    for session in sessions:
        if isinstance(session._thread, DeadSaver):
            kill(session)
        with suppress(SafepointError):
            session.close()
    states = verify(Disk(), Root(os.path.realpath(work)))
    assert set(states.values()) <= {"committed", "uncommitted"}, states


@pytest.fixture
def said() -> Iterator[Said]:
    """Level and text of what was logged so far, from INFO on; a test may clear it."""
    heard: Said = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append((record.levelname, record.getMessage()))

    logger, hearing = logging.getLogger("safepoint"), Hearing()
    logger.addHandler(hearing)
    logger.setLevel(logging.INFO)
    yield heard
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(hearing)


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No default session goes from one test to the next."""
    monkeypatch.setattr(safepoint, "_default", None)
    monkeypatch.setattr(safepoint, "_refused", "", raising=False)
    yield
    if safepoint._default is not None:
        with suppress(SafepointError):
            safepoint._default.close()


def write(directory: Path, **files: str | bytes) -> None:
    """`u_dat="…"` writes u.dat, `sub__v_dat` sub/v.dat; history.csv only ever grows."""
    for key, given in files.items():
        path = directory / key.replace("__", "/").replace("_", ".")
        data = given if isinstance(given, bytes) else given.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        grows = path.name == "history.csv" and path.exists()
        with path.open("ab" if grows else "wb") as file:
            file.write(data[path.stat().st_size :] if grows else data)


def contents(directory: Path) -> dict[str, str]:
    """What W holds without the manifest and the side directory: files with their text, links with their target."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name.split("/")[0] in (".safepoint", ".safepoint.d"):
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            found[name + "/"] = ""
        else:
            found[name] = path.read_text(errors="replace") if path.is_file() else "special"
    return found


def sets(work: Path) -> list[int]:
    """The numbers of the committed sets."""
    return sorted(int(path.parent.name[4:]) for path in (work / ROOT).glob("set-*/record.json"))


def events(work: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (work / ROOT / "log.jsonl").read_text().splitlines()]


@contextmanager
def ordinary_user(*directories: Path) -> Iterator[None]:
    """Without the powers of root, to whom no permission matters."""
    if os.geteuid() != 0:
        yield
        return
    for directory in directories:
        os.chown(directory, NOBODY, NOBODY)
    directories[0].parent.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# The loop.


class Death(Exception):
    pass


def the_loop(work: Path, n: int, *, dies_at: int = -1, torn: bool = False) -> int | None:
    """The program of the documentation; the step that it began with."""
    safepoint.init(work)
    saved = safepoint.restore()
    path = work / "u.dat"
    u = int(path.read_text()) if saved else 0
    for step in range(saved.step if saved and saved.step else 0, n):
        safepoint.hide(step=step)
        u += 1
        if step == dies_at:
            if torn:
                path.write_text("7")
            raise Death
        path.write_text(str(u))
    safepoint.finish(step=n)
    return saved.step if saved else None


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("dies_at", range(4))
def test_the_loop_of_the_documentation_goes_on_where_it_died(work: Path, dies_at: int, torn: bool) -> None:
    """G1: whether it dies before or inside of writing its files, no step is lost, and the result is the same."""
    (work / ".safepoint").write_text("u.dat\n")
    with pytest.raises(Death):
        the_loop(work, 4, dies_at=dies_at, torn=torn)
    assert safepoint._default
    safepoint._default.close()
    assert the_loop(work, 4) == (dies_at if dies_at else None)  # at step 0 there were no files to hide
    assert contents(work) == {"u.dat": "4"}
    assert the_loop(work, 4) == 4
    assert contents(work) == {"u.dat": "4"}


def written_loop(page: str) -> str:
    """The program that README, or the docstring of the package, shows first."""
    if page == "docstring":
        text = textwrap.dedent((safepoint.__doc__ or "").partition("\n\n")[2].partition("Kill the program")[0])
    else:
        text = (Path(__file__).parents[1] / page).read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert "safepoint.init()" in text and "range(saved.step if saved else 0, n)" in text
    return text


def in_a_block(text: str) -> str:
    """The same program with a `with` block, which finishes by itself."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("safepoint.init()"))
    rest = [f"    {line}" for line in lines[begin + 1 :] if not line.startswith("safepoint.finish(")]
    return "\n".join([*lines[:begin], "with safepoint.init():", *rest])


@pytest.mark.parametrize("shape", ["plain", "block"])
@pytest.mark.parametrize("page", ["README.md", "docstring"])
def test_the_loop_of_the_page_can_be_started_again_whenever_it_ended(work: Path, page: str, shape: str) -> None:
    """G4: killed in the middle, started again, finished, and started twice more: it is right, and has no error."""
    (work / ".safepoint").write_text("u.dat\n")
    text = written_loop(page) if shape == "plain" else in_a_block(written_loop(page))
    prelude = """
import os, signal, sys
n, dies_at = 5, int(sys.argv[1])
def initial(): return 0
def read_files(): return int(open("u.dat").read())
def advance(u):
    if u == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return u + 1
def write_files(u):
    with open("u.dat", "w") as file:
        file.write(str(u))
"""
    statuses, results = [], []
    for dies_at in (2, 4, -1, -1, -1):
        command = [sys.executable, "-c", prelude + text, str(dies_at)]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=60)
        statuses.append((done.returncode, done.stderr))
        results.append(contents(work))
    assert statuses == [(-signal.SIGKILL, ""), (-signal.SIGKILL, ""), (0, ""), (0, ""), (0, "")]
    assert results[2:] == [{"u.dat": "5"}] * 3


def test_files_written_after_the_last_set_are_no_result_of_its_step(start: Start, work: Path, said: Said) -> None:
    """G4: a result that nobody gave a step has none; the files of the last set, put back, have its step."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(7)
    write(work, u_dat="later")
    session.finish()
    assert said[-1] == ("INFO", "finished: 1 files in place, newer than set 1 (step 7), so the result has no step")
    said.clear()
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (None, True)
    assert said == [("INFO", "the run was finished; its files are left alone")]


@pytest.mark.parametrize("verb", [safepoint.restore, safepoint.hide, safepoint.wait, safepoint.finish])
def test_a_verb_before_init_says_what_to_call(verb: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=rf"{verb.__name__} before init: call safepoint.init\(\) first"):
        verb()


def test_nothing_to_hide_is_normal_once_and_suspicious_twice(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\nfields/*.vtk\n")
    said.clear()
    assert session.hide(0) is None
    assert session.hide(1) is None
    text = "nothing to hide: none of these files exists: u.dat, fields/*.vtk"
    assert said == [("INFO", text), ("WARNING", text)]
    assert sets(work) == []


def test_nothing_to_hide_is_suspicious_at_once_when_a_set_was_saved(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    said.clear()
    assert session.hide(1) is None
    assert said == [("WARNING", "nothing to hide: none of these files exists: u.dat")]


def test_nothing_to_hide_again_and_again_grows_loud_in_few_lines(start: Start, work: Path, said: Said) -> None:
    """What is wrong is the manifest, most often: the files that did change are named."""
    write(work, old_dat="before the start")
    os.utime(work / "old.dat", ns=(0, 0))
    time.sleep(0.02)  # a file system counts time in ticks
    session = start("u.dat\nnotes.txt append\n")
    said.clear()
    for step in range(1000):
        assert session.hide(step) is None
        if step == 0:
            write(
                work, v_dat="0", notes_txt="n", out__w_h5="0", out__x_h5="0", **{f"field{k}_vtk": "0" for k in range(5)}
            )
            (work / ".hidden").write_text("h")
    text = "nothing to hide: none of these files exists: u.dat, notes.txt"
    changed = "changed since the start: field0.vtk, field1.vtk, field2.vtk, field3.vtk, field4.vtk and more"
    remedy = "list in .safepoint what is to be saved"
    row = [
        ("ERROR", text.replace(":", f", {n} times in a row:", 1) + f"; {changed}: {remedy}") for n in (10, 100, 1000)
    ]
    assert said == [("INFO", text), ("WARNING", f"{text}; {changed}: {remedy}"), *row]


def test_a_program_that_hides_more_often_than_it_writes_is_told_so_once(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\n")
    for step in range(60):
        if step % 3 == 0:
            write(work, u_dat=str(step))
        session.hide(step)
    told = [level for level, text in said if text.startswith("nothing to hide")]
    assert told == ["WARNING", "ERROR"]
    said.clear()
    for step in range(60, 75):
        write(work, v_dat=str(step))
        session.hide(step)
    (text,) = [text for level, text in said if level == "ERROR"]
    assert "10 times in a row" in text and "changed since set 20 (step 57): v.dat: list in" in text


def test_the_look_for_what_did_change_is_bounded(start: Start, work: Path, said: Said) -> None:
    class Counting(Disk):
        looks = 0

        def stat(self, path: str) -> os.stat_result:
            self.looks += 1
            return super().stat(path)

    disk = Counting()
    session = start("u.dat\n", disk=disk)
    for name in range(5000):
        (work / f"{name}.vtk").touch()
    session.hide(0)
    disk.looks = 0
    session.hide(1)
    assert disk.looks <= 2100 and "changed since the start: " in said[-1][1]


def test_all_missing_files_are_named_and_nothing_is_moved(start: Start, work: Path) -> None:
    session = start("a.dat\nb.dat\nc/*.vtk\nd.dat optional\ne.dat\n")
    write(work, a_dat="a", e_dat="e")
    with pytest.raises(MissingFilesError) as caught:
        session.hide(0)
    assert str(caught.value) == "missing: b.dat (line 2), c/*.vtk (line 3), though a.dat exists; nothing was moved"
    assert contents(work) == {"a.dat": "a", "e.dat": "e"}
    write(work, b_dat="b", c__1_vtk="1")
    assert session.hide(0) is not None


def test_optional_files_are_saved_if_they_are_there_and_not_missed_if_not(start: Start, work: Path) -> None:
    session = start("u.dat\nnotes.txt optional\n")
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1", notes_txt="n1")
    session.hide(1, wait=True)
    session.close()
    session = start()
    assert contents(work) == {"u.dat": "1", "notes.txt": "n1"}


def test_an_optional_file_that_a_set_did_not_have_is_set_aside(start: Start, work: Path) -> None:
    session = start("u.dat\nnotes.txt optional\n")
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1", notes_txt="of the lost iteration")
    session.close()
    start()
    assert contents(work) == {"u.dat": "0"}
    assert contents(work / ROOT / "discarded") == {"notes.txt": "of the lost iteration"}


def test_files_that_stay_in_place_do_not_make_a_set_when_all_moved_ones_are_absent(start: Start, work: Path) -> None:
    """After `hide` the append and copy files are still there: hiding again would save a set without the rest."""
    session = start("u.dat\nhistory.csv append\nparams.db copy\n")
    write(work, history_csv="row 0\n", params_db="p")
    assert session.hide(0) is None
    write(work, u_dat="0")
    assert session.hide(0) is not None
    assert session.hide(1) is None
    assert sets(work) == [1]


def test_a_manifest_of_files_that_stay_in_place_makes_sets(start: Start, work: Path) -> None:
    session = start("history.csv append\nparams.db copy\n")
    for step in range(3):
        write(work, history_csv="row\n" * step, params_db=str(step))
        session.hide(step, wait=True)
    write(work, history_csv="row\n" * 9, params_db="torn")
    session.close()
    start()
    assert contents(work) == {"history.csv": "row\nrow\n", "params.db": "2"}


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


@pytest.mark.parametrize("attribute", ["", "compress", "copy"])
@pytest.mark.parametrize("closed", ["run.zarr", "run.zarr/inner"])
def test_a_directory_without_write_permission_is_saved_whole_or_refused_at_once(
    start: Start, work: Path, closed: str, attribute: str, said: Said
) -> None:
    """To move it to another parent its owner needs that permission. No third case: what `hide` took comes back."""
    (work / ".safepoint").write_text(f"run.zarr/ {attribute}\nkeep = 1\n")
    with ordinary_user(work):
        session = start()
        try:
            for step in range(3):
                top = work / "run.zarr"
                if top.exists():
                    (work / closed).chmod(0o755)
                write(top, inner__x=str(step) * 100)
                (work / closed).chmod(0o555)
                session.hide(step, wait=True)
        except SaveError as error:
            assert "run.zarr: Permission denied" in str(error)
            assert contents(work)["run.zarr/inner/x"] == "0" * 100
            return
        finally:
            session.close()
        assert sets(work) == [3]
        assert [level for level, _ in said if level != "INFO"] == []
        start()
        assert contents(work) == {"run.zarr/": "", "run.zarr/inner/": "", "run.zarr/inner/x": "2" * 100}


OUTSIDE = {
    "above": "../u.dat",
    "far above": "../../../etc/hostname",
    "absolute": "/etc/hostname",
    "side": "../.safepoint",
}


@pytest.mark.parametrize("target", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_a_link_that_leads_out_of_its_directory_is_refused(
    start: Start, work: Path, target: str, attribute: str
) -> None:
    """What it points to would not be saved. All files are back in place."""
    session = start(f"u.dat\nrun.zarr/ {attribute}\n")
    write(work, u_dat="u", run_zarr__meta="{}")
    (work / "run.zarr/link").symlink_to(target)
    before = contents(work)
    with pytest.raises(SafepointError, match=f"run.zarr/link is a symbolic link that leads out .* to {target}"):
        session.hide(0)
    assert contents(work) == before
    (work / "run.zarr/link").unlink()
    assert session.hide(0) is not None


def make_special(path: Path, kind: str) -> None:
    if kind == "symlink":
        path.symlink_to("other.dat")
    elif kind == "dangling symlink":
        path.symlink_to("not there")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path.mkdir()


REFUSED = {
    "symlink": "s.dat is a symbolic link, and what it points to would not be saved: list that instead",
    "dangling symlink": "s.dat is a symbolic link, and what it points to would not be saved: list that instead",
    "fifo": "s.dat is a fifo, which cannot be saved: only files and directories can",
    "socket": "s.dat is a socket, which cannot be saved: only files and directories can",
    "directory": "s.dat is a directory: list it as s.dat/ to save it whole",
}


@pytest.mark.parametrize("attribute", ["", "copy", "append", "optional"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_refused_by_name_and_nothing_is_moved(
    start: Start, work: Path, kind: str, attribute: str
) -> None:
    session = start(f"a.dat\nparams.db copy\ns.dat {attribute}\nz.dat\n")
    write(work, a_dat="a", params_db="p", z_dat="z", other_dat="o")
    make_special(work / "s.dat", kind)
    before = contents(work)
    with pytest.raises(RefusedFileError) as caught:
        session.hide(0)
    assert str(caught.value) == REFUSED[kind]
    assert contents(work) == before
    assert list((work / ROOT).glob("set-*")) == []


def test_a_file_listed_as_a_directory_is_refused(start: Start, work: Path) -> None:
    session = start("u.dat/\n")
    write(work, u_dat="u")
    with pytest.raises(RefusedFileError, match=r"^u\.dat is not a directory: list it without the trailing slash$"):
        session.hide(0)


@pytest.mark.parametrize("kind", ["fifo", "socket"])
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_a_pipe_in_a_directory_is_refused_and_all_is_back(start: Start, work: Path, kind: str, attribute: str) -> None:
    session = start(f"u.dat\nrun.zarr/ {attribute}\n")
    write(work, u_dat="u")
    (work / "run.zarr").mkdir()
    make_special(work / "run.zarr/s", kind)
    before = contents(work)
    with pytest.raises(SafepointError, match=rf"run\.zarr/s is a {kind}, which cannot be saved"):
        session.hide(0)
    assert contents(work) == before


def test_a_file_in_a_directory_that_is_elsewhere_by_a_link_is_refused(start: Start, work: Path, tmp_path: Path) -> None:
    session = start("out/u.dat\n")
    write(tmp_path, elsewhere__u_dat="u")
    (work / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedFileError, match=f"^out/ leads outside the working directory, to {tmp_path}/elsewhere$"):
        session.hide(0)
    assert (tmp_path / "elsewhere/u.dat").read_text() == "u"


def test_a_file_in_a_directory_that_is_a_link_within_the_working_directory_is_saved(start: Start, work: Path) -> None:
    session = start("now/u.dat\n")
    write(work, run_1__u_dat="u")
    (work / "now").symlink_to("run.1")
    session.hide(0)
    session.close()
    start()
    assert contents(work) == {"now": "-> run.1", "run.1/": "", "run.1/u.dat": "u"}


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


# Kinds of entries.


def test_an_append_file_is_cut_back_and_has_no_row_twice(start: Start, work: Path) -> None:
    def add(step: int) -> None:
        with (work / "history.csv").open("a") as file:
            file.write(f"row {step}\n")

    manifest = "u.dat\nhistory.csv append\n"
    step = 0
    for lost_rows in (0, 1, 3):
        session = start(manifest)
        for _ in range(2):
            step += 1
            write(work, u_dat=str(step))
            add(step)
            session.hide(step)
        session.wait()
        inode = (work / "history.csv").stat().st_ino
        for n in range(lost_rows):
            add(step + 1 + n)
        with (work / "history.csv").open("a") as file:
            file.write("ro")
        session.close()
    start(manifest)
    assert contents(work) == {"u.dat": "6", "history.csv": "".join(f"row {k}\n" for k in range(1, 7))}
    assert (work / "history.csv").stat().st_ino == inode  # in place, never copied
    assert list((work / ROOT).glob("set-*/files/history.csv")) == []


def test_a_compressed_file_is_kept_as_zstd_only_and_comes_back_by_byte(start: Start, work: Path) -> None:
    session = start("fields/big.dat compress=9\n")
    write(work, fields__big_dat="much the same\n" * 10_000)
    session.hide(0)
    kept = work / ROOT / "set-00000001"
    assert (kept / "packed/fields/big.dat.zst").stat().st_size < 1000
    assert (kept / "packed/fields/big.dat.zst").read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    assert not (kept / "files/fields/big.dat").exists()
    session.close()
    start()
    assert contents(work) == {"fields/": "", "fields/big.dat": "much the same\n" * 10_000}


def test_a_file_that_does_not_shrink_is_kept_as_it_is(start: Start, work: Path) -> None:
    noise = os.urandom(50_000)
    session = start("u.dat compress\nempty.dat compress\n")
    write(work, u_dat=noise, empty_dat="")
    session.hide(0)
    kept = work / ROOT / "set-00000001"
    assert (kept / "files/u.dat").read_bytes() == noise
    assert list(kept.rglob("*.zst")) == []
    session.close()
    start()
    assert (work / "u.dat").read_bytes() == noise


@pytest.mark.parametrize("name", ["params.db", "params.db/"])
def test_a_copied_entry_stays_and_what_the_program_does_to_it_later_does_not_reach_the_set(
    start: Start, work: Path, name: str
) -> None:
    session = start(f"{name} copy\n")
    path = work / "params.db" / ("data" if name.endswith("/") else "")
    path.parent.mkdir(exist_ok=True)
    path.write_text("at the save point")
    inode = path.stat().st_ino
    session._thread = DeadSaver()  # type: ignore[assignment]  # not even before the saver has read it
    for step in range(2):
        session.hide(step)
    assert path.stat().st_ino == inode
    with path.open("r+") as file:
        file.write("changed")
    assert len(list((work / ROOT).glob("set-*/files/params.db"))) == 2
    kill(session)
    start()
    assert path.read_text() == "at the save point"


def test_a_file_that_is_open_for_writing_is_snapshotted_and_named_once(start: Start, work: Path, said: Said) -> None:
    """A rename would let the program write on into the set."""
    session = start("u.dat\nv.dat\n")
    with (work / "u.dat").open("w") as file:
        said.clear()
        for step in range(3):
            write(work, v_dat=str(step))
            file.write(f"row {step}\n")
            file.flush()
            session.hide(step, wait=True)
            assert contents(work) == {"u.dat": "".join(f"row {k}\n" for k in range(step + 1))}
        file.write("of the lost iteration")
    warned = [text for level, text in said if level == "WARNING"]
    assert warned == ["u.dat is still open for writing: saved as a snapshot of what was flushed so far"]
    session.close()
    start()
    assert contents(work) == {"u.dat": "row 0\nrow 1\nrow 2\n", "v.dat": "2"}


def test_a_large_file_that_is_open_for_writing_is_refused_and_nothing_is_moved(start: Start, work: Path) -> None:
    session = start("a.dat\nu.dat\ncopy_open_below = 1 KiB\n")
    write(work, a_dat="a")
    with (work / "u.dat").open("wb") as file:
        file.write(bytes(1024))
        file.flush()
        assert session.hide(0) is not None  # up to this size
        write(work, a_dat="a")
        file.write(b"!")
        file.flush()
        file_number = file.fileno()
        with pytest.raises(RefusedFileError) as caught:
            session.hide(1)
    advice = "close it before hide, or mark it copy or append"
    who = f"descriptor {file_number} of this process"
    told = f"u.dat is still open for writing ({who}), and its 1025 bytes are over copy_open_below (1024): {advice}"
    assert str(caught.value) == told
    assert contents(work).keys() == {"a.dat", "u.dat"}
    assert session.hide(1) is not None  # closed now
    assert contents(work) == {}


@pytest.mark.parametrize("attribute", ["copy", "append"])
def test_a_file_marked_copy_or_append_may_be_open_for_writing(
    start: Start, work: Path, attribute: str, said: Said
) -> None:
    session = start(f"u.dat {attribute}\ncopy_open_below = 1\n")
    said.clear()
    with (work / "u.dat").open("w") as file:
        file.write("row 0\n")
        file.flush()
        session.hide(0, wait=True)
        file.write("row 1\n")
    assert [level for level, _ in said] == ["INFO"]
    session.close()
    start()
    assert contents(work) == {"u.dat": "row 0\n"}


# How many sets, and their labels.


KEPT = {
    "the default": ("", None, 2),
    "manifest 1": ("keep = 1\n", None, 1),
    "manifest 3": ("keep=3\n", None, 3),
    "argument 1": ("", 1, 1),
    "argument 3": ("", 3, 3),
    "the argument wins": ("keep = 1\n", 4, 4),
    "the argument wins downwards": ("keep = 4\n", 1, 1),
}


@pytest.mark.parametrize(("setting", "keep", "expected"), KEPT.values(), ids=KEPT)
def test_exactly_so_many_sets_are_kept(start: Start, work: Path, setting: str, keep: int | None, expected: int) -> None:
    session = start(f"u.dat\n{setting}", keep=keep)
    for step in range(6):
        write(work, u_dat=str(step))
        session.hide(step)
        session.wait()
        newest = step + 1
        assert sets(work) == list(range(max(1, newest - expected + 1), newest + 1))
    directories = {path.name for path in (work / ROOT).glob("*-0*")}
    assert directories - {"set-00000007"} == {f"set-{n:08d}" for n in sets(work)}  # 7: made ahead for the next one
    session.close()
    session = start(keep=1)
    assert contents(work) == {"u.dat": "5"}
    session.hide(6)
    session.wait()
    assert sets(work) == [7]


def test_keeping_no_set_is_an_error(start: Start, work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\n")
    for keep in (0, -1):
        with pytest.raises(UsageError, match=f"^keep must be at least 1, not {keep}"):
            start(keep=keep)
    with pytest.raises(UsageError, match="keep must be an integer"):
        start(keep=1.5)
    with pytest.raises(ManifestError, match="keep takes a whole number from 1, or all, not 0"):
        start("u.dat\nkeep = 0\n")
    assert not (work / ".safepoint.d").exists()


class Index:
    """As the integers of numpy are."""

    def __index__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "an object with __index__"


@pytest.mark.parametrize(
    ("given", "step"), [(None, None), (0, 0), (Index(), 7), (-3, -3), (2**70, 2**70), (True, 1)], ids=repr
)
def test_a_step_is_any_integer_or_none(start: Start, work: Path, given: Any, step: int | None, said: Said) -> None:
    session = start("u.dat\n")
    write(work, u_dat="u")
    point = session.hide(given)
    assert point and point.step == step and type(point.step) is type(step if step is None else 0)
    label = "set 1" if step is None else f"set 1 (step {step})"
    assert said[-1][1].startswith(f"saved {label}: 1 files, 0.0 MB in ")
    session.close()
    session = start(restore=False)
    restored = session.restore()
    assert restored and restored.step == step
    session.finish(given)
    finished = start(restore=False).restore()
    assert finished and finished.finished and finished.step == step


@pytest.mark.parametrize(
    ("step", "shown"),
    [(2.0, "2.0"), (float("nan"), "nan"), ("3", "'3'"), (b"1", "b'1'"), ([1], "[1]"), (10**5000, "a number")],
    ids=["float", "nan", "text", "bytes", "list", "endless"],
)
def test_a_step_that_is_no_integer_is_named_and_nothing_is_changed(
    start: Start, work: Path, step: Any, shown: str
) -> None:
    session = start("u.dat\nledger = modify\n")
    write(work, u_dat="u")
    for verb in (session.hide, session.finish, lambda given: session.watch(given, u=1)):
        with pytest.raises(UsageError, match=rf"^(hide|finish|watch): step must be an integer.*{re.escape(shown)}"):
            verb(step)
    assert contents(work) == {"u.dat": "u"} and sets(work) == []
    assert session.hide(1) is not None


@pytest.mark.parametrize(
    ("options", "name"),
    [({"keep": 2.0}, "keep"), ({"keep": "3"}, "keep"), ({"saver": 0.0}, "saver"), ({"signals": 10}, "signals"),
     ({"signals": [1.5]}, "signals"), ({"directory": 7}, "directory"), ({"directory": "a\0b"}, "directory")],
    ids=repr,
)  # fmt: skip
def test_an_option_of_init_that_is_of_the_wrong_kind_is_named(work: Path, options: dict[str, Any], name: str) -> None:
    """README: every error is one of safepoint, with a code."""
    (work / ".safepoint").write_text("u.dat\n")
    with pytest.raises(UsageError, match=name):
        safepoint.init(**{"directory": work, **options})
    assert [path.name for path in work.iterdir()] == [".safepoint"]


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
    session._thread = DeadSaver()  # type: ignore[assignment]
    write(work, u_dat="1")
    session.hide(1)
    assert in_a_child(session.close) == (0, "no error")
    with pytest.raises(LockedError):
        start()
    kill(session)


def test_a_block_that_ends_normally_finishes(start: Start, work: Path) -> None:
    """G4."""
    with start("u.dat\n") as session:
        write(work, u_dat="0")
        session.hide(0)
        write(work, u_dat="1")
    assert (work / ".safepoint.d/finished.json").exists()
    point = start(restore=False).restore()
    assert point and point.finished
    assert contents(work) == {"u.dat": "1"}


@pytest.mark.parametrize("death", [Death, KeyboardInterrupt, SystemExit])
def test_a_block_that_ends_by_an_exception_keeps_the_sets(start: Start, work: Path, death: type[BaseException]) -> None:
    with pytest.raises(death), start("u.dat\n") as session:
        for step in range(2):
            write(work, u_dat=str(step))
            session.hide(step)
        write(work, u_dat="torn")
        raise death
    assert sets(work) == [1, 2]  # the one in flight was waited for
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, False)
    assert contents(work) == {"u.dat": "1"}


def test_a_block_that_the_program_finished_itself_ends_quietly(start: Start, work: Path) -> None:
    with start("u.dat\n") as session:
        write(work, u_dat="0")
        session.finish(0)


def test_a_second_session_in_the_same_process_is_told_that_it_is_this_process(start: Start, work: Path) -> None:
    """G8: as when a notebook cell is run twice."""
    session = start("u.dat\n")
    before = sorted(work.rglob("*"))
    with pytest.raises(LockedError) as caught:
        start()
    assert "this very process, by an earlier init: use that session, or close() it" in str(caught.value)
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
    with pytest.raises(LockedError, match="by an earlier init: use that session"):
        safepoint.init(os.path.relpath(work))  # the same one: as good as going back to it
    write(work, u_dat="1")
    assert safepoint.hide(1) is not None
    safepoint.finish()
    (work / ".safepoint").unlink()
    with pytest.raises(ManifestError):
        safepoint.init(work)
    with pytest.raises(UsageError, match="hide after an init that failed"):
        safepoint.hide(2)


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
        f"cannot set up .safepoint.d: .safepoint.d/rank-00000/lock: Permission denied ({side} belongs to root, with "
        f"mode 0755, and this process to {me}: start it as root, or as root give it over by chown -R {me} {side}); "
        f"set 1 (step 7) is intact; the listed files are untouched"
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


class NoRoom(Disk):
    """A disk that is full, once, for what is written or made under a name that ends so."""

    full = ""

    def _check(self, path: str) -> None:
        if self.full and path.endswith(self.full):
            self.full = ""
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def append(self, path: str, data: bytes) -> None:
        self._check(path)
        super().append(path, data)

    def write(self, path: str, data: bytes) -> None:
        self._check(path)
        super().write(path, data)

    def mkdir(self, path: str) -> None:
        self._check(path)
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        super().rename(source, target)

    def duplicate(self, source: Any, target: Any) -> None:
        self._check(source.name)
        super().duplicate(source, target)

    def sync_files(self, paths: Any, opened: Any = ()) -> None:
        for path in paths:
            self._check(path)
        super().sync_files(paths, opened)


NO_ROOM = {
    "taken.json": ("hide", "set 2 (step 1) not taken: ", "set 1 (step 0) is intact; the files are where they were"),
    "files/sub": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "params.db": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "u.dat": ("hide", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; the files are where they were"),
    "record.json.new": ("wait", "set 2 (step 1) not stored: ", "set 1 (step 0) is intact; its files are back in place"),
    "finished.json.new": ("finish", "not finished: ", "set 1 (step 0) is intact; files and sets are as they were"),
    "/sub/v.dat": ("finish", "not finished: ", "set 1 (step 0) is intact; files and sets are as they were"),
    "owner.json": ("init", "cannot set up .safepoint.d: ", "set 1 (step 0) is intact; the listed files are untouched"),
    "baseline.json.new": (
        "first",
        "cannot set up .safepoint.d: ",
        "the listed files are untouched",
    ),
    ".safepoint.d": ("first", "cannot set up .safepoint.d: ", "the listed files are untouched"),
}


@pytest.mark.parametrize("full", NO_ROOM)
def test_a_full_disk_says_which_set_is_intact(start: Start, work: Path, full: str) -> None:
    """G7: whatever was being done, and the next try goes through."""
    verb, begins, ends = NO_ROOM[full]
    disk = NoRoom()
    (work / ".safepoint").write_text("u.dat\nsub/v.dat\nparams.db copy\n")
    do: dict[str, Callable[[], object]] = {"first": lambda: start(disk=disk), "init": lambda: start(disk=disk)}
    if verb != "first":
        session = start(disk=disk)
        for step in (0, 1):
            write(work, u_dat=str(step), sub__v_dat=str(step), params_db=str(step))
            if step == 0:
                session.hide(0)
        if verb == "init":
            session.close()
        do |= {"hide": lambda: session.hide(1), "wait": lambda: session.hide(1, wait=True), "finish": session.finish}
    before = contents(work)
    disk.full = full
    with pytest.raises(SaveError) as caught:
        do[verb]()
    text = str(caught.value)
    assert text.startswith(begins) and text.endswith(f": No space left on device; {ends}"), text
    assert contents(work) == before and sets(work) == [1] * (verb != "first")
    do[verb]()


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
    assert safepoint.init(other) is safepoint._default
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
    assert (point := session.restore()) and point.step == 1
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
    if Disk().place(str(tmp_path)).mount is None or not Disk().exchange(*map(str, names)):
        pytest.skip("needs a local file system on which two files can exchange their names")
    monkeypatch.setattr(sys.modules["safepoint.restore"], "LARGE", 1)


def seen_by_a_child() -> int:
    """How many files without a name a child has open that is forked now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: a fork beside threads
        child = os.fork()
    if child == 0:
        found = 99
        try:
            time.sleep(0.05)
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
        with Disk().freed_later([str(path)]):
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
        monkeypatch.setattr(disk, "room", lambda path: 5.0)
    if why == "a network file system":
        monkeypatch.setattr(disk, "place", lambda path: Place("here", "now", None))
    asked: list[list[str]] = []
    freed_later = disk.freed_later
    monkeypatch.setattr(disk, "freed_later", lambda paths: asked.append(paths) or freed_later(paths))
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
            threading.Thread(target=lambda: may.wait(60) and bare(thread)).start()
        else:
            bare(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    session = a_restart(work, Disk())
    assert len(removed_and_open()) == threads
    assert seen_by_a_child() == 0
    may.set()
    end = time.monotonic() + 60
    while removed_and_open():
        assert time.monotonic() < end
        time.sleep(0.01)
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


def test_the_first_set_is_durable_on_return_and_wait_makes_others_so(start: Start, work: Path) -> None:
    """G2. That durable means fsynced in the right order is shown by `test_crash`."""
    session = start("u.dat\n", keep=9)
    write(work, u_dat="0")
    assert (work / ROOT / "baseline.json").exists()
    session.hide(0)
    assert sets(work) == [1]
    assert not (work / ROOT / "baseline.json").exists()  # it speaks of the time before the first set
    write(work, u_dat="1")
    session.hide(1)
    session.wait()
    assert sets(work) == [1, 2]
    write(work, u_dat="2")
    session.hide(2, wait=True)
    assert sets(work) == [1, 2, 3]
    session.wait()
    session.close()
    session = start(background=False)
    session.hide(2)
    assert sets(work)[-1] == 4


def test_hide_returns_before_the_disk_has_done_its_work(start: Start, work: Path) -> None:
    """At most one set is in flight: the next `hide` waits for it."""
    let_go = threading.Event()

    class Slow(Disk):
        def sync_files(self, paths: Any, opened: Any = ()) -> None:
            assert not self.slow or let_go.wait(10)
            super().sync_files(paths)

        slow = False

    disk = Slow()
    session = start("u.dat\n", disk=disk)
    for step in range(2):
        write(work, u_dat=str(step))
        session.hide(step)
        disk.slow = True  # the first set always waits
    assert contents(work) == {} and sets(work) == [1]
    let_go.set()
    write(work, u_dat="2")
    session.hide(2)
    assert 2 in sets(work)


# Finish.


def test_finished_files_are_left_alone_and_said_to_be_final(start: Start, work: Path, said: Said) -> None:
    """G4."""
    session = start("u.dat\nhistory.csv append\n")
    for step in range(3):
        write(work, u_dat=str(step), history_csv="row\n" * step)
        session.hide(step)
    write(work, u_dat="final", history_csv="row\n" * 5)
    inode = (work / "u.dat").stat().st_ino
    session.finish(5)
    assert said[-1] == ("INFO", "finished at step 5: 2 files in place")
    for _ in range(2):
        said.clear()
        session = start(restore=False)
        point = session.restore()
        assert point and (point.number, point.step, point.finished) == (3, 5, True)
        assert set(point.files) == {"u.dat", "history.csv"}
        assert said == [("INFO", "the run was finished at step 5; its files are left alone")]
        assert contents(work) == {"u.dat": "final", "history.csv": "row\n" * 5}
        assert (work / "u.dat").stat().st_ino == inode
        session.close()


def test_after_finish_sets_and_baseline_are_gone(start: Start, work: Path) -> None:
    session = start("u.dat\n", keep=3)
    for step in range(4):
        write(work, u_dat=str(step))
        session.hide(step)
    write(work, u_dat="final")
    session.finish()
    assert {path.name for path in (work / ROOT).iterdir()} <= {"lock", "owner.json", "log.jsonl"}
    assert {path.name for path in (work / ".safepoint.d").iterdir()} == {"FORMAT", "finished.json", "rank-00000"}


def test_finish_without_any_hide_removes_the_baseline_too(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    write(work, u_dat="final")
    session.finish(1)
    assert not (work / ROOT / "baseline.json").exists()
    point = start(restore=False).restore()
    assert point and (point.number, point.step, point.finished) == (0, 1, True)
    assert contents(work) == {"u.dat": "final"}


@pytest.mark.parametrize("step", [None, 1])
def test_files_that_were_hidden_and_not_written_again_are_put_back_first(
    start: Start, work: Path, step: int | None
) -> None:
    """G4: also one that is packed, a directory, and beside files that stayed."""
    session = start("u.dat\nsub/big.dat compress\nrun.zarr/\nhistory.csv append\nparams.db copy\n")
    for n in range(2):
        write(work, u_dat=str(n), sub__big_dat=str(n) * 5000, history_csv="row\n" * n, params_db="p")
        write(work, run_zarr__a__0=str(n))
        expected = contents(work)
        session.hide(n)
    assert not (work / "u.dat").exists()
    session.finish(step)
    assert contents(work) == expected
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, True)


def test_finish_with_some_of_the_files_names_the_missing_and_keeps_the_sets(start: Start, work: Path) -> None:
    session = start("u.dat\nv.dat\n")
    write(work, u_dat="0", v_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    with pytest.raises(MissingFilesError, match=r"^missing: v\.dat \(line 2\), though u\.dat exists"):
        session.finish(1)
    assert sets(work) == [1]
    write(work, v_dat="1")
    session.finish(1)
    assert contents(work) == {"u.dat": "1", "v.dat": "1"}


def test_finish_of_nothing_at_all_is_an_error(start: Start, work: Path) -> None:
    session = start("u.dat\nv.dat\n")
    with pytest.raises(MissingFilesError) as caught:
        session.finish()
    told = "nothing to finish: there is no set, and none of these files exists: u.dat, v.dat"
    assert str(caught.value) == told
    assert not (work / ".safepoint.d/finished.json").exists()
    write(work, u_dat="u", v_dat="v")
    session.finish()


def test_finish_of_nothing_is_a_result_if_all_files_are_optional(start: Start, work: Path) -> None:
    start("u.dat optional\n").finish(3)
    point = start(restore=False).restore()
    assert point and (point.step, point.finished, point.files) == (3, True, ())


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_final_file_that_is_not_what_it_was_is_named_and_left_as_it_is(
    start: Start, work: Path, how: str, said: Said
) -> None:
    session = start("u.dat\nv.dat\n")
    write(work, u_dat="final", v_dat="final")
    session.finish(9)
    if how == "changed":
        write(work, u_dat="edited")
    else:
        (work / "u.dat").unlink()
    before = contents(work)
    said.clear()
    point = start(restore=False).restore()
    assert point and point.finished
    left = "the run was finished at step 9; its files are left alone, but these are no longer what they were: u.dat"
    assert said == [("WARNING", left)]
    assert contents(work) == before


def test_after_a_finished_run_another_may_go_on(start: Start, work: Path) -> None:
    """A set that is newer than the finish mark counts more; until there is one, the mark does."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="final")
    session.finish(1)
    session = start()
    session.close()
    session = start(restore=False)
    point = session.restore()
    assert point and point.finished
    session.hide(1)  # the final files are the beginning
    write(work, u_dat="2")
    session._thread = DeadSaver()  # type: ignore[assignment]
    session.hide(2)
    write(work, u_dat="torn")
    kill(session)
    session = start(restore=False)
    point = session.restore()
    assert point and (point.number, point.step, point.finished) == (3, 2, False)
    assert contents(work) == {"u.dat": "2"}
    write(work, u_dat="new result")
    session.finish(3)
    point = start(restore=False).restore()
    assert point and (point.number, point.step, point.finished) == (3, 3, True)
    assert contents(work) == {"u.dat": "new result"}


def test_a_further_run_that_dies_before_its_first_hide_leaves_the_result(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    write(work, u_dat="final")
    session.finish(1)
    kill(start())
    point = start(restore=False).restore()
    assert point and (point.step, point.finished) == (1, True)
    assert contents(work) == {"u.dat": "final"}


# The disk fails.


class Failing(Disk):
    """fsync says no to the file whose path ends so, once."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def sync_files(self, paths: Any, opened: Any = ()) -> None:
        for path in paths:
            if self.ending and path.endswith(self.ending):
                self.ending = ""
                raise SyncFailed(errno.EIO, os.strerror(errno.EIO), path)
            super().sync_files([path])


class Meddler(Disk):
    """Does something to the files of a set while they are being stored, in a save that begins when it is armed."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what: Callable[[], None] | None = None
        self.armed = what

    @contextmanager
    def opened(self, paths: Iterable[str]) -> Iterator[Mapping[str, BinaryIO]]:
        with super().opened(paths) as files:
            self.meddle()
            yield files

    def read_into(self, buffer: memoryview, path: str) -> tuple[int, os.stat_result]:
        found = super().read_into(buffer, path)
        self.meddle()
        return found

    def meddle(self) -> None:
        if self.what:
            self.what()
            self.what = None


def replaced(path: Path) -> None:
    """By another file that looks the same, as rename does it."""
    info, new = path.stat(), path.with_name(path.name + ".tmp")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(info.st_mtime_ns, info.st_mtime_ns))
    new.replace(path)


@pytest.mark.parametrize(
    ("manifest", "victim", "what", "when"),
    [
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "replaced", "while it is open"),
        ("run.zarr/\nbundle_from = 1\n", "set-00000002/files/run.zarr/meta", "replaced", "while it is open"),
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "removed", "before it is opened"),
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "removed", "while it is open"),
        ("u.dat\nhistory.csv append\n", "../../history.csv", "replaced", "while it is open"),
        ("u.dat\nhistory.csv append\n", "../../history.csv", "replaced", "before it is opened"),
        ("u.dat\n", "set-00000002/files/u.dat", "removed", "before it is opened"),
        ("u.dat\n", "set-00000002/files/u.dat", "removed", "while it is open"),
        ("u.dat\n", "set-00000002/files/u.dat", "a link", "before it is opened"),
    ],
)
def test_a_file_that_is_replaced_after_hide_took_it_is_noticed(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch, manifest: str, victim: str, what: str, when: str
) -> None:
    """G1: what was read and flushed must be what has the name, however alike the other one looks. The set is not
    stored, and no later start completes it."""

    def meddle() -> None:
        path = Path(os.path.normpath(work / ROOT / victim))
        if what == "replaced":
            replaced(path)
            return
        path.unlink()
        if what == "a link":
            path.symlink_to(work / "elsewhere")

    disk = Meddler(meddle)
    session = start(manifest, disk=disk)
    for step in range(2):
        write(work, u_dat=str(step), run_zarr__meta=str(step), history_csv=f"{step}\n")
        if step == 0:
            session.hide(step, wait=True)
    if when == "while it is open":
        disk.what = disk.armed
    else:
        contents_of = store.contents_of

        def look(*arguments: Any, **options: Any) -> list[store.Content]:
            if what == "replaced":
                meddle()
            contents = list(contents_of(*arguments, **options))
            if what != "replaced":
                meddle()
            return contents

        monkeypatch.setattr(store, "contents_of", look)
    session.hide(1)
    with pytest.raises(SaveError, match=r"(replaced|removed) after hide took it"):
        session.wait()
    monkeypatch.undo()
    assert sets(work) == [1]
    kill(session)
    point = start().restore()
    assert point and point.number == 1


def test_of_many_files_only_some_are_open_at_once(tmp_path: Path) -> None:
    """G6: with as few descriptors as a program may have left, everything is saved all the same."""
    (tmp_path / ".safepoint").write_text("f*\nbundle_from = 1000\n")
    program = """
import resource
from pathlib import Path
import safepoint
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
session = safepoint.Session(".")
session.restore()
for step in range(3):
    for k in range(100):
        Path(f"f{k}").write_text(f"{step}")
    session.hide(step, wait=True)
session.restore()
assert Path("f99").read_text() == "2"
session.close()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


STUCK = {  # how it fails, and what is in W again
    "not renamed": {"u.dat", "v.dat"},
    "not renamed nor spoilt": set(),
    "committed, not renamed": {"u.dat", "v.dat"},
    "committed, not renamed nor spoilt": set(),
    "one not put back": {"v.dat"},
    "no descriptor": set(),
}


class Stuck(Disk):
    """The flush of set 2 fails, or that of its name, and then what would put its files back."""

    def __init__(self, how: str) -> None:
        self.how, self.on = how, False

    def _fail(self, kind: type[OSError], code: int, path: str, *hows: str) -> None:
        if self.on and self.how in hows:
            raise kind(code, os.strerror(code), path)

    def sync_files(self, paths: Any, opened: Any = NONE) -> None:
        paths = list(paths)
        if "set-00000002/files" in paths[0]:
            self._fail(SyncFailed, errno.ENOSPC, paths[0], "not renamed", "not renamed nor spoilt", "one not put back")
        super().sync_files(paths, opened)

    def rename(self, source: str, target: str) -> None:
        if "failed-" in target:
            self._fail(OSError, errno.ENOSPC, source, *[how for how in STUCK if "not renamed" in how])
        if "set-00000002/files/" in source:  # a kill right after this must not find a set without its files
            assert not Path(source).parents[1].joinpath("record.json").exists()
        if source.endswith("files/u.dat"):
            self._fail(OSError, errno.EACCES, source, "one not put back")
        super().rename(source, target)

    def truncate(self, path: str, length: int) -> None:
        self._fail(OSError, errno.EROFS, path, *[how for how in STUCK if "nor spoilt" in how])
        super().truncate(path, length)

    def sync_dir(self, path: str) -> None:
        if path.endswith(ROOT):
            self._fail(OSError, errno.EMFILE, path, "no descriptor")
            self._fail(SyncFailed, errno.EIO, path, *[how for how in STUCK if "committed" in how])
        super().sync_dir(path)


@pytest.mark.parametrize("how", STUCK)
@pytest.mark.parametrize("before", ["", "after a failure"])
@pytest.mark.parametrize("then", ["finish", "hide", "restore", "a new process", "all written anew"])
def test_files_that_cannot_go_back_are_never_forgotten(
    start: Start, work: Path, how: str, before: str, then: str
) -> None:
    """G4, G7: the error says where they are; what is left in W passes for no step, and the set is not completed."""
    disk = Stuck(how)
    session = start("*.dat\nkeep = 1\n", disk=disk)
    write(work, u_dat="1", v_dat="1")
    session.hide(1, wait=True)
    if before:  # a failed-00000002 is there already
        write(work, u_dat="x", v_dat="x")
        disk.how, disk.on = "one not put back", True
        session.hide(2)
        with pytest.raises(SaveError):
            session.wait()
        disk.how, disk.on = how, False
        session.restore()
        (work / "u.dat").unlink(), (work / "v.dat").unlink()
    write(work, u_dat="2", v_dat="2")
    disk.on = True
    with pytest.raises(SaveError) as caught:
        session.hide(2, wait=True)
    disk.on = False
    assert {path.name for path in work.glob("*.dat")} == STUCK[how], caught.value
    where = next((path for path in (work / ROOT).glob("*-00000002/files/u.dat")), None)
    assert (where is None) == ("u.dat" in STUCK[how])
    if where:
        assert where.read_text() == "2" and str(where.parent.relative_to(work)) in str(caught.value)
    if then == "restore" or (then == "a new process" and "nor spoilt" not in how):
        if then == "a new process":
            kill(session)
            session = start(restore=False)
        point = session.restore()
        assert point and point.number == 1 and contents(work) == {"u.dat": "1", "v.dat": "1"} and sets(work) == [1]
    elif then in ("finish", "hide") and where:
        with pytest.raises(SaveError, match=r"of set 2 is in .*, and could not be put back"):
            session.finish(2) if then == "finish" else session.hide(2)
        assert where.read_text() == "2"
    elif then == "all written anew":
        write(work, u_dat="3", v_dat="3")
        os.utime(work / "u.dat", ns=(1, 1)), os.utime(work / "v.dat", ns=(1, 1))
        session.hide(3, wait=True)
        assert sets(work) == [3] and not list((work / ROOT).glob("*-00000002"))
        session.finish(3)
        assert contents(work) == {"u.dat": "3", "v.dat": "3"}


def test_a_worker_that_is_forked_during_a_save_holds_none_of_what_is_flushed(start: Start, work: Path) -> None:
    """Their space could not be freed as long as it lives."""
    held: list[str] = []

    def fork() -> None:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                for name in os.listdir("/proc/self/fd"):
                    with suppress(OSError):  # that of this look itself
                        path = os.readlink(f"/proc/self/fd/{name}")
                        if "/set-" in path:
                            os.write(writer, f"{path}\n".encode())
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader) as told:
            held.extend(told)
        os.waitpid(child, 0)

    disk = Meddler(fork)
    session = start("*.dat\n", disk=disk)
    write(work, u_dat="1", v_dat="1")
    disk.what = disk.armed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        session.hide(1, wait=True)
    assert disk.what is None and held == []


def test_what_cannot_be_removed_does_not_keep_the_rest(
    start: Start, work: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of an older set that somebody sits in, say."""
    remove_tree = Disk.remove_tree

    def refuse(self: Disk, path: str) -> None:
        if path.endswith("gone-00000077"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        remove_tree(self, path)

    session = start("u.dat\nkeep = 1\n")
    (work / ROOT / "gone-00000077").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "remove_tree", refuse)
        for step in range(3):
            write(work, u_dat=str(step))
            session.hide(step, wait=True)
    assert sets(work) == [3] and session._sets.known
    assert not (work / ROOT / "baseline.json").exists() and not [text for level, text in said if level == "WARNING"]


class Looking(Disk):
    """Counts how often the sets are looked for."""

    looks = 0

    def listdir(self, path: str) -> list[str]:
        self.looks += 1
        return super().listdir(path)


def test_a_set_that_was_never_committed_here_is_not_forgotten(tmp_path: Path) -> None:
    """It stays while an older one may be that of all ranks; though no later prune looks again, its space is freed."""
    disk, root, known, left = Looking(), Root(str(tmp_path)), save.Sets(), []
    for number, agreed in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 4)):
        os.makedirs(root.stored(number, ""))
        if number != 2:
            Path(root.record(number)).touch()
            record = Record(number, number, 0.0, 0.0, "", "", 0, 2, 0, (), ())
            disk.looks = 0
            save.prune(disk, root, record, 2, agreed, known)
            left.append((number, disk.looks > 0, root.numbers(disk, "set")))
    assert left == [(1, True, [1]), (3, True, [1, 2, 3]), (4, False, [1, 2, 3, 4]), (5, False, [4, 5])]
    shutil.rmtree(root.side)


def test_after_a_failure_the_next_save_looks_again(start: Start, work: Path) -> None:
    """It removes the set that failed, and what a removal that failed has left."""
    disk = Failing("")
    session = start("u.dat\nkeep = 1\n", disk=disk)
    for step in range(6):
        write(work, u_dat=str(step))
        disk.ending = "set-00000004/files/u.dat" if step == 3 else ""
        if step == 3:
            (work / ROOT / "gone-00000077").mkdir()
        session.hide(step)
        with suppress(SaveError):
            session.wait()
        assert (work / ROOT / "failed-00000004").exists() == (step == 3)
    assert sets(work) == [6] and list((work / ROOT).glob("gone-*")) == []


@pytest.mark.parametrize("victim", ["record.json", "files/u.dat"])
@pytest.mark.leaves_damage
def test_a_link_in_the_place_of_a_stored_file_is_damage(tmp_path: Path, victim: str) -> None:
    """G6: it is passed over, whatever it points to."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    with Session(tmp_path) as session:
        session.restore()
        for step in range(2):
            write(tmp_path, u_dat=str(step))
            session.hide(step, wait=True)
        session.close()
    path = tmp_path / ROOT / "set-00000002" / victim
    path.unlink()
    path.symlink_to("x")
    with Session(tmp_path) as session:
        point = session.restore()
        assert point and point.number == 1 and contents(tmp_path) == {"u.dat": "0"}
        session.close()


def test_a_set_that_is_removed_by_hand_keeps_nothing_else(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat compress\n")
    for step in range(4):
        write(work, u_dat=f"{step}" * 100_000)
        if step == 3:
            shutil.rmtree(work / ROOT / "set-00000002")
        session.hide(step, wait=True)
    assert sets(work) == [3, 4] and not (work / ROOT / "set-00000004/files").exists()
    assert not [text for level, text in said if level == "WARNING"]


class FullFrom(Disk):
    """The disk is full from a certain directory on, so full that nothing can be removed either, as btrfs may be."""

    def __init__(self, ending: str) -> None:
        self.ending, self.broken = ending, False

    def _refuse(self, path: str) -> None:
        if self.broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def mkdir(self, path: str) -> None:
        self.broken = self.broken or bool(self.ending and path.endswith(self.ending))
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)  # the kernel looks for this first
        self._refuse(path)
        super().mkdir(path)

    def write(self, path: str, data: bytes) -> None:
        self._refuse(path)
        super().write(path, data)

    def rmdir(self, path: str) -> None:
        self._refuse(path)
        super().rmdir(path)


def test_what_is_left_of_a_set_that_could_not_be_prepared_hides_no_error_and_is_no_obstacle_later(
    start: Start, work: Path
) -> None:
    """G7: the cause is named, not that something exists already; with room again the same session goes on."""
    disk = FullFrom("set-00000002/files")
    session = start("u.dat\n", disk=disk)
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    for _ in range(2):
        with pytest.raises(SaveError, match=r"set \d .*: No space left on device"):
            session.hide(1)
    assert os.listdir(work / ".safepoint.d/rank-00000/set-00000002") == [] and contents(work) == {"u.dat": "1"}
    disk.ending, disk.broken = "", False
    session.hide(1, wait=True)
    session.close()
    assert (work / ".safepoint.d/rank-00000/set-00000004/record.json").exists()


class Lying(Disk):
    """The file system has gone down while an fsync of this directory was under way, which returned 0 all the same, as
    ext4 does; whatever changes it after that is refused."""

    def __init__(self, ending: str) -> None:
        self.ending, self.down = ending, False

    def sync_dir(self, path: str) -> None:
        self.down = self.down or path.endswith(self.ending)
        super().sync_dir(path)

    def mkdir(self, path: str) -> None:
        if self.down:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        super().mkdir(path)


def test_an_fsync_that_returned_0_while_the_file_system_went_down_is_no_success(start: Start, work: Path) -> None:
    """G2, G7; tests/powercut/test_full.py does it for real."""
    session = start("u.dat\n", disk=Lying("set-00000002"))
    for step in range(3):
        write(work, u_dat=str(step))
        if step < 2:
            session.hide(step)
    with pytest.raises(SaveError, match=r"set 2 \(step 1\) not stored: .*Read-only file system"):
        session.hide(2)
    session.close()


def test_a_finish_mark_whose_fsync_lied_is_no_success(start: Start, work: Path) -> None:
    disk = Lying("none")
    session = start("u.dat\n", disk=disk)
    write(work, u_dat="0")
    session.hide(0)
    write(work, u_dat="1")
    disk.ending = ".safepoint.d"
    with pytest.raises(SaveError, match=r"not finished: .*Read-only file system"):
        session.finish(1)
    assert not (work / ".safepoint.d/finished.json").exists()
    session.close()


def failed_in_the_background(start: Start, work: Path) -> Session:
    """Set 1 (step 0) is whole; the fsync of sub/v.dat of set 2 (step 1) failed, and nobody has asked yet."""
    session = start("u.dat\nsub/v.dat\n", disk=Failing("set-00000002/files/sub/v.dat"))
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step))
        session.hide(step)
    assert session._flight is not None
    session._flight.exception()
    return session


NOT_STORED = (
    "set 2 (step 1) not stored: sub/v.dat: Input/output error; set 1 (step 0) is intact; "
    f"its files are in {ROOT}/failed-00000002/files"
)


@pytest.mark.parametrize("verb", ["hide", "wait", "restore", "finish", "close"])
def test_a_failure_in_the_background_is_raised_by_the_next_call_once(start: Start, work: Path, verb: str) -> None:
    """G7: it names the file, the cause, what holds, and where the files are. Nothing of that call was begun."""
    session = failed_in_the_background(start, work)
    write(work, u_dat="2", sub__v_dat="2")
    before = contents(work)
    with pytest.raises(SaveError) as caught:
        getattr(session, verb)()
    assert str(caught.value) == NOT_STORED
    assert caught.value.errno == errno.EIO
    assert contents(work) == before
    assert contents(work / ROOT / "failed-00000002/files") == {"sub/": "", "sub/v.dat": "1", "u.dat": "1"}
    assert sets(work) == [1]
    if verb == "close":
        assert start().hide(0) is not None  # the lock is gone, the sets are not
        return
    session.wait()  # not raised again
    point = session.hide(2, wait=True)
    assert point and point.number == 3
    assert not (work / ROOT / "failed-00000002").exists()  # until the next commit
    session.close()
    start()
    assert contents(work) == {"sub/": "", "sub/v.dat": "2", "u.dat": "2"}


def test_after_a_failure_in_the_background_restore_gives_the_set_before(start: Start, work: Path) -> None:
    """G7: a failed fsync is final for its set, in this life and the next, however whole it looks in the cache."""
    session = failed_in_the_background(start, work)
    kill(session)
    for _ in range(2):
        session = start(restore=False)
        point = session.restore()
        assert point and (point.number, point.step) == (1, 0)
        assert contents(work) == {"sub/": "", "sub/v.dat": "0", "u.dat": "0"}
        assert (work / ROOT / "failed-00000002/files/u.dat").exists()  # until the next commit, for the user to see
        session.close()
    session = start()
    write(work, u_dat="3", sub__v_dat="3")
    session.hide(1, wait=True)
    assert sorted(path.name[:4] for path in (work / ROOT).glob("*-*")) == ["set-"] * 3  # the last one is prepared


def test_finish_after_a_failure_never_passes_off_an_older_set_as_this_step(start: Start, work: Path) -> None:
    """G4, G7: the files of step 1 failed, those of step 0 are the last; they must not become the result of step 1."""
    session = failed_in_the_background(start, work)
    with pytest.raises(SaveError):
        session.finish(1)
    try:
        session.finish(1)
    except SafepointError:
        return
    point = start(restore=False).restore()
    assert point and contents(work)["u.dat"] == str(point.step)


def test_a_failure_while_the_caller_waits_leaves_the_files_in_place(start: Start, work: Path) -> None:
    """G7: and the next try, of files written anew, is a new set and succeeds; of the same files it is refused."""
    session = start("u.dat\nsub/v.dat\nparams.db copy\nrun.zarr/\n", disk=Failing("set-00000002/files/sub/v.dat"))
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step), params_db=str(step), run_zarr__meta=str(step))
        before = contents(work)
        if step == 0:
            session.hide(step)
    with pytest.raises(SaveError) as caught:
        session.hide(1, wait=True)
    holds = "set 1 (step 0) is intact; its files are back in place"
    assert str(caught.value) == f"set 2 (step 1) not stored: sub/v.dat: Input/output error; {holds}"
    assert contents(work) == before
    assert list((work / ROOT).glob("failed-*")) == []
    with pytest.raises(SaveError, match="its fsync failed before"):
        session.hide(1, wait=True)
    shutil.rmtree(work / "run.zarr")
    write(work, u_dat="1", sub__v_dat="1", run_zarr__meta="1")
    session.hide(1, wait=True)
    assert sets(work) == [1, 3]
    session.restore()
    assert contents(work) == before


def test_a_failure_of_the_first_set_leaves_the_files_in_place(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=Failing("set-00000001/files/u.dat"))
    write(work, u_dat="0")
    with pytest.raises(
        SaveError, match=r"^set 1 \(step 0\) not stored: u.dat: Input/output error; there is no earlier"
    ):
        session.hide(0)
    assert contents(work) == {"u.dat": "0"}
    write(work, u_dat="0")
    session.hide(0)
    session.close()
    start()
    assert contents(work) == {"u.dat": "0"}


def test_a_failure_while_an_exception_ends_the_block_is_logged_and_does_not_hide_it(
    start: Start, work: Path, said: Said
) -> None:
    with pytest.raises(Death), failed_in_the_background(start, work):
        raise Death
    assert ("ERROR", NOT_STORED) in said


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
    session = start(disk=Failing("files/u.dat"))
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
    monkeypatch.setattr(safepoint.disk, "_leased", lambda path: (os.stat(path).st_dev, os.stat(path).st_ino))
    session = start("u.dat\nv.dat\n")
    with (work / "u.dat").open("a"), (work / "v.dat").open():
        session.hide(0)
    assert contents(work) == {"u.dat": "u"}
    assert [text.split()[0] for level, text in said if level == "WARNING"] == ["u.dat"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_it_warns_and_works(start: Start, work: Path, said: Said, number: int) -> None:
    """G8 is off, and that is said."""

    class NoLocks(Disk):
        def lock(self, path: str) -> Callable[[], object] | None:
            raise OSError(number, os.strerror(number), path)

    session = start("u.dat\n", disk=NoLocks())
    warning = f"no kernel locks in {work}: a second run at the same time would not be noticed"
    assert said[0] == ("WARNING", warning)
    write(work, u_dat="0")
    session.hide(0)
    session.close()
    start(disk=NoLocks())
    assert contents(work) == {"u.dat": "0"}


def test_a_lock_that_fails_otherwise_is_an_error(start: Start, work: Path) -> None:
    class Broken(Disk):
        def lock(self, path: str) -> Callable[[], object] | None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with pytest.raises(SaveError, match=rf"^cannot set up .safepoint.d: {ROOT}/lock: Input/output error"):
        start("u.dat\n", disk=Broken())


class Elsewhere(Disk):
    """Another page cache, or one of which nothing can be proven."""

    def __init__(self, **differs: str | None) -> None:
        self.differs = differs

    def place(self, path: str) -> Place:
        return Place("host", "boot", "mount")._replace(**self.differs)  # type: ignore[arg-type]


MANIFEST = "u.dat\nsub/v.dat\nhistory.csv append\nparams.db copy\nrun.zarr/\n"
WHY_NOT = "the machine went down, or the file system was mounted anew, before it was committed"


def die_with_an_uncommitted_set(start: Start, work: Path, disk: Disk) -> list[dict[str, str]]:
    """What W held when set 1, durable, and set 2, only taken, were hidden."""
    session = start(MANIFEST, disk=disk)
    held = []
    for step in range(2):
        write(work, u_dat=str(step), sub__v_dat=str(step), history_csv="row\n" * (step + 1), params_db=str(step))
        write(work, run_zarr__a=str(step))
        held.append(contents(work))
        session.hide(step)
        session._thread = DeadSaver()  # type: ignore[assignment]
    write(work, u_dat="torn", history_csv="row\n" * 5, params_db="torn", run_zarr__b="torn")
    kill(session)
    return held


def test_a_kill_costs_nothing_that_hide_took(start: Start, work: Path, said: Said) -> None:
    """G2k: in the same page cache the uncommitted set is provably whole."""
    held = die_with_an_uncommitted_set(start, work, Elsewhere())
    assert sets(work) == [1]
    said.clear()
    session = start(restore=False, disk=Elsewhere())
    point = session.restore()
    assert point and (point.number, point.step) == (2, 1)
    assert contents(work) == held[1]
    assert sets(work) == [1, 2]
    assert [level for level, _ in said] == ["INFO"]


@pytest.mark.parametrize("differs", [{"mount": None}, {"mount": "7"}, {"boot": "7"}, {"host": "7"}], ids=str)
def test_where_nothing_can_be_proven_the_set_before_is_restored_and_the_log_says_why(
    start: Start, work: Path, said: Said, differs: dict[str, str | None]
) -> None:
    """G1 before G2k: after a power cut names, sizes and times look right over contents that are not."""
    before = Elsewhere(mount=None) if differs == {"mount": None} else Elsewhere()
    held = die_with_an_uncommitted_set(start, work, before)
    said.clear()
    session = start(restore=False, disk=Elsewhere(**differs))
    point = session.restore()
    assert point and (point.number, point.step) == (1, 0)
    assert contents(work) == held[0]
    assert said == [("WARNING", f"restored set 1 (step 0): 5 files, 0.0 MB; set 2: {WHY_NOT}")]
    point = session.hide(0, wait=True)
    assert point and sets(work) == [1, point.number]


@pytest.mark.parametrize("file", ["u.dat", "sub/v.dat", "params.db"])
@pytest.mark.parametrize("how", ["size", "time", "inode", "gone"])
def test_an_uncommitted_set_of_which_a_file_was_changed_is_not_given_back(
    start: Start, work: Path, file: str, how: str
) -> None:
    """G2k holds only for what is provably as it was when `hide` took it."""
    held = die_with_an_uncommitted_set(start, work, Elsewhere())
    path = work / ROOT / "set-00000002/files" / file
    info = path.stat()
    if how == "size":
        path.write_text("longer than it was")
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    elif how == "time":
        os.utime(path, ns=(1, 1))
    elif how == "inode":
        path.rename(path.with_suffix(".old"))
        path.write_text(path.with_suffix(".old").read_text())
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    else:
        path.unlink()
    point = start(restore=False, disk=Elsewhere()).restore()
    assert point
    if file == "params.db" and how == "inode":
        assert contents(work) == held[point.number - 1]  # a snapshot has no inode of its own: it may be proven
        return
    assert (point.number, point.step) == (1, 0)
    assert contents(work) == held[0]


# What hide costs.


class Counting(Disk):
    """Counts the operations of the thread that made it."""

    def __init__(self) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self.thread = threading.get_ident()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in ("calls", "thread") or threading.get_ident() != self.thread:
            return found

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return found(*arguments)

        return counted


def cost_of_hide(start: Start, work: Path, manifest: str, files: dict[str, str]) -> collections.Counter[str]:
    """The file operations of a `hide` far from the start, as nearly all are."""
    disk = Counting()
    session = start(manifest, disk=disk)
    for step in range(4):
        write(work, **files)
        session.wait()
        disk.calls.clear()
        session.hide(step)
    calls = disk.calls.copy()
    session.close()
    return calls


def test_hide_of_three_files_is_a_handful_of_file_operations(start: Start, work: Path) -> None:
    """A look at each, at W and at the lock, a question who has them open, one line written, a rename each; no fsync."""
    files = {f"{name}_dat": "data" for name in "uvw"}
    calls = cost_of_hide(start, work, "u.dat\nv.dat\nw.dat\n", files)
    assert calls == {"stat": 5, "open_for_writing": 1, "append": 1, "rename": 3}


def test_hide_of_a_directory_costs_the_same_however_many_files_it_holds(
    start: Start, work: Path, tmp_path: Path
) -> None:
    costs = []
    for count in (1, 1000):
        directory = tmp_path / f"with {count}"
        directory.mkdir()
        session_files = {f"run_zarr__{n}": "" for n in range(count)}

        def begin(manifest: str, *, disk: Disk, where: Path = directory) -> Session:
            return start(manifest, where=where, disk=disk)

        costs.append(cost_of_hide(begin, directory, "run.zarr/\n", session_files))
    assert costs[0] == costs[1]
    assert sum(costs[1].values()) <= 5


def test_finish_puts_back_what_was_hidden_even_if_all_of_it_is_optional(tmp_path: Path) -> None:
    """G4: an append file in place does not hide that the others were moved away."""
    (tmp_path / ".safepoint").write_text("fields/*.vtk optional\nhistory.csv append\n")
    (tmp_path / "fields").mkdir()
    (tmp_path / "fields/a.vtk").write_text("a")
    (tmp_path / "history.csv").write_text("row\n")
    session = Session(tmp_path)
    session.restore()
    session.hide(step=1)
    session.finish(step=1)
    assert (tmp_path / "fields/a.vtk").read_text() == "a"


def test_a_baseline_left_beside_a_finish_mark_does_not_touch_the_result(tmp_path: Path) -> None:
    """G4: killed between the mark and the removal of the baseline."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = Session(tmp_path)
    session.restore()
    baseline = tmp_path / ".safepoint.d/rank-00000/baseline.json"
    kept = baseline.read_bytes()
    (tmp_path / "u.dat").write_text("result")
    session.finish(step=5)
    baseline.write_bytes(kept)
    again = Session(tmp_path)
    saved = again.restore()
    again.close()
    assert saved is not None and saved.finished and (tmp_path / "u.dat").read_text() == "result"


class Unproven(Disk):
    """Where the page cache proves nothing."""

    def place(self, path: str) -> Place:
        return Disk.place(self, path)._replace(mount=None)


def test_killed_in_the_first_hide_after_a_finished_run_the_result_is_put_back(tmp_path: Path) -> None:
    """G3: the final files of the last history are the initial ones of the next."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    (tmp_path / "u.dat").write_text("result")
    first = Session(tmp_path)
    first.restore()
    first.finish(step=5)

    class Dies(Unproven):
        def create(self, path: str) -> Any:
            if path.endswith("record.json.new"):
                raise KeyboardInterrupt
            return super().create(path)

        def remove_tree(self, path: str) -> None:
            raise KeyboardInterrupt

        def rename(self, source: str, target: str) -> None:
            if target.endswith("work/u.dat") or target == str(tmp_path / "u.dat"):
                raise KeyboardInterrupt
            super().rename(source, target)

    second = Session(tmp_path, disk=Dies())
    second.restore()
    with pytest.raises(KeyboardInterrupt):
        second.hide(step=5)
    second._release()
    assert not (tmp_path / "u.dat").exists()
    third = Session(tmp_path, disk=Unproven())
    saved = third.restore()
    third.close()
    assert saved is not None and saved.finished and (tmp_path / "u.dat").read_text() == "result"


def test_a_directory_that_cannot_be_read_is_an_error_and_no_empty_glob(tmp_path: Path) -> None:
    """G7: else a set without its files would be committed as whole."""

    class Unreadable(Disk):
        def listdir(self, path: str) -> list[str]:
            if path.endswith("/fields"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().listdir(path)

    (tmp_path / ".safepoint").write_text("u.dat\nfields/*.vtk optional\n")
    session = Session(tmp_path)
    session.restore()
    (tmp_path / "u.dat").write_text("u")
    session._disk = Unreadable()
    with pytest.raises(SaveError, match="fields: Input/output error; nothing was moved"):
        session.hide(step=1)
    session.close()


def test_an_exception_that_interrupts_the_wait_loses_neither_the_set_nor_the_lock(tmp_path: Path) -> None:
    """G7, G8: a handler that raises SystemExit, as on SIGTERM, while hide waits for the set in flight."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = Session(tmp_path)
    session.restore()

    class Interrupted(Future[Record]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            raise SystemExit

    session._flight = Interrupted()
    with pytest.raises(SystemExit):
        session.hide(step=1)
    with pytest.raises(SystemExit):
        session.close()
    with pytest.raises(LockedError):
        Session(tmp_path)
    session._flight = None
    session._release()


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


def test_a_process_for_each_hide_goes_on_from_the_sets_that_are_there(start: Start, work: Path) -> None:
    """A job script: restore once, then a hide in a process of its own after each run of the program."""
    for step in (1, 2, 3):
        session = start("u\nv\n", restore=False)
        newest = session.adopt()
        assert (newest.step if newest else 0) == step - 1
        write(work, u=f"u{step}", v="v")
        session.hide(step, wait=True)
        session.close()
    assert sets(work) == [2, 3], "keep = 2"
    session = start("u\nv\n")
    saved = session.restore()
    assert saved is not None and saved.step == 3


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
            assert f"{work}/.safepoint.d is not there any more, or another one is" in text
            assert "all sets are gone with it" in text and "close() this session and call init() again" in text
            assert "intact" not in text
        with pytest.raises(safepoint.RestoreError, match="all sets are gone with it"):
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
        with pytest.raises(SaveError, match="all sets are gone with it"):
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
        assert (point := session.restore()) and point.step == 0
        write(work, u_dat="1")
    assert (point := session.hide(1))
    session.close()
    write(work, u_dat="torn")
    again = Session(work)
    assert (saved := again.restore()) and saved.step == 1 and contents(work) == {"u.dat": "1"}
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
    assert (saved := session.restore()) and saved.step == 1 and contents(work) == {"u.dat": "1"}


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
    session._thread = LateSaver()  # type: ignore[assignment]
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

    class Replaces(Disk):
        def sync(self, *arguments: Any, **options: Any) -> None:
            super().sync(*arguments, **options)
            if not away.exists() and (of_set_2 / "record.json.new").exists():
                (work / ".safepoint.d").rename(away)
                shutil.copytree(away, work / ".safepoint.d")

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


@pytest.mark.leaves_damage
@pytest.mark.parametrize("finished", [False, True])
def test_a_root_that_vanished_is_no_first_start(start: Start, work: Path, finished: bool) -> None:
    """G6: its sets are gone, and a fresh start would write over what is in W. Again and again, until the user says so
    by removing the side directory. With a finish mark too: there may have been sets of a run begun after it."""
    session = start("u.dat\n")
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1")
    session.finish(1) if finished else session.close()
    shutil.rmtree(work / ROOT)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(safepoint.DamagedError) as caught:
            start()
        assert f"{work}/{ROOT} is gone" in str(caught.value) and "remove" in str(caught.value)
        assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
        assert not (work / ROOT).exists()
    shutil.rmtree(work / ".safepoint.d")
    assert start(restore=False).restore() is None and contents(work) == {"u.dat": "1"}


def test_a_first_start_where_there_had_been_sets_is_said(start: Start, work: Path, said: Said) -> None:
    """Somebody has removed them one by one; the log beside them is older than that."""
    session = start("u.dat\n")
    session.close()
    start().close()  # began before, and no set yet: nothing is missing
    session = start()
    write(work, u_dat="0")
    session.hide(0, wait=True)
    session.close()
    assert "no set is left" not in str(said)
    for path in (work / ROOT).glob("set-*"):
        shutil.rmtree(path)
    start(restore=False)
    assert (
        "WARNING",
        f"no set is left in {work}/{ROOT}, though an earlier run had some: this is a first start",
    ) in said


def test_a_power_cut_in_the_first_start_never_looks_as_if_sets_had_vanished(tmp_path: Path) -> None:
    """G3: whatever names reached the disk first, the next start is a first one."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    disk = FaultDisk(work)
    session = Session(work, disk=disk)
    session.restore()
    session.close()
    count, cut = 0, tmp_path / "cut"
    cut.mkdir()
    for image in images(disk.record, str(cut), singles=100):
        again = Session(image.directory, disk=FaultDisk(image.directory, boot="after"))
        assert again.restore() is None, image
        again.close()
        shutil.rmtree(image.directory)
        count += 1
    assert count > 20
