"""`safepoint check`, of what the delete callbacks of attributes free: inside of MPI_Finalize and of other frees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import mpiexec
from testbed.foreign import MPICH, SOURCES, Mpi, each_mpi, environment, needs, program

from safepoint.check import follow, language

KEEPS = """from mpi4py import MPI
def delete(comm, key, value):
    twin, row = value
    row.Free()
    twin.Barrier()
    twin.Free()
key = MPI.Comm.Create_keyval(delete_fn=delete)
def keep(comm):
    comm.Set_attr(key, (comm.Dup(), MPI.DOUBLE.Create_contiguous(3)))
keep(MPI.COMM_WORLD)
keep(MPI.COMM_SELF)
own = MPI.COMM_WORLD.Dup()
keep(own)
own.Free()
lost = MPI.COMM_WORLD.Dup()
MPI.Comm.Free_keyval(key)
MPI.Finalize()
"""


def found(work: Path, *command: object) -> set[tuple[str, str]]:
    """Template and place of the first call, as the report has them; afterwards the trace says the same."""
    words = [sys.executable, "-m", "safepoint", "check", "--json", "-o", "run.trace", "--", *map(str, command)]
    more = environment(OMPI_MCA_osc="pt2pt")  # Open MPI 4.1 makes no window on one node by itself
    done = subprocess.run(words, cwd=work, env=more, capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert done.returncode == 1, done.stderr
    first = {(one["template"], f"{Path(place['calls'][0]['file']).name}:{place['calls'][0]['line']}")
             for one in report["situations"] for place in one["places"]}  # fmt: skip
    assert {tuple(one.split()) for one in afterwards(work / "run.trace", "standard")} == first
    return first


def afterwards(trace: Path, *templates: str) -> list[str]:
    """The template and the place of the first call of each situation."""
    follower, situations, _ = follow.afterwards(trace, language.load(templates))
    calls = [(one.template, one.cells[0].call) for one in situations]
    sites = [(name, follower.site(call)) for name, call in calls if call is not None]
    return [f"{name} {Path(site.file).name}:{site.line}" for name, site in sites]


def line(source: str, text: str) -> str:
    lines = (SOURCES / source).read_text().splitlines()
    return f"{source}:{next(at for at, line in enumerate(lines, 1) if text in line)}"


@each_mpi
def test_what_callbacks_free_is_freed_and_the_rest_is_told(mpi: Mpi, tmp_path: Path) -> None:
    """Communicators, types, a group, a request and a window, of the world, of other communicators, of a type and of a
    window; freed with them, replaced, and deleted. Two things are freed by nobody."""
    exe = program("check_attributes.c", mpi, "-g")
    assert found(tmp_path, *mpi.started(2, exe)) == {
        ("comm-not-freed", line("check_attributes.c", "&lost)")),
        ("type-not-freed", line("check_attributes.c", "MPI_Type_contiguous(4")),
    }


@pytest.mark.proof
@needs(MPICH.fc, MPICH.mpiexec)
def test_a_callback_in_fortran_has_its_own_lines(tmp_path: Path) -> None:
    """It is called inside of a Fortran function, whose line another call would be given else."""
    exe = program("check_attributes.f90", MPICH, "-g", "-w")
    assert found(tmp_path, *MPICH.started(1, exe)) == {("group-not-freed", line("check_attributes.f90", "all, code"))}
    (tmp_path / "freed.tpl").write_text("Name=A type is freed\n1block\nN=1\n2block\nF1=p1:Type_free\n")
    place = line("check_attributes.f90", "call MPI_Type_free")
    assert afterwards(tmp_path / "run.trace", str(tmp_path / "freed.tpl")) == [f"freed {place}"]


@pytest.mark.proof
def test_in_python_too(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text(KEEPS)
    assert found(tmp_path, mpiexec(), "-n", 2, sys.executable, "keeps.py") == {("comm-not-freed", "keeps.py:15")}
