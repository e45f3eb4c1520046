"""`make check-suites`: run `safepoint check` on the public suites of MPI mistakes, and count what it finds.

A code counts as found if a template that fits its label is reported at its line, where the suite names one; a correct
code is a false alarm if anything of kind error is reported of it, but for the leaks that it really has (`REAL`).
The table is in docs/check-evidence.md, and what it says is what the next run must reach.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from testbed.checking import last_object
from testbed.foreign import MPICH, environment
from testbed.paths import HOUSE
from testbed.suite_codes import CORRECT, DEADLOCK, FITTING, GOALS, Run, headers

TEMPLATES = HOUSE / "safepoint" / "check" / "standard"
TARGET = HOUSE / "docs" / "check-evidence.md"
HANG, PATIENCE = 3, 300  # seconds: without progress, and until a run is ended from outside
WORKERS = 2 * (os.cpu_count() or 1)  # what hangs waits most of its time

# Correct codes of which something of kind error is reported by right. Each was looked at by a person, who says why.
REAL: dict[str, tuple[frozenset[str], str]] = {
    "two_collectives_4": (
        frozenset({"collective-order"}),
        "two threads call different collective operations on one communicator at the same time, which MPI forbids "
        "(section 5.13 of 3.1); its own comment doubts that it is right, and with MPICH it has ended with an error",
    ),
}

# Codes whose mistake cannot be found at the lines that they name, and why. Each was looked at by a person.
OF_ANOTHER_LINE = (
    "the line that is named is an MPI_Comm_free, and what it frees is freed. The communicator that is left over is "
    "told at the line that makes it"
)
OF_NO_HANG = (
    "nothing hangs: the root of an MPI_Bcast of one integer waits for nobody in MPICH, so it comes to the send for "
    "which the other rank waits before its MPI_Bcast. With an MPI whose MPI_Bcast waits it is a deadlock"
)
OF_NO_RANK = (
    "the rank that is given is -1, which is MPI_PROC_NULL in MPICH: the call is right there, and does nothing. With "
    "Open MPI the line is told by negative-rank"
)
OF_ANY_RANK = (
    "the source that is given is -1, which is MPI_PROC_NULL in MPICH and MPI_ANY_SOURCE in Open MPI: the call is right "
    "with both, and with Open MPI the message comes"
)
NOT_THERE = {
    "ArgError-MPIGet-rank": OF_NO_RANK,
    "ArgError-MPIISend-Rank-1": OF_NO_RANK,
    "ArgError-MPIPut-rank": OF_NO_RANK,
    "ArgError-MPIRecv-Rank-1": OF_ANY_RANK,
    "ResLeak_multiple_Comm_create_nok": OF_ANOTHER_LINE,
    "ResLeak_multiple_Comm_dup_nok": OF_ANOTHER_LINE,
    "CallOrdering_Recv_Isend_Bcast_nok": OF_NO_HANG,
    "CallOrdering_Recv_Send_Bcast_nok": OF_NO_HANG,
}


class Call(NamedTuple):
    """Of a situation, with line."""

    function: str
    line: int


class Situation(NamedTuple):
    template: str
    kind: str
    calls: tuple[Call, ...]
    missing: frozenset[str]  # functions that were not called


class Outcome(NamedTuple):
    """What came of a run."""

    run: Run
    how: str  # "checked"; or why there is no report: "does not compile: …", "no report: …"
    situations: tuple[Situation, ...] = ()
    hang: bool = False
    deadlock: bool = False
    code: int = 0
    seconds: float = 0.0

    @property
    def found(self) -> bool:
        return any(fits(self.run, situation) for situation in self.situations)

    @property
    def alarms(self) -> list[str]:
        """The templates of kind error, of a correct code, that are no real mistake of it; and that it was ended."""
        real = REAL.get(self.run.path.stem, (frozenset[str](), ""))[0]
        return sorted({one.template for one in self.situations if one.kind == "error"} - real) + ["hang"] * self.hang


def fits(run: Run, situation: Situation) -> bool:
    """Is it the mistake of which the suite tells, and in its place?"""
    if situation.template not in run.fitting:
        return False
    if run.lines and not any(call.line in run.lines for call in situation.calls):
        return False
    functions = {call.function for call in situation.calls} | situation.missing
    return not run.functions or bool(run.functions & functions)


def situations(report: Mapping[str, Any]) -> tuple[Situation, ...]:
    """Of what the command has printed: one for each place, and the closed chain in which ranks wait for each other."""
    found = []
    for one in report["situations"]:
        for place in one["places"]:
            made = [each["made"] for each in place["calls"] if "made" in each]
            calls = tuple(
                Call(each["function"], each.get("line") or 0)
                for each in (*place["calls"], *made) if "function" in each
            )  # fmt: skip
            missing = frozenset(name for each in place["calls"] for name in each.get("not_called", ()))
            found.append(Situation(one["template"], one["kind"], calls, missing))
    hang = report.get("hang") or {}
    if hang.get("deadlock"):
        calls = tuple(Call(each["function"], each["line"]) for each in hang["at"] if each["rank"] in hang["stuck"])
        found.append(Situation(DEADLOCK, "error", calls, frozenset()))
    return tuple(found)


def there() -> bool:
    """Is there the command?"""
    done = subprocess.run([sys.executable, "-m", "safepoint", "check", "--list"], capture_output=True, cwd=HOUSE)
    return done.returncode == 0


def compiled(run: Run, suites: Path, into: Path) -> tuple[Path | None, str]:
    """The program, or what the compiler says. One that is there already is not made again."""
    into.mkdir(parents=True, exist_ok=True)
    target = into / "_".join(run.path.relative_to(suites).with_suffix("").parts)
    if target.exists():
        return target, ""
    more = ["-fopenmp"] if "openmp" in run.path.parts else []
    include = [word for directory in headers(suites) for word in ("-I", str(directory))]
    new = target.with_name(f"{target.name}.{threading.get_ident()}")  # a code may be run twice at a time
    command = [MPICH.cc, "-g", "-O0", "-w", *more, *include, str(run.path), "-lm", "-o", str(new)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = re.search(r"error: (.*)", done.stderr)
        return None, said[1] if said else done.stderr.strip()[-200:]
    new.replace(target)
    return target, ""


def ended(process: subprocess.Popen[str]) -> None:
    """End it and all that it has started: they are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
    process.communicate()


def command(program: Path, run: Run) -> list[str]:
    job = [MPICH.mpiexec, "-n", str(run.ranks), str(program), *run.arguments]
    hang = HANG if run.label != CORRECT else PATIENCE  # a busy machine may let one that is right stand for a while
    check = [sys.executable, "-m", "safepoint", "check", "--json", "--hang", str(hang), "-t", str(TEMPLATES)]
    return [*check, *run.options, "--", *job]


def checked(run: Run, suites: Path, into: Path, made: Callable[[Path, Run], list[str]] = command) -> Outcome:
    """Compile a code, run it under the command, and read its report."""
    program, why = compiled(run, suites, into / "bin")
    if program is None:
        return Outcome(run, f"does not compile: {why}")
    work = into / "work" / "-".join((program.name, *run.arguments, *run.options))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    begin = time.monotonic()
    process = subprocess.Popen(
        made(program, run), cwd=work, env=environment(OMP_NUM_THREADS="2"), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        said, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        ended(process)
        return Outcome(run, f"no report: still there after {PATIENCE} s", seconds=time.monotonic() - begin)
    seconds = time.monotonic() - begin
    shutil.rmtree(work, ignore_errors=True)
    report = last_object(said)
    if report is None:
        return Outcome(run, f"no report: {errors.strip()[-300:]}", code=process.returncode, seconds=seconds)
    hang = report.get("hang") or {}
    return Outcome(
        run, "checked", situations(report), bool(hang), bool(hang.get("deadlock")), process.returncode, seconds
    )


def ran(runs: Sequence[Run], suites: Path, into: Path) -> list[Outcome]:
    """All of them, some at a time."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(lambda run: checked(run, suites, into), runs))


# The table.


class Count(NamedTuple):
    found: int
    of: int


def counts(outcomes: Iterable[Outcome]) -> dict[str, Count]:
    """Suite and label → how many were found of those that compile."""
    numbers: dict[str, Count] = {}
    for one in outcomes:
        if one.run.label != CORRECT and not one.how.startswith("does not compile"):
            key = f"{one.run.suite} {one.run.label}"
            before = numbers.get(key, Count(0, 0))
            numbers[key] = Count(before.found + one.found, before.of + 1)
    return numbers


def before(page: str) -> dict[str, Count]:
    """What the page says of an earlier run."""
    rows = re.findall(r"^\| (\w+) \| ([^|]+) \| [^|]*\| (\d+) of (\d+) \|", page, re.M)
    return {f"{suite} {label.strip()}": Count(int(found), int(of)) for suite, label, found, of in rows}


def worse(now: Mapping[str, Count], then: Mapping[str, Count]) -> list[str]:
    """Labels of which less is found than before. (Another half of a suite has other numbers: nothing is compared.)"""
    return [
        f"{label}: {now[label].found} of {now[label].of}, it was {old.found}"
        for label, old in then.items()
        if label in now and now[label].of == old.of and now[label].found < old.found
    ]


def page(outcomes: Sequence[Outcome], seconds: float) -> str:
    """docs/check-evidence.md."""
    right = [one for one in outcomes if one.run.label == CORRECT]
    judged = [one for one in right if one.how == "checked"]
    alarmed = [one for one in judged if one.alarms]
    lost = [one for one in outcomes if one.how.startswith("no report")]
    bare = [one for one in outcomes if one.how.startswith("does not compile")]
    lines = [
        "# What `safepoint check` finds in public suites", "",
        "`make check-suites` writes this page. The codes are those of the half of the [MPI Bugs Initiative]"
        "(https://github.com/mquinson/MBI) and of [MPI-CorrBench](https://github.com/tudasc/MPI-Corrbench) that is at "
        "hand where these templates were written; nothing was fitted to a single code. All templates that are shipped "
        f"take part, MPICH runs the codes, and what hangs is ended after {HANG} s.", "",
        "*Found* means: by a template that fits the label, at a line that the suite names (MBI), or in the function "
        "that the name of the code says (CorrBench). `deadlock` is no template, but the closed chain of ranks that "
        "wait for each other in the report of a hang. To MPICH a rank of -1 is MPI_PROC_NULL: of codes with that "
        "mistake it is found that a message is lost. The numbers may only get better: the test compares.", "",
        "| suite | label | goal | found | templates that fit |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for label, (found, of) in sorted(counts(outcomes).items()):
        suite, _, name = label.partition(" ")
        fit = ", ".join(FITTING[suite].get(name, ())) or "none"
        lines.append(f"| {suite} | {name} | {GOALS.get(label, '')} | {found} of {of} | {fit} |")
    lines += [
        "",
        f"**Correct codes with an alarm of kind error, or told as hanging: {len(alarmed)} of {len(judged)}.**",
    ]
    lines += [f"- {one.run.name}: {', '.join(one.alarms)}" for one in alarmed]
    real = sorted({one.run.path.stem for one in judged} & {*REAL})
    lines += [
        "",
        "Reported by right in codes that are called correct:",
        "",
        *(f"- {name}: {REAL[name][1]}" for name in real),
    ]
    lines += [
        "",
        f"{len(outcomes)} runs in {seconds / 60:.0f} min on {os.cpu_count()} cores; {len(bare)} do not compile here, "
        f"{len(lost)} have left no report, {sum(one.hang for one in outcomes)} were ended as hung.",
    ]
    missed = [one for one in outcomes if one.run.label != CORRECT and one.run.fitting and one.how == "checked"]
    names = [f"{one.run.name} ({one.run.label})" for one in missed if not one.found]
    lines += ["", "Not found, though a template fits: " + ("; ".join(names) or "none") + ".", ""]
    known = [one.run.path.stem for one in missed if not one.found and one.run.path.stem in NOT_THERE]
    lines += ["Not to be found there:", "", *(f"- {name}: {NOT_THERE[name]}." for name in known), ""] if known else []
    return "\n".join(lines)
