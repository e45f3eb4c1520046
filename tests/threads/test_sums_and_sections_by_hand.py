"""Calls by hand: sums of threads have a digest of their own, sections are compared by their numbers, and clauses name
what SP_REGION declares."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.threads_chain import Verdict, built, traced, two_passes

from safepoint.threads import library
from safepoint.threads.compare import Found, compare
from safepoint.threads.trace import Run
from safepoint.threads.values import fits

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


def program(tmp_path: Path, summed: str, text: str = SOURCE, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    path = tmp_path / "step.c"
    path.write_text(text.replace("SUMMED", summed).replace("SECOND", "2"))
    built(path, tmp_path, compiler=compiler)
    return tmp_path / "step"


def at_full(made: Path) -> Found:
    a, b = (traced(path, made.parent / name, 4, "static", "full")
            for path, name in ((made.with_name("step.serial"), "a"), (made, "b")))  # fmt: skip
    return compare(Run(a), Run(b))


def passes(made: Path) -> Verdict:
    return two_passes(made, made.parent)


def test_the_digest_of_a_sum_allows_for_its_rounding_at_all_levels(tmp_path: Path) -> None:
    made = program(tmp_path, "SP_DIGEST_SUM")
    assert at_full(made).code == 0, at_full(made)
    found = passes(made)
    assert found.code == 0 and "3 reductions that differ in the last bits" in str(found), found


def test_a_digest_that_differs_as_sums_do_names_the_macro_for_these(tmp_path: Path) -> None:
    found = passes(program(tmp_path, "SP_DIGEST"))
    assert found.code == 1 and "if s is one, or made of one, SP_DIGEST_SUM allows for it" in str(found), found


def test_the_digest_of_a_sum_still_finds_what_differs_by_more(tmp_path: Path) -> None:
    text = SOURCE.replace("1.0000000000000004", "1.00000001")
    found = passes(program(tmp_path, "SP_DIGEST_SUM", text))
    assert found.code == 1 and "digest s (" in str(found) and "allows for it" not in str(found), found


def test_what_a_section_does_is_compared_by_the_number_of_the_section(tmp_path: Path) -> None:
    made = program(tmp_path, "SP_DIGEST_SUM", SOURCE.replace(*WRONG))
    found = at_full(made).difference
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


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_clauses_may_name_what_a_region_declares_without_the_flag_too(compiler: str, tmp_path: Path) -> None:
    program(tmp_path, "SP_DIGEST_SUM")
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    language = ["-xc++"] if compiler.endswith("+") else []
    line = [compiler, "-Wall", "-Wextra", "-fopenmp", *language, f"-I{library.library('gcc').include}", "-c", "step.c"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
