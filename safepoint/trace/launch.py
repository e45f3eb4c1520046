"""Starting a program so that it is traced: its environment, and what is said of the trace afterwards.

Each rank has files of its own, which no other rank writes: their directory may be on a file system that nodes share. On
a disk of each node the ranks make it there, and the parts are copied together afterwards.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from safepoint import ranks
from safepoint.errors import UsageError
from safepoint.trace.beside import WITH
from safepoint.trace.python import LIMIT, WHERE

HOOK = Path(__file__).parent / "hook"
TRACERS = ("auto", "python", "c", "both")
LAUNCHERS = {
    "mpiexec", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi", "mpirun", "mpirun.mpich", "mpirun.openmpi",
    "orterun", "prun", "prterun", "srun", "aprun", "jsrun", "flux", "ibrun", "ssh", "rsh",
    "env", "nice", "numactl", "taskset", "stdbuf", "time", "timeout", "perf", "strace", "xvfb-run",
}  # fmt: skip


def directory(text: str) -> Path:
    """The directory of a new trace, made. Raises `UsageError` if there is one already. Started by a launcher, each
    rank comes here by itself: then it may be there, empty but for what the others have begun."""
    path = Path(text).resolve()
    within = bool(ranks.launcher())
    try:
        path.mkdir(parents=True, exist_ok=within)
    except FileExistsError:
        raise UsageError(f"{text} is there already: remove it, or name another with -o") from None
    return path


def interpreted(command: Sequence[str]) -> bool:
    """Whether what is started, by a launcher or not, is Python. Raises `UsageError` if there is no such program."""
    found = program(command)
    if os.path.basename(found).startswith("python"):
        return True
    with open(found, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def program(command: Sequence[str]) -> str:
    """The executable that is traced: the first word that is one, and no launcher. Raises `UsageError`."""
    for word in command:
        if os.path.basename(word) not in LAUNCHERS and (found := shutil.which(word)):
            return found
    raise UsageError(f"{' '.join(command)!r} names no program that can be started")


def environment(
    where: Path, command: Sequence[str], tracer: str, mpicc: str, limit: int, arguments: bool = False
) -> dict[str, str]:
    """What the program is to have in its environment. Raises `UsageError` if it cannot be traced. `arguments`: in check
    mode, in which the arguments of calls are noted too."""
    found = dict(os.environ)
    if tracer == "auto":
        tracer = "python" if interpreted(command) else "c"
    found[WHERE], found[LIMIT], found[WITH] = str(where), str(limit), tracer
    if tracer in ("python", "both"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOOK), found.get("PYTHONPATH"))))
    if tracer in ("c", "both"):
        from safepoint.trace import pmpi

        of = sys.executable if tracer == "both" else program(command)
        library = pmpi.library(mpicc or pmpi.mpicc_for(of), arguments)
        if set(str(library)) & set(" :"):
            raise UsageError(f"{library.parent} has a space or colon in its name, which LD_PRELOAD cannot have: set "
                             "XDG_CACHE_HOME to another directory")  # fmt: skip
        found["LD_PRELOAD"] = " ".join(filter(None, (str(library), found.get("LD_PRELOAD"))))
    return found
