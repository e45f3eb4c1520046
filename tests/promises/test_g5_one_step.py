"""G5, one step: with ranks that coordinate, every rank restores the same step, whichever ranks died when.

Ranks need an MPI. What must hold on many of them is in tests/testbed/mpi_cases.py, which tests/proof/test_mpi.py runs
with the real mpiexec. Here is what a single process can show.
"""

from __future__ import annotations

from pathlib import Path

from testbed.faultdisk import FaultDisk
from testbed.program import new_directory, plain, write

from safepoint import Session
from safepoint.disk import Disk
from safepoint.disk.files import exists
from safepoint.retention import Keep
from safepoint.saving import prune


def test_prune_keeps_what_not_every_rank_has_beyond(tmp_path: Path) -> None:
    """Rule 2 of save: a set goes only if a newer one is committed on every rank."""
    directory = new_directory(tmp_path / "work", "plain")
    disk = FaultDisk(directory)
    session = Session(directory, disk=disk, background=False, keep=9)
    session.restore()
    for step in range(5):
        write(disk, plain(step))
        session.hide(step)
    root = session._root
    assert session._committed is not None
    prune.prune(root, session._committed, keep=Keep(2), agreed=3)
    assert [n for n in root.numbers("set") if exists(Disk(), root.record(n))] == [3, 4, 5]
