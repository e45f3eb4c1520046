"""Who has a file open or mapped, as far as the kernel tells this user, and what comes of it if that file is given back.

What can be seen are the processes of this user, on this host; another system than Linux tells nothing.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from safepoint.disk import kernel
from safepoint.disk.kernel import Which

if sys.platform != "win32":
    import fcntl

SIGURG = 23  # the same number on every Linux, and ignored unless handled


class Handle(NamedTuple):
    """One way in which a process has a file."""

    which: Which
    path: str  # as the kernel names it
    pid: int
    who: str  # for a message
    writes: bool
    end: int  # where the next byte is read or written; of a mapping, where it ends
    appends: bool = False  # what is written goes to the end, wherever that is by then
    mapped: bool = False
    linked: bool = False  # the file has other names, so that it may lie in another directory, too


def open_for_writing(paths: Sequence[str]) -> list[str]:
    """Those of these files that a process of this host holds open for writing, or has mapped for writing."""
    if sys.platform != "linux":
        return []
    answers = list(map(_leased, paths))
    # No leases here (NFS, FUSE, files of others): what can be seen of our own processes, in one look for all.
    unknown = {answer for answer in answers if isinstance(answer, tuple)}
    written = {handle.which for handle in _all(unknown.__contains__) if handle.writes} if unknown else set()
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
        with contextlib.suppress(OSError):  # nothing was written
            os.close(descriptor)


def holders(path: str) -> list[str]:
    """Who holds the file open for writing, as far as this user may see: processes and their descriptors."""
    try:
        info = os.stat(path)
    except OSError:  # it is gone
        return []
    return [handle.who for handle in _all({(info.st_dev, info.st_ino)}.__contains__) if handle.writes]


def into(work: str, device: int, besides: str) -> list[Handle]:
    """All that lead to the file system of this `device`, but not into `besides`; none, if none seems to lead into the
    directory `work` of it: then its files need not be looked at."""
    if sys.platform != "linux":
        return []
    found = [h for h in _all(lambda which: which[0] == device) if not h.path.startswith(f"{besides}/")]
    return found if any(h.linked or h.path.startswith(f"{work}/") for h in found) else []


def harm(handle: Handle, length: int | None) -> str:
    """What is wrong when the file is replaced or moved away or, if there is a `length`, cut to that; "": nothing."""
    if length is None:
        return "what it writes would be in no file of that name" if handle.writes else "it goes on with the old one"
    if handle.mapped:
        pages = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        return "a look behind the cut ends the process (SIGBUS)" if handle.end > pages else ""
    if handle.writes and not handle.appends and handle.end > length:
        return f"it is at byte {handle.end}, without O_APPEND, so what it writes would follow a gap of NUL bytes"
    return ""


def is_related(pid: int, to: int | None = None) -> bool:
    """Whether a process is this one, or one that this one comes from or has started; or so with another one."""
    to = _me() if to is None else to
    return to in _line(pid) or pid in _line(to)


def _me() -> int:
    """The number of this process for who reads this /proc."""
    return int(os.readlink("/proc/self"))


def _line(pid: int) -> list[int]:
    """A process, that which started it, and so on."""
    line: list[int] = []
    while pid > 0 and pid not in line:
        line.append(pid)
        pid = kernel.parent_of(pid)
    return line


def _all(wanted: Callable[[Which], bool]) -> Iterator[Handle]:
    """Those of all processes that can be seen."""
    with contextlib.suppress(OSError):
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
            with contextlib.suppress(OSError):  # another's, or gone in the meantime
                yield from _of(pid, wanted)


def _of(pid: int, wanted: Callable[[Which], bool]) -> Iterator[Handle]:
    whose = "this process"
    if pid != _me():
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            whose = f"process {pid} ({file.read().strip()})"
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed in the meantime
            link = f"/proc/{pid}/fd/{descriptor}"
            info = _file_at(link)
            if info and wanted(which := (info.st_dev, info.st_ino)):
                with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
                    told = dict(line.split(":", 1) for line in file if ":" in line)
                flags, end = int(told["flags"], 8), int(told["pos"])
                if not flags & os.O_PATH:
                    writes, who = flags & os.O_ACCMODE != os.O_RDONLY, f"descriptor {descriptor} of {whose}"
                    appends, linked = bool(flags & os.O_APPEND), info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode)
                    path = os.readlink(link)
                    yield Handle(which, path, pid, who, writes, end, appends=appends, linked=linked)
    with contextlib.suppress(OSError):
        info = _file_at(link := f"/proc/{pid}/cwd")
        if info and wanted(which := (info.st_dev, info.st_ino)):  # what it opens by a name is there
            yield Handle(which, os.readlink(link), pid, f"the working directory of {whose}", True, 0)
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
        for line in file:
            if handle := _mapping(line, pid, whose, wanted):
                yield handle


def _file_at(link: str) -> os.stat_result | None:
    """The file or directory that a link of /proc leads to; None for anything else, and for one that has no name."""
    if not os.readlink(link).startswith("/"):  # a pipe, a socket
        return None
    info = os.stat(link)
    there = info.st_nlink and stat.S_IFMT(info.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR)
    return info if there else None


def _mapping(line: str, pid: int, whose: str, wanted: Callable[[Which], bool]) -> Handle | None:
    where, permissions, offset, device, inode, *names = line.rstrip("\n").split(maxsplit=5)
    path = names[0] if names else ""
    if inode == "0" or "x" in permissions or path.endswith(" (deleted)"):  # memory, or a program, or has no name
        return None
    major, minor = (int(part, 16) for part in device.split(":"))
    which = os.makedev(major, minor), int(inode)
    if not major and not wanted(which):  # btrfs and overlays have another device here than for who looks at the file
        with contextlib.suppress(OSError):
            info = os.stat(path)
            which = (info.st_dev, info.st_ino) if info.st_ino == which[1] else which
    if not wanted(which):
        return None
    start, end = (int(part, 16) for part in where.split("-"))
    writes = permissions[1] == "w" and permissions[3] == "s"
    who = f"a {'writable ' * writes}mapping of {whose}"
    return Handle(which, path, pid, who, writes, int(offset, 16) + end - start, mapped=True)
