"""`safepoint places`, on programs that really ran: what was planted is named with its lines, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import mpiexec
from testbed.sweep import ALL
from testbed.traced import libraries, run

HERE = Path(__file__).parents[2]
BEGIN = """
import sys, time
import numpy as np
from mpi4py import MPI
import safepoint
comm, a, b = MPI.COMM_WORLD, np.zeros(3), np.zeros(3)
rank = comm.rank
safepoint.init(comm=comm, inflight="off")
safepoint.restore()
def hide(step):
    open(f"u-{rank}.dat", "w").write(str(step))
    safepoint.hide(step)  # hide
hide(0)
"""
ENDS = "safepoint.finish(2)\n"
LEGAL = "hide          solver.py:13       2    2/2"
PLANTED = {
    "a receive that is posted before": """
if rank == 1:
    request = comm.Irecv(b, MPI.ANY_SOURCE, 5)  # posts
hide(1)
if rank == 0:
    comm.Send(a, 1, 5)  # sends
elif rank == 1:
    request.Wait()  # receives
""",
    "a message across": """
if rank == 0:
    comm.Send(a, 1, 5)  # sends
hide(1)
if rank == 1:
    comm.Recv(b, 0, 5)  # receives
""",
    "a collective call that is done in part": """
if rank == 0:
    comm.Bcast(a, 0)  # root
hide(1)
if rank:
    comm.Bcast(a, 0)  # others
""",
    "a message that Mprobe has taken": """
if rank == 0:
    comm.Send(a, 1, 5)  # sends
elif rank == 1:
    message = comm.Mprobe(0, 5)  # probes
hide(1)
if rank == 1:
    message.Recv(b)  # receives
""",
    "a persistent request that is started": """
if rank == 0:
    request = comm.Send_init(a, 1, 5)
    request.Start()  # sends
elif rank == 1:
    request = comm.Recv_init(b, 0, 5)
    request.Start()  # posts
hide(1)
if rank < 2:
    request.Wait()  # receives
    request.Free()
""",
    "a window between fences": """
window = MPI.Win.Allocate(24, comm=comm)
window.Fence()
if rank == 0:
    window.Put(a, 1)  # puts
hide(1)
window.Fence()  # closes
window.Free()
""",
    "a collective call that is not waited for": """
request = comm.Ibarrier()  # begins
hide(1)
request.Wait()  # ends
""",
}
SAID = {
    "a receive that is posted before": "a message blocks 1 of 2 visits: rank 0 → 1, tag 5, MPI_COMM_WORLD; sent "
    "{sends}, receive posted {posts}, received {receives}, 1 visit later",
    "a message across": "a message blocks 1 of 2 visits: rank 0 → 1, tag 5, MPI_COMM_WORLD; sent {sends}, received "
    "{receives}, 1 visit later",
    "a collective call that is done in part": "collective call blocks 1 of 2 visits: Bcast at {root} on rank 0, Bcast "
    "at {others} on ranks 1, 2",
    "a message that Mprobe has taken": "a message blocks 1 of 2 visits: rank 0 → 1, tag 5, MPI_COMM_WORLD; sent "
    "{sends}, receive posted {probes}, received {receives}, 1 visit later",
    "a persistent request that is started": "a message blocks 1 of 2 visits: rank 0 → 1, tag 5, MPI_COMM_WORLD; sent "
    "{sends}, receive posted {posts}, received {receives}, 1 visit later",
    "a window between fences": "call blocks 1 of 2 visits: Put at {puts} on rank 0",
    "a collective call that is not waited for": "collective call blocks 1 of 2 visits: Ibarrier at {begins} on ranks "
    "0, 1, 2",
}
CLEAN = {
    "what was cancelled": """
if rank == 1:
    request = comm.Irecv(b, 0, 5)
    request.Cancel()
    request.Wait()
hide(1)
""",
    "a request that was freed after it was complete": """
if rank == 0:
    comm.Send(a, 1, 5)
elif rank == 1:
    request = comm.Irecv(b, 0, 5)
    request.Wait()
    request.Free() if request != MPI.REQUEST_NULL else None
hide(1)
""",
    "a message to nobody, and one to itself": """
comm.Send(a, MPI.PROC_NULL)
comm.Recv(b, MPI.PROC_NULL)
comm.Sendrecv(a, rank, recvbuf=b, source=rank)
hide(1)
""",
    "ranks that are a communicator of their own": """
half = comm.Split(rank % 2)
half.allreduce(rank)
hide(1)
half.bcast(rank)
half.Free()
""",
}


def judged(work: Path, program: str, ranks: int = 3, *words: str, library: str = "mpich") -> tuple[int, str]:
    """Exit code and text of `safepoint places` on a run of this program."""
    (work / ".safepoint").write_text("u-{rank}.dat\n")
    (work / "solver.py").write_text(program)
    done = run(ranks, "solver.py", library=library, trace=work / "run.trace", cwd=work)
    assert done.returncode == 0, done.stderr
    found = places(work, "run.trace", *words)
    return found.returncode, found.stdout + found.stderr


def places(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "places", *words]
    environment = {**os.environ, "COLUMNS": "400"}
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=60)


def lines(program: str) -> dict[str, str]:
    """The lines that have a comment, by it."""
    numbered = enumerate(program.splitlines(), 1)
    return {text.split("# ")[1]: f"solver.py:{number}" for number, text in numbered if "# " in text}


@libraries
@pytest.mark.parametrize("what", PLANTED)
def test_what_is_under_way_at_a_hide_is_named_with_its_lines(tmp_path: Path, what: str, library: str) -> None:
    if library == "openmpi" and not ALL and what != "a receive that is posted before":
        pytest.skip("all of them with SAFEPOINT_CRASH=all")
    program = BEGIN + PLANTED[what] + ENDS
    status, text = judged(tmp_path, program, library=library)
    assert status == 1 and SAID[what].format(**lines(program)) in text, text
    assert f'without it "hide {lines(program)["hide"]}" is legal at 2 of 2 visits' in text, text


@pytest.mark.parametrize("what", CLEAN)
def test_a_hide_that_nothing_crosses_is_legal(tmp_path: Path, what: str) -> None:
    status, text = judged(tmp_path, BEGIN + CLEAN[what] + ENDS)
    assert status == 0 and "2/2" in text and "block" not in text, text


COUNTEREXAMPLE = """
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)  # any
    comm.Recv(b, 1, 5)
elif rank == 1:
    time.sleep(0.3)
    comm.Send(a, 0, 5)  # one
elif rank == 2:
    comm.Send(a, 0, 5)  # two
hide(1)
if rank == 0:
    comm.Recv(b, 3, 6)
    comm.Recv(b, MPI.ANY_SOURCE, 5)
elif rank == 1:
    comm.Send(a, 0, 5)
elif rank == 3:
    comm.Send(a, 0, 6)
"""


def test_a_place_that_another_order_of_messages_would_not_come_to_is_of_this_run_only(tmp_path: Path) -> None:
    """All actions beside the place are certain: the rule of 2006 finds nothing. With rank 1's message first rank 0
    would wait for a second one of it, which is sent after the place."""
    program = BEGIN + COUNTEREXAMPLE + ENDS
    status, text = judged(tmp_path, program, 4)
    at = lines(program)
    assert status == 0 and "legal in this run only" in text, text
    assert (
        f"the receive from any source at {at['any']} of rank 0 took that of rank 2 with tag 5, sent at {at['two']}; it "
        f"could have taken that of rank 1 with tag 5, sent at {at['one']}" in text
    ), text


CHANCE = {  # of each another order of messages would not come to the same
    "a barrier that is only made": """
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)
    request = comm.Barrier_init()
    comm.Recv(b, 2, 5)
elif rank == 1:
    comm.Send(a, 0, 5)
    request = comm.Barrier_init()
else:
    request = comm.Barrier_init()
    time.sleep(0.3)
    comm.Send(a, 0, 5)
hide(1)
request.Free()
""",
    "a sum of nothing": """
nothing = np.zeros(0)
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)
    comm.Allreduce(nothing, nothing.copy())
    comm.Recv(b, 2, 5)
elif rank == 1:
    comm.Send(a, 0, 5)
    comm.Allreduce(nothing, nothing.copy())
else:
    time.sleep(0.3)
    comm.Allreduce(nothing, nothing.copy())
    comm.Send(a, 0, 5)
hide(1)
""",
    "a receive that was cancelled": """
if rank == 0:
    request = comm.Irecv(b, 1, 5)
    comm.Recv(a, 2, 7)
    request.Cancel()
    request.Wait()
    comm.Recv(b, 1, 5)
elif rank == 1:
    time.sleep(0.3)
    comm.Send(a, 0, 5)
else:
    comm.Send(a, 0, 7)
hide(1)
""",
}


@pytest.mark.parametrize("what", CHANCE)
def test_what_another_order_would_not_come_to_is_of_this_run_only(tmp_path: Path, what: str) -> None:
    status, text = judged(tmp_path, BEGIN + CHANCE[what] + ENDS)
    assert status == 0 and "legal in this run only" in text, text


def test_each_line_is_judged_by_what_chance_has_done_up_to_its_own_visits(tmp_path: Path) -> None:
    """A hide before all chance is legal in every run, whatever comes later."""
    race = "for turn in range(3):\n    comm.Barrier()\n    if rank:\n        comm.Send(a, 0, 5)\n    else:\n"
    race += "        comm.Recv(b, MPI.ANY_SOURCE, 5)\n        comm.Recv(b, 2 if time.sleep(0.2) else 2, 5)\n"
    race = race.replace("    if rank:\n", "    if rank == 2:\n        time.sleep(0.1)\n    if rank:\n")
    status, text = judged(tmp_path, BEGIN + race + "comm.Barrier()\n" + ENDS)
    rows = {
        row.split()[0] + " " + row.split()[1]: row for row in text.splitlines() if "legal" in row and "solver" in row
    }
    assert status == 0 and "legal in every run" in rows[f"hide {lines(BEGIN)['hide']}"], text
    assert any("legal in this run only" in row for row in rows.values()), text


NOT_MATCHED = """
def there():
    safepoint.mark()
window, group = MPI.Win.Allocate(24, comm=comm), comm.Get_group()
if rank == 0:
    window.Start(group.Incl([1]))
    window.Put(a, 1)
    window.Complete()
there()
if rank == 1:
    window.Post(group.Incl([0]))
    window.Wait()
window.Free()
"""
HELPERS = """
requests = []
def begin():
    requests.extend([comm.Irecv(b, (rank + 1) % comm.size, 5), comm.Isend(a, (rank - 1) % comm.size, 5)])
def end():
    MPI.Request.Waitall(requests)
    requests.clear()
def main():
    begin()
    for step in range(5):
        end()
        comm.Allreduce(np.ones(1), np.ones(1))
        comm.Barrier()
        begin()
    end()
main()
"""
HALF = """
half = comm.Split(rank % 2)
if rank % 2 == 0:
    safepoint.close()
    safepoint.init(comm=half)
    safepoint.restore()
    hide(1)
    safepoint.close()
"""


def test_what_cannot_be_told_is_not_called_legal(tmp_path: Path) -> None:
    status, text = judged(tmp_path, BEGIN + NOT_MATCHED + ENDS)
    assert "who starts and who posts is not matched" in text and "0/1" in text[text.index("mark ") :][:80], text
    shutil.rmtree(tmp_path / "run.trace")
    shutil.rmtree(tmp_path / ".safepoint.d")
    status, text = judged(tmp_path, BEGIN + HELPERS + ENDS)
    assert "top of loop" not in text, text  # whether `end` is before it or after it a trace does not say
    shutil.rmtree(tmp_path / "run.trace")
    shutil.rmtree(tmp_path / ".safepoint.d")
    status, text = judged(tmp_path, BEGIN.replace("hide(0)\n", "") + HALF)
    assert status == 2 and "rank 1 calls no hide: it cannot be told whether others may" in text, text


KILLED = """
for step in range(1, 5):
    hide(step)
    comm.Barrier()
    if step == 3 and rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), 9)
    comm.Sendrecv(a, (rank + 1) % comm.size, recvbuf=b, source=(rank - 1) % comm.size)
"""


def test_a_run_that_was_killed_is_judged_by_the_visits_that_all_ranks_have_made(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    (tmp_path / "solver.py").write_text("import os\n" + BEGIN + KILLED + ENDS)
    run(3, "solver.py", trace=tmp_path / "run.trace", cwd=tmp_path)
    done = places(tmp_path, "run.trace")
    assert done.returncode == 0 and "rank 1 was killed, or still runs" in done.stdout, done.stdout
    assert "after Barrier" in done.stdout and "3/" in done.stdout, done.stdout


LOOP = """
for step in range(1, 6):
    safepoint.mark()  # mark
    if step > 1 and rank:
        comm.Recv(b, rank - 1, 9)  # receives
    if rank < comm.size - 1:
        comm.Send(a, rank + 1, 9)  # sends
if rank:
    comm.Recv(b, rank - 1, 9)
"""


def test_a_line_that_is_marked_is_judged_as_if_it_were_a_hide(tmp_path: Path) -> None:
    program = BEGIN + LOOP + ENDS
    status, text = judged(tmp_path, program)
    assert "mark" in text and f"rank 0 → 1, tag 9, MPI_COMM_WORLD; sent {lines(program)['sends']}" in text, text
    found = json.loads(places(tmp_path, "run.trace", "--json", "--at", lines(program)["mark"]).stdout)
    assert [(line["what"], line["visits"], line["legal"]) for line in found["lines"]] == [("mark", 5, 1)]
    assert status == 0 and found["good"] is False  # the one hide is legal; the mark is what was asked about


def test_the_example_is_not_legal_and_is_once_the_receive_is_moved(tmp_path: Path) -> None:
    """The run that docs/places.md shows, as a stranger types it."""
    example = HERE / "examples/pipeline_mpi.py"
    text = example.read_text().splitlines()
    number = {word: 1 + next(i for i, line in enumerate(text) if word in line) for word in ("comm.Send", "comm.Recv")}
    safepoint = [sys.executable, "-m", "safepoint"]
    for which, status in ("late", 1), ("early", 0):
        command = [
            *safepoint,
            "trace",
            "-o",
            f"{which}.trace",
            "--",
            mpiexec(),
            "-n",
            "4",
            sys.executable,
            str(example),
        ]
        done = subprocess.run([*command, "--receive", which], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        found = places(tmp_path, f"{which}.trace")
        assert found.returncode == status, found.stdout
        blocks = f"sent pipeline_mpi.py:{number['comm.Send']}, received pipeline_mpi.py:{number['comm.Recv']}, 1 visit"
        assert (blocks in found.stdout) == (which == "late") and ("20/20" in found.stdout) == (which == "early")
        assert "https:" not in (page := (tmp_path / f"{which}.trace/places.html").read_text()) and "<svg" in page
    other = places(tmp_path, "early.trace", "--against", "late.trace", "--cut", "0")
    assert "differs from late.trace: rank 1, after 2 actions alike: Recv at" in other.stdout
    assert "the legal place nearest to 0 s" in other.stdout
    same = places(tmp_path, "early.trace", "--against", "early.trace", "--picture", "early.svg", "--html", "p.html")
    assert "the calls are those of early.trace, on every rank" in same.stdout
    assert (tmp_path / "early.svg").read_text().startswith("<svg") and (tmp_path / "p.html").exists()


BRANCHES = """
for step in range(1, 4):
    if rank % 2 == step % 2:
        hide(step)
    else:
        hide(step)  # elsewhere
"""


def test_a_hide_is_one_visit_of_all_ranks_wherever_each_of_them_calls_it(tmp_path: Path) -> None:
    program = BEGIN.replace("def hide(step):", "def hide(step): pass\ndef written(step):").replace(
        "    safepoint.hide(step)  # hide\nhide(0)\n", ""
    )
    program += BRANCHES.replace("hide(step)", "(written(step), safepoint.hide(step))") + ENDS
    status, text = judged(tmp_path, program)
    assert status == 0 and "counts differ" not in text and text.count("\nhide ") == 2, text


REQUESTS = """
if rank == 0:
    requests = [comm.Send_init(a, 1, tag) for tag in (1, 2)]
    MPI.Prequest.Startall(requests)
    MPI.Request.Waitall(requests)
elif rank == 1:
    requests = [comm.Recv_init(b.copy(), 0, tag) for tag in (1, 2)]
    MPI.Prequest.Startall(requests)  # starts
    requests[0].Wait()  # before
hide(1)
if rank == 1:
    requests[1].Wait()  # after
"""


def test_of_several_requests_that_one_call_has_started_the_open_one_is_named(tmp_path: Path) -> None:
    program = BEGIN + REQUESTS + ENDS
    status, text = judged(tmp_path, program)
    at = lines(program)
    assert status == 1 and f"receive posted {at['starts']}, received {at['after']}, 1 visit later" in text, text
    assert "tag 2" in text and at["before"] not in text.split("block", 1)[1].split("\n")[0], text


def test_what_is_said_is_said_though_the_page_cannot_be_written(tmp_path: Path) -> None:
    status, text = judged(tmp_path, BEGIN + ENDS)
    assert status == 0, text
    done = places(tmp_path, "run.trace", "--html", "nowhere/p.html")
    assert done.returncode == 17 and "legal in every run" in done.stdout and "nowhere/p.html" in done.stderr
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "run.trace/places.html").unlink()
    (tmp_path / "run.trace/places.html").symlink_to(tmp_path / "mine.txt")
    assert places(tmp_path, "run.trace").returncode == 0 and (tmp_path / "mine.txt").read_text() == "mine"
    done = places(tmp_path, "run.trace", "--html", "nowhere/p.html", "--json")
    assert done.returncode == 17 and json.loads(done.stdout)["page"] is None
    command = [sys.executable, "-m", "safepoint", "places", "run.trace"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment).returncode == 0


def test_what_cannot_be_judged_is_one_clear_line_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.trace").mkdir()
    done = places(tmp_path, "empty.trace")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "empty.trace" in done.stderr, done.stderr
    assert list((tmp_path / "empty.trace").iterdir()) == []
    status, text = judged(tmp_path, BEGIN + ENDS)
    assert status == 0, text
    for words, said in (
        (("--at", "solver.py:999"), "--at solver.py:999: no call of the trace is at this line"),
        (("--interval", "often"), "--interval often: "),
        (("--from", "2", "--to", "1"), "--from 2 --to 1: there is nothing between"),
        (("--cut", "nan"), "takes seconds since the trace began"),
    ):
        done = places(tmp_path, "run.trace", *words)
        assert done.returncode not in (0, 1) and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    path = tmp_path / "run.trace/rank-00001.calls"
    os.truncate(path, 100)
    done = places(tmp_path, "run.trace")
    assert done.returncode == 2 and "rank 1: 0 of its 1 notes are here: it is judged up to there" in done.stdout
    path.write_bytes(b"something else")
    done = places(tmp_path, "run.trace")
    assert done.returncode == 2 and "rank-00001.calls: it does not begin as notes do" in done.stderr, done.stderr
