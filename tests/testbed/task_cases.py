"""What must hold of a graph on ranks: `mpiexec -n P python task_cases.py DIRECTORY [CASE ...]`.

All ranks run each case, then the first two of them, then the first alone.

Status 0 and a line `ok CASE` for each, or a traceback from the first rank where one failed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1]))
from safepoint import SafepointError
from safepoint.errors import GraphError, TaskError, UsageError
from safepoint.tasks import Graph
from safepoint.tasks.found import Found, Stopped
from safepoint.tasks.machine import Machine
from safepoint.tasks.mpi import coordinator, team
from safepoint.tasks.saved import Store
from safepoint.tasks.schedule import plan, problem
from testbed import task_bodies_after as after
from testbed import task_bodies_mpi as bodies
from testbed.ranked import check, same

COMM = MPI.COMM_WORLD
SAID: list[str] = []  # on this rank, to the log of the program
CASES: dict[str, Callable[[str], None]] = {}
WIDE = set[str]()  # cases of more than two ranks


def case(function: Callable[[str], None]) -> Callable[[str], None]:
    CASES[function.__name__] = function
    return function


def many_ranks(function: Callable[[str], None]) -> Callable[[str], None]:
    """With one or two ranks there is nothing to see."""
    WIDE.add(function.__name__)
    return case(function)


def below(directory: str, name: str) -> str:
    path = f"{directory}/{name}"
    if COMM.rank == 0:
        os.makedirs(path)
    COMM.Barrier()
    return path


def kept(directory: str) -> dict[str, list[str]]:
    """Of each vertex the digests of what was kept."""
    records = Store(f"{directory}/.safepoint.d/tasks").records().values()
    return {record.vertex: [output.digest for output in record.outputs] for record in records}


def rows(directory: str, event: str = "finished") -> dict[str, dict[str, Any]]:
    lines = Path(f"{directory}/.safepoint.d/tasks/log.jsonl").read_text().splitlines()
    return {row["vertex"]: row for row in map(json.loads, lines) if row["event"] == event}


def raised(kind: type[BaseException], call: Callable[[], object]) -> Any:
    """The error, which all ranks must raise, with one text."""
    try:
        call()
    except kind as error:
        same(COMM, (type(error).__name__, str(error)))
        return error
    except BaseException:
        traceback.print_exc()
    check(COMM, False, f"no {kind.__name__}")
    raise AssertionError


@case
def all_ways_give_the_bytes_of_the_pool(directory: str) -> None:
    """T3, T5: whichever rank made a value, and whichever way it went."""
    ways: dict[str, dict[str, Any]] = {
        "get": {"edges": "get"}, "store": {"edges": "store"}, "auto": {}, "forgetful": {"edges": "get", "memory": 0},
        "little": {"edges": "get", "memory": 500_000},
    }  # fmt: skip
    pool = below(directory, "pool")
    if COMM.rank == 0:
        bodies.mixed().run(2, directory=pool)
    COMM.Barrier()
    for name, options in ways.items():
        place = below(directory, name)
        found = bodies.mixed().run(COMM, directory=place, **options)
        check(COMM, kept(place) == kept(pool), f"{name}: {kept(place)} {kept(pool)}")
        check(COMM, float(found["change-0"].sum()) == 2 * float(found["numbers-0"].sum()), name)
        check(COMM, set(found["named"]) == {"left", "right", "mean"} and found.failed == {}, name)
        same(COMM, repr(found["total"]), name)
        check(COMM, moved(place) == 0 or (COMM.size > 2 and name in ("get", "little")), f"{name}: {moved(place)} moved")
        again = bodies.mixed().run(COMM, directory=place, **options)
        check(COMM, again.ran == [] and len(again) == len(found), f"{name}: {again.ran} ran again")
    if COMM.size > 2:  # by a schedule, or the quickest rank might run all; and one that answers late is not waited for
        turns = {name: n % (COMM.size - 1) for n, name in enumerate(bodies.mixed().vertices)}
        options = {"edges": "get", "schedule": planned(bodies.mixed(), turns), "order": "static"}
        tries = (below(directory, f"get-{n}") for n in range(20))
        check(COMM, any(bodies.mixed().run(COMM, directory=place, **options) and moved(place) for place in tries))


def moved(directory: str) -> int:
    """Bytes that went from rank to rank; the same on each, as all have waited for the end of the run."""
    COMM.Barrier()
    return sum(row["moved"] for row in rows(directory).values())


@case
def failures_are_told_on_all_ranks_and_others_go_on(directory: str) -> None:
    graph = bodies.failing(directory, 2 if COMM.rank == 0 < COMM.size - 1 else 1)  # the driver plans, too
    error = raised(TaskError, lambda: graph.run(COMM, directory=directory))
    found: Found = error.found
    check(COMM, set(found.failed) == {"value", "exit", "interrupt", "error", "result", "moody"}, found.failed)
    check(COMM, {"good", "once", "use-once"} == set(found), set(found))
    check(COMM, found.failed["value"].where.startswith("task_bodies_mpi.py:"), found.failed["value"])
    check(COMM, found["use-once"] == "the second time", found["use-once"])
    check(COMM, "negative variance" in found.failed["value"].message, found.failed["value"])
    named = [name for name in found.failed if f"{name}: " in str(error)]  # those that failed first
    check(COMM, named == [*found.failed][:3] and "; and 3 more. " in str(error), error)


@case
def what_a_rank_found_is_known_to_the_next_number_of_ranks(directory: str) -> None:
    """The same directory, with fewer ranks."""
    graph = bodies.many(directory)
    whole = graph.run(COMM, directory=directory)
    color = int(COMM.rank < max(1, COMM.size - 1))
    part = COMM.Split(color)
    if color:
        again = graph.run(part, directory=directory)
        assert again.ran == [] and again["end"] == whole["end"]
    part.Free()
    COMM.Barrier()
    check(COMM, len(Path(f"{directory}/runs").read_text().split()) == 15, "each has run once")


@many_ranks
def another_graph_on_a_rank_is_an_error_of_all(directory: str) -> None:
    def differing(name: str, n: int) -> Graph:
        graph = Graph("differing")
        graph.add("same", bodies.numbers, n=1, length=10)
        graph.add(name, bodies.numbers, n=n, length=10)
        return graph

    odd = int(COMM.rank == 1)
    error = raised(GraphError, lambda: differing("one", odd).run(COMM, directory=directory))
    check(COMM, "rank 1 of" in str(error) and "vertex one differs" in str(error), error)
    error = raised(GraphError, lambda: differing(f"one-{odd}", 1).run(COMM, directory=directory))
    check(COMM, "rank 1 of" in str(error) and "vertex one-1 where" in str(error), error)
    check(COMM, not os.path.exists(f"{directory}/.safepoint.d"), "something was done")


@many_ranks
def wrong_options_are_an_error_of_all(directory: str) -> None:
    graph = bodies.many(directory)
    wrong = {"edges": "pigeon"} if COMM.rank == 1 else {}
    error = raised(UsageError, lambda: graph.run(COMM, directory=directory, **wrong))
    check(COMM, "rank 1 of" in str(error) and "pigeon" in str(error), error)
    error = raised(UsageError, lambda: graph.run(COMM, directory=directory, order="static"))
    check(COMM, "needs a schedule" in str(error), error)


@many_ranks
def a_directory_that_a_rank_cannot_see_is_an_error_of_all(directory: str) -> None:
    if not hasattr(os, "geteuid") or COMM.allreduce(int(os.geteuid() != 0)):
        if COMM.rank == 0:
            print("left out: only root can be somebody else who sees less")
        return
    os.chmod(directory, 0o700)
    before, team.SEEN_S = team.SEEN_S, 0.2
    if COMM.rank == 1:
        os.seteuid(65534)
    try:
        error = raised(UsageError, lambda: bodies.many(directory).run(COMM, directory=directory))
    finally:
        if COMM.rank == 1:
            os.seteuid(0)
        team.SEEN_S = before
    check(COMM, "rank 1 of" in str(error) and "not the directory that rank 0 sees" in str(error), error)
    check(COMM, not list(Path(directory).glob(".safepoint.d/token-*")), "the token stayed")


def planned(graph: Graph, workers: dict[str, int]) -> dict[str, Any]:
    """A schedule of somebody's own hand."""
    at = [
        {"vertex": name, "worker": workers[name], "begin_s": float(n), "end_s": n + 1.0}
        for n, name in enumerate(graph.vertices)
    ]
    return {"graph": graph.name, "kind": "static", "expected_s": float(len(at)), "machine": None, "vertices": at}


@many_ranks
def a_schedule_is_obeyed(directory: str) -> None:
    """static: each vertex on its rank, in the order of the plan. combined: the same results."""
    graph = bodies.many(directory, 0.001)
    workers = {name: (n // 2 + n) % (COMM.size - 1) for n, name in enumerate(graph.vertices)}
    for order in ("static", "combined"):
        place = below(directory, order)
        found = graph.run(COMM, directory=place, schedule=planned(graph, workers), order=order)
        check(COMM, len(found.ran) == 15, found.ran)
        ran = rows(place)
        if order == "static":
            check(COMM, {name: row["worker"] for name, row in ran.items()} ==
                  {name: f"rank {worker + 1}" for name, worker in workers.items()}, ran)  # fmt: skip
            for worker in range(COMM.size - 1):
                mine = sorted(
                    (row["began"], name) for name, row in ran.items() if row["worker"] == f"rank {worker + 1}"
                )
                check(COMM, [name for _, name in mine] == [name for name in workers if workers[name] == worker], mine)
    wrong = planned(graph, workers)
    wrong["vertices"].pop()
    error = raised(SafepointError, lambda: graph.run(COMM, directory=below(directory, "w"), schedule=wrong))
    check(COMM, "end" in str(error), error)
    for others, order in ((COMM.size - 2, "static"), (COMM.size, "static"), (COMM.size, "combined")):
        made = plan(problem(graph, {}, {}), Machine.equal(others)).as_json()  # with a machine of its own
        at = below(directory, f"{others}-{order}")
        error = raised(SafepointError, lambda at=at, made=made, order=order: graph.run(
            COMM, directory=at, schedule=made, order=order))  # fmt: skip
        check(COMM, f"{others} workers" in str(error) and f"{COMM.size - 1}" in str(error), error)


@many_ranks
def an_owner_that_holds_the_interpreter_is_not_waited_for(directory: str) -> None:
    """After 50 ms without an answer the store is read; the answer that comes later hurts nobody. The owner holds it
    until the value has been used."""
    graph, held, used = Graph("held"), f"{directory}/held", f"{directory}/used"
    if COMM.rank == 0:
        os.mkfifo(used)
    COMM.Barrier()
    value = graph.add("value", bodies.numbers, n=1, length=300_000)
    graph.add("hold", bodies.hold, path=held, value=value, until=used)
    seen = graph.add("seen", bodies.after, path=held)
    graph.add("use", bodies.use, value=value, more=seen, opens=used)
    schedule = planned(graph, {"value": 0, "hold": 0, "seen": 1, "use": 1})
    options: dict[str, Any] = {"schedule": schedule, "order": "static", "edges": "get"}
    sub = COMM.Split(int(COMM.rank < 3))
    if COMM.rank < 3:
        found = graph.run(sub, directory=directory, **options)
        row = rows(directory)["use"]
        assert found["use"] == found["hold"] and row["moved"] == 0, row
    sub.Free()
    COMM.Barrier()


@many_ranks
def a_result_that_was_changed_later_is_not_passed_on(directory: str) -> None:
    """T4: the bytes have another digest, so they are taken from the store."""
    graph = Graph("spoiled")
    value = graph.add("value", bodies.leaky, n=5)
    spoiled = graph.add("spoil", bodies.spoil, value=value)
    far = graph.add("far", bodies.use, value=value, more=spoiled)
    graph.add("near", bodies.use, value=value, more=far)
    schedule = planned(graph, {"value": 0, "spoil": 0, "far": 1, "near": 0})
    sub = COMM.Split(int(COMM.rank < 3))
    if COMM.rank < 3:
        found = graph.run(sub, directory=directory, schedule=schedule, order="static", edges="get")
        right = float(bodies.numbers(5, 50_000).sum())
        assert found["spoil"] and [found["far"], found["near"]] == [right, right]
        assert rows(directory)["far"]["moved"] < 1000  # of the other edge
        assert COMM.rank or any("1 value came with other bytes" in said for said in SAID), SAID
    sub.Free()
    COMM.Barrier()


@case
def a_program_may_end_it_in_time(directory: str) -> None:
    """`should_stop` is asked before each vertex; status 75."""
    seen: list[str] = []
    graph = bodies.many(directory)
    error = raised(Stopped, lambda: graph.run(
        COMM, directory=directory, progress=lambda step: seen.append(step.event),
        should_stop=lambda: seen.count("finished") >= 3))  # fmt: skip
    check(COMM, error.code == 75 and 3 <= len(error.found) < 15, (error.code, len(error.found)))
    before = set(error.found)
    found = graph.run(COMM, directory=directory)
    check(COMM, before.isdisjoint(found.ran) and len(found) == 15, found.ran)


@many_ranks
def an_error_of_the_coordinator_ends_all_ranks(directory: str) -> None:
    def progress(step: Any) -> None:
        if step.finished >= 2:
            raise RuntimeError("planted in rank 0")

    if COMM.rank == 0:
        coordinator.DEAF_S = 30.0
    graph = bodies.many(directory)
    try:
        graph.run(COMM, directory=directory, progress=progress)
    except (RuntimeError, SafepointError) as error:
        text = f"{error}"
    check(COMM, "planted in rank 0" in text, text)
    found = graph.run(COMM, directory=directory)
    check(COMM, len(found) == 15 and len(found.ran) <= 13, found.ran)


@many_ranks
def an_error_of_a_worker_ends_all_ranks(directory: str) -> None:
    """Not of a body: of what serves on that rank."""
    graph = Graph("broken")
    first = graph.add("break", bodies.break_thread, start=1)
    graph.add("use", bodies.use, value=first)
    try:
        graph.run(COMM, directory=directory)
        text = ""
    except SafepointError as error:
        text = str(error)
    same(COMM, text)
    check(COMM, f"of {COMM.size} cannot go on: RuntimeError: planted in a thread" in text, text)


@case
def the_order_alone_fetches_no_value(directory: str) -> None:
    graph, path = Graph("after"), f"{directory}/a"
    first = graph.add("a", after.writes, path=path, text="one")
    graph.add("last", after.reads, paths=[path], after=[first])
    found = graph.run(COMM, directory=directory, edges="get")
    check(COMM, found["last"] == "one" and not os.path.exists(f"{path}.loaded"), "a value was loaded")


@many_ranks
def what_rank_0_was_given_counts(directory: str) -> None:
    """A directory that is not there is not made; a rank with no directory does not raise alone."""
    graph = bodies.many(directory)
    error = raised(UsageError, lambda: graph.run(COMM, directory=f"{directory}/typo/here"))
    check(COMM, "rank 0 of" in str(error) and "typo/here is no directory" in str(error), error)
    check(COMM, not os.path.exists(f"{directory}/typo"), "it was made")
    error = raised(UsageError, lambda: graph.run(COMM, directory=directory, colour=1))
    check(COMM, f"all {COMM.size} ranks: run has no option colour for this engine" in str(error), error)
    found = graph.run(COMM, directory=directory if COMM.rank == 0 else None)
    check(COMM, len(found) == 15, found)


def main() -> None:
    global COMM
    logger, handler = logging.getLogger("safepoint"), logging.Handler()
    handler.emit = lambda record: SAID.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.propagate = False
    top, *names = sys.argv[1:]
    for size in (MPI.COMM_WORLD.size, 2, 1):
        COMM = MPI.COMM_WORLD.Split(int(MPI.COMM_WORLD.rank < size))
        for name, function in CASES.items():
            if MPI.COMM_WORLD.rank < size and (not names or name in names) and (size > 2 or name not in WIDE):
                directory = below(top, f"{name}-{size}")
                function(directory)
                COMM.Barrier()
                if COMM.rank == 0:
                    print("ok", name, flush=True)
        MPI.COMM_WORLD.Barrier()


try:
    main()
except BaseException:
    traceback.print_exc()
    COMM.Abort(1)
