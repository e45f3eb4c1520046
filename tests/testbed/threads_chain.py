"""The whole chain on a program of the corpus: `build`, both programs, `compare`; as users have it, without a screen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from testbed.threads_corpus import COMPILERS, SCHEDULES, surroundings

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


def built(source: Path, directory: Path, *flags: str, compiler: str = "gfortran") -> Any:
    """The two programs of a source, as `safepoint threads build` makes them."""
    from safepoint.threads import building

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
    import subprocess

    env = surroundings(threads, schedule, SP_LEVEL=level, SP_DIR=str(trace), **more)
    done = subprocess.run([str(program)], env=env, cwd=trace.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return trace


WAYS = [(1, "static"), *((threads, schedule) for threads in (2, 4) for schedule in SCHEDULES), (1, "dynamic"),
        (1, "guided")]  # fmt: skip
