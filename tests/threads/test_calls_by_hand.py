"""Calls by hand, by the macros of `sp_trace.h`: what they record, what is missing, sums, sections and clauses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from testbed.sweep import some_of
from testbed.threads_chain import built, command, recorded, traced, two_passes, whole, written
from testbed.traced_threads import Event, compiled, events, needs, ran, run_of

from safepoint.threads import kinds, library
from safepoint.threads.trace import Run
from safepoint.threads.values import fits

# The macros of `sp_trace.h`: no warning of a compiler comes from them, and a long double is one of the values.

WARNING = ("-Wall", "-Wextra", "-Wno-unknown-pragmas")
COMPILERS = pytest.mark.parametrize("compiler", some_of(["gcc", "clang", "g++", "clang++"], 2, 4))


def language(compiler: str) -> list[str]:
    return ["-xc++"] if compiler.endswith("+") else []


def only_recorded(compiler: str, fill: int, at: Path) -> list[Event]:
    at.mkdir()
    program = compiled("only_recorded.c", compiler, *WARNING, f"-DSP_FILL={fill}", *language(compiler))
    (thread,) = run_of(program, at, SP_STATISTICS="1").threads
    return events(thread)


@COMPILERS
def test_arguments_that_are_only_recorded_are_used_without_the_flag_too(compiler: str, tmp_path: Path) -> None:
    """`compiled` takes no warning."""
    program = compiled("only_recorded.c", compiler, *WARNING, "-USP_TRACE", "-DSP_FILL=0", *language(compiler))
    assert ran(program, tmp_path, SP_LEVEL="full").stdout == "done\n"


@COMPILERS
def test_a_long_double_is_recorded_without_the_bytes_that_are_not_of_it(compiler: str, tmp_path: Path) -> None:
    found, other = (only_recorded(compiler, fill, tmp_path / str(fill)) for fill in (0, 255))
    values = [event.value for event in found if event.kind in (kinds.WRITE, kinds.READ)]
    assert values == [0.1, 1.1, 2.1, 8, -0.1]
    assert [event.kind for event in found].count(kinds.BARRIER) == 2
    assert found[-2].kind == kinds.DIGEST and found[-2].extra == 2
    assert found == other


# A call by hand that was forgotten: it is named, and nothing is taken for equal.

PROGRAM = """\
#include "sp_trace.h"
#include <stdio.h>
int main(void) {
    double b[50] = {0};
    for (int k = 0; k < 20; k++) {
        SP_REGION("smooth")
        #pragma omp parallel
        {
            SP_ENTER
            SP_LOOP("rows", 0, 49, 1)
            #pragma omp for
            for (int i = 0; i < 50; i++) {
                b[i] += i;
                if (SP_ITER(i)) SP_WRITE(b[i]);
            }
            SP_LOOP_END
            SP_LEAVE
        }
        SP_DIGEST(b, 50);
        SP_REGION_END
    }
    printf("%g\\n", b[7]);
}
"""


def run_both(here: Path, text: str = PROGRAM) -> tuple[int, str]:
    built(written(here, "smooth.c", text), here, compiler="gcc")
    done = command(here, "test", "--", "./smooth")
    return done.exit_code, done.stdout


def test_with_all_calls_the_runs_are_equal(tmp_path: Path) -> None:
    code, said = run_both(tmp_path)
    assert code == 0 and "20 regions;  no difference" in said
    assert not (tmp_path / "smooth.sites.jsonl").exists()
    sites = Run(recorded(tmp_path / "smooth")[1]).sites.by_number.values()
    assert {site.name for site in sites} >= {"smooth", "rows", "b[i]", "b"}


@pytest.mark.parametrize(
    ("digest", "code", "told"),
    [("", 2, "Cannot tell: no region has a digest (SP_DIGEST before SP_REGION_END), so nothing"),
     ("if (k == 1) SP_DIGEST(&k, 1);", 0,
      "  19 of 20 regions have no digest (SP_DIGEST before SP_REGION_END), and what they assign was not compared: "),
     ("SP_DIGEST(b, 50);", 1, "first difference: region 1, ")],
)  # fmt: skip
def test_what_has_no_digest_is_not_taken_for_equal(digest: str, code: int, told: str, tmp_path: Path) -> None:
    """A mistake is found if each region has one; without, it is said how many regions were not compared."""
    text = PROGRAM.replace("b[i] += i;", "b[i] += i;\n#ifdef _OPENMP\n                b[i] += 1;\n#endif")
    text = text.replace("SP_DIGEST(b, 50);", digest).replace("printf(", "fprintf(stderr, ")
    found = run_both(tmp_path, text)
    assert found[0] == code and told in found[1], found
    assert ("no digest" in found[1]) == (code == 0) or not digest, found
    assert ("No inconsistencies" in found[1]) == (code == 0), found


def test_a_source_without_calls_is_told(tmp_path: Path) -> None:
    needs("gcc")
    written(tmp_path, "x.c", "int main(void) { return 0; }\n")
    done = command(tmp_path, "build", "-o", "x", "--", "gcc", "-fopenmp", "x.c")
    assert done.stdout == "x.c: no SP_ call in it, so nothing is recorded (C is not instrumented)\n"


def test_the_flags_of_compiler_and_linker_come_apart(tmp_path: Path) -> None:
    needs("gcc")
    options = "--print-flags", "--cflags", "--libs"
    both, compiler, linker = (command(tmp_path, "build", option, "gcc").stdout.split() for option in options)
    assert [*compiler, *linker] == both and compiler[0].startswith("-I") and linker[0].endswith("libsp_trace.a")
    written(tmp_path, "smooth.c", PROGRAM)
    subprocess.run(["gcc", "-fopenmp", "-DSP_TRACE", "smooth.c", "-o", "x", *both], cwd=tmp_path, check=True)
    assert ran(tmp_path / "x", tmp_path).stdout == "140\n"


@pytest.mark.parametrize(
    ("end", "instead", "told"),
    [("            SP_LEAVE\n", "", "Cannot tell: the recording of A was stopped: SP_LEAVE is missing"),
     ("        SP_REGION_END\n", "        continue; SP_REGION_END\n", "smooth.c:6: SP_REGION_END is missing in A")],
)  # fmt: skip
def test_a_thread_that_does_not_leave_and_a_region_that_does_not_end_are_told(
    end: str, instead: str, told: str, tmp_path: Path
) -> None:
    code, said = run_both(tmp_path, PROGRAM.replace(end, instead))
    assert code == 2 and told in said, said


def test_a_loop_that_does_not_end_is_told(tmp_path: Path) -> None:
    """In a trace of all writes, as digests have no loops."""
    end = "            SP_LOOP_END\n"
    text = PROGRAM.replace(end, "            if (0) sp_loop_end(sp_loop_); }\n").replace("+= i", "+= 1")
    built(written(tmp_path, "smooth.c", text), tmp_path, compiler="gcc")
    for name in ("a", "b"):
        traced(tmp_path / "smooth", tmp_path / name, 1, "static", "modify")
    done = command(tmp_path, "compare", "a", "b")
    assert done.exit_code == 2 and "SP_LOOP_END is missing in A" in done.stderr, done.stderr


# Calls by hand: sums of threads have a digest of their own, sections are compared by their numbers, and clauses name
# what SP_REGION declares.

SOURCE = """\
#include <stdio.h>
#include "sp_trace.h"

#ifdef _OPENMP
#define BY 1.0000000000000004
#else
#define BY 1
#endif

int main(void) {
    double a[2] = {0, 0}, s = 0;
    for (int step = 0; step < 3; step++) {
        SP_REGION("step")
#pragma omp parallel default(none) shared(a, s, step, sp_region_, sp_visit_)
        {
            SP_ENTER
            SP_BEGIN(SECTIONS, "both")
#pragma omp sections
            {
#pragma omp section
                {
                    SP_SECTION(1);
                    a[0] += 1;
                    SP_WRITE(a[0]);
                }
#pragma omp section
                if (SP_SECTION(2)) {
                    a[1] += SECOND;
                    SP_WRITE(a[1]);
                } else
                    a[1] += SECOND;
            }
            SP_END
            SP_LEAVE
        }
        s = (s + 0.1) * BY;
        SP_DIGEST(a, 2);
        SUMMED(&s, 1);
        SP_REGION_END
        SP_WRITE(s);
    }
    printf("%g %.9f\\n", a[1], s);
    return 0;
}
"""
WRONG = ("a[1] += SECOND;\n                    SP", "a[1] += SECOND + (BY > 1);\n                    SP")


def program(tmp_path: Path, summed: str, text: str = SOURCE) -> Path:
    path = written(tmp_path, "step.c", text.replace("SUMMED", summed).replace("SECOND", "2"))
    built(path, tmp_path, compiler="gcc")
    return tmp_path / "step"


def test_the_digest_of_a_sum_allows_for_its_rounding_at_all_levels(tmp_path: Path) -> None:
    made = program(tmp_path, "SP_DIGEST_SUM")
    assert whole(made).code == 0
    found = two_passes(made, tmp_path)
    assert found.code == 0 and "3 reductions that differ in the last bits" in str(found), found


def test_a_digest_that_differs_as_sums_do_names_the_macro_for_these(tmp_path: Path) -> None:
    found = two_passes(program(tmp_path, "SP_DIGEST"), tmp_path)
    assert found.code == 1 and "if s is one, or made of one, SP_DIGEST_SUM allows for it" in str(found), found


def test_the_digest_of_a_sum_still_finds_what_differs_by_more(tmp_path: Path) -> None:
    found = two_passes(program(tmp_path, "SP_DIGEST_SUM", SOURCE.replace("1.0000000000000004", "1.00000001")), tmp_path)
    assert found.code == 1 and "digest s (" in str(found) and "allows for it" not in str(found), found


def test_what_a_section_does_is_compared_by_the_number_of_the_section(tmp_path: Path) -> None:
    found = whole(program(tmp_path, "SP_DIGEST_SUM", SOURCE.replace(*WRONG))).difference
    assert found and found.iteration and found.iteration.section and found.iteration.numbers == (2,), found


def test_a_scalar_is_called_by_its_name_in_options_too(tmp_path: Path) -> None:
    made = program(tmp_path, "SP_DIGEST", SOURCE.replace("1.0000000000000004", "1.00000001"))
    for rules in ({"exclude": ("s",)}, {"tolerances": (("s", 1e-6, 0.0),)}):
        found = two_passes(made, tmp_path, rules={**rules, "rtol": 1e-9})
        said = str(found)
        assert "first difference" not in said and "fits no variable" not in said and "&s" not in said, found
        assert "by statistics" not in said, found
    assert "3 values differ in bits, and are the same within the tolerance" in said, found


def test_an_element_is_called_by_the_name_of_its_array_in_options() -> None:
    assert fits("a[1]", "a") and fits("a(1)", "a") and not fits("ab[1]", "a")


@COMPILERS
def test_clauses_may_name_what_a_region_declares_without_the_flag_too(compiler: str, tmp_path: Path) -> None:
    needs(compiler)
    written(tmp_path, "step.c", SOURCE.replace("SUMMED", "SP_DIGEST_SUM").replace("SECOND", "2"))
    line = [
        compiler,
        *WARNING[:2],
        "-fopenmp",
        *language(compiler),
        f"-I{library.library('gcc').include}",
        "-c",
        "step.c",
    ]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
