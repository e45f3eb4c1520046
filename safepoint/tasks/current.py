"""What a body may ask about the vertex that it is: its directory and its number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from safepoint.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Current:
    """The vertex whose body runs in this thread. `path`: its scratch directory, "" as long as nobody asked for it."""

    def __init__(self, vertex: str, seed: int, make: Callable[[], str]) -> None:
        self.vertex, self.seed, self.path = vertex, seed, ""
        self._make = make

    def scratch(self) -> str:
        self.path = self.path or self._make()
        return self.path


_current: ContextVar[Current | None] = ContextVar("safepoint_vertex", default=None)


@contextlib.contextmanager
def running(vertex: str, seed: int, make: Callable[[], str]) -> Iterator[Current]:
    """Inside, `scratch` and `seed` are those of this vertex. `seed`: of its graph; `make`: a new empty directory."""
    current = Current(vertex, seed, make)
    token = _current.set(current)
    try:
        yield current
    finally:
        _current.reset(token)


def _now(what: str) -> Current:
    current = _current.get()
    if current is None:
        raise UsageError(f"tasks.{what}() was called outside of a vertex: only a body that a graph runs has one")
    return current


def scratch() -> Path:
    """An empty directory of this vertex alone. A `Path` below it that the body returns is kept as the file that it is;
    all the rest is removed when the vertex has ended."""
    from pathlib import Path

    return Path(_now("scratch").scratch())


def seed() -> int:
    """A whole number below 2**63, made of the graph's seed and the vertex's name: equal under any engine and order."""
    current = _now("seed")
    return seed_of(current.seed, current.vertex)


def seed_of(graph: int, vertex: str) -> int:
    return xxh3_64_intdigest(f"{graph} {vertex}".encode()) >> 1
