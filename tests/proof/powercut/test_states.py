"""Weak order: every system call of real runs, played into the model of `faultdisk`, and the program started again in
the states that POSIX alone allows a power cut to leave: each prefix; everything; only what an fsync guarantees; each
unsynced operation dropped alone and kept alone; torn last writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed import tally
from testbed.program import Program
from testbed.sweep import ALL, LONG, Points, cuts
from testbed.syscalls import replayed
from testbed.tracing import why_not

pytestmark = pytest.mark.skipif(why_not is not None, reason=str(why_not))
STEPS = 3
STATES = 400 if LONG else 40  # about so many of each run
RUNS = [(shape, how) for shape in ("solver", "kinds", "in place", "many", "tree") for how in ("background", "inline")]


@pytest.mark.parametrize(("shape", "how"), RUNS if LONG else RUNS[:4])
def test_any_state_that_a_power_cut_could_leave_of_a_real_run_goes_on(tmp_path: Path, shape: str, how: str) -> None:
    """G1, G2, G3, G4, on what the kernel was really asked to do."""
    replay = replayed(tmp_path, shape, how)
    program = Program(replay.disk, shape, "now", STEPS)
    program.durable_at = replay.durable_at
    changing = [*replay.disk.record.changing, len(replay.disk.record.ops)]
    singles = 2 if LONG else 0
    every = max(len(changing) * (4 + 6 * singles) // STATES, 1)
    promises = {at for at, _ in replay.durable_at}  # and what comes right after one
    points = [op for n, op in enumerate(changing) if n % every == every // 2 or promises & {op, changing[n - 1] + 1}]
    points = sorted({*points, *promises, changing[-1]})
    # A hundred small files of one kind need not be dropped each by itself to know what becomes of one.
    most = 4 if shape == "many" and not ALL else 10_000
    count = cuts(
        tmp_path, program, Points(points), of="system calls of the program and the library", seed=6, singles=singles,
        most=most,
    )  # fmt: skip
    tally.count("system calls played into the model", f"{shape}, {how}", len(changing))
    print(f"{shape}, {how}: {len(changing)} operations, {count} states")
    assert count > STATES / 3
