"""What a short run leaves out and another commit tries, and how its ranks wait; a plugin that `conftest.py` brings.

Of dozens of cases that are alike, and take seconds each, a short run takes a share: other ones with each commit, and
the head of the run says which. SAFEPOINT_CRASH=long takes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from testbed.paths import TESTS
from testbed.sweep import COARSER, LONG, turn

WHOLE = 400  # tests: who asks for fewer of them gets these
HALVED = (  # of these every other test
    "foreign/test_nodes_in_c.py",
    "files/test_kinds.py::test_killed_at_every_operation[", "files/test_kinds.py::test_power_cut_at_every_operation[",
    "proof/test_mpi.py::test_rank_1_killed_at_each_file_system_call",
    "proof/powercut/test_variants.py::test_a_broken_variant_is_caught[",
    "proof/powercut/test_cuts.py::test_a_power_cut_at_any_call",
)  # fmt: skip
# A rank of MPICH spins while it waits. Where ranks are more than processors each message then waits for a scheduler:
# a solver in C on four ranks took thirty times the processor time that it takes if a rank that waits sleeps for a
# moment. That is what newer MPICH does with this variable, and `c/sleeps.c` for an older one.
SLEEPS = "MPIR_CVAR_ENABLE_HEAVY_YIELD"
SPINS = (  # of a verdict on a hang it is a part whether a rank spins; where a system call is hit, none shall be a sleep
    "tests/check/", "tests/tools/test_check", "tests/proof/test_checked_programs.py", "tests/proof/test_suites.py",
    "tests/proof/test_standard_templates.py", "tests/proof/test_foreign_syscalls.py",
)  # fmt: skip
LONGEST = "proof/test_strace.py"  # minutes: at the end of the run they would keep one processor alone


def share(items: Sequence[pytest.Item], of: float) -> list[pytest.Item]:
    """One of so many, at least one; other ones with each commit."""
    begin = turn() // 1009 % len(items) if items else 0  # else it would go together with what `one_of` takes
    return [item for at, item in enumerate([*items[begin:], *items[:begin]]) if at % of < 1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what belongs to `make proof`, before `-m` selects; leave out what a short run does not take."""
    for item in items:
        if item.path.is_relative_to(TESTS / "proof"):
            item.add_marker("proof")
    if LONG:
        return
    left_out = set[pytest.Item]()
    if len(items) >= WHOLE:
        for part in HALVED:
            of = [item for item in items if item.nodeid.startswith(f"tests/{part}")]
            left_out |= set(of) - set(share(of, 2))
    if COARSER > 1:
        families = dict[str, list[pytest.Item]]()
        for item in items:
            if item not in left_out:
                families.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for family in families.values():
            left_out |= set(family) - set(share(family, COARSER))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))
    config.hook.pytest_deselected(items=list(left_out))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if LONG or item.nodeid.startswith(SPINS):
        os.environ.pop(SLEEPS, None)
    else:
        os.environ[SLEEPS] = "1"


def said() -> str:
    """For the head of the run."""
    if LONG:
        return ""
    halved = ", ".join(part.rstrip("[") for part in HALVED)
    rest = f"; of {halved} every other test, of each_mpi one MPI, ranks of MPICH that wait sleep"
    if COARSER > 1:
        rest += f"; m is {COARSER:g} times larger, and of the cases of each test one of {COARSER:g} is taken"
        rest += ", as SAFEPOINT_COARSER says"
    return f"{rest} (SAFEPOINT_CRASH=long: all, and they spin)"
