"""Check mode of the tracer of C and Fortran: what each watched call is given, reads and writes, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from testbed.checked import ALL, checked, read
from testbed.foreign import SOURCES, Mpi, each_mpi, needs, program

from safepoint.trace import record
from safepoint.trace.record import RAISED, RETURNED
from safepoint.trace.signatures import signatures

pytestmark = [needs("cc", "mpicc.mpich"), pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")]


def calls(mpi: Mpi) -> Path:
    return program("check_calls.c", mpi, "-g", "-w")


@each_mpi
def test_each_call_is_noted_with_what_it_is_given_reads_and_writes(mpi: Mpi, tmp_path: Path) -> None:
    """The program says itself what that is. So it is in the order of the calls, Init first, and after Finalize."""
    status, _, said, trace = checked(tmp_path, mpi, 2, ALL, calls(mpi), tmp_path / "said")
    assert (status, said) == (0, "")
    for rank in range(2):
        told = [json.loads(line) for line in (tmp_path / f"said-{rank}").read_text().splitlines()]
        noted = read(trace, rank)
        assert [one.function for one in noted] == [one["name"] for one in told] and len(noted) > 75
        for one, expected in zip(noted, told, strict=True):
            if one.function == "Error_class":  # what codes MPI has is its own
                expected["given"][0] = one.given[0] if one.given else None
            assert [one.given, one.reads, one.writes] == [expected[name] for name in ("given", "reads", "writes")], one
            assert len(expected["given"]) == len(signatures()[one.function].parameters), one.function
            file, line = one.place.split(":")
            text = (SOURCES / file).read_text().splitlines()[int(line) - 1]
            assert f"MPI_{one.function}(" in text, (one, text)
        failed = [one for one in noted if one.note["state"] != RETURNED]
        assert [(one.function, one.note["state"], one.note["result"]) for one in failed] == [("Send", RAISED, 6)]
        about = json.loads(record.names(trace, rank).about.read_text())
        assert (about["ended"], about.get("stopped")) == ("finalize", None)
