"""`safepoint finish`: the end of a run that a job script leads."""

from __future__ import annotations

from contextlib import closing

import click

from safepoint.cli import terminal
from safepoint.nodes.local import refuse_commands
from safepoint.program import Session
from safepoint.run.heirs import heirs_in


@click.command()
@terminal.directory
@click.option(
    "--step", type=int, metavar="N", help="The last step; by default that of the last set, if its files are the result."
)
@terminal.as_json
def finish(directory: str, step: int | None, as_json: bool) -> None:
    """Declare the files in place the result, from a job script.

    If they were hidden and not written again, the last set is put back first. The sets are removed, and a later restore
    leaves the files alone.
    """
    refuse_commands(directory)
    with closing(Session(directory)) as session:
        heirs_in(session._root.work)
        session.adopt()
        session.finish(step)
    if as_json:
        terminal.put({"finished": True, "step": step})
    else:
        terminal.say("finished: the files in place are the result")
