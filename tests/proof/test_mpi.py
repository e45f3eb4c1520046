"""Many ranks, with the real mpiexec of the `mpich` wheel: the cases of `mpi_cases.py`, and kills of single ranks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from testbed import tally
from testbed.jobs import mpiexec
from testbed.mpi_solver import MANIFEST
from testbed.paths import TESTBED
from testbed.program import Violation
from testbed.sweep import ALL, LONG, one_of, some_of, turn
from testbed.tracing import FILE_CALLS, count_calls, hit_at_last, wait_until_attached

from safepoint.disk import Disk

pytestmark = pytest.mark.xdist_group("mpi")  # one after the other: waiting ranks keep all cores busy
RANKS = 4
EVERY = 5  # of the cases of so many ranks
PATIENCE = 300  # seconds for one job, many times what it takes


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize("ranks", [*one_of([8, 2]), 4, 1])  # four and one always
def test_all_that_must_hold_on_so_many_ranks(ranks: int, tmp_path: Path) -> None:
    """G1 to G8, and no rank hangs: the cases of mpi_cases.py that are about this number of ranks; in the short form
    every m-th of them from the k-th on, other ones with each commit."""
    m = 1 if LONG or ranks == 1 else EVERY
    k = turn() // 11 % m
    command = mpiexec(ranks, TESTBED / "mpi_cases.py", tmp_path / "cases")
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PART": f"{k}/{m}"})
    print(done.stdout)
    passed = done.stdout.count("ok ")
    assert done.returncode == 0 and "FAILED" not in done.stdout, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert passed >= {1: 4, 2: 35, 4: 35, 8: 20}[ranks] // m, done.stdout


class Job:
    """One start of mpi_solver.py on four ranks in `directory`; when one dies the others go on until they need it."""

    def __init__(self, directory: Path, said: Path, steps: int, **environment: str) -> None:
        self.said, self.seen = said, [len(self._lines(said, rank)) for rank in range(RANKS)]
        environment = {**os.environ, **environment}
        command = mpiexec(RANKS, TESTBED / "mpi_solver.py", steps, said)
        command.insert(1, "-disable-auto-cleanup")
        self.process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.deadline = time.monotonic() + PATIENCE

    @staticmethod
    def _lines(said: Path, rank: int) -> list[str]:
        path = Path(f"{said}-{rank}")
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def lines(self, rank: int) -> list[str]:
        """What a rank said in this job."""
        return self._lines(self.said, rank)[self.seen[rank] :]

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for rank in range(RANKS) for line in self.lines(rank)[:1]]

    def until(self, what: str, ranks: Iterator[int] | range = range(RANKS)) -> None:
        while not all(any(line.startswith(what) for line in self.lines(rank)) for rank in ranks):
            self.check_time(what)
            if self.process.poll() is not None:
                raise Violation(f"the job ended before all ranks said {what}: {self.process.communicate()[1][-3000:]}")
            time.sleep(0.002)

    def check_time(self, what: str) -> None:
        if time.monotonic() > self.deadline:
            said = [self.lines(rank)[-2:] for rank in range(RANKS)]
            self.end()
            raise Violation(f"it hangs, waiting for: {what}; last said {said}")

    def kill(self, rank: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids()[rank], signal.SIGKILL)

    def end(self) -> None:
        """The rest of the job dies too, as under a scheduler."""
        for rank in range(len(self.pids())):
            self.kill(rank)
        self.process.kill()
        self.process.communicate()
        for pid in self.pids():
            while alive(pid):
                time.sleep(0.001)

    def last(self, word: str) -> list[int]:
        """For each rank, the step of the last line that begins with this word; -1 if there is none."""
        found = [[line for line in self.lines(rank) if line.startswith(word + " ")] for rank in range(RANKS)]
        return [int(lines[-1].split()[1]) if lines else -1 for lines in found]

    def check(self, least: int) -> int:
        """G1, G2, G2k, G5: the step below which the next job must not fall."""
        wrong = [line for rank in range(RANKS) for line in self.lines(rank) if line.startswith("WRONG")]
        heard = {int(line.split()[1]) for r in range(RANKS) for line in self.lines(r) if line.startswith("restored")}
        if wrong or len(heard) > 1:
            raise Violation(f"{wrong}; restored {sorted(heard)}")
        if heard and min(heard) < least:
            raise Violation(f"hide had returned for step {least}, restored was {sorted(heard)}")
        return max(least, *self.last("hid"), *self.last("finished"))


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def place() -> Iterator[tuple[Path, Path]]:
    """A working directory with a manifest, and where the ranks say what they did."""
    path = Path(tempfile.mkdtemp(prefix="safepoint-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        (path / "work").mkdir()
        (path / "work" / ".safepoint").write_text(MANIFEST)
        yield path / "work", path / "said"
    finally:
        shutil.rmtree(path)


provable = pytest.mark.skipif(
    Disk().page_cache("/dev/shm" if os.path.isdir("/dev/shm") else ".").mount is None,
    reason="needs a local file system and Linux 6.8, or a killed rank's last hide cannot be promised (G2k)",
)


ROUNDS = 200 if ALL else 120 if LONG else 8  # kills at random instants


@provable
@pytest.mark.timeout(3600 if LONG else 600)
def test_a_random_rank_killed_at_a_random_instant_again_and_again() -> None:
    """G5, G2, G2k, G1, G3: after every restart all are at one step, not older than what `hide` had returned for."""
    rng = random.Random(1989)
    rounds, inside, starts, finished = 0, 0, 0, 0
    while rounds < ROUNDS:
        with place() as (work, said):
            least = -1
            while rounds < ROUNDS:
                job = Job(work, said, 120)
                job.until("pid")
                time.sleep(rng.choice((0.02, 0.15, 0.6)) * rng.random())
                victim = rng.randrange(RANKS)
                job.kill(victim)
                time.sleep(rng.choice((0, 0.05, 0.15)))  # the others go on
                job.end()
                rounds += 1
                last = job.lines(victim)[-1]
                inside += last.startswith(("hiding", "pid"))
                starts += last.startswith("pid")
                least = job.check(least)
                if least == 120:
                    finished += 1
                    break
            job = Job(work, said, least + 3 if least < 120 else 120)
            job.until("finished")
            job.process.communicate(timeout=PATIENCE)
            job.check(least)
    print(
        f"{rounds} kills of one rank of {RANKS}: {inside} inside of init, restore or hide, {starts} of these at a start"
    )
    tally.count("kills at random instants", f"one rank of {RANKS}", rounds)
    assert inside > rounds // 10, "hardly any kill hit the library: this tests nothing"


def killed_in_rank_1(how: list[str], *, gate: str, restart: bool, inline: str, slow: str = "") -> bool:
    """A job in which a tracer of one thread of rank 1 does this, then one in peace. Whether rank 1 died of it."""
    with place() as (work, said):
        least = -1
        if restart:
            first = Job(work, said, 6)
            first.until("hid 3")
            first.end()
            least = first.check(least)
        os.mkfifo(f"{said}-go")
        pipe = os.open(f"{said}-go", os.O_RDWR)  # both ends: this never blocks, whoever is dead
        job = Job(work, said, 6, GATE=gate, INLINE=inline, **{"SLOW": slow} if slow else {})
        tracer = None
        try:
            job.until("gate", range(1, 2))
            pid = job.pids()[1]
            thread = int(job.lines(1)[-1].split()[1])
            command = ["strace", "--quiet=personality,exit", "-p", str(thread), *how]
            tracer = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            wait_until_attached(tracer)
            os.write(pipe, b"!")
            while alive(pid) and job.process.poll() is None:
                job.check_time("rank 1")
                time.sleep(0.002)
            died = not any(line.startswith("finished") for line in job.lines(1))
            if died:
                time.sleep(0.1)  # ranks 0, 2 and 3 go on
        finally:
            os.close(pipe)
            job.end()
            if tracer is not None:
                tracer.communicate(timeout=PATIENCE)
        least = job.check(least)
        last = Job(work, said, 6)
        last.until("finished")
        last.process.communicate(timeout=PATIENCE)
        last.check(least)
        return died


VARIANTS = {
    "main thread": {"gate": "start", "restart": False, "inline": ""},
    "saver thread": {"gate": "saver", "restart": False, "inline": ""},
    "every hide waits": {"gate": "start", "restart": False, "inline": "1"},
    "a restart": {"gate": "start", "restart": True, "inline": ""},
    "main thread, sets wait": {"gate": "start", "restart": False, "inline": "", "slow": "2"},
    "saver thread, sets wait": {"gate": "saver", "restart": False, "inline": "", "slow": "1"},
}


@provable
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.timeout(6000 if LONG else 600)
@pytest.mark.parametrize("variant", some_of(list(VARIANTS), 1, proof=1))
def test_rank_1_killed_at_each_file_system_call_while_the_others_go_on(variant: str) -> None:
    """G5, G2k, G3: SIGKILL at each call of a thread of rank 1; ranks 0, 2 and 3 go on until they need it."""
    options: dict[str, Any] = VARIANTS[variant]
    with tempfile.TemporaryDirectory() as directory:
        trace, lives = Path(directory, "trace"), []
        # A helper may do what the saver did in another life; and which sets a slow saver stores is chance.
        for _ in range((8 if "slow" in options else 3) if options["gate"] == "saver" else 1):
            killed_in_rank_1(["-e", FILE_CALLS, "-o", str(trace)], **options)
            # Up to where it has nothing left to do; what MPI_Finalize reads is not what is tested.
            end = '"hiding' if options["restart"] else '"finished'
            trace.write_text(trace.read_text().partition(end)[0])
            lives.append(count_calls(trace))
        calls = [call for call in lives[0] if all(call in life for life in lives)]
    assert len(calls) > 60, f"hardly any call was traced: this tests nothing: {calls}"

    def one(call: tuple[str, int]) -> bool:
        name, index = call
        how = ["-e", f"inject={name}:signal=SIGKILL:when={index}", "-e", f"trace={name}", "-o", os.devnull]
        try:
            return hit_at_last(lambda: killed_in_rank_1(how, **options))
        except Violation as violation:
            raise Violation(f"rank 1 killed at {name} number {index}, {variant}: {violation}") from violation

    sample = calls if ALL else calls[:: len(calls) // (30 if LONG else 4)]
    with ThreadPoolExecutor(2) as pool:
        hits = sum(pool.map(one, sample))
    tally.count("kills at a system call", f"rank 1 of {RANKS}, {variant}", hits)
    print(f"rank 1, {variant}: {len(calls)} calls, {len(sample)} tried, {hits} kills hit")
    assert hits > 0.8 * len(sample), (hits, len(sample))
