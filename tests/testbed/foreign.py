"""Programs in C and Fortran: how they are compiled here, started on ranks, and killed."""

from __future__ import annotations

import functools
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from safepoint.c import build
from safepoint.c.build import Compilers, flags
from safepoint.trace import pmpi
from testbed.builds import built_once, digest_of, version
from testbed.paths import EXAMPLES, HOUSE, TESTBED
from testbed.program import Violation
from testbed.shares import SLEEPS
from testbed.sweep import one_of

SOURCES, C = TESTBED / "c", HOUSE / "safepoint" / "c"
PATIENCE = 300  # seconds for one job, many times what it takes


class Mpi(NamedTuple):
    """An MPI library of the system's; none: a program without MPI."""

    name: str
    cc: str
    fc: str
    mpiexec: str

    @property
    def there(self) -> bool:
        return all(map(shutil.which, (self.cc, self.fc, self.mpiexec)))

    def started(self, ranks: int, *command: object) -> list[str]:
        return [self.mpiexec, "-n", str(ranks), *map(str, command)]


MPICH, OPEN_MPI = (Mpi(name, f"mpicc.{name}", f"mpif90.{name}", f"mpiexec.{name}") for name in ("mpich", "openmpi"))
ENVIRONMENT = {  # Open MPI refuses to be started by root, and on fewer cores than ranks; MPICH's ranks would only spin
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm_rsh_agent": "",
}  # fmt: skip


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")


each_mpi = pytest.mark.parametrize(
    "mpi",
    [pytest.param(mpi, id=mpi.name, marks=needs(mpi.cc, mpi.fc, mpi.mpiexec)) for mpi in one_of((MPICH, OPEN_MPI))],
)  # one of both in a short run, the other with another commit


@functools.cache
def place() -> Path:
    """Where what one process builds for itself lies until it ends."""
    directory = tempfile.TemporaryDirectory(prefix="safepoint-c-")
    place.directory = directory  # type: ignore[attr-defined]  # kept, or it would be removed at once
    return Path(directory.name)


@functools.cache
def library(mpi: Mpi | None = None, cc: str = "cc", fc: str = "", options: str = "") -> tuple[list[str], list[str]]:
    """What to compile with, and to link with."""
    mine = Compilers(cc, f"{mpi.cc} {options}".strip() if mpi else "", f"{mpi.fc if mpi else fc} {options}".strip())
    if not mpi and not fc:
        mine = Compilers(f"{cc} {options}".strip())
    key = [*mine, *(version(command.split()[0]) for command in mine if command), digest_of(C)]
    found = flags(mine, built_once("library", key, lambda place: build.built(mine, place)))
    return shlex.split(found[0]), shlex.split(found[1])


@functools.cache
def tracer(cc: str, arguments: bool = False) -> str:
    """The library that notes the calls of programs of the MPI of this compiler, for LD_PRELOAD."""
    key = [cc, version(cc), arguments, digest_of(HOUSE / "safepoint" / "trace")]
    name = "trace-tests-0.so"  # of stacks nothing is shown that a tracer has called: it is known by its name

    def make(place: Path) -> None:
        shutil.copy(pmpi.library(cc, arguments), place / name)

    return str(built_once("tracer", key, make) / name)


def built(name: str, *command: object, cwd: Path) -> Path:
    """What this command makes under this name in a directory of its own, of sources that lie in `cwd`."""
    words = [*map(str, command)]

    def make(place: Path) -> None:
        shutil.copytree(cwd, place, dirs_exist_ok=True)
        subprocess.run(words, cwd=place, check=True)

    return built_once(name, [*words, version(words[0]), digest_of(cwd)], make) / name


def with_library(source: str, *options: str) -> Path:
    """A program that is compiled together with the library's own sources, without MPI."""
    command = ["cc", *options, f'-DSAFEPOINT_PYTHON="{sys.executable}"', f'-DSAFEPOINT_PATH="{HOUSE}"', f"-I{C}"]
    command += [str(SOURCES / source), str(C / "safepoint.c"), str(C / "safepoint_serial.c"), "-o"]

    def make(place: Path) -> None:
        subprocess.run([*command, str(place / source)], check=True)

    return built_once(f"{source}-whole", [*command, version("cc"), digest_of(SOURCES, C)], make) / source


def sleeps() -> str:
    """An object with which ranks of MPICH sleep while they wait, where `shares.py` says so."""
    source = SOURCES / "sleeps.c"

    def compile(place: Path) -> None:
        subprocess.run(["cc", "-O1", "-c", str(source), "-o", str(place / "sleeps.o")], check=True)

    return str(built_once("sleeps", [version("cc"), digest_of(source)], compile) / "sleeps.o")


def program(source: str, mpi: Mpi | None = None, *options: str, cc: str = "cc", fc: str = "gfortran") -> Path:
    """A source of `testbed/c` or of the examples, compiled and linked, with MPI or without.

    What sleeps is in it only where ranks sleep: where they hang, it would be a frame of their stacks.
    """
    return linked(source, mpi, options, cc, fc, mpi is MPICH and SLEEPS in os.environ)


@functools.cache
def linked(source: str, mpi: Mpi | None, options: tuple[str, ...], cc: str, fc: str, sleeping: bool) -> Path:
    path = SOURCES / source if (SOURCES / source).exists() else EXAMPLES / source
    fortran = path.suffix == ".f90"
    compile_with, link_with = library(mpi, cc, fc if fortran and not mpi else "")
    compiler = (mpi.fc if fortran else mpi.cc) if mpi else fc if fortran else cc
    command = [*compiler.split(), "-O1", *options, *(["-DRANKS"] if mpi else []), *compile_with, str(path)]
    command += [*([sleeps()] if sleeping else []), *link_with, "-lm"]
    name = "-".join([path.name, mpi.name if mpi else compiler]).replace("/", "_")

    def link(place: Path) -> None:  # a compiler of Fortran puts its modules there, too
        done = subprocess.run([*command, "-o", str(place / name)], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    return built_once(name, [*command, version(compiler.split()[0]), digest_of(SOURCES, path)], link) / name


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, **more}


def said_by(log: Path, rank: int) -> list[tuple[str, int]]:
    """What a rank of `life.c` has said into its file: words, each with a number."""
    path = log.with_name(f"{log.name}-{rank}")
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(word, int(number)) for word, number in (line.split() for line in lines)]


class Found(NamedTuple):
    """A process of a job."""

    pid: int
    rank: str
    helper: bool


def found(marker: str, exe: Path) -> list[Found]:
    """The ranks and helpers of the job that has this in its environment."""
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            told = entry.joinpath("environ").read_bytes().split(b"\0")
            if marker.encode() not in told:
                continue
            names = dict(word.split(b"=", 1) for word in told if b"=" in word)
            rank = (names.get(b"PMI_RANK") or names.get(b"OMPI_COMM_WORLD_RANK") or b"0").decode()
            helper = b"safepoint.foreign" in entry.joinpath("cmdline").read_bytes()
            if helper or os.readlink(entry / "exe") == str(exe):
                processes.append(Found(int(entry.name), rank, helper))
    return processes


class Job:
    """A start of a program, on ranks or alone, whose processes can be killed."""

    def __init__(self, work: Path, exe: Path, mpi: Mpi | None, ranks: int, *arguments: object, **more: str) -> None:
        self.exe, self.marker = exe, f"SAFEPOINT_TEST_JOB={uuid.uuid4()}"
        command = [str(exe), *map(str, arguments)]
        command = mpi.started(ranks, *command) if mpi else command
        name, _, value = self.marker.partition("=")
        self.process = subprocess.Popen(
            command, cwd=work, env=environment(**{name: value, **more}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip

    def ended(self) -> tuple[int, str]:
        """Status and output, when it and all its processes have ended."""
        end, gone = time.monotonic() + PATIENCE, 0
        while True:
            try:
                said = self.process.communicate(timeout=5)[0]
                return self.process.returncode, said
            except subprocess.TimeoutExpired:
                left = self.found()
            # Of a rank that is killed in MPI_Init Open MPI's launcher may never hear: with nobody left it waits on.
            gone = 0 if left else gone + 1
            if gone == 3:
                self.process.kill()
            elif time.monotonic() > end:
                self.kill(left)
                self.process.kill()
                raise Violation(f"it hangs: {left}; {self.process.communicate()[0][-3000:]}")

    def found(self) -> list[Found]:
        return found(self.marker, self.exe)

    @staticmethod
    def kill(whom: Sequence[Found]) -> int:
        count = 0
        for process in whom:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
                count += 1
        return count


KINDS = "rank", "all ranks", "helper", "both"


def chosen(kind: str, processes: Sequence[Found], rng: random.Random) -> list[Found]:
    """Whom a kill of this kind hits: a rank, all ranks, a helper, or a rank and its helper."""
    helpers, ranks = ([p for p in processes if p.helper is helper] for helper in (True, False))
    if kind == "all ranks":
        return ranks
    if kind == "helper":
        return rng.sample(helpers, min(1, len(helpers)))
    one = rng.sample(ranks, min(1, len(ranks)))
    return one + [p for p in helpers if kind == "both" and p.rank in {q.rank for q in one}]


class Runs:
    """A program that is killed again and again, and begun anew whenever it has reached its end."""

    def __init__(self, into: Path, exe: Path, mpi: Mpi | None, ranks: int, manifest: str, *arguments: object) -> None:
        self._exe, self._mpi, self._ranks, self._arguments, self._manifest = exe, mpi, ranks, arguments, manifest
        self._work = into / "work"
        self._new()
        begin = time.monotonic()
        self._ended()
        self._lasts = time.monotonic() - begin
        self._whole = self._files()
        assert self._whole, "it has made no files"
        self._new()
        self.lives = 0

    def _new(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        (self._work / ".safepoint").write_text(self._manifest)

    def _files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._work.iterdir() if not path.name.startswith(".")}

    def _job(self) -> Job:
        return Job(self._work, self._exe, self._mpi, self._ranks, *self._arguments)

    def _ended(self) -> None:
        code, said = self._job().ended()
        if code:
            raise Violation(f"it ended with {code}: {said[-3000:]}")

    def killed(self, kind: str, rng: random.Random) -> bool:
        """Start it once, and kill it somewhere; whether that hit anything."""
        self.lives += 1
        job = self._job()
        time.sleep(rng.uniform(0.05, self._lasts))
        hit = job.kill(chosen(kind, job.found(), rng))
        code, said = job.ended()
        if code == 0:
            self.compared()
            self._new()
        elif not hit:
            raise Violation(f"nobody was killed, and it ended with {code}: {said[-3000:]}")
        return bool(hit)

    def compared(self) -> None:
        """Equal to the run that nothing disturbed."""
        mine = self._files()
        if mine != self._whole:
            wrong = [name for name in {*mine, *self._whole} if mine.get(name) != self._whole.get(name)]
            raise Violation(f"not equal to the undisturbed run: {sorted(wrong)}")

    def to_the_end(self) -> None:
        self._ended()
        self.compared()


@contextmanager
def memory(prefix: str = "safepoint-") -> Iterator[Path]:
    """A directory in memory, where there is such a place."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=prefix, dir=shm) as directory:
        yield Path(directory).resolve()


def ran(work: Path, *command: object, more: Mapping[str, str] | None = None, **options: Any) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command."""
    done = subprocess.run(
        [*map(str, command)], cwd=work, env=environment(**(more or {})), capture_output=True, text=True,
        timeout=PATIENCE, errors="replace", **options,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
