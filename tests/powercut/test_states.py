"""Weak order: every system call of real runs, played into the model of `faultdisk`, and the program started again in
the states that POSIX alone allows a power cut to leave: each prefix; everything; only what an fsync guarantees; each
unsynced operation dropped alone and kept alone; torn last writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tally
from faultdisk import FaultDisk, images
from lives import ALL, LONG, Running, directory_for_lives
from program import Program, listed
from syscalls import STRACE, Replay
from test_crash import promised, survives
from tracing import tracer, why_not

pytestmark = pytest.mark.skipif(why_not is not None, reason=str(why_not))
STEPS = 3
STATES = 400 if LONG else 40  # about so many of each run
RUNS = [(shape, how) for shape in ("solver", "kinds", "in place", "many", "tree") for how in ("background", "inline")]


def replayed(tmp_path: Path, shape: str, *how: str) -> Replay:
    """An undisturbed life of the solver, traced, and played into the model; nothing of it may be missing there."""
    trace, copy = tmp_path / "trace", tmp_path / "copy"
    with directory_for_lives(tmp_path, shape) as directory:
        shutil.copytree(directory, copy)
        replay = Replay(FaultDisk(copy))
        with (
            Running(directory, STEPS, shape, *how, "gate-start") as program,
            tracer(program, "start", *STRACE, "-o", str(trace)),
        ):
            assert program.end().last("finished") == STEPS
        replay.play(trace, str(directory))
        assert listed(copy) == listed(directory)
        assert below(copy / ".safepoint.d") == below(directory / ".safepoint.d")
    promised = [step for _, step in replay.durable_at]
    assert promised == sorted(promised) and len({*promised}) >= STEPS and promised[-1] == STEPS and replay.finished
    return replay


def below(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")
    }


@pytest.mark.parametrize(("shape", "how"), RUNS if LONG else RUNS[:4])
def test_any_state_that_a_power_cut_could_leave_of_a_real_run_goes_on(tmp_path: Path, shape: str, how: str) -> None:
    """G1, G2, G3, G4, on what the kernel was really asked to do."""
    replay = replayed(tmp_path, shape, how)
    program = Program(replay.disk, shape, "now", STEPS)
    program.durable_at = replay.durable_at
    changing = [*replay.disk.record.changing, len(replay.disk.record.ops)]
    singles = 2 if LONG else 0
    every = max(len(changing) * (4 + 6 * singles) // STATES, 1)
    count = 0
    promises = {at for at, _ in replay.durable_at}  # and what comes right after one
    points = [op for n, op in enumerate(changing) if n % every == every // 2 or promises & {op, changing[n - 1] + 1}]
    points = sorted({*points, *promises, changing[-1]})
    # A hundred small files of one kind need not be dropped each by itself to know what becomes of one.
    most = 4 if shape == "many" and not ALL else 10_000
    how_many = {
        "seed": 6, "singles": singles, "most": most, "at": points, "promised": lambda ops: promised(program, ops),
    }  # fmt: skip
    for image in images(replay.disk.record, str(tmp_path), **how_many):
        survives(image, program, of="system calls of the program and the library")
        count += 1
    tally.count("system calls played into the model", f"{shape}, {how}", len(changing))
    print(f"{shape}, {how}: {len(changing)} operations, {count} states")
    assert count > STATES / 3
