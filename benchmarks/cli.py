"""How long each command of the command line takes, as a process, in a directory of 64 ranks with 3 sets each.

    python benchmarks/cli.py [repetitions]

Prints the least of several runs, in seconds, and beside it that of a Python that only imports click and rich.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from write_cli import make

RANKS, SETS = 64, 3
COMMANDS = (
    "status", "status --json", "show 3", "why --quick", "log", "clean --dry-run", "init --print", "diff 2 2", "why",
    "verify", "diff 2 3", "restore --yes", "drop 1 --yes", "clean --yes", "--help", "--version",
)  # fmt: skip


def seconds(command: list[str], times: int) -> float:
    """The least wall time of a process."""
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as work:
        work = os.path.realpath(work)
        make(work, RANKS, SETS)
        print(f"{RANKS} ranks, {SETS} sets; least of {times} runs")
        print(
            f"{seconds([sys.executable, '-c', 'import click, rich.table'], times):6.3f} s  (import click, rich.table)"
        )
        for command in COMMANDS:
            arguments = command.split()
            where = [] if arguments[0].startswith("--") else [work]
            once = "--yes" in arguments and arguments[0] != "restore"  # the second time there is nothing to do
            took = seconds([sys.executable, "-m", "safepoint", *arguments, *where], 1 if once else times)
            print(f"{took:6.3f} s  safepoint {command}")


if __name__ == "__main__":
    main()
