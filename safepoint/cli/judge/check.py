"""`safepoint check`: run a program of MPI, or take the trace of one, and find what templates describe."""

from __future__ import annotations

import contextlib
import gc
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.errors import UsageError
from safepoint.trace import launch
from safepoint.trace.lines import header

UNDECIDED = 2  # exit code: a template is wrong
MOST = 4 << 30  # bytes of a rank's trace
SYNC_SENDS = "sends were made synchronous (--sync-sends): each ended only when its receive had begun, as MPI may let it"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-t", "--template", "names", multiple=True, metavar="NAME|FILE|DIR",
              help="What to look for; may be given again. Default: standard, those marked so in --list.")  # fmt: skip
@click.option("--hang", default="", metavar="SECONDS", help="So long without a call entered or left, and the program "
              "hangs: told with a roll call, and ended. Default: 30; 0: never.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Do not end a program that hangs.")
@click.option("--all", "everything", is_flag=True, help="Show each situation in full, not only the first of a place.")
@click.option("-o", "--output", default="", metavar="DIR", help="Keep the trace, to check it again.")
@click.option("--with", "tracer", type=click.Choice(["auto", "python", "c", "both"]), default="auto",
              help="Which calls are seen: as safepoint trace has it.")  # fmt: skip
@click.option("--mpicc", default="", metavar="CC", help="The compiler of the MPI that the program is linked with.")
@click.option("--nodes", default="", metavar="A,B", help="Run on these nodes: mpiexec is told of them.")
@click.option("--port", default="", metavar="N", help="Where the followers of other nodes are listened for; 0: any. "
              "Default: any, if the command or the scheduler names several nodes; else none.")  # fmt: skip
@click.option("--sync-sends", is_flag=True, help="Let each MPI_Send be MPI_Ssend, and the like: a program that "
              "works only because MPI buffers its messages hangs.")  # fmt: skip
@click.option("--lines", is_flag=True, help="Print safepoint-lines.h, for mpicc -include safepoint-lines.h: "
              "with it the lines of a program in C are known without -g.")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="The templates that there are.")
@click.option("--explain", default="", metavar="NAME", help="What a template means, and what it cannot see.")
@click.option("--lint", default="", metavar="FILE|DIR", help="Is this a right template? All its faults are told.")
@terminal.as_json
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def check(
    ctx: click.Context, names: tuple[str, ...], hang: str, keep: bool, everything: bool, output: str, tracer: str,
    mpicc: str, nodes: str, port: str, sync_sends: bool, lines: bool, listing: bool, explain: str, lint: str,
    as_json: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND, such as `mpiexec -n 4 ./solver`, and find what templates describe: mistakes of MPI, each with the
    lines of its calls; or look for them in a trace that is there: `safepoint check run.trace`.

    A program that stands still is told where each rank is, and who waits for whom, and is ended. Exit code 0: nothing
    was found; 1: something was; 2: it cannot be told, or a template is wrong; else that of the program, if it failed.
    What to do here may be written into .safepoint-check once.
    """
    if lines:
        click.echo(header(), nl=False)
        return
    if listing or explain or lint:
        _about(ctx, explain, lint)
        return
    gc.set_threshold(200_000, 20, 100)  # calls come and go by the million, and make no cycles
    config = _settings(names, hang, mpicc, nodes, port)
    words = command or tuple(_module("config").program(config))
    if not words:
        raise UsageError("what is to be checked? safepoint check -- mpiexec -n 4 ./solver, or a trace")
    with terminal.tidy():
        if len(words) > 1 and Path(words[0]).is_dir():
            raise UsageError(f"{words[0]} is a directory: options come before the trace")
        if len(words) == 1 and Path(words[0]).is_dir():
            if keep or output or mpicc or nodes or port or sync_sends or tracer != "auto":
                which = "--keep, -o, --mpicc, --nodes, --port, --sync-sends and --with"
                raise UsageError(f"{which} are for a program that is run, not for a trace")
            outcome = _of_trace(Path(words[0]), config)
        else:
            outcome = _of_run(words, config, not command, keep, output, tracer, sync_sends)
    if as_json:
        terminal.put(outcome.as_json())
    else:
        for line in outcome.lines(everything):
            terminal.say(line)
    ctx.exit(outcome.code)


def _settings(names: tuple[str, ...], hang: str, mpicc: str, nodes: str, port: str) -> Any:
    """What `.safepoint-check` says; the command line wins."""
    of = _module("config")
    config = of.read(Path())
    config.templates = names or config.templates or ("standard",)
    config.mpicc = mpicc or config.mpicc
    if hang:
        config.hang = of.seconds(hang, "--hang:")
    if nodes:
        config.nodes = of.hosts(nodes, "--nodes:")
    if port:
        config.port = of.port(port, "--port:")
    return config


def _load(names: tuple[str, ...]) -> list[Any]:
    """`none`: no template; a program that stands still is told all the same."""
    if names == ("none",):
        return []
    try:
        return list(_module("language").load(names))
    except UsageError as error:  # of several lines, each with its file
        click.echo(terminal.printable(str(error)), err=True)
        raise click.exceptions.Exit(UNDECIDED) from error


def _of_trace(path: Path, config: Any) -> Any:
    templates = _load(config.templates)
    follower, situations, missing = _module("follow").afterwards(path, templates)
    outcome = _module("outcome").Outcome(templates, follower, situations, incomplete=missing)
    outcome.unchecked += _module("outcome").second(path)
    outcome.remarks += [SYNC_SENDS] * _module("watch").makes_synchronous(path)
    hung = path / _module("follow").HUNG
    if hung.exists():
        outcome.hang = _module("rollcall").Hang((), False, (), hung.read_text("utf-8").rstrip("\n"))
    outcome.code_of_program, outcome.deaths, outcome.ended_by_us = _module("follow").how_it_ended(path)
    if follower.plain:
        outcome.remarks.append(
            f"{path} was written by safepoint trace, which notes no types, counts and objects: what templates ask of "
            "them is not found. Of a program in C, what callbacks of attributes free is told as left. Run the program "
            "with safepoint check -o DIR instead"
        )
    return outcome


def _of_run(
    words: Sequence[str], config: Any, ours: bool, keep: bool, output: str, tracer: str, sync_sends: bool
) -> Any:
    """`ours`: the command is that of `.safepoint-check`, which says how it is built too."""
    running, templates = _module("running"), _load(config.templates)
    if ours and config.build:
        _build(config)
    with contextlib.ExitStack() as stack:
        if output:
            where = launch.directory(output)
        else:
            where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="safepoint-check-",
                                                                         dir=config.directory or None)))  # fmt: skip
        running.prepare(where, templates, config.hang, sync_sends)
        server, hosts = None, _module("hosts")
        if hosts.several(config, words):
            server = _module("server").Server(where, max(config.port, 0))
            stack.callback(server.close)
        try:
            environment = launch.environment(where, words, tracer, config.mpicc, MOST, arguments=True)
            environment |= hosts.environment(where, sys.executable, server)
            started = hosts.placed(words, config, environment) if server is not None else words
            outcome = running.Run(where, templates, config.hang, keep, _tell, server).run(started, environment)
        except OSError as error:
            raise UsageError(f"{words[0]}: {error.strerror}") from error
        outcome.remarks += [SYNC_SENDS] * sync_sends
        return outcome


def _tell(text: str) -> None:
    """While the program runs."""
    click.echo(terminal.printable(f"safepoint: {text}"), err=True)


def _build(config: Any) -> None:
    """Run the user's command if a source is newer. Raises `UsageError` with what it has said."""
    why = _module("config").outdated(config, launch.program(config.command), Path())
    if not why:
        return
    _tell(f"{why}: {config.build}")
    done = subprocess.run(config.build, shell=True)
    if done.returncode:
        raise UsageError(f"the build has failed with status {done.returncode}: {config.build}")


def _about(ctx: click.Context, explain: str, lint: str) -> None:
    """What is said without running anything: that which is asked for first, else the list."""
    language = _module("language")
    if lint:
        faults = [fault for path in _templates(Path(lint)) for fault in language.faults(path)]
        for fault in faults:
            terminal.say(str(fault))
        if not faults:
            terminal.say(f"{lint}: right")
        ctx.exit(UNDECIDED if faults else 0)
    if explain:
        for one in language.load((explain,)):
            terminal.say(f"[{one.id}] {one.name} ({one.kind})")
            terminal.say(one.text)
        ctx.exit(0)
    standard = language.standard()
    known = language.load(language.shipped())
    rows = [(one.id, "standard" if one.id in standard else "", one.kind, one.name) for one in known]
    terminal.table(("template", "", "kind", "what it finds"), rows)
    ctx.exit(0)


def _templates(path: Path) -> list[Path]:
    return sorted(path.glob("*.tpl")) if path.is_dir() else [path]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"safepoint.check.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("safepoint"):
            raise
        raise UsageError(f"{error.name} is missing, which templates are read with: pip install '.[check]'") from error
