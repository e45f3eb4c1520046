"""`safepoint threads compare`, `follow` and `export`: traces that are there, or that grow while programs run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.judge.compare import atol, exclude, make_rules, rtol, tolerance
from safepoint.cli.threads.threads import part

by_name = click.option("--by-name", is_flag=True, help="Match places by file, name and order: of two versions.")
trace = click.Path(exists=True, file_okay=False)


@click.command()
@click.argument("a", metavar="A", type=trace)
@click.argument("b", metavar="B", type=trace)
@rtol
@atol
@tolerance
@exclude
@by_name
@terminal.as_json
@click.pass_context
def compare(
    ctx: click.Context, a: str, b: str, rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str],
    by_name: bool, as_json: bool,
) -> None:  # fmt: skip
    """Compare the traces A and B, directories NAME.threads: which region, iteration and line differs first.

    \b
    SP_LEVEL=full ./heat; mv heat.threads laptop.threads
    safepoint threads compare --rtol 1e-12 laptop.threads cluster.threads

    A program that was built by `safepoint threads build` records with SP_LEVEL=minimal (digests of each region), modify
    (all writes) or full (all reads too). Exit code 0: equal; 1: not; 2: it cannot be told.
    """
    read = part("trace").Run
    found = part("compare").compare(read(a), read(b), rules(rtol, atol, tolerances, exclude), None, by_name=by_name)
    if as_json:
        terminal.put({"a": a, "b": b, **part("telling").as_json(found)})
    else:
        show(found)
    ctx.exit(found.code)


def rules(rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str]) -> Any:
    """Raises `UsageError` for a tolerance that is none."""
    made = make_rules(rtol, atol, tolerances, exclude)
    return part("compare").Rules(rtol, atol, made.tolerances[1:], tuple(exclude))


def show(found: Any) -> None:
    for line in part("telling").lines(found):
        terminal.say(line)


@click.command()
@click.argument("run", metavar="RUN", type=trace)
@click.option("-o", "--output", default=".", metavar="DIR", help="Where the files go. Default: here.")
@click.option("--name", default="", help="The first part of their names. Default: that of the run.")
def export(run: str, output: str, name: str) -> None:
    """Write the trace RUN as text: a line for each event, a file for each thread.

    A(6) in a message is line 6 of the file of that thread, NAME_trace_N.log. NAME_trace_main.log has the places.
    """
    for path in part("export").write(part("trace").Run(run), Path(output), name):
        terminal.say(str(path))
