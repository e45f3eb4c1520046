"""How quickly are two traces compared? Megabytes a second of each side; the comparer of 2009 had 7.

    .venv/bin/python benchmarks/threads_compare.py [--mb 200]

A is a serial run, B one of four threads; iterations of 8 writes, as of a stencil, or of one; static and dynamic
schedules; equal in all bits, or with a tolerance since each value differs in its last bit. Traces lie in
/dev/shm. The time of the comparison is that of the processor, best of three: other programs may run beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from safepoint.threads import kinds
from safepoint.threads.compare import Rules, compare
from safepoint.threads.trace import RECORD, Run

SITES = [(1, "region", ""), (2, "loop", "j"), (3, "iteration", "j"), (4, "variable-write", "b(j)"), (5, "array", "b")]


def row(site: int, kind: int, value: int, type: int = 0, extra: int = 0) -> np.ndarray:
    return np.array([(site, extra, type, kind, value)], RECORD)


def iterations(numbers: np.ndarray, values: int, ulps: int) -> np.ndarray:
    """Iterations of so many values each."""
    found = np.zeros((len(numbers), values + 1), RECORD)
    found["site"][:, 0], found["kind"][:, 0], found["extra"][:, 0] = 3, kinds.ITER, 1
    found["value"][:, 0] = numbers
    found["site"][:, 1:], found["kind"][:, 1:], found["type"][:, 1:] = 4, kinds.WRITE, kinds.REAL8
    real = 1.0 / (numbers[:, None] * values + np.arange(values) + 1)
    found["value"][:, 1:] = real.view(np.uint64) + np.uint64(ulps)
    return found.ravel()


def trace(place: Path, threads: int, schedule: str, regions: int, loop: int, values: int, ulps: int) -> int:
    """Write one; returns its bytes."""
    place.mkdir()
    about = {"format": 1, "build": "b", "level": {}, "ended": "exit", "stopped": None, "edges": None}
    (place / "run.json").write_text(json.dumps(about))
    lines = [{"format": 1, "build": "b"}]
    lines += [
        {"number": n, "type": type, "name": name, "file": "heat.f90", "line": n, "line2": n} for n, type, name in SITES
    ]
    (place / "sites.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    numbers = np.arange(loop)
    blocks = np.minimum(numbers * threads // loop, threads - 1)
    of = blocks if schedule == "static" else np.random.default_rng(1).integers(0, threads, loop)
    size = 0
    for thread in range(threads):
        body = iterations(numbers[of == thread], values, ulps)
        begin = np.concatenate([row(2, kinds.LOOP, 0, extra=1), row(2, kinds.MORE, loop - 1), row(2, kinds.MORE, 1)])
        with open(place / f"{thread:05}.ev", "wb") as file:
            file.write(b"SPTHRDS1" + struct.pack("<II", thread, 1).ljust(56, b"\0"))
            for visit in range(1, regions + 1):
                parts = [row(1, kinds.REGION, visit)] * (thread == 0) + [row(1, kinds.ENTER, visit, extra=thread)]
                parts += [begin, body, row(2, kinds.LOOP_END, 0), row(1, kinds.LEAVE, visit)]
                parts += [row(1, kinds.REGION_END, visit)] * (thread == 0)
                np.concatenate(parts).tofile(file)
            size += file.tell()
            file.write(bytes(kinds.RECORD))
    return size


def measured(place: Path, rtol: float) -> tuple[float, float, int]:
    """Seconds of the processor, best of three; most memory beyond the mapped files; exit code. In a new process."""
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = [sys.argv[3]]\n"
        "from benchmarks.threads_compare import once\nonce(Path(sys.argv[1]), float(sys.argv[2]))"
    )
    here = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code, str(place), str(rtol), here], stdout=subprocess.PIPE, check=True)
    best, anonymous, status = done.stdout.split()
    return float(best), float(anonymous), int(status)


def once(place: Path, rtol: float) -> None:
    times = []
    for _ in range(3):
        begin = time.process_time()
        found = compare(Run(place / "a"), Run(place / "b"), Rules(rtol=rtol))
        times.append(time.process_time() - begin)
    tracemalloc.start()
    found = compare(Run(place / "a"), Run(place / "b"), Rules(rtol=rtol))
    print(min(times), tracemalloc.get_traced_memory()[1] / 1e6, found.code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=100, help="of each side")
    options = parser.parse_args()
    print("| iteration | regions | schedule of B | values | MB a second and side | times 7 | most memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for values, loop, regions in ((8, 20_000, 0), (1, 100_000, 0), (8, 400, 0), (8, 40, 0), (8, 0, 1)):
        records = options.mb * 1_000_000 // kinds.RECORD
        loop = loop or records // (values + 1)
        regions = regions or max(1, records // (loop * (values + 1)))
        for schedule, ulps, rtol in (("static", 0, 0.0), ("dynamic", 0, 0.0), ("dynamic", 1, 1e-12)):
            directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
            try:
                size = trace(directory / "a", 1, "static", regions, loop, values, 0)
                trace(directory / "b", 4, schedule, regions, loop, values, ulps)
                seconds, memory, code = measured(directory, rtol)
                assert code == 0, code
            finally:
                shutil.rmtree(directory)
            speed = size / 1e6 / seconds
            same = "in the last bit different" if ulps else "equal"
            told = f"{speed:.0f}", f"{speed / 7:.0f}", f"{memory:.0f}"
            print("|", " | ".join([f"{values} values", f"{regions} x {loop}", schedule, same, *told]), "|")


if __name__ == "__main__":
    main()
