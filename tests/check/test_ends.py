"""How ranks end: a hang is told with who waits for whom, and what is none is not called so."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from testbed import traced
from testbed.checking import PATIENCE_S
from testbed.foreign import Mpi, each_mpi, needs
from testbed.foreign import environment as of_system
from testbed.foreign import program as compiled
from testbed.noted import Noted
from testbed.waiting import wait_for

from safepoint.check import ends, processes, stacks
from safepoint.check.ends import Ends, Event
from safepoint.matching.symbols import Site
from safepoint.run import proc
from safepoint.trace import launch, record
from safepoint.trace.record import ENTERED, RETURNED

HANG_S = 600.0  # nobody waits so long: `later` moves the clock by which it is judged
BEGIN = """import os, signal, sys, threading, time
from mpi4py import MPI
comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
Later = Callable[..., None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Let the clock of `ends` jump; by default so far that what has not moved meanwhile hangs."""
    ahead = [0.0]

    def jump(seconds: float = 2 * HANG_S) -> None:
        ahead[0] += seconds

    monkeypatch.setattr(ends, "time", SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + int(ahead[0] * 1e9)))
    return jump


class Run:
    """A program under `safepoint trace`, followed: of Python, or of C with one of these libraries."""

    def __init__(self, where: Path, ranks: int, program: str, mpi: Mpi | None = None) -> None:
        self.trace, self.ranks = where / "t", ranks
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

    def follow(self, until: Callable[[], object] = lambda: False) -> list[Event]:
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and not until():
            assert time.monotonic() < end, self.events
            self.ends.poll()
            self.events += self.ends.look()
            self.ends.wait(0.02)
        if self.process.poll() is not None:
            self.ends.poll()
            self.events += [*self.ends.look(), *self.ends.finish(self.process.returncode)]
        return self.events

    def until(self, kind: str) -> Event:
        self.follow(lambda: {kind, "hang"} & {*self.kinds()})
        found = [event for event in self.events if event.kind == kind]
        assert found, self.events
        return found[0]

    def stands(self, *names: str, came: int = 0) -> None:
        """Follow until each rank is inside of this call, or, "", outside after one; the first is in this Barrier."""

        def of(rank: int) -> str | None:
            one = self.ends.followed[rank].standing
            return one.name(ends.inside(one)[0]) if any(one.inside.values()) else "" if one.last else None

        self.follow(
            lambda: (
                len(self.ends.followed) == len(names)
                and [*map(of, range(len(names)))] == [*names]
                and came in (0, self.ends.followed[0].standing.came["world"])
            )
        )

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def parent(self, rank: int) -> int:
        """The process of the launcher that started this rank."""
        stat = Path(f"/proc/{self.ends.followed[rank].pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])


@pytest.fixture
def run(tmp_path: Path, later: Later) -> Iterator[Callable[..., Run]]:
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


def said_of(text: str) -> list[str]:
    """The lines of a report of a hang, without its head and without times."""
    return [line.split("  since")[0].rstrip() for line in text.splitlines()[1:]]


HANGS = """
import faulthandler
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = os.environ["SAFEPOINT_TRACE"] + f"/rank-{rank:05d}.stack"
faulthandler.register(signal.SIGRTMIN + 11, file=open(path, "ab", buffering=0), all_threads=True, chain=False)
def main():
    if rank == 1:
        comm.recv(source=2, tag=5)
    comm.Barrier()
main()
"""


def test_a_hang_is_told_with_stacks_and_who_waits_and_is_ended_with_all_processes(
    run: Callable[..., Run], later: Later
) -> None:
    """Stacks, as the tracer lets ranks say them in check mode: while MPI holds the interpreter."""
    program = run(3, HANGS)
    program.stands("Barrier", "Recv", "Barrier")
    assert program.kinds() == []
    later()
    hang = program.until("hang").hang
    assert hang is not None and hang.deadlock and hang.ranks == (0, 1, 2) and program.kinds()[-1] == "hang"
    assert said_of(hang.text) == [
        "  ranks 0 2  Barrier                solver.py:15 < solver.py:16",
        "  rank  1    Recv(source=2, tag=5)  solver.py:14 < solver.py:16",
        "  rank 1 waits for rank 2, rank 2 for rank 1: deadlock. Nobody has sent (2 → 1, tag 5). "
        "Rank 1 has not come to Barrier",
        "  rank 0 waits for one of these ranks",
    ]
    pids = program.ends.pids()
    assert len(pids) == 3
    program.ends.end(program.process, 0.2)
    wait_for(lambda: not any(map(proc.is_alive, pids)), pids)
    assert program.process.poll() is not None


@needs("cc", "mpicc.mpich")
@each_mpi
def test_ranks_of_c_that_wait_for_each_other_are_a_deadlock(run: Callable[..., Run], later: Later, mpi: Mpi) -> None:
    """Of a `Wait` nobody has noted for which request: it is one of those that are open."""
    program = run(3, "wait", mpi)
    program.stands("Barrier", "Recv", "Wait")
    later()
    hang = program.until("hang").hang
    assert hang is not None and hang.stuck == (0, 1, 2)
    assert said_of(hang.text) == [
        "  rank  0  Barrier                hangs.c:38",
        "  rank  1  Recv(source=2, tag=5)  hangs.c:11",
        "  rank  2  Wait                   hangs.c:36",
        "  rank 1 waits for rank 2, rank 2 for rank 1: deadlock. Nobody has sent (2 → 1, tag 5); what rank 2 has sent, "
        "and nobody has received, has tag 8. Nobody has sent (1 → 2, tag 9)",
        "  rank 0 waits for one of these ranks",
    ]


@pytest.mark.proof
@needs("cc", "mpicc.mpich")
@each_mpi
def test_a_rank_of_c_that_dies_is_told_first(run: Callable[..., Run], mpi: Mpi) -> None:
    """Its launcher, which would kill the others, is kept from it until that is seen."""
    program = run(3, "abort", mpi)
    program.until("died")
    program.follow()
    assert program.ends.deaths[0] == 1 and program.events[0].text == "rank 1 died (SIGABRT) after Barrier hangs.c:20"
    text = program.ends.death(1, program.process.returncode)  # the status of the process, or what the launcher says
    assert re.fullmatch(r"rank 1 died \((SIGABRT|a signal)\) after Barrier hangs.c:20", text)


def test_the_rank_that_was_killed_is_told_first_and_where_it_was(run: Callable[..., Run]) -> None:
    """The launcher takes note of it and kills the others at once, so it stands still until that is seen."""
    program = run(3, "comm.Barrier()\ncomm.recv(source=(rank + 1) % 3, tag=5)\n")
    program.stands("Recv", "Recv", "Recv")
    launcher = program.parent(1)
    os.kill(launcher, signal.SIGSTOP)
    try:
        os.kill(program.ends.followed[1].pid, signal.SIGKILL)
        assert program.until("died").ranks == (1,)
    finally:
        os.kill(launcher, signal.SIGCONT)
    program.follow()
    assert program.events[0].kind == "died" and "hang" not in program.kinds() and program.ends.deaths[0] == 1
    assert program.ends.death(1, program.process.returncode) == (
        "rank 1 died (SIGKILL) in Recv(source=2, tag=5) solver.py:8"
    )


PHASES = """comm.Barrier()
until("all")
comm.Barrier()
if rank:
    until("one")
comm.Barrier()
if rank:
    os.kill(os.getpid(), signal.SIGSTOP)
comm.Barrier()
"""


def test_ranks_that_compute_or_are_stopped_do_not_hang_however_long_it_takes(
    run: Callable[..., Run], later: Later, tmp_path: Path
) -> None:
    """Nothing is said while all compute; one for which the others wait is named, and one that was stopped."""
    program = run(2, PHASES)
    program.stands("", "")
    for _ in range(2):
        later()
        program.ends.poll()
        assert program.ends.look() == []
    (tmp_path / "all").touch()
    program.stands("Barrier", "", came=3)
    later()
    computes = program.until("computes")
    assert computes.ranks == (1,) and re.match(r"rank 1 computes since 36\d\d s, after solver.py:9$", computes.text)
    (tmp_path / "one").touch()
    program.follow(lambda: program.ends.followed[1].process.stopped)
    program.stands("Barrier", "", came=4)
    later()
    text = "rank 1 is stopped (SIGSTOP, or a debugger), solver.py:12"  # it may be told before its last call is read
    program.follow(lambda: text in {event.text for event in program.events})
    assert {event.ranks for event in program.events if event.kind == "stopped"} == {(1,)}
    os.kill(program.ends.followed[1].pid, signal.SIGCONT)
    program.follow()
    assert program.process.returncode == 0  # before it goes on it may be told of once more
    assert [*dict.fromkeys(program.kinds())] == ["computes", "stopped", "ended"]


WORKER = """
def work():
    while not os.path.exists("go"):
        sum(range(10_000))
    comm.send(1, 0, 3)
if rank:
    threading.Thread(target=work).start()
comm.recv(source=1 - rank, tag=3) if rank == 0 else comm.recv(source=0, tag=4)
if rank == 0:
    comm.send(1, 1, 4)
"""


@pytest.mark.proof
def test_a_thread_that_computes_and_has_not_called_mpi_yet_makes_it_no_hang(
    run: Callable[..., Run], later: Later, tmp_path: Path
) -> None:
    """What its threads use of a processor is looked at for a second."""
    program = run(2, WORKER)
    program.stands("Recv", "Recv")
    later(HANG_S - 1.2)
    computes = program.until("computes")
    assert computes.ranks == (1,) and "another thread of it is at work" in computes.text
    (tmp_path / "go").touch()
    program.follow()
    assert program.process.returncode == 0 and "hang" not in program.kinds(), program.events


# Of notes that no program has written.

Noting = tuple[int, str, dict[str, Any]]  # a rank is inside of this call


def watched(trace: Noted, *calls: Noting) -> Ends:
    for rank, name, how in calls:
        trace[rank].call(name, 3 + rank, **{"state": ENTERED, **how})
    found = Ends(trace.directory, HANG_S)
    found.poll()
    return found


def events(watched: Ends) -> list[tuple[str, tuple[int, ...]]]:
    return [(event.kind, event.ranks) for event in watched.look()]


HIDE: dict[str, Any] = {"comm": 0, "size": 1}
FROM_0 = 1, "Recv", {"peer": 0, "tag": 1}
STANDING: dict[str, tuple[list[Noting], list[tuple[str, tuple[int, ...]]]]] = {
    "all are in one hide, and store": ([(0, "hide", HIDE), (1, "hide", HIDE)], []),
    "one is in hide, and the other waits": ([(0, "hide", HIDE), FROM_0], [("hang", (0, 1))]),
    "one writes a file for long": ([(0, "Barrier", {}), (1, "File_write", {"comm": 0})], [("computes", (1,))]),
    "another thread is outside, and may still do something": (
        [(0, "Barrier", {}), (1, "Recv", {"comm": 2, "peer": 0, "tag": 1, "thread": 0}),
         (1, "Barrier", {"comm": 2, "thread": 1, "state": RETURNED})],
        [("computes", (1,))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", STANDING)
def test_where_nothing_moves_this_is_told_once(how: str, tmp_path: Path, later: Later) -> None:
    calls, expected = STANDING[how]
    quiet = watched(Noted(tmp_path, 2), *calls)
    assert events(quiet) == []
    later()
    assert (events(quiet), events(quiet)) == (expected, [])
    quiet.close()


def test_a_receive_of_what_nobody_sends_is_told_with_the_rank_that_has_ended(tmp_path: Path, later: Later) -> None:
    trace = Noted(tmp_path, 2)
    quiet = watched(trace, FROM_0)
    trace[0].notes.close("exit")
    assert events(quiet) == [("ended", (0,))]
    later()
    (hang,) = quiet.look()
    assert "rank  0  has ended" in hang.text and "rank 1 waits for rank 0, which has ended" in hang.text
    quiet.close()


def test_a_report_is_withdrawn_when_a_rank_goes_on(tmp_path: Path, later: Later) -> None:
    trace = Noted(tmp_path, 2)
    quiet = watched(trace, (0, "Recv", {"peer": 1, "tag": 1}), FROM_0)
    later()
    assert events(quiet) == [("hang", (0, 1))]
    trace[1].notes.map[record.HEADER + record.NOTE - 1] = RETURNED  # as if its note had come late
    quiet.poll()
    assert events(quiet) == [("goes on", (1,))]
    quiet.close()


def test_a_deadlock_of_some_is_told_while_the_others_go_on(tmp_path: Path, later: Later) -> None:
    trace = Noted(tmp_path, 3)
    quiet = watched(trace, (0, "Recv", {"peer": 1, "tag": 1}), FROM_0)
    later()
    trace[2].call("Barrier", 9, comm=2)
    quiet.poll()
    (event,) = quiet.look()
    assert (event.kind, event.ranks) == ("deadlock", (0, 1))
    assert event.text.startswith("rank 0 waits for rank 1, rank 1 for rank 0: deadlock")
    quiet.close()


def test_a_rank_that_cannot_be_read_is_named_once_and_that_others_wait_for_it_is_no_hang(
    tmp_path: Path, later: Later
) -> None:
    """The others are followed. It may compute."""
    trace = Noted(tmp_path, 2)
    (tmp_path / "rank-00001.json").write_text("{}")
    quiet = watched(trace, (0, "Recv", {"peer": 1, "tag": 5}))
    (lost,) = quiet.look()
    assert [*quiet.followed] == [0] and (lost.kind, lost.ranks) == ("lost", (1,))
    assert lost.text.startswith("rank 1 is not followed: ") and "rank-00001.json" in lost.text
    later()
    (event,) = quiet.look()
    said = r"rank 1 is not followed, and nothing else moves since \d+ s: whether this is a hang is not known"
    assert (event.kind, event.ranks) == ("lost", (1,)) and re.fullmatch(said, event.text), event
    later()
    assert quiet.look() == []
    quiet.close()


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
    refused = Ends(tmp_path, HANG_S)
    refused.poll()
    assert [*refused.never] == [1]
    if wrong == "size":
        assert refused.never[1] == (f"rank 1 is not followed: {tmp_path / 'rank-00001.json'}: the trace is of 2 ranks, "
                                    "and this one is of another program")  # fmt: skip
    refused.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_has_the_number_of_a_rank_later_is_not_taken_for_it(tmp_path: Path) -> None:
    """(3): it would be sent a signal."""
    mine, other = (
        watched(Noted(tmp_path / name, 1, {0: {"boot": of, "pid": os.getpid()}}))
        for name, of in (("t", processes.boot()), ("u", "of another host"))
    )
    assert mine.pids() == [os.getpid()]
    mine.followed[0].process.started -= 1
    assert mine.pids() == other.pids() == other.look() == []
    mine.close()
    other.close()


# Processes.

LAUNCHER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = [sys.executable, "-ISc", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(600)"]
for apart in (False, True):
    child = subprocess.Popen(wait, start_new_session=apart, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_launcher_that_does_not_end_is_killed_with_its_group_and_what_is_left() -> None:
    process = subprocess.Popen([sys.executable, "-ISc", LAUNCHER], stdout=subprocess.PIPE, text=True,
                               start_new_session=True)  # fmt: skip
    assert process.stdout is not None
    in_group, apart = (int(process.stdout.readline()) for _ in range(2))
    process.stdout.close()
    assert processes.end(process, 0.2, lambda: [apart]) == -signal.SIGKILL
    wait_for(lambda: not proc.is_alive(in_group) and not proc.is_alive(apart), (in_group, apart))


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
    sys.stdout.write("ready\\n"); sys.stdout.flush(); time.sleep(600)
work()
"""


def test_a_process_that_listens_says_where_it_is_and_one_that_does_not_is_let_alone(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(LISTENING)
    silent = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"]
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
