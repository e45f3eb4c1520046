"""What it costs to keep each vertex, over Dask: processor time of client, scheduler and workers, beside Dask alone.

    python benchmarks/tasks_dask.py [VERTICES] [ROUNDS]

The same graph of small vertices, each of which needs up to three others, is given to one cluster of two processes in
turn: to Dask alone, which keeps nothing, and through `Graph.run`. Counted is the processor time of all processes, as a
busy machine disturbs that less; of each the least of all rounds. A turn ends when the cluster is empty again: Dask lets
go of a finished graph after its results were given, and that is no work of the next turn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import psutil
from distributed import Client, wait

from safepoint.tasks import Graph


def body(n: int, inputs: list[int]) -> int:
    return n + sum(inputs)


def parents(n: int) -> list[int]:
    return [max(n - back, 0) for back in (1, 7, 40)] if n > 40 else []


def processor_s() -> float:
    """Of this process, where the scheduler is, and of the workers below it."""
    me = psutil.Process()
    times = [each.cpu_times() for each in [me, *me.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


def tasks_of(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def results_of(dask_worker: Any) -> int:
    return len(dask_worker.data)


def empty(client: Client) -> None:
    """Wait until neither the scheduler nor a worker has anything of a graph."""
    while client.run_on_scheduler(tasks_of) or any(client.run(results_of).values()):
        time.sleep(0.05)


def alone(client: Client, vertices: int, turn: int) -> int:
    graph: dict[str, Any] = {
        f"v-{turn}-{n}": (body, n, [f"v-{turn}-{parent}" for parent in parents(n)]) for n in range(vertices)
    }
    futures = client.get(graph, list(graph), sync=False)
    wait(futures)
    return int(futures[-1].result())


def kept(client: Client, vertices: int) -> int:
    graph = Graph("bench")
    made: list[Any] = []
    for n in range(vertices):
        made.append(graph.add(f"v-{n}", body, n=n, inputs=[made[parent] for parent in parents(n)]))
    with tempfile.TemporaryDirectory() as directory:
        return int(graph.run(on=client, directory=directory)[f"v-{vertices - 1}"])


def main() -> None:
    vertices, rounds = (int(given) for given in (sys.argv[1:] + ["2000", "5"][len(sys.argv) - 1 :]))
    took: dict[str, list[float]] = {"Dask alone": [], "kept, over Dask": []}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        for turn in range(rounds + 1):
            results = []
            for name in took:
                before = processor_s()
                results.append(alone(client, vertices, turn) if name == "Dask alone" else kept(client, vertices))
                empty(client)
                if turn:  # the first one imports
                    took[name].append((processor_s() - before) / vertices * 1e3)
            assert results[0] == results[1]
    print(f"ms of processor time a vertex, the least of {rounds}; {vertices} vertices")
    for name, found in took.items():
        print(f"{name:20} {min(found):7.3f}")
    ratio = min(took["kept, over Dask"]) / min(took["Dask alone"])
    print(f"ratio                {ratio:7.2f}   goal: <= 1.3")


if __name__ == "__main__":
    main()
