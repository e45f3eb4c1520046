"""docs/tasks-deps.md: statements that are claimed to be independent are run in other orders, and nothing differs.

The programs are made up, and full of aliases: one list under two names, views, pointers to one array.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from testbed import deps_c_programs as of_c
from testbed import deps_programs as of_python
from testbed import sweep
from testbed.deps_outcomes import ARGUMENTS, outcome, source

from safepoint.tasks.deps import Analysis
from safepoint.tasks.deps.python import File as PythonFile

PYTHON, C = (1200, 400) if sweep.LONG else (100, 40) if sweep.PROOF else (25, 8)  # so many programs
LENGTH = 12
FIRST = 0 if sweep.LONG else sweep.turn() % 100_000


def exchanged(found: Analysis, known: int) -> Iterator[tuple[int, list[int]]]:
    """Each pair of neighbours that is claimed to be independent, the other way round; not of the first `known`."""
    every = list(range(len(found.statements)))
    for first in range(max(known - 1, 0), len(every) - 1):
        if found.independent(first, first + 1):
            yield first, [*every[:first], first + 1, first, *every[first + 2 :]]


def mixed(found: Analysis, seed: int) -> list[int]:
    """Any order in which each statement comes after those that it depends on."""
    rng, left, order = random.Random(seed), set(range(len(found.statements))), list[int]()
    needs = {number: {each.source for each in found.dependences if each.target == number} for number in left}
    while left:
        free = [number for number in sorted(left) if not needs[number] & left]
        order.append(rng.choice(free))
        left.remove(order[-1])
    return order


def in_order(body: Sequence[str], order: Sequence[int]) -> list[str]:
    return [body[number] for number in order]


@pytest.mark.proof
def test_python_that_is_claimed_independent_does_the_same_in_other_orders() -> None:
    """Exceptions too: what raises raises still, and what is seen by then is the same."""
    tried = 0
    for seed in range(FIRST, FIRST + PYTHON):
        body = of_python.Writer(seed).program(LENGTH)
        found = PythonFile("made up", source(body)).analysis("f")
        assert len(found.statements) == len(body)
        orders = [order for _, order in exchanged(found, of_python.KNOWN)] + [mixed(found, seed + n) for n in range(2)]
        for arguments in ARGUMENTS:
            expected = outcome(body, arguments)
            for order in orders:
                tried += 1
                other = in_order(body, order)
                assert outcome(other, arguments) == expected, (seed, *other)
    assert tried > 4 * PYTHON  # else it claims too little to be tried


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: programs in C are not compiled and run")
def test_c_that_is_claimed_independent_does_the_same_in_other_orders(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter_c", reason="no tree-sitter-c: pip install '.[deps]'")
    from safepoint.tasks.deps.c import File as CFile

    for begin in range(FIRST, FIRST + C, 40):
        orders: list[tuple[str, bool, Sequence[str]]] = []
        for seed in range(begin, min(begin + 40, FIRST + C)):
            body = of_c.Writer(seed).program(LENGTH)
            found = CFile("made up", of_c.PRELUDE + of_c.function("f", body)).analysis("f")
            assert len(found.statements) == len(body), seed
            orders.append((f"f{seed}", True, body))
            others = [order for _, order in exchanged(found, len(of_c.FIRST))] + [
                mixed(found, seed + n) for n in range(3)
            ]
            orders += [(f"f{seed}_{n}", False, in_order(body, order)) for n, order in enumerate(others)]
        assert len(orders) > 4 * min(40, C)  # else it claims too little to be tried
        bodies = {name: body for name, _, body in orders}
        assert [(name, *bodies[name]) for name in of_c.differing(tmp_path, orders)] == []
