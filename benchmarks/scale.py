"""What a save costs in calls, exactly, as files and ranks grow: counts, not times.

    python benchmarks/scale.py [--quick]

Files: the file-system calls of one `hide` with all that the saver thread does for it, one older set removed, counted by
strace (`tests/testbed/calls.py`; `tests/parts/test_calls.py` asserts the formula). Ranks: operations of `Disk` on the
busiest rank, and collective calls of MPI, in one coordinated `hide` of three files on each rank; with more ranks than
cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from launcher import mpiexec
from testbed import calls

FILES, RANKS = (10, 100, 1000, 10_000), (1, 2, 4, 8, 16, 32, 64)
PROGRAM = """
import sys
from collections import Counter
from mpi4py import MPI
import safepoint
from safepoint.disk import Disk
comm = MPI.COMM_WORLD
operations, spoken = Counter(), Counter()
def counting(name):
    original = getattr(Disk, name)
    def call(self, *arguments, **options):
        operations[name] += 1
        return original(self, *arguments, **options)
    return call
WHAT = ("stat", "scan", "open", "create", "append", "rename", "remove", "mkdir", "rmdir", "sync_files", "sync_dir")
Counting = type("Counting", (Disk,), {name: counting(name) for name in WHAT})
class Spoken:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name[0].isupper() and not name.startswith(("Get", "Is")) or name in ("bcast", "allreduce", "gather"):
            spoken[name] += 1
        return found
session = safepoint.Session(sys.argv[1], comm=comm, disk=Counting())
session.restore()
def write(step):
    for k in range(3):
        with open(f"{sys.argv[1]}/u-{comm.rank}-{k}.dat", "w") as file:
            file.write(f"{step}")
for step in range(4):
    write(step)
    session.hide(step, wait=True)
write(4)
if comm.size > 1:
    session._ranks._wire._comm = Spoken(session._ranks._wire._comm)
operations.clear(), spoken.clear()
session.hide(4)
said = dict(spoken)
session._work.flight.result()
most = comm.allreduce(sum(operations.values()), MPI.MAX)
if comm.rank == 0:
    print(comm.size, most, said.get("Allreduce", 0), said.get("Ibarrier", 0), sum(said.values()))
session.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="What a save costs in calls as files and ranks grow.")
    parser.add_argument("--quick", action="store_true", help="not the largest numbers")
    options = parser.parse_args()
    print(f"{'plain files':>12} {'calls':>8} {'5 n + 21':>9} {'removal':>8} {'n + 15':>8} {'fsyncs':>8}")
    for files in FILES[: -1 if options.quick else None]:
        if calls.why_not:
            print(f"left out: {calls.why_not}")
            break
        with tempfile.TemporaryDirectory(dir=".") as directory:
            work = Path(directory).resolve() / "work"
            work.mkdir()
            listed = "".join(f"f{k:05}\n" for k in range(files)) + "bundle_from = 100000\n"
            found = calls.of_a_save(work, files, listed)
        saved, removed = found.saved.total(), found.removed.total()
        print(f"{files:12} {saved:8} {5 * files + 21:9} {removed:8} {files + 15:8} {found.fsyncs:8}", flush=True)
    print(f"{'ranks':>12} {'operations':>11} {'Allreduce':>10} {'Ibarrier':>9} {'all calls of MPI':>17}")
    for ranks in RANKS[: -2 if options.quick else None]:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            Path(directory, ".safepoint").write_text("u-{rank}-*.dat\n")
            command = [mpiexec(), "-n", str(ranks), sys.executable, "-c", PROGRAM, directory]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
        size, most, agreed, barriers, spoken = done.stdout.split()
        print(f"{size:>12} {most:>11} {agreed:>10} {barriers:>9} {spoken:>17}", flush=True)


if __name__ == "__main__":
    main()
