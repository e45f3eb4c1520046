"""What a program pays before its first line: `import safepoint`, and a session in an empty directory.

    python benchmarks/start.py [ROUNDS]

Each is a process of its own, in turn with one that does nothing. The least of all rounds counts, as whatever disturbs a
round makes it longer; of the processor's time too, which a busy machine disturbs less. The modules lie compiled in a
cache, as pip leaves them: with PYTHONDONTWRITEBYTECODE and no cache every start would compile them anew.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

BARE = "pass"
PROGRAMS = {
    "import safepoint": "import safepoint",
    "import safepoint; init, restore": "import safepoint; safepoint.init(); safepoint.restore()",
}


def seconds(program: str, environment: dict[str, str], directory: str) -> tuple[float, float]:
    """Of the clock, and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, cwd=directory, env=environment)
    took = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as cache:
        with open(os.path.join(work, ".safepoint"), "w") as file:
            file.write("u.dat\n")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        times: dict[str, list[tuple[float, float]]] = {program: [] for program in (BARE, *PROGRAMS.values())}
        for turn in range(rounds + 1):
            for program, found in times.items():
                took = seconds(program, environment, work)
                if turn:  # the first one compiles
                    found.append(took)
    bare = [min(column) for column in zip(*times[BARE], strict=True)]
    print(f"{'ms, the least of ' + str(rounds):34} {'clock':>7} {'processor':>10}")
    print(f"{'python -c pass':34} {bare[0] * 1e3:7.1f} {bare[1] * 1e3:10.1f}")
    for what, program in PROGRAMS.items():
        clock, processor = (min(column) for column in zip(*times[program], strict=True))
        goal = "   goal: <= 30" if what == "import safepoint" else ""
        print(f"+ {what:32} {(clock - bare[0]) * 1e3:7.1f} {(processor - bare[1]) * 1e3:10.1f}{goal}")


if __name__ == "__main__":
    main()
