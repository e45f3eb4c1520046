"""What a program may ask of its sets while it runs: which there are, one of them again, and one beside."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.disks import Gated
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.sessions import ROOT, DeadSaver, Said, Start, contents, kill, sets, write

import safepoint
from safepoint import DamagedError, NothingSavedError, UsageError, default


def flip(path: Path) -> None:
    """The first byte is another one, or, the second time, as it was."""
    data, info = bytearray(path.read_bytes()), path.stat()
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def hidden(session: Any, work: Path, *steps: int) -> None:
    for step in steps:
        write(work, u_dat=str(step))
        session.hide(step, wait=True, extra={"loss": step / 10})


def test_the_sets_are_told_newest_first_and_what_each_survives(start: Start, work: Path) -> None:
    session = start("u.dat\nkeep = 3\n", disk=(disk := Gated()))
    hidden(session, work, 0, 1)
    disk.gate.clear()
    write(work, u_dat="22")
    session.hide(2)
    found = session.sets()
    disk.gate.set()
    assert [(s.number, s.step, s.files, s.bytes, s.durable) for s in found] == [
        (3, 2, ("u.dat",), 2, False),
        (2, 1, ("u.dat",), 1, True),
        (1, 0, ("u.dat",), 1, True),
    ]
    assert [dict(s.extra) for s in found] == [{}, {"loss": 0.1}, {"loss": 0.0}]
    assert "safe from a kill" in repr(found[0]) and "durable" in repr(found[1]) and "step 1" in repr(found[1])
    session.wait()
    assert session.sets()[0].durable


def test_a_damaged_set_is_not_told_as_one_but_said(start: Start, work: Path, said: Said) -> None:
    session = start("u.dat\n")
    hidden(session, work, 0, 1)
    (work / ROOT / "set-00000001/record.json").write_text("")
    assert [s.number for s in session.sets()] == [2]
    assert next(text for level, text in said if level == "WARNING").startswith("set 1 is damaged")
    (work / ROOT / "set-00000001/record.json").unlink()


@pytest.mark.parametrize("way", ["step", "set"])
def test_a_roll_back_to_a_set_that_is_asked_for(start: Start, work: Path, said: Said, way: str) -> None:
    session = start("u.dat\nkeep = 4\n")
    hidden(session, work, 0, 10, 20, 30)
    write(work, u_dat="torn")
    point = session.restore(step=10) if way == "step" else session.restore(set=np.int64(2))
    assert point and (point.number, point.step, point.extra) == (2, 10, {"loss": 1.0})
    assert contents(work) == {"u.dat": "10"} and sets(work) == [1, 2]
    asked = f"removed, as {way} {10 if way == 'step' else 2} was asked for"
    told = [(level, text) for level, text in said if text.startswith("restored set 2")]
    assert told == [("INFO", f"restored set 2 (step 10): 1 files, 0.0 MB; set 4: {asked}; set 3: {asked}")]
    hidden(session, work, 11)
    assert sets(work) == [1, 2, 3]
    session.close()
    again = start("u.dat\nkeep = 4\n", restore=False).restore()
    assert again and again.step == 11


def test_what_cannot_be_rolled_back_to_is_said_and_changes_nothing(start: Start, work: Path) -> None:
    session = start("u.dat\nkeep = 3\n")
    hidden(session, work, 0, 10, 20)
    write(work, u_dat="mine")
    with pytest.raises(
        UsageError, match=r"no set of step 15 in .*; there are: set 3 \(step 20\), set 2 \(step 10\), set 1"
    ):
        session.restore(step=15)
    with pytest.raises(UsageError, match=r"there is no set 9 in"):
        session.restore(set=9)
    with pytest.raises(UsageError, match="not both"):
        session.restore(step=1, set=2)
    with pytest.raises(UsageError, match=r"restore: step must be an integer, not 1\.0"):
        session.restore(step=1.0)
    flip(work / ROOT / "set-00000002/files/u.dat")
    with pytest.raises(DamagedError, match=r"the set of step 10 in .* is not whole; no file was touched"):
        session.restore(step=10)
    assert contents(work) == {"u.dat": "mine"} and sets(work) == [1, 2, 3]
    point = session.restore()
    assert point and point.step == 20 and contents(work) == {"u.dat": "20"}
    flip(work / ROOT / "set-00000002/files/u.dat")  # as it was


def three_sets(directory: Path) -> None:
    directory.mkdir()
    (directory / ".safepoint").write_text("u.dat\nt.csv append\nkeep = 3\n")
    session = safepoint.Session(directory)
    session.restore()
    for step in (1, 2, 3):
        write(directory, u_dat=f"u of {step}")
        with (directory / "t.csv").open("a") as table:
            table.write(f"row {step}\n")
        session.hide(step, wait=True)
    session.close()


def whole_afterwards(directory: Path, disk: FaultDisk) -> int:
    """The step that the next start gives back: that which was asked for, or the newest."""
    session = safepoint.Session(directory, disk=disk)
    point = session.restore()
    assert point and point.step in (1, 3), point
    rows = "".join(f"row {step}\n" for step in range(1, point.step + 1))
    assert contents(directory) == {"u.dat": f"u of {point.step}", "t.csv": rows}
    session.close()
    return point.step


def test_a_roll_back_that_is_killed_anywhere_leaves_that_set_or_the_newest(tmp_path: Path) -> None:
    """G3."""
    three_sets(tmp_path / "base")
    whole = FaultDisk(shutil.copytree(tmp_path / "base", tmp_path / "whole"))
    session = safepoint.Session(tmp_path / "whole", disk=whole)
    session.restore(step=1)
    after = len(whole.record.ops)
    session.close()
    came = set()
    for at in [op for op in whole.record.changing if op < after]:
        directory = Path(shutil.copytree(tmp_path / "base", tmp_path / "killed"))
        disk = FaultDisk(directory, kill_at=at)
        with contextlib.suppress(Killed):
            safepoint.Session(directory, disk=disk).restore(step=1)
        disk.end()
        came.add(whole_afterwards(directory, FaultDisk(directory, before=disk)))
        shutil.rmtree(directory)
    assert came == {1, 3}


def test_a_roll_back_survives_a_power_cut(tmp_path: Path) -> None:
    """G2, G3: when it has returned that set is the newest, whatever the disk forgets."""
    three_sets(tmp_path / "base")
    disk = FaultDisk(tmp_path / "base")
    session = safepoint.Session(tmp_path / "base", disk=disk)
    session.restore(step=1)
    returned = len(disk.record.ops)
    disk.end()
    count = 0
    for image in images(disk.record, str(tmp_path), seed=5, singles=1):
        step = whole_afterwards(Path(image.directory), FaultDisk(image.directory, boot="2", inodes=image.inodes))
        assert step == 1 or image.ops < returned, image
        shutil.rmtree(image.directory)
        count += 1
    assert count > 30


def test_an_old_set_is_read_beside_the_run(start: Start, work: Path) -> None:
    session = start("u.dat\nt.csv append\nzipped.dat compress\nkeep = 2\n")
    for step in (1, 2):
        write(work, u_dat=f"u of {step}", zipped_dat=str(step) * 9000)
        with (work / "t.csv").open("a") as table:
            table.write(f"row {step}\n")
        session.hide(step, wait=True)
    write(work, u_dat="being written")
    with session.reading(1) as old:
        assert contents(old) == {"u.dat": "u of 1", "t.csv": "row 1\n", "zipped.dat": "1" * 9000}
        assert (old / "u.dat").stat().st_mode & 0o222 == 0
    assert not old.exists() and (work / "u.dat").read_text() == "being written" and sets(work) == [1, 2]
    with session.reading(session.sets()[0], directory=work.parent) as new:
        assert (new / "u.dat").read_text() == "u of 2" and new.parent == work.parent
    with pytest.raises(NothingSavedError, match=r"no set 7 in .*; there are: 2, 1"), session.reading(7):
        pass
    with pytest.raises(UsageError, match="takes the number of a set"), session.reading("u.dat"):
        pass
    flip(work / ROOT / "set-00000001/files/u.dat")
    with pytest.raises(DamagedError, match=r"set 1 is damaged: the checksum of u\.dat differs"), session.reading(1):
        pass
    flip(work / ROOT / "set-00000001/files/u.dat")


def test_a_set_that_is_not_stored_cannot_be_read_yet(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=(disk := Gated()))
    hidden(session, work, 0)
    disk.gate.clear()
    write(work, u_dat="1")
    session.hide(1)
    try:
        with pytest.raises(UsageError, match="set 2 is not stored yet: wait"), session.reading(2):
            pass
    finally:
        disk.gate.set()


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("extra", "wrong"),
    [
        ({"u": object()}, r"extra\['u'\] takes a JSON value, not <object"),
        ({"a": {"b": [1, b"x"]}}, r"extra\['a'\]\['b'\]\[1\] takes a JSON value, not b'x'"),
        ({1: 2}, "its names are texts, not 1"),
        ([1], r"extra takes a dict of a few JSON values, not \[1\]"),
        ({"u": np.zeros(3)}, r"extra\['u'\] takes a JSON value"),
        ({"text": "x" * 5000}, "extra has 50.. bytes as JSON, and 4096 is the most: keep it in a file"),
        ({"text": "\ud800"}, r"extra\['text'\]"),
        ({"a": np.longdouble(0.3)}, r"extra\['a'\] takes a JSON value"),
        ({"a": 10**5000}, "extra takes a few JSON values: "),
        ({"a": LOOP}, "extra takes a few JSON values: "),
    ],
)
def test_an_extra_that_cannot_be_kept_is_named_and_nothing_moves(
    start: Start, work: Path, extra: Any, wrong: str
) -> None:
    session = start("u.dat\n")
    write(work, u_dat="0")
    with pytest.raises(UsageError, match=wrong):
        session.hide(0, extra=extra)
    assert contents(work) == {"u.dat": "0"} and sets(work) == []


def test_the_extra_comes_back_after_a_kill_and_by_every_way(start: Start, work: Path) -> None:
    extra = {
        "loss": np.float32(0.5),
        "time": 3,
        "name": "sod",
        "ok": True,
        "none": None,
        "of": [1, {"a": float("inf")}],
    }
    session = start("u.dat\n")
    write(work, u_dat="0")
    point = session.hide(0, extra=extra)
    expected = {**extra, "loss": 0.5}
    assert point and point.extra == expected
    write(work, u_dat="1")
    session._work.thread = DeadSaver()  # type: ignore[assignment]  # so set 2 is completed by what taken.json says
    session.hide(1, extra=extra)
    assert session.sets()[0].extra == expected
    kill(session)
    again = start("u.dat\n", restore=False).restore()
    assert again and (again.step, again.extra) == (1, expected)


def test_what_hide_returns_is_not_what_the_saver_writes_down(start: Start, work: Path) -> None:
    session = start("u.dat\n", disk=(disk := Gated()))
    hidden(session, work, 0)
    disk.gate.clear()
    write(work, u_dat="1")
    point = session.hide(1, extra={"loss": 1.0, "of": [1]})
    assert point
    point.extra["loss"] = object()  # type: ignore[index]
    point.extra["of"].append(2)
    disk.gate.set()
    session.wait()
    assert session.sets()[0].extra == {"loss": 1.0, "of": [1]}


def test_save_points_go_to_other_ranks_and_into_sets(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    hidden(session, work, 1)
    write(work, u_dat="1")
    found: list[Any] = [*session.sets(), session.hide(2, extra={"a": [1]})]
    session.finish()
    found.append(start("u.dat\n", restore=False).restore())
    for each in found:
        assert pickle.loads(pickle.dumps(each)) == each == copy.deepcopy(each)
    assert len({*found, *found}) == 3 and found[-1].finished


def test_a_step_whose_record_is_damaged_is_not_passed_off_as_missing(start: Start, work: Path) -> None:
    session = start("u.dat\nkeep = 3\n")
    hidden(session, work, 0, 10, 20)
    record = work / ROOT / "set-00000002/record.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:-9])
    with pytest.raises(DamagedError, match=r"the set of step 10 in .* is not whole"):
        session.restore(step=10)
    with pytest.raises(DamagedError, match=r"the set 2 in .* is not whole"):
        session.restore(set=2)
    record.write_bytes(whole)
    assert session.restore(step=10)


def test_sessions_and_save_points_say_what_they_are(start: Start, work: Path) -> None:
    session = start("u.dat\n", restore=False)
    assert session.directory == work.resolve()
    session.restore()
    hidden(session, work, 7)
    assert repr(session) == f"<Session in {work.resolve()}: at work, set 1 (step 7) is durable>"
    session.close()
    assert repr(session) == f"<Session in {work.resolve()}: ended>"
    later = start("u.dat\n", restore=False)
    assert repr(later) == f"<Session in {work.resolve()}: not restored yet>"
    point = later.restore()
    assert re.fullmatch(r"<SavePoint: set 1, step 7, 1 files, \d{4}-\d\d-\d\d .*, extra \{'loss': 0\.7\}>", repr(point))


def test_the_functions_of_the_package_have_docstrings_that_an_editor_shows() -> None:
    """Literal ones, with the errors, and the arguments of the session's methods."""
    tree = ast.parse(Path(default.__file__).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    public = {name for name in safepoint.__all__ if inspect.isfunction(getattr(safepoint, name))}
    assert set(functions) == public and len(public) >= 12
    for name, node in functions.items():
        text = ast.get_docstring(node) or ""
        assert "Raises:" in text or name in ("init", "mark"), name
        if name not in ("init", "sets", "reading"):
            assert "ollective" in text or "thread" in text or name in ("watch", "atomic"), name


@pytest.mark.usefixtures("clean_slate")
def test_without_a_session_each_function_says_what_is_missing() -> None:
    for call in (safepoint.sets, safepoint.close, lambda: safepoint.reading(1)):
        with pytest.raises(UsageError, match=r"before init: call safepoint\.init\(\) first"):
            call()
