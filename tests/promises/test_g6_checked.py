"""G6, checked: a set that was damaged later is detected before one byte of W is touched. An older whole set is given
back, or an error is raised.

Whatever is done to a file of the side directory, `restore` gives back one whole set and says which, or raises and
touches nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.damage import Start, contents, edit, room_above, start, write
from testbed.disks import Elsewhere, Failing, ends
from testbed.faultdisk import on
from testbed.sessions import ROOT

import safepoint
from safepoint import DamagedError, FormatError, SafepointError, SaveError, Session
from safepoint.disk import Disk
from safepoint.disk.codec import checksum
from safepoint.restoring.survey import survey
from safepoint.root import Root
from safepoint.sealed import FORMAT

MANIFEST = """\
u.npy
sub/v.dat
big.dat       compress
empty.dat
history.csv   append
run.zarr/
fields/*.vtk
keep = 3
"""
STEPS = 3  # sets 1, 2, 3 hold the steps 0, 1, 2
NEWEST = STEPS - 1
NO_PROMISE = ("lock", "owner.json", "log.jsonl")


def files(step: int) -> dict[str, bytes]:
    """All listed files at a step."""
    return {
        "u.npy": b"u at %d\n" % step * 50,
        "sub/v.dat": b"v at %d\n" % step * (20 + step),
        "big.dat": b"much the same, again and again, at %d\n" % step * 400,
        "empty.dat": b"",
        "history.csv": b"".join(b"row %d\n" % k for k in range(step + 1)),
        f"fields/{step}.vtk": b"field %d" % step,
        "run.zarr/meta": b"{%d}" % step,
        "run.zarr/a/0.0": bytes(range(step, step + 200)),
    }


def make(work: Path, *, finish: bool = False) -> Path:
    """A directory with three committed sets, left by a run that died while it wrote its next files."""
    work.mkdir()
    (work / ".safepoint").write_text(MANIFEST)
    session = safepoint.init(work)
    assert session.restore() is None
    for step in range(STEPS):
        write(work, files(step))
        session.hide(step, wait=True)
    if finish:
        write(work, files(STEPS))
        session.finish(STEPS)
        return work
    session.close()
    torn = {
        "u.npy": b"u at 3\nu a",
        "big.dat": b"",
        "run.zarr/a/0.0": b"half",
        "run.zarr/a/0.1": b"new",
        "fields/3.vtk": b"fie",
    }
    write(work, torn)
    with (work / "history.csv").open("ab") as file:
        file.write(b"row 3\nro")
    return work


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with room_above() as path:
        yield path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("pristine") / "work")


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "work"))


def listed(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(directory).items() if data is not None and name != ".safepoint"}


# Damages.


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


Damage = Callable[[bytes], "bytes | None"]
DAMAGES: dict[str, Damage] = {
    "first byte flipped": lambda data: flipped(data, 0),
    "middle byte flipped": lambda data: flipped(data, len(data) // 2),
    "last byte flipped": lambda data: flipped(data, len(data) - 1),
    "cut by a byte": lambda data: data[:-1],
    "cut to nothing": lambda data: b"",
    "deleted": lambda data: None,
    "a byte appended": lambda data: data + b"\0",
}
each_damage = pytest.mark.parametrize("damage", DAMAGES)


def hurt(path: Path, damage: Damage) -> bool:
    """Damage a file as a disk would: its times stay. False if there is nothing to damage in that way."""
    data, info = path.read_bytes(), path.stat()
    try:
        worse = damage(data)
    except IndexError:  # a bit of an empty file
        return False
    if worse is None:
        path.unlink()
    else:
        path.write_bytes(worse)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    return worse != data


def promising(work: Path) -> list[str]:
    """The regular files below the side directory on which something depends."""
    side = work / ".safepoint.d"
    names = [path.relative_to(side).as_posix() for path in side.rglob("*") if path.is_file()]
    return sorted(name for name in names if Path(name).name not in NO_PROMISE)


def complaint(begin: Start, work: Path, before: dict[str, bytes | None], named: str) -> str:
    """Why this start broke G6; nothing if it did not. `named`: the file that an error has to name."""
    if begin.error is not None:
        if not isinstance(begin.error, SafepointError):
            return f"raised {begin.error!r}"
        if contents(work) != before:
            return f"raised ({begin.text}) and changed the working directory"
        return "" if Path(named).name in begin.text else f"does not name {named}: {begin.text}"
    if begin.point is None:
        return "took it for a first start"
    step = begin.point.step
    if step is None or step not in range(STEPS):
        return f"restored step {step}"
    if listed(work) != files(step):
        return f"restored step {step}, but other bytes"
    if step != NEWEST and not any("set 3" in text and ": " in text for text in begin.warnings):
        return f"fell back to step {step} without a warning that says why: {begin.warnings}"
    return ""


def holds_newest(name: str) -> bool:
    """Whether the newest set cannot be given back without this file as it was."""
    return "/set-00000003/" in name and not name.endswith("/taken.json")


@each_damage
def test_damage_to_any_file_gives_back_a_whole_set_or_touches_nothing(
    pristine: Path, tmp_path: Path, damage: str
) -> None:
    """G6: every file below the side directory, one at a time; the newest set if that is whole, else the one before."""
    names, wrong, done = promising(pristine), {}, 0
    for name in names:
        work = Path(shutil.copytree(pristine, tmp_path / "work"))
        if hurt(work / ".safepoint.d" / name, DAMAGES[damage]):
            before = contents(work)
            begin = start(work)
            text = complaint(begin, work, before, name)
            if not text and name != "FORMAT":
                step = begin.point.step if begin.point else None
                expected = NEWEST - 1 if holds_newest(name) else NEWEST
                text = "" if step == expected else f"restored step {step} instead of {expected}: {begin.error!r}"
            if text:
                wrong[name] = text
            done += 1
        shutil.rmtree(work)
    assert done >= 20 and len([name for name in names if holds_newest(name)]) == 8
    assert not wrong, "\n".join(f"{name} {damage}: {text}" for name, text in wrong.items())


@each_damage
@pytest.mark.parametrize("name", ["record.json", "taken.json", "files/u.npy", "packed/big.dat.zst"])
def test_damage_where_the_set_was_written_is_found_too(tmp_path: Path, name: str, damage: str) -> None:
    """G6: on the machine that wrote the set, where inodes and the page cache would vouch for it (G2k)."""
    work = make(tmp_path / "work")
    assert hurt(work / ".safepoint.d/rank-00000/set-00000003" / name, DAMAGES[damage])
    before = contents(work)
    assert complaint(start(work), work, before, name) == ""


@pytest.mark.parametrize("way", ["deleted", "cut to nothing", "garbage"])
@pytest.mark.parametrize("name", [*NO_PROMISE, "all of them"])
def test_restore_does_not_depend_on_lock_owner_and_log(work: Path, name: str, way: str) -> None:
    """They carry no promise: without them, or with nonsense in them, the newest set comes back without a warning."""
    damage = DAMAGES.get(way, lambda data: b"\0 no { json\xff")
    killed = {"host": "here", "pid": 4321, "since": 1.5, "command": "solver"}  # one that ended has removed it
    (work / ".safepoint.d/rank-00000/owner.json").write_text(json.dumps(killed))
    for each in NO_PROMISE if name == "all of them" else (name,):
        hurt(work / ".safepoint.d/rank-00000" / each, damage)
    begin = start(work)
    assert (begin.error, begin.warnings) == (None, [])
    assert begin.point and (begin.point.step, listed(work)) == (NEWEST, files(NEWEST))


# All sets, and what comes after.


@pytest.mark.parametrize(
    ("name", "damage", "cause"),
    [
        ("files/u.npy", "middle byte flipped", "the checksum of u.npy differs"),
        ("files/u.npy", "cut by a byte", "u.npy has "),
        ("files/sub/v.dat", "deleted", "sub/v.dat is missing"),
        ("files/run.zarr/a/0.0", "last byte flipped", "the checksum of run.zarr/a/0.0 differs"),
        ("files/empty.dat", "a byte appended", "empty.dat has 1 bytes instead of 0"),
        ("packed/big.dat.zst", "middle byte flipped", "big.dat"),
        ("packed/big.dat.zst", "deleted", "big.dat is missing"),
        ("record.json", "middle byte flipped", "record.json"),
        ("record.json", "cut to nothing", "record.json"),
        ("record.json", "deleted", ""),
    ],
)
def test_if_no_set_is_whole_the_error_lists_each_and_why(work: Path, name: str, damage: str, cause: str) -> None:
    """G6: `DamagedError`, never None, which would mean a first start; no file of W is touched."""
    for number in (1, 2, 3):
        assert hurt(work / f".safepoint.d/rank-00000/set-{number:08d}" / name, DAMAGES[damage])
    before = contents(work)
    begin = start(work)
    assert isinstance(begin.error, DamagedError), begin
    reasons = [line for line in begin.text.splitlines() if cause in line]
    assert [[f"set {n}" in line for line in reasons].count(True) for n in (1, 2, 3)] == [1, 1, 1], begin.text
    assert contents(work) == before


def test_without_the_record_of_the_only_set_it_is_not_a_first_start(tmp_path: Path) -> None:
    """G6: the files of the set stay in it, and are not mixed with those in W, which the program has begun to write."""
    work = tmp_path / "made"
    work.mkdir()
    (work / ".safepoint").write_text("u.npy\nv.npy\n")
    session = safepoint.init(work)
    session.restore()
    for name in ("u.npy", "v.npy"):
        (work / name).write_bytes(b"step 0")
    session.hide(0)
    (work / "u.npy").write_bytes(b"step 1, tor")
    session.close()
    copied = Path(shutil.copytree(work, tmp_path / "work"))  # other inodes: nothing but the record speaks for the set
    (copied / ".safepoint.d/rank-00000/set-00000001/record.json").unlink()
    begin = start(copied)
    assert isinstance(begin.error, SafepointError), begin
    assert listed(copied) == {"u.npy": b"step 1, tor"}
    assert (copied / ".safepoint.d/rank-00000/set-00000001/files/v.npy").read_bytes() == b"step 0"


def test_without_its_record_a_set_still_in_the_page_cache_is_given_back(tmp_path: Path) -> None:
    """G2k: what `taken.json` proves whole is as good as committed, however the record was lost."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("u.npy\n")
    session = safepoint.init(work)
    session.restore()
    for step in (0, 1):
        (work / "u.npy").write_bytes(b"step %d" % step)
        session.hide(step)
    session.close()
    if session._root.disk.page_cache(str(work)).mount is None:
        pytest.skip("needs a local file system and Linux 6.8: else nothing proves that the page cache is the same")
    (work / ".safepoint.d/rank-00000/set-00000002/record.json").unlink()
    begin = start(work)
    assert begin.point and (begin.point.step, listed(work)) == (1, {"u.npy": b"step 1"}), begin


def test_a_set_under_another_number_is_not_that_set(work: Path) -> None:
    """G6: somebody has renamed it; its own record says that it is another."""
    root = work / ".safepoint.d/rank-00000"
    (root / "set-00000003").rename(root / "set-00000007")
    begin = start(work)
    assert begin.point and (begin.point.step, listed(work)) == (NEWEST - 1, files(NEWEST - 1)), begin
    assert any("set 7: record.json is that of set 3" in text for text in begin.warnings), begin


@pytest.mark.parametrize("damage", ["middle byte flipped", "cut by a byte", "deleted"])
@pytest.mark.parametrize("name", ["files/u.npy", "packed/big.dat.zst", "record.json"])
def test_after_a_fall_back_the_damaged_set_is_gone_and_its_number_is_free(work: Path, name: str, damage: str) -> None:
    """G6, G1: the new set under that number is the new one in all its files, now and at the next start."""
    root = work / ".safepoint.d/rank-00000"
    assert hurt(root / "set-00000003" / name, DAMAGES[damage])
    session = safepoint.init(work)
    try:
        saved = session.restore()
        assert saved and (saved.number, saved.step) == (2, 1)
        assert not (root / "set-00000003").exists() and not list(root.glob("gone-*"))
        (work / "fields/1.vtk").unlink()
        write(work, files(7))
        again = session.hide(7, wait=True)
    finally:
        session.close()
    assert again is not None and again.number > 2
    begin = start(work)
    assert (begin.error, begin.warnings) == (None, [])
    assert begin.point and (begin.point.number, begin.point.step) == (again.number, 7)
    assert listed(work) == files(7)


def test_one_damaged_set_after_the_other_each_start_falls_back_once(work: Path) -> None:
    """G6: a set that was passed over does not come back, and the one that was restored still can be."""
    root = work / ".safepoint.d/rank-00000"
    assert hurt(root / "set-00000003/files/u.npy", DAMAGES["middle byte flipped"])
    assert hurt(root / "set-00000002/files/sub/v.dat", DAMAGES["cut by a byte"])
    first, second = start(work), start(work)
    assert first.point and second.point and (first.point.step, second.point.step) == (0, 0)
    assert any("set 3" in text and "u.npy" in text and "set 2" in text and "v.dat" in text for text in first.warnings)
    assert second.warnings == []
    assert listed(work) == files(0)


# The append file lives in W.

LENGTHS = [len(files(step)["history.csv"]) for step in range(STEPS)]


@pytest.mark.parametrize(
    ("step", "damage"),
    [
        (None, lambda data: flipped(data, 0)),
        (None, lambda data: flipped(data, LENGTHS[0] - 1)),
        (None, lambda data: data[: LENGTHS[0] - 1]),
        (None, lambda data: b""),
        (None, lambda data: None),
        (0, lambda data: flipped(data, LENGTHS[0])),
        (0, lambda data: data[: LENGTHS[0]]),
        (1, lambda data: flipped(data, LENGTHS[1])),
        (1, lambda data: flipped(data, LENGTHS[2] - 1)),
        (1, lambda data: data[: LENGTHS[2] - 1]),
        (2, lambda data: flipped(data, LENGTHS[2])),
        (2, lambda data: data[: LENGTHS[2]]),
        (2, lambda data: data + b"more"),
    ],
)
def test_damage_to_the_part_of_an_append_file_that_a_set_needs_is_damage_to_the_set(
    work: Path, step: int | None, damage: Damage
) -> None:
    """G6: a set owns the first bytes of the file in W, and nothing of what follows them."""
    assert hurt(work / "history.csv", damage)
    before = contents(work)
    begin = start(work)
    assert complaint(begin, work, before, "history.csv") == ""
    assert (begin.point.step if begin.point else None) == step, begin
    if step is None:
        assert isinstance(begin.error, DamagedError) and begin.text.count("history.csv") == STEPS, begin
    elif step != NEWEST:
        assert any("history.csv" in text for text in begin.warnings), begin


# Records that are not ours, and formats of the future.


def test_a_record_edited_by_hand_with_a_correct_checksum_is_a_record(work: Path) -> None:
    """Else the tests below would prove nothing: what refuses those is not the checksum."""
    edit(work / ".safepoint.d/rank-00000/set-00000003/record.json", lambda content: content.update(step=77))
    begin = start(work)
    assert begin.point and begin.point.step == 77
    assert listed(work) == files(NEWEST)


def described(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "stored_size": len(data), "checksum": checksum(data)}


def plant(work: Path, *rows: dict[str, Any]) -> None:
    """Add rows to the record of the newest set."""
    usual = {
        "size": 0,
        "checksum": "",
        "mode": 0o100644,
        "mtime_ns": 0,
        "kept": "raw",
        "stored_size": 0,
        "offset": 0,
        "target": "",
        "group": -1,
    }

    def add(content: dict[str, Any]) -> None:
        content["files"] += [[(usual | row)[column] for column in content["columns"]] for row in rows]

    edit(work / ".safepoint.d/rank-00000/set-00000003/record.json", add)


def planted(work: Path, name: str) -> Path:
    """Add a file of this name to the newest set and its record; where it would be put back."""
    inside = Path(f"{work}/.safepoint.d/rank-00000/set-00000003/files/{name}")
    inside.parent.mkdir(parents=True, exist_ok=True)
    inside.write_bytes(b"not for here")
    plant(work, {"path": name, "kind": "file"} | described(b"not for here"))
    return Path(os.path.normpath(work / name))


def test_a_file_added_to_a_record_by_hand_comes_back(work: Path) -> None:
    """Else the next test would prove nothing: what refuses its names is the names."""
    target = planted(work, "extra.dat")
    begin = start(work)
    assert begin.point and (begin.point.step, target.read_bytes()) == (NEWEST, b"not for here")


@pytest.mark.parametrize(
    "name", ["../x", "../../x", "sub/../../x", "sub/../x", "/{tmp}/x", ".safepoint", ".safepoint.d/x", "./.safepoint"]
)
def test_a_record_that_names_a_file_outside_or_of_ours_is_refused(work: Path, tmp_path: Path, name: str) -> None:
    """docs/format.md, what is checked. A record may come from elsewhere: a correct seal does not help."""
    target = planted(work, name.replace("/{tmp}", str(tmp_path)))
    before, content = contents(work), target.read_bytes() if target.exists() else None
    begin = start(work)
    assert complaint(begin, work, before, "record.json") == ""
    assert begin.point and begin.point.step == NEWEST - 1, begin
    assert (target.read_bytes() if target.exists() else None) == content


@pytest.mark.parametrize("link", ["{tmp}/outside", "../../outside", "../../../../../../../../etc"])
def test_a_record_with_a_link_that_leads_outside_is_refused(work: Path, tmp_path: Path, link: str) -> None:
    """docs/format.md, what is checked: a link that `hide` would have refused does not come back."""
    (tmp_path / "outside").mkdir()
    os.symlink(link.format(tmp=tmp_path), work / ".safepoint.d/rank-00000/set-00000003/files/run.zarr/way")
    plant(work, {"path": "run.zarr/way", "kind": "link", "target": link.format(tmp=tmp_path)})
    before = contents(work)
    begin = start(work)
    assert complaint(begin, work, before, "record.json") == ""
    assert not os.path.lexists(work / "run.zarr/way")


def test_nothing_is_written_through_a_link_in_a_record(work: Path, tmp_path: Path) -> None:
    """docs/format.md, what is checked: nor while the set is staged, before W is touched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    way = work / ".safepoint.d/rank-00000/set-00000003/files/run.zarr/way"
    way.mkdir()
    (way / "x").write_bytes(b"not for here")
    plant(
        work,
        {"path": "run.zarr/way", "kind": "link", "target": str(outside)},
        {"path": "run.zarr/way/x", "kind": "file"} | described(b"not for here"),
    )
    start(work)
    assert os.listdir(outside) == []


@pytest.mark.parametrize("number", [FORMAT + 1, 10, 999])
def test_a_side_directory_of_a_newer_format_is_refused_and_left_as_it_is(work: Path, number: int) -> None:
    (work / ".safepoint.d/FORMAT").write_text(f"safepoint {number}\n")
    before = contents(work, side=True)
    begin = start(work)
    assert isinstance(begin.error, FormatError), begin
    assert f"format {number}" in begin.text and f"knows {FORMAT}" in begin.text and "newer" in begin.text
    assert contents(work, side=True) == before


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"safepoint", b"safepoint \n", b"safepoint one\n", b"safepoint -1\n", b"1\n", b"safepoint 0\n",
        b"safepoint 1 2\n", b"safepoint 1.5\n", b"Safepoint 1\n", b"\xff\xfe\0", b"safepoint 1\0\n",
        b"safepoint " + b"9" * 5000,
    ],
    ids=lambda data: repr(data[:20]),
)  # fmt: skip
def test_a_side_directory_without_a_known_format_is_refused_and_left_as_it_is(work: Path, data: bytes) -> None:
    (work / ".safepoint.d/FORMAT").write_bytes(data)
    before = contents(work, side=True)
    begin = start(work)
    assert isinstance(begin.error, FormatError) and "FORMAT" in begin.text, begin
    assert contents(work, side=True) == before


@pytest.mark.parametrize("numbers", [(3,), (1, 2, 3)])
def test_a_record_of_a_newer_format_is_refused(work: Path, numbers: tuple[int, ...]) -> None:
    """Not damage, which would make restore fall back to an older step: a newer safepoint can read it."""
    for number in numbers:
        path = work / f".safepoint.d/rank-00000/set-{number:08d}/record.json"
        edit(path, lambda content: content.update(format=FORMAT + 1, columns=["of", "the", "future"]))
    before = contents(work)
    begin = start(work)
    assert isinstance(begin.error, FormatError) and f"format {FORMAT + 1}" in begin.text, begin
    assert contents(work) == before
    assert all((work / f".safepoint.d/rank-00000/set-{number:08d}/record.json").exists() for number in (1, 2, 3))


# The other small files.


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "deleted"])
def test_a_damaged_finish_mark_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    """G4, G6: the final files are not taken for torn ones."""
    work = make(tmp_path / "work", finish=True)
    assert listed(work) == files(STEPS)
    assert hurt(work / ".safepoint.d/finished.json", DAMAGES[damage])
    begin = start(work)
    assert isinstance(begin.error, DamagedError) and "finished.json" in begin.text, begin
    assert listed(work) == files(STEPS)


def test_without_its_finish_mark_the_result_is_still_left_alone(tmp_path: Path) -> None:
    """G4: whoever deletes the mark starts afresh, from the files in place."""
    work = make(tmp_path / "work", finish=True)
    (work / ".safepoint.d/finished.json").unlink()
    begin = start(work)
    assert (begin.point, begin.error, listed(work)) == (None, None, files(STEPS))


@pytest.fixture
def unsaved(tmp_path: Path) -> Iterator[Path]:
    """A run that died in its first step, before the first `hide`: an initial file and a torn one."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("initial.dat\nu.npy\n")
    (work / "initial.dat").write_bytes(b"given")
    session = safepoint.init(work)
    session.restore()
    (work / "u.npy").write_bytes(b"tor")
    session.close()
    yield work


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "deleted"])
def test_a_damaged_baseline_is_an_error_that_names_it(unsaved: Path, damage: str) -> None:
    """G3, G6: without it torn first files cannot be told from initial ones, so none is touched."""
    assert hurt(unsaved / ".safepoint.d/rank-00000/baseline.json", DAMAGES[damage])
    begin = start(unsaved)
    assert isinstance(begin.error, DamagedError) and "baseline.json" in begin.text, begin
    assert listed(unsaved) == {"initial.dat": b"given", "u.npy": b"tor"}


@pytest.mark.parametrize("name", ["baseline.json", "finished.json"])
def test_small_files_of_a_newer_format_are_refused(unsaved: Path, name: str) -> None:
    path = unsaved / ".safepoint.d" / ("finished.json" if name == "finished.json" else "rank-00000/baseline.json")
    if name == "finished.json":
        shutil.copy(unsaved / ".safepoint.d/rank-00000/baseline.json", path)
    edit(path, lambda content: content.update(format=FORMAT + 1))
    begin = start(unsaved)
    assert isinstance(begin.error, FormatError) and f"format {FORMAT + 1}" in begin.text, begin
    assert listed(unsaved) == {"initial.dat": b"given", "u.npy": b"tor"}


# What a restart leaves for those after it.


def the_first_hide_was_killed_before_its_prune(work: Path) -> None:
    """Set 1 is committed, and the baseline is still there."""
    (work / ".safepoint").write_text("u.dat\n")
    with contextlib.closing(Session(work)) as session:
        session.restore()
        baseline = (work / ROOT / "baseline.json").read_bytes()
        (work / "u.dat").write_text("1")
        session.hide(1, wait=True)
    (work / ROOT / "baseline.json").write_bytes(baseline)


@pytest.mark.leaves_damage
def test_a_restart_after_the_first_set_ends_the_time_before_it(tmp_path: Path) -> None:
    """G6: a set that lost its record later is damage and no first start, since the baseline went with the restart."""
    the_first_hide_was_killed_before_its_prune(tmp_path)
    with contextlib.closing(Session(tmp_path)) as session:
        assert session.restore() is not None
        assert not (tmp_path / ROOT / "baseline.json").exists()
        (tmp_path / "u.dat").write_text("2")
        session.hide(2, wait=True)
        (tmp_path / "u.dat").write_text("3")
    for record in (tmp_path / ROOT).glob("set-*/record.json"):
        record.unlink()
    with contextlib.closing(Session(tmp_path, disk=Elsewhere(boot="later"))) as session, pytest.raises(DamagedError):
        session.restore()
    assert (tmp_path / "u.dat").read_text() == "3"


def test_a_restart_leaves_a_failed_set_to_the_next_commit(tmp_path: Path) -> None:
    """G7: it is kept for the user, but not for ever: on a full disk the next sets need its room."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    disk = Failing(ends("set-00000002/files/u.dat"))
    with contextlib.closing(Session(tmp_path, disk=disk)) as session:
        session.restore()
        for step in (1, 2):
            (tmp_path / "u.dat").write_text(f"{step}")
            session.hide(step)
        with pytest.raises(SaveError):
            session.wait()
        assert (tmp_path / ROOT / "failed-00000002").exists()
        assert session.restore() is not None and (tmp_path / ROOT / "failed-00000002").exists()
        (tmp_path / "u.dat").write_text("2")
        session.hide(2, wait=True)
    assert not list((tmp_path / ROOT).glob("failed-*"))


@pytest.mark.leaves_damage
@pytest.mark.parametrize("name", ["set-00000001/files", "set-00000001"])
def test_a_committed_set_behind_a_link_is_damage_until_it_is_moved_back(tmp_path: Path, name: str) -> None:
    """G6: also if the time before the first set has not ended: the set is not given up."""
    the_first_hide_was_killed_before_its_prune(tmp_path)
    there, away = tmp_path / ROOT / name, tmp_path / "away"
    there.rename(away)
    there.symlink_to(away)
    before = (tmp_path / ROOT / "baseline.json").read_bytes()
    for _ in range(2):
        with contextlib.closing(Session(tmp_path)) as session, pytest.raises(DamagedError, match="symbolic link"):
            session.restore()
    assert (tmp_path / ROOT / "baseline.json").read_bytes() == before
    there.unlink()
    away.rename(there)
    with contextlib.closing(Session(tmp_path)) as session:
        saved = session.restore()
    assert saved is not None and saved.step == 1 and (tmp_path / "u.dat").read_text() == "1"


def test_a_set_that_a_run_removes_during_a_look_is_none(tmp_path: Path) -> None:
    """verify beside a run at work: between the list of sets and the look at one of them."""
    the_first_hide_was_killed_before_its_prune(tmp_path)

    class Removes(Disk):
        def scan(self, path: str) -> list[os.DirEntry[str]]:
            if path.endswith("set-00000001"):
                os.rename(path, path.replace("set-", "gone-"))
            return super().scan(path)

    root = Root(str(tmp_path))
    assert [found.number for found in survey(root)] == [1]
    assert survey(on(root, Removes())) == []
