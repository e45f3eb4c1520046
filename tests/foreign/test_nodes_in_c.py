"""Programs in C and Fortran whose files are on disks of nodes: the setting `local`, and `safepoint_directory`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.cluster import Cluster, cluster
from testbed.foreign import MPICH, environment, needs, program

MANIFEST = "z-{rank}.dat\nlocal = $DISK\ndomain = $DOMAIN\nremote = ../place\n"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, MANIFEST) as found:
        yield found


@pytest.mark.proof
@pytest.mark.skipif(not MPICH.there, reason="needs Debian's MPICH")
def test_a_program_in_c_goes_on_with_a_spare_for_a_lost_node(nodes: Cluster) -> None:
    (nodes.start / ".safepoint").write_text(MANIFEST + "partner = on\n")
    built = program("noded.c", MPICH)

    def run(where: str, steps: int) -> str:
        words: list[str] = []
        for node in where:
            words += [":"] * bool(words) + ["-n", "1", "-env", "DISK", str(nodes.disk(node)), "-env", "DOMAIN", node]
            words += [str(built), str(nodes.start), str(steps)]
        done = subprocess.run(
            [MPICH.mpiexec, *words], capture_output=True, text=True, timeout=300, env=environment()
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    assert run("ab", 5) == "restored -1\n"
    assert (nodes.work("a") / "z-0.dat").exists() is False  # it was hidden
    nodes.end()  # until the copies of the last set are there
    assert run("ba", 8) == "restored 5\n"
    nodes.end()
    nodes.lose("a")
    assert run("bc", 9) in (f"restored {step}\n" for step in (5, 6, 7, 8))


@needs("gfortran")
def test_a_program_in_fortran_writes_on_the_disk_of_its_node(nodes: Cluster) -> None:
    built = program("noded.f90")
    for had in (-1, 0, 1):
        done = subprocess.run(
            [built, nodes.start], capture_output=True, text=True, timeout=300,
            env=environment(DISK=str(nodes.disk("a")), DOMAIN="a"),
        )  # fmt: skip
        assert done.returncode == 0 and done.stdout == f"restored {had}\n", done
    assert not (nodes.start / "z-0.dat").exists()
