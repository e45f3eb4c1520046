"""The whole chain on a program: `build`, both programs, `test` and `compare`, as users have them; all in this process.

A new process that loads the package costs more processor time than all that these do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

from testbed.commands import cli
from testbed.threads_corpus import COMPILERS, SCHEDULES, surroundings
from testbed.traced_threads import needs, ran

pytest.importorskip("fparser")

SEEN = re.compile(r"([\w.]+\.(?:f90|f|c)):(\d+)")


@contextmanager
def inside(directory: Path, variables: dict[str, str] | None = None) -> Iterator[None]:
    """The working directory and the environment of what is called."""
    here, kept = Path.cwd(), dict(os.environ)
    os.chdir(directory)
    if variables is not None:
        os.environ.clear()
        os.environ.update(variables)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(kept)


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def instrumented(directory: Path, text: str, name: str = "x.f90", **more: Any) -> Any:
    """The text of a program, as `build` compiles it."""
    from safepoint.threads import fortran

    return fortran.instrument(written(directory, name, text), **more)


def built(source: Path, directory: Path, *flags: str, compiler: str = "gfortran") -> Any:
    """The two programs of a source, as `safepoint threads build` makes them."""
    from safepoint.threads import building

    needs(compiler)
    with inside(directory):
        line = [compiler, *COMPILERS[compiler], *flags, str(source)]
        return building.build(line, Path(source.stem))


class Verdict(NamedTuple):
    """`lines`: all that is said. `places`: the file and line of each place named in the first difference."""

    code: int
    lines: list[str]
    iteration: tuple[int, ...]
    places: list[int]

    def __str__(self) -> str:
        return f"exit {self.code}\n" + "\n".join(self.lines)


def two_passes(
    program: Path, directory: Path, *, threads: int = 4, schedule: str = "static", rules: dict[str, Any] | None = None,
    **plan: Any,
) -> Verdict:  # fmt: skip
    """What `safepoint threads test` says about the two programs."""
    from safepoint.threads.compare import Rules
    from safepoint.threads.passes import Passes, Plan

    with inside(directory, surroundings(threads, schedule)):
        where = directory / "traces"
        where.mkdir(exist_ok=True)
        outcome = Passes([str(program)], where, Rules(**(rules or {})), Plan(**plan), lambda text: None).run()
    return verdict(outcome.code, outcome.lines)


def verdict(code: int, lines: list[str]) -> Verdict:
    first = next((k for k, line in enumerate(lines) if "Inconsistency" in line), len(lines))
    said = "\n".join(lines[first:])
    places = [int(line) for _, line in SEEN.findall(lines[first] if first < len(lines) else "")]
    found = re.search(r"iteration [\w, ()]+ = \(?([-\d, ]+)", said)
    return Verdict(code, lines, tuple(int(n) for n in found.group(1).split(",") if n.strip()) if found else (), places)


def traced(program: Path, trace: Path, threads: int, schedule: str, level: str, **more: str) -> Path:
    """A run at a level, and its trace."""
    ran(program, trace.parent, **surroundings(threads, schedule, SP_LEVEL=level, SP_DIR=str(trace), **more))
    return trace


def recorded(program: Path, threads: int = 4, schedule: str = "static", **more: str) -> tuple[Path, Path]:
    """The traces of both programs with all of them recorded, the serial one first."""
    serial, here = program.with_name(f"{program.name}.serial"), program.parent
    return (traced(serial, here / "a", 1, "static", "full", **more),
            traced(program, here / "b", threads, schedule, "full", **more))  # fmt: skip


def whole(program: Path, *how: Any, **more: str) -> Any:
    """Both of these, compared."""
    from safepoint.threads.compare import compare
    from safepoint.threads.trace import Run

    return compare(*map(Run, recorded(program, *how, **more)))


def command(here: Path, *words: str, **variables: str) -> Result:
    """`safepoint threads` with these words, in this directory."""
    with inside(here, surroundings(4, "static", COLUMNS="200", **variables)):
        return cli("threads", *words)


class Outcome(NamedTuple):
    """The exit code of `test`, and what it and `build` have said."""

    code: int
    said: str
    built: str


def made(here: Path, text: str, *more: str) -> str:
    """Build x from x.f90, and return what `build` says. `more`: words for the compiler."""
    needs("gfortran")
    written(here, "x.f90", text)
    done = command(here, "build", "-o", "x", "--", "gfortran", "-O1", "-fopenmp", "x.f90", *more)
    assert done.exit_code == 0, done.output
    return done.stdout


def outcome(here: Path, text: str, *more: str, options: tuple[str, ...] = ()) -> Outcome:
    """What becomes of a source in Fortran. `options`: of `test`."""
    said = made(here, text, *more)
    done = command(here, "test", *options, "--", "./x")
    return Outcome(done.exit_code, done.stdout, said)


WAYS = [(1, "static"), *((threads, schedule) for threads in (2, 4) for schedule in SCHEDULES), (1, "dynamic"),
        (1, "guided")]  # fmt: skip
