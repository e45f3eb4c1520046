"""Real programs that are traced and judged: a solver with a halo exchange, LAMMPS, and PETSc from Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import mpiexec

from safepoint.errors import UsageError
from safepoint.trace import pmpi

pytest.importorskip("scipy")
HERE = Path(__file__).parents[2]
PETSC = next(iter(sorted(Path("/usr/lib/petscdir").glob("*/*-real/lib/python3/dist-packages"))), None)
CONJUGATE = """
from petsc4py import PETSc
from mpi4py import MPI
size = 200
matrix = PETSc.Mat().createAIJ([size, size], nnz=3, comm=PETSc.COMM_WORLD)
first, last = matrix.getOwnershipRange()
for row in range(first, last):
    for column, value in ((row - 1, -1), (row, 2), (row + 1, -1)):
        if 0 <= column < size:
            matrix[row, column] = value
matrix.assemble()
x, b = matrix.createVecs()
b.set(1.0)
solver = PETSc.KSP().create(PETSc.COMM_WORLD)
solver.setOperators(matrix)
solver.setType("cg")
solver.getPC().setType("jacobi")
for step in range(3):
    solver.solve(b, x)
    MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("iterations", solver.getIterationNumber())
"""


def traced(work: Path, *words: str, python: str = sys.executable, **more: str) -> str:
    command = [python, "-m", "safepoint", "trace", *words]
    done = subprocess.run(command, cwd=work, env={**os.environ, **more}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judged(work: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "safepoint", "places", "run.trace", "--json"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return dict(json.loads(done.stdout))


def test_a_solver_with_a_halo_exchange_is_legal_at_each_hide(tmp_path: Path) -> None:
    for name in ("landscape_mpi.py", "landscape.py"):
        shutil.copy(HERE / "examples" / name, tmp_path)
    traced(tmp_path, "--", mpiexec(), "-n", "4", sys.executable, "landscape_mpi.py", "--steps", "200")
    found = judged(tmp_path)
    hides = [line for line in found["lines"] if line["what"] == "hide"]  # type: ignore[attr-defined]
    assert found["good"] and found["ranks"] == 4 and not found["blockers"] and not found["doubts"]
    assert [(line["visits"], line["legal"], line["holds"]) for line in hides] == [(5, 5, "every run")]


def test_lammps_is_traced_and_has_legal_places_in_every_run(tmp_path: Path) -> None:
    """A program in C++, which exchanges atoms by non-blocking receives: between two exchanges nothing is under way."""
    lmp = Path(sys.executable).with_name("lmp")
    if not lmp.exists():
        pytest.skip("needs LAMMPS: the package lammps, on x86-64")
    try:
        pmpi.mpicc_for(sys.executable)
    except UsageError as error:
        pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    shutil.copy(HERE / "examples/lammps/in.melt", tmp_path)
    said = traced(
        tmp_path, "--with", "c", "--", mpiexec(), "-n", "2", str(lmp), "-in", "in.melt", "-var", "last", "100"
    )
    found = judged(tmp_path)
    assert "2 ranks" in said and found["good"] and found["actions"] > 1000  # type: ignore[operator]
    assert found["places"] > 100 and not [remark for remark in found["remarks"] if "never" in remark]  # type: ignore
    blocked = [line for line in found["lines"] if line["legal"] == 0 and line["call"] == "Irecv"]  # type: ignore
    assert any(line["what"] == "after" for line in blocked)  # its request is open there


def test_petsc_is_traced_in_its_c_library_with_the_lines_of_python(tmp_path: Path) -> None:
    """Debian's, with its own Open MPI: what its Python sees is an mpi4py that is too old, and the library notes all."""
    if PETSC is None or shutil.which("mpiexec.openmpi") is None or shutil.which("mpicc.openmpi") is None:
        pytest.skip("needs petsc4py: Debian's python3-petsc4py-real, openmpi-bin and libopenmpi-dev")
    (tmp_path / "solver.py").write_text(CONJUGATE)
    said = traced(
        tmp_path, "--with", "c", "--mpicc", "mpicc.openmpi", "--", "mpiexec.openmpi", "--oversubscribe", "-n", "2",
        "/usr/bin/python3", "solver.py", PYTHONPATH=f"{PETSC}:/usr/lib/python3/dist-packages",
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    found = judged(tmp_path)
    assert "iterations" in said and found["good"] and found["actions"] > 1000, said  # type: ignore[operator]
    assert found["places"] > 100  # type: ignore[operator]
