"""What `safepoint drain` and `fetch` take, beside other tools that move the same bytes, in the same run.

    python benchmarks/tiers.py [--rounds N] [--size MB] [--places s3 directory solver hide] [--quick]

Each row has two ways, which take turns in the same place; the first round warms up. Figures are medians, then their
ratio, and in brackets the smallest and the largest ratio of a round. A ratio above 1 says that ours is faster.

s3         one file, and 64 files of the same size in all, to a server on this machine (moto), against boto3's
           `upload_file` of the same files, several from as many threads as `drain` has. The server is one Python
           process, which both wait for. Counted are the seconds that each process tells itself, without its start and
           imports. "bytes": of boto3 `upload_file`, with a client that is there; of ours `Sender.send`, so the look
           before, all pieces, the index, the looks after. "all": of boto3 the making of the client too; of ours the
           whole command, so the connection and the claim too.
directory  `drain` and `fetch` on one file system against `cp` and fsync of each file and of its directory; the first
           `restore` after the fetch against `cp` alone. Counted are the whole commands without their imports, and of
           `cp` its process. All is read from the page cache, and read once; `fetch` compares checksums while it writes,
           and reads again what is kept compressed or in a bundle.
solver     a fixed number of Jacobi steps on 2000 x 2000 points, beside `nice safepoint drain --rate 200M` of four times
           the size to a directory, beside a niced loop that copies the same file at the same rate, and alone. The
           solver ends first, and then the other is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from end_to_end import touch
from testbed import servers
from throughput import fill, fsync, here, ran

import safepoint
from safepoint.tiers.settings import rate as rate_of
from safepoint.tiers.store import Store

MANY = 64  # files
RATE = "200M"
SIDE = 2000  # points
STEPS = 800  # in which files are hidden
BUCKET = "bucket"

# The command in a process, when a line of stdin says so. What it imports later in any case is imported before.
OURS = """
import json, sys, time
from safepoint.cli.act.drain import drain
from safepoint.cli.act.fetch import fetch
from safepoint.tiers.sending import Sender

if any(word.startswith("s3://") for word in sys.argv):
    import s3fs

spent, inner = [0.0], Sender.send

def send(*told, **how):
    begin = time.perf_counter()
    sent = inner(*told, **how)
    spent.append(time.perf_counter() - begin)
    return sent

Sender.send = send
print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter()
{"drain": drain, "fetch": fetch}[sys.argv[1]].main(sys.argv[2:], standalone_mode=False)
print(json.dumps({"all": time.perf_counter() - begin, "bytes": sum(spent)}))
"""

BOTO3 = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
import boto3
begin = time.perf_counter()
client = boto3.client("s3")
made = time.perf_counter()
bucket, lanes, *paths = sys.argv[1:]
with ThreadPoolExecutor(int(lanes)) as pool:
    list(pool.map(lambda path: client.upload_file(path, bucket, os.path.basename(path)), paths))
end = time.perf_counter()
print(json.dumps({"all": end - begin, "bytes": end - made}))
"""

COPY = """
import sys, time
source, target, rate = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
begin, done = time.monotonic(), 0
with open(source, "rb", buffering=0) as reads, open(target, "wb", buffering=0) as writes:
    while block := reads.read(1 << 20):
        writes.write(block)
        done += len(block)
        time.sleep(max(0.0, begin + done / int(rate) - time.monotonic()))
"""


def told(*command: object, environment: dict[str, str] | None = None) -> dict[str, float]:
    """The seconds that a process tells in its last line."""
    done = subprocess.run(
        [str(word) for word in command], check=True, input="go\n", stdout=subprocess.PIPE, text=True, timeout=1800,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(*words: object, environment: dict[str, str] | None = None) -> dict[str, float]:
    return told(sys.executable, "-c", OURS, *words, "--json", environment=environment)


def report(what: str, a: list[float], b: list[float], unit: str, goal: str = "-") -> None:
    """Rates of a and of b, one of each round; the first round is left out."""
    a, b = a[1:], b[1:]
    ratios = [one / other for one, other in zip(a, b, strict=True)]
    x, y = statistics.median(a), statistics.median(b)
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{what:58} {x:8.1f} {y:8.1f} {unit:8} {x / y:6.2f} {spread:16} {goal}", flush=True)


def saved(work: Path, count: int, size: int) -> list[Path]:
    """A directory with a complete set of so many files, of so many bytes in all; its files as they are kept."""
    work.mkdir()
    (work / ".safepoint").write_text("f-*.dat\nbundle_from = 9999\n")  # each a file for boto3 and cp too
    with safepoint.Session(work) as session:
        session.restore()
        for number in range(count):
            fill(work / f"f-{number:02}.dat", size // count)
        session.hide(1, wait=True)
        session.close()
    stored = sorted(work.glob(".safepoint.d/rank-00000/set-*/files/*.dat"))
    assert len(stored) == count
    return stored


def s3(top: Path, size: int, rounds: int) -> None:
    boto3 = Path(servers.MOTO).parent / "python"
    if not (servers.MOTO and servers.has("s3fs")):
        print("s3: not measured: needs moto_server and s3fs: make .venv/.servers")
        return
    with servers.s3(BUCKET) as environment:
        for count in (1, MANY):
            work = top / f"s3-{count}"
            stored = saved(work, count, size)
            a: list[dict[str, float]] = []
            b: list[dict[str, float]] = []
            for turn in range(rounds + 1):
                emptied(environment)
                to = f"s3://{BUCKET}/run-{turn}"
                a.append(ours("drain", work, "--to", to, environment=environment))
                emptied(environment)
                lanes = min(count, Store.lanes)
                b.append(told(boto3, "-c", BOTO3, BUCKET, lanes, *stored, environment=environment))
            for part, goal in (("bytes", ">= 0.80"), ("all", "-")):
                what = f"s3: drain of {named(count, size)}, {part} : boto3"
                report(what, *(mb_s(size, [row[part] for row in way]) for way in (a, b)), "MB/s", goal)
            shutil.rmtree(work)


def emptied(environment: dict[str, str]) -> None:
    """The server has it all in memory or in temporary files: else each round would leave it a slower machine."""
    url = environment["AWS_ENDPOINT_URL"]
    for path, method in (("moto-api/reset", "POST"), (BUCKET, "PUT")):
        with urlopen(Request(f"{url}/{path}", method=method)) as answer:
            assert answer.status == 200
    os.sync()


def directory(top: Path, size: int, rounds: int) -> None:
    for count in (1, MANY):
        work, place, other, copy = (top / f"{name}-{count}" for name in ("run", "place", "other", "copy"))
        stored = saved(work, count, size)
        rows: dict[str, list[float]] = {name: [] for name in ("cp1", "drain", "cp2", "fetch", "cp3", "restore")}
        for _ in range(rounds + 1):
            rows["cp1"].append(copied(stored, copy, durable=True))
            settled(top, size)
            rows["drain"].append(ours("drain", work, "--to", place, "--take-over")["all"])
            rows["cp2"].append(copied(stored, copy, durable=True))
            settled(top, size)
            rows["fetch"].append(ours("fetch", place, other)["all"])
            rows["cp3"].append(copied(sorted(other.glob(".safepoint.d/*/set-*/files/*")), copy, durable=False))
            settled(top, size)
            with safepoint.Session(other) as session:
                begin = time.perf_counter()
                session.restore()
                rows["restore"].append(time.perf_counter() - begin)
                session.close()
            assert len(list(other.glob("f-*.dat"))) == count
            for each in (place, other):
                shutil.rmtree(each)
        rates = {name: mb_s(size, row) for name, row in rows.items()}
        what = named(count, size)
        report(f"directory: drain of {what} : cp + fsync", rates["drain"], rates["cp1"], "MB/s")
        report(f"directory: fetch of {what} : cp + fsync", rates["fetch"], rates["cp2"], "MB/s")
        goal = ">= 0.77 (at most 1.30 times as long)"
        report(f"directory: restore after fetch, {what} : cp", rates["restore"], rates["cp3"], "MB/s", goal)
        shutil.rmtree(work)


def copied(files: list[Path], into: Path, *, durable: bool) -> float:
    settled(into.parent, sum(file.stat().st_size for file in files))
    into.mkdir()
    begin = time.perf_counter()
    ran("cp", "--reflink=never", *files, into)
    if durable:
        fsync(*sorted(into.iterdir()), into)
    seconds = time.perf_counter() - begin
    shutil.rmtree(into)
    return seconds


def settled(top: Path, size: int) -> None:
    """Nothing is left to write, and there is memory at hand for a copy: whoever comes first would pay for both."""
    os.sync()
    touch(size * 5 // 4, top)


def solver(top: Path, size: int, rounds: int) -> None:
    work, target, rate = top / "solver", top / "target", rate_of(RATE)
    (stored,) = saved(work, 1, size)
    steps = max(5, int(0.6 * size / rate / jacobi(10) * 10))
    ways: dict[str, list[str]] = {
        "alone": [],
        "copy": [COPY, str(stored), str(target), str(rate)],
        "drain": [OURS, "drain", str(work), "--to", str(target), "--rate", RATE, "--json"],
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    ended = dict.fromkeys(ways, 0)
    for _ in range(rounds + 1):
        for name, command in ways.items():
            os.sync()
            with beside(command) as process:
                rates[name].append(steps / jacobi(steps))
                ended[name] += process is not None and process.poll() is not None
            shutil.rmtree(target, ignore_errors=True)  # that of the drain
            target.unlink(missing_ok=True)  # that of the copy
    goal = ">= 0.91 (at most 10 % longer)"
    report(f"solver, {steps} steps: beside drain : beside a copy", rates["drain"], rates["copy"], "steps/s", goal)
    for name in ("drain", "copy"):
        report(f"solver, {steps} steps: beside {name} : alone", rates[name], rates["alone"], "steps/s")
        if ended[name]:
            print(
                f"  in {ended[name]} of {rounds + 1} rounds the {name} ended before the solver: its row says too little"
            )
    shutil.rmtree(work)


def hides(top: Path, rounds: int) -> None:
    """Calls a second of one that does nothing else."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    put = 0
    for turn in range(rounds + 1):
        with contextlib.ExitStack() as stack:
            works = {name: top / f"{name}-{turn}" for name in rates}
            sessions = {}
            for name, work in works.items():
                work.mkdir()
                place = f"remote = {top / f'place-{turn}'}\n" if name == "with" else ""
                (work / ".safepoint").write_text(f"f-*.dat\n{place}")
                sessions[name] = stack.enter_context(safepoint.Session(work))
                sessions[name].restore()
            took: dict[str, list[float]] = {name: [] for name in rates}
            for step in range(STEPS):
                for name in sorted(rates, reverse=step % 2 == 1):
                    for number in range(3):
                        fill(works[name] / f"f-{number}.dat", 64 << 10)
                    begin = time.perf_counter()
                    sessions[name].hide(step)
                    took[name].append(time.perf_counter() - begin)
                    time.sleep(0.004)
            put += sessions["with"].safe["remote"] is not None
            for session in sessions.values():
                session.close()
        for name in rates:
            rates[name].append(1 / statistics.median(took[name]))
    report("hide of 3 x 64 KB: with a drain : without", rates["with"], rates["without"], "1/s")
    print(f"  in {put} of {rounds + 1} rounds the drain had put a set by the end")


@contextlib.contextmanager
def beside(command: list[str]) -> Iterator[subprocess.Popen[str] | None]:
    """Such a process at work, niced, and past its imports. Killed at the end, if it is not through."""
    if not command:
        yield None
        return
    with subprocess.Popen(
        ["nice", "-n", "19", sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin and process.stdout
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"{command[1:]}: it has ended")
            process.stdin.write("go\n")
            process.stdin.flush()
            yield process
            if process.poll():
                raise SystemExit(f"{command[1:]}: it has failed")
        finally:
            process.kill()


def jacobi(steps: int) -> float:
    """Seconds."""
    u = np.random.default_rng(1).random((SIDE, SIDE))  # from zeros there would come numbers that are slow: 1e-310
    mean = np.empty((SIDE - 2, SIDE - 2))
    begin = time.perf_counter()
    for _ in range(steps):
        np.add(u[:-2, 1:-1], u[2:, 1:-1], out=mean)
        mean += u[1:-1, :-2]
        mean += u[1:-1, 2:]
        np.multiply(mean, 0.25, out=u[1:-1, 1:-1])
    return time.perf_counter() - begin


def named(count: int, size: int) -> str:
    if count == 1:
        return f"{size >> 20} MB"
    each = size // count
    return f"{count} x {f'{each >> 20} MB' if each >> 20 else f'{each >> 10} KB'}"


def mb_s(size: int, seconds: list[float]) -> list[float]:
    return [size / 1e6 / each for each in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="default: 7")
    parser.add_argument("--size", type=int, metavar="MB", help="of a set; default: 512")
    parser.add_argument(
        "--places", nargs="+", choices=["s3", "directory", "solver", "hide"], metavar="PLACE", help="some only"
    )
    parser.add_argument(
        "--quick", action="store_true", help="2 rounds of 32 MB: whether it works; its figures say little"
    )
    options = parser.parse_args()
    rounds = options.rounds or (2 if options.quick else 7)
    size = (options.size or (32 if options.quick else 512)) << 20
    # An exception, so that the server and the process beside the solver end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(
        f"{f'ours : theirs ({rounds} rounds)':58} {'ours':>8} {'theirs':>8} {'':8} {'ratio':>6} {'of a round':16} goal"
    )
    with here() as top:
        for name in options.places or ["s3", "directory", "solver", "hide"]:
            if name == "s3":
                s3(top, size, rounds)
            elif name == "directory":
                directory(top, size, rounds)
            elif name == "solver":
                solver(top, 4 * size, rounds)
            else:
                hides(top, rounds)


if __name__ == "__main__":
    main()
