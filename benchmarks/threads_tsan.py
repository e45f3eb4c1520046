"""What ThreadSanitizer finds in the corpus of `tests/threads`, and what `safepoint threads` finds there: a table.

    python benchmarks/threads_tsan.py [--runs 5] [--resource-dir DIR] [--only NAME …] [--c | --fortran]

Each correct program and each planted bug runs with four threads, static. Ways to look at it:

    libgomp    gcc or gfortran -fsanitize=thread, with the runtime of GCC, which ThreadSanitizer does not see into
    libomp     the same, or clang, with libomp, and without Archer (OMP_TOOL=disabled)
    archer     with libarcher.so of libomp, and what its authors advise: TSAN_OPTIONS=ignore_noninstrumented_modules=1
    safepoint  `safepoint threads build` and `test`, which needs the serial program too; up to --runs runs, --noise 50

For Fortran the objects come from gfortran -fsanitize=thread and are linked with libomp, which has the entry points of
libgomp: flang 19 has no -fsanitize=thread. Clang needs libclang_rt.tsan (Debian: libclang-rt-14-dev); if it is unpacked
elsewhere, --resource-dir says where. A bug is found by ThreadSanitizer if a race that it tells has one of the lines of
the bug; a correct program on which it tells a race is a false alarm, unless one looks and the program is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from testbed.threads_bugs import BUGS
from testbed.threads_chain import SEEN, built, two_passes
from testbed.threads_corpus import IN_C, LIBOMP, PROGRAMS, surroundings

import safepoint.threads

HEADERS = Path(safepoint.threads.__file__).parent / "c"
ARCHER = LIBOMP / "libarcher.so"
OMP = [f"-L{LIBOMP}", f"-Wl,-rpath,{LIBOMP}"]
TSAN = "-g", "-O1", "-w", "-fsanitize=thread", "-fopenmp"
FRAME = re.compile(r"^\s+#\d+ .*?([\w.]+\.(?:f90|f|c)):(\d+)", re.M)
WAYS = {  # the environment of each
    "libgomp": {},
    "libomp": {"OMP_TOOL": "disabled"},
    "archer": {"OMP_TOOL_LIBRARIES": str(ARCHER), "TSAN_OPTIONS": "ignore_noninstrumented_modules=1"},
}


class Case(NamedTuple):
    """`bug`: its name, or empty for a correct program; `where`: its lines."""

    name: str
    source: Path
    bug: str
    where: set[int]
    flags: tuple[str, ...] = ()
    rules: tuple[tuple[str, object], ...] = ()

    @property
    def in_c(self) -> bool:
        return self.source.suffix == ".c"


def in_c() -> Iterator[Case]:
    for program in IN_C:
        yield Case(program.file, program.path, "", set())
        yield Case(program.file, program.path, program.bug, set(program.where), ("-DBUG",))


def in_fortran(where: Path) -> Iterator[Case]:
    for program in PROGRAMS:
        rules = {"rtol": program.rtol, "atol": program.atol, "exclude": program.exclude}
        yield Case(program.file, program.path, "", set(), (), tuple(rules.items()))
    for number, bug in enumerate(BUGS):
        rules = {"rtol": bug.of.rtol, "atol": bug.of.atol, "exclude": bug.of.exclude}
        (where / str(number)).mkdir()
        lines = {line for line, _ in bug.where}
        yield Case(bug.of.file, bug.write(where / str(number)), bug.name, lines, (), tuple(rules.items()))


def compile_for(case: Case, way: str, directory: Path, resources: str) -> Path | str:
    """The program, or why there is none."""
    to, source = directory / way, [*case.flags, str(case.source)]
    if case.in_c and way != "libgomp":
        more = [f"-resource-dir={resources}"] if resources else []
        lines = [
            [shutil.which("clang-14") or "clang", *more, *TSAN, f"-I{HEADERS}", *source, "-o", str(to), *OMP, "-lm"]
        ]
    elif case.in_c:
        lines = [["gcc", *TSAN, f"-I{HEADERS}", *source, "-o", str(to), "-lm"]]
    elif way == "libgomp":
        lines = [["gfortran", *TSAN, *source, "-o", str(to)]]
    else:
        lines = [
            ["gfortran", *TSAN, "-c", *source, "-o", f"{to}.o"],
            ["gfortran", "-fsanitize=thread", f"{to}.o", *OMP, "-lomp", "-o", str(to)],
        ]
    for line in lines:
        try:
            done = subprocess.run(line, cwd=directory, capture_output=True, text=True)
        except OSError as error:
            return f"no {line[0]}: {error.strerror}"
        if done.returncode:
            return done.stderr.strip().splitlines()[0]
    return to


def sanitized(case: Case, way: str, directory: Path, resources: str, runs: int, alarms: set[tuple[str, str]]) -> str:
    """What ThreadSanitizer says, over all runs. `alarms`: programs and ways in which it tells races without a bug, so
    that nothing is learned from those with one."""
    program = compile_for(case, way, directory, resources)
    if isinstance(program, str):
        return f"not built: {program}"
    races, lines = 0, set[int]()
    for _ in range(runs):
        done = subprocess.run([program], env=surroundings(4, "static", **WAYS[way]), capture_output=True, text=True)
        if "FATAL" in done.stderr:
            return "not run: " + next(line for line in done.stderr.splitlines() if "FATAL" in line)
        races += "WARNING: ThreadSanitizer: data race" in done.stderr
        lines |= {int(line) for name, line in FRAME.findall(done.stderr) if name == case.source.name}
    if not races:
        return "nothing" if case.bug else "nothing, rightly"
    how = f"in {races} of {runs} runs"
    if not case.bug:
        alarms.add((case.name, way))
        return f"false alarm {how}"
    if (case.name, way) in alarms:
        return "races, as without the bug"
    return f"found {how}" if lines & case.where else f"other lines {how}: {', '.join(map(str, sorted(lines)))}"


def compared(case: Case, directory: Path, runs: int) -> str:
    """What `safepoint threads` says: before the run, and in it."""
    compiler, more = ("gcc", [*case.flags, "-lm"]) if case.in_c else ("gfortran", [])
    made = built(case.source, directory, *more, compiler=compiler)
    warned = [text for text in made.warnings if {int(line) for _, line in SEEN.findall(text)} & case.where]
    found = two_passes(directory / made.parallel, directory, rules=dict(case.rules), runs=runs, noise=50)
    before = ", and warned of" if warned else ""
    if not case.bug:
        said = "nothing, rightly" if found.code == 0 else f"false alarm: {found.lines[-1]}"
        return said + (f"; warns: {made.warnings[0]}" if made.warnings else "")
    if found.code == 1:
        exact = set(found.places) & case.where
        iteration = f", iteration {', '.join(map(str, found.iteration))}" if exact and found.iteration else ""
        return f"line {min(exact)}{iteration}{before}" if exact else f"region{before}"
    return "warned of" if warned else "nothing" if found.code == 0 else "cannot tell"


def tools(resources: str) -> Iterator[str]:
    """What is there."""
    for line in (["gcc", "--version"], ["gfortran", "--version"], ["clang-14", "--version"]):
        found = shutil.which(line[0])
        yield (
            f"{line[0]}: {subprocess.run(line, capture_output=True, text=True).stdout.splitlines()[0]}"
            if found
            else (f"{line[0]}: not here")
        )
    yield f"libomp: {LIBOMP / 'libomp.so'}{'' if (LIBOMP / 'libomp.so').exists() else ', not here'}"
    yield f"Archer: {ARCHER}{'' if ARCHER.exists() else ', not here'}"
    usual = LIBOMP / "clang"
    runtime = list(Path(resources or usual).rglob("libclang_rt.tsan-x86_64.a"))
    yield f"libclang_rt.tsan: {runtime[0] if runtime else 'not here'}"


def table(cases: Sequence[Case], place: Path, resources: str, runs: int) -> Iterator[str]:
    yield "| program | bug | " + " | ".join(WAYS) + " | safepoint |"
    yield "|---|---|" + "---|" * (len(WAYS) + 1)
    alarms = set[tuple[str, str]]()
    for number, case in enumerate(cases):
        directory = place / f"case-{number}"
        directory.mkdir()
        said = [sanitized(case, way, directory, resources, runs, alarms) for way in WAYS]
        said.append(compared(case, directory, runs))
        yield f"| {case.name} | {case.bug or 'none'} | " + " | ".join(said) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--resource-dir", default="")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="programs or bugs whose name has one of these"
    )
    parser.add_argument("--c", action="store_true")
    parser.add_argument("--fortran", action="store_true")
    given = parser.parse_args(argv)
    for line in tools(given.resource_dir):
        print(line)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.0f}; {given.runs} runs each\n")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        cases = [*(in_c() if not given.fortran else ()), *(in_fortran(place) if not given.c else ())]
        cases = [case for case in cases if not given.only or any(x in f"{case.name} {case.bug}" for x in given.only)]
        for line in table(cases, place, given.resource_dir, given.runs):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
