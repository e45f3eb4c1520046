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
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

if sys.platform != "win32":
    import fcntl

STATX_MNT_ID, STATX_MNT_ID_UNIQUE = 0x1000, 0x4000  # linux/stat.h; the unique one since Linux 6.8
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
SIGURG = 23  # the same number on every Linux, and ignored unless handled
SIGKILL = 9
PF_EXITING = 4  # linux/sched.h
# Where the page cache of this kernel is the only one: what it holds after a kill is what the program wrote.
IN_MEMORY = {"tmpfs", "ramfs"}  # a flush is nothing there
LOCAL_FILE_SYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "tmpfs", "overlay"}
# errno values of a call of Linux that this kernel or file system does not have
NOT_HERE = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}

Which = tuple[int, int]  # a file: its device and inode


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
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    flags = 0
    if not hasattr(_libc(), "statx") or _libc().statx(AT_FDCWD, os.fsencode(path), flags, which, buffer) != 0:
        return None
    mask, mount = struct.unpack_from("=I", buffer, 0)[0], struct.unpack_from("=Q", buffer, 0x90)[0]
    return int(mount) if mask & which else None


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def mount_point(path: str) -> str:
    """Where the file system is mounted that holds `path`."""
    device = os.lstat(path).st_dev
    while os.path.dirname(path) != path and os.lstat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


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


def room(path: str) -> float:
    """Bytes that a file in this directory may still have, as far as that is known."""
    if not hasattr(os, "statvfs"):
        return float("inf")
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize


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
    which = os.stat(path)
    for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # that of this look itself
            info = os.fstat(int(name))
            if (info.st_dev, info.st_ino) == (which.st_dev, which.st_ino):
                return os.dup(int(name))
    return None


def open_for_writing(paths: Sequence[str]) -> list[str]:
    """Those of these files that a process of this host holds open for writing, or has mapped for writing."""
    if sys.platform != "linux":
        return []
    answers = list(map(_leased, paths))
    # No leases here (NFS, FUSE, files of others): what can be seen of our own processes, in one look for all.
    unknown = {answer: None for answer in answers if isinstance(answer, tuple)}
    written = {which for which, _ in _holders(unknown)} if unknown else set()
    return [path for path, answer in zip(paths, answers, strict=True) if answer is True or answer in written]


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


def holders(path: str) -> list[str]:
    """Who holds the file open for writing, as far as this user may see: processes and their descriptors."""
    try:
        info = os.stat(path)
    except OSError:  # it is gone
        return []
    return [who for _, who in _holders({(info.st_dev, info.st_ino): None})] if sys.platform == "linux" else []


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
