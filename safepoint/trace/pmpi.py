"""The tracer of C and Fortran: a library for LD_PRELOAD, made with the user's own MPI.

Its wrappers are written from the prototypes of the `mpi.h` that the program was compiled with: no two MPI libraries
have the same. What they note is said by the table of roles; how, by `pmpi.h`.

(1) A build is keyed by what is compiled and with what, and is renamed into the cache when it is whole: two at once, or
    one that is killed, leave none that is half.
(2) The Fortran bindings of one MPI call `MPI_Send`, those of another `PMPI_Send`. Both are wrapped; a call of the
    second is noted only inside of a Fortran function, whose wrapper keeps the address that the program has called it
    from.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safepoint.c import cache
from safepoint.c.build import words
from safepoint.errors import UsageError
from safepoint.session import __version__
from safepoint.trace import constants
from safepoint.trace.c_source import source
from safepoint.trace.c_source import unknown as unknown
from safepoint.trace.c_source import wrapped as wrapped
from safepoint.trace.linked import mpicc_for as mpicc_for  # who asks for a library asks for its compiler
from safepoint.trace.mpi_h import Prototype as Prototype
from safepoint.trace.mpi_h import prototypes as prototypes

SOURCES = Path(__file__).resolve().parent
FLAGS = ("-O1", "-fPIC", "-shared", "-fexceptions", "-fvisibility=hidden", "-w")
PARTS, CHECKED = ("pmpi.h", "pmpi.c"), ("watch.h", "watch.c", "elsewhere.c")  # the second in check mode
BINDINGS = "libmpi*.so", "libpmpi*.so"


def fortran(directories: Sequence[str]) -> set[str]:
    """The names of functions of MPI in Fortran that the libraries in these directories have."""
    found: set[str] = set()
    for path in {path.resolve() for place in directories for glob in BINDINGS for path in Path(place).glob(glob)}:
        found.update(name.decode() for name in re.findall(rb"\0p?(mpix?_[a-z0-9_]+_)(?=\0)", path.read_bytes()))
    return found


def _ran(*command: str) -> str:
    """What a compiler prints. Raises `UsageError` with what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise UsageError(f"cannot run the compiler {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise UsageError(f"{' '.join(command[:8])}:\n{(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout


def header(mpicc: str, *options: str) -> str:
    """Its `mpi.h`, preprocessed. Raises `UsageError`."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "mpi_h.c")
        path.write_text("#include <mpi.h>\n")
        return _ran(*words(mpicc), "-E", *(options or ("-P",)), str(path))


def _shown(mpicc: str) -> list[str]:
    """The command behind a wrapper; empty if it does not say it."""
    for option in ("-show", "-showme"):
        done = subprocess.run([*words(mpicc), option], capture_output=True, text=True)
        if done.returncode == 0:
            return words(done.stdout)
    return []


def _missing(mpicc: str, text: str) -> set[str]:
    """The functions that its `mpi.h` declares, and its library does not have."""
    names = [f"P{one.name}" for one in wrapped(text, arguments=True)]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "all.c")
        rows = "".join(f"extern char {name}[];\n" for name in names)
        path.write_text(f"{rows}char *all[] = {{{', '.join(names)}}};\nint main(void) {{ return !all[0]; }}\n")
        command = [*words(mpicc), "-w", str(path), "-o", str(path.with_suffix(""))]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return set(re.findall(r"undefined .*?\b(PMPIX?_\w+)", done.stderr)) if done.returncode else set()


def library(mpicc: str, arguments: bool = False) -> Path:
    """The library that notes the calls of programs of this MPI, built if need be; with `arguments` that of check mode,
    which notes as the other does if there is no watch list. Raises `UsageError`."""
    text, shown = header(mpicc), _shown(mpicc)
    directories = [word[2:] for word in shown if word.startswith("-L") and len(word) > 2]
    checked = (True, constants.names(header(mpicc, "-dM"), text), _missing(mpicc, text)) if arguments else ()
    code = source(text, fortran(directories), *checked)
    files, flags = (PARTS + CHECKED, (*FLAGS, "-DSAFEPOINT_CHECK")) if arguments else (PARTS, FLAGS)
    parts = [code, *(shown or [mpicc]), _ran(*words(mpicc), "--version"), os.environ.get("LD_LIBRARY_PATH", "")]
    parts += [SOURCES.joinpath(name).read_text("utf-8") for name in files] + list(flags)
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    target = cache(f"trace-{__version__}-{key}.so")
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        wrappers, made = Path(place, "wrappers.c"), Path(place, "made.so")
        wrappers.write_text(code)
        paths = [f"-Wl,-rpath,{directory}" for directory in directories]
        sources = [str(SOURCES / name) for name in files if name.endswith(".c")]
        _ran(*words(mpicc), *flags, f"-I{SOURCES}", str(wrappers), *sources, "-o", str(made), *paths,
             "-ldl", "-lpthread")  # fmt: skip
        os.replace(made, target)
    return target
