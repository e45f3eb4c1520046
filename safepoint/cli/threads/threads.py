"""`safepoint threads`: a group of commands, of which none is loaded before it is used."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import click

from safepoint.cli.verbs import Verbs
from safepoint.errors import UsageError

VERBS = {  # module, and the first sentence of the help
    "build": ("making", "Compile a program twice: with OpenMP and calls that record, and the same without OpenMP."),
    "test": ("testing", "Run both programs, and say which region, iteration and line differs first."),
    "compare": ("comparing", "Compare two traces that are there: of other machines, or other versions."),
    "follow": ("comparing", "Compare while the programs run, and stop both at the first difference."),
    "export": ("comparing", "Write a trace as text, a line for each event."),
    "instrument": ("making", "Show what build compiles: a source with the calls that record."),
}


@click.group(cls=Verbs, room="threads", verbs=VERBS, example="safepoint threads test --runs 5 -- ./heat",
             wrong=UsageError.code)  # fmt: skip
def threads() -> None:
    """Compare two runs of a program with OpenMP, in Fortran or C: which region, iteration and line differs first.

    \b
    safepoint threads build -o heat -- gfortran -O2 -fopenmp heat.f90 solver.f90
    safepoint threads test -- ./heat in.nml

    The program without OpenMP is right by definition. Exit codes of `test` and `compare`: 0: equal; 1: not; 2: it
    cannot be told; 10: called wrongly. For a pure data race ThreadSanitizer is the sharper tool: docs/threads.md says
    when.
    """


def part(name: str) -> Any:
    """A module of `safepoint.threads`. Raises `UsageError` if a package that it needs is missing."""
    with needed():
        return importlib.import_module(f"safepoint.threads.{name}")


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Raises `UsageError` if a package is missing that what is done here imports."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("safepoint"):
            raise
        raise UsageError(
            f"{error.name} is missing, which sources and traces are read with: pip install '.[fortran]' in the "
            "directory of safepoint's source"
        ) from error
