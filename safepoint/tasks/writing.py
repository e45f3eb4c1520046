"""A graph as text, for `text.read`. What TOML cannot say is refused, as it would come back as something else."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from safepoint.errors import GraphError
from safepoint.root import REAL
from safepoint.sealed import write_durably
from safepoint.tasks.graph import Edge, Graph, Vertex
from safepoint.tasks.jobs import Slot
from safepoint.tasks.text import TOP

DEFAULTS: dict[str, Any] = {"weight": 1.0, "retries": 0, "version": "", "size": 0, "keep": True}
BARE = re.compile("[A-Za-z0-9_-]+")


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """See `Graph.write`."""
    full = os.path.abspath(path)
    data = "\n".join(lines(graph, os.path.dirname(full))).encode() + b"\n"
    write_durably(REAL, full, data)  # a kill leaves the old text or the new one


def lines(graph: Graph, directory: str) -> Iterator[str]:
    """`directory`: where the text will lie, as files of functions are named from there."""
    code = graph.code
    if not code and graph.vertices:
        code = _code(next(iter(graph.vertices.values())).function, directory)
    yield f"graph = {_text(graph.name, graph.name)}"
    if code:
        yield f"code = {_text(code, graph.name)}"
    if graph.seed:
        yield f"seed = {graph.seed}"
    for vertex in graph.order():
        yield ""
        yield from _table(graph, vertex, code, directory)


def _table(graph: Graph, vertex: Vertex, code: str, directory: str) -> Iterator[str]:
    name = vertex.name
    if name in TOP:
        raise GraphError(f"vertex {name} cannot be written: in a text this name means something else")
    yield f"[{_key(name, name)}]"
    yield f"run = {_function(vertex.function, code, directory, name)}"
    if vertex.head is not None:
        yield f"head = {_function(vertex.head, code, directory, name)}"
    for option, default in DEFAULTS.items():
        if getattr(vertex, option) != default:
            yield f"{option} = {_value(getattr(vertex, option), name, option)}"
    arguments = {argument: (value, *_holds(value)) for argument, value in vertex.template.items()}
    plain = [f"{_key(a, name)} = {_value(v, name, a)}" for a, (v, edges, _) in arguments.items() if not edges]
    edges = [f"{_key(a, name)} = {_edge(graph, vertex, v, a)}" for a, (v, edges, _) in arguments.items() if edges]
    if mixed := [argument for argument, (_, edges, values) in arguments.items() if edges and values]:
        raise GraphError(
            f"vertex {name}: argument {mixed[0]} holds vertices beside other values: a text cannot say that"
        )
    for key, said in (("with", plain), ("in", edges)):
        if said:
            yield f"{key} = {{ {', '.join(said)} }}"
    if after := [_text(edge.vertex.name, name) for edge in vertex.edges if edge.output is None]:
        yield f"after = [{', '.join(after)}]"


def _holds(value: Any) -> tuple[bool, bool]:
    """Whether there are edges in it, and whether there is anything else."""
    if type(value) in (list, tuple, dict):
        inside = [_holds(each) for each in (value.values() if type(value) is dict else value)]
        return any(edges for edges, _ in inside), any(others for _, others in inside)
    return type(value) is Slot, type(value) is not Slot


def _edge(graph: Graph, vertex: Vertex, value: Any, argument: str) -> str:
    """The names of these edges, in the same lists and tables."""
    if type(value) is Slot:
        return _text(_named(graph, vertex.name, vertex.edges[value.number]), vertex.name)
    if type(value) is list:
        return f"[{', '.join(_edge(graph, vertex, each, argument) for each in value)}]"
    if type(value) is dict:
        inside = (f"{_key(key, vertex.name)} = {_edge(graph, vertex, each, argument)}" for key, each in value.items())
        return f"{{ {', '.join(inside)} }}"
    raise GraphError(f"vertex {vertex.name}: argument {argument} holds vertices in a tuple: for a text use a list")


def _named(graph: Graph, name: str, edge: Edge) -> str:
    text = f"{edge.vertex.name}.{edge.output}" if edge.output else edge.vertex.name
    if edge.output:
        dots = [at for at, letter in enumerate(text) if letter == "."]
        first = next((text[:at] for at in reversed(dots) if text[:at] in graph.vertices), "")
        if text in graph.vertices or first != edge.vertex.name:
            raise GraphError(f"vertex {name}: in a text {text} would mean another vertex than {edge.vertex.name}")
    return text


def _value(value: Any, name: str, key: str) -> str:
    kind = type(value)
    if kind is str:
        return _text(value, name)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else str(value)
    if kind is list:
        return f"[{', '.join(_value(each, name, key) for each in value)}]"
    if kind is dict:
        return f"{{ {', '.join(f'{_key(k, name)} = {_value(v, name, key)}' for k, v in value.items())} }}"
    if kind in (datetime.date, datetime.time) or (kind is datetime.datetime and value.tzinfo is None):
        return str(value.isoformat())
    hint = "; a list would do" if kind is tuple else ""
    raise GraphError(f"vertex {name}: {key} holds {kind.__name__}, which TOML does not have{hint}")


def _text(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise GraphError(f"vertex {name}: {value!r} cannot be written: half of a character") from error
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(value: Any, name: str) -> str:
    if type(value) is not str:
        raise GraphError(f"vertex {name}: {value!r} is the key of a dict: in TOML it has to be a text")
    return value if BARE.fullmatch(value) else _text(value, name)


# Functions.


def _code(function: Callable[..., Any], directory: str) -> str:
    """The file of a function's module as seen from there, or the module's name if it is in a package."""
    module = sys.modules[function.__module__]
    file = getattr(module, "__file__", None) or ""
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec is not None else module.__name__
    if "." in name or not file.endswith(".py"):
        return str(name)
    return os.path.relpath(os.path.realpath(file), os.path.realpath(directory)).replace(os.sep, "/")


def _function(function: Callable[..., Any], code: str, directory: str, name: str) -> str:
    where, way = _code(function, directory), function.__qualname__
    return _text(way if code in (where, function.__module__) else f"{where}:{way}", name)
