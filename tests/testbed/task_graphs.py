"""Random graphs of tasks, the program that runs one, and what must hold of it whoever was killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safepoint.tasks import Graph, body
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store
from testbed import task_bodies_engine as bodies
from testbed.paths import HOUSE

SIZES = (0, 64, 3_000, 100_000)  # bytes: in journals, and above 64 KiB in done/
DEADLINE_S = 250.0


def shape(seed: int, count: int) -> list[tuple[str, list[tuple[int, str]], int, float]]:
    """Of each vertex: name, inputs with their outputs, bytes of its result, seconds."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        many = rng.choice((0, 1, 1, 2, 3)) if n else 0
        inputs = [(rng.randrange(max(0, n - 12), n), rng.choice(("number", "blob"))) for _ in range(many)]
        found.append((f"v{n}", inputs, rng.choice(SIZES), rng.choice((0.0, 0.002, 0.01))))
    return found


def graph(seed: int, count: int, notes: str) -> Graph:
    made, vertices = Graph(f"random-{seed}"), []
    for name, inputs, size, seconds in shape(seed, count):
        given = [vertices[n][output] for n, output in inputs]
        vertices.append(made.add(
            name, bodies.step, arguments={"size": size}, name=name, notes=notes, inputs=given, seconds=seconds
        ))  # fmt: skip
    return made


def serial(seed: int, count: int) -> dict[str, Any]:
    """What each vertex must give."""
    values: list[dict[str, Any]] = []
    for name, inputs, size, _ in shape(seed, count):
        values.append(bodies.value(name, [values[n][output] for n, output in inputs], size))
    return {name: value for (name, *_), value in zip(shape(seed, count), values, strict=True)}


class Program:
    """A driver in a process group of its own, with all that it starts."""

    def __init__(self, directory: Path, seed: int, count: int, workers: int = 2) -> None:
        self.directory = directory
        code = (
            "import sys; from testbed import task_graphs\n"
            f"task_graphs.graph({seed}, {count}, {str(directory)!r}).run({workers}, directory={str(directory)!r})\n"
        )
        self.process = start(code, directory)

    def wait_for(self, runs: int) -> bool:
        """Until so many runs have begun since it started; False: it has ended before."""
        deadline = time.monotonic() + DEADLINE_S
        while len(bodies.noted(self.directory)) < runs:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.002)
        return True

    def kill(self, whom: str) -> None:
        if whom == "worker":
            with contextlib.suppress(ProcessLookupError):
                os.kill(bodies.noted(self.directory)[-1][1], signal.SIGKILL)
            return
        if whom == "all":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        gone(self.process.pid)


WAY = {"PYTHONPATH": os.pathsep.join([str(HOUSE / "tests"), str(HOUSE)])}


def python(*arguments: object, cwd: Path | None = None, text: str = "", **environment: str) -> str:
    """Run Python, which must end well, and return what it printed. `text`: its input."""
    done = run(*arguments, cwd=cwd, text=text, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(
    *arguments: object, cwd: Path | None = None, text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, input=text, capture_output=True, text=True, timeout=DEADLINE_S,
        env={**os.environ, **WAY, **environment},
    )  # fmt: skip


def start(code: str, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Python with this code, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=directory, env={**os.environ, **WAY}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def members(group: int) -> list[int]:
    """The processes of a group that are no zombies."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    found.append(int(name))
    return found


def gone(group: int) -> None:
    """Wait until no process of this group is left: workers end with their driver."""
    deadline = time.monotonic() + DEADLINE_S  # less than a body of these tests waits
    while left := members(group):
        assert time.monotonic() < deadline, f"processes {left} outlive their driver"
        time.sleep(0.005)


@contextlib.contextmanager
def nobody_left(program: subprocess.Popen[str]) -> Iterator[None]:
    """After the block, whatever happened, the program and all that it started are gone."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # workers, too, that outlive it by mistake
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


class AtOnce:
    """An engine that makes each result at once, in this thread. Where it does not flush, it is as a worker that is
    killed when its work is done."""

    name = "once"

    def __init__(self, store: Store, *, room: int = 1, flushes: bool = True) -> None:
        self._store, self._room, self._flushes = store, room, flushes
        self._writer, self._done = store.writer(**{} if flushes else {"every": 0}), list[Any]()

    def workers(self) -> int:
        return 1

    def room(self) -> int:
        return self._room

    def start(self, job: Any) -> None:
        self._done.append(body.run(job, self._store, self._writer))

    def ended(self, patience_s: float) -> list[Any]:
        done, self._done = self._done, []
        return done

    def stop(self) -> None:
        pass

    def close(self, *, abandon: bool = False) -> None:
        if self._flushes:
            self._writer.close()
        elif self._writer._journal is not None:  # as the end of a process does
            self._writer._journal.close()


def records(directory: Path) -> set[str]:
    """Vertices whose results the store has."""
    return {record.vertex for record in Store(tasks_directory(directory)).records().values()}
