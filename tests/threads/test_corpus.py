"""The corpus: of programs that are right, and of each construct alone, nothing is reported; each planted bug is found.

In a short run some of each, other ones with each commit; in `make proof` more.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed.sweep import LONG, PROOF, some_of, turn
from testbed.threads_bugs import BUGS, Bug
from testbed.threads_chain import WAYS, Verdict, built, traced, two_passes, whole
from testbed.threads_corpus import (
    FORTRAN,
    IN_C,
    PROGRAMS,
    SCHEDULES,
    THREADS,
    InC,
    Program,
    alike,
    compiled,
    has,
    printed,
    surroundings,
)
from testbed.threads_snippets import CONSTRUCTS, written

from safepoint.threads import fortran, telling
from safepoint.threads.compare import Rules, compare
from safepoint.threads.trace import Run

pytestmark = [pytest.mark.proof] if PROOF and not LONG else []
MISSING = [compiler for compiler in FORTRAN if not has(compiler)]
RIGHT = [(c, p) for c in FORTRAN for p in PROGRAMS if has(c) and not (c.startswith("flang") and p.flang)]
ON_BOTH = [(c, bug) for c in FORTRAN for bug in BUGS if has(c) and not (c.startswith("flang") and bug.of.flang)]
needs_fortran = pytest.mark.skipif(not RIGHT, reason="no gfortran")


def named(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "name", str(value)).replace(" ", "-")


@pytest.mark.skipif(bool(MISSING), reason=f"no {' and no '.join(MISSING)}: what they build is not two_passes")
def test_the_compilers_are_here() -> None:
    """One line in the report says which are not."""


class Correct(NamedTuple):
    """A program of the corpus as it is and as `build` makes it. `rules`: what its sums need."""

    program: Program
    place: Path
    compiler: str
    parallel: Path
    serial: Path
    warnings: list[str]

    def rules(self, rtol: float = 0.0) -> dict[str, Any]:
        return {"rtol": rtol or self.program.rtol, "atol": self.program.atol, "exclude": self.program.exclude}


@pytest.fixture(scope="module", params=some_of(RIGHT, 1, 4), ids=lambda both: "-".join(map(named, both)))
def correct(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Correct:
    compiler, program = request.param
    place = tmp_path_factory.mktemp("correct")
    made = built(program.path, place, compiler=compiler)
    return Correct(program, place, compiler, place / made.parallel, place / made.serial, made.warnings)


def ways() -> list[tuple[int, str]]:
    return WAYS if LONG else [WAYS[(turn() + 3 * k) % len(WAYS)] for k in range(3)]


def test_a_correct_program_prints_the_same_with_and_without_openmp_and_calls(correct: Correct, tmp_path: Path) -> None:
    """The plain program in all ways, and the instrumented one off and with all recorded."""
    plain, parallel = (compiled(correct.program.path, tmp_path, compiler=correct.compiler, parallel=parallel)
                       for parallel in (False, True))  # fmt: skip
    serial = printed([plain])
    assert "checksum" in serial
    for threads in THREADS:
        for schedule in SCHEDULES:
            assert alike(serial, printed([parallel], surroundings(threads, schedule))), (threads, schedule)
    for level in ("off", "minimal", "full"):
        env = surroundings(4, "dynamic", SP_LEVEL=level, SP_DIR=str(tmp_path / level))
        assert alike(serial, printed([correct.parallel], env)), level
        assert alike(serial, printed([correct.serial], env)), level


def test_nothing_is_reported_in_two_passes(correct: Correct) -> None:
    """Neither before the run, nor by it, even if its threads are disturbed."""
    assert correct.warnings == []
    for threads, schedule in ways():
        found = two_passes(
            correct.parallel, correct.place, threads=threads, schedule=schedule, rules=correct.rules(), noise=50
        )
        assert found.code == 0, (threads, schedule, str(found))


def test_nothing_is_reported_of_everything(correct: Correct, tmp_path: Path) -> None:
    """Reads, writes and constructs of the whole run, iteration by iteration."""
    rules = Rules(**correct.rules(correct.program.rtol_of_all))
    a = traced(correct.serial, tmp_path / "a", 1, "static", "full", SP_STATISTICS="1")
    for threads, schedule in ways():
        b = traced(correct.parallel, tmp_path / f"b-{threads}-{schedule}", threads, schedule, "full", SP_STATISTICS="1")
        found = compare(Run(a), Run(b), rules)
        assert found.code == 0, (threads, schedule, telling.lines(found))


@pytest.mark.parametrize("program", some_of(IN_C, 1), ids=lambda program: program.file)
def test_nothing_is_reported_of_calls_by_hand(program: InC, tmp_path: Path) -> None:
    made = built(program.path, tmp_path, "-lm", compiler="gcc")
    for threads, schedule in ways():
        found = two_passes(tmp_path / made.parallel, tmp_path, threads=threads, schedule=schedule)
        assert found.code == 0, (threads, schedule, str(found))


def test_calls_by_hand_may_be_met_in_another_order(tmp_path: Path) -> None:
    """Which thread comes first to a call decides its number: what is compared are the calls."""
    path = next(program.path for program in IN_C if program.file == "waves.c")
    made = built(path, tmp_path, "-lm", compiler="gcc")
    for seed in range(1, 11):
        found = whole(tmp_path / made.parallel, SP_REGIONS="2", SP_NOISE="5", SP_SEED=str(seed))
        assert found.code == 0, (seed, telling.lines(found))


# Each construct alone.

NOT_INSIDE = {"workshare", "task", "number of a thread"}  # passed through, and said
SITES = {
    "two loops": ["loop", "loop"], "collapse": ["loop"], "sections": ["section"] * 3, "ordered": ["ordered"],
    "single, copyprivate": ["single"], "master and barrier": ["master", "barrier"], "critical": ["critical"],
    "atomic": ["atomic", "atomic"], "nested": ["region", "region"],
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(list(CONSTRUCTS), 2, 6), ids=named)
def test_a_construct_alone_is_equal_to_the_serial_program(name: str, tmp_path: Path) -> None:
    """With 1, 2 and 4 threads, static, dynamic and guided, all of it recorded."""
    made = built(written(name, tmp_path), tmp_path)
    a = traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full")
    for threads, schedule in WAYS:
        b = traced(tmp_path / made.parallel, tmp_path / f"b-{threads}-{schedule}", threads, schedule, "full")
        found = compare(Run(a), Run(b), Rules())
        assert found.code == 0, (threads, schedule, telling.lines(found))


def test_each_construct_has_its_sites_and_no_warning_but_of_what_is_passed_through(tmp_path: Path) -> None:
    for name in CONSTRUCTS:
        made = fortran.instrument(written(name, tmp_path))
        types = [site.type for site in made.sites]
        wanted = SITES.get(name, [])
        assert {type: types.count(type) for type in wanted} == {type: wanted.count(type) for type in wanted}, name
        assert "region" in types, name
        assert [site.number for site in made.sites] == list(range(1, len(types) + 1)), name
        assert all("passed through" in text for _, text in made.warnings), (name, made.warnings)
        assert not made.warnings or name in NOT_INSIDE, (name, made.warnings)


# Planted bugs: thirteen of fifteen are found at the exact line, the others at the region or by a warning of `build`.


def test_a_planted_bug_is_where_the_table_says() -> None:
    """Each patch fits once, and its lines hold the text that the table gives with them."""
    for bug in BUGS:
        text = bug.text().splitlines()
        assert bug.where, bug.name
        for line, excerpt in bug.where:
            assert excerpt in text[line - 1], (bug.name, line, text[line - 1])


@needs_fortran
@pytest.mark.parametrize("bug", some_of(BUGS, 1, 2), ids=named)
def test_a_program_with_a_bug_is_right_without_openmp(bug: Bug, tmp_path: Path) -> None:
    """Without OpenMP it prints what the correct program prints with it, but where the bug is in a rounding."""
    good = printed([compiled(bug.of.path, tmp_path, parallel=False)])
    bad = printed([compiled(bug.write(tmp_path), tmp_path, parallel=False)])
    assert bug.serial_differs or alike(good, bad, 1e-5)


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


@needs_fortran
@pytest.mark.parametrize(("compiler", "bug"), some_of(ON_BOTH, 2, 6), ids=named)
def test_a_planted_bug_is_found_where_it_is(compiler: str, bug: Bug, tmp_path: Path) -> None:
    warnings, found = run(bug, tmp_path, compiler)
    how = seen(bug, warnings, found)
    assert how == bug.how or (how == "line" and bug.how in ("region", "warning")), (how, warnings, str(found))
    if how == "line" and bug.iteration is not None:
        assert found.iteration == bug.iteration, str(found)


@pytest.mark.parametrize("program", some_of(IN_C, 1), ids=lambda program: program.file)
def test_a_bug_in_a_program_with_calls_by_hand_is_found(program: InC, tmp_path: Path) -> None:
    made = built(program.path, tmp_path, "-DBUG", "-lm", compiler="gcc")
    found = two_passes(tmp_path / made.parallel, tmp_path, runs=5, noise=50)
    assert found.code == 1, str(found)
    assert set(found.places) & set(program.where), str(found)
