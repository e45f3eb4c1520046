"""Kill `landscape.py` twice at random instants, start it again, and compare it with a run that nobody disturbed.

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
    print(f"{most:.2f} ms at most, and {total:.0f} ms in all: {share:.2f} % of the computing time.\n")


def identical(one: Path, other: Path) -> bool:
    print("The final files, next to those of the run that nobody disturbed:")
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
    print(f"\nThe picture, before and after: {os.path.relpath(protected / 'landscape.png')}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--solve"]:
        solve(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
