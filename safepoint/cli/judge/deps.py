"""`safepoint deps`: what the statements of a function read and write, and which may run side by side."""

from __future__ import annotations

import click

from safepoint.cli import terminal
from safepoint.errors import UsageError


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("function", metavar="[FUNCTION]", default="")
@click.option("--inside", default=0, type=click.IntRange(min=0), metavar="LINE",
              help="Look at what the loop, `if`, … that begins in this line holds, in place of the whole.")  # fmt: skip
@click.option("--dot", is_flag=True, help="A drawing for Graphviz: safepoint deps … --dot | dot -Tsvg")
@click.option("--graph", is_flag=True, help="The skeleton of a graph of tasks, in TOML.")
@terminal.as_json
def deps(file: str, function: str, inside: int, dot: bool, graph: bool, as_json: bool) -> None:
    """Which statements of FUNCTION, in Python or C, depend on which, and which may run side by side.

    For each statement it says what it reads (in) and writes (out), and what binds it to those before it: flow (out,
    then in), anti (in, then out), output (out, then out). `?` means perhaps; `a~b`: two names of perhaps one place;
    `leaving`: the function may end there, and others see what was done before. It advises, and changes no program.
    Without FUNCTION all functions of the file are shown.
    """
    if dot + graph + as_json > 1:
        raise UsageError("--json, --dot and --graph exclude each other")
    from safepoint.tasks import deps as room
    from safepoint.tasks.deps import told

    found = room.analyses(file, function, inside)
    if (dot or graph) and len(found) > 1:
        names = ", ".join(each.function for each in found)
        raise UsageError(f"{file}: {'--dot' if dot else '--graph'} needs the name of a function; there are {names}")
    if as_json:
        terminal.put({"functions": [told.as_json(each) for each in found]})
        return
    for number, each in enumerate(found):
        if number:
            terminal.say()
        for line in told.dot(each) if dot else told.toml(each) if graph else told.lines(each):
            terminal.say(line)
