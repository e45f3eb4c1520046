"""What is large: files beyond 4 GiB, ten thousand files, a ledger of 20 000 sets; and holes on real file systems."""

from __future__ import annotations

import logging
import os
import tracemalloc
from pathlib import Path

import pytest
from testbed import mounts
from testbed.ledgers import saved, written
from testbed.sizes import kept, needs_linux, session_of
from testbed.sweep import LONG

from safepoint import Session
from safepoint.ledger.compare import compare


def test_memory_does_not_grow_with_the_ledger(tmp_path: Path) -> None:
    def peak(sets: int, every: int) -> int:
        sides = [
            written(tmp_path / f"{name}-{sets}-{every}", [saved(n + 1, n, u=n, v=n) for n in range(0, sets, step)])
            for name, step in (("a", 1), ("b", every))
        ]
        tracemalloc.start()
        found = compare(*sides)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not found.differs and found.steps == -(-sets // every)
        return most

    few, many = (4_000, 20_000) if LONG else (1_500, 6_000)
    assert peak(many, 1) < 1.3 * peak(few, 1)
    assert peak(many, 100) < 1.3 * peak(few, 100)


HUGE = (4 << 30) + (1 << 20) + 17  # bytes: more than 32 bits can say


def sparse(path: Path, size: int) -> dict[int, bytes]:
    """A file of this size that is nearly all hole; where it has data, and which."""
    marks = {0: b"begin", size // 2 + 3: b"middle", size - 3: b"end"}
    with path.open("wb") as file:
        file.truncate(size)
        for position, data in marks.items():
            file.seek(position)
            file.write(data)
    return marks


def has(path: Path, marks: dict[int, bytes], size: int) -> bool:
    with path.open("rb") as file:
        for position, data in marks.items():
            file.seek(position)
            if file.read(len(data)) != data:
                return False
    return path.stat().st_size == size


@needs_linux
@pytest.mark.parametrize("attribute", ["", "copy", "compress"])
def test_beyond_4_gib_with_holes_that_stay_holes(tmp_path: Path, attribute: str) -> None:
    """Every byte and the size; and what took no space before takes none in the set, nor when it is back."""
    session = session_of(tmp_path, f"u.dat {attribute}\n")
    marks = sparse(tmp_path / "u.dat", HUGE)
    session.hide(0)
    session.close()
    (tmp_path / "u.dat").write_bytes(b"torn")
    session = Session(tmp_path)
    assert session.restore() is not None
    assert has(tmp_path / "u.dat", marks, HUGE)
    used = sum(path.lstat().st_blocks for path in tmp_path.rglob("*")) * 512
    assert used < 8 << 20
    session.close()


@needs_linux
@pytest.mark.parametrize("cold", [True, False], ids=["from-the-disk", "from-the-cache"])
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_holes_and_reflinks_on_a_real_file_system(kind: str, cold: bool) -> None:
    """What is in the page cache is copied from there, in less time than a reflink could be read back from the disk."""
    if reason := mounts.why_not(kind):
        pytest.skip(f"{kind}: {reason}")
    with mounts.mounted(kind, 400) as work:
        session = session_of(work, "u.dat copy\nv.dat\n")
        marks = sparse(work / "u.dat", 40 << 20)
        (work / "v.dat").write_bytes(os.urandom(60 << 20))
        session.hide(0)
        mine, set_has = (work / "u.dat").stat(), work / ".safepoint.d/rank-00000/set-00000001/files/u.dat"
        assert has(set_has, marks, 40 << 20)
        now = set_has.stat()
        assert (now.st_mode, now.st_mtime_ns) == (mine.st_mode, mine.st_mtime_ns) and now.st_blocks * 512 < 1 << 20
        session.close()
        free = os.statvfs(work).f_bavail * os.statvfs(work).f_frsize
        if cold:
            for path in set_has.parent.iterdir():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        session = Session(work)
        session.restore()
        taken = free - os.statvfs(work).f_bavail * os.statvfs(work).f_frsize
        assert has(work / "u.dat", marks, 40 << 20)
        shared = taken < 2 << 20
        assert shared == (cold and kind == "xfs") and taken < 62 << 20
        session.close()


def test_ten_thousand_files_of_a_glob_are_one_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And who lists them so is told, once, what would be quicker."""
    session = session_of(tmp_path, "run/*.dat\n")
    (tmp_path / "run").mkdir()
    for step in range(2):
        for number in range(10_000):
            (tmp_path / f"run/{number}.dat").write_bytes(b"%d" % number)
        session.hide(step, wait=True)
    session.close()
    hint = "run/*.dat means 10000 files: one rename moves them all, if you list run/ instead"
    assert [text for _, level, text in caplog.record_tuples if level >= logging.WARNING] == [hint]
    assert not list((tmp_path / "run").iterdir())
    for number in (1, 2):
        assert set(kept(tmp_path, number).values()) == {"tar"}
        there = (tmp_path / f".safepoint.d/rank-00000/set-{number:08}").rglob("*")
        assert sorted(path.name for path in there) == ["bundle.tar", "record.json", "taken.json"]
    session = Session(tmp_path)
    session.restore()
    assert all((tmp_path / f"run/{number}.dat").read_bytes() == b"%d" % number for number in range(10_000))
    session.close()
