"""`safepoint check --lines`: a header by which the lines of a program in C are known that has no debug information."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from testbed.checked import environment
from testbed.foreign import Mpi, built, each_mpi, ran

from safepoint.check import follow, language, report, running
from safepoint.trace import lines

LEAKS = """#include <mpi.h>
int main(int argc, char **argv)
{
    MPI_Datatype row;
    MPI_Init(&argc, &argv);
    MPI_Type_contiguous(2, MPI_INT,
                        &row);
    return MPI_Finalize();
}
"""


@pytest.fixture(scope="module")
def header() -> str:
    """As the command prints it."""
    command = [sys.executable, "-m", "safepoint", "check", "--lines"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_it_is_the_header_of_the_tracer(header: str) -> None:
    assert header == lines.header() and "#define MPI_Type_contiguous(" in header


@pytest.mark.parametrize("with_header", [True, False], ids=["header", "plain"])
@each_mpi
def test_a_stripped_program_has_lines_with_it_and_addresses_without(
    mpi: Mpi, tmp_path: Path, with_header: bool, header: str
) -> None:
    (sources := tmp_path / "sources").mkdir()
    (sources / "safepoint-lines.h").write_text(header)
    (sources / "leaks.c").write_text(LEAKS)
    include = ["-include", "safepoint-lines.h"] if with_header else []
    leaks = built("leaks", mpi.cc, "-s", *include, "leaks.c", "-o", "leaks", cwd=sources)
    trace, templates = tmp_path / "run.trace", language.load(("type-not-freed",))
    trace.mkdir()
    running.prepare(trace, templates, 30)
    status, _, said = ran(tmp_path, *mpi.started(1, leaks), more=environment(mpi, trace))
    assert status == 0, said
    follower, (found,), _ = follow.afterwards(trace, templates)
    places = [report.place_of(follower.site(cell.call), follower.cwd) for cell in found.cells if cell.call is not None]
    if with_header:
        assert places == ["leaks.c:6", "leaks.c:8"]
    else:
        assert len(places) == 2 and all(place.startswith("leaks+0x") for place in places), places
