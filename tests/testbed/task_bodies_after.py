"""Bodies that hand files to each other behind the back of the graph, which knows no more than their order."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.tasks import Graph


class Loud:
    """Whoever loads it is noted."""

    def __init__(self, path: str, content: bytes = b"") -> None:
        self.path, self.content = path, content

    def __reduce__(self) -> Any:
        return loaded, (self.path, self.content)


def loaded(path: str, content: bytes) -> Loud:
    Path(path).touch()
    return Loud(path, content)


def writes(path: str, text: str, others: tuple[str, ...] = ()) -> Loud:
    """Slowly, and with these others at the same time. Its result is the same whatever it writes."""
    Path(f"{path}.begun").touch()
    deadline = time.monotonic() + 300
    while not all(os.path.exists(f"{other}.begun") for other in others):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)
    Path(path).write_text(text)
    return Loud(f"{path}.loaded", bytes(200_000))


def reads(paths: list[str]) -> str:
    return " ".join(Path(path).read_text() for path in paths)


def both(paths: list[str], more: Any) -> str:
    return f"{reads(paths)} {np.asarray(more).size}"


def graph(directory: Path, text: str = "one") -> Graph:
    """`last` reads what two wrote, and takes a value of a third."""
    g = Graph("after")
    paths = [str(directory / name) for name in ("a", "b")]
    first = [g.add(Path(path).name, writes, path=path, text=text, others=tuple(paths)) for path in paths]
    size = g.add("size", np.zeros, shape=3)
    g.add("last", both, paths=paths, more=size, after=[first[1], first[0], size])
    g.add("lone", reads, paths=paths, after=first)
    return g
