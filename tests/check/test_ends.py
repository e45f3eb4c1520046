"""How ranks end: a hang is told with who waits for whom, and what is none is not called so."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed import traced
from testbed.foreign import Mpi, each_mpi, needs
from testbed.foreign import environment as of_system
from testbed.foreign import program as compiled
from testbed.noted import Noted

from safepoint.check import processes, stacks
from safepoint.check.ends import Ends, Event
from safepoint.matching.symbols import Site
from safepoint.run import proc
from safepoint.trace import launch, record
from safepoint.trace.record import ENTERED

HANG_S = 2.0
BEGIN = "import os, signal, sys, time\nfrom mpi4py import MPI\ncomm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank\n"
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
pytestmark = linux


class Run:
    """A program under `safepoint trace`, followed: of Python, or of C with one of these libraries."""

    def __init__(self, where: Path, ranks: int, program: str, mpi: Mpi | None = None) -> None:
        self.trace = where / "t"
        if mpi is None:
            (where / "solver.py").write_text(BEGIN + program)
            command, environment = traced.command(ranks, "solver.py"), traced.environment("mpich", self.trace)
        else:
            self.trace.mkdir()
            command = mpi.started(ranks, compiled("hangs.c", mpi, "-g"), program)
            environment = of_system() | launch.environment(self.trace, command, "c", mpi.cc, 1 << 32)
        self.process = subprocess.Popen(
            command, env=environment, cwd=where, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.ends, self.events = Ends(self.trace, HANG_S), list[Event]()

    def follow(self, until: Callable[[], bool] = lambda: False, most_s: float = 60) -> list[Event]:
        end = time.monotonic() + most_s
        while self.process.poll() is None and not until():
            assert time.monotonic() < end, self.events
            self.ends.poll()
            self.events += self.ends.look()
            self.ends.wait(0.05)
        if self.process.poll() is not None:
            self.ends.poll()
            self.events += [*self.ends.look(), *self.ends.finish(self.process.returncode)]
        return self.events

    def until(self, kind: str) -> Event:
        self.follow(lambda: any(event.kind == kind for event in self.events))
        found = [event for event in self.events if event.kind == kind]
        assert found, self.events
        return found[0]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs = list[Run]()

    def start(ranks: int, program: str, mpi: Mpi | None = None) -> Run:
        runs.append(Run(tmp_path, ranks, program, mpi))
        return runs[-1]

    yield start
    for one in runs:
        for pid in one.ends.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        one.ends.end(one.process)
        one.ends.close()


def test_a_barrier_that_one_rank_misses_is_a_hang_and_a_deadlock(run: Callable[..., Run]) -> None:
    program = run(4, "if rank == 2:\n    comm.recv(source=3, tag=5)\ncomm.Barrier()\n")
    begun, hang = time.monotonic(), program.until("hang").hang
    assert hang is not None and hang.deadlock and hang.ranks == (0, 1, 2, 3)
    assert [line.split("  since")[0].rstrip() for line in hang.text.splitlines()[1:]] == [
        "  ranks 0 1 3  Barrier                solver.py:6",
        "  rank  2      Recv(source=3, tag=5)  solver.py:5",
        "  rank 2 waits for rank 3, rank 3 for rank 2: deadlock. Nobody has sent (3 → 2, tag 5). "
        "Rank 2 has not come to Barrier",
        "  ranks 0 1 wait for one of these ranks",
    ]
    assert time.monotonic() - begun < HANG_S + 8 and program.kinds() == ["hang"]


def test_a_cycle_of_three_is_a_deadlock(run: Callable[..., Run]) -> None:
    program = run(3, "comm.recv(source=(rank + 1) % 3)\n")
    assert "rank 0 waits for rank 1, rank 1 for rank 2, rank 2 for rank 0: deadlock" in program.until("hang").text


def test_a_receive_of_what_nobody_sends_is_told_with_the_rank_that_has_ended(run: Callable[..., Run]) -> None:
    program = run(2, "if rank:\n    comm.recv(source=0, tag=9)\n")
    text = program.until("hang").text
    assert "rank  0  has ended" in text and "rank 1 waits for rank 0, which has ended" in text


def test_a_program_that_hangs_is_ended_with_all_its_processes(run: Callable[..., Run]) -> None:
    program = run(3, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ncomm.recv(source=(rank + 1) % 3)\n")
    program.until("hang")
    pids = program.ends.pids()
    assert len(pids) == 3
    program.ends.end(program.process, 1.0)
    end = time.monotonic() + 10
    while any(proc.is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(proc.is_alive(pid) for pid in pids) and program.process.poll() is not None


@needs("cc", "mpicc.mpich")
@each_mpi
def test_ranks_of_c_that_wait_for_each_other_are_a_deadlock(run: Callable[..., Run], mpi: Mpi) -> None:
    """Of a `Wait` nobody has noted for which request: it is one of those that are open."""
    program = run(3, "wait", mpi)
    hang = program.until("hang").hang
    assert hang is not None and hang.stuck == (0, 1, 2)
    assert [line.split("  since")[0].rstrip() for line in hang.text.splitlines()[1:]] == [
        "  rank  0  Barrier                hangs.c:31",
        "  rank  1  Recv(source=2, tag=5)  hangs.c:10",
        "  rank  2  Wait                   hangs.c:29",
        "  rank 1 waits for rank 2, rank 2 for rank 1: deadlock. Nobody has sent (2 → 1, tag 5); what rank 2 has sent, "
        "and nobody has received, has tag 8. Nobody has sent (1 → 2, tag 9)",
        "  rank 0 waits for one of these ranks",
    ]


@needs("cc", "mpicc.mpich")
@each_mpi
def test_a_rank_of_c_that_dies_is_told_first(run: Callable[..., Run], mpi: Mpi) -> None:
    for _ in range(6):  # on a busy machine all are gone before anybody looks, but not each time
        program = run(3, "abort", mpi)
        program.follow()
        if program.ends.deaths[0] == 1:
            break
        shutil.rmtree(program.trace)
    assert program.ends.deaths[0] == 1
    text = program.ends.death(1, program.process.returncode)  # the status of the process, or what the launcher says
    assert re.fullmatch(r"rank 1 died \((SIGABRT|a signal)\) after Barrier hangs.c:19", text)


def test_a_long_computation_is_no_hang(run: Callable[..., Run]) -> None:
    program = run(2, f"comm.Barrier()\nif rank:\n    time.sleep({2.5 * HANG_S})\ncomm.Barrier()\n")
    program.follow()
    assert program.process.returncode == 0 and sorted(program.kinds()) == ["computes", "ended", "ended"]
    (computes,) = (event for event in program.events if event.kind == "computes")
    assert computes.ranks == (1,) and computes.text.startswith("rank 1 computes since 2 s, after solver.py:4")


def test_a_program_of_which_all_ranks_compute_is_left_alone(run: Callable[..., Run]) -> None:
    program = run(2, f"comm.Barrier()\ntime.sleep({1.5 * HANG_S})\n")
    program.follow()
    assert sorted(program.kinds()) == ["ended", "ended"]


def test_a_rank_that_was_stopped_does_not_hang_and_the_others_wait_for_it(run: Callable[..., Run]) -> None:
    program = run(2, "comm.Barrier()\nif rank:\n    os.kill(os.getpid(), signal.SIGSTOP)\ncomm.Barrier()\n")
    stopped = program.until("stopped")
    assert stopped.ranks == (1,) and stopped.text == "rank 1 is stopped (SIGSTOP, or a debugger), solver.py:4"
    os.kill(program.ends.followed[1].pid, signal.SIGCONT)
    program.follow()
    assert program.process.returncode == 0 and "hang" not in program.kinds()


def test_the_rank_that_was_killed_is_told_first_and_where_it_was(run: Callable[..., Run]) -> None:
    """The launcher takes note of it and kills the others at once: on a busy machine all are gone before anybody looks,
    but not each time. By which signal is known if we look before the launcher has."""
    for _ in range(6):
        program = one_killed(run)
        assert program.events[0].kind == "died" and "hang" not in program.kinds()
        said = program.ends.death(2, program.process.returncode)
        assert re.fullmatch(r"rank 2 died( \((SIGFPE or )?SIGKILL\))? in Recv\(source=3, tag=5\) solver.py:5", said)
        if program.ends.deaths[0] == 2:
            return
        shutil.rmtree(program.trace)
    raise AssertionError(program.events)


def one_killed(run: Callable[..., Run]) -> Run:
    program = run(4, "comm.Barrier()\ncomm.recv(source=(rank + 1) % 4, tag=5)\n")
    program.follow(lambda: len(program.ends.followed) == 4 and all(
        one.standing.came and any(one.standing.inside.values()) for one in program.ends.followed.values()
    ))  # fmt: skip
    os.kill(program.ends.followed[2].pid, signal.SIGKILL)
    program.follow()
    return program


def test_a_report_is_withdrawn_when_a_rank_goes_on(run: Callable[..., Run]) -> None:
    program = run(2, "comm.recv(source=1 - rank, tag=5)\n")
    program.until("hang")
    for one in program.ends.followed.values():  # a rank makes a step: as if its note had come late
        stack = one.standing.inside[0]
        path = record.names(program.trace, one.tail.rank).calls
        with path.open("r+b") as file:
            file.seek(record.HEADER + record.NOTE * stack[-1].number + record.NOTE - 1)
            file.write(bytes([record.RETURNED]))
    assert program.until("goes on").ranks == (0, 1)


def test_a_deadlock_of_some_is_told_while_the_others_go_on(run: Callable[..., Run]) -> None:
    program = run(3, "if rank < 2:\n    comm.recv(source=1 - rank, tag=5)\nwhile True:\n    time.sleep(0.1)\n"
                     "    MPI.COMM_SELF.Barrier()\n")  # fmt: skip
    event = program.until("deadlock")
    assert event.ranks == (0, 1) and "hang" not in program.kinds()
    assert event.text.startswith("rank 0 waits for rank 1, rank 1 for rank 0: deadlock")


def test_ranks_that_are_all_in_one_hide_store_and_do_not_hang(tmp_path: Path) -> None:
    for name, state in (("a", None), ("b", "hang")):
        trace = Noted(tmp_path / name, 2)
        trace[0].call("hide", 30, comm=0, size=1, state=ENTERED)
        if state is None:
            trace[1].call("hide", 30, comm=0, size=1, state=ENTERED)
        else:
            trace[1].call("Recv", 31, peer=0, tag=1, state=ENTERED)
        watched = Ends(trace.directory, 0.05)
        watched.poll()
        time.sleep(0.1)
        assert [event.kind for event in watched.look()] == ([state] if state else [])
        assert watched.look() == []  # told once
        watched.close()
        trace.close()


def test_a_rank_that_writes_a_file_for_long_does_not_hang(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2)
    trace[0].call("Barrier", 3, state=ENTERED)
    trace[1].call("File_write", 4, comm=0, state=ENTERED)
    watched = Ends(trace.directory, 0.05)
    watched.poll()
    time.sleep(0.1)
    assert [(event.kind, event.ranks) for event in watched.look()] == [("computes", (1,))]
    watched.close()
    trace.close()


WORKER = """import threading
def work():
    end = time.monotonic() + 7
    while time.monotonic() < end:
        pass
    comm.send(1, 1 - rank, 3)
helper = threading.Thread(target=work)
if {helped}:
    helper.start()
comm.recv(source=1 - rank, tag=3)
"""


@pytest.mark.parametrize("helped", [True, False])
def test_a_thread_that_computes_and_has_not_called_mpi_yet_makes_it_no_hang(
    run: Callable[..., Run], helped: bool
) -> None:
    program = run(2, WORKER.format(helped=helped))
    if not helped:
        program.until("hang")
        return
    program.follow()
    assert program.process.returncode == 0 and "hang" not in program.kinds(), program.events


def test_a_rank_of_which_another_thread_is_outside_may_still_do_something(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 2)
    trace[0].call("Barrier", 3, state=ENTERED)
    trace[1].call("Recv", 4, comm=2, peer=0, tag=1, thread=0, state=ENTERED)
    trace[1].call("Barrier", 5, comm=2, thread=1)
    watched = Ends(trace.directory, 0.05)
    watched.poll()
    time.sleep(0.1)
    assert [(event.kind, event.ranks) for event in watched.look()] == [("computes", (1,))]
    watched.close()
    trace.close()


LAUNCHER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(60)"]
for apart in (False, True):
    child = subprocess.Popen(wait, start_new_session=apart, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_launcher_that_does_not_end_is_killed_with_its_group_and_what_is_left() -> None:
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True,
                               start_new_session=True)  # fmt: skip
    assert process.stdout is not None
    in_group, apart = (int(process.stdout.readline()) for _ in range(2))
    process.stdout.close()
    assert processes.end(process, 0.2, lambda: [apart]) == -signal.SIGKILL
    end = time.monotonic() + 10
    while (proc.is_alive(in_group) or proc.is_alive(apart)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not proc.is_alive(in_group) and not proc.is_alive(apart)


def test_a_process_that_has_the_number_of_a_rank_later_is_not_taken_for_it(tmp_path: Path) -> None:
    """(3): it would be sent a signal."""
    trace = Noted(tmp_path / "t", 1, {0: {"boot": processes.boot(), "pid": os.getpid()}})
    watched = Ends(trace.directory, 60)
    watched.poll()
    assert watched.pids() == [os.getpid()]
    watched.followed[0].process.started -= 1
    assert watched.pids() == []
    other = Noted(tmp_path / "u", 1, {0: {"boot": "of another host", "pid": os.getpid()}})
    of_other = Ends(other.directory, 60)
    of_other.poll()
    assert of_other.pids() == [] and of_other.look() == []
    for one in (watched, of_other):
        one.close()


@pytest.mark.parametrize(
    "code, of_mpich, name",
    [(-9, False, "SIGKILL"), (137, False, "SIGKILL"), (139, True, "SIGSEGV"), (11, True, "SIGSEGV"), (9, False, ""),
     (9, True, "SIGFPE or SIGKILL"), (15, True, "a signal"),
     (1, True, ""), (0, True, ""), (255, False, ""), (128, False, "")],
)  # fmt: skip
def test_the_signal_is_known_by_the_code_of_the_launcher(code: int, of_mpich: bool, name: str) -> None:
    assert processes.signal_of(code, of_mpich) == name


def test_of_a_process_that_nobody_has_waited_for_the_status_is_known() -> None:
    for code, status in (("import os; os._exit(3)", 3 << 8), ("import os; os.abort()", signal.SIGABRT)):
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        found = processes.status_of(process.pid)
        assert found is not None and found & ~0x80 == status  # 0x80: it has left a core
        process.wait()
        assert processes.status_of(process.pid) is None
    assert processes.status_of(os.getpid()) is None


# Stacks.

PYTHON = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "<safepoint trace>", line 812 in Recv
  File "/w/halo.py", line 52 in exchange
  File "/w/solver.py", line 131 in main
  File "/w/solver.py", line 140 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "/v/lib/python3.11/site-packages/mpi4py/run.py", line 208 in main
"""


def test_of_a_stack_of_python_the_frames_of_the_program_are_left() -> None:
    found = stacks.frames(PYTHON)
    assert found == [Site("/w/halo.py", 52, "exchange"), Site("/w/solver.py", 131, "main"),
                     Site("/w/solver.py", 140, "<module>")]  # fmt: skip
    assert stacks.rendered(found, "/w") == "halo.py:52 < main solver.py:131 < solver.py:140"
    assert stacks.rendered(found * 2) == "halo.py:52 < main solver.py:131 < solver.py:140 < exchange halo.py:52 < …"
    assert stacks.frames("") == [] and stacks.rendered([]) == ""


def test_of_a_stack_of_c_the_frames_of_the_libraries_are_left_out() -> None:
    lines = ["/c/safepoint/trace-1.0-0a1b.so\t0x10\t-", "/lib/x86_64-linux-gnu/libpthread.so.0\t0x1\t-",
             "/lib/libmpich.so.12.2.1\t0x2\t-", "/usr/lib/openmpi/lib/openmpi3/mca_pml_ob1.so\t0x9\t-",
             "/lib/libopen-pal.so.40\t0x5\t-", "/w/solver\t0x1234\t-", "/w/libmpistuff.so\t0x99\t-",
             "/lib/x86_64-linux-gnu/libc.so.6\t0x7\t-"]  # fmt: skip
    found = stacks.frames("".join(f"c\t{line}\n" for line in lines) + "\n")
    assert [str(site) for site in found] == ["/w/solver+0x1234", "/w/libmpistuff.so+0x99"]


LISTENING = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGRTMIN + 11, file=open(sys.argv[1], "ab", buffering=0), all_threads=True, chain=False)
def work():
    sys.stdout.write("ready\\n"); sys.stdout.flush(); time.sleep(60)
work()
"""


def test_a_process_that_listens_says_where_it_is_and_one_that_does_not_is_let_alone(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(LISTENING)
    silent = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"]
    listening = [sys.executable, str(tmp_path / "work.py"), str(tmp_path / "rank-00001.stack")]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            for words in (silent, listening)
        ]
        for process in started:
            stack.callback(process.kill)
            assert process.stdout and process.stdout.readline() == "ready\n"
        for _ in range(2):
            found = stacks.ask(tmp_path, {rank: process.pid for rank, process in enumerate(started)})
            assert {rank: stacks.rendered(frames, str(tmp_path)) for rank, frames in found.items()} == {
                1: "work.py:5 < work.py:6"
            }
        assert [process.poll() for process in started] == [None, None]


EXCHANGE = """
import faulthandler
path = os.environ["SAFEPOINT_TRACE"] + f"/rank-{rank:05d}.stack"
faulthandler.register(signal.SIGRTMIN + 11, file=open(path, "ab", buffering=0), all_threads=True, chain=False)
def exchange():
    comm.recv(source=1 - rank, tag=5)
def main():
    exchange()
main()
"""


def test_ranks_that_listen_say_where_they_are_when_the_program_hangs(run: Callable[..., Run]) -> None:
    """As the tracer lets them in check mode: while MPI holds the interpreter."""
    program = run(2, EXCHANGE)
    text = program.until("hang").text
    assert "Recv(source=1, tag=5)  solver.py:9 < main solver.py:11 < solver.py:12  since" in text


def test_a_rank_that_cannot_be_read_from_the_start_is_named_and_the_others_are_followed(tmp_path: Path) -> None:
    Noted(tmp_path, 2)
    (tmp_path / "rank-00001.json").write_text("{}")
    ends = Ends(tmp_path, HANG_S)
    ends.poll()
    told = [event for event in ends.look() if event.kind == "lost"]
    assert list(ends.followed) == [0] and [event.ranks for event in told] == [(1,)], told
    assert told[0].text.startswith("rank 1 is not followed: ") and "rank-00001.json" in told[0].text
    assert not [event for event in ends.look() if event.kind == "lost"]  # once


def test_a_rank_of_a_program_of_another_size_is_not_followed(tmp_path: Path) -> None:
    Noted(tmp_path, 2, {1: {"size": 3}})
    ends = Ends(tmp_path, HANG_S)
    ends.poll()
    assert ends.never == {1: f"rank 1 is not followed: {tmp_path / 'rank-00001.json'}: the trace is of 2 ranks, and "
                             "this one is of another program"}  # fmt: skip


def test_that_others_wait_for_a_rank_that_is_not_followed_is_told_and_is_no_hang(tmp_path: Path) -> None:
    """It may compute. Once: nothing has moved since."""
    with subprocess.Popen(["sleep", "60"]) as process:
        trace = Noted(tmp_path, 2, {0: {"pid": process.pid, "boot": processes.boot()}})
        trace[0].call("Recv", 4, peer=1, tag=5, state=ENTERED)
        (tmp_path / "rank-00001.json").write_text("{}")
        ends, events, end = Ends(tmp_path, 0.3), list[Event](), time.monotonic() + 3
        while time.monotonic() < end:
            ends.poll()
            events += ends.look()
            time.sleep(0.05)
        process.kill()
    ends.close()
    assert [event.kind for event in events] == ["lost", "lost"] and events[1].ranks == (1,), events
    said = r"rank 1 is not followed, and nothing else moves since \d s: whether this is a hang is not known"
    assert re.fullmatch(said, events[1].text), events


@pytest.mark.parametrize("wrong", ["size", "calls", "more", "sites", "objects", "head"])
def test_of_a_rank_that_is_refused_no_file_is_kept_open(wrong: str, tmp_path: Path) -> None:
    """There may be thousands, and descriptors are few."""
    trace = Noted(tmp_path, 2, {1: {"size": 3}} if wrong == "size" else {})
    trace.close()
    if wrong == "head":
        (tmp_path / "rank-00001.more").write_bytes(bytes(64))
    elif wrong != "size":
        (tmp_path / f"rank-00001.{wrong}").unlink()
    before = len(os.listdir("/proc/self/fd"))
    ends = Ends(tmp_path, HANG_S)
    ends.poll()
    assert list(ends.never) == [1]
    ends.close()
    assert len(os.listdir("/proc/self/fd")) == before
