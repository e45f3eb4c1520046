"""A program that runs a graph on its ranks: `mpiexec -n P python task_ranks.py GRAPH DIRECTORY [OPTIONS as JSON]`.

In DIRECTORY each rank says its pid in pid-RANK, and in said-RANK how the run ended, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import mpi4py

if "--funneled" in sys.argv:
    sys.argv.remove("--funneled")
    mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI

from safepoint.errors import SafepointError, TaskError
from safepoint.tasks import Graph
from safepoint.tasks.mpi import coordinator
from testbed import task_bodies_mpi as bodies

GRAPHS: dict[str, Callable[[str], Graph]] = {
    "mixed": lambda directory: bodies.mixed(),
    "many": lambda directory: bodies.many(directory, release=f"{directory}/go"),
    "waits": bodies.waits,
}


def broken() -> bool:
    """A fault in rank 0, when all are at work."""
    runs = Path(sys.argv[2], "runs")
    if runs.exists() and len(runs.read_text().split()) == 2:
        raise RuntimeError("planted in rank 0")
    return False


def main() -> None:
    options: dict[str, Any] = {}
    if "--broken" in sys.argv:
        sys.argv.remove("--broken")
        options["should_stop"] = broken
        coordinator.DEAF_S = 0.5  # those at work do not answer
    name, directory, *rest = sys.argv[1:]
    rank = MPI.COMM_WORLD.Get_rank()
    Path(directory, f"pid-{rank}").write_text(f"{os.getpid()}")
    graph = GRAPHS[name](directory)
    said: dict[str, Any] = {}
    try:
        found = graph.run(MPI.COMM_WORLD, directory=directory, **options, **json.loads(rest[0] if rest else "{}"))
        said = {"ran": found.ran, "values": {vertex: repr(found[vertex]) for vertex in found if vertex != "cheap"}}
    except BaseException as error:
        said = {"error": type(error).__name__, "text": str(error)}
        if not isinstance(error, (SafepointError, TaskError)):
            raise
        sys.exit(1)
    finally:
        Path(directory, f"said-{rank}").write_text(json.dumps(said))


main()
