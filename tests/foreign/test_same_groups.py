"""The same program in C and with mpi4py, on both MPIs: its trace has the same groups."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed import traced
from testbed.foreign import MPICH, OPEN_MPI, Mpi, needs, program, ran, tracer
from testbed.noted import action, groups, pairs
from testbed.paths import TESTBED
from testbed.sweep import some_of

from safepoint.errors import UsageError
from safepoint.matching import match
from safepoint.matching.matched import COLLECTIVE, MESSAGE
from safepoint.trace import pmpi

pytestmark = [needs("cc", "mpicc.mpich"), pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")]
RANKS, IN_PYTHON = 3, TESTBED / "same_groups.py"
LANGUAGES = "C", "mpi4py", "mpi4py, noted in C"
# Open MPI 4.1 makes no window on one node by itself, and this way not for threads.
MORE = {"OMPI_MCA_osc": "pt2pt", "MPI4PY_RC_THREADS": "0"}


class Same(NamedTuple):
    """What a trace says that has nothing to do with time, lines and the order of numbers."""

    actions: list[list[str]]
    groups: list[tuple[int, list[Any]]]
    arcs: list[Any]
    requests: list[Any]
    never: list[Any]
    unsure: list[tuple[int, int]]
    messages: list[Any]
    alive: list[Any]
    remarks: list[str]


def same(directory: Path) -> Same:
    """Without `Finalize`, which mpi4py calls when no tracer looks any more. Tests that find nothing are as many as the
    machine is slow."""
    matched = match.matched(directory)
    names = [matched.functions[function] for function in matched.function]
    final = {action(matched, number) for number, name in enumerate(names) if name == "Finalize"}
    members = zip(matched.kind.tolist(), groups(matched), strict=True)
    columns = ["source", "dest", "tag", "bytes", "wild_source", "wild_tag"]
    messages = [
        (*(action(matched, row[name]) for name in ("sent", "posted", "received")), *row[columns].tolist())
        for row in matched.messages
    ]
    rows = [
        (matched.names[row["name"]].partition(" at ")[0], *row[["rank", "first"]].tolist()) for row in matched.alive
    ]
    return Same(
        [[name for name in names[begin:end] if name != "Finalize"]
         for begin, end in zip(matched.begins, matched.begins[1:], strict=False)],
        sorted((kind, group) for kind, group in members if not final.intersection(group)), pairs(matched, matched.arcs),
        pairs(matched, matched.requests), sorted(action(matched, one) for one in matched.never),  # type: ignore[type-var]
        sorted({(rank, gap) for rank, gap in matched.unsure.tolist()}), sorted(messages, key=str), sorted(rows),
        matched.remarks,
    )  # fmt: skip


def trace(mpi: Mpi, language: str, directory: Path) -> Path:
    """Of one run. Skips if this cannot be done here."""
    where, more = directory / "run.trace", dict(MORE)
    if language.startswith("mpi4py"):
        pytest.importorskip("mpi4py")
        if language != "mpi4py":
            try:
                cc = mpi.cc if mpi is OPEN_MPI else pmpi.mpicc_for(sys.executable)
            except UsageError as error:
                pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
            where.mkdir()
            more |= {"SAFEPOINT_TRACE": str(where), "LD_PRELOAD": tracer(cc)}
        done = traced.run(
            RANKS, str(IN_PYTHON), library=mpi.name, trace=None if language != "mpi4py" else where, more=[*more.items()]
        )
        assert done.returncode == 0, done.stderr
        return where
    where.mkdir()
    exe = program("same_groups.c", mpi, "-g", "-w")
    more |= {"SAFEPOINT_TRACE": str(where), "LD_PRELOAD": tracer(mpi.cc)}
    status, _, said = ran(directory, *mpi.started(RANKS, exe), more=more)
    assert status == 0, said
    return where


@functools.cache
def in_c() -> Same:
    with tempfile.TemporaryDirectory() as directory:
        return same(trace(MPICH, "C", Path(directory)))


@pytest.mark.parametrize(
    ("mpi", "language"),
    some_of([
        pytest.param(mpi, language, id=f"{mpi.name}-{language}", marks=needs(mpi.cc, mpi.mpiexec))
        for language in LANGUAGES for mpi in (MPICH, OPEN_MPI)
    ], 2, 6),
)  # fmt: skip
def test_the_groups_of_a_program_are_the_same_in_each_language_and_mpi(mpi: Mpi, language: str, tmp_path: Path) -> None:
    expected = in_c()
    found = same(trace(mpi, language, tmp_path))
    for field in Same._fields:
        assert getattr(found, field) == getattr(expected, field), field


def test_the_groups_of_that_program_are_those_that_one_counts_in_its_source() -> None:
    found = in_c()
    assert (found.never, found.remarks) == ([], [])
    assert [kind for kind, _ in found.groups].count(MESSAGE) == 23
    assert [kind for kind, _ in found.groups].count(COLLECTIVE) == 20
    assert len(found.messages) == 24, "and the receive that was cancelled and freed"
    assert [message[0] for message in found.messages if message[7] and message[8]] == [(0, 2)]
