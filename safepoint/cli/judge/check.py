"""`safepoint check`: run a program of MPI, or take the trace of one, and find what templates describe."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.errors import UsageError

FOUND, UNDECIDED = 1, 2  # exit codes
PACKAGES = {"lark": "lark"}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-t", "--template", "names", multiple=True, metavar="NAME|FILE|DIR",
              help="What to look for; may be given again. Default: standard, all that are marked so in --list.")  # fmt: skip
@click.option("--hang", default="", metavar="SECONDS", help="So long without a call entered or left, and the program "
              "hangs: told with a roll call, and ended. Default: 30; 0: never.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Do not end a program that hangs.")
@click.option("--all", "everything", is_flag=True, help="Show each situation in full, not only the first of a place.")
@click.option("-o", "--output", default="", metavar="DIR", help="Keep the trace, to check it again.")
@click.option("--with", "tracer", type=click.Choice(["auto", "python", "c", "both"]), default="auto",
              help="Which calls are seen: as safepoint trace has it.")  # fmt: skip
@click.option("--mpicc", default="", metavar="CC", help="The compiler of the MPI that the program is linked with.")
@click.option("--list", "listing", is_flag=True, help="The templates that there are.")
@click.option("--explain", default="", metavar="NAME", help="What a template means, and what it cannot see.")
@click.option("--lint", default="", metavar="FILE|DIR", help="Is this a right template? All its faults are told.")
@click.option("--lines", is_flag=True, help="A header for mpicc -include: lines without debug information.")
@terminal.as_json
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def check(
    ctx: click.Context, names: tuple[str, ...], hang: str, keep: bool, everything: bool, output: str, tracer: str,
    mpicc: str, listing: bool, explain: str, lint: str, lines: bool, as_json: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND, such as `mpiexec -n 4 ./solver`, and find what templates describe: mistakes of MPI, each with the
    lines of its calls; or look for them in a trace that is there: `safepoint check run.trace`.

    A program that stands still is told where each rank is, and who waits for whom, and is ended. Exit code 0: nothing
    was found; 1: something was; 2: it cannot be told, or a template is wrong; else that of the program, if it failed.
    What to do here may be written into .safepoint-check once.
    """
    if listing or explain or lint or lines:
        _about(ctx, listing, explain, lint, lines)
        return
    with terminal.tidy():
        judge = _Judge(names, hang)
        words_ = command or judge.config_command()
        if not words_:
            raise UsageError("what is to be checked? safepoint check -- mpiexec -n 4 ./solver, or a trace")
        if len(words_) == 1 and Path(words_[0]).is_dir():
            if keep or output or mpicc or tracer != "auto":
                raise UsageError("--keep, -o, --mpicc and --with are for a program that is run, not for a trace")
            result = judge.trace(Path(words_[0]))
        else:
            result = judge.run(words_, judge.options(keep, output, tracer, mpicc))
    if as_json:
        terminal.put(result.as_json())
    else:
        for line in result.lines(everything):
            terminal.say(line)
    ctx.exit(result.code)


def _about(ctx: click.Context, listing: bool, explain: str, lint: str, lines: bool) -> None:
    """What is said without running anything."""
    if lines:
        from safepoint.trace.lines import header

        click.echo(header(), nl=False)
        return
    language = _module("language")
    if lint:
        faults = language.faults(Path(lint))
        for fault in faults:
            terminal.say(str(fault))
        if not faults:
            terminal.say(f"{lint}: right")
        ctx.exit(UNDECIDED if faults else 0)
    standard = language.standard()
    if explain:
        found = next((one for one in language.load((explain,))), None)
        terminal.say(f"[{found.id}] {found.name} ({found.kind})")
        terminal.say(found.text)
        ctx.exit(0)
    rows = [(one.id, "standard" if one.id in standard else "", one.kind, one.name) for one in language.shipped()]
    terminal.table(("template", "", "kind", "what it finds"), rows)
    ctx.exit(0)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"safepoint.check.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("safepoint"):
            raise
        raise UsageError(f"{error.name} is missing, which templates are read with: pip install '.[check]'") from error
