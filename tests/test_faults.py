"""G7: every single operation made to fail; the error says which file and why, and what was safe stays safe."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from faultdisk import FaultDisk, images
from program import SHAPES, Program, Violation, new_directory, restart, restart_image

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
STEPS = 3


def count_operations(directory: Path, shape: str, saver: str, initial: bool = False) -> Program:
    program = Program(FaultDisk(new_directory(directory, shape, initial=initial)), shape, saver, STEPS, initial)
    program.run()
    assert program.finished
    return program


def fail(directory: Path, like: Program, at: int, code: int, **how: bool) -> Program:
    from_then_on = how.pop("from_then_on", False)
    new_directory(directory, like.shape, initial=like.initial)
    disk = FaultDisk(directory, fail_at=at, error=code, from_then_on=from_then_on)
    program = Program(disk, like.shape, like.saver, STEPS, like.initial, **how)
    program.run()
    return program


def error_is_clear(program: Program, code: int) -> None:
    """It names the cause and the file, or it was no error for the user: everything was saved all the same."""
    if program.errors:
        text = str(program.errors[0])
        name = os.path.basename(program.disk.failed.split(" ", 1)[1])
        if os.strerror(code) not in text:
            raise Violation(f"the error does not say why: {text}")
        if name.removesuffix(".new") not in text and name != ".":
            raise Violation(f"the error does not name {name}: {text}")
    elif not program.finished and not own_write(program):
        raise Violation("no error, and not at the end")


def own_write(program: Program) -> bool:
    """Whether what failed was the program writing its own files, which is its own affair."""
    operation, path = program.disk.failed.split(" ", 1)
    return operation in ("write", "create", "truncate", "mkdir", "append") and not path.startswith(".safepoint.d")


def removing_old_sets(program: Program) -> bool:
    """Whether what failed was only the fsync before superfluous sets are deleted, of which the log tells."""
    return "/gone-" in program.disk.record.ops[program.disk.fail_at - 1]


def after_a_failed_fsync_nothing_was_committed(program: Program, after: Program) -> None:
    if not program.disk.failed.startswith("sync") or (removing_old_sets(program) and program.finished):
        return
    if not program.errors:
        raise Violation("fsync failed, and nobody was told")
    failed = re.match(r"set \d+ \(step (\d+)\) not ", str(program.errors[0]))
    if failed and after.restored == int(failed[1]) and not program.initial:
        raise Violation(f"the set of step {failed[1]}, whose fsync failed, was restored")


def previous_set_stays(program: Program, directory: Path) -> Program:
    after = restart(FaultDisk(directory, inodes=program.disk.inodes), program)
    restored = after.restored if after.restored is not None else -1
    if restored < program.durable:
        raise Violation(f"step {program.durable} was safe, restored was {restored}")
    return after


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("saver", ["now", "wait"])
@pytest.mark.parametrize(("shape", "initial"), [("plain", False), ("plain", True), ("kinds", False)])
def test_each_operation_fails_once(tmp_path: Path, shape: str, saver: str, initial: bool, name: str) -> None:
    """G7: an error that names file and cause, or true success; afterwards the previous set, or a newer one, restores.
    No commit follows an fsync that failed."""
    whole = count_operations(tmp_path / "whole", shape, saver, initial)
    for at in range(0, len(whole.disk.record.ops), 1 if shape == "plain" else 3):
        directory = tmp_path / f"failed-{at}"
        program = fail(directory, whole, at, ERRORS[name])
        try:
            error_is_clear(program, ERRORS[name])
            after_a_failed_fsync_nothing_was_committed(program, previous_set_stays(program, directory))
        except Violation as violation:
            pytest.fail(f"{name} at {at} ({program.disk.failed}), error {program.errors}: {violation}")
        shutil.rmtree(directory)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("saver", ["now", "late", "wait"])
def test_a_program_that_catches_the_error_goes_on_and_finishes(tmp_path: Path, shape: str, saver: str) -> None:
    """G7: after a failed save the next `hide` starts afresh; nothing of the failure is left at the end."""
    whole = count_operations(tmp_path / "whole", shape, saver)
    for at in range(0, len(whole.disk.record.ops), 1 if shape == "plain" else 5):
        directory = tmp_path / f"failed-{at}"
        program = fail(directory, whole, at, errno.ENOSPC, go_on=True)
        try:
            if program.handed >= 0 and not own_write(program) and not program.finished:
                raise Violation("it did not get to the end")
            previous_set_stays(program, directory)
        except Violation as violation:
            pytest.fail(f"failed at {at} ({program.disk.failed}), errors {program.errors}: {violation}")
        shutil.rmtree(directory)


@pytest.mark.parametrize("saver", ["now", "wait"])
@pytest.mark.parametrize(("shape", "initial"), [("plain", False), ("plain", True), ("kinds", False)])
def test_a_disk_that_stays_full_costs_nothing_that_was_safe(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G7: from some operation on nothing can be written, not even to put files back; then there is room again."""
    whole = count_operations(tmp_path / "whole", shape, saver, initial)
    for at in whole.disk.record.changing[:: 1 if shape == "plain" else 3]:
        directory = tmp_path / f"full-{at}"
        program = fail(directory, whole, at, errno.ENOSPC, from_then_on=True)
        try:
            previous_set_stays(program, directory)
        except Violation as violation:
            pytest.fail(f"full from {at} ({program.disk.failed}), errors {program.errors}: {violation}")
        shutil.rmtree(directory)


def power_cuts_after_a_failure(where: Path, every: int) -> None:
    """The commit of a `hide` that waits fails at its very end, so its files go back; at any moment of that, and for
    some time, the power goes too. A set that was called failed may come back, whole, and never without its files."""
    whole = count_operations(where / "whole", "plain", "wait")
    ops = whole.disk.record.ops
    (commit,) = (at for at, op in enumerate(ops) if op.startswith("rename") and op.endswith("set-00000002/record.json"))
    count = 0
    for at in range(commit + 1, commit + 6):  # the fsyncs of the commit, and the look whether the disk is still there
        program = fail(where / f"failed-{at}", whole, at, errno.EIO)
        if not program.errors:
            continue
        later = [point for point in program.disk.record.changing if point > at]
        for image in images(program.disk.record, str(where), seed=at, singles=1, at=later[::every]):
            try:
                restart_image(image, program)
            except Violation as violation:
                raise Violation(f"{program.disk.failed} failed, then a {image}: {violation}") from violation
            count += 1
            shutil.rmtree(image.directory)
    assert count > 100 // every, "hardly anything was tried"


def test_power_cut_while_files_go_back_after_a_commit_that_failed(tmp_path: Path) -> None:
    power_cuts_after_a_failure(tmp_path, 1)
