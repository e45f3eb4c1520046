"""The attributes of an entry: append, compress, copy; and a file that is open for writing."""

from __future__ import annotations

import contextlib
import dbm.dumb
import errno
import os
import re
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testbed.commands import answer
from testbed.places import directory, drained, fetched
from testbed.sessions import ROOT, DeadSaver, Said, Start, contents, kill, write

from safepoint import RefusedFileError, SafepointError, SaveError, Session, companions
from safepoint.disk import Disk
from safepoint.manifest import parse
from safepoint.record import parse_record
from safepoint.root import Root

pytestmark = pytest.mark.usefixtures("clean_slate")


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
    session._work.thread = DeadSaver()  # type: ignore[assignment]  # not even before the saver has read it
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


def test_a_table_of_which_the_set_has_the_bytes_may_be_held_open_and_written_anew(start: Start, work: Path) -> None:
    """`append copy`: a restart finds it under its name, whatever the last life had made of it."""
    session = start("u.dat\nlogs/table.csv append copy\n")
    (work / "logs").mkdir()
    with (work / "logs/table.csv").open("w") as table:
        for step in range(3):
            write(work, u_dat=str(step))
            table.write(f"row {step}\n")
            table.flush()
            session.hide(step, wait=True)
        table.truncate(0)  # what no `append` alone would survive
    os.rename(work / "logs/table.csv", work / "table.old")
    session.close()
    start()
    assert (work / "logs/table.csv").read_text() == "row 0\nrow 1\nrow 2\n"
    assert len(list((work / ROOT).glob("set-*/files/logs/table.csv"))) == 2


# What is excluded.
MANIFEST = "out/ WAY\n*.dat\n!out/*.tmp\n!out/private\n!input.dat\n"


@pytest.mark.parametrize("way", ["", "copy", "compress"])
def test_what_is_excluded_is_in_no_set_is_not_waited_for_and_does_not_come_back(
    start: Start, work: Path, way: str
) -> None:
    """Hidden files only by a dot of their own; and a fifo, which could not be saved, is none of ours."""
    session = start(MANIFEST.replace("WAY", way))
    for step in range(2):
        write(work, u_dat=str(step), input_dat="given", out__a=str(step), out__x_tmp="scratch", out__deep__b="deep")
        (work / "out/.state.tmp").write_text("kept")
        (work / "out/private").mkdir(exist_ok=True)
        if not (work / "out/private/pipe").exists():
            os.mkfifo(work / "out/private/pipe")
        with (work / "out/x.tmp").open("a"):
            session.hide(step, wait=True)
        assert set(session.sets()[0].files) == {"u.dat", "out/a", "out/.state.tmp", "out/deep/b"}
    assert (work / "input.dat").read_text() == "given"
    session.close()
    start()
    assert contents(work) == {
        "u.dat": "1", "input.dat": "given", "out/": "", "out/a": "1", "out/.state.tmp": "kept", "out/deep/": "",
        "out/deep/b": "deep",
    }  # fmt: skip


@pytest.mark.parametrize("saves", [0, 2])
def test_a_file_that_is_excluded_no_longer_is_no_left_over_of_the_lost_iteration(
    start: Start, work: Path, saves: int
) -> None:
    """It was nobody's when the set was taken, or at the first start: now it is listed, and stays where it is."""
    session = start("*.dat\n!input.dat\n")
    write(work, input_dat="given")
    for step in range(saves):
        write(work, u_dat=str(step))
        session.hide(step, wait=True)
    session.close()
    for _ in range(2):
        session = start("*.dat\n")
        assert (work / "input.dat").read_text() == "given"
        session.close()


def test_a_directory_that_is_excluded_and_cannot_be_read_is_in_nobody_s_way(start: Start, work: Path) -> None:
    class Blind(Disk):
        def scan(self, path: str) -> list[os.DirEntry[str]]:
            if path.endswith("private"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return super().scan(path)

    write(work, out__a="first", out__private__key="secret")
    with pytest.raises(SaveError, match="private"):  # else this test would show nothing
        start("out/ copy\n", disk=Blind())
    session = start("out/ copy\n!out/private\n", disk=Blind())
    session.hide(0, wait=True)
    assert session.sets()[0].files == ("out/a",)


def test_an_exclusion_for_each_rank_makes_no_set_one_of_each_rank(start: Start, work: Path) -> None:
    """Else it could not be given back to another number of ranks, though it has the files of one."""
    session = start("out/ copy\n!out/part-{rank}.tmp\n")
    write(work, out__a="a")
    (work / "out/part-0.tmp").write_text("scratch")
    session.hide(0, wait=True)
    assert session._committed and not session._committed.per_rank
    assert session._committed.patterns == ("out", "/!out/part-{rank}.tmp") and session.sets()[0].files == ("out/a",)


# Files that belong to a listed one: journals, logs and locks of databases.
SQLITE = b"SQLite format 3\0 pages"
BESIDE = {  # the listed file, with what it begins with; a file beside it; whether that holds data
    "SQLite, a log": ("a.db", SQLITE, "a.db-wal", True),
    "SQLite, a journal": ("sub/a.db", SQLITE, "sub/a.db-journal", True),
    "SQLite, the journal of several": ("a.db", SQLITE, "a.db-mj0F3A9B1C7", True),
    "SQLite, shared memory": ("a.db", SQLITE, "a.db-shm", False),
    "DuckDB": ("run.db", bytes(8) + b"DUCK\xe7\3", "run.db.wal", True),
    "DuckDB, at a checkpoint": ("run.db", bytes(8) + b"DUCK\xe7\3", "run.db.wal.checkpoint", True),
    "Kyoto Cabinet": ("a.kch", b"KC\n\0", "a.kch.wal", True),
    "LMDB": ("m/data.mdb", bytes(16) + b"\xde\xc0\xef\xbe\1", "m/lock.mdb", False),
    "LMDB 1.0, one file": ("m.db", bytes(24) + b"\xde\xc0\xef\xbe\1", "m.db-lock", False),
    "Berkeley DB": ("a.bdb", bytes(12) + b"\x62\x31\x05\0", "log.0000000001", True),
    "Berkeley DB, a region": ("a.bdb", bytes(12) + b"\0\x05\x31\x62", "__db.001", False),
    "ZODB": ("Data.fs", b"FS30 transactions", "Data.fs.index", False),
    "LevelDB": ("l/CURRENT", b"MANIFEST-000002\n", "l/000003.log", True),
    "RocksDB": ("l/CURRENT", b"MANIFEST-000002\n", "l/LOCK", False),
}
beside_a_file = pytest.mark.parametrize(("name", "begins", "beside", "data"), BESIDE.values(), ids=BESIDE)


@beside_a_file
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_what_a_later_state_left_beside_a_file_that_comes_back_is_set_aside(
    start: Start, work: Path, said: Said, name: str, begins: bytes, beside: str, data: bool, attribute: str
) -> None:
    session = start(f"{name} {attribute}\n")
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).write_bytes(begins)
    session.hide(0, wait=True)
    (work / name).write_bytes(b"torn")
    (work / beside).write_text("of the lost iteration")
    session.close()
    said.clear()
    start()
    assert (work / name).read_bytes() == begins and not (work / beside).exists()
    assert (work / ROOT / "discarded" / beside).read_text() == "of the lost iteration"
    told = [text for level, text in said if level == "WARNING" and f"{beside} holds data of {name} (" in text]
    assert len(told) == data


@beside_a_file
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_what_holds_data_of_a_file_is_saved_with_it(
    start: Start, work: Path, name: str, begins: bytes, beside: str, data: bool, attribute: str
) -> None:
    session = start(f"{name} {attribute}\n")
    (work / name).parent.mkdir(exist_ok=True)
    for step in range(2):  # the second time the format is known
        (work / name).write_bytes(begins)
        (work / beside).write_text(f"transactions {step}")
        session.hide(step, wait=True)
    (work / beside).write_text("of the lost iteration")
    session.close()
    start()
    assert (work / name).read_bytes() == begins
    assert (not data and not (work / beside).exists()) or (work / beside).read_text() == "transactions 1"


def test_an_extracted_database_has_the_log_of_its_set(start: Start, work: Path, tmp_path: Path) -> None:
    session = start("a.db copy\n")
    (work / "a.db").write_bytes(SQLITE)
    write(work, **{"a.db-wal": "transactions 0"})
    session.hide(0, wait=True)
    write(work, **{"a.db-wal": "transactions 1", "a.db-journal": "of a later state"})
    session.close()
    answer("restore", work, "--to", tmp_path / "to")
    assert set(contents(tmp_path / "to")) == {"a.db", "a.db-wal"}
    assert (tmp_path / "to/a.db-wal").read_text() == "transactions 0"


def test_an_encrypted_database_is_known_by_its_journal(start: Start, work: Path) -> None:
    session = start("a.db copy\n")
    write(work, a_db="salt and noise")
    session.hide(0, wait=True)
    session.close()
    (work / "a.db-wal").write_bytes(b"\x37\x7f\x06\x82 frames")
    (work / "a.db-journal").write_text("of the user, as the file is none of SQLite")
    start()
    assert set(contents(work)) == {"a.db", "a.db-journal"}


def test_both_files_of_dbm_dumb_are_saved_though_one_is_listed(start: Start, work: Path) -> None:
    session = start("shelf.dat copy\n")
    for step in range(2):
        with dbm.dumb.open(str(work / "shelf"), "c") as shelf:
            shelf[f"{step}"] = "x" * 600
        if step == 0:
            session.hide(0, wait=True)
    session.close()
    start()
    with dbm.dumb.open(str(work / "shelf"), "r") as shelf:
        assert shelf.keys() == [b"0"] and shelf["0"] == b"x" * 600


def test_beside_an_initial_file_too_nothing_of_the_lost_life_stays(start: Start, work: Path) -> None:
    """Without any set: the initial file is as it was, and all that was written since is in its log."""
    (work / "a.db").write_bytes(SQLITE)
    session = start("a.db copy\nb.db optional\n")
    write(work, **{"a.db-wal": "transactions", "a.db-shm": "index"})
    session.close()
    start()
    assert set(contents(work)) == {"a.db"}
    assert set(contents(work / ROOT / "discarded")) == {"a.db-wal", "a.db-shm"}


def test_a_log_that_was_there_at_the_first_start_stays(start: Start, work: Path) -> None:
    (work / "a.db").write_bytes(SQLITE)
    write(work, **{"a.db-wal": "transactions", "a.db-shm": "index"})
    start("a.db copy\n").close()
    start()
    assert {"a.db", "a.db-wal"} <= set(contents(work))


@pytest.mark.parametrize("of", [None, b"", bytes(100)])
@pytest.mark.parametrize("top, listed", [("", "a.db\nown.db\n"), ("sub", "sub/*.db optional\n")])
def test_a_log_of_a_file_that_a_power_cut_took_goes_aside(
    start: Start, work: Path, of: bytes | None, top: str, listed: str
) -> None:
    """Before any set: whether its name is lost, or its contents are, the next file of that name must not meet its log.
    One that was there at the first start is somebody's, unless the lost life has written it."""
    (here := work / top).mkdir(exist_ok=True)
    before = dict.fromkeys(("old.db.wal", "own.db.wal", "plain.txt-journal"), "of before")
    for name, text in before.items():
        (here / name).write_text(text)
    kill(start(f"u.dat\n{listed}"))
    lost = dict.fromkeys(("a.db-wal", "a.db.wal", "own.db.wal"), "of the lost life")
    for name, text in lost.items():
        (here / name).write_text(text)
    if of is not None:
        (here / "a.db").write_bytes(of)
    start()
    aside = {Path(name).name: text for name, text in contents(work / ROOT / "discarded").items() if "." in name}
    assert aside == {**lost, **({"a.db": of.decode()} if of is not None else {})}
    there = {path.name: path.read_text() for path in here.iterdir() if path.is_file() and path.name != ".safepoint"}
    assert there == {name: text for name, text in before.items() if name not in lost}


def test_what_finish_brings_back_has_its_own_log(start: Start, work: Path) -> None:
    session = start("a.db\nb.db\n")
    for name in ("a.db", "b.db", "b.db-wal"):
        (work / name).write_bytes(SQLITE)
    session.hide(0)
    write(work, **{"a.db-journal": "of a later state"})
    session.finish()
    assert set(contents(work)) == {"a.db", "b.db", "b.db-wal"}


REFUSED = {
    "a.db append\n": "a.db-wal holds data of a.db (SQLite), which is not a file that only grows: list it as a.db copy",
    "*.db* copy\n!*-wal\n": "a.db-wal holds data of a.db (SQLite), and a line with ! excludes it: leave that line out",
    "a.db copy\na.db-wal\n": "line 2 lists it in another way than line 1 that: list it as a.db-wal copy optional, or",
    "a.db\na.db-wal append\n": "line 2 lists it in another way than line 1 that: list it as a.db-wal optional, or",
}


@pytest.mark.parametrize("manifest", REFUSED)
def test_what_could_not_be_saved_with_its_file_is_refused(start: Start, work: Path, manifest: str) -> None:
    session = start(manifest)
    (work / "a.db").write_bytes(SQLITE)
    write(work, **{"a.db-wal": "transactions"})
    with pytest.raises(RefusedFileError) as caught:
        session.hide(0)
    assert REFUSED[manifest] in str(caught.value)
    assert set(contents(work)) == {"a.db", "a.db-wal"}


@pytest.mark.parametrize("attribute", ["", "copy"])
def test_what_holds_data_of_a_file_of_a_listed_directory_is_not_excluded(
    start: Start, work: Path, attribute: str
) -> None:
    session = start(f"run/ {attribute}\n!run/**/*-*\n")
    (work / "run/deep").mkdir(parents=True)
    (work / "run/deep/a.db").write_bytes(SQLITE)
    write(work, **{"run/deep/b.dat-wal": "of no database", "run/deep/a.db-shm": "index"})
    session.hide(0, wait=True)
    (work / "run/deep").mkdir(parents=True, exist_ok=True)
    (work / "run/deep/a.db").write_bytes(SQLITE)
    write(work, **{"run/deep/a.db-wal": "transactions"})
    text = r"run/deep/a.db-wal holds data of run/deep/a.db \(SQLite\), and a line with ! excludes it"
    with pytest.raises(SafepointError, match=text):
        session.hide(1, wait=True)


def test_a_log_of_files_of_several_ranks_is_refused(work: Path) -> None:
    for name in ("part-0.bdb", "part-1.bdb", "log.0000000001"):
        (work / name).write_bytes(bytes(12) + b"\x62\x31\x05\0")
    listed, root = parse("part-{rank}.bdb copy\n").owned_by(1, 2, 0), Root(str(work), 1, 2, 0)
    found, _ = listed.find(root.work, os.lstat, 1, 2)
    with pytest.raises(RefusedFileError, match=r"log\.0000000001 holds data of part-1\.bdb .* of other ranks"):
        companions.add(root, listed, found, refuse=True)


def test_why_names_what_will_be_set_aside(start: Start, work: Path) -> None:
    session = start("a.db copy\n")
    (work / "a.db").write_bytes(SQLITE)
    session.hide(0, wait=True)
    write(work, **{"a.db-wal": "of the lost iteration"})
    session.close()
    (fate,) = [each for each in answer("why", work)["files"] if each["path"] == "a.db-wal"]
    assert "moved to discarded/: it lies beside a.db" in str(fate)
    start()
    assert not (work / "a.db-wal").exists()


ROWS = """
import os, signal, sqlite3, sys
import safepoint
session = safepoint.Session(".")
saved = session.restore()
db = sqlite3.connect("a.db")
db.execute(f"PRAGMA journal_mode={sys.argv[1]}")
db.execute("CREATE TABLE IF NOT EXISTS t(x BLOB)")
db.commit()
print(db.execute("SELECT count(*) FROM t").fetchone()[0])
for step in range(20):
    db.execute("INSERT INTO t VALUES(?)", (bytes(3000),))
    if step == 15:
        db.execute("PRAGMA cache_size=5")  # pages of the transaction go to the file before its end
        for byte in range(30):
            db.execute("UPDATE t SET x = ?", (bytes([byte]) * 3000,))
        os.kill(os.getpid(), signal.SIGKILL)
    db.commit()
    if step == 9:
        session.hide(step, wait=True)
"""


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "PERSIST", "TRUNCATE"])
def test_a_database_that_was_killed_has_the_rows_of_its_set(work: Path, mode: str) -> None:
    (work / ".safepoint").write_text("a.db copy\n")
    for rows in (0, 10):
        done = subprocess.run([sys.executable, "-c", ROWS, mode], cwd=work, capture_output=True, text=True)
        assert (done.stdout.split(), done.returncode) == ([str(rows)], -signal.SIGKILL), done.stderr


# Permissions.
SECRET, BEHIND = (
    b"for my eyes only ",
    b"behind a closed door ",
)  # of files with mode 0600; and with 0644 in a closed way
CLOSED = "u.dat\nbig.dat compress\nsnap.dat copy\nlog.csv append\nsmall-*.txt optional\ntree/ copy\nmoved/\n"
CLOSED += "closed/open.dat\nclosed/packed.dat compress\nclosed/log.csv append\nclosed/snap.dat copy\n"
PLACES = {
    "each of its own": CLOSED + "bundle_from = 1000\n",
    "small ones in a bundle": CLOSED + "bundle_from = 2\n",
    "one that is shared too": CLOSED + "bundle_from = 2\nshared.txt\n",
}


class Watching(Disk):
    """After each operation that changes something nobody else can read a file that only its owner may."""

    def __init__(self, *tops: Path) -> None:
        self.tops, self.seen, self.known = tops, set[str](), dict[tuple[int, int, int], tuple[bool, bool]]()

    def look(self) -> None:
        for top in self.tops:
            self._look_in(str(top), 0o055)

    def _look_in(self, way: str, reach: int) -> None:
        """`reach`: the rights of group and others that the directories above leave them."""
        with contextlib.suppress(FileNotFoundError), os.scandir(way) as found:
            for entry in found:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    self._look_in(entry.path, reach & (info.st_mode & 0o011) * 5)
                else:
                    self._look_at(entry, info, reach)

    def _look_at(self, entry: os.DirEntry[str], info: os.stat_result, reach: int) -> None:
        key = info.st_ino, info.st_mtime_ns, info.st_size
        if key not in self.known:
            data = Path(entry.path).read_bytes()
            self.known[key] = SECRET in data, BEHIND in data
        secret, behind = self.known[key]
        if secret or entry.name.endswith((".zst", "bundle.tar")) or entry.name.startswith("rank-00000."):
            self.seen.add(entry.path)
            assert not info.st_mode & 0o077, f"{entry.path}: {info.st_mode:o}"
        assert not (behind and info.st_mode & reach), f"{entry.path}: {info.st_mode:o} behind {reach:o}"

    @contextlib.contextmanager
    def create(self, path: str, *mode: int) -> Iterator[BinaryIO]:
        with super().create(path, *mode) as file:
            self.look()
            yield file
        self.look()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.look()

    def exchange(self, one: str, other: str) -> bool:
        done = super().exchange(one, other)
        self.look()
        return done

    def duplicate(self, *files: Any, **how: Any) -> bool:
        done = super().duplicate(*files, **how)
        self.look()
        return done

    def set_mode_and_time(self, path: str, mode: int, mtime_ns: int, group: int = -1) -> None:
        super().set_mode_and_time(path, mode, mtime_ns, group)
        self.look()


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def write_closed(work: Path, step: int) -> None:
    (work / "closed").mkdir(mode=0o700, exist_ok=True)
    for way in ("tree", "moved"):
        (work / way).mkdir(exist_ok=True)
    names = ["u.dat", "big.dat", "snap.dat", "small-1.txt", "small-2.txt", "small-3.txt", "tree/a", "moved/a"]
    for name in [*names, "closed/open.dat", "closed/packed.dat", "closed/snap.dat"]:
        closed = name.startswith("closed/")
        data = (BEHIND if closed else SECRET) + f"{step} ".encode() * 3
        with open(work / name, "wb", opener=partial(os.open, mode=0o644 if closed else 0o600)) as file:
            file.write(data * (2000 if name in ("big.dat", "closed/packed.dat") else 1))
    for name in ("log.csv", "closed/log.csv"):
        mode = 0o644 if name.startswith("closed/") else 0o600
        with open(work / name, "ab", opener=partial(os.open, mode=mode)) as file:
            file.write((BEHIND if mode == 0o644 else SECRET) + b"\n")
    (work / "shared.txt").write_text(str(step))


@pytest.mark.parametrize("manifest", PLACES.values(), ids=PLACES)
@pytest.mark.usefixtures("no_umask")
def test_at_no_moment_can_more_people_read_a_copy_than_the_file(tmp_path: Path, manifest: str) -> None:
    """Wherever bytes are copied: sets, bundles, packed files, snapshots, `stage/`, `discarded/`, beginnings of append
    files, pieces at a place, what is fetched, what is extracted. And all modes come back."""
    (work := tmp_path / "a").mkdir(mode=0o755)
    (tmp_path / "place").mkdir(mode=0o755)
    (tmp_path / "b").mkdir(mode=0o755)
    (work / ".safepoint").write_text(f"{manifest}remote = {tmp_path / 'place'}\ndrain = off\n")
    disk = Watching(work, tmp_path / "place", tmp_path / "b")
    with contextlib.closing(Session(work, disk=disk)) as session:
        session.restore()
        for step in (1, 2):
            write_closed(work, step)
            session.hide(step, wait=True)
    drained(work, directory(tmp_path / "place", disk), disk=disk)
    write_closed(work, 3)
    (work / "small-9.txt").write_bytes(SECRET)  # a stray, which is set aside
    (work / "small-9.txt").chmod(0o600)
    (work / "log.csv").write_bytes(b"")  # begun anew: a copy of its beginning is kept, if there is one
    (work / "log.csv").write_bytes((SECRET + b"\n") * 3)
    with contextlib.closing(Session(work, disk=disk)) as session:
        session.restore()
    fetched(directory(tmp_path / "place", disk), tmp_path / "b", disk=disk)
    (tmp_path / "b/.safepoint").write_text(manifest)
    with contextlib.closing(Session(tmp_path / "b", disk=disk)) as session:
        session.restore()
    for top in (work, tmp_path / "b"):
        modes = {path.relative_to(top).as_posix(): path.stat().st_mode & 0o777 for path in top.rglob("*")}
        assert [modes[name] for name in ("closed", "closed/open.dat", "closed/log.csv")] == [0o700, 0o644, 0o644]
        assert {modes[name] for name in ("u.dat", "big.dat", "snap.dat", "log.csv", "tree/a", "small-1.txt")} == {0o600}
        assert modes[".safepoint.d"] == 0o700
    seen = {re.sub(r".*/rank-00000/(set-[0-9]+/)?|.*/set-[-0-9a-f]+/", "", path, count=1) for path in disk.seen}
    assert {"packed/big.dat.zst", "files/moved/a", "stage/u.dat", "append/log.csv", "discarded/small-9.txt"} <= seen
    assert ("bundle.tar" in seen) == ("bundle_from = 2" in manifest)
    assert any(name.startswith("rank-00000.000000") for name in seen) and any(
        name.startswith("fetched/") for name in seen
    )


@pytest.mark.parametrize("older", [False, True])
def test_a_group_that_may_write_in_the_directory_may_read_what_it_may_read_there(work: Path, older: bool) -> None:
    """Shared on purpose; what is closed to the group in W is closed to it in a set."""
    before = os.umask(0o002)
    try:
        work.chmod(0o2775)
        if older:
            (work / ".safepoint.d").mkdir(mode=0o777)
        (work / ".safepoint").write_text("a.dat\nsub/b.dat\nclosed/c.dat\nsub/d.dat compress\nbundle_from = 1000\n")
        with contextlib.closing(Session(work)) as session:
            session.restore()
            (work / "closed").mkdir(mode=0o700)
            write(work, a_dat="1", sub__b_dat="2", closed__c_dat="3", sub__d_dat="4" * 1000)
            session.hide(1, wait=True)
        kept = work / ROOT / "set-00000001"
        found = {path.relative_to(work).as_posix(): path.stat().st_mode & 0o777 for path in (work / ROOT).rglob("*")}
        modes = {name.removeprefix(f"{ROOT}/set-00000001/"): mode for name, mode in found.items()}
        assert (work / ".safepoint.d").stat().st_mode & 0o777 == 0o770 and modes[f"{ROOT}/lock"] == 0o660
        assert [modes[name] for name in ("files", "files/sub", "files/closed")] == [0o770, 0o770, 0o700]
        assert modes["packed/sub/d.dat.zst"] == 0o660 and kept.exists()
    finally:
        os.umask(before)


def acl(*entries: tuple[int, int, int]) -> bytes:
    """As linux/posix_acl_xattr.h has it: tag, rights, who."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ALL = 0xFFFFFFFF
OWNER = 1, 6, ALL
ACLS = {
    "what a user has, the group has not": (acl(OWNER, (2, 4, 4321), (4, 0, ALL), (16, 4, ALL), (32, 0, ALL)), 0o600),
    "a group has less than others": (acl(OWNER, (4, 4, ALL), (8, 0, 4321), (16, 6, ALL), (32, 4, ALL)), 0o600),
    "what the group has, it keeps": (acl(OWNER, (2, 6, 4321), (4, 4, ALL), (16, 6, ALL), (32, 0, ALL)), 0o640),
}


@pytest.mark.parametrize("attribute", ["", " copy", " compress", " append"])
@pytest.mark.parametrize("given", ACLS.values(), ids=ACLS)
def test_a_copy_without_the_acl_of_a_file_is_narrower(
    start: Start, work: Path, given: tuple[bytes, int], attribute: str
) -> None:
    session = start(f"u.dat{attribute}\nv.dat\n")
    write(work, u_dat="much the same" * 100, v_dat="1")
    try:
        os.setxattr(work / "u.dat", "system.posix_acl_access", given[0])
    except (OSError, AttributeError) as error:
        pytest.skip(f"no ACLs here: {error}")
    session.hide(1, wait=True)
    session.close()
    record = parse_record((work / ROOT / "set-00000001/record.json").read_bytes())
    assert [file.mode & 0o777 for file in record.files if file.path == "u.dat"] == [given[1]]
    if attribute == " append":
        return
    (work / "u.dat").unlink(missing_ok=True)
    start()
    assert (work / "u.dat").stat().st_mode & 0o777 == given[1]


@pytest.mark.parametrize("may", [True, False])
def test_a_file_of_another_group_comes_back_with_it_or_narrower(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch, may: bool
) -> None:
    def refused(*arguments: Any, **how: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    session = start("u.dat\nv.dat copy\n")
    write(work, u_dat="1", v_dat="2")
    for name in ("u.dat", "v.dat"):
        (work / name).chmod(0o640)
        try:
            os.chown(work / name, -1, 4321)
        except PermissionError as error:
            pytest.skip(f"no other group here: {error}")
    if not may:
        monkeypatch.setattr(os, "chown", refused)
    session.hide(1, wait=True)
    session.close()
    start()
    found = [(work / name).stat() for name in ("u.dat", "v.dat")]
    expected = (0o640, True) if may else (0o600, False)
    assert [(info.st_mode & 0o777, info.st_gid == 4321) for info in found] == [expected] * 2
