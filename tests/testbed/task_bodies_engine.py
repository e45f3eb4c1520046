"""Functions that tests of engines have as vertices. What they did they leave in files, one line for each run."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def note(directory: str, name: str) -> None:
    """One line, in one write: of processes at once, none is lost."""
    descriptor = os.open(f"{directory}/runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name} {os.getpid()}\n".encode())
    os.close(descriptor)


def noted(directory: str | Path) -> list[tuple[str, int]]:
    """All runs so far: vertex and process."""
    try:
        lines = Path(directory, "runs").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(line.split()[0], int(line.split()[1])) for line in lines]


def counted(directory: str | Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, _ in noted(directory):
        found[name] = found.get(name, 0) + 1
    return found


def value(name: str, inputs: list[Any], size: int) -> dict[str, Any]:
    """What a vertex of a random graph gives: made of its name and of all that it is given."""
    digest = hashlib.sha256(repr((name, inputs)).encode()).digest()
    return {"number": int.from_bytes(digest[:6], "big"), "blob": digest * (size // 32)}


def step(name: str, notes: str, inputs: list[Any], size: int, seconds: float) -> dict[str, Any]:
    note(notes, name)
    time.sleep(seconds)
    return value(name, inputs, size)


def until_there(*paths: str) -> None:
    deadline = time.monotonic() + 300
    while not all(map(os.path.exists, paths)):
        assert time.monotonic() < deadline, paths
        time.sleep(0.005)


def add(a: Any, b: Any = 1) -> Any:
    return a + b


def told(notes: str, name: str, value: Any = None, inputs: Any = None) -> Any:
    """Notes that it ran, and gives `value`."""
    note(notes, name)
    return value


def waits(notes: str, name: str, until: str, value: Any = None, inputs: Any = None) -> Any:
    """Runs until there is a file of this name."""
    note(notes, name)
    until_there(until)
    return value


def fails(notes: str, name: str, times: int, value: Any = "at last") -> Any:
    """Fails so many times, and then does not."""
    note(notes, name)
    if counted(notes)[name] <= times:
        raise ValueError(f"failure {counted(notes)[name]} of {times}")
    return value


def dies(notes: str, name: str, times: int, number: int = signal.SIGKILL) -> str:
    """Kills its process so many times."""
    note(notes, name)
    if counted(notes)[name] <= times:
        os.kill(os.getpid(), number)
        time.sleep(60)
    return "alive"


class Unpicklable:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def gives_unpicklable() -> Any:
    return Unpicklable()


class Strange(Exception):
    """Neither it nor its text can be had."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_strange() -> None:
    raise Strange


def leaves() -> None:
    sys.exit(3)


def interrupts() -> None:
    raise KeyboardInterrupt


def goes_away(notes: str, name: str, to: str) -> str:
    note(notes, name)
    os.chdir(to)
    return os.getcwd()


def where(after: Any = None) -> str:
    return os.getcwd()


def changes(values: list[int]) -> int:
    """Does to its argument what it must not."""
    values.append(len(values))
    return len(values)


def length(values: Any) -> int:
    return len(values)


def big(nbytes: int, fill: int = 7) -> bytes:
    return bytes([fill]) * nbytes


def random_number(notes: str, name: str) -> bytes:
    """Another one each time."""
    note(notes, name)
    return os.urandom(16)


def seeded() -> int:
    from safepoint.tasks import seed

    return seed()


def in_scratch(text: str) -> Path:
    from safepoint.tasks import scratch

    path = scratch() / "out.txt"
    path.write_text(text)
    return path


def header() -> str:
    return "head"


def with_head(x: int, head: str) -> str:
    return f"{head} {x}"


def environment(name: str) -> str | None:
    return os.environ.get(name)


def breaks_its_disk() -> int:
    """From now on no fsync of this process succeeds: as on a disk that fails."""
    import errno

    from safepoint.disk import Disk, SyncFailed

    def sync(self: Disk, paths: Any, opened: Any = None) -> None:
        raise SyncFailed(errno.EIO, os.strerror(errno.EIO), next(iter(paths)))

    Disk.sync_files = sync  # type: ignore[method-assign]
    return 1


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def seen(name: str, chance: bool, inputs: list[Any], size: int) -> tuple[str, bytes, list[str]]:
    """What it was made of. `chance`: another one at each run."""
    return name, os.urandom(4) if chance else b"", [digest(each) for each in inputs] + ["x" * size]
