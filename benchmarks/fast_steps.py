"""Programs that save in every one of their short steps, beside the same programs that do not save.

    python benchmarks/fast_steps.py [--steps N] [--rounds N] [--places ext4,xfs] [--peers] [--ranks 4] [--results DIR]

1. A solver with steps of 10 ms writes three files in each. How many times as long it takes when it saves each time: by
   `hide`, by temporary + fsync + os.replace, with `--peers` also by torch's `async_save` and by Orbax. Goal for `hide`:
   at most 1.25 times with files of 8 MB, 1.10 times with files of 64 KB; the same on 4 ranks with 2 MB each.
2. The bytes that reach the disk, from /sys/block/*/stat of the image: at most those of the program alone, and those of
   the sets that were stored.
3. `hide` of one file: alone, and while a set of 512 MB is in flight. Goal: median 0.3 ms, 99th percentile 3 ms.

Programs take turns, each in a process of its own, on fresh journaled images (root), or `here`. Figures are medians,
with least and most. `--results` writes a page in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
from end_to_end import clean
from launcher import mpiexec
from peers import at
from protagonists import WAYS, Arrays, Safepoint, Way, arrays_of
from testbed import mounts

STEP_S = 0.010
PLAIN, OURS = "alone", "hide"
NAMES = {PLAIN: "np.save over the old file", OURS: "safepoint", "replace": "temporary, fsync, os.replace",
         "torch async_save": "torch DCP async_save", "orbax": "orbax AsyncCheckpointer"}  # fmt: skip
CASES = {"3 x 8 MB": (3, 8 << 20), "3 x 64 KB": (3, 64 << 10)}
OF_RANKS = 1, 2 << 20
LARGE = 512 << 20


class Ours(Safepoint):
    """The ranks meet in `hide` only."""

    def save(self) -> None:
        begin = time.perf_counter()
        for name, array in self.arrays.items():
            np.save(self.path(name), array)
        self.write += time.perf_counter() - begin
        self.session.hide(self.step)


def work(times: int, state: np.ndarray) -> None:
    for _ in range(times):
        state[1:-1, 1:-1] = (state[:-2, 1:-1] + state[2:, 1:-1] + state[1:-1, :-2] + state[1:-1, 2:]) / 4


def calibrated() -> int:
    """So many times `work` are one step; the machine's speed as it is now."""
    state = np.random.default_rng(1).standard_normal((200, 200))
    work(50, state)
    begin = time.perf_counter()
    work(400, state)
    return max(1, round(STEP_S * 400 / (time.perf_counter() - begin)))


def solve(way: Way, steps: int, times: int, barrier: Callable[[], object]) -> tuple[float, list[float]]:
    """Seconds of a run, without what comes after its last step, and of what is not its own writing in each step."""
    state = np.random.default_rng(1).standard_normal((200, 200))
    saves = []
    way.save()  # the first set is waited for by all
    way.wait()
    barrier()
    begin = time.perf_counter()
    for way.step in range(1, steps + 1):
        work(times, state)
        for array in way.arrays.values():
            array[::512] += 1.0
        before, written = time.perf_counter(), way.write
        way.save()
        saves.append(time.perf_counter() - before - (way.write - written))
        if way.step % 50 == 0:
            way.tidy()
        barrier()
    return time.perf_counter() - begin, saves


def program(name: str, directory: str, count: int, size: int, steps: int, times: int) -> None:
    """One run, alone or as one of many ranks; the first one tells its figures."""
    comm = None
    if "PMI_SIZE" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    rank = comm.Get_rank() if comm else 0
    where = Path(directory)
    kind = Ours if name == OURS else WAYS[NAMES[name]]
    Ours.comm = comm
    arrays: Arrays = arrays_of(count, size, f"u-{rank}-" if comm else "u")
    if comm and name != OURS:  # else ranks would write under the same temporary names
        where = where / str(rank)
    where.mkdir(parents=True, exist_ok=True)
    if comm:
        comm.Barrier()
    way = kind(where, arrays)
    seconds, saves = solve(way, steps, times, comm.Barrier if comm else lambda: None)
    way.wait()
    if rank == 0:
        cut = quantiles(saves, n=100)
        print(json.dumps({"seconds": seconds, "median": cut[49], "p99": cut[98], **stored(where, name)}), flush=True)
    way.end()


def stored(where: Path, name: str) -> dict[str, int]:
    """How many bytes the sets had that were stored, by the log."""
    if name != OURS:
        return {}
    found = {"sets": 0, "bytes": 0}
    for log in where.glob(".safepoint.d/rank-*/log.jsonl"):
        for line in map(json.loads, log.read_text().splitlines()):
            if line["event"] == "saved":
                found["sets"] += 1
                found["bytes"] += line["bytes"]
    return found


def written(directory: Path) -> int:
    """Bytes that the device of this file system was told to write, ever."""
    device = os.stat(directory).st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return 512 * int(path.read_text().split()[6]) if path.exists() else 0


def run(name: str, where: Path, case: tuple[int, int], steps: int, times: int, ranks: int = 0) -> dict[str, float]:
    clean(where)
    before = written(where)
    command = [sys.executable, __file__, "--program", name, str(where), *map(str, (*case, steps, times))]
    if ranks:
        command = [str(mpiexec()), "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    os.sync()
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return {**json.loads(line), "written": written(where) - before}


def compared(place: str, where: Path, options: argparse.Namespace) -> list[str]:
    """Says, and returns as rows of a table, what each way costs."""
    rows = []
    ways = [PLAIN, OURS, "replace", *["torch async_save", "orbax"] * options.peers]
    cases = [(name, case, 0) for name, case in CASES.items()]
    if options.ranks:
        cases.append((f"{options.ranks} ranks, {OF_RANKS[1] >> 20} MB each", OF_RANKS, options.ranks))
    for name, case, ranks in (each for each in cases if each[0].startswith(options.only)):
        times = calibrated()
        found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for turn in range(options.rounds):
            for way in ways:
                if ranks and way not in (PLAIN, OURS, "replace"):
                    continue
                steps = options.steps if way in (PLAIN, OURS) else max(50, options.steps // 5)
                if turn == 0 or way in (PLAIN, OURS):
                    found[way].append({**run(way, where, case, steps, times, ranks), "steps": steps})
        alone = [each["seconds"] / each["steps"] for each in found[PLAIN]]
        for way in ways:
            if not found[way]:
                continue
            each = [row["seconds"] / row["steps"] for row in found[way]]
            ratios = [mine / its for mine, its in zip(each, alone, strict=False)]
            share = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            step_ms = 1e3 * median(each)
            median_ms, p99_ms = (1e3 * median(row[key] for row in found[way]) for key in ("median", "p99"))
            last, disk = found[way][-1], ""
            if way == OURS:
                most = found[PLAIN][-1]["written"] + last["bytes"]
                disk = f"{last['sets']} of {last['steps'] + 1}, {last['written'] / most:.2f} of {most / 1e9:.2f} GB"
            print(
                f"{place:5} {name}: {way:16} {share} times, {step_ms:.1f} ms a step; saving {median_ms:.2f} ms, 99th "
                f"percentile {p99_ms:.2f}{'; sets stored, and bytes written of what they may be: ' * bool(disk)}{disk}",
                flush=True,
            )
            cells = (place, name, NAMES[way], share, f"{step_ms:.1f}", f"{median_ms:.2f}", f"{p99_ms:.2f}", disk)
            rows.append(f"| {' | '.join(cells)} |")
    clean(where)
    return rows


HEAD = """\
# Programs that save in every step, {day}

`python benchmarks/fast_steps.py` on {cores} cores, Linux {kernel}. The program computes for 10 ms and writes its files,
{steps} times. Ratios are to the same program that does not save. The last column: sets stored of those hidden, and
bytes that reached the disk, as a share of those of the program alone and of these sets together.

| place | files | way | times | ms a step | saving, ms | 99th percentile, ms | stored |
|---|---|---|---:|---:|---:|---:|---|
"""


def page(rows: list[str], steps: int) -> str:
    kernel = platform.release().partition("-")[0]
    return HEAD.format(day=date.today(), cores=os.cpu_count(), kernel=kernel, steps=steps) + "\n".join(rows) + "\n"


def beside_a_large_set(where: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each `hide` of one file of 64 KB: alone, and while 512 MB are in flight."""
    import safepoint

    small, large = np.arange(8192) * 1.1, np.arange(LARGE // 8) * 1.1
    (where / ".safepoint").write_text("*.npy\nkeep = 1\n")
    session = safepoint.Session(where)
    session.restore()
    alone, beside = [], []

    def hide(step: int) -> float:
        np.save(where / "small.npy", small)
        begin = time.perf_counter()
        session.hide(step)
        return time.perf_counter() - begin

    hide(0)
    for turn in range(rounds):
        for step in range(100):
            session.wait()
            alone.append(hide(step))
        time.sleep(0.3)  # the saver has rested, so that the large one is in flight at once
        np.save(where / "large.npy", large)
        session.hide(turn)
        while session.saving:
            beside.append(hide(turn))
            time.sleep(0.002)
        session.wait()
    session.close()
    clean(where)
    return alone, beside


def main() -> None:
    parser = argparse.ArgumentParser(description="Programs that save in every one of their short steps.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--places", default="ext4,xfs", help="of ext4, xfs (fresh images, root), here")
    parser.add_argument("--peers", action="store_true", help="torch and Orbax too")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--results", metavar="DIRECTORY", help="write a page in Markdown")
    options = parser.parse_args()
    rows, hides = [], []
    for place in options.places.split(","):
        reason = None if place == "here" else mounts.why_not(place)
        if reason:
            print(f"{place:5} left out: {reason}")
            continue
        with at(place) as where:
            rows += compared(place, where, options)
            for name, seconds in zip(
                ("alone", "beside 512 MB"), beside_a_large_set(where, options.rounds), strict=True
            ):
                cut = quantiles(seconds, n=100)
                text = f"median {1e3 * cut[49]:.2f} ms, 99th percentile {1e3 * cut[98]:.2f} ms of {len(seconds)}"
                print(f"{place:5} hide of one file, {name}: {text}", flush=True)
                hides.append(f"- {place}, `hide` of one file, {name}: {text}.")
    if options.results:
        path = Path(options.results, f"{date.today()}-fast-steps.md")
        path.write_text(page(rows, options.steps) + "\n" + "\n".join(hides) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
    else:
        main()
