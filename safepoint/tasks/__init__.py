"""A graph of tasks in which every finished vertex is a safe point: what a program calls. Nothing is loaded before it.

from safepoint.tasks import Graph

g = Graph("sky")
parts = [g.add(f"read-{n}", read, path=f"raw/{n}.fits") for n in range(64)]
total = g.add("stack", stack, images=parts)
print(g.run()["stack"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safepoint.errors import GraphError, TaskError
    from safepoint.tasks.current import scratch, seed
    from safepoint.tasks.found import Found, Stopped
    from safepoint.tasks.graph import Edge, Graph, Vertex

_WHERE = {
    "Edge": "graph", "Graph": "graph", "Vertex": "graph", "Found": "found", "Stopped": "found", "TaskError": "errors",
    "GraphError": "errors", "scratch": "current",
    "seed": "current",
}  # fmt: skip
__all__ = ["Edge", "Found", "Graph", "GraphError", "Stopped", "TaskError", "Vertex", "scratch", "seed"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    package = "safepoint" if _WHERE[name] == "errors" else __name__
    return getattr(importlib.import_module(f"{package}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
