"""`after`: a vertex that comes after others, of which no value comes. On all engines, and as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed import task_bodies_after as bodies

from safepoint.errors import TaskError, UsageError
from safepoint.tasks import Graph, identity
from safepoint.tasks.schedule import problem

ORDER = 'graph = "g"\ncode = "testbed.task_bodies_after"\n'


def test_it_runs_after_them_and_no_value_of_theirs_is_moved_or_loaded(tmp_path: Path) -> None:
    bodies.check_order(2, tmp_path)


def test_those_below_one_that_failed_are_skipped(tmp_path: Path) -> None:
    g = Graph("g")
    bad = g.add("bad", bodies.reads, paths=[str(tmp_path / "none")])
    g.add("last", bodies.writes, path=str(tmp_path / "a"), text="", after=[bad])
    with pytest.raises(TaskError, match="1 not run"):
        g.run(directory=tmp_path, workers=1)
    assert not (tmp_path / "a").exists()


def test_what_is_no_vertex_of_the_graph_is_refused() -> None:
    g, other = Graph("g"), Graph("other")
    a, foreign = g.add("a", bodies.reads, paths=[]), other.add("a", bodies.reads, paths=[])
    for wrong in (a, "a", [a["x"]], ["a"], None):
        with pytest.raises(UsageError, match="vertex b: after is a list of vertices"):
            g.add("b", bodies.reads, paths=[], after=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a in its after is a vertex of another graph"):
        g.add("b", bodies.reads, paths=[], after=[foreign])
    assert list(g.vertices) == ["a"]


def test_the_order_in_which_they_are_listed_changes_no_identity_and_one_more_does() -> None:
    g = Graph("g")
    a, b = g.add("a", bodies.reads, paths=[]), g.add("b", bodies.reads, paths=[])
    listed = [g.add(f"c{n}", bodies.reads, paths=[], after=after) for n, after in enumerate(([a, b], [b, a, b]))]
    assert [[(edge.vertex.name, edge.output) for edge in each.edges] for each in listed] == [
        [("a", None), ("b", None)]
    ] * 2
    notes = [identity.noted({}, listed[0], digests) for digests in (("1", "2"), ("1", "3"))]
    assert identity.differs(*notes) == ["b, which it comes after, is another one"]


def test_as_text_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    path.write_text(
        ORDER + '[last]\nrun = "reads"\nwith = { paths = [] }\nafter = ["size", "a.b"]\n'
        '[size]\nrun = "reads"\nwith = { paths = [] }\n["a.b"]\nrun = "reads"\nin = { paths = "size" }\n'
    )
    for _ in range(2):
        g = Graph.read(path)
        assert [(edge.vertex.name, edge.output) for edge in g.vertices["last"].edges] == [("a.b", None), ("size", None)]
        assert g.vertices["last"].template == {"paths": []} and list(g.vertices)[-1] == "last"
        g.write(path)
    assert 'after = ["a.b", "size"]' in path.read_text()


def test_an_argument_of_this_name_is_still_possible(tmp_path: Path) -> None:
    g = Graph("g")
    a = g.add("a", bodies.reads, paths=[])
    b = g.add("b", dict, arguments={"after": a})
    assert [edge.output for edge in b.edges] == [""] and list(b.template) == ["after"]


def test_plans_and_drawings_keep_the_order_and_move_nothing(tmp_path: Path) -> None:
    g = bodies.graph(tmp_path)
    made = problem(g, {}, {("a", ""): 1e9, ("size", ""): 8.0})
    names = list(made.names)
    parents = {names[parent]: nbytes for parent, nbytes in made.parents[names.index("last")]}
    assert parents == {"a": 0.0, "b": 0.0, "size": 8.0}
    assert g.dot().count("style=dashed") == 5 and g.graphml().count('<data key="after">true</data>') == 5


def test_the_page_draws_them(tmp_path: Path) -> None:
    from safepoint.tasks import log
    from safepoint.tasks.pictures.past import nodes_of

    bodies.graph(tmp_path).run(directory=tmp_path, workers=2)
    content = log.graph(str(tmp_path / ".safepoint.d/tasks"))
    assert content is not None
    assert {node.name: sorted(node.parents) for node in nodes_of(content["vertices"])}["lone"] == ["a", "b"]
