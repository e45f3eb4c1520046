"""What sets on disks of nodes take: a copy on another node, `hide`, and a restart from each source, in one run each
beside what is done by hand. `python benchmarks/nodes.py [--rounds N] [--size MB]`

copy     one file, from the page cache, to a process that listens on this machine and writes to the same disk, checked
         and flushed there, against: reading it and its checksum; that and a copy by `sendfile` over one TCP
         connection, which the other side writes and flushes ("by hand"); reading, writing and flushing it without a
         network.
hide     4 ranks on 4 nodes, of 3 files of 64 KiB each: with `local` and `partner`, against a plain directory, in turns
         in one job. Of each round the slowest rank counts.
restart  one rank with one file: `restore` of a set on its own disk, and of one at the remote place (a directory), each
         against `cp` and a flush of the file.

A ratio above 1 says that ours is faster. Medians, then in brackets the smallest and the largest of a round; the first
round warms up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import xxhash
from launcher import mpiexec

from safepoint import Session
from safepoint.root import Root
from safepoint.tiers.asking import ask_to_hold
from safepoint.tiers.giving import Server
from safepoint.tiers.part import Part
from safepoint.tiers.transfer import Peer

SECRET = bytes(32)
BLOCK = 1 << 20


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def told(name: str, ours: list[float], other: list[float]) -> None:
    ratios = [b / a for a, b in zip(ours[1:], other[1:], strict=True)]
    low, high, middle = min(ratios), max(ratios), statistics.median(ratios)
    print(f"{name:<60} {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read_and_sum(path: Path) -> str:
    digest, buffer = xxhash.xxh3_128(), bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def receive(listening: socket.socket, target: Path) -> None:
    while True:
        connection, _ = listening.accept()
        buffer = bytearray(BLOCK)
        with connection, target.open("wb", buffering=0) as file:
            while count := connection.recv_into(buffer):
                file.write(memoryview(buffer)[:count])
            os.fsync(file.fileno())
            fsync(target.parent)
            with contextlib.suppress(OSError):
                connection.sendall(b"y")


def by_hand(address: tuple[str, int], path: Path) -> None:
    read_and_sum(path)
    with socket.create_connection(address) as connection, path.open("rb") as file:
        connection.sendfile(file)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"y"


def write_through(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)
    fsync(target)
    fsync(target.parent)


@contextlib.contextmanager
def listening(top: Path) -> Iterator[tuple[int, int]]:
    """The ports of our server, and of the one by hand, in a process of their own."""
    command = [sys.executable, __file__, "--serve", str(top)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        ours, hand = map(int, process.stdout.readline().split())
        yield ours, hand
        process.stdin.close()


def serve(top: Path) -> None:
    server = Server(Root(str(top / "other")), SECRET, "127.0.0.1")
    hand = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=receive, args=(hand, top / "other/by-hand"), daemon=True).start()
    print(server.port, hand.getsockname()[1], flush=True)
    sys.stdin.read()


def a_set(work: Path, size: int) -> Path:
    """One file of so many bytes, in a set."""
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work)
    (work / "u.dat").write_bytes(os.urandom(size))
    session.hide(1)
    session.close()
    root = Root(str(work))
    return Path(root.stored(1, "u.dat"))


def copy(top: Path, size: int, rounds: int) -> None:
    path = a_set(top / "w", size)
    (top / "other/.safepoint.d").mkdir(parents=True)
    names = ("ours", "reading and checksum", "read, checksum, and TCP by hand", "read, written and flushed")
    times: dict[str, list[float]] = {name: [] for name in names}

    def ours(port: int) -> None:
        with contextlib.ExitStack() as stack:
            part = Part(Root(str(top / "w")), 1, stack)
            ask_to_hold(Peer("127.0.0.1", port, SECRET), part, part.blocks())

    with listening(top) as (port, hand):
        for _ in range(rounds + 1):
            shutil.rmtree(top / "other/.safepoint.d/held", ignore_errors=True)  # what it has is not sent again
            os.sync()
            times["ours"].append(timed(lambda: ours(port)))
            times["reading and checksum"].append(timed(lambda: read_and_sum(path)))
            times["read, checksum, and TCP by hand"].append(timed(lambda: by_hand(("127.0.0.1", hand), path)))
            times["read, written and flushed"].append(timed(lambda: write_through(path, top / "other/plain")))
    for name in names[1:]:
        told(f"copy on another node, against: {name}", times["ours"], times[name])
    told("  (TCP by hand, against: reading and checksum)", times[names[2]], times[names[1]])
    told("  (written and flushed, against: reading and checksum)", times[names[3]], times[names[1]])


HIDES = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI
import safepoint
comm, rounds = MPI.COMM_WORLD, int(sys.argv[3])
sessions = []
for start in sys.argv[1:3]:
    session = safepoint.Session(start, comm=comm)
    session.restore()
    sessions.append(session)
rows = []
for step in range(rounds):
    row = []
    for session in sessions:
        for name in "abc":
            (session.directory / f"{name}-{comm.rank}.dat").write_bytes(os.urandom(1 << 16))
        comm.Barrier()
        begin = time.perf_counter()
        session.hide(step)
        row.append(comm.allreduce(time.perf_counter() - begin, MPI.MAX))
    rows.append(row)
    time.sleep(0.02)
for session in sessions:
    session.close()
if comm.rank == 0:
    for row in rows:
        print(*row)
"""


def hides(top: Path, rounds: int) -> None:
    plain, nodes = top / "plain", top / "nodes"
    listed = "".join(f"{name}-{{rank}}.dat\n" for name in "abc")
    for start, more in ((plain, ""), (nodes, "local = $DISK\npartner = on\ndomain = $DOMAIN\nremote = ../place\n")):
        start.mkdir()
        (start / ".safepoint").write_text(listed + more)
    words: list[str] = []
    for rank in range(4):
        (disk := top / f"disk-{rank}").mkdir()
        words += [":"] * bool(words) + ["-n", "1", "-env", "DISK", str(disk), "-env", "DOMAIN", str(rank)]
        words += [sys.executable, "-c", HIDES, str(nodes), str(plain), str(rounds)]
    done = subprocess.run([mpiexec(), *words], capture_output=True, text=True, check=True)
    rows = [list(map(float, line.split())) for line in done.stdout.splitlines()]
    ours, other = [row[0] for row in rows[2:]], [row[1] for row in rows[2:]]
    ratio = statistics.median(other) / statistics.median(ours)
    halves = [statistics.median(other[at::2]) / statistics.median(ours[at::2]) for at in (0, 1)]
    print(f"{'hide on 4 nodes with copies, against a plain directory':<60} {ratio:.2f} "
          f"({min(halves):.2f} and {max(halves):.2f} of each half)", flush=True)  # fmt: skip


RESTORES = """
import os, sys, time
import safepoint
session = safepoint.Session(sys.argv[1])
begin = time.perf_counter()
point = session.restore()
took = time.perf_counter() - begin
assert point or sys.argv[2] == "first"
if sys.argv[2] == "first":
    (session.directory / "u.dat").write_bytes(os.urandom(int(sys.argv[3])))
    session.hide(1, wait="remote")
session.close()
print(took)
"""


def restarts(top: Path, size: int, rounds: int) -> None:
    start, found = top / "start", {name: list[float]() for name in ("its own disk", "the remote place", "cp")}
    start.mkdir()
    (start / ".safepoint").write_text("u.dat\nlocal = $DISK\nremote = ../at-place\n")

    def run(disk: Path, *words: str) -> float:
        disk.mkdir(exist_ok=True)
        command = [sys.executable, "-c", RESTORES, str(start), *words]
        done = subprocess.run(
            command, env={**os.environ, "DISK": str(disk)}, stdout=subprocess.PIPE, text=True, check=True
        )
        return float(done.stdout)

    run(top / "one", "first", str(size))
    for turn in range(rounds + 1):
        found["its own disk"].append(run(top / "one", "again"))
        found["the remote place"].append(run(disk := top / f"new-{turn}", "again"))
        shutil.rmtree(disk)
        (source,) = (top / "one").glob("safepoint-*/u.dat")
        found["cp"].append(timed(lambda source=source: write_through(source, top / "copied")))  # type: ignore[misc]
    for name in ("its own disk", "the remote place"):
        told(f"restart from {name}, against cp and a flush", found[name], found["cp"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=256, help="megabytes")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    told_ = parser.parse_args()
    if told_.serve:
        serve(told_.serve)
        return
    print(f"{'':<60} ratio")
    with tempfile.TemporaryDirectory(dir=".") as top:
        for name in ("copy", "hides", "restarts"):
            (Path(top) / name).mkdir()
        copy(Path(top).resolve() / "copy", told_.size * 1_000_000, told_.rounds)
        hides(Path(top).resolve() / "hides", 100)
        restarts(Path(top).resolve() / "restarts", told_.size * 1_000_000, told_.rounds)
        time.sleep(8)  # what was started beside the runs ends by itself


if __name__ == "__main__":
    main()
