"""What the calls of `safepoint threads` cost.

    python benchmarks/threads_event.py [--rounds N] [--cc gcc] [--fc gfortran]

event      nanoseconds of processor time for a write of 8 bytes: off; recorded, with the allocation of segments and
           their pages; the same in a first segment, whose pages come one by one.
loop       a Jacobi step of 400 x 400 in Fortran with both bodies, as `build` writes them, all off, beside the same
           without any call: the ratio, without OpenMP and with a team of two. Inner loop untouched, a call for each
           iteration of the outer loop.
pass 1     the same with SP_LEVEL=minimal: a digest of the array at the end of each region.

Processor time, the smallest of all rounds; the programs take turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from safepoint.threads.library import library

EVENT = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "sp_trace.h"
static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}
int main(int count, char **word) {
    long events = atol(word[count - 1]);
    double begin = spent();
    for (long i = 0; i < events; i++)
        sp_write_r8(7, i * 0.5);
    printf("%.3f\n", (spent() - begin) / events);
}
"""
JACOBI = """
program jacobi
{use}
  implicit none
  integer, parameter :: n = 400
  real(8) :: a(n, n), b(n, n), begin, end
  integer :: i, j, step
  integer(8) :: v
  a = 0;  a(:, 1) = 1;  b = a
  call cpu_time(begin)
  do step = 1, 400
{region}
!$omp parallel private(i)
{enter}
!$omp do
    do j = 2, n - 1
{iter}
{inner}      end do
{end_iter}
    end do
!$omp end do
{leave}
!$omp end parallel
{digest}
    a = b
  end do
  call cpu_time(end)
  print *, end - begin, sum(a)
end program jacobi
"""
INNER = """\
      do i = 2, n - 1
        b(i, j) = 0.25d0 * (a(i - 1, j) + a(i + 1, j) + a(i, j - 1) + a(i, j + 1))
"""
CALLS = {
    "use": "  use sp_trace",
    "region": "    v = sp_region(1)",
    "enter": "    call sp_enter(1, v)\n    call sp_loop(2, 2, n - 1, 1)",
    "iter": f"      if (sp_iter(3, j)) then\n{INNER}        call sp_write(4, b(i, j))\n      end do\n      else",
    "end_iter": "      end if",
    "leave": "    call sp_loop_end(2)\n    call sp_leave(1, v)",
    "digest": "    call sp_digest(5, b)\n    call sp_region_end(1, v)",
}


def compiled(place: Path, name: str, text: str, compiler: str, *flags: str) -> Path:
    made = library(compiler)
    source = place / name
    source.write_text(text)
    program = place / f"{source.stem}.x"
    subprocess.run([compiler, "-O2", *flags, str(source), f"-I{made.include}", "-o", str(program), str(made.archive),
                    *made.flags], check=True, cwd=place)  # fmt: skip
    return program


def ran(program: Path, *arguments: str, **variables: str) -> float:
    """The number that it prints first."""
    environ = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **variables}
    done = subprocess.run(
        [program, *arguments], env=environ, cwd=program.parent, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[0])


def events(place: Path, cc: str, rounds: int) -> None:
    program = compiled(place, "event.c", EVENT, cc)
    rows = [("off", "3000000", "off"), ("recorded", "3000000", "full"), ("first segment", "130000", "full")]
    best = dict.fromkeys((name for name, *_ in rows), float("inf"))
    for _ in range(rounds):
        for name, count, level in rows:
            best[name] = min(best[name], ran(program, count, SP_LEVEL=level))
    for name, spent in best.items():
        print(f"event, {name}: {spent:.1f} ns")


def loops(place: Path, fc: str, rounds: int) -> None:
    plain = dict.fromkeys(CALLS, "")
    for what, flags in (("serial", []), ("team of 2", ["-fopenmp"])):
        with_calls = compiled(place, f"calls{len(flags)}.f90", JACOBI.format(inner=INNER, **CALLS), fc, *flags)
        without = compiled(place, f"plain{len(flags)}.f90", JACOBI.format(inner=INNER, **plain), fc, *flags)
        spent = {"plain": float("inf"), "off": float("inf"), "pass 1": float("inf")}
        for _ in range(rounds):
            spent["plain"] = min(spent["plain"], ran(without))
            spent["off"] = min(spent["off"], ran(with_calls, SP_LEVEL="off"))
            spent["pass 1"] = min(spent["pass 1"], ran(with_calls, SP_LEVEL="minimal"))
        for name in ("off", "pass 1"):
            print(f"loop, {what}, {name}: {spent[name] / spent['plain']:.2f} of {spent['plain']:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--fc", default="gfortran")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        events(Path(place), given.cc, given.rounds)
        loops(Path(place), given.fc, given.rounds)


if __name__ == "__main__":
    main()
