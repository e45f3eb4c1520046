"""Power cuts for real of a program in C: it stands still with its helper, the file system is shut down without writing
anything more, and mounted again. Needs root, loop devices and a compiler."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from testbed import tally
from testbed.foreign import Job, memory, needs, program, said_by
from testbed.mounts import KINDS, Volume
from testbed.powercut import durable, on_file_systems
from testbed.program import Violation
from testbed.sweep import LONG

STEPS = 12
MANIFEST = "u-{rank}.dat\ncommon.dat\nhistory.txt append\n"
CUTS = 40 if LONG else 3  # of each kind of file system, half of them while every hide waits for the disk

pytestmark = [needs("cc"), pytest.mark.timeout(3600 if LONG else 600)]


def cut(volume: Volume, job: Job) -> None:
    """The power goes while program and helper stand still; neither does anything afterwards."""
    processes = job.found()
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
    volume.shut_down()
    job.kill(processes)
    job.ended()
    while any(Path(f"/proc/{process.pid}/fd").exists() and not gone(process.pid) for process in processes):
        time.sleep(0.001)
    volume.umount()
    volume.mount()


def gone(pid: int) -> bool:
    """It has ended, and only its parent has not heard of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def cut_once(volume: Volume, work: Path, seconds: float, waits: bool, log: Path) -> None:
    """G1, G2, G3: one whole step, not older than what was said to be durable; and it reaches its end."""
    work.mkdir()
    (work / ".safepoint").write_text(MANIFEST)
    durable(work)
    words = [STEPS, log, *["wait"] * waits]
    job = Job(work, program("life.c"), None, 1, *words)
    until = time.monotonic() + 60
    while not said_by(log, 0) and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(seconds)
    cut(volume, job)
    before = said_by(log, 0)
    status, output = Job(work, program("life.c"), None, 1, *words).ended()
    after = said_by(log, 0)[len(before) :]
    promised = max((step for word, step in before if word in ("durable", "finished")), default=-1)
    restored = [step for word, step in after if word == "restored"]
    wrong = [line for line in [*before, *after] if line[0] in ("WRONG", "failed")]
    if status or wrong or len(restored) != 1 or restored[0] < promised or ("finished", STEPS - 1) not in after:
        raise Violation(f"cut after {seconds:.4f} s: {before}, then with status {status}: {after}; {output}")
    rows = (work / "history.txt").read_text().split()
    if rows != [str(step) for step in range(STEPS)]:
        raise Violation(f"cut after {seconds:.4f} s: the history is {rows}")


@on_file_systems("kind", KINDS)
def test_a_power_cut_at_any_instant_leaves_one_whole_step_of_a_program_in_c(kind: str) -> None:
    rng = random.Random(kind)
    exe = program("life.c")
    with Volume.made(kind) as volume, memory() as notes:
        lasts = {}
        for waits in (False, True):
            begin = time.monotonic()
            work = volume.path / f"undisturbed-{waits}"
            work.mkdir()
            (work / ".safepoint").write_text(MANIFEST)
            assert Job(work, exe, None, 1, STEPS, notes / "whole", *["wait"] * waits).ended()[0] == 0
            lasts[waits] = time.monotonic() - begin
        for index in range(CUTS):
            waits = bool(index % 2)
            cut_once(volume, volume.path / f"{index}", rng.uniform(0, lasts[waits]), waits, notes / f"{index}")
    tally.count("real power cuts", kind, CUTS, of_c=CUTS)
