"""The corpus of programs that are right, of each construct alone, and of planted bugs: nothing is reported of the first, and each bug is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testbed.sweep import LONG, one_of, turn
from testbed.threads_bugs import BUGS, Bug
from testbed.threads_chain import WAYS, Verdict, built, traced, two_passes
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

# The corpus by itself, as no comparison is worth more than what it compares: its programs are right with OpenMP and
# without, and each planted bug is where the table says.

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


@pytest.mark.parametrize("bug", BUGS if LONG else [BUGS[turn() % len(BUGS)]], ids=lambda bug: bug.name)
def test_a_program_with_a_bug_is_right_without_openmp(bug: Bug, tmp_path: Path) -> None:
    """Without OpenMP it prints what the correct program prints with it, but where the bug is in a rounding."""
    good = printed([compiled(bug.of.path, tmp_path, parallel=False)])
    source = bug.write(tmp_path)
    bad = printed([compiled(source, tmp_path, parallel=False)])
    assert bug.serial_differs or alike(good, bad, 1e-5)


# Nothing is reported on programs that are right: each of the corpus, with 1, 2 and 4 threads, static, dynamic and
# guided, against its serial build. In a short run one program, another one with each commit, and three ways to run it.

COMPILERS = [compiler for compiler in FORTRAN if has(compiler)]
each_compiler = pytest.mark.parametrize("compiler", one_of(COMPILERS) if COMPILERS else [])

BY_HAND = {program.file: program for program in IN_C}


def ways() -> list[tuple[int, str]]:
    return WAYS if LONG else [WAYS[(turn() + 3 * k) % len(WAYS)] for k in range(3)]


def rules(program: Program, rtol: float = 0.0) -> dict[str, object]:
    return {"rtol": rtol or program.rtol, "atol": program.atol, "exclude": program.exclude}


def fits(program: Program, compiler: str) -> None:
    if compiler.startswith("flang") and program.flang:
        pytest.skip(program.flang)


@each_compiler
@pytest.mark.parametrize("program", one_of(PROGRAMS), ids=lambda program: program.name)
def test_nothing_is_reported_in_two_passes(program: Program, compiler: str, tmp_path: Path) -> None:
    """Neither before the run, nor by it, even if its threads are disturbed."""
    fits(program, compiler)
    made = built(program.path, tmp_path, compiler=compiler)
    assert made.warnings == []
    for threads, schedule in ways():
        found = two_passes(
            tmp_path / made.parallel, tmp_path, threads=threads, schedule=schedule, rules=rules(program), noise=50
        )  # fmt: skip
        assert found.code == 0, (threads, schedule, str(found))


@each_compiler
@pytest.mark.parametrize("program", one_of(PROGRAMS), ids=lambda program: program.name)
def test_nothing_is_reported_of_everything(program: Program, compiler: str, tmp_path: Path) -> None:
    """Reads, writes and constructs of the whole run, iteration by iteration."""
    fits(program, compiler)
    from safepoint.threads.compare import Rules, compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(program.path, tmp_path, compiler=compiler)
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full", SP_STATISTICS="1"))
    for threads, schedule in ways():
        b = tmp_path / f"b-{threads}-{schedule}"
        b = traced(tmp_path / made.parallel, b, threads, schedule, "full", SP_STATISTICS="1")
        found = compare(a, Run(b), Rules(**rules(program, program.rtol_of_all)))  # type: ignore[arg-type]
        assert found.code == 0, (threads, schedule, lines(found))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", one_of(PROGRAMS), ids=lambda program: program.name)
def test_an_instrumented_program_prints_what_the_plain_one_prints(
    program: Program, compiler: str, tmp_path: Path
) -> None:
    """Off, and with everything recorded."""
    fits(program, compiler)
    plain = printed([compiled(program.path, tmp_path, compiler=compiler, parallel=False)])
    (tmp_path / "i").mkdir()
    made = built(program.path, tmp_path / "i", compiler=compiler)
    for level in ("off", "minimal", "full"):
        env = surroundings(4, "dynamic", SP_LEVEL=level, SP_DIR=str(tmp_path / level))
        assert alike(plain, printed([tmp_path / "i" / made.parallel], env)), level
        assert alike(plain, printed([tmp_path / "i" / made.serial], env)), level


@pytest.mark.parametrize("program", one_of(IN_C), ids=lambda program: program.file)
def test_nothing_is_reported_of_calls_by_hand(program: InC, tmp_path: Path) -> None:
    made = built(program.path, tmp_path, "-lm", compiler="gcc")
    for threads, schedule in ways():
        found = two_passes(tmp_path / made.parallel, tmp_path, threads=threads, schedule=schedule)
        assert found.code == 0, (threads, schedule, str(found))


def test_calls_by_hand_may_be_met_in_another_order(tmp_path: Path) -> None:
    """Which thread comes first to a call decides its number: what is compared are the calls."""
    from safepoint.threads.compare import compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(BY_HAND["waves.c"].path, tmp_path, "-lm", compiler="gcc")
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full", SP_REGIONS="2"))
    for seed in range(1, 11):
        more = {"SP_REGIONS": "2", "SP_NOISE": "5", "SP_SEED": str(seed)}
        found = compare(a, Run(traced(tmp_path / made.parallel, tmp_path / f"b{seed}", 4, "static", "full", **more)))
        assert found.code == 0, (seed, lines(found))


# Each OpenMP construct alone: serial, with 1, 2 and 4 threads, static, dynamic and guided, all of it traced, is equal.
# In a short run two constructs, other ones with each commit.

NAMES = list(CONSTRUCTS)
CONSTRUCTS_NOW = NAMES if LONG else [NAMES[turn() % len(NAMES)], NAMES[(turn() + 11) % len(NAMES)]]
NOT_INSIDE = {"workshare", "task", "number of a thread"}  # passed through, and said


@pytest.mark.parametrize("name", CONSTRUCTS_NOW, ids=lambda name: name.replace(" ", "-"))
def test_a_construct_alone_is_equal_to_the_serial_program(name: str, tmp_path: Path) -> None:
    from safepoint.threads.compare import Rules, compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(written(name, tmp_path), tmp_path)
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full"))
    for threads, schedule in WAYS:
        trace = traced(tmp_path / made.parallel, tmp_path / f"b-{threads}-{schedule}", threads, schedule, "full")
        found = compare(a, Run(trace), Rules())
        assert found.code == 0, (threads, schedule, lines(found))
    assert made.warnings == [] or name in NOT_INSIDE


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.replace(" ", "-"))
def test_each_construct_has_its_sites(name: str, tmp_path: Path) -> None:
    from safepoint.threads import fortran

    sites = fortran.instrument(written(name, tmp_path)).sites
    wanted = {
        "two loops": ["loop", "loop"], "collapse": ["loop"], "sections": ["section"] * 3, "ordered": ["ordered"],
        "single, copyprivate": ["single"], "master and barrier": ["master", "barrier"], "critical": ["critical"],
        "atomic": ["atomic", "atomic"], "nested": ["region", "region"],
    }.get(name, [])  # fmt: skip
    types = [site.type for site in sites]
    for type in set(wanted):
        assert types.count(type) == wanted.count(type), types
    assert "region" in types
    assert [site.number for site in sites] == list(range(1, len(sites) + 1))


# The planted bugs are found where they are: thirteen of fifteen at the exact line, the others at the region or by a
# warning of `build`. In a short run two of them, other ones with each commit.

COMPILERS = [compiler for compiler in FORTRAN if has(compiler)]
BUGS_NOW = BUGS if LONG else [BUGS[turn() % len(BUGS)], BUGS[(turn() + 7) % len(BUGS)]]


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
@pytest.mark.parametrize("bug", BUGS_NOW, ids=lambda bug: bug.name.replace(" ", "-"))
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
