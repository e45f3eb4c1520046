"""What saving costs a program from end to end: measured for `peers.py`, on a file system of its own.

1. The heat equation on 1024 x 1024 points, 200 steps, 8 MB saved each 5 steps: the sum, over all saves, of the time to
   write and the time blocked; without protection (written over the old file, no fsync), by temporary + fsync +
   os.replace, and by safepoint, in turns.
2. The program's next write after `hide` (a new file), against writing over the old one, which is truncated: 64 MB.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from protagonists import fsync

import safepoint

N, STEPS, EVERY = 1024, 200, 5
Times = dict[str, list[float]]


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


def all_saves(work: Path, rounds: int) -> Times:
    """Seconds in all saves of a run, by way."""
    programs = {"plain": plain, "replace": replace, "safepoint": protected}
    times: Times = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, program in programs.items():
            clean(work)
            seconds = program(work)
            if turn:  # the first one is warming up
                times[name].append(seconds)
    clean(work)
    return times


def next_write(work: Path, rounds: int) -> Times:
    """Seconds that np.save of 64 MB takes after a `hide`, and over the old file."""
    (work / ".safepoint").write_text("u.npy\nkeep = 1\n")
    session = safepoint.Session(work)
    session.restore()
    u = np.random.default_rng(1).standard_normal(8 << 20)
    np.save(work / "u.npy", u)
    session.hide(0, wait=True)
    np.save(work / "old.npy", u)
    times: Times = {"after hide": [], "over the old file": []}
    for step in range(rounds):
        for name, file in (("after hide", "u.npy"), ("over the old file", "old.npy")):
            os.sync()
            touch(512 << 20)
            begin = time.perf_counter()
            np.save(work / file, u)
            times[name].append(time.perf_counter() - begin)
            if file == "u.npy":
                session.hide(step, wait=True)
    session.close()
    clean(work)
    return times


def touch(size: int) -> None:
    """Memory at hand: in a virtual machine the first touch of a page may cost more than what is measured."""
    touched = bytearray(size // 4096 * 4096)
    touched[::4096] = bytes(size // 4096)
