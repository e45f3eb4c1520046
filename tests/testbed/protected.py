"""Programs under `safepoint run`: started, watched, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from safepoint import Session


def run(work: Path, *arguments: object, **options: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "safepoint", "run", "--dir", work, *arguments]
    return subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def ran(work: Path, *arguments: object, status: int | None = 0) -> str:
    """What an undisturbed `safepoint run` says; it must end with this status. None: with any but 0."""
    with run(work, *arguments) as program:
        said = program.communicate(timeout=60)[1]
    assert program.returncode == status if status is not None else program.returncode, said
    return said


def sets(work: Path) -> list[int]:
    return sorted(int(path.parent.name[4:]) for path in work.glob(".safepoint.d/rank-00000/set-*/record.json"))


def wait_for(what: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def processes_of(leader: int) -> list[int]:
    """All in the session of the command, and its first process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                if leader in (int(fields[3]), int(name)) and fields[0] not in "ZX":
                    found.append(int(name))
    return found


def command_of(program: subprocess.Popen[str]) -> int | None:
    """The first process of the command that this `safepoint run` protects: it leads a session of its own, unlike what
    Python starts to find its libraries."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        return next((int(pid) for pid in children if os.getsid(int(pid)) == int(pid)), None)
    return None


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def shell(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(lines)]


def given_back(work: Path) -> tuple[int | None, bool]:
    """The step that the next start finds, and whether the run was finished."""
    with Session(work, in_place=True) as session:
        point = session.restore()
        session.close()
    return (None, False) if point is None else (point.step, point.finished)
