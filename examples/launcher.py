"""The mpiexec that belongs to the MPI library of mpi4py: that of this environment, before any other of PATH.

What the mpiexec of another library starts does not know of each other: it is rank 0 of 1 each, or waits, or ends.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 60  # seconds for two ranks that say how many they are
RANK = "import sys; from mpi4py import MPI; sys.stdout.write(f'ranks: {MPI.COMM_WORLD.Get_size()}\\n')"
LIBRARY = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; name, version = MPI.get_vendor(); "
    "print(name, '.'.join(map(str, version)))"
)


class MisfitError(Exception):
    """There is no mpiexec, or one that does not fit mpi4py; the message is one line."""


def mpiexec() -> str:
    """The mpiexec beside python, as the wheels bring it, else the first one of PATH; it has started two ranks that see
    each other."""
    path, wrong = _found()
    if wrong:
        raise MisfitError(wrong)
    return path


@functools.cache
def _found() -> tuple[str, str]:
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None:
        return "", "no mpiexec, neither beside python nor in PATH: pip install mpi4py mpich"
    return path, misfit(path)


def misfit(path: str, patience: float = PATIENCE) -> str:
    """What is wrong with this mpiexec and the mpi4py of this environment; nothing if they fit."""
    with tempfile.TemporaryFile("w+") as output:  # no pipe, which ranks that are left over would hold open
        command = [path, "-n", "2", sys.executable, "-c", RANK]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=patience)
            end = f"ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            end = f"did not end within {patience:g} s"
        except OSError as error:
            return f"cannot start {path}: {error.strerror}"
        output.seek(0)
        said = output.read()
    if said.count("ranks: 2") == 2:
        return ""
    if "ranks: 1" in said:
        end, said = "took themselves for the only one each", ""
    library = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True).stdout.strip()
    words = " ".join(word for word in said.split() if word.strip("-"))
    return (
        f"{path} does not start ranks of mpi4py, which works with {library or 'no MPI library'}: two of them {end}. "
        f"Take the mpiexec of that library: a wheel puts its own beside python{words and f'; they said: {words[:500]}'}"
    )
