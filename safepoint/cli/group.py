"""The command `safepoint` with all that are below it, and how errors leave it.

No command's module is imported before that command is used, or asked for help: `safepoint status` must not wait for
what `safepoint run` needs.
"""

from __future__ import annotations

import errno
import importlib
import logging
from typing import Any

import click

from safepoint import SafepointError, __version__
from safepoint.cli import NEEDED, missing
from safepoint.disk.files import cause

COMMANDS = {  # the first sentence of each command's help, so that the list of them needs none of the modules
    "status": "What is kept here, and what a restart would take.",
    "verify": "Read all that is kept and compare it with its checksums.",
    "show": "The files of one set, or of the newest.",
    "why": "What restore would do now, and why, in plain sentences.",
    "restore": "Put a set back into place by hand, or extract it elsewhere.",
    "drop": "Remove one set.",
    "diff": "Compare the files of two sets, or of a set and those in place.",
    "log": "What happened here: the events of all ranks.",
    "top": "The run at work here, live: what would be lost now, and what saving costs.",
    "drain": "Put the newest complete set to another place: a directory, or a store.",
    "fetch": "Bring the newest whole set from another place into DIR, where the program's restore finds it.",
    "clean": "Remove what failed, killed or finished runs left behind.",
    "hide": "Make a set of the files in place, from a job script.",
    "halt": "Ask the run at work here to save and end.",
    "finish": "Declare the files in place the result, from a job script.",
    "init": "Write a first manifest, from the files that changed last.",
    "run": "Run a program that knows nothing of save points, and save its files.",
    "report": "A page about a run, made of its events.",
    "build-c": "Compile the library for programs in C and Fortran.",
    "config": "What a program in C or Fortran is to be compiled and linked with.",
    "crash-test": "Does a run that is killed and resumed equal the uninterrupted one?",
    "compare": "Where do two runs differ first? From their ledgers, step by step.",
    "places": "Where may this program save, and is each hide at such a place? From its trace.",
    "check": "Find mistakes of MPI that templates describe, in a program that runs, or in its trace.",
    "trace": "Run a program of MPI, note each of its calls, and let hide count its messages.",
    "threads": "Compare two runs of a program with OpenMP: which region, iteration and line differs first.",
    "tasks": "Run a graph of tasks whose finished vertices stay, and look at what is kept of it.",
    "deps": "Which statements of a function depend on each other, and which may run side by side.",
    "bench-net": "Measure the links between the ranks of mpiexec, and their speeds, for schedules of tasks.",
}
ROOMS = {
    "look": ("status", "verify", "show", "why", "diff", "log", "top"),
    "act": ("restore", "drop", "clean", "drain", "fetch"),
    "job": ("hide", "halt", "finish", "init", "run", "build-c", "config", "bench-net"),
    "judge": ("report", "crash-test", "compare", "trace", "places", "check", "deps"),
    "tasks": ("tasks",),
    "threads": ("threads",),
}
ROOM = {name: room for room, names in ROOMS.items() for name in names} | {"tend": "act"}  # which is not for people
SYSTEM = 17  # the exit code for an error of the system, as RestoreError: what is kept is as it was
INTERRUPTED = 130  # 128 + SIGINT, as shells count it
COMPLETION = """\
Completion of commands and options: add to ~/.bashrc, ~/.zshrc or ~/.config/fish/completions/safepoint.fish

\b
  bash   eval "$(_SAFEPOINT_COMPLETE=bash_source safepoint)"
  zsh    eval "$(_SAFEPOINT_COMPLETE=zsh_source safepoint)"
  fish   _SAFEPOINT_COMPLETE=fish_source safepoint | source"""


class Group(click.Group):
    """Finds its commands in the modules of their names, each in its room."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ROOM:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"safepoint.cli.{ROOM[cmd_name]}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            if not (near := difflib.get_close_matches(args[0], COMMANDS, n=2)):
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it; an error of safepoint or of the system is one line, and the process ends with its code."""
        try:
            return super().invoke(ctx)
        except SafepointError as error:
            _end(ctx, str(error), error.code)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in NEEDED:
                raise
            _end(ctx, missing(), 1, prefix="")
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever reads our output has seen enough; click ends quietly
                raise
            file = "" if error.filename is None else f"{error.filename}: "
            _end(ctx, f"{file}{cause(error)}", SYSTEM)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _end(ctx: click.Context, text: str, code: int, prefix: str = "safepoint: ") -> None:
    from safepoint.cli.terminal import printable

    click.echo(prefix + printable(text), err=True)
    ctx.exit(code)


@click.group(cls=Group, epilog=COMPLETION, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def program() -> None:
    """Crash-safe save points for long computations: look at what is kept, and act on it by hand.

    Each command works in DIR, the directory with the manifest .safepoint; by default it is the current one. With --json
    a command prints one JSON object and nothing else. Exit codes and keys are listed in docs/cli.md.
    """
    logging.basicConfig(format="safepoint: %(message)s", level=logging.WARNING)
