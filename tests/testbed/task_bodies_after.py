"""Bodies that hand files to each other behind the back of the graph, which knows no more than their order."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.tasks import Graph
from testbed.task_bodies_engine import until_there


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
    until_there(*(f"{other}.begun" for other in others))
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


def check_order(engine: Any, directory: Path) -> None:
    """They run after those before them, of which no value is moved or loaded; and again, T4, when one before them has
    changed though it gave the same result: what the two wrote shows in no digest of their results."""
    found = graph(directory).run(on=engine, directory=directory)
    assert (found["last"], found["lone"]) == ("one one 3", "one one")
    assert not list(directory.glob("*.loaded"))
    log = map(json.loads, (directory / ".safepoint.d/tasks/log.jsonl").read_text().splitlines())
    rows = {row["vertex"]: row for row in log if row["event"] == "finished"}
    assert rows["last"]["moved"] < 1000 and rows["lone"]["moved"] == 0  # the two before have 200 kB each
    ends = [rows[name]["began"] + rows[name]["body_s"] for name in "ab"]
    assert min(rows["last"]["began"], rows["lone"]["began"]) >= max(ends) - 0.01
    found = graph(directory, "two").run(on=engine, directory=directory)
    assert (found["last"], found["lone"]) == ("two two 3", "two two")
    (directory / "a").write_text("spoilt")
    assert graph(directory, "two").run(on=engine, directory=directory)["lone"] == "two two"
