"""`hide`: what makes a set and what does not, what is refused, its label, and what it costs."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import re
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.disks import Counting, Gated
from testbed.sessions import ROOT, Said, Start, contents, ordinary_user, sets, write

import safepoint
import safepoint.disk
from safepoint import ManifestError, MissingFilesError, RefusedFileError, SafepointError, SaveError, Session, UsageError
from safepoint.disk import Disk

pytestmark = pytest.mark.usefixtures("clean_slate")


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
    session.wait()
    told = [level for level, text in said if text.startswith("nothing to hide")]
    assert told == ["WARNING", "ERROR"]
    said.clear()
    for step in range(60, 75):
        write(work, v_dat=str(step))
        session.hide(step)
    (text,) = [text for level, text in said if level == "ERROR"]
    assert "10 times in a row" in text and "changed since set 20 (step 57): v.dat: list in" in text


def test_the_look_for_what_did_change_is_bounded(start: Start, work: Path, said: Said) -> None:
    disk = Counting()
    session = start("u.dat\n", disk=disk)
    for name in range(5000):
        (work / f"{name}.vtk").touch()
    session.hide(0)
    disk.calls.clear()
    session.hide(1)
    assert disk.calls["stat"] <= 2100 and "changed since the start: " in said[-1][1]


def test_all_missing_files_are_named_and_nothing_is_moved(start: Start, work: Path) -> None:
    session = start("a.dat\nb.dat\nc/*.vtk\nd.dat optional\ne.dat\n")
    write(work, a_dat="a", e_dat="e")
    with pytest.raises(MissingFilesError) as caught:
        session.hide(0)
    assert str(caught.value) == (
        "missing: b.dat (line 2), c/*.vtk (line 3), though a.dat exists; nothing was moved (list what the program does "
        "not write for each set as copy, so that it stays; what may be absent as optional)"
    )
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


ONCE = {
    "a file": "best.dat optional\n",
    "compressed": "best.dat optional compress\n",
    "in the bundle": "best.dat optional\nbundle_from = 1\n",
    "of a glob": "b*.dat optional\n",
}


@pytest.mark.parametrize("end", ["killed", "killed at once", "finished", "finished at once", "a process each"])
@pytest.mark.parametrize("kind", ONCE)
def test_an_optional_file_that_is_not_written_again_is_in_every_set_after_it(
    start: Start, work: Path, said: Said, kind: str, end: str
) -> None:
    """The best state of a training: `hide` has moved it away, and it must not go with its set (keep = 2)."""
    session = start(f"u.dat\n{ONCE[kind]}")
    best = "the best state\n" * 99
    write(work, best_dat=best)
    sets_after = 0 if end.endswith("at once") else 4
    for step in range(sets_after + 1):
        write(work, u_dat=str(step))
        session.hide(step, wait=step % 2 == 0)
        assert not (work / "best.dat").exists()
        if end == "a process each":
            session.close()
            session = start(restore=False)
            session.adopt()
    told = [text for _, text in said if "has not written it since" in text]
    assert len(told) == (sets_after if end == "a process each" else 1 if sets_after else 0)
    assert all(text.startswith("best.dat was in the last set") and "copy optional" in text for text in told)
    if end.startswith("finished"):
        write(work, u_dat="later")
        session.finish()
    else:
        session.close()
        start()
    assert contents(work) == {"u.dat": "later" if end.startswith("finished") else str(sets_after), "best.dat": best}


def test_a_file_of_a_glob_that_is_not_written_again_is_named_before_it_goes(
    start: Start, work: Path, said: Said
) -> None:
    session = start("u.dat\nout-*.dat\n")
    for step in range(4):
        write(work, **{"u_dat": str(step), f"out-{step}_dat": "o"})
        session.hide(step, wait=True)
    text = (
        "out-0.dat was in the last set, and is in this one no more, as the program has not written it again: it goes "
        "with its set. If it is to stay list out-*.dat as copy"
    )
    assert [words for _, words in said if "out-" in words] == [text]


def test_an_optional_file_that_restore_gave_back_and_the_program_removed_is_gone(start: Start, work: Path) -> None:
    session = start("u.dat\nnotes.txt optional\n")
    write(work, u_dat="0", notes_txt="n")
    session.hide(0, wait=True)
    session.restore()
    (work / "notes.txt").unlink()
    write(work, u_dat="1")
    session.hide(1, wait=True)
    session.close()
    start()
    assert contents(work) == {"u.dat": "1"}


def test_what_the_disk_changed_in_a_file_that_is_carried_over_is_vouched_for_by_no_set(
    start: Start, work: Path
) -> None:
    """G6: the sets have one and the same file, and the next record must not believe what it reads."""
    session = start("u.dat\nbest.dat optional\n")
    write(work, u_dat="0", best_dat="good")
    session.hide(0, wait=True)
    write(work, u_dat="1")
    kept = next((work / ROOT).glob("set-*/files/best.dat"))
    info = kept.stat()
    kept.write_bytes(b"gone")
    os.utime(kept, ns=(info.st_mtime_ns, info.st_mtime_ns))
    with pytest.raises(SaveError, match=r"best\.dat is damaged in set 1 \(step 0\), from which this set has it"):
        session.hide(1, wait=True)
    assert contents(work) == {"u.dat": "1"}, "not also best.dat: it would be the file of set 1"
    kept.write_bytes(b"good")
    os.utime(kept, ns=(info.st_mtime_ns, info.st_mtime_ns))


def test_an_optional_file_that_a_set_did_not_have_is_set_aside(start: Start, work: Path) -> None:
    session = start("u.dat\nnotes.txt optional\n")
    write(work, u_dat="0")
    session.hide(0, wait=True)
    write(work, u_dat="1", notes_txt="of the lost iteration")
    session.close()
    start()
    assert contents(work) == {"u.dat": "0"}
    assert contents(work / ROOT / "discarded") == {"notes.txt": "of the lost iteration"}


ADDS = {
    "with a": (lambda path: path.open("a"), 'opened to be added to (with "a")', "append"),
    "by a link to its directory": (
        lambda path: (path.parent.parent / "link" / path.name).open("ab"),
        'opened to be added to (with "a")',
        "append",
    ),
    "by its descriptor": (
        lambda path: os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT), "w"),
        "opened to be changed in place",
        "copy",
    ),
    "a database": (lambda path: sqlite3.connect(path), "opened to be changed in place", "copy"),
    "anew": (lambda path: path.open("w"), "", ""),
    "anew, and then added to": (lambda path: [path.open("w").close(), path.open("a")][1], "", ""),
    "by a rename": (lambda path: [(path.parent / "new").open("a"), os.rename(path.parent / "new", path)][0], "", ""),
}


@pytest.mark.parametrize("how", ADDS)
def test_a_file_that_begins_anew_since_it_was_moved_away_is_named_at_the_second_set(
    start: Start, work: Path, said: Said, how: str
) -> None:
    """A log that is opened with "a" for each row keeps one row of all: said with the line to write, once."""
    session = start("u.dat\nlog.txt\n")
    (work.parent / "link").symlink_to(work)
    told = []
    for step in range(4):
        write(work, u_dat=str(step))
        with contextlib.closing(ADDS[how][0](work / "log.txt")) as file:
            file.execute("create table t(x)") if how == "a database" else file.write(b"row" if "link" in how else "row")
        session.hide(step, wait=True)
        told.append([text for _, text in said if "log.txt" in text])
    _, words, attribute = ADDS[how]
    text = (
        f"log.txt was {words} after hide had moved it away, so it has begun anew, without what it held: that is in "
        f"older sets alone, and goes with them. List it as: log.txt {attribute}"
    )
    assert told == ([[], *[[text]] * 3] if words else [[]] * 4)


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


WAYS = {  # links in run/ by name: what leads where; whether that is in it, as the kernel follows it
    "an address": ({"out": "{work}/run/a/file"}, True),
    "an address by another way": ({"out": "{tmp}/alias/run/a/file"}, True),
    "an address over a link": ({"up": "{work}/run/a", "out": "up/../a/file"}, True),
    "an address of the directory": ({"out": "{work}/run"}, True),
    "over its own directory": ({"out": "../run/a/file"}, True),
    "in a circle": ({"out": "back", "back": "out"}, True),
    "to what is not there": ({"out": "a/b/c/../none"}, True),
    "the text leads in, the link out": ({"a/b/c/up": "../../..", "out": "a/b/c/up/../.."}, False),
    "the text leads out, the link in": ({"in": "a/b/c", "a/out": "../in/../../../a/file"}, True),
    "over an address": ({"a/up": "{work}/run", "out": "a/up/../.."}, False),
    "an address beside it": ({"out": "{work}/running"}, False),
    "an address over its end": ({"out": "{work}/run/../u.dat"}, False),
    "over a directory beside it": ({"out": "../other/../run/a/file"}, False),
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_a_link_is_judged_by_where_it_leads_and_not_by_its_text(
    start: Start, work: Path, tmp_path: Path, name: str, attribute: str
) -> None:
    links, inside = WAYS[name]
    (tmp_path / "alias").symlink_to(work)
    session = start(f"run/ {attribute}\n")
    write(work, run__a__file="1", run__a__b__c__d="1")
    for link, target in links.items():
        (work / "run" / link).symlink_to(target.format(work=work, tmp=tmp_path))
    before = {link: os.path.realpath(work / "run" / link) for link in links}
    if not inside:
        with pytest.raises(SafepointError, match=r"is a symbolic link that leads out of its directory, to "):
            session.hide(0)
        assert {link: os.path.realpath(work / "run" / link) for link in links} == before
        return
    session.hide(0, wait=True)
    session.close()
    again = start()
    assert {link: os.path.realpath(work / "run" / link) for link in links} == before
    assert not any(os.path.isabs(os.readlink(work / "run" / link)) for link in links)  # it may be restored elsewhere
    again.close()


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


@pytest.mark.parametrize("attribute", ["", "copy", "append"])
def test_a_file_in_a_directory_that_is_elsewhere_by_a_link_is_refused(
    start: Start, work: Path, tmp_path: Path, attribute: str
) -> None:
    session = start(f"out/u.dat {attribute}\n")
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
    with pytest.raises(ManifestError, match=r"keep takes a whole number from 1, or all; and rules, as in .*, not 0"):
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
    [
        (2.0, "2.0"),
        (float("nan"), "nan"),
        ("3", "'3'"),
        (b"1", "b'1'"),
        ([1], "[1]"),
        (10**5000, "a number"),
        (np.float64(1), "1.0"),
    ],
    ids=["float", "nan", "text", "bytes", "list", "endless", "numpy"],
)
def test_a_step_that_is_no_integer_is_named_and_nothing_is_changed(
    start: Start, work: Path, step: Any, shown: str
) -> None:
    session = start("u.dat\nledger = modify\n")
    write(work, u_dat="u")
    for verb in (session.hide, session.finish, lambda given: session.watch(given, u=1)):
        with pytest.raises(
            UsageError,
            match=rf"^(hide|finish|watch): step must be an integer.*{re.escape(shown)}.*; nothing was changed",
        ):
            verb(step)
    assert contents(work) == {"u.dat": "u"} and sets(work) == []
    assert session.hide(1) is not None


@pytest.mark.parametrize(
    ("options", "name"),
    [({"keep": 2.0}, "keep"), ({"keep": "three"}, "keep"), ({"saver": 0.0}, "saver"), ({"signals": 10}, "signals"),
     ({"signals": [1.5]}, "signals"), ({"directory": 7}, "directory"), ({"directory": "a\0b"}, "directory")],
    ids=repr,
)  # fmt: skip
def test_an_option_of_init_that_is_of_the_wrong_kind_is_named(work: Path, options: dict[str, Any], name: str) -> None:
    """README: every error is one of safepoint, with a code."""
    (work / ".safepoint").write_text("u.dat\n")
    with pytest.raises(UsageError, match=name):
        safepoint.init(**{"directory": work, **options})
    assert [path.name for path in work.iterdir()] == [".safepoint"]


def test_hide_returns_before_the_disk_has_done_its_work(start: Start, work: Path) -> None:
    """Nor when the set before is still in flight: of those that waited behind it the newest is stored."""
    disk = Gated()
    session = start("u.dat\n", disk=disk)
    for step in range(5):
        write(work, u_dat=str(step))
        session.hide(step)
        disk.gate.clear()  # the first set always waits
    assert contents(work) == {} and sets(work) == [1]
    disk.gate.set()
    session.wait()
    assert sets(work) == [2, 5]


def test_with_store_every_hide_waits_for_the_set_before(start: Start, work: Path) -> None:
    session = start("u.dat\nstore = every\n")
    for step in range(4):
        write(work, u_dat=str(step))
        session.hide(step)
        assert sets(work)[-1] >= step
    session.wait()
    assert sets(work) == [3, 4]


# What hide costs.
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
    """A look at each, at W and at the lock; a question who has them open; two directories, the list, a rename each. No
    fsync."""
    files = {f"{name}_dat": "data" for name in "uvw"}
    calls = cost_of_hide(start, work, "u.dat\nv.dat\nw.dat\n", files)
    assert calls == {"stat": 5, "open_for_writing": 1, "mkdir": 2, "create": 1, "rename": 3}


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
    assert sum(costs[1].values()) <= 7


def test_a_directory_that_cannot_be_read_is_an_error_and_no_empty_glob(tmp_path: Path) -> None:
    """G7: else a set without its files would be committed as whole."""

    class Unreadable(Disk):
        def scan(self, path: str) -> list[os.DirEntry[str]]:
            if path.endswith("/fields"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().scan(path)

    (tmp_path / ".safepoint").write_text("u.dat\nfields/*.vtk optional\n")
    session = Session(tmp_path)
    session.restore()
    (tmp_path / "u.dat").write_text("u")
    session._root.disk = Unreadable()
    with pytest.raises(SaveError, match="fields: Input/output error; nothing was moved"):
        session.hide(step=1)
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
