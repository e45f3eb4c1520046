"""`run`: a graph, a directory and something that runs vertices, from the lock to the last flush.

(1) The lock of the directory is held from before the plan is made until all is flushed: two drivers would run the same
    vertices, and each would remove what the other's workers are making.
(2) On return all that this run has finished is durable, whichever process made it; also if the run ends by an error.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from safepoint import words
from safepoint.disk import Disk
from safepoint.errors import LockedError, TaskError, UsageError
from safepoint.patterns import SIDE
from safepoint.ranks import COUNTS
from safepoint.root import REAL
from safepoint.tasks import mainfile
from safepoint.tasks.ending import Ending
from safepoint.tasks.found import Found, Stopped
from safepoint.tasks.jobs import Engine, Record
from safepoint.tasks.one_run import OneRun, Step
from safepoint.tasks.ordering import Planned
from safepoint.tasks.planning import FOUND, Plan, many_objects
from safepoint.tasks.saved import Store

if TYPE_CHECKING:
    from safepoint.tasks.graph import Graph

logger = logging.getLogger("safepoint")
__all__ = ["Found", "Step", "Stopped", "drive", "run", "tasks_directory"]
NAMED = 3  # failed vertices that a message names


def tasks_directory(directory: str | os.PathLike[str]) -> str:
    """Where the results of a working directory are: W/.safepoint.d/tasks."""
    return os.path.join(os.path.realpath(directory), SIDE, "tasks")


def run(
    graph: Graph, on: Any = None, directory: str | os.PathLike[str] = ".", *, engine: Engine | None = None,
    workers: int | None = None, should_stop: Callable[[], object] | None = None, stop_at: str | float | None = None,
    stop_after: str | float | None = None, schedule: Any = None, progress: Callable[[Step], object] | None = None,
    **options: Any,
) -> Found:  # fmt: skip
    """Run all vertices that have not finished before; what was found. On return all of it is durable.

    `on`: None for processes of this machine, as many as `workers` or as it has processors; a number of them; an
    executor, a Dask client, an mpi4py communicator; `engine`: any other. `should_stop`, `stop_at`, `stop_after`: when
    no more vertices are to be begun; a scheduler's time limit counts by itself. `schedule`: a file of `safepoint tasks
    plan`, or its content. `progress`: is told each `Step`. `options`: of the engine.

    `TaskError` if vertices failed, with what was found as its `found`. `Stopped`, a `SystemExit` with status 75, if it
    was stopped; `KeyboardInterrupt` after Ctrl-C. `LockedError` if another run is at work here.
    """
    if mainfile.loading:
        raise mainfile.Enough
    common = {
        "should_stop": should_stop, "stop_at": stop_at, "stop_after": stop_after, "schedule": schedule,
        "progress": progress,
    }  # fmt: skip
    if hasattr(on, "Get_rank") and hasattr(on, "Get_size"):
        from safepoint.tasks import mpi

        return mpi.run_on(on, graph, directory, **common, **options)
    make = _maker(on, engine, workers, options)
    try:
        return drive(graph, make, directory, **common)
    except LockedError as error:
        if several := _ranks():
            raise LockedError(f"{error} ({several}: give --engine mpi, or on=MPI.COMM_WORLD)") from None
        raise


def _ranks() -> str:
    """Who started several processes of this program, if somebody did: each of them is a driver."""
    for name, launcher in COUNTS.items():
        count = os.environ.get(name, "")
        if count.isdecimal() and int(count) > 1:
            return f"{launcher} started {count} of this program"
    return ""


def _maker(
    on: Any, engine: Engine | None, workers: int | None, options: Mapping[str, Any]
) -> Callable[[Store, Plan], Engine]:
    """What makes the engine, when there is something to run."""
    if engine is not None:
        given = engine
        make: Callable[[Store, Plan], Engine] = lambda store, plan: given  # noqa: E731
    elif on is None or (isinstance(on, int) and not isinstance(on, bool)):
        count = workers if on is None else on

        def make(store: Store, plan: Plan) -> Engine:
            from safepoint.tasks.pool import Pool

            mainfile.check(v for v, state in zip(plan.vertices, plan.state, strict=True) if state != FOUND)
            return Pool(count)
    elif type(on).__module__.partition(".")[0] in ("distributed", "dask"):

        def make(store: Store, plan: Plan) -> Engine:
            from safepoint.tasks import dask

            return dask.engine(on, store, plan)
    elif callable(getattr(on, "submit", None)):

        def make(store: Store, plan: Plan) -> Engine:
            from safepoint.tasks.futures import Futures

            return Futures(on, store.directory)
    else:
        raise UsageError(
            f"on={on!r}: give an executor, a Dask client, a communicator of mpi4py, or a number of processes"
        )
    if options:
        raise UsageError(f"run has no option {', '.join(sorted(options))} for this engine")
    return make


def drive(
    graph: Graph, make: Callable[[Store, Plan], Engine], directory: str | os.PathLike[str] = ".", *,
    should_stop: Callable[[], object] | None = None, stop_at: str | float | None = None,
    stop_after: str | float | None = None, schedule: Any = None, progress: Callable[[Step], object] | None = None,
    disk: Disk = REAL,
) -> Found:  # fmt: skip
    """What `run` does in the process that drives; `make` makes the engine, if there is something to run."""
    work, began = os.path.realpath(directory), time.time()
    if not os.path.isdir(work):
        raise UsageError(f"{work} is no directory, so no results can be kept below it")
    ending = Ending(work, should_stop, stop_at, stop_after, lambda text: logger.warning("%s", text))
    store = Store(tasks_directory(work), disk)
    with ending, store.held():
        planned = Planned.of(schedule, graph)
        with many_objects():
            known = _known(store)
            plan = Plan(graph, known.get, lambda record: record.kept, planned.priority)
        one = OneRun(graph, plan, store, known, planned, progress, began)
        one.go(make, ending)
        found = one.found()
    if ending.interrupted:
        logger.warning("interrupted: %s", _stay(*one.counts()))
        raise KeyboardInterrupt
    if one.stopped:
        logger.warning("stopped: %s", _stay(*one.counts()))
        raise Stopped(ending.status, ending.why, found)
    if found.failed:
        raise _failed(found, one.counts())
    return found


def _stay(finished: int, total: int) -> str:
    return f"{finished} of {total} vertices {words.are(finished)} finished; start it again: what has finished stays"


def _known(store: Store) -> dict[str, Record]:
    """What is kept of each identity. Of those of which only digests are kept, the newest: all that was made since then
    was made of that one, and by an older one it would not be found."""
    found: dict[str, Record] = {}
    for each in store.all():
        record, other = each.record, found.get(each.record.key)
        if other is None or _counts_more(record, other):
            found[record.key] = record
    return found


def _counts_more(record: Record, other: Record) -> bool:
    if record.kept != other.kept:
        return record.kept
    return record.time < other.time if record.kept else record.time > other.time


def _failed(found: Found, counts: tuple[int, int]) -> TaskError:
    named = [
        f"{name}: {failure.kind}: {failure.message.splitlines()[0] if failure.message else ''}"
        + (f" ({failure.where})" if failure.where else "")
        for name, failure in list(found.failed.items())[:NAMED]
    ]
    more = f"; and {len(found.failed) - NAMED} more" if len(found.failed) > NAMED else ""
    skipped = f", {len(found.skipped)} not run that need them" if found.skipped else ""
    error = TaskError(
        f"{len(found.failed)} of {counts[1]} vertices failed{skipped}: {'; '.join(named)}{more}. "
        f"{counts[0]} {words.are(counts[0])} finished and {'stays' if counts[0] == 1 else 'stay'}: "
        "correct it and start again"
    )
    error.found = found  # type: ignore[attr-defined]
    return error
