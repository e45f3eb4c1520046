"""`safepoint check --with both`: the C tracer notes what is watched, and each call has its line of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from launcher import mpiexec
from testbed.foreign import MPICH, needs

PROGRAM = """from mpi4py import MPI
comm = MPI.COMM_WORLD
row = MPI.INT.Create_contiguous(2)
row.Commit()
comm.bcast(None, 0 if comm.rank == 0 else 1)
own = MPI.Op.Create(lambda one, other, kind: None, True)
group = comm.Get_group()
for name in ("Bcast", "Get_attr", "Get_group") * (comm.rank == 0):
    print(name, hasattr(getattr(type(comm), name), "__wrapped__"))
print("Get_name", hasattr(MPI.Datatype.Get_name, "__wrapped__")) if comm.rank == 0 else None
MPI.Finalize()
"""
LINES = {"type-not-freed": [3, 11], "op-not-freed": [6, 11], "group-not-freed": [7, 11], "root-differs": [5, 5]}


@needs(MPICH.cc)
def test_calls_of_all_classes_have_their_lines_and_what_is_not_watched_is_mpi4pys_own(tmp_path: Path) -> None:
    """Types, operations and groups too, and functions of the module."""
    (tmp_path / "both.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "safepoint", "check", "--with", "both", "--json", "--"]
    program = [mpiexec(), "-n", "2", sys.executable, "both.py"]
    done = subprocess.run([*command, *program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    at = done.stdout.index("{")
    found = {one["template"]: [(Path(call["file"]).name, call["line"]) for call in one["places"][0]["calls"]
                               if "line" in call] for one in json.loads(done.stdout[at:])["situations"]}  # fmt: skip
    assert found == {name: [("both.py", line) for line in lines] for name, lines in LINES.items()}, done.stderr
    told = sorted(done.stdout[:at].splitlines())
    assert told == sorted(["Bcast True", "Get_attr False", "Get_group True", "Get_name False"])
