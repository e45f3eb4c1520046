"""G7, when one operation of a life has failed: what its error must say, and what must be there at the next start."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from testbed.faultdisk import FaultDisk, images
from testbed.program import Program, Violation, restart, restart_image
from testbed.sweep import Points, failed, kept, undisturbed


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
    kept(program.durable, after.restored)
    return after


def power_cuts_after_a_failure(where: Path, every: int) -> None:
    """The commit of a `hide` that waits fails at its very end, so its files go back; at any moment of that, and for
    some time, the power goes too. A set that was called failed may come back, whole, and never without its files."""
    whole = undisturbed(where / "whole", "plain", "wait")
    ops = whole.disk.record.ops
    (commit,) = (at for at, op in enumerate(ops) if op.startswith("rename") and op.endswith("set-00000002/record.json"))
    count = 0
    for at in range(commit + 1, commit + 6):  # the fsyncs of the commit, and the look whether the disk is still there
        program = failed(where / f"failed-{at}", whole, at, errno.EIO)
        if not program.errors:
            continue
        later = [point for point in program.disk.record.changing if point > at]
        for image in images(program.disk.record, str(where), seed=at, singles=1, at=Points(later, every)):
            try:
                restart_image(image, program)
            except Violation as violation:
                raise Violation(f"{program.disk.failed} failed, then a {image}: {violation}") from violation
            count += 1
            shutil.rmtree(image.directory)
    assert count > 100 // every, "hardly anything was tried"
