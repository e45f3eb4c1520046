"""`safepoint check`, the command: what it says of programs that run, of their traces, and of templates."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import Result
from launcher import mpiexec
from testbed.checking import Done, safepoint, situations
from testbed.commands import cli

BEGIN = """import os, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
data = np.zeros(4)
"""
WRONG = """types = [MPI.INT.Create_contiguous(n) for n in (1, 2, 3)]
request = comm.Send_init(data, other, 7)
request.Start()
request.Free()
comm.Recv(data)
if rank == 0:
    comm.Bcast(data, root=0)
else:
    comm.Bcast(data, root=1)
"""
RIGHT = """point = MPI.DOUBLE.Create_contiguous(2)
requests = [comm.Irecv(data, source=MPI.ANY_SOURCE, tag=7), comm.Isend(np.ones(4), dest=other, tag=7)]
MPI.Request.Waitany(requests)
MPI.Request.Waitall(requests)
comm.Allreduce(MPI.IN_PLACE, data)
gathered = comm.gather(rank)
for count in (1, 2, 3):
    comm.Sendrecv(np.ones(count), dest=other, recvbuf=np.zeros(count), source=other)
duplicate = comm.Dup()
duplicate.Barrier()
duplicate.Free()
point.Free()
"""
HANGS = "if rank == 0:\n    comm.Recv(data, source=1, tag=5)\nelse:\n    comm.Barrier()\n"
GATHERS = """# After each Allreduce rank 0 gathers.
Name=Rank 0 gathers
Kind=note
Expect=2
1block
N=1
p1=0
2block
F1=p1:Allreduce
F2=p1:Gather
3block
F1(comm)=F2(comm)
"""


def of_program(cwd: Path, text: str, *words: object, ranks: int = 2) -> Done:
    (cwd / "solver.py").write_text(BEGIN + text)
    return safepoint(cwd, "check", *words, "--", mpiexec(), "-n", ranks, sys.executable, "solver.py")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(*words: object) -> Result:
    """Of what is there already; in this process."""
    return cli("check", *words)


def test_mistakes_are_told_with_their_lines_and_the_trace_tells_the_same_afterwards(tmp_path: Path) -> None:
    """Of a start also where its request was made. Finalize is one call, and there are three types not freed before."""
    words = "--json", "-t", "standard", "-t", "active-request-freed"
    done = of_program(tmp_path, WRONG, *words, "-o", "run.trace")
    assert done.returncode == 1, done.stderr
    found = {one["template"]: one for one in situations(done.stdout)}
    assert {*found} == {"root-differs", "type-not-freed", "active-request-freed"}
    calls = [(call["rank"], call["file"], call["line"]) for call in found["root-differs"]["places"][0]["calls"]]
    assert calls == [(0, str(tmp_path / "solver.py"), 13), (1, str(tmp_path / "solver.py"), 15)]
    start = found["active-request-freed"]["places"][0]["calls"][0]
    assert [(one["function"], one["line"]) for one in (start, start["made"])] == [("Start", 9), ("Send_init", 8)]
    assert found["type-not-freed"]["count"] == 6
    assert "[root-differs] solver.py:13, solver.py:15 (ranks 0 1)" in done.stderr  # while it runs
    later = check(*words, "run.trace")
    assert later.exit_code == 1 and situations(later.stdout) == situations(done.stdout)
    text = check("run.trace").stdout
    assert "F1  rank 0  solver.py:13  Bcast(buffer, 4, MPI_DOUBLE, root=0, MPI_COMM_WORLD)" in text, text
    assert "#2 to #6  the same lines on ranks 0-1" in text and text.endswith(" templates: 7 errors\n"), text


def test_of_a_right_program_nothing_is_said_however_slow_a_rank_is(tmp_path: Path) -> None:
    """A rank that was in Waitall for half a second was judged there, as if it had completed nothing."""
    slowly = "if rank == {}: time.sleep(0.7)\n"
    text = RIGHT.replace("point = ", slowly.format(0) + "point = ")
    done = of_program(tmp_path, text.replace("duplicate = ", slowly.format(1) + "duplicate = "))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no mistake was found\n") and "2 ranks" in done.stdout


def test_the_exit_code_is_that_of_the_program_if_nothing_was_found(tmp_path: Path) -> None:
    assert of_program(tmp_path, "raise SystemExit(7)\n", ranks=1).returncode == 7
    (tmp_path / "none.py").touch()
    done = safepoint(tmp_path, "check", "--", mpiexec(), "-n", 1, sys.executable, "none.py")
    assert done.returncode == 2 and "nothing was seen" in done.stdout


def test_a_program_that_stands_still_is_told_rank_by_rank_and_ended(tmp_path: Path) -> None:
    done = of_program(tmp_path, HANGS, "--hang", "1", "-o", "run.trace")
    assert done.returncode == 1
    assert re.search(r"\[hang\] no progress for \d+ s, 2 of 2 ranks are inside MPI", done.stdout), done.stdout
    assert "rank  0  Recv(source=1, tag=5)  solver.py:8" in done.stdout
    assert "rank  1  Barrier                solver.py:10" in done.stdout
    assert "died" not in done.stdout  # we have ended it
    for templates, said in (((), True), (("-t", "none"), False)):
        later = check(*templates, "run.trace")
        assert later.exit_code == 1 and ("receive-without-send" in later.stdout) is said
        for text in [later.stdout, done.stdout]:
            assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock" in text
    assert "receive-without-send" in done.stdout


def test_what_a_rank_has_not_called_before_it_died_is_no_mistake(tmp_path: Path) -> None:
    program = (
        "if rank == 1:\n    comm.Recv(data, source=0, tag=6)\n    os.kill(os.getpid(), 9)\n"
        "comm.Send(data, dest=1, tag=6)\ncomm.Send(data, dest=1, tag=5)\ncomm.Recv(data, source=1)\n"
    )
    done = of_program(tmp_path, program, "-t", "send-without-receive", "-o", "run.trace")
    assert "1 situation not told, of what ranks 0-1 had not called before death" in done.stdout, done.stdout
    assert "rank 1 died" in done.stdout and done.returncode not in (0, 1), done.stdout
    later = check("-t", "send-without-receive", "run.trace")
    assert later.exit_code == done.returncode and done.stdout.endswith(later.stdout) and "died" in later.stdout


MANY = """import resource
if rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # its trace ends there
for step in range(100):  # each has a row of the requests
    MPI.Request.Waitall([MPI.REQUEST_NULL] * 4096)
if rank == 0:
    comm.Send(data, dest=1, tag=6)
else:
    comm.Recv(data, source=0, tag=6)
"""


@pytest.mark.proof
def test_a_rank_whose_trace_ends_early_is_no_rank_that_calls_nothing(tmp_path: Path) -> None:
    done = of_program(tmp_path, MANY, "-o", "run.trace")
    assert done.returncode == 2 and "[send-without-receive]" not in done.stdout, done.stdout
    assert re.search(r"rank 1 has noted nothing more after \d+ calls: .*File too large", done.stdout), done.stdout
    assert "no mistake was found in what has come" in done.stdout
    later = check("run.trace")
    assert later.exit_code == 2 and "rank 1 has noted nothing more" in later.stdout
    about = tmp_path / "run.trace/rank-00000.json"
    about.write_text(about.read_text().replace('"size": 2', '"size": 3'))
    later = check("run.trace")
    assert later.exit_code not in (0, 1, 2) and "the trace is of 3 ranks, and this one says 2" in later.stderr, later


HARMED = """where = os.environ["SAFEPOINT_TRACE"]
comm.Barrier()
if rank == 0:
    {}
comm.Dup()
time.sleep(0.5)
comm.Barrier()
print("came to its end", flush=True)
"""
NOT_READ = "open(f'{where}/rank-00001.objects', 'a').write('nonsense\\n')"
# Its tracer writes the one anew, and all were there before the other.
NOT_LOOKED_AT = "[open(f'{where}/rank-000%s.json' % number, 'w').write('{}') for number in ('01', '77')]"


@pytest.mark.proof
@pytest.mark.parametrize("harm, said", [(NOT_LOOKED_AT, ""), (NOT_READ, "rank 1 is followed no more: ")])
def test_a_rank_that_cannot_be_read_ends_neither_the_program_nor_the_report(
    harm: str, said: str, tmp_path: Path
) -> None:
    """The others are told of all the same, and that it was not looked at whole."""
    done = of_program(tmp_path, HARMED.replace("{}", harm, 1))
    assert done.stdout.count("came to its end") == 2, (done.stdout, done.stderr)
    assert said in done.stdout + done.stderr and done.returncode in (1, 2), (done.stdout, done.stderr)


def test_what_a_process_does_after_finalize_is_its_own_affair(tmp_path: Path) -> None:
    """It may leave without a word. One rank: MPICH's launcher kills those that are there when another leaves so."""
    done = of_program(tmp_path, "comm.Barrier()\nMPI.Finalize()\nos._exit(0)\n", ranks=1)
    assert "died" not in done.stdout and done.returncode == 0, done.stdout


def test_a_rank_that_does_not_come_to_hide_is_told_with_its_last_one(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    program = (
        "import safepoint\nfrom pathlib import Path\n"
        "safepoint.init(comm=comm)\nsafepoint.restore()\nfor step in (1, 2):\n"
        "    Path(f'u-{comm.rank}.dat').write_text(str(step))\n    if step == 1 or comm.rank == 0:\n"
        "        safepoint.hide(step)\ncomm.Barrier()\n"
    )
    done = of_program(tmp_path, program, "--hang", "1")
    assert done.returncode == 1, done.stdout
    assert "rank 0 waits in hide, number 2" in done.stdout, done.stdout
    assert "rank 1 has not come: the last hide that it reached was number 1, step 1, solver.py:14" in done.stdout


def test_what_is_expected_is_a_check_that_passes_and_fails(tmp_path: Path) -> None:
    template = tmp_path / "gathers.tpl"
    template.write_text(GATHERS)
    loop = "for _ in range(2):\n    comm.Allreduce(MPI.IN_PLACE, data)\n    comm.Gather(data, np.zeros(4))\n"
    done = of_program(tmp_path, loop, "-t", "gathers.tpl", "-o", "run.trace", ranks=1)
    assert done.returncode == 0 and "expected, 2 situations, 1 place" in done.stdout, done.stdout
    template.write_text(GATHERS.replace("Expect=2", "Expect=3"))
    later = check("-t", "gathers.tpl", "run.trace")
    assert later.exit_code == 1 and "it was expected 3 times, and occurred 2 times" in later.stdout, later.stdout


def test_what_is_always_the_same_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(BEGIN + "MPI.INT.Create_contiguous(2), comm.Send_init(data, 0)\n")
    config = tmp_path / ".safepoint-check"
    config.write_text(
        f"command = {mpiexec()} -n 1 {sys.executable} solver.py\ntemplates = type-not-freed\n# a comment\nhang = 20\n"
    )
    done = safepoint(tmp_path, "check", "--json")
    assert done.returncode == 1 and [one["template"] for one in situations(done.stdout)] == ["type-not-freed"], done
    config.write_text("comand = x\n")
    later = check()
    assert later.exit_code and ".safepoint-check:1: there is no 'comand'; command?" in later.stderr


def test_templates_are_listed_explained_and_judged(tmp_path: Path) -> None:
    listed, told = check("--list"), check("--explain", "truncation")
    assert listed.exit_code == 0 and "truncation" in listed.stdout and "standard" in listed.stdout
    assert told.exit_code == 0 and "For example:" in told.stdout and "It cannot see" in told.stdout
    mine = tmp_path / "my.tpl"
    mine.write_text(GATHERS.replace("Gather\n", "Gatter\n"))
    done = check("--lint", "my.tpl")
    assert done.exit_code == 2 and "my.tpl:10:" in done.stdout and "Gather" in done.stdout, done.stdout
    done = check("-t", "my.tpl", "--", "touch", "it-has-run")
    assert done.exit_code == 2 and done.stderr.startswith("my.tpl:10:") and not done.stdout
    assert not (tmp_path / "it-has-run").exists()
    mine.write_text(GATHERS)
    assert check("--lint", "my.tpl").stdout == "my.tpl: right\n"


def test_a_program_of_mpi_that_fails_is_told_what_tells_why(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    os.symlink(mpiexec(), tmp_path / "mpiexec")
    command = "--", mpiexec(), "-n", "1", sys.executable, "-c", "raise SystemExit(3)"
    done = safepoint(tmp_path, "run", *command)
    assert done.returncode == 3 and "safepoint check -- " in done.stderr, done.stderr
    done = safepoint(tmp_path, "crash-test", *command)
    assert done.returncode and "safepoint check -- " in " ".join(f"{done.stdout} {done.stderr} ".split()), done
