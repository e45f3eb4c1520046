"""Programs in C and Fortran, killed at random: a rank, all ranks, a helper, or a rank with its helper."""

from __future__ import annotations

import os
import random
from itertools import product

import pytest
from testbed import tally
from testbed.foreign import KINDS, MPICH, OPEN_MPI, Mpi, Runs, memory, needs, program
from testbed.sweep import ALL, LONG, some_of

pytestmark = [pytest.mark.xdist_group("mpi-foreign"), pytest.mark.timeout(7200 if LONG else 600)]

# What each reads and writes, and for how many steps, so that a life on 1, 2 and 4 ranks takes a second or so.
PROGRAMS = {
    "heat.c": ("heat-{rank}.dat", (1000, 500, 100)),
    "heat.f90": ("heat-{rank}.dat", (1000, 500, 100)),
    "df.c": ("df-{rank}.dat", (100, 60, 20)),
    "df.f90": ("df-{rank}.dat", (100, 60, 20)),
}
SHORT = [
    ("heat.c", 2, MPICH), ("heat.f90", 2, OPEN_MPI), ("df.c", 1, MPICH), ("heat.c", 4, OPEN_MPI), ("df.f90", 2, MPICH),
]  # fmt: skip
CASES = [*product(PROGRAMS, (1, 2, 4), (MPICH, OPEN_MPI))] if LONG else some_of(SHORT, 1, 1)
# Of each kind, on 1, 2 and 4 ranks, with each MPI: 34 are 200 in all of each program and kind.
KILLS = int(os.environ.get("SAFEPOINT_KILLS", "34" if ALL else "4" if LONG else "1"))


@pytest.mark.parametrize(
    ("source", "ranks", "mpi"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[2].name}", marks=needs(case[2].fc, case[2].mpiexec))
     for case in CASES],
)  # fmt: skip
def test_killed_at_random_it_ends_as_if_nothing_had_been(source: str, ranks: int, mpi: Mpi) -> None:
    """G1, G2k, G5, and no hang: whoever is killed, the next start goes on, and the end is equal, byte for byte."""
    manifest, steps = PROGRAMS[source]
    rng = random.Random(f"{source} {ranks} {mpi.name}")
    with memory() as into:
        runs = Runs(into, program(source, mpi), mpi, ranks, manifest, steps[(1, 2, 4).index(ranks)])
        counts = dict.fromkeys(KINDS, 0)
        while min(counts.values()) < KILLS and runs.lives < 20 * KILLS + 20:
            kind = min(counts, key=lambda kind: counts[kind])
            counts[kind] += runs.killed(kind, rng)
        runs.to_the_end()
    assert min(counts.values()) >= KILLS, counts
    for kind, count in counts.items():
        tally.count("kills at random instants", f"{source} on {ranks} ranks of {mpi.name}: {kind}", count)
