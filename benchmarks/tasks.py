"""What `safepoint.tasks` costs beside a bare process pool, Dask, Parsl and Snakemake; ratios of one run.

    python benchmarks/tasks.py [--rounds N] [--vertices N] [--others PYTHON] [--only WHAT] [--table]

put      processor time of one small result that is put into the store (encoded, appended, flushed by its thread), over
         that of an empty call of `ProcessPoolExecutor`, in both of its processes. They take turns.
again    the start of a graph whose vertices are all finished, over a bare pool that runs the same empty vertices.
beside   one graph for all: layers of which each vertex needs three of the layer before, and holds a core for 10 ms.
         `task_systems.py` has the programs. Counted are the whole commands: from the start of the process to its end.
         Then each runs in a new directory, is killed with all of its processes when half of the vertices have begun,
         and is started again: the seconds of that second command, and the vertices that ran twice. A vertex notes
         itself at its begin in a file (O_APPEND), so those that were at work at the kill are among them.

`--others` names the python of an environment that has parsl and snakemake (`pip install parsl snakemake`). Dask rows
need `distributed` beside safepoint. A row that cannot run is left out, and the reason is printed. `--table` writes the
tables into docs/tasks-bench.md and docs/tasks.md. Medians, then in brackets the smallest and the largest of a round.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from task_systems import BARE, HOUSE, OURS, CannotRun, System, Told, begun, named, systems

from safepoint.tasks.jobs import Record
from safepoint.tasks.saved import Store
from safepoint.tasks.values import encode

PAGE, SHORT = HOUSE / "docs" / "tasks-bench.md", HOUSE / "docs" / "tasks.md"  # the second has one table of them
BEGIN, END = "<!-- tables: python benchmarks/tasks.py --table -->", "<!-- end of tables -->"


def between(values: list[float]) -> str:
    """The median and the range, to two digits."""
    return f"{statistics.median(values):.2g} ({min(values):.2g} to {max(values):.2g})"


# put


def empty(value: int) -> int:
    return value


def of_pool(calls: int) -> float:
    """Microseconds of processor time for an empty call, of the caller and of the worker."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with ProcessPoolExecutor(1) as pool:
        pool.submit(empty, 0).result()
        begin = time.process_time()
        for future in [pool.submit(empty, number) for number in range(calls)]:
            future.result()
        spent = time.process_time() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with ProcessPoolExecutor(1) as pool:  # the start and the end of a worker, which are no call
        pool.submit(empty, 0).result()
    last = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = last.ru_utime + last.ru_stime - after.ru_utime - after.ru_stime
    return (spent + max(0.0, children - start)) / calls * 1e6


def of_put(calls: int, directory: Path) -> float:
    """Microseconds of processor time for a small result, with the thread that flushes."""
    directory.mkdir()
    store = Store(directory / ".safepoint.d" / "tasks")
    with store.held():
        writer = store.writer()
        begin = time.process_time()
        for number in range(calls):
            writer.put(Record(f"v{number}", f"{number:032x}", (), False), encode(number))
        writer.flush()
        spent = time.process_time() - begin
        writer.close()
    return spent / calls * 1e6


def put(rounds: int, calls: int, work: Path) -> list[tuple[str, str]]:
    ratios = []
    for turn in range(rounds + 1):  # the first one warms up
        pool, ours = of_pool(calls), of_put(calls, work / f"put-{turn}")
        ratios.append(ours / pool)
        print(f"put: {ours:.1f} µs, empty call of a pool: {pool:.1f} µs", flush=True)
    return [("processor time of a small put, over an empty call of a process pool", between(ratios[1:]))]


def layered(vertices: int, layers: int, needs: int = 3, seed: int = 1) -> list[list[int]]:
    """For each vertex the numbers of those that it needs."""
    draw, wide = random.Random(seed), max(1, vertices // layers)
    graph: list[list[int]] = []
    for number in range(vertices):
        layer = number // wide
        before = range((layer - 1) * wide, layer * wide) if layer else range(0)
        graph.append(sorted(draw.sample(before, min(needs, len(before)))))
    return graph


# again


def again(rounds: int, vertices: int, workers: int, work: Path) -> list[tuple[str, str]]:
    """A finished graph, and a bare pool, in turns. Both tell the seconds of the graph alone, without their start."""
    graph = layered(vertices, 10)
    bare, ours = named(BARE), named(OURS)
    directory = ours.directory(work / "again-ours", graph)
    first = ours.run(directory, 0.0, workers)
    ratios, firsts = [], []
    for turn in range(rounds):
        beside = bare.run(bare.directory(work / f"again-bare-{turn}", graph), 0.0, workers)
        second = ours.run(directory, 0.0, workers)
        assert first.sum == second.sum == beside.sum and begun(directory / "notes") == vertices
        assert first.graph_s and second.graph_s and beside.graph_s
        ratios.append(second.graph_s / beside.graph_s)
        firsts.append(first.graph_s / beside.graph_s)
        print(f"again: {second.graph_s:.2f} s, first {first.graph_s:.2f} s, pool {beside.graph_s:.2f} s", flush=True)
    return [
        (f"first run of a graph of {vertices:,} empty vertices, over a bare pool", between(firsts)),
        ("the same graph again when it is finished, over a bare pool", between(ratios)),
    ]


# beside


class Row(NamedTuple):
    """Ratios of one round to the bare pool's whole command, and the vertices that ran twice."""

    whole: float
    graph: float | None
    restart: float
    twice: int


def one_round(
    system: System, work: Path, graph: list[list[int]], body_s: float, workers: int
) -> tuple[Told, Told, int]:
    """An undisturbed command, the one after a kill at half, and the vertices that ran more than once."""
    whole = system.run(system.directory(work / "whole", graph), body_s, workers)
    directory = system.directory(work / "killed", graph)
    system.killed_at_half(directory, body_s, workers, len(graph))
    second = system.run(directory, body_s, workers)
    runs = Counter((directory / "notes").read_text().split())
    if second.sum != whole.sum or len(runs) != len(graph):
        raise CannotRun(f"{system.name} gave {second.sum} after the kill, not {whole.sum}")
    return whole, second, sum(count > 1 for count in runs.values())


def beside(
    rounds: int, vertices: int, body_s: float, workers: int, those: list[System], work: Path
) -> dict[str, list[Row]]:
    """All in turns, in another order in each round. A system that fails has no row."""
    graph, those = layered(vertices, 10), list(those)
    rows: dict[str, list[Row]] = {system.name: [] for system in those}
    for turn in range(rounds):
        told: dict[str, tuple[Told, Told, int]] = {}
        for system in those[turn % len(those) :] + those[: turn % len(those)]:
            directory = work / f"beside-{turn}-{system.name.replace(' ', '-')}"
            directory.mkdir()
            try:
                whole, second, twice = one_round(system, directory, graph, body_s, workers)
            except CannotRun as error:
                print(f"{system.name}: left out: {error}", flush=True)
                those.remove(system)
                del rows[system.name]
                continue
            told[system.name] = whole, second, twice
            alone = f", graph {whole.graph_s:.2f} s" if whole.graph_s else ""
            after = f"after the kill {second.command_s:.2f} s, {twice} twice"
            print(f"{system.name}: {whole.command_s:.2f} s{alone}, {after}", flush=True)
            shutil.rmtree(directory)
        sums = {name: each[0].sum for name, each in told.items()}
        assert len(set(sums.values())) == 1, f"the systems disagree: {sums}"
        bare = told[BARE][0]
        assert bare.graph_s
        for name, (whole, second, twice) in told.items():
            share = whole.graph_s / bare.graph_s if whole.graph_s else None
            rows[name].append(Row(whole.command_s / bare.command_s, share, second.command_s / bare.command_s, twice))
    return rows


# What is told.


def markdown(first: list[tuple[str, str]], rows: dict[str, list[Row]], told: argparse.Namespace, versions: str) -> str:
    lines = ["| | ratio |", "|---|---|", *(f"| {name} | {ratio} |" for name, ratio in first), ""] if first else []
    if rows:
        lines += [
            f"{told.vertices:,} vertices of {told.body_s * 1e3:g} ms on {told.workers} workers; over the bare pool:",
            "", "| system | whole command | graph alone | restart after a kill at half | vertices run twice |",
            "|---|---|---|---|---|",
        ]  # fmt: skip
        for name, those in rows.items():
            alone = [row.graph for row in those if row.graph is not None]
            twice = statistics.median(row.twice for row in those)
            lines.append(f"| {name} | {between([row.whole for row in those])} | {between(alone) if alone else '–'} | "
                         f"{between([row.restart for row in those])} | {twice:g} |")  # fmt: skip
        lines.append("")
    day = datetime.date.today().isoformat()
    rounds = f"{told.rounds} round{'s' * (told.rounds > 1)}"
    lines.append(f"{day}, {rounds}, {os.cpu_count()} processors, load {told.load:.1f} at the start. {versions}")
    return "\n".join(lines) + "\n"


def versions_of(those: list[System]) -> str:
    code = ("import importlib.metadata as m, sys\nfor n in sys.argv[1:]:\n try: print(n, m.version(n))\n"
            " except m.PackageNotFoundError: pass")  # fmt: skip
    found: list[str] = []
    for python, names in {(s.python, ("parsl", "snakemake") if s.files or s.name == "Parsl" else ("distributed",))
                          for s in those}:  # fmt: skip
        out = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True).stdout
        found += [line for line in out.splitlines() if line not in found]
    return ", ".join([f"Python {platform.python_version()}", *sorted(found)]) + "."


def write(page: Path, table: str) -> None:
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page} has no place for the tables: {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vertices", type=int, default=1000, help="of the graph that all systems run")
    parser.add_argument("--finished", type=int, default=10_000, help="vertices of the graph that is started again")
    parser.add_argument("--calls", type=int, default=5000, help="of `put` and of the pool's empty call, in a round")
    parser.add_argument("--body", dest="body_s", type=float, default=0.01, help="seconds of a vertex")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--others", metavar="PYTHON", help="of an environment with parsl and snakemake")
    parser.add_argument("--only", choices=("put", "again", "beside"), action="append")
    parser.add_argument("--table", action="store_true", help="write the tables into the two pages")
    told = parser.parse_args()
    told.load = os.getloadavg()[0]
    wanted = told.only or ["put", "again", "beside"]
    first: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        work, those = Path(name), systems(told.others) if "beside" in wanted else []
        if "put" in wanted:
            first += put(told.rounds, told.calls, work)
        if "again" in wanted:
            first += again(told.rounds, told.finished, told.workers, work)
        rows = beside(told.rounds, told.vertices, told.body_s, told.workers, those, work) if those else {}
    versions = versions_of(those)
    print(f"\n{markdown(first, rows, told, versions)}")
    if told.table:
        write(PAGE, markdown(first, rows, told, versions))
    if told.table and rows:
        write(SHORT, markdown([], rows, told, versions))


if __name__ == "__main__":
    main()
