"""Programs in C and Fortran, killed at random: a rank, all ranks, a helper, or a rank with its helper."""

from __future__ import annotations

import os
import random

import pytest
from testbed import tally
from testbed.foreign import KINDS, Mpi, Runs, each_mpi, memory, program
from testbed.sweep import ALL, LONG

pytestmark = [pytest.mark.xdist_group("mpi"), pytest.mark.timeout(7200 if LONG else 600)]

# What each reads and writes, and for how many steps, so that a life on 1, 2 and 4 ranks takes a second or so.
PROGRAMS = {
    "heat.c": ("heat-{rank}.dat", (2000, 1200, 200)),
    "heat.f90": ("heat-{rank}.dat", (2000, 1200, 200)),
    "df.c": ("df-{rank}.dat", (200, 120, 40)),
    "df.f90": ("df-{rank}.dat", (200, 120, 40)),
}
SHORT = {
    ("heat.c", 2, "mpich"),
    ("heat.c", 4, "openmpi"),
    ("heat.f90", 2, "openmpi"),
    ("df.c", 1, "mpich"),
    ("df.f90", 2, "mpich"),
}
# Of each kind, on 1, 2 and 4 ranks, with each MPI: 34 are 200 in all of each program and kind.
KILLS = int(os.environ.get("SAFEPOINT_KILLS", "34" if ALL else "4" if LONG else "1"))


@each_mpi
@pytest.mark.parametrize("source", PROGRAMS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_killed_at_random_it_ends_as_if_nothing_had_been(source: str, ranks: int, mpi: Mpi) -> None:
    """G1, G2k, G5, and no hang: whoever is killed, the next start goes on, and the end is equal, byte for byte."""
    if not LONG and (source, ranks, mpi.name) not in SHORT:
        pytest.skip("in make crash: other programs, ranks and libraries of MPI")
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
