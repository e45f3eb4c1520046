"""Simulated nodes: each a directory for its disk, and a domain; all of one machine, so they listen on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import launcher

from safepoint.root import Root
from testbed import noded
from testbed.waiting import wait_for

PATIENCE = 500.0  # seconds that only a hang takes


class Said(NamedTuple):
    """What a run came to."""

    code: int
    out: str
    err: str

    def all(self, word: str) -> list[int]:
        return [int(text) for text in re.findall(rf"^{word} (\d+)$", self.out, re.M)]

    def last(self, word: str) -> int:
        return max(self.all(word), default=-1)


class Running:
    """A run at work, whose output goes to files: a pipe would be held open by what it starts."""

    def __init__(self, command: Sequence[str], top: Path) -> None:
        self._files = [top / f"{name}-{time.monotonic_ns()}" for name in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def said(self) -> Said:
        out, err = (path.read_text() for path in self._files)
        code = self.process.poll()
        return Said(-1 if code is None else code, out, err)

    def until(self, what: Callable[[Said], object]) -> Said:
        """What it has said when this holds."""
        end = time.monotonic() + PATIENCE
        while not what(said := self.said()):
            if said.code >= 0 or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"it {'has ended' if said.code >= 0 else 'does not come'}: {said}")
            time.sleep(0.02)
        return said

    def wait(self) -> Said:
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it hangs: {self.said()}") from None
        return self.said()

    def kill(self) -> None:
        """All ranks at once, as if the job were killed."""
        for pid in map(int, re.findall(r"^pid (\d+)$", self.said().out, re.M)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Cluster:
    """A directory of the start, a remote place, and disks."""

    def __init__(self, top: Path, manifest: str = noded.MANIFEST) -> None:
        self.top, self.start, self.place = top, top / "start", top / "place"
        self._runs: list[Running] = []
        self.start.mkdir()
        (self.start / ".safepoint").write_text(manifest)

    def disk(self, node: str) -> Path:
        (found := self.top / "disks" / node).mkdir(parents=True, exist_ok=True)
        return found

    def command(self, nodes: Sequence[str], steps: int, pause: float = 0.0, *how: str) -> list[str]:
        """`nodes`: of each rank."""
        program = [sys.executable, "-W", "error", noded.__file__, str(self.start), str(steps), str(pause), *how]
        if "alone" in how:
            (node,) = nodes
            return ["env", f"DISK={self.disk(node)}", f"DOMAIN={node}", *program]
        words: list[str] = []
        for node in nodes:
            words += [":"] * bool(words)
            words += ["-n", "1", "-env", "DISK", str(self.disk(node)), "-env", "DOMAIN", node, *program]
        return [launcher.mpiexec(), *words]

    def begin(self, nodes: Sequence[str], steps: int, pause: float = 0.0, *how: str) -> Running:
        self._runs.append(running := Running(self.command(nodes, steps, pause, *how), self.top))
        return running

    def run(self, nodes: Sequence[str], steps: int, pause: float = 0.0, *how: str) -> Said:
        return self.begin(nodes, steps, pause, *how).wait()

    def work(self, node: str) -> Path:
        (found,) = self.disk(node).glob("safepoint-*")
        return found

    def root(self, node: str, rank: int, size: int = 2, *, held: bool = False) -> Root:
        root = Root(str(self.work(node)), rank, size)
        return root.held(rank) if held else root

    def tenders(self, node: str = "") -> list[int]:
        """The processes beside a run that are at work, of one node or of all."""
        found, where = [], str(self.top / "disks" / node)
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError):
                    words = Path("/proc", name, "cmdline").read_bytes().decode().split("\0")
                    state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
                    if "tend" in words and any(f"{word}/".startswith(f"{where}/") for word in words) and state != "Z":
                        found.append(int(name))
        return found

    def lose(self, *nodes: str) -> None:
        """Each with all that ran there, and its disk."""
        for node in nodes:
            for pid in self.tenders(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for _ in range(2):  # a process that has just been killed may have made one more file
                shutil.rmtree(self.disk(node), ignore_errors=True)

    def keep(self, node: str, name: str) -> Path:
        """A copy of a disk as it is now; what is at work there stands still meanwhile."""
        tenders = self.tenders(node)
        for pid in tenders:
            os.kill(pid, signal.SIGSTOP)
        found = shutil.copytree(self.disk(node), self.top / name, symlinks=True)
        for pid in tenders:
            os.kill(pid, signal.SIGCONT)
        return Path(found)

    def bring_back(self, node: str, name: str) -> None:
        self.lose(node)
        shutil.copytree(self.top / name, self.disk(node), symlinks=True, dirs_exist_ok=True)

    def end(self) -> None:
        """Each process beside a run ends by itself soon after it; what does not is a fault."""
        wait_for(lambda: not self.tenders(), PATIENCE)

    def empty_place(self) -> None:
        """After the end: or what is missing would come from there."""
        self.end()
        for path in self.place.glob("set-*"):
            shutil.rmtree(path)

    def stop(self) -> None:
        for running in self._runs:
            if running.process.poll() is None:
                running.kill()
        for pid in self.tenders():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def cluster(top: Path, manifest: str = noded.MANIFEST) -> Iterator[Cluster]:
    found = Cluster(top, manifest)
    try:
        yield found
    finally:
        found.stop()


class Stories(list[tuple[Callable[[Cluster], None], str]]):
    """Tests that start several programs of several ranks: few of them in `make test`, other ones with each commit."""

    def on(self, manifest: str = noded.MANIFEST) -> Callable[[Callable[[Cluster], None]], Callable[[Cluster], None]]:
        def listed(story: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
            self.append((story, manifest))
            return story

        return listed
