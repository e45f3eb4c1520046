"""The identity of a vertex: what each change makes run again, and what it does not. T4."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import task_bodies_store as bodies
from testbed import task_graphs
from testbed.counted_work import assert_linear

from safepoint.errors import UsageError
from safepoint.tasks import Graph, functions, identity, values
from safepoint.tasks.jobs import Record
from safepoint.tasks.saved import Store

_numbers = itertools.count()
BODY = '''
import os

def work(x, y=2):
    """Do it."""
    total = x + y  # a comment
    return total

def head():
    return 1
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A module of this text, each time another one, with functions of the same names."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(text: str) -> Any:
        name = f"task_code_{os.getpid()}_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


def key(
    function: Any, digest: str = "1" * 32, name: str = "v", edges: int = 1, seed: int = 0, **options: Any
) -> str:  # fmt: skip
    graph = Graph("g", seed=seed)
    parents = [graph.add(f"p{n}", bodies.number) for n in range(edges)]
    options.setdefault("x", parents[0] if edges == 1 else parents)
    vertex = graph.add(name, function, **options)
    return identity.key(identity.parts(vertex), name, [digest, *(str(n) * 32 for n in range(2, edges + 1))])


CHANGES: dict[str, tuple[tuple[str, str], bool]] = {
    "another number": (("x + y", "x + y + 1"), True),
    "another name of a variable": (("total", "result"), True),
    "another default": (("y=2", "y=3"), True),
    "a decorator": (("def work", "@staticmethod\ndef work"), True),
    "a comment": (("# a comment", "# another one"), False),
    "no comment": (("  # a comment", ""), False),
    "a blank line": (("    return total", "\n    return total"), False),
    "spaces": (("x + y", "x  +  y"), False),
    "brackets": (("x + y", "(x + y)"), False),
    "the docstring": (("Do it.", "Do it well."), False),
    "no docstring": (('    """Do it."""\n', ""), False),
    "what stands before it": (("import os", "import os, sys\nX = 1"), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_vertex_runs_again_if_its_function_says_something_else(module: Any, change: str) -> None:
    (old, new), again = CHANGES[change]
    before = functions.digest(module(BODY).work)
    function = module(BODY.replace(old, new)).work
    assert (functions.digest(function) != before) is again


def test_a_function_without_source_counts_by_its_import_path() -> None:
    import math

    assert functions.digest(math.sqrt) != functions.digest(math.sin)
    assert functions.path(math.sqrt) == "math:sqrt"


def test_a_function_typed_at_a_prompt_counts_by_what_was_compiled() -> None:
    def typed(text: str) -> Any:
        found: dict[str, Any] = {"__name__": "__main__"}
        exec(text, found)
        return found["f"]

    text = "def f(x):\n    return x in {'a', 'b'} and [x for x in 'ab']\n"
    assert functions.digest(typed(text)) == functions.digest(typed(text))
    assert functions.digest(typed(text)) != functions.digest(typed(text.replace("'b'", "'c'")))
    assert functions.digest(typed(text)) != functions.digest(typed(text.replace("[x for", "[1 for")))


def other_options() -> dict[str, tuple[dict[str, Any], bool]]:
    from numpy import arange, zeros

    return {
        "nothing": ({}, False),
        "version": ({"version": "2"}, True),
        "the name": ({"name": "w"}, True),
        "a parameter": ({"y": 3}, True),
        "1 and 1.0": ({"y": 1.0}, True),
        "1 and True": ({"y": True}, True),
        "a text and its bytes": ({"y": b"1"}, True),
        "other bytes of an input": ({"digest": "2" * 32}, True),
        "one more input": ({"edges": 2}, True),
        "an array": ({"y": arange(3)}, True),
        "another array": ({"y": zeros(3)}, True),
        "the seed of the graph": ({"seed": 1}, True),
        "a head": ({"head": bodies.load_head}, True),
        "retries": ({"retries": 3}, False),
        "weight": ({"weight": 3.0}, False),
        "size": ({"size": 3}, False),
        "keep": ({"keep": False}, False),
    }


def test_the_table_of_options() -> None:
    before = key(bodies.loose, y=1)
    keys = {}
    for change, (options, again) in other_options().items():
        keys[change] = key(bodies.loose, **{"y": 1, **options})
        assert (keys[change] != before) is again, change
    changed = [keys[change] for change, (_, again) in other_options().items() if again]
    assert len(set(changed)) == len(changed)


def test_the_order_of_inputs_counts_and_that_of_named_arguments_does_not() -> None:
    def of(*order: str, swap: bool = False) -> str:
        graph = Graph("g")
        found = {name: graph.add(name, bodies.number) for name in ("p", "q")}
        named = {"more": 1, "images": [found[name] for name in order]}
        vertex = graph.add("v", bodies.total, arguments=dict(reversed(named.items())) if swap else named)
        return identity.key(identity.parts(vertex), "v", [f"{edge.vertex.name}" for edge in vertex.edges])

    assert of("p", "q") != of("q", "p")
    assert of("p", "q") == of("p", "q", swap=True)


def test_where_an_edge_stands_counts() -> None:
    graph = Graph("g")
    p, q = (graph.add(name, bodies.number) for name in ("p", "q"))
    one = graph.add("one", bodies.total, images=[p, q], last=[])
    two = graph.add("two", bodies.total, images=[p], last=[q])
    assert identity.parts(one)["parameters"] != identity.parts(two)["parameters"]


def test_what_is_equal_has_one_identity_in_whatever_process_and_however_it_was_made() -> None:
    """Sets come in another order with each start of Python; and two equal texts may be one object or two."""
    text = "".join(["a", "b"])
    assert key(bodies.number, y=[text, text]) == key(bodies.number, y=["a" + "b"[:1], "".join(["a", "b"])])
    code = """
from testbed import task_bodies_store as bodies
from safepoint.tasks import Graph, identity
v = Graph("g").add("v", bodies.number, x={"some", "texts", "in", "a", "set"}, y={"k": frozenset({("a", 1), ("b", 2)})})
print(identity.key(identity.parts(v), "v", []))
"""
    found = {task_graphs.python("-c", code, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")}
    assert len(found) == 1


def test_a_function_as_a_parameter_counts_by_what_it_says(module: Any) -> None:
    one, same, other = (
        module(text).work for text in (BODY, BODY.replace("# a", "# b"), BODY.replace("x + y", "x - y"))
    )
    assert key(bodies.number, y=one) == key(bodies.number, y=same) != key(bodies.number, y=other)


def test_a_list_that_the_program_changes_afterwards_changes_no_vertex() -> None:
    graph, names = Graph("g"), ["a"]
    one = graph.add("one", bodies.number, x=names)
    names.append("b")
    two = graph.add("two", bodies.number, x=names)
    assert (one.template["x"], two.template["x"]) == (["a"], ["a", "b"])


def test_what_has_changed_is_told_in_words() -> None:
    graph = Graph("g")
    p = graph.add("read-17", bodies.number)
    old, new = (graph.add(name, bodies.number, x=p["left"], y=y) for name, y in (("a", 1), ("b", 2)))
    before = identity.noted(identity.parts(old), old, ["1"])
    assert identity.differs(before, before) == []
    assert identity.differs(before, identity.noted(identity.parts(new), new, ["2"])) == [
        "its parameters changed",
        "input read-17.left has other bytes",
    ]


def test_a_parameter_that_cannot_be_pickled_is_named() -> None:
    import threading

    vertex = Graph("g").add("v", bodies.number, x=1, y=[threading.Lock()])
    with pytest.raises(UsageError, match="vertex v: its argument y, list, cannot be pickled"):
        identity.parts(vertex)
    vertex = Graph("g").add("v", bodies.number, x=1, y=[lambda: 1])
    with pytest.raises(UsageError, match="vertex v: its argument y, list, cannot be pickled: a function is a lambda"):
        identity.parts(vertex)


def test_a_method_as_a_parameter_counts_with_its_object() -> None:
    assert key(bodies.number, y=[1, 2].__contains__) != key(bodies.number, y=[1, 3].__contains__)


def test_identities_of_finished_vertices_cost_as_much_as_there_are(tmp_path: Path) -> None:
    """Records of all, and their identities."""

    def finished(count: int) -> Callable[[], object]:
        graph, last = Graph("g"), 1.0  # type: Graph, Any
        for n in range(count):
            last = graph.add(f"v{n}", bodies.number, x=last, y=n)
        store, digests = Store(tmp_path / f"{count}/.safepoint.d/tasks"), dict[str, str]()
        (tmp_path / f"{count}").mkdir()
        with store.held():
            writer = store.writer()
            for vertex, parts, identified, inputs in identified_of(graph, digests):
                record = Record(vertex.name, identified, (), False, parts=identity.noted(parts, vertex, inputs))
                digests[vertex.name] = writer.put(record, values.encode(1.5)).digest()
            writer.close()

        def planned() -> None:
            records, again = store.records(), dict[str, str]()
            for vertex, _, identified, _ in identified_of(graph, again):
                again[vertex.name] = records[identified].digest()
            assert len(records) == count and again == digests

        return planned

    assert_linear(finished, 300)


def identified_of(graph: Graph, digests: dict[str, str]) -> Iterator[tuple[Any, dict[str, Any], str, list[str]]]:
    """Each vertex with its parts, its identity, and the digests of its inputs, which the caller fills in."""
    for vertex in graph.order():
        inputs = [digests[edge.vertex.name] for edge in vertex.edges]
        parts = identity.parts(vertex)
        yield vertex, parts, identity.key(parts, vertex.name, inputs), inputs
