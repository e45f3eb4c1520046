"""What goes to Dask: the program's own as bytes, since Dask's scheduler, on the way, need not know it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from safepoint.errors import UsageError
from safepoint.tasks.jobs import Failure, Record


class Packing:
    """Functions and classes of `__main__` go by their code."""

    def __init__(self) -> None:
        self._known: dict[tuple[Callable[..., Any], Callable[[], Any] | None], bytes] = {}

    def functions(self, vertex: Any) -> bytes:
        both = vertex.function, vertex.head
        if both not in self._known:
            self._known[both] = self._packed(vertex, both)
        return self._known[both]

    def arguments(self, vertex: Any) -> bytes:
        return self._packed(vertex, dict(vertex.template))

    def _packed(self, vertex: Any, value: object) -> bytes:
        import cloudpickle  # type: ignore[import-untyped]

        try:
            data = pickle.dumps(value, 5)
            return cloudpickle.dumps(value, 5) if b"__main__" in data else data
        except Exception as error:
            raise UsageError(f"vertex {vertex.name} cannot be sent to a worker: {error}") from error


def short(record: Record) -> Record:
    """Without what only `why` reads."""
    return replace(record, parts={}, versions={})


def failure_of(error: BaseException | None) -> Failure:
    """Dask itself has given a vertex up."""
    kind, text = type(error).__name__, f"{error}"
    if kind == "KilledWorker":
        text = "the workers that had it died, again and again: killed, out of memory, or a fault in native code"
    return Failure(kind, f"Dask gave it up: {text}", text, "")
