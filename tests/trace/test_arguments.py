"""Check mode of the tracer of Python programs: what each watched call passes to MPI, reads and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from testbed import traced
from testbed.checked import ALL, constants, prepared, read
from testbed.sweep import some_of
from testbed.traced import libraries
from testbed.waiting import wait_for

from safepoint.trace import record, roles
from safepoint.trace.record import ABSENT, ENTERED, RAISED, RETURNED
from safepoint.trace.rows import number

TESTBED = Path(__file__).parents[1] / "testbed"


@libraries
def test_each_call_is_noted_with_what_it_passes_to_mpi(tmp_path: Path, library: str) -> None:
    """The program works out each value by hand. What nobody can know is ABSENT, and so is what is not told."""
    prepared(tmp_path, ALL)
    words = str(TESTBED / "arguments.py"), str(tmp_path / "said")
    done = traced.run(2, *words, library=library, trace=tmp_path / "run.trace")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    for rank in range(2):
        said = json.loads((tmp_path / f"said-{rank}.json").read_text())
        names = {name for name, *_ in said}
        all_ = read(tmp_path / "run.trace", rank)
        assert not any(one.function.startswith("Status") for one in all_), "the tracer's own calls"
        noted = [one for one in all_ if one.function in names]
        assert [one.function for one in noted] == [name for name, *_ in said] and len(said) > 100
        for one, (name, *rows) in zip(noted, said, strict=True):
            told = [[ABSENT if value is None else value for value in row] for row in rows]
            assert [one.given, one.reads, one.writes] == told, f"{name}, line {one.line}"


UNTOUCHED = """
import json, sys
from mpi4py import MPI
def kind(thing): return "own" if hasattr(thing, "__wrapped__") else "plain"
world = MPI.COMM_WORLD
kinds = [kind(thing) for thing in (MPI.Comm.Send, world.Isend, MPI.Datatype.Commit, MPI.Datatype.Free, MPI.Group.Free,
                                   MPI.Finalize, MPI.Init, MPI.Request.Wait, MPI.Win.Put)]
sys.stdout.write(" ".join([str(world.rank), *kinds, str(type(world) is MPI.Intracomm)]) + "\\n")
"""


def test_a_function_that_is_not_watched_is_mpi4pys_own(tmp_path: Path) -> None:
    """In each rank: one list names the ranks."""
    prepared(tmp_path, {"Type_commit": None, "Isend": [0], "Finalize": [1]})
    done = traced.run(2, "-c", UNTOUCHED, trace=tmp_path / "run.trace")
    assert sorted(done.stdout.splitlines()) == [
        "0 plain own own plain plain plain plain plain plain True",
        "1 plain plain own plain plain own plain plain plain True",
    ], done


KEPT = """
import pickle, sys
from mpi4py import MPI
from mpi4py.util import dtlib
import numpy as np
t = MPI.DOUBLE
print(t is MPI.DOUBLE, type(t) is MPI.Datatype, type(MPI.Datatype), isinstance(t, MPI.Datatype), t == MPI.DOUBLE)
print(pickle.loads(pickle.dumps(t)) is t, MPI._typedict["d"] is t, dtlib.from_numpy_dtype("d") is t)
print(pickle.loads(pickle.dumps(MPI.SUM)) is MPI.SUM, type(MPI.SUM) is MPI.Op, MPI.SUM(3, 4), MPI.GROUP_EMPTY.size)
class Mine(MPI.Datatype):
    more = 1
mine = Mine(t.Create_contiguous(2)).Commit()
print(type(mine) is Mine, mine.more, mine.Get_size(), MPI.Datatype.Commit(mine) is mine, t.Get_name(), mine.extent)
print(MPI.Datatype.Create_struct([1], [0], [t]).Get_envelope()[-1] == MPI.COMBINER_STRUCT, MPI.Datatype.Free(mine))
op = MPI.Op.Create(lambda a, b, kind: np.frombuffer(b, "d").__iadd__(np.frombuffer(a, "d")))
print(MPI.COMM_SELF.allreduce(2, op), bool(op), op.Free(), bool(op), MPI.Op.Free.__doc__ is not None)
try:
    MPI.DOUBLE.Create_contiguous("x")
except TypeError as error:
    print(str(error))
"""


def test_types_groups_and_operations_are_the_same_objects_of_the_same_classes(tmp_path: Path) -> None:
    prepared(tmp_path, ALL)
    plain = traced.run(1, "-c", KEPT)
    done = traced.run(1, "-c", KEPT, trace=tmp_path / "run.trace")
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, plain.stderr, 0)
    assert {"Type_contiguous", "Type_commit", "Type_free", "Op_create", "Op_free", "Type_get_envelope"} <= {
        one.function for one in read(tmp_path / "run.trace", 0)
    }


WRONG = """
import numpy as np
from mpi4py import MPI
world, a = MPI.COMM_WORLD, np.zeros(3)
own = world.Dup()
own.Free()
def once():
    yield MPI.REQUEST_NULL
for bad in (lambda: world.Send(a, 7), lambda: world.Send(a, -77, 5), lambda: world.Send(a, 0, -5),
            lambda: MPI.COMM_NULL.Send(a, 0), lambda: own.Barrier(), lambda: world.Send([a, -1, MPI.DOUBLE], 0),
            lambda: world.Send([a, 1, MPI.DATATYPE_NULL], 0), lambda: world.Isend(a, 0, 2**70),
            lambda: world.Send(3, 0), lambda: world.Send(a[::2], 0), lambda: world.Bcast(a, -9),
            lambda: world.Allreduce(a, a, "sum"),
            lambda: MPI.Request.Waitall(once()), lambda: MPI.DATATYPE_NULL.Commit(), lambda: world.Send(a, 1.5)):
    try:
        bad()
    except Exception as error:
        print(type(error).__name__, error.Get_error_class() if isinstance(error, MPI.Exception) else "")
"""


def test_a_call_that_mpi_or_mpi4py_refuses_is_noted_with_what_was_given(tmp_path: Path) -> None:
    """And as one that has raised where no arguments are noted, but what mpi4py knows to be none."""
    prepared(tmp_path, ("Send", "Isend", "Barrier", "Bcast", "Allreduce", "Waitall", "Type_commit"))
    plain = traced.run(1, "-c", WRONG)
    done = traced.run(1, "-c", WRONG, trace=tmp_path / "run.trace")
    assert (done.stdout, done.stderr) == (plain.stdout, "") and len(done.stdout.splitlines()) == 15
    noted = [one for one in read(tmp_path / "run.trace", 0) if one.line >= 9]
    assert {one.note["state"] for one in noted} == {RAISED}
    classes = [int([*line.split(), str(record.NO_RESULT)][1]) for line in done.stdout.splitlines()]
    of = constants(tmp_path / "run.trace", 0)
    given = [one.given for one in noted if one.given is not None]
    assert [one.function for one in noted] == ["Send"] * 4 + ["Barrier"] + ["Send"] * 2 + ["Isend"] + ["Send"] * 2 + [
        "Bcast", "Allreduce", "Waitall", "Type_commit", "Send"]  # fmt: skip
    assert [one.note["result"] for one in noted] == [*classes[:14], record.NO_RESULT]  # a rank that is no integer
    assert [row[3:5] for row in given[:3]] == [[7, 0], [-77, 5], [0, -5]]
    assert given[3][5] == given[4][0] == of["MPI_COMM_NULL"] and given[5][1] == -1
    assert given[6][2] == of["MPI_DATATYPE_NULL"] and given[7][4] == ABSENT
    assert given[8][:3] == [ABSENT] * 3 and given[9][:3] == [ABSENT] * 3
    assert given[10][3] == -9 and given[11][4] == ABSENT and given[14][3] == 1
    assert noted[13].reads == [1, 1, of["MPI_DATATYPE_NULL"]]
    done = traced.run(1, "-c", WRONG, trace=tmp_path / "calls.trace")
    assert (done.stdout, done.stderr) == (plain.stdout, "")
    found, names = [one for one in read(tmp_path / "calls.trace", 0) if one.line >= 9], iter([*noted])
    assert all(any(one.function == other.function for other in names) for one in found), "in this order"
    assert len(found) > 10 and {one.state for one in found} == {RAISED}


LATE = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
MPI.Init_thread(MPI.THREAD_SERIALIZED)
import sys
world, t = MPI.COMM_WORLD, MPI.INT.Create_contiguous(3)
if sys.argv[1] == "twice":
    MPI.Init()
MPI.Finalize()
print("finalized", flush=True)
if sys.argv[1] == "send":
    world.Send([bytearray(24), 2, t], 0)
t.Free() if sys.argv[1] == "type" else world.Barrier()
"""


@libraries
@pytest.mark.parametrize("how", some_of(["barrier", "type", "send", "twice"], 2, 4))
def test_init_finalize_and_what_is_called_after_it_are_noted(tmp_path: Path, library: str, how: str) -> None:
    prepared(tmp_path, ("Init", "Init_thread", "Finalize", "Barrier", "Send", "Type_free", "Type_contiguous"))
    plain = traced.run(1, "-c", LATE, how, library=library)
    done = traced.run(1, "-c", LATE, how, library=library, trace=tmp_path / "run.trace")
    assert done.returncode == plain.returncode and done.stdout == plain.stdout
    noted = read(tmp_path / "run.trace", 0)
    of = constants(tmp_path / "run.trace", 0)
    serialized = of["MPI_THREAD_SERIALIZED"]
    assert [(one.function, one.line) for one in noted[:2]] == [("Init_thread", 5), ("Type_contiguous", 7)]
    assert (noted[0].given, noted[0].writes[:2]) == ([ABSENT, ABSENT, serialized, ABSENT], [4, 1])
    if how == "twice":
        assert (noted[2].function, noted[2].line, noted[2].given) == ("Init", 9, [ABSENT] * 2)
        return  # some end there
    last = {"type": ("Type_free", 14), "send": ("Send", 13), "barrier": ("Barrier", 14)}[how]
    assert [(one.function, one.line) for one in noted[2:4]] == [("Finalize", 10), last]
    assert noted[2].note["state"] == RETURNED
    if how == "send":  # the size of its type would have been a call too
        assert noted[3].given is not None and noted[3].given[1:3] == [2, noted[1].writes[2]]
    elif how == "type":
        assert noted[3].reads == [1, 1, noted[1].writes[2]]
    else:
        assert noted[3].given == [of["MPI_COMM_WORLD"]]


STUCK = """
import numpy as np
from mpi4py import MPI
import time
def exchange():
    MPI.COMM_WORLD.Recv(np.zeros(1), 0, 99)
exchange()
"""


@libraries
def test_on_a_signal_a_rank_says_where_it_is_while_it_is_inside_mpi(tmp_path: Path, library: str) -> None:
    prepared(tmp_path, ("Recv",))
    command = traced.command(1, "-c", STUCK, library=library)
    environment = traced.environment(library, tmp_path / "run.trace")
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            stack = tmp_path / "run.trace/rank-00000.stack"
            wait_for(lambda: read(tmp_path / "run.trace", 0))
            (inside,) = read(tmp_path / "run.trace", 0)
            assert (inside.function, inside.line, inside.note["state"]) == ("Recv", 6, ENTERED)
            pid = json.loads((tmp_path / "run.trace/rank-00000.json").read_text())["pid"]
            for turn in (1, 2):
                os.kill(pid, signal.SIGRTMIN + record.STACK_SIGNAL)
                wait_for(lambda turn=turn: stack.read_text().count("line 7 in <module>") == turn)
                assert stack.read_text().count("line 6 in exchange") == turn
        finally:
            os.killpg(process.pid, signal.SIGKILL)


FORGOTTEN = """
from mpi4py import MPI
comm = MPI.COMM_SELF
comm.isend(1, 0)
comm.recv(source=0)
"""


def test_a_request_that_the_program_forgets_is_no_call(tmp_path: Path) -> None:
    prepared(tmp_path, ("Isend", "Recv", "Request_free"))
    assert traced.run(1, "-c", FORGOTTEN, trace=tmp_path / "run.trace").returncode == 0
    assert [one.function for one in read(tmp_path / "run.trace", 0)] == ["Isend", "Recv"]


HIDES = """
import safepoint
from mpi4py import MPI
comm = MPI.COMM_WORLD
session = safepoint.init(comm=comm)
safepoint.restore()
open(f"u-{comm.rank}.dat", "w").write("x")
held = comm.isend(0, comm.rank) if comm.rank == 0 else None
safepoint.hide(5)
safepoint.hide()
safepoint.finish(1)
"""


@pytest.mark.parametrize("functions", some_of([("hide",), ("Isend",), ALL], 1, 3), ids=len)
def test_a_hide_is_noted_with_its_step_and_none_of_what_it_calls(tmp_path: Path, functions: tuple[str, ...]) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    prepared(tmp_path, functions)
    done = traced.run(2, "-c", HIDES, trace=tmp_path / "run.trace", cwd=tmp_path)
    assert done.returncode == 0 and "safepoint trace" not in done.stderr, done.stderr
    noted = [one for one in read(tmp_path / "run.trace", 1) if one.line > 4]
    verbs = [("restore", [ABSENT, 2]), ("hide", [5, 2]), ("hide", [ABSENT, 2]), ("finish", [ABSENT, 2])]
    found = [(one.function, one.given) for one in noted if one.function in roles.VERBS]
    assert found == (verbs if "hide" in functions else [])
    others = [one for one in noted if one.line not in (6, 7, 8, 9, 10, 11)]
    assert others == [], (others, (tmp_path / "run.trace" / "rank-00001.sites").read_text())


def test_constants_have_the_names_of_the_standard(tmp_path: Path) -> None:
    from mpi4py import MPI

    prepared(tmp_path, ("Send",))
    program = "from mpi4py import MPI; print(MPI.DOUBLE.handle, MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))"
    done = traced.run(1, "-c", program, trace=tmp_path / "run.trace")
    double, largest = map(int, done.stdout.split())
    of = constants(tmp_path / "run.trace", 0)
    assert (of["MPI_DOUBLE"], of["TAG_UB"]) == (double, largest)
    assert (of["MPI_ANY_SOURCE"], of["MPI_ERR_RANK"]) == (MPI.ANY_SOURCE, MPI.ERR_RANK)
    wanted = """ANY_TAG PROC_NULL ROOT UNDEFINED IN_PLACE BOTTOM COMM_NULL COMM_WORLD COMM_SELF REQUEST_NULL GROUP_NULL
        GROUP_EMPTY OP_NULL SUM MAX MAXLOC DATATYPE_NULL INT BYTE 2INT LONG_LONG_INT DOUBLE_INT WIN_NULL FILE_NULL
        MESSAGE_NULL MESSAGE_NO_PROC INFO_NULL ERRHANDLER_NULL SUCCESS ERR_TAG ERR_TRUNCATE THREAD_MULTIPLE"""
    assert {f"MPI_{name}" for name in wanted.split()} <= set(of)


def test_a_number_that_only_the_programs_own_code_could_tell_is_absent() -> None:
    class Odd:
        def __index__(self) -> int:
            raise AssertionError("never asked")

    np = pytest.importorskip("numpy")
    odd = np.array(1.0), np.array([1, 2]), np.array("a"), Odd(), "1", None, float("nan")
    assert [number(value) for value in odd] == [ABSENT] * len(odd)
    assert [number(value) for value in (1.5, np.int64(3), np.array(4), True)] == [1, 3, 4, 1]
