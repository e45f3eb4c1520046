"""Nothing is reported on programs that are right: each of the corpus, with 1, 2 and 4 threads, static, dynamic and
guided, against its serial build. In a short run one program, another one with each commit, and three ways to run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sweep import LONG, one_of, turn
from testbed.threads_chain import WAYS, built, traced, two_passes
from testbed.threads_corpus import FORTRAN, IN_C, PROGRAMS, InC, Program, alike, compiled, has, printed, surroundings

pytestmark = pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
pytest.importorskip("fparser")
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
