"""The side directory of format 1, as an earlier safepoint wrote it: `tests/files/format-1.tar.gz` is restored for ever.

`python tests/files/test_format.py` made it; it is never made again, or this would test nothing.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from testbed.faultdisk import FaultDisk, Killed
from testbed.program import listed
from testbed.sweep import sample

from safepoint import Session
from safepoint.disk import Disk, PageCache
from safepoint.record import parse_record
from safepoint.restoring.verify import verify
from safepoint.root import Root

GOLDEN = Path(__file__).with_name("format-1.tar.gz")
MANIFEST = """\
u.dat
big.dat
notes.txt        compress
history.csv      append
params.db        copy
fields/*.vtk
run.zarr/
out.bp/          compress
optional.dat     optional
bundle_from = 6
"""


def files(step: int) -> dict[str, bytes]:
    names = ("u.dat", "notes.txt", "params.db", "run.zarr/meta", "run.zarr/a/0.0", "out.bp/md.0", "out.bp/é.0")
    made = {name: f"{name} at step {step}\n".encode() * 60 for name in names}
    made |= {f"fields/{step}-{k}.vtk": f"vtk {k} of {step}\n".encode() * 9 for k in range(7)}
    made |= {
        "big.dat": b"%d" % step * 70_000,
        "run.zarr/empty": b"",
        "history.csv": b"".join(b"row %d\n" % k for k in range(10 * step + 10)),
    }
    return made


def make() -> None:
    """Two committed sets, a third that is prepared, and files of the next step, half written."""
    import os
    import tempfile

    class Anonymous(Disk):
        def page_cache(self, path: str) -> PageCache:
            return PageCache("node-1", "boot", None)

    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        work = Path("work")
        work.mkdir()
        (work / ".safepoint").write_text(MANIFEST)
        session = Session(work, disk=Anonymous())
        session.restore()
        for step in range(2):
            for name, data in files(step).items():
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                (work / name).write_bytes(data)
            if not (work / "run.zarr/link").is_symlink():
                (work / "run.zarr/link").symlink_to("meta")
            (work / "run.zarr/hollow").mkdir(exist_ok=True)
            session.hide(step, wait=True)
        session.close()
        (work / "u.dat").write_bytes(b"torn")
        with (work / "history.csv").open("ab") as file:
            file.write(b"row of a lost iteration\n")
        GOLDEN.parent.mkdir(exist_ok=True)
        with tarfile.open(GOLDEN, "x:gz") as tar:
            tar.add("work", filter=anonymous)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """As it was found, perhaps on another machine, under another user."""
    with tarfile.open(GOLDEN) as tar:
        if sys.version_info >= (3, 12):
            tar.extractall(tmp_path, filter="tar")
        else:
            tar.extractall(tmp_path)
    return tmp_path / "work"


def test_the_newest_set_of_format_1_is_given_back(work: Path) -> None:
    with Session(work) as session:
        saved = session.restore()
        assert saved is not None and (saved.number, saved.step, saved.finished) == (2, 1, False)
        assert listed(work) == {**files(1), "run.zarr/link": files(1)["run.zarr/meta"]}
        assert (work / "run.zarr/link").is_symlink() and (work / "run.zarr/hollow").is_dir()
        session.hide(2, wait=True)
        assert session.restore() is not None
        session.close()


def test_a_directory_of_format_1_is_closed_to_the_library_that_wrote_it(work: Path) -> None:
    """G5: it knows no lives, and would take what it finds for sets of its own. Its sets count as the oldest life."""
    with Session(work) as session:
        session.restore()
        session.hide(1, wait=True)
        session.close()
    assert (work / ".safepoint.d/FORMAT").read_text() == "safepoint 2\n"
    root = Root(str(work.resolve()))
    assert [parse_record(Path(root.record(n)).read_bytes()).life for n in (2, 3)] == [0, 1]


def test_killed_at_each_operation_of_the_first_start_on_format_1(work: Path) -> None:
    """G3: before, its sets are those of the older library; after, those of this one; never neither."""
    shutil.copytree(work, work.with_name("whole"), symlinks=True)
    whole = FaultDisk(str(work.with_name("whole")))
    Session(whole.directory, disk=whole).restore()
    whole.end()
    for at in sample(whole.record.changing, 4):
        copy = work.with_name(f"killed-{at}")
        shutil.copytree(work, copy, symlinks=True)
        disk = FaultDisk(str(copy), kill_at=at)
        with suppress(Killed):
            Session(copy, disk=disk).restore()
        disk.end()
        assert disk.dead
        session = Session(copy)
        saved = session.restore()
        assert saved is not None and saved.number == 2, at
        assert listed(copy) == {**files(1), "run.zarr/link": files(1)["run.zarr/meta"]}, at
        session.close()
        shutil.rmtree(copy)


@pytest.mark.leaves_damage
def test_an_older_set_of_format_1_is_given_back_where_the_newest_is_damaged(work: Path) -> None:
    for path in work.glob(".safepoint.d/rank-00000/set-00000002/**/u.dat"):
        path.write_bytes(b"rotten")
    for path in work.glob(".safepoint.d/rank-00000/set-00000002/bundle.tar"):
        path.write_bytes(bytes(path.stat().st_size))
    with Session(work) as session:
        saved = session.restore()
        assert saved is not None and (saved.number, saved.step) == (1, 0)
        expected = files(0)
        assert {name: data for name, data in listed(work).items() if name in expected} == expected
        session.close()


def test_every_way_of_keeping_a_file_is_in_it(work: Path) -> None:
    """Raw, compressed, in the bundle, in place; else this is a test of less than it says."""
    root = Root(str(work.resolve()))
    record = parse_record(Path(root.record(2)).read_bytes())
    assert {file.kept for file in record.files if file.kind == "file"} == {"raw", "zst", "tar"}
    assert {file.kind for file in record.files} == {"file", "append", "tree", "dir", "link"}
    assert record.version == "0.1.0" and verify(root) == {1: "committed", 2: "committed"}
    shutil.rmtree(work)


if __name__ == "__main__":
    make()
