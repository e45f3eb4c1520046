"""The tracer of Python programs: what they do is what they did without it, and all of it is noted."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest
from testbed import traced
from testbed.checked import ALL as ALL_CALLS
from testbed.checked import prepared, read
from testbed.sweep import ALL, one_of, some_of

from safepoint.trace import linked, record, roles
from safepoint.trace.record import ANY_SOURCE, ENTERED, NONE, PICKLED, RAISED, RETURNED, WILD_SOURCE
from safepoint.trace.signatures import signatures
from safepoint.trace.wrappers import OF_HANDLES, SKIPPED

PROGRAM = Path(__file__).parents[1] / "testbed/every_call.py"


def called(trace: Path, rank: int) -> list[tuple[str, int]]:
    """The functions, and the line of each call."""
    return [(one.function, one.line) for one in read(trace, rank)]


@pytest.mark.parametrize(
    ("library", "checked"), some_of([*product(["mpich", *["openmpi"] * bool(shutil.which("mpiexec.openmpi"))],
                                              [False, True])], 1, 4)
)  # fmt: skip
def test_a_program_that_uses_each_call_prints_the_same_and_all_its_calls_are_noted(
    tmp_path: Path, library: str, checked: bool
) -> None:
    """In check mode with what each is given, too."""
    if checked:
        prepared(tmp_path, ALL_CALLS)
    trace = tmp_path / "run.trace"
    plain = traced.run(3, str(PROGRAM), library=library)
    same = traced.run(3, str(PROGRAM), library=library, trace=trace)
    assert (plain.returncode, same.returncode, same.stderr.count("safepoint")) == (0, 0, 0), same.stderr
    assert sorted(same.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert len(plain.stdout.splitlines()) > 180
    for rank in range(3):
        noted = read(trace, rank)
        if checked:
            *noted, last = noted
            assert (last.function, last.state) == ("Finalize", ENTERED)
            assert all(len(one.given or ()) == len(signatures()[one.function].parameters) for one in [*noted, last])
            assert len({one.function for one in noted}) > 120
        else:
            assert json.loads((trace / f"rank-{rank:05d}.json").read_text())["ended"] == "exit"
        assert {one.state for one in noted} <= {RETURNED, RAISED}
        assert all(one.leave >= one.enter for one in noted if one.state == RETURNED)
        assert all(one.enter <= other.enter for one, other in pairwise(noted))
    wanted = {"Mrecv", "Imrecv", "Startall", "Waitsome", "Testany", "Cancel", "Win_fence", "File_read_at_all",
              "Cart_sub", "Intercomm_create", "Comm_idup", "Neighbor_alltoall", "Iexscan", "Request_free"}  # fmt: skip
    assert wanted <= {name for name, _ in called(trace, 1)}


def test_no_method_of_mpi4py_is_unknown() -> None:
    """Of a new version of mpi4py too: what is not in the table would be judged as if it did nothing."""
    from mpi4py import MPI

    unknown = []
    for name in roles.CLASSES:
        for method in dir(cls := getattr(MPI, name)):
            plain = inspect.getattr_static(cls, method)
            if (
                not method.startswith("_")
                and method not in {*SKIPPED, *OF_HANDLES}
                and (callable(plain) or hasattr(plain, "__func__"))
            ):
                function, _ = roles.of_method(name, method)
                unknown += [f"{name}.{method}: {function}"] * (roles.kind(function) == roles.OTHER)
    assert unknown == []


HELLO = """
from mpi4py import MPI
import numpy as np
comm, a = MPI.COMM_WORLD, np.zeros(3)
if comm.rank == 0:
    comm.Send(a, 1, tag=9)
    comm.send("abc", 1)
else:
    comm.Recv(a, MPI.ANY_SOURCE)
    comm.recv(source=0)
try:
    comm.Send(a, 77)
except MPI.Exception:
    pass
"""


def test_a_note_says_where_to_whom_and_how_many_bytes(tmp_path: Path) -> None:
    assert traced.run(2, "-c", HELLO, trace=tmp_path / "t").returncode == 0
    sent, (received, *_) = read(tmp_path / "t", 0), read(tmp_path / "t", 1)
    assert called(tmp_path / "t", 0) == [("Send", 6), ("Send", 7), ("Send", 12)]
    assert (sent[0].peer, sent[0].tag, sent[0].bytes, sent[0].got_peer) == (1, 9, 24, NONE)
    assert [(one.flags, one.state) for one in sent] == [(0, RETURNED), (PICKLED, RETURNED), (0, RAISED)]
    assert (received.peer, received.tag, received.got_peer, received.got_tag) == (ANY_SOURCE, -1, 0, 9)
    assert received.flags & WILD_SOURCE and sent[2].result == 6  # MPI_ERR_RANK of MPICH


TOPOLOGY = """
from mpi4py import MPI
grid = MPI.COMM_WORLD.Create_cart([2])
if grid != MPI.COMM_NULL:
    copy, window = grid.Dup(), MPI.Win.Create(bytearray(8), comm=grid)
    window.Free()
    copy.Free()
    grid.Free()
"""


def test_a_topology_with_fewer_processes_has_these_members(tmp_path: Path) -> None:
    """MPICH 5.0 gives it the group of its parent, of which nobody else would come to its collective calls."""
    assert traced.run(3, "-c", TOPOLOGY, trace=tmp_path / "t").returncode == 0
    for rank in range(3):
        things = [json.loads(line) for line in (tmp_path / f"t/rank-{rank:05d}.objects").read_text().splitlines()]
        assert [thing["members"] for thing in things[2:]] == (["0-1"] * 3 if rank < 2 else [])


ODD = """
import atexit, importlib.util, itertools, os, sys, time, _thread
if importlib.util.find_spec("mpi4py") and importlib.util.find_spec("mpi4py.MPI"):  # who only asks changes nothing
    from mpi4py import MPI
import mpi4py.util.pkl5
class Mixed(mpi4py.util.pkl5.Intracomm, MPI.Intracomm):  # bases of the program and ours
    pass
print(Mixed(MPI.COMM_WORLD).bcast([1, 2], 0))
own = MPI.COMM_WORLD.Dup()
MPI.Comm.f2py(own.py2f()).barrier()
MPI.Intracomm.fromhandle(own.handle).barrier()
atexit.register(print, "freed")
atexit.register(own.Free)  # no Python calls these
atexit.register(own.Barrier)
got = []
_thread.start_new_thread(got.extend, (itertools.starmap(MPI.COMM_SELF.Barrier, [()]),))
while not got:
    time.sleep(0.001)
"""


def test_a_program_with_odd_ways_is_what_it_was(tmp_path: Path) -> None:
    plain = traced.run(1, "-c", ODD)
    done = traced.run(1, "-c", ODD, trace=tmp_path / "t")
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr) and "freed" in done.stdout
    names = [name for name, _ in called(tmp_path / "t", 0)]
    assert names.count("Barrier") == 4 and names[-2:] == ["Barrier", "Comm_free"], names


GONE = """
import os, sys
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        name = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    if ".trace/" in name and sys.argv[1] == "reused":
        os.dup2(os.open("mine.txt", os.O_RDWR | os.O_CREAT), number)



if sys.argv[1] == "full":
    from safepoint.trace import record
    def full(*words):
        raise OSError(28, "No space left on device")
    record.os.write = full
for turn in range(70000):
    MPI.COMM_SELF.Barrier()
"""


@pytest.mark.parametrize("how", one_of(["full", "reused"]))
def test_a_file_that_cannot_be_written_or_is_another_by_now_is_left_alone(tmp_path: Path, how: str) -> None:
    """A program that closes all descriptors may have one of ours for a file of its own."""
    done = traced.run(1, "-c", GONE, how, trace=tmp_path / "run.trace", cwd=tmp_path)
    said = {"full": "OSError: [Errno 28]", "reused": "the program has closed its files"}[how]
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
    assert f"safepoint trace: rank 0 stopped noting: {said}" in done.stderr
    assert not (mine := tmp_path / "mine.txt").exists() or mine.stat().st_size == 0
    assert record.count(tmp_path / "run.trace/rank-00000.calls") < 40000  # there is no note after that


FORKED = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if not (child := os.fork()):
    comm.Get_name()
    MPI.COMM_SELF.bcast(3)  # a child may not do this; if it does, it is no call of this rank
    os._exit(0)
os.waitpid(child, 0)
comm.Barrier()
"""


def test_what_a_child_of_the_program_does_is_not_its_own(tmp_path: Path) -> None:
    assert traced.run(1, "-W", "ignore", "-c", FORKED, trace=tmp_path / "t").returncode == 0
    assert [name for name, _ in called(tmp_path / "t", 0)] == ["Barrier", "Barrier"]


KILLED = """
import sys, time
from mpi4py import MPI
comm, n = MPI.COMM_WORLD, 0
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True:
    n += 1
    request = comm.isend(n, 0)
    comm.recv(source=0)
    request.Wait()
"""


@pytest.mark.parametrize("turn", range(200 if ALL else 2))
def test_killed_at_any_call_all_notes_can_be_read(tmp_path: Path, turn: int) -> None:
    """When it has noted so many."""
    environment, calls = traced.environment("mpich", tmp_path / "t"), record.names(tmp_path / "t", 0).calls
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline()
        while record.count(calls) < 11 + 997 * turn:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    found = read(tmp_path / "t", 0)
    assert sum(one.state == ENTERED for one in found) <= 1 and all(one.state == RETURNED for one in found[:-1])
    assert [one.function for one in found] == (["Isend", "Recv", "Wait"] * len(found))[: len(found)]
    assert json.loads((tmp_path / "t/rank-00000.json").read_text())["ended"] is None


def test_at_the_limit_it_says_so_once_and_the_program_goes_on(tmp_path: Path) -> None:
    program = "from mpi4py import MPI\nfor i in range(40000): MPI.COMM_SELF.Barrier()\nprint('done')"
    done = traced.run(1, "-c", program, trace=tmp_path / "t", more=[("SAFEPOINT_TRACE_LIMIT", str(5 << 20))])
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == f"safepoint trace: rank 0 stopped noting: the limit of {5 << 20} bytes\n"
    assert record.count(tmp_path / "t/rank-00000.calls") == (2 << 20) // 64 - 64  # a segment, less its head
    assert json.loads((tmp_path / "t/rank-00000.json").read_text())["stopped"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount a small tmpfs")
def test_on_a_full_disk_it_says_so_once_and_the_program_goes_on(tmp_path: Path) -> None:
    """A mapped file with a hole would be a SIGBUS there, which ends the program."""
    (small := tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(small)], check=True)
    try:
        program = "from mpi4py import MPI\nfor i in range(40000): MPI.COMM_SELF.Barrier()\nprint('done')"
        done = traced.run(1, "-c", program, trace=small / "t")
        assert (done.returncode, done.stdout) == (0, "done\n")
        assert done.stderr == "safepoint trace: rank 0 stopped noting: No space left on device\n"
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_trace_of_before_is_not_overwritten(tmp_path: Path) -> None:
    assert traced.run(1, "-c", "from mpi4py import MPI", trace=tmp_path / "t").returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
    again = traced.run(1, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))", trace=tmp_path / "t")
    assert (again.returncode, again.stdout) == (0, "1\n") and "an older trace lies there" in again.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before


def test_an_mpi4py_that_is_too_old_is_said_to_be(tmp_path: Path) -> None:
    program = "import mpi4py; mpi4py.__version__ = '3.1.4'\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()"
    done = traced.run(1, "-c", program, trace=tmp_path / "t")
    assert done.stderr == "safepoint trace: not traced: needs mpi4py 4 or newer, and this is 3.1.4\n"
    assert list((tmp_path / "t").iterdir()) == []


def test_the_programs_own_sitecustomize_runs_and_so_does_an_mpi_that_begins_late(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('own')\n")
    program = (
        "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI\nMPI.Init()\nMPI.COMM_WORLD.Barrier()"
    )
    environment = traced.environment("mpich", tmp_path / "t")
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "own")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "own\n"
    assert [name for name, _ in called(tmp_path / "t", 0)] == ["Barrier"]


@pytest.mark.parametrize("switch", one_of(["-I", "-E", "-S"]))
def test_a_python_that_loads_no_hook_is_traced_by_name(tmp_path: Path, switch: str) -> None:
    (tmp_path / "near.py").write_text("value = 3\n")
    (tmp_path / "solver.py").write_text(
        "import sys\nif not sys.flags.isolated:\n    import near\nfrom mpi4py import MPI\n"
        "print(MPI.COMM_WORLD.bcast(3), sys.argv, __name__)\n"
    )
    words = ["-m", "safepoint.trace", str(tmp_path / "solver.py"), "-a"]
    environment = traced.environment("mpich", tmp_path / "t")
    if switch == "-S":  # it has no site-packages but those that are named
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, switch, *words], env=environment, capture_output=True, text=True)
    assert done.stdout == f"3 {[str(tmp_path / 'solver.py'), '-a']} __main__\n", done.stderr
    assert called(tmp_path / "t", 0) == [("Bcast", 5)]


HIDES = """
import safepoint
from mpi4py import MPI
comm = MPI.COMM_WORLD
session = safepoint.init(comm=comm)
safepoint.restore()
for step in range(2):
    open(f"u-{comm.rank}.dat", "w").write(str(step))
    safepoint.mark()
    safepoint.hide(step)
safepoint.finish(1)
"""


def test_hide_and_mark_are_noted_and_what_safepoint_sends_itself_is_not(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    done = traced.run(2, "-c", HIDES, trace=tmp_path / "t", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert called(tmp_path / "t", rank) == [("mark", 9), ("hide", 10)] * 2
        assert [one.bytes for one in read(tmp_path / "t", rank)] == [0, 0, 0, 1]


def test_a_module_where_we_are_is_not_taken_for_the_mpi_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mpi4py", "warnings"):
        (tmp_path / f"{name}.py").write_text("open('loaded', 'a')\n")
    before = linked._of_python(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert linked._of_python(sys.executable) == before
    assert not (tmp_path / "loaded").exists()
