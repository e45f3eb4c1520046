"""A graph on the ranks of MPI: rank 0 coordinates, the others run vertices and move values among themselves.

`graph.run(on=comm)` is entered by all ranks, with the same graph, and all return what was found, or raise the same. The
communicator is that of the program, and is duplicated; mpi4py is not loaded here: who has a communicator has done that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from safepoint import ranks
from safepoint.errors import SafepointError, UsageError

if TYPE_CHECKING:
    from safepoint.tasks.found import Found
    from safepoint.tasks.graph import Graph
    from safepoint.tasks.mpi.coordinator import Coordinator
    from safepoint.tasks.mpi.outcome import Outcome
    from safepoint.tasks.mpi.team import Team

logger = logging.getLogger("safepoint")
MEMORY = 256 << 20
EDGES = ("auto", "get", "store")
ORDERS = ("dynamic", "static", "combined")
COMMON = {"should_stop", "stop_at", "stop_after", "schedule", "progress", "disk"}  # what `drive` takes


def run_on(
    comm: Any, graph: Graph, directory: str | os.PathLike[str] = ".", *, memory: int = MEMORY, edges: str = "auto",
    machine: Any = None, order: str = "", **common: Any,
) -> Found:  # fmt: skip
    """What `graph.run(on=comm)` does. Collective.

    `memory`: bytes of results that each rank keeps, for itself and for others. `edges`: how values travel: "get" from
    rank to rank, "store" through the directory, "auto" as is quicker. `machine`: a `net.json` of `safepoint bench-net`.
    `order`: "dynamic", "static" or "combined"; by default "combined" with a schedule, else "dynamic". `common`: as
    `run` has it; of these, what only rank 0 needs may differ on the others.
    """
    from safepoint.tasks.mpi.entering import all_come, unmoved

    with contextlib.ExitStack() as held:
        signals = held.enter_context(unmoved())
        all_come(comm, signals, lambda text, status: _abort(comm, text, status))
        peers = ranks.join(comm)
        peers.together(lambda: _check(memory, edges, order, common))
        if peers.size > 1:
            memory, edges = peers.share((memory, edges), 0)

            def begin() -> None:
                held.close()
                signals.deliver()

            return _among(comm, peers, graph, directory, (memory, edges), (machine, order), common, begin).given()
    from safepoint.tasks.mpi.alone import Alone
    from safepoint.tasks.running import drive

    signals.deliver()
    return drive(graph, lambda store, plan: Alone(store), directory, **common)


def _among(
    comm: Any, peers: Any, graph: Graph, directory: Any, kept: tuple[int, str], placing: tuple[Any, str],
    common: Mapping[str, Any], begin: Callable[[], object],
) -> Outcome:  # fmt: skip
    """Several ranks. `begin`: on rank 0 signals count from then on."""
    from safepoint.tasks.mpi.team import Team

    team = Team(comm, peers)
    try:
        work, parts = team.agree(graph, directory)
    except SafepointError:  # on all ranks
        team.free()
        raise
    if team.rank == 0:
        if not team.threads and kept[1] != "store":
            logger.warning("MPI was started without MPI_THREAD_MULTIPLE, so all values go through the store")
        outcome = _coordinate(team, graph, work, *placing, common, begin)
    else:
        outcome = _work(team, graph, work, parts, *kept)
    team.free()
    return outcome


def _check(memory: int, edges: str, order: str, common: Mapping[str, Any]) -> None:
    if strange := sorted(set(common) - COMMON):
        raise UsageError(f"run has no option {', '.join(strange)} for this engine; nothing was run")
    if edges not in EDGES:
        raise UsageError(f"edges is one of {', '.join(EDGES)}, not {edges!r}; nothing was run")
    if type(memory) is not int or memory < 0:
        raise UsageError(f"memory is a number of bytes, not {memory!r}; nothing was run")
    if order not in ("", *ORDERS):
        raise UsageError(f"order is one of {', '.join(ORDERS)}, not {order!r}; nothing was run")


def _coordinate(
    team: Team, graph: Graph, work: str, machine: Any, order: str, common: Mapping[str, Any],
    begin: Callable[[], object],
) -> Outcome:  # fmt: skip
    """The driver, and what becomes of it. It raises nothing: the other ranks must hear of it first."""
    from safepoint.tasks.mpi.coordinator import Coordinator
    from safepoint.tasks.mpi.outcome import Outcome
    from safepoint.tasks.mpi.placing import chooser, scheduled
    from safepoint.tasks.running import drive

    coordinator, workers = Coordinator(team), team.size - 1
    options = dict(common)

    def make(store: Any, plan: Any) -> Coordinator:
        coordinator.follow(chooser(graph, store, plan, workers, options["schedule"], machine, order))
        return coordinator

    try:
        begin()
        options["schedule"] = scheduled(graph, work, workers, common.get("schedule"), machine, order)
        outcome = Outcome(drive(graph, make, work, **options))
    except BaseException as error:
        outcome = Outcome(error=error)
    try:
        _end(team, coordinator, outcome)
    except BaseException as error:  # such as Ctrl-C for the third time
        _abort(team.control, Outcome(error=error).text, outcome.status if outcome.error else 130)
    return outcome


def _end(team: Team, coordinator: Coordinator, outcome: Outcome) -> None:
    """On return all ranks know how it ended, and none expects a message."""
    if coordinator.wrong:
        many = f"{coordinator.wrong} value{'s' * (coordinator.wrong > 1)}"
        text = (
            "%s came with other bytes than it was made of, and was read from the store: does a body change its result?"
        )
        logger.warning(text, many)
    coordinator.close(abandon=outcome.error is not None)  # there was nothing to run, or it failed before that
    if coordinator.awaited:
        some, named = len(coordinator.awaited) > 1, ", ".join(map(str, sorted(coordinator.awaited)))
        deaf = f"rank{'s' * some} {named} of {team.size} {'are' if some else 'is'} at work"
        _abort(team.control, f"{outcome.text}; {deaf}, so MPI ends all; what was kept stays", outcome.status)
    coordinator.tell(outcome.packed())


def _work(team: Team, graph: Graph, work: str, parts: Mapping[str, Any], memory: int, edges: str) -> Outcome:
    from safepoint.tasks.mpi.worker import Worker

    try:
        return Worker(team, graph, work, parts, memory, edges).work()
    except BaseException:  # a fault of ours, or of MPI: the others wait for this rank
        _abort(team.control, traceback.format_exc(), 1)


def _abort(comm: Any, text: str, status: int) -> NoReturn:
    """The end of all ranks, whatever they do; what is in the store stays."""
    print(f"safepoint: {text}", file=sys.stderr, flush=True)
    comm.Abort(status)
    raise SystemExit(status)
