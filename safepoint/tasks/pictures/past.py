"""What a directory tells of its graph: the graph of the last run, all starts, the plan, the network. For views alone.

What is torn or strange was passed over by `log`. Numbers that cannot be are cut to what the drawing has room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safepoint.errors import FormatError
from safepoint.tasks import log
from safepoint.tasks.machine import Machine

FINISHED, EARLIER, RUNNING, WAITING, FAILED, SKIPPED = STATES = (
    "finished", "earlier", "running", "waiting", "failed", "skipped",
)  # fmt: skip
LATEST = 1e11  # seconds since 1970: no moment of ours


@dataclass(frozen=True)
class Node:
    """A vertex as it is drawn. `parents` are vertices of the graph, each once."""

    name: str
    function: str
    source: str
    parents: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class Attempt:
    """One attempt of a vertex. Times are seconds since 1970; `how` is a state, or "died"."""

    vertex: str
    worker: str
    host: str
    number: int
    began: float
    inputs_s: float
    body_s: float
    saving_s: float
    how: str = FINISHED
    nbytes: int = 0
    moved: int = 0
    error: str = ""

    @property
    def busy_s(self) -> float:
        return self.inputs_s + self.body_s + self.saving_s

    @property
    def ended(self) -> float:
        return self.began + self.busy_s


@dataclass
class Start:
    """One start of the graph, with all that its log tells."""

    began: float
    ended: float
    workers: int = 0
    engine: str = ""
    schedule: str = ""
    run: str = ""
    before: int = 0  # vertices that had finished
    to_run: int = 0
    expected_s: float = 0.0
    over: bool = False  # it wrote its end
    stopped: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # vertex: what it needs
    failed: dict[str, str] = field(default_factory=dict)  # vertex: error, when no attempt was left

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Planned:
    vertex: str
    worker: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Plan:
    kind: str
    expected_s: float
    vertices: tuple[Planned, ...]


@dataclass(frozen=True)
class Past:
    graph: str
    code: str
    nodes: tuple[Node, ...]
    starts: tuple[Start, ...]  # of this graph, in order
    plan: Plan | None
    machine: Machine | None


def read(directory: Path, net: Path | None = None) -> Past:
    """All of a store's directory. Raises `UsageError` or `FormatError` if `net` cannot be read."""
    graph = log.graph(str(directory)) or {"graph": "", "code": "", "run": "", "vertices": []}
    rows = [row for row in log.rows(str(directory)) if 0 < row["time"] < LATEST]
    name = graph["graph"] or next((row.get("graph") or "" for row in rows[::-1] if row["event"] == "start"), "")
    starts = [start for start, of in starts_of(rows) if of in (name, "")]
    last = starts[-1] if starts and starts[-1].run == graph["run"] else None
    nodes = nodes_of(graph["vertices"])
    schedule = log.schedule(str(directory)) or {}
    plan = plan_of(schedule) if schedule.get("graph") == name else None
    machine = Machine.read(str(net)) if net is not None else machine_of(schedule.get("machine"))
    return Past(name, graph["code"], with_states(nodes, last) if last else nodes, tuple(starts), plan, machine)


def length(value: Any) -> float:
    """Of a number that a row may have: not below 0."""
    return max(0.0, float(value or 0.0))


# The graph.


def nodes_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The vertices. Of two with one name the first stays, and a parent that is not there is none."""
    known: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        known.setdefault(entry["name"], entry)
    nodes = []
    for name, entry in known.items():
        parents = dict.fromkeys(parent for parent, _ in entry["inputs"] if parent in known and parent != name)
        state = entry["state"] if entry["state"] in STATES else WAITING
        nodes.append(Node(name, entry["function"], entry["source"], tuple(parents), state))
    return tuple(nodes)


def with_states(nodes: Iterable[Node], start: Start) -> tuple[Node, ...]:
    """The states as the log of the last start tells them: the graph's file may be older than its end."""
    told = dict.fromkeys(start.skipped, SKIPPED)
    for attempt in start.attempts:
        if told.get(attempt.vertex) != FINISHED:  # a second attempt may end after the first that counts
            told[attempt.vertex] = attempt.how if attempt.how in (FINISHED, RUNNING) else WAITING
    told.update(dict.fromkeys(start.failed, FAILED))
    found = []
    for node in nodes:
        state = told.get(node.name, EARLIER if node.state == FINISHED else node.state)
        if state == RUNNING and start.over:
            state = WAITING
        found.append(replace(node, state=state))
    return tuple(found)


# The log.


def starts_of(rows: Iterable[dict[str, Any]]) -> list[tuple[Start, str]]:
    """Each start with the name of its graph."""
    found: list[tuple[Start, str]] = []
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        time = float(row["time"])
        if row["event"] == "start" or not found:
            if found:
                _leave_open(found[-1][0], begun)
            begun = {}
            found.append((_start(row, time), row.get("graph") or ""))
        start = found[-1][0]
        start.ended = max(start.ended, time)
        _take(start, row, time, begun)
    if found:
        _leave_open(found[-1][0], begun)
    return found


def _start(row: Mapping[str, Any], time: float) -> Start:
    """Of a row that is no `start` only the time is known."""
    if row["event"] != "start":
        return Start(time, time)
    workers, before, to_run = (int(length(row.get(name))) for name in ("workers", "finished", "to_run"))
    engine, schedule, run = (row.get(name) or "" for name in ("engine", "schedule", "run"))
    return Start(time, time, workers, engine, schedule, run, before, to_run, length(row.get("expected_s")))


def _take(start: Start, row: dict[str, Any], time: float, begun: dict[tuple[str, int], dict[str, Any]]) -> None:
    event, vertex = row["event"], row.get("vertex") or ""
    turn = int(length(row.get("attempt")))
    if event == "end":
        start.over = True
    elif event == "stopped":
        start.stopped = row.get("why") or "stopped"
    elif event == "begin":
        begun[vertex, turn] = row
    elif event == "skipped":
        start.skipped[vertex] = row.get("needs") or ""
    elif event in ("finished", "failed"):
        first = begun.pop((vertex, turn), row)
        start.attempts.append(_attempt(start, row, first, time, FINISHED if event == "finished" else FAILED))
        if event == "failed" and turn >= length(row.get("attempts")):
            start.failed[vertex] = row.get("error") or ""
    elif event == "died":
        worker, _, cause = (row.get("worker") or "").partition(", ")  # "pid 4711, SIGKILL"
        those = sorted((key for key in begun if key[0] == vertex), key=lambda key: begun[key].get("worker") != worker)
        first = begun.pop(those[0]) if those else row
        start.attempts.append(
            _until(start, {**first, "began": row.get("began"), "host": row.get("host")}, time, "died", worker, cause)
        )


def _attempt(start: Start, row: Mapping[str, Any], first: Mapping[str, Any], time: float, how: str) -> Attempt:
    """Put within the start, as the clock of another host may be wrong."""
    longest = max(0.0, time - start.began)  # the clock may have gone back since
    inputs_s, body_s, saving_s = (
        min(length(row.get(name)), longest) for name in ("inputs_s", "body_s", "saving_s"))  # fmt: skip
    latest = max(start.began, time - inputs_s - body_s - saving_s)
    began = min(max(row.get("began") or latest, start.began), latest)
    worker, host = (row.get(name) or first.get(name) or "" for name in ("worker", "host"))
    error = " at ".join(filter(None, (row.get("error"), row.get("where"))))
    turn, nbytes, moved = (int(length(row.get(name))) for name in ("attempt", "nbytes", "moved"))
    return Attempt(
        row["vertex"], worker, host, turn, began, inputs_s, body_s, saving_s, how, nbytes, moved, error)  # fmt: skip


def _until(start: Start, first: Mapping[str, Any], time: float, how: str, worker: str = "", cause: str = "") -> Attempt:
    """Of an attempt with no end of its own: all of it counts as body."""
    began = min(max(first.get("began") or first["time"], start.began), time)
    worker, host, turn = worker or first.get("worker") or "", first.get("host") or "", first.get("attempt")
    parts = 0.0, time - began, 0.0
    return Attempt(first["vertex"], worker, host, int(length(turn)), began, *parts, how, error=cause)


def _leave_open(start: Start, begun: Mapping[tuple[str, int], dict[str, Any]]) -> None:
    start.attempts += [_until(start, first, start.ended, RUNNING) for first in begun.values()]


# The plan and the network.


def plan_of(schedule: Mapping[str, Any]) -> Plan | None:
    found = []
    for row in schedule["vertices"]:
        begin = length(row["begin_s"])
        found.append(Planned(row["vertex"], max(0, row["worker"]), begin, max(begin, length(row["end_s"]))))
    longest = max((each.end_s for each in found), default=0.0)
    kind = schedule.get("kind")
    return Plan(kind if isinstance(kind, str) else "", longest, tuple(found)) if found else None


def machine_of(content: Any) -> Machine | None:
    """Of a schedule; None if it has none, or a strange one."""
    try:
        return Machine.parse(content, log.SCHEDULE) if isinstance(content, dict) else None
    except FormatError:
        return None
