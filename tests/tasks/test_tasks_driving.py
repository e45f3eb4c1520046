"""What a driver does with vertices that fail, die, change, are lost or stopped. By threads, if that tells as much."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed import task_bodies_engine as b
from testbed import task_graphs
from testbed.counted_work import assert_linear
from testbed.faultdisk import FaultDisk
from testbed.task_graphs import AtOnce
from testbed.waiting import wait_for

from safepoint.errors import LockedError, TaskError, UsageError
from safepoint.pace import limits, stopping
from safepoint.tasks import Graph, driving, ending, identity
from safepoint.tasks.found import Stopped
from safepoint.tasks.planning import Plan
from safepoint.tasks.running import Step, tasks_directory
from safepoint.tasks.saved import Store


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def failed(graph: Graph, on: Any, directory: Path, **options: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        graph.run(on, directory=directory, **options)
    return caught.value


# Failures.


def test_a_failed_vertex_costs_those_that_need_it_and_nothing_else(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    good = g.add("good", b.add, a=1)
    bad = g.add("bad", b.fails, notes=str(tmp_path), times=9, arguments={"name": "bad"})
    child = g.add("child", b.add, a=bad)
    g.add("grandchild", b.add, a=child, b=good)
    g.add("other", b.add, a=good)
    error = failed(g, threads, tmp_path)
    found = error.found  # type: ignore[attr-defined]
    assert dict(found) == {"good": 2, "other": 3}
    assert found.failed["bad"].kind == "ValueError" and found.skipped == {"child": "bad", "grandchild": "bad"}
    assert "1 of 5 vertices failed, 2 not run that need them: bad: ValueError: failure 1 of 9" in str(error)
    assert "task_bodies_engine.py:" in str(error) and " in fails)" in str(error) and error.code == 22
    assert "in fails" in found.failed["bad"].traceback and "body.py" not in found.failed["bad"].traceback
    with pytest.raises(KeyError, match="child was not run: it needs bad, which failed"):
        found["child"]


def test_a_vertex_is_tried_as_often_as_it_allows_and_then_corrected_and_started_again(
    threads: Any, tmp_path: Path
) -> None:
    def graph(retries: int) -> Graph:
        g = Graph("g")
        g.add("v", b.fails, retries=retries, notes=str(tmp_path), times=3, arguments={"name": "v"})
        return g

    steps: list[Step] = []
    failed(graph(1), threads, tmp_path, progress=steps.append)
    assert [(step.event, step.text) for step in steps if step.vertex] == [
        ("again", "1 of 2 attempts"), ("failed", "2 of 2 attempts"),
    ]  # fmt: skip
    assert graph(1).run(threads, directory=tmp_path)["v"] == "at last"
    assert b.counted(tmp_path) == {"v": 4}


def test_a_call_with_other_arguments_than_a_function_takes_names_the_function(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    g.vertices["v"] = replace(g.add("v", b.add, a=1), template={"nothing": 1})  # `add` would refuse it
    found = failed(g, threads, tmp_path).found  # type: ignore[attr-defined]
    assert found.failed["v"].where.startswith("task_bodies_engine.py:") and found.failed["v"].where.endswith(" in add")


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b.gives_unpicklable, "UsageError", "its result was not kept: the result, Unpicklable, cannot be pickled"),
        (b.raises_strange, "Strange", "(it has no text)"),
        (b.leaves, "SystemExit", "3"),
        (b.interrupts, "KeyboardInterrupt", ""),
    ],
)
def test_whatever_a_body_does_is_its_own_failure(body: Any, kind: str, message: str, tmp_path: Path) -> None:
    """Not the end of a worker, of an engine, or of the run: in the same process the next vertex runs."""
    g = Graph("g")
    g.add("wrong", body)
    g.add("next", b.add, a=1)
    found = failed(g, 1, tmp_path).found  # type: ignore[attr-defined]
    assert found.failed["wrong"].kind == kind and message in found.failed["wrong"].message and found["next"] == 2


def test_an_output_that_is_not_there_fails_the_vertex_that_asks_for_it(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    one = g.add("one", b.value, inputs=[], arguments={"name": "one", "size": 0})
    child = g.add("child", b.add, a=one["nothing"])
    g.add("below", b.add, a=child)
    g.add("good", b.add, a=one["number"])
    found = failed(g, threads, tmp_path).found  # type: ignore[attr-defined]
    assert "one has no output 'nothing': it has number, blob" in found.failed["child"].message
    assert set(found) == {"one", "good"} and set(found.skipped) == {"below"}


def test_arguments_that_cannot_be_sent_fail_before_anything_runs(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    g.add("v", b.length, values=b.Unpicklable())
    with pytest.raises(UsageError, match="vertex v: its argument values, Unpicklable, cannot be pickled"):
        g.run(threads, directory=tmp_path)


def test_a_full_disk_fails_one_vertex_and_the_others_go_on(threads: Any, tmp_path: Path) -> None:
    """ENOSPC in a put names file and cause; `run` raises at its end."""
    from safepoint.tasks import body
    from safepoint.tasks.jobs import Job

    (tmp_path / "store").mkdir()
    store = Store(tasks_directory(tmp_path / "store"))
    with store.held():
        full = Store(store.directory, FaultDisk(tmp_path / "store", fail_at=2, error=errno.ENOSPC, from_then_on=True))
        job = Job("v", "a" * 32, b.big, None, {"nbytes": 100_000}, (), 1, 0, True, {}, "", store.directory)
        ended = body.run(job, full, full.writer(every=0))
    assert ended.record is None and ended.failure is not None
    assert ended.failure.kind == "OSError" and "not kept" in ended.failure.message
    assert os.strerror(errno.ENOSPC) in ended.failure.message and store.directory in ended.failure.message


# Deaths.


def test_the_death_of_a_worker_is_no_failure_of_its_vertex_but_three_are(tmp_path: Path) -> None:
    g = Graph("g")
    g.add("twice", b.dies, notes=str(tmp_path), times=2, arguments={"name": "twice"})
    killer = g.add("always", b.dies, notes=str(tmp_path), times=99, arguments={"name": "always"})
    g.add("below", b.add, a=killer)
    for n in range(6):
        g.add(f"good-{n}", b.told, notes=str(tmp_path), arguments={"name": f"good-{n}"})
    found = failed(g, 2, tmp_path).found  # type: ignore[attr-defined]
    assert found["twice"] == "alive" and found.skipped == {"below": "always"}
    assert found.failed["always"].kind == "WorkerDied" and "SIGKILL" in found.failed["always"].message
    assert b.counted(tmp_path) == {"twice": 3, "always": 3, **{f"good-{n}": 1 for n in range(6)}}


def test_an_executor_that_is_broken_ends_the_run_with_a_clear_error(tmp_path: Path) -> None:
    g = Graph("g")
    g.add("first", b.add, a=1)
    g.add("killer", b.dies, notes=str(tmp_path), times=1, arguments={"name": "killer"})
    with ProcessPoolExecutor(1) as executor, pytest.raises(TaskError, match="takes no more work"):
        g.run(executor, directory=tmp_path)
    with ProcessPoolExecutor(1) as executor:
        found = g.run(executor, directory=tmp_path)
    assert found["killer"] == "alive" and "first" in found.finished_before


# What must run again.


def test_a_vertex_runs_again_exactly_if_what_it_is_made_of_changed(threads: Any, tmp_path: Path) -> None:
    """T4: below a change all that comes out different, and nothing else."""

    def graph(value: int, version: str = "") -> Graph:
        g = Graph("g")
        a = g.add("a", b.told, notes=str(tmp_path), value=value, arguments={"name": "a"})
        c = g.add("c", b.told, notes=str(tmp_path), value="same", inputs=a, version=version, arguments={"name": "c"})
        g.add("d", b.told, notes=str(tmp_path), inputs=[c], arguments={"name": "d"})
        return g

    ran = [
        sorted(graph(*options).run(threads, directory=tmp_path).ran)
        for options in [(1,), (1,), (2,), (2, "other"), (1,), (2,)]
    ]  # c gives the same from another input, so d stays; and what was kept once is found again
    assert ran == [["a", "c", "d"], [], ["a", "c"], ["c"], [], []]


def test_what_is_not_kept_is_made_again_only_if_a_vertex_needs_it(threads: Any, tmp_path: Path) -> None:
    """And so are those above it that are not kept either."""

    def graph(version: str) -> Graph:
        g = Graph("g")
        notes = str(tmp_path)
        a = g.add("a", b.told, keep=False, notes=notes, value=b"x" * 10, arguments={"name": "a"})
        c = g.add("c", b.told, keep=False, notes=notes, value=b"y" * 10, inputs=a, arguments={"name": "c"})
        g.add("sum", b.told, version=version, notes=notes, value=1, inputs=c, arguments={"name": "sum"})
        return g

    found = graph("1").run(threads, directory=tmp_path)
    with pytest.raises(TaskError, match="a is not kept"):
        found["a"]
    assert graph("1").run(threads, directory=tmp_path).ran == []
    assert graph("2").run(threads, directory=tmp_path).ran == ["a", "c", "sum"]
    assert b.counted(tmp_path) == {"a": 2, "c": 2, "sum": 2}


def test_what_comes_out_different_when_it_is_made_again_runs_all_below_it_again(threads: Any, tmp_path: Path) -> None:
    """T4: the vertex beside, which had finished with other bytes of it, is not combined with the new ones."""

    def graph(version: str) -> Graph:
        g = Graph("g")
        a = g.add("a", b.random_number, keep=False, notes=str(tmp_path), arguments={"name": "a"})
        g.add("one", b.add, a=a, b=b"1", version=version)
        two = g.add("two", b.add, a=a, b=b"2")
        g.add("below", b.add, a=two, b=b"3")
        return g

    graph("1").run(threads, directory=tmp_path)
    found = graph("2").run(threads, directory=tmp_path)
    assert found["one"][:16] == found["two"][:16] == found["below"][:16]
    assert set(found.ran) == {"a", "one", "two", "below"}


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.leaves_damage
def test_a_damaged_input_is_made_again_when_it_is_needed(size: int, threads: Any, tmp_path: Path) -> None:
    """T3: damage costs that vertex, not the graph."""

    def graph(version: str) -> Graph:
        g = Graph("g")
        a = g.add("a", b.big, nbytes=size)
        c = g.add("c", b.big, nbytes=size - 1)
        g.add("sum", b.add, a=a, b=c, version=version)
        return g

    before = graph("1").run(threads, directory=tmp_path)
    record = before.records["a"]
    where = record.place.journal or f"done/{record.key}/{record.outputs[0].file}"
    path = Path(tasks_directory(tmp_path), where)
    data = bytearray(path.read_bytes())
    data[data.index(b"\x07" * size) + size // 2] ^= 1  # that of "c" is shorter, wherever it lies
    path.write_bytes(data)
    found = graph("2").run(threads, directory=tmp_path)
    assert set(found.ran) >= {"a", "sum"} and found["sum"] == before["sum"]
    assert graph("2").run(threads, directory=tmp_path).ran == []


def test_two_results_for_one_vertex_are_one(threads: Any, tmp_path: Path) -> None:
    """An engine that takes a live worker for dead runs a vertex twice: the second answer is dropped."""

    class Twice(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            super().submit(fn, *args, **kwargs).result()
            return super().submit(fn, *args, **kwargs)

    g = Graph("g")
    for n, size in enumerate((10, 100_000)):
        g.add(f"v{n}", b.big, nbytes=size)
    with Twice(2) as twice:
        found = g.run(twice, directory=tmp_path)
    assert found["v1"] == b.big(100_000) and not list(Store(tasks_directory(tmp_path)).verify())
    assert [name for name in os.listdir(tasks_directory(tmp_path)) if name.startswith("stage")] == []


# Values.


def test_each_body_has_inputs_of_its_own(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    one = g.add("list", b.told, notes=str(tmp_path), value=[1, 2], arguments={"name": "list"})
    for n in range(4):
        g.add(f"changes-{n}", b.changes, values=one)
    found = g.run(threads, directory=tmp_path)
    assert [found[f"changes-{n}"] for n in range(4)] == [3] * 4 and found["list"] == [1, 2]


def test_arguments_are_in_the_order_of_the_program_at_any_depth(threads: Any, tmp_path: Path) -> None:
    """T5."""
    g = Graph("g")
    parts = [g.add(f"p{n}", b.add, a=n, b=0) for n in range(5)]
    given = {"list": parts[::-1], "deep": [(parts[1], {"x": [parts[2], 7]})]}
    g.add("all", b.told, notes=str(tmp_path), inputs=given, arguments={"name": "all"})
    g.add("echo", b.add, a=parts[::-1], b=[])
    assert g.run(threads, directory=tmp_path)["echo"] == [4, 3, 2, 1, 0]


def test_heads_seeds_scratch_and_named_outputs_arrive(threads: Any, tmp_path: Path) -> None:
    g = Graph("g", seed=5)
    g.add("head", b.with_head, x=3, head=b.header)
    g.add("seed", b.seeded)
    g.add("file", b.in_scratch, text="contents")
    g.add("named", b.value, inputs=[], arguments={"name": "named", "size": 0})
    found = g.run(threads, directory=tmp_path)
    assert found["head"] == "head 3" and found["file"].read_text() == "contents"
    assert found["named.number"] == found["named"]["number"]
    (tmp_path / "again").mkdir()
    assert g.run(2, directory=tmp_path / "again")["seed"] == found["seed"]


# Ends before the end.


def test_a_run_that_is_to_stop_begins_nothing_more_and_says_75(threads: Any, tmp_path: Path) -> None:
    g = Graph("g")
    last = None
    for n in range(5):
        last = g.add(f"v{n}", b.told, notes=str(tmp_path), inputs=last, arguments={"name": f"v{n}"})
    with pytest.raises(Stopped) as caught:
        g.run(threads, directory=tmp_path, should_stop=lambda: len(b.noted(tmp_path)) >= 2)
    assert caught.value.code == 75 and caught.value.why == "should_stop said so"
    done = len(caught.value.found)
    assert 2 <= done < 5 and not caught.value.found.failed
    assert len(g.run(threads, directory=tmp_path).ran) == 5 - done


class Clock:
    """The time that decides about limits, as a test has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: Callable[[], float] | None = None) -> None:
        self.now, self.time = 0.0, now or (lambda: self.now)
        self.monotonic = self.time
        for module in (ending, limits, stopping, driving):
            monkeypatch.setattr(module, "time", self)


def test_a_time_limit_ends_a_run_before_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is at work then is ended with it, and runs again."""
    g = Graph("g")
    short = g.add("short", b.add, a=1)
    g.add("long", b.waits, notes=str(tmp_path), until=str(tmp_path / "go"), inputs=short, arguments={"name": "long"})
    Clock(monkeypatch, lambda: 9000.0 if b.noted(tmp_path) else 0.0)
    with pytest.raises(Stopped, match="75"):
        g.run(2, directory=tmp_path, stop_after=9000)
    monkeypatch.undo()
    (tmp_path / "go").touch()
    assert g.run(1, directory=tmp_path).ran == ["long"]


def test_what_is_at_work_when_a_time_limit_is_near_may_use_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else vertices that would end in time run again: at a stop the limit is as far as the longest needs."""
    clock = Clock(monkeypatch)

    class Slow(AtOnce):
        """Each vertex takes 30 s, and the driver looks at the clock while it is at work."""

        def ended(self, patience_s: float) -> list[Any]:
            clock.now += 10
            return [replace(each, body_s=30.0) for each in super().ended(0)] if clock.now % 30 == 0 else []

    g, last = Graph("g"), None
    for n in range(20):
        last = g.add(f"v{n}", b.told, notes=str(tmp_path), inputs=last, arguments={"name": f"v{n}"})
    with pytest.raises(Stopped) as caught:
        g.run(engine=Slow(Store(tasks_directory(tmp_path))), directory=tmp_path, stop_after=460)
    assert len(caught.value.found) == len(b.noted(tmp_path)) == 15


def test_the_patience_of_a_time_limit_is_what_is_left_of_it_but_the_margin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    wish = ending.Ending(str(tmp_path), None, None, 20, said.append)
    assert wish.look(1.0) == "" and wish.look(19.0) and wish.patience_s() == 15.25
    assert said[0].endswith("of margin; vertices at work have 15 s to finish")
    clock.now = 16.0
    assert wish.patience_s() == 0


def test_two_runs_at_a_time_in_a_directory_are_refused(threads: Any, tmp_path: Path) -> None:
    """T6: and the first is not disturbed."""
    g = Graph("g")
    g.add("v", b.waits, notes=str(tmp_path), until=str(tmp_path / "go"), arguments={"name": "v"})
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(g.run(threads, directory=tmp_path)))
    first.start()
    try:
        wait_for(lambda: b.noted(tmp_path))
        code = f"from safepoint.tasks import Graph; Graph('other').run(directory={str(tmp_path)!r})"
        second = task_graphs.start(code, tmp_path)
        _, err = second.communicate(timeout=task_graphs.DEADLINE_S)
        assert second.returncode == 1 and LockedError.__name__ in err
    finally:
        (tmp_path / "go").touch()
        first.join()
    assert found[0].ran == ["v"] and b.counted(tmp_path) == {"v": 1}


# The plan.


def test_a_finished_graph_answers_in_as_much_work_as_it_has_vertices(tmp_path: Path) -> None:
    """Only the driver and the store: results are put at once. benchmarks/tasks.py has the seconds."""

    def finished(count: int) -> Callable[[], object]:
        g, directory = Graph("many"), tmp_path / f"{count}"
        vertices = [g.add("v0", b.add, a=0)]
        for n in range(1, count):
            vertices.append(g.add(f"v{n}", b.add, a=vertices[n // 2], b=n))
        directory.mkdir()
        once = AtOnce(Store(tasks_directory(directory)), room=1000)
        assert len(g.run(engine=once, directory=directory).ran) == count
        return lambda: found.append(g.run(directory=directory))

    found: list[Any] = []
    assert_linear(finished, 300)
    assert [(len(each), each.ran) for each in found] == [(300, []), (600, [])]


def test_a_plan_costs_as_much_as_its_edges() -> None:
    """A chain, and one vertex that needs all: neither recursion nor a square of their number."""

    def planned(count: int) -> Callable[[], object]:
        g = Graph("chain")
        every = [g.add("v0", b.add, a=0)]
        for n in range(1, count):
            every.append(g.add(f"v{n}", b.add, a=every[-1]))
        g.add("all", b.length, values=every)

        def plan() -> None:
            plan, order = Plan(g, {}.get, lambda record: record.kept), []
            while (n := plan.next()) is not None:
                order.append(plan.vertices[n].name)
                plan.failed(n)
            assert order == ["v0"] and len(plan.skipped) == count and not plan.left

        return plan

    assert_linear(planned, 1500)


def test_the_parts_of_an_identity_are_noted_in_the_record(threads: Any, tmp_path: Path) -> None:
    """For `safepoint tasks why`."""
    g = Graph("g")
    a = g.add("a", b.add, a=1)
    g.add("c", b.add, a=a)
    found = g.run(threads, directory=tmp_path)
    parts = found.records["c"].parts
    assert parts["input 0 a"] == found.records["a"].digest()
    assert parts["function"] == identity.parts(g.vertices["c"])["function"]
