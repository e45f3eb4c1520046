"""`safepoint check --sync-sends`: a send ends when its receive has begun, and what needs more than that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launcher import mpiexec
from testbed.checked import environment, read
from testbed.foreign import MPICH, Mpi, each_mpi, needs, program, ran
from testbed.foreign import environment as plain_environment
from testbed.sweep import one_of
from testbed.traced import libraries, run

from safepoint.check import running
from safepoint.trace import record

FORMS = ["Send", "Isend", "Send_init", "Send_c", "Isend_c", "Send_init_c"]
PATIENCE_MS = {False: 300_000, True: 50}  # rank 1 waits so long for rank 0 to say that its send has ended
IN_PYTHON = """import sys
import time
from array import array
from mpi4py import MPI
comm, value, ended = MPI.COMM_WORLD, array("i", [41]), array("i", [0])
def start(request):
    request.Start()
    request.Wait()
    request.Free()
for name, send in {
    "Send": lambda: comm.Send([value, MPI.INT], 1, 7), "Isend": lambda: comm.Isend([value, MPI.INT], 1, 7).Wait(),
    "Send_init": lambda: start(comm.Send_init([value, MPI.INT], 1, 7)),
    "send": lambda: comm.send(41, 1, 7), "isend": lambda: comm.isend(41, 1, 7).wait(),
    "Sendrecv": lambda: comm.Sendrecv([value, MPI.INT], 1, 7, value, MPI.PROC_NULL),
}.items():
    told, done = comm.Irecv(ended, 0, 8) if comm.rank else None, False
    comm.Barrier()
    if comm.rank == 0:
        send()
        comm.Rsend(ended, 1, 8)
    else:
        until = time.monotonic() + (300 if name == "Sendrecv" else int(sys.argv[1]) / 1000)
        while not done and time.monotonic() < until:
            done = told.Test()
        if name.islower():
            comm.recv(source=0, tag=7)
        else:
            comm.Recv([value, MPI.INT], 0, 7)
        told.Wait()
        print(name, "early" if done else "late")
assert comm.Send.__name__ == "Send" and "Send(" in str(comm.Send.__doc__).replace("Ssend(", "")
"""
CYCLE = """from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.send(comm.rank, (comm.rank + 1) % comm.size)
print("rank", comm.rank, comm.recv(source=(comm.rank - 1) % comm.size))
"""


def prepared(work: Path, sync: bool) -> Path:
    """A trace with the watch list of `--sync-sends`, or of the same without."""
    trace = work / f"{sync}.trace"
    trace.mkdir()
    running.prepare(trace, [], 30, sync)
    return trace


def said(out: str) -> dict[str, str]:
    return dict(line.split() for line in out.splitlines())


@each_mpi
def test_each_form_of_a_send_ends_when_its_receive_has_begun(mpi: Mpi, tmp_path: Path) -> None:
    """With large counts too. Without the option they are those of MPI; and so is Sendrecv, always. Notes have the names
    that the program has."""
    exe = program("check_sync.c", mpi, "-g")
    for sync in False, True:
        trace = prepared(tmp_path, sync)
        status, out, text = ran(tmp_path, *mpi.started(2, exe, PATIENCE_MS[sync]), more=environment(mpi, trace))
        assert status == 0, text
        forms = FORMS if mpi is MPICH else FORMS[:3]
        assert said(out) == dict.fromkeys(forms, "late" if sync else "early") | {"Sendrecv": "early"}
        sends = [one.function for one in read(trace, 0) if "send" in one.function.lower() and one.function != "Rsend"]
        assert sends == [form.removesuffix("_c") for form in forms] + ["Sendrecv"]


@pytest.mark.parametrize("options", one_of([(), ("-DWITH_TYPES",)]), ids=len)
@needs(MPICH.fc, MPICH.mpiexec)
def test_in_fortran_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    exe = program("check_sync.f90", MPICH, "-cpp", "-w", *options)
    for sync in False, True:
        trace = prepared(tmp_path, sync)
        status, out, text = ran(tmp_path, *MPICH.started(2, exe, PATIENCE_MS[sync]), more=environment(MPICH, trace))
        assert (status, out.strip()) == (0, "late" if sync else "early"), text


@pytest.mark.proof
@libraries
def test_in_python_too_with_objects_and_buffers(tmp_path: Path, library: str) -> None:
    (tmp_path / "sends.py").write_text(IN_PYTHON)
    for sync in False, True:
        trace = prepared(tmp_path, sync)
        done = run(2, str(tmp_path / "sends.py"), str(PATIENCE_MS[sync]), library=library, trace=trace)
        assert done.returncode == 0, done.stderr
        forms = dict.fromkeys(("Send", "Isend", "Send_init", "send", "isend"), "late" if sync else "early")
        assert said(done.stdout) == forms | {"Sendrecv": "early"}
        noted = [one.function for one in read(trace, 0)]
        sends = [name for name in noted if "send" in name.lower() and name != "Rsend"]
        assert sends == ["Send", "Isend", "Send_init", "Send", "Isend", "Sendrecv"]


def check(work: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "check", "--hang", "3", *map(str, words)]
    return subprocess.run(command, cwd=work, env=plain_environment(), capture_output=True, text=True, timeout=300)


@pytest.mark.proof
@needs(MPICH.cc, MPICH.mpiexec)
@pytest.mark.parametrize("language", one_of(["c", "python"]))
def test_a_program_that_needs_buffers_is_told_who_waits_for_whom(tmp_path: Path, language: str) -> None:
    """Nothing is said of it without the option. Afterwards the trace says that its sends were synchronous."""
    (tmp_path / "cycle.py").write_text(CYCLE)
    command = [mpiexec(), "-n", 3, sys.executable, "cycle.py"]
    if language == "c":
        command = MPICH.started(3, program("check_sync.c", MPICH, "-g"), "cycle")
    done = check(tmp_path, "--sync-sends", "-o", "run.trace", "--", *command)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rank 0 waits for rank 1, rank 1 for rank 2, rank 2 for rank 0: deadlock" in done.stdout, done.stdout
    remark = "sends were made synchronous (--sync-sends)"
    assert remark in done.stdout and remark in check(tmp_path, "run.trace").stdout
    done = check(tmp_path, "--hang", "0", "--", *command)
    assert done.returncode == 0 and "synchronous" not in done.stdout and "no mistake" in done.stdout, done.stdout


@needs(MPICH.cc, MPICH.mpiexec)
def test_a_program_that_is_right_is_what_it_was(tmp_path: Path) -> None:
    command = MPICH.started(3, program("check_sync.c", MPICH, "-g"), "right")
    done = check(tmp_path, "--hang", "0", "--sync-sends", "--", *command)
    assert done.returncode == 0 and "no mistake was found" in done.stdout, done.stdout
    assert all(printed in done.stdout for printed in ("rank 0: 4", "rank 1: 0", "rank 2: 1")), done.stdout


def test_it_is_for_a_program_that_is_run(tmp_path: Path) -> None:
    (tmp_path / "run.trace").mkdir()
    done = check(tmp_path, "--sync-sends", "run.trace")
    assert done.returncode == 10 and "are for a program that is run, not for a trace" in done.stderr
    assert record.WATCH not in [path.name for path in (tmp_path / "run.trace").iterdir()]
