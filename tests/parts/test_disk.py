"""The real disk: what it tells of other processes, and how it fails. That fsync and rename do what they must is the
business of the kernel; that they are called in the right order that of `test_crash`."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testbed.children import child, says, tell
from testbed.handlers import ctrl_c
from testbed.sessions import ordinary_user
from testbed.waiting import wait_for

from safepoint import SaveError
from safepoint.disk import Disk, SyncFailed, handles, kernel
from safepoint.disk.files import exists, read, remove_tree, size_of, tail, write
from safepoint.disk.signals import interrupted
from safepoint.disk.threads import AT_ONCE
from safepoint.root import Root

disk = Disk()
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: leases and /proc")


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "u.npy"
    file.write_bytes(b"x" * 5000)
    return str(file)


# Names.


@needs_linux
def test_two_files_exchange_their_names_at_once(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / os.fsdecode(b"\xffther")
    one.write_text("1")
    other.write_text("2")
    assert disk.exchange(str(one), str(other))
    assert (one.read_text(), other.read_text()) == ("2", "1")


def test_what_cannot_be_exchanged_stays_as_it_is(path: str) -> None:
    """Then it is the rename after it that says what is wrong."""
    assert not disk.exchange(path, path + ".none")
    assert os.listdir(os.path.dirname(path)) == ["u.npy"]


# Open for writing.


def is_open(path: str) -> bool:
    return disk.open_for_writing([path]) == [path]


@needs_linux
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_that_this_process_can_write_to_is_open_until_it_is_closed(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        while_open = is_open(path)
    finally:
        os.close(descriptor)
    assert (while_open, is_open(path)) == (True, False)


@needs_linux
@pytest.mark.parametrize(("flags", "named"), [(os.O_WRONLY, True), (os.O_RDWR, True), (os.O_RDONLY, False)])
def test_who_holds_a_file_is_named_if_it_can_write(path: str, flags: int, named: bool) -> None:
    descriptor = os.open(path, flags)
    try:
        assert handles.holders(path) == [f"descriptor {descriptor} of this process"] * named
    finally:
        os.close(descriptor)


@needs_linux
def test_a_file_that_is_only_read_is_not_open_for_writing(path: str) -> None:
    """A program that keeps its input open, or maps it, can still have it moved."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert not is_open(path)
    with child("file = open(sys.argv[1], 'rb'); print('open', flush=True); input()", path) as reader:
        assert (says(reader), is_open(path)) == ("open", False)


@needs_linux
def test_a_file_that_another_process_can_write_to_is_open_until_it_closes_it(path: str) -> None:
    code = """
file = open(sys.argv[1], "r+b")
print("open", flush=True); input()
file.close()
print("closed", flush=True); input()
"""
    with child(code, path) as writer:
        assert (says(writer), is_open(path)) == ("open", True)
        tell(writer)
        assert (says(writer), is_open(path)) == ("closed", False)


@needs_linux
def test_a_file_is_no_longer_open_once_its_writer_was_killed(path: str) -> None:
    with child("file = open(sys.argv[1], 'r+b'); print('open', flush=True); input()", path) as writer:
        assert (says(writer), is_open(path)) == ("open", True)
        writer.kill()
        writer.wait()
        assert not is_open(path)


@needs_linux
def test_a_shared_mapping_is_open_for_writing_though_its_descriptor_is_closed(path: str) -> None:
    """What numpy.memmap leaves: pages that can still change, and no descriptor that tells."""
    with open(path, "r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)  # has a duplicate of the descriptor, so this process does not show it yet
    with mapping:
        assert is_open(path)
    assert not is_open(path)
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
descriptor = os.open(sys.argv[1], os.O_RDWR)
read_write, shared = 3, 1
assert libc.mmap(None, 4096, read_write, shared, descriptor, 0) != ctypes.c_void_p(-1).value
os.close(descriptor)
print("mapped", flush=True); input()
"""
    with child(code, path) as writer:
        assert (says(writer), is_open(path)) == ("mapped", True)


@needs_linux
def test_asking_while_another_process_opens_the_file_does_not_kill(path: str) -> None:
    """The kernel tells the holder of a lease that somebody wants to write by a signal, whose usual effect is death."""
    opening = """
print("begun", flush=True)
while True:
    os.close(os.open(sys.argv[1], os.O_WRONLY))
"""
    asking = """
answers = [bool(disk.open_for_writing([sys.argv[1]])) for _ in range(20_000)]
print(len(answers), flush=True)
"""
    with child(opening, path) as writer:
        assert says(writer) == "begun"
        with child(asking, path) as asker:
            assert (says(asker), asker.wait()) == ("20000", 0)


@needs_linux
def test_without_leases_our_own_descriptors_still_tell() -> None:
    """A lease is for regular files that are our own; this one is neither, like a file on many network file systems."""
    path = "/dev/full"
    if not os.access(path, os.W_OK):
        pytest.skip(f"needs {path}")
    with open(path, "rb"):
        while_read = is_open(path)
    with open(path, "wb", buffering=0):
        while_written = is_open(path)
    assert (while_read, while_written, is_open(path)) == (False, True, False)


# The lock.

HOLD = "release = disk.lock(sys.argv[1]); print('held' if release else 'refused', flush=True); input()"


def test_the_lock_excludes_another_process_until_it_is_released(tmp_path: Path) -> None:
    """G8"""
    path = str(tmp_path / "lock")
    release = disk.lock(path)
    assert release is not None
    with child(HOLD, path) as other:
        assert says(other) == "refused"
    release()
    with child(HOLD, path) as other:
        assert says(other) == "held"
        assert disk.lock(path) is None


def test_the_lock_excludes_this_process_too(tmp_path: Path) -> None:
    """G8: two sessions in one process are two runs."""
    path = str(tmp_path / "lock")
    release = disk.lock(path)
    assert release is not None and disk.lock(path) is None
    release()
    again = disk.lock(path)
    assert again is not None
    again()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """G8: a kernel lock, so that nobody has to remove a file after a kill."""
    path = str(tmp_path / "lock")
    with child(HOLD, path) as holder:
        assert (says(holder), disk.lock(path)) == ("held", None)
        holder.kill()
        holder.wait()
        release = disk.lock(path)
    assert release is not None
    release()


@needs_linux
def test_a_process_that_was_killed_counts_as_gone_while_it_gives_back_its_memory() -> None:
    """Its lock is held until then: a restart is to wait for it, and not to be told that it is at work."""
    code = (
        "import mmap; m = mmap.mmap(-1, 400 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "m.madvise(15)  # in small pages, which takes longer\n"
        "for n in range(0, len(m), 4096): m[n] = 1\n"
        "print('large', flush=True); input()"
    )
    for _ in range(10):  # until this process looked while that one ended
        with child(code) as large:
            assert says(large) == "large"
            began = kernel.began(large.pid)
            assert began and kernel.began(os.getpid()) != began
            large.kill()
            looks = []
            while Path(f"/proc/{large.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                looks.append(kernel.is_alive(large.pid))
        assert kernel.began(large.pid) is None
        assert looks == sorted(looks, reverse=True), "gone, and alive again"
        if False in looks:
            return
    pytest.fail("not seen while it ended")


# The place.


def test_the_place_is_the_same_for_all_processes_of_this_boot(tmp_path: Path) -> None:
    """G2k: else a new process would not believe what a killed one left in the page cache."""
    with child("print(*disk.page_cache(sys.argv[1]), sep='|', flush=True)", tmp_path) as other:
        assert says(other) == "|".join(map(str, disk.page_cache(str(tmp_path))))


def test_the_place_names_the_boot_and_perhaps_the_mount(tmp_path: Path) -> None:
    """G2k: another boot is another page cache; where the mount is not known nothing is claimed."""
    place = disk.page_cache(str(tmp_path))
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    assert place.boot == (boot_id.read_text().strip() if boot_id.exists() else "")
    assert place.mount is None or re.fullmatch(r"[1-9]\d*", place.mount)
    assert place.host == os.uname().nodename


@needs_linux
def test_file_systems_that_keep_nothing_for_us_have_no_mount_to_trust() -> None:
    """G2k: proc stands for the file systems whose pages are not ours; two mounts are two places."""
    here, memory = disk.page_cache(__file__).mount, disk.page_cache("/dev/shm").mount
    assert disk.page_cache("/proc").mount is None
    if here is None or memory is None or os.stat(__file__).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("needs Linux 6.8, and /dev/shm beside a local file system: no unique mount ids to compare here")
    assert here != memory


# Opening.


def test_nothing_is_added_to_a_link_or_a_fifo_that_took_the_place_of_a_file(tmp_path: Path) -> None:
    """To open a fifo for writing would wait for who reads it."""
    (tmp_path / "other").write_bytes(b"not for here")
    (tmp_path / "link").symlink_to("other")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=name):
            Disk().append(str(tmp_path / name), b"more")
    assert (tmp_path / "other").read_bytes() == b"not for here"


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "hole", "too large"])
def test_only_a_file_of_a_bounded_size_is_read_whole(tmp_path: Path, kind: str) -> None:
    """What is read whole is in memory whole; a fifo has no end."""
    path = tmp_path / "file"
    if kind in ("hole", "too large"):
        path.write_bytes(b"12345")
        os.truncate(path, 1 << 40 if kind == "hole" else 5)
    elif kind == "link":
        path.symlink_to("other")
    else:
        os.mkfifo(path) if kind == "fifo" else path.mkdir()
    disk = Disk()
    with pytest.raises(OSError, match="file"):
        read(disk, str(path), 4) if kind == "too large" else read(disk, str(path))
    if kind in ("hole", "too large"):
        assert tail(disk, str(path), 3) == (bytes(3) if kind == "hole" else b"345")


def test_a_link_or_a_fifo_that_took_the_place_of_a_file_is_never_read_for_it(tmp_path: Path) -> None:
    """Between the look of `hide` and the save somebody may have put it there; to open a fifo would wait for ever."""
    (tmp_path / "secret").write_bytes(b"not yours")
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(OSError) as caught:
        disk.open(str(tmp_path / "link"))
    assert caught.value.errno == errno.ELOOP and caught.value.filename == str(tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    with disk.open(str(tmp_path / "fifo")) as file:
        assert file.read(1) in (b"", None)


@needs_linux
def test_reading_leaves_the_time_of_the_last_reading_alone(tmp_path: Path) -> None:
    """Which the first one after a change would set: the file system would write each inode once more."""
    path = tmp_path / "u.dat"
    path.write_bytes(b"data")

    def read_at(action: Callable[[], object]) -> int:
        os.utime(path, (1000, 2000))
        action()
        return path.stat().st_atime_ns

    if read_at(path.read_bytes) == 1000 * 10**9:
        pytest.skip("mounted with noatime")
    assert read_at(lambda: read(disk, str(path))) == 1000 * 10**9
    assert read_at(lambda: disk.read_into(memoryview(bytearray(4)), str(path))) == 1000 * 10**9


@needs_linux
def test_the_files_of_others_can_be_read_whose_times_are_theirs(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"data")
    (tmp_path / "secret").write_bytes(b"data")
    (tmp_path / "secret").chmod(0)
    with ordinary_user(tmp_path):
        assert read(disk, str(tmp_path / "theirs")) == b"data"
        with pytest.raises(PermissionError) as caught:
            read(disk, str(tmp_path / "secret"))
    assert caught.value.filename == str(tmp_path / "secret")


LEASED = """
import fcntl, signal
descriptor = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK))
fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
while True:
    signal.pause()
"""


@needs_linux
def test_a_file_that_is_leased_is_waited_for(tmp_path: Path) -> None:
    """As a file server does: it gives the lease back to who wants to open the file."""
    path = tmp_path / "leased"
    path.write_bytes(b"x")
    with child(LEASED, path) as other:
        assert other.stdout and other.stdout.readline() == "leased\n"
        with disk.open(str(path)) as file:
            assert file.read() == b"x"


HELD = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
first = os.open("/", os.O_RDONLY)
os.close(first)
for name in "abcdefgh":
    open(name, "w").close()
from safepoint.disk.files import open_all
with open_all(disk, list("abcdefgh")) as files:
    more = [os.dup(0) for _ in range(3)]
    print(first + len(files), *files)
"""


@pytest.mark.parametrize("limit", [14, 20, 100])
def test_of_the_descriptors_of_the_program_half_stay_free(tmp_path: Path, limit: int) -> None:
    """G6, for descriptors: a save must not be why the program cannot open its own next file."""
    with child(HELD, limit, cwd=tmp_path) as other:
        used, *names = says(other).split()
    assert "".join(names) == "abcdefgh"[: len(names)]
    assert int(used) == limit // 2 if limit < 100 else len(names) == 8


# Several at once.


@pytest.fixture
def busy() -> Iterator[Disk]:
    """A disk all of whose helper threads are at work until the test has ended."""
    busy, let_go = Disk(), threading.Event()
    began = [threading.Event() for _ in range(AT_ONCE)]
    for event in began:
        busy.helpers._threads().submit(lambda event=event: event.set() or let_go.wait(300))
    assert all(event.wait(300) for event in began)
    yield busy
    let_go.set()
    busy.helpers.dismiss()


def nested(disk: Disk, depth: int) -> int:
    """So many calls of `each` in each other, of three items each; 3 to that power."""
    return sum(disk.helpers.each(lambda _: nested(disk, depth - 1), range(3))) if depth else 1


def test_what_no_helper_comes_to_is_done_by_who_waits_for_it(busy: Disk) -> None:
    """Else a batch that is part of another one could wait for ever for threads that wait for it."""
    assert busy.helpers.each(str, range(40)) == [str(n) for n in range(40)]
    assert nested(busy, 4) == 3**4
    free = Disk()
    assert nested(free, 6) == 3**6
    free.helpers.dismiss()


def test_each_item_is_done_once_and_the_results_are_in_their_order() -> None:
    disk, done = Disk(), []
    for count in (0, 1, 2, 7, 300):
        done.clear()
        assert disk.helpers.each(lambda n: done.append(n) or n, range(count)) == list(range(count))
        assert sorted(done) == list(range(count))
    disk.helpers.dismiss()


def test_a_failed_fsync_counts_more_than_other_errors_which_count_by_their_order() -> None:
    def fails(error: Exception) -> None:
        together.wait(300)
        raise error

    disk = Disk()
    for errors, raised in (
        ([OSError(errno.EIO, "b"), ValueError("a"), SyncFailed(errno.EIO, "c")], SyncFailed),
        ([ValueError("a"), OSError(errno.EIO, "b"), OSError(errno.EIO, "c")], ValueError),
    ):
        together = threading.Barrier(3)
        with pytest.raises(raised):
            disk.helpers.each(fails, errors)
    disk.helpers.dismiss()


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals to a thread")
def test_an_interrupt_does_not_leave_a_helper_at_work() -> None:
    """Ctrl-C while one waits: it is raised when all have ended what they do, as files are about to be put back."""
    disk, ended, sent, main = Disk(), [], threading.Event(), threading.get_ident()

    def work(where: str) -> None:
        if threading.get_ident() == main:
            wait_for(sent.is_set)
        else:
            sent.set()
            wait_for(lambda: sys._current_frames()[main].f_code.co_name == "wait")
            ctrl_c()
            wait_for(interrupted)
            ended.append(where)

    with pytest.raises(KeyboardInterrupt):
        disk.helpers.each(work, ["a", "b"])
    assert len(ended) == 1
    disk.helpers.dismiss()


AT_THE_END = """
import atexit, threading
if sys.argv[1] == "woken before":
    disk.helpers.each(str, range(40))
atexit.register(lambda: print(*disk.helpers.each(str, range(40)), len(threading.enumerate()), flush=True))
"""


@pytest.mark.parametrize("helpers", ["woken before", "never"])
def test_when_the_interpreter_ends_all_is_done_in_the_thread_that_is_left(helpers: str) -> None:
    """The set in flight is finished then, and no thread can be started any more."""
    with child(AT_THE_END, helpers) as process:
        assert says(process) == " ".join(map(str, [*range(40), 1]))
        assert process.wait(30) == 0


def test_helpers_stay_until_they_are_dismissed_and_come_again() -> None:
    disk = Disk()
    before = {*threading.enumerate()}  # a thread of an earlier test may end meanwhile
    for _ in range(50):
        disk.helpers.each(str, range(40))
    assert len({*threading.enumerate()} - before) <= AT_ONCE
    disk.helpers.dismiss()
    wait_for(lambda: {*threading.enumerate()} <= before)
    assert disk.helpers.each(str, range(40)) == [str(n) for n in range(40)]
    disk.helpers.dismiss()


# Removing.


def test_a_tree_is_removed_with_all_it_holds_and_nothing_it_points_to(tmp_path: Path) -> None:
    """Links are removed, not followed: a set may hold some."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_bytes(b"")
    (tmp_path / "tree/a/b").mkdir(parents=True)
    (tmp_path / "tree/a/b/file").write_bytes(b"")
    (tmp_path / "tree/way").symlink_to("../kept")
    (tmp_path / "tree/nowhere").symlink_to("none")
    remove_tree(disk, str(tmp_path / "tree"))
    remove_tree(disk, str(tmp_path / "kept/file"))
    (tmp_path / "top").symlink_to("kept")
    remove_tree(disk, str(tmp_path / "top"))
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    """Deeper than the interpreter may recurse."""
    deep = tmp_path / "deep"
    path = str(deep)
    for _ in range(1200):
        os.mkdir(path)
        path += "/d"
    remove_tree(disk, str(deep))
    assert not deep.exists()


READ_ONLY = """
if os.geteuid() == 0:  # who may do everything: nothing would be tested
    os.chown(".", 65534, 65534)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.makedirs("tree/a/b")
os.makedirs("tree/c/d")
for name in ("tree/file", "tree/a/b/file"):
    open(name, "x").close()
    os.chmod(name, 0o400)
for name, mode in (("tree/a/b", 0o500), ("tree/a", 0), ("tree/c", 0o600), ("tree", 0o500)):
    os.chmod(name, mode)
try:
    os.unlink("tree/file")
    print("not forbidden")
except PermissionError:
    from safepoint.disk.files import remove_tree
    remove_tree(disk, os.path.abspath("tree"))
    print(os.listdir("."))
"""


@needs_linux
def test_a_directory_without_permissions_is_removed_all_the_same() -> None:
    """A program may have made its directory read-only; its set must still be pruned."""
    with tempfile.TemporaryDirectory() as directory, child(READ_ONLY, cwd=directory) as other:
        assert says(other) == "[]"


# How it fails.


@pytest.mark.parametrize("sync", [disk.sync_dir, lambda path: disk.sync_files([path])], ids=["sync_dir", "sync_files"])
def test_syncing_what_is_not_there_is_an_error_that_names_it(tmp_path: Path, sync: Callable[[str], None]) -> None:
    """G7"""
    path = str(tmp_path / "none")
    with pytest.raises(FileNotFoundError) as caught:
        sync(path)
    assert caught.value.filename == path


@needs_linux
@pytest.mark.parametrize(
    ("path", "sync"),
    [("/dev/full", lambda path: disk.sync_files([path])), ("/proc", disk.sync_dir)],
    ids=["sync_files", "sync_dir"],
)
def test_an_fsync_that_fails_is_final_and_names_the_file(path: str, sync: Callable[[str], None]) -> None:
    """G7: these can be opened, but have nothing to sync, and the kernel says so."""
    if not os.access(path, os.R_OK):
        pytest.skip(f"needs {path}")
    with pytest.raises(SyncFailed) as caught:
        sync(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, path)


def test_syncing_stops_at_the_first_file_that_fails(path: str) -> None:
    """G7: one failure among many is a failure."""
    if not os.access("/dev/full", os.R_OK):
        pytest.skip("needs /dev/full, which cannot be synced")
    with pytest.raises(SyncFailed):
        disk.sync_files([path, "/dev/full", path])
    disk.sync_files([path, path])


@pytest.mark.parametrize("use", [
    lambda disk, file: disk.stat(file), lambda disk, file: size_of(file), lambda disk, file: file.close(),
])  # fmt: skip
def test_an_error_of_a_descriptor_names_its_file(path: str, use: Callable[[Disk, BinaryIO], object]) -> None:
    """As a network file system may say only at the end what went wrong."""
    file = Disk().open(path)
    os.close(file.fileno())
    with pytest.raises(OSError, match=re.escape(f"[Errno {errno.EBADF}] Bad file descriptor: '{path}'")):
        use(Disk(), file)
    with contextlib.suppress(OSError):
        file.close()


@pytest.mark.parametrize(("number", "text"), [
    (errno.EIO, "Input/output error"), (524, r"not supported by this file system \(error 524\)"),
])  # fmt: skip
def test_of_an_error_without_a_name_the_directory_is_said(tmp_path: Path, number: int, text: str) -> None:
    """It came from below it: more is not known."""
    root = Root(str(tmp_path))
    of = pytest.raises(SaveError, match=f"^not taken: {re.escape(str(tmp_path))}: {text}; all is well$")
    with of, root.reporting(SaveError, "not taken", "all is well"):
        raise OSError(number, os.strerror(number))


def test_nothing_is_created_over_what_exists(path: str) -> None:
    """What exists where it should not is a fault, and not ours to overwrite."""
    with pytest.raises(FileExistsError), disk.create(path):
        pass
    with pytest.raises(FileExistsError):
        write(disk, path, b"new")
    with pytest.raises(FileExistsError):
        disk.mkdir(path)
    assert read(disk, path) == b"x" * 5000


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disk_is_an_error_that_names_the_file(size: int) -> None:
    """G7"""
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("needs /dev/full, a disk that is full")
    with pytest.raises(OSError) as caught:
        disk.append("/dev/full", b"x" * size)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")


def test_appending_to_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    """`hide` finds out by it that the next set was not prepared."""
    with pytest.raises(FileNotFoundError) as caught:
        disk.append(str(tmp_path / "none"), b"x")
    assert (caught.value.filename, os.listdir(tmp_path)) == (str(tmp_path / "none"), [])


def test_reading_a_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        read(disk, str(tmp_path))
    assert caught.value.filename == str(tmp_path)


def test_a_clone_has_the_same_bytes_or_is_refused_and_nothing_done(path: str, tmp_path: Path) -> None:
    """Both answers are right; a third, half of the bytes, is not."""
    target = str(tmp_path / "clone")
    with disk.open(path) as source, disk.create(target) as sink:
        cloned = disk.duplicate(source, sink, only_shared=True)
    assert read(disk, target) == (read(disk, path) if cloned else b"")


def test_a_link_is_looked_at_itself_also_if_it_leads_nowhere(tmp_path: Path) -> None:
    link = str(tmp_path / "link")
    disk.link("none", link)
    assert (exists(disk, link), exists(disk, str(tmp_path / "none")), exists(disk, f"{link}/below")) == (
        True,
        False,
        False,
    )


def test_of_a_file_that_grows_meanwhile_only_so_many_bytes_are_shared(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program at work adds rows to it between the look and the reflink, which takes all of it."""
    Path(path).write_bytes(b"x" * (2 << 20))

    def share(source: Any, target: Any) -> bool:
        target.write(Path(path).read_bytes() + b"a row of a later step")
        return True

    monkeypatch.setattr(sys.modules["safepoint.disk.disk"], "_share_blocks", share)
    with disk.open(path) as source, disk.create(f"{path}.copy") as target:
        assert disk.duplicate(source, target, 2 << 20, only_shared=True)
    assert Path(f"{path}.copy").stat().st_size == 2 << 20
