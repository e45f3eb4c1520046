"""G2, durable: the restored set is at least as new as the newest one for which `hide(wait=True)` or `wait()` had
returned.

Here on the model of `faultdisk`, with each operation of the library; tests/proof/powercut cuts the power for real. What
comes back must be one whole step (G1), and the result after `finish` (G4).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from testbed import program
from testbed.faultdisk import FaultDisk, images, on
from testbed.program import new_directory, plain
from testbed.sessions import ROOT, Start, sets, write
from testbed.sweep import (
    ALL,
    IN_A_ROW,
    LIBRARY,
    Points,
    cuts,
    each_case,
    kills,
    part,
    sample,
    some_of,
    undisturbed,
)

from safepoint import Session
from safepoint.restoring.newer import drop_newer
from safepoint.root import Root


@each_case
def test_power_cut_at_any_operation_leaves_one_whole_step(
    tmp_path: Path, shape: str, saver: str, initial: bool
) -> None:
    """G1, G2, G3, G4: cut the power before each operation, in all the states that the model of the disk allows."""
    whole = undisturbed(tmp_path / "whole", shape, saver, initial)
    points = part([*whole.disk.record.changing, len(whole.disk.record.ops)], shape, 5)
    count = cuts(tmp_path, whole, points, of=LIBRARY, seed=1, singles=4 if ALL else 1)
    assert count > 2 * len(points), "the model makes hardly any states: it tests nothing"


@pytest.mark.parametrize(("shape", "initial"), [("one", False), ("deep", True)])
def test_power_cut_shapes(tmp_path: Path, shape: str, initial: bool) -> None:
    """`one` keeps a single set: pruning early loses it. `deep`: directories whose names lie in new directories."""
    whole = undisturbed(tmp_path / "whole", shape, "now", initial)
    points = sample([*whole.disk.record.changing, len(whole.disk.record.ops)], 16)
    assert cuts(tmp_path, whole, points, of=IN_A_ROW)


def test_sets_passed_over_cannot_come_back_after_a_power_cut(tmp_path: Path) -> None:
    """drop_newer: on return no power cut brings one back."""
    directory = new_directory(tmp_path / "work", "plain")
    disk = FaultDisk(directory)
    session = Session(directory, disk=disk, background=False)
    session.restore()
    for step in range(3):
        program.write(disk, plain(step))
        session.hide(step)
    disk.end()
    after = FaultDisk(directory, inodes=disk.inodes)
    root = on(Root(os.path.realpath(directory)), after)
    assert root.numbers("set")[:2] == [2, 3]
    drop_newer(root, session._home.manifest, 2, session._home.manifest.patterns, root.numbers("set"))
    seen = 0
    for image in images(after.record, str(tmp_path), at=[len(after.record.ops)], singles=3):
        there = on(Root(image.directory), FaultDisk(image.directory)).numbers("set")
        assert max(there) == 2, (str(image), there)
        seen += 1
    assert seen


def test_the_first_set_is_durable_on_return_and_wait_makes_others_so(start: Start, work: Path) -> None:
    """G2. That durable means fsynced in the right order is shown by the tests above."""
    session = start("u.dat\n", keep=9)
    write(work, u_dat="0")
    assert (work / ROOT / "baseline.json").exists()
    session.hide(0)
    assert sets(work) == [1]
    assert not (work / ROOT / "baseline.json").exists()  # it speaks of the time before the first set
    write(work, u_dat="1")
    session.hide(1)
    session.wait()
    assert sets(work) == [1, 2]
    write(work, u_dat="2")
    session.hide(2, wait=True)
    assert sets(work) == [1, 2, 3]
    session.wait()
    session.close()
    session = start(background=False)
    session.hide(2)
    assert sets(work)[-1] == 4


@pytest.mark.parametrize("number", some_of([1, 2], 1))
def test_power_cut_and_killed_at_each_operation_of_one_save(tmp_path: Path, number: int) -> None:
    """G1, G2, G2k: of the first two of a program whose `hide` waits nothing is left to the sample."""
    whole = undisturbed(tmp_path / "whole", "plain", "wait", True)
    begin, end = (
        next(at for at, op in enumerate(whole.disk.record.ops) if f"set-{n:08d}" in op) for n in (number, number + 1)
    )
    save = [at for at in whole.disk.record.changing if begin <= at <= end]
    kills(tmp_path, whole, Points(save), of=LIBRARY)
    cuts(tmp_path, whole, Points(save[len(save) // 3 :]), of=LIBRARY, singles=0)
