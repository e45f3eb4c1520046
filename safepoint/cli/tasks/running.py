"""`safepoint tasks run`: a graph from its text, on one of the engines."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.errors import SafepointError, UsageError
from safepoint.pace.times import duration
from safepoint.tasks import Graph
from safepoint.tasks.running import Found, Step

LINE_S = 30.0  # between two lines about progress where there is no terminal
engine = click.option(
    "--engine", default="pool", metavar="ENGINE", show_default=True,
    help="pool: processes of this machine. dask:ADDRESS: a scheduler of Dask. mpi: the ranks of mpiexec. "
    "futures:MODULE:CLASS: an executor, such as futures:mpi4py.futures:MPIPoolExecutor.",
)  # fmt: skip
workers = click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes of the pool; by default one per processor."
)
schedule = click.option(
    "--schedule", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="What safepoint tasks plan wrote."
)
machine = click.option(
    "--machine", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Of --engine mpi: speeds and links, as safepoint bench-net measured them.",
)  # fmt: skip
order = click.option(
    "--order", type=click.Choice(["dynamic", "static", "combined"]),
    help="Of --engine mpi: how a schedule is followed. By default combined, without a schedule dynamic.",
)  # fmt: skip
memory = click.option(
    "--memory", type=click.IntRange(min=0), metavar="MB",
    help="Of --engine mpi: results that each rank keeps at hand, for itself and for others; 256 by default.",
)  # fmt: skip
stop_after = click.option(
    "--stop-after", metavar="TIME", help="Begin no more vertices that would not finish in it: 90, 30m, 2h. "
    "A time limit of the scheduler counts by itself.",
)  # fmt: skip


@click.command()
@places.graph_file
@places.directory
@engine
@workers
@schedule
@machine
@order
@memory
@stop_after
def run(
    file: str, directory: str, engine: str, workers: int | None, schedule: str | None, machine: str | None,
    order: str | None, memory: int | None, stop_after: str | None,
) -> None:  # fmt: skip
    """Run what has not finished of a graph in a file of TOML.

    Kill it at any time and give the same command again: what had finished is not run again. Ctrl-C lets vertices at
    work finish, a second one ends at once. Exit code 0: all have finished; 22: vertices failed; 75: it was stopped by a
    time limit or by SIGTERM, start it again; 130: Ctrl-C.
    """
    if stop_after is not None:
        try:
            duration(stop_after)
        except ValueError as error:
            raise UsageError(f"--stop-after {stop_after}: {error}") from error
    options: dict[str, Any] = {"machine": machine, "order": order, "memory": memory and memory << 20}
    options = {name: value for name, value in options.items() if value is not None}
    if options and engine != "mpi":
        raise UsageError(f"--{', --'.join(options)} {'is' if len(options) == 1 else 'are'} for --engine mpi")
    graph = Graph.read(file)
    with _on(engine, workers) as (on, count, first), _watching(graph, first) as progress:
        options |= {"schedule": schedule, "stop_after": stop_after, "progress": progress}
        try:
            found = graph.run(on, directory=directory, workers=count, **options)
        except SafepointError as error:
            if first:
                raise
            raise SystemExit(error.code) from error  # all ranks have the same error, and one tells of it
    if first:
        _tell_end(found)


def _tell_end(found: Found) -> None:
    before, total = len(found.finished_before), len(found)
    text = f"{total} of {total} finished" + (f", {before} of them before" if before and found.ran else "")
    terminal.say(f"{text}; {words.precise(found.seconds)}" if found.ran else f"all {total} had finished before")


@contextmanager
def _on(engine: str, workers: int | None) -> Iterator[tuple[Any, int | None, bool]]:
    """What `run` takes as `on` and `workers`; and whether this process is the one that speaks."""
    kind, _, rest = engine.partition(":")
    if workers is not None and kind not in ("pool", "futures"):
        raise UsageError(f"--workers is for --engine pool and futures: {kind} knows its workers")
    if kind == "pool" and not rest:
        yield None, workers, True
    elif kind == "dask" and rest:
        client = _module("distributed", "dask").Client(rest)
        try:
            yield client, None, True
        finally:
            client.close()
    elif kind == "mpi" and not rest:
        comm = _module("mpi4py.MPI", "mpi").COMM_WORLD
        yield comm, None, comm.rank == 0
    elif kind == "futures":
        with _executor(rest or "concurrent.futures:ProcessPoolExecutor", workers) as executor:
            yield executor, None, True
    else:
        raise UsageError(f"--engine {engine}: it is pool, dask:ADDRESS, mpi, or futures:MODULE:CLASS")


def _module(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        text = f"this engine needs {name.partition('.')[0]} ({error})"
        raise UsageError(f"{text}: pip install '.[{extra}]' in the directory of safepoint's source") from error


def _executor(name: str, workers: int | None) -> Any:
    module, _, kind = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--engine futures:{name}: no such class ({error})") from error
    return made(max_workers=workers) if workers is not None else made()


@contextmanager
def _watching(graph: Graph, first: bool) -> Iterator[Callable[[Step], None] | None]:
    """What tells of a run as it goes: one line that is drawn anew on a terminal, else lines from time to time."""
    if not first:
        yield None
        return
    edges = sum(len(vertex.edges) for vertex in graph.vertices.values())
    head = f"graph {graph.name}: {words.count(len(graph.vertices), 'vertex', 'vertices')}, {words.count(edges, 'edge')}"
    if not sys.stderr.isatty():
        yield _Watch(head, terminal.say, None).step
        return
    with _bar() as (say, draw):
        yield _Watch(head, say, draw).step


class _Watch:
    """`draw`: a line of the terminal, with how many of how many vertices are over; None: there is no terminal."""

    def __init__(self, head: str, say: Callable[[str], None], draw: Callable[[str, int, int], None] | None) -> None:
        self._head, self._say, self._draw = head, say, draw
        self._said = time.monotonic()

    def step(self, step: Step) -> None:
        if step.event == "start":
            left = step.total - step.finished
            on = f"; {step.text}" if step.text and left else ""
            self._say(f"{self._head}; {step.finished} finished before, {left} to run{on}")
        elif step.event in ("failed", "again") and step.ended is not None and step.ended.failure is not None:
            self._say(_failure(step))
        elif step.event == "failed":
            self._say(f"{step.vertex} failed{f': {step.text}' if step.text else ''}")
        counts = f"{step.finished} of {step.total} finished" + (f", {step.failed} failed" if step.failed else "")
        counts += f", {step.skipped} not run" if step.skipped else ""
        if self._draw is not None:
            self._draw(counts, step.finished + step.failed + step.skipped, step.total)
        elif step.event == "finished" and time.monotonic() - self._said > LINE_S:
            self._said = time.monotonic()
            self._say(counts)


def _failure(step: Step) -> str:
    assert step.ended is not None and step.ended.failure is not None
    ended, failure = step.ended, step.ended.failure
    where = f"  {failure.where}" if failure.where else ""
    first = failure.message.splitlines()[0] if failure.message else ""
    return f"{step.vertex} failed ({ended.worker}, {ended.host}): {failure.kind}: {first}{where}  {step.text}".rstrip()


@contextmanager
def _bar() -> Iterator[tuple[Callable[[str], None], Callable[[str, int, int], None]]]:
    """What says a line, and what draws the bar below all lines; warnings of the library are said so, too."""
    import logging

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    columns = BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
    task = bar.add_task("", total=None)

    def say(text: str) -> None:
        if sys.stdout.isatty():
            bar.console.print(Text(terminal.printable(text)), soft_wrap=True)
        else:
            terminal.say(text)

    def draw(text: str, done: int, total: int) -> None:
        bar.update(task, description=text, completed=done, total=total)

    class Above(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            bar.console.print(Text(terminal.printable(f"safepoint: {record.getMessage()}")), soft_wrap=True)

    logger, above = logging.getLogger("safepoint"), Above()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(above)
    try:
        with bar:
            yield say, draw
    finally:
        logger.removeHandler(above)
        logger.propagate = before
