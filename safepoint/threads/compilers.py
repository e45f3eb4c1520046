"""What is known of each compiler: its flag for OpenMP, where its modules go, which languages it takes.

A family is told by the name of the command; of a wrapper (`mpif90`, `ftn`) or of a name nobody knows by what it says of
its version.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from safepoint import words
from safepoint.errors import UsageError

FREE = (".f90", ".f95", ".f03", ".f08", ".f18")  # in lower case: .F90 is the same with the preprocessor
FIXED = (".f", ".for", ".ftn")
MOST_LINES = 60  # of what a compiler says
C = (".c", ".cc", ".cpp", ".cxx", ".C")


class Family(NamedTuple):
    """`openmp`: a pattern of the flags that switch OpenMP on. `modules`: the flag before the directory of modules.
    `quiet`: flags for the text that was made of the user's."""

    name: str
    openmp: str
    example: str
    modules: tuple[str, ...]
    quiet: tuple[str, ...] = ()
    cc: str = "cc"


GNU = Family("GNU", r"-fopenmp", "-fopenmp", ("-J",), ("-ffree-line-length-none", "-w"), "gcc")
FLANG = Family("flang", r"-fopenmp(=.*)?|-fopenmp-targets=.*", "-fopenmp", ("-module-dir",), ("-w",), "clang")
CLANG = Family("clang", FLANG.openmp, "-fopenmp", (), ("-w",), "clang")
INTEL = Family("Intel", r"-q?openmp|-fi?openmp|/Qopenmp", "-qopenmp", ("-module",), ("-w",), "icx")
NVIDIA = Family("NVIDIA", r"-mp(=.*)?|-fopenmp", "-mp", ("-module",), ("-w",), "nvc")
NAMES = (  # of the command, without path and version
    (r"(.*-)?(gfortran|gcc|g\+\+)(-[\d.]+)?", GNU),
    (r"flang(-new)?(-[\d.]+)?", FLANG),
    (r"clang(\+\+)?(-[\d.]+)?", CLANG),
    (r"ifx|ifort|icx|icpx|icc", INTEL),
    (r"nvfortran|nvc|nvc\+\+|pgfortran|pgf90", NVIDIA),
)
VERSIONS = (  # in what it says of its version
    (r"GNU Fortran|gcc version", GNU),
    (r"flang", FLANG),
    (r"clang version", CLANG),
    (r"Intel", INTEL),
    (r"NVIDIA|nvfortran|PGI", NVIDIA),
)


def family(compiler: str) -> Family:
    """Raises `UsageError` if there is no such command, or it is none of these compilers."""
    name = os.path.basename(compiler)
    for pattern, found in NAMES:
        if re.fullmatch(pattern, name):
            return found
    text = _version(compiler)
    for pattern, found in VERSIONS:
        if re.search(pattern, text):
            return found
    known = ", ".join(each.name for each in (GNU, FLANG, CLANG, INTEL, NVIDIA))
    raise UsageError(
        f"{compiler} is no compiler that is known here ({known}): by hand goes with any, see --print-flags"
    )


def _version(compiler: str) -> str:
    """What it says of itself, asked in both ways that compilers know."""
    text = ""
    for option in ("--version", "-v"):
        try:
            done = subprocess.run([compiler, option], capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot run the compiler {compiler}: {why}") from error
        text += done.stdout + done.stderr
    return text


def is_fortran(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in FREE + FIXED


def is_source(path: str) -> bool:
    return is_fortran(path) or os.path.splitext(path)[1] in C


def called(command: Sequence[str], directory: str | os.PathLike[str] = "") -> subprocess.CompletedProcess[str]:
    """Raises `UsageError` if it cannot be started."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, cwd=directory or None
        )
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}", error.errno) from error


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The beginning of what it says."""
    lines = (done.stderr + done.stdout).strip().splitlines()
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"… and {words.count(more, 'line')} more"] if more > 0 else [])])
