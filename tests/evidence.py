"""`make crash`: run the tests of kills and power cuts in their long form; write docs/evidence.md from what they did.

    python tests/evidence.py [long|all]

The numbers come from the tests themselves (`tally.count`), the failures and the tests that were left out from pytest.
A violation is written down like a success. Where tests had to be left out, for want of root or of a program, the
outcome is printed, and the file stays as it is. The exit status is that of the tests.
"""

from __future__ import annotations

import collections
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "evidence.md"
TESTS = (
    "test_mpi.py", "powercut", "test_crash.py", "test_gaps.py", "test_strace.py", "test_kill.py", "test_machine.py",
    "test_kinds.py", "test_append.py", "test_format.py", "test_faults.py", "test_damage.py", "test_mounts.py",
    "test_disk.py",
)  # fmt: skip
MEANING = {
    "real power cuts": "the file system is shut down without flushing its log, and mounted again; the program stood "
    "still after a system call, or at a random instant; what was submitted to the device is not lost, as it has no "
    "cache of its own: that is the part of the model",
    "states of the model": "what POSIX allows a power cut to leave: each prefix of the recorded operations; "
    "everything, and only what an fsync guarantees; single effects dropped and kept alone; torn, empty, zero contents",
    "system calls played into the model": "of the program and the library, with their data, as strace saw them",
    "deaths in the model": "before and in the middle of each operation that changes something",
    "kills at a system call": "SIGKILL by strace, before the call is made; the program started again",
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
    ("G5 one step", "tests/test_mpi.py: ranks killed at random instants and at each system call, alone and together; "
     "each node with a disk of its own that lost something else"),
    ("G6 checked", "tests/test_damage.py, tests/test_kinds.py, tests/test_mounts.py: each stored file changed, cut, "
     "lengthened, deleted; blocks that rot below the page cache"),
    ("G7 loud", "tests/test_faults.py: each operation fails once with each error; full disks, quotas and break-downs "
     "for real: the error names a file and the cause"),
    ("G8 exclusive", "tests/test_session.py, and the variant without a lock below"),
)  # fmt: skip


def run(level: str, directory: Path) -> tuple[int, float]:
    environment = {**os.environ, "SAFEPOINT_CRASH": level, "SAFEPOINT_TALLY": str(directory / "tally")}
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", f"--junitxml={directory / 'xml'}"]
    begin = time.monotonic()
    done = subprocess.run([*command, *(str(HERE / name) for name in TESTS)], env=environment, cwd=HERE.parent)
    return done.returncode, time.monotonic() - begin


def read_tally(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def outcomes(path: Path) -> tuple[int, list[str], collections.Counter[str]]:
    """How many tests passed; the names of those that failed; why others were left out."""
    passed, failed, left_out = 0, [], collections.Counter()
    for case in Xml.parse(path).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (skipped := case.find("skipped")) is not None:
            left_out[str(skipped.get("message"))] += 1
        else:
            passed += 1
    return passed, failed, left_out


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


def written(level: str, status: int, rows: list[dict[str, Any]], seconds: float, xml: Path) -> str:
    passed, failed, left_out = outcomes(xml)
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
        f"**Violations: {len(failed)}.** {passed} tests passed, {sum(left_out.values())} were left out"
        + (f"; the run did not end well: pytest's status is {status}." if status > 1 else "."),
        *(f"\n- failed: `{name}`" for name in failed),
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
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        status, seconds = run(level, directory)
        if not (directory / "xml").exists():
            print("the tests did not run; docs/evidence.md is as it was", file=sys.stderr)
            return status or 1
        text = written(level, status, read_tally(directory / "tally"), seconds, directory / "xml")
        if outcomes(directory / "xml")[2]:
            print(f"{text}\ntests were left out: docs/evidence.md is as it was", file=sys.stderr)
        else:
            TARGET.write_text(text)
            print(f"{TARGET.relative_to(HERE.parent)} written")
    return status


if __name__ == "__main__":
    sys.exit(main())
