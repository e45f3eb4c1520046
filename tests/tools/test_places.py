"""`safepoint places`, on programs that really ran: what was planted is named with its lines, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.commands import cli
from testbed.paths import EXAMPLES
from testbed.sweep import some_of
from testbed.traced import libraries, run

BEGIN = """
import os, sys, time
import numpy as np
from mpi4py import MPI
import safepoint
comm, a, b = MPI.COMM_WORLD, np.zeros(3), np.zeros(3)
rank = comm.rank
safepoint.init(comm=comm, inflight="off")
safepoint.restore()
def write(step):
    open(f"u-{rank}.dat", "w").write(str(step))
def there(name):  # without MPI, so that no order follows from it in the trace
    open(name, "w").close()
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.001)
"""
HIDE = """
def hide(step):
    write(step)
    safepoint.hide(step)  # hide
hide(0)
"""
ENDS = "safepoint.finish(2)\n"
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
    "one of several requests that one call has started": """
if rank == 0:
    requests = [comm.Send_init(a, 1, tag) for tag in (1, 2)]
    MPI.Prequest.Startall(requests)  # sends
    MPI.Request.Waitall(requests)
elif rank == 1:
    requests = [comm.Recv_init(b.copy(), 0, tag) for tag in (1, 2)]
    MPI.Prequest.Startall(requests)  # starts
    requests[0].Wait()
hide(1)
if rank == 1:
    requests[1].Wait()  # after
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
    "one of several requests that one call has started": "a message blocks 1 of 2 visits: rank 0 → 1, tag 2, "
    "MPI_COMM_WORLD; sent {sends}, receive posted {starts}, received {after}, 1 visit later",
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


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")


def places(*words: str) -> tuple[int, str]:
    """Exit code and text of `safepoint places`."""
    found = cli("places", *words)
    return found.exit_code, found.stdout + found.stderr


def traced(program: str, ranks: int = 3, *, library: str = "mpich", status: int | None = 0) -> None:
    """Run it, traced, in the working directory."""
    Path(".safepoint").write_text("u-{rank}.dat\n")
    Path("solver.py").write_text(program)
    done = run(ranks, "solver.py", library=library, trace=Path("run.trace"))
    assert status is None or done.returncode == status, done.stderr


def judged(program: str, ranks: int = 3) -> tuple[int, str]:
    traced(program, ranks)
    return places("run.trace")


def lines(program: str, before: str = "") -> dict[str, str]:
    """The lines that have a comment, by it; of a part of a program, with what is before it."""
    numbered = enumerate(program.splitlines(), 1 + before.count("\n"))
    return {text.split("# ")[1]: f"solver.py:{number}" for number, text in numbered if "# " in text}


@libraries
def test_what_is_under_way_at_a_hide_is_named_with_its_lines_and_where_nothing_is_it_is_legal(library: str) -> None:
    """One program of all of them, one after the other, each with its own hide. What cannot be told, at its end, is not
    called legal: whether `end` is before the top of the loop or after it a trace does not say."""
    program, at = BEGIN, {}
    for what, part in {**PLANTED, **CLEAN}.items():
        at[what] = lines(HIDE + part, program)
        program += HIDE + part
    traced(program + HELPERS + NOT_MATCHED + ENDS, library=library)
    for what in PLANTED:
        status, text = places("run.trace", "--at", at[what]["hide"])
        assert status == 1 and SAID[what].format(**at[what]) in text, (what, text)
        assert f'without it "hide {at[what]["hide"]}" is legal at 2 of 2 visits' in text, (what, text)
    for what in CLEAN:
        status, text = places("run.trace", "--at", at[what]["hide"])
        assert status == 0 and "2/2" in text and "block" not in text, (what, text)
    status, text = places("run.trace")
    assert status == 1 and "who starts and who posts is not matched" in text, text
    assert "0/1" in text[text.index("mark ") :][:80] and "top of loop" not in text, text


CHANCE = {  # of each another order of messages would not come to the same, and what is said of some
    "a place beside which all is certain": (
        """
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)  # any
    there("got")
    comm.Recv(b, 1, 5)
elif rank == 1:
    wait("got")
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
""",
        "the receive from any source at {any} of rank 0 took that of rank 2 with tag 5, sent at {two}; it could have "
        "taken that of rank 1 with tag 5, sent at {one}",
    ),
    "a barrier that is only made": (
        """
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)
    there("got")
    request = comm.Barrier_init()
    comm.Recv(b, 2, 5)
elif rank == 1:
    comm.Send(a, 0, 5)
    request = comm.Barrier_init()
else:
    request = comm.Barrier_init()
    wait("got")
    comm.Send(a, 0, 5) if rank == 2 else None
hide(1)
request.Free()
""",
        "",
    ),
    "a sum of nothing": (
        """
nothing = np.zeros(0)
if rank == 0:
    comm.Recv(b, MPI.ANY_SOURCE, 5)
    there("got")
    comm.Allreduce(nothing, nothing.copy())
    comm.Recv(b, 2, 5)
elif rank == 1:
    comm.Send(a, 0, 5)
    comm.Allreduce(nothing, nothing.copy())
else:
    wait("got")
    comm.Allreduce(nothing, nothing.copy())
    comm.Send(a, 0, 5) if rank == 2 else None
hide(1)
""",
        "",
    ),
    "a receive that was cancelled": (
        """
if rank == 0:
    request = comm.Irecv(b, 1, 5)
    comm.Recv(a, 2, 7)
    request.Cancel()
    request.Wait()
    there("cancelled")
    comm.Recv(b, 1, 5)
elif rank == 1:
    wait("cancelled")
    comm.Send(a, 0, 5)
elif rank == 2:
    comm.Send(a, 0, 7)
hide(1)
""",
        "",
    ),
}


@pytest.mark.parametrize("what", some_of([*CHANCE], 1))
def test_what_another_order_would_not_come_to_is_of_this_run_only(what: str) -> None:
    """Of the first all actions beside the place are certain: the rule of 2006 finds nothing. If rank 1's message came
    first, rank 0 would wait for a second one of it, which is sent after the place."""
    part, said = CHANCE[what]
    status, text = judged(BEGIN + HIDE + part + ENDS, 4 if "rank == 3" in part else 3)
    assert status == 0 and "legal in this run only" in text, text
    assert said.format(**lines(part, BEGIN + HIDE)) in text, text


RACE = """
for turn in range(3):
    comm.Barrier()
    if rank == 2:
        wait(f"got-{turn}")
    if rank:
        comm.Send(a, 0, 5)
    else:
        comm.Recv(b, MPI.ANY_SOURCE, 5)
        there(f"got-{turn}")
        comm.Recv(b, 2, 5)
comm.Barrier()
"""


@pytest.mark.proof
def test_each_line_is_judged_by_what_chance_has_done_up_to_its_own_visits() -> None:
    """A hide before all chance is legal in every run, whatever comes later."""
    status, text = judged(BEGIN + HIDE + RACE + ENDS)
    rows = {" ".join(row.split()[:2]): row for row in text.splitlines() if "legal" in row and "solver" in row}
    assert status == 0 and "legal in every run" in rows[f"hide {lines(HIDE, BEGIN)['hide']}"], text
    assert any("legal in this run only" in row for row in rows.values()), text


HALF = """
half = comm.Split(rank % 2)
if rank % 2 == 0:
    safepoint.close()
    safepoint.init(comm=half)
    safepoint.restore()
    write(1)
    safepoint.hide(1)
    safepoint.close()
"""
KILLED = """
for step in range(1, 5):
    write(step)
    safepoint.hide(step)
    comm.Barrier()
    there(f"step-{step}-{rank}")
    if step == 3 and rank == 1:
        wait("step-3-0"), wait("step-3-2")
        os.kill(os.getpid(), 9)
    comm.Sendrecv(a, (rank + 1) % comm.size, recvbuf=b, source=(rank - 1) % comm.size)
"""


def test_where_a_rank_calls_no_hide_it_cannot_be_told() -> None:
    status, text = judged(BEGIN + HALF, 2)
    assert status == 2 and "rank 1 calls no hide: it cannot be told whether others may" in text, text


@pytest.mark.proof
def test_a_run_that_was_killed_is_judged_by_the_visits_that_all_ranks_have_made() -> None:
    traced(BEGIN + KILLED + ENDS, status=None)
    status, text = places("run.trace")
    assert status == 0 and "rank 1 was killed, or still runs" in text, text
    assert "after Barrier" in text and "3/" in text, text


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
BRANCHES = """
for step in range(1, 4):
    write(step)
    if rank % 2 == step % 2:
        safepoint.hide(step)
    else:
        safepoint.hide(step)  # elsewhere
"""


def test_a_mark_is_judged_as_a_hide_which_is_one_visit_of_all_ranks_wherever_each_of_them_calls_it() -> None:
    status, text = judged(BEGIN + LOOP + BRANCHES + ENDS)
    at = lines(LOOP, BEGIN)
    hides = [row for row in text.splitlines() if row.startswith("hide ")]
    assert len(hides) == 2 and not any("counts differ" in row for row in hides), text
    assert "mark" in text and f"rank 0 → 1, tag 9, MPI_COMM_WORLD; sent {at['sends']}" in text, text
    found = json.loads(cli("places", "run.trace", "--json", "--at", at["mark"]).stdout)
    assert [(line["what"], line["visits"], line["legal"]) for line in found["lines"]] == [("mark", 5, 1)]
    assert status == 0 and found["good"] is False  # the hides are legal; the mark is what was asked about
    assert "the calls are those of run.trace, on every rank" in places("run.trace", "--against", "run.trace")[1]


@pytest.mark.proof
def test_the_example_is_not_legal_and_is_once_the_receive_is_moved() -> None:
    """The run that docs/places.md shows."""
    example = EXAMPLES / "pipeline_mpi.py"
    text = example.read_text().splitlines()
    number = {word: 1 + next(i for i, line in enumerate(text) if word in line) for word in ("comm.Send", "comm.Recv")}
    for which, status in ("late", 1), ("early", 0):
        done = run(4, str(example), "--receive", which, trace=Path(f"{which}.trace"))
        assert done.returncode == 0, done.stderr
        found, said = places(f"{which}.trace")
        assert found == status, said
        blocks = f"sent pipeline_mpi.py:{number['comm.Send']}, received pipeline_mpi.py:{number['comm.Recv']}, 1 visit"
        assert (blocks in said) == (which == "late") and ("20/20" in said) == (which == "early")
        assert "https:" not in (page := Path(f"{which}.trace/places.html").read_text()) and "<svg" in page
    other = places("early.trace", "--against", "late.trace", "--cut", "0")[1]
    assert "differs from late.trace: rank 1, after 2 actions alike: Recv at" in other
    assert "the legal place nearest to 0 s" in other
    places("early.trace", "--picture", "early.svg", "--html", "p.html")
    assert Path("early.svg").read_text().startswith("<svg") and Path("p.html").exists()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one legal hide."""
    work = tmp_path_factory.mktemp("plain")
    (work / ".safepoint").write_text("u-{rank}.dat\n")
    (work / "solver.py").write_text(BEGIN + HIDE + ENDS)
    assert run(2, "solver.py", trace=work / "run.trace", cwd=work).returncode == 0
    return work / "run.trace"


@pytest.mark.proof
def test_what_is_said_is_said_though_the_page_cannot_be_written(plain: Path) -> None:
    shutil.copytree(plain, "run.trace")
    status, text = places("run.trace", "--html", "nowhere/p.html")
    assert status == 17 and "legal in every run" in text and "nowhere/p.html" in text
    Path("mine.txt").write_text("mine")
    Path("run.trace/places.html").symlink_to(Path("mine.txt").resolve())
    assert places("run.trace")[0] == 0 and Path("mine.txt").read_text() == "mine"
    done = cli("places", "run.trace", "--html", "nowhere/p.html", "--json")
    assert done.exit_code == 17 and json.loads(done.stdout)["page"] is None
    command = [sys.executable, "-m", "safepoint", "places", "run.trace"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert subprocess.run(command, capture_output=True, env=environment).returncode == 0


def test_what_cannot_be_judged_is_one_clear_line_and_changes_nothing(plain: Path) -> None:
    Path("empty.trace").mkdir()
    done = cli("places", "empty.trace")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "empty.trace" in done.stderr, done.stderr
    assert list(Path("empty.trace").iterdir()) == []
    shutil.copytree(plain, "run.trace")
    for words, said in (
        (("--at", "solver.py:999"), "--at solver.py:999: no call of the trace is at this line"),
        (("--interval", "often"), "--interval often: "),
        (("--from", "2", "--to", "1"), "--from 2 --to 1: there is nothing between"),
        (("--cut", "nan"), "takes seconds since the trace began"),
    ):
        status, text = places("run.trace", *words)
        assert status not in (0, 1) and said in text, text
    path = Path("run.trace/rank-00001.calls")
    os.truncate(path, 100)
    status, text = places("run.trace")
    assert status == 2 and "rank 1: 0 of its 1 notes are here: it is judged up to there" in text, text
    path.write_bytes(b"something else")
    status, text = places("run.trace")
    assert status == 2 and "rank-00001.calls: it does not begin as notes do" in text, text
