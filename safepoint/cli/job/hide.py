"""`safepoint hide`: a save point from a job script, or from a program that can only call a command."""

from __future__ import annotations

from contextlib import closing

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.nodes.local import refuse_commands
from safepoint.program import Session
from safepoint.run.heirs import heirs_in


@click.command()
@terminal.directory
@click.option("--step", type=int, metavar="N", help="The program's own number of this save point.")
@terminal.as_json
def hide(directory: str, step: int | None, as_json: bool) -> None:
    """Make a set of the files in place, from a job script.

    As the program's own hide, for programs in C, Fortran or a shell: system("safepoint hide --step 5"). The files that
    are listed move away, and on return the set survives a power cut. At the beginning of the script, once, `safepoint
    restore` gives back the last set. Serial programs only.
    """
    refuse_commands(directory)
    with closing(Session(directory)) as session:
        heirs_in(session._root.work)
        session.adopt()
        point = session.hide(step, wait=True)
    if as_json:
        terminal.put({
            "number": point.number if point else None, "step": step, "files": list(point.files) if point else [],
        })  # fmt: skip
    elif point is None:
        terminal.say("nothing to hide")
    else:
        at = "" if point.step is None else f" (step {point.step})"
        terminal.say(f"saved set {point.number}{at}: {words.count(len(point.files), 'file')}")
