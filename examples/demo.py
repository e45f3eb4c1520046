"""Kill `landscape.py` twice at random instants, start it again, and compare it with a run that nobody disturbed. Then
the same with `landscape_mpi.py` on four ranks: first all of them are killed, then a single one.

    python examples/demo.py [--seed N] [--steps N] [--every N]

The program runs as it is, in a process of its own; for this report a trace is kept of when it has computed a step, and
of how long `safepoint.hide` kept it waiting. Exit status 1 if a final file differs, if a kill did not hit the running
program, or if a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from launcher import MisfitError, mpiexec

RANKS = 4
PLACE = Path(__file__).resolve().parents[1] / "demo"
FINAL = ("z.npy", "eroded.npy", "history.csv")
PATIENCE = 120  # seconds for one start of the program, many times what it takes


class Kill(NamedTuple):
    step: float  # SIGKILL comes when this step is computed,
    delay: float  # and so many seconds later: in the middle of whatever the program then does


@dataclass(frozen=True)
class Life:
    """What one process did, from its start to its end."""

    first: int  # the step from which it went on
    last: int  # the last step that it computed
    blocked: list[float]  # seconds in each call of `hide`
    computing: float  # seconds from the first of these calls to the last step


def solve(trace: Path, arguments: list[str]) -> None:
    """The process that is killed. A line in `trace` for each step: time, step; for each `hide`: time, step, seconds."""
    import landscape

    import safepoint

    hide, advance, done = safepoint.hide, landscape.advance, 0

    def traced_hide(step: int) -> None:
        nonlocal done
        done, begin = step, time.monotonic()
        hide(step=step)
        end = time.monotonic()
        lines.write(f"{end} {done} {end - begin}\n".encode())

    def traced_advance(*state: object) -> None:
        nonlocal done
        advance(*state)
        done += 1
        lines.write(f"{time.monotonic()} {done}\n".encode())

    with trace.open("wb", buffering=0) as lines:
        safepoint.hide, landscape.advance = traced_hide, traced_advance
        landscape.main(arguments)


def whole_lines(path: Path, last: int = sys.maxsize) -> list[str]:
    """The lines of a file that may be growing, of its `last` bytes only; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = file.seek(max(0, path.stat().st_size - last))
        return file.read().decode().split("\n")[1 if start else 0 : -1]


def live(title: str, directory: Path, options: argparse.Namespace, kill: Kill | None = None) -> Life:
    """Start the program in `directory`, and kill it or let it finish."""
    trace, output = directory.with_suffix(".trace"), directory.with_suffix(".txt")
    trace.write_bytes(b"")
    command = [sys.executable, __file__, "--solve", str(trace), "--directory", str(directory)]
    command += ["--steps", str(options.steps), "--every", str(options.every)]
    with output.open("wb") as said, progress(title, options.steps) as show:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            follow(child, trace, kill, show)
        finally:
            child.kill()  # SIGKILL; nothing happens if the program has ended
            status = child.wait(timeout=30)
    if status != (-signal.SIGKILL if kill else 0):
        sys.exit(f"{title}: ended by itself, with exit status {status}; it said:\n{output.read_text()}")
    log = [json.loads(line) for line in whole_lines(directory / ".safepoint.d/rank-00000/log.jsonl")]
    first = next(event.get("step", 0) for event in log if event["pid"] == child.pid)  # "start", or "restored" with step
    rows = [[float(word) for word in line.split()] for line in whole_lines(trace)]
    if kill and (not rows or rows[-1][1] >= options.steps):
        sys.exit(f"{title}: the computation was done before the kill; try it with more --steps")
    blocked = [row[2] for row in rows if len(row) == 3]
    return Life(first, int(rows[-1][1]), blocked, rows[-1][0] - rows[0][0] + blocked[0])


def follow(child: subprocess.Popen[bytes], trace: Path, kill: Kill | None, show: Callable[[int], object]) -> None:
    """Return when it is time to kill the program, or when it has ended."""
    deadline = time.monotonic() + PATIENCE
    while child.poll() is None:
        if time.monotonic() > deadline:
            sys.exit(f"the program did not end within {PATIENCE} s")
        step = max((int(line.split()[1]) for line in whole_lines(trace, last=200)), default=0)
        show(step)
        if kill and step >= kill.step:
            time.sleep(kill.delay)
            return
        time.sleep(0.005)


@contextmanager
def progress(title: str, steps: int) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal, if `rich` is installed; else a line."""
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        terminal = False
    else:
        terminal = sys.stdout.isatty()
    if not terminal:
        print(title, flush=True)
        yield lambda step: None
        return
    with Progress(TextColumn("{task.description:45}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps")) as bars:
        bar = bars.add_task(title, total=steps)
        yield lambda step: bars.update(bar, completed=step)


def report(lives: list[Life]) -> None:
    print("\nstart   from step   until                 steps done again")
    for number, life in enumerate(lives, 1):
        end = f"{'killed after' if number < len(lives) else 'finished at'} {life.last}"
        again = lives[number - 2].last - life.first if number > 1 else "-"
        print(f"{number:5}   {life.first:9}   {end:20}   {again:>15}")
    blocked = [1000 * seconds for life in lives for seconds in life.blocked]
    median, most, total = statistics.median(blocked), max(blocked), sum(blocked)
    share = total / 10 / sum(life.computing for life in lives)
    print(
        f"\nsafepoint.hide was called {len(blocked)} times. It kept the program waiting for {median:.2f} ms (median),"
    )
    print(f"{most:.2f} ms at most, and {total:.0f} ms in all: {share:.2f} % of the computing time.")


def launch(title: str, directory: Path, options: argparse.Namespace, kill: Kill | None, victims: list[int]) -> int:
    """Start the program on many ranks, and kill these, or let it finish. The last step of which it wrote the files."""
    program = [sys.executable, str(Path(__file__).with_name("landscape_mpi.py")), "--directory", str(directory)]
    program += ["--steps", str(options.steps), "--every", str(options.every)]
    output = directory.with_suffix(".txt")
    with output.open("wb") as said, progress(title, options.steps) as show:
        job = subprocess.Popen([mpiexec(), "-n", str(RANKS), *program], stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + PATIENCE
            while job.poll() is None and not (kill and newest(directory) >= kill.step):
                if time.monotonic() > deadline:
                    sys.exit(f"{title}: it did not end within {PATIENCE} s")
                show(newest(directory))
                time.sleep(0.005)
            if kill:
                time.sleep(kill.delay)
                for rank in victims:
                    with suppress(ProcessLookupError):
                        os.kill(owner(directory, rank), signal.SIGKILL)
        finally:
            if victims != [*range(RANKS)] and kill:
                job.wait(timeout=30)  # mpiexec notices that a rank is dead, and ends the others
            job.kill() if kill else None
            status = job.wait(timeout=30)
    if bool(status) != bool(kill) or (kill and newest(directory) >= options.steps):
        sys.exit(f"{title}: ended with exit status {status}; it said:\n{output.read_text()}")
    return newest(directory)


def owner(directory: Path, rank: int) -> int:
    """The process that a rank is."""
    return int(json.loads((directory / f".safepoint.d/rank-{rank:05d}/owner.json").read_text())["pid"])


def newest(directory: Path) -> int:
    """The step of the newest row of history.csv; -1 if there is none."""
    rows = whole_lines(directory / "history.csv", last=400)
    return int(rows[-1].split(",")[0]) if rows and rows[-1][0].isdigit() else -1


def restored(directory: Path) -> list[list[int]]:
    """For each start after the first, the step that each rank was given."""
    logs = [whole_lines(directory / f".safepoint.d/rank-{rank:05d}/log.jsonl") for rank in range(RANKS)]
    events = [[json.loads(line) for line in log] for log in logs]
    steps = [[event["step"] for event in log if event["event"] == "restored"] for log in events]
    return [list(each) for each in zip(*steps, strict=True)]


def on_ranks(options: argparse.Namespace, chance: random.Random, undisturbed: Path) -> bool:
    """The second half: the same on many ranks. Whether the result is the same."""
    directory = PLACE / "ranks"
    shutil.rmtree(directory, ignore_errors=True)
    victim = chance.randrange(RANKS)
    print(
        f"\nexamples/landscape_mpi.py computes the same on {RANKS} ranks, each with a block of rows and its own file."
    )
    print(f"First all ranks are killed, then rank {victim} alone; each time it is started again.\n")
    last = []
    for number, (victims, span) in enumerate((([*range(RANKS)], (0.05, 0.45)), ([victim], (0.5, 0.9))), 1):
        kill = Kill(options.steps * chance.uniform(*span), chance.uniform(0, 0.05))
        who = "all ranks" if len(victims) > 1 else f"rank {victim}"
        last.append(launch(f"{RANKS} ranks, start {number}, {who} to be killed", directory, options, kill, victims))
    launch(f"{RANKS} ranks, start 3, to the end", directory, options, None, [])
    print("\nstart   killed after step   the next start gave the ranks step")
    steps = restored(directory)
    for number, (end, given) in enumerate(zip(last, steps, strict=True), 1):
        print(f"{number:5}   {end:17}   {', '.join(map(str, given))}")
    if any(len(set(given)) != 1 for given in steps):
        sys.exit("the ranks were given different steps")
    parts = np.concatenate([np.load(directory / f"z-{rank}.npy") for rank in range(RANKS)], axis=1)
    for name, part in zip(("z.npy", "eroded.npy"), parts, strict=True):
        np.save(directory / name, part)
    return identical(directory, undisturbed)


def identical(one: Path, other: Path) -> bool:
    print("\nThe final files, next to those of the run that nobody disturbed:")
    differ = []
    for name in FINAL:
        content = (one / name).read_bytes()
        if content != (other / name).read_bytes():
            differ.append(name)
        print(
            f"  {name:12} {len(content):>10,} bytes   {'DIFFERENT' if name in differ else 'identical, byte for byte'}"
        )
    return not differ


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a computation twice, and see that nothing of it is lost.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the kills")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--every", type=int, default=40, help="steps from save point to save point")
    options = parser.parse_args()
    try:
        mpiexec()  # before minutes of work on one rank
    except MisfitError as error:
        sys.exit(f"no ranks: {error}")
    chance = random.Random(options.seed)
    kills = [
        Kill(options.steps * chance.uniform(*span), chance.uniform(0, 0.05)) for span in ((0.05, 0.45), (0.5, 0.9))
    ]
    protected, undisturbed = PLACE / "protected", PLACE / "undisturbed"
    for directory in (protected, undisturbed):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)

    print(f"examples/landscape.py computes {options.steps} steps, with a save point after every {options.every}.")
    print(f"It is killed (SIGKILL) at two random instants (--seed {options.seed}) and started again each time.\n")
    lives = [live(f"start {n}, to be killed", protected, options, kill) for n, kill in enumerate(kills, 1)]
    lives.append(live("start 3, to the end", protected, options))
    live("once more, undisturbed", undisturbed, options)
    report(lives)
    same = identical(protected, undisturbed)
    same &= on_ranks(options, chance, undisturbed)
    print(f"\nThe picture, before and after: {os.path.relpath(protected / 'landscape.png')}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--solve"]:
        solve(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
