"""`safepoint threads build` and `instrument`: two programs from the user's line, or a source as build compiles it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.threads.options import no_option
from safepoint.cli.threads.threads import needed, part

settings = click.option("--settings", metavar="FILE", type=click.Path(exists=True, dir_okay=False), default=None,
                        help="What to record where. Default: threads.toml, if it is there.")  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", default="", metavar="NAME", help="The program. Default: that of the line, or a.out.")
@settings
@click.option("--print-flags", is_flag=True, help="What a program with calls by hand is compiled and linked with.")
@click.option("--cflags", is_flag=True, help="The same, of the compiler alone.")
@click.option("--libs", is_flag=True, help="The same, of the linker alone: after the sources.")
@terminal.as_json
@click.argument("line", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def build(
    ctx: click.Context, output: str, settings: str | None, print_flags: bool, cflags: bool, libs: bool, as_json: bool,
    line: tuple[str, ...],
) -> None:  # fmt: skip
    """Compile a program twice from LINE, your own line for the compiler: NAME has OpenMP, NAME.serial does not.

    \b
    safepoint threads build -o heat -- gfortran -O2 -fopenmp heat.f90 solver.f90
    make FC="safepoint threads build -- gfortran"

    Both have calls that record, and are off until `test` switches them on. The sources stay as they are; what is
    compiled is in NAME.instrumented. A line with -c makes the object as ever, with a note for the line that links it.
    A program in C has the calls by hand (sp_trace.h) and is compiled with -DSP_TRACE.
    """
    no_option(ctx, line)
    if print_flags or cflags or libs:
        found = part("library").library(line[0] if line else "gfortran")
        first = [f"-I{found.include}"] if cflags or not libs else []
        last = [str(found.archive), *found.flags] if libs or not cflags else []
        terminal.say(" ".join([*first, *last]))
        return
    with needed():
        built = part("building").build(list(line), Path(output) if output else None, settings=_settings(settings))
    if isinstance(built, list):
        return  # objects, as the compiler makes them
    if as_json:
        terminal.put(_json(built))
        return
    for text in built.told:
        terminal.say(text)
    for text in built.warnings:
        terminal.prose(text, "    ")


def _json(built: Any) -> dict[str, Any]:
    return {
        "program": str(built.parallel), "serial": str(built.serial), "texts": str(built.texts),
        "sites": str(built.sites) if built.sites else None, "sources": built.counts, "warnings": built.warnings,
    }  # fmt: skip


def _settings(file: str | None) -> Any:
    """None if there are none. Raises `UsageError` with file, line and cause."""
    path = Path(file or "threads.toml")
    return part("choices").read(path) if file or path.exists() else None


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the text goes.")
@settings
def instrument(file: str, output: str, settings: str | None) -> None:
    """Write FILE, a source in Fortran, with the calls that record into OUT, as `build` compiles it.

    `build` knows the modules of all files on its line; this knows those of FILE alone. OUT.sites.jsonl gets the places.
    """
    with needed():
        told, warnings = part("texts").instrument(Path(file), Path(output), _settings(settings))
    terminal.say(told)
    for text in warnings:
        terminal.prose(text, "    ")
