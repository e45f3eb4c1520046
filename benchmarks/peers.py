"""safepoint beside the ways to save that people write by hand, and beside other packages: one run, in turns.

    python benchmarks/peers.py [--quick] [--places here,ext4,xfs] [--results DIRECTORY]

Each way keeps the same arrays in a process of its own (`protagonists.py`) and saves them when it is its turn; before
each turn all else is flushed, and some memory is touched, since in a virtual machine the first touch of a page may cost
more than what is measured. Medians, with least and most. What is shown is

    write      the program's own writing of its files, where it has one (np.save, h5py)
    blocked    from the beginning of the save until the program could go on
    extra      blocked - write: what the protection costs the program
    done       until the way itself says that all is done; durable only where the table of flushes says so. safepoint
               has removed an older set by then
    restore    until the arrays are in memory again, from the page cache, as after a kill

On fresh images also, with more rounds, since fewer ways take turns: when a set is durable (each case on an image of its
own), the program's saves from end to end, its next write after `hide` (`end_to_end.py`), and `restore` alone against
`cp` (`throughput.py`).

torch and orbax are measured if they are installed. `--results` writes a page in Markdown, and plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import end_to_end
from launcher import mpiexec
from protagonists import WAYS
from testbed import mounts
from throughput import restored

HERE = Path(__file__).parent
OURS, REPLACE, ASYNC = "safepoint", "temporary, fsync, os.replace", "torch DCP async_save"
WARM = 64 << 20, 1 << 30  # bytes of memory that are touched before a turn: three times what is saved, within these
QUANTITIES = ("write", "blocked", "extra", "done", "restore")


@dataclass(frozen=True)
class Case:
    count: int
    size: int  # bytes of each array
    rounds: int

    @property
    def name(self) -> str:
        each = f"{self.size >> 20} MB" if self.size >= 1 << 20 else f"{self.size >> 10} KB"
        return each if self.count == 1 else f"{self.count} x {each}"


CASES = (Case(1, 1 << 20, 5), Case(1, 64 << 20, 4), Case(1, 512 << 20, 3), Case(1000, 16 << 10, 3))
RANKS = (2, 4, 8)
LARGE = 256 << 20
Times = dict[str, list[float]]


@dataclass
class Place:
    """What was measured on one file system: by case and way; by ranks and way."""

    name: str
    system: str
    cases: dict[str, dict[str, Times]] = field(default_factory=dict)
    ranks: dict[int, dict[str, Times]] = field(default_factory=dict)
    durable: dict[str, Times] = field(default_factory=dict)  # by case
    saves: Times = field(default_factory=dict)  # of a whole run, by way
    next_write: Times = field(default_factory=dict)
    restored: Times = field(default_factory=dict)  # 512 MB, by safepoint and by cp


class Worker:
    """One way in a process of its own, which asks for the packages it needs once for all cases."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `end`
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "protagonists.py"), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True,
        )  # fmt: skip

    def tell(self, *words: object) -> None:
        print(json.dumps(words), file=self.process.stdin, flush=True)

    def ask(self, *words: object) -> dict[str, float]:
        self.tell(*words)
        return self.answer()

    def answer(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.said.seek(0)
            raise RuntimeError(f"{self.name} ended with status {status}: {self.said.read()[-2000:]}")
        return dict(json.loads(line))

    def end(self) -> None:
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        self.said.close()


def ready(size: int, forget: Path | None = None) -> None:
    """All flushed, and memory at hand; large files below `forget` are not in the page cache, which would not hold those
    of all ways."""
    os.sync()
    for path in forget.rglob("*") if forget and size > LARGE else ():
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    end_to_end.touch(min(max(3 * size, WARM[0]), WARM[1]))


def measure(case: Case, workers: list[Worker], where: Path, rounds: int) -> dict[str, Times]:
    found: dict[str, Times] = {worker.name: defaultdict(list) for worker in workers}
    for number, worker in enumerate(workers):
        worker.tell("case", str(where / f"way-{number}"), case.count, case.size)
    for worker in workers:
        worker.answer()
    for turn in range(rounds + 1):
        for worker in [*workers[turn % len(workers) :], *workers[: turn % len(workers)]]:
            ready(case.count * case.size, where)
            times = worker.ask("save")
            if turn:  # the first one is warming up; of safepoint it waits, as there is no set behind it
                times["extra"] = times["blocked"] - times["write"]
                for quantity, seconds in times.items():
                    found[worker.name][quantity].append(seconds)
    for _ in range(1 if case.count * case.size > LARGE else min(rounds, 3)):
        for worker in workers:
            ready(case.count * case.size)
            answer = worker.ask("restore")
            assert answer["equal"], worker.name
            found[worker.name]["restore"].append(answer["restore"])
    for worker in workers:
        worker.ask("end")
    for entry in where.glob("way-*"):
        shutil.rmtree(entry)
    return found


def of_ranks(ways: list[str], where: Path, rounds: int) -> dict[int, dict[str, Times]]:
    """64 MB on each rank, by their number and the way; the slowest rank of each round."""
    command: list[object]
    found: dict[int, dict[str, Times]] = {number: {} for number in RANKS}
    for way in ways:
        ready(RANKS[-1] << 26)
        directory = where / "ranks"
        command = [mpiexec(), "-n", RANKS[-1], sys.executable, HERE / "of_ranks.py"]
        command += [way, directory, 64 << 20, rounds, *RANKS]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{way} on {RANKS[-1]} ranks: {done.stderr[-2000:]}")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for number in RANKS:
            quantities = ("write", "blocked", "extra", "done")
            found[number][way] = {q: [row[q] for row in rows if row["ranks"] == number] for q in quantities}
        shutil.rmtree(directory)
    return found


FLUSHES = "fsync,fdatasync,sync_file_range,syncfs,msync,rename,renameat,renameat2"


def flushes(way: str, directory: Path) -> dict[str, int] | None:
    """What one save of 1 MB does, by strace: fsyncs of files and of directories, renames."""
    if shutil.which("strace") is None:
        return None
    trace = directory / "trace"
    code = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from protagonists import WAYS, arrays_of, save
way = WAYS[{way!r}](Path({str(directory / "work")!r}), arrays_of(1, 1 << 20))
for _ in range(3):
    save(way)
    way.tidy()
os.path.exists("/begin")
save(way)
os.path.exists("/end")
way.end()
"""
    (directory / "work").mkdir()
    command = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-e",
        f"trace={FLUSHES},newfstatat",
        "-o",
        str(trace),
        sys.executable,
        "-c",
        code,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counted = {"files": 0, "directories": 0, "renames": 0}
    inside = False
    for line in trace.read_text(errors="replace").splitlines():
        if '"/begin"' in line or '"/end"' in line:
            inside = "begin" in line
        elif inside and (call := re.match(r"\d+\s+(\w+)\((?:\d+<([^>]*)>)?", line)):
            name, path = call[1], call[2] or ""
            if name.startswith("rename"):
                counted["renames"] += 1
            elif name in ("fsync", "fdatasync", "syncfs", "msync"):
                counted["files" if re.search(r"\.\w+$|\.tmp|distcp", os.path.basename(path)) else "directories"] += 1
    shutil.rmtree(directory / "work")
    trace.unlink()
    return counted


def installed() -> tuple[list[str], list[str]]:
    """The ways that can be measured here, and what is lacking for the others."""
    needs = {
        "torch DCP save": "torch",
        ASYNC: "torch",
        "orbax AsyncCheckpointer": "orbax-checkpoint",
        "h5py, flush": "h5py",
    }
    lacking = []
    ways = []
    for way in WAYS:
        package = needs.get(way)
        if package and not _version(package):
            lacking.append(f"{way}: {package} is not installed")
            continue
        ways.append(way)
    if shutil.which("dmtcp_launch") is None:
        lacking.append("DMTCP: not installed")
    return ways, lacking


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@contextmanager
def at(place: str) -> Iterator[Path]:
    if place == "here":
        with tempfile.TemporaryDirectory(dir=".") as directory:
            yield Path(directory).resolve()
    else:
        with mounts.mounted(place, 14_000, ".", direct=True) as directory:
            yield directory.resolve()


def system_of(path: Path) -> str:
    done = subprocess.run(["df", "--output=fstype", str(path)], capture_output=True, text=True)
    return done.stdout.split()[-1] if done.returncode == 0 else "unknown"


def row(times: Times) -> list[str]:
    return [_shown(times.get(quantity, [])) for quantity in QUANTITIES]


def _shown(values: list[float]) -> str:
    if not values or max(values) == 0:
        return "-"
    digits = 2 if median(values) < 0.0995 else 0
    return f"{median(values) * 1e3:.{digits}f} ({min(values) * 1e3:.{digits}f}–{max(values) * 1e3:.{digits}f})"


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="safepoint beside other ways to save.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no 512 MB, no ranks")
    parser.add_argument("--places", default="", help="of here, ext4, xfs; default: ext4 and xfs as root, and here")
    parser.add_argument("--results", metavar="DIRECTORY", help="write a page in Markdown, and plots")
    options = parser.parse_args()
    begin = time.monotonic()
    ways, lacking = installed()
    for text in lacking:
        say(f"left out: {text}")
    counted = {}
    with tempfile.TemporaryDirectory(dir=".") as directory:
        counted = {way: flushes(way, Path(directory).resolve()) for way in ways}
    places = []
    with ExitStack() as stack:
        workers = []
        for way in ways:
            workers.append(Worker(way))
            stack.callback(workers[-1].end)
        for name in options.places.split(",") if options.places else ["ext4", "xfs", "here"]:
            reason = None if name == "here" else mounts.why_not(name)
            if reason:
                say(f"left out: {name}: {reason}")
                continue
            with at(name) as where:
                try:
                    places.append(of_place(name, where, workers, quick=options.quick))
                except BaseException:
                    stack.close()  # they have files open there
                    raise
    from page_of_peers import verdicts, write_page

    for line in verdicts(places):
        say(line)
    say(f"{time.monotonic() - begin:.0f} s in all")
    if options.results:
        target = Path(options.results)
        target.mkdir(parents=True, exist_ok=True)
        write_page(target, date.today().isoformat(), places, counted, lacking, machine())


def of_place(name: str, where: Path, workers: list[Worker], *, quick: bool) -> Place:
    place, ways = Place(name, system_of(where)), [worker.name for worker in workers]
    if not quick and name != "here":  # first, with memory at hand: the large cases fill it
        place.restored = dict(zip(("safepoint", "cp"), restored(name, where, 5, cold=False), strict=True))
        end_to_end.clean(where)
    for case in CASES:
        if case.count * case.size > LARGE and (quick or name == "here"):
            continue
        rounds = 2 if quick or name == "here" else case.rounds
        begin = time.monotonic()
        place.cases[case.name] = found = measure(case, workers, where, rounds)
        seconds = time.monotonic() - begin
        say(f"\n{name}, {case.name}, {rounds} rounds in {seconds:.0f} s, ms: median (least–most)")
        for way in ways:
            say(f"  {way:32}" + "".join(f"{text:>26}" for text in row(found[way])))
    some = [way for way in (REPLACE, ASYNC, OURS) if way in ways]
    place.ranks = {} if quick or name == "here" else of_ranks(some, where, 3)
    for number in place.ranks:
        say(f"\n{name}, {number} ranks x 64 MB, ms")
        for way in some:
            say(f"  {way:32}" + "".join(f"{_shown(values):>26}" for values in place.ranks[number][way].values()))
    if not quick and name != "here":
        for case, rounds in zip(CASES, (12, 12, 9, 6), strict=True):
            with at(name) as new:  # parts of it that were written before may be twice as fast
                place.durable[case.name] = end_to_end.until_durable(new, case.count, case.size, rounds)
        place.saves = end_to_end.all_saves(where, 3)
        place.next_write = end_to_end.next_write(where, 15)
    return place


def machine() -> list[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    packages = ["numpy", "h5py", "torch", "orbax-checkpoint", "mpi4py", "mpich", "xxhash"]
    versions = [f"{package} {_version(package)}" for package in packages if _version(package)]
    return [
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, virtual disk",
        f"{platform.system()} {platform.release().partition('-')[0]}, Python {platform.python_version()}",
        ", ".join(versions),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
