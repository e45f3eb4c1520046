"""How many of the sets that a program writes `safepoint run` saves, on a quiet machine and on others.

    python benchmarks/chances.py [sets] [rounds] [seconds]

So often the program writes two files and sleeps (0.5 s); a set is a chance, and lies there so long. Beside it: nothing;
2000 sleeping processes; 8 busy loops. All in turns. Each once as it is, and once as where the kernel does not tell how
processes end (an older Linux, for users other than root). Prints the part of the chances that were taken, and its ratio
to that of the quiet machine. Linux.

On stderr is why sets were missed. With much shorter sleeps a busy machine has not yet flushed the set before (0.2 s:
ratios of 0.77 to 1.00 beside 8 busy loops, on two cores that had other work too): that is no fault of the look.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAM = """
import sys, time
for k in range(int(sys.argv[1])):
    for name in ("state.txt", "mark.txt"):
        with open(name, "w") as file:
            file.write(f"{k}\\n" * 1000)
    time.sleep(float(sys.argv[2]))
sys.exit(1)  # so that no set is made of the end
"""
UNTOLD = "from safepoint.run import processes; processes.Exits.open = classmethod(lambda cls: None)\n"
RUN = "from safepoint.cli.job.run import run; run()"
BESIDE = {  # how many, and of what
    "nothing": (0, "pass"),
    "2000 sleeping": (2000, "import signal; signal.pause()"),
    "8 busy loops": (8, "while True: pass"),
}
LEAST = 0.9  # of the chances of a quiet machine


@contextlib.contextmanager
def beside(many: int, code: str) -> Iterator[None]:
    """So many processes, forked by one that is not ours to watch over; they die with it."""
    forks = (
        "import ctypes, os, signal, sys, time\nme = os.getpid()\n"
        f"for _ in range({many}):\n    if os.fork() == 0:\n"
        f"        ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n        if os.getppid() != me: os._exit(1)\n"
        f"        exec({code!r})\nprint('ready', flush=True)\nsignal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", forks], stdout=subprocess.PIPE) as crowd:
        try:
            assert crowd.stdout and crowd.stdout.readline() == b"ready\n"
            time.sleep(0.5)
            yield
        finally:
            crowd.kill()


def taken(sets: int, before: str, pause: str) -> float:
    """The part of the chances that became sets."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, ".safepoint").write_text("state.txt\nmark.txt mark\n")
        words = [
            sys.executable,
            "-c",
            before + RUN,
            "--dir",
            work,
            "--",
            sys.executable,
            "-c",
            PROGRAM,
            str(sets),
            pause,
        ]
        said = subprocess.run(words, stderr=subprocess.PIPE, text=True).stderr
        numbers = [int(path.parent.name[4:]) for path in Path(work).glob(".safepoint.d/rank-00000/set-*/record.json")]
        print(f"    {said.strip()}", file=sys.stderr)
        return max(numbers, default=0) / sets


def main() -> None:
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    pause = sys.argv[3] if len(sys.argv) > 3 else "0.5"
    for kernel, before in {"told by the kernel": "", "not told": UNTOLD}.items():
        parts: dict[str, list[float]] = {name: [] for name in BESIDE}
        for number in range(rounds):
            for name, (many, code) in BESIDE.items() if number % 2 else reversed(BESIDE.items()):
                with beside(many, code):
                    parts[name].append(taken(sets, before, pause))
        quiet = statistics.median(parts["nothing"])
        print(f"How processes end is {kernel}; {sets} chances, {pause} s each; medians of {rounds} rounds")
        for name, each in parts.items():
            part = statistics.median(each)
            verdict = "" if name == "nothing" else "  ok" if part >= LEAST * quiet else f"  less than {LEAST}"
            print(f"    beside {name:14} {part:6.0%} of the chances   ratio {part / quiet:4.2f}{verdict}")


if __name__ == "__main__":
    main()
