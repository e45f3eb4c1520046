"""Twelve correct OpenMP programs in Fortran, and how they are compiled and run: `tests/threads/programs`.

Without -fopenmp each of them prints what it prints with it, whatever the threads and the schedule; a sum that is a
reduction may differ by rounding.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAMS_OF = Path(__file__).parents[1] / "threads" / "programs"
THREADS = 1, 2, 4
SCHEDULES = "static", "dynamic", "guided"


class Program(NamedTuple):
    """`rtol`, `atol`: what a comparison of the numbers must allow, as they depend on a reduction; `rtol_of_all`: if all
    reads and writes are compared. `exclude`: variables that each thread accumulates for itself, so that their values
    follow the schedule though the program is right. `flang`: why flang 19 with libomp 14 cannot build it, if so."""

    file: str
    rtol: float = 0.0
    rtol_of_all: float = 0.0
    atol: float = 0.0
    exclude: tuple[str, ...] = ()
    flang: str = ""

    @property
    def path(self) -> Path:
        return PROGRAMS_OF / self.file

    @property
    def name(self) -> str:
        return self.path.stem


PROGRAMS = (
    Program("jacobi.f90"),
    Program("redblack.f90", rtol_of_all=1e-12),
    Program("cg.f90", rtol=1e-9, rtol_of_all=1e-9, atol=1e-12),
    Program("fft.f90"),
    Program("matrix.f90"),
    Program("nbody.f", rtol_of_all=1e-12),
    Program("lu.f90", flang="its IF clause calls __kmpc_fork_call_if, which libomp 14 has not"),
    Program("histogram.f90", exclude=("low", "high")),
    Program("pipeline.f90", rtol_of_all=1e-12),
    Program("nested.f90"),
    Program("blocks.f", exclude=("calls",)),
    Program("stencil.f90"),
)
BY_NAME = {program.name: program for program in PROGRAMS}

LIBOMP = Path("/usr/lib/llvm-14/lib")  # flang of Debian comes without a libomp of its own
COMPILERS = {
    "gcc": ("-O1", "-fopenmp"),
    "gfortran": ("-O1", "-fopenmp"),
    "flang-new-19": ("-O1", "-fopenmp", f"-L{LIBOMP}", f"-Wl,-rpath,{LIBOMP}"),
}
FORTRAN = "gfortran", "flang-new-19"


def has(compiler: str) -> bool:
    return shutil.which(compiler) is not None and (not compiler.startswith("flang") or (LIBOMP / "libomp.so").exists())


def compiled(source: Path, directory: Path, *, compiler: str = "gfortran", parallel: bool) -> Path:
    """The program, built in `directory`, where its modules go too."""
    to = directory / (source.stem + ("" if parallel else ".serial"))
    flags = [flag for flag in COMPILERS[compiler] if parallel or flag != "-fopenmp"]
    run = [compiler, str(source), "-o", str(to), *flags]
    done = subprocess.run(run, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to


def surroundings(threads: int, schedule: str, **more: str) -> dict[str, str]:
    """The environment of a run; threads wait asleep, as the machine may have fewer processors than the team."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "SP_"))}
    return plain | {
        "OMP_NUM_THREADS": str(threads),
        "OMP_SCHEDULE": schedule,
        "OMP_DYNAMIC": "false",
        "OMP_WAIT_POLICY": "passive",
    } | more  # fmt: skip


def printed(words: Sequence[str | Path], env: dict[str, str] | None = None) -> list[str]:
    """The words a program prints."""
    done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def alike(a: Sequence[str], b: Sequence[str], rtol: float = 1e-12) -> bool:
    """Whether the words are the same, the numbers among them up to `rtol`."""
    return len(a) == len(b) and all(x == y or close(x, y, rtol) for x, y in zip(a, b, strict=True))


def close(x: str, y: str, rtol: float) -> bool:
    try:
        return abs(float(x) - float(y)) <= rtol * max(abs(float(x)), abs(float(y)))
    except ValueError:
        return False


class InC(NamedTuple):
    """A program in C with calls by hand; `bug` is what -DBUG makes of it, seen at one of `where`."""

    file: str
    bug: str
    where: tuple[int, ...]
    rtol: float = 0.0

    @property
    def path(self) -> Path:
        return PROGRAMS_OF / self.file


IN_C = (
    InC("jacobi.c", "uninitialised private", (28, 29)),
    InC("nbody.c", "missing private", (32, 33, 35, 36, 38, 39), rtol=1e-12),
    InC("histogram.c", "missing critical", (45, 47, 48, 50, 56)),
    InC("pipeline.c", "missing ordered", (30, 31, 32, 33)),
    InC("waves.c", "missing barrier", (11, 12, 26, 27, 28, 35, 36, 46, 47, 48, 49)),
)
