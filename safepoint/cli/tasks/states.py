"""What is known of the vertices of a directory: from records first, then from graph.json and the last run's log."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from safepoint.disk import kernel
from safepoint.tasks import log
from safepoint.tasks.jobs import Record
from safepoint.tasks.saved import Store


@dataclass
class State:
    """Of one vertex. `state`: finished, failed, skipped, running, waiting."""

    name: str
    state: str
    record: Record | None = None
    row: dict[str, Any] = field(default_factory=dict)  # of graph.json
    failed: dict[str, Any] = field(default_factory=dict)  # the last row of the log about a failure
    needs: str = ""
    attempts: int = 0


class Past:
    """Of one store. It only reads, and a run may be at work."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.records = store.records()
        self.graph = log.graph(store.directory)
        self.running = kernel.held([os.path.join(store.directory, "lock")])[0]
        self.by_name: dict[str, list[Record]] = {}
        for record in sorted(self.records.values(), key=lambda record: record.time):
            self.by_name.setdefault(record.vertex, []).append(record)
        self.events = log.last_run(store.directory)
        self.states = self._states()

    def _states(self) -> dict[str, State]:
        rows = self.graph["vertices"] if self.graph else []
        keys = {row["vertex"]: row.get("key") for row in self.events if row["event"] == "finished"}
        found: dict[str, State] = {}
        for row in rows:
            record = self.records.get(keys.get(row["name"]) or row["key"])
            found[row["name"]] = State(row["name"], "finished" if record else "waiting", record, row)
        if not rows:  # graph.json is gone: what is kept tells enough
            found = {name: State(name, "finished", records[-1]) for name, records in self.by_name.items()}
        for event in self.events:
            state = found.get(event.get("vertex", ""))
            if state is not None:
                self._hear(state, event)
        for state in found.values():
            if state.state == "running" and self.running is False:
                state.state = "waiting"  # its run was killed
            state.attempts = max(state.attempts, state.record.attempt if state.record else 0)
        return found

    def _hear(self, state: State, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "begin":
            state.attempts += 1
        if kind == "failed":
            state.failed = event
        if state.record is not None:
            return
        if kind in ("failed", "skipped", "begin"):
            state.state = {"begin": "running"}.get(kind, kind)
        if kind == "died":
            state.state = "waiting"
        if kind == "skipped":
            state.needs = event.get("needs") or ""

    @property
    def unused(self) -> int:
        """Results that are no vertex of the last graph."""
        used = {state.record.key for state in self.states.values() if state.record}
        return sum(key not in used for key in self.records)
