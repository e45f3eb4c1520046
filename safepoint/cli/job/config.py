"""`safepoint config`: what a program in C or Fortran is to be compiled and linked with."""

from __future__ import annotations

import click

from safepoint.c.build import Compilers, built, flags
from safepoint.cli.job.build_c import compilers


@click.command()
@compilers
@click.option("--cflags", is_flag=True, help="What to compile with.")
@click.option("--libs", is_flag=True, help="What to link with, after the objects.")
@click.option("--pkgconfig", is_flag=True, help="The directory for PKG_CONFIG_PATH.")
def config(cc: str, mpicc: str, fc: str, cflags: bool, libs: bool, pkgconfig: bool) -> None:
    """What a program in C or Fortran is to be compiled and linked with.

    The library is built first, if that was not yet done for these compilers.
    """
    if not (cflags or libs or pkgconfig):
        raise click.UsageError("give --cflags, --libs or --pkgconfig")
    chosen = Compilers(cc, mpicc, fc)
    home = built(chosen)
    compile_with, link_with = flags(chosen, home)
    parts = [compile_with] * cflags + [link_with] * libs + [str(home / "lib" / "pkgconfig")] * pkgconfig
    click.echo(" ".join(parts))
