"""Which nodes a command runs on: whether there are several, and how its launcher is told."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from safepoint.check.config import Config
from safepoint.check.files import read_json
from safepoint.check.server import Server
from safepoint.check.wire import SERVER
from safepoint.errors import UsageError
from safepoint.spawned import isolated
from safepoint.trace import elsewhere, launch, record
from safepoint.trace.beside import WITH
from safepoint.trace.python import LIMIT, WHERE

HYDRA, OPEN_MPI = "-hosts", "--host"  # the option by which a launcher is told of hosts
NAMED = "-hosts", "--hosts", "-host", "--host", "-H", "-w", "--nodelist"  # before names of hosts
FILES = "-f", "-hostfile", "--hostfile", "-machinefile", "--machinefile"  # before a file of such names
CONFIGURED = "-configfile", "--configfile", "-app", "--app"  # before a file of options
SLURM = "srun", "flux"  # with which -N is a number of nodes, and -N2 the same as -N 2
OF_SCHEDULER = "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "HYDRA_HOST_FILE"  # files of hosts
AWAY = "aprun", "jsrun"  # they start nothing on the host that they are started on
STARTERS = {"env", "nice", "numactl", "taskset", "stdbuf", "time", "timeout", "perf", "strace", "xvfb-run"}
NUMBERS = "-n", "-np", "--np"  # before how many ranks
PASSED = WHERE, LIMIT, WITH, elsewhere.NODES, SERVER, "PYTHONPATH", "LD_PRELOAD"
FOLLOWER = "from safepoint.check.node import main; sys.exit(main())"


def several(config: Config, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this may run on other nodes than this one: then it is listened for them."""
    if config.nodes or config.port >= 0:
        return True
    if any(environment.get(name, "1") not in ("", "1") for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")):
        return True
    given = (environment.get(name) for name in OF_SCHEDULER)
    if any(file and _are_away(_hosts_of(file)) for file in given):
        return True
    words = _of_launcher(words)
    launcher = os.path.basename(words[0]) if words else ""
    if launcher in AWAY or (launcher == "srun" and "SLURM_JOB_ID" not in environment):  # it asks for a node first
        return True
    return any(_is_away(launcher, name, value) for name, value in _options(launcher, words))


def _options(launcher: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each with its value, as `--x=y`, `--x y` or, with those of Slurm, `-xy`."""
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if launcher in SLURM and word[:2] in ("-N", "-w") and len(word) > 2:
            yield word[:2], word[2:]
        else:
            yield name, value if equals else after


def _is_away(launcher: str, name: str, value: str) -> bool:
    """Whether this option may say that a rank runs on another host."""
    if name in NAMED:
        return _are_away(value.split(","))
    if name in FILES:
        return _are_away(_hosts_of(value) or ["?"])
    return name in CONFIGURED or (launcher in SLURM and name in ("-N", "--nodes") and value not in ("", "1", "1-1"))


def _hosts_of(file: str) -> list[str]:
    """Those that it names, a line each; none if it cannot be read."""
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.split()[0] for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _are_away(names: Iterable[str]) -> bool:
    """Whether one of them is not this host: `a`, `a:4`, `me@a`."""
    mine = socket.gethostname()
    here = {"localhost", "127.0.0.1", mine, mine.partition(".")[0]}
    return any(name.rpartition("@")[2].partition(":")[0] not in here for name in names if name)


def _at(words: Sequence[str]) -> int:
    """Where the launcher is, which may be started by `nice` and the like; -1: there is none."""
    for at, word in enumerate(words):
        name = os.path.basename(word)
        if name in launch.LAUNCHERS - STARTERS:
            return at
        if at == 0 and name not in STARTERS:
            break
    return -1


def _of_launcher(words: Sequence[str]) -> Sequence[str]:
    """Its own words: those before the program, or before another one that starts it; none without a launcher."""
    if (begin := _at(words)) < 0:
        return ()
    program, words = launch.program(words), words[begin:]
    ends = (
        at for at, word in enumerate(words)
        if at and (shutil.which(word) == program or os.path.basename(word) in STARTERS)
    )  # fmt: skip
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
    at = max(_at(words), 0)
    how = option(words[at])
    if config.nodes and not how:
        raise UsageError(
            f"{words[at]} is not told of nodes here: name them in the command by its own options, and give --port 0 "
            "instead of --nodes"
        )
    more = list[str]()
    if config.nodes:
        slots = _slots(words, len(config.nodes)) if how == OPEN_MPI else ""
        more += [how, ",".join(f"{name}{slots}" for name in config.nodes)]
    if how == OPEN_MPI:
        more += [word for name in PASSED if name in environment for word in ("-x", name)]
    return *words[: at + 1], *more, *words[at + 1 :]


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
    command = executable, *isolated(FOLLOWER)[1:]
    if any("\n" in word for word in command):
        raise UsageError(f"{executable} has a line end in its name, with which it cannot be started on other nodes")
    told = elsewhere.told(secrets.token_hex(8), read_json(where / record.WATCH), command)
    return {elsewhere.NODES: told, SERVER: server.where.text()}
