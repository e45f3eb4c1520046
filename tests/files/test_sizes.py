"""Files of every size and shape: beyond 4 GiB, with holes, empty, ten thousand of them, deep below, read-only."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testbed import mounts
from testbed.children import child, says
from testbed.counted_work import lines
from testbed.disks import NoRoom, OneByOne
from testbed.faultdisk import InOrder
from testbed.sizes import kept, needs_linux, session_of

from safepoint import RefusedFileError, SafepointError, SaveError, Session
from safepoint.cli.look import diff, overview
from safepoint.cli.look.why import foresee
from safepoint.disk import Disk, kernel
from safepoint.disk.files import remove_files, remove_tree
from safepoint.ledger.kept import Kept, opened
from safepoint.record import StoredFile, parse_record
from safepoint.saving import contents, store


class Alone(Disk):
    """All in one thread, each operation of which is counted."""

    def __init__(self) -> None:
        self.looks = 0

    def stat(self, path: str) -> os.stat_result:
        self.looks += 1
        return super().stat(path)

    helpers: Any = InOrder(last_first=False)


LISTED = {
    "a glob": ("d/*\n", "d/{}"),
    "a line each": ("", "d/{}"),
    "a glob of directories": ("d*/\n", "d{}/x"),
    "files in directories": ("**/x\nbundle_from = 100000\n", "d{}/x"),
    "append files": ("d/* append\n", "d/{}"),
}


def life_with(work: Path, manifest: str, name: str, count: int) -> Iterator[tuple[str, int]]:
    """What each call of a life with so many files takes."""
    names = [name.format(f"{number:04}") for number in range(count)]
    work.mkdir()
    (work / ".safepoint").write_text(manifest or "".join(f"{each}\n" for each in names))

    def write(step: int) -> None:
        for each in names:
            (work / each).parent.mkdir(exist_ok=True)
            with (work / each).open("a") as file:
                file.write(str(step))

    session = Session(work, disk=Alone(), background=False)
    session.restore()
    for step in range(2):
        write(step)
        yield f"hide {step}", lines(functools.partial(session.hide, step))
    write(2)
    session.close()
    yield "status", lines(lambda: overview.look(Alone(), str(work)))
    seen = overview.look(Alone(), str(work))
    yield "why", lines(lambda: foresee(seen, quick=True))
    lives: list[Session] = []
    yield "init", lines(lambda: lives.append(Session(work, disk=Alone(), background=False)))
    yield "restore", lines(lives[0].restore)
    yield "finish", lines(functools.partial(lives[0].finish, 2))


@pytest.mark.parametrize("listed", LISTED)
def test_twice_as_many_files_take_twice_the_work_and_no_more(listed: str, tmp_path: Path) -> None:
    """A hundred thousand files, however they are listed: what looks at each pair of them would take hours."""
    few, many = (dict(life_with(tmp_path / f"{count}", *LISTED[listed], count)) for count in (100, 200))
    grown = {call: round(many[call] / few[call], 2) for call in few if many[call] > 2.2 * few[call]}
    assert not grown, (grown, few, many)


def test_to_compare_a_file_takes_as_long_in_a_large_set_as_in_a_small_one(tmp_path: Path) -> None:
    """`diff` takes each file that differs out of its tar."""
    steps = []
    for count in (100, 500):
        work = tmp_path / str(count)
        work.mkdir()
        session = session_of(work, "u*\n", background=False)
        for number in range(count):
            (work / f"u{number}").write_text("1")
        session.hide(1)
        session.close()
        kept = diff._side(overview.look(Disk(), str(work)), "1", "now")["u7"]

        def take_out(kept: Kept = kept, work: Path = work) -> None:
            with opened("u7", kept, str(work)) as path:
                assert Path(path).read_text() == "1"

        steps.append(lines(take_out))
    assert steps[1] < 1.05 * steps[0], steps


@pytest.mark.parametrize("committed", [True, False])
def test_status_looks_once_at_each_file_of_a_set(committed: bool, tmp_path: Path) -> None:
    """In files/, or, of a set whose commit a kill prevented, there or where it still is."""
    for number in range(100):
        (tmp_path / f"u{number}").write_text("1")
    session = session_of(tmp_path, "u*\nbundle_from = 100000\n")
    session.hide(1, wait=True)
    session.close()
    if not committed:
        (tmp_path / ".safepoint.d/rank-00000/set-00000001/record.json").unlink()
    disk = Alone()
    (seen,) = overview.look(disk, str(tmp_path)).sets
    assert seen.state == ("complete" if committed else "completable")
    assert disk.looks < 180


def test_files_are_removed_several_at_once(tmp_path: Path) -> None:
    """A disk that is told which blocks are free may take a millisecond for each file, and is waited for."""
    for number in range(1000):
        (tmp_path / f"run/{number}").parent.mkdir(exist_ok=True)
        (tmp_path / f"run/{number}").write_text("1")
    others = threading.Barrier(4, timeout=500)

    class Waiting(Disk):
        def remove(self, path: str) -> None:
            if path.endswith("00"):  # one of each hundred in which they are removed
                others.wait()
            super().remove(path)

    disk = Waiting()
    remove_files(disk, [str(tmp_path / f"run/{number}") for number in range(600, 1000)])
    others.reset()
    remove_tree(disk, str(tmp_path / "run/0"))
    disk.helpers.dismiss()
    assert len(list((tmp_path / "run").iterdir())) == 599


@pytest.mark.parametrize("bundle_from", [1, 1000])
@pytest.mark.parametrize("attribute", ["", "copy"])
def test_a_directory_comes_back_with_empty_directories_modes_times_and_links(
    tmp_path: Path, attribute: str, bundle_from: int
) -> None:
    session = session_of(tmp_path, f"run/ {attribute}\nbundle_from = {bundle_from}\n")
    deep = tmp_path / "run" / "/".join(f"level-{n}" for n in range(60))
    deep.mkdir(parents=True)
    (deep / "deep.dat").write_bytes(b"deep")
    (tmp_path / "run/empty").mkdir()
    (tmp_path / "run/empty.dat").write_bytes(b"")
    (tmp_path / "run/only-read.dat").write_bytes(b"r")
    (tmp_path / "run/only-read.dat").chmod(0o440)
    (tmp_path / "run/run.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "run/run.sh").chmod(0o755)
    (tmp_path / "run/link").symlink_to("level-0/level-1")
    (tmp_path / "run/empty").chmod(0o2750)
    os.utime(tmp_path / "run/run.sh", ns=(10**18, 10**18 + 123456789))

    def look() -> dict[str, Any]:
        found = {}
        for path in (tmp_path / "run").rglob("*"):
            info = path.lstat()
            what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            time = None if path.is_symlink() else info.st_mtime_ns
            found[str(path.relative_to(tmp_path))] = stat.filemode(info.st_mode), time, what
        return found

    before = look()
    session.hide(0)
    session.close()
    again = Session(tmp_path)
    again.restore()
    assert look() == before
    again.close()


def test_a_link_out_of_a_directory_is_refused_and_all_is_back(tmp_path: Path) -> None:
    for attribute in ("", "copy"):
        session = session_of(tmp_path, f"run/ {attribute}\n")
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run/out").unlink(missing_ok=True)
        (tmp_path / "run/out").symlink_to("../elsewhere")
        with pytest.raises(SafepointError, match=r"run/out is a symbolic link that leads out of its directory"):
            session.hide(0)
        assert (tmp_path / "run/out").is_symlink()
        session.close()


@needs_linux
def test_who_has_a_file_open_is_named_with_process_and_descriptor(tmp_path: Path) -> None:
    """Other processes count as our own does; in a directory that moves as a whole too."""
    session = session_of(tmp_path, "u.dat\nrun/\ncopy_open_below = 4\n")
    (tmp_path / "run").mkdir()
    for name in ("u.dat", "run/v.dat"):
        with child(
            "file = open(sys.argv[1], 'wb'); print(file.fileno(), flush=True); input()", tmp_path / name
        ) as writer:
            descriptor = says(writer)
            for other in {"u.dat", "run/v.dat"} - {name}:
                (tmp_path / other).write_bytes(b"whole")
            (tmp_path / name).write_bytes(b"half of it")
            with pytest.raises(SafepointError) as caught:
                session.hide(0)
            told = f"{name} is still open for writing (descriptor {descriptor} of process {writer.pid} ("
            assert told in str(caught.value)
            assert (tmp_path / name).read_bytes() == b"half of it"
    session.hide(0)
    session.close()


@needs_linux
def test_a_directory_in_which_something_still_wrote_is_not_completed_by_the_next_start(tmp_path: Path) -> None:
    """G1: the writer dies with the program, and what is in the directory then looks as good as any."""
    session = session_of(tmp_path, "run/\n")
    for step in (0, 1):
        (tmp_path / "run").mkdir()
        (tmp_path / "run/v.dat").write_bytes(b"whole %d" % step)
        with (tmp_path / "run/v.dat").open("r+b" if step else "rb"):
            session.hide(step)
            if step:
                with pytest.raises(SafepointError, match=r"run/v\.dat is still open for writing"):
                    session.wait()
    session._home.release()  # as if killed
    again = Session(tmp_path)
    saved = again.restore()
    assert saved is not None and saved.step == 0 and (tmp_path / "run/v.dat").read_bytes() == b"whole 0"
    again.close()


@needs_linux
def test_a_listed_file_on_another_file_system_is_refused_and_both_are_named(tmp_path: Path) -> None:
    if reason := mounts.why_not("ext4"):
        pytest.skip(f"a mount below the working directory {reason}")
    with mounts.mounted("ext4", 40) as other:
        inside = tmp_path / "scratch"
        inside.mkdir()
        os.system(f"mount --bind {other} {inside}")
        try:
            (inside / "u.dat").write_bytes(b"u")
            (tmp_path / "v.dat").write_bytes(b"v")
            for manifest in ("scratch/u.dat\n", "scratch/u.dat copy\n", "scratch/u.dat append\n", "scratch/\n"):
                session = session_of(tmp_path, "v.dat\n" + manifest)
                with pytest.raises(RefusedFileError) as caught:
                    session.hide(0)
                assert f"mounted at {inside}" in str(caught.value) and "v.dat" not in str(caught.value)
                assert (tmp_path / "v.dat").exists() and (inside / "u.dat").read_bytes() == b"u"
                session.close()
        finally:
            os.system(f"umount {inside}")


@needs_linux
def test_a_copy_of_several_files_is_as_of_one_moment(tmp_path: Path) -> None:
    """G1: a writer that comes in between two of the snapshots is noticed; nothing is taken."""

    class Interrupted(Disk):
        def duplicate(self, source: Any, target: Any, *how: Any, **more: Any) -> bool:
            done = super().duplicate(source, target, *how, **more)
            if source.name.endswith("b.db"):
                with (tmp_path / "a.db").open("r+b") as file:  # was copied already
                    file.write(b"newer")
            return done

    (tmp_path / "a.db").write_bytes(b"older")
    (tmp_path / "b.db").write_bytes(b"older")
    session = session_of(tmp_path, "a.db copy\nb.db copy\n", disk=Interrupted())
    with pytest.raises(RefusedFileError, match=r"^a\.db changed while it was copied"):
        session.hide(0)
    assert not list((tmp_path / ".safepoint.d/rank-00000").glob("set-*/files/*"))
    session.close()


@needs_linux  # where a file cannot be renamed while it is open, it is opened later
def test_a_large_file_is_on_its_way_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flush would be later by what reading takes; a small one is flushed at once."""
    begun: list[tuple[str, int]] = []
    read = store.checksummed

    class Watched(Disk):
        def start_writeback(self, file: str | BinaryIO, length: int = 0) -> None:
            begun.append((os.path.basename(file if isinstance(file, str) else file.name), length))
            super().start_writeback(file, length)

    def checksummed(disk: Disk, content: contents.Content, *rest: Any) -> StoredFile:
        begun.append((f"{content.file.path} is read", 0))
        return read(disk, content, *rest)

    monkeypatch.setattr(store, "checksummed", checksummed)
    session = session_of(tmp_path, "field\n", disk=Watched())
    for size in (store.AHEAD, store.AHEAD + 1):
        (tmp_path / "field").write_bytes(bytes(size))
        session.hide(size, wait=True)
    session.close()
    assert begun == [("field is read", 0), ("field", store.AHEAD), ("field is read", 0)]


@needs_linux
@pytest.mark.parametrize("files", [1, 3])
def test_a_write_back_that_fails_fails_the_save(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """ext4 may drop data for which it finds no place, when it begins to write; an fsync after that may return 0."""
    answer = 0

    class Libc:
        def sync_file_range(self, *_: Any) -> int:
            ctypes.set_errno(answer)
            return -1 if answer else 0

    session = session_of(tmp_path, "".join(f"f{k}\n" for k in range(files)))
    for step, answer in enumerate((0, errno.ENOSYS, errno.EIO)):
        for k in range(files):
            (tmp_path / f"f{k}").write_bytes(bytes([step]) * (store.AHEAD + 1))
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "_libc", Libc)
            if answer == errno.EIO:
                with pytest.raises(SaveError, match=r"f\d: Input/output error"):
                    session.hide(step, wait=True)
            else:
                session.hide(step, wait=True)
    session.close()
    with contextlib.closing(Session(tmp_path)) as session:
        last = session.restore()
    assert last and last.step == 1


def test_progress_counts_every_byte_once_and_ends_at_all_of_them(tmp_path: Path) -> None:
    session = session_of(tmp_path, "u.dat\nv.dat compress\nw.csv append\nrun/*\nbundle_from = 5\n")
    (tmp_path / "run").mkdir()
    sizes = {"u.dat": 3_000_000, "v.dat": 2_500_000, "w.csv": 70_000} | {f"run/{n}": 100 * n for n in range(9)}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"abcd" * (size // 4))
    session.hide(0)
    session.close()
    told: list[tuple[int, int]] = []
    again = Session(tmp_path)
    again.restore(progress=lambda done, total: told.append((done, total)))
    again.close()
    assert told[0] == (0, sum(sizes.values())) and told[-1] == (sum(sizes.values()),) * 2
    assert told == sorted(told) and len({total for _, total in told}) == 1


def test_what_hardly_shrinks_and_what_there_is_no_room_for_is_kept_as_it_is(tmp_path: Path) -> None:
    no_room = NoRoom(lambda path: "packed" in path and "full" in path, once=False)
    session = session_of(tmp_path, "*.dat compress\npack_threads = 0\n", disk=no_room)
    noise, text = os.urandom(5 << 20), b"the same words\n" * 400_000
    for name, data in (
        ("noise.dat", noise),
        ("text.dat", text),
        ("full.dat", text),
        ("half.dat", noise[: 2 << 20] + text),
    ):
        (tmp_path / name).write_bytes(data)
    session.hide(0)
    session.close()
    expected = {"noise.dat": "raw", "text.dat": "zst", "full.dat": "raw", "half.dat": "zst"}
    assert kept(tmp_path, 1) == expected
    again = Session(tmp_path)
    again.restore()
    assert (tmp_path / "full.dat").read_bytes() == text and (tmp_path / "noise.dat").read_bytes() == noise
    again.close()


def test_names_that_collide_when_compressed_are_kept_as_they_are(tmp_path: Path) -> None:
    """`a` is kept as `packed/a.zst`, which is a directory of the program's too."""
    for _ in range(2):
        session = Session(tmp_path) if (tmp_path / ".safepoint").exists() else session_of(tmp_path, "t/ compress\n")
        session.restore()
        for name in ("t/a", "t/a.zst/b", "t/b.zst/c", "t/b"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(name.encode() * 2000)
        session.hide(0, wait=True)
        session.close()
    again = Session(tmp_path)
    again.restore()
    for name in ("t/a", "t/a.zst/b", "t/b.zst/c", "t/b"):
        assert (tmp_path / name).read_bytes() == name.encode() * 2000
    again.close()


def test_a_name_added_to_a_directory_while_it_is_copied_is_an_error(tmp_path: Path) -> None:
    """G1: the snapshot would be taken for unfinished after a kill, and made anew from a later state."""

    class Adds(Disk):
        def create(self, path: str, *mode: int) -> Any:
            if path.endswith("taken.json"):
                (tmp_path / "t/extra").write_bytes(b"")
            return super().create(path, *mode)

    session = session_of(tmp_path, "t/ copy\n", disk=Adds())
    (tmp_path / "t").mkdir()
    os.utime(tmp_path / "t", ns=(10**18, 10**18))
    with pytest.raises(RefusedFileError, match=r"^t changed while it was copied"):
        session.hide(0)
    session.close()


class Dies(BaseException):
    pass


@pytest.mark.leaves_damage
@pytest.mark.parametrize("kept_as", ["compress", "bundled", "a directory"])
def test_a_file_listed_later_comes_back_whole_from_a_set_that_is_passed_over_also_after_a_kill(
    tmp_path: Path, kept_as: str
) -> None:
    """G3: it may be one of the program's inputs, and the set that is removed has the only copy."""
    session = session_of(tmp_path, "u.dat\n")
    (tmp_path / "u.dat").write_bytes(b"1")
    session.hide(1, wait=True)
    session.close()
    lines = {"compress": "in/a.dat compress\nin/b.dat compress\n", "bundled": "in/*.dat\nbundle_from = 2\n"}
    (tmp_path / ".safepoint").write_text("u.dat\n" + lines.get(kept_as, "in/\nbundle_from = 2\n"))
    session = Session(tmp_path)
    session.restore()
    expected = {"in/a.dat": b"A" * 60_000, "in/b.dat": b"B" * 60_000}
    (tmp_path / "in").mkdir()
    for name, data in expected.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "u.dat").write_bytes(b"2")
    session.hide(2, wait=True)
    session.close()
    (newest,) = tmp_path.glob(".safepoint.d/rank-00000/set-00000002")
    for path in newest.rglob("u.dat"):
        path.write_bytes(b"X")
    if kept_as != "compress":  # u.dat is in the bundle too
        record = parse_record((newest / "record.json").read_bytes())
        (offset,) = [file.offset for file in record.files if file.path == "u.dat"]
        with (newest / "bundle.tar").open("r+b") as bundle:
            bundle.seek(offset)
            bundle.write(b"X")

    class Mortal(Disk):
        """Dies at the second file of the rescue; the set is seen to be damaged at its first file, u.dat."""

        left = 2

        helpers: Any = OneByOne()  # else the other files could be staged before u.dat is seen

        def set_mode_and_time(self, path: str, mode: int, mtime_ns: int, group: int = -1) -> None:
            if "/in/" in path:
                self.left -= 1
                if not self.left:
                    raise Dies
            super().set_mode_and_time(path, mode, mtime_ns)

    first = Session(tmp_path, disk=Mortal())
    with pytest.raises(Dies):
        first.restore()
    first._home.release()
    again = Session(tmp_path)
    saved = again.restore()
    assert saved is not None and saved.step == 1
    assert {name: (tmp_path / name).read_bytes() for name in expected} == expected
    assert not newest.exists()
    again.close()


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
