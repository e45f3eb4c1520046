"""What can be done with the operations of a `Disk`: functions that take it first.

A test that replaces an operation so replaces what these do. None of them changes a file by itself.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from safepoint.disk import kernel
from safepoint.disk.disk import NONE, Disk, allow_writing
from safepoint.disk.kernel import close_read_only, names_file, write_all
from safepoint.disk.rights import ANYBODY, OURS, PRIVATE, group_matters, without_acl

if sys.platform != "win32":
    import resource

NO_FILE = {errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EFBIG}  # what `read` says of what is none, or too large
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.ENAMETOOLONG}  # for a second copy
PART = 100  # files that one thread removes before it asks for more
LONGEST = 4 << 30  # bytes of a file that is read whole: a record of ten million files, each with 400 bytes there


def stat_or_none(disk: Disk, path: str) -> os.stat_result | None:
    """As `stat`; None if there is nothing."""
    try:
        return disk.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):  # a link to itself leads nowhere
            raise
        return None


def exists(disk: Disk, path: str) -> bool:
    return stat_or_none(disk, path) is not None


def listdir(disk: Disk, path: str) -> list[str]:
    return [entry.name for entry in disk.scan(path)]


def entries(disk: Disk, path: str) -> list[tuple[str, bool]]:
    """The names in this directory, and whether each is a directory itself."""
    return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in disk.scan(path)]


def read(disk: Disk, path: str, most: int = LONGEST) -> bytes:
    """A whole file. One of more than `most` bytes is an error and not read, nor is what is no file: a device or a
    fifo has no end, and of a hole the size alone would fill the memory."""
    with disk.open(path) as file, names_file(path):
        size = _size(disk, file)
        if size > most:
            raise OSError(errno.EFBIG, f"{size} bytes, and no more than {most} are read", path)
        return file.read()


def tail(disk: Disk, path: str, most: int) -> bytes:
    """As `read`, no more than so many bytes at the end of a file of any size."""
    with disk.open(path) as file, names_file(path):
        file.seek(max(0, _size(disk, file) - most))
        return file.read()


def _size(disk: Disk, file: BinaryIO) -> int:
    info = disk.stat(file)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, "not a regular file")
    return info.st_size


def size_of(file: BinaryIO) -> int:
    """Of one that is open."""
    with names_file(str(file.name)):
        return os.fstat(file.fileno()).st_size


def write(disk: Disk, path: str, data: bytes | bytearray, mode: int = ANYBODY) -> None:
    """A new file with this content, not yet durable."""
    with disk.create(path, mode) as file:
        write_all(file, data)


def make_ways(disk: Disk, names: Iterable[str], base: str, parents: Mapping[str, Sequence[int]]) -> None:
    """Make these directories below `base` that are not there, and those above them, with the mode and the group that
    `parents` has of each; where it has none, the umask decides."""
    for name in ancestors(names):
        if not exists(disk, full := os.path.join(base, name)):
            with contextlib.suppress(FileExistsError):  # another rank was quicker
                make_directory(disk, full, *parents.get(name, (0o777, -1)))


def make_parents(disk: Disk, path: str, base: str, mode: Callable[[str], int] | int = PRIVATE) -> None:
    """Make the directories between `base` and `path` that are not there, with this mode, or that of each by its name
    below `base`."""
    for name in ancestors([os.path.dirname(path)[len(base) + 1 :]]):
        if not exists(disk, os.path.join(base, name)):
            with contextlib.suppress(FileExistsError):  # another rank was quicker, or another thread
                disk.mkdir(os.path.join(base, name), mode if isinstance(mode, int) else mode(name))


def make_directory(disk: Disk, path: str, mode: int, group: int) -> None:
    """With the rights that it had, or fewer: as `set_mode_and_time`."""
    disk.mkdir(path, mode & (0o700 if group_matters(mode) else 0o777))
    if group_matters(mode) and group >= 0:
        disk.set_mode_and_time(path, mode, disk.stat(path).st_mtime_ns, group)


def ancestors(paths: Iterable[str]) -> list[str]:
    """`paths` and all directories on the way to them, parents before children."""
    every = set()
    for path in paths:
        while path:
            every.add(path)
            path = os.path.dirname(path)
    return sorted(every)


@contextlib.contextmanager
def open_all(disk: Disk, paths: Iterable[str]) -> Iterator[Mapping[str, BinaryIO]]:
    """These files, all open at once, or only the first of them: a process may have only so many, and the program
    needs some too. None on Windows, where a file that is open cannot be renamed."""
    files: dict[str, BinaryIO] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [_held.pop(file, None) for file in files.values()])
        for path in paths if sys.platform != "win32" else ():
            try:
                file = disk.open(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                break
            if file.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
                file.close()
                break
            stack.callback(close_read_only, file.close)
            files[path] = file
            info = disk.stat(file)
            _held[file] = file.fileno(), info.st_dev, info.st_ino
        yield files


_held: dict[BinaryIO, tuple[int, int, int]] = {}  # what `open_all` keeps open: descriptor, device and inode


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


@contextlib.contextmanager
def freed_later(disk: Disk, paths: Iterable[str]) -> Iterator[None]:
    """What is removed inside, of these files, gives its blocks back afterwards, in a thread of its own: for a large
    file that takes as long as to read a part of it. The names are gone at once, and the process may end."""
    with contextlib.ExitStack() as files:
        held: Mapping[str, BinaryIO] = files.enter_context(open_all(disk, paths))
        yield
        if held:
            later = files.pop_all()
            try:
                threading.Thread(target=later.close, name="safepoint-freer", daemon=True).start()
            except RuntimeError:  # no thread to be had: a limit, or the interpreter is about to end
                later.close()


def move(disk: Disk, source: str, target: str) -> None:
    """As a rename. What that moves to no other directory (EXDEV: of the image below an overlay, another mount or quota
    project) moves piece by piece, a file as a copy. Killed inside, each piece has its old name, its new one or both."""
    try:
        disk.rename(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    info = disk.stat(source)
    if stat.S_ISDIR(info.st_mode):
        disk.mkdir(target, PRIVATE)
        for name in listdir(disk, source):
            move(disk, f"{source}/{name}", f"{target}/{name}")
        disk.set_mode_and_time(target, without_acl(source, info.st_mode), info.st_mtime_ns, info.st_gid)
        disk.rmdir(source)
        return
    new = os.path.join(os.path.dirname(target), f".safepoint-{os.path.basename(target)}"[:255])
    if exists(disk, new):  # of a process that died here
        disk.remove(new)
    if stat.S_ISLNK(info.st_mode):
        disk.link(os.readlink(source), new)
    else:
        with disk.open(source) as reader, disk.create(new, OURS) as writer:
            disk.duplicate(reader, writer)
        disk.set_mode_and_time(new, without_acl(source, info.st_mode), info.st_mtime_ns, info.st_gid)
        # The copy before the file goes: else a power cut could leave neither.
        disk.sync_files([new])
    disk.rename(new, target)
    disk.sync_dir(os.path.dirname(target))  # as before: its name
    disk.remove(source)


def remove_tree(disk: Disk, path: str, *, keep: Collection[str] = ()) -> None:
    """Remove a directory with all it holds, or a file. A directory without permissions is no obstacle. Those to `keep`
    are only emptied."""
    if not stat.S_ISDIR(disk.stat(path).st_mode):
        disk.remove(path)
        return
    ahead, emptied = [path], []
    while ahead:
        top = ahead.pop()
        emptied.append(top)
        found = [(f"{top}/{name}", is_directory) for name, is_directory in _readable_entries(disk, top)]
        remove_files(disk, [name for name, is_directory in found if not is_directory])
        ahead += [name for name, is_directory in found if is_directory]
    for top in reversed(emptied):
        if top not in keep:
            disk.rmdir(top)


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Several at once: a disk that is told of the blocks that are free (`discard`) may be waited for with each."""

    if len(paths) <= PART:
        for path in paths:
            disk.remove(path)
        return

    def remove(part: Sequence[str]) -> None:
        for path in part:
            disk.remove(path)

    disk.helpers.each(remove, [paths[start : start + PART] for start in range(0, len(paths), PART)], 4)


def _readable_entries(disk: Disk, directory: str) -> list[tuple[str, bool]]:
    try:
        return entries(disk, directory)
    except PermissionError:
        for each in (os.path.dirname(directory), directory):
            with contextlib.suppress(PermissionError):
                allow_writing(each)
        return entries(disk, directory)


def sync(
    disk: Disk, files: Collection[str], directories: Collection[str] = (), opened: Mapping[str, BinaryIO] = NONE
) -> None:
    """On return the contents of these files, and the names in these directories, survive a power cut. `opened`:
    such of them as are open already.

    Several at once, in no order, since one after the other each would wait for a journal commit of its own; never
    by syncfs, which would also wait for the data of every other program. `SyncFailed` is final.
    """
    if len(files) > 1:  # the disk begins on all of them, before the first is waited for
        for path in files:
            disk.start_writeback(opened.get(path, path))
    work = [functools.partial(disk.sync_files, [path], opened) for path in files]
    work += [functools.partial(disk.sync_dir, path) for path in directories]
    disk.helpers.each(lambda sync: sync(), work)


def room(path: str) -> float:
    """Bytes that a file in this directory may still have, as far as that is known."""
    if not hasattr(os, "statvfs"):
        return float("inf")
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize


def mount_point(path: str) -> str:
    """Where that is mounted which holds `path`."""
    while os.path.dirname(path) != path and not kernel.is_mount(path):
        path = os.path.dirname(path)
    return path


def cause(error: OSError) -> str:
    """The system's cause in words; of a permission that is lacking also where, to whom that belongs, and a remedy."""
    text, path = error.strerror or str(error), error.filename
    if error.errno == kernel.ENOTSUPP:  # of which the C library knows no words
        return f"not supported by this file system (error {error.errno})"
    if sys.platform == "win32" or error.errno not in (errno.EACCES, errno.EPERM) or not isinstance(path, (str, bytes)):
        return text
    with contextlib.suppress(OSError):  # gone meanwhile, or more than we may see
        place, needed = _closed(os.path.abspath(os.fsdecode(path)))
        if place:
            text += f" ({_whose(place, needed)})"
    return text


def lacks(place: str, rights: int) -> bool:
    """Whether this process has not all of these rights there, or the file system is mounted to be read only."""
    return not os.access(place, rights, effective_ids=os.access in os.supports_effective_ids)


def _closed(path: str) -> tuple[str, str]:
    """What is closed to this process on the way to `path`, and the permissions that it needs there; "": nothing."""

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
