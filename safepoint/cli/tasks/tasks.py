"""`safepoint tasks`: a group of commands, of which none is loaded before it is used."""

from __future__ import annotations

import click

from safepoint.cli.verbs import Verbs

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


@click.group(cls=Verbs, room="tasks", verbs=VERBS, example="safepoint tasks show -C DIR")
def tasks() -> None:
    """Run a graph of tasks whose finished vertices stay, and look at what is kept of it.

    Results are kept in .safepoint.d/tasks below the current directory, or below the one of -C. All but `run` and `plan`
    work for graphs that a program in Python runs, too. To give results out, `get` reads pickles, which can run code:
    use it in your own directories only.
    """
