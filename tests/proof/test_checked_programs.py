"""Real programs that are right are told nothing of; the two templates of 2014, as they were printed, find theirs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launcher import mpiexec
from testbed.checking import NOT_FREED, REUSED, report, safepoint
from testbed.foreign import Mpi, each_mpi
from testbed.paths import EXAMPLES

from safepoint.errors import UsageError
from safepoint.trace import pmpi

IN_C = """#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, one, two, out[2] = {1, 2};
    MPI_Request lost, other;
    MPI_Datatype pair;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Irecv(&one, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, &lost);
    if (argc > 1)
        other = lost;
    MPI_Irecv(&two, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, argc > 1 ? &other : &lost);
    MPI_Send(&out[0], 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD);
    MPI_Send(&out[1], 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD);
    MPI_Wait(&lost, MPI_STATUS_IGNORE);
    if (argc > 1) {
        MPI_Wait(&other, MPI_STATUS_IGNORE);
        MPI_Type_free(&pair);
    }
    MPI_Finalize();
    return 0;
}
"""
IN_FORTRAN = """program reused
    use mpi
    implicit none
    integer :: rank, error, pair, lost, other
    integer, asynchronous :: got(2), out(2)
    out = [1, 2]
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Type_contiguous(2, MPI_INTEGER, pair, error)
    call MPI_Irecv(got(1), 1, MPI_INTEGER, 1 - rank, 7, MPI_COMM_WORLD, lost, error)
    if (command_argument_count() > 0) then
        call MPI_Irecv(got(2), 1, MPI_INTEGER, 1 - rank, 7, MPI_COMM_WORLD, other, error)
    else
        call MPI_Irecv(got(2), 1, MPI_INTEGER, 1 - rank, 7, MPI_COMM_WORLD, lost, error)
    end if
    call MPI_Send(out(1), 1, MPI_INTEGER, 1 - rank, 7, MPI_COMM_WORLD, error)
    call MPI_Send(out(2), 1, MPI_INTEGER, 1 - rank, 7, MPI_COMM_WORLD, error)
    call MPI_Wait(lost, MPI_STATUS_IGNORE, error)
    if (command_argument_count() > 0) then
        call MPI_Wait(other, MPI_STATUS_IGNORE, error)
        call MPI_Type_free(pair, error)
    end if
    call MPI_Finalize(error)
end program
"""


def checked(work: Path, templates: tuple[str, ...], command: list[str], *options: str) -> dict[str, Any]:
    """The report."""
    named = [word for one in templates for word in ("-t", one)]
    done = safepoint(work, "check", "--json", "--hang", 60, *options, *named, "--", *command)
    found = report(done.stdout)
    assert found["code"] == done.returncode
    return found


def lines(report: dict[str, Any]) -> dict[str, list[int]]:
    """By template: the lines of its calls, in the first place."""
    return {
        one["template"]: [call["line"] for call in one["places"][0]["calls"] if "line" in call]
        for one in report["situations"]
    }


@each_mpi
@pytest.mark.parametrize("fortran", [False, True], ids=["c", "fortran"])
def test_both_templates_of_2014_as_printed_find_their_mistakes(mpi: Mpi, fortran: bool, tmp_path: Path) -> None:
    (tmp_path / "request-reused.tpl").write_text(REUSED)
    (tmp_path / "type-not-freed.tpl").write_text(NOT_FREED)
    source = tmp_path / ("reused.f90" if fortran else "reused.c")
    source.write_text(IN_FORTRAN if fortran else IN_C)
    compile_it = [mpi.fc if fortran else mpi.cc, "-g", str(source), "-o", "reused"]
    subprocess.run(compile_it, cwd=tmp_path, check=True, capture_output=True)
    templates = "./request-reused.tpl", "./type-not-freed.tpl"
    report = checked(tmp_path, templates, mpi.started(2, "./reused"))
    assert lines(report) == {
        "request-reused": [10, 14] if fortran else [10, 13],
        "type-not-freed": [9],
    }
    assert {one["count"] for one in report["situations"]} == {2} and report["code"] == 1  # one on each rank
    assert checked(tmp_path, templates, mpi.started(2, "./reused", "right"))["situations"] == []


def test_the_solver_of_the_examples_is_silent(tmp_path: Path) -> None:
    for name in ("landscape_mpi.py", "landscape.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    command = [mpiexec(), "-n", "4", sys.executable, "landscape_mpi.py", "--steps", "60"]
    report = checked(tmp_path, ("standard",), command)
    assert (report["situations"], report["hang"], report["code"]) == ([], None, 0)
    assert report["calls"] > 200


def test_lammps_is_silent(tmp_path: Path) -> None:
    lmp = Path(sys.executable).with_name("lmp")
    if not lmp.exists():
        pytest.skip("needs LAMMPS: the package lammps, on x86-64")
    try:
        pmpi.mpicc_for(sys.executable)
    except UsageError as error:
        pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    shutil.copy(EXAMPLES / "lammps/in.melt", tmp_path)
    command = [mpiexec(), "-n", "2", str(lmp), "-in", "in.melt", "-var", "last", "5"]
    report = checked(tmp_path, ("standard",), command, "--with", "c")
    assert report["calls"] > 150 and not report["hang"] and report["code"] == 0
    assert [one for one in report["situations"] if one["kind"] == "error"] == []


HIDES = """import sys
from pathlib import Path
from mpi4py import MPI
import safepoint
comm, good = MPI.COMM_WORLD, len(sys.argv) > 1
safepoint.init(comm=comm)
safepoint.restore()
mine = bytearray(8)
for step in (1, 2):
    Path(f"u-{comm.rank}.dat").write_text(str(step))
    request = comm.Irecv(mine, 1 - comm.rank, step)
    comm.Send(bytes(8), 1 - comm.rank, step)
    if good:
        request.Wait()
    safepoint.hide(step)
    request.Wait()
safepoint.finish()
"""


@pytest.mark.parametrize("good", [False, True], ids=["bad", "good"])
def test_a_hide_while_a_request_is_open_is_told(good: bool, tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    (tmp_path / "solver.py").write_text(HIDES)
    command = [mpiexec(), "-n", "2", sys.executable, "solver.py", *["good"] * good]
    report = checked(tmp_path, ("standard", "hide-not-by-all"), command)
    assert lines(report) == ({} if good else {"hide-with-open-request": [11, 15]})
    assert report["code"] == 0  # a warning


def test_of_a_session_that_each_process_has_for_itself_nothing_is_told(tmp_path: Path) -> None:
    for rank in "01":
        (tmp_path / rank).mkdir()
        (tmp_path / rank / ".safepoint").write_text("u.dat\n")
    (tmp_path / "solver.py").write_text(
        "import os\nfrom pathlib import Path\nfrom mpi4py import MPI\nimport safepoint\n"
        "os.chdir(str(MPI.COMM_WORLD.rank))\nsafepoint.init()\nsafepoint.restore()\n"
        "for step in range(1 + MPI.COMM_WORLD.rank):\n    Path('u.dat').write_text('u')\n    safepoint.hide(step)\n"
        "safepoint.finish()\n"
    )
    report = checked(tmp_path, ("hide-not-by-all",), [mpiexec(), "-n", "2", sys.executable, "solver.py"])
    assert report["situations"] == [] and report["code"] == 0 and report["calls"] > 6


def test_a_hide_that_one_rank_leaves_out_is_told(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    (tmp_path / "solver.py").write_text(HIDES.replace("    safepoint.hide(step)", "    if step == 1 or not comm.rank:"
                                                      "\n        safepoint.hide(step)"))  # fmt: skip
    command = [mpiexec(), "-n", "2", sys.executable, "solver.py", "good"]
    report = checked(tmp_path, ("hide-not-by-all",), command, "--hang", "1")
    assert lines(report) == {"hide-not-by-all": [16]} and report["hang"] and report["code"] == 1
    assert "hide, number 2" in report["hang"]["text"]
