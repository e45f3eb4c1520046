"""What saving costs a program from end to end: measured for `peers.py`, on a file system of its own.

1. Until the files of a set, and its record, survive a power cut, from the return of `hide` on; against the fsync of
   such files, one by one, and against the bare calls that any set with a record needs; of a single file also with a
   checksum, made meanwhile. `python benchmarks/end_to_end.py KIND MB ROUNDS [--used]` measures this alone.
2. The heat equation on 1024 x 1024 points, 200 steps, 8 MB saved each 5 steps: the sum, over all saves, of the time to
   write and the time blocked; without protection (written over the old file, no fsync), by temporary + fsync +
   os.replace, and by safepoint, in turns.
3. The program's next write after `hide` (a new file), against writing over the old one, which is truncated: 64 MB.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from protagonists import fsync
from testbed import mounts

import safepoint
from safepoint.disk import codec

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
            touch(256 << 20, work)
            seconds = program(work)
            if turn:  # the first one is warming up
                times[name].append(seconds)
    clean(work)
    return times


class Durable(logging.Handler):
    """When the saver thread says that a set is durable. The removal of the one before comes after that."""

    at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("saved"):
            self.at = time.perf_counter()


def with_a_record(work: Path, paths: list[Path], step: int, beside: ThreadPoolExecutor | None) -> None:
    """Bare calls that leave, whenever the power fails, a set of files that a record vouches for; with their checksums,
    if there is a thread for them."""
    new = work / f"set-{step}"
    new.mkdir()
    for path in paths:
        os.rename(path, new / path.name)
    sums = beside.submit(lambda: [checksum(new / path.name) for path in paths]) if beside else None
    for path in paths:
        fsync(new / path.name)
    (new / "record.new").write_text(f"the checksums of all files: {sums.result() if sums else None}")
    fsync(new / "record.new")
    fsync(new)
    os.rename(new / "record.new", new / "record")
    fsync(new)
    fsync(work)


def checksum(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return codec.copy(file)[1]


def until_durable(work: Path, count: int, size: int, rounds: int) -> Times:
    """Seconds of each way to make files durable that have been written; of ours `hide`, and what follows it.

    In all orders: which memory and which blocks of the disk are free depends on who was before. All files lie in one
    directory: those of another are put elsewhere on the disk, which may be as fast or not."""
    u = np.random.default_rng(1).standard_normal(size // 8)
    beside = ThreadPoolExecutor(1) if count == 1 else None  # checksums of many would hinder the fsyncs
    (work / ".safepoint").write_text("ours-*.npy\nkeep = 1\n")
    durable = Durable()
    logger = logging.getLogger("safepoint")
    logger.addHandler(durable)
    logger.setLevel(logging.INFO)
    session = safepoint.Session(work)
    session.restore()

    def written(whose: str) -> list[Path]:
        touch(max(2 * count * size, 64 << 20))
        touch(64 << 20, work)
        os.sync()
        paths = [work / f"{whose}-{k:04}.npy" for k in range(count)]
        for path in paths:
            np.save(path, u)
        return paths

    def one_by_one(_: int) -> dict[str, float]:
        paths = written("theirs")
        begin = time.perf_counter()
        for path in paths:
            fsync(path)
        seconds = time.perf_counter() - begin
        for path in paths:
            path.unlink()
        return {"fsync": seconds}

    def recorded(step: int) -> dict[str, float]:
        paths = written("theirs")
        begin = time.perf_counter()
        with_a_record(work, paths, step, beside)
        seconds = time.perf_counter() - begin
        shutil.rmtree(work / f"set-{step}")
        return {"with a record and checksums" if beside else "with a record": seconds}

    def hidden(step: int) -> dict[str, float]:
        written("ours")
        begin = time.perf_counter()
        session.hide(step)
        end = time.perf_counter()
        session.wait()
        return {"hide": end - begin, "durable after hide": durable.at - end}

    orders = list(itertools.permutations((one_by_one, recorded, hidden)))
    times: Times = {}
    for step in range(rounds + 2):
        for way in orders[step % len(orders)]:
            for name, seconds in way(step).items():
                times.setdefault(name, []).append(seconds)
    session.close()
    if beside:
        beside.shutdown()
    logger.removeHandler(durable)
    logger.setLevel(logging.NOTSET)
    clean(work)
    return {name: some[2:] for name, some in times.items()}  # the first hide waits, the second one is warming up


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
            touch(128 << 20, work)
            os.sync()
            begin = time.perf_counter()
            np.save(work / file, u)
            times[name].append(time.perf_counter() - begin)
            if file == "u.npy":
                session.hide(step, wait=True)
    session.close()
    clean(work)
    return times


def touch(size: int, directory: Path | None = None) -> None:
    """Memory at hand: in a virtual machine the first touch of a page may cost more than what is measured. A process
    takes it in other blocks than the page cache, so a file in this directory is written too, and removed."""
    touched = bytearray(size // 4096 * 4096)
    touched[::4096] = bytes(size // 4096)
    if directory:
        block = bytes(1 << 20)
        with (directory / "touched").open("wb", buffering=0) as file:
            for _ in range(0, size, len(block)):
                file.write(block)
        (directory / "touched").unlink()


def main() -> None:
    """Root only."""
    parser = argparse.ArgumentParser(description="When a set of one file is durable, on a new image.")
    parser.add_argument("kind", choices=["ext4", "xfs"])
    parser.add_argument("mb", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--used", action="store_true", help="each part of the image was written before")
    options = parser.parse_args()
    with mounts.mounted(options.kind, 6000, ".", direct=True) as directory:
        work = directory.resolve()
        if options.used:
            with (work / "all").open("wb") as file:
                for _ in range(5200):
                    file.write(bytes(1 << 20))
            os.sync()
            (work / "all").unlink()
        times = until_durable(work, 1, options.mb << 20, options.rounds)
    bare = median(times["fsync"])
    for way, seconds in times.items():
        print(f"{way:30} {1e3 * median(seconds):8.2f} ms {median(seconds) / bare:6.2f}")


if __name__ == "__main__":
    main()
