"""Running programs of MPI with and without the tracer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from launcher import mpiexec

from safepoint.trace import launch
from testbed.sweep import one_of

OPEN_MPI = ("mpiexec.openmpi", "--oversubscribe", "-n")
COMMANDS = {"mpich": None, "openmpi": OPEN_MPI}

libraries = pytest.mark.parametrize(
    "library",
    one_of(["mpich", pytest.param("openmpi", marks=pytest.mark.skipif(
        shutil.which("mpiexec.openmpi") is None, reason="there is no mpiexec.openmpi here: Debian's openmpi-bin"))]),
)  # one of both in a short run, the other with another commit  # fmt: skip


def command(ranks: int, *words: str, library: str = "mpich") -> list[str]:
    start = COMMANDS[library] or (mpiexec(), "-n")
    return [*start, str(ranks), sys.executable, *words]


def environment(library: str, trace: Path | None, tracer: str = "python") -> dict[str, str]:
    found = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if library == "openmpi":
        found["MPI4PY_MPIABI"] = "openmpi"
    if trace is not None:
        trace.mkdir(exist_ok=True)
        compiler = "mpicc.openmpi" if library == "openmpi" else ""
        more = launch.environment(trace, [sys.executable], tracer, compiler, 1 << 32)
        found |= {name: value for name, value in more.items() if os.environ.get(name) != value}
    return found


def run(
    ranks: int, *words: str, library: str = "mpich", trace: Path | None = None, cwd: Path | None = None,
    more: Sequence[tuple[str, str]] = (), tracer: str = "python",
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """A program in Python, on so many ranks; traced if there is a directory for it."""
    return subprocess.run(
        command(ranks, *words, library=library), env=environment(library, trace, tracer) | dict(more),
        capture_output=True, text=True, cwd=cwd, timeout=300,
    )  # fmt: skip
