"""What the saver thread takes from a program while it works.

    python benchmarks/solver_cost.py [ROUNDS] [PLACE …]        # PLACE: ext4, xfs (fresh images; root), here

A loop in pure Python, and one in numpy, beside which 512 MB are stored: how much slower than alone, and for how long,
against what a `cp` of the same file, flushed, does to it. The goal: at most 3 % more than cp. Both take turns; figures
are medians. What saving costs the program itself is measured by `peers.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from end_to_end import clean
from peers import at
from testbed import mounts

import safepoint

LARGE = 512 << 20


def python_loop() -> None:
    total = 0
    for k in range(20_000):
        total += k * k


STATE = np.random.default_rng(1).standard_normal((400, 400))


def numpy_loop(state: np.ndarray = STATE) -> None:
    state[1:-1, 1:-1] = (state[:-2, 1:-1] + state[2:, 1:-1] + state[1:-1, :-2] + state[1:-1, 2:]) / 4


def rate(work: Callable[[], None], busy: Callable[[], bool], least: float = 0.0) -> tuple[float, float]:
    """How often a second, as long as something is busy, and for so many seconds at least; and how long that was."""
    count, begin = 0, time.perf_counter()
    while busy() or time.perf_counter() - begin < least:
        work()
        count += 1
    seconds = time.perf_counter() - begin
    return count / seconds, seconds


def beside(place: str, work: Path, rounds: int) -> None:
    clean(work)
    (work / ".safepoint").write_text("u.npy\nkeep = 1\n")
    session = safepoint.Session(work)
    session.restore()
    u = np.random.default_rng(1).standard_normal(LARGE // 8)
    np.save(work / "u.npy", u)
    session.hide(0, wait=True)
    for loop in (python_loop, numpy_loop):
        slower: dict[str, list[float]] = {"the saver": [], "cp": []}
        lost: dict[str, list[float]] = {"the saver": [], "cp": []}
        took: dict[str, list[float]] = {"the saver": [], "cp": []}
        for step in range(1, rounds + 1):
            np.save(work / "u.npy", u)
            session.hide(step)
            ours = rate(loop, lambda: session.saving)
            session.wait()
            os.sync()
            alone, _ = rate(loop, lambda: False, 0.5)
            np.save(work / "bare.npy", u)
            copying = subprocess.Popen(["sh", "-c", f"cp {work}/bare.npy {work}/copy.npy && sync {work}/copy.npy"])
            theirs = rate(loop, lambda copying=copying: copying.poll() is None)
            (work / "bare.npy").unlink()
            (work / "copy.npy").unlink()
            os.sync()
            for name, (often, seconds) in (("the saver", ours), ("cp", theirs)):
                slower[name].append(100 * (alone / often - 1))
                lost[name].append(1e3 * seconds * (1 - often / alone))
                took[name].append(seconds)
        told = ", ".join(
            f"{median(slower[n]):+.1f} % beside {n} ({median(lost[n]):+.0f} ms of {median(took[n]):.2f} s)"
            for n in slower
        )
        name = loop.__name__.replace("_", " ")
        print(f"{place:5} {name} while 512 MB are stored: slower by {told}   goal: <= cp + 3 %", flush=True)
    session.close()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for place in sys.argv[2:] or ["ext4", "xfs"]:
        reason = None if place == "here" else mounts.why_not(place)
        if reason:
            print(f"{place:5} left out: {reason}")
            continue
        with at(place) as work:
            beside(place, work, rounds)


if __name__ == "__main__":
    main()
