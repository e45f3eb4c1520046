"""What sets on disks of nodes take: a copy on another node, `hide`, and a restart from each source, in one run each
beside what is done by hand. `python benchmarks/nodes.py [--rounds N] [--size MB] [--other DIR]`

copy     one file, from the page cache, to a process that listens on this machine and writes to the same disk, checked
         and flushed there, or to DIR, such as a disk that is not slower than reading, against: reading it and its
         checksum; that and a copy by `sendfile` over one TCP connection, which the other side writes and flushes ("by
         hand"); reading, writing and flushing it without a network.
parity   4 nodes with one such file each, each a process of its own: the parity of all (`xor 4`), against the copies of
         all on the next node, and their space; a part that is made again, against one that comes from a copy, and `cp`
         and a flush.
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
from safepoint.nodes.asking import Which, ask_to_hold
from safepoint.nodes.copying import Wanted
from safepoint.nodes.giving import Server
from safepoint.nodes.line import Lines
from safepoint.nodes.nearby import There, held_here
from safepoint.nodes.parity import Group, briefs, make
from safepoint.nodes.rebuilt import Rebuilt, rebuildable
from safepoint.nodes.transfer import Peer
from safepoint.record import dump
from safepoint.restoring.survey import read_record
from safepoint.root import Root
from safepoint.tiers.names import identity
from safepoint.tiers.part import Part

DROP = "/proc/sys/vm/drop_caches"
SECRET, HISTORY, NODES = bytes(32), "0123456789abcdef", 4
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
def listening(other: Path) -> Iterator[tuple[int, int]]:
    """The ports of our server, and of the one by hand, in a process of their own."""
    command = [sys.executable, __file__, "--serve", str(other)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        ours, hand = map(int, process.stdout.readline().split())
        yield ours, hand
        process.stdin.close()


def serve(other: Path) -> None:
    server = Server(Root(str(other)), SECRET, "127.0.0.1")
    hand = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=receive, args=(hand, other / "by-hand"), daemon=True).start()
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


def copy(top: Path, other: Path, size: int, rounds: int) -> None:
    path = a_set(top / "w", size)
    (other / ".safepoint.d").mkdir()
    cold = "reading and checksum", "ours", "read, written and flushed"  # as root: from the disk, not from memory
    names = ("ours", "reading and checksum", "read, checksum, and TCP by hand", "read, written and flushed")
    times: dict[str, list[float]] = {name: [] for name in names}

    def ours(port: int) -> None:
        with contextlib.ExitStack() as stack:
            part = Part(Root(str(top / "w")), 1, stack)
            ask_to_hold(Peer("127.0.0.1", port, SECRET), part, part.blocks())

    with listening(other) as (port, hand):
        for _ in range(rounds + 1):
            shutil.rmtree(other / ".safepoint.d/held", ignore_errors=True)  # what it has is not sent again
            os.sync()
            times["ours"].append(timed(lambda: ours(port)))
            times["reading and checksum"].append(timed(lambda: read_and_sum(path)))
            times["read, checksum, and TCP by hand"].append(timed(lambda: by_hand(("127.0.0.1", hand), path)))
            times["read, written and flushed"].append(timed(lambda: write_through(path, other / "plain")))
            if os.access(DROP, os.W_OK):
                shutil.rmtree(other / ".safepoint.d/held", ignore_errors=True)
                what = lambda: read_and_sum(path), lambda: ours(port), lambda: write_through(path, other / "plain")
                for name, work in zip(cold, what, strict=True):
                    os.sync()
                    Path(DROP).write_text("3")
                    times.setdefault(f"{name}, cold", []).append(timed(work))
    for name in names[1:]:
        told(f"copy on another node, against: {name}", times["ours"], times[name])
    told("  (TCP by hand, against: reading and checksum)", times[names[2]], times[names[1]])
    told("  (written and flushed, against: reading and checksum)", times[names[3]], times[names[1]])
    if "ours, cold" in times:
        read = times["reading and checksum, cold"]
        told("copy of what is not in memory, against: reading and checksum", times["ours, cold"], read)
        told("  (written and flushed, against the same)", times["read, written and flushed, cold"], read)


def a_node(top: Path, rank: int, size: int) -> Path:
    """A set as a node of four would have it."""
    work = top / f"node-{rank}"
    path = a_set(work, size)
    root = Root(str(work))
    record = read_record(root, 1)._replace(rank=rank, ranks=NODES, life=1, history=HISTORY)
    Path(root.record(1)).chmod(0o600)
    Path(root.record(1)).write_bytes(dump(record))
    os.rename(root.path, own(top, rank).path)
    return work / path.relative_to(work).as_posix().replace("rank-00000", f"rank-{rank:05d}")


def own(top: Path, rank: int) -> Root:
    return Root(str(top / f"node-{rank}"), rank, NODES)


def serve_node(top: Path, rank: int) -> None:
    mine = own(top, rank)
    server = Server(mine.of(0), SECRET, "127.0.0.1", lines=Lines({rank: mine}))
    print(server.port, flush=True)
    sys.stdin.read()


def parity(top: Path, size: int, rounds: int) -> None:
    paths = [a_node(top, rank, size) for rank in range(NODES)]
    command = [sys.executable, __file__, "--serve", str(top), "--rank"]
    processes = [
        subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(NODES)
    ]
    peers = [Peer("127.0.0.1", int(process.stdout.readline()), SECRET) for process in processes]  # type: ignore[union-attr]
    wanted = Wanted(identity(1, 1, HISTORY), lambda: True)
    times: dict[str, list[float]] = {name: [] for name in ("parity", "copies", "made again", "from a copy", "cp")}

    def all_parity() -> None:
        for rank in range(NODES):
            mine = own(top, rank)
            group = Group(rank, 1, tuple(peers))
            make(mine.of(0), Lines({rank: mine}), group, wanted, lambda: 0, lambda count: None)

    def all_copies() -> None:
        for rank in range(NODES):
            with contextlib.ExitStack() as stack:
                part = Part(own(top, rank), 1, stack)
                ask_to_hold(peers[(rank + 1) % NODES], part, part.blocks())

    def held() -> int:
        return sum(path.stat().st_size for path in top.glob("node-*/.safepoint.d/held/**/*") if path.is_file())

    def brought(source: Rebuilt | There) -> float:
        shutil.rmtree(top / "new", ignore_errors=True)
        root = Root(str(top / "new"), 0, NODES)
        os.makedirs(root.path)
        return timed(lambda: source.bring(root))

    def dropped() -> None:
        for path in top.glob("node-*/.safepoint.d/held"):
            shutil.rmtree(path)
        os.sync()

    for _ in range(rounds + 1):
        times["parity"].append(timed(all_parity))
        space = held()
        briefs_ = {at: briefs(own(top, at).of(0)) for at in range(1, NODES)}
        (source,) = rebuildable(0, briefs_, {at: held_here(own(top, at).of(0), ()) for at in range(1, NODES)}, peers)
        times["made again"].append(brought(source))
        dropped()
        times["copies"].append(timed(all_copies))
        space_of_copies = held()
        times["from a copy"].append(brought(There("", peers[1], Which(0, 1, "held"))))
        dropped()
        times["cp"].append(timed(lambda: write_through(paths[0], top / "plain")))
    for process in processes:
        process.communicate()
    told("parity over 4 nodes, against copies of each on the next", times["parity"], times["copies"])
    print(f"{'  its space, of that of the copies':<60} {space / space_of_copies:.2f}", flush=True)
    told("a part that is made again, against one from a copy", times["made again"], times["from a copy"])
    told("  against cp and a flush", times["made again"], times["cp"])


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
    row = [0.0, 0.0]
    for at in (0, 1) if step % 2 else (1, 0):  # what is beside the run meets both
        session = sessions[at]
        for name in "abc":
            (session.directory / f"{name}-{comm.rank}.dat").write_bytes(os.urandom(1 << 16))
        comm.Barrier()
        begin = time.perf_counter()
        session.hide(step)
        row[at] = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
    rows.append(row)
    time.sleep(0.2)  # on two cores what four nodes copy would be measured too
for session in sessions:
    session.close()
if comm.rank == 0:
    for row in rows:
        print(*row)
"""


def hides(top: Path, rounds: int, partner: str) -> None:
    plain, nodes = top / "plain", top / "nodes"
    listed = "".join(f"{name}-{{rank}}.dat\n" for name in "abc")
    for start, more in (
        (plain, ""),
        (nodes, f"local = $DISK\npartner = {partner}\ndomain = $DOMAIN\nremote = ../place\n"),
    ):
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
    print(f"{f'hide on 4 nodes, partner = {partner}, against a plain directory':<60} {ratio:.2f} "
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
    parser.add_argument("--other", type=Path, default=Path("."), help="where the copies of `copy` are written")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    told_ = parser.parse_args()
    if told_.serve:
        serve(told_.serve) if told_.rank is None else serve_node(told_.serve, told_.rank)
        return
    print(f"{'':<60} ratio")
    with tempfile.TemporaryDirectory(dir=".") as top:
        for name in ("copy", "parity", "hides", "hides-xor", "restarts"):
            (Path(top) / name).mkdir()
        with tempfile.TemporaryDirectory(dir=told_.other) as other:
            copy(Path(top).resolve() / "copy", Path(other).resolve(), told_.size * 1_000_000, told_.rounds)
        parity(Path(top).resolve() / "parity", told_.size * 1_000_000, told_.rounds)
        hides(Path(top).resolve() / "hides", 100, "on")
        hides(Path(top).resolve() / "hides-xor", 100, "xor 4")
        restarts(Path(top).resolve() / "restarts", told_.size * 1_000_000, told_.rounds)
        time.sleep(8)  # what was started beside the runs ends by itself


if __name__ == "__main__":
    main()
