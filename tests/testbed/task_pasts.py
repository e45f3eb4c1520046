"""Files of runs of a graph that never were, for the page of views: graph.json, log.jsonl, schedule.json, net.json."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGAN = 1.79e9  # seconds since 1970, of the first start
Vertices = dict[str, list[str]]  # each with those that it needs
Events = list[tuple[float, dict[str, Any]]]  # rows with their times since the start


def layered(sizes: Sequence[int], needs: int = 2, seed: int = 1) -> Vertices:
    """Vertices by layers, each with so many inputs out of the layer before it."""
    draw, found, before = random.Random(seed), Vertices(), list[str]()
    for layer, many in enumerate(sizes):
        now = [f"v{layer}-{number}" for number in range(many)]
        for name in now:
            found[name] = draw.sample(before, min(needs, len(before)))
        before = now
    return found


def scheduled(vertices: Vertices, workers: int, seconds: Callable[[str], float]) -> list[dict[str, Any]]:
    """First come, first served: rows of a schedule, in order of their begin."""
    children: dict[str, list[str]] = {name: [] for name in vertices}
    missing = {name: len(needs) for name, needs in vertices.items()}
    for name, needs in vertices.items():
        for parent in needs:
            children[parent].append(name)
    free = [(0.0, worker) for worker in range(workers)]
    ready = [(0.0, number, name) for number, name in enumerate(vertices) if not missing[name]]
    at = dict.fromkeys(vertices, 0.0)
    order = {name: number for number, name in enumerate(vertices)}
    rows = []
    while ready:
        since, _, name = heapq.heappop(ready)
        when, worker = heapq.heappop(free)
        begin = max(since, when)
        end = begin + seconds(name)
        heapq.heappush(free, (end, worker))
        rows.append({"vertex": name, "worker": worker, "begin_s": begin, "end_s": end})
        for child in children[name]:
            at[child] = max(at[child], end)
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (at[child], order[child], child))
    return sorted(rows, key=lambda row: row["begin_s"])


class Pasts:
    """What a directory of a store holds for views, written by `write`."""

    def __init__(self, vertices: Vertices, graph: str = "sky") -> None:
        self.graph, self.vertices = graph, vertices
        self.states = dict.fromkeys(vertices, "waiting")
        self.rows: list[Mapping[str, Any]] = []
        self.schedule: dict[str, Any] | None = None
        self.run = ""

    def plan(self, workers: int, seconds: Callable[[str], float], machine: Mapping[str, Any] | None = None) -> None:
        rows = scheduled(self.vertices, workers, seconds)
        longest = max(row["end_s"] for row in rows)
        self.schedule = {
            "graph": self.graph,
            "kind": "heft",
            "expected_s": longest,
            "machine": machine,
            "vertices": rows,
        }

    def start(
        self, workers: int, seconds: Callable[[str], float], *, at: float = BEGAN, until: float = 1e9,
        fails: Sequence[str] = (), dies: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Run what has not finished; killed after `until` seconds. `fails`: those without success; `dies`: the worker
        of the first attempt."""
        self.run = f"{len(self.rows):032x}"
        left = {name: [each for each in needs if self.states[each] != "finished"]
                for name, needs in self.vertices.items() if self.states[name] != "finished"}  # fmt: skip
        self.states |= dict.fromkeys(left, "waiting")
        common = {"run": self.run, "graph": self.graph, "vertices": len(self.vertices)}
        expected = self.schedule["expected_s"] if self.schedule else None
        events: Events = [
            (0.0, {"event": "start", **common, "finished": len(self.vertices) - len(left), "to_run": len(left),
                   "workers": workers, "engine": "mpi", "schedule": "heft" if self.schedule else "",
                   "expected_s": expected, "driver_host": "node01", "pid": 4711})]  # fmt: skip
        skipped = self._below(fails)
        end = 0.0
        for row in scheduled({name: needs for name, needs in left.items() if name not in skipped}, workers, seconds):
            events += self._attempts(row, at, row["vertex"] in fails, row["vertex"] in dies)
            end = max(end, row["end_s"])
        events += [(end, {"event": "skipped", "vertex": name, "needs": fails[0]}) for name in skipped]
        done = {"finished": len(left), "failed": len(fails), "skipped": len(skipped), "seconds": end}
        events.append((end, {"event": "end", **done}))
        self.rows += [{"time": at + when, **row} for when, row in sorted(events, key=lambda e: e[0]) if when <= until]
        told = [row for when, row in events if when <= until]
        self.states |= {
            row["vertex"]: row["event"] for row in told if row["event"] in ("finished", "failed", "skipped")
        }

    def _below(self, fails: Sequence[str]) -> list[str]:
        bad: list[str] = []
        for name, needs in self.vertices.items():
            if set(needs) & {*fails, *bad}:
                bad.append(name)
        return bad

    def _attempts(
        self, row: Mapping[str, Any], at: float, fails: bool, dies: bool
    ) -> list[tuple[float, dict[str, Any]]]:
        begin, end, vertex = row["begin_s"], row["end_s"], row["vertex"]
        whole = end - begin
        who = {"worker": f"rank {row['worker'] + 1}", "host": f"node{row['worker'] // 2 + 1:02}"}
        events: Events = []
        if dies:
            events += [(begin, {"event": "begin", "vertex": vertex, **who, "attempt": 1}),
                       (begin + whole / 4, {"event": "died", "vertex": vertex, **who})]  # fmt: skip
            begin, whole = begin + whole / 2, whole / 2
        events.append((begin, {"event": "begin", "vertex": vertex, **who, "attempt": 1}))
        if fails:
            events.append((end, {"event": "failed", "vertex": vertex, **who, "attempt": 1, "attempts": 1,
                                 "error": "ValueError: negative variance", "where": "sky.py:31 in denoise",
                                 "began": at + begin, "body_s": whole}))  # fmt: skip
            return events
        parts = {"inputs_s": whole * 0.15 if self.vertices[vertex] else 0.0, "saving_s": whole * 0.1}
        body = whole - sum(parts.values())
        events.append((end, {"event": "finished", "vertex": vertex, "key": "0" * 32, **who, "attempt": 1,
                             "began": at + begin, **parts, "body_s": body, "nbytes": 4_000_000,
                             "moved": 2_000_000 * len(self.vertices[vertex])}))  # fmt: skip
        return events

    def write(self, directory: Path) -> Path:
        """Where `Store` has its files, below `directory`, which is given back."""
        store = directory / ".safepoint.d" / "tasks"
        store.mkdir(parents=True, exist_ok=True)
        entries = [{"name": name, "function": "denoise", "source": "sky.py:28", "weight": 1.0, "size": 0, "key": "",
                    "inputs": [[parent, ""] for parent in needs], "state": self.states[name]}
                   for name, needs in self.vertices.items()]  # fmt: skip
        graph = {"graph": self.graph, "code": "sky.py", "run": self.run, "vertices": entries}
        (store / "graph.json").write_text(json.dumps(graph))
        (store / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in self.rows))
        if self.schedule:
            (store / "schedule.json").write_text(json.dumps(self.schedule))
        return directory


def net(ranks: int, slow: Sequence[tuple[int, int]] = (), per_host: int = 2) -> dict[str, Any]:
    """Two kinds of links: within a host, and between hosts. `slow` ones have a fifth of the bandwidth, one way."""
    near = [[p // per_host == q // per_host for q in range(ranks)] for p in range(ranks)]
    latency = [[0.0 if p == q else 8e-7 if near[p][q] else 2.2e-5 for q in range(ranks)] for p in range(ranks)]
    bandwidth = [[0.0 if p == q else 6e9 if near[p][q] else 1.1e9 for q in range(ranks)] for p in range(ranks)]
    for p, q in slow:
        bandwidth[p][q] /= 5
        latency[p][q] *= 2
    return {"safepoint": "net 1", "time": BEGAN, "hosts": [f"node{rank // per_host + 1:02}" for rank in range(ranks)],
            "speed": [1.2 if rank % 2 else 0.8 for rank in range(ranks)], "latency_s": latency, "bandwidth": bandwidth,
            "all_latency_s": None, "all_bandwidth": None, "measured": {}}  # fmt: skip
