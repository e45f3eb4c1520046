"""Bodies of vertices for the tests of Dask, and a random graph of them. Each notes itself where it is told to."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.tasks import Graph, scratch, seed
from testbed.task_bodies_engine import counted, dies, fails, note, waits


def noted(notes: Path) -> Counter[str]:
    """How often each vertex has begun."""
    return Counter(counted(notes))


def source(notes: str, name: str, width: int, pause: float = 0.0) -> np.ndarray:
    note(notes, name)
    time.sleep(pause)
    return np.random.default_rng(seed() % (1 << 32)).integers(0, 1000, width)


def mixed(notes: str, name: str, inputs: list[Any], width: int, pause: float = 0.0) -> dict[str, Any]:
    """Named outputs: an array of this width that depends on each input and on their order, and a number."""
    note(notes, name)
    time.sleep(pause)
    total = 1
    arrays = [value["values"] if isinstance(value, dict) else value for value in inputs]
    for value in arrays:
        total = (31 * total + int(np.asarray(value).sum())) % 1_000_003
    for value in arrays:
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = 0  # spoils it for nobody else
    return {"values": np.arange(total, total + width), "total": total}


def outside(notes: str, name: str, path: str, width: int) -> np.ndarray:
    """Depends on a file that no identity tells of."""
    note(notes, name)
    return np.full(width, int(Path(path).read_text()))


def filed(notes: str, name: str, values: np.ndarray) -> Path:
    note(notes, name)
    path = scratch() / "values.txt"
    path.write_text(" ".join(map(str, values)))
    return path


def read(notes: str, name: str, path: Path) -> int:
    note(notes, name)
    return sum(map(int, path.read_text().split()))


class Unreadable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("it cannot be pickled")


def raises(notes: str, name: str, what: str) -> Any:
    note(notes, name)
    if what == "result":
        return lambda: None
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "strange": Unreadable("no")}[what]


def graph(seed: int, notes: Path, count: int = 40, pause: float = 0.0) -> Graph:
    """Random: small and large results, named outputs, some that are not kept; each vertex needs up to four others."""
    chance, g, vertices = random.Random(seed), Graph("random", seed=seed), []
    for n in range(count):
        name, width = f"v{n}", chance.choice([3, 50, 20_000])
        common = {"notes": str(notes), "name": name, "width": width, "pause": pause}
        if n < 4:
            vertices.append(g.add(name, source, arguments=common))
            continue
        edges = [vertices[chance.randrange(max(0, n - 15), n)] for _ in range(chance.randint(1, 4))]
        inputs = [edge["values"] if edge.function is mixed and chance.random() < 0.5 else edge for edge in edges]
        vertices.append(g.add(name, mixed, arguments=common, inputs=inputs, keep=chance.random() > 0.15))
    g.add("end", mixed, arguments={"notes": str(notes), "name": "end", "width": 3}, inputs=list(vertices))
    return g


def serially(g: Graph) -> dict[str, Any]:
    """The results by plain calls, one after the other."""
    from safepoint.tasks.current import running
    from safepoint.tasks.jobs import Slot

    found: dict[str, Any] = {}

    def filled(value: Any, inputs: list[Any]) -> Any:
        if isinstance(value, Slot):
            return inputs[value.number]
        return [filled(each, inputs) for each in value] if isinstance(value, list) else value

    for vertex in g.order():
        inputs = [found[edge.vertex.name] for edge in vertex.edges]
        inputs = [
            value[edge.output] if edge.output else value for value, edge in zip(inputs, vertex.edges, strict=True)
        ]
        for value in inputs:
            for array in value.values() if isinstance(value, dict) else [value]:
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
        with running(vertex.name, g.seed, lambda: ""):
            found[vertex.name] = vertex.function(
                **{name: filled(value, inputs) for name, value in vertex.template.items()}
            )
    return found


def digest(value: Any) -> str:
    """Of a value of these bodies, by what it says."""
    if isinstance(value, dict):
        return f"{value['total']} {value['values'].tolist()}"
    return str(np.asarray(value).tolist())


def interval_s(client: str, dask_scheduler: Any) -> float:
    """How often the scheduler has a message for this client, at most."""
    return float(dask_scheduler.client_comms[client].interval)


def tasks_of(dask_scheduler: Any) -> int:
    """How many tasks the scheduler knows, of whichever run."""
    return len(dask_scheduler.tasks)


def allow_no_failure(dask_scheduler: Any) -> None:
    """A vertex is given up with the first worker that dies of it."""
    dask_scheduler.allowed_failures = 0


__all__ = ["dies", "fails", "waits"]
