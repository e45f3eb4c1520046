"""`safepoint tasks plan` and `safepoint tasks view`: when each vertex is to run, and when it did."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.errors import UsageError
from safepoint.pace.times import duration
from safepoint.tasks import Graph

machine = click.option(
    "--machine", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Speeds and links as safepoint bench-net measured them; without it all workers and links are alike.",
)  # fmt: skip


@click.command()
@places.graph_file
@places.directory
@machine
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="For so many workers; by default one per processor."
)
@click.option("--improve", metavar="TIME", help="Let a genetic algorithm search so long for a better one: 10s, 2m.")
@click.option(
    "--seed",
    type=int,
    default=0,
    metavar="N",
    show_default=True,
    help="Of that search: the same one gives the same schedule in the same number of generations.",
)
@click.option(
    "-o", "--output", "target", required=True, type=click.Path(dir_okay=False), metavar="FILE",
    help="Write the schedule there, as JSON; an existing file is replaced.",
)  # fmt: skip
def plan(
    file: str, directory: str, machine: str | None, workers: int | None, improve: str | None, seed: int, target: str
) -> None:
    """Write a schedule for a graph: which worker runs which vertex, and when.

    Times of vertices and sizes of edges are those of the last run in DIR, if there was one, else weight and size of the
    graph. The schedule is HEFT's; --improve begins from that, and cannot make it longer. Give it to run --schedule.
    """
    from safepoint.tasks import schedule
    from safepoint.tasks.machine import Machine
    from safepoint.tasks.pool import processors

    try:
        seconds = duration(improve) if improve is not None else 0.0
    except ValueError as error:
        raise UsageError(f"--improve {improve}: {error}") from error
    graph = Graph.read(file)
    on = Machine.read(machine).workers(workers) if machine else Machine.equal(workers or processors())
    took, sizes = schedule.measured(directory)
    with searching(seconds) as progress:
        found = schedule.plan(schedule.problem(graph, took, sizes), on, seconds, seed, progress)
    found.write(target)
    measured = sum(name in took for name in graph.vertices)
    total = words.count(len(graph.vertices), "vertex", "vertices")
    terminal.say(
        f"{target}: {found.kind}, {total} on {words.count(found.workers, 'worker')}, expected "
        f"{words.precise(found.expected_s)}; {measured} of {len(graph.vertices)} times are measured"
    )


@contextmanager
def searching(seconds: float) -> Iterator[Callable[[int, float], None] | None]:
    """A bar on stderr, if that is a terminal: the time that the search may take, and the best schedule so far."""
    if not sys.stderr.isatty() or not seconds:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    begin = time.monotonic()
    with Progress(
        BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"), console=Console(stderr=True),
        transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=seconds)

        def told(generation: int, best_s: float) -> None:
            text = f"generation {generation}, expected {words.precise(best_s)}"
            bar.update(task, completed=min(time.monotonic() - begin, seconds), description=text)

        yield told


@click.command()
@places.directory
@click.option("--machine", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="What bench-net wrote.")
@click.option(
    "-o", "--output", "target", required=True, type=click.Path(dir_okay=False), metavar="FILE.html",
    help="Write the page there; an existing file is replaced.",
)  # fmt: skip
def view(directory: str, machine: str | None, target: str) -> None:
    """A page with the graph, its workers over time, and its network.

    One file of HTML without scripts; it can be read while a run is at work. Planned times are shown beside real ones
    where the run had a schedule.
    """
    from safepoint.tasks.view import page

    places.store_of(directory)
    text = page(Path(directory), Path(machine) if machine else None)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    terminal.say(f"{target}: {words.size(os.path.getsize(target))}")
