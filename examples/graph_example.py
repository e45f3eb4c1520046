"""What the four examples of graphs share: their command line, and who evaluates the graph.

    python alignment.py --directory run                              # a pool of processes on this machine
    python alignment.py --directory run --engine dask                # Dask; --address tcp://HOST:PORT for a running one
    mpiexec -n 4 python alignment.py --directory run --engine mpi
    python alignment.py --directory run --serial                     # calls the functions one by one, keeps nothing

Kill it anywhere and type the same line again, or another: what has finished is not run again, and the result has the
same bytes. An example builds its graph with `add`, which is `Graph.add`, or calls the function at once in a serial run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # numpy adds in one order then, so that all engines give the same bytes

Add = Callable[..., Any]


def parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--directory", default=".", help="where it runs and writes its result")
    parser.add_argument("--serial", action="store_true", help="call the functions one by one; nothing is kept")
    parser.add_argument("--engine", choices=("pool", "dask", "mpi"), default="pool", help="mpi: under mpiexec")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="of the pool or of Dask (default: all)")
    parser.add_argument("--address", help="of a scheduler of Dask that runs; else one is started here")
    return parser


def at_once(name: str, function: Callable[..., Any], /, *, weight: float = 1.0, **arguments: Any) -> Any:
    """In the place of `Graph.add`: the result itself instead of a vertex."""
    return function(**arguments)


@contextmanager
def engine(options: argparse.Namespace) -> Iterator[Any]:
    """What `Graph.run` takes as `on`. A Dask that was started here is ended."""
    if options.serial:
        yield None
    elif options.engine == "mpi":
        from mpi4py import MPI

        yield MPI.COMM_WORLD
    elif options.engine == "dask":
        from distributed import Client

        here = {"n_workers": options.workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        with Client(options.address) if options.address else Client(**here) as client:
            yield client
    else:
        yield options.workers  # so many processes, which `Graph.run` starts and ends


def evaluate(name: str, build: Callable[[Add], Any], options: argparse.Namespace, on: Any) -> Any:
    """The value of the vertex that `build` returns."""
    if options.serial:
        return build(at_once)
    from safepoint.tasks import Graph

    graph = Graph(name)
    wanted = build(graph.add)
    Path(options.directory).mkdir(parents=True, exist_ok=True)
    return graph.run(on=on, directory=options.directory)[wanted.name]


def writes(options: argparse.Namespace, on: Any) -> bool:
    """Of many ranks one writes the result."""
    return options.engine != "mpi" or options.serial or on.rank == 0


def result(options: argparse.Namespace, name: str) -> Path:
    directory = Path(options.directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def begun() -> None:
    """The first line of each body. It notes that one has begun where a test asks for it, and does nothing else."""
    if directory := os.environ.get("GRAPH_EXAMPLE_NOTES"):
        from safepoint.tasks import seed

        Path(directory, f"{seed()}-{os.getpid()}-{time.time_ns()}").touch()
