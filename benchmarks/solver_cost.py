"""What saving costs a solver from end to end, and what the saver thread takes from it while it works.

    python benchmarks/solver_cost.py [ROUNDS] [PLACE …]        # PLACE: ext4, xfs (fresh images; root), here

1. The heat equation on 1024 x 1024 points, 200 steps, 8 MB saved each 5 steps: the sum, over all saves, of the time to
   write and the time blocked; without protection (written over the old file, no fsync), by temporary + fsync +
   os.replace, and by safepoint. The goal: safepoint adds at most a quarter of what replace adds.
2. The program's next write after `hide` (a new file), against writing over the old one, which is truncated: 64 MB.
3. A loop in pure Python, and one in numpy, beside which 512 MB are stored: how much slower than alone, against what a
   `cp` of the same file, flushed, does to it. The goal: at most 3 % more than cp.

The three of 1 and of 3 take turns; ratios are of medians.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import mounts
import numpy as np
from peers import at
from protagonists import fsync

import safepoint

N, STEPS, EVERY = 1024, 200, 5
LARGE = 512 << 20


def heat(save: Callable[[int, np.ndarray], float]) -> float:
    """Seconds that went into saving."""
    u = np.zeros((N, N))
    u[N // 4 : N // 2] = 1.0
    spent = 0.0
    for step in range(1, STEPS + 1):
        u[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        if step % EVERY == 0:
            spent += save(step, u)
    return spent


def plain(work: Path) -> float:
    def save(_: int, u: np.ndarray) -> float:
        begin = time.perf_counter()
        np.save(work / "u.npy", u)
        return time.perf_counter() - begin

    return heat(save)


def replace(work: Path) -> float:
    def save(_: int, u: np.ndarray) -> float:
        begin = time.perf_counter()
        np.save(work / "tmp.npy", u)
        fsync(work / "tmp.npy")
        os.replace(work / "tmp.npy", work / "u.npy")
        fsync(work)
        return time.perf_counter() - begin

    return heat(save)


def protected(work: Path) -> float:
    (work / ".safepoint").write_text("u.npy\n")
    session = safepoint.Session(work)
    session.restore()

    def save(step: int, u: np.ndarray) -> float:
        begin = time.perf_counter()
        np.save(work / "u.npy", u)
        session.hide(step)
        return time.perf_counter() - begin

    spent = heat(save)
    session.finish(STEPS)
    return spent


def clean(work: Path) -> None:
    for path in work.iterdir():
        if path.name != "lost+found":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.sync()


def end_to_end(place: str, work: Path, rounds: int) -> None:
    times: dict[Any, list[float]] = {plain: [], replace: [], protected: []}
    for turn in range(rounds + 1):
        for program, found in times.items():
            clean(work)
            seconds = program(work)
            if turn:
                found.append(seconds)
    bare, theirs, ours = (median(found) * 1e3 for found in times.values())
    print(f"{place:5} heat, all saves: plain {bare:.0f} ms, replace {theirs:.0f} ms, safepoint {ours:.0f} ms")
    goal = f"a quarter of what replace adds, {(theirs - bare) / 4:+.0f} ms"
    print(f"{place:5} safepoint adds {ours - bare:+.0f} ms   goal: <= {goal}", flush=True)


def next_write(place: str, work: Path, rounds: int) -> None:
    clean(work)
    (work / ".safepoint").write_text("u.npy\nkeep = 1\n")
    session = safepoint.Session(work)
    session.restore()
    u = np.random.default_rng(1).standard_normal(8 << 20)
    np.save(work / "u.npy", u)
    session.hide(0, wait=True)
    np.save(work / "old.npy", u)
    after, over = [], []
    for step in range(max(rounds, 9)):
        os.sync()
        begin = time.perf_counter()
        np.save(work / "u.npy", u)
        after.append(time.perf_counter() - begin)
        session.hide(step, wait=True)
        os.sync()
        begin = time.perf_counter()
        np.save(work / "old.npy", u)
        over.append(time.perf_counter() - begin)
    session.close()
    ratio = median(after) / median(over)
    times = f"{median(after) * 1e3:.1f} ms, over the old file {median(over) * 1e3:.1f} ms"
    print(f"{place:5} 64 MB written after hide {times}: {ratio:.2f}   goal <= 1", flush=True)


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
        told = ", ".join(f"{median(slower[n]):+.1f} % beside {n} ({median(lost[n]):+.0f} ms in all)" for n in slower)
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
            end_to_end(place, work, rounds)
            next_write(place, work, rounds)
            beside(place, work, rounds)


if __name__ == "__main__":
    main()
