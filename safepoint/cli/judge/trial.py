"""One run of a command in a copy of a directory: undisturbed, or killed at random instants and started again."""

from __future__ import annotations

import contextlib
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from safepoint import manifest, words
from safepoint.disk import Disk, kernel
from safepoint.disk.files import exists
from safepoint.errors import UsageError
from safepoint.ledger.sides import Side
from safepoint.owner import read_owner
from safepoint.patterns import NAME, SIDE, quoted
from safepoint.program import SETTINGS
from safepoint.root import logs, roots
from safepoint.run.proc import Process
from safepoint.run.processes import Family, die_with
from safepoint.settings import ALOOF
from safepoint.threads import restarted

DISK = Disk()
TICK = 0.002  # seconds between two looks at a run
EARLY = 0.15  # of the kills come before the first set of a life may be there: at the start, or in restore
SPREAD = (0.1, 1.5)  # of what a life would get of the run if all got the same
RANKS_END_S = 10.0  # seconds that the others of a killed rank have to end by themselves
ALONE = "R"  # the run in which `hide` does nothing
TAIL = 15  # lines of the output of a run that failed
_KEEP = re.compile(r"^\s*keep\s*=")


class Ended(Exception):
    """A run ended as it should not have; the text says how."""


@dataclass(frozen=True)
class Kill:
    """`after`: seconds since the start of that life."""

    after: float
    process: str


@dataclass
class Trial:
    """`name`: A, B or C. `top`: where its copy and its output are."""

    name: str
    top: str
    command: Sequence[str]
    seconds: float = 0.0
    first: float = 0.0  # seconds until the first set was there
    kills: list[Kill] = field(default_factory=list)

    @property
    def work(self) -> str:
        return os.path.join(self.top, self.name)

    @property
    def output(self) -> str:
        return f"{self.work}.out"

    @property
    def trace(self) -> str:
        """Of the regions of its last life, if `safepoint threads build` made the program."""
        return f"{self.work}.threads"

    def copy(self, source: str, keep: str) -> None:
        """All but the side directory, which begins anew, and keeps all sets."""
        leave = shutil.ignore_patterns(SIDE)
        source = os.path.realpath(source)
        shutil.copytree(source, self.work, symlinks=True, ignore=lambda at, names: _left_out(at, names, source, leave))
        path = os.path.join(self.work, NAME)
        if not os.path.exists(path):  # the program will write it
            return
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = ["#" if _KEEP.match(line) else line for line in file.read().splitlines()]
        os.unlink(path)  # it may be a link to the one of the user
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join([*lines, f"keep = {keep}", ""]))

    def run(self, limit: float | None) -> None:
        """To the end, undisturbed. Raises `Ended` if that is not a good one."""
        begin = time.monotonic()
        with self._life() as (child, family):
            deadline = begin + limit if limit else None
            while child.poll() is None:
                if not self.first and _has_set(self.work):
                    self.first = time.monotonic() - begin
                if deadline and time.monotonic() > deadline:
                    _kill(child, family)
                    raise Ended(f"it has not come to its end within {limit:.0f} s{self.tail()}{self._hint()}")
                time.sleep(TICK)
        self.seconds += time.monotonic() - begin
        self.first = self.first or self.seconds / 2  # too quick to be seen
        self._check(child.returncode)

    def killed(
        self, like: Trial, times: int, seed: int, one: bool, limit: float | None, say: Callable[[str], None]
    ) -> None:  # fmt: skip
        """Killed so often, at instants that spread over a run `like` this one, and then to its end."""
        rng = random.Random(seed)
        rest = max(like.seconds - like.first, TICK)
        for number in range(1, times + 1):
            early = rng.random() < EARLY
            after = rng.uniform(0, like.first) if early else rng.uniform(*SPREAD) * rest / (times + 1)
            begin = time.monotonic()
            told = self._told()
            with self._life() as (child, family):
                # From the first word of this life on, else a busy machine would kill each before it has done anything.
                while not early and self._told() == told and child.poll() is None:
                    if limit and time.monotonic() > begin + limit:
                        _kill(child, family)
                        raise Ended(f"a start has said nothing for {limit:.0f} s{self.tail()}")
                    time.sleep(TICK)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(after)
                if child.returncode is None:
                    who = self._strike(child, family, rng, one)
                    self.kills.append(Kill(time.monotonic() - begin, who))
                    say(f"kill {number} of {times}: {who}, {self.kills[-1].after:.2f} s after its start")
            self.seconds += time.monotonic() - begin
            if child.returncode == 0:
                return
            if not self.kills or len(self.kills) < number:
                self._check(child.returncode)
        self.run(limit)

    def _told(self) -> int:
        """How much the logs tell."""
        side = os.path.join(self.work, SIDE)
        with contextlib.suppress(OSError):
            return sum(os.path.getsize(log) for log in logs(DISK, side).values())
        return 0

    def restarts(self) -> int:
        side = Side(self.work)
        for _ in side.rows():
            pass
        return side.restarts

    def sampled(self) -> bool:
        """Whether its files never move: it is under `safepoint run`."""
        side = Side(self.work)
        return any(side.sampled for _ in side.rows())

    def results(self, more: Sequence[str]) -> dict[str, str]:
        """The files that are the result, by their names: those of the manifest, and `more`, globs."""
        listed = manifest.load(self.work, SETTINGS)
        ranks = max(logs(DISK, os.path.join(self.work, SIDE)), default=0) + 1
        found = {path: os.path.join(self.work, path) for path in _below(self.work) if _listed(listed, path, ranks)}
        for pattern in more:
            there = glob.glob(pattern, root_dir=self.work, recursive=True)
            found.update({p: os.path.join(self.work, p) for p in there if os.path.isfile(os.path.join(self.work, p))})
        return found

    def others(self, more: Sequence[str]) -> dict[str, str]:
        """The files that are not the result."""
        result = self.results(more)
        paths = [path for path in _below(self.work) if path not in result and path != NAME]
        full = {path: os.path.join(self.work, path) for path in paths}
        return {path: there for path, there in full.items() if os.path.isfile(there) and not os.path.islink(there)}

    def tail(self) -> str:
        """The last lines of its output."""
        with open(self.output, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()[-TAIL:]
        return ":\n" + "\n".join(f"    {line}" for line in lines) if lines else "; it said nothing"

    @contextlib.contextmanager
    def _life(self) -> Iterator[tuple[subprocess.Popen[bytes], Family | None]]:
        regions = restarted.variables(self.command, self.work, self.trace)
        alone = {ALOOF: "1"} if self.name == ALONE else {}
        environment = {"SAFEPOINT_LEDGER": "full", **alone, **regions, **os.environ, "PWD": self.work}
        with open(self.output, "ab") as output:
            family = Family() if sys.platform == "linux" else None  # first: what is there already is none of it
            child = self._start(environment, output)
            if family:
                family.begin(child.pid)
            try:
                yield child, family
            finally:
                _kill(child, family)  # what it left behind would write into the files of the next life
                if family:
                    family.close()

    def _start(self, environment: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        me = os.getpid()
        more: dict[str, Any] = {"preexec_fn": lambda: die_with(me)} if sys.platform == "linux" else {}
        try:
            return subprocess.Popen(
                self.command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, **more,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"cannot start {self.command[0]}: {error.strerror}", error.errno) from error

    def _strike(
        self, child: subprocess.Popen[bytes], family: Family | None, rng: random.Random, one: bool
    ) -> str:  # fmt: skip
        """Kill all, or one rank: then the others go, or are killed too. Who it was."""
        ranks = self._ranks() if one else []
        if not ranks:
            _kill(child, family)
            return "all processes"
        rank, pid = rng.choice(ranks)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(RANKS_END_S)
        _kill(child, family)
        return f"rank {rank}"

    def _ranks(self) -> list[tuple[int, int]]:
        """Rank and process of those that hold a lock here."""
        found = []
        for root in roots(DISK, self.work)[0] if exists(DISK, os.path.join(self.work, SIDE)) else []:
            owner = read_owner(root)
            if owner and kernel.is_alive(owner["pid"]) and kernel.held([root.lock])[0]:
                found.append((root.rank, owner["pid"]))
        return found

    def _check(self, status: int) -> None:
        if status:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise Ended(f"it {how}{self.tail()}{self._hint()}")

    def _hint(self) -> str:
        hint = words.to_check(self.command)
        return f"\n{hint}" if hint else ""


def advice(path: str, alone: Trial, moved: Trial) -> str:
    """The line of the manifest for a file that `hide` moves away from a program that counts on it."""
    there = [os.path.join(trial.work, path) for trial in (alone, moved)]
    if all(map(os.path.isfile, there)) and os.path.getsize(there[0]) > os.path.getsize(there[1]):
        with DISK.open(there[0]) as whole, DISK.open(there[1]) as rest:
            whole.seek(-os.path.getsize(there[1]), os.SEEK_END)
            if whole.readall() == rest.readall():  # type: ignore[attr-defined]
                return f"{quoted(path)} append (it has only the rows since the last set)"
    return f"{quoted(path)} copy"


def links_outside(directory: str) -> list[str]:
    """Directories of W that are links to elsewhere: all copies have the same."""
    here, found = os.path.realpath(directory), []
    for where, names, _ in os.walk(here):
        for name in names:
            path = os.path.join(where, name)
            if os.path.islink(path) and not os.path.realpath(path).startswith(here + os.sep):
                found.append(os.path.relpath(path, here))
    return found


def _left_out(at: str, names: list[str], source: str, leave: Callable[[str, list[str]], set[str]]) -> set[str]:
    return set(leave(at, names)) if os.path.samefile(at, source) else set()


def _below(top: str) -> list[str]:
    found = []
    for where, directories, names in os.walk(top):
        directories[:] = [name for name in directories if (where, name) != (top, SIDE)]
        found += [os.path.relpath(os.path.join(where, name), top).replace(os.sep, "/") for name in names]
    return sorted(found)


def _listed(listed: manifest.Manifest, path: str, ranks: int) -> bool:
    return any(
        entry.means(path, rank, ranks) for entry in listed.entries for rank in range(ranks if entry.per_rank else 1)
    )


def _has_set(work: str) -> bool:
    """Whether the log of the first rank tells of a set."""
    side = os.path.join(work, SIDE)
    try:
        with DISK.open(min(logs(DISK, side).items())[1]) as file:
            return b'"saved"' in file.read(1 << 16)
    except (OSError, ValueError):
        return False


def _living(child: subprocess.Popen[bytes], family: Family | None) -> list[Process]:
    return family.alive() if family else []


def _kill(child: subprocess.Popen[bytes], family: Family | None) -> None:
    """All that belongs to the command; on return none of it is left."""
    while living := _living(child, family):
        for process in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(TICK)
    if family is None and child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    while family and _reap():
        pass


def _reap() -> bool:
    """Wait for one of those that have become our children and have ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def check_source(directory: str, top: str, command: Sequence[str]) -> None:
    """Raise if a copy of this directory below `top` could not be a run of its own."""
    if os.path.exists(os.path.join(directory, NAME)):
        manifest.load(directory, SETTINGS)
    here = os.path.realpath(directory)
    if f"{os.path.realpath(top)}{os.sep}".startswith(f"{here}{os.sep}"):
        raise UsageError(
            f"{top} is in {here} itself, of which copies are to be made there: name a place elsewhere (--work)"
        )
    for word in command:
        path = word.rpartition("=")[2]
        if os.path.isabs(path) and f"{os.path.realpath(path)}{os.sep}".startswith(here + os.sep):
            raise UsageError(
                f"{word} is in the directory itself, and the runs work in copies of it: name it relative to {here}"
            )
