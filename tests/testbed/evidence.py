"""`make crash`: run the tests of kills and power cuts in their long form; write docs/evidence.md from what they did.

    python tests/testbed/evidence.py [long|all]

The numbers come from the tests themselves (`tally.count`), the failures and the tests that were left out from pytest.
A violation is written down like a success; its name is printed at once. What has ended is in a directory of `build`
from then on, and stays there if the run fails, is interrupted, or killed. docs/evidence.md is written only when all
tests have ended, and none was left out for want of root or of a program. The exit status is that of the tests.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from testbed import outcomes
from testbed.outcomes import Outcomes

HERE = Path(__file__).parents[1]
TARGET = HERE.parent / "docs" / "evidence.md"
ASIDE = HERE.parent / "build"
TESTS = (
    "proof/test_mpi.py", "proof/powercut", "promises", "proof/test_strace.py", "proof/test_kill.py",
    "proof/test_run_killed.py", "proof/test_when_ranks.py", "files/test_kinds.py", "files/test_append.py",
    "files/test_format.py", "proof/test_mounts.py", "parts/test_disk.py",
    "proof/test_foreign_syscalls.py", "proof/test_foreign_killed.py",
)  # fmt: skip
MEANING = {
    "real power cuts": "the file system is shut down without flushing its log, and mounted again; the program stood "
    "still after a system call, or at a random instant; what was submitted to the device is not lost, as it has no "
    "cache of its own: that is the part of the model",
    "states of the model": "what POSIX allows a power cut to leave: each prefix of the recorded operations; "
    "everything, and only what an fsync guarantees; single effects dropped and kept alone; torn, empty, zero contents",
    "system calls played into the model": "of the program and the library, with their data, as strace saw them",
    "deaths in the model": "before and in the middle of each operation that changes something",
    "kills at a system call": "SIGKILL by a tracer, before the call is made; the program started again",
    "kills at random instants": "SIGKILL; the program started again",
    "full disks": "lives that ended with an error on an ext4 with few bytes left; then there was room again",
    "quotas used up": "lives in which EDQUOT was injected into a system call, once in each thread or from then on",
    "file systems that broke down": "lives that ended with an error as ext4 made itself read-only; then repaired",
}

PROMISES = (
    ("G1 atomic", "every row of the table above: each case ends with a look at every byte that was given back"),
    ("G2 durable", "real power cuts; states of the model; system calls played into the model; full disks, quotas, "
     "break-downs: the step that is given back is never older than the last one that was said to be durable"),
    ("G2k kill-safe", "kills at a system call, and at random instants: never older than the last `hide` that returned"),
    ("G3 re-runnable", "kills and cuts in `restore` itself, again and again: deaths in the model, kills at a system "
     "call, every third real cut is followed by another one while the program starts"),
    ("G4 finished", "each life ends with `finish`, and is cut or killed there too"),
    ("G5 one step", "tests/proof/test_mpi.py: ranks killed at random instants and at each system call, alone and "
     "together; each node with a disk of its own that lost something else"),
    ("G6 checked", "tests/promises/test_g6_checked.py, tests/files/test_kinds.py, tests/proof/test_mounts.py: each "
     "stored file changed, cut, lengthened, deleted; blocks that rot below the page cache"),
    ("G7 loud", "tests/promises/test_g7_loud.py: each operation fails once with each error; full disks, quotas and "
     "break-downs for real: the error names a file and the cause"),
    ("G8 exclusive", "tests/promises/test_g8_exclusive.py, and the variant without a lock below"),
)  # fmt: skip


def run(level: str, directory: Path) -> tuple[int, int, float]:
    """Pytest's status, the signal that ended it before its time or 0, and the seconds that it took."""
    environment = {**os.environ, "SAFEPOINT_CRASH": level, "SAFEPOINT_TALLY": str(directory / "tally")}
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", f"--outcomes={directory / 'outcomes'}"]
    command += [str(HERE / name) for name in TESTS]
    received: list[int] = []
    tests: subprocess.Popen[bytes] | None = None

    def end(number: int, _frame: object) -> None:
        received.append(number)
        with contextlib.suppress(ProcessLookupError):
            if tests and len(received) == 1:
                tests.send_signal(signal.SIGINT)  # then pytest ends its workers, and says what failed
            elif tests:
                os.killpg(tests.pid, signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, end)
    begin = time.monotonic()
    # A session of its own, or a Ctrl-C would reach pytest twice, and the second one cuts short what the first began.
    tests = subprocess.Popen(command, env=environment, cwd=HERE.parent, start_new_session=True)
    if received:
        tests.send_signal(signal.SIGINT)
    return tests.wait(), (received or [0])[0], time.monotonic() - begin


def read_tally(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tool(*command: str) -> str:
    """The version that a tool says it has."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "not there"
    return (done.stdout + done.stderr).strip().splitlines()[0]


def versions() -> list[str]:
    packages = ("mpi4py", "filelock", "zstandard", "xxhash", "pytest", "hypothesis")
    return [
        f"- Linux {platform.release()} on {platform.machine()}, {os.cpu_count()} cores",
        f"- Python {platform.python_version()}, safepoint {version('safepoint')}, commit "
        + tool("git", "-C", str(HERE), "describe", "--always", "--dirty"),
        "- " + ", ".join(f"{name} {version(name)}" for name in packages),
        f"- {tool('mkfs.ext4', '-V')}; {tool('mkfs.xfs', '-V')}; {tool('strace', '-V')}",
    ]


def table(rows: list[dict[str, Any]]) -> list[str]:
    sums: collections.Counter[tuple[str, str]] = collections.Counter()
    parts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        key = row["what"], row["where"]
        sums[key] += row["number"]
        parts[key].update({name.replace("_", " "): row[name] for name in row.keys() - {"what", "where", "number"}})
    lines = ["| what | where | cases |", "|---|---|---:|"]
    for what in MEANING:
        keys = sorted(key for key in sums if key[0] == what)
        for key in keys:
            of = ", ".join(f"{number} {name}" for name, number in sorted(parts[key].items()))
            lines.append(f"| {what} | {key[1]}{f' ({of})' if of else ''} | {sums[key]} |")
        lines.append(f"| **{what}** | **in all** | **{sum(sums[key] for key in keys)}** |")
    return lines


def written(level: str, status: int, rows: list[dict[str, Any]], seconds: float, found: Outcomes) -> str:
    left_out = found.left_out
    variants = sorted((row["where"].split(" | "), row["said"]) for row in rows if row["what"] == "broken variants")
    caught = [f"| {name} | {by} | {said.replace('|', '/')[:160]} |" for (name, by), said in variants]
    command = "make crash" if level == "long" else "make crash-all"
    lines = [
        "# Evidence",
        "",
        f"Written by `{command}` itself on {datetime.date.today()}, after {seconds / 60:.0f} minutes; not edited.",
        "",
        *versions(),
        "",
        f"**Violations: {len(found.failed)}.** {found.passed} tests passed, {sum(left_out.values())} were left out"
        + (f", of {found.collected}: the run was interrupted." if status not in (0, 1) else "."),
        *(f"\n- failed: `{name}`" for name in found.failed),
        *(f"\n- under way when it ended: `{name}`" for name in found.under_way),
        *(f"\n- left out, {number} tests: {reason}" for reason, number in left_out.items()),
        "",
        "Every case below ends with the program started again: what it gets back must be one whole step, byte for "
        "byte, not older than what was promised, and from there it must reach its end, with no set damaged.",
        "",
        *table([row for row in rows if row["what"] != "broken variants"]),
        "",
        *(f"- *{what}*: {meaning}." for what, meaning in MEANING.items()),
        "",
        "| promise | looked at by |",
        "|---|---|",
        *(f"| {promise} | {by} |" for promise, by in PROMISES),
        "",
        "## The harness itself",
        "",
        f"{len(caught)} variants of the library, each broken on purpose in one place, and what noticed it; a part of "
        "the same check, before, finds nothing in the library as it is.",
        "",
        "| broken | caught by | what it said |",
        "|---|---|---|",
        *caught,
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    level = sys.argv[1] if len(sys.argv) > 1 else "long"
    ASIDE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"crash-{datetime.date.today()}-", dir=ASIDE))
    print(f"what became of each test so far: {directory / 'outcomes'}", flush=True)
    status, ended_by, seconds = run(level, directory)
    found = outcomes.read(directory / "outcomes")
    whole = status in (0, 1) and not ended_by
    page = TARGET if whole and not found.left_out else directory / "evidence.md"
    page.write_text(written(level, status, read_tally(directory / "tally"), seconds, found))
    if page == TARGET:
        print(f"{os.path.relpath(TARGET)} written")
    else:
        why = "tests were left out" if whole else "the tests were interrupted"
        print(f"{why}: {os.path.relpath(TARGET)} is as it was; {page} has what they did", file=sys.stderr)
    if page == TARGET and not found.failed:
        shutil.rmtree(directory)
    return 128 + ended_by if ended_by else status


if __name__ == "__main__":
    sys.exit(main())
