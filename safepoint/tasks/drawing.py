"""A graph for other programs: DOT for Graphviz, GraphML for yEd and Gephi."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safepoint.tasks.graph import Graph

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="name" for="node" attr.name="label" attr.type="string"/>
  <key id="function" for="node" attr.name="function" attr.type="string"/>
  <key id="weight" for="node" attr.name="weight" attr.type="double"/>
  <key id="output" for="edge" attr.name="output" attr.type="string"/>
  <key id="after" for="edge" attr.name="after" attr.type="boolean"/>"""


def dot(graph: Graph) -> str:
    return "\n".join([f"digraph {_quoted(graph.name)} {{", *_dot(graph), "}", ""])


def _dot(graph: Graph) -> Iterator[str]:
    for vertex in graph.order():
        tip = f"{getattr(vertex.function, '__qualname__', '')} {vertex.source}".strip()
        yield f"  {_quoted(vertex.name)} [tooltip={_quoted(tip)}];"
    for vertex in graph.order():
        for edge in vertex.edges:
            label = f" [label={_quoted(edge.output)}]" if edge.output else " [style=dashed]" * (edge.output is None)
            yield f"  {_quoted(edge.vertex.name)} -> {_quoted(vertex.name)}{label};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def graphml(graph: Graph) -> str:
    return "\n".join([HEAD, *_graphml(graph), "  </graph>", "</graphml>", ""])


def _graphml(graph: Graph) -> Iterator[str]:
    numbers = {name: f"n{number}" for number, name in enumerate(graph.vertices)}
    yield f'  <graph id={quoteattr(graph.name)} edgedefault="directed">'
    for vertex in graph.order():
        function = getattr(vertex.function, "__qualname__", "")
        yield f'    <node id="{numbers[vertex.name]}"><data key="name">{escape(vertex.name)}</data>'
        yield f'      <data key="function">{escape(function)}</data><data key="weight">{vertex.weight!r}</data></node>'
    for vertex in graph.order():
        for edge in vertex.edges:
            output = f'<data key="output">{escape(edge.output)}</data>' if edge.output else ""
            output = '<data key="after">true</data>' if edge.output is None else output
            ends = f'source="{numbers[edge.vertex.name]}" target="{numbers[vertex.name]}"'
            yield f"    <edge {ends}>{output}</edge>"
