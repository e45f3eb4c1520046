"""A graph as a program makes it: edges at any depth, names, and what is refused before anything runs."""

from __future__ import annotations

import functools
import pickle
from typing import Any
from xml.dom import minidom

import pytest
from testbed import task_bodies_store as bodies

from safepoint.errors import UsageError
from safepoint.tasks import Edge, Graph
from safepoint.tasks.jobs import Slot


def test_edges_are_found_in_lists_tuples_and_dicts_at_any_depth() -> None:
    graph = Graph("g")
    a, b = graph.add("a", bodies.number, x=1), graph.add("b", bodies.number)
    v = graph.add("v", bodies.total, images=[a, {"k": (b["left"], 3, [a])}], plain=[1, (2,)])
    assert v.template == {"images": [Slot(0), {"k": (Slot(1), 3, [Slot(2)])}], "plain": [1, (2,)]}
    assert [(edge.vertex, edge.output) for edge in v.edges] == [(a, ""), (b, "left"), (a, "")]
    assert isinstance(b["left"], Edge) and list(graph.vertices) == ["a", "b", "v"] == [v.name for v in graph.order()]
    assert v.source.startswith("task_bodies_store.py:") and a.edges == ()


@pytest.mark.parametrize(
    "function", [lambda: 1, functools.partial(bodies.number, 1), bodies.Holder().method, 3, len("").bit_count]
)
def test_a_function_that_no_other_process_can_import_is_refused_by_the_vertex_name(function: Any) -> None:
    graph = Graph("g")
    with pytest.raises(UsageError, match="vertex clean-1: its function"):
        graph.add("clean-1", function)
    assert graph.vertices == {}


def test_functions_inside_of_functions_are_refused() -> None:
    def inner() -> None:
        pass

    with pytest.raises(UsageError, match="is defined inside of another one"):
        Graph("g").add("v", inner)
    Graph("g").add("v", bodies.Holder.fixed, x=1)
    Graph("g").add("v", dict, arguments={"obj": 1})


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", ".", "a\nb", "a\0", " a", 3, None, "\ud800"])
def test_a_name_that_would_mislead_is_refused(name: Any) -> None:
    with pytest.raises(UsageError):
        Graph("g").add(name, bodies.number)


@pytest.mark.parametrize(
    "options", [{"retries": -1}, {"retries": 1.5}, {"version": 2}, {"weight": 0}, {"weight": "a"}, {"size": -1},
                {"weight": float("nan")}, {"weight": 1e308}, {"arguments": {"x": 1}, "x": 2}, {"head": lambda: 1},
                {"arguments": {"head": 1}, "head": bodies.load_head}]
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="vertex v: "):
        Graph("g").add("v", bodies.number, **options)


def test_a_name_is_taken_once_and_a_vertex_of_another_graph_is_none_of_this() -> None:
    graph = Graph("g")
    a = graph.add("a", bodies.number)
    with pytest.raises(UsageError, match="has a vertex a already"):
        graph.add("a", bodies.number)
    with pytest.raises(UsageError, match="a vertex of another graph"):
        Graph("other").add("b", bodies.number, x=a)


def test_a_vertex_where_it_would_not_be_found_is_told() -> None:
    from safepoint.tasks import identity

    graph = Graph("g")
    a = graph.add("a", bodies.number)
    with pytest.raises(UsageError, match="vertex a is inside of an argument"):
        identity.parts(graph.add("b", bodies.number, x={a}))
    with pytest.raises(UsageError, match="vertex a is inside"):
        pickle.dumps(a)
    with pytest.raises(UsageError, match="has no value yet"):
        list(a)
    with pytest.raises(UsageError, match="is named by a text"):
        a[0]  # type: ignore[index]


def test_arguments_whose_names_are_options_go_through_arguments() -> None:
    v = Graph("g").add("v", bodies.total, arguments={"images": [1], "version": 3}, version="4")
    assert (v.template, v.version) == ({"images": [1], "version": 3}, "4")


def needs_size(size: int, *, weight: float = 1.0) -> int:
    return size


def takes_all(x: int, **more: int) -> int:
    return x


def placed(x: int, /) -> int:
    return x


def decorated(*args: Any, **named: Any) -> int:
    return placed(1)


decorated.__wrapped__ = placed  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (needs_size, {"sise": 1}, "its function needs_size takes no argument sise: it takes size, weight"),
        (needs_size, {}, "needs argument size, not given here (size is an option of add, too: give it in arguments=)"),
        (takes_all, {"y": 1}, "its function takes_all needs argument x, not given here"),
        (placed, {"x": 1}, "its function placed takes no argument x: it takes none by name"),
    ],
)
def test_arguments_that_a_function_does_not_take_are_found_before_anything_runs(
    function: Any, arguments: dict[str, int], said: str
) -> None:
    graph = Graph("g")
    with pytest.raises(UsageError) as caught:
        graph.add("v", function, arguments=arguments)
    assert str(caught.value).startswith("vertex v: ") and said in str(caught.value) and not graph.vertices


def test_what_does_not_tell_its_arguments_takes_any() -> None:
    for function in (takes_all, decorated, dict):
        assert Graph("g").add("v", function, x=1, y=2).template == {"x": 1, "y": 2}


def test_a_vertex_and_a_graph_are_printed_in_a_line() -> None:
    graph = Graph("g")
    v = graph.add("v", bodies.number)
    said = f"{graph} {v} {v['left']}"
    assert said == "<Graph g: 1 vertex> <Vertex v: testbed.task_bodies_store:number> <Edge v.left>"


def test_dot_and_graphml_have_each_vertex_and_edge() -> None:
    graph = Graph('a "graph" <&>')
    a = graph.add('odd "name" <&>', bodies.number)
    graph.add("v", bodies.total, images=[a, a["left"]])
    assert graph.dot().count("->") == 2 and '"odd \\"name\\" <&>" -> "v" [label="left"];' in graph.dot()
    page = minidom.parseString(graph.graphml())
    assert len(page.getElementsByTagName("node")) == 2 and len(page.getElementsByTagName("edge")) == 2
    assert page.getElementsByTagName("node")[0].getElementsByTagName("data")[0].firstChild.data == 'odd "name" <&>'
