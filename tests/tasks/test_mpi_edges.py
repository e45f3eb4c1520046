"""Values go from rank to rank, with the real mpiexec: the cases of `task_edges.py`."""

from __future__ import annotations

import subprocess

import pytest
from testbed.paths import HOUSE, TESTBED
from testbed.sweep import LONG
from testbed.traced import command, environment, libraries

pytestmark = pytest.mark.xdist_group("mpi")


def edges(library: str, *words: str) -> str:
    done = subprocess.run(
        command(3, "-W", "error", str(TESTBED / "task_edges.py"), *words, library=library),
        env=environment(library, None) | {"PYTHONPATH": str(HOUSE)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@libraries
def test_values_go_from_rank_to_rank_whole_and_checked(library: str) -> None:
    """T3, T4: of any length, late, changed since, not there; and no message is left at the end."""
    assert edges(library).count("ok ") == 7


@pytest.mark.skipif(not LONG, reason="an edge of 3 GB, twice in memory: SAFEPOINT_CRASH=long")
def test_an_edge_above_two_gigabytes_arrives() -> None:
    """Above what an `int` of an older MPI counts."""
    assert edges("mpich", "long").count("ok ") == 1
