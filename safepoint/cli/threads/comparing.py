"""`safepoint threads compare`, `follow` and `export`: traces that are there, or that grow while programs run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.judge.compare import UNDECIDED, atol, make_rules, rtol
from safepoint.cli.threads.options import exclude, tolerance
from safepoint.cli.threads.threads import part
from safepoint.errors import UsageError

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
    judge, read = rules(rtol, atol, tolerances, exclude), part("trace").Run
    with comparable(ctx):
        one, other = read(a), read(b)
        judge = replace(judge, rounding=part("endings").whole(one))
        found = part("compare").compare(one, other, judge, None, by_name=by_name)
        tell(ctx, a, b, part("endings").explained(found, one, other), as_json)


@contextlib.contextmanager
def comparable(ctx: click.Context) -> Iterator[None]:
    """What cannot be compared is neither equal nor different."""
    try:
        yield
    except part("compare").UnlikeTraces as error:
        click.echo(f"safepoint: {terminal.printable(str(error))}", err=True)
        ctx.exit(UNDECIDED)


def tell(ctx: click.Context, a: str, b: str, found: Any, as_json: bool) -> None:
    """The answer, and its exit code."""
    telling = part("telling")
    if as_json:
        terminal.put({"a": a, "b": b, **telling.as_json(found)})
    else:
        for line in telling.lines(found):
            terminal.say(line)
    ctx.exit(found.code)


def rules(rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str]) -> Any:
    """Raises `UsageError` for a tolerance that is none."""
    made = make_rules(rtol, atol, tolerances, exclude)
    for name, relative, absolute in (("--rtol", rtol, 0.0), ("--atol", atol, 0.0), *made.tolerances[1:]):
        for value in (relative, absolute):
            if not 0 <= value < math.inf:
                raise UsageError(f"{name}: a tolerance must be 0 or more, and is {value:g}")
    return part("compare").Rules(rtol, atol, made.tolerances[1:], tuple(exclude))


@click.command()
@click.argument("a", metavar="A", type=click.Path(file_okay=False))
@click.argument("b", metavar="B", type=click.Path(file_okay=False))
@rtol
@atol
@tolerance
@exclude
@by_name
@click.option("--discard", is_flag=True, help="Give back the room of what was compared; start both with SP_AHEAD=64, "
              "in units of 2 MiB.")  # fmt: skip
@click.option("--no-stop", is_flag=True, help="Let the programs go on at a difference.")
@terminal.as_json
@click.pass_context
def follow(
    ctx: click.Context, a: str, b: str, rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str],
    by_name: bool, discard: bool, no_stop: bool, as_json: bool,
) -> None:  # fmt: skip
    """Compare the traces A and B while their programs run, and stop both (SIGSTOP) at the first difference.

    \b
    SP_LEVEL=full SP_DIR=a OMP_NUM_THREADS=1 ./heat.serial &
    SP_LEVEL=full SP_DIR=b ./heat &
    safepoint threads follow a b

    It waits for each to begin; one of them may be a trace that is complete. The numbers of the stopped processes are
    told, for gdb -p; kill -CONT lets them go on. Exit codes as `compare`.
    """
    judge = rules(rtol, atol, tolerances, exclude)
    with terminal.tidy(), comparable(ctx):
        found = part("follow").follow(Path(a), Path(b), judge, discard=discard, stop=not no_stop, by_name=by_name)
        tell(ctx, a, b, found, as_json)


@click.command()
@click.argument("run", metavar="RUN", type=trace)
@click.option("-o", "--output", default=".", metavar="DIR", help="Where the files go. Default: here.")
@click.option("--name", default="", help="The first part of their names. Default: that of the run.")
@click.option("--force", is_flag=True, help="Replace files of these names that are of another run.")
def export(run: str, output: str, name: str, force: bool) -> None:
    """Write the trace RUN as text: a line for each event, a file for each thread.

    A(6) in a message is line 6 of the file of that thread, NAME_trace_N.log. NAME_trace_main.log has the places. The
    text is about twice as large as the trace.
    """
    text, read = part("export"), part("trace").Run(run)
    with terminal.progress("writing", text.size(read)) as done:
        made = text.write(read, Path(output), name, force=force, done=done)
    for path in made:
        terminal.say(str(path))
