"""What only the kernel, or the platform, can tell or do: flushes, page caches, locks, leases, processes.

None of this goes through a `Disk`, unless it stands there as an operation too. What a platform lacks (leases, holes, a
directory fsync, sync_file_range) is decided here and in `disk`, and nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

if sys.platform != "win32":
    import fcntl

STATX_MNT_ID, STATX_MNT_ID_UNIQUE = 0x1000, 0x4000  # linux/stat.h; the unique one since Linux 6.8
STATX_ATTR_MOUNT_ROOT = 0x2000
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
SIGKILL = 9
PF_EXITING = 4  # linux/sched.h
# Where the page cache of this kernel is the only one: what it holds after a kill is what the program wrote.
IN_MEMORY = {"tmpfs", "ramfs"}  # a flush is nothing there
LOCAL_FILE_SYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "tmpfs", "overlay"}
ENOTSUPP = 524  # linux/errno.h: what network file systems say that forget to translate it
# errno values of a call of Linux that this kernel or file system does not have
NOT_HERE = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, ENOTSUPP}

Which = tuple[int, int]  # a file: its device and inode


class names_file:
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
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        error.filename = error.filename or file.name
        raise


def close_read_only(close: Callable[..., None], *what: int) -> None:
    """Close a file that was only read: an error of this must not hide that of its flush."""
    try:  # noqa: SIM105 - to make what suppresses takes as long as to close
        close(*what)
    except OSError:
        pass


class SyncFailed(OSError):
    """fsync, or the start of a write-back, said no. What it covered may be lost although the cache still shows it, so
    it must not be asked again."""


def fsync(descriptor: int, path: str) -> None:
    """On return all that this file, or directory, holds survives a power cut. `SyncFailed` is final."""
    try:
        if sys.platform == "darwin":
            with contextlib.suppress(OSError):  # not every file system there knows it
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone leaves the data in the drive's cache
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def start_writeback(file: BinaryIO, length: int) -> None:
    """Let the disk begin on the first `length` bytes, 0: on all; promises nothing. `SyncFailed` if it cannot: where
    ext4 finds no place for data it may drop them, and a later fsync know nothing of it."""
    import ctypes

    start: Any = getattr(_libc(), "sync_file_range", None) if sys.platform == "linux" else None
    failed = start and start(file.fileno(), ctypes.c_int64(0), ctypes.c_int64(length), SYNC_FILE_RANGE_WRITE)
    if failed and (number := ctypes.get_errno()) not in NOT_HERE:
        raise SyncFailed(number, os.strerror(number), file.name)


def exchange(one: str, other: str) -> bool:
    """Atomic: each of two files gets the other's name. False where that cannot be, and nothing was done."""
    swap: Any = getattr(_libc(), "renameat2", None) if sys.platform == "linux" else None
    names = os.fsencode(one), os.fsencode(other)
    return swap is not None and swap(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


# Where a file lies, and where it could.


class PageCache(NamedTuple):
    """Which page cache holds a directory: equal ones with a `mount` see the very pages that a dead process wrote."""

    host: str
    boot: str
    mount: str | None  # None: cannot be proven here (old kernel, network file system)

    def unproven(self, then: PageCache) -> str:
        """Why it need not be the cache of then, as far as that was looked at; empty: it is that one."""
        if then.host != self.host:
            return f"it was not committed, and it was taken on {then.host}: only there could it be shown to be whole"
        if then.boot and self.boot and then.boot != self.boot:
            return "the machine went down before it was committed"
        if self.mount is None or then.mount is None:
            return "it was not committed, and nothing shows on this file system or kernel that it is whole"
        return "" if then == self else "it was not committed, and this is not the mount in which it was taken"


def page_cache(path: str) -> PageCache:
    """Which page cache holds `path`."""
    return PageCache(host(), _boot_id(), _unique_mount(path))


def _unique_mount(path: str) -> str | None:
    """The never reused id of the mount that holds `path`, if its file system is local; None proves nothing."""
    if sys.platform != "linux" or not _boot_id():
        return None
    unique = _statx_mount(path, STATX_MNT_ID_UNIQUE)
    return None if unique is None or file_system(path) not in LOCAL_FILE_SYSTEMS else str(unique)


def file_system(path: str) -> str:
    """The kind that holds `path`, such as ext4; empty where that is not known."""
    if sys.platform == "linux" and (listed := _statx_mount(path, STATX_MNT_ID)) is not None:
        with contextlib.suppress(OSError), open("/proc/self/mountinfo", errors="surrogateescape") as file:
            for line in file:
                if line.split(maxsplit=1)[0] == str(listed):
                    return line.partition(" - ")[2].split()[0]
    return ""


def _statx_mount(path: str, which: int) -> int | None:
    mask, _, mount = _statx(path, which)
    return mount if mask & which else None


def _statx(path: str, which: int) -> tuple[int, int, int]:
    """Which fields are known, the attributes, and the mount; of a path that cannot be looked at nothing is known."""
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    if not hasattr(_libc(), "statx") or _libc().statx(AT_FDCWD, os.fsencode(path), 0, which, buffer) != 0:
        return 0, 0, 0
    return (*struct.unpack_from("=I4xQ", buffer), *struct.unpack_from("=Q", buffer, 0x90))


def _boot_id() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""


def is_mount(path: str) -> bool:
    """Whether something is mounted here, a part of the same file system too, or a subvolume begins here."""
    mounted = sys.platform == "linux" and _statx(path, 0)[1] & STATX_ATTR_MOUNT_ROOT
    return bool(mounted) or (os.path.isdir(path) and os.path.ismount(path))


def cached(file: BinaryIO) -> bool:
    """Whether the page cache has this file, so that to copy it takes no look at the disk; judged by some pages."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    last, byte = os.fstat(file.fileno()).st_size - 1, bytearray(1)
    try:
        return all(os.preadv(file.fileno(), [byte], last * n // 15, os.RWF_NOWAIT) for n in range(16))
    except OSError:  # it would have to wait for the disk, or this file system cannot tell
        return False


def extents(file: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
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


# Who else is there.


def host() -> str:
    """The name of this machine."""
    if sys.platform != "win32":
        return os.uname().nodename
    import socket

    return socket.gethostname()


def namespace() -> str:
    """Whose numbers of processes are ours: the boot and the namespace. Empty where that cannot be asked."""
    with contextlib.suppress(OSError):
        return f"{_boot_id()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def is_alive(pid: int) -> bool:
    """Whether this host has such a process, that has not ended; where that cannot be asked, it has."""
    return began(pid) is not None


def parent_of(pid: int) -> int:
    """The process that started this one, or took it in; 0 where that cannot be known."""
    try:
        return int(_stat(pid)[1])
    except (OSError, ValueError, IndexError):
        return 0


def _stat(pid: int) -> list[str]:
    """What /proc says of a process, from the third field on: see proc(5)."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def began(pid: int) -> int | None:
    """When this process of this host began, in ticks since the boot: another one with its number has another. None
    if it has ended or is about to, though it still holds what it had: to give back its memory takes a while. 0
    where that cannot be asked."""
    try:
        words = _stat(pid)
    except OSError:  # no such process, or one that is hidden from this user
        return 0 if can_be_signalled(pid) else None
    exiting, killed = int(words[6]) & PF_EXITING, int(words[28]) >> (SIGKILL - 1) & 1
    return None if words[0] in "ZX" or exiting or killed else int(words[19])


def can_be_signalled(pid: int) -> bool:
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


def held(paths: Sequence[str]) -> list[bool | None]:
    """Whether a process that can be seen from here holds the kernel lock of each of these files; None: unknown.

    By a look at the kernel's list, never by trying: that could make a run that begins just now fail.
    """
    try:
        with open("/proc/locks", encoding="utf-8", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return [None] * len(paths)
    # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; who waits for one has an arrow after the number
    locked = {tuple(row[5].split(":")) for row in rows if len(row) > 5 and row[1] in ("FLOCK", "POSIX", "OFDLCK")}
    return [_is_locked(path, locked) for path in paths]


def _is_locked(path: str, locked: Collection[tuple[str, ...]]) -> bool:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    # btrfs and overlays show files under a device that the kernel's list does not have: there the inode has to do.
    device = (os.major(info.st_dev), os.minor(info.st_dev))
    return any(
        inode == str(info.st_ino) and ((int(major, 16), int(minor, 16)) == device or device[0] == 0)
        for major, minor, inode in locked
    )


def share_lock(path: str) -> int | None:
    """A second descriptor of this lock file, which this process holds: who inherits it keeps the lock alive.

    (filelock closes its own one in every child.)
    """
    info = os.stat(path)
    descriptor = descriptor_of((info.st_dev, info.st_ino))
    return None if descriptor is None else os.dup(descriptor)


def descriptor_of(which: Which) -> int | None:
    """By which number this process has this file open; None if it has not, or that cannot be asked."""
    names = os.listdir("/proc/self/fd") if sys.platform == "linux" and os.path.isdir("/proc/self/fd") else ()
    return next((int(name) for name in names if has_open(int(name), which)), None)


def has_open(descriptor: int, which: Which) -> bool:
    """Whether this is the number of an open file of this process, and that file is this one."""
    try:
        info = os.fstat(descriptor)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == which
