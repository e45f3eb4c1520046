"""SIGKILL at the system calls of a program in C and of its helper, each in turn: a tracer kills before the n-th."""

from __future__ import annotations

import os
import platform
import random
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed import tally
from testbed.foreign import MPICH, OPEN_MPI, Mpi, memory, needs, place, program, ran, said_by
from testbed.program import Violation
from testbed.sweep import ALL, LONG, one_of, sample
from testbed.tracing import hit_at_last

pytestmark = [
    needs("cc"),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="needs ptrace of Linux on x86_64"
    ),
    pytest.mark.timeout(7200 if LONG else 600),
]
MANIFEST = "u-{rank}.dat\ncommon.dat\nhistory.txt append\n"
STEPS = 4
MPIS = [pytest.param(mpi, id=mpi.name, marks=needs(mpi.cc, mpi.mpiexec)) for mpi in (MPICH, *[OPEN_MPI] * LONG)]


class Target(NamedTuple):
    """Whose system calls: of the program, from its start; or of its helper, from where it is ready to be asked."""

    name: str
    mpi: Mpi | None = None
    ranks: int = 1
    waits: bool = False

    @property
    def helper(self) -> bool:
        return self.name == "helper"


def life(work: Path, target: Target, at: int | None) -> tuple[int, str]:
    """A life whose target is killed at its n-th call; 0: at none, and they are counted; None: it is left alone. Status,
    and what the tracer has said."""
    exe, killer, log = program("life.c", target.mpi), program("killer.c"), work.parent / f"{work.name}.log"
    command: list[object] = [exe, STEPS, work.parent / f"{work.name}.said", *["wait"] * target.waits]
    more = {}
    if at is not None:
        log.unlink(missing_ok=True)
        more = {"KILL_AT": str(at), "KILL_LOG": str(log), **({"KILL_RANK": "1"} if target.ranks > 1 else {})}
        if target.helper:
            more |= {"SAFEPOINT_PYTHON": str(wrapper(killer)), "KILL_AFTER": "send", "KILL_FORKS": "1"}
        else:
            command.insert(0, killer)
    if target.mpi:
        command = list(target.mpi.started(target.ranks, *command))
    status, _, _ = ran(work, *command, more=more)
    return status, log.read_text() if log.exists() else ""


def wrapper(killer: Path) -> Path:
    """A Python whose calls are counted."""
    path = place() / "traced-python"
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}.{random.random()}")
        new.write_text(f'#!/bin/sh\nexec {killer} {sys.executable} "$@"\n')
        new.chmod(0o755)
        new.rename(path)
    return path


def said(work: Path, rank: int) -> list[tuple[str, int]]:
    return said_by(work.parent / f"{work.name}.said", rank)


def begin(work: Path) -> None:
    work.mkdir()
    (work / ".safepoint").write_text(MANIFEST)


def killed(into: Path, target: Target, at: int) -> bool:
    """G1, G2, G2k, G4, G5: dead at this call; the next start has a whole step, not older than what was promised."""
    work = Path(tempfile.mkdtemp(prefix=f"at-{at}-", dir=into), "work")
    begin(work)
    _, log = life(work, target, at)
    before = [said(work, rank) for rank in range(target.ranks)]
    promised = max(
        (step for lines in before for word, step in lines if word in ("hid", "durable", "finished")), default=-1
    )
    status, _ = life(work, target, None)
    after = [said(work, rank)[len(before[rank]) :] for rank in range(target.ranks)]
    wrong = [line for lines in [*before, *after] for line in lines if line[0] == "WRONG"]
    restored = {step for lines in after for word, step in lines if word == "restored"}
    finished = {step for lines in after for word, step in lines if word == "finished"}
    if status or wrong or len(restored) != 1 or min(restored) < promised or finished != {STEPS - 1}:
        raise Violation(f"{target} killed at call {at} ({log.strip()}): {before}, then with status {status}: {after}")
    if (work / "history.txt").read_text().split() != [str(step) for step in range(STEPS)]:
        raise Violation(f"{target} killed at call {at}: the history is {(work / 'history.txt').read_text()!r}")
    return "killed" in log


def hit(into: Path, target: Target, at: int) -> bool:
    return hit_at_last(lambda: killed(into, target, at))


def kill_at_each(target: Target, points: Sequence[int], *, workers: int) -> int:
    """How many of these kills hit."""
    with memory() as into, ThreadPoolExecutor(workers) as pool:
        hits = sum(pool.map(partial(hit, into, target), points))
    ranks = f", rank 1 of {target.ranks} of {target.mpi.name}" if target.mpi else ""
    what = f"a program in C: {target.name}{', every hide waits' if target.waits else ''}{ranks}"
    tally.count("kills at a system call", what, hits)
    print(f"{what}: {len(points)} tried, {hits} hit")
    return hits


def calls(target: Target) -> int:
    with memory() as into:
        begin(into / "work")
        status, log = life(into / "work", target, 0)
        assert status == 0, log
    counts = [int(line.split()[1]) for line in log.splitlines() if line.startswith("calls")]
    assert counts and max(counts) > 100, log
    return max(counts)


@pytest.mark.parametrize(("name", "waits"), one_of([*product(("program", "helper"), (False, True))]), ids=str)
def test_killed_at_each_system_call_alone(name: str, waits: bool) -> None:
    """One rank: every call of the program, and of its helper with all its threads."""
    target = Target(name, waits=waits)
    count = calls(target)
    points = sample(range(1, count + 1), 60 if target.helper else 12, 6 if target.helper else 1)
    hits = kill_at_each(target, points, workers=os.cpu_count() or 1)
    assert hits > 0.8 * len(points), f"{hits} of {len(points)} [{points}]"  # the number of calls is not always the same


@pytest.mark.xdist_group("mpi-foreign")
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("name", one_of(["program", "helper"]))
def test_killed_at_system_calls_of_one_of_four_ranks(name: str, mpi: Mpi) -> None:
    """Four ranks: calls of rank 1, or of its helper, taken at random; the job ends, and the next has one step."""
    target = Target(name, mpi, 4)
    count = calls(target)
    rng = random.Random(count)
    points = sorted(rng.sample(range(1, count + 1), min(count, 400 if ALL else 24 if LONG else 2)))
    hits = kill_at_each(target, points, workers=1)
    assert hits > 0.3 * len(points), f"{hits} of {len(points)}"  # how often a rank looks for messages differs
