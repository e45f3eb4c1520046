"""How long until a set is durable, and until it is back, against what the system's own tools take, in the same run.

    python benchmarks/throughput.py [ROUNDS] [PLACE …]

PLACE: ext4, xfs (freshly made, journaled, in an image file in the current directory, without a second page cache below;
needs root), here. The two things
are done in turn in the same directory, everything else flushed before; the first ratio is that of the two best rounds,
the second that of the medians: what disturbs a round only ever makes it longer, and in a virtual machine that gives
free memory back to its host the first touch of a page costs ten times what writing it does, by chance in the one
measurement or in the other. Files are freshly written, so dirty and in the page cache, as they are for `hide`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy
from end_to_end import clean, touch
from testbed import mounts

import safepoint
from safepoint.disk import Disk, codec

LARGE = 512 << 20
WARM = min(3 << 30, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
SMALL, MANY = 16 << 10, 1000


def fill(path: Path, size: int, *, compressible: bool = False) -> None:
    """A new file: noise, or a smooth field of 32-bit numbers with two decimals, which never repeats."""
    block = os.urandom(1 << 20)
    walk = numpy.cumsum(numpy.random.default_rng(1).standard_normal(4 << 20 if compressible else 1) / 10)
    with path.open("wb") as file:
        for number, position in enumerate(range(0, size, 16 << 20 if compressible else 1 << 20)):
            if compressible:
                block = numpy.round(walk * (1 + number / 100), 2).astype(numpy.float32).tobytes()
            file.write(block[: size - position])


def timed(directory: Path, work: Callable[[], object]) -> float:
    """Seconds. Some memory is touched, and freed, before: see above."""
    touch(WARM)
    touch(LARGE * 5 // 4, directory)
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def fsync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def ran(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


def report(place: str, what: str, ours: list[float], theirs: list[float], goal: str) -> None:
    best, theirs_best = min(ours), min(theirs)
    medians = statistics.median(ours) / statistics.median(theirs)
    row = f"{best * 1e3:8.1f} {theirs_best * 1e3:8.1f} {best / theirs_best:7.2f} {medians:7.2f}"
    print(f"{place:5} {what:62} {row}   {goal}", flush=True)


class Work:
    """A working directory with a session in it, far from its first set."""

    def __init__(self, directory: Path, manifest: str, write: Callable[[], object]) -> None:
        clean(directory)
        (directory / ".safepoint").write_text(manifest + "keep = 1\n")
        self.directory, self.session = directory, safepoint.Session(directory)
        self.session.restore()
        self.write = write
        for step in range(2):
            write()
            self.session.hide(step, wait=True)

    def hide(self) -> float:
        """Seconds until durable, without the deletion of the set before, which comes after."""
        self.write()
        timed(self.directory, lambda: self.session.hide(9, wait=True))
        return float(json.loads(Path(self.session._root.log).read_text().splitlines()[-1])["seconds"])

    def end(self) -> None:
        self.session.close()


def large_file(place: str, work: Path, rounds: int) -> None:
    """Time to durable of one large file, against its fsync alone."""
    here = Work(work, "u.dat\n", lambda: fill(work / "u.dat", LARGE))
    ours, theirs = [], []
    for _ in range(rounds):
        fill(work / "bare.dat", LARGE)
        theirs.append(timed(work, lambda: fsync(work / "bare.dat")))
        (work / "bare.dat").unlink()
        os.sync()
        ours.append(here.hide())
        os.sync()
    here.end()
    report(place, "512 MB to durable : fsync of it", ours, theirs, "<= 1.15")


def forget_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


def restored(place: str, work: Path, rounds: int, *, cold: bool, over: bool = False) -> tuple[list[float], list[float]]:
    """Restore of one large file, against cp of it and reading it once for its checksum; `cold`: from the disk, as on
    a machine that was started again, else from the page cache, as after a kill; `over`: onto a file that exists, as
    nearly always, while cp makes a new one. Seconds of ours, and of cp alone."""
    here = Work(work, "u.dat\n", lambda: fill(work / "u.dat", LARGE))
    here.hide()
    here.end()
    (stored,) = work.glob(".safepoint.d/rank-00000/set-*/files/u.dat")
    ours, copies, sums = [], [], []
    prepare = forget_cache if cold else os.sync
    for _ in range(rounds):
        prepare()
        copies.append(timed(work, lambda: ran("cp", "--reflink=never", stored, work / "copy.dat")))
        (work / "copy.dat").unlink()
        os.sync()
        with Disk().open(str(stored)) as source:
            sums.append(timed(work, lambda source=source: codec.copy(source)))
        if over:
            fill(work / "u.dat", LARGE)
        with safepoint.Session(work) as session:
            prepare()
            ours.append(timed(work, session.restore))
            session.close()
        (work / "u.dat").unlink()
    bound = [copy + check for copy, check in zip(copies, sums, strict=True)]
    how = f"{'disk' if cold else 'cache'}{', over a file' * over}"
    report(place, f"restore of 512 MB from the {how} : cp + checksum", ours, bound, "<= 1.15")
    goal = "<= 0.50" if place == "xfs" else "<= 1.20" if over else "<= 1.30"
    report(place, f"restore of 512 MB from the {how} : cp --reflink=never alone", ours, copies, goal)
    if place == "xfs" and not cold and not over:
        report(place, "the checksum of 512 MB alone : cp --reflink=never alone", sums, copies, "the least possible")
    return ours, copies


def compressed(place: str, work: Path, rounds: int, threads: int) -> None:
    """Throughput of `compress`, against the zstd program with the same level and threads, its output flushed too."""
    if shutil.which("zstd") is None:
        print(f"{place:5} compress not measured: needs the program zstd")
        return
    source = work / "u.dat"
    manifest = f"u.dat compress\npack_threads = {threads}\n"
    here = Work(work, manifest, lambda: fill(source, LARGE, compressible=True))
    ours, theirs = [], []
    for _ in range(rounds):
        fill(work / "bare.dat", LARGE, compressible=True)

        def program() -> None:
            ran("zstd", "-q", "-f", "-3", f"-T{threads}", work / "bare.dat", "-o", work / "bare.zst")
            fsync(work / "bare.zst")

        theirs.append(timed(work, program))
        (work / "bare.dat").unlink()
        (work / "bare.zst").unlink()
        os.sync()
        ours.append(here.hide())
        os.sync()
    here.end()
    report(place, f"512 MB compressed, level 3, {threads} thread(s) : zstd -T{threads}", ours, theirs, "<= 1.11")


def many_files(place: str, work: Path, rounds: int) -> None:
    """Time to durable of a thousand small files, against fsync of one after the other."""

    def write(directory: Path = work / "run") -> None:
        directory.mkdir()
        block = os.urandom(SMALL)
        for number in range(MANY):
            (directory / f"f{number:05}").write_bytes(block)

    kinds = (("run/\n", "one directory"), ("run/*\n", "a glob"), ("run/\nbundle_from = 9999\n", "without tar"))
    for manifest, what in kinds:
        here = Work(work, manifest, write if manifest[4] != "*" else lambda: write_flat(work / "run"))
        ours, theirs = [], []
        for _ in range(rounds):
            bare = work / "bare"
            write(bare)
            theirs.append(timed(work, lambda bare=bare: fsync(*sorted(bare.iterdir()), bare)))
            shutil.rmtree(bare)
            os.sync()
            ours.append(here.hide())
            os.sync()
        here.end()
        report(place, f"1000 x 16 KB to durable, {what} : fsync one by one", ours, theirs, "<= 0.125")


def write_flat(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    block = os.urandom(SMALL)
    for number in range(MANY):
        (directory / f"f{number:05}").write_bytes(block)


def blocked(place: str, work: Path, rounds: int) -> None:
    """How long `hide` of a directory of 10 000 files blocks, against `hide` of one file; both just after a program has
    written 10 000 files, listed or not, since that leaves the processor's caches cold."""
    numbers = iter(range(1000))

    def tree(directory: Path) -> None:
        directory.mkdir()
        for number in range(10_000):
            (directory / f"f{number:05}").write_bytes(b"small")

    def one() -> None:
        tree(work / f"unlisted{next(numbers)}")
        fill(work / "u.dat", SMALL)

    times = []
    for manifest, write in (("run/\n", lambda: tree(work / "run")), ("u.dat\n", one)):
        here = Work(work, manifest, write)
        seconds = []
        for step in range(max(rounds, 9)):
            write()
            here.session.wait()
            os.sync()
            seconds.append(timed(work, lambda here=here, step=step: here.session.hide(step)))
        here.session.wait()
        here.end()
        times.append(seconds)
    report(place, "hide of a directory of 10 000 files : hide of one file", *times, "<= 1")


MEMORY = """
import sys, threading, time
import safepoint
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
session = safepoint.Session(sys.argv[1]); session.restore()
for step, size in enumerate((1 << 10, 64 << 20, 1 << 30)):
    block = bytes(b & 31 for b in __import__("os").urandom(1 << 20))
    with open(sys.argv[1] + "/u.dat", "wb") as file:
        for _ in range(max(size >> 20, 1)):
            file.write(block)
    before = peak()
    session.hide(step); session.wait()
    print(size >> 20, round(peak() - before, 1))
session.close()
"""


def memory(place: str, work: Path) -> None:
    """What storing adds to the peak of the process's memory, in MB."""
    for attributes in ("", "compress", "compress=12", "compress=19"):
        size = "" if attributes != "compress=19" else "  # 1 GB at this level would take minutes"
        clean(work)
        (work / ".safepoint").write_text(f"u.dat {attributes}\nkeep = 1\n")
        code = MEMORY.replace("1 << 30", "16 << 20" if size else "1 << 30")
        done = subprocess.run([sys.executable, "-c", code, str(work)], check=True, capture_output=True, text=True)
        rows = [line.split() for line in done.stdout.splitlines()]
        told = ", ".join(f"{mb} MB: +{more}" for mb, more in rows)
        print(f"{place:5} memory of the saver, {attributes or 'raw':12} {told}   goal: <= 64 in all", flush=True)


@contextmanager
def here() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        yield Path(directory).resolve()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    title = f"{'where':5} {'what : against what':62} {'ms':>8} {'ms':>8} {'best':>7} {'median':>7}   goal"
    print(f"{title}     ({rounds} rounds)")
    for place in sys.argv[2:] or ["ext4", "xfs"]:
        reason = None if place == "here" else mounts.why_not(place)
        if reason:
            print(f"{place:5} not measured: {reason}")
            continue
        with here() if place == "here" else mounts.mounted(place, 6000, ".", direct=True) as work:
            large_file(place, work, rounds)
            for over in (False, True):
                restored(place, work, rounds, cold=False, over=over)
                if place != "here":
                    restored(place, work, rounds, cold=True, over=over)
            compressed(place, work, rounds, 1)
            compressed(place, work, rounds, 2)
            many_files(place, work, rounds)
            blocked(place, work, rounds)
            if place in ("ext4", "here"):
                memory(place, work)


if __name__ == "__main__":
    main()
