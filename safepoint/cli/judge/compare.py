"""`safepoint compare`: where two runs differ first, from what their ledgers say of each set and each watched value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.errors import ManifestError, UsageError
from safepoint.ledger import verdict
from safepoint.ledger.compare import Comparison, Rules
from safepoint.ledger.compare import compare as compared
from safepoint.ledger.kept import Sets
from safepoint.ledger.sides import Side
from safepoint.manifest import load
from safepoint.program import SETTINGS

DIFFERENT, UNDECIDED = 1, 2  # exit codes
rtol = click.option("--rtol", default=0.0, metavar="X", help="Relative difference that does not count.")
atol = click.option("--atol", default=0.0, metavar="X", help="Absolute difference that does not count.")
exclude = click.option("--exclude", multiple=True, metavar="NAME", help="Files or values that do not count; a glob.")
tolerance = click.option(
    "--tolerance", "tolerances", multiple=True, metavar="NAME=RTOL[,ATOL]",
    help="Another tolerance for these files or values, such as sums over ranks.",
)  # fmt: skip


@click.command()
@click.argument("a", metavar="A", type=click.Path(exists=True))
@click.argument("b", metavar="B", type=click.Path(exists=True))
@rtol
@atol
@tolerance
@exclude
@terminal.as_json
@click.pass_context
def compare(
    ctx: click.Context, a: str, b: str, rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str],
    as_json: bool,
) -> None:  # fmt: skip
    """Compare two runs of a program, step by step, and name the first step, file and value that differ.

    A and B are directories of runs, of another machine, another number of ranks or another version of the program, or
    their ledgers alone (log.jsonl). What the files hold is compared by checksum; where both runs still keep the sets
    (keep = all), it is said which values differ, and a tolerance applies to them. Watched values need
    SAFEPOINT_LEDGER=full for a tolerance. Exit code 0: equal; 1: not; 2: there is no step that both have.
    """
    rules = make_rules(rtol, atol, tolerances, exclude)
    sides = Side(a), Side(b)
    sets = Sets(*sides)
    if len(sides[0].logs) != len(sides[1].logs):  # a file of a rank has another part of the whole then
        rules = replace(rules, exclude=(*rules.exclude, *files_of_ranks(sides)))
    found = compared(*sides, rules, sets)
    if found.late and not found.differs:
        text = "steps go back without a restart, so nobody can tell which belong together: number them through"
        click.echo(f"safepoint: {text} ({words.count(found.late, 'line')})", err=True)
        ctx.exit(UNDECIDED)
    if not found.steps:
        click.echo(f"safepoint: nothing to compare: no step is in both ledgers ({_counts(found)})", err=True)
        ctx.exit(UNDECIDED)
    if found.differs:
        verdict.explain(found, rules, sets)
    if as_json:
        terminal.put({"a": a, "b": b, "equal": not found.differs, **verdict.as_json(found)})
    else:
        _show(found, sides, sets)
    ctx.exit(DIFFERENT if found.differs else 0)


def make_rules(rtol: float, atol: float, tolerances: Sequence[str], exclude: Sequence[str]) -> Rules:
    """Raises `UsageError` for a tolerance that is none."""
    found = [("*", rtol, atol)]
    for text in tolerances:
        name, _, numbers = text.rpartition("=")
        try:
            relative, _, absolute = numbers.partition(",")
            found.append((name, float(relative), float(absolute or 0)))
        except ValueError:
            name = ""
        if not name:
            raise UsageError(f"--tolerance {text}: must be NAME=RTOL or NAME=RTOL,ATOL")
    return Rules(tuple(exclude), tuple(found))


def files_of_ranks(sides: Sequence[Side]) -> set[str]:
    """Globs for what is listed with {rank} in either run."""
    found = set()
    for side in sides:
        with suppress(ManifestError):
            listed = load(side.work, SETTINGS) if side.work else None
            of_ranks = [entry for entry in (listed.entries if listed else ()) if entry.per_rank]
            found |= {re.sub(r"\{(rank|size)[^}]*\}", "*", entry.pattern) for entry in of_ranks}
    return found


def _counts(found: Comparison) -> str:
    return f"{words.count(found.only[0], 'step')} only in A, {found.only[1]} only in B"


def _show(found: Comparison, sides: tuple[Side, Side], sets: Sets) -> None:
    tolerated = f", though {found.tolerated} files or values have other bytes" if found.tolerated else ""
    terminal.say(f"{found.equal} of {words.count(found.steps, 'step')} equal{tolerated}; {_counts(found)}")
    if found.ranks[0] != found.ranks[1]:
        terminal.say(f"A has {words.count(found.ranks[0], 'rank')}, B {found.ranks[1]}: files of ranks were left out")
    if found.sampled:
        terminal.prose(
            "Sets of `safepoint run` are those that were caught: their numbers are not its steps, so two runs "
            "may differ in them and both be right."
        )
    if found.differs:
        for line in verdict.told(found):
            terminal.prose(line, "    ")
        terminal.prose(f"where to look: {verdict.where_to_look(found, sides[0], sets)}")
