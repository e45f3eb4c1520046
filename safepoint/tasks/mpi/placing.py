"""Who decides what a free rank does next: a schedule that was given, one for a machine that was measured, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from safepoint.errors import UsageError
from safepoint.tasks.machine import Machine
from safepoint.tasks.mpi.coordinator import Chooser
from safepoint.tasks.planning import FOUND
from safepoint.tasks.schedule import Schedule, measured, plan, problem


def machine_of(given: Any, workers: int) -> Machine:
    """The processors of all ranks but the first. `given`: None, a `net.json` or a `Machine` with all ranks."""
    if given is None:
        return Machine.equal(workers)
    if isinstance(given, (str, os.PathLike)):
        return Machine.read(os.fspath(given)).workers(workers)
    if not isinstance(given, Machine):
        raise UsageError(f"machine is a file of safepoint bench-net, not {given!r}; nothing was run")
    return given.workers(workers)


def scheduled(graph: Any, directory: str, workers: int, schedule: Any, machine: Any, order: str) -> Any:
    """The schedule of the run: with a measured machine there is one unless vertices are to be placed as they come."""
    if schedule is not None or machine is None or order == "dynamic":
        return schedule
    return plan(problem(graph, *measured(directory)), machine_of(machine, workers)).as_json()


def chooser(graph: Any, store: Any, planned: Any, workers: int, schedule: Any, machine: Any, order: str) -> Chooser:
    """As `order` says; `planned`: what the driver knows of each vertex. `UsageError` if the schedule does not fit."""
    if schedule is None and order in ("static", "combined"):
        raise UsageError(f"order={order!r} needs a schedule: safepoint tasks plan makes one; nothing was run")
    whole = problem(graph, *measured(store.directory))
    made = _schedule(schedule)
    mode = order or ("combined" if made else "dynamic")
    on = made.machine if made and made.machine and mode != "dynamic" else machine_of(machine, workers)
    found: Chooser = (made or Schedule(graph.name, "static", 0.0, ())).chooser(mode, whole, on, workers)
    for n, vertex in enumerate(planned.vertices):
        if planned.state[n] == FOUND:
            found.made(vertex.name, None)
    return found


def _schedule(given: Any) -> Schedule | None:
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return Schedule.read(given)
    if not isinstance(given, Mapping):
        raise UsageError(f"schedule is a file of safepoint tasks plan, or its content, not {given!r}; nothing was run")
    return Schedule.parse(given, "schedule")
