"""Lives of a real process: started, killed, started again, with what it said and what must hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from safepoint.disk import Disk

SOLVER = Path(__file__).with_name("solver.py")
MANIFEST = "u.dat\nv.dat   compress\nfields/p.dat\nhistory.csv   append\n"
LONG = os.environ.get("SAFEPOINT_CRASH") == "long"  # `make crash`: every case, not a sample


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Life:
    """What one process said before it ended."""

    status: int
    said: list[str] = field(default_factory=list)

    def last(self, word: str) -> int:
        """The step of the last line that begins with this word; -1 if there is none."""
        steps = [line.split()[1] for line in self.said if line.startswith(word + " ")]
        return int(steps[-1]) if steps and steps[-1] != "nothing" else -1


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", str(SOLVER), *map(str, arguments)]


def live(directory: Path, *arguments: object) -> Life:
    """One undisturbed life."""
    done = subprocess.run(command(*arguments), cwd=directory, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Violation(f"the program ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-2000:]}")
    return Life(0, done.stdout.splitlines())


def goes_on(directory: Path, before: Life, steps: int) -> Life:
    """Start again: G1 (the solver checks every byte), G2, G2k, and it reaches the end."""
    after = live(directory, steps)
    finished = before.last("finished") >= 0
    least = before.last("hid") if Disk().place(str(directory)).mount else before.last("safe")
    restored = after.last("restored")
    if restored < least and not (finished and restored == steps):
        raise Violation(f"hide had returned for step {least}, restored was {restored}: {before.said[-4:]}")
    if after.last("finished") != steps:
        raise Violation(f"it did not reach the end: {after.said[-4:]}")
    return after


@contextmanager
def directory_for_lives() -> Iterator[Path]:
    """A new working directory with a manifest, in memory if there is such a file system: these tests are many."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="safepoint-", dir=where))
    try:
        (path / ".safepoint").write_text(MANIFEST)
        yield path
    finally:
        shutil.rmtree(path)
