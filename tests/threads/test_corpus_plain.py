"""The corpus by itself, as no comparison is worth more than what it compares: its programs are right with OpenMP and
without, and each planted bug is where the table says."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sweep import LONG, turn
from testbed.threads_bugs import BUGS, Bug
from testbed.threads_corpus import (
    FORTRAN,
    PROGRAMS,
    SCHEDULES,
    THREADS,
    Program,
    alike,
    compiled,
    has,
    printed,
    surroundings,
)

MISSING = [compiler for compiler in FORTRAN if not has(compiler)]


def some(of: list[tuple[str, Program]]) -> list[tuple[str, Program]]:
    """In a short run three of them, other ones with each commit."""
    return of if LONG else [of[(turn() + k * 7) % len(of)] for k in range(min(3, len(of)))]


CASES = some([(c, p) for c in FORTRAN for p in PROGRAMS if has(c) and not (c.startswith("flang") and p.flang)])


@pytest.mark.skipif(bool(MISSING), reason=f"no {' and no '.join(MISSING)}: what they build is not two_passes")
def test_the_compilers_are_here() -> None:
    """One line in the report says which are not."""


@pytest.mark.parametrize(("compiler", "program"), CASES, ids=[f"{c}-{p.name}" for c, p in CASES])
def test_a_correct_program_prints_the_same_with_and_without_openmp(
    compiler: str, program: Program, tmp_path: Path
) -> None:
    serial = printed([compiled(program.path, tmp_path, compiler=compiler, parallel=False)])
    assert "checksum" in serial
    parallel = compiled(program.path, tmp_path, compiler=compiler, parallel=True)
    for threads in THREADS:
        for schedule in SCHEDULES:
            assert alike(serial, printed([parallel], surroundings(threads, schedule))), (threads, schedule)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_where_the_table_says(bug: Bug) -> None:
    """Each patch fits once, and its lines hold the text that the table gives with them."""
    text = bug.text().splitlines()
    assert bug.where
    for line, excerpt in bug.where:
        assert excerpt in text[line - 1], (line, text[line - 1])


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("bug", BUGS if LONG else [BUGS[turn() % len(BUGS)]], ids=lambda bug: bug.name)
def test_a_program_with_a_bug_is_right_without_openmp(bug: Bug, tmp_path: Path) -> None:
    """Without OpenMP it prints what the correct program prints with it, but where the bug is in a rounding."""
    good = printed([compiled(bug.of.path, tmp_path, parallel=False)])
    source = bug.write(tmp_path)
    bad = printed([compiled(source, tmp_path, parallel=False)])
    assert bug.serial_differs or alike(good, bad, 1e-5)
