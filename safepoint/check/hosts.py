"""Which nodes a command runs on: whether there are several, and how its launcher is told."""

from __future__ import annotations

import itertools
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from safepoint.check.config import Config
from safepoint.check.files import read_json
from safepoint.check.server import Server
from safepoint.check.wire import SERVER
from safepoint.errors import UsageError
from safepoint.trace import elsewhere, launch, record
from safepoint.trace.beside import WITH
from safepoint.trace.python import LIMIT, WHERE

HYDRA, OPEN_MPI = "-hosts", "--host"  # the option by which a launcher is told of hosts
TOLD = {
    "-hosts", "--hosts", "-host", "--host", "-H", "-f", "-hostfile", "--hostfile", "-machinefile", "--machinefile",
    "-ppn", "-perhost", "-N", "--nodes", "-w", "--nodelist",
}  # fmt: skip
STARTERS = {"env", "nice", "numactl", "taskset", "stdbuf", "time", "timeout", "perf", "strace", "xvfb-run"}
NUMBERS = "-n", "-np", "--np"  # before how many ranks
PASSED = WHERE, LIMIT, WITH, elsewhere.NODES, SERVER, "PYTHONPATH", "LD_PRELOAD"
HERE = str(Path(__file__).resolve().parents[2])
# Where the package lies: the follower is of the same one, wherever this Python finds another.
FOLLOWER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from safepoint.check.node import main; sys.exit(main())"


def several(config: Config, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this may run on other nodes than this one: then it is listened for them."""
    if config.nodes or config.port >= 0:
        return True
    if any(environment.get(name, "1") not in ("", "1") for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")):
        return True
    if file := environment.get("PBS_NODEFILE"):
        try:
            return len(set(Path(file).read_text().split())) > 1
        except OSError:
            return False
    return bool(TOLD & set(_of_launcher(words)))


def _of_launcher(words: Sequence[str]) -> Sequence[str]:
    """Its own words: those before the program, or before another one that starts it; none without a launcher."""
    if not words or os.path.basename(words[0]) not in launch.LAUNCHERS - STARTERS:
        return ()
    program = launch.program(words)
    ends = (
        at for at, word in enumerate(words) if at and (program.endswith(word) or os.path.basename(word) in STARTERS)
    )
    return words[: next(ends, len(words))]


def option(launcher: str) -> str:
    """By which this launcher is told of hosts; empty: it is none of those that are known here."""
    if not os.path.basename(launcher).startswith(("mpiexec", "mpirun", "orterun", "prterun")):
        return ""
    try:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = done.stdout + done.stderr
    if any(name in said for name in ("Open MPI", "OpenRTE", "open-mpi", "PRRTE", "PRTE")):
        return OPEN_MPI
    return HYDRA if "HYDRA" in said or "Intel(R) MPI" in said else ""


def placed(words: Sequence[str], config: Config, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command, with the hosts that were named, and told to pass this environment on. Raises `UsageError`."""
    how = option(words[0])
    if config.nodes and not how:
        raise UsageError(
            f"{words[0]} is not told of nodes here: name them in the command by its own options, and give --port 0 "
            "instead of --nodes"
        )
    more = list[str]()
    if config.nodes:
        slots = _slots(words, len(config.nodes)) if how == OPEN_MPI else ""
        more += [how, ",".join(f"{name}{slots}" for name in config.nodes)]
    if how == OPEN_MPI:
        more += [word for name in PASSED if name in environment for word in ("-x", name)]
    return words[0], *more, *words[1:]


def _slots(words: Sequence[str], count: int) -> str:
    """Open MPI takes a host for one slot, if it is not told of more."""
    for name, number in itertools.pairwise(words):
        if name in NUMBERS and number.isdecimal():
            return f":{-(-int(number) // count)}"
    return ""


def environment(where: Path, executable: str, server: Server | None) -> dict[str, str]:
    """What ranks on other nodes need in their environment: of the trace in this directory, which has a watch list.
    Raises `UsageError`."""
    if server is None:
        return {elsewhere.NODES: elsewhere.told("", {}, ())}
    command = executable, "-c", FOLLOWER, HERE
    if any("\n" in word for word in command):
        raise UsageError(f"{executable} has a line end in its name, with which it cannot be started on other nodes")
    told = elsewhere.told(secrets.token_hex(8), read_json(where / record.WATCH), command)
    return {elsewhere.NODES: told, SERVER: server.where.text()}
