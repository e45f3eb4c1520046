"""What watching a value costs, and comparing two runs: `python benchmarks/ledger.py`.

(1) safepoint.watch of 80 MB against a bare xxh3 of the same array, in turn; and at level off, in ns a call.
(2) comparing two ledgers of 100,000 sets of 4 files: seconds, and how much more memory than two of 1,000.
(3) comparing two files of 1 GB in memory with a tolerance: GB/s of each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import xxhash

import safepoint
from safepoint.ledger import contents

ROUNDS = 15
COMPARE = """\
import resource, sys, time
from safepoint.ledger.compare import compare
from safepoint.ledger.sides import Side
begin = time.perf_counter()
found = compare(Side(sys.argv[1]), Side(sys.argv[2]))
print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, found.steps, found.differs)
"""


def watching(directory: Path) -> None:
    (directory / ".safepoint").write_text("u.dat\n")
    u = numpy.random.default_rng(1).standard_normal(10_000_000)
    times: dict[str, list[float]] = {}
    sessions = {}
    for level in ("modify", "full", "off"):
        os.environ["SAFEPOINT_LEDGER"] = level
        work = directory / level
        work.mkdir()
        (work / ".safepoint").write_text("u.dat\n")
        sessions[level] = safepoint.init(work)
    for _ in range(ROUNDS):
        for name in ("bare xxh3", "modify", "full"):
            begin = time.perf_counter()
            if name == "bare xxh3":
                xxhash.xxh3_128_hexdigest(u)
            else:
                sessions[name].watch(1, u=u)
            times.setdefault(name, []).append(time.perf_counter() - begin)
    bare = statistics.median(times["bare xxh3"])
    for level in ("modify", "full"):
        print(f"watch of 80 MB, {level:6} : bare xxh3   {statistics.median(times[level]) / bare:.2f}   (goal: 3)")
    calls = 200_000
    begin = time.perf_counter()
    for step in range(calls):
        safepoint.watch(step, u=u)  # the last session is off
    print(f"watch, off: {(time.perf_counter() - begin) / calls * 1e9:.0f} ns   (goal: 1000)")
    for session in sessions.values():
        session.close()


def comparing(directory: Path) -> None:
    figures = []
    for sets in (1_000, 100_000):
        for name in "ab":
            side = directory / f"{name}-{sets}"
            side.mkdir()
            with (side / "log.jsonl").open("w") as file:
                for n in range(sets):
                    sums = [[f"fields/u-{k}.npy", 1_000_000, f"{n * 4 + k:032x}"] for k in range(4)]
                    line = {"time": 1e9 + n, "event": "saved", "pid": 1, "set": n + 1, "step": n, "files": 4,
                            "bytes": 4e6,
                            "stored": 4e6, "seconds": 0.1, "at": "solver.py:31", "sums": sums}  # fmt: skip
                    file.write(json.dumps(line) + "\n")
        command = [sys.executable, "-c", COMPARE, *(str(directory / f"{name}-{sets}") for name in "ab")]
        done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert done[2:] == [str(sets), "False"]
        figures.append((float(done[0]), float(done[1])))
    print(f"comparing two ledgers of 100,000 sets of 4 files: {figures[1][0]:.2f} s   (goal: 2)")
    print(f"its memory beyond that of 1,000 sets: {figures[1][1] - figures[0][1]:.1f} MB")


def tolerating(directory: Path) -> None:
    a = numpy.random.default_rng(1).standard_normal(125_000_000)
    numpy.save(directory / "a.npy", a)
    a *= 1 + 1e-12
    numpy.save(directory / "b.npy", a)
    del a
    paths = str(directory / "a.npy"), str(directory / "b.npy")
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        found = contents.compare(*paths, "u.npy", rtol=1e-9)
        rates.append(1.0 / (time.perf_counter() - begin))
        assert found.equal and not found.same_bytes
    print(f"1 GB with a tolerance: {statistics.median(rates):.2f} GB/s of each (best {max(rates):.2f})   (goal: 1)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as top:
        for part in (watching, comparing, tolerating):
            directory = Path(top, part.__name__)
            directory.mkdir()
            part(directory)
