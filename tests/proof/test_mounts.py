"""On freshly made, really journaled file systems: whole lives, real kills, mounts that come and go, disks that fill up,
and the power cut as the file system itself knows it. Needs root; elsewhere these tests say what they lack."""

from __future__ import annotations

import base64
import contextlib
import errno
import logging
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from testbed.mounts import Volume
from testbed.paths import TESTS
from testbed.powercut import on_file_systems
from testbed.program import KINDS, kinds, listed

from safepoint import DamagedError, RefusedFileError, RestoreError, SafepointError, SaveError, Session
from safepoint.disk import Disk
from safepoint.restoring.verify import verify
from safepoint.root import Root

ROOM = 512 << 10  # bytes that are left for names and small files on a disk that is nearly full


@pytest.fixture
def volume(request: pytest.FixtureRequest) -> Iterator[Volume]:
    with Volume.made(request.param) as made:
        yield made
        states = verify(Root(str(made.work)))
        assert set(states.values()) <= {"committed", "uncommitted"}, states


on_each = on_file_systems("volume", ["ext4", "xfs"], indirect=True)
on_ext4 = on_file_systems("volume", ["ext4"], indirect=True)
on_xfs = on_file_systems("volume", ["xfs"], indirect=True)


def begin(volume: Volume, manifest: str = KINDS) -> Session:
    """A life, ended at the latest when the volume goes."""
    write_durably(volume.work / ".safepoint", manifest)
    session = Session(volume.work, disk=LateDisk())
    volume.sessions.append(session)
    session.restore()
    return session


class LateDisk(Disk):
    """Begins to write when fsync says so. Otherwise small files are on the disk before the power can be cut."""

    def start_writeback(self, file: str | BinaryIO, length: int = 0) -> None:
        pass


def write_durably(path: Path, text: str) -> None:
    """As a file that has been there for long."""
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write(work: str | os.PathLike[str], step: int) -> None:
    """The files of a step, without any fsync."""
    for path in Path(work, "fields").glob("*.vtk"):
        path.unlink()  # of another step, where those were not hidden
    for name, data in kinds(step).items():
        path = Path(work, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "history.csv" and path.exists():
            with path.open("ab") as file:
                file.write(data[path.stat().st_size :])
        else:
            path.write_bytes(data)


def restored(work: Path) -> tuple[int | None, bool]:
    """The step that the next start gives back, and whether as the result; the bytes are checked."""
    session = Session(work)
    try:
        point = session.restore()
    finally:
        session.close()
    assert point is not None
    assert listed(work) == kinds(int(point.step or 0))
    return point.step, point.finished


# Hides steps 0 to n. It is killed while its saver has the last one in hand, after hide has returned.
KILLED = """
import os, signal, sys, threading
sys.path[:0] = sys.argv[1:3]
from safepoint import Session
from safepoint.disk import Disk
from test_mounts import write

last, returned = threading.Event(), threading.Event()

class Dies(Disk):
    def open(self, path):
        here = threading.current_thread() is threading.main_thread()
        if last.is_set() and not here and returned.wait(500):  # those before are waited for, by helper threads too
            os.kill(os.getpid(), signal.SIGKILL)
        return super().open(path)

session = Session(disk=Dies())
saved = session.restore()
begin, end = saved.step + 1 if saved else 0, int(sys.argv[3])
for step in range(begin, end + 1):
    write(".", step)
    if step == end:
        last.set()
    session.hide(step, wait=step < end)
write(".", end + 1)
open("u.dat", "w").write("torn")
print("hid", end, flush=True)
returned.set()
threading.Event().wait(500)
"""


def killed_after_hide(volume: Volume, step: int) -> None:
    write_durably(volume.work / ".safepoint", KINDS)
    command = [sys.executable, "-W", "error", "-c", KILLED, str(TESTS), str(Path(__file__).parent), str(step)]
    done = subprocess.run(command, cwd=volume.work, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, f"hid {step}\n"), done.stderr


@on_each
def test_a_kill_costs_nothing_that_hide_took(volume: Volume) -> None:
    """G2k: SIGKILL while the saver works; the mount is the same."""
    for step in (1, 2, 4):
        killed_after_hide(volume, step)
        assert not (volume.work / f".safepoint.d/rank-00000/set-{step + 1:08d}/record.json").exists()
        assert restored(volume.work) == (step, False)


@on_each
def test_after_a_kill_and_a_new_mount_the_set_that_was_never_committed_is_not_claimed(
    volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    """G1 before G2k: between two mounts data can be lost without a reboot. The log says why."""
    killed_after_hide(volume, 1)
    before = Disk().page_cache(str(volume.work))
    volume.umount()
    volume.mount()
    after = Disk().page_cache(str(volume.work))
    assert before.mount is not None and after.mount is not None and before.mount != after.mount
    assert (before.host, before.boot) == (after.host, after.boot)
    with caplog.at_level(logging.INFO, logger="safepoint"):
        assert restored(volume.work) == (0, False)
    reason = "set 2: it was not committed, and this is not the mount in which it was taken"
    ((_, level, text),) = caplog.record_tuples
    assert (level, text.partition("; ")[2].partition("; ")[0]) == (logging.WARNING, reason)


@on_ext4
@pytest.mark.parametrize("by_hand", [False, True])
def test_what_is_given_back_over_a_file_that_exists_is_not_written_out_at_once(volume: Volume, by_hand: bool) -> None:
    """A rename onto an existing name makes ext4 do that, and wait (auto_da_alloc): restore took four times as long."""
    session = begin(volume, "u.dat\n")
    for step in range(2):
        (volume.work / "u.dat").write_bytes(os.urandom(8 << 20))
        if step == 0:
            session.hide(0, wait=True)
    os.sync()
    if by_hand:
        session.close()
        command = [sys.executable, "-m", "safepoint", "restore", "--yes", str(volume.work)]
        subprocess.run(command, check=True, capture_output=True)
    else:
        session.restore()
    assert volume.not_yet_placed() >= 7 << 20
    assert not (volume.work / ".safepoint.d/rank-00000/stage").exists()


@on_each
def test_a_power_cut_costs_no_more_than_the_set_in_flight(volume: Volume) -> None:
    """G1, G2: the file system drops all that was not fsynced, over several lives."""
    for durable in range(3):
        killed_after_hide(volume, durable + 1)
        volume.cut_power()
        assert restored(volume.work) == (durable, False)
        volume.cut_power()  # what restore did needs not be durable: it can be done again
        assert restored(volume.work) == (durable, False)
        volume.cut_power()
        assert restored(volume.work) == (durable, False)


@on_each
@pytest.mark.parametrize("promise", ["hide(wait=True)", "wait()", "finish()", "the first hide"])
def test_a_power_cut_right_after_the_promise_costs_nothing(volume: Volume, promise: str) -> None:
    """G2, G4: nobody but safepoint has called fsync."""
    session = begin(volume)
    last = 0 if promise == "the first hide" else 2
    for step in range(last + 1):
        write(volume.work, step)
        if step < last or promise != "finish()":
            session.hide(step, wait=promise == "hide(wait=True)")
    if promise == "wait()":
        session.wait()
    elif promise == "finish()":
        session.finish(last)
    session._work.flight = None
    session._home.release()
    volume.cut_power()
    assert restored(volume.work) == (last, promise == "finish()")


@on_each
def test_a_manifest_that_was_written_just_before_the_start_survives_a_power_cut(volume: Volume) -> None:
    """G3: a script made it; without it no set could be given back."""
    (volume.work / ".safepoint").write_text(KINDS)
    session = Session(volume.work, disk=LateDisk())
    volume.sessions.append(session)
    write(volume.work, 0)
    session.hide(0)
    session.close()
    volume.cut_power()
    assert restored(volume.work) == (0, False)


@on_each
def test_a_power_cut_after_the_first_start_leaves_the_initial_files(volume: Volume) -> None:
    """G3: initial files that were durable before, torn ones beside them."""
    write_durably(volume.work / ".safepoint", "u.dat\nv.dat optional\n")
    write_durably(volume.work / "u.dat", "initial")
    session = Session(volume.work)
    session.restore()
    (volume.work / "v.dat").write_text("torn")
    session.close()
    volume.cut_power()
    session = Session(volume.work)
    assert session.restore() is None
    session.close()
    assert listed(volume.work) == {"u.dat": b"initial"}


@on_each
def test_a_full_disk_is_an_error_that_names_file_and_cause_and_the_set_before_is_whole(volume: Volume) -> None:
    """G7: the files of the failed call are where they were; with room again all goes on."""
    session = begin(volume)
    write(volume.work, 0)
    session.hide(0)
    write(volume.work, 1)
    before = listed(volume.work)
    ballast = volume.fill()
    with pytest.raises(
        SaveError, match=r"^set 2 \(step 1\) not (taken|stored): \S+: No space left on device"
    ) as caught:
        session.hide(1, wait=True)
    assert caught.value.errno == errno.ENOSPC
    assert "None: " not in str(caught.value)
    assert listed(volume.work) == before
    session.close()
    ballast.unlink()
    assert restored(volume.work) == (0, False)
    session = begin(volume)
    session.hide(0)
    write(volume.work, 1)
    session.hide(1)
    session.close()
    assert restored(volume.work) == (1, False)


SIZES = {"small": 900 << 10, "large": 3 << 20}  # below and above what is written at once


@on_ext4
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_no_room_for_a_snapshot_is_an_error_that_names_the_file(volume: Volume, size: int) -> None:
    """G7: a copied file needs the space; nothing was moved."""
    session = begin(volume, "u.dat\nparams.db copy\n")
    for step in range(2):
        (volume.work / "u.dat").write_bytes(b"%d" % step)
        (volume.work / "params.db").write_bytes(b"%d" % step * size)
        if step == 0:
            session.hide(0)
    before = listed(volume.work)
    ballast = volume.fill(room=ROOM)
    with pytest.raises(SaveError) as caught:
        session.hide(1)
    cause = "params.db: No space left on device"
    assert (
        str(caught.value)
        == f"set 2 (step 1) not stored: {cause}; set 1 (step 0) is intact; the files are where they were"
    )
    assert listed(volume.work) == before
    ballast.unlink()
    session.restore()
    assert listed(volume.work) == {"u.dat": b"0", "params.db": b"0" * size}
    session.close()


@on_ext4
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("attribute", ["", "compress"])
def test_no_room_to_restore_is_an_error_that_names_the_file_and_touches_nothing(
    volume: Volume, size: int, attribute: str
) -> None:
    """G3, G7: W is not touched before all is staged; with room again `restore` may be repeated."""
    session = begin(volume, f"u.dat\nparams.db {attribute}\n")
    (volume.work / "u.dat").write_bytes(b"0")
    (volume.work / "params.db").write_bytes(b"0" * size)
    session.hide(0)
    (volume.work / "u.dat").write_bytes(b"torn")
    ballast = volume.fill(room=ROOM)
    with pytest.raises(RestoreError, match=r"^set 1 \(step 0\) not restored: (params\.db|u\.dat): No space left on"):
        session.restore()
    assert listed(volume.work) == {"u.dat": b"torn"}
    ballast.unlink()
    session.restore()
    assert listed(volume.work) == {"u.dat": b"0", "params.db": b"0" * size}
    session.close()


@on_xfs
def test_where_blocks_can_be_shared_neither_snapshot_nor_restore_needs_room(volume: Volume) -> None:
    size = SIZES["large"]
    session = begin(volume, "u.dat\nparams.db copy\n")
    (volume.work / "u.dat").write_bytes(b"0" * size)
    (volume.work / "params.db").write_bytes(b"0" * size)
    volume.fill(room=2 * ROOM)
    session.hide(0)
    with (volume.work / "params.db").open("r+b") as file:
        file.write(b"changed")
    session.restore()  # from the page cache, where only the want of room asks for reflinks
    assert listed(volume.work) == {"u.dat": b"0" * size, "params.db": b"0" * size}
    session.close()


def forget(path: Path) -> None:
    """Take a clean file out of the page cache: the next to read it sees the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@on_each
@pytest.mark.parametrize("state", ["in-the-cache", "no-room", "on-the-disk"])
def test_blocks_that_rot_below_the_page_cache_are_never_given_back(volume: Volume, state: str) -> None:
    """G6: what the program reads is what was checked. A reflink with the set's checksum, read from the page cache,
    would be twice as quick as `cp`, and hand out blocks that nobody has looked at."""
    size = SIZES["large"]
    data = os.urandom(size)
    session = begin(volume, "u.dat\n")
    (volume.work / "u.dat").write_bytes(data)
    session.hide(0, wait=True)
    kept = volume.work / ".safepoint.d/rank-00000/set-00000001/files/u.dat"
    with volume.image.open("r+b") as disk, mmap.mmap(disk.fileno(), 0) as blocks:
        position, shares = blocks.find(data[size // 2 :][:64]), blocks[:4] == b"XFSB"
        blocks[position] ^= 1
        if state == "on-the-disk":
            forget(kept)
        else:
            assert kept.read_bytes() == data, "what the page cache has"
        if state == "no-room":
            volume.fill(room=size + ROOM)
        if state == "on-the-disk" or (state == "no-room" and shares):
            with pytest.raises(DamagedError, match=r"the checksum of u\.dat differs"):
                session.restore()
            assert not (volume.work / "u.dat").exists()
        else:
            session.restore()
            session.close()
            os.sync()
            forget(volume.work / "u.dat")
            assert (volume.work / "u.dat").read_bytes() == data
        blocks[position] ^= 1
    forget(kept)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_file_system_that_is_unmounted_under_a_run_is_an_error_that_says_all_sets_are_gone(tmp_path: Path) -> None:
    """G7: the directory below it has the same name, and no set; nothing is moved there."""
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)
    try:
        (tmp_path / ".safepoint").write_text("u.dat\n")
        session = Session(tmp_path)
        session.restore()
        (tmp_path / "u.dat").write_text("0")
        session.hide(0, wait=True)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    (tmp_path / "u.dat").write_text("1")
    for call in (lambda: session.hide(1), session.wait, session.finish):
        with pytest.raises(SaveError, match="removed, moved, replaced or unmounted"):
            call()
    session.close()
    assert [path.name for path in tmp_path.iterdir()] == ["u.dat"]


@on_each
def test_a_file_that_cannot_be_compressed_for_want_of_room_is_kept_as_it_is(volume: Volume) -> None:
    """A full disk is no reason to lose a set that is there already."""
    session = begin(volume, "u.dat compress\n")
    data = base64.b64encode(os.urandom(SIZES["large"]))  # shrinks by a quarter
    (volume.work / "u.dat").write_bytes(data)
    ballast = volume.fill(room=ROOM)
    session.hide(0)
    kept = volume.work / ".safepoint.d/rank-00000/set-00000001"
    assert (kept / "files/u.dat").read_bytes() == data
    assert list(kept.rglob("*.zst")) == []
    ballast.unlink()
    session.restore()
    assert listed(volume.work) == {"u.dat": data}
    session.close()


@on_each
def test_what_is_extracted_of_a_file_that_grows_is_its_beginning_and_shares_nothing_with_it(volume: Volume) -> None:
    """By hand, beside the run: a reflink of the whole file would bring the rows that came after the set."""
    rows = b"".join(b"%07d\n" % n for n in range(400_000))  # 3.2 MB: enough for a reflink
    log, other = volume.work / "log.csv", volume.work / "u.dat"
    log.write_bytes(rows[: 2 << 20])
    other.write_bytes(rows)
    session = begin(volume, "log.csv append\nu.dat\n")
    session.hide(1, wait=True)
    with log.open("ab") as file:
        file.write(rows[2 << 20 :])
    other.write_bytes(b"next")
    forget(log)
    done = subprocess.run(
        [sys.executable, "-m", "safepoint", "restore", "--to", volume.path / "there", volume.work],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (volume.path / "there/log.csv").read_bytes() == rows[: 2 << 20]
    assert (volume.path / "there/u.dat").read_bytes() == rows
    assert log.read_bytes() == rows and other.read_bytes() == b"next"
    session.close()


@on_each
def test_a_table_too_large_for_a_copy_is_kept_where_there_are_reflinks(
    volume: Volume, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """G1: begun anew by the program after a restart, it is given back; elsewhere the restart has warned of it."""
    rows = b"".join(b"%07d\n" % n for n in range(400_000))  # 3.2 MB, and no whole number of blocks
    log, manifest = volume.work / "log.csv", "log.csv append\ncopy_append_below = 1 MiB\n"
    log.write_bytes(rows[:-8])
    session = begin(volume, manifest)
    session.hide(1, wait=True)
    with log.open("ab") as file:
        file.write(rows[-8:])
    session.close()
    begin(volume, manifest).close()
    assert log.read_bytes() == rows[:-8]
    copied = (volume.work / ".safepoint.d/rank-00000/set-00000001/append/log.csv").exists()
    assert copied is not bool([text for text in caplog.messages if "are not copied" in text])
    assert copied is (request.node.callspec.params["volume"] == "xfs")
    log.write_bytes(b"new\n" if copied else rows)
    forget(log)
    begin(volume, manifest).close()
    assert log.read_bytes() == rows[:-8]


@pytest.fixture
def mounted_at(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts something in W, which goes at the end."""
    work, done = tmp_path / "w", list[Path]()

    def mount(*words: str | Path, at: str) -> Path:
        (work / at).parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["mount", *words, work / at], capture_output=True).returncode:
            pytest.skip("needs root, and a kernel that mounts this")
        done.append(work / at)
        return work

    yield mount
    for path in reversed(done):
        subprocess.run(["umount", path], check=True)


def life(work: Path, manifest: str, text: str) -> tuple[int, str]:
    """The step that is restored and the file that comes back with it, before this is hidden."""
    (work / ".safepoint").write_text(manifest)
    with contextlib.closing(Session(work)) as session:
        saved = session.restore()
        found = (work / "st/a").read_text()
        (work / "st/a").write_text(text)
        session.hide((saved.step or 0) + 1 if saved else 1, wait=True)
        (work / "st/a").write_text("torn")
    return (saved.step or 0) if saved else 0, found


def test_a_directory_of_the_image_below_an_overlay_is_given_back_or_refused(
    tmp_path: Path, mounted_at: Callable[..., Path]
) -> None:
    """Copied, each restart gives it back; to be moved, it is refused by the first `hide`, for what is the matter."""
    for name in ("lower/st", "upper", "below", "w"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lower/st/a").write_text("0")
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/below"
    work = mounted_at("-t", "overlay", "overlay", "-o", layers, at="")
    with pytest.raises(RefusedFileError, match=r"an overlay moves no directory of the image below it.*list it as copy"):
        life(work, "st/\n", "moved")
    shutil.rmtree(work / ".safepoint.d")
    assert life(work, "st/ copy\n", "1") == (0, "moved")
    assert life(work, "st/ copy\n", "2") == (1, "1")
    assert life(work, "st/ copy\n", "3") == (2, "2")


@pytest.mark.parametrize(("entry", "refused"), [
    ("st/a copy", ""),
    ("st/ copy", "st is where something is mounted"),
    ("st/a", "another mount of its file system (the one mounted at {work}/st)"),
    ("st/", "Device or resource busy"),
])  # fmt: skip
def test_another_mount_of_the_same_file_system_is_given_back_or_refused(
    tmp_path: Path, mounted_at: Callable[..., Path], entry: str, refused: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a").write_text("0")
    (tmp_path / "w/st").mkdir(parents=True)
    work = mounted_at("--bind", tmp_path / "other", at="st")
    if refused:
        with pytest.raises(SafepointError, match=re.escape(refused.format(work=work))):
            life(work, f"{entry}\n", "1")
        assert (work / "st/a").read_text() == "1"
        return
    assert life(work, f"{entry}\n", "1") == (0, "0")
    assert life(work, f"{entry}\n", "2") == (1, "1")
