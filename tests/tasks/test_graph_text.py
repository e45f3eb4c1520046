"""A graph as TOML: what is written is read as the same graph, and each error names file, table and key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed import task_code_text as code
from testbed import task_graphs
from testbed.counted_work import assert_linear
from testbed.sweep import many

from safepoint.errors import GraphError, UsageError
from safepoint.tasks import Graph, identity
from safepoint.tasks.graph import check_name
from safepoint.tasks.jobs import Slot

HEAD = 'graph = "filter"\ncode = "testbed.task_code_text"\n'
EXAMPLE = f"""{HEAD}seed = 7
[low]                        # stands before what it needs
run = "low_pass"
in = {{ x = "read.left", more = ["read", {{ k = "read.right" }}] }}
weight = 2
retries = 3
version = "b"
head = "head"
keep = false
size = 10
[read]
run = "read_wav"
with = {{ path = "in.wav" }}
"""


def text(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "sky.toml"
    path.write_text(content)
    return path


def test_a_text_is_read_with_its_tables_in_any_order(tmp_path: Path) -> None:
    graph = Graph.read(text(tmp_path, EXAMPLE))
    assert (graph.name, graph.seed, list(graph.vertices)) == ("filter", 7, ["read", "low"])
    low, read = graph.vertices["low"], graph.vertices["read"]
    assert low.template == {"more": [Slot(0), {"k": Slot(1)}], "x": Slot(2)}
    assert [(edge.vertex, edge.output) for edge in low.edges] == [(read, ""), (read, "right"), (read, "left")]
    assert (low.weight, low.retries, low.version, low.keep, low.size) == (2.0, 3, "b", False, 10)
    assert (low.function, low.head, read.template) == (code.low_pass, code.head, {"path": "in.wav"})


def same(one: Graph, other: Graph) -> bool:
    def told(graph: Graph) -> Any:
        return graph.name, graph.seed, {
            v.name: (identity.parts(v), [(e.vertex.name, e.output) for e in v.edges], v.weight, v.retries, v.keep)
            for v in graph.order()
        }  # fmt: skip

    return told(one) == told(other)


def test_what_is_written_is_read_as_the_same_graph(tmp_path: Path) -> None:
    first = Graph.read(text(tmp_path, EXAMPLE))
    first.write(tmp_path / "again.toml")
    assert same(Graph.read(tmp_path / "again.toml"), first)


NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=8)
PLAIN = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.integers(), st.booleans(), st.floats(allow_nan=False)
)
VALUES = st.recursive(PLAIN, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(st.text(st.characters(
    exclude_categories=["Cs"])), v, max_size=3)), max_leaves=6)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph("drawn", seed=draw(st.integers(0, 9)))
    for name in draw(st.lists(NAMES, unique=True, max_size=6)):
        try:
            check_name(name, "a vertex")
        except UsageError:
            continue
        arguments = draw(st.dictionaries(st.sampled_from(["x", "y", "z", "odd name"]), VALUES, max_size=3))
        if graph.vertices:
            there = st.sampled_from(list(graph.vertices.values()))
            edge = st.one_of(there, there.map(lambda v: v["left"]))
            arguments["edges"] = draw(st.one_of(edge, st.lists(edge, min_size=1), st.fixed_dictionaries({"k": edge})))
        graph.add(name, code.low_pass, arguments=arguments, weight=draw(st.floats(0.1, 10)), version=draw(NAMES))
    return graph


@settings(max_examples=many(100))
@given(graph=graphs())
def test_any_graph_that_can_be_written_is_read_as_the_same(graph: Graph, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.toml"
    try:
        graph.write(path)
    except GraphError as error:
        assert "would mean another vertex" in str(error) or "means something else" in str(error)
        return
    assert same(Graph.read(path), graph)


ALPHABET = ["[read]", "[low]", "run", "in", "with", "=", '"read"', '"low.x"', *"{}[],\n1x."]


@settings(max_examples=many(150))
@given(
    content=st.one_of(st.text(), st.lists(st.sampled_from(ALPHABET), max_size=25).map(" ".join)), whole=st.booleans()
)
def test_no_text_makes_another_error_than_ours(content: str, whole: bool, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.toml"
    path.write_bytes((HEAD * whole + content).encode("utf-8", "surrogatepass"))
    try:
        Graph.read(path)
    except GraphError as error:
        assert str(path) in str(error) and "nothing was run" in str(error)


@settings(max_examples=many(100))
@given(at=st.integers(0, len(EXAMPLE) - 1), what=st.sampled_from(["", "\n", '"', "=", "]", "x", "..", "/"]))
def test_a_text_with_a_fault_anywhere_makes_another_graph_or_our_error(
    at: int, what: str, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.toml"
    path.write_text(EXAMPLE[:at] + what + EXAMPLE[at + 1 :])
    try:
        assert isinstance(Graph.read(path), Graph)
    except GraphError as error:
        assert str(path) in str(error)


WRONG = {
    "no graph": ('code = "x"', "graph: is missing"),
    "no TOML": ("graph = ", "no TOML"),
    "a name of the graph with /": (HEAD.replace("filter", "a/b"), "graph: 'a/b' cannot name a graph"),
    "graph is a number": ("graph = 3", "graph: is not a text"),
    "a vertex with the name of a key": (HEAD + "[seed]\nrun = 'head'", "seed: names a table"),
    "a key that is not known": (HEAD + "speed = 3", "speed: is not known here"),
    "a key in a table": (HEAD + "[a]\nrun = 'head'\nruns = 3", "[a] runs: is not known"),
    "no run": (HEAD + "[a]", "[a] run: is missing"),
    "run is no text": (HEAD + "[a]\nrun = 3", "[a] run: is not a text"),
    "retries is true": (HEAD + "[a]\nrun = 'head'\nretries = true", "[a] retries: is not a whole number"),
    "retries is below 0": (HEAD + "[a]\nrun = 'head'\nretries = -1", "[a]: vertex a: retries"),
    "no such function": (HEAD + "[a]\nrun = 'hed'", "[a] run: testbed.task_code_text has no function 'hed'"),
    "no function": (HEAD + "[a]\nrun = 'NOT_A_FUNCTION'", "[a] run: testbed.task_code_text has no function"),
    "no such head": (HEAD + "[a]\nrun = 'head'\nhead = 'hed'", "[a] head: testbed.task_code_text has no"),
    "no code": ('graph = "g"\n[a]\nrun = "f"', "[a] run: in which module is f?"),
    "no such module": ('graph = "g"\ncode = "no_such_module"\n[a]\nrun = "f"', "no_such_module cannot be imported"),
    "no such file": ('graph = "g"\ncode = "none.py"\n[a]\nrun = "f"', "none.py cannot be imported: FileNotFoundError"),
    "no such vertex": (HEAD + "[a]\nrun = 'head'\nin = { x = ['a', 'b.c'] }", "[a] in.x[1]: there is no vertex 'b.c'"),
    "no such argument": (HEAD + "[a]\nrun='twice'\nwith={x=1, y=2}", "[a] with.y: its function twice takes"),
    "no such edge's argument": (HEAD + "[b]\nrun='head'\n[a]\nrun='head'\nin={b='b'}", "[a] in.b: its function head"),
    "a head that is not taken": (HEAD + "[a]\nrun='head'\nhead='head'", "[a] head: its function head takes no"),
    "too few arguments": (HEAD + "[a]\nrun='twice'", "[a] run: its function twice needs argument x, not given"),
    "no edge": (HEAD + "[a]\nrun = 'head'\nin = { x = { k = 3 } }", "[a] in.x.k: 3 is no edge"),
    "itself": (HEAD + "[a]\nrun = 'head'\nin = { x = 'a' }", "in a circle: a <- a"),
    "a circle": (
        HEAD + "[a]\nrun='head'\nin={x='b.l'}\n[b]\nrun='head'\nin={x='c'}\n[c]\nrun='head'\nin={x=['b']}",
        "[b] in: the vertices need each other in a circle: b <- c <- b",
    ),
    "a name twice": (HEAD + "[a]\nrun = 'head'\n[a]\nrun = 'head'", "no TOML"),
    "an argument twice": (HEAD + "[b]\nrun='head'\n[a]\nrun = 'head'\nwith={x=1}\nin={x='b'}", "[a] in.x: is given by"),
    "a name with ..": (HEAD + '["a..b"]\nrun = "head"', "[a..b]: 'a..b' cannot name a vertex"),
    "a name with /": (HEAD + '["a/b"]\nrun = "head"', "[a/b]: 'a/b' cannot name a vertex"),
    "after is no list": (HEAD + "[a]\nrun='head'\nafter='b'", "[a] after: is not a list"),
    "after no vertex": (HEAD + "[a]\nrun='head'\nafter=[1]", '[a] after[0]: 1 is no vertex: it is written as "vertex"'),
    "after none of these": (HEAD + "[a]\nrun='head'\nafter=['b']", "[a] after[0]: there is no vertex 'b'"),
    "after an output": (
        HEAD + "[b]\nrun='head'\n[a]\nrun='head'\nafter=['b.x']", "[a] after[0]: 'b.x' is an output"),
    "after it": (HEAD + "[a]\nrun='head'\nafter=['a']", "[a] after: the vertices need each other in a circle: a <-"),
    "after what needs it": (HEAD + "[a]\nrun='head'\nafter=['b']\n[b]\nrun='low_pass'\nin={x='a'}",
                            "[a] after: the vertices need each other in a circle: a <- b <- a"),
    "needed by what is before it": (HEAD + "[a]\nrun='low_pass'\nin={x='b'}\n[b]\nrun='head'\nafter=['a']",
                                    "[a] in: the vertices need each other in a circle: a <- b <- a"),
    "an empty name": (HEAD + '[""]\nrun = "head"', "needs a name"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_an_error_names_file_table_and_key(tmp_path: Path, fault: str) -> None:
    content, said = WRONG[fault]
    path = text(tmp_path, content)
    with pytest.raises(GraphError) as caught:
        Graph.read(path)
    assert str(caught.value).startswith(f"{path}: ") and said in str(caught.value), str(caught.value)
    assert str(caught.value).endswith("nothing was run")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"none\.toml: cannot be read: No such file"):
        Graph.read(tmp_path / "none.toml")


@pytest.mark.parametrize("value", [(1, 2), None, {1: 2}, b"x", {3}, [object()]])
def test_what_toml_cannot_say_is_not_written(tmp_path: Path, value: Any) -> None:
    graph = Graph("g")
    graph.add("v", code.low_pass, x=value)
    with pytest.raises(GraphError, match="vertex v: "):
        graph.write(tmp_path / "g.toml")
    assert list(tmp_path.iterdir()) == []


def test_code_that_lies_beside_the_text_is_found_from_anywhere_and_by_other_processes(tmp_path: Path) -> None:
    """Under its own name, so that a result of its functions can be pickled and a worker imports the same."""
    (tmp_path / "beside_text.py").write_text("def f(x=1):\n    return x\n")
    (tmp_path / "other_beside.py").write_text("def f(x=1):\n    return x + 1\n")
    path = text(tmp_path, 'graph = "g"\ncode = "beside_text.py"\n[a]\nrun = "f"\n[b]\nrun = "other_beside.py:f"\n')
    program = """
import sys
from safepoint.tasks import Graph
g = Graph.read(sys.argv[1])
print([v.function.__module__ for v in g.order()])
g.write(sys.argv[1] + ".again")
print(open(sys.argv[1] + ".again").read().replace("\\n\\n", "\\n") == open(sys.argv[1]).read())
"""
    said = task_graphs.python("-c", program, path, cwd=Path("/"))
    assert said == "['beside_text', 'other_beside']\nTrue\n"


def test_a_fan_in_of_many_is_read_in_as_much_work_as_they_are(tmp_path: Path) -> None:
    def written(count: int) -> Callable[[], object]:
        rows = [f'[v{n}]\nrun = "read_wav"\nwith = {{ path = "{n}" }}' for n in range(count)]
        edges = ", ".join(f'"v{n}"' for n in range(count))
        path = tmp_path / f"{count}.toml"
        path.write_text(HEAD + "\n".join(rows) + f'\n[all]\nrun = "low_pass"\nin = {{ x = [{edges}] }}\n')
        return lambda: found.append(len(Graph.read(path).vertices["all"].edges))

    found: list[int] = []
    assert_linear(written, 500)
    assert found == [500, 1000]
