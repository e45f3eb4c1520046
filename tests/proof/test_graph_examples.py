"""The four examples of graphs, as users run them: killed at random on each engine, they end with the serial result."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from testbed import sweep
from testbed.jobs import mpiexec
from testbed.paths import EXAMPLES, HOUSE
from testbed.task_graphs import DEADLINE_S
from testbed.waiting import wait_for

from safepoint.tasks.current import seed_of
from safepoint.tasks.saved import Store

NEEDS = {"distributed": "pip install '.[dask]'", "sklearn": "pip install '.[examples]'"}
pytestmark = [pytest.mark.xdist_group("mpi-tasks")]
for _package, _how in NEEDS.items():  # found, not imported: that takes more than a second in each worker
    pytestmark += [pytest.mark.skipif(not find_spec(_package), reason=f"{_package} is not installed: {_how}")]

SMALL = {
    "alignment.py": ("alignment.fasta", ["--sequences", "7"]),
    "blocks.py": ("cholesky.npy", ["--blocks", "5", "--width", "100"]),
    "filter.py": ("after.wav", ["--rate", "8000", "--block", "4096"]),
    "perceptron.py": ("perceptron.npy", ["--steps", "4"]),
}
CASES = sweep.some_of([(name, engine) for name in SMALL for engine in ("pool", "dask", "mpi")], 1, 3)
KILLS = 5 if sweep.LONG else 2


class Life:
    """An example in a directory, which dies and begins again."""

    def __init__(self, name: str, engine: str, directory: Path) -> None:
        self.work, self.notes = directory / "work", directory / "notes"
        self.notes.mkdir()
        arguments = [EXAMPLES / name, *SMALL[name][1], "--directory", self.work, "--engine", engine, "--workers", "2"]
        python = [sys.executable, "-W", "error"]
        self.command = mpiexec(4, *arguments) if engine == "mpi" else [*python, *map(str, arguments)]
        self.mark = f"GRAPH_EXAMPLE_NOTES={self.notes}"  # tells its processes from all others
        self.begun: dict[str, int] = {}

    def start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(HOUSE), "GRAPH_EXAMPLE_NOTES": str(self.notes)}
        with open(self.notes.parent / "said.txt", "wb") as said:
            return subprocess.Popen(self.command, env=environment, stdout=said, stderr=said, cwd=self.notes.parent)

    def said(self) -> str:
        return (self.notes.parent / "said.txt").read_text(errors="replace")[-3000:]

    def noted(self) -> Counter[str]:
        return Counter(name.partition("-")[0] for name in os.listdir(self.notes))

    def processes(self) -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdecimal() and self.mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return found

    def kill(self, job: subprocess.Popen[bytes]) -> None:
        """All of them, until none is left."""

        def gone() -> bool:
            found = self.processes()
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found and job.poll() is not None

        wait_for(gone)

    def kept(self) -> int:
        """No vertex begins again whose result was handed over."""
        records = Store(self.work / ".safepoint.d/tasks").records().values()
        names, begun = {record.vertex for record in records}, self.noted()
        for name in names:
            count = begun[str(seed_of(0, name))]
            assert count and count == self.begun.setdefault(name, count), f"{name} ran again, and was kept already"
        return len(names)

    def die(self, chance: random.Random) -> None:
        """Live until some more vertices have begun, and die; unless the end comes first."""
        job = self.start()
        begun = sum(self.noted().values()) + chance.randint(1, 12)
        try:
            wait_for(lambda: job.poll() is not None or sum(self.noted().values()) >= begun)
            time.sleep(chance.random() / 50)  # so that it dies anywhere in a body
        finally:
            self.kill(job)
        self.kept()

    def live(self) -> None:
        job = self.start()
        try:
            assert job.wait(DEADLINE_S) == 0, self.said()
        finally:
            self.kill(job)
        self.kept()


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_an_example_killed_again_and_again_ends_with_the_bytes_of_a_serial_run(
    name: str, engine: str, tmp_path: Path
) -> None:
    """T1, T3, T4, T5: byte for byte, and no vertex runs again whose result was handed over."""
    result, arguments = SMALL[name]
    serial = [sys.executable, str(EXAMPLES / name), "--serial", "--directory", str(tmp_path / "serial"), *arguments]
    subprocess.run(serial, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL)
    chance = random.Random(sweep.turn())
    life = Life(name, engine, tmp_path)
    for _ in range(KILLS):
        life.die(chance)
    life.live()
    assert (tmp_path / "work" / result).read_bytes() == (tmp_path / "serial" / result).read_bytes()
