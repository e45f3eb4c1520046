"""`Disk`: the operations that a test must be able to record, fail, kill or cut the power at. No others belong here.

`tests/testbed/faultdisk.py` is the second implementation, which does that to each; this is what the seam is for. What
can be made of these operations is a function in `files`. An `OSError` that leaves this module names its file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import operator
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import BinaryIO

from safepoint.disk import handles, kernel
from safepoint.disk.kernel import PageCache, close_read_only, names_file, write_all
from safepoint.disk.rights import ANYBODY, OURS, given, group_matters, narrow, of_everybody
from safepoint.disk.signals import look
from safepoint.disk.threads import Helpers

if sys.platform != "win32":
    import fcntl

FICLONE = 0x40049409  # linux/fs.h
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, kernel.ENOTSUPP}  # of a file system without locks
WORTH_CLONING = 1 << 20  # bytes; a reflink flushes a dirty source first, so smaller files are copied faster
NONE: Mapping[str, BinaryIO] = MappingProxyType({})
READING = os.O_RDONLY | getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT, NO_TIME = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOATIME", 0)


class _Reading(io.FileIO):
    """A network file system may say only here what went wrong."""

    def close(self) -> None:
        with names_file(str(self.name)):
            super().close()


def _open_no_follow(path: str, flags: int) -> int:
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


def allow_writing(directory: str) -> int:
    """Let the owner change a directory that is read-only, or raise; the permissions it had."""
    mode = os.lstat(directory).st_mode
    if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
    os.chmod(directory, stat.S_IMODE(mode) | stat.S_IRWXU)
    return stat.S_IMODE(mode)


class Disk:
    """The real disk. Paths are absolute. Nothing is durable before `sync_files` and `sync_dir` returned."""

    # Looking and reading.

    def stat(self, file: str | BinaryIO) -> os.stat_result:
        """The file of this name itself, never what a symbolic link points to; or the one that is open, whatever has
        its name by now."""
        if isinstance(file, str):
            return os.lstat(file)
        with names_file(file.name):
            return os.fstat(file.fileno())

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        """What is in this directory, by name. Most file systems tell without a look at each which are directories."""
        with os.scandir(path) as found:
            return sorted(found, key=operator.attrgetter("name"))

    def open(self, path: str) -> BinaryIO:
        """For reading."""
        return _Reading(path, opener=_open_no_follow)

    def read_into(self, buffer: memoryview, path: str) -> tuple[int, os.stat_result]:
        """Read a file from its beginning, as far as there is room; how many bytes, and what it is like after that. For
        files by the thousand: to make a file object of each takes as long as this."""
        descriptor = _open_no_follow(path, READING)
        try:
            count = _read_some(descriptor, buffer)
            while 0 < count < len(buffer) and (more := _read_some(descriptor, buffer[count:])):
                count += more  # a read may stop half way, on a network file system
            return count, os.fstat(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            close_read_only(os.close, descriptor)

    # Changing.

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    @contextlib.contextmanager
    def create(self, path: str, mode: int = ANYBODY) -> Iterator[BinaryIO]:
        """A new file for writing, with this mode from its first moment; one that exists already is an error, never
        overwritten."""
        opener = functools.partial(os.open, mode=mode)
        with names_file(path), open(path, "xb", buffering=0, opener=opener) as file:
            yield file

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, in one write; one that does not exist is an error, and so is a link or a fifo."""
        with names_file(path):
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
            mode = allow_writing(source)  # its entry `..` changes
            os.replace(source, target)
            os.chmod(target, mode)

    def exchange(self, one: str, other: str) -> bool:
        """Atomic: each of two files gets the other's name. False where that cannot be, and nothing was done."""
        return kernel.exchange(one, other)

    def link(self, points_to: str, path: str) -> None:
        os.symlink(points_to, path)

    def hard_link(self, source: str, path: str) -> bool:
        """Give a file a second name. False where that cannot be, and nothing was done."""
        try:
            os.link(source, path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (*kernel.NOT_HERE, errno.EMLINK, errno.EACCES):
                raise
            return False
        return True

    def truncate(self, path: str, length: int) -> None:
        """Cut a file; that it is read-only is no obstacle for its owner, and stays so."""
        try:
            os.truncate(path, length)
        except PermissionError:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            os.chmod(path, mode | stat.S_IWUSR)
            os.truncate(path, length)
            os.chmod(path, mode)

    def set_mode_and_time(self, path: str, mode: int, mtime_ns: int, group: int = -1) -> None:
        """Give a file its permissions, modification time and group; -1: any. Where this process may not give it that
        group, nobody gets a right that is not everybody's."""
        if group >= 0 and group_matters(mode) and not given(path, group):
            mode = of_everybody(mode)
        os.chmod(path, stat.S_IMODE(mode))
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except PermissionError:
            allow_writing(os.path.dirname(path))
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except PermissionError:
            allow_writing(os.path.dirname(path))
            os.rmdir(path)

    def duplicate(
        self, source: BinaryIO, target: BinaryIO, length: int | None = None, *, only_shared: bool = False
    ) -> bool:
        """Make `target`, still empty, a copy of the first `length` bytes of `source`, by default of all, with its
        holes: by shared blocks (XFS, btrfs), else by the kernel, else by hand. `only_shared`: if not by shared blocks,
        not at all. Whether it was done.

        Beside `codec.copy_sparse`, which has to see each byte for its checksum: what the kernel copies takes 0.83 of
        the time on ext4, and does not cross the network on NFS 4.2.
        """
        size = os.fstat(source.fileno()).st_size
        length = size if length is None else min(length, size)
        if size >= WORTH_CLONING and _share_blocks(source, target):
            if os.fstat(target.fileno()).st_size > length:  # which may have grown since
                with names_file(str(target.name)):  # not FICLONERANGE, which takes whole blocks
                    os.ftruncate(target.fileno(), length)
            return True
        if not only_shared:
            with names_file(str(target.name)):
                os.ftruncate(target.fileno(), length)
                for start, end in kernel.extents(source, length):
                    _copy_range(source, target, start, end)
        return not only_shared

    # Making it survive.

    def start_writeback(self, file: str | BinaryIO, length: int = 0) -> None:
        """Let the disk begin on the first `length` bytes of a file, 0: on all; promises nothing. `SyncFailed` if it
        cannot: where ext4 finds no place for data it may drop them, and a later fsync know nothing of it."""
        if sys.platform == "linux":
            with self.open(file) if isinstance(file, str) else contextlib.nullcontext(file) as opened:
                kernel.start_writeback(opened, length)

    def sync_files(self, paths: Iterable[str], opened: Mapping[str, BinaryIO] = NONE) -> None:
        """On return the contents of these files survive a power cut. `SyncFailed` is final."""
        windows = sys.platform == "win32"  # there only what may be written is flushed
        for path in paths:
            if path in opened and not windows:
                kernel.fsync(opened[path].fileno(), path)
            else:
                _flush(path, os.O_RDWR if windows else os.O_RDONLY)

    def sync_dir(self, path: str) -> None:
        """On return the names in this directory survive a power cut. `SyncFailed` is final."""
        if sys.platform != "win32":
            _flush(path, os.O_RDONLY | os.O_DIRECTORY)

    @functools.cached_property
    def helpers(self) -> Helpers:
        """The threads that do several things at once. A program that is to fork undisturbed dismisses them."""
        return Helpers()

    # Asking the system; here, as tests answer otherwise.

    def lock(self, path: str) -> Callable[[], object] | None:
        """Take the kernel lock of this file, which dies with the process; what releases it, or None if it is held.

        Whoever can open the file can hold it: only those who can write in its directory, and could remove it anyhow.
        """
        import filelock  # here: it takes longer to import than the rest of the package together

        mode = OURS | (stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) & stat.S_IWGRP) * 3
        narrow(path, mode)
        lock = filelock.FileLock(path, mode=mode, timeout=0, thread_local=False, fallback_to_soft=False)
        try:
            with names_file(path):
                lock.acquire()
        except filelock.Timeout:
            return None
        info = os.stat(path)
        descriptor = kernel.descriptor_of(which := (info.st_dev, info.st_ino))

        def release() -> None:
            if descriptor is None or kernel.has_open(descriptor, which):
                with names_file(path):
                    lock.release()
            else:  # closed by the program: the number may be that of a file of its own by now, which must stay open
                lock._context.lock_file_fd = None

        return release

    def open_for_writing(self, paths: Sequence[str]) -> list[str]:
        """Those of these files that a process of this host holds open for writing, or has mapped for writing."""
        return handles.open_for_writing(paths)

    def handles_into(self, work: str, device: int, besides: str) -> list[handles.Handle]:
        """What processes have open or mapped on the file system of this `device`, but not in `besides`; none, if
        nothing of it seems to lead into the directory `work`."""
        return handles.into(work, device, besides)

    def page_cache(self, path: str) -> PageCache:
        """Which page cache holds `path`."""
        return kernel.page_cache(path)


def _share_blocks(source: BinaryIO, target: BinaryIO) -> bool:
    """False where that cannot be, and nothing was done."""
    try:
        if sys.platform == "linux":
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        return sys.platform == "linux"
    except OSError:
        return False


def _copy_range(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    by_kernel = sys.platform == "linux" and end - start >= WORTH_CLONING  # XFS would make it a reflink again
    while by_kernel and start < end:
        look()
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), end - start, start, start)
        except OSError as error:
            if error.errno not in kernel.NOT_HERE:
                raise
            break
        if count == 0:
            break
        start += count
    with names_file(str(source.name)):
        source.seek(start)
    target.seek(start)
    while start < end:
        look()
        with names_file(str(source.name)):
            data = source.read(min(end - start, 1 << 20))
        if not data:
            break
        write_all(target, data)
        start += len(data)


def _flush(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        kernel.fsync(descriptor, path)
    finally:
        close_read_only(os.close, descriptor)
