"""Options of which variables count, and words before the program that may be a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import click

from safepoint.errors import UsageError

exclude = click.option(
    "--exclude", multiple=True, metavar="NAME", help="Variables that do not count, such as times; a glob."
)
tolerance = click.option(
    "--tolerance", "tolerances", multiple=True, metavar="NAME=RTOL[,ATOL]",
    help="Another tolerance for these variables; NAME is a glob.",
)  # fmt: skip


def no_option(ctx: click.Context, words: Sequence[str]) -> None:
    """Raises `UsageError` if the first of these words, which is to be a program, looks like an option."""
    if not words or not words[0].startswith("-"):
        return
    given = words[0].partition("=")[0]
    known = [name for each in ctx.command.get_params(ctx) for name in each.opts if name.startswith("--")]
    near = difflib.get_close_matches(given, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"No such option: {given}.{hint} What is to run comes after --")
