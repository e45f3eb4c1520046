"""What does it cost to compare the threads of a program? A Jacobi of 400×400 in Fortran, two regions a step.

    python benchmarks/threads.py [--steps 60] [--size 400] [--threads 2] [--rounds 5] [--results DIR]

Processor time of the whole program, user and system, as a ratio to the same source compiled plainly with -O2 -fopenmp:

1. `off`: the calls are there, and nothing is recorded. Goal: at most 1.3.
2. `pass 1`: digests at the end of each region. Goal: at most 3.
3. `one region`: all reads and writes of one region in the middle. Goal: at most 5.
4. `edges 2`: all reads and writes of the first and last two iterations of each loop.
5. Events: nanoseconds for each, all of them recorded in a shorter run. Goal: at most 40.
6. Comparing: megabytes a second and side, of the traces of 5. Goal: at least 70.

Rounds take turns: each runs all of these once. The ratios are of the least times. All are of one run of this script.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from safepoint.threads import kinds
from safepoint.threads.building import build
from safepoint.threads.compare import Rules, compare
from safepoint.threads.trace import Run

JACOBI = """\
program jacobi
  implicit none
  integer, parameter :: n = {size}, steps = {steps}
  real(8) :: a(n, n), b(n, n)
  integer :: i, j, step
  a = 0; b = 0
  a(:, 1) = 1; b(:, 1) = 1
  do step = 1, steps
!$omp parallel do private(i)
    do j = 2, n - 1
      do i = 2, n - 1
        b(i, j) = 0.25d0 * (a(i - 1, j) + a(i + 1, j) + a(i, j - 1) + a(i, j + 1))
      end do
    end do
!$omp end parallel do
!$omp parallel do private(i)
    do j = 2, n - 1
      do i = 2, n - 1
        a(i, j) = b(i, j)
      end do
    end do
!$omp end parallel do
  end do
  print *, sum(a)
end program jacobi
"""
LINE = ("gfortran", "-O2", "-fopenmp")


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="safepoint-bench-threads-") as top:
        os.chdir(top)
        made = programs(options.size, options.steps, "long")
        short = programs(options.size, 2, "short")
        found = ratios(made, options.steps, options.threads, options.rounds)
        events = per_event(short, options.threads, options.rounds)
    for name, (seconds, ratio, size) in found.items():
        print(f"{name:14} {seconds:8.3f} s  ratio {ratio:6.2f}  trace {size / 1e6:9.1f} MB")
    print(f"an event takes {events['ns']:.0f} ns ({events['events']} events)")
    print(f"comparing: {events['MB/s']:.0f} MB a second and side")
    if options.results:
        write(Path(options.results), options, found, events)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", default="", help="a directory for a file of JSON")
    options = parser.parse_args()
    if shutil.which(LINE[0]) is None:
        sys.exit("this needs gfortran")
    return options


def programs(size: int, steps: int, name: str) -> tuple[str, str]:
    """The plain program, and the one that can record."""
    source = Path(f"{name}.f90")
    source.write_text(JACOBI.format(size=size, steps=steps))
    subprocess.run([*LINE, str(source), "-o", f"{name}.plain"], check=True)
    build([*LINE, str(source)], Path(name))
    return f"./{name}.plain", f"./{name}"


def ratios(made: tuple[str, str], steps: int, threads: int, rounds: int) -> dict[str, tuple[float, float, int]]:
    """Seconds, ratio to the plain program, and bytes of trace, of each way."""
    plain, program = made
    ways = {
        "plain": (plain, {}),
        "off": (program, {"SP_LEVEL": "off"}),
        "pass 1": (program, {"SP_LEVEL": "minimal"}),
        "one region": (program, {"SP_LEVEL": "full", "SP_REGIONS": str(steps)}),
        "edges 2": (program, {"SP_LEVEL": "full", "SP_EDGES": "2"}),
    }
    least = dict.fromkeys(ways, float("inf"))
    sizes = dict.fromkeys(ways, 0)
    for _ in range(rounds):
        for name, (command, more) in ways.items():
            seconds, sizes[name] = ran(command, threads, more)
            least[name] = min(least[name], seconds)
    return {name: (least[name], least[name] / least["plain"], sizes[name]) for name in ways}


def per_event(made: tuple[str, str], threads: int, rounds: int) -> dict[str, float]:
    """All events of a short run: nanoseconds for each, and how fast two such traces are compared."""
    off = min(ran(made[1], threads, {"SP_LEVEL": "off"})[0] for _ in range(rounds))
    full, size = min(ran(made[1], threads, {"SP_LEVEL": "full", "SP_DIR": f"{n}.threads"}) for n in range(2))
    runs = [Run(f"{n}.threads") for n in range(2)]
    events = sum(int((thread.records["kind"] != kinds.MORE).sum()) for thread in runs[0].threads)
    begin = time.process_time()
    found = compare(*runs, Rules(), None)
    seconds = time.process_time() - begin
    assert found.difference is None
    return {"events": events, "ns": (full - off) / events * 1e9, "MB/s": size / seconds / 1e6}


def ran(command: str, threads: int, more: dict[str, str]) -> tuple[float, int]:
    """Processor time of a run, and the bytes of its trace."""
    trace = Path(more.get("SP_DIR", "bench.threads"))
    shutil.rmtree(trace, ignore_errors=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "SP_DIR": str(trace)}
    child = subprocess.Popen([command], env=environment | more, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (command, child.returncode)
    recorded = Run(trace).threads if trace.exists() else []
    return usage.ru_utime + usage.ru_stime, sum(len(each.records) * kinds.RECORD for each in recorded)


def write(results: Path, options: argparse.Namespace, found: dict[str, tuple[float, float, int]],
          events: dict[str, float]) -> None:  # fmt: skip
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{date.today()}-threads.json"
    content = {
        "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "options": vars(options),
        "ways": {name: {"seconds": s, "ratio": r, "trace": b} for name, (s, r, b) in found.items()}, "events": events,
    }  # fmt: skip
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
