"""A glob of very many small files: what `hide`, `restore`, `status` and `why` take, beside bare renames of all.

    python benchmarks/many.py [FILES [DIRECTORY]]

100 000 files, in a new directory below DIRECTORY (default: the current one). Each time is that of one call; the bare
renames are done twice, before and after, and the lesser counts. The first `hide`, as each with `wait`, returns when the
set is durable and the files of which the bundle has a copy are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import safepoint


def write(work: Path, files: int) -> list[str]:
    (work / "f").mkdir(exist_ok=True)
    names = [f"{work}/f/{number:06}" for number in range(files)]
    for number, name in enumerate(names):
        with open(name, "wb", buffering=0) as file:
            file.write(b"%d" % number)
    return names


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def renames(work: Path, files: int) -> float:
    names = write(work, files)
    os.rename(work / "f", work / "was")
    (work / "f").mkdir()
    moves = [(name.replace("/f/", "/was/"), name) for name in names]
    return seconds(lambda: [os.rename(*move) for move in moves])


def command(work: Path, *words: str) -> float:
    return seconds(
        lambda: subprocess.run([sys.executable, "-m", "safepoint", *words, work], check=True, stdout=subprocess.DEVNULL)
    )


def measured(work: Path, files: int) -> dict[str, float]:
    (work / ".safepoint").write_text("f/*\n")
    bare = renames(work, files)
    (work / "was").rmdir()
    session = safepoint.Session(work)
    session.restore()
    found = {}
    for what in ("hide, the first", "hide", "hide, the next"):
        write(work, files)
        session.wait()
        found[what] = seconds(lambda: session.hide(1))
    found["until it is durable"] = seconds(session.wait)
    write(work, files)
    found["restore"] = seconds(session.restore)
    session.close()
    for words in (["status"], ["why", "--quick"], ["why"]):
        found[f"safepoint {' '.join(words)}"] = command(work, *words)
    found["bare renames"] = min(bare, renames(work, files))
    return found


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    goals = {"hide, the first": "<= 12", "hide": "<= 12", "hide, the next": "<= 12", "safepoint status": "<= 3 s"}
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else ".") as directory:
        found = measured(Path(directory).resolve(), files)
    bare = found.pop("bare renames")
    print(f"{files} files: {'s':>20} {'renames':>8}")
    print(f"{'bare renames':24} {bare:9.2f} {1:8.1f}")
    for what, took in found.items():
        print(f"{what:24} {took:9.2f} {took / bare:8.1f}   {goals.get(what, '')}")


if __name__ == "__main__":
    main()
