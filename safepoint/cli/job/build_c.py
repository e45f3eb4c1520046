"""`safepoint build-c`: compile the library for programs in C and Fortran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from safepoint.c.build import Compilers, built, flags
from safepoint.cli import terminal


def compilers(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say for which compilers."""
    options = (
        click.option("--cc", default="cc", show_default=True, metavar="CMD", help="The C compiler, without MPI."),
        click.option("--mpicc", default="", metavar="CMD", help="The C compiler of the program's MPI."),
        click.option("--fc", default="", metavar="CMD", help="The Fortran compiler, whose version the module is for."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(name="build-c")
@compilers
@click.option("--prefix", default="", metavar="DIR", help="Where to, as include and lib; default: the user's cache.")
@terminal.as_json
def build_c(cc: str, mpicc: str, fc: str, prefix: str, as_json: bool) -> None:
    """Compile the library for programs in C and Fortran.

    A static library, headers and the Fortran module, made by the compilers of the program. `safepoint config` prints
    what to compile and link with, and builds what is not there yet.
    """
    chosen = Compilers(cc, mpicc, fc)
    home = built(chosen, Path(prefix).absolute() if prefix else None)
    compile_with, link_with = flags(chosen, home)
    if as_json:
        terminal.put({"directory": str(home), "cflags": compile_with, "libs": link_with})
    else:
        terminal.say(f"built in {home}")
        terminal.say(f"compile with  {compile_with}")
        terminal.say(f"link with     {link_with}")
