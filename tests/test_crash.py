"""G1, G2, G2k, G3, G4 against death and power loss at every single operation, on the model of `faultdisk`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tally
from faultdisk import FaultDisk, Image, images
from lives import ALL, LONG
from program import SAVERS, SHAPES, Program, Violation, new_directory, restart, restart_image

CASES = [(shape, saver, initial) for shape in SHAPES for saver in SAVERS for initial in (False, True)]
if not LONG:  # the shape with every kind of file is sampled
    CASES = [case for case in CASES if case[0] == "plain" or case[1:] in (("now", False), ("late", True))]
each_case = pytest.mark.parametrize(("shape", "saver", "initial"), CASES)
STEPS = 3


def sample(points: list[int], shape: str, every: int) -> list[int]:
    """All points, or a part of them: less of the shape with many files. The end is always one."""
    every = 1 if ALL or (LONG and shape != "kinds") else every if LONG else 2 * every if shape == "kinds" else 4
    return points[(len(points) - 1) % every :: every]


def recorded(directory: Path, shape: str, saver: str, initial: bool) -> Program:
    """An undisturbed life, with every operation it made."""
    program = Program(FaultDisk(new_directory(directory, shape, initial=initial)), shape, saver, STEPS, initial)
    program.run()
    assert program.finished, program.errors
    return program


def killed(directory: Path, like: Program, at: int) -> Program:
    """The same life, dead at operation `at`."""
    disk = FaultDisk(new_directory(directory, like.shape, initial=like.initial), kill_at=at)
    program = Program(disk, like.shape, like.saver, STEPS, like.initial)
    program.run()
    return program


def nothing_lost(before: Program, after: Program) -> None:
    """G2k, G4: what `hide` had returned for is what comes back, however fresh."""
    least = STEPS if before.finished else before.handed
    if (after.restored if after.restored is not None else -1) < least:
        raise Violation(f"hide had returned for step {before.handed}, restored was {after.restored}")


@each_case
def test_killed_at_any_operation_it_goes_on_from_the_last_hide(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G1, G2k, G3, G4: die before, and in the middle of, each operation that changes something; start again."""
    whole = recorded(tmp_path / "whole", shape, saver, initial)
    for at in sample(whole.disk.record.changing, shape, 2):
        directory = tmp_path / f"killed-{at}"
        first = killed(directory, whole, at)
        try:
            assert first.disk.dead and not first.errors
            nothing_lost(first, restart(FaultDisk(directory, inodes=first.disk.inodes), first))
        except Violation as violation:
            pytest.fail(f"killed at {at} ({whole.disk.record.ops[at]}): {violation}")
        tally.count("deaths in the model", "all kinds of files in one program")
        shutil.rmtree(directory)


@pytest.mark.parametrize(("shape", "exchanges"), [*((shape, True) for shape in SHAPES), ("plain", False)])
@pytest.mark.parametrize("initial", [False, True])
def test_killed_again_while_it_starts_again_it_still_goes_on(
    tmp_path: Path, shape: str, exchanges: bool, initial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G3: die in a save, then at each operation of the start after it, until the first hide; then start in peace. Also
    where two files cannot exchange their names."""
    monkeypatch.setattr(FaultDisk, "exchanges", exchanges)
    whole = recorded(tmp_path / "whole", shape, "now", initial)
    changing = whole.disk.record.changing
    for at in changing[:: max(len(changing) // (23 if ALL else 7 if LONG else 5), 1)]:
        first = killed(tmp_path / "count", whole, at)
        second = Program(FaultDisk(tmp_path / "count", inodes=first.disk.inodes), shape, "now", STEPS, initial)
        second.run()
        shutil.rmtree(tmp_path / "count")
        starts = second.disk.record.changing[: 12 + len(second.disk.record.changing) // 3]
        for again in sample(starts, shape, 2):
            directory = tmp_path / f"killed-{at}-{again}"
            first = killed(directory, whole, at)
            middle = Program(
                FaultDisk(directory, kill_at=again, inodes=first.disk.inodes), shape, "now", STEPS, initial
            )
            middle.run()
            try:
                last = restart(FaultDisk(directory, inodes=middle.disk.inodes), middle)
                nothing_lost(first, last)
                nothing_lost(middle, last)
                tally.count("deaths in the model", "two in a row")
            except Violation as violation:
                op = middle.disk.record.ops[again]
                pytest.fail(f"killed at {at} ({whole.disk.record.ops[at]}), then at {again} ({op}): {violation}")
            shutil.rmtree(directory)


def promised(program: Program, ops: int) -> int:
    """The step that must survive a power cut before operation `ops`."""
    return max([step for at, step in program.durable_at if at <= ops], default=-1)


def survives(image: Image, program: Program, kill_at: int = -1, *, of: str = "operations of the library") -> None:
    try:
        after = restart_image(image, program, kill_at=kill_at)
        restored = after.restored if after.restored is not None else -1
        if restored < promised(program, image.ops):
            raise Violation(f"step {promised(program, image.ops)} was promised, restored was {restored}")
    except Violation as violation:
        op = [*program.disk.record.ops, "the end"][image.ops]
        pytest.fail(f"{image} ({op}){f', then killed at {kill_at}' * (kill_at >= 0)}: {violation}")
    else:
        tally.count("states of the model", of)
    finally:
        shutil.rmtree(image.directory)


@each_case
def test_power_cut_at_any_operation_leaves_one_whole_step(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G1, G2, G3, G4: cut the power before each operation, in all the states that the model of the disk allows."""
    program = recorded(tmp_path / "whole", shape, saver, initial)
    points = sample([*program.disk.record.changing, len(program.disk.record.ops)], shape, 5)
    count = 0
    for image in images(
        program.disk.record,
        str(tmp_path),
        seed=1,
        singles=4 if ALL else 1,
        at=points,
        promised=lambda ops: promised(program, ops),
    ):
        survives(image, program)
        count += 1
    assert count > 2 * len(points), "the model makes hardly any states: it tests nothing"


@pytest.mark.parametrize("shape", SHAPES)
def test_power_cut_then_killed_while_it_starts_again(tmp_path: Path, shape: str) -> None:
    """G3: both of these again during restore."""
    program = recorded(tmp_path / "whole", shape, "now", False)
    points = sample(program.disk.record.changing, shape, 5)
    for n, image in enumerate(images(program.disk.record, str(tmp_path), seed=2, singles=1 if ALL else 0, at=points)):
        survives(image, program, kill_at=(7 * n) % 160)


def test_power_cut_after_initial_files_were_put_back(tmp_path: Path) -> None:
    """G3: a cut in the first hide, a restart that puts the initial files back, a first hide again, and another cut."""
    whole = recorded(tmp_path / "whole", "plain", "now", True)
    ops = whole.disk.record.ops
    moved = max(at for at, op in enumerate(ops) if op.startswith("rename") and "set-00000001/files" in op)
    for first in images(whole.disk.record, str(tmp_path), seed=3, singles=0, at=[moved + 1]):
        disk = FaultDisk(first.directory, boot="second", inodes=first.inodes)
        second = Program(disk, "plain", "now", STEPS, True)
        second.run()
        assert second.finished, second.errors
        early = [at for at in disk.record.changing if at < second.durable_at[0][0]]
        into = tmp_path / f"again-{len(list(tmp_path.iterdir()))}"
        into.mkdir()
        for image in images(disk.record, str(into), seed=4, singles=2, at=early):
            survives(image, second)
