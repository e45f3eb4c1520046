"""Random programs really run, traced: what is matched of them is what the model says of them."""

from __future__ import annotations

import shutil
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed import traced
from testbed.noted import plain
from testbed.paths import TESTBED
from testbed.ran_mpi import run
from testbed.random_mpi import BETWEEN, EVENTS, program
from testbed.sweep import LONG, some_of
from testbed.traced import libraries

from safepoint.errors import UsageError
from safepoint.matching import match
from safepoint.matching.matched import NONE, Ints, Matched
from safepoint.trace import pmpi

pytest.importorskip("mpi4py")
PROGRAMS = 200 if LONG else 14  # for each number of ranks and MPI, in one launch


class Parts:
    """What is in a trace between two barriers, as if it were all."""

    def __init__(self, matched: Matched) -> None:
        self.all = matched
        lines = np.array([site.line for site in matched.sites])[matched.site]
        self.ends = [
            np.flatnonzero(lines[begin:end] == BETWEEN) + begin
            for begin, end in zip(matched.begins, matched.begins[1:], strict=False)
        ]

    def part(self, number: int) -> Matched:
        """Raises ValueError if something goes from it to another."""
        matched = self.all
        begins, ends = ([int(own[at]) for own in self.ends] for at in (number, number + 1))
        actions = np.concatenate([np.arange(begin + 1, end) for begin, end in zip(begins, ends, strict=True)])
        of = np.full(matched.actions + 1, -2)  # of another part
        of[actions], of[NONE] = np.arange(len(actions)), NONE

        def within(rows: Ints) -> Ints:
            found = of[rows].reshape(len(rows), -1)
            here = np.any(found >= 0, axis=1)
            if np.any(found[here] == -2):
                raise ValueError(f"something goes from program {number} to another")
            return np.flatnonzero(here)

        first = np.array(begins) + 1 - matched.begins[:-1]
        count = np.array(ends) - np.array(begins) - 1
        members = np.flatnonzero(of[matched.member] >= 0)
        kept, group = np.unique(matched.group[members], return_inverse=True)
        if len(members) != np.count_nonzero(np.isin(matched.group, kept)):
            raise ValueError(f"a group of program {number} has members in another")
        messages = matched.messages[
            within(np.column_stack([matched.messages[n] for n in ("sent", "posted", "received")]))
        ]
        for name in ("sent", "posted", "received"):
            messages[name] = of[messages[name]]
        marks, unsure, alive = (
            rows[(gap := gaps - first[rank]) >= 0][gap[gap >= 0] <= count[rank[gap >= 0]]]
            for rows, rank, gaps in (
                (matched.marks, matched.marks["rank"], matched.marks["gap"]),
                (matched.unsure, *matched.unsure.T),
                (matched.alive, matched.alive["rank"], matched.alive["first"]),
            )
        )
        marks["gap"] -= first[marks["rank"]]
        unsure[:, 1] -= first[unsure[:, 0]]
        alive["first"] -= first[alive["rank"]]
        alive["last"] = np.minimum(alive["last"] - first[alive["rank"]], count[alive["rank"]])
        return matched._replace(
            begins=np.cumsum(np.append(0, count)), enter=matched.enter[actions], leave=matched.leave[actions],
            site=matched.site[actions], function=matched.function[actions], record=matched.record[actions],
            member=of[matched.member[members]], group=group, kind=matched.kind[kept],
            arcs=of[matched.arcs[within(matched.arcs)]], requests=of[matched.requests[within(matched.requests)]],
            never=of[matched.never[of[matched.never] >= 0]], messages=messages, marks=marks, unsure=unsure, alive=alive,
        )  # fmt: skip


def comparable(matched: Matched, tracer: str) -> dict[str, Any]:
    """Without times, numbers of notes, and how often something was asked until it was so. In C requests of sends that
    are complete at once may be equal, and mpi4py hands over copies: which of them a call completes is not known."""
    found = plain(matched)
    del found["enter"]
    found["calls"] = [row[:2] for row in found["calls"]]
    found["marks"] = [row[:2] for row in found["marks"]]
    found["unsure"] = sorted(set(found["unsure"]))
    if tracer == "both":
        found["requests"] = [sorted(row[end] for row in found["requests"]) for end in (0, 1)]
    return found


@pytest.mark.parametrize(("tracer", "ranks"), some_of([*product(("python", "both"), (2, 3, 4))], 1, 6))
@libraries
def test_the_trace_of_a_random_program_that_really_runs_is_what_the_model_says(
    tmp_path: Path, library: str, tracer: str, ranks: int
) -> None:
    """Whether mpi4py is noted, or the calls of C that it makes."""
    if tracer == "both":
        if not shutil.which(compiler := "cc" if library == "mpich" else "mpicc.openmpi"):
            pytest.skip(f"needs {compiler}")
        try:
            pmpi.mpicc_for(sys.executable) if library == "mpich" else None
        except UsageError as error:
            pytest.skip(f"needs the mpicc of the MPI of mpi4py: {error}")
    seeds = range(1000 * ranks, 1000 * ranks + PROGRAMS)
    words = [str(TESTBED / "really_ran.py"), *map(str, seeds)]
    done = traced.run(ranks, *words, library=library, trace=tmp_path / "t", tracer=tracer)
    assert done.returncode == 0, done.stderr
    matched = match.matched(tmp_path / "t")
    assert matched.remarks == []
    parts = Parts(matched)
    assert [len(own) for own in parts.ends] == [PROGRAMS + 1] * ranks
    for number, seed in enumerate(seeds):
        outcome = run(program(seed, certain=True, events=EVENTS, ranks=ranks), seed)
        truth, found = comparable(outcome.matched, tracer), comparable(parts.part(number), tracer)
        wrong = {name for name in truth if truth[name] != found[name]}
        assert not wrong, (seed, {name: (truth[name], found[name]) for name in wrong})
