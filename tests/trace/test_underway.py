"""The exact check of `hide` with a tracer on: each message is counted, also those that `Iprobe` does not see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testbed import traced
from testbed.flying import PROGRAM, SENT, directories, line
from testbed.sweep import ALL, one_of, some_of
from testbed.traced import libraries

TEXTS = {
    "eager": f"a message from rank 0 to rank {{last}}, with tag 9, sent at <string>:{SENT}",
    "irecv": f"a message from rank 0 to rank {{last}}, with tag 9, sent at <string>:{SENT}, for which Irecv at "
             f"<string>:{line('request = comm.Irecv(a, MPI')} is open",
    "mprobe": f"a message from rank 0 to rank {{last}}, with tag 9, sent at <string>:{SENT}, for which Mprobe at "
              f"<string>:{line('message = comm.Mprobe')} is open",
    "open": f"a request that Irecv at <string>:{line('request = comm.Irecv(a, 0, 77')} has opened",
}  # fmt: skip


@libraries
@pytest.mark.parametrize("ranks", [2, 4, 8] if ALL else one_of([2, 4]))
def test_each_kind_of_message_under_way_is_found_and_its_lines_are_named(
    tmp_path: Path, ranks: int, library: str
) -> None:
    directories(tmp_path, *TEXTS)
    done = traced.run(ranks, "-c", PROGRAM, "warn", *TEXTS, library=library, trace=tmp_path / "trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.findall("WARNING:safepoint:(.*), is in flight across this save point", done.stderr)
    assert found == [text.format(last=ranks - 1) for text in TEXTS.values()], done.stderr


@libraries
def test_with_inflight_error_no_rank_takes_a_set(tmp_path: Path, library: str) -> None:
    directories(tmp_path, "mprobe")
    words = "-c", PROGRAM, "error", "mprobe"
    done = traced.run(2, *words, library=library, trace=tmp_path / "trace", cwd=tmp_path)
    assert sorted(done.stdout.split("\n")) == ["", "refused 1 0", "refused 1 1"], done.stderr


CLEAN = """
import logging, sys
import numpy as np
from mpi4py import MPI
import safepoint
logging.basicConfig()
comm, u, ghost = MPI.COMM_WORLD, np.zeros(9), np.zeros(1)
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
safepoint.init(comm=comm)
safepoint.restore()
half = comm.Split(comm.rank % 2)
lasting = [comm.Send_init(u[-1:], right, 5), comm.Recv_init(ghost, left, 5)]
for step in range(int(sys.argv[1])):
    comm.Isend(u[:1], left, step % 100).Wait()
    comm.Recv(ghost, MPI.ANY_SOURCE, MPI.ANY_TAG)
    MPI.Prequest.Startall(lasting)
    MPI.Request.Waitall(lasting)
    done = [comm.isend(step, right), comm.irecv(source=left)]
    while not MPI.Request.testall(done)[0]:
        pass
    comm.sendrecv(step, left, source=right)
    half.Iallreduce(u, u.copy()).Wait()
    comm.Isend(u, MPI.PROC_NULL).Wait()
    comm.Recv(u, MPI.PROC_NULL)
    if comm.Iprobe(MPI.ANY_SOURCE, 999):
        raise SystemExit(1)
    np.save(f"u-{comm.rank}.dat", u)
    if step % 5 == 0:
        safepoint.hide(step)
for request in lasting:
    request.Free()
safepoint.finish()
"""


@libraries
def test_a_clean_solver_gives_no_warning(tmp_path: Path, library: str) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat.npy\n")
    steps = "10000" if ALL else "60"
    done = traced.run(2, "-c", CLEAN, steps, library=library, trace=tmp_path / "trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in flight" not in done.stderr and "noting" not in done.stderr


FAILING = """
import logging, sys
import numpy as np
from mpi4py import MPI
import safepoint
logging.basicConfig()
comm, kind, a = MPI.COMM_WORLD, sys.argv[1], np.zeros(3)
class Bad:
    def __reduce__(self):
        return int, ("no number",)
safepoint.init(comm=comm)
safepoint.restore()
try:
    if kind == "refused":  # nothing is sent
        comm.Send(a, "x")
    elif kind == "rank":
        comm.Send(a, 77)
    elif kind == "truncated" and comm.rank == 0:
        comm.Send(np.zeros(9), 1)
    elif kind == "truncated":
        comm.Recv(a, 0)
    elif kind == "unpickled" and comm.rank == 0:
        comm.send(Bad(), 1)
    elif kind == "unpickled":
        comm.recv(source=0)
    elif kind == "freed" and comm.rank == 0:
        comm.Barrier()
        comm.Send(a, 1)
    elif kind == "freed":
        comm.Irecv(a, 0).Free()
        comm.Barrier()
except (TypeError, ValueError, MPI.Exception):
    pass
open(f"u-{comm.rank}.dat", "w").write("1")
safepoint.hide(1)
safepoint.finish()
"""


@pytest.mark.parametrize("kind", some_of(["refused", "rank", "truncated", "unpickled", "freed"], 1, 5))
def test_after_a_call_that_failed_there_is_no_false_alarm(tmp_path: Path, kind: str) -> None:
    """What a failed call has sent or received, and what a freed request does, is not known."""
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    done = traced.run(2, "-c", FAILING, kind, trace=tmp_path / "trace", cwd=tmp_path)
    assert done.returncode == 0 and "in flight" not in done.stderr and "noting" not in done.stderr, done.stderr


def test_a_rank_that_cannot_read_its_notes_makes_nobody_wait(tmp_path: Path) -> None:
    """The others look for a message together with it."""
    directories(tmp_path, "irecv")
    damage = "from safepoint.trace.underway import Story\nif comm.rank: Story.read = None\n"
    begin, rest = PROGRAM.split("for kind in", 1)
    words = "-c", f"{begin}{damage}for kind in{rest}", "warn", "irecv"
    done = traced.run(2, *words, trace=tmp_path / "trace", cwd=tmp_path)
    assert done.returncode == 0 and "rank 1 stopped noting: TypeError" in done.stderr, done.stderr
    assert "in flight" not in done.stderr


OPEN = """
import logging, os, sys
import numpy as np
from mpi4py import MPI
import safepoint
logging.basicConfig()
world, kind, a = MPI.COMM_WORLD, sys.argv[1], np.zeros(3)
parent = MPI.Comm.Get_parent()
if parent != MPI.COMM_NULL:
    parent.Send(a, 0)
    parent.Disconnect()
    sys.exit()
if kind == "full" and world.rank:
    from safepoint.trace import record
    def full(*words):
        raise OSError(28, "No space left on device")
    record.os.write = full
comm = world.Dup() if kind == "full" else world
safepoint.init(comm=comm)
safepoint.restore()
if kind == "forgotten":
    if world.rank == 0:
        world.isend(1, 1)
        world.isend(2, 1)
    else:
        world.recv(source=0), world.recv(source=0)
elif kind == "freed":
    own = world.Split(0, -world.rank)
    for turn in range(100):
        other = own.Dup()
        other.sendrecv(turn, 1 - other.rank, source=1 - other.rank)
        other.Free()
    if world.rank:
        own.Send(a, 1)  # which is rank 0 of the world
    else:
        own.Iprobe(source=MPI.ANY_SOURCE) or own.Probe()
    request = own.Irecv(a, 0) if world.rank == 0 else None
    own.Free()
elif kind == "lock":
    window = MPI.Win.Allocate(24, comm=world)
    window.Lock_all()
elif kind == "put":
    window = MPI.Win.Allocate(24, comm=world)
    window.Fence()
    window.Put(a, 0)
elif kind == "spawned":
    child = world.Spawn(sys.executable, [__file__, "child"], 1)
    if world.rank == 0:
        child.Recv(a, 0)
        world.Send(a, 1, 9)
    else:
        message = world.Mprobe(0, 9)
open(f"u-{world.rank}.dat", "w").write("1")
safepoint.hide(1)
if kind == "freed" and request:
    request.Wait()
elif kind == "lock":
    window.Unlock_all()
elif kind == "put":
    window.Fence()
elif kind == "spawned":
    if world.rank:
        message.Recv(a)
    child.Disconnect()
safepoint.finish()
"""
FOUND = {
    "forgotten": None,  # nobody can wait for it, and what it has sent was received
    "freed": "a message from rank 1 to rank 0, with tag 0, sent at ",  # by a communicator that is no more
    "full": None,  # the rank that cannot note any more does not let the others wait
    "lock": "an access epoch of a window that is open, is in flight",
    "put": "an access epoch of a window that is open, is in flight",
    "spawned": "a message from rank 0 to rank 1, with tag 9, sent at ",  # one from outside hides none
}


@pytest.mark.parametrize("kind", some_of([*FOUND], 1, 6))
def test_what_is_open_is_found_and_what_is_over_or_of_others_is_not_counted(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    (tmp_path / "solver.py").write_text(OPEN)
    done = traced.run(2, str(tmp_path / "solver.py"), kind, trace=tmp_path / "trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = FOUND[kind]
    assert (said in done.stderr) if said else ("in flight" not in done.stderr), done.stderr
    assert ("stopped noting: OSError" in done.stderr) == (kind == "full"), done.stderr
