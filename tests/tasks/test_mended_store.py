"""Results that were wrong, or lost, until each of these held."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from testbed import task_graphs
from testbed.commands import cli
from testbed.waiting import wait_for

from safepoint.disk import Disk
from safepoint.errors import LockedError, TaskError, UsageError
from safepoint.tasks import Graph, functions, scratch, tending
from safepoint.tasks.found import Found
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store


def run(graph: Graph, directory: Path) -> Found:
    with ThreadPoolExecutor(1) as executor:
        return graph.run(executor, directory=directory)


def saved(as_file: bool) -> Any:
    values = np.arange(5)
    if not as_file:
        return values
    np.save(scratch() / "values.npy", values)
    return scratch() / "values.npy"


def kind(value: Any) -> str:
    return type(value).__name__


def test_a_file_is_another_input_than_the_array_with_the_same_bytes(tmp_path: Path) -> None:
    kinds = []
    for as_file in (True, False):
        graph = Graph("g")
        graph.add("kind", kind, value=graph.add("saved", saved, as_file=as_file))
        kinds.append(run(graph, tmp_path)["kind"])
    assert kinds == [type(tmp_path).__name__, "ndarray"]


def random_file() -> Path:
    path = scratch() / "file"
    path.write_bytes(os.urandom(8))
    return path


def handed_on(path: Path, inside: bool) -> Any:
    return [path] if inside else path


@pytest.mark.parametrize("inside", [False, True])
def test_a_path_into_the_store_is_no_result(inside: bool, tmp_path: Path) -> None:
    """It would be the same input for those below when the file has other contents."""
    graph = Graph("g")
    graph.add("on", handed_on, path=graph.add("file", random_file), inside=inside)
    with pytest.raises(TaskError, match="is the result of another vertex"):
        run(graph, tmp_path)


def whole_scratch() -> Path:
    return scratch()


def test_the_scratch_directory_itself_is_no_result(tmp_path: Path) -> None:
    """It was kept as a path to what was removed a moment later."""
    graph = Graph("g")
    graph.add("whole", whole_scratch)
    with pytest.raises(TaskError, match="is the scratch directory"):
        run(graph, tmp_path)


def forks(how: str) -> str:
    child = os.fork()
    if not child:
        if how == "exit":
            sys.exit(5)
        return "child"
    return f"parent of one that ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


@pytest.mark.parametrize("how", ["exit", "return"])
def test_a_forked_body_gives_one_result(how: str, tmp_path: Path) -> None:
    """A child that came back to the worker answered for it: its result was that of the vertex."""
    graph = Graph("g")
    graph.add("forks", forks, how=how)
    assert graph.run(1, directory=tmp_path)["forks"].startswith("parent of one that ended with ")


def test_a_set_of_a_class_of_its_own_has_one_identity() -> None:
    """In the order of Python, which changes with each start, its vertex ran each time."""
    program = (
        "from safepoint.tasks import Graph, identity\nclass Named(set): pass\n"
        "print(identity.parts(Graph('g').add('v', dict, value=Named('abcdefgh'))))"
    )
    said = {task_graphs.python("-c", program, PYTHONHASHSEED=str(n)) for n in range(3)}
    assert len(said) == 1


def test_a_vertex_that_is_to_be_kept_now_is_made_again(tmp_path: Path) -> None:
    for keep in (False, True, True):
        graph = Graph("g")
        graph.add("kind", kind, value=1, keep=keep)
        found = run(graph, tmp_path)
    assert found["kind"] == "int"
    assert found.ran == []


LONG = """
import time
from safepoint.tasks import Graph
def step(n, before):
    time.sleep(0 if n < 10 else 600)
    return n
g, last = Graph("long"), 0
for n in range(12):
    last = g.add(f"step-{n}", step, n=n, before=last)
g.run(1)
"""


def test_clean_leaves_what_a_killed_run_has_made(tmp_path: Path) -> None:
    """graph.json is of its begin, when most vertices had no identity: all ten were removed."""
    (tmp_path / "long.py").write_text(LONG)
    driver = task_graphs.start("import runpy; runpy.run_path('long.py', run_name='__main__')", tmp_path)
    store = Store(tasks_directory(tmp_path))
    with task_graphs.nobody_left(driver):
        wait_for(lambda: len(store.records()) == 10)
    assert cli("tasks", "clean", "--yes", "-C", tmp_path).exit_code == 0
    assert len(store.records()) == 10


def text(value: str) -> str:
    return value * 100_000


def test_get_leaves_a_file_as_it_was_if_the_result_is_damaged(tmp_path: Path) -> None:
    graph = Graph("g")
    graph.add("text", text, value="a")
    run(graph, tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("old")
    kept = next(Path(tasks_directory(tmp_path), "done").glob("*/out.pkl"))
    shutil.copy(kept, tmp_path / "copy")
    kept.write_bytes(b"b" + kept.read_bytes()[1:])
    assert cli("tasks", "get", "text", "-o", mine, "-C", tmp_path).exit_code == 18
    assert mine.read_text() == "old"
    shutil.copy(tmp_path / "copy", kept)
    assert cli("tasks", "get", "text", "-o", mine, "-C", tmp_path).exit_code == 0
    assert b"aaa" in mine.read_bytes()


MODULE = """
def value(x):
    return {0}
"""
CHANGED = """
import os, sys, time
from safepoint.tasks import Graph
import steps
g, workers = Graph("changed"), {workers}
g.add("first", steps.value, x=1)
if workers:
    g.run(workers)  # so that the function has been looked at
    g.add("second", steps.value, x=2)
with open("steps.py", "w") as file:
    file.write({text!r})
if workers:
    g.run(workers)
else:
    from concurrent.futures import ThreadPoolExecutor
    g.run(ThreadPoolExecutor(1))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_that_changed_after_it_was_loaded_gives_no_result(workers: int, tmp_path: Path) -> None:
    """The older code ran, and its result was kept as one of the newer; in a new worker it was the other way round."""
    (tmp_path / "steps.py").write_text(MODULE.format(1))
    (tmp_path / "run.py").write_text(CHANGED.format(text=MODULE.format("x * 22"), workers=workers))
    done = task_graphs.run("-B", "run.py", cwd=tmp_path)
    assert "start the program again" in done.stderr.splitlines()[-1]
    assert {record.vertex for record in Store(tasks_directory(tmp_path)).records().values()} <= {"first"}


ANNOTATED = """
from safepoint.tasks import Graph
def f(x: int):
    return str(f.__annotations__["x"])
g = Graph("g")
g.add("f", f, x=1)
print(g.run(1)["f"])
"""


def test_a_worker_compiles_a_program_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(ANNOTATED)
    assert "<class 'int'>" in task_graphs.python("run.py", cwd=tmp_path)


@pytest.mark.parametrize("program", ["a prompt", "two runs"])
def test_functions_that_workers_cannot_have_are_told_with_a_remedy(program: str, tmp_path: Path) -> None:
    text = "from safepoint.tasks import Graph\ndef f(x): return x\ng = Graph('g')\ng.add('f', f, x=1)\ng.run(1)\n"
    (tmp_path / "run.py").write_text(f"{text}def h(x): return x\ng.add('h', h, x=2)\ng.run(1)\n")
    arguments = ["-c", text] if program == "a prompt" else ["run.py"]
    done = task_graphs.run(*arguments, cwd=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert ("on=ThreadPoolExecutor" if program == "a prompt" else "up to its first call of run") in last


def many(count: int) -> dict[str, int]:
    return {f"key-{n}": n for n in range(count)}


def test_a_dict_of_very_many_texts_is_one_result(tmp_path: Path) -> None:
    """Of each value a file was made and flushed: twenty thousand took a minute."""
    graph = Graph("g")
    graph.add("many", many, count=20_000)
    found = run(graph, tmp_path)
    assert found["many"] == many(20_000)
    assert len(found.records["many"].outputs) == 1


def test_an_argument_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="vertex v: an argument holds itself"):
        Graph("g").add("v", kind, value=endless)


def test_a_function_with_other_code_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook that reloads modules by itself puts the new code into the functions that there are."""
    before = functions.digest(text)
    monkeypatch.setattr(text, "__code__", kind.__code__)
    assert functions.digest(text) != before


def dotted() -> dict[str, int]:
    return {"a.b": 1, "c": 2}


def test_names_of_outputs_may_have_dots(tmp_path: Path) -> None:
    graph = Graph("g")
    graph.add("v.w", dotted)
    found = run(graph, tmp_path)
    assert (found["v.w.a.b"], found["v.w.c"], found["v.w"]) == (1, 2, dotted())
    assert cli("tasks", "get", "v.w.a.b", "-C", tmp_path).output.strip() == "1"


def test_two_runs_of_one_process_are_told_of_each_other(tmp_path: Path) -> None:
    """It was said that there had been an earlier `init`, if both began at once."""
    said: list[str] = []

    def start() -> None:
        graph = Graph("g")
        graph.add("sleep", time.sleep, arguments={})
        with pytest.raises((LockedError, TaskError)) as error:
            run(graph, tmp_path)
        said.append(str(error.value))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [each for each in said if "init" in each]


def test_a_graph_that_is_nested_too_deeply_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"graph\.json cannot be read .*nothing was removed"):
        tending.used_by_last(SimpleNamespace(directory=str(tmp_path), disk=Disk()), False)  # type: ignore[arg-type]
