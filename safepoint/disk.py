"""The file operations that make data survive; nothing else in the package calls fsync, rename, reflink or lock.

`Disk` is the real one. `tests/faultdisk.py` is the second implementation, which records every operation and can fail,
kill or cut the power at each; that is what the seam is for. What a platform lacks (leases, reflinks, a directory fsync,
sync_file_range) is decided here and nowhere else. An `OSError` that leaves this module names its file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

if sys.platform != "win32":
    import fcntl

FICLONE = 0x40049409  # linux/fs.h
STATX_MNT_ID, STATX_MNT_ID_UNIQUE = 0x1000, 0x4000  # linux/stat.h; the unique one since Linux 6.8
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
SIGURG = 23  # the same number on every Linux, and ignored unless handled
# Where the page cache of this kernel is the only one: what it holds after a kill is what the program wrote.
LOCAL_FILE_SYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "tmpfs", "overlay"}
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}  # what a file system says that has no kernel locks
NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.ENAMETOOLONG}  # for a second copy


class SyncFailed(OSError):
    """fsync said no. What it covered may be lost although the cache still shows it, so it must not be asked again."""


class Place(NamedTuple):
    """Which page cache holds a directory: equal places with a `mount` see the very pages that a dead process wrote."""

    host: str
    boot: str
    mount: str | None  # None: cannot be proven here (old kernel, network file system)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Put `path` into any OSError that does not name its file (read and write know only a descriptor)."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


class Disk:
    """The real disk. Paths are absolute. Nothing is durable before `sync_files` and `sync_dir` returned."""

    def stat(self, path: str) -> os.stat_result:
        """The file itself, never what a symbolic link points to."""
        return os.lstat(path)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb", buffering=0)

    def read(self, path: str) -> bytes:
        with self.open(path) as file, naming(path):
            return file.read()

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """A new file for writing; one that exists already is an error, never overwritten."""
        with naming(path), open(path, "xb", buffering=1 << 20) as file:
            yield file

    def write(self, path: str, data: bytes) -> None:
        """A new file with this content, not yet durable."""
        with naming(path), open(path, "xb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, in one write; one that does not exist is an error."""
        with naming(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
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

    def link(self, points_to: str, path: str) -> None:
        os.symlink(points_to, path)

    def truncate(self, path: str, length: int) -> None:
        os.truncate(path, length)

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
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds, or a file. A directory without write permission is no obstacle."""
        if not stat.S_ISDIR(self.stat(path).st_mode):
            self.remove(path)
            return
        with contextlib.suppress(PermissionError):
            _allow_writing(path)
        for name in self.listdir(path):
            self.remove_tree(os.path.join(path, name))
        self.rmdir(path)

    def clone(self, source: BinaryIO, target: BinaryIO) -> bool:
        """Let `target` share the blocks of `source` (XFS, btrfs); False where that cannot be, and nothing was done."""
        if sys.platform != "linux":
            return False
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError:
            return False
        return True

    def start_writeback(self, paths: Iterable[str]) -> None:
        """Let the disk begin on these files while the caller does something else; promises nothing."""
        import ctypes

        whole_file = ctypes.c_int64(0), ctypes.c_int64(0)
        start: Any = getattr(_libc(), "sync_file_range", None) if sys.platform == "linux" else None
        for path in paths if start else ():
            with self.open(path) as file:
                start(file.fileno(), *whole_file, SYNC_FILE_RANGE_WRITE)

    def sync_files(self, paths: Iterable[str]) -> None:
        """On return the contents of these files survive a power cut. `SyncFailed` is final."""
        mode = "r+b" if sys.platform == "win32" else "rb"
        for path in paths:
            with open(path, mode, buffering=0) as file:
                _fsync(file.fileno(), path)

    def sync_dir(self, path: str) -> None:
        """On return the names in this directory survive a power cut. `SyncFailed` is final."""
        if sys.platform == "win32":
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _fsync(descriptor, path)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Callable[[], object] | None:
        """Take the kernel lock of this file, which dies with the process; what releases it, or None if it is held."""
        import filelock  # here: it takes longer to import than the rest of the package together

        lock = filelock.FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            return None
        return lock.release

    def open_for_writing(self, path: str) -> bool:
        """Whether any process of this host holds the file open for writing or has it mapped for writing."""
        if sys.platform != "linux":
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # If another process opens the file in this very moment the kernel sends us a signal: SIGIO, which kills.
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, SIGURG)
            # A read lease is granted only on a file that nobody can write to; closing gives it back.
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return False
        except OSError as error:
            return error.errno == errno.EAGAIN or _open_in_this_process(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def place(self, path: str) -> Place:
        """Which page cache holds `path`. Asked here so that tests that cut the power without a reboot can change it."""
        return Place(socket.gethostname(), _boot_id(), _unique_mount(path))


def _allow_writing(directory: str) -> int:
    """Let the owner change a directory that is read-only, or raise; the permissions it had."""
    mode = os.lstat(directory).st_mode
    if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
    os.chmod(directory, stat.S_IMODE(mode) | stat.S_IRWXU)
    return stat.S_IMODE(mode)


def _fsync(descriptor: int, path: str) -> None:
    try:
        if sys.platform == "darwin":
            with contextlib.suppress(OSError):  # not every file system there knows it
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone leaves the data in the drive's cache
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def _open_in_this_process(info: os.stat_result) -> bool:
    """The fallback where leases do not work (NFS, FUSE, files of others): our own descriptors, by /proc."""
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed in the meantime
            other = os.stat(f"/proc/self/fd/{descriptor}")
            if (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino):
                with open(f"/proc/self/fdinfo/{descriptor}") as file:
                    flags = dict(line.split(":", 1) for line in file if ":" in line)["flags"]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _statx_mount(path: str, which: int) -> int | None:
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    at_fdcwd, flags = -100, 0
    if not hasattr(_libc(), "statx") or _libc().statx(at_fdcwd, os.fsencode(path), flags, which, buffer) != 0:
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
