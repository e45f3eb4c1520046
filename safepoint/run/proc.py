"""What /proc tells of a process: nothing is believed to be there still when the next file is read."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

RUN_VARIABLE = "SAFEPOINT_RUN"  # in the environment of all that a run starts: the working directory


class Process(NamedTuple):
    """What /proc says of one."""

    pid: int
    state: str
    parent: int
    session: int
    started: int  # in ticks since the machine began
    reaped: int  # grows when a child of it has ended and was waited for


INOTIFY_LIMITS = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}


@contextlib.contextmanager
def limits_named(path: str) -> Iterator[None]:
    """Of a limit of inotify the kernel says "No space left on device" or "Too many open files": here the error names
    the limit, and the directory that was to be watched."""
    try:
        yield
    except OSError as error:
        text = error.strerror
        if name := INOTIFY_LIMITS.get(error.errno or 0):
            with contextlib.suppress(OSError), open(f"/proc/sys/fs/inotify/{name}") as file:
                name += f" = {file.read().strip()}"
            files = ", or that of open files," if error.errno == errno.EMFILE else ""
            text = f"the limit fs.inotify.{name}{files} is reached (raise it with sysctl)"
        raise OSError(error.errno, text, path) from error


def every_process() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := process_of(int(name))):
            yield process


def process_of(pid: int) -> Process | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", errors="replace") as file:
        state, *rest = file.read().rpartition(")")[2].split()
        numbers = [int(word) for word in rest[:19]]
        return Process(pid, state, numbers[0], numbers[2], numbers[18], numbers[7] + numbers[9])
    return None


def states_of_threads(pid: int) -> list[str]:
    """The state of each thread; none if there is no such process."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{name}/stat", errors="replace") as file:
                found.append(file.read().rpartition(")")[2].split()[0])
    return found


def is_alive(pid: int) -> bool:
    """Whether any of its threads may still do something; the first one may have ended before the others."""
    return any(state not in "ZX" for state in states_of_threads(pid))


def moves(process: Process) -> bool:
    """Whether any of its threads may still do something, in the kernel too."""
    return any(state not in "TtZX" for state in states_of_threads(process.pid))


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def has_in_environment(pid: int, line: str) -> bool:
    """Whether this line is in the environment that a process was started with."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return line.encode(errors="surrogateescape") in file.read().split(b"\0")
    return False


def of_run(work: str) -> list[str]:
    """What an earlier run in this directory has started, by its name in their environment; not this process."""
    line = f"{RUN_VARIABLE}={work}"
    others = [p for p in every_process() if p.pid != os.getpid() and p.state not in "ZX"]
    others = [p for p in others if has_in_environment(p.pid, line)]
    return [f"process {process.pid} ({command_of(process.pid)})" for process in others]
