"""What a run gives back: the results by name, each loaded when it is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from safepoint.errors import SafepointError, TaskError
from safepoint.tasks.jobs import Failure, Record
from safepoint.tasks.saved import LostValue, Store


class Found(Mapping[str, Any]):
    """`found["stack"]` is the value of a vertex, read from the store at each call; `found["read-1.header"]` that of one
    of its outputs. Only vertices that have finished are in it. `LostValue`: the result is damaged, and the next run
    makes it again.

    failed    why each of those failed that did
    skipped   of each that was not run for that: the vertex that it needs
    ran       those that finished in this run, in the order in which they did
    finished_before  those that had finished before it
    seconds   how long the run took
    records   what is kept of each that has finished
    """

    def __init__(
        self, store: Store, records: Mapping[str, Record], *, failed: Mapping[str, Failure] | None = None,
        skipped: Mapping[str, str] | None = None, ran: list[str] | None = None, seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self._store = store
        self.records = dict(records)
        self.failed = dict(failed or {})
        self.skipped = dict(skipped or {})
        self.ran = list(ran or ())
        self.seconds = seconds

    @property
    def finished_before(self) -> list[str]:
        now = set(self.ran)
        return [name for name in self.records if name not in now]

    def __getitem__(self, name: str) -> Any:
        vertex, output = name, ""
        while vertex not in self.records and "." in vertex:  # names of both may have dots
            vertex = vertex.rpartition(".")[0]
            output = name[len(vertex) + 1 :]
        if vertex not in self.records:
            raise KeyError(self._why_not(name))
        record = self.records[vertex]
        if output not in ("", *(each.name for each in record.outputs)):
            raise KeyError(f"vertex {vertex} has no output {output}")
        if not record.kept:
            raise TaskError(
                f"the result of {vertex} is not kept (keep=False), only its digest: add a vertex that uses it"
            )
        try:
            return self._store.value(record.reference(output))
        except LostValue:
            self._forget(record)
            raise

    def _forget(self, record: Record) -> None:
        """Of a result that is damaged: the next run makes it again."""
        with contextlib.suppress(SafepointError, OSError), self._store.held():  # a run at work finds it by itself
            self._store.drop([record.key])

    def _why_not(self, name: str) -> str:
        if name in self.failed:
            return f"vertex {name} failed: {self.failed[name].kind}: {self.failed[name].message}"
        if name in self.skipped:
            return f"vertex {name} was not run: it needs {self.skipped[name]}, which failed"
        return f"no vertex {name} has finished"

    def __contains__(self, name: object) -> bool:
        return name in self.records

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Found: {len(self.records)} finished, {len(self.failed)} failed, {len(self.skipped)} not run>"


class Stopped(SystemExit):
    """The run was stopped before its end: by a time limit, by SIGTERM, or by the program. `code` is 75, or 79: start it
    again. `why` and `found` say more."""

    def __init__(self, code: int, why: str, found: Found) -> None:
        super().__init__(code)
        self.why, self.found = why, found
