"""`safepoint trace`: run a program of MPI, and note each call that communicates."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from safepoint import ranks, words
from safepoint.cli import terminal
from safepoint.errors import UsageError
from safepoint.settings import _bytes as size
from safepoint.trace import launch, record


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", default="run.trace", metavar="DIR", help="Where the trace goes. Default: run.trace")
@click.option(
    "--with", "tracer", type=click.Choice(launch.TRACERS), default="auto",
    help="Which calls are noted: those of mpi4py, those of C and Fortran, or all of both. Default: as the program is.",
)  # fmt: skip
@click.option("--mpicc", default="", metavar="CC", help="The compiler of the MPI that the program is linked with.")
@click.option("--limit", default="4GiB", metavar="SIZE", help="A rank stops noting at so many bytes. Default: 4GiB")
@click.option("--export-otf2", "archive", default=None, metavar="OUT",
              help="Run nothing: write the trace that is named instead of COMMAND as OTF2, into OUT.")  # fmt: skip
@click.option("--pack", is_flag=True, help="Run nothing: pack the trace that is named instead of COMMAND.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def trace(
    ctx: click.Context, output: str, tracer: str, mpicc: str, limit: str, archive: str | None, pack: bool,
    command: Sequence[str],
) -> None:  # fmt: skip
    """Run COMMAND, such as `mpiexec -n 4 python solver.py`, and note each call of MPI that sends, receives, completes
    or is collective. While it runs, `hide` counts the messages of all ranks: it finds each that is under way.

    Where a launcher passes no environment to other nodes, it starts this command itself: `mpiexec -n 4 safepoint trace
    -- python solver.py`. Programs in C and Fortran need the mpicc of their MPI. Exit code: the program's own.
    """
    if archive is not None or pack:
        with terminal.tidy():
            _of_trace(command, archive or "", pack)
        return
    try:
        most = size(limit)
    except ValueError as error:
        raise UsageError(f"--limit {limit}: {error}") from error
    where = launch.directory(output)
    try:
        environment = launch.environment(where, command, tracer, mpicc, most)
        if ranks.launcher():
            os.execvpe(command[0], list(command), environment)  # this is one rank: the program is in its place
        code = _run(command, environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # not empty; or another rank was here
            where.rmdir()
    _say(where, output)
    ctx.exit(code)


def _of_trace(command: Sequence[str], archive: str, pack: bool) -> None:
    """What is done with a trace that is there already. Raises `UsageError`."""
    if len(command) != 1 or bool(archive) == pack:
        raise UsageError("--export-otf2 and --pack take one trace, each by itself: safepoint trace --pack run.trace")
    path = Path(command[0])
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or directory")
    if not path.is_dir():
        raise UsageError(f"{path} is not the directory of a trace")
    try:
        module = importlib.import_module(f"safepoint.matching.{'packed' if pack else 'otf2'}")
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install {error.name}") from error
    if pack:
        calls, before, size = module.pack(path)
        each = f", {size / calls:.1f} bytes a call" if calls else ""
        terminal.say(f"{path}: {words.count(calls, 'call')}, {words.size(before)} → {words.size(size)}{each}")
    else:
        terminal.say(f"{module.export(path, Path(archive))}: OTF2 of {path}")


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Its exit code, as a shell has it. Ctrl-C is for the program, which has it from the terminal; SIGTERM is passed
    on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    heed = _heed if os.name == "posix" else None
    try:
        with subprocess.Popen(command, env=environment, restore_signals=True, preexec_fn=heed) as process:
            signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
            code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return 128 - code if code < 0 else code


def _heed() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _say(where: Path, output: str) -> None:
    traced = sorted(where.glob("rank-*.json")) if where.exists() else []
    if not traced:
        click.echo("safepoint: nothing was traced: the program has not called MPI, or it did not start, or this tracer "
                   "sees none of its calls (see --with)", err=True)  # fmt: skip
        return
    notes = sum(map(record.count, where.glob("rank-*.calls")))
    held = f"{words.count(len(traced), 'rank')}, {words.count(notes, 'call')}"
    terminal.say(f"{output}: {held}")
