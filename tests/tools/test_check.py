"""`safepoint check`, the command: what it says of programs that run, of their traces, and of templates."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import mpiexec

BEGIN = """import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
data = np.zeros(4)
"""
WRONG = (
    BEGIN
    + """point = MPI.DOUBLE.Create_contiguous(2)
point.Commit()
if rank == 0:
    comm.Bcast(data, root=0)
else:
    comm.Bcast(data, root=1)
"""
)
RIGHT = (
    BEGIN
    + """point = MPI.DOUBLE.Create_contiguous(2)
requests = [comm.Irecv(data, source=MPI.ANY_SOURCE, tag=7), comm.Isend(np.ones(4), dest=other, tag=7)]
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
)
HANGS = BEGIN + "if rank == 0:\n    comm.Recv(data, source=1, tag=5)\nelse:\n    comm.Barrier()\n"
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


def check(cwd: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "check", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, timeout=90)


def of_program(cwd: Path, text: str, *words: object, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    (cwd / "solver.py").write_text(text)
    return check(cwd, *words, "--", mpiexec(), "-n", ranks, sys.executable, "solver.py")


def situations(done: subprocess.CompletedProcess[str]) -> list[Any]:
    report: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return list(report["situations"])


def test_mistakes_are_told_with_their_lines_and_the_trace_tells_the_same_afterwards(tmp_path: Path) -> None:
    done = of_program(tmp_path, WRONG, "-o", "run.trace", "--json")
    assert done.returncode == 1, done.stderr
    found = {one["template"]: one for one in situations(done)}
    assert set(found) == {"root-differs", "type-not-freed"}
    calls = [(call["rank"], call["file"], call["line"]) for call in found["root-differs"]["places"][0]["calls"]]
    assert calls == [(0, str(tmp_path / "solver.py"), 9), (1, str(tmp_path / "solver.py"), 11)]
    assert "[root-differs] solver.py:9, solver.py:11 (ranks 0 1)" in done.stderr  # while it runs
    later = check(tmp_path, "--json", "run.trace")
    assert later.returncode == 1 and situations(later) == situations(done)
    text = check(tmp_path, "run.trace").stdout
    assert "F1  rank 0  solver.py:9   Bcast(buffer, 4, MPI_DOUBLE, root=0, MPI_COMM_WORLD)" in text, text
    assert "#2  the same lines on rank 1" in text and text.endswith(" templates: 3 errors\n"), text


def test_of_a_program_that_is_right_nothing_is_said(tmp_path: Path) -> None:
    done = of_program(tmp_path, RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no mistake was found\n") and "2 ranks" in done.stdout


@pytest.mark.parametrize("late", [0, 1])
def test_a_right_program_may_wait_for_a_slow_rank_as_long_as_it_does(late: int, tmp_path: Path) -> None:
    """A rank that was in Waitall for half a second was judged there, as if it had completed nothing."""
    slowly = f"import time\nif rank == {late}: time.sleep(1.2)\n"
    done = of_program(
        tmp_path,
        RIGHT.replace("point = ", slowly + "point = ")
        .replace("duplicate = ", slowly + "duplicate = ")
        .replace("MPI.Request.Waitall(requests)", "MPI.Request.Waitany(requests)\nMPI.Request.Waitall(requests)"),
    )
    assert done.returncode == 0 and done.stdout.endswith("no mistake was found\n"), done.stdout + done.stderr


def test_the_exit_code_is_that_of_the_program_if_nothing_was_found(tmp_path: Path) -> None:
    assert of_program(tmp_path, BEGIN + "raise SystemExit(7)\n").returncode == 7
    done = of_program(tmp_path, "pass\n")
    assert done.returncode == 2 and "nothing was seen" in done.stdout


@pytest.mark.parametrize("templates", [(), ("-t", "none")], ids=["standard", "none"])
def test_a_program_that_stands_still_is_told_rank_by_rank_and_ended(templates: Any, tmp_path: Path) -> None:
    begin = time.monotonic()
    done = of_program(tmp_path, HANGS, "--hang", "2", "-o", "run.trace", *templates)
    assert done.returncode == 1 and time.monotonic() - begin < 30
    assert "[hang] no progress for 2 s, 2 of 2 ranks are inside MPI" in done.stdout, done.stdout
    assert "rank  0  Recv(source=1, tag=5)  solver.py:7" in done.stdout
    assert "rank  1  Barrier                solver.py:9" in done.stdout
    assert "rank 0 waits for rank 1, rank 1 for rank 0: deadlock" in done.stdout
    assert "died" not in done.stdout  # we have ended it
    later = check(tmp_path, *templates, "run.trace")
    assert later.returncode == 1 and "for rank 1, rank 1 for rank 0: deadlock" in later.stdout
    assert ("receive-without-send" in done.stdout) == (not templates)


def test_what_a_rank_has_not_called_before_it_died_is_no_mistake(tmp_path: Path) -> None:
    program = BEGIN + (
        "import os\nif rank == 1:\n    comm.Recv(data, source=0, tag=6)\n    os.kill(os.getpid(), 9)\n"
        "comm.Send(data, dest=1, tag=6)\ncomm.Send(data, dest=1, tag=5)\ncomm.Recv(data, source=1)\n"
    )
    done = of_program(tmp_path, program, "-t", "send-without-receive", "-o", "run.trace")
    assert "1 situation not told, of what ranks 0-1 had not called before death" in done.stdout, done.stdout
    assert "rank 1 died" in done.stdout and done.returncode not in (0, 1), done.stdout
    later = check(tmp_path, "-t", "send-without-receive", "run.trace")
    assert later.returncode == done.returncode and done.stdout.endswith(later.stdout) and "died" in later.stdout


MANY = (
    BEGIN
    + """import resource
if rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # its trace ends there
one = bytearray(1)
for step in range(34_000):
    if rank == 0:
        comm.Send(one, dest=1, tag=6)
    else:
        comm.Recv(one, source=0, tag=6)
"""
)


def test_a_rank_whose_trace_ends_early_is_no_rank_that_calls_nothing(tmp_path: Path) -> None:
    done = of_program(tmp_path, MANY, "-o", "run.trace")
    assert done.returncode == 2 and "[send-without-receive]" not in done.stdout, done.stdout
    assert re.search(r"rank 1 has noted nothing more after \d+ calls: .*File too large", done.stdout), done.stdout
    assert "no mistake was found in what has come" in done.stdout
    later = check(tmp_path, "run.trace")
    assert later.returncode == 2 and "rank 1 has noted nothing more" in later.stdout
    about = tmp_path / "run.trace/rank-00000.json"
    about.write_text(about.read_text().replace('"size": 2', '"size": 3'))
    later = check(tmp_path, "run.trace")
    assert later.returncode not in (0, 1, 2) and "the trace is of 3 ranks, and this one says 2" in later.stderr, later


@pytest.mark.parametrize(
    "harm, said",
    [
        ("open(f'{where}/rank-00001.json', 'w').write('{}')", ""),  # its tracer writes it anew
        ("open(f'{where}/rank-00001.objects', 'a').write('nonsense\\n')", "rank 1 is followed no more: "),
        ("open(f'{where}/rank-00077.json', 'w').write('{}')", ""),  # all were there before
    ],
)
def test_a_rank_that_cannot_be_read_ends_neither_the_program_nor_the_report(
    harm: str, said: str, tmp_path: Path
) -> None:
    """The others are told of all the same, and that it was not looked at whole."""
    program = f"""
        import os, time
        from mpi4py import MPI
        comm, where = MPI.COMM_WORLD, os.environ["SAFEPOINT_TRACE"]
        comm.Barrier()
        if comm.rank == 0:
            {harm}
        comm.Dup()
        time.sleep(0.5)
        comm.Barrier()
        print("came to its end", flush=True)
        """
    done = of_program(tmp_path, textwrap.dedent(program))
    assert done.stdout.count("came to its end") == 2, (done.stdout, done.stderr)
    assert said in done.stdout + done.stderr and done.returncode in (1, 2), (done.stdout, done.stderr)


def test_what_a_process_does_after_finalize_is_its_own_affair(tmp_path: Path) -> None:
    """It may leave without a word. One rank: MPICH's launcher kills those that are there when another leaves so."""
    done = of_program(tmp_path, BEGIN + "import os\ncomm.Barrier()\nMPI.Finalize()\nos._exit(0)\n", ranks=1)
    assert "died" not in done.stdout and done.returncode == 0, done.stdout


def test_a_rank_that_does_not_come_to_hide_is_told_with_its_last_one(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    program = (
        "import safepoint\nfrom mpi4py import MPI\nfrom pathlib import Path\ncomm = MPI.COMM_WORLD\n"
        "safepoint.init(comm=comm)\nsafepoint.restore()\nfor step in (1, 2):\n"
        "    Path(f'u-{comm.rank}.dat').write_text(str(step))\n    if step == 1 or comm.rank == 0:\n"
        "        safepoint.hide(step)\ncomm.Barrier()\n"
    )
    done = of_program(tmp_path, program, "--hang", "2")
    assert done.returncode == 1, done.stdout
    assert "rank 0 waits in hide, number 2" in done.stdout, done.stdout
    assert "rank 1 has not come: the last hide that it reached was number 1, step 1, solver.py:10" in done.stdout


def test_of_a_start_it_is_told_where_its_request_was_made(tmp_path: Path) -> None:
    program = BEGIN + "request = comm.Send_init(data, other, 7)\nrequest.Start()\nrequest.Free()\ncomm.Recv(data)\n"
    done = of_program(tmp_path, program, "-t", "active-request-freed", "--json")
    (found,) = situations(done)
    start = found["places"][0]["calls"][0]
    assert (start["function"], start["line"], start["made"]["function"], start["made"]["line"]) == (
        "Start", 7, "Send_init", 6,
    )  # fmt: skip


def test_what_is_expected_is_a_check_that_passes_and_fails(tmp_path: Path) -> None:
    (tmp_path / "gathers.tpl").write_text(GATHERS)
    loop = "for _ in range({}):\n    comm.Allreduce(MPI.IN_PLACE, data)\n"
    program = BEGIN + loop + "    comm.Gather(data, None if rank else np.zeros(8))\n"
    done = of_program(tmp_path, program.format(2), "-t", "gathers.tpl")
    assert done.returncode == 0 and "expected, 2 situations, 1 place" in done.stdout, done.stdout
    done = of_program(tmp_path, program.format(1), "-t", "gathers.tpl")
    assert done.returncode == 1 and "it was expected 2 times, and occurred 1 time" in done.stdout, done.stdout


def test_what_is_always_the_same_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(WRONG)
    (tmp_path / ".safepoint-check").write_text(
        f"command = {mpiexec()} -n 2 {sys.executable} solver.py\ntemplates = type-not-freed\n# a comment\nhang = 20\n"
    )
    done = check(tmp_path, "--json")
    assert done.returncode == 1 and [one["template"] for one in situations(done)] == ["type-not-freed"], done.stderr
    (tmp_path / ".safepoint-check").write_text("comand = x\n")
    done = check(tmp_path)
    assert done.returncode and ".safepoint-check:1: there is no 'comand'; command?" in done.stderr


def test_templates_are_listed_explained_and_judged(tmp_path: Path) -> None:
    listed = check(tmp_path, "--list")
    assert listed.returncode == 0 and "truncation" in listed.stdout and "standard" in listed.stdout
    told = check(tmp_path, "--explain", "truncation")
    assert told.returncode == 0 and "For example:" in told.stdout and "It cannot see" in told.stdout
    (tmp_path / "my.tpl").write_text(GATHERS.replace("Gather\n", "Gatter\n"))
    done = check(tmp_path, "--lint", "my.tpl")
    assert done.returncode == 2 and "my.tpl:10:" in done.stdout and "Gather" in done.stdout, done.stdout
    done = of_program(tmp_path, RIGHT, "-t", "my.tpl")
    assert done.returncode == 2 and done.stderr.startswith("my.tpl:10:") and not done.stdout  # nothing has run
    (tmp_path / "my.tpl").write_text(GATHERS)
    assert check(tmp_path, "--lint", "my.tpl").stdout == "my.tpl: right\n"


def test_a_program_of_mpi_that_fails_is_told_what_tells_why(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    command = [mpiexec(), "-n", "1", sys.executable, "-c", "raise SystemExit(3)"]
    os.symlink(mpiexec(), tmp_path / "mpiexec")
    done = subprocess.run([sys.executable, "-m", "safepoint", "run", "--", *command], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    assert done.returncode == 3 and "safepoint check -- " in done.stderr, done.stderr
    done = subprocess.run([sys.executable, "-m", "safepoint", "crash-test", "--", *command], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode and "safepoint check -- " in " ".join(f"{done.stdout} {done.stderr} ".split()), done


def test_each_of_several_that_are_left_is_told(tmp_path: Path) -> None:
    """Finalize is one call, and there are three types that were not freed before it."""
    done = of_program(tmp_path, BEGIN + "types = [MPI.INT.Create_contiguous(n) for n in (1, 2, 3)]\n", "--json")
    assert [one["count"] for one in situations(done) if one["template"] == "type-not-freed"] == [6], done.stdout
