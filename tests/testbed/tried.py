"""Programs for `safepoint crash-test`, each with a mistake that can be planted in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.paths import HOUSE

SOLVER = """\
import random, sys, time
import safepoint

STEPS = 24
safepoint.init()
saved = safepoint.restore()
step = saved.step if saved else 0
rng = random.Random(7)
total = 0.0
if saved:
    u, before = map(float, open("u.txt").read().split())
    rng.setstate(eval(open("rng.txt").read()))
    total = float(open("mean.txt").read().split()[0])
    {after_restore}
else:
    u, before = 1.0, 0.9

def write():
    open("u.txt", "w").write(f"{{u!r}} {{before!r}}")
    open("rng.txt", "w").write(repr(rng.getstate()))
    open("mean.txt", "w").write(f"{{total!r}} {{total / (step or 1)!r}}")

if not saved:
    write()
while step < STEPS:
    safepoint.hide(step=step)
    time.sleep(0.01)
    u, before = 2 * u - before - 0.01 * u + 0.001 * rng.random(), u
    step += 1
    total += u
    {inside}
    write()
safepoint.finish(step=step)
"""


RANKED = """\
import sys, time
from mpi4py import MPI
import safepoint

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
safepoint.init(comm=comm)
saved = safepoint.restore()
step = saved.step if saved else 0
u = float(open(f"u-{{{whose}}}.txt").read()) if saved else 1.0 + rank

def write():
    open(f"u-{{rank}}.txt", "w").write(repr(u))
    if rank == 0:
        open("sum.txt", "w").write(repr(total))

total = comm.allreduce(u)
if not saved:
    write()
while step < 24:
    safepoint.hide(step=step)
    time.sleep(0.01)
    u += 0.25 * (rank + 1)
    total = {total}
    step += 1
    safepoint.watch(step, total=total)
    write()
safepoint.finish(step=step)
"""


def planted(directory: Path, *, after_restore: str = "pass", inside: str = "pass", manifest: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "solver.py").write_text(SOLVER.format(after_restore=after_restore, inside=inside))
    (directory / ".safepoint").write_text(manifest or "u.txt\nrng.txt\nmean.txt\n")
    return directory


def safepoint(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "COLUMNS": "10000"}
    return subprocess.run(
        [sys.executable, "-m", "safepoint", *arguments], cwd=directory, capture_output=True, text=True, env=environment,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


def try_out(directory: Path, tmp_path: Path, *options: str, command: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a crash test says; its runs stay below `tmp_path`. Again, if the machine became so much faster after the
    undisturbed run that most of the kills, which are drawn from its length, came too late."""
    for runs in ("runs", "runs-2", "runs-3"):
        done = safepoint(
            directory, "crash-test", "--kills", "4", "--seed", "5", "--json", "--work", str(tmp_path / runs), *options,
            "--", *(command or (sys.executable, "solver.py")),
        )  # fmt: skip
        assert done.stdout, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == said["code"], done.stderr
        if said["verdict"] != "no restart" or "was killed 1 time," not in said["text"]:
            break
    return said


def first(said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = said["ledger"]["first"][0]
    return found


def ranked(directory: Path, *, whose: str = "rank", total: str = "comm.allreduce(u)") -> Path:
    directory.mkdir()
    (directory / "solver.py").write_text(RANKED.format(whose=whose, total=total))
    (directory / ".safepoint").write_text("u-{rank}.txt\nsum.txt\n")
    return directory
