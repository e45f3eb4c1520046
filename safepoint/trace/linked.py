"""Which MPI library a program is linked with, and which compiler is that library's.

A compiler is right if what it links is linked with the same file: its name says little where several MPI libraries are
installed side by side.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safepoint.errors import UsageError

LIBMPI = re.compile(r"^lib(mpi|mpich|mpi_abi|mpi_(gnu|intel|cray|amd|nvidia)\w*)\.so[.\d]*$")
LOADED = (  # as the program finds it, but for a module that lies where we are
    "import sys; sys.path[:] = filter(None, sys.path)\n"
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI\n"
    "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}, sep='\\n')"
)


def _linked(path: str) -> str:
    """The `libmpi` that an executable is linked with; without a directory if it is not found; empty: with none."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True)
    for name, found in re.findall(r"^\s*(\S+) => (\S+)", done.stdout, re.M):
        if LIBMPI.match(name):
            return str(found) if found.startswith("/") else str(name)
    return ""


def _of_python(python: str) -> str:
    done = subprocess.run([python, "-c", LOADED], capture_output=True, text=True)
    return next((path for path in done.stdout.split("\n") if LIBMPI.match(os.path.basename(path))), "")


def _interpreter(path: str) -> str:
    """The Python that runs this file; empty: none does."""
    with open(path, "rb") as file:
        first = file.readline(500)
    if first.startswith(b"#!") and b"python" in first:
        command = first[2:].decode(errors="replace").split()
        return shutil.which(command[-1 if command[0].endswith("/env") else 0]) or ""
    return path if os.path.basename(path).startswith("python") else ""


def mpicc_for(program: str) -> str:
    """The compiler beside the MPI library that this program, or the mpi4py of this Python, is linked with. Raises
    `UsageError` if there is none."""
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"{program}: there is no such program")
    python = _interpreter(path)
    found = _linked(path) or (_of_python(python) if python else "")
    if not found and not python and b"MPI_Init" in Path(path).read_bytes():
        raise UsageError(
            f"{program} is linked with a static MPI, and then its calls cannot be seen: link it without -static, with"
            " the libmpi.so of that MPI"
        )
    if not found:
        raise UsageError(
            f"{program} is not linked with an MPI library: name the compiler of that which it loads: --mpicc"
        )
    for mpicc in _beside(found):
        if _is_of(mpicc, found):
            return mpicc
    raise UsageError(f"needs the mpicc of the MPI that {program} is linked with ({os.path.basename(found)}): --mpicc")


def _beside(libmpi: str) -> Sequence[str]:
    """Compilers that may be those of this library, nearest first."""
    near = [parent / "bin" for parent in Path(libmpi).parents] if libmpi.startswith("/") else []
    places = [*near, *map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep))]
    found = [path for place in places if place.is_dir() for path in sorted(place.glob("mpicc*"))]
    return list(dict.fromkeys(str(path) for path in found if os.access(path, os.X_OK) and path.suffix != ".sh"))


def _is_of(mpicc: str, libmpi: str) -> bool:
    """Whether what this compiler links is linked with this library."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a.c")
        path.write_text("int MPI_Init(int *, char ***);\nint main(void) { return MPI_Init(0, 0); }\n")
        command = [mpicc, str(path), "-o", str(path.with_suffix(""))]
        try:
            subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            return False
        mine = _linked(str(path.with_suffix("")))
    return bool(mine) and (os.path.realpath(mine) == os.path.realpath(libmpi) or os.path.basename(mine) == libmpi)
