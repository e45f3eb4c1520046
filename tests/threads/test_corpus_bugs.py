"""The planted bugs are found where they are: thirteen of fifteen at the exact line, the others at the region or by a
warning of `build`. In a short run two of them, other ones with each commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testbed.sweep import LONG, one_of, turn
from testbed.threads_bugs import BUGS, Bug
from testbed.threads_chain import Verdict, built, two_passes
from testbed.threads_corpus import FORTRAN, IN_C, InC, has

pytestmark = pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
pytest.importorskip("fparser")
COMPILERS = [compiler for compiler in FORTRAN if has(compiler)]
SOME = BUGS if LONG else [BUGS[turn() % len(BUGS)], BUGS[(turn() + 7) % len(BUGS)]]


def run(bug: Bug, directory: Path, compiler: str) -> tuple[list[str], Verdict]:
    """The warnings of `build`, and what five runs with noise have found."""
    made = built(bug.write(directory), directory, compiler=compiler)
    rules = {"rtol": bug.of.rtol, "atol": bug.of.atol, "exclude": bug.of.exclude}
    found = two_passes(directory / made.parallel, directory, schedule=bug.schedule, rules=rules, runs=5, noise=50)
    return made.warnings, found


def warned(bug: Bug, warnings: list[str]) -> list[str]:
    """The warnings that name a variable of the bug and a line of its region."""
    lines = {line for line, _ in bug.where}
    names = re.compile(rf"\b({'|'.join(bug.variables)})\b", re.I)
    return [text for text in warnings if names.search(text) and any(f":{line}:" in text for line in lines)]


def seen(bug: Bug, warnings: list[str], found: Verdict) -> str:
    """How exactly: "line", "region", "warning", or not at all."""
    if found.code == 1 and set(found.places) & {line for line, _ in bug.where}:
        return "line"
    if warned(bug, warnings):
        return "warning"
    region = any(f":{line}-" in text for line, _ in bug.where for text in found.lines)
    return "region" if found.code == 1 and region else ""


@pytest.mark.parametrize("compiler", one_of(COMPILERS) if COMPILERS else [])
@pytest.mark.parametrize("bug", SOME, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_found_where_it_is(bug: Bug, compiler: str, tmp_path: Path) -> None:
    if compiler.startswith("flang") and bug.of.flang:
        pytest.skip(bug.of.flang)
    warnings, found = run(bug, tmp_path, compiler)
    how = seen(bug, warnings, found)
    assert how == bug.how or (how == "line" and bug.how in ("region", "warning")), (how, warnings, str(found))
    if how == "line" and bug.iteration is not None:
        assert found.iteration == bug.iteration, str(found)


@pytest.mark.parametrize("program", one_of(IN_C), ids=lambda program: program.file)
def test_a_bug_in_a_program_with_calls_by_hand_is_found(program: InC, tmp_path: Path) -> None:
    made = built(program.path, tmp_path, "-DBUG", "-lm", compiler="gcc")
    found = two_passes(tmp_path / made.parallel, tmp_path, runs=5, noise=50)
    assert found.code == 1, str(found)
    assert set(found.places) & set(program.where), str(found)
