"""A call by hand that was forgotten: it is named, and nothing is taken for equal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.traced_threads import needs

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


def built_and_tested(here: Path, text: str) -> subprocess.CompletedProcess[str]:
    needs("gcc")
    (here / "smooth.c").write_text(text)
    for words in (["build", "-o", "smooth", "--", "gcc", "-O1", "-fopenmp", "smooth.c"], ["test", "--", "./smooth"]):
        line = [sys.executable, "-m", "safepoint", "threads", *words]
        done = subprocess.run(line, cwd=here, capture_output=True, text=True, timeout=300)
    return done


def test_with_all_calls_the_runs_are_equal(tmp_path: Path) -> None:
    done = built_and_tested(tmp_path, PROGRAM)
    assert done.returncode == 0 and "20 regions;  no difference" in done.stdout


def test_a_source_without_calls_is_told(tmp_path: Path) -> None:
    needs("gcc")
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    line = [sys.executable, "-m", "safepoint", "threads", "build", "-o", "x", "--", "gcc", "-fopenmp", "x.c"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "x.c: no SP_ call in it, so nothing is recorded (C is not instrumented)\n"


def test_the_flags_of_compiler_and_linker_come_apart(tmp_path: Path) -> None:
    needs("gcc")
    line = [sys.executable, "-m", "safepoint", "threads", "build"]
    both, compiler, linker = (
        subprocess.run([*line, option, "gcc"], capture_output=True, text=True, timeout=300).stdout.split()
        for option in ("--print-flags", "--cflags", "--libs")
    )
    assert [*compiler, *linker] == both and compiler[0].startswith("-I") and linker[0].endswith("libsp_trace.a")


def test_a_thread_that_does_not_leave_is_told(tmp_path: Path) -> None:
    done = built_and_tested(tmp_path, PROGRAM.replace("            SP_LEAVE\n", ""))
    assert done.returncode == 2 and "Cannot tell: the recording of A was stopped: SP_LEAVE is missing" in done.stdout, (
        done.stdout
    )


def test_a_region_that_does_not_end_is_told(tmp_path: Path) -> None:
    done = built_and_tested(tmp_path, PROGRAM.replace("        SP_REGION_END\n", "        continue; SP_REGION_END\n"))
    assert done.returncode == 2 and "smooth.c:6: SP_REGION_END is missing in A" in done.stdout, done.stdout


def test_a_loop_that_does_not_end_is_told(tmp_path: Path) -> None:
    """In a trace of all writes, as digests have no loops."""
    end = "            SP_LOOP_END\n"
    built_and_tested(
        tmp_path, PROGRAM.replace(end, "            if (0) sp_loop_end(sp_loop_); }\n").replace("+= i", "+= 1")
    )
    for name in ("a", "b"):
        variables = {"SP_LEVEL": "modify", "SP_DIR": name, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        subprocess.run(["./smooth"], cwd=tmp_path, env=variables, check=True, capture_output=True, timeout=60)
    line = [sys.executable, "-m", "safepoint", "threads", "compare", "a", "b"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "SP_LOOP_END is missing in A" in done.stderr, done.stderr
