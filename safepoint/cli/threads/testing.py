"""`safepoint threads test`: both programs, digests first, then all events of the region that differs."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.judge.compare import atol, rtol
from safepoint.cli.threads.comparing import rules
from safepoint.cli.threads.options import exclude, no_option, tolerance
from safepoint.cli.threads.threads import part
from safepoint.errors import UsageError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--runs", default=1, metavar="N", type=click.IntRange(min=1),
              help="Run B so often, until it differs: races are chance. Default: 1.")  # fmt: skip
@click.option("--noise", default=0, metavar="N", type=click.IntRange(min=0),
              help="Each thread of B yields at every N-th event on average, so that races show; B may take 50 times "
                   "as long.")  # fmt: skip
@click.option("--control", is_flag=True, help="Run A twice first: if these differ, the program is not deterministic.")
@rtol
@atol
@tolerance
@exclude
@click.option("--keep", default="", metavar="DIR", help="A new directory for traces and outputs, which stays.")
@click.option("--timeout", type=float, default=None, metavar="SECONDS", help="For each run. Default: none.")
@terminal.as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def test(
    ctx: click.Context, runs: int, noise: int, control: bool, rtol: float, atol: float, tolerances: Sequence[str],
    exclude: Sequence[str], keep: str, timeout: float | None, as_json: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run both programs that `build` made, and say which region, iteration and line differs first.

    \b
    safepoint threads test -- ./heat in.nml
    safepoint threads test --runs 5 --noise 50 -- ./heat in.nml
    safepoint threads test --rtol 1e-10 -- mpiexec -n 2 ./heat

    A is ./heat.serial, B is ./heat with the OMP_NUM_THREADS of the environment, or 4. They run one after the other, in
    this directory. Exit code 0: equal; 1: not; 2: it cannot be told, such as of a program that is not deterministic.
    """
    no_option(ctx, command)
    judge = rules(rtol, atol, tolerances, exclude)
    plan = part("passes").Plan(runs, noise, control, timeout)
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal.tidy())
        if keep:
            _make(keep)
        where = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="safepoint-threads-"))
        found = part("passes").Passes(command, Path(where).resolve(), judge, plan, _say).run()
    if as_json:
        terminal.put(_json(found, keep))
    else:
        for line in found.lines:
            terminal.say(line)
    ctx.exit(found.code)


def _say(text: str) -> None:
    """Progress, where somebody sees it."""
    if sys.stderr.isatty():
        click.echo(terminal.printable(text), err=True)


def _make(keep: str) -> None:
    try:
        Path(keep).mkdir()
    except FileExistsError:
        raise UsageError(f"{keep} is there already: remove it, or name another with --keep") from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"--keep {keep}: {error.strerror}; nothing was run", error.errno) from None


def _json(outcome: Any, keep: str) -> dict[str, Any]:
    found = {} if outcome.found is None else part("telling").as_json(outcome.found)
    return {
        **found, "equal": outcome.code == 0, "verdict": outcome.verdict, "code": outcome.code, "passes": outcome.passes,
        "rank": int(outcome.rank[1:]) if outcome.rank else None, "text": outcome.lines, "kept": keep or None,
    }  # fmt: skip
