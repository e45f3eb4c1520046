"""How long `hide` blocks, against bare renames of the same files in the same process.

    python benchmarks/blocking.py [ROUNDS]

Three files, dirty in the page cache, are moved into a fresh directory: by three bare `os.rename`, and by `hide`, taking
turns. Reported are medians over the rounds and their ratio, on the current file system and, as root, on freshly made,
journaled ext4 and XFS (the disk of a build machine may have no journal). Between the rounds everything is flushed, so
that no round pays for another; the set in flight is waited for, so that back-pressure is not measured.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from testbed import mounts

import safepoint

SMALL, LARGE = 8_000_000, 267_000_000  # bytes a file
NAMES = ("a.dat", "b.dat", "c.dat")


def write_files(directory: Path, size: int) -> None:
    block = os.urandom(1 << 20)
    for name in NAMES:
        with (directory / name).open("wb") as file:
            for position in range(0, size, len(block)):
                file.write(block[: size - position])


def bare(directory: Path, number: int) -> float:
    target = directory / f"bare-{number}"
    target.mkdir()
    pairs = [(str(directory / name), str(target / name)) for name in NAMES]
    begin = time.perf_counter()
    for source, destination in pairs:
        os.rename(source, destination)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return seconds


def measure(directory: Path, size: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the bare renames and of `hide`, round by round."""
    (directory / ".safepoint").write_text("\n".join(NAMES))
    session = safepoint.Session(directory)
    session.restore()
    write_files(directory, size)
    session.hide(wait=True)  # the first set always waits
    renames, hides = [], []
    for number in range(rounds):
        write_files(directory, size)
        renames.append(bare(directory, number))
        write_files(directory, size)
        begin = time.perf_counter()
        session.hide(step=number)
        hides.append(time.perf_counter() - begin)
        session.wait()
        os.sync()
    write_files(directory, 1)
    session.finish()
    return renames, hides


@contextmanager
def here() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        yield Path(directory).resolve()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(
        f"{'file system':12} {'3 files of':>10} {'rounds':>7} {'renames':>10} {'hide':>10} {'ratio':>7}   (µs, medians)"
    )
    for kind in ("here", "ext4", "xfs"):
        reason = None if kind == "here" else mounts.why_not(kind)
        if reason:
            print(f"{kind:12} not measured: {reason}")
            continue
        place = here() if kind == "here" else mounts.mounted(kind, 4000)
        with place as directory:
            for size in (SMALL, LARGE):
                few = rounds if size == SMALL else max(rounds // 5, 3)  # each writes 1.6 GB
                renames, hides = (statistics.median(times) * 1e6 for times in measure(directory, size, few))
                ratio = f"{hides / renames:6.1f}x"
                print(f"{kind:12} {size / 1e6:7.0f} MB {few:7} {renames:10.1f} {hides:10.1f} {ratio}", flush=True)


if __name__ == "__main__":
    main()
