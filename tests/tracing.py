"""strace at a life of the solver: what system calls it makes, and what happens to it at one of them."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lives import Life, Running

FILE_CALLS = "trace=%file,%desc"
why_not = None if shutil.which("strace") else "needs strace"

Call = tuple[str, int]  # a system call of one thread: its name, and its index among those of that name, from 1 on


@contextmanager
def tracer(program: Running, gate: str, *how: str) -> Iterator[subprocess.Popen[str]]:
    """strace at one thread of a life that waits at a gate: the main one at `start`, the saver at `saver`."""
    threads = program.until(f"gate {gate} ").split()[2:]
    thread = threads[0] if gate == "start" else threads[1]
    arguments = ["strace", "-qq", "-p", thread, *how]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as strace:
        try:
            wait_until_attached(int(thread), int(threads[0]), strace)
            with contextlib.suppress(BrokenPipeError):  # killed in the very read that waits for this byte
                program.go()
            yield strace
        finally:
            program.kill()  # then the tracer ends too


def wait_until_attached(thread: int, pid: int, strace: subprocess.Popen[str]) -> None:
    """Until the thread has a tracer, or was killed by it."""
    status = Path(f"/proc/{pid}/task/{thread}/status")
    while strace.poll() is None:
        text = status.read_text()
        if "TracerPid:\t0\n" not in text or "State:\tZ" in text:
            return
        time.sleep(0.001)


def calls_of(directory: Path, gate: str, *arguments: object, end_after: str = "") -> list[Call]:
    """The file-system calls of one thread of a life, in order. `end_after`: killed when it says what begins so."""
    trace = directory.parent / f"{directory.name}.trace"
    how = "-e", FILE_CALLS, "-o", str(trace)
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how):
        if end_after:
            program.until(end_after)
        else:
            program.end()
    calls = count_calls(trace)
    trace.unlink()
    assert len(calls) > 40, "hardly any call was traced: this tests nothing"
    return calls


def count_calls(trace: Path) -> list[Call]:
    """Each call of a traced life, in order."""
    counts: collections.Counter[str] = collections.Counter()
    calls = []
    for line in trace.read_text().splitlines():
        name = line.split("(", 1)[0].split()[-1]
        if name.isidentifier():
            counts[name] += 1
            calls.append((name, counts[name]))
    return calls


def at(call: Call, name_of_signal: str) -> list[str]:
    """What makes strace send this signal when the thread enters this call."""
    name, index = call
    return ["-e", f"inject={name}:signal={name_of_signal}:when={index}", "-e", f"trace={name}"]


def killed_at(directory: Path, gate: str, call: Call, *arguments: object) -> Life:
    """A life that ends by SIGKILL at this call, or by itself if it does not get there."""
    how = *at(call, "SIGKILL"), "-o", os.devnull
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how):
        return program.end()


@contextmanager
def stopped_at(directory: Path, gate: str, call: Call, *arguments: object) -> Iterator[tuple[Running, bool]]:
    """A life that stands still after this call, all its threads; whether it got there, else it has ended."""
    how = at(call, "SIGSTOP")
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how) as strace:
        assert strace.stderr is not None
        yield program, any("stopped by SIGSTOP" in line for line in strace.stderr)


def stop(program: Running) -> None:
    """Let it stand still now, if it has not ended."""
    stat = Path(f"/proc/{program.pid}/stat")
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(program.pid, signal.SIGSTOP)
        while stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
            time.sleep(0.0005)
