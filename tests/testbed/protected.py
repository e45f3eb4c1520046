"""Programs under `safepoint run`: started, watched, and killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import Session
from testbed.builds import built_once, version
from testbed.waiting import wait_for


def run(work: Path, *arguments: object, **options: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "safepoint", "run", "--dir", work, *arguments]
    return subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def ran(work: Path, *arguments: object, status: int | None = 0) -> str:
    """What an undisturbed `safepoint run` says; it must end with this status. None: with any but 0."""
    with run(work, *arguments) as program:
        said = program.communicate(timeout=280)[1]
    assert program.returncode == status if status is not None else program.returncode, said
    return said


def sets(work: Path) -> list[int]:
    return sorted(int(path.parent.name[4:]) for path in work.glob(".safepoint.d/rank-00000/set-*/record.json"))


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


def saved(number: int | str = "$k") -> str:
    """A shell waits until this set, 1 to 9, is committed."""
    return f"until [ -e .safepoint.d/rank-00000/set-0000000{number}/record.json ]; do sleep 0.02; done"


def compiled(code: str) -> Path:
    """Return the program in C, or skip the test where nothing compiles it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(into: Path) -> None:
        (into / "z.c").write_text(code)
        subprocess.run([compiler, "-pthread", "-o", into / "z", into / "z.c"], check=True)

    return built_once("protected", [version(compiler), code], build) / "z"


def given_back(work: Path) -> tuple[int | None, bool]:
    """The step that the next start finds, and whether the run was finished."""
    with Session(work, in_place=True) as session:
        point = session.restore()
        session.close()
    return (None, False) if point is None else (point.step, point.finished)


def strike(program: subprocess.Popen[str], what: str, rng: random.Random) -> bool:
    """Whether something was killed."""
    leader = command_of(program)
    if leader is None or program.poll() is not None:
        return False
    members = processes_of(leader)
    if what == "one process":
        kill(rng.choice([pid for pid in members if pid != leader] or [leader]))
        time.sleep(rng.uniform(0, 0.2))  # what it leaves is seen, and must not be taken
        kill(program.pid)
    elif what == "the solver":
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(leader, signal.SIGKILL)
    else:
        for pid in (program.pid, *members):
            kill(pid)
    program.wait()
    for pid in processes_of(leader):  # what outlives the protector keeps the lock: as an operator would
        kill(pid)
    wait_for(lambda: not processes_of(leader))
    return True


def killed_again_and_again(
    work: Path, command: list[str], whole: Callable[[Path], None], kills: int, steps: int, last: str
) -> int:
    """Until it reaches its end; the number of kills."""
    rng = random.Random(f"{command[:2]} {kills}")
    hit = 0
    while hit < kills:
        program = run(work, "--", *command, steps)
        time.sleep(rng.uniform(0.25, 0.9))
        hit += strike(program, rng.choice(["one process", "the solver", "everything"]), rng)
        said = program.communicate(timeout=280)[1]
        finished = given_back(work)[1]
        whole(work)
        if finished:  # it was quicker than the kills
            steps += 20
            shutil.rmtree(work / ".safepoint.d")
    ran(work, "--", *command, steps)
    whole(work)
    assert (work / last.format(steps)).read_text().split()[0] == str(steps), said
    return hit
