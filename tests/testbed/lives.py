"""Lives of a real process: started, killed, started again, with what it said and what must hold."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from safepoint.disk import Disk
from testbed import solver
from testbed.mounts import in_memory
from testbed.program import SHAPES_AND_KINDS, Violation, consistent
from testbed.sweep import kept

SOLVER = Path(__file__).with_name("solver.py")
PATIENCE = 500  # seconds that the end of a life may take: only a hang does


@dataclass
class Life:
    """What one process said before it ended."""

    status: int | None
    said: list[str] = field(default_factory=list)

    def steps(self, word: str) -> list[int]:
        """The step of every line that is this word and a step, or -1 for "nothing". The library's log lies beside: a
        life that was killed after the line "restored set 3 (step 2)…" had not yet said what it was given."""
        lines = (re.fullmatch(rf"{word} (-?\d+|nothing)", line) for line in self.said)
        return [-1 if match[1] == "nothing" else int(match[1]) for match in lines if match]

    def last(self, word: str) -> int:
        """The step of the last such line; -1 if there is none."""
        return (self.steps(word) or [-1])[-1]

    @property
    def promised(self) -> int:
        """The newest step that it, or one of several lives in a row, said to be durable."""
        return max([*self.steps("safe"), *self.steps("finished")], default=-1)

    @property
    def error(self) -> str:
        """What it failed with; empty if it did not, or could not say so."""
        return next((line.removeprefix("error ") for line in self.said if line.startswith("error ")), "")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", str(SOLVER), *map(str, arguments)]


_reaping = threading.Lock()  # a start polls all processes, and two threads must not poll the same one


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["testbed.solver", "filelock", "zstandard"])
    return context


class Running:
    """A life of the solver, going on; a new process that a fork server makes in some milliseconds."""

    def __init__(self, directory: str | os.PathLike[str], *arguments: object) -> None:
        says, said = (end.detach() for end in socket.socketpair())
        hears, self._tells = os.pipe()
        words = [str(argument) for argument in arguments]
        self._process = _context().Process(target=_forked, args=(str(directory), words, _Fd(says), _Fd(hears)))
        with _reaping:
            self._process.start()
        os.close(says)
        os.close(hears)
        self._said = os.fdopen(said, errors="replace")
        self.life = Life(None)
        self.pid = self._process.pid

    def lines(self) -> Iterator[str]:
        """What it says, until it ends."""
        for line in self._said:
            self.life.said.append(line.rstrip("\n"))
            yield self.life.said[-1]

    def until(self, begin: str) -> str:
        """The next line that begins so; empty if it ended before."""
        return next((line for line in self.lines() if line.startswith(begin)), "")

    def go(self) -> None:
        """Through the gate where it waits."""
        os.write(self._tells, b"\n")

    def kill(self) -> None:
        self._process.kill()

    def end(self, *, may_fail: bool = False) -> Life:
        """Wait for its end, and for nothing longer than that may take. `may_fail`: with an error, as on a full disk."""
        for _ in self.lines():
            pass
        self._reap(PATIENCE)
        self.life.status = self._process.exitcode
        if self.life.status is None:
            raise Violation(f"it did not end: {self.life.said[-4:]}")
        if self.life.status not in ((0, -9, 1) if may_fail else (0, -9)):
            raise Violation(f"it ended with {self.life.status}: {self.life.said[-4:]}")
        return self.life

    def _reap(self, seconds: float | None = None) -> None:
        wait([self._process.sentinel], seconds)
        with _reaping:
            self._process.join(0)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._reap()
        self._said.close()
        os.close(self._tells)


class _Fd:
    """A descriptor that goes to the child."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.descriptor),)


def _received(duplicate: Any) -> int:
    return int(duplicate.detach())


def _forked(directory: str, arguments: list[str], said: int, told: int) -> None:
    solver.forked(directory, arguments, said, told)


def live(directory: Path, *arguments: object) -> Life:
    """One undisturbed life."""
    with Running(directory, *arguments) as running:
        return running.end()


def goes_on(directory: Path, before: Life, steps: int, *options: str, cut: bool = False) -> Life:
    """Start again: G1 (the solver checks every byte), G2, G2k, and it reaches the end. `cut`: only what was durable
    must still be there."""
    consistent(str(directory))  # now: at the end there are no sets
    after = live(directory, steps, *options)
    provable = not cut and Disk().page_cache(str(directory)).mount
    least = max([before.promised, *(before.steps("hid") if provable else [])])
    kept(least, after.last("restored"), *before.said[-4:])
    if after.last("finished") != steps:
        raise Violation(f"it did not reach the end: {after.said[-4:]}")
    return after


@contextmanager
def directory_for_lives(where: str | os.PathLike[str] | None = None, shape: str = "solver") -> Iterator[Path]:
    """A new working directory with a manifest, in memory if there is such a file system: these tests are many."""
    path = Path(tempfile.mkdtemp(prefix="safepoint-", dir=where or in_memory()))
    try:
        with (path / ".safepoint").open("w") as file:
            file.write(SHAPES_AND_KINDS[shape][0])
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # it may be on a file system that broke down


LEAVES_A_CHILD = """
import os, signal, sys
from safepoint.disk import kernel
from safepoint.owner import Waiting, claim
from safepoint.root import Root

root = Root(os.path.realpath(sys.argv[1]), int(sys.argv[2]), 2)
for path in (root.side, root.path):
    os.makedirs(path, exist_ok=True)
release = claim(root, Waiting())
descriptor = kernel.share_lock(root.lock)
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
print("left", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def killed_beside_a_child(directory: str | os.PathLike[str], rank: int = 0) -> Iterator[tuple[int, Callable[[], None]]]:
    """A run that was killed while a child of it had its lock, as one of a fork in C has: its number, and what ends the
    child."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_CHILD, str(directory), str(rank)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as dead:  # fmt: skip
        assert dead.stdin and dead.stdout and dead.stdout.readline() == "left\n"
        dead.wait()

        def end() -> None:
            assert dead.stdin and dead.stdout
            dead.stdin.close()
            assert dead.stdout.read() == ""  # to its end, which is that of the child

        try:
            yield dead.pid, end
        finally:
            end() if not dead.stdin.closed else None
