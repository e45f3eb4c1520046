"""What `safepoint check` costs. `python benchmarks/check.py [--steps 8000] [--long 0] [--rounds N] [--quick]`

afterwards  a halo exchange in C on 4 ranks (Irecv, Isend, Waitall, Allreduce, some Bcast; a derived type, a split
            communicator) is traced, and judged with the standard templates in a process of its own: CPU seconds for
            10⁶ calls, peak memory; and of that, without what reads and translates, for each call and each template
            that watches it. `--long`: the same once more with so many steps; its memory shows what is kept for ever.
rows        a request is opened and completed while 10, and 100,000 others are open: matcher alone, and their ratio.
call        an Allreduce on one rank, in C and in Python: bare, with the library and not watched, watched. In Python
            also what the shortest wrapper costs that writes the same notes, and checks nothing: no way to write them
            in Python is cheaper.
solver      four ranks, or as many as leave the matcher a core of its own, under `safepoint check` with the standard
            templates and without it, in turns: the ratio.
told        from the last call of a situation to its line; from `--hang` to the line of a hang; and by how much longer
            a program of two ranks takes that does nothing.

Times of `afterwards` and `rows` are CPU time, the least of the rounds; of `call` the least; all others are wall time,
the median. 4 ranks need 4 cores: on fewer, `told` measures who waits for whom too.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from launcher import mpiexec

from safepoint.check import language, running
from safepoint.check.call import Call, Value
from safepoint.check.files import ranks
from safepoint.check.follow import OfRank, afterwards
from safepoint.check.rows import Matcher
from safepoint.check.streams import Stream, by_function
from safepoint.check.tail import Tail
from safepoint.trace import launch

OF_TRACE = runpy.run_path(str(Path(__file__).with_name("trace.py")))
SOLVER, SOLVER_IN_C = OF_TRACE["SOLVER"], OF_TRACE["SOLVER_IN_C"]
MPICC, MPIEXEC = "mpicc.mpich", "mpiexec.mpich"

HALO = """
#include <mpi.h>
#include <stdlib.h>
#define N 64
static double u[N][N];
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, steps = atoi(argv[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Datatype column;
    MPI_Type_vector(N, 1, N, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    double mine = rank, all, width = 0.1;
    for (int step = 0; step < steps; step++) {
        MPI_Request r[4];
        MPI_Irecv(&u[0][0], 1, column, left, 1, MPI_COMM_WORLD, &r[0]);
        MPI_Irecv(&u[0][N - 1], 1, column, right, 2, MPI_COMM_WORLD, &r[1]);
        MPI_Isend(&u[0][N - 2], 1, column, right, 1, MPI_COMM_WORLD, &r[2]);
        MPI_Isend(&u[0][1], 1, column, left, 2, MPI_COMM_WORLD, &r[3]);
        MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (step % 10 == 0) MPI_Bcast(&width, 1, MPI_DOUBLE, 0, half);
    }
    MPI_Type_free(&column);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
"""

CALL_IN_C = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    double a = 1, b, best = 1;
    for (int turn = 0; turn < atoi(argv[1]); turn++) {
        double begin = MPI_Wtime();
        for (int i = 0; i < 5000; i++) MPI_Allreduce(&a, &b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
        double took = (MPI_Wtime() - begin) / 5000;
        if (took < best) best = took;
    }
    printf("%g\\n", best * 1e9);
    MPI_Finalize();
    return 0;
}
"""

CALL = """
import sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_SELF
a, b, best = np.zeros(1), np.zeros(1), 1.0
for _ in range(int(sys.argv[1])):
    begin = time.perf_counter()
    for _ in range(5000):
        comm.Allreduce(a, b)
    best = min(best, (time.perf_counter() - begin) / 5000)
print(best * 1e9)
"""

NOTED = """
import itertools, mmap, struct
calls, more, lines = mmap.mmap(-1, 1 << 28), mmap.mmap(-1, 1 << 28), {}
row, note, left = (struct.Struct("<" + layout).pack_into for layout in ("3qqqQQQ", "Q8xI20sQ4xI4xH2s", "Q"))
place, now, plain, frame = itertools.count(0, 64).__next__, time.monotonic_ns, MPI.Comm.Allreduce, sys._getframe
buffer, same = MPI.buffer, bytes(20)
class Noted(MPI.Intracomm):
    def Allreduce(self, sent, got, op=MPI.SUM):
        of = frame(1)
        site, at = lines.setdefault((id(of.f_code), of.f_lasti), 1), place() & 0xFFFFFFF
        row(more, at, 6, at, 4, buffer(sent).address, buffer(got).address, sent.size, op.handle, self.handle)
        note(calls, at, now(), site, same, sent.nbytes, 1, 0, b"01")
        result = plain(self, sent, got, op)
        left(calls, at + 8, now())
        calls[at + 63] = 2
        return result
comm = Noted(MPI.COMM_SELF)
"""

BARRIER = """
import sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("stamp", time.time(), flush=True)
time.sleep(float(sys.argv[1]))
"""

HANGS = """
import time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 0:
    print("stamp", time.time(), flush=True)
comm.recv(source=1 - comm.rank)
"""

NOTHING = "from mpi4py import MPI"

WATCHED = "Name=Watched\nKind=note\n1block\nN=1\n2block\nF1=p1:{}\n3block\nF1({})={}\n"
NUMBER = re.compile(r"[0-9.]+(e-?[0-9]+)?")
TOLD = "Name=Told\nKind=note\n1block\nN=1\n2block\nF1=p1:Barrier\n"


def compiled(top: Path, name: str, text: str) -> Path:
    (top / f"{name}.c").write_text(text)
    subprocess.run([MPICC, "-O2", "-g", "-w", str(top / f"{name}.c"), "-o", str(top / name), "-lm"], check=True)
    return top / name


def there() -> bool:
    """MPICH for C is."""
    return shutil.which(MPICC) is not None and shutil.which(MPIEXEC) is not None


def traced(trace: Path, words: list[str], tracer: str, templates: Iterable[str]) -> str:
    """Run a program as `safepoint check` does, but without its matcher; what it has printed."""
    shutil.rmtree(trace, ignore_errors=True)
    trace.mkdir()
    running.prepare(trace, language.load(templates), 0)
    environment = launch.environment(trace, words, tracer, MPICC if tracer == "c" else "", 8 << 30, arguments=True)
    return subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


# Afterwards.


def judged(trace: Path) -> None:
    """In a process of its own: prints calls, their templates, CPU seconds of reading and of all, MB."""
    templates = language.load(["standard"])
    wanted = by_function([Stream(one, Matcher(one, 1, lambda _: None)) for one in templates])
    begin, watching = time.process_time(), 0
    for rank in ranks(trace):
        tail = Tail(trace, rank)
        of_rank = OfRank(tail, {})
        while notes := tail.read(1024):
            for one in of_rank.calls(notes):
                watching += len(wanted.get(one.function, ()))
    reading = time.process_time() - begin
    begin = time.process_time()
    follower, found, missing = afterwards(trace, templates)
    took = time.process_time() - begin
    assert not found and not missing, (found, missing)
    status = Path("/proc/self/status").read_text()  # its own peak: that of getrusage has the parent's before exec in it
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(follower.calls, watching, reading, took, peak / 1024)


def after(top: Path, steps: int, rounds: int) -> None:
    if not there():
        print(f"afterwards: left out: there is no {MPICC}")
        return
    trace = top / "halo-trace"
    traced(trace, [MPIEXEC, "-n", "4", str(compiled(top, "halo", HALO)), str(steps)], "c", ["standard"])
    rows = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, __file__, "--judge", str(trace)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows.append([float(word) for word in done.stdout.split()])
    calls, watching = rows[0][:2]
    reading, took = min(row[2] for row in rows), min(row[3] for row in rows)
    print(
        f"afterwards, {calls:,.0f} calls: {took / calls * 1e6:.1f} CPU s for 10⁶ (goal 60), of which reading "
        f"{reading / calls * 1e6:.1f}; {(took - reading) / watching * 1e6:.2f} µs for each of {watching / calls:.1f} "
        f"templates that watch a call (goal 3); {max(row[4] for row in rows):.0f} MB (goal 300)",
        flush=True,
    )


# Rows.


class Request:
    """The arguments of a call that has a request alone."""

    def __init__(self, number: int) -> None:
        tokens = frozenset({("request", number)})
        self._value = Value(tokens, frozenset())

    def value(self, name: int | str) -> Value | None:
        return self._value if name == "request" else None

    def lasts(self, name: int | str) -> bool:
        return False


def call(number: int, function: str, request: int) -> Call:
    return Call(0, number, function, 0, number, number + 1, 0, False, 0, Request(request))


def beside(count: int, rounds: int) -> float:
    """CPU µs of the matcher for a call, with so many rows that are open."""
    (template,) = language.load(["request-not-completed"])
    matcher, begun = Matcher(template, 1, lambda _: None), 2 * count
    for number in range(count):
        matcher.feed(call(number, "Isend", number))
    best = 1.0
    for _ in range(rounds):
        calls = [
            one for at in range(begun, begun + 20_000, 2) for one in (call(at, "Isend", at), call(at + 1, "Wait", at))
        ]
        begin = time.process_time()
        for one in calls:
            matcher.feed(one)
        best, begun = min(best, (time.process_time() - begin) / len(calls)), begun + 20_000
    assert len(matcher.ended(0)) == 0  # nobody has called Finalize: no row is complete
    return best * 1e6


def flat(rounds: int) -> None:
    few, many = beside(10, rounds), beside(100_000, rounds)
    print(f"rows: {few:.2f} µs a call with 10 open rows, {many / few:.2f} times that with 100,000 (goals 3, 1.2)",
          flush=True)  # fmt: skip


# A call of the program.


def calls(top: Path, rounds: int) -> None:
    watching, other = top / "watched.tpl", top / "other.tpl"
    watching.write_text(WATCHED.format("Allreduce", "count", -7))
    other.write_text(WATCHED.format("Ssend", "count", -7))
    ways = [("Python", "python", [sys.executable, "-c", CALL], "1300 ns, 1.00 times")]
    if there():
        ways.append(("C", "c", [str(compiled(top, "calls", CALL_IN_C))], "150 ns, 10 ns"))
    for name, tracer, words, goals in ways:
        best = [1e9] * 3
        for _ in range(rounds):
            done = subprocess.run([*words, "40"], stdout=subprocess.PIPE, text=True, check=True).stdout
            texts = done, *(traced(top / "call", [*words, "40"], tracer, [str(one)]) for one in (other, watching))
            best = [min(known, float(text)) for known, text in zip(best, texts, strict=True)]
        bare, unwatched, watched = best
        print(
            f"call in {name}: {watched - bare:.0f} ns more where it is watched, {unwatched - bare:.0f} ns or "
            f"{unwatched / bare:.2f} times where it is not, of a bare {bare:.0f} ns (goals {goals})",
            flush=True,
        )
        if tracer == "python":
            program = CALL.replace("comm = MPI.COMM_SELF", NOTED)
            runs = (subprocess.run([sys.executable, "-c", program, "40"], stdout=subprocess.PIPE, text=True, check=True)
                    for _ in range(rounds))  # fmt: skip
            least = min(float(run.stdout) for run in runs)
            print(f"call in Python: the shortest wrapper that writes the same notes costs {least - bare:.0f} ns more, "
                  f"ours {(watched - bare) / (least - bare):.2f} of that", flush=True)  # fmt: skip


# A program.


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "safepoint", "check", *options, "--"]


def took(words: list[str]) -> float:
    """Seconds that a solver says it took."""
    told = subprocess.run(words, capture_output=True, text=True)
    numbers = [line for line in told.stdout.splitlines() if NUMBER.fullmatch(line)]
    assert told.returncode == 0 and numbers, (told.stdout, told.stderr)
    return float(numbers[0])


def solver(top: Path, rounds: int, steps: int) -> None:
    cores = len(os.sched_getaffinity(0))
    count = str(min(4, max(1, cores - 1)))
    ways = [("Python", [mpiexec(), "-n", count, sys.executable, "-c", SOLVER, str(steps)], 1.10)]
    if there():
        ways.append(("C", [MPIEXEC, "-n", count, str(compiled(top, "heat", SOLVER_IN_C)), str(steps)], 1.05))
    for name, words, goal in ways:
        options = ("--mpicc", MPICC) if name == "C" else ()
        ratios = sorted(1 / took(words) * took([*command(*options), *words]) for _ in range(rounds))
        print(f"solver in {name}: under check / not {statistics.median(ratios):.3f} ({ratios[0]:.3f} to "
              f"{ratios[-1]:.3f}; goal {goal:.2f}), {count} of 4 ranks on {cores} cores", flush=True)  # fmt: skip


def until(words: list[str], said: str) -> float:
    """Seconds from the stamp that the program prints to a line of `safepoint check`."""
    stamp = told = 0.0
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = told or (time.time() if said in line else 0.0)
            stamp = float(line.split()[1]) if line.startswith("stamp") else stamp
    assert told and stamp, said
    return told - stamp


def told(top: Path, rounds: int) -> None:
    (top / "told.tpl").write_text(TOLD)
    two = [mpiexec(), "-n", "2", sys.executable, "-c"]
    lines = [until([*command("-t", str(top / "told.tpl")), *two, BARRIER, "1"], "[told]") for _ in range(rounds)]
    print(f"told: a situation {statistics.median(lines):.2f} s after its last call, at most {max(lines):.2f} (goal 1)")
    hangs = [until([*command("--hang", "3"), *two, HANGS], "no progress") - 3 for _ in range(rounds)]
    print(f"told: a hang {statistics.median(hangs):.2f} s after --hang, {min(hangs):.2f} to {max(hangs):.2f} (goal 1)")
    more = []
    for _ in range(rounds):
        times = []
        for before in ([], command()):
            begin = time.perf_counter()
            subprocess.run([*before, *two, NOTHING], capture_output=True, check=True)
            times.append(time.perf_counter() - begin)
        more.append(times[1] - times[0])
    print(f"told: a program that does nothing takes {statistics.median(more):.2f} s more, {min(more):.2f} to "
          f"{max(more):.2f} (goal 0.5)", flush=True)  # fmt: skip


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as they are where this is installed
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8000, help="of the halo exchange: 40 calls each")
    parser.add_argument("--long", type=int, default=0, help="steps of a second one, for its memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer steps: whether it works")
    parser.add_argument("--judge", metavar="TRACE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.judge:
        judged(Path(given.judge))
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as top:
        flat(given.rounds)
        for steps in filter(None, (300 if given.quick else given.steps, given.long)):
            after(Path(top), steps, 1 if steps == given.long else given.rounds)
        calls(Path(top), given.rounds)
        told(Path(top), given.rounds)
        solver(Path(top), given.rounds, 50 if given.quick else 500)


if __name__ == "__main__":
    main()
