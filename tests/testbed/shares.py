"""Mark what `make proof` runs, leave out cases where .ci/run has little time, and let ranks sleep while they wait.

A plugin that `conftest.py` brings. What a test leaves out by itself it says with `sweep.one_of` and `sweep.some_of`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from testbed.paths import TESTS
from testbed.sweep import COARSER, LONG, PROOF, turn

# A rank of MPICH spins while it waits. Where ranks are more than processors each message then waits for a scheduler:
# a solver in C on four ranks took thirty times the processor time that it takes if a rank that waits sleeps for a
# moment. That is what newer MPICH does with this variable, and `c/sleeps.c` for an older one.
SLEEPS = "MPIR_CVAR_ENABLE_HEAVY_YIELD"
SPINS = (  # of a verdict on a hang it is a part whether a rank spins; where a system call is hit, none shall be a sleep
    "tests/check/", "tests/tools/test_check", "tests/proof/test_checked_programs.py", "tests/proof/test_suites.py",
    "tests/proof/test_standard_templates.py", "tests/proof/test_foreign_syscalls.py",
)  # fmt: skip
SAMPLES = re.compile(r"\b(?:sample|part|some_of|many)\(|\bPROOF\b")
LONGEST = "proof/test_strace.py"  # minutes: at the end of the run they would keep one processor alone


def share(items: Sequence[pytest.Item], of: float) -> list[pytest.Item]:
    """One of so many, at least one; other ones with each commit."""
    begin = turn() // 1009 % len(items) if items else 0  # else it would go together with what `one_of` takes
    return [item for at, item in enumerate([*items[begin:], *items[:begin]]) if at % of < 1]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what belongs to `make proof`, before `-m` selects; of what is selected leave out what there is no time for.

    `make proof` runs each test again that takes a sample, as the sample is a larger one there.
    """
    for item in items:
        if item.path.is_relative_to(TESTS / "proof") or (
            PROOF and getattr(item, "originalname", "") in sampled(item.path)
        ):
            item.add_marker("proof")
    yield
    if LONG:
        return
    left_out = set[pytest.Item]()
    if COARSER > 1:
        families = dict[str, list[pytest.Item]]()
        for item in items:
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for family in families.values():
            left_out |= set(family) - set(share(family, COARSER))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))
    config.hook.pytest_deselected(items=list(left_out))


@cache
def sampled(path: Path) -> set[str]:
    """The tests of this file in whose text, or in what they use of this file, a size of `sweep` stands that is another
    one in `make proof`."""
    text = path.read_text("utf-8")
    if not SAMPLES.search(text):
        return set()
    found = {"sweep"}
    uses = dict[str, set[str]]()
    for node in ast.parse(text).body:
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            uses[node.name] = names
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                uses.setdefault(ast.unparse(target), set()).update(names)
        elif isinstance(node, ast.ImportFrom) and node.module == "testbed.sweep":
            found |= {alias.name for alias in node.names} & {"sample", "part", "some_of", "many", "PROOF"}
    last = 0
    while len(found) > last:
        last = len(found)
        found |= {name for name, used in uses.items() if used & found}
    return found


def pytest_runtest_setup(item: pytest.Item) -> None:
    if LONG or item.nodeid.startswith(SPINS):
        os.environ.pop(SLEEPS, None)
    else:
        os.environ[SLEEPS] = "1"


def said() -> str:
    """For the head of the run."""
    if LONG:
        return ""
    rest = "; of cases that are alike a few, other ones with each commit, and ranks of MPICH that wait sleep"
    if COARSER > 1:
        rest += f"; m is {COARSER:g} times larger, and of the cases of each test one of {COARSER:g} is taken"
        rest += ", as SAFEPOINT_COARSER says"
    return f"{rest} (SAFEPOINT_CRASH=long: all, and they spin)"
