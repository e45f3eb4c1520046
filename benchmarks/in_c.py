"""What the calls cost a program in C, whose helper does the work, against the same program in Python.

    python benchmarks/in_c.py [ROUNDS] [--results DIR]

Both programs wait for orders, and take turns: so what the machine does besides meets both. Three files of 64 KiB and of
8 MB are written and hidden, and the set in flight is waited for before the next turn. `init`, until it returns, is
measured in new processes: of Python its own start is left out, so it is also counted from the start of the program.
`due` and `should_stop` are the means of a million calls in a row, with those that ask the helper. Memory is the
proportional set size of all processes of a program, in MB. Times are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from safepoint.c.build import Compilers, built, flags

SIZES = {"64 KiB": 1 << 16, "8 MB": 8_000_000}
MANIFEST = "a.dat\nb.dat\nc.dat\nevery = 1h\n"  # due: no

PYTHON = """
import sys, time
begin = time.perf_counter()
import safepoint
session = safepoint.init()
print(time.perf_counter() - begin, flush=True)
safepoint.restore()
size, step, calls = int(sys.argv[1]), 0, 1_000_000
data = bytes(size)
for line in sys.stdin:
    order = line.strip()
    if order == "hide":
        for name in "abc":
            with open(name + ".dat", "wb") as file:
                file.write(data)
        begin = time.perf_counter()
        safepoint.hide(step)
        step += 1
    else:
        verb = getattr(safepoint, order)
        times = 1 if order == "wait" else calls
        begin = time.perf_counter()
        for _ in range(times):
            verb()
    print(time.perf_counter() - begin, flush=True)
"""


class Program:
    """One of the two, waiting for orders."""

    def __init__(self, work: Path, *command: object) -> None:
        work.mkdir()
        (work / ".safepoint").write_text(MANIFEST)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [*map(str, command)], cwd=work, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.began = self._answer()
        self.since = time.perf_counter() - begin

    def _answer(self) -> float:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args}: it has ended")
        return float(line)

    def does(self, order: str) -> float:
        assert self.process.stdin
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self._answer()

    def memory(self) -> list[float]:
        """Of the program, and of its helper."""
        pids = [self.process.pid]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if (entry / "cmdline").read_bytes().find(b"safepoint.foreign") >= 0 and self._is_its(entry):
                        pids.append(int(entry.name))
                except OSError:
                    continue
        found = []
        for pid in pids:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")]
        return found

    def _is_its(self, entry: Path) -> bool:
        return os.path.realpath(entry / "cwd") == os.path.realpath(f"/proc/{self.process.pid}/cwd")

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def compiled(into: Path) -> Path:
    chosen = Compilers()
    compile_with, link_with = flags(chosen, built(chosen, into / "library"))
    source = Path(__file__).with_suffix(".c")
    command = ["cc", "-O2", *compile_with.split(), str(source), *link_with.split(), "-o", str(into / "in_c")]
    subprocess.run(command, check=True)
    return into / "in_c"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=150)
    parser.add_argument("--results", type=Path)
    told = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=".") as directory:
        top = Path(directory).resolve()
        exe = compiled(top)
        commands = {"C": [exe], "Python": [sys.executable, "-c", PYTHON]}
        starts: dict[str, list[float]] = {name: [] for name in commands}
        wholes: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(max(5, told.rounds // 10)):
            for name, command in commands.items():
                program = Program(top / f"start-{name}-{number}", *command, 1)
                starts[name].append(program.began)
                wholes[name].append(program.since)
                program.end()
        put(found, "init, ms", starts, 1e3)
        put(found, "from the start of the program to the end of init, ms", wholes, 1e3)
        for label, size in SIZES.items():
            with ExitStack() as stack:
                programs = {name: Program(top / f"{name}-{size}", *command, size) for name, command in commands.items()}
                for program in programs.values():
                    stack.callback(program.end)
                hides: dict[str, list[float]] = {name: [] for name in programs}
                for _ in range(told.rounds):
                    for name, program in programs.items():
                        hides[name].append(program.does("hide"))
                        program.does("wait")
                    time.sleep(0.01)
                put(found, f"hide of 3 files of {label}, ms", {k: v[2:] for k, v in hides.items()}, 1e3)
                if size == SIZES["64 KiB"]:
                    waits = {
                        name: [program.does("wait") for _ in range(told.rounds)] for name, program in programs.items()
                    }
                    put(found, "wait with nothing to wait for, us", waits, 1e6)
                    for verb in ("due", "should_stop"):
                        calls = {name: [program.does(verb) for _ in range(5)] for name, program in programs.items()}
                        put(found, f"{verb}, us in the mean", calls, 1.0)
                    found["memory, MB"] = {name: sum(program.memory()) for name, program in programs.items()}
                    found["memory of the program alone, MB"] = {
                        name: program.memory()[0] for name, program in programs.items()
                    }
    print(f"{'':38}{'C':>10}{'Python':>10}{'ratio':>8}")
    for what, row in found.items():
        print(f"{what:38}{row['C']:10.3f}{row['Python']:10.3f}{row['C'] / row['Python']:8.2f}")
    if told.results:
        told.results.mkdir(parents=True, exist_ok=True)
        (told.results / "in_c.json").write_text(json.dumps(found, indent=1) + "\n")


def put(found: dict[str, dict[str, float]], what: str, seconds: dict[str, list[float]], scale: float) -> None:
    found[what] = {name: statistics.median(values) * scale for name, values in seconds.items()}


if __name__ == "__main__":
    main()
