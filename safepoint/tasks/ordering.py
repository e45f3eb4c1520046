"""In which order vertices that are ready begin, on engines that place them by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safepoint.errors import UsageError
from safepoint.tasks import log

if TYPE_CHECKING:
    from safepoint.tasks.graph import Graph


@dataclass(frozen=True)
class Planned:
    """What a schedule says for an engine that places by itself: the order."""

    content: Mapping[str, Any] | None = None
    priority: Mapping[str, float] | None = None
    expected_s: float | None = None
    kind: str = ""  # "heft", "genetic", …; "": no schedule

    @staticmethod
    def of(schedule: Any, graph: Graph) -> Planned:
        if schedule is None:
            return Planned(priority=_by_weight(graph))
        path = os.fspath(schedule) if isinstance(schedule, (str, os.PathLike)) else ""
        content = log.schedule_file(path) if path else schedule
        if not isinstance(content, Mapping):
            raise UsageError(f"schedule {path or repr(schedule)}: no schedule can be read there; nothing was run")
        try:
            priority = {str(row["vertex"]): float(row["begin_s"]) for row in content["vertices"]}
        except (TypeError, KeyError, ValueError) as error:
            raise UsageError(f"schedule: its rows have no vertex, or no begin_s ({error}); nothing was run") from error
        expected = content.get("expected_s")
        expected_s = float(expected) if isinstance(expected, (int, float)) else None
        return Planned(content, priority, expected_s, str(content.get("kind") or "given"))


def _by_weight(graph: Graph) -> dict[str, float] | None:
    """Where weights are given: first what has the longest way before it to the end of the graph."""
    if all(vertex.weight == 1.0 for vertex in graph.vertices.values()):
        return None
    way: dict[str, float] = {}
    for vertex in reversed(graph.order()):
        length = way[vertex.name] = way.get(vertex.name, 0.0) + vertex.weight
        for edge in vertex.edges:
            way[edge.vertex.name] = max(way.get(edge.vertex.name, 0.0), length)
    return {name: -length for name, length in way.items()}
