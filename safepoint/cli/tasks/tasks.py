"""`safepoint tasks`: a group of commands, of which none is loaded before it is used."""

from __future__ import annotations

import importlib

import click

VERBS = {  # module, and the first sentence of the help
    "run": ("running", "Run what has not finished of a graph in a file of TOML."),
    "plan": ("planning", "Write a schedule for a graph: which worker runs which vertex, and when."),
    "show": ("looking", "The vertices of the last graph: state, seconds, bytes, worker, attempts."),
    "why": ("looking", "Why a vertex would run again, or why it failed."),
    "get": ("getting", "A result, into a file or onto the screen."),
    "view": ("planning", "A page with the graph, its workers over time, and its network."),
    "verify": ("keeping", "Read all results and compare them with their checksums."),
    "forget": ("keeping", "Make vertices run again."),
    "clean": ("keeping", "Remove the results that the last graph does not use."),
}


class Verbs(click.Group):
    """Finds its commands in their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"safepoint.cli.tasks.{VERBS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = f"No such option {error.option_name}; options stand after the command: safepoint tasks show -C DIR"
            raise click.NoSuchOption(error.option_name, text, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=Verbs)
def tasks() -> None:
    """Run a graph of tasks whose finished vertices stay, and look at what is kept of it.

    Results are kept in .safepoint.d/tasks below the current directory, or below the one of -C. All but `run` and `plan`
    work for graphs that a program in Python runs, too. To give results out, `get` reads pickles, which can run code:
    use it in your own directories only.
    """
