"""The file operations that make data survive; nothing else in the package calls fsync, rename, reflink or lock.

`Disk` is the real one. `tests/faultdisk.py` is the second implementation, which records every operation and can fail,
kill or cut the power at each; that is what the seam is for. What a platform lacks (leases, reflinks, a directory fsync,
sync_file_range) is decided here and nowhere else. An `OSError` that leaves this module names its file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TypeVar

from safepoint.interrupts import Undisturbed, raise_all

if sys.platform != "win32":
    import fcntl
    import resource

FICLONE = 0x40049409  # linux/fs.h
STATX_MNT_ID, STATX_MNT_ID_UNIQUE = 0x1000, 0x4000  # linux/stat.h; the unique one since Linux 6.8
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
SIGURG = 23  # the same number on every Linux, and ignored unless handled
SIGKILL = 9
PF_EXITING = 4  # linux/sched.h
# Where the page cache of this kernel is the only one: what it holds after a kill is what the program wrote.
LOCAL_FILE_SYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "tmpfs", "overlay"}
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}  # what a file system says that has no kernel locks
NOT_HERE = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}  # a call of Linux
NO_FILE = {errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EFBIG}  # what `read` says of what is none, or too large
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.ENAMETOOLONG}  # for a second copy


WORTH_CLONING = 1 << 20  # bytes; a reflink flushes a dirty source first, so smaller files are copied faster
NONE: Mapping[str, BinaryIO] = MappingProxyType({})
READING = os.O_RDONLY | getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT, NO_TIME = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOATIME", 0)
LONGEST = 4 << 30  # bytes of a file that is read whole: a record of ten million files, each with 400 bytes there
AT_ONCE = 8  # fsyncs in flight: the journal commits of a batch are shared, see docs/design.md

Item = TypeVar("Item")
Result = TypeVar("Result")


class SyncFailed(OSError):
    """fsync, or the start of a write-back, said no. What it covered may be lost although the cache still shows it, so
    it must not be asked again."""


class Place(NamedTuple):
    """Which page cache holds a directory: equal places with a `mount` see the very pages that a dead process wrote."""

    host: str
    boot: str
    mount: str | None  # None: cannot be proven here (old kernel, network file system)


class naming:
    """Put `path` into any OSError that does not name its file (read and write know only a descriptor). No generator,
    as it is round every read and write."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = self._path


def write_all(file: Any, data: bytes | bytearray | memoryview) -> None:
    """Write everything: a single write may stop half way, and on a full disk it does so without an error."""
    with naming(file.name):
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


_held: dict[BinaryIO, tuple[int, int, int]] = {}  # what `Disk.opened` keeps open: descriptor, device and inode


def _quietly(close: Callable[..., None], *what: int) -> None:
    """Close a file that was only read: an error of this must not hide that of its flush."""
    try:  # noqa: SIM105 - to make what suppresses takes as long as to close
        close(*what)
    except OSError:
        pass


def _let_go() -> None:
    """In a child: a worker that the program forks would keep the space of these files, long after they are removed."""
    while _held:
        file, (descriptor, *known) = _held.popitem()
        if not file.closed:
            file.close()
            continue
        # Another thread was closing it: Python takes it for closed before it is, so the child has it still.
        with contextlib.suppress(OSError):
            info = os.fstat(descriptor)
            if [info.st_dev, info.st_ino] == known:
                os.close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _itself(path: str, flags: int) -> int:
    """Open the file of this name: not what a symbolic link that took its place points to, and without waiting for
    somebody who writes into a fifo that did. The time of its last reading is the user's, and to note it takes a file
    system longer than to read a small file."""
    try:
        try:
            return os.open(path, flags | NO_LINK | NO_WAIT | NO_TIME)
        except PermissionError:  # only the owner of a file may leave its times alone
            return os.open(path, flags | NO_LINK | NO_WAIT)
    except BlockingIOError:  # a lease, which is given back to who waits for it
        return os.open(path, flags | NO_LINK)


def _read_some(descriptor: int, buffer: memoryview) -> int:
    if sys.platform != "win32":
        return os.readv(descriptor, (buffer,))
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


class Disk:
    """The real disk. Paths are absolute. Nothing is durable before `sync_files` and `sync_dir` returned."""

    _helpers: tuple[int, ThreadPoolExecutor | None] = 0, None  # of the process with this id

    def stat(self, path: str) -> os.stat_result:
        """The file itself, never what a symbolic link points to."""
        return os.lstat(path)

    def stat_or_none(self, path: str) -> os.stat_result | None:
        """As `stat`; None if there is nothing."""
        try:
            return self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):  # a link to itself leads nowhere
                raise
            return None

    def exists(self, path: str) -> bool:
        return self.stat_or_none(path) is not None

    def stat_of(self, file: BinaryIO) -> os.stat_result:
        """The file that is open, whatever has its name by now."""
        return os.fstat(file.fileno())

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """The names in this directory, and whether each is a directory itself: most file systems tell without a look
        at each."""
        with os.scandir(path) as found:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb", buffering=0, opener=_itself)

    @contextlib.contextmanager
    def opened(self, paths: Iterable[str]) -> Iterator[Mapping[str, BinaryIO]]:
        """These files, all open at once, or only the first of them: a process may have only so many, and the program
        needs some too. None on Windows, where a file that is open cannot be renamed."""
        files: dict[str, BinaryIO] = {}
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [_held.pop(file, None) for file in files.values()])
            for path in paths if sys.platform != "win32" else ():
                try:
                    file = self.open(path)
                except OSError as error:
                    if error.errno not in NO_DESCRIPTOR:
                        raise
                    break
                if file.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
                    file.close()
                    break
                stack.callback(_quietly, file.close)
                files[path] = file
                info = self.stat_of(file)
                _held[file] = file.fileno(), info.st_dev, info.st_ino
            yield files

    def read(self, path: str, most: int = LONGEST) -> bytes:
        """A whole file. One of more than `most` bytes is an error and not read, nor is what is no file: a device or a
        fifo has no end, and of a hole the size alone would fill the memory."""
        size = self._length(path)
        if size > most:
            raise OSError(errno.EFBIG, f"{size} bytes, and no more than {most} are read", path)
        with self.open(path) as file, naming(path):
            return file.read()

    def tail(self, path: str, most: int) -> bytes:
        """As `read`, no more than so many bytes at the end of a file of any size."""
        begin = max(0, self._length(path) - most)
        with self.open(path) as file, naming(path):
            file.seek(begin)
            return file.read()

    def _length(self, path: str) -> int:
        info = self.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ENXIO, "not a regular file", path)
        return info.st_size

    def read_into(self, buffer: memoryview, path: str) -> tuple[int, os.stat_result]:
        """Read a file from its beginning, as far as there is room; how many bytes, and what it is like after that. For
        files by the thousand: to make a file object of each takes as long as this."""
        descriptor = _itself(path, READING)
        try:
            count = _read_some(descriptor, buffer)
            while 0 < count < len(buffer) and (more := _read_some(descriptor, buffer[count:])):
                count += more  # a read may stop half way, on a network file system
            return count, os.fstat(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            _quietly(os.close, descriptor)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """A new file for writing; one that exists already is an error, never overwritten."""
        with naming(path), open(path, "xb", buffering=0) as file:
            yield file

    def write(self, path: str, data: bytes) -> None:
        """A new file with this content, not yet durable."""
        with self.create(path) as file:
            write_all(file, data)

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, in one write; one that does not exist is an error, and so is a link or a fifo."""
        with naming(path):
            flags = os.O_WRONLY | os.O_APPEND | NO_LINK | NO_WAIT | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags)
            try:
                if os.write(descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # what a short write to a file means
            finally:
                os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Atomic; a file under the target's name is replaced. A read-only directory is no obstacle and stays so."""
        try:
            os.replace(source, target)
        except PermissionError:
            mode = _allow_writing(source)  # its entry `..` changes
            os.replace(source, target)
            os.chmod(target, mode)

    def exchange(self, one: str, other: str) -> bool:
        """Atomic: each of two files gets the other's name. False where that cannot be, and nothing was done."""
        swap: Any = getattr(_libc(), "renameat2", None) if sys.platform == "linux" else None
        names = os.fsencode(one), os.fsencode(other)
        return swap is not None and swap(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0

    def link(self, points_to: str, path: str) -> None:
        os.symlink(points_to, path)

    def truncate(self, path: str, length: int) -> None:
        """Cut a file; that it is read-only is no obstacle for its owner, and stays so."""
        try:
            os.truncate(path, length)
        except PermissionError:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            os.chmod(path, mode | stat.S_IWUSR)
            os.truncate(path, length)
            os.chmod(path, mode)

    def dress(self, path: str, mode: int, mtime_ns: int) -> None:
        """Give a file its permissions and modification time."""
        os.chmod(path, stat.S_IMODE(mode))
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except PermissionError:
            _allow_writing(os.path.dirname(path))
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except PermissionError:
            _allow_writing(os.path.dirname(path))
            os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds, or a file. A directory without permissions is no obstacle."""
        if not stat.S_ISDIR(self.stat(path).st_mode):
            self.remove(path)
            return
        ahead, emptied = [path], []
        while ahead:
            top = ahead.pop()
            emptied.append(top)
            found = [(f"{top}/{name}", is_directory) for name, is_directory in self._entries(top)]
            self.remove_files([name for name, is_directory in found if not is_directory])
            ahead += [name for name, is_directory in found if is_directory]
        for top in reversed(emptied):
            self.rmdir(top)

    @contextlib.contextmanager
    def freed_later(self, paths: Iterable[str]) -> Iterator[None]:
        """What is removed inside, of these files, gives its blocks back afterwards, in a thread of its own: for a large
        file that takes as long as to read a part of it. The names are gone at once, and the process may end."""
        with contextlib.ExitStack() as files:
            held: Mapping[str, BinaryIO] = files.enter_context(self.opened(paths))
            yield
            if held:
                later = files.pop_all()
                try:
                    threading.Thread(target=later.close, name="safepoint-freer", daemon=True).start()
                except RuntimeError:  # no thread to be had: a limit, or the interpreter is about to end
                    later.close()

    def remove_files(self, paths: Sequence[str]) -> None:
        """Several at once: a disk that is told of the blocks that are free (`discard`) may be waited for with each."""

        def remove(part: Sequence[str]) -> None:
            for path in part:
                self.remove(path)

        self.each(remove, [paths[start : start + 100] for start in range(0, len(paths), 100)], 4)

    def _entries(self, directory: str) -> list[tuple[str, bool]]:
        try:
            return self.entries(directory)
        except PermissionError:
            for each in (os.path.dirname(directory), directory):
                with contextlib.suppress(PermissionError):
                    _allow_writing(each)
            return self.entries(directory)

    def clone(self, source: BinaryIO, target: BinaryIO, length: int | None = None) -> bool:
        """Let `target` share the blocks of `source`, or of its first `length` bytes (XFS, btrfs); False where that
        cannot be, and nothing was done."""
        if sys.platform != "linux" or os.fstat(source.fileno()).st_size < WORTH_CLONING:
            return False
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError:
            return False
        if length is not None and os.fstat(target.fileno()).st_size > length:
            with naming(str(target.name)):  # not FICLONERANGE, which takes whole blocks
                os.ftruncate(target.fileno(), length)
        return True

    def cached(self, file: BinaryIO) -> bool:
        """Whether the page cache has this file, so that to copy it takes no look at the disk; judged by some pages."""
        if not hasattr(os, "RWF_NOWAIT"):
            return False
        last, byte = os.fstat(file.fileno()).st_size - 1, bytearray(1)
        try:
            return all(os.preadv(file.fileno(), [byte], last * n // 15, os.RWF_NOWAIT) for n in range(16))
        except OSError:  # it would have to wait for the disk, or this file system cannot tell
            return False

    def room(self, path: str) -> float:
        """Bytes that a file in this directory may still have, as far as that is known."""
        if not hasattr(os, "statvfs"):
            return float("inf")
        info = os.statvfs(path)
        return info.f_bavail * info.f_frsize

    def extents(self, file: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
        """Where the first `size` bytes have data, from and to; between these they are zero, and take no space."""
        info = os.fstat(file.fileno())
        if not hasattr(os, "SEEK_HOLE") or getattr(info, "st_blocks", info.st_size) * 512 >= info.st_size:
            yield from [(0, size)] * bool(size)
            return
        end = 0
        while end < size:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no more data
                    raise
                return
            if start >= size:
                return
            end = min(os.lseek(file.fileno(), start, os.SEEK_HOLE), size)
            yield start, end

    def duplicate(self, source: BinaryIO, target: BinaryIO) -> None:
        """Make `target`, still empty, a copy of `source`, with its holes: a reflink, or by the kernel, or by hand."""
        if self.clone(source, target):
            return
        size = os.fstat(source.fileno()).st_size
        with naming(str(target.name)):
            os.ftruncate(target.fileno(), size)
            for start, end in self.extents(source, size):
                self._copy_range(source, target, start, end)

    def _copy_range(self, source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
        by_kernel = sys.platform == "linux" and end - start >= WORTH_CLONING  # XFS would make it a reflink again
        while by_kernel and start < end:
            try:
                count = os.copy_file_range(source.fileno(), target.fileno(), end - start, start, start)
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                break
            if count == 0:
                break
            start += count
        os.lseek(source.fileno(), start, os.SEEK_SET)
        os.lseek(target.fileno(), start, os.SEEK_SET)
        while start < end and (data := source.read(min(end - start, 1 << 20))):
            write_all(target, data)
            start += len(data)

    def start_writeback(self, paths: Iterable[str], opened: Mapping[str, BinaryIO] = NONE) -> None:
        """Let the disk begin on these files while the caller does something else; promises nothing. `SyncFailed` if it
        cannot: where ext4 finds no place for data it may drop them, and a later fsync know nothing of it."""
        if sys.platform == "linux":
            for path in paths:
                with contextlib.nullcontext(opened[path]) if path in opened else self.open(path) as file:
                    self.start_writeback_of(file)

    def start_writeback_of(self, file: BinaryIO, length: int = 0) -> None:
        """Of its first `length` bytes; 0: of all."""
        import ctypes

        start: Any = getattr(_libc(), "sync_file_range", None) if sys.platform == "linux" else None
        failed = start and start(file.fileno(), ctypes.c_int64(0), ctypes.c_int64(length), SYNC_FILE_RANGE_WRITE)
        if failed and (number := ctypes.get_errno()) not in NOT_HERE:
            raise SyncFailed(number, os.strerror(number), file.name)

    def sync(
        self, files: Collection[str], directories: Collection[str] = (), opened: Mapping[str, BinaryIO] = NONE
    ) -> None:
        """On return the contents of these files, and the names in these directories, survive a power cut. `opened`:
        such of them as are open already.

        Several at once, in no order, since one after the other each would wait for a journal commit of its own; never
        by syncfs, which would also wait for the data of every other program. `SyncFailed` is final.
        """
        if len(files) > 1:
            self.start_writeback(files, opened)
        work = [functools.partial(self.sync_files, [path], opened) for path in files]
        work += [functools.partial(self.sync_dir, path) for path in directories]
        self.each(lambda sync: sync(), work)

    def sync_files(self, paths: Iterable[str], opened: Mapping[str, BinaryIO] = NONE) -> None:
        """On return the contents of these files survive a power cut. `SyncFailed` is final."""
        windows = sys.platform == "win32"  # there only what may be written is flushed
        for path in paths:
            if path in opened and not windows:
                _fsync(opened[path].fileno(), path)
            else:
                _flush(path, os.O_RDWR if windows else os.O_RDONLY)

    def sync_dir(self, path: str) -> None:
        """On return the names in this directory survive a power cut. `SyncFailed` is final."""
        if sys.platform != "win32":
            _flush(path, os.O_RDONLY | os.O_DIRECTORY)

    def each(self, work: Callable[[Item], Result], items: Sequence[Item], at_once: int = AT_ONCE) -> list[Result]:
        """Do `work` for all items, several at once; the results in their order. After an error nothing new is begun,
        and when all have ended it is raised, the first in the order of the items. In the main thread signals wait until
        then; after Ctrl-C nothing new is begun."""
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}
        numbers = itertools.count()  # atomic, so the threads need no lock
        signals = Undisturbed()

        def run() -> None:
            with signals.also_here():
                while not errors and not signals.ending and (number := next(numbers)) < len(items):
                    try:
                        results[number] = work(items[number])
                    except BaseException as error:  # raised below
                        errors[number] = error

        with signals, contextlib.ExitStack() as ended:
            for _ in range(min(len(items), at_once) - 1):
                ended.callback(self._begun(run))
            run()
        # A failed fsync counts more than what came after it, such as an interrupt: who has called must remember it.
        failed = [errors[number] for number in sorted(errors)]
        for error in failed:
            if isinstance(error, SyncFailed):
                signals.go_on()
                raise error
        raise_all(signals.raised)
        signals.deliver(only_end=True)
        raise_all(failed[:1])
        if len(results) < len(items):  # in a helper of who will raise its own
            raise KeyboardInterrupt
        return [results[number] for number in range(len(items))]

    def _begun(self, run: Callable[[], None]) -> Callable[[], None]:
        """Let a helper thread do this. What waits for its end; if no helper has come to it by then, it is done there:
        all of them may be busy, or there are none to be had."""
        taken, done = threading.Lock(), threading.Event()

        def once() -> None:
            if taken.acquire(blocking=False):
                try:
                    run()
                finally:
                    done.set()

        def ended() -> None:
            once()
            done.wait()

        try:
            self._pool().submit(once)
        except RuntimeError:  # no thread to be had: a limit, or the interpreter is about to end
            self.dismiss_helpers()
        return ended

    def _pool(self) -> ThreadPoolExecutor:
        """They stay: to start a thread takes longer than to wake one, as it is waited for until it runs. A forked child
        has none of its parent's, whose locks may be taken for ever."""
        pid, pool = self._helpers
        if pid != os.getpid() or pool is None:
            pool = ThreadPoolExecutor(AT_ONCE, "safepoint-disk")
            self._helpers = os.getpid(), pool
        return pool

    def dismiss_helpers(self) -> None:
        """No thread of this disk is left, when they have ended what they do. It may be used again."""
        (pid, pool), self._helpers = self._helpers, (0, None)
        if pool is not None and pid == os.getpid():
            pool.shutdown(wait=False)

    def lock(self, path: str) -> Callable[[], object] | None:
        """Take the kernel lock of this file, which dies with the process; what releases it, or None if it is held."""
        import filelock  # here: it takes longer to import than the rest of the package together

        lock = filelock.FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            return None
        return lock.release

    def held(self, paths: Sequence[str]) -> list[bool | None]:
        """Whether a process that can be seen from here holds the kernel lock of each of these files; None: unknown.

        By a look at the kernel's list, never by trying: that could make a run that begins just now fail.
        """
        try:
            with open("/proc/locks", encoding="utf-8", errors="replace") as file:
                rows = [line.split() for line in file]
        except OSError:
            return [None] * len(paths)
        # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; who waits for one has an arrow after the number
        held = {tuple(row[5].split(":")) for row in rows if len(row) > 5 and row[1] in ("FLOCK", "POSIX", "OFDLCK")}
        return [_is_locked(path, held) for path in paths]

    def is_alive(self, pid: int) -> bool:
        """Whether this host has such a process, that has not ended; where that cannot be asked, it has."""
        return self.began(pid) is not None

    def began(self, pid: int) -> int | None:
        """When this process of this host began, in ticks since the boot: another one with its number has another. None
        if it has ended or is about to, though it still holds what it had: to give back its memory takes a while. 0
        where that cannot be asked."""
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                words = file.read().rpartition(")")[2].split()  # from the third field on, see proc(5)
        except OSError:  # no such process, or one that is hidden from this user
            return 0 if _can_be_signalled(pid) else None
        exiting, killed = int(words[6]) & PF_EXITING, int(words[28]) >> (SIGKILL - 1) & 1
        return None if words[0] in "ZX" or exiting or killed else int(words[19])

    def kernel(self) -> str:
        """Whose numbers of processes are ours: the boot and the namespace. Empty where that cannot be asked."""
        with contextlib.suppress(OSError):
            return f"{_boot_id()} {os.readlink('/proc/self/ns/pid')}"
        return ""

    def share_lock(self, path: str) -> int | None:
        """A second descriptor of this lock file, which this process holds: who inherits it keeps the lock alive.

        (filelock closes its own one in every child.)
        """
        which = os.stat(path)
        for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
            with contextlib.suppress(OSError):  # that of this look itself
                info = os.fstat(int(name))
                if (info.st_dev, info.st_ino) == (which.st_dev, which.st_ino):
                    return os.dup(int(name))
        return None

    def open_for_writing(self, paths: Sequence[str]) -> list[str]:
        """Those of these files that a process of this host holds open for writing, or has mapped for writing."""
        if sys.platform != "linux":
            return []
        answers = [_leased(path) for path in paths]
        # No leases here (NFS, FUSE, files of others): what can be seen of our own processes, in one look for all.
        unknown = {answer: None for answer in answers if isinstance(answer, tuple)}
        held = {which for which, _ in _holders(unknown)} if unknown else set()
        return [path for path, answer in zip(paths, answers, strict=True) if answer is True or answer in held]

    def holders(self, path: str) -> list[str]:
        """Who holds the file open for writing, as far as this user may see: processes and their descriptors."""
        try:
            info = os.stat(path)
        except OSError:  # it is gone
            return []
        return [who for _, who in _holders({(info.st_dev, info.st_ino): None})] if sys.platform == "linux" else []

    def mount_point(self, path: str) -> str:
        """Where the file system is mounted that holds `path`."""
        device = self.stat(path).st_dev
        while os.path.dirname(path) != path and self.stat(os.path.dirname(path)).st_dev == device:
            path = os.path.dirname(path)
        return path

    def place(self, path: str) -> Place:
        """Which page cache holds `path`. Asked here so that tests that cut the power without a reboot can change it."""
        return Place(host(), _boot_id(), _unique_mount(path))


def _can_be_signalled(pid: int) -> bool:
    """Whether there is such a process, though /proc does not show it."""
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_locked(path: str, held: Collection[tuple[str, ...]]) -> bool:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    # btrfs and overlays show files under a device that the kernel's list does not have: there the inode has to do.
    device = (os.major(info.st_dev), os.minor(info.st_dev))
    return any(
        inode == str(info.st_ino) and ((int(major, 16), int(minor, 16)) == device or device[0] == 0)
        for major, minor, inode in held
    )


def _allow_writing(directory: str) -> int:
    """Let the owner change a directory that is read-only, or raise; the permissions it had."""
    mode = os.lstat(directory).st_mode
    if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
    os.chmod(directory, stat.S_IMODE(mode) | stat.S_IRWXU)
    return stat.S_IMODE(mode)


def _flush(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        _fsync(descriptor, path)
    finally:
        _quietly(os.close, descriptor)


def _fsync(descriptor: int, path: str) -> None:
    try:
        if sys.platform == "darwin":
            with contextlib.suppress(OSError):  # not every file system there knows it
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone leaves the data in the drive's cache
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


Which = tuple[int, int]  # a file: its device and inode


def _leased(path: str) -> bool | Which:
    """Whether somebody can write to this file; which one it is, if the kernel does not say."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # If another process opens the file in this very moment the kernel sends us a signal: SIGIO, which kills.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, SIGURG)
        # A read lease is granted only on a file that nobody can write to; closing gives it back.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return False
    except OSError as error:
        info = os.fstat(descriptor)
        return error.errno == errno.EAGAIN or (info.st_dev, info.st_ino)
    finally:
        os.close(descriptor)


def _holders(files: Collection[Which]) -> Iterator[tuple[Which, str]]:
    """Which processes can write to these files, and how, from /proc; only those of this user can be seen."""
    with contextlib.suppress(OSError):
        for pid in sorted((name for name in os.listdir("/proc") if name.isdecimal()), key=int):
            with contextlib.suppress(OSError):  # another's, or gone in the meantime
                yield from _held_by(pid, files)


def _held_by(pid: str, files: Collection[Which]) -> Iterator[tuple[Which, str]]:
    whose = "this process"
    if int(pid) != os.getpid():
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            whose = f"process {pid} ({file.read().strip()})"
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed in the meantime
            info = os.stat(f"/proc/{pid}/fd/{descriptor}")
            if (info.st_dev, info.st_ino) in files:
                with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
                    flags = dict(line.split(":", 1) for line in file if ":" in line)["flags"]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield (info.st_dev, info.st_ino), f"descriptor {descriptor} of {whose}"
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
        for line in file:
            _, permissions, _, device, inode, *_ = line.split(maxsplit=5)
            if permissions[1] == "w" and permissions[3] == "s" and inode != "0":
                major, minor = (int(part, 16) for part in device.split(":"))
                if (os.makedev(major, minor), int(inode)) in files:
                    yield (os.makedev(major, minor), int(inode)), f"a writable mapping of {whose}"


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def host() -> str:
    """The name of this machine."""
    if sys.platform != "win32":
        return os.uname().nodename
    import socket

    return socket.gethostname()


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _statx_mount(path: str, which: int) -> int | None:
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    flags = 0
    if not hasattr(_libc(), "statx") or _libc().statx(AT_FDCWD, os.fsencode(path), flags, which, buffer) != 0:
        return None
    mask, mount = struct.unpack_from("=I", buffer, 0)[0], struct.unpack_from("=Q", buffer, 0x90)[0]
    return int(mount) if mask & which else None


def _unique_mount(path: str) -> str | None:
    """The never reused id of the mount that holds `path`, if its file system is local; None proves nothing."""
    if sys.platform != "linux" or not _boot_id():
        return None
    unique, listed = _statx_mount(path, STATX_MNT_ID_UNIQUE), _statx_mount(path, STATX_MNT_ID)
    if unique is None or listed is None:
        return None
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", errors="surrogateescape") as file:
        for line in file:
            if line.split(maxsplit=1)[0] == str(listed) and line.partition(" - ")[2].split()[0] in LOCAL_FILE_SYSTEMS:
                return str(unique)
    return None


def cause(error: OSError) -> str:
    """The system's cause in words; of a permission that is lacking also where, to whom that belongs, and a remedy."""
    text, path = error.strerror or str(error), error.filename
    if sys.platform == "win32" or error.errno not in (errno.EACCES, errno.EPERM) or not isinstance(path, (str, bytes)):
        return text
    with contextlib.suppress(OSError):  # gone meanwhile, or more than we may see
        place, needed = _closed(os.path.abspath(os.fsdecode(path)))
        if place:
            text += f" ({_whose(place, needed)})"
    return text


def _closed(path: str) -> tuple[str, str]:
    """What is closed to this process on the way to `path`, and the permissions that it needs there; "": nothing."""

    def lacks(place: str, rights: int) -> bool:
        return not os.access(place, rights, effective_ids=os.access in os.supports_effective_ids)

    way = path.split(os.sep)
    for place in (os.sep.join(way[:end]) or os.sep for end in range(1, len(way))):
        if lacks(place, os.X_OK):
            return place, "rwx"
    if os.path.lexists(path):
        directory = os.path.isdir(path)
        if lacks(path, os.R_OK | os.W_OK | (os.X_OK if directory else 0)):
            return path, "rwx" if directory else "rw"
    parent = os.path.dirname(path)
    return (parent, "rwx") if lacks(parent, os.W_OK) else ("", "")


def _whose(place: str, needed: str) -> str:
    """To whom a place that is closed belongs, and what to do about it. In the side directory all of it goes over."""
    owner, ours = os.lstat(place).st_uid, ".safepoint.d" in place.split(os.sep)
    above = os.path.dirname(place)
    while ".safepoint.d" in above.split(os.sep) and os.lstat(above).st_uid == owner != os.geteuid():
        place, above = above, os.path.dirname(above)
    me, name, mode = _user(os.geteuid()), _user(owner), f"with mode {stat.S_IMODE(os.lstat(place).st_mode):04o}"
    if owner == os.geteuid():
        return f"{place} belongs to {me}, as this process does, {mode}: chmod u+{needed} {place}"
    what = f"as root give it over by chown -R {me} {place}" if ours else f"where {me} may write"
    return f"{place} belongs to {name}, {mode}, and this process to {me}: start it as {name}, or {what}"


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
