"""The processes of a run on this host: which of them are there, what they died of, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

PATIENCE_S = 5.0  # from SIGTERM to SIGKILL
FATAL = signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM
Launcher = subprocess.Popen[bytes] | subprocess.Popen[str]


def end(process: Launcher, patience_s: float, left: Callable[[], Iterable[int]]) -> int:
    """SIGTERM to a launcher; after a while SIGKILL to it and to its group, if that is its own; then to each process
    that is `left`. Returns the launcher's code."""
    with contextlib.suppress(OSError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    if process.poll() is None:
        with contextlib.suppress(OSError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    for pid in left():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return process.wait()


def boot() -> str:
    """Of this host: clocks and ids of processes of another one mean nothing here."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def status_of(pid: int) -> int | None:
    """Of a process that has ended, and for which its parent has not waited yet."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", errors="replace") as file:
        state, *rest = file.read().rpartition(")")[2].split()
        if state == "Z":
            return int(rest[48])
    return None


def signal_of(code: int, of_mpich: bool = False) -> str:
    """The signal by which a launcher's program died, by its exit code; empty if it was none, or that is not known.
    MPICH's launcher gives no code above 128, but all signals of the ranks in one number, with those that it has sent
    itself: more than one may be meant."""
    if of_mpich and 0 < code < 128:
        found = [each.name for each in FATAL if code in (each, each | signal.SIGKILL, each | signal.SIGTERM)]
        return " or ".join(found) if len(found) < 3 else "a signal"
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name if number > 0 else ""
    except ValueError:
        return ""
